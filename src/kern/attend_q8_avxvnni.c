#include "ints.h"

enum { Q8_TILE_ROWS = 4, Q8_TILE_WIDTH = 1 };

static inline ints add_fours(ints sum, ints a, ints b) {
    return (ints){_mm256_dpbusd_avx_epi32(sum.lo, a.lo, b.lo),
                  _mm256_dpbusd_avx_epi32(sum.hi, a.hi, b.hi)};
}

#include "attend_q8_fours.h"

KERN_INLINE void multiply(bool keys, const product *p) {
    dot(keys, p);
}
static inline void begin_rows(const group *g) {}
static inline void end_rows(void) {}

void attend_any_avxvnni(const kern_attend *a) {
    a->kv == KERN_Q8_0 ? q8_attend(a) : attend_avx2(a);
}
