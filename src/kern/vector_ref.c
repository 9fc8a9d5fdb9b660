/* Vector operations, the definition: every variant gives these bits. Payload and sign of a NaN are
 * no part of it.
 *
 * A sum over i runs in 16 lanes, lane i mod 16, i ascending from +0, then along the fixed tree of
 * sum_of_lanes. */
#include "elementary.h"
#include "vector.h"

float kern_exp(float x) {
    if (x < EXP_MIN) return 0;
    if (!(x <= EXP_MAX)) return x + INFINITY;
    float t = fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = t - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, x));
    float p = EXP_C6;
    p = fmaf(p, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1);
    p = fmaf(p, r, 1);
    return f32_of_bits(bits_of_f32(p) + (bits_of_f32(t) << 23));
}

float sum_of_lanes(float lane[16]) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    return lane[0];
}

/* scale = 1 / sqrt(Σ fma(x, x, ·) / n + eps);  out[i] = (x[i] · scale) · w[i] */
static void rms_norm(int n, const float *x, const float *w, float eps, float *out) {
    float lane[16] = {0};
    for (int i = 0; i < n; i++) lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    float scale = 1 / sqrtf(sum_of_lanes(lane) / (float)n + eps);
    for (int i = 0; i < n; i++) out[i] = x[i] * scale * w[i];
}

/* out[i] = gate[i] / (1 + e^-gate[i]) · up[i] */
static void silu_mul(int n, const float *gate, const float *up, float *out) {
    for (int i = 0; i < n; i++) out[i] = gate[i] / (1 + kern_exp(-gate[i])) * up[i];
}

static void add(int n, const float *a, const float *b, float *out) {
    for (int i = 0; i < n; i++) out[i] = a[i] + b[i];
}

/* (a, b) becomes (fma(a, cos, -(b·sin)), fma(b, cos, a·sin)). */
static void rope(float *x, int n_heads, int d, int n_rot, bool halves, const float *cos,
                 const float *sin) {
    int n_pairs = n_rot / 2, step = halves ? 1 : 2, apart = halves ? n_pairs : 1;
    for (int head = 0; head < n_heads; head++, x += d)
        for (int i = 0; i < n_pairs; i++) {
            float a = x[i * step], b = x[i * step + apart];
            x[i * step] = fmaf(a, cos[i], -(b * sin[i]));
            x[i * step + apart] = fmaf(b, cos[i], a * sin[i]);
        }
}

/* The first element equal to the greatest; 0 if all are NaN. */
static int argmax(int n, const float *x) {
    float greatest = -INFINITY;
    for (int i = 0; i < n; i++) greatest = x[i] > greatest ? x[i] : greatest;
    for (int i = 0; i < n; i++)
        if (x[i] == greatest) return i;
    return 0;
}

void kern_vector_init(kern *k) {
    k->rms_norm = rms_norm;
    k->silu_mul = silu_mul;
    k->add = add;
    k->rope = rope;
    k->argmax = argmax;
#ifdef KERN_X86
    if (k->isa >= KERN_AVX2) vector_init_avx2(k);
    if (k->isa >= KERN_AVX512) vector_init_avx512(k);
#endif
}
