/* Whole vocabularies of published models, in the folder INCIPIT_VOCAB_DIR. They are too large to
 * keep here (tools/fetch-vocabularies brings them); without the variable the tests skip.
 *
 *   X.gguf.inp, X.gguf.out   texts separated by a line "__ggml_vocab_test__", ids a line (the form
 *                            of llama.cpp's models folder)
 *   X.gguf.ids               text in hex, ids, a line (golden/make/tokenizer.py --vocabularies) */
#include "cmocka_tests.h"
#include "text_bed.h"
#include "tokenizer_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char separator[] = "\n__ggml_vocab_test__\n";

static char *read_file(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    buf text = {0};
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) buf_put(&text, block, n);
    fclose(f);
    return text.data;
}

static bool encodes_to(const tokenizer *t, const char *text, size_t len, const char *line) {
    static int32_t want[1 << 16];
    size_t n = bed_numbers(line, want, COUNT_OF(want));
    token_ids got = {0};
    assert_int_equal(tokenizer_encode(t, text, len, NULL, 0, &got), 0);
    bool same = n == got.n && (!n || !memcmp(want, got.id, n * sizeof *want));
    if (!same) print_message("  differs: '%.*s'\n", (int)MIN(len, (size_t)60), text);
    token_ids_fini(&got);
    return same;
}

/* Whether normalisation leaves a text alone. */
static bool is_normal(const char *text, size_t len) {
    buf made = {0};
    assert_int_equal(nfc_normalize(text, len, &made), 0);
    bool same = made.len == len && (!len || !memcmp(made.data, text, len));
    buf_fini(&made);
    return same;
}

/* Returns the number of texts that come out differently. The cases of one vocabulary lack the
 * normalisation that the model was trained with: of these, texts that it leaves alone. */
static int check_vocab(const char *path, char *inputs, char *outputs) {
    bool all = !strstr(path, "qwen35");
    tokenizer *t = bed_open_file(path);
    int n = 0, wrong = 0;
    for (char *text = inputs, *rest = outputs, *line; text && (line = strsep(&rest, "\n")); n++) {
        char *end = strstr(text, separator);
        size_t len = end ? (size_t)(end - text) : strlen(text);
        if (all || is_normal(text, len))
            wrong += !encodes_to(t, text, len, line);
        else
            n--;
        text = end ? end + strlen(separator) : NULL;
    }
    print_message("%s: %d of %d texts equal\n", path, n - wrong, n);
    tokenizer_close(&t);
    return wrong;
}

/* Calls check, which returns the number of texts that come out differently, for each vocabulary. */
static void for_each_vocab(int (*check)(const char *path)) {
    const char *dir = getenv("INCIPIT_VOCAB_DIR");
    if (!dir) {
        print_message("skipped: INCIPIT_VOCAB_DIR is not set\n");
        skip();
    }
    DIR *d = opendir(dir);
    assert_non_null(d);
    int wrong = 0;
    for (struct dirent *entry; (entry = readdir(d));) {
        size_t len = strlen(entry->d_name);
        char path[4096];
        if (len < 5 || strcmp(entry->d_name + len - 5, ".gguf")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        wrong += check(path);
    }
    closedir(d);
    assert_int_equal(wrong, 0);
}

static int check_cases(const char *path) {
    char inp[4104], out[4104];
    snprintf(inp, sizeof inp, "%s.inp", path);
    snprintf(out, sizeof out, "%s.out", path);
    char *inputs = read_file(inp), *outputs = read_file(out);
    int wrong = inputs && outputs ? check_vocab(path, inputs, outputs) : 0;
    mem_free(inputs);
    mem_free(outputs);
    return wrong;
}

static int check_upstream(const char *path) {
    static int32_t want[1 << 16];
    char name[4104];
    snprintf(name, sizeof name, "%s.ids", path);
    char *lines = read_file(name), *rest = lines, *line;
    if (!lines) return 0;
    tokenizer *t = bed_open_file(path);
    int n = 0, wrong = 0;
    for (; (line = strsep(&rest, "\n")) && *line; n++) {
        char *ids = strchr(line, '\t');
        assert_non_null(ids);
        *ids++ = '\0';
        size_t len = bed_unhex(line), n_want = bed_numbers(ids, want, COUNT_OF(want));
        token_ids got = {0};
        assert_int_equal(tokenizer_encode(t, line, len, NULL, TOKENIZE_SPECIAL, &got), 0);
        wrong += n_want != got.n || (n_want && memcmp(want, got.id, n_want * sizeof *want));
        token_ids_fini(&got);
    }
    print_message("%s: %d of %d texts as upstream has them\n", path, n - wrong, n);
    tokenizer_close(&t);
    mem_free(lines);
    return wrong;
}

static void test_cases(void **state) {
    for_each_vocab(check_cases);
}

static void test_upstream(void **state) {
    for_each_vocab(check_upstream);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_upstream)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
