/* Checkpoints: copies of what sequences carry from token to token, at page edges.
 *
 *   tree     p7 ─── p2 ─── p9 ─── p4            full pages
 *            │      │             │ checkpoint
 *            │      ▼             ▼
 *            │     [s1]─[s5]     [s3]─[s0]      parts: pages of the same pool, in no tree
 *   heap     s1 s3, and the idle leaves         the first part stands for all
 *
 * A checkpoint is only ever copied from. So it can be evicted at any time, whether its page is in
 * use or not, unless a chain keeps it; it goes with its page at the latest. A chain that goes on
 * leaves one behind that follows it from edge to edge (its trail), and others where it is told
 * to. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "cache_internal.h"

/* ---- parts ----------------------------------------------------------------------------------- */

/* Between a state and the parts that hold it. */
static void copy_parts(const cache *c, page *first, void *state, bool out) {
    size_t left = c->opts.state_size;
    unsigned char *at = state;
    for (const page *part = first; part; part = part->next_part) {
        size_t n = MIN(left, c->stride);
        void *bytes = part->bytes;
        memcpy(out ? at : bytes, out ? bytes : at, n);
        at += n;
        left -= n;
    }
}

static void move_parts(cache *c, page *first, enum page_state to) {
    for (page *part = first; part; part = part->next_part) page_move(c, part, to);
}

/* NULL: there are not enough pages. */
static page *take_parts(chain *ch) {
    cache *c = ch->cache;
    if (c->n_parts > cache_obtainable(c, ch->space->owner)) return NULL;
    page *first = NULL;
    for (size_t i = 0; i < c->n_parts; i++) {
        page *part = chain_obtain(ch, NULL);
        part->pins = 0;
        part->edge = NULL;
        part->next_part = first;
        first = part;
    }
    move_parts(c, first, PAGE_STATE);
    first->until = INFINITY;
    c->n_checkpoints++;
    return first;
}

void checkpoint_free(cache *c, page *first) {
    assert(first->state == PAGE_STATE);
    leaf_leave(c, first);
    first->edge->checkpoint = NULL;
    if (first->trail_of) first->trail_of->trail = NULL;
    c->n_checkpoints--;
    for (page *next; first; first = next) {
        next = first->next_part;
        page_give(c, first);
    }
}

/* ---- leaving them ---------------------------------------------------------------------------- */

/* It will not move on any more. */
static void settle(page *first) {
    if (first->trail_of) first->trail_of->trail = NULL;
    first->trail_of = NULL;
}

/* The chain's trail, out of its place, or a new one; NULL: there is no room for it. */
static page *take_trail(chain *ch) {
    page *first = ch->trail;
    if (!first) return take_parts(ch);
    leaf_leave(ch->cache, first);
    first->edge->checkpoint = NULL;
    return first;
}

static void put(chain *ch, page *edge, page *first, enum checkpoint_use use) {
    cache *c = ch->cache;
    copy_parts(c, first, ch->state, false);
    edge->checkpoint = first;
    first->edge = edge;
    first->trail_of = ch;
    ch->trail = first;
    /* The next one will need pages of its own. */
    bool spare = use == CHECKPOINT_SPARE && c->n_in[PAGE_FREE] >= c->n_parts;
    if (spare || use == CHECKPOINT_STAYS) settle(first);
    first->depth = edge->depth;
    evict_used(c, first, !spare);
    leaf_enter(c, first);
}

void chain_checkpoint(chain *ch, enum checkpoint_use use) {
    size_t n = ch->len / CACHE_PAGE;
    if (!ch->state || !ch->space || ch->len % CACHE_PAGE || n <= ch->n_base) return;
    page *edge = chain_page_at(ch, n - 1);
    if (edge->checkpoint) { /* its bytes are the same */
        if (use == CHECKPOINT_STAYS) settle(edge->checkpoint);
        return;
    }
    page *first = take_trail(ch);
    if (first) put(ch, edge, first, use);
}

void checkpoint_leave(chain *ch) {
    page *first = ch->trail;
    if (!first) return;
    settle(first);
    leaf_leave(ch->cache, first);
    evict_used(ch->cache, first, true);
    leaf_enter(ch->cache, first);
}

/* ---- finding them ---------------------------------------------------------------------------- */

void checkpoint_load(chain *ch, page *edge) {
    page *first = edge->checkpoint;
    copy_parts(ch->cache, first, ch->state, true);
    if (first->trail_of != ch) settle(first); /* where one left the path, others will */
    page_touch(ch->cache, first);
}

size_t chain_branch(const chain *ch) {
    return ch->branch;
}

/* ---- keeping them ---------------------------------------------------------------------------- */

size_t chain_keep_checkpoint(chain *ch) {
    cache *c = ch->cache;
    size_t n = ch->space ? ch->len / CACHE_PAGE : 0;
    assert(!ch->kept);
    while (n > ch->n_base && !chain_page_at(ch, n - 1)->checkpoint) n--;
    if (n <= ch->n_base) return 0;
    page *first = ch->kept = chain_page_at(ch, n - 1)->checkpoint;
    if (first->pins++ == 0) {
        settle(first);
        leaf_leave(c, first);
        move_parts(c, first, PAGE_KEPT);
    }
    return n * CACHE_PAGE;
}

void checkpoint_release(chain *ch) {
    page *first = ch->kept;
    ch->kept = NULL;
    if (!first || --first->pins > 0) return;
    evict_used(ch->cache, first, true);
    move_parts(ch->cache, first, PAGE_STATE);
    leaf_enter(ch->cache, first);
}

void chain_carry(chain *ch, void *state) {
    ch->state = state;
    const chain *base = state && ch->space ? ch->space->base : NULL;
    assert(!base || base->kept);
    if (base) copy_parts(ch->cache, base->kept, state, true);
}
