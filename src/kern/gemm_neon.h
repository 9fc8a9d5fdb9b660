/* Matrix products of gemm_neon.c and gemm_dotprod.c: bytes of weights are signed in fours. */
#include "neon_fours.h"

enum { MAX_ROWS = 4, ROWS_32 = 4, MAX_FLOAT_ROWS = 6, BIAS = 0 };

static inline ints add_fours(ints sum, ints w, const char *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
    LANES_EACH sum.v[i] = neon_signed_fours(sum.v[i], vreinterpretq_s8_s32(w.v[i]), all);
    return sum;
}

#include "gemm_fours.h"

#include "gemm_lanes.h"
