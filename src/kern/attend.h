/* What attend_*.c share: the shape of a block of query rows and of the scratch memory that holds
 * it, see attend_lanes.h. */
#ifndef ATTEND_H
#define ATTEND_H

#include "kern_internal.h"

enum {
    BLOCK_ROWS = 96,                 /* rows that share the widening of a page */
    WIDEST_PANEL = 64,               /* columns, at most, of a tile of any instruction set */
    ROW_STRIDE = KERN_MAX_HEAD + 16, /* floats of a query or of KERN_CHUNK scores: a power of two
                                      * would crowd a few sets of the cache */
};

#define KERN_PUT_ARGS                                                                              \
    enum kern_type kv, int dk, int dv, void *block, int slot, const float *k, const float *v

/* Pages of floats. */
void attend_avx2(const kern_attend *a);
void attend_avx512(const kern_attend *a);
void attend_neon(const kern_attend *a);
void attend_put_avx2(KERN_PUT_ARGS);
void attend_put_avx512(KERN_PUT_ARGS);
void attend_put_neon(KERN_PUT_ARGS);
void attend_fold_avx2(int dv, int n, const float *partial, size_t stride, float sink, float *out);
void attend_fold_avx512(int dv, int n, const float *partial, size_t stride, float sink, float *out);
void attend_fold_neon(int dv, int n, const float *partial, size_t stride, float sink, float *out);

/* Pages of all types. */
void attend_any_avx2(const kern_attend *a);
void attend_any_avxvnni(const kern_attend *a);
void attend_any_avx512(const kern_attend *a);
void attend_any_vnni(const kern_attend *a);
void attend_any_amx(const kern_attend *a);
void attend_any_neon(const kern_attend *a);
void attend_any_dotprod(const kern_attend *a);
void attend_any_i8mm(const kern_attend *a);
void attend_put_any_avx2(KERN_PUT_ARGS);
void attend_put_any_avx512(KERN_PUT_ARGS);
void attend_put_any_neon(KERN_PUT_ARGS);

#endif
