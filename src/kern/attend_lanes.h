/* Attention in terms of lanes.h, compiled once for each instruction set; the definition stands in
 * attend_ref.c. The including file sets the shape of a tile, TILE_ROWS × TILE_WIDTH vectors: the
 * sums that fit the registers.
 *
 * Scores and values are one product, c[i][j] (+)= Σ_k a[i][k]·b[k][j]:
 *
 *                 a            b                       c
 *     scores      queries      K, [d][64] tokens       scores   [rows][512]
 *     values      weights e    V, [64] tokens [d]      o        [rows][d]
 *
 * and the lanes run along j, so that every number of c is a chain of its own over k. Rows go in
 * blocks of BLOCK_ROWS, sorted by the number of tokens they see: rows that see token t are then
 * the last ones of any tile, and a tile ends its shorter chains one after another. A binary16 page
 * is widened once for a block, unless few rows use it.
 *
 *     scratch:   q      [BLOCK_ROWS][ROW_STRIDE]     the block's queries
 *                s      [BLOCK_ROWS][ROW_STRIDE]     scores, then weights
 *                wide   [panels][k][PANEL]           one page's K or V as floats
 */
#ifndef ATTEND_LANES_H
#define ATTEND_LANES_H

#include "attend.h"
#include "lanes.h"

enum {
    PANEL = TILE_WIDTH * LANES, /* columns of a tile */
    FEW_ROWS = 4,               /* up to here binary16 is read as it stands */
};

/* The matrix b of a product: n_cols columns in panels. */
typedef struct matrix {
    const void *data;
    size_t row, panel; /* distances, in numbers */
    int n_cols;
    bool half;
} matrix;

static inline const void *panel_of(const matrix *b, int row, int col) {
    size_t at = (size_t)row * b->row + (size_t)(col / PANEL) * b->panel + (size_t)(col % PANEL);
    return (const char *)b->data + at * (b->half ? 2 : 4);
}

/* ---- the product ---------------------------------------------------------------------------- */

/* One tile: n steps of k over `rows` rows and `width` vectors, the last of which has `last`
 * columns. rows, width and half are constants wherever this is inlined. */
KERN_INLINE void tile(const int rows, const int width, const bool half, const int last, int n,
                      const float *a, const void *b, size_t b_row, float *const *c,
                      bool continued) {
    lanes sum[TILE_ROWS][TILE_WIDTH], factor[TILE_WIDTH];
    KERN_UNROLL for (int i = 0; i < rows; i++) KERN_UNROLL for (int j = 0; j < width; j++)
        sum[i][j] = !continued      ? lanes_zero()
                    : last == LANES ? lanes_load(c[i] + j * LANES)
                                    : lanes_load_n(c[i] + j * LANES, last);
    for (int k = 0; k < n; k++) {
        const uint16_t *b16 = (const uint16_t *)b + (size_t)k * b_row;
        const float *b32 = (const float *)b + (size_t)k * b_row;
        KERN_UNROLL for (int j = 0; j < width; j++) factor[j] =
            last == LANES ? (half ? lanes_load_f16(b16 + j * LANES) : lanes_load(b32 + j * LANES))
                          : (half ? lanes_load_f16_n(b16 + j * LANES, last)
                                  : lanes_load_n(b32 + j * LANES, last));
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            lanes ai = lanes_all(a[i * ROW_STRIDE + k]);
            KERN_UNROLL for (int j = 0; j < width; j++) sum[i][j] =
                lanes_fma(ai, factor[j], sum[i][j]);
        }
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) KERN_UNROLL for (int j = 0; j < width; j++) {
        if (last == LANES)
            lanes_store(c[i] + j * LANES, sum[i][j]);
        else
            lanes_store_n(c[i] + j * LANES, sum[i][j], last);
    }
}

/* A tile of TILE_ROWS, 4, 3, 2 or 1 rows. */
static inline __attribute__((always_inline)) void
tile_of(int rows, const int width, const bool half, const int last, int n, const float *a,
        const void *b, size_t b_row, float *const *c, bool continued) {
    switch (rows) {
    case 1:
        tile(1, width, half, last, n, a, b, b_row, c, continued);
        break;
    case 2:
        tile(2, width, half, last, n, a, b, b_row, c, continued);
        break;
    case 3:
        tile(3, width, half, last, n, a, b, b_row, c, continued);
        break;
    case 4:
        tile(4, width, half, last, n, a, b, b_row, c, continued);
        break;
    default:
        if (!half) tile(TILE_ROWS, width, half, last, n, a, b, b_row, c, continued);
    }
}

/* c[i][j] (+)= Σ_k a[i][k]·b[k][j] for `rows` rows, n steps of k and `cols` <= PANEL columns. */
static void product(int rows, int cols, bool half, int n, const float *a, const void *b,
                    size_t b_row, float *const *c, bool continued) {
    while (rows > 0) {
        int height = rows >= TILE_ROWS && !half ? TILE_ROWS : rows < 4 ? rows : 4;
        if (cols == PANEL && half)
            tile_of(height, TILE_WIDTH, true, LANES, n, a, b, b_row, c, continued);
        else if (cols == PANEL)
            tile_of(height, TILE_WIDTH, false, LANES, n, a, b, b_row, c, continued);
        else if (half)
            tile_of(height, 1, true, cols, n, a, b, b_row, c, continued);
        else
            tile_of(height, 1, false, cols, n, a, b, b_row, c, continued);
        rows -= height, a += height * ROW_STRIDE, c += height;
    }
}

/* ---- a block of rows ------------------------------------------------------------------------ */

typedef struct block {
    const kern_attend *a;
    int n_rows;
    int visible[BLOCK_ROWS]; /* ascending */
    float *out[BLOCK_ROWS];  /* the rows' partials */
    float *q, *s, *wide;
} block;

/* Takes rows [first, first + n_rows) of a, sorted by what they see. */
static void take_rows(block *b, int first) {
    const float *query[BLOCK_ROWS];
    for (int i = 0; i < b->n_rows; i++) {
        int row = first + i, n = b->a->n_visible[row], at = i;
        for (; at > 0 && b->visible[at - 1] > n; at--) {
            b->visible[at] = b->visible[at - 1];
            b->out[at] = b->out[at - 1];
            query[at] = query[at - 1];
        }
        b->visible[at] = n;
        b->out[at] = b->a->partial[row];
        query[at] = b->a->q[row];
    }
    for (int i = 0; i < b->n_rows; i++)
        memcpy(b->q + (size_t)i * ROW_STRIDE, query[i], b->a->d * sizeof(float));
}

static inline int smaller(int a, int b) {
    return a < b ? a : b;
}

/* How many tokens of a page the row sees. */
static inline int seen(const block *b, int row, int page) {
    int n = b->visible[row] - page * KERN_PAGE;
    return n < 0 ? 0 : smaller(n, KERN_PAGE);
}

/* n_rows × n_cols stored numbers as the right side of a product. */
static matrix matrix_of(const block *b, const void *numbers, int n_rows, int n_cols) {
    if (b->a->kv == KERN_F32) return (matrix){numbers, n_cols, PANEL, n_cols, false};
    if (b->n_rows <= FEW_ROWS) return (matrix){numbers, n_cols, PANEL, n_cols, true};
    const uint16_t *from = numbers;
    for (int i = 0; i < n_rows; i++, from += n_cols)
        for (int col = 0; col < n_cols; col += LANES) {
            lanes x = n_cols - col < LANES ? lanes_load_f16_n(from + col, n_cols - col)
                                           : lanes_load_f16(from + col);
            lanes_store(b->wide + (col / PANEL * n_rows + i) * PANEL + col % PANEL, x);
        }
    return (matrix){b->wide, PANEL, (size_t)n_rows * PANEL, n_cols, false};
}

/* The scores of one page; those of tokens that a row does not see are written and never read. */
static void score(const block *b, int page) {
    const int d = b->a->d, most = seen(b, b->n_rows - 1, page);
    matrix keys = matrix_of(b, b->a->page[page], d, KERN_PAGE);
    for (int col = 0; col < most; col += PANEL)
        for (int row = 0; row < b->n_rows; row += TILE_ROWS) {
            int end = smaller(row + TILE_ROWS, b->n_rows), first = row;
            while (first < end && seen(b, first, page) <= col) first++;
            float *c[TILE_ROWS];
            for (int i = first; i < end; i++)
                c[i - first] = b->s + (size_t)i * ROW_STRIDE + page * KERN_PAGE + col;
            product(end - first, PANEL, keys.half, d, b->q + (size_t)first * ROW_STRIDE,
                    panel_of(&keys, 0, col), keys.row, c, false);
        }
}

/* Turns one row's n scores into weights. */
static void weigh(float *s, int n, float *partial) {
    int t, rest = n % LANES;
    lanes most = lanes_all(-INFINITY), sum = lanes_zero();
    for (t = 0; t + LANES <= n; t += LANES) most = lanes_max(lanes_load(s + t), most);
    most = lanes_max(lanes_keep(lanes_first(rest), lanes_load(s + t), most), most);
    float m = lanes_greatest(most) + 0.0f;
    for (t = 0; t + LANES <= n; t += LANES) {
        lanes e = lanes_exp(lanes_sub(lanes_load(s + t), lanes_all(m)));
        lanes_store(s + t, e);
        sum = lanes_add(sum, e);
    }
    lanes e = lanes_exp(lanes_sub(lanes_load(s + t), lanes_all(m)));
    lanes_store(s + t, e);
    sum = lanes_keep(lanes_first(rest), lanes_add(sum, e), sum);
    partial[0] = m;
    partial[1] = lanes_sum(sum);
}

/* One tile of rows over one page's values. Runs of rows that see equally much end together; the
 * rows behind them go on. */
static void add_tile(const block *b, const matrix *values, int page, int row, int end, int col,
                     int cols) {
    for (int done = 0; row < end;) {
        int n = seen(b, row, page);
        if (n > done) {
            float *c[TILE_ROWS];
            for (int i = row; i < end; i++) c[i - row] = b->out[i] + 2 + col;
            product(end - row, cols, values->half, n - done,
                    b->s + (size_t)row * ROW_STRIDE + page * KERN_PAGE + done,
                    panel_of(values, done, col), values->row, c, page > 0 || done > 0);
            done = n;
        }
        while (row < end && seen(b, row, page) == n) row++;
    }
}

static void add_values(const block *b, int page) {
    const int d = b->a->d, most = seen(b, b->n_rows - 1, page);
    const size_t keys_sz = kern_kv_size(b->a->kv, d) / 2;
    matrix values = matrix_of(b, (const char *)b->a->page[page] + keys_sz, most, d);
    for (int col = 0, cols; col < d; col += cols) {
        cols = d - col >= PANEL && col % PANEL == 0 ? PANEL : smaller(d - col, LANES);
        for (int row = 0; row < b->n_rows; row += TILE_ROWS)
            add_tile(b, &values, page, row, smaller(row + TILE_ROWS, b->n_rows), col, cols);
    }
}

static void attend(const kern_attend *a) {
    block b = {.a = a, .q = a->scratch};
    b.s = b.q + BLOCK_ROWS * ROW_STRIDE;
    b.wide = b.s + BLOCK_ROWS * ROW_STRIDE;
    for (int row = 0; row < a->n_rows; row += BLOCK_ROWS) {
        b.n_rows = smaller(a->n_rows - row, BLOCK_ROWS);
        take_rows(&b, row);
        int n_pages = (b.visible[b.n_rows - 1] + KERN_PAGE - 1) / KERN_PAGE;
        for (int page = 0; page < n_pages; page++) score(&b, page);
        for (int i = 0; i < b.n_rows; i++) {
            weigh(b.s + (size_t)i * ROW_STRIDE, b.visible[i], b.out[i]);
            if (b.visible[i] == 0) memset(b.out[i] + 2, 0, a->d * sizeof(float));
        }
        for (int page = 0; page < n_pages; page++) add_values(&b, page);
    }
}

/* ---- the rest ------------------------------------------------------------------------------- */

static void narrow(int d, const float *x, uint16_t *out) {
    int j;
    for (j = 0; j + LANES <= d; j += LANES) lanes_store_f16(out + j, lanes_load(x + j));
    lanes_store_f16(out + j, lanes_load_n(x + j, d - j));
}

static void kv_put(enum kern_type kv, int d, void *block, int slot, const float *k,
                   const float *v) {
    if (kv == KERN_F16) {
        uint16_t row[512 + LANES], *numbers = block;
        narrow(d, k, row);
        for (int j = 0; j < d; j++) numbers[(size_t)j * KERN_PAGE + slot] = row[j];
        narrow(d, v, row);
        memcpy(numbers + (size_t)(KERN_PAGE + slot) * d, row, d * sizeof *row);
    } else {
        float *numbers = block;
        for (int j = 0; j < d; j++) numbers[(size_t)j * KERN_PAGE + slot] = k[j];
        memcpy(numbers + (size_t)(KERN_PAGE + slot) * d, v, d * sizeof *v);
    }
}

static inline lanes merge(lanes o, lanes old, lanes oi, lanes new) {
    return lanes_fma(oi, new, lanes_mul(o, old));
}

static void attend_fold(int d, int n, const float *partial, size_t stride, float *out) {
    float m = -INFINITY, l = 0;
    int j, rest = d % LANES;
    memset(out, 0, sizeof *out * d);
    for (int i = 0; i < n; i++, partial += stride) {
        const float *o = partial + 2;
        if (partial[1] == 0) continue;
        float greater = partial[0] > m ? partial[0] : m;
        float old = kern_exp(m - greater), new = kern_exp(partial[0] - greater);
        l = fmaf(partial[1], new, l * old);
        for (j = 0; j + LANES <= d; j += LANES)
            lanes_store(out + j, merge(lanes_load(out + j), lanes_all(old), lanes_load(o + j),
                                       lanes_all(new)));
        lanes_store_n(out + j,
                      merge(lanes_load_n(out + j, rest), lanes_all(old), lanes_load_n(o + j, rest),
                            lanes_all(new)),
                      rest);
        m = greater;
    }
    if (l == 0) return;
    for (j = 0; j + LANES <= d; j += LANES)
        lanes_store(out + j, lanes_div(lanes_load(out + j), lanes_all(l)));
    lanes_store_n(out + j, lanes_div(lanes_load_n(out + j, rest), lanes_all(l)), rest);
}

static inline void override_attend(kern *k) {
    k->kv_put = kv_put;
    k->attend = attend;
    k->attend_fold = attend_fold;
}

#endif
