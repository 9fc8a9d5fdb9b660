/* lanes on AArch64: four registers. See lanes.h. */
#ifndef LANES_NEON_H
#define LANES_NEON_H

typedef struct lanes {
    float32x4_t v[4];
} lanes;
typedef struct mask {
    uint32x4_t v[4];
} mask;

#define LANES_EACH KERN_UNROLL for (int i = 0; i < 4; i++)

static inline mask lanes_first(int n) {
    const int32x4_t index = {0, 1, 2, 3};
    mask m;
    LANES_EACH m.v[i] = vcltq_s32(index, vdupq_n_s32(n - 4 * i));
    return m;
}

/* Lanes low, ... high - 1. */
static inline mask lanes_between(int low, int high) {
    mask a = lanes_first(low), b = lanes_first(high);
    LANES_EACH b.v[i] = vbicq_u32(b.v[i], a.v[i]);
    return b;
}

static inline lanes lanes_all(float x) {
    lanes y;
    LANES_EACH y.v[i] = vdupq_n_f32(x);
    return y;
}
static inline lanes lanes_zero(void) {
    return lanes_all(0);
}
static inline lanes lanes_load(const float *p) {
    lanes x;
    LANES_EACH x.v[i] = vld1q_f32(p + 4 * i);
    return x;
}
static inline void lanes_store(float *p, lanes x) {
    LANES_EACH vst1q_f32(p + 4 * i, x.v[i]);
}
static inline lanes lanes_load_n(const float *p, int n) {
    if (n == LANES) return lanes_load(p);
    float whole[LANES] = {0};
    memcpy(whole, p, (size_t)n * sizeof *p);
    return lanes_load(whole);
}
static inline void lanes_store_n(float *p, lanes x, int n) {
    if (n == LANES) {
        lanes_store(p, x);
        return;
    }
    float whole[LANES];
    lanes_store(whole, x);
    memcpy(p, whole, (size_t)n * sizeof *p);
}
static inline lanes lanes_load_f16(const uint16_t *p) {
    lanes x;
    LANES_EACH x.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
    return x;
}
static inline lanes lanes_load_f16_n(const uint16_t *p, int n) {
    uint16_t whole[LANES] = {0};
    memcpy(whole, p, (size_t)n * sizeof *p);
    return lanes_load_f16(whole);
}
static inline void lanes_store_f16(uint16_t *p, lanes x) {
    LANES_EACH vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}

static inline lanes lanes_add(lanes a, lanes b) {
    LANES_EACH a.v[i] = vaddq_f32(a.v[i], b.v[i]);
    return a;
}
static inline lanes lanes_sub(lanes a, lanes b) {
    LANES_EACH a.v[i] = vsubq_f32(a.v[i], b.v[i]);
    return a;
}
static inline lanes lanes_mul(lanes a, lanes b) {
    LANES_EACH a.v[i] = vmulq_f32(a.v[i], b.v[i]);
    return a;
}
static inline lanes lanes_div(lanes a, lanes b) {
    LANES_EACH a.v[i] = vdivq_f32(a.v[i], b.v[i]);
    return a;
}
/* a > b ? a : b; FMAX would return a NaN. */
static inline float32x4_t max_quarter(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline lanes lanes_max(lanes a, lanes b) {
    LANES_EACH a.v[i] = max_quarter(a.v[i], b.v[i]);
    return a;
}
static inline lanes lanes_fma(lanes a, lanes b, lanes c) {
    LANES_EACH c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
    return c;
}
static inline lanes lanes_fms(lanes a, lanes b, lanes c) {
    LANES_EACH c.v[i] = vfmaq_f32(vnegq_f32(c.v[i]), a.v[i], b.v[i]);
    return c;
}
static inline lanes lanes_fmaddsub(lanes a, lanes b, lanes c) {
    const uint32x4_t even = {0x80000000, 0, 0x80000000, 0};
    LANES_EACH {
        uint32x4_t bits = veorq_u32(vreinterpretq_u32_f32(c.v[i]), even);
        c.v[i] = vfmaq_f32(vreinterpretq_f32_u32(bits), a.v[i], b.v[i]);
    }
    return c;
}

static inline mask lanes_le(lanes a, lanes b) {
    mask m;
    LANES_EACH m.v[i] = vcleq_f32(a.v[i], b.v[i]);
    return m;
}
static inline mask lanes_lt(lanes a, lanes b) {
    mask m;
    LANES_EACH m.v[i] = vcltq_f32(a.v[i], b.v[i]);
    return m;
}
static inline lanes lanes_keep(mask m, lanes a, lanes b) {
    LANES_EACH a.v[i] = vbslq_f32(m.v[i], a.v[i], b.v[i]);
    return a;
}
static inline unsigned lanes_equals(lanes a, lanes b) {
    const uint32x4_t bits = {1, 2, 4, 8};
    uint32x4_t found = vdupq_n_u32(0);
    LANES_EACH found |= vceqq_f32(a.v[i], b.v[i]) & (bits << 4 * i);
    return vaddvq_u32(found);
}

static inline float lanes_sum(lanes x) {
    float32x4_t a = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    return vpadds_f32(vadd_f32(vget_low_f32(a), vget_high_f32(a)));
}
static inline float lanes_greatest(lanes x) {
    float32x4_t a = max_quarter(max_quarter(x.v[0], x.v[2]), max_quarter(x.v[1], x.v[3]));
    a = max_quarter(a, vextq_f32(a, a, 2));
    return vgetq_lane_f32(max_quarter(a, vextq_f32(a, a, 1)), 0);
}

static inline lanes lanes_dup8(const float *p, int n) {
    lanes x = lanes_load_n(p, n);
    return (lanes){{vzip1q_f32(x.v[0], x.v[0]), vzip2q_f32(x.v[0], x.v[0]),
                    vzip1q_f32(x.v[1], x.v[1]), vzip2q_f32(x.v[1], x.v[1])}};
}
static inline lanes lanes_swap_pairs(lanes x) {
    LANES_EACH x.v[i] = vrev64q_f32(x.v[i]);
    return x;
}

static inline lanes lanes_shift_exponent(lanes p, lanes t) {
    LANES_EACH {
        uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(t.v[i]), 23);
        p.v[i] = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p.v[i]), n));
    }
    return p;
}

#endif
