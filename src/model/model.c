#include "model_internal.h"

#include <string.h>

/* ---- opening -------------------------------------------------------------------------------- */

static int read_vocab_size(const gguf *g, hparams *h, icp_error *err) {
    const gguf_tensor *t = gguf_find_tensor(g, "token_embd.weight");
    if (!t) return error_set(err, ICP_EFORMAT, "tensor token_embd.weight is missing");
    if (t->dims[1] < 1 || t->dims[1] > 1 << 24)
        return error_set(err, ICP_EFORMAT,
                         "token_embd.weight has %llu rows; it must have 1 to 16777216",
                         (unsigned long long)t->dims[1]);
    h->n_vocab = (int)t->dims[1];
    return 0;
}

static uint64_t count_params(const gguf *g) {
    uint64_t n = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        n += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    return n;
}

static void leave_out(model_info *info, const kern_mat *w, int times) {
    if (w->n == 0) return;
    info->n_active -= (uint64_t)times * (uint64_t)w->n * (uint64_t)w->k;
    info->active_size -= (size_t)times * kern_mat_size(w->type, w->n, w->k);
}

/* A token is multiplied with all but tables, of which it takes a row, and the experts that it does
 * not go to. */
static void count_active(model *m) {
    const weights *w = &m->w;
    model_info *info = &m->info;
    int idle = m->h.n_expert - m->h.n_expert_used;
    info->n_active = info->n_params;
    info->active_size = info->weights_size;
    if (w->output.w.data != w->embd.data) leave_out(info, &w->embd, 1);
    leave_out(info, &w->positions, 1);
    leave_out(info, &w->layer_embd, 1);
    for (int i = 0; i < w->n_layer; i++) {
        const mlp *experts = w->layers[i].experts;
        if (!experts) continue;
        leave_out(info, &experts->gate.w, idle);
        leave_out(info, &experts->up.w, idle);
        leave_out(info, &experts->down.w, idle);
    }
}

/* Lays out a page: layer by layer, head by head. Returns its size. */
static size_t lay_out_page(model *m) {
    size_t at = 0;
    for (int i = 0; i < m->h.n_layer; i++) {
        shape *s = &m->h.layers[i];
        const shape *from = &m->h.layers[s->kv_from];
        s->kv_at = s == from ? at : from->kv_at;
        s->kv_size = kern_kv_size(m->kv, s->d_k, s->d_v);
        if (s == from && s->attention) at += (size_t)s->n_head_kv * s->kv_size;
    }
    return at;
}

/* Of all layers that attend; 0: some see the whole context. A chunk is no longer than a window of
 * its size. */
static size_t widest_window(const hparams *h, size_t n_ctx) {
    int widest = 0;
    for (int i = 0; i < h->n_layer; i++) {
        const shape *s = &h->layers[i];
        if (!s->attention) continue;
        if (!s->window || !h->causal) return 0;
        widest = MAX(widest, s->window);
    }
    return (size_t)widest < n_ctx ? (size_t)widest : 0;
}

static void fill_info(model *m, const gguf *g, const model_opts *opts) {
    const hparams *h = &m->h;
    m->info = (model_info){.arch = h->arch->name,
                           .name = h->name,
                           .n_vocab = (size_t)h->n_vocab,
                           .n_ctx_train = (size_t)h->n_ctx_train,
                           .n_ctx = opts->n_ctx,
                           .n_layer = (size_t)h->n_layer,
                           .n_embd = (size_t)h->n_embd,
                           .n_head = (size_t)h->layers->n_head,
                           .n_head_kv = (size_t)h->layers->n_head_kv,
                           .n_ff = (size_t)h->layers->n_ff,
                           .n_out = (size_t)(opts->embed ? h->n_embd : h->n_vocab),
                           .embeds = opts->embed,
                           .causal = h->causal,
                           .pooling = h->pooling,
                           .pools_last = h->pooled == MODEL_POOL_LAST,
                           .n_vector = (size_t)(h->n_scores ? h->n_scores : h->n_embd),
                           .state_size = h->n_state * sizeof(float),
                           .window = widest_window(h, opts->n_ctx),
                           .n_params = count_params(g),
                           .page_size = lay_out_page(m)};
}

static void widen(size_t *width, size_t to) {
    *width = MAX(*width, to);
}

static void widen_act(model *m, const linear *l, int rows) {
    if (l->w.n) widen(&m->widths.act, (size_t)rows * kern_act_stride(l->w.type, l->w.k));
}

static void widen_for_layer(model *m, const layer *l, const shape *s) {
    widths *w = &m->widths;
    const hparams *h = &m->h;
    size_t heads = (size_t)s->n_head, d_k = (size_t)s->d_k, d_v = (size_t)s->d_v;
    widen(&w->qkv, heads * d_k + (size_t)s->n_head_kv * (d_k + d_v));
    widen(&w->mixed, heads * d_v);
    widen(&w->heads, h->arch->latent ? heads * (size_t)MAX(h->d_k_latent, s->d_out) : 0);
    widen(&w->mix, (size_t)(l->mix_in.w.n + l->mix_gate.w.n + l->beta_alpha.w.n + l->beta.w.n +
                            l->alpha.w.n));
    if (h->arch->gated_attention) widen(&w->heads, 2 * heads * d_k);
    widen(&w->ff, (size_t)MAX(2 * s->n_ff, h->n_embd_layer));
    widen(&w->rot, (size_t)s->n_rot / 2);
    if (s->attention) widen(&w->thread, (attend_thread_size(s, m->info.n_ctx) + 63) & ~(size_t)63);
    const linear *const list[] = {&l->q,         &l->k,      &l->v,           &l->o,
                                  &l->q_a,       &l->kv_a,   &l->ffn.gate,    &l->ffn.up,
                                  &l->ffn.down,  &l->router, &l->shared_gate, &l->embd_gate,
                                  &l->embd_proj, &l->mix_in, &l->mix_gate,    &l->beta_alpha,
                                  &l->beta,      &l->alpha,  &l->mix_out};
    for (size_t i = 0; i < COUNT_OF(list); i++) widen_act(m, list[i], 1);
    if (l->k_b) widen_act(m, l->k_b, s->n_head);
    if (l->v_b) widen_act(m, l->v_b, s->n_head);
    if (!l->experts) return;
    const linear *of_expert[] = {&l->experts->gate, &l->experts->up, &l->experts->down};
    for (size_t i = 0; i < COUNT_OF(of_expert); i++) {
        widen_act(m, of_expert[i], 1);
        widen(&w->slot_act, kern_act_stride(of_expert[i]->w.type, of_expert[i]->w.k));
    }
}

static int prepare(model *m, icp_error *err) {
    m->widths = (widths){.latent = (size_t)m->h.rank_q, .thread = product_fine_size()};
    for (int i = 0; i < m->h.n_layer; i++) widen_for_layer(m, &m->w.layers[i], &m->h.layers[i]);
    widen_act(m, &m->w.output, 1);
    widen_act(m, &m->w.layer_proj, 1);
    widen_act(m, &m->w.classifier, 1);
    widen_act(m, &m->w.scores, 1);
    return rope_init(&m->h, &m->w, m->info.n_ctx, m->rope) < 0
               ? error_set(err, ICP_ENOMEM, "out of memory")
               : 0;
}

static int choose_context(const hparams *h, size_t *n_ctx, icp_error *err) {
    if (*n_ctx == 0) *n_ctx = (size_t)h->n_ctx_scaled;
    if (*n_ctx <= (size_t)h->n_ctx_most) return 0;
    if (h->n_ctx_scaled > h->n_ctx_train)
        return error_set(err, ICP_EINVALID, "a context of %zu was asked for; RoPE is scaled to %d",
                         *n_ctx, h->n_ctx_scaled);
    return error_set(err, ICP_EINVALID,
                     "a context of %zu was asked for; the model was trained for %d, which only "
                     "scaling RoPE extends",
                     *n_ctx, h->n_ctx_train);
}

static int open_model(model *m, const gguf *g, const model_opts *wanted, icp_error *err) {
    model_opts with = *wanted, *opts = &with;
    uint8_t fingerprint[16];
    TRY(hparams_read(g, &opts->rope, &m->h, err));
    TRY(read_vocab_size(g, &m->h, err));
    TRY(choose_context(&m->h, &opts->n_ctx, err));
    if (m->h.arch->encoder && !opts->embed)
        return error_set(err, ICP_EUNSUPPORTED,
                         "architecture %s embeds texts; it cannot generate any", m->h.arch->name);
    kern_init(&m->kern, opts->isa);
    m->kv = opts->kv;
    m->pool = opts->pool;
    m->embed = opts->embed;
    fill_info(m, g, opts);
    int rc = weights_load(g, &m->h, opts, &m->w, fingerprint, err);
    if (rc == ICP_ENOMEM && !(err && err->text[0])) error_set(err, rc, "out of memory");
    TRY(rc);
    m->info.weights_size = m->w.block_size;
    m->info.n_nodes = m->w.n_nodes;
    count_active(m);
    memcpy(m->info.fingerprint, fingerprint, sizeof fingerprint);
    return prepare(m, err);
}

int model_open(const gguf *g, const model_opts *opts, model **out, icp_error *err) {
    model *m = mem_zero(1, sizeof *m);
    if (!m) return error_set(err, ICP_ENOMEM, "out of memory");
    int rc = open_model(m, g, opts, err);
    if (rc < 0)
        model_close(&m);
    else
        *out = m;
    return rc;
}

void model_close(model **mm) {
    model *m = *mm;
    if (!m) return;
    *mm = NULL;
    adapters_fini(m);
    weights_fini(&m->w);
    hparams_fini(&m->h);
    rope_fini(m->rope);
    mem_unreserve(m->s.block, m->s.block_size);
    mem_free(m);
}

const model_info *model_get_info(const model *m) {
    return &m->info;
}

/* ---- scratch memory ------------------------------------------------------------------------- */

typedef struct room {
    size_t field; /* offset of a pointer in scratch */
    size_t size;
} room;

static void *give(scratch *s, const room *rooms, int n) {
    size_t size = 0;
    for (int i = 0; i < n; i++) size += (rooms[i].size + 63) & ~(size_t)63;
    char *block = mem_reserve(size), *at = block;
    if (!block) return NULL;
    for (int i = 0; i < n; i++) {
        memcpy((char *)s + rooms[i].field, &at, sizeof at);
        at += (rooms[i].size + 63) & ~(size_t)63;
    }
    s->block = block;
    s->block_size = size;
    return block;
}

int model_reserve(model *m, int max_tokens, int max_logits) {
    const hparams *h = &m->h;
    const widths *w = &m->widths;
    if (max_tokens <= m->s.max_tokens && max_logits <= m->s.max_logits) return 0;
    max_tokens = MAX(max_tokens, max_logits); /* logits rows use the same activations */
    scratch s = {.max_tokens = max_tokens, .max_logits = max_logits};
    size_t n = (size_t)max_tokens, f = sizeof(float), embd = (size_t)h->n_embd;
    size_t slots = n * (size_t)h->n_expert_used;
    size_t layer_embd = n * (size_t)h->n_layer * (size_t)h->n_embd_layer * f;
    size_t n_products = (size_t)MAX(2 * h->n_expert, h->arch->latent ? h->layers->n_head : 0);
    size_t fine =
        MAX((size_t)max_logits * product_fine_row_size(&m->w.output.w),
            MAX(product_fine_row_size(&m->w.classifier.w), product_fine_row_size(&m->w.scores.w)));
#define ROOM(field, size)                                                                          \
    { offsetof(scratch, field), (size) }
    const room rooms[] = {
        ROOM(x, n * embd * f),
        ROOM(y, n * embd * f),
        ROOM(norm, n * embd * f),
        ROOM(qkv, n * w->qkv * f),
        ROOM(mixed, n * w->mixed * f),
        ROOM(heads, n * w->heads * f),
        ROOM(latent, n * w->latent * f),
        ROOM(ff, n * w->ff * f),
        ROOM(mix, n * w->mix * f),
        ROOM(conv, n * (size_t)h->mixer.channels * f),
        ROOM(inner, n * (size_t)h->mixer.d_inner * f),
        ROOM(act, n * w->act * N_FORMS),
        ROOM(fine, fine),
        ROOM(low, n * w->low * f),
        ROOM(low_act, n * w->low_act),
        ROOM(low_products, w->low ? 2 * n * N_INPUTS * sizeof(product) : 0),
        ROOM(cos, 2 * n * w->rot * f),
        ROOM(sin, 2 * n * w->rot * f),
        ROOM(layer_embd, layer_embd),
        ROOM(layer_embd_own, layer_embd),
        ROOM(route, n * (size_t)h->n_expert * f),
        ROOM(shared, n * f),
        ROOM(chosen, slots * sizeof(int)),
        ROOM(share, slots * f),
        ROOM(slot, slots * sizeof(int)),
        ROOM(of_slot, slots * sizeof(int)),
        ROOM(first_slot, (size_t)(h->n_expert + 1) * sizeof(int)),
        ROOM(slot_act, 2 * slots * w->slot_act),
        ROOM(slot_ff, slots * 2 * (size_t)h->n_ff_expert * f),
        ROOM(slot_y, slots * embd * f),
        ROOM(products, n_products * sizeof(product)),
        ROOM(partials, PARTIALS_BUDGET),
        ROOM(thread, w->thread * (size_t)pool_threads(m->pool)),
        ROOM(plan, (n + 1) * sizeof(span_plan)),
    };
#undef ROOM
    if (!give(&s, rooms, COUNT_OF(rooms))) return ICP_ENOMEM;
    mem_unreserve(m->s.block, m->s.block_size);
    m->s = s;
    return 0;
}

/* ---- the rest ------------------------------------------------------------------------------- */

void model_copy_page(void *arg, void *to, const void *from, int n_tokens) {
    const model *m = arg;
    for (int i = 0; i < m->h.n_layer; i++) {
        const shape *s = &m->h.layers[i];
        for (int head = 0; s->attention && s->kv_from == i && head < s->n_head_kv; head++) {
            size_t at = s->kv_at + (size_t)head * s->kv_size;
            m->kern.kv_copy(m->kv, s->d_k, s->d_v, (char *)to + at, (const char *)from + at,
                            n_tokens);
        }
    }
}
