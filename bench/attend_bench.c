/* Times attention: nanoseconds for one query row and one token of context, and the share of the
 * processor's own FMA peak, for each usable instruction set.
 *
 *     attend_bench [d [n_rows [f16|bf16|q8_0]]]
 *
 * decode: few rows over many pages, read from memory.  prefill: many rows over one super-chunk. */
#include "base.h"
#include "kern.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POOL_PAGES = 4096, REPEATS = 7 };

typedef struct setup {
    kern k;
    kern_attend a;
    char *pool; /* POOL_PAGES blocks */
    size_t block_sz;
    const void *page[KERN_CHUNK_PAGES];
} setup;

/* Seconds that this thread ran: a busy machine doesn't enter, except by its caches and memory. */
static double thread_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Attends over n_chunks super-chunks; seconds. */
static double attend_chunks(setup *s, int n_chunks) {
    double start = thread_time();
    for (int chunk = 0; chunk < n_chunks; chunk++) {
        for (int i = 0; i < KERN_CHUNK_PAGES; i++)
            s->page[i] = s->pool + (size_t)(chunk * KERN_CHUNK_PAGES + i) * s->block_sz;
        s->k.attend(&s->a);
    }
    return thread_time() - start;
}

static double best_of(setup *s, int n_chunks) {
    double best = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        double t = attend_chunks(s, n_chunks);
        best = t < best ? t : best;
    }
    return best;
}

static void measure(setup *s, const char *what, int n_rows, int n_chunks) {
    s->a.n_rows = n_rows;
    double t = best_of(s, n_chunks), tokens = (double)n_chunks * KERN_CHUNK;
    printf("  %-8s %4d rows  %8.3f ns/(row, token)  %7.1f GFLOPS  %6.2f GB/s of pages\n", what,
           n_rows, 1e9 * t / (n_rows * tokens), 4e-9 * s->a.dk * n_rows * tokens / t,
           1e-9 * (double)s->block_sz * n_chunks * KERN_CHUNK_PAGES / t);
}

int main(int argc, char **argv) {
    int d = argc > 1 ? atoi(argv[1]) : 64, n_rows = argc > 2 ? atoi(argv[2]) : 192;
    const char *format = argc > 3 ? argv[3] : "f16";
    enum kern_type kv = !strcmp(format, "q8_0")   ? KERN_Q8_0
                        : !strcmp(format, "bf16") ? KERN_BF16
                                                  : KERN_F16;
    if (d < 1 || d > KERN_MAX_HEAD || n_rows < 1 || n_rows > 1024) return 2;
    setup s = {.block_sz = kern_kv_size(kv, d, d)};
    float *numbers = mem_aligned(64, sizeof(float) * 1024 * 2 * 600);
    const float *q[1024];
    float *partial[1024];
    static const int begin[1024];
    int end[1024];
    s.pool = mem_aligned(64, POOL_PAGES * s.block_sz);
    void *scratch = mem_aligned(64, kern_attend_scratch(d, d));
    if (!numbers || !s.pool || !scratch) return 1;
    for (size_t i = 0; i < POOL_PAGES * s.block_sz / 2; i++)
        ((uint16_t *)s.pool)[i] = (uint16_t)(0x3000 + i * 7919 % 0x800 + (i % 3 ? 0x8000 : 0));
    for (int i = 0; i < 1024; i++) {
        for (int j = 0; j < d; j++) numbers[i * 600 + j] = sinf((float)(i * d + j)) / (float)d;
        q[i] = numbers + (size_t)i * 600;
        partial[i] = numbers + (size_t)(1024 + i) * 600;
        end[i] = KERN_CHUNK;
    }
    for (int isa = KERN_AVX2; isa < KERN_N_ISA; isa++) {
        if (!kern_isa_usable(isa)) continue;
        kern_init(&s.k, isa);
        s.a = (kern_attend){.kv = kv,
                            .dk = d,
                            .dv = d,
                            .n_pages = KERN_CHUNK_PAGES,
                            .page = s.page,
                            .q = q,
                            .begin = begin,
                            .end = end,
                            .partial = partial,
                            .scratch = scratch};
        printf("%s, %s, d = %d\n", kern_isa_name(isa), format, d);
        measure(&s, "decode", 1, POOL_PAGES / KERN_CHUNK_PAGES);
        measure(&s, "decode", 3, POOL_PAGES / KERN_CHUNK_PAGES);
        measure(&s, "drafts", 12, POOL_PAGES / KERN_CHUNK_PAGES);
        measure(&s, "prefill", n_rows, 8);
        for (int i = 0; i < n_rows; i++) end[i] = KERN_CHUNK - KERN_PAGE + 1 + i % KERN_PAGE;
        measure(&s, "causal", n_rows, 8);
        for (int i = 0; i < n_rows; i++) end[i] = KERN_CHUNK;
    }
    return 0;
}
