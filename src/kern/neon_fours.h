/* Products of bytes in fours on AArch64: to each int32 of a sum the four products of its bytes.
 * Where one side is unsigned, both are made so or the other signed, by flipping the bits that weigh
 * 128: only FEAT_I8MM multiplies unsigned with signed bytes. */
#ifndef NEON_FOURS_H
#define NEON_FOURS_H

#include "ints.h"

#if defined(__ARM_FEATURE_DOTPROD)

static inline int32x4_t neon_signed_fours(int32x4_t sum, int8x16_t a, int8x16_t b) {
    return vdotq_s32(sum, a, b);
}
static inline uint32x4_t neon_unsigned_fours(uint32x4_t sum, uint8x16_t a, uint8x16_t b) {
    return vdotq_u32(sum, a, b);
}

#else

/* Two products, of which neither is (-128)·(-128), are within an int16. */
static inline int32x4_t neon_signed_fours(int32x4_t sum, int8x16_t a, int8x16_t b) {
    int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
static inline uint32x4_t neon_unsigned_fours(uint32x4_t sum, uint8x16_t a, uint8x16_t b) {
    uint32x4_t low = vpaddlq_u16(vmull_u8(vget_low_u8(a), vget_low_u8(b)));
    return vaddq_u32(sum, vpaddq_u32(low, vpaddlq_u16(vmull_high_u8(a, b))));
}

#endif

#endif
