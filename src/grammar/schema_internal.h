/* What the files that read JSON Schemas share. */
#ifndef SCHEMA_INTERNAL_H
#define SCHEMA_INTERNAL_H

#include <json-c/json.h>
#include <json-c/linkhash.h>

#include "grammar_internal.h"

/* A schema being read. Subschemas that a $ref leads to become rules, which are read one after the
 * other from a list, so that recursive schemas end and long chains of them need no stack. */
typedef struct schema {
    ir *g;
    json_object *root;
    json_object *made;      /* an array that holds merged schemas while they are needed */
    struct lh_table *rules; /* subschema → 1 + rule */
    json_object **pending;  /* subschemas whose rules are not yet defined */
    size_t n_pending, cap_pending;
    int depth;

    ir_node space;                  /* what may stand between two tokens */
    uint32_t value, object, string; /* rules: anything; any object; any string */
} schema;

void schema_fail(schema *s, int code, const char *format, ...) PRINTF_LIKE(3, 4);

/* The texts that a subschema allows. */
ir_node schema_visit(schema *s, json_object *sub);
/* The same as a rule of its own: for what stands in many places. */
ir_node schema_visit_rule(schema *s, json_object *sub);

/* A member; NULL when it is absent. */
json_object *schema_get(json_object *sub, const char *name);
/* A member that is a count; `otherwise` when it is absent. */
uint32_t schema_count(schema *s, json_object *sub, const char *name, uint32_t otherwise);
ir_node schema_puts(schema *s, const char *text);
/* A word of JSON's, and Python's for it where that may stand. */
ir_node schema_word(schema *s, const char *word, const char *python);

/* A schema in text (schema_read; NULL with an error), its common rules and its pending ones. */
bool schema_open(schema *s, ir *g);
void schema_close(schema *s);
json_object *schema_read(ir *g, const char *text, size_t len);
void schema_define_pending(schema *s);

/* What the $ref of sub leads to; NULL with an error. */
json_object *schema_resolve(schema *s, json_object *sub);
/* True when more than annotations stands beside the member `name`. */
bool schema_has_more(json_object *sub, const char *name);
bool schema_is_annotation(const char *keyword);

/* ---- schema_merge.c -------------------------------------------------------------------------- */

/* A schema that allows what both allow; s keeps it. NULL with an error. */
json_object *schema_merge(schema *s, json_object *a, json_object *b);
/* A copy without one member, kept by s. */
json_object *schema_without(schema *s, json_object *sub, const char *name);

/* A schema without $ref and allOf that says the same; NULL with an error. */
json_object *schema_flatten(schema *s, json_object *sub);

/* ---- one type each --------------------------------------------------------------------------- */

ir_node schema_object(schema *s, json_object *sub);               /* schema_object.c */
ir_node schema_array(schema *s, json_object *sub);                /* schema_array.c */
ir_node schema_string(schema *s, json_object *sub);               /* schema_string.c */
ir_node schema_number(schema *s, json_object *sub, bool integer); /* schema_number.c */
ir_node schema_chars(schema *s); /* one character inside a string (schema_string.c) */
/* The string whose inside is given; the one that is text; any. */
ir_node schema_quoted(schema *s, ir_node inner);
ir_node schema_quoted_text(schema *s, const char *text, size_t len);
ir_node schema_any_string(schema *s);

/* The members of an object, by name (schema_object.c). */
typedef struct schema_members {
    schema *s;
    json_object *properties, *required;
    json_object *others; /* the schema of all other members; NULL: anything */
    bool closed;         /* there are no others */
    size_t n;
    const char **names;
    json_object **schemas; /* NULL: anything */
    bool *needed;
} schema_members;
/* Of a schema that is an object; false with an error. To be freed in any case. */
bool schema_members_read(schema *s, json_object *sub, schema_members *out);
void schema_members_fini(schema_members *m);

#endif
