/* Matrix products with AVX-VNNI: AVX2 and sums of four products of bytes as int32. The bodies are
 * in gemm_lanes.h. */
#include "ints.h"

enum { MAX_ROWS = 4, ROWS_32 = 4, MAX_FLOAT_ROWS = 6, BIAS = 128 };

static inline ints add_fours(ints sum, ints w, const char *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    __m256i all = _mm256_set1_epi32(four);
    return (ints){_mm256_dpbusd_avx_epi32(sum.lo, w.lo, all),
                  _mm256_dpbusd_avx_epi32(sum.hi, w.hi, all)};
}

#include "gemm_fours.h"

#include "gemm_lanes.h"

void kern_gemm_avxvnni(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
