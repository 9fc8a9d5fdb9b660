/* Rotary position embedding (Su et al. 2021, arXiv 2104.09864): the angle of pair i at position p
 * is p · base^(-2i/n_rot) / divisor_i, taken from the absolute position alone. sin and cos are our
 * own, in double with explicit fma, so that no libm version enters. */
#include "model_internal.h"

#include <math.h>

double *rope_frequencies(const hparams *h, const float *divisors) {
    int n = h->n_rot / 2;
    double *freq = mem_alloc((size_t)n * sizeof *freq);
    if (!freq) return NULL;
    for (int i = 0; i < n; i++)
        freq[i] =
            h->rope_scale * pow(h->rope_base, -2.0 * i / h->n_rot) / (divisors ? divisors[i] : 1);
    return freq;
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

void rope_row(int n, const double *freq, size_t pos, float *cos, float *sin) {
    for (int i = 0; i < n; i++) sin_cos((double)pos * freq[i], &sin[i], &cos[i]);
}
