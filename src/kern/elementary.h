/* The exponential of the arithmetic contract: constants shared by kern_exp and lanes_exp.
 *
 *   x > EXP_MAX: inf     x < EXP_MIN: 0 (e^x would be subnormal)     NaN: NaN     otherwise
 *   t = fma(x, log2 e, EXP_ROUND), so that t's low bits hold n = x·log2 e to nearest even
 *   n = t - EXP_ROUND;  r = fma(n, -LN2_LO, fma(n, -LN2_HI, x))          |r| <= ln 2 / 2
 *   p = 1 + r(1 + r(C2 + r(C3 + r(C4 + r(C5 + r·C6)))))                  Horner, fma throughout
 *   e^x = p · 2^n, n added to the exponent field of p: exact, as no result is subnormal
 *
 * The split of ln 2 is Cody and Waite's (Software Manual for the Elementary Functions, 1980);
 * C2..C6 minimise the greatest relative error on |r| <= ln 2 / 2 (3.6e-9) with C0 = C1 = 1, which
 * keeps e^0 = 1. */
#ifndef ELEMENTARY_H
#define ELEMENTARY_H

#include <math.h>

#define EXP_MAX 0x1.62e42ep+6f  /* greatest float whose exponential is finite */
#define EXP_MIN -0x1.5d589ep+6f /* least float whose exponential is a normal number */
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_ROUND 0x1.8p+23f
#define EXP_LN2_HI 0x1.63p-1f
#define EXP_LN2_LO -0x1.bd0106p-13f
#define EXP_C2 0x1.fffffcp-2f
#define EXP_C3 0x1.555492p-3f
#define EXP_C4 0x1.5558f2p-5f
#define EXP_C5 0x1.123a24p-7f
#define EXP_C6 0x1.6a23d0p-10f

#endif
