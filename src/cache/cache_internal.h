/* The structures behind cache.h. README.md draws them and numbers their invariants; a number in
 * brackets in the code, like [4], is one of those. */
#ifndef CACHE_INTERNAL_H
#define CACHE_INTERNAL_H

#include "cache.h"

/* ---- an ordered set (treap.c) ---------------------------------------------------------------- */

typedef struct treap_link {
    struct treap_link *left, *right;
    uint32_t priority; /* random; a heap over priorities, a search tree over keys */
} treap_link;

/* Compares a key with an item's: negative, 0, positive as the key is below, at, above it. */
typedef int treap_order(const void *key, const treap_link *item);

/* The item at key, or NULL. Where it is NULL, *below and *above are the key's neighbours. */
treap_link *treap_seek(treap_link *root, const void *key, treap_order *order, treap_link **below,
                       treap_link **above);
void treap_insert(treap_link **root, treap_link *item, const void *key, treap_order *order);
void treap_remove(treap_link **root, treap_link *item, const void *key, treap_order *order);

/* ---- the structures -------------------------------------------------------------------------- */

enum page_state {
    PAGE_FREE,    /* on the free list */
    PAGE_HELD,    /* in one chain; nothing of it can be found */
    PAGE_FILLING, /* the last page of one chain; in the tree with 0 < n < CACHE_PAGE tokens */
    PAGE_SHARED,  /* full, in the tree, in one chain or more */
    PAGE_IDLE,    /* in the tree, in no chain: the cache */
    PAGE_STATES
};

/* A page's bookkeeping, and a node of the tree. */
typedef struct page {
    treap_link link;      /* among its siblings, ordered by tokens */
    treap_link *children; /* pages that go on where this full one ends */
    union {
        struct page *parent;    /* NULL: the page starts at position 0 */
        struct page *next_free; /* PAGE_FREE */
    };
    cache_space *space;
    uint64_t used;    /* clock at the last use */
    uint32_t heap_at; /* place in the heap of idle leaves */
    uint32_t pins;    /* chains that have it */
    enum page_state state;
    uint32_t n; /* published tokens; 0 while HELD */
    int32_t tokens[CACHE_PAGE];
} page;

struct cache_space {
    treap_link link;      /* among the namespaces, ordered by key */
    treap_link *children; /* pages that start at position 0 */
    size_t n_pages;       /* in the tree below */
    size_t refs;          /* cache_space_get not yet put, and open chains */
    size_t key_len;
    unsigned char key[];
};

struct chain {
    cache *cache;
    cache_space *space; /* NULL: finds nothing, leaves nothing */
    void **pages;       /* addresses by index; the page itself follows from its address */
    size_t n_pages, cap;
    size_t len; /* tokens published or matched */
    chain *prev, *next;
};

struct cache {
    cache_opts opts;
    unsigned char *bytes; /* the reservation: n_pages of stride bytes */
    size_t stride, n_pages, reserved;
    page *pages; /* parallel to bytes */
    page *free;
    page **heap; /* idle leaves, least recently used first */
    size_t n_heap;
    size_t n_in[PAGE_STATES];
    treap_link *spaces;
    chain *chains;      /* the open ones */
    size_t spare;       /* bytes of the limit that chains and namespaces share */
    size_t spent;       /* of these, in use */
    size_t reclaimable; /* of these, namespaces that live by idle pages alone */
    uint64_t clock;     /* advances with every use */
    uint64_t random;    /* state of cache_draw; what it decides shows in no result */
    uint64_t evictions, copies, adoptions, duplicates;
};

/* ---- budget (cache.c) ------------------------------------------------------------------------ */

enum { BLOCK_COST = 16 }; /* what the allocator adds to a block */

/* Accounts for size bytes that are about to be allocated, evicting pages when that frees the
 * namespaces needed. ICP_EAGAIN (nothing changed), ICP_ELIMIT: more than can ever be had. */
int cache_charge(cache *c, size_t size);
void cache_refund(cache *c, size_t size);
uint32_t cache_draw(cache *c); /* a treap priority */

/* ---- pages (page.c) -------------------------------------------------------------------------- */

int page_pool_init(cache *c);
void page_pool_fini(cache *c);
void page_move(cache *c, page *p, enum page_state to); /* the only writer of `state` */
page *page_take(cache *c);                             /* FREE to HELD, pinned once; or NULL */
void page_give(cache *c, page *p);                     /* any but FREE to FREE; is in no tree */

static inline void *page_address(const cache *c, const page *p) {
    return c->bytes + (size_t)(p - c->pages) * c->stride;
}

static inline page *page_of(const cache *c, const void *address) {
    return c->pages + (size_t)((const unsigned char *)address - c->bytes) / c->stride;
}

/* ---- tree (tree.c) --------------------------------------------------------------------------- */

static inline page *tree_page(treap_link *link) {
    return link ? (page *)((char *)link - offsetof(page, link)) : NULL;
}

/* The page below parent (NULL: at position 0 of space) that shares the longest prefix with
 * tokens[0..n), n <= CACHE_PAGE; *common is that length. Of several the first in order, for a page
 * that ends there stands before those that go on. NULL when *common is 0. */
page *tree_find(const cache_space *space, const page *parent, const int32_t *tokens, size_t n,
                size_t *common);
/* p has its space, parent and tokens. */
void tree_insert(cache *c, page *p);
void tree_remove(page *p);
/* The pages between which p, not in the tree, would stand. */
void tree_neighbours(page *p, page **below, page **above);
/* Whether a (NULL: no) begins with all the tokens of its sibling b. */
bool tree_covers(const page *a, const page *b);

/* ---- eviction (evict.c) ---------------------------------------------------------------------- */

void evict_add(cache *c, page *leaf);    /* an idle leaf may go from now on */
void evict_remove(cache *c, page *leaf); /* no longer */
void evict_touch(cache *c, page *p);     /* was used just now */
/* Frees the least recently used idle leaf other than keep. False: there is none. */
bool evict_one(cache *c, const page *keep);
/* Frees an idle leaf. Its parent may become one, its namespace may end. */
void evict_leaf(cache *c, page *leaf);

/* ---- namespaces (space.c) -------------------------------------------------------------------- */

void space_ref(cache *c, cache_space *s);
void space_unref(cache *c, cache_space *s);
/* Ends a namespace that nobody holds once it has no page. */
void space_release(cache *c, cache_space *s);
void space_fini(cache *c); /* ends all, pages or not */

static inline cache_space *space_of(treap_link *link) {
    return link ? (cache_space *)((char *)link - offsetof(cache_space, link)) : NULL;
}

#endif
