#include "strict_grammar.h"

#include <string.h>

static enum grammar_value value_of(void *params, const char *key) {
    static const enum grammar_value values[] = {[CHAT_VALUE_JSON] = VALUE_JSON,
                                                [CHAT_VALUE_TEXT] = VALUE_TEXT,
                                                [CHAT_VALUE_TEXT_OR_NULL] = VALUE_TEXT_OR_NULL};
    return values[chat_strict_value(params, key)];
}

static grammar_dialect dialect_of(const chat_strict *s) {
    static const enum grammar_arguments syntaxes[] = {[CHAT_JSON] = ARGUMENTS_JSON,
                                                      [CHAT_NAMED] = ARGUMENTS_JSON,
                                                      [CHAT_CHANNEL] = ARGUMENTS_JSON,
                                                      [CHAT_KEYED] = ARGUMENTS_KEYED,
                                                      [CHAT_LITERAL] = ARGUMENTS_LITERAL};
    return (grammar_dialect){.arguments = syntaxes[s->syntax],
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

static grammar_str str_of(const char *text) {
    return (grammar_str){text, text ? strlen(text) : 0};
}

int strict_grammar(grammar_vocab *v, const chat_strict *s, const grammar_limits *limits,
                   grammar **out, icp_error *err) {
    grammar_dialect dialect = dialect_of(s);
    grammar_call *calls = mem_zero(s->n, sizeof *calls);
    if (!calls) return error_set(err, ICP_ENOMEM, "out of memory");
    for (size_t i = 0; i < s->n; i++) {
        const chat_strict_call *call = &s->calls[i];
        calls[i] = (grammar_call){.begin = str_of(call->begin),
                                  .schema = str_of(call->schema),
                                  .end = str_of(call->end),
                                  .arg = call->params};
    }
    int rc = grammar_from_calls(v, &dialect, calls, s->n, limits, out, err);
    mem_free(calls);
    return rc;
}
