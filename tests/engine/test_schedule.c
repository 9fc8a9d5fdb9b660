/* The planner alone: rule by rule (the numbers are those of schedule.h), then whole lives of random
 * sequences against a page pool that only counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedule.h"

enum { PAGE = 4, MOST = 16, LONG = 1000 };

static int32_t zeros[LONG], ones[LONG], half[LONG]; /* half: zeros up to the middle, then ones */

static int fill_texts(void **unused) {
    for (int i = 0; i < LONG; i++) {
        ones[i] = 1;
        half[i] = i >= LONG / 2;
    }
    return 0;
}

static sched_tenant tenants[MOST];

/* A sequence in a namespace of its own. */
static sched_seq seq(const int32_t *tokens, size_t n_tokens, size_t n_ready) {
    static uint64_t spaces = 1000;
    return (sched_seq){.tokens = tokens,
                       .n_tokens = n_tokens,
                       .n_ready = n_ready,
                       .n_pages = (n_ready + PAGE - 1) / PAGE,
                       .hit_limit = n_tokens - 1,
                       .rows_from = SIZE_MAX,
                       .space = spaces++,
                       .tenant = -1};
}

static sched_seq shared(const int32_t *tokens, size_t n_tokens, size_t n_ready) {
    sched_seq s = seq(tokens, n_tokens, n_ready);
    s.space = 1;
    return s;
}

static sched_state state_of(const sched_seq *running, int n) {
    return (sched_state){.running = running,
                         .n_running = n,
                         .max_running = MOST,
                         .chunk = 512,
                         .chunk_mixed = 256,
                         .logit_rows = 64,
                         .page_tokens = PAGE,
                         .pages = 100000,
                         .tenants = tenants};
}

static sched_item items[MOST];
static int victim;

static void test_chunk_alone_and_mixed(void **unused) {
    sched_seq running[] = {seq(zeros, 1000, 0), seq(zeros, 10, 9)};
    sched_state s = state_of(running, 1);
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 512);
    s.n_running = 2;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 256);
    assert_int_equal(items[1].n_tokens, 1); /* rule 1 */
}

static void test_short_ones_take_half(void **unused) {
    sched_seq running[8];
    running[0] = seq(zeros, 1000, 0);
    for (int i = 1; i < 8; i++) running[i] = seq(zeros, SCHED_SHORT, 0);
    sched_state s = state_of(running, 8);
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    for (int i = 1; i <= 4; i++) assert_int_equal(items[i].n_tokens, SCHED_SHORT);
    for (int i = 5; i < 8; i++) assert_int_equal(items[i].n_tokens, 0);
    assert_int_equal(items[0].n_tokens, 256);
}

static void test_one_token_chunks(void **unused) {
    sched_seq running[] = {seq(zeros, 1000, 0), seq(zeros, 3, 0)};
    sched_state s = state_of(running, 2);
    s.chunk = s.chunk_mixed = 1;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 1);
    assert_int_equal(items[1].n_tokens, 0);
}

static void test_twins_wait(void **unused) {
    sched_seq running[] = {shared(zeros, 300, 0), shared(zeros, 300, 0), shared(half, 600, 100),
                           seq(zeros, 100, 0), shared(ones, 50, 0)};
    sched_state s = state_of(running, 5);
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 300);
    assert_int_equal(items[1].n_tokens, 0);
    assert_int_equal(items[1].owner, 0);
    assert_int_equal(items[2].n_tokens, 0); /* 100 of it are ready, 300 will be */
    assert_int_equal(items[2].owner, 0);
    assert_int_equal(items[3].n_tokens, 100); /* another namespace */
    assert_int_equal(items[3].owner, -1);
    assert_int_equal(items[4].n_tokens, 50); /* another prompt */
}

static void test_no_wait_for_what_may_not_be_taken(void **unused) {
    sched_seq running[] = {shared(zeros, 200, 0), shared(zeros, 200, 0)};
    running[1].hit_limit = 0;
    sched_state s = state_of(running, 2);
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[1].n_tokens, 200);
}

static void test_no_wait_for_decoders(void **unused) {
    sched_seq running[] = {shared(zeros, 200, 199), shared(zeros, 400, 199)};
    sched_state s = state_of(running, 2);
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 1);
    assert_int_equal(items[1].n_tokens, 201);
}

static void test_no_wait_for_who_is_past(void **unused) {
    sched_seq running[] = {shared(half, 1000, 600), shared(zeros, 700, 0)};
    sched_state s = state_of(running, 2);
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 400);
    assert_int_equal(items[1].owner, -1); /* the first 500 tokens are there */
    assert_int_equal(items[1].n_tokens, 112);
}

/* Rule 8. */
static void test_edges(void **unused) {
    sched_seq running[] = {seq(zeros, 203, 0), seq(ones, 40, 0), seq(zeros, 100, 7),
                           seq(ones, 50, 49)};
    sched_state s = state_of(running, 4);
    s.edges = true;
    s.chunk_mixed = 300;
    running[0].stop = 101; /* is no edge */
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 100);
    assert_int_equal(items[1].n_tokens, 36); /* 40 would leave nothing for the same prompt */
    assert_int_equal(items[2].n_tokens, 89);
    assert_int_equal(items[3].n_tokens, 1);
    running[0].n_ready = 200;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 3); /* no edge comes any more */
}

static void test_edges_where_others_attach(void **unused) {
    sched_seq running[] = {shared(half, 1000, 300), shared(zeros, 700, 8), shared(half, 402, 300)};
    sched_state s = state_of(running, 3);
    s.edges = true;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 100); /* up to 400, where the third can attach */
    assert_int_equal(items[1].owner, 0);
    assert_int_equal(items[2].owner, 0);
    running[0].n_ready = running[2].n_ready = 400;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[2].n_tokens, 2);
    assert_int_equal(items[0].n_tokens, 100); /* up to 500, for the second */
    running[0].n_ready = 500;
    running[2].n_ready = 401;
    s.chunk_mixed = 600;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[1].owner, -1); /* whether it found a state at 500 or not */
    assert_true(items[1].n_tokens > 0);
}

/* How much a step may take is never above what there is room for. */
static void test_chunk_bounds(void **unused) {
    sched_pace slow = {.step = 1, .row = 1}, fast = {.step = 1e-6, .row = 1e-6};
    assert_int_equal(sched_chunk(&slow, 0.1, 8, 512), 8);
    assert_int_equal(sched_chunk(&slow, 0.1, 8, 3), 3);
    assert_int_equal(sched_chunk(&fast, 0.1, 8, 512), 512);
    assert_int_equal(sched_chunk(&fast, 0.1, 8, 3), 3);
}

static void test_logit_rows_limit_chunks(void **unused) {
    sched_seq running[] = {seq(zeros, 400, 0), seq(ones, 400, 0)};
    running[0].rows_from = 100;
    running[1].rows_from = 0;
    sched_state s = state_of(running, 2);
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 100 + 64);
    assert_int_equal(items[1].n_tokens, 0);
}

static void test_pages_short(void **unused) {
    sched_seq running[] = {seq(zeros, 40, 8), seq(ones, 9, 8), seq(ones, 17, 16)};
    sched_state s = state_of(running, 3);
    s.pages = 4; /* one for each decode row, two for the chunk, which shrinks to them */
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 2 * PAGE);
    assert_int_equal(items[1].n_tokens, 1);
    assert_int_equal(items[2].n_tokens, 1);
    s.pages = 2; /* none for the oldest: the last one goes */
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_PREEMPT);
    assert_int_equal(victim, 2);
    s.n_running = 2;
    s.pages = 1; /* the last may not drive out anyone, nor itself */
    running[0] = seq(zeros, 8, 7);
    running[1] = seq(ones, 40, 0);
    s.pages = 0;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    assert_int_equal(items[0].n_tokens, 1);
    assert_int_equal(items[1].n_tokens, 0);
}

static void test_admission(void **unused) {
    sched_seq running[] = {shared(zeros, 40, 39), seq(ones, 40, 39)}, next = shared(zeros, 42, 0);
    sched_state s = state_of(running, 2);
    s.next = &next;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_ADMIT);
    s.max_running = 2;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    s.max_running = 3;
    /* Each running one may want a page for its next token. Of the 11 pages of `next` (for 43
     * tokens) the first one pins 40 / 4, so that it needs one more. */
    s.pages = 3;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_ADMIT);
    s.pages = 2;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    next.space = 2; /* nothing is shared then */
    s.pages = 12;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    s.pages = 13;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_ADMIT);
    s.pages = 0;
    s.n_running = 0;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_ADMIT);
}

/* With a window nobody needs more pages than that at a time: what is behind it can be had again. */
static void test_admission_with_a_window(void **unused) {
    sched_seq running[] = {seq(zeros, 200, 199)}, next = seq(ones, 400, 0);
    sched_state s = state_of(running, 1);
    s.next = &next;
    s.pages = 13;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    s.window_pages = 12;
    running[0].n_behind = 40; /* of 50 pages; it wants one more, and next 12 */
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_ADMIT);
    s.pages = 12;
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_RUN);
    running[0].n_behind = 38; /* it has all it will ever need */
    assert_int_equal(sched_plan(&s, items, &victim), SCHED_ADMIT);
}

static void test_common(void **unused) {
    for (size_t n = 0; n < 300; n++) {
        int32_t a[300], b[300];
        for (size_t i = 0; i < 300; i++) a[i] = (int32_t)i, b[i] = i < n ? a[i] : -1;
        sched_seq x = seq(a, 300, 0), y = seq(b, 300, 0), z = seq(a, n, 0);
        assert_int_equal(sched_common(&x, &y), n);
        assert_int_equal(sched_common(&x, &z), n);
    }
}

/* ---- whole lives ----------------------------------------------------------------------------- */

typedef struct life {
    sched_seq seq;
    size_t goal; /* tokens at its end */
} life;

enum { OWNERS = 3 }; /* tenants; the first has no quota */

typedef struct world {
    size_t quota, owned[OWNERS];
    life queue[64], running[MOST];
    sched_seq view[MOST];
    int n_queue, n_running, n_done;
    size_t pages, free_pages;
    sched_state state;
} world;

static void make_world(world *w, unsigned seed) {
    srand(seed);
    *w = (world){.n_queue = 5 + rand() % 40, .pages = 30 + (size_t)(rand() % 100)};
    w->free_pages = w->pages;
    w->quota = w->pages / 2 + (size_t)rand() % w->pages;
    const int32_t *texts[] = {zeros, ones, half};
    for (int i = 0; i < w->n_queue; i++) {
        int tenant = rand() % OWNERS;
        size_t most = MIN(w->pages, tenant ? w->quota : SIZE_MAX) * PAGE;
        size_t goal = 2 + (size_t)rand() % (most - 2);
        size_t n_prompt = 1 + (size_t)rand() % (goal - 1);
        w->queue[i] = (life){seq(texts[rand() % 3], n_prompt, 0), MIN(goal, LONG)};
        w->queue[i].seq.n_tokens = MIN(n_prompt, w->queue[i].goal - 1);
        w->queue[i].seq.tenant = tenant;
        if (rand() % 2) w->queue[i].seq.space = 1 + (uint64_t)tenant;
        if (rand() % 4 == 0) w->queue[i].seq.rows_from = (size_t)rand() % n_prompt;
    }
    w->state = state_of(w->view, 0);
    w->state.max_running = 1 + rand() % MOST;
    w->state.chunk = 1 + rand() % 100;
    w->state.chunk_mixed = 1 + rand() % w->state.chunk;
    w->state.logit_rows = 1 + rand() % 20;
    w->state.edges = rand() % 2;
}

static void give_back(world *w, life *l) {
    w->owned[l->seq.tenant] -= l->seq.n_pages;
    w->free_pages += l->seq.n_pages;
    l->seq.n_pages = l->seq.n_ready = 0;
}

/* The last in the order; or the last of a tenant at its quota. */
static void preempt(world *w, int i) {
    life l = w->running[i];
    for (int k = i + 1; k < w->n_running; k++)
        assert_int_not_equal(w->running[k].seq.tenant, l.seq.tenant);
    if (i < w->n_running - 1) assert_true(l.seq.tenant > 0);
    w->n_running--;
    memmove(w->running + i, w->running + i + 1, (size_t)(w->n_running - i) * sizeof *w->running);
    give_back(w, &l);
    memmove(w->queue + 1, w->queue, (size_t)w->n_queue++ * sizeof *w->queue);
    w->queue[0] = l;
}

static void admit(world *w) {
    assert_true(w->n_queue > 0 && w->n_running < w->state.max_running);
    w->running[w->n_running++] = w->queue[0];
    memmove(w->queue, w->queue + 1, (size_t)--w->n_queue * sizeof *w->queue);
}

/* Applies one item; returns the prefill tokens it used. */
static int apply(world *w, int i, bool *progress) {
    sched_seq *s = &w->running[i].seq;
    int n = items[i].n_tokens;
    size_t end = s->n_ready + (size_t)n, needed = (end + PAGE - 1) / PAGE;
    bool decode = s->n_tokens - s->n_ready == 1;
    assert_true(end <= s->n_tokens);
    if (n > 0) assert_int_equal(items[i].owner, -1);
    if (needed > s->n_pages) {
        assert_true(needed - s->n_pages <= w->free_pages);
        w->free_pages -= needed - s->n_pages;
        w->owned[s->tenant] += needed - s->n_pages;
        assert_true(s->tenant == 0 || w->owned[s->tenant] <= w->quota);
        s->n_pages = needed;
    }
    s->n_ready = end;
    if (s->n_ready == s->n_tokens) {
        s->n_tokens++;
        s->rows_from = SIZE_MAX;
    }
    *progress |= n > 0;
    return decode ? 0 : n;
}

static void step(world *w) {
    bool admitting = true;
    for (;;) {
        w->state.n_running = w->n_running;
        w->state.next = admitting && w->n_queue ? &w->queue[0].seq : NULL;
        w->state.pages = w->free_pages;
        for (int t = 0; t < OWNERS; t++) tenants[t].pages = t ? w->quota - w->owned[t] : SIZE_MAX;
        for (int i = 0; i < w->n_running; i++) w->view[i] = w->running[i].seq;
        enum sched_action action = sched_plan(&w->state, items, &victim);
        if (action == SCHED_RUN) break;
        if (action == SCHED_ADMIT) admit(w);
        if (action == SCHED_PREEMPT) preempt(w, victim), admitting = false;
    }
    int prefill = 0;
    bool progress = false, first = false, rows = false;
    for (int i = 0; i < w->n_running; i++) {
        const sched_seq *seq = &w->running[i].seq;
        rows |= items[i].n_tokens > 0 && seq->rows_from < seq->n_ready + (size_t)items[i].n_tokens;
        prefill += apply(w, i, &progress);
        if (i == 0) first = progress;
    }
    assert_true(prefill <= w->state.chunk);
    assert_true(progress);
    /* The first in the order stands still only while others compute what it needs, or when short
     * ones or logit rows used up the step. */
    if (!first) assert_true(prefill > 0 || rows);
    for (int i = 0; i < w->n_running;) {
        if (w->running[i].seq.n_tokens <= w->running[i].goal) {
            i++;
            continue;
        }
        give_back(w, &w->running[i]);
        memmove(w->running + i, w->running + i + 1,
                (size_t)(--w->n_running - i) * sizeof *w->running);
        w->n_done++;
    }
}

static void test_lives(void **unused) {
    for (unsigned seed = 0; seed < 200; seed++) {
        world w;
        make_world(&w, seed);
        int n = w.n_queue;
        for (int steps = 0; w.n_done < n; steps++) {
            assert_true(steps < 1000000);
            step(&w);
        }
        assert_int_equal(w.free_pages, w.pages);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunk_alone_and_mixed),
        cmocka_unit_test(test_short_ones_take_half),
        cmocka_unit_test(test_one_token_chunks),
        cmocka_unit_test(test_twins_wait),
        cmocka_unit_test(test_no_wait_for_what_may_not_be_taken),
        cmocka_unit_test(test_no_wait_for_decoders),
        cmocka_unit_test(test_no_wait_for_who_is_past),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_edges_where_others_attach),
        cmocka_unit_test(test_chunk_bounds),
        cmocka_unit_test(test_logit_rows_limit_chunks),
        cmocka_unit_test(test_pages_short),
        cmocka_unit_test(test_admission),
        cmocka_unit_test(test_admission_with_a_window),
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_lives),
    };
    return cmocka_run_group_tests_name("schedule", tests, fill_texts, NULL);
}
