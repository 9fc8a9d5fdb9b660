/* What the files of kern share: packed layouts, the steps of the ladder, exact 16-bit conversions.
 *
 * A packed matrix is an array of groups. A group is KERN_GROUP weight rows, its lanes; with
 * nb = k / block it is
 *
 *      quants: nb × quant_size │ scales: nb × scale_size │ padding to 64 bytes
 *
 *  type           block  quants of one block                               scales of one block
 *  F32 F16 BF16       1  number[lane]                                      none
 *  Q8_0              32  8 vectors v: byte 4·lane+j = q[4v+j] + 128        d[lane]
 *  Q4_0              32  4 vectors v: byte 4·lane+j = q[4v+j] | q[16+4v+j] << 4    d[lane]
 *  Q4_1              32  the same                                          d[lane], m[lane]
 *
 * A vector is 64 bytes: four consecutive k of each lane, as the byte products of VNNI and AMX take
 * them. Quants are unsigned, so that they meet signed activations in one VPDPBUSD or VPMADDUBSW;
 * the offset (8 or 128) comes off as offset·Σ activations, which is exact. Scales are binary16 as
 * in the file. Quants and scales lie apart to keep every vector inside one cache line. */
#ifndef KERN_INTERNAL_H
#define KERN_INTERNAL_H

#include "kern.h"

#include <string.h>

/* Loops over registers, which must become straight code; not under a sanitizer, whose checks in
 * each step cost clang minutes and gigabytes. */
#ifndef __clang__
#define KERN_UNROLL _Pragma("GCC unroll 32")
#elif __has_feature(address_sanitizer)
#define KERN_UNROLL
#else
#define KERN_UNROLL _Pragma("clang loop unroll(full)")
#endif
#define KERN_INLINE static inline __attribute__((always_inline))

/* ---- types (pack.c) ------------------------------------------------------------------------- */

typedef struct kern_layout {
    int block;         /* numbers of k in a block */
    size_t file_size;  /* bytes of one row's block in GGUF */
    size_t quant_size; /* bytes of one group's block, packed */
    size_t scale_size;
    void (*pack_row)(const uint8_t *row, int n_blocks, int lane, uint8_t *quants, uint8_t *scales);
    void (*unpack_row)(const uint8_t *quants, const uint8_t *scales, int lane, int n_blocks,
                       float *out);
} kern_layout;
const kern_layout *kern_layout_of(int type); /* NULL when unknown */

/* One group of a packed matrix. */
typedef struct kern_group {
    const uint8_t *quants, *scales;
    int n_blocks, n_lanes; /* lanes that are outputs: fewer than 16 in the last group */
} kern_group;
kern_group kern_group_of(const kern_mat *m, int group);

/* ---- activation rows of integer types -------------------------------------------------------- */

/* A row is int8 q[k] in ±127, then one of these for each block of 32; x ≈ d·q. */
typedef struct kern_act {
    float d;
    float s;      /* d · Σq */
    int32_t n8;   /* -8 · Σq */
    int32_t n128; /* -128 · Σq */
} kern_act;
static inline const kern_act *kern_act_blocks(const void *row, int k) {
    return (const kern_act *)((const char *)row + k);
}

/* ---- the ladder ------------------------------------------------------------------------------ */

/* Each fills its entries of *k for k->isa: the reference, then what the instruction sets up to
 * k->isa override. */
void kern_gemm_init(kern *k);   /* gemm_ref.c: act_row, gemm */
void kern_vector_init(kern *k); /* vector_ref.c: norms, rope, elementwise, argmax */
void kern_attend_init(kern *k); /* attend_ref.c: kv_put, kv_copy, attend, attend_fold */

/* A product cut into tiles: up to some activation rows against one group. */
typedef struct kern_tile {
    kern_group g;
    int k, rows;
    const char *act;
    size_t act_stride;
    float *out; /* the group's first output of the tile's first row */
    size_t out_stride;
    bool add;
} kern_tile;

#define KERN_GEMM_ARGS                                                                             \
    const kern_mat *w, const void *act, size_t act_stride, int m, float *out, size_t out_stride,   \
        bool add, int group0, int group1
/* Runs all tiles of a product, of at most max_rows rows each: the rows of a tile stay in L1 while
 * the groups pass. */
void kern_gemm_walk(KERN_GEMM_ARGS, int max_rows, void (*run)(const kern_tile *t));
void kern_act_row_avx2(enum kern_type type, int k, const float *x, void *row);
void kern_act_row_avx512(enum kern_type type, int k, const float *x, void *row);
void kern_gemm_avx2(KERN_GEMM_ARGS);
void kern_gemm_avx512(KERN_GEMM_ARGS);
void kern_gemm_vnni(KERN_GEMM_ARGS);
void kern_gemm_amx(KERN_GEMM_ARGS);

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

static inline float f32_of_bf16(uint16_t h) {
    return f32_of_bits((uint32_t)h << 16);
}

#endif
