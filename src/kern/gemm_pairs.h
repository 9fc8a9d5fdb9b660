/* Products of bytes without VNNI: pairs, summed as int16. See gemm_lanes.h. */
#include "ints.h"

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

/* Of bytes in two parts, each row has two sums: where registers hold only four rows, two at a time.
 */
enum { NIBBLE_ROWS = MAX_ROWS > 4 ? MAX_ROWS : 2 };

/* Bytes beyond what pairs can take, as two nibbles: w = 16·high + low. */
KERN_INLINE void dot_nibbles(int rows, int n, const uint8_t (*w)[64], const char *const *q,
                             ints factor, ints *sum) {
    const ints fifteen = ints_all_bytes(15), sixteen = factor_of(ints_left(factor, 4));
    ints low_sum[NIBBLE_ROWS], high_sum[NIBBLE_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) low_sum[i] = high_sum[i] = ints_zero();
    for (int v = 0; v < n; v++) {
        ints x = ints_load(w[v]), low = ints_and(x, fifteen);
        ints high = ints_and(ints_right(x, 4), fifteen);
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            ints four = broadcast_four(q[i] + 4 * v);
            low_sum[i] = ints_add_bytes(low_sum[i], low, four);
            high_sum[i] = ints_add_bytes(high_sum[i], high, four);
        }
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        sum[i] = ints_add(sum[i], ints_multiply_pairs(low_sum[i], factor));
        sum[i] = ints_add(sum[i], ints_multiply_pairs(high_sum[i], sixteen));
    }
}

KERN_INLINE void dot(bool scaled, int rows, int n, int depth, const uint8_t (*w)[64],
                     const char *const *q, ints factor, ints *sum) {
    if (depth == 0) {
        const int first = rows < NIBBLE_ROWS ? rows : NIBBLE_ROWS;
        dot_nibbles(first, n, w, q, factor, sum);
        if (rows > first) dot_nibbles(rows - first, n, w, q + first, factor, sum + first);
        return;
    }
    if (depth > n) depth = n;
    for (int v0 = 0; v0 < n; v0 += depth) {
        ints part[MAX_ROWS];
        KERN_UNROLL for (int i = 0; i < rows; i++) part[i] = ints_zero();
        for (int v = v0; v < v0 + depth; v++) {
            ints x = ints_load(w[v]);
            KERN_UNROLL for (int i = 0; i < rows; i++) part[i] =
                ints_add_bytes(part[i], x, broadcast_four(q[i] + 4 * v));
        }
        KERN_UNROLL for (int i = 0; i < rows; i++) sum[i] =
            ints_add(sum[i], ints_multiply_pairs(part[i], factor));
    }
}
