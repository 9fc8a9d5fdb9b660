/* What the dialects write alike: server-sent events, usage, token texts, log-probabilities.
 *
 * Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "generation.h"

void event_begin(buf *out, const char *name) {
    if (name) buf_printf(out, "event: %s\n", name);
    buf_puts(out, "data: ");
}

void event_end(buf *out) {
    buf_puts(out, "\n\n");
}

void put_json_string(buf *out, const char *text, size_t len) {
    buf_putc(out, '"');
    buf_put_json(out, text ? text : "", len);
    buf_putc(out, '"');
}

void put_string_member(buf *out, const char *before, const char *text) {
    buf_puts(out, before);
    put_json_string(out, text, strlen(text));
}

void put_usage(const generation *g, buf *out) {
    const icp_usage *u = &g->usage;
    buf_printf(out, "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,",
               u->prompt_tokens, u->completion_tokens, u->prompt_tokens + u->completion_tokens);
    buf_printf(out, "\"prompt_tokens_details\":{\"cached_tokens\":%zu", u->cached_tokens);
    if (u->miss && u->miss[0]) put_string_member(out, ",\"miss_reason\":", u->miss);
    buf_printf(out, "},\"completion_tokens_details\":{\"reasoning_tokens\":%zu}}", g->n_reasoning);
}

void put_prompt_usage(const generation *g, buf *out) {
    const icp_usage *u = &g->usage;
    buf_printf(out, "{\"prompt_tokens\":%zu,\"total_tokens\":%zu,", u->prompt_tokens,
               u->prompt_tokens);
    buf_printf(out, "\"prompt_tokens_details\":{\"cached_tokens\":%zu}}", u->cached_tokens);
}

void put_chunk_usage(const generation *g, buf *out) {
    size_t n_prompt = count_prompt_tokens(g);
    if (g->opts.continuous_usage)
        buf_printf(out,
                   ",\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,"
                   "\"total_tokens\":%zu}",
                   n_prompt, g->n_generated, n_prompt + g->n_generated);
    else if (g->opts.include_usage)
        buf_puts(out, ",\"usage\":null");
}

void put_done(generation *g) {
    if (g->failure.status) {
        event_begin(&g->out, NULL);
        put_error(&g->out, &g->failure, FORM_OPENAI, g->call->id);
        event_end(&g->out);
    }
    buf_puts(&g->out, "data: [DONE]\n\n");
}

void put_logprob(buf *out, float value) {
    if (!isfinite(value)) value = -9999; /* JSON has no infinity; clients know this number */
    buf_printf(out, "%.9g", (double)value);
}

char *token_bytes(const generation *g, int32_t token, size_t *len) {
    char *text = NULL;
    if (icp_detokenize(g->call->on->model, &token, 1, true, &text, len, NULL) < 0) return NULL;
    return text;
}

/* {"token":…,"logprob":…,"bytes":[…] without the closing brace. */
static void put_token(const generation *g, buf *out, const icp_logprob *p) {
    size_t len = 0;
    char *text = token_bytes(g, p->token, &len);
    out->failed |= !text;
    buf_puts(out, "{\"token\":");
    put_json_string(out, text, len);
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, p->logprob);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < len; i++) buf_printf(out, "%s%d", i ? "," : "", (unsigned char)text[i]);
    buf_putc(out, ']');
    icp_free(text);
}

void add_logprob_item(const generation *g, logprobs *to, const icp_event *e, put_token_fn *put) {
    buf *out = &to->list[0];
    if (out->len) buf_putc(out, ',');
    put(g, out, &e->chosen);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int i = 0; i < e->n_top; i++) {
        if (i) buf_putc(out, ',');
        put(g, out, &e->top[i]);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

void add_chat_logprob(generation *g, logprobs *to, int32_t token, const icp_event *e) {
    add_logprob_item(g, to, e, put_token);
}

void put_usage_chunk(generation *g) {
    buf_puts(&g->out, "],\"usage\":");
    put_usage(g, &g->out);
    put_cache_diagnostics(g, &g->out);
    put_timings(&g->out, &g->usage);
    buf_putc(&g->out, '}');
    event_end(&g->out);
}

const char *finish_reason(const choice *c) {
    if (c->finish == ICP_FINISH_LENGTH) return "length";
    return count_calls(c) ? "tool_calls" : "stop";
}

void make_id(char *out, size_t size, const char *prefix) {
    unsigned char noise[12];
    double now = clock_now();
    if (getrandom(noise, sizeof noise, 0) < 0)
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = ((unsigned char *)&now)[i % sizeof now];
    int n = snprintf(out, size, "%s", prefix);
    for (size_t i = 0; i < sizeof noise && n > 0 && (size_t)n + 2 < size; i++)
        n += snprintf(out + n, size - (size_t)n, "%02x", noise[i]);
}

void put_timings(buf *out, const icp_usage *u) {
    size_t n_prompt = u->prompt_tokens - u->cached_tokens, n = u->completion_tokens;
    double prompt_ms = MAX(u->first_token_s - u->queued_s, 0) * 1000;
    double predicted_ms = MAX(u->total_s - u->first_token_s, 0) * 1000;
    double prompt_each = n_prompt ? prompt_ms / (double)n_prompt : 0;
    double predicted_each = n ? predicted_ms / (double)n : 0;
    buf_printf(out,
               ",\"timings\":{\"cache_n\":%zu,\"prompt_n\":%zu,\"prompt_ms\":%.3f,"
               "\"prompt_per_token_ms\":%.3f,\"prompt_per_second\":%.3f,",
               u->cached_tokens, n_prompt, prompt_ms, prompt_each,
               prompt_each > 0 ? 1000 / prompt_each : 0);
    buf_printf(out,
               "\"predicted_n\":%zu,\"predicted_ms\":%.3f,\"predicted_per_token_ms\":%.3f,"
               "\"predicted_per_second\":%.3f}",
               n, predicted_ms, predicted_each, predicted_each > 0 ? 1000 / predicted_each : 0);
}

void put_progress(buf *out, const prompt *p) {
    buf_printf(out,
               ",\"prompt_progress\":{\"total\":%zu,\"cache\":%zu,\"processed\":%zu,"
               "\"time_ms\":%.0f}",
               p->n_tokens, p->n_cached, p->n_ready, (clock_now() - p->began) * 1000);
}

void put_token_ids(const generation *g, buf *out, const choice *c) {
    if (!g->opts.return_tokens) return;
    buf_puts(out, ",\"token_ids\":[");
    buf_put(out, c->tokens.data, c->tokens.len);
    buf_putc(out, ']');
}

void put_prompt_token_ids(const generation *g, buf *out, const choice *c) {
    if (!g->opts.return_tokens) return;
    buf_puts(out, ",\"prompt_token_ids\":[");
    const icp_tokens *ids = &c->prompt->ids;
    for (size_t i = 0; i < ids->n; i++) buf_printf(out, "%s%d", i ? "," : "", ids->id[i]);
    buf_putc(out, ']');
}

static void put_ranked(const generation *g, buf *out, const icp_logprob *p, size_t rank) {
    size_t len = 0;
    char *text = token_bytes(g, p->token, &len);
    out->failed |= !text;
    buf_printf(out, "\"%d\":{\"logprob\":", p->token);
    put_logprob(out, p->logprob);
    buf_printf(out, ",\"rank\":%zu,\"decoded_token\":", rank);
    put_json_string(out, text, len);
    buf_putc(out, '}');
    icp_free(text);
}

void add_prompt_logprob(const generation *g, buf *to, const icp_event *e) {
    buf_puts(to, ",{");
    put_ranked(g, to, &e->chosen, e->rank);
    for (int i = 0; i < e->n_top; i++) {
        if (e->top[i].token == e->chosen.token) continue;
        buf_putc(to, ',');
        put_ranked(g, to, &e->top[i], (size_t)i + 1);
    }
    buf_putc(to, '}');
}

void put_prompt_logprobs(const generation *g, buf *out, const choice *c) {
    if (g->opts.prompt_logprobs < 0) return;
    buf_puts(out, ",\"prompt_logprobs\":[null");
    buf_put(out, c->prompt->listed.data, c->prompt->listed.len);
    buf_putc(out, ']');
}
