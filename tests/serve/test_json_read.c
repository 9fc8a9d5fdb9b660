/* The checked reader: what is JSON (RFC 8259) and what a field takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "generation.h"

/* NULL: parses; else a word of the complaint. */
static void check(const char *text, size_t len, const char *complaint) {
    reply error = {0};
    json_object *root = json_parse(text, len, json_type_object, &error);
    if (!complaint) {
        if (!root) fail_msg("%.40s: %s", text, error.message);
    } else {
        if (root) fail_msg("%.40s parses", text);
        assert_int_equal(error.status, 400);
        if (!strstr(error.message, complaint)) fail_msg("%s: %s", text, error.message);
    }
    json_object_put(root);
    reply_fini(&error);
}

static void parses_json_only(void **state) {
    static const struct {
        const char *text, *complaint;
    } table[] = {
        {"{}", NULL},
        {" \t\r\n{ } \n", NULL},
        {"{\"a\":[1,2.5,-3e7,true,false,null,\"x\"]}", NULL},
        {"{\"a\":\"\\u0000\\n\\\"\\\\\"}", NULL},
        {"{\"a\":\"\xf0\x9f\x98\x80\"}", NULL},
        {"{\"a\":\"\\\\\"}", NULL},
        {"", "empty"},
        {"   ", "byte"},
        {"{", "byte 1"},
        {"{\"a\":1", "byte 6"},
        {"{\"a\":}", "byte 5"},
        {"{\"a\" 1}", "byte 5"},
        {"{'a':1}", "byte 1"},
        {"{\"a\":1,}", "byte 7"},
        {"{\"a\":1} x", "byte 8"},
        {"{\"a\":1}{}", "byte 7"},
        {"{\"a\":tru}", "byte"},
        {"{\"a\":01}", "byte"},
        {"{/*c*/}", "byte 1"},
        {"[1]", "must be a JSON object, not an array"},
        {"12", "must be a JSON object, not an integer"},
        {"null", "must be a JSON object, not null"},
        {"\"x\"", "must be a JSON object, not a string"},
        {"{\"a\":\"\xff\"}", "invalid UTF-8 at byte 6"},
        {"{\"a\":\"\xc0\xaf\"}", "invalid UTF-8 at byte 6"},         /* overlong */
        {"{\"a\":\"\xed\xa0\x80\"}", "invalid UTF-8 at byte 6"},     /* surrogate */
        {"{\"a\":\"\xf4\x90\x80\x80\"}", "invalid UTF-8 at byte 6"}, /* > U+10FFFF */
        {"{\"a\":\"\xe2\x82\"}", "invalid UTF-8 at byte 6"},
        {"{\"a\":\"\\\xff\"}", "invalid UTF-8 at byte 7"},
        {"{\"a\":\"x\ny\"}", "control character in a string at byte 7"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++)
        check(table[i].text, strlen(table[i].text), table[i].complaint);
    check("{}\0{}", 5, "byte 2");
}

static void limits_depth_and_cost(void **state) {
    buf deep = {0};
    for (int i = 0; i < 300000; i++) buf_puts(&deep, "{\"a\":");
    check(deep.data, deep.len, "nested deeper than 64");
    buf_clear(&deep);
    buf_puts(&deep, "{\"a\":");
    for (int i = 0; i < 60; i++) buf_putc(&deep, '[');
    for (int i = 0; i < 60; i++) buf_putc(&deep, ']');
    buf_puts(&deep, "}");
    check(deep.data, deep.len, NULL);
    buf_clear(&deep);
    buf_puts(&deep, "{\"a\":[");
    for (int i = 0; i < 1000000; i++) buf_puts(&deep, "[],");
    buf_puts(&deep, "0]}");
    check(deep.data, deep.len, "too many JSON values");
    buf_clear(&deep);
    buf_puts(&deep, "{\"a\":\"");
    for (int i = 0; i < 3000000; i++) buf_puts(&deep, ",[");
    buf_puts(&deep, "\"}"); /* punctuation in a string costs nothing */
    check(deep.data, deep.len, NULL);
    buf_fini(&deep);
}

struct target {
    bool flag;
    int whole;
    float real;
};

static const field table[] = {
    {"flag", FIELD_BOOL, offsetof(struct target, flag), 0, 0},
    {"whole", FIELD_INT, offsetof(struct target, whole), -3, 2147483647},
    {"real", FIELD_FLOAT, offsetof(struct target, real), 0, 2},
};

static void reads_fields(void **state) {
    static const struct {
        const char *text, *param; /* param: of the error */
    } cases[] = {
        {"{}", NULL},
        {"{\"flag\":null,\"whole\":null,\"real\":null,\"other\":[]}", NULL},
        {"{\"flag\":true,\"whole\":-3,\"real\":0}", NULL},
        {"{\"whole\":2147483647,\"real\":2.0}", NULL},
        {"{\"flag\":1}", "in.flag"},
        {"{\"flag\":\"true\"}", "in.flag"},
        {"{\"whole\":-4}", "in.whole"},
        {"{\"whole\":2147483648}", "in.whole"},
        {"{\"whole\":99999999999999999999999}", "in.whole"},
        {"{\"whole\":1.5}", "in.whole"},
        {"{\"whole\":\"1\"}", "in.whole"},
        {"{\"whole\":true}", "in.whole"},
        {"{\"real\":-0.1}", "in.real"},
        {"{\"real\":2.1}", "in.real"},
        {"{\"real\":NaN}", "in.real"},
        {"{\"real\":Infinity}", "in.real"},
        {"{\"real\":1e999}", "in.real"},
        {"{\"real\":[1]}", "in.real"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        reply error = {0};
        struct target t = {.whole = 7, .real = 0.5f};
        json_object *root =
            json_parse(cases[i].text, strlen(cases[i].text), json_type_object, &error);
        assert_non_null(root);
        bool ok = fields_read(root, "in.", table, COUNT_OF(table), &t, &error);
        assert_int_equal(ok, cases[i].param == NULL);
        if (cases[i].param && strcmp(error.param, cases[i].param) != 0)
            fail_msg("%s: %s", cases[i].text, error.message);
        json_object_put(root);
        reply_fini(&error);
    }
}

static void reads_token_ids(void **state) {
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {
        {"{\"a\":[0,5,99]}", true},      {"{\"a\":[]}", true},
        {"{\"a\":[100]}", false},        {"{\"a\":[-1]}", false},
        {"{\"a\":[4294967297]}", false}, {"{\"a\":[1.0]}", false},
        {"{\"a\":[true]}", false},       {"{\"a\":[\"1\"]}", false},
        {"{\"a\":[null]}", false},       {"{\"a\":[18446744073709551615]}", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        reply error = {0};
        icp_tokens ids = {0};
        json_object *root =
            json_parse(cases[i].text, strlen(cases[i].text), json_type_object, &error);
        assert_int_equal(json_token_ids(field_get(root, "a"), "a", 100, &ids, &error), cases[i].ok);
        assert_int_equal(error.status, cases[i].ok ? 0 : 400);
        icp_tokens_free(&ids);
        json_object_put(root);
        reply_fini(&error);
    }
}

static void errors_are_capped_and_escaped(void **state) {
    reply error = {0};
    char *long_text = malloc(100001);
    memset(long_text, 'x', 100000);
    memcpy(long_text, "\"\n\x01\xff</script>", 13);
    long_text[100000] = 0;
    reply_error(&error, 400, "code", "param", "Value: %s.", long_text);
    put_error(&error.body, &error, FORM_OPENAI, "");
    assert_true(error.body.len < 4000);
    json_object *root = json_tokener_parse(error.body.data);
    assert_non_null(root);
    json_object_put(root);
    reply_error(&error, 500, NULL, NULL, "second");
    assert_int_equal(error.status, 400); /* the first one stays */
    reply_fini(&error);
    free(long_text);
}

static void survives_failing_allocations(void **state) {
    static const char text[] = "{\"stop\":[\"a\",\"b\"],\"stop_token_ids\":[1,2],\"logit_bias\":"
                               "{\"3\":1},\"seed\":1}";
    bool finished = false;
    for (long n = 0; !finished; n++) {
        reply error = {0};
        generate_opts opts;
        json_object *root = json_parse(text, sizeof text - 1, json_type_object, &error);
        mem_fail_after(n);
        finished = generate_opts_read(&opts, root, 100, &error);
        mem_fail_after(-1);
        assert_int_equal(error.status, finished ? 0 : 503);
        generate_opts_fini(&opts);
        json_object_put(root);
        reply_fini(&error);
        assert_true(n < 24);
    }
}

/* Characters that json-c would take for halves of others (U+1DF00, U+2DD75), raw and escaped, in
 * values and keys, beside what stands in for them. Expected bytes: RFC 3629. */
static void reads_every_character(void **state) {
#define IPA "\xf0\x9d\xbc\x80"
#define HAN "\xf0\xad\xb5\xb5"
#define STAND_IN "\xef\xb7\x90"
    static const char text[] =
        "{\"" HAN "\":[\"a" IPA "b\",\"\\ud837\\udf00\",\"\\\\uD877\\uDD75" STAND_IN "\\ufdd0\",1],"
        "\"z\":{\"\\ud877\\udd75\":null},\"plain\":\"\\ud83d\\ude00\\ud877\"}";
    static const char *const values[] = {"a" IPA "b", IPA, "\\uD877\xef\xbf\xbd" STAND_IN STAND_IN};
    reply error = {0};
    json_object *root = json_parse(text, sizeof text - 1, json_type_object, &error);
    if (!root) fail_msg("%s", error.message);
    json_object *list = field_get(root, HAN);
    assert_non_null(list);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        assert_string_equal(json_object_get_string(json_object_array_get_idx(list, i)), values[i]);
    assert_true(json_object_object_get_ex(field_get(root, "z"), HAN, NULL));
    assert_string_equal(json_object_get_string(field_get(root, "plain")),
                        "\xf0\x9f\x98\x80\xef\xbf\xbd");
    json_object_put(root);
}

/* Running out of memory anywhere is said, and leaves nothing behind. */
static void reads_without_memory(void **state) {
    static const char text[] = "{\"" HAN "\":[\"" IPA "\",{\"a\":\"b\"}]}";
    for (long n = 0;; n++) {
        reply error = {0};
        mem_fail_after(n);
        json_object *root = json_parse(text, sizeof text - 1, json_type_object, &error);
        mem_fail_after(-1);
        if (root) {
            json_object_put(root);
            return;
        }
        assert_int_equal(error.status, 503);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_json_only),
        cmocka_unit_test(reads_every_character),
        cmocka_unit_test(reads_without_memory),
        cmocka_unit_test(limits_depth_and_cost),
        cmocka_unit_test(reads_fields),
        cmocka_unit_test(reads_token_ids),
        cmocka_unit_test(errors_are_capped_and_escaped),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
