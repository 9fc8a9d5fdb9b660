/* Matrix products with AVX-512 (F, BW, DQ, VL): sixteen lanes are one register. The bodies are in
 * gemm_lanes.h. */
#include "lanes.h"

enum { MAX_ROWS = 6 };

typedef __m512i ints;

static inline ints ints_zero(void) {
    return _mm512_setzero_si512();
}
static inline ints ints_all(int32_t x) {
    return _mm512_set1_epi32(x);
}
static inline ints ints_load(const uint8_t *p) {
    return _mm512_load_si512(p);
}
static inline ints ints_four(const char *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return ints_all(four);
}

static inline ints ints_low(ints x) {
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}
static inline ints ints_high(ints x) {
    return ints_low(_mm512_srli_epi16(x, 4));
}
static inline ints ints_add_products(ints sum, ints w, ints q) {
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(w, q));
}
static inline ints ints_pairs(ints sum, int16_t factor) {
    return _mm512_madd_epi16(sum, _mm512_set1_epi16(factor));
}
static inline ints ints_add(ints a, ints b) {
    return _mm512_add_epi32(a, b);
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
static inline ints ints_max(ints a, ints b) {
    return _mm512_max_epi32(a, b);
}
static inline int32_t ints_greatest(ints x) {
    return _mm512_reduce_max_epi32(x);
}
static inline int32_t ints_sum(ints x) {
    return _mm512_reduce_add_epi32(x);
}
static inline void ints_store_bytes(int8_t *p, ints x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}

static inline lanes lanes_load_bf16(const uint8_t *p) {
    __m512i x = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

#include "gemm_lanes.h"

void kern_act_row_avx512(enum kern_type type, int k, const float *x, void *row) {
    act_row(type, k, x, row);
}

void kern_gemm_avx512(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
