/* Whole vocabularies of published models: for each X.gguf of the folder INCIPIT_VOCAB_DIR that has
 * a text file X.gguf.inp beside it, the ids in X.gguf.out must come out. The two have one case
 * each: texts separated by a line "__ggml_vocab_test__", ids a line (the form of llama.cpp's
 * models folder). Vocabularies are too large to keep here; without the variable the test skips. */
#include "cmocka_tests.h"
#include "text_bed.h"

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

/* Returns the number of texts that come out differently. */
static int check_vocab(const char *path, char *inputs, char *outputs) {
    tokenizer *t = bed_open_file(path);
    int n = 0, wrong = 0;
    for (char *text = inputs, *rest = outputs, *line; text && (line = strsep(&rest, "\n")); n++) {
        char *end = strstr(text, separator);
        size_t len = end ? (size_t)(end - text) : strlen(text);
        wrong += !encodes_to(t, text, len, line);
        text = end ? end + strlen(separator) : NULL;
    }
    print_message("%s: %d of %d texts equal\n", path, n - wrong, n);
    tokenizer_close(&t);
    return wrong;
}

/* Vocabularies whose kind is not supported (yet), and those whose expected ids are known to leave
 * out the normalisation that the model was trained with. */
static bool left_out(const char *name) {
    return strstr(name, "bert") || strstr(name, "qwen35");
}

static void test_vocabularies(void **state) {
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
        if (len < 5 || strcmp(entry->d_name + len - 5, ".gguf") || left_out(entry->d_name))
            continue;
        char path[4096], inp[4104], out[4104];
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        snprintf(inp, sizeof inp, "%s.inp", path);
        snprintf(out, sizeof out, "%s.out", path);
        char *inputs = read_file(inp), *outputs = read_file(out);
        if (inputs && outputs) wrong += check_vocab(path, inputs, outputs);
        mem_free(inputs);
        mem_free(outputs);
    }
    closedir(d);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vocabularies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
