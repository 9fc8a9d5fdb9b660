/* ints on AArch64: four registers. See ints.h. */
#ifndef INTS_NEON_H
#define INTS_NEON_H

typedef struct ints {
    int32x4_t v[4];
} ints;

static inline ints ints_all(int32_t x) {
    ints y;
    LANES_EACH y.v[i] = vdupq_n_s32(x);
    return y;
}
static inline ints ints_zero(void) {
    return ints_all(0);
}
static inline ints ints_all_bytes(int x) {
    return ints_all((int32_t)(0x01010101u * (uint8_t)x));
}
static inline ints ints_load(const void *p) {
    ints x;
    LANES_EACH x.v[i] = vld1q_s32((const int32_t *)p + 4 * i);
    return x;
}
static inline void ints_store(void *p, ints x) {
    LANES_EACH vst1q_s32((int32_t *)p + 4 * i, x.v[i]);
}
static inline ints ints_widen(const uint8_t *p) {
    int8x16_t bytes = vld1q_s8((const int8_t *)p);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return (ints){{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
                   vmovl_high_s16(high)}};
}

static inline ints ints_and(ints a, ints b) {
    LANES_EACH a.v[i] = vandq_s32(a.v[i], b.v[i]);
    return a;
}
static inline ints ints_or(ints a, ints b) {
    LANES_EACH a.v[i] = vorrq_s32(a.v[i], b.v[i]);
    return a;
}
static inline ints ints_xor(ints a, ints b) {
    LANES_EACH a.v[i] = veorq_s32(a.v[i], b.v[i]);
    return a;
}
static inline ints ints_left(ints x, int n) {
    LANES_EACH x.v[i] = (int32x4_t)((uint32x4_t)x.v[i] << n);
    return x;
}
static inline ints ints_right(ints x, int n) {
    LANES_EACH x.v[i] = (int32x4_t)((uint32x4_t)x.v[i] >> n);
    return x;
}
static inline ints ints_look_up(const uint8_t *table, ints x) {
    uint8x16_t t = vld1q_u8(table);
    LANES_EACH x.v[i] = vreinterpretq_s32_u8(vqtbl1q_u8(t, vreinterpretq_u8_s32(x.v[i])));
    return x;
}
static inline ints ints_pair(ints a, ints b) {
    LANES_EACH a.v[i] = vsliq_n_s32(a.v[i], b.v[i], 16);
    return a;
}

static inline ints ints_add(ints a, ints b) {
    LANES_EACH a.v[i] = vaddq_s32(a.v[i], b.v[i]);
    return a;
}
static inline ints ints_mul(ints a, ints b) {
    LANES_EACH a.v[i] = vmulq_s32(a.v[i], b.v[i]);
    return a;
}
static inline ints ints_max(ints a, ints b) {
    LANES_EACH a.v[i] = vmaxq_s32(a.v[i], b.v[i]);
    return a;
}
static inline int32_t ints_greatest(ints x) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.v[0], x.v[1]), vmaxq_s32(x.v[2], x.v[3])));
}
static inline int32_t ints_sum(ints x) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3])));
}

static inline ints ints_multiply_pairs(ints a, ints b) {
    LANES_EACH {
        int16x8_t x = vreinterpretq_s16_s32(a.v[i]), y = vreinterpretq_s16_s32(b.v[i]);
        int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
        a.v[i] = vpaddq_s32(low, vmull_high_s16(x, y));
    }
    return a;
}

static inline ints ints_even_bytes(bool is_signed, ints x) {
    LANES_EACH {
        int16x8_t left = vshlq_n_s16(vreinterpretq_s16_s32(x.v[i]), 8);
        x.v[i] = is_signed ? vreinterpretq_s32_s16(vshrq_n_s16(left, 8))
                           : vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s16(left), 8));
    }
    return x;
}
static inline ints ints_odd_bytes(bool is_signed, ints x) {
    LANES_EACH x.v[i] = is_signed
                            ? vreinterpretq_s32_s16(vshrq_n_s16(vreinterpretq_s16_s32(x.v[i]), 8))
                            : vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(x.v[i]), 8));
    return x;
}

static inline lanes ints_float(ints x) {
    lanes y;
    LANES_EACH y.v[i] = vcvtq_f32_s32(x.v[i]);
    return y;
}
static inline ints ints_round(lanes x) {
    ints y;
    LANES_EACH y.v[i] = vcvtnq_s32_f32(x.v[i]);
    return y;
}
static inline ints ints_magnitude(lanes x) {
    ints y;
    LANES_EACH y.v[i] = vreinterpretq_s32_f32(vabsq_f32(x.v[i]));
    return y;
}
static inline int16x8_t ints_narrow(int32x4_t low, int32x4_t high) {
    return vmovn_high_s32(vmovn_s32(low), high);
}
static inline void ints_store_bytes(int8_t *p, ints x) {
    int16x8_t low = ints_narrow(x.v[0], x.v[1]), high = ints_narrow(x.v[2], x.v[3]);
    vst1q_s8(p, vmovn_high_s16(vmovn_s16(low), high));
}
static inline void ints_store_64(uint8_t *p, const ints x[4]) {
    LANES_EACH ints_store_bytes((int8_t *)p + 16 * i, x[i]);
}

static inline lanes lanes_load_bf16(const void *p) {
    lanes x;
    LANES_EACH {
        uint32x4_t wide = vmovl_u16(vld1_u16((const uint16_t *)p + 4 * i));
        x.v[i] = vreinterpretq_f32_u32(vshlq_n_u32(wide, 16));
    }
    return x;
}

#endif
