#include "attend.h"

/* 24 of 32 registers hold sums. */
enum { TILE_ROWS = 12, TILE_WIDTH = 2, FEW_WIDTH = 4 };
#include "attend_lanes.h"

void attend_avx512(const kern_attend *a) {
    attend(a);
}

void attend_put_avx512(KERN_PUT_ARGS) {
    kv_put(kv, dk, dv, block, slot, k, v);
}

void attend_fold_avx512(int dv, int n, const float *partial, size_t stride, float sink,
                        float *out) {
    attend_fold(dv, n, partial, stride, sink, out);
}
