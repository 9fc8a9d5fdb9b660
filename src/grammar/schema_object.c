/* Objects. Properties come in the order in which the schema has them; each optional one may be left
 * out, and others, when there may be any, come after them:
 *
 *   { series of pair_i, "," between two   ("," other_key ":" value)* } */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "schema_internal.h"

typedef schema_members object;

/* ---- keys that are none of some names -------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The code point after `done` bytes of a name; 0 at its end. Names are valid UTF-8. */
static int32_t code_point_at(const char *name, size_t done, size_t *width) {
    int32_t cp = 0;
    size_t left = strlen(name + done);
    *width = left ? (size_t)utf8_decode(name + done, left, &cp) : 0;
    return cp;
}

/* The rest of a key, of which `done` bytes agree with all of n sorted names. */
static ir_node unlike(schema *s, const char **names, size_t n, size_t done, int depth) {
    ir *g = s->g;
    node_list list = {0};
    size_t n_firsts = 0, width, i = 0;
    ir_range *firsts = mem_alloc(n * sizeof *firsts);
    if (!firsts) ir_fail(g, ICP_ENOMEM, "out of memory");
    if (depth > MAX_NESTING) schema_fail(s, ICP_ELIMIT, "the name of a property is too long");
    while (i < n && !names[i][done]) i++;
    if (i == 0) node_list_add(g, &list, IR_EMPTY);
    while (i < n && ir_tick(g, 5)) {
        size_t first = i, same;
        int32_t cp = code_point_at(names[i], done, &width);
        while (i < n && code_point_at(names[i], done, &same) == cp) i++;
        firsts[n_firsts] = (ir_range){cp, cp};
        ir_node one = ir_string_class(g, &firsts[n_firsts++], 1, false);
        ir_node rest = unlike(s, names + first, i - first, done + width, depth + 1);
        node_list_add(g, &list, ir_pair(g, one, rest));
    }
    if (g->rc == 0) {
        ir_node any = ir_repeat(g, ir_string_class(g, NULL, 0, true), 0, UNBOUNDED);
        ir_node other = ir_string_class(g, firsts, n_firsts, true);
        node_list_add(g, &list, ir_pair(g, other, any));
    }
    ir_node made = ir_alt(g, list.node, list.n);
    mem_free(firsts);
    node_list_fini(&list);
    return made;
}

static ir_node other_key(const object *o) {
    schema *s = o->s;
    if (o->n == 0) return ir_call(s->g, s->string);
    const char **sorted = mem_alloc(o->n * sizeof *sorted);
    if (!sorted) {
        ir_fail(s->g, ICP_ENOMEM, "out of memory");
        return IR_NEVER;
    }
    memcpy(sorted, o->names, o->n * sizeof *sorted);
    qsort(sorted, o->n, sizeof *sorted, compare_names);
    ir_node inner = unlike(s, sorted, o->n, 0, 0);
    mem_free(sorted);
    return schema_quoted(s, inner);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static ir_node colon(schema *s) {
    return ir_pair(s->g, schema_puts(s, ":"), ir_repeat(s->g, schema_puts(s, " "), 0, 1));
}

/* Where strings are raw, names that are words need no marks. */
static ir_node name_of(schema *s, const char *name) {
    size_t len = strlen(name), n_letters = 0;
    while (isalnum((unsigned char)name[n_letters]) || name[n_letters] == '_') n_letters++;
    if (s->g->spelling.raw && len && n_letters == len) return ir_text(s->g, name, len);
    return schema_quoted(s, ir_string_text(s->g, name, len)); /* one text: a series needs it */
}

static ir_node pair(const object *o, size_t i) {
    schema *s = o->s;
    ir_node value = o->schemas[i] ? schema_visit_rule(s, o->schemas[i]) : ir_call(s->g, s->value);
    return ir_seq(s->g, (ir_node[]){name_of(s, o->names[i]), colon(s), value}, 3);
}

static ir_node other_pair(const object *o, ir_node key) {
    schema *s = o->s;
    ir_node value = o->others ? schema_visit_rule(s, o->others) : ir_call(s->g, s->value);
    return ir_seq(s->g, (ir_node[]){key, colon(s), value}, 3);
}

static ir_node after_comma(schema *s, ir_node node) {
    return ir_seq(s->g, (ir_node[]){schema_puts(s, ","), s->space, node}, 3);
}

static ir_node in_braces(schema *s, ir_node inner, bool may_be_empty) {
    ir *g = s->g;
    ir_node some = ir_pair(g, inner, s->space);
    if (may_be_empty) some = ir_either(g, some, IR_EMPTY);
    return ir_seq(g, (ir_node[]){schema_puts(s, "{"), s->space, some, schema_puts(s, "}")}, 4);
}

/* ---- objects with properties ----------------------------------------------------------------- */

static ir_node as_rule(schema *s, ir_node node) {
    uint32_t rule = ir_rule_new(s->g);
    ir_rule_define(s->g, rule, node);
    return ir_call(s->g, rule);
}

static ir_node visit_properties(const object *o) {
    schema *s = o->s;
    ir *g = s->g;
    bool may_be_empty = true;
    node_list pairs = {0};
    for (size_t i = 0; i < o->n && g->rc == 0; i++) {
        node_list_add(g, &pairs, pair(o, i));
        may_be_empty &= !o->needed[i];
    }
    ir_node comma = ir_pair(g, schema_puts(s, ","), s->space);
    ir_node some = as_rule(s, ir_series(g, pairs.node, o->needed, pairs.n, comma));
    node_list_fini(&pairs);
    if (o->closed) return in_braces(s, some, may_be_empty);
    ir_node other = as_rule(s, other_pair(o, other_key(o)));
    ir_node others = ir_repeat(g, after_comma(s, other), 0, UNBOUNDED);
    some = ir_pair(g, some, others);
    if (may_be_empty) some = ir_either(g, some, ir_pair(g, other, others));
    return in_braces(s, some, may_be_empty);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static ir_node visit_map(const object *o, json_object *sub, uint32_t min, uint32_t max) {
    schema *s = o->s;
    ir *g = s->g;
    json_object *names = schema_get(sub, "propertyNames");
    ir_node key = ir_call(g, s->string);
    if (json_object_is_type(names, json_type_object)) {
        json_object *text = json_object_new_object(), *type = json_object_new_string("string");
        json_object_object_add(text, "type", type);
        json_object *strings = schema_merge(s, names, text);
        json_object_put(text);
        key = strings ? schema_visit(s, strings) : IR_NEVER;
    }
    if (max == 0 || o->closed) return min ? IR_NEVER : in_braces(s, IR_NEVER, true);
    ir_node one = as_rule(s, other_pair(o, key));
    uint32_t more = max == UNBOUNDED ? max : max - 1;
    ir_node list = ir_pair(g, one, ir_repeat(g, after_comma(s, one), min ? min - 1 : 0, more));
    return in_braces(s, list, min == 0);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool is_false(json_object *value) {
    return json_object_is_type(value, json_type_boolean) && !json_object_get_boolean(value);
}

static size_t find_name(const object *o, struct lh_table *index, const char *name) {
    void *at;
    return lh_table_lookup_ex(index, name, &at) ? (size_t)(uintptr_t)at : o->n;
}

/* Required properties that have no schema of their own are like the others. */
static void add_required(object *o, struct lh_table *index) {
    schema *s = o->s;
    for (size_t i = 0; i < json_object_array_length(o->required) && ir_tick(s->g, 5); i++) {
        json_object *item = json_object_array_get_idx(o->required, i);
        if (!json_object_is_type(item, json_type_string)) {
            schema_fail(s, ICP_EINVALID, "required must be a list of strings");
            return;
        }
        const char *name = json_object_get_string(item);
        size_t at = find_name(o, index, name);
        o->needed[at] = true;
        if (at < o->n) continue;
        o->names[at] = name;
        o->schemas[at] = o->others; /* and when that is false there can be none */
        lh_table_insert(index, name, (void *)(uintptr_t)at);
        o->n++;
    }
}

static void list_names(object *o) {
    struct lh_table *index = lh_kchar_table_new(64, NULL);
    if (!index) {
        ir_fail(o->s->g, ICP_ENOMEM, "out of memory");
        return;
    }
    if (o->properties) {
        json_object_object_foreach(o->properties, key, value) {
            if (!ir_tick(o->s->g, 5)) break;
            o->names[o->n] = key;
            o->schemas[o->n] = value;
            lh_table_insert(index, key, (void *)(uintptr_t)o->n);
            o->n++;
        }
    }
    if (o->required) add_required(o, index);
    lh_table_free(index);
}

bool schema_members_read(schema *s, json_object *sub, schema_members *o) {
    *o = (object){.s = s,
                  .properties = schema_get(sub, "properties"),
                  .required = schema_get(sub, "required")};
    if (o->properties && !json_object_is_type(o->properties, json_type_object))
        schema_fail(s, ICP_EINVALID, "properties must be an object");
    if (o->required && !json_object_is_type(o->required, json_type_array))
        schema_fail(s, ICP_EINVALID, "required must be a list");
    if (s->g->rc < 0) return false;
    bool given = json_object_object_get_ex(sub, "additionalProperties", &o->others);
    if (!given) given = json_object_object_get_ex(sub, "unevaluatedProperties", &o->others);
    o->closed = given ? is_false(o->others) : o->properties != NULL;
    size_t most = (o->properties ? (size_t)json_object_object_length(o->properties) : 0) +
                  (o->required ? json_object_array_length(o->required) : 0) + 1;
    o->names = mem_zero(most, sizeof *o->names);
    o->schemas = mem_zero(most, sizeof *o->schemas);
    o->needed = mem_zero(most, sizeof *o->needed);
    if (o->names && o->schemas && o->needed)
        list_names(o);
    else
        ir_fail(s->g, ICP_ENOMEM, "out of memory");
    return s->g->rc == 0;
}

void schema_members_fini(schema_members *o) {
    mem_free(o->names);
    mem_free(o->schemas);
    mem_free(o->needed);
}

/* Counts of properties, where some have names, are enforced only as far as these settle them. */
static void check_counts(const object *o, uint32_t min, uint32_t max) {
    size_t n_needed = 0;
    for (size_t i = 0; i < o->n; i++) n_needed += o->needed[i];
    if (min > n_needed)
        schema_fail(o->s, ICP_EUNSUPPORTED, "minProperties beside properties is not supported");
    if (!o->closed && max != UNBOUNDED)
        schema_fail(o->s, ICP_EUNSUPPORTED, "maxProperties beside properties is not supported");
    if (o->closed && max < o->n)
        schema_fail(o->s, ICP_EUNSUPPORTED, "maxProperties beside properties is not supported");
}

ir_node schema_object(schema *s, json_object *sub) {
    object o;
    uint32_t min = schema_count(s, sub, "minProperties", 0);
    uint32_t max = schema_count(s, sub, "maxProperties", UNBOUNDED);
    ir_node made = IR_NEVER;
    if (min > max) schema_fail(s, ICP_EINVALID, "minProperties is greater than maxProperties");
    if (schema_members_read(s, sub, &o)) {
        if (o.n) check_counts(&o, min, max);
        if (o.n && schema_get(sub, "propertyNames"))
            schema_fail(s, ICP_EUNSUPPORTED, "propertyNames beside properties is not supported");
        if (s->g->rc == 0) made = o.n ? visit_properties(&o) : visit_map(&o, sub, min, max);
    }
    schema_members_fini(&o);
    return made;
}
