#include "model_internal.h"

#include <stdio.h>
#include <string.h>

static const char *const architectures[] = {"llama"};

static int find_arch(const gguf *g, hparams *h, icp_error *err) {
    gguf_str arch = gguf_string(g, "general.architecture");
    gguf_str name = gguf_string(g, "general.name");
    if (!arch.data)
        return error_set(err, ICP_EFORMAT,
                         "the file has no general.architecture: it is not a model");
    snprintf(h->arch, sizeof h->arch, "%.*s", (int)MIN(arch.len, sizeof h->arch - 1), arch.data);
    snprintf(h->name, sizeof h->name, "%.*s", (int)MIN(name.len, sizeof h->name - 1),
             name.data ? name.data : "");
    for (size_t i = 0; i < COUNT_OF(architectures); i++)
        if (!strcmp(h->arch, architectures[i])) return 0;
    return error_set(err, ICP_EUNSUPPORTED,
                     "architecture \"%s\" is not supported; supported: llama", h->arch);
}

/* The number `<arch>.key` within [low, high]; `missing` when the file does not have it, or an error
 * when missing is -1. */
static int read_int(const gguf *g, const hparams *h, const char *key, int64_t low, int64_t high,
                    int64_t missing, int *out, icp_error *err) {
    char full[160];
    snprintf(full, sizeof full, "%s.%s", h->arch, key);
    const gguf_value *v = gguf_find(g, full);
    uint64_t n;
    if (!v && missing >= 0) {
        *out = (int)missing;
        return 0;
    }
    if (v && v->kind == GGUF_KIND_ARRAY && v->count > 0 && v->item != GGUF_KIND_STRING) {
        n = (uint64_t)gguf_at_int(v, 0); /* one for each layer: all must be the same */
        for (uint64_t i = 1; i < v->count; i++)
            if ((uint64_t)gguf_at_int(v, i) != n)
                return error_set(err, ICP_EUNSUPPORTED,
                                 "%s differs between layers; that is not supported", full);
    } else {
        n = gguf_uint(g, full, UINT64_MAX);
    }
    if (n == UINT64_MAX)
        return error_set(err, ICP_EFORMAT, "%s is missing or not a whole number", full);
    if (n < (uint64_t)low || n > (uint64_t)high)
        return error_set(err, ICP_EFORMAT, "%s is %llu; it must be between %lld and %lld", full,
                         (unsigned long long)n, (long long)low, (long long)high);
    *out = (int)n;
    return 0;
}

static int read_float(const gguf *g, const hparams *h, const char *key, double low, double high,
                      double missing, double *out, icp_error *err) {
    char full[160];
    snprintf(full, sizeof full, "%s.%s", h->arch, key);
    *out = gguf_float(g, full, missing);
    if (*out >= low && *out <= high) return 0;
    return error_set(err, ICP_EFORMAT, "%s is %g; it must be between %g and %g", full, *out, low,
                     high);
}

static int read_heads(const gguf *g, hparams *h, icp_error *err) {
    int d_value;
    TRY(read_int(g, h, "attention.head_count", 1, 4096, -1, &h->n_head, err));
    TRY(read_int(g, h, "attention.head_count_kv", 1, 4096, h->n_head, &h->n_head_kv, err));
    if (h->n_head % h->n_head_kv)
        return error_set(err, ICP_EFORMAT, "%d heads are not a multiple of %d KV heads", h->n_head,
                         h->n_head_kv);
    int d = h->n_embd / h->n_head;
    TRY(read_int(g, h, "attention.key_length", 1, 512, d, &h->head_dim, err));
    TRY(read_int(g, h, "attention.value_length", 1, 512, d, &d_value, err));
    if (h->head_dim < 1 || h->head_dim > 512)
        return error_set(err, ICP_EFORMAT, "a head has %d numbers; it must have 1 to 512",
                         h->head_dim);
    if (d_value != h->head_dim)
        return error_set(err, ICP_EUNSUPPORTED,
                         "keys of %d and values of %d numbers are not supported", h->head_dim,
                         d_value);
    TRY(read_int(g, h, "rope.dimension_count", 2, h->head_dim, h->head_dim, &h->n_rot, err));
    if (h->n_rot % 2)
        return error_set(err, ICP_EFORMAT, "rope.dimension_count is %d; it must be even", h->n_rot);
    return 0;
}

static int read_rope(const gguf *g, hparams *h, icp_error *err) {
    char key[160];
    double factor;
    TRY(read_float(g, h, "rope.freq_base", 1, 1e12, 10000, &h->rope_base, err));
    snprintf(key, sizeof key, "%s.rope.scaling.type", h->arch);
    gguf_str type = gguf_string(g, key);
    h->rope_scale = 1;
    if (!type.data || (type.len == 4 && !memcmp(type.data, "none", 4))) return 0;
    if (type.len != 6 || memcmp(type.data, "linear", 6))
        return error_set(
            err, ICP_EUNSUPPORTED,
            "RoPE scaling \"%.*s\" is not supported; supported: none, linear, and factors "
            "in rope_freqs.weight",
            (int)MIN(type.len, (size_t)64), type.data);
    TRY(read_float(g, h, "rope.scaling.factor", 1e-6, 1e6, 1, &factor, err));
    h->rope_scale = 1 / factor;
    return 0;
}

int hparams_read(const gguf *g, hparams *h, icp_error *err) {
    double eps;
    *h = (hparams){0};
    TRY(find_arch(g, h, err));
    TRY(read_int(g, h, "block_count", 1, 1024, -1, &h->n_layer, err));
    TRY(read_int(g, h, "embedding_length", 1, 1 << 17, -1, &h->n_embd, err));
    TRY(read_int(g, h, "feed_forward_length", 1, 1 << 20, -1, &h->n_ff, err));
    TRY(read_int(g, h, "context_length", 1, 1 << 28, -1, &h->n_ctx_train, err));
    TRY(read_int(g, h, "expert_count", 0, 0, 0, &(int){0}, err));
    TRY(read_heads(g, h, err));
    TRY(read_float(g, h, "attention.layer_norm_rms_epsilon", 0, 1, 1e-5, &eps, err));
    h->norm_eps = (float)eps;
    return read_rope(g, h, err);
}
