/* Fuzzes the incremental detokenizer: the input are tokens of one or two bytes each. What comes out
 * piece by piece is valid UTF-8 each, and together what decoding at once and repairing gives. */
#include "fuzz.h"
#include "text.h"

static tokenizer *open_bytes(void) {
    static char names[258][8];
    static text_str tokens[258];
    static int32_t types[258];
    static float scores[258];
    for (int i = 0; i < 256; i++) {
        static const char digits[] = "0123456789ABCDEF";
        memcpy(names[i], "<0x00>", 7);
        names[i][3] = digits[i >> 4];
        names[i][4] = digits[i & 15];
        types[i] = TOKEN_BYTE;
    }
    memcpy(names[256], "\xe2\x96\x81w", 5);
    memcpy(names[257], "<end>", 6);
    types[256] = TOKEN_NORMAL;
    types[257] = TOKEN_CONTROL;
    for (int i = 0; i < 258; i++) tokens[i] = (text_str){names[i], strlen(names[i])};
    text_vocab vocab = {.model = {"llama", 5},
                        .n_tokens = 258,
                        .tokens = tokens,
                        .types = types,
                        .scores = scores,
                        .bos = -1,
                        .eos = 257,
                        .eot = -1,
                        .unk = -1,
                        .add_space_prefix = 1};
    tokenizer *t = NULL;
    must(tokenizer_open(&vocab, &t, NULL) == 0);
    return t;
}

/* The text without its brokenness, by the naive reading of Unicode's table 3-7. */
static void repair(const char *text, size_t len, buf *out) {
    for (size_t i = 0; i < len;) {
        int32_t cp;
        int step = utf8_decode(text + i, len - i, &cp);
        buf_put(out, cp < 0 ? "\xEF\xBF\xBD" : text + i, cp < 0 ? 3 : (size_t)step);
        i += (size_t)step;
    }
}

static void must_be_whole(const char *text, size_t len) {
    for (size_t i = 0; i < len;) {
        int32_t cp;
        i += (size_t)utf8_decode(text + i, len - i, &cp);
        must(cp >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tokenizer *t;
    if (!t) t = open_bytes();
    if (size > 4096) return 0;
    fuzz_input in = {data, size};
    bool skip = fuzz_byte(&in) & 1;
    int32_t ids[4096];
    size_t n = 0;
    while (in.len) {
        int32_t id = (int32_t)fuzz_byte(&in);
        ids[n++] = id == 0xfe ? 256 : id == 0xff ? 257 : id; /* bytes that no text has */
    }
    detok d;
    buf pieces = {0}, raw = {0}, whole = {0};
    detok_init(&d, t, skip);
    for (size_t i = 0; i < n; i++) {
        size_t before = pieces.len;
        detok_put(&d, ids[i], &pieces);
        if (pieces.len > before) must_be_whole(pieces.data + before, pieces.len - before);
    }
    detok_flush(&d, &pieces);
    must(tokenizer_decode(t, ids, n, skip, &raw) == 0);
    repair(raw.data, raw.len, &whole);
    must(pieces.len == whole.len && (!whole.len || !memcmp(pieces.data, whole.data, whole.len)));
    buf_fini(&pieces);
    buf_fini(&raw);
    buf_fini(&whole);
    return 0;
}
