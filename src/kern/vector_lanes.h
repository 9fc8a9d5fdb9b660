/* Vector operations in terms of lanes.h, compiled once for each instruction set. The definitions
 * stand in vector_ref.c. */
#ifndef VECTOR_LANES_H
#define VECTOR_LANES_H

#include "lanes.h"
#include "vector.h"

static void rms_norm(int n, const float *x, const float *w, float eps, float *out) {
    int i, rest = n % LANES;
    lanes squares = lanes_zero();
    for (i = 0; i + LANES <= n; i += LANES) {
        lanes xi = lanes_load(x + i);
        squares = lanes_fma(xi, xi, squares);
    }
    lanes xi = lanes_load_n(x + i, rest);
    squares = lanes_keep(lanes_first(rest), lanes_fma(xi, xi, squares), squares);
    lanes scale = lanes_all(1 / sqrtf(lanes_sum(squares) / (float)n + eps)), one = lanes_all(1);
    for (i = 0; i + LANES <= n; i += LANES)
        lanes_store(out + i,
                    lanes_mul(lanes_mul(lanes_load(x + i), scale), w ? lanes_load(w + i) : one));
    lanes_store_n(out + i, lanes_mul(lanes_mul(xi, scale), w ? lanes_load_n(w + i, rest) : one),
                  rest);
}

static void layer_norm(int n, const float *x, const float *w, const float *b, float eps,
                       float *out) {
    int i, rest = n % LANES;
    lanes sums = lanes_zero(), squares = lanes_zero();
    for (i = 0; i + LANES <= n; i += LANES) sums = lanes_add(sums, lanes_load(x + i));
    lanes last = lanes_load_n(x + i, rest);
    sums = lanes_keep(lanes_first(rest), lanes_add(sums, last), sums);
    lanes mean = lanes_all(lanes_sum(sums) / (float)n);
    for (i = 0; i + LANES <= n; i += LANES) {
        lanes c = lanes_sub(lanes_load(x + i), mean);
        squares = lanes_fma(c, c, squares);
    }
    last = lanes_sub(last, mean);
    squares = lanes_keep(lanes_first(rest), lanes_fma(last, last, squares), squares);
    lanes scale = lanes_all(1 / sqrtf(lanes_sum(squares) / (float)n + eps));
    for (i = 0; i + LANES <= n; i += LANES) {
        lanes c = lanes_mul(lanes_sub(lanes_load(x + i), mean), scale);
        lanes_store(out + i, lanes_fma(c, lanes_load(w + i), b ? lanes_load(b + i) : lanes_zero()));
    }
    lanes bias = b ? lanes_load_n(b + i, rest) : lanes_zero();
    lanes_store_n(out + i, lanes_fma(lanes_mul(last, scale), lanes_load_n(w + i, rest), bias),
                  rest);
}

static inline lanes negated(lanes x) {
    return lanes_sub(lanes_all(-0.0f), x);
}

/* x / (1 + e^y) */
static inline lanes over_exp(lanes x, lanes y) {
    return lanes_div(x, lanes_add(lanes_all(1), lanes_exp(y)));
}

/* a < b ? a : b, hence b when either is NaN. */
static inline lanes lesser(lanes a, lanes b) {
    return lanes_keep(lanes_lt(a, b), a, b);
}

static inline lanes gaussian(lanes x) {
    lanes t = lanes_mul(lanes_max(x, negated(x)), lanes_all(SQRT_HALF)), z = lanes_mul(t, t);
    mask below = lanes_lt(x, lanes_zero());
    lanes p = lanes_all(ERF_C6), q = lanes_all(ERFC_C8);
    p = lanes_fma(p, z, lanes_all(ERF_C5));
    p = lanes_fma(p, z, lanes_all(ERF_C4));
    p = lanes_fma(p, z, lanes_all(ERF_C3));
    p = lanes_fma(p, z, lanes_all(ERF_C2));
    p = lanes_fma(p, z, lanes_all(ERF_C1));
    p = lanes_fma(p, z, lanes_all(ERF_C0));
    p = lanes_fma(lanes_keep(below, negated(t), t), lanes_mul(lanes_all(0.5f), p), lanes_all(0.5f));
    q = lanes_fma(q, t, lanes_all(ERFC_C7));
    q = lanes_fma(q, t, lanes_all(ERFC_C6));
    q = lanes_fma(q, t, lanes_all(ERFC_C5));
    q = lanes_fma(q, t, lanes_all(ERFC_C4));
    q = lanes_fma(q, t, lanes_all(ERFC_C3));
    q = lanes_fma(q, t, lanes_all(ERFC_C2));
    q = lanes_fma(q, t, lanes_all(ERFC_C1));
    q = lanes_fma(q, t, lanes_all(ERFC_C0));
    lanes c = lanes_mul(lanes_all(0.5f), lanes_exp(lanes_fma(negated(t), t, q)));
    c = lanes_keep(lanes_lt(lanes_all(PHI_END), t), lanes_zero(), c);
    c = lanes_keep(below, c, lanes_sub(lanes_all(1), c));
    return lanes_keep(lanes_lt(t, lanes_all(1)), p, c);
}

static inline lanes activated(enum kern_activation f, lanes x) {
    if (f == KERN_SILU) return over_exp(x, negated(x));
    if (f == KERN_GELU) return lanes_mul(x, gaussian(x));
    lanes inner = lanes_fma(lanes_mul(x, x), lanes_all(GELU_B), lanes_all(GELU_A));
    return over_exp(x, lanes_mul(x, inner));
}

static inline lanes swiglu_clamped(lanes x, lanes up) {
    lanes limit = lanes_all(CLAMP_LIMIT);
    x = lesser(x, limit);
    up = lanes_max(lesser(up, limit), lanes_all(-CLAMP_LIMIT));
    return lanes_mul(over_exp(x, lanes_mul(x, lanes_all(-CLAMP_ALPHA))),
                     lanes_add(up, lanes_all(1)));
}

static void activate(enum kern_activation f, int n, const float *x, const float *up, float *out) {
    for (int i = 0; i < n; i += LANES) {
        int width = n - i < LANES ? n - i : LANES;
        lanes xi = lanes_load_n(x + i, width), factor = lanes_all(1);
        if (up) factor = lanes_load_n(up + i, width);
        lanes y = f == KERN_SWIGLU_CLAMPED ? swiglu_clamped(xi, factor)
                                           : lanes_mul(activated(f, xi), factor);
        lanes_store_n(out + i, y, width);
    }
}

static void add_scaled(int n, const float *a, const float *b, float s, float *out) {
    for (int i = 0; i < n; i += LANES) {
        int width = n - i < LANES ? n - i : LANES;
        lanes x = lanes_load_n(a + i, width), y = lanes_load_n(b + i, width);
        lanes_store_n(out + i, lanes_fma(y, lanes_all(s), x), width);
    }
}

static void scale(int n, const float *x, float s, float *out) {
    for (int i = 0; i < n; i += LANES) {
        int width = n - i < LANES ? n - i : LANES;
        lanes_store_n(out + i, lanes_mul(lanes_load_n(x + i, width), lanes_all(s)), width);
    }
}

static void softcap(int n, const float *x, float c, float *out) {
    for (int i = 0; i < n; i += LANES) {
        int width = n - i < LANES ? n - i : LANES;
        lanes y = lanes_tanh(lanes_div(lanes_load_n(x + i, width), lanes_all(c)));
        lanes_store_n(out + i, lanes_mul(y, lanes_all(c)), width);
    }
}

static void add(int n, const float *a, const float *b, float *out) {
    int i, rest = n % LANES;
    for (i = 0; i + LANES <= n; i += LANES)
        lanes_store(out + i, lanes_add(lanes_load(a + i), lanes_load(b + i)));
    lanes_store_n(out + i, lanes_add(lanes_load_n(a + i, rest), lanes_load_n(b + i, rest)), rest);
}

static inline void rotate_halves(float *x, int n_pairs, const float *cos, const float *sin) {
    for (int i = 0; i < n_pairs; i += LANES) {
        int n = n_pairs - i < LANES ? n_pairs - i : LANES;
        lanes a = lanes_load_n(x + i, n), b = lanes_load_n(x + n_pairs + i, n);
        lanes c = lanes_load_n(cos + i, n), s = lanes_load_n(sin + i, n);
        lanes_store_n(x + i, lanes_fms(a, c, lanes_mul(b, s)), n);
        lanes_store_n(x + n_pairs + i, lanes_fma(b, c, lanes_mul(a, s)), n);
    }
}

static inline void rotate_pairs(float *x, int n_pairs, const float *cos, const float *sin) {
    for (int i = 0; i < n_pairs; i += LANES / 2) {
        int n = n_pairs - i < LANES / 2 ? n_pairs - i : LANES / 2;
        lanes ab = lanes_load_n(x + 2 * i, 2 * n);
        lanes product = lanes_mul(lanes_swap_pairs(ab), lanes_dup8(sin + i, n));
        lanes_store_n(x + 2 * i, lanes_fmaddsub(ab, lanes_dup8(cos + i, n), product), 2 * n);
    }
}

static void rope(float *x, int n_heads, int d, int n_rot, bool halves, const float *cos,
                 const float *sin) {
    for (int head = 0; head < n_heads; head++)
        (halves ? rotate_halves : rotate_pairs)(x + (size_t)head * d, n_rot / 2, cos, sin);
}

static void scan(int n, int d, float *state, float decay, const float *in, const float *x,
                 const float *read, float *out) {
    for (int j = 0; j < d; j += LANES) {
        int width = d - j < LANES ? d - j : LANES;
        lanes sum = lanes_zero(), xj = in ? lanes_load_n(x + j, width) : sum;
        for (int i = 0; i < n; i++) {
            float *at = state + (size_t)i * d + j;
            lanes s = lanes_mul(lanes_load_n(at, width), lanes_all(decay));
            if (in) s = lanes_fma(lanes_all(in[i]), xj, s);
            lanes_store_n(at, s, width);
            sum = lanes_fma(lanes_all(read[i]), s, sum);
        }
        lanes_store_n(out + j, sum, width);
    }
}

static int argmax(int n, const float *x) {
    int i, rest = n % LANES;
    lanes greatest = lanes_all(-INFINITY);
    for (i = 0; i + LANES <= n; i += LANES) greatest = lanes_max(lanes_load(x + i), greatest);
    lanes last = lanes_max(lanes_load_n(x + i, rest), greatest);
    greatest = lanes_all(lanes_greatest(lanes_keep(lanes_first(rest), last, greatest)));
    for (i = 0; i < n; i += LANES) {
        int width = n - i < LANES ? n - i : LANES;
        unsigned found = lanes_equals(lanes_load_n(x + i, width), greatest);
        found &= (1u << width) - 1;
        if (found) return i + __builtin_ctz(found);
    }
    return 0;
}

static inline void override_vector(kern *k) {
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
}

#endif
