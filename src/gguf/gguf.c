#include "gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- types and kinds ---- */

static const gguf_type_info types[] = {
#define TYPE_INFO(name, number, block_len, block_size) [number] = {#name, block_len, block_size},
    GGUF_TYPES(TYPE_INFO)
#undef TYPE_INFO
};

const gguf_type_info *gguf_type_find(uint32_t type) {
    return type < COUNT_OF(types) && types[type].name ? &types[type] : NULL;
}

const char *gguf_type_name(int type) {
    const gguf_type_info *info = type < 0 ? NULL : gguf_type_find((uint32_t)type);
    return info ? info->name : NULL;
}

static const struct {
    const char *name;
    size_t size;
} kinds[] = {
    [GGUF_KIND_U8] = {"u8", 1},         [GGUF_KIND_I8] = {"i8", 1},
    [GGUF_KIND_U16] = {"u16", 2},       [GGUF_KIND_I16] = {"i16", 2},
    [GGUF_KIND_U32] = {"u32", 4},       [GGUF_KIND_I32] = {"i32", 4},
    [GGUF_KIND_F32] = {"f32", 4},       [GGUF_KIND_BOOL] = {"bool", 1},
    [GGUF_KIND_STRING] = {"string", 0}, [GGUF_KIND_ARRAY] = {"array", 0},
    [GGUF_KIND_U64] = {"u64", 8},       [GGUF_KIND_I64] = {"i64", 8},
    [GGUF_KIND_F64] = {"f64", 8},
};

const char *gguf_kind_name(int kind) {
    return kind >= 0 && (size_t)kind < COUNT_OF(kinds) ? kinds[kind].name : NULL;
}

size_t gguf_kind_size(enum gguf_kind kind) {
    return kinds[kind].size;
}

/* ---- life ---- */

static int map_file(gguf *g, const char *path, icp_error *err) {
    /* O_NONBLOCK: a pipe without a writer must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return error_set(err, ICP_EIO, "%.200s: cannot open: %s", path, strerror(errno));
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) < 0) {
        rc = error_set(err, ICP_EIO, "%.200s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        rc = error_set(err, ICP_EIO, "%.200s: is %s, not a file", path,
                       S_ISDIR(st.st_mode) ? "a directory" : "a device, pipe or socket");
    } else if (st.st_size == 0) {
        rc = error_set(err, ICP_EFORMAT, "%.200s: is empty", path);
    } else {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            rc = error_set(err, ICP_EIO, "%.200s: cannot map: %s", path, strerror(errno));
        } else {
            g->map = map;
            g->size = (size_t)st.st_size;
        }
    }
    close(fd);
    return rc;
}

int gguf_open_file(const char *path, gguf **out, icp_error *err) {
    *out = NULL;
    gguf *g = mem_zero(1, sizeof *g);
    if (!g) return error_set(err, ICP_ENOMEM, "%.200s: out of memory", path);
    int rc = map_file(g, path, err);
    if (rc == 0) rc = gguf_parse(g, path, err);
    if (rc < 0)
        gguf_close(&g);
    else
        *out = g;
    return rc;
}

int gguf_open(const char *path, gguf **out, icp_error *err) {
    TRY(gguf_open_file(path, out, err));
    int rc = gguf_join(*out, path, err);
    if (rc < 0) gguf_close(out);
    return rc;
}

void gguf_close(gguf **gp) {
    gguf *g = *gp;
    if (!g) return;
    *gp = NULL;
    mem_free(g->entries);
    mem_free(g->tensors);
    mem_free(g->key_index);
    mem_free(g->tensor_index);
    for (size_t i = 0; i < g->n_rest; i++) gguf_close(&g->rest[i]);
    mem_free(g->rest);
    if (g->map) munmap((void *)g->map, g->size);
    mem_free(g);
}

/* ---- the whole file ---- */

uint32_t gguf_version(const gguf *g) {
    return g->version;
}

size_t gguf_file_size(const gguf *g) {
    size_t size = g->size;
    for (size_t i = 0; i < g->n_rest; i++) size += g->rest[i]->size;
    return size;
}

size_t gguf_n_files(const gguf *g) {
    return 1 + g->n_rest;
}

size_t gguf_alignment(const gguf *g) {
    return g->alignment;
}

void gguf_forget_pages(const gguf *g) {
    /* Only a wish: pages that stay cost memory, nothing else. */
    madvise((void *)g->map, g->size, MADV_DONTNEED);
    for (size_t i = 0; i < g->n_rest; i++) gguf_forget_pages(g->rest[i]);
}

/* ---- finding by name ---- */

int gguf_str_compare(gguf_str a, gguf_str b) {
    size_t shared = MIN(a.len, b.len);
    int order = shared ? memcmp(a.data, b.data, shared) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* The entry or tensor whose name is the string that index finds; both begin with their name. */
static const void *find(const gguf_str *const *index, size_t n, const char *name) {
    gguf_str wanted = {name, strlen(name)};
    for (size_t low = 0, high = n; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = gguf_str_compare(*index[middle], wanted);
        if (order == 0) return index[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const gguf_value *gguf_find(const gguf *g, const char *key) {
    const gguf_entry *entry = find(g->key_index, g->n_entries, key);
    return entry ? &entry->value : NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name) {
    return find(g->tensor_index, g->n_tensors, name);
}

size_t gguf_n_values(const gguf *g) {
    return g->n_entries;
}

const gguf_value *gguf_value_at(const gguf *g, size_t i, gguf_str *key) {
    if (key) *key = g->entries[i].key;
    return &g->entries[i].value;
}

size_t gguf_n_tensors(const gguf *g) {
    return g->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i) {
    return &g->tensors[i];
}

/* ---- values ---- */

/* One number of any kind: what it is, and its value in the member of that kind. */
typedef struct number {
    enum { NEGATIVE, NATURAL, REAL, NO_NUMBER } is;
    int64_t negative;
    uint64_t natural;
    double real;
} number;

static number from_signed(int64_t i) {
    return i < 0 ? (number){.is = NEGATIVE, .negative = i}
                 : (number){.is = NATURAL, .natural = (uint64_t)i};
}

static number number_at(const gguf_value *v, uint64_t i) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } raw;
    size_t size = gguf_kind_size(v->item);
    memcpy(&raw, v->bytes + i * size, size);
    switch (v->item) {
    case GGUF_KIND_BOOL:
    case GGUF_KIND_U8:
        return (number){.is = NATURAL, .natural = raw.u8};
    case GGUF_KIND_U16:
        return (number){.is = NATURAL, .natural = raw.u16};
    case GGUF_KIND_U32:
        return (number){.is = NATURAL, .natural = raw.u32};
    case GGUF_KIND_U64:
        return (number){.is = NATURAL, .natural = raw.u64};
    case GGUF_KIND_I8:
        return from_signed(raw.i8);
    case GGUF_KIND_I16:
        return from_signed(raw.i16);
    case GGUF_KIND_I32:
        return from_signed(raw.i32);
    case GGUF_KIND_I64:
        return from_signed(raw.i64);
    case GGUF_KIND_F32:
        return (number){.is = REAL, .real = raw.f32};
    case GGUF_KIND_F64:
        return (number){.is = REAL, .real = raw.f64};
    case GGUF_KIND_STRING:
    case GGUF_KIND_ARRAY:
        break;
    }
    return (number){.is = NO_NUMBER};
}

int64_t gguf_at_int(const gguf_value *v, uint64_t i) {
    number n = number_at(v, i);
    switch (n.is) {
    case NEGATIVE:
        return n.negative;
    case NATURAL:
        return (int64_t)MIN(n.natural, (uint64_t)INT64_MAX);
    case REAL:
        if (isnan(n.real)) return 0;
        if (n.real >= 0x1p63) return INT64_MAX;
        return n.real < -0x1p63 ? INT64_MIN : (int64_t)n.real;
    case NO_NUMBER:
        break;
    }
    return 0;
}

double gguf_at_float(const gguf_value *v, uint64_t i) {
    number n = number_at(v, i);
    switch (n.is) {
    case NEGATIVE:
        return (double)n.negative;
    case NATURAL:
        return (double)n.natural;
    case REAL:
        return n.real;
    case NO_NUMBER:
        break;
    }
    return 0;
}

void gguf_at_strings(const gguf_value *v, gguf_str *out) {
    const uint8_t *at = v->bytes;
    for (uint64_t i = 0; i < v->count; i++) {
        uint64_t len;
        memcpy(&len, at, sizeof len);
        out[i] = (gguf_str){(const char *)at + sizeof len, len};
        at += sizeof len + len;
    }
}

/* The value of key when it is a single one, not of the unwanted kind; NULL otherwise. */
static const gguf_value *find_scalar(const gguf *g, const char *key) {
    const gguf_value *v = gguf_find(g, key);
    return v && v->kind != GGUF_KIND_ARRAY ? v : NULL;
}

uint64_t gguf_uint(const gguf *g, const char *key, uint64_t missing) {
    const gguf_value *v = find_scalar(g, key);
    if (!v || v->kind == GGUF_KIND_BOOL) return missing;
    number n = number_at(v, 0);
    return n.is == NATURAL ? n.natural : missing;
}

double gguf_float(const gguf *g, const char *key, double missing) {
    const gguf_value *v = find_scalar(g, key);
    return v && v->kind != GGUF_KIND_BOOL && v->kind != GGUF_KIND_STRING ? gguf_at_float(v, 0)
                                                                         : missing;
}

bool gguf_bool(const gguf *g, const char *key, bool missing) {
    const gguf_value *v = find_scalar(g, key);
    return v && v->kind == GGUF_KIND_BOOL ? v->bytes[0] != 0 : missing;
}

gguf_str gguf_string(const gguf *g, const char *key) {
    const gguf_value *v = find_scalar(g, key);
    gguf_str text = {NULL, 0};
    if (v && v->kind == GGUF_KIND_STRING) gguf_at_strings(v, &text);
    return text;
}
