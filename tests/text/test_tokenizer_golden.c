/* The tokenizer against what independent implementations say (golden/make/tokenizer.py). */
#include "cmocka_tests.h"
#include "default_model.h"
#include "text_bed.h"
#include "tokenizer_internal.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_IDS = 4096 };

/* ---- pre-tokenizers ---- */

typedef struct pretok_run {
    char name[32];
    pretok *p;
    pretok_work work;
    int n_texts;
} pretok_run;

typedef struct lengths {
    int32_t len[MAX_IDS];
    size_t n;
} lengths;

static int note_length(void *arg, const char *text, size_t len) {
    lengths *l = arg;
    l->len[l->n++] = (int32_t)len;
    return 0;
}

static void check_pieces(char **fields, void *arg) {
    pretok_run *run = arg;
    if (strcmp(run->name, fields[0])) {
        pretok_work_fini(&run->work);
        pretok_close(&run->p);
        snprintf(run->name, sizeof run->name, "%s", fields[0]);
        assert_int_equal(pretok_open((text_str){fields[0], strlen(fields[0])}, &run->p, NULL), 0);
    }
    static int32_t want[MAX_IDS];
    static lengths got;
    got.n = 0;
    size_t len = bed_unhex(fields[1]), n = bed_numbers(fields[2], want, MAX_IDS);
    assert_int_equal(pretok_split(run->p, &run->work, fields[1], len, note_length, &got), 0);
    if (n != got.n || memcmp(want, got.len, n * sizeof *want))
        fail_msg("%s cuts '%.*s' wrongly", run->name, (int)len, fields[1]);
    run->n_texts++;
}

static void test_pretok(void **state) {
    pretok_run run = {0};
    bed_each_line("tokenizer/pretok.txt", check_pieces, &run);
    assert_true(run.n_texts > 1000);
    pretok_work_fini(&run.work);
    pretok_close(&run.p);
}

/* ---- normalisation ---- */

static void check_nfc(char **fields, void *arg) {
    size_t len = bed_unhex(fields[0]), want = bed_unhex(fields[1]);
    buf out = {0};
    assert_int_equal(nfc_normalize(fields[0], len, &out), 0);
    assert_int_equal(out.len, want);
    assert_memory_equal(out.data, fields[1], want);
    bool same = len == want && !memcmp(fields[0], fields[1], len);
    if (nfc_is_plain(fields[0], len)) assert_true(same);
    buf_fini(&out);
}

static void test_nfc(void **state) {
    bed_each_line("tokenizer/nfc.txt", check_nfc, NULL);
}

/* ---- whole tokenizers ---- */

static void check_ids(char **fields, void *arg) {
    static int32_t want[MAX_IDS];
    size_t len = bed_unhex(fields[0]), n = bed_numbers(fields[1], want, MAX_IDS);
    bed_expect_ids(arg, fields[0], len, TOKENIZE_SPECIAL, want, n);
    buf text = {0};
    assert_int_equal(tokenizer_decode(arg, want, n, false, &text), 0);
    assert_int_equal(text.failed, false);
    buf_fini(&text);
}

static void test_small_models(void **state) {
    static const char *const models[] = {"llama", "llama-tied-mqa", "gemma3"};
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        char name[64];
        tokenizer *t = bed_open_golden(models[i]);
        snprintf(name, sizeof name, "tokenizer/%s.txt", models[i]);
        bed_each_line(name, check_ids, t);
        tokenizer_close(&t);
    }
}

/* ---- the default model ---- */

static tokenizer *open_default(void) {
    const char *path = default_model();
    if (access(path, R_OK)) {
        print_message("skipped: no default model at %s\n", path);
        skip();
    }
    return bed_open_file(path);
}

static void check_reference(const tokenizer *t, json_object *prompt) {
    static int32_t want[MAX_IDS];
    json_object *text = json_object_object_get(prompt, "text");
    json_object *ids = json_object_object_get(prompt, "ids");
    size_t n = json_object_array_length(ids);
    assert_true(n <= MAX_IDS);
    for (size_t i = 0; i < n; i++) want[i] = json_object_get_int(json_object_array_get_idx(ids, i));
    bed_expect_ids(t, json_object_get_string(text), (size_t)json_object_get_string_len(text),
                   TOKENIZE_SPECIAL, want, n);
}

static void test_default_model(void **state) {
    tokenizer *t = open_default();
    bed_each_line("tokenizer/smollm2.txt", check_ids, t);
    json_object *reference = json_object_from_file(GOLDEN_DIR "/smollm2/reference.json");
    assert_non_null(reference);
    json_object *prompts = json_object_object_get(reference, "prompts");
    assert_true(json_object_array_length(prompts) > 0);
    for (size_t i = 0; i < json_object_array_length(prompts); i++)
        check_reference(t, json_object_array_get_idx(prompts, i));
    json_object_put(reference);

    assert_true(tokenizer_ends(t, tokenizer_find(t, "<|im_end|>")));
    assert_true(tokenizer_ends(t, tokenizer_find(t, "<|endoftext|>")));
    assert_false(tokenizer_ends(t, tokenizer_find(t, "<|im_start|>")));
    tokenizer_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pretok),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_small_models),
        cmocka_unit_test(test_default_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
