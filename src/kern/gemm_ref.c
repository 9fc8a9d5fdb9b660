/* The definition of matrix products. Every other variant gives these bits.
 *
 * Activation rows of integer types, for each block of 32 numbers x:
 *     amax = max |x|;  q = rint(x · (127 / amax)), ties to even;  d = amax / 127
 *     amax < 2^-110: q = 0, d = 0;  amax not finite: q = 0, d = NaN
 *     s = d · (float)Σq
 * Products, blocks ascending, acc = 0 at first:
 *     Q8_0, Q4_0:  acc = fma(dw·d, (float)isum, acc)        isum = Σ w·q, an exact integer
 *     Q4_1:        the same with w in 0..15, then  acc = fma(mw, s, acc)
 *     F32, F16, BF16, k ascending:  acc = fma(w, x, acc)
 * out = acc, or out + acc with `add`. Every product, sum and fma rounds once, to nearest even. */
#include "kern_internal.h"

#include <math.h>

/* ---- activations ----------------------------------------------------------------------------- */

/* To nearest even for |x| < 2^22: the sum's last bit is 1. */
static int32_t round_even(float x) {
    return (int32_t)(bits_of_f32(x + 0x1.8p23f) - bits_of_f32(0x1.8p23f));
}

static void quantise_block(const float *x, int8_t *q, kern_act *block) {
    uint32_t bits = 0; /* of |x|: ordered like the numbers, NaN above infinity */
    for (int i = 0; i < KERN_BLOCK; i++) {
        uint32_t magnitude = bits_of_f32(x[i]) & 0x7fffffff;
        bits = magnitude > bits ? magnitude : bits;
    }
    float amax = f32_of_bits(bits);
    bool finite = bits < 0x7f800000, tiny = bits < bits_of_f32(0x1p-110f);
    float scale = finite && !tiny ? 127.0f / amax : 0.0f;
    int32_t sum = 0;
    for (int i = 0; i < KERN_BLOCK; i++) {
        q[i] = scale > 0.0f ? (int8_t)round_even(x[i] * scale) : 0;
        sum += q[i];
    }
    float d = !finite ? NAN : tiny ? 0.0f : amax / 127.0f;
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

/* ---- products -------------------------------------------------------------------------------- */

enum { TILE_ROWS = 16 }; /* rows that share an unpacked block of weights */

static void finish(const kern_tile *t, float acc[TILE_ROWS][KERN_GROUP]) {
    for (int i = 0; i < t->rows; i++) {
        float *out = t->out + (size_t)i * t->out_stride;
        for (int lane = 0; lane < t->g.n_lanes; lane++)
            out[lane] = t->add ? out[lane] + acc[i][lane] : acc[i][lane];
    }
}

KERN_INLINE int weight(enum kern_type type, const uint8_t *quants, int lane, int i) {
    if (type == KERN_Q8_0) return quants[64 * (i / 4) + 4 * lane + i % 4] - 128;
    int byte = quants[64 * (i % 16 / 4) + 4 * lane + i % 4];
    int nibble = i < 16 ? byte & 15 : byte >> 4;
    return type == KERN_Q4_0 ? nibble - 8 : nibble;
}

static int32_t dot_block(const int16_t w[KERN_BLOCK], const int8_t q[KERN_BLOCK]) {
    int32_t sum = 0;
    for (int i = 0; i < KERN_BLOCK; i++) sum += w[i] * q[i];
    return sum;
}

KERN_INLINE void sum_blocks(enum kern_type type, const kern_tile *t) {
    const kern_layout *l = kern_layout_of(type);
    float acc[TILE_ROWS][KERN_GROUP] = {{0}};
    for (int b = 0; b < t->g.n_blocks; b++) {
        int16_t w[KERN_GROUP][KERN_BLOCK];
        for (int lane = 0; lane < KERN_GROUP; lane++)
            for (int i = 0; i < KERN_BLOCK; i++)
                w[lane][i] =
                    (int16_t)weight(type, t->g.quants + (size_t)b * l->quant_size, lane, i);
        uint16_t scales[2 * KERN_GROUP];
        memcpy(scales, t->g.scales + (size_t)b * l->scale_size, l->scale_size);
        for (int i = 0; i < t->rows; i++) {
            const char *row = t->act + (size_t)i * t->act_stride;
            const int8_t *q = (const int8_t *)row + b * KERN_BLOCK;
            const kern_act *a = kern_act_blocks(row, t->k) + b;
            for (int lane = 0; lane < KERN_GROUP; lane++) {
                float *to = &acc[i][lane];
                *to = fmaf(f32_of_f16(scales[lane]) * a->d, (float)dot_block(w[lane], q), *to);
                if (type == KERN_Q4_1) *to = fmaf(f32_of_f16(scales[KERN_GROUP + lane]), a->s, *to);
            }
        }
    }
    finish(t, acc);
}

KERN_INLINE float number(enum kern_type type, const uint8_t *quants, int lane) {
    if (type == KERN_F32) {
        float x;
        memcpy(&x, quants + 4 * lane, sizeof x);
        return x;
    }
    uint16_t half;
    memcpy(&half, quants + 2 * lane, sizeof half);
    return type == KERN_F16 ? f32_of_f16(half) : f32_of_bf16(half);
}

KERN_INLINE void sum_numbers(enum kern_type type, const kern_tile *t) {
    size_t size = kern_layout_of(type)->quant_size;
    float acc[TILE_ROWS][KERN_GROUP] = {{0}};
    for (int k = 0; k < t->k; k++)
        for (int lane = 0; lane < KERN_GROUP; lane++) {
            float w = number(type, t->g.quants + (size_t)k * size, lane);
            for (int i = 0; i < t->rows; i++) {
                const float *x = (const float *)(t->act + (size_t)i * t->act_stride);
                acc[i][lane] = fmaf(w, x[k], acc[i][lane]);
            }
        }
    finish(t, acc);
}

static void run_f32(const kern_tile *t) {
    sum_numbers(KERN_F32, t);
}
static void run_f16(const kern_tile *t) {
    sum_numbers(KERN_F16, t);
}
static void run_bf16(const kern_tile *t) {
    sum_numbers(KERN_BF16, t);
}
static void run_q8_0(const kern_tile *t) {
    sum_blocks(KERN_Q8_0, t);
}
static void run_q4_0(const kern_tile *t) {
    sum_blocks(KERN_Q4_0, t);
}
static void run_q4_1(const kern_tile *t) {
    sum_blocks(KERN_Q4_1, t);
}

static void gemm(KERN_GEMM_ARGS) {
    void (*run)(const kern_tile *t) = NULL;
    switch (w->type) {
    case KERN_F32:
        run = run_f32;
        break;
    case KERN_F16:
        run = run_f16;
        break;
    case KERN_BF16:
        run = run_bf16;
        break;
    case KERN_Q8_0:
        run = run_q8_0;
        break;
    case KERN_Q4_0:
        run = run_q4_0;
        break;
    case KERN_Q4_1:
        run = run_q4_1;
        break;
    }
    kern_gemm_walk(w, act, act_stride, m, out, out_stride, add, group0, group1, TILE_ROWS, run);
}

/* ---- the ladder ------------------------------------------------------------------------------ */

void kern_gemm_walk(KERN_GEMM_ARGS, int max_rows, void (*run)(const kern_tile *t)) {
    kern_tile t = {.k = w->k, .act_stride = act_stride, .out_stride = out_stride, .add = add};
    int n_tiles = (m + max_rows - 1) / max_rows;
    for (int tile = 0; tile < n_tiles; tile++) {
        int i = (int)((int64_t)m * tile / n_tiles);
        t.rows = (int)((int64_t)m * (tile + 1) / n_tiles) - i;
        t.act = (const char *)act + (size_t)i * act_stride;
        for (int group = group0; group < group1; group++) {
            t.g = kern_group_of(w, group);
            t.out = out + (size_t)i * out_stride + group * KERN_GROUP;
            run(&t);
        }
    }
}

void kern_gemm_init(kern *k) {
    k->act_row = act_row;
    k->gemm = gemm;
#ifdef KERN_X86
    if (k->isa >= KERN_AVX2) {
        k->act_row = kern_act_row_avx2;
        k->gemm = kern_gemm_avx2;
    }
    if (k->isa >= KERN_AVX512) {
        k->act_row = kern_act_row_avx512;
        k->gemm = kern_gemm_avx512;
    }
    if (k->isa >= KERN_VNNI) k->gemm = kern_gemm_vnni;
    if (k->isa >= KERN_AMX) k->gemm = kern_gemm_amx;
#endif
}
