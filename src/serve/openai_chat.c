/* POST /v1/chat/completions. https://platform.openai.com/docs/api-reference/chat */
#include <string.h>

#include "generation.h"

/* ---- answers --------------------------------------------------------------------------------- */

static void put_head(const generation *g, buf *out, const char *object) {
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld", g->id, object,
               (long long)g->created);
    put_string_member(out, ",\"model\":", g->call->on->name);
    buf_puts(out, ",\"choices\":[");
}

static void put_logprobs(const generation *g, buf *out, const choice *c) {
    if (g->opts.logprobs < 0) {
        buf_puts(out, ",\"logprobs\":null");
        return;
    }
    buf_puts(out, ",\"logprobs\":{\"content\":[");
    buf_put(out, c->logprobs.list[0].data, c->logprobs.list[0].len);
    buf_puts(out, "],\"refusal\":null}");
}

/* "name":"…" with what the stream has not carried yet. */
static void put_fresh(buf *out, const char *name, const item *i) {
    buf_printf(out, "\"%s\":", name);
    if (i)
        put_json_string(out, i->text.data + i->sent, i->text.len - i->sent);
    else
        buf_puts(out, "\"\"");
}

static size_t call_index(const choice *c, const item *call) {
    size_t n = 0;
    for (const item *i = c->items; i < call; i++) n += i->kind == ITEM_CALL;
    return n;
}

static void put_delta(buf *out, const choice *c, const item *i) {
    if (i && i->kind == ITEM_CALL) {
        buf_printf(out, "\"tool_calls\":[{\"index\":%zu,\"function\":{", call_index(c, i));
        put_fresh(out, "arguments", i);
        buf_puts(out, "}}]");
    } else if (i && i->kind == ITEM_REASONING) { /* no official name, and two that are in use */
        put_fresh(out, "reasoning_content", i);
        buf_putc(out, ',');
        put_fresh(out, "reasoning", i);
    } else {
        put_fresh(out, "content", i);
    }
}

static void put_call_begin(buf *out, const choice *c, const item *i) {
    buf_printf(out, "\"tool_calls\":[{\"index\":%zu,\"id\":\"%s\",\"type\":\"function\"",
               call_index(c, i), i->id);
    put_string_member(out, ",\"function\":{\"name\":", i->name);
    buf_puts(out, ",\"arguments\":\"\"}}]");
}

static void end_chunk(generation *g) {
    buf_putc(&g->out, ']');
    put_chunk_usage(g, &g->out);
    buf_putc(&g->out, '}');
    event_end(&g->out);
}

static void begin_chunk(generation *g, const choice *c) {
    event_begin(&g->out, NULL);
    put_head(g, &g->out, "chat.completion.chunk");
    buf_printf(&g->out, "{\"index\":%zu,\"delta\":{", c->index);
}

static void put_usage_event(generation *g) {
    event_begin(&g->out, NULL);
    put_head(g, &g->out, "chat.completion.chunk");
    put_usage_chunk(g);
}

static void stream(generation *g, enum output_event what, choice *c, item *i) {
    static const char no_logprobs[] = "},\"logprobs\":null,\"finish_reason\":null}";
    buf *out = &g->out;
    switch (what) {
    case OUTPUT_PROGRESS:
        begin_chunk(g, c);
        buf_puts(out, no_logprobs);
        buf_putc(out, ']');
        put_progress(out, c->prompt);
        buf_putc(out, '}');
        event_end(out);
        break;
    case OUTPUT_CHOICE_BEGINS:
        begin_chunk(g, c);
        buf_puts(out, "\"role\":\"assistant\",\"content\":\"\"");
        buf_puts(out, no_logprobs);
        end_chunk(g);
        break;
    case OUTPUT_ITEM_BEGINS:
        if (i->kind != ITEM_CALL) break;
        begin_chunk(g, c);
        put_call_begin(out, c, i);
        buf_puts(out, no_logprobs);
        end_chunk(g);
        break;
    case OUTPUT_DELTA:
        begin_chunk(g, c);
        put_delta(out, c, i);
        buf_putc(out, '}');
        put_logprobs(g, out, c);
        put_token_ids(g, out, c);
        buf_puts(out, ",\"finish_reason\":null}");
        end_chunk(g);
        break;
    case OUTPUT_CHOICE_ENDS:
        begin_chunk(g, c);
        buf_printf(out, "},\"logprobs\":null,\"finish_reason\":\"%s\"}", finish_reason(c));
        end_chunk(g);
        break;
    case OUTPUT_ENDS:
        if (g->opts.include_usage && !g->failure.status) put_usage_event(g);
        put_done(g);
        break;
    default:
        break;
    }
}

static void put_calls(buf *out, const choice *c) {
    bool first = true;
    for (const item *i = c->items; i < c->items + c->n_items; i++) {
        if (i->kind != ITEM_CALL) continue;
        buf_puts(out, first ? ",\"tool_calls\":[" : ",");
        first = false;
        buf_printf(out, "{\"id\":\"%s\",\"type\":\"function\"", i->id);
        put_string_member(out, ",\"function\":{\"name\":", i->name);
        buf_puts(out, ",\"arguments\":");
        put_json_string(out, i->text.data, i->text.len);
        buf_puts(out, "}}");
    }
    if (!first) buf_putc(out, ']');
}

static void put_message(buf *out, const choice *c) {
    bool says = false, thinks = false;
    for (size_t i = 0; i < c->n_items; i++) {
        says |= c->items[i].kind == ITEM_TEXT;
        thinks |= c->items[i].kind == ITEM_REASONING;
    }
    buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    if (says || !count_calls(c)) {
        buf_putc(out, '"');
        put_output(out, c, ITEM_TEXT);
        buf_putc(out, '"');
    } else {
        buf_puts(out, "null");
    }
    for (int i = 0; thinks && i < 2; i++) {
        buf_puts(out, i ? ",\"reasoning\":\"" : ",\"reasoning_content\":\"");
        put_output(out, c, ITEM_REASONING);
        buf_putc(out, '"');
    }
    buf_puts(out, ",\"refusal\":null");
    put_calls(out, c);
    buf_putc(out, '}');
}

static void put_whole(generation *g, buf *out) {
    put_head(g, out, "chat.completion");
    for (size_t i = 0; i < count_choices(g); i++) {
        const choice *c = &g->choices[i];
        buf_printf(out, "%s{\"index\":%zu,\"message\":", i ? "," : "", c->index);
        put_message(out, c);
        put_logprobs(g, out, c);
        put_token_ids(g, out, c);
        buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c));
    }
    buf_putc(out, ']');
    put_prompt_token_ids(g, out, &g->choices[0]);
    put_prompt_logprobs(g, out, &g->choices[0]);
    buf_puts(out, ",\"usage\":");
    put_usage(g, out);
    put_cache_diagnostics(g, out);
    put_timings(out, &g->usage);
    buf_putc(out, '}');
}

static const dialect chat = {.id_prefix = "chatcmpl-",
                             .add_logprob = add_chat_logprob,
                             .stream = stream,
                             .put_whole = put_whole};

/* ---- requests -------------------------------------------------------------------------------- */

struct own {
    bool logprobs;
    int top_logprobs;
};

static const field own_fields[] = {
    {"logprobs", FIELD_BOOL, offsetof(struct own, logprobs), 0, 0},
    {"top_logprobs", FIELD_INT, offsetof(struct own, top_logprobs), 0, ICP_MAX_LOGPROBS},
};

generation *chat_generation(call *c, const dialect *d, json_object *body) {
    struct own own = {0};
    if (!fields_read(body, "", own_fields, COUNT_OF(own_fields), &own, &c->reply)) return NULL;
    if (own.top_logprobs && !own.logprobs) {
        reply_error(&c->reply, 400, "invalid_value", "top_logprobs",
                    "'top_logprobs' is only allowed when 'logprobs' is true.");
        return NULL;
    }
    generation *g = generation_new(c, d, body, 1);
    if (!g) return NULL;
    if (own.logprobs) g->opts.logprobs = own.top_logprobs;
    g->prompts[0].from_text = true;
    tool_choice tools;
    bool ok = tool_choice_read(&tools, body, &c->reply) &&
              chat_tokenize(c, body, &g->prompts[0].ids, &g->marks, NULL) &&
              answers_open(g, &tools, &c->reply);
    tool_choice_fini(&tools);
    if (!ok) generation_free(&g);
    return g;
}

void chat_start(call *c, json_object *body) {
    generation *g = chat_generation(c, &chat, body);
    if (g) generation_submit(g);
}
