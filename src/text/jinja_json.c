#include "jinja_json.h"
#include "json.h"

#include <json-c/json.h>

/* Deeper than any real request and shallow enough for every recursion over values. */
enum { MAX_JSON_DEPTH = 500 };
enum { LEAD = sizeof TEXT_MARK_LEAD - 1 };

static value convert(struct render *r, struct json_object *o, enum text_origin origin);

/* A string without the marks in it, which its bytes have instead. */
static const struct str *convert_marked(struct render *r, const char *data, size_t len) {
    char *text = trap_alloc(&r->trap, len);
    uint8_t *marks = trap_zero(&r->trap, len);
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        bool mark = len - i > LEAD && !memcmp(data + i, TEXT_MARK_LEAD, LEAD);
        if (mark && n > 0) marks[n - 1] = (uint8_t)(TEXT_MARKED + (data[i + LEAD] & 0x3f));
        if (!mark) text[n++] = data[i];
        i += mark ? LEAD + 1 : 1;
    }
    struct str *s = (struct str *)str_new(&r->trap, text, n, TEXT_USER);
    s->marks = marks;
    return s;
}

static const struct str *convert_str(struct render *r, const char *data, size_t len,
                                     enum text_origin origin) {
    if (r->limits.marked && origin == TEXT_USER && memmem(data, len, TEXT_MARK_LEAD, LEAD))
        return convert_marked(r, data, len);
    return str_copy(&r->trap, data, len, origin);
}

static value convert_int(struct render *r, struct json_object *o) {
    uint64_t u = json_object_get_uint64(o);
    int64_t i = json_object_get_int64(o);
    if (i < 0 || u <= INT64_MAX) return val_int(i);
    value v = {.kind = V_BIG};
    const char *digits = json_object_to_json_string(o);
    v.s = convert_str(r, digits, strlen(digits), TEXT_USER);
    return v;
}

static value convert_array(struct render *r, struct json_object *o, enum text_origin origin) {
    size_t n = json_object_array_length(o);
    value v = list_new(r, n, V_LIST);
    for (size_t i = 0; i < n; i++)
        v.list->items[i] = convert(r, json_object_array_get_idx(o, i), origin);
    return v;
}

static void convert_members(struct render *r, struct json_object *o, enum text_origin origin,
                            struct dict *into) {
    struct json_object_iterator at = json_object_iter_begin(o), end = json_object_iter_end(o);
    while (!json_object_iter_equal(&at, &end)) {
        const char *name = json_object_iter_peek_name(&at);
        value key = val_str(convert_str(r, name, strlen(name), origin));
        dict_put(r, into, key, convert(r, json_object_iter_peek_value(&at), origin));
        json_object_iter_next(&at);
    }
}

static value convert_any(struct render *r, struct json_object *o, enum text_origin origin) {
    switch (json_object_get_type(o)) {
    case json_type_null:
        return val_none();
    case json_type_boolean:
        return val_bool(json_object_get_boolean(o));
    case json_type_int:
        return convert_int(r, o);
    case json_type_double:
        return val_float(json_object_get_double(o));
    case json_type_string:
        return val_str(convert_str(r, json_object_get_string(o),
                                   (size_t)json_object_get_string_len(o), origin));
    case json_type_array:
        return convert_array(r, o, origin);
    case json_type_object: {
        struct dict *d = dict_new(r, (size_t)json_object_object_length(o));
        convert_members(r, o, origin, d);
        return val_dict(d);
    }
    }
    return val_none();
}

static value convert(struct render *r, struct json_object *o, enum text_origin origin) {
    value v = convert_any(r, o, origin);
    v.origin = (uint8_t)origin;
    return v;
}

static _Noreturn void fail_json(struct render *r, enum text_origin origin, const char *what) {
    trap_fail(&r->trap, ICP_EFORMAT, "the %s of the template: %s",
              origin == TEXT_USER ? "variables" : "trusted variables", what);
}

/* The end of the string that begins at p. */
static const char *skip_string(const char *p) {
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : p;
}

/* json-c silently takes the nearest integer for one that does not fit. */
static bool has_huge_integer(const char *p) {
    while ((p = strpbrk(p, "\"0123456789"))) {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        const char *number = p;
        size_t n = strspn(p, "0123456789");
        p += strspn(p, "0123456789.eE+-");
        if ((size_t)(p - number) > n || n < 19) continue; /* a float, or small */
        bool negative = number[-1] == '-';
        const char *most = negative ? "9223372036854775808" : "18446744073709551615";
        if (n > strlen(most) || (n == strlen(most) && memcmp(number, most, n) > 0)) return true;
    }
    return false;
}

void json_read_vars(struct render *r, const char *text, enum text_origin origin,
                    struct dict *vars) {
    size_t len = strlen(text);
    if (len > INT32_MAX - 1 || len > r->limits.max_memory)
        fail_limit(r, "has more variables than fit into its memory");
    for (size_t i = 0, width; i < len; i += width) {
        int32_t cp;
        width = (size_t)utf8_decode(text + i, len - i, &cp);
        if (cp < 0) fail_json(r, origin, "invalid UTF-8");
    }
    enum json_tokener_error failed;
    size_t end;
    if (json_read(text, len, MAX_JSON_DEPTH, &r->json, &failed, &end) < 0)
        trap_fail(&r->trap, ICP_ENOMEM, "out of memory");
    if (failed != json_tokener_success) fail_json(r, origin, json_tokener_error_desc(failed));
    if (end < len) fail_json(r, origin, "something follows the JSON object");
    if (!json_object_is_type(r->json, json_type_object)) fail_json(r, origin, "not a JSON object");
    if (has_huge_integer(text)) fail_json(r, origin, "an integer is out of range");
    convert_members(r, r->json, origin, vars);
    json_release(r);
}

void json_release(struct render *r) {
    json_object_put(r->json);
    r->json = NULL;
}
