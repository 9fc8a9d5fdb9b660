/* Merging: join the best pair of neighbours, again and again.
 *
 *   symbols   h ⇄ e ⇄ l ⇄ l ⇄ o      a linked list in an array; a join lengthens the left symbol
 *             h ⇄ e ⇄ ll ⇄ o         and takes the right one out of the list (its len becomes 0)
 *
 *   heap      (order, left symbol, length, id) of every pair that could be joined when it was
 *             looked at; the smallest order first, the leftmost among equals
 *
 * A candidate goes stale when one of its symbols is joined elsewhere. It is not searched for then
 * but recognised when it comes up: its left symbol is gone, or the two no longer have the length
 * that the candidate was entered with. (Symbols only ever grow, by absorbing a whole neighbour to
 * their right, so equal lengths mean the same two symbols.) At most three candidates are entered
 * for each symbol, which makes the whole O(n log n).
 *
 * Invariant: symbol 0 is never absorbed, so what remains is always read from there. */
#include "tokenizer_internal.h"

typedef struct merge_candidate {
    uint64_t order; /* rank or score above, index of the left symbol below */
    uint32_t len;
    int32_t id; /* of the joined token */
} merge_candidate;

/* Makes room for n items of an array that grows by doubling. */
static int reserve(void **items, size_t *cap, size_t n, size_t size) {
    if (n <= *cap) return 0;
    size_t more = MAX(n, MAX(*cap * 2, 64));
    void *grown = mem_resize(*items, more, size);
    if (!grown) return ICP_ENOMEM;
    *items = grown;
    *cap = more;
    return 0;
}

int merge_reserve(merge_work *work, size_t n) {
    work->n = work->n_heap = 0;
    return reserve((void **)&work->symbols, &work->symbols_cap, n, sizeof *work->symbols);
}

void merge_add(merge_work *work, uint32_t at, uint32_t len, int32_t id) {
    uint32_t i = (uint32_t)work->n++;
    work->symbols[i] = (merge_symbol){
        .at = at, .len = len, .id = id, .prev = i ? i - 1 : MERGE_END, .next = MERGE_END};
    if (i) work->symbols[i - 1].next = i;
}

void merge_fini(merge_work *work) {
    mem_free(work->symbols);
    mem_free(work->heap);
    *work = (merge_work){0};
}

static int heap_push(merge_work *work, merge_candidate c) {
    TRY(reserve((void **)&work->heap, &work->heap_cap, work->n_heap + 1, sizeof *work->heap));
    size_t i = work->n_heap++;
    for (; i && c.order < work->heap[(i - 1) / 2].order; i = (i - 1) / 2)
        work->heap[i] = work->heap[(i - 1) / 2];
    work->heap[i] = c;
    return 0;
}

static merge_candidate heap_pop(merge_work *work) {
    merge_candidate *heap = work->heap, top = heap[0], last = heap[--work->n_heap];
    size_t n = work->n_heap, i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order) child++;
        if (last.order <= heap[child].order) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* Enters the pair of symbol left and its successor, if there is one and it may be joined. */
static int consider(merge_work *work, const tokenizer *t, const char *text, merge_join *join,
                    uint32_t left) {
    const merge_symbol *l = &work->symbols[left];
    if (l->next == MERGE_END) return 0;
    const merge_symbol *r = &work->symbols[l->next];
    merge_candidate c = {.len = l->len + r->len};
    uint32_t order;
    if (!join(t, text, l, r, &c.id, &order)) return 0;
    c.order = (uint64_t)order << 32 | left;
    return heap_push(work, c);
}

int merge_run(merge_work *work, const tokenizer *t, const char *text, merge_join *join) {
    merge_symbol *symbols = work->symbols;
    for (size_t i = 0; i + 1 < work->n; i++) TRY(consider(work, t, text, join, (uint32_t)i));
    while (work->n_heap) {
        merge_candidate c = heap_pop(work);
        uint32_t left = (uint32_t)c.order;
        merge_symbol *l = &symbols[left];
        if (!l->len || l->next == MERGE_END) continue;
        merge_symbol *r = &symbols[l->next];
        if (l->len + r->len != c.len) continue;

        l->len = c.len;
        l->id = c.id;
        l->next = r->next;
        r->len = 0;
        if (l->next != MERGE_END) symbols[l->next].prev = left;
        if (l->prev != MERGE_END) TRY(consider(work, t, text, join, l->prev));
        TRY(consider(work, t, text, join, left));
    }
    return 0;
}

bool merge_by_rule(const tokenizer *t, const char *text, const merge_symbol *left,
                   const merge_symbol *right, int32_t *id, uint32_t *order) {
    if (left->id < 0 || right->id < 0) return false;
    const merge_rule *rule = rule_table_find(&t->rules, left->id, right->id);
    if (!rule) return false;
    *id = rule->joined;
    *order = rule->rank;
    return true;
}
