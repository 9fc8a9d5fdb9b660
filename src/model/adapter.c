/* Adapters of low rank (LoRA; Hu et al. 2021, arXiv 2106.09685): what a matrix w makes of a row x
 * becomes w x + s · b (a x), where s is the row's scale times alpha / rank.
 *
 *   x ──▶ w ───────────────────────────────────────▶ (+) ──▶ result
 *   └───▶ a ──▶ low [rows][input][rank] ─ · s ─▶ b ───┘
 *
 * The matrices stay apart, so that the rows of one pass may have other scales, or none. Each row
 * goes through the same chains, whoever goes with it: products as everywhere, s rounded once and
 * multiplied once, adapters in the order of their numbers. Runs of rows to which an adapter applies
 * are products of their own; a pass without such rows comes here once, in model_forward.
 *
 * `low` holds N_INPUTS inputs of a row side by side: those of the products that run as one loop. */
#include "model_internal.h"

#include <math.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MAX_RANK = 4096 };

/* ---- a pass ---------------------------------------------------------------------------------- */

/* Rows of a product: those of a span's tokens, or of its logits. */
typedef struct rows {
    int first, n;
} rows;

static bool is_output(const pass *p, const linear *l) {
    return l == &p->m->w.output;
}

static rows rows_of(const pass *p, const linear *l, int span) {
    if (is_output(p, l)) return (rows){p->plan[span].first_logit, p->spans[span].n_logits};
    return (rows){p->plan[span].first_row, p->spans[span].n_tokens};
}

static float scale_of(const pass *p, int span, int adapter) {
    const float *scales = p->spans[span].scales;
    return scales ? scales[adapter] : 0;
}

static int span_of(const pass *p, const linear *l, int row) {
    size_t field =
        is_output(p, l) ? offsetof(span_plan, first_logit) : offsetof(span_plan, first_row);
    return pass_find_span(p, field, row);
}

static const low_rank *pair_of(const pass *p, int adapter, const linear *l) {
    const low_rank *pair = l && l->place ? &p->m->adapters[adapter].pairs[l->place - 1] : NULL;
    return pair && pair->a.n ? pair : NULL;
}

void adapter_put(const pass *p, linear *const *list, int n, int row, const float *x,
                 bool done[N_FORMS]) {
    for (int i = 0; i < n; i++)
        for (int a = 0; list[i]->place && a < p->m->info.n_adapters; a++) {
            const low_rank *pair = pair_of(p, a, list[i]);
            if (pair && scale_of(p, span_of(p, list[i], row), a) != 0)
                product_put_form(p, &pair->a, row, x, done);
        }
}

/* One adapter's products for those of a list. */
typedef struct detour {
    const pass *p;
    int adapter, n;
    product *down, *up; /* n each: into the small space, and out of it */
} detour;

static void add_run(detour *d, const product *of, int input, rows run) {
    const model *m = d->p->m;
    const low_rank *pair = pair_of(d->p, d->adapter, of->of);
    size_t first = (size_t)run.first, stride = kern_act_stride(pair->a.type, pair->a.k);
    float *low = m->s.low + first * m->widths.low + (size_t)input * (m->widths.low / N_INPUTS);
    char *act =
        m->s.low_act + first * m->widths.low_act + (size_t)input * (m->widths.low_act / N_INPUTS);
    d->down[d->n] = (product){.w = &pair->a,
                              .act = product_rows(d->p, &pair->a) + first * stride,
                              .act_stride = stride,
                              .out = low,
                              .out_stride = m->widths.low,
                              .n_rows = run.n};
    d->up[d->n++] = (product){.w = &pair->b,
                              .of = of->of,
                              .act = act,
                              .act_stride = m->widths.low_act,
                              .out = of->out + first * of->out_stride,
                              .out_stride = of->out_stride,
                              .n_rows = run.n,
                              .add = true};
}

/* Neighbouring spans to which the adapter applies are one run. */
static void add_runs(detour *d, const product *of, int input) {
    const pass *p = d->p;
    rows run = {0};
    if (!pair_of(p, d->adapter, of->of)) return;
    for (int i = 0; i < p->n_spans; i++) {
        rows span = rows_of(p, of->of, i);
        if (scale_of(p, i, d->adapter) == 0) span.n = 0;
        if (run.n && (!span.n || span.first != run.first + run.n)) {
            add_run(d, of, input, run);
            run.n = 0;
        }
        if (span.n) run = (rows){run.n ? run.first : span.first, run.n + span.n};
    }
    if (run.n) add_run(d, of, input, run);
}

/* low · s, in the form that b takes. */
static void scale_rows(void *arg, int tile, int thread) {
    const detour *d = arg;
    const model *m = d->p->m;
    const product *down = &d->down[tile];
    product *up = &d->up[tile];
    const low_rank *pair = pair_of(d->p, d->adapter, up->of);
    int first = (int)((size_t)(down->out - m->s.low) / m->widths.low);
    for (int i = 0; i < down->n_rows; i++) {
        float *low = down->out + (size_t)i * down->out_stride;
        int span = span_of(d->p, up->of, first + i);
        m->kern.scale(pair->a.n, low, scale_of(d->p, span, d->adapter) * pair->scale, low);
        m->kern.act_row(pair->b.type, pair->b.k, low,
                        m->s.low_act + (up->act - m->s.low_act) + (size_t)i * up->act_stride);
    }
    up->of = NULL; /* nothing applies to what an adapter adds */
}

void adapter_run(const pass *p, const product *list, int n) {
    const scratch *s = &p->m->s;
    for (int a = 0; a < p->m->info.n_adapters; a++) {
        detour d = {p, a, 0, s->low_products, s->low_products + N_INPUTS * s->max_tokens};
        for (int i = 0; i < n; i++) add_runs(&d, &list[i], i);
        if (d.n == 0) continue;
        product_run(p, d.down, d.n);
        pool_run(p->m->pool, d.n, scale_rows, &d);
        product_run(p, d.up, d.n);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

typedef struct opening {
    model *m;
    const gguf *g;
    icp_error *err;
    adapter *to;
    const gguf_tensor *(*tensors)[2]; /* a and b, one pair a place */
} opening;

static bool equals(gguf_str s, const char *text) {
    return s.data && s.len == strlen(text) && !memcmp(s.data, text, s.len);
}

static int check_kind(const opening *o, float *alpha) {
    gguf_str type = gguf_string(o->g, "general.type"), kind = gguf_string(o->g, "adapter.type");
    gguf_str arch = gguf_string(o->g, "general.architecture");
    if (!equals(type, "adapter") || !equals(kind, "lora"))
        return error_set(o->err, ICP_EFORMAT,
                         "general.type is \"%.*s\" and adapter.type \"%.*s\"; a LoRA adapter has "
                         "\"adapter\" and \"lora\"",
                         (int)MIN(type.len, (size_t)64), type.data ? type.data : "",
                         (int)MIN(kind.len, (size_t)64), kind.data ? kind.data : "");
    if (!equals(arch, o->m->h.arch->name))
        return error_set(
            o->err, ICP_EFORMAT, "the adapter is for architecture \"%.*s\", the model is of \"%s\"",
            (int)MIN(arch.len, (size_t)64), arch.data ? arch.data : "", o->m->h.arch->name);
    if (gguf_find(o->g, "adapter.alora.invocation_tokens"))
        return error_set(o->err, ICP_EUNSUPPORTED,
                         "the adapter applies only after certain tokens "
                         "(adapter.alora.invocation_tokens), which is not supported");
    *alpha = (float)gguf_float(o->g, "adapter.lora.alpha", 0);
    if (isfinite(*alpha)) return 0;
    return error_set(o->err, ICP_EFORMAT, "adapter.lora.alpha is %g; it must be finite",
                     (double)*alpha);
}

/* The matrix that a tensor's name begins with, and which of the pair it is. */
static bool names(const gguf_tensor *t, const place *p, int *which) {
    static const char *const suffix[] = {".lora_a", ".lora_b"};
    size_t len = strlen(p->name), tail = strlen(suffix[0]);
    if (t->name.len != len + tail || memcmp(t->name.data, p->name, len)) return false;
    for (*which = 0; *which < 2; ++*which)
        if (!memcmp(t->name.data + len, suffix[*which], tail)) return true;
    return false;
}

/* Gives each place its tensors. One matrix of a file may be several places; all names are
 * different, and what is unknown ends the search, so that it is never longer than what is known. */
static int find_tensors(const opening *o) {
    const weights *w = &o->m->w;
    for (size_t i = 0; i < gguf_n_tensors(o->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(o->g, i);
        bool known = false;
        int which;
        for (int j = 0; j < w->n_places; j++) {
            if (!names(t, &w->places[j], &which)) continue;
            o->tensors[j][which] = t;
            known = true;
        }
        if (!known)
            return error_set(o->err, ICP_EFORMAT,
                             "tensor %.*s changes no matrix of this model that an adapter can "
                             "change: is it for another one?",
                             (int)MIN(t->name.len, (size_t)TENSOR_NAME), t->name.data);
    }
    return 0;
}

static int check_shape(const opening *o, const gguf_tensor *t, uint64_t k, uint64_t n) {
    if (t->dims[0] != k || t->dims[1] != n || t->dims[2] != 1 || t->dims[3] != 1)
        return error_set(o->err, ICP_EFORMAT,
                         "tensor %.*s is %llu x %llu; for this model it must be %llu x %llu: is it "
                         "for another one?",
                         (int)t->name.len, t->name.data, (unsigned long long)t->dims[0],
                         (unsigned long long)t->dims[1], (unsigned long long)k,
                         (unsigned long long)n);
    return kern_type_known((int)t->type) ? 0 : loader_refuse_type(o->err, t);
}

static int check_pair(const opening *o, int i, float alpha, size_t *size) {
    const place *p = &o->m->w.places[i];
    const gguf_tensor *a = o->tensors[i][0], *b = o->tensors[i][1];
    if (!a && !b) return 0;
    if (!a || !b)
        return error_set(o->err, ICP_EFORMAT, "tensor %s%s has no %s beside it", p->name,
                         a ? ".lora_a" : ".lora_b", a ? ".lora_b" : ".lora_a");
    uint64_t rank = a->dims[1];
    if (rank > MAX_RANK)
        return error_set(o->err, ICP_ELIMIT, "tensor %s.lora_a is of rank %llu; at most %d",
                         p->name, (unsigned long long)rank, MAX_RANK);
    TRY(check_shape(o, a, (uint64_t)p->k, rank));
    TRY(check_shape(o, b, rank, (uint64_t)p->rows));
    low_rank *to = &o->to->pairs[i];
    to->a = (kern_mat){.type = (enum kern_type)a->type, .n = (int)rank, .k = p->k};
    to->b = (kern_mat){.type = (enum kern_type)b->type, .n = p->n, .k = (int)rank};
    to->scale = alpha != 0 ? alpha / (float)rank : 1;
    *size += kern_mat_size(to->a.type, to->a.n, to->a.k);
    *size += kern_mat_size(to->b.type, to->b.n, to->b.k);
    return 0;
}

static void pack_pair(void *arg, int tile, int thread) {
    const opening *o = arg;
    low_rank *pair = &o->to->pairs[tile];
    const place *p = &o->m->w.places[tile];
    if (!pair->a.n) return;
    const gguf_tensor *a = o->tensors[tile][0], *b = o->tensors[tile][1];
    size_t row_size = b->size / (size_t)p->rows;
    kern_pack(&pair->a, a->data, 0, kern_n_groups(pair->a.n));
    kern_pack(&pair->b, (const char *)b->data + (size_t)p->first * row_size, 0,
              kern_n_groups(pair->b.n));
}

static void take_hash(const opening *o, float alpha) {
    XXH3_state_t state;
    XXH128_canonical_t canonical;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &alpha, sizeof alpha);
    for (size_t i = 0; i < gguf_n_tensors(o->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(o->g, i);
        XXH3_128bits_update(&state, t->name.data, t->name.len);
        XXH3_128bits_update(&state, &t->type, sizeof t->type);
        XXH3_128bits_update(&state, t->dims, sizeof t->dims);
        XXH3_128bits_update(&state, t->data, t->size);
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(o->to->hash, canonical.digest, sizeof o->to->hash);
}

static int load(opening *o) {
    float alpha = 0;
    size_t size = 0;
    adapter *to = o->to;
    int n = o->m->w.n_places;
    TRY(check_kind(o, &alpha));
    TRY(find_tensors(o));
    for (int i = 0; i < n; i++) TRY(check_pair(o, i, alpha, &size));
    if (size == 0) return error_set(o->err, ICP_EFORMAT, "the adapter has no tensors");
    to->block = mem_reserve(size);
    if (!to->block)
        return error_set(o->err, ICP_ENOMEM, "no memory for %zu MB of adapters", size >> 20);
    to->block_size = size;
    char *at = to->block;
    for (int i = 0; i < n; i++) {
        low_rank *pair = &to->pairs[i];
        pair->a.data = at;
        pair->b.data = at += kern_mat_size(pair->a.type, pair->a.n, pair->a.k);
        at += kern_mat_size(pair->b.type, pair->b.n, pair->b.k);
    }
    pool_run(o->m->pool, n, pack_pair, o);
    take_hash(o, alpha);
    return 0;
}

static void free_adapter(adapter *a) {
    mem_free(a->pairs);
    mem_unreserve(a->block, a->block_size);
}

/* Rows of a pass must have room for what the adapter takes. */
static void widen(model *m, const adapter *a) {
    widths *w = &m->widths;
    for (int i = 0; i < m->w.n_places; i++) {
        const low_rank *pair = &a->pairs[i];
        if (!pair->a.n) continue;
        w->act = MAX(w->act, kern_act_stride(pair->a.type, pair->a.k));
        w->low = MAX(w->low, N_INPUTS * (((size_t)pair->a.n + 15) & ~(size_t)15));
        w->low_act = MAX(w->low_act, N_INPUTS * kern_act_stride(pair->b.type, pair->b.k));
    }
}

int model_add_adapter(model *m, const gguf *g, icp_error *err) {
    if (m->info.n_adapters == MODEL_MAX_ADAPTERS)
        return error_set(err, ICP_ELIMIT, "at most %d adapters can be loaded", MODEL_MAX_ADAPTERS);
    size_t n = (size_t)m->info.n_adapters, places = (size_t)m->w.n_places;
    adapter *list = mem_resize(m->adapters, n + 1, sizeof *list);
    if (!list) return error_set(err, ICP_ENOMEM, "out of memory");
    m->adapters = list;
    list[n] = (adapter){.pairs = mem_zero(places, sizeof *list->pairs)};
    opening o = {.m = m, .g = g, .err = err, .to = &list[n]};
    o.tensors = mem_zero(places, sizeof *o.tensors);
    int rc = o.tensors && list[n].pairs ? load(&o) : error_set(err, ICP_ENOMEM, "out of memory");
    mem_free(o.tensors);
    if (rc < 0) {
        free_adapter(&list[n]);
        return rc;
    }
    m->info.n_adapters++;
    widen(m, &list[n]);
    return 0;
}

void adapters_fini(model *m) {
    for (int i = 0; i < m->info.n_adapters; i++) free_adapter(&m->adapters[i]);
    mem_free(m->adapters);
}

void model_adapters_digest(const model *m, const float *scales, uint8_t out[16]) {
    XXH3_state_t state;
    XXH128_canonical_t canonical;
    bool any = false;
    memset(out, 0, 16);
    XXH3_128bits_reset(&state);
    for (int i = 0; scales && i < m->info.n_adapters; i++) {
        if (scales[i] == 0) continue;
        XXH3_128bits_update(&state, m->adapters[i].hash, sizeof m->adapters[i].hash);
        XXH3_128bits_update(&state, &scales[i], sizeof scales[i]);
        any = true;
    }
    if (!any) return;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(out, canonical.digest, 16);
}
