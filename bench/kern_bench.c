/* Speed of matrix products on one thread: kern_bench [n k [type [isa]]]. Best of several passes. */
#include "kern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    enum kern_type type;
    size_t row_bytes_of_32;
} types[] = {{"q4_1", KERN_Q4_1, 20}, {"q4_0", KERN_Q4_0, 18}, {"q8_0", KERN_Q8_0, 34},
             {"f16", KERN_F16, 64},   {"bf16", KERN_BF16, 64}, {"f32", KERN_F32, 128}};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(size_t size) {
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p) exit(1);
    return p;
}

/* Seconds of one product of m rows, in the tiles that kern.h recommends. */
static double measure(const kern *kern, const kern_mat *w, const char *act, size_t stride, int m,
                      float *out) {
    double best = 1e9, start = now();
    for (int pass = 0; pass < 100 && (pass < 3 || now() - start < 0.3); pass++) {
        double t = now();
        int n_groups = kern_n_groups(w->n);
        for (int i = 0; i < m; i += 128)
            for (int g = 0; g < n_groups; g += 12)
                kern->gemm(w, act + (size_t)i * stride, stride, m - i < 128 ? m - i : 128,
                           out + (size_t)i * (size_t)w->n, (size_t)w->n, false, g,
                           g + 12 < n_groups ? g + 12 : n_groups);
        t = now() - t;
        if (t < best) best = t;
    }
    return best;
}

static void bench(enum kern_isa isa, int which, int n, int k) {
    enum { MAX_M = 512 };
    kern kern;
    kern_init(&kern, isa);
    enum kern_type type = types[which].type;
    size_t file_size = (size_t)n * (size_t)k / 32 * types[which].row_bytes_of_32;
    unsigned char *rows = need(file_size);
    for (size_t i = 0; i < file_size; i++) rows[i] = (unsigned char)((rand() >> 8 & 0x3b) | 0x20);
    kern_mat w = {type, n, k, need(kern_mat_size(type, n, k))};
    kern_pack(&w, rows, 0, kern_n_groups(n));
    size_t stride = kern_act_stride(type, k);
    char *act = need(MAX_M * stride);
    float *x = need((size_t)k * sizeof *x), *out = need(sizeof *out * MAX_M * (size_t)n);
    for (int i = 0; i < MAX_M; i++) {
        for (int j = 0; j < k; j++) x[j] = (float)(rand() % 2001 - 1000) / 1000;
        kern.act_row(type, k, x, act + (size_t)i * stride);
    }
    printf("%-6s %-4s %6d x %5d ", kern_isa_name(isa), types[which].name, n, k);
    static const int ms[] = {1, 2, 3, 4, 8, 16, 64, 512};
    for (int i = 0; i < 8; i++) {
        double t = measure(&kern, &w, act, stride, ms[i], out);
        if (ms[i] == 1) printf(" %5.1f GB/s", (double)kern_mat_size(type, n, k) / t / 1e9);
        printf("  m=%d %.0f", ms[i], 2.0 * ms[i] * n * k / t / 1e9);
    }
    printf(" GOPS\n");
    free(rows), free(w.data), free(act), free(x), free(out);
}

int main(int argc, char **argv) {
    int n = argc > 2 ? atoi(argv[1]) : 1536, k = argc > 2 ? atoi(argv[2]) : 576;
    for (int t = 0; t < 6; t++)
        for (int isa = KERN_AVX2; isa < KERN_N_ISA; isa++) {
            if (argc > 3 && strcmp(argv[3], types[t].name) && strcmp(argv[3], "all")) continue;
            if (argc > 4 && strcmp(argv[4], kern_isa_name(isa))) continue;
            if (kern_isa_usable(isa)) bench(isa, t, n, k);
        }
    return 0;
}
