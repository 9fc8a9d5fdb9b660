/* Speed of matrix products on one thread: kern_bench [n k [type [isa]]], type as in GGUF or "all".
 * Best of several passes. */
#include "kern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

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

static void bench(enum kern_isa isa, enum kern_type type, int n, int k) {
    enum { MAX_M = 512 };
    kern kern;
    kern_init(&kern, isa);
    size_t file_size = sizeof(float) * (size_t)n * (size_t)k; /* enough for any type */
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
    printf("%-7s %-7s %5d x %5d", kern_isa_name(isa), kern_type_name((int)type), n, k);
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
    for (int type = 0; type < KERN_TYPE_END; type++)
        for (int isa = KERN_AVX2; isa < KERN_N_ISA; isa++) {
            if (!kern_type_known(type) || !kern_isa_usable((enum kern_isa)isa)) continue;
            if (argc > 3 && strcasecmp(argv[3], kern_type_name(type)) && strcmp(argv[3], "all"))
                continue;
            if (argc > 4 && strcmp(argv[4], kern_isa_name((enum kern_isa)isa))) continue;
            bench((enum kern_isa)isa, (enum kern_type)type, n, k);
        }
    return 0;
}
