/* POST /v1/completions. https://platform.openai.com/docs/api-reference/completions
 *
 * Log-probabilities are four parallel lists: tokens, token_logprobs, top_logprobs, text_offset. */
#include <string.h>

#include "generation.h"

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
    if (g->opts.logprobs < 0) {
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
    put_string_member(out, ",\"model\":", g->call->on->name);
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
    put_token_ids(g, out, c);
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
            put_usage_chunk(g);
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
        put_token_ids(g, out, c);
        put_prompt_token_ids(g, out, c);
        put_prompt_logprobs(g, out, c);
        buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c));
    }
    buf_puts(out, "],\"usage\":");
    put_usage(g, out);
    put_cache_diagnostics(g, out);
    put_timings(out, &g->usage);
    buf_putc(out, '}');
}

static const dialect completions = {
    .id_prefix = "cmpl-", .add_logprob = add_logprob, .stream = stream, .put_whole = put_whole};

void completions_start(call *c, json_object *body) {
    generation *g = prompts_generation(c, &completions, body);
    if (g) generation_submit(g);
}
