/* What an open file is made of. Shared by the files of gguf only.
 *
 *     0        24                                   data_at               size
 *     +--------+----------+--------------+---------+----------------------+
 *     | header | metadata | tensor infos | padding | tensor data, aligned |
 *     +--------+----------+--------------+---------+----------------------+
 *                ^ entries  ^ tensors[i].name        ^ tensors[i].data
 *
 * Once gguf_parse has succeeded:
 * 1. Every pointer into the file, with its length, lies inside map[0, size).
 * 2. entries and tensors stand in file order; key_index and tensor_index point to their names,
 *    sorted by byte value, no two equal.
 * 3. The data of no two tensors overlap, and each lies at a multiple of alignment.
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
};

/* Reads and checks g->map[0, g->size) into the rest of *g, which must be zero. What was allocated
 * belongs to g in failure too. path is for the error's sentence. */
int gguf_parse(gguf *g, const char *path, icp_error *err);

typedef struct gguf_type_info {
    const char *name;
    uint32_t block_len, block_size; /* elements and bytes of a block */
} gguf_type_info;

const gguf_type_info *gguf_type_find(uint32_t type); /* NULL when unknown */
size_t gguf_kind_size(enum gguf_kind kind);          /* bytes; 0 for strings and arrays */

/* Order of names: by bytes, a prefix first. */
int gguf_str_compare(gguf_str a, gguf_str b);

#endif
