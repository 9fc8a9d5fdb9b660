/* Mixers that carry a state from token to token instead of looking back: a row's result depends on
 * the rows before it in its span and on the state that the span begins with, one step a token, in
 * order, whatever the chunks are.
 *
 *   convolution   y = c * conv(b * x): short convolution (LFM2)
 *   Mamba 2       state[n][p] = decay · state + (dt · B)[n] · x[p];  y = C · state + D · x
 *                 (Dao and Gu 2024, arXiv 2405.21060)
 *   delta rule    state = decay · state;  state += k ⊗ beta · (v - k · state);  y = q · state
 *                 (gated delta networks, Yang et al. 2024, arXiv 2412.06464)
 *
 * All begin with a causal convolution of `taps` inputs, each channel by itself:
 *
 *   mix    [rows][width]     what the input products give: convolution | 2 n, | z, | dt, ...
 *   conv   [rows][channels]  its result
 *   inner  [rows][d_inner]   what goes to the output product
 *
 * A layer's state is [taps - 1][channels] last inputs, oldest first, then [heads][n][p]. */
#include "model_internal.h"

#include <math.h>
#include <string.h>

static float *mix_of(const pass *p, int row) {
    return p->m->s.mix + (size_t)row * p->m->widths.mix;
}

static float *conv_of(const pass *p, int row) {
    return p->m->s.conv + (size_t)row * (size_t)p->m->h.mixer.channels;
}

static float *inner_of(const pass *p, int row) {
    return p->m->s.inner + (size_t)row * (size_t)p->m->h.mixer.d_inner;
}

static float *state_of(const pass *p, int span) {
    return (float *)p->spans[span].state + p->shape->state_at;
}

static float sigmoid(float x) {
    return 1 / (1 + kern_exp(-x));
}

static float softplus(float x) {
    return x > 20 ? x : (float)log1p(exp((double)x));
}

static void multiply(int n, const float *a, const float *b, float *out) {
    for (int i = 0; i < n; i++) out[i] = a[i] * b[i];
}

/* ---- convolution ---- */

/* The input of the convolution at token t of a span; before 0 it is in the state. */
static const float *input_at(const pass *p, int span, int t) {
    const mixer_sizes *z = &p->m->h.mixer;
    if (t < 0) return state_of(p, span) + (size_t)(t + z->taps - 1) * (size_t)z->channels;
    return mix_of(p, p->plan[span].first_row + t) + z->conv_at;
}

static void gate_input_row(const pass *p, int row) {
    int n = p->m->h.mixer.channels;
    float *b = mix_of(p, row), *x = b + 2 * n;
    multiply(n, b, x, x);
}

static void convolve_row(const pass *p, int row) {
    const mixer_sizes *z = &p->m->h.mixer;
    const layer *l = p->layer;
    float *out = conv_of(p, row);
    int span = pass_find_span(p, offsetof(span_plan, first_row), row);
    int t = row - p->plan[span].first_row;
    memset(out, 0, (size_t)z->channels * sizeof *out);
    for (int k = 0; k < z->taps; k++) {
        const float *in = input_at(p, span, t - z->taps + 1 + k);
        for (int c = 0; c < z->channels; c++) out[c] += l->conv[c * z->taps + k] * in[c];
    }
    pass_add_bias(p, z->channels, out, l->conv_bias);
    if (z->kind != MIXER_CONV)
        p->m->kern.activate(KERN_SILU, z->channels, out, NULL, out);
    else
        multiply(z->channels, out, mix_of(p, row) + z->channels, inner_of(p, row));
}

/* The last inputs become the state: those of this span, or older ones moved up. */
static void keep_inputs(const pass *p) {
    const mixer_sizes *z = &p->m->h.mixer;
    for (int i = 0; i < p->n_spans; i++) {
        float *to = state_of(p, i);
        for (int k = 0; k < z->taps - 1; k++, to += z->channels)
            memmove(to, input_at(p, i, p->spans[i].n_tokens - z->taps + 1 + k),
                    (size_t)z->channels * sizeof *to);
    }
}

/* ---- heads ---- */

static void scan_mamba(const pass *p, int row, int head, float *state) {
    const mixer_sizes *z = &p->m->h.mixer;
    const layer *l = p->layer;
    int group = head / (z->heads / z->groups), d = z->d_inner / z->heads, n = z->d_state;
    const float *x = conv_of(p, row) + head * d, *b = conv_of(p, row) + z->d_inner + group * n;
    float *y = inner_of(p, row) + head * d, in[MAX_STATE];
    float dt = softplus(mix_of(p, row)[z->d_inner + z->channels + head] + l->dt_bias[head]);
    p->m->kern.scale(n, b, dt, in);
    p->m->kern.scan(n, d, state, kern_exp(dt * l->decay[head]), in, x, b + z->groups * n, y);
    p->m->kern.add_scaled(d, y, x, l->skip[head], y);
}

/* The rows [beta | alpha] of all heads, or of the value heads of one key head after another. */
static void read_gates(const pass *p, int row, int head, float *beta, float *alpha) {
    const mixer_sizes *z = &p->m->h.mixer;
    const float *gates = mix_of(p, row) + z->channels + z->d_inner;
    int each = p->layer->beta_alpha.w.n ? z->heads / z->groups : z->heads;
    gates += head / each * 2 * each + head % each;
    *beta = gates[0];
    *alpha = gates[each];
}

static void scan_delta(const pass *p, int row, int head, float *state) {
    const mixer_sizes *z = &p->m->h.mixer;
    const kern *k = &p->m->kern;
    int each = z->heads / z->groups, d = z->d_inner / z->heads, n = z->d_state;
    int of_key = p->m->h.arch->keys_in_turn ? head % z->groups : head / each;
    const float *query = conv_of(p, row) + of_key * n, *key = query + z->groups * n;
    const float *v = conv_of(p, row) + 2 * z->groups * n + head * d;
    float *y = inner_of(p, row) + head * d, change[MAX_STATE], beta, alpha;
    read_gates(p, row, head, &beta, &alpha);
    float decay = kern_exp(p->layer->decay[head] * softplus(alpha + p->layer->dt_bias[head]));
    k->scan(n, d, state, decay, NULL, NULL, key, change);
    k->add_scaled(d, v, change, -1, change);
    k->scale(d, change, sigmoid(beta), change);
    k->scan(n, d, state, 1, key, change, query, y);
}

/* One head of one span, token after token. */
static void scan_tile(void *arg, int tile, int thread) {
    const pass *p = arg;
    const mixer_sizes *z = &p->m->h.mixer;
    int span = tile / z->heads, head = tile % z->heads, first = p->plan[span].first_row;
    float *state = state_of(p, span) + (size_t)(z->taps - 1) * (size_t)z->channels +
                   (size_t)head * (size_t)(z->d_state * (z->d_inner / z->heads));
    for (int row = first; row < first + p->spans[span].n_tokens; row++)
        if (z->kind == MIXER_MAMBA)
            scan_mamba(p, row, head, state);
        else
            scan_delta(p, row, head, state);
}

/* Queries and keys of the delta rule have length 1, queries are scaled. */
static void normalise_row(const pass *p, int row) {
    const mixer_sizes *z = &p->m->h.mixer;
    const kern *k = &p->m->kern;
    int n = z->d_state;
    float root = 1 / sqrtf((float)n), *x = conv_of(p, row);
    for (int i = 0; i < 2 * z->groups; i++, x += n) {
        k->rms_norm(n, x, NULL, 1e-6f / (float)n, x);
        k->scale(n, x, i < z->groups ? root * root : root, x);
    }
}

static void finish_row(const pass *p, int row) {
    const mixer_sizes *z = &p->m->h.mixer;
    const layer *l = p->layer;
    bool mamba = z->kind == MIXER_MAMBA;
    float *y = inner_of(p, row), *gate = mix_of(p, row) + (mamba ? 0 : z->channels);
    int parts = mamba ? z->groups : z->heads, d = z->d_inner / parts;
    if (mamba) p->m->kern.activate(KERN_SILU, z->d_inner, gate, y, y);
    for (int i = 0; l->mixer_norm && i < parts; i++) {
        const float *w = l->mixer_norm + (mamba ? i * d : 0);
        p->m->kern.rms_norm(d, y + i * d, w, p->m->h.norm_eps, y + i * d);
    }
    if (z->kind == MIXER_DELTA) p->m->kern.activate(KERN_SILU, z->d_inner, gate, y, y);
}

/* ---- all ---- */

static void put_row(const pass *p, int row) {
    if (p->m->h.mixer.kind != MIXER_CONV) finish_row(p, row);
    product_put_one(p, &p->layer->mix_out, row, inner_of(p, row));
}

void recurrent_run(pass *p) {
    const model *m = p->m;
    const layer *l = p->layer;
    const mixer_sizes *z = &m->h.mixer;
    const linear *const inputs[] = {&l->mix_in, &l->mix_gate, &l->beta_alpha, &l->beta, &l->alpha};
    product list[COUNT_OF(inputs)];
    float *to = m->s.mix;
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(inputs); i++) { /* side by side */
        if (inputs[i]->w.n == 0) continue;
        list[n++] = product_of(p, inputs[i], to, m->widths.mix, p->n_rows, false);
        to += inputs[i]->w.n;
    }
    product_run(p, list, n);
    if (z->kind == MIXER_CONV) pass_for_rows(p, p->n_rows, gate_input_row);
    pass_for_rows(p, p->n_rows, convolve_row);
    keep_inputs(p);
    if (z->kind == MIXER_DELTA) pass_for_rows(p, p->n_rows, normalise_row);
    if (z->kind != MIXER_CONV) pool_run(m->pool, p->n_spans * z->heads, scan_tile, p);
    pass_for_rows(p, p->n_rows, put_row);
    product_run_one(p, &l->mix_out, m->s.y, (size_t)m->h.n_embd, p->n_rows, false);
}
