#include "grammar_bed.h"

#include <string.h>

#define T(text)                                                                                    \
    { text, sizeof text - 1 }
static const grammar_str words[] = {
    T(""),
    T("{\""),
    T("\":"),
    T("\": \""),
    T(",\""),
    T("\", \""),
    T("true"),
    T("false"),
    T("null"),
    T("abc"),
    T("abc"),
    T("the"),
    T(" of"),
    T("12"),
    T("0."),
    T("00"),
    T("[["),
    T("]]"),
    T("}}"),
    T("\"}"),
    T("\\u00"),
    T("\n  "),
    T("\xc3\xa9\xc3\x9f"),
    T("\xf0\x9f"),
    T("\x98\x80"),
    T("-0"),
    T("name"),
    T("value"),
    T("\\\""),
    T("root"),
    T("        "),
    T("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    T("{}"),
    T("\xe6\x97\xa5\xe6\x9c"),
    T("e\xcc\x81"),
    T("kids"),
    T("1.5"),
    T("\",\""),
};
#undef T

enum { N_BYTES = 256 };
grammar_str bed_tokens[N_BYTES + COUNT_OF(words)];
const size_t bed_n_tokens = N_BYTES + COUNT_OF(words);
grammar_vocab *bed_vocab;
static char bytes[N_BYTES];

int bed_open(void **state) {
    for (int i = 0; i < N_BYTES; i++) {
        bytes[i] = (char)i;
        bed_tokens[i] = (grammar_str){&bytes[i], 1};
    }
    memcpy(bed_tokens + N_BYTES, words, sizeof words);
    return grammar_vocab_new(bed_tokens, bed_n_tokens, &bed_vocab);
}

int bed_close(void **state) {
    grammar_vocab_unref(&bed_vocab);
    return 0;
}

int bed_compile(enum source source, const char *text, grammar **out, icp_error *err) {
    size_t len = strlen(text);
    switch (source) {
    case GBNF:
        return grammar_from_gbnf(bed_vocab, text, len, NULL, out, err);
    case REGEX:
        return grammar_from_regex(bed_vocab, text, len, NULL, out, err);
    case SCHEMA:
        return grammar_from_schema(bed_vocab, text, len, NULL, out, err);
    default:
        return grammar_from_json(bed_vocab, text, len, NULL, out, err);
    }
}

grammar *bed_grammar(enum source source, const char *text) {
    grammar *g = NULL;
    icp_error err = {0};
    if (bed_compile(source, text, &g, &err) < 0) fail_msg("%.300s: %s", text, err.text);
    return g;
}

bool bed_accepts(grammar *g, const char *text, size_t len) {
    matcher *m = NULL;
    assert_int_equal(matcher_new(g, &m), 0);
    int rc = matcher_put(m, text, len);
    bool accepted = rc == 0 && matcher_can_end(m);
    assert_true(rc == 0 || rc == ICP_EINVALID);
    matcher_free(&m);
    return accepted;
}

uint32_t bed_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static int32_t choose(const uint64_t *bits, long n, size_t step, uint64_t *rng) {
    enum { CLOSING = 60 }; /* steps after which a text is brought to its end */
    static const char closing[] = "\"}]0,:aeln1b.-";
    for (const char *c = closing; step > CLOSING && *c && bed_random(rng) % 4; c++)
        if (bits[*c >> 6] >> (*c & 63) & 1) return *c;
    long nth = bed_random(rng) % n;
    for (size_t i = 0;; i++)
        if ((bits[i >> 6] >> (i & 63) & 1) && nth-- == 0) return (int32_t)i;
}

/* Walks at most so many steps; false: the text is not at its end. */
static bool walk(grammar *g, uint64_t seed, size_t most, buf *out) {
    uint64_t bits[8], rng = seed;
    matcher *m = NULL;
    bool ended = false;
    assert_int_equal(matcher_new(g, &m), 0);
    buf_clear(out);
    for (size_t step = 0; step < most && !ended; step++) {
        ended = matcher_must_end(m) || (matcher_can_end(m) && bed_random(&rng) % 6 == 0);
        if (ended) break;
        long n = matcher_mask(m, bits, COUNT_OF(bits));
        if (n <= 0) fail_msg("stuck after %s", out->data ? out->data : "");
        int32_t token = choose(bits, n, step, &rng);
        assert_int_equal(matcher_put_token(m, token), 0);
        buf_put(out, bed_tokens[token].data, bed_tokens[token].len);
    }
    buf_puts(out, "");
    matcher_free(&m);
    return ended;
}

void bed_walk(grammar *g, uint64_t seed, buf *out) {
    enum { MOST_STEPS = 4000 };
    assert_true(walk(g, seed, MOST_STEPS, out));
}

void bed_start(grammar *g, uint64_t seed, buf *out) {
    enum { STEPS = 200 };
    walk(g, seed, STEPS, out);
}
