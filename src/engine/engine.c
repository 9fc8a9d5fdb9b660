/* Opening, closing, submitting; and the thread. */
#include "engine_internal.h"

#include <string.h>

/* ---- the thread ------------------------------------------------------------------------------ */

typedef struct errands { /* what callers left for the thread */
    request *incoming;
    bool cancelling, closing;
} errands;

/* Takes the errands; sleeps until there are some when no sequence is there. */
static errands collect(engine *e) {
    bool idle = !e->n_running && !e->waiting;
    pthread_mutex_lock(&e->lock);
    while (idle && !e->incoming && !e->cancelling && !e->closing)
        pthread_cond_wait(&e->work, &e->lock);
    errands found = {e->incoming, e->cancelling, e->closing};
    e->incoming = NULL;
    e->incoming_tail = &e->incoming;
    e->cancelling = false;
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
        errands found = collect(e);
        closing = found.closing;
        take_in(e, found.incoming);
        if (found.cancelling || closing) queue_cancel(e, closing);
        if (e->n_running || e->waiting) engine_step(e);
        stats_show(e);
        queue_notify(e);
    }
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_cache(engine *e, const engine_opts *opts, icp_error *err) {
    const model_info *info = model_get_info(e->model);
    cache_opts co = {.page_size = info->page_size,
                     .limit = opts->cache_limit,
                     .no_reuse = opts->no_cache,
                     .copy = model_copy_page,
                     .copy_arg = e->model};
    TRY(cache_open(&co, &e->cache, err));
    cache_stats stats;
    cache_get_stats(e->cache, &stats);
    e->limits = (request_limits){
        .n_vocab = info->n_vocab, .n_ctx = info->n_ctx, .cache_tokens = stats.n_pages * CACHE_PAGE};
    return 0;
}

static void set_sizes(engine *e, const engine_opts *opts) {
    e->max_running = opts->max_parallel > 0 ? opts->max_parallel : ENGINE_PARALLEL;
    e->max_queued = opts->max_queued ? opts->max_queued : ENGINE_QUEUED;
    int most = (int)MIN(e->limits.n_ctx, (size_t)INT16_MAX);
    e->chunk = MIN(opts->chunk > 0 ? opts->chunk : ENGINE_CHUNK, most);
    e->chunk_mixed = MIN(e->chunk, ENGINE_CHUNK_MIXED);
    size_t rows = ENGINE_LOGITS_SIZE / (e->limits.n_vocab * sizeof(float));
    e->logit_rows = (int)MIN(MAX(rows, 64), (size_t)e->chunk);
}

static int open_arrays(engine *e) {
    size_t n = (size_t)e->max_running, rows = n + (size_t)e->logit_rows;
    e->running = mem_zero(n, sizeof *e->running);
    e->views = mem_zero(n, sizeof *e->views);
    e->items = mem_zero(n, sizeof *e->items);
    e->spans = mem_zero(n, sizeof *e->spans);
    e->planned = mem_zero(n, sizeof *e->planned);
    e->jobs = mem_zero(rows, sizeof *e->jobs);
    e->logits_size = rows * e->limits.n_vocab * sizeof *e->logits;
    e->logits = mem_reserve(e->logits_size);
    if (!e->running || !e->views || !e->items || !e->spans || !e->planned || !e->jobs || !e->logits)
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
    mem_free(e->jobs);
    mem_free(e->planned);
    mem_free(e->spans);
    mem_free(e->items);
    mem_free(e->views);
    mem_free(e->running);
    cache_close(&e->cache);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

int engine_open(const engine_opts *opts, engine **out, icp_error *err) {
    engine *e = mem_zero(1, sizeof *e);
    if (!e) return error_set(err, ICP_ENOMEM, "out of memory");
    e->model = opts->model;
    e->tok = opts->tok;
    e->pool = opts->pool;
    e->no_cache = opts->no_cache;
    e->incoming_tail = &e->incoming;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    int rc = open_cache(e, opts, err);
    if (rc < 0) goto failed;
    set_sizes(e, opts);
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

int engine_submit(engine *e, const icp_request_opts *opts, request **out, icp_error *err) {
    request *r;
    TRY(request_check(opts, &e->limits, err));
    int rc = request_new(e, opts, &r);
    if (rc < 0) return error_set(err, rc, "out of memory");
    r->submitted_at = clock_now();
    r->usage.miss = "";
    if (!enqueue(e, r)) {
        request_unref(r);
        return error_set(err, ICP_EAGAIN, "%zu requests are waiting already", e->max_queued);
    }
    *out = r;
    return 0;
}
