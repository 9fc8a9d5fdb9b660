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

/* ---- no policy may lose to the least recently used ---------------------------------------------
 */

/* A trace without times or lengths, for n requests of at most `longest` blocks. */
static trace new_trace(size_t n, size_t longest) {
    trace t = {.block = 64};
    t.requests = mem_zero(n, sizeof *t.requests);
    t.blocks = mem_zero(n * longest, sizeof *t.blocks);
    assert_non_null(t.requests);
    assert_non_null(t.blocks);
    return t;
}

/* The first n blocks of a session whose ids begin with `first`. */
static void ask(trace *t, int first, size_t n) {
    trace_request *r = &t->requests[t->n_requests];
    *r = (trace_request){.time = (double)t->n_requests, .first = t->n_blocks, .n_blocks = n};
    for (size_t i = 0; i < n; i++) t->blocks[t->n_blocks++] = first + (int)i;
    t->n_requests++;
}

/* Sessions that come twice, the second time when `apart` others have come, and never again: what
 * was found once is of no use any more. */
static trace come_twice(int n, int apart) {
    enum { BLOCKS = 4 };
    trace t = new_trace(2 * (size_t)n, BLOCKS);
    for (int i = 0; i < n + apart; i++) {
        if (i < n) ask(&t, i * BLOCKS, BLOCKS);
        if (i >= apart) ask(&t, (i - apart) * BLOCKS, BLOCKS);
    }
    t.n_unique = (size_t)n * BLOCKS;
    return t;
}

/* Sessions that grow for many turns, a few at a time, and end: the more often a block was found,
 * the sooner it will never be again. */
static trace grow_and_end(int n) {
    enum { TURNS = 12, MORE = 2, AT_ONCE = 8, LONGEST = TURNS * MORE };
    trace t = new_trace((size_t)n * TURNS, LONGEST);
    int session[AT_ONCE], turn[AT_ONCE] = {0}, begun = 0;
    uint64_t random = 1;
    for (; begun < AT_ONCE; begun++) session[begun] = begun;
    while (t.n_requests < (size_t)n * TURNS) {
        size_t i = random_next(&random) % AT_ONCE;
        if (turn[i] == TURNS) { /* over; another one begins, or none */
            if (begun == n) continue;
            session[i] = begun++;
            turn[i] = 0;
        }
        ask(&t, session[i] * LONGEST, (size_t)(++turn[i] * MORE));
    }
    t.n_unique = (size_t)n * LONGEST;
    return t;
}

static double percent_found(const trace *t, int policy, size_t capacity) {
    replay_result r;
    icp_error err = {0};
    replay_opts o = {.capacity = capacity, .policy = (enum cache_policy)policy};
    if (replay(t, &o, &r, &err) < 0) fail_msg("%s", err.text);
    return 100.0 * (double)r.n_hits / (double)r.n_blocks;
}

static void compare_with_lru(const trace *t, const size_t *capacities, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double lru = percent_found(t, CACHE_LRU, capacities[i]);
        for (int p = 0; cache_policy_name(p); p++) {
            double found = percent_found(t, p, capacities[i]);
            if (found < lru - 1)
                fail_msg("%s finds %.1f %% with %zu blocks, lru %.1f %%", cache_policy_name(p),
                         found, capacities[i], lru);
        }
    }
}

static void none_loses_where_what_was_found_is_over(void **state) {
    static const size_t capacities[] = {160, 280, 320, 600};
    trace t = come_twice(1000, 30);
    assert_true(percent_found(&t, CACHE_LRU, 280) > 49);
    compare_with_lru(&t, capacities, COUNT_OF(capacities));
    trace_fini(&t);
}

static void none_loses_where_sessions_end(void **state) {
    static const size_t capacities[] = {48, 96, 192, 384};
    trace t = grow_and_end(100);
    assert_true(percent_found(&t, CACHE_LRU, 192) > 80);
    compare_with_lru(&t, capacities, COUNT_OF(capacities));
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
                                       cmocka_unit_test(none_loses_where_what_was_found_is_over),
                                       cmocka_unit_test(none_loses_where_sessions_end),
                                       cmocka_unit_test(the_curve_tells_of_other_sizes),
                                       cmocka_unit_test(times_add_up),
                                       cmocka_unit_test(wrong_traces_are_named)};
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
