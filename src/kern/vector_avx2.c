#include "vector_lanes.h"

void vector_init_avx2(kern *k) {
    override_vector(k);
}
