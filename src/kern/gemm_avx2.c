/* Matrix products with AVX2: sixteen lanes are two registers. The bodies are in gemm_lanes.h. */
#include "ints.h"

enum { MAX_ROWS = 4, ROWS_32 = 3, ROWS_PAIR = 0, MAX_FLOAT_ROWS = 6, BIAS = 128 };

#include "gemm_pairs.h"

#include "gemm_lanes.h"

#include "act_lanes.h"

void kern_act_row_avx2(enum kern_type type, int k, const float *x, void *row) {
    act_row(type, k, x, row);
}

void kern_gemm_avx2(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
