/* Loading: every tensor is found and checked first; then one reservation is made and filled by all
 * threads. A job is one tensor, a tile is a run of its row groups; pages of the file that were read
 * are given back at once, so that peak memory stays near the size of the weights. */
#include "model_internal.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { TILE_GROUPS = 64, ALIGN = 64 };

typedef struct job {
    const gguf_tensor *tensor;
    kern_mat *mat;  /* repacked, or */
    float **vector; /* copied as floats */
    size_t at;      /* offset in the block */
    int first_tile;
} job;

typedef struct loader {
    const gguf *g;
    const model_opts *opts;
    icp_error *err;
    job *jobs;
    int n_jobs, n_tiles;
    size_t size;
    char *block;
    XXH128_hash_t *hashes; /* one a tile */
    _Atomic int tiles_done;
} loader;

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* Finds tensor `name` of shape [n][k] (k fastest). An optional tensor may be absent. */
static int find(loader *l, const char *name, int k, int n, bool optional, const gguf_tensor **out) {
    const gguf_tensor *t = gguf_find_tensor(l->g, name);
    *out = t;
    if (!t && optional) return 0;
    if (!t) return error_set(l->err, ICP_EFORMAT, "tensor %s is missing", name);
    if (t->dims[0] != (uint64_t)k || t->dims[1] != (uint64_t)n || t->dims[2] != 1 ||
        t->dims[3] != 1)
        return error_set(l->err, ICP_EFORMAT,
                         "tensor %s is %llu x %llu x %llu x %llu; it must be %d x %d", name,
                         (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                         (unsigned long long)t->dims[2], (unsigned long long)t->dims[3], k, n);
    return 0;
}

static job *add_job(loader *l, const gguf_tensor *t, size_t size, int n_tiles) {
    job *j = &l->jobs[l->n_jobs++];
    *j = (job){.tensor = t, .at = l->size, .first_tile = l->n_tiles};
    l->size += round_up(size, ALIGN);
    l->n_tiles += n_tiles;
    return j;
}

static int want_mat(loader *l, kern_mat *mat, const char *name, int k, int n, bool optional) {
    const gguf_tensor *t;
    TRY(find(l, name, k, n, optional, &t));
    if (!t) return 0;
    if (!kern_type_known((int)t->type))
        return error_set(l->err, ICP_EUNSUPPORTED,
                         "tensor %s is of type %s; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1",
                         name, gguf_type_name((int)t->type));
    *mat = (kern_mat){.type = (enum kern_type)t->type, .n = n, .k = k};
    int tiles = (kern_n_groups(n) + TILE_GROUPS - 1) / TILE_GROUPS;
    add_job(l, t, kern_mat_size(mat->type, n, k), tiles)->mat = mat;
    return 0;
}

static int want_vector(loader *l, float **vector, const char *name, int n, bool optional) {
    const gguf_tensor *t;
    TRY(find(l, name, n, 1, optional, &t));
    if (!t) return 0;
    if (t->type != GGUF_F32)
        return error_set(l->err, ICP_EUNSUPPORTED, "tensor %s is of type %s; it must be F32", name,
                         gguf_type_name((int)t->type));
    add_job(l, t, (size_t)n * sizeof(float), 1)->vector = vector;
    return 0;
}

static int want_layer(loader *l, const hparams *h, int i, layer *to) {
    int embd = h->n_embd, ff = h->n_ff, q = h->n_head * h->head_dim,
        kv = h->n_head_kv * h->head_dim;
    const struct {
        const char *name;
        kern_mat *mat;
        float **bias;
        int k, n;
    } mats[] = {
        {"attn_q", &to->q, &to->bq, embd, q},          {"attn_k", &to->k, &to->bk, embd, kv},
        {"attn_v", &to->v, &to->bv, embd, kv},         {"attn_output", &to->o, &to->bo, q, embd},
        {"ffn_gate", &to->gate, &to->bgate, embd, ff}, {"ffn_up", &to->up, &to->bup, embd, ff},
        {"ffn_down", &to->down, &to->bdown, ff, embd},
    };
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", i);
    TRY(want_vector(l, &to->attn_norm, name, embd, false));
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", i);
    TRY(want_vector(l, &to->ffn_norm, name, embd, false));
    for (size_t j = 0; j < COUNT_OF(mats); j++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, mats[j].name);
        TRY(want_mat(l, mats[j].mat, name, mats[j].k, mats[j].n, false));
        snprintf(name, sizeof name, "blk.%d.%s.bias", i, mats[j].name);
        TRY(want_vector(l, mats[j].bias, name, mats[j].n, true));
    }
    return 0;
}

static int want_all(loader *l, const hparams *h, weights *w) {
    TRY(want_mat(l, &w->embd, "token_embd.weight", h->n_embd, h->n_vocab, false));
    TRY(want_vector(l, &w->output_norm, "output_norm.weight", h->n_embd, false));
    TRY(want_mat(l, &w->output, "output.weight", h->n_embd, h->n_vocab, true));
    TRY(want_vector(l, &w->rope_freqs, "rope_freqs.weight", h->n_rot / 2, true));
    for (int i = 0; i < h->n_layer; i++) TRY(want_layer(l, h, i, &w->layers[i]));
    return 0;
}

/* The tile's part of the tensor: rows [row0, row1) of the file. */
static void fill_mat(loader *l, job *j, int part, XXH128_hash_t *hash) {
    kern_mat *m = j->mat;
    int group0 = part * TILE_GROUPS, group1 = MIN(group0 + TILE_GROUPS, kern_n_groups(m->n));
    int row0 = group0 * KERN_GROUP, row1 = MIN(group1 * KERN_GROUP, m->n);
    size_t row_size = j->tensor->size / (size_t)m->n;
    const char *rows = (const char *)j->tensor->data + (size_t)row0 * row_size;
    size_t size = (size_t)(row1 - row0) * row_size;
    kern_pack(m, j->tensor->data, group0, group1);
    *hash = XXH3_128bits(rows, size);
    gguf_forget_pages(l->g, rows, size);
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
    job *j = &l->jobs[low];
    if (j->mat) {
        fill_mat(l, j, tile - j->first_tile, &l->hashes[tile]);
    } else {
        memcpy(*j->vector, j->tensor->data, j->tensor->size);
        l->hashes[tile] = XXH3_128bits(j->tensor->data, j->tensor->size);
    }
    int done = atomic_fetch_add(&l->tiles_done, 1) + 1;
    if (thread == 0 && l->opts->progress)
        l->opts->progress(l->opts->progress_arg, (double)done / l->n_tiles);
}

/* What decides logits: tensors by name, type, shape and content, and the numbers read from
 * metadata. */
static void take_fingerprint(const loader *l, const hparams *h, uint8_t out[16]) {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (int i = 0; i < l->n_jobs; i++) {
        const gguf_tensor *t = l->jobs[i].tensor;
        XXH3_128bits_update(&state, t->name.data, t->name.len);
        XXH3_128bits_update(&state, &t->type, sizeof t->type);
        XXH3_128bits_update(&state, t->dims, sizeof t->dims);
    }
    XXH3_128bits_update(&state, l->hashes, (size_t)l->n_tiles * sizeof *l->hashes);
    const double numbers[] = {h->n_head,   h->n_head_kv, h->head_dim,  h->n_rot,
                              h->norm_eps, h->rope_base, h->rope_scale};
    XXH3_128bits_update(&state, numbers, sizeof numbers);
    XXH3_128bits_update(&state, h->arch, strlen(h->arch));
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(out, canonical.digest, 16);
}

static int load(loader *l, const hparams *h, weights *w, uint8_t fingerprint[16]) {
    TRY(want_all(l, h, w));
    w->block_size = l->size;
    w->block = mem_reserve(l->size);
    l->hashes = mem_zero((size_t)l->n_tiles, sizeof *l->hashes);
    if (!w->block || !l->hashes)
        return error_set(l->err, ICP_ENOMEM, "no memory for %zu MB of weights", l->size >> 20);
    for (int i = 0; i < l->n_jobs; i++) {
        job *j = &l->jobs[i];
        void *to = (char *)w->block + j->at;
        if (j->mat)
            j->mat->data = to;
        else
            *j->vector = to;
    }
    pool_run(l->opts->pool, l->n_tiles, fill_tile, l);
    take_fingerprint(l, h, fingerprint);
    if (!w->output.data) w->output = w->embd;
    return 0;
}

int weights_load(const gguf *g, const hparams *h, const model_opts *opts, weights *w,
                 uint8_t fingerprint[16], icp_error *err) {
    *w = (weights){.layers = mem_zero((size_t)h->n_layer, sizeof *w->layers)};
    loader l = {.g = g, .opts = opts, .err = err};
    l.jobs = mem_zero(4 + (size_t)h->n_layer * 16, sizeof *l.jobs);
    int rc = l.jobs && w->layers ? load(&l, h, w, fingerprint)
                                 : error_set(err, ICP_ENOMEM, "no memory to list the tensors");
    mem_free(l.jobs);
    mem_free(l.hashes);
    if (rc < 0) weights_fini(w);
    return rc;
}

void weights_fini(weights *w) {
    mem_unreserve(w->block, w->block_size);
    mem_free(w->layers);
    *w = (weights){0};
}
