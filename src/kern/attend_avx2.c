#include "attend.h"

/* 12 of 16 registers hold sums; two lines of b and a broadcast take three. */
enum { TILE_ROWS = 6, TILE_WIDTH = 1, FEW_WIDTH = 1 };
#include "attend_lanes.h"

void attend_avx2(const kern_attend *a) {
    attend(a);
}

void attend_put_avx2(KERN_PUT_ARGS) {
    kv_put(kv, dk, dv, block, slot, k, v);
}

void attend_fold_avx2(int dv, int n, const float *partial, size_t stride, float sink, float *out) {
    attend_fold(dv, n, partial, stride, sink, out);
}
