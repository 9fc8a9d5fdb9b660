/* Attention over pages of type Q8_0 in terms of lanes.h and ints.h; defined in attend_q8_ref.c.
 *
 * Up to Q8_ROWS query rows go together. Integer products leave their sums in memory, floats take
 * them from there; both products are right to left
 *
 *     keys      q [rows][dk]    × K [dk/4][64][4]    one block of 32 at a time
 *     values    p [rows][64]    × V [16][dv][4]
 *
 * and supplied by the including file:
 *
 *     multiply(keys, product)   sum[i][j] = start[i] + Σ left[i][k]·right[k][j], see struct product
 *     left_bytes(n)             bytes of n numbers as its left side takes them
 *     spread(keys, n, from, to) writes n bytes, a multiple of 32, in that form
 *     begin, end                called before and after a group of rows
 *
 *     scratch:  left   [rows]             queries, quantised
 *               start  [dk/32][rows][16]  what K + 128 adds too much, taken off beforehand
 *               z      [rows][Z_STRIDE]   scores, then weights
 *               sums   [2][dk/32][rows][64], or [rows][dv]
 *               p      [rows]             a page's weights as bytes
 *               d      [dk/32 + 1][64]    a page's scales as floats */
#ifndef ATTEND_Q8_LANES_H
#define ATTEND_Q8_LANES_H

#include "attend_q8.h"
#include "ints.h"

enum { PAGE_LANES = KERN_PAGE / LANES };

typedef struct group {
    const kern_attend *a;
    int n_rows, n_blocks, key_size, value_size;
    int begin[Q8_ROWS], end[Q8_ROWS]; /* of the tokens that a row sees */
    float *out[Q8_ROWS];
    float dq[Q8_ROWS];      /* scale of a row's query */
    float most[Q8_ROWS];    /* greatest score */
    float rate[Q8_ROWS];    /* what scores are multiplied with, times log2 e */
    float unit[2][Q8_ROWS]; /* W / 255 of two pages */
    lanes running[Q8_ROWS]; /* greatest scores, then sums of weights */
    char *left, *p;
    int32_t *start, *sums;
    float *z, *d;
} group;

/* One side by side of rows with bytes in quads. */
typedef struct product {
    int n_rows, n_quads, n_cols; /* n_cols: a multiple of 16 */
    const char *left;            /* rows left_stride bytes apart */
    size_t left_stride;
    int left_odd; /* between the two halves of a spread row, in words */
    const void *right;
    size_t right_stride;  /* bytes from quad to quad */
    const int32_t *start; /* 16 equal numbers for each row, or NULL: 0 */
    int32_t *sum;         /* rows sum_stride numbers apart */
    size_t sum_stride;
    intptr_t ahead; /* from right to what is read next: fetched meanwhile; 0: nothing */
} product;

KERN_INLINE void multiply(bool keys, const product *p);
static inline size_t left_bytes(int n);
static inline void spread(bool keys, int n, const void *from, void *to);
static inline void begin_rows(const group *g);
static inline void end_rows(void);

static inline int at_most(int a, int b) {
    return a < b ? a : b;
}

/* ---- quantised rows -------------------------------------------------------------------------- */

/* n numbers, a multiple of 16; returns their scale. */
static float quantise(int n, const float *x, int8_t *q) {
    ints most = ints_zero();
    for (int i = 0; i < n; i += LANES) most = ints_max(most, ints_magnitude(lanes_load(x + i)));
    uint32_t bits = (uint32_t)ints_greatest(most);
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

static inline void q8_put(int dk, int dv, void *block, int slot, const float *k, const float *v) {
    q8_block b = q8_block_at(block, dk, dv);
    float padded[Q8_MOST_KEY];
    int8_t q[Q8_MOST_KEY];
    const int key_size = q8_key_size(dk), value_size = q8_value_size(dv);
    memcpy(padded, k, (size_t)dk * sizeof *k);
    memset(padded + dk, 0, (size_t)(key_size - dk) * sizeof *k);
    for (int j = 0; j < dk; j += KERN_BLOCK)
        b.k_d[j / KERN_BLOCK * KERN_PAGE + slot] =
            f16_of_f32(quantise(KERN_BLOCK, padded + j, q + j));
    for (int j = 0; j < key_size; j += 4) {
        uint32_t quad;
        memcpy(&quad, q + j, sizeof quad);
        quad ^= 0x80808080;
        memcpy(b.k + (j * KERN_PAGE + slot * 4), &quad, sizeof quad);
    }
    memcpy(padded, v, (size_t)dv * sizeof *v);
    memset(padded + dv, 0, (size_t)(value_size - dv) * sizeof *v);
    b.v_d[slot] = f16_of_f32(quantise(value_size, padded, q));
    int8_t *to = b.v + slot / 4 * value_size * 4 + slot % 4;
    for (int j = 0; j < dv; j++) to[4 * j] = q[j];
}

/* ---- a group of rows ------------------------------------------------------------------------- */

static void take_row(group *g, int i, int row) {
    const kern_attend *a = g->a;
    float padded[Q8_MOST_KEY];
    _Alignas(64) int8_t q[Q8_MOST_KEY];
    memcpy(padded, a->q[row], (size_t)a->dk * sizeof *padded);
    memset(padded + a->dk, 0, (size_t)(g->key_size - a->dk) * sizeof *padded);
    g->dq[i] = quantise(g->key_size, padded, q);
    spread(true, g->key_size, q, g->left + (size_t)i * left_bytes(g->key_size));
    for (int b = 0; b < g->n_blocks; b++) {
        ints sum = ints_add(ints_widen((const uint8_t *)q + b * KERN_BLOCK),
                            ints_widen((const uint8_t *)q + b * KERN_BLOCK + LANES));
        ints_store(g->start + (b * Q8_ROWS + i) * LANES, ints_all(-128 * ints_sum(sum)));
    }
    g->begin[i] = a->begin[row];
    g->end[i] = a->end[row];
    g->out[i] = a->partial[row];
    g->running[i] = lanes_all(-INFINITY);
}

/* Which of the tokens t, ... t+15 of a page lie in [begin, end). */
static inline mask seen_of(int begin, int end, int t) {
    begin = begin < t ? 0 : at_most(begin - t, LANES);
    end = end < t ? 0 : at_most(end - t, LANES);
    return lanes_between(begin, end);
}

/* The tokens of a page that a row sees: [*begin, *end), empty if none. */
static inline void seen_in(const group *g, int row, int page, int *begin, int *end) {
    *begin = g->begin[row] - page * KERN_PAGE;
    *end = at_most(g->end[row] - page * KERN_PAGE, KERN_PAGE);
    if (*begin < 0) *begin = 0;
}

static void multiply_keys(const group *g, int page, const void *next) {
    q8_block b = q8_block_at(g->a->page[page], g->a->dk, g->a->dv);
    product p = {.n_rows = g->n_rows, .n_quads = KERN_BLOCK / 4, .n_cols = KERN_PAGE};
    p.left_stride = left_bytes(g->key_size);
    p.left_odd = g->key_size / 4;
    p.right_stride = KERN_PAGE * 4;
    p.sum_stride = KERN_PAGE;
    p.ahead = (intptr_t)next - (intptr_t)g->a->page[page];
    for (int i = 0; i < g->n_blocks; i++) {
        p.left = g->left + i * KERN_BLOCK;
        p.right = b.k + i * KERN_BLOCK * KERN_PAGE;
        p.start = g->start + i * Q8_ROWS * LANES;
        p.sum = g->sums + ((page % 2) * g->n_blocks + i) * Q8_ROWS * KERN_PAGE;
        multiply(true, &p);
    }
}

/* Sixteen scores of a row. */
KERN_INLINE lanes chain(const group *g, const int32_t *sums, int t) {
    lanes z = lanes_zero();
    for (int b = 0; b < g->n_blocks; b++)
        z = lanes_fma(lanes_load(g->d + b * KERN_PAGE + t),
                      ints_float(ints_load(sums + b * Q8_ROWS * KERN_PAGE + t)), z);
    return z;
}

static void score_row(group *g, int row, int page, int begin, int end) {
    const int32_t *sums = g->sums + ((page % 2) * g->n_blocks * Q8_ROWS + row) * KERN_PAGE;
    float *z = g->z + row * Q8_Z_STRIDE + page * KERN_PAGE;
    const float c = g->a->softcap;
    lanes most = g->running[row];
    for (int t = 0; t < KERN_PAGE; t += LANES) {
        lanes x = chain(g, sums, t);
        if (c != 0) {
            x = lanes_div(lanes_mul(x, lanes_all(g->dq[row])), lanes_all(c));
            x = lanes_mul(lanes_tanh(x), lanes_all(c));
        }
        lanes_store(z + t, x);
        x = lanes_max(x, most);
        bool whole = begin <= t && end >= t + LANES;
        most = whole ? x : lanes_keep(seen_of(begin, end, t), x, most);
    }
    g->running[row] = most;
}

static void score_page(group *g, int page) {
    q8_block b = q8_block_at(g->a->page[page], g->a->dk, g->a->dv);
    for (int t = 0; t < g->n_blocks * KERN_PAGE; t += LANES)
        lanes_store(g->d + t, lanes_load_f16(b.k_d + t));
    for (int i = 0; i < g->n_rows; i++) {
        int begin, end;
        seen_in(g, i, page, &begin, &end);
        if (begin < end) score_row(g, i, page, begin, end);
    }
}

static void settle_row(group *g, int row) {
    float most = lanes_greatest(g->running[row]) + 0.0f;
    float unit = g->a->softcap != 0 ? 1 : g->dq[row];
    g->most[row] = most;
    g->rate[row] = unit * EXP_LOG2E;
    g->out[row][0] = g->begin[row] < g->end[row] ? most * unit : -INFINITY;
    g->running[row] = lanes_zero();
    memset(g->out[row] + 2, 0, (size_t)g->a->dv * sizeof(float));
}

KERN_INLINE lanes weight(lanes x) {
    x = lanes_max(lanes_all(Q8_LEAST_POWER), x); /* a NaN stays */
    lanes t = lanes_add(x, lanes_all(EXP_ROUND));
    lanes r = lanes_sub(x, lanes_sub(t, lanes_all(EXP_ROUND)));
    lanes p = lanes_fma(lanes_all(Q8_EXP_C3), r, lanes_all(Q8_EXP_C2));
    p = lanes_fma(lanes_fma(p, r, lanes_all(Q8_EXP_C1)), r, lanes_all(1));
    return lanes_shift_exponent(p, t);
}

/* Weights of one row and page, and their bytes. */
KERN_INLINE void weigh_row(group *g, bool whole, int row, int page, int begin, int end) {
    const float *z = g->z + row * Q8_Z_STRIDE + page * KERN_PAGE;
    const float *d = g->d + g->n_blocks * KERN_PAGE;
    const lanes most = lanes_all(g->most[row]), rate = lanes_all(g->rate[row]);
    lanes w[PAGE_LANES], sum = g->running[row];
    ints greatest = ints_zero();
    KERN_UNROLL for (int i = 0; i < PAGE_LANES; i++) {
        const int t = i * LANES;
        lanes e = weight(lanes_mul(lanes_sub(lanes_load(z + t), most), rate));
        w[i] = lanes_mul(e, lanes_load(d + t));
        if (!whole) {
            mask seen = seen_of(begin, end, t);
            e = lanes_keep(seen, e, lanes_zero());
            w[i] = lanes_keep(seen, w[i], lanes_zero());
        }
        sum = lanes_add(sum, e);
        greatest = ints_max(greatest, ints_magnitude(w[i]));
    }
    g->running[row] = sum;
    uint32_t bits = (uint32_t)ints_greatest(greatest);
    float all = f32_of_bits(bits);
    bool finite = bits < 0x7f800000, adds = finite && all >= Q8_LEAST_WEIGHT;
    lanes scale = lanes_all(adds ? 255.0f / all : 0);
    g->unit[page % 2][row] = adds ? all / 255.0f : finite ? 0 : NAN;
    ints p[PAGE_LANES];
    KERN_UNROLL for (int i = 0; i < PAGE_LANES; i++) p[i] = ints_round(lanes_mul(w[i], scale));
    _Alignas(64) uint8_t bytes[KERN_PAGE];
    ints_store_64(bytes, p);
    spread(false, KERN_PAGE, bytes, g->p + (size_t)row * left_bytes(KERN_PAGE));
}

static void weigh_page(group *g, int page) {
    q8_block b = q8_block_at(g->a->page[page], g->a->dk, g->a->dv);
    float *d = g->d + g->n_blocks * KERN_PAGE;
    for (int t = 0; t < KERN_PAGE; t += LANES) lanes_store(d + t, lanes_load_f16(b.v_d + t));
    for (int i = 0; i < g->n_rows; i++) {
        int begin, end;
        seen_in(g, i, page, &begin, &end);
        g->unit[page % 2][i] = 0;
        if (begin == 0 && end == KERN_PAGE)
            weigh_row(g, true, i, page, begin, end);
        else if (begin < end)
            weigh_row(g, false, i, page, begin, end);
    }
}

static void multiply_values(const group *g, int page, const void *next) {
    q8_block b = q8_block_at(g->a->page[page], g->a->dk, g->a->dv);
    product p = {.n_rows = g->n_rows, .n_quads = KERN_PAGE / 4, .n_cols = g->value_size};
    p.left = g->p;
    p.left_stride = left_bytes(KERN_PAGE);
    p.left_odd = KERN_PAGE / 4;
    p.right = b.v;
    p.right_stride = (size_t)g->value_size * 4;
    p.sum = g->sums;
    p.sum_stride = (size_t)g->value_size;
    p.ahead = (intptr_t)next - (intptr_t)g->a->page[page];
    multiply(false, &p);
}

static void add_values(const group *g, int page) {
    for (int i = 0; i < g->n_rows; i++) {
        const float unit = g->unit[page % 2][i];
        if (unit == 0) continue;
        const int32_t *sums = g->sums + i * g->value_size;
        float *o = g->out[i] + 2;
        int j = 0, rest = g->a->dv % LANES;
        for (; j + LANES <= g->a->dv; j += LANES)
            lanes_store(o + j, lanes_fma(lanes_all(unit), ints_float(ints_load(sums + j)),
                                         lanes_load(o + j)));
        if (rest)
            lanes_store_n(o + j,
                          lanes_fma(lanes_all(unit), ints_float(ints_load(sums + j)),
                                    lanes_load_n(o + j, rest)),
                          rest);
    }
}

/* The pages that some row sees: [*first, *end). */
static void find_pages(const group *g, int *first, int *end) {
    int begin = KERN_CHUNK;
    *end = 0;
    for (int i = 0; i < g->n_rows; i++)
        if (g->begin[i] < g->end[i]) {
            int pages = (g->end[i] + KERN_PAGE - 1) / KERN_PAGE;
            begin = at_most(begin, g->begin[i]);
            if (pages > *end) *end = pages;
        }
    *first = at_most(begin / KERN_PAGE, *end);
}

/* What is read after a page's keys, as a page that has it where that one has keys: the next page,
 * or the values of the first. */
static const void *after_keys(const group *g, int page, int first, int end) {
    if (page + 1 < end) return g->a->page[page + 1];
    q8_block b = q8_block_at(g->a->page[first], g->a->dk, g->a->dv);
    return (const char *)g->a->page[first] + ((const char *)b.v - (const char *)b.k);
}

/* Products go one page ahead of the floats that wait for them. */
static void attend_group(group *g) {
    const void *const *page = g->a->page;
    int first, end;
    find_pages(g, &first, &end);
    if (first < end) multiply_keys(g, first, after_keys(g, first, first, end));
    for (int i = first; i < end; i++) {
        if (i + 1 < end) multiply_keys(g, i + 1, after_keys(g, i + 1, first, end));
        score_page(g, i);
    }
    for (int i = 0; i < g->n_rows; i++) settle_row(g, i);
    if (first < end) weigh_page(g, first);
    for (int i = first; i < end; i++) {
        multiply_values(g, i, page[at_most(i + 1, end - 1)]);
        if (i + 1 < end) weigh_page(g, i + 1);
        add_values(g, i);
    }
    for (int i = 0; i < g->n_rows; i++) {
        float l = g->out[i][1] = lanes_sum(g->running[i]);
        if (l != l)
            for (int j = 0; j < g->a->dv; j++) g->out[i][2 + j] = NAN;
    }
}

static void q8_attend(const kern_attend *a) {
    group g = {.a = a, .key_size = q8_key_size(a->dk), .value_size = q8_value_size(a->dv)};
    g.n_blocks = g.key_size / KERN_BLOCK;
    char *at = a->scratch;
    g.left = at, at += Q8_ROWS * 2 * g.key_size;
    g.p = at, at += Q8_ROWS * 2 * KERN_PAGE;
    g.start = (int32_t *)(void *)at, at += g.n_blocks * Q8_ROWS * LANES * 4;
    g.z = (float *)(void *)at, at += Q8_ROWS * Q8_Z_STRIDE * 4;
    g.d = (float *)(void *)at, at += (g.n_blocks + 1) * KERN_PAGE * 4;
    g.sums = (int32_t *)(void *)at;
    for (int row = 0; row < a->n_rows; row += Q8_ROWS) {
        g.n_rows = at_most(a->n_rows - row, Q8_ROWS);
        for (int i = 0; i < g.n_rows; i++) take_row(&g, i, row + i);
        begin_rows(&g);
        attend_group(&g);
        end_rows();
    }
}

#endif
