/* Routes, bodies and answers, one request at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "base.h"
#include "client.h"

#define CHAT "/v1/chat/completions"
#define COMPLETIONS "/v1/completions"
/* A chat body: one user message, and more members. */
#define SAY(text, more) "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]" more "}"

/* ---- looking at answers ---------------------------------------------------------------------- */

static const char *at(const answer *a, const char *pointer) {
    return json_at(a->body, pointer);
}

static void check_error(answer a, const char *what, int status, const char *param,
                        const char *code) {
    char quoted_param[80] = "null", quoted_code[80] = "null";
    if (param) snprintf(quoted_param, sizeof quoted_param, "\"%s\"", param);
    if (code) snprintf(quoted_code, sizeof quoted_code, "\"%s\"", code);
    if (a.status != status || strcmp(at(&a, "/error/param"), quoted_param) != 0 ||
        strcmp(at(&a, "/error/code"), quoted_code) != 0 || !*at(&a, "/error/type") ||
        strlen(at(&a, "/error/message")) < 8)
        fail_msg("%s: %d %s", what, a.status, a.body);
    assert_true(a.complete);
    assert_non_null(answer_header(&a, "x-request-id"));
    assert_string_equal(answer_header(&a, "content-type"), "application/json");
    answer_free(&a);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void answers_bad_requests(void **state) {
    static const struct {
        const char *path, *body;
        int status;
        const char *param, *code;
    } table[] = {
        {CHAT, "", 400, NULL, "invalid_json"},
        {CHAT, "{", 400, NULL, "invalid_json"},
        {CHAT, "{\"messages\":\"\xff\"}", 400, NULL, "invalid_json"},
        {CHAT, "[]", 400, NULL, "invalid_type"},
        {CHAT, "{}", 400, "messages", "missing_field"},
        {CHAT, "{\"messages\":null}", 400, "messages", "missing_field"},
        {CHAT, "{\"messages\":\"hi\"}", 400, "messages", "invalid_type"},
        {CHAT, "{\"messages\":[]}", 400, "messages", "invalid_value"},
        {CHAT, "{\"messages\":[1]}", 400, "messages[0]", "invalid_type"},
        {CHAT, "{\"messages\":[{}]}", 400, "messages[0].role", "missing_field"},
        {CHAT, "{\"messages\":[{\"role\":1}]}", 400, "messages[0].role", "invalid_type"},
        {CHAT, "{\"messages\":[{\"role\":\"<|im_start|>\",\"content\":\"\"}]}", 400,
         "messages[0].role", "invalid_value"},
        {CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content", "missing_field"},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":7}]}", 400, "messages[0].content",
         "invalid_type"},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", 400,
         "messages[0].content[0]", "invalid_type"},
        {CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
         "{\"type\":\"image_url\",\"image_url\":{}}]}]}",
         400, "messages[0].content[1]", "unsupported"},
        {CHAT, SAY("@raise;", ""), 400, "messages", "invalid_value"},
        {CHAT, SAY("x", ",\"model\":1"), 400, "model", "invalid_type"},
        {CHAT, SAY("x", ",\"temperature\":-1"), 400, "temperature", "invalid_value"},
        {CHAT, SAY("x", ",\"temperature\":NaN"), 400, "temperature", "invalid_value"},
        {CHAT, SAY("x", ",\"temperature\":Infinity"), 400, "temperature", "invalid_value"},
        {CHAT, SAY("x", ",\"temperature\":\"1\""), 400, "temperature", "invalid_type"},
        {CHAT, SAY("x", ",\"top_p\":1.1"), 400, "top_p", "invalid_value"},
        {CHAT, SAY("x", ",\"min_p\":-0.1"), 400, "min_p", "invalid_value"},
        {CHAT, SAY("x", ",\"top_k\":-2"), 400, "top_k", "invalid_value"},
        {CHAT, SAY("x", ",\"repetition_penalty\":0"), 400, "repetition_penalty", "invalid_value"},
        {CHAT, SAY("x", ",\"presence_penalty\":3"), 400, "presence_penalty", "invalid_value"},
        {CHAT, SAY("x", ",\"frequency_penalty\":[]"), 400, "frequency_penalty", "invalid_type"},
        {CHAT, SAY("x", ",\"max_tokens\":-1"), 400, "max_tokens", "invalid_value"},
        {CHAT, SAY("x", ",\"max_tokens\":1.5"), 400, "max_tokens", "invalid_type"},
        {CHAT, SAY("x", ",\"max_completion_tokens\":\"5\""), 400, "max_completion_tokens",
         "invalid_type"},
        {CHAT, SAY("x", ",\"max_tokens\":5,\"min_tokens\":6"), 400, "min_tokens", "invalid_value"},
        {CHAT, SAY("x", ",\"n\":0"), 400, "n", "invalid_value"},
        {CHAT, SAY("x", ",\"n\":129"), 400, "n", "invalid_value"},
        {CHAT, SAY("x", ",\"stop\":5"), 400, "stop", "invalid_type"},
        {CHAT, SAY("x", ",\"stop\":[\"a\",5]"), 400, "stop", "invalid_type"},
        {CHAT, SAY("x", ",\"stop\":\"\""), 400, "stop", "invalid_value"},
        {CHAT, SAY("x", ",\"stop\":\"a\\u0000b\""), 400, "stop", "invalid_value"},
        {CHAT, SAY("x", ",\"stop_token_ids\":5"), 400, "stop_token_ids", "invalid_type"},
        {CHAT, SAY("x", ",\"stop_token_ids\":[300]"), 400, "stop_token_ids", "invalid_value"},
        {CHAT, SAY("x", ",\"logit_bias\":[]"), 400, "logit_bias", "invalid_type"},
        {CHAT, SAY("x", ",\"logit_bias\":{\"a\":1}"), 400, "logit_bias", "invalid_value"},
        {CHAT, SAY("x", ",\"logit_bias\":{\"-1\":1}"), 400, "logit_bias", "invalid_value"},
        {CHAT, SAY("x", ",\"logit_bias\":{\"4294967297\":1}"), 400, "logit_bias", "invalid_value"},
        {CHAT, SAY("x", ",\"logit_bias\":{\"1\":101}"), 400, "logit_bias", "invalid_value"},
        {CHAT, SAY("x", ",\"logit_bias\":{\"1\":NaN}"), 400, "logit_bias", "invalid_value"},
        {CHAT, SAY("x", ",\"seed\":\"a\""), 400, "seed", "invalid_type"},
        {CHAT, SAY("x", ",\"stream\":\"yes\""), 400, "stream", "invalid_type"},
        {CHAT, SAY("x", ",\"stream_options\":{}"), 400, "stream_options", "invalid_value"},
        {CHAT, SAY("x", ",\"stream\":true,\"stream_options\":{\"include_usage\":1}"), 400,
         "stream_options.include_usage", "invalid_type"},
        {CHAT, SAY("x", ",\"logprobs\":1"), 400, "logprobs", "invalid_type"},
        {CHAT, SAY("x", ",\"logprobs\":true,\"top_logprobs\":21"), 400, "top_logprobs",
         "invalid_value"},
        {CHAT, SAY("x", ",\"top_logprobs\":2"), 400, "top_logprobs", "invalid_value"},
        {CHAT, SAY("x", ",\"cache_salt\":\"\""), 400, "cache_salt", "invalid_value"},
        {CHAT, SAY("x", ",\"cache_salt\":7"), 400, "cache_salt", "invalid_type"},
        {CHAT, SAY("x", ",\"tools\":{}"), 400, "tools", "invalid_type"},
        {CHAT, SAY("x", ",\"tools\":[{}]"), 400, "tools[0].function.name", "invalid_value"},
        {CHAT, SAY("x", ",\"tool_choice\":\"required\""), 400, "tool_choice", "invalid_value"},
        {CHAT, SAY("x", ",\"chat_template_kwargs\":[]"), 400, "chat_template_kwargs",
         "invalid_type"},
        {CHAT, SAY("x", ",\"chat_template_kwargs\":{\"messages\":[]}"), 400, "chat_template_kwargs",
         "invalid_value"},
        {CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\","
         "\"prompt_cache_breakpoint\":{\"mode\":\"explicit\",\"ttl\":\"long\"}}]}]}",
         400, "messages[0].content[0].prompt_cache_breakpoint", "invalid_value"},
        {CHAT, SAY("@full;", ""), 429, NULL, "queue_full"},
        {CHAT, SAY("@break;", ""), 500, NULL, "internal_error"},
        {COMPLETIONS, "{}", 400, "prompt", "missing_field"},
        {COMPLETIONS, "{\"prompt\":5}", 400, "prompt", "invalid_type"},
        {COMPLETIONS, "{\"prompt\":\"\"}", 400, "prompt", "invalid_value"},
        {COMPLETIONS, "{\"prompt\":[]}", 400, "prompt", "invalid_value"},
        {COMPLETIONS, "{\"prompt\":[[]]}", 400, "prompt", "invalid_value"},
        {COMPLETIONS, "{\"prompt\":[300]}", 400, "prompt", "invalid_value"},
        {COMPLETIONS, "{\"prompt\":[-1]}", 400, "prompt", "invalid_value"},
        {COMPLETIONS, "{\"prompt\":[4294967297]}", 400, "prompt", "invalid_value"},
        {COMPLETIONS, "{\"prompt\":[1.0]}", 400, "prompt", "invalid_type"},
        {COMPLETIONS, "{\"prompt\":[1,\"a\"]}", 400, "prompt", "invalid_type"},
        {COMPLETIONS, "{\"prompt\":[[1],[2,-2]]}", 400, "prompt", "invalid_value"},
        {COMPLETIONS, "{\"prompt\":[{}]}", 400, "prompt", "invalid_type"},
        {COMPLETIONS, "{\"prompt\":\"a\",\"suffix\":\"b\"}", 400, "suffix", "unsupported"},
        {COMPLETIONS, "{\"prompt\":\"a\",\"best_of\":3}", 400, "best_of", "unsupported"},
        {COMPLETIONS, "{\"prompt\":\"a\",\"echo\":1}", 400, "echo", "invalid_type"},
        {COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":true}", 400, "logprobs", "invalid_type"},
        {COMPLETIONS, "{\"prompt\":\"a\",\"prompt_logprobs\":21}", 400, "prompt_logprobs",
         "invalid_value"},
        {COMPLETIONS, "{\"prompt\":\"a\",\"prompt_logprobs\":-1}", 400, "prompt_logprobs",
         "invalid_value"},
        {CHAT, SAY("x", ",\"prompt_logprobs\":1,\"stream\":true"), 400, "prompt_logprobs",
         "invalid_value"},
        {COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":21}", 400, "logprobs", "invalid_value"},
        {"/tokenize", "{}", 400, "content", "missing_field"},
        {"/tokenize", "{\"content\":[1]}", 400, "content", "invalid_type"},
        {"/detokenize", "{}", 400, "tokens", "missing_field"},
        {"/detokenize", "{\"tokens\":[4294967296]}", 400, "tokens", "invalid_value"},
        {"/nothing", "{}", 404, NULL, "unknown_route"},
        {"/v1", "{}", 404, NULL, "unknown_route"},
        {"/v1/metrics", "{}", 404, NULL, "unknown_route"},
        {"/health", "{}", 405, NULL, "method_not_allowed"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++)
        check_error(client_post(table[i].path, table[i].body), table[i].body, table[i].status,
                    table[i].param, table[i].code);
    fixture_wait_idle();
}

static void says_how_to_retry(void **state) {
    answer a = client_post(CHAT, SAY("@full;", ""));
    assert_string_equal(answer_header(&a, "retry-after"), "1");
    answer_free(&a);
    a = client_post(CHAT, SAY("@break;", ""));
    assert_string_equal(answer_header(&a, "x-should-retry"), "false");
    answer_free(&a);
}

static void names_the_context(void **state) {
    buf body = {0};
    buf_puts(&body, "{\"prompt\":[\"fits\",\""); /* one of them is enough */
    for (int i = 0; i < STUB_CTX; i++) buf_putc(&body, 'x');
    buf_puts(&body, "\"]}");
    answer a = client_post(COMPLETIONS, body.data);
    assert_int_equal(a.status, 400);
    assert_string_equal(at(&a, "/error/code"), "\"context_length_exceeded\"");
    assert_string_equal(at(&a, "/error/type"), "\"invalid_request_error\"");
    assert_string_equal(at(&a, "/error/n_prompt_tokens"), "4096");
    assert_string_equal(at(&a, "/error/n_ctx"), "4096");
    assert_non_null(strstr(a.body, "This model's maximum context length is 4096 tokens."));
    answer_free(&a);
    buf_fini(&body);
    fixture_wait_idle();
}

static void handles_methods(void **state) {
    answer a = client_ask("DELETE", CHAT, "", NULL);
    assert_string_equal(answer_header(&a, "allow"), "POST, OPTIONS");
    check_error(a, "DELETE", 405, NULL, "method_not_allowed");
    a = client_ask("GET", CHAT, "", NULL);
    check_error(a, "GET", 405, NULL, "method_not_allowed");
    a = client_ask("OPTIONS", "/v1/models", "", NULL);
    assert_int_equal(a.status, 204);
    assert_string_equal(answer_header(&a, "allow"), "GET, HEAD, OPTIONS");
    answer_free(&a);
    int fd = client_open();
    client_sends(fd, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n"
                     "GET /health?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(client_wait_for(fd, "\r\n\r\nHTTP/1.1 200")); /* no body in between */
    close(fd);
}

static void allows_local_pages(void **state) {
    answer a = client_ask("OPTIONS", CHAT,
                          "Origin: http://localhost:3000\r\n"
                          "Access-Control-Request-Headers: x-stainless-os, authorization\r\n",
                          NULL);
    assert_int_equal(a.status, 204);
    assert_string_equal(answer_header(&a, "access-control-allow-origin"), "http://localhost:3000");
    assert_string_equal(answer_header(&a, "access-control-allow-headers"),
                        "x-stainless-os, authorization");
    answer_free(&a);
    a = client_ask("GET", "/v1/models", "Origin: http://evil.com\r\n", NULL);
    assert_null(answer_header(&a, "access-control-allow-origin"));
    answer_free(&a);
}

static void refuses_rebound_names(void **state) {
    int fd = client_open();
    client_sends(fd, "GET /v1/models HTTP/1.1\r\nHost: evil.com\r\n\r\n");
    answer a = client_read(fd);
    check_error(a, "Host", 403, NULL, "host_not_allowed");
    close(fd);
}

static void echoes_request_ids(void **state) {
    answer a = client_ask("GET", "/health", "X-Request-Id: my-id.1\r\n", NULL);
    assert_string_equal(answer_header(&a, "x-request-id"), "my-id.1");
    answer_free(&a);
    a = client_ask("GET", "/health", "X-Request-Id: not sane\r\n", NULL);
    assert_memory_equal(answer_header(&a, "x-request-id"), "req_", 4);
    answer_free(&a);
}

/* ---- small routes ---------------------------------------------------------------------------- */

static void answers_small_routes(void **state) {
    answer a = client_ask("GET", "/health", "", NULL);
    assert_string_equal(a.body, "{\"status\":\"ok\"}");
    answer_free(&a);
    a = client_ask("GET", "/version", "", NULL);
    assert_string_equal(at(&a, "/version"), "\"0.0-stub\"");
    answer_free(&a);
    a = client_ask("GET", "/v1/models", "", NULL);
    assert_string_equal(at(&a, "/data/0/id"), "\"stub\"");
    assert_string_equal(at(&a, "/data/0/max_model_len"), "4096");
    answer_free(&a);
    a = client_ask("GET", "/models/stub", "", NULL);
    assert_string_equal(at(&a, "/object"), "\"model\"");
    answer_free(&a);
    check_error(client_ask("GET", "/v1/models/other", "", NULL), "model", 404, "model",
                "model_not_found");
    a = client_ask("GET", "/", "", NULL);
    assert_int_equal(a.status, 200);
    assert_string_equal(answer_header(&a, "content-type"), "text/html; charset=utf-8");
    assert_non_null(answer_header(&a, "content-security-policy"));
    answer_free(&a);
}

static void counts_tokens(void **state) {
    answer a = client_post("/tokenize", "{\"content\":\"h\xc3\xa9\"}");
    assert_string_equal(at(&a, "/tokens"), "[104,195,169]");
    assert_string_equal(at(&a, "/count"), "3");
    answer_free(&a);
    a = client_post("/v1/tokenize", "{\"prompt\":\"h\xc3\xa9\",\"with_pieces\":true}");
    assert_string_equal(at(&a, "/tokens"), "[{\"id\":104,\"piece\":\"h\"},{\"id\":195,\"piece\":"
                                           "[195]},{\"id\":169,\"piece\":[169]}]");
    answer_free(&a);
    a = client_post("/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    assert_int_equal(a.status, 200);
    answer_free(&a);
    a = client_post("/detokenize", "{\"tokens\":[104,195,169,256,195]}");
    assert_string_equal(at(&a, "/content"), "\"h\xc3\xa9<s>\xef\xbf\xbd\"");
    answer_free(&a);
}

static void exposes_metrics(void **state) {
    static const char *const lines[] = {
        "# TYPE vllm:num_requests_running gauge\n",
        "vllm:num_requests_running{model_name=\"stub\"} 3\n",
        "vllm:kv_cache_usage_perc{model_name=\"stub\"} 0.25\n",
        "vllm:prefix_cache_queries_total{model_name=\"stub\"} 100\n",
        "vllm:prefix_cache_hits_total{model_name=\"stub\"} 60\n",
        "vllm:request_success_total{model_name=\"stub\",finished_reason=\"stop\"} 5\n",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"stub\",le=\"0.001\"} 0\n",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"stub\",le=\"+Inf\"} 20\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"stub\"} 20\n",
        "vllm:time_to_first_token_seconds_sum{model_name=\"stub\"} 1.5\n",
    };
    answer a = client_ask("GET", "/metrics", "", NULL);
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        if (!strstr(a.body, lines[i])) fail_msg("no %s", lines[i]);
    answer_free(&a);
}

/* ---- chat ------------------------------------------------------------------------------------ */

static void answers_a_chat(void **state) {
    answer a = client_post(CHAT, SAY("hi", ",\"model\":\"any\",\"unknown\":{\"x\":[1]}"));
    assert_int_equal(a.status, 200);
    assert_memory_equal(at(&a, "/id"), "\"chatcmpl-", 10);
    assert_string_equal(at(&a, "/object"), "\"chat.completion\"");
    assert_string_equal(at(&a, "/model"), "\"stub\"");
    assert_string_equal(at(&a, "/choices/0/message"),
                        "{\"role\":\"assistant\",\"content\":\"" STUB_REPLY "\",\"refusal\":null}");
    assert_string_equal(at(&a, "/choices/0/finish_reason"), "\"stop\"");
    assert_string_equal(at(&a, "/choices/0/logprobs"), "null");
    assert_string_equal(at(&a, "/usage/completion_tokens"), "16");
    int prompt = atoi(at(&a, "/usage/prompt_tokens"));
    assert_true(prompt > 20);
    assert_int_equal(atoi(at(&a, "/usage/total_tokens")), prompt + 16);
    assert_int_equal(atoi(at(&a, "/usage/prompt_tokens_details/cached_tokens")), prompt / 2);
    assert_string_equal(at(&a, "/usage/prompt_tokens_details/miss_reason"), "\"never seen\"");
    answer_free(&a);
}

/* What the template is given, as the echo of a completion would show it: the stub tokenizes it. */
static void gives_templates_plain_messages(void **state) {
    answer a = client_post(
        "/tokenize",
        "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"tool_calls\":[]}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"n\":1.50}}],"
        "\"chat_template_kwargs\":{\"enable_thinking\":false}}");
    assert_int_equal(a.status, 200);
    char *ask = malloc(a.len + 64);
    sprintf(ask, "{\"tokens\":%s}", at(&a, "/tokens"));
    answer_free(&a);
    a = client_post("/detokenize", ask);
    free(ask);
    json_object *root = json_tokener_parse(a.body);
    assert_string_equal(
        json_object_get_string(json_object_object_get(root, "content")),
        "{\"enable_thinking\":false,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"n\":1.50}}],\"messages\":[{\"role\":\"system\",\"content\":\"a\\nb\"},"
        "{\"role\":\"assistant\",\"tool_calls\":[]}],"
        "\"add_generation_prompt\":true}");
    json_object_put(root);
    answer_free(&a);
}

static void passes_every_option(void **state) {
    answer a = client_post(
        CHAT, SAY("hi", ",\"n\":2,\"max_tokens\":9,\"max_completion_tokens\":8,\"min_tokens\":2,"
                        "\"temperature\":0.5,\"top_p\":0.25,\"min_p\":0.125,\"top_k\":-1,"
                        "\"repetition_penalty\":1.5,\"presence_penalty\":-2,"
                        "\"frequency_penalty\":2,\"seed\":-7,\"stop\":[\"one\",\"two\"],"
                        "\"stop_token_ids\":[299],\"logit_bias\":{\"17\":-100},"
                        "\"ignore_eos\":true,\"include_stop_str_in_output\":true,"
                        "\"skip_special_tokens\":false,\"cache_salt\":\"pepper\","
                        "\"priority\":-3,\"logprobs\":true,\"top_logprobs\":4"));
    assert_int_equal(a.status, 200);
    answer_free(&a);
    stub_seen s = stub_last();
    assert_int_equal(s.opts.n, 2);
    assert_int_equal(s.opts.max_tokens, 8);
    assert_int_equal(s.opts.min_tokens, 2);
    assert_true(s.opts.temperature == 0.5f && s.opts.top_p == 0.25f && s.opts.min_p == 0.125f);
    assert_int_equal(s.opts.top_k, 0);
    assert_true(s.opts.repetition_penalty == 1.5f && s.opts.presence_penalty == -2 &&
                s.opts.frequency_penalty == 2);
    assert_true(s.opts.seed == (uint64_t)-7);
    assert_string_equal(s.stop[0], "one");
    assert_string_equal(s.stop[1], "two");
    assert_int_equal(s.stop_token, 299);
    assert_int_equal(s.bias_token, 17);
    assert_true(s.bias == -100);
    assert_true(s.opts.ignore_eos && s.opts.include_stop && s.opts.keep_special);
    assert_string_equal(s.salt, "pepper");
    assert_string_equal(s.tenant, "");
    assert_int_equal(s.opts.priority, -3);
    assert_int_equal(s.opts.logprobs, 4);
}

static void counts_all_choices(void **state) {
    answer a = client_post(CHAT, SAY("@reply=ab;", ",\"n\":3"));
    for (int i = 0; i < 3; i++) {
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/choices/%d/message/content", i);
        assert_string_equal(at(&a, pointer), "\"ab\"");
        snprintf(pointer, sizeof pointer, "/choices/%d/index", i);
        assert_int_equal(atoi(at(&a, pointer)), i);
    }
    assert_string_equal(at(&a, "/usage/completion_tokens"), "6");
    answer_free(&a);
}

static void clips_to_the_context(void **state) {
    answer a = client_post(CHAT, SAY("@reply=abc;", ",\"max_tokens\":2"));
    assert_string_equal(at(&a, "/choices/0/finish_reason"), "\"length\"");
    assert_string_equal(at(&a, "/choices/0/message/content"), "\"ab\"");
    answer_free(&a);
    a = client_post(COMPLETIONS, "{\"prompt\":\"@reply=a;\",\"max_tokens\":1000000}");
    assert_int_equal(a.status, 200);
    assert_int_equal(stub_last().opts.max_tokens, -1); /* as the context allows */
    answer_free(&a);
}

static void tells_chat_logprobs(void **state) {
    answer a = client_post(CHAT, SAY("@reply=h\xc3\xa9;", ",\"logprobs\":true,\"top_logprobs\":2"));
    assert_string_equal(
        at(&a, "/choices/0/logprobs/content/0"),
        "{\"token\":\"h\",\"logprob\":-0.5,\"bytes\":[104],\"top_logprobs\":[{\"token\":\"h\","
        "\"logprob\":-0.5,\"bytes\":[104]},{\"token\":\"i\",\"logprob\":-1.5,\"bytes\":[105]}]}");
    assert_string_equal(at(&a, "/choices/0/logprobs/content/1/bytes"), "[195]");
    assert_string_equal(at(&a, "/choices/0/logprobs/content/1/token"), "\"\xef\xbf\xbd\"");
    assert_string_equal(at(&a, "/choices/0/logprobs/content/2/bytes"), "[169]");
    assert_string_equal(at(&a, "/choices/0/logprobs/content/3"), "");
    answer_free(&a);
}

/* ---- completions ----------------------------------------------------------------------------- */

static void takes_every_form_of_prompt(void **state) {
    static const struct {
        const char *prompt;
        int n;
    } table[] = {
        {"\"@reply=x;\"", 1},
        {"[\"@reply=x;\",\"@reply=x;b\"]", 2},
        {"[64,114,101,112,108,121,61,120,59]", 1},
        {"[[64,114,101,112,108,121,61,120,59],[64,114,101,112,108,121,61,120,59]]", 2},
        {"[\"@reply=x;\",[64,114,101,112,108,121,61,120,59]]", 2},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        char body[256], pointer[64];
        snprintf(body, sizeof body, "{\"prompt\":%s,\"n\":2}", table[i].prompt);
        answer a = client_post(COMPLETIONS, body);
        assert_int_equal(a.status, 200);
        for (int j = 0; j < 2 * table[i].n; j++) {
            snprintf(pointer, sizeof pointer, "/choices/%d", j);
            char expected[128];
            snprintf(expected, sizeof expected,
                     "{\"index\":%d,\"text\":\"x\",\"logprobs\":null,\"finish_reason\":\"stop\"}",
                     j);
            assert_string_equal(at(&a, pointer), expected);
        }
        snprintf(pointer, sizeof pointer, "/choices/%d", 2 * table[i].n);
        assert_string_equal(at(&a, pointer), "");
        answer_free(&a);
    }
}

static void runs_more_prompts_than_the_queue_takes(void **state) {
    buf body = {0};
    buf_puts(&body, "{\"prompt\":[\"0\"");
    for (int i = 1; i < 3 * STUB_QUEUE; i++) buf_printf(&body, ",\"@reply=%d;\"", i);
    buf_puts(&body, "]}");
    answer a = client_post(COMPLETIONS, body.data);
    assert_int_equal(a.status, 200);
    assert_string_equal(at(&a, "/choices/191/text"), "\"191\"");
    answer_free(&a);
    buf_fini(&body);
    fixture_wait_idle();
}

static void echoes_with_logprobs(void **state) {
    answer a =
        client_post(COMPLETIONS, "{\"prompt\":\"@reply=\xc3\xa9;\",\"echo\":true,\"logprobs\":1}");
    assert_string_equal(at(&a, "/choices/0/text"), "\"@reply=\xc3\xa9;\xc3\xa9\"");
    assert_string_equal(at(&a, "/choices/0/logprobs/tokens"),
                        "[\"@\",\"r\",\"e\",\"p\",\"l\",\"y\",\"=\",\"bytes:\\\\xc3\","
                        "\"bytes:\\\\xa9\",\";\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\"]");
    assert_string_equal(at(&a, "/choices/0/logprobs/token_logprobs"),
                        "[null,-0.5,-0.5,-0.5,-0.5,-0.5,-0.5,-0.5,-0.5,-0.5,-0.5,-0.5]");
    assert_memory_equal(at(&a, "/choices/0/logprobs/top_logprobs"), "[null,{", 7);
    assert_string_equal(at(&a, "/choices/0/logprobs/top_logprobs/1"), "{\"r\":-0.5}");
    assert_string_equal(at(&a, "/choices/0/logprobs/text_offset"), "[0,1,2,3,4,5,6,7,8,9,10,11]");
    answer_free(&a);
    /* Nothing but a first token, of which the engine says nothing. */
    a = client_post(COMPLETIONS,
                    "{\"prompt\":[104],\"echo\":true,\"logprobs\":1,\"max_tokens\":0}");
    assert_string_equal(at(&a, "/choices/0/logprobs/tokens"), "[\"h\"]");
    assert_string_equal(at(&a, "/choices/0/logprobs/token_logprobs"), "[null]");
    answer_free(&a);
    a = client_post(COMPLETIONS, "{\"prompt\":[104,256],\"echo\":true,\"max_tokens\":0}");
    assert_string_equal(at(&a, "/choices/0/text"), "\"h<s>\"");
    assert_string_equal(at(&a, "/choices/0/finish_reason"), "\"length\"");
    answer_free(&a);
}

/* What the stub says of a prompt token: -0.5 for itself, and less for those after it. */
static void tells_prompt_logprobs(void **state) {
#define ITEM(id, logprob, rank, text)                                                              \
    "\"" id "\":{\"logprob\":" logprob ",\"rank\":" rank ",\"decoded_token\":\"" text "\"}"
    static const char want[] =
        "[null,{" ITEM("98", "-0.5", "1", "b") "," ITEM("99", "-1.5", "2", "c") "}]";
    answer a = client_post(COMPLETIONS,
                           "{\"prompt\":\"ab\",\"prompt_logprobs\":2,\"max_tokens\":1,\"n\":2}");
    assert_int_equal(a.status, 200);
    assert_string_equal(at(&a, "/choices/0/prompt_logprobs"), want);
    assert_string_equal(at(&a, "/choices/1/prompt_logprobs"), want);
    assert_string_equal(at(&a, "/choices/0/logprobs"), "null");
    assert_string_equal(at(&a, "/choices/0/text"), "\"H\"");
    answer_free(&a);
    /* Each wish has its own number of others. */
    a = client_post(COMPLETIONS, "{\"prompt\":\"ab\",\"prompt_logprobs\":0,\"logprobs\":2,"
                                 "\"echo\":true,\"max_tokens\":1}");
    assert_string_equal(at(&a, "/choices/0/prompt_logprobs"),
                        "[null,{" ITEM("98", "-0.5", "1", "b") "}]");
    assert_string_equal(at(&a, "/choices/0/logprobs/top_logprobs"),
                        "[null,{\"b\":-0.5,\"c\":-1.5},{\"H\":-0.5,\"I\":-1.5}]");
    answer_free(&a);
    a = client_post(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                          "\"prompt_logprobs\":1,\"max_tokens\":1}");
    assert_memory_equal(at(&a, "/prompt_logprobs"), "[null,{", 7);
    assert_string_equal(at(&a, "/choices/0/logprobs"), "null");
    answer_free(&a);
}

/* ---- main ------------------------------------------------------------------------------------ */

int main(void) {
    fixture_block_signals();
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_bad_requests),
        cmocka_unit_test(says_how_to_retry),
        cmocka_unit_test(names_the_context),
        cmocka_unit_test(handles_methods),
        cmocka_unit_test(allows_local_pages),
        cmocka_unit_test(refuses_rebound_names),
        cmocka_unit_test(echoes_request_ids),
        cmocka_unit_test(answers_small_routes),
        cmocka_unit_test(counts_tokens),
        cmocka_unit_test(exposes_metrics),
        cmocka_unit_test(answers_a_chat),
        cmocka_unit_test(gives_templates_plain_messages),
        cmocka_unit_test(passes_every_option),
        cmocka_unit_test(counts_all_choices),
        cmocka_unit_test(clips_to_the_context),
        cmocka_unit_test(tells_chat_logprobs),
        cmocka_unit_test(takes_every_form_of_prompt),
        cmocka_unit_test(runs_more_prompts_than_the_queue_takes),
        cmocka_unit_test(echoes_with_logprobs),
        cmocka_unit_test(tells_prompt_logprobs),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_take_down);
}
