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
 * A policy is the rank of a page, and whether the two are kept apart. ARC (Megiddo and Modha, 2003,
 * constrained to leaves) does: `once` may have `target` pages, and what comes back soon after it
 * went moves the target, towards the heap that it had been evicted from. The other policies use
 * `once` alone. Measured on traces: docs/cache.md. */
#include "cache_internal.h"

/* ---- policies -------------------------------------------------------------------------------- */

typedef struct policy {
    const char *name;
    double (*rank)(const cache *c, const page *p);
    bool adaptive;
} policy;

static double by_use(const cache *c, const page *p) {
    (void)c;
    return (double)p->used;
}

/* As by use, but who was found at least once counts as used later, by most of the time that a page
 * lives now: conversations go on, most other prompts never come back. */
static double by_reuse(const cache *c, const page *p) {
    double life = MAX(0.0, (double)c->clock - c->age);
    return (double)p->used + (p->hits > 0 ? 0.8 * life : 0);
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
    [CACHE_REUSE] = {"reuse", by_reuse, false}, [CACHE_ARC] = {"arc", by_use, true},
    [CACHE_LRU] = {"lru", by_use, false},       [CACHE_FIFO] = {"fifo", by_birth, false},
    [CACHE_LFU] = {"lfu", by_hits, false},      [CACHE_COST] = {"cost", by_cost, false},
};

const char *cache_policy_name(int policy) {
    return policy >= 0 && (size_t)policy < COUNT_OF(policies) ? policies[policy].name : NULL;
}

/* ---- two heaps in one array ------------------------------------------------------------------ */

static int heap_of(const cache *c, const page *p) {
    return policies[c->opts.policy].adaptive && p->hits > 0;
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
    if (once && again) {
        if (once->rank < 0 || again->rank < 0) return once->rank < 0 ? once : again;
        return (double)c->n_seen[0] > c->target ? once : again;
    }
    return once ? once : again;
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
    if (for_room && c->age < p->rank) c->age = p->rank;
}

void evict_back(cache *c, page *p, bool seen_again) {
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
