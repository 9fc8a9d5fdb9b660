/* Products of bytes for attend_q8_lanes.h by neon_fours.h: keys become signed like queries, values
 * unsigned like weights, and what that adds is taken off at the start. */
#include "attend_q8_lanes.h"
#include "neon_fours.h"

enum { Q8_TILE_ROWS = 4, Q8_TILE_WIDTH = 1 }; /* 16 of 32 registers hold sums */

typedef ints factor;

KERN_INLINE factor load_factor(bool keys, const void *p) {
    return ints_xor(ints_load(p), ints_all_bytes(128));
}

KERN_INLINE ints first_sums(bool keys, const product *p, int row) {
    if (keys) return ints_zero();
    const uint8_t *left = (const uint8_t *)p->left + (size_t)row * p->left_stride;
    uint32_t sum = 0;
    KERN_UNROLL for (int i = 0; i < KERN_PAGE; i += 16) sum += vaddlvq_u8(vld1q_u8(left + i));
    return ints_all(-128 * (int32_t)sum);
}

KERN_INLINE ints add_quads(bool keys, ints sum, factor x, const char *left, int odd) {
    uint32_t four;
    memcpy(&four, left, sizeof four);
    const uint8x16_t all = vreinterpretq_u8_u32(vdupq_n_u32(four));
    LANES_EACH {
        uint8x16_t bytes = vreinterpretq_u8_s32(x.v[i]);
        uint32x4_t unsigned_sum = vreinterpretq_u32_s32(sum.v[i]);
        sum.v[i] =
            keys ? neon_signed_fours(sum.v[i], vreinterpretq_s8_u8(bytes), vreinterpretq_s8_u8(all))
                 : vreinterpretq_s32_u32(neon_unsigned_fours(unsigned_sum, bytes, all));
    }
    return sum;
}

static inline size_t left_bytes(int n) {
    return (size_t)n;
}

static inline void spread(bool keys, int n, const void *from, void *to) {
    memcpy(to, from, (size_t)n);
}

#include "attend_q8_dots.h"

KERN_INLINE void multiply(bool keys, const product *p) {
    dot(keys, p);
}
static inline void begin_rows(const group *g) {}
static inline void end_rows(void) {}
