/* What attend_*.c share: the shape of a block of query rows and of the scratch memory that holds
 * it, see attend_lanes.h. */
#ifndef ATTEND_H
#define ATTEND_H

#include "kern_internal.h"

enum {
    BLOCK_ROWS = 96, /* rows that share the widening of a page */
    ROW_STRIDE =
        KERN_CHUNK + 16, /* floats; not a power of two, which would crowd a few cache sets */
    WIDEST_PANEL = 64,
};

void attend_init_avx2(kern *k);
void attend_init_avx512(kern *k);

#endif
