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
    lanes scale = lanes_all(1 / sqrtf(lanes_sum(squares) / (float)n + eps));
    for (i = 0; i + LANES <= n; i += LANES)
        lanes_store(out + i, lanes_mul(lanes_mul(lanes_load(x + i), scale), lanes_load(w + i)));
    lanes_store_n(out + i, lanes_mul(lanes_mul(xi, scale), lanes_load_n(w + i, rest)), rest);
}

static inline lanes silu_times(lanes gate, lanes up) {
    lanes minus = lanes_sub(lanes_all(-0.0f), gate);
    return lanes_mul(lanes_div(gate, lanes_add(lanes_all(1), lanes_exp(minus))), up);
}

static void silu_mul(int n, const float *gate, const float *up, float *out) {
    int i, rest = n % LANES;
    for (i = 0; i + LANES <= n; i += LANES)
        lanes_store(out + i, silu_times(lanes_load(gate + i), lanes_load(up + i)));
    lanes_store_n(out + i, silu_times(lanes_load_n(gate + i, rest), lanes_load_n(up + i, rest)),
                  rest);
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
    k->silu_mul = silu_mul;
    k->add = add;
    k->rope = rope;
    k->argmax = argmax;
}

#endif
