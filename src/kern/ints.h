/* ints: 64 bytes of integers, one for each of the sixteen lanes (lanes.h) when they are int32, two
 * when int16, four when int8. ints_avx2.h, ints_avx512.h and ints_neon.h supply
 *
 *   zero, all, all_bytes             0; an int32 in every lane; one byte everywhere
 *   load, store; widen               64 aligned bytes; sixteen int8 as int32
 *   and, or, xor, left, right        bits; int32 shifted, zeros coming in
 *   look_up(table, x)                table[x] for each byte below 16
 *   pair(a, b)                       the low halves of a and b as int16 2j and 2j+1
 *   add, mul, max, greatest, sum     int32
 *   add_bytes(sum, w, q)             adds w[2j]·q[2j] + w[2j+1]·q[2j+1] to int16 j; w unsigned
 *   add_words(sum, a, b)             multiply_pairs, added to sum; x86-64 only
 *   multiply_pairs(a, b)             int32 j = a[2j]·b[2j] + a[2j+1]·b[2j+1] of int16
 *   float, round, magnitude          from and to lanes: exact; to nearest even; bits without sign
 *   store_bytes                      sixteen int32 within ±127 as int8
 *   store_64(p, x)                   four times sixteen int32 within 0..255 as 64 aligned bytes
 *   even_bytes, odd_bytes(signed, x) bytes 2j or 2j+1 as int16 j
 *
 * and lanes_load_bf16. */
#ifndef INTS_H
#define INTS_H

#include "lanes.h"

#if defined(__aarch64__)
#include "ints_neon.h"
#elif defined(__AVX512F__)
#include "ints_avx512.h"
#else
#include "ints_avx2.h"
#endif

/* The eight vectors of 32 k of a type with quants of so many bits (kern_internal.h). */
KERN_INLINE void ints_unpack(int bits, const uint8_t *quants, ints w[8]) {
    const ints fifteen = ints_all_bytes(15), three = ints_all_bytes(3), one = ints_all_bytes(1);
    if (bits == 8) {
        KERN_UNROLL for (int v = 0; v < 8; v++) w[v] = ints_load(quants + 64 * v);
        return;
    }
    if (bits >= 4) {
        KERN_UNROLL for (int v = 0; v < 4; v++) {
            ints x = ints_load(quants + 64 * v);
            w[v] = ints_and(x, fifteen);
            w[v + 4] = ints_and(ints_right(x, 4), fifteen);
        }
    } else {
        KERN_UNROLL for (int v = 0; v < 8; v++) w[v] =
            ints_and(ints_right(ints_load(quants + 64 * (v % 2)), v / 2 * 2), three);
    }
    const int low = bits >= 4 ? 4 : 2; /* bits so far, and vectors */
    const uint8_t *high = quants + 64 * low;
    if (bits - low == 2) {
        KERN_UNROLL for (int v = 0; v < 8; v++) {
            ints x = ints_and(ints_right(ints_load(high + 64 * (v % 2)), v / 2 * 2), three);
            w[v] = ints_or(w[v], ints_left(x, low));
        }
    } else if (bits - low == 1) {
        KERN_UNROLL for (int v = 0; v < 8; v++) {
            ints x = ints_and(ints_right(ints_load(high), v), one);
            w[v] = ints_or(w[v], ints_left(x, low));
        }
    }
}

/* The sub-scales of a block of 256 and its minimums, 0 where there are none. */
KERN_INLINE void ints_read_subs(const kern_layout *l, const uint8_t *scales, ints *sub, ints *min) {
    const uint8_t *subs = scales + (l->has_min ? 64 : 32);
    const uint8_t *mins = l->joint_sub ? subs : subs + LANES * l->n_sub;
    const ints fifteen = ints_all(15);
    for (int j = 0; j < l->n_sub; j++) {
        sub[j] = ints_widen(subs + LANES * j);
        min[j] = l->has_min ? ints_widen(mins + LANES * j) : ints_zero();
        if (l->joint_sub) {
            sub[j] = ints_and(sub[j], fifteen);
            min[j] = ints_and(ints_right(min[j], 4), fifteen);
        }
    }
}

/* The bytes that take the place of indices: numbers + 128. */
static inline void ints_codebook(const kern_layout *l, uint8_t table[16]) {
    for (int i = 0; i < 16; i++) table[i] = (uint8_t)(l->codebook[i] + 128);
}

#endif
