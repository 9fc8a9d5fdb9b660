/* The page pool: one reservation of bytes, one array of bookkeeping beside it, a free list through
 * the latter. Nothing is
 * allocated after page_pool_init.
 *
 *   bytes   | page 0 | page 1 | page 2 | ...      stride bytes each, committed when first written
 *   pages   |struct 0|struct 1|struct 2| ... bare | with a window, structs may change their bytes
 *   heap    | idle leaves ...  (evict.c)
 *   ghosts  | what is gone ... (ghost.c)
 *
 * Where the limit may be lowered, pages that it does not hold are away: they have no memory. A page
 * goes when it is freed while there are too many, whoever frees it; so the excess is what is in
 * use.
 *
 * The free list is last in, first out: a page that was used before goes out before one whose
 * memory was never touched. */
#include <assert.h>
#include <string.h>

#include "cache_internal.h"

enum {
    COMMIT_STEP = 2 << 20,  /* bytes at once: a huge page, a tenth of a millisecond or a few */
    COMMIT_AHEAD = 1 << 30, /* bytes that stand ready at most, */
    COMMIT_SHARE = 4,       /* and this part of all */
};

int page_pool_init(cache *c) {
    c->bytes = mem_reserve(c->reserved);
    if (c->bytes) mem_interleave(c->bytes, c->reserved); /* only a wish */
    c->pages = mem_zero(page_n_nodes(c), sizeof *c->pages);
    c->heap = mem_zero(2 * c->n_pages, sizeof *c->heap);
    c->ghosts = mem_zero(c->n_pages * CACHE_GHOSTS, sizeof *c->ghosts);
    if (!c->bytes || !c->pages || !c->heap || !c->ghosts) {
        page_pool_fini(c);
        return ICP_ENOMEM;
    }
    for (size_t i = c->n_pages; i-- > 0;) {
        c->pages[i].bytes = c->bytes + i * c->stride;
        c->pages[i].next_free = c->free;
        c->free = &c->pages[i];
    }
    for (size_t i = page_n_nodes(c); i-- > c->n_pages;) {
        c->pages[i].state = PAGE_BARE;
        c->pages[i].next_free = c->bare;
        c->bare = &c->pages[i];
    }
    c->n_in[PAGE_FREE] = c->n_most = c->n_pages;
    c->n_in[PAGE_BARE] = c->n_hollow[PAGE_BARE] = c->n_bare;
    return 0;
}

void page_pool_fini(cache *c) {
    if (c->bytes) mem_unreserve(c->bytes, c->reserved);
    mem_free(c->pages);
    mem_free(c->heap);
    mem_free(c->ghosts);
}

/* Counts a page as what it is, once more (n = 1) or once less (n = -1). */
static void count(cache *c, const page *p, size_t n) {
    bool behind = p->bytes && p->behind && p->state == PAGE_SHARED;
    c->n_in[p->state] += n;
    if (!p->bytes) c->n_hollow[p->state] += n;
    if (behind) c->n_behind += n;
    if (!p->space || !p->bytes) return;
    cache_owner *owner = p->space->owner;
    owner->n_pages += n;
    if (behind) owner->n_behind += n;
    if (p->state == PAGE_IDLE || p->state == PAGE_STATE) owner->n_idle += n;
}

void page_move(cache *c, page *p, enum page_state to) {
    count(c, p, (size_t)-1);
    p->state = to;
    count(c, p, 1);
}

void page_set_bytes(cache *c, page *p, void *bytes) {
    count(c, p, (size_t)-1);
    p->bytes = bytes;
    count(c, p, 1);
}

void page_set_behind(cache *c, page *p, enum behind kind) {
    count(c, p, (size_t)-1);
    p->behind = kind;
    count(c, p, 1);
}

size_t page_n_idle(const cache *c) {
    return c->n_in[PAGE_IDLE] - c->n_hollow[PAGE_IDLE] + c->n_in[PAGE_STATE];
}

size_t page_excess(const cache *c) {
    size_t here = c->n_pages - c->n_in[PAGE_AWAY];
    return here > c->n_most ? here - c->n_most : 0;
}

static void send_away(cache *c, page *p) {
    page_move(c, p, PAGE_AWAY);
    mem_release(p->bytes, c->stride);
    p->next_free = c->away;
    c->away = p;
}

/* Of a page that was moved to FREE. */
static void put_free(cache *c, page *p) {
    if (page_excess(c)) {
        send_away(c, p);
        return;
    }
    p->next_free = c->free;
    c->free = p;
}

page *page_take(cache *c, cache_space *space) {
    page *p = c->free;
    if (!p) return NULL;
    c->free = p->next_free;
    size_t place = (size_t)((unsigned char *)p->bytes - c->bytes) / c->stride;
    c->n_begun = MAX(c->n_begun, place + 1);
    p->pins = 1;
    count(c, p, (size_t)-1);
    p->space = space;
    p->state = PAGE_HELD;
    count(c, p, 1);
    evict_born(c, p);
#ifndef NDEBUG
    memset(p->bytes, 0xFF, c->opts.page_size); /* NaN as f16 and as f32 */
#endif
    return p;
}

bool cache_commit(cache *c) {
    if (c->away) return false;
    size_t begun = c->n_begun * c->stride / COMMIT_STEP * COMMIT_STEP;
    size_t from = MAX(c->committed, begun);
    size_t ahead = MIN(c->reserved / COMMIT_SHARE, (size_t)COMMIT_AHEAD);
    size_t to = MIN(begun + ahead, c->reserved);
    if (from >= to) return false;
    to = MIN(from + COMMIT_STEP, to);
    c->committed = mem_commit(c->bytes + from, to - from) < 0 ? SIZE_MAX : to;
    return true;
}

void page_give(cache *c, page *p) {
    assert(p->state != PAGE_FREE && !p->children && !p->behind);
    evict_gone(c, p);
    count(c, p, (size_t)-1);
    p->space = NULL;
    p->state = p->bytes ? PAGE_FREE : PAGE_BARE;
    count(c, p, 1);
    p->checkpoint = NULL;
    p->trail_of = NULL;
    p->pins = p->near = p->n = p->n_low = p->hits = 0;
    p->used = p->sampled = 0;
    p->until = p->until_low = 0;
    if (p->bytes) {
        put_free(c, p);
        return;
    }
    p->next_free = c->bare;
    c->bare = p;
}

void page_confine(cache *c, size_t n_most) {
    c->n_most = MIN(n_most, c->n_pages);
    while (c->away && c->n_pages - c->n_in[PAGE_AWAY] < c->n_most) {
        page *p = c->away;
        c->away = p->next_free;
        page_move(c, p, PAGE_FREE);
        put_free(c, p);
    }
    while (page_excess(c) && c->free) {
        page *p = c->free;
        c->free = p->next_free;
        send_away(c, p);
    }
    while (page_excess(c) && leaf_evict(c, NULL, NULL)) continue;
}
