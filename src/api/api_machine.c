/* Limits of the machine, for comparison with what a model reaches on it. */
#include "api_internal.h"

#include <string.h>

enum { PASSES = 5, BURNS = 256, BURNS_A_THREAD = 32, STEP = 1 << 20, LANES = 16 };

typedef struct trial {
    enum kern_isa isa;
    char *memory;
    size_t size;
    atomic_ullong done; /* pairs, or a sum that must look wanted */
} trial;

static void burn(void *arg, int tile, int thread) {
    trial *t = arg;
    uint64_t pairs = 0;
    for (int i = 0; i < BURNS; i++) pairs += kern_burn(t->isa);
    atomic_fetch_add(&t->done, pairs);
}

static size_t part_of(const trial *t, int tile) {
    return MIN((size_t)STEP, t->size - (size_t)tile * STEP);
}

static void fill_part(void *arg, int tile, int thread) {
    trial *t = arg;
    memset(t->memory + (size_t)tile * STEP, tile + 1, part_of(t, tile));
}

static void read_part(void *arg, int tile, int thread) {
    trial *t = arg;
    const uint64_t *at = (const void *)(t->memory + (size_t)tile * STEP);
    uint64_t sum[LANES] = {0};
    for (size_t n = part_of(t, tile) / sizeof sum; n > 0; n--, at += LANES)
        for (int i = 0; i < LANES; i++) sum[i] ^= at[i];
    for (int i = 1; i < LANES; i++) sum[0] ^= sum[i];
    atomic_fetch_add(&t->done, sum[0]);
}

int icp_measure_machine(icp_model *m, icp_machine *out, icp_error *err) {
    enum { LEAST = 64 << 20, MOST = 1 << 30 };
    *out = (icp_machine){0};
    if (!m->model)
        return error_set(err, ICP_EINVALID, "the model was opened for its vocabulary only");
    trial t = {.isa = (enum kern_isa)kern_isa_find(m->info.isa),
               .size = MIN(MAX(m->info.active_size, (size_t)LEAST), (size_t)MOST)};
    t.memory = mem_reserve(t.size);
    if (!t.memory) return error_set(err, ICP_ENOMEM, "out of memory");
    int parts = (int)((t.size + STEP - 1) / STEP);
    pool_run(m->pool, parts, fill_part, &t);
    for (int i = 0; i < PASSES; i++) {
        double began = clock_now();
        pool_run(m->pool, parts, read_part, &t);
        out->read = MAX(out->read, (double)t.size / (clock_now() - began));
        atomic_store(&t.done, 0);
        began = clock_now();
        pool_run(m->pool, pool_threads(m->pool) * BURNS_A_THREAD, burn, &t);
        out->multiply = MAX(out->multiply, (double)atomic_load(&t.done) / (clock_now() - began));
    }
    mem_unreserve(t.memory, t.size);
    return 0;
}
