/* What an answer must look like: the fields that say so, and what the library is asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base.h"
#include "client.h"

#define COMPLETIONS "/v1/completions"
#define SAY(more) "{\"prompt\":\"x\"," more "}"
#define FORMAT(inner) SAY("\"response_format\":{" inner "}")

static void makes_grammars(void **state) {
    static const char *const table[][2] = {
        {FORMAT("\"type\":\"json_object\""), "json:"},
        {FORMAT("\"type\":\"json_object\",\"schema\":{\"type\":\"null\"}"),
         "schema:{\"type\":\"null\"}"},
        {FORMAT("\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,"
                "\"schema\":{\"const\":1}}"),
         "schema:{\"const\":1}"},
        {SAY("\"structured_outputs\":{\"json\":{\"const\":2}}"), "schema:{\"const\":2}"},
        {SAY("\"structured_outputs\":{\"regex\":\"a+\"}"), "regex:a+"},
        {SAY("\"structured_outputs\":{\"choice\":[\"a\",\"b\"]}"), "choice:a|b"},
        {SAY("\"structured_outputs\":{\"grammar\":\"root ::= \\\"a\\\"\"}"), "gbnf:root ::= \"a\""},
        {SAY("\"structured_outputs\":{\"json_object\":true}"), "json:"},
        {SAY("\"guided_json\":\"{\\\"const\\\":3}\""), "schema:{\"const\":3}"},
        {SAY("\"guided_regex\":\"b\""), "regex:b"},
        {SAY("\"guided_choice\":[\"x\"]"), "choice:x"},
        {SAY("\"guided_grammar\":\"root ::= x\""), "gbnf:root ::= x"},
        {SAY("\"grammar\":\"root ::= y\""), "gbnf:root ::= y"},
        {SAY("\"json_schema\":{\"const\":4}"), "schema:{\"const\":4}"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        answer a = client_post(COMPLETIONS, table[i][0]);
        if (a.status != 200) fail_msg("%s: %d %s", table[i][0], a.status, a.body);
        assert_string_equal(stub_grammar(), table[i][1]);
        answer_free(&a);
    }
    fixture_wait_idle();
    /* an answer reaches its reader a moment before the server lets go of the call */
    for (int i = 0; i < 10000 && stub_grammars() > 0; i++) usleep(1000);
    assert_int_equal(stub_grammars(), 0);
}

static void takes_none_where_none_is_meant(void **state) {
    static const char *const table[] = {
        FORMAT("\"type\":\"text\""),
        SAY("\"grammar\":\"\""),
        SAY("\"guided_json\":null"),
        SAY("\"structured_outputs\":{\"json_object\":false}"),
    };
    answer a = client_post(COMPLETIONS, SAY("\"guided_regex\":\"marker\""));
    answer_free(&a);
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        a = client_post(COMPLETIONS, table[i]);
        assert_int_equal(a.status, 200);
        assert_string_equal(stub_grammar(), "regex:marker");
        answer_free(&a);
    }
    fixture_wait_idle();
}

static void names_the_field(void **state) {
    static const char *const table[][3] = {
        {FORMAT("\"type\":\"json\""), "response_format.type", "invalid_value"},
        {FORMAT("\"type\":\"json_schema\""), "response_format.json_schema.schema", "missing_field"},
        {FORMAT("\"type\":7"), "response_format.type", "invalid_type"},
        {SAY("\"response_format\":[]"), "response_format", "invalid_type"},
        {FORMAT("\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"x\":\"@bad\"}}"),
         "response_format", "invalid_value"},
        {SAY("\"guided_regex\":\"@hard\""), "guided_regex", "unsupported"},
        {SAY("\"guided_regex\":5"), "guided_regex", "invalid_type"},
        {SAY("\"guided_choice\":\"a\""), "guided_choice", "invalid_type"},
        {SAY("\"structured_outputs\":{\"choice\":[1]}"), "structured_outputs.choice",
         "invalid_type"},
        {SAY("\"structured_outputs\":{\"structural_tag\":\"x\"}"),
         "structured_outputs.structural_tag", "unsupported"},
        {SAY("\"guided_regex\":\"a\",\"grammar\":\"b\""), "grammar", "invalid_value"},
        {SAY("\"structured_outputs\":{\"json\":{},\"regex\":\"b\"}"), "structured_outputs.regex",
         "invalid_value"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        char param[80], code[80];
        snprintf(param, sizeof param, "\"%s\"", table[i][1]);
        snprintf(code, sizeof code, "\"%s\"", table[i][2]);
        answer a = client_post(COMPLETIONS, table[i][0]);
        if (a.status != 400 || strcmp(json_at(a.body, "/error/param"), param) != 0 ||
            strcmp(json_at(a.body, "/error/code"), code) != 0)
            fail_msg("%s: %d %s", table[i][0], a.status, a.body);
        answer_free(&a);
    }
    fixture_wait_idle();
    assert_int_equal(stub_grammars(), 0);
}

int main(void) {
    fixture_block_signals();
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_grammars),
        cmocka_unit_test(takes_none_where_none_is_meant),
        cmocka_unit_test(names_the_field),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_take_down);
}
