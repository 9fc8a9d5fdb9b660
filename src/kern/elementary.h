/* The elementary functions of the arithmetic contract: constants shared by the definitions in
 * vector_ref.c and by lanes.h. Polynomials are evaluated by Horner's rule, fma throughout.
 *
 * exp
 *
 *   x > EXP_MAX: inf     x < EXP_MIN: 0 (e^x would be subnormal)     NaN: NaN     otherwise
 *   t = fma(x, log2 e, EXP_ROUND), so that t's low bits hold n = x·log2 e to nearest even
 *   n = t - EXP_ROUND;  r = fma(n, -LN2_LO, fma(n, -LN2_HI, x))          |r| <= ln 2 / 2
 *   p = 1 + r(1 + r(C2 + r(C3 + r(C4 + r(C5 + r·C6)))))                  Horner, fma throughout
 *   e^x = p · 2^n, n added to the exponent field of p: exact, as no result is subnormal
 *
 * The split of ln 2 is Cody and Waite's (Software Manual for the Elementary Functions, 1980);
 * C2..C6 minimise the greatest relative error on |r| <= ln 2 / 2 (3.6e-9) with C0 = C1 = 1, which
 * keeps e^0 = 1.
 *
 * tanh
 *   |x| < TANH_EDGE: x + x·z·P(z), z = x²     otherwise: 1 - 2 / (e^(2|x|) + 1) with the sign of x
 * Φ(x) = (1 + erf(x / √2)) / 2, the Gaussian's integral, t = |x| / √2
 *   t < 1: 1/2 ± t·E(t²) / 2     t <= PHI_END: c/2 or 1 - c/2, c = erfc t = e^(G(t) - t²)
 *   beyond: 0 or 1 (c < 2e-10)
 * The polynomials minimise the greatest relative error: 5e-9 (P), 1.2e-9 (E), 6.5e-8 (e^G). */
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

#define TANH_EDGE 0x1.4p-1f
#define TANH_C1 -0x1.55552ep-2f
#define TANH_C2 0x1.110646p-3f
#define TANH_C3 -0x1.b81dc0p-5f
#define TANH_C4 0x1.5157f4p-6f
#define TANH_C5 -0x1.722ae0p-8f

#define PHI_END 4.5f
#define SQRT_HALF 0x1.6a09e6p-1f
#define ERF_C0 0x1.20dd74p+0f
#define ERF_C1 -0x1.81273ep-2f
#define ERF_C2 0x1.ce2cf8p-4f
#define ERF_C3 -0x1.b7f90cp-6f
#define ERF_C4 0x1.5405b2p-8f
#define ERF_C5 -0x1.a3f6fcp-11f
#define ERF_C6 0x1.496a28p-14f
#define ERFC_C0 0x1.069e72p-13f
#define ERFC_C1 -0x1.21245cp+0f
#define ERFC_C2 0x1.77b06ap-2f
#define ERFC_C3 -0x1.be0676p-4f
#define ERFC_C4 0x1.a614d2p-6f
#define ERFC_C5 -0x1.29115ep-8f
#define ERFC_C6 0x1.202376p-11f
#define ERFC_C7 -0x1.548cb4p-15f
#define ERFC_C8 0x1.6f406cp-20f

/* gelu in its tanh form is x / (1 + e^(-2u)), u = √(2/π)·(x + 0.044715·x³). */
#define GELU_A -0x1.988454p+0f /* -2·√(2/π) */
#define GELU_B -0x1.2444f2p-4f /* 0.044715 times that */

/* The clamped SwiGLU of gpt-oss. */
#define CLAMP_LIMIT 7.0f
#define CLAMP_ALPHA 1.702f

#endif
