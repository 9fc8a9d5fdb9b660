#include "base.h"
#include "base_internal.h"

#include <stdio.h>
#include <string.h>

const char *icp_strerror(int code) {
    switch (code) {
#define ERROR_CASE(name, number, text)                                                             \
    case ICP_E##name:                                                                              \
        return text;
        ICP_ERRORS(ERROR_CASE)
#undef ERROR_CASE
    default:
        return code == 0 ? "success" : "unknown error";
    }
}

/* Appends as much of text as fits, escaping what could break a line or a terminal. */
size_t base_escape(char *out, size_t cap, const char *text, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        int32_t cp;
        int width = utf8_decode(text + i, len - i, &cp);
        char piece[16];
        int piece_len;
        if (cp < 0) {
            width = 1;
            piece_len = snprintf(piece, sizeof piece, "\\x%02x", (unsigned char)text[i]);
        } else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
                   (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069)) {
            /* control characters, line separators, and bidirectional overrides */
            piece_len =
                snprintf(piece, sizeof piece, cp < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)cp);
        } else {
            memcpy(piece, text + i, (size_t)width);
            piece_len = width;
        }
        if (n + (size_t)piece_len + 1 > cap) break;
        memcpy(out + n, piece, (size_t)piece_len);
        n += (size_t)piece_len;
        i += (size_t)width;
    }
    out[n] = '\0';
    return n;
}

int error_set(icp_error *err, int code, const char *format, ...) {
    if (!err) return code;
    char text[4 * sizeof err->text];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len < 0) len = 0;
    err->code = code;
    base_escape(err->text, sizeof err->text, text, MIN((size_t)len, sizeof text - 1));
    return code;
}
