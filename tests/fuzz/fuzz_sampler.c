/* Fuzzes sampling options and rows of logits: options that are not refused draw a token that may be
 * drawn, twice the same, and the greatest one where only that can be meant. */
#include <math.h>

#include "engine_internal.h"
#include "fuzz.h"

enum { N_VOCAB = 48, END = 3, N_TOKENS = 12, N_PROMPT = 6 };

/* Any float at all for odd first bytes, else one that is likely to pass. */
static float number(fuzz_input *in, float least, float most) {
    uint32_t kind = fuzz_byte(in), word = fuzz_word(in);
    float any;
    memcpy(&any, &word, sizeof any);
    return kind & 1 ? any : least + (most - least) * (float)(word % 1001) / 1000;
}

static void read_opts(fuzz_input *in, icp_request_opts *o, icp_logit_bias *bias) {
    icp_request_opts_init(o);
    o->temperature = number(in, 0, 2);
    o->top_p = number(in, 0, 1);
    o->min_p = number(in, 0, 1);
    o->top_k = (int)(fuzz_byte(in) & 1 ? (int32_t)fuzz_word(in) : (int32_t)fuzz_byte(in) % 8);
    o->repetition_penalty = number(in, 0.5f, 2);
    o->presence_penalty = number(in, -2, 2);
    o->frequency_penalty = number(in, -2, 2);
    o->logprobs = (int)(fuzz_byte(in) % 24) - 2;
    o->seed = fuzz_word(in);
    o->bias = bias;
    o->n_bias = fuzz_byte(in) % 4;
    for (size_t i = 0; i < o->n_bias; i++)
        bias[i] = (icp_logit_bias){(int32_t)(fuzz_byte(in) % (N_VOCAB + 2)), number(in, -120, 50)};
}

static bool is_banned(const sample_job *job) {
    if (job->ban_ends && job->token == END) return true;
    for (size_t i = 0; i < job->opts->n_bias; i++)
        if (job->opts->bias[i].token == job->token && job->opts->bias[i].bias <= -100) return true;
    return false;
}

static bool is_plain(const icp_request_opts *o) {
    return !o->n_bias && o->repetition_penalty == 1 && !o->presence_penalty &&
           !o->frequency_penalty && (o->temperature == 0 || o->top_k == 1);
}

static void check_logprobs(const sample_job *job) {
    must(job->chosen.token == job->token && !(job->chosen.logprob > 1e-3f));
    for (int i = 0; i < job->n_top; i++) {
        must(job->top[i].token >= 0 && job->top[i].token < N_VOCAB);
        must(!i || !(job->top[i].logprob > job->top[i - 1].logprob));
    }
}

static void sample(sampler *s, const sample_job *wish, const float *logits) {
    float row[N_VOCAB];
    sample_job job = *wish, again = *wish;
    memcpy(row, logits, sizeof row);
    job.row = row;
    sampler_run(s, &job, 0);
    memcpy(row, logits, sizeof row);
    again.row = row;
    sampler_run(s, &again, 0);
    must(job.token == again.token && job.token < N_VOCAB);
    if (job.token < 0) return;
    must(!is_banned(&job) && logits[job.token] > -INFINITY);
    if (job.logprobs) check_logprobs(&job);
    for (int i = 0; is_plain(job.opts) && i < N_VOCAB; i++)
        must(logits[i] <= logits[job.token] || (job.ban_ends && i == END));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static sampler *s;
    static const int32_t ends[] = {END};
    static const request_limits limits = {N_VOCAB, 1000, 1000, 1000};
    if (!s) must(sampler_open(N_VOCAB, 1, ends, 1, &s) == 0);
    fuzz_input in = {data, size};
    icp_request_opts opts;
    icp_logit_bias bias[4];
    int32_t tokens[N_TOKENS];
    float logits[N_VOCAB];
    read_opts(&in, &opts, bias);
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = (int32_t)(fuzz_byte(&in) % N_VOCAB);
    opts.prompt = tokens;
    opts.n_prompt = N_PROMPT;
    icp_error err = {0};
    if (request_check(&opts, &limits, &err) < 0) {
        must(err.text[0]);
        return 0;
    }
    uint32_t kind = fuzz_byte(&in);
    for (int i = 0; i < N_VOCAB; i++)
        logits[i] = kind & 1 ? number(&in, -30, 30) : (float)fuzz_byte(&in) / 8;
    const sample_job job = {.opts = &opts,
                            .tokens = tokens,
                            .n_prompt = N_PROMPT,
                            .n_tokens = N_TOKENS,
                            .ban_ends = kind & 2,
                            .logprobs = opts.logprobs >= 0,
                            .known = -1};
    sample(s, &job, logits);
    return 0;
}
