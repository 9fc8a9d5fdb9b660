/* POST /v1/completions. https://platform.openai.com/docs/api-reference/completions
 *
 * Log-probabilities are four parallel lists: tokens, token_logprobs, top_logprobs, text_offset. */
#include <string.h>

#include "generation.h"

enum { MAX_PROMPTS = 1024, MAX_CHOICES = 4096, DEFAULT_MAX_TOKENS = 16 };
enum { TOKENS, TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSET };

/* ---- answers --------------------------------------------------------------------------------- */

/* A token's text; bytes that are no whole characters as "bytes:\xf0\x9f". Returns the number of
 * characters it adds to the text. */
static size_t put_token(const generation *g, buf *out, int32_t token) {
    size_t len = 0, n_chars = 0;
    char *text = token_bytes(g, token, &len);
    out->failed |= !text;
    bool whole = true;
    for (size_t i = 0; i < len; n_chars++) {
        int32_t cp;
        i += (size_t)utf8_decode(text + i, len - i, &cp);
        whole &= cp >= 0;
    }
    if (whole) {
        put_json_string(out, text, len);
    } else {
        buf_puts(out, "\"bytes:");
        for (size_t i = 0; i < len; i++) buf_printf(out, "\\\\x%02x", (unsigned char)text[i]);
        buf_putc(out, '"');
    }
    icp_free(text);
    return n_chars;
}

static void put_top_item(const generation *g, buf *out, const icp_logprob *p) {
    put_token(g, out, p->token);
    buf_putc(out, ':');
    put_logprob(out, p->logprob);
}

/* The best ones, and the chosen one if it is not among them. */
static void put_top(const generation *g, buf *out, const icp_event *e) {
    bool listed = false;
    buf_putc(out, '{');
    for (int i = 0; i < e->n_top; i++) {
        if (i) buf_putc(out, ',');
        put_top_item(g, out, &e->top[i]);
        listed |= e->top[i].token == e->chosen.token;
    }
    if (!listed) {
        if (e->n_top) buf_putc(out, ',');
        put_top_item(g, out, &e->chosen);
    }
    buf_putc(out, '}');
}

static void add_logprob(generation *g, logprobs *to, int32_t token, const icp_event *e) {
    if (to->list[TOKENS].len)
        for (int i = 0; i < N_LISTS; i++) buf_putc(&to->list[i], ',');
    buf_printf(&to->list[TEXT_OFFSET], "%zu", to->offset);
    to->offset += put_token(g, &to->list[TOKENS], token);
    if (e) {
        put_logprob(&to->list[TOKEN_LOGPROBS], e->chosen.logprob);
        put_top(g, &to->list[TOP_LOGPROBS], e);
    } else {
        buf_puts(&to->list[TOKEN_LOGPROBS], "null");
        buf_puts(&to->list[TOP_LOGPROBS], "null");
    }
}

/* first (may be NULL) and then second. */
static void put_logprobs(const generation *g, buf *out, const logprobs *first,
                         const logprobs *second) {
    static const char *const names[N_LISTS] = {"tokens", "token_logprobs", "top_logprobs",
                                               "text_offset"};
    buf_puts(out, ",\"logprobs\":");
    if (g->opts.request.logprobs < 0) {
        buf_puts(out, "null");
        return;
    }
    for (int i = 0; i < N_LISTS; i++) {
        buf_printf(out, "%c\"%s\":[", i ? ',' : '{', names[i]);
        if (first) buf_put(out, first->list[i].data, first->list[i].len);
        if (first && first->list[i].len && second->list[i].len) buf_putc(out, ',');
        buf_put(out, second->list[i].data, second->list[i].len);
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
}

static void put_head(const generation *g, buf *out) {
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%lld", g->id,
               (long long)g->created);
    put_string_member(out, ",\"model\":", g->call->server->name);
    buf_puts(out, ",\"choices\":[");
}

/* A chunk of one choice. */
static void put_chunk(generation *g, const choice *c, const char *text, size_t len,
                      const logprobs *of, const char *finish) {
    buf *out = &g->out;
    event_begin(out, NULL);
    put_head(g, out);
    buf_printf(out, "{\"index\":%zu,\"text\":", c->index);
    put_json_string(out, text, len);
    put_logprobs(g, out, NULL, of);
    if (finish)
        buf_printf(out, ",\"finish_reason\":\"%s\"}]", finish);
    else
        buf_puts(out, ",\"finish_reason\":null}]");
    put_chunk_usage(g, out);
    buf_putc(out, '}');
    event_end(out);
}

static void stream(generation *g, enum output_event what, choice *c, item *i) {
    switch (what) {
    case OUTPUT_CHOICE_BEGINS:
        if (g->echo)
            put_chunk(g, c, c->prompt->echo, c->prompt->echo_len, &c->prompt->logprobs, NULL);
        break;
    case OUTPUT_DELTA:
        put_chunk(g, c, i ? i->text.data + i->sent : "", i ? i->text.len - i->sent : 0,
                  &c->logprobs, NULL);
        break;
    case OUTPUT_CHOICE_ENDS:
        put_chunk(g, c, "", 0, &c->logprobs, finish_reason(c));
        break;
    case OUTPUT_ENDS:
        if (g->opts.include_usage && !g->failure.status) {
            event_begin(&g->out, NULL);
            put_head(g, &g->out);
            buf_puts(&g->out, "],\"usage\":");
            put_usage(g, &g->out);
            put_cache_diagnostics(g, &g->out);
            buf_putc(&g->out, '}');
            event_end(&g->out);
        }
        put_done(g);
        break;
    default:
        break;
    }
}

static void put_whole(generation *g, buf *out) {
    put_head(g, out);
    for (size_t i = 0; i < count_choices(g); i++) {
        const choice *c = &g->choices[i];
        const prompt *p = c->prompt;
        buf_printf(out, "%s{\"index\":%zu,\"text\":\"", i ? "," : "", c->index);
        if (g->echo) buf_put_json(out, p->echo, p->echo_len);
        put_output(out, c, ITEM_TEXT);
        buf_putc(out, '"');
        put_logprobs(g, out, g->echo ? &p->logprobs : NULL, &c->logprobs);
        buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c));
    }
    buf_puts(out, "],\"usage\":");
    put_usage(g, out);
    put_cache_diagnostics(g, out);
    buf_putc(out, '}');
}

static const dialect completions = {
    .id_prefix = "cmpl-", .add_logprob = add_logprob, .stream = stream, .put_whole = put_whole};

/* ---- prompts --------------------------------------------------------------------------------- */

struct own {
    bool echo, add_special_tokens;
    int logprobs, best_of;
};

static const field own_fields[] = {
    {"echo", FIELD_BOOL, offsetof(struct own, echo), 0, 0},
    {"add_special_tokens", FIELD_BOOL, offsetof(struct own, add_special_tokens), 0, 0},
    {"logprobs", FIELD_INT, offsetof(struct own, logprobs), 0, ICP_MAX_LOGPROBS},
    {"best_of", FIELD_INT, offsetof(struct own, best_of), 1, ICP_MAX_N},
};

/* The text that an answer with `echo` repeats. */
static bool keep_echo(call *c, prompt *p, json_object *value) {
    icp_error err = {.code = ICP_ENOMEM};
    char *text = NULL;
    if (json_object_is_type(value, json_type_string)) {
        p->echo_len = (size_t)json_object_get_string_len(value);
        p->echo = mem_alloc(p->echo_len + 1);
        if (p->echo) memcpy(p->echo, json_object_get_string(value), p->echo_len);
    } else if (icp_detokenize(c->server->model, p->ids.id, p->ids.n, true, &text, &p->echo_len,
                              &err) == 0) {
        p->echo = mem_alloc(p->echo_len + 1);
        if (p->echo) memcpy(p->echo, text, p->echo_len);
        icp_free(text);
    }
    if (!p->echo) reply_icp_error(&c->reply, &err, "prompt");
    return p->echo;
}

/* One prompt: a string, or a list of token ids. */
static bool read_prompt(call *c, prompt *p, json_object *value, const struct own *own) {
    const icp_model *model = c->server->model;
    icp_error err = {0};
    p->from_text = json_object_is_type(value, json_type_string);
    if (p->from_text) {
        if (icp_tokenize(model, json_object_get_string(value),
                         (size_t)json_object_get_string_len(value), true, own->add_special_tokens,
                         &p->ids, &err) < 0)
            return reply_icp_error(&c->reply, &err, "prompt"), false;
    } else if (json_object_is_type(value, json_type_array)) {
        size_t n_vocab = icp_model_get_info(model)->n_vocab;
        if (!json_token_ids(value, "prompt", n_vocab, &p->ids, &c->reply)) return false;
    } else {
        reply_error(&c->reply, 400, "invalid_type", "prompt",
                    "Invalid type for 'prompt': expected a string, a list of token ids, or a list "
                    "of those, got %s.",
                    json_kind(value));
        return false;
    }
    if (p->ids.n) return !own->echo || keep_echo(c, p, value);
    reply_error(&c->reply, 400, "invalid_value", "prompt",
                "Invalid value for 'prompt': it is empty.");
    return false;
}

/* A list whose first item is a number is one prompt. */
static bool is_one_prompt(json_object *value) {
    if (!json_object_is_type(value, json_type_array)) return true;
    json_object *first = json_object_array_get_idx(value, 0);
    return json_object_is_type(first, json_type_int) ||
           json_object_is_type(first, json_type_double);
}

static size_t count_prompts(json_object *value, reply *error) {
    size_t n = is_one_prompt(value) ? 1 : json_object_array_length(value);
    if (n >= 1 && n <= MAX_PROMPTS) return n;
    reply_error(error, 400, "invalid_value", "prompt",
                "Invalid value for 'prompt': a list has 1 to %d prompts, not %zu.", MAX_PROMPTS, n);
    return 0;
}

static bool settle(generation *g, const struct own *own, reply *error) {
    icp_request_opts *r = &g->opts.request;
    g->echo = own->echo;
    r->logprobs = own->logprobs;
    r->prompt_logprobs = own->echo && own->logprobs >= 0;
    if (g->opts.max_tokens < 0) g->opts.max_tokens = MAX(DEFAULT_MAX_TOKENS, r->min_tokens);
    if (own->best_of && own->best_of != r->n)
        reply_error(error, 400, "unsupported", "best_of",
                    "'best_of' is not supported unless it equals 'n'.");
    else if (g->n_prompts * (size_t)r->n > MAX_CHOICES)
        reply_error(error, 400, "invalid_value", "n",
                    "Invalid value for 'n': at most %d completions in one request.", MAX_CHOICES);
    return !error->status;
}

void completions_start(call *c, json_object *body) {
    struct own own = {.logprobs = -1, .add_special_tokens = true};
    if (!fields_read(body, "", own_fields, COUNT_OF(own_fields), &own, &c->reply)) return;
    json_object *value = field_get(body, "prompt");
    if (!value) {
        reply_error(&c->reply, 400, "missing_field", "prompt", "Missing field: 'prompt'.");
        return;
    }
    size_t n = count_prompts(value, &c->reply);
    generation *g = n ? generation_new(c, &completions, body, n) : NULL;
    if (!g) return;
    bool ok = settle(g, &own, &c->reply);
    bool single = is_one_prompt(value);
    for (size_t i = 0; ok && i < n; i++) {
        json_object *item = single ? value : json_object_array_get_idx(value, i);
        ok = read_prompt(c, &g->prompts[i], item, &own);
    }
    if (ok)
        generation_submit(g);
    else
        generation_free(&g);
}
