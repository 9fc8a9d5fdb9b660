/* What is gone: fingerprints of pages that the cache held once, so that a miss can be explained,
 * and that eviction learns from what comes back (ARC's ghost lists).
 *
 *   ghosts | print, why, when | ...        CACHE_GHOSTS places for each page, in sets of eight that
 *                                          are found by print modulo their number
 *
 * A fingerprint covers the namespace and all tokens from position 0 up to the page's end, folded
 * page by page. A newer one takes the place of an older one. No hit is ever decided by them. */
#include <xxhash.h>

#include "cache_internal.h"

enum { GHOST_SET = 8 }; /* no cache has fewer places */

uint64_t ghost_print(uint64_t before, const int32_t *tokens, size_t n) {
    return XXH3_64bits_withSeed(tokens, n * sizeof *tokens, before);
}

uint64_t ghost_parent(const cache_space *space, const page *parent) {
    return parent ? parent->print : space->print;
}

uint64_t ghost_of(const page *p) {
    if (p->n == CACHE_PAGE) return p->print;
    return ghost_print(ghost_parent(p->space, p->parent), p->tokens, p->n);
}

static ghost *set_of(const cache *c, uint64_t print) {
    return &c->ghosts[print % (c->n_pages * CACHE_GHOSTS / GHOST_SET) * GHOST_SET];
}

static void forget(cache *c, ghost *g) {
    if (g->loss != CACHE_LOSS_NONE) c->n_ghosts[g->seen_again]--;
    *g = (ghost){0};
}

static bool is_evicted(const ghost *g) {
    return g->loss == CACHE_LOSS_ROOM || g->loss == CACHE_LOSS_QUOTA;
}

void ghost_note(cache *c, const page *p, enum cache_loss why) {
    uint64_t print = ghost_of(p);
    size_t in_use = c->n_pages - c->n_in[PAGE_AWAY] - c->n_in[PAGE_FREE] - page_n_idle(c);
    ghost *set = set_of(c, print), *place = set;
    for (int i = 0; i < GHOST_SET; i++) {
        ghost *g = &set[i];
        if (g->loss == CACHE_LOSS_NONE || g->print == print) {
            place = g;
            break;
        }
        if (g->at < place->at || (g->at == place->at && g->used < place->used)) place = g;
    }
    if (is_evicted(place)) evict_forgotten(c, place);
    forget(c, place);
    *place = (ghost){.print = print,
                     .at = c->now,
                     .used = p->used,
                     .pinned = (uint32_t)in_use,
                     .loss = why,
                     .seen_again = p->hits > 0};
    c->n_ghosts[place->seen_again]++;
}

const ghost *ghost_find(const cache *c, uint64_t print) {
    const ghost *set = set_of(c, print);
    for (int i = 0; i < GHOST_SET; i++)
        if (set[i].loss != CACHE_LOSS_NONE && set[i].print == print) return &set[i];
    return NULL;
}

void ghost_back(cache *c, page *p) {
    ghost *g = (ghost *)ghost_find(c, p->print);
    if (!g) return;
    if (is_evicted(g)) evict_back(c, p, g);
    forget(c, g);
}
