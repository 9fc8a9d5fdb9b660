/* A request as its caller sees it: events, waiting, cancelling, freeing. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "engine_internal.h"

/* ---- life ----------------------------------------------------------------------------------- */

/* Bytes that a request takes beside its tokens, which it gets when it runs, and its events. */
static size_t cost_of(const engine *e, const icp_request_opts *o) {
    enum { OVERHEAD = 2048, A_SEQUENCE = 512, A_STOP_BYTE = 5, AN_ALLOCATION = 16 };
    size_t n = (size_t)o->n, size = sizeof(request) + OVERHEAD;
    size += n * (sizeof(sequence) + A_SEQUENCE + (o->n_stop + 1) * sizeof(uint32_t));
    size += (o->n_prompt + o->n_stop_tokens) * sizeof(int32_t) + o->n_bias * sizeof *o->bias;
    for (size_t i = 0; i < o->n_stop; i++)
        size += A_STOP_BYTE * (strlen(o->stop[i]) + 1) + 3 * AN_ALLOCATION;
    size += e->limits.n_adapters * sizeof *o->adapter_scales + o->n_marks * sizeof *o->marks;
    for (size_t i = 0; i < o->n_bans; i++)
        size += sizeof *o->bans + o->bans[i].n * sizeof(int32_t) + AN_ALLOCATION;
    size += (o->tenant ? strlen(o->tenant) : 0) + (o->salt ? strlen(o->salt) : 0);
    if (o->embed) size += model_vector_room(e->model, o->n_prompt) * sizeof(float);
    return size;
}

static void set_limits(request *r, sequence *s) {
    const icp_request_opts *o = &r->opts;
    const request_limits *limits = &r->engine->limits;
    size_t room = request_most_tokens(limits) - o->n_prompt;
    s->n_tokens = o->n_prompt;
    s->max_new = o->max_tokens < 0 ? room : (size_t)o->max_tokens;
    s->hit_limit = MIN(MIN(o->max_hit, o->n_prompt - 1), s->rows_from);
}

static int follow_grammar(sequence *s, icp_grammar *g) {
    if (!g) return 0;
    s->text.begun = true; /* the text is the matcher's, to the first space */
    return matcher_new((grammar *)g, &s->matcher); /* its public name */
}

static int init_vector(request *r) {
    if (!r->opts.embed) return 0;
    const model *m = r->engine->model;
    size_t room = model_vector_room(m, r->opts.n_prompt);
    r->n_vector = model_vector_size(m, r->opts.n_prompt);
    r->vector = arena_alloc(&r->memory, room * sizeof *r->vector);
    return r->vector ? 0 : ICP_ENOMEM;
}

/* From where on rows of the prompt are wanted. */
static size_t first_row(const request *r, int choice) {
    const icp_request_opts *o = &r->opts;
    if (o->embed) return model_get_info(r->engine->model)->pools_last ? o->n_prompt - 1 : 0;
    bool shown = choice == 0 && (o->on_logits || o->prompt_logprobs);
    return shown && o->logits_from < o->n_prompt ? o->logits_from : SIZE_MAX;
}

static int init_sequences(request *r) {
    const icp_request_opts *o = &r->opts;
    size_t n_stop = stop_set_n(r->stops), n = (size_t)o->n;
    r->seq = arena_alloc(&r->memory, n * sizeof *r->seq);
    uint32_t *states = arena_alloc(&r->memory, n * (n_stop + 1) * sizeof *states);
    if (!r->seq || !states) return ICP_ENOMEM;
    memset(states, 0, n * (n_stop + 1) * sizeof *states);
    memset(r->seq, 0, n * sizeof *r->seq);
    for (int i = 0; i < o->n; i++) {
        sequence *s = &r->seq[i];
        *s = (sequence){.request = r, .choice = i, .rows_from = first_row(r, i)};
        set_limits(r, s);
        s->stop = (stop_scan){.set = r->stops, .state = states + (size_t)i * (n_stop + 1)};
        detok_init(&s->text, r->engine->tok, !o->keep_special);
        TRY(follow_grammar(s, o->grammar));
    }
    return 0;
}

/* One scale for each adapter, those that were not listed 0; none when all are. */
static int init_scales(request *r) {
    const icp_request_opts *o = &r->opts;
    const engine *e = r->engine;
    size_t n = e->limits.n_adapters, given = MIN(o->n_adapter_scales, n);
    const float *from = o->adapter_scales;
    if (!from) from = e->adapter_scales, given = n;
    bool any = false;
    for (size_t i = 0; from && i < given; i++) any |= from[i] != 0;
    if (!any) return 0;
    r->scales = arena_alloc(&r->memory, n * sizeof *r->scales);
    if (!r->scales) return ICP_ENOMEM;
    for (size_t i = 0; i < n; i++) r->scales[i] = i < given ? from[i] : 0;
    model_adapters_digest(e->model, r->scales, r->adapters);
    return 0;
}

static void free_matchers(request *r) {
    for (int i = 0; r->seq && i < r->opts.n; i++) matcher_free(&r->seq[i].matcher);
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

static int charge(engine *e, size_t size, icp_error *err) {
    if (ledger_take(e->ledger, size, LEDGER_NEW)) return 0;
    size_t room = ledger_room(e->ledger, LEDGER_NEW);
    if (size > room)
        return error_set(err, ICP_ELIMIT,
                         "the request needs %zu bytes, and all requests together may have %zu",
                         size, room);
    return error_set(err, ICP_EAGAIN,
                     "the requests that are there use all of the %zu bytes that they may have",
                     room);
}

int request_new(engine *e, const icp_request_opts *opts, request **out, icp_error *err) {
    size_t size = cost_of(e, opts);
    TRY(charge(e, size, err));
    request *r = mem_zero(1, sizeof *r);
    if (!r) {
        ledger_give(e->ledger, size);
        return error_set(err, ICP_ENOMEM, "out of memory");
    }
    r->engine = e;
    r->charged = size;
    r->n_open = opts->n;
    arena_init(&r->memory);
    r->memory.step = size - sizeof *r;
    int rc = request_copy_opts(opts, &r->memory, &r->opts);
    if (rc == 0) rc = stop_set_new(opts->stop, opts->n_stop, &r->memory, &r->stops);
    if (rc == 0) rc = init_scales(r);
    if (rc == 0) rc = init_vector(r);
    if (rc == 0) rc = init_sequences(r);
    if (rc == 0) rc = init_locks(r);
    if (rc < 0) {
        free_matchers(r);
        arena_fini(&r->memory);
        mem_free(r);
        ledger_give(e->ledger, size);
        return error_set(err, rc, "out of memory");
    }
    r->ledger = ledger_ref(e->ledger);
    atomic_init(&r->refs, 1);
    atomic_init(&r->cancelled, false);
    atomic_init(&r->stalled, false);
    *out = r;
    return 0;
}

void request_unref(request *r) {
    if (atomic_fetch_sub(&r->refs, 1) > 1) return;
    pthread_cond_destroy(&r->ready);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->callback);
    event_queue_fini(&r->events);
    free_matchers(r);
    arena_fini(&r->memory);
    ledger_give(r->ledger, r->charged);
    ledger_give_events(r->ledger, r->event_room);
    ledger_unref(r->ledger);
    mem_free(r);
}

bool request_set_prompt(request *r, const int32_t *prompt, size_t n) {
    icp_request_opts *o = &r->opts;
    const request_limits *limits = &r->engine->limits;
    size_t most = request_most_tokens(limits);
    size_t least_new = o->max_tokens < 0 ? 1 : (size_t)o->max_tokens;
    if (n + least_new > most) return false;
    if (n > o->n_prompt) {
        size_t size = n * sizeof *prompt;
        if (!ledger_take(r->ledger, size, LEDGER_RUN)) return false;
        int32_t *copy = arena_alloc(&r->memory, size);
        if (!copy) {
            ledger_give(r->ledger, size);
            return false;
        }
        r->charged += size;
        o->prompt = copy;
    }
    memcpy((int32_t *)o->prompt, prompt, n * sizeof *prompt); /* the request's own copy */
    o->n_prompt = n;
    for (int i = 0; i < o->n; i++) set_limits(r, &r->seq[i]);
    return true;
}

/* Within the tokens that changed nobody knows where a mark stands: before them is safe. */
void request_move_marks(request *r, size_t same, size_t n_in, size_t n_out) {
    icp_request_opts *o = &r->opts;
    icp_mark *mark = (icp_mark *)o->marks; /* the request's own copy */
    size_t n = 0;
    for (size_t i = 0; i < o->n_marks; i++) {
        size_t at = mark[i].position;
        at = at >= n_in ? at - n_in + n_out : MIN(at, same);
        if (at > 0) mark[n++] = (icp_mark){at, mark[i].ttl};
    }
    o->n_marks = n;
}

/* Tells the thread of what has changed. */
static void tell(engine *e, bool *what) {
    pthread_mutex_lock(&e->lock);
    *what = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void request_cancel(request *r) {
    atomic_store(&r->cancelled, true);
    tell(r->engine, &r->engine->cancelling);
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
                         .usage = r->usage,
                         .vector = r->error ? NULL : r->vector,
                         .n_vector = r->error ? 0 : r->n_vector};
    r->done_taken = true;
    return true;
}

/* What the caller has read makes room for others, and for the rest of its own. */
static bool make_room(request *r) {
    size_t freed = event_shrink(&r->events);
    r->event_room -= freed;
    ledger_give_events(r->ledger, freed);
    if (!atomic_load(&r->stalled) || event_unread(&r->events) > r->resume_at) return false;
    atomic_store(&r->stalled, false);
    return true;
}

bool request_next(request *r, icp_event *event) {
    pthread_mutex_lock(&r->lock);
    bool got = take(r, event), resumes = make_room(r);
    pthread_mutex_unlock(&r->lock);
    if (resumes) tell(r->engine, &r->engine->reading);
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

/* What the queue of events may grow by is taken beforehand, and what it did not need given back. */
static int put_event(request *r, const icp_event *event) {
    size_t before = r->events.in.cap, more = event_growth(&r->events, event);
    if (!ledger_take_events(r->ledger, more)) return ICP_ELIMIT;
    int rc = event_put(&r->events, event);
    size_t grown = r->events.in.cap - before;
    ledger_give_events(r->ledger, more - MIN(grown, more));
    r->event_room += MIN(grown, more);
    return rc;
}

int request_post(request *r, const icp_event *event) {
    pthread_mutex_lock(&r->lock);
    int rc = put_event(r, event);
    pthread_mutex_unlock(&r->lock);
    queue_dirty(r->engine, r);
    return rc;
}

bool request_is_behind(request *r) {
    if (atomic_load(&r->stalled)) return true;
    size_t most = ledger_unread_limit(r->ledger);
    pthread_mutex_lock(&r->lock);
    bool behind = event_unread(&r->events) > most;
    if (behind) {
        r->resume_at = most / 2;
        atomic_store(&r->stalled, true);
    }
    pthread_mutex_unlock(&r->lock);
    return behind;
}

void request_post_done(request *r) {
    pthread_mutex_lock(&r->lock);
    r->done = true;
    atomic_store(&r->stalled, false);
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
