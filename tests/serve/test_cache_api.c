/* What bodies say about the cache, what answers say, and the routes below /cache. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base.h"
#include "client.h"

#define CHAT "/v1/chat/completions"
#define SAY(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" more "}"
#define KEY "Authorization: Bearer sk-ann\r\n"

static answer ask(const char *method, const char *path, const char *body, int status) {
    answer a = client_ask(method, path, KEY, body);
    if (a.status != status) fail_msg("%s %s: %d %s", method, path, a.status, a.body);
    return a;
}

static icp_request_opts wishes(const char *body) {
    answer a = ask("POST", CHAT, body, 200);
    answer_free(&a);
    return stub_last().opts;
}

static void passes_wishes(void **state) {
    icp_request_opts o = wishes(SAY(""));
    assert_true(!o.no_cache && !o.no_store && !o.session_end && o.ttl == 0 && o.pin == 0);
    assert_true(o.from_text);
    o = wishes(SAY(",\"prompt_cache_key\":\"k\",\"prompt_cache_options\":{\"ttl\":\"30m\","
                   "\"store\":false,\"session_end\":true,\"mode\":\"implicit\"}"));
    assert_true(o.ttl == 1800 && o.no_store && o.session_end && !o.no_cache);
    o = wishes(SAY(",\"prompt_cache_options\":{\"ttl\":90,\"pin\":true}"));
    assert_true(o.ttl == 0 && o.pin == 90);
    o = wishes(SAY(",\"prompt_cache_options\":{\"mode\":\"off\",\"pin\":true}"));
    assert_true(o.no_cache && isinf(o.pin));
}

static void refuses_nonsense(void **state) {
    static const char *const bodies[] = {
        SAY(",\"prompt_cache_options\":3"),
        SAY(",\"prompt_cache_options\":{\"mode\":\"maybe\"}"),
        SAY(",\"prompt_cache_options\":{\"ttl\":\"soon\"}"),
        SAY(",\"prompt_cache_options\":{\"ttl\":-1}"),
        SAY(",\"prompt_cache_options\":{\"ttl\":\"0m\"}"),
        SAY(",\"prompt_cache_options\":{\"store\":\"no\"}"),
        SAY(",\"prompt_cache_key\":7"),
    };
    for (size_t i = 0; i < COUNT_OF(bodies); i++) {
        answer a = ask("POST", CHAT, bodies[i], 400);
        assert_non_null(strstr(a.body, "prompt_cache_"));
        answer_free(&a);
    }
}

static void tells_in_headers_and_diagnostics(void **state) {
    answer a = ask("POST", CHAT, SAY(""), 200);
    assert_null(strstr(a.body, "prompt_cache_diagnostics"));
    assert_string_equal(answer_header(&a, "x-incipit-miss"), "never seen");
    assert_int_equal(atoi(answer_header(&a, "x-incipit-cached-tokens")),
                     (int)stub_last().opts.n_prompt / 2);
    answer_free(&a);
    a = ask("POST", CHAT, SAY(",\"prompt_cache_options\":{\"diagnostics\":true}"), 200);
    assert_non_null(strstr(a.body, "\"prompt_cache_diagnostics\":{\"type\":\"cache_miss\","
                                   "\"reason\":\"input_changed\",\"cache_missed_tokens\":"));
    answer_free(&a);
    a = ask("POST", CHAT,
            SAY(",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
                "\"prompt_cache_options\":{\"comparison_response_id\":\"x\"}"),
            200);
    assert_non_null(strstr(a.body, "prompt_cache_diagnostics"));
    answer_free(&a);
}

static void lists_and_drops(void **state) {
    answer a = ask("GET", "/cache", NULL, 200); /* the tenant is "ann" */
    assert_non_null(strstr(a.body, "{\"object\":\"cache\",\"pages\":3,"));
    assert_non_null(strstr(a.body, "\"text\":\"a\"},{"));
    assert_non_null(strstr(a.body, "\"has_more\":false}"));
    answer_free(&a);
    a = ask("GET", "/cache?limit=1", NULL, 200);
    assert_null(strstr(a.body, "\"text\":\"a\"},{"));
    assert_non_null(strstr(a.body, "\"has_more\":true}"));
    answer_free(&a);
    a = ask("GET", "/cache?limit=-1", NULL, 400);
    answer_free(&a);
    a = client_ask("GET", "/cache", "", NULL);
    assert_int_equal(a.status, 401);
    answer_free(&a);
    a = ask("DELETE", "/cache", NULL, 200);
    assert_int_equal(stub_drops(), 1);
    answer_free(&a);
    a = ask("POST", "/cache", "{}", 405);
    assert_string_equal(answer_header(&a, "allow"), "GET, HEAD, DELETE, OPTIONS");
    answer_free(&a);
}

static void says_why(void **state) {
    answer a = ask("POST", "/cache/why", "{\"prompt\":\"abcdefgh\"}", 200);
    assert_non_null(strstr(a.body, "\"prompt_tokens\":8,\"cached_tokens\":4,"));
    assert_non_null(strstr(a.body, "4 of 8 prompt tokens are found in the cache. There the prompt "
                                   "goes on with \\\"e\\\", and what is cached with \\\"!\\\"."));
    answer_free(&a);
    a = ask("POST", "/cache/why", SAY(""), 200);
    answer_free(&a);
    static const char *const wrong[] = {"{}", "{\"prompt\":7}", "{\"prompt\":[]}",
                                        "{\"prompt\":\"\"}", "{\"prompt\":[999]}"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        a = ask("POST", "/cache/why", wrong[i], 400);
        answer_free(&a);
    }
}

static void pins(void **state) {
    answer a = ask("POST", "/cache/pin", "{\"prompt\":[1,2,3],\"max_tokens\":9}", 200);
    assert_memory_equal(a.body, "{\"object\":\"cache.pin\",\"tokens\":3,\"ttl_seconds\":null", 50);
    stub_seen seen = stub_last();
    assert_true(seen.opts.max_tokens == 0 && isinf(seen.opts.pin) && !seen.opts.from_text);
    assert_string_equal(seen.tenant, "ann");
    answer_free(&a);
    a = ask("POST", "/cache/pin", SAY(",\"stream\":true,\"prompt_cache_options\":{\"ttl\":60}"),
            200);
    assert_true(stub_last().opts.pin == 60 && stub_last().opts.ttl == 0);
    answer_free(&a);
}

static serve_keys keys;

static int start(void **state) {
    static serve_opts opts = {.model_path = "/models/stub.gguf", .keys = &keys};
    assert_int_equal(serve_keys_add(&keys, "ann", "sk-ann", NULL), 0);
    fixture_start(&opts);
    return 0;
}

static int stop(void **state) {
    int rc = fixture_stop();
    serve_keys_fini(&keys);
    return rc;
}

int main(void) {
    fixture_block_signals();
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_wishes),
        cmocka_unit_test(refuses_nonsense),
        cmocka_unit_test(tells_in_headers_and_diagnostics),
        cmocka_unit_test(lists_and_drops),
        cmocka_unit_test(says_why),
        cmocka_unit_test(pins),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
