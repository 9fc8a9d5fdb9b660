/* Sharing, wishes, walls between tenants, and the truth about all of it. Times are not measured:
 * what a tenant could measure is what is computed for it, and that is counted. */
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
#include "schedule.h"

static icp_usage usage_of(bed *b, icp_request_opts o) {
    result got = bed_run(b, &o);
    icp_usage u = got.usage;
    assert_int_equal(got.error, 0);
    assert_true(u.cached_tokens < u.prompt_tokens);
    assert_int_equal(u.why.n_missed, u.prompt_tokens - u.cached_tokens);
    assert_string_equal(u.miss, icp_miss_name(u.why.reason));
    result_fini(&got);
    return u;
}

static size_t cached(bed *b, icp_request_opts o) {
    return usage_of(b, o).cached_tokens;
}

static icp_usage why(bed *b, icp_request_opts o) {
    icp_usage u;
    assert_int_equal(engine_why(b->engine, &o, &u, NULL), 0);
    return u;
}

static icp_stats stats(bed *b) {
    icp_stats s;
    engine_get_stats(b->engine, &s);
    assert_int_equal(s.computed_tokens + s.cached_tokens, s.prompt_tokens);
    uint64_t missed = 0;
    for (int i = 0; i < ICP_N_MISSES; i++) missed += s.missed[i];
    assert_int_equal(missed, s.computed_tokens);
    return s;
}

/* ---- in flight --------------------------------------------------------------------------------
 */

static void test_herd(void **unused) {
    enum { N = 8, SHARED = 4000, TAIL = 50, LEN = SHARED + TAIL };
    bed b;
    bed_open(&b, (engine_opts){.cache_limit = 8 << 20});
    bed_run_herd(&b, N, SHARED, TAIL);
    assert_int_equal(fake_model_counts(b.model).tokens, SHARED + N * TAIL);
    bed_close(&b);
}

static void test_owner_fails(void **unused) {
    enum { LEN = 600 };
    bed b;
    int32_t prompt[LEN], bad[LEN];
    outcome want;
    bed_open(&b, (engine_opts){.chunk = 64});
    bed_prompt(prompt, LEN, 0, 1);
    memcpy(bad, prompt, sizeof bad);
    bad[LEN / 2] = 17; /* the logits after it are no numbers */
    fake_model_poison(b.model, 17);
    icp_logit_bias never = {17, -100};
    icp_request_opts o = bed_greedy(prompt, LEN, 5), p = bed_greedy(bad, LEN / 2 + 1, 5);
    o.bias = &never;
    o.n_bias = 1;
    bed_expect(&o, 0, &want);
    fake_model_stop(b.model);
    request *owner = bed_submit(&b, &p), *waiter = bed_submit(&b, &o);
    fake_model_go(b.model);
    result failed = bed_finish(&owner, 1), got = bed_finish(&waiter, 1);
    assert_int_equal(failed.error, ICP_EINVALID);
    bed_assert_same(&got.choice[0], &want);
    assert_true(fake_model_counts(b.model).tokens <= LEN + 1 + 4);
    result_fini(&failed);
    result_fini(&got);
    bed_close(&b);
}

/* The owner is driven out by somebody more urgent that needs all pages. */
static void test_owner_is_preempted(void **unused) {
    bed b;
    icp_stats s;
    bed_open(&b, (engine_opts){.cache_limit = BED_SMALL + 27000, .chunk = 32});
    engine_get_stats(b.engine, &s);
    size_t room = s.pages * CACHE_PAGE, n = room * 3 / 4;
    int32_t prompt[FAKE_CTX], urgent[FAKE_CTX];
    outcome want, want_urgent;
    bed_prompt(prompt, n, 0, 1);
    bed_prompt(urgent, n, 0, 2);
    icp_request_opts o = bed_greedy(prompt, n, 4), u = bed_greedy(urgent, n, 4);
    u.priority = -1;
    bed_expect(&o, 0, &want);
    bed_expect(&u, 0, &want_urgent);
    fake_model_stop(b.model);
    request *owner = bed_submit(&b, &o), *waiter = bed_submit(&b, &o);
    do engine_get_stats(b.engine, &s);
    while (s.waiting > 1); /* the owner is in its first step */
    request *first = bed_submit(&b, &u);
    fake_model_go(b.model);
    request *all[] = {owner, waiter, first};
    for (int i = 0; i < 3; i++) {
        result got = bed_finish(&all[i], 1);
        bed_assert_same(&got.choice[0], i < 2 ? &want : &want_urgent);
        result_fini(&got);
    }
    stats(&b);
    bed_close(&b);
}

/* ---- wishes -----------------------------------------------------------------------------------
 */

static void test_wishes(void **unused) {
    enum { LEN = 200 };
    bed b;
    int32_t prompt[LEN];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LEN, 3), brief = o, secret = o;
    secret.no_store = true;
    assert_int_equal(cached(&b, secret), 0);
    icp_usage u = usage_of(&b, secret);
    assert_int_equal(u.cached_tokens, 0);
    assert_int_equal(u.why.reason, ICP_MISS_UNSTORED);
    brief.ttl = 0.02;
    assert_int_equal(cached(&b, brief), 0);
    do u = why(&b, o);
    while (u.cached_tokens > 0); /* an idle engine forgets, too */
    assert_int_equal(u.why.reason, ICP_MISS_EXPIRED);
    assert_int_equal(cached(&b, o), 0);
    assert_int_equal(cached(&b, secret), LEN - 1);
    assert_int_equal(cached(&b, o), LEN - 1);
    o.session_end = true;
    assert_int_equal(cached(&b, o), LEN - 1);
    bed_close(&b);
}

static void flood(bed *b, const char *tenant, unsigned seed, unsigned n) {
    int32_t prompt[300];
    for (unsigned i = 0; i < n; i++) {
        bed_prompt(prompt, 300, 0, seed + i);
        icp_request_opts o = bed_greedy(prompt, 300, 1);
        o.tenant = tenant;
        cached(b, o);
    }
}

static void test_pins(void **unused) {
    bed b;
    bed_open(&b, (engine_opts){.cache_limit = BED_SMALL + 27000});
    size_t room = stats(&b).pages * CACHE_PAGE;
    int32_t prompt[FAKE_CTX];
    bed_prompt(prompt, room, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 150, 0), p = bed_greedy(prompt, 150, 1);
    o.pin = INFINITY;
    cached(&b, o);
    cached(&b, o); /* pinned once, however often that is wanted */
    assert_int_equal(stats(&b).pins, 1);
    assert_int_equal(stats(&b).pinned_pages, 3);
    flood(&b, "", 100, 30);
    assert_int_equal(cached(&b, p), 149);
    icp_request_opts big = bed_greedy(prompt, room - 1, 1); /* needs every page: the pin yields */
    big.salt = "other";
    cached(&b, big);
    assert_int_equal(stats(&b).pins_yielded, 1);
    assert_int_equal(stats(&b).pins, 0);
    o.pin = 0.01;
    cached(&b, o);
    while (stats(&b).pins > 0) sched_yield();
    o.pin = INFINITY;
    cached(&b, o);
    engine_drop(b.engine, "");
    icp_usage u = why(&b, p);
    assert_int_equal(u.cached_tokens, 0);
    assert_int_equal(u.why.reason, ICP_MISS_DROPPED);
    assert_int_equal(stats(&b).pages_free, stats(&b).pages);
    bed_close(&b);
}

static icp_request_opts marked(icp_request_opts o, const icp_mark *marks, size_t n) {
    o.marks = marks;
    o.n_marks = n;
    return o;
}

/* What is before a breakpoint stays for its time, and nothing behind it. */
static void test_breakpoints(void **unused) {
    static const icp_mark late = {130, 1000}, soon = {130, 0.01};
    bed b;
    bed_open(&b, (engine_opts){.cache_limit = BED_SMALL + 27000});
    size_t room = stats(&b).pages * CACHE_PAGE;
    int32_t prompt[FAKE_CTX];
    bed_prompt(prompt, room, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 300, 1), secret = marked(o, &late, 1);
    secret.no_store = true;
    cached(&b, secret);
    assert_int_equal(stats(&b).pins, 0);
    cached(&b, marked(o, &late, 1));
    cached(&b, marked(o, &late, 1)); /* held once, however often that is wanted */
    assert_int_equal(stats(&b).pins, 1);
    assert_int_equal(stats(&b).pinned_pages, 2);
    cached(&b, marked(o, &soon, 1)); /* held longer already */
    assert_int_equal(stats(&b).pins, 1);
    flood(&b, "", 100, 30);
    assert_int_equal(why(&b, o).cached_tokens, 128);
    icp_request_opts big = bed_greedy(prompt, room - 1, 1); /* needs every page */
    big.salt = "other";
    cached(&b, big);
    assert_int_equal(stats(&b).pins_yielded, 1);
    assert_int_equal(stats(&b).pins, 0);
    cached(&b, marked(o, &soon, 1));
    while (stats(&b).pins > 0) sched_yield();
    engine_drop(b.engine, "");
    cached(&b, marked(o, &late, 1));
    engine_drop(b.engine, "");
    assert_int_equal(why(&b, o).cached_tokens, 0);
    assert_int_equal(stats(&b).pages_free, stats(&b).pages);
    bed_close(&b);
}

/* A breakpoint's time is its own; a pin is more than any. */
static void test_breakpoints_and_other_wishes(void **unused) {
    static const icp_mark marks[] = {{70, 3000}, {140, 2000}, {210, 2500}};
    bed b;
    int32_t prompt[300];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, 300, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 300, 1), brief = marked(o, marks, 3);
    brief.ttl = 0.02;
    cached(&b, brief);
    assert_int_equal(stats(&b).pins, 2); /* what the last one covers needs no other */
    icp_usage u;
    do u = why(&b, o);
    while (u.cached_tokens > 192);
    assert_int_equal(u.cached_tokens, 192);
    assert_int_equal(u.why.reason, ICP_MISS_EXPIRED);
    icp_cache_list list;
    assert_int_equal(engine_list(b.engine, "", 10, &list), 0);
    assert_true(list.node[0].ttl_s > 2000 && list.node[0].ttl_s < 3001);
    mem_free(list.node);
    icp_request_opts pin = bed_greedy(prompt, 300, 0);
    pin.pin = 1; /* shorter than the breakpoints */
    cached(&b, pin);
    assert_int_equal(stats(&b).pins, 3);
    pin.pin = INFINITY; /* it takes the place of all */
    cached(&b, pin);
    assert_int_equal(stats(&b).pins, 1);
    cached(&b, marked(o, marks, 3));
    assert_int_equal(stats(&b).pins, 1);
    bed_close(&b);
}

/* They have half of the pages, or of a quota; the oldest go. */
static void hold_many(size_t quota) {
    enum { N = 40 };
    static const icp_mark mark = {200, 1000};
    bed b;
    int32_t prompt[300];
    bed_open(&b, (engine_opts){.cache_limit = BED_SMALL + (1 << 16), .tenant_quota = quota});
    size_t most = stats(&b).pages / 2;
    for (unsigned i = 0; i < N; i++) {
        bed_prompt(prompt, 300, 0, i);
        cached(&b, marked(bed_greedy(prompt, 300, 1), &mark, 1));
        assert_true(stats(&b).pinned_pages <= (quota ? MIN(most, quota / 2 / 512) : most));
    }
    assert_true(stats(&b).pins > 1);
    for (unsigned i = N - (unsigned)stats(&b).pins; i < N; i++) {
        bed_prompt(prompt, 300, 0, i);
        assert_true(why(&b, bed_greedy(prompt, 300, 1)).cached_tokens >= 192);
    }
    bed_close(&b);
}

static void test_breakpoints_have_a_share(void **unused) {
    hold_many(0);
    hold_many(30 * 512);
}

/* Nobody waits for pages that breakpoints hold, and nobody is preempted for them. */
static void test_breakpoints_give_way(void **unused) {
    static const icp_mark mark = {256, 1000};
    bed b;
    bed_open(&b, (engine_opts){.cache_limit = BED_SMALL + (1 << 16)});
    size_t pages = stats(&b).pages, n = (pages / 2 - 2) * CACHE_PAGE;
    int32_t prompt[FAKE_CTX];
    for (unsigned i = 0; i < 30; i++) {
        bed_prompt(prompt, 300, 0, i);
        cached(&b, marked(bed_greedy(prompt, 300, 1), &mark, 1));
    }
    assert_in_range(stats(&b).pinned_pages, pages / 2 - 4, pages / 2);
    fake_model_stop(b.model);
    request *r[2];
    for (unsigned i = 0; i < 2; i++) {
        bed_prompt(prompt, n, 0, 100 + i);
        icp_request_opts o = bed_greedy(prompt, n, 60);
        r[i] = bed_submit(&b, &o);
    }
    fake_model_go(b.model);
    for (int i = 0; i < 2; i++) {
        result got = bed_finish(&r[i], 1);
        assert_int_equal(got.error, 0);
        result_fini(&got);
    }
    assert_int_equal(stats(&b).preemptions, 0);
    assert_true(stats(&b).pins_yielded > 0);
    bed_close(&b);
}

/* ---- walls ------------------------------------------------------------------------------------
 */

/* What is computed for a prompt is the same whether another tenant has it cached, is computing it,
 * or never sent it. */
static void test_tenants_learn_nothing(void **unused) {
    enum { LEN = 300 };
    int32_t prompt[LEN];
    bed_prompt(prompt, LEN, 0, 1);
    for (int shared = 0; shared < 2; shared++) {
        size_t computed[3];
        for (int kind = 0; kind < 3; kind++) {
            bed b;
            bed_open(&b, (engine_opts){.tenant_quota = kind % 2 ? 100 * 512 : 0});
            if (shared) assert_int_equal(engine_share(b.engine, prompt, 150, NULL), 0);
            icp_request_opts mine = bed_greedy(prompt, LEN, 1), other = mine;
            mine.tenant = "me";
            other.tenant = "you";
            request *r = NULL;
            if (kind > 0) cached(&b, other);
            fake_model_counts(b.model);
            if (kind == 2) { /* at the same time */
                other.salt = "x";
                fake_model_stop(b.model);
                r = bed_submit(&b, &other);
            }
            request *m = bed_submit(&b, &mine);
            if (kind == 2) fake_model_go(b.model);
            result got = bed_finish(&m, 1);
            assert_int_equal(got.usage.cached_tokens, shared ? 128 : 0);
            assert_int_equal(got.usage.why.reason, ICP_MISS_NEW);
            result_fini(&got);
            if (r) {
                got = bed_finish(&r, 1);
                result_fini(&got);
            }
            computed[kind] = fake_model_counts(b.model).tokens;
            bed_close(&b);
        }
        assert_int_equal(computed[0], shared ? LEN - 128 : LEN);
        assert_int_equal(computed[1], computed[0]);
        assert_int_equal(computed[2], 2 * computed[0]);
    }
}

static void test_public_prefix(void **unused) {
    enum { LEN = 300, PUBLIC = 150 };
    bed b;
    int32_t prompt[LEN];
    outcome want;
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, 0, 1);
    assert_int_equal(engine_share(b.engine, prompt, CACHE_PAGE - 1, NULL), ICP_EINVALID);
    assert_int_equal(engine_share(b.engine, prompt, PUBLIC, NULL), 0);
    assert_int_equal(engine_share(b.engine, prompt, 70, NULL), 0);
    assert_int_equal(fake_model_counts(b.model).tokens, PUBLIC + 70);
    icp_request_opts o = bed_greedy(prompt, LEN, 4);
    bed_expect(&o, 0, &want);
    const char *const names[] = {"a", "b", ""};
    for (int i = 0; i < 3; i++) {
        o.tenant = names[i];
        result got = bed_run(&b, &o);
        bed_assert_same(&got.choice[0], &want);
        assert_int_equal(got.usage.cached_tokens, 128);
        result_fini(&got);
        assert_int_equal(cached(&b, o), LEN - 1);
    }
    icp_request_opts near = o;
    int32_t other[LEN];
    memcpy(other, prompt, sizeof other);
    other[100] = BED_WORDS + 40 == prompt[100] ? BED_WORDS + 41 : BED_WORDS + 40;
    near.prompt = other;
    icp_usage u = why(&b, near); /* the second one has a page of it, */
    assert_int_equal(u.cached_tokens, 64);
    assert_int_equal(u.why.reason, ICP_MISS_DIFFERENT); /* the first one more */
    assert_int_equal(u.why.position, 100);
    assert_int_equal(u.why.cached[0], prompt[100]);
    assert_int_equal(u.why.own[0], other[100]);
    near.max_hit = 100; /* less than a public page more: then its own namespace does */
    near.prompt = prompt;
    assert_true(cached(&b, near) <= 100);
    engine_drop(b.engine, "");
    o.tenant = "a";
    assert_int_equal(cached(&b, o), LEN - 1);
    stats(&b);
    bed_close(&b);
}

static void test_quotas(void **unused) {
    bed b;
    int32_t prompt[1000];
    icp_error err;
    request *r;
    bed_open(&b, (engine_opts){.tenant_quota = 10 * 512});
    bed_prompt(prompt, 1000, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 200, 1);
    o.tenant = "small";
    cached(&b, o);
    flood(&b, "greedy", 100, 30);
    assert_int_equal(cached(&b, o), 199);
    icp_cache_list list;
    assert_int_equal(engine_list(b.engine, "greedy", 100, &list), 0);
    assert_true(list.n_pages <= 10 && list.quota == 10);
    mem_free(list.node);
    o.n_prompt = 10 * CACHE_PAGE;
    assert_int_equal(engine_submit(b.engine, &o, &r, &err), ICP_ELIMIT);
    assert_string_equal(err.text, "the prompt has 640 tokens and the answer may have 1, a tenant's "
                                  "share of the cache has room for 640");
    bed_close(&b);
}

/* Two sequences of a tenant that want more than its share take turns; others go on. */
static void test_quota_preempts_its_own(void **unused) {
    enum { N = 6 };
    bed b;
    static int32_t prompt[N][300];
    static outcome want[N];
    request *r[N];
    bed_open(&b, (engine_opts){.tenant_quota = 8 * 512});
    fake_model_stop(b.model);
    for (unsigned i = 0; i < N; i++) {
        bed_prompt(prompt[i], 300, 0, i + 1);
        icp_request_opts o = bed_greedy(prompt[i], 200 + 10 * i, 150);
        o.tenant = i % 3 ? "a" : "b";
        bed_expect(&o, 0, &want[i]);
        r[i] = bed_submit(&b, &o);
    }
    fake_model_go(b.model);
    for (int i = 0; i < N; i++) {
        result got = bed_finish(&r[i], 1);
        assert_int_equal(got.error, 0);
        bed_assert_same(&got.choice[0], &want[i]);
        result_fini(&got);
    }
    stats(&b);
    bed_close(&b);
}

/* Whose prompt was done when: called by the engine's thread alone. */
typedef struct arrivals {
    int *place, n_done;
} arrivals;

typedef struct arrival {
    arrivals *all;
    int index;
} arrival;

static void note_arrival(void *arg, size_t position, const float *row, size_t n_vocab) {
    arrival *a = arg;
    a->all->place[a->index] = a->all->n_done++;
}

/* One that came late with little is not kept waiting by one that came early with much. */
static void test_tenants_take_turns(void **unused) {
    enum { MANY = 12, LEN = 1000 };
    static int32_t prompt[MANY + 1][LEN];
    bed b;
    request *r[MANY + 1];
    int place[MANY + 1];
    arrivals all = {.place = place};
    arrival each[MANY + 1];
    bed_open(&b, (engine_opts){.max_parallel = 1});
    fake_model_stop(b.model);
    for (unsigned i = 0; i <= MANY; i++) {
        bed_prompt(prompt[i], LEN, 0, i + 1);
        each[i] = (arrival){&all, (int)i};
        icp_request_opts o = bed_greedy(prompt[i], LEN, 1);
        o.tenant = i < MANY ? "busy" : "quiet";
        o.on_logits = note_arrival;
        o.on_logits_arg = &each[i];
        o.logits_from = LEN - 1;
        r[i] = bed_submit(&b, &o);
    }
    fake_model_go(b.model);
    for (int i = 0; i <= MANY; i++) {
        result got = bed_finish(&r[i], 1);
        result_fini(&got);
    }
    assert_int_equal(all.n_done, MANY + 1);
    /* The quiet one comes when the busy one may still have all of a quantum that it got alone, and
     * is passed once more when both get theirs, for then the oldest is first. Who has spent less
     * than two quanta may begin one more request: [P2] bounds by them, and by one request. */
    assert_true(place[MANY] <= 2 * SCHED_QUANTUM / LEN + 1);
    bed_close(&b);
}

/* ---- reasons ----------------------------------------------------------------------------------
 */

static void test_reasons(void **unused) {
    enum { LEN = 200 };
    bed b;
    int32_t prompt[LEN], other[LEN];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, 130, 1);
    bed_prompt(other, LEN, 130, 2);
    icp_request_opts o = bed_greedy(prompt, LEN, 1), p = bed_greedy(other, LEN, 1);
    assert_int_equal(usage_of(&b, o).why.reason, ICP_MISS_NEW);
    icp_usage asked = why(&b, p), got = usage_of(&b, p);
    assert_int_equal(asked.cached_tokens, got.cached_tokens);
    assert_int_equal(asked.why.reason, got.why.reason);
    assert_int_equal(got.why.reason, ICP_MISS_DIFFERENT);
    assert_int_equal(got.why.position, 130);
    assert_int_equal(got.why.n_own, ICP_MISS_TOKENS);
    assert_memory_equal(got.why.own, other + 130, sizeof got.why.own);
    assert_memory_equal(got.why.cached, prompt + 130, sizeof got.why.cached);
    o.salt = "s";
    o.no_store = true;
    assert_int_equal(usage_of(&b, o).why.reason, ICP_MISS_NEW); /* unless it is asked for, */
    o.salt = "t";
    o.no_store = false;
    o.diagnose = true;
    got = usage_of(&b, o);
    assert_int_equal(got.why.reason, ICP_MISS_NAMESPACE);
    assert_int_equal(got.why.elsewhere, LEN - 1);
    o.tenant = "other"; /* whose words are never known to others */
    assert_int_equal(usage_of(&b, o).why.reason, ICP_MISS_NEW);
    o.no_cache = true;
    assert_int_equal(usage_of(&b, o).why.reason, ICP_MISS_OFF);
    o.no_cache = false;
    assert_int_equal(usage_of(&b, o).why.reason, ICP_MISS_NONE);
    stats(&b);
    bed_close(&b);
    bed_open(&b, (engine_opts){.cache_limit = BED_SMALL + 27500});
    o = bed_greedy(prompt, LEN, 1);
    cached(&b, o);
    flood(&b, "", 100, 3);
    got = why(&b, o);
    assert_int_equal(got.why.reason, ICP_MISS_EVICTED);
    assert_in_range(got.why.lost_to, got.cached_tokens + 1, LEN);
    assert_true(got.why.ago >= 0);
    assert_in_range(got.why.pages_in_use, 1, got.why.pages);
    bed_close(&b);
}

static void test_list(void **unused) {
    bed b;
    int32_t prompt[300];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, 300, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 300, 10);
    o.tenant = "t";
    o.salt = "pepper";
    cached(&b, o);
    icp_cache_list list;
    assert_int_equal(engine_list(b.engine, "other", 10, &list), 0);
    assert_int_equal(list.n, 0);
    mem_free(list.node);
    assert_int_equal(engine_list(b.engine, "t", 10, &list), 0);
    assert_int_equal(list.n, 1);
    assert_int_equal(list.node[0].n_tokens, 309);
    assert_int_equal(list.node[0].n_sampled, 9);
    assert_string_equal(list.node[0].salt, "pepper");
    assert_memory_equal(list.node[0].first, prompt, sizeof list.node[0].first);
    assert_true(isinf(list.node[0].ttl_s) && !list.more);
    mem_free(list.node);
    o.salt = "";
    cached(&b, o);
    assert_int_equal(engine_list(b.engine, "t", 1, &list), 0);
    assert_true(list.n == 1 && list.more);
    mem_free(list.node);
    bed_close(&b);
}

/* ---- conversations ----------------------------------------------------------------------------
 */

/* The answer comes back as text, cut into bytes where it was sampled as words. */
static void test_conversation_cut_anew(void **unused) {
    enum { FIRST = 100, ANSWER = 40, MORE = 20 };
    bed b;
    int32_t prompt[FIRST + 8 * ANSWER + MORE], exact[FIRST + ANSWER + 8 + MORE];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, FIRST, 0, 1);
    icp_logit_bias bias[BED_WORDS];
    for (int i = 0; i < BED_WORDS; i++) bias[i] = (icp_logit_bias){i, -100}; /* words only */
    icp_request_opts o = bed_greedy(prompt, FIRST, ANSWER);
    o.bias = bias;
    o.n_bias = BED_WORDS;
    result first = bed_run(&b, &o);
    size_t n = FIRST, n_exact = FIRST;
    memcpy(exact, prompt, FIRST * sizeof *exact);
    for (int i = 0; i < ANSWER; i++) {
        int32_t token = exact[n_exact++] = first.choice[0].token[i];
        text_str bytes = tokenizer_bytes(b.tok, token);
        for (size_t k = 0; k < bytes.len; k++)
            prompt[n++] = BED_BYTES + (unsigned char)bytes.data[k];
    }
    bed_prompt(prompt + n, MORE, 0, 7);
    /* The last token was never read by the model: it stays as it came. */
    size_t last = tokenizer_bytes(b.tok, exact[--n_exact]).len;
    memcpy(exact + n_exact, prompt + n - last, (last + MORE) * sizeof *exact);
    n_exact += last;
    icp_request_opts next = bed_greedy(prompt, n + MORE, 10), want = next;
    want.prompt = exact;
    want.n_prompt = n_exact + MORE;
    outcome expected;
    bed_expect(&want, 0, &expected);
    icp_usage u = why(&b, next); /* sent as tokens: they are meant */
    assert_int_equal(u.cached_tokens, FIRST);
    assert_int_equal(u.respelled, 0);
    next.from_text = true;
    result got = bed_run(&b, &next);
    bed_assert_same(&got.choice[0], &expected);
    assert_int_equal(got.usage.cached_tokens, FIRST + ANSWER - 1);
    assert_int_equal(got.usage.prompt_tokens, n_exact + MORE);
    result_fini(&got);
    result_fini(&first);
    bed_close(&b);
}

/* ---- memory -----------------------------------------------------------------------------------
 */

static void test_requests_are_counted(void **unused) {
    enum { N = 200, LEN = 2000 };
    bed b;
    static int32_t prompt[FAKE_CTX];
    request *r[N];
    icp_error err;
    int n = 0, rc;
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, FAKE_CTX, 0, 1);
    icp_stats s = stats(&b);
    assert_int_equal(s.requests_size, 0);
    assert_true(s.fixed + s.requests_limit + s.metadata + s.pages * s.page_size <= s.limit);
    assert_int_equal(s.limit, 4 << 20);
    icp_request_opts o = bed_greedy(prompt, LEN, 1);
    fake_model_stop(b.model);
    while (n < N && (rc = engine_submit(b.engine, &o, &r[n], &err)) == 0) n++;
    assert_in_range(n, 5, N - 1);
    assert_int_equal(rc, ICP_EAGAIN);
    assert_non_null(strstr(err.text, "use all of the 196608 bytes"));
    engine_get_stats(b.engine, &s);
    assert_in_range(s.requests_size, n * LEN * sizeof(int32_t), s.requests_limit);
    fake_model_go(b.model);
    for (int i = 0; i < n; i++) {
        result got = bed_finish(&r[i], 1);
        assert_true(got.error == 0 || got.error == ICP_EAGAIN);
        result_fini(&got);
    }
    do engine_get_stats(b.engine, &s);
    while (s.requests_size > 1024); /* what stays is the tenant's record */
    bed_close(&b);
}

/* Runs o with the scales and checks what of the prompt was cached; the tokens are those that come
 * without a cache. */
static void run_adapted(bed *b, icp_request_opts o, const float *scales, size_t n, size_t want) {
    o.adapter_scales = scales;
    o.n_adapter_scales = n;
    result got = bed_run(b, &o);
    assert_int_equal(got.usage.cached_tokens, want);
    o.no_cache = true;
    result plain = bed_run(b, &o);
    assert_int_equal(got.choice->n, plain.choice->n);
    assert_memory_equal(got.choice->token, plain.choice->token,
                        (size_t)plain.choice->n * sizeof *plain.choice->token);
    result_fini(&got);
    result_fini(&plain);
}

/* What one set of adapters computed is nothing for another. */
static void test_adapters(void **state) {
    enum { LEN = 200 };
    static const float sets[][2] = {{0, 0}, {1, 0}, {0.5f, 0}, {0, 1}, {1, 1}, {-1, 0}};
    bed b;
    icp_error err;
    request *r;
    int32_t prompt[LEN];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, LEN, 1);
    assert_int_equal(engine_share(b.engine, prompt, LEN, &err), 0);
    size_t shared = LEN / CACHE_PAGE * CACHE_PAGE;
    icp_request_opts o = bed_greedy(prompt, LEN, 9);
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        run_adapted(&b, o, sets[i], 2, i ? 0 : MIN(shared, LEN - 1));
    for (size_t i = 0; i < COUNT_OF(sets); i++) run_adapted(&b, o, sets[i], 2, LEN - 1);
    run_adapted(&b, o, NULL, 0, LEN - 1);
    run_adapted(&b, o, sets[1], 1, LEN - 1); /* those that are not listed count 0 */
    bed_prompt(prompt, LEN, 0, 2);
    o.diagnose = true;
    assert_int_equal(usage_of(&b, o).why.reason, ICP_MISS_NEW);
    o.adapter_scales = sets[3];
    o.n_adapter_scales = 2;
    icp_usage got = why(&b, o);
    assert_int_equal(got.why.reason, ICP_MISS_ADAPTERS);
    assert_int_equal(got.why.elsewhere, LEN - 1);
    o.n_adapter_scales = 3;
    assert_int_equal(engine_submit(b.engine, &o, &r, &err), ICP_EINVALID);
    assert_non_null(strstr(err.text, "scales of 3 adapters; the model has 2"));
    o.adapter_scales = (float[]){NAN};
    o.n_adapter_scales = 1;
    assert_int_equal(engine_submit(b.engine, &o, &r, &err), ICP_EINVALID);
    bed_close(&b);
    bed_open(&b, (engine_opts){.adapter_scales = sets[1]});
    assert_int_equal(engine_share(b.engine, prompt, LEN, &err), 0); /* computed with them */
    o = bed_greedy(prompt, LEN, 9);
    run_adapted(&b, o, NULL, 0, MIN(shared, LEN - 1));
    run_adapted(&b, o, sets[1], 2, LEN - 1);
    run_adapted(&b, o, sets[0], 2, 0);
    bed_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_herd),
                                       cmocka_unit_test(test_owner_fails),
                                       cmocka_unit_test(test_owner_is_preempted),
                                       cmocka_unit_test(test_wishes),
                                       cmocka_unit_test(test_pins),
                                       cmocka_unit_test(test_breakpoints),
                                       cmocka_unit_test(test_breakpoints_and_other_wishes),
                                       cmocka_unit_test(test_breakpoints_have_a_share),
                                       cmocka_unit_test(test_breakpoints_give_way),
                                       cmocka_unit_test(test_tenants_learn_nothing),
                                       cmocka_unit_test(test_public_prefix),
                                       cmocka_unit_test(test_quotas),
                                       cmocka_unit_test(test_quota_preempts_its_own),
                                       cmocka_unit_test(test_tenants_take_turns),
                                       cmocka_unit_test(test_reasons),
                                       cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_conversation_cut_anew),
                                       cmocka_unit_test(test_requests_are_counted),
                                       cmocka_unit_test(test_adapters)};
    return cmocka_run_group_tests_name("truth", tests, NULL, NULL);
}
