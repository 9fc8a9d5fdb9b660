/* The cache, rule by rule, under every policy. test_cache_model.c does the same with random steps.
 */
#include "cells.h"

#include <sys/mman.h>
#include <unistd.h>

static int the_policy;
static cache *the_cache;
static cache_space *the_space;

static int setup_pages(size_t n_pages) {
    the_cache = cells_open(n_pages, false, the_policy);
    assert_int_equal(cache_space_get(the_cache, NULL, "space", 5, &the_space), 0);
    return 0;
}

static int setup_small(void **state) {
    return setup_pages(8);
}
static int setup_large(void **state) {
    return setup_pages(256);
}

static int teardown(void **state) {
    assert_null(cache_check(the_cache));
    cache_space_put(the_cache, &the_space);
    cache_close(&the_cache);
    assert_null(the_cache);
    return 0;
}

static cache_stats stats(void) {
    cache_stats s;
    cache_get_stats(the_cache, &s);
    return s;
}

/* n tokens that count up from `from`. */
static const int32_t *count_from(int32_t from) {
    static int32_t tokens[8][1024];
    static int turn;
    int32_t *t = tokens[turn++ % 8];
    for (int i = 0; i < 1024; i++) t[i] = from + i;
    return t;
}

/* a's first n_a tokens, then b. */
static const int32_t *join(const int32_t *a, size_t n_a, const int32_t *b) {
    static int32_t tokens[8][1024];
    static int turn;
    int32_t *t = tokens[turn++ % 8];
    memcpy(t, a, n_a * sizeof *t);
    memcpy(t + n_a, b, (1024 - n_a) * sizeof *t);
    return t;
}

static chain *opened(void) {
    chain *ch = NULL;
    assert_int_equal(chain_open(the_cache, the_space, &ch), 0);
    return ch;
}

/* Computes and publishes up to position n. */
static void extend(chain *ch, const int32_t *tokens, size_t n) {
    size_t len = chain_len(ch);
    assert_int_equal(chain_reserve(ch, n), 0);
    cells_write(ch, 0, tokens, n);
    chain_publish(ch, tokens + len, n - len);
    assert_int_equal(chain_len(ch), n);
    cells_check(ch, 0, tokens);
    assert_null(cache_check(the_cache));
}

static size_t match(chain *ch, const int32_t *tokens, size_t n) {
    size_t hit = chain_match(ch, tokens, n, SIZE_MAX);
    assert_int_equal(chain_len(ch), hit);
    cells_check(ch, 0, tokens);
    assert_null(cache_check(the_cache));
    return hit;
}

static void done(chain *ch) {
    chain_close(&ch);
    assert_null(ch);
    assert_null(cache_check(the_cache));
}

/* A request from begin to end; returns its hit. */
static size_t request(const int32_t *tokens, size_t n) {
    chain *ch = opened();
    size_t hit = match(ch, tokens, n);
    extend(ch, tokens, n);
    done(ch);
    return hit;
}

static size_t probe(const int32_t *tokens, size_t n) {
    return cache_probe(the_cache, the_space, tokens, n);
}

/* ---- what is found --------------------------------------------------------------------------- */

static void test_found_token_by_token(void **state) {
    const int32_t *t = count_from(0), *far = count_from(5000);
    assert_int_equal(request(t, 200), 0);
    for (size_t n = 0; n <= 200; n++) {
        assert_int_equal(probe(t, n), n);
        assert_int_equal(probe(join(t, n, far), 300), n);
        chain *ch = opened();
        assert_int_equal(chain_match(ch, t, 200, n), n);
        cells_check(ch, 0, t);
        done(ch);
    }
    assert_int_equal(probe(t, 300), 200);
    assert_int_equal(probe(count_from(1), 300), 0);
}

static void test_busy_chain_is_a_donor(void **state) {
    const int32_t *t = count_from(0), *other = join(t, 100, count_from(5000));
    chain *a = opened(), *b = opened();
    extend(a, t, 130);
    assert_int_equal(match(b, other, 300), 100);
    assert_true(chain_pages(a)[0] == chain_pages(b)[0]);
    assert_true(chain_pages(a)[1] != chain_pages(b)[1]);
    assert_int_equal(stats().copies, 1);
    extend(a, t, 150);
    extend(b, other, 150);
    cells_check(a, 0, t);
    done(a);
    cells_check(b, 0, other);
    done(b);
    assert_int_equal(stats().n_cached, 5);
}

static void test_reserved_is_not_found(void **state) {
    const int32_t *t = count_from(0);
    chain *a = opened();
    assert_int_equal(chain_reserve(a, 100), 0);
    cells_write(a, 0, t, 100);
    assert_int_equal(probe(t, 100), 0);
    chain_publish(a, t, 10);
    assert_int_equal(probe(t, 100), 10);
    done(a); /* cancelled: what was finished stays */
    assert_int_equal(probe(t, 100), 10);
    assert_int_equal(stats().n_cached, 1);
}

static void test_finished_page_is_taken_over(void **state) {
    const int32_t *t = count_from(0);
    request(t, 100);
    size_t n_free = stats().n_free;
    chain *a = opened(), *b = opened();
    assert_int_equal(match(a, t, 300), 100);
    assert_int_equal(stats().adoptions, 1);
    assert_int_equal(stats().copies, 0);
    assert_int_equal(stats().n_free, n_free);
    assert_int_equal(match(b, t, 300), 100); /* it has an owner now: copied */
    assert_int_equal(stats().copies, 1);
    extend(a, t, 128);
    assert_int_equal(match(b, t, 300), 128); /* the copy goes, the full page is shared */
    assert_true(chain_pages(a)[1] == chain_pages(b)[1]);
    assert_int_equal(stats().n_pinned, 2);
    done(a);
    done(b);
}

static void test_no_take_over_below_the_end(void **state) {
    const int32_t *t = count_from(0);
    request(t, 100);
    chain *a = opened();
    assert_int_equal(chain_match(a, t, 100, 99), 99);
    assert_int_equal(stats().copies, 1);
    assert_int_equal(probe(t, 100), 100);
    extend(a, t, 100);
    done(a);
    assert_int_equal(stats().n_cached, 2);
}

static void test_follows_a_running_chain(void **state) {
    const int32_t *t = count_from(0);
    chain *a = opened(), *b = opened();
    size_t n = 0;
    for (size_t step = 1; n < 400; n += step++) {
        extend(a, t, n + step);
        assert_int_equal(match(b, t, 512), n + step);
    }
    done(a);
    extend(b, t, 450);
    done(b);
    assert_int_equal(stats().n_cached, 8);
}

static void test_match_replaces_reserved_pages(void **state) {
    const int32_t *t = count_from(0);
    chain *a = opened(), *b = opened();
    assert_int_equal(chain_reserve(b, 200), 0);
    extend(a, t, 200);
    assert_int_equal(match(b, t, 190), 190);
    assert_int_equal(chain_n_pages(b), 4);
    assert_int_equal(stats().n_pinned, 6); /* two shared, two of each alone */
    done(a);
    done(b);
}

/* ---- nothing twice --------------------------------------------------------------------------- */

static void test_equal_pages_become_one(void **state) {
    const int32_t *t = count_from(0);
    chain *a = opened(), *b = opened();
    extend(a, t, 100);
    extend(b, t, 90); /* cold as well: both compute */
    assert_true(chain_pages(a)[0] == chain_pages(b)[0]);
    assert_int_equal(stats().duplicates, 1);
    extend(b, t, 200);
    extend(a, t, 128);
    assert_true(chain_pages(a)[1] == chain_pages(b)[1]);
    done(a);
    done(b);
    assert_int_equal(stats().n_cached, 4);
}

static void test_shorter_page_goes_at_close(void **state) {
    const int32_t *t = count_from(0);
    chain *a = opened(), *b = opened();
    extend(a, t, 50);
    extend(b, t, 40);
    done(b);
    assert_int_equal(stats().duplicates, 1);
    assert_int_equal(stats().n_pinned + stats().n_cached, 1);
    done(a);
    assert_int_equal(probe(t, 60), 50);
}

static void test_idle_page_goes_when_outgrown(void **state) {
    const int32_t *t = count_from(0);
    chain *a = opened(), *b = opened();
    extend(a, t, 50);
    extend(b, t, 40);
    done(a);
    extend(b, t, 50); /* equal now */
    assert_int_equal(stats().n_cached, 0);
    assert_int_equal(stats().n_pinned, 1);
    extend(b, t, 55);
    done(b);
    assert_int_equal(stats().n_cached, 1);
    assert_int_equal(probe(t, 60), 55);
}

static void test_eight_equal_prompts(void **state) {
    const int32_t *t = count_from(0);
    for (int i = 0; i < 8; i++) assert_int_equal(request(t, 300), i ? 300 : 0);
    assert_int_equal(stats().n_cached, 5);
}

/* ---- eviction -------------------------------------------------------------------------------- */

/* Evicts n pages by taking all that are free and n more. */
static void press(size_t n) {
    chain *ch = NULL;
    assert_int_equal(chain_open(the_cache, NULL, &ch), 0);
    assert_int_equal(chain_reserve(ch, (stats().n_free + n) * CACHE_PAGE), 0);
    done(ch);
}

static void test_least_recently_used_leaf_goes_first(void **state) {
    const int32_t *a = count_from(0), *b = count_from(2000), *c = count_from(4000);
    request(a, 128);
    request(b, 128);
    request(c, 128);
    request(a, 128); /* used again */
    const size_t left[][3] = {{128, 64, 128}, {128, 0, 128}, {128, 0, 64}, {128, 0, 0}, {64, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(left); i++) {
        press(1);
        assert_int_equal(probe(a, 128), left[i][0]);
        assert_int_equal(probe(b, 128), left[i][1]);
        assert_int_equal(probe(c, 128), left[i][2]);
    }
    assert_int_equal(stats().evictions, 5);
}

static void test_shared_parent_outlives_children(void **state) {
    const int32_t *t = count_from(0);
    request(t, 64);
    request(join(t, 64, count_from(2000)), 128);
    request(join(t, 64, count_from(4000)), 128);
    press(2);
    assert_int_equal(probe(t, 128), 64);
    press(1);
    assert_int_equal(probe(t, 128), 0);
}

static void test_copying_counts_as_use(void **state) {
    const int32_t *a = count_from(0), *b = count_from(2000);
    request(a, 60);
    request(b, 60);
    chain *ch = opened();
    assert_int_equal(chain_match(ch, a, 60, 30), 30);
    done(ch); /* its copy goes, the donor is the younger one */
    press(1);
    bool counts = the_policy != CACHE_FIFO;
    assert_int_equal(probe(a, 60), counts ? 60 : 0);
    assert_int_equal(probe(b, 60), counts ? 0 : 60);
}

enum { PROMPTS = 5 };

static const int32_t *prompt(int i) {
    return count_from(1100 * i);
}

static void request_five(void) {
    for (int i = 0; i < PROMPTS; i++) request(prompt(i), 60);
    request(prompt(1), 60);
}

/* The n-th of the five that goes. */
static int gone(size_t n) {
    int which = -1;
    setup_pages(8);
    request_five();
    press(n - 1);
    bool before[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) before[i] = probe(prompt(i), 60) > 0;
    press(1);
    for (int i = 0; i < PROMPTS; i++)
        if (before[i] && probe(prompt(i), 60) == 0) which = i;
    teardown(NULL);
    return which;
}

/* A copy evicts for its page, but not its donor: the one that is to go after that. (Of two heaps,
 * what went decides from which the next one is.) */
static void test_next_to_the_donor_goes(void **state) {
    int first = gone(1), second = gone(2);
    assert_true(first >= 0 && second >= 0 && first != second);
    setup_pages(8);
    request_five();
    chain *hog = opened(), *ch = opened();
    assert_int_equal(chain_reserve(hog, stats().n_free * CACHE_PAGE), 0);
    assert_int_equal(chain_match(ch, prompt(first), 60, 30), 30);
    assert_int_equal(probe(prompt(first), 60), 60);
    int n_left = 0;
    for (int i = 0; i < PROMPTS; i++) n_left += probe(prompt(i), 60) == 60;
    assert_int_equal(n_left, PROMPTS - 1);
    bool one_order = the_policy != CACHE_HAZARD && the_policy != CACHE_ARC;
    if (one_order) assert_int_equal(probe(prompt(second), 60), 0);
    done(ch);
    done(hog);
    teardown(state);
}

static void test_pinned_is_never_evicted(void **state) {
    const int32_t *t = count_from(0);
    request(t, 64 * 4);
    chain *a = opened(), *b = opened();
    assert_int_equal(match(a, t, 64 * 3), 64 * 3);
    size_t room = stats().n_pages - 3;
    assert_int_equal(cache_obtainable(the_cache, NULL), room);
    assert_int_equal(chain_reserve(b, (room + 1) * CACHE_PAGE), ICP_EAGAIN);
    assert_int_equal(chain_n_pages(b), 0);
    assert_int_equal(probe(t, 64 * 4), 64 * 4); /* nothing changed */
    assert_int_equal(chain_reserve(b, (stats().n_pages + 1) * CACHE_PAGE), ICP_ELIMIT);
    assert_int_equal(chain_reserve(b, SIZE_MAX), ICP_ELIMIT);
    assert_int_equal(chain_reserve(b, room * CACHE_PAGE), 0);
    assert_int_equal(cache_obtainable(the_cache, NULL), 0);
    assert_int_equal(probe(t, 64 * 4), 64 * 3);
    cells_check(a, 0, t);
    done(a);
    done(b);
}

static void test_no_page_for_a_copy(void **state) {
    const int32_t *t = count_from(0);
    chain *a = opened(), *b = opened();
    extend(a, t, 100);
    assert_int_equal(chain_reserve(a, stats().n_pages * CACHE_PAGE), 0);
    assert_int_equal(match(b, t, 100), 64);
    done(a);
    assert_int_equal(match(b, t, 100), 100);
    done(b);
}

static void test_donor_is_not_evicted_for_its_copy(void **state) {
    const int32_t *t = count_from(0);
    request(t, 60);
    chain *hog = opened(), *b = opened();
    assert_int_equal(chain_reserve(hog, stats().n_free * CACHE_PAGE), 0);
    assert_int_equal(chain_match(b, t, 60, 30), 0); /* the donor is all that could be evicted */
    assert_int_equal(probe(t, 60), 60);
    done(hog);
    done(b);
}

static void test_drop(void **state) {
    cache_space *other;
    assert_int_equal(cache_space_get(the_cache, NULL, "other", 5, &other), 0);
    const int32_t *t = count_from(0), *branch = join(t, 100, count_from(3000));
    request(t, 300);
    chain *there = NULL, *here = opened();
    assert_int_equal(chain_open(the_cache, other, &there), 0);
    extend(there, t, 100);
    done(there);
    assert_int_equal(match(here, branch, 300), 100);
    cache_drop(the_cache, the_space);
    assert_null(cache_check(the_cache));
    assert_int_equal(probe(t, 300), 100); /* what is in use stays */
    assert_int_equal(cache_probe(the_cache, other, t, 300), 100);
    done(here);
    cache_drop_all(the_cache);
    assert_int_equal(stats().n_free, stats().n_pages);
    cache_space_put(the_cache, &other);
}

/* ---- namespaces and privacy ------------------------------------------------------------------ */

static void test_spaces_are_apart(void **state) {
    const int32_t *t = count_from(0);
    request(t, 300);
    const char *keys[] = {"space", "spac", "space ", "", "Space"};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        cache_space *s;
        assert_int_equal(cache_space_get(the_cache, NULL, keys[i], strlen(keys[i]), &s), 0);
        assert_int_equal(cache_probe(the_cache, s, t, 300), i ? 0 : 300);
        assert_true((s == the_space) == (i == 0));
        cache_space_put(the_cache, &s);
        assert_null(s);
    }
}

static void test_ten_thousand_spaces_leave_nothing(void **state) {
    size_t before = stats().metadata;
    for (int i = 0; i < 10000; i++) {
        cache_space *s;
        chain *ch = NULL;
        assert_int_equal(cache_space_get(the_cache, NULL, &i, sizeof i, &s), 0);
        assert_int_equal(chain_open(the_cache, s, &ch), 0);
        cache_space_put(the_cache, &s);
        assert_int_equal(chain_match(ch, count_from(0), 10, SIZE_MAX), 0);
        assert_int_equal(chain_reserve(ch, 10), 0);
        chain_publish(ch, count_from(0), 10);
        chain_close(&ch);
        cache_stats now = stats();
        assert_true(now.n_pages * now.page_size + now.metadata <= now.limit);
    }
    assert_null(cache_check(the_cache));
    cache_drop_all(the_cache);
    assert_int_equal(stats().metadata, before);
}

static void test_spaces_make_room_for_spaces(void **state) {
    static char key[2000];
    for (int i = 0; i < 300; i++) { /* more than the spare bytes hold at once */
        cache_space *s;
        chain *ch = NULL;
        memcpy(key, &i, sizeof i);
        assert_int_equal(cache_space_get(the_cache, NULL, key, sizeof key, &s), 0);
        assert_int_equal(chain_open(the_cache, s, &ch), 0);
        assert_int_equal(chain_reserve(ch, 1), 0);
        chain_publish(ch, count_from(i), 1);
        chain_close(&ch);
        assert_null(cache_check(the_cache));
        assert_int_equal(cache_probe(the_cache, s, count_from(i), 1), 1);
        cache_space_put(the_cache, &s);
    }
    assert_true(stats().evictions > 0);
}

static void test_bookkeeping_has_a_limit(void **state) {
    enum { MANY = 4096 };
    static chain *chains[MANY];
    static cache_space *spaces[MANY];
    int n = 0, rc = 0;
    while (n < MANY && (rc = chain_open(the_cache, the_space, &chains[n])) == 0) n++;
    assert_int_equal(rc, ICP_EAGAIN);
    assert_null(cache_check(the_cache));
    while (n > 0) done(chains[--n]);
    while (n < MANY && (rc = cache_space_get(the_cache, NULL, &n, sizeof n, &spaces[n])) == 0) n++;
    assert_int_equal(rc, ICP_EAGAIN);
    assert_null(cache_check(the_cache));
    while (n > 0) cache_space_put(the_cache, &spaces[--n]);
    assert_int_equal(cache_space_get(the_cache, NULL, "", (size_t)1 << 40, &spaces[0]), ICP_ELIMIT);
}

static void test_chain_of_all_pages(void **state) {
    cache_opts opts = {.page_size = CELLS_SIZE, .limit = 4 << 20, .copy = cells_copy};
    cache *c = NULL;
    chain *ch = NULL;
    cache_stats s;
    assert_int_equal(cache_open(&opts, &c, NULL), 0);
    assert_int_equal(chain_open(c, NULL, &ch), 0);
    cache_get_stats(c, &s);
    assert_int_equal(chain_reserve(ch, s.n_pages * CACHE_PAGE + 1), ICP_ELIMIT);
    assert_int_equal(chain_n_pages(ch), 0);
    assert_int_equal(chain_reserve(ch, s.n_pages * CACHE_PAGE), 0);
    assert_null(cache_check(c));
    chain_close(&ch);
    cache_close(&c);
}

static void test_chain_without_space_is_private(void **state) {
    const int32_t *t = count_from(0);
    request(t, 100);
    chain *ch = NULL;
    assert_int_equal(chain_open(the_cache, NULL, &ch), 0);
    assert_int_equal(match(ch, t, 200), 0);
    extend(ch, t, 200);
    done(ch);
    assert_int_equal(probe(t, 200), 100);
    assert_int_equal(stats().n_cached, 2);
}

static void test_no_reuse(void **state) {
    the_cache = cells_open(16, true, the_policy);
    assert_int_equal(cache_space_get(the_cache, NULL, "", 0, &the_space), 0);
    const int32_t *t = count_from(0);
    chain *a = opened();
    extend(a, t, 100);
    assert_int_equal(request(t, 200), 0);
    extend(a, t, 300);
    done(a);
    assert_int_equal(probe(t, 300), 0);
    assert_int_equal(stats().n_free, stats().n_pages);
    assert_int_equal(stats().n_cached, 0);
    teardown(state);
}

/* ---- size ------------------------------------------------------------------------------------ */

static void test_ten_thousand_prompts(void **state) {
    for (int32_t i = 0; i < 10000; i++) {
        const int32_t t[] = {1, i * 7919 % 10007, i};
        chain *ch = opened();
        assert_true(chain_match(ch, t, 3, SIZE_MAX) <= (i ? 1 : 0));
        assert_int_equal(chain_reserve(ch, 3), 0);
        cells_write(ch, 0, t, 3);
        chain_publish(ch, t + chain_len(ch), 3 - chain_len(ch));
        chain_close(&ch);
        assert_int_equal(probe(t, 3), 3);
    }
    assert_null(cache_check(the_cache));
    assert_int_equal(stats().n_cached, stats().n_pages);
}

static void test_limits_of_open(void **state) {
    icp_error err;
    cache *c = NULL;
    for (size_t limit = 0; limit < 40 << 10; limit += 61) {
        cache_opts opts = {.page_size = 1000, .limit = limit, .copy = cells_copy};
        int rc = cache_open(&opts, &c, &err);
        if (rc < 0) {
            assert_int_equal(rc, ICP_ELIMIT);
            assert_non_null(strstr(err.text, "no room"));
            continue;
        }
        assert_null(cache_check(c)); /* the limit among others */
        cache_stats s;
        cache_get_stats(c, &s);
        assert_true(s.n_pages >= 4 && s.n_free == s.n_pages);
        cache_close(&c);
    }
    cache_opts huge = {.page_size = SIZE_MAX - 5, .limit = SIZE_MAX, .copy = cells_copy};
    assert_int_equal(cache_open(&huge, &c, &err), ICP_ELIMIT);
    cache_opts none = {.page_size = 0, .limit = 1 << 20, .copy = cells_copy};
    assert_int_equal(cache_open(&none, &c, &err), ICP_EINVALID);
}

static size_t pages_within(size_t page_size, size_t limit) {
    cache_opts opts = {.page_size = page_size, .limit = limit, .copy = cells_copy};
    cache *c = NULL;
    cache_stats s = {0};
    if (cache_open(&opts, &c, NULL) == 0) cache_get_stats(c, &s);
    cache_close(&c);
    return s.n_pages;
}

static void test_least_limit(void **state) {
    const size_t sizes[] = {1, 64, 1000, 65536, 100000}, counts[] = {4, 5, 63, 64, 65, 1000, 3001};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (size_t k = 0; k < COUNT_OF(counts); k++) {
            size_t limit = cache_limit_of(sizes[i], counts[k]);
            assert_int_equal(pages_within(sizes[i], limit), counts[k]);
            assert_true(pages_within(sizes[i], limit - 1) < counts[k]);
        }
}

static void test_pages_are_aligned_and_fresh(void **state) {
    const size_t sizes[] = {1, 64, 1000, 65536, 100000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        cache_opts opts = {.page_size = sizes[i], .limit = 4 << 20, .copy = cells_copy};
        cache *c = NULL;
        chain *ch = NULL;
        assert_int_equal(cache_open(&opts, &c, NULL), 0);
        assert_int_equal(chain_open(c, NULL, &ch), 0);
        assert_int_equal(chain_reserve(ch, 4 * CACHE_PAGE), 0);
        for (size_t k = 0; k < 4; k++) {
            const unsigned char *page = cache_page(c, chain_page(ch, k));
            assert_ptr_equal(page, chain_pages(ch)[k]);
            assert_int_equal((uintptr_t)page % (sizes[i] < 65536 ? 64 : 4096), 0);
#ifndef NDEBUG
            for (size_t b = 0; b < sizes[i]; b++) assert_int_equal(page[b], 0xFF);
#endif
        }
        chain_close(&ch);
        cache_close(&c);
    }
}

/* How many bytes of [at, at + size) the system has given memory to. */
static size_t count_resident(void *at, size_t size) {
    enum { MOST = 1 << 14 };
    unsigned char in[MOST];
    size_t unit = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    assert_true(size / unit <= MOST);
    assert_int_equal(mincore(at, size, in), 0);
    for (size_t i = 0; i < size / unit; i++) n += in[i] & 1;
    return n * unit;
}

static void test_memory_ahead(void **state) {
    enum { PAGE = 1 << 20, PAGES = 32 };
    cache_opts opts = {.page_size = PAGE, .limit = cache_limit_of(PAGE, PAGES), .copy = cells_copy};
    cache *c = NULL;
    chain *ch = NULL;
    assert_int_equal(cache_open(&opts, &c, NULL), 0);
    if (mem_commit(cache_page(c, (page_id){0}), 0) < 0) skip(); /* an old kernel */
    unsigned char *bytes = cache_page(c, (page_id){0});
    assert_int_equal(count_resident(bytes, PAGES * PAGE), 0);
    while (cache_commit(c)) {
    }
    size_t ahead = count_resident(bytes, PAGES * PAGE);
    assert_in_range(ahead, PAGES / 4 * PAGE, PAGES / 2 * PAGE); /* huge pages stick out */
    assert_int_equal(count_resident(bytes, PAGES / 4 * PAGE), PAGES / 4 * PAGE);

    assert_int_equal(chain_open(c, NULL, &ch), 0);
    assert_int_equal(chain_reserve(ch, PAGES / 2 * CACHE_PAGE), 0);
    for (size_t i = 0; i < PAGES / 2; i++) memset(chain_pages(ch)[i], (int)i + 1, PAGE);
    while (cache_commit(c)) {
    }
    assert_int_equal(count_resident(bytes, PAGES * 3 / 4 * PAGE), PAGES * 3 / 4 * PAGE);
    for (size_t i = 0; i < PAGES / 2; i++) { /* what was written stays */
        const unsigned char *page = chain_pages(ch)[i];
        for (size_t k = 0; k < PAGE; k += 4095) assert_int_equal(page[k], i + 1);
    }
    chain_close(&ch);
    assert_false(cache_commit(c));
    cache_close(&c);
}

/* ---- memory that runs out -------------------------------------------------------------------- */

static void test_failing_allocations(void **state) {
    const int32_t *t = count_from(0);
    cache_opts opts = {.page_size = CELLS_SIZE, .limit = 1 << 20, .copy = cells_copy};
    for (long n = 0;; n++) {
        cache *c = NULL;
        mem_fail_after(n);
        int rc = cache_open(&opts, &c, NULL);
        mem_fail_after(-1);
        if (rc == 0) {
            assert_true(n >= 3);
            cache_close(&c);
            break;
        }
        assert_int_equal(rc, ICP_ENOMEM);
        assert_null(c);
    }
    request(t, 300);
    request(count_from(1), 900); /* chains longer than their first array */
    for (long n = 0;; n++) {
        cache_space *s = NULL;
        chain *ch = NULL;
        size_t before = stats().metadata, hit = 0;
        mem_fail_after(n);
        int rc = cache_space_get(the_cache, NULL, "new", 3, &s);
        if (rc == 0) rc = chain_open(the_cache, the_space, &ch);
        if (rc == 0) hit = chain_match(ch, count_from(1), 1000, SIZE_MAX);
        if (rc == 0) rc = chain_reserve(ch, 1000);
        mem_fail_after(-1);
        assert_null(cache_check(the_cache));
        if (ch) assert_true(hit == 900 || (hit % CACHE_PAGE == 0 && hit == chain_len(ch)));
        if (ch) cells_check(ch, 0, count_from(1));
        chain_close(&ch);
        cache_space_put(the_cache, &s);
        assert_int_equal(stats().metadata, before);
        if (rc == 0) break;
        assert_int_equal(rc, ICP_ENOMEM);
    }
    assert_int_equal(probe(count_from(1), 1000), 900);
}

#define SMALL(test) cmocka_unit_test_setup_teardown(test, setup_small, teardown)
#define LARGE(test) cmocka_unit_test_setup_teardown(test, setup_large, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        LARGE(test_found_token_by_token),
        LARGE(test_busy_chain_is_a_donor),
        LARGE(test_reserved_is_not_found),
        LARGE(test_finished_page_is_taken_over),
        LARGE(test_no_take_over_below_the_end),
        LARGE(test_follows_a_running_chain),
        LARGE(test_match_replaces_reserved_pages),
        LARGE(test_equal_pages_become_one),
        LARGE(test_shorter_page_goes_at_close),
        LARGE(test_idle_page_goes_when_outgrown),
        LARGE(test_eight_equal_prompts),
        LARGE(test_shared_parent_outlives_children),
        LARGE(test_copying_counts_as_use),
        cmocka_unit_test(test_next_to_the_donor_goes),
        SMALL(test_pinned_is_never_evicted),
        SMALL(test_no_page_for_a_copy),
        SMALL(test_donor_is_not_evicted_for_its_copy),
        LARGE(test_drop),
        LARGE(test_spaces_are_apart),
        SMALL(test_ten_thousand_spaces_leave_nothing),
        LARGE(test_spaces_make_room_for_spaces),
        SMALL(test_bookkeeping_has_a_limit),
        cmocka_unit_test(test_chain_of_all_pages),
        LARGE(test_chain_without_space_is_private),
        cmocka_unit_test(test_no_reuse),
        LARGE(test_ten_thousand_prompts),
        cmocka_unit_test(test_limits_of_open),
        cmocka_unit_test(test_least_limit),
        cmocka_unit_test(test_pages_are_aligned_and_fresh),
        cmocka_unit_test(test_memory_ahead),
        LARGE(test_failing_allocations),
    };
    const struct CMUnitTest of_lru[] = {LARGE(test_least_recently_used_leaf_goes_first)};
    the_policy = CACHE_LRU;
    int failed = cmocka_run_group_tests_name("order", of_lru, NULL, NULL);
    for (the_policy = 0; cache_policy_name(the_policy); the_policy++)
        failed += cmocka_run_group_tests_name(cache_policy_name(the_policy), tests, NULL, NULL);
    return failed;
}
