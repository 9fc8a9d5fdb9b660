/* Matrix products of gemm_neon.c and gemm_dotprod.c: bytes of weights are signed in fours. */
#include "neon_fours.h"

enum { MAX_ROWS = 4, ROWS_32 = 4, ROWS_PAIR = 0, MAX_FLOAT_ROWS = 6, BIAS = 0 };

KERN_INLINE void add_fours(int groups, ints (*sum)[MAX_ROWS], int row, const ints *w,
                           const char *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
    KERN_UNROLL for (int g = 0; g < groups; g++) {
        int32x4_t *to = sum[g][row].v;
        LANES_EACH to[i] = neon_signed_fours(to[i], vreinterpretq_s8_s32(w[g].v[i]), all);
    }
}

#include "gemm_fours.h"

#include "gemm_lanes.h"
