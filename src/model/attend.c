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
 * Deep spans that begin with the same pages, sequences with a common prefix, read them once: the
 * first of them leads, and its tiles of these super-chunks take the others' rows along.
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
    int chunk;    /* of a deep tile, counted from the first one that the span sees */
} tile;

/* Query rows against one super-chunk. */
typedef struct rows {
    int n;
    const float *q[ATTEND_ROWS];
    int begin[ATTEND_ROWS], end[ATTEND_ROWS];
    float *partial[ATTEND_ROWS];
} rows;

static int group_of(const shape *s) {
    return s->n_head / s->n_head_kv;
}

/* Tokens of a wide tile: its rows fit ATTEND_ROWS. */
static int wide_tokens(const shape *s) {
    return MAX(1, MIN(WIDE_TOKENS, ATTEND_ROWS / group_of(s)));
}

/* The positions [begin, end) that a token of a span sees; an encoder's windows look both ways. */
typedef struct range {
    size_t begin, end;
} range;

static range seen_by(const pass *p, const model_span *s, int token) {
    size_t pos = s->pos + (size_t)token, window = (size_t)p->shape->window;
    size_t begin = window && pos >= window ? pos + 1 - window : 0,
           all = s->pos + (size_t)s->n_tokens;
    if (window && !p->m->h.causal)
        return (range){pos > window / 2 ? pos - window / 2 : 0, MIN(pos + window / 2 + 1, all)};
    if (window && p->m->h.arch->chunked) begin = pos / window * window;
    return (range){begin, p->m->h.causal ? pos + 1 : all};
}

/* The super-chunks that tokens [first, first + n) of a span see something of. */
static range chunks_of(const pass *p, const model_span *s, int first, int n) {
    return (range){seen_by(p, s, first).begin / KERN_CHUNK,
                   (seen_by(p, s, first + n - 1).end + KERN_CHUNK - 1) / KERN_CHUNK};
}

static int count(range r) {
    return (int)(r.end - r.begin);
}

static int n_parts_of(const pass *p, int span) {
    const model_span *s = &p->spans[span];
    if (p->plan[span].deep) return count(chunks_of(p, s, 0, s->n_tokens)) - p->plan[span].n_led;
    return (s->n_tokens + wide_tokens(p->shape) - 1) / wide_tokens(p->shape);
}

size_t attend_thread_size(const shape *s, size_t n_ctx) {
    size_t chunks = (n_ctx + KERN_CHUNK - 1) / KERN_CHUNK;
    size_t slots = (size_t)wide_tokens(s) * (size_t)group_of(s) * chunks;
    return kern_attend_scratch(s->d_k, s->d_v) +
           slots * kern_partial_floats(s->d_v) * sizeof(float);
}

/* The super-chunks before both spans that consist of the same pages. */
static int count_shared(const model_span *a, const model_span *b) {
    size_t n = MIN(a->pos, b->pos) / KERN_CHUNK * KERN_CHUNK_PAGES, i = 0;
    while (i < n && a->pages[i] == b->pages[i]) i++;
    return (int)(i / KERN_CHUNK_PAGES);
}

void attend_find_shared(pass *p) {
    if (!p->m->info.page_size) return;
    for (int i = 0; i < p->n_spans; i++) {
        span_plan *plan = &p->plan[i];
        plan->lead = i;
        plan->n_shared = 0;
        for (int j = 0; j < i; j++) {
            if (p->plan[j].lead != j || p->spans[j].n_tokens > DEEP_TOKENS) continue;
            int n = count_shared(&p->spans[j], &p->spans[i]);
            if (n <= plan->n_shared) continue;
            plan->n_shared = n;
            plan->lead = j;
        }
    }
}

/* Lets a deep span be led, if the leader's tiles have room for its rows. A window would have each
 * span begin elsewhere, and is short. */
static void follow(pass *p, int span) {
    span_plan *plan = &p->plan[span], *lead = &p->plan[plan->lead];
    int rows = p->spans[span].n_tokens * group_of(p->shape);
    plan->n_led = 0;
    plan->n_rows = rows;
    if (lead == plan || !plan->deep || !lead->deep || p->shape->window) return;
    if (lead->n_rows + rows > ATTEND_ROWS) return;
    lead->n_rows += rows;
    plan->n_led = plan->n_shared;
}

/* Fills first_tile, deep, slot and n_led, for the current layer. */
static void plan_tiles(pass *p) {
    const shape *shape = p->shape;
    size_t budget = PARTIALS_BUDGET / (kern_partial_floats(shape->d_v) * sizeof(float));
    size_t slots = 0;
    int tiles = 0;
    for (int i = 0; i < p->n_spans; i++) {
        const model_span *s = &p->spans[i];
        span_plan *plan = &p->plan[i];
        size_t need = (size_t)s->n_tokens * (size_t)shape->n_head *
                      (size_t)count(chunks_of(p, s, 0, s->n_tokens));
        plan->deep = s->n_tokens <= DEEP_TOKENS && s->n_tokens * group_of(shape) <= ATTEND_ROWS &&
                     slots + need <= budget;
        plan->slot = slots;
        plan->first_tile = tiles;
        if (plan->deep) slots += need;
        follow(p, i);
        tiles += shape->n_head_kv * n_parts_of(p, i);
    }
    p->plan[p->n_spans].first_tile = tiles;
}

static tile find_tile(const pass *p, int index) {
    int span = pass_find_span(p, offsetof(span_plan, first_tile), index);
    int n_parts = n_parts_of(p, span), at = index - p->plan[span].first_tile;
    int part = n_parts - 1 - at % n_parts; /* the longest part first */
    tile t = {&p->spans[span], &p->plan[span], at / n_parts, 0, p->spans[span].n_tokens, part};
    t.chunk += t.plan->n_led;
    if (t.plan->deep) return t;
    t.first = part * wide_tokens(p->shape);
    t.n = MIN(wide_tokens(p->shape), t.n - t.first);
    return t;
}

/* Adds the rows of tokens [first, first + n) of a span, token by token, query head by query head;
 * their partials are the caller's to set. */
static void add_rows(const pass *p, rows *to, const tile *t, size_t chunk) {
    const shape *s = p->shape;
    const int group = group_of(s);
    const size_t base = chunk * KERN_CHUNK, limit = base + KERN_CHUNK;
    for (int i = 0; i < t->n; i++) {
        range sees = seen_by(p, t->span, t->first + i);
        const float *row =
            p->m->s.qkv + (size_t)(t->plan->first_row + t->first + i) * p->m->widths.qkv;
        for (int g = 0; g < group; g++, to->n++) {
            to->q[to->n] = row + (t->head * group + g) * s->d_k;
            to->begin[to->n] = (int)(MIN(MAX(sees.begin, base), limit) - base);
            to->end[to->n] = (int)(MIN(MAX(sees.end, base), limit) - base);
        }
    }
}

/* One super-chunk of a span's pages for rows that all have them. */
static void attend_chunk(const pass *p, const tile *t, size_t chunk, void *scratch, const rows *r) {
    const model *m = p->m;
    const shape *s = p->shape;
    size_t base = chunk * KERN_CHUNK, all = seen_by(p, t->span, t->first + t->n - 1).end;
    size_t block_at = s->kv_at + (size_t)t->head * s->kv_size;
    const void *page[KERN_CHUNK_PAGES];
    int n_pages = (int)MIN((all - base + KERN_PAGE - 1) / KERN_PAGE, (size_t)KERN_CHUNK_PAGES);
    for (int i = 0; i < n_pages; i++)
        page[i] = (const char *)t->span->pages[base / KERN_PAGE + (size_t)i] + block_at;
    m->kern.attend(&(kern_attend){.kv = m->kv,
                                  .dk = s->d_k,
                                  .dv = s->d_v,
                                  .softcap = m->h.attn_softcap,
                                  .n_pages = n_pages,
                                  .page = page,
                                  .n_rows = r->n,
                                  .q = r->q,
                                  .begin = r->begin,
                                  .end = r->end,
                                  .partial = r->partial,
                                  .scratch = scratch});
}

/* Where a deep span keeps the partials of one row and query head. */
static float *slots_of(const pass *p, const model_span *s, const span_plan *plan, size_t token,
                       size_t head) {
    size_t n_chunks = (size_t)count(chunks_of(p, s, 0, s->n_tokens));
    return p->m->s.partials + (plan->slot + (token * (size_t)p->shape->n_head + head) * n_chunks) *
                                  kern_partial_floats(p->shape->d_v);
}

static void fold(const pass *p, int n, const float *partials, int row, int head) {
    const model *m = p->m;
    int d = p->shape->d_v;
    float *out = m->s.mixed + (size_t)row * m->widths.mixed + (size_t)(head * d);
    m->kern.attend_fold(d, n, partials, kern_partial_floats(d),
                        p->layer->sinks ? p->layer->sinks[head] : -INFINITY, out);
}

/* Adds the rows of a whole deep span, whose partials go to its slots. */
static void add_span(const pass *p, rows *to, const tile *t, size_t chunk) {
    int group = group_of(p->shape), first = to->n;
    size_t at = chunk - chunks_of(p, t->span, 0, t->span->n_tokens).begin;
    add_rows(p, to, t, chunk);
    for (int i = first; i < to->n; i++)
        to->partial[i] = slots_of(p, t->span, t->plan, (size_t)((i - first) / group),
                                  (size_t)(t->head * group + (i - first) % group)) +
                         at * kern_partial_floats(p->shape->d_v);
}

static void run_deep(const pass *p, const tile *t, void *scratch) {
    rows r;
    r.n = 0;
    int lead = (int)(t->plan - p->plan);
    size_t chunk = chunks_of(p, t->span, 0, t->span->n_tokens).begin + (size_t)t->chunk;
    add_span(p, &r, t, chunk);
    for (int i = lead + 1; i < p->n_spans && r.n < t->plan->n_rows; i++) {
        const span_plan *plan = &p->plan[i];
        if (plan->lead != lead || (size_t)plan->n_led <= chunk) continue;
        tile other = {&p->spans[i], plan, t->head, 0, p->spans[i].n_tokens, t->chunk};
        add_span(p, &r, &other, chunk);
    }
    attend_chunk(p, t, chunk, scratch, &r);
}

static void run_wide(const pass *p, const tile *t, char *scratch) {
    const shape *s = p->shape;
    int group = group_of(s), n_rows = t->n * group;
    range chunks = chunks_of(p, t->span, t->first, t->n);
    size_t size = kern_partial_floats(s->d_v), row_size = (size_t)count(chunks) * size;
    float *slots = (float *)(scratch + kern_attend_scratch(s->d_k, s->d_v));
    for (size_t c = chunks.begin; c < chunks.end; c++) {
        rows r;
        r.n = 0;
        add_rows(p, &r, t, c);
        for (int i = 0; i < n_rows; i++)
            r.partial[i] = slots + (size_t)i * row_size + (c - chunks.begin) * size;
        attend_chunk(p, t, c, scratch, &r);
    }
    for (int i = 0; i < n_rows; i++)
        fold(p, count(chunks), slots + (size_t)i * row_size,
             t->plan->first_row + t->first + i / group, t->head * group + i % group);
}

static void run_tile(void *arg, int index, int thread) {
    const pass *p = arg;
    tile t = find_tile(p, index);
    char *scratch = p->m->s.thread + (size_t)thread * p->m->widths.thread;
    if (t.plan->deep)
        run_deep(p, &t, scratch);
    else
        run_wide(p, &t, scratch);
}

/* Folds the slots of one row of a deep span. */
static void fold_row(const pass *p, int span, int row) {
    const model_span *s = &p->spans[span];
    const span_plan *plan = &p->plan[span];
    int n = count(chunks_of(p, s, 0, s->n_tokens));
    for (int head = 0; head < p->shape->n_head; head++)
        fold(p, n, slots_of(p, s, plan, (size_t)(row - plan->first_row), (size_t)head), row, head);
}

void attend_layer(pass *p) {
    plan_tiles(p);
    pool_run(p->m->pool, p->plan[p->n_spans].first_tile, run_tile, p);
    for (int i = 0; i < p->n_spans; i++)
        for (int t = 0; p->plan[i].deep && t < p->spans[i].n_tokens; t++)
            fold_row(p, i, p->plan[i].first_row + t);
}
