/* Free text with calls in it: what follows is checked against strstr and against parsed JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "grammar.h"

#define STR(text)                                                                                  \
    { text, sizeof text - 1 }

static grammar_vocab *bytes_vocab(void) {
    static char bytes[256];
    grammar_str tokens[256];
    grammar_vocab *v = NULL;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (grammar_str){&bytes[i], 1};
    }
    assert_int_equal(grammar_vocab_new(tokens, 256, &v), 0);
    return v;
}

static grammar *compile(const char *marker, const grammar_call *calls, size_t n) {
    grammar_vocab *v = bytes_vocab();
    grammar *g = NULL;
    icp_error err = {0};
    int rc = grammar_from_calls(v, marker, calls, n, NULL, &g, &err);
    if (rc < 0) fail_msg("%s", err.text);
    grammar_vocab_unref(&v);
    return g;
}

/* 0: cannot begin so; 1: may go on; 2: may end here. */
static int follows(grammar *g, const char *text) {
    matcher *m = NULL;
    assert_int_equal(matcher_new(g, &m), 0);
    int rc = matcher_put(m, text, strlen(text));
    int result = rc < 0 ? 0 : matcher_can_end(m) ? 2 : 1;
    matcher_free(&m);
    return result;
}

/* Every text of up to eight letters: without the marker it is complete; with it a call must follow.
 */
static void test_text(void **state) {
    static const char letters[] = "<abx";
    static const grammar_call call = {STR("!"), STR("{\"type\":\"boolean\"}"), STR("?")};
    grammar *g = compile("<ab", &call, 1);
    for (int len = 0; len <= 7; len++) {
        for (int n = 0; n < 1 << (2 * len); n++) {
            char text[9] = {0};
            for (int i = 0; i < len; i++) text[i] = letters[n >> (2 * i) & 3];
            const char *marker = strstr(text, "<ab");
            int expected = !marker ? 2 : marker[3] ? 0 : 1;
            if (follows(g, text) != expected) fail_msg("%s: %d", text, follows(g, text));
        }
    }
    grammar_unref(&g);
}

static void test_calls(void **state) {
    static const grammar_call calls[] = {
        {STR(" f "),
         STR("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":"
             "[\"a\"],\"additionalProperties\":false}"),
         STR("</c>")},
        {STR(" g "), {NULL, 0}, STR("</c>")},
    };
    static const struct {
        const char *text;
        int follows;
    } table[] = {
        {"", 2},
        {"Hello <c", 2},
        {"<c>", 1},
        {"<c> f {\"a\": 1}</c>", 2},
        {"<c> f {\"a\": 1}</c> and <c> g {\"x\": [1, \"<c>\"]}</c>.", 2},
        {"<c> f {\"a\": \"1\"", 0},
        {"<c> f {\"b\"", 0},
        {"<c> f {}", 0},
        {"<c> g {}</c>\xe2\x82\xac", 2},
        {"<c> h", 0},
        {"<c> g []", 0},
        {"<c> f {\"a\": 1}", 1},
    };
    grammar *g = compile("<c>", calls, 2);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (follows(g, table[i].text) != table[i].follows) fail_msg("%s", table[i].text);
    grammar_unref(&g);
}

static void test_refusals(void **state) {
    static const grammar_call call = {STR("!"), STR("{\"type\":\"nonsense\"}"), STR("?")};
    static const grammar_call fine = {STR("!"), {NULL, 0}, STR("?")};
    grammar_vocab *v = bytes_vocab();
    grammar *g = NULL;
    icp_error err = {0};
    assert_int_equal(grammar_from_calls(v, "<<a", &fine, 1, NULL, &g, &err), ICP_EUNSUPPORTED);
    assert_int_equal(grammar_from_calls(v, "", &fine, 1, NULL, &g, &err), ICP_EUNSUPPORTED);
    assert_true(grammar_from_calls(v, "<a>", &call, 1, NULL, &g, &err) < 0);
    assert_true(err.text[0]);
    assert_int_equal(grammar_from_calls(v, "<a>", NULL, 0, NULL, &g, &err), ICP_EINVALID);
    grammar_vocab_unref(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
