/* The radix tree over token ids. A node is a page; its tokens are the edge that leads to it.
 *
 *   namespace ──┬─ [7 3 .. 9] full ──┬─ [4 4 1]          siblings in lexicographic order,
 *               │                    └─ [4 8 .. 2] full   a prefix before what it begins
 *               └─ [7 5]
 *
 * Siblings may begin alike: with pages of fixed positions a common prefix shorter than a page is
 * no node of its own. In lexicographic order, whoever shares most with a query stands next to the
 * place where the query itself would stand: one descent finds it, and two comparisons. */
#include <string.h>

#include "cache_internal.h"

typedef struct page_key {
    const int32_t *tokens;
    size_t n;
    const page *self; /* orders pages of equal tokens; NULL for a query, which comes first */
} page_key;

static size_t common_prefix(const int32_t *a, const int32_t *b, size_t n) {
    size_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

static int order_pages(const void *key, const treap_link *item) {
    const page_key *k = key;
    const page *p = tree_page((treap_link *)item);
    size_t shorter = MIN(k->n, p->n), same = common_prefix(k->tokens, p->tokens, shorter);
    if (same < shorter) return k->tokens[same] < p->tokens[same] ? -1 : 1;
    if (k->n != p->n) return k->n < p->n ? -1 : 1;
    return k->self == p ? 0 : k->self < p ? -1 : 1;
}

static page_key key_of(const page *p) {
    return (page_key){p->tokens, p->n, p};
}

static treap_link **siblings(page *p) {
    return p->parent ? &p->parent->children : &p->space->children;
}

page *tree_find(const cache_space *space, const page *parent, const int32_t *tokens, size_t n,
                size_t *common) {
    treap_link *below, *above;
    page_key key = {tokens, n, NULL};
    treap_seek(tree_children(space, parent), &key, order_pages, &below, &above);

    page *best = NULL, *next[] = {tree_page(below), tree_page(above)};
    *common = 0;
    for (int i = 0; i < 2; i++) {
        if (!next[i]) continue;
        size_t same = common_prefix(tokens, next[i]->tokens, MIN(n, next[i]->n));
        if (same > *common) {
            best = next[i];
            *common = same;
        }
    }
    return best;
}

/* Of the siblings next to a hollow one, that with bytes which shares most with the tokens; NULL:
 * none near it shares any. */
static page *with_bytes(page *hollow, const int32_t *tokens, size_t n, size_t *common) {
    enum { SIBLINGS = 8 }; /* on either side */
    page *best = NULL;
    *common = 0;
    for (int side = 0; side < 2; side++) {
        page *p = hollow;
        for (int i = 0; p && !p->bytes && i < SIBLINGS; i++)
            p = side ? tree_after(p) : tree_before(p);
        size_t same = p && p->bytes ? common_prefix(tokens, p->tokens, MIN(n, p->n)) : 0;
        if (same <= *common) continue;
        best = p;
        *common = same;
    }
    return best;
}

/* One page more. False: the search ends in it. */
static bool reach_page(const cache *c, const cache_space *space, const int32_t *tokens, size_t n,
                       bool states, reach *r, size_t *gap) {
    size_t left = MIN(n - r->most, CACHE_PAGE), common, usable;
    size_t start = r->most;
    page *next = r->best = tree_find(space, r->at, tokens + start, left, &common);
    page *donor = next;
    usable = common;
    if (next && !next->bytes) donor = with_bytes(next, tokens + start, left, &usable);
    bool fits = !states || (usable == CACHE_PAGE && donor->checkpoint);
    if (usable > 0 && fits && window_serves(c, *gap, start + usable)) {
        r->len = start + usable;
        r->donor = donor;
    }
    r->most = start + common;
    if (common < CACHE_PAGE) return false;
    if (!next->bytes) {
        r->gap = next;
        *gap = r->most;
    }
    r->at = next;
    r->whole = r->most;
    return true;
}

reach tree_reach(const cache *c, const cache_space *space, page *from, size_t at,
                 const int32_t *tokens, size_t n, bool states) {
    reach r = {.at = from, .len = at, .whole = at, .most = at};
    size_t gap = 0;
    while (reach_page(c, space, tokens, n, states, &r, &gap)) continue;
    return r;
}

void tree_insert(cache *c, page *p) {
    page_key key = key_of(p);
    p->link.priority = cache_draw(c);
    treap_insert(siblings(p), &p->link, &key, order_pages);
    p->space->n_pages++;
}

void tree_remove(page *p) {
    page_key key = key_of(p);
    treap_remove(siblings(p), &p->link, &key, order_pages);
    p->space->n_pages--;
}

page *tree_after(page *p) {
    page_key key = key_of(p);
    return tree_page(treap_above(*siblings(p), &key, order_pages));
}

page *tree_before(page *p) {
    page_key key = key_of(p);
    return tree_page(treap_below(*siblings(p), &key, order_pages));
}

void tree_neighbours(page *p, page **below, page **above) {
    treap_link *lower, *upper;
    page_key key = key_of(p);
    treap_seek(*siblings(p), &key, order_pages, &lower, &upper);
    *below = tree_page(lower);
    *above = tree_page(upper);
}

bool tree_covers(const page *a, const page *b) {
    return a && a->n >= b->n && memcmp(a->tokens, b->tokens, b->n * sizeof *b->tokens) == 0;
}
