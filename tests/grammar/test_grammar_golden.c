/* Texts that other implementations say do or do not satisfy a schema or regular expression
 * (tests/golden/grammar); and random texts of each schema's grammar, which must satisfy it. */
#include "grammar_bed.h"

#include <stdio.h>
#include <string.h>

#include "schema_check.h"

static json_object *cases;

static int open_cases(void **state) {
    cases = json_object_from_file(GOLDEN_DIR "/grammar/cases.json");
    return cases ? bed_open(state) : -1;
}

static int close_cases(void **state) {
    json_object_put(cases);
    return bed_close(state);
}

static void check_texts(grammar *g, const char *source, json_object *texts, bool expected) {
    for (size_t i = 0; i < json_object_array_length(texts); i++) {
        json_object *text = json_object_array_get_idx(texts, i);
        size_t len = (size_t)json_object_get_string_len(text);
        if (bed_accepts(g, json_object_get_string(text), len) != expected)
            fail_msg("%s must %saccept %s", source, expected ? "" : "not ",
                     json_object_get_string(text));
    }
}

static void check_case(json_object *one, enum source kind, const char *name, const char *good,
                       const char *bad) {
    const char *source = json_object_get_string(json_object_object_get(one, name));
    grammar *g = bed_grammar(kind, source);
    check_texts(g, source, json_object_object_get(one, good), true);
    check_texts(g, source, json_object_object_get(one, bad), false);
    grammar_unref(&g);
}

static void schemas_agree(void **state) {
    json_object *list = json_object_object_get(cases, "schemas");
    assert_true(json_object_array_length(list) > 80);
    for (size_t i = 0; i < json_object_array_length(list); i++)
        check_case(json_object_array_get_idx(list, i), SCHEMA, "schema", "valid", "invalid");
}

static void regexes_agree(void **state) {
    json_object *list = json_object_object_get(cases, "regexes");
    assert_true(json_object_array_length(list) > 50);
    for (size_t i = 0; i < json_object_array_length(list); i++)
        check_case(json_object_array_get_idx(list, i), REGEX, "regex", "match", "other");
}

static json_object *parse(const char *text, size_t len) {
    json_tokener *tokener = json_tokener_new_ex(200);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    buf ascii = {0};
    buf_put_ascii_json(&ascii, text, len);
    json_object *value = json_tokener_parse_ex(tokener, ascii.data, (int)ascii.len + 1);
    if (json_tokener_get_error(tokener) != json_tokener_success) fail_msg("no JSON: %s", text);
    json_tokener_free(tokener);
    buf_fini(&ascii);
    return value;
}

static void walks_are_valid(void **state) {
    enum { WALKS = 12 };
    json_object *list = json_object_object_get(cases, "schemas");
    buf text = {0};
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        const char *source = json_object_get_string(
            json_object_object_get(json_object_array_get_idx(list, i), "schema"));
        if (strstr(source, "\"pattern\": \"b\"") || strstr(source, "\\\\d")) continue; /* no end */
        grammar *g = bed_grammar(SCHEMA, source);
        json_object *schema = parse(source, strlen(source));
        for (uint64_t seed = 0; seed < WALKS; seed++) {
            bed_walk(g, seed * 1000 + i, &text);
            json_object *value = parse(text.data, text.len);
            if (!schema_allows(schema, schema, value)) fail_msg("%s gave %s", source, text.data);
            json_object_put(value);
        }
        json_object_put(schema);
        grammar_unref(&g);
    }
    buf_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_agree),
        cmocka_unit_test(regexes_agree),
        cmocka_unit_test(walks_are_valid),
    };
    return cmocka_run_group_tests(tests, open_cases, close_cases);
}
