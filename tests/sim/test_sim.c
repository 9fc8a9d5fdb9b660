/* The simulator against counts that need no cache: what an unbounded one finds, what none can
 * exceed. */
#include "sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_REQUESTS = 400, MAX_BLOCKS = 24 };

static char path[] = "/tmp/incipit-sim-XXXXXX";

/* Sessions that grow turn by turn, in turns, over a few common beginnings. */
static void write_trace(void) {
    int fd = mkstemp(path), next = 1000;
    FILE *f = fdopen(fd, "w");
    int session[8][MAX_BLOCKS], len[8] = {0};
    assert_non_null(f);
    srand(7);
    for (int i = 0; i < N_REQUESTS; i++) {
        int s = rand() % 8;
        if (len[s] == 0 || len[s] > MAX_BLOCKS - 4 || rand() % 12 == 0) {
            len[s] = 0;
            session[s][len[s]++] = rand() % 3;
        }
        for (int more = 1 + rand() % 3; more > 0; more--) session[s][len[s]++] = next++;
        fprintf(f,
                "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": 5, \"hash_ids\": [",
                i * 10, len[s] * 64 + 3);
        for (int j = 0; j < len[s]; j++) fprintf(f, "%s%d", j ? ", " : "", session[s][j]);
        fprintf(f, "]}\n");
    }
    fclose(f);
}

static void read_it(trace *t) {
    icp_error err = {0};
    write_trace();
    if (trace_read(path, 0, t, &err) < 0) fail_msg("%s", err.text);
    unlink(path);
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
}

/* Blocks that stood in the same place of an earlier request: ids are chained, so that one id has
 * one past only. */
static size_t count_known(const trace *t) {
    char *seen = calloc(t->n_unique, 1);
    size_t hits = 0;
    for (size_t i = 0; i < t->n_requests; i++) {
        const trace_request *r = &t->requests[i];
        for (size_t j = 0; j < r->n_blocks && seen[t->blocks[r->first + j]]; j++) hits++;
        for (size_t j = 0; j < r->n_blocks; j++) seen[t->blocks[r->first + j]] = 1;
    }
    free(seen);
    return hits;
}

static void an_unbounded_cache_finds_all_that_is_known(void **state) {
    trace t;
    read_it(&t);
    assert_int_equal(t.n_requests, N_REQUESTS);
    assert_int_equal(t.block, 64);
    size_t known = count_known(&t);
    assert_int_equal(replay_bound(&t, t.n_unique), known);
    for (int p = 0; cache_policy_name(p); p++) {
        replay_result r;
        icp_error err = {0};
        replay_opts o = {.capacity = SIZE_MAX, .policy = (enum cache_policy)p, .deep = 4096};
        assert_int_equal(replay(&t, &o, &r, &err), 0);
        assert_int_equal(r.n_hits, known);
        assert_int_equal(r.n_blocks, t.n_blocks);
    }
    trace_fini(&t);
}

static void nobody_exceeds_the_bound(void **state) {
    trace t;
    read_it(&t);
    size_t last = 0;
    for (size_t capacity = 32; capacity < t.n_unique; capacity *= 2) {
        size_t bound = replay_bound(&t, capacity);
        assert_true(bound >= last);
        last = bound;
        for (int p = 0; cache_policy_name(p); p++) {
            replay_result r;
            icp_error err = {0};
            replay_opts o = {.capacity = capacity, .policy = (enum cache_policy)p, .deep = 4096};
            if (replay(&t, &o, &r, &err) < 0) fail_msg("%s", err.text);
            assert_true(r.n_hits <= bound);
            assert_true(r.n_hits > 0);
        }
    }
    trace_fini(&t);
}

/* What one cache says of others is what these do: here, where all pages are followed. */
static void the_curve_tells_of_other_sizes(void **state) {
    static const double scales[CACHE_CURVE_SIZES] = CACHE_CURVE_SCALES;
    trace t;
    read_it(&t);
    for (int policy = 0; cache_policy_name(policy); policy++) {
        enum { CAPACITY = 120 };
        replay_result r, other;
        icp_error err = {0};
        replay_opts o = {
            .capacity = CAPACITY, .policy = (enum cache_policy)policy, .curve_samples = 4096};
        assert_int_equal(replay(&t, &o, &r, &err), 0);
        assert_int_equal((int)r.curve.asked, t.n_blocks);
        o.policy = CACHE_LRU;
        for (int i = 0; i < CACHE_CURVE_SIZES; i++) {
            o.capacity = (size_t)(CAPACITY * scales[i]);
            assert_int_equal(replay(&t, &o, &other, &err), 0);
            double found = (double)other.n_hits / (double)other.n_blocks;
            assert_true(fabs(r.curve.found[i] - found) < 0.01);
        }
    }
    trace_fini(&t);
}

/* An idle server answers each request in the time that its own tokens take. */
static void times_add_up(void **state) {
    trace t;
    read_it(&t);
    for (size_t i = 0; i < t.n_requests; i++) t.requests[i].time = (double)i * 1000;
    replay_result r;
    icp_error err = {0};
    replay_opts o = {.capacity = SIZE_MAX, .prefill = 64, .deep = 1e12};
    assert_int_equal(replay(&t, &o, &r, &err), 0);
    assert_true(r.p50 > 0 && r.p50 <= MAX_BLOCKS && r.p99 <= MAX_BLOCKS && r.p50 <= r.p90);
    assert_true(r.p50 - (double)(int)(r.p50 + 0.5) < 1e-6); /* a block a second: whole seconds */
    trace_fini(&t);
}

static void wrong_traces_are_named(void **state) {
    static const char *const lines[] = {
        "{",
        "[]",
        "{\"timestamp\": 1}",
        "{\"timestamp\": \"x\"}",
        "{\"timestamp\": 1, \"input_length\": -1}",
        "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 3}"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        trace t;
        icp_error err = {0};
        int fd = mkstemp(path);
        assert_true(write(fd, lines[i], strlen(lines[i])) > 0);
        close(fd);
        assert_int_equal(trace_read(path, 0, &t, &err), ICP_EFORMAT);
        assert_non_null(strstr(err.text, "line 1"));
        unlink(path);
        memcpy(path + sizeof path - 7, "XXXXXX", 6);
    }
    trace t;
    icp_error err = {0};
    assert_int_equal(trace_read("/nonexistent", 0, &t, &err), ICP_EIO);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_unbounded_cache_finds_all_that_is_known),
                                       cmocka_unit_test(nobody_exceeds_the_bound),
                                       cmocka_unit_test(the_curve_tells_of_other_sizes),
                                       cmocka_unit_test(times_add_up),
                                       cmocka_unit_test(wrong_traces_are_named)};
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
