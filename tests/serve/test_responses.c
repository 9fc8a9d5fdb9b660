/* OpenAI's Responses: bodies, answers, streams, and what is kept. */
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

#define RESPONSES "/v1/responses"
#define ASK(text, more) "{\"input\":\"" text "\"" more "}"

/* An answer with reasoning, text and a call. */
#define PARTS                                                                                      \
    "@reply=<think>Hm. </think>Look: <tool_call><function=weather><parameter=city>Bonn"            \
    "</parameter></function></tool_call>;"

static const char *at(const answer *a, const char *pointer) {
    return json_at(a->body, pointer);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void answers_bad_requests(void **state) {
    static const struct {
        const char *body;
        int status;
        const char *param, *code;
    } table[] = {
        {"{", 400, "null", "\"invalid_json\""},
        {"{}", 400, "\"input\"", "\"missing_field\""},
        {"{\"input\":5}", 400, "\"input\"", "\"invalid_type\""},
        {"{\"input\":[]}", 400, "\"input\"", "\"invalid_value\""},
        {"{\"input\":[5]}", 400, "\"input[0]\"", "\"invalid_type\""},
        {"{\"input\":[{\"role\":\"bot\",\"content\":\"x\"}]}", 400, "\"input[0].role\"",
         "\"invalid_value\""},
        {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"x\","
         "\"prompt_cache_breakpoint\":{}}]}]}",
         400, "\"input[0].content.prompt_cache_breakpoint\"", "\"invalid_value\""},
        {"{\"input\":[{\"role\":\"user\"}]}", 400, "\"input[0].content\"", "\"invalid_type\""},
        {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}", 400,
         "\"input[0].content\"", "\"unsupported\""},
        {"{\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]}", 400, "\"input[0].call_id\"",
         "\"missing_field\""},
        {"{\"input\":[{\"type\":\"computer_call\"}]}", 400, "\"input[0]\"", "\"unsupported\""},
        {ASK("x", ",\"instructions\":5"), 400, "\"instructions\"", "\"invalid_type\""},
        {ASK("x", ",\"background\":true"), 400, "\"background\"", "\"unsupported\""},
        {ASK("x", ",\"conversation\":\"c\""), 400, "\"conversation\"", "\"unsupported\""},
        {ASK("x", ",\"previous_response_id\":\"resp_no\""), 400, "\"previous_response_id\"",
         "\"previous_response_not_found\""},
        {ASK("x", ",\"temperature\":7000"), 400, "\"temperature\"", "\"invalid_value\""},
        {ASK("x", ",\"store\":1"), 400, "\"store\"", "\"invalid_type\""},
        {ASK("@raise;", ""), 400, "\"messages\"", "\"invalid_value\""},
        {ASK("@full;", ""), 429, "null", "\"queue_full\""},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        answer a = client_post(RESPONSES, table[i].body);
        if (a.status != table[i].status || strcmp(at(&a, "/error/param"), table[i].param) != 0 ||
            strcmp(at(&a, "/error/code"), table[i].code) != 0)
            fail_msg("%s: %d %s", table[i].body, a.status, a.body);
        answer_free(&a);
    }
    fixture_wait_idle();
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answers(void **state) {
    answer a = client_post(
        RESPONSES,
        ASK("hi", ",\"model\":\"any\",\"instructions\":\"Be brief.\",\"metadata\":{\"k\":\"v\"},"
                  "\"tools\":[{\"type\":\"web_search\"}],\"temperature\":0.5,\"store\":false,"
                  "\"client_metadata\":{},\"include\":[\"reasoning.encrypted_content\"]"));
    assert_int_equal(a.status, 200);
    assert_memory_equal(at(&a, "/id"), "\"resp_", 6);
    assert_string_equal(at(&a, "/object"), "\"response\"");
    assert_true(atoi(at(&a, "/created_at")) > 0);
    assert_string_equal(at(&a, "/status"), "\"completed\"");
    assert_string_equal(at(&a, "/error"), "null");
    assert_string_equal(at(&a, "/incomplete_details"), "null");
    assert_string_equal(at(&a, "/instructions"), "\"Be brief.\"");
    assert_string_equal(at(&a, "/metadata"), "{\"k\":\"v\"}");
    assert_string_equal(at(&a, "/temperature"), "0.5");
    assert_string_equal(at(&a, "/top_p"), "1.0");
    assert_string_equal(at(&a, "/tool_choice"), "\"auto\"");
    assert_string_equal(at(&a, "/parallel_tool_calls"), "true");
    assert_string_equal(at(&a, "/text/format/type"), "\"text\"");
    assert_string_equal(at(&a, "/store"), "false");
    assert_string_equal(at(&a, "/output/0/type"), "\"message\"");
    assert_string_equal(at(&a, "/output/0/status"), "\"completed\"");
    assert_string_equal(at(&a, "/output/0/content"),
                        "[{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":"
                        "\"" STUB_REPLY "\"}]");
    int prompt = atoi(at(&a, "/usage/input_tokens"));
    assert_int_equal(atoi(at(&a, "/usage/input_tokens_details/cached_tokens")), prompt / 2);
    assert_string_equal(at(&a, "/usage/output_tokens"), "16");
    assert_string_equal(at(&a, "/usage/output_tokens_details/reasoning_tokens"), "0");
    assert_int_equal(atoi(at(&a, "/usage/total_tokens")), prompt + 16);
    answer_free(&a);
}

static void is_incomplete_when_cut(void **state) {
    answer a = client_post(RESPONSES, ASK("@reply=abc;", ",\"max_output_tokens\":2"));
    assert_string_equal(at(&a, "/status"), "\"incomplete\"");
    assert_string_equal(at(&a, "/incomplete_details/reason"), "\"max_output_tokens\"");
    assert_string_equal(at(&a, "/output/0/status"), "\"incomplete\"");
    assert_string_equal(at(&a, "/max_output_tokens"), "2");
    answer_free(&a);
}

static void counts_tokens(void **state) {
    answer a = client_post("/v1/responses/input_tokens", ASK("hi", ""));
    int n = atoi(at(&a, "/input_tokens"));
    answer_free(&a);
    a = client_post(RESPONSES, ASK("hi", ""));
    assert_int_equal(atoi(at(&a, "/usage/input_tokens")), n);
    answer_free(&a);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void check_order(char **e, const char *const *order, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char type[96], sequence[24];
        snprintf(type, sizeof type, "\"response.%s\"", order[i]);
        snprintf(sequence, sizeof sequence, "%zu", i);
        assert_non_null(e[i]);
        assert_string_equal(json_at(e[i], "/type"), type);
        assert_string_equal(json_at(e[i], "/sequence_number"), sequence);
    }
    assert_null(e[n]);
}

static void streams(void **state) {
    answer a = client_post(RESPONSES, ASK("@reply=\xf0\x9f\x98\x80x;", ",\"stream\":true"));
    assert_int_equal(a.status, 200);
    assert_true(a.complete);
    static const char *const order[] = {
        "created",           "in_progress",       "output_item.added", "content_part.added",
        "output_text.delta", "output_text.delta", "output_text.done",  "content_part.done",
        "output_item.done",  "completed",
    };
    char **e = stream_events(a.body);
    check_order(e, order, COUNT_OF(order));
    assert_string_equal(json_at(e[0], "/response/status"), "\"in_progress\"");
    assert_string_equal(json_at(e[0], "/response/output"), "[]");
    assert_string_equal(json_at(e[0], "/response/usage"), "null");
    assert_string_equal(json_at(e[2], "/item/content"), "[]");
    assert_string_equal(json_at(e[2], "/item/status"), "\"in_progress\"");
    assert_string_equal(json_at(e[4], "/delta"), "\"\xf0\x9f\x98\x80\"");
    assert_string_equal(json_at(e[4], "/content_index"), "0");
    assert_string_equal(json_at(e[4], "/output_index"), "0");
    assert_string_equal(json_at(e[4], "/item_id"), json_at(e[2], "/item/id"));
    assert_string_equal(json_at(e[6], "/text"), "\"\xf0\x9f\x98\x80x\"");
    assert_string_equal(json_at(e[7], "/part/text"), "\"\xf0\x9f\x98\x80x\"");
    assert_string_equal(json_at(e[8], "/item/content/0/text"), "\"\xf0\x9f\x98\x80x\"");
    assert_string_equal(json_at(e[9], "/response/output/0/content/0/text"),
                        "\"\xf0\x9f\x98\x80x\"");
    assert_string_equal(json_at(e[9], "/response/usage/output_tokens"), "5");
    assert_string_equal(json_at(e[9], "/response/id"), json_at(e[0], "/response/id"));
    answer_free(&a);
}

/* A run of deltas counts once. */
static void streams_parts(void **state) {
    static const char *const order[] = {
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    };
    answer a = client_post(RESPONSES,
                           ASK(PARTS, ",\"stream\":true,\"tools\":[{\"type\":\"function\",\"name\":"
                                      "\"weather\",\"parameters\":{\"type\":\"object\"}}]"));
    char **e = stream_events(a.body);
    size_t i = 0, index = 0;
    for (size_t step = 0; step < COUNT_OF(order); step++) {
        char type[96], at_index[24];
        snprintf(type, sizeof type, "\"response.%s\"", order[step]);
        snprintf(at_index, sizeof at_index, "%zu", index);
        if (!e[i] || strcmp(json_at(e[i], "/type"), type) != 0)
            fail_msg("step %zu, %s: %s", step, type, e[i] ? e[i] : "the end");
        for (; e[i] && !strcmp(json_at(e[i], "/type"), type); i++)
            if (*json_at(e[i], "/output_index"))
                assert_string_equal(json_at(e[i], "/output_index"), at_index);
        index += !strcmp(order[step], "output_item.done");
    }
    assert_null(e[i]);
    assert_string_equal(json_at(e[i - 3], "/name"), "\"weather\"");
    assert_string_equal(json_at(e[i - 3], "/arguments"), json_at(e[i - 2], "/item/arguments"));
    assert_non_null(strstr(json_at(e[i - 2], "/item/arguments"), "Bonn"));
    assert_memory_equal(json_at(e[i - 2], "/item/call_id"), "\"call_", 6);
    assert_memory_equal(json_at(e[i - 2], "/item/id"), "\"fc_", 4);
    assert_string_equal(json_at(e[i - 1], "/response/output/2/name"), "\"weather\"");
    answer_free(&a);
}

static void streams_the_end_of_failures(void **state) {
    answer a = client_post(RESPONSES, ASK("@gate;@break;", ",\"stream\":true"));
    char **e = stream_events(a.body);
    size_t n = 0;
    while (e[n]) n++;
    assert_string_equal(json_at(e[n - 1], "/type"), "\"response.failed\"");
    assert_string_equal(json_at(e[n - 1], "/response/status"), "\"failed\"");
    assert_string_equal(json_at(e[n - 1], "/response/error/code"), "\"server_error\"");
    answer_free(&a);
}

/* Codex compacts its context when it sees this code here. */
static void streams_a_full_context(void **state) {
    static const char *const order[] = {"created", "in_progress", "failed"};
    buf body = {0};
    buf_puts(&body, "{\"stream\":true,\"input\":\"");
    for (int i = 0; i < STUB_CTX; i++) buf_putc(&body, 'x');
    buf_puts(&body, "\"}");
    answer a = client_post(RESPONSES, body.data);
    assert_int_equal(a.status, 200);
    char **e = stream_events(a.body);
    check_order(e, order, COUNT_OF(order));
    assert_string_equal(json_at(e[2], "/response/error/code"), "\"context_length_exceeded\"");
    answer_free(&a);
    buf_fini(&body);
    fixture_wait_idle();
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* A path below the responses, with an id as JSON has it. */
static const char *path_of(const char *quoted_id, const char *rest) {
    static char path[160];
    snprintf(path, sizeof path, RESPONSES "/%.*s%s", (int)strlen(quoted_id) - 2, quoted_id + 1,
             rest);
    return path;
}

static void keeps_responses(void **state) {
    answer a = client_post(RESPONSES, ASK("first", ",\"instructions\":\"Once.\""));
    char id[80];
    snprintf(id, sizeof id, "%s", at(&a, "/id"));
    answer b = client_ask("GET", path_of(id, ""), "", NULL);
    assert_int_equal(b.status, 200);
    assert_string_equal(b.body, a.body);
    int alone = atoi(at(&a, "/usage/input_tokens"));
    answer_free(&a);
    answer_free(&b);

    char body[256];
    snprintf(body, sizeof body, "{\"input\":\"second\",\"previous_response_id\":%s}", id);
    a = client_post(RESPONSES, body);
    assert_int_equal(a.status, 200);
    assert_string_equal(at(&a, "/previous_response_id"), id);
    assert_true(atoi(at(&a, "/usage/input_tokens")) > alone);
    b = client_ask("GET", path_of(at(&a, "/id"), "/input_items?order=asc"), "", NULL);
    assert_string_equal(at(&b, "/data/0/content/0/text"), "\"first\"");
    assert_string_equal(at(&b, "/data/1/role"), "\"assistant\"");
    assert_string_equal(at(&b, "/data/2/content/0/text"), "\"second\"");
    assert_string_equal(at(&b, "/has_more"), "false");
    answer_free(&b);
    b = client_ask("GET", path_of(at(&a, "/id"), "/input_items?limit=1"), "", NULL);
    assert_string_equal(at(&b, "/data/0/content/0/text"), "\"second\"");
    assert_string_equal(at(&b, "/has_more"), "true");
    answer_free(&a);
    answer_free(&b);

    a = client_ask("DELETE", path_of(id, ""), "", NULL);
    assert_string_equal(at(&a, "/deleted"), "true");
    answer_free(&a);
    a = client_ask("GET", path_of(id, ""), "", NULL);
    assert_int_equal(a.status, 404);
    answer_free(&a);
    a = client_post(RESPONSES, ASK("x", ",\"store\":false"));
    b = client_ask("GET", path_of(at(&a, "/id"), ""), "", NULL);
    assert_int_equal(b.status, 404);
    answer_free(&a);
    answer_free(&b);
}

/* ---- main ------------------------------------------------------------------------------------ */

static int start(void **state) {
    static serve_opts opts = {.model_path = "/models/stub.gguf"};
    stub_open_gate();
    fixture_start(&opts);
    return 0;
}

int main(void) {
    fixture_block_signals();
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_bad_requests),
        cmocka_unit_test(answers),
        cmocka_unit_test(is_incomplete_when_cut),
        cmocka_unit_test(counts_tokens),
        cmocka_unit_test(streams),
        cmocka_unit_test(streams_parts),
        cmocka_unit_test(streams_the_end_of_failures),
        cmocka_unit_test(streams_a_full_context),
        cmocka_unit_test(keeps_responses),
    };
    return cmocka_run_group_tests(tests, start, fixture_take_down);
}
