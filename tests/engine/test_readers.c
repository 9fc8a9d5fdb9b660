/* Callers that do not read: they wait, without pages, and nobody else notices. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bed.h"
#include "engine_internal.h"

enum { LEN = 70, OUT = 450, READERS = 64 };

/* Answers with so many log-probabilities that one of them is some hundred kilobytes of events. */
static icp_request_opts verbose(const int32_t *prompt) {
    icp_request_opts o = bed_greedy(prompt, LEN, OUT);
    o.logprobs = ICP_MAX_LOGPROBS;
    return o;
}

static icp_stats stats_of(bed *b) {
    icp_stats s;
    engine_get_stats(b->engine, &s);
    return s;
}

/* Until everybody who can do nothing has stopped. */
static void wait_until_still(bed *b, uint64_t stalls) {
    icp_stats s;
    for (s = stats_of(b); s.stalls < stalls || s.running > 0; s = stats_of(b)) sched_yield();
}

static void expect_answer(bed *b, request **r, const icp_request_opts *o) {
    outcome want;
    bed_expect(o, 0, &want);
    result got = bed_finish(r, 1);
    assert_int_equal(got.error, 0);
    assert_int_equal(got.choice[0].n, want.n);
    assert_memory_equal(got.choice[0].token, want.token, (size_t)want.n * sizeof *want.token);
    result_fini(&got);
}

/* Who is alone may be far behind, but not without end; what it has missed it gets when it reads. */
static void test_one(void **unused) {
    bed b;
    int32_t prompt[LEN];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = verbose(prompt);
    request *r = bed_submit(&b, &o);
    wait_until_still(&b, 1);
    icp_stats s = stats_of(&b);
    assert_in_range(s.generation_tokens, 1, OUT - 1);
    assert_int_equal(s.pages_used, 0);
    assert_true(s.requests_size < s.requests_limit / 4);
    expect_answer(&b, &r, &o);
    assert_int_equal(stats_of(&b).preemptions, 0);
    bed_close(&b);
}

/* More of them than may run at once: whoever comes is served, and they have a quarter of what
 * requests may have, and little more. */
static void test_many(void **unused) {
    bed b;
    int32_t prompt[READERS + 1][LEN];
    icp_request_opts o[READERS + 1];
    request *r[READERS];
    bed_open(&b, (engine_opts){.cache_limit = 64 << 20, .max_parallel = 4});
    for (unsigned i = 0; i <= READERS; i++) {
        bed_prompt(prompt[i], LEN, 20, i);
        o[i] = verbose(prompt[i]);
    }
    size_t idle = stats_of(&b).requests_size;
    fake_model_stop(b.model); /* the first must not be through before the last has come */
    for (int i = 0; i < READERS; i++) r[i] = bed_submit(&b, &o[i]);
    fake_model_go(b.model);
    wait_until_still(&b, READERS);
    icp_stats s = stats_of(&b);
    size_t own = READERS * (8192 + (LEN + OUT) * sizeof(int32_t) + 3 * 4096);
    assert_int_equal(s.finished_length, 0);
    assert_true(s.requests_size - idle < s.requests_limit / 4 + own);
    request *last = bed_submit(&b, &o[READERS]);
    expect_answer(&b, &last, &o[READERS]);
    for (int i = READERS; i-- > 0;) expect_answer(&b, &r[i], &o[i]);
    assert_int_equal(stats_of(&b).failed, 0);
    bed_close(&b);
}

/* All its completions wait; one that is cancelled or abandoned meanwhile ends. */
static void test_ends_while_waiting(void **unused) {
    bed b;
    int32_t prompt[LEN];
    icp_event e = {.kind = ICP_EVENT_TOKEN};
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = verbose(prompt);
    o.n = 3;
    request *r = bed_submit(&b, &o), *abandoned = bed_submit(&b, &o);
    wait_until_still(&b, 2);
    request_cancel(r);
    request_free(&abandoned);
    while (e.kind != ICP_EVENT_DONE)
        if (request_wait(r, -1)) request_next(r, &e);
    assert_int_equal(e.finish, ICP_FINISH_CANCELLED);
    request_free(&r);
    while (stats_of(&b).cancelled < 2) continue;
    request *unread = bed_submit(&b, &o); /* and closing the engine ends what waits */
    wait_until_still(&b, 3);
    engine_close(&b.engine);
    request_free(&unread);
    bed_close(&b);
}

/* Prompts with log-probabilities of each token are read from where they had stopped. */
static void test_prompt(void **unused) {
    enum { LONG = 3000 };
    bed b;
    int32_t prompt[LONG];
    icp_event e = {.kind = ICP_EVENT_TOKEN};
    bed_open(&b, (engine_opts){.cache_limit = 32 << 20, .chunk = 64});
    bed_prompt(prompt, LONG, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LONG, 2);
    o.logprobs = ICP_MAX_LOGPROBS;
    o.prompt_logprobs = true;
    o.logits_from = 0;
    request *r = bed_submit(&b, &o);
    wait_until_still(&b, 1);
    size_t next = 1;
    while (e.kind != ICP_EVENT_DONE) {
        if (!request_wait(r, -1) || !request_next(r, &e)) continue;
        if (e.kind != ICP_EVENT_PROMPT) continue;
        assert_int_equal(e.position, next);
        assert_int_equal(e.token, prompt[next++]);
    }
    assert_int_equal(e.error, 0);
    assert_int_equal(next, LONG);
    request_free(&r);
    bed_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_ends_while_waiting),
        cmocka_unit_test(test_prompt),
    };
    return cmocka_run_group_tests_name("readers", tests, NULL, NULL);
}
