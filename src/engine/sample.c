/* From a row of logits to a token.
 *
 * In this order, and each a function of the row and the request alone:
 *   1. bias            logit += bias; a bias <= -100, an end token before min_tokens, and the last
 *                      token of a run that must not be generated: banned
 *   2. repetition      of tokens in prompt or output: logit > 0 ? logit / r : logit * r
 *      frequency       of tokens in the output: logit -= frequency * count
 *      presence        of tokens in the output: logit -= presence
 *   3. grammar         tokens that do not fit it: banned; end tokens fit where the text may end
 *   4. temperature 0   the greatest logit, the lower id among equals
 *      otherwise, candidates are ordered by (logit descending, id ascending), and weigh
 *      e^((logit - greatest) / temperature)
 *   5. min_p           keeps those that weigh at least min_p of the heaviest
 *   6. top_k           keeps the first k
 *   7. top_p           keeps the shortest beginning that weighs at least top_p of what is left
 *   8. draw            64 bits of Philox pick a point in the sum of the weights that are left
 *
 * Filters 5 to 7 all keep a beginning of the order; draw.c finds where it ends without sorting.
 * Weights are integers in units of 2^-42 of the heaviest; what weighs less than 2^-40 of it is
 * never drawn. */
#include "engine_internal.h"

#include <math.h>
#include <string.h>

static const float BANNED = -INFINITY;

typedef struct scratch { /* of one thread: n_vocab of each */
    float *raw;          /* the row as it came */
    uint64_t *weight, *heap;
    uint32_t *counts;  /* of tokens; all zero between calls */
    uint64_t *allowed; /* a bit a token */
} scratch;

struct sampler {
    size_t n_vocab;
    softmax_table table;
    int32_t *ends;
    size_t n_ends;
    scratch *scratch;
    int n_threads;
};

static size_t n_words(size_t n_vocab) {
    return (n_vocab + 63) / 64;
}

static bool scratch_init(scratch *t, size_t n_vocab) {
    t->raw = mem_zero(n_vocab, sizeof *t->raw);
    t->weight = mem_zero(n_vocab, sizeof *t->weight);
    t->heap = mem_zero(n_vocab, sizeof *t->heap);
    t->counts = mem_zero(n_vocab, sizeof *t->counts);
    t->allowed = mem_zero(n_words(n_vocab), sizeof *t->allowed);
    return t->raw && t->weight && t->heap && t->counts && t->allowed;
}

static void scratch_fini(scratch *t) {
    mem_free(t->raw);
    mem_free(t->weight);
    mem_free(t->heap);
    mem_free(t->counts);
    mem_free(t->allowed);
}

size_t sampler_scratch_size(size_t n_vocab) {
    scratch t;
    return sizeof t +
           n_vocab * (sizeof *t.raw + sizeof *t.weight + sizeof *t.heap + sizeof *t.counts) +
           n_words(n_vocab) * sizeof *t.allowed;
}

int sampler_open(size_t n_vocab, int n_threads, const int32_t *ends, size_t n_ends, sampler **out) {
    sampler *s = mem_zero(1, sizeof *s);
    if (!s) return ICP_ENOMEM;
    s->n_vocab = n_vocab;
    s->n_ends = n_ends;
    s->ends = mem_alloc(n_ends * sizeof *s->ends);
    s->scratch = mem_zero((size_t)n_threads, sizeof *s->scratch);
    if (s->scratch) s->n_threads = n_threads;
    bool whole = s->ends && s->scratch;
    for (int t = 0; whole && t < n_threads; t++) whole = scratch_init(&s->scratch[t], n_vocab);
    if (!whole) {
        sampler_close(&s);
        return ICP_ENOMEM;
    }
    if (n_ends) memcpy(s->ends, ends, n_ends * sizeof *ends);
    softmax_init(&s->table);
    *out = s;
    return 0;
}

void sampler_close(sampler **sp) {
    sampler *s = *sp;
    *sp = NULL;
    if (!s) return;
    for (int t = 0; t < s->n_threads; t++) scratch_fini(&s->scratch[t]);
    mem_free(s->scratch);
    mem_free(s->ends);
    mem_free(s);
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

static void apply_bans(const sample_job *job) {
    const int32_t *end = job->tokens + job->n_tokens;
    size_t n_output = job->n_tokens - job->n_prompt;
    for (size_t i = 0; i < job->opts->n_bans; i++) {
        const icp_ban *b = &job->opts->bans[i];
        size_t before = b->n - 1;
        if (before <= n_output && !memcmp(end - before, b->tokens, before * sizeof *end))
            job->row[b->tokens[before]] = BANNED;
    }
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

static void allow(uint64_t *allowed, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) allowed[ids[i] >> 6] |= UINT64_C(1) << (ids[i] & 63);
}

/* Bans what does not fit the grammar. */
static int apply_grammar(const sampler *s, const sample_job *job, uint64_t *allowed) {
    const icp_request_opts *o = job->opts;
    long n = matcher_mask(job->matcher, allowed, n_words(s->n_vocab));
    if (n < 0) return (int)n;
    if (matcher_can_end(job->matcher)) {
        if (!o->ignore_eos) allow(allowed, s->ends, s->n_ends);
        allow(allowed, o->stop_tokens, o->n_stop_tokens);
    }
    for (size_t i = 0; i < s->n_vocab; i += 64) {
        uint64_t fits = allowed[i / 64];
        size_t end = fits == UINT64_MAX ? i : MIN(i + 64, s->n_vocab);
        for (size_t k = i; k < end; k++, fits >>= 1) job->row[k] = fits & 1 ? job->row[k] : BANNED;
    }
    return 0;
}

static size_t find_rank(const sampler *s, const float *row, int32_t token) {
    size_t rank = 1;
    for (size_t id = 0; id < s->n_vocab; id++) rank += row[id] > row[token];
    return rank;
}

static int32_t find_first(const float *row, float value) {
    int32_t id = 0;
    while (row[id] != value) id++;
    return id;
}

static int32_t choose(sampler *s, sample_job *job, scratch *t) {
    apply_bias(s, job);
    apply_bans(job);
    apply_penalties(job, t->counts);
    if (job->matcher) TRY(apply_grammar(s, job, t->allowed));
    const icp_request_opts *o = job->opts;
    float greatest = softmax_greatest(job->row, s->n_vocab);
    if (!(greatest > BANNED)) return job->matcher ? ICP_ENOTFOUND : ICP_EINVALID;
    if (o->temperature == 0) return find_first(job->row, greatest);
    softmax_weights(&s->table, job->row, s->n_vocab, greatest, o->temperature, t->weight);
    uint64_t random = philox_draw(o->seed, (uint32_t)job->choice, job->n_tokens - job->n_prompt);
    return draw_token(o, job->row, t->weight, s->n_vocab, random, t->heap);
}

void sampler_run(sampler *s, sample_job *job, int thread) {
    scratch *t = &s->scratch[thread];
    float greatest = softmax_greatest(job->row, s->n_vocab);
    double log_sum = 0;
    job->token = ICP_EINVALID;
    job->n_top = 0;
    if (!(greatest > BANNED)) return;
    if (job->logprobs) {
        memcpy(t->raw, job->row, s->n_vocab * sizeof *t->raw);
        log_sum = greatest + log(softmax_sum(&s->table, t->raw, s->n_vocab, greatest));
        find_top(s, job, t->raw);
    }
    job->token = job->known >= 0 ? job->known : choose(s, job, t);
    if (job->token < 0 || !job->logprobs) return;
    job->chosen.token = job->token;
    job->rank = find_rank(s, t->raw, job->token);
    job->chosen.logprob = (float)(t->raw[job->token] - log_sum);
    for (int i = 0; i < job->n_top; i++)
        job->top[i].logprob = (float)(t->raw[job->top[i].token] - log_sum);
}
