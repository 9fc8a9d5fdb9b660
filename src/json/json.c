/* json-c reads a character beyond U+FFFF as U+FFFD when its last 16 bits look like a surrogate:
 * some of plane 1, and two thousand ideographs of plane 2. A text that has one of them is read
 * again, with sequences of other characters for them, which are put back into the strings that were
 * read:
 *
 *   U+2DD75  ─▶  U+FDD0 U+10B7 U+1175       all but its last 10 bits, and those
 *   U+FDD0   ─▶  U+FDD0 U+FDD0              (a noncharacter, but who knows) */
#include "json.h"

#include <string.h>

enum { STAND_IN = 0xfdd0, DIGITS = 0x1000 };

static bool is_misread(int32_t cp) {
    return cp > 0xffff && (cp & 0xf800) == 0xd800;
}

/* ---- out of the way -------------------------------------------------------------------------- */

static int32_t read_hex(const char *text, size_t len) { /* of "\uXXXX"; -1: it is none */
    int32_t value = 0;
    if (len < 6 || text[0] != '\\' || text[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *at = memchr(digits, text[i] | (text[i] >= 'A' ? 0x20 : 0), 16);
        if (!at) return -1;
        value = value << 4 | (int32_t)(at - digits);
    }
    return value;
}

/* The character that text begins with, as itself or as an escape; returns its bytes. -1 for what
 * need not be looked at. */
static size_t next_character(const char *text, size_t len, int32_t *cp) {
    if (text[0] != '\\') return (size_t)utf8_decode(text, len, cp);
    *cp = read_hex(text, len);
    if (*cp < 0) return MIN(len, (size_t)2);
    int32_t low = read_hex(text + 6, len - 6);
    if ((*cp & 0xfc00) != 0xd800 || (low & ~0x3ff) != 0xdc00) return 6;
    *cp = 0x10000 + ((*cp & 0x3ff) << 10) + (low & 0x3ff);
    return 12;
}

static bool has_misread(const char *text, size_t len) {
    int32_t cp;
    for (size_t i = 0; i < len; i += next_character(text + i, len - i, &cp)) {
        next_character(text + i, len - i, &cp);
        if (is_misread(cp)) return true;
    }
    return false;
}

static void put_around(buf *out, const char *text, size_t len) {
    for (size_t i = 0; i < len;) {
        int32_t cp;
        size_t n = next_character(text + i, len - i, &cp);
        if (is_misread(cp))
            buf_printf(out, "\\u%04x\\u%04x\\u%04x", STAND_IN, DIGITS + (unsigned)(cp >> 10),
                       DIGITS + (unsigned)(cp & 0x3ff));
        else if (cp == STAND_IN)
            buf_printf(out, "\\u%04x\\u%04x", STAND_IN, STAND_IN);
        else if (text[i] == '\\')
            buf_put(out, text + i, n);
        else
            buf_put_ascii_json(out, text + i, n);
        i += n;
    }
}

/* ---- and back -------------------------------------------------------------------------------- */

static void put_back(buf *out, const char *text, size_t len) {
    char bytes[4];
    for (size_t i = 0; i < len;) {
        int32_t cp, high = 0, low = 0;
        size_t n = (size_t)utf8_decode(text + i, len - i, &cp);
        i += n;
        if (cp != STAND_IN) {
            buf_put(out, text + i - n, n);
            continue;
        }
        if (i < len) i += (size_t)utf8_decode(text + i, len - i, &high);
        if (high != STAND_IN && i < len) i += (size_t)utf8_decode(text + i, len - i, &low);
        cp = high == STAND_IN ? STAND_IN : (high - DIGITS) << 10 | (low - DIGITS);
        buf_put(out, bytes, (size_t)utf8_encode(cp, bytes));
    }
}

static bool restore(json_object *value, json_object **out);

static bool restore_string(json_object *value) {
    buf text = {0};
    buf_puts(&text, "");
    put_back(&text, json_object_get_string(value), (size_t)json_object_get_string_len(value));
    bool ok = !text.failed && json_object_set_string_len(value, text.data, (int)text.len);
    buf_fini(&text);
    return ok;
}

static bool restore_array(json_object *array) {
    for (size_t i = 0; i < json_object_array_length(array); i++) {
        json_object *item = json_object_array_get_idx(array, i), *restored = NULL;
        if (!restore(item, &restored)) return false;
        if (restored == item) continue;
        if (json_object_array_put_idx(array, i, restored) < 0) return false;
    }
    return true;
}

/* Keys are restored too, so the members move into another object. */
static bool restore_object(json_object *object, json_object **out) {
    json_object *made = json_object_new_object();
    bool ok = made;
    json_object_object_foreach(object, name, value) {
        buf key = {0};
        json_object *restored = NULL;
        buf_puts(&key, "");
        put_back(&key, name, strlen(name));
        ok = ok && !key.failed && restore(value, &restored);
        if (ok && restored == value) json_object_get(restored);
        ok = ok && json_object_object_add(made, key.data, restored) == 0;
        buf_fini(&key);
    }
    if (ok)
        *out = made;
    else
        json_object_put(made);
    return ok;
}

/* *out: the value itself, changed, or (of success only) another one in its place, which is the
 * caller's. */
static bool restore(json_object *value, json_object **out) {
    *out = value;
    switch (json_object_get_type(value)) {
    case json_type_string:
        return restore_string(value);
    case json_type_array:
        return restore_array(value);
    case json_type_object:
        return restore_object(value, out);
    default:
        return true;
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* false: no memory. */
static bool parse(const buf *ascii, int depth, json_object **root, enum json_tokener_error *why,
                  size_t *at) {
    json_tokener *tokener =
        ascii->failed || ascii->len >= INT32_MAX ? NULL : json_tokener_new_ex(depth);
    if (!tokener) return false;
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    *root =
        json_tokener_parse_ex(tokener, ascii->data, (int)ascii->len + 1); /* its NUL ends numbers */
    *why = json_tokener_get_error(tokener);
    *at = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    return true;
}

/* Reads again what json-c has misread. */
static int read_around(const char *text, size_t len, int depth, json_object **root) {
    buf ascii = {0};
    enum json_tokener_error why;
    size_t at;
    json_object *value = NULL, *restored = NULL;
    json_object_put(*root);
    *root = NULL;
    put_around(&ascii, text, len);
    bool ok = parse(&ascii, depth, &value, &why, &at) && why == json_tokener_success;
    ok = ok && restore(value, &restored);
    buf_fini(&ascii);
    if (!ok || restored != value) json_object_put(value);
    if (ok) *root = restored;
    return ok ? 0 : ICP_ENOMEM;
}

int json_read(const char *text, size_t len, int depth, json_object **root,
              enum json_tokener_error *why, size_t *end) {
    buf ascii = {0};
    size_t at;
    buf_puts(&ascii, ""); /* so that there is a text, even of nothing */
    buf_put_ascii_json(&ascii, text, len);
    bool ok = parse(&ascii, depth, root, why, &at);
    size_t n = ascii.len;
    buf_fini(&ascii);
    if (!ok) return ICP_ENOMEM;
    *end = at >= n ? len : ascii_json_origin(text, len, at);
    if (*why == json_tokener_success && has_misread(text, *end))
        return read_around(text, *end, depth, root);
    return 0;
}

json_object *json_read_whole(const char *text, size_t len) {
    json_object *root = NULL;
    enum json_tokener_error why;
    size_t end;
    if (json_read(text, len, JSON_DEEPEST, &root, &why, &end) < 0) return NULL;
    end += strspn(text + end, " \t\r\n");
    if (why == json_tokener_success && end >= len) return root;
    json_object_put(root);
    return NULL;
}
