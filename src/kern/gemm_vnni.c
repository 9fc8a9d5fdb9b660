/* Matrix products with AVX-512 VNNI: sums of four products of bytes as int32. The bodies are in
 * gemm_lanes.h. */
#include "ints.h"

enum { MAX_ROWS = 8, ROWS_32 = 8, ROWS_PAIR = 6, MAX_FLOAT_ROWS = 6, BIAS = 128 };

/* One group takes activations from memory: compilers spend an instruction and a register on it. */
KERN_INLINE void add_fours(int groups, ints (*sum)[MAX_ROWS], int row, const ints *w,
                           const char *q) {
    typedef char four[4];
    if (groups == 1) {
        __asm__("vpdpbusd %2%{1to16%}, %1, %0"
                : "+v"(sum[0][row])
                : "v"(w[0]), "m"(*(const four *)q));
        return;
    }
    int32_t number;
    memcpy(&number, q, sizeof number);
    const ints all = ints_all(number);
    KERN_UNROLL for (int g = 0; g < groups; g++) sum[g][row] =
        _mm512_dpbusd_epi32(sum[g][row], w[g], all);
}

#include "gemm_fours.h"

#include "gemm_lanes.h"

void kern_gemm_vnni(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
