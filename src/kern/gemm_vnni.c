/* Matrix products with AVX-512 VNNI: sums of four products of bytes as int32. The bodies are in
 * gemm_lanes.h. */
#include "ints.h"

enum { MAX_ROWS = 8, ROWS_32 = 8, MAX_FLOAT_ROWS = 6, BIAS = 128 };

/* The intrinsic of it makes compilers spend an instruction and a register on the broadcast. */
static inline ints add_fours(ints sum, ints w, const char *q) {
    typedef char four[4];
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const four *)q));
    return sum;
}

#include "gemm_fours.h"

#include "gemm_lanes.h"

void kern_gemm_vnni(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
