/* kern: arithmetic. Each operation has a scalar reference, which is its definition, and variants
 * for instruction sets that give the very same bits (ARCHITECTURE.md, "The arithmetic contract").
 *
 * Kernels see pointers, shapes and strides: no files, threads or requests. A `kern` is a table of
 * functions chosen once; a caller splits the work by output (row groups, rows, heads), never along
 * a sum. */
#ifndef KERN_H
#define KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- instruction sets (cpu.c) --------------------------------------------------------------- */

/* Ascending in speed, first x86-64's, then AArch64's. AVXVNNI is AVX2 with VEX-encoded VNNI; VNNI
 * is AVX-512's. */
enum kern_isa {
    KERN_SCALAR,
    KERN_AVX2,
    KERN_AVXVNNI,
    KERN_AVX512,
    KERN_VNNI,
    KERN_AMX,
    KERN_NEON,
    KERN_DOTPROD,
    KERN_I8MM,
    KERN_N_ISA
};
const char *kern_isa_name(enum kern_isa isa); /* "scalar", "avx2", "avxvnni", "avx512", ... */
int kern_isa_find(const char *name);          /* -1 when unknown */
bool kern_isa_usable(enum kern_isa isa);      /* as processor and OS say */
enum kern_isa kern_isa_best(void);

/* Multiplies and adds bytes out of registers for some microseconds, with the fastest instruction of
 * a usable set; returns how many pairs (peak.c). What products could reach if memory were free. */
uint64_t kern_burn(enum kern_isa isa);

/* ---- types of stored matrices --------------------------------------------------------------- */

/* Numbered as in GGUF. */
/* clang-format off */
enum kern_type {
    KERN_F32 = 0, KERN_F16 = 1, KERN_BF16 = 30,
    KERN_Q4_0 = 2, KERN_Q4_1 = 3, KERN_Q5_0 = 6, KERN_Q5_1 = 7, KERN_Q8_0 = 8, KERN_MXFP4 = 39,
    KERN_Q2_K = 10, KERN_Q3_K = 11, KERN_Q4_K = 12, KERN_Q5_K = 13, KERN_Q6_K = 14,
    KERN_IQ4_NL = 20, KERN_IQ4_XS = 23, KERN_IQ3_XXS = 18, KERN_IQ3_S = 21, KERN_IQ2_XXS = 16,
    KERN_IQ2_XS = 17, KERN_IQ2_S = 22, KERN_IQ1_S = 19, KERN_IQ1_M = 29, KERN_TQ1_0 = 34,
    KERN_TQ2_0 = 35, KERN_TYPE_END = 40
};
/* clang-format on */
const char *kern_type_name(int type); /* "Q4_K"; NULL when there are no products for it */
static inline bool kern_type_known(int type) {
    return kern_type_name(type) != NULL;
}

/* A weight matrix of n rows (outputs) of k numbers, repacked: rows in groups of KERN_GROUP, the
 * rows of a group interleaved so that SIMD lanes are weight rows. n is padded with zero rows. */
enum { KERN_GROUP = 16, KERN_BLOCK = 32 };
typedef struct kern_mat {
    enum kern_type type;
    int n, k;
    void *data; /* kern_mat_size bytes, 64-byte aligned */
} kern_mat;
static inline int kern_n_groups(int n) {
    return (n + KERN_GROUP - 1) / KERN_GROUP;
}
size_t kern_mat_size(enum kern_type type, int n, int k);
/* Repacks groups [group0, group1) of m from `rows`, n rows of k numbers in GGUF's layout. */
void kern_pack(const kern_mat *m, const void *rows, int group0, int group1);
/* One row back as floats (token embeddings): out[k]. Equals dequantising the GGUF row. */
void kern_unpack_row(const kern_mat *m, int row, float *out);

/* ---- activations ---------------------------------------------------------------------------- */

/* What a product takes on its activation side: plain float rows for F32, F16 and BF16; 8-bit rows
 * for integer types, with one scale for every 32 numbers, or for every 256 where the type has
 * blocks of 256 (K-quants, IQ4_XS, ...). A row's bytes depend on that row alone. Rows start 64-byte
 * aligned. Types of one form take the same rows, so that one set serves several matrices; the
 * strides of different forms differ. k is a multiple of the block. */
enum kern_form { KERN_FORM_FLOAT, KERN_FORM_32, KERN_FORM_256 };
enum kern_form kern_form_of(enum kern_type type);
size_t kern_act_stride(enum kern_type type, int k); /* bytes from one row to the next */
/* x[i] - d·q[i], rounded twice, in place: what a row that act_row made of x, for an integer type,
 * leaves of it. As a second row it adds seven bits to the first. */
void kern_act_rest(enum kern_type type, int k, const void *row, float *x);

/* What a feed-forward layer does between its products. */
enum kern_activation {
    KERN_SILU,           /* x / (1 + e^-x) */
    KERN_GELU,           /* x·Φ(x), Φ the integral of the Gaussian */
    KERN_GELU_TANH,      /* its approximation by tanh */
    KERN_SWIGLU_CLAMPED, /* x' / (1 + e^-1.702x') · (up' + 1), x' = min(x, 7), |up'| <= 7 */
};

/* ---- attention ------------------------------------------------------------------------------ */

/* The keys and values of one KV head of one layer in one page: KERN_PAGE tokens.
 *   K: [dk][KERN_PAGE]  transposed, lanes are tokens       V: [KERN_PAGE][dv]
 * in kv type F16, BF16 or F32; with Q8_0 bytes in quads, see attend_q8_ref.c. Pages sit at absolute
 * positions; KERN_CHUNK tokens (a super-chunk) are the fixed unit in which partial results are
 * formed. */
enum { KERN_PAGE = 64, KERN_CHUNK = 512, KERN_CHUNK_PAGES = KERN_CHUNK / KERN_PAGE };
enum { KERN_MAX_HEAD = 576 };                           /* numbers of a key or value */
size_t kern_kv_size(enum kern_type kv, int dk, int dv); /* bytes of one block, a multiple of 64 */

/* A partial result: max score m, sum l of e^(s-m), and Σ e^(s-m)·v, in this order: dv+2 floats. */
static inline size_t kern_partial_floats(int dv) {
    return (size_t)dv + 2;
}

typedef struct kern_attend {
    enum kern_type kv;
    int dk, dv;              /* numbers of a key, of a value: 1..KERN_MAX_HEAD */
    float softcap;           /* c: a score s becomes c·tanh(s/c); 0: it stays */
    int n_pages;             /* pages of this super-chunk that are in use, 1..KERN_CHUNK_PAGES */
    const void *const *page; /* their K/V blocks for this head */
    int n_rows;              /* query rows, any number: GQA heads × tokens × sequences */
    const float *const *q;   /* each row's query, dk floats, already scaled */
    const int *begin, *end;  /* the row sees tokens [begin, end) of this super-chunk,
                              * 0 <= begin and end <= 64·n_pages */
    float *const *partial; /* out: dv+2 floats for each row; rows seeing nothing get m=-inf, l=0 */
    void *scratch;         /* kern_attend_scratch bytes, 64-byte aligned, one for each thread */
} kern_attend;
size_t kern_attend_scratch(int dk, int dv);

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct kern {
    enum kern_isa isa;

    /* Quantises or copies one row x[k] to the form that products with `type` take. */
    void (*act_row)(enum kern_type type, int k, const float *x, void *row);

    /* out[i][j] = Σ_k w[j][k]·act[i][k] for rows i in [0, m) and outputs j of the row groups
     * [group0, group1); with `add`, that sum is added to what stands in out. The sum is one float
     * chain over blocks (floats: over k), ascending; see gemm_ref.c.
     * act: m rows, act_stride bytes apart; out rows are out_stride floats apart. Outputs >= w->n
     * are not written.
     * Fast shapes: 64 to 128 rows, a multiple of 16, times 8 to 16 groups for prefill; for a few
     * rows as many groups as balance allows, since weights are then read once from memory. */
    void (*gemm)(const kern_mat *w, const void *act, size_t act_stride, int m, float *out,
                 size_t out_stride, bool add, int group0, int group1);

    /* Sums over n run in 16 lanes and a fixed tree. In all of these out may be an input. */

    /* out[i] = x[i] / sqrt(mean(x²) + eps) · w[i]; w NULL: all 1. */
    void (*rms_norm)(int n, const float *x, const float *w, float eps, float *out);
    /* out[i] = (x[i] - mean) / sqrt(variance + eps) · w[i] + b[i]; b may be NULL. */
    void (*layer_norm)(int n, const float *x, const float *w, const float *b, float eps,
                       float *out);
    /* out[i] = f(x[i]) · up[i]; without the factor when up is NULL (which KERN_SWIGLU_CLAMPED does
     * not take). */
    void (*activate)(enum kern_activation f, int n, const float *x, const float *up, float *out);
    void (*add)(int n, const float *a, const float *b, float *out);
    void (*add_scaled)(int n, const float *a, const float *b, float s, float *out); /* a + s·b */
    void (*scale)(int n, const float *x, float s, float *out);
    void (*softcap)(int n, const float *x, float c, float *out); /* c · tanh(x / c) */

    /* Rotates n_heads heads of size d in place, the first n_rot numbers of each: pairs are
     * (2i, 2i+1), or (i, i+n_rot/2) with `halves`. cos, sin: n_rot/2 floats for this position. */
    void (*rope)(float *x, int n_heads, int d, int n_rot, bool halves, const float *cos,
                 const float *sin);

    /* Writes the key and value of one token into slot (0..KERN_PAGE-1) of a K/V block. */
    void (*kv_put)(enum kern_type kv, int dk, int dv, void *block, int slot, const float *k,
                   const float *v);
    /* Copies the tokens [0, n) of a K/V block (copy-on-write of a partial page). */
    void (*kv_copy)(enum kern_type kv, int dk, int dv, void *to, const void *from, int n);

    void (*attend)(const kern_attend *a);
    /* Folds n partials (stride floats apart) in ascending order; out[dv] = o / l. `sink` is the
     * score of a token without a value that comes first; -inf: there is none. */
    void (*attend_fold)(int dv, int n, const float *partial, size_t stride, float sink, float *out);

    /* One step of a linear recurrence, a state of n rows of d numbers:
     *   state[i][j] = state[i][j] · decay + in[i] · x[j];  out[j] = Σ_i read[i] · state[i][j]
     * i ascending. in NULL: nothing is added. */
    void (*scan)(int n, int d, float *state, float decay, const float *in, const float *x,
                 const float *read, float *out);

    /* Greatest element; the lowest index among equals; NaN never wins. n >= 1. */
    int (*argmax)(int n, const float *x);
} kern;

/* Fills *k for an instruction set that must be usable: the reference first, then a ladder of
 * overrides. */
void kern_init(kern *k, enum kern_isa isa);

/* Elementary functions of the contract, for scalar code elsewhere: own polynomials, correct to
 * 2 ulp, the same bits as the vector code. */
float kern_exp(float x);
float kern_tanh(float x);

/* ---- stored vectors -------------------------------------------------------------------------- */

/* n numbers of type F32, F16 or BF16 as floats, exactly. */
void kern_widen(enum kern_type type, size_t n, const void *from, float *to);

#endif
