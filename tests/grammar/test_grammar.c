/* Grammars in their own notations: what they accept, what they refuse, and how they say so. */
#include "grammar_bed.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar_internal.h"

/* ---- GBNF ------------------------------------------------------------------------------------ */

#define MOST_TEXTS 8
typedef struct gbnf_case {
    const char *source, *accepted[MOST_TEXTS], *refused[MOST_TEXTS];
} gbnf_case;

/* After the notation's description in the documentation of llama.cpp. */
static const gbnf_case gbnf_cases[] = {
    {"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
    {"root ::= \"a\" | \"b\" \"c\"", {"a", "bc"}, {"b", "ac", ""}},
    {"root ::= [a-cx] [^0-9]", {"a!", "xy", "c\xc3\xa9"}, {"d!", "a0", "a"}},
    {"root ::= \"a\"* \"b\"+ \"c\"?", {"b", "aabb", "bc"}, {"", "a", "c", "acb"}},
    {"root ::= (\"a\" | \"b\" \"c\"){2}", {"aa", "abc", "bcbc"}, {"a", "aaa", "bcb"}},
    {"root ::= \"a\"{2,}", {"aa", "aaaa"}, {"a", ""}},
    {"root ::= \"a\"{,2}", {"", "a", "aa"}, {"aaa"}},
    {"root ::= \"a\"{1,2} \"b\"", {"ab", "aab"}, {"b", "aaab"}},
    {"root ::= x y # a comment\nx ::= \"1\"\n\n# another\ny ::=\n  \"2\" |\n  \"3\"\n",
     {"12", "13"},
     {"1", "11"}},
    {"root ::= (\n \"a\"\n | \"b\"\n)\n", {"a", "b"}, {"ab"}},
    {"root ::= | \"a\"", {"", "a"}, {"b"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\\\\\"\"",
     {"A\xc3\xa9\xf0\x9f\x98\x80\n\t\\\""},
     {"A"}},
    {"root ::= .", {"a", "\n", "\xf0\x9f\x98\x80"}, {"", "aa", "\xf0\x9f\x98", "\xff"}},
    {"root ::= [\\]\\[\\\\-]+", {"]", "[\\-"}, {"a"}},
    {"root ::= [\xe4\xb8\x80-\xe9\xbf\xbf]", {"\xe6\x97\xa5"}, {"a", "\xe3\x81\x82"}},
    {"root ::= \"(\" root? \")\"", {"()", "((()))"}, {"(", "(()", ")("}},
    {"root ::= \"a\" root | \"a\"", {"a", "aaaa"}, {"", "ab"}},
    {"root ::= (\"a\"? \"b\"?)* \"c\"", {"c", "abc", "bbaac"}, {"ab"}},
    {"root ::= (\"a\"?){3} \"b\"", {"b", "ab", "aaab"}, {"aaaab"}},
    {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
     {"", "ab", "aabc", "aaacbc"},
     {"a", "abb"}},
    {"root ::= (\"a\" | \"aa\"){2,3} \"b\"", {"aab", "aaaaaab"}, {"ab", "aaaaaaab"}},
    {"root ::= a a\na ::= b{2}\nb ::= [xy]{1,2}", {"xxyy", "xyxyxyxy"}, {"xxx", "xyxyxyxyx"}},
    {"root ::= \"ab\" | \"abc\" | \"abd\" x | \"b\"\nx ::= \"e\"",
     {"ab", "abc", "abde", "b"},
     {"abd", "a"}},
};

static void gbnf_agrees(void **state) {
    for (size_t i = 0; i < COUNT_OF(gbnf_cases); i++) {
        const gbnf_case *c = &gbnf_cases[i];
        grammar *g = bed_grammar(GBNF, c->source);
        for (int k = 0; k < MOST_TEXTS; k++) {
            const char *good = c->accepted[k], *bad = c->refused[k];
            if (good && !bed_accepts(g, good, strlen(good))) fail_msg("%s: %s", c->source, good);
            if (bad && bed_accepts(g, bad, strlen(bad))) fail_msg("%s: not %s", c->source, bad);
        }
        grammar_unref(&g);
    }
}

/* Every .gbnf file in the folder that INCIPIT_GBNF_DIR names loads, and texts can be made of it. */
static void loads_a_folder(void **state) {
    const char *folder = getenv("INCIPIT_GBNF_DIR");
    DIR *dir = folder ? opendir(folder) : NULL;
    if (!dir) skip();
    buf text = {0};
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[1024], source[65536];
        if (!strstr(entry->d_name, ".gbnf")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        source[fread(source, 1, sizeof source - 1, f)] = '\0';
        fclose(f);
        grammar *g = bed_grammar(GBNF, source);
        for (uint64_t seed = 0; seed < 3; seed++) {
            bed_start(g, seed, &text);
            assert_false(text.failed);
        }
        grammar_unref(&g);
    }
    closedir(dir);
    buf_fini(&text);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void says_what_is_wrong(void **state) {
    static const struct {
        enum source source;
        const char *text;
        int code;
        const char *says;
    } table[] = {
        {GBNF, "", ICP_EINVALID, "no rule \"root\""},
        {GBNF, "a ::= \"x\"", ICP_EINVALID, "no rule \"root\""},
        {GBNF, "root ::= foo", ICP_EINVALID, "\"foo\" is not defined"},
        {GBNF, "root ::= \"a\"\nroot ::= \"b\"", ICP_EINVALID, "line 2: a rule is defined"},
        {GBNF, "root := \"a\"", ICP_EINVALID, "::= is expected"},
        {GBNF, "root ::= \"a", ICP_EINVALID, "not closed"},
        {GBNF, "root ::= [a", ICP_EINVALID, "not closed"},
        {GBNF, "root ::= [z-a]", ICP_EINVALID, "range"},
        {GBNF, "root ::= (\"a\"", ICP_EINVALID, "closing parenthesis"},
        {GBNF, "root ::= \"a\"{5,2}", ICP_EINVALID, "minimum (5) above its maximum (2)"},
        {GBNF, "root ::= \"a\"{x}", ICP_EINVALID, "malformed"},
        {GBNF, "root ::= \"a\" )", ICP_EINVALID, "not understood"},
        {GBNF, "root ::= \"\\q\"", ICP_EINVALID, "bad escape"},
        {GBNF, "root ::= \"\xff\"", ICP_EINVALID, "UTF-8"},
        {GBNF, "root ::= root \"a\" | \"b\"", ICP_EUNSUPPORTED, "left recursion"},
        {GBNF, "root ::= x root \"a\" | \"b\"\nx ::= \"y\"?", ICP_EUNSUPPORTED, "left recursion"},
        {GBNF, "root ::= \"a\" root", ICP_EINVALID, "no text can"},
        {GBNF, "root ::= (\"a\"?){0,1000}", ICP_ELIMIT, "empty"},
        {REGEX, "(", ICP_EINVALID, "not closed"},
        {REGEX, "a)", ICP_EINVALID, "closes no group"},
        {REGEX, "*", ICP_EINVALID, "nothing to repeat"},
        {REGEX, "a**", ICP_EINVALID, "nothing to repeat"},
        {REGEX, "a{5,2}", ICP_EINVALID, "minimum (5)"},
        {REGEX, "[z-a]", ICP_EINVALID, "reversed"},
        {REGEX, "[a", ICP_EINVALID, "not closed"},
        {REGEX, "(?=a)", ICP_EUNSUPPORTED, "look-around"},
        {REGEX, "(?i)a", ICP_EUNSUPPORTED, "flags"},
        {REGEX, "(a)\\1", ICP_EUNSUPPORTED, "escape"},
        {REGEX, "\\ba", ICP_EUNSUPPORTED, "escape"},
        {REGEX, "a^b", ICP_EUNSUPPORTED, "^ and $"},
        {REGEX, "a\\", ICP_EINVALID, "escape"},
        {REGEX, "\\p{L}", ICP_EUNSUPPORTED, "escape"},
        {SCHEMA, "", ICP_EINVALID, "JSON"},
        {SCHEMA, "[]", ICP_EINVALID, "object or a boolean"},
        {SCHEMA, "null", ICP_EINVALID, "object or a boolean"},
        {SCHEMA, "{\"type\":\"text\"}", ICP_EINVALID, "\"text\" is no type"},
        {SCHEMA, "{\"type\":7}", ICP_EINVALID, "type"},
        {SCHEMA, "false", ICP_EINVALID, "no text can"},
        {SCHEMA, "{\"minLength\":5,\"maxLength\":2}", ICP_EINVALID, "minLength is greater"},
        {SCHEMA, "{\"minItems\":5,\"maxItems\":2}", ICP_EINVALID, "minItems is greater"},
        {SCHEMA, "{\"minLength\":\"x\"}", ICP_EINVALID, "whole number"},
        {SCHEMA, "{\"minimum\":\"x\"}", ICP_EINVALID, "number"},
        {SCHEMA, "{\"minimum\":5,\"maximum\":4}", ICP_EINVALID, "no text can"},
        {SCHEMA, "{\"enum\":[]}", ICP_EINVALID, "not empty"},
        {SCHEMA, "{\"anyOf\":[]}", ICP_EINVALID, "not empty"},
        {SCHEMA, "{\"properties\":[]}", ICP_EINVALID, "properties"},
        {SCHEMA, "{\"required\":[1]}", ICP_EINVALID, "required"},
        {SCHEMA, "{\"$ref\":\"#/nowhere\"}", ICP_EINVALID, "leads nowhere"},
        {SCHEMA, "{\"$ref\":\"http://x/y\"}", ICP_EUNSUPPORTED, "only"},
        {SCHEMA, "{\"$ref\":\"#\"}", ICP_EINVALID, "circle"},
        {SCHEMA, "{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", ICP_EINVALID,
         "no text can"},
        {SCHEMA, "{\"patternProperties\":{}}", ICP_EUNSUPPORTED, "patternProperties"},
        {SCHEMA, "{\"not\":{}}", ICP_EUNSUPPORTED, "not"},
        {SCHEMA, "{\"multipleOf\":2}", ICP_EUNSUPPORTED, "multipleOf"},
        {SCHEMA, "{\"uniqueItems\":true}", ICP_EUNSUPPORTED, "uniqueItems"},
        {SCHEMA, "{\"pattern\":\"(\"}", ICP_EINVALID, "not closed"},
        {SCHEMA, "{\"pattern\":\"ab\",\"minLength\":3}", ICP_EUNSUPPORTED, "beside this pattern"},
        {SCHEMA, "{\"format\":\"date\",\"maxLength\":3}", ICP_EINVALID, "no text can"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        grammar *g = NULL;
        icp_error err = {0};
        int rc = bed_compile(table[i].source, table[i].text, &g, &err);
        if (rc != table[i].code || err.code != rc || !strstr(err.text, table[i].says))
            fail_msg("%s: %d %s", table[i].text, rc, err.text);
    }
}

/* ---- choices --------------------------------------------------------------------------------- */

static void chooses(void **state) {
    static const grammar_str texts[] = {{"yes", 3}, {"no", 2}, {"not sure", 8}, {"no", 2}};
    grammar *g = NULL;
    icp_error err;
    assert_int_equal(grammar_from_choices(bed_vocab, texts, COUNT_OF(texts), NULL, &g, &err), 0);
    assert_true(bed_accepts(g, "yes", 3) && bed_accepts(g, "no", 2));
    assert_true(bed_accepts(g, "not sure", 8) && !bed_accepts(g, "not", 3));
    assert_false(bed_accepts(g, "", 0));
    grammar_unref(&g);
    assert_int_equal(grammar_from_choices(bed_vocab, texts, 0, NULL, &g, &err), ICP_EINVALID);
    static const grammar_str empty[] = {{"", 0}}, broken[] = {{"\xc3", 1}};
    assert_int_equal(grammar_from_choices(bed_vocab, empty, 1, NULL, &g, &err), ICP_EINVALID);
    assert_int_equal(grammar_from_choices(bed_vocab, broken, 1, NULL, &g, &err), ICP_EINVALID);
}

/* ---- JSON's own rules ------------------------------------------------------------------------ */

static void json_is_json(void **state) {
    static const char *const good[] = {"{}", "{\"a\":1}", "{ \"a\": [1, 2.5e-3, true, null] }",
                                       "{\n  \"a\": \"\\u00e9\\n\"\n}",
                                       "{\"\":{\"b\":[]},\"c\":-0.5}"};
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{\"a\":}",
                                      "{a:1}",
                                      "{\"a\":01}",
                                      "{\"a\":1,}",
                                      "{\"a\":.5}",
                                      "{\"a\":\"\n\"}",
                                      "{\"a\":\"\\ud800\"}",
                                      "{} ",
                                      "{\"a\":\"\xff\"}"};
    grammar *g = bed_grammar(JSON, "");
    for (size_t i = 0; i < COUNT_OF(good); i++)
        if (!bed_accepts(g, good[i], strlen(good[i]))) fail_msg("%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (bed_accepts(g, bad[i], strlen(bad[i]))) fail_msg("not %s", bad[i]);
    grammar_unref(&g);
}

/* ---- properties ------------------------------------------------------------------------------ */

enum { N_PROPERTIES = 6 };
static const char *const properties[N_PROPERTIES] = {"b", "a", "abc", "ab", "\xc3\xa9", "ba"};

static void put_member(buf *out, const char *name) {
    buf_printf(out, "%s\"%s\": 1", out->data[out->len - 1] == '{' ? "" : ", ", name);
}

static void put_schema(buf *out, unsigned needed, bool open) {
    buf_printf(out, "{\"additionalProperties\":%s,\"properties\":{", open ? "true" : "false");
    for (int i = 0; i < N_PROPERTIES; i++)
        buf_printf(out, "%s\"%s\":{\"type\":\"integer\"}", i ? "," : "", properties[i]);
    buf_puts(out, "},\"required\":[");
    for (int i = 0, n = 0; i < N_PROPERTIES; i++)
        if (needed >> i & 1) buf_printf(out, "%s\"%s\"", n++ ? "," : "", properties[i]);
    buf_puts(out, "]}");
}

/* Every subset of some properties, in order: it fits exactly when it has all that are required;
 * with another one behind them, when there may be others; and never with two the other way round,
 * or one twice. */
static void properties_come_in_order(void **state) {
    enum { ALL = 1 << N_PROPERTIES };
    for (unsigned needed = 0; needed < ALL; needed += 1 + needed % 3) {
        bool open = needed & 1;
        buf schema = {0}, text = {0};
        put_schema(&schema, needed, open);
        grammar *g = bed_grammar(SCHEMA, schema.data);
        for (unsigned set = 0; set < ALL; set++) {
            bool fits = (set & needed) == needed;
            buf_clear(&text);
            buf_puts(&text, "{");
            for (int i = 0; i < N_PROPERTIES; i++)
                if (set >> i & 1) put_member(&text, properties[i]);
            size_t len = text.len;
            buf_puts(&text, "}");
            assert_int_equal(bed_accepts(g, text.data, text.len), fits);
            text.len = len;
            put_member(&text, "other");
            buf_puts(&text, "}");
            assert_int_equal(bed_accepts(g, text.data, text.len), fits && open);
            int last = set ? 31 - __builtin_clz(set) : 0;
            for (int i = 0; set && i <= last; i++) {
                text.len = len;
                put_member(&text, properties[i]);
                buf_puts(&text, "}");
                assert_false(bed_accepts(g, text.data, text.len));
            }
        }
        grammar_unref(&g);
        buf_fini(&schema);
        buf_fini(&text);
    }
}

static void blanks_end(void **state) {
    grammar *g = bed_grammar(JSON, "");
    matcher *m = NULL;
    assert_int_equal(matcher_new(g, &m), 0);
    assert_int_equal(matcher_put(m, "{\n", 2), 0);
    int n = 0;
    while (matcher_put(m, " ", 1) == 0) n++;
    assert_int_equal(n, 32);
    assert_int_equal(matcher_put(m, "}", 1), 0);
    assert_true(matcher_must_end(m));
    matcher_free(&m);
    grammar_unref(&g);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void repeat_text(buf *b, const char *text, int n) {
    for (int i = 0; i < n; i++) buf_puts(b, text);
}

/* Compiles, and takes a mask when that succeeds: an answer or a sentence, in bounded time. */
static void survive(enum source source, buf *text) {
    grammar *g = NULL;
    icp_error err = {0};
    uint64_t bits[8];
    assert_false(text->failed);
    if (bed_compile(source, text->data, &g, &err) == 0) {
        matcher *m = NULL;
        assert_int_equal(matcher_new(g, &m), 0);
        assert_true(matcher_mask(m, bits, COUNT_OF(bits)) > 0 || matcher_can_end(m));
        matcher_free(&m);
        grammar_unref(&g);
    } else {
        assert_true(err.text[0]);
    }
    buf_clear(text);
}

static void survives_hostile_grammars(void **state) {
    buf b = {0};
    buf_puts(&b, "root ::= ");
    repeat_text(&b, "(", 20000);
    buf_puts(&b, "\"a\"");
    repeat_text(&b, ")", 20000);
    survive(GBNF, &b);
    repeat_text(&b, "(", 20000);
    survive(REGEX, &b);
    repeat_text(&b, "(a+)+|", 5000);
    survive(REGEX, &b);
    buf_puts(&b, "root ::= \"x\"");
    for (int i = 0; i < 200000; i++) buf_printf(&b, " | \"x%d\"", i);
    survive(GBNF, &b);
    buf_puts(&b, "root ::= [a-z] \"!\"");
    repeat_text(&b, " | [a-z] \"?\"", 200000);
    survive(GBNF, &b);
    buf_puts(&b, "root ::= r1\n");
    for (int i = 1; i < 20000; i++) buf_printf(&b, "r%d ::= r%d\n", i, i + 1);
    buf_puts(&b, "r20000 ::= \"a\"");
    survive(GBNF, &b);
    buf_puts(&b, "root ::= \"a\"");
    repeat_text(&b, "*", 20000);
    survive(GBNF, &b);
    buf_puts(&b, "((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}");
    survive(REGEX, &b);
    buf_puts(&b, "((((a{9,1000}){9,1000}){9,1000}){9,1000}){9,1000}");
    survive(REGEX, &b);
    buf_fini(&b);
}

static void survives_hostile_schemas(void **state) {
    buf b = {0};
    buf_puts(&b, "{\"enum\":[0");
    for (int i = 0; i < 5000; i++) buf_printf(&b, ",\"value %d\"", i);
    buf_puts(&b, "]}");
    survive(SCHEMA, &b);
    for (int more = 0; more < 2; more++) {
        buf_puts(&b, "{\"properties\":{\"a\":{}");
        for (int i = 0; i < 10000; i++) buf_printf(&b, ",\"p%d\":{\"type\":\"string\"}", i);
        buf_puts(&b, more ? "},\"additionalProperties\":{}}" : "}}");
        survive(SCHEMA, &b);
    }
    repeat_text(&b, "[", 100000);
    survive(SCHEMA, &b);
    repeat_text(&b, "{\"items\":", 120);
    buf_puts(&b, "{}");
    repeat_text(&b, "}", 120);
    survive(SCHEMA, &b);
    buf_puts(&b, "{\"allOf\":[{}");
    for (int i = 0; i < 40; i++)
        buf_printf(&b, ",{\"anyOf\":[{\"minimum\":%d},{\"maximum\":%d}]}", i, i + 100);
    buf_puts(&b, "]}");
    survive(SCHEMA, &b);
    buf_puts(&b, "{\"$defs\":{\"d0\":{}");
    for (int i = 1; i < 60; i++)
        buf_printf(&b,
                   ",\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}",
                   i, i - 1, i - 1);
    buf_puts(&b, "},\"$ref\":\"#/$defs/d59\"}");
    survive(SCHEMA, &b);
    buf_puts(&b, "{\"minLength\":1000000,\"maxLength\":2000000}");
    survive(SCHEMA, &b);
    buf_fini(&b);
}

static void can_be_cancelled(void **state) {
    atomic_bool stop = true;
    grammar_limits limits = {.cancel = &stop};
    grammar *g = NULL;
    icp_error err;
    const char *text = "root ::= [a-z]+";
    assert_int_equal(grammar_from_gbnf(bed_vocab, text, strlen(text), &limits, &g, &err),
                     ICP_ECANCELLED);
    limits = (grammar_limits){.steps = 10};
    assert_int_equal(grammar_from_gbnf(bed_vocab, text, strlen(text), &limits, &g, &err),
                     ICP_ELIMIT);
    limits = (grammar_limits){.memory = 40};
    assert_int_equal(grammar_from_gbnf(bed_vocab, text, strlen(text), &limits, &g, &err),
                     ICP_ELIMIT);
}

static void nests_deeply(void **state) {
    enum { DEPTH = 100000 };
    grammar *g = bed_grammar(GBNF, "root ::= \"[\" root? \"]\"");
    matcher *m = NULL;
    assert_int_equal(matcher_new(g, &m), 0);
    for (int i = 0; i < DEPTH; i++) assert_int_equal(matcher_put(m, "[", 1), 0);
    for (int i = 0; i < DEPTH; i++) {
        assert_false(matcher_can_end(m));
        assert_int_equal(matcher_put(m, "]", 1), 0);
    }
    assert_true(matcher_must_end(m));
    matcher_free(&m);
    grammar_unref(&g);
}

/* Right recursion is a tail call: nothing piles up. */
static void tails_take_no_memory(void **state) {
    grammar *g = bed_grammar(GBNF, "root ::= \"a\" root | \"b\"");
    matcher *m = NULL;
    assert_int_equal(matcher_new(g, &m), 0);
    assert_int_equal(matcher_put(m, "aaaa", 4), 0);
    size_t before = automaton_size(g->automaton);
    for (int i = 0; i < 10000; i++) assert_int_equal(matcher_put(m, "a", 1), 0);
    assert_int_equal(automaton_size(g->automaton), before);
    matcher_free(&m);
    grammar_unref(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gbnf_agrees),
        cmocka_unit_test(loads_a_folder),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(chooses),
        cmocka_unit_test(json_is_json),
        cmocka_unit_test(properties_come_in_order),
        cmocka_unit_test(blanks_end),
        cmocka_unit_test(survives_hostile_grammars),
        cmocka_unit_test(survives_hostile_schemas),
        cmocka_unit_test(can_be_cancelled),
        cmocka_unit_test(nests_deeply),
        cmocka_unit_test(tails_take_no_memory),
    };
    return cmocka_run_group_tests(tests, bed_open, bed_close);
}
