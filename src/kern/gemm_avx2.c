/* Matrix products with AVX2: sixteen lanes are two registers. The bodies are in gemm_lanes.h. */
#include "lanes.h"

enum { MAX_ROWS = 6 };

typedef struct ints {
    __m256i lo, hi;
} ints;

static inline ints ints_zero(void) {
    return (ints){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
static inline ints ints_all(int32_t x) {
    return (ints){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
static inline ints ints_load(const uint8_t *p) {
    return (ints){_mm256_load_si256((const __m256i *)p), _mm256_load_si256((const __m256i *)p + 1)};
}
static inline ints ints_four(const char *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return ints_all(four);
}

static inline ints ints_low(ints x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return (ints){_mm256_and_si256(x.lo, mask), _mm256_and_si256(x.hi, mask)};
}
static inline ints ints_high(ints x) {
    return ints_low((ints){_mm256_srli_epi16(x.lo, 4), _mm256_srli_epi16(x.hi, 4)});
}
static inline ints ints_add_products(ints sum, ints w, ints q) {
    return (ints){_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(w.lo, q.lo)),
                  _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(w.hi, q.hi))};
}
static inline ints ints_pairs(ints sum, int16_t factor) {
    const __m256i factors = _mm256_set1_epi16(factor);
    return (ints){_mm256_madd_epi16(sum.lo, factors), _mm256_madd_epi16(sum.hi, factors)};
}
static inline ints ints_add(ints a, ints b) {
    return (ints){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
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
static inline void ints_store_bytes(int8_t *p, ints x) {
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(words),
                                                   _mm256_extracti128_si256(words, 1)));
}

static inline lanes lanes_load_bf16(const uint8_t *p) {
    ints x = {_mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)p)),
              _mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)p + 1))};
    return (lanes){_mm256_castsi256_ps(_mm256_slli_epi32(x.lo, 16)),
                   _mm256_castsi256_ps(_mm256_slli_epi32(x.hi, 16))};
}

#include "gemm_lanes.h"

void kern_act_row_avx2(enum kern_type type, int k, const float *x, void *row) {
    act_row(type, k, x, row);
}

void kern_gemm_avx2(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
