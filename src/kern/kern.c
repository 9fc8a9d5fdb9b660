#include "kern_internal.h"

void kern_init(kern *k, enum kern_isa isa) {
    *k = (kern){.isa = isa};
    kern_gemm_init(k);
    kern_vector_init(k);
    kern_attend_init(k);
}
