/* A limit that is lowered and raised while requests run: they get what they get alone, the limit
 * holds whenever engine_set_limit has returned, and what is still wanted is still found. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bed.h"
#include "incipit.h"

enum { PAGE = 128 << 10, LEAST = 8 << 20, MOST = 32 << 20, LONGEST = 2000 };

static bed b;

/* Pauses may be long: steps must not depend on how fast the machine is. */
static void open_bed(size_t limit) {
    engine_opts opts = {
        .cache_limit = limit, .cache_least = LEAST, .cache_most = MOST, .max_pause = 1000};
    bed_open_wide(&b, opts, PAGE);
}

/* The numbers of a step in which the limit was this one. */
static icp_stats stats(void) {
    icp_stats s;
    engine_get_stats(b.engine, &s);
    assert_true(s.pages * s.page_size + s.metadata <= s.cache_limit);
    assert_int_equal(s.limit, s.cache_limit + s.fixed + s.requests_limit);
    return s;
}

/* Returns how much of the prompt was found. */
static size_t run_prompt(unsigned seed, size_t n) {
    int32_t tokens[LONGEST];
    outcome want;
    bed_prompt(tokens, n, 0, seed);
    icp_request_opts o = bed_greedy(tokens, n, 1);
    bed_expect(&o, 0, &want);
    result got = bed_run(&b, &o);
    bed_assert_same(&got.choice[0], &want);
    size_t n_cached = got.usage.cached_tokens;
    result_fini(&got);
    return n_cached;
}

static void test_what_is_found(void **state) {
    enum { N = 640, PROMPTS = 12 };
    open_bed(MOST);
    size_t context = engine_get_context(b.engine), full = stats().pages;
    assert_true(context < N * PROMPTS && full * KERN_PAGE >= N * PROMPTS);
    for (unsigned i = 0; i < PROMPTS; i++) assert_int_equal(run_prompt(i, N), 0);
    for (unsigned i = 0; i < PROMPTS; i++) assert_int_equal(run_prompt(i, N), N - 1);
    assert_int_equal(engine_set_limit(b.engine, LEAST), 0);
    assert_int_equal(run_prompt(PROMPTS - 1, N), N - 1); /* the last one is there, */
    assert_true(run_prompt(0, N) < N - 1);               /* the first one went */
    assert_int_equal(stats().limit, LEAST);
    assert_int_equal(stats().pages * KERN_PAGE, context);
    assert_int_equal(engine_set_limit(b.engine, MOST), 0);
    for (unsigned i = 0; i < PROMPTS; i++) run_prompt(i, N);
    for (unsigned i = 0; i < PROMPTS; i++) assert_int_equal(run_prompt(i, N), N - 1);
    assert_int_equal(stats().pages, full);
    assert_int_equal(engine_get_context(b.engine), context);
    assert_int_equal(engine_set_limit(b.engine, 0), 0); /* as low, and as high, as it goes */
    run_prompt(PROMPTS, N);
    assert_int_equal(stats().limit, LEAST);
    assert_int_equal(engine_set_limit(b.engine, SIZE_MAX), 0);
    run_prompt(PROMPTS, N);
    assert_int_equal(stats().limit, MOST);
    bed_close(&b);
}

static void test_pins_yield(void **state) {
    enum { N = 640, PINS = 12 };
    int32_t tokens[N];
    open_bed(MOST);
    for (unsigned i = 0; i < PINS; i++) {
        bed_prompt(tokens, N, 0, i);
        icp_request_opts o = bed_greedy(tokens, N, 0);
        o.pin = 1000;
        result got = bed_run(&b, &o);
        result_fini(&got);
    }
    assert_int_equal(stats().pins, PINS);
    assert_int_equal(engine_set_limit(b.engine, LEAST), 0);
    assert_int_equal(run_prompt(PINS - 1, N), N - 1);
    icp_stats s = stats();
    assert_in_range(s.pins, 1, PINS - 1);
    assert_int_equal(s.pins + s.pins_yielded, PINS);
    bed_close(&b);
}

static void test_a_limit_that_stays(void **state) {
    bed_open(&b, (engine_opts){0});
    assert_int_equal(engine_set_limit(b.engine, LEAST), ICP_EUNSUPPORTED);
    bed_close(&b);
    open_bed(LEAST);
    assert_int_equal(stats().limit, LEAST);
    bed_close(&b);
}

static atomic_bool over;

static void *change(void *arg) {
    uint64_t random = 7;
    for (int i = 0; !over; i++) {
        size_t limit = LEAST + random_next(&random) % (MOST - LEAST);
        assert_int_equal(engine_set_limit(b.engine, i % 2 ? limit : LEAST), 0);
        ++*(int *)arg;
    }
    return NULL;
}

/* More requests than the least limit holds, long ones among them, half of them with a common
 * beginning. Returns how often one was sent back. */
static uint64_t run_crowd(void) {
    enum { N = 14, OUTPUT = 200 };
    static int32_t tokens[N][LONGEST];
    static outcome want[N];
    request *r[N];
    pthread_t changer;
    int n_changes = 0;
    open_bed(MOST);
    over = false;
    for (unsigned i = 0; i < N; i++) {
        size_t n = 1 + (i * 397u) % (LONGEST - 1);
        bed_prompt(tokens[i], n, i % 2 ? n / 2 : 0, i);
        icp_request_opts o = bed_greedy(tokens[i], n, OUTPUT);
        bed_expect(&o, 0, &want[i]);
        r[i] = bed_submit(&b, &o);
    }
    for (int i = 0; i < N; i++) request_wait(r[i], -1); /* all have begun */
    assert_int_equal(pthread_create(&changer, NULL, change, &n_changes), 0);
    for (int i = 0; i < N; i++) {
        result got = bed_finish(&r[i], 1);
        assert_int_equal(got.error, 0);
        bed_assert_same(&got.choice[0], &want[i]);
        result_fini(&got);
        stats();
    }
    over = true;
    pthread_join(changer, NULL);
    uint64_t preemptions = stats().preemptions;
    bed_close(&b);
    return preemptions;
}

/* How far they are when the limit falls is not the test's to decide: it tries again. */
static void test_while_requests_run(void **state) {
    uint64_t preemptions = 0;
    for (int i = 0; i < 50 && preemptions == 0; i++) preemptions += run_crowd();
    assert_true(preemptions > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_found),
        cmocka_unit_test(test_pins_yield),
        cmocka_unit_test(test_a_limit_that_stays),
        cmocka_unit_test(test_while_requests_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
