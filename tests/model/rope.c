/* RoPE as the caller wants it: what a file of tests/golden says (and transformers computed), taken
 * out of the file and given as a wish instead, gives the same bits. */
#include "refusal.h"
#include "run_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 200 };

static pool *threads;

static model *open_with(bytes b, model_rope wish, size_t n_ctx) {
    icp_error err = {0};
    gguf *g = open_bytes(b);
    model *m;
    model_opts opts = {.isa = kern_isa_best(), .kv = KERN_F32, .pool = threads};
    opts.rope = wish;
    opts.n_ctx = n_ctx;
    if (model_open(g, &opts, &m, &err) < 0) fail_msg("%s", err.text);
    gguf_close(&g);
    return m;
}

static float *compute(bytes b, model_rope wish, size_t *size) {
    model *m = open_with(b, wish, 0);
    int32_t ids[TOKENS];
    sequence s;
    size_t n_vocab = model_get_info(m)->n_vocab;
    *size = TOKENS * n_vocab * sizeof(float);
    float *rows = malloc(*size);
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)((size_t)(i * 37 + 11) % n_vocab);
    assert_int_equal(model_reserve(m, TOKENS, TOKENS), 0);
    sequence_init(&s, m, TOKENS);
    sequence_extend(&s, ids, TOKENS, TOKENS, rows);
    sequence_fini(&s);
    model_close(&m);
    return rows;
}

/* The file as it was against the changed one with the wish; without it something else comes. */
static void compare(const char *name, bytes changed, model_rope wish) {
    bytes b = read_bytes(name);
    size_t size;
    float *want = compute(b, (model_rope){0}, &size), *found = compute(changed, wish, &size),
          *other = compute(changed, (model_rope){0}, &size);
    assert_memory_equal(want, found, size);
    assert_memory_not_equal(want, other, size);
    free(want);
    free(found);
    free(other);
    free(b.data);
    free(changed.data);
}

static void set_float(bytes b, const char *key, float value) {
    set_number(b, key, &value);
}

static void yarn(void **state) {
    bytes b = read_bytes("mistral3");
    uint32_t context = 512;
    memcpy(find_bytes(b, "yarn"), "none", 4);
    set_float(b, "mistral3.rope.scaling.factor", 1);
    set_float(b, "mistral3.rope.scaling.yarn_beta_fast", 32);
    set_float(b, "mistral3.rope.scaling.yarn_beta_slow", 1);
    set_number(b, "mistral3.rope.scaling.original_context_length", &context);
    compare("mistral3", b,
            (model_rope){
                .scaling = "yarn", .factor = 4, .n_ctx_orig = 64, .beta_fast = 16, .beta_slow = 2});
    b = read_bytes("deepseek3");
    memcpy(find_bytes(b, "yarn"), "none", 4);
    compare("deepseek3", b, (model_rope){.scaling = "yarn"}); /* the rest from the file */
}

static void linear(void **state) {
    bytes b = read_bytes("gemma3");
    set_float(b, "gemma3.rope.scaling.factor", 1);
    compare("gemma3", b, (model_rope){.factor = 8});
    b = read_bytes("gemma3");
    memcpy(find_bytes(b, "linear"), "nowise", 6);
    memcpy(find_bytes(b, "gemma3.rope.scaling.type"), "gemma3.rope.scaling.kind", 24);
    set_float(b, "gemma3.rope.scaling.factor", 4);
    compare("gemma3", b, (model_rope){.factor = 8}); /* without a type it is linear */
    b = read_bytes("gemma3");
    set_float(b, "gemma3.rope.scaling.factor", 4);
    compare("gemma3", b, (model_rope){.scaling = "linear", .factor = 8});
}

static void base(void **state) {
    bytes b = read_bytes("qwen2");
    set_float(b, "qwen2.rope.freq_base", 10000);
    compare("qwen2", b, (model_rope){.base = 1e6});
    b = read_bytes("llama31-rope"); /* with factors in rope_freqs.weight */
    set_float(b, "llama.rope.freq_base", 5000);
    compare("llama31-rope", b, (model_rope){.base = 10000});
}

static void none(void **state) {
    bytes b = read_bytes("gemma3");
    size_t size;
    float *want, *found = compute(b, (model_rope){.scaling = "none"}, &size);
    set_float(b, "gemma3.rope.scaling.factor", 1);
    want = compute(b, (model_rope){0}, &size);
    assert_memory_equal(want, found, size);
    free(want);
    free(found);
    free(b.data);
}

static void check_context(const char *name, model_rope wish, size_t n_ctx, size_t want) {
    bytes b = read_bytes(name);
    model *m = open_with(b, wish, n_ctx);
    assert_int_equal(model_get_info(m)->n_ctx, want);
    model_close(&m);
    free(b.data);
}

static void contexts(void **state) {
    check_context("llama", (model_rope){0}, 0, 512);
    check_context("llama", (model_rope){0}, 300, 300);
    check_context("llama", (model_rope){.scaling = "yarn", .factor = 4}, 0, 2048);
    check_context("llama", (model_rope){.factor = 4}, 0, 2048);
    check_context("llama", (model_rope){.factor = 4}, 700, 700);
    check_context("llama", (model_rope){.scaling = "yarn", .factor = 4, .n_ctx_orig = 256}, 0,
                  1024);
    check_context("llama", (model_rope){.factor = 0.25}, 0, 512);
    check_context("llama", (model_rope){.scaling = "none", .factor = 4}, 0, 512);
    check_context("llama", (model_rope){.base = 1e6}, 0, 512);
    check_context("llama", (model_rope){.base = 1e6}, 5000, 5000);
    check_context("mistral3", (model_rope){0}, 0, 512); /* scaled to it as trained */
}

static void refused(const char *name, model_rope wish, size_t n_ctx, const char *sentence) {
    bytes b = read_bytes(name);
    icp_error err = {0};
    gguf *g = open_bytes(b);
    model *m;
    model_opts opts = {.isa = KERN_SCALAR, .kv = KERN_F32, .pool = threads};
    opts.rope = wish;
    opts.n_ctx = n_ctx;
    assert_true(model_open(g, &opts, &m, &err) < 0);
    assert_says(&err, sentence, name);
    gguf_close(&g);
    free(b.data);
}

static void wrong_wishes(void **state) {
    refused("llama", (model_rope){.scaling = "dynamic", .factor = 2}, 0, "of a text, so that what");
    refused("llama", (model_rope){.scaling = "cork"}, 0,
            "\"cork\" is not supported; supported: none");
    refused("llama", (model_rope){.scaling = "yarn"}, 0, "by a factor of 1 changes nothing");
    refused("llama", (model_rope){.scaling = "longrope"}, 0, "neither chosen nor changed");
    refused("phi3-longrope", (model_rope){.scaling = "yarn", .factor = 2}, 0, "neither chosen nor");
    refused("llama", (model_rope){.base = NAN}, 0, "freq_base was asked to be nan");
    refused("llama", (model_rope){.factor = -1}, 0, "factor was asked to be -1");
    refused("llama", (model_rope){.n_ctx_orig = -5}, 0,
            "original_context_length was asked to be -5");
    refused("llama", (model_rope){.scaling = "yarn", .factor = 2, .beta_fast = -1}, 0,
            "beta_fast was");
    refused("gpt2", (model_rope){.base = 1000}, 0, "gpt2 does not rotate positions");
    refused("gpt2", (model_rope){.base = 1000}, 4096, "gpt2 does not rotate positions");
    refused("llama", (model_rope){0}, 513, "the model was trained for 512, which only scaling");
    refused("llama", (model_rope){.factor = 4}, 2049, "RoPE is scaled to 2048");
}

/* What a wish changes is never taken for what was computed without it. */
static void fingerprints(void **state) {
    static const model_rope wishes[] = {{0},
                                        {.factor = 2},
                                        {.factor = 3},
                                        {.scaling = "yarn", .factor = 2},
                                        {.scaling = "yarn", .factor = 2, .beta_fast = 16},
                                        {.scaling = "yarn", .factor = 2, .beta_slow = 2},
                                        {.scaling = "yarn", .factor = 2, .n_ctx_orig = 100},
                                        {.magnitude = 2},
                                        {.base = 20000}};
    uint8_t seen[COUNT_OF(wishes)][16];
    bytes b = read_bytes("llama"), phi = read_bytes("phi3-longrope");
    for (size_t i = 0; i < COUNT_OF(wishes); i++) {
        model *m = open_with(b, wishes[i], 0);
        memcpy(seen[i], model_get_info(m)->fingerprint, 16);
        for (size_t j = 0; j < i; j++) assert_memory_not_equal(seen[i], seen[j], 16);
        model_close(&m);
    }
    model *whole = open_with(phi, (model_rope){0}, 0), *less = open_with(phi, (model_rope){0}, 200);
    assert_memory_not_equal(model_get_info(whole)->fingerprint, model_get_info(less)->fingerprint,
                            16); /* long factors, short ones */
    model_close(&whole);
    model_close(&less);
    free(b.data);
    free(phi.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yarn),        cmocka_unit_test(linear),   cmocka_unit_test(base),
        cmocka_unit_test(none),        cmocka_unit_test(contexts), cmocka_unit_test(wrong_wishes),
        cmocka_unit_test(fingerprints)};
    if (pool_open(2, &threads) < 0) return 1;
    int failed = cmocka_run_group_tests_name("rope", tests, NULL, NULL);
    pool_close(&threads);
    return failed;
}
