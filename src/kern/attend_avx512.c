#include "attend.h"

/* 24 of 32 registers hold sums. */
enum { TILE_ROWS = 12, TILE_WIDTH = 2 };
#include "attend_lanes.h"

void attend_init_avx512(kern *k) {
    override_attend(k);
}
