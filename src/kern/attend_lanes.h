/* Attention in terms of lanes.h, compiled once for each instruction set; the definition stands in
 * attend_ref.c. The including file sets the shape of a tile, TILE_ROWS × TILE_WIDTH vectors: the
 * sums that fit the registers; and FEW_WIDTH, vectors of a tile of few rows.
 *
 * Scores and values are one product, c[i][j] (+)= Σ_k a[i][k]·b[k][j]:
 *
 *                 a            b                       c
 *     scores      queries      K, [d][64] tokens       scores   [rows][512]
 *     values      weights e    V, [64] tokens [d]      o        [rows][d]
 *
 * and the lanes run along j, so that every number of c is a chain of its own over k. Rows go in
 * blocks of BLOCK_ROWS, sorted by where the tokens they see end: of causal rows those that see
 * token t are then the last ones of any tile, and a tile ends its shorter chains one by one. A
 * page of 16-bit numbers is widened once for a block, unless few rows use it.
 *
 *     scratch:   q      [BLOCK_ROWS][ROW_STRIDE]     the block's queries
 *                s      [BLOCK_ROWS][ROW_STRIDE]     scores, then weights
 *                wide   [panels][k][PANEL]           one page's K or V as floats
 */
#ifndef ATTEND_LANES_H
#define ATTEND_LANES_H

#include "attend.h"
#include "ints.h"

enum {
    LINE = 64,                     /* bytes of a cache line */
    PANEL = TILE_WIDTH * LANES,    /* columns of a tile */
    FEW_ROWS = 4,                  /* up to here 16-bit numbers are read as they stand, */
    FEW_PANEL = FEW_WIDTH * LANES, /* and memory is what limits: tiles take whole lines */
};

/* The right side of a product. */
typedef struct matrix {
    const void *data;
    size_t row, panel;   /* distances, in numbers */
    enum kern_type type; /* F32; F16 or BF16 as they stand in a page */
    intptr_t ahead;      /* bytes from there to the page that is read next: fetched meanwhile */
} matrix;

static inline matrix from(matrix b, int row, int col) {
    size_t i = (size_t)row * b.row + (size_t)(col / PANEL) * b.panel + (size_t)(col % PANEL);
    b.data = (const char *)b.data + i * (b.type == KERN_F32 ? sizeof(float) : sizeof(uint16_t));
    return b;
}

/* To the second level: the first one has room for too few lines that are under way. */
static inline void fetch(const void *p, intptr_t ahead) {
    __builtin_prefetch((const char *)((intptr_t)p + ahead), 0, 2);
}

/* ---- the product ---------------------------------------------------------------------------- */

/* c[i][j] (+)= Σ_k a[i][k]·b[k][j] for up to TILE_ROWS rows and n steps; cols: FEW_PANEL where
 * 16-bit numbers are read as they stand, PANEL, or up to LANES. */
typedef struct product {
    int n_rows, cols, n;
    const float *a; /* rows ROW_STRIDE apart */
    matrix b;
    float *c[TILE_ROWS];
    bool continued; /* adds to what stands in c */
} product;

KERN_INLINE lanes load_some(const float *p, bool whole, int n) {
    return whole ? lanes_load(p) : lanes_load_n(p, n);
}

KERN_INLINE lanes load_some_half(enum kern_type type, const uint16_t *p, bool whole, int n) {
    if (type == KERN_F16) return whole ? lanes_load_f16(p) : lanes_load_f16_n(p, n);
    if (whole) return lanes_load_bf16(p);
    uint16_t some[LANES] = {0};
    memcpy(some, p, (size_t)n * sizeof *p);
    return lanes_load_bf16(some);
}

KERN_INLINE void store_some(float *p, lanes x, bool whole, int n) {
    whole ? lanes_store(p, x) : lanes_store_n(p, x, n);
}

/* Rows [first, first + rows) of a product: `width` vectors of columns when whole, otherwise at most
 * LANES. All but p and first are constants wherever this is inlined. */
KERN_INLINE void tile(int rows, int width, bool whole, enum kern_type type, const product *p,
                      int first) {
    const bool half = type != KERN_F32;
    const float *a = p->a + (size_t)first * ROW_STRIDE;
    float *const *c = p->c + first;
    lanes sum[TILE_ROWS][FEW_WIDTH], b[FEW_WIDTH];
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int j = 0; j < width; j++) {
            const float *to = c[i] + j * LANES;
            sum[i][j] = p->continued ? load_some(to, whole, p->cols) : lanes_zero();
        }
    }
    for (int k = 0; k < p->n; k++) {
        const float *b32 = (const float *)p->b.data + (size_t)k * p->b.row;
        const uint16_t *b16 = (const uint16_t *)p->b.data + (size_t)k * p->b.row;
        for (int j = 0; half && j < width * LANES; j += LINE / 2) fetch(b16 + j, p->b.ahead);
        KERN_UNROLL for (int j = 0; j < width; j++) {
            b[j] = half ? load_some_half(type, b16 + j * LANES, whole, p->cols)
                        : load_some(b32 + j * LANES, whole, p->cols);
        }
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            lanes ai = lanes_all(a[i * ROW_STRIDE + k]);
            KERN_UNROLL for (int j = 0; j < width; j++) {
                sum[i][j] = lanes_fma(ai, b[j], sum[i][j]);
            }
        }
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int j = 0; j < width; j++) {
            store_some(c[i] + j * LANES, sum[i][j], whole, p->cols);
        }
    }
}

/* Tiles of TILE_ROWS, 4, 3, 2 and 1 rows; of 16-bit numbers there are FEW_ROWS at most. */
KERN_INLINE void tiles(int width, bool whole, enum kern_type type, const product *p) {
    int row = 0;
    for (; type == KERN_F32 && row + TILE_ROWS <= p->n_rows; row += TILE_ROWS)
        tile(TILE_ROWS, width, whole, type, p, row);
    for (; row + 4 <= p->n_rows; row += 4) tile(4, width, whole, type, p, row);
    int rest = p->n_rows - row;
    if (rest == 3) tile(3, width, whole, type, p, row);
    if (rest == 2) tile(2, width, whole, type, p, row);
    if (rest == 1) tile(1, width, whole, type, p, row);
}

KERN_INLINE void multiply_type(enum kern_type type, const product *p) {
    if (type != KERN_F32 && p->cols == FEW_PANEL)
        tiles(FEW_WIDTH, true, type, p);
    else if (p->cols == PANEL)
        tiles(TILE_WIDTH, true, type, p);
    else
        tiles(1, false, type, p);
}

static void multiply(const product *p) {
    if (p->b.type == KERN_F32)
        multiply_type(KERN_F32, p);
    else if (p->b.type == KERN_F16)
        multiply_type(KERN_F16, p);
    else
        multiply_type(KERN_BF16, p);
}

/* ---- a block of rows ------------------------------------------------------------------------ */

typedef struct block {
    const kern_attend *a;
    int n_rows;
    int begin[BLOCK_ROWS], end[BLOCK_ROWS]; /* of the tokens that a row sees; ends ascend */
    float *out[BLOCK_ROWS];                 /* the rows' partials */
    float *q, *s, *wide;
} block;

/* Takes rows [first, first + n_rows) of a, sorted by where their tokens end. */
static void take_rows(block *b, int first) {
    const float *query[BLOCK_ROWS];
    for (int i = 0; i < b->n_rows; i++) {
        int row = first + i, end = b->a->end[row], at = i;
        for (; at > 0 && b->end[at - 1] > end; at--) {
            b->begin[at] = b->begin[at - 1];
            b->end[at] = b->end[at - 1];
            b->out[at] = b->out[at - 1];
            query[at] = query[at - 1];
        }
        b->begin[at] = b->a->begin[row];
        b->end[at] = end;
        b->out[at] = b->a->partial[row];
        query[at] = b->a->q[row];
    }
    for (int i = 0; i < b->n_rows; i++)
        memcpy(b->q + (size_t)i * ROW_STRIDE, query[i], b->a->dk * sizeof(float));
}

static inline int smaller(int a, int b) {
    return a < b ? a : b;
}

/* The token of a page before which a row's visible tokens end. */
static inline int end_in(const block *b, int row, int page) {
    int n = b->end[row] - page * KERN_PAGE;
    return n < 0 ? 0 : smaller(n, KERN_PAGE);
}

/* n_rows × n_cols numbers of a page as the right side of a product; `next` is read after them. */
static matrix matrix_of(const block *b, const void *numbers, const void *next, int n_rows,
                        int n_cols) {
    const intptr_t ahead = (intptr_t)next - (intptr_t)numbers;
    if (b->a->kv == KERN_F32) return (matrix){numbers, n_cols, PANEL, KERN_F32, 0};
    if (b->n_rows <= FEW_ROWS) return (matrix){numbers, n_cols, PANEL, b->a->kv, ahead};
    const uint16_t *half = numbers;
    for (int i = 0; i < n_rows; i++, half += n_cols)
        for (int col = 0; col < n_cols; col += LANES) {
            bool whole = n_cols - col >= LANES;
            fetch(half + col, ahead);
            lanes_store(b->wide + (col / PANEL * n_rows + i) * PANEL + col % PANEL,
                        load_some_half(b->a->kv, half + col, whole, n_cols - col));
        }
    return (matrix){b->wide, PANEL, (size_t)n_rows * PANEL, KERN_F32, 0};
}

static const void *values_of(const kern_attend *a, int page) {
    return (const char *)a->page[page] + kern_kv_size(a->kv, a->dk, 0);
}

/* The scores of one page; those of tokens that a row does not see are written and never read. */
static void score(const block *b, int page, const void *next) {
    const int d = b->a->dk, most = end_in(b, b->n_rows - 1, page);
    matrix keys = matrix_of(b, b->a->page[page], next, d, KERN_PAGE);
    const int cols = keys.type == KERN_F32 ? PANEL : FEW_PANEL;
    for (int col = 0; col < most; col += cols)
        for (int row = 0; row < b->n_rows; row += TILE_ROWS) {
            int end = smaller(row + TILE_ROWS, b->n_rows), first = row;
            while (first < end && end_in(b, first, page) <= col) first++;
            product p = {.n_rows = end - first, .cols = cols, .n = d};
            p.a = b->q + (size_t)first * ROW_STRIDE;
            p.b = from(keys, 0, col);
            for (int i = first; i < end; i++)
                p.c[i - first] = b->s + (size_t)i * ROW_STRIDE + page * KERN_PAGE + col;
            multiply(&p);
        }
}

/* Turns a row's scores of the tokens [begin, end) into weights. */
static void weigh(float *s, int begin, int end, float softcap, float *partial) {
    lanes most = lanes_all(-INFINITY), sum = lanes_zero();
    const int first = begin / LANES * LANES;
    for (int t = first; t < end; t += LANES) {
        lanes x = lanes_load(s + t);
        if (softcap != 0) {
            x = lanes_mul(lanes_tanh(lanes_div(x, lanes_all(softcap))), lanes_all(softcap));
            lanes_store(s + t, x);
        }
        x = lanes_max(x, most);
        bool whole = t >= begin && t + LANES <= end;
        most = whole ? x : lanes_keep(lanes_between(begin - t, end - t), x, most);
    }
    float m = lanes_greatest(most) + 0.0f;
    for (int t = first; t < end; t += LANES) {
        lanes e = lanes_exp(lanes_sub(lanes_load(s + t), lanes_all(m)));
        lanes_store(s + t, e);
        e = lanes_add(sum, e);
        bool whole = t >= begin && t + LANES <= end;
        sum = whole ? e : lanes_keep(lanes_between(begin - t, end - t), e, sum);
    }
    partial[0] = m;
    partial[1] = lanes_sum(sum);
}

/* The first token behind t at which a row of [row, end) begins or ends to see, in a page. */
static int next_edge(const block *b, int page, int row, int end, int t) {
    int edge = KERN_PAGE, base = page * KERN_PAGE;
    for (; row < end; row++) {
        int first = b->begin[row] - base, last = b->end[row] - base;
        if (first > t) edge = smaller(edge, first);
        if (last > t) edge = smaller(edge, last);
    }
    return edge;
}

/* One tile of rows over one page's values. Between two edges a row sees all tokens or none; rows
 * that see them and stand together go on together. */
static void add_tile(const block *b, const matrix *values, int page, int row, int end, int col,
                     int cols) {
    const int most = end_in(b, end - 1, page), base = page * KERN_PAGE;
    for (int t = 0, next; t < most; t = next) {
        next = next_edge(b, page, row, end, t);
        for (int i = row; i < end; i++) {
            product p = {.cols = cols, .n = next - t, .continued = true};
            p.a = b->s + (size_t)i * ROW_STRIDE + base + t;
            for (; i < end && b->begin[i] <= base + t && b->end[i] > base + t; i++)
                p.c[p.n_rows++] = b->out[i] + 2 + col;
            if (p.n_rows == 0) continue;
            p.b = from(*values, t, col);
            multiply(&p);
        }
    }
}

static void add_values(const block *b, int page, const void *next) {
    const int d = b->a->dv, most = end_in(b, b->n_rows - 1, page);
    matrix values = matrix_of(b, values_of(b->a, page), next, most, d);
    for (int col = 0, cols; col < d; col += cols) {
        cols = values.type != KERN_F32 && d - col >= FEW_PANEL ? FEW_PANEL
               : d - col >= PANEL && col % PANEL == 0          ? PANEL
                                                               : smaller(d - col, LANES);
        for (int row = 0; row < b->n_rows; row += TILE_ROWS)
            add_tile(b, &values, page, row, smaller(row + TILE_ROWS, b->n_rows), col, cols);
    }
}

/* The pages that some row of the block sees: [*first, *end). */
static void find_pages(const block *b, int *first, int *end) {
    int begin = KERN_CHUNK;
    for (int i = 0; i < b->n_rows; i++)
        if (b->begin[i] < b->end[i]) begin = smaller(begin, b->begin[i]);
    *end = (b->end[b->n_rows - 1] + KERN_PAGE - 1) / KERN_PAGE;
    *first = smaller(begin / KERN_PAGE, *end);
}

static void attend(const kern_attend *a) {
    block b = {.a = a, .q = a->scratch};
    b.s = b.q + BLOCK_ROWS * ROW_STRIDE;
    b.wide = b.s + BLOCK_ROWS * ROW_STRIDE;
    for (int row = 0, first, end; row < a->n_rows; row += BLOCK_ROWS) {
        b.n_rows = smaller(a->n_rows - row, BLOCK_ROWS);
        take_rows(&b, row);
        find_pages(&b, &first, &end);
        for (int i = first; i < end; i++)
            score(&b, i, i + 1 < end ? a->page[i + 1] : values_of(a, first));
        for (int i = 0; i < b.n_rows; i++) {
            weigh(b.s + (size_t)i * ROW_STRIDE, b.begin[i], b.end[i], a->softcap, b.out[i]);
            memset(b.out[i] + 2, 0, a->dv * sizeof(float));
        }
        for (int i = first; i < end; i++) add_values(&b, i, values_of(a, smaller(i + 1, end - 1)));
    }
}

/* ---- the rest ------------------------------------------------------------------------------- */

static void narrow(enum kern_type kv, int d, const float *x, uint16_t *out) {
    int j;
    if (kv == KERN_BF16) {
        for (j = 0; j < d; j++) out[j] = bf16_of_f32(x[j]);
        return;
    }
    for (j = 0; j + LANES <= d; j += LANES) lanes_store_f16(out + j, lanes_load(x + j));
    lanes_store_f16(out + j, lanes_load_n(x + j, d - j));
}

static void kv_put(enum kern_type kv, int dk, int dv, void *block, int slot, const float *k,
                   const float *v) {
    if (kv != KERN_F32) {
        uint16_t row[KERN_MAX_HEAD + LANES], *numbers = block;
        narrow(kv, dk, k, row);
        for (int j = 0; j < dk; j++) numbers[(size_t)j * KERN_PAGE + slot] = row[j];
        narrow(kv, dv, v, row);
        memcpy(numbers + (size_t)dk * KERN_PAGE + (size_t)slot * dv, row, dv * sizeof *row);
    } else {
        float *numbers = block;
        for (int j = 0; j < dk; j++) numbers[(size_t)j * KERN_PAGE + slot] = k[j];
        memcpy(numbers + (size_t)dk * KERN_PAGE + (size_t)slot * dv, v, dv * sizeof *v);
    }
}

static inline lanes merge(lanes o, lanes old, lanes oi, lanes new) {
    return lanes_fma(oi, new, lanes_mul(o, old));
}

static void attend_fold(int d, int n, const float *partial, size_t stride, float sink, float *out) {
    float m = sink, total[LANES];
    lanes l = lanes_all(sink == -INFINITY ? 0 : 1); /* the same in all lanes */
    int j, rest = d % LANES;
    memset(out, 0, sizeof *out * d);
    for (int i = 0; i < n; i++, partial += stride) {
        const float *o = partial + 2;
        if (partial[1] == 0) continue;
        float greater = partial[0] > m ? partial[0] : m;
        lanes old = lanes_exp(lanes_all(m - greater)),
              new = lanes_exp(lanes_all(partial[0] - greater));
        l = merge(l, old, lanes_all(partial[1]), new);
        for (j = 0; j + LANES <= d; j += LANES)
            lanes_store(out + j, merge(lanes_load(out + j), old, lanes_load(o + j), new));
        lanes_store_n(
            out + j, merge(lanes_load_n(out + j, rest), old, lanes_load_n(o + j, rest), new), rest);
        m = greater;
    }
    lanes_store(total, l);
    if (total[0] == 0) return;
    for (j = 0; j + LANES <= d; j += LANES) lanes_store(out + j, lanes_div(lanes_load(out + j), l));
    lanes_store_n(out + j, lanes_div(lanes_load_n(out + j, rest), l), rest);
}

#endif
