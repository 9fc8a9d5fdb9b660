#include "text_bed.h"
#include "cmocka_tests.h"
#include "vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tokenizer *bed_open_file(const char *path) {
    gguf *g = NULL;
    tokenizer *t = NULL;
    icp_error err = {0};
    if (gguf_open(path, &g, &err) || vocab_open(g, &t, &err)) fail_msg("%s: %s", path, err.text);
    gguf_close(&g);
    return t;
}

tokenizer *bed_open_golden(const char *model) {
    char path[4096];
    snprintf(path, sizeof path, "%s/models/%s.gguf", GOLDEN_DIR, model);
    return bed_open_file(path);
}

void bed_each_line(const char *name, void (*line)(char **fields, void *arg), void *arg) {
    char path[4096], *text = NULL;
    size_t cap = 0;
    snprintf(path, sizeof path, "%s/%s", GOLDEN_DIR, name);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("cannot open %s", path);
    for (ssize_t len; (len = getline(&text, &cap, f)) > 0;) {
        text[len - 1] = '\0';
        char *fields[4] = {"", "", "", ""}, *rest = text;
        for (int i = 0; i < 4 && rest; i++) fields[i] = strsep(&rest, "\t");
        line(fields, arg);
    }
    free(text);
    fclose(f);
}

size_t bed_unhex(char *hex) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        hex[i] = (char)strtoul(digits, NULL, 16);
    }
    return n;
}

size_t bed_numbers(const char *text, int32_t *out, size_t max) {
    size_t n = 0;
    char *end;
    for (long value; n < max && (value = strtol(text, &end, 10), end != text); text = end)
        out[n++] = (int32_t)value;
    return n;
}

void bed_expect_ids(const tokenizer *t, const char *text, size_t len, unsigned flags,
                    const int32_t *ids, size_t n) {
    token_ids got = {0};
    assert_int_equal(tokenizer_encode(t, text, len, NULL, flags, &got), 0);
    size_t same = 0;
    while (same < n && same < got.n && got.id[same] == ids[same]) same++;
    if (same < n || same < got.n) {
        print_error("text '%.*s': token %zu is %d, not %d\n", (int)MIN(len, (size_t)200), text,
                    same, same < got.n ? got.id[same] : -1, same < n ? ids[same] : -1);
        fail();
    }
    token_ids_fini(&got);
}

void bed_repair(const char *text, size_t len, buf *out) {
    for (size_t i = 0; i < len;) {
        int32_t cp;
        int step = utf8_decode(text + i, len - i, &cp);
        buf_put(out, cp < 0 ? "\xEF\xBF\xBD" : text + i, cp < 0 ? 3 : (size_t)step);
        i += (size_t)step;
    }
}

static text_str copy(bed_vocab *b, const char *text) {
    size_t len = strlen(text);
    char *data = arena_alloc(&b->mem, len + 1);
    assert_non_null(data);
    memcpy(data, text, len + 1);
    return (text_str){data, len};
}

void bed_vocab_init(bed_vocab *b, const char *model, const char *pre) {
    memset(b, 0, sizeof *b);
    arena_init(&b->mem);
    b->vocab = (text_vocab){.model = copy(b, model),
                            .tokens = b->tokens,
                            .types = b->types,
                            .scores = b->scores,
                            .merges = b->merges,
                            .bos = -1,
                            .eos = -1,
                            .eot = -1,
                            .unk = -1,
                            .sep = -1,
                            .add_bos = -1,
                            .add_eos = -1,
                            .add_space_prefix = -1,
                            .lowercase = -1,
                            .strip_accents = -1};
    if (pre) b->vocab.pre = copy(b, pre);
    int n_moved = 0;
    for (int byte = 0; byte < 256; byte++) {
        char name[8] = {0};
        if (strcmp(model, "gpt2")) {
            snprintf(name, sizeof name, "<0x%02X>", byte);
            bed_add(b, name, TOKEN_BYTE, 0);
            continue;
        }
        bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
        utf8_encode(printable ? byte : 256 + n_moved++, name);
        bed_add(b, name, TOKEN_NORMAL, 0);
    }
}

void bed_vocab_fini(bed_vocab *b) {
    arena_fini(&b->mem);
}

int32_t bed_add(bed_vocab *b, const char *token, enum token_type type, float score) {
    size_t id = b->vocab.n_tokens++;
    assert_true(id < BED_MAX);
    b->tokens[id] = copy(b, token);
    b->types[id] = type;
    b->scores[id] = score;
    return (int32_t)id;
}

void bed_merge(bed_vocab *b, const char *left, const char *right) {
    char line[256];
    snprintf(line, sizeof line, "%s %s", left, right);
    assert_true(b->vocab.n_merges < BED_MAX);
    b->merges[b->vocab.n_merges++] = copy(b, line);
}

tokenizer *bed_open(bed_vocab *b) {
    tokenizer *t = NULL;
    icp_error err = {0};
    if (tokenizer_open(&b->vocab, &t, &err)) fail_msg("%s", err.text);
    return t;
}

uint32_t bed_random(uint64_t *state, uint32_t below) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)((*state >> 33) % below);
}
