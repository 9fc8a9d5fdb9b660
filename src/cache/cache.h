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
#define PAGE_NONE ((page_id){UINT32_MAX})

typedef struct cache cache;

typedef struct cache_opts {
    size_t page_size; /* bytes */
    size_t limit;     /* bytes for everything: pages, tree and bookkeeping */
    bool no_reuse;    /* nothing is found again (--no-cache) */
    /* Copies the first n tokens of a page (copy-on-write of a partial page). */
    void (*copy)(void *arg, void *to, const void *from, int n_tokens);
    void *copy_arg;
} cache_opts;

/* Reserves all its pages and their bookkeeping; what is allocated later (chains, namespaces) has
 * its share of the limit set aside. ICP_ELIMIT: the limit holds less than a few pages. */
int cache_open(const cache_opts *opts, cache **out, icp_error *err);
void cache_close(cache **c); /* its chains must be closed; ends all namespaces, held or not */
void *cache_page(const cache *c, page_id page); /* address of a page's bytes, 64-byte aligned */

/* A namespace: prefixes are shared only within one. key holds everything that decides whether KV
 * may be shared: model fingerprint, KV format, tenant, salt. Compared byte by byte.
 * The caller holds it until it puts it back; it then lives on while chains or pages need it.
 * ICP_EAGAIN: chains and other namespaces use all that the limit leaves them; ICP_ENOMEM. */
typedef struct cache_space cache_space;
int cache_space_get(cache *c, const void *key, size_t len, cache_space **out);
void cache_space_put(cache *c, cache_space **space);

/* A chain: one sequence's pages from position 0 up. It pins them while open. With space NULL it
 * finds nothing and leaves nothing behind. ICP_EAGAIN and ICP_ENOMEM as for a namespace. */
typedef struct chain chain;
int chain_open(cache *c, cache_space *space, chain **out);
/* Unpins; published pages stay behind as cache, the others are freed. */
void chain_close(chain **ch);

/* Finds the longest cached prefix of tokens[0..n), token by token, and pins it; called with
 * chain_len(ch) > 0 it looks for more from there (tokens still begin at position 0). Returns the
 * length that is now usable: at most `limit`, at least what it was. The bytes of positions below
 * it may be read as long as the chain lives. Whatever does not fill its page is copied into a page
 * of the chain's own, or taken over from a finished sequence whose page ends there; when no page
 * can be had for that, the hit is rounded down to a page edge. */
size_t chain_match(chain *ch, const int32_t *tokens, size_t n, size_t limit);

/* Makes room to write positions [chain_len, n_tokens): takes free pages, evicting leaf-first LRU
 * when there are none. All or nothing. ICP_EAGAIN: not enough pages can be evicted now;
 * ICP_ELIMIT: the cache never has so many; ICP_ENOMEM. */
int chain_reserve(chain *ch, size_t n_tokens);

/* The bytes of positions [chain_len, chain_len + n), reserved before, were written for these n
 * tokens and never change again: others may find them. A full page that equals one already in the
 * tree is given up for it (their bytes are equal by contract). Never fails. */
void chain_publish(chain *ch, const int32_t *tokens, size_t n);

size_t chain_len(const chain *ch);     /* published or matched tokens */
size_t chain_n_pages(const chain *ch); /* reserved ones included */
page_id chain_page(const chain *ch, size_t i);
/* Addresses of the pages by index, valid until the next call that changes the chain. */
void *const *chain_pages(const chain *ch);

typedef struct cache_stats {
    size_t n_pages, n_free, n_pinned, n_cached; /* cached: published and not pinned */
    size_t page_size, limit, metadata;          /* bytes; metadata: all that is not pages */
    uint64_t evictions;
    uint64_t copies, adoptions; /* partial pages that were copied, taken over */
    uint64_t duplicates;        /* pages given up because another holds the same */
} cache_stats;
void cache_get_stats(const cache *c, cache_stats *out);
/* Pages that chain_reserve could obtain now: free ones and those that may be evicted. */
size_t cache_obtainable(const cache *c);

/* Length of the longest prefix of tokens that the space holds, pinning and changing nothing: so
 * also the first position at which they differ from everything there. */
size_t cache_probe(const cache *c, const cache_space *space, const int32_t *tokens, size_t n);

/* Forgets every page that nobody uses; of one space, or of all (NULL). */
void cache_drop(cache *c, cache_space *space);

/* Checks the invariants of README.md; NULL, or which one is broken (for tests). */
const char *cache_check(const cache *c);

#endif
