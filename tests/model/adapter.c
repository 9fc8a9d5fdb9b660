/* LoRA adapters: against models into which they were merged in double precision; bits in the
 * company of rows with other scales; files that are wrong. */
#include "gguf_writer.h"
#include "refusal.h"
#include "run_model.h"

#include <math.h>
#include <stdlib.h>

#define ALPHA 6.0f
enum { TOKENS = 90, MAX_PAIRS = 128 };

static pool *threads;

static model *open_model(const gguf *g, enum kern_isa isa, pool *p) {
    icp_error err = {0};
    model *m;
    model_opts opts = {.isa = isa, .kv = KERN_F32, .pool = p};
    if (model_open(g, &opts, &m, &err) < 0) fail_msg("%s", err.text);
    return m;
}

/* ---- adapters that are made here ---- */

/* A number of few bits: exact in bfloat16. */
static float small(uint64_t *rng) {
    return (float)((int)(random_next(rng) % 127) - 63) / 256;
}

static const char *const plain[] = {
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
    "attn_qkv.weight",
    "output.weight",
    "attn_q_a.weight",
    "attn_q_b.weight",
    "attn_kv_a_mqa.weight",
    "ffn_gate_inp.weight",
    "ffn_up_shexp.weight",
    "ssm_in.weight",
    "ssm_out.weight",
    "ssm_beta.weight",
    "attn_gate.weight",
    "shortconv.in_proj.weight",
};

static bool may_change(const gguf_tensor *t) {
    for (size_t i = 0; i < COUNT_OF(plain); i++) {
        size_t len = strlen(plain[i]);
        const char *tail = t->name.data + t->name.len - len;
        if (t->name.len >= len && !memcmp(tail, plain[i], len) &&
            (t->name.len == len || tail[-1] == '.'))
            return true;
    }
    return false;
}

typedef struct pair {
    char name[96];
    uint64_t k, n, rank;
    bool half; /* BF16 */
} pair;

typedef struct recipe {
    const char *arch, *type, *kind;
    pair pairs[MAX_PAIRS];
    size_t n_pairs;
    float alpha;
    uint64_t seed;
    bool alora;
} recipe;

static recipe recipe_for(const gguf *base, uint64_t seed) {
    static char arch[64];
    gguf_str name = gguf_string(base, "general.architecture");
    recipe r = {.arch = arch, .type = "adapter", .kind = "lora", .alpha = ALPHA, .seed = seed};
    snprintf(arch, sizeof arch, "%.*s", (int)name.len, name.data);
    for (size_t i = 0; i < gguf_n_tensors(base); i++) {
        const gguf_tensor *t = gguf_tensor_at(base, i);
        if (!may_change(t) || random_next(&seed) % 4 == 0) continue;
        pair *p = &r.pairs[r.n_pairs++];
        assert_true(r.n_pairs < MAX_PAIRS);
        *p = (pair){.k = t->dims[0], .n = t->dims[1], .rank = 1 + random_next(&seed) % 20};
        p->half = random_next(&seed) % 2;
        snprintf(p->name, sizeof p->name, "%.*s", (int)t->name.len, t->name.data);
    }
    return r;
}

static void put_name(writer *w, const char *key, const char *text) {
    put_key(w, key, W_STRING);
    put_text(w, text);
}

static size_t size_of(const pair *p, bool b) {
    return p->rank * (b ? p->n : p->k) * (p->half ? 2 : 4);
}

static bytes write_adapter(const recipe *r) {
    static writer w;
    uint64_t at = 0, rng = r->seed;
    put_header(&w, 3, 2 * r->n_pairs, 4 + (uint64_t)r->alora);
    put_name(&w, "general.type", r->type);
    put_name(&w, "general.architecture", r->arch);
    put_name(&w, "adapter.type", r->kind);
    put_key(&w, "adapter.lora.alpha", W_F32);
    put(&w, &r->alpha, sizeof r->alpha);
    if (r->alora) {
        put_array_key(&w, "adapter.alora.invocation_tokens", W_U32, 1);
        put_uint(&w, 7, 4);
    }
    for (size_t i = 0; i < 2 * r->n_pairs; i++) {
        const pair *p = &r->pairs[i / 2];
        char name[128];
        snprintf(name, sizeof name, "%s.lora_%c", p->name, i % 2 ? 'b' : 'a');
        uint64_t dims[4] = {i % 2 ? p->rank : p->k, i % 2 ? p->n : p->rank};
        put_tensor(&w, name, dims, p->half ? GGUF_BF16 : GGUF_F32, at);
        at += (size_of(p, i % 2) + 31) & ~31ull;
    }
    put_padding(&w, 32);
    bytes out = {.data = calloc(1, w.len + at), .len = w.len};
    memcpy(out.data, w.data, w.len);
    for (size_t i = 0; i < 2 * r->n_pairs; i++) {
        const pair *p = &r->pairs[i / 2];
        uint8_t *to = out.data + out.len;
        for (size_t j = 0; j < size_of(p, i % 2) / (p->half ? 2 : 4); j++) {
            float x = small(&rng);
            memcpy(to + (p->half ? 2 : 4) * j, (char *)&x + (p->half ? 2 : 0), p->half ? 2 : 4);
        }
        out.len += (size_of(p, i % 2) + 31) & ~31ull;
    }
    return out;
}

/* ---- merging ---- */

static float *widened(const gguf_tensor *t) {
    size_t n = (size_t)(t->dims[0] * t->dims[1]);
    float *out = malloc(n * sizeof *out);
    kern_widen((enum kern_type)t->type, n, t->data, out);
    return out;
}

/* w += scale · alpha / rank · b a, in the bytes of a model of float32 tensors. */
static void merge(bytes to, const gguf *base, const gguf *adapter, float scale) {
    double alpha = gguf_float(adapter, "adapter.lora.alpha", 0);
    for (size_t i = 0; i < gguf_n_tensors(adapter); i++) {
        const gguf_tensor *a = gguf_tensor_at(adapter, i);
        char name[128], other[128];
        snprintf(name, sizeof name, "%.*s", (int)a->name.len, a->name.data);
        if (strcmp(name + a->name.len - 7, ".lora_a") != 0) continue;
        snprintf(other, sizeof other, "%s", name);
        other[a->name.len - 1] = 'b';
        name[a->name.len - 7] = 0;
        const gguf_tensor *b = gguf_find_tensor(adapter, other), *w = gguf_find_tensor(base, name);
        assert_true(b && w && w->type == GGUF_F32);
        float *from_a = widened(a), *from_b = widened(b);
        float *out = (float *)(void *)(to.data + w->offset);
        size_t k = (size_t)w->dims[0], rank = (size_t)a->dims[1];
        for (size_t row = 0; row < w->dims[1]; row++)
            for (size_t c = 0; c < k; c++) {
                double sum = 0;
                for (size_t r = 0; r < rank; r++)
                    sum += (double)from_b[row * rank + r] * (double)from_a[r * k + c];
                sum *= (double)scale * (alpha != 0 ? alpha / (double)rank : 1);
                out[row * k + c] = (float)((double)out[row * k + c] + sum);
            }
        free(from_a);
        free(from_b);
    }
}

static float *compute(model *m, const int32_t *ids, const float *scales, size_t chunk) {
    sequence s;
    float *rows = malloc(TOKENS * model_get_info(m)->n_out * sizeof *rows);
    sequence_init(&s, m, TOKENS);
    s.scales = scales;
    sequence_extend(&s, ids, TOKENS, chunk, rows);
    sequence_fini(&s);
    return rows;
}

static double off_by(const float *a, const float *b, size_t n) {
    double mean = 0, squares = 0, worst = 0;
    for (size_t i = 0; i < n; i++) mean += (double)b[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        squares += pow((double)b[i] - mean, 2) / (double)n;
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    }
    return worst / sqrt(squares);
}

static void fill_ids(int32_t *ids, size_t n, size_t n_vocab, uint64_t seed) {
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(random_next(&seed) % n_vocab);
}

static void compare_merged(const char *name, bytes base_bytes, const gguf *adapter) {
    static const float scales[] = {1, -0.5f, 0.25f};
    int32_t ids[TOKENS];
    gguf *base = open_bytes(base_bytes);
    model *m = open_model(base, kern_isa_best(), threads);
    icp_error err = {0};
    if (model_add_adapter(m, adapter, &err) < 0) fail_msg("%s: %s", name, err.text);
    assert_int_equal(model_reserve(m, TOKENS, TOKENS), 0);
    size_t n_vocab = model_get_info(m)->n_vocab, n = TOKENS * n_vocab;
    fill_ids(ids, TOKENS, n_vocab, 5);
    float *without = compute(m, ids, NULL, TOKENS);
    for (size_t i = 0; i < COUNT_OF(scales); i++) {
        bytes copy = {malloc(base_bytes.len), base_bytes.len};
        memcpy(copy.data, base_bytes.data, copy.len);
        merge(copy, base, adapter, scales[i]);
        gguf *merged = open_bytes(copy);
        model *twin = open_model(merged, KERN_SCALAR, threads);
        assert_int_equal(model_reserve(twin, TOKENS, TOKENS), 0);
        float *want = compute(twin, ids, NULL, TOKENS);
        float *found = compute(m, ids, &scales[i], i ? 7 : TOKENS);
        double off = off_by(found, want, n), effect = off_by(without, want, n);
        print_message("%-16s scale %5.2f: off by %.1e, where the adapter does %.1e\n", name,
                      (double)scales[i], off, effect);
        assert_true(off <= 1e-4);
        assert_true(effect > 0.1);
        free(want);
        free(found);
        free(copy.data);
        model_close(&twin);
        gguf_close(&merged);
    }
    free(without);
    model_close(&m);
    gguf_close(&base);
}

static void merged(void **state) {
    static const char *const names[] = {"llama",   "llama-tied-mqa", "phi3-longrope", "qwen2moe",
                                        "qwen2",   "deepseek2",      "mamba2",        "gptneox",
                                        "gemma4",  "falcon",         "lfm2",          "qwen35",
                                        "cohere2", "falcon-h1"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        bytes b = read_bytes(names[i]);
        gguf *base = open_bytes(b);
        recipe r = recipe_for(base, i + 1);
        bytes a = write_adapter(&r);
        gguf *adapter = open_bytes(a);
        compare_merged(names[i], b, adapter);
        gguf_close(&adapter);
        gguf_close(&base);
        free(a.data);
        free(b.data);
    }
}

/* A file that gguf-py wrote (tests/golden/make/lora.py). */
static void from_the_converter(void **state) {
    bytes b = read_bytes("llama"), a = read_bytes("llama-lora");
    gguf *adapter = open_bytes(a);
    compare_merged("llama-lora", b, adapter);
    gguf_close(&adapter);
    free(a.data);
    free(b.data);
}

/* ---- bits ---- */

enum { COMPANY = 4, N_ADAPTERS = 2 };

static const float wishes[COMPANY][N_ADAPTERS] = {{0, 0}, {1, 0}, {0.5f, -1}, {1, 0.125f}};

/* All sequences in the same passes, as many tokens of each as chance gives. */
static void extend_together(model *m, sequence *s, int32_t (*ids)[TOKENS], uint64_t *rng,
                            float **rows) {
    size_t n_out = model_get_info(m)->n_out;
    float *logits = malloc(COMPANY * TOKENS * n_out * sizeof *logits), *at;
    for (bool left = true; left;) {
        model_span spans[COMPANY];
        int order[COMPANY], n = 0, first = (int)(random_next(rng) % COMPANY);
        for (int i = 0; i < COMPANY; i++) {
            int j = (first + i) % COMPANY;
            size_t more = random_next(rng) % (random_next(rng) % 3 ? 4 : 40);
            more = MIN(more, (size_t)TOKENS - s[j].len);
            if (more == 0) continue;
            order[n] = j;
            spans[n++] = (model_span){.tokens = ids[j] + s[j].len,
                                      .n_tokens = (int)more,
                                      .pos = s[j].len,
                                      .pages = s[j].pages,
                                      .state = s[j].state,
                                      .n_logits = (int)more,
                                      .scales = j || random_next(rng) % 2 ? wishes[j] : NULL};
        }
        model_forward(m, spans, n, logits);
        at = logits;
        for (int i = 0; i < n; i++) {
            size_t more = (size_t)spans[i].n_tokens;
            memcpy(rows[order[i]] + s[order[i]].len * n_out, at, more * n_out * sizeof *at);
            s[order[i]].len += more;
            at += more * n_out;
        }
        left = false;
        for (int i = 0; i < COMPANY; i++) left |= s[i].len < TOKENS;
    }
    free(logits);
}

static void check_bits(const char *name, uint64_t seed) {
    bytes b = read_bytes(name);
    gguf *base = open_bytes(b), *adapters[N_ADAPTERS];
    icp_error err;
    int32_t ids[COMPANY][TOKENS];
    float *want[COMPANY], *found[COMPANY];
    pool *one, *three;
    assert_int_equal(pool_open(1, &one), 0);
    assert_int_equal(pool_open(3, &three), 0);
    model *m = open_model(base, kern_isa_best(), one);
    for (size_t i = 0; i < N_ADAPTERS; i++) {
        recipe r = recipe_for(base, seed + i);
        bytes a = write_adapter(&r);
        adapters[i] = open_bytes(a);
        assert_int_equal(model_add_adapter(m, adapters[i], &err), 0);
        free(a.data);
    }
    assert_int_equal(model_reserve(m, TOKENS, TOKENS), 0);
    size_t n_vocab = model_get_info(m)->n_vocab, size = TOKENS * n_vocab * sizeof(float);
    for (int i = 0; i < COMPANY; i++) {
        fill_ids(ids[i], TOKENS, n_vocab, i % 2 ? 9 : seed);
        want[i] = compute(m, ids[i], i ? wishes[i] : NULL, TOKENS);
        found[i] = malloc(size);
    }
    for (int isa = 0; isa < KERN_N_ISA; isa++) {
        if (!kern_isa_usable((enum kern_isa)isa)) continue;
        sequence s[COMPANY];
        model *twin = open_model(base, (enum kern_isa)isa, three);
        for (size_t i = 0; i < N_ADAPTERS; i++)
            assert_int_equal(model_add_adapter(twin, adapters[i], &err), 0);
        assert_int_equal(model_reserve(twin, COMPANY * 40, COMPANY * 40), 0);
        for (int i = 0; i < COMPANY; i++) sequence_init(&s[i], twin, TOKENS);
        extend_together(twin, s, ids, &seed, found);
        for (int i = 0; i < COMPANY; i++) {
            if (memcmp(want[i], found[i], size))
                fail_msg("%s, %s: bits of sequence %d differ", name,
                         kern_isa_name((enum kern_isa)isa), i);
            sequence_fini(&s[i]);
        }
        model_close(&twin);
    }
    for (int i = 0; i < COMPANY; i++) free(want[i]), free(found[i]);
    for (int i = 0; i < N_ADAPTERS; i++) gguf_close(&adapters[i]);
    model_close(&m);
    gguf_close(&base);
    free(b.data);
    pool_close(&one);
    pool_close(&three);
}

static void bits(void **state) {
    check_bits("llama", 1);
    check_bits("qwen2moe", 2);
    check_bits("deepseek2", 3);
    check_bits("falcon-h1", 4);
    check_bits("phi3-longrope", 5);
    check_bits("mixed", 6); /* weights of other types */
}

static void digests(void **state) {
    bytes b = read_bytes("llama");
    gguf *base = open_bytes(b);
    model *m = open_model(base, KERN_SCALAR, threads);
    icp_error err;
    uint8_t seen[6][16], none[16] = {0}, found[16];
    static const float scales[6][3] = {{1, 0, 0}, {0.5f, 0, 0}, {0, 1, 0},
                                       {1, 1, 0}, {1, 0.5f, 0}, {-1, 0, 0}};
    for (uint64_t i = 0; i < 3; i++) { /* the third is the first again */
        recipe r = recipe_for(base, 1 + i % 2);
        bytes a = write_adapter(&r);
        gguf *g = open_bytes(a);
        assert_int_equal(model_add_adapter(m, g, &err), 0);
        gguf_close(&g);
        free(a.data);
    }
    model_adapters_digest(m, NULL, found);
    assert_memory_equal(found, none, 16);
    model_adapters_digest(m, (float[]){0, 0, 0}, found);
    assert_memory_equal(found, none, 16);
    for (int i = 0; i < 6; i++) {
        model_adapters_digest(m, scales[i], seen[i]);
        assert_memory_not_equal(seen[i], none, 16);
        for (int j = 0; j < i; j++) assert_memory_not_equal(seen[i], seen[j], 16);
    }
    model_adapters_digest(m, (float[]){0, 0, 1}, found);
    assert_memory_equal(found, seen[0], 16); /* content counts, not the number */
    model_close(&m);
    gguf_close(&base);
    free(b.data);
}

/* ---- wrong files ---- */

/* Adds the bytes to the model as an adapter; when that works, computes with it. */
static int try_adapter(const gguf *base, bytes b, icp_error *err) {
    char path[32];
    gguf *g;
    *err = (icp_error){0};
    int fd = file_of(b.data, b.len, path), rc = gguf_open(path, &g, err);
    close(fd);
    if (rc < 0) return rc;
    model *m = open_model(base, KERN_SCALAR, threads);
    rc = model_add_adapter(m, g, err);
    gguf_close(&g);
    if (rc == 0) {
        static const float one = 1;
        static const int32_t ids[4] = {0};
        assert_int_equal(model_reserve(m, 4, 4), 0);
        float *rows = malloc(4 * model_get_info(m)->n_out * sizeof *rows);
        sequence s;
        sequence_init(&s, m, 4);
        s.scales = &one;
        sequence_extend(&s, ids, 4, 4, rows);
        sequence_fini(&s);
        free(rows);
    }
    assert_int_equal(model_get_info(m)->n_adapters, rc == 0);
    model_close(&m);
    assert_true(rc == 0 || strlen(err->text) > 10);
    return rc;
}

static void refuse(const gguf *base, const recipe *r, const char *sentence) {
    icp_error err;
    bytes b = write_adapter(r);
    assert_true(try_adapter(base, b, &err) < 0);
    assert_says(&err, sentence, "adapter");
    free(b.data);
}

static void wrong_files(void **state) {
    bytes b = read_bytes("llama"), other = read_bytes("qwen2");
    gguf *base = open_bytes(b), *qwen2 = open_bytes(other);
    const recipe right = recipe_for(base, 3), foreign = recipe_for(qwen2, 3);
    recipe r = right;
    icp_error err;
    r.type = "model";
    refuse(base, &r, "general.type is \"model\"");
    r = right, r.kind = "control_vector";
    refuse(base, &r, "adapter.type \"control_vector\"");
    r = foreign, r.arch = "qwen2";
    refuse(base, &r, "is for architecture \"qwen2\", the model is of \"llama\"");
    r = right, r.arch = "llama", r.alpha = NAN;
    refuse(base, &r, "adapter.lora.alpha is nan");
    r = right, r.arch = "llama", r.alora = true;
    refuse(base, &r, "only after certain tokens");
    r = right, r.arch = "llama", r.n_pairs = 0;
    refuse(base, &r, "has no tensors");
    r = right, r.arch = "llama", r.pairs[1].k++;
    refuse(base, &r, "for this model it must be");
    r = right, r.arch = "llama", r.pairs[1].n--;
    refuse(base, &r, "for this model it must be");
    r = right, r.arch = "llama", r.n_pairs = 1, r.pairs[0].rank = 4097, r.pairs[0].k = 1;
    refuse(base, &r, "is of rank 4097; at most 4096");
    r = right, r.arch = "llama";
    strcpy(r.pairs[0].name, "blk.99.attn_q.weight");
    refuse(base, &r, "tensor blk.99.attn_q.weight.lora_a changes no matrix");
    strcpy(r.pairs[0].name, "token_embd.weight");
    refuse(base, &r, "tensor token_embd.weight.lora_a changes no matrix");

    r = right, r.arch = "llama";
    bytes a = write_adapter(&r);
    uint8_t *at = memmem(a.data, a.len, ".lora_b", 7);
    at[6] = 'c';
    assert_true(try_adapter(base, a, &err) < 0);
    assert_non_null(strstr(err.text, ".lora_c changes no matrix"));
    at[6] = 'b';
    assert_int_equal(try_adapter(base, a, &err), 0);
    size_t len = strlen(r.pairs[0].name);
    memcpy(at - len, "blk.1.attn_v.weightttttt", len); /* of the first pair only a is left */
    assert_true(try_adapter(base, a, &err) < 0);
    free(a.data);
    gguf_close(&base);
    gguf_close(&qwen2);
    free(b.data);
    free(other.data);
}

/* One of a pair alone: a model's own file says which tensor it is. */
static void lonely(void **state) {
    bytes b = read_bytes("llama");
    gguf *base = open_bytes(b);
    recipe r = recipe_for(base, 3);
    icp_error err;
    r.n_pairs = 2;
    strcpy(r.pairs[0].name, "blk.0.attn_q.weight");
    strcpy(r.pairs[1].name, "blk.1.attn_q.weight");
    r.pairs[0].k = r.pairs[1].k = r.pairs[0].n = r.pairs[1].n = 64;
    bytes a = write_adapter(&r);
    uint8_t *at = memmem(a.data, a.len, "blk.1.attn_q.weight.lora_b", 26);
    at[4] = '2';
    assert_true(try_adapter(base, a, &err) < 0);
    assert_non_null(strstr(err.text, "tensor blk.1.attn_q.weight.lora_a has no .lora_b beside it"));
    free(a.data);
    gguf_close(&base);
    free(b.data);
}

static void mutations(void **state) {
    bytes b = read_bytes("llama");
    gguf *base = open_bytes(b);
    recipe r = recipe_for(base, 4);
    bytes a = write_adapter(&r);
    uint8_t *twin = malloc(a.len);
    uint64_t rng = 1;
    int added = 0;
    for (int round = 0; round < 400; round++) {
        icp_error err;
        memcpy(twin, a.data, a.len);
        for (int n = round % 3; n >= 0; n--)
            twin[random_next(&rng) % 2600] = (uint8_t)random_next(&rng);
        added += try_adapter(base, (bytes){twin, a.len}, &err) == 0;
    }
    print_message("%d of 400 mutated files were added\n", added);
    free(twin);
    free(a.data);
    gguf_close(&base);
    free(b.data);
}

static void no_memory(void **state) {
    bytes b = read_bytes("llama");
    gguf *base = open_bytes(b);
    recipe r = recipe_for(base, 4);
    bytes a = write_adapter(&r);
    gguf *g = open_bytes(a);
    model *m = open_model(base, KERN_SCALAR, threads);
    int rc = -1;
    for (long n = 0; rc < 0; n++) {
        icp_error err = {0};
        mem_fail_after(n);
        rc = model_add_adapter(m, g, &err);
        mem_fail_after(-1);
        assert_true(rc == 0 || (rc == ICP_ENOMEM && err.text[0]));
        assert_int_equal(model_get_info(m)->n_adapters, rc == 0);
    }
    model_close(&m);
    gguf_close(&g);
    free(a.data);
    gguf_close(&base);
    free(b.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged),    cmocka_unit_test(from_the_converter), cmocka_unit_test(bits),
        cmocka_unit_test(digests),   cmocka_unit_test(wrong_files),        cmocka_unit_test(lonely),
        cmocka_unit_test(mutations), cmocka_unit_test(no_memory)};
    if (pool_open(2, &threads) < 0) return 1;
    int failed = cmocka_run_group_tests_name("adapter", tests, NULL, NULL);
    pool_close(&threads);
    return failed;
}
