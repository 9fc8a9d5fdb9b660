/* Questions and orders about the cache, from other threads. */
#include <math.h>
#include <string.h>

#include "engine_internal.h"

int errand_do(engine *e, int (*run)(engine *e, void *arg), void *arg) {
    errand mine = {.run = run, .arg = arg};
    pthread_mutex_lock(&e->lock);
    errand **at = &e->errands;
    while (*at) at = &(*at)->next;
    *at = &mine;
    pthread_cond_signal(&e->work);
    while (!mine.done) pthread_cond_wait(&e->errand_done, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return mine.rc;
}

void errand_run_all(engine *e, errand *list) {
    for (errand *next; list; list = next) {
        next = list->next;
        int rc = list->run(e, list->arg);
        pthread_mutex_lock(&e->lock);
        list->rc = rc;
        list->done = true; /* it is gone when the lock is */
        pthread_cond_broadcast(&e->errand_done);
        pthread_mutex_unlock(&e->lock);
    }
}

/* ---- why ------------------------------------------------------------------------------------- */

typedef struct question {
    const icp_request_opts *opts;
    icp_usage *out;
} question;

/* As a request would fare that is submitted now. */
static int run_why(engine *e, void *arg) {
    question *q = arg;
    request *r;
    TRY(request_new(e, q->opts, &r, NULL));
    int rc = request_open_space(e, r);
    if (rc == 0) {
        miss_respell(e, r);
        const icp_request_opts *o = &r->opts;
        *q->out = (icp_usage){.prompt_tokens = o->n_prompt, .respelled = r->usage.respelled};
        icp_miss *m = &q->out->why;
        miss_explain(e, r, true, m);
        if (r->space)
            q->out->cached_tokens = cache_probe(e->cache, r->space, o->prompt, r->seq[0].hit_limit);
        m->n_missed = o->n_prompt - q->out->cached_tokens;
        q->out->miss = icp_miss_name(m->reason);
    }
    cache_space_put(e->cache, &r->space);
    tenant_put(e, r->tenant);
    request_unref(r);
    return rc;
}

int engine_why(engine *e, const icp_request_opts *opts, icp_usage *out, icp_error *err) {
    icp_request_opts asked = *opts;
    if (e->limits.embeds) { /* what else could be meant? */
        asked.embed = true;
        asked.max_tokens = 0;
    }
    TRY(request_check(&asked, &e->limits, err));
    question q = {&asked, out};
    int rc = errand_do(e, run_why, &q);
    return rc < 0 ? error_set(err, rc, "%s", icp_strerror(rc)) : 0;
}

/* ---- list ------------------------------------------------------------------------------------ */

typedef struct listing {
    const char *tenant;
    size_t most;
    icp_cache_list *out;
    double now;
} listing;

static bool add_node(void *arg, const cache_node *from) {
    listing *l = arg;
    l->out->more = l->out->n == l->most;
    if (l->out->more) return false;
    icp_cache_node *node = &l->out->node[l->out->n++];
    *node = (icp_cache_node){.depth = from->depth,
                             .position = from->position,
                             .n_tokens = from->n_tokens,
                             .n_sampled = from->n_sampled,
                             .n_pages = from->n_pages,
                             .n_hollow = from->n_hollow,
                             .n_in_use = from->n_pinned,
                             .hits = from->hits,
                             .idle_s = l->now - from->used_at,
                             .ttl_s = from->until - l->now};
    node->n_first = (int)MIN(from->n_first, COUNT_OF(node->first));
    memcpy(node->first, from->first, (size_t)node->n_first * sizeof *node->first);
    size_t n;
    const char *salt = tenant_salt(from->key, from->key_len, &n);
    n = utf8_complete(salt, MIN(n, sizeof node->salt - 1));
    memcpy(node->salt, salt, n);
    return true;
}

static int run_list(engine *e, void *arg) {
    listing *l = arg;
    l->now = clock_now();
    cache_tick(e->cache, l->now);
    cache_stats s;
    cache_get_stats(e->cache, &s);
    l->out->page_size = s.page_size;
    l->out->page_tokens = CACHE_PAGE;
    l->out->quota = e->quota;
    const tenant *t = tenant_find(e, l->tenant);
    if (!t) return 0;
    size_t n_pages;
    l->out->n_pins = pin_count(e, t, &n_pages);
    cache_owner_pages(t->owner, &l->out->n_pages, &l->out->n_idle);
    cache_walk(e->cache, t->owner, add_node, l);
    return 0;
}

int engine_list(engine *e, const char *tenant, size_t most, icp_cache_list *out) {
    *out = (icp_cache_list){.node = mem_alloc((most + 1) * sizeof *out->node)};
    if (!out->node) return ICP_ENOMEM;
    listing l = {.tenant = tenant ? tenant : "", .most = most, .out = out};
    return errand_do(e, run_list, &l);
}

/* ---- limit ----------------------------------------------------------------------------------- */

/* Sequences that have more than the limit holds wait for their turn again, the last first; pins
 * yield before. */
static int run_limit(engine *e, void *arg) {
    e->limit = MIN(MAX(*(const size_t *)arg, e->least), e->most);
    size_t others = e->fixed + e->ledger->limit;
    while (cache_confine(e->cache, e->limit - others) > 0) {
        if (pin_yield(e)) continue;
        if (e->n_running == 0) return ICP_EAGAIN; /* public prefixes */
        queue_preempt(e, e->n_running - 1);
    }
    return 0;
}

int engine_set_limit(engine *e, size_t limit) {
    return e->least < e->most ? errand_do(e, run_limit, &limit) : ICP_EUNSUPPORTED;
}

/* ---- drop ------------------------------------------------------------------------------------ */

static int run_drop(engine *e, void *arg) {
    const tenant *t = tenant_find(e, arg);
    if (!t) return 0;
    pin_drop(e, t);
    cache_drop_owner(e->cache, t->owner);
    return 0;
}

void engine_drop(engine *e, const char *tenant) {
    errand_do(e, run_drop, (void *)(tenant ? tenant : ""));
}
