/* What an open file is made of. Shared by the files of gguf only.
 *
 *     0        24                                   data_at               size
 *     +--------+----------+--------------+---------+----------------------+
 *     | header | metadata | tensor infos | padding | tensor data, aligned |
 *     +--------+----------+--------------+---------+----------------------+
 *                ^ entries  ^ tensors[i].name        ^ tensors[i].data
 *
 * A split model is one such file, whose tensors were joined by those of the others (rest), each of
 * which is a gguf of its own.
 *
 * Once gguf_open has succeeded:
 * 1. Every pointer into a file, with its length, lies inside map[0, size) of that file's gguf.
 * 2. entries and tensors stand in file order, and in the order of files; key_index and tensor_index
 *    point to their names, sorted by byte value, no two equal.
 * 3. The data of no two tensors overlap, and each lies at a multiple of its file's alignment.
 * 4. Nothing changes any more: all accessors may run in many threads. */
#ifndef GGUF_INTERNAL_H
#define GGUF_INTERNAL_H

#include "gguf.h"

typedef struct gguf_entry {
    gguf_str key; /* first, so that an index of names is an index of entries */
    gguf_value value;
} gguf_entry;

struct gguf {
    const uint8_t *map;
    size_t size;
    uint32_t version;
    size_t alignment, data_at;
    gguf_entry *entries;
    gguf_tensor *tensors;
    size_t n_entries, n_tensors;
    const gguf_str **key_index, **tensor_index;
    gguf **rest; /* of a split model: the second file and those after it */
    size_t n_rest;
};

/* Maps and validates one file, split or not. */
int gguf_open_file(const char *path, gguf **out, icp_error *err);

/* Opens the other files of a split model whose first file, at path, *g is; does nothing when it is
 * whole. What was opened belongs to g in failure too (gguf_split.c). */
int gguf_join(gguf *g, const char *path, icp_error *err);

/* Reads and checks g->map[0, g->size) into the rest of *g, which must be zero. What was allocated
 * belongs to g in failure too. path is for the error's sentence. */
int gguf_parse(gguf *g, const char *path, icp_error *err);

typedef struct gguf_type_info {
    const char *name;
    uint32_t block_len, block_size; /* elements and bytes of a block */
} gguf_type_info;

/* Pointers to the names that stand at the start of n records of the given size, sorted; NULL: no
 * memory. */
const gguf_str **gguf_sort_names(const void *records, size_t n, size_t record_size);

const gguf_type_info *gguf_type_find(uint32_t type); /* NULL when unknown */
size_t gguf_kind_size(enum gguf_kind kind);          /* bytes; 0 for strings and arrays */

/* Order of names: by bytes, a prefix first. */
int gguf_str_compare(gguf_str a, gguf_str b);

#endif
