/* The page pool: one reservation of bytes, one array of bookkeeping beside it, a free list through
 * the latter. Nothing is allocated after page_pool_init.
 *
 *   bytes   | page 0 | page 1 | page 2 | ...      stride bytes each, committed when first written
 *   pages   |struct 0|struct 1|struct 2| ...
 *   heap    | idle leaves ...  (evict.c)
 *
 * The free list is last in, first out: a page that was used before goes out before one whose
 * memory was never touched. */
#include <assert.h>
#include <string.h>

#include "cache_internal.h"

int page_pool_init(cache *c) {
    c->bytes = mem_reserve(c->reserved);
    c->pages = mem_zero(c->n_pages, sizeof *c->pages);
    c->heap = mem_zero(c->n_pages, sizeof *c->heap);
    if (!c->bytes || !c->pages || !c->heap) {
        page_pool_fini(c);
        return ICP_ENOMEM;
    }
    for (size_t i = c->n_pages; i-- > 0;) {
        c->pages[i].next_free = c->free;
        c->free = &c->pages[i];
    }
    c->n_in[PAGE_FREE] = c->n_pages;
    return 0;
}

void page_pool_fini(cache *c) {
    if (c->bytes) mem_unreserve(c->bytes, c->reserved);
    mem_free(c->pages);
    mem_free(c->heap);
}

void page_move(cache *c, page *p, enum page_state to) {
    c->n_in[p->state]--;
    c->n_in[to]++;
    p->state = to;
}

page *page_take(cache *c) {
    page *p = c->free;
    if (!p) return NULL;
    c->free = p->next_free;
    page_move(c, p, PAGE_HELD);
    p->pins = 1;
#ifndef NDEBUG
    memset(page_address(c, p), 0xFF, c->opts.page_size); /* NaN as f16 and as f32 */
#endif
    return p;
}

void page_give(cache *c, page *p) {
    assert(p->state != PAGE_FREE && !p->children);
    page_move(c, p, PAGE_FREE);
    p->pins = 0;
    p->n = 0;
    p->next_free = c->free;
    c->free = p;
}
