/* Attention over pages, split by output only.
 *
 *   super-chunk   512 tokens (8 pages) at absolute positions: the unit of partial results
 *   partial       (m, l, o[d]) of one query row over one super-chunk
 *
 * Partials are formed by one kernel and folded in ascending order, whoever computes them, so that
 * bits depend on neither tiles nor threads. Two ways to split the work:
 *
 *   deep   few rows (decode): a tile is (span, KV head, super-chunk); partials go to shared slots
 *          and are folded in a second loop
 *   wide   many rows (prefill), or when slots run short: a tile is (span, KV head, some tokens),
 *          which walks the super-chunks and folds by itself
 *
 * All query heads that share a KV head, and all tokens of a tile, go through a page together. */
#include "model_internal.h"

#include <math.h>

enum { DEEP_TOKENS = 8, WIDE_TOKENS = 16 };

typedef struct tile {
    const model_span *span;
    const span_plan *plan;
    int head;     /* KV head */
    int first, n; /* tokens [first, first + n) of the span */
    int chunk;    /* of a deep tile */
} tile;

static int group_of(const model *m) {
    return m->h.n_head / m->h.n_head_kv;
}

/* Tokens of a wide tile: its rows fit ATTEND_ROWS. */
static int wide_tokens(const model *m) {
    return MAX(1, MIN(WIDE_TOKENS, ATTEND_ROWS / group_of(m)));
}

static int n_chunks_to(size_t end) {
    return (int)((end + KERN_CHUNK - 1) / KERN_CHUNK);
}

static int n_parts_of(const pass *p, int span) {
    const model_span *s = &p->spans[span];
    if (p->plan[span].deep) return n_chunks_to(s->pos + (size_t)s->n_tokens);
    return (s->n_tokens + wide_tokens(p->m) - 1) / wide_tokens(p->m);
}

size_t attend_thread_size(const model *m) {
    size_t slots =
        (size_t)wide_tokens(m) * (size_t)group_of(m) * (size_t)n_chunks_to(m->info.n_ctx);
    return kern_attend_scratch(m->h.head_dim, m->h.head_dim) +
           slots * kern_partial_floats(m->h.head_dim) * sizeof(float);
}

void attend_plan(pass *p) {
    const model *m = p->m;
    size_t slots = 0;
    int tiles = 0;
    for (int i = 0; i < p->n_spans; i++) {
        const model_span *s = &p->spans[i];
        span_plan *plan = &p->plan[i];
        size_t need = (size_t)s->n_tokens * (size_t)m->h.n_head *
                      (size_t)n_chunks_to(s->pos + (size_t)s->n_tokens);
        plan->deep = s->n_tokens <= DEEP_TOKENS && s->n_tokens * group_of(m) <= ATTEND_ROWS &&
                     slots + need <= m->s.n_partials;
        plan->slot = slots;
        plan->first_tile = tiles;
        if (plan->deep) slots += need;
        tiles += m->h.n_head_kv * n_parts_of(p, i);
    }
    p->plan[p->n_spans].first_tile = tiles;
}

static tile find_tile(const pass *p, int index) {
    int span = pass_find_span(p, offsetof(span_plan, first_tile), index);
    int n_parts = n_parts_of(p, span), at = index - p->plan[span].first_tile;
    int part = n_parts - 1 - at % n_parts; /* the longest part first */
    tile t = {&p->spans[span], &p->plan[span], at / n_parts, 0, p->spans[span].n_tokens, part};
    if (t.plan->deep) return t;
    t.first = part * wide_tokens(p->m);
    t.n = MIN(wide_tokens(p->m), t.n - t.first);
    return t;
}

/* One super-chunk for the rows of a tile (token by token, query head by query head); partial[r]
 * receives row r. */
static void attend_chunk(const pass *p, const tile *t, int chunk, void *scratch,
                         float *const *partial) {
    const model *m = p->m;
    int d = m->h.head_dim, group = group_of(m);
    size_t begin = (size_t)chunk * KERN_CHUNK, end = t->span->pos + (size_t)(t->first + t->n);
    size_t block_at = p->layer_at + (size_t)t->head * m->kv_size;
    const void *page[KERN_CHUNK_PAGES];
    int n_pages = (int)MIN((end - begin + KERN_PAGE - 1) / KERN_PAGE, (size_t)KERN_CHUNK_PAGES);
    for (int i = 0; i < n_pages; i++)
        page[i] = (const char *)t->span->pages[begin / KERN_PAGE + (size_t)i] + block_at;

    const float *q[ATTEND_ROWS];
    int visible[ATTEND_ROWS];
    static const int first[ATTEND_ROWS];
    size_t stride = (size_t)(m->h.n_head + 2 * m->h.n_head_kv) * (size_t)d;
    for (int i = 0, r = 0; i < t->n; i++) {
        size_t sees = t->span->pos + (size_t)(t->first + i) + 1; /* itself and all before it */
        const float *row = m->s.qkv + (size_t)(t->plan->first_row + t->first + i) * stride;
        for (int g = 0; g < group; g++, r++) {
            q[r] = row + (t->head * group + g) * d;
            visible[r] = sees <= begin ? 0 : (int)MIN(sees - begin, (size_t)KERN_CHUNK);
        }
    }
    m->kern.attend(&(kern_attend){.kv = m->kv,
                                  .dk = d,
                                  .dv = d,
                                  .n_pages = n_pages,
                                  .page = page,
                                  .n_rows = t->n * group,
                                  .q = q,
                                  .begin = first,
                                  .end = visible,
                                  .partial = partial,
                                  .scratch = scratch});
}

/* Where a deep span keeps the partials of one row and query head. */
static float *slots_of(const pass *p, const model_span *s, const span_plan *plan, size_t token,
                       size_t head) {
    size_t n_chunks = (size_t)n_chunks_to(s->pos + (size_t)s->n_tokens);
    return p->m->s.partials + (plan->slot + (token * (size_t)p->m->h.n_head + head) * n_chunks) *
                                  kern_partial_floats(p->m->h.head_dim);
}

static float *mixed_of(const model *m, int row, int head) {
    return m->s.mixed + ((size_t)row * (size_t)m->h.n_head + (size_t)head) * (size_t)m->h.head_dim;
}

static void run_deep(const pass *p, const tile *t, void *scratch) {
    int group = group_of(p->m);
    float *partial[ATTEND_ROWS];
    for (int r = 0; r < t->n * group; r++)
        partial[r] = slots_of(p, t->span, t->plan, (size_t)(r / group),
                              (size_t)(t->head * group + r % group)) +
                     (size_t)t->chunk * kern_partial_floats(p->m->h.head_dim);
    attend_chunk(p, t, t->chunk, scratch, partial);
}

static void run_wide(const pass *p, const tile *t, char *scratch) {
    const model *m = p->m;
    int group = group_of(m), n_chunks = n_chunks_to(t->span->pos + (size_t)(t->first + t->n));
    size_t size = kern_partial_floats(m->h.head_dim), row_size = (size_t)n_chunks * size;
    float *slots = (float *)(scratch + kern_attend_scratch(m->h.head_dim, m->h.head_dim));
    float *partial[ATTEND_ROWS];
    for (int c = 0; c < n_chunks; c++) {
        for (int r = 0; r < t->n * group; r++)
            partial[r] = slots + (size_t)r * row_size + (size_t)c * size;
        attend_chunk(p, t, c, scratch, partial);
    }
    for (int r = 0; r < t->n * group; r++)
        m->kern.attend_fold(
            m->h.head_dim, n_chunks, slots + (size_t)r * row_size, size, -INFINITY,
            mixed_of(m, t->plan->first_row + t->first + r / group, t->head * group + r % group));
}

static void run_tile(void *arg, int index, int thread) {
    const pass *p = arg;
    tile t = find_tile(p, index);
    char *scratch = p->m->s.thread + (size_t)thread * p->m->s.thread_size;
    if (t.plan->deep)
        run_deep(p, &t, scratch);
    else
        run_wide(p, &t, scratch);
}

/* Folds the slots of one row of a deep span. */
static void fold_row(const pass *p, int span, int row) {
    const model *m = p->m;
    const model_span *s = &p->spans[span];
    size_t token = (size_t)(row - p->plan[span].first_row);
    for (int h = 0; h < m->h.n_head; h++)
        m->kern.attend_fold(m->h.head_dim, n_chunks_to(s->pos + token + 1),
                            slots_of(p, s, &p->plan[span], token, (size_t)h),
                            kern_partial_floats(m->h.head_dim), -INFINITY, mixed_of(m, row, h));
}

void attend_layer(pass *p) {
    pool_run(p->m->pool, p->plan[p->n_spans].first_tile, run_tile, p);
    for (int i = 0; i < p->n_spans; i++)
        for (int t = 0; p->plan[i].deep && t < p->spans[i].n_tokens; t++)
            fold_row(p, i, p->plan[i].first_row + t);
}
