/* Chains: a sequence's pages from position 0 up.
 *
 *   index      0        1        2        3        4
 *           SHARED   SHARED   FILLING   HELD     HELD
 *           |--------- len ------|                  |
 *           full, in the tree    `- its own, partly published
 *
 * Pages before the one where len stands are full, in the tree, each the child of the one before;
 * the page where len stands and those after it belong to this chain alone. In a namespace with a
 * base, the first n_base pages are those of the base: in the tree of another namespace, pinned by
 * another chain for longer than this one lives; the page after them is a root of its own.
 *
 * With a window, the first n_behind pages are behind it: the chain still has them as a path of the
 * tree, but does not read them; they may have lost their bytes (window.c). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "cache_internal.h"

enum { FIRST_CAP = 16 };

/* Bytes of the arrays of a chain. */
static size_t arrays_cost(size_t cap) {
    return cap ? cap * (sizeof(void *) + sizeof(page *)) + BLOCK_COST : 0;
}

/* NULL: page i is the first of its namespace. */
static page *parent_at(const chain *ch, size_t i) {
    return i > ch->n_base ? chain_page_at(ch, i - 1) : NULL;
}

static void set_page(chain *ch, size_t i, page *p) {
    assert(i <= ch->n_pages && i < ch->cap);
    ch->nodes[i] = p;
    ch->pages[i] = window_nothing(ch->cache);
    if (p->bytes) window_near(ch, i);
    if (i == ch->n_pages) ch->n_pages++;
}

/* Makes room for n pages in the arrays, which are one block. On failure nothing changed. */
static int grow(chain *ch, size_t n) {
    if (n <= ch->cap) return 0;
    size_t cap = MAX(n, MIN(MAX(2 * ch->cap, FIRST_CAP), page_n_nodes(ch->cache)));
    size_t more = arrays_cost(cap) - arrays_cost(ch->cap);
    TRY(cache_charge(ch->cache, more));
    void **pages = mem_resize(ch->pages, cap, sizeof *pages + sizeof *ch->nodes);
    if (!pages) {
        cache_refund(ch->cache, more);
        return ICP_ENOMEM;
    }
    ch->pages = pages;
    ch->nodes = memmove(pages + cap, pages + ch->cap, ch->n_pages * sizeof *ch->nodes);
    ch->cap = cap;
    return 0;
}

/* The fingerprint under which the curve knows a page in the tree; not worth computing without. */
static uint64_t curve_print(const cache *c, const page *p) {
    return c->curve ? ghost_of(p) : 0;
}

/* ---- pins ------------------------------------------------------------------------------------ */

/* One more chain has a full page, or takes over a partial one that nobody has. */
static void pin(cache *c, page *p) {
    if (p->pins++ > 0) return;
    evict_return(c, p);
    if (!p->children) leaf_leave(c, p);
    if (p->n < CACHE_PAGE) c->adoptions++;
    page_move(c, p, p->n < CACHE_PAGE ? PAGE_FILLING : PAGE_SHARED);
}

static void make_idle(chain *ch, page *p, bool retire) {
    cache *c = ch->cache;
    p->pins = 0;
    page_move(c, p, PAGE_IDLE);
    evict_used(c, p, !retire);
    if (p->behind == BEHIND_CHAINS || !p->children) window_unlist(c, p);
    if (p->children) return;
    if (!p->bytes) {
        leaf_free_hollow(c, p);
        return;
    }
    leaf_enter(c, p);
    if (p->until <= c->now) leaf_expire(c, p, CACHE_LOSS_UNSTORED);
}

/* The chain's own page goes: what it holds is found elsewhere, or was never published. */
static void discard(cache *c, page *own) {
    if (own->state == PAGE_FILLING) tree_remove(own);
    page_give(c, own);
}

/* A page that begins with all of `from`, which goes, takes over how long that is wanted, and which
 * of its tokens were sampled. */
static void inherit(cache *c, page *to, const page *from) {
    page_inherit(c, to, from->n, from->until);
    if (from->n_low) page_inherit(c, to, from->n_low, from->until_low);
    to->sampled |= from->sampled;
}

/* A partial page stays as cache unless a sibling begins with all that it holds. [6] */
static void leave_partial(chain *ch, page *own, bool retire) {
    cache *c = ch->cache;
    page *below, *above;
    tree_remove(own);
    tree_neighbours(own, &below, &above);
    page *twin = tree_covers(below, own) ? below : tree_covers(above, own) ? above : NULL;
    if (twin && twin->bytes) {
        inherit(c, twin, own);
        page_give(c, own);
        c->duplicates++;
        return;
    }
    tree_insert(c, own);
    make_idle(ch, own, retire);
}

static void unpin(chain *ch, size_t i, bool retire) {
    page *p = ch->nodes[i];
    if (!p) return;
    if (p->state == PAGE_HELD) {
        page_give(ch->cache, p);
        return;
    }
    if (ch->until > ch->cache->now) curve_use(ch->cache->curve, curve_print(ch->cache, p));
    p->until = MAX(p->until, ch->until); /* it has a pin: is in no order by expiry */
    if (p->state == PAGE_FILLING) {
        p->near = 0;
        leave_partial(ch, p, retire);
        return;
    }
    if (--p->pins == 0) {
        p->near = 0;
        make_idle(ch, p, retire);
    } else if (i >= ch->n_behind) {
        window_leave(ch, i, BEHIND_CHAINS);
    }
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* An idle partial page that own begins with is of no more use. [6] */
static void drop_covered(cache *c, page *sibling, page *own) {
    if (!sibling || sibling->state != PAGE_IDLE || !tree_covers(own, sibling)) return;
    curve_forget(c->curve, curve_print(c, sibling));
    inherit(c, own, sibling);
    leaf_free(c, sibling, CACHE_LOSS_NONE);
    c->duplicates++;
}

/* The chain writes on in a page: what it holds by now may be wanted longer than what comes. */
static void note_until(page *own, double until) {
    double before = own->until;
    if (own->n == 0 || before <= until) {
        own->until = MAX(before, until);
        return;
    }
    own->until = until;
    if (before < own->until_low) return;
    own->n_low = own->n;
    own->until_low = before;
}

static uint64_t sampled_bits(const chain *ch, size_t i, size_t from, size_t n) {
    uint64_t bits = 0;
    for (size_t k = from; k < from + n; k++)
        bits |= (uint64_t)(i * CACHE_PAGE + k >= ch->sampled_from) << k;
    return bits;
}

/* The chain's own page i holds n more tokens: it moves to its new place among its siblings, or is
 * given up for one that is equal and full. */
static void append(chain *ch, size_t i, const int32_t *tokens, size_t n) {
    cache *c = ch->cache;
    page *own = chain_page_at(ch, i), *below, *above;
    assert(own->state == PAGE_HELD || own->state == PAGE_FILLING);
    if (own->state == PAGE_FILLING) tree_remove(own);
    note_until(own, ch->until);
    own->parent = parent_at(ch, i);
    own->depth = (uint32_t)i;
    memcpy(own->tokens + own->n, tokens, n * sizeof *tokens);
    own->sampled |= sampled_bits(ch, i, own->n, n);
    own->n += n;

    tree_neighbours(own, &below, &above);
    if (own->n == CACHE_PAGE) {
        own->print = ghost_print(ghost_parent(own->space, own->parent), own->tokens, CACHE_PAGE);
        page *twin = tree_covers(below, own) ? below : tree_covers(above, own) ? above : NULL;
        if (twin) {
            if (!twin->bytes) window_fill(c, twin, own);
            pin(c, twin);
            inherit(c, twin, own);
            page_give(c, own);
            set_page(ch, i, twin);
            c->duplicates++;
            return;
        }
        ghost_back(c, own);
    }
    drop_covered(c, below, own);
    drop_covered(c, above, own);
    tree_insert(c, own);
    page_move(c, own, own->n < CACHE_PAGE ? PAGE_FILLING : PAGE_SHARED);
}

void chain_publish(chain *ch, const int32_t *tokens, size_t n) {
    assert(ch->len + n <= ch->n_pages * CACHE_PAGE);
    while (n > 0) {
        size_t i = ch->len / CACHE_PAGE;
        size_t now = MIN(n, (i + 1) * CACHE_PAGE - ch->len);
        if (ch->space) append(ch, i, tokens, now);
        ch->len += now;
        tokens += now;
        n -= now;
    }
    window_advance(ch);
}

/* Bytes for a page: of one that is behind everybody, of an idle leaf, of one that chains have
 * behind them. Of one owner, or of anybody. False: nothing but keep could be had. */
static bool make_room(cache *c, cache_owner *owner, const page *keep) {
    if (window_give_up(c, owner, BEHIND_ALL, keep)) return true;
    if (leaf_evict(c, owner, keep)) return true;
    if (!c->n_behind) return false;
    while (!c->bare && leaf_evict(c, NULL, keep)) continue; /* there were hollow pages above it */
    return window_give_up(c, owner, BEHIND_ALL, keep) ||
           window_give_up(c, owner, BEHIND_CHAINS, keep);
}

page *chain_obtain(chain *ch, const page *keep) {
    cache *c = ch->cache;
    cache_owner *owner = ch->space ? ch->space->owner : NULL;
    if (owner && owner->n_pages >= owner->quota && !make_room(c, owner, keep)) return NULL;
    while (!c->free && make_room(c, NULL, keep)) continue;
    return page_take(c, ch->space);
}

int chain_reserve(chain *ch, size_t n_tokens) {
    cache *c = ch->cache;
    size_t n = n_tokens / CACHE_PAGE + (n_tokens % CACHE_PAGE != 0);
    if (n <= ch->n_pages) return 0;
    const cache_owner *owner = ch->space ? ch->space->owner : NULL;
    if (n - ch->n_behind > c->n_pages) return ICP_ELIMIT;
    if (owner && n - MAX(ch->n_base, ch->n_behind) > owner->quota) return ICP_ELIMIT;
    if (n - ch->n_pages > cache_obtainable(c, owner)) return ICP_EAGAIN;
    TRY(grow(ch, n));
    while (ch->n_pages < n) set_page(ch, ch->n_pages, chain_obtain(ch, NULL));
    return 0;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* Page i becomes `found`, which many may have (full) or this chain takes over (partial, idle). */
static void attach(chain *ch, size_t i, page *found) {
    if (found->n < CACHE_PAGE) curve_forget(ch->cache->curve, curve_print(ch->cache, found));
    pin(ch->cache, found);
    evict_hit(ch->cache, found);
    if (i < ch->n_pages && found->bytes) discard(ch->cache, chain_page_at(ch, i));
    if (i < ch->n_pages && !found->bytes) unpin(ch, i, false); /* it may be found instead */
    set_page(ch, i, found);
}

/* Copies the first n tokens of a page that cannot be had itself: others write or need its rest.
 * What the chain's own page already held is copied once more, over the same bytes. */
static bool copy_from(chain *ch, size_t i, page *donor, const int32_t *tokens, size_t n) {
    cache *c = ch->cache;
    if (i == ch->n_pages) {
        page *fresh = ch->spare ? ch->spare : chain_obtain(ch, donor);
        ch->spare = NULL;
        if (!fresh) return false;
        set_page(ch, i, fresh);
    }
    page *own = chain_page_at(ch, i);
    c->opts.copy(c->opts.copy_arg, own->bytes, donor->bytes, (int)n);
    c->copies++;
    page_touch(c, donor);
    uint64_t copied = n < CACHE_PAGE ? ((uint64_t)1 << n) - 1 : UINT64_MAX;
    own->sampled |= donor->sampled & copied;
    append(ch, i, tokens + own->n, n - own->n);
    return true;
}

/* Matches more of the page where the chain ends; the cases are those of README.md. True when that
 * page is full now. donor: what is to be found where the match ends inside a page; NULL: not known
 * yet. */
static bool match_page(chain *ch, const int32_t *tokens, size_t end, page *donor) {
    size_t i = ch->len / CACHE_PAGE, start = i * CACHE_PAGE, n = MIN(end - start, CACHE_PAGE);
    if (grow(ch, i + 1) < 0) return false; /* first of all, for it may evict */
    page *found = donor;
    if (!donor || n == CACHE_PAGE)
        found = tree_find(ch->space, parent_at(ch, i), tokens + start, n, &n);
    if (start + n <= ch->len) return false; /* a */
    bool whole = n == found->n && (n == CACHE_PAGE || found->state == PAGE_IDLE);
    if (whole)
        attach(ch, i, found);                             /* b, c */
    else if (!copy_from(ch, i, found, tokens + start, n)) /* d */
        return false;
    ch->len = start + n;
    return n == CACHE_PAGE;
}

static reach look(const chain *ch, const int32_t *tokens, size_t end) {
    size_t at = ch->len - ch->len % CACHE_PAGE;
    return tree_reach(ch->cache, ch->space, parent_at(ch, at / CACHE_PAGE), at, tokens, end,
                      ch->cache->n_parts > 0);
}

/* Whether a match that ends there is one more page's copy. */
static bool needs_spare(const chain *ch, const reach *r) {
    size_t n = r->len % CACHE_PAGE;
    if (r->len <= ch->len || n == 0 || r->len / CACHE_PAGE < ch->n_pages) return false;
    return r->donor->state != PAGE_IDLE || r->donor->n > n;
}

/* A page for the copy at the end of a match; not one that the match itself needs. */
static page *obtain_spare(chain *ch, const reach *r) {
    cache *c = ch->cache;
    size_t n = r->len / CACHE_PAGE, from = MAX(window_n_behind(c, r->len), ch->len / CACHE_PAGE);
    window_hold(c, r->donor->parent, n, from, true);
    page *spare = chain_obtain(ch, r->donor);
    window_hold(c, r->donor->parent, n, from, false);
    return spare;
}

/* Where a match ends that a state or a window bounds, with room for all up to there: a shorter one
 * might be of no use. */
static size_t find_end(chain *ch, const int32_t *tokens, size_t end, page **donor) {
    reach r = look(ch, tokens, end);
    if (grow(ch, (r.len + CACHE_PAGE - 1) / CACHE_PAGE) < 0) return ch->len;
    r = look(ch, tokens, end); /* some of it may have been evicted for that; and for the spare */
    while (!ch->spare && needs_spare(ch, &r)) {
        ch->spare = obtain_spare(ch, &r);
        r = look(ch, tokens, ch->spare ? end : r.len - r.len % CACHE_PAGE);
    }
    *donor = r.donor;
    ch->branch = ch->cache->n_parts && r.whole > MAX(r.len, ch->len) ? r.whole : 0;
    return r.len;
}

size_t chain_match(chain *ch, const int32_t *tokens, size_t n, size_t limit) {
    size_t end = MIN(n, limit), before = ch->len;
    page *donor = NULL;
    if (!ch->space || before >= end) return before;
    if (ch->cache->n_parts || ch->cache->opts.window) end = find_end(ch, tokens, end, &donor);
    while (ch->len < end && match_page(ch, tokens, end, donor)) continue;
    if (ch->cache->n_parts && ch->len > before)
        checkpoint_load(ch, chain_page_at(ch, ch->len / CACHE_PAGE - 1));
    if (ch->spare) page_give(ch->cache, ch->spare);
    ch->spare = NULL;
    window_advance(ch);
    return ch->len;
}

/* First what would have been found, then that it is used: from the end, as chain_close does. */
void chain_asked(chain *ch, size_t n, size_t n_hit) {
    curve *curve = ch->space ? ch->cache->curve : NULL;
    size_t n_pages = MIN(n, ch->len) / CACHE_PAGE;
    for (size_t i = 0; curve && i < n_pages; i++)
        curve_ask(curve, chain_page_at(ch, i)->print, i < n_hit / CACHE_PAGE);
    for (size_t i = n_pages; curve && i-- > 0;) curve_use(curve, chain_page_at(ch, i)->print);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Goes on with full pages of another chain, to page n. */
static int share(chain *ch, const chain *with, size_t n) {
    TRY(grow(ch, n));
    for (size_t i = ch->n_pages; i < n; i++) {
        page *p = chain_page_at(with, i);
        p->pins++;
        set_page(ch, i, p);
    }
    ch->len = ch->n_pages * CACHE_PAGE;
    window_advance(ch);
    return 0;
}

/* The pages that all chains of the namespace begin with are pinned by one that outlives this. */
static int begin_with(chain *ch, const chain *base) {
    TRY(share(ch, base, base->len / CACHE_PAGE));
    ch->n_base = ch->n_pages;
    return 0;
}

int chain_open(cache *c, cache_space *space, chain **out) {
    TRY(cache_charge(c, sizeof(chain) + BLOCK_COST));
    chain *ch = mem_zero(1, sizeof *ch);
    if (!ch) {
        cache_refund(c, sizeof *ch + BLOCK_COST);
        return ICP_ENOMEM;
    }
    ch->cache = c;
    ch->until = INFINITY;
    ch->sampled_from = SIZE_MAX;
    if (space && !c->opts.no_reuse) {
        ch->space = space;
        space_ref(c, space);
    }
    ch->next = c->chains;
    if (ch->next) ch->next->prev = ch;
    c->chains = ch;
    int rc = ch->space && space->base ? begin_with(ch, space->base) : 0;
    if (rc < 0)
        chain_close(&ch);
    else
        *out = ch;
    return rc;
}

int chain_open_on(const chain *of, size_t n, double until, chain **out) {
    TRY(chain_open(of->cache, of->space, out));
    chain *ch = *out;
    chain_keep_until(ch, until);
    int rc = of->space ? share(ch, of, window_reach(of, MIN(n, of->len) / CACHE_PAGE)) : 0;
    for (size_t i = ch->n_base; i < ch->n_pages; i++)
        page_inherit(ch->cache, chain_page_at(ch, i), CACHE_PAGE, until);
    if (rc < 0) chain_close(out);
    return rc;
}

void chain_keep_until(chain *ch, double time) {
    ch->until = time;
}

void chain_retire(chain *ch) {
    ch->retired = true;
}

void chain_sampled_from(chain *ch, size_t from) {
    ch->sampled_from = from;
}

void chain_trim(chain *ch) {
    size_t n = (ch->len + CACHE_PAGE - 1) / CACHE_PAGE;
    while (ch->n_pages > n) page_give(ch->cache, chain_page_at(ch, --ch->n_pages));
}

/* The first page of those that this chain alone has gone through: below the last branch. */
static size_t last_branch(const chain *ch) {
    size_t i = ch->n_pages;
    while (i > ch->n_base) {
        const page *p = chain_page_at(ch, i - 1);
        const treap_link *only = p->children;
        if (p->pins > 1 || (only && (only->left || only->right || i == ch->n_pages))) break;
        i--;
    }
    return i;
}

void chain_close(chain **chp) {
    chain *ch = *chp;
    if (!ch) return;
    cache *c = ch->cache;
    c->clock++;
    size_t from = ch->retired && ch->space ? last_branch(ch) : SIZE_MAX;
    checkpoint_leave(ch);
    checkpoint_release(ch);
    for (size_t i = ch->n_pages; i-- > ch->n_base;) unpin(ch, i, i >= from);
    for (size_t i = ch->n_base; i-- > 0;) {
        chain_page_at(ch, i)->pins--;
        if (i >= ch->n_behind) window_leave(ch, i, BEHIND_CHAINS);
    }
    if (ch->space) space_unref(c, ch->space);
    if (ch->next) ch->next->prev = ch->prev;
    *(ch->prev ? &ch->prev->next : &c->chains) = ch->next;
    cache_refund(c, arrays_cost(ch->cap));
    cache_refund(c, sizeof *ch + BLOCK_COST);
    mem_free(ch->pages);
    mem_free(ch);
    *chp = NULL;
    if (page_excess(c)) page_confine(c, c->n_most);
}

size_t chain_len(const chain *ch) {
    return ch->len;
}

size_t chain_n_pages(const chain *ch) {
    return ch->n_pages;
}

size_t chain_n_behind(const chain *ch) {
    return ch->n_behind;
}

page_id chain_page(const chain *ch, size_t i) {
    return (page_id){(uint32_t)(chain_page_at(ch, i) - ch->cache->pages)};
}

void *const *chain_pages(const chain *ch) {
    return ch->pages;
}
