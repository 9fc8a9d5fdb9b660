/* The rival against a list of pages by last use. */
#include <stdlib.h>

#include "cells.h"

#include "cache_internal.h"

enum { GROUPS = 700, DEPTH = 6, PAGES = GROUPS * DEPTH, STEPS = 40000 };

/* Groups of pages below each other. The list has who was used last first, of a group the upper
 * first; its first `room` pages are what the least recently used rule holds. */
typedef struct twin {
    cache *cache;
    size_t room, n;
    int list[PAGES];
    uint64_t used[PAGES]; /* 0: never */
    uint64_t random;
    size_t n_asked, n_differ;
} twin;

static uint32_t draw(twin *t, uint32_t below) {
    return (uint32_t)(random_next(&t->random) >> 33) % below;
}

static size_t place_of(const twin *t, int page) {
    size_t i = 0;
    while (i < t->n && t->list[i] != page) i++;
    return i;
}

static void use_first(twin *t, int page) {
    size_t at = place_of(t, page);
    if (at == t->n) t->n++;
    memmove(t->list + 1, t->list, at * sizeof *t->list);
    t->list[0] = page;
    if (t->n > t->room) t->n = t->room;
}

/* A chain wants the first n pages of a group: from the root on; it leaves them from their end. */
static void visit(twin *t, int group, size_t n) {
    cache *c = t->cache;
    c->clock++;
    for (size_t i = 0; i < n; i++) {
        int page = group * DEPTH + (int)i;
        bool has = place_of(t, page) < t->n;
        bool rival_has = t->used[page] && rival_take(c, t->used[page]);
        t->n_asked++;
        t->n_differ += has != rival_has;
    }
    for (size_t i = n; i-- > 0;) {
        int page = group * DEPTH + (int)i;
        use_first(t, page);
        t->used[page] = c->clock;
        rival_use(c);
    }
}

static twin *begin(size_t room) {
    twin *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->cache = calloc(1, sizeof *t->cache);
    assert_non_null(t->cache);
    t->room = t->cache->n_pages = t->cache->n_in[PAGE_IDLE] = room;
    t->cache->rival.width = 1;
    t->random = room;
    return t;
}

static void end(twin *t) {
    free(t->cache);
    free(t);
}

static void test_knows_what_the_rule_holds(void **state) {
    twin *t = begin(300);
    for (int i = 0; i < STEPS; i++) visit(t, (int)draw(t, 80), 1 + draw(t, DEPTH));
    assert_int_equal(t->cache->rival.width, 1);
    assert_true(t->n_asked > STEPS);
    assert_int_equal(t->n_differ, 0);
    assert_int_equal(t->cache->rival.n, 300);
    end(t);
}

/* More ticks than bins: nearly. Fewer again: as before. */
static void test_bins_are_as_wide_as_they_must(void **state) {
    twin *t = begin(2000);
    for (int i = 0; i < STEPS / 4; i++) visit(t, (int)draw(t, GROUPS), 1 + draw(t, 3));
    assert_true(t->cache->rival.width > 1);
    assert_true(t->n_differ * 100 < t->n_asked);
    for (int i = 0; i < STEPS / 4; i++)
        visit(t, (int)draw(t, 20), 1); /* that keep the others old */
    uint64_t widest = t->cache->rival.width;
    for (int i = 0; i < 1500; i++) visit(t, (int)draw(t, GROUPS), DEPTH);
    assert_true(t->cache->rival.width < widest);
    t->n_asked = t->n_differ = 0;
    for (int i = 0; i < STEPS / 4; i++) visit(t, (int)draw(t, GROUPS), DEPTH);
    assert_true(t->n_differ * 100 < t->n_asked);
    end(t);
}

/* It leads when it has found more, and what was won before does not count against that. */
static void test_leads_when_it_finds_more(void **state) {
    twin *t = begin(300);
    for (int i = 0; i < 1000; i++) visit(t, (int)draw(t, 80), 1);
    for (int i = 0; i < 1000; i++) rival_count(t->cache, true, false);
    assert_false(rival_leads(t->cache));
    int n = 0;
    while (!rival_leads(t->cache)) rival_count(t->cache, false, true), n++;
    assert_in_range(n, 2, 1000 / 50);
    for (int i = 0; i < n; i++) rival_count(t->cache, true, true);
    assert_true(rival_leads(t->cache));
    for (int i = 0; i < 10 * 1000; i++) visit(t, (int)draw(t, 80), 1); /* time heals */
    assert_false(rival_leads(t->cache));
    end(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_knows_what_the_rule_holds),
        cmocka_unit_test(test_bins_are_as_wide_as_they_must),
        cmocka_unit_test(test_leads_when_it_finds_more),
    };
    return cmocka_run_group_tests_name("rival", tests, NULL, NULL);
}
