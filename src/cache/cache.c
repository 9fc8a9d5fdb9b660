/* The cache as a whole: opening, the budget, questions. What moves is in chain.c and leaf.c. */
#include <assert.h>

#include "cache_internal.h"

enum {
    PAGE_ALIGN = 64,       /* a cache line */
    PAGE_ALIGN_BIG = 4096, /* pages of so many times that size start on one of the system's own */
    BIG = 16,
    MIN_PAGES = 4,
    MIN_SPARE = 16 << 10, /* for chains and namespaces; of a large limit: */
    SPARE_SHARE = 64,     /* one part in so many */
    BOOKS_SHARE = 8,      /* of the least limit, for the bookkeeping of pages that may be away */
};

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* Bytes of a cache without pages, chains and namespaces: the struct, and four blocks of which
 * the reservation is rounded up to the system's pages; and the curve. */
static size_t fixed_cost(const cache_opts *opts) {
    return sizeof(cache) + 5 * BLOCK_COST + PAGE_ALIGN_BIG + curve_size(opts->curve_samples);
}

static size_t page_cost(const cache *c) {
    return c->stride + sizeof(page) + 2 * sizeof(page *) + CACHE_GHOSTS * sizeof(ghost);
}

/* Pages that may be hollow, for each with bytes: their structs are a small part of those. */
static size_t bare_share(const cache *c) {
    enum { MOST = 64, SHARE = 16 };
    if (!c->opts.window) return 0;
    return MIN(MAX(c->stride / SHARE / sizeof(page), 1), (size_t)MOST);
}

/* Pages whose memory may be given back have the system's pages to themselves. */
static size_t stride_of(size_t page_size, bool may_go) {
    bool big = may_go || page_size >= (size_t)BIG * PAGE_ALIGN_BIG;
    return round_up(page_size, big ? PAGE_ALIGN_BIG : PAGE_ALIGN);
}

size_t cache_limit_of(size_t page_size, size_t n_pages) {
    cache shape = {.stride = stride_of(page_size, false)};
    size_t need = fixed_cost(&shape.opts) + n_pages * page_cost(&shape);
    /* the least limit of which, without one part in SPARE_SHARE, so much is left */
    return MAX(need + MIN_SPARE, need + (need - 1) / (SPARE_SHARE - 1));
}

size_t cache_window_cost(size_t page_size, size_t n_pages) {
    cache shape = {.opts.window = 1, .stride = stride_of(page_size, false)};
    size_t more = n_pages * bare_share(&shape) * sizeof(page);
    return more + more / (SPARE_SHARE - 1) + 1;
}

static int open_curve(cache *c) {
    size_t n = c->opts.curve_samples;
    return n ? curve_open(n, c->n_pages, &c->curve) : 0;
}

size_t cache_pages_within(const cache *c, size_t limit) {
    size_t fixed = fixed_cost(&c->opts) + c->spare + c->n_pages * (page_cost(c) - c->stride) +
                   c->n_bare * sizeof(page);
    return limit > fixed ? MIN((limit - fixed) / c->stride, c->n_pages) : 0;
}

size_t cache_confine(cache *c, size_t limit) {
    assert(c->opts.least);
    c->limit = MIN(MAX(limit, c->opts.least), c->opts.limit);
    page_confine(c, cache_pages_within(c, c->limit));
    curve_resize(c->curve, c->n_most);
    return page_excess(c);
}

/* How many pages there are, of which not all need ever be in use at once: the bookkeeping of those
 * that are away must leave most of the least limit to pages. */
static void set_pages(cache *c, size_t spare) {
    const cache_opts *o = &c->opts;
    c->stride = stride_of(o->page_size, o->least > 0);
    size_t bare = bare_share(c) * sizeof(page);
    c->n_pages = (o->limit - spare - fixed_cost(o)) / (page_cost(c) + bare);
    if (o->least) c->n_pages = MIN(c->n_pages, o->least / BOOKS_SHARE / (page_cost(c) - c->stride));
    c->n_pages = MIN(c->n_pages, UINT32_MAX - 1);
    c->n_bare = c->n_pages * bare_share(c);
    c->spare = o->least ? spare : o->limit - fixed_cost(o) - c->n_pages * (page_cost(c) + bare);
    c->limit = o->limit;
}

int cache_open(const cache_opts *opts, cache **out, icp_error *err) {
    size_t least = opts->least ? opts->least : opts->limit;
    size_t spare = MAX(least / SPARE_SHARE, MIN_SPARE);
    if (opts->page_size == 0 || (!opts->copy && !opts->no_reuse))
        return error_set(err, ICP_EINVALID, "a cache needs a page size and a way to copy");

    cache shape = {.opts = *opts};
    shape.opts.window = opts->window && !opts->least ? MAX(opts->window, 2) : 0;
    bool fits = opts->page_size <= least / MIN_PAGES && spare + fixed_cost(opts) < least;
    if (fits) set_pages(&shape, spare);
    if (!fits || cache_pages_within(&shape, least) < MIN_PAGES)
        return error_set(err, ICP_ELIMIT,
                         "a cache of %zu bytes has no room for %d pages of %zu bytes", least,
                         MIN_PAGES, opts->page_size);
    shape.n_parts = (opts->state_size + shape.stride - 1) / shape.stride;
    shape.reserved = round_up((shape.n_pages + (shape.n_bare > 0)) * shape.stride, PAGE_ALIGN_BIG);

    cache *c = mem_alloc(sizeof *c);
    if (c) *c = shape;
    bool pages = c && page_pool_init(c) == 0;
    if (!pages || open_curve(c) < 0 || owner_init(c) < 0) {
        if (c) curve_close(&c->curve);
        if (pages) page_pool_fini(c);
        mem_free(c);
        return error_set(err, ICP_ENOMEM, "no memory for a cache of %zu bytes", opts->limit);
    }
    c->random = (uintptr_t)c->bytes; /* not for outsiders to know */
    c->rival.width = 1;
    c->secret = (uint64_t)cache_draw(c) << 32 | cache_draw(c);
    *out = c;
    return 0;
}

void cache_close(cache **cp) {
    cache *c = *cp;
    if (!c) return;
    assert(!c->chains);
    space_fini(c);
    curve_close(&c->curve);
    page_pool_fini(c);
    mem_free(c);
    *cp = NULL;
}

/* ---- budget ---------------------------------------------------------------------------------- */

int cache_charge(cache *c, size_t size) {
    if (size > c->spare) return ICP_ELIMIT;
    if (c->spent - c->reclaimable > c->spare - size) return ICP_EAGAIN;
    while (c->spent > c->spare - size) leaf_evict(c, NULL, NULL);
    c->spent += size;
    return 0;
}

void cache_refund(cache *c, size_t size) {
    c->spent -= size;
}

uint32_t cache_draw(cache *c) {
    return (uint32_t)(random_next(&c->random) >> 32);
}

/* ---- questions ------------------------------------------------------------------------------- */

void *cache_page(const cache *c, page_id id) {
    assert(id.index < page_n_nodes(c));
    return c->pages[id.index].bytes;
}

size_t cache_obtainable(const cache *c, const cache_owner *owner) {
    size_t bare = c->n_bare - c->n_hollow[PAGE_SHARED]; /* when nothing is idle any more */
    size_t all = c->n_in[PAGE_FREE] + page_n_idle(c) + MIN(c->n_behind, bare);
    all -= MIN(all, page_excess(c));
    if (!owner || owner->quota == SIZE_MAX) return all;
    size_t pinned = owner->n_pages - owner->n_idle - MIN(owner->n_behind, bare);
    return MIN(all, owner->quota > pinned ? owner->quota - pinned : 0);
}

void cache_get_stats(const cache *c, cache_stats *out) {
    size_t n = c->n_pages - c->n_in[PAGE_AWAY];
    *out = (cache_stats){
        .n_pages = n,
        .n_free = c->n_in[PAGE_FREE],
        .n_pinned = n - c->n_in[PAGE_FREE] - page_n_idle(c),
        .n_cached = page_n_idle(c),
        .n_hollow = c->n_bare - c->n_in[PAGE_BARE],
        .n_checkpoints = c->n_checkpoints,
        .n_checkpoint_pages = c->n_checkpoints * c->n_parts,
        .page_size = c->opts.page_size,
        .limit = c->limit,
        .metadata = fixed_cost(&c->opts) + c->n_pages * (page_cost(c) - c->stride) +
                    n * (c->stride - c->opts.page_size) + c->n_bare * sizeof(page) + c->spent,
        .evictions = c->evictions + c->n_given_up,
        .expired = c->expired,
        .copies = c->copies,
        .adoptions = c->adoptions,
        .duplicates = c->duplicates,
    };
}

void cache_get_curve(const cache *c, cache_curve *out) {
    curve_read(c->curve, out);
}

size_t cache_curve_cost(size_t samples) {
    return curve_size(samples);
}
