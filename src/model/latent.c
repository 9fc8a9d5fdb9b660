/* Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1, with the up-projections
 * of keys and values absorbed): what is stored of a token is one latent and one rotated key for all
 * heads. A query enters the latent space by its head's matrix k_b; a result leaves it by v_b.
 *
 *   query   [k_b · (numbers without position) | rotated numbers]
 *   key     [latent | rotated numbers]            value   latent */
#include "model_internal.h"

#include <string.h>

static float *query_of(const pass *p, int row) {
    return p->m->s.qkv + (size_t)row * p->m->widths.qkv;
}

static float *heads_of(const pass *p, int row) {
    return p->m->s.heads + (size_t)row * p->m->widths.heads;
}

/* Row of head h as the head's own matrix takes it: the heads of a row lie side by side. */
static char *head_act(const pass *p, const linear *l, int row, int head) {
    size_t stride = kern_act_stride(l->w.type, l->w.k);
    return p->m->s.act + ((size_t)row * (size_t)p->shape->n_head + (size_t)head) * stride;
}

/* Each head's matrix times its part of each row. */
static void run_heads(const pass *p, const linear *list, float *out, size_t out_stride,
                      int out_head) {
    int n = p->shape->n_head;
    product *products = p->m->s.products;
    for (int h = 0; h < n; h++) {
        const linear *l = &list[h];
        products[h] = (product){.w = &l->w,
                                .act = head_act(p, l, 0, h),
                                .act_stride = (size_t)n * kern_act_stride(l->w.type, l->w.k),
                                .out = out + h * out_head,
                                .out_stride = out_stride,
                                .n_rows = p->n_rows};
    }
    product_run(p, products, n);
}

static void put_head(const pass *p, const linear *l, int row, int head, const float *x) {
    p->m->kern.act_row(l->w.type, l->w.k, x, head_act(p, l, row, head));
}

/* The row's own latent becomes key and value. */
static void store_row(const pass *p, int row) {
    const layer *l = p->layer;
    const shape *s = p->shape;
    float *k = query_of(p, row) + s->n_head * s->d_k, *v = k + s->d_k;
    pass_norm(p, s->d_v, k, &l->kv_a_norm, v);
    memcpy(k, v, (size_t)s->d_v * sizeof *k);
    pass_rotate(p, row, k + s->d_v, 1);
    pass_put_kv(p, row, k, v);
}

static void compressed_row(const pass *p, int row) {
    float *latent = p->m->s.latent + (size_t)row * p->m->widths.latent;
    pass_norm(p, p->m->h.rank_q, latent, &p->layer->q_a_norm, latent);
    product_put_one(p, &p->layer->q, row, latent);
    store_row(p, row);
}

/* A head's query, as projected, is [without position | rotated]. */
static void enter_row(const pass *p, int row) {
    const shape *s = p->shape;
    int d = p->m->h.d_k_latent, plain = d - s->n_rot;
    for (int h = 0; h < s->n_head; h++) {
        const float *from = heads_of(p, row) + h * d;
        put_head(p, &p->layer->k_b[h], row, h, from);
        memcpy(query_of(p, row) + h * s->d_k + s->d_v, from + plain,
               (size_t)s->n_rot * sizeof *from);
    }
}

static void rotate_row(const pass *p, int row) {
    pass_rotate(p, row, query_of(p, row) + p->shape->d_v, p->shape->n_head);
    pass_scale_queries(p, row, query_of(p, row));
}

void latent_project(pass *p) {
    const model *m = p->m;
    const layer *l = p->layer;
    const shape *s = p->shape;
    float *latent = m->s.qkv + s->n_head * s->d_k;
    product list[2] = {product_of(p, &l->kv_a, latent, m->widths.qkv, p->n_rows, false)};
    if (m->h.rank_q) {
        list[1] = product_of(p, &l->q_a, m->s.latent, m->widths.latent, p->n_rows, false);
        product_run(p, list, 2);
        pass_for_rows(p, p->n_rows, compressed_row);
        product_run_one(p, &l->q, m->s.heads, m->widths.heads, p->n_rows, false);
    } else {
        list[1] = product_of(p, &l->q, m->s.heads, m->widths.heads, p->n_rows, false);
        product_run(p, list, 2);
        pass_for_rows(p, p->n_rows, store_row);
    }
    pass_for_rows(p, p->n_rows, enter_row);
    run_heads(p, l->k_b, m->s.qkv, m->widths.qkv, s->d_k);
    pass_for_rows(p, p->n_rows, rotate_row);
}

static void leave_row(const pass *p, int row) {
    const shape *s = p->shape;
    const float *mixed = p->m->s.mixed + (size_t)row * p->m->widths.mixed;
    for (int h = 0; h < s->n_head; h++) put_head(p, &p->layer->v_b[h], row, h, mixed + h * s->d_v);
}

void latent_expand(pass *p) {
    pass_for_rows(p, p->n_rows, leave_row);
    run_heads(p, p->layer->v_b, p->m->s.heads, p->m->widths.heads, p->shape->d_out);
}
