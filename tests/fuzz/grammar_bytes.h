/* What the fuzz targets of grammars share: a vocabulary of all bytes and a few words, and texts
 * that are made of it. */
#ifndef GRAMMAR_BYTES_H
#define GRAMMAR_BYTES_H

#include "fuzz.h"
#include "grammar.h"

enum { N_BYTES = 256, N_WORDS = 8, N_TOKENS = N_BYTES + N_WORDS, N_MASK = (N_TOKENS + 63) / 64 };

static const grammar_limits fuzz_limits = {.steps = 200000, .memory = 8 << 20};

static inline grammar_vocab *open_bytes(void) {
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
    must(grammar_vocab_new(tokens, N_TOKENS, &v) == 0);
    return v;
}

/* Takes the tokens that the input chooses among those that fit: each must be accepted, and leave a
 * text that can go on. */
static inline void make_text(grammar *g, fuzz_input in) {
    uint64_t bits[N_MASK];
    matcher *m = NULL;
    must(matcher_new(g, &m) == 0);
    for (uint32_t step = 0; step < 40 && !matcher_must_end(m); step++) {
        long n = matcher_mask(m, bits, N_MASK);
        if (n == ICP_ELIMIT) break;
        must(n > 0); /* every byte is a token: there is no dead end */
        long nth = (long)((in.len ? in.data[step % in.len] : 0) + step * 7) % n;
        int32_t token = 0;
        while (!(bits[token >> 6] >> (token & 63) & 1) || nth-- > 0) token++;
        must(matcher_put_token(m, token) == 0);
    }
    matcher_free(&m);
}

#endif
