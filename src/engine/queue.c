/* Where sequences stand: in the queue, among the running ones, or gone. */
#include <math.h>
#include <string.h>

#include "engine_internal.h"

/* ---- the two lists --------------------------------------------------------------------------- */

static void insert_waiting(engine *e, sequence *s) {
    sequence **at = &e->waiting;
    if (e->last_waiting && sequence_before(e->last_waiting, s)) at = &e->last_waiting->next;
    while (*at && sequence_before(*at, s)) at = &(*at)->next;
    s->next = *at;
    *at = s;
    if (!s->next) e->last_waiting = s;
}

static void remove_waiting(engine *e, sequence *s) {
    sequence *before = NULL;
    for (sequence *at = e->waiting; at && at != s; at = at->next) before = at;
    *(before ? &before->next : &e->waiting) = s->next;
    if (e->last_waiting == s) e->last_waiting = before;
    s->next = NULL;
}

static void insert_running(engine *e, sequence *s) {
    int at = e->n_running++;
    for (; at > 0 && sequence_before(s, e->running[at - 1]); at--)
        e->running[at] = e->running[at - 1];
    e->running[at] = s;
}

static void remove_running(engine *e, int i) {
    e->n_running--;
    memmove(&e->running[i], &e->running[i + 1], (size_t)(e->n_running - i) * sizeof *e->running);
}

static int find_running(const engine *e, const sequence *s) {
    int i = 0;
    while (i < e->n_running && e->running[i] != s) i++;
    return i < e->n_running ? i : -1;
}

/* ---- in ------------------------------------------------------------------------------------- */

int queue_add(engine *e, request *r) {
    for (int i = 0; i < r->opts.n; i++) insert_waiting(e, &r->seq[i]);
    TRY(request_open_space(e, r));
    miss_respell(e, r);
    return 0;
}

/* The first admission of a sequence gives it its tokens. */
static int start(sequence *s) {
    if (s->tokens) return 0;
    const icp_request_opts *o = &s->request->opts;
    size_t size = (o->n_prompt + s->max_new) * sizeof *s->tokens;
    if (!ledger_take(s->request->ledger, size, LEDGER_RUN)) return ICP_EAGAIN;
    s->tokens = mem_alloc(size);
    if (!s->tokens) {
        ledger_give(s->request->ledger, size);
        return ICP_ENOMEM;
    }
    s->charged = size;
    memcpy(s->tokens, o->prompt, o->n_prompt * sizeof *s->tokens);
    return 0;
}

static void note_admission(engine *e, request *r) {
    if (r->admitted) return;
    r->admitted = true;
    r->usage.queued_s = clock_now() - r->submitted_at;
    histogram_add(&e->stats.queue, r->usage.queued_s);
    pthread_mutex_lock(&e->lock);
    e->n_queued--;
    pthread_mutex_unlock(&e->lock);
}

/* When what it leaves behind is to be forgotten. */
static double keep_until(const request *r, double now) {
    if (r->opts.no_store) return 0;
    return r->opts.ttl > 0 ? now + r->opts.ttl : INFINITY;
}

int queue_admit(engine *e, sequence *s) {
    request *r = s->request;
    TRY(start(s));
    TRY(chain_open(e->cache, r->space, &s->chain));
    chain_keep_until(s->chain, keep_until(r, clock_now()));
    chain_sampled_from(s->chain, r->opts.n_prompt);
    remove_waiting(e, s);
    carry_begin(e, s);
    insert_running(e, s);
    note_admission(e, s->request);
    return 0;
}

/* ---- out ------------------------------------------------------------------------------------ */

/* running[i] goes back to the queue; it will be the first of its tenant's there. */
static void step_back(engine *e, int i) {
    sequence *s = e->running[i];
    remove_running(e, i);
    carry_end(s);
    chain_close(&s->chain); /* what was computed stays behind as cache */
    s->bypassed = SCHED_BYPASS;
    insert_waiting(e, s);
}

void queue_preempt(engine *e, int i) {
    step_back(e, i);
    e->stats.preemptions++;
}

void queue_stall(engine *e) {
    for (int i = e->n_running; i-- > 0;) {
        if (!request_is_behind(e->running[i]->request)) continue;
        step_back(e, i);
        e->stats.stalls++;
    }
}

bool queue_has_work(const engine *e) {
    const sequence *s = e->waiting;
    while (s && atomic_load(&s->request->stalled)) s = s->next;
    return e->n_running || s;
}

/* The chain of a sequence that is over: its wishes are heard, its time to live begins. */
static void end_chain(engine *e, sequence *s) {
    request *r = s->request;
    bool failed = r->error || !s->chain;
    carry_end(s);
    if (!failed && r->public) r->error = public_add(e, r, &s->chain);
    if (!failed && s->choice == 0 && !r->opts.no_store) pin_add_breakpoints(e, s);
    if (!failed && r->opts.pin > 0 && s->choice == 0) pin_add(e, s);
    if (!s->chain) return;
    chain_keep_until(s->chain, keep_until(r, clock_now()));
    if (r->opts.session_end) chain_retire(s->chain);
    chain_close(&s->chain);
}

static void leave(engine *e, sequence *s) {
    int i = find_running(e, s);
    if (i >= 0)
        remove_running(e, i);
    else
        remove_waiting(e, s);
    end_chain(e, s);
    mem_free(s->tokens);
    ledger_give(s->request->ledger, s->charged);
    s->charged = 0;
    s->tokens = NULL;
    buf_fini(&s->piece);
    buf_fini(&s->shown);
    buf_fini(&s->stop.held);
    s->gone = true;
    s->request->n_open--;
}

static void end_request(engine *e, request *r) {
    if (!r->admitted) {
        pthread_mutex_lock(&e->lock);
        e->n_queued--;
        pthread_mutex_unlock(&e->lock);
    }
    if (r->error) r->finish = ICP_FINISH_ERROR;
    r->usage.prompt_tokens = r->opts.n_prompt;
    r->usage.completion_tokens = r->n_output;
    r->usage.total_s = clock_now() - r->submitted_at;
    stats_count_end(&e->stats, r);
    cache_space_put(e->cache, &r->space);
    tenant_put(e, r->tenant);
    r->tenant = NULL;
    request_post_done(r);
}

void queue_settle(engine *e, request *r) {
    if (r->n_open == 0) return;
    for (int i = 0; i < r->opts.n; i++)
        if (r->seq[i].finished && !r->seq[i].gone) leave(e, &r->seq[i]);
    if (r->n_open == 0) end_request(e, r);
}

void queue_fail(engine *e, request *r, int error) {
    if (r->error || r->n_open == 0) return;
    r->error = error;
    for (int i = 0; i < r->opts.n; i++) r->seq[i].finished = true;
    queue_settle(e, r);
}

static bool wanted(const request *r, bool all) {
    return all || atomic_load(&r->cancelled);
}

/* Cancels one request that is to be cancelled; false: there is none. */
static bool cancel_one(engine *e, bool all) {
    request *r = NULL;
    for (int i = 0; !r && i < e->n_running; i++)
        if (wanted(e->running[i]->request, all)) r = e->running[i]->request;
    for (sequence *s = e->waiting; !r && s; s = s->next)
        if (wanted(s->request, all)) r = s->request;
    if (!r) return false;
    for (int i = 0; i < r->opts.n; i++)
        if (!r->seq[i].finished && sequence_end(&r->seq[i], ICP_FINISH_CANCELLED) < 0)
            r->error = ICP_ENOMEM;
    queue_settle(e, r);
    return true;
}

void queue_cancel(engine *e, bool all) {
    while (cancel_one(e, all)) continue;
}

/* ---- notifications --------------------------------------------------------------------------- */

void queue_dirty(engine *e, request *r) {
    if (r->dirty) return;
    r->dirty = true;
    r->next_dirty = e->dirty;
    e->dirty = r;
}

void queue_notify(engine *e) {
    while (e->dirty) {
        request *r = e->dirty;
        e->dirty = r->next_dirty;
        r->dirty = false;
        request_notify(r);
        if (r->done) request_unref(r);
    }
}
