/* What is gone: fingerprints of pages that the cache held once, so that a miss can be explained.
 *
 *   ghosts | print, why, when | ...        one place for each page, found by print modulo their
 * number
 *
 * A fingerprint covers the namespace and all tokens from position 0 up to the page's end, folded
 * page by page. A newer one takes the place of an older one. Nothing is ever decided by them. */
#include <xxhash.h>

#include "cache_internal.h"

uint64_t ghost_print(uint64_t before, const int32_t *tokens, size_t n) {
    return XXH3_64bits_withSeed(tokens, n * sizeof *tokens, before);
}

uint64_t ghost_parent(const cache_space *space, const page *parent) {
    return parent ? parent->print : space->print;
}

void ghost_note(cache *c, const page *p, enum cache_loss why) {
    uint64_t print = ghost_print(ghost_parent(p->space, p->parent), p->tokens, p->n);
    size_t in_use = c->n_pages - c->n_in[PAGE_FREE] - c->n_in[PAGE_IDLE];
    c->ghosts[print % c->n_pages] =
        (ghost){.print = print, .at = c->now, .pinned = (uint32_t)in_use, .loss = why};
}

const ghost *ghost_find(const cache *c, uint64_t print) {
    const ghost *g = &c->ghosts[print % c->n_pages];
    return g->loss != CACHE_LOSS_NONE && g->print == print ? g : NULL;
}
