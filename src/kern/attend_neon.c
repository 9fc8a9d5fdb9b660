#include "attend.h"

/* 24 of 32 registers hold sums; a line of b and a broadcast take five. */
enum { TILE_ROWS = 6, TILE_WIDTH = 1, FEW_WIDTH = 1 };
#include "attend_lanes.h"

void attend_neon(const kern_attend *a) {
    attend(a);
}

void attend_put_neon(KERN_PUT_ARGS) {
    kv_put(kv, dk, dv, block, slot, k, v);
}

void attend_fold_neon(int dv, int n, const float *partial, size_t stride, float sink, float *out) {
    attend_fold(dv, n, partial, stride, sink, out);
}
