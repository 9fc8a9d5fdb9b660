/* The calls of a dialect as a grammar sees them. A dialect's `form` is a call behind its mark:
 *
 *   functions.$:#<|args|>@<|end|>    $ name, @ arguments, # number, * made-up word, ~ blanks,
 *   └─ begin ──────────┘ └ end ┘     ^…^ may be left out
 *
 * In marks, special tokens of the vocabulary are told from the same letters as text. Blanks and
 * letters may be added tokens, too; these are text. */
#include "chat_internal.h"

#include <ctype.h>
#include <json-c/json.h>

enum { MAX_TOKEN = 64 };

typedef struct maker {
    const chat_strict_opts *opts;
    chat_strict *out;
    bool failed; /* no memory */
} maker;

static char *keep(maker *m, const char *text, size_t len) {
    char *copy = arena_alloc(&m->out->mem, len + 1);
    if (!copy) return m->failed = true, NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Notes a token of a mark, once. */
static void add_token(maker *m, const char *text, size_t len) {
    chat_strict *out = m->out;
    for (size_t i = 0; i < out->n_tokens; i++)
        if (strlen(out->tokens[i]) == len && !memcmp(out->tokens[i], text, len)) return;
    if (out->n_tokens == COUNT_OF(out->tokens)) return; /* more than any dialect has */
    const char *name = keep(m, text, len);
    if (name) out->tokens[out->n_tokens++] = name;
}

/* The longest special token that begins here; 0: none. */
static size_t token_at(const maker *m, const char *text) {
    bool marks = strchr("<[", *text) || (unsigned char)*text >= 0x80;
    size_t n = marks && m->opts->is_special ? MIN(strlen(text), MAX_TOKEN) : 0;
    while (n && !m->opts->is_special(m->opts->arg, text, n)) n--;
    return n;
}

static void put_mark(maker *m, const char *text, size_t len, buf *out) {
    for (size_t i = 0; i < len;) {
        size_t n = token_at(m, text + i);
        if (n > len - i) n = 0;
        if (n) {
            add_token(m, text + i, n);
            buf_puts(out, CHAT_TOKEN);
            buf_put(out, text + i, n);
            buf_puts(out, CHAT_TOKEN_END);
        } else {
            buf_putc(out, text[i]);
        }
        i += MAX(n, 1);
    }
}

static const char *take(maker *m, buf *text) {
    m->failed |= text->failed;
    const char *kept = m->failed ? NULL : keep(m, text->data ? text->data : "", text->len);
    buf_fini(text);
    return kept;
}

static const char *mark(maker *m, const char *text) {
    buf made = {0};
    if (!text) return NULL;
    put_mark(m, text, strlen(text), &made);
    return take(m, &made);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* A part of a form. */
static const char *part(maker *m, const char *form, size_t len, const char *name) {
    static const char places[] = "~*#^";
    static const char *const bytes[] = {CHAT_SPACE, CHAT_WORD, CHAT_NUMBER, CHAT_OPTION};
    buf made = {0};
    for (size_t i = 0; i < len;) {
        size_t n = strcspn(form + i, "$~*#^");
        n = MIN(n, len - i);
        put_mark(m, form + i, n, &made);
        i += n;
        if (i == len) break;
        if (form[i] == '$')
            buf_put_json(&made, name, strlen(name));
        else
            buf_puts(&made, bytes[strchr(places, form[i]) - places]);
        i++;
    }
    return take(m, &made);
}

/* A name that the parser finds again in a call. */
static bool is_callable(const chat_dialect *d, const char *name) {
    size_t len = strlen(name);
    if (d->syntax == CHAT_JSON) return call_is_name(name, len);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_.-", name[i])) return false;
    return len && (isalpha((unsigned char)name[0]) || name[0] == '_');
}

static int add_call(maker *m, json_object *tool, icp_error *err) {
    const chat_dialect *d = m->opts->style.calls;
    const char *name = chat_tool_name(tool), *arguments = strchr(d->form, '@');
    if (!name) return error_set(err, ICP_EFORMAT, "tools: a function has no name");
    if (!is_callable(d, name))
        return error_set(err, ICP_EUNSUPPORTED,
                         "tools: the model's calls cannot name a function \"%.60s\"", name);
    chat_strict_call *call = &m->out->calls[m->out->n++];
    call->begin = part(m, d->form, (size_t)(arguments - d->form), name);
    call->end = part(m, arguments + 1, strlen(arguments + 1), name);
    call->params = chat_tool_params(tool);
    if (!chat_tool_is_strict(tool)) return 0;
    buf schema = {0};
    chat_tool_schema(tool, &schema);
    call->schema = take(m, &schema);
    return 0;
}

enum chat_value chat_strict_value(void *params, const char *key) {
    json_object *schema = NULL;
    if (params) json_object_object_get_ex(params, key, &schema);
    bool nulls = false, others = false;
    if (!schema_strings(schema, &nulls, &others)) return CHAT_VALUE_JSON;
    return nulls ? CHAT_VALUE_TEXT_OR_NULL : CHAT_VALUE_TEXT;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void set_marks(maker *m) {
    const chat_dialect *d = m->opts->style.calls;
    const chat_channels *rows = m->opts->style.channels;
    const chat_reasoning *r = m->opts->style.reasoning;
    chat_strict *out = m->out;
    out->section = mark(m, d->section);
    out->section_end = mark(m, d->section_end);
    out->call = mark(m, rows ? rows->call : d->call);
    out->thought_end = mark(m, r ? r->close : NULL);
    out->key = mark(m, d->key);
    out->key_end = mark(m, d->key_end);
    out->text_key_end = mark(m, d->text_key_end);
    out->value_end = mark(m, d->value_end);
    out->quote = mark(m, d->quote);
    if (rows) out->message = mark(m, rows->message);
    if (rows) out->message_end = mark(m, rows->end[0]);
    out->lines = d->one_line;
    out->named_end = d->named_end;
    out->listed = d->section && !d->call;
    out->ends = d->call_end;
    out->bare = !d->bare || !d->section ? 0 : d->syntax == CHAT_LITERAL ? '[' : '{';
}

static int make(maker *m, json_object *tools, icp_error *err) {
    size_t n = json_object_array_length(tools);
    m->out->calls = arena_alloc(&m->out->mem, n * sizeof *m->out->calls);
    if (!m->out->calls) return ICP_ENOMEM;
    memset(m->out->calls, 0, n * sizeof *m->out->calls);
    set_marks(m);
    for (size_t i = 0; i < n; i++) TRY(add_call(m, json_object_array_get_idx(tools, i), err));
    return m->failed ? ICP_ENOMEM : 0;
}

int chat_strict_calls(const chat_strict_opts *opts, chat_strict *out, icp_error *err) {
    *out = (chat_strict){.syntax = opts->style.calls->syntax};
    arena_init(&out->mem);
    int rc = 0;
    json_object *tools = chat_tools_read(opts->tools_json);
    size_t n = tools ? json_object_array_length(tools) : 0, n_strict = 0;
    for (size_t i = 0; i < n; i++)
        n_strict += chat_tool_is_strict(json_object_array_get_idx(tools, i));
    bool channels = !opts->style.channels || opts->style.channels->call;
    out->tools = tools;
    if (!tools)
        rc = error_set(err, ICP_EFORMAT, "tools: not a JSON list with something in it");
    else if (n_strict && opts->style.calls->form && channels)
        rc = make(&(maker){.opts = opts, .out = out}, tools, err);
    if (rc == ICP_ENOMEM) error_set(err, rc, "out of memory");
    if (rc < 0) chat_strict_fini(out);
    return rc;
}

void chat_strict_fini(chat_strict *s) {
    json_object_put(s->tools);
    arena_fini(&s->mem);
    *s = (chat_strict){0};
}
