/* What attend_*.c share: the shape of a block of query rows and of the scratch memory that holds
 * it, see attend_lanes.h. */
#ifndef ATTEND_H
#define ATTEND_H

#include "kern_internal.h"

enum {
    MAX_HEAD = 512,               /* numbers of a head */
    BLOCK_ROWS = 96,              /* rows that share the widening of a page */
    ROW_STRIDE = KERN_CHUNK + 16, /* floats: a power of two would crowd a few sets of the cache */
    WIDEST_PANEL = 64,            /* columns, at most, of a tile of any instruction set */
};

void attend_init_avx2(kern *k);
void attend_init_avx512(kern *k);

#endif
