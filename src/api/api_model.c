/* icp_model: a file opened once: threads, weights, vocabulary, chat template. */
#include "api_internal.h"
#include "vocab.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

const char *icp_version(void) {
    return INCIPIT_VERSION;
}

static const char *isas[KERN_N_ISA + 1];

static void list_isas(void) {
    int n = 0;
    for (int i = 0; i < KERN_N_ISA; i++)
        if (kern_isa_usable((enum kern_isa)i)) isas[n++] = kern_isa_name((enum kern_isa)i);
}

const char *const *icp_isas(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_isas);
    return isas;
}

void icp_free(void *block) {
    mem_free(block);
}

static int choose_isa(const char *name, enum kern_isa *out, icp_error *err) {
    if (!name) {
        *out = kern_isa_best();
        return 0;
    }
    int isa = kern_isa_find(name);
    if (isa >= 0 && kern_isa_usable((enum kern_isa)isa)) {
        *out = (enum kern_isa)isa;
        return 0;
    }
    buf usable = {0};
    for (const char *const *p = icp_isas(); *p; p++)
        buf_printf(&usable, "%s%s", usable.len ? ", " : "", *p);
    error_set(err, ICP_EUNSUPPORTED, "instruction set \"%s\" %s; this machine can use: %s", name,
              isa < 0 ? "is unknown" : "is not available here", usable.data ? usable.data : "?");
    buf_fini(&usable);
    return ICP_EUNSUPPORTED;
}

static const struct {
    const char *name;
    enum kern_type type;
} kv_formats[] = {{"f16", KERN_F16}, {"bf16", KERN_BF16}, {"q8_0", KERN_Q8_0}, {"f32", KERN_F32}};

static int choose_kv(const char *name, enum kern_type *out, icp_error *err) {
    for (size_t i = 0; i < COUNT_OF(kv_formats); i++)
        if (!strcmp(name ? name : "f16", kv_formats[i].name)) {
            *out = kv_formats[i].type;
            return 0;
        }
    return error_set(err, ICP_EUNSUPPORTED,
                     "KV format \"%s\" is unknown; it may be f16, bf16, q8_0 or f32", name);
}

static int open_template(icp_model *m, const gguf *g) {
    gguf_str source = gguf_string(g, "tokenizer.chat_template");
    if (!source.data) return 0;
    m->template_source = mem_alloc(source.len + 1);
    if (!m->template_source) return ICP_ENOMEM;
    memcpy(m->template_source, source.data, source.len);
    m->template_source[source.len] = '\0';
    int rc = jinja_open(source.data, source.len, &m->chat, &m->template_error);
    return rc == ICP_ENOMEM ? rc : 0; /* a bad template only rules out chat */
}

static const char *const pooling_names[] = {[MODEL_POOL_NONE] = "none",
                                            [MODEL_POOL_MEAN] = "mean",
                                            [MODEL_POOL_FIRST] = "cls",
                                            [MODEL_POOL_LAST] = "last",
                                            [MODEL_POOL_RANK] = "rank"};

static int open_weights(icp_model *m, const gguf *g, const icp_model_opts *opts, icp_error *err) {
    const icp_rope *rope = &opts->rope;
    model_opts mo = {.n_ctx = opts->n_ctx,
                     .lock = opts->lock,
                     .rope = {.scaling = rope->scaling,
                              .factor = rope->factor,
                              .base = rope->base,
                              .n_ctx_orig = rope->n_ctx_orig,
                              .beta_fast = rope->beta_fast,
                              .beta_slow = rope->beta_slow,
                              .magnitude = rope->attn_factor},
                     .pool = m->pool,
                     .progress = opts->progress,
                     .progress_arg = opts->progress_arg};
    TRY(choose_isa(opts->isa, &mo.isa, err));
    bool causal;
    mo.embed = model_is_embedder(g, &causal);
    /* Keys and values that nobody keeps need no small form. */
    TRY(choose_kv(opts->kv || causal ? opts->kv : "f32", &mo.kv, err));
    TRY(model_open(g, &mo, &m->model, err));
    const model_info *info = model_get_info(m->model);
    if (info->n_vocab < tokenizer_n(m->tok))
        return error_set(err, ICP_EFORMAT, "the vocabulary has %zu tokens, the embeddings only %zu",
                         tokenizer_n(m->tok), info->n_vocab);
    m->info.isa = kern_isa_name(mo.isa);
    for (size_t i = 0; i < COUNT_OF(kv_formats); i++)
        if (kv_formats[i].type == mo.kv) m->info.kv = kv_formats[i].name;
    if (info->embeds) m->info.pooling = pooling_names[info->pooling];
    m->info.n_vocab = info->n_vocab;
    m->info.n_ctx = info->n_ctx;
    m->info.n_ctx_train = info->n_ctx_train;
    m->info.n_layer = info->n_layer;
    m->info.n_embd = info->n_embd;
    m->info.n_vector = info->n_vector;
    m->info.whole_texts = !info->causal;
    m->info.n_head = info->n_head;
    m->info.n_head_kv = info->n_head_kv;
    m->info.n_params = info->n_params;
    m->info.weights_size = info->weights_size;
    m->info.n_nodes = info->n_nodes;
    m->info.n_active = info->n_active;
    m->info.active_size = info->active_size;
    m->info.page_size = info->page_size;
    m->info.page_tokens = KERN_PAGE;
    return 0;
}

static int add_adapter(icp_model *m, const icp_adapter *from, icp_error *err) {
    icp_error why = {0};
    gguf *g;
    TRY(gguf_open(from->path, &g, err));
    int rc = model_add_adapter(m->model, g, &why);
    gguf_close(&g);
    if (rc < 0) return error_set(err, rc, "%s: %s", from->path, why.text);
    if (!isfinite(from->scale) || fabsf(from->scale) > 1000)
        return error_set(err, ICP_EINVALID, "%s: a scale of %g; it must be -1000 to 1000",
                         from->path, (double)from->scale);
    icp_adapter *to = &m->adapters[m->n_adapters];
    to->path = mem_strdup(from->path);
    if (!to->path) return error_set(err, ICP_ENOMEM, "out of memory");
    to->scale = m->scales[m->n_adapters++] = from->scale;
    return 0;
}

static int open_adapters(icp_model *m, const icp_model_opts *opts, icp_error *err) {
    if (opts->n_adapters == 0) return 0;
    m->adapters = mem_zero(opts->n_adapters, sizeof *m->adapters);
    m->scales = mem_zero(opts->n_adapters, sizeof *m->scales);
    if (!m->adapters || !m->scales) return error_set(err, ICP_ENOMEM, "out of memory");
    for (size_t i = 0; i < opts->n_adapters; i++) TRY(add_adapter(m, &opts->adapters[i], err));
    return 0;
}

static void free_adapters(icp_model *m) {
    for (size_t i = 0; i < m->n_adapters; i++) mem_free((char *)m->adapters[i].path);
    mem_free(m->adapters);
    mem_free(m->scales);
}

static void copy_string(char *to, size_t cap, gguf_str from) {
    snprintf(to, cap, "%.*s", (int)MIN(from.len, cap - 1), from.data ? from.data : "");
}

static int open_all(icp_model *m, const gguf *g, const icp_model_opts *opts, icp_error *err) {
    TRY(vocab_open(g, &m->tok, err));
    m->template_time = opts->template_time;
    int rc = open_template(m, g);
    if (rc == 0) rc = api_probe_chat(m);
    if (rc < 0) return error_set(err, rc, "out of memory");
    TRY(api_open_rank_template(m, g, err));
    copy_string(m->arch, sizeof m->arch, gguf_string(g, "general.architecture"));
    copy_string(m->name, sizeof m->name, gguf_string(g, "general.name"));
    m->info.arch = m->arch;
    m->info.name = m->name;
    m->info.n_vocab = tokenizer_n(m->tok);
    m->info.file_size = gguf_file_size(g);
    m->info.has_template = m->template_source != NULL;
    if (opts->vocab_only) return 0;
    if (pool_open(opts->n_threads > 0 ? opts->n_threads : cpu_cores(), &m->pool) < 0)
        return error_set(err, ICP_ENOMEM, "cannot start threads");
    m->info.n_threads = pool_threads(m->pool);
    if (opts->pin_threads && !pool_pin(m->pool))
        return error_set(err, ICP_EINVALID, "%d threads cannot be pinned to %d processors",
                         m->info.n_threads, cpu_count());
    TRY(open_weights(m, g, opts, err));
    return open_adapters(m, opts, err);
}

int icp_model_open(const char *path, const icp_model_opts *opts, icp_model **out, icp_error *err) {
    static const icp_model_opts defaults;
    icp_error why = {0};
    gguf *g;
    TRY(gguf_open(path, &g, err));
    icp_model *m = mem_zero(1, sizeof *m);
    if (m) pthread_mutex_init(&m->grammar_lock, NULL); /* of the default kind: cannot fail */
    int rc = m ? open_all(m, g, opts ? opts : &defaults, &why)
               : error_set(&why, ICP_ENOMEM, "out of memory");
    gguf_close(&g);
    if (rc < 0) {
        icp_model_close(&m);
        return error_set(err, rc, "%s: %s", path, why.text);
    }
    *out = m;
    return 0;
}

void icp_model_close(icp_model **mm) {
    icp_model *m = *mm;
    if (!m) return;
    *mm = NULL;
    model_close(&m->model);
    free_adapters(m);
    jinja_close(&m->chat);
    api_free_grammars(m);
    tokenizer_close(&m->tok);
    pool_close(&m->pool);
    mem_free(m->template_source);
    mem_free(m->rank_template);
    mem_free(m);
}

const icp_model_info *icp_model_get_info(const icp_model *m) {
    return &m->info;
}

const icp_adapter *icp_model_get_adapters(const icp_model *m, size_t *n) {
    *n = m->n_adapters;
    return m->adapters;
}

const char *icp_model_template(const icp_model *m) {
    return m->template_source;
}

int icp_describe_file(const char *path, char **out, icp_error *err) {
    gguf *g;
    buf text = {0};
    TRY(gguf_open(path, &g, err));
    int rc = gguf_describe(g, &text);
    gguf_close(&g);
    if (rc < 0 || text.failed) {
        buf_fini(&text);
        return error_set(err, ICP_ENOMEM, "out of memory");
    }
    *out = text.data;
    return 0;
}
