/* ints on AVX-512 (F, BW, DQ, VL): one register. See ints.h. */
#ifndef INTS_AVX512_H
#define INTS_AVX512_H

typedef __m512i ints;

static inline ints ints_zero(void) {
    return _mm512_setzero_si512();
}
static inline ints ints_all(int32_t x) {
    return _mm512_set1_epi32(x);
}
static inline ints ints_all_bytes(int x) {
    return _mm512_set1_epi8((char)x);
}
static inline ints ints_load(const void *p) {
    return _mm512_load_si512(p);
}
static inline void ints_store(void *p, ints x) {
    _mm512_store_si512(p, x);
}
static inline ints ints_widen(const uint8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

static inline ints ints_and(ints a, ints b) {
    return _mm512_and_si512(a, b);
}
static inline ints ints_or(ints a, ints b) {
    return _mm512_or_si512(a, b);
}
static inline ints ints_xor(ints a, ints b) {
    return _mm512_xor_si512(a, b);
}
static inline ints ints_left(ints x, int n) {
    return _mm512_slli_epi32(x, (unsigned)n);
}
static inline ints ints_right(ints x, int n) {
    return _mm512_srli_epi32(x, (unsigned)n);
}
static inline ints ints_look_up(const uint8_t *table, ints x) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), x);
}
static inline ints ints_pair(ints a, ints b) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
}

static inline ints ints_add(ints a, ints b) {
    return _mm512_add_epi32(a, b);
}
static inline ints ints_mul(ints a, ints b) {
    return _mm512_mullo_epi32(a, b);
}
static inline ints ints_max(ints a, ints b) {
    return _mm512_max_epi32(a, b);
}
static inline int32_t ints_greatest(ints x) {
    return _mm512_reduce_max_epi32(x);
}
static inline int32_t ints_sum(ints x) {
    return _mm512_reduce_add_epi32(x);
}

static inline ints ints_add_bytes(ints sum, ints w, ints q) {
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(w, q));
}
static inline ints ints_add_words(ints sum, ints w, ints q) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, q));
}
static inline ints ints_multiply_pairs(ints a, ints b) {
    return _mm512_madd_epi16(a, b);
}

static inline lanes ints_float(ints x) {
    return _mm512_cvtepi32_ps(x);
}
static inline ints ints_round(lanes x) {
    return _mm512_cvtps_epi32(x);
}
static inline ints ints_magnitude(lanes x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}
static inline void ints_store_bytes(int8_t *p, ints x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}

static inline void ints_store_64(uint8_t *p, const ints x[4]) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i a = _mm512_packus_epi32(x[0], x[1]), b = _mm512_packus_epi32(x[2], x[3]);
    _mm512_store_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b)));
}
static inline ints ints_even_bytes(bool is_signed, ints x) {
    if (!is_signed) return _mm512_and_si512(x, _mm512_set1_epi16(255));
    return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8);
}
static inline ints ints_odd_bytes(bool is_signed, ints x) {
    return is_signed ? _mm512_srai_epi16(x, 8) : _mm512_srli_epi16(x, 8);
}

static inline lanes lanes_load_bf16(const void *p) {
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

#endif
