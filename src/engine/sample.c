/* From a row of logits to a token.
 *
 * In this order, and each a function of the row and the request alone:
 *   1. bias            logit += bias; a bias <= -100, and an end token before min_tokens: banned
 *   2. repetition      of tokens in prompt or output: logit > 0 ? logit / r : logit * r
 *      frequency       of tokens in the output: logit -= frequency * count
 *      presence        of tokens in the output: logit -= presence
 *   3. temperature 0   the greatest logit, the lower id among equals
 *      otherwise, candidates are ordered by (logit descending, id ascending), and weigh
 *      e^((logit - greatest) / temperature)
 *   4. min_p           keeps those that weigh at least min_p of the heaviest
 *   5. top_k           keeps the first k
 *   6. top_p           keeps the shortest beginning that weighs at least top_p of what is left
 *   7. draw            64 bits of Philox pick a point in the sum of the weights that are left
 *
 * Filters 4 to 6 all keep a beginning of the order, so the kept set is one length. Weights are
 * integers (units of 2^-40 of the heaviest): their sums are exact, whatever the order in which they
 * are taken, so that a heap which yields only as many candidates as are needed gives the same bits
 * as sorting all of them. A candidate below half a unit weighs nothing and is never drawn. */
#include "engine_internal.h"

#include <math.h>
#include <string.h>

enum { WEIGHT_BITS = 40 };
static const float BANNED = -INFINITY;

struct sampler {
    size_t n_vocab;
    int32_t *ends;
    size_t n_ends;
    uint64_t **heap;   /* of each thread: n_vocab candidates */
    uint32_t **counts; /* of each thread: n_vocab numbers, all zero between calls */
    float **raw;       /* of each thread: the row as it came */
    int n_threads;
};

int sampler_open(size_t n_vocab, int n_threads, const int32_t *ends, size_t n_ends, sampler **out) {
    sampler *s = mem_zero(1, sizeof *s);
    if (!s) return ICP_ENOMEM;
    *s = (sampler){.n_vocab = n_vocab, .n_ends = n_ends, .n_threads = n_threads};
    s->ends = mem_zero(n_ends + 1, sizeof *s->ends);
    s->heap = mem_zero((size_t)n_threads, sizeof *s->heap);
    s->counts = mem_zero((size_t)n_threads, sizeof *s->counts);
    s->raw = mem_zero((size_t)n_threads, sizeof *s->raw);
    bool whole = s->ends && s->heap && s->counts && s->raw;
    for (int t = 0; whole && t < n_threads; t++) {
        s->heap[t] = mem_zero(n_vocab, sizeof **s->heap);
        s->counts[t] = mem_zero(n_vocab, sizeof **s->counts);
        s->raw[t] = mem_zero(n_vocab, sizeof **s->raw);
        whole = s->heap[t] && s->counts[t] && s->raw[t];
    }
    if (!whole) {
        sampler_close(&s);
        return ICP_ENOMEM;
    }
    if (n_ends) memcpy(s->ends, ends, n_ends * sizeof *ends);
    *out = s;
    return 0;
}

void sampler_close(sampler **sp) {
    sampler *s = *sp;
    *sp = NULL;
    if (!s) return;
    for (int t = 0; t < s->n_threads; t++) {
        if (s->heap) mem_free(s->heap[t]);
        if (s->counts) mem_free(s->counts[t]);
        if (s->raw) mem_free(s->raw[t]);
    }
    mem_free(s->ends);
    mem_free(s->heap);
    mem_free(s->counts);
    mem_free(s->raw);
    mem_free(s);
}

/* Cody and Waite's reduction, then the Taylor polynomial of degree 13: off by less than 2 ulp. */
double sample_exp(double x) {
    static const double LOG2E = 1.4426950408889634, LN2_HIGH = 0x1.62e42feep-1,
                        LN2_LOW = 0x1.a39ef35793c76p-33;
    static const double INVERSE_FACTORIAL[] = {1.0,
                                               1.0,
                                               1.0 / 2,
                                               1.0 / 6,
                                               1.0 / 24,
                                               1.0 / 120,
                                               1.0 / 720,
                                               1.0 / 5040,
                                               1.0 / 40320,
                                               1.0 / 362880,
                                               1.0 / 3628800,
                                               1.0 / 39916800,
                                               1.0 / 479001600,
                                               1.0 / 6227020800};
    if (x < -700) return 0;
    int64_t k = (int64_t)(x * LOG2E - 0.5);
    double r = x - (double)k * LN2_HIGH - (double)k * LN2_LOW, sum = 0;
    for (int i = (int)COUNT_OF(INVERSE_FACTORIAL) - 1; i >= 0; i--)
        sum = sum * r + INVERSE_FACTORIAL[i];
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* ---- log-probabilities ---------------------------------------------------------------------- */

static bool logit_before(const float *row, int32_t a, int32_t b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
}

/* The ids of the greatest logits, in order, as many as the request wants. */
static void find_top(const sampler *s, sample_job *job, const float *row) {
    int wanted = (int)MIN((size_t)MAX(job->opts->logprobs, 0), s->n_vocab);
    icp_logprob *top = job->top;
    for (int32_t id = 0; wanted && (size_t)id < s->n_vocab; id++) {
        if (job->n_top == wanted && !logit_before(row, id, top[wanted - 1].token)) continue;
        int at = job->n_top < wanted ? job->n_top++ : wanted - 1;
        for (; at > 0 && logit_before(row, id, top[at - 1].token); at--) top[at] = top[at - 1];
        top[at].token = id;
    }
}

static double log_of_sum(const sampler *s, const float *row, float greatest) {
    double sum = 0;
    for (size_t i = 0; i < s->n_vocab; i++) sum += sample_exp((double)row[i] - greatest);
    return log(sum);
}

/* ---- what changes logits -------------------------------------------------------------------- */

static void ban(const sampler *s, float *row, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && (size_t)ids[i] < s->n_vocab) row[ids[i]] = BANNED;
}

static void apply_bias(const sampler *s, const sample_job *job) {
    for (size_t i = 0; i < job->opts->n_bias; i++) {
        const icp_logit_bias *b = &job->opts->bias[i];
        job->row[b->token] = b->bias <= -100 ? BANNED : job->row[b->token] + b->bias;
    }
    if (!job->ban_ends) return;
    if (!job->opts->ignore_eos) ban(s, job->row, s->ends, s->n_ends);
    ban(s, job->row, job->opts->stop_tokens, job->opts->n_stop_tokens);
}

/* counts[id]: 0 for a token never seen, else 1 + how often it stands in the output. Walking the
 * tokens a second time applies each token's penalties once and leaves the counts at zero. */
static void apply_penalties(const sample_job *job, uint32_t *counts) {
    const icp_request_opts *o = job->opts;
    if (o->repetition_penalty == 1 && o->presence_penalty == 0 && o->frequency_penalty == 0) return;
    for (size_t i = 0; i < job->n_prompt; i++) counts[job->tokens[i]] = 1;
    for (size_t i = job->n_prompt; i < job->n_tokens; i++)
        counts[job->tokens[i]] += counts[job->tokens[i]] ? 1 : 2;
    for (size_t i = 0; i < job->n_tokens; i++) {
        float *logit = &job->row[job->tokens[i]];
        uint32_t *count = &counts[job->tokens[i]];
        if (*count == 0) continue;
        *logit = *logit > 0 ? *logit / o->repetition_penalty : *logit * o->repetition_penalty;
        if (*count > 1) {
            *logit -= o->frequency_penalty * (float)(*count - 1);
            *logit -= o->presence_penalty;
        }
        *count = 0;
    }
}

/* ---- the order of candidates ---------------------------------------------------------------- */

/* A candidate as one number: greater stands earlier. The logit's bits, made monotone, above the
 * complement of the id. */
static uint64_t key_of(float logit, size_t id) {
    float plain = logit + 0.0f; /* -0 and 0 are equal */
    uint32_t bits;
    memcpy(&bits, &plain, sizeof bits);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}
static int32_t id_of(uint64_t key) {
    return (int32_t) ~(uint32_t)key;
}

static void sift_down(uint64_t *heap, size_t n, size_t at) {
    uint64_t key = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= key) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

typedef struct draw {
    const float *row;
    uint64_t *heap; /* heap[0..n_heap) is a heap; behind it stand those taken, first ones last */
    size_t n_all, n_heap;
    float greatest;
    double inverse_temperature;
} draw;

static uint64_t weight_of(const draw *d, float logit) {
    double x = ((double)logit - d->greatest) * d->inverse_temperature;
    if (!(x > -28.5)) return 0; /* less than half a unit */
    return (uint64_t)(sample_exp(x) * (double)(1ull << WEIGHT_BITS) + 0.5);
}

/* The i-th candidate of the order. */
static int32_t candidate(draw *d, size_t i) {
    while (d->n_all - d->n_heap <= i) {
        uint64_t first = d->heap[0];
        d->heap[0] = d->heap[--d->n_heap];
        d->heap[d->n_heap] = first;
        sift_down(d->heap, d->n_heap, 0);
    }
    return id_of(d->heap[d->n_all - 1 - i]);
}

/* Collects who may be drawn under min_p; returns the sum of their weights. */
static uint64_t collect(const sampler *s, draw *d, uint64_t least) {
    uint64_t sum = 0;
    for (size_t id = 0; id < s->n_vocab; id++) {
        uint64_t weight = weight_of(d, d->row[id]);
        if (weight < least) continue;
        sum += weight;
        d->heap[d->n_all++] = key_of(d->row[id], id);
    }
    d->n_heap = d->n_all;
    for (size_t i = d->n_heap / 2; i-- > 0;) sift_down(d->heap, d->n_heap, i);
    return sum;
}

/* Weight of the first n candidates, or of fewer if those already weigh `enough`. */
static uint64_t weigh(draw *d, size_t n, uint64_t enough) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n && sum < enough; i++) sum += weight_of(d, d->row[candidate(d, i)]);
    return sum;
}

static int32_t pick(const sampler *s, const sample_job *job, float greatest, uint64_t *heap) {
    const icp_request_opts *o = job->opts;
    draw d = {.row = job->row, .heap = heap, .greatest = greatest};
    d.inverse_temperature = 1.0 / (double)o->temperature;
    double unit = (double)(1ull << WEIGHT_BITS);
    uint64_t least = (uint64_t)ceil((double)o->min_p * unit);
    uint64_t sum = collect(s, &d, MAX(least, 1));
    if (o->top_k > 0 && (size_t)o->top_k < d.n_all) sum = weigh(&d, (size_t)o->top_k, UINT64_MAX);
    if (o->top_p < 1) {
        uint64_t enough = (uint64_t)ceil((double)o->top_p * (double)sum);
        sum = weigh(&d, d.n_all, MIN(MAX(enough, 1), sum));
    }
    uint64_t bits = philox_draw(o->seed, (uint32_t)job->choice, job->n_tokens - job->n_prompt);
    uint64_t point = (uint64_t)((unsigned __int128)bits * sum >> 64);
    for (size_t i = 0;; i++) {
        int32_t id = candidate(&d, i);
        uint64_t weight = weight_of(&d, job->row[id]);
        if (point < weight) return id;
        point -= weight;
    }
}

/* The index of the greatest logit; -1 when one is NaN or +infinite or all are banned. */
static int32_t find_greatest(const sampler *s, const float *row) {
    int32_t best = -1;
    for (size_t id = 0; id < s->n_vocab; id++) {
        if (!(row[id] < INFINITY)) return -1;
        if (row[id] > (best < 0 ? BANNED : row[best])) best = (int32_t)id;
    }
    return best;
}

static int32_t draw_token(sampler *s, sample_job *job, int thread) {
    apply_bias(s, job);
    apply_penalties(job, s->counts[thread]);
    int32_t best = find_greatest(s, job->row);
    if (best < 0) return ICP_EINVALID;
    return job->opts->temperature == 0 ? best : pick(s, job, job->row[best], s->heap[thread]);
}

void sampler_run(sampler *s, sample_job *job, int thread) {
    int32_t best = find_greatest(s, job->row);
    job->token = ICP_EINVALID;
    job->n_top = 0;
    if (best < 0) return;
    float *raw = s->raw[thread];
    double log_sum = 0;
    if (job->logprobs) {
        memcpy(raw, job->row, s->n_vocab * sizeof *raw);
        log_sum = log_of_sum(s, raw, raw[best]);
        find_top(s, job, raw);
    }
    job->token = job->known >= 0 ? job->known : draw_token(s, job, thread);
    if (job->token < 0 || !job->logprobs) return;
    job->chosen.token = job->token;
    job->chosen.logprob = (float)((double)raw[job->token] - raw[best] - log_sum);
    for (int i = 0; i < job->n_top; i++)
        job->top[i].logprob = (float)((double)raw[job->top[i].token] - raw[best] - log_sum);
}
