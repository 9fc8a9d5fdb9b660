/* Attention over pages, the definition: every variant gives these bits. Payload and sign of a NaN
 * are no part of it.
 *
 * A K/V block, 64 = KERN_PAGE:
 *
 *     K  [dk][64]   number j of token t at j·64 + t     one score is one chain down a column
 *     V  [64][dv]   number j of token t at t·dv + j     one output is one chain down a column
 *
 * For one row q and the visible tokens t = begin, ... end-1 of a super-chunk:
 *
 *     s[t] = fma(q[j], k[j][t], ·)    j ascending from +0
 *     s[t] = kern_tanh(s[t] / c) · c  with a softcap c
 *     m    = max s[t] + 0             from -inf; a NaN never wins; the sum makes -0 into +0
 *     e[t] = kern_exp(s[t] - m)
 *     l    = Σ e[t]                   lane t mod 16, t ascending from +0, then sum_of_lanes
 *     o[j] = fma(e[t], v[t][j], ·)    t ascending from +0
 *
 * Tokens that a row does not see have no part in it, whatever their bytes are: pages are not
 * cleared. A NaN that is seen makes l and o NaN. */
#include "attend_q8.h"
#include "vector.h"

#include <math.h>

static size_t size_of_number(enum kern_type kv) {
    return kv == KERN_F32 ? 4 : 2;
}

size_t kern_kv_size(enum kern_type kv, int dk, int dv) {
    if (kv == KERN_Q8_0) return q8_size(dk, dv);
    return (size_t)KERN_PAGE * (size_t)(dk + dv) * size_of_number(kv);
}

size_t kern_attend_scratch(int dk, int dv) {
    int d = dk > dv ? dk : dv;
    size_t columns = ((size_t)d + WIDEST_PANEL - 1) / WIDEST_PANEL * WIDEST_PANEL;
    size_t size = (2 * (size_t)BLOCK_ROWS * ROW_STRIDE + columns * KERN_PAGE) * sizeof(float);
    return size > q8_scratch(dk, dv) ? size : q8_scratch(dk, dv);
}

static float number(enum kern_type kv, const void *block, size_t index) {
    const uint16_t *halves = block;
    return kv == KERN_F32   ? ((const float *)block)[index]
           : kv == KERN_F16 ? f32_of_f16(halves[index])
                            : f32_of_bf16(halves[index]);
}

static void put(enum kern_type kv, void *block, size_t index, float x) {
    if (kv == KERN_F32)
        ((float *)block)[index] = x;
    else
        ((uint16_t *)block)[index] = kv == KERN_F16 ? f16_of_f32(x) : bf16_of_f32(x);
}

static void kv_put(enum kern_type kv, int dk, int dv, void *block, int slot, const float *k,
                   const float *v) {
    if (kv == KERN_Q8_0) {
        q8_put_ref(dk, dv, block, slot, k, v);
        return;
    }
    size_t values = (size_t)dk * KERN_PAGE;
    for (int j = 0; j < dk; j++) put(kv, block, (size_t)j * KERN_PAGE + slot, k[j]);
    for (int j = 0; j < dv; j++) put(kv, block, values + (size_t)slot * dv + j, v[j]);
}

static void kv_copy(enum kern_type kv, int dk, int dv, void *to, const void *from, int n) {
    if (kv == KERN_Q8_0) {
        q8_copy(dk, dv, to, from, n);
        return;
    }
    size_t number_sz = size_of_number(kv), row_sz = KERN_PAGE * number_sz;
    for (size_t j = 0; j < (size_t)dk; j++)
        memcpy((char *)to + j * row_sz, (const char *)from + j * row_sz, n * number_sz);
    size_t values = dk * row_sz;
    memcpy((char *)to + values, (const char *)from + values, (size_t)n * dv * number_sz);
}

static void attend_row(const kern_attend *a, const float *q, int begin, int end, float *partial) {
    float e[KERN_CHUNK], m = -INFINITY, lane[16] = {0}, *o = partial + 2;
    for (int t = begin; t < end; t++) {
        const void *block = a->page[t / KERN_PAGE];
        float s = 0;
        for (int j = 0; j < a->dk; j++)
            s = fmaf(q[j], number(a->kv, block, (size_t)j * KERN_PAGE + t % KERN_PAGE), s);
        e[t] = a->softcap != 0 ? kern_tanh(s / a->softcap) * a->softcap : s;
        m = e[t] > m ? e[t] : m;
    }
    m += 0.0f;
    memset(o, 0, sizeof *o * a->dv);
    for (int t = begin; t < end; t++) {
        const void *block = a->page[t / KERN_PAGE];
        size_t value = (size_t)a->dk * KERN_PAGE + (size_t)(t % KERN_PAGE) * a->dv;
        e[t] = kern_exp(e[t] - m);
        lane[t % 16] += e[t];
        for (int j = 0; j < a->dv; j++) o[j] = fmaf(e[t], number(a->kv, block, value + j), o[j]);
    }
    partial[0] = m;
    partial[1] = sum_of_lanes(lane);
}

static void attend(const kern_attend *a) {
    if (a->kv == KERN_Q8_0) {
        q8_attend_ref(a);
        return;
    }
    for (int row = 0; row < a->n_rows; row++)
        attend_row(a, a->q[row], a->begin[row], a->end[row], a->partial[row]);
}

/* From m = sink, l = 1 (0 when sink is -inf), o = 0, for each partial (mi, li, oi) with li != 0:
 *     m' = max(m, mi), mi if greater;  old = kern_exp(m - m');  new = kern_exp(mi - m')
 *     l = fma(li, new, l · old);  o[j] = fma(oi[j], new, o[j] · old);  m = m'
 * and out[j] = o[j] / l, or 0 if no partial saw a token. */
static void attend_fold(int dv, int n, const float *partial, size_t stride, float sink,
                        float *out) {
    float m = sink, l = sink == -INFINITY ? 0 : 1;
    memset(out, 0, sizeof *out * dv);
    for (int i = 0; i < n; i++, partial += stride) {
        const float *o = partial + 2;
        if (partial[1] == 0) continue;
        float greater = partial[0] > m ? partial[0] : m;
        float old = kern_exp(m - greater), new = kern_exp(partial[0] - greater);
        l = fmaf(partial[1], new, l * old);
        for (int j = 0; j < dv; j++) out[j] = fmaf(o[j], new, out[j] * old);
        m = greater;
    }
    if (l != 0)
        for (int j = 0; j < dv; j++) out[j] /= l;
}

void kern_attend_init(kern *k) {
    k->kv_put = kv_put;
    k->kv_copy = kv_copy;
    k->attend = attend;
    k->attend_fold = attend_fold;
#ifdef KERN_X86
    if (k->isa >= KERN_AVX2) {
        k->kv_put = attend_put_any_avx2;
        k->attend = attend_any_avx2;
        k->attend_fold = attend_fold_avx2;
    }
    if (k->isa >= KERN_AVXVNNI) k->attend = attend_any_avxvnni;
    if (k->isa >= KERN_AVX512) {
        k->kv_put = attend_put_any_avx512;
        k->attend = attend_any_avx512;
        k->attend_fold = attend_fold_avx512;
    }
    if (k->isa >= KERN_VNNI) k->attend = attend_any_vnni;
    if (k->isa >= KERN_AMX) k->attend = attend_any_amx;
#endif
#ifdef KERN_ARM
    if (k->isa >= KERN_NEON) {
        k->kv_put = attend_put_any_neon;
        k->attend = attend_any_neon;
        k->attend_fold = attend_fold_neon;
    }
    if (k->isa >= KERN_DOTPROD) k->attend = attend_any_dotprod;
    if (k->isa >= KERN_I8MM) k->attend = attend_any_i8mm;
#endif
}
