/* schedule: who runs, and what the next step computes (sched.h is the name of a header of the C
 * library). Pure functions:
 *
 *   sched_pick    who is to be admitted next                      pick.c
 *   sched_plan    admission, preemption, the work of one step     schedule.c
 *   sched_chunk   how much of prompts a step may take             pace.c
 *
 * ---- the order of the queue (sched_pick)
 *   P1. The best priority first.
 *   P2. Between tenants, deficit round robin over tokens that must be computed (DLPM: Cao et al.,
 *       "Locality-aware fair scheduling in LLM serving", 2025): only tenants with credit are
 * served. When none that waits has any, all that wait get SCHED_QUANTUM until one has. A request
 * costs its tokens that no cache holds, and each token of its answer one. P3. Of a tenant's
 * requests, the one of which most is cached (longest prefix match); of equals the oldest. P4. No
 * request is passed by more than SCHED_BYPASS later ones of its tenant and priority: then it is the
 * only one of them that may be picked, and the others wait for it.
 *
 * ---- the step (sched_plan)
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
 *   6. The next of the queue is admitted when all that is running, and it, can have the pages for
 *      the tokens they already have, or for a window of them. With nothing running it is admitted
 * in any case.
 *   7. A tenant's quota is a second pool of pages for its sequences: when it is used up, 5 and 6
 * hold among them, and nobody else is preempted for it.
 *   8. With edges (sequences carry a state, which is kept at page edges), a chunk that reaches an
 *      edge ends at one: the last before the newest token, but no later than where a state is
 *      wanted (stop) or somebody behind can attach.
 *   9. A whole prompt is computed in one step or not at all: it sees what follows. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "base.h"

enum {
    SCHED_SHORT = 64,     /* tokens: about the work of a few decode rows */
    SCHED_BYPASS = 8,     /* times */
    SCHED_QUANTUM = 2048, /* tokens */
};

typedef struct sched_tenant {
    int64_t credit; /* tokens; may be negative */
    size_t pages;   /* that its sequences can have now, evictions included; used up by sched_plan */
    bool waits;     /* scratch of sched_pick */
    int overdue;
} sched_tenant;

/* ---- the queue ------------------------------------------------------------------------------- */

typedef struct sched_wait {
    int tenant;      /* index */
    int priority;    /* smaller goes first */
    size_t n_tokens; /* to be ready before it says anything, */
    size_t n_hit;    /* of which so many are cached */
    int bypassed;    /* how often later ones went before it; SCHED_BYPASS: it has been running */
} sched_wait;

/* Which of the n > 0 that wait, oldest first, is to be admitted. Credits are raised when need be.
 */
int sched_pick(const sched_wait *waiting, int n, sched_tenant *tenants, int n_tenants);
/* It was admitted: whoever it passed counts that, and its tenant pays. */
void sched_admitted(sched_wait *waiting, int n, int picked, sched_tenant *tenants);

/* ---- the pace -------------------------------------------------------------------------------- */

/* What a step costs, as measured. Zero-initialise. */
typedef struct sched_pace {
    double step; /* seconds of a step without prompt tokens */
    double row;  /* and of each prompt token more; 0: none was measured yet */
} sched_pace;

void sched_note(sched_pace *pace, int n_prefill, double seconds);
/* How many prompt tokens fit into a step that may take so many seconds: `least` to `most`, and
 * never more than `most`. What was slow once is believed at once, what is fast by and by, so that
 * the bound holds while prompts get longer and their tokens dearer. */
int sched_chunk(const sched_pace *pace, double seconds, int least, int most);

/* ---- the step -------------------------------------------------------------------------------- */

typedef struct sched_seq {
    const int32_t *tokens; /* prompt and what was generated so far */
    size_t n_tokens;
    size_t n_ready;   /* leading tokens whose KV is there; less than n_tokens */
    size_t n_pages;   /* pages it holds; while it waits, pages that it will share for certain */
    size_t n_behind;  /* of these, pages behind its window: they are among those that can be had */
    size_t hit_limit; /* it takes at most so many tokens from others */
    size_t rows_from; /* logits of all positions >= this are wanted; SIZE_MAX: only the last */
    size_t stop;      /* with edges: if it is to come yet, a chunk ends there */
    uint64_t space;   /* sequences with equal numbers share prefixes */
    bool whole;       /* its rest cannot be cut */
    int tenant;       /* index; -1: no quota holds for it */
} sched_seq;

typedef struct sched_state {
    const sched_seq *running; /* in the total order */
    int n_running, max_running;
    const sched_seq *next; /* picked from the queue; NULL: nobody */
    int chunk;             /* prompt tokens a step when nobody decodes, */
    int chunk_mixed;       /* and when somebody does */
    int logit_rows;        /* rows of prompt logits a step at most */
    bool edges;            /* prefixes are shared up to where a chunk ended at a page edge only */
    size_t page_tokens;
    size_t pages;        /* that can be had now, evictions included */
    size_t window_pages; /* that are enough for any sequence; 0: there is no window */
    sched_tenant *tenants;
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
