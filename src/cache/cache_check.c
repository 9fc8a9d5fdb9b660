/* cache_check: the invariants of README.md, one function for each group. Test code that lives here
 * because it reads every field. */
#include <math.h>
#include <string.h>

#include "cache_internal.h"

#define EXPECT(condition, sentence)                                                                \
    do {                                                                                           \
        if (!(condition)) return sentence;                                                         \
    } while (0)

static bool in_tree(const page *p) {
    return p->state == PAGE_FILLING || p->state == PAGE_SHARED || p->state == PAGE_IDLE;
}

static const char *check_states(const cache *c) {
    size_t n_in[PAGE_STATES] = {0}, n_free = 0, n_bare = 0;
    for (size_t i = 0; i < page_n_nodes(c); i++) {
        const page *p = &c->pages[i];
        EXPECT(p->state < PAGE_STATES, "[1] a page's state is none of the eight");
        n_in[p->state]++;
        bool in_use = p->state != PAGE_FREE && p->state != PAGE_AWAY && p->state != PAGE_BARE;
        EXPECT(!p->children || !in_use || p->n == CACHE_PAGE, "[2] a partial page has children");
        EXPECT((p->n > 0) == in_tree(p), "[2] only a page in the tree has published tokens");
        EXPECT(p->n <= CACHE_PAGE, "[2] a page has more tokens than fit");
        EXPECT((p->state != PAGE_FILLING || p->n < CACHE_PAGE) &&
                   (p->state != PAGE_SHARED || p->n == CACHE_PAGE),
               "[2] shared means full, filling means not full");
    }
    EXPECT(memcmp(n_in, c->n_in, sizeof n_in) == 0, "[1] the counts of states are wrong");
    for (const page *p = c->free; p && n_free <= c->n_pages; p = p->next_free, n_free++)
        EXPECT(p->state == PAGE_FREE, "[1] a page on the free list is in use");
    EXPECT(n_free == c->n_in[PAGE_FREE], "[1] a free page is not on the free list");
    size_t n_away = 0;
    for (const page *p = c->away; p && n_away <= c->n_pages; p = p->next_free, n_away++)
        EXPECT(p->state == PAGE_AWAY, "[1] a page on the list of those away is in use");
    EXPECT(n_away == c->n_in[PAGE_AWAY], "[1] a page that is away is not on their list");
    EXPECT(!page_excess(c) || c->n_in[PAGE_FREE] + c->n_in[PAGE_IDLE] + c->n_in[PAGE_STATE] == 0,
           "[15] a page that nobody uses should be away");
    EXPECT(!n_away || c->n_pages - n_away >= c->n_most, "[15] a page is away and should be free");
    for (const page *p = c->bare; p && n_bare <= c->n_bare; p = p->next_free, n_bare++)
        EXPECT(p->state == PAGE_BARE, "[1] a struct on the list of bare ones is in use");
    EXPECT(n_bare == c->n_in[PAGE_BARE], "[1] a bare struct is not on its list");
    return NULL;
}

/* Who has bytes. */
static const char *check_bytes(const cache *c) {
    size_t n_hollow[PAGE_STATES] = {0}, n_bytes = 0;
    bool *used = mem_zero(c->n_pages, sizeof *used);
    const char *broken = used ? NULL : "no memory to check bytes";
    for (size_t i = 0; i < page_n_nodes(c) && !broken; i++) {
        const page *p = &c->pages[i];
        if (!p->bytes) {
            n_hollow[p->state]++;
            bool may = p->state == PAGE_BARE || p->state == PAGE_SHARED ||
                       (p->state == PAGE_IDLE && p->children);
            if (!may || p->near || p->behind) broken = "[16] a page is hollow that may not be";
            continue;
        }
        size_t at = (size_t)((unsigned char *)p->bytes - c->bytes) / c->stride;
        if (p->state == PAGE_BARE || at >= c->n_pages || used[at])
            broken = "[16] bytes belong to two pages, or to none";
        else
            used[at] = true;
        n_bytes++;
    }
    mem_free(used);
    if (broken) return broken;
    EXPECT(n_bytes == c->n_pages, "[16] bytes are lost");
    EXPECT(memcmp(n_hollow, c->n_hollow, sizeof n_hollow) == 0, "[16] hollow pages are miscounted");
    return NULL;
}

/* What is near a chain, and what is behind. */
static const char *check_near(const cache *c, const page *p, uint32_t near) {
    EXPECT(p->near == near, "[16] a page is near to other chains than it says");
    EXPECT(!near || p->bytes, "[16] a chain reads a page that is hollow");
    EXPECT(!p->behind || (p->bytes && !near && p->n == CACHE_PAGE), "[16] a page is not behind");
    if (p->state == PAGE_SHARED && p->bytes && !near) EXPECT(p->behind, "[16] a page cannot go");
    if (p->behind)
        EXPECT(p->state == PAGE_SHARED ||
                   (p->state == PAGE_IDLE && p->behind == BEHIND_ALL && p->children),
               "[16] a page is behind that is not in use");
    return NULL;
}

static const char *check_lists(const cache *c) {
    size_t n_listed = 0, n_behind = 0, n_shared = 0;
    for (int kind = BEHIND_ALL; kind < BEHIND_KINDS; kind++) {
        const page *last = NULL;
        for (const page *p = c->behind[kind].first; p; last = p, p = p->in_list.next, n_listed++)
            EXPECT((int)p->behind == kind && p->in_list.prev == last,
                   "[16] a list of pages behind is broken");
        EXPECT(c->behind[kind].last == last, "[16] a list of pages behind has another end");
    }
    for (size_t i = 0; i < page_n_nodes(c); i++) {
        const page *p = &c->pages[i];
        n_behind += p->behind != BEHIND_NONE;
        n_shared += p->behind && p->state == PAGE_SHARED;
    }
    EXPECT(n_listed == n_behind && n_shared == c->n_behind, "[16] pages behind are miscounted");
    return NULL;
}

static const char *check_chain(const chain *ch, uint32_t *pins, uint32_t *near) {
    const cache *c = ch->cache;
    EXPECT(ch->n_behind <= window_n_behind(c, ch->len), "[4] a chain lacks what it reads");
    EXPECT(ch->len <= ch->n_pages * CACHE_PAGE, "[4] a chain is longer than its pages");
    EXPECT(ch->n_pages <= ch->cap, "[4] a chain has more pages than room for them");
    EXPECT(ch->len >= ch->n_base * CACHE_PAGE, "[4] a chain is shorter than its base");
    for (size_t i = 0; i < ch->n_pages; i++) {
        const page *p = ch->nodes[i];
        bool behind = i < ch->n_behind;
        EXPECT(p || (behind && !ch->space), "[4] a chain has no page");
        EXPECT(ch->pages[i] == (behind ? window_nothing(c) : p->bytes),
               "[4] a page's address is another");
        if (!p) continue;
        pins[p - c->pages]++;
        near[p - c->pages] += !behind;
        enum page_state state = PAGE_HELD;
        bool base = i < ch->n_base;
        if (ch->space && i < ch->len / CACHE_PAGE) state = PAGE_SHARED;
        if (ch->space && i == ch->len / CACHE_PAGE && ch->len % CACHE_PAGE) state = PAGE_FILLING;
        EXPECT(p->state == state, "[4] a chain's page is in the wrong state");
        EXPECT(base || p->space == ch->space, "[4] a chain has a page of another namespace");
        if (base) EXPECT(p == ch->space->base->nodes[i], "[4] a chain lacks its base");
        if (state == PAGE_HELD || base) continue;
        EXPECT(p->parent == (i > ch->n_base ? ch->nodes[i - 1] : NULL),
               "[4] a chain's pages are not a path of the tree");
        EXPECT(state == PAGE_SHARED || p->n == ch->len % CACHE_PAGE,
               "[4] a filling page ends elsewhere than its chain");
    }
    return NULL;
}

/* The parts of the checkpoint at the end of p. */
static const char *check_checkpoint(const cache *c, const page *p, size_t *n_parts) {
    const page *first = p->checkpoint;
    size_t n = 0, keepers = 0;
    EXPECT(p->n == CACHE_PAGE && first->edge == p,
           "[14] a checkpoint is not at the edge of a page");
    for (const chain *ch = c->chains; ch; ch = ch->next) {
        keepers += ch->kept == first;
        EXPECT((ch->trail == first) == (first->trail_of == ch),
               "[14] a chain and its trail do not know each other");
    }
    EXPECT(keepers == first->pins && (keepers > 0) == (first->state == PAGE_KEPT),
           "[14] a checkpoint is kept by other chains than it says");
    for (const page *part = first; part; part = part->next_part, n++) {
        EXPECT(part->state == first->state && part->space == p->space,
               "[14] a checkpoint's part is something else");
        EXPECT(part == first || (!part->edge && !part->pins), "[14] a part stands for more");
    }
    EXPECT(n == c->n_parts, "[14] a checkpoint has not its number of parts");
    *n_parts += n;
    return NULL;
}

static const char *check_checkpoints(const cache *c) {
    size_t n_parts = 0, n_kept = c->n_in[PAGE_STATE] + c->n_in[PAGE_KEPT];
    for (size_t i = 0; i < page_n_nodes(c); i++) {
        const page *p = &c->pages[i];
        const char *broken = in_tree(p) && p->checkpoint ? check_checkpoint(c, p, &n_parts) : NULL;
        if (broken) return broken;
    }
    for (const chain *ch = c->chains; ch; ch = ch->next)
        EXPECT(!ch->trail || ch->trail->trail_of == ch, "[14] a chain's trail is another's");
    EXPECT(n_parts == n_kept && n_parts == c->n_checkpoints * c->n_parts,
           "[14] a part belongs to no checkpoint");
    return NULL;
}

static const char *check_pins(const cache *c) {
    size_t n = page_n_nodes(c);
    uint32_t *pins = mem_zero(2 * n, sizeof *pins), *near = pins + n;
    EXPECT(pins, "no memory to check pins");
    const char *broken = NULL;
    for (const chain *ch = c->chains; ch && !broken; ch = ch->next)
        broken = check_chain(ch, pins, near);
    for (size_t i = 0; i < n && !broken; i++) {
        const page *p = &c->pages[i];
        bool single = p->state == PAGE_HELD || p->state == PAGE_FILLING;
        if (p->state == PAGE_KEPT) continue; /* by [14] */
        if (p->pins != pins[i]) broken = "[3] pins differ from the chains that have the page";
        if (single && p->pins != 1) broken = "[3] a page of one chain has not one pin";
        if (p->state == PAGE_SHARED && p->pins == 0) broken = "[3] a shared page has no pin";
        if (!broken) broken = check_near(c, p, near[i]);
    }
    mem_free(pins);
    return broken;
}

/* In order: counts the links below root in *n and checks each pair of neighbours. */
static const char *check_siblings(const cache *c, treap_link *root, const cache_space *space,
                                  const page *parent, page **previous, size_t *n) {
    if (!root) return NULL;
    page *p = tree_page(root);
    EXPECT((!root->left || root->left->priority <= root->priority) &&
               (!root->right || root->right->priority <= root->priority),
           "[7] a treap's priorities are not a heap");
    const char *broken = check_siblings(c, root->left, space, parent, previous, n);
    if (broken) return broken;

    EXPECT(in_tree(p) && p->parent == parent && p->space == space,
           "[5] a page in the tree does not belong where it stands");
    EXPECT(!parent || parent->n == CACHE_PAGE, "[5] a page has a parent that is not full");
    EXPECT(!parent || parent->state == PAGE_SHARED || p->state == PAGE_IDLE,
           "[5] below an idle page stands one that is not");
    EXPECT(!parent || parent->state != PAGE_IDLE || parent->until >= p->until,
           "[12] a page is forgotten before one below it");
    EXPECT(p->n_low < p->n, "[12] a page is kept in part, and the part is all of it");
    page *last = *previous;
    if (last) {
        size_t shorter = MIN(last->n, p->n), same = 0;
        while (same < shorter && last->tokens[same] == p->tokens[same]) same++;
        EXPECT(same < shorter ? last->tokens[same] < p->tokens[same]
                              : last->n < p->n || (last->n == p->n && last < p),
               "[7] siblings are out of order");
        EXPECT(last->n < CACHE_PAGE || !tree_covers(p, last), "[6] two full siblings are equal");
        EXPECT(last->state != PAGE_IDLE || c->n_bare || !tree_covers(p, last),
               "[6] an idle page is held by its sibling too");
        EXPECT(p->state != PAGE_IDLE || c->n_bare || !tree_covers(last, p),
               "[6] an idle page is held by its sibling too");
    }
    *previous = p;
    ++*n;
    return check_siblings(c, root->right, space, parent, previous, n);
}

static const char *check_space(const cache *c, cache_space *s, size_t *n) {
    size_t n_chains = 0, n_pages = 0;
    page *previous = NULL;
    for (const chain *ch = c->chains; ch; ch = ch->next) n_chains += ch->space == s;
    for (size_t i = 0; i < page_n_nodes(c); i++)
        n_pages += in_tree(&c->pages[i]) && c->pages[i].space == s;
    EXPECT(s->n_pages == n_pages, "[8] a namespace counts its pages wrongly");
    EXPECT(s->refs >= n_chains, "[8] an open chain does not hold its namespace");
    EXPECT(s->refs > 0 || s->n_pages > 0, "[8] a namespace outlived its use");
    return check_siblings(c, s->children, s, NULL, &previous, n);
}

static const char *check_spaces(const cache *c, treap_link *root, const cache_owner *o, size_t *n,
                                size_t *n_spaces, size_t *n_held, size_t *reclaimable) {
    if (!root) return NULL;
    cache_space *s = space_of(root);
    EXPECT(s->owner == o, "[8] a namespace is among another owner's");
    const char *broken = check_space(c, s, n);
    if (broken) return broken;
    ++*n_spaces;
    if (s->refs == 0) *reclaimable += space_cost(s);
    *n_held += s->refs > 0;
    broken = check_spaces(c, root->left, o, n, n_spaces, n_held, reclaimable);
    if (broken) return broken;
    return check_spaces(c, root->right, o, n, n_spaces, n_held, reclaimable);
}

static const char *check_owner(const cache *c, cache_owner *o, size_t *n, size_t *reclaimable) {
    size_t n_spaces = 0, n_held = 0, n_pages = 0, n_idle = 0, n_behind = 0, n_listed = 0;
    for (size_t i = 0; i < page_n_nodes(c); i++) {
        const page *p = &c->pages[i];
        if (!p->space || p->space->owner != o || !p->bytes) continue;
        n_pages++;
        n_idle += p->state == PAGE_IDLE || p->state == PAGE_STATE;
        n_behind += p->behind && p->state == PAGE_SHARED;
        n_listed += p->behind && o->quota != SIZE_MAX;
    }
    EXPECT(o->n_pages == n_pages && o->n_idle == n_idle, "[13] an owner counts its pages wrongly");
    EXPECT(o->n_behind == n_behind, "[13] an owner counts its pages behind wrongly");
    for (int kind = BEHIND_ALL; kind < BEHIND_KINDS; kind++)
        for (const page *p = o->behind[kind].first; p; p = p->in_owners.next) n_listed--;
    EXPECT(n_listed == 0, "[13] a page behind is in no list of its owner");
    EXPECT(n_pages <= o->quota, "[13] an owner has more pages than its quota");
    const char *broken = check_spaces(c, o->spaces, o, n, &n_spaces, &n_held, reclaimable);
    if (broken) return broken;
    EXPECT(o->n_spaces == n_spaces, "[8] an owner counts its namespaces wrongly");
    EXPECT(o->refs >= n_held, "[8] a namespace that is held does not hold its owner");
    EXPECT(o->refs > 0 || n_spaces > 0, "[8] an owner outlived its use");
    if (o->refs == 0) *reclaimable += owner_cost(o);
    return NULL;
}

static const char *check_owners(const cache *c, treap_link *root, size_t *n, size_t *reclaimable) {
    if (!root) return NULL;
    const char *broken = check_owner(c, owner_of(root), n, reclaimable);
    if (!broken) broken = check_owners(c, root->left, n, reclaimable);
    return broken ? broken : check_owners(c, root->right, n, reclaimable);
}

static const char *check_tree(const cache *c) {
    size_t n = 0, reclaimable = 0;
    const char *broken = check_owners(c, c->owners, &n, &reclaimable);
    if (!broken) broken = check_owner(c, c->nobody, &n, &reclaimable);
    for (size_t i = 0; i < page_n_nodes(c) && !broken; i++) {
        page *previous = NULL, *p = &c->pages[i];
        if (in_tree(p)) broken = check_siblings(c, p->children, p->space, p, &previous, &n);
    }
    if (broken) return broken;
    EXPECT(n == c->n_in[PAGE_FILLING] + c->n_in[PAGE_SHARED] + c->n_in[PAGE_IDLE],
           "[5] a page has left the tree in its state only");
    EXPECT(reclaimable == c->reclaimable, "[10] reclaimable bytes are wrong");
    return NULL;
}

static size_t count_links(const treap_link *root) {
    return root ? 1 + count_links(root->left) + count_links(root->right) : 0;
}

static size_t count_owned(treap_link *root) {
    if (!root) return 0;
    return count_links(owner_of(root)->leaves) + count_owned(root->left) + count_owned(root->right);
}

static const char *check_leaves(const cache *c) {
    size_t leaves = 0, expiring = 0, owned = 0;
    for (size_t i = 0; i < page_n_nodes(c); i++) {
        const page *p = &c->pages[i];
        bool first = p->state == PAGE_STATE && p->edge;
        if (!first && (p->state != PAGE_IDLE || p->children)) continue;
        leaves++;
        expiring += !isinf(p->until);
        owned += p->space->owner->quota != SIZE_MAX;
        EXPECT(p->until > c->now, "[12] a page's time is over");
    }
    EXPECT(expiring == count_links(c->expiring), "[12] an idle leaf does not expire");
    EXPECT(owned == count_owned(c->owners), "[13] an idle leaf is in no order of its owner");
    return evict_check(c, leaves);
}

static size_t spaces_cost(treap_link *root) {
    if (!root) return 0;
    return space_cost(space_of(root)) + spaces_cost(root->left) + spaces_cost(root->right);
}

static size_t owners_cost(treap_link *root) {
    if (!root) return 0;
    const cache_owner *o = owner_of(root);
    return owner_cost(o) + spaces_cost(o->spaces) + owners_cost(root->left) +
           owners_cost(root->right);
}

static const char *check_budget(const cache *c) {
    size_t spent = owners_cost(c->owners) + owner_cost(c->nobody) + spaces_cost(c->nobody->spaces);
    for (const chain *ch = c->chains; ch; ch = ch->next)
        spent += sizeof *ch + BLOCK_COST +
                 (ch->cap ? ch->cap * (sizeof *ch->pages + sizeof *ch->nodes) + BLOCK_COST : 0);
    EXPECT(spent == c->spent, "[10] spent bytes are counted wrongly");
    cache_stats s;
    cache_get_stats(c, &s);
    EXPECT(spent <= c->spare && (s.n_pages - page_excess(c)) * s.page_size + s.metadata <=
                                    s.limit + page_excess(c) * (c->stride - c->opts.page_size),
           "[10] the limit is exceeded");
    return NULL;
}

const char *cache_check(const cache *c) {
    static const char *(*const checks[])(const cache *) = {
        check_states, check_bytes,       check_pins,   check_lists,
        check_tree,   check_checkpoints, check_leaves, check_budget};
    for (size_t i = 0; i < COUNT_OF(checks); i++) {
        const char *broken = checks[i](c);
        if (broken) return broken;
    }
    return NULL;
}
