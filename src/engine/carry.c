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
 *   at the last edge before a mark of the     a message that is written anew; what else begins so.
 *   prompt, where a chunk ends for it          Old messages only in memory that nobody needs
 *   after 512, 1024, 2048, ... tokens         anything else; likewise */
#include "engine_internal.h"

enum {
    FIRST_SPARE = 512,
    NEWEST = 2 /* messages whose ends are kept like the prompt's */
};

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

static size_t edge_before(size_t position) {
    return position - position % CACHE_PAGE;
}

/* The edge that mark i asks for; 0: none. The last message's is as good as that of the prompt. */
static size_t mark_edge(const icp_request_opts *o, size_t i) {
    const icp_mark *mark = &o->marks[i];
    bool last = mark->ttl == 0 && i + 1 == o->n_marks && o->n_prompt - mark->position < CACHE_PAGE;
    return last ? 0 : edge_before(mark->position);
}

size_t carry_stop(const sequence *s) {
    const icp_request_opts *o = &s->request->opts;
    size_t ready = chain_len(s->chain), stop = chain_branch(s->chain);
    if (stop <= ready) stop = SIZE_MAX;
    for (size_t i = 0; i < o->n_marks; i++) {
        size_t edge = mark_edge(o, i);
        if (edge > ready) stop = MIN(stop, edge);
    }
    return stop == SIZE_MAX ? 0 : stop;
}

static enum checkpoint_use use_of(const sequence *s, size_t from, size_t end) {
    const icp_request_opts *o = &s->request->opts;
    enum checkpoint_use use = doubled(from, end) ? CHECKPOINT_SPARE : CHECKPOINT_TRAIL;
    if (end == edge_before(o->n_prompt - 1) || end == chain_branch(s->chain))
        return CHECKPOINT_STAYS;
    int n_ends = 0;
    for (size_t i = o->n_marks; i-- > 0;) {
        size_t edge = mark_edge(o, i);
        bool breakpoint = o->marks[i].ttl > 0;
        n_ends += edge && !breakpoint;
        if (edge == end && (breakpoint || n_ends <= NEWEST)) return CHECKPOINT_STAYS;
        if (edge == end) use = CHECKPOINT_SPARE;
    }
    return use;
}

void carry_leave(sequence *s, size_t from) {
    chain_checkpoint(s->chain, use_of(s, from, chain_len(s->chain)));
}
