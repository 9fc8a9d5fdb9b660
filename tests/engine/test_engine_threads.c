/* Many callers at once; meant to be run under a thread sanitizer too. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bed.h"

enum { THREADS = 8, EACH = 25, LEN = 120, OUT = 20 };

typedef struct caller {
    bed *bed;
    unsigned seed;
    size_t served, refused;
    bool wrong;
    pthread_t thread;
} caller;

typedef struct wake_count {
    atomic_int n;
} wake_count;

static void count_wake(void *arg) {
    wake_count *w = arg;
    atomic_fetch_add(&w->n, 1);
}

/* Reads r to its end, with waits and without; true when its tokens are right. */
static bool read_all(request *r, const outcome *want, unsigned *seed) {
    icp_event e = {.kind = ICP_EVENT_TOKEN};
    int n = 0;
    while (e.kind != ICP_EVENT_DONE) {
        if (rand_r(seed) % 2) request_wait(r, 0.001);
        if (!request_next(r, &e)) continue;
        if (e.kind == ICP_EVENT_TOKEN && (n >= want->n || e.token != want->token[n++]))
            return false;
    }
    return e.finish == ICP_FINISH_CANCELLED || n == want->n;
}

static void *call(void *arg) {
    caller *c = arg;
    for (int i = 0; i < EACH; i++) {
        int32_t prompt[LEN];
        unsigned kind = rand_r(&c->seed) % 8;
        wake_count wakes = {0};
        outcome *want = calloc(1, sizeof *want);
        request *r;
        bed_prompt(prompt, LEN, (kind % 4) * 30, kind);
        icp_request_opts o = bed_greedy(prompt, LEN, OUT);
        o.temperature = kind % 2 ? 1 : 0;
        o.seed = kind;
        o.wake = count_wake;
        o.wake_arg = &wakes; /* on this stack: no wake may come after request_free */
        bed_expect(&o, 0, want);
        if (engine_submit(c->bed->engine, &o, &r, NULL) < 0) {
            c->refused++;
        } else {
            unsigned fate = rand_r(&c->seed) % 4;
            if (fate == 0) request_cancel(r);
            if (fate < 3 && !read_all(r, want, &c->seed)) c->wrong = true;
            c->served++;
            request_free(&r);
            if (fate == 2 && atomic_load(&wakes.n) == 0) c->wrong = true;
        }
        free(want);
    }
    return NULL;
}

static void test_many_callers(void **unused) {
    for (int kind = 0; kind < 2; kind++) {
        bed b;
        caller callers[THREADS];
        size_t served = 0, refused = 0;
        icp_stats s;
        bed_open(&b, (engine_opts){.cache_limit = kind ? BED_SMALL + 28000 : 0});
        for (int i = 0; i < THREADS; i++) {
            callers[i] = (caller){.bed = &b, .seed = (unsigned)i};
            assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(callers[i].thread, NULL);
            assert_false(callers[i].wrong);
            served += callers[i].served;
            refused += callers[i].refused;
        }
        assert_int_equal(served + refused, THREADS * EACH);
        assert_int_equal(refused, 0);
        do engine_get_stats(b.engine, &s);
        while (s.finished_length + s.finished_stop + s.cancelled + s.failed < served);
        assert_int_equal(s.running + s.waiting, 0);
        assert_int_equal(s.finished_length + s.finished_stop + s.cancelled, served);
        bed_close(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_callers)};
    return cmocka_run_group_tests_name("engine threads", tests, NULL, NULL);
}
