#include "vector_lanes.h"

void vector_init_neon(kern *k) {
    override_vector(k);
}
