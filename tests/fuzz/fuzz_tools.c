/* Fuzzes what a request's tools become: in each dialect the grammar of strict calls, and an answer
 * that is forced to be a call. The first byte is the dialect, the rest the JSON of `tools`. */
#include "chat.h"
#include "grammar_bytes.h"

static const char *const dialects[] = {"hermes",        "llama3",       "mistral", "deepseek-v3.1",
                                       "glm",           "generic",      "granite", "qwen3-coder",
                                       "gemma4",        "pythonic",     "kimi-k2", "harmony",
                                       "deepseek-dsml", "mistral-nemo", "lfm2",    "minimax-m3"};

static enum grammar_value value_of(void *params, const char *key) {
    return (enum grammar_value)chat_strict_value(params, key);
}

static grammar_dialect dialect_of(const chat_strict *s) {
    static const enum grammar_arguments syntaxes[] = {
        [CHAT_KEYED] = ARGUMENTS_KEYED, [CHAT_LITERAL] = ARGUMENTS_LITERAL};
    return (grammar_dialect){.arguments =
                                 s->syntax == CHAT_CHANNEL ? ARGUMENTS_JSON : syntaxes[s->syntax],
                             .section = s->section,
                             .section_end = s->section_end,
                             .call = s->call,
                             .listed = s->listed,
                             .ends = s->ends,
                             .bare = s->bare,
                             .thought_end = s->thought_end,
                             .message = s->message,
                             .message_end = s->message_end,
                             .key = s->key,
                             .key_end = s->key_end,
                             .text_key_end = s->text_key_end,
                             .value_end = s->value_end,
                             .lines = s->lines,
                             .named_end = s->named_end,
                             .value_of = value_of,
                             .quote = s->quote,
                             .assign = s->quote ? ':' : '=',
                             .tokens = s->tokens,
                             .n_tokens = s->n_tokens};
}

static void strict(grammar_vocab *v, const chat_style *style, const char *tools, fuzz_input in) {
    enum { MOST = 64 };
    grammar_call calls[MOST];
    chat_strict s = {0};
    grammar *g = NULL;
    icp_error err = {0};
    int rc = chat_strict_calls(&(chat_strict_opts){.style = *style, .tools_json = tools}, &s, &err);
    must(rc == 0 || rc == ICP_EFORMAT || rc == ICP_EUNSUPPORTED);
    for (size_t i = 0; rc == 0 && i < s.n && i < MOST; i++) {
        const chat_strict_call *c = &s.calls[i];
        calls[i] = (grammar_call){.begin = {c->begin, strlen(c->begin)},
                                  .schema = {c->schema, c->schema ? strlen(c->schema) : 0},
                                  .end = {c->end, strlen(c->end)},
                                  .arg = c->params};
    }
    if (rc == 0 && s.n) {
        grammar_dialect d = dialect_of(&s);
        rc = grammar_from_calls(v, &d, calls, MIN(s.n, (size_t)MOST), &fuzz_limits, &g, &err);
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
