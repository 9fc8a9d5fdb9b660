/* The cache against a naive twin: random steps on tiny pools, checked after each.
 *
 * The twin is a list of every token string that was ever published, by namespace. A page's bytes
 * tell which tokens they were written for (cells.h). Three things must hold of a hit:
 *
 *   right     the bytes of all its positions are those of its tokens in its namespace;
 *   not more  it is no longer than what any published string has in common with the query;
 *   not less  it is no shorter than what the strings that must still be there have in common with
 *             it: those of open chains, and all that were published since the last eviction.
 *
 * With a window, that holds of what ends no more than a window behind the pages that a string had
 * let go when something was evicted for the first time.
 *
 * Without eviction the last two leave one answer. One namespace belongs to an owner with a quota,
 * one begins with a base that it shares with nobody else here; some chains leave nothing behind, or
 * for a while only, and what they alone had published must not be found afterwards.
 * ICP_CACHE_STEPS: steps in all (default below). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cells.h"

enum { STEPS = 240000, N_SPACES = 4, MAX_CHAINS = 6, MAX_LEN = 300, MAX_STRINGS = 4000 };
enum { OWNED = 1, BASED = 3, BASE_ID = 77, BASE_LEN = CACHE_PAGE };

typedef struct live {
    chain *chain;
    int space; /* -1: private */
    size_t n;  /* tokens it will have in the end */
    double until;
    int32_t tokens[MAX_LEN];
} live;

typedef struct string {
    int space;
    double until, latest; /* its chain's wish, and the latest that anybody may have had */
    size_t n;
    size_t n_gone; /* leading pages that may not be there */
    int32_t tokens[MAX_LEN];
} string;

typedef struct world {
    cache *cache;
    uint64_t random;
    cache_space *spaces[N_SPACES];
    size_t window;
    size_t most_hollow;
    cache_owner *owner;
    cache_space *base_space;
    chain *base;
    size_t quota;
    size_t least, most; /* limits, where they change */
    double now, soon;   /* soon: when short-lived things end; 0: at once */
    live live[MAX_CHAINS];
    size_t n_live;
    string *strings;
    size_t n_strings;
    size_t n_old; /* strings before this one may have lost their pages */
    uint64_t evictions;
    int alphabet;
    uint64_t hits;
} world;

static uint32_t draw(world *w, uint32_t below) {
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((w->random >> 33) % below);
}

static size_t common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

/* What the cells of a namespace start from. */
static int cell_id(int space) {
    return space == BASED ? BASE_ID : space;
}

/* Leading pages that a prefix of so many tokens does not need. */
static size_t needs_from(const world *w, size_t len) {
    return w->window && len >= w->window ? (len + 1 - w->window) / CACHE_PAGE : 0;
}

/* ---- the twin -------------------------------------------------------------------------------- */

/* Leading pages of a chain that may be gone. */
static size_t gone_of(const world *w, const live *l) {
    return w->evictions ? chain_n_behind(l->chain) : 0;
}

static void add_string(world *w, const live *l, double latest) {
    string *s = &w->strings[w->n_strings++];
    *s = (string){.space = l->space, .until = l->until, .latest = latest, .n = chain_len(l->chain)};
    s->n_gone = gone_of(w, l);
    memcpy(s->tokens, l->tokens, s->n * sizeof *s->tokens);
}

/* Forgets all: a new world of strings. What is in use stays, and may be kept by others' wishes. */
static void start_anew(world *w) {
    cache_drop_all(w->cache);
    w->n_strings = w->n_old = 0;
    for (size_t i = 0; i < w->n_live; i++)
        if (w->live[i].space >= 0) add_string(w, &w->live[i], INFINITY);
}

static void remember(world *w, const live *l) {
    if (l->space < 0 || chain_len(l->chain) == 0) return;
    if (w->n_strings == MAX_STRINGS) start_anew(w);
    add_string(w, l, l->until);
}

static void note_evictions(world *w) {
    cache_stats s;
    cache_get_stats(w->cache, &s);
    if (s.evictions != w->evictions) w->n_old = w->n_strings;
    w->most_hollow = MAX(w->most_hollow, s.n_hollow);
    w->evictions = s.evictions;
}

/* The bounds of what the cache must find of a query. */
static void bounds(const world *w, int space, const int32_t *tokens, size_t n, size_t *least,
                   size_t *most) {
    *least = *most = 0;
    for (size_t i = 0; i < w->n_strings; i++) {
        const string *s = &w->strings[i];
        size_t same = common(tokens, n, s->tokens, s->n);
        if (s->space != space) continue;
        if (s->latest > w->now) *most = MAX(*most, same);
        if (s->until > w->now && i >= w->n_old && needs_from(w, same) >= s->n_gone)
            *least = MAX(*least, same);
    }
    for (size_t i = 0; i < w->n_live; i++) {
        const live *l = &w->live[i];
        if (l->space != space) continue;
        size_t same = common(tokens, n, l->tokens, chain_len(l->chain));
        if (needs_from(w, same) >= gone_of(w, l)) *least = MAX(*least, same);
        *most = MAX(*most, same);
    }
    for (size_t i = 0; space == BASED && i < MIN(n, BASE_LEN); i++)
        *least = MAX(*least, tokens[i] == (int32_t)i ? i + 1 : 0);
    *most = MAX(*most, *least);
}

/* ---- queries --------------------------------------------------------------------------------- */

/* A query that often goes along with what was there before. */
static size_t make_tokens(world *w, int32_t *tokens, int space) {
    size_t n = 1 + draw(w, MAX_LEN), known = 0;
    if (w->n_strings > 0 && draw(w, 5) > 0) {
        size_t recent = MIN(w->n_strings, 40);
        const string *s = &w->strings[w->n_strings - 1 - draw(w, (uint32_t)recent)];
        known = draw(w, 3) ? s->n : draw(w, (uint32_t)s->n + 1);
        known = MIN(known, n);
        memcpy(tokens, s->tokens, known * sizeof *tokens);
    }
    /* Long runs of one token make long common prefixes. */
    int32_t run = (int32_t)draw(w, (uint32_t)w->alphabet);
    for (size_t i = known; i < n; i++) {
        if (draw(w, 8) == 0) run = (int32_t)draw(w, (uint32_t)w->alphabet);
        tokens[i] = run;
    }
    if (space == BASED) {
        n = MAX(n, BASE_LEN + 1);
        for (size_t i = 0; i < BASE_LEN; i++) tokens[i] = (int32_t)i;
    }
    return n;
}

/* A namespace, got again if it was put back. */
static cache_space *held_space(world *w, int space) {
    if (!w->spaces[space])
        assert_int_equal(cache_space_get_on(w->cache, space == OWNED ? w->owner : NULL,
                                            space == BASED ? w->base : NULL, &space, sizeof space,
                                            &w->spaces[space]),
                         0);
    return w->spaces[space];
}

static size_t probe(world *w, int space, const int32_t *tokens, size_t n) {
    cache_space *at = held_space(w, space);
    note_evictions(w); /* a namespace may need room */
    size_t least, most, found = cache_probe(w->cache, at, tokens, n);
    bounds(w, space, tokens, n, &least, &most);
    assert_true(found >= least);
    assert_true(found <= most);
    return found;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void step_match(world *w, live *l) {
    size_t before = chain_len(l->chain);
    size_t limit = draw(w, 3) ? l->n : draw(w, (uint32_t)l->n + 1);
    if (l->space == BASED) limit = MAX(limit, BASE_LEN);
    size_t found = l->space < 0 ? 0 : probe(w, l->space, l->tokens, MIN(l->n, limit));
    size_t room = cache_obtainable(w->cache, l->space == OWNED ? w->owner : NULL);
    size_t hit = chain_match(l->chain, l->tokens, l->n, limit);
    assert_int_equal(hit, chain_len(l->chain));
    assert_true(hit <= MAX(found, before));
    if (room > found / CACHE_PAGE + 1) /* what it pins and the donor cannot be had for a copy */
        assert_int_equal(hit, MAX(found, before));
    else
        assert_true(hit >= before && (w->window || hit >= found / CACHE_PAGE * CACHE_PAGE));
    w->hits += hit > before;
    note_evictions(w);
    remember(w, l);
}

/* A chain that only stands for the beginning of another, as long as it wants. */
static void step_open_on(world *w, const live *of) {
    if (w->n_live == MAX_CHAINS || of->space < 0) return;
    live *l = &w->live[w->n_live];
    size_t n = draw(w, MAX_LEN), len = MIN(n, chain_len(of->chain)) / CACHE_PAGE * CACHE_PAGE;
    if (of->space == BASED) len = MAX(len, BASE_LEN);
    *l = *of;
    l->until = draw(w, 4) ? INFINITY : w->soon;
    assert_int_equal(chain_open_on(of->chain, n, l->until, &l->chain), 0);
    if (needs_from(w, len) >= gone_of(w, of)) assert_int_equal(chain_len(l->chain), len);
    assert_true(chain_len(l->chain) <= len && chain_len(l->chain) % CACHE_PAGE == 0);
    assert_int_equal(chain_n_pages(l->chain), chain_len(l->chain) / CACHE_PAGE);
    w->n_live++;
    note_evictions(w);
    remember(w, l);
}

static void step_open(world *w) {
    if (w->n_live == MAX_CHAINS) return;
    live *l = &w->live[w->n_live];
    l->space = draw(w, 12) ? (int)draw(w, N_SPACES) : -1;
    l->n = make_tokens(w, l->tokens, l->space);
    l->until = draw(w, 4) ? INFINITY : w->soon;
    cache_space *space = l->space < 0 ? NULL : held_space(w, l->space);
    assert_int_equal(chain_open(w->cache, space, &l->chain), 0);
    w->n_live++;
    chain_keep_until(l->chain, l->until);
    chain_sampled_from(l->chain, draw(w, MAX_LEN));
    if (draw(w, 8)) step_match(w, l);
}

static void step_close(world *w, live *l) {
    cells_check(l->chain, cell_id(l->space), l->tokens);
    if (draw(w, 3) == 0) chain_retire(l->chain);
    if (draw(w, 3) == 0) chain_trim(l->chain);
    chain_close(&l->chain);
    *l = w->live[--w->n_live];
}

static void step_compute(world *w, live *l) {
    size_t len = chain_len(l->chain);
    size_t room = cache_obtainable(w->cache, l->space == OWNED ? w->owner : NULL);
    size_t target = draw(w, 2) ? l->n : len + draw(w, (uint32_t)(l->n - len) + 1);
    size_t pages = (target + CACHE_PAGE - 1) / CACHE_PAGE, had = chain_n_pages(l->chain);
    int rc = chain_reserve(l->chain, target);
    note_evictions(w);
    if (pages > had && pages - had > room) {
        assert_true(rc == ICP_EAGAIN || rc == ICP_ELIMIT);
        assert_int_equal(chain_n_pages(l->chain), had);
        return;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(chain_n_pages(l->chain), MAX(pages, had));
    cells_write(l->chain, cell_id(l->space), l->tokens, target);
    while (len < target && draw(w, 30) > 0) { /* sometimes cancelled in between */
        size_t n = draw(w, 4) ? 1 + draw(w, 70) : 1;
        n = MIN(n, target - len);
        chain_publish(l->chain, l->tokens + len, n);
        len += n;
    }
    assert_int_equal(chain_len(l->chain), len);
    remember(w, l);
}

static void step_query(world *w) {
    int32_t tokens[MAX_LEN];
    int space = (int)draw(w, N_SPACES);
    size_t n = make_tokens(w, tokens, space);
    size_t found = probe(w, space, tokens, n);
    cache_miss miss;
    cache_explain(w->cache, held_space(w, space), tokens, n, &miss);
    assert_int_equal(miss.len, found);
    if (miss.n_other > 0) assert_true(found < n && miss.other[0] != tokens[found]);
    if (miss.loss != CACHE_LOSS_NONE) assert_in_range(miss.lost_len, found + 1, n);
    assert_true(w->window || miss.loss != CACHE_LOSS_WINDOW);
}

/* Time goes on, and what was to be forgotten is. */
static void step_tick(world *w) {
    if (w->soon > 0) {
        w->now = w->soon;
        w->soon += 10;
        for (size_t i = 0; i < w->n_live; i++) { /* those that still use it want it a while more */
            live *l = &w->live[i];
            if (isinf(l->until)) continue;
            l->until = w->soon;
            chain_keep_until(l->chain, l->until);
        }
    }
    cache_tick(w->cache, w->now);
    for (size_t i = 0; i < w->n_live; i++) remember(w, &w->live[i]);
}

static bool count_node(void *arg, const cache_node *node) {
    *(size_t *)arg += node->n_pages;
    return true;
}

/* Every page of an owner is shown, once. */
static void step_walk(world *w) {
    size_t shown = 0, own = 0;
    cache_walk(w->cache, w->owner, count_node, &shown);
    for (size_t i = 0; i < w->n_live; i++) {
        live *l = &w->live[i]; /* what it has reserved is not in the tree */
        if (l->space == OWNED)
            own += chain_n_pages(l->chain) - (chain_len(l->chain) + CACHE_PAGE - 1) / CACHE_PAGE;
    }
    size_t room = cache_obtainable(w->cache, w->owner);
    assert_true(shown + own <= w->quota);
    assert_true(room <= w->quota);
}

/* Forgets a namespace in use, an unused one, or everything that nobody uses. */
static void step_drop(world *w) {
    int space = (int)draw(w, N_SPACES);
    if (draw(w, 2)) {
        if (w->spaces[space]) cache_space_put(w->cache, &w->spaces[space]);
        return;
    }
    if (!w->spaces[space] && draw(w, 2)) return;
    cache_drop(w->cache, w->spaces[space]);
    w->n_old = w->n_strings;
    if (!w->spaces[space]) {
        cache_stats s;
        cache_get_stats(w->cache, &s);
        assert_int_equal(s.n_cached, 0);
    }
}

/* Another limit: what is in use stays, and counts. */
static void step_confine(world *w) {
    size_t limit = w->least + draw(w, (uint32_t)(w->most - w->least + 1));
    size_t excess = cache_confine(w->cache, limit);
    cache_stats s;
    cache_get_stats(w->cache, &s);
    note_evictions(w);
    assert_int_equal(s.limit, limit);
    assert_int_equal(s.n_pages, cache_pages_within(w->cache, limit) + excess);
    if (excess) assert_int_equal(s.n_pages, s.n_pinned);
}

static void step(world *w) {
    live *l = w->n_live > 0 ? &w->live[draw(w, (uint32_t)w->n_live)] : NULL;
    uint32_t kind = draw(w, 100);
    if (draw(w, 20) == 0) step_tick(w);
    if (draw(w, 20) == 0) step_walk(w);
    if (w->most && draw(w, 20) == 0) step_confine(w);
    if (l && kind < 3)
        step_open_on(w, l);
    else if (kind < 25 || !l)
        step_open(w);
    else if (kind < 45)
        step_close(w, l);
    else if (kind < 80)
        step_compute(w, l);
    else if (kind < 90)
        step_match(w, l);
    else if (kind < 99 || draw(w, 4))
        step_query(w);
    else
        step_drop(w);
    const char *broken = cache_check(w->cache);
    if (broken) fail_msg("%s", broken);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static size_t steps_wanted(void) {
    const char *text = getenv("ICP_CACHE_STEPS");
    return text ? strtoull(text, NULL, 10) : STEPS;
}

/* Large pages, so that bookkeeping is little beside them. */
enum { LARGE = 16 << 10 };

static cache *open_changing(const world *w, int policy) {
    cache_opts opts = {.page_size = LARGE,
                       .limit = w->most,
                       .least = w->least,
                       .policy = (enum cache_policy)policy,
                       .copy = cells_copy};
    cache *c = NULL;
    assert_int_equal(cache_open(&opts, &c, NULL), 0);
    return c;
}

static void begin(world *w, size_t n_pages) {
    int n_policies = 0;
    while (cache_policy_name(n_policies)) n_policies++;
    int policy = (int)(w->random % (uint64_t)n_policies);
    w->cache = w->most ? open_changing(w, policy) : cells_open_window(n_pages, w->window, policy);
    w->strings = calloc(MAX_STRINGS, sizeof *w->strings);
    assert_non_null(w->strings);
    w->quota = MAX(n_pages / 2, 3);
    assert_int_equal(cache_owner_get(w->cache, "o", 1, w->quota, &w->owner), 0);
    assert_int_equal(cache_space_get(w->cache, NULL, "base", 4, &w->base_space), 0);
    assert_int_equal(chain_open(w->cache, w->base_space, &w->base), 0);
    int32_t tokens[BASE_LEN];
    for (int i = 0; i < BASE_LEN; i++) tokens[i] = i;
    assert_int_equal(chain_reserve(w->base, BASE_LEN), 0);
    cells_write(w->base, BASE_ID, tokens, BASE_LEN);
    chain_publish(w->base, tokens, BASE_LEN);
}

static void end(world *w) {
    while (w->n_live > 0) step_close(w, &w->live[0]);
    for (int i = 0; i < N_SPACES; i++) cache_space_put(w->cache, &w->spaces[i]);
    cache_drop_all(w->cache);
    chain_close(&w->base);
    cache_space_put(w->cache, &w->base_space);
    cache_owner_put(w->cache, &w->owner);
    cache_drop_all(w->cache);
    assert_null(cache_check(w->cache));
    cache_stats s;
    cache_get_stats(w->cache, &s);
    assert_int_equal(s.n_free, s.n_pages);
    cache_close(&w->cache);
    free(w->strings);
}

/* Returns how many pages were evicted. */
static uint64_t run_world(world w, size_t n_pages, size_t n_steps) {
    begin(&w, n_pages);
    for (size_t i = 0; i < n_steps; i++) {
        step(&w);
        for (size_t k = 0; k < w.n_live; k++) {
            const chain *ch = w.live[k].chain;
            assert_true(chain_n_behind(ch) <= needs_from(&w, chain_len(ch)));
            cells_check(ch, cell_id(w.live[k].space), w.live[k].tokens);
        }
    }
    assert_true(w.hits > n_steps / 50);
    note_evictions(&w);
    uint64_t evictions = w.evictions;
    if (n_pages > 5 && n_pages <= 24 && w.window) assert_true(w.most_hollow > 1);
    end(&w);
    return evictions;
}

static uint64_t run(size_t n_pages, size_t window, int alphabet, uint64_t seed, size_t n_steps) {
    world w = {.random = seed, .window = window, .alphabet = alphabet, .soon = seed % 2 ? 10 : 0};
    return run_world(w, n_pages, n_steps);
}

static void test_tiny_pools(void **state) {
    const size_t n_pages[] = {4, 5, 8, 12};
    size_t n_steps = steps_wanted() / 24;
    for (size_t i = 0; i < COUNT_OF(n_pages); i++)
        for (int alphabet = 1; alphabet <= 3; alphabet++)
            assert_true(run(n_pages[i], 0, alphabet, 1000 * i + (uint64_t)alphabet, n_steps) > 0);
}

static void test_middling_pools(void **state) {
    const size_t n_pages[] = {16, 24, 40, 64};
    size_t n_steps = steps_wanted() / 12;
    for (size_t i = 0; i < COUNT_OF(n_pages); i++) run(n_pages[i], 0, 2 + (int)i, 77 + i, n_steps);
}

static void test_limits_that_change(void **state) {
    size_t n_steps = steps_wanted() / 24;
    for (uint64_t seed = 0; seed < 8; seed++) {
        world w = {.random = 500 + seed,
                   .alphabet = 2 + (int)seed % 3,
                   .soon = seed % 2 ? 10 : 0,
                   .least = (size_t)(140 + 40 * (seed % 4)) << 10,
                   .most = (size_t)(1 + seed / 2) << 20};
        assert_true(run_world(w, 8 + 4 * seed, n_steps) > 0);
    }
}

/* Bytes of all pages that have memory. */
static size_t resident(const cache *c, size_t n_pages) {
    static unsigned char there[1 << 16];
    size_t size = n_pages * LARGE, n = 0, system = (size_t)sysconf(_SC_PAGESIZE);
    assert_true(size / system <= sizeof there);
    assert_int_equal(mincore(cache_page(c, (page_id){0}), size, there), 0);
    for (size_t i = 0; i < size / system; i++) n += there[i] & 1;
    return n * system;
}

static void test_memory_is_given_back(void **state) {
    enum { LEN = 100 * CACHE_PAGE };
    static int32_t tokens[LEN];
    world w = {.least = 1 << 20, .most = 4 << 20};
    cache *c = open_changing(&w, CACHE_HAZARD);
    size_t n_pages = cache_pages_within(c, w.most);
    cache_space *space;
    chain *ch;
    assert_true(n_pages >= 100);
    assert_int_equal(cache_space_get(c, NULL, "s", 1, &space), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(chain_open(c, space, &ch), 0);
        chain_match(ch, tokens, LEN, LEN);
        assert_int_equal(chain_reserve(ch, LEN), 0);
        for (size_t i = chain_len(ch) / CACHE_PAGE; i < 100; i++)
            memset(chain_pages(ch)[i], 0, LARGE);
        chain_publish(ch, tokens + chain_len(ch), LEN - chain_len(ch));
        assert_true(resident(c, n_pages) >= 100 * LARGE);
        if (round) assert_true(cache_confine(c, w.least) >= 100 - cache_pages_within(c, w.least));
        chain_close(&ch);
        if (!round) assert_int_equal(cache_confine(c, w.least), 0);
        assert_true(resident(c, n_pages) <= cache_pages_within(c, w.least) * LARGE);
        assert_null(cache_check(c));
        assert_int_equal(cache_confine(c, w.most), 0);
    }
    cache_space_put(c, &space);
    cache_close(&c);
}

static void test_nothing_is_evicted(void **state) {
    size_t n_steps = steps_wanted() / 6;
    for (uint64_t seed = 0; n_steps > 0; seed++) {
        size_t part = MIN(n_steps, 1000);
        assert_int_equal(run(4096, seed % 3 * 50, 2, seed, part), 0);
        n_steps -= part;
    }
}

static void test_windows(void **state) {
    const size_t n_pages[] = {4, 5, 8, 12, 24, 64}, windows[] = {2, 64, 65, 66, 100, 150};
    size_t n_steps = steps_wanted() / 40;
    for (size_t i = 0; i < COUNT_OF(n_pages); i++)
        for (size_t k = 0; k < COUNT_OF(windows); k++)
            run(n_pages[i], windows[k], 1 + (int)((i + k) % 3), 100 * i + k, n_steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_pools),         cmocka_unit_test(test_middling_pools),
        cmocka_unit_test(test_limits_that_change), cmocka_unit_test(test_memory_is_given_back),
        cmocka_unit_test(test_nothing_is_evicted), cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
