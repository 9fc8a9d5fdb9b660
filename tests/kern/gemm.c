/* Matrix products: unpacking against ggml's dequantisation, the reference against double precision,
 * variants against the reference bit for bit. */
#include "bits.h"

#include <stdio.h>

/* Blocks as GGUF defines them: numbers, bytes, where binary16 scales lie (-1: nowhere). */
static const struct format {
    enum kern_type type;
    int block, size, halves[2];
} formats[] = {
    {KERN_F32, 1, 4, {-1, -1}},       {KERN_F16, 1, 2, {0, -1}},
    {KERN_BF16, 1, 2, {-1, -1}},      {KERN_Q8_0, 32, 34, {0, -1}},
    {KERN_Q4_0, 32, 18, {0, -1}},     {KERN_Q4_1, 32, 20, {0, 2}},
    {KERN_Q5_0, 32, 22, {0, -1}},     {KERN_Q5_1, 32, 24, {0, 2}},
    {KERN_IQ4_NL, 32, 18, {0, -1}},   {KERN_MXFP4, 32, 17, {-1, -1}},
    {KERN_Q2_K, 256, 84, {80, 82}},   {KERN_Q3_K, 256, 110, {108, -1}},
    {KERN_Q4_K, 256, 144, {0, 2}},    {KERN_Q5_K, 256, 176, {0, 2}},
    {KERN_Q6_K, 256, 210, {208, -1}}, {KERN_IQ4_XS, 256, 136, {0, -1}},
    {KERN_IQ3_XXS, 256, 98, {0, -1}}, {KERN_IQ3_S, 256, 110, {0, -1}},
    {KERN_IQ2_XXS, 256, 66, {0, -1}}, {KERN_IQ2_XS, 256, 74, {0, -1}},
    {KERN_IQ2_S, 256, 82, {0, -1}},   {KERN_IQ1_S, 256, 50, {0, -1}},
    {KERN_IQ1_M, 256, 56, {-1, -1}},  {KERN_TQ1_0, 256, 54, {52, -1}},
    {KERN_TQ2_0, 256, 66, {64, -1}},
};
enum { N_TYPES = sizeof formats / sizeof *formats };

static const struct format *format_of(enum kern_type type) {
    for (int i = 0; i < N_TYPES; i++)
        if (formats[i].type == type) return &formats[i];
    fail_msg("no format %d", (int)type);
    return NULL;
}

static size_t file_row(const struct format *f, int k) {
    return (size_t)f->size * (size_t)(k / f->block);
}

static int draw_k(uint64_t *rng, const struct format *f) {
    static const int ks[] = {32, 64, 96, 160, 256, 544, 576, 1024, 1536};
    switch (f->block) {
    case 1:
        return 1 + draw_below(rng, 300);
    case 32:
        return ks[draw_below(rng, 9)];
    default:
        return 256 * (1 + draw_below(rng, 6));
    }
}

static void *aligned(size_t size) {
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static uint16_t plain_half(uint64_t *rng) { /* 2^-7 <= |x| < 1 */
    return (uint16_t)((draw(rng) & 0x83ff) | (uint64_t)(8 + draw_below(rng, 7)) << 10);
}

/* One block of ordinary or, when wild, of any size. */
static void make_block(uint64_t *rng, const struct format *f, bool wild, uint8_t *block) {
    static const uint8_t extremes[] = {0x00, 0xff, 0x80, 0x7f};
    int extreme = draw_below(rng, 8);
    for (int i = 0; i < f->size; i++)
        block[i] = extreme < 4 ? extremes[extreme] : (uint8_t)draw(rng);
    for (int i = 0; i < 2; i++) {
        uint16_t half = wild ? (uint16_t)draw(rng) : plain_half(rng);
        if (f->halves[i] >= 0) memcpy(block + f->halves[i], &half, sizeof half);
    }
    float x = wild ? draw_edge(rng) : draw_unit(rng);
    if (f->type == KERN_F32) memcpy(block, &x, 4);
    if (f->type == KERN_BF16) memcpy(block, (char *)&x + 2, 2);
    if (f->type == KERN_MXFP4) block[0] = (uint8_t)(wild ? draw(rng) : 118 + draw(rng) % 10);
    if (f->type == KERN_IQ1_M && !wild) block[55] = (uint8_t)((block[55] & 0x8f) | 0x20);
}

/* Rows as a file holds them; with edges, some scales and numbers are any bits at all. */
static uint8_t *make_rows(uint64_t *rng, enum kern_type type, int n, int k, bool edges) {
    const struct format *f = format_of(type);
    size_t size = (size_t)n * file_row(f, k);
    uint8_t *rows = malloc(size);
    assert_non_null(rows);
    for (size_t at = 0; at < size; at += (size_t)f->size)
        make_block(rng, f, edges && draw_below(rng, 50) == 0, rows + at);
    return rows;
}

static kern_mat pack(enum kern_type type, int n, int k, const void *rows) {
    kern_mat w = {type, n, k, aligned(kern_mat_size(type, n, k))};
    int middle = kern_n_groups(n) / 2;
    kern_pack(&w, rows, middle, kern_n_groups(n));
    kern_pack(&w, rows, 0, middle);
    return w;
}

static kern_mat make_mat(uint64_t *rng, enum kern_type type, int n, int k, bool edges) {
    uint8_t *rows = make_rows(rng, type, n, k, edges);
    kern_mat w = pack(type, n, k, rows);
    free(rows);
    return w;
}

/* m rows of k numbers; with edges, some blocks are all zero, all equal, tiny, or any bits. */
static float *make_numbers(uint64_t *rng, int m, int k, bool edges) {
    float *x = malloc((size_t)m * (size_t)k * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < (size_t)m * (size_t)k; i += KERN_BLOCK) {
        int kind = edges ? draw_below(rng, 40) : 9;
        float scale = (float)(1 + draw_below(rng, 100)), same = scale * draw_unit(rng);
        for (size_t j = i; j < i + KERN_BLOCK && j < (size_t)m * (size_t)k; j++)
            x[j] = kind == 0   ? 0
                   : kind == 1 ? same
                   : kind == 2 ? 0x1p-112f * draw_unit(rng) * scale
                   : kind == 3 ? draw_edge(rng)
                   : kind == 4 ? (draw(rng) & 1 ? same : -same)
                               : scale * draw_unit(rng);
    }
    return x;
}

static char *make_act(const kern *kern, enum kern_type type, int m, int k, const float *x) {
    size_t stride = kern_act_stride(type, k);
    char *act = aligned((size_t)m * stride);
    memset(act, 0xa5, (size_t)m * stride);
    for (int i = 0; i < m; i++)
        kern->act_row(type, k, x + (size_t)i * (size_t)k, act + (size_t)i * stride);
    return act;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

static void unpacking_equals_ggml(void **state) {
    FILE *f = fopen(GOLDEN "/kern/dequant.bin", "rb");
    assert_non_null(f);
    int32_t head[4];
    int n_seen = 0;
    while (fread(head, 4, 1, f) == 1 && head[0] >= 0) {
        assert_int_equal(fread(head + 1, 4, 3, f), 3);
        enum kern_type type = (enum kern_type)head[0];
        int n = head[1], k = head[2];
        assert_true(kern_type_known((int)type));
        size_t size = (size_t)head[3];
        assert_int_equal(size, file_row(format_of(type), k));
        uint8_t *rows = malloc((size_t)n * size);
        float *expected = malloc(sizeof *expected * (size_t)n * (size_t)k);
        float *found = malloc(sizeof *found * (size_t)k);
        assert_true(rows && expected && found);
        assert_int_equal(fread(rows, size, (size_t)n, f), n);
        assert_int_equal(fread(expected, sizeof *expected * (size_t)k, (size_t)n, f), n);
        kern_mat w = pack(type, n, k, rows);
        for (int i = 0; i < n; i++) {
            kern_unpack_row(&w, i, found);
            assert_same(k, expected + (size_t)i * (size_t)k, found);
        }
        free(rows), free(expected), free(found), free(w.data);
        n_seen++;
    }
    assert_int_equal(n_seen, N_TYPES);
    fclose(f);
}

static void unknown_types_are_unknown(void **state) {
    for (int type = -2; type < 64; type++) {
        bool listed = false;
        for (int i = 0; i < N_TYPES; i++) listed |= (int)formats[i].type == type;
        assert_int_equal(kern_type_known(type), listed);
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

/* The numbers that an activation row stands for: q[k], then for each block of 32 {f32 d, s; int32
 * -8·Σq, -16·Σq, -128·Σq}, or for each of 256 {f32 d; int16 Σq of each 16, of each 32}. */
static void read_act(enum kern_type type, int k, const char *row, float *x) {
    int block = format_of(type)->block, size = block == 32 ? 20 : 52;
    if (block == 1) {
        memcpy(x, row, (size_t)k * sizeof *x);
        return;
    }
    for (int i = 0; i < k; i++) {
        float d;
        memcpy(&d, row + k + size * (i / block), sizeof d);
        x[i] = d * (float)((const int8_t *)row)[i];
    }
}

/* One block: quantised to nearest, with the sums that stand in its record. */
static void check_block(int block, const float *x, const int8_t *q, const char *record) {
    double amax = 0;
    for (int i = 0; i < block; i++) amax = amax > fabs(x[i]) ? amax : fabs(x[i]);
    double step = amax / 127;
    int sum = 0, sums[16] = {0};
    for (int i = 0; i < block; i++) {
        assert_true(q[i] >= -127);
        assert_near(x[i], (float)(q[i] * step), step * 0.50001);
        sum += q[i];
        sums[i / 16] += q[i];
    }
    float ds[2];
    int32_t offsets[3];
    int16_t found[24];
    memcpy(ds, record, 8);
    memcpy(offsets, record + 8, 12);
    memcpy(found, record + 4, block == 32 ? 0 : 48);
    assert_near(step, ds[0], step * 0x1p-23);
    if (block == 32) {
        assert_near(step * sum, ds[1], step * (abs(sum) + 1) * 0x1p-22);
        assert_int_equal(offsets[0], -8 * sum);
        assert_int_equal(offsets[1], -16 * sum);
        assert_int_equal(offsets[2], -128 * sum);
    } else {
        for (int j = 0; j < 16; j++) assert_int_equal(found[j], sums[j]);
        for (int j = 0; j < 8; j++) assert_int_equal(found[16 + j], sums[2 * j] + sums[2 * j + 1]);
    }
}

static void activations_round_to_nearest(void **state) {
    uint64_t rng = 1;
    kern kern;
    kern_init(&kern, KERN_SCALAR);
    for (int round = 0; round < 200; round++) {
        enum kern_type type = round % 2 ? KERN_Q4_1 : KERN_Q4_K;
        int block = format_of(type)->block, k = block * (1 + draw_below(&rng, 8));
        float *x = make_numbers(&rng, 1, k, false);
        char *act = make_act(&kern, type, 1, k, x);
        for (int b = 0; b < k / block; b++)
            check_block(block, x + b * block, (const int8_t *)act + b * block,
                        act + k + (block == 32 ? 20 : 52) * b);
        free(x), free(act);
    }
}

/* What a row leaves of its numbers, as a row of its own, has seven bits more of them. */
static void a_second_row_takes_the_rest(void **state) {
    uint64_t rng = 9;
    kern kern;
    kern_init(&kern, KERN_SCALAR);
    for (int round = 0; round < 200; round++) {
        enum kern_type type = round % 2 ? KERN_Q4_1 : KERN_Q4_K;
        int block = format_of(type)->block, k = block * (1 + draw_below(&rng, 8));
        float *x = make_numbers(&rng, 1, k, false), *rest = aligned((size_t)k * sizeof *rest);
        float first[2048], second[2048];
        char *act = make_act(&kern, type, 1, k, x);
        memcpy(rest, x, (size_t)k * sizeof *rest);
        kern_act_rest(type, k, act, rest);
        read_act(type, k, act, first);
        for (int i = 0; i < k; i++) assert_true(rest[i] == x[i] - first[i]);
        char *more = make_act(&kern, type, 1, k, rest);
        read_act(type, k, more, second);
        for (int b = 0; b < k; b += block) {
            double amax = 0;
            for (int i = b; i < b + block; i++) amax = amax > fabs(x[i]) ? amax : fabs(x[i]);
            for (int i = b; i < b + block; i++) /* half a step, and what floats round */
                assert_near(x[i], (double)first[i] + (double)second[i],
                            amax * (0.25 / 127 / 127 * 1.001 + 0x1p-22));
        }
        free(x), free(rest), free(act), free(more);
    }
}

/* Types share rows exactly when they are of one form, and then their strides are equal. */
static void forms_differ_in_stride(void **state) {
    for (int i = 0; i < N_TYPES; i++)
        for (int j = 0; j < N_TYPES; j++) {
            const struct format *a = &formats[i], *b = &formats[j];
            assert_int_equal(kern_form_of(a->type) == kern_form_of(b->type), a->block == b->block);
            assert_int_equal(kern_act_stride(a->type, 512) == kern_act_stride(b->type, 512),
                             a->block == b->block);
        }
}

static void same_activations(const kern *reference, const kern *variant) {
    uint64_t rng = 2;
    for (int round = 0; round < 500; round++) {
        const struct format *f = &formats[draw_below(&rng, N_TYPES)];
        enum kern_type type = f->type;
        int k = draw_k(&rng, f);
        float *x = make_numbers(&rng, 1, k, true);
        char *expected = make_act(reference, type, 1, k, x),
             *found = make_act(variant, type, 1, k, x);
        assert_memory_equal(expected, found, kern_act_stride(type, k));
        free(x), free(expected), free(found);
    }
}

static void activations_equal_the_reference(void **state) {
    for_each_isa(same_activations);
}

/* ---- products -------------------------------------------------------------------------------- */

/* The reference against dot products in double precision of the numbers that weights and
 * activations stand for: each step of the chain may round by half an ulp of the partial sum. */
static void reference_equals_double_precision(void **state) {
    uint64_t rng = 3;
    kern kern;
    kern_init(&kern, KERN_SCALAR);
    for (int round = 0; round < 10 * N_TYPES; round++) {
        const struct format *f = &formats[round % N_TYPES];
        enum kern_type type = f->type;
        int n = 1 + draw_below(&rng, 40), m = 1 + draw_below(&rng, 4), k = draw_k(&rng, f);
        bool add = draw_below(&rng, 2);
        kern_mat w = make_mat(&rng, type, n, k, false);
        float *x = make_numbers(&rng, m, k, false), *before = make_numbers(&rng, m, n, false);
        char *act = make_act(&kern, type, m, k, x);
        float *out = malloc(sizeof *out * (size_t)m * (size_t)n);
        float *weights = malloc(sizeof *weights * (size_t)k), *a = malloc(sizeof *a * (size_t)k);
        assert_true(out && weights && a);
        memcpy(out, before, sizeof *out * (size_t)m * (size_t)n);
        kern.gemm(&w, act, kern_act_stride(type, k), m, out, (size_t)n, add, 0, kern_n_groups(n));
        for (int i = 0; i < m; i++) {
            read_act(type, k, act + (size_t)i * kern_act_stride(type, k), a);
            for (int j = 0; j < n; j++) {
                double start = add ? before[i * n + j] : 0, sum = start, size = fabs(start);
                double step = 0; /* what 8-bit activations may cost */
                kern_unpack_row(&w, j, weights);
                for (int l = 0; l < k; l++) {
                    sum += (double)weights[l] * a[l];
                    size += fabs((double)weights[l] * a[l]);
                    step += fabs((double)weights[l] * (a[l] - x[i * k + l]));
                }
                double steps = f->block > 1 ? 4.0 * k / f->block + 8 : k + 2;
                /* d·q and the minimum apart: the partial sums are larger than the products. */
                double slack = f->halves[1] >= 0 ? 16 : 1;
                assert_near(sum, out[i * n + j], slack * steps * size * 0x1p-24);
                double exact = start;
                for (int l = 0; l < k; l++) exact += (double)weights[l] * x[i * k + l];
                assert_near(exact, out[i * n + j], step + slack * steps * size * 0x1p-24);
            }
        }
        free(w.data), free(x), free(before), free(act), free(out), free(weights), free(a);
    }
}

enum { GUARD = 40 };

typedef struct shape {
    enum kern_type type;
    int m, n, k, group0, group1;
    bool add;
} shape;

static shape draw_shape(uint64_t *rng, enum kern_type type, int m) {
    shape s = {.type = type, .m = m, .n = 1 + draw_below(rng, 80), .add = draw_below(rng, 2)};
    s.k = draw_k(rng, format_of(type));
    s.group0 = draw_below(rng, kern_n_groups(s.n));
    s.group1 = s.group0 + 1 + draw_below(rng, kern_n_groups(s.n) - s.group0);
    return s;
}

/* Runs reference and variant on the same input; everything outside the asked outputs is a canary.
 */
static void compare(uint64_t *rng, const kern *reference, const kern *variant, shape s) {
    bool edges = draw_below(rng, 2);
    kern_mat w = make_mat(rng, s.type, s.n, s.k, edges);
    float *x = make_numbers(rng, s.m, s.k, edges);
    char *act = make_act(reference, s.type, s.m, s.k, x);
    size_t stride = (size_t)s.n + (size_t)draw_below(rng, 20);
    size_t size = GUARD + (size_t)s.m * stride + GUARD, act_stride = kern_act_stride(s.type, s.k);
    float *before = make_numbers(rng, 1, (int)size, false);
    float *expected = malloc(size * sizeof *before), *found = malloc(size * sizeof *before);
    assert_true(expected && found);
    memcpy(expected, before, size * sizeof *before);
    memcpy(found, before, size * sizeof *before);
    reference->gemm(&w, act, act_stride, s.m, expected + GUARD, stride, s.add, s.group0, s.group1);
    variant->gemm(&w, act, act_stride, s.m, found + GUARD, stride, s.add, s.group0, s.group1);
    for (size_t at = 0; at < size; at++) {
        size_t row = (at - GUARD) / stride, column = (at - GUARD) % stride;
        bool asked = at >= GUARD && row < (size_t)s.m && column < (size_t)s.n &&
                     column / KERN_GROUP >= (size_t)s.group0 &&
                     column / KERN_GROUP < (size_t)s.group1;
        const float *right = asked ? expected : before;
        if (!same_bits(right[at], expected[at]) || !same_bits(right[at], found[at]))
            fail_msg("%s type %d m %d n %d k %d groups %d..%d add %d: row %zu output %zu should be "
                     "%a, is %a",
                     kern_isa_name(variant->isa), (int)s.type, s.m, s.n, s.k, s.group0, s.group1,
                     s.add, row, column, right[at], found[at]);
    }
    free(w.data), free(x), free(act), free(before), free(expected), free(found);
}

static void same_products(const kern *reference, const kern *variant) {
    uint64_t rng = 4;
    for (int t = 0; t < N_TYPES; t++) {
        for (int m = 1; m <= 64; m++)
            compare(&rng, reference, variant, draw_shape(&rng, formats[t].type, m));
        shape large = {formats[t].type,
                       150,
                       20,
                       formats[t].block == 256 ? 3328 : 3232,
                       0,
                       2,
                       true}; /* more rows and k than kernels cut at */
        compare(&rng, reference, variant, large);
    }
}

static void products_equal_the_reference(void **state) {
    for_each_isa(same_products);
}

static void row_is_row_alone(const kern *kern) {
    uint64_t rng = 5;
    for (int t = 0; t < N_TYPES; t++) {
        enum kern_type type = formats[t].type;
        int m = 37, n = 50, k = formats[t].block == 256 ? 512 : 160;
        kern_mat w = make_mat(&rng, type, n, k, false);
        float *x = make_numbers(&rng, m, k, true);
        char *act = make_act(kern, type, m, k, x);
        size_t stride = kern_act_stride(type, k);
        float many[37 * 50], alone[50];
        kern->gemm(&w, act, stride, m, many, (size_t)n, false, 0, kern_n_groups(n));
        for (int i = 0; i < m; i++) {
            kern->gemm(&w, act + (size_t)i * stride, stride, 1, alone, (size_t)n, false, 0,
                       kern_n_groups(n));
            assert_same(n, alone, many + i * n);
        }
        free(w.data), free(x), free(act);
    }
}

static void rows_do_not_see_each_other(void **state) {
    for (int isa = 0; isa < KERN_N_ISA; isa++) {
        kern kern;
        if (!kern_isa_usable(isa)) continue;
        kern_init(&kern, isa);
        row_is_row_alone(&kern);
    }
}

/* ---- instruction sets ------------------------------------------------------------------------ */

static void names_find_instruction_sets(void **state) {
    for (int isa = 0; isa < KERN_N_ISA; isa++)
        assert_int_equal(kern_isa_find(kern_isa_name(isa)), isa);
    assert_int_equal(kern_isa_find("avx3"), -1);
    assert_int_equal(kern_isa_find(""), -1);
    assert_true(kern_isa_usable(KERN_SCALAR));
    assert_true(kern_isa_usable(kern_isa_best()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpacking_equals_ggml),
        cmocka_unit_test(unknown_types_are_unknown),
        cmocka_unit_test(activations_round_to_nearest),
        cmocka_unit_test(a_second_row_takes_the_rest),
        cmocka_unit_test(forms_differ_in_stride),
        cmocka_unit_test(activations_equal_the_reference),
        cmocka_unit_test(reference_equals_double_precision),
        cmocka_unit_test(products_equal_the_reference),
        cmocka_unit_test(rows_do_not_see_each_other),
        cmocka_unit_test(names_find_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
