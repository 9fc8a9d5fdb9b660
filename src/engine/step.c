/* One step: plan, make room, run the model, publish, draw, tell.
 *
 *   describe ─▶ sched_plan ─┬─ ADMIT ───▶ chain_open, match ──┐
 *       ▲                   ├─ PREEMPT ─▶ chain_close ────────┤
 *       │                   └─ RUN ─────▶ match: found more? ─┤ no ─▶ forward
 *       └─────────────────────────────────────────────────────┘
 *
 * The loop ends: each turn admits (up to max_running), or preempts (after which nothing is admitted
 * in this step), or gives up what a breakpoint holds, or makes some hit longer. */
#include "engine_internal.h"

/* ---- planning ------------------------------------------------------------------------------- */

static size_t ready(const sequence *s) {
    return s->chain ? chain_len(s->chain) : 0;
}

/* How much of its tokens a sequence may take from the cache: what its request allows, and anyhow
 * whatever it had before a preemption; never the newest token, whose logits are wanted. */
static size_t hit_limit(const sequence *s) {
    return MIN(MAX(s->hit_limit, s->high), s->n_tokens - 1);
}

static sched_seq describe(const sequence *s) {
    const request *r = s->request;
    size_t base = r->space ? cache_space_base(r->space) / CACHE_PAGE : 0;
    return (sched_seq){.tokens = s->tokens ? s->tokens : r->opts.prompt,
                       .n_tokens = s->n_tokens,
                       .n_ready = ready(s),
                       .n_pages = s->chain ? chain_n_pages(s->chain) : base,
                       .n_behind = s->chain ? chain_n_behind(s->chain) : 0,
                       .tenant = r->space && !r->public ? r->tenant->slot : -1,
                       .hit_limit = hit_limit(s),
                       .rows_from = s->rows_from,
                       .whole = !model_get_info(r->engine->model)->causal,
                       .stop = s->state ? carry_stop(s) : 0,
                       /* a sequence without a namespace has one of its own */
                       .space = r->space ? (uintptr_t)r->space : (uintptr_t)s};
}

/* Leading tokens up to n are ready; those that are so for the first time are counted. */
static void note_ready(engine *e, sequence *s, size_t n, bool from_cache) {
    size_t n_prompt = s->request->opts.n_prompt;
    size_t before = MIN(s->high, n_prompt), now = MIN(n, n_prompt);
    if (n <= s->high) return;
    s->high = n;
    if (from_cache) s->n_cached += now - before;
    if (before == n_prompt || now < n_prompt) return;
    stats_count_prompt(&e->stats, s);
    if (s->choice == 0) chain_asked(s->chain, n_prompt, s->n_cached);
}

/* Looks for more of s in the cache. */
static bool match(engine *e, sequence *s) {
    size_t before = ready(s), limit = hit_limit(s);
    s->stale = false;
    if (before >= limit) return false;
    size_t now = chain_match(s->chain, s->tokens, s->n_tokens, limit);
    note_ready(e, s, now, true);
    return now > before;
}

/* Before a prefill is computed, and when its owner is through, the cache is asked once more. */
static bool match_more(engine *e) {
    bool more = false;
    for (int i = 0; i < e->n_running; i++) {
        sequence *s = e->running[i];
        if (s->n_tokens - ready(s) == 1) continue;
        if (e->items[i].owner >= 0)
            s->stale = true;
        else if (e->items[i].n_tokens > 0 || s->stale)
            more |= match(e, s);
    }
    return more;
}

/* ---- the queue ------------------------------------------------------------------------------ */

/* How much of a waiting sequence is cached. A few look in one step, and again after a while: what
 * they knew before is near enough. */
static size_t ask(engine *e, sequence *s, int *asking) {
    bool due = s->asked == 0 || e->n_plans - s->asked >= ENGINE_PROBE_AGAIN;
    if (due && *asking > 0) {
        const request *r = s->request;
        const int32_t *tokens = s->tokens ? s->tokens : r->opts.prompt;
        s->n_hit = r->space ? cache_probe(e->cache, r->space, tokens, hit_limit(s)) : 0;
        s->asked = e->n_plans;
        --*asking;
    }
    return s->n_hit;
}

/* Those that may be picked: of each request the first sequence that waits. */
static void list_waiting(engine *e) {
    int asking = ENGINE_PROBES;
    const request *last = NULL;
    e->n_waits = 0;
    for (sequence *s = e->waiting; s && e->n_waits < e->max_waits; s = s->next) {
        const request *r = s->request;
        if (r == last || !r->tenant || atomic_load(&r->stalled)) continue;
        last = r;
        e->candidates[e->n_waits] = s;
        e->waits[e->n_waits++] = (sched_wait){.tenant = r->tenant->slot,
                                              .priority = r->opts.priority,
                                              .n_tokens = s->n_tokens,
                                              .n_hit = ask(e, s, &asking),
                                              .bypassed = s->bypassed};
    }
}

static int pick(engine *e) {
    if (!e->waiting || e->n_running == e->max_running) return -1;
    list_waiting(e);
    return e->n_waits ? sched_pick(e->waits, e->n_waits, e->tenants, e->n_tenants) : -1;
}

/* False: nothing more can be admitted in this step. */
static bool admit(engine *e, int picked) {
    sequence *s = e->candidates[picked];
    int rc = queue_admit(e, s);
    if (rc == ICP_EAGAIN && (e->n_running > 0 || pin_yield(e))) return false;
    if (rc < 0) {
        queue_fail(e, s->request, rc);
        return true;
    }
    sched_admitted(e->waits, e->n_waits, picked, e->tenants);
    for (int i = 0; i < e->n_waits; i++) e->candidates[i]->bypassed = e->waits[i].bypassed;
    match(e, s);
    return true;
}

static void note_room(engine *e) {
    for (const tenant *t = e->first_tenant; t; t = t->next)
        e->tenants[t->slot].pages = cache_obtainable(e->cache, t->owner);
}

/* Prompt tokens of a step in which somebody decodes. Where prompts are whole, nobody does. */
static int chunk_mixed(const engine *e) {
    if (!model_get_info(e->model)->causal) return e->chunk;
    return sched_chunk(&e->pace, ENGINE_PAUSE_SHARE * e->max_pause, ENGINE_CHUNK_LEAST, e->chunk);
}

/* What breakpoints hold is the first to go when requests lack pages: those of s's tenant, or when
 * all pages are short, anybody's. */
static bool make_way(engine *e, const sequence *s) {
    size_t needed = s->n_tokens / CACHE_PAGE + 1;
    bool anybody = e->quota == SIZE_MAX || cache_obtainable(e->cache, NULL) < needed;
    return pin_yield_breakpoint(e, anybody ? NULL : s->request->tenant);
}

/* Whether running sequence i stands still for want of a page. */
static bool starves(const engine *e, int i) {
    const sequence *s = e->running[i];
    const request *r = s->request;
    if (e->items[i].n_tokens > 0 || e->items[i].owner >= 0) return false;
    if (ready(s) < chain_n_pages(s->chain) * CACHE_PAGE) return false;
    bool over_quota = r->space && !r->public && e->tenants[r->tenant->slot].pages == 0;
    return over_quota || cache_obtainable(e->cache, NULL) < (size_t)e->n_running;
}

/* Whether the plan is better without what a breakpoint held. picked: who might have been admitted.
 */
static bool make_way_for_all(engine *e, int picked) {
    if (picked >= 0 && make_way(e, e->candidates[picked])) return true;
    for (int i = 0; i < e->n_running; i++)
        if (starves(e, i) && make_way(e, e->running[i])) return true;
    return false;
}

static void plan(engine *e) {
    bool admitting = true;
    e->n_plans++;
    for (;;) {
        int victim = -1, picked = admitting ? pick(e) : -1;
        sched_state state = {.running = e->views,
                             .n_running = e->n_running,
                             .max_running = e->max_running,
                             .chunk = e->chunk,
                             .chunk_mixed = chunk_mixed(e),
                             .logit_rows = e->logit_rows,
                             .edges = e->states != NULL,
                             .page_tokens = CACHE_PAGE,
                             .pages = cache_obtainable(e->cache, NULL),
                             .window_pages = e->window_pages,
                             .tenants = e->tenants};
        note_room(e);
        for (int i = 0; i < e->n_running; i++) e->views[i] = describe(e->running[i]);
        sched_seq next;
        if (picked >= 0) {
            next = describe(e->candidates[picked]);
            state.next = &next;
        }
        switch (sched_plan(&state, e->items, &victim)) {
        case SCHED_ADMIT:
            admitting = admit(e, picked);
            break;
        case SCHED_PREEMPT:
            if (make_way(e, e->running[victim])) break;
            queue_preempt(e, victim);
            admitting = false;
            break;
        case SCHED_RUN:
            if (!make_way_for_all(e, picked) && !match_more(e)) return;
        }
    }
}

/* ---- computing ------------------------------------------------------------------------------ */

/* Rows of logits for tokens [from, end) of s: from rows_from on, or of its newest token. */
static int count_rows(const sequence *s, size_t from, size_t end) {
    if (s->rows_from < end) return (int)(end - MAX(s->rows_from, from));
    return end == s->n_tokens && s->max_new > 0;
}

/* Turns the plan into spans; returns how many, or why there is none. A sequence that cannot have
 * its pages after all stands back in this step. */
static int build_spans(engine *e) {
    int n = 0, rc = 0;
    for (int i = 0; i < e->n_running; i++) {
        sequence *s = e->running[i];
        size_t from = ready(s), end = from + (size_t)e->items[i].n_tokens;
        if (end == from) continue;
        int reserved = chain_reserve(s->chain, end);
        if (reserved < 0) {
            rc = reserved;
            continue;
        }
        stats_explain(e, s);
        e->planned[n] = s;
        e->spans[n++] = (model_span){.tokens = s->tokens + from,
                                     .n_tokens = (int)(end - from),
                                     .pos = from,
                                     .pages = chain_pages(s->chain),
                                     .state = s->state,
                                     .n_logits = count_rows(s, from, end),
                                     .second = s->request->opts.second,
                                     .scales = s->request->scales};
    }
    return n ? n : rc;
}

static void add_job(sequence *s, float *row, sample_job *job) {
    const icp_request_opts *o = &s->request->opts;
    *job = (sample_job){.row = row,
                        .opts = o,
                        .tokens = s->tokens,
                        .n_prompt = o->n_prompt,
                        .n_tokens = s->n_tokens,
                        .choice = s->choice,
                        .known = -1,
                        .owner = s};
}

/* The row after token `at` of s: to whom it may concern. Returns the number of jobs added. */
static int use_row(engine *e, sequence *s, size_t at, float *row, sample_job *job) {
    const icp_request_opts *o = &s->request->opts;
    if (o->embed && at >= s->rows_from)
        model_pool(e->model, row, at, o->n_prompt, s->request->vector);
    if (at >= s->rows_from && at < o->n_prompt && o->on_logits)
        request_show_logits(s->request, at, row, e->limits.n_vocab);
    if (at + 1 == s->n_tokens && s->max_new > 0) {
        add_job(s, row, job);
        job->matcher = s->matcher;
        job->ban_ends = s->n_tokens - o->n_prompt < (size_t)o->min_tokens;
        job->logprobs = o->logprobs >= 0;
        return 1;
    }
    if (at < s->rows_from || at + 1 >= o->n_prompt || !o->prompt_logprobs) return 0;
    add_job(s, row, job);
    job->position = at + 1;
    job->known = s->tokens[at + 1];
    job->logprobs = true;
    return 1;
}

/* Publishes what the model wrote; returns the number of sampling jobs. */
static int harvest(engine *e, int n_spans) {
    float *row = e->logits;
    int n_jobs = 0;
    for (int i = 0; i < n_spans; i++) {
        sequence *s = e->planned[i];
        const model_span *span = &e->spans[i];
        size_t end = span->pos + (size_t)span->n_tokens;
        int n_logits = span->n_logits;
        chain_publish(s->chain, s->tokens + span->pos, (size_t)span->n_tokens);
        note_ready(e, s, end, false);
        if (s->state) carry_leave(s, span->pos);
        for (int k = n_logits; k > 0; k--, row += e->n_out)
            n_jobs += use_row(e, s, end - (size_t)k, row, &e->jobs[n_jobs]);
        if (s->rows_from < end) s->rows_from = end < s->request->opts.n_prompt ? end : SIZE_MAX;
    }
    return n_jobs;
}

static void run_job(void *arg, int tile, int thread) {
    engine *e = arg;
    sampler_run(e->sampler, &e->jobs[tile], thread);
}

/* ---- telling -------------------------------------------------------------------------------- */

static int post_prompt(const sample_job *job, sequence *s) {
    icp_event event = {.kind = ICP_EVENT_PROMPT,
                       .token = job->token,
                       .position = job->position,
                       .chosen = job->chosen,
                       .rank = job->rank,
                       .n_top = job->n_top,
                       .stop_index = -1};
    for (int i = 0; i < job->n_top; i++) event.top[i] = job->top[i];
    return request_post(s->request, &event);
}

static void settle_job(engine *e, const sample_job *job) {
    sequence *s = job->owner;
    if (s->finished) return;
    int rc = job->token;
    if (rc >= 0 && job->known >= 0) {
        rc = post_prompt(job, s);
    } else if (rc >= 0) {
        rc = sequence_accept(s, job);
        if (rc >= 0) stats_count_output(&e->stats, s);
        if (rc >= 0 && s->request->tenant) e->tenants[s->request->tenant->slot].credit--;
    } else if (rc == ICP_ENOTFOUND) {
        rc = sequence_stuck(s);
    }
    if (rc < 0) queue_fail(e, s->request, rc);
}

/* Tells that so much of the prompt is there, once; where there is no memory for it, not. */
static void tell_progress(sequence *s, size_t position) {
    const request *r = s->request;
    size_t n = MIN(position, r->opts.n_prompt);
    if (!r->opts.progress || s->choice != 0 || s->gone || n < s->progress) return;
    s->progress = n + 1;
    icp_event event = {.kind = ICP_EVENT_PROGRESS,
                       .position = n,
                       .usage = {.prompt_tokens = r->opts.n_prompt, .cached_tokens = s->n_cached},
                       .stop_index = -1};
    request_post(s->request, &event);
}

/* Requests that want only their prompt end when it is there. */
static void settle_span(engine *e, sequence *s) {
    if (s->gone) return;
    if (s->max_new == 0 && ready(s) == s->n_tokens && sequence_end(s, ICP_FINISH_LENGTH) < 0)
        queue_fail(e, s->request, ICP_ENOMEM);
    queue_settle(e, s->request);
}

/* Nobody could have the pages that were planned: make room, or give the last one up. */
static void make_room(engine *e, int rc) {
    if (pin_yield(e)) return;
    if (e->n_running > 1)
        queue_preempt(e, e->n_running - 1);
    else if (e->n_running == 1)
        queue_fail(e, e->running[0]->request, rc < 0 ? rc : ICP_EBUG);
}

/* Prompt tokens in the plan: those of sequences that do not decode. */
static int count_prefill(const engine *e, int n_spans) {
    int n = 0;
    for (int i = 0; i < n_spans; i++)
        if (e->planned[i]->n_tokens - ready(e->planned[i]) > 1) n += e->spans[i].n_tokens;
    return n;
}

void engine_step(engine *e) {
    double began = clock_now();
    plan(e);
    int n_spans = build_spans(e);
    if (n_spans <= 0) {
        make_room(e, n_spans);
        return;
    }
    int n_prefill = count_prefill(e, n_spans);
    for (int i = 0; i < n_spans; i++) tell_progress(e->planned[i], e->spans[i].pos);
    model_forward(e->model, e->spans, n_spans, e->logits);
    e->stats.steps++;
    int n_jobs = harvest(e, n_spans);
    for (int i = 0; i < n_spans; i++)
        tell_progress(e->planned[i], e->spans[i].pos + (size_t)e->spans[i].n_tokens);
    if (n_jobs) pool_run(e->pool, n_jobs, run_job, e);
    for (int i = 0; i < n_jobs; i++) settle_job(e, &e->jobs[i]);
    for (int i = 0; i < n_spans; i++) settle_span(e, e->planned[i]);
    sched_note(&e->pace, n_prefill, clock_now() - began);
}
