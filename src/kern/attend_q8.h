/* The K/V block of a page in type Q8_0, which attend_q8_*.c share; attend_q8_ref.c draws it. */
#ifndef ATTEND_Q8_H
#define ATTEND_Q8_H

#include "attend.h"

enum {
    Q8_ROWS = 16,                                                   /* rows that go together */
    Q8_MOST_BLOCKS = (KERN_MAX_HEAD + KERN_BLOCK - 1) / KERN_BLOCK, /* of a key */
    Q8_MOST_KEY = Q8_MOST_BLOCKS * KERN_BLOCK,
    Q8_Z_STRIDE = KERN_CHUNK + 16, /* not a power of two, which would crowd sets of the cache */
};

/* Weights are at least 2^Q8_LEAST_POWER, and a page whose weights times scales are all below
 * Q8_LEAST_WEIGHT adds nothing: no product is subnormal and no quotient infinite. */
#define Q8_LEAST_POWER -100.0f
#define Q8_LEAST_WEIGHT 0x1p-64f

/* 2^r for |r| <= 1/2, to 1e-4: a hundredth of what 8 bits of a weight round away. */
#define Q8_EXP_C1 0x1.62f5fap-1f
#define Q8_EXP_C2 0x1.f00c2p-3f
#define Q8_EXP_C3 0x1.c2a196p-5f

typedef struct q8_block {
    uint8_t *k;          /* [q8_key_size / 4][KERN_PAGE][4] */
    int8_t *v;           /* [KERN_PAGE / 4][q8_value_size][4] */
    uint16_t *k_d, *v_d; /* binary16: [blocks of a key][KERN_PAGE]; [KERN_PAGE] */
} q8_block;

static inline int q8_key_size(int dk) {
    return (dk + KERN_BLOCK - 1) / KERN_BLOCK * KERN_BLOCK;
}

static inline int q8_value_size(int dv) {
    return (dv + 15) / 16 * 16;
}

static inline q8_block q8_block_at(const void *block, int dk, int dv) {
    q8_block b = {.k = (uint8_t *)(uintptr_t)block};
    b.v = (int8_t *)b.k + KERN_PAGE * q8_key_size(dk);
    b.k_d = (uint16_t *)(void *)(b.v + KERN_PAGE * q8_value_size(dv));
    b.v_d = b.k_d + KERN_PAGE * (q8_key_size(dk) / KERN_BLOCK);
    return b;
}

static inline size_t q8_size(int dk, int dv) {
    return (size_t)KERN_PAGE *
           (size_t)(q8_key_size(dk) + q8_value_size(dv) + 2 * (q8_key_size(dk) / KERN_BLOCK + 1));
}

/* Scratch of a call, see attend_q8_lanes.h. */
static inline size_t q8_scratch(int dk, int dv) {
    size_t blocks = (size_t)q8_key_size(dk) / KERN_BLOCK, sums = 2 * blocks * KERN_PAGE;
    size_t row = 2 * (size_t)q8_key_size(dk) + 2 * KERN_PAGE + 64 * blocks + 4 * Q8_Z_STRIDE;
    if (sums < (size_t)q8_value_size(dv)) sums = (size_t)q8_value_size(dv);
    return Q8_ROWS * (row + 4 * sums) + (blocks + 1) * KERN_PAGE * 4;
}

/* attend_q8_ref.c */
void q8_put_ref(int dk, int dv, void *block, int slot, const float *k, const float *v);
void q8_copy(int dk, int dv, void *to, const void *from, int n);
void q8_attend_ref(const kern_attend *a);

#endif
