/* Fuzzes stop strings: some strings, an empty line, and a text that comes in pieces. What is shown
 * must be what a search with memcmp over the whole text finds. */
#include "engine_internal.h"
#include "fuzz.h"

typedef struct strings {
    char *text[4];
    size_t n;
} strings;

/* The first end of any string in text; *index: the longest that ends there, or -1. */
static size_t search(const char *text, size_t len, const strings *s, int *index) {
    *index = -1;
    for (size_t end = 1; end <= len; end++) {
        for (size_t i = 0; i < s->n; i++) {
            size_t k = strlen(s->text[i]);
            if (k > end || memcmp(text + end - k, s->text[i], k)) continue;
            if (*index < 0 || k > strlen(s->text[*index])) *index = (int)i;
        }
        if (*index >= 0) return end;
    }
    return len;
}

static void check(const strings *s, fuzz_input text, uint32_t piece, bool include) {
    arena memory;
    arena_init(&memory);
    stop_set *set;
    uint32_t state[COUNT_OF(s->text)] = {0};
    must(stop_set_new((const char *const *)s->text, s->n, &memory, &set) == 0);
    stop_scan scan = {.set = set, .state = state};
    buf out = {0};
    int wanted, found = -1;
    char *copy = fuzz_copy(text);
    size_t end = search(copy, text.len, s, &wanted);
    for (size_t at = 0; at < text.len && found < 0;) {
        size_t n = MIN(text.len - at, (size_t)(1 + piece % 7));
        found = stop_put(&scan, copy + at, n, include, &out);
        at += n;
        piece = piece * 5 + 3;
    }
    if (found < 0) stop_flush(&scan, &out);
    must(found == wanted);
    size_t shown = wanted < 0 || include ? end : end - strlen(s->text[wanted]);
    must(out.len == shown && (!shown || !memcmp(out.data, copy, shown)));
    free(copy);
    buf_fini(&out);
    buf_fini(&scan.held);
    arena_fini(&memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 512) return 0;
    fuzz_input in = {data, size};
    uint32_t piece = fuzz_byte(&in);
    strings s = {0};
    while (s.n < COUNT_OF(s.text)) {
        fuzz_input line = fuzz_until(&in, '\n');
        if (!line.len) break;
        char *text = fuzz_string(line);
        if (!*text || (s.n && !strcmp(text, s.text[s.n - 1]))) {
            free(text);
            continue;
        }
        s.text[s.n++] = text;
    }
    check(&s, in, piece, piece & 8);
    for (size_t i = 0; i < s.n; i++) free(s.text[i]);
    return 0;
}
