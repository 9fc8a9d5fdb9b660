/* model: the forward pass over paged KV.
 *
 * A row of logits is a bit-exact function of weights, token ids and positions: how rows are batched
 * or chunked, what was cached, and how many threads run do not enter. */
#ifndef MODEL_H
#define MODEL_H

#include "base.h"
#include "gguf.h"
#include "kern.h"

typedef struct model model; /* weights: immutable after open */

/* How a text's final states become one vector; numbered as in GGUF. RANK: scores, which a
 * classifier makes of one of the others. */
enum model_pooling {
    MODEL_POOL_NONE,
    MODEL_POOL_MEAN,
    MODEL_POOL_FIRST,
    MODEL_POOL_LAST,
    MODEL_POOL_RANK
};

/* What the caller wants of RoPE. Zero: what the file says. */
typedef struct model_rope {
    const char *scaling;         /* "none", "linear" or "yarn" */
    double factor;               /* the context grows by it */
    double base;                 /* of the frequencies */
    int n_ctx_orig;              /* the context before scaling */
    double beta_fast, beta_slow; /* turns over it: frequencies between them are mixed (YaRN) */
    double magnitude;            /* of cos and sin, times the file's */
} model_rope;

typedef struct model_opts {
    enum kern_isa isa;
    enum kern_type kv; /* KERN_F16 or KERN_F32 */
    size_t n_ctx;      /* positions; 0: trained with, or scaled to */
    model_rope rope;
    bool lock;                                /* the weights stay in memory (mem_lock) */
    bool embed;                               /* rows are final states instead of logits */
    pool *pool;                               /* borrowed, for loading and for every forward pass */
    void (*progress)(void *arg, double done); /* 0..1 while loading; may be NULL */
    void *progress_arg;
} model_opts;

typedef struct model_info {
    const char *arch; /* general.architecture */
    const char *name; /* general.name, or "" */
    size_t n_vocab, n_ctx_train, n_ctx;
    size_t n_layer, n_embd, n_head, n_head_kv, n_ff;
    uint64_t n_params;
    uint64_t n_active;          /* of these, what a token is multiplied with, */
    size_t n_out;               /* floats of a row that a pass computes: n_vocab, or n_embd */
    bool embeds;                /* opened with model_opts.embed */
    bool causal;                /* false: a span must be a whole text, of one pass */
    enum model_pooling pooling; /* of an embedding model */
    bool pools_last;            /* from a text's last state alone */
    size_t n_vector;            /* numbers of a text's vector: n_embd, or scores; without pooling
                                 * n_embd a token */
    int n_nodes;                /* of memory, over which weights are spread (mem_interleave) */
    size_t weights_size;        /* bytes of the repacked weights, */
    size_t active_size;         /* and of those that a token is multiplied with */
    size_t state_size;          /* bytes of a sequence's recurrent state; 0: it has none */
    size_t page_size;           /* bytes of KV_PAGE tokens over all layers */
    size_t window;              /* positions that a token sees at most, itself included, in every
                                 * layer; 0: as many as there are, or what comes after it */
    int n_adapters;
    uint8_t fingerprint[16]; /* XXH3 of everything in the file that decides logits */
} model_info;

/* Whether a file's model is for embedding texts, by its architecture or because it says how to pool
 * their states: then it is to be opened with model_opts.embed. *causal: as in model_info. */
bool model_is_embedder(const gguf *g, bool *causal);

/* Repacks the weights of g (which may be closed afterwards). ICP_EUNSUPPORTED names an architecture
 * or tensor type and lists the supported ones; ICP_EFORMAT names the missing or misshapen thing. */
int model_open(const gguf *g, const model_opts *opts, model **out, icp_error *err);
void model_close(model **m);
const model_info *model_get_info(const model *m);

/* Adds a LoRA adapter (g may be closed afterwards): the first is number 0. Before model_reserve.
 * ICP_EFORMAT: it is none, or is for another model; ICP_EUNSUPPORTED, ICP_ELIMIT, ICP_ENOMEM. On
 * failure the model is as it was. */
enum { MODEL_MAX_ADAPTERS = 64 };
int model_add_adapter(model *m, const gguf *g, icp_error *err);
/* What tells apart the results of scales (of all adapters, by number; NULL: all 0): XXH3 of the
 * contents of those that are not 0, and of their scales. All zero when none applies. */
void model_adapters_digest(const model *m, const float *scales, uint8_t out[16]);

/* A run of tokens of one sequence at positions [pos, pos + n_tokens). Their KV is written to
 * pages[p / KERN_PAGE]; positions before pos are read from there. Pages that are behind the window
 * of pos are not touched: their addresses may be anybody's. */
typedef struct model_span {
    const int32_t *tokens; /* each < n_vocab */
    int n_tokens;
    size_t pos;
    void *const *pages;
    void *state;   /* state_size bytes, 64-byte aligned: what positions before pos left; the pass
                    * leaves there what the span does. At pos 0 its contents do not matter. */
    int n_logits;  /* logits are computed for the last n_logits tokens */
    size_t second; /* where the second text of a pair begins; 0: there is none */
    const float *scales; /* of adapters, by number: 0, it does not apply; NULL: none does */
} model_span;

/* Sizes the scratch once: a pass takes at most max_tokens tokens and max_logits rows of logits. */
int model_reserve(model *m, int max_tokens, int max_logits);

/* One pass. logits: rows of n_out floats, spans in order. Spans of one pass must not share a
 * page that one of them writes. Allocates nothing; cannot fail. */
void model_forward(model *m, const model_span *spans, int n_spans, float *logits);

/* Of an embedding model: the final states of a text's n tokens, given in order one by one, become
 * its vector out[model_vector_size(m, n)], in room for model_vector_room(m, n) numbers (pooling.c).
 * Without pooling it is all of them. Between passes: it uses the model's scratch and pool. */
size_t model_vector_size(const model *m, size_t n);
size_t model_vector_room(const model *m, size_t n);
void model_pool(model *m, const float *row, size_t i, size_t n, float *out);

/* For cache_opts.copy: copies the KV of the first n tokens of a page. arg is the model. */
void model_copy_page(void *arg, void *to, const void *from, int n_tokens);

#endif
