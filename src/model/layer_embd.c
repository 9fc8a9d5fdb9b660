/* Embeddings of each layer's own (Gemma 4): a token has, for each layer, a small vector; a layer
 * gates it by x at its end and adds what comes of it.
 *
 *   e[layer] = (norm(layer_proj · x / sqrt(n_embd)) + token's vector · sqrt(n)) / sqrt(2)
 *   x += norm(embd_proj · (f(embd_gate · x) * e[layer])) */
#include "model_internal.h"

#include <math.h>

static float *vectors_of(const pass *p, int row) {
    size_t width = (size_t)p->m->h.n_layer * (size_t)p->m->h.n_embd_layer;
    return p->m->s.layer_embd + (size_t)row * width;
}

static float *x_of(const pass *p, int row) {
    return p->m->s.x + (size_t)row * (size_t)p->m->h.n_embd;
}

static void project_row(const pass *p, int row) {
    product_put_one(p, &p->m->w.layer_proj, row, x_of(p, row));
}

static void combine_row(const pass *p, int row) {
    const model *m = p->m;
    const weights *w = &m->w;
    int n = m->h.n_embd_layer, all = n * m->h.n_layer;
    float *e = vectors_of(p, row), *own = m->s.layer_embd_own + (e - m->s.layer_embd);
    int span = pass_find_span(p, offsetof(span_plan, first_row), row);
    kern_unpack_row(&w->layer_embd, p->spans[span].tokens[row - p->plan[span].first_row], own);
    m->kern.scale(all, own, sqrtf((float)n), own);
    m->kern.scale(all, e, 1 / sqrtf((float)m->h.n_embd), e);
    for (int i = 0; i < all; i += n) pass_norm(p, n, e + i, &w->layer_proj_norm, e + i);
    m->kern.add(all, e, own, e);
    m->kern.scale(all, e, sqrtf(0.5f), e);
}

void layer_embd_prepare(pass *p) {
    const model *m = p->m;
    size_t width = (size_t)m->h.n_layer * (size_t)m->h.n_embd_layer;
    pass_for_rows(p, p->n_rows, project_row);
    product_run_one(p, &m->w.layer_proj, m->s.layer_embd, width, p->n_rows, false);
    pass_for_rows(p, p->n_rows, combine_row);
}

static void gate_in_row(const pass *p, int row) {
    product_put_one(p, &p->layer->embd_gate, row, x_of(p, row));
}

static void gate_row(const pass *p, int row) {
    const model *m = p->m;
    float *gate = m->s.ff + (size_t)row * m->widths.ff;
    const float *e = vectors_of(p, row) + (p->layer - m->w.layers) * m->h.n_embd_layer;
    m->kern.activate(m->h.arch->activation, m->h.n_embd_layer, gate, e, gate);
    product_put_one(p, &p->layer->embd_proj, row, gate);
}

static void add_row(const pass *p, int row) {
    const model *m = p->m;
    float *x = x_of(p, row), *y = pass_y(p, row);
    pass_norm(p, m->h.n_embd, y, &p->layer->embd_norm, y);
    m->kern.add(m->h.n_embd, x, y, x);
    if (p->layer->scale) m->kern.scale(m->h.n_embd, x, *p->layer->scale, x);
}

void layer_embd_add(pass *p) {
    const model *m = p->m;
    pass_for_rows(p, p->n_rows, gate_in_row);
    product_run_one(p, &p->layer->embd_gate, m->s.ff, m->widths.ff, p->n_rows, false);
    pass_for_rows(p, p->n_rows, gate_row);
    product_run_one(p, &p->layer->embd_proj, m->s.y, (size_t)m->h.n_embd, p->n_rows, false);
    pass_for_rows(p, p->n_rows, add_row);
}
