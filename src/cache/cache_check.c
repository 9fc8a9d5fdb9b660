/* cache_check: the invariants of README.md, one function for each group. Test code that lives here
 * because it reads every field. */
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
    size_t n_in[PAGE_STATES] = {0}, n_free = 0;
    for (size_t i = 0; i < c->n_pages; i++) {
        const page *p = &c->pages[i];
        EXPECT(p->state < PAGE_STATES, "[1] a page's state is none of the five");
        n_in[p->state]++;
        EXPECT(!p->children || p->state == PAGE_FREE || p->n == CACHE_PAGE,
               "[2] a partial page has children");
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
    return NULL;
}

static const char *check_chain(const chain *ch, uint32_t *pins) {
    const cache *c = ch->cache;
    EXPECT(ch->len <= ch->n_pages * CACHE_PAGE, "[4] a chain is longer than its pages");
    EXPECT(ch->n_pages <= ch->cap, "[4] a chain has more pages than room for them");
    for (size_t i = 0; i < ch->n_pages; i++) {
        const page *p = page_of(c, ch->pages[i]);
        pins[p - c->pages]++;
        enum page_state state = PAGE_HELD;
        if (ch->space && i < ch->len / CACHE_PAGE) state = PAGE_SHARED;
        if (ch->space && i == ch->len / CACHE_PAGE && ch->len % CACHE_PAGE) state = PAGE_FILLING;
        EXPECT(p->state == state, "[4] a chain's page is in the wrong state");
        if (state == PAGE_HELD) continue;
        EXPECT(p->space == ch->space, "[4] a chain has a page of another namespace");
        EXPECT(p->parent == (i ? page_of(c, ch->pages[i - 1]) : NULL),
               "[4] a chain's pages are not a path of the tree");
        EXPECT(state == PAGE_SHARED || p->n == ch->len % CACHE_PAGE,
               "[4] a filling page ends elsewhere than its chain");
    }
    return NULL;
}

static const char *check_pins(const cache *c) {
    uint32_t *pins = mem_zero(c->n_pages, sizeof *pins);
    EXPECT(pins, "no memory to check pins");
    const char *broken = NULL;
    for (const chain *ch = c->chains; ch && !broken; ch = ch->next) broken = check_chain(ch, pins);
    for (size_t i = 0; i < c->n_pages && !broken; i++) {
        const page *p = &c->pages[i];
        bool single = p->state == PAGE_HELD || p->state == PAGE_FILLING;
        if (p->pins != pins[i]) broken = "[3] pins differ from the chains that have the page";
        if (single && p->pins != 1) broken = "[3] a page of one chain has not one pin";
        if (p->state == PAGE_SHARED && p->pins == 0) broken = "[3] a shared page has no pin";
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
    page *last = *previous;
    if (last) {
        size_t shorter = MIN(last->n, p->n), same = 0;
        while (same < shorter && last->tokens[same] == p->tokens[same]) same++;
        EXPECT(same < shorter ? last->tokens[same] < p->tokens[same]
                              : last->n < p->n || (last->n == p->n && last < p),
               "[7] siblings are out of order");
        EXPECT(last->n < CACHE_PAGE || !tree_covers(p, last), "[6] two full siblings are equal");
        EXPECT(last->state != PAGE_IDLE || !tree_covers(p, last),
               "[6] an idle page is held by its sibling too");
        EXPECT(p->state != PAGE_IDLE || !tree_covers(last, p),
               "[6] an idle page is held by its sibling too");
    }
    *previous = p;
    ++*n;
    return check_siblings(c, root->right, space, parent, previous, n);
}

static const char *check_spaces(const cache *c, treap_link *root, size_t *n, size_t *reclaimable) {
    if (!root) return NULL;
    cache_space *s = space_of(root);
    size_t n_chains = 0, n_pages = 0, n_roots = 0;
    page *previous = NULL;
    for (const chain *ch = c->chains; ch; ch = ch->next) n_chains += ch->space == s;
    for (size_t i = 0; i < c->n_pages; i++)
        n_pages += in_tree(&c->pages[i]) && c->pages[i].space == s;
    EXPECT(s->n_pages == n_pages, "[8] a namespace counts its pages wrongly");
    EXPECT(s->refs >= n_chains, "[8] an open chain does not hold its namespace");
    EXPECT(s->refs > 0 || s->n_pages > 0, "[8] a namespace outlived its use");
    const char *broken = check_siblings(c, s->children, s, NULL, &previous, &n_roots);
    if (broken) return broken;
    if (s->refs == 0) *reclaimable += sizeof *s + s->key_len + BLOCK_COST;
    *n += n_roots;
    broken = check_spaces(c, root->left, n, reclaimable);
    return broken ? broken : check_spaces(c, root->right, n, reclaimable);
}

static const char *check_tree(const cache *c) {
    size_t n = 0, reclaimable = 0;
    const char *broken = check_spaces(c, c->spaces, &n, &reclaimable);
    for (size_t i = 0; i < c->n_pages && !broken; i++) {
        page *previous = NULL, *p = &c->pages[i];
        if (in_tree(p)) broken = check_siblings(c, p->children, p->space, p, &previous, &n);
    }
    if (broken) return broken;
    EXPECT(n == c->n_in[PAGE_FILLING] + c->n_in[PAGE_SHARED] + c->n_in[PAGE_IDLE],
           "[5] a page has left the tree in its state only");
    EXPECT(reclaimable == c->reclaimable, "[10] reclaimable bytes are wrong");
    return NULL;
}

static const char *check_heap(const cache *c) {
    size_t leaves = 0;
    for (size_t i = 0; i < c->n_pages; i++)
        leaves += c->pages[i].state == PAGE_IDLE && !c->pages[i].children;
    EXPECT(leaves == c->n_heap, "[9] an idle leaf cannot be evicted");
    for (size_t i = 0; i < c->n_heap; i++) {
        const page *p = c->heap[i];
        EXPECT(p->state == PAGE_IDLE && !p->children && p->heap_at == i,
               "[9] a page in the heap is no idle leaf");
        EXPECT(i == 0 || c->heap[(i - 1) / 2]->used <= p->used, "[9] the heap is out of order");
    }
    return NULL;
}

static size_t spaces_cost(treap_link *root) {
    if (!root) return 0;
    return sizeof(cache_space) + space_of(root)->key_len + BLOCK_COST + spaces_cost(root->left) +
           spaces_cost(root->right);
}

static const char *check_budget(const cache *c) {
    size_t spent = spaces_cost(c->spaces);
    for (const chain *ch = c->chains; ch; ch = ch->next)
        spent += sizeof *ch + BLOCK_COST + ch->cap * sizeof *ch->pages + (ch->cap ? BLOCK_COST : 0);
    EXPECT(spent == c->spent, "[10] spent bytes are counted wrongly");
    cache_stats s;
    cache_get_stats(c, &s);
    EXPECT(spent <= c->spare && s.n_pages * s.page_size + s.metadata <= s.limit,
           "[10] the limit is exceeded");
    return NULL;
}

const char *cache_check(const cache *c) {
    static const char *(*const checks[])(const cache *) = {check_states, check_pins, check_tree,
                                                           check_heap, check_budget};
    for (size_t i = 0; i < COUNT_OF(checks); i++) {
        const char *broken = checks[i](c);
        if (broken) return broken;
    }
    return NULL;
}
