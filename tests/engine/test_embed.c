/* Embedding requests through the whole engine, on a fake model whose vector of a text is made of
 * all its tokens: of a causal one, which may take prefixes from the cache and be cut in chunks, and
 * of one that sees a whole text at once, which may not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bed.h"

static bed b;

static icp_request_opts wish(const int32_t *tokens, size_t n) {
    icp_request_opts o = bed_greedy(tokens, n, 0);
    o.embed = true;
    return o;
}

/* Reads r to its end, and compares its vector with the fake's. */
static icp_usage finish(request **r, const int32_t *tokens, size_t n) {
    static float want[FAKE_VOCAB];
    icp_event e = {.kind = ICP_EVENT_TOKEN};
    while (e.kind != ICP_EVENT_DONE) {
        assert_true(request_wait(*r, -1));
        while (request_next(*r, &e)) continue;
    }
    assert_int_equal(e.error, 0);
    assert_int_equal(e.n_vector, FAKE_VOCAB);
    assert_int_equal(e.usage.prompt_tokens, n);
    fake_logits(tokens, n, want);
    assert_memory_equal(e.vector, want, sizeof want);
    request_free(r);
    return e.usage;
}

enum { TEXTS = 60, LONGEST = 700 };

/* More texts than there is room for, of every length, half of them with a common beginning. */
static void run_crowd(bool causal) {
    static int32_t tokens[TEXTS][LONGEST];
    request *r[TEXTS];
    size_t n[TEXTS], cached = 0;
    enum { PAGES = 14 }; /* for one text, and a little more */
    engine_opts opts = {.cache_limit = 32 << 20,
                        .tenant_quota = PAGES * KERN_PAGE * sizeof(uint64_t)};
    bed_open_embedder(&b, opts, causal);
    for (unsigned i = 0; i < TEXTS; i++) {
        n[i] = 1 + (i * 263u) % LONGEST;
        bed_prompt(tokens[i], n[i], i % 2 ? 100 : 0, i);
        icp_request_opts o = wish(tokens[i], n[i]);
        r[i] = bed_submit(&b, &o);
    }
    for (unsigned i = 0; i < TEXTS; i++) cached += finish(&r[i], tokens[i], n[i]).cached_tokens;
    if (causal)
        assert_true(cached > 0);
    else
        assert_int_equal(cached, 0);
    bed_close(&b);
}

static void test_causal(void **state) {
    run_crowd(true);
}

static void test_whole(void **state) {
    run_crowd(false);
}

static void test_again(void **state) {
    static int32_t tokens[LONGEST];
    for (int causal = 0; causal < 2; causal++) {
        bed_open_embedder(&b, (engine_opts){.cache_limit = 32 << 20}, causal);
        bed_prompt(tokens, LONGEST, 0, 1);
        icp_request_opts o = wish(tokens, LONGEST);
        for (int i = 0; i < 2; i++) {
            request *r = bed_submit(&b, &o);
            icp_usage u = finish(&r, tokens, LONGEST);
            assert_int_equal(u.cached_tokens, causal && i ? LONGEST - 1 : 0);
        }
        icp_usage why;
        icp_request_opts plain = bed_greedy(tokens, LONGEST, 1);
        assert_int_equal(engine_why(b.engine, &plain, &why, NULL), 0);
        assert_int_equal(why.cached_tokens, causal ? LONGEST - 1 : 0);
        bed_close(&b);
    }
}

static void refuse(const icp_request_opts *o, int code, const char *part) {
    request *r = NULL;
    icp_error err = {0};
    assert_int_equal(engine_submit(b.engine, o, &r, &err), code);
    assert_null(r);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
}

static void test_purpose(void **state) {
    int32_t tokens[FAKE_CTX + 1];
    bed_prompt(tokens, FAKE_CTX + 1, 0, 1);
    icp_request_opts embed = wish(tokens, 5), generate = bed_greedy(tokens, 5, 3);
    bed_open(&b, (engine_opts){0});
    refuse(&embed, ICP_EUNSUPPORTED, "it embeds none");
    bed_close(&b);

    bed_open_embedder(&b, (engine_opts){.cache_limit = 32 << 20}, false);
    refuse(&generate, ICP_EUNSUPPORTED, "it generates none");
    embed.n = 2;
    refuse(&embed, ICP_EINVALID, "n = 1");
    embed.n = 1;
    embed.max_tokens = 1;
    refuse(&embed, ICP_EINVALID, "max_tokens = 0");
    embed = wish(tokens, FAKE_CTX + 1);
    refuse(&embed, ICP_ELIMIT, "the context");
    embed.n_prompt--; /* the longest that there is */
    request *r = bed_submit(&b, &embed);
    finish(&r, tokens, FAKE_CTX);
    bed_close(&b);
}

static void test_little_memory(void **state) {
    int32_t tokens[50];
    bed_prompt(tokens, 50, 0, 1);
    icp_request_opts o = wish(tokens, 50);
    bed_open_embedder(&b, (engine_opts){.cache_limit = 32 << 20}, false);
    int rc = -1;
    for (long n = 0; rc; n++) {
        request *r = NULL;
        mem_fail_after(n);
        rc = engine_submit(b.engine, &o, &r, NULL);
        mem_fail_after(-1);
        assert_true(n < 100);
        if (rc) assert_int_equal(rc, ICP_ENOMEM);
        if (r) finish(&r, tokens, 50);
    }
    bed_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal),        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_again),         cmocka_unit_test(test_purpose),
        cmocka_unit_test(test_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
