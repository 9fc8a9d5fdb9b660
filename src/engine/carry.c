/* What sequences of recurrent and hybrid models carry from token to token, beside their pages.
 *
 *   states   | slot 0 | slot 1 | ...      one for each sequence that can run
 *
 * A running sequence has a slot, which the model moves on and a hit fills from a checkpoint. At
 * page edges copies are left in the cache (cache/checkpoint.c) for whoever comes the same way:
 *
 *   at the last edge of the prompt            the same prompt again, or another answer to it
 *   at the last edge so far, moving on        the conversation's next turn; who waits for this one;
 *                                             the sequence itself, after a preemption
 *   where the cache had more pages, but no    a common beginning that shows itself by being met a
 *   state: where another prompt branched off  second time (Pan et al., "Marconi: prefix caching for
 *                                             the era of hybrid LLMs", 2024)
 *   after 512, 1024, 2048, ... tokens         anything else; only in memory that nobody needs */
#include "engine_internal.h"

enum { FIRST_SPARE = 512 };

size_t carry_stride(const model_info *info) {
    enum { ALIGN = 64 };
    return (info->state_size + ALIGN - 1) / ALIGN * ALIGN;
}

size_t carry_page_size(const model_info *info) {
    /* Models that attend little have small pages, and states of many of them; each has its
     * bookkeeping. */
    enum { LEAST = 16 << 10 };
    return MAX(info->page_size, MIN(info->state_size, (size_t)LEAST));
}

static bool in_use(const engine *e, const void *slot) {
    for (int i = 0; i < e->n_running; i++)
        if (e->running[i]->state == slot) return true;
    return false;
}

void carry_begin(engine *e, sequence *s) {
    size_t stride = carry_stride(model_get_info(e->model));
    char *slot = e->states;
    if (!slot) return;
    while (in_use(e, slot)) slot += stride;
    s->state = slot;
    chain_carry(s->chain, slot);
}

void carry_end(sequence *s) {
    if (s->chain) chain_carry(s->chain, NULL);
    s->state = NULL;
}

/* Whether one of 512, 1024, 2048, ... was reached. */
static bool doubled(size_t from, size_t end) {
    size_t mark = FIRST_SPARE;
    while (2 * mark <= end) mark *= 2;
    return mark > from && mark <= end;
}

void carry_leave(sequence *s, size_t from) {
    size_t end = chain_len(s->chain), n_prompt = s->request->opts.n_prompt;
    bool wanted = end == (n_prompt - 1) / CACHE_PAGE * CACHE_PAGE || end == chain_branch(s->chain);
    chain_checkpoint(s->chain, wanted               ? CHECKPOINT_STAYS
                               : doubled(from, end) ? CHECKPOINT_SPARE
                                                    : CHECKPOINT_TRAIL);
}
