/* Eviction: which idle leaf goes next.
 *
 * Only idle leaves are candidates. A page above them is in no order: a hit writes nothing for it
 * but the time, when its last chain leaves, and it becomes a candidate with that time when its last
 * child has gone. Since a chain pins its whole path, all that is below an idle page is idle too; so
 * every idle page can be had, leaf by leaf.
 *
 * Candidates stand in two binary heaps that grow towards each other in one array, the one that
 * goes first first in each:
 *
 *   heap          | 0 ──▶                 ◀── 1 |
 *   hazard, arc,    not found so far,   found since it came,
 *   lru             by last use         by last use
 *   fifo, lfu,      all, by rank        all, by last use
 *   cost
 *
 * A rank is that of the last use: pages that are exposed one after the other, because nobody comes
 * back to the end of a conversation, are all as old as that. What chooses between the first two:
 *
 *   arc      (Megiddo and Modha, 2003, constrained to leaves): `target` pages may be such as were
 *            not found so far, and what comes back soon after it went moves the target, towards the
 *            heap that it had been evicted from. It starts with as many as there are when the first
 *            page must go: from 0, as published, it would take many times the cache's pages
 *            until it is where it belongs.
 *   hazard   which of the two is less likely to be wanted soon. The hazard of a page that has been
 *            unused for so long: how many came back, from that age on, over the time that all
 *            spent, idle or gone, from that age on, up to the later age that makes it greatest: the
 *            index of Gittins, 1979. It is measured for either heap by age, as LHD does for classes
 *            of objects (Beckmann, Chen and Cidon, NSDI 2018). While few have been seen at an age,
 *            the mean of both heaps speaks for each; with nothing known, the least recently used
 *            goes.
 *   rank     the first of heap 0
 *
 * and for all of them: the least recently used, while that would find more (rival.c). Measured on
 * traces: docs/cache.md. */
#include <math.h>

#include "cache_internal.h"

/* ---- policies -------------------------------------------------------------------------------- */

typedef struct policy {
    const char *name;
    double (*rank)(const cache *c, const page *p); /* NULL: two heaps by last use */
} policy;

static double by_birth(const cache *c, const page *p) {
    (void)c;
    return (double)p->born;
}

/* LFU with dynamic ageing (Arlitt et al., 2000): whoever comes starts at the rank of who went last.
 */
static double by_hits(const cache *c, const page *p) {
    return c->age + p->hits + 1.0;
}

/* The same, weighed by what computing the page again would cost: deep pages attend to more. */
static double by_cost(const cache *c, const page *p) {
    return c->age + (p->hits + 1.0) * (1 + (double)p->depth * CACHE_PAGE / 4096);
}

static const policy policies[] = {
    [CACHE_HAZARD] = {"hazard", NULL}, [CACHE_ARC] = {"arc", NULL},
    [CACHE_LRU] = {"lru", NULL},       [CACHE_FIFO] = {"fifo", by_birth},
    [CACHE_LFU] = {"lfu", by_hits},    [CACHE_COST] = {"cost", by_cost},
};

const char *cache_policy_name(int policy) {
    return policy >= 0 && (size_t)policy < COUNT_OF(policies) ? policies[policy].name : NULL;
}

static bool is_ranked(const cache *c) {
    return policies[c->opts.policy].rank != NULL;
}

/* ---- hazard -----------------------------------------------------------------------------------
 */

static double bin_start(int bin) {
    return ldexp(bin % 2 ? M_SQRT2 : 1, bin / 2);
}

static uint64_t age_of(const cache *c, uint64_t used) {
    return c->clock > used ? c->clock - used : 1;
}

static int bin_of(uint64_t age) {
    int bin = 2 * (63 - __builtin_clzll(age));
    return MIN(bin + ((double)age >= bin_start(bin + 1)), HAZARD_BINS - 2);
}

/* A page was unused until now, and is used again or will never be, as far as anybody knows. */
static void observe(cache *c, bool again, uint64_t used, bool returns) {
    uint64_t age = age_of(c, used);
    int bin = bin_of(age);
    double *waited = c->hazard.waited[again];
    for (int i = 0; i < bin; i++) waited[i] += bin_start(i + 1) - bin_start(i);
    waited[bin] += MAX(1.0, (double)age - bin_start(bin));
    c->hazard.returns[again][bin] += returns;
}

/* The best that keeping it can bring: the chance to come back from its age up to some later one,
 * for the time that it would take up until then (Gittins's index). The mean of both heaps at its
 * age is added, as if it had been seen for once that age. */
static double hazard_of(const cache *c, const page *p) {
    const hazard *h = &c->hazard;
    bool again = p->hits > 0;
    int bin = bin_of(age_of(c, p->used));
    double all = h->waited[0][bin] + h->waited[1][bin], waited = bin_start(bin), best = 0;
    double returns = all > 0 ? waited * (h->returns[0][bin] + h->returns[1][bin]) / all : 0;
    for (int i = bin; i < HAZARD_BINS; i++) {
        returns += h->returns[again][i];
        waited += h->waited[again][i];
        best = MAX(best, returns / waited);
    }
    return best;
}

/* What was long ago counts for less and less. */
static void fade(cache *c) {
    hazard *h = &c->hazard;
    if (++h->n_evicted < 2 * c->n_pages) return;
    h->n_evicted = 0;
    for (int i = 0; i < HAZARD_BINS; i++)
        for (int again = 0; again < 2; again++) {
            h->returns[again][i] /= 2;
            h->waited[again][i] /= 2;
        }
}

/* ---- two heaps in one array ------------------------------------------------------------------ */

static bool stands_in(const cache *c, const page *p, int heap) {
    return is_ranked(c) || heap == (p->hits > 0);
}

static bool before(const cache *c, int heap, const page *a, const page *b) {
    if (heap == 0 && is_ranked(c) && a->rank != b->rank) return a->rank < b->rank;
    return a->used < b->used;
}

static page **slot(const cache *c, int heap, size_t at) {
    return &c->heap[heap ? 2 * c->n_pages - 1 - at : at];
}

static void place(cache *c, int heap, page *p, size_t at) {
    *slot(c, heap, at) = p;
    p->heap_at[heap] = (uint32_t)at;
}

static void sift_up(cache *c, int heap, page *p, size_t at) {
    for (; at > 0 && before(c, heap, p, *slot(c, heap, (at - 1) / 2)); at = (at - 1) / 2)
        place(c, heap, *slot(c, heap, (at - 1) / 2), at);
    place(c, heap, p, at);
}

static void sift_down(cache *c, int heap, page *p, size_t at) {
    for (size_t child; (child = 2 * at + 1) < c->n_heap[heap]; at = child) {
        if (child + 1 < c->n_heap[heap] &&
            before(c, heap, *slot(c, heap, child + 1), *slot(c, heap, child)))
            child++;
        if (!before(c, heap, *slot(c, heap, child), p)) break;
        place(c, heap, *slot(c, heap, child), at);
    }
    place(c, heap, p, at);
}

void evict_add(cache *c, page *leaf) {
    for (int heap = 0; heap < 2; heap++)
        if (stands_in(c, leaf, heap)) sift_up(c, heap, leaf, c->n_heap[heap]++);
}

void evict_remove(cache *c, page *leaf) {
    for (int heap = 0; heap < 2; heap++) {
        if (!stands_in(c, leaf, heap)) continue;
        page *last = *slot(c, heap, --c->n_heap[heap]);
        if (last == leaf) continue;
        if (before(c, heap, last, leaf))
            sift_up(c, heap, last, leaf->heap_at[heap]);
        else
            sift_down(c, heap, last, leaf->heap_at[heap]);
    }
}

/* The first of a heap but keep; the next after the first is one of its two children. */
static page *first_of(const cache *c, int heap, const page *keep) {
    size_t n = c->n_heap[heap], at = 0;
    if (n > 0 && *slot(c, heap, 0) == keep)
        at = n > 2 && before(c, heap, *slot(c, heap, 2), *slot(c, heap, 1)) ? 2 : 1;
    return at < n ? *slot(c, heap, at) : NULL;
}

page *evict_next(cache *c, const page *keep) {
    page *once = first_of(c, 0, keep), *again = first_of(c, 1, keep);
    if (!once || !again) return once ? once : again;
    bool follow = rival_leads(c);
    if (is_ranked(c)) return follow ? again : once;
    page *oldest = once->used < again->used ? once : again;
    if (follow || oldest->used == 0 || c->opts.policy == CACHE_LRU) return oldest;
    if (c->opts.policy == CACHE_ARC) return (double)c->n_seen[0] > c->target ? once : again;
    double chance = hazard_of(c, once), other = hazard_of(c, again);
    if (chance == other) return oldest;
    return chance < other ? once : again;
}

/* ---- what the order learns from -------------------------------------------------------------- */

void evict_chosen(cache *c, const page *leaf) {
    if (c->evictions == 0) c->target = (double)c->n_seen[0];
    c->age = MAX(c->age, leaf->rank);
    fade(c);
}

void evict_born(cache *c, page *p) {
    p->born = c->clock;
    c->n_seen[0]++;
}

void evict_hit(cache *c, page *p) {
    if (p->hits++ > 0) return;
    c->n_seen[0]--;
    c->n_seen[1]++;
}

void evict_used(cache *c, page *p, bool comes_back) {
    p->used = comes_back ? c->clock : 0;
    p->used_at = c->now;
    p->rank = comes_back && is_ranked(c) ? policies[c->opts.policy].rank(c, p) : -1;
    if (comes_back && p->state == PAGE_IDLE) rival_use(c);
}

void evict_gone(cache *c, const page *p) {
    c->n_seen[p->hits > 0]--;
}

void evict_return(cache *c, const page *p) {
    if (!p->used) return;
    observe(c, p->hits > 0, p->used, true);
    rival_count(c, true, rival_take(c, p->used));
}

void evict_forgotten(cache *c, const ghost *g) {
    if (g->used) observe(c, g->seen_again, g->used, false);
}

void evict_back(cache *c, page *p, const ghost *g) {
    bool seen_again = g->seen_again;
    if (g->used) observe(c, seen_again, g->used, true);
    if (g->used && g->loss == CACHE_LOSS_ROOM) rival_count(c, false, rival_take(c, g->used));
    double here = (double)c->n_ghosts[seen_again], other = (double)c->n_ghosts[!seen_again];
    double step = MAX(1.0, other / MAX(1.0, here));
    c->target = seen_again ? MAX(0.0, c->target - step) : MIN((double)c->n_pages, c->target + step);
    if (p->hits == 0) evict_hit(c, p);
}

/* ---- for tests ------------------------------------------------------------------------------- */

const char *evict_check(const cache *c, size_t n_leaves) {
    size_t seen[2] = {0}, n_heap = c->n_heap[0] + c->n_heap[1];
    for (size_t i = 0; i < page_n_nodes(c); i++)
        if (c->pages[i].state != PAGE_FREE && c->pages[i].state != PAGE_AWAY &&
            c->pages[i].state != PAGE_BARE)
            seen[c->pages[i].hits > 0]++;
    if (seen[0] != c->n_seen[0] || seen[1] != c->n_seen[1])
        return "[9] pages seen are counted wrongly";
    if (n_heap != (is_ranked(c) ? 2 * n_leaves : n_leaves))
        return "[9] an idle leaf cannot be evicted";
    for (int heap = 0; heap < 2; heap++)
        for (size_t i = 0; i < c->n_heap[heap]; i++) {
            const page *p = *slot(c, heap, i);
            bool leaf = p->state == PAGE_STATE || (p->state == PAGE_IDLE && !p->children);
            if (!leaf || p->heap_at[heap] != i || !stands_in(c, p, heap))
                return "[9] a page in the heap is neither an idle leaf nor a checkpoint";
            if (i > 0 && before(c, heap, p, *slot(c, heap, (i - 1) / 2)))
                return "[9] the heap is out of order";
        }
    return NULL;
}
