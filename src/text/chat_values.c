/* Values in the answers of models: JSON as it should be, Python as it often is, and the bare text
 * of XML dialects, all to JSON (RFC 8259). */
#include "chat_internal.h"

#include <ctype.h>
#include <json-c/json.h>
#include <stdlib.h>

enum { MAX_DEPTH = 64 };

/* ---- where a JSON value ends ---------------------------------------------------------------- */

enum scan_result value_scan_put(value_scan *s, char c) {
    if (s->string) {
        if (s->escaped)
            s->escaped = false;
        else if (c == '\\')
            s->escaped = true;
        else if (c == '"')
            s->string = false;
        return !s->string && !s->depth ? SCAN_LAST : SCAN_ON;
    }
    bool closes = c == '}' || c == ']';
    if (s->scalar || !s->begun) {
        if (closes || c == ',' || (s->begun && is_blank(c))) return SCAN_BEFORE;
        if (is_blank(c)) return SCAN_ON;
    }
    s->begun = true;
    if (c == '"')
        s->string = true;
    else if (c == '{' || c == '[')
        s->depth++;
    else if (closes)
        return --s->depth ? SCAN_ON : SCAN_LAST;
    else if (!s->depth)
        s->scalar = true;
    return SCAN_ON;
}

/* ---- literals to JSON ----------------------------------------------------------------------- */

struct reader {
    const char *at, *end;
    const char *quote; /* an own quotation mark, or NULL */
    buf *out;
    int depth;
};

static void skip_blanks(struct reader *r) {
    while (r->at < r->end && is_blank(*r->at)) r->at++;
}

static bool skip(struct reader *r, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

static int hex(const char *text, int n) {
    int value = 0;
    for (int i = 0; i < n; i++) {
        if (!isxdigit((unsigned char)text[i])) return -1;
        value = value * 16 +
                (isdigit((unsigned char)text[i]) ? text[i] - '0' : (text[i] | 32) - 'a' + 10);
    }
    return value;
}

/* \xHH, \uHHHH, a pair of surrogates, \UHHHHHHHH at text[1]; the bytes it takes, 0: none of them.
 */
static size_t decode_code(const char *text, size_t len, int32_t *cp) {
    int n = len < 2 ? 0 : text[1] == 'x' ? 2 : text[1] == 'u' ? 4 : text[1] == 'U' ? 8 : 0;
    if (!n || len < (size_t)n + 2 || (n == 8 && text[2] != '0')) return 0;
    *cp = hex(text + 2, n);
    if (*cp < 0) return 0;
    if (n == 4 && *cp >= 0xD800 && *cp < 0xDC00 && len >= 12 && text[6] == '\\' && text[7] == 'u') {
        int low = hex(text + 8, 4);
        if (low >= 0xDC00 && low < 0xE000) {
            *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
            return 12;
        }
    }
    if ((*cp >= 0xD800 && *cp < 0xE000) || *cp > 0x10FFFF) *cp = 0xFFFD;
    return (size_t)n + 2;
}

void string_decode(const char *text, size_t len, buf *out) {
    static const char from[] = "ntrbfv0", to[] = "\n\t\r\b\f\v\0";
    for (size_t i = 0; i < len;) {
        char bytes[4];
        int32_t cp;
        if (text[i] != '\\' || i + 1 == len) {
            buf_putc(out, text[i++]);
            continue;
        }
        size_t n = decode_code(text + i, len - i, &cp);
        if (n) {
            buf_put(out, bytes, (size_t)utf8_encode(cp, bytes));
            i += n;
            continue;
        }
        const char *known = text[i + 1] ? strchr(from, text[i + 1]) : NULL;
        buf_putc(out, known ? to[known - from] : text[i + 1]);
        i += 2;
    }
}

void string_to_json(const char *text, size_t len, buf *out) {
    buf_putc(out, '"');
    buf_put_json(out, text, len);
    buf_putc(out, '"');
}

static bool read_own_string(struct reader *r) {
    size_t n = strlen(r->quote);
    const char *end = memmem(r->at, (size_t)(r->end - r->at), r->quote, n);
    if (!end) return false;
    string_to_json(r->at, (size_t)(end - r->at), r->out);
    r->at = end + n;
    return true;
}

static bool read_string(struct reader *r) {
    char mark[4] = {*r->at, *r->at, *r->at, 0};
    if (!skip(r, mark)) { /* not Python's long form */
        mark[1] = 0;
        r->at++;
    }
    const char *begin = r->at;
    size_t n = strlen(mark);
    for (; (size_t)(r->end - r->at) >= n; r->at++) {
        if (!memcmp(r->at, mark, n)) {
            buf text = {0};
            string_decode(begin, (size_t)(r->at - begin), &text);
            string_to_json(text.data ? text.data : "", text.len, r->out);
            r->out->failed |= text.failed;
            buf_fini(&text);
            r->at += n;
            return true;
        }
        if (*r->at == '\\' && r->at + 1 < r->end) r->at++;
    }
    return false;
}

static bool read_number(struct reader *r) {
    const char *p = r->at, *begin = r->at;
    p += p < r->end && *p == '-';
    const char *digits = p;
    while (p < r->end && isdigit((unsigned char)*p)) p++;
    if (p == digits || (*digits == '0' && p > digits + 1)) return false;
    if (p < r->end && *p == '.') {
        const char *fraction = ++p;
        while (p < r->end && isdigit((unsigned char)*p)) p++;
        if (p == fraction) return false;
    }
    if (p < r->end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < r->end && (*p == '+' || *p == '-');
        const char *exponent = p;
        while (p < r->end && isdigit((unsigned char)*p)) p++;
        if (p == exponent) return false;
    }
    r->at = p;
    buf_put(r->out, begin, (size_t)(p - begin));
    return true;
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.' || c == '$';
}

static bool read_word(struct reader *r) {
    static const char *const words[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"none", "null"}};
    const char *end = r->at;
    while (end < r->end && is_word(*end)) end++;
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if ((size_t)(end - r->at) != strlen(words[i][0]) ||
            memcmp(r->at, words[i][0], (size_t)(end - r->at)) != 0)
            continue;
        buf_puts(r->out, words[i][1]);
        r->at = end;
        return true;
    }
    return false;
}

static bool read_value(struct reader *r);

/* A key: a string, or a bare word. */
static bool read_key(struct reader *r) {
    if (r->quote && skip(r, r->quote)) return read_own_string(r);
    if (r->at < r->end && (*r->at == '"' || *r->at == '\'')) return read_string(r);
    const char *begin = r->at;
    while (r->at < r->end && is_word(*r->at)) r->at++;
    string_to_json(begin, (size_t)(r->at - begin), r->out);
    return r->at > begin;
}

static bool read_items(struct reader *r, char close, bool keys) {
    if (++r->depth > MAX_DEPTH) return false;
    r->at++;
    buf_putc(r->out, keys ? '{' : '[');
    for (int n = 0;; n++) {
        skip_blanks(r);
        if (r->at < r->end && *r->at == close) break;
        if (n && !skip(r, ",")) return false;
        skip_blanks(r);
        if (r->at < r->end && *r->at == close) break; /* Python allows a comma at the end */
        if (n) buf_puts(r->out, ", ");
        if (keys) {
            if (!read_key(r)) return false;
            skip_blanks(r);
            if (!skip(r, ":")) return false;
            buf_puts(r->out, ": ");
        }
        if (!read_value(r)) return false;
    }
    r->at++;
    r->depth--;
    buf_putc(r->out, keys ? '}' : ']');
    return true;
}

static bool read_value(struct reader *r) {
    skip_blanks(r);
    if (r->at == r->end) return false;
    if (r->quote && skip(r, r->quote)) return read_own_string(r);
    switch (*r->at) {
    case '"':
    case '\'':
        return read_string(r);
    case '{':
        return read_items(r, '}', true);
    case '[':
        return read_items(r, ']', false);
    case '(':
        return read_items(r, ')', false);
    default:
        return read_number(r) || read_word(r);
    }
}

bool literal_to_json(const char *text, size_t len, const char *quote, buf *out) {
    struct reader r = {.at = text, .end = text + len, .quote = quote, .out = out};
    size_t undo = out->len;
    bool ok = read_value(&r);
    skip_blanks(&r);
    if (ok && r.at == r.end) return true;
    if (out->data) out->data[out->len = undo] = '\0';
    return false;
}

/* ---- values that have a schema -------------------------------------------------------------- */

/* Notes a type. */
static void note_type(json_object *type, bool *strings, bool *nulls, bool *others) {
    const char *name =
        json_object_is_type(type, json_type_string) ? json_object_get_string(type) : "";
    *strings |= !strcmp(name, "string");
    *nulls |= !strcmp(name, "null");
    *others |= strcmp(name, "string") != 0;
}

static void note_value(json_object *value, bool *strings, bool *nulls, bool *others) {
    bool is_string = json_object_is_type(value, json_type_string);
    *strings |= is_string;
    *nulls |= !value;
    *others |= !is_string;
}

static json_object *list_in(json_object *schema, const char *name) {
    json_object *list = NULL;
    json_object_object_get_ex(schema, name, &list);
    return json_object_is_type(list, json_type_array) ? list : NULL;
}

static json_object *nullable_of(json_object *schema) {
    json_object *nullable = NULL;
    json_object_object_get_ex(schema, "nullable", &nullable);
    return nullable;
}

/* What the branches of a schema speak of; anything else than that speaks of everything. */
static void note_schema(json_object *schema, int depth, bool *strings, bool *nulls, bool *others) {
    json_object *type = NULL, *value, *values = list_in(schema, "enum"), *any;
    json_object_object_get_ex(schema, "type", &type);
    if (!(any = list_in(schema, "anyOf"))) any = list_in(schema, "oneOf");
    if (values) {
        for (size_t i = 0; i < json_object_array_length(values); i++)
            note_value(json_object_array_get_idx(values, i), strings, nulls, others);
    } else if (json_object_object_get_ex(schema, "const", &value)) {
        note_value(value, strings, nulls, others);
    } else if (json_object_is_type(type, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(type); i++)
            note_type(json_object_array_get_idx(type, i), strings, nulls, others);
    } else if (type) {
        note_type(type, strings, nulls, others);
    } else if (any && depth < MAX_DEPTH) {
        for (size_t i = 0; i < json_object_array_length(any); i++)
            note_schema(json_object_array_get_idx(any, i), depth + 1, strings, nulls, others);
    } else {
        *others = true;
    }
    *nulls |= json_object_get_boolean(nullable_of(schema));
    *others |= *nulls;
}

bool schema_strings(json_object *schema, bool *nulls, bool *others) {
    bool strings = false;
    *nulls = *others = false;
    note_schema(schema, 0, &strings, nulls, others);
    return strings;
}

bool schema_is_string(json_object *schema) {
    bool nulls, others;
    return schema_strings(schema, &nulls, &others) && !others;
}

void value_to_json(const char *text, size_t len, json_object *schema, buf *out) {
    bool nulls, others, strings = schema_strings(schema, &nulls, &others);
    const char *end = text + len, *begin = text;
    while (begin < end && is_blank(*begin)) begin++;
    while (end > begin && is_blank(end[-1])) end--;
    bool null = end - begin == 4 && !memcmp(begin, "null", 4);
    /* What may be a string, is one: "5" stays "5"; only null cannot be told otherwise. */
    if ((strings && !(nulls && null)) || !literal_to_json(begin, (size_t)(end - begin), NULL, out))
        string_to_json(text, len, out);
}
