#include "vector_lanes.h"

void vector_init_avx512(kern *k) {
    override_vector(k);
}
