/* The definition of matrix products. Every other variant gives these bits.
 *
 * Activation rows of integer types, for each block of 32 or 256 numbers x:
 *     amax = max |x|;  q = rint(x · (127 / amax)), ties to even;  d = amax / 127
 *     amax < 2^-110: q = 0, d = 0;  amax not finite: q = 0, d = NaN
 * Products, blocks ascending, acc = 0 at first; w are the numbers of the weights before scaling:
 *     blocks of 32:   acc = fma(dw·d, (float)Σ w·q, acc)
 *         minimums:   acc = fma(minw, s, acc), s = d·(float)Σq
 *     blocks of 256:  acc = fma(dw·d, (float)Σ sub·w·q, acc)
 *         minimums:   acc = fma(minw·d, (float)-Σ submin·q, acc)
 *     F32, F16, BF16, k ascending:  acc = fma(w, x, acc)
 * The sums within a block are exact integers. out = acc, or out + acc with `add`. Every product,
 * sum and fma rounds once, to nearest even. */
#include "kern_internal.h"

#include <math.h>

/* ---- activations ----------------------------------------------------------------------------- */

/* To nearest even for |x| < 2^22: the sum's last bit is 1. */
static int32_t round_even(float x) {
    return (int32_t)(bits_of_f32(x + 0x1.8p23f) - bits_of_f32(0x1.8p23f));
}

float kern_quantise(int n, const float *x, int8_t *q) {
    uint32_t bits = 0; /* of |x|: ordered like the numbers, NaN above infinity */
    for (int i = 0; i < n; i++) {
        uint32_t magnitude = bits_of_f32(x[i]) & 0x7fffffff;
        bits = magnitude > bits ? magnitude : bits;
    }
    float amax = f32_of_bits(bits);
    bool finite = bits < 0x7f800000, tiny = bits < bits_of_f32(0x1p-110f);
    float scale = finite && !tiny ? 127.0f / amax : 0.0f;
    for (int i = 0; i < n; i++) q[i] = scale > 0.0f ? (int8_t)round_even(x[i] * scale) : 0;
    return !finite ? NAN : tiny ? 0.0f : amax / 127.0f;
}

static int32_t sum_of(int n, const int8_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += q[i];
    return sum;
}

static void act_row(enum kern_type type, int k, const float *x, void *row) {
    int8_t *q = row;
    switch (kern_form_of(type)) {
    case KERN_FORM_FLOAT:
        memcpy(row, x, (size_t)k * sizeof *x);
        break;
    case KERN_FORM_32:
        for (kern_act *a = (kern_act *)(q + k); k > 0; k -= 32, x += 32, q += 32, a++) {
            float d = kern_quantise(32, x, q);
            int32_t sum = sum_of(32, q);
            *a = (kern_act){d, d * (float)sum, -8 * sum, -16 * sum, -128 * sum};
        }
        break;
    case KERN_FORM_256:
        for (kern_act256 *a = (kern_act256 *)(q + k); k > 0; k -= 256, x += 256, a++) {
            a->d = kern_quantise(256, x, q);
            for (int j = 0; j < 16; j++, q += 16) a->sum16[j] = (int16_t)sum_of(16, q);
            for (int j = 0; j < 8; j++)
                a->sum32[j] = (int16_t)(a->sum16[2 * j] + a->sum16[2 * j + 1]);
        }
        break;
    }
}

void kern_act_rest(enum kern_type type, int k, const void *row, float *x) {
    const int8_t *q = row;
    const bool large = kern_form_of(type) == KERN_FORM_256;
    for (int i = 0; i < k; i++) {
        float d = large ? kern_act_blocks256(row, k)[i / 256].d : kern_act_blocks(row, k)[i / 32].d;
        float taken = d * (float)q[i];
        x[i] -= taken;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

enum { TILE_ROWS = 16 }; /* rows that share an unpacked block of weights */

static void finish(const kern_tile *t, float acc[TILE_ROWS][KERN_GROUP]) {
    for (int i = 0; i < t->rows; i++) {
        float *out = t->out + (size_t)i * t->out_stride;
        for (int lane = 0; lane < t->g[0].n_lanes; lane++)
            out[lane] = t->add ? out[lane] + acc[i][lane] : acc[i][lane];
    }
}

KERN_INLINE int32_t dot(int n, const int16_t *w, const int8_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += w[i] * q[i];
    return sum;
}

/* Continues the chain of one output over block b, whose numbers and scales are w and s. */
static float chain(const kern_layout *l, const kern_tile *t, int row, int b, const int16_t *w,
                   const kern_scales *s, float acc) {
    const char *act = t->act + (size_t)row * t->act_stride;
    const int8_t *q = (const int8_t *)act + b * l->block;
    if (l->block == 32) {
        const kern_act *a = kern_act_blocks(act, t->k) + b;
        acc = fmaf(s->d * a->d, (float)dot(32, w, q), acc);
        return l->has_min ? fmaf(s->min, a->s, acc) : acc;
    }
    const kern_act256 *a = kern_act_blocks256(act, t->k) + b;
    int32_t sum = 0, minus = 0;
    for (int j = 0; j < 16; j++) {
        sum += s->sub[j] * dot(16, w + 16 * j, q + 16 * j);
        minus -= s->submin[j] * a->sum16[j];
    }
    acc = fmaf(s->d * a->d, (float)sum, acc);
    return l->has_min ? fmaf(s->min * a->d, (float)minus, acc) : acc;
}

static void run_integers(const kern_layout *l, const kern_tile *t) {
    float acc[TILE_ROWS][KERN_GROUP] = {{0}};
    for (int b = 0; b < t->g[0].n_blocks; b++)
        for (int lane = 0; lane < t->g[0].n_lanes; lane++) {
            const uint8_t *quants = t->g[0].quants + (size_t)b * l->quant_size;
            int16_t w[256];
            kern_scales s;
            kern_read_scales(l, t->g[0].scales + (size_t)b * l->scale_size, lane, &s);
            for (int i = 0; i < l->block; i += 32, quants += 64 * l->bits)
                kern_read_numbers(l, quants, lane, w + i);
            for (int i = 0; i < t->rows; i++) acc[i][lane] = chain(l, t, i, b, w, &s, acc[i][lane]);
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

KERN_INLINE void run_floats(enum kern_type type, const kern_tile *t) {
    size_t size = kern_layout_of(type)->quant_size;
    float acc[TILE_ROWS][KERN_GROUP] = {{0}};
    for (int k = 0; k < t->k; k++)
        for (int lane = 0; lane < KERN_GROUP; lane++) {
            float w = number(type, t->g[0].quants + (size_t)k * size, lane);
            for (int i = 0; i < t->rows; i++) {
                const float *x = (const float *)(t->act + (size_t)i * t->act_stride);
                acc[i][lane] = fmaf(w, x[k], acc[i][lane]);
            }
        }
    finish(t, acc);
}

static void run(const kern_tile *t) {
    switch (t->type) {
    case KERN_F32:
        run_floats(KERN_F32, t);
        break;
    case KERN_F16:
        run_floats(KERN_F16, t);
        break;
    case KERN_BF16:
        run_floats(KERN_BF16, t);
        break;
    default:
        run_integers(kern_layout_of(t->type), t);
    }
}

static void gemm(KERN_GEMM_ARGS) {
    kern_gemm_walk(w, act, act_stride, m, out, out_stride, add, group0, group1, TILE_ROWS, 1, run);
}

/* ---- the ladder ------------------------------------------------------------------------------ */

void kern_gemm_walk(KERN_GEMM_ARGS, int max_rows, int max_groups, void (*run)(const kern_tile *t)) {
    kern_tile t = {
        .type = w->type, .k = w->k, .act_stride = act_stride, .out_stride = out_stride, .add = add};
    int n_tiles = (m + max_rows - 1) / max_rows;
    for (int tile = 0; tile < n_tiles; tile++) {
        int i = (int)((int64_t)m * tile / n_tiles);
        t.rows = (int)((int64_t)m * (tile + 1) / n_tiles) - i;
        t.act = (const char *)act + (size_t)i * act_stride;
        for (int group = group0; group < group1; group += t.n_groups) {
            t.n_groups = group1 - group < max_groups ? group1 - group : max_groups;
            for (int g = 0; g < t.n_groups; g++) t.g[g] = kern_group_of(w, group + g);
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
    if (k->isa >= KERN_AVXVNNI) k->gemm = kern_gemm_avxvnni;
    if (k->isa >= KERN_AVX512) {
        k->act_row = kern_act_row_avx512;
        k->gemm = kern_gemm_avx512;
    }
    if (k->isa >= KERN_VNNI) k->gemm = kern_gemm_vnni;
    if (k->isa >= KERN_AMX) k->gemm = kern_gemm_amx;
#endif
#ifdef KERN_ARM
    if (k->isa >= KERN_NEON) {
        k->act_row = kern_act_row_neon;
        k->gemm = kern_gemm_neon;
    }
    if (k->isa >= KERN_DOTPROD) k->gemm = kern_gemm_dotprod;
    if (k->isa >= KERN_I8MM) k->gemm = kern_gemm_i8mm;
#endif
}
