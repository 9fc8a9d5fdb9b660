/* Masks: the trie, its slices and what is memorised must say what trying every token says; and what
 * a grammar has learnt can be forgotten at any time. */
#include "grammar_bed.h"

#include <string.h>

#include "grammar_internal.h"

static const struct {
    enum source source;
    const char *text;
} grammars[] = {
    {JSON, ""},
    {SCHEMA,
     "{\"properties\":{\"name\":{\"type\":\"string\"},\"kids\":{\"type\":\"array\",\"items\":"
     "{\"$ref\":\"#\"}}},\"required\":[\"name\"]}"},
    {SCHEMA, "{\"items\":{\"type\":\"string\",\"minLength\":3,\"maxLength\":45}}"},
    {SCHEMA, "{\"properties\":{\"abc\":{\"type\":\"number\",\"minimum\":0.5}},"
             "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":9}}"},
    {SCHEMA,
     "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^[^\\\"x]{2,20}$\"},{\"enum\":[\"abc\"]}]}"},
    {SCHEMA, "{\"items\":{\"type\":\"string\",\"maxLength\":3}}"},
    {SCHEMA, "{\"properties\":{\"a\":true,\"ab\":{\"type\":\"integer\"},\"b\":{\"enum\":[1,12]},"
             "\"abc\":{\"type\":\"null\"}},\"required\":[\"b\"]}"},
    {REGEX, "([a-z]{2,40} ){1,3}\\."},
    {REGEX, "([a-z]{1,2}|[a-z]{1,3}x|abcabcabc|[a-m]{4}|[^x]{5})*"}, /* many ways at once */
    {REGEX, "[^x]*x?.{0,12}"},
    {REGEX, "(\xf0\x9f\x98\x80|\xc3\xa9|[\xe4\xb8\x80-\xe9\xbf\xbf])+"},
    {GBNF, "root ::= (word \" \"?){3,}\nword ::= [a-z]+ | [0-9.]{1,4} | \"\\\"\" [^\"]* \"\\\"\""},
    {GBNF, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \" \""},
};

/* Twins of one automaton: tried one by one, with a fresh matcher for every token. */
static bool fits(grammar *g, const buf *text, int32_t token) {
    matcher *m = NULL;
    assert_int_equal(matcher_new(g, &m), 0);
    assert_int_equal(matcher_put(m, text->data ? text->data : "", text->len), 0);
    bool fits = matcher_put_token(m, token) == 0;
    matcher_free(&m);
    return fits;
}

static void check_mask(grammar *g, matcher *m, const buf *text, uint64_t *bits) {
    uint64_t again[3 * 4];
    long n = matcher_mask(m, bits, 12), counted = 0;
    assert_true(n >= 0);
    for (size_t i = 0; i < bed_n_tokens; i++) {
        bool bit = bits[i >> 6] >> (i & 63) & 1;
        if (bit != fits(g, text, (int32_t)i)) fail_msg("token %zu after \"%s\"", i, text->data);
        counted += bit;
    }
    assert_int_equal(counted, n);
    assert_false(bits[BED_EMPTY >> 6] >> (BED_EMPTY & 63) & 1);
    for (size_t i = (bed_n_tokens + 63) / 64; i < 12; i++) assert_true(bits[i] == 0);
    assert_int_equal(matcher_mask(m, again, 12), n);
    assert_memory_equal(again, bits, sizeof again);
}

static int32_t pick(const uint64_t *bits, long n, uint64_t *rng) {
    long nth = bed_random(rng) % n;
    for (int32_t i = 0;; i++)
        if ((bits[i >> 6] >> (i & 63) & 1) && nth-- == 0) return i;
}

static void masks_are_exact(void **state) {
    enum { STEPS = 120, LONGEST = 60 };
    uint64_t bits[12], rng = 5;
    for (size_t i = 0; i < COUNT_OF(grammars); i++) {
        grammar *g = bed_grammar(grammars[i].source, grammars[i].text);
        matcher *m = NULL;
        buf text = {0};
        assert_int_equal(matcher_new(g, &m), 0);
        for (int step = 0; step < STEPS; step++) {
            check_mask(g, m, &text, bits);
            if (matcher_must_end(m) || text.len > LONGEST) {
                matcher_free(&m);
                assert_int_equal(matcher_new(g, &m), 0);
                buf_clear(&text);
                continue;
            }
            long n = matcher_mask(m, bits, 12);
            assert_true(n > 0); /* every byte is a token: there is no dead end */
            int32_t token = pick(bits, n, &rng);
            assert_int_equal(matcher_put_token(m, token), 0);
            buf_put(&text, bed_tokens[token].data, bed_tokens[token].len);
        }
        matcher_free(&m);
        buf_fini(&text);
        grammar_unref(&g);
    }
}

/* A vocabulary without the byte that is needed: nothing fits, and that is said. */
static void says_when_nothing_fits(void **state) {
    static const grammar_str tokens[] = {{"a", 1}, {"b", 1}, {"", 0}};
    grammar_vocab *v = NULL;
    grammar *g = NULL;
    matcher *m = NULL;
    icp_error err;
    uint64_t bits[1];
    assert_int_equal(grammar_vocab_new(tokens, COUNT_OF(tokens), &v), 0);
    assert_int_equal(grammar_from_regex(v, "ax", 2, NULL, &g, &err), 0);
    assert_int_equal(matcher_new(g, &m), 0);
    assert_int_equal(matcher_mask(m, bits, 1), 1);
    assert_true(bits[0] == 1);
    assert_int_equal(matcher_put_token(m, 1), ICP_EINVALID);
    assert_int_equal(matcher_put_token(m, 2), ICP_EINVALID);
    assert_int_equal(matcher_put_token(m, 3), ICP_EINVALID);
    assert_int_equal(matcher_put_token(m, -1), ICP_EINVALID);
    assert_int_equal(matcher_put_token(m, 0), 0);
    assert_int_equal(matcher_mask(m, bits, 1), 0);
    assert_false(matcher_can_end(m));
    matcher_free(&m);
    grammar_unref(&g);
    grammar_vocab_unref(&v);
}

/* Matchers in the middle of texts stay where they are when the automaton forgets all others. */
static void forgets(void **state) {
    enum { MATCHERS = 6, STEPS = 40 };
    uint64_t bits[12], before[12], rng = 9;
    for (size_t i = 0; i < COUNT_OF(grammars); i++) {
        grammar *g = bed_grammar(grammars[i].source, grammars[i].text);
        matcher *m[MATCHERS];
        uint32_t *states[MATCHERS];
        for (int k = 0; k < MATCHERS; k++) {
            assert_int_equal(matcher_new(g, &m[k]), 0);
            states[k] = &m[k]->state;
        }
        for (int step = 0; step < STEPS; step++) {
            for (int k = 0; k < MATCHERS; k++) {
                long n = matcher_mask(m[k], bits, 12);
                if (n > 0) assert_int_equal(matcher_put_token(m[k], pick(bits, n, &rng)), 0);
            }
            int k = step % MATCHERS;
            long n = matcher_mask(m[k], before, 12);
            bool can_end = matcher_can_end(m[k]);
            size_t size = automaton_size(g->automaton);
            assert_int_equal(automaton_collect(g->automaton, states, MATCHERS), 0);
            assert_true(automaton_size(g->automaton) <= size);
            assert_int_equal(matcher_mask(m[k], bits, 12), n);
            assert_memory_equal(bits, before, sizeof bits);
            assert_int_equal(automaton_accepts(g->automaton, m[k]->state), can_end);
        }
        for (int k = 0; k < MATCHERS; k++) matcher_free(&m[k]);
        grammar_unref(&g);
    }
}

/* ---- failing allocations --------------------------------------------------------------------- */

static void survives_compiling_without_memory(void **state) {
    for (size_t i = 0; i < COUNT_OF(grammars); i++) {
        int rc = ICP_ENOMEM;
        for (long n = 0; rc == ICP_ENOMEM; n++) {
            grammar *g = NULL;
            icp_error err = {0};
            mem_fail_after(n);
            rc = bed_compile(grammars[i].source, grammars[i].text, &g, &err);
            mem_fail_after(-1);
            if (rc < 0) assert_true(err.text[0]);
            grammar_unref(&g);
        }
        assert_int_equal(rc, 0);
    }
}

/* A put or mask that fails changes nothing: the same one succeeds later. */
static void survives_matching_without_memory(void **state) {
    uint64_t bits[12], expected[12], rng = 3;
    for (size_t i = 0; i < COUNT_OF(grammars); i++) {
        grammar *g = bed_grammar(grammars[i].source, grammars[i].text);
        grammar *same = bed_grammar(grammars[i].source, grammars[i].text);
        matcher *m = NULL, *twin = NULL;
        assert_int_equal(matcher_new(g, &m), 0);
        assert_int_equal(matcher_new(same, &twin), 0);
        for (int step = 0; step < 25 && !matcher_must_end(twin); step++) {
            long n = matcher_mask(twin, expected, 12), got = ICP_ENOMEM;
            for (long k = 0; got == ICP_ENOMEM; k++) {
                mem_fail_after(k);
                got = matcher_mask(m, bits, 12);
                mem_fail_after(-1);
            }
            assert_int_equal(got, n);
            assert_memory_equal(bits, expected, sizeof bits);
            int32_t token = pick(expected, n, &rng);
            int rc = ICP_ENOMEM;
            for (long k = 0; rc == ICP_ENOMEM; k++) {
                mem_fail_after(k);
                rc = matcher_put_token(m, token);
                mem_fail_after(-1);
            }
            assert_int_equal(rc, 0);
            assert_int_equal(matcher_put_token(twin, token), 0);
        }
        matcher_free(&m);
        matcher_free(&twin);
        grammar_unref(&g);
        grammar_unref(&same);
    }
}

static void survives_opening_without_memory(void **state) {
    int rc = ICP_ENOMEM;
    for (long n = 0; rc == ICP_ENOMEM; n++) {
        grammar_vocab *v = NULL;
        mem_fail_after(n);
        rc = grammar_vocab_new(bed_tokens, bed_n_tokens, &v);
        mem_fail_after(-1);
        grammar_vocab_unref(&v);
    }
    assert_int_equal(rc, 0);
    grammar *g = bed_grammar(JSON, "");
    matcher *m = NULL;
    mem_fail_after(0);
    assert_int_equal(matcher_new(g, &m), ICP_ENOMEM);
    mem_fail_after(-1);
    grammar_unref(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_exact),
        cmocka_unit_test(says_when_nothing_fits),
        cmocka_unit_test(forgets),
        cmocka_unit_test(survives_compiling_without_memory),
        cmocka_unit_test(survives_matching_without_memory),
        cmocka_unit_test(survives_opening_without_memory),
    };
    return cmocka_run_group_tests(tests, bed_open, bed_close);
}
