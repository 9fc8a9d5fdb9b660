/* ints on AVX2: two registers. See ints.h. */
#ifndef INTS_AVX2_H
#define INTS_AVX2_H

typedef struct ints {
    __m256i lo, hi;
} ints;

static inline ints ints_zero(void) {
    return (ints){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
static inline ints ints_all(int32_t x) {
    return (ints){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
static inline ints ints_all_bytes(int x) {
    return (ints){_mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x)};
}
static inline ints ints_load(const void *p) {
    return (ints){_mm256_load_si256((const __m256i *)p), _mm256_load_si256((const __m256i *)p + 1)};
}
static inline void ints_store(void *p, ints x) {
    _mm256_store_si256((__m256i *)p, x.lo);
    _mm256_store_si256((__m256i *)p + 1, x.hi);
}
static inline ints ints_widen(const uint8_t *p) {
    return (ints){_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                  _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}

static inline ints ints_and(ints a, ints b) {
    return (ints){_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
static inline ints ints_or(ints a, ints b) {
    return (ints){_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
static inline ints ints_xor(ints a, ints b) {
    return (ints){_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
static inline ints ints_left(ints x, int n) {
    return (ints){_mm256_slli_epi32(x.lo, n), _mm256_slli_epi32(x.hi, n)};
}
static inline ints ints_right(ints x, int n) {
    return (ints){_mm256_srli_epi32(x.lo, n), _mm256_srli_epi32(x.hi, n)};
}
static inline ints ints_look_up(const uint8_t *table, ints x) {
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (ints){_mm256_shuffle_epi8(t, x.lo), _mm256_shuffle_epi8(t, x.hi)};
}
static inline ints ints_pair(ints a, ints b) {
    return (ints){_mm256_blend_epi16(a.lo, _mm256_slli_epi32(b.lo, 16), 0xaa),
                  _mm256_blend_epi16(a.hi, _mm256_slli_epi32(b.hi, 16), 0xaa)};
}

static inline ints ints_add(ints a, ints b) {
    return (ints){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
static inline ints ints_mul(ints a, ints b) {
    return (ints){_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
static inline ints ints_max(ints a, ints b) {
    return (ints){_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
static inline int32_t ints_greatest(ints x) {
    __m256i y = _mm256_max_epi32(x.lo, x.hi);
    __m128i z = _mm_max_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    z = _mm_max_epi32(z, _mm_shuffle_epi32(z, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(z, _mm_shuffle_epi32(z, 0xb1)));
}
static inline int32_t ints_sum(ints x) {
    __m256i y = _mm256_add_epi32(x.lo, x.hi);
    __m128i z = _mm_add_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    z = _mm_add_epi32(z, _mm_shuffle_epi32(z, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(z, _mm_shuffle_epi32(z, 0xb1)));
}

/* In the order that is written: as trees, which GCC makes of sums, they need more registers. */
static inline ints ints_add_bytes(ints sum, ints w, ints q) {
    ints to = {_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(w.lo, q.lo)),
               _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(w.hi, q.hi))};
    __asm__("" : "+x"(to.lo), "+x"(to.hi));
    return to;
}
static inline ints ints_add_words(ints sum, ints w, ints q) {
    ints to = {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(w.lo, q.lo)),
               _mm256_add_epi32(sum.hi, _mm256_madd_epi16(w.hi, q.hi))};
    __asm__("" : "+x"(to.lo), "+x"(to.hi));
    return to;
}
static inline ints ints_multiply_pairs(ints a, ints b) {
    return (ints){_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
}

static inline lanes ints_float(ints x) {
    return (lanes){_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)};
}
static inline ints ints_round(lanes x) {
    return (ints){_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)};
}
static inline ints ints_magnitude(lanes x) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    return (ints){_mm256_and_si256(_mm256_castps_si256(x.lo), mask),
                  _mm256_and_si256(_mm256_castps_si256(x.hi), mask)};
}
static inline void ints_store_bytes(int8_t *p, ints x) {
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(words),
                                                   _mm256_extracti128_si256(words, 1)));
}

static inline void ints_store_64(uint8_t *p, const ints x[4]) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int i = 0; i < 2; i++) {
        __m256i a = _mm256_packus_epi32(x[2 * i].lo, x[2 * i].hi);
        __m256i b = _mm256_packus_epi32(x[2 * i + 1].lo, x[2 * i + 1].hi);
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order);
        _mm256_store_si256((__m256i *)p + i, bytes);
    }
}
static inline ints ints_even_bytes(bool is_signed, ints x) {
    const __m256i low = _mm256_set1_epi16(255);
    if (!is_signed) return (ints){_mm256_and_si256(x.lo, low), _mm256_and_si256(x.hi, low)};
    return (ints){_mm256_srai_epi16(_mm256_slli_epi16(x.lo, 8), 8),
                  _mm256_srai_epi16(_mm256_slli_epi16(x.hi, 8), 8)};
}
static inline ints ints_odd_bytes(bool is_signed, ints x) {
    if (!is_signed) return (ints){_mm256_srli_epi16(x.lo, 8), _mm256_srli_epi16(x.hi, 8)};
    return (ints){_mm256_srai_epi16(x.lo, 8), _mm256_srai_epi16(x.hi, 8)};
}

static inline lanes lanes_load_bf16(const void *p) {
    ints x = {_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
              _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p + 1))};
    return (lanes){_mm256_castsi256_ps(_mm256_slli_epi32(x.lo, 16)),
                   _mm256_castsi256_ps(_mm256_slli_epi32(x.hi, 16))};
}

#endif
