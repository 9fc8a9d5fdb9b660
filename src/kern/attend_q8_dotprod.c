#include "attend_q8_flips.h"

void attend_any_dotprod(const kern_attend *a) {
    a->kv == KERN_Q8_0 ? q8_attend(a) : attend_neon(a);
}
