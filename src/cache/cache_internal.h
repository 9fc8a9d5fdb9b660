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
treap_link *treap_first(treap_link *root); /* NULL: it is empty */
/* The item next to key on one side of it, whether key is in the set or not; or NULL. */
treap_link *treap_above(treap_link *root, const void *key, treap_order *order);
treap_link *treap_below(treap_link *root, const void *key, treap_order *order);

/* ---- the structures -------------------------------------------------------------------------- */

enum page_state {
    PAGE_FREE,    /* on the free list */
    PAGE_HELD,    /* in one chain; nothing of it can be found */
    PAGE_FILLING, /* the last page of one chain; in the tree with 0 < n < CACHE_PAGE tokens */
    PAGE_SHARED,  /* full, in the tree, in one chain or more */
    PAGE_IDLE,    /* in the tree, in no chain: the cache */
    PAGE_STATE,   /* part of a checkpoint (checkpoint.c), */
    PAGE_KEPT,    /* of one that a chain keeps */
    PAGE_AWAY,    /* without memory, on a list of its own: more than the limit holds now */
    PAGE_BARE,    /* bookkeeping without bytes, for a page whose bytes others get (window.c) */
    PAGE_STATES
};

/* A full page that no chain is near may go before others do (window.c). */
enum behind {
    BEHIND_NONE,
    BEHIND_ALL,    /* nobody will ask for a prefix that needs it: goes first of all */
    BEHIND_CHAINS, /* somebody may; but the chains that pin it do not need it: goes last of all */
    BEHIND_KINDS
};

/* Neighbours in a list of such pages. */
typedef struct page_link {
    struct page *prev, *next;
} page_link;
typedef struct page_list {
    struct page *first, *last;
} page_list;

/* A page's bookkeeping, and a node of the tree. */
typedef struct page {
    treap_link link;      /* among its siblings, ordered by tokens */
    treap_link *children; /* pages that go on where this full one ends */
    union {
        struct page *parent;    /* NULL: the page starts where its namespace does */
        struct page *next_free; /* PAGE_FREE, PAGE_AWAY, PAGE_BARE */
        struct page *edge;      /* PAGE_STATE, the first part: the page at whose end it stands */
    };
    union {
        struct page *checkpoint; /* in the tree: the first part of the state at its end; or NULL */
        struct page *next_part;  /* PAGE_STATE */
    };
    chain *trail_of;    /* PAGE_STATE, the first part: it moves on with this chain; or NULL */
    cache_space *space; /* of HELD pages too; NULL: FREE, or of a chain without a namespace */
    void *bytes;        /* NULL: the page is hollow, or BARE (window.c) */
    union {
        treap_link by_expiry; /* among idle leaves that expire */
        page_link in_list;    /* among pages that are behind; these are no idle leaves */
    };
    union {
        treap_link by_use;   /* among idle leaves of an owner with a quota */
        page_link in_owners; /* among its pages that are behind */
    };
    uint64_t used;    /* clock at the last use; 0: is to go first */
    double used_at;   /* the same as a time */
    double until;     /* forgotten then; INFINITY: never; at or before now: not kept at all, */
    double until_low; /* but for its first n_low tokens: until then */
    uint64_t print;   /* fingerprint of the prefix that ends with this full page (ghost.c) */
    uint64_t sampled; /* a bit for each token: it was sampled */
    uint32_t n_low, hits;
    uint32_t depth;      /* pages above it, from position 0 */
    uint32_t heap_at[2]; /* places in the heaps of idle leaves */
    double rank;         /* as of its last use: the lowest goes first */
    uint64_t born;       /* clock when it was taken */
    uint32_t pins; /* chains that have it, or keep the checkpoint of which it is the first part */
    uint32_t near; /* of these chains, that may still read it */
    enum behind behind;
    enum page_state state;
    uint32_t n; /* published tokens; 0 while HELD */
    int32_t tokens[CACHE_PAGE];
} page;

struct cache_owner {
    treap_link link;    /* among the owners, ordered by key */
    treap_link *spaces; /* ordered by key */
    treap_link *leaves; /* its idle leaves, least recently used first; kept with a quota only */
    page_list behind[BEHIND_KINDS]; /* likewise, its pages that are behind */
    size_t quota, n_pages;          /* with bytes */
    size_t n_idle;                  /* of these, that may be evicted: IDLE and STATE, */
    size_t n_behind;                /* and that may go though they are pinned */
    size_t n_spaces;
    size_t refs; /* cache_owner_get not yet put, and its spaces that are held */
    size_t key_len;
    unsigned char key[];
};

struct cache_space {
    treap_link link;      /* among the namespaces of its owner */
    treap_link *children; /* pages that start at position 0, or after the base */
    cache_owner *owner;
    const chain *base; /* pages that all its chains begin with; NULL: none */
    uint64_t print;    /* where the fingerprints of its prefixes start */
    size_t n_pages;    /* in the tree below */
    size_t refs;       /* cache_space_get not yet put, and open chains */
    size_t key_len;
    unsigned char key[];
};

enum { CACHE_GHOSTS = 4 };

/* What once was in a page: a fingerprint, why and when it went. */
typedef struct ghost {
    uint64_t print;
    double at;
    uint64_t used;   /* clock at its last use */
    uint32_t pinned; /* pages in use at that time */
    enum cache_loss loss;
    bool seen_again; /* had been hit */
} ghost;

/* How long pages stay unused until somebody comes back for them (evict.c). Of pages that were not
 * found so far, and of those that were; by age, in bins of half an octave. */
enum { HAZARD_BINS = 64 };
typedef struct hazard {
    double returns[2][HAZARD_BINS]; /* who came back at this age */
    double waited[2][HAZARD_BINS];  /* the time that pages spent at this age, in clock ticks */
    size_t n_evicted;               /* since numbers were halved */
} hazard;

/* What a cache of this size would hold that evicts the least recently used (rival.c). */
enum { RIVAL_BINS = 512 };
typedef struct rival {
    uint64_t width;          /* of a bin, in clock ticks */
    uint64_t oldest, newest; /* bins, by their number since the clock began */
    size_t n;                /* pages in all of them: what it holds */
    double asked;            /* pages that were used, recent ones counting more */
    double ahead; /* of these: found by the rival more than by this cache; negative: fewer */
    uint32_t n_used[RIVAL_BINS]; /* pages by their last use; a ring */
} rival;

struct chain {
    cache *cache;
    cache_space *space; /* NULL: finds nothing, leaves nothing */
    void **pages;       /* addresses by index; of those behind the window, that of nothing */
    page **nodes;       /* the pages; NULL: given up, behind the window of no namespace's chain */
    size_t n_pages, cap;
    size_t n_behind;     /* leading pages that no position from len on reads */
    size_t n_scanned;    /* leading pages that were asked for forks, */
    size_t fork;         /* and the last of these, + 1, where somebody went another way */
    page *spare;         /* during a match: for the copy at its end */
    size_t len;          /* tokens published or matched */
    size_t n_base;       /* pages of the namespace's base, which come first */
    size_t sampled_from; /* position */
    double until;        /* what it leaves behind is forgotten then */
    bool retired;        /* and is to be evicted first */
    void *state;         /* the caller's; see chain_carry */
    page *trail;         /* its checkpoint that moves on with it; NULL: none */
    page *kept;          /* the checkpoint that it keeps; NULL: none */
    size_t branch;
    chain *prev, *next;
};

struct cache {
    cache_opts opts;
    unsigned char *bytes; /* the reservation: n_pages of stride bytes, and one that stands for
                           * what is behind a window: nobody writes or reads it */
    size_t stride, n_pages, reserved;
    size_t n_parts; /* pages of a checkpoint; 0: sequences have no state */
    size_t n_bare;  /* pages may be hollow; 0: there is no window */
    page *pages;    /* n_pages + n_bare; at first those with bytes, in their order */
    page *free, *bare, *away;
    size_t n_most; /* pages that are not away, as the limit has it now */
    size_t limit;  /* that, in bytes */
    page_list behind[BEHIND_KINDS];
    size_t n_hollow[PAGE_STATES]; /* by state; counted in n_in as well */
    size_t n_behind;              /* SHARED pages that may go */
    uint64_t n_given_up;          /* pages that became hollow */
    size_t n_begun;               /* pages that were used at some time: the first ones */
    size_t committed; /* bytes of the reservation that have memory, or more than there are: no more
                       * can be had */
    page **heap;      /* idle leaves, two heaps of up to n_pages (evict.c) */
    size_t n_heap[2];
    size_t n_seen[2]; /* pages in use or cached, without and with a hit */
    double target;    /* of ARC: how many of the former there should be */
    double age;       /* highest rank that was evicted */
    hazard hazard;
    rival rival;
    ghost *ghosts; /* CACHE_GHOSTS for each page, by fingerprint */
    size_t n_ghosts[2];
    struct curve *curve; /* NULL: not wanted */
    size_t n_in[PAGE_STATES];
    treap_link *owners;
    cache_owner *nobody;  /* the owner of what has none */
    treap_link *expiring; /* idle leaves that expire, the earliest first */
    double now;
    chain *chains;      /* the open ones */
    size_t spare;       /* bytes of the limit that chains and namespaces share */
    size_t spent;       /* of these, in use */
    size_t reclaimable; /* of these, namespaces and owners that live by idle pages alone */
    uint64_t clock;     /* advances with every use */
    uint64_t secret;    /* seed of fingerprints */
    uint64_t random;    /* state of cache_draw; what it decides shows in no result */
    size_t n_checkpoints;
    uint64_t evictions, expired, copies, adoptions, duplicates;
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
/* FREE to HELD, pinned once, for a chain of this namespace (or none); NULL: none is free. */
page *page_take(cache *c, cache_space *space);
void page_give(cache *c, page *p);                         /* any to FREE, or BARE; is in no tree */
void page_set_bytes(cache *c, page *p, void *bytes);       /* the only writers of `bytes` */
void page_set_behind(cache *c, page *p, enum behind kind); /* and of `behind` */
size_t page_n_idle(const cache *c);                        /* IDLE and STATE, with bytes */
static inline size_t page_n_nodes(const cache *c) {
    return c->n_pages + c->n_bare;
}

/* Pages that should be away, and are in use. */
size_t page_excess(const cache *c);
/* Changes n_most: pages come back, or go, as far as nobody uses them. */
void page_confine(cache *c, size_t n_most);

/* ---- tree (tree.c) --------------------------------------------------------------------------- */

static inline page *tree_page(treap_link *link) {
    return link ? (page *)((char *)link - offsetof(page, link)) : NULL;
}

static inline treap_link *tree_children(const cache_space *space, const page *parent) {
    return parent ? parent->children : space->children;
}

/* The page below parent (NULL: where the space starts) that shares the longest prefix with
 * tokens[0..n), n <= CACHE_PAGE; *common is that length. Of several the first in order, for a page
 * that ends there stands before those that go on. NULL when *common is 0. */
page *tree_find(const cache_space *space, const page *parent, const int32_t *tokens, size_t n,
                size_t *common);
/* p has its space, parent and tokens. */
void tree_insert(cache *c, page *p);
void tree_remove(page *p);
/* The page whose tokens come next after (before) those of p, which may stand among its siblings or
 * not; or NULL. */
page *tree_after(page *p);
page *tree_before(page *p);
/* The pages between which p, not in the tree, would stand. */
void tree_neighbours(page *p, page **below, page **above);
/* Whether a (NULL: no) begins with all the tokens of its sibling b. */
bool tree_covers(const page *a, const page *b);

/* How far down the tree a query gets. */
typedef struct reach {
    size_t len;   /* the longest prefix that can be used, */
    page *donor;  /* the page that it ends in; NULL: none, and len is where the search began */
    size_t whole; /* the end of the whole pages that are there, */
    page *at;     /* the last of them; NULL: where the space starts */
    size_t most;  /* and of all tokens that are, */
    page *best;   /* which this one shares most of; NULL: none goes on */
    page *gap;    /* the last page on the way that is hollow; NULL: none */
} reach;
/* From a page (NULL: where the space starts) at position `at`, before which a chain may begin.
 * states: only what ends at a checkpoint can be used. */
reach tree_reach(const cache *c, const cache_space *space, page *from, size_t at,
                 const int32_t *tokens, size_t n, bool states);

/* ---- eviction (evict.c) ---------------------------------------------------------------------- */

void evict_add(cache *c, page *leaf);    /* an idle leaf may go from now on */
void evict_remove(cache *c, page *leaf); /* no longer; also before its use or hits change */
/* The idle leaf that is to go next, other than keep; or NULL. */
page *evict_next(cache *c, const page *keep);
void evict_chosen(cache *c, const page *leaf); /* that one will go */
void evict_born(cache *c, page *p);            /* a page was taken */
void evict_hit(cache *c, page *p); /* it was found by somebody (no candidate at this time) */
/* It was used now, and not since. Unless somebody comes back, it is to go first. */
void evict_used(cache *c, page *p, bool comes_back);
void evict_gone(cache *c, const page *p);   /* it is no more */
void evict_return(cache *c, const page *p); /* an idle page is used again; before that changes it */
/* What a full page holds had been evicted not long ago. */
void evict_back(cache *c, page *p, const ghost *g);
void evict_forgotten(cache *c, const ghost *g); /* and this did not come back */
const char *evict_check(const cache *c, size_t n_leaves);

/* ---- the least recently used, for comparison (rival.c) --------------------------------------- */

void rival_use(cache *c); /* an idle page's last use is now */
/* A page that was used last at this time, there or gone, is idle no more. Whether the rival had
 * it. */
bool rival_take(cache *c, uint64_t used);
void rival_count(cache *c, bool found, bool rival_found); /* of a page that was wanted */
bool rival_leads(const cache *c);

/* ---- idle leaves (leaf.c) -------------------------------------------------------------------- */

void leaf_enter(cache *c, page *p); /* an idle page without children: it became one of these */
void leaf_leave(cache *c, page *p); /* it will not be one any more */
void page_touch(cache *c, page *p); /* any page: was used just now */
/* Frees an idle leaf, and hollow pages that are leaves then. Returns the page above that has become
 * one, or NULL; its namespace may end. */
page *leaf_free(cache *c, page *leaf, enum cache_loss why);
/* A hollow page without children is idle: the same for it. */
page *leaf_free_hollow(cache *c, page *p);
/* The first n tokens of p are wanted until this time by somebody else. */
void page_inherit(cache *c, page *p, size_t n, double until);
/* p's time is over: frees the leaf, or what of it nobody wants longer. */
void leaf_expire(cache *c, page *leaf, enum cache_loss why);
/* Frees the leaf that is to go next, other than keep; with an owner, of its own. False: none. */
bool leaf_evict(cache *c, cache_owner *owner, const page *keep);

/* ---- what is behind windows (window.c) ------------------------------------------------------- */

/* How many leading pages of a sequence no position from len on reads. */
size_t window_n_behind(const cache *c, size_t len);
/* Whether positions from len on find what they read, if that is there from `gap` on (0: all is). */
bool window_serves(const cache *c, size_t gap, size_t len);
/* Of the first n pages of a chain, those that can be gone on from: what is read then is there. */
size_t window_reach(const chain *ch, size_t n);
/* The chain has become longer: lets go of what it does not read any more. */
void window_advance(chain *ch);
/* It may read page i, which has bytes, from now on; and not any more. */
void window_near(chain *ch, size_t i);
void window_leave(chain *ch, size_t i, enum behind kind);
/* While on, pages [from, n) of a path do not go; p is the last of them. */
void window_hold(cache *c, page *p, size_t n, size_t from, bool on);
/* Takes a page out of the order in which those behind go. */
void window_unlist(cache *c, page *p);
/* Makes a page hollow that is behind (of an owner's, if there is one), other than keep. False:
 * there is none of this kind, or no bookkeeping for it. */
bool window_give_up(cache *c, cache_owner *owner, enum behind kind, const page *keep);
/* A hollow page gets its bytes back from one that was computed again. */
void window_fill(cache *c, page *hollow, page *own);

static inline void *window_nothing(const cache *c) {
    return c->bytes + c->n_pages * c->stride;
}

/* ---- checkpoints (checkpoint.c) ---------------------------------------------------------------
 */

/* Copies the state at the end of p, which has one, to that of a chain. */
void checkpoint_load(chain *ch, page *p);
void checkpoint_free(cache *c, page *first); /* all its parts */
void checkpoint_leave(chain *ch);            /* the chain closes: its trail stays where it is, */
void checkpoint_release(chain *ch);          /* and what it kept may go */

/* A free page, evicting when there is none, or when the owner has its share. NULL: nothing but keep
 * could be evicted (chain.c). */
page *chain_obtain(chain *ch, const page *keep);

static inline page *chain_page_at(const chain *ch, size_t i) {
    return ch->nodes[i];
}

/* ---- what is gone (ghost.c) ------------------------------------------------------------------ */

/* The fingerprint of a prefix that ends with these n tokens, from that of what comes before. */
uint64_t ghost_print(uint64_t before, const int32_t *tokens, size_t n);
uint64_t ghost_parent(const cache_space *space, const page *parent); /* NULL: where it starts */
uint64_t ghost_of(const page *p); /* of the prefix that ends with this page of the tree */
void ghost_note(cache *c, const page *p, enum cache_loss why);
/* A full page is back: tells the order of eviction, and forgets its ghost. */
void ghost_back(cache *c, page *p);
const ghost *ghost_find(const cache *c, uint64_t print); /* or NULL */

/* ---- other sizes (curve.c) ------------------------------------------------------------------- */

typedef struct curve curve;
/* Follows at most n pages, n > 0, of a cache of n_pages. Other calls take NULL for none at all. */
int curve_open(size_t n, size_t n_pages, curve **out);
void curve_close(curve **c);
/* A prompt wants this page, which this cache had (hit) or not: counts. */
void curve_ask(curve *c, uint64_t print, bool hit);
size_t curve_size(size_t n);                 /* bytes */
void curve_use(curve *c, uint64_t print);    /* it is the most recently used one now */
void curve_forget(curve *c, uint64_t print); /* a larger cache would not have it either */
void curve_read(const curve *c, cache_curve *out);
void curve_resize(curve *c, size_t n_pages); /* of the cache, from now on: begins anew */

/* ---- owners and namespaces (space.c) --------------------------------------------------------- */

int owner_init(cache *c); /* makes `nobody` */
void space_ref(cache *c, cache_space *s);
void space_unref(cache *c, cache_space *s);
/* Ends a namespace that nobody holds once it has no page, and so its owner. */
void space_release(cache *c, cache_space *s);
void space_fini(cache *c);               /* ends all, pages or not */
size_t space_cost(const cache_space *s); /* bytes */
size_t owner_cost(const cache_owner *o);

static inline cache_space *space_of(treap_link *link) {
    return link ? (cache_space *)((char *)link - offsetof(cache_space, link)) : NULL;
}

static inline cache_owner *owner_of(treap_link *link) {
    return link ? (cache_owner *)((char *)link - offsetof(cache_owner, link)) : NULL;
}

#endif
