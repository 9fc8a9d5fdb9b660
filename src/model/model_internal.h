/* model_internal: what the files of model share.
 *
 *   arch.c       the architectures, one description each
 *   hparams.c    metadata -> numbers, for the model and for each layer
 *   tensors.c    which tensors a model has, by name and shape
 *   weights.c    tensors -> memory, repacked
 *   forward.c    the pass; attend.c, latent.c, recurrent.c, experts.c, layer_embd.c: its larger
 * steps product.c    rows times matrices; adapter.c what adapters add; rope.c angles of positions
 */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H

#include "model.h"

/* ---- architectures (arch.c) ----------------------------------------------------------------- */

/* Where a layer may have norms. x is the residual stream, y what a branch computes. */
enum norm_slot {
    ATTN_IN,  /* of x, for attention */
    ATTN_OUT, /* of y, before it is added */
    ATTN_SUM, /* of x, after */
    FFN_IN,
    FFN_OUT,
    FFN_SUM,
    N_NORM_SLOTS
};

enum norm_kind { NORM_RMS, NORM_LAYER };
/* How positions are told: pairs of numbers rotate, neighbours or those half a head apart; or by
 * learned embeddings; or not at all. */
enum rope_pairing { ROPE_NEIGHBOURS, ROPE_HALVES, POSITIONS_LEARNED, POSITIONS_UNKNOWN };
enum qk_norm { QK_PLAIN, QK_NORM_HEAD, QK_NORM_ROW, QK_NORM_HEAD_IF_THERE };

/* What a layer may have instead of attention, or beside it (recurrent.c). */
enum mixer_kind { MIXER_NONE, MIXER_CONV, MIXER_MAMBA, MIXER_DELTA };

/* How router logits become the weights of the chosen experts. */
enum gating {
    GATING_SOFTMAX = 1,    /* over all experts; numbered as expert_gating_func is */
    GATING_SIGMOID,        /* each by itself */
    GATING_SOFTMAX_CHOSEN, /* over the chosen ones */
};

/* What makes an architecture, beside what its files say. Zero is what llama does. */
typedef struct arch {
    const char *name;         /* general.architecture */
    const char *const *norms; /* [N_NORM_SLOTS] tensor names, NULL: no such norm */
    const char *output_norm;  /* tensor name; "": none */
    enum norm_kind norm;
    enum rope_pairing rope;
    enum qk_norm qk_norm;
    enum kern_activation activation;
    enum gating gating;  /* unless the file says */
    bool renormalise;    /* the weights of chosen experts sum to 1 */
    bool parallel;       /* attention and feed-forward read the same x */
    bool embd_sqrt;      /* embeddings times sqrt(n_embd) */
    bool embd_norm;      /* token_embd_norm */
    bool encoder;        /* embeds whole texts: no logits, sees what follows */
    bool logits_divided; /* logit_scale divides */
    bool sinks;          /* a learned score beside those of the tokens */
    bool latent;         /* latent attention (MLA) */
    bool norm_v;         /* values are normed, without a weight */
    enum mixer_kind mixer;
    bool mixer_beside_attention; /* in every layer; else it stands in layers without KV heads */
    bool keys_in_turn;           /* value heads of the delta rule take key heads in turn */
    bool gated_attention;        /* attn_q makes a gate for its result, too */
    bool rope_if_finetuned;      /* a file may say that there are no positions */
    bool v_may_be_k;             /* a layer without attn_v takes its keys as values */
    bool rope_in_windows_only;   /* layers that see everything know no positions */
    bool window_unscaled;        /* rope scaling and rope_freqs are not for window layers */
    bool chunked;                /* a window begins at a multiple of its size */
    bool norm_rotated;           /* queries and keys are normed after rope, without a weight */
    bool weigh_inputs;           /* an expert's input is weighed instead of its result */
    int n_shared_experts;        /* unless the file says */
    int window;                  /* unless the file says */
    float nope_temperature;      /* of queries in layers without positions */
    int window_period;           /* every n-th layer sees everything, the others a window */
    int nope_period;             /* every n-th layer knows no positions */
    float window_rope_base;      /* unless the file says; 0: that of the other layers */
    float query_scale;
    int wide_query_layers; /* a model of so many layers scales by n_embd / n_head */
} arch;

const arch *arch_find(const char *name, size_t len); /* NULL when unknown */
void arch_list(char *out, size_t size);              /* names for people */

/* ---- numbers (hparams.c) -------------------------------------------------------------------- */

typedef struct shape { /* of one layer */
    int n_head, n_head_kv;
    int d_k, d_v; /* numbers of a stored key, of a stored value */
    int d_out;    /* numbers of a head's result: d_v but for latent attention */
    int n_rot;    /* rotated numbers of a head; 0: none */
    int window;   /* positions a row sees, its own included; 0: all up to its own */
    int rope;     /* which angles: 0, or 1 in window layers that differ */
    float query_scale;
    bool temperature; /* queries grow with the position */
    bool attention, recurrent;
    size_t state_at; /* floats before this layer's part of a sequence's state */
    int n_ff;        /* of the dense feed-forward, or of the shared expert; 0: none */
    bool experts;
    int kv_from;    /* the layer whose keys and values it reads: itself, or an earlier one */
    size_t kv_at;   /* their offset in a page */
    size_t kv_size; /* bytes of one KV head in a page */
} shape;

enum { MAX_STATE = 1024 };
typedef struct mixer_sizes {
    enum mixer_kind kind;
    int taps, channels;         /* of the convolution */
    int conv_at;                /* its input in a row of the input products' results */
    int d_inner, heads, groups; /* groups: of B and C, or key heads */
    int d_state;                /* rows of a head's state; d_inner / heads numbers each */
} mixer_sizes;

enum rope_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LONG };

typedef struct rope_params {
    int n_rot; /* rotated numbers of a head; 0: none */
    double base, factor;
    enum rope_scaling scaling;
    int n_ctx_orig; /* before scaling */
    double beta_fast, beta_slow;
    double magnitude; /* of cos and sin */
} rope_params;

typedef struct hparams {
    const arch *arch;
    char name[256];
    int n_layer, n_embd, n_vocab, n_ctx_train;
    int n_ctx_scaled; /* what RoPE is scaled to; n_ctx_train at least */
    int n_ctx_most;
    int n_expert, n_expert_used, n_ff_expert;
    int n_group, n_group_used; /* of experts */
    enum gating gating;
    bool renormalise;
    bool norm_rotated;
    float expert_scale;
    int rank_q, rank_kv, d_k_latent; /* latent attention; rank_q 0: queries are not compressed */
    int n_embd_layer;                /* of the embeddings that each layer has, 0: none */
    float norm_eps;
    float embd_scale, residual_scale, logit_scale;
    float attn_softcap, final_softcap; /* 0: none */
    float temperature_scale;           /* queries grow with the logarithm of the position */
    int temperature_length, temperature_offset;
    rope_params rope[2]; /* [1]: of window layers */
    mixer_sizes mixer;
    enum model_pooling pooling;
    enum model_pooling pooled; /* the same; or what a classifier takes */
    int n_scores;              /* of the classifier; 0: there is none */
    bool causal;
    bool parallel;  /* attention and feed-forward read the same x */
    size_t n_state; /* floats of a sequence's state */
    shape *layers;  /* n_layer */
} hparams;

int hparams_read(const gguf *g, const model_rope *wish, hparams *out, icp_error *err);
void hparams_fini(hparams *h);

/* ---- weights (weights.c, tensors.c) ---------------------------------------------------------- */

typedef struct linear {
    kern_mat w;
    float *bias; /* NULL where the file has none */
    int place;   /* of w in weights.places, counted from 1; 0: adapters cannot change it */
} linear;

/* A matrix that an adapter may change: rows [first, first + n) of a tensor of `rows` rows. */
enum { TENSOR_NAME = 96 };
typedef struct place {
    char name[TENSOR_NAME];
    int k, rows, first, n;
} place;

typedef struct norm {
    float *w, *b; /* NULL: no norm; no bias */
} norm;

typedef struct mlp {
    linear gate, up, down; /* gate.w.n is 0 where there is none */
} mlp;

typedef struct layer {
    norm norms[N_NORM_SLOTS];
    linear q, k, v, o;
    norm q_norm, k_norm;
    float *sinks; /* n_head */
    /* latent attention: q is made from q_a (if compressed), keys and values are kv_a */
    linear q_a, kv_a;
    norm q_a_norm, kv_a_norm;
    linear *k_b, *v_b; /* n_head: queries into the latent space, results out of it */
    mlp ffn;           /* dense, or the shared expert */
    linear shared_gate;
    linear router;
    float *router_bias; /* for choosing only */
    mlp *experts;
    /* recurrent mixers; in this order in a row: */
    linear mix_in, mix_gate, beta_alpha, beta, alpha;
    linear mix_out;
    float *conv, *conv_bias;       /* [channels][taps] */
    float *decay, *skip, *dt_bias; /* one a head */
    float *mixer_norm;
    linear embd_gate, embd_proj; /* of the layer's own embeddings */
    norm embd_norm;
    float *scale; /* of x at the end */
} layer;

typedef struct weights {
    kern_mat embd;             /* token embeddings */
    linear output;             /* the same matrix when tied; n 0: none */
    linear classifier, scores; /* see pooling.c */
    norm classifier_norm;
    norm embd_norm, output_norm;
    kern_mat positions;   /* learned, n 0: none */
    float *token_type[2]; /* of the first text of a pair, and of the second; NULL: none */
    kern_mat layer_embd;  /* [n_vocab][n_layer * n_embd_layer] */
    linear layer_proj;    /* from x to the same */
    norm layer_proj_norm;
    float *rope_freqs; /* n_rot/2 divisors of the frequencies; NULL: all 1 */
    float *rope_long, *rope_short;
    layer *layers;
    int n_layer;
    void *block; /* one reservation for all of the above */
    size_t block_size;
    int n_nodes; /* of memory, over which it is spread (mem_interleave) */
    place *places;
    int n_places;
} weights;

/* Finds, checks, repacks (in parallel) and fingerprints every tensor. */
int weights_load(const gguf *g, const hparams *h, const model_opts *opts, weights *out,
                 uint8_t fingerprint[16], icp_error *err);
void weights_fini(weights *w);

/* Collects what is to be loaded; errors name the tensor. Names go without "blk.N." and, but for
 * plain vectors, without ".weight". */
typedef struct loader loader;
enum { IF_THERE = 1 }; /* the tensor may be absent: what it was for stays empty */
void loader_set_layer(loader *l, int layer);           /* names are of this layer; -1: of none */
size_t loader_rows(const loader *l, const char *name); /* 0 when absent */
void loader_ignore(loader *l, const char *name);       /* it may be there and is not needed */

/* Rows [first, first + n) of a tensor of `rows` rows of k numbers, or of `depth` times as many; n
 * and depth of 0 mean all rows, and 1. */
typedef struct part {
    const char *name;
    int k, rows, depth, first, n;
} part;
/* A product's matrix, and the same part of `name`.bias where there is one. */
int loader_want(loader *l, linear *to, part p, int flags);
int loader_want_matrix(loader *l, kern_mat *to, const char *name, int k, int n, int flags);
int loader_want_norm(loader *l, norm *to, const char *name, int n, int flags);
int loader_want_vector(loader *l, float **to, const char *name, int n, int flags);
int loader_want_row(loader *l, float **to, const char *name, int row, int n); /* if there */
/* ICP_EUNSUPPORTED: there are no products for the tensor's type. */
int loader_refuse_type(icp_error *err, const gguf_tensor *t);

/* Asks for everything that the architecture has (tensors.c). */
int tensors_want(loader *l, const hparams *h, weights *w);

/* ---- a pass (forward.c) -----------------------------------------------------------------------
 */

/* What a pass knows of one span beside the span itself. */
typedef struct span_plan {
    int first_row;  /* in the pass */
    int first_tile; /* of attention */
    int first_logit;
    bool deep;    /* see attend.c */
    size_t slot;  /* first partial of a deep span */
    int lead;     /* the span, itself or one before it, whose tiles do this one's first n_led */
    int n_led;    /* super-chunks too */
    int n_rows;   /* of its tiles, with those that it leads */
    int n_shared; /* super-chunks at the beginning, all of whose pages are also those of lead */
} span_plan;

/* Widths of the rows that a pass keeps, over all layers: scratch memory is sized by them. */
typedef struct widths {
    size_t qkv;      /* floats: queries, then the row's own keys and values */
    size_t mixed;    /* attention's results as stored values */
    size_t heads;    /* the same out of the latent space; queries before they enter it */
    size_t latent;   /* compressed queries */
    size_t ff;       /* gate and up */
    size_t mix;      /* results of a recurrent mixer's input products */
    size_t act;      /* bytes of one form */
    size_t low;      /* floats: a row in the small space of an adapter; */
    size_t low_act;  /* bytes: the same as a product takes it */
    size_t slot_act; /* bytes of a row of an expert */
    size_t rot;      /* cos or sin of one position */
    size_t thread;   /* bytes of a thread's scratch */
} widths;

typedef struct product product;

/* Memory of a pass, sized once by model_reserve. */
typedef struct scratch {
    int max_tokens, max_logits;
    float *x;                                 /* [tokens][n_embd] residual stream */
    float *y;                                 /* [tokens][n_embd] what a branch adds to it */
    float *norm;                              /* [tokens][n_embd] */
    float *qkv, *mixed, *heads, *latent, *ff; /* [tokens][widths] */
    char *act;                                /* [forms][tokens][act] rows as products take them */
    char *fine;                               /* [logits][2][…], see product_put_fine */
    float *low;                               /* see adapter.c */
    char *low_act;
    product *low_products;
    float *cos, *sin;                   /* [2][tokens][rot] */
    float *layer_embd, *layer_embd_own; /* [tokens][n_layer][n_embd_layer] */
    float *mix, *conv, *inner;          /* see recurrent.c */
    /* experts: a slot is one expert's work on one row */
    float *route;            /* [tokens][n_expert] */
    int *chosen;             /* [tokens][n_used] experts, in the router's order */
    float *share;            /* [tokens][n_used] their weights */
    float *shared;           /* [tokens] the shared expert's gate */
    int *slot;               /* [tokens][n_used] */
    int *of_slot;            /* [slots] the place in chosen */
    int *first_slot;         /* [n_expert + 1] */
    char *slot_act;          /* [2][slots][slot_act] */
    float *slot_ff, *slot_y; /* [slots][gate | up], [slots][n_embd] */
    product *products;       /* of one loop */
    float *partials;         /* slots of (row, head, super-chunk) */
    char *thread;            /* for each thread: the kernel's scratch, then partials of one tile */
    span_plan *plan;
    void *block;
    size_t block_size;
} scratch;

typedef struct rope_table {
    double *freq; /* n/2 radians a position */
    int n;        /* rotated numbers */
    double magnitude;
} rope_table;

/* What an adapter adds to one matrix: scale · b (a x). */
typedef struct low_rank {
    kern_mat a, b; /* a.n = b.k is the rank; 0: it leaves the matrix as it is */
    float scale;   /* alpha / rank */
} low_rank;

typedef struct adapter {
    low_rank *pairs; /* one a place */
    uint8_t hash[16];
    void *block; /* of the matrices */
    size_t block_size;
} adapter;

struct model {
    hparams h;
    weights w;
    adapter *adapters; /* info.n_adapters */
    kern kern;
    enum kern_type kv;
    bool embed; /* rows are final states, not logits */
    rope_table rope[2];
    widths widths;
    pool *pool;
    scratch s;
    model_info info;
};

typedef struct pass {
    model *m;
    const model_span *spans;
    span_plan *plan; /* n_spans + 1: the last one holds the totals */
    int n_spans, n_rows, n_logits;
    bool adapted; /* adapters apply to some row */
    layer *layer; /* the current one */
    const shape *shape;
    float *logits;
} pass;

/* The span that a row, tile or logits row belongs to: the last whose number at `field` (an offset
 * into span_plan) is not above `index`. */
int pass_find_span(const pass *p, size_t field, int index);
size_t pass_position(const pass *p, int row);
float *pass_y(const pass *p, int row);

/* Runs fn for rows [0, n), spread over the pool. */
typedef void row_fn(const pass *p, int row);
void pass_for_rows(const pass *p, int n, row_fn *fn);
void pass_add_bias(const pass *p, int n, float *x, const float *bias);
void pass_norm(const pass *p, int n, const float *x, const norm *w, float *out);
void pass_rotate(const pass *p, int row, float *x, int n_heads); /* heads d_k apart */
void pass_scale_queries(const pass *p, int row, float *q);
void pass_put_kv(const pass *p, int row, const float *k, const float *v);
void pass_softmax(int n, float *x);
/* gate = f(gate) · up, biases first. */
void pass_activate(const pass *p, const mlp *m, float *gate, float *up);
/* y (+)= the dense feed-forward, or the shared expert, of rows whose inputs are put. */
void pass_mlp(pass *p, bool add);

/* ---- product.c ---- */

enum { N_INPUTS = 9 }; /* products that take the same row, at most */
enum { N_FORMS = KERN_FORM_256 + 1 };

struct product {
    const kern_mat *w;
    const linear *of; /* whose matrix it is, when adapters may change it */
    const char *act;
    size_t act_stride;
    float *out;
    size_t out_stride;
    int n_rows;
    bool add;
    bool fine;      /* rows of act come in pairs, whose results are added; without add */
    int first_unit; /* product_run's own */
};
void product_run(const pass *p, product *list, int n); /* as one loop */
void product_run_one(const pass *p, const linear *l, float *out, size_t out_stride, int n_rows,
                     bool add);
/* The product of l with the rows that were put. */
product product_of(const pass *p, const linear *l, float *out, size_t out_stride, int n_rows,
                   bool add);
/* Puts row x into every form that the list takes. Products without outputs are passed over. */
void product_put(const pass *p, linear *const *list, int n, int row, const float *x);
void product_put_one(const pass *p, linear *l, int row, const float *x);
/* The same where 8 bits of an input cost most, the last product (bench/NOTES.md), and few rows have
 * any: when its products are of integers, inputs are two rows of 8 bits, the second for what the
 * first leaves. x is used up. */
void product_put_fine(const pass *p, linear *l, int row, float *x);
product product_of_fine(const pass *p, const linear *l, float *out, size_t out_stride, int n_rows);
size_t product_fine_size(void); /* scratch bytes a thread */
/* Bytes of a row, both halves; 0: inputs are rows of 8 bits, or floats, as everywhere. */
size_t product_fine_row_size(const kern_mat *w);
/* Puts row x into the form that w takes, unless that is done. */
void product_put_form(const pass *p, const kern_mat *w, int row, const float *x,
                      bool done[N_FORMS]);
/* Row 0 in the form that w takes. */
char *product_rows(const pass *p, const kern_mat *w);

/* The products that take x's norm before attention, before the feed-forward. */
int layer_attention_inputs(layer *l, bool compressed, linear *list[N_INPUTS]);
int layer_feed_forward_inputs(layer *l, linear *list[N_INPUTS]);

/* ---- adapter.c ---- */

/* Puts row x into the forms that the adapters of these products take, as far as they apply to it.
 */
void adapter_put(const pass *p, linear *const *list, int n, int row, const float *x,
                 bool done[N_FORMS]);
/* Adds to the results of products what adapters add to them. */
void adapter_run(const pass *p, const product *list, int n);
void adapters_fini(model *m);

/* ---- attend.c ---- */

enum { ATTEND_ROWS = 128, PARTIALS_BUDGET = 32 << 20 };
void attend_find_shared(pass *p); /* once a pass, before its layers */
void attend_layer(pass *p);       /* mixed = attention over the pages, for the current layer */
size_t attend_thread_size(const shape *s, size_t n_ctx); /* scratch bytes a thread */

/* ---- latent.c, recurrent.c, experts.c, layer_embd.c ---- */

void latent_project(pass *p); /* inputs -> queries; the row's latent to its page */
void latent_expand(pass *p);  /* mixed -> heads */

enum { MAX_EXPERTS = 1024 };
void experts_run(pass *p); /* y = results of the chosen experts and the shared one */

void recurrent_run(pass *p); /* y = the mixer's results; moves the spans' states on */

void layer_embd_prepare(pass *p);
void layer_embd_add(pass *p);

/* ---- rope.c ---- */

int rope_init(const hparams *h, const weights *w, size_t n_ctx, rope_table out[2]);
void rope_fini(rope_table t[2]);
void rope_row(const rope_table *t, size_t pos, float *cos, float *sin);

#endif
