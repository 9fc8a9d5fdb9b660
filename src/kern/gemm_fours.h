/* Products of bytes with VNNI, in terms of add_fours(groups, sum, row, w, q): to each lane of
 * sum[g][row] the four products of w[g] with the four bytes at q. See gemm_lanes.h. */
#include "ints.h"

enum { PAIRS = 0 };

static inline ints factor_of(ints sub) {
    return sub;
}

static inline void store_block(const ints w[8], uint8_t (*to)[64]) {
    KERN_UNROLL for (int v = 0; v < 8; v++) ints_store(to[v], w[v]);
}

KERN_INLINE void dot(bool scaled, int depth, int groups, int rows, int n,
                     const uint8_t (*const *w)[64], const char *const *q, ints factor,
                     ints (*sum)[MAX_ROWS]) {
    ints part[2][MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int g = 0; g < groups; g++) part[g][i] = scaled ? ints_zero() : sum[g][i];
    }
    KERN_UNROLL for (int v = 0; v < n; v++) {
        ints x[2];
        KERN_UNROLL for (int g = 0; g < groups; g++) x[g] = ints_load(w[g][v]);
        KERN_UNROLL for (int i = 0; i < rows; i++) add_fours(groups, part, i, x, q[i] + 4 * v);
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int g = 0; g < groups; g++) sum[g][i] =
            scaled ? ints_add(sum[g][i], ints_mul(part[g][i], factor)) : part[g][i];
    }
}
