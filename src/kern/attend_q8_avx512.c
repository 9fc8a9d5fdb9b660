enum { Q8_TILE_ROWS = 4, Q8_TILE_WIDTH = 4 }; /* 16 of 32 registers hold sums */
#include "attend_q8_pairs.h"

void attend_any_avx512(const kern_attend *a) {
    a->kv == KERN_Q8_0 ? q8_attend(a) : attend_avx512(a);
}

void attend_put_any_avx512(KERN_PUT_ARGS) {
    kv == KERN_Q8_0 ? q8_put(dk, dv, block, slot, k, v)
                    : attend_put_avx512(kv, dk, dv, block, slot, k, v);
}
