/* Models in several files: all are found by the first, and what does not belong together is refused
 * with one sentence. */
#include "gguf_writer.h"
#include "refusal.h"

#include "gguf_internal.h"

#include <fcntl.h>
#include <stdlib.h>

enum { N_FILES = 3 };

static char folder[] = "/tmp/incipit-split-XXXXXX";

/* The path of a file in the folder. */
static const char *at(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *part(unsigned number) {
    static char name[32];
    snprintf(name, sizeof name, "m-%05u-of-00003.gguf", number);
    return name;
}

static void save(const writer *w, const char *name) {
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, w->data, w->len), w->len);
    close(fd);
}

/* A file of a model: number `no` of `count`, with one tensor of four floats. */
static void put_part(writer *w, unsigned no, unsigned count, unsigned n_tensors, const char *name) {
    put_header(w, 3, 1, 3);
    put_key(w, "split.no", W_U16);
    put_uint(w, no, 2);
    put_key(w, "split.count", W_U16);
    put_uint(w, count, 2);
    put_key(w, "split.tensors.count", W_I32);
    put_uint(w, n_tensors, 4);
    put_tensor(w, name, (uint64_t[4]){4}, 0, 0);
    put_padding(w, 32);
    put_zeros(w, 16);
}

static void save_part(unsigned no, unsigned count, unsigned n_tensors, const char *name) {
    static writer w;
    put_part(&w, no, count, n_tensors, name);
    save(&w, part(no + 1));
}

/* Tensors a, b and c, each in a file that says how many there are: 3 is right. */
static void save_model(unsigned n_tensors) {
    static const char *const names[N_FILES] = {"a", "b", "c"};
    for (unsigned i = 0; i < N_FILES; i++) save_part(i, N_FILES, n_tensors, names[i]);
}

static void refused(const char *name, int code, const char *says) {
    gguf_refused(at(name), code, says);
}

static void opens(const char *name) {
    icp_error err = {0};
    gguf *g;
    if (gguf_open(at(name), &g, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(gguf_n_tensors(g), N_FILES);
    gguf_close(&g);
}

static int make_folder(void **state) {
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    static const char *const others[] = {"renamed.gguf", "x-00001-of-00003.gguf"};
    for (unsigned i = 1; i <= N_FILES; i++) unlink(at(part(i)));
    for (size_t i = 0; i < COUNT_OF(others); i++) unlink(at(others[i]));
    return rmdir(folder);
}

/* ---- right ones ---- */

/* What golden/gguf/make_split.py wrote: two tensors a file, tensor i has 4 + i times 10 i. */
static void all_files_are_one(void **state) {
    icp_error err = {0};
    gguf *g;
    if (gguf_open(GOLDEN_DIR "/gguf/split-00001-of-00003.gguf", &g, &err) < 0)
        fail_msg("%s", err.text);
    static const char *const names[] = {"e", "b", "d", "a", "c"};
    assert_int_equal(gguf_n_files(g), 3);
    assert_int_equal(gguf_file_size(g), 352 + 256 + 192);
    assert_int_equal(gguf_n_tensors(g), COUNT_OF(names));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const gguf_tensor *t = gguf_find_tensor(g, names[i]);
        assert_ptr_equal(t, gguf_tensor_at(g, i));
        assert_int_equal(t->file, i / 2);
        assert_int_equal(t->size, (4 + i) * sizeof(float));
        gguf_forget_pages(g);
        for (size_t k = 0; k < 4 + i; k++) assert_true(((const float *)t->data)[k] == 10.0f * i);
    }
    assert_int_equal(gguf_string(g, "test.text").len, strlen("stands in the first file"));
    buf text = {0};
    assert_int_equal(gguf_describe(g, &text), 0);
    assert_non_null(strstr(text.data, "800 bytes in 3 files"));
    assert_non_null(strstr(text.data, "  d     F32      6                                 24  "
                                      "           192        2\n"));
    buf_fini(&text);
    gguf_close(&g);
}

static void one_of_one_is_whole(void **state) {
    static writer w;
    put_part(&w, 0, 1, 1, "a");
    save(&w, "renamed.gguf");
    icp_error err = {0};
    gguf *g;
    assert_int_equal(gguf_open(at("renamed.gguf"), &g, &err), 0);
    assert_int_equal(gguf_n_files(g), 1);
    gguf_close(&g);
}

/* ---- wrong ones ---- */

static void another_than_the_first(void **state) {
    save_model(3);
    refused(part(2), ICP_EINVALID,
            "00002-of-00003.gguf: is file 2 of a model in 3 files; open the");
    refused(part(3), ICP_EINVALID, "open the first, /tmp/incipit-split-");
    refused(part(3), ICP_EINVALID, "/m-00001-of-00003.gguf");
    static writer w;
    put_part(&w, 1, 3, 3, "b");
    save(&w, "renamed.gguf");
    refused("renamed.gguf", ICP_EINVALID, "is file 2 of a model in 3 files; open the first");
    put_part(&w, 7, 3, 3, "b");
    save(&w, "renamed.gguf");
    refused("renamed.gguf", ICP_EINVALID, "is file 8 of a model in 3 files");
}

static void a_first_without_its_name(void **state) {
    static writer w;
    put_part(&w, 0, 3, 3, "a");
    save(&w, "renamed.gguf");
    refused("renamed.gguf", ICP_EINVALID, "its name must end in -00001-of-00003.gguf");
    put_part(&w, 0, 2, 3, "a");
    save(&w, "x-00001-of-00003.gguf");
    refused("x-00001-of-00003.gguf", ICP_EINVALID, "its name must end in -00001-of-00002.gguf");
}

static void a_missing_file(void **state) {
    save_model(3);
    unlink(at(part(3)));
    refused(part(1), ICP_EIO, "/m-00003-of-00003.gguf: is missing; all 3 files of the model must");
}

static void reordered_files(void **state) {
    static writer w;
    save_model(3);
    put_part(&w, 1, 3, 3, "c");
    save(&w, part(3));
    refused(part(1), ICP_EFORMAT,
            "/m-00003-of-00003.gguf: holds file 2 of the model instead of file 3");
}

static void foreign_files(void **state) {
    static writer w;
    save_model(3);
    save_part(1, 3, 4, "b");
    refused(part(1), ICP_EFORMAT,
            "/m-00002-of-00003.gguf: belongs to another model: one of 4 tensors, but the first "
            "file's has 3");
    put_part(&w, 1, 5, 3, "b");
    save(&w, part(2));
    refused(part(1), ICP_EFORMAT, "another model: one of 5 files, but the first file's has 3");
    put_header(&w, 3, 0, 0);
    save(&w, part(2));
    refused(part(1), ICP_EFORMAT, "another model: one of 0 files");
    save_part(1, 3, 3, "c");
    refused(part(1), ICP_EFORMAT, "tensor \"c\" stands in file 2 and in file 3");
    save_part(1, 3, 3, "a");
    refused(part(1), ICP_EFORMAT, "tensor \"a\" stands in file 1 and in file 2");
    save_model(9);
    refused(part(1), ICP_EFORMAT, "the model has 9 tensors, but its 3 files have 3");
}

static void every_truncation_is_refused(void **state) {
    static writer w;
    save_model(3);
    put_part(&w, 1, 3, 3, "b");
    for (size_t whole = w.len, len = 0; len < whole; len++) {
        w.len = len;
        save(&w, part(2));
        refused(part(1), ICP_EFORMAT, "/m-00002-of-00003.gguf: ");
    }
}

static void absurd_counts(void **state) {
    static writer w;
    put_header(&w, 3, 0, 1);
    put_key(&w, "split.count", W_U64);
    put_uint(&w, UINT64_MAX, 8);
    save(&w, part(1));
    refused(part(1), ICP_EFORMAT, "split.count is 18446744073709551615, but at most 99999");
    put_header(&w, 3, 0, 2);
    put_key(&w, "split.count", W_U64);
    put_uint(&w, 99999, 8);
    put_key(&w, "split.no", W_U64);
    put_uint(&w, UINT64_MAX - 1, 8);
    save(&w, part(1));
    refused(part(1), ICP_EINVALID, "is file 18446744073709551615 of a model in 99999 files");
}

static void each_allocation_may_fail(void **state) {
    save_model(3);
    for (long n = 0;; n++) {
        icp_error err = {0};
        gguf *g;
        mem_fail_after(n);
        int rc = gguf_open(at(part(1)), &g, &err);
        mem_fail_after(-1);
        if (rc == 0) {
            assert_true(n > 15);
            gguf_close(&g);
            break;
        }
        assert_int_equal(rc, ICP_ENOMEM);
        assert_null(g);
        assert_non_null(strstr(err.text, "out of memory"));
    }
    opens(part(1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_files_are_one),      cmocka_unit_test(one_of_one_is_whole),
        cmocka_unit_test(another_than_the_first), cmocka_unit_test(a_first_without_its_name),
        cmocka_unit_test(a_missing_file),         cmocka_unit_test(reordered_files),
        cmocka_unit_test(foreign_files),          cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(absurd_counts),          cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
