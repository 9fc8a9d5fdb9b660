/* A stand-in for the model: exact by construction, cheap, and sensitive to every mistake.
 *
 * The "KV" of a token is one number in its page slot, made of the KV before it, the token and the
 * position; the logits after a token are made of all numbers up to it, read from the pages. A page
 * that is shared wrongly, not written, or written twice changes the logits.
 *
 * One that carries a state makes the logits from that alone: the sum of all numbers so far, over
 * and over. A state of another position, or a part of one, ends the test. */
#ifndef FAKE_MODEL_H
#define FAKE_MODEL_H

#include "model.h"

enum { FAKE_VOCAB = 300, FAKE_CTX = 8192 };

model *fake_model_open(size_t state_size); /* bytes, whole numbers of 8; 0: no state */
void fake_model_close(model **m);

/* Models that are opened from now on see the last n tokens only, in fake_logits as well; 0: all. */
void fake_model_window(size_t n);

/* The logits after tokens[0..n), without any page. */
void fake_logits(const int32_t *tokens, size_t n, float *row);

/* Makes it embed texts: a text's vector is the row of all its tokens, which is that of its last one
 * (causal), or of its first. Before the engine is opened. */
void fake_model_embed(model *m, bool causal);

/* Makes its pages so many bytes large, most of them unused. Before the engine is opened. */
void fake_model_widen(model *m, size_t page_size);

/* Lets the next pass wait until fake_model_go. */
void fake_model_stop(model *m);
void fake_model_go(model *m);
/* Makes the logits after any sequence that contains this token NaN; -1: none. */
void fake_model_poison(model *m, int32_t token);
/* From the next pass on, n allocations of the engine's thread succeed, then all fail. */
void fake_model_starve(model *m, long n);

typedef struct fake_counts {
    size_t passes, tokens;
    int most_tokens; /* in one pass */
    size_t mixed;    /* passes with prefill and decode rows */
} fake_counts;
fake_counts fake_model_counts(model *m); /* since the last call */

#endif
