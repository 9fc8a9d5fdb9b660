/* JSON Schema, draft 2020-12, as vendors of constrained decoding restrict it.
 *
 * What is read
 *   any        type (one or a list), enum, const, anyOf, oneOf, allOf, $ref, $defs, nullable
 *   object     properties (in the order given), required, additionalProperties, min/maxProperties
 *              and propertyNames of maps
 *   array      items, prefixItems, minItems, maxItems
 *   string     minLength, maxLength, pattern, format
 *   number     minimum, maximum, exclusiveMinimum, exclusiveMaximum
 * What is left out on purpose, so that texts are a subset of the valid ones: objects with
 * properties are closed unless additionalProperties is given; without a type, the one that keywords
 * speak of is taken; oneOf is read as anyOf, and may therefore allow a text that two branches
 * match. A keyword that would restrict texts further and is not read is an error; others are
 * annotations.
 *
 * Between tokens one space, or one line break with up to 32 blanks, may stand; a model cannot go on
 * with blanks for ever. */
#include "json.h"
#include "schema_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_DEPTH = 128 };

void schema_fail(schema *s, int code, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ir_fail(s->g, code, "schema: %s", text);
}

json_object *schema_get(json_object *sub, const char *name) {
    json_object *value = NULL;
    return json_object_object_get_ex(sub, name, &value) ? value : NULL;
}

uint32_t schema_count(schema *s, json_object *sub, const char *name, uint32_t otherwise) {
    json_object *value;
    if (!json_object_object_get_ex(sub, name, &value)) return otherwise;
    double number = json_object_get_double(value);
    bool is_number =
        json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double);
    if (is_number && number >= 0 && number == floor(number))
        return (uint32_t)MIN(number, UINT32_MAX - 1.0);
    schema_fail(s, ICP_EINVALID, "%s must be a whole number", name);
    return otherwise;
}

ir_node schema_puts(schema *s, const char *text) {
    return ir_text(s->g, text, strlen(text));
}

ir_node schema_word(schema *s, const char *word, const char *python) {
    ir_node json = schema_puts(s, word);
    return s->g->spelling.python ? ir_either(s->g, json, schema_puts(s, python)) : json;
}

/* ---- references ------------------------------------------------------------------------------ */

bool schema_is_annotation(const char *name) {
    static const char *const names[] = {
        "title",         "description", "default", "examples", "$comment", "deprecated",
        "readOnly",      "writeOnly",   "$defs",   "$schema",  "$id",      "definitions",
        "discriminator", "example",     "strict",  "name",
    };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(name, names[i])) return true;
    return !strncmp(name, "x-", 2);
}

bool schema_has_more(json_object *sub, const char *name) {
    json_object_object_foreach(sub, key, value) {
        (void)value;
        if (strcmp(key, name) != 0 && !schema_is_annotation(key)) return true;
    }
    return false;
}

/* One token of a JSON pointer inside a fragment (RFC 6901), decoded into out; false: too long. */
static bool decode_token(const char *from, size_t len, char *out, size_t cap) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned byte;
        char c = from[i];
        if (c == '%' && i + 2 < len && sscanf(from + i + 1, "%2x", &byte) == 1) {
            c = (char)byte;
            i += 2;
        } else if (c == '~' && i + 1 < len) {
            c = from[++i] == '1' ? '/' : '~';
        }
        if (n + 1 >= cap) return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

static json_object *step_into(json_object *at, const char *token) {
    if (json_object_is_type(at, json_type_object)) return schema_get(at, token);
    char *end;
    unsigned long index = strtoul(token, &end, 10);
    if (!json_object_is_type(at, json_type_array) || end == token || *end) return NULL;
    return json_object_array_get_idx(at, index);
}

json_object *schema_resolve(schema *s, json_object *sub) {
    json_object *ref = schema_get(sub, "$ref"), *at = s->root;
    const char *text =
        json_object_is_type(ref, json_type_string) ? json_object_get_string(ref) : "";
    if (text[0] != '#' || (text[1] && text[1] != '/')) {
        schema_fail(s, ICP_EUNSUPPORTED, "$ref \"%.100s\": only \"#\" and \"#/…\" are supported",
                    text);
        return NULL;
    }
    for (const char *p = text + 1; *p && at;) {
        size_t len = strcspn(p + 1, "/");
        char token[256];
        at = decode_token(p + 1, len, token, sizeof token) ? step_into(at, token) : NULL;
        p += 1 + len;
    }
    if (!at) schema_fail(s, ICP_EINVALID, "$ref \"%.100s\" leads nowhere", text);
    return at;
}

/* The rule of a subschema that others refer to. */
static ir_node call_rule(schema *s, json_object *sub) {
    void *known;
    if (lh_table_lookup_ex(s->rules, sub, &known))
        return ir_call(s->g, (uint32_t)(uintptr_t)known - 1);
    uint32_t rule = ir_rule_new(s->g);
    if (rule == UINT32_MAX) return IR_NEVER;
    if (!array_reserve(&s->pending, &s->cap_pending, s->n_pending + 1, sizeof *s->pending) ||
        lh_table_insert(s->rules, sub, (void *)((uintptr_t)rule + 1)) < 0) {
        ir_fail(s->g, ICP_ENOMEM, "out of memory");
        return IR_NEVER;
    }
    s->pending[s->n_pending++] = sub;
    return ir_call(s->g, rule);
}

ir_node schema_visit_rule(schema *s, json_object *sub) {
    bool plain = json_object_is_type(sub, json_type_object) && !schema_get(sub, "$ref");
    return plain ? call_rule(s, sub) : schema_visit(s, sub);
}

/* ---- values that are given ------------------------------------------------------------------- */

static bool is_of_type(json_object *value, const char *type) {
    switch (json_object_get_type(value)) {
    case json_type_null:
        return !strcmp(type, "null");
    case json_type_boolean:
        return !strcmp(type, "boolean");
    case json_type_int:
        return !strcmp(type, "integer") || !strcmp(type, "number");
    case json_type_double:
        return !strcmp(type, "number");
    case json_type_string:
        return !strcmp(type, "string");
    case json_type_array:
        return !strcmp(type, "array");
    default:
        return !strcmp(type, "object");
    }
}

static bool has_type(json_object *types, json_object *value) {
    if (!types) return true;
    if (json_object_is_type(types, json_type_string))
        return is_of_type(value, json_object_get_string(types));
    for (size_t i = 0; i < json_object_array_length(types); i++)
        if (is_of_type(value, json_object_get_string(json_object_array_get_idx(types, i))))
            return true;
    return false;
}

static ir_node put_value(schema *s, json_object *value);

static ir_node put_items(schema *s, json_object *list) {
    ir_node made = schema_puts(s, "[");
    for (size_t i = 0; i < json_object_array_length(list) && s->g->rc == 0; i++) {
        if (i) made = ir_pair(s->g, made, schema_puts(s, ","));
        made = ir_pair(s->g, made, put_value(s, json_object_array_get_idx(list, i)));
    }
    return ir_pair(s->g, made, schema_puts(s, "]"));
}

static ir_node put_members(schema *s, json_object *object) {
    ir_node made = schema_puts(s, "{");
    bool first = true;
    json_object_object_foreach(object, key, value) {
        if (!first) made = ir_pair(s->g, made, schema_puts(s, ","));
        first = false;
        ir_node name = schema_quoted_text(s, key, strlen(key));
        ir_node parts[] = {made, name, schema_puts(s, ":"), put_value(s, value)};
        made = ir_seq(s->g, parts, COUNT_OF(parts));
    }
    return ir_pair(s->g, made, schema_puts(s, "}"));
}

static ir_node put_value(schema *s, json_object *value) {
    bool raw = s->g->spelling.raw || s->g->spelling.python;
    if (raw && json_object_is_type(value, json_type_string))
        return schema_quoted_text(s, json_object_get_string(value),
                                  (size_t)json_object_get_string_len(value));
    if (raw && json_object_is_type(value, json_type_array)) return put_items(s, value);
    if (raw && json_object_is_type(value, json_type_object)) return put_members(s, value);
    const char *text = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN |
                                                                 JSON_C_TO_STRING_NOSLASHESCAPE);
    if (!text) ir_fail(s->g, ICP_ENOMEM, "out of memory");
    return text ? ir_text_without_mark(s->g, text, strlen(text)) : IR_NEVER;
}

/* Those values that the type beside them allows. */
static ir_node visit_values(schema *s, json_object *sub, json_object *values) {
    json_object *types = schema_get(sub, "type");
    node_list list = {0};
    for (size_t i = 0; i < json_object_array_length(values) && s->g->rc == 0; i++) {
        json_object *value = json_object_array_get_idx(values, i);
        if (has_type(types, value)) node_list_add(s->g, &list, put_value(s, value));
    }
    ir_node made = ir_alt(s->g, list.node, list.n);
    node_list_fini(&list);
    return made;
}

/* ---- types ----------------------------------------------------------------------------------- */

static ir_node visit_type(schema *s, json_object *sub, const char *type) {
    if (!strcmp(type, "object")) return schema_object(s, sub);
    if (!strcmp(type, "array")) return schema_array(s, sub);
    if (!strcmp(type, "string")) return schema_string(s, sub);
    if (!strcmp(type, "integer")) return schema_number(s, sub, true);
    if (!strcmp(type, "number")) return schema_number(s, sub, false);
    if (!strcmp(type, "boolean"))
        return ir_either(s->g, schema_word(s, "true", "True"), schema_word(s, "false", "False"));
    if (!strcmp(type, "null")) return schema_word(s, "null", "None");
    schema_fail(s, ICP_EINVALID, "\"%.40s\" is no type", type);
    return IR_NEVER;
}

/* The type that keywords speak of; NULL: none. */
static const char *guess_type(json_object *sub) {
    static const char *const table[][2] = {
        {"properties", "object"},
        {"required", "object"},
        {"additionalProperties", "object"},
        {"minProperties", "object"},
        {"maxProperties", "object"},
        {"propertyNames", "object"},
        {"items", "array"},
        {"prefixItems", "array"},
        {"minItems", "array"},
        {"maxItems", "array"},
        {"minLength", "string"},
        {"maxLength", "string"},
        {"pattern", "string"},
        {"format", "string"},
        {"minimum", "number"},
        {"maximum", "number"},
        {"exclusiveMinimum", "number"},
        {"exclusiveMaximum", "number"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (schema_get(sub, table[i][0])) return table[i][1];
    return NULL;
}

static ir_node visit_types(schema *s, json_object *sub) {
    json_object *types = schema_get(sub, "type");
    if (!types) {
        const char *guess = guess_type(sub);
        return guess ? visit_type(s, sub, guess) : ir_call(s->g, s->value);
    }
    if (json_object_is_type(types, json_type_string))
        return visit_type(s, sub, json_object_get_string(types));
    if (!json_object_is_type(types, json_type_array)) {
        schema_fail(s, ICP_EINVALID, "type must be a string or a list of strings");
        return IR_NEVER;
    }
    node_list list = {0};
    for (size_t i = 0; i < json_object_array_length(types) && s->g->rc == 0; i++) {
        json_object *type = json_object_array_get_idx(types, i);
        const char *name = json_object_is_type(type, json_type_string)
                               ? json_object_get_string(type)
                               : "(no string)";
        node_list_add(s->g, &list, visit_type(s, sub, name));
    }
    ir_node made = ir_alt(s->g, list.node, list.n);
    node_list_fini(&list);
    return made;
}

/* ---- combinations ---------------------------------------------------------------------------- */

static json_object *list_at(schema *s, json_object *sub, const char *name) {
    json_object *list = schema_get(sub, name);
    if (!list || (json_object_is_type(list, json_type_array) && json_object_array_length(list)))
        return list;
    schema_fail(s, ICP_EINVALID, "%s must be a list that is not empty", name);
    return NULL;
}

static ir_node visit_any_of(schema *s, json_object *sub, const char *name, json_object *branches) {
    json_object *rest = schema_has_more(sub, name) ? schema_without(s, sub, name) : NULL;
    node_list list = {0};
    for (size_t i = 0; i < json_object_array_length(branches) && s->g->rc == 0; i++) {
        json_object *branch = json_object_array_get_idx(branches, i);
        if (rest) branch = schema_merge(s, rest, branch);
        if (s->g->rc == 0) node_list_add(s->g, &list, schema_visit(s, branch));
    }
    ir_node made = ir_alt(s->g, list.node, list.n);
    node_list_fini(&list);
    return made;
}

static ir_node visit_all_of(schema *s, json_object *sub, json_object *branches) {
    json_object *merged = schema_without(s, sub, "allOf");
    for (size_t i = 0; i < json_object_array_length(branches) && s->g->rc == 0; i++)
        merged = schema_merge(s, merged, json_object_array_get_idx(branches, i));
    return s->g->rc < 0 ? IR_NEVER : schema_visit(s, merged);
}

/* Keywords that restrict texts in a way that is not enforced here. */
static void refuse_others(schema *s, json_object *sub) {
    static const char *const names[] = {
        "not",
        "if",
        "then",
        "else",
        "patternProperties",
        "contains",
        "multipleOf",
        "$dynamicRef",
        "dependentRequired",
        "dependentSchemas",
        "$recursiveRef",
        "dependencies",
        "unevaluatedItems",
        "additionalItems",
        "minContains",
        "maxContains",
    };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (schema_get(sub, names[i]))
            schema_fail(s, ICP_EUNSUPPORTED, "the keyword \"%s\" is not supported", names[i]);
    if (json_object_get_boolean(schema_get(sub, "uniqueItems")))
        schema_fail(s, ICP_EUNSUPPORTED, "the keyword \"uniqueItems\" is not supported");
    json_object *more = schema_get(sub, "unevaluatedProperties");
    if (more && json_object_get_boolean(more))
        schema_fail(s, ICP_EUNSUPPORTED, "the keyword \"unevaluatedProperties\" is not supported");
}

static ir_node visit_plain(schema *s, json_object *sub) {
    json_object *list = list_at(s, sub, "allOf");
    if (list) return visit_all_of(s, sub, list);
    if ((list = list_at(s, sub, "anyOf"))) return visit_any_of(s, sub, "anyOf", list);
    if ((list = list_at(s, sub, "oneOf"))) return visit_any_of(s, sub, "oneOf", list);
    if ((list = list_at(s, sub, "enum"))) return visit_values(s, sub, list);
    json_object *value;
    if (json_object_object_get_ex(sub, "const", &value))
        return has_type(schema_get(sub, "type"), value) ? put_value(s, value) : IR_NEVER;
    return visit_types(s, sub);
}

/* An object that is a schema; in its own place, so a $ref with company is merged here. */
static ir_node visit_object(schema *s, json_object *sub) {
    refuse_others(s, sub);
    if (s->g->rc < 0) return IR_NEVER;
    if (schema_get(sub, "$ref")) {
        json_object *target = schema_resolve(s, sub);
        json_object *merged =
            target ? schema_merge(s, schema_without(s, sub, "$ref"), target) : NULL;
        return merged ? schema_visit(s, merged) : IR_NEVER;
    }
    ir_node node = visit_plain(s, sub);
    bool or_null = json_object_get_boolean(schema_get(sub, "nullable"));
    return or_null ? ir_either(s->g, node, schema_word(s, "null", "None")) : node;
}

json_object *schema_flatten(schema *s, json_object *sub) {
    for (int depth = 0; sub && s->g->rc == 0; depth++) {
        if (depth > MAX_NESTING) schema_fail(s, ICP_ELIMIT, "nested too deeply");
        if (!json_object_is_type(sub, json_type_object)) return sub;
        refuse_others(s, sub);
        json_object *list = list_at(s, sub, "allOf");
        bool refers = schema_get(sub, "$ref");
        if (!list && !refers) return sub;
        json_object *target = refers ? schema_resolve(s, sub) : NULL;
        sub = schema_without(s, sub, refers ? "$ref" : "allOf");
        if (target) sub = schema_merge(s, sub, target);
        for (size_t i = 0; !refers && i < json_object_array_length(list) && sub; i++)
            sub = schema_merge(s, sub, json_object_array_get_idx(list, i));
    }
    return NULL;
}

ir_node schema_visit(schema *s, json_object *sub) {
    if (!ir_tick(s->g, 10)) return IR_NEVER;
    if (json_object_is_type(sub, json_type_boolean))
        return json_object_get_boolean(sub) ? ir_call(s->g, s->value) : IR_NEVER;
    if (!json_object_is_type(sub, json_type_object)) {
        schema_fail(s, ICP_EINVALID, "a schema must be an object or a boolean");
        return IR_NEVER;
    }
    if (schema_get(sub, "$ref")) {
        json_object *target = schema_has_more(sub, "$ref") ? sub : schema_resolve(s, sub);
        if (!target) return IR_NEVER;
        return json_object_is_type(target, json_type_object) ? call_rule(s, target)
                                                             : schema_visit(s, target);
    }
    if (++s->depth > MAX_NESTING) {
        schema_fail(s, ICP_ELIMIT, "nested too deeply");
        return IR_NEVER;
    }
    ir_node node = visit_object(s, sub);
    s->depth--;
    return node;
}

/* ---- anything -------------------------------------------------------------------------------- */

static ir_node visit_empty(schema *s, ir_node (*visit)(schema *, json_object *)) {
    json_object *nothing = json_object_new_object();
    ir_node made = visit(s, nothing);
    json_object_put(nothing);
    return made;
}

/* The rules that every schema may need. */
static void define_common(schema *s) {
    static const ir_range blanks[] = {{' ', ' '}, {'\t', '\t'}};
    ir *g = s->g;
    ir_node indent = ir_repeat(g, ir_class(g, blanks, COUNT_OF(blanks), false), 0, 32);
    ir_node space = ir_either(g, schema_puts(s, " "), ir_pair(g, schema_puts(s, "\n"), indent));
    uint32_t rule = ir_rule_new(g);
    s->value = ir_rule_new(g);
    s->object = ir_rule_new(g);
    s->string = ir_rule_new(g);
    if (g->rc < 0) return;
    ir_rule_define(g, rule, ir_either(g, space, IR_EMPTY));
    s->space = ir_call(g, rule);
    ir_rule_define(g, s->string, schema_any_string(s));
    ir_rule_define(g, s->object, visit_empty(s, schema_object));
    ir_node any[] = {
        ir_call(g, s->object),
        visit_empty(s, schema_array),
        ir_call(g, s->string),
        schema_word(s, "true", "True"),
        schema_word(s, "false", "False"),
        schema_word(s, "null", "None"),
        IR_NEVER,
    };
    json_object *nothing = json_object_new_object();
    any[COUNT_OF(any) - 1] = schema_number(s, nothing, false);
    json_object_put(nothing);
    ir_rule_define(g, s->value, ir_alt(g, any, COUNT_OF(any)));
}

/* ---- whole schemas --------------------------------------------------------------------------- */

json_object *schema_read(ir *g, const char *text, size_t len) {
    json_object *root;
    enum json_tokener_error why;
    size_t end;
    if (json_read(text, len, JSON_DEPTH, &root, &why, &end) < 0) {
        ir_fail(g, ICP_ENOMEM, "out of memory");
        return NULL;
    }
    if (why != json_tokener_success)
        ir_fail(g, ICP_EINVALID, "schema: not valid JSON: %s", json_tokener_error_desc(why));
    else if (!root)
        ir_fail(g, ICP_EINVALID, "schema: a schema must be an object or a boolean");
    return root;
}

bool schema_open(schema *s, ir *g) {
    *s = (schema){.g = g, .made = json_object_new_array(), .rules = lh_kptr_table_new(64, NULL)};
    if (!s->made || !s->rules) ir_fail(g, ICP_ENOMEM, "out of memory");
    if (g->rc == 0) define_common(s);
    return g->rc == 0;
}

void schema_close(schema *s) {
    json_object_put(s->made);
    json_object_put(s->root);
    if (s->rules) lh_table_free(s->rules);
    mem_free(s->pending);
}

/* Reads the subschemas that were referred to, which may refer to more. */
void schema_define_pending(schema *s) {
    while (s->n_pending && s->g->rc == 0) {
        json_object *sub = s->pending[--s->n_pending];
        void *rule = NULL;
        lh_table_lookup_ex(s->rules, sub, &rule);
        ir_rule_define(s->g, (uint32_t)(uintptr_t)rule - 1, visit_object(s, sub));
    }
}

ir_node schema_parse(ir *g, const char *text, size_t len) {
    schema s;
    ir_node root = IR_NEVER;
    if (schema_open(&s, g)) s.root = schema_read(g, text, len);
    if (g->rc == 0) {
        root = schema_visit_rule(&s, s.root);
        schema_define_pending(&s);
    }
    schema_close(&s);
    return root;
}

ir_node schema_any_object(ir *g) {
    schema s;
    ir_node root = schema_open(&s, g) ? ir_call(g, s.object) : IR_NEVER;
    schema_close(&s);
    return root;
}
