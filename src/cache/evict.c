/* Eviction: which idle leaf goes next.
 *
 * Only idle leaves are candidates. A page above them is in no order: a hit writes nothing for it
 * but the time, when its last chain leaves, and it becomes a candidate with that time when its last
 * child has gone. Since a chain pins its whole path, all that is below an idle page is idle too; so
 * every idle page can be had, leaf by leaf.
 *
 * Candidates stand in two binary heaps that grow towards each other in one array, the one with the
 * lowest rank first in each:
 *
 *   heap   | once: seen once ...  ──▶         ◀── ... again: seen again |
 *
 * A policy is the rank of a page, and whether the two are kept apart; then something chooses
 * between the first of either. ARC (Megiddo and Modha, 2003, constrained to leaves): `once` may
 * have `target` pages, and what comes back soon after it went moves the target, towards the heap
 * that it had been evicted from. The hazard policy asks which of the two is less likely to be
 * wanted soon:
 *
 *   hazard   of a page that has been unused for so long: how many came back, from that age on, over
 *            the time that all spent, idle or gone, from that age on
 *
 * up to the later age that makes it greatest: the index of Gittins, 1979. It is measured for either
 * heap by age, as LHD does for classes of objects (Beckmann, Chen and Cidon, NSDI 2018). While few
 * have been seen at an age, the mean of both heaps speaks for each; with nothing known, the least
 * recently used goes. The other policies use `once` alone. Measured on traces: docs/cache.md. */
#include <math.h>

#include "cache_internal.h"

/* ---- policies -------------------------------------------------------------------------------- */

typedef struct policy {
    const char *name;
    double (*rank)(const cache *c, const page *p);
    bool apart;
} policy;

static double by_use(const cache *c, const page *p) {
    (void)c;
    return (double)p->used;
}

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
    double depth = 0;
    for (const page *above = p->parent; above; above = above->parent) depth++;
    return c->age + (p->hits + 1.0) * (1 + depth * CACHE_PAGE / 4096);
}

static const policy policies[] = {
    [CACHE_HAZARD] = {"hazard", by_use, true}, [CACHE_ARC] = {"arc", by_use, true},
    [CACHE_LRU] = {"lru", by_use, false},      [CACHE_FIFO] = {"fifo", by_birth, false},
    [CACHE_LFU] = {"lfu", by_hits, false},     [CACHE_COST] = {"cost", by_cost, false},
};

const char *cache_policy_name(int policy) {
    return policy >= 0 && (size_t)policy < COUNT_OF(policies) ? policies[policy].name : NULL;
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

static int heap_of(const cache *c, const page *p) {
    return policies[c->opts.policy].apart && p->hits > 0;
}

static page **slot(const cache *c, int heap, size_t at) {
    return &c->heap[heap ? c->n_pages - 1 - at : at];
}

static void place(cache *c, int heap, page *p, size_t at) {
    *slot(c, heap, at) = p;
    p->heap_at = (uint32_t)at;
}

static void sift_up(cache *c, int heap, page *p, size_t at) {
    for (; at > 0 && (*slot(c, heap, (at - 1) / 2))->rank > p->rank; at = (at - 1) / 2)
        place(c, heap, *slot(c, heap, (at - 1) / 2), at);
    place(c, heap, p, at);
}

static void sift_down(cache *c, int heap, page *p, size_t at) {
    for (size_t child; (child = 2 * at + 1) < c->n_heap[heap]; at = child) {
        if (child + 1 < c->n_heap[heap] &&
            (*slot(c, heap, child + 1))->rank < (*slot(c, heap, child))->rank)
            child++;
        if ((*slot(c, heap, child))->rank >= p->rank) break;
        place(c, heap, *slot(c, heap, child), at);
    }
    place(c, heap, p, at);
}

void evict_add(cache *c, page *leaf) {
    int heap = heap_of(c, leaf);
    leaf->rank = leaf->used ? policies[c->opts.policy].rank(c, leaf) : -1; /* 0: is to go first */
    sift_up(c, heap, leaf, c->n_heap[heap]++);
}

void evict_remove(cache *c, page *leaf) {
    int heap = heap_of(c, leaf);
    page *last = *slot(c, heap, --c->n_heap[heap]);
    if (last == leaf) return;
    if (last->rank < leaf->rank)
        sift_up(c, heap, last, leaf->heap_at);
    else
        sift_down(c, heap, last, leaf->heap_at);
}

/* The first of a heap but keep; the next after the first is one of its two children. */
static page *first_of(const cache *c, int heap, const page *keep) {
    size_t n = c->n_heap[heap], at = 0;
    if (n > 0 && *slot(c, heap, 0) == keep)
        at = n > 2 && (*slot(c, heap, 2))->rank < (*slot(c, heap, 1))->rank ? 2 : 1;
    return at < n ? *slot(c, heap, at) : NULL;
}

page *evict_next(cache *c, const page *keep) {
    page *once = first_of(c, 0, keep), *again = first_of(c, 1, keep);
    if (!once || !again) return once ? once : again;
    if (once->rank < 0 || again->rank < 0) return once->rank < 0 ? once : again;
    if (c->opts.policy == CACHE_ARC) return (double)c->n_seen[0] > c->target ? once : again;
    double chance = hazard_of(c, once), other = hazard_of(c, again);
    if (chance == other) return once->used < again->used ? once : again;
    return chance < other ? once : again;
}

/* ---- what the order learns from -------------------------------------------------------------- */

void evict_born(cache *c, page *p) {
    p->born = c->clock;
    c->n_seen[0]++;
}

void evict_hit(cache *c, page *p) {
    if (p->hits++ > 0) return;
    c->n_seen[0]--;
    c->n_seen[1]++;
}

void evict_gone(cache *c, const page *p, bool for_room) {
    c->n_seen[p->hits > 0]--;
    if (!for_room) return;
    c->age = MAX(c->age, p->rank);
    fade(c);
}

void evict_return(cache *c, const page *p) {
    observe(c, p->hits > 0, p->used, true);
}

void evict_forgotten(cache *c, const ghost *g) {
    observe(c, g->seen_again, g->used, false);
}

void evict_back(cache *c, page *p, const ghost *g) {
    bool seen_again = g->seen_again;
    observe(c, seen_again, g->used, true);
    double here = (double)c->n_ghosts[seen_again], other = (double)c->n_ghosts[!seen_again];
    double step = MAX(1.0, other / MAX(1.0, here));
    c->target = seen_again ? MAX(0.0, c->target - step) : MIN((double)c->n_pages, c->target + step);
    if (p->hits == 0) evict_hit(c, p);
}

/* ---- for tests ------------------------------------------------------------------------------- */

const char *evict_check(const cache *c) {
    size_t seen[2] = {0};
    for (size_t i = 0; i < c->n_pages; i++)
        if (c->pages[i].state != PAGE_FREE) seen[c->pages[i].hits > 0]++;
    if (seen[0] != c->n_seen[0] || seen[1] != c->n_seen[1])
        return "[9] pages seen are counted wrongly";
    for (int heap = 0; heap < 2; heap++)
        for (size_t i = 0; i < c->n_heap[heap]; i++) {
            const page *p = *slot(c, heap, i);
            bool leaf = p->state == PAGE_STATE || (p->state == PAGE_IDLE && !p->children);
            if (!leaf || p->heap_at != i || heap_of(c, p) != heap)
                return "[9] a page in the heap is neither an idle leaf nor a checkpoint";
            if (i > 0 && (*slot(c, heap, (i - 1) / 2))->rank > p->rank)
                return "[9] the heap is out of order";
        }
    return NULL;
}
