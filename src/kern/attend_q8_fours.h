/* Products of bytes for attend_q8_lanes.h with VNNI, in terms of add_fours(sum, unsigned, signed):
 * to each int32 of sum the products of its four bytes. */
#include "attend_q8_lanes.h"

typedef ints factor;

KERN_INLINE factor load_factor(bool keys, const void *p) {
    return ints_load(p);
}

KERN_INLINE ints first_sums(bool keys, const product *p, int row) {
    return keys ? ints_load(p->start + row * LANES) : ints_zero();
}

KERN_INLINE ints add_quads(bool keys, ints sum, factor x, const char *left, int odd) {
    int32_t four;
    memcpy(&four, left, sizeof four);
    return keys ? add_fours(sum, x, ints_all(four)) : add_fours(sum, ints_all(four), x);
}

static inline size_t left_bytes(int n) {
    return (size_t)n;
}

static inline void spread(bool keys, int n, const void *from, void *to) {
    memcpy(to, from, (size_t)n);
}

#include "attend_q8_dots.h"
