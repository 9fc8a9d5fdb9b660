/* Generations: prompts go to the engine, its events become choices. See generation.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "generation.h"

enum { OUT_LIMIT = 64 << 10 }; /* a stream encodes no further while so much waits to be sent */

/* ---- life ------------------------------------------------------------------------------------ */

size_t count_choices(const generation *g) {
    return g->n_prompts * (size_t)g->opts.request.n;
}

size_t count_prompt_tokens(const generation *g) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_submitted; i++) n += g->prompts[i].ids.n;
    return n;
}

static bool make_choices(generation *g) {
    size_t n = (size_t)g->opts.request.n;
    g->prompts = mem_zero(g->n_prompts, sizeof *g->prompts);
    g->choices = mem_zero(count_choices(g), sizeof *g->choices);
    if (!g->prompts || !g->choices) return false;
    for (size_t i = 0; i < count_choices(g); i++)
        g->choices[i] = (choice){.prompt = &g->prompts[i / n], .index = i, .stop_index = -1};
    return true;
}

/* A model generates text, embeds it, or ranks documents. */
static bool serves(const call *c, const dialect *d, reply *error) {
    static const char *const sentences[][TO_ANY + 1] = {
        [TO_GENERATE] =
            {NULL, "This model generates text; it does not embed it: its file names no pooling.",
             "This model generates text; it ranks no documents: its file has no "
             "classifier."},
        [TO_EMBED] =
            {"This model embeds texts; it generates none. Its route is /v1/embeddings.", NULL,
             "This model embeds texts; it ranks no documents. Its route is /v1/embeddings."},
        [TO_RANK] = {"This model ranks documents; it generates no text. Its route is /v1/rerank.",
                     "This model ranks documents; it embeds none. Its route is /v1/rerank.", NULL}};
    const char *pooling = icp_model_get_info(c->on->model)->pooling;
    enum purpose of_model = !pooling                       ? TO_GENERATE
                            : strcmp(pooling, "rank") != 0 ? TO_EMBED
                                                           : TO_RANK;
    const char *sentence = sentences[of_model][d->purpose];
    if (sentence) reply_error(error, 400, "unsupported", "model", "%s", sentence);
    return !sentence;
}

generation *generation_new(call *c, const dialect *d, json_object *body, size_t n_prompts) {
    if (!serves(c, d, &c->reply)) return NULL;
    generation *g = mem_zero(1, sizeof *g);
    if (!g) return reply_error(&c->reply, 503, NULL, NULL, "Out of memory."), NULL;
    g->call = c;
    g->dialect = d;
    g->body = json_object_get(body);
    g->n_prompts = n_prompts;
    g->created = time(NULL);
    make_id(g->id, sizeof g->id, d->id_prefix);
    size_t n_vocab = icp_model_get_info(c->on->model)->n_vocab;
    if (generate_opts_read(&g->opts, body, n_vocab, &c->reply) &&
        token_fields_read(&g->opts, body, c->on->model, &c->reply) &&
        grammar_fields_read(&g->opts, body, c->on->model, &c->reply) &&
        lora_fields_read(&g->opts, body, c->on, &c->reply)) {
        if (make_choices(g)) return g;
        reply_error(&c->reply, 503, NULL, NULL, "Out of memory.");
    }
    generation_free(&g);
    return NULL;
}

static void free_logprobs(logprobs *l) {
    for (int i = 0; i < N_LISTS; i++) buf_fini(&l->list[i]);
}

static void trace(const generation *g, const prompt *p, size_t n_output) {
    trace_log_add(g->call->server->trace, clock_now() - g->call->began, &g->space, p->ids.id,
                  p->ids.n, n_output);
}

void generation_free(generation **ref) {
    generation *g = *ref;
    if (!g) return;
    for (size_t i = 0; g->prompts && i < g->n_prompts; i++) {
        if (g->prompts[i].request) trace(g, &g->prompts[i], g->n_generated); /* was left */
        icp_request_free(&g->prompts[i].request);
        icp_tokens_free(&g->prompts[i].ids);
        mem_free(g->prompts[i].echo);
        free_logprobs(&g->prompts[i].logprobs);
        buf_fini(&g->prompts[i].listed);
    }
    for (size_t i = 0; g->choices && i < count_choices(g); i++) {
        output_fini(&g->choices[i]);
        icp_chat_parser_close(&g->choices[i].parser);
        free_logprobs(&g->choices[i].logprobs);
    }
    mem_free(g->prompts);
    mem_free(g->choices);
    if (g->dialect->free_own) g->dialect->free_own(g->own);
    generate_opts_fini(&g->opts);
    json_object_put(g->body);
    buf_fini(&g->out);
    mem_free(g);
    *ref = NULL;
}

/* ---- submission ------------------------------------------------------------------------------ */

/* Says that a prompt is too long, and which. */
static void refuse_long(const generation *g, const prompt *p, const char *why, reply *error) {
    size_t n_ctx = icp_engine_get_context(g->call->on->engine), i = (size_t)(p - g->prompts);
    const char *field = g->dialect->prompt_field;
    char param[40];
    snprintf(param, sizeof param, g->n_prompts > 1 ? "%s[%zu]" : "%s", field ? field : "", i);
    reply_context_exceeded(error, p->ids.n, n_ctx, field ? param : NULL, why);
}

/* The prompt must fit. More tokens than the context has room for are as many as it allows. */
static bool fit(const generation *g, const prompt *p, icp_request_opts *opts, reply *error) {
    size_t n_ctx = icp_engine_get_context(g->call->on->engine);
    opts->max_tokens = g->opts.max_tokens;
    if (opts->max_tokens < 0 && g->call->server->opts->max_tokens > 0)
        opts->max_tokens = g->call->server->opts->max_tokens;
    if (p->ids.n > n_ctx || (p->ids.n == n_ctx && opts->max_tokens != 0))
        return refuse_long(g, p, NULL, error), false;
    if (opts->max_tokens > 0 && (size_t)opts->max_tokens > n_ctx - p->ids.n) opts->max_tokens = -1;
    return true;
}

static bool echoes_logprobs(const generation *g) {
    return g->echo && g->opts.logprobs >= 0;
}

/* Submits one prompt: 0, ICP_EAGAIN when others must finish first, or another code with *error. */
static int submit(generation *g, prompt *p, reply *error) {
    icp_request_opts opts = g->opts.request;
    if (!fit(g, p, &opts, error)) return ICP_ELIMIT;
    opts.prompt = p->ids.id;
    opts.n_prompt = p->ids.n;
    opts.marks = g->marks.at;
    opts.n_marks = g->marks.n;
    opts.tenant = g->call->tenant;
    opts.from_text = p->from_text;
    opts.second = p->second;
    opts.logprobs = MAX(g->opts.logprobs, g->opts.prompt_logprobs);
    opts.prompt_logprobs = echoes_logprobs(g) || g->opts.prompt_logprobs >= 0;
    opts.wake = call_wake_arg;
    opts.wake_arg = g->call;
    icp_error err = {0};
    int rc = icp_submit(g->call->on->engine, &opts, &p->request, &err);
    if (rc == ICP_EAGAIN && g->n_submitted > g->n_done) return rc;
    if (rc == ICP_ELIMIT)
        refuse_long(g, p, err.text, error);
    else if (rc < 0)
        reply_icp_error(error, &err, NULL);
    return rc;
}

/* Submits as many prompts as the engine takes now. */
static void submit_more(generation *g, reply *error) {
    while (g->n_submitted < g->n_prompts) {
        prompt *p = &g->prompts[g->n_submitted];
        if (submit(g, p, error) < 0) return;
        /* The engine says nothing about the first token of a prompt: it has no probability. */
        if (echoes_logprobs(g)) g->dialect->add_logprob(g, &p->logprobs, p->ids.id[0], NULL);
        g->n_submitted++;
    }
    json_object_put(g->body);
    g->body = NULL;
}

static void begin(generation *g) {
    if (g->begun || !g->opts.stream) return;
    g->begun = true;
    g->dialect->stream(g, OUTPUT_BEGINS, NULL, NULL);
}

void generation_submit(generation *g) {
    call *c = g->call;
    const icp_request_opts *o = &g->opts.request;
    trace_log_space(c->server->trace, c->on->name, c->tenant, o->salt, !o->no_cache, &g->space);
    if (!c->conn->gone) submit_more(g, &c->reply);
    if (g->dialect->early && g->opts.stream && c->reply.n_ctx) { /* the stream tells of it */
        g->failure = c->reply;
        c->reply = (reply){0};
        begin(g);
        c->generation = g;
        return;
    }
    if (g->dialect->early && !c->reply.status && g->n_submitted) begin(g);
    if (c->reply.status || !g->n_submitted)
        generation_free(&g);
    else
        c->generation = g;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void begin_choice(generation *g, choice *c, const icp_usage *known) {
    c->begun = true;
    c->prompt->n_tokens = known->prompt_tokens;
    c->prompt->n_cached = known->cached_tokens;
    c->logprobs.offset = c->prompt->logprobs.offset;
    begin(g);
    if (g->opts.stream) g->dialect->stream(g, OUTPUT_CHOICE_BEGINS, c, NULL);
}

static void take_progress(generation *g, prompt *p, const icp_event *e) {
    choice *first = &g->choices[(size_t)(p - g->prompts) * (size_t)g->opts.request.n];
    if (!g->opts.stream || first->begun) return;
    p->n_tokens = e->usage.prompt_tokens;
    p->n_cached = e->usage.cached_tokens;
    p->n_ready = e->position;
    if (p->began == 0) p->began = clock_now();
    begin(g);
    g->dialect->stream(g, OUTPUT_PROGRESS, first, NULL);
}

static void take_text(generation *g, choice *c, const icp_event *e) {
    if (c->parser)
        answer_take(g, c, e);
    else
        output_text(g, c, ITEM_TEXT, e->text, e->text_len);
}

static void take_token(generation *g, choice *c, const icp_event *e) {
    if (!c->begun) begin_choice(g, c, &e->usage);
    g->n_generated++;
    if (g->opts.return_tokens) buf_printf(&c->tokens, "%s%d", c->tokens.len ? "," : "", e->token);
    if (g->opts.logprobs >= 0) g->dialect->add_logprob(g, &c->logprobs, e->token, e);
    take_text(g, c, e);
    output_flush(g, c);
}

static void take_finish(generation *g, choice *c, const icp_event *e) {
    if (!c->begun) begin_choice(g, c, &e->usage);
    take_text(g, c, e);
    c->finish = e->finish == ICP_FINISH_STUCK ? ICP_FINISH_LENGTH : e->finish; /* cut off, too */
    c->stop_index = e->stop_index;
    bool well = c->finish <= ICP_FINISH_LENGTH; /* else the error follows */
    if (well) output_end(g, c);
}

static void take_vector(generation *g, const prompt *p, const icp_event *e) {
    bool well = e->n_vector > 0;
    for (size_t i = 0; well && i < e->n_vector; i++) well = isfinite(e->vector[i]);
    if (well)
        g->dialect->take_vector(g, (size_t)(p - g->prompts), e);
    else
        reply_error(&g->failure, 500, "internal_error", NULL,
                    "The model made no numbers of this text: its weights are broken.");
}

static void take_done(generation *g, prompt *p, const icp_event *e) {
    g->usage.prompt_tokens += e->usage.prompt_tokens;
    g->usage.cached_tokens += e->usage.cached_tokens;
    g->usage.completion_tokens += e->usage.completion_tokens;
    g->usage.respelled += e->usage.respelled;
    if (!g->usage.miss || !g->usage.miss[0]) { /* the first prompt that has something to say */
        g->usage.miss = e->usage.miss;
        g->usage.why = e->usage.why;
    }
    g->usage.queued_s = MAX(g->usage.queued_s, e->usage.queued_s);
    g->usage.first_token_s = MAX(g->usage.first_token_s, e->usage.first_token_s);
    g->usage.total_s = MAX(g->usage.total_s, e->usage.total_s);
    icp_error err = {.code = e->error};
    bool failed = e->finish == ICP_FINISH_ERROR;
    if (!failed && g->dialect->take_vector) take_vector(g, p, e);
    icp_request_free(&p->request);
    g->n_done++;
    trace(g, p, e->usage.completion_tokens);
    if (failed)
        reply_icp_error(&g->failure, &err, NULL);
    else
        submit_more(g, &g->failure);
}

/* The engine tells as many as the greater of both wishes. */
static void limit_top(icp_event *e, int wanted) {
    e->n_top = MIN(e->n_top, MAX(wanted, 0));
}

static void take_prompt(generation *g, prompt *p, icp_event *e) {
    int n = e->n_top;
    limit_top(e, g->opts.prompt_logprobs);
    if (g->opts.prompt_logprobs >= 0) add_prompt_logprob(g, &p->listed, e);
    e->n_top = n;
    limit_top(e, g->opts.logprobs);
    if (echoes_logprobs(g)) g->dialect->add_logprob(g, &p->logprobs, e->token, e);
}

static void take_event(generation *g, prompt *p, icp_event *e) {
    size_t first = (size_t)(p - g->prompts) * (size_t)g->opts.request.n;
    switch (e->kind) {
    case ICP_EVENT_PROMPT:
        take_prompt(g, p, e);
        break;
    case ICP_EVENT_PROGRESS:
        take_progress(g, p, e);
        break;
    case ICP_EVENT_TOKEN:
        limit_top(e, g->opts.logprobs);
        take_token(g, &g->choices[first + (size_t)e->choice], e);
        break;
    case ICP_EVENT_FINISH:
        take_finish(g, &g->choices[first + (size_t)e->choice], e);
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
        begin(g);
        g->dialect->stream(g, OUTPUT_ENDS, NULL, NULL);
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
        g->dialect->put_whole(g, &r->body);
        r->status = 200;
        return;
    }
    reply_fini(r);
    *r = g->failure;
}

icp_usage generation_usage(const generation *g) {
    return g->usage;
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
