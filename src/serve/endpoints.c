/* The small routes: health, version, models, the page, tokens. */
#include <string.h>
#include <time.h>

#include "generation.h"

void health_reply(call *c) {
    const server *s = c->server;
    const char *status = s->draining ? "draining" : s->ready ? "ok" : "loading";
    c->reply.status = s->ready && !s->draining ? 200 : 503;
    buf_printf(&c->reply.body, "{\"status\":\"%s\"}", status);
}

void version_reply(call *c) {
    put_string_member(&c->reply.body, "{\"version\":", icp_version());
    buf_putc(&c->reply.body, '}');
    c->reply.status = 200;
}

void page_reply(call *c) {
    c->reply = (reply){.status = 200,
                       .type = "text/html; charset=utf-8",
                       .page = (const char *)page_html,
                       .page_len = page_html_len};
}

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct listing {
    const server *server;
    const char *wanted;   /* only this one; NULL: all */
    enum error_form form; /* of whose client asks */
    buf *out;
    size_t n;
} listing;

/* The standard has no context length, and clients look for it under different names. */
static void put_facts(buf *out, const served *m) {
    const icp_model_info *info = icp_model_get_info(m->model);
    size_t n_ctx = icp_engine_get_context(m->engine);
    buf_printf(out, ",\"max_model_len\":%zu,\"context_length\":%zu", n_ctx, n_ctx);
    put_string_member(out, ",\"meta\":{\"architecture\":", info->arch);
    buf_printf(out,
               ",\"n_vocab\":%zu,\"n_ctx_train\":%zu,\"n_embd\":%zu,\"n_params\":%llu,"
               "\"size\":%zu}",
               info->n_vocab, info->n_ctx_train, info->n_embd, (unsigned long long)info->n_params,
               info->file_size);
}

static void put_anthropic_name(buf *out, const served *m, time_t began) {
    char date[40];
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&began, &utc));
    put_string_member(out, ",\"type\":\"model\",\"display_name\":", m->name);
    buf_printf(out, ",\"created_at\":\"%s\"", date);
}

/* Of a model on a shelf whether it is loaded, as llama-server's router tells it; its facts are
 * known when it is. */
static void put_model(void *arg, const served *m) {
    listing *l = arg;
    if (l->wanted && strcmp(l->wanted, m->name) != 0) return;
    bool loaded = m->ready || m == l->server->only;
    if (l->n++) buf_putc(l->out, ',');
    put_string_member(l->out, "{\"id\":", m->name);
    if (l->form == FORM_ANTHROPIC)
        put_anthropic_name(l->out, m, (time_t)l->server->began);
    else
        buf_printf(l->out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"incipit\"",
                   (long long)l->server->began);
    if (loaded) put_facts(l->out, m);
    if (l->server->shelf)
        buf_printf(l->out, ",\"status\":{\"value\":\"%s\"}",
                   loaded       ? "loaded"
                   : m->waiting ? "loading"
                                : "unloaded");
    buf_putc(l->out, '}');
}

static void put_models(listing *l) {
    if (l->server->shelf)
        shelf_each(l->server->shelf, put_model, l);
    else
        put_model(l, l->server->only);
}

void models_reply(call *c) {
    buf *out = &c->reply.body;
    bool anthropic = c->errors == FORM_ANTHROPIC;
    buf_puts(out, anthropic ? "{\"has_more\":false,\"data\":[" : "{\"object\":\"list\",\"data\":[");
    put_models(&(listing){.server = c->server, .form = c->errors, .out = out});
    buf_puts(out, "]}");
    c->reply.status = 200;
}

void model_reply(call *c) {
    listing l = {.server = c->server,
                 .wanted = route_rest(c->route, c->path),
                 .form = c->errors,
                 .out = &c->reply.body};
    put_models(&l);
    if (l.n)
        c->reply.status = 200;
    else
        reply_no_model(&c->reply, l.wanted);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* llama-server's fields and vLLM's; the text decides whose default holds for special tokens. */
struct tokenize_fields {
    bool add_special, parse_special, with_pieces;
};

static const field tokenize_table[] = {
    {"add_special", FIELD_BOOL, offsetof(struct tokenize_fields, add_special), 0, 0},
    {"add_special_tokens", FIELD_BOOL, offsetof(struct tokenize_fields, add_special), 0, 0},
    {"parse_special", FIELD_BOOL, offsetof(struct tokenize_fields, parse_special), 0, 0},
    {"with_pieces", FIELD_BOOL, offsetof(struct tokenize_fields, with_pieces), 0, 0},
};

static bool tokenize_body(call *c, json_object *body, struct tokenize_fields *f, icp_tokens *out) {
    json_object *text = field_of_type(body, "content", json_type_string, &c->reply);
    json_object *prompt = field_of_type(body, "prompt", json_type_string, &c->reply);
    *f = (struct tokenize_fields){.add_special = !text, .parse_special = true};
    if (c->reply.status ||
        !fields_read(body, "", tokenize_table, COUNT_OF(tokenize_table), f, &c->reply))
        return false;
    if (!text && !prompt && field_get(body, "messages"))
        return chat_tokenize(c, body, out, NULL, NULL);
    if (!text) text = prompt;
    if (!text) {
        reply_error(&c->reply, 400, "missing_field", "content",
                    "Missing field: 'content', 'prompt' or 'messages'.");
        return false;
    }
    icp_error err = {0};
    if (icp_tokenize(c->on->model, json_object_get_string(text),
                     (size_t)json_object_get_string_len(text), f->parse_special, f->add_special,
                     out, &err) < 0)
        return reply_icp_error(&c->reply, &err, "content"), false;
    return true;
}

/* {"id":…,"piece":"text", or a list of bytes when it is no whole characters}. */
static void put_piece(const icp_model *model, buf *out, int32_t id) {
    char *text = NULL;
    size_t len = 0;
    bool whole = true;
    out->failed |= icp_detokenize(model, &id, 1, true, &text, &len, NULL) < 0;
    int32_t cp;
    for (size_t i = 0; i < len; i += (size_t)utf8_decode(text + i, len - i, &cp), whole &= cp >= 0)
        ;
    buf_printf(out, "{\"id\":%d,\"piece\":", id);
    if (whole) put_json_string(out, text ? text : "", len);
    for (size_t i = 0; !whole && i < len; i++)
        buf_printf(out, "%c%d", i ? ',' : '[', (unsigned char)text[i]);
    buf_puts(out, whole ? "}" : "]}");
    icp_free(text);
}

void tokenize_reply(call *c, json_object *body) {
    struct tokenize_fields f;
    icp_tokens ids = {0};
    if (!tokenize_body(c, body, &f, &ids)) return;
    const icp_model *model = c->on->model;
    buf *out = &c->reply.body;
    buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < ids.n; i++) {
        if (i) buf_putc(out, ',');
        if (f.with_pieces)
            put_piece(model, out, ids.id[i]);
        else
            buf_printf(out, "%d", ids.id[i]);
    }
    buf_printf(out, "],\"count\":%zu,\"max_model_len\":%zu}", ids.n,
               icp_engine_get_context(c->on->engine));
    icp_tokens_free(&ids);
    c->reply.status = 200;
}

void detokenize_reply(call *c, json_object *body) {
    const icp_model *model = c->on->model;
    json_object *list = field_of_type(body, "tokens", json_type_array, &c->reply);
    if (!list) {
        reply_error(&c->reply, 400, "missing_field", "tokens", "Missing field: 'tokens'.");
        return;
    }
    icp_tokens ids = {0};
    if (!json_token_ids(list, "tokens", icp_model_get_info(model)->n_vocab, &ids, &c->reply))
        return;
    char *text = NULL;
    size_t len = 0;
    icp_error err = {0};
    if (icp_detokenize(model, ids.id, ids.n, true, &text, &len, &err) < 0) {
        reply_icp_error(&c->reply, &err, "tokens");
    } else {
        buf *out = &c->reply.body;
        buf_puts(out, "{\"content\":");
        put_json_string(out, text, len);
        buf_puts(out, ",\"prompt\":");
        put_json_string(out, text, len);
        buf_putc(out, '}');
        c->reply.status = 200;
    }
    icp_free(text);
    icp_tokens_free(&ids);
}
