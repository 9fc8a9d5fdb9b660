/* Products of bytes with VNNI, in terms of add_fours(sum, w, q): to each lane of sum the four
 * products of w with the four bytes at q. See gemm_lanes.h. */
#include "ints.h"

static inline ints factor_of(ints sub) {
    return sub;
}

static inline void store_block(const ints w[8], uint8_t (*to)[64]) {
    KERN_UNROLL for (int v = 0; v < 8; v++) ints_store(to[v], w[v]);
}

KERN_INLINE void dot(bool scaled, int rows, int n, int depth, const uint8_t (*w)[64],
                     const char *const *q, ints factor, ints *sum) {
    ints part[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) part[i] = scaled ? ints_zero() : sum[i];
    KERN_UNROLL for (int v = 0; v < n; v++) {
        ints x = ints_load(w[v]);
        KERN_UNROLL for (int i = 0; i < rows; i++) part[i] = add_fours(part[i], x, q[i] + 4 * v);
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) sum[i] =
        scaled ? ints_add(sum[i], ints_mul(part[i], factor)) : part[i];
}
