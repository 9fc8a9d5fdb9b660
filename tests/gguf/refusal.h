/* How tests of files look at refusals. */
#ifndef REFUSAL_H
#define REFUSAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gguf.h"

/* `what` was tried: the error's sentence has this part. */
static inline void assert_says(const icp_error *err, const char *part, const char *what) {
    if (!strstr(err->text, part)) fail_msg("%s: \"%s\" lacks \"%s\"", what, err->text, part);
}

/* A file is refused with this code, with a sentence and without. */
static inline icp_error gguf_refused(const char *path, int code, const char *says) {
    icp_error err = {0};
    for (int i = 0; i < 2; i++) {
        gguf *g = (gguf *)&err;
        assert_int_equal(gguf_open(path, &g, i ? NULL : &err), code);
        assert_null(g);
    }
    assert_int_equal(err.code, code);
    assert_says(&err, says, path);
    return err;
}

#endif
