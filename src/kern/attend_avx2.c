#include "attend.h"

/* 12 of 16 registers hold sums; two lines of b and a broadcast take three. */
enum { TILE_ROWS = 6, TILE_WIDTH = 1 };
#include "attend_lanes.h"

void attend_init_avx2(kern *k) {
    override_attend(k);
}
