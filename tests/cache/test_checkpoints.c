/* Checkpoints against a naive twin: random sequences that carry a state, on pools from tiny to
 * roomy, under every policy.
 *
 * The state after some tokens is a hash of them, spread over a few pages' worth of bytes. The twin
 * is the list of prefixes at whose end a checkpoint was left. What a chain matches is no longer
 * than the longest of these that its tokens begin with; as long as nothing was evicted it is that
 * one, less those that moved on with their chain. The state that comes with it is always the right
 * one. ICP_CACHE_STEPS: steps in all (default below). */
#include <math.h>
#include <stdlib.h>

#include "cells.h"

enum { STEPS = 120000, MAX_CHAINS = 5, MAX_LEN = 700, MAX_MARKS = 2000, N_SPACES = 2 };
enum { PARTS = 3, STATE = PARTS * CELLS_SIZE - 104, WORDS = STATE / sizeof(cell) };

typedef struct mark { /* a checkpoint that was left */
    int space;
    size_t n;
    int trail_of; /* number of the chain that it moves on with; -1: it stays */
    bool certain; /* it must be there */
    int32_t tokens[MAX_LEN];
} mark;

typedef struct live {
    chain *chain;
    int number, space;
    size_t n; /* tokens */
    bool keeps;
    int32_t tokens[MAX_LEN];
    cell state[WORDS];
} live;

typedef struct world {
    cache *cache;
    uint64_t random;
    cache_space *spaces[N_SPACES];
    live live[MAX_CHAINS];
    size_t n_live;
    int n_numbers;
    mark *marks;
    size_t n_marks;
    uint64_t evictions;
    size_t hits;
} world;

static uint32_t draw(world *w, uint32_t below) {
    return (uint32_t)(random_next(&w->random) >> 33) % below;
}

static cache_stats stats(world *w) {
    cache_stats s;
    cache_get_stats(w->cache, &s);
    return s;
}

/* ---- states ---------------------------------------------------------------------------------- */

static cell hash(int space, const int32_t *tokens, size_t n) {
    cell h = cell_root(space);
    for (size_t i = 0; i < n; i++) h = cell_next(h, tokens[i]);
    return h;
}

static void set_state(live *l) {
    cell h = hash(l->space, l->tokens, chain_len(l->chain));
    for (size_t i = 0; i < WORDS; i++) l->state[i] = h = cell_next(h, (int32_t)i);
}

static void check_state(const live *l) {
    cell h = hash(l->space, l->tokens, chain_len(l->chain));
    for (size_t i = 0; i < WORDS; i++) assert_true(l->state[i] == (h = cell_next(h, (int32_t)i)));
}

/* ---- the twin -------------------------------------------------------------------------------- */

static void doubt_all(world *w) {
    for (size_t i = 0; i < w->n_marks; i++) w->marks[i].certain = false;
}

static void note_evictions(world *w) {
    uint64_t now = stats(w).evictions;
    if (now != w->evictions) doubt_all(w);
    w->evictions = now;
}

static bool begins(const mark *m, int space, const int32_t *tokens, size_t n) {
    return m->space == space && m->n <= n && !memcmp(m->tokens, tokens, m->n * sizeof *tokens);
}

static mark *find_mark(world *w, const live *l, size_t n) {
    for (size_t i = 0; i < w->n_marks; i++)
        if (w->marks[i].n == n && begins(&w->marks[i], l->space, l->tokens, n)) return &w->marks[i];
    return NULL;
}

static mark *find_trail(world *w, int number) {
    for (size_t i = 0; i < w->n_marks; i++)
        if (w->marks[i].trail_of == number && w->marks[i].certain) return &w->marks[i];
    return NULL;
}

static void forget_all(world *w) {
    cache_drop_all(w->cache);
    w->n_marks = 0;
    for (size_t i = 0; i < w->n_live; i++) { /* what is kept is not forgotten */
        live *l = &w->live[i];
        for (size_t n = CACHE_PAGE; l->keeps && n <= chain_len(l->chain); n += CACHE_PAGE) {
            mark *m = &w->marks[w->n_marks++];
            *m = (mark){.space = l->space, .n = n, .trail_of = -1};
            memcpy(m->tokens, l->tokens, n * sizeof *m->tokens);
        }
    }
}

/* What a chain that left a checkpoint should have done. */
static void expect_mark(world *w, live *l, enum checkpoint_use use, size_t free_before) {
    size_t n = chain_len(l->chain);
    mark *there = find_mark(w, l, n), *trail = find_trail(w, l->number);
    if (there && there->certain) {
        if (use == CHECKPOINT_STAYS) there->trail_of = -1;
        return;
    }
    if (!there) {
        if (w->n_marks == MAX_MARKS) forget_all(w);
        there = &w->marks[w->n_marks++];
        *there = (mark){.space = l->space, .n = n, .trail_of = -1};
        memcpy(there->tokens, l->tokens, n * sizeof *there->tokens);
        trail = find_trail(w, l->number);
    }
    if (trail) trail->certain = false;
    bool other = there->trail_of >= 0 && there->trail_of != l->number;
    if (other && use != CHECKPOINT_STAYS) return; /* it may be there, and move on */
    /* An own trail that nothing is known of would leave the pages that decide. */
    bool unknown = use == CHECKPOINT_SPARE && !trail && free_before < 2 * (size_t)PARTS;
    there->certain = !unknown && (trail || free_before >= PARTS);
    bool stays = use == CHECKPOINT_STAYS ||
                 (use == CHECKPOINT_SPARE && free_before >= (trail ? 1 : 2) * PARTS);
    there->trail_of = stays ? -1 : l->number;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static size_t make_tokens(world *w, int32_t *tokens) {
    size_t n = 1 + draw(w, MAX_LEN), known = 0;
    if (w->n_marks > 0 && draw(w, 6) > 0) {
        const mark *m = &w->marks[draw(w, (uint32_t)w->n_marks)];
        known = draw(w, 3) ? m->n : draw(w, (uint32_t)m->n);
        known = MIN(known, n);
        memcpy(tokens, m->tokens, known * sizeof *tokens);
    }
    for (size_t i = known; i < n; i++) tokens[i] = (int32_t)(i / 40 % 2 ? 0 : draw(w, 2));
    return n;
}

static void step_match(world *w, live *l) {
    size_t before = chain_len(l->chain), least = 0, most = 0;
    size_t limit = draw(w, 3) ? l->n : 1 + draw(w, (uint32_t)l->n);
    for (size_t i = 0; i < w->n_marks; i++) {
        const mark *m = &w->marks[i];
        if (!begins(m, l->space, l->tokens, limit)) continue;
        most = MAX(most, m->n);
        if (m->certain) least = MAX(least, m->n);
    }
    size_t probed = cache_probe(w->cache, w->spaces[l->space], l->tokens, limit);
    assert_true(probed >= least && probed <= most);
    size_t hit = chain_match(l->chain, l->tokens, l->n, limit);
    assert_int_equal(hit, chain_len(l->chain));
    note_evictions(w);
    assert_true(hit == MAX(probed, before) || hit == before);
    size_t branch = chain_branch(l->chain);
    if (before < limit)
        assert_true(branch % CACHE_PAGE == 0 && branch <= limit && (!branch || branch > hit));
    check_state(l);
    if (hit == before) return;
    w->hits++;
    mark *m = find_mark(w, l, hit);
    assert_non_null(m);
    if (m->trail_of != l->number) m->trail_of = -1;
}

static void step_open(world *w) {
    if (w->n_live == MAX_CHAINS) return;
    live *l = &w->live[w->n_live++];
    l->number = w->n_numbers++;
    l->space = (int)draw(w, N_SPACES);
    l->keeps = false;
    l->n = make_tokens(w, l->tokens);
    assert_int_equal(chain_open(w->cache, w->spaces[l->space], &l->chain), 0);
    chain_carry(l->chain, l->state);
    set_state(l);
    step_match(w, l);
}

static void leave_checkpoint(world *w, live *l) {
    size_t n = chain_len(l->chain), free_before = stats(w).n_free;
    enum checkpoint_use use = draw(w, 3);
    if (draw(w, 4) == 0) return;
    chain_checkpoint(l->chain, use);
    note_evictions(w);
    if (n > 0 && n % CACHE_PAGE == 0) expect_mark(w, l, use, free_before);
}

static void step_compute(world *w, live *l) {
    size_t len = chain_len(l->chain), target = len + 1 + draw(w, 3 * CACHE_PAGE);
    target = MIN(target, l->n);
    if (draw(w, 3) && target / CACHE_PAGE * CACHE_PAGE > len)
        target = target / CACHE_PAGE * CACHE_PAGE;
    size_t pages = (target + CACHE_PAGE - 1) / CACHE_PAGE, had = chain_n_pages(l->chain);
    size_t room = cache_obtainable(w->cache, NULL);
    int rc = chain_reserve(l->chain, target);
    note_evictions(w);
    if (pages > had && pages - had > room) {
        assert_true(rc == ICP_EAGAIN || rc == ICP_ELIMIT);
        return;
    }
    assert_int_equal(rc, 0);
    cells_write(l->chain, l->space, l->tokens, target);
    chain_publish(l->chain, l->tokens + len, target - len);
    set_state(l);
    leave_checkpoint(w, l);
}

static void step_keep(world *w, live *l) {
    if (l->keeps) return;
    size_t at = chain_keep_checkpoint(l->chain);
    assert_true(at <= chain_len(l->chain) && at % CACHE_PAGE == 0);
    l->keeps = at > 0;
    if (!at) return;
    mark *m = find_mark(w, l, at);
    assert_non_null(m);
    m->trail_of = -1;
}

/* Another chain stands for its beginning a while, with the checkpoint there. */
static void step_hold(world *w, const live *l) {
    chain *held;
    size_t n = draw(w, MAX_LEN), len = MIN(n, chain_len(l->chain)) / CACHE_PAGE * CACHE_PAGE;
    assert_int_equal(chain_open_on(l->chain, n, INFINITY, &held), 0);
    note_evictions(w);
    assert_int_equal(chain_len(held), len);
    size_t at = chain_keep_checkpoint(held);
    assert_true(at <= len);
    assert_null(cache_check(w->cache));
    if (at) find_mark(w, l, at)->trail_of = -1;
    chain_close(&held);
}

static void step_close(world *w, size_t i) {
    live *l = &w->live[i];
    cells_check(l->chain, l->space, l->tokens);
    for (mark *m; (m = find_trail(w, l->number));) m->trail_of = -1;
    if (draw(w, 4) == 0) chain_retire(l->chain);
    chain_close(&l->chain);
    w->n_live--;
    if (i == w->n_live) return;
    *l = w->live[w->n_live];
    chain_carry(l->chain, l->state);
}

static void step(world *w) {
    size_t i = w->n_live ? draw(w, (uint32_t)w->n_live) : 0;
    live *l = &w->live[i];
    uint32_t kind = draw(w, 100);
    if (kind < 20 || w->n_live == 0)
        step_open(w);
    else if (kind < 35)
        step_close(w, i);
    else if (kind < 80)
        step_compute(w, l);
    else if (kind < 95)
        step_match(w, l);
    else if (kind < 97)
        step_keep(w, l);
    else if (kind < 98)
        step_hold(w, l);
    else if (draw(w, 5) == 0)
        forget_all(w);
    const char *broken = cache_check(w->cache);
    if (broken) fail_msg("%s", broken);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int count_policies(void) {
    int n = 0;
    while (cache_policy_name(n)) n++;
    return n;
}

static world *begin(size_t n_pages, uint64_t seed, int policy) {
    cache_opts opts = {.page_size = CELLS_SIZE,
                       .state_size = STATE,
                       .policy = (enum cache_policy)policy,
                       .limit = cache_limit_of(CELLS_SIZE, n_pages),
                       .copy = cells_copy};
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->random = seed;
    w->marks = calloc(MAX_MARKS + MAX_CHAINS * (MAX_LEN / CACHE_PAGE), sizeof *w->marks);
    assert_non_null(w->marks);
    assert_int_equal(cache_open(&opts, &w->cache, NULL), 0);
    for (int i = 0; i < N_SPACES; i++)
        assert_int_equal(cache_space_get(w->cache, NULL, &i, sizeof i, &w->spaces[i]), 0);
    return w;
}

/* Returns how many pages were evicted. */
static uint64_t end(world *w) {
    uint64_t evictions = stats(w).evictions;
    while (w->n_live > 0) step_close(w, 0);
    for (int i = 0; i < N_SPACES; i++) cache_space_put(w->cache, &w->spaces[i]);
    cache_drop_all(w->cache);
    assert_null(cache_check(w->cache));
    cache_stats s = stats(w);
    assert_int_equal(s.n_free, s.n_pages);
    assert_int_equal(s.n_checkpoints, 0);
    cache_close(&w->cache);
    free(w->marks);
    free(w);
    return evictions;
}

static uint64_t run(size_t n_pages, uint64_t seed, int policy, size_t n_steps) {
    world *w = begin(n_pages, seed, policy);
    for (size_t i = 0; i < n_steps; i++) step(w);
    assert_true(n_pages < 20 || n_steps < 300 || w->hits > 0);
    return end(w);
}

static size_t steps_wanted(void) {
    const char *text = getenv("ICP_CACHE_STEPS");
    return text ? strtoull(text, NULL, 10) : STEPS;
}

static void test_short_of_pages(void **state) {
    const size_t n_pages[] = {4, 5, 8, 12, 20, 40};
    size_t n_steps = steps_wanted() / 12 / (size_t)count_policies();
    for (size_t i = 0; i < COUNT_OF(n_pages); i++)
        for (int policy = 0; cache_policy_name(policy); policy++)
            assert_true(run(n_pages[i], i, policy, n_steps) > 0);
}

static void test_nothing_is_evicted(void **state) {
    size_t n_steps = steps_wanted() / 2;
    for (uint64_t seed = 0; n_steps > 0; seed++) {
        size_t part = MIN(n_steps, 300);
        int policy = (int)(seed % (uint64_t)count_policies());
        assert_int_equal(run(2048, seed, policy, part), 0);
        n_steps -= part;
    }
}

/* Whatever cannot be allocated: a shorter hit, with its state, or none. */
static void test_failing_allocations(void **state) {
    world *w = begin(60, 1, CACHE_HAZARD);
    live *l = &w->live[0];
    static int32_t tokens[1300];
    for (int i = 0; i < 1300; i++) tokens[i] = i;
    chain *ch;
    assert_int_equal(chain_open(w->cache, w->spaces[0], &ch), 0);
    chain_carry(ch, l->state);
    l->chain = ch;
    for (size_t n = 0; n < 1280; n += CACHE_PAGE) {
        assert_int_equal(chain_reserve(ch, n + CACHE_PAGE), 0);
        chain_publish(ch, tokens + n, CACHE_PAGE);
    }
    memset(l->state, 7, sizeof l->state);
    chain_checkpoint(ch, CHECKPOINT_TRAIL);
    chain_close(&ch);
    for (long n = 0;; n++) {
        memset(l->state, 0, sizeof l->state);
        mem_fail_after(n);
        int rc = chain_open(w->cache, w->spaces[0], &ch);
        if (rc == 0) chain_carry(ch, l->state);
        size_t hit = rc == 0 ? chain_match(ch, tokens, 1300, SIZE_MAX) : 0;
        mem_fail_after(-1);
        assert_null(cache_check(w->cache));
        assert_true(hit == 0 || hit == 1280);
        assert_int_equal(((unsigned char *)l->state)[STATE - 1], hit ? 7 : 0);
        chain_close(&ch);
        if (hit) break;
        assert_true(rc == 0 || rc == ICP_ENOMEM);
    }
    assert_int_equal(chain_open(w->cache, w->spaces[0], &ch), 0);
    chain_carry(ch, l->state);
    assert_int_equal(chain_match(ch, tokens, 1300, SIZE_MAX), 1280);
    for (long n = 0;; n++) {
        chain *held = NULL;
        mem_fail_after(n);
        int rc = chain_open_on(ch, 700, INFINITY, &held);
        mem_fail_after(-1);
        assert_null(cache_check(w->cache));
        assert_true(rc == (held ? 0 : ICP_ENOMEM));
        chain_close(&held);
        if (rc == 0) break;
    }
    chain_close(&ch);
    end(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_of_pages),
        cmocka_unit_test(test_nothing_is_evicted),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
