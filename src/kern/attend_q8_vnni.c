#include "ints.h"

enum { Q8_TILE_ROWS = 4, Q8_TILE_WIDTH = 4 }; /* 16 of 32 registers hold sums */

static inline ints add_fours(ints sum, ints a, ints b) {
    return _mm512_dpbusd_epi32(sum, a, b);
}

#include "attend_q8_fours.h"

KERN_INLINE void multiply(bool keys, const product *p) {
    dot(keys, p);
}
static inline void begin_rows(const group *g) {}
static inline void end_rows(void) {}

void attend_any_vnni(const kern_attend *a) {
    a->kv == KERN_Q8_0 ? q8_attend(a) : attend_avx512(a);
}
