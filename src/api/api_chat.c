/* Chats of the public library: prompts from messages, and answers taken apart.
 *
 * A parser gets the engine's events. Their text may come later than its token (a stop string might
 * have begun), so the parser keeps the tokens' own text and origin, and takes as much of it as an
 * event says is told:
 *
 *   held    S A Y < | c a l l | > {        text of the tokens so far, as the engine prints them
 *   origin  . . . B + + + + + + + .
 *           ^----- event.text_len -----^ */
#include "api_internal.h"
#include "json.h"

#include <json-c/json.h>
#include <string.h>
#include <time.h>

/* ---- chats ---------------------------------------------------------------------------------- */

/* What upstream always defines, null when the caller does not; `extra` must not replace it. */
static const char *const fixed[] = {"messages", "tools", "documents", "add_generation_prompt"};

static bool is_fixed(const char *name) {
    for (size_t i = 0; i < COUNT_OF(fixed); i++)
        if (!strcmp(name, fixed[i])) return true;
    return false;
}

/* Splits a chat into what users wrote (*vars) and what the caller vouches for (*trusted: bos_token,
 * eos_token). Both are new references. */
static int split_chat(const char *chat_json, json_object **vars, json_object **trusted,
                      icp_error *err) {
    enum json_tokener_error why;
    json_object *chat = NULL;
    size_t at;
    if (json_read(chat_json, strlen(chat_json), JSON_DEEPEST, &chat, &why, &at) < 0)
        return error_set(err, ICP_ENOMEM, "out of memory");
    if (!json_object_is_type(chat, json_type_object)) {
        json_object_put(chat);
        return error_set(err, ICP_EFORMAT, "not a JSON object (near byte %zu: %s)", at,
                         why == json_tokener_success ? "another kind of value"
                                                     : json_tokener_error_desc(why));
    }
    *vars = json_object_new_object();
    *trusted = json_object_new_object();
    json_object_object_foreach(chat, key, value) {
        if (!strcmp(key, "extra")) continue;
        bool vouched = !strcmp(key, "bos_token") || !strcmp(key, "eos_token");
        json_object_object_add(vouched ? *trusted : *vars, key, json_object_get(value));
    }
    json_object *extra = json_object_object_get(chat, "extra");
    if (json_object_is_type(extra, json_type_object)) {
        json_object_object_foreach(extra, name, more) {
            if (!is_fixed(name)) json_object_object_add(*vars, name, json_object_get(more));
        }
    }
    for (size_t i = 0; i < COUNT_OF(fixed); i++)
        if (!json_object_object_get_ex(*vars, fixed[i], NULL))
            json_object_object_add(*vars, fixed[i], i == 3 ? json_object_new_boolean(0) : NULL);
    json_object_put(chat);
    return 0;
}

static const char *print(json_object *o) {
    return json_object_to_json_string_ext(o,
                                          JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
}

static int render(const jinja *j, json_object *vars, json_object *trusted, int64_t now, bool marked,
                  jinja_text *out, icp_error *err) {
    const jinja_opts opts = {.marked = marked};
    const char *a = print(vars), *b = print(trusted);
    if (!a || !b) return error_set(err, ICP_ENOMEM, "out of memory");
    return jinja_render(j, a, b, now ? now : (int64_t)time(NULL), &opts, out, err);
}

static void trust_token(const icp_model *m, json_object *trusted, const char *name, int32_t id) {
    text_str text = id >= 0 ? tokenizer_bytes(m->tok, id) : (text_str){"", 0};
    json_object_object_add(trusted, name, json_object_new_string_len(text.data, (int)text.len));
}

static int render_model(const icp_model *m, json_object *vars, json_object *trusted, bool marked,
                        jinja_text *out, icp_error *err) {
    trust_token(m, trusted, "bos_token", tokenizer_bos(m->tok));
    trust_token(m, trusted, "eos_token", tokenizer_eos(m->tok));
    return render(m->chat, vars, trusted, m->template_time, marked, out, err);
}

static int render_probe(void *arg, json_object *vars, jinja_text *out) {
    json_object *trusted = json_object_new_object();
    int rc = trusted ? render_model(arg, vars, trusted, false, out, NULL) : ICP_ENOMEM;
    json_object_put(trusted);
    return rc;
}

int api_probe_chat(icp_model *m) {
    m->style = chat_style_of(m->template_source);
    m->caps = (icp_chat_caps){.dialect = m->style.calls->name};
    if (!m->chat) return 0;
    return chat_caps_probe(m->template_source, render_probe, m, &m->caps, &m->style);
}

const icp_chat_caps *icp_model_chat_caps(const icp_model *m) {
    return &m->caps;
}

/* Only states need to know where messages end. */
static bool has_state(const icp_model *m) {
    return m->model && model_get_info(m->model)->state_size > 0;
}

int icp_chat_tokenize(const icp_model *m, const char *chat_json, icp_tokens *out, icp_marks *marks,
                      char **text, icp_error *err) {
    if (marks) marks->n = 0;
    if (!m->chat)
        return m->template_source
                   ? error_set(err, ICP_EUNSUPPORTED,
                               "the model's chat template cannot be used: %s",
                               m->template_error.text)
                   : error_set(err, ICP_EUNSUPPORTED, "the model has no chat template");
    json_object *vars = NULL, *trusted = NULL;
    jinja_text prompt = {0};
    chat_marks found;
    int rc = split_chat(chat_json, &vars, &trusted, err);
    if (rc == 0 && chat_marks_put(vars, chat_json, marks && has_state(m), &found) < 0)
        rc = error_set(err, ICP_ENOMEM, "out of memory");
    if (rc == 0) rc = chat_input_adapt(&m->caps, vars, err);
    if (rc == 0) rc = render_model(m, vars, trusted, found.n > 0, &prompt, err);
    if (rc == 0)
        rc = api_encode(m, prompt.text.data, prompt.text.len, (const uint8_t *)prompt.origin.data,
                        0, out, err);
    if (rc == 0 && marks && found.n) {
        chat_marks_find(&found, &prompt);
        api_place_marks(m, &prompt.text, out, &found, marks);
    }
    if (rc == 0 && text) {
        *text = prompt.text.data;
        prompt.text = (buf){0};
    }
    jinja_text_fini(&prompt);
    json_object_put(vars);
    json_object_put(trusted);
    return rc;
}

int icp_template_render(const char *source, size_t len, const char *chat_json, int64_t now,
                        char **text, size_t *text_len, icp_error *err) {
    json_object *vars = NULL, *trusted = NULL;
    jinja_text prompt = {0};
    jinja *j;
    TRY(jinja_open(source, len, &j, err));
    int rc = split_chat(chat_json, &vars, &trusted, err);
    if (rc == 0) rc = render(j, vars, trusted, now, false, &prompt, err);
    if (rc == 0) {
        buf_puts(&prompt.text, "");
        *text = prompt.text.data;
        *text_len = prompt.text.len;
        prompt.text = (buf){0};
    }
    jinja_text_fini(&prompt);
    jinja_close(&j);
    json_object_put(vars);
    json_object_put(trusted);
    return rc;
}

/* ---- answers -------------------------------------------------------------------------------- */

enum { PROMPT_TAIL = 64 }; /* tokens of a prompt in which the answer may have begun */
enum { HELD_BEGINS = 8 };  /* in origin, beside enum chat_origin */

struct icp_chat_parser {
    const icp_model *model;
    chat_parser *parser;
    detok text;
    buf held, origin;
    size_t n_reasoning; /* tokens that were */
    bool failed;
};

bool api_is_special(void *arg, const char *text, size_t len) {
    const icp_model *m = arg;
    char name[128];
    if (len >= sizeof name) return false;
    memcpy(name, text, len);
    name[len] = '\0';
    return tokenizer_find(m->tok, name) >= 0;
}

static int begin_answer(icp_chat_parser *p, const int32_t *prompt, size_t n_prompt,
                        const char *begun) {
    buf tail = {0};
    size_t n = MIN(n_prompt, PROMPT_TAIL), n_begun = begun ? strlen(begun) : 0;
    int rc = n ? tokenizer_decode(p->model->tok, prompt + n_prompt - n, n, false, &tail) : 0;
    if (rc == 0 && tail.len > n_begun)
        rc = chat_parser_prompt(p->parser, tail.data, tail.len - n_begun);
    if (rc == 0 && n_begun) rc = chat_parser_begin(p->parser, begun, n_begun);
    buf_fini(&tail);
    return rc;
}

static int open_parser(icp_chat_parser *p, const icp_chat_parser_opts *opts, icp_error *err) {
    chat_parser_opts inner = {.style = p->model->style,
                              .tools_json = opts->tools_json,
                              .keep_special = opts->keep_special,
                              .marked = opts->marked,
                              .is_special = api_is_special,
                              .arg = (void *)p->model};
    if (opts->begun) inner.style.calls = chat_force_dialect(&inner.style, opts->tools_json);
    TRY(chat_parser_open(&inner, &p->parser, err));
    int rc = begin_answer(p, opts->prompt, opts->n_prompt, opts->begun);
    return rc < 0 ? error_set(err, rc, "cannot read the prompt's end: %s", icp_strerror(rc)) : 0;
}

int icp_chat_parser_open(const icp_model *m, const icp_chat_parser_opts *opts,
                         icp_chat_parser **out, icp_error *err) {
    icp_chat_parser *p = mem_zero(1, sizeof *p);
    if (!p) return error_set(err, ICP_ENOMEM, "out of memory");
    p->model = m;
    detok_init(&p->text, m->tok, false);
    p->text.begun = true;
    int rc = open_parser(p, opts, err);
    if (rc < 0)
        icp_chat_parser_close(&p);
    else
        *out = p;
    return rc;
}

/* Whether the answer to a prompt begins as reasoning. */
static int begins_thinking(const icp_model *m, const icp_tokens *prompt, bool *out) {
    const icp_chat_parser_opts opts = {.prompt = prompt->id, .n_prompt = prompt->n};
    icp_chat_parser *p = NULL;
    TRY(icp_chat_parser_open(m, &opts, &p, NULL));
    *out = chat_parser_thinking(p->parser);
    icp_chat_parser_close(&p);
    return 0;
}

static int append_tokens(const icp_model *m, const jinja_text *text, icp_tokens *to) {
    icp_tokens more = {0};
    TRY(api_encode(m, text->text.data ? text->text.data : "", text->text.len,
                   (const uint8_t *)text->origin.data, 0, &more, NULL));
    int32_t *ids = mem_resize(to->id, to->n + more.n + 1, sizeof *ids);
    if (ids) {
        if (more.n) memcpy(ids + to->n, more.id, more.n * sizeof *ids);
        to->id = ids;
        to->n += more.n;
    }
    icp_tokens_free(&more);
    return ids ? 0 : ICP_ENOMEM;
}

int icp_chat_force(const icp_model *m, const char *tools_json, icp_tokens *prompt, char **begun,
                   char **schema, icp_error *err) {
    jinja_text begin = {0};
    buf rest = {0};
    bool thinking = false;
    int rc = begins_thinking(m, prompt, &thinking);
    if (rc == 0 && tools_json)
        rc = chat_force(&m->style, tools_json, thinking, &begin, &rest);
    else if (rc == 0)
        chat_force_text(&m->style, thinking, &begin);
    buf_puts(&begin.text, "");
    if (rc == 0 && begin.text.failed) rc = ICP_ENOMEM;
    if (rc == 0) rc = append_tokens(m, &begin, prompt);
    if (rc < 0) {
        buf_fini(&rest);
        jinja_text_fini(&begin);
        return error_set(err, rc, "cannot begin a call: %s", icp_strerror(rc));
    }
    *begun = begin.text.data;
    *schema = rest.data;
    begin.text = (buf){0};
    jinja_text_fini(&begin);
    return 0;
}

void icp_chat_parser_close(icp_chat_parser **pp) {
    icp_chat_parser *p = *pp;
    if (!p) return;
    *pp = NULL;
    chat_parser_close(&p->parser);
    buf_fini(&p->held);
    buf_fini(&p->origin);
    mem_free(p);
}

/* The text of a token, as the engine prints it. */
static void hold(icp_chat_parser *p, int32_t id) {
    const tokenizer *tok = p->model->tok;
    if (id < 0 || (size_t)id >= tokenizer_n(tok)) return;
    enum token_type type = tokenizer_type(tok, id);
    enum chat_origin origin = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN ? CHAT_CONTROL
                              : type == TOKEN_USER                           ? CHAT_SPECIAL
                                                                             : CHAT_ORDINARY;
    size_t before = p->held.len;
    detok_put(&p->text, id, &p->held);
    for (size_t i = before; i < p->held.len; i++)
        buf_putc(&p->origin, (char)(origin | (i == before ? HELD_BEGINS : 0)));
}

/* Gives the first n bytes to the parser, one run of an origin after another; all as one put, so
 * that no delta is lost. */
static int give(icp_chat_parser *p, size_t n) {
    int rc = 0;
    n = MIN(n, p->held.len);
    for (size_t i = 0; i < n && rc == 0;) {
        size_t end = i + 1;
        char first = p->origin.data[i], same = first & ~HELD_BEGINS;
        bool ordinary = same == CHAT_ORDINARY;
        while (end < n && (ordinary ? (p->origin.data[end] & ~HELD_BEGINS) == same
                                    : p->origin.data[end] == same))
            end++;
        rc = chat_parser_put(p->parser, p->held.data + i, end - i, (enum chat_origin)same,
                             first & HELD_BEGINS);
        i = end;
    }
    memmove(p->held.data, p->held.data + n, p->held.len - n);
    memmove(p->origin.data, p->origin.data + n, p->origin.len - n);
    p->held.len -= n;
    p->origin.len -= n;
    return rc;
}

int icp_chat_parser_put(icp_chat_parser *p, const icp_event *event) {
    chat_parser_clear(p->parser);
    if (event->kind == ICP_EVENT_TOKEN) {
        p->n_reasoning += chat_parser_thinking(p->parser);
        hold(p, event->token);
    } else if (event->kind == ICP_EVENT_FINISH) {
        size_t before = p->held.len;
        detok_flush(&p->text, &p->held);
        for (size_t i = before; i < p->held.len; i++) buf_putc(&p->origin, CHAT_ORDINARY);
    } else {
        return 0;
    }
    if (p->held.failed || p->origin.failed) return ICP_ENOMEM;
    if (event->text_len) TRY(give(p, event->text_len));
    return event->kind == ICP_EVENT_FINISH ? chat_parser_finish(p->parser) : 0;
}

bool icp_chat_parser_next(icp_chat_parser *p, icp_chat_delta *delta) {
    return chat_parser_next(p->parser, delta);
}

size_t icp_chat_parser_reasoning(const icp_chat_parser *p) {
    return p->n_reasoning;
}
