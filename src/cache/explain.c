/* Questions: what is there, why something is not, and what it all looks like. */
#include <math.h>
#include <string.h>

#include "cache_internal.h"

/* ---- what is there --------------------------------------------------------------------------- */

static reach descend(const cache *c, const cache_space *space, const int32_t *tokens, size_t n,
                     bool states) {
    return tree_reach(c, space, NULL, MIN(n, cache_space_base(space)), tokens, n, states);
}

size_t cache_probe(const cache *c, const cache_space *space, const int32_t *tokens, size_t n) {
    return descend(c, space, tokens, n, c->n_parts > 0).len;
}

size_t cache_probe_others(const cache *c, const cache_space *space, const int32_t *tokens, size_t n,
                          size_t most, const void **key) {
    size_t longest = 0;
    treap_link *stack[64]; /* deeper than a treap ever gets: what does not fit is not looked at */
    size_t depth = 0;
    stack[depth++] = space->owner->spaces;
    while (depth > 0 && most > 0) {
        treap_link *link = stack[--depth];
        const cache_space *s = space_of(link);
        if (!s) continue;
        if (depth + 2 <= COUNT_OF(stack)) {
            stack[depth++] = link->left;
            stack[depth++] = link->right;
        }
        if (s == space || s->base) continue; /* a base is everybody's */
        size_t len = cache_probe(c, s, tokens, n);
        most--;
        if (len <= longest) continue;
        longest = len;
        *key = s->key;
    }
    return longest;
}

/* ---- why something is not -------------------------------------------------------------------- */

/* The first ghost of a page that went on from here with these tokens: of the whole page, or of
 * whatever part of it there was, the longest first. Returns its tokens, or 0. */
static size_t lost_page(const cache *c, uint64_t before, const int32_t *tokens, size_t least,
                        size_t most, const ghost **found) {
    for (size_t n = most; n > least; n--) {
        *found = ghost_find(c, ghost_print(before, tokens, n));
        if (*found) return n;
    }
    return 0;
}

static void find_loss(const cache *c, const cache_space *space, const page *at,
                      const int32_t *tokens, size_t n, cache_miss *out) {
    size_t start = out->len - out->len % CACHE_PAGE, least = out->len % CACHE_PAGE;
    uint64_t print = ghost_parent(space, at);
    for (;;) {
        const ghost *g;
        size_t lost = lost_page(c, print, tokens + start, least, MIN(n - start, CACHE_PAGE), &g);
        if (lost == 0) return;
        if (out->loss == CACHE_LOSS_NONE) {
            out->loss = g->loss;
            out->lost_at = g->at;
            out->lost_pinned = g->pinned;
        }
        out->lost_len = start + lost;
        if (lost < CACHE_PAGE) return;
        print = g->print;
        start += CACHE_PAGE;
        least = 0;
    }
}

/* What goes on reads what is gone. */
static void cut_by_window(const cache *c, const reach *r, cache_miss *out) {
    const page *hollow = r->gap ? r->gap : r->best;
    const ghost *g = ghost_find(c, hollow->print);
    out->loss = CACHE_LOSS_WINDOW;
    out->lost_len = r->most;
    out->lost_at = g ? g->at : hollow->used_at;
    out->lost_pinned = g ? g->pinned : 0;
}

/* Of the pages that share as much with the tokens as best does, one that goes on beyond that: those
 * that end there stand before it. */
static const page *going_on(const page *best, size_t common) {
    const page *p = best;
    while (p && p->n == common) p = tree_after((page *)p);
    bool same =
        p && p->n > common && memcmp(p->tokens, best->tokens, common * sizeof *p->tokens) == 0;
    return same ? p : NULL;
}

void cache_explain(const cache *c, const cache_space *space, const int32_t *tokens, size_t n,
                   cache_miss *out) {
    reach r = descend(c, space, tokens, n, false);
    *out = (cache_miss){.len = r.len};
    if (out->len == n) return;
    if (r.len < r.most) {
        cut_by_window(c, &r, out);
        return;
    }
    find_loss(c, space, r.at, tokens, n, out);
    size_t within = out->len % CACHE_PAGE;
    const page *best = r.best ? r.best : tree_page(treap_first(tree_children(space, r.at)));
    best = going_on(best, within);
    if (!best) return;
    for (size_t i = within; i < best->n && out->n_other < CACHE_OTHER; i++)
        out->other[out->n_other++] = best->tokens[i];
}

/* ---- the whole ------------------------------------------------------------------------------- */

typedef struct walker {
    const cache *cache;
    bool (*show)(void *arg, const cache_node *node);
    void *arg;
    bool ended;
} walker;

static void add_page(const cache *c, cache_node *node, const page *p) {
    node->n_pages += p->bytes != NULL;
    node->n_hollow += !p->bytes;
    node->n_tokens += p->n;
    node->n_pinned += p->pins > 0 && p->bytes;
    node->n_sampled += (size_t)__builtin_popcountll(p->sampled);
    node->hits = p->hits;
    node->used_at = p->pins ? c->now : p->used_at;
    node->until = p->until;
}

static const page *only_child(const page *p) {
    treap_link *link = p->children;
    return link && !link->left && !link->right ? tree_page(link) : NULL;
}

/* In order of tokens. Recursive by branches, of the tree and of a treap: never by pages in a row.
 */
static void walk(walker *w, const cache_space *space, treap_link *link, size_t depth,
                 size_t position) {
    if (!link || w->ended) return;
    walk(w, space, link->left, depth, position);
    if (w->ended) return;
    const page *p = tree_page(link);
    cache_node node = {.space = space,
                       .key = space->key,
                       .key_len = space->key_len,
                       .depth = depth,
                       .position = position,
                       .first = p->tokens,
                       .n_first = p->n};
    add_page(w->cache, &node, p);
    for (const page *next; (next = only_child(p)); p = next) add_page(w->cache, &node, next);
    w->ended = !w->show(w->arg, &node);
    walk(w, space, p->children, depth + 1, position + node.n_tokens);
    walk(w, space, link->right, depth, position);
}

static void walk_spaces(walker *w, treap_link *link) {
    if (!link || w->ended) return;
    const cache_space *s = space_of(link);
    walk_spaces(w, link->left);
    walk(w, s, s->children, 0, cache_space_base(s));
    walk_spaces(w, link->right);
}

void cache_walk(const cache *c, const cache_owner *owner,
                bool (*show)(void *arg, const cache_node *node), void *arg) {
    walker w = {.cache = c, .show = show, .arg = arg};
    walk_spaces(&w, owner->spaces);
}
