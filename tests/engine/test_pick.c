/* The order of the queue and the pace of steps, by the numbers of schedule.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "schedule.h"

enum { MOST = 200, TENANTS = 4 };

static sched_tenant tenants[TENANTS];

static int forget(void **unused) {
    for (int t = 0; t < TENANTS; t++) tenants[t] = (sched_tenant){0};
    return 0;
}

static sched_wait waits(int tenant, size_t n_tokens, size_t n_hit) {
    return (sched_wait){.tenant = tenant, .n_tokens = n_tokens, .n_hit = n_hit};
}

static int pick(sched_wait *waiting, int n) {
    return sched_pick(waiting, n, tenants, TENANTS);
}

static void test_priority_first(void **unused) {
    sched_wait w[] = {waits(0, 100, 90), waits(1, 100, 0), waits(0, 100, 50)};
    w[1].priority = -1;
    assert_int_equal(pick(w, 3), 1);
    w[2].priority = -1;
    forget(NULL);
    assert_int_equal(pick(w, 3), 2);
}

static void test_longest_prefix_first(void **unused) {
    sched_wait w[] = {waits(0, 100, 10), waits(0, 100, 30), waits(0, 100, 30), waits(0, 100, 20)};
    assert_int_equal(pick(w, 4), 1);
}

static void test_nobody_is_passed_too_often(void **unused) {
    sched_wait w[2];
    w[0] = waits(0, 100, 0);
    for (int i = 0; i < SCHED_BYPASS; i++) {
        w[1] = waits(0, 100, 50);
        assert_int_equal(pick(w, 2), 1);
        sched_admitted(w, 2, 1, tenants);
    }
    assert_int_equal(w[0].bypassed, SCHED_BYPASS);
    assert_int_equal(pick(w, 2), 0);
}

static void test_another_tenant_is_no_bypass(void **unused) {
    sched_wait w[] = {waits(0, 100, 0), waits(1, 100, 50)};
    tenants[0].credit = tenants[1].credit = 1000;
    assert_int_equal(pick(w, 2), 1);
    sched_admitted(w, 2, 1, tenants);
    assert_int_equal(w[0].bypassed, 0);
    assert_int_equal(tenants[1].credit, 950); /* what is cached costs nothing */
}

static void test_credit(void **unused) {
    sched_wait w[] = {waits(0, 100, 99), waits(1, 100, 0)};
    tenants[0].credit = -5;
    tenants[1].credit = 1;
    assert_int_equal(pick(w, 2), 1); /* who has none is not served, whatever is cached */
    tenants[1].credit = 0;
    assert_int_equal(pick(w, 2), 0); /* now both get a quantum */
    assert_int_equal(tenants[0].credit, SCHED_QUANTUM - 5);
    assert_int_equal(tenants[1].credit, SCHED_QUANTUM);
    assert_int_equal(tenants[2].credit, 0); /* nothing is saved up by waiting for nothing */
    tenants[0].credit = -3 * SCHED_QUANTUM;
    assert_int_equal(pick(w, 1), 0); /* alone, as many rounds as it takes */
    assert_int_equal(tenants[0].credit, SCHED_QUANTUM);
}

/* Random queues: P4 for everybody; and two tenants that always wait are served equally, up to what
 * a quantum and the largest request make. */
static void test_random_queues(void **unused) {
    for (unsigned seed = 0; seed < 50; seed++) {
        sched_wait w[MOST];
        int n = 0;
        int64_t served[TENANTS] = {0};
        enum { LARGEST = 5000 };
        srand(seed);
        forget(NULL);
        for (int step = 0; step < 3000; step++) {
            for (int t = 0; t < TENANTS; t++) { /* everybody has a few in the queue at any time */
                int mine = 0;
                for (int i = 0; i < n; i++) mine += w[i].tenant == t;
                for (; mine < 5; mine++) {
                    size_t size = 1 + (size_t)(rand() % LARGEST);
                    w[n++] = waits(t, size, rand() % 2 ? (size_t)rand() % size : 0);
                }
            }
            int at = pick(w, n);
            assert_in_range(at, 0, n - 1);
            served[w[at].tenant] += (int64_t)(w[at].n_tokens - w[at].n_hit);
            sched_admitted(w, n, at, tenants);
            for (int i = 0; i < n; i++) assert_true(w[i].bypassed <= SCHED_BYPASS);
            for (int i = at; i + 1 < n; i++) w[i] = w[i + 1];
            n--;
            for (int t = 1; t < TENANTS; t++)
                assert_true(llabs(served[t] - served[0]) <= 2 * (SCHED_QUANTUM + LARGEST));
        }
    }
}

/* ---- the pace -------------------------------------------------------------------------------- */

static void test_pace(void **unused) {
    sched_pace p = {0};
    assert_int_equal(sched_chunk(&p, 0.15, 8, 512), 32); /* before anything is known */
    assert_int_equal(sched_chunk(&p, 0.15, 8, 20), 20);
    sched_note(&p, 0, 0.05);
    sched_note(&p, 100, 0.05 + 100 * 0.001);
    assert_in_range(sched_chunk(&p, 0.15, 8, 512), 99, 100);
    assert_int_equal(sched_chunk(&p, 10, 8, 512), 512);
    assert_int_equal(sched_chunk(&p, 0.01, 8, 512), 8); /* even where the bound cannot be kept */
    assert_int_equal(sched_chunk(&p, 0.01, 8, 1), 1);   /* memory is there for no more */
    sched_note(&p, 100, 0.05 + 100 * 0.002);            /* slower: believed at once */
    assert_in_range(sched_chunk(&p, 0.15, 8, 512), 49, 50);
    sched_note(&p, 100, 0.05 + 100 * 0.001); /* faster: by and by */
    assert_in_range(sched_chunk(&p, 0.15, 8, 512), 51, 55);
    for (int i = 0; i < 100; i++) sched_note(&p, 100, 0.05 + 100 * 0.001);
    assert_in_range(sched_chunk(&p, 0.15, 8, 512), 98, 100);
}

/* A prompt whose tokens get dearer: the step after next stays under the bound but for what one step
 * adds. */
static void test_pace_follows(void **unused) {
    sched_pace p = {0};
    double bound = 0.15;
    sched_note(&p, 0, 0.02);
    for (int at = 0, steps = 0; at < 100000; steps++) {
        int n = sched_chunk(&p, bound, 8, 512);
        double seconds = 0.02 + n * (0.0002 + 1e-8 * at);
        if (steps > 0) assert_true(seconds <= bound * 1.05 || n == 8);
        sched_note(&p, n, seconds);
        at += n;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_priority_first, forget),
        cmocka_unit_test_setup(test_longest_prefix_first, forget),
        cmocka_unit_test_setup(test_nobody_is_passed_too_often, forget),
        cmocka_unit_test_setup(test_another_tenant_is_no_bypass, forget),
        cmocka_unit_test_setup(test_credit, forget),
        cmocka_unit_test_setup(test_random_queues, forget),
        cmocka_unit_test(test_pace),
        cmocka_unit_test(test_pace_follows),
    };
    return cmocka_run_group_tests_name("pick", tests, NULL, NULL);
}
