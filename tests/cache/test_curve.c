/* The miss-ratio curve against an exact list of all pages by last use. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cache_internal.h"

static const double scales[CACHE_CURVE_SIZES] = CACHE_CURVE_SCALES;

/* The twin: the place of a page is a count of those that were used after it. */
typedef struct twin {
    size_t n_pages, n_items, asked;
    uint64_t *used; /* when; 0: never, or forgotten */
    uint64_t clock;
    size_t found[CACHE_CURVE_SIZES];
} twin;

static twin twin_open(size_t n_pages, size_t n_items) {
    twin t = {.n_pages = n_pages, .n_items = n_items, .used = calloc(n_items, sizeof *t.used)};
    assert_non_null(t.used);
    return t;
}

/* Whether a cache of n_pages has it. */
static bool twin_ask(twin *t, size_t item) {
    size_t place = 1;
    t->asked++;
    if (!t->used[item]) return false;
    for (size_t i = 0; i < t->n_items; i++) place += t->used[i] > t->used[item];
    for (int i = 0; i < CACHE_CURVE_SIZES; i++)
        t->found[i] += (double)place <= scales[i] * (double)t->n_pages;
    return place <= t->n_pages;
}

static double share(const twin *t, int i) {
    return (double)t->found[i] / (double)t->asked;
}

static uint64_t print_of(size_t item, uint64_t seed) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + item;
    return random_next(&state);
}

static double unit(uint64_t *random) {
    return (double)(random_next(random) >> 11) / 0x1p53;
}

/* ---- streams --------------------------------------------------------------------------------- */

typedef size_t stream(uint64_t *random, size_t step, size_t n_items);

static size_t even(uint64_t *random, size_t step, size_t n) {
    (void)step;
    return random_next(random) % n;
}

/* The k-th most popular page about as often as 1 / k. */
static size_t zipf(uint64_t *random, size_t step, size_t n) {
    (void)step;
    return (size_t)pow((double)n, unit(random)) - 1;
}

/* Popular ones among others that come once, or again in the same order after a long time. */
static size_t scans(uint64_t *random, size_t step, size_t n) {
    return step % 3 ? step / 3 * 2 % (n / 2) + n / 2 : zipf(random, step, n / 2);
}

/* Turns of conversations, some of which go on. */
static size_t turns(uint64_t *random, size_t step, size_t n) {
    size_t session = (step / 400 + (size_t)(20 * pow(unit(random), 3))) * 16;
    return (session + random_next(random) % 16) % n;
}

static const struct {
    const char *name;
    stream *next;
} streams[] = {{"even", even}, {"zipf", zipf}, {"scans", scans}, {"turns", turns}};

/* ---- tests ----------------------------------------------------------------------------------- */

static void run(curve *c, twin *t, stream *next, uint64_t seed, size_t n_steps) {
    uint64_t random = seed;
    for (size_t i = 0; i < n_steps; i++) {
        size_t item = next(&random, i, t->n_items);
        uint64_t print = print_of(item, seed);
        if (random_next(&random) % 8) { /* most pages are asked for, some just written */
            bool hit = twin_ask(t, item);
            curve_ask(c, print, hit);
        }
        t->used[item] = ++t->clock;
        curve_use(c, print);
        if (random_next(&random) % 50) continue;
        item = next(&random, i, t->n_items);
        t->used[item] = 0;
        curve_forget(c, print_of(item, seed));
    }
}

static void compare(size_t n_samples, size_t n_pages, size_t n_items, size_t n_steps,
                    double most_off) {
    double worst = 0;
    for (size_t s = 0; s < COUNT_OF(streams); s++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            curve *c;
            cache_curve got;
            twin t = twin_open(n_pages, n_items);
            assert_int_equal(curve_open(n_samples, n_pages, &c), 0);
            run(c, &t, streams[s].next, seed, n_steps);
            curve_read(c, &got);
            for (int i = 0; i < CACHE_CURVE_SIZES; i++) {
                double off = fabs(got.found[i] - share(&t, i));
                worst = MAX(worst, off);
                if (off > most_off)
                    fail_msg("%s, seed %d, size %g: %g for %g", streams[s].name, (int)seed,
                             scales[i], got.found[i], share(&t, i));
            }
            curve_close(&c);
            free(t.used);
        }
    print_message("%zu samples of %zu pages: off by %.4f at most\n", n_samples, n_items, worst);
}

static void exact_when_all_are_followed(void **state) {
    compare(600, 100, 600, 6000, 1e-9);
    compare(3000, 300, 3000, 9000, 1e-9);
}

static void near_when_few_are(void **state) {
    compare(512, 300, 5000, 12000, 0.05);
    compare(2048, 300, 5000, 12000, 0.02);
}

static void old_counts_fade(void **state) {
    enum { PAGES = 10, STEPS = 40000 };
    curve *c;
    cache_curve got;
    assert_int_equal(curve_open(256, PAGES, &c), 0);
    for (size_t i = 0; i < STEPS; i++) { /* one page again and again, */
        curve_ask(c, print_of(0, 1), i > 0);
        curve_use(c, print_of(0, 1));
    }
    curve_read(c, &got);
    assert_true(got.found[0] > 0.99);
    for (size_t i = 0; i < STEPS; i++) { /* then none twice */
        curve_ask(c, print_of(i, 2), false);
        curve_use(c, print_of(i, 2));
    }
    curve_read(c, &got);
    assert_true(got.found[3] < 0.35);
    assert_true(got.asked < STEPS);
    curve_close(&c);
}

static void failing_allocations(void **state) {
    for (long n = 0;; n++) {
        curve *c;
        mem_fail_after(n);
        int rc = curve_open(64, 64, &c);
        mem_fail_after(-1);
        curve_close(&c);
        if (rc == 0) break;
        assert_int_equal(rc, ICP_ENOMEM);
        assert_true(n < 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_when_all_are_followed),
        cmocka_unit_test(near_when_few_are),
        cmocka_unit_test(old_counts_fade),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests_name("curve", tests, NULL, NULL);
}
