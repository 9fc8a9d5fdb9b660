/* Fuzzes a tokenizer, of the golden model MODEL: any bytes, each marked as the template's or the
 * user's. What encoding gives is in the vocabulary and, as far as it keeps them, decodes to the
 * same bytes; user text never becomes a control token. */
#include <stdio.h>

#include "fuzz.h"
#include "vocab.h"

static tokenizer *open_golden(void) {
    const char *path = GOLDEN_DIR "/models/" MODEL ".gguf";
    gguf *g = NULL;
    tokenizer *t = NULL;
    icp_error err = {0};
    must(gguf_open(path, &g, &err) == 0 && vocab_open(g, &t, &err) == 0);
    gguf_close(&g);
    return t;
}

static void check_ids(const tokenizer *t, const token_ids *ids, bool trusted) {
    for (size_t i = 0; i < ids->n; i++) {
        must(ids->id[i] >= 0 && (size_t)ids->id[i] < tokenizer_n(t));
        must(trusted || tokenizer_type(t, ids->id[i]) != TOKEN_CONTROL);
    }
}

/* The same text is the same ids, and its decoding encodes to a text of the same bytes again. */
static void check_round(const tokenizer *t, const token_ids *ids) {
    token_ids again = {0};
    buf text = {0}, twice = {0};
    must(tokenizer_decode(t, ids->id, ids->n, false, &text) == 0);
    must(tokenizer_encode(t, text.len ? text.data : "", text.len, NULL, 0, &again) == 0);
    must(tokenizer_decode(t, again.id, again.n, false, &twice) == 0);
    bool whole = true; /* unknown characters print as something else */
    for (size_t i = 0; i < ids->n; i++) whole &= tokenizer_type(t, ids->id[i]) != TOKEN_UNKNOWN;
    must(!whole ||
         (text.len == twice.len && (!text.len || !memcmp(text.data, twice.data, text.len))));
    token_ids_fini(&again);
    buf_fini(&text);
    buf_fini(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tokenizer *t;
    if (!t) t = open_golden();
    fuzz_input in = {data, size};
    uint32_t flags = fuzz_byte(&in), from = fuzz_byte(&in);
    char *text = fuzz_copy(in);
    uint8_t *origin = malloc(in.len + 1);
    must(origin != NULL);
    for (size_t i = 0; i < in.len; i++)
        origin[i] = i >= from && flags & 4 ? TEXT_TEMPLATE : TEXT_USER;
    token_ids ids = {0};
    must(tokenizer_encode(t, text, in.len, origin, flags & TOKENIZE_BOS, &ids) == 0);
    check_ids(t, &ids, flags & (4 | TOKENIZE_BOS));
    token_ids_fini(&ids);
    must(tokenizer_encode(t, text, in.len, NULL, 0, &ids) == 0);
    check_ids(t, &ids, false);
    check_round(t, &ids);
    token_ids_fini(&ids);
    free(origin);
    free(text);
    return 0;
}
