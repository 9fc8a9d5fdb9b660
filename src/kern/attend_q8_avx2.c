enum { Q8_TILE_ROWS = 4, Q8_TILE_WIDTH = 1 }; /* 8 of 16 registers hold sums */
#include "attend_q8_pairs.h"

void attend_any_avx2(const kern_attend *a) {
    a->kv == KERN_Q8_0 ? q8_attend(a) : attend_avx2(a);
}

void attend_put_any_avx2(KERN_PUT_ARGS) {
    kv == KERN_Q8_0 ? q8_put(dk, dv, block, slot, k, v)
                    : attend_put_avx2(kv, dk, dv, block, slot, k, v);
}
