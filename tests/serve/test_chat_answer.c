/* Answers of chats taken apart: reasoning, text and calls, at once and as a stream, in every API.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "base.h"
#include "client.h"

#define CHAT "/v1/chat/completions"
#define TOOL(name)                                                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name                                        \
    "\",\"parameters\":{\"type\":\"object\","                                                      \
    "\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}}}"
#define TOOLS "\"tools\":[" TOOL("weather") "," TOOL("news") "]"
/* A chat body whose answer is `reply`. */
#define ASK(reply, more)                                                                           \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"@reply=" reply ";\"}]," more "}"
#define CALLED(name, city, days)                                                                   \
    "<tool_call><function=" name "><parameter=city>" city "</parameter><parameter=days>" days      \
    "</parameter></function></tool_call>"
#define ANSWER                                                                                     \
    "<think>Hm. </think>Look: " CALLED("weather", "Bonn", "3") " " CALLED("news", "Ulm", "4")

static answer ask(const char *path, const char *body) {
    answer a = client_post(path, body);
    if (a.status != 200) fail_msg("%s: %d %s", body, a.status, a.body);
    assert_true(a.complete);
    return a;
}

static void gives_parts(void **state) {
    answer a = ask(CHAT, ASK(ANSWER, TOOLS));
    assert_string_equal(json_at(a.body, "/choices/0/message/content"), "\"Look:\"");
    assert_string_equal(json_at(a.body, "/choices/0/message/reasoning_content"), "\"Hm.\"");
    assert_string_equal(json_at(a.body, "/choices/0/message/reasoning"), "\"Hm.\"");
    assert_string_equal(json_at(a.body, "/choices/0/message/tool_calls/0/function/name"),
                        "\"weather\"");
    assert_string_equal(json_at(a.body, "/choices/0/message/tool_calls/0/function/arguments"),
                        "\"{\\\"city\\\": \\\"Bonn\\\", \\\"days\\\": 3}\"");
    assert_string_equal(json_at(a.body, "/choices/0/message/tool_calls/0/type"), "\"function\"");
    assert_string_equal(json_at(a.body, "/choices/0/message/tool_calls/1/function/arguments"),
                        "\"{\\\"city\\\": \\\"Ulm\\\", \\\"days\\\": 4}\"");
    assert_memory_equal(json_at(a.body, "/choices/0/message/tool_calls/1/id"), "\"call_", 6);
    assert_string_not_equal(json_at(a.body, "/choices/0/message/tool_calls/0/id"),
                            json_at(a.body, "/choices/0/message/tool_calls/1/id"));
    assert_string_equal(json_at(a.body, "/choices/0/finish_reason"), "\"tool_calls\"");
    /* A token is a byte: those after <think> up to and with </think>. */
    assert_string_equal(json_at(a.body, "/usage/completion_tokens_details/reasoning_tokens"), "12");
    answer_free(&a);
    /* Calls alone have no content. */
    a = ask(CHAT, ASK(CALLED("weather", "Bonn", "3"), TOOLS));
    assert_string_equal(json_at(a.body, "/choices/0/message/content"), "null");
    answer_free(&a);
    /* The template may have begun the reasoning. */
    a = ask(CHAT, ASK("Hm.</think>Yes", "\"stop\":\"@opened;\""));
    answer_free(&a);
    a = ask(CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"@opened;@reply=Hm.</think>Yes;\"}]}");
    assert_string_equal(json_at(a.body, "/choices/0/message/reasoning_content"), "\"Hm.\"");
    assert_string_equal(json_at(a.body, "/choices/0/message/content"), "\"Yes\"");
    assert_string_equal(json_at(a.body, "/choices/0/finish_reason"), "\"stop\"");
    answer_free(&a);
}

/* What the deltas of a stream add up to, and that ids and names come once. */
static void streams_parts(void **state) {
    answer a = ask(
        CHAT, ASK(ANSWER, TOOLS ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    char content[64] = "", reasoning[64] = "", arguments[2][128] = {"", ""};
    int ids[2] = {0}, names[2] = {0}, finished = 0, begun = 0, usages = 0;
    for (char *line = strtok(a.body, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "data: {", 7) != 0) continue;
        json_object *chunk = json_tokener_parse(line + 6), *delta, *value;
        assert_non_null(chunk);
        if (json_pointer_get(chunk, "/usage/completion_tokens_details/reasoning_tokens", &value) ==
            0)
            usages += json_object_get_int(value) == 12;
        if (json_pointer_get(chunk, "/choices/0/finish_reason", &value) == 0 && value) {
            assert_string_equal(json_object_get_string(value), "tool_calls");
            finished++;
        }
        if (json_pointer_get(chunk, "/choices/0/delta", &delta) == 0) {
            begun += json_object_object_get_ex(delta, "role", NULL);
            if (json_object_object_get_ex(delta, "content", &value))
                strcat(content, json_object_get_string(value));
            if (json_object_object_get_ex(delta, "reasoning_content", &value))
                strcat(reasoning, json_object_get_string(value));
            if (json_object_object_get_ex(delta, "tool_calls", &value)) {
                assert_int_equal(json_object_array_length(value), 1);
                json_object *call = json_object_array_get_idx(value, 0);
                int i = json_object_get_int(json_object_object_get(call, "index"));
                assert_in_range(i, 0, 1);
                ids[i] += json_object_object_get_ex(call, "id", NULL);
                json_object *function = json_object_object_get(call, "function");
                names[i] += json_object_object_get_ex(function, "name", NULL);
                strcat(arguments[i],
                       json_object_get_string(json_object_object_get(function, "arguments")));
            }
        }
        json_object_put(chunk);
    }
    assert_int_equal(begun, 1);
    assert_int_equal(finished, 1);
    assert_int_equal(usages, 1);
    assert_string_equal(content, "Look:");
    assert_string_equal(reasoning, "Hm.");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ids[i], 1);
        assert_int_equal(names[i], 1);
    }
    assert_string_equal(arguments[0], "{\"city\": \"Bonn\", \"days\": 3}");
    assert_string_equal(arguments[1], "{\"city\": \"Ulm\", \"days\": 4}");
    answer_free(&a);
}

static void honours_choice(void **state) {
    /* none, or no tools: calls are text */
    answer a = ask(CHAT, ASK(CALLED("weather", "Bonn", "3"), TOOLS ",\"tool_choice\":\"none\""));
    assert_string_equal(json_at(a.body, "/choices/0/message/tool_calls"), "");
    assert_string_equal(json_at(a.body, "/choices/0/finish_reason"), "\"stop\"");
    answer_free(&a);
    a = ask(CHAT, ASK("a <tool_call>", "\"tools\":[]"));
    assert_string_equal(json_at(a.body, "/choices/0/message/content"), "\"a <tool_call>\"");
    answer_free(&a);
    a = ask(CHAT, ASK(ANSWER, TOOLS ",\"parallel_tool_calls\":false"));
    assert_string_equal(json_at(a.body, "/choices/0/message/tool_calls/0/function/name"),
                        "\"weather\"");
    assert_string_equal(json_at(a.body, "/choices/0/message/tool_calls/1"), "");
    answer_free(&a);
    a = ask(CHAT,
            ASK(ANSWER, TOOLS
                ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
                "\"auto\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"news\"}}]}}"));
    assert_string_equal(json_at(a.body, "/choices/0/finish_reason"), "\"tool_calls\"");
    answer_free(&a);
    static const char *const wrong[][2] = {
        {ASK("x", TOOLS ",\"tool_choice\":\"sometimes\""), "\"tool_choice\""},
        {ASK("x", TOOLS ",\"tool_choice\":7"), "\"tool_choice\""},
        {ASK("x", TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"),
         "\"tool_choice\""},
        {ASK("x", TOOLS ",\"tool_choice\":{\"type\":\"function\"}"),
         "\"tool_choice.function.name\""},
        {ASK("x", "\"tool_choice\":\"required\""), "\"tool_choice\""},
        {ASK("x", TOOLS ",\"parallel_tool_calls\":1"), "\"parallel_tool_calls\""},
        {ASK("x", TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{}}"),
         "\"tool_choice.allowed_tools\""},
        {ASK("x", "\"tools\":[{\"type\":\"function\",\"function\":{}}],\"tool_choice\":{\"type\":"
                  "\"function\",\"function\":{\"name\":\"f\"}}"),
         "\"tools[0].function.name\""},
        {ASK("x", "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":7}}]"),
         "\"tools[0].function.name\""},
        {ASK("x", "\"tools\":[\"f\"]"), "\"tools\""},
        {ASK("x", "\"tools\":[{\"type\":\"search\"}],\"tool_choice\":{\"type\":\"function\","
                  "\"function\":{\"name\":\"f\"}}"),
         "\"tool_choice\""},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        a = client_post(CHAT, wrong[i][0]);
        if (a.status != 400 || strcmp(json_at(a.body, "/error/param"), wrong[i][1]) != 0)
            fail_msg("%s: %d %s", wrong[i][0], a.status, a.body);
        answer_free(&a);
    }
}

/* What must be called is said by a grammar: the schema of a call of any, or of the one. */
static void forces_calls(void **state) {
    static const char any[] = "schema:{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":"
                              "{\"const\":\"weather\"},\"arguments\":{\"type\":\"object\"";
    static const char one[] = "schema:{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":"
                              "{\"const\":\"news\"}";
    answer a = ask(CHAT, ASK("x", TOOLS ",\"tool_choice\":\"required\""));
    assert_memory_equal(stub_grammar(), any, sizeof any - 1);
    answer_free(&a);
    a = ask(CHAT, ASK("x", TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":"
                                 "\"news\"}},\"response_format\":{\"type\":\"json_object\"}"));
    assert_memory_equal(stub_grammar(), one, sizeof one - 1);
    answer_free(&a);
    a = ask(CHAT, ASK("x", TOOLS ",\"response_format\":{\"type\":\"json_object\"}"));
    assert_string_equal(stub_grammar(), "json:");
    answer_free(&a);
    a = ask(CHAT,
            ASK("x", "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":"
                     "true}}]"));
    assert_string_equal(stub_grammar(), "schema:strict");
    answer_free(&a);
    a = client_post(CHAT, ASK("x", "\"tools\":[" TOOL("@hard") "],\"tool_choice\":\"required\""));
    assert_int_equal(a.status, 400);
    assert_string_equal(json_at(a.body, "/error/param"), "\"tools\"");
    answer_free(&a);
    fixture_wait_idle();
    assert_int_equal(stub_grammars(), 0);
}

static void serves_other_apis(void **state) {
    answer a =
        ask("/v1/messages",
            "{\"max_tokens\":400,\"messages\":[{\"role\":\"user\",\"content\":\"@reply=" ANSWER
            ";\"}],\"tools\":[{\"name\":\"weather\",\"input_schema\":{\"type\":\"object\","
            "\"properties\":"
            "{\"days\":{\"type\":\"integer\"}}}}]}");
    assert_string_equal(json_at(a.body, "/content/0/thinking"), "\"Hm.\"");
    assert_string_equal(json_at(a.body, "/content/1/text"), "\"Look:\"");
    assert_string_equal(json_at(a.body, "/content/2/name"), "\"weather\"");
    assert_string_equal(json_at(a.body, "/content/2/input/days"), "3");
    assert_string_equal(json_at(a.body, "/stop_reason"), "\"tool_use\"");
    answer_free(&a);
    a = ask("/v1/responses",
            "{\"input\":\"@reply=" ANSWER
            ";\",\"store\":false,\"tools\":[{\"type\":\"function\",\"name\":\"weather\","
            "\"parameters\":{\"type\":\"object\",\"properties\":{}}}]}");
    assert_string_equal(json_at(a.body, "/output/0/type"), "\"reasoning\"");
    assert_string_equal(json_at(a.body, "/output/1/content/0/text"), "\"Look:\"");
    assert_string_equal(json_at(a.body, "/output/2/type"), "\"function_call\"");
    assert_string_equal(json_at(a.body, "/output/2/name"), "\"weather\"");
    assert_string_equal(json_at(a.body, "/usage/output_tokens_details/reasoning_tokens"), "12");
    answer_free(&a);
}

int main(void) {
    fixture_block_signals();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_parts),       cmocka_unit_test(streams_parts),
        cmocka_unit_test(honours_choice),    cmocka_unit_test(forces_calls),
        cmocka_unit_test(serves_other_apis),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_take_down);
}
