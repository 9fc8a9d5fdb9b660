/* Rotary position embedding (Su et al. 2021, arXiv 2104.09864): the angle of pair i at position p
 * is p · base^(-2i/n_rot) / divisor_i, taken from the absolute position alone. sin and cos are our
 * own, in double with explicit fma, so that no libm version enters. */
#include "model_internal.h"

#include <math.h>

/* The pair whose angle makes `turns` turns over the context before scaling (YaRN, section 3.2). */
static double pair_of_turns(const rope_params *r, double turns) {
    return r->n_rot * log(r->n_ctx_orig / (turns * 2 * M_PI)) / (2 * log(r->base));
}

/* How far pair i keeps its frequency, 1 wholly, rather than have it divided by the factor. */
static double kept(const rope_params *r, int i) {
    double low = fmax(0, floor(pair_of_turns(r, r->beta_fast)));
    double high = fmin(r->n_rot - 1, ceil(pair_of_turns(r, r->beta_slow)));
    return 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
}

static int init_table(const rope_params *r, const float *divisors, rope_table *t) {
    *t = (rope_table){.n = r->n_rot, .magnitude = r->magnitude};
    if (r->n_rot == 0) return 0;
    t->freq = mem_alloc((size_t)r->n_rot / 2 * sizeof *t->freq);
    if (!t->freq) return ICP_ENOMEM;
    for (int i = 0; i < r->n_rot / 2; i++) {
        double freq = pow(r->base, -2.0 * i / r->n_rot) / (divisors ? (double)divisors[i] : 1);
        double keep = r->scaling == SCALING_LINEAR ? 0
                      : r->scaling == SCALING_YARN ? kept(r, i)
                                                   : 1;
        t->freq[i] = freq * keep + freq / r->factor * (1 - keep);
    }
    return 0;
}

int rope_init(const hparams *h, const weights *w, size_t n_ctx, rope_table out[2]) {
    const float *divisors = w->rope_freqs;
    if (h->rope[0].scaling == SCALING_LONG)
        divisors = n_ctx > (size_t)h->rope[0].n_ctx_orig ? w->rope_long : w->rope_short;
    TRY(init_table(&h->rope[0], divisors, &out[0]));
    return init_table(&h->rope[1], NULL, &out[1]);
}

void rope_fini(rope_table t[2]) {
    mem_free(t[0].freq);
    mem_free(t[1].freq);
}

/* sin and cos of x, |x| < 2^30, to well under a float's precision: Cody–Waite reduction by π/2 in
 * three parts, then Taylor polynomials on |r| <= π/4. */
static void sin_cos(double x, float *sin_out, float *cos_out) {
    static const double two_over_pi = 0.63661977236758134308;
    double k = rint(x * two_over_pi);
    double r = fma(k, -1.57079632679489655800e+00, x);
    r = fma(k, -6.12323399573676603587e-17, r);
    r = fma(k, 1.49738490485916983294e-33, r);
    double z = r * r;
    double s = fma(z,
                   fma(z,
                       fma(z,
                           fma(z,
                               fma(z, fma(z, 1.6059043836821613e-10, -2.5052108385441718e-08),
                                   2.7557319223985893e-06),
                               -1.9841269841269841e-04),
                           8.3333333333333333e-03),
                       -1.6666666666666666e-01),
                   1.0) *
               r;
    double c = fma(z,
                   fma(z,
                       fma(z,
                           fma(z,
                               fma(z, fma(z, 2.0876756987868099e-09, -2.7557319223985888e-07),
                                   2.4801587301587302e-05),
                               -1.3888888888888889e-03),
                           4.1666666666666667e-02),
                       -0.5),
                   1.0);
    switch ((long)k & 3) {
    case 0:
        *sin_out = (float)s, *cos_out = (float)c;
        break;
    case 1:
        *sin_out = (float)c, *cos_out = (float)-s;
        break;
    case 2:
        *sin_out = (float)-s, *cos_out = (float)-c;
        break;
    default:
        *sin_out = (float)-c, *cos_out = (float)s;
        break;
    }
}

void rope_row(const rope_table *t, size_t pos, float *cos, float *sin) {
    float magnitude = (float)t->magnitude;
    for (int i = 0; i < t->n / 2; i++) {
        sin_cos((double)pos * t->freq[i], &sin[i], &cos[i]);
        sin[i] *= magnitude;
        cos[i] *= magnitude;
    }
}
