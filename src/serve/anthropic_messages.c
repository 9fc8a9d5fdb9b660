/* POST /v1/messages and /v1/messages/count_tokens.
 * https://platform.claude.com/docs/en/api/messages
 * https://platform.claude.com/docs/en/build-with-claude/streaming */
#include <string.h>

#include "anthropic.h"

/* ---- parts ----------------------------------------------------------------------------------- */

static void put_fresh(buf *out, const char *before, const item *i) {
    buf_puts(out, before);
    put_json_string(out, i->text.data + i->sent, i->text.len - i->sent);
}

/* Tokens that were computed and stand before breakpoints, of up to five minutes and of longer ones.
 * Where the engine has found another spelling of the prompt's beginning, they moved with it. */
static void count_created(const generation *g, size_t n_prompt, size_t n_cached,
                          size_t created[2]) {
    const icp_request_opts *o = &g->opts.request;
    size_t from = n_cached, n_sent = g->prompts[0].ids.n;
    created[0] = created[1] = 0;
    for (size_t i = 0; !o->no_store && !o->no_cache && i < g->marks.n; i++) {
        const icp_mark *mark = &g->marks.at[i];
        size_t at = mark->position + n_prompt - MIN(n_sent, mark->position + n_prompt);
        if (mark->ttl == 0 || at <= from) continue;
        created[mark->ttl > CACHE_CONTROL->ttl] += at - from;
        from = at;
    }
}

/* Input is only what was neither cached nor is before a breakpoint. */
static void put_tokens(const generation *g, buf *out, size_t n_prompt, size_t n_cached,
                       size_t n_output) {
    size_t created[2];
    count_created(g, n_prompt, n_cached, created);
    buf_printf(out,
               "{\"input_tokens\":%zu,\"cache_creation_input_tokens\":%zu,"
               "\"cache_read_input_tokens\":%zu,\"cache_creation\":{"
               "\"ephemeral_5m_input_tokens\":%zu,\"ephemeral_1h_input_tokens\":%zu},"
               "\"output_tokens\":%zu",
               n_prompt - n_cached - created[0] - created[1], created[0] + created[1], n_cached,
               created[0], created[1], n_output);
}

static void put_final_tokens(const generation *g, buf *out) {
    const icp_usage *u = &g->usage;
    put_tokens(g, out, u->prompt_tokens, u->cached_tokens, u->completion_tokens);
}

static void put_stop(const generation *g, buf *out, const choice *c) {
    const char *reason = "end_turn";
    if (c->finish == ICP_FINISH_LENGTH)
        reason = "max_tokens";
    else if (count_calls(c))
        reason = "tool_use";
    else if (c->finish == ICP_FINISH_STOP_STRING)
        reason = "stop_sequence";
    buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    bool named = !strcmp(reason, "stop_sequence") && c->stop_index >= 0 &&
                 (size_t)c->stop_index < g->opts.request.n_stop;
    if (named)
        put_string_member(out, "", g->opts.stop[c->stop_index]);
    else
        buf_puts(out, "null");
}

/* The arguments as an object, which they are unless the answer was cut within them. */
static void put_input(buf *out, const item *i) {
    json_object *input = i->text.len ? json_read_whole(i->text.data, i->text.len) : NULL;
    bool object = input && json_object_is_type(input, json_type_object);
    buf_puts(out, object ? json_object_to_json_string_ext(input, JSON_C_TO_STRING_PLAIN |
                                                                     JSON_C_TO_STRING_NOSLASHESCAPE)
                         : "{}");
    json_object_put(input);
}

static void put_block(buf *out, const item *i) {
    switch (i->kind) {
    case ITEM_TEXT:
        buf_puts(out, "{\"type\":\"text\",\"text\":");
        put_json_string(out, i->text.data, i->text.len);
        break;
    case ITEM_REASONING:
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":");
        put_json_string(out, i->text.data, i->text.len);
        put_string_member(out, ",\"signature\":", i->id);
        break;
    case ITEM_CALL:
        put_string_member(out, "{\"type\":\"tool_use\",\"id\":", i->id);
        put_string_member(out, ",\"name\":", i->name);
        buf_puts(out, ",\"input\":");
        put_input(out, i);
        break;
    }
    buf_putc(out, '}');
}

static void put_head(const generation *g, buf *out) {
    buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\"", g->id);
    put_string_member(out, ",\"model\":", g->call->on->name);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void begin_message(generation *g, const prompt *p) {
    buf *out = &g->out;
    event_begin(out, "message_start");
    buf_puts(out, "{\"type\":\"message_start\",\"message\":");
    put_head(g, out);
    buf_puts(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_tokens(g, out, p->n_tokens, p->n_cached, 0);
    buf_putc(out, '}');
    put_diagnosis(g, out, p->n_cached);
    buf_puts(out, "}}");
    event_end(out);
    event_begin(out, "ping");
    buf_puts(out, "{\"type\":\"ping\"}");
    event_end(out);
}

static void begin_block(generation *g, size_t index, const item *i) {
    buf *out = &g->out;
    event_begin(out, "content_block_start");
    buf_printf(out, "{\"type\":\"content_block_start\",\"index\":%zu,\"content_block\":", index);
    if (i->kind == ITEM_REASONING)
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    else
        put_block(out, i);
    buf_putc(out, '}');
    event_end(out);
}

static void put_block_delta(generation *g, size_t index, const item *i) {
    static const char *const fields[] = {
        [ITEM_TEXT] = "{\"type\":\"text_delta\",\"text\":",
        [ITEM_REASONING] = "{\"type\":\"thinking_delta\",\"thinking\":",
        [ITEM_CALL] = "{\"type\":\"input_json_delta\",\"partial_json\":",
    };
    buf *out = &g->out;
    event_begin(out, "content_block_delta");
    buf_printf(out, "{\"type\":\"content_block_delta\",\"index\":%zu,\"delta\":", index);
    put_fresh(out, fields[i->kind], i);
    buf_puts(out, "}}");
    event_end(out);
}

static void end_block(generation *g, size_t index, const item *i) {
    buf *out = &g->out;
    if (i->kind == ITEM_REASONING) {
        event_begin(out, "content_block_delta");
        buf_printf(out,
                   "{\"type\":\"content_block_delta\",\"index\":%zu,\"delta\":{\"type\":"
                   "\"signature_delta\",\"signature\":\"%s\"}}",
                   index, i->id);
        event_end(out);
    }
    event_begin(out, "content_block_stop");
    buf_printf(out, "{\"type\":\"content_block_stop\",\"index\":%zu}", index);
    event_end(out);
}

static void end_message(generation *g) {
    buf *out = &g->out;
    if (g->failure.status) {
        event_begin(out, "error");
        put_error(out, &g->failure, FORM_ANTHROPIC, g->call->id);
        event_end(out);
        return;
    }
    event_begin(out, "message_delta");
    buf_puts(out, "{\"type\":\"message_delta\",\"delta\":{");
    put_stop(g, out, &g->choices[0]);
    buf_puts(out, "},\"usage\":");
    put_final_tokens(g, out);
    buf_puts(out, "}}");
    event_end(out);
    event_begin(out, "message_stop");
    buf_puts(out, "{\"type\":\"message_stop\"}");
    event_end(out);
}

static void stream(generation *g, enum output_event what, choice *c, item *i) {
    size_t index = i ? (size_t)(i - c->items) : 0;
    switch (what) {
    case OUTPUT_CHOICE_BEGINS:
        begin_message(g, c->prompt);
        break;
    case OUTPUT_ITEM_BEGINS:
        begin_block(g, index, i);
        break;
    case OUTPUT_DELTA:
        if (i) put_block_delta(g, index, i);
        break;
    case OUTPUT_ITEM_ENDS:
        end_block(g, index, i);
        break;
    case OUTPUT_ENDS:
        end_message(g);
        break;
    default:
        break;
    }
}

static void put_whole(generation *g, buf *out) {
    const choice *c = &g->choices[0];
    put_head(g, out);
    buf_puts(out, ",\"content\":[");
    for (size_t i = 0; i < c->n_items; i++) {
        if (i) buf_putc(out, ',');
        put_block(out, &c->items[i]);
    }
    buf_puts(out, "],");
    put_stop(g, out, c);
    buf_puts(out, ",\"usage\":");
    put_final_tokens(g, out);
    buf_putc(out, '}');
    put_diagnosis(g, out, g->usage.cached_tokens);
    buf_putc(out, '}');
}

static const dialect messages = {.id_prefix = "msg_",
                                 .call_prefix = "toolu_",
                                 .stream = stream,
                                 .put_whole = put_whole,
                                 .free_own = diagnosis_free};

/* ---- routes ---------------------------------------------------------------------------------- */

void messages_start(call *c, json_object *body) {
    json_object *chat = anthropic_chat(body, false, &c->reply);
    diagnosis *d = NULL;
    bool ok = chat && diagnosis_open(&d, c, body, chat);
    generation *g = ok ? chat_generation(c, &messages, chat) : NULL;
    reply_rename(&c->reply, "stop", "stop_sequences");
    reply_rename(&c->reply, "response_format", "output_config.format");
    if (g) {
        g->own = d;
        diagnosis_keep(g);
        generation_submit(g);
    } else {
        diagnosis_free(d);
    }
    json_object_put(chat);
}

void count_tokens_reply(call *c, json_object *body) {
    icp_tokens ids = {0};
    json_object *chat = anthropic_chat(body, true, &c->reply);
    if (chat && chat_tokenize(c, chat, &ids, NULL, NULL)) {
        buf_printf(&c->reply.body, "{\"input_tokens\":%zu}", ids.n);
        c->reply.status = 200;
    }
    icp_tokens_free(&ids);
    json_object_put(chat);
}
