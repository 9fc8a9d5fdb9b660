/* Taking apart the blocks of GGUF's codebook types. A quant is an index into the 16 numbers of the
 * type's codebook in types.c: for the IQ2 and IQ3 types a magnitude and, above it, the sign; for
 * IQ1 a number of -1, 0, 1 and the sign of the shift by 1/8. */
#include "codebook_grids.h"
#include "kern_internal.h"

static inline uint16_t word_at(const uint8_t *p) {
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline uint32_t long_at(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Seven sign bits; the eighth makes their number even. */
static inline unsigned even_signs(unsigned seven) {
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

static inline void put_pairs(uint8_t *q, unsigned entry, unsigned signs) {
    for (int i = 0; i < 8; i++) q[i] = (uint8_t)((entry >> 2 * i & 3) | (signs >> i & 1) << 2);
}

static inline void put_triples(uint8_t *q, unsigned entry, unsigned signs) {
    for (int i = 0; i < 4; i++) q[i] = (uint8_t)((entry >> 3 * i & 7) | (signs >> i & 1) << 3);
}

static inline int8_t odd(unsigned s) {
    return (int8_t)(2 * s + 1);
}

KERN_TAKE(iq4_nl) { /* {f16 d; nibbles[16]} */
    kern_take_q4_0(file, b);
}

KERN_TAKE(iq4_xs) { /* {f16 d; u16 high bits of sub; low nibbles[4]; nibbles[8][16]} */
    b->d = word_at(file);
    unsigned high = word_at(file + 2);
    for (int j = 0; j < 8; j++) {
        unsigned low = file[4 + j / 2] >> 4 * (j % 2) & 15;
        b->sub[j] = (int8_t)((low | (high >> 2 * j & 3) << 4) - 32);
        for (int i = 0; i < 16; i++) {
            uint8_t byte = file[8 + 16 * j + i];
            b->q[32 * j + i] = byte & 15;
            b->q[32 * j + 16 + i] = byte >> 4;
        }
    }
}

KERN_TAKE(iq2_xxs) { /* {f16 d; {u8 entry[4]; u32 signs 4×7, sub 4}[8]} */
    b->d = word_at(file);
    for (int j = 0; j < 8; j++) {
        const uint8_t *p = file + 2 + 8 * j;
        uint32_t signs = long_at(p + 4);
        for (int i = 0; i < 4; i++)
            put_pairs(b->q + 32 * j + 8 * i, grid_iq2_xxs[p[i]], even_signs(signs >> 7 * i & 127));
        b->sub[j] = odd(signs >> 28);
    }
}

KERN_TAKE(iq2_xs) { /* {f16 d; u16 {entry 9, signs 7}[32]; nibbles sub[8]} */
    b->d = word_at(file);
    for (int i = 0; i < 32; i++) {
        unsigned code = word_at(file + 2 + 2 * i);
        put_pairs(b->q + 8 * i, grid_iq2_xs[code & 511], even_signs(code >> 9));
    }
    for (int j = 0; j < 16; j++) b->sub[j] = odd(file[66 + j / 2] >> 4 * (j % 2) & 15);
}

KERN_TAKE(iq2_s) { /* {f16 d; u8 entry[32]; signs[32]; pairs high bits of entry[8]; sub[8]} */
    b->d = word_at(file);
    for (int i = 0; i < 32; i++) {
        unsigned high = file[66 + i / 4] >> 2 * (i % 4) & 3;
        put_pairs(b->q + 8 * i, grid_iq2_s[file[2 + i] | high << 8], file[34 + i]);
    }
    for (int j = 0; j < 16; j++) b->sub[j] = odd(file[74 + j / 2] >> 4 * (j % 2) & 15);
}

KERN_TAKE(iq3_xxs) { /* {f16 d; u8 entry[64]; u32 {signs 4×7, sub 4}[8]} */
    b->d = word_at(file);
    for (int j = 0; j < 8; j++) {
        uint32_t code = long_at(file + 66 + 4 * j);
        for (int i = 0; i < 8; i++) {
            unsigned signs = even_signs(code >> 7 * (i / 2) & 127) >> 4 * (i % 2);
            put_triples(b->q + 32 * j + 4 * i, grid_iq3_xxs[file[2 + 8 * j + i]], signs);
        }
        b->sub[j] = odd(code >> 28);
    }
}

KERN_TAKE(iq3_s) { /* {f16 d; u8 entry[64]; high bits[8]; signs[32]; nibbles sub[4]} */
    b->d = word_at(file);
    for (int i = 0; i < 64; i++) {
        unsigned high = file[66 + i / 8] >> i % 8 & 1;
        unsigned signs = file[74 + i / 2] >> 4 * (i % 2);
        put_triples(b->q + 4 * i, grid_iq3_s[file[2 + i] | high << 8], signs);
    }
    for (int j = 0; j < 8; j++) b->sub[j] = odd(file[106 + j / 2] >> 4 * (j % 2) & 15);
}

KERN_TAKE(iq1_s) { /* {f16 d; u8 entry[32]; u16 {high bits 4×3, sub 3, shift 1}[8]} */
    b->d = word_at(file);
    for (int j = 0; j < 8; j++) {
        unsigned code = word_at(file + 34 + 2 * j), down = code >> 15 ? 0xff : 0;
        for (int i = 0; i < 4; i++) {
            unsigned entry = file[2 + 4 * j + i] | (code >> 3 * i & 7) << 8;
            put_pairs(b->q + 32 * j + 8 * i, grid_iq1_s[entry], down);
        }
        b->sub[j] = odd(code >> 12 & 7);
    }
}

KERN_TAKE(iq1_m) { /* {u8 entry[32]; nibbles {high bits 3, shift 1}[32]; u16 {sub 4×3, d 4}[4]} */
    b->d = 0;
    for (int j = 0; j < 4; j++) b->d |= (uint16_t)((word_at(file + 48 + 2 * j) >> 12) << 4 * j);
    for (int i = 0; i < 32; i++) {
        unsigned code = file[32 + i / 2] >> 4 * (i % 2) & 15;
        put_pairs(b->q + 8 * i, grid_iq1_s[file[i] | (code & 7) << 8], code & 8 ? 0xff : 0);
    }
    for (int j = 0; j < 16; j++)
        b->sub[j] = odd(word_at(file + 48 + 2 * (j / 4)) >> 3 * (j % 4) & 7);
}
