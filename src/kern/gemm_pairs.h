/* Products of bytes without VNNI: pairs, summed as int16. See gemm_lanes.h. */
#include "ints.h"

enum { PAIRS = 1 };

static inline ints factor_of(ints sub) {
    return ints_pair(sub, sub);
}

static inline void store_block(const ints w[8], uint8_t (*to)[64]) {
    KERN_UNROLL for (int v = 0; v < 8; v++) ints_store(to[v], w[v]);
}

static inline ints broadcast_four(const char *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return ints_all(four);
}

/* ---- bytes beyond what pairs can take, as two nibbles: w = 16·high + low --------------------- */

/* Each row has two sums. Where sixteen lanes are two registers, these take their turns. */
#ifdef __AVX512F__
typedef __m512i reg;
#define REG(operation) _mm512_##operation
#else
typedef __m256i reg;
#define REG(operation) _mm256_##operation
#endif
enum { REGS = sizeof(ints) / sizeof(reg) };

static inline reg *regs_of(ints *x) {
    return (reg *)x;
}

static inline reg broadcast_reg(const char *p) {
    ints four = broadcast_four(p);
    return *regs_of(&four);
}

/* Adds w[2j]·q[2j] + w[2j+1]·q[2j+1] to int16 j, in the order that is written. */
static inline void add_bytes(reg *sum, reg w, reg q) {
    *sum = REG(add_epi16)(*sum, REG(maddubs_epi16)(w, q));
    __asm__("" : "+v"(*sum));
}

/* Adds pairs of int16 times factor to int32. */
static inline void add_pairs(reg *sum, reg pairs, reg factor) {
    *sum = REG(add_epi32)(*sum, REG(madd_epi16)(pairs, factor));
}

/* Vector x times four bytes of each row. */
KERN_INLINE void add_nibbles(int rows, reg x, const char *const *q, int at, reg *low_sum,
                             reg *high_sum) {
    const reg fifteen = REG(set1_epi8)(15);
    reg low = x & fifteen, high = REG(srli_epi32)(x, 4) & fifteen;
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        reg four = broadcast_reg(q[i] + at);
        add_bytes(&low_sum[i], low, four);
        add_bytes(&high_sum[i], high, four);
    }
}

/* Register r of all sums. */
KERN_INLINE void dot_nibbles(int rows, int r, int n, const uint8_t (*w)[64], const char *const *q,
                             reg factor, ints *sum) {
    reg low_sum[MAX_ROWS], high_sum[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) low_sum[i] = high_sum[i] = (reg){0};
    if (rows > 2) {
        KERN_LOOP for (int v = 0; v < n; v++)
            add_nibbles(rows, ((const reg *)w[v])[r], q, 4 * v, low_sum, high_sum);
    } else {
        KERN_UNROLL for (int v = 0; v < n; v++)
            add_nibbles(rows, ((const reg *)w[v])[r], q, 4 * v, low_sum, high_sum);
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        add_pairs(&regs_of(&sum[i])[r], low_sum[i], factor);
        add_pairs(&regs_of(&sum[i])[r], high_sum[i], REG(slli_epi16)(factor, 4));
    }
}

/* ---- words --------------------------------------------------------------------------------- */

KERN_INLINE void dot_words(bool scaled, int rows, int n, const uint8_t (*w)[64],
                           const char *const *q, ints factor, ints *sum) {
    ints part[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) part[i] = scaled ? ints_zero() : sum[i];
    KERN_UNROLL for (int v = 0; v < 2 * n; v++) {
        ints x = ints_load(w[v]);
        KERN_UNROLL for (int i = 0; i < rows; i++) part[i] =
            ints_add_words(part[i], x, broadcast_four(q[i] + v / 2 * 4 + v % 2 * 64));
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) sum[i] =
        scaled ? ints_add(sum[i], ints_mul(part[i], factor)) : part[i];
}

/* ---- all ------------------------------------------------------------------------------------- */

/* n vectors, for which sums of pairs have room. */
KERN_INLINE void dot_pairs(int rows, int n, const uint8_t (*w)[64], const char *const *q,
                           ints factor, ints *sum) {
    ints part[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) part[i] = ints_zero();
    KERN_UNROLL for (int v = 0; v < n; v++) {
        ints x = ints_load(w[v]);
        KERN_UNROLL for (int i = 0; i < rows; i++) part[i] =
            ints_add_bytes(part[i], x, broadcast_four(q[i] + 4 * v));
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) sum[i] =
        ints_add(sum[i], ints_multiply_pairs(part[i], factor)); /* factors of one come free */
}

KERN_INLINE void dot_group(bool scaled, int depth, int rows, int n, const uint8_t (*w)[64],
                           const char *const *q, ints factor, ints *sum) {
    if (depth == KERN_NIBBLES) {
        KERN_UNROLL for (int r = 0; r < REGS; r++)
            dot_nibbles(rows, r, n, w, q, regs_of(&factor)[r], sum);
    } else if (depth == KERN_WORDS) {
        dot_words(scaled, rows, n, w, q, factor, sum);
    } else {
        const int step = depth < n ? depth : n;
        KERN_UNROLL for (int v = 0; v < n; v += step) {
            const char *at[MAX_ROWS];
            KERN_UNROLL for (int i = 0; i < rows; i++) at[i] = q[i] + 4 * v;
            dot_pairs(rows, step, w + v, at, factor, sum);
        }
    }
}

KERN_INLINE void dot(bool scaled, int depth, int groups, int rows, int n,
                     const uint8_t (*const *w)[64], const char *const *q, ints factor,
                     ints (*sum)[MAX_ROWS]) {
    KERN_UNROLL for (int g = 0; g < groups; g++)
        dot_group(scaled, depth, rows, n, w[g], q, factor, sum[g]);
}
