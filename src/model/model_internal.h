/* model_internal: what the files of model share. */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H

#include "model.h"

/* The numbers of an architecture, read from metadata and checked (hparams.c). */
typedef struct hparams {
    char arch[64], name[256];
    int n_layer, n_embd, n_head, n_head_kv, n_ff, n_vocab;
    int head_dim; /* of keys and values alike */
    int n_rot;    /* rotated numbers of a head */
    int n_ctx_train;
    float norm_eps;
    double rope_base;
    double rope_scale; /* positions are multiplied by it */
} hparams;

int hparams_read(const gguf *g, hparams *out, icp_error *err);

typedef struct layer {
    float *attn_norm, *ffn_norm;
    kern_mat q, k, v, o, gate, up, down;
    float *bq, *bk, *bv, *bo, *bgate, *bup, *bdown; /* NULL where the file has none */
} layer;

typedef struct weights {
    kern_mat embd;   /* token embeddings */
    kern_mat output; /* the same matrix when tied */
    float *output_norm;
    float *rope_freqs; /* n_rot/2 divisors of the frequencies; NULL: all 1 */
    layer *layers;
    void *block; /* one reservation for all of the above */
    size_t block_size;
} weights;

/* Finds, checks, repacks (in parallel) and fingerprints every tensor. */
int weights_load(const gguf *g, const hparams *h, const model_opts *opts, weights *out,
                 uint8_t fingerprint[16], icp_error *err);
void weights_fini(weights *w);

/* What a pass knows of one span beside the span itself. */
typedef struct span_plan {
    int first_row;  /* in the pass */
    int first_tile; /* of attention */
    int first_logit;
    bool deep;   /* see attend.c */
    size_t slot; /* first partial of a deep span */
} span_plan;

/* Memory of a pass, sized once by model_reserve. */
typedef struct scratch {
    int max_tokens, max_logits;
    float *x;         /* [tokens][n_embd] residual stream */
    float *norm;      /* [tokens][n_embd] */
    float *qkv;       /* [tokens][q | k | v] */
    float *mixed;     /* [tokens][n_head * head_dim] attention's output */
    float *ff;        /* [tokens][gate | up] */
    char *act;        /* [tokens] rows of the widest activation form */
    size_t act_size;  /* bytes a row at most */
    float *cos, *sin; /* [tokens][n_rot / 2] */
    float *partials;  /* slots of (row, head, super-chunk) */
    size_t n_partials;
    char *thread; /* for each thread: the kernel's scratch, then partials of one tile */
    size_t thread_size;
    span_plan *plan;
    void *block;
    size_t block_size;
} scratch;

struct model {
    hparams h;
    weights w;
    kern kern;
    enum kern_type kv;
    size_t kv_size; /* bytes of one head of one layer in one page */
    double *freq;   /* n_rot/2 radians a position */
    pool *pool;
    scratch s;
    model_info info;
};

typedef struct pass {
    model *m;
    const model_span *spans;
    span_plan *plan; /* n_spans + 1: the last one holds the totals */
    int n_spans, n_rows, n_logits;
    const layer *layer; /* the current one */
    size_t layer_at;    /* its offset in a page */
    float *logits;
} pass;

/* The span that a row, tile or logits row belongs to: the last whose number at `field` (an offset
 * into span_plan) is not above `index`. */
int pass_find_span(const pass *p, size_t field, int index);

/* attend.c */
enum { ATTEND_ROWS = 128, PARTIALS_BUDGET = 32 << 20 };
void attend_plan(pass *p);  /* once a pass: fills first_tile, deep and slot */
void attend_layer(pass *p); /* mixed = attention over the pages, for the current layer */
size_t attend_thread_size(const model *m); /* scratch bytes a thread */

/* rope.c */
double *rope_frequencies(const hparams *h, const float *divisors);
void rope_row(int n, const double *freq, size_t pos, float *cos, float *sin);

#endif
