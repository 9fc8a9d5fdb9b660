/* Matrix products with AVX-512 VNNI: sums of four products of bytes as int32. The bodies are in
 * gemm_lanes.h. */
#include "ints.h"

enum { MAX_ROWS = 8, ROWS_32 = 8, MAX_FLOAT_ROWS = 6, BIAS = 128 };

static inline ints add_fours(ints sum, ints w, const char *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}

#include "gemm_fours.h"

#include "gemm_lanes.h"

void kern_gemm_vnni(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
