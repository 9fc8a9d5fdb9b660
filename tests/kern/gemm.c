/* Matrix products: unpacking against ggml's dequantisation, the reference against double precision,
 * variants against the reference bit for bit. */
#include "bits.h"

#include <stdio.h>

static const enum kern_type types[] = {KERN_F32,  KERN_F16,  KERN_BF16,
                                       KERN_Q8_0, KERN_Q4_0, KERN_Q4_1};
enum { N_TYPES = sizeof types / sizeof *types };

static bool is_integer(enum kern_type type) {
    return type == KERN_Q8_0 || type == KERN_Q4_0 || type == KERN_Q4_1;
}

/* Bytes of one block in GGUF, of one number for float types. */
static size_t file_block(enum kern_type type) {
    switch (type) {
    case KERN_F32:
        return 4;
    case KERN_Q8_0:
        return 34;
    case KERN_Q4_0:
        return 18;
    case KERN_Q4_1:
        return 20;
    default:
        return 2;
    }
}

static size_t file_row(enum kern_type type, int k) {
    return file_block(type) * (size_t)(is_integer(type) ? k / KERN_BLOCK : k);
}

static void *aligned(size_t size) {
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static uint16_t plain_half(uint64_t *rng) { /* 2^-7 <= |x| < 1 */
    return (uint16_t)((draw(rng) & 0x83ff) | (uint64_t)(8 + draw_below(rng, 7)) << 10);
}

/* Rows as a file holds them; with edges, some scales and numbers are any bits at all. */
static uint8_t *make_rows(uint64_t *rng, enum kern_type type, int n, int k, bool edges) {
    size_t block = file_block(type), size = (size_t)n * file_row(type, k);
    uint8_t *rows = malloc(size);
    assert_non_null(rows);
    for (size_t at = 0; at < size; at += block) {
        bool wild = edges && draw_below(rng, 50) == 0;
        float x = wild ? draw_edge(rng) : draw_unit(rng);
        uint16_t halves[2] = {wild ? (uint16_t)draw(rng) : plain_half(rng), plain_half(rng)};
        if (type == KERN_F32) {
            memcpy(rows + at, &x, 4);
        } else if (type == KERN_BF16) {
            memcpy(rows + at, (char *)&x + 2, 2);
        } else {
            static const uint8_t extremes[] = {0x00, 0xff, 0x80, 0x7f};
            int extreme = draw_below(rng, 8);
            for (size_t i = 2; i < block; i++)
                rows[at + i] = extreme < 4 ? extremes[extreme] : (uint8_t)draw(rng);
            memcpy(rows + at, halves, type == KERN_Q4_1 ? 4 : 2);
        }
    }
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
    int32_t head[3];
    int n_seen = 0;
    while (fread(head, 4, 1, f) == 1 && head[0] >= 0) {
        assert_int_equal(fread(head + 1, 4, 2, f), 2);
        enum kern_type type = (enum kern_type)head[0];
        int n = head[1], k = head[2];
        assert_true(kern_type_known((int)type));
        uint8_t *rows = malloc((size_t)n * file_row(type, k));
        float *expected = malloc(sizeof *expected * (size_t)n * (size_t)k);
        float *found = malloc(sizeof *found * (size_t)k);
        assert_true(rows && expected && found);
        assert_int_equal(fread(rows, file_row(type, k), (size_t)n, f), n);
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
        for (int i = 0; i < N_TYPES; i++) listed |= (int)types[i] == type;
        assert_int_equal(kern_type_known(type), listed);
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

/* The numbers that an activation row stands for. */
static void read_act(enum kern_type type, int k, const char *row, float *x) {
    if (!is_integer(type)) {
        memcpy(x, row, (size_t)k * sizeof *x);
        return;
    }
    for (int i = 0; i < k; i++) { /* q[k], then {d, s, n8, n128} for each block */
        float d;
        memcpy(&d, row + k + 16 * (i / KERN_BLOCK), sizeof d);
        x[i] = d * (float)((const int8_t *)row)[i];
    }
}

static void activations_round_to_nearest(void **state) {
    uint64_t rng = 1;
    kern kern;
    kern_init(&kern, KERN_SCALAR);
    for (int round = 0; round < 200; round++) {
        int k = KERN_BLOCK * (1 + draw_below(&rng, 8));
        float *x = make_numbers(&rng, 1, k, false);
        char *act = make_act(&kern, KERN_Q4_1, 1, k, x);
        for (int b = 0; b < k / KERN_BLOCK; b++) {
            const float *block = x + b * KERN_BLOCK;
            double amax = 0;
            for (int i = 0; i < KERN_BLOCK; i++) amax = fmax(amax, fabs(block[i]));
            double step = amax / 127;
            int sum = 0;
            for (int i = 0; i < KERN_BLOCK; i++) {
                int q = ((const int8_t *)act)[b * KERN_BLOCK + i];
                assert_true(q >= -127 && q <= 127);
                assert_near(block[i], (float)(q * step), step * 0.50001);
                sum += q;
            }
            float ds[2];
            int32_t offsets[2];
            memcpy(ds, act + k + 16 * b, 8);
            memcpy(offsets, act + k + 16 * b + 8, 8);
            assert_near(step, ds[0], step * 0x1p-23);
            assert_near(step * sum, ds[1], step * (abs(sum) + 1) * 0x1p-22);
            assert_int_equal(offsets[0], -8 * sum);
            assert_int_equal(offsets[1], -128 * sum);
        }
        free(x), free(act);
    }
}

static void same_activations(const kern *reference, const kern *variant) {
    uint64_t rng = 2;
    for (int round = 0; round < 500; round++) {
        enum kern_type type = types[draw_below(&rng, N_TYPES)];
        int k =
            is_integer(type) ? KERN_BLOCK * (1 + draw_below(&rng, 20)) : 1 + draw_below(&rng, 300);
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
    for (int round = 0; round < 120; round++) {
        enum kern_type type = types[round % N_TYPES];
        int n = 1 + draw_below(&rng, 40), m = 1 + draw_below(&rng, 4);
        int k =
            is_integer(type) ? KERN_BLOCK * (1 + draw_below(&rng, 20)) : 1 + draw_below(&rng, 600);
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
                double steps = is_integer(type) ? 4.0 * k / KERN_BLOCK + 8 : k + 2;
                /* Q4_1 forms d·q and m apart: its partial sums are larger than the products. */
                double slack = type == KERN_Q4_1 ? 4 : 1;
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
    static const int ks[] = {32, 64, 96, 160, 256, 544, 576, 1024, 1536};
    shape s = {.type = type, .m = m, .n = 1 + draw_below(rng, 80), .add = draw_below(rng, 2)};
    s.k = is_integer(type) ? ks[draw_below(rng, 9)] : 1 + draw_below(rng, 200);
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
            compare(&rng, reference, variant, draw_shape(&rng, types[t], m));
        shape large = {types[t], 150, 20,  3232,
                       0,        2,   true}; /* more rows and k than kernels cut at */
        compare(&rng, reference, variant, large);
    }
}

static void products_equal_the_reference(void **state) {
    for_each_isa(same_products);
}

static void row_is_row_alone(const kern *kern) {
    uint64_t rng = 5;
    for (int t = 0; t < N_TYPES; t++) {
        enum kern_type type = types[t];
        int m = 37, n = 50, k = 160;
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
        cmocka_unit_test(activations_equal_the_reference),
        cmocka_unit_test(reference_equals_double_precision),
        cmocka_unit_test(products_equal_the_reference),
        cmocka_unit_test(rows_do_not_see_each_other),
        cmocka_unit_test(names_find_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
