/* What clients of llama-server, vLLM and Ollama look for. */
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

#define COMPLETIONS "/v1/completions"

static const char *at(const answer *a, const char *pointer) {
    return json_at(a->body, pointer);
}

static void check_error(const char *path, const char *body, int status, const char *param) {
    answer a = client_post(path, body);
    char quoted[80] = "null";
    if (param) snprintf(quoted, sizeof quoted, "\"%s\"", param);
    if (a.status != status || strcmp(at(&a, "/error/param"), quoted) != 0)
        fail_msg("%s %s: %d %s", path, body, a.status, a.body);
    answer_free(&a);
}

/* ---- llama-server ---------------------------------------------------------------------------- */

static void check_scales(const char *path, const char *body, float first, float second) {
    answer a = client_post(path, body);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    stub_seen s = stub_last();
    assert_int_equal(s.opts.n_adapter_scales, 2);
    assert_true(s.scales[0] == first && s.scales[1] == second);
}

static void adapters(void **state) {
    static const char list[] = "[{\"id\":0,\"path\":\"first.gguf\",\"scale\":%s,\"task_name\":\"\","
                               "\"prompt_prefix\":\"\"},{\"id\":1,\"path\":\"second.gguf\","
                               "\"scale\":%s,\"task_name\":\"\",\"prompt_prefix\":\"\"}]";
    char want[400];
    answer a = client_ask("GET", "/lora-adapters", "", NULL);
    snprintf(want, sizeof want, list, "1", "0.25");
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, want);
    answer_free(&a);
    check_scales("/completion", "{\"prompt\":\"a\"}", 1, 0.25f);
    check_scales("/completion", "{\"prompt\":\"a\",\"lora\":[{\"id\":1,\"scale\":0.5}]}", 0, 0.5f);
    check_scales("/v1/completions",
                 "{\"prompt\":\"a\",\"lora\":[{\"id\":1,\"scale\":-1},{\"id\":0,\"scale\":2}]}", 2,
                 -1);
    check_scales("/v1/chat/completions",
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"lora\":[]}", 0, 0);
    check_scales("/v1/messages",
                 "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                 "\"lora\":[{\"id\":0,\"scale\":3}]}",
                 3, 0);
    check_scales("/v1/responses", "{\"input\":\"a\",\"lora\":[{\"id\":0,\"scale\":3}]}", 3, 0);
    check_error("/completion", "{\"prompt\":\"a\",\"lora\":[{\"id\":2,\"scale\":1}]}", 400,
                "lora.id");
    check_error("/completion", "{\"prompt\":\"a\",\"lora\":[{\"id\":0,\"scale\":1001}]}", 400,
                "lora.scale");
    check_error("/completion", "{\"prompt\":\"a\",\"lora\":[{\"scale\":1}]}", 400, "lora");
    check_error("/completion", "{\"prompt\":\"a\",\"lora\":[7]}", 400, "lora");
    check_error("/completion", "{\"prompt\":\"a\",\"lora\":{\"id\":0}}", 400, "lora");
    check_error("/lora-adapters", "{\"id\":0,\"scale\":1}", 400, NULL);
    check_error("/lora-adapters", "[{\"id\":9,\"scale\":1}]", 400, "lora.id");
    a = client_post("/lora-adapters", "[{\"id\":1,\"scale\":0.1}]");
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, "{\"success\":true}");
    answer_free(&a);
    a = client_ask("GET", "/lora-adapters", "", NULL);
    snprintf(want, sizeof want, list, "0", "0.100000001");
    assert_string_equal(a.body, want);
    answer_free(&a);
    check_scales("/completion", "{\"prompt\":\"a\"}", 0, 0.1f);
    a = client_post("/lora-adapters", "[{\"id\":0,\"scale\":1},{\"id\":1,\"scale\":0.25}]");
    assert_int_equal(a.status, 200);
    answer_free(&a);
}

static void completes(void **state) {
    answer a =
        client_post("/completion", "{\"prompt\":\"@reply=abc;\",\"n_predict\":2,\"n_probs\":1,"
                                   "\"return_tokens\":true,\"cache_prompt\":false,"
                                   "\"repeat_penalty\":1.5,\"logit_bias\":[[7,false]]}");
    assert_int_equal(a.status, 200);
    assert_string_equal(at(&a, "/content"), "\"ab\"");
    assert_string_equal(at(&a, "/tokens"), "[97,98]");
    assert_string_equal(at(&a, "/stop"), "true");
    assert_string_equal(at(&a, "/stop_type"), "\"limit\"");
    assert_string_equal(at(&a, "/tokens_predicted"), "2");
    assert_string_equal(at(&a, "/tokens_evaluated"), "11");
    assert_string_equal(at(&a, "/timings/cache_n"), "5");
    assert_string_equal(at(&a, "/timings/prompt_n"), "6");
    assert_string_equal(at(&a, "/timings/predicted_n"), "2");
    assert_string_equal(at(&a, "/completion_probabilities/0/id"), "97");
    assert_string_equal(at(&a, "/completion_probabilities/0/logprob"), "-0.5");
    answer_free(&a);
    stub_seen s = stub_last();
    assert_int_equal(s.opts.max_hit, 0);
    assert_true(s.opts.repetition_penalty == 1.5f && s.bias_token == 7 && s.bias == -100);
    /* llama-server's defaults. */
    assert_true(s.opts.temperature == 0.8f && s.opts.top_p == 0.95f && s.opts.min_p == 0.05f);
    assert_int_equal(s.opts.top_k, 40);
    a = client_post("/completion", "{\"prompt\":\"@reply=a;@stop=0;\",\"stop\":[\"END\"],"
                                   "\"n_predict\":-1,\"seed\":-1}");
    assert_string_equal(at(&a, "/stop_type"), "\"word\"");
    assert_string_equal(at(&a, "/stopping_word"), "\"END\"");
    assert_int_equal(stub_last().opts.max_tokens, -1);
    answer_free(&a);
}

static void streams(void **state) {
    answer a = client_post("/completion", "{\"prompt\":\"@reply=ab;\",\"stream\":true}");
    char **e = stream_events(a.body);
    assert_string_equal(json_at(e[0], "/content"), "\"a\"");
    assert_string_equal(json_at(e[0], "/stop"), "false");
    assert_string_equal(json_at(e[1], "/content"), "\"b\"");
    assert_string_equal(json_at(e[2], "/stop"), "true");
    assert_string_equal(json_at(e[2], "/stop_type"), "\"eos\"");
    assert_string_equal(json_at(e[2], "/timings/predicted_n"), "2");
    assert_null(e[3]);
    answer_free(&a);
}

static void answers_probes(void **state) {
    answer a = client_ask("GET", "/props", "", NULL);
    assert_string_equal(at(&a, "/default_generation_settings/n_ctx"), "4096");
    assert_string_equal(at(&a, "/total_slots"), "16");
    assert_string_equal(at(&a, "/chat_template"), "\"{{ template }}\"");
    assert_string_equal(at(&a, "/bos_token"), "\"<s>\"");
    assert_string_equal(at(&a, "/model_path"), "\"stub.gguf\"");
    answer_free(&a);
    a = client_ask("GET", "/slots?fail_on_no_slot=1", "", NULL);
    assert_string_equal(at(&a, "/2/is_processing"), "true"); /* three run in the stub */
    assert_string_equal(at(&a, "/3/is_processing"), "false");
    assert_string_equal(at(&a, "/15/n_ctx"), "4096");
    assert_string_equal(at(&a, "/16"), "");
    answer_free(&a);
    a = client_post("/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    assert_string_equal(
        at(&a, "/prompt"),
        "\"{\\\"messages\\\":[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"hi\\\"}],"
        "\\\"add_generation_prompt\\\":true}\"");
    answer_free(&a);
    a = client_post("/apply-template",
                    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
                    "\"content\":\"Yes, \"}],\"continue_final_message\":true}");
    assert_string_equal(
        at(&a, "/prompt"),
        "\"{\\\"messages\\\":[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"hi\\\"}],"
        "\\\"add_generation_prompt\\\":true}Yes, \"");
    answer_free(&a);
}

static void refuses(void **state) {
    check_error("/v1/embeddings", "{\"input\":\"x\"}", 400, "model");
    check_error("/rerank", "{}", 400, "query");
    check_error("/v1/reranking", "{\"query\":\"x\",\"documents\":[\"y\"]}", 400, "model");
    check_error("/infill", "{}", 400, "input_prefix");
    check_error("/infill", "{\"input_prefix\":5}", 400, "input_prefix");
    check_error("/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}", 400, "input_suffix");
    check_error("/completion", "{\"prompt\":\"a\",\"logit_bias\":[[null,1]]}", 400, "logit_bias");
    check_error("/completion", "{\"prompt\":\"a\",\"n_predict\":\"x\"}", 400, "n_predict");
    check_error("/completion", "{\"prompt\":\"a\",\"n_probs\":21}", 400, "n_probs");
    check_error("/completion", "{}", 400, "prompt");
    check_error("/apply-template",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                "\"continue_final_message\":true}",
                400, "continue_final_message");
    check_error("/apply-template",
                "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}],"
                "\"continue_final_message\":true,\"add_generation_prompt\":true}",
                400, "continue_final_message");
    check_error("/api/show", "{}", 404, NULL);
    answer a = client_ask("GET", "/api/tags", "", NULL);
    assert_int_equal(a.status, 404);
    answer_free(&a);
}

/* ---- vLLM ------------------------------------------------------------------------------------ */

static void tells_token_ids(void **state) {
    answer a = client_post(COMPLETIONS, "{\"prompt\":\"@reply=ab;\",\"return_token_ids\":true}");
    assert_string_equal(at(&a, "/choices/0/token_ids"), "[97,98]");
    assert_string_equal(at(&a, "/choices/0/prompt_token_ids"),
                        "[64,114,101,112,108,121,61,97,98,59]");
    answer_free(&a);
    a = client_post(COMPLETIONS,
                    "{\"prompt\":\"@reply=ab;\",\"return_token_ids\":true,\"stream\":true}");
    char **e = stream_events(a.body);
    assert_string_equal(json_at(e[0], "/choices/0/token_ids"), "[97]");
    assert_string_equal(json_at(e[1], "/choices/0/token_ids"), "[98]");
    answer_free(&a);
}

static void bans_tokens(void **state) {
    answer a = client_post(COMPLETIONS, "{\"prompt\":\"x\",\"allowed_token_ids\":[1,2]}");
    assert_int_equal(a.status, 200);
    stub_seen s = stub_last();
    assert_int_equal(s.opts.n_bias, STUB_VOCAB - 2);
    assert_int_equal(s.bias_token, 0);
    assert_true(s.bias == -100);
    answer_free(&a);
    a = client_post(COMPLETIONS, "{\"prompt\":\"x\",\"bad_words\":[\"q\"]}");
    assert_int_equal(a.status, 200);
    assert_int_equal(stub_last().opts.n_bans, 2); /* as it is, and with a blank before */
    assert_string_equal(stub_last().banned, " q");
    answer_free(&a);
    a = client_post(COMPLETIONS, "{\"prompt\":\"x\",\"bad_words\":[\"q\",\"two\"]}");
    assert_int_equal(stub_last().opts.n_bans, 4);
    assert_string_equal(stub_last().banned, " two");
    answer_free(&a);
    check_error(COMPLETIONS, "{\"prompt\":\"x\",\"bad_words\":[\"\"]}", 400, "bad_words");
    check_error(COMPLETIONS, "{\"prompt\":\"x\",\"bad_words\":[5]}", 400, "bad_words");
    check_error(COMPLETIONS, "{\"prompt\":\"x\",\"allowed_token_ids\":[300]}", 400,
                "allowed_token_ids");
    check_error(COMPLETIONS, "{\"prompt\":\"x\",\"session_id\":5}", 400, "session_id");
}

static void tells_of_the_tokenizer(void **state) {
    answer a = client_ask("GET", "/tokenizer_info", "", NULL);
    assert_int_equal(a.status, 200);
    assert_string_equal(at(&a, "/eos_token"), at(&a, "/pad_token")); /* the stub has neither */
    assert_int_equal(atoi(at(&a, "/model_max_length")), STUB_CTX);
    answer_free(&a);
}

/* ---- Ollama ---------------------------------------------------------------------------------- */

static void lets_itself_be_discovered(void **state) {
    fixture_stop();
    static serve_opts opts = {.model_path = "/models/stub.gguf", .ollama_discovery = true};
    fixture_start(&opts);
    answer a = client_ask("GET", "/api/version", "", NULL);
    assert_string_equal(at(&a, "/version"), "\"0.0\"");
    answer_free(&a);
    a = client_ask("GET", "/api/tags", "", NULL);
    assert_string_equal(at(&a, "/models/0/name"), "\"stub\"");
    answer_free(&a);
    a = client_post("/api/show", "{\"model\":\"stub\"}");
    assert_string_equal(at(&a, "/capabilities"), "[\"completion\",\"tools\"]");
    assert_string_equal(at(&a, "/model_info/stub.context_length"), "4096");
    answer_free(&a);
}

/* ---- main ------------------------------------------------------------------------------------ */

int main(void) {
    fixture_block_signals();
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters),
        cmocka_unit_test(completes),
        cmocka_unit_test(streams),
        cmocka_unit_test(answers_probes),
        cmocka_unit_test(refuses),
        cmocka_unit_test(tells_token_ids),
        cmocka_unit_test(bans_tokens),
        cmocka_unit_test(tells_of_the_tokenizer),
        cmocka_unit_test(lets_itself_be_discovered),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_take_down);
}
