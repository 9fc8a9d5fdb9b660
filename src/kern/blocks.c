/* Taking apart the blocks of GGUF's integer types (ggml's docs/gguf.md and ggml-common.h): numbers
 * in the order of k, sub-scales widened to bytes. The codebook types are in codebook.c. */
#include "kern_internal.h"

static inline uint16_t half_at(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return half;
}

/* n bytes: the low nibbles come first, then the high ones. */
static inline void split_nibbles(const uint8_t *p, int n, uint8_t *q) {
    for (int i = 0; i < n; i++) {
        q[i] = p[i] & 15;
        q[n + i] = p[i] >> 4;
    }
}

/* Bit i of the word becomes bit 4 of q[i]. */
static inline void add_fifth_bits(const uint8_t *p, uint8_t *q) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    for (int i = 0; i < 32; i++) q[i] |= (bits >> i & 1) << 4;
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

KERN_TAKE(q4_0) { /* {f16 d; nibbles[16]} */
    b->d = half_at(file);
    split_nibbles(file + 2, 16, b->q);
}

KERN_TAKE(q4_1) { /* {f16 d, min; nibbles[16]} */
    b->d = half_at(file);
    b->min = half_at(file + 2);
    split_nibbles(file + 4, 16, b->q);
}

KERN_TAKE(q5_0) { /* {f16 d; bits[4]; nibbles[16]} */
    b->d = half_at(file);
    split_nibbles(file + 6, 16, b->q);
    add_fifth_bits(file + 2, b->q);
}

KERN_TAKE(q5_1) { /* {f16 d, min; bits[4]; nibbles[16]} */
    b->d = half_at(file);
    b->min = half_at(file + 2);
    split_nibbles(file + 8, 16, b->q);
    add_fifth_bits(file + 4, b->q);
}

KERN_TAKE(q8_0) { /* {f16 d; int8 q[32]} */
    b->d = half_at(file);
    for (int i = 0; i < 32; i++) b->q[i] = file[2 + i] ^ 0x80;
}

KERN_TAKE(mxfp4) { /* {e8m0 d; nibbles[16]}: 2^(d - 128), as bfloat16 */
    b->d = file[0] < 2 ? (uint16_t)(0x20 << file[0]) : (uint16_t)((file[0] - 1) << 7);
    split_nibbles(file + 1, 16, b->q);
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* 64 bytes, each with four numbers that lie 32 apart. */
static inline void split_pairs(const uint8_t *p, uint8_t *q) {
    for (int part = 0; part < 2; part++, p += 32)
        for (int shift = 0; shift < 8; shift += 2, q += 32)
            for (int i = 0; i < 32; i++) q[i] = p[i] >> shift & 3;
}

KERN_TAKE(q2_k) { /* {nibbles sub | min[16]; pairs[64]; f16 d, min} */
    b->d = half_at(file + 80);
    b->min = half_at(file + 82);
    for (int j = 0; j < 16; j++) {
        b->sub[j] = (int8_t)(file[j] & 15);
        b->submin[j] = file[j] >> 4;
    }
    split_pairs(file + 16, b->q);
}

KERN_TAKE(q3_k) { /* {bits[32]; pairs[64]; 6-bit sub[16] in 12 bytes; f16 d} */
    b->d = half_at(file + 108);
    split_pairs(file + 32, b->q);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++) b->q[32 * j + i] |= (file[i] >> j & 1) << 2;
    const uint8_t *sub = file + 96;
    for (int j = 0; j < 16; j++) {
        int low = sub[j % 8] >> (j < 8 ? 0 : 4) & 15, high = sub[8 + j % 4] >> j / 4 * 2 & 3;
        b->sub[j] = (int8_t)((low | high << 4) - 32);
    }
}

/* Eight sub-scales and eight minimums of 6 bits in 12 bytes. */
static inline void read_six_bits(const uint8_t *p, kern_block *b) {
    for (int j = 0; j < 4; j++) {
        b->sub[j] = (int8_t)(p[j] & 63);
        b->submin[j] = p[4 + j] & 63;
        b->sub[4 + j] = (int8_t)((p[8 + j] & 15) | p[j] >> 6 << 4);
        b->submin[4 + j] = (uint8_t)(p[8 + j] >> 4 | p[4 + j] >> 6 << 4);
    }
}

KERN_TAKE(q4_k) { /* {f16 d, min; 6-bit sub, min[8] in 12 bytes; nibbles[4][32]} */
    b->d = half_at(file);
    b->min = half_at(file + 2);
    read_six_bits(file + 4, b);
    for (int j = 0; j < 4; j++) split_nibbles(file + 16 + 32 * j, 32, b->q + 64 * j);
}

KERN_TAKE(q5_k) { /* {f16 d, min; 6-bit sub, min[8] in 12 bytes; bits[32]; nibbles[4][32]} */
    b->d = half_at(file);
    b->min = half_at(file + 2);
    read_six_bits(file + 4, b);
    for (int j = 0; j < 4; j++) split_nibbles(file + 48 + 32 * j, 32, b->q + 64 * j);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++) b->q[32 * j + i] |= (file[16 + i] >> j & 1) << 4;
}

KERN_TAKE(q6_k) { /* {nibbles[2][64]; pairs[64]; int8 sub[16]; f16 d} */
    b->d = half_at(file + 208);
    uint8_t high[256];
    split_pairs(file + 128, high);
    for (int j = 0; j < 2; j++) split_nibbles(file + 64 * j, 64, b->q + 128 * j);
    for (int i = 0; i < 256; i++) b->q[i] |= (uint8_t)(high[i] << 4);
    memcpy(b->sub, file + 192, 16);
}

KERN_TAKE(tq2_0) { /* {pairs[64]; f16 d} */
    b->d = half_at(file + 64);
    split_pairs(file, b->q);
    memset(b->sub, 1, sizeof b->sub);
}

/* Five numbers of base 3 a byte, as a fraction of 256: the first is floor(3·x / 256). */
static inline uint8_t *split_trits(const uint8_t *p, int n, int n_trits, uint8_t *q) {
    uint8_t power = 1;
    for (int t = 0; t < n_trits; t++, power = (uint8_t)(3 * power))
        for (int i = 0; i < n; i++) *q++ = (uint8_t)((uint8_t)(p[i] * power) * 3 >> 8);
    return q;
}

KERN_TAKE(tq1_0) { /* {trits[32], [16], [4]; f16 d} */
    b->d = half_at(file + 52);
    uint8_t *q = split_trits(file, 32, 5, b->q);
    q = split_trits(file + 32, 16, 5, q);
    split_trits(file + 48, 4, 4, q);
    memset(b->sub, 1, sizeof b->sub);
}
