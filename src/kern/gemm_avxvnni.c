/* Matrix products with AVX-VNNI: AVX2 and sums of four products of bytes as int32. The bodies are
 * in gemm_lanes.h. */
#include "ints.h"

enum { MAX_ROWS = 4, ROWS_32 = 4, ROWS_PAIR = 0, MAX_FLOAT_ROWS = 6, BIAS = 128 };

KERN_INLINE void add_fours(int groups, ints (*sum)[MAX_ROWS], int row, const ints *w,
                           const char *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    const __m256i all = _mm256_set1_epi32(four);
    KERN_UNROLL for (int g = 0; g < groups; g++) {
        ints *to = &sum[g][row];
        to->lo = _mm256_dpbusd_avx_epi32(to->lo, w[g].lo, all);
        to->hi = _mm256_dpbusd_avx_epi32(to->hi, w[g].hi, all);
    }
}

#include "gemm_fours.h"

#include "gemm_lanes.h"

void kern_gemm_avxvnni(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
