/* Philox against its authors' known answers; the sampler against a slow one that sorts every
 * candidate and works in double with the C library's exp. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine_internal.h"

enum { VOCAB = 1000 };

/* Random123 1.14, tests/kat_vectors: philox4x32 10. */
static void test_philox_known_answers(void **unused) {
    static const struct {
        uint32_t counter[4], key[2], random[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        uint32_t block[4];
        memcpy(block, known[i].counter, sizeof block);
        philox(block, known[i].key);
        assert_memory_equal(block, known[i].random, sizeof block);
    }
    assert_true(philox_draw(0, 0, 0) == 0xe169c58d6627e8d5);
}

static void test_exp(void **unused) {
    softmax_table t;
    softmax_init(&t);
    assert_true(softmax_exp(&t, 0) == 1);
    assert_true(softmax_exp(&t, -INFINITY) == 0);
    for (double x = 0; x > -700; x -= 0.00917) {
        double want = exp(x);
        assert_true(fabs(softmax_exp(&t, x) - want) <= 2e-15 * want);
    }
}

static void test_greatest(void **unused) {
    float row[70];
    for (size_t n = 1; n <= 70; n++)
        for (size_t at = 0; at < n; at++) {
            for (size_t i = 0; i < n; i++) row[i] = -(float)(i % 5) - 1;
            row[at] = -0.5f;
            assert_true(softmax_greatest(row, n) == -0.5f);
            row[at] = NAN;
            assert_true(isnan(softmax_greatest(row, n)));
            row[at] = INFINITY;
            assert_true(isnan(softmax_greatest(row, n)));
        }
}

/* ---- the slow one --------------------------------------------------------------------------- */

static const float *order_row;

static int by_logit(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (order_row[x] != order_row[y]) return order_row[x] > order_row[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

/* The penalised row, straight from the formulas. */
static void slow_penalties(const sample_job *job, float *row) {
    const icp_request_opts *o = job->opts;
    for (size_t i = 0; i < o->n_bias; i++) {
        float *logit = &row[o->bias[i].token];
        *logit = o->bias[i].bias <= -100 ? -INFINITY : *logit + o->bias[i].bias;
    }
    for (size_t i = 0; i < o->n_bans; i++) {
        const int32_t *run = o->bans[i].tokens;
        size_t n = o->bans[i].n, same = 0;
        for (size_t k = 1; k < n && job->n_tokens - k >= job->n_prompt; k++)
            same += job->tokens[job->n_tokens - k] == run[n - 1 - k];
        if (same == n - 1) row[run[n - 1]] = -INFINITY;
    }
    for (int32_t id = 0; id < VOCAB; id++) {
        int in_prompt = 0, in_output = 0;
        for (size_t i = 0; i < job->n_tokens; i++)
            if (job->tokens[i] == id) *(i < job->n_prompt ? &in_prompt : &in_output) += 1;
        if (in_prompt + in_output > 0)
            row[id] =
                row[id] > 0 ? row[id] / o->repetition_penalty : row[id] * o->repetition_penalty;
        row[id] -= o->frequency_penalty * (float)in_output;
        if (in_output) row[id] -= o->presence_penalty;
    }
}

/* The token, or -1 where the answer hangs on the last bits of a sum. */
static int32_t slow_sample(const sample_job *job, float *row) {
    const icp_request_opts *o = job->opts;
    static int32_t order[VOCAB];
    static double p[VOCAB];
    slow_penalties(job, row);
    for (int32_t i = 0; i < VOCAB; i++) order[i] = i;
    order_row = row;
    qsort(order, VOCAB, sizeof *order, by_logit);
    if (o->temperature == 0) return order[0];
    int n = 0;
    for (int i = 0; i < VOCAB; i++) {
        p[i] = exp(((double)row[order[i]] - row[order[0]]) / o->temperature);
        if (fabs(p[i] - o->min_p) < 1e-9 && o->min_p > 0 && p[i] < 1) return -1;
        if (p[i] >= o->min_p) n = i + 1;
    }
    if (o->top_k > 0) n = MIN(n, o->top_k);
    double sum = 0, part = 0;
    for (int i = 0; i < n; i++) sum += p[i];
    for (int i = 0; i < n && o->top_p < 1; i++) {
        part += p[i];
        if (fabs(part / sum - o->top_p) < 1e-9) return -1;
        if (part / sum >= o->top_p) {
            n = i + 1;
            sum = part;
        }
    }
    uint64_t bits = philox_draw(o->seed, (uint32_t)job->choice, job->n_tokens - job->n_prompt);
    double point = (double)bits / 18446744073709551616.0 * sum, at = 0;
    for (int i = 0; i < n; i++) {
        at += p[i];
        if (fabs(point - at) < 1e-9 * sum) return -1;
        if (point < at) return order[i];
    }
    return -1;
}

static float random_float(float least, float most) {
    return least + (most - least) * (float)rand() / (float)RAND_MAX;
}

static void fill_row(float *row) {
    int kind = rand() % 4;
    for (int i = 0; i < VOCAB; i++) {
        row[i] = kind == 0   ? (float)(rand() % 7)                 /* ties everywhere */
                 : kind == 1 ? random_float(-40, 5)                /* long tail */
                 : kind == 2 ? 0                                   /* flat */
                             : (float)log(random_float(1e-6f, 1)); /* natural */
        if (rand() % 100 == 0) row[i] = -INFINITY;
        if (rand() % 100 == 0) row[i] = -0.0f;
    }
    row[rand() % VOCAB] = random_float(0, 12);
}

static void random_opts(icp_request_opts *o, icp_logit_bias *bias) {
    icp_request_opts_init(o);
    o->seed = ((uint64_t)rand() << 32) + (uint64_t)rand();
    o->temperature = rand() % 4 ? random_float(0.05f, 3) : 0;
    if (rand() % 2) o->top_p = random_float(0, 1);
    if (rand() % 3 == 0) o->min_p = random_float(0, 1);
    if (rand() % 2) o->top_k = rand() % 100 - 1;
    if (rand() % 2) o->repetition_penalty = random_float(0.5f, 2);
    if (rand() % 2) o->presence_penalty = random_float(-2, 2);
    if (rand() % 2) o->frequency_penalty = random_float(-2, 2);
    o->n_bias = (size_t)(rand() % 4);
    for (size_t i = 0; i < o->n_bias; i++)
        bias[i] = (icp_logit_bias){rand() % VOCAB, rand() % 4 ? random_float(-20, 20) : -100};
    o->bias = bias;
}

/* Runs of up to four tokens; their beginnings are often what stands at the end. */
static void random_bans(icp_request_opts *o, icp_ban *bans, int32_t (*runs)[4],
                        const int32_t *tokens, size_t n_tokens) {
    o->bans = bans;
    o->n_bans = (size_t)(rand() % 4);
    for (size_t i = 0; i < o->n_bans; i++) {
        size_t n = 1 + (size_t)rand() % 4;
        bool known = rand() % 4 && n <= n_tokens;
        for (size_t k = 0; k < n; k++)
            runs[i][k] = known && k + 1 < n ? tokens[n_tokens - (n - 1) + k] : rand() % VOCAB;
        bans[i] = (icp_ban){runs[i], n};
    }
}

static void test_against_full_sort(void **unused) {
    sampler *s;
    assert_int_equal(sampler_open(VOCAB, 1, NULL, 0, &s), 0);
    int compared = 0;
    srand(7);
    for (int round = 0; round < 4000; round++) {
        float row[VOCAB], slow_row[VOCAB];
        int32_t tokens[50];
        icp_logit_bias bias[4];
        icp_request_opts o;
        random_opts(&o, bias);
        fill_row(row);
        memcpy(slow_row, row, sizeof row);
        size_t n_prompt = 1 + (size_t)rand() % 30, n = n_prompt + (size_t)rand() % 20;
        for (size_t i = 0; i < n; i++) tokens[i] = rand() % (rand() % 2 ? 10 : VOCAB);
        icp_ban bans[4];
        int32_t runs[4][4];
        random_bans(&o, bans, runs, tokens, n);
        sample_job job = {.row = row,
                          .opts = &o,
                          .tokens = tokens,
                          .n_prompt = n_prompt,
                          .n_tokens = n,
                          .choice = rand() % 3,
                          .known = -1};
        int32_t want = slow_sample(&job, slow_row);
        sampler_run(s, &job, 0);
        if (want < 0) continue;
        assert_int_equal(job.token, want);
        compared++;
    }
    assert_true(compared > 3900);
    sampler_close(&s);
}

/* Of 20,000 draws each token gets its share: chi-squared below its 99.99 % point for 9 degrees. */
static void test_frequencies(void **unused) {
    enum { N = 10, DRAWS = 20000 };
    static const float logits[N] = {0, 1, 2, -1, 0.5f, 1.5f, -2, 0.1f, 0.2f, 3};
    sampler *s;
    icp_request_opts o;
    icp_request_opts_init(&o);
    assert_int_equal(sampler_open(N, 1, NULL, 0, &s), 0);
    int count[N] = {0}, other_choice = 0;
    static int32_t tokens[DRAWS + 1];
    for (size_t i = 0; i < DRAWS; i++) {
        float row[N], again[N];
        memcpy(row, logits, sizeof row);
        memcpy(again, logits, sizeof row);
        sample_job job = {.row = row,
                          .opts = &o,
                          .tokens = tokens,
                          .n_prompt = 1,
                          .n_tokens = 1 + i,
                          .known = -1};
        sampler_run(s, &job, 0);
        count[job.token]++;
        int32_t first = job.token;
        job.row = again;
        job.choice = 1;
        sampler_run(s, &job, 0);
        other_choice += job.token != first;
    }
    double sum = 0, chi = 0;
    for (int i = 0; i < N; i++) sum += exp(logits[i]);
    for (int i = 0; i < N; i++) {
        double want = DRAWS * exp(logits[i]) / sum;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    assert_true(chi < 33.7);
    assert_true(other_choice > DRAWS / 2); /* choices draw independently */
    sampler_close(&s);
}

static void test_logprobs(void **unused) {
    sampler *s;
    icp_request_opts o;
    icp_request_opts_init(&o);
    o.temperature = 0;
    o.logprobs = 5;
    icp_logit_bias bias = {0, 1e4f}; /* the distribution before sampling parameters is meant */
    o.bias = &bias;
    o.n_bias = 1;
    float row[] = {-1, 2, 0.5f, 2, -3, 0.5f, -INFINITY, 1};
    static const int32_t order[] = {1, 3, 7, 2, 5}, tokens[] = {0};
    double sum = 2 * exp(2) + 2 * exp(0.5) + exp(-1) + exp(-3) + exp(1);
    assert_int_equal(sampler_open(8, 1, NULL, 0, &s), 0);
    sample_job job = {.row = row,
                      .opts = &o,
                      .tokens = tokens,
                      .n_prompt = 1,
                      .n_tokens = 1,
                      .known = -1,
                      .logprobs = true};
    float raw[8];
    memcpy(raw, row, sizeof raw);
    sampler_run(s, &job, 0);
    assert_int_equal(job.token, 0);
    assert_int_equal(job.chosen.token, 0);
    assert_true(fabs(job.chosen.logprob - (-1 - log(sum))) < 1e-6);
    assert_int_equal(job.n_top, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(job.top[i].token, order[i]);
        assert_true(fabs(job.top[i].logprob - (raw[order[i]] - log(sum))) < 1e-6);
    }
    sampler_close(&s);
}

static int32_t sample_row(sampler *s, const icp_request_opts *o, float *row, bool ban_ends) {
    static const int32_t tokens[] = {0};
    sample_job job = {.row = row,
                      .opts = o,
                      .tokens = tokens,
                      .n_prompt = 1,
                      .n_tokens = 1,
                      .known = -1,
                      .ban_ends = ban_ends};
    sampler_run(s, &job, 0);
    return job.token;
}

static void test_bad_rows(void **unused) {
    static const int32_t ends[] = {1};
    sampler *s;
    icp_request_opts o;
    icp_request_opts_init(&o);
    assert_int_equal(sampler_open(3, 1, ends, 1, &s), 0);
    float nan_row[] = {0, NAN, 1}, inf_row[] = {0, 1, INFINITY};
    float none[] = {-INFINITY, -INFINITY, -INFINITY};
    float two[] = {-INFINITY, 5, -INFINITY}, three[] = {0, 5, -INFINITY},
          four[] = {0, 5, -INFINITY};
    assert_int_equal(sample_row(s, &o, nan_row, false), ICP_EINVALID);
    assert_int_equal(sample_row(s, &o, inf_row, false), ICP_EINVALID);
    assert_int_equal(sample_row(s, &o, none, false), ICP_EINVALID);
    assert_int_equal(sample_row(s, &o, two, true), ICP_EINVALID); /* all banned */
    assert_int_equal(sample_row(s, &o, three, true), 0);
    o.ignore_eos = true;
    o.temperature = 0;
    assert_int_equal(sample_row(s, &o, four, true), 1);
    sampler_close(&s);
}

static void test_failing_allocations(void **unused) {
    for (long n = 0;; n++) {
        sampler *s = NULL;
        mem_fail_after(n);
        int rc = sampler_open(100, 3, NULL, 0, &s);
        mem_fail_after(-1);
        if (rc == 0) {
            sampler_close(&s);
            assert_true(n > 5);
            return;
        }
        assert_int_equal(rc, ICP_ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_greatest),
        cmocka_unit_test(test_against_full_sort),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_bad_rows),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
