/* Vector operations: the reference against double precision, variants against the reference. */
#include "bits.h"

enum { MOST = 300, GUARD = 16 };

static const float canary = -1.25e-30f;

static void fill(uint64_t *rng, float (*source)(uint64_t *), int n, float *x) {
    for (int i = 0; i < n; i++) x[i] = source(rng);
}

/* An output array with canaries on both sides, so that each starts at any alignment. */
typedef struct guarded {
    float numbers[GUARD + MOST + GUARD];
    int n;
} guarded;

static float *guard(guarded *g, int n) {
    g->n = n;
    for (int i = 0; i < GUARD + MOST + GUARD; i++) g->numbers[i] = canary;
    return g->numbers + GUARD;
}

static void assert_guarded(const guarded *g) {
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(bits_of(g->numbers[i]), bits_of(canary));
        assert_int_equal(bits_of(g->numbers[GUARD + g->n + i]), bits_of(canary));
    }
}

/* ---- exp ------------------------------------------------------------------------------------ */

static double ulp(double x) {
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static void exp_is_within_2_ulp(void **state) {
    double worst = 0;
    for (uint64_t bits = 0; bits < 0x100000000; bits += 1021) {
        float x = float_of((uint32_t)bits), y = kern_exp(x);
        if (isnan(x)) {
            assert_true(isnan(y));
            continue;
        }
        double exact = exp(x);
        if (exact < FLT_MIN)
            assert_int_equal(bits_of(y), 0);
        else if (exact > FLT_MAX)
            assert_true(y == INFINITY);
        else {
            double error = fabs(y - exact) / ulp(exact);
            worst = error > worst ? error : worst;
        }
    }
    assert_true(worst <= 2);
}

static void exp_at_its_edges(void **state) {
    assert_int_equal(bits_of(kern_exp(0.0f)), bits_of(1.0f));
    assert_int_equal(bits_of(kern_exp(-0.0f)), bits_of(1.0f));
    assert_int_equal(bits_of(kern_exp(-INFINITY)), 0);
    assert_true(kern_exp(INFINITY) == INFINITY);
    assert_true(isnan(kern_exp(NAN)) && isnan(kern_exp(-NAN)));
    assert_true(kern_exp(FLT_MIN) == 1 && kern_exp(-0x1p-149f) == 1);
    /* ln FLT_MAX = 88.72283905..., ln FLT_MIN = -87.33654475...: the floats on both sides. */
    assert_true(isfinite(kern_exp(0x1.62e42ep+6f)) && isinf(kern_exp(0x1.62e430p+6f)));
    assert_true(kern_exp(-0x1.5d589ep+6f) >= FLT_MIN && kern_exp(-0x1.5d58a0p+6f) == 0);
    float before = 0;
    for (float x = -88; x < 89; x += 0x1p-9f) { /* monotonic on a grid */
        float y = kern_exp(x);
        assert_true(y >= before);
        before = y;
    }
}

/* Every variant's exp, seen through silu with up = 1, and its kin, over all exponents. */
static void variant_exp(const kern *reference, const kern *variant) {
    float gate[256], up[256], expected[256], found[256];
    for (int i = 0; i < 256; i++) up[i] = 1;
    for (uint64_t bits = 0; bits < 0x100000000; bits += 256 * 1021) {
        for (int i = 0; i < 256; i++) gate[i] = float_of((uint32_t)(bits + (uint64_t)i * 1021));
        reference->softcap(256, gate, 1, expected);
        variant->softcap(256, gate, 1, found);
        assert_same(256, expected, found);
        reference->activate(KERN_GELU, 256, gate, NULL, expected);
        variant->activate(KERN_GELU, 256, gate, NULL, found);
        assert_same(256, expected, found);
        reference->activate(KERN_SILU, 256, gate, up, expected);
        variant->activate(KERN_SILU, 256, gate, up, found);
        assert_same(256, expected, found);
    }
    for (uint32_t i = 0; i < 2 * 0x8000; i += 256) { /* densely around the two thresholds */
        for (uint32_t j = 0; j < 256; j++)
            gate[j] = -float_of((i < 0x8000 ? 0x42b10000 : 0xc2aea000) + i % 0x8000 + j);
        reference->activate(KERN_SILU, 256, gate, up, expected);
        variant->activate(KERN_SILU, 256, gate, up, found);
        assert_same(256, expected, found);
    }
}

/* ---- the reference against double precision -------------------------------------------------- */

static void rms_norm_in_double(void **state) {
    uint64_t rng = 1;
    kern k;
    kern_init(&k, KERN_SCALAR);
    float x[MOST], w[MOST], out[MOST];
    for (int n = 1; n <= MOST; n++) {
        fill(&rng, draw_unit, n, x);
        fill(&rng, draw_unit, n, w);
        k.rms_norm(n, x, w, 1e-5f, out);
        double squares = 0;
        for (int i = 0; i < n; i++) squares += (double)x[i] * x[i];
        for (int i = 0; i < n; i++) {
            double exact = x[i] / sqrt(squares / n + (double)1e-5f) * w[i];
            assert_near(exact, out[i], 16 * FLT_EPSILON * fabs(exact));
        }
    }
}

static void silu_in_double(void **state) {
    uint64_t rng = 2;
    kern k;
    kern_init(&k, KERN_SCALAR);
    float gate[MOST], up[MOST], out[MOST];
    fill(&rng, draw_unit, MOST, up);
    for (int i = 0; i < MOST; i++) gate[i] = 20 * draw_unit(&rng);
    k.activate(KERN_SILU, MOST, gate, up, out);
    for (int i = 0; i < MOST; i++) {
        double exact = gate[i] / (1 + exp(-(double)gate[i])) * up[i];
        assert_near(exact, out[i], 4 * FLT_EPSILON * fabs(exact));
    }
    k.activate(KERN_SILU, 1, (float[]){-100}, (float[]){1},
               out); /* e^100 overflows: the limit, 0 */
    assert_true(out[0] == 0);
}

static void layer_norm_in_double(void **state) {
    uint64_t rng = 11;
    kern k;
    kern_init(&k, KERN_SCALAR);
    float x[MOST], w[MOST], b[MOST], out[MOST];
    for (int n = 1; n <= MOST; n++) {
        fill(&rng, draw_unit, n, x);
        fill(&rng, draw_unit, n, w);
        fill(&rng, draw_unit, n, b);
        k.layer_norm(n, x, w, n % 2 ? b : NULL, 1e-3f, out);
        double mean = 0, squares = 0;
        for (int i = 0; i < n; i++) mean += (double)x[i] / n;
        for (int i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
        double scale = 1 / sqrt(squares / n + (double)1e-3f);
        for (int i = 0; i < n; i++) {
            double exact = (x[i] - mean) * scale * w[i] + (n % 2 ? (double)b[i] : 0);
            assert_near(exact, out[i], 16 * FLT_EPSILON * fmax(1, scale));
        }
    }
}

/* All activations on a grid, tails included, against libm in double. */
static void activations_in_double(void **state) {
    kern k;
    kern_init(&k, KERN_SCALAR);
    for (float x = -30; x <= 30; x += 0x1.1p-8f) {
        double phi = 0.5 * erfc(-(double)x * sqrt(0.5)), cube = (double)x * x * x, out_of;
        float out, up = 1.25f;
        k.activate(KERN_GELU, 1, &x, NULL, &out);
        assert_near(x * phi, out, fmax(16 * FLT_EPSILON * fabs(x * phi), 2e-9));
        k.activate(KERN_GELU, 1, &x, &up, &out);
        assert_near(x * phi * 1.25, out, fmax(16 * FLT_EPSILON * fabs(x * phi), 2e-9));
        out_of = x * 0.5 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * cube)));
        k.activate(KERN_GELU_TANH, 1, &x, NULL, &out);
        assert_near(out_of, out, 8 * FLT_EPSILON * fabs((double)x));
        for (up = -9; up < 10; up += 4.5f) {
            double gate = fmin(x, 7), bounded = fmax(fmin(up, 7), -7);
            out_of = gate / (1 + exp(-(double)1.702f * gate)) * (bounded + 1);
            k.activate(KERN_SWIGLU_CLAMPED, 1, &x, &up, &out);
            assert_near(out_of, out, 8 * FLT_EPSILON * fmax(1, fabs((double)x)) * fabs(out_of));
        }
        double exact = tanh((double)x);
        assert_near(exact, kern_tanh(x), 2 * FLT_EPSILON * fabs(exact));
        k.softcap(1, &x, 5, &out);
        assert_near(5 * tanh((double)x / 5), out, 16 * FLT_EPSILON * fabs((double)x));
    }
    assert_true(kern_tanh(INFINITY) == 1 && kern_tanh(-INFINITY) == -1 && isnan(kern_tanh(NAN)));
}

static void widening_is_exact(void **state) {
    uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7bff}, brain[] = {0x3f80, 0xc000, 0x0001, 0x7f7f};
    float out[4], as_half[] = {1, -2, 0x1p-24f, 65504},
                  as_brain[] = {1, -2, 0x1p-133f, 0x1.fep127f};
    kern_widen(KERN_F16, 4, half, out);
    assert_same(4, as_half, out);
    kern_widen(KERN_BF16, 4, brain, out);
    assert_same(4, as_brain, out);
    kern_widen(KERN_F32, 4, as_half, out);
    assert_same(4, as_half, out);
}

static void rope_in_double(void **state) {
    enum { HEADS = 3, D = 20, ROTATED = 14, PAIRS = ROTATED / 2 };
    uint64_t rng = 3;
    kern k;
    kern_init(&k, KERN_SCALAR);
    float x[HEADS * D], before[HEADS * D], cosine[PAIRS], sine[PAIRS];
    for (int halves = 0; halves <= 1; halves++) {
        fill(&rng, draw_unit, HEADS * D, x);
        memcpy(before, x, sizeof x);
        for (int i = 0; i < PAIRS; i++) cosine[i] = cosf((float)i), sine[i] = sinf((float)i);
        k.rope(x, HEADS, D, ROTATED, halves, cosine, sine);
        for (int head = 0; head < HEADS; head++) {
            const float *from = before + head * D, *to = x + head * D;
            for (int i = 0; i < PAIRS; i++) {
                int a = halves ? i : 2 * i, b = halves ? i + PAIRS : 2 * i + 1;
                double c = cosine[i], s = sine[i];
                assert_near(from[a] * c - from[b] * s, to[a], 2 * FLT_EPSILON);
                assert_near(from[b] * c + from[a] * s, to[b], 2 * FLT_EPSILON);
            }
            assert_memory_equal(from + ROTATED, to + ROTATED, (D - ROTATED) * sizeof *to);
        }
    }
}

static void argmax_by_hand(const kern *k) {
    assert_int_equal(k->argmax(1, (float[]){-INFINITY}), 0);
    assert_int_equal(k->argmax(2, (float[]){NAN, -INFINITY}), 1);
    assert_int_equal(k->argmax(2, (float[]){NAN, NAN}), 0);
    assert_int_equal(k->argmax(4, (float[]){1, 3, 3, 2}), 1);
    assert_int_equal(k->argmax(3, (float[]){-1, -0.0f, 0.0f}), 1);
    assert_int_equal(k->argmax(3, (float[]){1, NAN, 2}), 2);
    assert_int_equal(k->argmax(2, (float[]){FLT_MAX, INFINITY}), 1);
    float x[MOST];
    for (int n = 1; n <= MOST; n++)
        for (int at = 0; at < n; at++) {
            for (int i = 0; i < n; i++) x[i] = -2 - (float)i;
            x[at] = x[n - 1] = -1;
            assert_int_equal(k->argmax(n, x), at);
        }
}

/* ---- variants against the reference --------------------------------------------------------- */

static void variant_elementwise(const kern *reference, const kern *variant) {
    uint64_t rng = 4;
    for (int n = 1; n <= MOST; n++) {
        float a[MOST], b[MOST];
        guarded expected, found;
        fill(&rng, draw_edge, n, a);
        fill(&rng, draw_edge, n, b);

        reference->add(n, a, b, guard(&expected, n));
        variant->add(n, a, b, guard(&found, n));
        assert_same(n, expected.numbers + GUARD, found.numbers + GUARD);
        assert_guarded(&found);

        reference->activate(KERN_SILU, n, a, b, guard(&expected, n));
        variant->activate(KERN_SILU, n, a, b, guard(&found, n));
        assert_same(n, expected.numbers + GUARD, found.numbers + GUARD);
        assert_guarded(&found);

        for (int f = KERN_SILU; f <= KERN_SWIGLU_CLAMPED; f++) {
            const float *up = f == KERN_SWIGLU_CLAMPED || n % 3 ? b : NULL;
            reference->activate(f, n, a, up, guard(&expected, n));
            variant->activate(f, n, a, up, guard(&found, n));
            assert_same(n, expected.numbers + GUARD, found.numbers + GUARD);
            assert_guarded(&found);

            float *in_place = guard(&found, n); /* out may be either input */
            memcpy(in_place, n % 2 || !up ? a : b, n * sizeof *a);
            variant->activate(f, n, n % 2 || !up ? in_place : a, n % 2 || !up ? up : in_place,
                              in_place);
            assert_same(n, expected.numbers + GUARD, in_place);
            assert_guarded(&found);
        }

        float s = draw_edge(&rng);
        reference->add_scaled(n, a, b, s, guard(&expected, n));
        variant->add_scaled(n, a, b, s, guard(&found, n));
        assert_same(n, expected.numbers + GUARD, found.numbers + GUARD);
        assert_guarded(&found);
        reference->scale(n, a, s, guard(&expected, n));
        variant->scale(n, a, s, guard(&found, n));
        assert_same(n, expected.numbers + GUARD, found.numbers + GUARD);
        assert_guarded(&found);
        reference->softcap(n, a, 3, guard(&expected, n));
        variant->softcap(n, a, 3, guard(&found, n));
        assert_same(n, expected.numbers + GUARD, found.numbers + GUARD);
        assert_guarded(&found);

        assert_int_equal(reference->argmax(n, a), variant->argmax(n, a));
    }
}

static void variant_norms(const kern *reference, const kern *variant) {
    uint64_t rng = 5;
    for (int n = 1; n <= MOST; n++)
        for (int edges = 0; edges <= 1; edges++) {
            float x[MOST], w[MOST], b[MOST];
            guarded expected, found;
            fill(&rng, edges ? draw_edge : draw_unit, n, x);
            fill(&rng, draw_edge, n, w);
            fill(&rng, draw_edge, n, b);
            float eps = edges ? 0 : 1e-6f;
            reference->rms_norm(n, x, n % 3 ? w : NULL, eps, guard(&expected, n));
            variant->rms_norm(n, x, n % 3 ? w : NULL, eps, guard(&found, n));
            assert_same(n, expected.numbers + GUARD, found.numbers + GUARD);
            assert_guarded(&found);
            reference->layer_norm(n, x, w, n % 3 ? b : NULL, eps, guard(&expected, n));
            variant->layer_norm(n, x, w, n % 3 ? b : NULL, eps, guard(&found, n));
            assert_same(n, expected.numbers + GUARD, found.numbers + GUARD);
            assert_guarded(&found);
        }
}

static void variant_rope(const kern *reference, const kern *variant) {
    uint64_t rng = 6;
    for (int d = 2; d <= MOST / 3; d++)
        for (int halves = 0; halves <= 1; halves++) {
            int n_heads = 1 + draw_below(&rng, 3), n_rot = 2 * draw_below(&rng, d / 2 + 1);
            float x[MOST], cosine[MOST], sine[MOST];
            guarded expected, found;
            fill(&rng, draw_edge, n_heads * d, x);
            fill(&rng, draw_edge, n_rot / 2, cosine);
            fill(&rng, draw_edge, n_rot / 2, sine);
            memcpy(guard(&expected, n_heads * d), x, n_heads * d * sizeof *x);
            memcpy(guard(&found, n_heads * d), x, n_heads * d * sizeof *x);
            reference->rope(expected.numbers + GUARD, n_heads, d, n_rot, halves, cosine, sine);
            variant->rope(found.numbers + GUARD, n_heads, d, n_rot, halves, cosine, sine);
            assert_same(n_heads * d, expected.numbers + GUARD, found.numbers + GUARD);
            assert_guarded(&found);
        }
}

static void scan_in_double(void **state) {
    enum { N = 7, D = 20 };
    uint64_t rng = 21;
    kern k;
    kern_init(&k, KERN_SCALAR);
    float s[N * D], in[N], read[N], x[D], out[D];
    double exact[N * D];
    fill(&rng, draw_unit, N * D, s);
    for (int i = 0; i < N * D; i++) exact[i] = (double)s[i];
    for (int step = 0; step < 30; step++) {
        float decay = 0.5f + draw_unit(&rng) / 2;
        fill(&rng, draw_unit, N, in);
        fill(&rng, draw_unit, N, read);
        fill(&rng, draw_unit, D, x);
        k.scan(N, D, s, decay, step % 3 ? in : NULL, x, read, out);
        for (int j = 0; j < D; j++) {
            double sum = 0;
            for (int i = 0; i < N; i++) {
                double *e = &exact[i * D + j];
                *e = *e * (double)decay + (step % 3 ? (double)in[i] * (double)x[j] : 0);
                sum += *e * (double)read[i];
            }
            assert_near(sum, out[j], 100 * (double)FLT_EPSILON);
        }
    }
}

static void variant_scan(const kern *reference, const kern *variant) {
    uint64_t rng = 22;
    for (int d = 1; d <= 70; d++) {
        int n = 1 + draw_below(&rng, MOST / 70);
        float in[MOST], read[MOST], x[MOST], decay = draw_edge(&rng);
        guarded expected, found, out[2];
        fill(&rng, draw_edge, n, in);
        fill(&rng, draw_edge, n, read);
        fill(&rng, draw_edge, d, x);
        fill(&rng, draw_edge, n * d, guard(&expected, n * d));
        memcpy(guard(&found, n * d), expected.numbers + GUARD, (size_t)(n * d) * sizeof *x);
        const float *added = d % 4 ? in : NULL;
        reference->scan(n, d, expected.numbers + GUARD, decay, added, x, read, guard(&out[0], d));
        variant->scan(n, d, found.numbers + GUARD, decay, added, x, read, guard(&out[1], d));
        assert_same(n * d, expected.numbers + GUARD, found.numbers + GUARD);
        assert_same(d, out[0].numbers + GUARD, out[1].numbers + GUARD);
        assert_guarded(&found);
        assert_guarded(&out[1]);
    }
}

static void scan_variants(void **state) {
    for_each_isa(variant_scan);
}
static void variant_argmax(const kern *reference, const kern *variant) {
    argmax_by_hand(variant);
}

static void exp_variants(void **state) {
    for_each_isa(variant_exp);
}
static void elementwise_variants(void **state) {
    for_each_isa(variant_elementwise);
}
static void norm_variants(void **state) {
    for_each_isa(variant_norms);
}
static void rope_variants(void **state) {
    for_each_isa(variant_rope);
}
static void argmax_variants(void **state) {
    kern reference;
    kern_init(&reference, KERN_SCALAR);
    argmax_by_hand(&reference);
    for_each_isa(variant_argmax);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_2_ulp),   cmocka_unit_test(exp_at_its_edges),
        cmocka_unit_test(rms_norm_in_double),    cmocka_unit_test(layer_norm_in_double),
        cmocka_unit_test(activations_in_double), cmocka_unit_test(widening_is_exact),
        cmocka_unit_test(silu_in_double),        cmocka_unit_test(rope_in_double),
        cmocka_unit_test(scan_in_double),        cmocka_unit_test(scan_variants),
        cmocka_unit_test(exp_variants),          cmocka_unit_test(elementwise_variants),
        cmocka_unit_test(norm_variants),         cmocka_unit_test(rope_variants),
        cmocka_unit_test(argmax_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
