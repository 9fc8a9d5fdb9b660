#include "model_internal.h"

#include <string.h>

/* Products that take the same rows must agree on their form: all 8-bit, or all float. */
static bool same_form(const kern_mat *a, const kern_mat *b) {
    return kern_act_stride(a->type, a->k) == kern_act_stride(b->type, a->k);
}

static int check_forms(const model *m, icp_error *err) {
    for (int i = 0; i < m->h.n_layer; i++) {
        const layer *l = &m->w.layers[i];
        if (!same_form(&l->q, &l->k) || !same_form(&l->q, &l->v) || !same_form(&l->gate, &l->up))
            return error_set(
                err, ICP_EUNSUPPORTED,
                "layer %d mixes float and integer weights in attention or feed-forward", i);
    }
    return 0;
}

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

static void fill_info(model *m, const gguf *g, const model_opts *opts) {
    const hparams *h = &m->h;
    m->info = (model_info){.arch = h->arch,
                           .name = h->name,
                           .n_vocab = (size_t)h->n_vocab,
                           .n_ctx_train = (size_t)h->n_ctx_train,
                           .n_ctx = opts->n_ctx ? opts->n_ctx : (size_t)h->n_ctx_train,
                           .n_layer = (size_t)h->n_layer,
                           .n_embd = (size_t)h->n_embd,
                           .n_head = (size_t)h->n_head,
                           .n_head_kv = (size_t)h->n_head_kv,
                           .n_ff = (size_t)h->n_ff,
                           .n_params = count_params(g),
                           .page_size = (size_t)h->n_layer * (size_t)h->n_head_kv * m->kv_size};
}

static int open_model(model *m, const gguf *g, const model_opts *opts, icp_error *err) {
    uint8_t fingerprint[16];
    TRY(hparams_read(g, &m->h, err));
    TRY(read_vocab_size(g, &m->h, err));
    if (m->h.n_head / m->h.n_head_kv > ATTEND_ROWS)
        return error_set(err, ICP_EUNSUPPORTED,
                         "%d query heads for one KV head; at most %d are supported",
                         m->h.n_head / m->h.n_head_kv, ATTEND_ROWS);
    if (opts->n_ctx > (size_t)m->h.n_ctx_train)
        return error_set(err, ICP_EINVALID,
                         "a context of %zu was asked for; the model was trained for %d",
                         opts->n_ctx, m->h.n_ctx_train);
    kern_init(&m->kern, opts->isa);
    m->kv = opts->kv;
    m->pool = opts->pool;
    m->kv_size = kern_kv_size(m->kv, m->h.head_dim, m->h.head_dim);
    fill_info(m, g, opts);
    TRY(weights_load(g, &m->h, opts, &m->w, fingerprint, err));
    TRY(check_forms(m, err));
    m->info.weights_size = m->w.block_size;
    memcpy(m->info.fingerprint, fingerprint, sizeof fingerprint);
    m->freq = rope_frequencies(&m->h, m->w.rope_freqs);
    return m->freq ? 0 : error_set(err, ICP_ENOMEM, "out of memory");
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
    weights_fini(&m->w);
    mem_unreserve(m->s.block, m->s.block_size);
    mem_free(m->freq);
    mem_free(m);
}

const model_info *model_get_info(const model *m) {
    return &m->info;
}

/* The widest row of activations over all products. */
static size_t widest_act(const model *m) {
    size_t size = kern_act_stride(m->w.output.type, m->w.output.k);
    for (int i = 0; i < m->h.n_layer; i++) {
        const layer *l = &m->w.layers[i];
        const kern_mat *mats[] = {&l->q, &l->o, &l->gate, &l->down};
        for (size_t j = 0; j < COUNT_OF(mats); j++)
            size = MAX(size, kern_act_stride(mats[j]->type, mats[j]->k));
    }
    return size;
}

int model_reserve(model *m, int max_tokens, int max_logits) {
    const hparams *h = &m->h;
    scratch *s = &m->s;
    if (max_tokens <= s->max_tokens && max_logits <= s->max_logits) return 0;
    max_tokens = MAX(max_tokens, max_logits); /* logits rows use the same activations */

    size_t n = (size_t)max_tokens, d = (size_t)h->head_dim, sizes[11], at = 0;
    size_t thread_size = (attend_thread_size(m) + 63) & ~(size_t)63;
    size_t n_partials = PARTIALS_BUDGET / (kern_partial_floats(h->head_dim) * sizeof(float));
    const size_t parts[11] = {
        n * (size_t)h->n_embd * sizeof(float),
        n * (size_t)h->n_embd * sizeof(float),
        n * (size_t)(h->n_head + 2 * h->n_head_kv) * d * sizeof(float),
        n * (size_t)h->n_head * d * sizeof(float),
        n * 2 * (size_t)h->n_ff * sizeof(float),
        n * widest_act(m),
        n * (size_t)h->n_rot / 2 * sizeof(float),
        n * (size_t)h->n_rot / 2 * sizeof(float),
        PARTIALS_BUDGET,
        thread_size * (size_t)pool_threads(m->pool),
        (n + 1) * sizeof(span_plan),
    };
    for (int i = 0; i < 11; i++) {
        sizes[i] = at;
        at += (parts[i] + 63) & ~(size_t)63;
    }
    char *block = mem_reserve(at);
    if (!block) return ICP_ENOMEM;
    mem_unreserve(s->block, s->block_size);
    *s = (scratch){.max_tokens = max_tokens,
                   .max_logits = max_logits,
                   .x = (float *)(block + sizes[0]),
                   .norm = (float *)(block + sizes[1]),
                   .qkv = (float *)(block + sizes[2]),
                   .mixed = (float *)(block + sizes[3]),
                   .ff = (float *)(block + sizes[4]),
                   .act = block + sizes[5],
                   .cos = (float *)(block + sizes[6]),
                   .sin = (float *)(block + sizes[7]),
                   .partials = (float *)(block + sizes[8]),
                   .n_partials = n_partials,
                   .thread = block + sizes[9],
                   .thread_size = thread_size,
                   .plan = (span_plan *)(block + sizes[10]),
                   .block = block,
                   .block_size = at};
    return 0;
}

void model_copy_page(void *arg, void *to, const void *from, int n_tokens) {
    const model *m = arg;
    for (size_t at = 0; at < m->info.page_size; at += m->kv_size)
        m->kern.kv_copy(m->kv, m->h.head_dim, m->h.head_dim, (char *)to + at, (const char *)from + at, n_tokens);
}
