/* Matrix products of integer types with AVX-512 VNNI. */
#include "kern_internal.h"

#include <immintrin.h>

/* A tile is up to MAX_ROWS activation rows against one group. For each block the eight weight
 * vectors stay in registers while the rows pass, ABREAST at a time so that their dependent sums
 * overlap: VPDPBUSD takes its activations straight from memory, four bytes broadcast to all lanes.
 */
enum { MAX_ROWS = 8, ABREAST = 4 };

/* The weights of one block, vector v holding k = 4v..4v+3 of each lane. */
KERN_INLINE void load_weights(enum kern_type type, const uint8_t *quants, __m512i w[8]) {
    const __m512i low = _mm512_set1_epi8(15);
    KERN_UNROLL for (int v = 0; v < 4; v++) {
        __m512i x = _mm512_load_si512(quants + 64 * v);
        if (type == KERN_Q8_0) {
            w[v] = x;
            w[v + 4] = _mm512_load_si512(quants + 64 * (v + 4));
        } else {
            w[v] = _mm512_and_si512(x, low);
            w[v + 4] = _mm512_and_si512(_mm512_srli_epi16(x, 4), low);
        }
    }
}

KERN_INLINE __m512 load_halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)p));
}

KERN_INLINE __m512i broadcast_four(const char *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}

/* What the offset of unsigned weights adds too much. */
KERN_INLINE __m512i excess(enum kern_type type, const kern_act *a) {
    return type == KERN_Q8_0   ? _mm512_set1_epi32(a->n128)
           : type == KERN_Q4_0 ? _mm512_set1_epi32(a->n8)
                               : _mm512_setzero_si512();
}

/* Continues the chains of a few rows over block b. */
KERN_INLINE void chain_rows(enum kern_type type, int rows, const kern_tile *t, int row0, int b,
                            const __m512i w[8], __m512 d, __m512 min, __m512 *acc) {
    const char *row[ABREAST];
    const kern_act *a[ABREAST];
    __m512i sum[ABREAST];
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        row[i] = t->act + (size_t)(row0 + i) * t->act_stride;
        a[i] = kern_act_blocks(row[i], t->k) + b;
        sum[i] = excess(type, a[i]);
    }
    KERN_UNROLL for (int v = 0; v < 8; v++) {
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            __m512i q = broadcast_four(row[i] + b * KERN_BLOCK + 4 * v);
            sum[i] = _mm512_dpbusd_epi32(sum[i], w[v], q);
        }
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        __m512 both = _mm512_mul_ps(d, _mm512_set1_ps(a[i]->d));
        acc[i] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(sum[i]), acc[i]);
        if (type == KERN_Q4_1) acc[i] = _mm512_fmadd_ps(min, _mm512_set1_ps(a[i]->s), acc[i]);
    }
}

KERN_INLINE void tile(enum kern_type type, int rows, const kern_tile *t) {
    const size_t quant_size = type == KERN_Q8_0 ? 512 : 256;
    const size_t scale_size = type == KERN_Q4_1 ? 64 : 32;
    __m512 acc[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) acc[i] = _mm512_setzero_ps();
    for (int b = 0; b < t->g.n_blocks; b++) {
        __m512i w[8];
        load_weights(type, t->g.quants + (size_t)b * quant_size, w);
        const uint8_t *scales = t->g.scales + (size_t)b * scale_size;
        __m512 d = load_halves(scales);
        __m512 min = type == KERN_Q4_1 ? load_halves(scales + 32) : d;
        KERN_UNROLL for (int i = 0; i + ABREAST <= rows; i += ABREAST)
            chain_rows(type, ABREAST, t, i, b, w, d, min, acc + i);
        const int rest = rows % ABREAST;
        if (rest) chain_rows(type, rest, t, rows - rest, b, w, d, min, acc + rows - rest);
    }
    const __mmask16 lanes = (__mmask16)((1u << t->g.n_lanes) - 1);
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        float *to = t->out + (size_t)i * t->out_stride;
        if (t->add) acc[i] = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), acc[i]);
        _mm512_mask_storeu_ps(to, lanes, acc[i]);
    }
}

/* The number of rows becomes a constant, so that the accumulators are registers. */
KERN_INLINE void run(enum kern_type type, const kern_tile *t) {
    switch (t->rows) {
    case 1:
        tile(type, 1, t);
        break;
    case 2:
        tile(type, 2, t);
        break;
    case 3:
        tile(type, 3, t);
        break;
    case 4:
        tile(type, 4, t);
        break;
    case 5:
        tile(type, 5, t);
        break;
    case 6:
        tile(type, 6, t);
        break;
    case 7:
        tile(type, 7, t);
        break;
    case 8:
        tile(type, 8, t);
        break;
    }
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

void kern_gemm_vnni(KERN_GEMM_ARGS) {
    void (*run_tile)(const kern_tile *t) = NULL;
    switch (w->type) {
    case KERN_Q8_0:
        run_tile = run_q8_0;
        break;
    case KERN_Q4_0:
        run_tile = run_q4_0;
        break;
    case KERN_Q4_1:
        run_tile = run_q4_1;
        break;
    default:
        kern_gemm_avx512(w, act, act_stride, m, out, out_stride, add, group0, group1);
        return;
    }
    kern_gemm_walk(w, act, act_stride, m, out, out_stride, add, group0, group1, MAX_ROWS, run_tile);
}
