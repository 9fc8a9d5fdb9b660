/* A writer of GGUF files, right or wrong, that shares nothing with the reader: each function
 * appends one piece, as the format's specification lays it out. */
#ifndef GGUF_WRITER_H
#define GGUF_WRITER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct writer {
    uint8_t data[1 << 16];
    size_t len;
} writer;

enum {
    W_U8,
    W_I8,
    W_U16,
    W_I16,
    W_U32,
    W_I32,
    W_F32,
    W_BOOL,
    W_STRING,
    W_ARRAY,
    W_U64,
    W_I64,
    W_F64
};

static inline void put(writer *w, const void *data, size_t len) {
    assert_true(len <= sizeof w->data - w->len);
    memcpy(w->data + w->len, data, len);
    w->len += len;
}

static inline void put_uint(writer *w, uint64_t value, int bytes) {
    uint8_t le[8];
    for (int i = 0; i < bytes; i++) le[i] = (uint8_t)(value >> 8 * i);
    put(w, le, (size_t)bytes);
}

static inline void put_text(writer *w, const char *text) {
    put_uint(w, strlen(text), 8);
    put(w, text, strlen(text));
}

static inline void put_header(writer *w, uint32_t version, uint64_t n_tensors, uint64_t n_entries) {
    w->len = 0;
    put(w, "GGUF", 4);
    put_uint(w, version, 4);
    put_uint(w, n_tensors, 8);
    put_uint(w, n_entries, 8);
}

/* A key and the kind of its value; the value is put after it. */
static inline void put_key(writer *w, const char *key, uint32_t kind) {
    put_text(w, key);
    put_uint(w, kind, 4);
}

static inline void put_u32_entry(writer *w, const char *key, uint32_t value) {
    put_key(w, key, W_U32);
    put_uint(w, value, 4);
}

static inline void put_array_key(writer *w, const char *key, uint32_t item, uint64_t count) {
    put_key(w, key, W_ARRAY);
    put_uint(w, item, 4);
    put_uint(w, count, 8);
}

/* Dimensions end with the first that is 0. */
static inline void put_tensor(writer *w, const char *name, const uint64_t dims[4], uint32_t type,
                              uint64_t offset) {
    uint32_t n = 0;
    while (n < 4 && dims[n]) n++;
    put_text(w, name);
    put_uint(w, n, 4);
    for (uint32_t i = 0; i < n; i++) put_uint(w, dims[i], 8);
    put_uint(w, type, 4);
    put_uint(w, offset, 8);
}

static inline void put_zeros(writer *w, size_t n) {
    while (n--) put_uint(w, 0, 1);
}

static inline void put_padding(writer *w, size_t alignment) {
    while (w->len % alignment) put_uint(w, 0, 1);
}

/* A file in memory that has a path; closed with close(fd). */
static inline int file_of(const void *data, size_t len, char path[32]) {
    int fd = memfd_create("gguf", 0);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
