/* Activation rows of products, in terms of lanes and ints; defined in gemm_ref.c.
 *
 * Finding the greatest number of a block, dividing by it and rounding are one long chain of
 * latencies. They run as three loops over several blocks, so that blocks overlap. */
#include "ints.h"

#include <math.h>

enum { ABREAST = 16 }; /* blocks that overlap */

/* For n <= ABREAST blocks: what to multiply with, and d. Blocks that are tiny or not finite get a
 * scale of 0. */
KERN_INLINE void find_scales(int n, int block, const float *x, float *scale, float *d) {
    int32_t magnitudes[ABREAST] = {0};
    for (int b = 0; b < n; b++) {
        ints most = ints_magnitude(lanes_load(x + b * block));
        for (int i = LANES; i < block; i += LANES)
            most = ints_max(most, ints_magnitude(lanes_load(x + b * block + i)));
        magnitudes[b] = ints_greatest(most);
    }
    float amax[ABREAST];
    memcpy(amax, magnitudes, sizeof amax);
    lanes a = lanes_load(amax);
    lanes_store(scale, lanes_div(lanes_all(127), a));
    lanes_store(d, lanes_div(a, lanes_all(127)));
    for (int b = 0; b < n; b++) {
        bool finite = magnitudes[b] < 0x7f800000;
        if (finite && magnitudes[b] >= (int32_t)bits_of_f32(0x1p-110f)) continue;
        scale[b] = 0;
        d[b] = finite ? 0 : NAN;
    }
}

/* Rounds 16 numbers; returns the sum of all. */
KERN_INLINE int32_t round_16(const float *x, float scale, int8_t *q) {
    ints rounded = ints_zero();
    if (scale > 0) rounded = ints_round(lanes_mul(lanes_load(x), lanes_all(scale)));
    ints_store_bytes(q, rounded);
    return ints_sum(rounded);
}

static void act_32(int n, const float *x, int8_t *q, kern_act *a) {
    float scale[ABREAST], d[ABREAST];
    find_scales(n, 32, x, scale, d);
    for (int b = 0; b < n; b++, x += 32, q += 32, a++) {
        int32_t sum = round_16(x, scale[b], q) + round_16(x + 16, scale[b], q + 16);
        *a = (kern_act){d[b], d[b] * (float)sum, -8 * sum, -16 * sum, -128 * sum};
    }
}

static void act_256(int n, const float *x, int8_t *q, kern_act256 *a) {
    float scale[ABREAST], d[ABREAST];
    find_scales(n, 256, x, scale, d);
    for (int b = 0; b < n; b++, a++) {
        a->d = d[b];
        for (int j = 0; j < 16; j++, x += 16, q += 16)
            a->sum16[j] = (int16_t)round_16(x, scale[b], q);
        for (int j = 0; j < 8; j++) a->sum32[j] = (int16_t)(a->sum16[2 * j] + a->sum16[2 * j + 1]);
    }
}

static void act_row(enum kern_type type, int k, const float *x, void *row) {
    int8_t *q = row;
    kern_act *a = (kern_act *)(q + k);
    kern_act256 *a256 = (kern_act256 *)(q + k);
    switch (kern_form_of(type)) {
    case KERN_FORM_FLOAT:
        memcpy(row, x, (size_t)k * sizeof *x);
        break;
    case KERN_FORM_32:
        for (int b = 0, n = k / 32; b < n; b += ABREAST)
            act_32(n - b < ABREAST ? n - b : ABREAST, x + b * 32, q + b * 32, a + b);
        break;
    case KERN_FORM_256:
        for (int b = 0, n = k / 256; b < n; b += ABREAST)
            act_256(n - b < ABREAST ? n - b : ABREAST, x + b * 256, q + b * 256, a256 + b);
        break;
    }
}
