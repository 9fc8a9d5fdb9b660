/* The tokenizer on small vocabularies made by hand: opening, origins, special tokens, framing,
 * broken text, failing memory, and its algorithms against naive twins. */
#include "cmocka_tests.h"
#include "text_bed.h"
#include "tokenizer_internal.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static bed_vocab bed;

#define EXPECT(t, text, flags, ...)                                                                \
    do {                                                                                           \
        const int32_t ids_[] = {__VA_ARGS__};                                                      \
        bed_expect_ids(t, text, strlen(text), flags, ids_, COUNT_OF(ids_));                        \
    } while (0)

/* ---- opening ---- */

static void expect_refused(int code, const char *part) {
    tokenizer *t = NULL;
    icp_error err = {0};
    assert_int_equal(tokenizer_open(&bed.vocab, &t, &err), code);
    assert_null(t);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
    bed_vocab_fini(&bed);
}

static void test_open_refuses(void **state) {
    bed_vocab_init(&bed, "rwkv", NULL);
    expect_refused(ICP_EUNSUPPORTED, "'rwkv'");
    bed_vocab_init(&bed, "gpt2", "nonsense");
    expect_refused(ICP_EUNSUPPORTED, "'nonsense'; known are gpt-2");
    bed_vocab_init(&bed, "gpt2", "gpt");
    expect_refused(ICP_EUNSUPPORTED, "'gpt'");
    bed_vocab_init(&bed, "gpt2", "");
    expect_refused(ICP_EUNSUPPORTED, "''");
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    bed.vocab.bos = 256;
    expect_refused(ICP_EFORMAT, "BOS token 256");
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    bed.vocab.eos = -2;
    expect_refused(ICP_EFORMAT, "EOS token -2");
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    bed.types[7] = 9;
    expect_refused(ICP_EFORMAT, "token 7");
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    bed_merge(&bed, "a", "");
    expect_refused(ICP_EFORMAT, "merge 0");
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    bed.vocab.n_tokens = 0;
    expect_refused(ICP_EFORMAT, "0 tokens");
    bed_vocab_init(&bed, "llama", NULL);
    bed.scores[3] = NAN;
    expect_refused(ICP_EFORMAT, "token 3");
    bed_vocab_init(&bed, "llama", NULL);
    bed.vocab.scores = NULL;
    expect_refused(ICP_EFORMAT, "without scores");
}

static void test_every_pretokenizer_opens(void **state) {
    static const char *const names[] = {"gpt-2",        "mpt",         "smollm",
                                        "command-r",    "llama-bpe",   "glm4",
                                        "dbrx",         "qwen2",       "stablelm2",
                                        "qwen35",       "gpt-4o",      "tekken",
                                        "kimi-k2",      "deepseek-v3", "deepseek-coder",
                                        "deepseek-llm", "falcon",      "seed-coder",
                                        "bailingmoe",   "default",     NULL};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        bed_vocab_init(&bed, "gpt2", names[i]);
        tokenizer *t = bed_open(&bed);
        EXPECT(t, "ab", 0, 'a', 'b');
        tokenizer_close(&t);
        bed_vocab_fini(&bed);
    }
}

static void test_duplicates(void **state) {
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    int32_t first = bed_add(&bed, "ab", TOKEN_NORMAL, 0),
            second = bed_add(&bed, "ab", TOKEN_NORMAL, 0);
    int32_t special = bed_add(&bed, "<x>", TOKEN_CONTROL, 0);
    bed_add(&bed, "<x>", TOKEN_CONTROL, 0);
    bed_merge(&bed, "a", "b");
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "ab<x>", TOKENIZE_SPECIAL, first, special);
    assert_memory_equal(tokenizer_bytes(t, second).data, "ab", 2);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* ---- special tokens ---- */

enum { IM_END = 256, IM_START, THINK, END };

static tokenizer *open_chat(void) {
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    bed_add(&bed, "<|im_end|>", TOKEN_CONTROL, 0);
    bed_add(&bed, "<|im_start|>", TOKEN_CONTROL, 0);
    bed_add(&bed, "<think>", TOKEN_USER, 0);
    bed_add(&bed, "<|end|>", TOKEN_NORMAL, 0);
    bed_add(&bed, "ab", TOKEN_NORMAL, 0);
    bed_merge(&bed, "a", "b");
    return bed_open(&bed);
}

/* How many ids equal to special come out when text[from, to) is the template's. */
static int count_special(const tokenizer *t, const char *text, size_t from, size_t to,
                         int32_t special) {
    uint8_t origin[64];
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) origin[i] = i >= from && i < to ? TEXT_TEMPLATE : TEXT_USER;
    token_ids ids = {0};
    assert_int_equal(tokenizer_encode(t, text, len, origin, 0, &ids), 0);
    int n = 0;
    for (size_t i = 0; i < ids.n; i++) n += ids.id[i] == special;
    token_ids_fini(&ids);
    return n;
}

static void test_origin(void **state) {
    tokenizer *t = open_chat();
    const char *text = "x<|im_end|>y";
    assert_int_equal(count_special(t, text, 0, 12, IM_END), 1);
    assert_int_equal(count_special(t, text, 1, 11, IM_END), 1);
    for (size_t i = 1; i < 11; i++) { /* one byte that is the user's is enough */
        assert_int_equal(count_special(t, text, 0, i, IM_END), 0);
        assert_int_equal(count_special(t, text, i + 1, 12, IM_END), 0);
    }
    assert_int_equal(count_special(t, text, 0, 0, IM_END), 0);
    assert_int_equal(count_special(t, "<think>", 0, 0, THINK), 1);
    /* The user's token does not hide the template's that begins right after it. */
    assert_int_equal(count_special(t, "<|im_<|im_end|>", 5, 15, IM_END), 1);
    EXPECT(t, "<|im_end|>", TOKENIZE_SPECIAL, IM_END);
    EXPECT(t, "<|end|>", TOKENIZE_SPECIAL, '<', '|', 'e', 'n', 'd', '|', '>'); /* NORMAL */
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

static void test_merges_cross_origins(void **state) {
    tokenizer *t = open_chat();
    const uint8_t origin[] = {TEXT_TEMPLATE, TEXT_USER};
    token_ids ids = {0};
    assert_int_equal(tokenizer_encode(t, "ab", 2, origin, 0, &ids), 0);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.id[0], END + 1);
    token_ids_fini(&ids);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* Leftmost, longest, and only where the origin allows it: by trying every token everywhere. */
static added_match naive_find(const tokenizer *t, const char *text, size_t len, size_t at,
                              const uint8_t *origin) {
    added_match best = {.start = len, .id = -1};
    for (size_t start = at; start < len && best.id < 0; start++) {
        for (int32_t id = 256; id < (int32_t)tokenizer_n(t); id++) {
            text_str token = tokenizer_bytes(t, id);
            if (token.len > len - start || memcmp(token.data, text + start, token.len)) continue;
            bool allowed = true;
            for (size_t i = 0; i < token.len; i++) allowed &= origin[start + i] == TEXT_TEMPLATE;
            allowed |= tokenizer_type(t, id) == TOKEN_USER;
            if (allowed && token.len > best.len) best = (added_match){start, token.len, id};
        }
    }
    return best;
}

static void test_added_against_twin(void **state) {
    uint64_t seed = 1;
    for (int round = 0; round < 60; round++) {
        bed_vocab_init(&bed, "gpt2", "gpt-2");
        char seen[64][8];
        int n = 0;
        for (int i = 0; i < 20; i++) {
            char name[8] = {0};
            for (uint32_t k = 0, len = 1 + bed_random(&seed, 5); k < len; k++)
                name[k] = "<|>"[bed_random(&seed, 3)];
            bool again = false;
            for (int k = 0; k < n; k++) again |= !strcmp(seen[k], name);
            if (again) continue;
            memcpy(seen[n++], name, 8);
            bed_add(&bed, name, bed_random(&seed, 2) ? TOKEN_USER : TOKEN_CONTROL, 0);
        }
        tokenizer *t = bed_open(&bed);
        char text[200];
        uint8_t origin[200];
        for (int i = 0; i < 200; i++) {
            text[i] = "<|>a"[bed_random(&seed, 4)];
            origin[i] = i && bed_random(&seed, 8) ? origin[i - 1] : (uint8_t)bed_random(&seed, 2);
        }
        for (size_t at = 0; at < 200; at++) {
            added_match want = naive_find(t, text, 200, at, origin);
            added_match got = added_find(t, text, 200, at, origin, false);
            assert_int_equal(got.id, want.id);
            assert_int_equal(got.start, want.start);
            assert_int_equal(got.len, want.len);
        }
        tokenizer_close(&t);
        bed_vocab_fini(&bed);
    }
}

static void test_filler_is_no_token(void **state) {
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    bed_add(&bed, "[PAD256]", TOKEN_USER, 0);
    int32_t real = bed_add(&bed, "[PAD]", TOKEN_USER, 0);
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "[PAD256]", TOKENIZE_SPECIAL, '[', 'P', 'A', 'D', '2', '5', '6', ']');
    EXPECT(t, "[PAD]", 0, real);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* ---- framing ---- */

static void test_frame(void **state) {
    static const struct {
        const char *model, *pre;
        int say;
        bool framed;
    } cases[] = {
        {"gpt2", "gpt-2", -1, false},    {"gpt2", "gpt-2", 1, true},
        {"gpt2", "llama-bpe", -1, true}, {"gpt2", "llama-bpe", 0, false},
        {"gpt2", "tekken", -1, true},    {"gpt2", "qwen2", -1, false},
        {"llama", NULL, -1, true},       {"llama", NULL, 0, false},
        {"gemma4", NULL, 0, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bed_vocab_init(&bed, cases[i].model, cases[i].pre);
        bed.vocab.bos = bed_add(&bed, "<s>", TOKEN_CONTROL, 0);
        bed.vocab.eos = bed_add(&bed, "</s>", TOKEN_CONTROL, 0);
        bed.vocab.add_bos = cases[i].say;
        bed.vocab.add_eos = cases[i].say;
        tokenizer *t = bed_open(&bed);
        token_ids ids = {0};
        assert_int_equal(tokenizer_encode(t, "", 0, NULL, 0, &ids), 0);
        assert_int_equal(ids.n, 0);
        assert_int_equal(tokenizer_encode(t, "", 0, NULL, TOKENIZE_BOS, &ids), 0);
        assert_int_equal(ids.n, (cases[i].framed ? 1 : 0) + (cases[i].say == 1 ? 1 : 0));
        if (ids.n) assert_int_equal(ids.id[0], bed.vocab.bos);
        token_ids_fini(&ids);
        if (cases[i].framed && cases[i].say != 1) /* a BOS in the text stays beside the added one */
            EXPECT(t, "<s>", TOKENIZE_BOS | TOKENIZE_SPECIAL, bed.vocab.bos, bed.vocab.bos);
        tokenizer_close(&t);
        bed_vocab_fini(&bed);
    }
}

static void test_ends(void **state) {
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    int32_t im_end = bed_add(&bed, "<|im_end|>", TOKEN_CONTROL, 0);
    int32_t s = bed_add(&bed, "</s>", TOKEN_USER, 0);
    int32_t start = bed_add(&bed, "<|im_start|>", TOKEN_CONTROL, 0);
    int32_t end = bed_add(&bed, "<|end|>", TOKEN_CONTROL, 0);
    bed.vocab.eos = 'e';
    bed.vocab.eot = 't';
    tokenizer *t = bed_open(&bed);
    assert_true(tokenizer_ends(t, im_end) && tokenizer_ends(t, end));
    assert_true(tokenizer_ends(t, 'e') && tokenizer_ends(t, 't'));
    assert_false(tokenizer_ends(t, s) || tokenizer_ends(t, start) || tokenizer_ends(t, 'a'));
    assert_int_equal(tokenizer_find(t, "<|im_end|>"), im_end);
    assert_int_equal(tokenizer_find(t, "<|im_end"), -1);
    assert_int_equal(tokenizer_find(t, "a"), -1);
    assert_int_equal(tokenizer_find(t, ""), -1);
    tokenizer_close(&t);

    /* Where "<|return|>" ends a turn, "<|end|>" only ends a message. */
    int32_t ret = bed_add(&bed, "<|return|>", TOKEN_CONTROL, 0);
    t = bed_open(&bed);
    assert_true(tokenizer_ends(t, ret));
    assert_false(tokenizer_ends(t, end));
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* ---- merging against naive twins ---- */

typedef struct twin_symbol {
    char text[64];
} twin_symbol;

/* Joins the best pair, again and again. order returns a pair's place, lower first; < 0: none. */
static size_t twin_merge(twin_symbol *s, size_t n, double (*order)(const char *l, const char *r)) {
    for (;;) {
        size_t best = n;
        double best_order = INFINITY;
        for (size_t i = 0; i + 1 < n; i++) {
            double o = order(s[i].text, s[i + 1].text);
            if (o < best_order) {
                best_order = o;
                best = i;
            }
        }
        if (best == n) return n;
        char *left = s[best].text, *right = s[best + 1].text;
        memmove(left + strlen(left), right, strlen(right) + 1);
        memmove(&s[best + 1], &s[best + 2], (n - best - 2) * sizeof *s);
        n--;
    }
}

static int32_t bed_find(const char *text) {
    for (size_t i = 0; i < bed.vocab.n_tokens; i++)
        if (bed.tokens[i].len == strlen(text) && !memcmp(bed.tokens[i].data, text, strlen(text)))
            return (int32_t)i;
    return -1;
}

static double rank_order(const char *l, const char *r) {
    char line[160];
    snprintf(line, sizeof line, "%s %s", l, r);
    for (size_t i = 0; i < bed.vocab.n_merges; i++)
        if (bed.merges[i].len == strlen(line) && !memcmp(bed.merges[i].data, line, strlen(line)))
            return (double)i;
    return INFINITY;
}

static double score_order(const char *l, const char *r) {
    char joined[160];
    snprintf(joined, sizeof joined, "%s%s", l, r);
    int32_t id = bed_find(joined);
    return id < 0 ? INFINITY : -(double)bed.scores[id];
}

/* Makes n random tokens of letters a..c, each the join of two older ones. */
static void add_random_tokens(uint64_t *seed, int n, bool merges) {
    int32_t pool[128];
    int n_pool = 0;
    for (char c = 'a'; c <= 'c'; c++)
        pool[n_pool++] = merges ? c : bed_add(&bed, (char[]){c, 0}, TOKEN_NORMAL, -100);
    while (n_pool < n) {
        text_str l = bed.tokens[pool[bed_random(seed, (uint32_t)n_pool)]];
        text_str r = bed.tokens[pool[bed_random(seed, (uint32_t)n_pool)]];
        char joined[64];
        if (l.len + r.len > 12) continue;
        snprintf(joined, sizeof joined, "%s%s", l.data, r.data);
        int32_t id = bed_find(joined);
        if (id < 0) /* few scores, so that many are equal */
            pool[n_pool++] = bed_add(&bed, joined, TOKEN_NORMAL, (float)bed_random(seed, 6) - 3);
        if (merges && isinf(rank_order(l.data, r.data))) bed_merge(&bed, l.data, r.data);
    }
}

static void check_against_twin(uint64_t *seed, const tokenizer *t,
                               double (*order)(const char *l, const char *r)) {
    static twin_symbol symbols[64];
    char text[64] = {0};
    int32_t ids[64];
    size_t len = 2 + bed_random(seed, 60);
    for (size_t i = 0; i < len; i++) {
        text[i] = (char)('a' + bed_random(seed, 3));
        snprintf(symbols[i].text, sizeof symbols[i].text, "%c", text[i]);
    }
    size_t n = twin_merge(symbols, len, order);
    for (size_t i = 0; i < n; i++) ids[i] = bed_find(symbols[i].text);
    bed_expect_ids(t, text, len, 0, ids, n);
}

static void test_bpe_against_twin(void **state) {
    uint64_t seed = 2;
    for (int round = 0; round < 40; round++) {
        bed_vocab_init(&bed, "gpt2", "gpt-2");
        add_random_tokens(&seed, 40, true);
        tokenizer *t = bed_open(&bed);
        for (int i = 0; i < 30; i++) check_against_twin(&seed, t, rank_order);
        tokenizer_close(&t);
        bed_vocab_fini(&bed);
    }
}

static void test_spm_against_twin(void **state) {
    uint64_t seed = 3;
    for (int round = 0; round < 40; round++) {
        bed_vocab_init(&bed, "llama", NULL);
        bed.vocab.add_space_prefix = 0;
        add_random_tokens(&seed, 40, false);
        tokenizer *t = bed_open(&bed);
        for (int i = 0; i < 30; i++) check_against_twin(&seed, t, score_order);
        tokenizer_close(&t);
        bed_vocab_fini(&bed);
    }
}

/* ---- text that is not UTF-8 ---- */

static void test_broken_bytes(void **state) {
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "a\xE2\x82z", 0, 'a', 0xEF, 0xBF, 0xBD, 'z'); /* a broken prefix: once */
    EXPECT(t, "\xFF\xFE", 0, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD);
    EXPECT(t, "\xC0\x80", 0, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD);
    const int32_t nul[] = {0, 1};
    bed_expect_ids(t, "\0\1", 2, 0, nul, 2);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);

    bed_vocab_init(&bed, "llama", NULL);
    bed.vocab.add_space_prefix = 0;
    t = bed_open(&bed);
    EXPECT(t, "\xE2\x82z\xFF\xC3\xA9", 0, 0xE2, 0x82, 'z', 0xFF, 0xC3, 0xA9);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

static void test_unknown_characters(void **state) {
    bed_vocab_init(&bed, "llama", NULL);
    bed.vocab.n_tokens = 0; /* no byte tokens */
    bed.vocab.unk = bed_add(&bed, "<unk>", TOKEN_UNKNOWN, 0);
    int32_t a = bed_add(&bed, "a", TOKEN_NORMAL, 0);
    bed.vocab.add_space_prefix = 0;
    tokenizer *t = bed_open(&bed);
    EXPECT(t,
           "a\xC3\xA9"
           "a",
           0, a, bed.vocab.unk, a);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* ---- size ---- */

static void check_long(const tokenizer *t, const char *unit, size_t len) {
    size_t unit_len = strlen(unit);
    char *text = mem_alloc(len + 1);
    token_ids ids = {0};
    buf back = {0}, want = {0};
    assert_non_null(text);
    for (size_t i = 0; i < len; i++) text[i] = unit[i % unit_len];
    assert_int_equal(tokenizer_encode(t, text, len, NULL, TOKENIZE_SPECIAL, &ids), 0);
    assert_int_equal(tokenizer_decode(t, ids.id, ids.n, false, &back), 0);
    bed_repair(text, len, &want);
    assert_int_equal(back.len, want.len);
    assert_memory_equal(back.data, want.data, want.len);
    buf_fini(&back);
    buf_fini(&want);
    token_ids_fini(&ids);
    mem_free(text);
}

/* Quadratic work, a limit of the regex library or recursion would show here, if only by time. */
static void test_long_text(void **state) {
    static const char *const models[] = {"llama", "llama-tied-mqa", "gemma3"};
    static const char *const units[] = {
        "a", "A",   " ",  "\n", " \n",          "<",         "<|",          "7",
        "_", "ab ", "aA", "'s", "\xE8\xAF\xAD", "a\xCC\x81", "\xE2\x96\x81"};
    for (size_t m = 0; m < COUNT_OF(models); m++) {
        tokenizer *t = bed_open_golden(models[m]);
        for (size_t u = 0; u < COUNT_OF(units); u++) {
            bool lossy = m > 0 && u == COUNT_OF(units) - 1; /* U+2581 is a space there */
            if (!lossy) check_long(t, units[u], strlen(units[u]) * 50000);
        }
        check_long(t, "x", 1 << 20);
        tokenizer_close(&t);
    }
    static const char *const pres[] = {"smollm",       "qwen2",   "qwen35",      "gpt-4o",
                                       "tekken",       "kimi-k2", "deepseek-v3", "deepseek-coder",
                                       "deepseek-llm", "falcon",  "bailingmoe",  "default"};
    for (size_t p = 0; p < COUNT_OF(pres); p++) {
        bed_vocab_init(&bed, "gpt2", pres[p]);
        tokenizer *t = bed_open(&bed);
        for (size_t u = 0; u + 2 < COUNT_OF(units); u++)
            check_long(t, units[u], strlen(units[u]) * 50000);
        check_long(t, "x\xE2", 50000);
        tokenizer_close(&t);
        bed_vocab_fini(&bed);
    }
}

/* ---- failing memory ---- */

static void test_open_without_memory(void **state) {
    static const char *const models[][2] = {{"gpt2", "smollm"}, {"llama", NULL}, {"gemma4", NULL}};
    for (size_t m = 0; m < COUNT_OF(models); m++) {
        bed_vocab_init(&bed, models[m][0], models[m][1]);
        bed_add(&bed, "ab", TOKEN_NORMAL, 0);
        bed_add(&bed, "<x>", TOKEN_CONTROL, 0);
        bed_merge(&bed, "a", "b");
        int rc = ICP_ENOMEM;
        for (long n = 0; rc; n++) {
            tokenizer *t = NULL;
            icp_error err = {0};
            mem_fail_after(n);
            rc = tokenizer_open(&bed.vocab, &t, &err);
            mem_fail_after(-1);
            assert_true(n < 1000);
            assert_int_equal(rc == 0, t != NULL);
            if (rc) assert_int_equal(rc, ICP_ENOMEM);
            if (rc) assert_int_equal(err.code, ICP_ENOMEM);
            tokenizer_close(&t);
        }
        bed_vocab_fini(&bed);
    }
}

static void test_encode_without_memory(void **state) {
    static const char *const models[][2] = {{"gpt2", "qwen2"}, {"llama", NULL}, {"gemma4", NULL}};
    const char *text = "Hello e\xCC\x81 wo\xE2rld <x> and a word of many letters";
    for (size_t m = 0; m < COUNT_OF(models); m++) {
        bed_vocab_init(&bed, models[m][0], models[m][1]);
        bed_add(&bed, "<x>", TOKEN_CONTROL, 0);
        bed_add(&bed, "et", TOKEN_NORMAL, 0);
        tokenizer *t = bed_open(&bed);
        int rc = ICP_ENOMEM;
        for (long n = 0; rc; n++) {
            token_ids ids = {0};
            assert_int_equal(tokenizer_encode(t, "a", 1, NULL, 0, &ids), 0);
            size_t before = ids.n;
            mem_fail_after(n);
            rc = tokenizer_encode(t, text, strlen(text), NULL, TOKENIZE_SPECIAL, &ids);
            mem_fail_after(-1);
            assert_true(n < 1000);
            if (rc) assert_int_equal(rc, ICP_ENOMEM);
            if (rc) assert_int_equal(ids.n, before);
            token_ids_fini(&ids);
        }
        tokenizer_close(&t);
        bed_vocab_fini(&bed);
    }
}

/* ---- threads ---- */

static const char shared_text[] = "Several threads 123 share one\n\n tokenizer, \xE8\xAF\xAD<x>.";

static void *encode_often(void *arg) {
    static _Thread_local int32_t first[256];
    size_t n = 0;
    for (int i = 0; i < 200; i++) {
        token_ids ids = {0};
        if (tokenizer_encode(arg, shared_text, strlen(shared_text), NULL, 0, &ids)) return NULL;
        if (!i) memcpy(first, ids.id, (n = ids.n) * sizeof *first);
        bool same = ids.n == n && !memcmp(first, ids.id, n * sizeof *first);
        token_ids_fini(&ids);
        if (!same) return NULL;
    }
    return arg;
}

static void test_threads(void **state) {
    tokenizer *t = bed_open_golden("llama");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, t);
    }
    tokenizer_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_every_pretokenizer_opens),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_origin),
        cmocka_unit_test(test_merges_cross_origins),
        cmocka_unit_test(test_added_against_twin),
        cmocka_unit_test(test_filler_is_no_token),
        cmocka_unit_test(test_frame),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_bpe_against_twin),
        cmocka_unit_test(test_spm_against_twin),
        cmocka_unit_test(test_broken_bytes),
        cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_open_without_memory),
        cmocka_unit_test(test_encode_without_memory),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
