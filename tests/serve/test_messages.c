/* Anthropic's Messages: bodies, answers, streams, errors. */
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

#define MESSAGES "/v1/messages"
#define COUNT "/v1/messages/count_tokens"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASK(text, more) "{\"max_tokens\":400,\"messages\":[" USER(text) "]" more "}"

#define MARKED                                                                                     \
    "{\"name\":\"f\",\"input_schema\":{},\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":"       \
    "\"1h\"}}"

/* An answer with reasoning, text and a call. */
#define PARTS                                                                                      \
    "@reply=<think>Hm. </think>Look: <tool_call><function=weather><parameter=city>Bonn"            \
    "</parameter></function></tool_call>;"

static const char *at(const answer *a, const char *pointer) {
    return json_at(a->body, pointer);
}

static int number(const answer *a, const char *pointer) {
    return atoi(at(a, pointer));
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void answers_bad_requests(void **state) {
    static const struct {
        const char *body;
        int status;
        const char *type, *word;
    } table[] = {
        {"{", 400, "invalid_request_error", "JSON"},
        {"{\"messages\":[" USER("x") "]}", 400, "invalid_request_error", "max_tokens"},
        {"{\"max_tokens\":5}", 400, "invalid_request_error", "messages"},
        {"{\"max_tokens\":5,\"messages\":[]}", 400, "invalid_request_error", "messages"},
        {"{\"max_tokens\":5,\"messages\":[1]}", 400, "invalid_request_error", "messages[0]"},
        {"{\"max_tokens\":5,\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", 400,
         "invalid_request_error", "tool"},
        {"{\"max_tokens\":5,\"messages\":[{\"content\":\"x\"}]}", 400, "invalid_request_error",
         "messages[0].role"},
        {"{\"max_tokens\":5,\"messages\":[{\"role\":\"user\"}]}", 400, "invalid_request_error",
         "messages[0].content"},
        {"{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[]}]}", 400,
         "invalid_request_error", "empty"},
        {"{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
         "\"source\":{}}]}]}",
         400, "invalid_request_error", "text only"},
        {"{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
         "\"tool_result\"}]}]}",
         400, "invalid_request_error", "tool_use_id"},
        {ASK("x", ",\"temperature\":\"hot\""), 400, "invalid_request_error", "temperature"},
        {ASK("x", ",\"stop_sequences\":\"a\""), 400, "invalid_request_error", "stop_sequences"},
        {ASK("x", ",\"system\":5"), 400, "invalid_request_error", "system"},
        {ASK("x", ",\"tools\":[{\"name\":\"f\"}]"), 400, "invalid_request_error",
         "tools[0].input_schema"},
        {ASK("x", ",\"tool_choice\":{\"type\":\"some\"}"), 400, "invalid_request_error",
         "tool_choice"},
        {ASK("x", ",\"thinking\":{\"type\":\"loud\"}"), 400, "invalid_request_error", "thinking"},
        {ASK("x", ",\"cache_control\":{\"type\":\"eternal\"}"), 400, "invalid_request_error",
         "ephemeral"},
        {ASK("x", ",\"system\":[{\"type\":\"text\",\"text\":\"x\",\"cache_control\":true}]"), 400,
         "invalid_request_error", "system[0].cache_control"},
        {"{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
         "\"text\":"
         "\"x\",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"soon\"}}]}]}",
         400, "invalid_request_error", "messages[0].content[0].cache_control.ttl"},
        {ASK("x", ",\"tools\":[" MARKED "," MARKED "," MARKED "," MARKED "," MARKED "]"), 400,
         "invalid_request_error", "at most 4"},
        {ASK("@raise;", ""), 400, "invalid_request_error", "orders are orders"},
        {ASK("@full;", ""), 529, "overloaded_error", "queue"},
        {ASK("@break;", ""), 500, "api_error", "internal"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        answer a = client_post(MESSAGES, table[i].body);
        char type[64];
        snprintf(type, sizeof type, "\"%s\"", table[i].type);
        if (a.status != table[i].status || strcmp(at(&a, "/error/type"), type) != 0 ||
            strcmp(at(&a, "/type"), "\"error\"") != 0 || !strstr(a.body, table[i].word))
            fail_msg("%s: %d %s", table[i].body, a.status, a.body);
        char id[160];
        snprintf(id, sizeof id, "\"%s\"", answer_header(&a, "request-id"));
        assert_string_equal(at(&a, "/request_id"), id);
        answer_free(&a);
    }
    fixture_wait_idle();
}

static void names_the_context(void **state) {
    buf body = {0};
    buf_puts(&body, "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < STUB_CTX; i++) buf_putc(&body, 'x');
    buf_puts(&body, "\"}]}");
    answer a = client_post(MESSAGES, body.data);
    assert_int_equal(a.status, 400);
    assert_memory_equal(at(&a, "/error/message"), "\"prompt is too long: ", 21);
    assert_non_null(strstr(a.body, " tokens > 4096 maximum"));
    answer_free(&a);
    buf_fini(&body);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answers(void **state) {
    answer a = client_ask("POST", MESSAGES "?beta=true",
                          "x-api-key: any\r\nanthropic-version: 2023-06-01\r\n",
                          ASK("hi", ",\"model\":\"claude-x\",\"metadata\":{\"user_id\":\"u\"}"));
    assert_int_equal(a.status, 200);
    assert_memory_equal(at(&a, "/id"), "\"msg_", 5);
    assert_string_equal(at(&a, "/type"), "\"message\"");
    assert_string_equal(at(&a, "/role"), "\"assistant\"");
    assert_string_equal(at(&a, "/model"), "\"stub\"");
    assert_string_equal(at(&a, "/content"), "[{\"type\":\"text\",\"text\":\"" STUB_REPLY "\"}]");
    assert_string_equal(at(&a, "/stop_reason"), "\"end_turn\"");
    assert_string_equal(at(&a, "/stop_sequence"), "null");
    /* The stub finds half of a prompt in its cache. */
    answer n = client_post(COUNT, ASK("hi", ""));
    int total = number(&n, "/input_tokens");
    assert_int_equal(number(&a, "/usage/cache_read_input_tokens"), total / 2);
    assert_int_equal(number(&a, "/usage/input_tokens"), total - total / 2);
    assert_int_equal(number(&a, "/usage/output_tokens"), 16);
    answer_free(&n);
    answer_free(&a);
}

/* What is computed before a breakpoint counts as written to the cache, by its time; the rest as
 * input. The stub has half of a prompt in its cache. */
static void counts_what_breakpoints_write(void **state) {
#define TIMED(ttl) ",\"cache_control\":{\"type\":\"ephemeral\"" ttl "}"
#define SAYS(text, more)                                                                           \
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" text "\"" more "}]}"
#define LONG "0123456789012345678901234567890123456789012345678901234567890123456789"
    static const char body[] = "{\"max_tokens\":4,\"messages\":[" SAYS(LONG LONG, "") "," SAYS(
        LONG, TIMED(",\"ttl\":\"1h\"")) "," SAYS(LONG, TIMED("")) "," SAYS(LONG, "") "]}";
    answer a = client_post(MESSAGES, body);
    assert_int_equal(a.status, 200);
    stub_seen seen = stub_last();
    assert_int_equal(seen.opts.n_marks, 2);
    assert_true(seen.marks[0].ttl == 3600 && seen.marks[1].ttl == 300);
    int n = (int)seen.opts.n_prompt, last = (int)seen.marks[1].position;
    int hour = (int)seen.marks[0].position - n / 2;
    assert_true(hour > 0 && last - n / 2 > hour && last < n);
    assert_int_equal(number(&a, "/usage/cache_read_input_tokens"), n / 2);
    assert_int_equal(number(&a, "/usage/cache_creation_input_tokens"), last - n / 2);
    assert_int_equal(number(&a, "/usage/cache_creation/ephemeral_1h_input_tokens"), hour);
    assert_int_equal(number(&a, "/usage/cache_creation/ephemeral_5m_input_tokens"),
                     last - n / 2 - hour);
    assert_int_equal(number(&a, "/usage/input_tokens"), n - last);
    answer_free(&a);
    /* tools and the body have them as well */
    a = client_post(MESSAGES, ASK("x", ",\"tools\":[" MARKED "]" TIMED("")));
    seen = stub_last();
    assert_int_equal(seen.opts.n_marks, 2);
    assert_true(seen.marks[0].ttl + seen.marks[1].ttl == 3900);
    answer_free(&a);
    a = client_post(MESSAGES, ASK("x", TIMED("") ",\"prompt_cache_options\":{\"store\":false}"));
    assert_int_equal(number(&a, "/usage/cache_creation_input_tokens"), 0);
    answer_free(&a);
}

static void says_why_it_stopped(void **state) {
    answer a = client_post(MESSAGES, "{\"max_tokens\":2,\"messages\":[" USER("@reply=abc;") "]}");
    assert_string_equal(at(&a, "/stop_reason"), "\"max_tokens\"");
    answer_free(&a);
    a = client_post(MESSAGES, ASK("@reply=abc;@stop=1;", ",\"stop_sequences\":[\"x\",\"END\"]"));
    assert_string_equal(at(&a, "/stop_reason"), "\"stop_sequence\"");
    assert_string_equal(at(&a, "/stop_sequence"), "\"END\"");
    assert_string_equal(stub_last().stop[1], "END");
    answer_free(&a);
}

static void counts_tokens(void **state) {
    answer a = client_post(COUNT, "{\"messages\":[" USER("hi") "]}");
    assert_int_equal(a.status, 200);
    int plain = number(&a, "/input_tokens");
    answer_free(&a);
    /* Labels of the client are no part of the prompt. */
    a = client_post(COUNT, "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: "
                           "cch=1;\"}],\"messages\":[" USER("hi") "]}");
    assert_int_equal(number(&a, "/input_tokens"), plain);
    answer_free(&a);
    a = client_post(COUNT,
                    "{\"system\":\"x-anthropic-a: 1\\nBe brief.\",\"messages\":[" USER("hi") "]}");
    answer b = client_post(COUNT, "{\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\","
                                  "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}],"
                                  "\"messages\":[" USER("hi") "]}");
    assert_int_equal(number(&a, "/input_tokens"), number(&b, "/input_tokens"));
    assert_true(number(&a, "/input_tokens") > plain);
    answer_free(&a);
    answer_free(&b);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void streams(void **state) {
    answer a = client_post(MESSAGES, ASK("@reply=\xf0\x9f\x98\x80x;", ",\"stream\":true"));
    assert_int_equal(a.status, 200);
    assert_true(a.complete);
    static const char *const order[] = {
        "message_start",       "ping",
        "content_block_start", "content_block_delta",
        "content_block_delta", "content_block_stop",
        "message_delta",       "message_stop",
    };
    char **e = stream_events(a.body);
    for (size_t i = 0; i < COUNT_OF(order); i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", order[i]);
        assert_non_null(e[i]);
        assert_string_equal(json_at(e[i], "/type"), quoted);
    }
    assert_null(e[COUNT_OF(order)]);
    assert_string_equal(json_at(e[0], "/message/content"), "[]");
    assert_string_equal(json_at(e[0], "/message/stop_reason"), "null");
    /* The first event tells what was cached, as the last one does. */
    static const char *const counted[] = {"input_tokens", "cache_read_input_tokens"};
    for (size_t i = 0; i < COUNT_OF(counted); i++) {
        char first[64], last[64];
        snprintf(first, sizeof first, "/message/usage/%s", counted[i]);
        snprintf(last, sizeof last, "/usage/%s", counted[i]);
        int n = atoi(json_at(e[0], first));
        assert_true(n > 0);
        assert_int_equal(atoi(json_at(e[6], last)), n);
    }
    assert_string_equal(json_at(e[2], "/content_block"), "{\"type\":\"text\",\"text\":\"\"}");
    assert_string_equal(json_at(e[3], "/delta"),
                        "{\"type\":\"text_delta\",\"text\":\"\xf0\x9f\x98\x80\"}");
    assert_string_equal(json_at(e[4], "/delta/text"), "\"x\"");
    assert_string_equal(json_at(e[6], "/delta"),
                        "{\"stop_reason\":\"end_turn\",\"stop_sequence\":null}");
    assert_string_equal(json_at(e[6], "/usage/output_tokens"), "5");
    assert_true(atoi(json_at(e[6], "/usage/cache_read_input_tokens")) > 0);
    answer_free(&a);
}

/* The types of blocks and deltas; a run of deltas counts once. */
static void streams_parts(void **state) {
    static const char *const order[][2] = {
        {"/content_block/type", "thinking"}, {"/delta/type", "thinking_delta"},
        {"/delta/type", "signature_delta"},  {"/type", "content_block_stop"},
        {"/content_block/type", "text"},     {"/delta/type", "text_delta"},
        {"/type", "content_block_stop"},     {"/content_block/type", "tool_use"},
        {"/delta/type", "input_json_delta"}, {"/type", "content_block_stop"},
    };
    answer a = client_post(MESSAGES, ASK(PARTS, ",\"stream\":true,\"tools\":[{\"name\":\"weather\","
                                                "\"input_schema\":{\"type\":\"object\"}}]")),
           whole = client_post(MESSAGES, ASK(PARTS, ",\"tools\":[{\"name\":\"weather\","
                                                    "\"input_schema\":{\"type\":\"object\"}}]"));
    char **e = stream_events(a.body);
    size_t i = 2, index = 0;
    buf json = {0};
    for (size_t step = 0; step < COUNT_OF(order); step++) {
        char wanted[64], at_index[24];
        snprintf(wanted, sizeof wanted, "\"%s\"", order[step][1]);
        snprintf(at_index, sizeof at_index, "%zu", index);
        if (!e[i] || strcmp(json_at(e[i], order[step][0]), wanted) != 0)
            fail_msg("step %zu: %s", step, e[i] ? e[i] : "the end");
        for (; e[i] && !strcmp(json_at(e[i], order[step][0]), wanted); i++) {
            assert_string_equal(json_at(e[i], "/index"), at_index);
            json_object *piece = json_tokener_parse(json_at(e[i], "/delta/partial_json"));
            if (piece) buf_puts(&json, json_object_get_string(piece));
            json_object_put(piece);
        }
        index += !strcmp(order[step][1], "content_block_stop");
    }
    assert_string_equal(json_at(e[i], "/delta/stop_reason"), "\"tool_use\"");
    assert_string_equal(json_at(json.data, "/city"), "\"Bonn\"");
    assert_string_equal(at(&whole, "/content/2/input/city"), "\"Bonn\"");
    assert_memory_equal(at(&whole, "/content/2/id"), "\"toolu_", 7);
    assert_string_not_equal(at(&whole, "/content/0/signature"), "\"\"");
    buf_fini(&json);
    answer_free(&a);
    answer_free(&whole);
}

/* ---- diagnostics ----------------------------------------------------------------------------- */

#define TURN(first, more, id)                                                                      \
    "{\"max_tokens\":400,\"messages\":[" USER(first) "," USER(                                     \
        "second") "],\"diagnostics\":{"                                                            \
                  "\"previous_message_id\":" id "}" more "}"

/* Asks again, after a message with this id; compares the reason. The stub finds half of a prompt in
 * its cache, whatever it is. */
static void expect_reason(const char *body, const char *id, const char *reason) {
    char text[1024];
    snprintf(text, sizeof text, body, id);
    answer a = client_post(MESSAGES, text);
    assert_int_equal(a.status, 200);
    if (reason)
        assert_string_equal(at(&a, "/diagnostics/cache_miss_reason/type"), reason);
    else
        assert_string_equal(at(&a, "/diagnostics"), "null");
    bool changed = reason && strstr(reason, "_changed");
    if (changed)
        assert_true(number(&a, "/diagnostics/cache_miss_reason/cache_missed_input_tokens") > 0);
    answer_free(&a);
}

static void says_why_the_cache_missed(void **state) {
    answer first =
        client_post(MESSAGES, TURN("a rather long first question that is asked", "", "null"));
    assert_string_equal(at(&first, "/diagnostics"), "null");
    const char *id = at(&first, "/id");
    expect_reason(TURN("another long first question that is asked", "", "%s"), id,
                  "\"messages_changed\"");
    expect_reason(TURN("a rather long first question that is asked", ",\"system\":\"Hm.\"", "%s"),
                  id, "\"system_changed\"");
    expect_reason(TURN("a rather long first question that is asked",
                       ",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]", "%s"),
                  id, "\"tools_changed\"");
    /* The stub lost half of it, and the request is not to blame. */
    expect_reason(TURN("a rather long first question that is asked", "", "%s"), id,
                  "\"unavailable\"");
    expect_reason(TURN("a rather long first question that is asked", TIMED(""), "%s"), id,
                  "\"unavailable\""); /* breakpoints are no part of it */
    expect_reason(TURN("a", "", "%s"), "\"msg_none\"", "\"previous_message_not_found\"");
    answer_free(&first);
    answer a = client_post(MESSAGES, ASK("hi", ",\"diagnostics\":{\"previous_message_id\":5}"));
    assert_int_equal(a.status, 400);
    assert_non_null(strstr(a.body, "previous_message_id"));
    answer_free(&a);
}

static void breaks_a_stream_with_an_error(void **state) {
    answer a = client_post(MESSAGES, ASK("@gate;@break;", ",\"stream\":true"));
    char **e = stream_events(a.body);
    size_t n = 0;
    while (e[n]) n++;
    assert_string_equal(json_at(e[n - 1], "/type"), "\"error\"");
    assert_string_equal(json_at(e[n - 1], "/error/type"), "\"api_error\"");
    answer_free(&a);
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
        cmocka_unit_test(names_the_context),
        cmocka_unit_test(answers),
        cmocka_unit_test(counts_what_breakpoints_write),
        cmocka_unit_test(says_why_it_stopped),
        cmocka_unit_test(counts_tokens),
        cmocka_unit_test(streams),
        cmocka_unit_test(streams_parts),
        cmocka_unit_test(says_why_the_cache_missed),
        cmocka_unit_test(breaks_a_stream_with_an_error),
    };
    return cmocka_run_group_tests(tests, start, fixture_take_down);
}
