/* lanes on AVX2, FMA and F16C: two registers. See lanes.h. */
#ifndef LANES_AVX2_H
#define LANES_AVX2_H

typedef struct lanes {
    __m256 lo, hi;
} lanes;
typedef struct mask {
    __m256 lo, hi;
} mask;

static inline mask lanes_first(int n) {
    __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i lo = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), index);
    __m256i hi = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), index);
    return (mask){_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
}

/* Lanes low, ... high - 1. */
static inline mask lanes_between(int low, int high) {
    mask a = lanes_first(low), b = lanes_first(high);
    return (mask){_mm256_andnot_ps(a.lo, b.lo), _mm256_andnot_ps(a.hi, b.hi)};
}

static inline lanes lanes_zero(void) {
    return (lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
static inline lanes lanes_all(float x) {
    return (lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline lanes lanes_load(const float *p) {
    return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void lanes_store(float *p, lanes x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}
static inline lanes lanes_load_n(const float *p, int n) {
    mask m = lanes_first(n);
    return (lanes){_mm256_maskload_ps(p, _mm256_castps_si256(m.lo)),
                   _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi))};
}
static inline void lanes_store_n(float *p, lanes x, int n) {
    mask m = lanes_first(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.lo), x.lo);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.hi), x.hi);
}
static inline lanes lanes_load_f16(const uint16_t *p) {
    return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline lanes lanes_load_f16_n(const uint16_t *p, int n) {
    uint16_t whole[LANES] = {0};
    memcpy(whole, p, (size_t)n * sizeof *p);
    return lanes_load_f16(whole);
}
static inline void lanes_store_f16(uint16_t *p, lanes x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}

static inline lanes lanes_add(lanes a, lanes b) {
    return (lanes){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline lanes lanes_sub(lanes a, lanes b) {
    return (lanes){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline lanes lanes_mul(lanes a, lanes b) {
    return (lanes){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline lanes lanes_div(lanes a, lanes b) {
    return (lanes){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline lanes lanes_max(lanes a, lanes b) {
    return (lanes){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline lanes lanes_fma(lanes a, lanes b, lanes c) {
    return (lanes){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline lanes lanes_fms(lanes a, lanes b, lanes c) {
    return (lanes){_mm256_fmsub_ps(a.lo, b.lo, c.lo), _mm256_fmsub_ps(a.hi, b.hi, c.hi)};
}
static inline lanes lanes_fmaddsub(lanes a, lanes b, lanes c) {
    return (lanes){_mm256_fmaddsub_ps(a.lo, b.lo, c.lo), _mm256_fmaddsub_ps(a.hi, b.hi, c.hi)};
}

static inline mask lanes_le(lanes a, lanes b) {
    return (mask){_mm256_cmp_ps(a.lo, b.lo, _CMP_LE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LE_OQ)};
}
static inline mask lanes_lt(lanes a, lanes b) {
    return (mask){_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
static inline lanes lanes_keep(mask m, lanes a, lanes b) {
    return (lanes){_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}
static inline unsigned lanes_equals(lanes a, lanes b) {
    int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ));
    int hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ));
    return (unsigned)lo | (unsigned)hi << 8;
}

static inline float lanes_sum(lanes x) {
    __m256 a = _mm256_add_ps(x.lo, x.hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
static inline float lanes_greatest(lanes x) {
    __m256 a = _mm256_max_ps(x.lo, x.hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

static inline lanes lanes_dup8(const float *p, int n) {
    __m256 x = _mm256_maskload_ps(p, _mm256_castps_si256(lanes_first(n).lo));
    return (lanes){_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
                   _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}
static inline lanes lanes_swap_pairs(lanes x) {
    return (lanes){_mm256_permute_ps(x.lo, 0xb1), _mm256_permute_ps(x.hi, 0xb1)};
}

static inline lanes lanes_shift_exponent(lanes p, lanes t) {
    __m256i lo = _mm256_slli_epi32(_mm256_castps_si256(t.lo), 23);
    __m256i hi = _mm256_slli_epi32(_mm256_castps_si256(t.hi), 23);
    return (lanes){_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.lo), lo)),
                   _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.hi), hi))};
}

#endif
