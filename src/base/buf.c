#include "base.h"
#include "base_internal.h"

#include <stdio.h>
#include <string.h>

/* Makes room for len more bytes and a NUL. */
static bool grow(buf *b, size_t len) {
    if (b->failed) return false;
    if (len < b->cap - b->len) return true;
    size_t need = b->len + len + 1;
    size_t cap = MAX(b->cap + b->cap / 2, MAX(need, (size_t)64));
    char *data = need < len ? NULL : mem_resize(b->data, cap, 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void buf_put(buf *b, const void *data, size_t len) {
    if (!grow(b, len)) return;
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_puts(buf *b, const char *text) {
    buf_put(b, text, strlen(text));
}

void buf_putc(buf *b, char c) {
    buf_put(b, &c, 1);
}

void buf_printf(buf *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0) {
        b->failed = true;
        return;
    }
    if (!grow(b, (size_t)len)) return;
    va_start(args, format);
    vsnprintf(b->data + b->len, (size_t)len + 1, format, args);
    va_end(args);
    b->len += (size_t)len;
}

static void put_json_char(buf *b, int32_t cp, const char *bytes, int width) {
    static const char escapes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = cp > 0 && cp < 0x80 ? strchr(escapes, (int)cp) : NULL;
    if (cp < 0) {
        buf_puts(b, "\xef\xbf\xbd");
    } else if (found) {
        buf_putc(b, '\\');
        buf_putc(b, letters[found - escapes]);
    } else if (cp < 0x20 || cp == 0x7f) {
        buf_printf(b, "\\u%04x", (unsigned)cp);
    } else {
        buf_put(b, bytes, (size_t)width);
    }
}

void buf_put_json(buf *b, const char *text, size_t len) {
    size_t plain = 0, i = 0; /* text[plain, i) needs no escape */
    while (i < len) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            i++;
            continue;
        }
        buf_put(b, text + plain, i - plain);
        int32_t cp;
        int width = utf8_decode(text + i, len - i, &cp);
        put_json_char(b, cp, text + i, width);
        i += (size_t)width;
        plain = i;
    }
    buf_put(b, text + plain, i - plain);
}

void buf_put_escaped(buf *b, const char *text, size_t len) {
    enum { LONGEST_ESCAPE = 4 }; /* bytes for a byte of text */
    size_t most;
    if (__builtin_mul_overflow(len, LONGEST_ESCAPE, &most)) {
        b->failed = true;
        return;
    }
    if (grow(b, most)) b->len += base_escape(b->data + b->len, b->cap - b->len, text, len);
}

/* Writes one character as buf_put_ascii_json does, to out[12]; returns the length. */
static int ascii_json_char(int32_t cp, char out[13]) {
    if (cp < 0) cp = 0xfffd;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x10000) return snprintf(out, 13, "\\u%04x", (unsigned)cp);
    cp -= 0x10000;
    return snprintf(out, 13, "\\u%04x\\u%04x", 0xd800u + (unsigned)(cp >> 10),
                    0xdc00u + (unsigned)(cp & 0x3ff));
}

void buf_put_ascii_json(buf *b, const char *text, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t plain = i;
        while (i < len && (unsigned char)text[i] < 0x80) i++;
        buf_put(b, text + plain, i - plain);
        if (i == len) break;
        int32_t cp;
        char piece[13];
        i += (size_t)utf8_decode(text + i, len - i, &cp);
        buf_put(b, piece, (size_t)ascii_json_char(cp, piece));
    }
}

size_t ascii_json_origin(const char *text, size_t len, size_t at) {
    size_t i = 0;
    for (size_t written = 0; i < len;) {
        int32_t cp;
        char piece[13];
        int width = utf8_decode(text + i, len - i, &cp);
        written += (size_t)ascii_json_char(cp, piece);
        if (written > at) break;
        i += (size_t)width;
    }
    return i;
}

void buf_clear(buf *b) {
    b->len = 0;
    b->failed = false;
    if (b->data) b->data[0] = '\0';
}

void buf_fini(buf *b) {
    mem_free(b->data);
    *b = (buf){0};
}
