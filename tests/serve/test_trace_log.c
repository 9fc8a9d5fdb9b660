/* The trace of requests, read back as the simulator reads it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim.h"
#include "trace_log.h"

static char folder[] = "/tmp/incipit-trace-XXXXXX";
static char path[64], old_path[80];

static int setup(void **state) {
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/trace", folder);
    snprintf(old_path, sizeof old_path, "%s.1", path);
    return 0;
}

static int teardown(void **state) {
    unlink(path);
    unlink(old_path);
    rmdir(folder);
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    return 0;
}

static trace_log *opened(size_t limit) {
    trace_log *t;
    icp_error err = {0};
    if (trace_log_open(path, limit, &t, &err) < 0) fail_msg("%s", err.text);
    return t;
}

static trace back(void) {
    trace t;
    icp_error err = {0};
    if (trace_read(path, 0, &t, &err) < 0) fail_msg("%s", err.text);
    return t;
}

/* n tokens of which the first `same` are equal whatever the seed. */
static const int32_t *text(size_t same, int32_t seed) {
    static int32_t tokens[8][512];
    static int turn;
    int32_t *t = tokens[turn++ % 8];
    for (size_t i = 0; i < 512; i++) t[i] = (int32_t)i + (i < same ? 0 : 1000 * seed);
    return t;
}

static void add(trace_log *t, double ago, const char *tenant, const char *salt, bool cached,
                const int32_t *tokens, size_t n) {
    trace_space space;
    trace_log_space(t, "model", tenant, salt, cached, &space);
    trace_log_add(t, ago, &space, tokens, n, 7);
}

/* Blocks that two requests of a trace begin with both. */
static size_t common(const trace *t, size_t a, size_t b) {
    const trace_request *x = &t->requests[a], *y = &t->requests[b];
    size_t n = 0;
    while (n < x->n_blocks && n < y->n_blocks && t->blocks[x->first + n] == t->blocks[y->first + n])
        n++;
    return n;
}

static void tells_what_is_shared(void **state) {
    trace_log *log = opened(1 << 20);
    add(log, 90, "ann", "", true, text(512, 0), 400);
    add(log, 80, "ann", "", true, text(200, 1), 400);
    add(log, 70, "ann", NULL, true, text(512, 0), 130);
    add(log, 60, "bob", "", true, text(512, 0), 400);
    add(log, 50, "ann", "x", true, text(512, 0), 400);
    add(log, 40, "ann", "", false, text(512, 0), 400);
    add(log, 30, "ann", "", false, text(512, 0), 400);
    add(log, 99, "ann", "", true, text(512, 3), 20); /* came first, ended last */
    trace_log_close(&log);
    trace t = back();
    assert_int_equal(t.n_requests, 8);
    assert_int_equal(t.block, TRACE_BLOCK);
    assert_int_equal(t.requests[0].n_input, 20);
    assert_int_equal(t.requests[0].n_blocks, 0);
    assert_int_equal(t.requests[1].n_blocks, 6);
    assert_int_equal(t.requests[1].n_output, 7);
    assert_in_range((int)(t.requests[2].time - t.requests[1].time + 0.5), 9, 11);
    assert_int_equal(common(&t, 1, 2), 3); /* 200 tokens of 64 */
    assert_int_equal(common(&t, 1, 3), 2);
    for (size_t i = 4; i < 8; i++)
        for (size_t k = 1; k < i; k++) assert_int_equal(common(&t, k, i), 0);
    trace_fini(&t);
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
}

static void another_run_has_other_ids(void **state) {
    for (int i = 0; i < 2; i++) {
        trace_log *log = opened(1 << 20);
        add(log, 0, "", "", true, text(512, 0), 300);
        trace_log_close(&log);
    }
    trace t = back();
    assert_int_equal(t.n_requests, 2);
    assert_int_equal(common(&t, 0, 1), 0);
    trace_fini(&t);
}

static void begins_anew_at_its_limit(void **state) {
    struct stat now, old;
    trace_log *log = opened(2000);
    for (int i = 0; i < 200; i++) add(log, 0, "", "", true, text(0, i), 200);
    trace_log_close(&log);
    assert_int_equal(stat(path, &now), 0);
    assert_int_equal(stat(old_path, &old), 0);
    assert_in_range(now.st_size, 1, 2000);
    assert_in_range(old.st_size, 1000, 2000);
    trace t = back(); /* whole lines only */
    assert_true(t.n_requests > 0);
    trace_fini(&t);
}

static void whoever_cannot_write_goes_on(void **state) {
    trace_log *t;
    icp_error err = {0};
    assert_int_equal(trace_log_open("/nonexistent/trace", 1, &t, &err), ICP_EIO);
    assert_non_null(strstr(err.text, "/nonexistent/trace"));
    assert_int_equal(trace_log_open("/dev/full", 1 << 20, &t, &err), 0);
    for (int i = 0; i < 100; i++) add(t, 0, "", "", true, text(0, i), 500);
    trace_log_close(&t);
    trace_space none;
    trace_log_space(NULL, "", "", "", true, &none);
    trace_log_add(NULL, 0, &none, text(0, 0), 100, 1);
}

static void what_is_gone_meanwhile_is_no_error(void **state) {
    trace_log *log = opened(600);
    add(log, 0, "", "", true, text(0, 1), 500);
    unlink(path);
    for (int i = 0; i < 50; i++) add(log, 0, "", "", true, text(0, i), 500);
    trace_log_close(&log);
}

static void failing_allocations(void **state) {
    for (long n = 0;; n++) {
        trace_log *t = NULL;
        mem_fail_after(n);
        int rc = trace_log_open(path, 1 << 20, &t, NULL);
        mem_fail_after(-1);
        trace_log_close(&t);
        if (rc == 0) break;
        assert_int_equal(rc, ICP_ENOMEM);
        assert_true(n < 10);
    }
    trace_log *t = opened(1 << 20);
    mem_fail_after(0);
    add(t, 0, "", "", true, text(0, 1), 500);
    mem_fail_after(-1);
    trace_log_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tells_what_is_shared, setup, teardown),
        cmocka_unit_test_setup_teardown(another_run_has_other_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(begins_anew_at_its_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(whoever_cannot_write_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_gone_meanwhile_is_no_error, setup, teardown),
        cmocka_unit_test_setup_teardown(failing_allocations, setup, teardown),
    };
    return cmocka_run_group_tests_name("trace_log", tests, NULL, NULL);
}
