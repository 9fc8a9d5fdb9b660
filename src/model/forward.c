/* The forward pass, in straight lines: a loop over rows or over output tiles for each step, every
 * loop spread over the pool. Rows know nothing of each other except through the pages.
 *
 *   x       [rows][n_embd]            residual stream
 *   act     [rows][…]                 what the next product takes (8-bit rows, or floats)
 *   qkv     [rows][q | k | v]         queries are scaled, rotated in place
 *   mixed   [rows][n_head * head_dim] attention's output
 *   ff      [rows][gate | up] */
#include "model_internal.h"

#include <math.h>
#include <string.h>

enum { TILE_ROWS = 4, GEMM_ROWS = 128, GEMM_TILES_PER_THREAD = 6 };

int pass_find_span(const pass *p, size_t field, int index) {
    int low = 0, high = p->n_spans - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (*(const int *)((const char *)&p->plan[mid] + field) <= index)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* ---- loops over rows ---- */

typedef void row_fn(const pass *p, int row);

typedef struct row_loop {
    const pass *p;
    row_fn *fn;
    int n;
} row_loop;

static void run_rows(void *arg, int tile, int thread) {
    const row_loop *l = arg;
    for (int i = tile * TILE_ROWS; i < MIN((tile + 1) * TILE_ROWS, l->n); i++) l->fn(l->p, i);
}

static void for_rows(const pass *p, int n, row_fn *fn) {
    row_loop l = {p, fn, n};
    pool_run(p->m->pool, (n + TILE_ROWS - 1) / TILE_ROWS, run_rows, &l);
}

/* ---- products ---- */

typedef struct product {
    const kern_mat *w;
    float *out; /* row 0 */
    size_t stride;
    bool add;
} product;

typedef struct product_loop {
    const pass *p;
    const product *products;
    int n_products, n_rows;
    const char *act;
    size_t act_stride;
    int groups; /* row groups of a tile */
} product_loop;

static int n_group_tiles(const product_loop *l, int i) {
    return (kern_n_groups(l->products[i].w->n) + l->groups - 1) / l->groups;
}

static void run_product(void *arg, int tile, int thread) {
    const product_loop *l = arg;
    int row_tiles = (l->n_rows + GEMM_ROWS - 1) / GEMM_ROWS, i = 0;
    int row0 = tile % row_tiles * GEMM_ROWS, at = tile / row_tiles;
    while (at >= n_group_tiles(l, i)) at -= n_group_tiles(l, i++);
    const product *pr = &l->products[i];
    int group0 = at * l->groups, group1 = MIN(group0 + l->groups, kern_n_groups(pr->w->n));
    l->p->m->kern.gemm(pr->w, l->act + (size_t)row0 * l->act_stride, l->act_stride,
                       MIN(GEMM_ROWS, l->n_rows - row0), pr->out + (size_t)row0 * pr->stride,
                       pr->stride, pr->add, group0, group1);
}

/* Several products that take the same rows of activations, as one loop. */
static void multiply(const pass *p, const product *products, int n_products, int n_rows) {
    const kern_mat *w = products[0].w;
    product_loop l = {p, products, n_products, n_rows, p->m->s.act, kern_act_stride(w->type, w->k),
                      1};
    int groups = 0, tiles = 0, row_tiles = (n_rows + GEMM_ROWS - 1) / GEMM_ROWS;
    for (int i = 0; i < n_products; i++) groups += kern_n_groups(products[i].w->n);
    int wanted = MAX(1, pool_threads(p->m->pool) * GEMM_TILES_PER_THREAD / row_tiles);
    l.groups = MAX(2, (groups + wanted - 1) / wanted);
    for (int i = 0; i < n_products; i++) tiles += n_group_tiles(&l, i);
    pool_run(p->m->pool, tiles * row_tiles, run_product, &l);
}

static void put_act(const pass *p, const kern_mat *w, int row, const float *x) {
    p->m->kern.act_row(w->type, w->k, x,
                       p->m->s.act + (size_t)row * kern_act_stride(w->type, w->k));
}

static void add_bias(const pass *p, int n, float *x, const float *bias) {
    if (bias) p->m->kern.add(n, x, bias, x);
}

/* ---- steps ---- */

static float *x_of(const pass *p, int row) {
    return p->m->s.x + (size_t)row * (size_t)p->m->h.n_embd;
}

static float *qkv_of(const pass *p, int row) {
    const hparams *h = &p->m->h;
    return p->m->s.qkv + (size_t)row * (size_t)((h->n_head + 2 * h->n_head_kv) * h->head_dim);
}

static void norm_row(const pass *p, int row, const float *x, const float *weight,
                     const kern_mat *next) {
    float *norm = p->m->s.norm + (size_t)row * (size_t)p->m->h.n_embd;
    p->m->kern.rms_norm(p->m->h.n_embd, x, weight, p->m->h.norm_eps, norm);
    put_act(p, next, row, norm);
}

static void embed_row(const pass *p, int row) {
    const model *m = p->m;
    int span = pass_find_span(p, offsetof(span_plan, first_row), row), n = m->h.n_rot / 2;
    const model_span *s = &p->spans[span];
    int token = row - p->plan[span].first_row;
    kern_unpack_row(&m->w.embd, s->tokens[token], x_of(p, row));
    rope_row(n, m->freq, s->pos + (size_t)token, m->s.cos + (size_t)row * (size_t)n,
             m->s.sin + (size_t)row * (size_t)n);
}

static void attn_norm_row(const pass *p, int row) {
    norm_row(p, row, x_of(p, row), p->layer->attn_norm, &p->layer->q);
}

/* Biases, rotation, and the row's keys and values to its page. */
static void qkv_row(const pass *p, int row) {
    const model *m = p->m;
    const hparams *h = &m->h;
    int d = h->head_dim, half = h->n_rot / 2;
    float *q = qkv_of(p, row), *k = q + h->n_head * d, *v = k + h->n_head_kv * d;
    const float *cos = m->s.cos + (size_t)row * (size_t)half,
                *sin = m->s.sin + (size_t)row * (size_t)half;
    add_bias(p, h->n_head * d, q, p->layer->bq);
    add_bias(p, h->n_head_kv * d, k, p->layer->bk);
    add_bias(p, h->n_head_kv * d, v, p->layer->bv);
    m->kern.rope(q, h->n_head, d, h->n_rot, false, cos, sin);
    m->kern.rope(k, h->n_head_kv, d, h->n_rot, false, cos, sin);
    float scale = 1.0f / sqrtf((float)d);
    for (int i = 0; i < h->n_head * d; i++) q[i] *= scale;

    int span = pass_find_span(p, offsetof(span_plan, first_row), row);
    size_t pos = p->spans[span].pos + (size_t)(row - p->plan[span].first_row);
    char *block = (char *)p->spans[span].pages[pos / KERN_PAGE] + p->layer_at;
    for (int i = 0; i < h->n_head_kv; i++, block += m->kv_size)
        m->kern.kv_put(m->kv, d, d, block, (int)(pos % KERN_PAGE), k + i * d, v + i * d);
}

static void mixed_row(const pass *p, int row) {
    put_act(p, &p->layer->o, row,
            p->m->s.mixed + (size_t)row * (size_t)(p->m->h.n_head * p->m->h.head_dim));
}

static void ffn_norm_row(const pass *p, int row) {
    add_bias(p, p->m->h.n_embd, x_of(p, row), p->layer->bo);
    norm_row(p, row, x_of(p, row), p->layer->ffn_norm, &p->layer->gate);
}

static void silu_row(const pass *p, int row) {
    int n = p->m->h.n_ff;
    float *gate = p->m->s.ff + (size_t)row * 2 * (size_t)n, *up = gate + n;
    add_bias(p, n, gate, p->layer->bgate);
    add_bias(p, n, up, p->layer->bup);
    p->m->kern.activate(KERN_SILU, n, gate, up, gate);
    put_act(p, &p->layer->down, row, gate);
}

static void down_bias_row(const pass *p, int row) {
    add_bias(p, p->m->h.n_embd, x_of(p, row), p->layer->bdown);
}

/* The row of the pass that logits row i belongs to. */
static int row_of_logits(const pass *p, int i) {
    int span = pass_find_span(p, offsetof(span_plan, first_logit), i);
    const model_span *s = &p->spans[span];
    return p->plan[span].first_row + s->n_tokens - s->n_logits + (i - p->plan[span].first_logit);
}

static void output_norm_row(const pass *p, int i) {
    norm_row(p, i, x_of(p, row_of_logits(p, i)), p->m->w.output_norm, &p->m->w.output);
}

static void run_layer(pass *p) {
    const hparams *h = &p->m->h;
    const scratch *s = &p->m->s;
    const layer *l = p->layer;
    int n = p->n_rows, q = h->n_head * h->head_dim, kv = h->n_head_kv * h->head_dim;
    size_t qkv = (size_t)(q + 2 * kv), embd = (size_t)h->n_embd, ff = 2 * (size_t)h->n_ff;

    for_rows(p, n, attn_norm_row);
    multiply(p,
             (product[]){{&l->q, s->qkv, qkv, false},
                         {&l->k, s->qkv + q, qkv, false},
                         {&l->v, s->qkv + q + kv, qkv, false}},
             3, n);
    for_rows(p, n, qkv_row);
    attend_layer(p);
    for_rows(p, n, mixed_row);
    multiply(p, (product[]){{&l->o, s->x, embd, true}}, 1, n);

    for_rows(p, n, ffn_norm_row);
    multiply(p, (product[]){{&l->gate, s->ff, ff, false}, {&l->up, s->ff + h->n_ff, ff, false}}, 2,
             n);
    for_rows(p, n, silu_row);
    multiply(p, (product[]){{&l->down, s->x, embd, true}}, 1, n);
    if (l->bdown) for_rows(p, n, down_bias_row);
}

void model_forward(model *m, const model_span *spans, int n_spans, float *logits) {
    pass p = {.m = m, .spans = spans, .plan = m->s.plan, .n_spans = n_spans, .logits = logits};
    for (int i = 0; i < n_spans; i++) {
        p.plan[i].first_row = p.n_rows;
        p.plan[i].first_logit = p.n_logits;
        p.n_rows += spans[i].n_tokens;
        p.n_logits += spans[i].n_logits;
    }
    if (p.n_rows == 0) return;
    attend_plan(&p);
    for_rows(&p, p.n_rows, embed_row);
    for (int i = 0; i < m->h.n_layer; i++) {
        p.layer = &m->w.layers[i];
        p.layer_at = (size_t)i * (size_t)m->h.n_head_kv * m->kv_size;
        run_layer(&p);
    }
    if (p.n_logits == 0) return;
    for_rows(&p, p.n_logits, output_norm_row);
    multiply(&p, (product[]){{&m->w.output, logits, (size_t)m->h.n_vocab, false}}, 1, p.n_logits);
}
