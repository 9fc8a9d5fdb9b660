/* POST /v1/chat/completions. https://platform.openai.com/docs/api-reference/chat */
#include <string.h>

#include "serve_internal.h"

/* {"token":…,"logprob":…,"bytes":[…] without the closing brace. */
static void put_token(const generation *g, buf *out, const icp_logprob *p) {
    size_t len = 0;
    char *text = token_bytes(g, p->token, &len);
    out->failed |= !text;
    buf_puts(out, "{\"token\":");
    put_json_string(out, text ? text : "", len);
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, p->logprob);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < len; i++) buf_printf(out, "%s%d", i ? "," : "", (unsigned char)text[i]);
    buf_putc(out, ']');
    icp_free(text);
}

static void add_logprob(generation *g, logprobs *to, int32_t token, const icp_event *e) {
    buf *out = &to->list[0];
    if (out->len) buf_putc(out, ',');
    put_token(g, out, &e->chosen);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int i = 0; i < e->n_top; i++) {
        if (i) buf_putc(out, ',');
        put_token(g, out, &e->top[i]);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

static void put_logprobs(const generation *g, buf *out, const choice *c) {
    if (g->opts.request.logprobs < 0) {
        buf_puts(out, ",\"logprobs\":null");
        return;
    }
    buf_puts(out, ",\"logprobs\":{\"content\":[");
    buf_put(out, c->logprobs.list[0].data, c->logprobs.list[0].len);
    buf_puts(out, "],\"refusal\":null}");
}

static void put_delta(const generation *g, buf *out, const choice *c) {
    buf_printf(out, "{\"index\":%zu,\"delta\":{\"content\":", c->index);
    put_json_string(out, c->text.data ? c->text.data : "", c->text.len);
    buf_putc(out, '}');
    put_logprobs(g, out, c);
    buf_puts(out, ",\"finish_reason\":null}");
}

static bool put_chunk(const generation *g, buf *out, choice *c, enum chunk kind) {
    switch (kind) {
    case CHUNK_FIRST:
        buf_printf(out,
                   "{\"index\":%zu,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                   "\"logprobs\":null,\"finish_reason\":null}",
                   c->index);
        break;
    case CHUNK_TEXT:
        put_delta(g, out, c);
        break;
    case CHUNK_LAST:
        buf_printf(out, "{\"index\":%zu,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}",
                   c->index, c->finish);
        break;
    }
    return true;
}

static void put_whole(const generation *g, buf *out, choice *c) {
    buf_printf(out, "{\"index\":%zu,\"message\":{\"role\":\"assistant\",\"content\":", c->index);
    put_json_string(out, c->text.data ? c->text.data : "", c->text.len);
    buf_puts(out, ",\"refusal\":null}");
    put_logprobs(g, out, c);
    buf_printf(out, ",\"finish_reason\":\"%s\"}", c->finish ? c->finish : "stop");
}

static const dialect chat = {
    .id_prefix = "chatcmpl",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .add_logprob = add_logprob,
    .put_chunk = put_chunk,
    .put_whole = put_whole,
};

struct own {
    bool logprobs;
    int top_logprobs;
};

static const field own_fields[] = {
    {"logprobs", FIELD_BOOL, offsetof(struct own, logprobs), 0, 0},
    {"top_logprobs", FIELD_INT, offsetof(struct own, top_logprobs), 0, ICP_MAX_LOGPROBS},
};

void chat_start(call *c, json_object *body) {
    struct own own = {0};
    if (!fields_read(body, "", own_fields, COUNT_OF(own_fields), &own, &c->reply)) return;
    if (own.top_logprobs && !own.logprobs) {
        reply_error(&c->reply, 400, "invalid_value", "top_logprobs",
                    "'top_logprobs' is only allowed when 'logprobs' is true.");
        return;
    }
    generation *g = generation_new(c, &chat, body, 1);
    if (!g) return;
    if (own.logprobs) g->opts.request.logprobs = own.top_logprobs;
    if (chat_tokenize(c, body, &g->prompts[0].ids))
        generation_submit(g);
    else
        generation_free(&g);
}
