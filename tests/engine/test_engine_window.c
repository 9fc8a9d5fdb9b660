/* Models that see a window only: contexts longer than the cache, and hits that need no more than
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bed.h"

enum { WINDOW = 200, SMALL = BED_SMALL + 36000, LONG = 1300, MOST = 4096 };

static bed the_bed;

static int setup(void **state) {
    fake_model_window(WINDOW);
    bed_open(&the_bed, (engine_opts){.cache_limit = SMALL});
    return 0;
}

static int teardown(void **state) {
    bed_close(&the_bed);
    fake_model_window(0);
    return 0;
}

static icp_stats stats(void) {
    icp_stats s;
    engine_get_stats(the_bed.engine, &s);
    return s;
}

/* Runs it, checks what it says, and returns what was cached. */
static size_t run(const icp_request_opts *o, enum icp_miss_reason *why) {
    static outcome want;
    bed_expect(o, 0, &want);
    result got = bed_run(&the_bed, o);
    assert_int_equal(got.error, 0);
    bed_assert_same(&got.choice[0], &want);
    size_t cached = got.usage.cached_tokens;
    if (why) *why = got.usage.why.reason;
    result_fini(&got);
    return cached;
}

static void test_longer_than_the_cache(void **state) {
    int32_t prompt[LONG];
    enum icp_miss_reason why;
    bed_prompt(prompt, LONG, 0, 1);
    assert_true(LONG + 40 > stats().pages * CACHE_PAGE);
    assert_true(engine_get_context(the_bed.engine) >= LONG + 40);
    icp_request_opts o = bed_greedy(prompt, LONG, 40);
    assert_int_equal(run(&o, NULL), 0);
    assert_int_equal(stats().preemptions, 0);
    assert_int_equal(run(&o, NULL), LONG - 1);
    /* A shorter prompt reads what is gone. */
    icp_request_opts shorter = bed_greedy(prompt, 500, 3);
    assert_int_equal(run(&shorter, &why), 0);
    assert_int_equal(why, ICP_MISS_WINDOW);
    assert_int_equal(run(&shorter, &why), 499);
}

static void test_too_long_for_any(void **state) {
    static int32_t prompt[MOST];
    icp_error err;
    request *r;
    size_t most = engine_get_context(the_bed.engine);
    assert_true(most < MOST);
    bed_prompt(prompt, MOST, 0, 1);
    icp_request_opts o = bed_greedy(prompt, most, 1);
    assert_int_equal(engine_submit(the_bed.engine, &o, &r, &err), ICP_ELIMIT);
    o.n_prompt--;
    assert_int_equal(run(&o, NULL), 0);
}

/* Several that do not fit beside each other, with common beginnings, again and again. */
static void test_crowd(void **state) {
    enum { N = 6, ROUNDS = 8 };
    static int32_t prompt[N][LONG];
    static outcome want[N];
    size_t hollow = 0; /* seen at any time: what comes last may need none */
    for (int round = 0; round < ROUNDS; round++) {
        request *r[N];
        for (int i = 0; i < N; i++) {
            size_t len = 100 + (size_t)(i * 397 + round * 211) % (LONG - 100);
            bed_prompt(prompt[i], len, MIN(len, (size_t)(i % 3 * 300)), (unsigned)(i + round / 2));
            icp_request_opts o = bed_greedy(prompt[i], len, 1 + (i + round) % 90);
            o.tenant = i % 4 ? "a" : "b";
            bed_expect(&o, 0, &want[i]);
            r[i] = bed_submit(&the_bed, &o);
        }
        for (int i = 0; i < N; i++) {
            result got = bed_finish(&r[i], 1);
            assert_int_equal(got.error, 0);
            bed_assert_same(&got.choice[0], &want[i]);
            result_fini(&got);
            hollow = MAX(hollow, stats().hollow_pages);
        }
    }
    assert_true(hollow > 0);
}

static void test_herd(void **state) {
    fake_model_counts(the_bed.model);
    bed_run_herd(&the_bed, 4, 1000, 20);
    /* All of them go along with the one that computes. */
    assert_int_equal(fake_model_counts(the_bed.model).tokens, 1000 + 4 * 20);
}

static void test_pinned(void **state) {
    int32_t prompt[500], other[LONG];
    bed_prompt(prompt, 500, 0, 1);
    bed_prompt(other, LONG, 0, 2);
    icp_request_opts o = bed_greedy(prompt, 500, 100), more = bed_greedy(other, 800, 10);
    o.pin = 1000;
    run(&o, NULL);
    run(&more, NULL);
    o.pin = 0;
    assert_int_equal(run(&o, NULL), 499);
}

static void test_public_prefix(void **state) {
    int32_t prompt[LONG];
    bed_prompt(prompt, LONG, 0, 1);
    assert_int_equal(engine_share(the_bed.engine, prompt, 430, NULL), 0);
    icp_request_opts o = bed_greedy(prompt, 1000, 10);
    o.tenant = "a";
    assert_int_equal(run(&o, NULL), 384);
    o.tenant = "b";
    assert_int_equal(run(&o, NULL), 384);
    assert_int_equal(run(&o, NULL), 999);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_longer_than_the_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_long_for_any, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crowd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_herd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pinned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_public_prefix, setup, teardown),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
