/* Stop strings against a naive search over the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine_internal.h"

typedef struct fixture {
    arena memory;
    stop_set *set;
    stop_scan scan;
    uint32_t state[ICP_MAX_STOPS];
    buf out;
} fixture;

static void open_fixture(fixture *f, const char *const *strings, size_t n) {
    memset(f, 0, sizeof *f);
    arena_init(&f->memory);
    assert_int_equal(stop_set_new(strings, n, &f->memory, &f->set), 0);
    f->scan = (stop_scan){.set = f->set, .state = f->state};
}

static void close_fixture(fixture *f) {
    buf_fini(&f->out);
    buf_fini(&f->scan.held);
    arena_fini(&f->memory);
}

static void put(fixture *f, const char *text, int found, const char *shown) {
    assert_int_equal(stop_put(&f->scan, text, strlen(text), false, &f->out), found);
    assert_string_equal(f->out.data ? f->out.data : "", shown);
}

static void test_across_tokens(void **unused) {
    static const char *const strings[] = {"</answer>", "\n\n"};
    fixture f;
    open_fixture(&f, strings, 2);
    put(&f, "it is 42 </an", -1, "it is 42 ");
    put(&f, "imal> \n", -1, "it is 42 </animal> ");
    put(&f, "x </ans", -1, "it is 42 </animal> \nx ");
    put(&f, "wer> more", 0, "it is 42 </animal> \nx ");
    close_fixture(&f);
}

static void test_flush_gives_back(void **unused) {
    static const char *const strings[] = {"STOP"};
    fixture f;
    open_fixture(&f, strings, 1);
    put(&f, "ST", -1, "");
    stop_flush(&f.scan, &f.out);
    assert_string_equal(f.out.data, "ST");
    put(&f, "OP", -1, "STOP"); /* what was flushed is no part of a stop string any more */
    close_fixture(&f);
}

static void test_earliest_end_wins(void **unused) {
    static const char *const strings[] = {"abcd", "bc", "c"};
    fixture f;
    open_fixture(&f, strings, 3);
    put(&f, "xab", -1, "x");
    put(&f, "cd", 1, "xa"); /* "bc" and "c" end first; the longer one is cut out whole */
    close_fixture(&f);
}

static void test_without_strings(void **unused) {
    fixture f;
    open_fixture(&f, NULL, 0);
    put(&f, "any", -1, "any");
    stop_flush(&f.scan, &f.out);
    assert_string_equal(f.out.data, "any");
    close_fixture(&f);
}

/* The first end of any string in text; *index is the longest of those that end there. */
static size_t naive(const char *text, size_t len, char strings[][8], size_t n, int *index) {
    *index = -1;
    for (size_t end = 1; end <= len; end++) {
        for (size_t i = 0; i < n; i++) {
            size_t k = strlen(strings[i]);
            if (k > end || memcmp(text + end - k, strings[i], k)) continue;
            if (*index < 0 || k > strlen(strings[*index])) *index = (int)i;
        }
        if (*index >= 0) return end;
    }
    return len;
}

/* Length of the longest end of text that begins a stop string: no more may be held. */
static size_t naive_held(const char *text, size_t len, char strings[][8], size_t n) {
    size_t held = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 1; k <= len && k < strlen(strings[i]); k++)
            if (!memcmp(text + len - k, strings[i], k)) held = MAX(held, k);
    return held;
}

static void fuzz(bool include) {
    char text[40], strings[5][8];
    const char *list[5];
    size_t n = (size_t)(rand() % 6), len = (size_t)(rand() % 40);
    for (size_t i = 0; i < len; i++) text[i] = (char)('a' + rand() % 2);
    for (size_t i = 0; i < n; i++) {
        size_t k = 1 + (size_t)rand() % 7;
        for (size_t j = 0; j < k; j++) strings[i][j] = (char)('a' + rand() % 2);
        strings[i][k] = 0;
        list[i] = strings[i];
    }
    fixture f;
    int want, found = -1;
    size_t end = naive(text, len, strings, n, &want), at = 0;
    open_fixture(&f, list, n);
    while (at < len && found < 0) {
        size_t piece = (size_t)(rand() % 5);
        piece = MIN(piece, len - at);
        found = stop_put(&f.scan, text + at, piece, include, &f.out);
        at += piece;
        if (found < 0) assert_int_equal(f.out.len, at - naive_held(text, at, strings, n));
    }
    if (found < 0) stop_flush(&f.scan, &f.out);
    assert_int_equal(found, want);
    size_t shown = want < 0 ? len : include ? end : end - strlen(strings[want]);
    assert_int_equal(f.out.len, shown);
    if (shown) assert_memory_equal(f.out.data, text, shown);
    close_fixture(&f);
}

static void test_fuzz(void **unused) {
    srand(3);
    for (int i = 0; i < 50000; i++) fuzz(i % 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_across_tokens),
        cmocka_unit_test(test_flush_gives_back),
        cmocka_unit_test(test_earliest_end_wins),
        cmocka_unit_test(test_without_strings),
        cmocka_unit_test(test_fuzz),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
