/* What vector_*.c share, and the sum that attend_ref.c defines itself with. */
#ifndef VECTOR_H
#define VECTOR_H

#include "kern_internal.h"

/* The fixed tree: lane[i] += lane[i+8] for i < 8, then 4, 2 and 1. Overwrites lane. */
float sum_of_lanes(float lane[16]);

void vector_init_avx2(kern *k);
void vector_init_avx512(kern *k);
void vector_init_neon(kern *k);

#endif
