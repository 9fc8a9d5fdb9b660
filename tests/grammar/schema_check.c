#include "schema_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_object *get(json_object *object, const char *key) {
    json_object *value = NULL;
    return json_object_object_get_ex(object, key, &value) ? value : NULL;
}

static bool is_number(json_object *v) {
    return json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_double);
}

static bool has_type(json_object *v, const char *type) {
    if (!strcmp(type, "number")) return is_number(v);
    if (!strcmp(type, "integer"))
        return is_number(v) && floor(json_object_get_double(v)) == json_object_get_double(v);
    return !strcmp(type, json_type_to_name(json_object_get_type(v)));
}

static bool check_type(json_object *types, json_object *v) {
    if (!types) return true;
    if (json_object_is_type(types, json_type_string))
        return has_type(v, json_object_get_string(types));
    for (size_t i = 0; i < json_object_array_length(types); i++)
        if (has_type(v, json_object_get_string(json_object_array_get_idx(types, i)))) return true;
    return false;
}

/* What the limit `name` says of a number, with sign 1 for a minimum, -1 for a maximum. */
static bool within(json_object *s, const char *name, double sign, bool open, double x) {
    json_object *limit = get(s, name);
    if (!limit) return true;
    double over = sign * (x - json_object_get_double(limit));
    return open ? over > 0 : over >= 0;
}

static bool check_number(json_object *s, double x) {
    return within(s, "minimum", 1, false, x) && within(s, "maximum", -1, false, x) &&
           within(s, "exclusiveMinimum", 1, true, x) && within(s, "exclusiveMaximum", -1, true, x);
}

static bool check_string(json_object *s, json_object *v) {
    double n = 0;
    const char *text = json_object_get_string(v);
    for (int i = 0; i < json_object_get_string_len(v); i++) n += (text[i] & 0xc0) != 0x80;
    return within(s, "minLength", 1, false, n) && within(s, "maxLength", -1, false, n);
}

static bool check_array(json_object *root, json_object *s, json_object *v) {
    json_object *prefix = get(s, "prefixItems"), *items = get(s, "items");
    size_t n = json_object_array_length(v),
           n_prefix = prefix ? json_object_array_length(prefix) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *rule = i < n_prefix ? json_object_array_get_idx(prefix, i) : items;
        if (rule && !schema_allows(root, rule, json_object_array_get_idx(v, i))) return false;
    }
    return within(s, "minItems", 1, false, (double)n) &&
           within(s, "maxItems", -1, false, (double)n);
}

static bool check_object(json_object *root, json_object *s, json_object *v) {
    json_object *properties = get(s, "properties"), *required = get(s, "required");
    json_object *others = get(s, "additionalProperties");
    json_object_object_foreach(v, key, value) {
        json_object *rule = properties ? get(properties, key) : NULL;
        if (!rule) rule = others;
        if (rule && !schema_allows(root, rule, value)) return false;
    }
    for (size_t i = 0; required && i < json_object_array_length(required); i++)
        if (!json_object_object_get_ex(
                v, json_object_get_string(json_object_array_get_idx(required, i)), NULL))
            return false;
    double n = json_object_object_length(v);
    return within(s, "minProperties", 1, false, n) && within(s, "maxProperties", -1, false, n);
}

static bool contains(json_object *list, json_object *v) {
    for (size_t i = 0; i < json_object_array_length(list); i++)
        if (json_object_equal(json_object_array_get_idx(list, i), v)) return true;
    return false;
}

static bool check_branches(json_object *root, json_object *s, const char *name, bool all,
                           json_object *v) {
    json_object *list = get(s, name);
    if (!list) return true;
    size_t n = json_object_array_length(list), good = 0;
    for (size_t i = 0; i < n; i++)
        good += schema_allows(root, json_object_array_get_idx(list, i), v);
    return all ? good == n : good > 0;
}

/* Only references to the root and into $defs, whose names have no escapes. */
static bool check_ref(json_object *root, json_object *s, json_object *v) {
    json_object *ref = get(s, "$ref");
    const char *text = ref ? json_object_get_string(ref) : "";
    if (!strcmp(text, "#")) return schema_allows(root, root, v);
    const char *prefix = "#/$defs/";
    if (strncmp(text, prefix, strlen(prefix)) != 0) return true;
    json_object *target = get(get(root, "$defs"), text + strlen(prefix));
    return !target || schema_allows(root, target, v);
}

bool schema_allows(json_object *root, json_object *s, json_object *v) {
    if (json_object_is_type(s, json_type_boolean)) return json_object_get_boolean(s);
    json_object *constant, *values = get(s, "enum");
    if (!check_type(get(s, "type"), v) || (values && !contains(values, v))) return false;
    if (json_object_object_get_ex(s, "const", &constant) && !json_object_equal(constant, v))
        return false;
    if (!check_ref(root, s, v) || !check_branches(root, s, "allOf", true, v) ||
        !check_branches(root, s, "anyOf", false, v) || !check_branches(root, s, "oneOf", false, v))
        return false;
    switch (json_object_get_type(v)) {
    case json_type_int:
    case json_type_double:
        return check_number(s, json_object_get_double(v));
    case json_type_string:
        return check_string(s, v);
    case json_type_array:
        return check_array(root, s, v);
    case json_type_object:
        return check_object(root, s, v);
    default:
        return true;
    }
}
