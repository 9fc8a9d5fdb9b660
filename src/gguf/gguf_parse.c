/* Reading a GGUF file front to back, trusting nothing. Each length is compared with the bytes
 * that are left before it is used or multiplied, so that no sum here can overflow; each count is
 * compared with the least that so many things take in the file before memory is asked for. */
#include "gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as the file has them");
_Static_assert(sizeof(size_t) == 8, "offsets and sizes of a file fit a size_t");

enum {
    HEADER_SIZE = 4 + 4 + 8 + 8,             /* magic, version, tensors, metadata entries */
    MIN_ENTRY_SIZE = 8 + 1 + 4 + 1,          /* key, kind, the smallest value */
    MIN_TENSOR_SIZE = 8 + 1 + 4 + 8 + 4 + 8, /* name, n_dims, one dim, type, offset */
    MAX_KEY = 65535,
    MAX_TENSOR_NAME = 64,
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 1 << 21, /* a huge page */
    SHOWN_NAME = 64          /* bytes of a name that an error repeats */
};

typedef struct reader {
    gguf *g;
    size_t at; /* the next byte; never beyond g->size */
    const char *path;
    icp_error *err;
    const char *what; /* what is being read, for errors: "key", "tensor", or NULL */
    gguf_str name;
} reader;

static int fail_at(const reader *r, size_t at, int code, const char *format, ...) PRINTF_LIKE(4, 5);

/* path: byte 1234, tensor "blk.0.attn_q.weight": what is wrong */
static int fail_at(const reader *r, size_t at, int code, const char *format, ...) {
    char text[256], name[SHOWN_NAME + 16] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->what) {
        size_t shown = utf8_complete(r->name.data, MIN(r->name.len, (size_t)SHOWN_NAME));
        snprintf(name, sizeof name, "%.*s%s", (int)shown, r->name.data,
                 shown < r->name.len ? "…" : "");
    }
    return error_set(r->err, code, "%.200s: byte %zu%s%s%s%s%s: %s", r->path, at,
                     r->what ? ", " : "", r->what ? r->what : "", r->what ? " \"" : "", name,
                     r->what ? "\"" : "", text);
}

static int out_of_memory(const reader *r, uint64_t n, const char *what) {
    return error_set(r->err, ICP_ENOMEM, "%.200s: out of memory for %" PRIu64 " %s", r->path, n,
                     what);
}

/* ---- the smallest pieces ---- */

static size_t left(const reader *r) {
    return r->g->size - r->at;
}

static int take(reader *r, void *out, size_t size, const char *what) {
    if (size > left(r)) return fail_at(r, r->at, ICP_EFORMAT, "the file ends inside %s", what);
    memcpy(out, r->g->map + r->at, size);
    r->at += size;
    return 0;
}

static int take_string(reader *r, gguf_str *out, const char *what) {
    size_t start = r->at;
    uint64_t len = 0;
    TRY(take(r, &len, sizeof len, what));
    if (len > left(r))
        return fail_at(r, start, ICP_EFORMAT,
                       "%s has a length of %" PRIu64 " bytes, but the file ends after %zu", what,
                       len, left(r));
    *out = (gguf_str){(const char *)r->g->map + r->at, len};
    r->at += len;
    return 0;
}

static int take_name(reader *r, gguf_str *out, size_t max, const char *what) {
    size_t start = r->at;
    TRY(take_string(r, out, what));
    if (out->len == 0) return fail_at(r, start, ICP_EFORMAT, "%s is empty", what);
    if (out->len > max)
        return fail_at(r, start, ICP_EFORMAT, "%s of %zu bytes (at most %zu are allowed)", what,
                       out->len, max);
    return 0;
}

/* ---- header ---- */

static int read_header(reader *r, uint64_t *n_tensors, uint64_t *n_entries) {
    const uint8_t *map = r->g->map;
    size_t shown = MIN(r->g->size, (size_t)4);
    if (shown < 4 || memcmp(map, "GGUF", 4) != 0)
        return error_set(r->err, ICP_EFORMAT,
                         "%.200s: is not a GGUF file: it begins with \"%.*s\" instead of \"GGUF\"",
                         r->path, (int)shown, (const char *)map);
    r->at = 4;
    uint32_t version = 0;
    TRY(take(r, &version, sizeof version, "the version"));
    if ((version & 0xffff) == 0 && version != 0)
        return fail_at(r, 4, ICP_EUNSUPPORTED, "a big-endian GGUF file, which is not supported");
    if (version != 2 && version != 3)
        return fail_at(r, 4, ICP_EUNSUPPORTED,
                       "GGUF version %" PRIu32 " is not supported (versions 2 and 3 are)", version);
    r->g->version = version;
    TRY(take(r, n_tensors, sizeof *n_tensors, "the number of tensors"));
    TRY(take(r, n_entries, sizeof *n_entries, "the number of metadata entries"));
    if (*n_tensors > left(r) / MIN_TENSOR_SIZE)
        return fail_at(r, 8, ICP_EFORMAT, "%" PRIu64 " tensors cannot fit the file of %zu bytes",
                       *n_tensors, r->g->size);
    if (*n_entries > left(r) / MIN_ENTRY_SIZE)
        return fail_at(r, 16, ICP_EFORMAT,
                       "%" PRIu64 " metadata entries cannot fit the file of %zu bytes", *n_entries,
                       r->g->size);
    return 0;
}

/* ---- index ---- */

static int compare_indexed(const void *a, const void *b) {
    return gguf_str_compare(**(const gguf_str *const *)a, **(const gguf_str *const *)b);
}

const gguf_str **gguf_sort_names(const void *records, size_t n, size_t record_size) {
    const gguf_str **index = mem_alloc(n * sizeof *index);
    if (!index) return NULL;
    for (size_t i = 0; i < n; i++)
        index[i] = (const gguf_str *)((const char *)records + i * record_size);
    qsort(index, n, sizeof *index, compare_indexed);
    return index;
}

/* Sorts the names of records; two equal ones are an error. */
static int index_names(reader *r, const void *records, size_t n, size_t record_size,
                       const char *what, const gguf_str ***out) {
    const gguf_str **index = *out = gguf_sort_names(records, n, record_size);
    if (!index) return out_of_memory(r, n, "names");
    for (size_t i = 1; i < n; i++) {
        const gguf_str *one = index[i - 1], *two = index[i];
        if (gguf_str_compare(*one, *two) != 0) continue;
        size_t one_at = (size_t)((const uint8_t *)one->data - r->g->map);
        size_t two_at = (size_t)((const uint8_t *)two->data - r->g->map);
        r->what = what;
        r->name = *one;
        return fail_at(r, MAX(one_at, two_at), ICP_EFORMAT, "stands there twice, first at byte %zu",
                       MIN(one_at, two_at));
    }
    return 0;
}

/* ---- metadata ---- */

static int check_bools(reader *r, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        unsigned byte = r->g->map[r->at + i];
        if (byte > 1)
            return fail_at(r, r->at + i, ICP_EFORMAT, "a bool of %u (only 0 and 1 are allowed)",
                           byte);
    }
    return 0;
}

/* Steps over count items, each of which must be whole and well-formed. */
static int check_items(reader *r, enum gguf_kind kind, uint64_t count) {
    size_t least = kind == GGUF_KIND_STRING ? sizeof(uint64_t) : gguf_kind_size(kind);
    if (count > left(r) / least)
        return fail_at(r, r->at, ICP_EFORMAT,
                       "%" PRIu64 " %s of kind %s, but the file ends after %zu bytes", count,
                       count == 1 ? "value" : "values", gguf_kind_name((int)kind), left(r));
    if (kind == GGUF_KIND_STRING) {
        gguf_str text;
        for (uint64_t i = 0; i < count; i++) TRY(take_string(r, &text, "a string"));
        return 0;
    }
    if (kind == GGUF_KIND_BOOL) TRY(check_bools(r, count));
    r->at += count * least;
    return 0;
}

static int take_kind(reader *r, enum gguf_kind *out, const char *what) {
    size_t start = r->at;
    uint32_t kind = 0;
    TRY(take(r, &kind, sizeof kind, what));
    if (!gguf_kind_name((int)kind))
        return fail_at(r, start, ICP_EFORMAT, "%s is %" PRIu32 ", which is not known", what, kind);
    *out = (enum gguf_kind)kind;
    return 0;
}

static int read_value(reader *r, gguf_value *v) {
    TRY(take_kind(r, &v->kind, "the value type"));
    v->item = v->kind;
    v->count = 1;
    if (v->kind == GGUF_KIND_ARRAY) {
        size_t start = r->at;
        TRY(take_kind(r, &v->item, "the type of an array's items"));
        if (v->item == GGUF_KIND_ARRAY)
            return fail_at(r, start, ICP_EUNSUPPORTED,
                           "an array of arrays, which is not supported");
        TRY(take(r, &v->count, sizeof v->count, "the length of an array"));
    }
    v->bytes = r->g->map + r->at;
    return check_items(r, v->item, v->count);
}

static int read_metadata(reader *r, uint64_t n) {
    gguf *g = r->g;
    g->entries = mem_zero(n, sizeof *g->entries);
    if (!g->entries) return out_of_memory(r, n, "metadata entries");
    for (; g->n_entries < n; g->n_entries++) {
        gguf_entry *entry = &g->entries[g->n_entries];
        r->what = NULL;
        TRY(take_name(r, &entry->key, MAX_KEY, "a key"));
        r->what = "key";
        r->name = entry->key;
        TRY(read_value(r, &entry->value));
    }
    r->what = NULL;
    return index_names(r, g->entries, n, sizeof *g->entries, "key", &g->key_index);
}

static int read_alignment(reader *r) {
    static const char key[] = "general.alignment";
    gguf *g = r->g;
    const gguf_value *v = gguf_find(g, key);
    g->alignment = DEFAULT_ALIGNMENT;
    if (!v) return 0;
    r->what = "key";
    r->name = (gguf_str){key, sizeof key - 1};
    size_t at = (size_t)(v->bytes - g->map);
    if (v->kind != GGUF_KIND_U32)
        return fail_at(r, at, ICP_EFORMAT, "is of kind %s, but must be u32",
                       gguf_kind_name((int)v->kind));
    uint64_t alignment = gguf_uint(g, key, 0);
    if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || alignment & (alignment - 1))
        return fail_at(r, at, ICP_EFORMAT,
                       "is %" PRIu64 ", but must be a power of two from %d to %d", alignment,
                       MIN_ALIGNMENT, MAX_ALIGNMENT);
    g->alignment = alignment;
    r->what = NULL;
    return 0;
}

/* ---- tensors ---- */

static int read_shape(reader *r, gguf_tensor *t) {
    size_t start = r->at;
    uint32_t n_dims = 0;
    TRY(take(r, &n_dims, sizeof n_dims, "the number of dimensions"));
    if (n_dims < 1 || n_dims > COUNT_OF(t->dims))
        return fail_at(r, start, ICP_EFORMAT, "%" PRIu32 " dimensions (1 to %zu are allowed)",
                       n_dims, COUNT_OF(t->dims));
    t->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < COUNT_OF(t->dims); i++) {
        start = r->at;
        t->dims[i] = 1;
        if (i < n_dims) TRY(take(r, &t->dims[i], sizeof t->dims[i], "the dimensions"));
        if (t->dims[i] == 0) return fail_at(r, start, ICP_EFORMAT, "dimension %" PRIu32 " is 0", i);
    }
    return 0;
}

/* Sets t->size from the shape and the type. */
static int measure(reader *r, size_t at, gguf_tensor *t, const gguf_type_info *type) {
    uint64_t n = 1;
    if (t->dims[0] % type->block_len)
        return fail_at(r, at, ICP_EFORMAT,
                       "rows of %" PRIu64 " elements do not divide into %s blocks of %" PRIu32,
                       t->dims[0], type->name, type->block_len);
    bool overflow = false;
    for (int i = 0; i < t->n_dims; i++) overflow |= __builtin_mul_overflow(n, t->dims[i], &n);
    if (overflow || __builtin_mul_overflow(n / type->block_len, type->block_size, &t->size))
        return fail_at(r, at, ICP_EFORMAT, "the product of the dimensions overflows");
    return 0;
}

static int read_tensor(reader *r, gguf_tensor *t) {
    r->what = NULL;
    TRY(take_name(r, &t->name, MAX_TENSOR_NAME, "a tensor's name"));
    r->what = "tensor";
    r->name = t->name;
    size_t shape_at = r->at;
    TRY(read_shape(r, t));
    size_t type_at = r->at;
    uint32_t number = 0;
    TRY(take(r, &number, sizeof number, "the tensor type"));
    const gguf_type_info *type = gguf_type_find(number);
    if (!type)
        return fail_at(r, type_at, ICP_EUNSUPPORTED, "has the type %" PRIu32 ", which is not known",
                       number);
    t->type = (enum gguf_type)number;
    TRY(measure(r, shape_at, t, type));
    size_t offset_at = r->at;
    TRY(take(r, &t->offset, sizeof t->offset, "the tensor's offset"));
    if (t->offset % r->g->alignment)
        return fail_at(r, offset_at, ICP_EFORMAT,
                       "the offset %" PRIu64 " is not a multiple of the alignment %zu", t->offset,
                       r->g->alignment);
    return 0;
}

static int read_tensors(reader *r, uint64_t n) {
    gguf *g = r->g;
    g->tensors = mem_zero(n, sizeof *g->tensors);
    if (!g->tensors) return out_of_memory(r, n, "tensors");
    for (; g->n_tensors < n; g->n_tensors++) TRY(read_tensor(r, &g->tensors[g->n_tensors]));
    r->what = NULL;
    return index_names(r, g->tensors, n, sizeof *g->tensors, "tensor", &g->tensor_index);
}

/* Turns offsets within the data into places in the file; all data must lie inside it. */
static int place_tensors(reader *r) {
    gguf *g = r->g;
    size_t padding = -r->at & (g->alignment - 1);
    g->data_at = r->at + MIN(padding, left(r)); /* without tensors the padding may be missing */
    size_t room = g->size - g->data_at;
    for (size_t i = 0; i < g->n_tensors; i++) {
        gguf_tensor *t = &g->tensors[i];
        r->what = "tensor";
        r->name = t->name;
        if (t->offset > room || t->size > room - t->offset)
            return fail_at(r, (size_t)((const uint8_t *)t->name.data - g->map), ICP_EFORMAT,
                           "its data (%zu bytes at offset %" PRIu64
                           ") reach beyond the end of the file, which has %zu bytes of data",
                           t->size, t->offset, room);
        t->offset += g->data_at;
        t->data = g->map + t->offset;
    }
    r->what = NULL;
    return 0;
}

static int compare_offsets(const void *a, const void *b) {
    const gguf_tensor *one = *(const gguf_tensor *const *)a, *two = *(const gguf_tensor *const *)b;
    return (one->offset > two->offset) - (one->offset < two->offset);
}

/* No writer lets two tensors share bytes: where they do, an offset is wrong. */
static int check_overlaps(reader *r) {
    gguf *g = r->g;
    const gguf_tensor **sorted = mem_alloc(g->n_tensors * sizeof *sorted);
    if (!sorted) return out_of_memory(r, g->n_tensors, "tensors");
    for (size_t i = 0; i < g->n_tensors; i++) sorted[i] = &g->tensors[i];
    qsort(sorted, g->n_tensors, sizeof *sorted, compare_offsets);
    int rc = 0;
    for (size_t i = 1; i < g->n_tensors && rc == 0; i++) {
        const gguf_tensor *before = sorted[i - 1], *t = sorted[i];
        if (t->offset - before->offset >= before->size) continue;
        r->what = "tensor";
        r->name = t->name;
        rc = fail_at(r, t->offset, ICP_EFORMAT, "its data overlap those of \"%.*s\"",
                     (int)before->name.len, before->name.data);
    }
    mem_free(sorted);
    return rc;
}

int gguf_parse(gguf *g, const char *path, icp_error *err) {
    reader r = {.g = g, .path = path, .err = err};
    uint64_t n_tensors = 0, n_entries = 0;
    TRY(read_header(&r, &n_tensors, &n_entries));
    TRY(read_metadata(&r, n_entries));
    TRY(read_alignment(&r));
    TRY(read_tensors(&r, n_tensors));
    TRY(place_tensors(&r));
    return check_overlaps(&r);
}
