/* Models whose sequences carry a state: what is found, what is computed, and that both give the
 * same. The stand-in refuses any state that is not the one of its position. */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bed.h"
#include "incipit.h"

enum { SMALL = 16, LARGE = 40000 }; /* bytes of a state: less than a page, and three of them */
enum { EDGE = CACHE_PAGE, ROOMY = 16 << 20 };

static size_t edge(size_t n) {
    return n / EDGE * EDGE;
}

/* Runs a request whose first completion is known. */
static icp_usage run(bed *b, icp_request_opts o) {
    outcome want;
    bed_expect(&o, 0, &want);
    result got = bed_run(b, &o);
    assert_int_equal(got.error, 0);
    bed_assert_same(&got.choice[0], &want);
    icp_usage u = got.usage;
    result_fini(&got);
    return u;
}

static icp_stats stats(bed *b) {
    icp_stats s;
    engine_get_stats(b->engine, &s);
    assert_int_equal(s.computed_tokens + s.cached_tokens, s.prompt_tokens);
    return s;
}

/* ---- what is found --------------------------------------------------------------------------- */

/* An agent's next turn computes what is new, and the rest of a page. */
static void next_turn(size_t state_size, int chunk) {
    enum { FIRST = 6000, ANSWER = 50, NEW = 200, LEN = FIRST + ANSWER + NEW };
    static int32_t prompt[LEN];
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = ROOMY, .chunk = chunk}, state_size);
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, FIRST, ANSWER);
    outcome answer;
    bed_expect(&o, 0, &answer);
    assert_int_equal(run(&b, o).cached_tokens, 0);
    icp_usage again = run(&b, o);
    assert_int_equal(again.cached_tokens, edge(FIRST - 1));
    assert_int_equal(again.why.reason, ICP_MISS_STATE);
    assert_int_equal(again.why.position, again.cached_tokens);
    memcpy(prompt + FIRST, answer.token, ANSWER * sizeof *prompt);
    o = bed_greedy(prompt, LEN, 1);
    icp_usage u = run(&b, o);
    assert_int_equal(u.cached_tokens, edge(FIRST + ANSWER - 1));
    assert_true(u.prompt_tokens - u.cached_tokens <= NEW + EDGE);
    assert_int_equal(u.why.reason, ICP_MISS_NEW);
    assert_int_equal(u.why.position, FIRST + ANSWER - 1);
    assert_int_equal(stats(&b).hit_step, EDGE);
    bed_close(&b);
}

static void test_next_turn(void **unused) {
    next_turn(SMALL, 0);
    next_turn(LARGE, 0);
    next_turn(LARGE, 100);
}

/* The third prompt with a common beginning finds all of it, the second what stood by chance. */
static void test_branches(void **unused) {
    enum { SHARED = 1000, LEN = 1200 };
    int32_t prompt[LEN];
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = ROOMY}, LARGE);
    const size_t found[] = {0, 512, edge(SHARED), edge(SHARED)};
    static const enum icp_miss_reason reasons[] = {ICP_MISS_NEW, ICP_MISS_STATE, ICP_MISS_DIFFERENT,
                                                   ICP_MISS_DIFFERENT};
    for (unsigned i = 0; i < COUNT_OF(found); i++) {
        bed_prompt(prompt, LEN, SHARED, i);
        icp_request_opts o = bed_greedy(prompt, LEN, 3);
        icp_usage asked, u;
        assert_int_equal(engine_why(b.engine, &o, &asked, NULL), 0);
        u = run(&b, o);
        assert_int_equal(u.cached_tokens, found[i]);
        assert_int_equal(u.why.reason, reasons[i]);
        assert_int_equal(u.why.position, i > 1 ? SHARED : found[i]);
        assert_int_equal(u.why.n_missed, LEN - found[i]);
        assert_int_equal(asked.cached_tokens, found[i]);
        assert_int_equal(asked.why.reason, reasons[i]);
    }
    bed_close(&b);
}

static icp_request_opts with_marks(icp_request_opts o, const icp_mark *marks, size_t n) {
    o.marks = marks;
    o.n_marks = n;
    return o;
}

/* A conversation that comes as a whole: whoever writes one of its messages anew finds all before
 * it. Old messages only when there is memory that nobody needs. */
static void test_messages(void **unused) {
    enum { LEN = 6000, N = 5 };
    static const icp_mark ends[N] = {{1000, 0}, {2500, 0}, {4003, 0}, {5500, 0}, {5930, 0}};
    static int32_t prompt[LEN], edited[LEN];
    for (int chunk = 0; chunk <= 100; chunk += 100) {
        bed b;
        bed_open_carrying(&b, (engine_opts){.cache_limit = ROOMY, .chunk = chunk}, LARGE);
        bed_prompt(prompt, LEN, 0, 1);
        icp_request_opts o = with_marks(bed_greedy(prompt, LEN, 1), ends, N);
        assert_int_equal(run(&b, o).cached_tokens, 0);
        assert_int_equal(stats(&b).preemptions, 0);
        for (size_t i = N; i-- > 0;) {
            memcpy(edited, prompt, sizeof prompt);
            for (size_t k = ends[i].position; k < LEN; k++)
                edited[k] = BED_WORDS + (int32_t)((k + i) % 7);
            icp_request_opts again = bed_greedy(edited, MIN(ends[i].position + 150, LEN), 1);
            assert_int_equal(run(&b, again).cached_tokens, edge(ends[i].position));
        }
        bed_close(&b);
    }
}

/* However many marks there are, the states that push others out are few. */
static void test_states_of_messages_are_few(void **unused) {
    enum { LEN = 6000, STATE_PAGES = 3 };
    static int32_t prompt[LEN];
    icp_mark ends[ICP_MAX_MARKS];
    for (size_t i = 0; i < ICP_MAX_MARKS; i++) ends[i] = (icp_mark){180 * (i + 1), 0};
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = BED_SMALL + (2 << 20)}, LARGE);
    icp_stats before = stats(&b);
    bed_prompt(prompt, LEN, 0, 1);
    size_t fits = MIN((size_t)LEN, (before.pages - 5 * STATE_PAGES) * EDGE);
    size_t n = 0;
    while (n < ICP_MAX_MARKS && ends[n].position < fits) n++;
    run(&b, with_marks(bed_greedy(prompt, fits, 1), ends, n));
    assert_true(n > 8);
    assert_true(stats(&b).checkpoints <= 5);
    assert_int_equal(stats(&b).pages_used, 0);
    bed_close(&b);
}

static void test_limits_of_a_request(void **unused) {
    enum { LEN = 300 };
    int32_t prompt[LEN];
    bed b;
    bed_open_carrying(&b, (engine_opts){0}, SMALL);
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LEN, 1);
    o.no_store = true;
    assert_int_equal(run(&b, o).cached_tokens, 0);
    assert_int_equal(stats(&b).pages_free, stats(&b).pages);
    o.no_store = false;
    run(&b, o);
    o.max_hit = 200; /* nothing was left there, */
    icp_usage u = run(&b, o);
    assert_int_equal(u.cached_tokens, 0);
    assert_int_equal(u.why.reason, ICP_MISS_STATE);
    u = run(&b, o); /* but is now */
    assert_int_equal(u.cached_tokens, 192);
    assert_int_equal(u.why.reason, ICP_MISS_LIMITED);
    o.no_cache = true;
    assert_int_equal(run(&b, o).cached_tokens, 0);
    bed_close(&b);
}

/* ---- in flight ------------------------------------------------------------------------------- */

static void test_herd(void **unused) {
    enum { N = 8, SHARED = 4000, TAIL = 50, LEN = SHARED + TAIL };
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = ROOMY}, LARGE);
    bed_run_herd(&b, N, SHARED, TAIL);
    assert_int_equal(fake_model_counts(b.model).tokens, edge(SHARED) + N * (LEN - edge(SHARED)));
    bed_close(&b);
}

static void test_completions_share_their_prompt(void **unused) {
    enum { LEN = 1000, N = 4, OUT = 5 };
    int32_t prompt[LEN];
    bed b;
    bed_open_carrying(&b, (engine_opts){0}, SMALL);
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LEN, OUT);
    o.n = N;
    o.temperature = 1;
    result got = bed_run(&b, &o);
    for (int i = 0; i < N; i++) {
        outcome want;
        bed_expect(&o, i, &want);
        bed_assert_same(&got.choice[i], &want);
    }
    result_fini(&got);
    assert_int_equal(fake_model_counts(b.model).tokens,
                     edge(LEN) + N * (LEN - edge(LEN)) + N * (OUT - 1));
    bed_close(&b);
}

/* Whoever waits goes on from where the owner stood. */
static void test_owner_leaves(void **unused) {
    enum { LEN = 2000 };
    int32_t prompt[LEN];
    outcome want;
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = ROOMY, .chunk = 128}, LARGE);
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LEN, 4);
    bed_expect(&o, 0, &want);
    fake_model_stop(b.model);
    request *owner = bed_submit(&b, &o), *waiter = bed_submit(&b, &o);
    fake_model_go(b.model);
    fake_model_stop(b.model); /* in one of its steps */
    request_cancel(owner);
    fake_model_go(b.model);
    result gone = bed_finish(&owner, 1), got = bed_finish(&waiter, 1);
    bed_assert_same(&got.choice[0], &want);
    assert_true(fake_model_counts(b.model).tokens <= LEN + EDGE + 2 * 3);
    result_fini(&gone);
    result_fini(&got);
    bed_close(&b);
}

/* ---- conversations in any company ------------------------------------------------------------ */

enum { TALKS = 6, TURNS = 5, LONGEST = 1500 };

typedef struct talk {
    int32_t tokens[LONGEST];
    size_t n;
    outcome want;
    request *r;
} talk;

static uint64_t seed;
static size_t draw(size_t below) {
    return (size_t)(random_next(&seed) >> 33) % below;
}

static size_t draw_marks(icp_mark *marks, size_t most, size_t n_prompt) {
    static const double ttl[] = {0, 0, 0.001, 1000};
    size_t n = 0;
    for (size_t at = 1 + draw(200); n < most && at <= n_prompt; at += draw(200))
        marks[n++] = (icp_mark){at, ttl[draw(COUNT_OF(ttl))]};
    return n;
}

static void begin_turn(bed *b, talk *t, size_t room) {
    icp_mark marks[6];
    size_t add = 1 + draw(150);
    if (t->n + add > room) t->n = 10; /* another one that begins like it */
    for (size_t i = 0; i < add; i++) t->tokens[t->n++] = BED_WORDS + (int32_t)draw(40);
    icp_request_opts o = bed_greedy(t->tokens, t->n, 1 + (int)draw(120));
    o.temperature = draw(2) ? 1 : 0;
    o.priority = (int)draw(3);
    o.no_store = draw(10) == 0;
    o.pin = draw(10) == 0 ? INFINITY : 0;
    o.session_end = draw(10) == 0;
    o.marks = marks;
    o.n_marks = draw_marks(marks, COUNT_OF(marks), t->n);
    bed_expect(&o, 0, &t->want);
    t->r = bed_submit(b, &o);
    if (draw(6) == 0) request_cancel(t->r);
}

static void end_turn(talk *t) {
    result got = bed_finish(&t->r, 1);
    const outcome *o = &got.choice[0];
    assert_int_equal(got.error, 0);
    assert_memory_equal(o->token, t->want.token, (size_t)o->n * sizeof(int32_t));
    if (o->finish != ICP_FINISH_CANCELLED) assert_int_equal(o->n, t->want.n);
    memcpy(t->tokens + t->n, o->token, (size_t)o->n * sizeof(int32_t));
    t->n += (size_t)o->n;
    result_fini(&got);
}

/* Returns how many were preempted. */
static uint64_t converse(const engine_opts *opts, size_t state_size) {
    static talk talks[TALKS];
    bed b;
    bed_open_carrying(&b, *opts, state_size);
    size_t room = MIN(stats(&b).pages * EDGE, (size_t)LONGEST) - 130;
    for (int i = 0; i < TALKS; i++) {
        talks[i].n = 10 + draw(300);
        bed_prompt(talks[i].tokens, talks[i].n, i % 3 ? 150 : 0, (unsigned)i);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn % 2) fake_model_stop(b.model); /* all at once, however slowly they come */
        for (int i = 0; i < TALKS; i++) begin_turn(&b, &talks[i], room);
        if (turn % 2) fake_model_go(b.model);
        for (int i = 0; i < TALKS; i++) end_turn(&talks[i]);
        stats(&b);
    }
    engine_drop(b.engine, "");
    engine_drop(b.engine, ""); /* by now the statistics are those after the first */
    icp_stats s = stats(&b);
    assert_int_equal(s.pages_free, s.pages);
    assert_int_equal(s.checkpoints, 0);
    bed_close(&b);
    return s.preemptions;
}

static void test_same_in_any_company(void **unused) {
    enum { TIGHT = BED_SMALL + 40000 };
    static const engine_opts kinds[] = {{0},
                                        {.no_cache = true},
                                        {.max_parallel = 2},
                                        {.chunk = 1},
                                        {.chunk = 7},
                                        {.chunk = 64},
                                        {.tenant_quota = 2 << 20},
                                        {.cache_limit = TIGHT},
                                        {.cache_limit = TIGHT, .chunk = 16},
                                        {.cache_limit = TIGHT, .no_cache = true}};
    uint64_t preemptions[2] = {0};
    seed = 1;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        engine_opts tight = kinds[i];
        for (int round = 0; round < 3; round++) preemptions[0] += converse(&tight, SMALL);
        if (tight.cache_limit) tight.cache_limit += 900000; /* pages are larger */
        for (int round = 0; round < 3; round++) preemptions[1] += converse(&tight, LARGE);
    }
    assert_true(preemptions[0] > 0 && preemptions[1] > 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void flood(bed *b, unsigned first, unsigned n) {
    int32_t prompt[300];
    for (unsigned i = 0; i < n; i++) {
        bed_prompt(prompt, 300, 0, first + i);
        icp_request_opts o = bed_greedy(prompt, 300, 1);
        o.tenant = "others";
        run(b, o);
    }
}

static void test_pins_keep_states(void **unused) {
    enum { LEN = 400 };
    int32_t prompt[LEN];
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = 2 << 20}, LARGE);
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 300, 0), p = bed_greedy(prompt, LEN, 1);
    o.pin = INFINITY;
    run(&b, o);
    flood(&b, 100, 40);
    assert_true(stats(&b).evictions > 0);
    assert_int_equal(run(&b, p).cached_tokens, edge(300 - 1));
    engine_drop(b.engine, "");
    flood(&b, 200, 40);
    assert_int_equal(run(&b, p).cached_tokens, 0);
    bed_close(&b);
}

static void test_breakpoints_keep_states(void **unused) {
    enum { LEN = 400 };
    static const icp_mark marks[] = {{200, 1000}, {290, 0}};
    int32_t prompt[LEN];
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = 2 << 20}, LARGE);
    bed_prompt(prompt, LEN, 0, 1);
    run(&b, with_marks(bed_greedy(prompt, 300, 0), marks, 2));
    assert_int_equal(stats(&b).pins, 1);
    flood(&b, 100, 40);
    assert_true(stats(&b).evictions > 0);
    assert_int_equal(run(&b, bed_greedy(prompt, LEN, 1)).cached_tokens, edge(200));
    bed_close(&b);
}

static void test_public_prefix(void **unused) {
    enum { LEN = 300, PUBLIC = 150 };
    int32_t prompt[LEN];
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = 2 << 20}, LARGE);
    bed_prompt(prompt, LEN, PUBLIC, 0);
    assert_int_equal(engine_share(b.engine, prompt, PUBLIC, NULL), 0);
    flood(&b, 100, 40);
    for (unsigned i = 0; i < 4; i++) {
        bed_prompt(prompt, LEN, PUBLIC, i);
        icp_request_opts o = bed_greedy(prompt, LEN, 2);
        o.tenant = i % 2 ? "a" : "b";
        assert_int_equal(run(&b, o).cached_tokens, edge(PUBLIC));
        assert_int_equal(run(&b, o).cached_tokens, edge(LEN - 1));
    }
    bed_close(&b);
}

/* Fewer run at once where their states would take more than a quarter of the limit. */
static void test_states_are_counted(void **unused) {
    bed b;
    bed_open_carrying(&b, (engine_opts){.cache_limit = 2 << 20}, 200000);
    icp_stats s = stats(&b);
    assert_true(s.fixed > 2 * 200000 && s.fixed < 3 * 200000);
    flood(&b, 1, 3);
    bed_close(&b);
}

static void test_failing_allocations(void **unused) {
    bed b;
    bed_open_carrying(&b, (engine_opts){0}, LARGE);
    bed_open_starving(&b, ROOMY);
    bed_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next_turn),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_states_of_messages_are_few),
        cmocka_unit_test(test_breakpoints_keep_states),
        cmocka_unit_test(test_limits_of_a_request),
        cmocka_unit_test(test_herd),
        cmocka_unit_test(test_completions_share_their_prompt),
        cmocka_unit_test(test_owner_leaves),
        cmocka_unit_test(test_same_in_any_company),
        cmocka_unit_test(test_pins_keep_states),
        cmocka_unit_test(test_public_prefix),
        cmocka_unit_test(test_states_are_counted),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
