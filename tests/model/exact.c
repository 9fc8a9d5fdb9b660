/* Bits do not depend on how the rows of a text are computed: alone or in company, in which chunks,
 * with what already stored by another sequence, by how many threads, on which instruction set. */
#include "run_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static const enum kern_type formats[] = {KERN_F32, KERN_F16, KERN_BF16, KERN_Q8_0};

enum { TOKENS = 150, NEIGHBOUR = 40, ROUNDS = 4 };

/* Extends s by the next tokens of ids in random chunks, a neighbour's tokens in the same passes. */
static void extend_in_company(sequence *s, sequence *other, const int32_t *ids, uint64_t *rng,
                              float *rows) {
    size_t n_out = model_get_info(s->m)->n_out;
    float *logits = malloc((TOKENS + NEIGHBOUR) * n_out * sizeof *logits);
    while (s->len < TOKENS) {
        size_t left = TOKENS - s->len, n = 1 + random_next(rng) % (random_next(rng) % 3 ? 9 : left);
        size_t more = MIN(random_next(rng) % 5, NEIGHBOUR - other->len);
        n = MIN(n, left);
        model_span mine = {ids + s->len, (int)n, s->len, s->pages, s->state, (int)n};
        model_span its = {ids + 1 + other->len, (int)more,    other->len,
                          other->pages,         other->state, (int)more};
        bool first = random_next(rng) % 2;
        model_span spans[2] = {first ? mine : its, first ? its : mine};
        model_forward(s->m, spans, 2, logits);
        memcpy(rows + s->len * n_out, logits + (first ? 0 : more) * n_out,
               n * n_out * sizeof *rows);
        s->len += n;
        other->len += more;
    }
    free(logits);
}

/* Starts s with the first n tokens of another sequence: whole pages shared, the last one copied.
 * What a recurrent model carries was kept when some sequence stood there. */
static void hit(sequence *s, const sequence *from, const int32_t *ids, size_t n) {
    sequence at;
    sequence_init(&at, s->m, TOKENS);
    sequence_extend(&at, ids, n, 13, NULL);
    memcpy(s->state, at.state, model_get_info(s->m)->state_size);
    sequence_fini(&at);
    for (size_t i = 0; i * KERN_PAGE < n; i++) {
        size_t here = MIN(n - i * KERN_PAGE, (size_t)KERN_PAGE);
        if (here == KERN_PAGE)
            memcpy(s->pages[i], from->pages[i], model_get_info(s->m)->page_size);
        else
            model_copy_page(s->m, s->pages[i], from->pages[i], (int)here);
    }
    s->len = n;
}

static void check_rows(const char *name, const float *want, const float *found, size_t from,
                       size_t n_out) {
    for (size_t i = from; i < TOKENS; i++)
        if (memcmp(want + i * n_out, found + i * n_out, n_out * sizeof *want))
            fail_msg("%s: row %zu differs", name, i);
}

static void check_model(const char *name, enum kern_type kv, uint64_t seed) {
    char file[128];
    int32_t ids[TOKENS + NEIGHBOUR];
    pool *one, *three;
    sequence whole, part, other;
    assert_int_equal(pool_open(1, &one), 0);
    assert_int_equal(pool_open(3, &three), 0);
    snprintf(file, sizeof file, "models/%s.gguf", name);
    model *m = open_golden(file, (model_opts){.isa = kern_isa_best(), .kv = kv, .pool = one});
    size_t n_out = model_get_info(m)->n_out, n_vocab = model_get_info(m)->n_vocab;
    float *want = malloc(TOKENS * n_out * sizeof *want),
          *found = malloc(TOKENS * n_out * sizeof *want);
    for (size_t i = 0; i < TOKENS + NEIGHBOUR; i++)
        ids[i] = (int32_t)(random_next(&seed) % n_vocab);
    sequence_init(&whole, m, TOKENS);
    sequence_extend(&whole, ids, TOKENS, TOKENS, want);
    for (int round = 0; round < ROUNDS; round++) {
        enum kern_isa isa = random_next(&seed) % 3 ? kern_isa_best() : KERN_SCALAR;
        model *twin = open_golden(file, (model_opts){.isa = isa, .kv = kv, .pool = three});
        size_t cached = round ? random_next(&seed) % TOKENS : 0;
        assert_memory_equal(model_get_info(m)->fingerprint, model_get_info(twin)->fingerprint, 16);
        sequence_init(&part, twin, TOKENS);
        sequence_init(&other, twin, NEIGHBOUR);
        hit(&part, &whole, ids, cached);
        extend_in_company(&part, &other, ids, &seed, found);
        check_rows(name, want, found, cached, n_out);
        sequence_fini(&part);
        sequence_fini(&other);
        model_close(&twin);
    }
    sequence_fini(&whole);
    free(want);
    free(found);
    model_close(&m);
    pool_close(&one);
    pool_close(&three);
}

static void bits(void **state) {
    static const char *const names[] = {
        "llama",         "llama4",     "mixtral",   "smollm3",       "qwen2moe", "qwen3moe",
        "granitemoe",    "olmo2",      "glm4",      "gemma2",        "gemma3",   "gemma4",
        "gpt-oss",       "deepseek2",  "deepseek3", "phi3-longrope", "phi2",     "gptneox",
        "cohere2",       "starcoder2", "mistral3",  "exaone4",       "mamba2",   "lfm2",
        "granitehybrid", "falcon-h1",  "qwen3next", "qwen35",        "mixed",    "gpt2"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        check_model(names[i], formats[i % COUNT_OF(formats)], i);
    for (size_t i = 0; i < COUNT_OF(formats); i++) check_model("llama", formats[i], 100 + i);
}

enum { PREFIX = 1100, LED = 5 };

/* The last token of s, in the passes of others that begin with the same pages. */
static void check_shared(const char *name, enum kern_type kv) {
    char file[128];
    uint64_t seed = 7;
    pool *three;
    sequence s[LED];
    model_span spans[LED];
    void *pages[LED][PREFIX / KERN_PAGE + 1]; /* of the sequences: their own, then shared ones */
    int32_t ids[PREFIX + LED];
    assert_int_equal(pool_open(3, &three), 0);
    snprintf(file, sizeof file, "models/%s.gguf", name);
    model *m = open_golden(
        file, (model_opts){.isa = kern_isa_best(), .kv = kv, .n_ctx = 2048, .pool = three});
    size_t n_vocab = model_get_info(m)->n_vocab, row = n_vocab * sizeof(float);
    float *alone = malloc(LED * row), *found = malloc(LED * row);
    for (size_t i = 0; i < PREFIX + LED; i++) ids[i] = (int32_t)(random_next(&seed) % n_vocab);
    for (int i = 0; i < LED; i++) {
        sequence_init(&s[i], m, PREFIX + LED);
        sequence_extend(&s[i], ids, PREFIX - 200 * (size_t)i, 256, NULL);
        memcpy(pages[i], s[i].pages, s[i].n_pages * sizeof *pages[i]);
        spans[i] = (model_span){.tokens = ids + s[i].len + i,
                                .n_tokens = 1 + i % 2,
                                .pos = s[i].len,
                                .pages = pages[i],
                                .state = s[i].state,
                                .n_logits = 1};
        model_forward(m, &spans[i], 1, alone + (size_t)i * n_vocab);
    }
    for (int i = 1; i < LED; i++)
        memcpy(pages[i], pages[0], s[i].len / KERN_PAGE * sizeof *pages[i]);
    for (int order = 0; order < 2; order++) {
        if (order)
            for (int i = 0; i < LED / 2; i++) {
                model_span t = spans[i];
                spans[i] = spans[LED - 1 - i];
                spans[LED - 1 - i] = t;
            }
        model_forward(m, spans, LED, found);
        for (size_t i = 0; i < LED; i++)
            assert_memory_equal(alone + (order ? LED - 1 - i : i) * n_vocab, found + i * n_vocab,
                                row);
    }
    for (int i = 0; i < LED; i++) sequence_fini(&s[i]);
    free(alone);
    free(found);
    model_close(&m);
    pool_close(&three);
}

static void shared_prefix(void **state) {
    check_shared("falcon", KERN_F16);
    check_shared("falcon", KERN_Q8_0);
    check_shared("falcon", KERN_F32);
}

enum { LONG = 700, WINDOW = 100 };

/* A model of which every layer has a window, of `window` tokens. */
static model *open_windowed(uint32_t window, enum kern_isa isa, enum kern_type kv, pool *p) {
    icp_error err = {0};
    bytes b = read_bytes("phi3-longrope");
    set_number(b, "phi3.attention.sliding_window", &window);
    gguf *g = open_bytes(b);
    model *m;
    model_opts opts = {.isa = isa, .kv = kv, .pool = p};
    if (model_open(g, &opts, &m, &err) < 0) fail_msg("%s", err.text);
    gguf_close(&g);
    free(b.data);
    assert_int_equal(model_reserve(m, 512, 512), 0);
    return m;
}

/* Pages that the next position does not see are taken away, so that whoever touches them ends the
 * test. */
static void check_behind(enum kern_isa isa, enum kern_type kv, uint64_t seed) {
    pool *three;
    sequence whole, part;
    int32_t ids[LONG];
    assert_int_equal(pool_open(3, &three), 0);
    model *m = open_windowed(WINDOW, isa, kv, three);
    const model_info *info = model_get_info(m);
    assert_int_equal(info->window, WINDOW);
    float *want = malloc(LONG * info->n_out * sizeof *want), *found = malloc(512 * info->n_out * 4);
    void *nothing = mmap(NULL, info->page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(nothing != MAP_FAILED);
    for (size_t i = 0; i < LONG; i++) ids[i] = (int32_t)(random_next(&seed) % info->n_vocab);
    sequence_init(&whole, m, LONG);
    sequence_init(&part, m, LONG);
    sequence_extend(&whole, ids, LONG, 512, want);
    void *pages[LONG / KERN_PAGE + 1];
    while (part.len < LONG) {
        size_t n = 1 + random_next(&seed) % (random_next(&seed) % 2 ? 7 : 200);
        n = MIN(n, LONG - part.len);
        size_t behind = part.len >= WINDOW ? (part.len + 1 - WINDOW) / KERN_PAGE : 0;
        for (size_t i = 0; i < part.n_pages; i++) pages[i] = i < behind ? nothing : part.pages[i];
        model_span span = {.tokens = ids + part.len,
                           .n_tokens = (int)n,
                           .pos = part.len,
                           .pages = pages,
                           .state = part.state,
                           .n_logits = (int)n};
        model_forward(m, &span, 1, found);
        assert_memory_equal(found, want + part.len * info->n_out, n * info->n_out * sizeof *want);
        part.len += n;
    }
    munmap(nothing, info->page_size);
    sequence_fini(&whole);
    sequence_fini(&part);
    free(want);
    free(found);
    model_close(&m);
    pool_close(&three);
}

static void behind_the_window(void **state) {
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        for (int isa = KERN_SCALAR; isa <= (int)kern_isa_best(); isa++)
            if (kern_isa_usable((enum kern_isa)isa))
                check_behind((enum kern_isa)isa, formats[i], i);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits), cmocka_unit_test(shared_prefix),
                                       cmocka_unit_test(behind_the_window)};
    return cmocka_run_group_tests_name("exact", tests, NULL, NULL);
}
