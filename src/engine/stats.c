/* What is counted, and when: everything once (prompt tokens when the prompt is ready). */
#include <string.h>

#include "engine_internal.h"

void histogram_add(struct icp_histogram *h, double seconds) {
    static const double bounds[ICP_N_LATENCY] = ICP_LATENCY_BOUNDS;
    for (int i = 0; i < ICP_N_LATENCY; i++)
        if (seconds <= bounds[i]) h->bucket[i]++;
    h->bucket[ICP_N_LATENCY]++;
    h->sum += seconds;
}

void stats_explain(engine *e, sequence *s) {
    request *r = s->request;
    size_t n = r->opts.n_prompt;
    if (s->choice != 0 || s->explained || chain_len(s->chain) + 1 >= n) return;
    s->explained = true;
    miss_explain(e, r, r->opts.diagnose, &r->usage.why);
}

void stats_count_prompt(icp_stats *stats, sequence *s) {
    request *r = s->request;
    if (s->choice != 0) return; /* a prompt counts once, however many completions share it */
    size_t n_prompt = r->opts.n_prompt;
    r->usage.cached_tokens = s->n_cached;
    r->usage.why.n_missed = n_prompt - s->n_cached;
    r->usage.miss = icp_miss_name(r->usage.why.reason);
    stats->missed[r->usage.why.reason] += n_prompt - s->n_cached;
    stats->respelled += r->usage.respelled;
    stats->prompt_tokens += n_prompt;
    stats->cached_tokens += s->n_cached;
    stats->computed_tokens += n_prompt - s->n_cached;
}

void stats_count_output(icp_stats *stats, sequence *s) {
    request *r = s->request;
    size_t n = s->n_tokens - r->opts.n_prompt;
    s->last_token = clock_now();
    if (n == 1) s->first_token = s->last_token;
    if (r->n_output == 1) {
        r->usage.first_token_s = s->first_token - r->submitted_at;
        histogram_add(&stats->ttft, r->usage.first_token_s);
    }
    if (s->finished && n > 1)
        histogram_add(&stats->tpot, (s->last_token - s->first_token) / (double)(n - 1));
    stats->generation_tokens++;
}

void stats_count_end(icp_stats *stats, const request *r) {
    if (r->error)
        stats->failed++;
    else if (r->finish == ICP_FINISH_CANCELLED)
        stats->cancelled++;
    else if (r->finish == ICP_FINISH_LENGTH)
        stats->finished_length++;
    else
        stats->finished_stop++;
    histogram_add(&stats->e2e, r->usage.total_s);
}

void stats_show(engine *e) {
    cache_stats c;
    cache_get_stats(e->cache, &c);
    e->stats.running = (size_t)e->n_running;
    e->stats.pages = c.n_pages;
    e->stats.pages_free = c.n_free;
    e->stats.pages_used = c.n_pinned;
    e->stats.pages_cached = c.n_cached;
    e->stats.page_size = c.page_size;
    e->stats.checkpoints = c.n_checkpoints;
    e->stats.checkpoint_pages = c.n_checkpoint_pages;
    e->stats.hollow_pages = c.n_hollow;
    e->stats.hit_step = e->states ? CACHE_PAGE : 1;
    e->stats.cache_limit = c.limit;
    e->stats.evictions = c.evictions;
    e->stats.expired = c.expired;
    e->stats.copies = c.copies;
    e->stats.adoptions = c.adoptions;
    e->stats.duplicates = c.duplicates;
    e->stats.metadata = c.metadata;
    cache_curve curve;
    cache_get_curve(e->cache, &curve);
    _Static_assert(ICP_N_CURVE == CACHE_CURVE_SIZES, "the same sizes");
    e->stats.curve.asked = curve.asked;
    memcpy(e->stats.curve.found, curve.found, sizeof curve.found);
    e->stats.pins = pin_count(e, NULL, &e->stats.pinned_pages);
    e->stats.tenants = (size_t)e->n_tenants;
    e->stats.limit = e->limit;
    e->stats.fixed = e->fixed;
    e->stats.requests_limit = e->ledger->limit;
    e->stats.max_pause = e->max_pause;
    e->stats.step_s = e->pace.step;
    e->stats.row_s = e->pace.row;
    pthread_mutex_lock(&e->lock);
    e->shown = e->stats;
    pthread_mutex_unlock(&e->lock);
}

void engine_get_stats(engine *e, icp_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->shown;
    out->requests_size = atomic_load(&e->ledger->used);
    out->waiting = e->n_queued;
    out->requests = e->n_requests;
    pthread_mutex_unlock(&e->lock);
}
