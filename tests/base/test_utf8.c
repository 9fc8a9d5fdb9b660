/* UTF-8 against Python's decoder and encoder (golden/base/make.py). */
#include "cmocka_tests.h"

#include "base.h"

#include <string.h>

static uint64_t fnv(uint64_t digest, const void *data, size_t len) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < len; i++) digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    return digest;
}

static const uint64_t FNV_START = UINT64_C(0xcbf29ce484222325);

static uint64_t digest_steps(uint64_t digest, const char *text, size_t len) {
    for (size_t i = 0; i < len;) {
        int32_t cp;
        int width = utf8_decode(text + i, len - i, &cp);
        assert_true(width >= 1 && (size_t)width <= len - i);
        uint8_t step[5] = {(uint8_t)width, (uint8_t)cp, (uint8_t)(cp >> 8), (uint8_t)(cp >> 16),
                           (uint8_t)(cp >> 24)};
        digest = fnv(digest, step, sizeof step);
        i += (size_t)width;
    }
    uint8_t complete = (uint8_t)utf8_complete(text, len);
    return fnv(digest, &complete, 1);
}

/* Every string of up to four bytes at which the rules change, decoded to its end and cut where a
 * sequence is unfinished. */
static void decodes_as_python_does(void **state) {
    static const char edges[] = "\x00\x41\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1"
                                "\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff";
    enum { EDGES = sizeof edges - 1 };
    uint64_t digest = FNV_START;
    for (size_t len = 1, combinations = EDGES; len <= 4; len++, combinations *= EDGES) {
        for (size_t i = 0; i < combinations; i++) {
            char text[4];
            for (size_t k = len, rest = i; k-- > 0; rest /= EDGES) text[k] = edges[rest % EDGES];
            digest = digest_steps(digest, text, len);
        }
    }
    assert_true(digest == UINT64_C(0xc95dc390df4d636b));
}

/* The examples of Unicode 15, section 3.9, tables 3-8 to 3-11: 1: a character, or the length of
 * a maximal broken prefix. */
static void broken_prefixes_are_maximal(void **state) {
    static const struct {
        const char *text;
        int widths[10]; /* negative: broken */
    } examples[] = {
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", {-1, -1, -1, -1, -1, -1, -1, -1, 1}},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", {-1, -1, -1, -1, -1, -1, -1, -1, 1}},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", {-1, -1, -1, -1, -1, 1, -1, -1, 1}},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", {-2, -1, -3, -2, 1}},
    };
    for (size_t i = 0; i < COUNT_OF(examples); i++) {
        size_t at = 0, len = strlen(examples[i].text);
        for (const int *width = examples[i].widths; *width; width++) {
            int32_t cp;
            assert_int_equal(utf8_decode(examples[i].text + at, len - at, &cp),
                             *width < 0 ? -*width : *width);
            assert_int_equal(cp < 0, *width < 0);
            at += (size_t)(*width < 0 ? -*width : *width);
        }
        assert_int_equal(at, len);
    }
}

static void encodes_as_python_does(void **state) {
    uint64_t digest = FNV_START;
    for (int32_t cp = 0; cp < 0x110000; cp++) {
        if (cp == 0xd800) cp = 0xe000;
        char text[4];
        int32_t back;
        int width = utf8_encode(cp, text);
        digest = fnv(digest, text, (size_t)width);
        assert_int_equal(utf8_decode(text, (size_t)width, &back), width);
        assert_int_equal(back, cp);
    }
    assert_true(digest == UINT64_C(0x957cc0987e6013e5));
}

static void nothing_is_complete(void **state) {
    assert_int_equal(utf8_complete("", 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_as_python_does),
        cmocka_unit_test(broken_prefixes_are_maximal),
        cmocka_unit_test(encodes_as_python_does),
        cmocka_unit_test(nothing_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
