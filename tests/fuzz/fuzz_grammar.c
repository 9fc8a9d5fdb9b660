/* Fuzzes the compilers of grammars and what they make: the first byte says what the rest is (g:
 * GBNF, r: regular expression, s: JSON Schema, c: choices, a line each). Of a grammar that
 * compiles, a text is made with tokens of its masks, each of which must be accepted and leave a
 * text that can go on. */
#include <stdlib.h>
#include <string.h>

#include "grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_BYTES = 256, N_WORDS = 8, N_TOKENS = N_BYTES + N_WORDS };

static grammar_vocab *open_vocab(void) {
    static char bytes[N_BYTES];
    static const char *const words[N_WORDS] = {"{\"",  "\":", ",\"", "\"}",
                                               "true", "abc", "12",  "\xc3\xa9\xc3"};
    grammar_str tokens[N_TOKENS];
    grammar_vocab *v = NULL;
    for (int i = 0; i < N_BYTES; i++) {
        bytes[i] = (char)i;
        tokens[i] = (grammar_str){&bytes[i], 1};
    }
    for (int i = 0; i < N_WORDS; i++)
        tokens[N_BYTES + i] = (grammar_str){words[i], strlen(words[i])};
    if (grammar_vocab_new(tokens, N_TOKENS, &v) < 0) abort();
    return v;
}

static int from_lines(grammar_vocab *v, const char *text, size_t len, const grammar_limits *limits,
                      grammar **out, icp_error *err) {
    enum { MOST_LINES = 64 };
    grammar_str lines[MOST_LINES];
    size_t n = 0;
    for (size_t at = 0; at < len && n < MOST_LINES; n++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line = end ? (size_t)(end - text) - at : len - at;
        lines[n] = (grammar_str){text + at, line};
        at += line + 1;
    }
    return grammar_from_choices(v, lines, n, limits, out, err);
}

static int compile(grammar_vocab *v, uint8_t kind, const char *text, size_t len, grammar **out,
                   icp_error *err) {
    const grammar_limits limits = {.steps = 200000, .memory = 8 << 20};
    switch (kind) {
    case 'g':
        return grammar_from_gbnf(v, text, len, &limits, out, err);
    case 'r':
        return grammar_from_regex(v, text, len, &limits, out, err);
    case 's':
        return grammar_from_schema(v, text, len, &limits, out, err);
    default:
        return from_lines(v, text, len, &limits, out, err);
    }
}

/* Takes the tokens that the input's own bytes choose among those that fit. */
static void make_text(grammar *g, const uint8_t *data, size_t size) {
    uint64_t bits[(N_TOKENS + 63) / 64];
    matcher *m = NULL;
    if (matcher_new(g, &m) < 0) abort();
    for (size_t step = 0; step < 40 && !matcher_must_end(m); step++) {
        long n = matcher_mask(m, bits, sizeof bits / sizeof bits[0]);
        if (n == ICP_ELIMIT) break;
        if (n <= 0) abort(); /* every byte is a token: there is no dead end */
        long nth = (data[step % size] + (long)step * 7) % n;
        int32_t token = 0;
        while (!(bits[token >> 6] >> (token & 63) & 1) || nth-- > 0) token++;
        if (matcher_put_token(m, token) < 0) abort();
    }
    matcher_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static grammar_vocab *v;
    if (!v) v = open_vocab();
    if (size < 2) return 0;
    char *text = malloc(size); /* of its own, so that a step too far is seen */
    if (!text) return 0;
    memcpy(text, data + 1, size - 1);
    grammar *g = NULL;
    icp_error err = {0};
    int rc = compile(v, data[0], text, size - 1, &g, &err);
    if (rc == ICP_EBUG || (rc < 0 && !err.text[0])) abort();
    if (rc == 0) make_text(g, data, size);
    grammar_unref(&g);
    free(text);
    return 0;
}
