/* Marks of a chat: they stand where pieces end in the prompt, and the prompt is the same without.
 */
#include "base.h"
#include "chat.h"
#include "cmocka_tests.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

static const char *const templates[] = {
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}",
    "{% for m in messages %}[{{ m.role|upper }}] {{ m.content|trim }}\n{% endfor %}",
    "{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endfor %}",
    "{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{% if loop.last %}LAST {% "
    "endif %}{{ m.content.split('</think>')[-1] }};{% endfor %}",
    "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no') "
    "}}{% endif %}<{{ m.content }}>{% endfor %}",
};

struct template {
    jinja *jinja;
    icp_chat_caps caps;
    chat_style style;
};

static int render_as(const struct template *t, json_object *vars, bool marked, jinja_text *out) {
    const jinja_opts opts = {.marked = marked};
    return jinja_render(t->jinja,
                        json_object_to_json_string_ext(vars, JSON_C_TO_STRING_PLAIN |
                                                                 JSON_C_TO_STRING_NOSLASHESCAPE),
                        NULL, 0, &opts, out, NULL);
}

static int render(void *arg, json_object *vars, jinja_text *out) {
    return render_as(arg, vars, false, out);
}

static void open_template(struct template *t, const char *source) {
    *t = (struct template){0};
    assert_int_equal(jinja_open(source, strlen(source), &t->jinja, NULL), 0);
    assert_int_equal(chat_caps_probe(source, render, t, &t->caps, &t->style), 0);
}

/* The prompt of a chat; marks NULL: without any. */
static char *prompt_of(const struct template *t, const char *json, bool ends, chat_marks *marks) {
    json_object *vars = json_tokener_parse(json);
    chat_marks none, *m = marks ? marks : &none;
    jinja_text out = {0};
    assert_non_null(vars);
    assert_int_equal(chat_marks_put(vars, json, ends, m), 0);
    assert_int_equal(chat_input_adapt(&t->caps, vars, NULL), 0);
    assert_int_equal(render_as(t, vars, m->n > 0, &out), 0);
    chat_marks_find(m, &out);
    buf_puts(&out.text, "");
    char *text = mem_strdup(out.text.data);
    jinja_text_fini(&out);
    json_object_put(vars);
    return text;
}

/* Where the texts end that these marks should be behind. */
static void expect(const chat_marks *marks, const char *prompt, const char *const *ends,
                   const double *ttl, size_t n) {
    assert_int_equal(marks->n, n);
    for (size_t i = 0; i < n; i++) {
        const char *at = strstr(prompt, ends[i]);
        assert_non_null(at);
        assert_int_equal(marks->mark[i].at, (size_t)(at - prompt) + strlen(ends[i]));
        assert_true(marks->mark[i].ttl == ttl[i]);
    }
}

#define SAY(role, text, more) "{\"role\":\"" role "\",\"content\":\"" text "\"" more "}"
#define CHAT(messages, more) "{\"messages\":[" messages "]" more "}"

static void test_places(void **state) {
    static const char plain[] =
        CHAT(SAY("user", "alpha  \\n", "") "," SAY("assistant", "beta \\u00e9",
                                                   "") "," SAY("user", "gamma", ""),
             ",\"tools\":null");
    static const char broken[] =
        CHAT(SAY("user", "alpha.middle  \\n", ",\"breakpoints\":[[6,300],[99,60]]") "," SAY(
                 "assistant", "beta", "") "," SAY("user", "gamma", ",\"breakpoints\":[[5,3600]]"),
             ",\"tools\":null");
    for (size_t i = 0; i < COUNT_OF(templates); i++) {
        struct template t;
        chat_marks marks;
        open_template(&t, templates[i]);
        char *text = prompt_of(&t, plain, true, &marks), *bare = prompt_of(&t, plain, false, NULL);
        static const char *const ends[] = {"alpha", "beta \xc3\xa9", "gamma"};
        expect(&marks, text, ends, (double[]){0, 0, 0}, 3);
        assert_string_equal(text, bare);
        mem_free(text);
        text = prompt_of(&t, broken, true, &marks);
        static const char *const pieces[] = {"alpha.", "alpha.middle", "beta", "gamma"};
        expect(&marks, text, pieces, (double[]){300, 60, 0, 3600}, 4);
        mem_free(text);
        text = prompt_of(&t, broken, false, &marks); /* only what was asked for */
        assert_int_equal(marks.n, 3);
        assert_null(strstr(text, "breakpoint"));
        mem_free(text);
        mem_free(bare);
        jinja_close(&t.jinja);
    }
}

static void test_tools(void **state) {
    static const char chat[] = CHAT(
        SAY("user", "hi", ""),
        ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
        "\"object\",\"required\":[\"first\",\"last\"],\"n\":1}},\"breakpoint\":300},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]");
    for (size_t i = 0; i < 4; i += 3) { /* one without a place for tools, one with it */
        struct template t;
        chat_marks marks;
        open_template(&t, templates[i]);
        char *text = prompt_of(&t, chat, false, &marks);
        expect(&marks, text, (const char *const[]){"\"last"}, (double[]){300}, 1);
        assert_null(strstr(text, "breakpoint"));
        mem_free(text);
        jinja_close(&t.jinja);
    }
}

/* Of ever so many messages few are marked, the last ones and some before; of breakpoints the last
 * four. */
static void test_bounds(void **state) {
    enum { N = 2000 };
    buf chat = {0};
    struct template t;
    chat_marks marks;
    open_template(&t, templates[0]);
    buf_puts(&chat, "{\"messages\":[");
    for (int i = 0; i < N; i++)
        buf_printf(&chat,
                   "%s{\"role\":\"user\",\"content\":\"message %d of a long conversation\","
                   "\"breakpoints\":[[3,60]]}",
                   i ? "," : "", i);
    buf_puts(&chat, "]}");
    char *text = prompt_of(&t, chat.data, true, &marks);
    size_t len = strlen(text), n_breakpoints = 0, n_ends = 0, before = 0;
    for (size_t i = marks.n; i-- > 0;) {
        size_t distance = len - marks.mark[i].at;
        assert_true(i + 1 == marks.n || marks.mark[i].at < marks.mark[i + 1].at);
        n_breakpoints += marks.mark[i].ttl > 0;
        if (marks.mark[i].ttl > 0) continue;
        if (n_ends++ >= 4) assert_in_range(distance, 2 * before - 100, 2 * before + 100);
        before = distance;
    }
    assert_int_equal(n_breakpoints, 4);
    assert_in_range(n_ends, 10, 24);
    assert_true(before > len / 4); /* the first one is far back */
    mem_free(text);
    buf_fini(&chat);
    jinja_close(&t.jinja);
}

/* Text that has the characters of marks itself stays as it is. */
static void test_characters_of_marks(void **state) {
    static const char *const chats[] = {
        CHAT(SAY("user", "a" TEXT_MARK_LEAD "\x81 b", ",\"breakpoints\":[[1,60]]"), ""),
        CHAT(SAY("user", "a\\uDBFF\\udf81 b", ",\"breakpoints\":[[1,60]]"), ""),
    };
    struct template t;
    chat_marks marks;
    open_template(&t, templates[0]);
    for (size_t i = 0; i < COUNT_OF(chats); i++) {
        char *text = prompt_of(&t, chats[i], true, &marks);
        assert_string_equal(text, "<|user|>a" TEXT_MARK_LEAD "\x81 b<|end|>");
        assert_int_equal(marks.n, 0);
        mem_free(text);
    }
    jinja_close(&t.jinja);
}

static void test_odd_chats(void **state) {
    static const char *const chats[] = {
        CHAT(SAY("user", "", ",\"breakpoints\":[[0,60],[7,1]]"), ""),
        CHAT(SAY("user", "  \\n ", ",\"breakpoints\":[[3,60]]"), ""),
        CHAT(SAY("user", "x", ",\"breakpoints\":7"), ""),
        CHAT(SAY("user", "x", ",\"breakpoints\":[7,[],[-1,5],[1,-5],[\"x\",null]]"), ""),
        "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"breakpoints\":[[1,1]]}]}",
        CHAT(SAY("user", "x", ""),
             ",\"tools\":[{\"breakpoint\":60},{\"a\":\"\",\"breakpoint\":1}]"),
    };
    struct template t;
    open_template(&t, templates[3]);
    for (size_t i = 0; i < COUNT_OF(chats); i++)
        for (int ends = 0; ends < 2; ends++) {
            json_object *vars = json_tokener_parse(chats[i]);
            chat_marks marks;
            jinja_text out = {0};
            assert_int_equal(chat_marks_put(vars, chats[i], ends, &marks), 0);
            if (chat_input_adapt(&t.caps, vars, NULL) == 0 &&
                render_as(&t, vars, marks.n > 0, &out) == 0) {
                chat_marks_find(&marks, &out);
                for (size_t k = 0; k < out.text.len; k++)
                    assert_true((unsigned char)out.text.data[k] < 0x80);
                assert_true(marks.n <= (size_t)ends);
            }
            jinja_text_fini(&out);
            json_object_put(vars);
        }
    jinja_close(&t.jinja);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),    cmocka_unit_test(test_tools),
        cmocka_unit_test(test_bounds),    cmocka_unit_test(test_characters_of_marks),
        cmocka_unit_test(test_odd_chats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
