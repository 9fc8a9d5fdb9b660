/* Activation rows of products, in terms of lanes and ints; defined in gemm_ref.c. */
#include "ints.h"

#include <math.h>

/* Quantises n numbers, a multiple of 16; returns d. */
KERN_INLINE float quantise(int n, const float *x, int8_t *q) {
    ints magnitude = ints_zero();
    for (int i = 0; i < n; i += LANES)
        magnitude = ints_max(magnitude, ints_magnitude(lanes_load(x + i)));
    uint32_t bits = (uint32_t)ints_greatest(magnitude);
    if (bits >= 0x7f800000 || bits < bits_of_f32(0x1p-110f)) {
        memset(q, 0, (size_t)n);
        return bits >= 0x7f800000 ? NAN : 0;
    }
    float amax = f32_of_bits(bits);
    lanes scale = lanes_all(127.0f / amax);
    for (int i = 0; i < n; i += LANES)
        ints_store_bytes(q + i, ints_round(lanes_mul(lanes_load(x + i), scale)));
    return amax / 127.0f;
}

static inline int32_t sum_of_16(const int8_t *q) {
    return ints_sum(ints_widen((const uint8_t *)q));
}

static void act_row(enum kern_type type, int k, const float *x, void *row) {
    int8_t *q = row;
    switch (kern_form_of(type)) {
    case KERN_FORM_FLOAT:
        memcpy(row, x, (size_t)k * sizeof *x);
        break;
    case KERN_FORM_32:
        for (kern_act *a = (kern_act *)(q + k); k > 0; k -= 32, x += 32, q += 32, a++) {
            float d = quantise(32, x, q);
            int32_t sum = sum_of_16(q) + sum_of_16(q + 16);
            *a = (kern_act){d, d * (float)sum, -8 * sum, -16 * sum, -128 * sum};
        }
        break;
    case KERN_FORM_256:
        for (kern_act256 *a = (kern_act256 *)(q + k); k > 0; k -= 256, x += 256, a++) {
            a->d = quantise(256, x, q);
            for (int j = 0; j < 16; j++, q += 16) a->sum16[j] = (int16_t)sum_of_16(q);
            for (int j = 0; j < 8; j++)
                a->sum32[j] = (int16_t)(a->sum16[2 * j] + a->sum16[2 * j + 1]);
        }
        break;
    }
}
