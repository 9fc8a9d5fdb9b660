/* Files that are right: every value, tensor and name is what the writer meant. */
#include "gguf_writer.h"

#include "gguf.h"

static gguf *open_written(const writer *w) {
    char path[32];
    icp_error err = {0};
    gguf *g;
    int fd = file_of(w->data, w->len, path);
    int rc = gguf_open(path, &g, &err);
    close(fd);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    return g;
}

static void assert_str(gguf_str text, const char *expected) {
    assert_int_equal(text.len, strlen(expected));
    assert_memory_equal(text.data, expected, text.len);
}

/* ---- the file that the format's own package wrote (golden/gguf/make.py) ---- */

static int open_golden(void **state) {
    icp_error err = {0};
    gguf *g;
    if (gguf_open(GOLDEN_DIR "/gguf/small.gguf", &g, &err) < 0) fail_msg("%s", err.text);
    *state = g;
    return 0;
}

static int close_golden(void **state) {
    gguf *g = *state;
    gguf_close(&g);
    assert_null(g);
    gguf_close(&g);
    return 0;
}

static void golden_header(void **state) {
    const gguf *g = *state;
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_file_size(g), 1792);
    assert_int_equal(gguf_alignment(g), 64);
    assert_int_equal(gguf_n_values(g), 19);
    assert_int_equal(gguf_n_tensors(g), 6);
    gguf_str key;
    assert_ptr_equal(gguf_value_at(g, 0, &key), gguf_find(g, "general.architecture"));
    assert_str(key, "general.architecture");
    gguf_value_at(g, 18, &key);
    assert_str(key, "test.words");
}

static void golden_integers(void **state) {
    const gguf *g = *state;
    assert_true(gguf_uint(g, "test.u8", 1) == 200);
    assert_true(gguf_uint(g, "test.u16", 1) == 60000);
    assert_true(gguf_uint(g, "test.u32", 1) == 4000000000);
    assert_true(gguf_uint(g, "test.u64", 1) == UINT64_MAX - 1);
    assert_true(gguf_at_int(gguf_find(g, "test.i8"), 0) == -100);
    assert_true(gguf_at_int(gguf_find(g, "test.i16"), 0) == -30000);
    assert_true(gguf_at_int(gguf_find(g, "test.i32"), 0) == -2000000000);
    assert_true(gguf_at_int(gguf_find(g, "test.i64"), 0) == INT64_MIN);
    assert_true(gguf_at_int(gguf_find(g, "test.u64"), 0) == INT64_MAX);
    assert_true(gguf_float(g, "test.i16", 1) == -30000);
    /* what does not fit, is of another kind, or is not there */
    assert_true(gguf_uint(g, "test.i8", 7) == 7);
    assert_true(gguf_uint(g, "test.f32", 7) == 7);
    assert_true(gguf_uint(g, "test.yes", 7) == 7);
    assert_true(gguf_uint(g, "test.text", 7) == 7);
    assert_true(gguf_uint(g, "test.ints", 7) == 7);
    assert_true(gguf_uint(g, "test.u8 ", 7) == 7);
    assert_true(gguf_uint(g, "", 7) == 7);
}

static void golden_floats_and_bools(void **state) {
    const gguf *g = *state;
    assert_true(gguf_float(g, "test.f32", 7) == 0.1f);
    assert_true(gguf_float(g, "test.f64", 7) == 0.1);
    assert_true(gguf_float(g, "test.yes", 7) == 7);
    assert_true(gguf_float(g, "test.text", 7) == 7);
    assert_true(gguf_float(g, "test.floats", 7) == 7);
    assert_true(gguf_bool(g, "test.yes", false));
    assert_false(gguf_bool(g, "test.no", true));
    assert_true(gguf_bool(g, "test.u8", true));
    assert_true(gguf_bool(g, "missing", true));
}

static void golden_strings(void **state) {
    const gguf *g = *state;
    assert_str(gguf_string(g, "general.architecture"), "llama");
    assert_str(gguf_string(g, "test.text"), "na\u00efve \u0120 \u8a9e \U0001f600\n");
    assert_null(gguf_string(g, "test.u8").data);
    assert_null(gguf_string(g, "test.words").data);
    assert_null(gguf_string(g, "missing").data);
}

static void golden_arrays(void **state) {
    const gguf *g = *state;
    const gguf_value *v = gguf_find(g, "test.ints");
    assert_int_equal(v->kind, GGUF_KIND_ARRAY);
    assert_int_equal(v->item, GGUF_KIND_I32);
    assert_int_equal(v->count, 3);
    assert_int_equal(gguf_at_int(v, 0), 1);
    assert_true(gguf_at_int(v, 1) == -2);
    assert_true(gguf_at_float(v, 2) == 3);

    v = gguf_find(g, "test.floats");
    assert_int_equal(v->count, 4);
    assert_true(gguf_at_float(v, 1) == -1.25);
    assert_true(gguf_at_int(v, 1) == -1);
    assert_true(gguf_at_int(v, 3) == INT64_MAX);

    v = gguf_find(g, "test.bools");
    assert_int_equal(v->item, GGUF_KIND_BOOL);
    assert_int_equal(gguf_at_int(v, 0), 1);
    assert_int_equal(gguf_at_int(v, 1), 0);

    v = gguf_find(g, "test.words");
    gguf_str words[4];
    assert_int_equal(v->count, 4);
    gguf_at_strings(v, words);
    assert_str(words[0], "");
    assert_str(words[1], "a");
    assert_str(words[2], "two words");
    assert_str(words[3], "\u00e4");
}

static void golden_tensors(void **state) {
    /* as the package's own reader lists them; sum: of all bytes */
    static const struct {
        const char *name;
        int type, n_dims;
        uint64_t dims[4], offset;
        size_t size;
        unsigned sum;
    } expected[] = {
        {"f32", GGUF_F32, 2, {4, 3, 1, 1}, 960, 48, 1699},
        {"f16", GGUF_F16, 1, {2, 1, 1, 1}, 1024, 4, 248},
        {"i32", GGUF_I32, 4, {4, 3, 1, 2}, 1088, 96, 276},
        {"q8_0", GGUF_Q8_0, 2, {64, 2, 1, 1}, 1216, 136, 16520},
        {"q4_1", GGUF_Q4_1, 2, {64, 2, 1, 1}, 1408, 80, 13059},
        {"bf16", GGUF_BF16, 2, {64, 2, 1, 1}, 1536, 256, 29804},
    };
    const gguf *g = *state;
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        assert_ptr_equal(gguf_find_tensor(g, expected[i].name), t);
        assert_str(t->name, expected[i].name);
        assert_int_equal(t->type, expected[i].type);
        assert_int_equal(t->n_dims, expected[i].n_dims);
        assert_memory_equal(t->dims, expected[i].dims, sizeof t->dims);
        assert_int_equal(t->offset, expected[i].offset);
        assert_int_equal(t->size, expected[i].size);
        unsigned sum = 0;
        for (size_t k = 0; k < t->size; k++) sum += ((const uint8_t *)t->data)[k];
        assert_int_equal(sum, expected[i].sum);
    }
    assert_null(gguf_find_tensor(g, "f3"));
    assert_null(gguf_find_tensor(g, "f322"));
    assert_null(gguf_find_tensor(g, "test.u8"));
}

static void forgotten_pages_come_back(void **state) {
    const gguf *g = *state;
    const gguf_tensor *t = gguf_find_tensor(g, "i32");
    gguf_forget_pages(g);
    const int32_t *items = t->data;
    for (int i = 0; i < 24; i++) assert_int_equal(items[i], i);
    assert_ptr_equal(gguf_find_tensor(g, "i32"), t);
}

/* ---- written here ---- */

static void version_2_and_no_metadata(void **state) {
    static writer w;
    put_header(&w, 2, 1, 0);
    put_tensor(&w, "t", (uint64_t[4]){3}, 0, 0);
    put_padding(&w, 32);
    put_zeros(&w, 12);
    gguf *g = open_written(&w);
    assert_int_equal(gguf_version(g), 2);
    assert_int_equal(gguf_alignment(g), 32);
    assert_int_equal(gguf_n_values(g), 0);
    assert_null(gguf_find(g, "general.alignment"));
    assert_int_equal(gguf_find_tensor(g, "t")->size, 12);
    gguf_close(&g);
}

static void nothing_but_a_header(void **state) {
    static writer w;
    put_header(&w, 3, 0, 0);
    gguf *g = open_written(&w);
    buf text = {0};
    assert_null(gguf_find(g, "a"));
    assert_null(gguf_find_tensor(g, "a"));
    assert_int_equal(gguf_describe(g, &text), 0);
    assert_string_equal(text.data,
                        "GGUF version 3, 24 bytes, alignment 32, 0 metadata entries, 0 tensors\n");
    buf_fini(&text);
    gguf_close(&g);
}

/* A vocabulary-only file may end before the padding. */
static void no_tensors_no_padding(void **state) {
    static writer w;
    put_header(&w, 3, 0, 2);
    put_key(&w, "b", W_U8);
    put_uint(&w, 9, 1);
    put_array_key(&w, "a", W_STRING, 0);
    gguf *g = open_written(&w);
    assert_true(gguf_uint(g, "b", 0) == 9);
    assert_int_equal(gguf_find(g, "a")->count, 0);
    gguf_close(&g);
}

static void tensors_in_any_order_with_gaps(void **state) {
    static writer w;
    put_header(&w, 3, 3, 1);
    put_u32_entry(&w, "general.alignment", 8);
    put_tensor(&w, "last", (uint64_t[4]){1}, 0, 48);
    put_tensor(&w, "first", (uint64_t[4]){4}, 0, 0);
    put_tensor(&w, "middle", (uint64_t[4]){1, 2}, 0, 32);
    put_padding(&w, 8);
    for (uint64_t i = 0; i < 7; i++) put_uint(&w, i, 8);
    gguf *g = open_written(&w);
    assert_int_equal(*(const uint8_t *)gguf_find_tensor(g, "last")->data, 6);
    assert_int_equal(*(const uint8_t *)gguf_find_tensor(g, "first")->data, 0);
    assert_int_equal(*(const uint8_t *)gguf_find_tensor(g, "middle")->data, 4);
    gguf_close(&g);
}

static void odd_numbers_convert(void **state) {
    static writer w;
    put_header(&w, 3, 0, 1);
    put_array_key(&w, "f", W_F64, 6);
    put_uint(&w, 0x7ff8000000000000, 8); /* NaN */
    put_uint(&w, 0x7ff0000000000000, 8); /* infinities */
    put_uint(&w, 0xfff0000000000000, 8);
    put_uint(&w, 0x43e0000000000000, 8); /* 2^63 */
    put_uint(&w, 0xc3e0000000000000, 8); /* -2^63 */
    put_uint(&w, 0xbfe8000000000000, 8); /* -0.75 */
    gguf *g = open_written(&w);
    const gguf_value *v = gguf_find(g, "f");
    static const int64_t expected[] = {0, INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, 0};
    for (size_t i = 0; i < COUNT_OF(expected); i++) assert_true(gguf_at_int(v, i) == expected[i]);
    gguf_close(&g);
}

static void all_types_have_their_size(void **state) {
    /* as ggml defines its blocks */
    static const struct {
        int number;
        const char *name;
        uint64_t block_len;
        size_t block_size;
    } types[] = {
        {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
        {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
        {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
        {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
        {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
        {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
        {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
        {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
        {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
        {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
        {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
        {41, "Q1_0", 128, 18},
    };
    size_t n_known = 0;
    for (int i = -1; i < 1000; i++) n_known += gguf_type_name(i) != NULL;
    assert_int_equal(n_known, COUNT_OF(types));
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        assert_string_equal(gguf_type_name(types[i].number), types[i].name);
        static writer w;
        put_header(&w, 3, 1, 0);
        put_tensor(&w, "t", (uint64_t[4]){2 * types[i].block_len, 3}, (uint32_t)types[i].number, 0);
        put_padding(&w, 32);
        put_zeros(&w, 6 * types[i].block_size);
        gguf *g = open_written(&w);
        assert_int_equal(gguf_tensor_at(g, 0)->size, 6 * types[i].block_size);
        gguf_close(&g);
    }
}

static void kinds_have_names(void **state) {
    assert_string_equal(gguf_kind_name(W_U8), "u8");
    assert_string_equal(gguf_kind_name(W_STRING), "string");
    assert_string_equal(gguf_kind_name(W_F64), "f64");
    assert_null(gguf_kind_name(13));
    assert_null(gguf_kind_name(-1));
}

/* Names of every length and order, all of which must be found again. */
static void many_names_are_found(void **state) {
    enum { MANY = 2000 };
    static writer w;
    put_header(&w, 3, 0, MANY);
    char key[16];
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "%x", i * 2654435761u); /* a permutation of 32-bit numbers */
        put_key(&w, key, W_U16);
        put_uint(&w, i, 2);
    }
    gguf *g = open_written(&w);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "%x", i * 2654435761u);
        assert_true(gguf_uint(g, key, MANY) == i);
        snprintf(key, sizeof key, "%xg", i * 2654435761u);
        assert_null(gguf_find(g, key));
    }
    gguf_close(&g);
}

/* ---- description ---- */

static void golden_described(void **state) {
    static const char *const lines[] = {
        "GGUF version 3, 1.79 kB, alignment 64, 19 metadata entries, 6 tensors\n",
        "  general.architecture  string         \"llama\"\n",
        "  test.u64              u64            18446744073709551614\n",
        "  test.i64              i64            -9223372036854775808\n",
        "  test.f32              f32            0.1\n",
        "  test.f64              f64            0.1\n",
        "  test.no               bool           false\n",
        "  test.text             string         \"na\u00efve \u0120 \u8a9e \U0001f600\\x0a\"\n",
        "  test.floats           f32[4]         0.5, -1.25, 3, 1e+30\n",
        "  test.words            string[4]      \"\", \"a\", \"two words\", \"\u00e4\"\n",
        "  i32   I32      4 x 3 x 1 x 2                     96            1088\n",
        "  Q4_1         1 tensor              128 elements  80 bytes\n",
    };
    buf text = {0};
    assert_int_equal(gguf_describe(*state, &text), 0);
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        if (!strstr(text.data, lines[i])) fail_msg("missing: %s", lines[i]);
    buf_fini(&text);
}

static void long_and_wild_values_are_cut_and_escaped(void **state) {
    static writer w;
    put_header(&w, 3, 0, 3);
    put_key(&w, "key\033[31m\n", W_STRING);
    put_uint(&w, 300, 8);
    for (int i = 0; i < 100; i++) put(&w, "\xe8\xaa\x9e", 3);
    put_array_key(&w, "many", W_U8, 1000);
    put_zeros(&w, 1000);
    put_key(&w, "broken", W_STRING);
    put_text(&w, "a\xff\x1b\xc2\x9b");
    gguf *g = open_written(&w);
    buf text = {0};
    assert_int_equal(gguf_describe(g, &text), 0);
    assert_non_null(strstr(text.data, "key\\x1b[31m\\x0a"));
    assert_non_null(strstr(text.data, "\u8a9e\"\u2026 (300 bytes)\n"));
    assert_non_null(strstr(text.data, "u8[1000]       0, 0, 0, 0, 0, 0, 0, 0, \u2026\n"));
    assert_non_null(strstr(text.data, "\"a\\xff\\x1b\\x9b\"\n"));
    assert_null(strchr(text.data, 0x1b));
    buf_fini(&text);
    gguf_close(&g);
}

static void description_runs_out_of_memory(void **state) {
    for (long n = 0;; n++) {
        buf text = {0};
        mem_fail_after(n);
        int rc = gguf_describe(*state, &text);
        mem_fail_after(-1);
        buf_fini(&text);
        if (rc == 0) {
            assert_true(n > 0);
            return;
        }
        assert_int_equal(rc, ICP_ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_header),
        cmocka_unit_test(golden_integers),
        cmocka_unit_test(golden_floats_and_bools),
        cmocka_unit_test(golden_strings),
        cmocka_unit_test(golden_arrays),
        cmocka_unit_test(golden_tensors),
        cmocka_unit_test(forgotten_pages_come_back),
        cmocka_unit_test(version_2_and_no_metadata),
        cmocka_unit_test(nothing_but_a_header),
        cmocka_unit_test(no_tensors_no_padding),
        cmocka_unit_test(tensors_in_any_order_with_gaps),
        cmocka_unit_test(odd_numbers_convert),
        cmocka_unit_test(all_types_have_their_size),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(many_names_are_found),
        cmocka_unit_test(golden_described),
        cmocka_unit_test(long_and_wild_values_are_cut_and_escaped),
        cmocka_unit_test(description_runs_out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
