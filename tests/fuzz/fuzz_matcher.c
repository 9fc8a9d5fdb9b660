/* Fuzzes a matcher with tokens: the first byte is the grammar, the rest are tokens. A token is
 * taken exactly when its bit is in the mask, and exactly when its bytes are taken one by one. */
#include "grammar_bytes.h"

static grammar *open_grammar(grammar_vocab *v, uint32_t which) {
    static const char *const gbnf[] = {
        "root ::= \"(\" root \")\" | [a-c]+ | \"\\xc3\" [\\x80-\\xff]",
        "root ::= item{2,4} (\" \" item)*\nitem ::= [^\"\\\\] | \"true\" | \"tr\" [a-z]?",
    };
    static const char *const schemas[] = {
        "true",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":5},"
        "\"b\":{\"type\":\"integer\",\"minimum\":-12,\"maximum\":120}},\"required\":[\"b\"]}",
        "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"array\",\"maxItems\":3,\"items\":"
        "{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"enum\":[\"abc\",12,true,\"\\u00e9\"]}]}}}}",
    };
    grammar *g = NULL;
    int rc;
    which %= COUNT_OF(gbnf) + COUNT_OF(schemas);
    if (which < COUNT_OF(gbnf))
        rc = grammar_from_gbnf(v, gbnf[which], strlen(gbnf[which]), NULL, &g, NULL);
    else
        rc = grammar_from_schema(v, schemas[which - COUNT_OF(gbnf)],
                                 strlen(schemas[which - COUNT_OF(gbnf)]), NULL, &g, NULL);
    must(rc == 0);
    return g;
}

static bool put_bytes(matcher *m, const char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (matcher_put(m, bytes + i, 1) < 0) return false;
    return true;
}

static void step(matcher *m, matcher *twin, int32_t token) {
    static const char *const words[N_WORDS] = {"{\"",  "\":", ",\"", "\"}",
                                               "true", "abc", "12",  "\xc3\xa9\xc3"};
    uint64_t bits[N_MASK];
    char byte = (char)token;
    const char *bytes = token < N_BYTES ? &byte : words[token - N_BYTES];
    size_t len = token < N_BYTES ? 1 : strlen(words[token - N_BYTES]);
    must(matcher_mask(m, bits, N_MASK) >= 0);
    bool fits = bits[token >> 6] >> (token & 63) & 1;
    must((matcher_put_token(m, token) == 0) == fits);
    if (fits) must(put_bytes(twin, bytes, len));
    must(matcher_can_end(m) == matcher_can_end(twin));
    must(matcher_must_end(m) == matcher_must_end(twin));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static grammar_vocab *v;
    static grammar *grammars[8];
    if (!v) v = open_bytes();
    fuzz_input in = {data, size};
    uint32_t which = fuzz_byte(&in) % COUNT_OF(grammars);
    if (!grammars[which]) grammars[which] = open_grammar(v, which);
    matcher *m = NULL, *twin = NULL;
    must(matcher_new(grammars[which], &m) == 0 && matcher_new(grammars[which], &twin) == 0);
    for (int n = 0; in.len && n < 200; n++) {
        uint32_t token = fuzz_byte(&in);
        if (token >= N_BYTES - N_WORDS) token += N_WORDS; /* no text has these bytes */
        step(m, twin, (int32_t)token);
    }
    matcher_free(&m);
    matcher_free(&twin);
    return 0;
}
