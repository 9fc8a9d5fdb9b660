/* POST /v1/responses, and what becomes of the ones that are kept.
 * https://platform.openai.com/docs/api-reference/responses
 * https://platform.openai.com/docs/api-reference/responses-streaming */
#include <stdlib.h>
#include <string.h>

#include "responses.h"
#include "store.h"

void response_free(void *own) {
    response *r = own;
    if (!r) return;
    buf_fini(&r->echo);
    json_object_put(r->items);
    mem_free(r);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The ids of calls begin with "call_"; the items around them have their own. */
static void put_item_id(buf *out, const item *i) {
    const char *own = strchr(i->id, '_');
    buf_printf(out, "\"%s%s\"", i->kind == ITEM_CALL ? "fc" : "",
               i->kind == ITEM_CALL && own ? own : i->id);
}

static void put_text_part(buf *out, const char *text, size_t len, const choice *c) {
    buf_puts(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[");
    if (c) buf_put(out, c->logprobs.list[0].data, c->logprobs.list[0].len);
    buf_puts(out, "],\"text\":");
    put_json_string(out, text, len);
    buf_putc(out, '}');
}

static void put_reasoning_part(buf *out, const char *text, size_t len) {
    buf_puts(out, "{\"type\":\"reasoning_text\",\"text\":");
    put_json_string(out, text, len);
    buf_putc(out, '}');
}

/* status "in_progress": without its text. */
static void put_item(buf *out, const choice *c, const item *i, const char *status) {
    bool begins = !strcmp(status, "in_progress");
    size_t len = begins ? 0 : i->text.len;
    buf_puts(out, "{\"id\":");
    put_item_id(out, i);
    switch (i->kind) {
    case ITEM_TEXT:
        buf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (!begins) put_text_part(out, i->text.data, len, c);
        buf_putc(out, ']');
        break;
    case ITEM_REASONING:
        buf_puts(out, ",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
        if (!begins) put_reasoning_part(out, i->text.data, len);
        buf_puts(out, "],\"encrypted_content\":null");
        break;
    case ITEM_CALL:
        buf_printf(out, ",\"type\":\"function_call\",\"call_id\":\"%s\"", i->id);
        put_string_member(out, ",\"name\":", i->name);
        buf_puts(out, ",\"arguments\":");
        put_json_string(out, i->text.data, len);
        break;
    }
    buf_printf(out, ",\"status\":\"%s\"}", status);
}

/* ---- the response ---------------------------------------------------------------------------- */

static bool is_incomplete(const choice *c) {
    return c->ended && c->finish == ICP_FINISH_LENGTH;
}

static void put_output_items(const generation *g, buf *out) {
    const choice *c = &g->choices[0];
    for (size_t i = 0; i < c->n_items; i++) {
        bool cut = i + 1 == c->n_items && (is_incomplete(c) || !c->ended);
        if (i) buf_putc(out, ',');
        put_item(out, c, &c->items[i], cut ? "incomplete" : "completed");
    }
}

static void put_tokens(const generation *g, buf *out) {
    const icp_usage *u = &g->usage;
    buf_printf(out,
               "{\"input_tokens\":%zu,\"input_tokens_details\":{\"cached_tokens\":%zu,"
               "\"cache_write_tokens\":0},\"output_tokens\":%zu,\"output_tokens_details\":{"
               "\"reasoning_tokens\":%zu},\"total_tokens\":%zu}",
               u->prompt_tokens, u->cached_tokens, u->completion_tokens, g->n_reasoning,
               u->prompt_tokens + u->completion_tokens);
}

static void put_failure(const generation *g, buf *out) {
    const reply *f = &g->failure;
    put_string_member(out, ",\"error\":{\"code\":", f->n_ctx ? f->code : "server_error");
    put_string_member(out, ",\"message\":", f->message);
    buf_putc(out, '}');
}

static void put_response(const generation *g, buf *out, const char *status) {
    const response *own = g->own;
    bool ended = strcmp(status, "in_progress") != 0;
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\"",
               g->id, (long long)g->created, status);
    if (g->failure.status)
        put_failure(g, out);
    else
        buf_puts(out, ",\"error\":null");
    buf_puts(out, ",\"incomplete_details\":");
    buf_puts(out, !strcmp(status, "incomplete") ? "{\"reason\":\"max_output_tokens\"}" : "null");
    put_string_member(out, ",\"model\":", g->call->on->name);
    buf_put(out, own->echo.data, own->echo.len);
    buf_puts(out, ",\"output\":[");
    if (ended) put_output_items(g, out);
    buf_puts(out, "],\"usage\":");
    if (ended && !g->failure.status)
        put_tokens(g, out);
    else
        buf_puts(out, "null");
    if (ended && !g->failure.status) put_cache_diagnostics(g, out);
    buf_putc(out, '}');
}

static const char *final_status(const generation *g) {
    if (g->failure.status) return "failed";
    return is_incomplete(&g->choices[0]) ? "incomplete" : "completed";
}

/* What failed is kept by nobody. */
static void keep(const generation *g, const char *text, size_t len) {
    const response *own = g->own;
    if (!own->keep || g->failure.status) return;
    const char *items = json_object_to_json_string_ext(
        own->items, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    if (!items) return;
    buf body = {0}, input = {0};
    buf_put(&body, text, len);
    buf_puts(&input, items);
    if (!store_put(g->call->server->store, g->call->tenant, g->id, &body, &input))
        log_line(LOG_WARN, "response %s is too large to be kept", g->id);
    buf_fini(&body);
    buf_fini(&input);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void begin_event(generation *g, const char *type) {
    response *own = g->own;
    event_begin(&g->out, type);
    buf_printf(&g->out, "{\"type\":\"%s\",\"sequence_number\":%zu", type, own->n_events++);
}

static void end_event(generation *g) {
    buf_putc(&g->out, '}');
    event_end(&g->out);
}

static void put_response_event(generation *g, const char *type, const char *status) {
    begin_event(g, type);
    buf_puts(&g->out, ",\"response\":");
    put_response(g, &g->out, status);
    end_event(g);
}

/* An event about the item at `index`, or about its only part. */
static void begin_item_event(generation *g, const char *type, size_t index, const item *i) {
    begin_event(g, type);
    buf_printf(&g->out, ",\"output_index\":%zu,\"item_id\":", index);
    put_item_id(&g->out, i);
    if (i->kind != ITEM_CALL) buf_puts(&g->out, ",\"content_index\":0");
}

static void put_item_event(generation *g, const char *type, const choice *c, const item *i,
                           const char *status) {
    begin_event(g, type);
    buf_printf(&g->out, ",\"output_index\":%zu,\"item\":", (size_t)(i - c->items));
    put_item(&g->out, c, i, status);
    end_event(g);
}

static void put_part_event(generation *g, const char *type, size_t index, const item *i,
                           size_t len) {
    if (i->kind == ITEM_CALL) return;
    begin_item_event(g, type, index, i);
    buf_puts(&g->out, ",\"part\":");
    if (i->kind == ITEM_TEXT)
        put_text_part(&g->out, i->text.data, len, NULL);
    else
        put_reasoning_part(&g->out, i->text.data, len);
    end_event(g);
}

static void put_delta(generation *g, const choice *c, const item *i) {
    static const char *const types[] = {
        [ITEM_TEXT] = "response.output_text.delta",
        [ITEM_REASONING] = "response.reasoning_text.delta",
        [ITEM_CALL] = "response.function_call_arguments.delta",
    };
    begin_item_event(g, types[i->kind], (size_t)(i - c->items), i);
    buf_puts(&g->out, ",\"delta\":");
    put_json_string(&g->out, i->text.data + i->sent, i->text.len - i->sent);
    if (i->kind == ITEM_TEXT) {
        buf_puts(&g->out, ",\"logprobs\":[");
        buf_put(&g->out, c->logprobs.list[0].data, c->logprobs.list[0].len);
        buf_putc(&g->out, ']');
    }
    end_event(g);
}

static void end_item(generation *g, const choice *c, const item *i) {
    static const char *const types[] = {
        [ITEM_TEXT] = "response.output_text.done",
        [ITEM_REASONING] = "response.reasoning_text.done",
        [ITEM_CALL] = "response.function_call_arguments.done",
    };
    size_t index = (size_t)(i - c->items);
    begin_item_event(g, types[i->kind], index, i);
    if (i->kind == ITEM_CALL) put_string_member(&g->out, ",\"name\":", i->name);
    buf_puts(&g->out, i->kind == ITEM_CALL ? ",\"arguments\":" : ",\"text\":");
    put_json_string(&g->out, i->text.data, i->text.len);
    if (i->kind == ITEM_TEXT) buf_puts(&g->out, ",\"logprobs\":[]");
    end_event(g);
    put_part_event(g, "response.content_part.done", index, i, i->text.len);
    put_item_event(g, "response.output_item.done", c, i, "completed");
}

static void end_response(generation *g) {
    const char *status = final_status(g);
    buf text = {0}, type = {0};
    put_response(g, &text, status);
    buf_printf(&type, "response.%s", status);
    begin_event(g, type.data ? type.data : "");
    buf_puts(&g->out, ",\"response\":");
    buf_put(&g->out, text.data, text.len);
    g->out.failed |= text.failed | type.failed;
    end_event(g);
    if (!text.failed) keep(g, text.data, text.len);
    buf_fini(&text);
    buf_fini(&type);
}

static void stream(generation *g, enum output_event what, choice *c, item *i) {
    switch (what) {
    case OUTPUT_BEGINS:
        put_response_event(g, "response.created", "in_progress");
        put_response_event(g, "response.in_progress", "in_progress");
        break;
    case OUTPUT_ITEM_BEGINS:
        put_item_event(g, "response.output_item.added", c, i, "in_progress");
        put_part_event(g, "response.content_part.added", (size_t)(i - c->items), i, 0);
        break;
    case OUTPUT_DELTA:
        if (i) put_delta(g, c, i);
        break;
    case OUTPUT_ITEM_ENDS:
        end_item(g, c, i);
        break;
    case OUTPUT_ENDS:
        end_response(g);
        break;
    default:
        break;
    }
}

static void put_whole(generation *g, buf *out) {
    size_t before = out->len;
    put_response(g, out, final_status(g));
    if (!out->failed) keep(g, out->data + before, out->len - before);
}

static const dialect responses = {.id_prefix = "resp_",
                                  .early = true,
                                  .add_logprob = add_chat_logprob,
                                  .stream = stream,
                                  .put_whole = put_whole,
                                  .free_own = response_free};

/* ---- routes ---------------------------------------------------------------------------------- */

void responses_start(call *c, json_object *body) {
    response *own = mem_zero(1, sizeof *own);
    if (!own) {
        reply_error(&c->reply, 503, NULL, NULL, "Out of memory.");
        return;
    }
    json_object *chat = responses_chat(c, body, own);
    generation *g = chat ? chat_generation(c, &responses, chat) : NULL;
    reply_rename(&c->reply, "max_tokens", "max_output_tokens");
    reply_rename(&c->reply, "response_format.json_schema", "text.format");
    reply_rename(&c->reply, "response_format", "text.format");
    json_object_put(chat);
    if (g) {
        g->own = own;
        generation_submit(g);
    } else {
        response_free(own);
    }
}

void response_tokens_reply(call *c, json_object *body) {
    response own = {0};
    icp_tokens ids = {0};
    json_object *chat = responses_chat(c, body, &own);
    if (chat && chat_tokenize(c, chat, &ids, NULL, NULL)) {
        buf_printf(&c->reply.body, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}",
                   ids.n);
        c->reply.status = 200;
    }
    icp_tokens_free(&ids);
    json_object_put(chat);
    buf_fini(&own.echo);
    json_object_put(own.items);
}

static void not_found(call *c, const char *id) {
    reply_error(&c->reply, 404, "not_found", "response_id", "Response with id '%.80s' not found.",
                id);
}

static const char *query(const call *c, const char *name) {
    return MHD_lookup_connection_value(c->mhd, MHD_GET_ARGUMENT_KIND, name);
}

static const char *item_id(json_object *item) {
    json_object *id = field_get(item, "id");
    return id ? json_object_get_string(id) : "";
}

/* A page of a list of items: newest first unless order=asc, at most `limit` behind `after`. */
static void put_page(call *c, json_object *items) {
    const char *order = query(c, "order"), *limit = query(c, "limit"), *after = query(c, "after");
    bool ascending = order && !strcmp(order, "asc");
    size_t n = json_object_array_length(items), n_put = 0;
    size_t most = limit ? strtoul(limit, NULL, 10) : 20;
    most = MIN(MAX(most, 1), 100);
    json_object *first = NULL, *last = NULL;
    bool skipping = after, more = false;
    buf *out = &c->reply.body;
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < n; i++) {
        json_object *item = json_object_array_get_idx(items, ascending ? i : n - 1 - i);
        if (skipping) {
            skipping = strcmp(item_id(item), after) != 0;
        } else if (n_put == most) {
            more = true;
            break;
        } else {
            if (n_put++) buf_putc(out, ',');
            buf_puts(out, json_object_to_json_string_ext(item, JSON_C_TO_STRING_PLAIN |
                                                                   JSON_C_TO_STRING_NOSLASHESCAPE));
            last = item;
            if (!first) first = item;
        }
    }
    put_string_member(out, "],\"first_id\":", first ? item_id(first) : "");
    put_string_member(out, ",\"last_id\":", last ? item_id(last) : "");
    buf_printf(out, ",\"has_more\":%s}", more ? "true" : "false");
    c->reply.status = 200;
}

void response_reply(call *c) {
    static const char listing[] = "/input_items";
    const char *rest = route_rest(c->route, c->path);
    size_t len = strcspn(rest, "/");
    buf id = {0}, input = {0};
    buf_put(&id, rest, len);
    bool lists = !strcmp(rest + len, listing);
    bool known = (lists || !rest[len]) && !id.failed;
    if (!known || !store_get(c->server->store, c->tenant, id.data, lists ? NULL : &c->reply.body,
                             lists ? &input : NULL)) {
        not_found(c, rest);
    } else if (lists) {
        json_object *items = json_read_whole(input.data, input.len);
        put_page(c, items);
        json_object_put(items);
    } else {
        c->reply.status = 200;
    }
    buf_fini(&id);
    buf_fini(&input);
}

void response_drop(call *c) {
    const char *id = route_rest(c->route, c->path);
    if (!store_drop(c->server->store, c->tenant, id)) {
        not_found(c, id);
        return;
    }
    put_string_member(&c->reply.body, "{\"id\":", id);
    buf_puts(&c->reply.body, ",\"object\":\"response\",\"deleted\":true}");
    c->reply.status = 200;
}
