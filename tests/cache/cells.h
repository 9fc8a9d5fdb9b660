/* Pages whose bytes tell what they were written for. The cell of position p is a hash of the
 * namespace and of all tokens up to p, as KV is a function of all of them: a page that is shared
 * wrongly, evicted too early or overwritten shows it. */
#ifndef CELLS_H
#define CELLS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cache.h"

typedef uint64_t cell;
enum { CELLS_SIZE = CACHE_PAGE * sizeof(cell) };

static inline cell cell_next(cell before, int32_t token) {
    uint64_t state = before ^ (uint32_t)token;
    return random_next(&state);
}

static inline cell cell_root(int space) {
    return cell_next(0, space);
}

/* cache_opts.copy */
static inline void cells_copy(void *arg, void *to, const void *from, int n) {
    (void)arg;
    memcpy(to, from, (size_t)n * sizeof(cell));
}

/* Writes positions [chain_len, n), as a forward pass would, without publishing them. */
static inline void cells_write(const chain *ch, int space, const int32_t *tokens, size_t n) {
    cell h = cell_root(space);
    for (size_t p = 0; p < n; p++) {
        h = cell_next(h, tokens[p]);
        if (p < chain_len(ch)) continue;
        cell *page = chain_pages(ch)[p / CACHE_PAGE];
        page[p % CACHE_PAGE] = h;
    }
}

/* Checks that positions [0, chain_len) hold what these tokens make, but for those behind a window.
 */
static inline void cells_check(const chain *ch, int space, const int32_t *tokens) {
    cell h = cell_root(space);
    for (size_t p = 0; p < chain_len(ch); p++) {
        h = cell_next(h, tokens[p]);
        if (p / CACHE_PAGE < chain_n_behind(ch)) continue;
        const cell *page = chain_pages(ch)[p / CACHE_PAGE];
        assert_true(page[p % CACHE_PAGE] == h);
    }
}

/* A cache of n pages, with a window or (0) without. */
static inline cache *cells_open_window(size_t n_pages, size_t window, int policy) {
    cache_opts opts = {.page_size = CELLS_SIZE,
                       .window = window,
                       .limit = cache_limit_of(CELLS_SIZE, n_pages) +
                                (window ? cache_window_cost(CELLS_SIZE, n_pages) : 0),
                       .policy = (enum cache_policy)policy,
                       .copy = cells_copy};
    cache *c = NULL;
    cache_stats s;
    assert_int_equal(cache_open(&opts, &c, NULL), 0);
    cache_get_stats(c, &s);
    assert_int_equal(s.n_pages, n_pages);
    return c;
}

/* A cache of n pages, by the smallest limit. */
static inline cache *cells_open(size_t n_pages, bool no_reuse, int policy) {
    cache_opts opts = {.page_size = CELLS_SIZE,
                       .limit = cache_limit_of(CELLS_SIZE, n_pages),
                       .no_reuse = no_reuse,
                       .policy = (enum cache_policy)policy,
                       .copy = cells_copy};
    cache *c = NULL;
    assert_int_equal(cache_open(&opts, &c, NULL), 0);
    return c;
}

#endif
