/* lanes on AVX-512 (F, BW, DQ, VL): one register. See lanes.h. */
#ifndef LANES_AVX512_H
#define LANES_AVX512_H

typedef __m512 lanes;
typedef __mmask16 mask;

static inline mask lanes_first(int n) {
    return (mask)((1u << n) - 1);
}

/* Lanes low, ... high - 1. */
static inline mask lanes_between(int low, int high) {
    low = low < 0 ? 0 : low;
    high = high > LANES ? LANES : high;
    return (mask)(lanes_first(high) & ~lanes_first(low));
}

static inline lanes lanes_zero(void) {
    return _mm512_setzero_ps();
}
static inline lanes lanes_all(float x) {
    return _mm512_set1_ps(x);
}
static inline lanes lanes_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void lanes_store(float *p, lanes x) {
    _mm512_storeu_ps(p, x);
}
static inline lanes lanes_load_n(const float *p, int n) {
    return _mm512_maskz_loadu_ps(lanes_first(n), p);
}
static inline void lanes_store_n(float *p, lanes x, int n) {
    _mm512_mask_storeu_ps(p, lanes_first(n), x);
}
static inline lanes lanes_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline lanes lanes_load_f16_n(const uint16_t *p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes_first(n), p));
}
static inline void lanes_store_f16(uint16_t *p, lanes x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline lanes lanes_add(lanes a, lanes b) {
    return _mm512_add_ps(a, b);
}
static inline lanes lanes_sub(lanes a, lanes b) {
    return _mm512_sub_ps(a, b);
}
static inline lanes lanes_mul(lanes a, lanes b) {
    return _mm512_mul_ps(a, b);
}
static inline lanes lanes_div(lanes a, lanes b) {
    return _mm512_div_ps(a, b);
}
static inline lanes lanes_max(lanes a, lanes b) {
    return _mm512_max_ps(a, b);
}
static inline lanes lanes_fma(lanes a, lanes b, lanes c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline lanes lanes_fms(lanes a, lanes b, lanes c) {
    return _mm512_fmsub_ps(a, b, c);
}
static inline lanes lanes_fmaddsub(lanes a, lanes b, lanes c) {
    return _mm512_fmaddsub_ps(a, b, c);
}

static inline mask lanes_le(lanes a, lanes b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
static inline mask lanes_lt(lanes a, lanes b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline lanes lanes_keep(mask m, lanes a, lanes b) {
    return _mm512_mask_blend_ps(m, b, a);
}
static inline unsigned lanes_equals(lanes a, lanes b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

static inline float lanes_sum(lanes x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
static inline float lanes_greatest(lanes x) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

static inline lanes lanes_dup8(const float *p, int n) {
    __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(index, lanes_load_n(p, n));
}
static inline lanes lanes_swap_pairs(lanes x) {
    return _mm512_permute_ps(x, 0xb1);
}

static inline lanes lanes_shift_exponent(lanes p, lanes t) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n));
}

#endif
