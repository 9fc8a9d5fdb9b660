/* A test bed: an engine on the fake model, and requests run to their end. */
#ifndef BED_H
#define BED_H

#include "engine.h"
#include "fake_model.h"

enum { BED_BOS = 1, BED_EOS = 2, BED_BYTES = 3, BED_WORDS = 259 };

enum { BED_SMALL = 395 << 10 }; /* bytes that a small engine has beside its pages */

typedef struct bed {
    model *model;
    tokenizer *tok;
    pool *pool;
    engine *engine;
} bed;

/* opts: what differs from a roomy engine; its model, tok and pool are filled in. */
void bed_open(bed *b, engine_opts opts);
void bed_open_embedder(bed *b, engine_opts opts, bool causal);       /* fake_model_embed */
void bed_open_carrying(bed *b, engine_opts opts, size_t state_size); /* see fake_model.h */
void bed_open_wide(bed *b, engine_opts opts, size_t page_size);      /* fake_model_widen */
void bed_close(bed *b);

enum { BED_MOST = 512 };
typedef struct outcome { /* of one completion */
    int32_t token[BED_MOST];
    int n;
    buf text;
    enum icp_finish finish;
    int stop_index;
    bool finished;
} outcome;

typedef struct result { /* of a request */
    outcome *choice;    /* n of them */
    int n;
    int error;
    icp_usage usage, early; /* at the end; with the first completion's tokens */
} result;

request *bed_submit(bed *b, const icp_request_opts *opts);
/* Reads r to its end, checks the order of its events, frees it. */
result bed_finish(request **r, int n);
result bed_run(bed *b, const icp_request_opts *opts);
void result_fini(result *r);

/* n prompts at once, none of them seen before, that differ in their last n_tail tokens: one token
 * each, the right one. */
void bed_run_herd(bed *b, int n, size_t n_shared, size_t n_tail);
/* Opens further engines of so much memory, the n-th allocation failing, until one opens. */
void bed_open_starving(bed *b, size_t cache_limit);
/* The same tokens. */
void bed_assert_same(const outcome *a, const outcome *b);

/* A prompt of n tokens (words only), the first n_shared the same whatever the seed. */
void bed_prompt(int32_t *tokens, size_t n, size_t n_shared, unsigned seed);
/* Neutral options for greedy decoding of n_tokens that no end token stops. */
icp_request_opts bed_greedy(const int32_t *prompt, size_t n, int n_tokens);

/* What a completion must be: the fake model's logits and the sampler, token by token, no engine. */
void bed_expect(const icp_request_opts *opts, int choice, outcome *out);

#endif
