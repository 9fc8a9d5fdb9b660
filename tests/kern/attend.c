/* Attention over pages: the reference against softmax in double precision, variants against the
 * reference bit for bit, rows alone against rows in company. */
#include "bits.h"

enum { MOST_D = KERN_MAX_HEAD, MOST_ROWS = 220, GUARD = 4 };

static const float canary = 1.5e-31f;
static const enum kern_type formats[] = {KERN_F32, KERN_F16, KERN_BF16, KERN_Q8_0};

/* Everything of one call, on the heap: its ends are the sanitizer's to watch. */
typedef struct scene {
    kern_attend a;
    void *page[KERN_CHUNK_PAGES];
    const float *q[MOST_ROWS];
    int begin[MOST_ROWS], end[MOST_ROWS];
    float *partial[MOST_ROWS];
    float *queries, *partials; /* rows of d; rows of d+2 and GUARD canaries before and behind */
} scene;

static void *need(size_t size) {
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static void scene_init(scene *s, enum kern_type kv, int dk, int dv, int n_pages, int n_rows) {
    *s = (scene){.a = {.kv = kv, .dk = dk, .dv = dv, .n_pages = n_pages, .n_rows = n_rows}};
    s->queries = need(sizeof(float) * (size_t)(n_rows * dk));
    s->partials = need(sizeof(float) * (size_t)(n_rows * (dv + 2 + 2 * GUARD)));
    for (int i = 0; i < n_pages; i++) s->page[i] = need(kern_kv_size(kv, dk, dv));
    for (int i = 0; i < n_rows; i++) {
        s->q[i] = s->queries + (size_t)i * dk;
        s->partial[i] = s->partials + (size_t)i * (dv + 2 + 2 * GUARD) + GUARD;
    }
    s->a.page = (const void *const *)s->page;
    s->a.q = s->q;
    s->a.begin = s->begin;
    s->a.end = s->end;
    s->a.partial = s->partial;
    s->a.scratch = need(kern_attend_scratch(dk, dv));
}

static void scene_fini(scene *s) {
    for (int i = 0; i < s->a.n_pages; i++) free(s->page[i]);
    free(s->queries);
    free(s->partials);
    free(s->a.scratch);
}

/* Fills queries, and the first n_tokens of the pages; the tokens behind them are NaN. */
static void scene_fill(scene *s, uint64_t *rng, float (*source)(uint64_t *), int n_tokens) {
    kern k;
    kern_init(&k, KERN_SCALAR);
    int dk = s->a.dk, dv = s->a.dv;
    float key[MOST_D], value[MOST_D];
    for (int i = 0; i < s->a.n_rows * dk; i++) s->queries[i] = source(rng);
    for (int t = 0; t < s->a.n_pages * KERN_PAGE; t++) {
        for (int j = 0; j < dk; j++) key[j] = t < n_tokens ? source(rng) : NAN;
        for (int j = 0; j < dv; j++) value[j] = t < n_tokens ? source(rng) : NAN;
        k.kv_put(s->a.kv, dk, dv, s->page[t / KERN_PAGE], t % KERN_PAGE, key, value);
    }
}

static float stored(const scene *s, int t, bool value, int j) {
    size_t slot = (size_t)(t % KERN_PAGE), dk = (size_t)s->a.dk, dv = (size_t)s->a.dv;
    size_t at = value ? KERN_PAGE * dk + slot * dv + (size_t)j : (size_t)j * KERN_PAGE + slot;
    if (s->a.kv == KERN_F32) return ((const float *)s->page[t / KERN_PAGE])[at];
    uint16_t h = ((const uint16_t *)s->page[t / KERN_PAGE])[at]; /* finite, by hand */
    double x = h >> 10 & 31 ? ldexp(1024 + (h & 1023), (h >> 10 & 31) - 25) : ldexp(h & 1023, -24);
    return (float)(h & 0x8000 ? -x : x);
}

static void attend(const kern *k, scene *s) {
    size_t n = (size_t)s->a.n_rows * (size_t)(s->a.dv + 2 + 2 * GUARD);
    for (size_t i = 0; i < n; i++) s->partials[i] = canary;
    memset(s->a.scratch, 0xff, kern_attend_scratch(s->a.dk, s->a.dv)); /* NaNs */
    k->attend(&s->a);
}

/* ---- the reference against double precision -------------------------------------------------- */

/* Softmax over the tokens [begin, end), in double. */
static void exact_row(const scene *s, int row, double *m, double *l, double *o) {
    const float *q = s->q[row];
    int begin = s->begin[row], end = s->end[row];
    double c = (double)s->a.softcap;
    double score[KERN_CHUNK];
    *m = -INFINITY;
    for (int t = begin; t < end; t++) {
        score[t] = 0;
        for (int j = 0; j < s->a.dk; j++) score[t] += (double)q[j] * stored(s, t, false, j);
        if (c != 0) score[t] = c * tanh(score[t] / c);
        *m = fmax(*m, score[t]);
    }
    *l = 0;
    for (int j = 0; j < s->a.dv; j++) o[j] = 0;
    for (int t = begin; t < end; t++) {
        double e = exp(score[t] - *m);
        *l += e;
        for (int j = 0; j < s->a.dv; j++) o[j] += e * stored(s, t, true, j);
    }
}

static void attend_in_double(void **state) {
    static const int sizes[] = {1, 2, 17, 64, 80, 512};
    uint64_t rng = 1;
    kern k;
    kern_init(&k, KERN_SCALAR);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int d = sizes[i], dv = i % 3 ? d : 1 + d / 2, n_rows = 8;
        scene s;
        scene_init(&s, i % 2 ? KERN_F16 : KERN_F32, d, dv, KERN_CHUNK_PAGES, n_rows);
        scene_fill(&s, &rng, draw_unit, KERN_CHUNK - 5);
        s.a.softcap = i % 2 ? 1.5f : 0;
        for (int row = 0; row < n_rows; row++) {
            s.end[row] = row == 0 ? 0 : row == 1 ? KERN_CHUNK - 5 : draw_below(&rng, 507) + 1;
            s.begin[row] = row < 4 ? 0 : draw_below(&rng, s.end[row]);
        }
        attend(&k, &s);
        for (int row = 0; row < n_rows; row++) {
            double m, l, o[MOST_D];
            int n = s.end[row] - s.begin[row];
            exact_row(&s, row, &m, &l, o);
            if (n == 0) {
                assert_true(s.partial[row][0] == -INFINITY);
                for (int j = 0; j < dv + 1; j++) assert_true(s.partial[row][1 + j] == 0);
                continue;
            }
            /* Scores are sums of d terms at most 1; e and the sums inherit their error. */
            double bound = (d + 8) * (double)FLT_EPSILON;
            assert_near(m, s.partial[row][0], bound);
            assert_near(l, s.partial[row][1], 2 * (bound + n * (double)FLT_EPSILON / 8) * l);
            for (int j = 0; j < dv; j++)
                assert_near(o[j], s.partial[row][2 + j], 2 * (bound + n * (double)FLT_EPSILON) * l);
        }
        scene_fini(&s);
    }
}

/* Folding the partials of parts is softmax over the whole. */
static void fold_in_double(void **state) {
    enum { D = 33, PARTS = 7, STRIDE = D + 2 + 3 };
    uint64_t rng = 2;
    kern k;
    kern_init(&k, KERN_SCALAR);
    float partial[PARTS * STRIDE], out[D];
    double m = -INFINITY, l = 0, o[D] = {0};
    for (int i = 0; i < PARTS; i++) {
        float *p = partial + i * STRIDE;
        for (int j = 0; j < D + 2; j++) p[j] = j == 0 ? 30 * draw_unit(&rng) : draw_unit(&rng);
        p[1] = fabsf(p[1]) + 0.5f;
        if (i == 2)
            p[0] = -INFINITY, p[1] = 0; /* saw nothing */
        else
            m = fmax(m, p[0]);
    }
    for (int i = 0; i < PARTS; i++) {
        const float *p = partial + i * STRIDE;
        if (p[1] == 0) continue;
        l += p[1] * exp(p[0] - m);
        for (int j = 0; j < D; j++) o[j] += p[2 + j] * exp(p[0] - m);
    }
    k.attend_fold(D, PARTS, partial, STRIDE, -INFINITY, out);
    for (int j = 0; j < D; j++) assert_near(o[j] / l, out[j], 16 * FLT_EPSILON);

    k.attend_fold(D, 1, partial, STRIDE, -INFINITY,
                  out); /* a single one is divided and nothing else */
    for (int j = 0; j < D; j++) assert_true(out[j] == partial[2 + j] / partial[1]);

    k.attend_fold(D, 1, partial + 2 * STRIDE, STRIDE, -INFINITY, out);
    for (int j = 0; j < D; j++) assert_int_equal(bits_of(out[j]), 0);

    for (float sink = -20; sink < 60; sink += 10) { /* a token that has a score and no value */
        k.attend_fold(D, PARTS, partial, STRIDE, sink, out);
        double all = l * exp(m - fmax(m, sink)) + exp(sink - fmax(m, sink));
        for (int j = 0; j < D; j++)
            assert_near(o[j] * exp(m - fmax(m, sink)) / all, out[j], 16 * FLT_EPSILON);
    }
}

/* ---- variants against the reference --------------------------------------------------------- */

static void assert_same_scene(const scene *expected, const scene *found) {
    assert_same(found->a.n_rows * (found->a.dv + 2 + 2 * GUARD), expected->partials,
                found->partials);
}

/* Runs both on one scene whose begins and ends are set. */
static void compare(const kern *reference, const kern *variant, scene *s) {
    scene twin = *s;
    size_t size = sizeof(float) * (size_t)s->a.n_rows * (size_t)(s->a.dv + 2 + 2 * GUARD);
    attend(reference, s);
    twin.partials = need(size);
    memcpy(twin.partials, s->partials, size);
    attend(variant, s);
    assert_same_scene(&twin, s);
    free(twin.partials);
}

/* Rows that see all from the first token, a window of equal size, or anything. */
static void draw_begins(scene *s, uint64_t *rng) {
    int pattern = draw_below(rng, 3), window = 1 + draw_below(rng, 100);
    s->a.softcap = draw_below(rng, 3) ? 0 : 2;
    for (int row = 0; row < s->a.n_rows; row++) {
        int end = s->end[row], begin = end > window ? end - window : 0;
        s->begin[row] = pattern == 0 ? 0 : pattern == 1 ? begin : draw_below(rng, end + 2);
    }
}

static void variant_shapes(const kern *reference, const kern *variant) {
    static const int heads[] = {1,  2,  15, 16, 17, 31,  32,  33, 48,
                                63, 64, 65, 80, 96, 100, 128, 257};
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 23, 24, 25, 31};
    uint64_t rng = 3;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
            scene s;
            int n_pages = 1 + draw_below(&rng, 3);
            int n_tokens = 1 + draw_below(&rng, n_pages * KERN_PAGE);
            int dv = i % 2 ? heads[i] : heads[sizeof heads / sizeof *heads - 1 - i];
            scene_init(&s, formats[(i + j) % 4], heads[i], dv, n_pages, rows[j]);
            scene_fill(&s, &rng, draw_unit, n_tokens);
            int pattern = draw_below(&rng, 4); /* all, causal, anything, anything or nothing */
            for (int row = 0; row < rows[j]; row++) {
                int causal = n_tokens - rows[j] + row + 1;
                s.end[row] = pattern == 0   ? n_tokens
                             : pattern == 1 ? (causal > 0 ? causal : 0)
                             : pattern == 2 ? 1 + draw_below(&rng, n_tokens)
                                            : draw_below(&rng, 2) * n_tokens;
            }
            draw_begins(&s, &rng);
            compare(reference, variant, &s);
            scene_fini(&s);
        }
}

/* Each number of visible tokens of a whole super-chunk, in one call and in falling order. */
static void variant_every_visible(const kern *reference, const kern *variant) {
    uint64_t rng = 4;
    for (int kv = 0; kv < 4; kv++)
        for (int n = KERN_CHUNK; n >= 0; n -= MOST_ROWS) {
            scene s;
            scene_init(&s, formats[kv], 5, 5, KERN_CHUNK_PAGES, MOST_ROWS);
            scene_fill(&s, &rng, draw_unit, n);
            for (int row = 0; row < MOST_ROWS; row++) {
                s.end[row] = n > row ? n - row : 0;
                s.begin[row] = n % 2 ? s.end[row] / 3 : 0;
            }
            compare(reference, variant, &s);
            scene_fini(&s);
        }
}

/* A whole prefill call of a common shape: 3 heads of a group × 64 tokens, on the diagonal. */
static void variant_prefill(const kern *reference, const kern *variant) {
    uint64_t rng = 5;
    for (int kv = 1; kv < 4; kv++) {
        scene s;
        scene_init(&s, formats[kv], 64, 64, KERN_CHUNK_PAGES, 3 * KERN_PAGE);
        scene_fill(&s, &rng, draw_unit, KERN_CHUNK);
        for (int row = 0; row < 3 * KERN_PAGE; row++)
            s.end[row] = KERN_CHUNK - KERN_PAGE + 1 + row % KERN_PAGE;
        compare(reference, variant, &s);
        for (int row = 0; row < 3 * KERN_PAGE; row++) s.begin[row] = s.end[row] - 100;
        compare(reference, variant, &s);
        scene_fini(&s);
    }
}

static void variant_edges(const kern *reference, const kern *variant) {
    uint64_t rng = 6;
    for (int i = 0; i < 200; i++) {
        scene s;
        int n_rows = 1 + draw_below(&rng, 16), n_tokens = 1 + draw_below(&rng, 2 * KERN_PAGE);
        scene_init(&s, formats[i / 4 % 4], 1 + draw_below(&rng, 40), 1 + draw_below(&rng, 40), 2,
                   n_rows);
        scene_fill(&s, &rng, i % 4 < 2 ? draw_edge : draw_unit, n_tokens);
        if (i % 4 >= 2) /* scores far apart: most weights underflow */
            for (int j = 0; j < n_rows * s.a.dk; j++) s.queries[j] *= 300;
        for (int row = 0; row < n_rows; row++) s.end[row] = draw_below(&rng, n_tokens + 1);
        draw_begins(&s, &rng);
        compare(reference, variant, &s);
        scene_fini(&s);
    }
}

/* Token 0 scores 0 and has value 0, token 1 scores x <= 0 and has value 1: o is e^x itself. */
static void variant_weight(const kern *reference, const kern *variant) {
    scene s;
    scene_init(&s, KERN_F32, 1, 1, 1, 1);
    s.begin[0] = 0, s.end[0] = 2;
    s.queries[0] = 1;
    for (uint32_t i = 0; i < 40000; i++) { /* around the threshold of underflow, then sparsely */
        uint32_t bits = i < 20000 ? 0xc2aeac4f - 10000 + i : 0x80000000 + (i - 20000) * 57331;
        variant->kv_put(KERN_F32, 1, 1, s.page[0], 0, (float[]){0}, (float[]){0});
        variant->kv_put(KERN_F32, 1, 1, s.page[0], 1, (float[]){float_of(bits)}, (float[]){1});
        variant->attend(&s.a);
        assert_int_equal(bits_of(s.partial[0][2]), bits_of(kern_exp(float_of(bits))));
    }
    s.queries[0] = 1e-30f; /* the only score underflows to -0, m is +0 */
    variant->kv_put(KERN_F32, 1, 1, s.page[0], 0, (float[]){-1e-30f}, (float[]){1});
    s.end[0] = 1;
    reference->attend(&s.a);
    assert_int_equal(bits_of(s.partial[0][0]), 0);
    variant->attend(&s.a);
    assert_int_equal(bits_of(s.partial[0][0]), 0);
    scene_fini(&s);
}

static void variant_fold(const kern *reference, const kern *variant) {
    uint64_t rng = 7;
    float partial[9 * 140], expected[128 + GUARD], found[128 + GUARD], sink;
    for (int i = 0; i < 2000; i++) {
        int d = 1 + draw_below(&rng, 128), n = 1 + draw_below(&rng, 9);
        int stride = d + 2 + draw_below(&rng, 10);
        for (int j = 0; j < n * stride; j++) partial[j] = i % 2 ? draw_edge(&rng) : draw_unit(&rng);
        for (int j = 0; j < n; j++)
            if (draw_below(&rng, 4) == 0) {
                memset(partial + j * stride, 0, (size_t)(d + 2) * sizeof *partial);
                partial[j * stride] = -INFINITY;
            }
        for (int j = 0; j < d + GUARD; j++) expected[j] = found[j] = canary;
        sink = i % 3 ? -INFINITY : i % 2 ? draw_edge(&rng) : draw_unit(&rng);
        reference->attend_fold(d, n, partial, (size_t)stride, sink, expected);
        variant->attend_fold(d, n, partial, (size_t)stride, sink, found);
        assert_same(d + GUARD, expected, found);
    }
}

/* kv_put and kv_copy write their tokens and nothing else, the same bytes everywhere. */
static void variant_kv(const kern *reference, const kern *variant) {
    uint64_t rng = 8;
    for (int i = 0; i < 300; i++) {
        enum kern_type kv = i % 2 ? KERN_F16 : KERN_F32;
        int d = 1 + draw_below(&rng, i % 10 ? 100 : MOST_D);
        int dv = i % 3 ? d : 1 + draw_below(&rng, 100);
        size_t size = kern_kv_size(kv, d, dv), number_sz = kv == KERN_F16 ? 2 : 4;
        unsigned char *expected = need(size), *found = need(size), *copy = need(size);
        assert_int_equal(size % 64, 0);
        memset(expected, 0xa5, size);
        memset(found, 0xa5, size);
        for (int put = 0; put < 5; put++) {
            float k[MOST_D], v[MOST_D];
            int slot = draw_below(&rng, KERN_PAGE);
            for (int j = 0; j < d; j++) k[j] = draw_edge(&rng);
            for (int j = 0; j < dv; j++) v[j] = draw_edge(&rng);
            reference->kv_put(kv, d, dv, expected, slot, k, v);
            variant->kv_put(kv, d, dv, found, slot, k, v);
            assert_memory_equal(expected, found, size);
        }
        int n = draw_below(&rng, KERN_PAGE + 1);
        memset(copy, 0x5a, size);
        variant->kv_copy(kv, d, dv, copy, found, n);
        for (size_t at = 0; at < size; at++) {
            size_t number = at / number_sz, values = (size_t)d * KERN_PAGE;
            size_t token = number < values ? number % KERN_PAGE : (number - values) / (size_t)dv;
            assert_int_equal(copy[at], token < (size_t)n ? found[at] : 0x5a);
        }
        free(expected);
        free(found);
        free(copy);
    }
}

/* A row's partial does not depend on the rows that go with it, nor on their order. */
static void compare_company(const kern *variant, enum kern_type kv) {
    uint64_t rng = 9;
    scene s;
    scene_init(&s, kv, 72, 40, 4, MOST_ROWS);
    scene_fill(&s, &rng, draw_unit, 4 * KERN_PAGE - 3);
    for (int row = 0; row < MOST_ROWS; row++) s.end[row] = draw_below(&rng, 4 * KERN_PAGE - 2);
    draw_begins(&s, &rng);
    attend(variant, &s);
    for (int row = 0; row < MOST_ROWS; row += 3) {
        float alone[MOST_D + 2], *partial = alone;
        kern_attend one = s.a;
        one.n_rows = 1;
        one.q = &s.q[row];
        one.begin = &s.begin[row];
        one.end = &s.end[row];
        one.partial = &partial;
        variant->attend(&one);
        assert_same(s.a.dv + 2, alone, s.partial[row]);
    }
    scene_fini(&s);
}

static void variant_company(const kern *reference, const kern *variant) {
    compare_company(variant, KERN_F16);
    compare_company(variant, KERN_Q8_0);
}

static void shapes(void **state) {
    for_each_isa(variant_shapes);
}
static void every_visible(void **state) {
    for_each_isa(variant_every_visible);
}
static void prefill(void **state) {
    for_each_isa(variant_prefill);
}
static void edges(void **state) {
    for_each_isa(variant_edges);
}
static void weight(void **state) {
    for_each_isa(variant_weight);
}
static void fold(void **state) {
    for_each_isa(variant_fold);
}
static void kv(void **state) {
    for_each_isa(variant_kv);
}
static void company(void **state) {
    for_each_isa(variant_company);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attend_in_double),
        cmocka_unit_test(fold_in_double),
        cmocka_unit_test(shapes),
        cmocka_unit_test(every_visible),
        cmocka_unit_test(prefill),
        cmocka_unit_test(edges),
        cmocka_unit_test(weight),
        cmocka_unit_test(fold),
        cmocka_unit_test(kv),
        cmocka_unit_test(company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
