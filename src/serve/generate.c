/* Generations: prompts go to the engine, its events become choices. Invariants in
 * serve_internal.h. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve_internal.h"

enum { OUT_LIMIT = 64 << 10 }; /* a stream encodes no further while so much waits to be sent */

/* ---- life ------------------------------------------------------------------------------------ */

static void set_id(generation *g) {
    unsigned char noise[12] = {0};
    if (getrandom(noise, sizeof noise, 0) < 0) memcpy(noise, &g->created, sizeof g->created);
    int n = snprintf(g->id, sizeof g->id, "%s-", g->dialect->id_prefix);
    for (size_t i = 0; i < sizeof noise; i++)
        n += snprintf(g->id + n, sizeof g->id - (size_t)n, "%02x", noise[i]);
}

static bool make_choices(generation *g) {
    size_t n = (size_t)g->opts.request.n;
    g->prompts = mem_zero(g->n_prompts, sizeof *g->prompts);
    g->choices = mem_zero(g->n_prompts * n, sizeof *g->choices);
    if (!g->prompts || !g->choices) return false;
    for (size_t i = 0; i < g->n_prompts * n; i++)
        g->choices[i] = (choice){.prompt = &g->prompts[i / n], .index = i};
    return true;
}

generation *generation_new(call *c, const dialect *d, json_object *body, size_t n_prompts) {
    generation *g = mem_zero(1, sizeof *g);
    if (!g) return reply_error(&c->reply, 503, NULL, NULL, "Out of memory."), NULL;
    g->call = c;
    g->dialect = d;
    g->body = json_object_get(body);
    g->n_prompts = n_prompts;
    g->created = time(NULL);
    set_id(g);
    size_t n_vocab = icp_model_get_info(c->server->model)->n_vocab;
    if (generate_opts_read(&g->opts, body, n_vocab, &c->reply)) {
        if (make_choices(g)) return g;
        reply_error(&c->reply, 503, NULL, NULL, "Out of memory.");
    }
    generation_free(&g);
    return NULL;
}

static void free_logprobs(logprobs *l) {
    for (int i = 0; i < N_LISTS; i++) buf_fini(&l->list[i]);
}

void generation_free(generation **ref) {
    generation *g = *ref;
    if (!g) return;
    for (size_t i = 0; g->prompts && i < g->n_prompts; i++) {
        icp_request_free(&g->prompts[i].request);
        icp_tokens_free(&g->prompts[i].ids);
        mem_free(g->prompts[i].echo);
        free_logprobs(&g->prompts[i].logprobs);
    }
    for (size_t i = 0; g->choices && i < g->n_prompts * (size_t)g->opts.request.n; i++) {
        buf_fini(&g->choices[i].text);
        free_logprobs(&g->choices[i].logprobs);
    }
    mem_free(g->prompts);
    mem_free(g->choices);
    generate_opts_fini(&g->opts);
    json_object_put(g->body);
    reply_fini(&g->failure);
    buf_fini(&g->out);
    mem_free(g);
    *ref = NULL;
}

/* ---- submission ------------------------------------------------------------------------------ */

/* The prompt must fit. More tokens than the context has room for are as many as it allows. */
static bool fit(const generation *g, const prompt *p, icp_request_opts *opts, reply *error) {
    size_t n_ctx = icp_model_get_info(g->call->server->model)->n_ctx;
    opts->max_tokens = g->opts.max_tokens;
    if (p->ids.n > n_ctx || (p->ids.n == n_ctx && opts->max_tokens != 0))
        return reply_context_exceeded(error, p->ids.n, n_ctx, NULL), false;
    if (opts->max_tokens > 0 && (size_t)opts->max_tokens > n_ctx - p->ids.n) opts->max_tokens = -1;
    return true;
}

/* Submits one prompt: 0, ICP_EAGAIN when others must finish first, or another code with *error. */
static int submit(generation *g, prompt *p, reply *error) {
    icp_request_opts opts = g->opts.request;
    if (!fit(g, p, &opts, error)) return ICP_ELIMIT;
    opts.prompt = p->ids.id;
    opts.n_prompt = p->ids.n;
    opts.tenant = g->call->tenant;
    opts.wake = call_wake_arg;
    opts.wake_arg = g->call;
    icp_error err = {0};
    int rc = icp_submit(g->call->server->engine, &opts, &p->request, &err);
    if (rc == ICP_EAGAIN && g->n_submitted > g->n_done) return rc;
    if (rc == ICP_ELIMIT) {
        size_t n_ctx = icp_model_get_info(g->call->server->model)->n_ctx;
        reply_context_exceeded(error, p->ids.n, n_ctx, err.text);
    } else if (rc < 0) {
        reply_icp_error(error, &err, NULL);
    }
    return rc;
}

/* Submits as many prompts as the engine takes now. */
static void submit_more(generation *g, reply *error) {
    while (g->n_submitted < g->n_prompts) {
        prompt *p = &g->prompts[g->n_submitted];
        if (submit(g, p, error) < 0) return;
        /* The engine says nothing about the first token of a prompt: it has no probability. */
        if (g->opts.request.prompt_logprobs)
            g->dialect->add_logprob(g, &p->logprobs, p->ids.id[0], NULL);
        g->n_submitted++;
    }
    json_object_put(g->body);
    g->body = NULL;
}

void generation_submit(generation *g) {
    call *c = g->call;
    if (!c->conn->gone) submit_more(g, &c->reply);
    if (c->reply.status || !g->n_submitted)
        generation_free(&g);
    else
        c->generation = g;
}

/* ---- events ---------------------------------------------------------------------------------- */

static const char *finish_reason(enum icp_finish finish) {
    switch (finish) {
    case ICP_FINISH_STOP:
    case ICP_FINISH_STOP_STRING:
        return "stop";
    case ICP_FINISH_LENGTH:
        return "length";
    default:
        return NULL; /* the error follows */
    }
}

static void begin_choice(generation *g, choice *c) {
    c->begun = true;
    c->logprobs.offset = c->prompt->logprobs.offset;
    if (g->opts.stream) encode_chunk(g, c, CHUNK_FIRST);
}

static void take_text(generation *g, choice *c, const icp_event *e) {
    if (!c->begun) begin_choice(g, c);
    buf_put(&c->text, e->text, e->text_len);
    if (e->kind == ICP_EVENT_TOKEN) {
        g->n_generated++;
        if (g->opts.request.logprobs >= 0) g->dialect->add_logprob(g, &c->logprobs, e->token, e);
    } else {
        c->finish = finish_reason(e->finish);
    }
    if (!g->opts.stream) return;
    if (c->finish)
        encode_chunk(g, c, CHUNK_LAST);
    else if (c->text.len || c->logprobs.list[0].len)
        encode_chunk(g, c, CHUNK_TEXT);
}

static void take_done(generation *g, prompt *p, const icp_event *e) {
    g->usage.prompt_tokens += e->usage.prompt_tokens;
    g->usage.cached_tokens += e->usage.cached_tokens;
    g->usage.completion_tokens += e->usage.completion_tokens;
    if (!g->usage.miss) g->usage.miss = e->usage.miss;
    icp_error err = {.code = e->error};
    bool failed = e->finish == ICP_FINISH_ERROR;
    icp_request_free(&p->request);
    g->n_done++;
    if (failed)
        reply_icp_error(&g->failure, &err, NULL);
    else
        submit_more(g, &g->failure);
}

static void take_event(generation *g, prompt *p, const icp_event *e) {
    size_t n = (size_t)g->opts.request.n;
    switch (e->kind) {
    case ICP_EVENT_PROMPT:
        g->dialect->add_logprob(g, &p->logprobs, e->token, e);
        break;
    case ICP_EVENT_TOKEN:
    case ICP_EVENT_FINISH:
        take_text(g, &g->choices[(size_t)(p - g->prompts) * n + (size_t)e->choice], e);
        break;
    case ICP_EVENT_DONE:
        take_done(g, p, e);
        break;
    }
}

static bool has_room(const generation *g) {
    return !g->opts.stream || g->out.len - g->out_at < OUT_LIMIT;
}

void generation_pump(generation *g) {
    icp_event event;
    for (size_t i = 0; i < g->n_submitted; i++) {
        prompt *p = &g->prompts[i];
        while (p->request && has_room(g) && !g->failure.status && icp_next(p->request, &event))
            take_event(g, p, &event);
    }
    if (generation_done(g) && g->opts.stream && !g->ended) {
        encode_end(g);
        g->ended = true;
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

bool generation_done(const generation *g) {
    return g->failure.status || g->n_done == g->n_prompts;
}

bool generation_streams(const generation *g) {
    return g->opts.stream && (g->begun || !g->failure.status);
}

void generation_cancel(generation *g) {
    if (!generation_done(g))
        reply_error(&g->failure, 503, "shutting_down", NULL, "The server is shutting down.");
}

void generation_reply(generation *g, reply *r) {
    if (!g->failure.status) {
        encode_answer(g, &r->body);
        r->status = 200;
        return;
    }
    reply_fini(r);
    *r = g->failure;
    g->failure.body = (buf){0};
}

void generation_ping(generation *g) {
    if (g->out.len == g->out_at && !g->ended) buf_puts(&g->out, ": keep-alive\n\n");
}

long generation_read(generation *g, char *to, size_t max) {
    size_t n = MIN(g->out.len - g->out_at, max);
    if (g->out.failed) return -1;
    if (n == 0) return g->ended ? -1 : 0;
    memcpy(to, g->out.data + g->out_at, n);
    g->out_at += n;
    if (g->out_at == g->out.len) {
        buf_clear(&g->out);
        g->out_at = 0;
    }
    return (long)n;
}
