/* The engine on the real cache and tokenizer: whatever happens around a request, it gives the
 * tokens that the model's logits and the sampler give by themselves. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bed.h"

enum { TINY = BED_SMALL + 27000 }; /* about a dozen pages of the fake model */

static size_t n_pages(bed *b) {
    icp_stats s;
    engine_get_stats(b->engine, &s);
    return s.pages;
}

/* ---- exact ----------------------------------------------------------------------------------- */

enum { CROWD = 12 };

typedef struct crowd { /* requests of all kinds that share prefixes */
    int32_t prompt[CROWD][400];
    icp_request_opts opts[CROWD];
    outcome want[CROWD][2];
} crowd;

static void make_crowd(crowd *c) {
    for (int i = 0; i < CROWD; i++) {
        size_t n = 1 + (size_t)(i * 97) % 390;
        bed_prompt(c->prompt[i], n, (size_t)(i % 4) * 70, (unsigned)i);
        icp_request_opts o = bed_greedy(c->prompt[i], n, 1 + (i * 37) % 150);
        o.n = 1 + i % 2;
        o.seed = (uint64_t)i;
        o.temperature = i % 3 ? 1.1f : 0;
        o.top_p = i % 4 ? 0.9f : 1;
        o.ignore_eos = i % 5 != 0;
        o.repetition_penalty = i % 6 ? 1 : 1.3f;
        o.priority = i % 3;
        c->opts[i] = o;
        for (int k = 0; k < o.n; k++) bed_expect(&c->opts[i], k, &c->want[i][k]);
    }
}

static void run_crowd(bed *b, crowd *c) {
    request *r[CROWD];
    for (int i = 0; i < CROWD; i++) r[i] = bed_submit(b, &c->opts[i]);
    for (int i = 0; i < CROWD; i++) {
        result got = bed_finish(&r[i], c->opts[i].n);
        assert_int_equal(got.error, 0);
        for (int k = 0; k < got.n; k++) bed_assert_same(&got.choice[k], &c->want[i][k]);
        result_fini(&got);
    }
}

static void test_same_in_any_company(void **unused) {
    static crowd c;
    make_crowd(&c);
    static const engine_opts kinds[] = {{0},
                                        {.no_cache = true},
                                        {.max_parallel = 1},
                                        {.max_parallel = 3},
                                        {.chunk = 1},
                                        {.chunk = 7},
                                        {.chunk = 1, .max_parallel = 3, .max_pause = 1e-9},
                                        {.chunk = 64},
                                        {.cache_limit = TINY},
                                        {.cache_limit = TINY, .chunk = 16},
                                        {.cache_limit = TINY, .no_cache = true}};
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        bed b;
        icp_stats s;
        bed_open(&b, kinds[i]);
        for (int round = 0; round < 2; round++) run_crowd(&b, &c); /* cold, then warm */
        engine_get_stats(b.engine, &s);
        assert_int_equal(s.computed_tokens + s.cached_tokens, s.prompt_tokens);
        assert_int_equal(s.finished_stop + s.finished_length, 2 * CROWD);
        assert_int_equal(s.requests, 2 * CROWD);
        assert_int_equal(s.pages_used, 0);
        if (kinds[i].cache_limit) assert_true(s.preemptions > 0);
        bed_close(&b);
    }
}

static void test_alone_equals_crowd(void **unused) {
    static crowd c;
    bed b;
    make_crowd(&c);
    bed_open(&b, (engine_opts){0});
    for (int i = 0; i < CROWD; i++) {
        result got = bed_run(&b, &c.opts[i]);
        for (int k = 0; k < got.n; k++) bed_assert_same(&got.choice[k], &c.want[i][k]);
        result_fini(&got);
    }
    bed_close(&b);
}

static void test_cancelling_disturbs_nobody(void **unused) {
    static crowd c;
    make_crowd(&c);
    for (int kind = 0; kind < 2; kind++) {
        bed b;
        bed_open(&b, (engine_opts){.cache_limit = kind ? TINY : 0, .max_parallel = 5});
        for (int round = 0; round < 20; round++) {
            request *r[CROWD];
            for (int i = 0; i < CROWD; i++) r[i] = bed_submit(&b, &c.opts[i]);
            for (int i = 0; i < CROWD; i++) {
                if ((i + round) % 3 == 1) {
                    request_free(&r[i]);
                    continue;
                }
                if ((i + round) % 3 == 2) request_cancel(r[i]);
                result got = bed_finish(&r[i], c.opts[i].n);
                for (int k = 0; k < got.n; k++) {
                    const outcome *o = &got.choice[k], *want = &c.want[i][k];
                    assert_memory_equal(o->token, want->token, (size_t)o->n * sizeof(int32_t));
                    if (o->finish != ICP_FINISH_CANCELLED) assert_int_equal(o->n, want->n);
                    if ((i + round) % 3 == 0) assert_int_equal(o->n, want->n);
                }
                result_fini(&got);
            }
        }
        bed_close(&b);
    }
}

/* ---- sharing ----------------------------------------------------------------------------------
 */

static void test_identical_prompts_compute_once(void **unused) {
    enum { N = 8, LEN = 300 };
    static const int chunks[] = {0, 1, 7, 64};
    for (size_t k = 0; k < COUNT_OF(chunks); k++) {
        bed b;
        int32_t prompt[LEN];
        request *r[N];
        bed_open(&b, (engine_opts){.chunk = chunks[k]});
        bed_prompt(prompt, LEN, 0, 1);
        icp_request_opts o = bed_greedy(prompt, LEN, 1);
        fake_model_stop(b.model);
        for (int i = 0; i < N; i++) r[i] = bed_submit(&b, &o);
        fake_model_go(b.model);
        size_t cached = 0;
        for (int i = 0; i < N; i++) {
            result got = bed_finish(&r[i], 1);
            cached += got.usage.cached_tokens;
            result_fini(&got);
        }
        assert_int_equal(fake_model_counts(b.model).tokens, LEN + N - 1);
        assert_int_equal(cached, (N - 1) * (LEN - 1));
        bed_close(&b);
    }
}

static void test_owner_leaves_waiters_go_on(void **unused) {
    enum { LEN = 1000 };
    bed b;
    int32_t prompt[LEN];
    outcome want;
    bed_open(&b, (engine_opts){.chunk = 64});
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LEN, 10);
    bed_expect(&o, 0, &want);
    fake_model_stop(b.model);
    request *owner = bed_submit(&b, &o), *waiter = bed_submit(&b, &o);
    request_free(&owner);
    fake_model_go(b.model);
    result got = bed_finish(&waiter, 1);
    bed_assert_same(&got.choice[0], &want);
    assert_true(fake_model_counts(b.model).tokens <= LEN + 10 + 64);
    result_fini(&got);
    bed_close(&b);
}

static void test_completions_share_their_prompt(void **unused) {
    enum { N = 20, LEN = 333 };
    bed b;
    int32_t prompt[LEN];
    bed_open(&b, (engine_opts){.max_parallel = 4});
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LEN, 5);
    o.n = N;
    o.temperature = 1;
    result got = bed_run(&b, &o);
    for (int i = 0; i < N; i++) {
        outcome want;
        bed_expect(&o, i, &want);
        bed_assert_same(&got.choice[i], &want);
    }
    assert_true(fake_model_counts(b.model).tokens <= LEN + N - 1 + N * 4);
    assert_int_equal(got.usage.prompt_tokens, LEN);
    assert_int_equal(got.usage.cached_tokens, 0);
    result_fini(&got);
    bed_close(&b);
}

static void test_conversation_goes_on(void **unused) {
    enum { FIRST = 100, ANSWER = 30, NEXT = 10 };
    bed b;
    int32_t prompt[FIRST + ANSWER + NEXT];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, COUNT_OF(prompt), 0, 1);
    icp_request_opts o = bed_greedy(prompt, FIRST, ANSWER);
    result first = bed_run(&b, &o);
    assert_int_equal(first.usage.why.reason, ICP_MISS_NEW);
    memcpy(prompt + FIRST, first.choice[0].token, ANSWER * sizeof *prompt);
    o.n_prompt = COUNT_OF(prompt);
    result second = bed_run(&b, &o);
    assert_int_equal(second.usage.cached_tokens, FIRST + ANSWER - 1); /* the last was never input */
    assert_int_equal(second.usage.why.reason, ICP_MISS_NEW);
    assert_int_equal(second.usage.why.position, FIRST + ANSWER - 1);
    result third = bed_run(&b, &o);
    assert_int_equal(third.usage.cached_tokens, COUNT_OF(prompt) - 1);
    assert_int_equal(third.usage.why.reason, ICP_MISS_NONE);
    bed_assert_same(&second.choice[0], &third.choice[0]);
    result_fini(&first);
    result_fini(&second);
    result_fini(&third);
    bed_close(&b);
}

static size_t cached_with(bed *b, icp_request_opts o) {
    result got = bed_run(b, &o);
    size_t n = got.usage.cached_tokens;
    result_fini(&got);
    return n;
}

static void test_namespaces_and_wishes(void **unused) {
    enum { LEN = 200 };
    bed b;
    int32_t prompt[LEN];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LEN, 1), other = o;
    other.no_cache = true;
    assert_int_equal(cached_with(&b, other), 0);
    assert_int_equal(cached_with(&b, other), 0); /* it left nothing, */
    assert_int_equal(cached_with(&b, o), 0);     /* for nobody */
    assert_int_equal(cached_with(&b, o), LEN - 1);
    assert_int_equal(cached_with(&b, other), 0);
    other = o;
    other.tenant = "a";
    other.salt = "bc";
    assert_int_equal(cached_with(&b, other), 0);
    assert_int_equal(cached_with(&b, other), LEN - 1);
    other.tenant = "ab";
    other.salt = "c";
    assert_int_equal(cached_with(&b, other), 0);
    other = o;
    other.max_hit = 77;
    result got = bed_run(&b, &other);
    assert_int_equal(got.usage.cached_tokens, 77);
    assert_int_equal(got.usage.why.reason, ICP_MISS_LIMITED);
    result_fini(&got);
    bed_close(&b);
}

/* ---- fair -------------------------------------------------------------------------------------
 */

static void test_decoding_never_waits_for_a_prompt(void **unused) {
    enum { LEN = 2000 };
    bed b;
    int32_t prompt[LEN], small[2] = {BED_WORDS, BED_WORDS + 1};
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(small, 2, 100), big = bed_greedy(prompt, LEN, 1);
    fake_model_stop(b.model);
    request *decoder = bed_submit(&b, &o), *prefill = bed_submit(&b, &big);
    fake_model_go(b.model);
    result got = bed_finish(&prefill, 1);
    fake_counts counts = fake_model_counts(b.model);
    assert_true(counts.mixed >= (LEN - 512) / 512); /* the first chunk may have the step alone */
    assert_true(counts.most_tokens <= 512 + 1);
    result_fini(&got);
    request_free(&decoder);
    bed_close(&b);
}

static void test_priority(void **unused) {
    bed b;
    int32_t prompt[10];
    request *r[3];
    double waited[3];
    bed_open(&b, (engine_opts){.max_parallel = 1});
    bed_prompt(prompt, 10, 0, 1);
    fake_model_stop(b.model);
    for (int i = 0; i < 3; i++) {
        icp_request_opts o = bed_greedy(prompt, 10, 20);
        o.priority = i == 2 ? -1 : 0;
        r[i] = bed_submit(&b, &o);
    }
    fake_model_go(b.model);
    for (int i = 0; i < 3; i++) {
        result got = bed_finish(&r[i], 1);
        waited[i] = got.usage.total_s;
        result_fini(&got);
    }
    assert_true(waited[2] < waited[1]); /* submitted after it, done before it */
    bed_close(&b);
}

static void test_queue_is_bounded(void **unused) {
    bed b;
    int32_t prompt[10];
    request *r[4], *refused = NULL;
    icp_error err = {0};
    icp_stats s;
    bed_open(&b, (engine_opts){.max_parallel = 1, .max_queued = 3});
    bed_prompt(prompt, 10, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 10, 5);
    fake_model_stop(b.model);
    r[0] = bed_submit(&b, &o);
    do engine_get_stats(b.engine, &s);
    while (s.waiting > 0); /* it is running then */
    for (int i = 1; i < 4; i++) r[i] = bed_submit(&b, &o);
    assert_int_equal(engine_submit(b.engine, &o, &refused, &err), ICP_EAGAIN);
    assert_null(refused);
    assert_string_equal(err.text, "3 requests are waiting already");
    request_cancel(r[2]);
    fake_model_go(b.model);
    for (int i = 0; i < 4; i++) {
        result got = bed_finish(&r[i], 1);
        assert_int_equal(got.choice[0].finish, i == 2 ? ICP_FINISH_CANCELLED : ICP_FINISH_LENGTH);
        result_fini(&got);
    }
    engine_get_stats(b.engine, &s);
    assert_int_equal(s.waiting, 0);
    assert_int_equal(s.cancelled, 1);
    bed_close(&b);
}

/* ---- ends -------------------------------------------------------------------------------------
 */

static void test_stop_strings(void **unused) {
    bed b;
    int32_t prompt[50];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, 50, 0, 1);
    icp_logit_bias no_nul = {BED_BYTES, -100};
    icp_request_opts o = bed_greedy(prompt, 50, 100);
    o.bias = &no_nul;
    o.n_bias = 1;
    result whole = bed_run(&b, &o);
    const char *text = whole.choice[0].text.data;
    size_t len = strlen(text);
    assert_true(len > 60);
    for (size_t at = 5; at + 7 < len; at += 3) {
        char stop[8] = {0};
        memcpy(stop, text + at, 1 + at % 7);
        if (utf8_complete(stop, strlen(stop)) != strlen(stop) || (stop[0] & 0xC0) == 0x80) continue;
        const char *list[] = {"never to be found", stop};
        o.stop = list;
        o.n_stop = 2;
        size_t want = (size_t)(strstr(text, stop) - text);
        for (int include = 0; include < 2; include++) {
            o.include_stop = include;
            result got = bed_run(&b, &o);
            const outcome *c = &got.choice[0];
            assert_int_equal(c->finish, ICP_FINISH_STOP_STRING);
            assert_int_equal(c->stop_index, 1);
            assert_int_equal(c->text.len, want + (include ? strlen(stop) : 0));
            assert_memory_equal(c->text.data, text, c->text.len);
            result_fini(&got);
        }
    }
    result_fini(&whole);
    bed_close(&b);
}

static void test_ends(void **unused) {
    bed b;
    int32_t prompt[50];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, 50, 0, 1);
    icp_logit_bias love = {BED_EOS, 1000};
    icp_request_opts o = bed_greedy(prompt, 50, 20);
    o.bias = &love;
    o.n_bias = 1;
    result got = bed_run(&b, &o); /* ignored: it goes on, and prints nothing */
    assert_int_equal(got.choice[0].n, 20);
    assert_int_equal(got.choice[0].finish, ICP_FINISH_LENGTH);
    assert_int_equal(got.choice[0].text.len, 0);
    result_fini(&got);
    o.ignore_eos = false;
    got = bed_run(&b, &o);
    assert_int_equal(got.choice[0].n, 1);
    assert_int_equal(got.choice[0].finish, ICP_FINISH_STOP);
    result_fini(&got);
    o.min_tokens = 5;
    got = bed_run(&b, &o);
    assert_int_equal(got.choice[0].n, 6);
    for (int i = 0; i < 5; i++) assert_int_not_equal(got.choice[0].token[i], BED_EOS);
    int32_t fourth = got.choice[0].token[4];
    result_fini(&got);
    o.stop_tokens = &fourth;
    o.n_stop_tokens = 1;
    o.n_bias = 0;
    o.min_tokens = 0;
    o.ignore_eos = true;
    result plain = bed_run(&b, &o);
    assert_true(plain.choice[0].finish == ICP_FINISH_LENGTH ||
                plain.choice[0].token[plain.choice[0].n - 1] == fourth);
    result_fini(&plain);
    bed_close(&b);
}

static void test_until_the_context_is_full(void **unused) {
    bed b;
    static int32_t prompt[FAKE_CTX];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, FAKE_CTX, 0, 1);
    icp_request_opts o = bed_greedy(prompt, FAKE_CTX - 20, -1);
    result got = bed_run(&b, &o);
    assert_int_equal(got.choice[0].n, 20);
    assert_int_equal(got.choice[0].finish, ICP_FINISH_LENGTH);
    result_fini(&got);
    bed_close(&b);
    bed_open(&b, (engine_opts){.cache_limit = TINY}); /* here the cache is the limit */
    size_t room = n_pages(&b) * CACHE_PAGE;
    assert_in_range(room, 10 * CACHE_PAGE, 2000);
    o.n_prompt = room - 33;
    got = bed_run(&b, &o);
    assert_int_equal(got.choice[0].n, 33);
    result_fini(&got);
    bed_close(&b);
}

static void test_only_the_prompt(void **unused) {
    bed b;
    int32_t prompt[100];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, 100, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 100, 0);
    result got = bed_run(&b, &o);
    assert_int_equal(got.choice[0].n, 0);
    assert_int_equal(got.choice[0].finish, ICP_FINISH_LENGTH);
    result_fini(&got);
    o.max_tokens = 1;
    assert_int_equal(cached_with(&b, o), 99);
    bed_close(&b);
}

/* ---- logits of the prompt ----------------------------------------------------------------------
 */

typedef struct rows {
    const int32_t *prompt;
    size_t next;
} rows;

static void check_row(void *arg, size_t position, const float *row, size_t n_vocab) {
    rows *r = arg;
    float want[FAKE_VOCAB];
    assert_int_equal(position, r->next++);
    assert_int_equal(n_vocab, FAKE_VOCAB);
    fake_logits(r->prompt, position + 1, want);
    assert_memory_equal(row, want, sizeof want);
}

static void test_prompt_logits(void **unused) {
    enum { LEN = 700 };
    static const int chunks[] = {0, 5, 64};
    int32_t prompt[LEN];
    bed_prompt(prompt, LEN, 0, 1);
    for (size_t k = 0; k < COUNT_OF(chunks); k++) {
        bed b;
        bed_open(&b, (engine_opts){.chunk = chunks[k]});
        for (size_t from = 0; from < LEN; from += 233) {
            rows r = {prompt, from};
            icp_request_opts o = bed_greedy(prompt, LEN, 2);
            o.on_logits = check_row;
            o.on_logits_arg = &r;
            o.logits_from = from;
            result got = bed_run(&b, &o);
            assert_int_equal(r.next, LEN);
            assert_int_equal(got.usage.cached_tokens, from);
            result_fini(&got);
        }
        bed_close(&b);
    }
}

static void test_prompt_logprobs(void **unused) {
    enum { LEN = 150 };
    bed b;
    int32_t prompt[LEN];
    icp_event e = {.kind = ICP_EVENT_TOKEN};
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, LEN, 0, 1);
    icp_request_opts o = bed_greedy(prompt, LEN, 1);
    o.prompt_logprobs = true;
    o.logprobs = 3;
    request *r = bed_submit(&b, &o);
    for (size_t next = 1; e.kind != ICP_EVENT_DONE;) {
        assert_true(request_wait(r, -1) && request_next(r, &e));
        if (e.kind != ICP_EVENT_PROMPT) continue;
        float row[FAKE_VOCAB];
        int above = 0;
        fake_logits(prompt, next, row);
        assert_int_equal(e.position, next);
        assert_int_equal(e.token, prompt[next]);
        assert_int_equal(e.n_top, 3);
        for (int i = 0; i < FAKE_VOCAB; i++) above += row[i] > row[e.top[2].token];
        assert_int_equal(above, 2);
        float gap = row[e.top[0].token] - row[prompt[next]];
        assert_float_equal(e.top[0].logprob - e.chosen.logprob, gap, 1e-4f);
        size_t rank = 1;
        for (int i = 0; i < FAKE_VOCAB; i++) rank += row[i] > row[prompt[next]];
        assert_int_equal(e.rank, rank);
        next++;
        if (next == LEN) o.n_prompt = 0; /* all were seen */
    }
    assert_int_equal(o.n_prompt, 0);
    request_free(&r);
    bed_close(&b);
}

/* ---- trouble -----------------------------------------------------------------------------------
 */

static void refuse(bed *b, const icp_request_opts *o, int code, const char *sentence) {
    icp_error err = {0};
    request *r = NULL;
    assert_int_equal(engine_submit(b->engine, o, &r, &err), code);
    assert_null(r);
    assert_string_equal(err.text, sentence);
}

static void test_refusals(void **unused) {
    bed b;
    static int32_t prompt[FAKE_CTX + 1];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, FAKE_CTX + 1, 0, 1);
    icp_request_opts good = bed_greedy(prompt, 10, 5), o = good;
    o.n_prompt = 0;
    refuse(&b, &o, ICP_EINVALID, "the prompt is empty");
    o = good, o.n_prompt = FAKE_CTX + 1, o.max_tokens = 0;
    refuse(&b, &o, ICP_ELIMIT, "the prompt has 8193 tokens, the context 8192");
    o = good, o.n_prompt = FAKE_CTX, o.max_tokens = -1;
    refuse(&b, &o, ICP_ELIMIT,
           "the prompt has 8192 tokens, the context 8192 and the answer needs one");
    o = good, o.max_tokens = FAKE_CTX;
    refuse(&b, &o, ICP_ELIMIT,
           "the prompt has 10 tokens and the answer may have 8192, the context 8192");
    o = good, o.temperature = __builtin_nanf("");
    refuse(&b, &o, ICP_EINVALID, "temperature is nan; it must be 0 to 100");
    o = good, o.n = ICP_MAX_N + 1;
    refuse(&b, &o, ICP_EINVALID, "n is 129; it must be 1 to 128");
    o = good, o.max_tokens = -2;
    refuse(&b, &o, ICP_EINVALID, "max_tokens is -2; it must be -1 to 2147483647");
    int32_t bad[] = {5, FAKE_VOCAB};
    o = good, o.prompt = bad, o.n_prompt = 2;
    refuse(&b, &o, ICP_EINVALID, "prompt token 1 is 300; the vocabulary has 0 to 299");
    const char *empty[] = {""}, *broken[] = {"\xC3("};
    o = good, o.stop = empty, o.n_stop = 1;
    refuse(&b, &o, ICP_EINVALID, "stop string 0 is empty");
    o.stop = broken;
    refuse(&b, &o, ICP_EINVALID, "stop string 0 is not valid UTF-8");
    bed_close(&b);
    bed_open(&b, (engine_opts){.cache_limit = TINY});
    o = good, o.n_prompt = n_pages(&b) * CACHE_PAGE;
    icp_error err;
    request *r;
    assert_int_equal(engine_submit(b.engine, &o, &r, &err), ICP_ELIMIT);
    assert_non_null(strstr(err.text, "the cache has room for"));
    bed_close(&b);
}

static void test_not_a_number(void **unused) {
    bed b;
    int32_t prompt[40], bad[40];
    outcome want;
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, 40, 0, 1);
    bed_prompt(bad, 40, 0, 1);
    bad[39] = 17; /* a byte: no other prompt has it */
    fake_model_poison(b.model, 17);
    icp_logit_bias never = {17, -100};
    icp_request_opts o = bed_greedy(prompt, 40, 60), p = bed_greedy(bad, 40, 10);
    o.bias = &never;
    o.n_bias = 1;
    bed_expect(&o, 0, &want);
    request *r = bed_submit(&b, &o), *s = bed_submit(&b, &p);
    result broken = bed_finish(&s, 1), whole = bed_finish(&r, 1);
    assert_int_equal(broken.error, ICP_EINVALID);
    assert_int_equal(whole.error, 0);
    bed_assert_same(&whole.choice[0], &want);
    result_fini(&broken);
    result_fini(&whole);
    bed_close(&b);
}

static void test_failing_allocations(void **unused) {
    bed b;
    int32_t prompt[10];
    bed_open(&b, (engine_opts){0});
    bed_prompt(prompt, 10, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 10, 3);
    static const char *const stop[] = {"abc", "def"};
    o.stop = stop;
    o.n_stop = 2;
    for (long n = 0;; n++) {
        icp_error err = {0};
        request *r = NULL;
        mem_fail_after(n);
        int rc = engine_submit(b.engine, &o, &r, &err);
        mem_fail_after(-1);
        if (rc == 0) {
            result got = bed_finish(&r, 1);
            result_fini(&got);
            assert_true(n > 0);
            break;
        }
        assert_int_equal(rc, ICP_ENOMEM);
    }
    bed_open_starving(&b, 4 << 20);
    bed_close(&b);
}

static void feed(void *fed) {
    mem_fail_after(-1);
    atomic_store((atomic_bool *)fed, true);
}

/* Whatever the engine's thread cannot allocate fails a request, and nothing else. */
static void test_starving_thread(void **unused) {
    static crowd c;
    make_crowd(&c);
    bed b;
    bed_open(&b, (engine_opts){.cache_limit = TINY});
    for (long n = 0; n < 120; n += 1 + n / 8) {
        request *r[CROWD];
        fake_model_stop(b.model);
        fake_model_starve(b.model, n);
        for (int i = 0; i < CROWD; i++) r[i] = bed_submit(&b, &c.opts[i]);
        fake_model_go(b.model);
        for (int i = 0; i < CROWD; i++) {
            result got = bed_finish(&r[i], c.opts[i].n);
            assert_true(got.error == 0 || got.error == ICP_ENOMEM);
            for (int k = 0; k < got.n; k++) {
                const outcome *o = &got.choice[k], *want = &c.want[i][k];
                assert_memory_equal(o->token, want->token, (size_t)o->n * sizeof(int32_t));
                if (!got.error) assert_int_equal(o->n, want->n);
            }
            result_fini(&got);
        }
        atomic_bool fed = false;
        icp_request_opts o = c.opts[1]; /* may fail as well, but its callback ends the famine */
        o.wake = feed;
        o.wake_arg = &fed;
        request *last = bed_submit(&b, &o);
        while (!atomic_load(&fed)) sched_yield();
        result got = bed_finish(&last, o.n);
        result_fini(&got);
    }
    run_crowd(&b, &c);
    bed_close(&b);
}

static void test_closing_ends_what_runs(void **unused) {
    bed b;
    int32_t prompt[10];
    icp_event e;
    bed_open(&b, (engine_opts){.max_parallel = 2});
    bed_prompt(prompt, 10, 0, 1);
    icp_request_opts o = bed_greedy(prompt, 10, -1);
    request *r[5];
    for (int i = 0; i < 5; i++) r[i] = bed_submit(&b, &o);
    assert_true(request_wait(r[0], -1));
    engine_close(&b.engine);
    for (int i = 0; i < 5; i++) {
        do assert_true(request_next(r[i], &e));
        while (e.kind != ICP_EVENT_DONE);
        assert_true(e.finish == ICP_FINISH_CANCELLED || e.finish == ICP_FINISH_LENGTH);
        request_free(&r[i]);
    }
    bed_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_in_any_company),
        cmocka_unit_test(test_alone_equals_crowd),
        cmocka_unit_test(test_cancelling_disturbs_nobody),
        cmocka_unit_test(test_identical_prompts_compute_once),
        cmocka_unit_test(test_owner_leaves_waiters_go_on),
        cmocka_unit_test(test_completions_share_their_prompt),
        cmocka_unit_test(test_conversation_goes_on),
        cmocka_unit_test(test_namespaces_and_wishes),
        cmocka_unit_test(test_decoding_never_waits_for_a_prompt),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_until_the_context_is_full),
        cmocka_unit_test(test_only_the_prompt),
        cmocka_unit_test(test_prompt_logits),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_starving_thread),
        cmocka_unit_test(test_closing_ends_what_runs),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
