/* One completion: what becomes of a drawn token, and how it ends. */
#include <string.h>

#include "engine_internal.h"

bool sequence_before(const sequence *a, const sequence *b) {
    if (a->request->opts.priority != b->request->opts.priority)
        return a->request->opts.priority < b->request->opts.priority;
    if (a->request->arrival != b->request->arrival)
        return a->request->arrival < b->request->arrival;
    return a->choice < b->choice;
}

static bool is_end(const sequence *s, int32_t token) {
    const icp_request_opts *o = &s->request->opts;
    for (size_t i = 0; i < o->n_stop_tokens; i++)
        if (o->stop_tokens[i] == token) return true;
    const tokenizer *tok = s->request->engine->tok;
    return !o->ignore_eos && (size_t)token < tokenizer_n(tok) && tokenizer_ends(tok, token);
}

/* Text through the stop strings into *out; returns the index of the one that was found, or -1.
 * Before min_tokens nothing ends a completion. */
static int filter(sequence *s, const buf *text, buf *out) {
    const icp_request_opts *o = &s->request->opts;
    if (text->failed) out->failed = true;
    if (s->n_tokens - o->n_prompt >= (size_t)o->min_tokens)
        return stop_put(&s->stop, text->data, text->len, o->include_stop, out);
    buf_put(out, text->data, text->len);
    return -1;
}

/* What of a request's usage is known when its prompt is ready. */
static icp_usage early_usage(const request *r) {
    return (icp_usage){.prompt_tokens = r->opts.n_prompt, .cached_tokens = r->usage.cached_tokens};
}

/* Posts FINISH with text, and closes the books of s. */
static int post_finish(sequence *s, enum icp_finish finish, int stop_index, const buf *text) {
    icp_event event = {.kind = ICP_EVENT_FINISH,
                       .choice = s->choice,
                       .finish = finish,
                       .stop_index = stop_index,
                       .text = text->data,
                       .text_len = text->len,
                       .usage = early_usage(s->request)};
    s->finished = true;
    if (s->choice == 0) s->request->finish = finish;
    return text->failed ? ICP_ENOMEM : request_post(s->request, &event);
}

int sequence_end(sequence *s, enum icp_finish finish) {
    buf text = {0}, out = {0};
    int found = -1;
    if (finish != ICP_FINISH_CANCELLED) {
        detok_flush(&s->text, &text);
        found = filter(s, &text, &out);
        if (found < 0) stop_flush(&s->stop, &out);
    }
    int rc = post_finish(s, found < 0 ? finish : ICP_FINISH_STOP_STRING, found, &out);
    buf_fini(&text);
    buf_fini(&out);
    return rc;
}

static int post_token(sequence *s, const sample_job *drawn, const buf *text) {
    icp_event event = {.kind = ICP_EVENT_TOKEN,
                       .choice = s->choice,
                       .token = drawn->token,
                       .position = s->n_tokens - 1 - s->request->opts.n_prompt,
                       .text = text->data,
                       .text_len = text->len,
                       .chosen = drawn->chosen,
                       .rank = drawn->rank,
                       .n_top = drawn->n_top,
                       .usage = early_usage(s->request),
                       .stop_index = -1};
    memcpy(event.top, drawn->top, (size_t)drawn->n_top * sizeof drawn->top[0]);
    return text->failed ? ICP_ENOMEM : request_post(s->request, &event);
}

int sequence_stuck(sequence *s) {
    return sequence_end(s, matcher_can_end(s->matcher) ? ICP_FINISH_STOP : ICP_FINISH_STUCK);
}

int sequence_accept(sequence *s, const sample_job *drawn) {
    const icp_request_opts *o = &s->request->opts;
    const tokenizer *tok = s->request->engine->tok;
    buf *text = &s->piece, *out = &s->shown;
    buf_clear(text);
    buf_clear(out);
    s->tokens[s->n_tokens++] = drawn->token;
    bool end = is_end(s, drawn->token);
    if (s->matcher && !end) TRY(matcher_put_token(s->matcher, drawn->token));
    bool spoken = (size_t)drawn->token < tokenizer_n(tok) && (!end || o->include_stop);
    if (spoken) detok_put(&s->text, drawn->token, text);
    int found = filter(s, text, out);
    TRY(post_token(s, drawn, out));
    s->request->n_output++;
    if (found >= 0) {
        buf_clear(out);
        return post_finish(s, ICP_FINISH_STOP_STRING, found, out);
    }
    if (end || (s->matcher && matcher_must_end(s->matcher)))
        return sequence_end(s, ICP_FINISH_STOP);
    if (s->n_tokens == o->n_prompt + s->max_new) return sequence_end(s, ICP_FINISH_LENGTH);
    return 0;
}
