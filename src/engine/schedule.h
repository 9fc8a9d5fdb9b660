/* schedule: what the next step computes (sched.h is the name of a header of the C library).
 *
 * A pure function: the state of all sequences in, a plan out. It has no clock, no lock, no I/O and
 * no memory of its own, so that it is tested and simulated without a model. The caller applies the
 * plan; when that changes the state (an admission, a preemption, a longer hit), it asks again.
 *
 * Sequences stand in one total order (priority, then arrival). A running sequence is, by what it
 * still has to compute,
 *   a decode row    one token: its newest. Never waits for anyone's prompt.
 *   a prefill       more than one: computed in chunks from a token budget a step.
 * Rules, in the order in which the code applies them:
 *   1. Every decode row goes.
 *   2. Prefills whose rest is short (SCHED_SHORT) go next, from half of the budget, so that a
 *      warm request does not stand behind somebody's book; the other half cannot be taken.
 *   3. The other prefills take what is left, in order.
 *   4. Nobody computes what a prefill chunk of this step computes already: it waits for this step
 *      and looks into the cache again. A wait is only ever on tokens that this very step
 *      computes, so there is no deadlock, and no wait outlives its owner.
 *   5. Pages short: a chunk shrinks to the pages there are; when not even one token fits, the
 *      last running sequence in the order is preempted, unless it is the one that asks: it then
 *      keeps what it has and waits.
 *   6. The head of the queue is admitted when all that is running, and it, can have the pages for
 *      the tokens they already have. With nothing running it is admitted in any case. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "base.h"

enum { SCHED_SHORT = 64 }; /* tokens: about the work of a few decode rows */

typedef struct sched_seq {
    const int32_t *tokens; /* prompt and what was generated so far */
    size_t n_tokens;
    size_t n_ready;   /* leading tokens whose KV is there; less than n_tokens */
    size_t n_pages;   /* pages it holds */
    size_t hit_limit; /* it takes at most so many tokens from others */
    size_t rows_from; /* logits of all positions >= this are wanted; SIZE_MAX: only the last */
    uint64_t space;   /* sequences with equal numbers share prefixes */
} sched_seq;

typedef struct sched_state {
    const sched_seq *running; /* in the total order */
    int n_running, max_running;
    const sched_seq *next; /* head of the queue; NULL when it is empty */
    int chunk;             /* prompt tokens a step when nobody decodes, */
    int chunk_mixed;       /* and when somebody does */
    int logit_rows;        /* rows of prompt logits a step at most */
    size_t page_tokens;
    size_t pages; /* that can be had now, evictions included */
} sched_state;

typedef struct sched_item { /* of one running sequence */
    int n_tokens;           /* tokens to compute in this step; may be 0 */
    int owner;              /* the sequence that computes its next tokens, or -1 */
} sched_item;

enum sched_action { SCHED_RUN, SCHED_ADMIT, SCHED_PREEMPT };

/* Plans a step. items: room for n_running; filled for SCHED_RUN. SCHED_ADMIT: move `next` to the
 * running ones and plan again. SCHED_PREEMPT: move *victim back to the queue and plan again. */
enum sched_action sched_plan(const sched_state *state, sched_item *items, int *victim);

/* Length of the longest common prefix. */
size_t sched_common(const sched_seq *a, const sched_seq *b);

#endif
