/* Exponentials of a row of logits, in IEEE arithmetic only: the same bits everywhere.
 *
 *   e^x = 2^k · 2^(j/128) · e^r    with x = (128 k + j)·ln 2/128 + r, |r| <= ln 2/256
 *
 * after Tang (Table-driven implementation of the exponential function, ACM TOMS 15(2), 1989). The
 * table is made at start from a Taylor series, e^r is a polynomial of degree 4: off by < 1e-15. */
#include <math.h>
#include <string.h>

#include "engine_internal.h"

static const double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;

void softmax_init(softmax_table *t) {
    for (int j = 0; j < SOFTMAX_STEPS; j++) {
        double x = (double)j * LN2_HIGH / SOFTMAX_STEPS + (double)j * LN2_LOW / SOFTMAX_STEPS;
        double sum = 1;
        for (int i = 20; i > 0; i--) sum = sum * x / i + 1;
        t->power[j] = sum;
    }
}

/* x <= 0 and above -700. */
static inline double expo(const softmax_table *t, double x) {
    static const double STEPS_PER_LN2 = SOFTMAX_STEPS * 1.4426950408889634;
    static const double ROUND = 0x1.8p52; /* adding it leaves the nearest integer in the low bits */
    double shifted = x * STEPS_PER_LN2 + ROUND, k = shifted - ROUND;
    double r = x - k * (LN2_HIGH / SOFTMAX_STEPS) - k * (LN2_LOW / SOFTMAX_STEPS);
    double poly = 1 + r * (1 + r * (0.5 + r * (1.0 / 6 + r * (1.0 / 24))));
    int64_t n = (int64_t)k;
    uint64_t bits;
    memcpy(&bits, &t->power[n & (SOFTMAX_STEPS - 1)], sizeof bits);
    bits += (uint64_t)(n >> SOFTMAX_STEPS_LOG2) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return poly * scale;
}

double softmax_exp(const softmax_table *t, double x) {
    return x > -700 ? expo(t, x) : 0;
}

double softmax_sum(const softmax_table *t, const float *row, size_t n, float greatest) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += softmax_exp(t, (double)row[i] - greatest);
    return sum;
}

void softmax_weights(const softmax_table *t, const float *row, size_t n, float greatest,
                     float temperature, uint64_t *weight) {
    const double unit = (double)(1ull << SOFTMAX_UNIT_LOG2), inverse = 1.0 / (double)temperature;
    for (size_t i = 0; i < n; i++) {
        double x = ((double)row[i] - greatest) * inverse;
        double exact = x > -30 ? expo(t, x) * unit : 0; /* e^-30 is less than a unit */
        weight[i] = (uint64_t)(int64_t)(exact + 0.5);
    }
}

float softmax_greatest(const float *row, size_t n) {
    enum { LANES = 16 };
    float most[LANES];
    int bad[LANES] = {0};
    for (int k = 0; k < LANES; k++) most[k] = -INFINITY;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            most[k] = row[i + (size_t)k] > most[k] ? row[i + (size_t)k] : most[k];
            bad[k] |= !(row[i + (size_t)k] < INFINITY);
        }
    for (; i < n; i++) {
        most[0] = row[i] > most[0] ? row[i] : most[0];
        bad[0] |= !(row[i] < INFINITY);
    }
    for (int k = 1; k < LANES; k++) {
        most[0] = most[k] > most[0] ? most[k] : most[0];
        bad[0] |= bad[k];
    }
    return bad[0] ? NAN : most[0];
}
