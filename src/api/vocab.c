#include "vocab.h"

#define KEY(name) "tokenizer.ggml." name

static int no_memory(icp_error *err) {
    return error_set(err, ICP_ENOMEM, "no memory for the vocabulary");
}

static text_str string_at(const gguf *g, const char *key) {
    gguf_str s = gguf_string(g, key);
    return (text_str){s.data, s.len};
}

/* An id; -1 when the file has none (or writes -1 for none). */
static int32_t id_at(const gguf *g, const char *key) {
    uint64_t id = gguf_uint(g, key, UINT32_MAX);
    if (id == UINT32_MAX) return -1;
    return (int32_t)MIN(id, (uint64_t)INT32_MAX); /* out of range either way */
}

static int flag_at(const gguf *g, const char *key) {
    return gguf_find(g, key) ? gguf_bool(g, key, false) : -1;
}

/* A list of strings; an absent one is empty. */
static int strings_at(const gguf *g, const char *key, const text_str **out, size_t *n, arena *a,
                      icp_error *err) {
    const gguf_value *v = gguf_find(g, key);
    *out = NULL;
    *n = 0;
    if (!v) return 0;
    if (v->kind != GGUF_KIND_ARRAY || v->item != GGUF_KIND_STRING)
        return error_set(err, ICP_EFORMAT, "%s is no list of strings", key);
    size_t count = v->count;
    text_str *strings = arena_alloc(a, count * sizeof *strings);
    gguf_str *raw = mem_alloc(count * sizeof *raw);
    if (!strings || !raw) {
        mem_free(raw);
        return no_memory(err);
    }
    gguf_at_strings(v, raw);
    for (size_t i = 0; i < count; i++) strings[i] = (text_str){raw[i].data, raw[i].len};
    mem_free(raw);
    *out = strings;
    *n = count;
    return 0;
}

/* A list of numbers, one a token; *out is NULL when it is absent. */
static int numbers_at(const gguf *g, const char *key, size_t n, const gguf_value **out,
                      icp_error *err) {
    const gguf_value *v = gguf_find(g, key);
    *out = v;
    if (!v) return 0;
    if (v->kind != GGUF_KIND_ARRAY || v->item == GGUF_KIND_STRING || v->item == GGUF_KIND_BOOL)
        return error_set(err, ICP_EFORMAT, "%s is no list of numbers", key);
    if (v->count != n)
        return error_set(err, ICP_EFORMAT, "%s has %llu entries for %zu tokens", key,
                         (unsigned long long)v->count, n);
    return 0;
}

static int read_scores(const gguf *g, text_vocab *out, arena *a, icp_error *err) {
    const gguf_value *v;
    TRY(numbers_at(g, KEY("scores"), out->n_tokens, &v, err));
    if (!v) return 0;
    float *scores = arena_alloc(a, out->n_tokens * sizeof *scores);
    if (!scores) return no_memory(err);
    for (size_t i = 0; i < out->n_tokens; i++) scores[i] = (float)gguf_at_float(v, i);
    out->scores = scores;
    return 0;
}

static int read_types(const gguf *g, text_vocab *out, arena *a, icp_error *err) {
    const gguf_value *v;
    TRY(numbers_at(g, KEY("token_type"), out->n_tokens, &v, err));
    if (!v) return 0;
    int32_t *types = arena_alloc(a, out->n_tokens * sizeof *types);
    if (!types) return no_memory(err);
    for (size_t i = 0; i < out->n_tokens; i++) types[i] = (int32_t)gguf_at_int(v, i);
    out->types = types;
    return 0;
}

static int read_charsmap(const gguf *g, text_vocab *out, arena *a, icp_error *err) {
    const gguf_value *v = gguf_find(g, KEY("precompiled_charsmap"));
    if (!v) return 0;
    if (v->kind != GGUF_KIND_ARRAY || (v->item != GGUF_KIND_U8 && v->item != GGUF_KIND_I8))
        return error_set(err, ICP_EFORMAT, "%s is no list of bytes", KEY("precompiled_charsmap"));
    uint8_t *bytes = arena_alloc(a, v->count);
    if (!bytes) return no_memory(err);
    for (size_t i = 0; i < v->count; i++) bytes[i] = (uint8_t)gguf_at_int(v, i);
    out->charsmap = bytes;
    out->charsmap_size = v->count;
    return 0;
}

/* Fills *out; its arrays lie in a, its texts in g's mapping. */
static int read_vocab(const gguf *g, text_vocab *out, arena *a, icp_error *err) {
    *out = (text_vocab){
        .name = string_at(g, "general.name"),
        .model = string_at(g, KEY("model")),
        .pre = string_at(g, KEY("pre")),
        .bos = id_at(g, KEY("bos_token_id")),
        .eos = id_at(g, KEY("eos_token_id")),
        .eot = id_at(g, KEY("eot_token_id")),
        .unk = id_at(g, KEY("unknown_token_id")),
        .sep = id_at(g, KEY("seperator_token_id")), /* thus spelled */
        .add_bos = flag_at(g, KEY("add_bos_token")),
        .add_eos = flag_at(g, KEY("add_eos_token")),
        .add_sep = flag_at(g, KEY("add_sep_token")),
        .add_space_prefix = flag_at(g, KEY("add_space_prefix")),
        .lowercase = flag_at(g, KEY("normalizer.lowercase")),
        .strip_accents = flag_at(g, KEY("normalizer.strip_accents")),
    };
    TRY(strings_at(g, KEY("tokens"), &out->tokens, &out->n_tokens, a, err));
    if (!out->model.data || !out->n_tokens)
        return error_set(err, ICP_EFORMAT, "the file has no vocabulary (tokenizer.ggml.%s)",
                         out->model.data ? "tokens" : "model");
    TRY(strings_at(g, KEY("merges"), &out->merges, &out->n_merges, a, err));
    TRY(read_scores(g, out, a, err));
    TRY(read_charsmap(g, out, a, err));
    return read_types(g, out, a, err);
}

int vocab_open(const gguf *g, tokenizer **out, icp_error *err) {
    text_vocab vocab;
    arena mem;
    arena_init(&mem);
    int rc = read_vocab(g, &vocab, &mem, err);
    if (rc == 0) rc = tokenizer_open(&vocab, out, err);
    arena_fini(&mem);
    return rc;
}
