/* Pages behind a window, rule by rule. test_cache_model.c does the same with random steps. */
#include "cells.h"

enum { WINDOW = 100, LONG = 1024, STEP = 17 };

static cache *the_cache;
static cache_space *the_space;

static void open_pages(size_t n) {
    the_cache = cells_open_window(n, WINDOW, CACHE_LRU);
    assert_int_equal(cache_space_get(the_cache, NULL, "space", 5, &the_space), 0);
}

static void close_all(void) {
    assert_null(cache_check(the_cache));
    cache_drop_all(the_cache);
    assert_null(cache_check(the_cache));
    cache_stats s;
    cache_get_stats(the_cache, &s);
    assert_int_equal(s.n_free, s.n_pages);
    assert_int_equal(s.n_hollow, 0);
    cache_space_put(the_cache, &the_space);
    cache_close(&the_cache);
}

static size_t n_hollow(void) {
    cache_stats s;
    cache_get_stats(the_cache, &s);
    assert_int_equal(s.n_free + s.n_cached + s.n_pinned, s.n_pages);
    return s.n_hollow;
}

/* n tokens that count up from `from`. */
static void count_from(int32_t *tokens, int32_t from) {
    for (int i = 0; i < LONG; i++) tokens[i] = from + i;
}

static chain *opened(cache_space *space) {
    chain *ch = NULL;
    assert_int_equal(chain_open(the_cache, space, &ch), 0);
    return ch;
}

/* The next position reads the last WINDOW ones, its own included. */
static void check_window(const chain *ch, int id, const int32_t *tokens) {
    size_t next = chain_len(ch), first = next < WINDOW ? 0 : next - (WINDOW - 1);
    assert_true(first / CACHE_PAGE >= chain_n_behind(ch));
    cells_check(ch, id, tokens);
    assert_null(cache_check(the_cache));
}

/* Computes up to position n, some tokens at a time, as a forward pass with a window would. */
static void extend_as(chain *ch, int id, const int32_t *tokens, size_t n) {
    while (chain_len(ch) < n) {
        size_t len = chain_len(ch), to = MIN(n, len + STEP);
        assert_int_equal(chain_reserve(ch, to), 0);
        cells_write(ch, id, tokens, to);
        chain_publish(ch, tokens + len, to - len);
        check_window(ch, id, tokens);
    }
}

static void extend(chain *ch, const int32_t *tokens, size_t n) {
    extend_as(ch, 0, tokens, n);
}

static size_t match(chain *ch, const int32_t *tokens, size_t n) {
    size_t hit = chain_match(ch, tokens, n, SIZE_MAX);
    check_window(ch, 0, tokens);
    return hit;
}

/* A request whose prompt has n_prompt tokens from begin to end; returns its hit. */
static size_t request(const int32_t *tokens, size_t n_prompt, size_t n) {
    chain *ch = opened(the_space);
    chain_sampled_from(ch, n_prompt);
    size_t hit = match(ch, tokens, n_prompt - 1);
    extend(ch, tokens, n);
    chain_close(&ch);
    assert_null(cache_check(the_cache));
    return hit;
}

static size_t probe(const int32_t *tokens, size_t n) {
    return cache_probe(the_cache, the_space, tokens, n);
}

/* Takes n pages from whoever is to give them first. */
static void need_pages(size_t n) {
    chain *ch = opened(NULL);
    cache_stats s;
    cache_get_stats(the_cache, &s);
    assert_int_equal(chain_reserve(ch, (s.n_free + n) * CACHE_PAGE), 0);
    assert_null(cache_check(the_cache));
    chain_close(&ch);
}

/* Of 256 tokens, position 256 reads from 157 on: the first two pages are behind. */
static void test_behind_goes_first(void **state) {
    int32_t a[LONG], b[LONG];
    open_pages(8);
    count_from(a, 0);
    count_from(b, 5000);
    request(a, 256, 256);
    request(b, 256, 256);
    need_pages(2);
    assert_int_equal(n_hollow(), 2);
    assert_int_equal(probe(a, 256), 256);
    assert_int_equal(probe(b, 256), 256);
    for (size_t n = 0; n < 227; n++) assert_int_equal(probe(a, n), 0); /* 227 reads from 128 on */
    for (size_t n = 227; n <= 256; n++) {
        assert_int_equal(probe(a, n), n);
        chain *ch = opened(the_space);
        assert_int_equal(chain_match(ch, a, n, n), n);
        cells_check(ch, 0, a);
        assert_true(chain_n_behind(ch) == 2 && chain_pages(ch)[0] == chain_pages(ch)[1]);
        assert_null(cache_check(the_cache));
        chain_close(&ch);
    }
    need_pages(2);
    assert_int_equal(n_hollow(), 4);
    assert_int_equal(probe(b, 256), 256);
    need_pages(1); /* no more are behind: b's last page goes, for a was used later */
    assert_true(probe(a, 256) == 256 && probe(b, 256) == 0);
    need_pages(1); /* and the one before it, with what was hollow above */
    assert_int_equal(n_hollow(), 2);
    close_all();
}

static void test_the_reason(void **state) {
    int32_t a[LONG];
    cache_miss miss;
    open_pages(8);
    count_from(a, 0);
    request(a, 256, 256);
    cache_tick(the_cache, 7);
    need_pages(2);
    cache_tick(the_cache, 9);
    cache_explain(the_cache, the_space, a, 200, &miss);
    assert_int_equal(miss.len, 0);
    assert_int_equal(miss.loss, CACHE_LOSS_WINDOW);
    assert_int_equal(miss.lost_len, 200);
    assert_true(miss.lost_at == 7);
    cache_explain(the_cache, the_space, a, 300, &miss);
    assert_true(miss.len == 256 && miss.loss == CACHE_LOSS_NONE);
    close_all();
}

/* What is computed again gives the pages their bytes back. */
static void test_filled_again(void **state) {
    int32_t a[LONG];
    open_pages(8);
    count_from(a, 0);
    request(a, 256, 256);
    need_pages(2);
    assert_int_equal(request(a, 201, 201), 0);
    assert_int_equal(n_hollow(), 0);
    for (size_t n = 0; n <= 256; n++) assert_int_equal(probe(a, n), n);
    close_all();
}

/* A chain is as long as there is bookkeeping for it, in pages for its window. */
static void test_long_chain_in_small_cache(void **state) {
    int32_t a[LONG];
    open_pages(4);
    count_from(a, 0);
    size_t most = cache_longest(the_cache, 4);
    assert_true(most > 4 * CACHE_PAGE && most <= LONG);
    assert_int_equal(cache_longest(the_cache, 2), 2 * CACHE_PAGE); /* less than a window */
    chain *ch = opened(the_space), *other = opened(NULL);
    extend(ch, a, most);
    assert_int_equal(chain_reserve(ch, most + 1), ICP_EAGAIN);
    assert_int_equal(chain_n_pages(ch), most / CACHE_PAGE);
    chain_close(&ch);
    assert_int_equal(probe(a, most), most);
    extend(other, a, LONG); /* one that leaves nothing behind needs no bookkeeping */
    chain_close(&other);
    close_all();
}

/* Its prompt may come again: what that needs stays as long as there is anything else. */
static void test_prompts_end_is_kept(void **state) {
    int32_t a[LONG], b[LONG];
    open_pages(12);
    count_from(a, 0);
    count_from(b, 5000);
    request(b, 256, 256);
    request(a, 256, 512);
    need_pages(4); /* two of each are behind all */
    assert_int_equal(n_hollow(), 4);
    need_pages(6);
    assert_int_equal(probe(b, 256), 0); /* used longer ago */
    assert_int_equal(request(a, 256, 300), 255);
    close_all();

    open_pages(4); /* but not while the chain needs the page itself */
    chain *ch = opened(the_space);
    chain_sampled_from(ch, 128);
    extend(ch, a, 320);
    assert_true(n_hollow() > 0);
    chain_close(&ch);
    assert_int_equal(probe(a, 127), 0);
    close_all();
}

/* A pinned prompt, too, as far as it is there. */
static void test_prompt_of_a_pin(void **state) {
    int32_t a[LONG];
    open_pages(12);
    count_from(a, 0);
    chain *ch = opened(the_space);
    chain_sampled_from(ch, 256);
    extend(ch, a, 512);
    assert_int_equal(chain_n_behind(ch), 6);
    chain_keep_prompt(ch);
    assert_int_equal(chain_n_behind(ch), 2);
    cells_check(ch, 0, a);
    need_pages(cache_obtainable(the_cache, NULL) - 4);
    assert_int_equal(probe(a, 255), 255);
    chain_close(&ch);
    close_all();
}

/* Where two ways part, a third may. */
static void test_forks_are_kept(void **state) {
    int32_t a[LONG], b[LONG], c[LONG];
    open_pages(12);
    count_from(a, 0);
    count_from(b, 0);
    count_from(c, 0);
    for (int i = 128; i < LONG; i++) {
        b[i] += 1000;
        c[i] += 2000;
    }
    assert_int_equal(request(a, 384, 384), 0);
    assert_int_equal(request(b, 384, 384), 128);
    need_pages(6);
    assert_true(n_hollow() > 0);
    assert_int_equal(probe(c, 384), 128);
    assert_int_equal(probe(b, 384), 384);
    close_all();
}

/* The base of a namespace is behind its chains as well. */
static void test_long_base(void **state) {
    int32_t a[LONG];
    cache_space *on = NULL;
    open_pages(8);
    count_from(a, 0);
    chain *base = opened(the_space), *ch;
    extend(base, a, 384);
    assert_int_equal(cache_space_get_on(the_cache, NULL, base, "on", 2, &on), 0);
    need_pages(4);
    assert_int_equal(n_hollow(), 4);
    ch = opened(on);
    assert_int_equal(chain_len(ch), 384);
    assert_int_equal(chain_match(ch, a, 400, SIZE_MAX), 384);
    extend(ch, a, 600);
    chain_close(&ch);
    assert_int_equal(cache_probe(the_cache, on, a, 600), 600);
    cache_drop_all(the_cache);
    cache_space_put(the_cache, &on);
    chain_close(&base);
    close_all();
}

/* An owner at its quota gives up what is behind its own. */
static void test_quota(void **state) {
    int32_t a[LONG];
    cache_owner *owner;
    cache_space *space;
    open_pages(12);
    count_from(a, 0);
    assert_int_equal(cache_owner_get(the_cache, "o", 1, 4, &owner), 0);
    assert_int_equal(cache_space_get(the_cache, owner, "s", 1, &space), 0);
    request(a, 384, 384); /* of somebody else */
    chain *ch = opened(space);
    extend(ch, a, 512);
    assert_int_equal(n_hollow(), 4);
    assert_int_equal(probe(a, 384), 384);
    size_t n_pages, n_idle;
    cache_owner_pages(owner, &n_pages, &n_idle);
    assert_int_equal(n_pages, 4);
    chain_close(&ch);
    cache_drop_all(the_cache);
    cache_space_put(the_cache, &space);
    cache_owner_put(the_cache, &owner);
    close_all();
}

static bool add(void *arg, const cache_node *node) {
    size_t *sum = arg;
    sum[0] += node->n_pages;
    sum[1] += node->n_hollow;
    sum[2] += node->n_tokens;
    return true;
}

static void test_walk_shows_them(void **state) {
    int32_t a[LONG];
    cache_owner *owner;
    open_pages(8);
    count_from(a, 0);
    assert_int_equal(cache_owner_get(the_cache, "o", 1, SIZE_MAX, &owner), 0);
    cache_space_put(the_cache, &the_space);
    assert_int_equal(cache_space_get(the_cache, owner, "s", 1, &the_space), 0);
    request(a, 256, 256);
    need_pages(2);
    size_t sum[3] = {0};
    cache_walk(the_cache, owner, add, sum);
    assert_true(sum[0] == 2 && sum[1] == 2 && sum[2] == 256);
    cache_owner_put(the_cache, &owner);
    close_all();
}

/* A failure leaves all as it was. */
static void test_failing_allocations(void **state) {
    int32_t a[LONG];
    count_from(a, 0);
    for (long n = 0, rc = -1; rc < 0; n++) {
        open_pages(6);
        request(a, 320, 320);
        need_pages(2);
        chain *ch = NULL;
        mem_fail_after(n);
        rc = chain_open(the_cache, the_space, &ch);
        size_t hit = rc == 0 ? chain_match(ch, a, 310, SIZE_MAX) : 0;
        if (rc == 0) rc = chain_reserve(ch, 320);
        mem_fail_after(-1);
        assert_true(hit == 0 || hit == 310);
        assert_null(cache_check(the_cache));
        if (ch) cells_check(ch, 0, a);
        chain_close(&ch);
        close_all();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behind_goes_first),
        cmocka_unit_test(test_the_reason),
        cmocka_unit_test(test_filled_again),
        cmocka_unit_test(test_long_chain_in_small_cache),
        cmocka_unit_test(test_prompts_end_is_kept),
        cmocka_unit_test(test_prompt_of_a_pin),
        cmocka_unit_test(test_forks_are_kept),
        cmocka_unit_test(test_long_base),
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_walk_shows_them),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
