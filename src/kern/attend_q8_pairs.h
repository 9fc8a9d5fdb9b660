/* Products of bytes for attend_q8_lanes.h without VNNI: bytes as int16, which VPMADDWD multiplies
 * exactly (VPMADDUBSW would saturate). A quad of the left side is two words, its even and its odd
 * bytes as int16; a spread row holds all even words, then all odd ones. */
#include "attend_q8_lanes.h"

typedef struct factor {
    ints even, odd;
} factor;

KERN_INLINE factor load_factor(bool keys, const void *p) {
    ints x = ints_load(p);
    return (factor){ints_even_bytes(!keys, x), ints_odd_bytes(!keys, x)};
}

KERN_INLINE ints first_sums(bool keys, const product *p, int row) {
    return keys ? ints_load(p->start + row * LANES) : ints_zero();
}

KERN_INLINE ints add_quads(bool keys, ints sum, factor x, const char *left, int odd) {
    int32_t even_word, odd_word;
    memcpy(&even_word, left, sizeof even_word);
    memcpy(&odd_word, left + (size_t)odd * 4, sizeof odd_word);
    sum = ints_add(sum, ints_multiply_pairs(x.even, ints_all(even_word)));
    return ints_add(sum, ints_multiply_pairs(x.odd, ints_all(odd_word)));
}

static inline size_t left_bytes(int n) {
    return 2 * (size_t)n;
}

static inline void spread(bool keys, int n, const void *from, void *to) {
    const uint8_t *bytes = from;
    int16_t *even = to, *odd = even + n / 2;
    for (int i = 0; i < n; i += 2, even++, odd++) {
        *even = keys ? (int8_t)bytes[i] : bytes[i];
        *odd = keys ? (int8_t)bytes[i + 1] : bytes[i + 1];
    }
}

#include "attend_q8_dots.h"

KERN_INLINE void multiply(bool keys, const product *p) {
    dot(keys, p);
}
static inline void begin_rows(const group *g) {}
static inline void end_rows(void) {}
