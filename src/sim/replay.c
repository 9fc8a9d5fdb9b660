/* Replaying: a block of the trace is a page of the cache, filled with its id. What the cache finds,
 * evicts and keeps is what it would in the server; only the bytes of a page are a few instead of
 * megabytes. */
#include "sim.h"

#include "schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 64, WINDOW = 64 }; /* WINDOW: requests of the queue that are looked at */

typedef struct player {
    const trace *t;
    const replay_opts *opts;
    replay_result *out;
    cache *cache;
    cache_space *space;
    int32_t *tokens; /* of the current request */
    double *latency; /* one a request, in order of service */
    size_t n_done;
} player;

static void copy_nothing(void *arg, void *to, const void *from, int n) {
    (void)arg, (void)to, (void)from, (void)n;
}

static size_t spell(const player *p, const trace_request *r) {
    for (size_t i = 0; i < r->n_blocks; i++)
        for (int j = 0; j < CACHE_PAGE; j++)
            p->tokens[i * CACHE_PAGE + (size_t)j] = p->t->blocks[r->first + i];
    return r->n_blocks * CACHE_PAGE;
}

/* Blocks of a hit, as far as whole units go. */
static size_t whole_units(const player *p, size_t n) {
    size_t blocks = p->opts->unit > p->t->block ? (size_t)(p->opts->unit / p->t->block) : 1;
    return n / blocks * blocks;
}

/* Seconds to compute the tokens of blocks [from, to): attention makes deep ones dearer. */
static double cost(const player *p, size_t from, size_t to) {
    double a = (double)from * p->t->block, b = (double)to * p->t->block;
    return p->opts->prefill > 0
               ? ((b - a) + (b * b - a * a) / (2 * p->opts->deep)) / p->opts->prefill
               : 0;
}

/* Serves one request; returns the seconds that it took. */
static double serve(player *p, const trace_request *r, int *rc) {
    size_t n = spell(p, r);
    chain *ch;
    cache_tick(p->cache, r->time);
    *rc = chain_open(p->cache, p->space, &ch);
    if (*rc < 0) return 0;
    size_t have = chain_match(ch, p->tokens, n, n), n_hit = have;
    size_t hit = whole_units(p, have / CACHE_PAGE);
    p->out->n_blocks += r->n_blocks;
    p->out->n_hits += hit;
    /* more than the cache can hold: what fits is kept, as a server that refuses it would keep
     * nothing */
    for (; have < n; have += CACHE_PAGE) {
        if (chain_reserve(ch, have + CACHE_PAGE) < 0) break;
        chain_publish(ch, p->tokens + have, CACHE_PAGE);
    }
    chain_asked(ch, n, n_hit);
    chain_close(&ch);
    return cost(p, hit, r->n_blocks);
}

/* In the order of the trace, as if serving took no time. */
static int play_in_order(player *p) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->t->n_requests; i++) serve(p, &p->t->requests[i], &rc);
    return rc;
}

/* One server; whoever is next, the scheduler says. */
static int play_in_time(player *p) {
    const trace *t = p->t;
    size_t queue[WINDOW];
    sched_wait waiting[WINDOW];
    sched_tenant tenant = {.pages = SIZE_MAX};
    int n = 0, rc = 0;
    double now = 0;
    for (size_t next = 0; rc == 0 && (next < t->n_requests || n > 0);) {
        if (n == 0) now = MAX(now, t->requests[next].time);
        for (; n < WINDOW && next < t->n_requests && t->requests[next].time <= now; next++) {
            queue[n] = next;
            waiting[n++] = (sched_wait){.n_tokens = t->requests[next].n_blocks * CACHE_PAGE};
        }
        for (int i = 0; i < n; i++) {
            size_t len = spell(p, &t->requests[queue[i]]);
            waiting[i].n_hit = cache_probe(p->cache, p->space, p->tokens, len);
        }
        int picked = sched_pick(waiting, n, &tenant, 1);
        sched_admitted(waiting, n, picked, &tenant);
        const trace_request *r = &t->requests[queue[picked]];
        now += serve(p, r, &rc);
        p->latency[p->n_done++] = now - r->time;
        memmove(&queue[picked], &queue[picked + 1], (size_t)(n - picked - 1) * sizeof *queue);
        memmove(&waiting[picked], &waiting[picked + 1], (size_t)(n - picked - 1) * sizeof *waiting);
        n--;
    }
    return rc;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void take_percentiles(player *p) {
    if (!p->n_done) return;
    qsort(p->latency, p->n_done, sizeof *p->latency, by_value);
    p->out->p50 = p->latency[p->n_done / 2];
    p->out->p90 = p->latency[p->n_done * 9 / 10];
    p->out->p99 = p->latency[p->n_done * 99 / 100];
}

static size_t longest(const trace *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_requests; i++) n = MAX(n, t->requests[i].n_blocks);
    return n;
}

static int open_cache(player *p, icp_error *err) {
    size_t pages = MIN(p->opts->capacity, p->t->n_unique + longest(p->t) + 16);
    cache_opts co = {.page_size = PAGE_BYTES,
                     .limit = cache_limit_of(PAGE_BYTES, pages),
                     .policy = p->opts->policy,
                     .curve_samples = p->opts->curve_samples,
                     .copy = copy_nothing};
    co.limit += cache_curve_cost(co.curve_samples);
    TRY(cache_open(&co, &p->cache, err));
    return cache_space_get(p->cache, NULL, "sim", 3, &p->space);
}

int replay(const trace *t, const replay_opts *opts, replay_result *out, icp_error *err) {
    *out = (replay_result){0};
    player p = {.t = t, .opts = opts, .out = out};
    p.tokens = mem_alloc(longest(t) * CACHE_PAGE * sizeof *p.tokens);
    p.latency = mem_alloc(t->n_requests * sizeof *p.latency);
    int rc =
        p.tokens && p.latency ? open_cache(&p, err) : error_set(err, ICP_ENOMEM, "out of memory");
    if (rc == 0) rc = opts->prefill > 0 ? play_in_time(&p) : play_in_order(&p);
    if (rc == 0) take_percentiles(&p);
    if (rc == 0) cache_get_curve(p.cache, &out->curve);
    if (p.space) cache_space_put(p.cache, &p.space);
    cache_close(&p.cache);
    mem_free(p.tokens);
    mem_free(p.latency);
    return rc;
}

/* ---- the bound ------------------------------------------------------------------------------- */

/* Resident blocks in a heap, the one that is needed last (or never) first; of equals the deeper
 * one. An entry is stale when the block's next use has changed since. */
typedef struct entry {
    size_t next, depth;
    int32_t block;
} entry;

typedef struct bound {
    entry *heap;
    size_t n, cap, n_resident;
    size_t *next; /* of each block: the request that uses it next; 0: not resident */
} bound;

static bool later(const entry *a, const entry *b) {
    return a->next != b->next ? a->next > b->next : a->depth > b->depth;
}

static bool push(bound *b, entry e) {
    if (b->n == b->cap) {
        size_t cap = 2 * b->cap + 1024;
        entry *heap = mem_resize(b->heap, cap, sizeof *heap);
        if (!heap) return false;
        b->heap = heap;
        b->cap = cap;
    }
    size_t at = b->n++;
    for (; at > 0 && later(&e, &b->heap[(at - 1) / 2]); at = (at - 1) / 2)
        b->heap[at] = b->heap[(at - 1) / 2];
    b->heap[at] = e;
    return true;
}

static entry pop(bound *b) {
    entry first = b->heap[0], last = b->heap[--b->n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < b->n; at = child) {
        if (child + 1 < b->n && later(&b->heap[child + 1], &b->heap[child])) child++;
        if (!later(&b->heap[child], &last)) break;
        b->heap[at] = b->heap[child];
    }
    b->heap[at] = last;
    return first;
}

/* For each block of each request, the next request that has it (numbered from 1; n + 1: none). */
static void find_next_uses(const trace *t, size_t *uses, size_t *next) {
    for (size_t i = 0; i < t->n_unique; i++) next[i] = t->n_requests + 1;
    for (size_t i = t->n_requests; i-- > 0;) {
        const trace_request *r = &t->requests[i];
        for (size_t j = 0; j < r->n_blocks; j++) uses[r->first + j] = next[t->blocks[r->first + j]];
        for (size_t j = 0; j < r->n_blocks; j++) next[t->blocks[r->first + j]] = i + 1;
    }
}

size_t replay_bound(const trace *t, size_t capacity) {
    bound b = {.next = mem_zero(t->n_unique, sizeof *b.next)};
    size_t *uses = mem_alloc(t->n_blocks * sizeof *uses), hits = 0;
    bool ok = b.next && uses;
    if (ok) {
        find_next_uses(t, uses, b.next);
        memset(b.next, 0, t->n_unique * sizeof *b.next);
    }
    for (size_t i = 0; ok && i < t->n_requests; i++) {
        const trace_request *r = &t->requests[i];
        size_t hit = 0;
        while (hit < r->n_blocks && b.next[t->blocks[r->first + hit]]) hit++;
        hits += hit;
        for (size_t j = 0; ok && j < r->n_blocks; j++) {
            int32_t block = t->blocks[r->first + j];
            b.n_resident += b.next[block] == 0;
            b.next[block] = uses[r->first + j];
            ok = push(&b, (entry){b.next[block], j, block});
        }
        while (ok && b.n_resident > capacity) {
            entry e = pop(&b);
            if (b.next[e.block] != e.next) continue;
            b.next[e.block] = 0;
            b.n_resident--;
        }
    }
    mem_free(b.heap);
    mem_free(b.next);
    mem_free(uses);
    return ok ? hits : 0;
}
