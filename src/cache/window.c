/* Windows: where every layer reads the last `window` positions only, the pages before them can go
 * though what comes after them stays.
 *
 *   tree     p0 ─── p1 ─── p2 ─── p3 ─── p4 ─── p5          a path; the chain stands at its end
 *            └ hollow ┘    └ behind ┘    └── near ──┘       it reads from chain_len + 1 - window on
 *   bytes                  b7     b2     b5     b0
 *   bare     s8 s9 ...                                      structs for pages that lose theirs
 *
 * A page that no chain is near is behind, and in one of two lists, in the order in which it got
 * there. What is behind everybody goes before any idle leaf: its tokens stay in the tree, its bytes
 * go to a bare struct, which is a free page then. A match is served where the positions after it
 * find what they read; else it is cut to a length where they do. Where a chain must compute a
 * hollow page again, that gets its bytes back.
 *
 * Not behind everybody is a page that a prefix needs which somebody is likely to ask for: the end
 * of the chain's prompt, and a place where two ways part. While it is idle, it goes when it is a
 * leaf, like any other. While chains have it, it goes when there is no idle leaf any more, so that
 * a chain never needs more than its window. */
#include <assert.h>

#include "cache_internal.h"

size_t window_n_behind(const cache *c, size_t len) {
    size_t window = c->opts.window;
    return window && len >= window ? (len + 1 - window) / CACHE_PAGE : 0;
}

bool window_serves(const cache *c, size_t gap, size_t len) {
    return gap == 0 || len + 1 >= gap + c->opts.window;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static page_link *link_of(page *p, bool owners) {
    return owners ? &p->in_owners : &p->in_list;
}

static void append(page_list *list, page *p, bool owners) {
    *link_of(p, owners) = (page_link){.prev = list->last};
    *(list->last ? &link_of(list->last, owners)->next : &list->first) = p;
    list->last = p;
}

static void take_out(page_list *list, page *p, bool owners) {
    page_link at = *link_of(p, owners);
    *(at.prev ? &link_of(at.prev, owners)->next : &list->first) = at.next;
    *(at.next ? &link_of(at.next, owners)->prev : &list->last) = at.prev;
}

static bool has_quota(const page *p) {
    return p->space->owner->quota != SIZE_MAX;
}

static void enlist(cache *c, page *p, enum behind kind) {
    append(&c->behind[kind], p, false);
    if (has_quota(p)) append(&p->space->owner->behind[kind], p, true);
    page_set_behind(c, p, kind);
}

void window_unlist(cache *c, page *p) {
    if (!p->behind) return;
    take_out(&c->behind[p->behind], p, false);
    if (has_quota(p)) take_out(&p->space->owner->behind[p->behind], p, true);
    page_set_behind(c, p, BEHIND_NONE);
}

/* ---- chains ---------------------------------------------------------------------------------- */

void window_near(chain *ch, size_t i) {
    page *p = ch->nodes[i];
    ch->pages[i] = p->bytes;
    if (p->near++ == 0) window_unlist(ch->cache, p);
}

void window_leave(chain *ch, size_t i, enum behind kind) {
    page *p = ch->nodes[i];
    assert(p->near > 0 && p->bytes);
    if (--p->near == 0 && p->state == PAGE_SHARED) enlist(ch->cache, p, kind);
}

void window_hold(cache *c, page *p, size_t n, size_t from, bool on) {
    for (; n > from; n--, p = p->parent) {
        if (on && p->near++ == 0) window_unlist(c, p);
        if (!on && --p->near == 0 && p->state == PAGE_SHARED) enlist(c, p, BEHIND_CHAINS);
    }
}

/* Somebody went another way at page i, or below it within reach of its bytes. */
static bool is_fork_near(chain *ch, size_t i) {
    size_t end = i + ch->cache->opts.window / CACHE_PAGE + 2, full = ch->len / CACHE_PAGE;
    for (end = MIN(end, full); ch->n_scanned < end; ch->n_scanned++) {
        const treap_link *one = ch->nodes[ch->n_scanned]->children;
        if (one && (one->left || one->right)) ch->fork = ch->n_scanned + 1;
    }
    return ch->fork > i;
}

/* Where its prompt, should it come again, is found to end: its last token is always computed. */
static size_t prompt_end(const chain *ch) {
    return ch->sampled_from ? MIN(ch->sampled_from - 1, ch->len) : ch->len;
}

void window_advance(chain *ch) {
    cache *c = ch->cache;
    size_t n = window_n_behind(c, ch->len), n_prompt = window_n_behind(c, prompt_end(ch));
    for (; ch->n_behind < n; ch->n_behind++) {
        size_t i = ch->n_behind;
        page *p = ch->nodes[i];
        ch->pages[i] = window_nothing(c);
        if (!ch->space) { /* nobody will ever find it */
            page_give(c, p);
            ch->nodes[i] = NULL;
        } else if (p->bytes) {
            bool wanted = is_fork_near(ch, i) || i >= n_prompt;
            window_leave(ch, i, wanted ? BEHIND_CHAINS : BEHIND_ALL);
        }
    }
}

size_t window_reach(const chain *ch, size_t n) {
    for (size_t i = n; i > window_n_behind(ch->cache, n * CACHE_PAGE); i--)
        if (!ch->nodes[i - 1]->bytes) n = i - 1;
    return n;
}

void chain_keep_prompt(chain *ch) {
    size_t n = window_n_behind(ch->cache, prompt_end(ch));
    while (ch->space && ch->n_behind > n && ch->nodes[ch->n_behind - 1]->bytes)
        window_near(ch, --ch->n_behind);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void make_hollow(cache *c, page *p) {
    page *bare = c->bare;
    void *bytes = p->bytes;
    c->bare = bare->next_free;
    window_unlist(c, p);
    ghost_note(c, p, CACHE_LOSS_WINDOW);
    page_set_bytes(c, p, NULL);
    bare->next_free = c->free;
    c->free = bare;
    page_set_bytes(c, bare, bytes);
    page_move(c, bare, PAGE_FREE);
    c->n_given_up++;
}

bool window_give_up(cache *c, cache_owner *owner, enum behind kind, const page *keep) {
    page *p = owner ? owner->behind[kind].first : c->behind[kind].first;
    if (p && p == keep) p = link_of(p, owner)->next;
    if (!p || !c->bare) return false;
    make_hollow(c, p);
    return true;
}

void window_fill(cache *c, page *hollow, page *own) {
    void *bytes = own->bytes;
    if (hollow->state == PAGE_IDLE && hollow->used) { /* elsewhere it might have been found */
        rival_count(c, false, rival_take(c, hollow->used));
        hollow->used = 0;
    }
    page_set_bytes(c, own, NULL);
    page_set_bytes(c, hollow, bytes);
    ghost_back(c, hollow);
}

size_t cache_longest(const cache *c, size_t n_pages) {
    size_t window = c->opts.window, near = (window + CACHE_PAGE - 2) / CACHE_PAGE + 1;
    return (n_pages + (window && n_pages >= near ? c->n_bare : 0)) * CACHE_PAGE;
}
