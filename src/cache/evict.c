/* Eviction: leaf first, least recently used first.
 *
 * Only idle leaves are candidates, in a binary heap ordered by their last use. A page above them
 * is in no list: a hit writes nothing for it but the time, when its last chain leaves, and it
 * enters the heap with that time when its last child has gone. Since a chain pins its whole path,
 * all that is below an idle page is idle too; so every idle page can be had, leaf by leaf. */
#include <assert.h>

#include "cache_internal.h"

static void place(cache *c, page *p, size_t at) {
    c->heap[at] = p;
    p->heap_at = (uint32_t)at;
}

static void sift_up(cache *c, page *p, size_t at) {
    for (; at > 0 && c->heap[(at - 1) / 2]->used > p->used; at = (at - 1) / 2)
        place(c, c->heap[(at - 1) / 2], at);
    place(c, p, at);
}

static void sift_down(cache *c, page *p, size_t at) {
    for (size_t child; (child = 2 * at + 1) < c->n_heap; at = child) {
        if (child + 1 < c->n_heap && c->heap[child + 1]->used < c->heap[child]->used) child++;
        if (c->heap[child]->used >= p->used) break;
        place(c, c->heap[child], at);
    }
    place(c, p, at);
}

void evict_add(cache *c, page *leaf) {
    sift_up(c, leaf, c->n_heap++);
}

void evict_remove(cache *c, page *leaf) {
    page *last = c->heap[--c->n_heap];
    if (last == leaf) return;
    if (last->used < leaf->used)
        sift_up(c, last, leaf->heap_at);
    else
        sift_down(c, last, leaf->heap_at);
}

void evict_touch(cache *c, page *p) {
    p->used = ++c->clock;
    if (p->state == PAGE_IDLE && !p->children) sift_down(c, p, p->heap_at);
}

void evict_leaf(cache *c, page *leaf) {
    assert(leaf->state == PAGE_IDLE && !leaf->children);
    page *parent = leaf->parent;
    cache_space *space = leaf->space;
    evict_remove(c, leaf);
    tree_remove(leaf);
    page_give(c, leaf);
    if (!parent)
        space_release(c, space);
    else if (parent->state == PAGE_IDLE && !parent->children)
        evict_add(c, parent);
}

bool evict_one(cache *c, const page *keep) {
    size_t first = 0;
    if (c->n_heap > 0 && c->heap[0] == keep) /* then the next is one of its two children */
        first = c->n_heap > 2 && c->heap[2]->used < c->heap[1]->used ? 2 : 1;
    if (first >= c->n_heap) return false;
    evict_leaf(c, c->heap[first]);
    c->evictions++;
    return true;
}

void cache_drop(cache *c, cache_space *space) {
    for (size_t i = 0; i < c->n_pages; i++) {
        page *p = &c->pages[i];
        while (p && p->state == PAGE_IDLE && !p->children && (!space || p->space == space)) {
            page *parent = p->parent;
            evict_leaf(c, p);
            p = parent;
        }
    }
}
