/* What the kernel tests share: inputs biased towards the edges of binary32, and comparison bit for
 * bit. A NaN equals any NaN: its payload and sign are no part of the contract. */
#ifndef BITS_H
#define BITS_H

#include "kern.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline int draw_below(uint64_t *state, int n) {
    return (int)(draw(state) % (uint64_t)n);
}

/* Uniform in [-1, 1). */
static inline float draw_unit(uint64_t *state) {
    return (float)(int32_t)(draw(state) >> 32) * 0x1p-31f;
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Mostly ordinary numbers, often an edge: zeros, subnormals, the greatest, infinities, any bits
 * (NaNs among them). */
static inline float draw_edge(uint64_t *state) {
    static const float edges[] = {0.0f,    -0.0f,    1.0f,    -1.0f,    0x1p-149f, -0x1p-149f,
                                  FLT_MIN, -FLT_MIN, FLT_MAX, -FLT_MAX, INFINITY,  -INFINITY,
                                  65504,   65520,    88.72f,  -87.34f,  0x1p-14f,  0x1p-25f};
    switch (draw_below(state, 4)) {
    case 0:
        return edges[draw_below(state, sizeof edges / sizeof *edges)];
    case 1:
        return float_of((uint32_t)draw(state));
    default:
        return 8 * draw_unit(state);
    }
}

static inline bool same_bits(float a, float b) {
    return (isnan(a) && isnan(b)) || bits_of(a) == bits_of(b);
}

static inline void assert_same(int n, const float *expected, const float *found) {
    for (int i = 0; i < n; i++)
        if (!same_bits(expected[i], found[i]))
            fail_msg("number %d of %d: expected %a, found %a", i, n, expected[i], found[i]);
}

/* |found - expected| <= bound, for expected values in double precision. */
static inline void assert_near(double expected, float found, double bound) {
    if (!(fabs(found - expected) <= bound))
        fail_msg("expected %.9g, found %.9g, off by %.3g > %.3g", expected, found,
                 fabs(found - expected), bound);
}

/* Calls test for every instruction set above the reference; names those that are skipped. */
static inline void for_each_isa(void (*test)(const kern *reference, const kern *variant)) {
    kern reference, variant;
    kern_init(&reference, KERN_SCALAR);
    for (int isa = KERN_SCALAR + 1; isa < KERN_N_ISA; isa++) {
        if (!kern_isa_usable(isa)) {
            print_message("skipped: %s is not usable here\n", kern_isa_name(isa));
            continue;
        }
        kern_init(&variant, isa);
        test(&reference, &variant);
    }
}

#endif
