/* Fuzzes what a request's tools become: in each dialect the grammar of strict calls, and an answer
 * that is forced to be a call. The first byte is the dialect, the rest the JSON of `tools`. */
#include "chat.h"
#include "grammar_bytes.h"
#include "strict_grammar.h"

static const char *const dialects[] = {"hermes",        "llama3",       "mistral", "deepseek-v3.1",
                                       "glm",           "generic",      "granite", "qwen3-coder",
                                       "gemma4",        "pythonic",     "kimi-k2", "harmony",
                                       "deepseek-dsml", "mistral-nemo", "lfm2",    "minimax-m3"};

static void strict(grammar_vocab *v, const chat_style *style, const char *tools, fuzz_input in) {
    chat_strict s = {0};
    grammar *g = NULL;
    icp_error err = {0};
    int rc = chat_strict_calls(&(chat_strict_opts){.style = *style, .tools_json = tools}, &s, &err);
    must(rc == 0 || rc == ICP_EFORMAT || rc == ICP_EUNSUPPORTED);
    if (rc == 0 && s.n) {
        rc = strict_grammar(v, &s, &fuzz_limits, &g, &err);
        must(rc == 0 || (rc != ICP_EBUG && err.text[0]));
        if (rc == 0) make_text(g, in);
    }
    grammar_unref(&g);
    chat_strict_fini(&s);
}

static void forced(grammar_vocab *v, const chat_style *style, const char *tools, fuzz_input in) {
    jinja_text begun = {0};
    buf schema = {0};
    grammar *g = NULL;
    icp_error err = {0};
    if (chat_force(style, tools, false, &begun, &schema) == 0) {
        int rc = grammar_from_schema(v, schema.data, schema.len, &fuzz_limits, &g, &err);
        must(rc == 0 || (rc != ICP_EBUG && err.text[0]));
        if (rc == 0) make_text(g, in);
        must(chat_force_dialect(style, tools) != NULL);
    }
    grammar_unref(&g);
    jinja_text_fini(&begun);
    buf_fini(&schema);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static grammar_vocab *v;
    if (!v) v = open_bytes();
    fuzz_input in = {data, size};
    chat_style style = chat_style_named(dialects[fuzz_byte(&in) % COUNT_OF(dialects)]);
    char *tools = fuzz_string(in);
    strict(v, &style, tools, in);
    forced(v, &style, tools, in);
    free(tools);
    return 0;
}
