/* Growable bytes: against a plain array, with failing allocations, and JSON against Python's. */
#include "cmocka_tests.h"

#include "base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void grows_like_an_array(void **state) {
    static char model[200000];
    size_t len = 0;
    buf b = {0};
    srand(1);
    while (len < sizeof model - 1000) {
        char piece[600];
        size_t n = (size_t)rand() % sizeof piece;
        for (size_t i = 0; i < n; i++) piece[i] = (char)rand();
        buf_put(&b, piece, n);
        memcpy(model + len, piece, n);
        len += n;
        buf_putc(&b, (char)len);
        model[len] = (char)len;
        len++;
        assert_int_equal(b.len, len);
        assert_int_equal(b.data[b.len], 0);
        assert_true(b.cap > b.len);
    }
    assert_memory_equal(b.data, model, len);
    buf_fini(&b);
    assert_null(b.data);
    assert_int_equal(b.len + b.cap, 0);
}

static void small_pieces(void **state) {
    buf b = {0};
    buf_put(&b, NULL, 0);
    assert_string_equal(b.data, "");
    buf_puts(&b, "a");
    buf_printf(&b, "%d %s", 17, "b");
    buf_printf(&b, "%s", "");
    buf_put_escaped(&b, "\n\0c", 3);
    assert_string_equal(b.data, "a17 b\\x0a\\x00c");
    size_t cap = b.cap;
    buf_clear(&b);
    assert_string_equal(b.data, "");
    assert_int_equal(b.len, 0);
    assert_int_equal(b.cap, cap);
    buf_printf(&b, "%*s", 5000, "x");
    assert_int_equal(b.len, 5000);
    assert_int_equal(b.data[4999], 'x');
    buf_fini(&b);
    buf_clear(&b);
    assert_null(b.data);
}

static void a_failed_append_sticks_and_keeps(void **state) {
    buf b = {0};
    buf_puts(&b, "kept");
    size_t len = b.len;
    static char big[1000];
    memset(big, 'x', sizeof big - 1);
    mem_fail_after(0);
    buf_puts(&b, big);
    mem_fail_after(-1);
    assert_true(b.failed);
    assert_int_equal(b.len, len);
    assert_string_equal(b.data, "kept");
    buf_putc(&b, 'x');
    buf_puts(&b, "more");
    buf_printf(&b, "%d", 1);
    buf_put_json(&b, "j", 1);
    buf_put_escaped(&b, "e", 1);
    assert_string_equal(b.data, "kept");
    buf_clear(&b);
    assert_false(b.failed);
    buf_puts(&b, big);
    assert_string_equal(b.data, big);
    buf_fini(&b);
}

static void lengths_that_overflow_fail(void **state) {
    buf b = {0};
    buf_puts(&b, "kept");
    buf_put(&b, "x", SIZE_MAX);
    assert_true(b.failed);
    assert_string_equal(b.data, "kept");
    buf_clear(&b);
    buf_puts(&b, "kept");
    buf_put_escaped(&b, "x", SIZE_MAX / 2);
    assert_true(b.failed);
    assert_string_equal(b.data, "kept");
    buf_fini(&b);
}

/* Turns hexadecimal digits into bytes, up to the first other character. */
static size_t unhex(const char **at, char *out) {
    size_t n = 0;
    unsigned byte;
    while (sscanf(*at, "%2x", &byte) == 1 && (*at)[0] != ' ' && (*at)[0] != '\n') {
        out[n++] = (char)byte;
        *at += 2;
    }
    ++*at;
    return n;
}

static void json_as_python_writes_it(void **state) {
    FILE *f = fopen(GOLDEN_DIR "/base/json.txt", "r");
    assert_non_null(f);
    char line[1000], text[500], expected[500];
    int n = 0;
    buf b = {0};
    for (; fgets(line, sizeof line, f); n++) {
        const char *at = line;
        size_t text_len = unhex(&at, text), expected_len = unhex(&at, expected);
        buf_clear(&b);
        buf_put_json(&b, text, text_len);
        assert_int_equal(b.len, expected_len);
        if (expected_len) assert_memory_equal(b.data, expected, expected_len);
    }
    fclose(f);
    buf_fini(&b);
    assert_int_equal(n, 162);
}

/* Expected text as Python's json.dumps writes it. */
static void ascii_json(void **state) {
    static const char text[] = "{\"k\": \"a\xc3\xa9\xe6\x9d\xb1\xf0\x9f\x99\x82z\"}";
    static const char want[] = "{\"k\": \"a\\u00e9\\u6771\\ud83d\\ude42z\"}";
    buf b = {0};
    buf_put_ascii_json(&b, text, sizeof text - 1);
    assert_string_equal(b.data, want);
    assert_int_equal(ascii_json_origin(text, sizeof text - 1, 0), 0);
    assert_int_equal(ascii_json_origin(text, sizeof text - 1, strlen(want)), sizeof text - 1);
    size_t z = (size_t)(strchr(want, 'z') - want);
    assert_int_equal(text[ascii_json_origin(text, sizeof text - 1, z)], 'z');
    assert_int_equal(ascii_json_origin(text, sizeof text - 1, z - 1), strchr(text, 'z') - text - 4);
    buf_clear(&b);
    buf_put_ascii_json(&b, "\xff", 1);
    assert_string_equal(b.data, "\\ufffd");
    buf_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ascii_json),
        cmocka_unit_test(grows_like_an_array),
        cmocka_unit_test(small_pieces),
        cmocka_unit_test(a_failed_append_sticks_and_keeps),
        cmocka_unit_test(lengths_that_overflow_fail),
        cmocka_unit_test(json_as_python_writes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
