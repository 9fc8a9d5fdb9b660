/* cache: the prefix cache. Which pages hold the KV of which token prefix, who uses them, and
 * which go when memory is short.
 *
 * To this module a token is a number, a page an index and n bytes. It knows no tensors, models or
 * requests; copying between pages is done by the caller's callback. One thread calls it.
 * README.md beside this file has the data structure, its states and its numbered invariants. */
#ifndef CACHE_H
#define CACHE_H

#include "base.h"

enum { CACHE_PAGE = 64 }; /* tokens in a page; pages sit at absolute positions */

typedef struct page_id {
    uint32_t index;
} page_id;

typedef struct cache cache;

/* Which page goes when memory is short; the first one is the default. */
enum cache_policy { CACHE_HAZARD, CACHE_ARC, CACHE_LRU, CACHE_FIFO, CACHE_LFU, CACHE_COST };
const char *cache_policy_name(int policy); /* "hazard", …; NULL: there is none of that number */

typedef struct cache_opts {
    size_t page_size;  /* bytes */
    size_t state_size; /* bytes of what a sequence carries beside its pages; 0: nothing */
    size_t window;     /* tokens that a position reads, itself and those before it; 0: all. Not
                        * with `least`: then all pages are kept */
    size_t limit;      /* bytes for everything: pages, tree and bookkeeping */
    size_t least;      /* what the limit may be lowered to (cache_confine); 0: it stays */
    bool no_reuse;     /* nothing is found again (--no-cache) */
    enum cache_policy policy;
    size_t curve_samples; /* for cache_get_curve; 0: none */
    /* Copies the first n tokens of a page (copy-on-write of a partial page). */
    void (*copy)(void *arg, void *to, const void *from, int n_tokens);
    void *copy_arg;
} cache_opts;

/* Reserves all its pages and their bookkeeping; what is allocated later (chains, namespaces) has
 * its share of the limit set aside. ICP_ELIMIT: the limit holds less than a few pages. */
int cache_open(const cache_opts *opts, cache **out, icp_error *err);
/* The least limit that holds so many pages (without a curve and a window). */
size_t cache_limit_of(size_t page_size, size_t n_pages);
size_t cache_window_cost(size_t page_size, size_t n_pages); /* what a window adds to it */
/* Of a cache with opts.least: from now on it has no more than so many bytes, between that and
 * opts.limit. What goes is evicted, and its memory given back; only what chains have stays until
 * they close. Returns how many pages that is. */
size_t cache_confine(cache *c, size_t limit);
size_t cache_pages_within(const cache *c, size_t limit); /* pages that such a limit holds */
void cache_close(cache **c); /* its chains must be closed; ends all namespaces, held or not */
/* Address of a page's bytes, 64-byte aligned; NULL: others got them (windows). */
void *cache_page(const cache *c, page_id page);
/* Gives memory to some of the pages that will be the next to be used for the first time: the first
 * use of memory costs more than any later one. To be called when there is nothing better to do, as
 * often as it returns true. */
bool cache_commit(cache *c);

/* The time, in seconds of any clock that only goes forward: expired pages go. Times that the cache
 * tells are of this clock, as of the last tick. */
void cache_tick(cache *c, double now);
/* When the next page expires; INFINITY when none does. */
double cache_next_expiry(const cache *c);

/* An owner: who pays for pages, and who may ask about them. Its namespaces together have at most
 * quota pages (SIZE_MAX: no bound of its own), whoever else is short of them; an owner keeps the
 * quota with which it was made. Life and errors as for a namespace. */
typedef struct cache_owner cache_owner;
int cache_owner_get(cache *c, const void *key, size_t len, size_t quota, cache_owner **out);
void cache_owner_put(cache *c, cache_owner **owner);
void cache_owner_pages(const cache_owner *owner, size_t *n_pages, size_t *n_idle);

/* A namespace of an owner (NULL: the one that nobody is): prefixes are shared only within one. key
 * holds everything that decides whether KV may be shared: model fingerprint, KV format, salt.
 * Compared byte by byte. The caller holds it until it puts it back; it then lives on while chains
 * or pages need it. ICP_EAGAIN: chains and other namespaces use all that the limit leaves them;
 * ICP_ENOMEM. */
typedef struct cache_space cache_space;
typedef struct chain chain;
int cache_space_get(cache *c, cache_owner *owner, const void *key, size_t len, cache_space **out);
/* The same for sequences that all begin with the full pages of base, a chain of another namespace
 * that stays open until cache_close or longer than this namespace lives: these pages are shared,
 * and everything after them is the namespace's own. The key tells the base, too. Where there is a
 * window, the base ends with its full pages; where sequences carry a state, it keeps the checkpoint
 * at their end. */
int cache_space_get_on(cache *c, cache_owner *owner, const chain *base, const void *key, size_t len,
                       cache_space **out);
void cache_space_put(cache *c, cache_space **space);
size_t cache_space_base(const cache_space *space); /* tokens of its base; 0: it has none */

/* A chain: one sequence's pages from position 0 up. It pins them while open. With space NULL it
 * finds nothing and leaves nothing behind. ICP_EAGAIN and ICP_ENOMEM as for a namespace. */
int chain_open(cache *c, cache_space *space, chain **out);
/* Another chain of of's namespace that pins the full pages of its first n tokens, as far as they
 * are there, and keeps them until this time (chain_keep_until). Nobody asked for them by that. */
int chain_open_on(const chain *of, size_t n, double until, chain **out);
/* Unpins; published pages stay behind as cache, the others are freed. */
void chain_close(chain **ch);
/* What it leaves behind is forgotten at this time, unless others use it or want it longer; one that
 * is past: at once. Set before the first match. */
void chain_keep_until(chain *ch, double time);
/* Nobody comes back for it: what only this chain had used will be the first to be evicted. */
void chain_retire(chain *ch);
/* Tokens that it publishes from position `from` on were sampled (cache_respell). */
void chain_sampled_from(chain *ch, size_t from);
/* Frees the pages that were reserved beyond its length. */
void chain_trim(chain *ch);

/* Finds the longest cached prefix of tokens[0..n), token by token, and pins it; called with
 * chain_len(ch) > 0 it looks for more from there (tokens still begin at position 0). Returns the
 * length that is now usable: at most `limit`, at least what it was. The bytes of positions below
 * it may be read as long as the chain lives. Whatever does not fill its page is copied into a page
 * of the chain's own, or taken over from a finished sequence whose page ends there; when no page
 * can be had for that, the hit is rounded down to a page edge. */
size_t chain_match(chain *ch, const int32_t *tokens, size_t n, size_t limit);

/* ---- windows ---------------------------------------------------------------------------------
 * With a window, a chain reads positions from chain_len + 1 - window on: the pages before that are
 * behind it. When memory is short, they go first, though chains have them; what they held is no
 * longer found by itself, but prefixes that end far enough behind it are. */

/* The chain goes on from its prompt's end, not only from its own: pages that this needs and that
 * are there stay with it. */
void chain_keep_prompt(chain *ch);
/* Tokens of the longest sequence that so many pages are enough for. */
size_t cache_longest(const cache *c, size_t n_pages);

/* ---- sequences that carry a state ------------------------------------------------------------
 * With state_size, the pages alone do not make a prefix usable: a checkpoint of the state at its
 * end must be there as well. Checkpoints are copies of states at page edges, kept in pages of the
 * same pool; chain_match and cache_probe then find the longest prefix that ends at one. */

/* The chain's state: state_size bytes of the caller's, which stand for position chain_len. A match
 * that makes the chain longer writes them. To be set before the first match, of every chain that
 * is matched; NULL: the state is nobody's any more. */
void chain_carry(chain *ch, void *state);

/* What becomes of a checkpoint that a chain leaves. */
enum checkpoint_use {
    CHECKPOINT_TRAIL, /* the chain's next one takes its place; the last stays behind */
    CHECKPOINT_STAYS, /* until it is evicted */
    CHECKPOINT_SPARE, /* the same where there are free pages for it, and it is evicted first */
};
/* Keeps a copy of the state for others, if chain_len is a page edge, evicting for it like
 * chain_reserve. Where no page can be had, nothing is kept. */
void chain_checkpoint(chain *ch, enum checkpoint_use use);
/* The end of the whole pages that the last match found and could not use, for lack of a checkpoint;
 * 0: there were none. Others that come this way will leave it there as well. */
size_t chain_branch(const chain *ch);
/* The last checkpoint along the chain is not evicted while the chain is open; once a chain. Returns
 * its position; 0: there is none. */
size_t chain_keep_checkpoint(chain *ch);

/* Makes room to write positions [chain_len, n_tokens): takes free pages, evicting leaf-first LRU
 * when there are none. All or nothing. ICP_EAGAIN: not enough pages can be evicted now;
 * ICP_ELIMIT: the cache never has so many; ICP_ENOMEM. */
int chain_reserve(chain *ch, size_t n_tokens);

/* The bytes of positions [chain_len, chain_len + n), reserved before, were written for these n
 * tokens and never change again: others may find them. A full page that equals one already in the
 * tree is given up for it (their bytes are equal by contract). Never fails. */
void chain_publish(chain *ch, const int32_t *tokens, size_t n);

size_t chain_len(const chain *ch);      /* published or matched tokens */
size_t chain_n_pages(const chain *ch);  /* reserved ones included, and those behind the window, */
size_t chain_n_behind(const chain *ch); /* which so many of the first ones are */
page_id chain_page(const chain *ch, size_t i); /* with a namespace */
/* Addresses of the pages by index, valid until the next call that changes the chain. Behind the
 * window it is an address that is not to be read. */
void *const *chain_pages(const chain *ch);

/* The first n tokens are a prompt that was asked for, and n_hit of them were found: counts for the
 * curve, once a prompt. They are published or matched. */
void chain_asked(chain *ch, size_t n, size_t n_hit);

typedef struct cache_stats {
    size_t n_pages, n_free, n_pinned,
        n_cached;    /* cached: all that may be evicted and is not in use */
    size_t n_hollow; /* known pages that gave up their bytes */
    size_t n_checkpoints, n_checkpoint_pages; /* the latter are cached pages, too */
    size_t page_size, limit, metadata;        /* bytes; metadata: all that is not pages */
    uint64_t evictions;                       /* pages and checkpoints that went to make room */
    uint64_t expired;                         /* pages whose time was over */
    uint64_t copies, adoptions;               /* partial pages that were copied, taken over */
    uint64_t duplicates;                      /* pages given up because another holds the same */
} cache_stats;
void cache_get_stats(const cache *c, cache_stats *out);
/* What caches of other sizes would have found, if they evicted the least recently used pages: the
 * share of the full pages of prompts (chain_asked) that were there, recent ones counting more.
 * Estimated from curve_samples pages: exact when there are no more, off by about a hundredth from
 * thousands. */
enum { CACHE_CURVE_SIZES = 4 };
#define CACHE_CURVE_SCALES                                                                         \
    { 0.5, 1, 2, 4 }
typedef struct cache_curve {
    double asked;                    /* pages that the shares are of; 0: nothing is known */
    double found[CACHE_CURVE_SIZES]; /* with so many times the pages; 0 to 1 */
} cache_curve;
void cache_get_curve(const cache *c, cache_curve *out);
size_t cache_curve_cost(size_t samples); /* bytes of the limit */

/* Pages that chain_reserve could obtain now: free ones and those that may be evicted; for an owner
 * (NULL: anybody) no more than its quota leaves. */
size_t cache_obtainable(const cache *c, const cache_owner *owner);

/* Forgets every page that nobody uses: of one space, of one owner, of all. */
void cache_drop(cache *c, cache_space *space);
void cache_drop_owner(cache *c, cache_owner *owner);
void cache_drop_all(cache *c);

/* ---- questions: they pin and change nothing (explain.c, respell.c) --------------------------- */

/* Length of the longest prefix of tokens that a chain could match now. Of a namespace with a base,
 * tokens begin with it. */
size_t cache_probe(const cache *c, const cache_space *space, const int32_t *tokens, size_t n);

enum cache_loss {                      /* why something is there no more */
                  CACHE_LOSS_NONE,     /* nothing is known of that */
                  CACHE_LOSS_ROOM,     /* evicted, others needed the page */
                  CACHE_LOSS_QUOTA,    /* evicted, its owner needed the page */
                  CACHE_LOSS_EXPIRED,  /* its time was over */
                  CACHE_LOSS_DROPPED,  /* forgotten on demand */
                  CACHE_LOSS_UNSTORED, /* its request wanted it so */
                  CACHE_LOSS_WINDOW,   /* it is behind the window of what is there */
};

enum { CACHE_OTHER = 8 };
typedef struct cache_miss {
    size_t len;                 /* longest prefix that can be used, with a checkpoint or not */
    enum cache_loss loss;       /* what followed was there once, */
    size_t lost_len;            /* at least up to here, */
    double lost_at;             /* went at this time, */
    uint32_t lost_pinned;       /* when so many pages were in use by running sequences */
    int n_other;                /* what is there goes on otherwise, */
    int32_t other[CACHE_OTHER]; /* with these tokens: the nearest in order of token ids */
} cache_miss;
/* Why tokens[len] would have to be computed. What was lost is remembered as fingerprints, for as
 * many pages as the cache has, so that it may be forgotten, and (2^-64) mistaken. */
void cache_explain(const cache *c, const cache_space *space, const int32_t *tokens, size_t n,
                   cache_miss *out);

/* Length of the longest prefix that any other namespace of the space's owner holds, and that one's
 * key (when it holds some); at most `most` of them are looked at. */
size_t cache_probe_others(const cache *c, const cache_space *space, const int32_t *tokens, size_t n,
                          size_t most, const void **key);

/* A run of pages without a branch in it, as part of a tree in depth-first order. */
typedef struct cache_node {
    const cache_space *space;
    const void *key; /* of the space */
    size_t key_len;
    size_t depth;    /* branches above it */
    size_t position; /* of its first token */
    size_t n_tokens, n_pages, n_pinned, n_sampled;
    size_t n_hollow;      /* beside n_pages: tokens whose pages are gone, behind a window */
    uint64_t hits;        /* of its last page */
    double used_at;       /* when its last page was used; of a pinned one: now */
    double until;         /* when it is forgotten; INFINITY: it is not */
    const int32_t *first; /* its first tokens, n_first of them */
    size_t n_first;
} cache_node;
/* Shows all nodes of an owner's namespaces until show returns false. */
void cache_walk(const cache *c, const cache_owner *owner,
                bool (*show)(void *arg, const cache_node *node), void *arg);

/* How tokens are spelled: the bytes of a token; NULL when it stands for itself only (a special
 * token, which no text spells). */
typedef struct cache_spelling {
    const char *(*bytes)(const void *arg, int32_t token, size_t *len);
    const void *arg;
} cache_spelling;
/* A sampled text that comes back as text may be cut into other tokens than those that were sampled.
 * Finds a prefix in the space that spells the same bytes as tokens[0..*n_in) and where it differs
 * from them has sampled tokens, and puts it into out[0..*n_out), which has room for `room`. Both
 * ends are ends of tokens. False: the space has no prefix but the one that cache_probe finds. */
bool cache_respell(const cache *c, const cache_space *space, const cache_spelling *spelling,
                   const int32_t *tokens, size_t n, int32_t *out, size_t room, size_t *n_out,
                   size_t *n_in);

/* Checks the invariants of README.md; NULL, or which one is broken (for tests). */
const char *cache_check(const cache *c);

#endif
