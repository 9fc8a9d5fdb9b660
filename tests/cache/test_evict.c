/* What the order of eviction learns, counted in pages that come back. */
#include <stdlib.h>

#include "cells.h"

enum { PAGES = 24, REGULARS = 10, STEPS = 1200 };

static cache *the_cache;
static cache_space *the_space;

/* A prompt of one page; true when it was there. */
static bool ask(int32_t name) {
    int32_t tokens[CACHE_PAGE];
    chain *ch;
    for (int i = 0; i < CACHE_PAGE; i++) tokens[i] = name;
    assert_int_equal(chain_open(the_cache, the_space, &ch), 0);
    bool hit = chain_match(ch, tokens, CACHE_PAGE, CACHE_PAGE) == CACHE_PAGE;
    assert_int_equal(chain_reserve(ch, CACHE_PAGE), 0);
    cells_write(ch, 0, tokens, CACHE_PAGE);
    if (!hit) chain_publish(ch, tokens, CACHE_PAGE);
    chain_close(&ch);
    return hit;
}

/* The share of regulars, who come back in turns, that was found in the second half. `strangers` is
 * how many others come once between two of them, each `times` times in a row. */
static double found(int policy, int strangers, int times) {
    int n_found = 0, n_asked = 0;
    int32_t stranger = 1000;
    the_cache = cells_open(PAGES, false, policy);
    assert_int_equal(cache_space_get(the_cache, NULL, "", 0, &the_space), 0);
    for (int i = 0; i < STEPS; i++) {
        bool hit = ask(i % REGULARS);
        n_found += i >= STEPS / 2 && hit;
        n_asked += i >= STEPS / 2;
        for (int k = 0; k < strangers; k++, stranger++)
            for (int t = 0; t < times; t++) ask(stranger);
    }
    assert_null(cache_check(the_cache));
    cache_space_put(the_cache, &the_space);
    cache_close(&the_cache);
    return (double)n_found / n_asked;
}

/* How many pages of a prompt are there. */
static size_t known(const int32_t *tokens, size_t n) {
    return cache_probe(the_cache, the_space, tokens, n) / CACHE_PAGE;
}

/* Pages that become leaves because those below them went are no younger for it: of two prompts that
 * came once, the older one goes first, all of it. */
static void test_exposed_pages_are_as_old_as_they_were(void **state) {
    enum { LONG = 10 * CACHE_PAGE };
    int32_t tokens[LONG];
    for (int i = 0; i < LONG; i++) tokens[i] = 1;
    for (int policy = 0; cache_policy_name(policy); policy++) {
        if (policy == CACHE_COST) continue; /* for which the deep ones are worth more */
        chain *ch;
        the_cache = cells_open(PAGES, false, policy);
        assert_int_equal(cache_space_get(the_cache, NULL, "", 0, &the_space), 0);
        assert_int_equal(chain_open(the_cache, the_space, &ch), 0);
        assert_int_equal(chain_reserve(ch, LONG), 0);
        cells_write(ch, 0, tokens, LONG);
        chain_publish(ch, tokens, LONG);
        chain_close(&ch);
        for (int32_t i = 0; i < PAGES; i++) {
            assert_int_equal(known(tokens, LONG), MIN(10, PAGES - i));
            ask(1000 + i);
        }
        cache_space_put(the_cache, &the_space);
        cache_close(&the_cache);
    }
}

/* The room suffices for all regulars, but not for those who come between two of their visits. */
static void test_regulars_stay(void **state) {
    assert_true(found(CACHE_LRU, 4, 1) == 0);
    assert_true(found(CACHE_HAZARD, 4, 1) > 0.95);
    assert_true(found(CACHE_ARC, 4, 1) > 0.95);
}

/* To be asked for twice at once is no sign of coming back later, and age tells who does. */
static void test_twice_at_once_is_no_regular(void **state) {
    assert_true(found(CACHE_LRU, 4, 2) == 0);
    assert_true(found(CACHE_HAZARD, 4, 2) >= found(CACHE_LRU, 4, 2));
}

/* Where the least recently used one is the right one to go, that one goes. */
static void test_no_loss_where_order_is_all(void **state) {
    assert_true(found(CACHE_LRU, 1, 1) == 1);
    assert_true(found(CACHE_HAZARD, 1, 1) > 0.99);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exposed_pages_are_as_old_as_they_were),
        cmocka_unit_test(test_regulars_stay),
        cmocka_unit_test(test_twice_at_once_is_no_regular),
        cmocka_unit_test(test_no_loss_where_order_is_all),
    };
    return cmocka_run_group_tests_name("evict", tests, NULL, NULL);
}
