/* icp_grammar: a grammar over the model's own tokens. */
#include "api_internal.h"

#include <string.h>

/* What a token adds to a text; nothing for those that print as nothing. */
static grammar_str token_text(const tokenizer *t, int32_t id) {
    enum token_type type = tokenizer_type(t, id);
    bool printed = type == TOKEN_NORMAL || type == TOKEN_USER || type == TOKEN_BYTE;
    if (!printed || tokenizer_ends(t, id)) return (grammar_str){"", 0};
    text_str text = tokenizer_bytes(t, id);
    return (grammar_str){text.data, text.len};
}

static int make_vocab(const tokenizer *t, grammar_vocab **out) {
    size_t n = tokenizer_n(t);
    grammar_str *tokens = mem_alloc(n * sizeof *tokens);
    if (!tokens) return ICP_ENOMEM;
    for (size_t i = 0; i < n; i++) tokens[i] = token_text(t, (int32_t)i);
    int rc = grammar_vocab_new(tokens, n, out);
    mem_free(tokens);
    return rc;
}

static int get_vocab(icp_model *m, grammar_vocab **out, icp_error *err) {
    int rc = 0;
    pthread_mutex_lock(&m->grammar_lock);
    if (!m->grammar_vocab) rc = make_vocab(m->tok, &m->grammar_vocab);
    *out = m->grammar_vocab;
    pthread_mutex_unlock(&m->grammar_lock);
    return rc < 0 ? error_set(err, rc, "out of memory") : 0;
}

void api_free_grammars(icp_model *m) {
    grammar_vocab_unref(&m->grammar_vocab);
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

/* Whether text can be printed as a token of its own, or spelled. */
static bool is_printable(const icp_model *m, const char *text) {
    int32_t id = text ? tokenizer_find(m->tok, text) : -1;
    return id < 0 || token_text(m->tok, id).len > 0;
}

static int make_calls(icp_model *m, const chat_call_forms *forms, icp_grammar **out,
                      icp_error *err) {
    grammar_vocab *v;
    grammar *g;
    TRY(get_vocab(m, &v, err));
    grammar_call *calls = mem_zero(forms->n, sizeof *calls);
    if (!calls) return error_set(err, ICP_ENOMEM, "out of memory");
    for (size_t i = 0; i < forms->n; i++) {
        const chat_call_form *f = &forms->form[i];
        calls[i] = (grammar_call){.begin = {f->begin, strlen(f->begin)},
                                  .schema = {f->schema, f->schema ? strlen(f->schema) : 0},
                                  .end = {f->end, strlen(f->end)}};
    }
    int rc = grammar_from_calls(v, forms->marker, calls, forms->n, NULL, &g, err);
    mem_free(calls);
    if (rc == 0) *out = (icp_grammar *)g;
    return rc;
}

int icp_grammar_from_tools(icp_model *m, const char *tools_json, icp_grammar **out,
                           icp_error *err) {
    const chat_reasoning *r = m->style.reasoning;
    chat_call_forms forms;
    *out = NULL;
    int rc = chat_strict_calls(&m->style, tools_json, &forms);
    if (rc < 0) return error_set(err, rc, "tools: %s", icp_strerror(rc));
    /* A grammar knows of no control tokens: where markers are some, nothing can be promised. */
    if (forms.n && is_printable(m, forms.marker) && !m->style.channels &&
        (!r || (is_printable(m, r->open) && is_printable(m, r->close))))
        rc = make_calls(m, &forms, out, err);
    chat_call_forms_fini(&forms);
    return rc;
}

void icp_grammar_free(icp_grammar **gp) {
    grammar *g = (grammar *)*gp;
    *gp = NULL;
    grammar_unref(&g);
}
