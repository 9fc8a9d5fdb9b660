/* Files that are wrong: each is refused with a sentence that says what is wrong and where, and no
 * mutation of a right file makes the reader touch what is not there. */
#include "gguf_writer.h"
#include "refusal.h"

#include "gguf_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

static const uint64_t HUGE_COUNT = UINT64_C(1) << 60;

/* Expects path to be refused, with `says` in the sentence behind the path. */
static void refused(const char *path, int code, const char *says) {
    icp_error err = gguf_refused(path, code, says);
    assert_memory_equal(err.text, path, strlen(path));
}

static void bytes_refused(const writer *w, int code, const char *says) {
    char path[32];
    int fd = file_of(w->data, w->len, path);
    refused(path, code, says);
    close(fd);
}

/* ---- what is not even a file ---- */

static void no_file(void **state) {
    refused("/nonexistent/model.gguf", ICP_EIO, "No such file or directory");
    refused("/", ICP_EIO, "is a directory");
    refused("/dev/null", ICP_EIO, "device");
}

static void a_pipe_is_not_waited_for(void **state) {
    char path[] = "/tmp/incipit-pipe-XXXXXX";
    assert_non_null(mkdtemp(path));
    char pipe_path[64];
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", path);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    refused(pipe_path, ICP_EIO, "pipe");
    unlink(pipe_path);
    rmdir(path);
}

static void an_unreadable_file(void **state) {
    if (geteuid() == 0) skip(); /* root reads everything */
    char path[] = "/tmp/incipit-file-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    fchmod(fd, 0);
    refused(path, ICP_EIO, "Permission denied");
    close(fd);
    unlink(path);
}

/* ---- header ---- */

static void wrong_headers(void **state) {
    static writer w;
    w.len = 0;
    bytes_refused(&w, ICP_EFORMAT, "is empty");
    put(&w, "GG", 2);
    bytes_refused(&w, ICP_EFORMAT, "is not a GGUF file: it begins with \"GG\"");
    put(&w, "\x01\n file of another kind", 23);
    bytes_refused(&w, ICP_EFORMAT, "it begins with \"GG\\x01\\x0a\"");

    put_header(&w, 3, 0, 0);
    for (size_t len = 4; len < 24; len++) {
        w.len = len;
        bytes_refused(&w, ICP_EFORMAT, "the file ends inside");
    }
    put_header(&w, 1, 0, 0);
    bytes_refused(&w, ICP_EUNSUPPORTED, "byte 4: GGUF version 1 is not supported");
    put_header(&w, 4, 0, 0);
    bytes_refused(&w, ICP_EUNSUPPORTED, "GGUF version 4");
    put_header(&w, 0, 0, 0);
    bytes_refused(&w, ICP_EUNSUPPORTED, "GGUF version 0");
    put_header(&w, 3u << 24, 0, 0);
    bytes_refused(&w, ICP_EUNSUPPORTED, "big-endian");
}

static void counts_beyond_the_file(void **state) {
    static writer w;
    const uint64_t counts[] = {HUGE_COUNT, UINT64_MAX, UINT64_C(1) << 31, 1};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        put_header(&w, 3, counts[i], 0);
        bytes_refused(&w, ICP_EFORMAT, "byte 8: ");
        bytes_refused(&w, ICP_EFORMAT, "tensors cannot fit the file of 24 bytes");
        put_header(&w, 3, 0, counts[i]);
        bytes_refused(&w, ICP_EFORMAT, "byte 16: ");
        bytes_refused(&w, ICP_EFORMAT, "metadata entries cannot fit the file of 24 bytes");
    }
}

/* ---- metadata ---- */

static void wrong_keys(void **state) {
    static writer w;
    put_header(&w, 3, 0, 1);
    put_u32_entry(&w, "", 0);
    bytes_refused(&w, ICP_EFORMAT, "byte 24: a key is empty");

    put_header(&w, 3, 0, 1);
    put_uint(&w, HUGE_COUNT, 8);
    put_zeros(&w, 8);
    bytes_refused(&w, ICP_EFORMAT,
                  "byte 24: a key has a length of 1152921504606846976 bytes, but the file ends");

    put_header(&w, 3, 0, 1);
    put_uint(&w, UINT64_MAX, 8);
    put_zeros(&w, 8);
    bytes_refused(&w, ICP_EFORMAT, "a key has a length of 18446744073709551615 bytes");

    put_header(&w, 3, 0, 3);
    put_u32_entry(&w, "twice", 0);
    put_u32_entry(&w, "once", 0);
    put_u32_entry(&w, "twice", 0);
    bytes_refused(&w, ICP_EFORMAT, "byte 73, key \"twice\": stands there twice, first at byte 32");
}

static void a_long_wild_key_is_cut_and_escaped(void **state) {
    static writer w;
    put_header(&w, 3, 0, 1);
    put_uint(&w, 60000, 8);
    for (int i = 0; i < 20000; i++) put(&w, "\033[m", 3);
    put_uint(&w, 77, 4);
    put_zeros(&w, 16);
    bytes_refused(&w, ICP_EFORMAT, "key \"\\x1b[m\\x1b[m");
    bytes_refused(&w, ICP_EFORMAT, "\u2026\": the value type is 77, which is not known");
}

static void wrong_values(void **state) {
    static writer w;
    put_header(&w, 3, 0, 1);
    put_key(&w, "k", 13);
    put_zeros(&w, 8);
    bytes_refused(&w, ICP_EFORMAT, "byte 33, key \"k\": the value type is 13");

    put_header(&w, 3, 0, 1);
    put_key(&w, "k", UINT32_MAX);
    put_zeros(&w, 8);
    bytes_refused(&w, ICP_EFORMAT, "the value type is 4294967295");

    put_header(&w, 3, 0, 1);
    put_key(&w, "k", W_BOOL);
    put_uint(&w, 2, 1);
    bytes_refused(&w, ICP_EFORMAT, "byte 37, key \"k\": a bool of 2");

    put_header(&w, 3, 0, 1);
    put_key(&w, "k", W_U64);
    put_zeros(&w, 7);
    bytes_refused(&w, ICP_EFORMAT,
                  "byte 37, key \"k\": 1 value of kind u64, but the file ends after 7 bytes");

    put_header(&w, 3, 0, 1);
    put_key(&w, "k", W_STRING);
    put_uint(&w, UINT64_MAX - 7, 8);
    bytes_refused(&w, ICP_EFORMAT, "key \"k\": a string has a length of 18446744073709551608");
}

static void wrong_arrays(void **state) {
    static writer w;
    put_header(&w, 3, 0, 1);
    put_array_key(&w, "k", W_ARRAY, 1);
    put_zeros(&w, 32);
    bytes_refused(&w, ICP_EUNSUPPORTED, "byte 37, key \"k\": an array of arrays");

    put_header(&w, 3, 0, 1);
    put_array_key(&w, "k", 99, 1);
    put_zeros(&w, 32);
    bytes_refused(&w, ICP_EFORMAT, "the type of an array's items is 99");

    for (uint32_t item = W_U8; item <= W_F64; item++) {
        if (item == W_ARRAY) continue;
        const uint64_t counts[] = {HUGE_COUNT, UINT64_MAX, UINT64_MAX / 8 + 2, 65};
        for (size_t i = 0; i < COUNT_OF(counts); i++) {
            put_header(&w, 3, 0, 1);
            put_array_key(&w, "k", item, counts[i]);
            put_zeros(&w, 64);
            bytes_refused(&w, ICP_EFORMAT, "byte 49, key \"k\": ");
        }
    }

    put_header(&w, 3, 0, 1);
    put_array_key(&w, "k", W_BOOL, 3);
    put(&w, "\0\1\xff", 3);
    bytes_refused(&w, ICP_EFORMAT, "byte 51, key \"k\": a bool of 255");

    put_header(&w, 3, 0, 1);
    put_array_key(&w, "k", W_STRING, 2);
    put_text(&w, "good");
    put_uint(&w, 1, 8);
    bytes_refused(
        &w, ICP_EFORMAT,
        "byte 61, key \"k\": a string has a length of 1 bytes, but the file ends after 0");
}

static void wrong_alignments(void **state) {
    static writer w;
    const uint32_t wrong[] = {0, 1, 4, 24, 33, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        put_header(&w, 3, 0, 1);
        put_u32_entry(&w, "general.alignment", wrong[i]);
        char says[80];
        snprintf(says, sizeof says, "key \"general.alignment\": is %u, but must be a power",
                 wrong[i]);
        bytes_refused(&w, ICP_EFORMAT, says);
    }
    put_header(&w, 3, 0, 1);
    put_key(&w, "general.alignment", W_U64);
    put_uint(&w, 32, 8);
    bytes_refused(&w, ICP_EFORMAT, "is of kind u64, but must be u32");
}

/* ---- tensors ---- */

/* A file of one tensor and 64 bytes of data. */
static void one_tensor(writer *w, const char *name, const uint64_t dims[4], uint32_t type,
                       uint64_t offset) {
    put_header(w, 3, 1, 0);
    put_tensor(w, name, dims, type, offset);
    put_padding(w, 32);
    put_zeros(w, 64);
}

static void wrong_shapes(void **state) {
    static writer w;
    one_tensor(&w, "t", (uint64_t[4]){0}, 0, 0);
    bytes_refused(&w, ICP_EFORMAT, "byte 33, tensor \"t\": 0 dimensions (1 to 4 are allowed)");

    const uint32_t n_dims[] = {5, UINT32_MAX};
    for (size_t i = 0; i < COUNT_OF(n_dims); i++) {
        put_header(&w, 3, 1, 0);
        put_text(&w, "t");
        put_uint(&w, n_dims[i], 4);
        put_zeros(&w, 100);
        bytes_refused(&w, ICP_EFORMAT, "dimensions (1 to 4 are allowed)");
    }

    put_header(&w, 3, 1, 0);
    put_text(&w, "t");
    put_uint(&w, 2, 4);
    put_uint(&w, 3, 8);
    put_zeros(&w, 100);
    bytes_refused(&w, ICP_EFORMAT, "byte 45, tensor \"t\": dimension 1 is 0");

    one_tensor(&w, "t", (uint64_t[4]){UINT64_C(1) << 32, UINT64_C(1) << 32}, 24, 0);
    bytes_refused(&w, ICP_EFORMAT, "tensor \"t\": the product of the dimensions overflows");
    one_tensor(&w, "t", (uint64_t[4]){1u << 16, 1u << 16, 1u << 16, 1u << 16}, 24, 0);
    bytes_refused(&w, ICP_EFORMAT, "the product of the dimensions overflows");
    one_tensor(&w, "t", (uint64_t[4]){UINT64_C(1) << 62}, 0, 0); /* 2^62 floats */
    bytes_refused(&w, ICP_EFORMAT, "the product of the dimensions overflows");
    one_tensor(&w, "t", (uint64_t[4]){UINT64_C(1) << 61}, 0, 0); /* 2^63 bytes */
    bytes_refused(&w, ICP_EFORMAT, "reach beyond the end of the file");

    one_tensor(&w, "t", (uint64_t[4]){33}, 2, 0);
    bytes_refused(&w, ICP_EFORMAT,
                  "tensor \"t\": rows of 33 elements do not divide into Q4_0 blocks of 32");
    one_tensor(&w, "t", (uint64_t[4]){16, 2}, 8,
               0); /* the product would divide, the row does not */
    bytes_refused(&w, ICP_EFORMAT, "rows of 16 elements do not divide into Q8_0 blocks");
}

static void wrong_types(void **state) {
    static writer w;
    const uint32_t types[] = {4, 5, 31, 33, 36, 38, 42, 77, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        one_tensor(&w, "blk.0.attn_q.weight", (uint64_t[4]){256}, types[i], 0);
        char says[100];
        snprintf(says, sizeof says, "tensor \"blk.0.attn_q.weight\": has the type %u", types[i]);
        bytes_refused(&w, ICP_EUNSUPPORTED, says);
    }
}

static void wrong_names(void **state) {
    static writer w;
    one_tensor(&w, "", (uint64_t[4]){1}, 0, 0);
    bytes_refused(&w, ICP_EFORMAT, "byte 24: a tensor's name is empty");
    one_tensor(&w, "0123456789012345678901234567890123456789012345678901234567890123x",
               (uint64_t[4]){1}, 0, 0);
    bytes_refused(&w, ICP_EFORMAT, "byte 24: a tensor's name of 65 bytes (at most 64 are allowed)");

    put_header(&w, 3, 2, 0);
    put_tensor(&w, "same", (uint64_t[4]){1}, 0, 0);
    put_tensor(&w, "same", (uint64_t[4]){1}, 0, 32);
    put_padding(&w, 32);
    put_zeros(&w, 64);
    bytes_refused(&w, ICP_EFORMAT,
                  "byte 68, tensor \"same\": stands there twice, first at byte 32");
}

static void wrong_offsets(void **state) {
    static writer w;
    one_tensor(&w, "t", (uint64_t[4]){1}, 0, 4);
    bytes_refused(&w, ICP_EFORMAT,
                  "byte 49, tensor \"t\": the offset 4 is not a multiple of the alignment 32");
    const uint64_t offsets[] = {64, 96, HUGE_COUNT, UINT64_MAX - 31};
    for (size_t i = 0; i < COUNT_OF(offsets); i++) {
        one_tensor(&w, "t", (uint64_t[4]){1}, 0, offsets[i]);
        bytes_refused(&w, ICP_EFORMAT, "tensor \"t\": its data (4 bytes at offset ");
    }
    one_tensor(&w, "t", (uint64_t[4]){17}, 0, 0);
    bytes_refused(&w, ICP_EFORMAT, "reach beyond the end of the file, which has 64 bytes of data");
    w.len = 60; /* ends inside the padding */
    bytes_refused(&w, ICP_EFORMAT, "reach beyond the end of the file, which has 0 bytes of data");
}

static void overlapping_data(void **state) {
    static writer w;
    put_header(&w, 3, 3, 0);
    put_tensor(&w, "a", (uint64_t[4]){4}, 0, 64);
    put_tensor(&w, "b", (uint64_t[4]){9}, 0, 0);
    put_tensor(&w, "c", (uint64_t[4]){1}, 0, 32);
    put_padding(&w, 32);
    put_zeros(&w, 96);
    bytes_refused(&w, ICP_EFORMAT, "byte 160, tensor \"c\": its data overlap those of \"b\"");

    put_header(&w, 3, 2, 0);
    put_tensor(&w, "a", (uint64_t[4]){1}, 0, 0);
    put_tensor(&w, "b", (uint64_t[4]){1}, 0, 0);
    put_padding(&w, 32);
    put_zeros(&w, 32);
    bytes_refused(&w, ICP_EFORMAT, "its data overlap those of");
}

/* ---- everything else ---- */

/* Uses all that an open file offers; the sum keeps the reads alive. */
static uint64_t touch_all(const gguf *g) {
    uint64_t sum = gguf_version(g) + gguf_file_size(g) + gguf_alignment(g);
    char name[300];
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        gguf_str key;
        const gguf_value *v = gguf_value_at(g, i, &key);
        if (key.len < sizeof name && !memchr(key.data, 0, key.len)) {
            memcpy(name, key.data, key.len);
            name[key.len] = '\0';
            assert_ptr_equal(gguf_find(g, name), v);
            sum += gguf_uint(g, name, 1) + gguf_string(g, name).len + gguf_bool(g, name, true) +
                   (gguf_float(g, name, 1) > 0);
        }
        if (v->item == GGUF_KIND_STRING) {
            gguf_str *strings = calloc(v->count + 1, sizeof *strings);
            gguf_at_strings(v, strings);
            for (uint64_t k = 0; k < v->count; k++)
                for (size_t n = 0; n < strings[k].len; n++) sum += (uint8_t)strings[k].data[n];
            free(strings);
        } else {
            for (uint64_t k = 0; k < v->count; k++)
                sum += (uint64_t)gguf_at_int(v, k) + (gguf_at_float(v, k) > 0);
        }
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        assert_int_equal(t->offset % gguf_alignment(g), 0);
        assert_true(t->size > 0);
        for (size_t k = 0; k < t->size; k++) sum += ((const uint8_t *)t->data)[k];
    }
    buf text = {0};
    assert_int_equal(gguf_describe(g, &text), 0);
    assert_null(memchr(text.data, 0x1b, text.len));
    buf_fini(&text);
    return sum;
}

static size_t read_golden(uint8_t *data, size_t cap) {
    FILE *f = fopen(GOLDEN_DIR "/gguf/small.gguf", "rb");
    assert_non_null(f);
    size_t len = fread(data, 1, cap, f);
    fclose(f);
    assert_true(len > 0 && len < cap);
    return len;
}

static void every_truncation_is_refused(void **state) {
    static writer w;
    size_t whole = read_golden(w.data, sizeof w.data);
    for (w.len = 0; w.len < whole; w.len++) bytes_refused(&w, ICP_EFORMAT, "");
}

/* Changes a few places of a right file: bits, bytes, and numbers that readers stumble over. */
static void mutate(writer *w, uint64_t *random) {
    static const uint64_t nasty[] = {0,
                                     1,
                                     7,
                                     8,
                                     9,
                                     255,
                                     1u << 16,
                                     INT32_MAX,
                                     1u << 31,
                                     UINT32_MAX,
                                     1ull << 32,
                                     1ull << 60,
                                     1ull << 61,
                                     INT64_MAX,
                                     1ull << 63,
                                     UINT64_MAX,
                                     -8ull,
                                     -32ull,
                                     UINT64_MAX / 8 + 1};
    size_t head = MIN(w->len, (size_t)960); /* what stands before the data */
    for (uint64_t n = 1 + random_next(random) % 4; n > 0; n--) {
        uint64_t r = random_next(random);
        size_t at = r % head;
        switch (r >> 60) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
            w->data[at] ^= (uint8_t)(1u << (r >> 32 & 7));
            break;
        case 5:
        case 6:
        case 7:
            w->data[at] = (uint8_t)(r >> 32);
            break;
        case 8:
        case 9:
        case 10:
        case 11:
        case 12: {
            uint64_t value = nasty[(r >> 32) % COUNT_OF(nasty)];
            memcpy(w->data + at, &value, MIN(head - at, r >> 59 & 1 ? sizeof value : (size_t)4));
            break;
        }
        case 13: { /* a stretch moves */
            size_t to = (r >> 32) % head, len = MIN(head - MAX(at, to), (size_t)16);
            memmove(w->data + to, w->data + at, len);
            break;
        }
        default:
            w->len = at + (r >> 32) % (w->len - at) + 1;
            head = MIN(w->len, head);
        }
    }
}

/* As gguf_open, from a block of memory of just that size, so that a sanitizer sees each read that
 * goes beyond the file. */
static int parse_copy(gguf *g, const uint8_t *data, size_t len, icp_error *err) {
    uint8_t *copy = malloc(len);
    assert_non_null(copy);
    memcpy(copy, data, len);
    *g = (gguf){.map = copy, .size = len};
    return gguf_parse(g, "mutant", err);
}

static void free_copy(gguf *g) {
    mem_free(g->entries);
    mem_free(g->tensors);
    mem_free(g->key_index);
    mem_free(g->tensor_index);
    free((void *)g->map);
}

static void mutations_do_no_harm(void **state) {
    static writer original, w;
    original.len = read_golden(original.data, sizeof original.data);
    uint64_t random = 1, sum = 0;
    int opened = 0;
    for (int i = 0; i < 30000; i++) {
        memcpy(w.data, original.data, original.len);
        w.len = original.len;
        mutate(&w, &random);
        icp_error err = {0};
        gguf g;
        int rc = parse_copy(&g, w.data, w.len, &err);
        if (rc == 0) {
            opened++;
            sum += touch_all(&g);
        } else {
            assert_true(rc == ICP_EFORMAT || rc == ICP_EUNSUPPORTED);
            assert_int_equal(err.code, rc);
            assert_memory_equal(err.text, "mutant: ", 8);
            assert_true(strlen(err.text) > 20);
            for (const char *c = err.text; *c; c++) assert_true((uint8_t)*c >= 0x20 && *c != 0x7f);
        }
        free_copy(&g);
    }
    assert_true(opened > 100 && opened < 29900 && sum > 0); /* both ends of the test were reached */
}

static void each_allocation_may_fail(void **state) {
    for (long n = 0;; n++) {
        icp_error err = {0};
        gguf *g = (gguf *)&err;
        mem_fail_after(n);
        int rc = gguf_open(GOLDEN_DIR "/gguf/small.gguf", &g, &err);
        mem_fail_after(-1);
        if (rc == 0) {
            assert_true(n >= 5);
            touch_all(g);
            gguf_close(&g);
            return;
        }
        assert_int_equal(rc, ICP_ENOMEM);
        assert_null(g);
        assert_non_null(strstr(err.text, "out of memory"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_file),
        cmocka_unit_test(a_pipe_is_not_waited_for),
        cmocka_unit_test(an_unreadable_file),
        cmocka_unit_test(wrong_headers),
        cmocka_unit_test(counts_beyond_the_file),
        cmocka_unit_test(wrong_keys),
        cmocka_unit_test(a_long_wild_key_is_cut_and_escaped),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(wrong_arrays),
        cmocka_unit_test(wrong_alignments),
        cmocka_unit_test(wrong_shapes),
        cmocka_unit_test(wrong_types),
        cmocka_unit_test(wrong_names),
        cmocka_unit_test(wrong_offsets),
        cmocka_unit_test(overlapping_data),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(mutations_do_no_harm),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
