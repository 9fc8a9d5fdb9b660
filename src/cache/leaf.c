/* Idle leaves: pages that are used by nobody and have nothing below them. Whatever goes, goes as
 * one of these. Each stands in up to three orders:
 *
 *   which goes next when room is needed      all of them                      evict.c
 *   which expires next                       those that expire                c->expiring
 *   which of its owner's goes next           those of owners with a quota     owner->leaves
 *
 * A parent expires no earlier than its children, for whoever had a child had the parent as well. So
 * what expires is always a leaf, or becomes one first. A page that one chain began and another,
 * whose text is to be forgotten sooner, went on with, is cut back to its beginning (n_low) when its
 * time is over. */
#include <assert.h>
#include <math.h>

#include "cache_internal.h"

static page *expiring_page(treap_link *link) {
    return link ? (page *)((char *)link - offsetof(page, by_expiry)) : NULL;
}

static page *owned_page(treap_link *link) {
    return link ? (page *)((char *)link - offsetof(page, by_use)) : NULL;
}

static int compare(const page *a, const page *b) {
    return a == b ? 0 : a < b ? -1 : 1;
}

static int order_expiry(const void *key, const treap_link *item) {
    const page *a = key, *b = expiring_page((treap_link *)item);
    if (a->until != b->until) return a->until < b->until ? -1 : 1;
    return compare(a, b);
}

static int order_use(const void *key, const treap_link *item) {
    const page *a = key, *b = owned_page((treap_link *)item);
    if (a->used != b->used) return a->used < b->used ? -1 : 1;
    return compare(a, b);
}

static bool has_quota(const page *p) {
    return p->space->owner->quota != SIZE_MAX;
}

static void enter_owner(cache *c, page *p) {
    p->by_use.priority = cache_draw(c);
    treap_insert(&p->space->owner->leaves, &p->by_use, p, order_use);
}

void leaf_enter(cache *c, page *p) {
    evict_add(c, p);
    if (has_quota(p)) enter_owner(c, p);
    if (isinf(p->until)) return;
    p->by_expiry.priority = cache_draw(c);
    treap_insert(&c->expiring, &p->by_expiry, p, order_expiry);
}

void leaf_leave(cache *c, page *p) {
    evict_remove(c, p);
    if (has_quota(p)) treap_remove(&p->space->owner->leaves, &p->by_use, p, order_use);
    if (!isinf(p->until)) treap_remove(&c->expiring, &p->by_expiry, p, order_expiry);
}

void page_touch(cache *c, page *p) {
    bool leaf = p->state == PAGE_STATE || (p->state == PAGE_IDLE && !p->children);
    bool owned = leaf && has_quota(p);
    if (owned) treap_remove(&p->space->owner->leaves, &p->by_use, p, order_use);
    if (leaf) evict_remove(c, p);
    if (p->state == PAGE_IDLE) evict_return(c, p);
    c->clock++;
    evict_hit(c, p);
    evict_used(c, p, true);
    if (leaf) evict_add(c, p);
    if (owned) enter_owner(c, p);
}

/* An idle page goes for another reason than that room was needed: so it would have elsewhere. */
static void renounce(cache *c, const page *p) {
    if (p->used) rival_take(c, p->used);
}

static void take_out(cache *c, page *p) {
    if (p->checkpoint) checkpoint_free(c, p->checkpoint);
    tree_remove(p);
}

/* A page that is in no tree and no order any more; and what is hollow above it. */
static page *give(cache *c, page *p, enum cache_loss why) {
    for (;;) {
        page *parent = p->parent;
        cache_space *space = p->space;
        page_give(c, p);
        if (!parent) space_release(c, space);
        if (!parent || parent->state != PAGE_IDLE || parent->children) return NULL;
        if (parent->bytes) {
            window_unlist(c, parent);
            leaf_enter(c, parent);
            return parent;
        }
        if (why != CACHE_LOSS_NONE) ghost_note(c, parent, why);
        if (why != CACHE_LOSS_ROOM) renounce(c, parent);
        take_out(c, parent);
        p = parent;
    }
}

page *leaf_free_hollow(cache *c, page *p) {
    renounce(c, p);
    take_out(c, p);
    return give(c, p, CACHE_LOSS_NONE);
}

page *leaf_free(cache *c, page *leaf, enum cache_loss why) {
    assert(leaf->state == PAGE_IDLE && !leaf->children);
    if (why != CACHE_LOSS_NONE) ghost_note(c, leaf, why);
    if (why != CACHE_LOSS_ROOM) renounce(c, leaf);
    if (why > CACHE_LOSS_QUOTA && c->curve) curve_forget(c->curve, ghost_of(leaf));
    leaf_leave(c, leaf);
    take_out(c, leaf);
    return give(c, leaf, why);
}

void page_inherit(cache *c, page *p, size_t n, double until) {
    if (until <= p->until) return;
    if (n < p->n) { /* of two such parts the one that is wanted longer, or else the longer one */
        if (until < p->until_low || (until == p->until_low && n < p->n_low)) return;
        p->n_low = (uint32_t)n;
        p->until_low = until;
        return;
    }
    bool leaf = p->state == PAGE_IDLE && !p->children;
    if (leaf) leaf_leave(c, p);
    p->until = until;
    if (leaf) leaf_enter(c, p);
}

/* Cuts an idle leaf back to its first n_low tokens. [6] */
static void shorten(cache *c, page *p) {
    page *below, *above;
    if (p->checkpoint) checkpoint_free(c, p->checkpoint);
    leaf_leave(c, p);
    tree_remove(p);
    p->n = p->n_low;
    p->until = p->until_low;
    p->n_low = 0;
    p->until_low = 0;
    p->sampled &= ((uint64_t)1 << p->n) - 1;
    tree_neighbours(p, &below, &above);
    page *twin = tree_covers(below, p) ? below : tree_covers(above, p) ? above : NULL;
    if (twin && twin->bytes) {
        page_inherit(c, twin, p->n, p->until);
        renounce(c, p);
        give(c, p, CACHE_LOSS_NONE);
        return;
    }
    tree_insert(c, p);
    leaf_enter(c, p);
}

void leaf_expire(cache *c, page *leaf, enum cache_loss why) {
    if (!leaf->n_low || leaf->until_low <= c->now) {
        leaf_free(c, leaf, why);
        return;
    }
    ghost_note(c, leaf, why);
    shorten(c, leaf);
}

bool leaf_evict(cache *c, cache_owner *owner, const page *keep) {
    page *leaf;
    if (owner) {
        leaf = owned_page(treap_first(owner->leaves));
        if (leaf && leaf == keep) leaf = owned_page(treap_above(owner->leaves, leaf, order_use));
    } else {
        leaf = evict_next(c, keep);
    }
    if (!leaf) return false;
    evict_chosen(c, leaf);
    if (leaf->state == PAGE_STATE)
        checkpoint_free(c, leaf);
    else
        leaf_free(c, leaf, owner ? CACHE_LOSS_QUOTA : CACHE_LOSS_ROOM);
    c->evictions++;
    return true;
}

void cache_tick(cache *c, double now) {
    c->now = now;
    for (page *p; (p = expiring_page(treap_first(c->expiring))) && p->until <= now; c->expired++)
        leaf_expire(c, p, CACHE_LOSS_EXPIRED);
}

double cache_next_expiry(const cache *c) {
    const page *p = expiring_page(treap_first(c->expiring));
    return p ? p->until : INFINITY;
}

static bool is_of(const page *p, const cache_space *space, const cache_owner *owner) {
    return (!space || p->space == space) && (!owner || p->space->owner == owner);
}

/* Pages that are in use lose their checkpoints only. */
static void drop(cache *c, const cache_space *space, const cache_owner *owner) {
    for (size_t i = 0; i < page_n_nodes(c); i++) {
        page *p = &c->pages[i];
        bool shared = p->state == PAGE_SHARED && is_of(p, space, owner);
        if (shared && p->checkpoint && p->checkpoint->state == PAGE_STATE)
            checkpoint_free(c, p->checkpoint);
        while (p && p->state == PAGE_IDLE && !p->children && is_of(p, space, owner))
            p = leaf_free(c, p, CACHE_LOSS_DROPPED);
    }
}

void cache_drop(cache *c, cache_space *space) {
    drop(c, space, NULL);
}

void cache_drop_owner(cache *c, cache_owner *owner) {
    drop(c, NULL, owner);
}

void cache_drop_all(cache *c) {
    drop(c, NULL, NULL);
}
