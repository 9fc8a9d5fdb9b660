/* Free text with calls in it: what follows is checked against strstr and against parsed JSON. What
 * the calls of each dialect look like is test_strict_calls.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base.h"
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

static grammar *compile_dialect(const grammar_dialect *d, const grammar_call *calls, size_t n) {
    grammar_vocab *v = bytes_vocab();
    grammar *g = NULL;
    icp_error err = {0};
    int rc = grammar_from_calls(v, d, calls, n, NULL, &g, &err);
    if (rc < 0) fail_msg("%s", err.text);
    grammar_vocab_unref(&v);
    return g;
}

/* Calls of JSON, each behind a marker. */
static grammar *compile(const char *marker, const grammar_call *calls, size_t n) {
    const grammar_dialect d = {.call = marker, .ends = true};
    return compile_dialect(&d, calls, n);
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

/* Every text of up to seven letters: without a marker it is complete; with it a call must follow.
 * Markers may have their own beginnings in them, and one may stand in the other. */
static void test_text(void **state) {
    static const char *const markers[][2] = {{"<ab", NULL}, {"<<a", NULL},  {"<a<b", NULL},
                                             {"a", NULL},   {"<ab", "<b<"}, {"<<<", "a<"}};
    static const char letters[] = "<abx";
    static const grammar_call call = {STR("!"), STR("{\"type\":\"boolean\"}"), STR("?")};
    for (size_t k = 0; k < COUNT_OF(markers); k++) {
        const char *one = markers[k][0], *other = markers[k][1];
        const grammar_dialect d = {.call = one, .section = other, .ends = true};
        grammar *g = compile_dialect(&d, &call, 1);
        for (int n = 0; n < 1 << 14; n++) {
            char text[9] = {0};
            for (int i = 0; i < 7 && (i == 0 || n >> (2 * i)); i++)
                text[i] = letters[n >> (2 * i) & 3];
            const char *first = strstr(text, one), *second = other ? strstr(text, other) : NULL;
            const char *end = first ? first + strlen(one) : NULL;
            bool is_section = second && (!end || second + strlen(other) < end);
            if (is_section) end = second + strlen(other);
            /* in a section the mark of a call comes first */
            int expected = !end ? 2 : !*end ? 1 : is_section ? -1 : 0;
            if (expected >= 0 && follows(g, text) != expected)
                fail_msg("%s: %d", text, follows(g, text));
        }
        grammar_unref(&g);
    }
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

/* Special tokens stand in free text, and in a mark that is one; the mark in letters is text. */
static void test_tokens(void **state) {
    static const char *const tokens[] = {"<c>", "<d>"};
    static const grammar_call call = {STR("!"), STR("{\"type\":\"boolean\"}"), STR("\xff<d>\xfe")};
    const grammar_dialect d = {
        .call = "\xff<c>\xfe", .ends = true, .tokens = tokens, .n_tokens = COUNT_OF(tokens)};
    static const struct {
        const char *text;
        int follows;
    } table[] = {
        {"<c>!", 2},         {"\xf8 \xff<d>\xfe <c>", 2}, {"\xff<c>\xfe!true\xff<d>\xfe.", 2},
        {"\xff<c>\xfe ", 0}, {"\xff<c>\xfe!\xf8", 0},     {"\xff<c>\xfe!true<d>", 0},
        {"\xff<x>\xfe", 0},
    };
    grammar *g = compile_dialect(&d, &call, 1);
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (follows(g, table[i].text) != table[i].follows) fail_msg("%s", table[i].text);
    grammar_unref(&g);
}

/* A text that begins with a bracket is a list of calls; others are free. */
static void test_bare(void **state) {
    static const grammar_call calls[] = {
        {STR("f("), STR("{\"properties\":{\"a\":{\"type\":\"boolean\"}},\"required\":[\"a\"]}"),
         STR(")")},
        {STR("g("), {NULL, 0}, STR(")")}};
    const grammar_dialect d = {.arguments = ARGUMENTS_LITERAL,
                               .section = "<s>",
                               .section_end = "</s>",
                               .listed = true,
                               .bare = '[',
                               .thought_end = "</t>",
                               .assign = '='};
    static const struct {
        const char *text;
        int follows;
    } table[] = {
        {" \n[f(a=True)]", 2},
        {"[f(a=false), g(x=\"y\", z=None)]", 2},
        {"[1]", 0},
        {"x[1]", 2},
        {"[f()]", 0},
        {"[f(a=1)]", 0},
        {"[g()] x", 0},
        {"[ g() ]", 2},
        {"why [</t>\n[g()]", 2},
        {"why [</t>\n[1]", 0},
        {"<s>[g()]</s> [1] <s>", 1},
        {"<s>g()</s>", 2},
        {"<s>g()", 1},
        {"<s>h", 0},
    };
    grammar *g = compile_dialect(&d, calls, 2);
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (follows(g, table[i].text) != table[i].follows) fail_msg("%s", table[i].text);
    grammar_unref(&g);
}

static enum grammar_value no_text(void *arg, const char *key) {
    return VALUE_JSON;
}

static void test_refusals(void **state) {
    static const grammar_call wrong = {STR("!"), STR("{\"type\":\"nonsense\"}"), STR("?")};
    static const grammar_call fine = {STR("!"), {NULL, 0}, STR("?")};
    /* what dialects cannot write whose arguments are no JSON */
    static const char *const schemas[] = {
        "{\"anyOf\":[{\"type\":\"object\"}]}",
        "{\"type\":\"array\"}",
        "true",
        "{\"properties\":{\"a=b\":{}}}",
        "{\"properties\":{\" a\":{}}}",
        "{\"properties\":{\"a\":{}},\"minProperties\":1}",
        "{\"properties\":{\"a\":{\"not\":{}}}}",
    };
    const grammar_dialect json = {.call = "<a>"}, none = {.ends = true};
    const grammar_dialect keyed = {.arguments = ARGUMENTS_KEYED,
                                   .call = "<a>",
                                   .key = "<k=",
                                   .key_end = ">",
                                   .value_end = "</k>",
                                   .value_of = no_text};
    grammar_vocab *v = bytes_vocab();
    grammar *g = NULL;
    icp_error err = {0};
    assert_int_equal(grammar_from_calls(v, &none, &fine, 1, NULL, &g, &err), ICP_EINVALID);
    assert_true(grammar_from_calls(v, &json, &wrong, 1, NULL, &g, &err) < 0);
    assert_true(err.text[0]);
    assert_int_equal(grammar_from_calls(v, &json, NULL, 0, NULL, &g, &err), ICP_EINVALID);
    for (size_t i = 0; i < COUNT_OF(schemas); i++) {
        const grammar_call call = {STR("!"), {schemas[i], strlen(schemas[i])}, STR("?")};
        if (grammar_from_calls(v, &keyed, &call, 1, NULL, &g, &err) != ICP_EUNSUPPORTED)
            fail_msg("%s: %s", schemas[i], err.text);
    }
    grammar_vocab_unref(&v);
}

static void test_no_memory(void **state) {
    static const grammar_call call = {
        STR("!"), STR("{\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"enum\":[1]}}}"),
        STR("?")};
    const grammar_dialect d = {.arguments = ARGUMENTS_KEYED,
                               .section = "<s>",
                               .section_end = "</s>",
                               .call = "<a>",
                               .key = "<k=",
                               .key_end = ">",
                               .value_end = "</k>",
                               .value_of = no_text};
    grammar_vocab *v = bytes_vocab();
    int rc = ICP_ENOMEM;
    for (long n = 0; rc == ICP_ENOMEM; n += 1 + n / 50) {
        grammar *g = NULL;
        icp_error err = {0};
        mem_fail_after(n);
        rc = grammar_from_calls(v, &d, &call, 1, NULL, &g, &err);
        mem_fail_after(-1);
        assert_true(rc == 0 || rc == ICP_ENOMEM);
        grammar_unref(&g);
    }
    grammar_vocab_unref(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),     cmocka_unit_test(test_calls),
        cmocka_unit_test(test_tokens),   cmocka_unit_test(test_bare),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
