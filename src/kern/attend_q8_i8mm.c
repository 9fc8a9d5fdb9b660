#include "ints.h"

enum { Q8_TILE_ROWS = 4, Q8_TILE_WIDTH = 1 }; /* 16 of 32 registers hold sums */

static inline ints add_fours(ints sum, ints a, ints b) {
    LANES_EACH sum.v[i] =
        vusdotq_s32(sum.v[i], vreinterpretq_u8_s32(a.v[i]), vreinterpretq_s8_s32(b.v[i]));
    return sum;
}

#include "attend_q8_fours.h"

KERN_INLINE void multiply(bool keys, const product *p) {
    dot(keys, p);
}
static inline void begin_rows(const group *g) {}
static inline void end_rows(void) {}

void attend_any_i8mm(const kern_attend *a) {
    a->kv == KERN_Q8_0 ? q8_attend(a) : attend_neon(a);
}
