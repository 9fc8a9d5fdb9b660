/* gguf: the GGUF file format, versions 2 and 3 (little-endian), as its specification describes it
 * (ggml's docs/gguf.md). A file is mapped, validated wholly at open, and read in place. A model
 * that is split into several files is opened by the first of them, which has the metadata, and then
 * looks like one file with the tensors of all.
 *
 * After gguf_open has succeeded no accessor can fail on the file's contents: counts, offsets,
 * alignments, lengths, types and duplicate names were all checked. */
#ifndef GGUF_H
#define GGUF_H

#include "base.h"

typedef struct gguf gguf;

/* clang-format off */
enum gguf_kind { /* value types of metadata, numbered as in the file */
    GGUF_KIND_U8, GGUF_KIND_I8, GGUF_KIND_U16, GGUF_KIND_I16, GGUF_KIND_U32, GGUF_KIND_I32,
    GGUF_KIND_F32, GGUF_KIND_BOOL, GGUF_KIND_STRING, GGUF_KIND_ARRAY, GGUF_KIND_U64,
    GGUF_KIND_I64, GGUF_KIND_F64,
};

/* Tensor element types, numbered as in the file: X(name, number, elements a block, bytes a block).
 * All types that the format defines are known by name and size; which of them can be computed
 * with is the model's business. */
#define GGUF_TYPES(X)                                                                              \
    X(F32, 0, 1, 4) X(F16, 1, 1, 2) X(Q4_0, 2, 32, 18) X(Q4_1, 3, 32, 20)                          \
    X(Q5_0, 6, 32, 22) X(Q5_1, 7, 32, 24) X(Q8_0, 8, 32, 34) X(Q8_1, 9, 32, 36)                    \
    X(Q2_K, 10, 256, 84) X(Q3_K, 11, 256, 110) X(Q4_K, 12, 256, 144) X(Q5_K, 13, 256, 176)         \
    X(Q6_K, 14, 256, 210) X(Q8_K, 15, 256, 292) X(IQ2_XXS, 16, 256, 66) X(IQ2_XS, 17, 256, 74)     \
    X(IQ3_XXS, 18, 256, 98) X(IQ1_S, 19, 256, 50) X(IQ4_NL, 20, 32, 18) X(IQ3_S, 21, 256, 110)     \
    X(IQ2_S, 22, 256, 82) X(IQ4_XS, 23, 256, 136) X(I8, 24, 1, 1) X(I16, 25, 1, 2)                 \
    X(I32, 26, 1, 4) X(I64, 27, 1, 8) X(F64, 28, 1, 8) X(IQ1_M, 29, 256, 56) X(BF16, 30, 1, 2)     \
    X(TQ1_0, 34, 256, 54) X(TQ2_0, 35, 256, 66) X(MXFP4, 39, 32, 17) X(NVFP4, 40, 64, 36)          \
    X(Q1_0, 41, 128, 18)
/* clang-format on */

enum gguf_type {
#define GGUF_TYPE_ENUM(name, number, block, bytes) GGUF_##name = (number),
    GGUF_TYPES(GGUF_TYPE_ENUM)
#undef GGUF_TYPE_ENUM
};

typedef struct gguf_str { /* not NUL-terminated, lies in the mapping */
    const char *data;
    size_t len;
} gguf_str;

typedef struct gguf_value {
    enum gguf_kind kind;
    enum gguf_kind item;  /* of an array (arrays of arrays are refused at open), else kind */
    uint64_t count;       /* items of an array, else 1 */
    const uint8_t *bytes; /* the first item as in the file, unaligned; strings: gguf_at_strings */
} gguf_value;

typedef struct gguf_tensor {
    gguf_str name;
    enum gguf_type type;
    int n_dims;       /* 1..4 */
    uint64_t dims[4]; /* fastest first, none is 0; unused ones are 1 */
    int file;         /* that holds it, of a split model; the first is 0 */
    uint64_t offset;  /* of data, from the start of that file: a multiple of its alignment */
    const void *data; /* in the mapping */
    size_t size;      /* bytes, whole blocks */
} gguf_tensor;

/* Maps and validates path and, when it is NAME-00001-of-0000N.gguf, the first of a model's files,
 * the others beside it. On success *out must be closed; on failure *out is NULL and *err says what
 * is wrong, in which file, at which byte and in which entry. ICP_EIO, ICP_EFORMAT (also: files that
 * do not belong together), ICP_EINVALID (not the first file), ICP_EUNSUPPORTED (version,
 * big-endian, unknown tensor type, arrays of arrays), ICP_ENOMEM. No file may shrink while it is
 * open. */
int gguf_open(const char *path, gguf **out, icp_error *err);
void gguf_close(gguf **g);

uint32_t gguf_version(const gguf *g);
size_t gguf_file_size(const gguf *g); /* of all files */
size_t gguf_n_files(const gguf *g);
/* Of the tensors' offsets in the first file: a power of two, at least 8. */
size_t gguf_alignment(const gguf *g);
/* Drops the pages of the mappings that were read; they are read again when next touched, also by
 * threads that are reading them now. */
void gguf_forget_pages(const gguf *g);

/* Metadata in file order; find returns NULL when there is no such key. */
size_t gguf_n_values(const gguf *g);
const gguf_value *gguf_value_at(const gguf *g, size_t i, gguf_str *key);
const gguf_value *gguf_find(const gguf *g, const char *key);

/* Typed access. `missing` is returned when the key is absent or of another kind of thing
 * (gguf_kind_name tells the user which). Integers of any width convert when the value fits, and
 * to a float always. */
uint64_t gguf_uint(const gguf *g, const char *key, uint64_t missing);
double gguf_float(const gguf *g, const char *key, double missing);
bool gguf_bool(const gguf *g, const char *key, bool missing);
gguf_str gguf_string(const gguf *g, const char *key); /* {NULL, 0} when absent */

/* Item i < value->count of numbers or bools, as an integer or a float. What does not fit an
 * int64_t becomes the nearest one that does (NaN: 0). A single value counts as one item. */
int64_t gguf_at_int(const gguf_value *v, uint64_t i);
double gguf_at_float(const gguf_value *v, uint64_t i);
/* The strings of a string or an array of strings, found once: out[count] is filled in O(bytes). */
void gguf_at_strings(const gguf_value *v, gguf_str *out);

size_t gguf_n_tensors(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i);
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name); /* NULL when absent */

const char *gguf_type_name(int type); /* "Q4_0"; NULL when unknown */
const char *gguf_kind_name(int kind); /* "u32", "string", …; NULL when unknown */

/* Appends what the file holds as text for people, in lines: header, metadata, tensors, totals by
 * type. Whatever comes from the file is escaped and capped. 0 or ICP_ENOMEM (out->failed). */
int gguf_describe(const gguf *g, buf *out);

#endif
