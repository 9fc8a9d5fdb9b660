/* Matrix products with the vector instructions that every AArch64 processor has. */
#include "gemm_neon.h"

#include "act_lanes.h"

void kern_act_row_neon(enum kern_type type, int k, const float *x, void *row) {
    act_row(type, k, x, row);
}

void kern_gemm_neon(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
