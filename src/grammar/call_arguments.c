/* The arguments of a call whose schema is an object's, in the order of its properties, where they
 * are no JSON object as a whole:
 *
 *   KEYED     key NAME key_end VALUE value_end …    VALUE: a string as it is, all else as JSON
 *   LITERAL   NAME assign VALUE, …                  VALUE: JSON, with Python's words or own quotes
 *
 * Two schemas are read of one source where strings are raw beside JSON: `json` and `raw`. Only the
 * properties that are named are written; what else a schema lets in is left out, unless it names
 * none. */
#include <ctype.h>
#include <string.h>

#include "schema_internal.h"

typedef struct arguments {
    ir *g;
    const grammar_dialect *d;
    const grammar_call *call;
    ir_spelling own, raw; /* of `json` and `raw` */
    schema json, text;
} arguments;

static bool is_keyed(const arguments *a) {
    return a->d->arguments == ARGUMENTS_KEYED;
}

static ir_node put_text(const arguments *a, const char *text) {
    return ir_text(a->g, text, strlen(text));
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A value as in JSON; sub NULL: any. */
static ir_node own_value(arguments *a, json_object *sub) {
    a->g->spelling = a->own;
    ir_node made = sub ? schema_visit_rule(&a->json, sub) : ir_call(a->g, a->json.value);
    schema_define_pending(&a->json);
    return made;
}

/* A string as it is, with what ends it; sub NULL: any. */
static ir_node raw_value(arguments *a, json_object *sub) {
    a->g->spelling = a->raw;
    ir_node made = sub ? schema_visit_rule(&a->text, sub) : ir_call(a->g, a->text.string);
    schema_define_pending(&a->text);
    a->g->spelling = a->own;
    return made;
}

/* What a schema says of one type. */
static json_object *of_type(arguments *a, json_object *sub, const char *name) {
    json_object *only = json_object_new_object(), *type = json_object_new_string(name);
    json_object_object_add(only, "type", type);
    json_object *made = schema_merge(&a->text, sub, only);
    json_object_put(only);
    return made;
}

static ir_node strings_of(arguments *a, json_object *sub) {
    json_object *strings = sub ? of_type(a, sub, "string") : NULL;
    return sub && !strings ? IR_NEVER : raw_value(a, strings);
}

/* JSON between blanks. */
static ir_node padded(arguments *a, ir_node value) {
    ir_node space = a->json.space;
    return ir_seq(a->g, (ir_node[]){space, value, space, put_text(a, a->d->value_end)}, 4);
}

/* From the end of the key to the end of the value. */
static ir_node keyed_value(arguments *a, json_object *sub, enum grammar_value how) {
    ir *g = a->g;
    ir_node text = how == VALUE_JSON ? IR_NEVER : strings_of(a, sub);
    const char *before_text = a->d->text_key_end, *before = a->d->key_end;
    ir_node other = IR_NEVER;
    if (how == VALUE_JSON || (how == VALUE_TEXT_OR_NULL && before_text))
        other = padded(a, own_value(a, sub));
    else if (how == VALUE_TEXT_OR_NULL)
        other = padded(a, own_value(a, of_type(a, sub, "null")));
    ir_node values[] = {ir_pair(g, put_text(a, before_text ? before_text : before), text),
                        ir_pair(g, put_text(a, before), other)};
    return ir_alt(g, values, 2);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* A name that every dialect can write, and read again. */
static bool is_plain(const char *name) {
    size_t len = strlen(name);
    if (!len || isspace((unsigned char)name[0]) || isspace((unsigned char)name[len - 1]))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < ' ' || strchr("<>\"'=,:;(){}[]\\`", name[i])) return false;
    return true;
}

static ir_node pair(arguments *a, ir_node name, json_object *sub, enum grammar_value how) {
    ir *g = a->g;
    if (is_keyed(a)) {
        ir_node end = a->d->named_end ? ir_pair(g, name, put_text(a, ">")) : IR_EMPTY;
        return ir_seq(g, (ir_node[]){put_text(a, a->d->key), name, keyed_value(a, sub, how), end},
                      4);
    }
    ir_node assign = ir_text(g, &a->d->assign, 1);
    return ir_seq(g, (ir_node[]){name, assign, own_value(a, sub)}, 3);
}

static ir_node word(ir *g) {
    static const ir_range first[] = {{'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const ir_range rest[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    return ir_pair(g, ir_class(g, first, COUNT_OF(first), false),
                   ir_repeat(g, ir_class(g, rest, COUNT_OF(rest), false), 0, 40));
}

static ir_node between(arguments *a) {
    ir_node space = a->json.space;
    return is_keyed(a) ? space : ir_pair(a->g, put_text(a, ","), space);
}

/* Any names, all with values of one schema; NULL: of any. */
static ir_node any_pairs(arguments *a, json_object *sub) {
    ir *g = a->g;
    ir_node one = pair(a, word(g), sub, sub ? VALUE_JSON : VALUE_TEXT);
    ir_node more = ir_repeat(g, ir_pair(g, between(a), one), 0, UNBOUNDED);
    return ir_repeat(g, ir_pair(g, one, more), 0, 1);
}

static ir_node named_pairs(arguments *a, const schema_members *m) {
    ir *g = a->g;
    node_list pairs = {0};
    bool may_be_empty = true;
    for (size_t i = 0; i < m->n && g->rc == 0; i++) {
        const char *name = m->names[i];
        enum grammar_value how =
            is_keyed(a) && m->schemas[i] ? a->d->value_of(a->call->arg, name) : VALUE_JSON;
        may_be_empty &= !m->needed[i];
        if (!is_plain(name))
            schema_fail(m->s, ICP_EUNSUPPORTED,
                        "the model's calls cannot have an argument of the name \"%.60s\"", name);
        else
            node_list_add(g, &pairs, pair(a, put_text(a, name), m->schemas[i], how));
    }
    ir_node some = ir_series(g, pairs.node, m->needed, pairs.n, between(a));
    node_list_fini(&pairs);
    return may_be_empty ? ir_either(g, some, IR_EMPTY) : some;
}

/* Counts of members are enforced where all of them are needed, or all may be there. */
static bool counts_hold(schema *s, json_object *root, const schema_members *m) {
    uint32_t n_needed = 0, min = schema_count(s, root, "minProperties", 0);
    for (size_t i = 0; i < m->n; i++) n_needed += m->needed[i];
    return min <= n_needed && schema_count(s, root, "maxProperties", UNBOUNDED) >= m->n;
}

static bool is_object(json_object *root) {
    static const char *const others[] = {"anyOf", "oneOf", "enum", "const", "propertyNames"};
    json_object *type = schema_get(root, "type");
    if (!json_object_is_type(root, json_type_object)) return false;
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if (schema_get(root, others[i])) return false;
    return !type || (json_object_is_type(type, json_type_string) &&
                     !strcmp(json_object_get_string(type), "object"));
}

static ir_node members(arguments *a, json_object *root) {
    schema_members m = {0};
    ir_node made = IR_NEVER;
    if (!is_object(root)) {
        schema_fail(&a->json, ICP_EUNSUPPORTED,
                    "the model's calls are no JSON: arguments must be an object with properties");
        return IR_NEVER;
    }
    if (schema_members_read(&a->json, root, &m)) {
        if (!counts_hold(&a->json, root, &m))
            schema_fail(&a->json, ICP_EUNSUPPORTED,
                        "minProperties and maxProperties are not supported in the model's calls");
        made = m.n ? named_pairs(a, &m) : m.closed ? IR_EMPTY : any_pairs(a, m.others);
    }
    schema_members_fini(&m);
    return made;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool open(arguments *a) {
    const char *quote = a->d->quote;
    if (is_keyed(a)) {
        a->own = (ir_spelling){.mark = a->d->value_end};
        a->raw = (ir_spelling){
            .raw = true, .mark = a->d->value_end, .open = "", .pad = a->d->lines ? "\n" : ""};
    } else {
        a->own =
            (ir_spelling){.raw = quote, .mark = quote, .open = quote, .pad = "", .python = !quote};
        a->raw = a->own;
    }
    a->g->spelling = a->own;
    if (!schema_open(&a->json, a->g)) return false;
    a->g->spelling = a->raw;
    if (is_keyed(a) && !schema_open(&a->text, a->g)) return false;
    a->g->spelling = a->own;
    return true;
}

static ir_node restricted(arguments *a) {
    const grammar_str *source = &a->call->schema;
    if (!source->data) return any_pairs(a, NULL);
    json_object *root = schema_read(a->g, source->data, source->len);
    a->json.root = root;
    if (is_keyed(a)) a->text.root = json_object_get(root);
    return root ? members(a, schema_flatten(&a->json, root)) : IR_NEVER;
}

ir_node call_arguments(ir *g, const grammar_dialect *d, const grammar_call *call) {
    if (d->arguments == ARGUMENTS_JSON)
        return call->schema.data ? schema_parse(g, call->schema.data, call->schema.len)
                                 : schema_any_object(g);
    arguments a = {.g = g, .d = d, .call = call};
    ir_node made = open(&a) ? restricted(&a) : IR_NEVER;
    ir_node space = a.json.space;
    if (g->rc == 0) made = ir_seq(g, (ir_node[]){space, made, space}, 3);
    schema_close(&a.json);
    if (is_keyed(&a)) schema_close(&a.text);
    g->spelling = (ir_spelling){0};
    return made;
}
