/* Eviction: which idle leaf goes next. Here: the least recently used one.
 *
 * Only idle leaves are candidates, in a binary heap ordered by their last use. A page above them
 * is in no list: a hit writes nothing for it but the time, when its last chain leaves, and it
 * enters the heap with that time when its last child has gone. Since a chain pins its whole path,
 * all that is below an idle page is idle too; so every idle page can be had, leaf by leaf. */
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

void evict_touch(cache *c, page *leaf) {
    sift_down(c, leaf, leaf->heap_at);
}

page *evict_next(cache *c, const page *keep) {
    size_t first = 0;
    if (c->n_heap > 0 && c->heap[0] == keep) /* then the next is one of its two children */
        first = c->n_heap > 2 && c->heap[2]->used < c->heap[1]->used ? 2 : 1;
    return first < c->n_heap ? c->heap[first] : NULL;
}
