/* Reading sources: what the parsers of GBNF and of regular expressions have in common. */
#include "grammar_internal.h"

#include <ctype.h>

int cursor_peek(const cursor *c) {
    return c->at < c->len ? (uint8_t)c->text[c->at] : -1;
}

bool cursor_take(cursor *c, char wanted) {
    if (cursor_peek(c) != (uint8_t)wanted) return false;
    c->at++;
    return true;
}

int32_t cursor_code_point(cursor *c) {
    int32_t cp = -1;
    if (c->at < c->len) c->at += (size_t)utf8_decode(c->text + c->at, c->len - c->at, &cp);
    return cp;
}

int32_t cursor_hex(cursor *c, int digits) {
    int32_t value = 0;
    for (int i = 0; i < digits; i++) {
        int ch = cursor_peek(c);
        if (ch < 0 || !isxdigit(ch)) return -1;
        value = value << 4 | (isdigit(ch) ? ch - '0' : (ch | 0x20) - 'a' + 10);
        c->at++;
    }
    return value;
}

bool cursor_number(cursor *c, uint32_t *out) {
    enum { MOST = 100000000 };
    uint32_t value = 0;
    size_t first = c->at;
    for (; isdigit(cursor_peek(c)); c->at++) {
        value = value * 10 + (uint32_t)(cursor_peek(c) - '0');
        if (value > MOST) return false;
    }
    *out = value;
    return c->at > first;
}
