/* The bodies of gemm_avx2.c and gemm_avx512.c: activation rows, float products, and integer
 * products without VNNI. They are written in terms of lanes (lanes.h) and of `ints`, which the
 * including file supplies: 16 × int32 or 32 × int16 or 64 bytes, lane by lane, with
 *
 *   ints_load, ints_zero, ints_all        64 aligned bytes; one int32 in all lanes
 *   ints_four(p)                          four bytes at p in all lanes
 *   ints_low, ints_high                   nibbles of bytes
 *   ints_add_products(sum, w, q)          adds w[2j]·q[2j] + w[2j+1]·q[2j+1] to int16 j; w unsigned
 *   ints_pairs(sum, factor)               int32 j = factor · (int16 2j + int16 2j+1)
 *   ints_add, ints_float                  int32
 *   ints_round(x), ints_magnitude(x)      of lanes: to nearest even; bits without sign
 *   ints_max, ints_greatest, ints_sum     int32
 *   ints_store_bytes                      16 × int32 within ±127 as int8
 *
 * Sums of 8 products of a nibble: 8·2·15·127 = 30,480 stay within int16, so that a nibble type
 * needs one widening a block. Eight-bit weights are two nibbles: w = 16·high + low. */
#include "lanes.h"

#include <math.h>

/* ---- activations ----------------------------------------------------------------------------- */

static void quantise_block(const float *x, int8_t *q, kern_act *block) {
    lanes x0 = lanes_load(x), x1 = lanes_load(x + 16);
    uint32_t bits = (uint32_t)ints_greatest(ints_max(ints_magnitude(x0), ints_magnitude(x1)));
    if (bits >= 0x7f800000 || bits < bits_of_f32(0x1p-110f)) {
        memset(q, 0, KERN_BLOCK);
        *block = (kern_act){.d = bits >= 0x7f800000 ? NAN : 0};
        block->s = block->d;
        return;
    }
    float amax = f32_of_bits(bits), d = amax / 127.0f;
    lanes scale = lanes_all(127.0f / amax);
    ints q0 = ints_round(lanes_mul(x0, scale)), q1 = ints_round(lanes_mul(x1, scale));
    ints_store_bytes(q, q0);
    ints_store_bytes(q + 16, q1);
    int32_t sum = ints_sum(ints_add(q0, q1));
    *block = (kern_act){.d = d, .s = d * (float)sum, .n8 = -8 * sum, .n128 = -128 * sum};
}

static void act_row(enum kern_type type, int k, const float *x, void *row) {
    if (kern_layout_of(type)->block == 1) {
        memcpy(row, x, (size_t)k * sizeof *x);
        return;
    }
    kern_act *block = (kern_act *)((char *)row + k);
    for (int i = 0; i < k; i += KERN_BLOCK) quantise_block(x + i, (int8_t *)row + i, block++);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

KERN_INLINE void finish(const kern_tile *t, int rows, lanes *acc) {
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        float *out = t->out + (size_t)i * t->out_stride;
        if (t->add) acc[i] = lanes_add(lanes_load_n(out, t->g.n_lanes), acc[i]);
        lanes_store_n(out, acc[i], t->g.n_lanes);
    }
}

KERN_INLINE lanes load_numbers(enum kern_type type, const uint8_t *quants) {
    return type == KERN_F32   ? lanes_load((const float *)quants)
           : type == KERN_F16 ? lanes_load_f16((const uint16_t *)quants)
                              : lanes_load_bf16(quants);
}

KERN_INLINE void sum_numbers(enum kern_type type, int rows, const kern_tile *t) {
    const size_t size = type == KERN_F32 ? 64 : 32;
    lanes acc[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) acc[i] = lanes_zero();
    for (int k = 0; k < t->k; k++) {
        lanes w = load_numbers(type, t->g.quants + (size_t)k * size);
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            const float *x = (const float *)(t->act + (size_t)i * t->act_stride);
            acc[i] = lanes_fma(w, lanes_all(x[k]), acc[i]);
        }
    }
    finish(t, rows, acc);
}

KERN_INLINE void sum_nibbles(enum kern_type type, int rows, const kern_tile *t) {
    const size_t scale_size = type == KERN_Q4_1 ? 64 : 32;
    lanes acc[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) acc[i] = lanes_zero();
    for (int b = 0; b < t->g.n_blocks; b++) {
        const uint8_t *quants = t->g.quants + (size_t)b * 256;
        const uint8_t *scales = t->g.scales + (size_t)b * scale_size;
        ints sum[MAX_ROWS];
        KERN_UNROLL for (int i = 0; i < rows; i++) sum[i] = ints_zero();
        KERN_UNROLL for (int v = 0; v < 4; v++) {
            ints x = ints_load(quants + 64 * v), low = ints_low(x), high = ints_high(x);
            KERN_UNROLL for (int i = 0; i < rows; i++) {
                const char *q = t->act + (size_t)i * t->act_stride + b * KERN_BLOCK + 4 * v;
                sum[i] = ints_add_products(sum[i], low, ints_four(q));
                sum[i] = ints_add_products(sum[i], high, ints_four(q + 16));
            }
        }
        lanes d = lanes_load_f16((const uint16_t *)scales);
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            const kern_act *a = kern_act_blocks(t->act + (size_t)i * t->act_stride, t->k) + b;
            ints whole = ints_pairs(sum[i], 1);
            if (type == KERN_Q4_0) whole = ints_add(whole, ints_all(a->n8));
            acc[i] = lanes_fma(lanes_mul(d, lanes_all(a->d)), ints_float(whole), acc[i]);
            if (type == KERN_Q4_1)
                acc[i] = lanes_fma(lanes_load_f16((const uint16_t *)(scales + 32)), lanes_all(a->s),
                                   acc[i]);
        }
    }
    finish(t, rows, acc);
}

KERN_INLINE void sum_bytes(int rows, const kern_tile *t) {
    lanes acc[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) acc[i] = lanes_zero();
    for (int b = 0; b < t->g.n_blocks; b++) {
        const uint8_t *quants = t->g.quants + (size_t)b * 512;
        ints low_sum[MAX_ROWS], high_sum[MAX_ROWS];
        KERN_UNROLL for (int i = 0; i < rows; i++) low_sum[i] = high_sum[i] = ints_zero();
        KERN_UNROLL for (int v = 0; v < 8; v++) {
            ints x = ints_load(quants + 64 * v), low = ints_low(x), high = ints_high(x);
            KERN_UNROLL for (int i = 0; i < rows; i++) {
                ints q = ints_four(t->act + (size_t)i * t->act_stride + b * KERN_BLOCK + 4 * v);
                low_sum[i] = ints_add_products(low_sum[i], low, q);
                high_sum[i] = ints_add_products(high_sum[i], high, q);
            }
        }
        lanes d = lanes_load_f16((const uint16_t *)(t->g.scales + (size_t)b * 32));
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            const kern_act *a = kern_act_blocks(t->act + (size_t)i * t->act_stride, t->k) + b;
            ints whole = ints_add(ints_pairs(low_sum[i], 1), ints_pairs(high_sum[i], 16));
            whole = ints_add(whole, ints_all(a->n128));
            acc[i] = lanes_fma(lanes_mul(d, lanes_all(a->d)), ints_float(whole), acc[i]);
        }
    }
    finish(t, rows, acc);
}

/* One tile of a constant number of rows, so that the accumulators are registers. */
KERN_INLINE void sum_tile(enum kern_type type, int rows, const kern_tile *t) {
    if (type == KERN_Q8_0)
        sum_bytes(rows, t);
    else if (type == KERN_Q4_0 || type == KERN_Q4_1)
        sum_nibbles(type, rows, t);
    else
        sum_numbers(type, rows, t);
}

KERN_INLINE void run(enum kern_type type, const kern_tile *t) {
    switch (t->rows) {
    case 1:
        sum_tile(type, 1, t);
        break;
    case 2:
        sum_tile(type, 2, t);
        break;
    case 3:
        sum_tile(type, 3, t);
        break;
    case 4:
        sum_tile(type, 4, t);
        break;
    case 5:
        sum_tile(type, 5, t);
        break;
    case 6:
        sum_tile(type, 6, t);
        break;
    }
}

static void run_f32(const kern_tile *t) {
    run(KERN_F32, t);
}
static void run_f16(const kern_tile *t) {
    run(KERN_F16, t);
}
static void run_bf16(const kern_tile *t) {
    run(KERN_BF16, t);
}
static void run_q8_0(const kern_tile *t) {
    run(KERN_Q8_0, t);
}
static void run_q4_0(const kern_tile *t) {
    run(KERN_Q4_0, t);
}
static void run_q4_1(const kern_tile *t) {
    run(KERN_Q4_1, t);
}

static void gemm(KERN_GEMM_ARGS) {
    void (*run_tile)(const kern_tile *t) = NULL;
    switch (w->type) {
    case KERN_F32:
        run_tile = run_f32;
        break;
    case KERN_F16:
        run_tile = run_f16;
        break;
    case KERN_BF16:
        run_tile = run_bf16;
        break;
    case KERN_Q8_0:
        run_tile = run_q8_0;
        break;
    case KERN_Q4_0:
        run_tile = run_q4_0;
        break;
    case KERN_Q4_1:
        run_tile = run_q4_1;
        break;
    }
    kern_gemm_walk(w, act, act_stride, m, out, out_stride, add, group0, group1, MAX_ROWS, run_tile);
}
