/* Errors and log lines: what came from outside can neither break a line nor a terminal. */
#include "cmocka_tests.h"

#include "base.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void a_sentence_is_stored(void **state) {
    icp_error err = {0};
    assert_int_equal(error_set(&err, ICP_EIO, "%s: %d of %d", "path", 1, 2), ICP_EIO);
    assert_int_equal(err.code, ICP_EIO);
    assert_string_equal(err.text, "path: 1 of 2");
    assert_int_equal(error_set(NULL, ICP_ELIMIT, "nobody listens %d", 1), ICP_ELIMIT);
    error_set(&err, ICP_ENOMEM, "%s", "");
    assert_string_equal(err.text, "");
    assert_int_equal(err.code, ICP_ENOMEM);
}

static const struct {
    const char *text, *escaped;
} wild[] = {
    {"tab\tline\nreturn\r", "tab\\x09line\\x0areturn\\x0d"},
    {"\033[31mred\033[0m", "\\x1b[31mred\\x1b[0m"},
    {"\x7f", "\\x7f"},
    {"\xc2\x80\xc2\x9b\xc2\x9f", "\\x80\\x9b\\x9f"}, /* C1: U+009B begins terminal commands too */
    {"\xc2\xa0", "\xc2\xa0"},
    {"na\xc3\xafve \xe8\xaa\x9e \xf0\x9f\x98\x80", "na\xc3\xafve \xe8\xaa\x9e \xf0\x9f\x98\x80"},
    {"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},                        /* line separators */
    {"\xe2\x80\xae|\xe2\x81\xa6|\xe2\x81\xa9", "\\u202e|\\u2066|\\u2069"}, /* right to left */
    {"\xff|\xc0\x80|\xed\xa0\x80", "\\xff|\\xc0\\x80|\\xed\\xa0\\x80"},    /* not UTF-8 */
    {"cut \xe8\xaa", "cut \\xe8\\xaa"},
    {"%s %n", "%s %n"},
};

static void text_from_outside_is_escaped(void **state) {
    for (size_t i = 0; i < COUNT_OF(wild); i++) {
        icp_error err;
        error_set(&err, ICP_EFORMAT, "%s", wild[i].text);
        assert_string_equal(err.text, wild[i].escaped);
        buf b = {0};
        buf_put_escaped(&b, wild[i].text, strlen(wild[i].text));
        assert_string_equal(b.data, wild[i].escaped);
        buf_fini(&b);
    }
}

static void long_text_is_capped_at_a_character(void **state) {
    static char text[5000];
    icp_error err;
    memset(text, 'a', sizeof text - 1);
    error_set(&err, ICP_EFORMAT, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);

    for (size_t i = 0; i + 3 < sizeof text; i += 3) memcpy(text + i, "\xe8\xaa\x9e", 4);
    error_set(&err, ICP_EFORMAT, "%s", text);
    assert_int_equal(strlen(err.text), (sizeof err.text - 1) / 3 * 3);

    memset(text, 1, sizeof text - 1);
    error_set(&err, ICP_EFORMAT, "%s", text);
    assert_int_equal(strlen(err.text), (sizeof err.text - 1) / 4 * 4);
    assert_string_equal(err.text + strlen(err.text) - 4, "\\x01");
}

static void every_code_has_a_meaning(void **state) {
#define MEANING(name, number, text) assert_string_equal(icp_strerror(-(number)), text);
    ICP_ERRORS(MEANING)
#undef MEANING
    assert_string_equal(icp_strerror(0), "success");
    assert_string_equal(icp_strerror(-1000), "unknown error");
    assert_string_equal(icp_strerror(1), "unknown error");
}

/* Runs with stderr in memory; what was written goes to text. */
static void capture(void (*speak)(void), char *text, size_t cap) {
    int file = memfd_create("stderr", 0), old = dup(STDERR_FILENO);
    assert_true(file >= 0 && old >= 0);
    dup2(file, STDERR_FILENO);
    speak();
    dup2(old, STDERR_FILENO);
    ssize_t n = pread(file, text, cap - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    close(old);
    close(file);
}

static void speak_briefly(void) {
    log_line(LOG_INFO, "one\ntwo %d", 2);
    log_line(LOG_DEBUG, "too quiet to be heard");
    log_set_level(LOG_ERROR);
    log_line(LOG_WARN, "silenced");
    log_line(LOG_ERROR, "heard");
    log_set_level(LOG_INFO);
}

static void a_log_line_is_one_line(void **state) {
    char text[1000];
    capture(speak_briefly, text, sizeof text);
    int year, day;
    char first[100] = "", second[100] = "";
    assert_int_equal(sscanf(text,
                            "%4d-%*2d-%2dT%*2d:%*2d:%*6[0-9.]Z info  %99[^\n]\n"
                            "%*s error %99[^\n]\n",
                            &year, &day, first, second),
                     4);
    assert_true(year >= 2024 && day >= 1 && day <= 31);
    assert_string_equal(first, "one\\x0atwo 2");
    assert_string_equal(second, "heard");
}

static void speak_at_length(void) {
    static char text[100000];
    memset(text, '\n', sizeof text - 1);
    log_line(LOG_ERROR, "%s", text);
}

static void a_long_log_line_is_capped(void **state) {
    char text[8000];
    capture(speak_at_length, text, sizeof text);
    assert_true(strlen(text) > 2000 && strlen(text) < 2500);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sentence_is_stored),
        cmocka_unit_test(text_from_outside_is_escaped),
        cmocka_unit_test(long_text_is_capped_at_a_character),
        cmocka_unit_test(every_code_has_a_meaning),
        cmocka_unit_test(a_log_line_is_one_line),
        cmocka_unit_test(a_long_log_line_is_capped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
