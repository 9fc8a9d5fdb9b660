/* Strict tools in every dialect: random texts of the grammar of calls for random schemas, read by
 * the parser of answers, give arguments that are valid under the schemas. Once with the marks as
 * special tokens, once spelled in letters. Validity is checked by schema_check.c, which knows
 * neither grammars nor dialects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "chat.h"
#include "grammar_bed.h"
#include "json.h"
#include "schema_check.h"
#include "strict_grammar.h"

static const char *const dialects[] = {
    "harmony",     "atem",      "kimi-k3",     "deepseek-dsml", "deepseek-dsml-3.2",
    "deepseek-r1", "solar",     "kimi-k2",     "deepseek-v3.1", "functionary-3.1",
    "mistral-id",  "mistral",   "seed",        "mistral-nemo",  "minimax-m3",
    "minimax-m2",  "minicpm",   "qwen3-coder", "hunyuan",       "glm",
    "lfm2",        "gemma4",    "gemma3",      "functiongemma", "command-r7b",
    "command-r",   "apertus",   "nemotron",    "apriel",        "tool-calls",
    "gigachat3.1", "gigachat3", "hermes",      "granite",       "firefunction",
    "llama3",      "pythonic",  "generic",
};

/* ---- random tools ---------------------------------------------------------------------------- */

static uint32_t pick(uint64_t *rng, uint32_t n) {
    return bed_random(rng) % n;
}

/* A schema of some type; {D}: place for a reference. */
static void put_schema(uint64_t *rng, int depth, buf *out) {
    static const char *const leaves[] = {
        "{\"type\":\"string\"}",
        "{\"type\":\"string\"}",
        "{\"type\":\"string\",\"maxLength\":5}",
        "{\"type\":\"string\",\"minLength\":2,\"maxLength\":9}",
        "{\"enum\":[\"a\",\"b c\",\"\\u00e9\",\"<x>\"]}",
        "{\"type\":\"string\",\"enum\":[\"null\",\"1\",\"true\"]}",
        "{\"const\":\"it's \\\"so\\\"\\n\"}",
        "{\"type\":\"integer\"}",
        "{\"type\":\"integer\",\"minimum\":-3,\"maximum\":120}",
        "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1.5}",
        "{\"type\":\"boolean\"}",
        "{\"type\":\"null\"}",
        "{\"type\":[\"string\",\"null\"]}",
        "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4},{\"type\":\"null\"}]}",
        "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}",
        "{\"type\":[\"string\",\"integer\"],\"maxLength\":6}",
        "{\"enum\":[\"x\",null,7,true]}",
        "{\"enum\":[1,2.5,null]}",
        "{\"oneOf\":[{\"type\":\"boolean\"},{\"type\":\"array\",\"items\":{\"enum\":[\"y\"]}}]}",
        "{\"$ref\":\"#/$defs/pair\"}",
        "{}",
    };
    uint32_t kind = pick(rng, depth ? COUNT_OF(leaves) + 8 : COUNT_OF(leaves));
    if (kind < COUNT_OF(leaves)) {
        buf_puts(out, leaves[kind]);
    } else if (kind % 2) {
        buf_puts(out, "{\"type\":\"array\",\"maxItems\":3,\"items\":");
        put_schema(rng, depth - 1, out);
        buf_puts(out, "}");
    } else {
        buf_puts(out, "{\"type\":\"object\",\"properties\":{\"k\":");
        put_schema(rng, depth - 1, out);
        buf_puts(out, ",\"l m\":");
        put_schema(rng, depth - 1, out);
        buf_puts(out, "},\"required\":[\"k\"],\"additionalProperties\":false}");
    }
}

/* The parameters of a function. */
static void put_parameters(uint64_t *rng, buf *out) {
    static const char *const names[] = {"city", "days", "a_b", "x-1", "long name", "q"};
    uint32_t n = pick(rng, COUNT_OF(names) + 1), needed = bed_random(rng);
    bool first = true;
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (uint32_t i = 0; i < n; i++) {
        buf_printf(out, "%s\"%s\":", i ? "," : "", names[i]);
        put_schema(rng, 2, out);
    }
    buf_puts(out, "},\"required\":[");
    for (uint32_t i = 0; i < n; i++) {
        if (!(needed >> i & 1)) continue;
        buf_printf(out, "%s\"%s\"", first ? "" : ",", names[i]);
        first = false;
    }
    buf_puts(out, "],\"additionalProperties\":false,\"$defs\":{\"pair\":{\"type\":\"object\","
                  "\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":3},\"n\":{\"type\":"
                  "\"integer\"}},\"required\":[\"s\"],\"additionalProperties\":false}}}");
}

static void put_tools(uint64_t *rng, buf *out) {
    buf_puts(out, "[{\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"strict\":true,"
                  "\"parameters\":");
    put_parameters(rng, out);
    buf_puts(out, "}},{\"type\":\"function\",\"function\":{\"name\":\"look\",\"strict\":true,"
                  "\"parameters\":");
    put_parameters(rng, out);
    buf_puts(out, "}},{\"type\":\"function\",\"function\":{\"name\":\"free\"}}]");
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

/* Whether a vocabulary with special tokens has this one. */
static bool is_special(void *arg, const char *text, size_t len) {
    static const char bar[] = "\uFF5C";
    if (len < 3) return false;
    if (len > 6 && !memcmp(text, bar, 3)) return !memcmp(text + len - 3, bar, 3);
    char close = *text == '<' ? '>' : *text == '[' ? ']' : 0;
    const char *end = close ? memchr(text, close, len) : NULL;
    return end == text + len - 1 && !memchr(text, '=', len) && !memchr(text, ' ', len);
}

enum { N_BYTES = 256, MOST_TOKENS = N_BYTES + 40 };
typedef struct tokens {
    grammar_str token[MOST_TOKENS];
    char bytes[N_BYTES];
    buf names;
    size_t n;
} tokens;

static grammar_vocab *open_vocab(const chat_strict *calls, tokens *t) {
    grammar_vocab *v = NULL;
    *t = (tokens){.n = N_BYTES};
    for (int i = 0; i < N_BYTES; i++) {
        t->bytes[i] = (char)i;
        t->token[i] = (grammar_str){&t->bytes[i], i < 0xf8};
    }
    buf_put(&t->names, "", 1); /* so that it grows now, and not below */
    for (size_t i = 0; i < calls->n_tokens; i++)
        buf_printf(&t->names, "\xff%s\xfe", calls->tokens[i]);
    const char *at = t->names.data + 1;
    for (size_t i = 0; i < calls->n_tokens; i++) {
        size_t len = strlen(calls->tokens[i]) + 2;
        t->token[t->n++] = (grammar_str){at, len};
        at += len;
    }
    t->token[t->n++] = (grammar_str){GRAMMAR_OTHER, 1};
    assert_int_equal(grammar_vocab_new(t->token, t->n, &v), 0);
    return v;
}

/* ---- texts of a grammar ---------------------------------------------------------------------- */

static grammar *compile(const chat_strict *s, grammar_vocab *v, const char *tools) {
    grammar *g = NULL;
    icp_error err = {0};
    if (strict_grammar(v, s, NULL, &g, &err) < 0) fail_msg("%s: %s", tools, err.text);
    return g;
}

/* Puts one of the marks that end what is open, if it fits. */
static bool close_something(matcher *m, const chat_strict *s, uint64_t *rng, buf *out) {
    static const char *const ends[] = {"\"", "}", "]", ")", ","};
    const char *marks[COUNT_OF(ends) + 3] = {s->value_end, s->quote, s->section_end};
    memcpy(marks + 3, ends, sizeof ends);
    size_t first = pick(rng, COUNT_OF(marks));
    for (size_t i = 0; i < COUNT_OF(marks); i++) {
        const char *mark = marks[(i + first) % COUNT_OF(marks)];
        if (!mark || matcher_put(m, mark, strlen(mark)) < 0) continue;
        buf_puts(out, mark);
        return true;
    }
    return false;
}

/* One more token; of texts, rather short ones. */
static void go_on(matcher *m, const tokens *t, uint64_t *rng, buf *out) {
    uint64_t bits[(MOST_TOKENS + 63) / 64];
    long n = matcher_mask(m, bits, COUNT_OF(bits));
    if (n <= 0) fail_msg("stuck after %s", out->data);
    long nth = pick(rng, (uint32_t)n);
    size_t i = 0;
    for (;; i++)
        if ((bits[i >> 6] >> (i & 63) & 1) && nth-- == 0) break;
    assert_int_equal(matcher_put_token(m, (int32_t)i), 0);
    buf_put(out, t->token[i].data, t->token[i].len);
}

/* A text with one call or more; text before it. */
static void walk(grammar *g, const chat_strict *s, const tokens *t, uint64_t *rng, buf *out) {
    enum { SHORT = 60, MOST = 6000 };
    matcher *m = NULL;
    const char *first = s->section && (!s->call || pick(rng, 4)) ? s->section : s->call;
    const char bare[] = {s->bare, 0};
    if (s->bare && pick(rng, 2)) first = bare;
    assert_int_equal(matcher_new(g, &m), 0);
    buf_clear(out);
    for (const char *say = first == bare || s->message ? "" : "So: \xc3\xa9<\n"; *say; say++) {
        assert_int_equal(matcher_put(m, say, 1), 0);
        buf_putc(out, *say);
    }
    if (matcher_put(m, first, strlen(first)) < 0) fail_msg("no %s", first);
    buf_puts(out, first);
    for (int step = 0;; step++) {
        if (matcher_must_end(m) || (matcher_can_end(m) && pick(rng, 3))) break;
        if (matcher_can_end(m) && step > SHORT) break;
        if (step > MOST) fail_msg("no end: %s", out->data);
        bool closes = step > SHORT || pick(rng, 12) == 0;
        if (!closes || pick(rng, 4) == 0 || !close_something(m, s, rng, out)) go_on(m, t, rng, out);
    }
    matcher_free(&m);
}

/* ---- what the parser makes of them ----------------------------------------------------------- */

static void put(chat_parser *p, const char *text, size_t len, enum chat_origin origin) {
    assert_int_equal(chat_parser_put(p, text, len, origin, true), 0);
}

/* Feeds a text as tokens would come: special ones whole, others in bytes. */
static void feed(chat_parser *p, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        const char *end = text[i] == '\xff' ? memchr(text + i, '\xfe', len - i) : NULL;
        if (end) {
            put(p, text + i + 1, (size_t)(end - text) - i - 1, CHAT_CONTROL);
            i = (size_t)(end - text);
        } else if (text[i] == *GRAMMAR_OTHER) {
            put(p, "<other>", 7, CHAT_CONTROL);
        } else {
            put(p, text + i, 1, CHAT_ORDINARY);
        }
    }
    assert_int_equal(chat_parser_finish(p), 0);
}

static void check_call(json_object *tools, const char *name, const buf *arguments,
                       const char *text) {
    json_object *value = NULL, *schema = NULL, *function = NULL;
    enum json_tokener_error why;
    size_t end;
    int rc = json_read(arguments->data, arguments->len, 200, &value, &why, &end);
    if (rc < 0 || why != json_tokener_success || !json_object_is_type(value, json_type_object))
        fail_msg("%s\n  is called with %s", text, arguments->data);
    for (size_t i = 0; i < json_object_array_length(tools); i++) {
        json_object *named = NULL;
        json_object_object_get_ex(json_object_array_get_idx(tools, i), "function", &function);
        json_object_object_get_ex(function, "name", &named);
        if (!strcmp(json_object_get_string(named), name)) break;
        function = NULL;
    }
    if (!function) fail_msg("%s\n  calls %s", text, name);
    if (json_object_object_get_ex(function, "parameters", &schema) &&
        !schema_allows(schema, schema, value))
        fail_msg("%s\n  is read as  %s\n  under  %s", text, arguments->data,
                 json_object_to_json_string(schema));
    json_object_put(value);
}

/* How many calls there are, all of them valid. */
static int check(chat_parser *p, json_object *tools, const char *text) {
    icp_chat_delta d;
    char name[64] = "";
    buf arguments = {0};
    int n = 0;
    while (chat_parser_next(p, &d)) {
        if (d.kind == ICP_CHAT_CALL) {
            snprintf(name, sizeof name, "%.*s", (int)d.len, d.text);
            buf_clear(&arguments);
        }
        if (d.kind == ICP_CHAT_ARGUMENTS) buf_put(&arguments, d.text, d.len);
        if (d.kind != ICP_CHAT_CALL_END) continue;
        buf_puts(&arguments, "");
        check_call(tools, name, &arguments, text);
        n++;
    }
    buf_fini(&arguments);
    return n;
}

static void try_dialect(const char *name, bool special, uint64_t seed, int n_texts) {
    uint64_t rng = seed;
    buf tools = {0}, text = {0};
    tokens t;
    chat_strict s;
    icp_error err = {0};
    put_tools(&rng, &tools);
    chat_strict_opts opts = {.style = chat_style_named(name),
                             .tools_json = tools.data,
                             .is_special = special ? is_special : NULL};
    if (!opts.style.calls) fail_msg("no dialect %s", name);
    if (chat_strict_calls(&opts, &s, &err) < 0) fail_msg("%s: %s", name, err.text);
    if (!s.n) fail_msg("%s has no form", name);
    grammar_vocab *v = open_vocab(&s, &t);
    grammar *g = compile(&s, v, tools.data);
    for (int i = 0; i < n_texts; i++) {
        const chat_parser_opts parsing = {.style = opts.style,
                                          .tools_json = tools.data,
                                          .marked = true,
                                          .is_special = opts.is_special};
        chat_parser *p = NULL;
        walk(g, &s, &t, &rng, &text);
        assert_int_equal(chat_parser_open(&parsing, &p, &err), 0);
        if (s.message) assert_int_equal(chat_parser_prompt(p, "<|start|>assistant", 18), 0);
        feed(p, text.data, text.len);
        if (!check(p, s.tools, text.data))
            fail_msg("%s, seed %d: no call in %s", name, (int)seed, text.data);
        chat_parser_close(&p);
    }
    grammar_unref(&g);
    grammar_vocab_unref(&v);
    chat_strict_fini(&s);
    buf_fini(&t.names);
    buf_fini(&tools);
    buf_fini(&text);
}

static void test_dialects(void **state) {
    for (size_t i = 0; i < COUNT_OF(dialects); i++)
        for (uint64_t seed = 1; seed <= 16; seed++)
            try_dialect(dialects[i], seed % 2 || !strcmp(dialects[i], "harmony"), seed * 1000 + i,
                        4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dialects)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
