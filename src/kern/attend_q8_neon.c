#include "attend_q8_flips.h"

void attend_any_neon(const kern_attend *a) {
    a->kv == KERN_Q8_0 ? q8_attend(a) : attend_neon(a);
}

void attend_put_any_neon(KERN_PUT_ARGS) {
    kv == KERN_Q8_0 ? q8_put(dk, dv, block, slot, k, v)
                    : attend_put_neon(kv, dk, dv, block, slot, k, v);
}
