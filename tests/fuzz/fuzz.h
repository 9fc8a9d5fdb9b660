/* What fuzz targets share: their one function, and an input that is read as numbers and texts. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"

/* Runs the target once; always 0. What must not be ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process, and says why, unless it holds. */
#define must(holds) ((holds) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #holds))
_Noreturn static inline void fuzz_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    abort();
}

typedef struct fuzz_input {
    const uint8_t *data;
    size_t len;
} fuzz_input;

/* The next byte; 0 when there is none. */
static inline uint32_t fuzz_byte(fuzz_input *in) {
    if (!in->len) return 0;
    in->len--;
    return *in->data++;
}

static inline uint32_t fuzz_word(fuzz_input *in) {
    uint32_t word = fuzz_byte(in);
    word |= fuzz_byte(in) << 8;
    word |= fuzz_byte(in) << 16;
    return word | fuzz_byte(in) << 24;
}

/* The next bytes, at most n of them. */
static inline fuzz_input fuzz_take(fuzz_input *in, size_t n) {
    fuzz_input taken = {in->data, MIN(in->len, n)};
    in->data += taken.len;
    in->len -= taken.len;
    return taken;
}

/* What stands before the next such byte, which is skipped. */
static inline fuzz_input fuzz_until(fuzz_input *in, uint8_t end) {
    const uint8_t *at = in->len ? memchr(in->data, end, in->len) : NULL;
    fuzz_input taken = fuzz_take(in, at ? (size_t)(at - in->data) : in->len);
    if (at) fuzz_byte(in);
    return taken;
}

/* A copy of just that size (NUL-terminated or not), so that a step too far is seen; free it. */
static inline char *fuzz_copy(fuzz_input text) {
    char *copy = malloc(text.len ? text.len : 1);
    must(copy != NULL);
    if (text.len) memcpy(copy, text.data, text.len);
    return copy;
}

static inline char *fuzz_string(fuzz_input text) {
    char *copy = malloc(text.len + 1);
    must(copy != NULL);
    if (text.len) memcpy(copy, text.data, text.len);
    copy[text.len] = 0;
    return copy;
}

#endif
