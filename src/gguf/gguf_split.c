/* Models in several files, as llama.cpp's gguf-split and the format's own package cut them:
 *
 *   NAME-00001-of-00003.gguf   all metadata, some tensors (or none)    split.no 0
 *   NAME-00002-of-00003.gguf   more tensors                            split.no 1
 *   NAME-00003-of-00003.gguf   the last tensors                        split.no 2
 *
 * split.count (of files) and split.tensors.count (of all tensors) stand in each of them. */
#include "gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 99999, TAIL = sizeof "-00001-of-00001.gguf" };

static void put_tail(char out[TAIL], uint64_t number, uint64_t count) {
    snprintf(out, TAIL, "-%05u-of-%05u.gguf", (unsigned)(number % 100000),
             (unsigned)(count % 100000));
}

static bool is_named(const char *path, uint64_t number, uint64_t count) {
    char tail[TAIL];
    size_t len = strlen(path);
    put_tail(tail, number, count);
    return len >= TAIL && !strcmp(path + len - (TAIL - 1), tail);
}

/* The path of another file of a model, one of whose files path names; NULL: no memory. */
static char *sibling(const char *path, uint64_t number, uint64_t count) {
    char *out = mem_strdup(path);
    if (out) put_tail(out + strlen(out) - (TAIL - 1), number, count);
    return out;
}

static int out_of_memory(const char *path, icp_error *err) {
    return error_set(err, ICP_ENOMEM, "%.200s: out of memory", path);
}

static int not_the_first(const char *path, uint64_t no, uint64_t count, icp_error *err) {
    char *first = is_named(path, no + 1, count) ? sibling(path, 1, count) : NULL;
    error_set(err, ICP_EINVALID,
              "%.200s: is file %" PRIu64 " of a model in %" PRIu64 " files; open the first%s%.200s",
              path, no + 1, count, first ? ", " : "", first ? first : "");
    mem_free(first);
    return ICP_EINVALID;
}

/* That the file at path, which was opened, is file i (from 0) of the same model. */
static int check_kinship(const gguf *g, const gguf *part, size_t i, const char *path,
                         icp_error *err) {
    static const char *const keys[] = {"split.count", "split.tensors.count"};
    static const char *const what[] = {"files", "tensors"};
    for (size_t k = 0; k < COUNT_OF(keys); k++) {
        uint64_t wanted = gguf_uint(g, keys[k], 0), is = gguf_uint(part, keys[k], 0);
        if (is != wanted)
            return error_set(err, ICP_EFORMAT,
                             "%.200s: belongs to another model: one of %" PRIu64
                             " %s, but the first file's has %" PRIu64,
                             path, is, what[k], wanted);
    }
    uint64_t no = gguf_uint(part, "split.no", UINT32_MAX);
    if (no != i)
        return error_set(err, ICP_EFORMAT,
                         "%.200s: holds file %" PRIu64 " of the model instead of file %zu; were "
                         "files renamed?",
                         path, no + 1, i + 1);
    return 0;
}

static int open_part(gguf *g, size_t i, const char *path, icp_error *err) {
    gguf *part;
    if (access(path, F_OK) != 0)
        return error_set(err, ICP_EIO,
                         "%.200s: is missing; all %zu files of the model must lie in one folder",
                         path, g->n_rest + 1);
    TRY(gguf_open_file(path, &part, err));
    g->rest[i - 1] = part;
    TRY(check_kinship(g, part, i, path, err));
    gguf_tensor *tensors =
        mem_resize(g->tensors, g->n_tensors + part->n_tensors + 1, sizeof *tensors);
    if (!tensors) return out_of_memory(path, err);
    g->tensors = tensors;
    for (size_t k = 0; k < part->n_tensors; k++) {
        g->tensors[g->n_tensors] = part->tensors[k];
        g->tensors[g->n_tensors++].file = (int)i;
    }
    return 0;
}

static int open_rest(gguf *g, const char *path, size_t count, icp_error *err) {
    if (!is_named(path, 1, count))
        return error_set(err, ICP_EINVALID,
                         "%.200s: is the first of a model's %zu files; its name must end in "
                         "-00001-of-%05zu.gguf, so that the others are found",
                         path, count, count);
    g->rest = mem_zero(count - 1, sizeof *g->rest);
    if (!g->rest) return out_of_memory(path, err);
    g->n_rest = count - 1;
    for (size_t i = 1; i < count; i++) {
        char *name = sibling(path, i + 1, count);
        if (!name) return out_of_memory(path, err);
        int rc = open_part(g, i, name, err);
        mem_free(name);
        TRY(rc);
    }
    return 0;
}

/* Names of all tensors anew: the index of the first file points into what has moved. */
static int index_tensors(gguf *g, const char *path, icp_error *err) {
    const gguf_str **index = gguf_sort_names(g->tensors, g->n_tensors, sizeof *g->tensors);
    if (!index) return out_of_memory(path, err);
    mem_free(g->tensor_index);
    g->tensor_index = index;
    for (size_t i = 1; i < g->n_tensors; i++) {
        const gguf_tensor *one = (const void *)index[i - 1], *two = (const void *)index[i];
        if (gguf_str_compare(one->name, two->name) == 0)
            return error_set(err, ICP_EFORMAT,
                             "%.200s: tensor \"%.*s\" stands in file %d and in file %d", path,
                             (int)one->name.len, one->name.data, MIN(one->file, two->file) + 1,
                             MAX(one->file, two->file) + 1);
    }
    return 0;
}

int gguf_join(gguf *g, const char *path, icp_error *err) {
    uint64_t count = gguf_uint(g, "split.count", 1), no = gguf_uint(g, "split.no", 0);
    if (count <= 1) return 0;
    if (count > MAX_FILES)
        return error_set(err, ICP_EFORMAT,
                         "%.200s: split.count is %" PRIu64 ", but at most %d files are allowed",
                         path, count, MAX_FILES);
    if (no > 0) return not_the_first(path, no, count, err);
    TRY(open_rest(g, path, count, err));
    uint64_t wanted = gguf_uint(g, "split.tensors.count", g->n_tensors);
    if (g->n_tensors != wanted)
        return error_set(err, ICP_EFORMAT,
                         "%.200s: the model has %" PRIu64 " tensors, but its %zu files have %zu",
                         path, wanted, gguf_n_files(g), g->n_tensors);
    return index_tensors(g, path, err);
}
