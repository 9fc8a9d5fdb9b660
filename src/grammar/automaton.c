/* A program as an automaton, made as far as texts need it.
 *
 * A text may be read in several ways at once. Each way is a place in the code, at an OP_BYTE, and a
 * stack of places to return to. Ways at one place are merged, so that a state has at most one item
 * for each place in the code, however long the text is:
 *
 *   state  { (place, stack), (place, stack) … } sorted by place; may the text end here?
 *   stack  { (return place, rounds, stack below), … } sorted: any of these frames is on top
 *
 * (a graph-structured stack, after Tomita 1985). States and stacks are interned: equal ones have
 * one number. So a state's number says everything about the text so far, a step need be taken once
 * only for each state and class of bytes, and a mask computed once only for each state.
 *
 * A frame of rounds 0 returns to a place after a call. One of rounds n > 0 means: n rounds of the
 * OP_REPEAT at its place will be done when the round that is open ends. Beyond the minimum rounds
 * are not counted when there is no maximum. At an OP_SERIES: parts from n - 1 on may still come.
 *
 * Invariants
 *  1. Stacks are made after those below them: a stack's number is greater than those of its frames.
 *  2. Stack 0 is the empty one: its only frame has the place BOTTOM.
 *  3. State 0 has no items. Every item of another state leads to the end of some text (program.c).
 *  4. What is memorised depends on the state alone, never on the order in which texts came. */
#include "grammar_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_ITEMS =
        100000, /* places and stacks looked at in one step; beyond it the byte is refused */
    BOTTOM = UINT32_MAX,
};

typedef struct frame {
    uint32_t place, rounds, below;
} frame;

typedef struct item {
    uint32_t place, stack;
} item;

typedef struct span { /* frames of a stack, items of a state */
    uint32_t first, count;
} span;

typedef struct state {
    span items;
    uint64_t *mask;
    uint32_t absorb_most;
    int16_t absorb; /* -1: none */
    bool accepts;
} state;

typedef struct id_table { /* open addressing; holds id + 1 */
    uint32_t *slots;
    size_t n_slots, n;
} id_table;

/* Masks, in blocks that are kept for reuse when states are forgotten: giving back and taking tens
 * of megabytes would take longer than a token may. */
enum { MASK_BLOCK = 64 }; /* masks */
typedef struct mask_pool {
    uint64_t **blocks;
    size_t n_blocks, cap_blocks, n_used; /* masks */
} mask_pool;

struct automaton {
    const program *p;
    frame *frames;
    span *stacks;
    item *items;
    state *states;
    uint32_t *rows; /* n_classes for each state */
    size_t n_frames, n_stacks, n_items, n_states;
    size_t cap_frames, cap_stacks, cap_items, cap_states, cap_rows;
    id_table stack_ids, state_ids;
    mask_pool masks;
    size_t mask_bytes;
    uint32_t start;

    /* scratch of one step */
    item *work; /* ways that were seen, in this order */
    size_t n_work, cap_work;
    id_table seen; /* of work */
    item *shift;   /* those that wait for a byte */
    size_t n_shift, cap_shift;
    frame *merged;
    size_t n_merged, cap_merged;
    state fresh; /* what is known of the state in the making */
};

/* ---- interning ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t hash_words(const void *data, size_t n_bytes) {
    uint64_t h = n_bytes;
    for (size_t i = 0; i < n_bytes; i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, (const char *)data + i, sizeof word);
        h = mix(h, word);
    }
    return h;
}

/* Makes room for one more; `hash` gives the hash of an id. */
static int table_grow(automaton *a, id_table *t, uint64_t (*hash)(const automaton *, uint32_t)) {
    if (2 * (t->n + 1) <= t->n_slots) return 0;
    size_t n = t->n_slots ? 2 * t->n_slots : 64;
    uint32_t *slots = mem_zero(n, sizeof *slots);
    if (!slots) return ICP_ENOMEM;
    for (size_t i = 0; i < t->n_slots; i++) {
        if (!t->slots[i]) continue;
        size_t at = hash(a, t->slots[i] - 1) & (n - 1);
        while (slots[at]) at = (at + 1) & (n - 1);
        slots[at] = t->slots[i];
    }
    mem_free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    return 0;
}

static uint64_t hash_stack(const automaton *a, uint32_t id) {
    const span *s = &a->stacks[id];
    return hash_words(a->frames + s->first, s->count * sizeof(frame));
}

static uint64_t hash_state(const automaton *a, uint32_t id) {
    const span *s = &a->states[id].items;
    return mix(hash_words(a->items + s->first, s->count * sizeof(item)), a->states[id].accepts);
}

static uint64_t hash_work(const automaton *a, uint32_t id) {
    return mix(a->work[id].place, a->work[id].stack);
}

/* The stack of n sorted frames. */
static int intern_stack(automaton *a, const frame *frames, size_t n, uint32_t *out) {
    TRY(table_grow(a, &a->stack_ids, hash_stack));
    size_t mask = a->stack_ids.n_slots - 1, at = hash_words(frames, n * sizeof *frames) & mask;
    for (; a->stack_ids.slots[at]; at = (at + 1) & mask) {
        uint32_t id = a->stack_ids.slots[at] - 1;
        const span *s = &a->stacks[id];
        if (s->count == n && !memcmp(a->frames + s->first, frames, n * sizeof *frames)) {
            *out = id;
            return 0;
        }
    }
    if (!array_reserve(&a->frames, &a->cap_frames, a->n_frames + n, sizeof *frames) ||
        !array_reserve(&a->stacks, &a->cap_stacks, a->n_stacks + 1, sizeof *a->stacks))
        return ICP_ENOMEM;
    memcpy(a->frames + a->n_frames, frames, n * sizeof *frames);
    a->stacks[a->n_stacks] = (span){(uint32_t)a->n_frames, (uint32_t)n};
    a->n_frames += n;
    a->stack_ids.slots[at] = (uint32_t)a->n_stacks + 1;
    a->stack_ids.n++;
    *out = (uint32_t)a->n_stacks++;
    return 0;
}

/* The state of n sorted items, and of what fresh says about it. */
static int intern_state(automaton *a, const item *items, size_t n, const state *fresh,
                        uint32_t *out) {
    TRY(table_grow(a, &a->state_ids, hash_state));
    uint64_t hash = mix(hash_words(items, n * sizeof *items), fresh->accepts);
    size_t mask = a->state_ids.n_slots - 1, at = hash & mask, row = a->p->n_classes;
    for (; a->state_ids.slots[at]; at = (at + 1) & mask) {
        uint32_t id = a->state_ids.slots[at] - 1;
        const state *s = &a->states[id];
        if (s->items.count == n && s->accepts == fresh->accepts &&
            !memcmp(a->items + s->items.first, items, n * sizeof *items)) {
            *out = id;
            return 0;
        }
    }
    if (!array_reserve(&a->items, &a->cap_items, a->n_items + n, sizeof *items) ||
        !array_reserve(&a->states, &a->cap_states, a->n_states + 1, sizeof *a->states) ||
        !array_reserve(&a->rows, &a->cap_rows, (a->n_states + 1) * row, sizeof *a->rows))
        return ICP_ENOMEM;
    if (n) memcpy(a->items + a->n_items, items, n * sizeof *items);
    a->states[a->n_states] = *fresh;
    a->states[a->n_states].items = (span){(uint32_t)a->n_items, (uint32_t)n};
    a->states[a->n_states].mask = NULL;
    memset(a->rows + a->n_states * row, 0xff, row * sizeof *a->rows); /* STATE_UNKNOWN */
    a->n_items += n;
    a->state_ids.slots[at] = (uint32_t)a->n_states + 1;
    a->state_ids.n++;
    *out = (uint32_t)a->n_states++;
    return 0;
}

/* ---- closure --------------------------------------------------------------------------------- */

/* Notes a way, once. */
static int visit(automaton *a, uint32_t place, uint32_t stack) {
    TRY(table_grow(a, &a->seen, hash_work));
    size_t mask = a->seen.n_slots - 1, at = mix(place, stack) & mask;
    for (; a->seen.slots[at]; at = (at + 1) & mask) {
        const item *w = &a->work[a->seen.slots[at] - 1];
        if (w->place == place && w->stack == stack) return 0;
    }
    if (a->n_work == MOST_ITEMS) return ICP_ELIMIT;
    if (!array_reserve(&a->work, &a->cap_work, a->n_work + 1, sizeof *a->work)) return ICP_ENOMEM;
    a->seen.slots[at] = (uint32_t)a->n_work + 1;
    a->seen.n++;
    a->work[a->n_work++] = (item){place, stack};
    return 0;
}

/* The loop at an op stands open for `most` more characters: is it the best that was seen? */
static void note_absorb(automaton *a, const op *o, uint32_t most) {
    enum { AMPLE = 32 }; /* more than that makes no difference */
    if (!o->absorb) return;
    uint32_t known = a->fresh.absorb < 0 ? 0 : MIN(a->fresh.absorb_most, AMPLE);
    if (MIN(most, AMPLE) < known) return;
    if (MIN(most, AMPLE) == known && a->fresh.absorb >= 0 && a->fresh.absorb <= o->absorb - 1)
        return;
    a->fresh.absorb = (int16_t)(o->absorb - 1);
    a->fresh.absorb_most = most;
}

/* `rounds` rounds of the REPEAT at `place` are done. */
static int visit_rounds(automaton *a, uint32_t place, uint32_t rounds, uint32_t stack) {
    const op *o = &a->p->ops[place];
    if (rounds >= o->min) TRY(visit(a, o->b, stack));
    if (rounds >= o->max) return 0;
    note_absorb(a, o, o->max == UNBOUNDED ? UNBOUNDED : o->max - rounds);
    uint32_t then = o->max == UNBOUNDED ? MIN(rounds + 1, o->min) : rounds + 1, inner;
    TRY(intern_stack(a, &(frame){place, MAX(then, 1), stack}, 1, &inner));
    return visit(a, o->a, inner);
}

/* Parts of the series at `place` from part rounds - 1 on may come, or the end if none must. */
static int visit_series(automaton *a, uint32_t place, uint32_t rounds, uint32_t stack) {
    const op *o = &a->p->ops[place];
    const series *s = &a->p->series[o->a];
    uint32_t inner;
    if (a->p->numbers[s->needed + rounds - 1] == s->n) TRY(visit(a, o->b, stack));
    if (rounds > s->n) return 0;
    TRY(intern_stack(a, &(frame){place, rounds, stack}, 1, &inner));
    return visit(a, s->between, inner);
}

static int visit_first_part(automaton *a, uint32_t place, uint32_t stack) {
    uint32_t inner;
    TRY(intern_stack(a, &(frame){place, 1, stack}, 1, &inner));
    return visit(a, a->p->series[a->p->ops[place].a].first, inner);
}

/* The first of n sorted parts that a frame, of a series, lets come; UINT32_MAX: none. Parts may
 * come up to the first one that must. */
static uint32_t find_part(const automaton *a, frame f, const uint32_t *parts, uint32_t n) {
    const series *s = &a->p->series[a->p->ops[f.place].a];
    uint32_t least = f.rounds - 1, most = a->p->numbers[s->needed + least], lo = 0, hi = n;
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (parts[middle] < least)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < n && parts[lo] <= most ? parts[lo] : UINT32_MAX;
}

/* Goes on at `place` with those frames of a stack that let one of some parts come, from part + by
 * on. What stands before the first of them makes no difference any more: so do states that differ
 * in that only become one. */
static int visit_parts(automaton *a, uint32_t place, uint32_t stack, const uint32_t *parts,
                       uint32_t n, uint32_t by) {
    span s = a->stacks[stack];
    for (uint32_t i = 0; i < s.count; i++) {
        frame f = a->frames[s.first + i];
        uint32_t part = find_part(a, f, parts, n), inner;
        if (part == UINT32_MAX) continue;
        TRY(intern_stack(a, &(frame){f.place, part + by + 1, f.below}, 1, &inner));
        TRY(visit(a, place, inner));
    }
    return 0;
}

static int visit_choices(automaton *a, const op *o, uint32_t stack) {
    for (uint32_t i = 0; i < o->b; i++) {
        const choice *c = &a->p->choices[o->a + i];
        TRY(visit_parts(a, c->place, stack, a->p->numbers + c->first, c->count, 0));
    }
    return 0;
}

static int visit_returns(automaton *a, uint32_t stack) {
    span s = a->stacks[stack];
    for (uint32_t i = 0; i < s.count; i++) {
        frame f = a->frames[s.first + i];
        if (f.place == BOTTOM)
            a->fresh.accepts = true;
        else if (f.rounds && a->p->ops[f.place].kind == OP_SERIES)
            TRY(visit_series(a, f.place, f.rounds, f.below));
        else if (f.rounds)
            TRY(visit_rounds(a, f.place, f.rounds, f.below));
        else
            TRY(visit(a, f.place, f.below));
    }
    return 0;
}

static int visit_call(automaton *a, const op *o, uint32_t stack) {
    if (a->p->ops[o->b].kind != OP_END) TRY(intern_stack(a, &(frame){o->b, 0, stack}, 1, &stack));
    return visit(a, a->p->rule_at[o->a], stack);
}

static int add_shift(automaton *a, item way) {
    if (!array_reserve(&a->shift, &a->cap_shift, a->n_shift + 1, sizeof way)) return ICP_ENOMEM;
    a->shift[a->n_shift++] = way;
    return 0;
}

/* Goes from a way as far as it gets without a byte. */
static int expand(automaton *a, item way) {
    const op *o = &a->p->ops[way.place];
    switch ((enum op_kind)o->kind) {
    case OP_END:
        return visit_returns(a, way.stack);
    case OP_BYTE:
        return add_shift(a, way);
    case OP_FORK:
        for (uint32_t i = 0; i < o->b; i++) TRY(visit(a, a->p->edges[o->a + i], way.stack));
        return 0;
    case OP_LOOP:
        note_absorb(a, o, UNBOUNDED);
        TRY(visit(a, o->a, way.stack));
        return visit(a, o->b, way.stack);
    case OP_CALL:
        return visit_call(a, o, way.stack);
    case OP_REPEAT:
        return visit_rounds(a, way.place, 0, way.stack);
    case OP_SERIES:
        return visit_first_part(a, way.place, way.stack);
    case OP_CHOICE:
        return visit_choices(a, o, way.stack);
    case OP_PICK:
        return visit_parts(a, o->b, way.stack, &o->a, 1, 1);
    }
    return ICP_EBUG;
}

static void begin_step(automaton *a) {
    if (a->seen.n_slots >
        32 * (a->seen.n + 32)) { /* one great step must not slow down the others */
        mem_free(a->seen.slots);
        a->seen = (id_table){0};
    }
    if (a->seen.n) memset(a->seen.slots, 0, a->seen.n_slots * sizeof *a->seen.slots);
    a->seen.n = a->n_work = a->n_shift = 0;
    a->fresh = (state){.absorb = -1};
}

static int compare_items(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static int compare_frames(const void *a, const void *b) {
    const frame *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    if (x->rounds != y->rounds) return x->rounds < y->rounds ? -1 : 1;
    return x->below < y->below ? -1 : x->below > y->below;
}

/* The union of the stacks of n items. */
static int merge_stacks(automaton *a, const item *items, size_t n, uint32_t *out) {
    a->n_merged = 0;
    for (size_t i = 0; i < n; i++) {
        span s = a->stacks[items[i].stack];
        if (a->n_merged + s.count > MOST_ITEMS) return ICP_ELIMIT;
        if (!array_reserve(&a->merged, &a->cap_merged, a->n_merged + s.count, sizeof(frame)))
            return ICP_ENOMEM;
        memcpy(a->merged + a->n_merged, a->frames + s.first, s.count * sizeof(frame));
        a->n_merged += s.count;
    }
    qsort(a->merged, a->n_merged, sizeof(frame), compare_frames);
    size_t kept = 0;
    for (size_t i = 0; i < a->n_merged; i++)
        if (!kept || compare_frames(&a->merged[kept - 1], &a->merged[i]))
            a->merged[kept++] = a->merged[i];
    return intern_stack(a, a->merged, kept, out);
}

/* From the ways that were visited to the state that they make. */
static int finish_step(automaton *a, uint32_t *out) {
    for (size_t i = 0; i < a->n_work; i++) TRY(expand(a, a->work[i]));
    if (a->n_shift) qsort(a->shift, a->n_shift, sizeof(item), compare_items);
    size_t n = 0;
    for (size_t i = 0; i < a->n_shift;) {
        size_t first = i;
        while (i < a->n_shift && a->shift[i].place == a->shift[first].place) i++;
        item one = a->shift[first];
        if (i - first > 1) TRY(merge_stacks(a, a->shift + first, i - first, &one.stack));
        a->shift[n++] = one;
    }
    return intern_state(a, a->shift, n, &a->fresh, out);
}

int automaton_step(automaton *a, uint32_t from, unsigned byte_class, uint32_t *out) {
    size_t cell = (size_t)from * a->p->n_classes + byte_class;
    *out = a->rows[cell];
    if (*out != STATE_UNKNOWN) return 0;
    begin_step(a);
    span items = a->states[from].items;
    int rc = 0;
    for (uint32_t i = 0; i < items.count && rc == 0; i++) {
        item way = a->items[items.first + i];
        const op *o = &a->p->ops[way.place];
        if (byte_set_has(&a->p->sets[o->a], byte_class)) rc = visit(a, o->b, way.stack);
    }
    *out = STATE_DEAD;
    if (rc == 0 && a->n_work) rc = finish_step(a, out);
    if (rc == ICP_ELIMIT) {
        *out = STATE_DEAD;
        rc = 0;
    }
    if (rc == 0) a->rows[cell] = *out;
    return rc;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Without any state but the dead one. */
static int init(const program *p, automaton *a) {
    uint32_t id;
    *a = (automaton){.p = p};
    TRY(intern_stack(a, &(frame){BOTTOM, 0, 0}, 1, &id));
    return intern_state(a, NULL, 0, &(state){.absorb = -1}, &id);
}

static void fini(automaton *a) {
    for (size_t i = 0; i < a->masks.n_blocks; i++) mem_free(a->masks.blocks[i]);
    mem_free(a->masks.blocks);
    mem_free(a->frames);
    mem_free(a->stacks);
    mem_free(a->items);
    mem_free(a->states);
    mem_free(a->rows);
    mem_free(a->stack_ids.slots);
    mem_free(a->state_ids.slots);
    mem_free(a->work);
    mem_free(a->seen.slots);
    mem_free(a->shift);
    mem_free(a->merged);
}

static int begin(automaton *a) {
    begin_step(a);
    TRY(visit(a, a->p->start, 0));
    return finish_step(a, &a->start);
}

int automaton_new(const program *p, automaton **out) {
    automaton *a = mem_alloc(sizeof *a);
    if (!a) return ICP_ENOMEM;
    int rc = init(p, a);
    if (rc == 0) rc = begin(a);
    if (rc == 0) {
        *out = a;
        return 0;
    }
    automaton_free(&a);
    return rc;
}

void automaton_free(automaton **ap) {
    automaton *a = *ap;
    *ap = NULL;
    if (!a) return;
    fini(a);
    mem_free(a);
}

/* ---- questions ------------------------------------------------------------------------------- */

uint32_t automaton_start(const automaton *a) {
    return a->start;
}

bool automaton_accepts(const automaton *a, uint32_t state) {
    return a->states[state].accepts;
}

bool automaton_stops(const automaton *a, uint32_t state) {
    return a->states[state].items.count == 0;
}

const uint32_t *automaton_rows(const automaton *a) {
    return a->rows;
}

int automaton_absorb(const automaton *a, uint32_t state, uint32_t *most) {
    *most = a->states[state].absorb_most;
    return a->states[state].absorb;
}

static uint64_t *new_mask(mask_pool *m, size_t n_words) {
    if (m->n_used == m->n_blocks * MASK_BLOCK) {
        if (!array_reserve(&m->blocks, &m->cap_blocks, m->n_blocks + 1, sizeof *m->blocks))
            return NULL;
        uint64_t *block = mem_alloc(MASK_BLOCK * n_words * sizeof *block);
        if (!block) return NULL;
        m->blocks[m->n_blocks++] = block;
    }
    size_t nth = m->n_used++;
    return m->blocks[nth / MASK_BLOCK] + nth % MASK_BLOCK * n_words;
}

uint64_t *automaton_mask(automaton *a, uint32_t id, size_t n_words, bool make) {
    state *s = &a->states[id];
    if (!s->mask && make) {
        s->mask = new_mask(&a->masks, n_words);
        if (s->mask) a->mask_bytes += n_words * sizeof *s->mask;
    }
    return s->mask;
}

size_t automaton_size(const automaton *a) {
    return a->n_frames * sizeof(frame) + a->n_stacks * 3 * sizeof(span) +
           a->n_items * sizeof(item) + a->n_states * (sizeof(state) + 4 * sizeof(uint32_t)) +
           a->n_states * a->p->n_classes * sizeof(uint32_t) + a->mask_bytes;
}

/* ---- forgetting ------------------------------------------------------------------------------ */

static int copy_stacks(const automaton *from, automaton *to, const bool *live, uint32_t *map) {
    frame *moved = NULL;
    size_t cap = 0;
    int rc = 0;
    map[0] = 0;
    for (size_t i = 1; i < from->n_stacks && rc == 0; i++) {
        span s = from->stacks[i];
        if (!live[i]) continue;
        if (!array_reserve(&moved, &cap, s.count, sizeof *moved)) rc = ICP_ENOMEM;
        for (uint32_t k = 0; k < s.count && rc == 0; k++) {
            moved[k] = from->frames[s.first + k];
            if (moved[k].place != BOTTOM) moved[k].below = map[moved[k].below];
        }
        /* numbers keep their order, so the frames stay sorted */
        if (rc == 0) rc = intern_stack(to, moved, s.count, &map[i]);
    }
    mem_free(moved);
    return rc;
}

static int copy_state(const automaton *from, automaton *to, const uint32_t *map, uint32_t id,
                      uint32_t *out) {
    const state *s = &from->states[id];
    to->n_shift = 0;
    for (uint32_t i = 0; i < s->items.count; i++) {
        item way = from->items[s->items.first + i];
        way.stack = map[way.stack];
        TRY(add_shift(to, way));
    }
    return intern_state(to, to->shift, to->n_shift, s, out);
}

/* Marks the stacks that a state's items stand on. */
static void mark_state(const automaton *a, uint32_t id, bool *live) {
    span items = a->states[id].items;
    for (uint32_t i = 0; i < items.count; i++) live[a->items[items.first + i].stack] = true;
}

static void mark_below(const automaton *a, bool *live) {
    for (size_t i = a->n_stacks; i-- > 1;) /* from the top down: invariant 1 */
        for (uint32_t k = 0; live[i] && k < a->stacks[i].count; k++)
            live[a->frames[a->stacks[i].first + k].below] = true;
}

static int copy_live(automaton *from, automaton *to, uint32_t **states, size_t n, uint32_t *moved) {
    bool *live = mem_zero(from->n_stacks, sizeof *live);
    uint32_t *map = mem_zero(from->n_stacks, sizeof *map);
    int rc = live && map ? 0 : ICP_ENOMEM;
    if (rc == 0) {
        mark_state(from, from->start, live);
        for (size_t i = 0; i < n; i++) mark_state(from, *states[i], live);
        mark_below(from, live);
        rc = copy_stacks(from, to, live, map);
    }
    if (rc == 0) rc = copy_state(from, to, map, from->start, &to->start);
    for (size_t i = 0; i < n && rc == 0; i++) rc = copy_state(from, to, map, *states[i], &moved[i]);
    mem_free(live);
    mem_free(map);
    return rc;
}

int automaton_collect(automaton *a, uint32_t **states, size_t n) {
    automaton fresh;
    uint32_t *moved = mem_alloc(n * sizeof *moved);
    if (!moved) return ICP_ENOMEM;
    int rc = init(a->p, &fresh);
    if (rc == 0) rc = copy_live(a, &fresh, states, n, moved);
    if (rc == 0) {
        for (size_t i = 0; i < n; i++) *states[i] = moved[i];
        fresh.masks = a->masks;
        fresh.masks.n_used = 0;
        a->masks = (mask_pool){0};
        fini(a);
        *a = fresh;
    } else {
        fini(&fresh);
    }
    mem_free(moved);
    return rc;
}
