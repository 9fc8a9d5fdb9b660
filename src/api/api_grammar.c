/* icp_grammar: a grammar over the model's own tokens. */
#include "api_internal.h"
#include "strict_grammar.h"

#include <string.h>

/* What a token adds to a text; nothing for those that print as nothing. */
static grammar_str token_text(const tokenizer *t, int32_t id) {
    enum token_type type = tokenizer_type(t, id);
    bool printed = type == TOKEN_NORMAL || type == TOKEN_USER || type == TOKEN_BYTE;
    if (!printed || tokenizer_ends(t, id)) return (grammar_str){"", 0};
    text_str text = tokenizer_bytes(t, id);
    return (grammar_str){text.data, text.len};
}

/* Special tokens of marks as these spell them; `from` is where each begins in `text`. */
typedef struct mark_tokens {
    const chat_strict *calls;
    buf text;
    size_t from[COUNT_OF(((chat_strict *)NULL)->tokens) + 1];
} mark_tokens;

static void spell_marks(const chat_strict *calls, mark_tokens *out) {
    *out = (mark_tokens){.calls = calls};
    for (size_t i = 0; i < calls->n_tokens; i++) {
        buf_puts(&out->text, GRAMMAR_TOKEN);
        buf_puts(&out->text, calls->tokens[i]);
        buf_puts(&out->text, GRAMMAR_TOKEN_END);
        out->from[i + 1] = out->text.len;
    }
}

/* In a grammar of calls: bytes that UTF-8 does not have are those of marks and of control tokens,
 * which may stand in free text. */
static grammar_str text_beside_marks(const tokenizer *t, int32_t id, const mark_tokens *marks) {
    enum token_type type = tokenizer_type(t, id);
    grammar_str text = token_text(t, id);
    text_str name = tokenizer_bytes(t, id);
    bool special = type == TOKEN_CONTROL || type == TOKEN_USER;
    for (size_t i = 0; special && i < marks->calls->n_tokens; i++)
        if (strlen(marks->calls->tokens[i]) == name.len &&
            !memcmp(marks->calls->tokens[i], name.data, name.len))
            return (grammar_str){marks->text.data + marks->from[i],
                                 marks->from[i + 1] - marks->from[i]};
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] >= 0xf8) return (grammar_str){"", 0};
    bool free = type == TOKEN_CONTROL && !tokenizer_ends(t, id);
    return free ? (grammar_str){GRAMMAR_OTHER, 1} : text;
}

/* calls: NULL, or whose marks are to be told from texts. */
static int make_vocab(const tokenizer *t, const chat_strict *calls, grammar_vocab **out) {
    size_t n = tokenizer_n(t);
    grammar_str *tokens = mem_alloc(n * sizeof *tokens);
    mark_tokens marks = {0};
    if (!tokens) return ICP_ENOMEM;
    if (calls) spell_marks(calls, &marks);
    int rc = marks.text.failed ? ICP_ENOMEM : 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        tokens[i] = calls ? text_beside_marks(t, (int32_t)i, &marks) : token_text(t, (int32_t)i);
    if (rc == 0) rc = grammar_vocab_new(tokens, n, out);
    mem_free(tokens);
    buf_fini(&marks.text);
    return rc;
}

/* The marks of a model's dialect are always the same. */
static int find_vocab(icp_model *m, const chat_strict *calls, grammar_vocab **out, icp_error *err) {
    grammar_vocab **known = calls ? &m->calls_vocab : &m->grammar_vocab;
    int rc = 0;
    pthread_mutex_lock(&m->grammar_lock);
    if (!*known) rc = make_vocab(m->tok, calls, known);
    *out = *known;
    pthread_mutex_unlock(&m->grammar_lock);
    return rc < 0 ? error_set(err, rc, "out of memory") : 0;
}

static int get_vocab(icp_model *m, grammar_vocab **out, icp_error *err) {
    return find_vocab(m, NULL, out, err);
}

void api_free_grammars(icp_model *m) {
    grammar_vocab_unref(&m->grammar_vocab);
    grammar_vocab_unref(&m->calls_vocab);
    pthread_mutex_destroy(&m->grammar_lock);
}

/* An icp_grammar is a grammar under its public name. */
static int make(icp_model *m, const char *text, size_t len, icp_grammar **out, icp_error *err,
                int (*from)(grammar_vocab *, const char *, size_t, const grammar_limits *,
                            grammar **, icp_error *)) {
    grammar_vocab *v;
    grammar *g;
    TRY(get_vocab(m, &v, err));
    TRY(from(v, text, len, NULL, &g, err));
    *out = (icp_grammar *)g;
    return 0;
}

int icp_grammar_from_schema(icp_model *m, const char *json, size_t len, icp_grammar **out,
                            icp_error *err) {
    return make(m, json, len, out, err, grammar_from_schema);
}

int icp_grammar_from_gbnf(icp_model *m, const char *text, size_t len, icp_grammar **out,
                          icp_error *err) {
    return make(m, text, len, out, err, grammar_from_gbnf);
}

int icp_grammar_from_regex(icp_model *m, const char *text, size_t len, icp_grammar **out,
                           icp_error *err) {
    return make(m, text, len, out, err, grammar_from_regex);
}

int icp_grammar_from_json(icp_model *m, icp_grammar **out, icp_error *err) {
    return make(m, "", 0, out, err, grammar_from_json);
}

int icp_grammar_from_choices(icp_model *m, const char *const *texts, size_t n, icp_grammar **out,
                             icp_error *err) {
    grammar_vocab *v;
    grammar *g;
    TRY(get_vocab(m, &v, err));
    grammar_str *choices = mem_alloc(n * sizeof *choices);
    if (!choices) return error_set(err, ICP_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) choices[i] = (grammar_str){texts[i], strlen(texts[i])};
    int rc = grammar_from_choices(v, choices, n, NULL, &g, err);
    mem_free(choices);
    if (rc == 0) *out = (icp_grammar *)g;
    return rc;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int make_calls(icp_model *m, const chat_strict *s, icp_grammar **out, icp_error *err) {
    grammar_vocab *v;
    grammar *g;
    TRY(find_vocab(m, s, &v, err));
    TRY(strict_grammar(v, s, NULL, &g, err));
    *out = (icp_grammar *)g;
    return 0;
}

int icp_grammar_from_tools(icp_model *m, const char *tools_json, icp_grammar **out,
                           icp_error *err) {
    const chat_strict_opts opts = {
        .style = m->style, .tools_json = tools_json, .is_special = api_is_special, .arg = m};
    chat_strict calls;
    *out = NULL;
    TRY(chat_strict_calls(&opts, &calls, err));
    int rc = calls.n ? make_calls(m, &calls, out, err) : 0;
    chat_strict_fini(&calls);
    return rc;
}

void icp_grammar_free(icp_grammar **gp) {
    grammar *g = (grammar *)*gp;
    *gp = NULL;
    grammar_unref(&g);
}
