/* Names, safe paths, the choice among a repository's files, and the folder. Pulling itself is
 * tested end to end (tests/e2e/test_pull.py). */
#include "hub_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- names ---- */

static void names_are_parsed(void **state) {
    hub_ref ref;
    assert_true(hub_ref_parse("user/repo", &ref));
    assert_string_equal(ref.repo, "user/repo");
    assert_string_equal(ref.tag, "");
    assert_true(hub_ref_parse("Some-User.1/Model_2-GGUF:q4_k_m", &ref));
    assert_string_equal(ref.repo, "Some-User.1/Model_2-GGUF");
    assert_string_equal(ref.tag, "q4_k_m");
    assert_true(hub_ref_parse("u/r:Q8_0/model-Q8_0-00001-of-00002.gguf", &ref));
    static const char *const wrong[] = {
        "",           "repo",        "/repo",       "user/",       "a/b/c",    "../b",
        "a/..",       ".a/b",        "a/.b",        "a/b:",        "a/b:../c", "a/b:/c",
        "a/b:c/../d", "a/b:c//d",    "a/b:.hidden", "a b/c",       "a/b c",    "a/b\n",
        "a/b?c",      "https://x/y", "a/b:c\x1b[",  "a/b:-option", "-a/b",     "a/\xc3\xa4"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        if (hub_ref_parse(wrong[i], &ref)) fail_msg("\"%s\" passes", wrong[i]);
    char longest[1000];
    memset(longest, 'a', sizeof longest);
    longest[10] = '/';
    longest[sizeof longest - 1] = 0;
    assert_false(hub_ref_parse(longest, &ref));
    longest[20] = ':';
    assert_false(hub_ref_parse(longest, &ref));
}

static void paths_are_safe_or_not(void **state) {
    static const char *const right[] = {"model.gguf", "Q4_K_M/model (1) [x]-00001-of-00002.gguf",
                                        "a/b/c/d/e/f.gguf"};
    static const char *const wrong[] = {
        "",     "/a.gguf",  "a/../b.gguf", "../b.gguf", ".a.gguf",  "a//b.gguf",
        "a/",   "~/a.gguf", "a\\b.gguf",   "a\nb.gguf", "a:b.gguf", "a/b/c/d/e/f/g.gguf",
        "a/-b", "$HOME"};
    for (size_t i = 0; i < COUNT_OF(right); i++) assert_true(hub_path_is_safe(right[i]));
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        if (hub_path_is_safe(wrong[i])) fail_msg("\"%s\" passes", wrong[i]);
}

static void assert_quantisation(const char *path, const char *expected) {
    char is[HUB_QUANTISATION];
    hub_quantisation(path, is);
    assert_string_equal(is, expected);
}

static void quantisations_are_read(void **state) {
    assert_quantisation("model.Q4_K_M.gguf", "Q4_K_M");
    assert_quantisation("model-q4_k_s.gguf", "q4_k_s");
    assert_quantisation("UD-Q4_K_XL/model-UD-Q4_K_XL-00001-of-00002.gguf", "Q4_K_XL");
    assert_quantisation("model-IQ4_XS.gguf", "IQ4_XS");
    assert_quantisation("model_f16.gguf", "f16");
    assert_quantisation("model-BF16.gguf", "BF16");
    assert_quantisation("model-Q4_K_MX.gguf", "");
    assert_quantisation("model.gguf", "");
}

/* ---- choosing ---- */

static hub_list list_of(const char *const *paths, size_t n) {
    hub_list list = {0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(hub_list_add(&list, paths[i], (int64_t)i, ""), 0);
    hub_list_sort(&list);
    return list;
}

static const char *const repository[] = {"m-BF16-00001-of-00002.gguf",
                                         "m-BF16-00002-of-00002.gguf",
                                         "m-Q2_K.gguf",
                                         "m-Q4_0.gguf",
                                         "m-Q4_K_M.gguf",
                                         "m-Q8_0.gguf",
                                         "mmproj-m-F16.gguf",
                                         "README.md",
                                         "m-imatrix.gguf",
                                         "old/m-Q2_K.gguf",
                                         "m-IQ4_XS.gguf"};

static void picks(const char *const *paths, size_t n, const char *name, size_t n_files,
                  const char *first) {
    hub_list all = list_of(paths, n), out;
    hub_ref ref;
    icp_error err = {0};
    assert_true(hub_ref_parse(name, &ref));
    if (hub_pick(&all, &ref, &out, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(out.n, n_files);
    assert_string_equal(out.file[0].path, first);
    hub_list_fini(&all);
    hub_list_fini(&out);
}

static void picks_nothing(const char *const *paths, size_t n, const char *name, int code,
                          const char *says) {
    hub_list all = list_of(paths, n), out;
    hub_ref ref;
    icp_error err = {0};
    assert_true(hub_ref_parse(name, &ref));
    assert_int_equal(hub_pick(&all, &ref, &out, &err), code);
    if (!strstr(err.text, says)) fail_msg("\"%s\" lacks \"%s\"", err.text, says);
    assert_int_equal(out.n, 0);
    hub_list_fini(&all);
}

static void the_right_files_are_picked(void **state) {
    size_t n = COUNT_OF(repository);
    picks(repository, n, "u/r", 1, "m-Q4_K_M.gguf");
    picks(repository, n, "u/r:q4_k_m", 1, "m-Q4_K_M.gguf");
    picks(repository, n, "u/r:Q8_0", 1, "m-Q8_0.gguf");
    picks(repository, n, "u/r:BF16", 2, "m-BF16-00001-of-00002.gguf");
    picks(repository, n, "u/r:old/m-Q2_K.gguf", 1, "old/m-Q2_K.gguf");
    picks(repository, n, "u/r:m-Q2_K.gguf", 1, "m-Q2_K.gguf");
    picks_nothing(repository, n, "u/r:Q4_K", ICP_ENOTFOUND, "has no \"Q4_K\"; it has m-BF16-00001");
    picks_nothing(repository, n, "u/r:F16", ICP_ENOTFOUND, "has no \"F16\"");
    picks_nothing(repository, n, "u/r:Q2_K", ICP_EINVALID, "m-Q2_K.gguf, old/m-Q2_K.gguf");
    picks_nothing(repository + 7, 1, "u/r", ICP_ENOTFOUND, "u/r has no GGUF files");
    picks_nothing(repository, 0, "u/r:Q8_0", ICP_ENOTFOUND, "u/r has no GGUF files");
    picks_nothing(repository, 1, "u/r", ICP_ENOTFOUND, "m-BF16-00002-of-00002.gguf is missing");
}

static void without_a_tag_the_order_decides(void **state) {
    static const char *const small[] = {"m-Q2_K.gguf", "m-Q8_0.gguf", "m-Q5_K_M.gguf"};
    static const char *const plain[] = {"model.gguf"};
    static const char *const two[] = {"one.gguf", "two.gguf"};
    picks(small, 3, "u/r", 1, "m-Q5_K_M.gguf");
    picks(small, 2, "u/r", 1, "m-Q8_0.gguf");
    picks(plain, 1, "u/r", 1, "model.gguf");
    picks_nothing(two, 2, "u/r", ICP_EINVALID, "u/r:FILE, of one.gguf, two.gguf");
}

static void each_allocation_may_fail(void **state) {
    hub_list all = list_of(repository, COUNT_OF(repository)), out;
    hub_ref ref;
    assert_true(hub_ref_parse("u/r:BF16", &ref));
    for (long n = 0;; n++) {
        mem_fail_after(n);
        int rc = hub_pick(&all, &ref, &out, NULL);
        mem_fail_after(-1);
        if (rc == 0) {
            assert_true(n > 2);
            break;
        }
        assert_int_equal(rc, ICP_ENOMEM);
        assert_int_equal(out.n, 0);
    }
    hub_list_fini(&out);
    hub_list_fini(&all);
}

/* ---- the folder ---- */

static void touch(const char *folder, const char *path) {
    char full[300];
    snprintf(full, sizeof full, "%s/%s", folder, path);
    for (char *at = full + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(full, 0700);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs("12345", f);
    fclose(f);
}

static void what_is_kept_is_found_and_removed(void **state) {
    char folder[] = "/tmp/incipit-hub-XXXXXX";
    assert_non_null(mkdtemp(folder));
    static const char *const files[] = {"u/r/m-Q4_0.gguf", "u/r/m-Q4_0.gguf.sha256",
                                        "u/r/sub/m-Q8_0.gguf", "u/r/m-F16.gguf.0123.part",
                                        "v/other/m-Q4_0.gguf"};
    for (size_t i = 0; i < COUNT_OF(files); i++) touch(folder, files[i]);
    hub_list all;
    assert_int_equal(hub_kept(folder, NULL, &all, NULL), 0);
    assert_int_equal(all.n, 4);
    assert_string_equal(all.file[0].path, "u/r/m-F16.gguf.0123.part");
    assert_int_equal(all.file[0].size, 5);
    hub_list_fini(&all);

    hub_ref ref;
    icp_error err = {0};
    char *path, expected[100];
    hub_ref_parse("u/r:Q8_0", &ref);
    assert_int_equal(hub_find(folder, &ref, &path, &err), 0);
    snprintf(expected, sizeof expected, "%s/u/r/sub/m-Q8_0.gguf", folder);
    assert_string_equal(path, expected);
    mem_free(path);
    int64_t freed;
    assert_int_equal(hub_remove(folder, &ref, &freed, &err), 0);
    assert_int_equal(freed, 5);
    assert_int_not_equal(access(expected, F_OK), 0);
    assert_int_equal(hub_find(folder, &ref, &path, &err), ICP_ENOTFOUND);
    assert_null(path);

    hub_ref_parse("u/r", &ref);
    assert_int_equal(hub_remove(folder, &ref, &freed, &err), 0);
    assert_int_equal(freed, 10);
    assert_int_equal(hub_remove(folder, &ref, &freed, &err), ICP_ENOTFOUND);
    hub_ref_parse("v/other", &ref);
    assert_int_equal(hub_remove(folder, &ref, &freed, &err), 0);
    assert_int_equal(rmdir(folder), 0); /* no folder was left behind */
    assert_int_equal(hub_kept(folder, NULL, &all, NULL), 0);
    assert_int_equal(all.n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_parsed),
        cmocka_unit_test(paths_are_safe_or_not),
        cmocka_unit_test(quantisations_are_read),
        cmocka_unit_test(the_right_files_are_picked),
        cmocka_unit_test(without_a_tag_the_order_decides),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(what_is_kept_is_found_and_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
