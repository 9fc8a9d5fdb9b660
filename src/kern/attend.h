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

void attend_init_avx2(kern *k);
void attend_init_avx512(kern *k);

#endif
