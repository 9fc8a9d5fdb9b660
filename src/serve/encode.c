/* What both OpenAI dialects write: server-sent events, whole answers, usage, token texts.
 *
 * Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html */
#include <math.h>
#include <string.h>

#include "serve_internal.h"

void put_json_string(buf *out, const char *text, size_t len) {
    buf_putc(out, '"');
    buf_put_json(out, text, len);
    buf_putc(out, '"');
}

static void put_usage(buf *out, const icp_usage *u) {
    buf_printf(out, "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,",
               u->prompt_tokens, u->completion_tokens, u->prompt_tokens + u->completion_tokens);
    buf_printf(out, "\"prompt_tokens_details\":{\"cached_tokens\":%zu", u->cached_tokens);
    if (u->miss && u->miss[0]) {
        buf_puts(out, ",\"miss_reason\":");
        put_json_string(out, u->miss, strlen(u->miss));
    }
    buf_puts(out, "}}");
}

/* Usage while it grows: what is cached is known only at the end. */
static void put_running_usage(const generation *g, buf *out) {
    size_t n_prompt = 0;
    for (size_t i = 0; i < g->n_submitted; i++) n_prompt += g->prompts[i].ids.n;
    buf_printf(out, "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu}",
               n_prompt, g->n_generated, n_prompt + g->n_generated);
}

static void put_head(const generation *g, buf *out, const char *object) {
    const char *model = g->call->server->name;
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", g->id, object,
               (long long)g->created);
    put_json_string(out, model, strlen(model));
    buf_puts(out, ",\"choices\":[");
}

static void forget_sent(choice *c) {
    buf_clear(&c->text);
    for (int i = 0; i < N_LISTS; i++) buf_clear(&c->logprobs.list[i]);
}

void encode_chunk(generation *g, choice *c, enum chunk kind) {
    size_t undo = g->out.len;
    buf_puts(&g->out, "data: ");
    put_head(g, &g->out, g->dialect->chunk_object);
    if (!g->dialect->put_chunk(g, &g->out, c, kind)) {
        g->out.len = undo;
        return;
    }
    buf_putc(&g->out, ']');
    if (g->opts.continuous_usage) {
        buf_puts(&g->out, ",\"usage\":");
        put_running_usage(g, &g->out);
    } else if (g->opts.include_usage) {
        buf_puts(&g->out, ",\"usage\":null");
    }
    buf_puts(&g->out, "}\n\n");
    g->begun = true;
    if (kind != CHUNK_FIRST) forget_sent(c);
}

void encode_end(generation *g) {
    if (g->failure.status) {
        buf_puts(&g->out, "data: ");
        buf_put(&g->out, g->failure.body.data, g->failure.body.len);
        buf_puts(&g->out, "\n\n");
    } else if (g->opts.include_usage) {
        buf_puts(&g->out, "data: ");
        put_head(g, &g->out, g->dialect->chunk_object);
        buf_puts(&g->out, "],\"usage\":");
        put_usage(&g->out, &g->usage);
        buf_puts(&g->out, "}\n\n");
    }
    buf_puts(&g->out, "data: [DONE]\n\n");
}

void encode_answer(generation *g, buf *out) {
    put_head(g, out, g->dialect->object);
    size_t n = g->n_prompts * (size_t)g->opts.request.n;
    for (size_t i = 0; i < n; i++) {
        if (i) buf_putc(out, ',');
        g->dialect->put_whole(g, out, &g->choices[i]);
        out->failed |= g->choices[i].text.failed;
    }
    buf_puts(out, "],\"usage\":");
    put_usage(out, &g->usage);
    buf_putc(out, '}');
}

void put_logprob(buf *out, float value) {
    if (!isfinite(value)) value = -9999; /* JSON has no infinity; clients know this number */
    buf_printf(out, "%.9g", (double)value);
}

char *token_bytes(const generation *g, int32_t token, size_t *len) {
    char *text = NULL;
    if (icp_detokenize(g->call->server->model, &token, 1, true, &text, len, NULL) < 0) return NULL;
    return text;
}
