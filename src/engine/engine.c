/* Opening, closing, submitting; and the thread. */
#include "engine_internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* ---- the thread ------------------------------------------------------------------------------ */

#define LULL 0.1 /* seconds without a request */

typedef struct mail { /* what callers left for the thread */
    request *incoming;
    errand *errands;
    bool cancelling, closing;
} mail;

static struct timespec time_of(double seconds) {
    double whole = floor(seconds);
    return (struct timespec){(time_t)whole, (long)((seconds - whole) * 1e9)};
}

static bool has_mail(const engine *e) {
    return e->incoming || e->errands || e->cancelling || e->reading || e->closing;
}

/* Until there is mail, or that time. */
static void sleep_until(engine *e, double until) {
    struct timespec deadline = time_of(isinf(until) ? 0 : until);
    int rc = 0;
    while (!has_mail(e) && rc != ETIMEDOUT)
        rc = isinf(until) ? pthread_cond_wait(&e->work, &e->lock)
                          : pthread_cond_timedwait(&e->work, &e->lock, &deadline);
}

/* In a lull, not between two requests of one conversation: what the kernel has begun must end. */
static void commit_ahead(engine *e) {
    sleep_until(e, clock_now() + LULL);
    for (bool more = true; more && !has_mail(e);) {
        pthread_mutex_unlock(&e->lock);
        more = cache_commit(e->cache);
        pthread_mutex_lock(&e->lock);
    }
}

/* Until there is mail, or something in the cache expires. */
static void sleep_on_it(engine *e) {
    if (e->commit_ahead) commit_ahead(e);
    sleep_until(e, MIN(cache_next_expiry(e->cache), pin_next(e)));
}

/* Takes the mail; sleeps until there is some when there is nothing to do. */
static mail collect(engine *e) {
    bool idle = !queue_has_work(e);
    pthread_mutex_lock(&e->lock);
    if (idle) sleep_on_it(e);
    mail found = {e->incoming, e->errands, e->cancelling, e->closing};
    e->errands = NULL;
    e->incoming = NULL;
    e->incoming_tail = &e->incoming;
    e->cancelling = false;
    e->reading = false;
    pthread_mutex_unlock(&e->lock);
    return found;
}

static void take_in(engine *e, request *r) {
    while (r) {
        request *next = r->next;
        int rc = queue_add(e, r);
        if (rc < 0) queue_fail(e, r, rc);
        r = next;
    }
}

static void *run(void *arg) {
    engine *e = arg;
    pthread_setname_np(pthread_self(), "icp-engine");
    for (bool closing = false; !closing;) {
        mail found = collect(e);
        double now = clock_now();
        closing = found.closing;
        pin_tick(e, now);
        cache_tick(e->cache, now);
        take_in(e, found.incoming);
        errand_run_all(e, found.errands);
        if (found.cancelling || closing) queue_cancel(e, closing);
        queue_stall(e);
        if (queue_has_work(e)) engine_step(e);
        stats_show(e);
        queue_notify(e);
    }
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Bytes of what is allocated once, at start. */
static size_t count_fixed(const engine *e, const engine_opts *opts, size_t n_vocab) {
    size_t n = (size_t)e->max_running, rows = n + (size_t)e->logit_rows,
           waits = (size_t)e->max_waits;
    size_t threads = (size_t)pool_threads(opts->pool);
    return sizeof *e +
           n * (sizeof *e->running + sizeof *e->views + sizeof *e->items + sizeof *e->spans +
                sizeof *e->planned) +
           rows * (sizeof *e->jobs + e->n_out * sizeof *e->logits) +
           waits * (sizeof *e->waits + sizeof *e->candidates) +
           n * carry_stride(model_get_info(e->model)) + ENGINE_TENANTS * sizeof *e->tenants +
           threads * sampler_scratch_size(n_vocab);
}

static void set_sizes(engine *e, const engine_opts *opts) {
    const model_info *info = model_get_info(e->model);
    e->limit = opts->cache_limit;
    e->least = opts->cache_least ? MIN(opts->cache_least, e->limit) : e->limit;
    e->most = MAX(opts->cache_most, e->limit);
    e->max_running = opts->max_parallel > 0 ? opts->max_parallel : ENGINE_PARALLEL;
    size_t stride = carry_stride(info);
    if (stride) {
        size_t most = e->least / ENGINE_STATES_SHARE / stride;
        e->max_running = (int)MIN((size_t)e->max_running, MAX(most, 1));
        e->states_size = stride * (size_t)e->max_running;
    }
    e->max_queued = opts->max_queued ? opts->max_queued : ENGINE_QUEUED;
    e->max_waits = (int)MIN(e->max_queued, INT16_MAX) + e->max_running;
    e->max_pause = opts->max_pause > 0 ? opts->max_pause : ENGINE_MAX_PAUSE;
    int most = (int)MIN(info->n_ctx, (size_t)INT16_MAX);
    e->chunk = info->causal ? MIN(opts->chunk > 0 ? opts->chunk : ENGINE_CHUNK, most) : most;
    e->n_out = info->n_out;
    size_t scratch = MIN((size_t)ENGINE_LOGITS_SIZE, e->least / ENGINE_LOGITS_SHARE);
    size_t rows = scratch / (e->n_out * sizeof(float));
    e->logit_rows = info->causal ? (int)MIN(MAX(rows, 1), (size_t)e->chunk) : most;
    e->fixed = count_fixed(e, opts, info->n_vocab);
}

/* Pages that are followed to tell what other limits would bring: for less than half a percent of
 * this one. */
static size_t curve_samples(size_t limit) {
    enum { LEAST = 64, MOST = 8192, SHARE = 1 << 14 };
    return MIN(MAX(limit / SHARE, (size_t)LEAST), (size_t)MOST);
}

/* The limit, less arrays and what is for requests, is the cache's. */
static int open_cache(engine *e, const engine_opts *opts, icp_error *err) {
    const model_info *info = model_get_info(e->model);
    size_t requests = MAX(e->least / ENGINE_REQUESTS_SHARE, (size_t)ENGINE_REQUESTS_LEAST);
    size_t others = e->fixed + requests;
    bool changes = e->least < e->most;
    if (e->least <= others)
        return error_set(err, ICP_ELIMIT,
                         "%zu bytes are not enough: requests may have %zu, and the engine's arrays "
                         "need %zu, before there is any cache",
                         e->least, requests, e->fixed);
    cache_opts co = {.page_size = carry_page_size(info),
                     .state_size = info->state_size,
                     .window = e->least < e->most ? 0 : info->window,
                     .limit = e->most - others,
                     .least = changes ? e->least - others : 0,
                     .no_reuse = e->no_cache,
                     .curve_samples = e->no_cache ? 0 : curve_samples(e->least),
                     .copy = model_copy_page,
                     .copy_arg = e->model};
    TRY(cache_open(&co, &e->cache, err));
    if (changes) cache_confine(e->cache, e->limit - others);
    if (ledger_new(requests, &e->ledger) < 0) return error_set(err, ICP_ENOMEM, "out of memory");
    cache_stats stats;
    cache_get_stats(e->cache, &stats);
    e->n_pages = changes ? cache_pages_within(e->cache, co.least) : stats.n_pages;
    e->state_pages = (info->state_size + stats.page_size - 1) / stats.page_size;
    e->quota = opts->tenant_quota ? opts->tenant_quota / stats.page_size : SIZE_MAX;
    if (e->quota == 0)
        return error_set(err, ICP_ELIMIT, "a tenant's quota of %zu bytes is less than a page (%zu)",
                         opts->tenant_quota, stats.page_size);
    e->limits = (request_limits){
        .n_vocab = info->n_vocab,
        .n_ctx = info->causal ? info->n_ctx : (size_t)e->chunk,
        .n_adapters = (size_t)info->n_adapters,
        .cache_tokens = cache_longest(e->cache, e->n_pages),
        .quota_tokens = e->quota == SIZE_MAX ? SIZE_MAX : cache_longest(e->cache, e->quota),
        .embeds = info->embeds};
    if (co.window) e->window_pages = (info->window + (size_t)e->chunk) / CACHE_PAGE + 2;
    return 0;
}

static int open_arrays(engine *e) {
    size_t n = (size_t)e->max_running, rows = n + (size_t)e->logit_rows;
    e->running = mem_zero(n, sizeof *e->running);
    e->views = mem_zero(n, sizeof *e->views);
    e->items = mem_zero(n, sizeof *e->items);
    e->spans = mem_zero(n, sizeof *e->spans);
    e->planned = mem_zero(n, sizeof *e->planned);
    e->jobs = mem_zero(rows, sizeof *e->jobs);
    e->tenants = mem_zero(ENGINE_TENANTS, sizeof *e->tenants);
    e->waits = mem_zero((size_t)e->max_waits, sizeof *e->waits);
    e->candidates = mem_zero((size_t)e->max_waits, sizeof *e->candidates);
    e->logits_size = rows * e->n_out * sizeof *e->logits;
    e->logits = mem_reserve(e->logits_size);
    if (e->states_size) e->states = mem_reserve(e->states_size);
    if (!e->running || !e->views || !e->items || !e->spans || !e->planned || !e->jobs ||
        !e->logits || (e->states_size && !e->states) || !e->tenants || !e->waits || !e->candidates)
        return ICP_ENOMEM;
    return model_reserve(e->model, e->chunk + e->max_running, (int)rows);
}

static int open_sampler(engine *e) {
    size_t n = MIN(tokenizer_n(e->tok), e->limits.n_vocab), n_ends = 0;
    int32_t *ends = mem_alloc(n * sizeof *ends);
    if (!ends) return ICP_ENOMEM;
    for (int32_t id = 0; (size_t)id < n; id++)
        if (tokenizer_ends(e->tok, id)) ends[n_ends++] = id;
    int rc = sampler_open(e->limits.n_vocab, pool_threads(e->pool), ends, n_ends, &e->sampler);
    mem_free(ends);
    return rc;
}

static void free_parts(engine *e) {
    sampler_close(&e->sampler);
    mem_unreserve(e->logits, e->logits_size);
    mem_unreserve(e->states, e->states_size);
    mem_free(e->candidates);
    mem_free(e->waits);
    mem_free(e->jobs);
    mem_free(e->planned);
    mem_free(e->spans);
    mem_free(e->items);
    mem_free(e->views);
    mem_free(e->running);
    if (e->cache) {
        pin_drop(e, NULL);
        cache_drop_all(e->cache);
        public_fini(e);
        tenant_fini(e);
    }
    cache_close(&e->cache);
    mem_free(e->tenants);
    ledger_unref(e->ledger);
    pthread_cond_destroy(&e->errand_done);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

static void init_locks(engine *e) {
    pthread_condattr_t attr;
    pthread_mutex_init(&e->lock, NULL); /* of the default kind: cannot fail; nor can the others */
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, &attr);
    pthread_cond_init(&e->errand_done, &attr);
    pthread_condattr_destroy(&attr);
}

int engine_open(const engine_opts *opts, engine **out, icp_error *err) {
    engine *e = mem_zero(1, sizeof *e);
    if (!e) return error_set(err, ICP_ENOMEM, "out of memory");
    e->model = opts->model;
    e->tok = opts->tok;
    e->pool = opts->pool;
    e->adapter_scales = opts->adapter_scales;
    /* What sees the tokens after it, too, is no prefix of another text. */
    e->no_cache = opts->no_cache || !model_get_info(opts->model)->causal;
    e->commit_ahead = opts->commit_ahead;
    e->incoming_tail = &e->incoming;
    init_locks(e);
    set_sizes(e, opts);
    int rc = open_cache(e, opts, err);
    if (rc < 0) goto failed;
    rc = open_arrays(e);
    if (rc == 0) rc = open_sampler(e);
    if (rc < 0) {
        error_set(err, rc, "no memory for the engine's arrays");
        goto failed;
    }
    stats_show(e);
    if (pthread_create(&e->thread, NULL, run, e)) {
        rc = error_set(err, ICP_EAGAIN, "no thread can be started");
        goto failed;
    }
    *out = e;
    return 0;
failed:
    free_parts(e);
    return rc;
}

void engine_close(engine **ep) {
    engine *e = *ep;
    *ep = NULL;
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    free_parts(e);
}

size_t engine_get_context(const engine *e) {
    return request_most_tokens(&e->limits);
}

/* ---- submitting ------------------------------------------------------------------------------ */

/* Hands r to the thread, unless too many wait. */
static bool enqueue(engine *e, request *r) {
    pthread_mutex_lock(&e->lock);
    bool room = e->n_queued < e->max_queued;
    if (room) {
        e->n_queued++;
        r->arrival = e->n_requests++;
        atomic_fetch_add(&r->refs, 1);
        *e->incoming_tail = r;
        e->incoming_tail = &r->next;
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    return room;
}

static int submit(engine *e, const icp_request_opts *opts, bool public, request **out,
                  icp_error *err) {
    request *r;
    TRY(request_check(opts, &e->limits, err));
    TRY(request_new(e, opts, &r, err));
    r->submitted_at = clock_now();
    r->usage.miss = "";
    r->public = public;
    if (!enqueue(e, r)) {
        request_unref(r);
        return error_set(err, ICP_EAGAIN, "%zu requests are waiting already", e->max_queued);
    }
    *out = r;
    return 0;
}

int engine_submit(engine *e, const icp_request_opts *opts, request **out, icp_error *err) {
    return submit(e, opts, false, out, err);
}

int engine_share(engine *e, const int32_t *tokens, size_t n, icp_error *err) {
    if (n < CACHE_PAGE)
        return error_set(err, ICP_EINVALID, "a public prefix of %zu tokens is shorter than %d", n,
                         CACHE_PAGE);
    if (e->no_cache) return 0;
    icp_request_opts opts;
    icp_event event = {.kind = ICP_EVENT_TOKEN};
    request *r;
    icp_request_opts_init(&opts);
    opts.prompt = tokens;
    opts.n_prompt = e->window_pages ? n - n % CACHE_PAGE : n; /* whole pages are shared */
    opts.max_tokens = 0;
    TRY(submit(e, &opts, true, &r, err));
    while (event.kind != ICP_EVENT_DONE)
        if (request_wait(r, -1)) request_next(r, &event);
    request_free(&r);
    return event.error ? error_set(err, event.error, "%s", icp_strerror(event.error)) : 0;
}
