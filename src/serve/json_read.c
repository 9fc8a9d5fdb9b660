/* JSON bodies, read with suspicion: one pass over the text before json-c sees it, then members by
 * name and type with errors that name the member. */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "serve_internal.h"

/* ---- the text -------------------------------------------------------------------------------- */

/* What a parsed body may cost. A value takes about 64 bytes, an array or object some ten times as
 * much; "[[],[],…" would otherwise turn 32 MiB of text into gigabytes. */
enum { COST_LIMIT = 4000000, COST_VALUE = 1, COST_CONTAINER = 8 };

static void parse_error(reply *error, size_t at, const char *what) {
    reply_error(error, 400, "invalid_json", NULL,
                "The request body is not valid JSON: %s at byte %zu.", what, at);
}

/* Checks what json-c is lenient about (quotes, comments, control characters, UTF-8) and weighs the
 * values by the punctuation outside of strings. */
static bool check_text(const char *text, size_t len, reply *error) {
    size_t cost = 0;
    bool in_string = false;
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x80) {
            int32_t cp;
            int n = utf8_decode(text + i, len - i, &cp);
            if (cp < 0) return parse_error(error, i, "invalid UTF-8"), false;
            i += (size_t)n;
            continue;
        }
        if (in_string) {
            if (c < 0x20) return parse_error(error, i, "control character in a string"), false;
            if (c == '"') in_string = false;
            bool pair = c == '\\' && i + 1 < len && (text[i + 1] == '"' || text[i + 1] == '\\');
            i += pair ? 2 : 1;
            continue;
        }
        if (c == '"')
            in_string = true;
        else if (c == '{' || c == '[')
            cost += COST_CONTAINER;
        else if (c == ',')
            cost += COST_VALUE;
        else if (!isalnum(c) && !memchr("}]:.+- \t\r\n", c, 10))
            return parse_error(error, i, "unexpected character"), false;
        i++;
    }
    if (cost <= COST_LIMIT) return true;
    reply_error(error, 400, "too_many_values", NULL,
                "The request body has too many JSON values (limit: about %d).", COST_LIMIT);
    return false;
}

json_object *json_parse(const char *text, size_t len, enum json_type type, reply *error) {
    if (len == 0) {
        reply_error(error, 400, "invalid_json", NULL, "The request body is empty.");
        return NULL;
    }
    if (len >= INT_MAX) return parse_error(error, INT_MAX, "too long"), NULL;
    if (!check_text(text, len, error)) return NULL;
    json_object *root;
    enum json_tokener_error failure;
    size_t end;
    if (json_read(text, len, JSON_MAX_DEPTH, &root, &failure, &end) < 0)
        return reply_error(error, 503, NULL, NULL, "Out of memory."), NULL;
    end += strspn(text + end, " \t\r\n");

    if (failure == json_tokener_error_depth)
        reply_error(error, 400, "invalid_json", NULL,
                    "The request body is nested deeper than %d levels at byte %zu.", JSON_MAX_DEPTH,
                    end);
    else if (failure != json_tokener_success)
        parse_error(error, end, json_tokener_error_desc(failure));
    else if (end < len)
        parse_error(error, end, "something follows the value");
    else if (!json_object_is_type(root, type))
        reply_error(error, 400, "invalid_type", NULL, "The request body must be a JSON %s, not %s.",
                    json_type_to_name(type), json_kind(root));
    else
        return root;
    json_object_put(root);
    return NULL;
}

/* ---- members --------------------------------------------------------------------------------- */

const char *json_kind(json_object *value) {
    switch (json_object_get_type(value)) {
    case json_type_null:
        return "null";
    case json_type_boolean:
        return "a boolean";
    case json_type_double:
        return "a number";
    case json_type_int:
        return "an integer";
    case json_type_object:
        return "an object";
    case json_type_array:
        return "an array";
    default:
        return "a string";
    }
}

static void type_error(reply *error, const char *name, const char *expected, json_object *value) {
    reply_error(error, 400, "invalid_type", name, "Invalid type for '%s': expected %s, got %s.",
                name, expected, json_kind(value));
}

json_object *field_get(json_object *object, const char *name) {
    json_object *value = NULL;
    return json_object_object_get_ex(object, name, &value) ? value : NULL;
}

json_object *field_inside(json_object *object, const char *prefix, const char *name,
                          enum json_type type, reply *error) {
    static const char *const expected[] = {
        [json_type_boolean] = "a boolean", [json_type_object] = "an object",
        [json_type_array] = "an array",    [json_type_string] = "a string",
        [json_type_int] = "an integer",
    };
    json_object *value = field_get(object, name);
    if (!value || json_object_is_type(value, type)) return value;
    char path[80];
    snprintf(path, sizeof path, "%s%s", prefix, name);
    type_error(error, path, expected[type], value);
    return NULL;
}

json_object *field_of_type(json_object *object, const char *name, enum json_type type,
                           reply *error) {
    return field_inside(object, "", name, type, error);
}

static bool read_field(json_object *value, const char *name, const field *f, void *to,
                       reply *error) {
    bool integer = json_object_is_type(value, json_type_int);
    if (f->type == FIELD_BOOL) {
        if (!json_object_is_type(value, json_type_boolean))
            return type_error(error, name, "a boolean", value), false;
        *(bool *)to = json_object_get_boolean(value);
        return true;
    }
    if (!integer && (f->type == FIELD_INT || !json_object_is_type(value, json_type_double)))
        return type_error(error, name, f->type == FIELD_INT ? "an integer" : "a number", value),
               false;
    double number = json_object_get_double(value);
    if (!(number >= f->min && number <= f->max)) /* NaN is in no range */
        return reply_error(error, 400, "invalid_value", name,
                           "Invalid value for '%s': must be from %g to %.10g, not %s.", name,
                           f->min, f->max, json_object_get_string(value)),
               false;
    if (f->type == FIELD_INT)
        *(int *)to = (int)number;
    else
        *(float *)to = (float)number;
    return true;
}

bool fields_read(json_object *object, const char *prefix, const field *table, size_t n, void *into,
                 reply *error) {
    for (size_t i = 0; i < n; i++) {
        json_object *value = field_get(object, table[i].name);
        if (!value) continue;
        char name[80];
        snprintf(name, sizeof name, "%s%s", prefix, table[i].name);
        if (!read_field(value, name, &table[i], (char *)into + table[i].offset, error))
            return false;
    }
    return true;
}

bool json_token_ids(json_object *array, const char *param, size_t n_vocab, icp_tokens *out,
                    reply *error) {
    size_t n = json_object_array_length(array);
    out->id = mem_alloc((n ? n : 1) * sizeof *out->id);
    if (!out->id) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    for (out->n = 0; out->n < n; out->n++) {
        json_object *value = json_object_array_get_idx(array, out->n);
        int64_t id = json_object_get_int64(value);
        if (!json_object_is_type(value, json_type_int)) {
            reply_error(error, 400, "invalid_type", param,
                        "Invalid type for '%s': item %zu is %s, not a token id.", param, out->n,
                        json_kind(value));
        } else if (id < 0 || (uint64_t)id >= n_vocab) {
            reply_error(error, 400, "invalid_value", param,
                        "Invalid value for '%s': item %zu, %s, is not a token id (0 to %zu).",
                        param, out->n, json_object_get_string(value), n_vocab - 1);
        } else {
            out->id[out->n] = (int32_t)id;
            continue;
        }
        icp_tokens_free(out);
        return false;
    }
    return true;
}
