/* Fuzzes the cache with a stream of operations, against a naive twin: a list of all that was ever
 * published. A hit is never longer than the longest common prefix with one of these, exactly as
 * long while nothing had to go, and its pages hold what its tokens make. */
#include <math.h>

#include "fuzz.h"

#include "../cache/cells.h"

enum { N_CHAINS = 4, MOST_TOKENS = 4 * CACHE_PAGE, MOST_PUBLISHED = 256, N_SPACES = 2 };

typedef struct text {
    int space;
    size_t n;
    int32_t token[MOST_TOKENS];
} text;

typedef struct world {
    cache *cache;
    cache_space *space[N_SPACES];
    chain *chain[N_CHAINS];
    text own[N_CHAINS]; /* what stands in each chain, or is to stand there */
    text published[MOST_PUBLISHED];
    size_t n_published;
    bool lossy; /* something may have been forgotten */
} world;

static size_t common(const text *a, const text *b) {
    size_t n = 0;
    while (n < a->n && n < b->n && a->token[n] == b->token[n]) n++;
    return n;
}

static size_t naive_match(const world *w, const text *t) {
    size_t longest = 0;
    for (size_t i = 0; i < w->n_published; i++)
        if (w->published[i].space == t->space) longest = MAX(longest, common(&w->published[i], t));
    return longest;
}

static void note(world *w, int i) {
    if (w->n_published == MOST_PUBLISHED) return;
    text *p = &w->published[w->n_published++];
    *p = w->own[i];
    p->n = chain_len(w->chain[i]);
}

/* Long texts of few different tokens: runs, so that prefixes meet and part anywhere. */
static void read_text(fuzz_input *in, text *t) {
    t->space = (int)(fuzz_byte(in) % N_SPACES);
    t->n = 0;
    for (uint32_t runs = fuzz_byte(in) % 6; runs > 0; runs--) {
        uint32_t token = fuzz_byte(in) % 3, n = fuzz_byte(in) % 100;
        while (n-- && t->n < MOST_TOKENS) t->token[t->n++] = (int32_t)token;
    }
}

/* Looks whether anything had to go; returns the free pages. */
static size_t count_free(world *w) {
    cache_stats s;
    cache_get_stats(w->cache, &s);
    w->lossy |= s.evictions > 0;
    return s.n_free;
}

static void begin(world *w, int i, fuzz_input *in) {
    text *t = &w->own[i];
    read_text(in, t);
    if (chain_open(w->cache, w->space[t->space], &w->chain[i]) < 0) {
        w->chain[i] = NULL;
        return;
    }
    size_t most = naive_match(w, t), limit = t->n ? t->n - 1 : 0;
    bool room = count_free(w) > 0; /* part of a page needs one to be copied to */
    size_t hit = chain_match(w->chain[i], t->token, t->n, limit);
    must(hit <= MIN(most, limit) && hit == chain_len(w->chain[i]));
    if (!w->lossy && room) must(hit == MIN(most, limit));
    count_free(w);
    cells_check(w->chain[i], t->space, t->token);
}

static void compute(world *w, int i, size_t n) {
    text *t = &w->own[i];
    size_t from = chain_len(w->chain[i]), to = MIN(from + n, t->n);
    int rc = chain_reserve(w->chain[i], to);
    count_free(w);
    if (rc < 0) return;
    cells_write(w->chain[i], t->space, t->token, to);
    chain_publish(w->chain[i], t->token + from, to - from);
    must(chain_len(w->chain[i]) == to);
    note(w, i);
}

/* Chain i comes to stand for the beginning of chain k. */
static void begin_on(world *w, int i, int k, size_t n) {
    w->own[i] = w->own[k];
    if (chain_open_on(w->chain[k], n, INFINITY, &w->chain[i]) < 0) w->chain[i] = NULL;
    count_free(w);
    size_t whole = MIN(n, chain_len(w->chain[k])) / CACHE_PAGE * CACHE_PAGE;
    if (w->chain[i]) must(chain_len(w->chain[i]) == whole);
}

static void step(world *w, fuzz_input *in) {
    uint32_t op = fuzz_byte(in);
    int i = (int)(op >> 4) % N_CHAINS;
    int k = (i + 1) % N_CHAINS;
    if (!w->chain[i] && w->chain[k] && op % 16 == 14) {
        begin_on(w, i, k, fuzz_byte(in));
    } else if (!w->chain[i]) {
        begin(w, i, in);
    } else if (op % 4 < 2) {
        compute(w, i, fuzz_byte(in));
    } else if (op % 16 == 15) {
        cache_drop(w->cache, w->space[w->own[i].space]);
        w->lossy = true;
    } else {
        chain_close(&w->chain[i]);
    }
    for (int k = 0; k < N_CHAINS; k++)
        if (w->chain[k]) cells_check(w->chain[k], w->own[k].space, w->own[k].token);
    must(!cache_check(w->cache));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static world w;
    memset(&w, 0, sizeof w);
    fuzz_input in = {data, size};
    w.cache = cells_open(8 + 8 * (fuzz_byte(&in) % 8), false, CACHE_HAZARD);
    for (int i = 0; i < N_SPACES; i++)
        must(cache_space_get(w.cache, NULL, &i, sizeof i, &w.space[i]) == 0);
    for (int n = 0; in.len && n < 120; n++) step(&w, &in);
    for (int i = 0; i < N_CHAINS; i++)
        if (w.chain[i]) chain_close(&w.chain[i]);
    for (int i = 0; i < N_SPACES; i++) cache_space_put(w.cache, &w.space[i]);
    must(!cache_check(w.cache));
    cache_close(&w.cache);
    return 0;
}
