/* The forward pass, in straight lines: a loop over rows or over output tiles for each step, every
 * loop spread over the pool. Rows know nothing of each other except through the pages.
 *
 *   x       [rows][n_embd]           residual stream
 *   y       [rows][n_embd]           what a branch adds to it
 *   act     [rows][…]                what the next product takes (8-bit rows, or floats)
 *   qkv     [rows][q | k | v]        queries are scaled, rotated in place
 *   mixed   [rows][n_head * d_v]     attention's output
 *   heads   [rows][n_head * d_out]   the same, outside of the latent space
 *   ff      [rows][gate | up]
 *
 * What a layer does not have is skipped: a norm without weights, a product without outputs. */
#include "model_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Rows of a tile: neighbours in one thread, which write to the same lines of a page, as long as
 * there are enough tiles for all. */
enum { MOST_ROWS = KERN_PAGE / 2, TILES_A_THREAD = 4 };

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

/* ---- rows ---- */

typedef struct row_loop {
    const pass *p;
    row_fn *fn;
    int n, tile_rows;
} row_loop;

static void run_rows(void *arg, int tile, int thread) {
    const row_loop *l = arg;
    int first = tile * l->tile_rows;
    for (int i = first; i < MIN(first + l->tile_rows, l->n); i++) l->fn(l->p, i);
}

void pass_for_rows(const pass *p, int n, row_fn *fn) {
    int tiles = TILES_A_THREAD * pool_threads(p->m->pool), rows = MIN(n / tiles, MOST_ROWS);
    row_loop l = {p, fn, n, MAX(rows, 1)};
    pool_run(p->m->pool, (n + l.tile_rows - 1) / l.tile_rows, run_rows, &l);
}

void pass_add_bias(const pass *p, int n, float *x, const float *bias) {
    if (bias) p->m->kern.add(n, x, bias, x);
}

void pass_norm(const pass *p, int n, const float *x, const norm *w, float *out) {
    const model *m = p->m;
    if (m->h.arch->norm == NORM_RMS)
        m->kern.rms_norm(n, x, w->w, m->h.norm_eps, out);
    else
        m->kern.layer_norm(n, x, w->w, w->b, m->h.norm_eps, out);
}

void pass_softmax(int n, float *x) {
    float most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int i = 0; i < n; i++) sum += x[i] = kern_exp(x[i] - most);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

void pass_activate(const pass *p, const mlp *m, float *gate, float *up) {
    enum kern_activation f = p->m->h.arch->activation;
    int n = m->up.w.n;
    pass_add_bias(p, n, up, m->up.bias);
    if (m->gate.w.n == 0) {
        p->m->kern.activate(f, n, up, NULL, gate);
        return;
    }
    pass_add_bias(p, n, gate, m->gate.bias);
    p->m->kern.activate(f, n, gate, up, gate);
}

static float *row_at(float *rows, int row, size_t width) {
    return rows + (size_t)row * width;
}

static float *x_of(const pass *p, int row) {
    return row_at(p->m->s.x, row, (size_t)p->m->h.n_embd);
}

float *pass_y(const pass *p, int row) {
    return row_at(p->m->s.y, row, (size_t)p->m->h.n_embd);
}

/* x's norm as a branch takes it; x itself when it has none. */
static const float *normed(const pass *p, int row, enum norm_slot slot) {
    const norm *w = &p->layer->norms[slot];
    float *out = row_at(p->m->s.norm, row, (size_t)p->m->h.n_embd);
    if (!w->w) return x_of(p, row);
    pass_norm(p, p->m->h.n_embd, x_of(p, row), w, out);
    return out;
}

/* x += y, with the norms that stand around it. */
static void add_branch(const pass *p, int row, enum norm_slot of_y, enum norm_slot of_sum) {
    const model *m = p->m;
    const norm *w = p->layer->norms;
    float *x = x_of(p, row), *y = pass_y(p, row);
    int n = m->h.n_embd;
    if (w[of_y].w) pass_norm(p, n, y, &w[of_y], y);
    m->kern.add_scaled(n, x, y, m->h.residual_scale, x);
    if (w[of_sum].w) pass_norm(p, n, x, &w[of_sum], x);
}

/* ---- embeddings ---- */

size_t pass_position(const pass *p, int row) {
    int span = pass_find_span(p, offsetof(span_plan, first_row), row);
    return p->spans[span].pos + (size_t)(row - p->plan[span].first_row);
}

static int32_t token_of(const pass *p, int row) {
    int span = pass_find_span(p, offsetof(span_plan, first_row), row);
    return p->spans[span].tokens[row - p->plan[span].first_row];
}

/* cos or sin of a row's angles. */
static float *angles(const pass *p, float *table, int rope, int row) {
    size_t rows = (size_t)p->m->s.max_tokens;
    return table + ((size_t)rope * rows + (size_t)row) * p->m->widths.rot;
}

/* Whether it is of the second text of a pair, in a model that tells them apart. */
static bool is_second(const pass *p, int row, size_t pos) {
    int span = pass_find_span(p, offsetof(span_plan, first_row), row);
    size_t second = p->spans[span].second;
    return p->m->w.token_type[1] && second && pos >= second;
}

static void embed_row(const pass *p, int row) {
    const model *m = p->m;
    const weights *w = &m->w;
    float *x = x_of(p, row), *more = pass_y(p, row);
    size_t pos = pass_position(p, row);
    int n = m->h.n_embd;
    kern_unpack_row(&w->embd, token_of(p, row), x);
    if (m->h.embd_scale != 1) m->kern.scale(n, x, m->h.embd_scale, x);
    const float *type = w->token_type[is_second(p, row, pos)];
    if (type) m->kern.add(n, x, type, x);
    if (w->positions.n) {
        kern_unpack_row(&w->positions, (int)pos, more);
        m->kern.add(n, x, more, x);
    }
    if (w->embd_norm.w) pass_norm(p, n, x, &w->embd_norm, x);
    for (int i = 0; i < 2; i++)
        rope_row(&m->rope[i], pos, angles(p, m->s.cos, i, row), angles(p, m->s.sin, i, row));
}

/* ---- attention ---- */

static void mixer_in_row(const pass *p, int row) {
    linear *list[N_INPUTS];
    int n = layer_attention_inputs(p->layer, p->m->h.rank_q > 0, list);
    product_put(p, list, n, row, normed(p, row, ATTN_IN));
}

/* Norms of queries or keys: over each head, or over the row of them. */
static void norm_heads(const pass *p, const norm *w, float *x, int n_heads, int d) {
    bool by_row = p->m->h.arch->qk_norm == QK_NORM_ROW;
    if (by_row) d *= n_heads, n_heads = 1;
    for (int i = 0; w->w && i < n_heads; i++) pass_norm(p, d, x + i * d, w, x + i * d);
}

void pass_rotate(const pass *p, int row, float *x, int n_heads) {
    const model *m = p->m;
    const shape *s = p->shape;
    if (s->n_rot == 0) return;
    m->kern.rope(x, n_heads, s->d_k, s->n_rot, m->h.arch->rope == ROPE_HALVES,
                 angles(p, m->s.cos, s->rope, row), angles(p, m->s.sin, s->rope, row));
    for (int i = 0; m->h.norm_rotated && i < n_heads; i++, x += s->d_k)
        m->kern.rms_norm(s->d_k, x, NULL, m->h.norm_eps, x);
}

/* Queries are scaled here; those of some models grow with the logarithm of the position. */
void pass_scale_queries(const pass *p, int row, float *q) {
    const hparams *h = &p->m->h;
    int n = p->shape->n_head * p->shape->d_k;
    double scale = (double)p->shape->query_scale;
    if (h->temperature_scale > 0 && p->shape->temperature) {
        size_t pos = pass_position(p, row) + (size_t)h->temperature_offset;
        size_t lengths = pos / (size_t)h->temperature_length;
        scale *= 1 + (double)h->temperature_scale * log(1 + (double)lengths);
    }
    p->m->kern.scale(n, q, (float)scale, q);
}

void pass_put_kv(const pass *p, int row, const float *k, const float *v) {
    const model *m = p->m;
    const shape *s = p->shape;
    int span = pass_find_span(p, offsetof(span_plan, first_row), row);
    size_t pos = pass_position(p, row);
    char *block = (char *)p->spans[span].pages[pos / KERN_PAGE] + s->kv_at;
    for (int i = 0; i < s->n_head_kv; i++, block += s->kv_size)
        m->kern.kv_put(m->kv, s->d_k, s->d_v, block, (int)(pos % KERN_PAGE), k + i * s->d_k,
                       v + i * s->d_v);
}

/* Biases, norms, rotation, and the row's keys and values to its page. */
static void qkv_row(const pass *p, int row) {
    static const norm plain = {0};
    const model *m = p->m;
    const layer *l = p->layer;
    const shape *s = p->shape;
    float *q = row_at(m->s.qkv, row, m->widths.qkv);
    float *k = q + s->n_head * s->d_k, *v = k + s->n_head_kv * s->d_k;
    for (int i = 0; m->h.arch->gated_attention && i < s->n_head; i++) /* [query | gate] a head */
        memcpy(q + i * s->d_k, row_at(m->s.heads, row, m->widths.heads) + 2 * i * s->d_k,
               (size_t)s->d_k * sizeof *q);
    pass_add_bias(p, s->n_head * s->d_k, q, l->q.bias);
    norm_heads(p, &l->q_norm, q, s->n_head, s->d_k);
    pass_rotate(p, row, q, s->n_head);
    pass_scale_queries(p, row, q);
    if (l->k.w.n == 0) return; /* an earlier layer's are read */

    pass_add_bias(p, l->k.w.n, k, l->k.bias);
    pass_add_bias(p, l->v.w.n, v, l->v.bias);
    if (l->v.w.n == 0) memcpy(v, k, (size_t)l->k.w.n * sizeof *v);
    norm_heads(p, &l->k_norm, k, s->n_head_kv, s->d_k);
    for (int i = 0; m->h.arch->norm_v && i < s->n_head_kv; i++)
        pass_norm(p, s->d_v, v + i * s->d_v, &plain, v + i * s->d_v);
    pass_rotate(p, row, k, s->n_head_kv);
    pass_put_kv(p, row, k, v);
}

static void project(pass *p) {
    const layer *l = p->layer;
    const shape *s = p->shape;
    size_t stride = p->m->widths.qkv;
    float *q = p->m->s.qkv, *k = q + s->n_head * s->d_k, *v = k + s->n_head_kv * s->d_k;
    product list[3];
    int n = 0;
    list[n++] = p->m->h.arch->gated_attention
                    ? product_of(p, &l->q, p->m->s.heads, p->m->widths.heads, p->n_rows, false)
                    : product_of(p, &l->q, q, stride, p->n_rows, false);
    if (l->k.w.n) list[n++] = product_of(p, &l->k, k, stride, p->n_rows, false);
    if (l->v.w.n) list[n++] = product_of(p, &l->v, v, stride, p->n_rows, false);
    product_run(p, list, n);
    pass_for_rows(p, p->n_rows, qkv_row);
}

/* Attention's result times the sigmoid of its gate. */
static void gate_heads(const pass *p, int row, float *heads) {
    const shape *s = p->shape;
    const float *gate = row_at(p->m->s.heads, row, p->m->widths.heads) + s->d_k;
    for (int i = 0; i < s->n_head; i++, heads += s->d_v, gate += 2 * s->d_k)
        for (int j = 0; j < s->d_v; j++) heads[j] /= 1 + kern_exp(-gate[j]);
}

static void heads_row(const pass *p, int row) {
    const model *m = p->m;
    float *heads = m->h.arch->latent ? row_at(m->s.heads, row, m->widths.heads)
                                     : row_at(m->s.mixed, row, m->widths.mixed);
    if (m->h.arch->gated_attention) gate_heads(p, row, heads);
    product_put_one(p, &p->layer->o, row, heads);
}

static void add_attention_row(const pass *p, int row) {
    pass_add_bias(p, p->m->h.n_embd, pass_y(p, row), p->layer->o.bias);
    add_branch(p, row, ATTN_OUT, ATTN_SUM);
}

/* y = attention of x's norm, whose forms are put */
static void attend(pass *p) {
    if (p->m->h.arch->latent)
        latent_project(p);
    else
        project(p);
    attend_layer(p);
    if (p->m->h.arch->latent) latent_expand(p);
    pass_for_rows(p, p->n_rows, heads_row);
    product_run_one(p, &p->layer->o, p->m->s.y, (size_t)p->m->h.n_embd, p->n_rows,
                    p->shape->recurrent);
}

/* ---- feed-forward ---- */

static void feed_forward_in_row(const pass *p, int row) {
    linear *list[N_INPUTS];
    int n = layer_feed_forward_inputs(p->layer, list);
    const float *in = p->m->h.parallel && !p->layer->norms[FFN_IN].w
                          ? row_at(p->m->s.norm, row, (size_t)p->m->h.n_embd) /* attention's */
                          : normed(p, row, FFN_IN);
    product_put(p, list, n, row, in);
}

static void inner_row(const pass *p, int row) {
    const mlp *m = &p->layer->ffn;
    float *gate = row_at(p->m->s.ff, row, p->m->widths.ff), *up = gate + m->up.w.n;
    pass_activate(p, m, gate, up);
    product_put_one(p, &p->layer->ffn.down, row, gate);
}

/* y (+)= the dense feed-forward, or the shared expert, of rows whose inputs are put */
void pass_mlp(pass *p, bool add) {
    const mlp *m = &p->layer->ffn;
    size_t stride = p->m->widths.ff;
    product list[2];
    int n = 0;
    list[n++] = product_of(p, &m->up, p->m->s.ff + m->up.w.n, stride, p->n_rows, false);
    if (m->gate.w.n) list[n++] = product_of(p, &m->gate, p->m->s.ff, stride, p->n_rows, false);
    product_run(p, list, n);
    pass_for_rows(p, p->n_rows, inner_row);
    product_run_one(p, &m->down, p->m->s.y, (size_t)p->m->h.n_embd, p->n_rows, add);
}

static void add_feed_forward_row(const pass *p, int row) {
    float *x = x_of(p, row), *y = pass_y(p, row);
    if (p->m->h.parallel) pass_add_bias(p, p->m->h.n_embd, y, p->layer->o.bias);
    if (!p->layer->experts) pass_add_bias(p, p->m->h.n_embd, y, p->layer->ffn.down.bias);
    add_branch(p, row, FFN_OUT, FFN_SUM);
    if (p->layer->scale && !p->layer->embd_gate.w.n)
        p->m->kern.scale(p->m->h.n_embd, x, *p->layer->scale, x);
}

/* ---- layers and logits ---- */

static void run_layer(pass *p) {
    if (p->shape->recurrent) {
        pass_for_rows(p, p->n_rows, mixer_in_row);
        recurrent_run(p);
    }
    if (p->shape->attention) {
        pass_for_rows(p, p->n_rows, mixer_in_row);
        attend(p);
    }
    if (!p->m->h.parallel) pass_for_rows(p, p->n_rows, add_attention_row);
    if (p->shape->n_ff == 0 && !p->shape->experts) return;
    pass_for_rows(p, p->n_rows, feed_forward_in_row);
    if (p->shape->experts)
        experts_run(p);
    else
        pass_mlp(p, p->m->h.parallel);
    pass_for_rows(p, p->n_rows, add_feed_forward_row);
    if (p->layer->embd_gate.w.n) layer_embd_add(p);
}

/* The row of the pass that logits row i belongs to. */
static int row_of_logits(const pass *p, int i) {
    int span = pass_find_span(p, offsetof(span_plan, first_logit), i);
    const model_span *s = &p->spans[span];
    return p->plan[span].first_row + s->n_tokens - s->n_logits + (i - p->plan[span].first_logit);
}

static void output_row(const pass *p, int i) {
    model *m = p->m;
    const float *x = x_of(p, row_of_logits(p, i));
    float *out =
        m->embed ? row_at(p->logits, i, m->info.n_out) : row_at(m->s.norm, i, (size_t)m->h.n_embd);
    if (m->w.output_norm.w)
        pass_norm(p, m->h.n_embd, x, &m->w.output_norm, out);
    else
        memcpy(out, x, (size_t)m->h.n_embd * sizeof *out);
    if (m->embed) return;
    product_put_fine(p, &m->w.output, i, out);
}

static void logits_row(const pass *p, int i) {
    const model *m = p->m;
    float *out = row_at(p->logits, i, m->info.n_out);
    pass_add_bias(p, m->h.n_vocab, out, m->w.output.bias);
    if (m->h.logit_scale != 1) m->kern.scale(m->h.n_vocab, out, m->h.logit_scale, out);
    if (m->h.final_softcap > 0) m->kern.softcap(m->h.n_vocab, out, m->h.final_softcap, out);
}

static void compute_logits(pass *p) {
    const model *m = p->m;
    pass_for_rows(p, p->n_logits, output_row);
    if (m->embed) return;
    product pr = product_of_fine(p, &m->w.output, p->logits, m->info.n_out, p->n_logits);
    product_run(p, &pr, 1);
    if (m->w.output.bias || m->h.logit_scale != 1 || m->h.final_softcap > 0)
        pass_for_rows(p, p->n_logits, logits_row);
}

void model_forward(model *m, const model_span *spans, int n_spans, float *logits) {
    pass p = {.m = m, .spans = spans, .plan = m->s.plan, .n_spans = n_spans, .logits = logits};
    for (int i = 0; i < n_spans; i++) {
        p.plan[i].first_row = p.n_rows;
        p.plan[i].first_logit = p.n_logits;
        p.n_rows += spans[i].n_tokens;
        p.n_logits += spans[i].n_logits;
        for (int a = 0; spans[i].scales && a < m->info.n_adapters; a++)
            p.adapted |= spans[i].scales[a] != 0;
        if (m->info.state_size && spans[i].pos == 0) memset(spans[i].state, 0, m->info.state_size);
    }
    assert(p.n_rows <= m->s.max_tokens && p.n_logits <= m->s.max_logits);
    if (p.n_rows == 0) return;
    attend_find_shared(&p);
    pass_for_rows(&p, p.n_rows, embed_row);
    if (m->h.n_embd_layer) layer_embd_prepare(&p);
    for (int i = 0; i < m->h.n_layer; i++) {
        p.layer = &m->w.layers[i];
        p.shape = &m->h.layers[i];
        run_layer(&p);
    }
    if (p.n_logits) compute_logits(&p);
}
