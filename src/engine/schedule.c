#include "schedule.h"

#include <string.h>

typedef struct planner {
    const sched_state *state;
    sched_item *items;
    size_t pages;   /* not yet promised */
    int budget;     /* prefill tokens left in this step */
    int logit_rows; /* left in this step */
    int victim;
} planner;

size_t sched_common(const sched_seq *a, const sched_seq *b) {
    enum { BLOCK = 64 };
    size_t n = MIN(a->n_tokens, b->n_tokens), i = 0;
    while (n - i >= BLOCK && !memcmp(a->tokens + i, b->tokens + i, BLOCK * sizeof *a->tokens))
        i += BLOCK;
    while (i < n && a->tokens[i] == b->tokens[i]) i++;
    return i;
}

static size_t rest(const sched_seq *seq) {
    return seq->n_tokens - seq->n_ready;
}

static size_t pages_for(const sched_state *state, size_t n_tokens) {
    return (n_tokens + state->page_tokens - 1) / state->page_tokens;
}

/* Pages that are not yet promised and that the sequence's tenant may have. */
static size_t pages_left(const planner *p, const sched_seq *seq) {
    if (seq->tenant < 0) return p->pages;
    return MIN(p->pages, p->state->tenants[seq->tenant].pages);
}

static void promise(planner *p, const sched_seq *seq, size_t n) {
    p->pages -= n;
    if (seq->tenant >= 0) p->state->tenants[seq->tenant].pages -= n;
}

/* Tokens that the sequence can have room for. */
static size_t room_of(const planner *p, const sched_seq *seq) {
    return (seq->n_pages + pages_left(p, seq)) * p->state->page_tokens;
}

/* Tokens that seq can have from other when that one has computed them. */
static size_t shared(const planner *p, const sched_seq *seq, const sched_seq *other) {
    if (other->space != seq->space) return 0;
    size_t n = MIN(sched_common(seq, other), seq->hit_limit);
    return p->state->edges ? n - n % p->state->page_tokens : n;
}

/* Where a chunk of sequence i ends that might go on to `end`. */
static size_t end_at_edge(const planner *p, int i, size_t end) {
    const sched_seq *seq = &p->state->running[i];
    if (seq->stop > seq->n_ready) end = MIN(end, seq->stop);
    for (int j = 0; j < p->state->n_running; j++) {
        const sched_seq *behind = &p->state->running[j];
        if (j == i || rest(behind) == 1) continue;
        size_t common = shared(p, behind, seq);
        if (common > seq->n_ready && common > behind->n_ready) end = MIN(end, common);
    }
    size_t edge = MIN(end, seq->n_tokens - 1);
    edge -= edge % p->state->page_tokens;
    return edge > seq->n_ready ? edge : end;
}

/* How many of the next `want` tokens of sequence i the free pages and logit rows allow. */
static int fit(const planner *p, int i, size_t want) {
    const sched_seq *seq = &p->state->running[i];
    size_t room = room_of(p, seq);
    size_t n = MIN(want, room > seq->n_ready ? room - seq->n_ready : 0);
    if (seq->rows_from != SIZE_MAX) {
        size_t plain = seq->rows_from > seq->n_ready ? seq->rows_from - seq->n_ready : 0;
        n = MIN(n, plain + (size_t)p->logit_rows);
    }
    if (p->state->edges && n > 1) n = end_at_edge(p, i, seq->n_ready + n) - seq->n_ready;
    return (int)n;
}

/* Who is to make room for sequence i: the last in the order, of its tenant when that is what lacks
 * pages. It may be i itself. */
static int find_victim(const planner *p, int i) {
    int tenant = p->pages > 0 ? p->state->running[i].tenant : -1, last = p->state->n_running - 1;
    while (tenant >= 0 && last > i && p->state->running[last].tenant != tenant) last--;
    return last;
}

/* Gives sequence i up to `want` tokens of this step. False: a victim must make room first. */
static bool take(planner *p, int i, size_t want) {
    const sched_seq *seq = &p->state->running[i];
    size_t least = seq->whole ? want : 1;
    int n = fit(p, i, want);
    if ((size_t)n < least) {
        p->victim = find_victim(p, i);
        return room_of(p, seq) >= seq->n_ready + least || p->victim == i;
    }
    size_t end = seq->n_ready + (size_t)n, needed = pages_for(p->state, end);
    if (needed > seq->n_pages) promise(p, seq, needed - seq->n_pages);
    if (seq->rows_from < end) p->logit_rows -= (int)(end - MAX(seq->rows_from, seq->n_ready));
    p->items[i].n_tokens = n;
    return true;
}

/* The sequence whose prefill chunk of this step computes tokens that i needs, or -1: none, or those
 * that they share are there already. */
static int find_owner(const planner *p, int i) {
    const sched_seq *seq = &p->state->running[i];
    if (seq->n_ready >= seq->hit_limit) return -1;
    for (int j = 0; j < p->state->n_running; j++) {
        const sched_seq *other = &p->state->running[j];
        size_t end = other->n_ready + (size_t)p->items[j].n_tokens;
        if (j == i || p->items[j].n_tokens == 0 || rest(other) == 1) continue;
        if (other->space != seq->space || end <= seq->n_ready) continue;
        size_t common = shared(p, seq, other);
        if (common > MAX(seq->n_ready, other->n_ready)) return j;
    }
    return -1;
}

static bool plan_decode(planner *p) {
    for (int i = 0; i < p->state->n_running; i++)
        if (rest(&p->state->running[i]) == 1 && !take(p, i, 1)) return false;
    return true;
}

/* Gives out the budget to prefills in order; with short_only to those that are nearly done. */
static bool plan_prefill(planner *p, bool short_only) {
    for (int i = 0; i < p->state->n_running && p->budget > 0; i++) {
        size_t todo = rest(&p->state->running[i]);
        bool whole = p->state->running[i].whole;
        if (todo == 1 || p->items[i].n_tokens > 0) continue;
        if (short_only && (whole || todo > SCHED_SHORT)) continue;
        if ((short_only || whole) && todo > (size_t)p->budget) continue;
        if (find_owner(p, i) >= 0) continue;
        if (!take(p, i, MIN(todo, (size_t)p->budget))) return false;
        p->budget -= p->items[i].n_tokens;
    }
    return true;
}

/* Says who waits for whom. Also those without budget: they look into the cache next time. */
static void note_owners(planner *p) {
    for (int i = 0; i < p->state->n_running; i++)
        if (p->items[i].n_tokens == 0 && rest(&p->state->running[i]) > 1)
            p->items[i].owner = find_owner(p, i);
}

/* Of `more` pages beside `held` ones, those that are needed at one time: what falls behind the
 * window can be had again. */
static size_t at_once(const sched_state *state, size_t more, size_t held) {
    size_t most = state->window_pages;
    if (most == 0) return more;
    return MIN(more, most > held ? most - held : 0);
}

/* Pages that running sequences (of one tenant; -1: all) still need for the tokens that they have
 * and one more, beside what this step gives them. */
static size_t promised(const planner *p, int tenant) {
    size_t sum = 0;
    for (int i = 0; i < p->state->n_running; i++) {
        const sched_seq *seq = &p->state->running[i];
        if (tenant >= 0 && seq->tenant != tenant) continue;
        size_t held =
            MAX(seq->n_pages, pages_for(p->state, seq->n_ready + (size_t)p->items[i].n_tokens));
        if (p->items[i].owner >= 0) {
            size_t shared = sched_common(seq, &p->state->running[p->items[i].owner]);
            held = MAX(held, shared / p->state->page_tokens);
        }
        size_t needed = pages_for(p->state, seq->n_tokens + 1);
        sum += at_once(p->state, needed > held ? needed - held : 0, held - seq->n_behind);
    }
    return sum;
}

static bool may_admit(const planner *p) {
    const sched_state *s = p->state;
    const sched_seq *next = s->next;
    if (!next || s->n_running >= s->max_running) return false;
    if (s->n_running == 0) return true;
    /* Only pages that a running sequence pins anyway are free of charge: a hit on idle ones takes
     * them out of those that can be had. */
    size_t shared = 0;
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i].space == next->space)
            shared = MAX(shared, sched_common(next, &s->running[i]));
    shared = MAX(MIN(shared, next->hit_limit) / s->page_tokens, next->n_pages);
    size_t all = pages_for(s, next->n_tokens + 1);
    if (s->window_pages && all > s->window_pages) shared = 0; /* they may be behind somebody */
    size_t needed = at_once(s, all - shared, 0);
    if (needed + promised(p, -1) > p->pages) return false;
    return next->tenant < 0 || needed + promised(p, next->tenant) <= s->tenants[next->tenant].pages;
}

enum sched_action sched_plan(const sched_state *state, sched_item *items, int *victim) {
    planner p = {.state = state,
                 .items = items,
                 .pages = state->pages,
                 .logit_rows = state->logit_rows,
                 .budget = state->chunk};
    for (int i = 0; i < state->n_running; i++) {
        items[i] = (sched_item){.owner = -1};
        if (rest(&state->running[i]) == 1) p.budget = state->chunk_mixed;
    }
    int reserved = p.budget - p.budget / 2; /* the half that short ones cannot take */
    p.budget -= reserved;
    bool whole = plan_decode(&p) && plan_prefill(&p, true);
    p.budget += reserved;
    if (!whole || !plan_prefill(&p, false)) {
        *victim = p.victim;
        return SCHED_PREEMPT;
    }
    note_owners(&p);
    return may_admit(&p) ? SCHED_ADMIT : SCHED_RUN;
}
