/* Loading: every tensor is found and checked first; then one reservation is made and filled by all
 * threads. A job is one matrix or vector, a tile is a run of a matrix's row groups.
 *
 * So that peak memory stays near the size of the weights, the file's pages are given back after
 * each 64th of it, all at once: a page fault also maps neighbours (up to 64 kB, or a whole folio of
 * the page cache), which others may be done with. */
#include "model_internal.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { TILE_GROUPS = 64, ALIGN = 64, NAME = TENSOR_NAME };
enum { FORGET_TIMES = 64, LEAST_READ = 1 << 20 }; /* between two of them, bytes */

typedef struct job {
    const gguf_tensor *tensor;
    const char *from; /* the first row, within the tensor */
    size_t size;      /* of what is read there */
    kern_mat *mat;    /* repacked, or */
    float **vector;   /* n numbers as floats */
    size_t n;
    size_t at; /* offset in the block */
    int first_tile;
} job;

struct loader {
    const gguf *g;
    const model_opts *opts;
    icp_error *err;
    char prefix[16]; /* of names: "blk.N." within a layer */
    bool *used;      /* one a tensor */
    job *jobs;
    int n_jobs, max_jobs, n_tiles;
    size_t size;
    weights *w; /* for its places */
    int max_places;
    XXH128_hash_t *hashes; /* one a tile */
    _Atomic int tiles_done;
    _Atomic size_t read; /* bytes of matrices */
    size_t read_most;    /* before pages are given back */
};

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* ---- finding -------------------------------------------------------------------------------- */

void loader_set_layer(loader *l, int layer) {
    l->prefix[0] = 0;
    if (layer >= 0) snprintf(l->prefix, sizeof l->prefix, "blk.%d.", layer);
}

static const gguf_tensor *look_up(const loader *l, const char *name, const char *suffix,
                                  char full[NAME]) {
    snprintf(full, NAME, "%s%s%s", l->prefix, name, suffix);
    return gguf_find_tensor(l->g, full);
}

size_t loader_rows(const loader *l, const char *name) {
    char full[NAME];
    const gguf_tensor *t = look_up(l, name, ".weight", full);
    return t ? (size_t)t->dims[1] : 0;
}

static void mark(loader *l, const gguf_tensor *t) {
    if (t) l->used[t - gguf_tensor_at(l->g, 0)] = true;
}

void loader_ignore(loader *l, const char *name) {
    char full[NAME];
    mark(l, look_up(l, name, ".weight", full));
}

static int find(loader *l, const char *name, const char *suffix, const uint64_t dims[3], int flags,
                const gguf_tensor **out) {
    char full[NAME];
    const gguf_tensor *t = *out = look_up(l, name, suffix, full);
    if (!t && (flags & IF_THERE)) return 0;
    if (!t) return error_set(l->err, ICP_EFORMAT, "tensor %s is missing", full);
    mark(l, t);
    if (t->dims[0] == dims[0] && t->dims[1] == dims[1] && t->dims[2] == dims[2] && t->dims[3] == 1)
        return 0;
    return error_set(l->err, ICP_EFORMAT,
                     "tensor %s is %llu x %llu x %llu x %llu; it must be %llu x %llu x %llu", full,
                     (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                     (unsigned long long)t->dims[2], (unsigned long long)t->dims[3],
                     (unsigned long long)dims[0], (unsigned long long)dims[1],
                     (unsigned long long)dims[2]);
}

/* What nobody asked for would make the answers wrong, unless it is known not to matter. */
static int check_all_used(const loader *l, const hparams *h) {
    for (size_t i = 0; i < gguf_n_tensors(l->g); i++) {
        gguf_str name = gguf_tensor_at(l->g, i)->name;
        char text[NAME];
        int layer = -1;
        snprintf(text, sizeof text, "%.*s", (int)MIN(name.len, sizeof text - 1), name.data);
        bool later = sscanf(text, "blk.%d.", &layer) == 1 && layer >= h->n_layer;
        bool harmless = later || strstr(text, "rot_embd") || strstr(text, "rope_freqs") ||
                        !strncmp(text, "cls", 3);
        if (!l->used[i] && !harmless)
            return error_set(l->err, ICP_EUNSUPPORTED,
                             "tensor %s is nothing that architecture %s is known to have", text,
                             h->arch->name);
    }
    return 0;
}

/* ---- asking --------------------------------------------------------------------------------- */

static int add_job(loader *l, job j, size_t size, int n_tiles) {
    if (l->n_jobs == l->max_jobs) {
        int max = MAX(256, 2 * l->max_jobs);
        job *jobs = mem_resize(l->jobs, (size_t)max, sizeof *jobs);
        if (!jobs) return error_set(l->err, ICP_ENOMEM, "no memory to list the tensors");
        l->jobs = jobs;
        l->max_jobs = max;
    }
    j.at = l->size;
    j.first_tile = l->n_tiles;
    l->jobs[l->n_jobs++] = j;
    l->size += round_up(size, ALIGN);
    l->n_tiles += n_tiles;
    return 0;
}

/* Numbers [first, first + n) of a tensor of floats. */
static int add_vector(loader *l, float **to, const gguf_tensor *t, size_t first, size_t n) {
    size_t size = t->type == GGUF_F32 ? sizeof(float) : sizeof(uint16_t);
    if (t->type != GGUF_F32 && t->type != GGUF_F16 && t->type != GGUF_BF16)
        return error_set(l->err, ICP_EUNSUPPORTED,
                         "tensor %.*s is of type %s; it must be F32, F16 or BF16", (int)t->name.len,
                         t->name.data, gguf_type_name((int)t->type));
    job j = {.tensor = t,
             .from = (const char *)t->data + first * size,
             .size = n * size,
             .vector = to,
             .n = n};
    return add_job(l, j, n * sizeof(float), 1);
}

int loader_refuse_type(icp_error *err, const gguf_tensor *t) {
    char known[256] = "";
    size_t len = 0;
    for (int i = 0; i < KERN_TYPE_END && len < sizeof known; i++)
        if (kern_type_known(i))
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", len ? ", " : "",
                                    kern_type_name(i));
    return error_set(err, ICP_EUNSUPPORTED, "tensor %.*s is of type %s; supported: %s",
                     (int)t->name.len, t->name.data, gguf_type_name((int)t->type), known);
}

static int add_matrix(loader *l, kern_mat *to, const gguf_tensor *t, const part *p) {
    if (!kern_type_known((int)t->type)) return loader_refuse_type(l->err, t);
    *to = (kern_mat){.type = (enum kern_type)t->type, .n = p->n, .k = p->k};
    size_t row_size = t->size / ((size_t)p->rows * (size_t)p->depth);
    job j = {.tensor = t,
             .from = (const char *)t->data + (size_t)p->first * row_size,
             .size = (size_t)p->n * row_size,
             .mat = to};
    return add_job(l, j, kern_mat_size(to->type, to->n, to->k),
                   (kern_n_groups(to->n) + TILE_GROUPS - 1) / TILE_GROUPS);
}

static int add_place(loader *l, linear *to, const part *p) {
    weights *w = l->w;
    if (w->n_places == l->max_places) {
        int max = MAX(256, 2 * l->max_places);
        place *places = mem_resize(w->places, (size_t)max, sizeof *places);
        if (!places) return error_set(l->err, ICP_ENOMEM, "no memory to list the tensors");
        w->places = places;
        l->max_places = max;
    }
    place *added = &w->places[w->n_places++];
    *added = (place){.k = p->k, .rows = p->rows, .first = p->first, .n = p->n};
    look_up(l, p->name, ".weight", added->name);
    to->place = w->n_places;
    return 0;
}

int loader_want(loader *l, linear *to, part p, int flags) {
    const gguf_tensor *t;
    bool whole = p.depth == 0; /* not a stack of matrices */
    if (p.depth == 0) p.depth = 1;
    if (p.n == 0) p.n = p.rows;
    TRY(find(l, p.name, ".weight", (uint64_t[]){(uint64_t)p.k, (uint64_t)p.rows, (uint64_t)p.depth},
             flags, &t));
    if (!t) return 0;
    TRY(add_matrix(l, &to->w, t, &p));
    if (whole) TRY(add_place(l, to, &p));
    TRY(find(l, p.name, ".bias", (uint64_t[]){(uint64_t)p.rows, (uint64_t)p.depth, 1}, IF_THERE,
             &t));
    return t ? add_vector(l, &to->bias, t, (size_t)p.first, (size_t)p.n) : 0;
}

int loader_want_matrix(loader *l, kern_mat *to, const char *name, int k, int n, int flags) {
    const gguf_tensor *t;
    part p = {.name = name, .k = k, .rows = n, .depth = 1, .n = n};
    TRY(find(l, name, ".weight", (uint64_t[]){(uint64_t)k, (uint64_t)n, 1}, flags, &t));
    return t ? add_matrix(l, to, t, &p) : 0;
}

int loader_want_vector(loader *l, float **to, const char *name, int n, int flags) {
    char full[NAME];
    const gguf_tensor *t = look_up(l, name, "", full);
    uint64_t dims[3] = {(uint64_t)n, 1, 1};
    if (t && t->dims[0] * t->dims[1] * t->dims[2] == (uint64_t)n) /* in any shape */
        memcpy(dims, t->dims, sizeof dims);
    TRY(find(l, name, "", dims, flags, &t));
    return t ? add_vector(l, to, t, 0, (size_t)n) : 0;
}

int loader_want_row(loader *l, float **to, const char *name, int row, int n) {
    const gguf_tensor *t;
    size_t rows = loader_rows(l, name), first = (size_t)row * (size_t)n;
    TRY(find(l, name, ".weight", (uint64_t[]){(uint64_t)n, rows, 1}, IF_THERE, &t));
    return t && (size_t)row < rows ? add_vector(l, to, t, first, (size_t)n) : 0;
}

int loader_want_norm(loader *l, norm *to, const char *name, int n, int flags) {
    const gguf_tensor *t;
    char full[NAME];
    bool bare = look_up(l, name, "", full) != NULL; /* as in falcon-h1 */
    TRY(find(l, name, bare ? "" : ".weight", (uint64_t[]){(uint64_t)n, 1, 1}, flags, &t));
    if (!t) return 0;
    TRY(add_vector(l, &to->w, t, 0, (size_t)n));
    TRY(find(l, name, ".bias", (uint64_t[]){(uint64_t)n, 1, 1}, IF_THERE, &t));
    return t ? add_vector(l, &to->b, t, 0, (size_t)n) : 0;
}

/* ---- filling -------------------------------------------------------------------------------- */

static void count_read(loader *l, size_t size) {
    size_t before = atomic_fetch_add(&l->read, size);
    if (before / l->read_most != (before + size) / l->read_most) gguf_forget_pages(l->g);
}

/* The tile's part of the matrix, in strips: what all threads have read of theirs is memory, too. */
static void fill_mat(loader *l, const job *j, int part, XXH128_hash_t *hash) {
    enum { STRIP = 256 << 10 };
    kern_mat *m = j->mat;
    int end = MIN((part + 1) * TILE_GROUPS, kern_n_groups(m->n));
    size_t row_size = j->size / (size_t)m->n;
    int step = MAX(1, (int)(STRIP / (row_size * KERN_GROUP)));
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (int group = part * TILE_GROUPS; group < end; group += step) {
        int next = MIN(group + step, end);
        int row0 = group * KERN_GROUP, row1 = MIN(next * KERN_GROUP, m->n);
        size_t size = (size_t)(row1 - row0) * row_size;
        kern_pack(m, j->from, group, next);
        XXH3_128bits_update(&state, j->from + (size_t)row0 * row_size, size);
        count_read(l, size);
    }
    *hash = XXH3_128bits_digest(&state);
}

static void fill_tile(void *arg, int tile, int thread) {
    loader *l = arg;
    int low = 0, high = l->n_jobs - 1; /* the last job that begins at or before the tile */
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (l->jobs[mid].first_tile <= tile)
            low = mid;
        else
            high = mid - 1;
    }
    const job *j = &l->jobs[low];
    if (j->mat) {
        fill_mat(l, j, tile - j->first_tile, &l->hashes[tile]);
    } else {
        kern_widen((enum kern_type)j->tensor->type, j->n, j->from, *j->vector);
        l->hashes[tile] = XXH3_128bits(j->from, j->size);
    }
    int done = atomic_fetch_add(&l->tiles_done, 1) + 1;
    if (thread == 0 && l->opts->progress)
        l->opts->progress(l->opts->progress_arg, (double)done / l->n_tiles);
}

/* What decides logits: the architecture's metadata; tensors by name, type, shape and content; and
 * RoPE as the caller wants it, with whether the context chose its long factors. */
static void take_fingerprint(const loader *l, const hparams *h, uint8_t out[16]) {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < gguf_n_values(l->g); i++) {
        gguf_str key;
        const gguf_value *v = gguf_value_at(l->g, i, &key);
        size_t len = strlen(h->arch->name);
        if (key.len <= len || memcmp(key.data, h->arch->name, len) || key.data[len] != '.' ||
            v->item == GGUF_KIND_STRING)
            continue;
        XXH3_128bits_update(&state, key.data, key.len);
        for (uint64_t at = 0; at < v->count; at++) {
            double x = gguf_at_float(v, at);
            XXH3_128bits_update(&state, &x, sizeof x);
        }
    }
    for (int i = 0; i < l->n_jobs; i++) {
        const gguf_tensor *t = l->jobs[i].tensor;
        XXH3_128bits_update(&state, t->name.data, t->name.len);
        XXH3_128bits_update(&state, &t->type, sizeof t->type);
        XXH3_128bits_update(&state, t->dims, sizeof t->dims);
    }
    XXH3_128bits_update(&state, l->hashes, (size_t)l->n_tiles * sizeof *l->hashes);
    XXH3_128bits_update(&state, h->arch->name, strlen(h->arch->name) + 1);
    for (int i = 0; i < 2; i++) {
        const rope_params *r = &h->rope[i];
        double numbers[] = {r->scaling,   r->n_rot,     r->base,      r->factor,
                            r->beta_fast, r->beta_slow, r->magnitude, r->n_ctx_orig};
        XXH3_128bits_update(&state, numbers, sizeof numbers);
    }
    bool is_long = l->opts->n_ctx > (size_t)h->rope[0].n_ctx_orig;
    XXH3_128bits_update(&state, &is_long, sizeof is_long);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(out, canonical.digest, 16);
}

static int load(loader *l, const hparams *h, weights *w, uint8_t fingerprint[16]) {
    TRY(tensors_want(l, h, w));
    TRY(check_all_used(l, h));
    w->block_size = l->size;
    w->block = mem_reserve(l->size);
    l->hashes = mem_zero((size_t)l->n_tiles, sizeof *l->hashes);
    if (!w->block || !l->hashes)
        return error_set(l->err, ICP_ENOMEM, "no memory for %zu MB of weights", l->size >> 20);
    w->n_nodes = mem_interleave(w->block, l->size);
    if (l->opts->lock && mem_lock(w->block, l->size) < 0)
        return error_set(
            l->err, ICP_ELIMIT,
            "%.1f MB of weights cannot be locked in memory: raise the limit (ulimit -l, "
            "LimitMEMLOCK) or go without",
            (double)l->size / 1e6);
    for (int i = 0; i < l->n_jobs; i++) {
        job *j = &l->jobs[i];
        void *to = (char *)w->block + j->at;
        if (j->mat)
            j->mat->data = to;
        else
            *j->vector = to;
    }
    l->read_most = MAX(gguf_file_size(l->g) / FORGET_TIMES, (size_t)LEAST_READ);
    gguf_forget_pages(l->g); /* the vocabulary, which was read before */
    pool_run(l->opts->pool, l->n_tiles, fill_tile, l);
    take_fingerprint(l, h, fingerprint);
    if (w->output.w.n == 0 && !h->arch->encoder) w->output.w = w->embd;
    return 0;
}

int weights_load(const gguf *g, const hparams *h, const model_opts *opts, weights *w,
                 uint8_t fingerprint[16], icp_error *err) {
    *w =
        (weights){.n_layer = h->n_layer, .layers = mem_zero((size_t)h->n_layer, sizeof *w->layers)};
    loader l = {.g = g, .opts = opts, .w = w, .err = err};
    l.used = mem_zero(gguf_n_tensors(g) + 1, sizeof *l.used);
    int rc = l.used && w->layers ? load(&l, h, w, fingerprint)
                                 : error_set(err, ICP_ENOMEM, "no memory to list the tensors");
    mem_free(l.used);
    mem_free(l.jobs);
    mem_free(l.hashes);
    if (rc < 0) weights_fini(w);
    return rc;
}

void weights_fini(weights *w) {
    for (int i = 0; w->layers && i < w->n_layer; i++) {
        mem_free(w->layers[i].k_b);
        mem_free(w->layers[i].v_b);
        mem_free(w->layers[i].experts);
    }
    mem_unreserve(w->block, w->block_size);
    mem_free(w->places);
    mem_free(w->layers);
    *w = (weights){0};
}
