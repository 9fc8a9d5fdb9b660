/* The schema that allows what two schemas allow: for allOf, for anyOf with keywords beside it, and
 * for $ref with company. Subschemas that meet become an allOf of both, and are merged when they are
 * visited. What cannot be expressed as one schema is an error. */
#include <string.h>

#include "schema_internal.h"

enum { OBJECT_STEPS = 100 }; /* what an object of json-c costs to make and to give back */

static json_object *keep(schema *s, json_object *made) {
    if (!made || json_object_array_add(s->made, made) < 0) {
        json_object_put(made);
        ir_fail(s->g, ICP_ENOMEM, "out of memory");
        return NULL;
    }
    return made;
}

static void set(json_object *into, const char *key, json_object *value) {
    json_object_object_add(into, key, json_object_get(value));
}

static json_object *copy_without(json_object *sub, const char *name) {
    json_object *copy = json_object_new_object();
    json_object_object_foreach(sub, key, value) {
        if (!name || strcmp(key, name) != 0) set(copy, key, value);
    }
    return copy;
}

json_object *schema_without(schema *s, json_object *sub, const char *name) {
    ir_tick(s->g, OBJECT_STEPS + 10 * (size_t)json_object_object_length(sub));
    return keep(s, copy_without(sub, name));
}

/* ---- two values of one keyword: a new reference ---------------------------------------------- */

static json_object *both(json_object *a, json_object *b) {
    json_object *list = json_object_new_array(), *all = json_object_new_object();
    json_object_array_add(list, json_object_get(a));
    json_object_array_add(list, json_object_get(b));
    json_object_object_add(all, "allOf", list);
    return all;
}

static bool contains(json_object *list, json_object *value) {
    for (size_t i = 0; i < json_object_array_length(list); i++)
        if (json_object_equal(json_object_array_get_idx(list, i), value)) return true;
    return false;
}

/* As a list, whatever it was. */
static json_object *as_list(json_object *value) {
    if (json_object_is_type(value, json_type_array)) return json_object_get(value);
    json_object *list = json_object_new_array();
    json_object_array_add(list, json_object_get(value));
    return list;
}

static json_object *shared_values(schema *s, json_object *a, json_object *b) {
    json_object *list = json_object_new_array();
    size_t n_a = json_object_array_length(a), n_b = json_object_array_length(b);
    if (!ir_tick(s->g, n_a * n_b + 1)) n_a = 0;
    for (size_t i = 0; i < n_a; i++) {
        json_object *value = json_object_array_get_idx(a, i);
        if (contains(b, value)) json_object_array_add(list, json_object_get(value));
    }
    return list;
}

/* "number" and "integer" have "integer" in common. */
static json_object *shared_types(schema *s, json_object *a, json_object *b) {
    json_object *x = as_list(a), *y = as_list(b), *list = shared_values(s, x, y);
    json_object *number = json_object_new_string("number"),
                *integer = json_object_new_string("integer");
    bool mixed = (contains(x, number) && contains(y, integer)) ||
                 (contains(y, number) && contains(x, integer));
    if (mixed && !contains(list, integer)) json_object_array_add(list, json_object_get(integer));
    json_object_put(number);
    json_object_put(integer);
    json_object_put(x);
    json_object_put(y);
    return list;
}

static json_object *joined(schema *s, json_object *a, json_object *b) {
    json_object *list = json_object_new_array();
    for (int k = 0; k < 2; k++) {
        json_object *from = k ? b : a;
        size_t n = json_object_array_length(from);
        for (size_t i = 0; i < n && ir_tick(s->g, 1); i++)
            json_object_array_add(list, json_object_get(json_object_array_get_idx(from, i)));
    }
    return list;
}

/* Every branch of one with every branch of the other. */
static json_object *products(schema *s, json_object *a, json_object *b) {
    json_object *list = json_object_new_array();
    for (size_t i = 0; i < json_object_array_length(a) && s->g->rc == 0; i++)
        for (size_t k = 0; k < json_object_array_length(b) && ir_tick(s->g, 2 * OBJECT_STEPS); k++)
            json_object_array_add(
                list, both(json_object_array_get_idx(a, i), json_object_array_get_idx(b, k)));
    return list;
}

/* ---- members that belong together ------------------------------------------------------------ */

/* A property of `from`, where the other schema may say something of it too, or of all others. */
static void merge_property(json_object *into, const char *key, json_object *value,
                           json_object *other) {
    json_object *theirs = schema_get(schema_get(other, "properties"), key);
    if (!theirs) theirs = schema_get(other, "additionalProperties");
    json_object_object_add(into, key, theirs ? both(value, theirs) : json_object_get(value));
}

static void merge_properties(schema *s, json_object *into, json_object *a, json_object *b) {
    json_object *first = schema_get(a, "properties"), *second = schema_get(b, "properties");
    if (!first && !second) return;
    json_object *made = json_object_new_object();
    json_object_object_add(into, "properties", made);
    if (json_object_is_type(first, json_type_object)) {
        json_object_object_foreach(first, key, value) {
            if (ir_tick(s->g, 10)) merge_property(made, key, value, b);
        }
    }
    if (json_object_is_type(second, json_type_object)) {
        json_object_object_foreach(second, name, other) {
            if (ir_tick(s->g, 10) && !json_object_object_get_ex(made, name, NULL))
                merge_property(made, name, other, a);
        }
    }
}

static bool is_number(json_object *value) {
    return json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

/* Merges a keyword that both have; NULL: it is not known how. */
static json_object *merge_keyword(schema *s, const char *key, json_object *a, json_object *b) {
    static const char *const lower[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const upper[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        "maxProperties"};
    bool lists = json_object_is_type(a, json_type_array) && json_object_is_type(b, json_type_array);
    if (json_object_equal(a, b)) return json_object_get(a);
    if (!strcmp(key, "type")) return shared_types(s, a, b);
    if (!strcmp(key, "enum") && lists) return shared_values(s, a, b);
    if ((!strcmp(key, "required") || !strcmp(key, "allOf")) && lists) return joined(s, a, b);
    if (!strcmp(key, "anyOf") && lists) return products(s, a, b);
    if (!strcmp(key, "additionalProperties") || !strcmp(key, "items")) return both(a, b);
    for (size_t i = 0; i < COUNT_OF(lower) && is_number(a) && is_number(b); i++) {
        bool less = json_object_get_double(a) < json_object_get_double(b);
        if (!strcmp(key, lower[i])) return json_object_get(less ? b : a);
        if (!strcmp(key, upper[i])) return json_object_get(less ? a : b);
    }
    return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* A copy of sub that s keeps, with $ref replaced by what it leads to; a boolean when that is one.
 * NULL with an error. */
static json_object *follow(schema *s, json_object *sub) {
    enum { LONGEST_CHAIN = 64 };
    json_object *at = schema_without(s, sub, NULL);
    for (int i = 0; at && schema_get(at, "$ref"); i++) {
        json_object *target = schema_resolve(s, at), *rest = schema_without(s, at, "$ref");
        if (i == LONGEST_CHAIN) schema_fail(s, ICP_EINVALID, "$ref leads in a circle");
        if (!target || !rest || s->g->rc < 0) return NULL;
        bool alone = !schema_has_more(rest, "") && json_object_is_type(target, json_type_object);
        at = alone ? schema_without(s, target, NULL) : schema_merge(s, rest, target);
        if (!json_object_is_type(at, json_type_object)) break;
    }
    return at;
}

/* Gives const and oneOf the names that the rest knows. */
static void rename_keywords(schema *s, json_object *sub) {
    json_object *value;
    if (json_object_object_get_ex(sub, "const", &value)) {
        json_object *list = json_object_new_array(), *values = schema_get(sub, "enum");
        json_object_array_add(list, json_object_get(value));
        json_object *shared = values ? shared_values(s, list, values) : json_object_get(list);
        json_object_put(list);
        json_object_object_del(sub, "const");
        json_object_object_add(sub, "enum", shared);
    }
    if ((value = schema_get(sub, "oneOf"))) {
        json_object *any = schema_get(sub, "anyOf");
        json_object *branches = any ? products(s, any, value) : json_object_get(value);
        json_object_object_del(sub, "oneOf");
        json_object_object_add(sub, "anyOf", branches);
    }
}

static json_object *normal(schema *s, json_object *sub) {
    json_object *at = follow(s, sub);
    if (json_object_is_type(at, json_type_object)) rename_keywords(s, at);
    return s->g->rc < 0 ? NULL : at;
}

static json_object *merge_objects(schema *s, json_object *a, json_object *b) {
    json_object *made = copy_without(a, "properties");
    json_object_object_foreach(b, key, theirs) {
        json_object *ours = schema_get(made, key);
        if (!strcmp(key, "properties")) continue;
        if (!ours || schema_is_annotation(key)) {
            if (!ours) set(made, key, theirs);
            continue;
        }
        json_object *merged = merge_keyword(s, key, ours, theirs);
        if (!merged)
            schema_fail(s, ICP_EUNSUPPORTED, "two different values of \"%.40s\" cannot be combined",
                        key);
        else
            json_object_object_add(made, key, merged);
    }
    merge_properties(s, made, a, b);
    return keep(s, made);
}

static bool is_false(json_object *sub) {
    return json_object_is_type(sub, json_type_boolean) && !json_object_get_boolean(sub);
}

json_object *schema_merge(schema *s, json_object *a, json_object *b) {
    if (!ir_tick(s->g, OBJECT_STEPS)) return NULL;
    if (json_object_is_type(a, json_type_boolean)) return is_false(a) ? a : b;
    if (json_object_is_type(b, json_type_boolean)) return is_false(b) ? b : a;
    if (!json_object_is_type(a, json_type_object) || !json_object_is_type(b, json_type_object)) {
        schema_fail(s, ICP_EINVALID, "a schema must be an object or a boolean");
        return NULL;
    }
    if (++s->depth > MAX_NESTING) {
        schema_fail(s, ICP_ELIMIT, "nested too deeply");
        return NULL;
    }
    json_object *x = normal(s, a), *y = normal(s, b), *made = NULL;
    if (x && y && s->g->rc == 0) {
        bool objects =
            json_object_is_type(x, json_type_object) && json_object_is_type(y, json_type_object);
        made = objects ? merge_objects(s, x, y) : schema_merge(s, x, y);
    }
    s->depth--;
    return s->g->rc < 0 ? NULL : made;
}
