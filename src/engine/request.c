/* A request as its caller sees it: events, waiting, cancelling, freeing. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "engine_internal.h"

/* ---- life ----------------------------------------------------------------------------------- */

static int init_sequences(request *r) {
    const icp_request_opts *o = &r->opts;
    size_t n_stop = stop_set_n(r->stops), n = (size_t)o->n;
    r->seq = arena_alloc(&r->memory, n * sizeof *r->seq);
    uint32_t *states = arena_alloc(&r->memory, n * (n_stop + 1) * sizeof *states);
    if (!r->seq || !states) return ICP_ENOMEM;
    memset(states, 0, n * (n_stop + 1) * sizeof *states);
    const request_limits *limits = &r->engine->limits;
    size_t room = MIN(limits->n_ctx, limits->cache_tokens) - o->n_prompt;
    for (int i = 0; i < o->n; i++) {
        sequence *s = &r->seq[i];
        bool shown = i == 0 && (o->on_logits || o->prompt_logprobs);
        *s = (sequence){.request = r, .choice = i, .n_tokens = o->n_prompt};
        s->max_new = o->max_tokens < 0 ? room : (size_t)o->max_tokens;
        s->rows_from = shown && o->logits_from < o->n_prompt ? o->logits_from : SIZE_MAX;
        s->hit_limit = MIN(MIN(o->max_hit, o->n_prompt - 1), s->rows_from);
        s->stop = (stop_scan){.set = r->stops, .state = states + (size_t)i * (n_stop + 1)};
        detok_init(&s->text, r->engine->tok, !o->keep_special);
    }
    return 0;
}

static int init_locks(request *r) {
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr)) return ICP_ENOMEM;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&r->ready, &attr);
    pthread_condattr_destroy(&attr);
    if (rc) return ICP_ENOMEM;
    pthread_mutex_init(&r->lock, NULL); /* of the default kind: cannot fail */
    pthread_mutex_init(&r->callback, NULL);
    return 0;
}

int request_new(engine *e, const icp_request_opts *opts, request **out) {
    request *r = mem_zero(1, sizeof *r);
    if (!r) return ICP_ENOMEM;
    r->engine = e;
    r->n_open = opts->n;
    arena_init(&r->memory);
    int rc = request_copy_opts(opts, &r->memory, &r->opts);
    if (rc == 0) rc = stop_set_new(opts->stop, opts->n_stop, &r->memory, &r->stops);
    if (rc == 0) rc = init_sequences(r);
    if (rc == 0) rc = init_locks(r);
    if (rc < 0) {
        arena_fini(&r->memory);
        mem_free(r);
        return rc;
    }
    atomic_init(&r->refs, 1);
    atomic_init(&r->cancelled, false);
    *out = r;
    return 0;
}

void request_unref(request *r) {
    if (atomic_fetch_sub(&r->refs, 1) > 1) return;
    pthread_cond_destroy(&r->ready);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->callback);
    event_queue_fini(&r->events);
    arena_fini(&r->memory);
    mem_free(r);
}

void request_cancel(request *r) {
    engine *e = r->engine;
    atomic_store(&r->cancelled, true);
    pthread_mutex_lock(&e->lock);
    e->cancelling = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void request_free(request **rp) {
    request *r = *rp;
    *rp = NULL;
    if (!r) return;
    pthread_mutex_lock(&r->callback); /* waits for a callback to end; none begins afterwards */
    r->detached = true;
    pthread_mutex_unlock(&r->callback);
    pthread_mutex_lock(&r->lock);
    bool done = r->done;
    pthread_mutex_unlock(&r->lock);
    if (!done) request_cancel(r);
    request_unref(r);
}

/* ---- the reader's side ---------------------------------------------------------------------- */

static bool take(request *r, icp_event *event) {
    if (event_take(&r->events, event)) return true;
    if (!r->done || r->done_taken) return false;
    *event = (icp_event){.kind = ICP_EVENT_DONE,
                         .text = "",
                         .stop_index = -1,
                         .finish = r->finish,
                         .error = r->error,
                         .usage = r->usage};
    r->done_taken = true;
    return true;
}

bool request_next(request *r, icp_event *event) {
    pthread_mutex_lock(&r->lock);
    bool got = take(r, event);
    pthread_mutex_unlock(&r->lock);
    return got;
}

static struct timespec deadline_after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = floor(seconds);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((seconds - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

bool request_wait(request *r, double seconds) {
    enum { FOR_EVER = 1000000000 }; /* seconds that still fit a timespec; also for a NaN */
    struct timespec until = deadline_after(seconds >= 0 && seconds < FOR_EVER ? seconds : FOR_EVER);
    int rc = 0;
    pthread_mutex_lock(&r->lock);
    while (event_queue_empty(&r->events) && !r->done && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&r->ready, &r->lock, &until);
    bool there = !event_queue_empty(&r->events) || (r->done && !r->done_taken);
    pthread_mutex_unlock(&r->lock);
    return there;
}

/* ---- the engine's side ---------------------------------------------------------------------- */

int request_post(request *r, const icp_event *event) {
    pthread_mutex_lock(&r->lock);
    int rc = event_put(&r->events, event);
    pthread_mutex_unlock(&r->lock);
    queue_dirty(r->engine, r);
    return rc;
}

void request_post_done(request *r) {
    pthread_mutex_lock(&r->lock);
    r->done = true;
    pthread_mutex_unlock(&r->lock);
    queue_dirty(r->engine, r);
}

void request_notify(request *r) {
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->ready);
    pthread_mutex_unlock(&r->lock);
    if (!r->opts.wake) return;
    pthread_mutex_lock(&r->callback);
    if (!r->detached) r->opts.wake(r->opts.wake_arg);
    pthread_mutex_unlock(&r->callback);
}

void request_show_logits(request *r, size_t position, const float *row, size_t n_vocab) {
    pthread_mutex_lock(&r->callback);
    if (!r->detached) r->opts.on_logits(r->opts.on_logits_arg, position, row, n_vocab);
    pthread_mutex_unlock(&r->callback);
}
