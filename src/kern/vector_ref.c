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

float kern_tanh(float x) {
    float a = x > -x ? x : -x;
    float z = x * x, p = TANH_C5;
    p = fmaf(p, z, TANH_C4);
    p = fmaf(p, z, TANH_C3);
    p = fmaf(p, z, TANH_C2);
    p = fmaf(p, z, TANH_C1);
    if (a < TANH_EDGE) return fmaf(p * z, x, x);
    float y = 1 - 2 / (kern_exp(a + a) + 1);
    return x < 0 ? -y : y;
}

static float gaussian(float x) {
    float t = (x > -x ? x : -x) * SQRT_HALF, z = t * t;
    if (t < 1) {
        float p = ERF_C6;
        p = fmaf(p, z, ERF_C5);
        p = fmaf(p, z, ERF_C4);
        p = fmaf(p, z, ERF_C3);
        p = fmaf(p, z, ERF_C2);
        p = fmaf(p, z, ERF_C1);
        p = fmaf(p, z, ERF_C0);
        return fmaf(x < 0 ? -t : t, 0.5f * p, 0.5f);
    }
    float p = ERFC_C8;
    p = fmaf(p, t, ERFC_C7);
    p = fmaf(p, t, ERFC_C6);
    p = fmaf(p, t, ERFC_C5);
    p = fmaf(p, t, ERFC_C4);
    p = fmaf(p, t, ERFC_C3);
    p = fmaf(p, t, ERFC_C2);
    p = fmaf(p, t, ERFC_C1);
    p = fmaf(p, t, ERFC_C0);
    float c = 0.5f * kern_exp(fmaf(-t, t, p));
    c = t > PHI_END ? 0 : c;
    return x < 0 ? c : 1 - c;
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
    for (int i = 0; i < n; i++) out[i] = x[i] * scale * (w ? w[i] : 1);
}

/* mean = Σ x / n;  c[i] = x[i] - mean;  scale = 1 / sqrt(Σ fma(c, c, ·) / n + eps);
 * out[i] = fma(c[i] · scale, w[i], b[i]) */
static void layer_norm(int n, const float *x, const float *w, const float *b, float eps,
                       float *out) {
    float sums[16] = {0}, squares[16] = {0};
    for (int i = 0; i < n; i++) sums[i % 16] += x[i];
    float mean = sum_of_lanes(sums) / (float)n;
    for (int i = 0; i < n; i++) {
        float c = x[i] - mean;
        squares[i % 16] = fmaf(c, c, squares[i % 16]);
    }
    float scale = 1 / sqrtf(sum_of_lanes(squares) / (float)n + eps);
    for (int i = 0; i < n; i++) out[i] = fmaf((x[i] - mean) * scale, w[i], b ? b[i] : 0);
}

static float silu(float x) {
    return x / (1 + kern_exp(-x));
}

static float gelu_tanh(float x) {
    return x / (1 + kern_exp(x * fmaf(x * x, GELU_B, GELU_A)));
}

static float swiglu_clamped(float x, float up) {
    x = x < CLAMP_LIMIT ? x : CLAMP_LIMIT;
    up = up < CLAMP_LIMIT ? up : CLAMP_LIMIT;
    up = up > -CLAMP_LIMIT ? up : -CLAMP_LIMIT;
    return x / (1 + kern_exp(x * -CLAMP_ALPHA)) * (up + 1);
}

static void activate(enum kern_activation f, int n, const float *x, const float *up, float *out) {
    for (int i = 0; i < n; i++) {
        if (f == KERN_SWIGLU_CLAMPED) {
            out[i] = swiglu_clamped(x[i], up[i]);
            continue;
        }
        float y = f == KERN_SILU        ? silu(x[i])
                  : f == KERN_GELU_TANH ? gelu_tanh(x[i])
                                        : x[i] * gaussian(x[i]);
        out[i] = up ? y * up[i] : y;
    }
}

static void add(int n, const float *a, const float *b, float *out) {
    for (int i = 0; i < n; i++) out[i] = a[i] + b[i];
}

static void add_scaled(int n, const float *a, const float *b, float s, float *out) {
    for (int i = 0; i < n; i++) out[i] = fmaf(b[i], s, a[i]);
}

static void scale(int n, const float *x, float s, float *out) {
    for (int i = 0; i < n; i++) out[i] = x[i] * s;
}

static void softcap(int n, const float *x, float c, float *out) {
    for (int i = 0; i < n; i++) out[i] = kern_tanh(x[i] / c) * c;
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

/* s = state[i][j] · decay; with in: fma(in[i], x[j], s). out[j] = fma(read[i], s, ·) from +0. */
static void scan(int n, int d, float *state, float decay, const float *in, const float *x,
                 const float *read, float *out) {
    for (int j = 0; j < d; j++) out[j] = 0;
    for (int i = 0; i < n; i++, state += d)
        for (int j = 0; j < d; j++) {
            float s = state[j] * decay;
            state[j] = in ? fmaf(in[i], x[j], s) : s;
            out[j] = fmaf(read[i], state[j], out[j]);
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
    k->layer_norm = layer_norm;
    k->activate = activate;
    k->add = add;
    k->add_scaled = add_scaled;
    k->scale = scale;
    k->softcap = softcap;
    k->rope = rope;
    k->argmax = argmax;
    k->scan = scan;
#ifdef KERN_X86
    if (k->isa >= KERN_AVX2) vector_init_avx2(k);
    if (k->isa >= KERN_AVX512) vector_init_avx512(k);
#endif
#ifdef KERN_ARM
    if (k->isa >= KERN_NEON) vector_init_neon(k);
#endif
}
