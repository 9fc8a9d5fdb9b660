/* Matrix products with FEAT_DotProd: sums of four products of bytes as int32. */
#include "gemm_neon.h"

void kern_gemm_dotprod(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
