/* Products: rows of activations times matrices, cut into tiles of outputs, several products as one
 * loop. An input row stands in every form that the matrices which take it need (kern_form). */
#include "model_internal.h"

enum { GEMM_ROWS = 128, FEW_ROWS = 16 };
enum { SMALL_TILES = 6 }; /* of a thread's share */
enum { LARGE_TILE = 2 };  /* small ones: more would wait longer for a thread that others hold up */
enum { FINE_ROWS = 32, FINE_GROUPS = 8, FINE_OUTPUTS = FINE_GROUPS * KERN_GROUP };

/* Products stand one after the other in units: a row group times a tile of rows. In a product,
 * `groups` row groups take turns with the tiles of rows. Of few rows each thread gets a large tile,
 * whose weights it can fetch ahead, and what is left goes in small ones to whoever has time. */
typedef struct product_loop {
    const pass *p;
    const product *list;
    int n, n_units;
    int groups;  /* units of a small tile */
    int n_large; /* tiles, which come first */
} product_loop;

static int row_tiles(const product *pr) {
    return (pr->n_rows + GEMM_ROWS - 1) / GEMM_ROWS;
}

static int units_of(const product *pr, int groups) {
    int n = kern_n_groups(pr->w->n), rows = row_tiles(pr);
    return rows == 1 ? n : (n + groups - 1) / groups * groups * rows;
}

static int first_unit(const product_loop *l, int tile) {
    int64_t small = tile + (int64_t)MIN(tile, l->n_large) * (LARGE_TILE - 1);
    return (int)MIN(small * l->groups, l->n_units);
}

/* Rows [row, row + n) of a fine product: both halves of an input go through the weights together,
 * a few groups at a time, and their results are added. */
static void run_fine(const pass *p, const product *pr, int row, int n, int group, int n_groups,
                     float *both) {
    const kern_mat *w = pr->w;
    kern_mat part = {w->type, MIN(n_groups * KERN_GROUP, w->n - group * KERN_GROUP), w->k,
                     (char *)w->data + kern_mat_size(w->type, group * KERN_GROUP, w->k)};
    p->m->kern.gemm(&part, pr->act + 2 * (size_t)row * pr->act_stride, pr->act_stride, 2 * n, both,
                    FINE_OUTPUTS, false, 0, kern_n_groups(part.n));
    for (int i = 0; i < n; i++, both += 2 * FINE_OUTPUTS)
        p->m->kern.add(part.n, both, both + FINE_OUTPUTS,
                       pr->out + (size_t)(row + i) * pr->out_stride + group * KERN_GROUP);
}

static void run_fine_tile(const pass *p, const product *pr, int row0, int group0, int group1,
                          float *both) {
    int row1 = MIN(row0 + GEMM_ROWS, pr->n_rows);
    for (int row = row0; row < row1; row += FINE_ROWS)
        for (int group = group0; group < group1; group += FINE_GROUPS)
            run_fine(p, pr, row, MIN(FINE_ROWS, row1 - row), group,
                     MIN(FINE_GROUPS, group1 - group), both);
}

static void run_groups(const product_loop *l, const product *pr, int row0, int group0, int group1,
                       int thread) {
    if (pr->fine) {
        void *both = l->p->m->s.thread + (size_t)thread * l->p->m->widths.thread;
        run_fine_tile(l->p, pr, row0, group0, group1, both);
        return;
    }
    l->p->m->kern.gemm(pr->w, pr->act + (size_t)row0 * pr->act_stride, pr->act_stride,
                       MIN(GEMM_ROWS, pr->n_rows - row0), pr->out + (size_t)row0 * pr->out_stride,
                       pr->out_stride, pr->add, group0, group1);
}

/* Units [at, end) of a product. */
static void run_units(const product_loop *l, const product *pr, int at, int end, int thread) {
    const int rows = row_tiles(pr), n_groups = kern_n_groups(pr->w->n);
    while (at < end) {
        int turn = at / l->groups, group = turn / rows * l->groups + at % l->groups;
        int n = rows == 1 ? end - at : MIN(end - at, l->groups - at % l->groups);
        if (group < n_groups)
            run_groups(l, pr, turn % rows * GEMM_ROWS, group, MIN(group + n, n_groups), thread);
        at += n;
    }
}

static void run_tile(void *arg, int tile, int thread) {
    const product_loop *l = arg;
    int at = first_unit(l, tile), end = first_unit(l, tile + 1);
    int low = 0, high = l->n - 1; /* the last product that begins at or before `at` */
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (l->list[mid].first_unit <= at)
            low = mid;
        else
            high = mid - 1;
    }
    for (; at < end; low++) {
        int next = low + 1 < l->n ? l->list[low + 1].first_unit : l->n_units;
        int first = l->list[low].first_unit, until = MIN(end, next);
        run_units(l, &l->list[low], at - first, until - first, thread);
        at = until;
    }
}

/* Whether all have few rows, so that weights are what takes time. */
static bool have_few_rows(const product *list, int n) {
    for (int i = 0; i < n; i++)
        if (list[i].n_rows > FEW_ROWS) return false;
    return true;
}

void product_run(const pass *p, product *list, int n) {
    product_loop l = {.p = p, .list = list, .n = n};
    int work = 0, n_threads = pool_threads(p->m->pool), wanted = n_threads * SMALL_TILES;
    for (int i = 0; i < n; i++) work += kern_n_groups(list[i].w->n) * row_tiles(&list[i]);
    l.groups = MAX(2, (work + wanted - 1) / wanted);
    l.groups += l.groups % 2; /* kernels take two at once */
    for (int i = 0; i < n; i++) {
        list[i].first_unit = l.n_units;
        l.n_units += units_of(&list[i], l.groups);
    }
    int tiles = (l.n_units + l.groups - 1) / l.groups; /* if all are small */
    if (have_few_rows(list, n) && tiles >= n_threads * LARGE_TILE) l.n_large = n_threads;
    pool_run(p->m->pool, tiles - l.n_large * (LARGE_TILE - 1), run_tile, &l);
    if (p->adapted) adapter_run(p, list, n);
}

char *product_rows(const pass *p, const kern_mat *w) {
    size_t form = kern_form_of(w->type);
    return p->m->s.act + form * (size_t)p->m->s.max_tokens * p->m->widths.act;
}

void product_put_form(const pass *p, const kern_mat *w, int row, const float *x,
                      bool done[N_FORMS]) {
    enum kern_form form = kern_form_of(w->type);
    size_t stride = kern_act_stride(w->type, w->k);
    if (w->n == 0 || done[form]) return;
    p->m->kern.act_row(w->type, w->k, x, product_rows(p, w) + (size_t)row * stride);
    done[form] = true;
}

void product_put(const pass *p, linear *const *list, int n, int row, const float *x) {
    bool done[N_FORMS] = {0};
    for (int i = 0; i < n; i++) product_put_form(p, &list[i]->w, row, x, done);
    if (p->adapted) adapter_put(p, list, n, row, x, done);
}

void product_put_one(const pass *p, linear *l, int row, const float *x) {
    product_put(p, &l, 1, row, x);
}

static bool is_fine(const kern_mat *w) {
    return w->n && kern_form_of(w->type) != KERN_FORM_FLOAT;
}

size_t product_fine_row_size(const kern_mat *w) {
    return is_fine(w) ? 2 * kern_act_stride(w->type, w->k) : 0;
}

size_t product_fine_size(void) {
    return 2 * FINE_ROWS * FINE_OUTPUTS * sizeof(float);
}

void product_put_fine(const pass *p, linear *l, int row, float *x) {
    const kern_mat *w = &l->w;
    if (!is_fine(w)) {
        product_put_one(p, l, row, x);
        return;
    }
    size_t stride = kern_act_stride(w->type, w->k);
    char *to = p->m->s.fine + 2 * (size_t)row * stride;
    if (p->adapted) adapter_put(p, &l, 1, row, x, (bool[N_FORMS]){0});
    p->m->kern.act_row(w->type, w->k, x, to);
    kern_act_rest(w->type, w->k, to, x);
    p->m->kern.act_row(w->type, w->k, x, to + stride);
}

product product_of(const pass *p, const linear *l, float *out, size_t out_stride, int n_rows,
                   bool add) {
    return (product){.w = &l->w,
                     .of = l->place ? l : NULL,
                     .act = product_rows(p, &l->w),
                     .act_stride = kern_act_stride(l->w.type, l->w.k),
                     .out = out,
                     .out_stride = out_stride,
                     .n_rows = n_rows,
                     .add = add};
}

product product_of_fine(const pass *p, const linear *l, float *out, size_t out_stride, int n_rows) {
    product pr = product_of(p, l, out, out_stride, n_rows, false);
    pr.fine = is_fine(&l->w);
    if (pr.fine) pr.act = p->m->s.fine;
    return pr;
}

void product_run_one(const pass *p, const linear *l, float *out, size_t out_stride, int n_rows,
                     bool add) {
    product pr = product_of(p, l, out, out_stride, n_rows, add);
    product_run(p, &pr, 1);
}

int layer_attention_inputs(layer *l, bool compressed, linear *list[N_INPUTS]) {
    linear *const all[] = {compressed ? &l->q_a : &l->q,
                           &l->kv_a,
                           &l->k,
                           &l->v,
                           &l->mix_in,
                           &l->mix_gate,
                           &l->beta_alpha,
                           &l->beta,
                           &l->alpha};
    for (size_t i = 0; i < COUNT_OF(all); i++) list[i] = all[i];
    return COUNT_OF(all);
}

int layer_feed_forward_inputs(layer *l, linear *list[N_INPUTS]) {
    linear *const all[] = {&l->router, &l->shared_gate, &l->ffn.gate, &l->ffn.up};
    int n = COUNT_OF(all);
    for (int i = 0; i < n; i++) list[i] = all[i];
    if (!l->experts) return n;
    list[n++] = &l->experts->gate;
    list[n++] = &l->experts->up;
    return n;
}
