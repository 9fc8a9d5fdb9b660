/* lanes: sixteen floats, the unit in which the contract defines sums, on every vector instruction
 * set. The bodies in vector_lanes.h and attend_lanes.h are written once in these terms and compiled
 * once for each set; lanes_avx2.h, lanes_avx512.h and lanes_neon.h supply
 *
 *   lanes, mask                      sixteen floats; a choice among them
 *   zero, all                        0 or one value in every lane
 *   load, store; load_n, store_n     sixteen floats, any alignment; the first n of sixteen,
 *                                    0 <= n <= 16, reading 0 and writing nothing elsewhere
 *   load_f16, load_f16_n, store_f16  the same for binary16 in memory, written to nearest even
 *   add, sub, mul, div, max          max(a, b) is a > b ? a : b, hence b when either is NaN
 *   fma, fms, fmaddsub               a·b+c, a·b-c, and both: even lanes subtract
 *   first, between, le, lt, keep     masks; keep(m, a, b) is a where m holds and b elsewhere
 *   equals                           one bit a lane
 *   sum, greatest                    over the fixed tree
 *   dup8, swap_pairs                 p0 p0 p1 p1 ... of the first n of eight; neighbours exchanged
 *   shift_exponent(p, t)             p · 2^n, n in the low bits of t, by integer addition
 *
 * The fixed tree of a sum over lanes x[0..15]: x[i] += x[i+8] for i < 8, then x[i] += x[i+4] for
 * i < 4, x[i] += x[i+2] for i < 2, and x[0] + x[1]. */
#ifndef LANES_H
#define LANES_H

#include "elementary.h"
#include "kern_internal.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

enum { LANES = 16 };

#if defined(__aarch64__)
#include "lanes_neon.h"
#elif defined(__AVX512F__)
#include "lanes_avx512.h"
#elif defined(__AVX2__)
#include "lanes_avx2.h"
#else
#error "this file needs the flags of a vector instruction set"
#endif

/* kern_exp in every lane. */
static inline lanes lanes_exp(lanes x) {
    lanes t = lanes_fma(x, lanes_all(EXP_LOG2E), lanes_all(EXP_ROUND));
    lanes n = lanes_sub(t, lanes_all(EXP_ROUND));
    lanes r = lanes_fma(n, lanes_all(-EXP_LN2_HI), x);
    r = lanes_fma(n, lanes_all(-EXP_LN2_LO), r);
    lanes p = lanes_all(EXP_C6);
    p = lanes_fma(p, r, lanes_all(EXP_C5));
    p = lanes_fma(p, r, lanes_all(EXP_C4));
    p = lanes_fma(p, r, lanes_all(EXP_C3));
    p = lanes_fma(p, r, lanes_all(EXP_C2));
    p = lanes_fma(p, r, lanes_all(1));
    p = lanes_fma(p, r, lanes_all(1));
    lanes y = lanes_shift_exponent(p, t);
    y = lanes_keep(lanes_le(x, lanes_all(EXP_MAX)), y, lanes_add(x, lanes_all(INFINITY)));
    return lanes_keep(lanes_lt(x, lanes_all(EXP_MIN)), lanes_zero(), y);
}

/* kern_tanh in every lane. */
static inline lanes lanes_tanh(lanes x) {
    lanes minus = lanes_sub(lanes_all(-0.0f), x), a = lanes_max(x, minus), z = lanes_mul(x, x);
    lanes p = lanes_all(TANH_C5);
    p = lanes_fma(p, z, lanes_all(TANH_C4));
    p = lanes_fma(p, z, lanes_all(TANH_C3));
    p = lanes_fma(p, z, lanes_all(TANH_C2));
    p = lanes_fma(p, z, lanes_all(TANH_C1));
    p = lanes_fma(lanes_mul(p, z), x, x);
    lanes e = lanes_add(lanes_exp(lanes_add(a, a)), lanes_all(1));
    lanes y = lanes_sub(lanes_all(1), lanes_div(lanes_all(2), e));
    y = lanes_keep(lanes_lt(x, lanes_zero()), lanes_sub(lanes_all(-0.0f), y), y);
    return lanes_keep(lanes_lt(a, lanes_all(TANH_EDGE)), p, y);
}

#endif
