/* Attention over pages of type Q8_0, the definition: integers wherever two vectors meet.
 *
 * A K/V block, 64 = KERN_PAGE, quads of bytes as products take them; sizes are rounded up, keys to
 * 32 numbers and values to 16, and what is added has no meaning:
 *
 *     K    [dk/4][64][4]    number j of token t + 128 at (j/4·64 + t)·4 + j mod 4
 *     V    [16][dv][4]      number j of token t       at (t/4·dv + j)·4 + t mod 4
 *     dK   [dk/32][64]      binary16: token t's key in blocks of 32 is dK[b][t] · (K - 128)
 *     dV   [64]             binary16: its value is dV[t] · V
 *
 * A block of a key, a value and a query are each quantised as the activations of products are
 * (gemm_ref.c): q = rint(x · (127 / amax)), d = amax / 127; scales of pages are then rounded to
 * binary16. For one query row dq · q and the visible tokens t of a super-chunk:
 *
 *     z[t] = fma(dK[b][t], (float)isum, ·)   b ascending from +0; isum = Σ q[j]·(K[j][t] - 128)
 *     u    = dq; with a softcap c: z[t] = kern_tanh(z[t]·dq / c) · c and u = 1
 *     z'   = max z[t] + 0                    from -inf; a NaN never wins
 *     e[t] = 2^max((z[t] - z')·(u·log2 e), -100), see weight
 *     m    = z'·u,  l = Σ e[t]               as in attend_ref.c
 *
 * and for each page that holds a visible token, ascending, W = max e[t]·dV[t]:
 *
 *     p[t] = rint(e[t]·dV[t] · (255 / W)), 0 for tokens that are not visible
 *     o[j] = fma(W / 255, (float)Σ p[t]·V[t][j], o[j])
 *
 * where W < 2^-64 counts as 0, and adds nothing. o is NaN when l is, or when W is not finite. */
#include "attend_q8.h"
#include "elementary.h"
#include "vector.h"

#include <math.h>

/* ---- storage -------------------------------------------------------------------------------- */

void q8_put_ref(int dk, int dv, void *block, int slot, const float *k, const float *v) {
    q8_block b = q8_block_at(block, dk, dv);
    float padded[Q8_MOST_KEY] = {0};
    int8_t q[Q8_MOST_KEY];
    memcpy(padded, k, (size_t)dk * sizeof *k);
    for (int j = 0; j < dk; j += KERN_BLOCK)
        b.k_d[j / KERN_BLOCK * KERN_PAGE + slot] =
            f16_of_f32(kern_quantise(KERN_BLOCK, padded + j, q + j));
    for (int j = 0; j < q8_key_size(dk); j++)
        b.k[(j / 4 * KERN_PAGE + slot) * 4 + j % 4] = (uint8_t)(q[j] + 128);
    b.v_d[slot] = f16_of_f32(kern_quantise(dv, v, q));
    int8_t *to = b.v + slot / 4 * q8_value_size(dv) * 4 + slot % 4;
    for (int j = 0; j < dv; j++) to[4 * j] = q[j];
}

void q8_copy(int dk, int dv, void *to, const void *from, int n) {
    q8_block a = q8_block_at(to, dk, dv), b = q8_block_at(from, dk, dv);
    const int stride = KERN_PAGE * 4, quad = q8_value_size(dv) * 4, whole = n / 4 * quad;
    for (int i = 0; i < q8_key_size(dk) / 4; i++)
        memcpy(a.k + i * stride, b.k + i * stride, (size_t)n * 4);
    memcpy(a.v, b.v, (size_t)whole);
    for (int j = 0; j < quad; j += 4) memcpy(a.v + whole + j, b.v + whole + j, (size_t)(n % 4));
    for (int i = 0; i < q8_key_size(dk) / KERN_BLOCK; i++)
        memcpy(a.k_d + i * KERN_PAGE, b.k_d + i * KERN_PAGE, (size_t)n * sizeof *a.k_d);
    memcpy(a.v_d, b.v_d, (size_t)n * sizeof *a.v_d);
}

/* ---- attention ------------------------------------------------------------------------------ */

typedef struct row {
    const kern_attend *a;
    int begin, end;
    int8_t q[Q8_MOST_KEY];
    float dq;
} row;

static float score(const row *r, int t) {
    q8_block b = q8_block_at(r->a->page[t / KERN_PAGE], r->a->dk, r->a->dv);
    float z = 0;
    for (int j0 = 0; j0 < r->a->dk; j0 += KERN_BLOCK) {
        int32_t sum = 0;
        for (int j = j0; j < j0 + KERN_BLOCK; j++)
            sum += r->q[j] * (b.k[(j / 4 * KERN_PAGE + t % KERN_PAGE) * 4 + j % 4] - 128);
        float d = f32_of_f16(b.k_d[j0 / KERN_BLOCK * KERN_PAGE + t % KERN_PAGE]);
        z = fmaf(d, (float)sum, z);
    }
    return z;
}

/* 2^x, x <= 0, as (1 + r(C1 + r(C2 + r·C3))) · 2^n with n = x to nearest even and r = x - n. */
static float weight(float x) {
    if (x < Q8_LEAST_POWER) x = Q8_LEAST_POWER;
    float t = x + EXP_ROUND, r = x - (t - EXP_ROUND);
    float p = fmaf(fmaf(fmaf(Q8_EXP_C3, r, Q8_EXP_C2), r, Q8_EXP_C1), r, 1);
    return f32_of_bits(bits_of_f32(p) + (bits_of_f32(t) << 23));
}

/* Turns the scores z of the visible tokens into weights. */
static void weigh(const row *r, float *z, float *partial) {
    float most = -INFINITY, unit = r->dq, lane[16] = {0}, c = r->a->softcap;
    for (int t = r->begin; t < r->end; t++) {
        if (c != 0) z[t] = kern_tanh(z[t] * r->dq / c) * c;
        most = z[t] > most ? z[t] : most;
    }
    most += 0.0f;
    if (c != 0) unit = 1;
    for (int t = r->begin; t < r->end; t++) {
        z[t] = weight((z[t] - most) * (unit * EXP_LOG2E));
        lane[t % 16] += z[t];
    }
    partial[0] = r->begin < r->end ? most * unit : -INFINITY;
    partial[1] = sum_of_lanes(lane);
}

/* One page's part of o; [begin, end) are its visible tokens, e their weights. */
static void add_values(const row *r, const q8_block *b, int begin, int end, const float *e,
                       float *o) {
    float w[KERN_PAGE];
    int32_t p[KERN_PAGE];
    uint32_t most = 0; /* of bits: a NaN is above infinity */
    for (int t = begin; t < end; t++) {
        w[t] = e[t] * f32_of_f16(b->v_d[t]);
        most = bits_of_f32(w[t]) > most ? bits_of_f32(w[t]) : most;
    }
    float greatest = f32_of_bits(most);
    if (greatest < Q8_LEAST_WEIGHT) return;
    bool finite = most < 0x7f800000;
    float scale = finite ? 255.0f / greatest : 0, unit = finite ? greatest / 255.0f : NAN;
    for (int t = begin; t < end; t++) p[t] = finite ? (int32_t)lrintf(w[t] * scale) : 0;
    for (int j = 0; j < r->a->dv; j++) {
        int32_t sum = 0;
        for (int t = begin; t < end; t++)
            sum += p[t] * b->v[(t / 4 * q8_value_size(r->a->dv) + j) * 4 + t % 4];
        o[j] = fmaf(unit, (float)sum, o[j]);
    }
}

static void attend_row(const row *r, float *partial) {
    float e[KERN_CHUNK], *o = partial + 2;
    const int dk = r->a->dk, dv = r->a->dv;
    for (int t = r->begin; t < r->end; t++) e[t] = score(r, t);
    weigh(r, e, partial);
    memset(o, 0, (size_t)dv * sizeof *o);
    for (int t = r->begin; t < r->end;) {
        int base = t / KERN_PAGE * KERN_PAGE,
            end = base + KERN_PAGE < r->end ? base + KERN_PAGE : r->end;
        q8_block b = q8_block_at(r->a->page[t / KERN_PAGE], dk, dv);
        add_values(r, &b, t - base, end - base, e + base, o);
        t = end;
    }
    if (isnan(partial[1]))
        for (int j = 0; j < dv; j++) o[j] = NAN;
}

void q8_attend_ref(const kern_attend *a) {
    for (int i = 0; i < a->n_rows; i++) {
        row r = {.a = a, .begin = a->begin[i], .end = a->end[i]};
        float padded[Q8_MOST_KEY] = {0};
        memcpy(padded, a->q[i], (size_t)a->dk * sizeof *padded);
        r.dq = kern_quantise(q8_key_size(a->dk), padded, r.q);
        attend_row(&r, a->partial[i]);
    }
}
