/* Jinja: the origin of every byte, limits, errors, JSON that comes in, failing memory, threads.
 * What templates mean is checked in test_jinja_golden.c. */
#include "base.h"
#include "cmocka_tests.h"
#include "text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jinja *open_ok(const char *source) {
    icp_error err = {0};
    jinja *j = NULL;
    if (jinja_open(source, strlen(source), &j, &err) < 0) fail_msg("%s: %s", source, err.text);
    return j;
}

/* ---- origin ---- */

/* want: the text; marks: u or t for each byte of it. */
static void expect_origin(const char *source, const char *want, const char *marks) {
    static const char vars[] =
        "{\"u\":\"us<er>\",\"pad\":\"  u \",\"n\":12,\"f\":1.5,\"yes\":true,\"nil\":null,"
        "\"l\":[\"a\",\"b\"],\"d\":{\"k\":\"v\"},\"line\":\"x\\ny\",\"big\":18446744073709551615}";
    icp_error err = {0};
    jinja_text out = {0};
    jinja *j = open_ok(source);
    if (jinja_render(j, vars, "{\"bos\":\"<s>\"}", 0, NULL, &out, &err) < 0)
        fail_msg("%s: %s", source, err.text);
    assert_int_equal(out.text.len, strlen(want));
    assert_int_equal(out.origin.len, strlen(marks));
    assert_memory_equal(out.text.data, want, strlen(want));
    for (size_t i = 0; i < out.origin.len; i++)
        if (out.origin.data[i] != (marks[i] == 't' ? TEXT_TEMPLATE : TEXT_USER))
            fail_msg("%s: byte %zu of '%s' is not '%c'", source, i, want, marks[i]);
    jinja_text_fini(&out);
    jinja_close(&j);
}

/* ---- marks ---- */

/* Mark 3 ends u, mark 5 stands in its middle. want: the text with ] behind each byte with which a
 * mark ends. */
static void expect_marks(const char *source, bool marked, const char *want) {
    static const char vars[] = "{\"u\":\"one" TEXT_MARK_LEAD "\x85 two" TEXT_MARK_LEAD
                               "\x83\",\"q\":\"say \\\"" TEXT_MARK_LEAD "\x80\"}";
    const jinja_opts opts = {.marked = marked};
    icp_error err = {0};
    jinja_text out = {0};
    buf shown = {0};
    jinja *j = open_ok(source);
    if (jinja_render(j, vars, NULL, 0, &opts, &out, &err) < 0) fail_msg("%s: %s", source, err.text);
    for (size_t i = 0; i < out.text.len; i++) {
        unsigned char origin = (unsigned char)out.origin.data[i];
        buf_putc(&shown, out.text.data[i]);
        if (origin < TEXT_MARKED) continue;
        assert_true(origin == TEXT_MARKED || origin == TEXT_MARKED + 3 ||
                    origin == TEXT_MARKED + 5);
        buf_putc(&shown, ']');
    }
    assert_string_equal(shown.data, want);
    buf_fini(&shown);
    jinja_text_fini(&out);
    jinja_close(&j);
}

static void test_marks(void **state) {
    expect_marks("<{{ u }}>", true, "<one] two]>");
    expect_marks("{{ u|length }}{{ u == 'one two' }}{{ u[3:] }}", true, "7True two]");
    expect_marks("{{ '[' ~ u + '!' }}{{ u|upper }}{{ u.replace('n', 'N') }}", true,
                 "[one] two]!ONE] TWO]oNe] two]");
    expect_marks(
        "{% macro m(x) %}{{ x|trim }}{% endmacro %}{{ m(u) }}{% set s %}{{ u }}{% endset %}"
        "{{ s.split(' ')[1] }}",
        true, "one] two]two]");
    expect_marks("{{ q|tojson }}", true, "\"say \\]\"]\"");
    expect_marks("{{ q }}", false, "say \"" TEXT_MARK_LEAD "\x80");
    /* a marked byte is as little trusted as any other of a user */
    expect_marks("{{ ('%s' % u[-1:]) ~ (u[-1:]|center(3)) }}", true, "o] o] ");
}

static void test_origin_sources(void **state) {
    expect_origin("t{{ u }}t", "tus<er>t", "tuuuuuut");
    expect_origin("{{ bos }}{{ 'lit' }}{{ u }}", "<s>litus<er>", "ttttttuuuuuu");
    expect_origin("{{ n }}{{ 34 }}{{ f }}{{ yes }}{{ nil }}", "12341.5TrueNone", "uuttuuuuuuuuuuu");
    expect_origin("{{ big }}{{ true }}{{ none }}", "18446744073709551615TrueNone",
                  "uuuuuuuuuuuuuuuuuuuutttttttt");
    expect_origin("{% for k in d %}{{ k }}{{ loop.index }}{% endfor %}", "k1", "ut");
    expect_origin("{{ strftime_now('%Y') }}", "1970", "tttt");
}

static void test_origin_kept(void **state) {
    expect_origin("{{ '<' + u + '>' }}", "<us<er>>", "tuuuuuut");
    expect_origin("{{ '<' ~ u ~ n }}", "<us<er>12", "tuuuuuuuu");
    expect_origin("{{ ('<' + u + '>')[1:3] }}", "us", "uu");
    expect_origin("{{ ('<' + u + '>')[::-1] }}", ">>re<su<", "tuuuuuut");
    expect_origin("{{ pad|trim }}{{ pad.strip() + '.' }}", "uu.", "uut");
    expect_origin("{{ u|upper }}{{ ('a' + u)|title }}", "US<ER>Aus<Er>", "uuuuuutuuuuuu");
    expect_origin("{{ u|replace('<', '[') }}", "us[er>", "uutuuu");
    expect_origin("{{ 'x-y'|replace('-', u) }}", "xus<er>y", "tuuuuuut");
    expect_origin("{{ l|join(', ') }}", "a, b", "uttu");
    expect_origin("{{ ','.join(l) }}{{ 'a,b'.split(',')[1] }}", "a,bb", "utut");
    expect_origin("{{ ('a' + u).split('<')|last }}", "er>", "uuu");
    expect_origin("{{ (u ~ '|x').split('|')[1] }}", "x", "t");
    expect_origin("{{ '%s!%d' % (u, n) }}{{ '{}'.format(u) }}", "us<er>!12us<er>",
                  "uuuuuutuuuuuuuu");
    expect_origin("{{ u[0] * 2 + 'z' * 2 }}", "uuzz", "uutt");
    expect_origin("{{ u|first }}{{ (u ~ 't')|last }}", "ut", "ut");
    expect_origin("{{ u|e }}", "us&lt;er&gt;", "uuuuuuuuuuuu");
    expect_origin("{{ line|indent(1) }}", "x\n y", "uttu");
    expect_origin("{{ u.center(8, '.') }}", ".us<er>.", "tuuuuuut");
    expect_origin("{{ u|truncate(5, true, '..', 0) }}", "us<..", "uuutt");
    expect_origin("{{ n + 1 }}{{ 1 + 1 }}{{ n * 2.5 }}", "13230.0", "uutuuuu");
    expect_origin("{{ '7'|int + 1 }}{{ u|length }}", "86", "tt");
}

static void test_origin_structures(void **state) {
    expect_origin("{{ d|tojson }}", "{\"k\": \"v\"}", "uuuuuuuuuu");
    expect_origin("{{ ['<t>', u[0]]|tojson }}", "[\"<t>\", \"u\"]", "uutttuuuuuuu");
    expect_origin("{{ ['t', n] }}", "['t', 12]", "uutuuuuuu");
    expect_origin("{{ line|tojson }}", "\"x\\ny\"", "uuuuuu");
    expect_origin("{% set ns = namespace(s='') %}{% for x in l %}{% set ns.s = ns.s + x + ';' %}"
                  "{% endfor %}{{ ns.s }}",
                  "a;b;", "utut");
    expect_origin("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u[0]) + m('t') }}", "<u><t>",
                  "tutttt");
    expect_origin(
        "{% set s %}a{{ n }}{% endset %}{{ s }}{% filter upper %}b{{ u[1] }}{% endfilter %}",
        "a12BS", "tuutu");
    expect_origin("{% for c in u[:2] + 't' %}{{ c }}{% endfor %}", "ust", "uut");
    expect_origin("{% for a, b in d|dictsort %}{{ a ~ '=' ~ b }}{% endfor %}", "k=v", "utu");
}

/* ---- errors ---- */

static void expect_error(const char *source, const char *vars, int code, const char *part) {
    icp_error err = {0};
    jinja *j = NULL;
    jinja_text out = {0};
    int rc = jinja_open(source, strlen(source), &j, &err);
    if (rc == 0) rc = jinja_render(j, vars, NULL, 0, NULL, &out, &err);
    if (rc != code || err.code != code) fail_msg("%.200s: %d, not %d", source, rc, code);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
    assert_null(out.text.data);
    jinja_close(&j);
}

static void test_errors(void **state) {
    expect_error("a\n{% if x %}", "{}", ICP_EFORMAT, "line 2 of the template: ");
    expect_error("a\n\n{{ x.y }}", "{}", ICP_EINVALID, "line 3 of the template: 'x' is undefined");
    expect_error("{% if a %}\n{{ 1 + 'a' }}\n{% endif %}", "{\"a\":1}", ICP_EINVALID, "line 2 ");
    expect_error("{{ raise_exception('Only ' + r + ' roles') }}", "{\"r\":\"two\"}", ICP_EINVALID,
                 "Only two roles");
    expect_error("{{ x|frobnicate }}", "{}", ICP_EFORMAT, "unknown filter: frobnicate");
    expect_error("{% frobnicate %}", "{}", ICP_EFORMAT, "unknown statement 'frobnicate'");
    expect_error("\xff", "{}", ICP_EFORMAT, "UTF-8");
    expect_error("{{ l.append(1) }}", "{\"l\":[]}", ICP_EINVALID, "unsafe");
    expect_error("{{ l|random }}", "{\"l\":[1]}", ICP_EINVALID, "not supported");
    expect_error("{{ 9223372036854775807 + 1 }}", "{}", ICP_EINVALID, "64 bits");
    expect_error("{{ (10 ** 18 * 9 + 10 ** 17 * 3) }}", "{}", ICP_EINVALID, "64 bits");
    expect_error("{{ n + 1 }}", "{\"n\":18446744073709551615}", ICP_EINVALID, "64 bits");
}

static void test_raise_is_verbatim(void **state) {
    icp_error err = {0};
    jinja_text out = {0};
    jinja *j = open_ok("\n\n{{ raise_exception('System role not supported!') }}");
    assert_int_equal(jinja_render(j, "{}", NULL, 0, NULL, &out, &err), ICP_EINVALID);
    assert_string_equal(err.text, "System role not supported!");
    assert_int_equal(jinja_render(j, "{}", NULL, 0, NULL, &out, NULL), ICP_EINVALID);
    jinja_close(&j);
}

/* ---- JSON ---- */

static void expect_text(const char *source, const char *vars, const char *want, size_t len) {
    icp_error err = {0};
    jinja_text out = {0};
    jinja *j = open_ok(source);
    if (jinja_render(j, vars, NULL, 0, NULL, &out, &err) < 0) fail_msg("%s: %s", vars, err.text);
    assert_int_equal(out.text.len, len);
    if (len) assert_memory_equal(out.text.data, want, len);
    jinja_text_fini(&out);
    jinja_close(&j);
}
#define EXPECT_TEXT(source, vars, want) expect_text(source, vars, want, sizeof(want) - 1)

static void test_json(void **state) {
    EXPECT_TEXT("{{ a }}", "{\"a\":\"x\\u0000y\"}", "x\0y");
    EXPECT_TEXT("{{ a }}", "{\"a\":\"\\ud83d\\ude00 \\ud83d.\"}", "\xf0\x9f\x98\x80 \xef\xbf\xbd.");
    EXPECT_TEXT("{{ a }}", "{\"a\":1,\"b\":0,\"a\":2}", "2");
    EXPECT_TEXT("{{ d|tojson }}", "{\"d\":{\"z\":1,\"a\":2,\"z\":3}}", "{\"z\": 3, \"a\": 2}");
    EXPECT_TEXT("{{ a }} {{ a + 1 }}", "{\"a\":-9223372036854775808}",
                "-9223372036854775808 -9223372036854775807");
    EXPECT_TEXT("{{ a }}{{ [a]|tojson }}", "{\"a\":18446744073709551615}",
                "18446744073709551615[18446744073709551615]");
    EXPECT_TEXT("{{ a }} {{ b }} {{ c }} {{ d }}", "{\"a\":1e3,\"b\":-0.0,\"c\":-0,\"d\":1E400}",
                "1000.0 -0.0 0 inf");
    expect_error("x", "", ICP_EFORMAT, "variables");
    expect_error("x", "[]", ICP_EFORMAT, "not a JSON object");
    expect_error("x", "null", ICP_EFORMAT, "not a JSON object");
    expect_error("x", "{\"a\":}", ICP_EFORMAT, "variables");
    expect_error("x", "{\"a\":1} x", ICP_EFORMAT, "variables");
    expect_error("x", "{\"a\":\"\xff\"}", ICP_EFORMAT, "variables");
    expect_error("x", "{\"a\":99999999999999999999}", ICP_EFORMAT, "variables");
}

/* Repeats text n times between two ends; free() it. */
static char *repeated(const char *before, const char *text, size_t n, const char *after) {
    size_t len = strlen(text), at = strlen(before);
    char *all = malloc(at + n * len + strlen(after) + 1);
    assert_non_null(all);
    strcpy(all, before);
    for (size_t i = 0; i < n; i++, at += len) memcpy(all + at, text, len);
    strcpy(all + at, after);
    return all;
}

static void test_deep_json(void **state) {
    char *deep = repeated("{\"a\":", "[", 300000, "");
    expect_error("{{ a }}", deep, ICP_EFORMAT, "variables");
    free(deep);
}

/* ---- limits ---- */

static void expect_limit(const char *source, const jinja_opts *limits, const char *part) {
    icp_error err = {0};
    jinja_text out = {0};
    jinja *j = open_ok(source);
    int rc = jinja_render(j, "{}", NULL, 0, limits, &out, &err);
    if (rc != ICP_ELIMIT || !strstr(err.text, part)) fail_msg("%s: %d %s", source, rc, err.text);
    jinja_close(&j);
}

static void test_limits(void **state) {
    static const jinja_opts steps = {.max_steps = 1000}, output = {.max_output = 1000};
    static const jinja_opts memory = {.max_memory = 1 << 20};
    expect_limit("{% for i in range(1000) %}{{ i }}{% endfor %}", &steps, "steps");
    expect_limit("{% for i in range(1000) %}{{ i }}{% endfor %}", &output, "text");
    expect_limit("{{ 'a' * 1001 }}", &output, "text");
    expect_limit("{% set ns = namespace(s='ab') %}{% for i in range(100) %}"
                 "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                 &memory, "memory");
    expect_limit("{% set ns = namespace(s=[1]) %}{% for i in range(100) %}"
                 "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                 NULL, "memory");
    expect_limit("{% set ns = namespace(s='ab') %}{% for i in range(100) %}"
                 "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                 NULL, "t");
    expect_limit("{{ 'a' * 9223372036854775807 }}", NULL, "text");
    expect_limit("{{ [1] * 9223372036854775807 }}", NULL, "too long");
    expect_limit("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
                 NULL, "steps");
    expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL, "deep");
    expect_limit("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", NULL, "deep");
    expect_limit("{% set ns = namespace(x=[]) %}{% for i in range(5000) %}"
                 "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
                 NULL, "deep");
    expect_limit("{% set ns = namespace(x=[]) %}{% for i in range(5000) %}"
                 "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
                 NULL, "deep");
    expect_limit(
        "{% set ns = namespace(x=[], y=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}"
        "{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
        NULL, "deep");
    expect_limit("{% set ns = namespace(x='ab') %}{% for i in range(5000) %}"
                 "{% set ns.x = ns.x|map('upper') %}{% endfor %}{{ ns.x|list }}",
                 NULL, "deep");
    expect_limit("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", NULL, "deep");
}

static void test_deep_templates(void **state) {
    static const struct {
        const char *before, *unit, *after;
    } deep[] = {{"{{ ", "(", ""},
                {"{{ ", "[", ""},
                {"{{ ", "{1:", ""},
                {"{{ ", "not ", "1 }}"},
                {"{{ ", "-", "1 }}"},
                {"{{ a", "[1]", " }}"},
                {"{{ a", ".b", " }}"},
                {"{{ a", "()", " }}"},
                {"{{ a", "|e", " }}"},
                {"{{ a", " + 1", " }}"},
                {"{{ a", " and a", " }}"},
                {"{{ a", " if a else a", " }}"},
                {"{{ a", " is none", " }}"},
                {"", "{% if a %}", ""},
                {"", "{% for a in a %}", ""},
                {"", "{% macro m() %}", ""},
                {"{{ a", " ** a", " }}"},
                {"{% set ", "(", ""}};
    for (size_t i = 0; i < COUNT_OF(deep); i++) {
        char *source = repeated(deep[i].before, deep[i].unit, 300000, deep[i].after);
        icp_error err = {0};
        jinja *j = NULL;
        int rc = jinja_open(source, strlen(source), &j, &err);
        if (rc != ICP_EFORMAT) fail_msg("%s: %d %s", deep[i].unit, rc, err.text);
        free(source);
    }
}

/* Wide is fine where deep is not. */
static void test_wide_templates(void **state) {
    char *source =
        repeated("{% if n == -1 %}", "{% elif n == 2 %}", 20000, "{% else %}x{% endif %}");
    EXPECT_TEXT(source, "{\"n\":1}", "x");
    free(source);
    source = repeated("{% set x = [", "1,", 50000, "] %}{{ x|length }}");
    EXPECT_TEXT(source, "{}", "50000");
    free(source);
    source = repeated("{{ ''", " ~ 'a'", 20000, " == 'b' }}");
    EXPECT_TEXT(source, "{}", "False");
    free(source);
}

/* Strings and lists that grow bit by bit take memory in proportion, not its square. */
static void test_growing_is_linear(void **state) {
    static const jinja_opts limits = {.max_memory = 64 << 20};
    static const char *const loops[] = {"{% set ns.s = ns.s + '0123456789' %}",
                                        "{% set ns.s = ns.s ~ u %}", "{% set ns.l = ns.l + [i] %}",
                                        "{% set ns.s = ns.s + 'a' ~ u + 'b' %}"};
    for (size_t i = 0; i < COUNT_OF(loops); i++) {
        char source[400];
        icp_error err = {0};
        jinja_text out = {0};
        snprintf(source, sizeof source,
                 "{%% set ns = namespace(s='', l=[]) %%}{%% for i in "
                 "range(90000) %%}%s{%% endfor %%}{{ ns.s|length + ns.l|length }}",
                 loops[i]);
        jinja *j = open_ok(source);
        if (jinja_render(j, "{\"u\":\"useruser\"}", NULL, 0, &limits, &out, &err) < 0)
            fail_msg("%s: %s", loops[i], err.text);
        jinja_text_fini(&out);
        jinja_close(&j);
    }
}

/* ---- failing memory ---- */

static const char busy[] =
    "{% macro m(x, y=[1, 2]) %}{{ x|upper }}{{ y|join('-') }}{{ caller() }}{% endmacro %}"
    "{% set ns = namespace(s='', n=0) %}{% for k, v in d|dictsort if v %}"
    "{% set ns.s = ns.s + k ~ v %}{% call m(k, y=v|list) %}{{ loop.index }}{% endcall %}"
    "{% endfor %}{{ ns.s|replace('a', 'bcd') }}{{ d|tojson(indent=2) }}{{ '%5s' % ns.n }}"
    "{{ l|map(attribute='x')|select('string')|sort|list }}{{ 'x' * 5000 }}{{ l|groupby('x')|length "
    "}}";
static const char busy_vars[] =
    "{\"d\":{\"b\":\"xy\",\"a\":\"zw\",\"c\":\"\",\"e1\":\"1\",\"e2\":\"1\",\"e3\":\"1\",\"e4\":"
    "\"1\","
    "\"e5\":\"1\",\"e6\":\"1\",\"e7\":\"1\"},\"l\":[{\"x\":\"q\"},{\"x\":\"p\"}]}";

static void test_failing_memory(void **state) {
    jinja *j = NULL;
    int rc = ICP_ENOMEM;
    for (long n = 0; rc; n++) {
        icp_error err = {0};
        mem_fail_after(n);
        rc = jinja_open(busy, strlen(busy), &j, &err);
        mem_fail_after(-1);
        if (rc) assert_int_equal(err.code, ICP_ENOMEM);
        if (rc) assert_null(j);
    }
    rc = ICP_ENOMEM;
    for (long n = 0; rc; n++) {
        icp_error err = {0};
        jinja_text out = {0};
        mem_fail_after(n);
        rc = jinja_render(j, busy_vars, "{\"t\":[1]}", 0, NULL, &out, &err);
        mem_fail_after(-1);
        if (rc) assert_int_equal(err.code, ICP_ENOMEM);
        if (rc) assert_null(out.text.data);
        jinja_text_fini(&out);
    }
    jinja_close(&j);
}

/* ---- one template, many threads ---- */

static void *render_many(void *arg) {
    jinja *j = arg;
    size_t first = 0;
    for (int i = 0; i < 50; i++) {
        jinja_text out = {0};
        if (jinja_render(j, busy_vars, NULL, 0, NULL, &out, NULL) < 0) return NULL;
        if (i == 0) first = out.text.len;
        bool same = out.text.len == first;
        jinja_text_fini(&out);
        if (!same) return NULL;
    }
    return arg;
}

static void test_threads(void **state) {
    pthread_t threads[4];
    jinja *j = open_ok(busy);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, j), 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, j);
    }
    jinja_close(&j);
}

int main(void) {
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),          cmocka_unit_test(test_origin_sources),
        cmocka_unit_test(test_origin_kept),    cmocka_unit_test(test_origin_structures),
        cmocka_unit_test(test_errors),         cmocka_unit_test(test_raise_is_verbatim),
        cmocka_unit_test(test_json),           cmocka_unit_test(test_deep_json),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_deep_templates),
        cmocka_unit_test(test_wide_templates), cmocka_unit_test(test_growing_is_linear),
        cmocka_unit_test(test_failing_memory), cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
