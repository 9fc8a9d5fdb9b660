/* The table of types: how a file's blocks are packed. */
#include "kern_internal.h"

/* Numbers that quants of four bits stand for. */
static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* ·2 */
static const int8_t iq3_xxs[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                   -4, -12, -20, -28, -36, -44, -52, -62};
static const int8_t iq3_s[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
static const int8_t iq2[16] = {8, 25, 43, 0, -8, -25, -43};
static const int8_t iq1[16] = {-7, 1, 9, 0, -9, -1, 7}; /* 8·x ± 1 */

#define FLOATS(type, size)                                                                         \
    [KERN_##type] = {.name = #type, .block = 1, .file_size = (size), .quant_size = 16 * (size)}

/* A type with blocks of 32; mins is 0 or 1. */
#define BLOCK_32(type, taking, size, n_bits, mins, ...)                                            \
    [KERN_##type] = {.name = #type,                                                                \
                     .block = 32,                                                                  \
                     .file_size = (size),                                                          \
                     .quant_size = 64 * (n_bits),                                                  \
                     .scale_size = 32 * (1 + (mins)),                                              \
                     .take_apart = kern_take_##taking,                                             \
                     .bits = (n_bits),                                                             \
                     .has_min = (mins),                                                            \
                     .factor = 1,                                                                  \
                     __VA_ARGS__}

/* A type with blocks of 256; bytes is those of a lane's sub-scales and minimums. */
#define BLOCK_256(type, taking, size, n_bits, subs, mins, bytes, ...)                              \
    [KERN_##type] = {.name = #type,                                                                \
                     .block = 256,                                                                 \
                     .file_size = (size),                                                          \
                     .quant_size = 512 * (n_bits),                                                 \
                     .scale_size = 32 * (1 + (mins)) + 16 * (bytes),                               \
                     .take_apart = kern_take_##taking,                                             \
                     .bits = (n_bits),                                                             \
                     .n_sub = (subs),                                                              \
                     .has_min = (mins),                                                            \
                     __VA_ARGS__}
#define CODES(type, taking, size, subs, numbers, scale)                                            \
    BLOCK_256(type, taking, size, 4, subs, 0, subs, .codebook = (numbers), .offset = 128,          \
              .factor = (scale))

static const kern_layout layouts[KERN_TYPE_END] = {
    FLOATS(F32, 4),
    FLOATS(F16, 2),
    FLOATS(BF16, 2),
    BLOCK_32(Q8_0, q8_0, 34, 8, 0, .offset = 128),
    BLOCK_32(Q4_0, q4_0, 18, 4, 0, .offset = 8),
    BLOCK_32(Q4_1, q4_1, 20, 4, 1),
    BLOCK_32(Q5_0, q5_0, 22, 5, 0, .offset = 16),
    BLOCK_32(Q5_1, q5_1, 24, 5, 1),
    BLOCK_32(IQ4_NL, iq4_nl, 18, 4, 0, .codebook = iq4, .offset = 128),
    BLOCK_32(MXFP4, mxfp4, 17, 4, 0, .codebook = e2m1, .offset = 128, .wide_exponent = true),
    BLOCK_256(Q2_K, q2_k, 84, 2, 16, 1, 16, .joint_sub = true, .factor = 1),
    BLOCK_256(Q3_K, q3_k, 110, 3, 16, 0, 16, .offset = 4, .factor = 1),
    BLOCK_256(Q4_K, q4_k, 144, 4, 8, 1, 16, .factor = 1),
    BLOCK_256(Q5_K, q5_k, 176, 5, 8, 1, 16, .factor = 1),
    BLOCK_256(Q6_K, q6_k, 210, 6, 16, 0, 16, .offset = 32, .factor = 1),
    BLOCK_256(TQ1_0, tq1_0, 54, 2, 8, 0, 8, .offset = 1, .factor = 1),
    BLOCK_256(TQ2_0, tq2_0, 66, 2, 8, 0, 8, .offset = 1, .factor = 1),
    CODES(IQ4_XS, iq4_xs, 136, 8, iq4, 1),
    CODES(IQ3_XXS, iq3_xxs, 98, 8, iq3_xxs, 0.25f),
    CODES(IQ3_S, iq3_s, 110, 8, iq3_s, 1),
    CODES(IQ2_XXS, iq2_xxs, 66, 8, iq2, 0.125f),
    CODES(IQ2_XS, iq2_xs, 74, 16, iq2, 0.125f),
    CODES(IQ2_S, iq2_s, 82, 16, iq2, 0.125f),
    CODES(IQ1_S, iq1_s, 50, 8, iq1, 0.125f),
    CODES(IQ1_M, iq1_m, 56, 16, iq1, 0.125f),
};

const kern_layout *kern_layout_of(int type) {
    return type >= 0 && type < KERN_TYPE_END && layouts[type].name ? &layouts[type] : NULL;
}

const char *kern_type_name(int type) {
    const kern_layout *l = kern_layout_of(type);
    return l ? l->name : NULL;
}

enum kern_form kern_form_of(enum kern_type type) {
    int block = kern_layout_of(type)->block;
    return block == 1 ? KERN_FORM_FLOAT : block == 32 ? KERN_FORM_32 : KERN_FORM_256;
}
