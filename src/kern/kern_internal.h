/* What the files of kern share: packed layouts, the steps of the ladder, exact 16-bit conversions.
 *
 * A packed matrix is an array of groups. A group is KERN_GROUP weight rows, its lanes; with
 * nb = k / block it is
 *
 *      quants: nb × quant_size │ scales: nb × scale_size │ padding to 64 bytes
 *
 * Float types have blocks of one number, number[lane], and no scales.
 *
 * Integer types keep unsigned quants of 2 to 8 bits. 32 consecutive k are `bits` vectors of 64
 * bytes; byte 4·lane+j of vector v belongs to k = 4v+j, four consecutive k of each lane, as the
 * byte products of VNNI and AMX take them. With q[v] for all of these bytes:
 *
 *      8 bits   8 vectors  q[v]
 *      4 bits   4 vectors  q[v] | q[v+4] << 4                           also the low bits of 5 and
 * 6 2 bits   2 vectors  q[v] | q[v+2] << 2 | q[v+4] << 4 | q[v+6] << 6    the low bits of 3, too 1
 * bit    1 vector   Σ q[v] << v 3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2: the vectors of the low bits, then
 * those of the high bits
 *
 * A quant is a number plus the type's offset, or an index into a codebook of 16 numbers. Unsigned
 * quants meet signed activations in one VPDPBUSD or VPMADDUBSW; the offset comes off as
 * offset·Σ activations, which is exact. The scales of a block, lanes together:
 *
 *      d[lane]        binary16, or bfloat16 for MXFP4, whose scales are powers of two
 *      min[lane]      binary16; only types with minimums
 *      sub[j][lane]   8 bits, only blocks of 256: 16 sub-scales of 16 numbers or 8 of 32
 *      submin[j][lane]     only those with minimums; Q2_K has sub | submin << 4 in one byte
 *
 * Quants and scales lie apart to keep every vector inside one cache line. */
#ifndef KERN_INTERNAL_H
#define KERN_INTERNAL_H

#include "kern.h"

#include <string.h>

/* Loops over registers, which must become straight code; not under a sanitizer, whose checks in
 * each step cost compilers minutes and gigabytes. */
#if defined(__SANITIZE_ADDRESS__)
#define KERN_UNROLL
#elif !defined(__clang__)
#define KERN_UNROLL _Pragma("GCC unroll 32")
#elif __has_feature(address_sanitizer)
#define KERN_UNROLL
#else
#define KERN_UNROLL _Pragma("clang loop unroll(full)")
#endif
/* A loop that stays one, where straight code would spill. */
#if defined(__clang__)
#define KERN_LOOP _Pragma("clang loop unroll(disable)")
#else
#define KERN_LOOP _Pragma("GCC unroll 1")
#endif
#define KERN_INLINE static inline __attribute__((always_inline))

/* ---- types (pack.c) ------------------------------------------------------------------------- */

/* One block of a row of an integer type, taken apart (blocks.c, codebook.c). */
typedef struct kern_block {
    uint16_t d, min;
    int8_t sub[16];
    uint8_t submin[16];
    uint8_t q[256]; /* a multiple of 4 bytes, whole words */
} kern_block;

typedef struct kern_layout {
    const char *name;
    int block;         /* numbers of k in a block: 1, 32, 256 */
    size_t file_size;  /* bytes of one row's block in GGUF */
    size_t quant_size; /* bytes of one group's block, packed */
    size_t scale_size;
    /* Integer types: */
    void (*take_apart)(const uint8_t *file, kern_block *b);
    int bits;               /* of a quant */
    int offset;             /* number = quant - offset */
    const int8_t *codebook; /* or number = codebook[quant]; the offset is then 128 */
    int n_sub;              /* 0, 8, 16 */
    bool has_min, joint_sub, wide_exponent; /* joint: as Q2_K; wide: as MXFP4 */
    float factor;                           /* of d: a power of two */
} kern_layout;
const kern_layout *kern_layout_of(int type); /* NULL when unknown */

/* Taking blocks apart: TYPE_take(file, block). */
#define KERN_TAKE(type) void kern_take_##type(const uint8_t *file, kern_block *b)
KERN_TAKE(q4_0);
KERN_TAKE(q4_1);
KERN_TAKE(q5_0);
KERN_TAKE(q5_1);
KERN_TAKE(q8_0);
KERN_TAKE(q2_k);
KERN_TAKE(q3_k);
KERN_TAKE(q4_k);
KERN_TAKE(q5_k);
KERN_TAKE(q6_k);
KERN_TAKE(iq4_nl);
KERN_TAKE(iq4_xs);
KERN_TAKE(mxfp4);
KERN_TAKE(iq2_xxs);
KERN_TAKE(iq2_xs);
KERN_TAKE(iq2_s);
KERN_TAKE(iq3_xxs);
KERN_TAKE(iq3_s);
KERN_TAKE(iq1_s);
KERN_TAKE(iq1_m);
KERN_TAKE(tq1_0);
KERN_TAKE(tq2_0);

/* One group of a packed matrix. */
typedef struct kern_group {
    const uint8_t *quants, *scales;
    int n_blocks, n_lanes; /* lanes that are outputs: fewer than 16 in the last group */
} kern_group;
kern_group kern_group_of(const kern_mat *m, int group);

/* Fetches, of a group that comes later, the bytes that fall to n times 32 of k from number b of
 * these on, quants and scales alike, while sums are formed and memory would rest: to the second
 * level, since the first has room for too few lines under way. */
static inline void kern_fetch_shares(const kern_layout *l, const uint8_t *group, int b, int n) {
    const size_t share = (l->quant_size + l->scale_size) * 32 / (size_t)l->block;
    const size_t end = (size_t)(b + n) * share;
    for (size_t at = ((size_t)b * share + 63) / 64 * 64; at < end; at += 64)
        __builtin_prefetch(group + at, 0, 2);
}

/* The scales of one lane's block, and the numbers of 32 of its k: what the scalar code works on. */
typedef struct kern_scales {
    float d, min;
    int sub[16], submin[16]; /* of 16 numbers each */
} kern_scales;
void kern_read_scales(const kern_layout *l, const uint8_t *scales, int lane, kern_scales *out);
void kern_read_numbers(const kern_layout *l, const uint8_t *quants, int lane, int16_t out[32]);

/* ---- activation rows of integer types -------------------------------------------------------- */

/* A row is int8 q[k] in ±127, then one of these for each block of 32 or 256; x ≈ d·q. */
typedef struct kern_act {
    float d;
    float s;               /* d · Σq */
    int32_t n8, n16, n128; /* -8 · Σq and so on */
} kern_act;

typedef struct kern_act256 {
    float d;
    int16_t sum16[16], sum32[8]; /* Σq of each 16, each 32 */
} kern_act256;

static inline const kern_act *kern_act_blocks(const void *row, int k) {
    return (const kern_act *)((const char *)row + k);
}

/* Quantises n numbers to ±127 as the activations of products are, for scalar code; returns d
 * (gemm_ref.c). */
float kern_quantise(int n, const float *x, int8_t *q);

static inline const kern_act256 *kern_act_blocks256(const void *row, int k) {
    return (const kern_act256 *)((const char *)row + k);
}

/* ---- the ladder ------------------------------------------------------------------------------ */

/* Each fills its entries of *k for k->isa: the reference, then what the instruction sets up to
 * k->isa override. */
void kern_gemm_init(kern *k);   /* gemm_ref.c: act_row, gemm */
void kern_vector_init(kern *k); /* vector_ref.c: norms, rope, elementwise, argmax */
void kern_attend_init(kern *k); /* attend_ref.c: kv_put, kv_copy, attend, attend_fold */

/* What gemm_lanes.h calls depths, but ways of their own. */
enum { KERN_NIBBLES = 0, KERN_WORDS = 1 };

/* A product cut into tiles: up to some activation rows against one group or a few. */
enum { KERN_TILE_GROUPS = 8 };
typedef struct kern_tile {
    enum kern_type type;
    kern_group g[KERN_TILE_GROUPS];
    int n_groups, k, rows;
    const char *act;
    size_t act_stride;
    float *out; /* the first group's first output of the tile's first row */
    size_t out_stride;
    bool add;
} kern_tile;

#define KERN_GEMM_ARGS                                                                             \
    const kern_mat *w, const void *act, size_t act_stride, int m, float *out, size_t out_stride,   \
        bool add, int group0, int group1
/* Runs all tiles of a product, of at most max_rows rows and max_groups groups each: the rows of a
 * tile stay in L1 while the groups pass. */
void kern_gemm_walk(KERN_GEMM_ARGS, int max_rows, int max_groups, void (*run)(const kern_tile *t));
void kern_act_row_avx2(enum kern_type type, int k, const float *x, void *row);
void kern_act_row_avx512(enum kern_type type, int k, const float *x, void *row);
void kern_act_row_neon(enum kern_type type, int k, const float *x, void *row);
void kern_gemm_avx2(KERN_GEMM_ARGS);
void kern_gemm_avxvnni(KERN_GEMM_ARGS);
void kern_gemm_avx512(KERN_GEMM_ARGS);
void kern_gemm_vnni(KERN_GEMM_ARGS);
void kern_gemm_amx(KERN_GEMM_ARGS);
void kern_gemm_neon(KERN_GEMM_ARGS);
void kern_gemm_dotprod(KERN_GEMM_ARGS);
void kern_gemm_i8mm(KERN_GEMM_ARGS);

/* ---- 16-bit floats --------------------------------------------------------------------------- */

static inline uint32_t bits_of_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float f32_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* binary16 to binary32: exact, as VCVTPH2PS (which quiets NaNs). */
static inline float f32_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 0) { /* zero and subnormals: fraction · 2^-24 */
        float x = (float)fraction * 0x1p-24f;
        return sign ? -x : x;
    }
    if (exponent == 31)
        return f32_of_bits(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0));
    return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* binary32 to binary16, to nearest even, as VCVTPS2PH. */
static inline uint16_t f16_of_f32(float x) {
    uint32_t bits = bits_of_f32(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN: quiet, payload cut */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to infinity */
    if (magnitude < 0x38800000) /* subnormal: the addition rounds at 2^-24 */
        return (uint16_t)(sign | (bits_of_f32(f32_of_bits(magnitude) + 0.5f) - 0x3f000000));
    uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | rounded >> 13);
}

/* binary32 to bfloat16, to nearest even. */
static inline uint16_t bf16_of_f32(float x) {
    uint32_t bits = bits_of_f32(x);
    bool is_nan = (bits & 0x7fffffff) > 0x7f800000; /* quiet, payload cut */
    return (uint16_t)(is_nan ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float f32_of_bf16(uint16_t h) {
    return f32_of_bits((uint32_t)h << 16);
}

#endif
