/* Arrays. With prefixItems there is a rule for "after i elements", which goes on or stops:
 *
 *   after_i ::= "," element_i after_i+1 | ""  (the latter from minItems on) */
#include "schema_internal.h"

typedef struct array {
    schema *s;
    json_object *prefix, *rest; /* rest: NULL for anything */
    size_t n_prefix;
    uint32_t min, max;
} array;

static ir_node element(const array *a, size_t i) {
    if (i < a->n_prefix) return schema_visit(a->s, json_object_array_get_idx(a->prefix, i));
    return a->rest ? schema_visit_rule(a->s, a->rest) : ir_call(a->s->g, a->s->value);
}

static ir_node after_comma(schema *s, ir_node node) {
    return ir_seq(s->g, (ir_node[]){schema_puts(s, ","), s->space, node}, 3);
}

/* What may follow i elements, i being the length of the prefix or 1. */
static ir_node tail(const array *a, uint32_t i) {
    uint32_t min = a->min > i ? a->min - i : 0, max = a->max;
    if (max != UNBOUNDED) max = max > i ? max - i : 0;
    if (max == 0) return IR_EMPTY;
    return ir_repeat(a->s->g, after_comma(a->s, element(a, i)), min, max);
}

static ir_node elements(const array *a) {
    ir *g = a->s->g;
    if (a->n_prefix == 0) return ir_pair(g, element(a, 0), tail(a, 1));
    ir_node after = tail(a, (uint32_t)a->n_prefix);
    for (size_t i = a->n_prefix; i-- > 0 && g->rc == 0;) {
        ir_node one = element(a, i);
        if (i >= a->max) {
            after = IR_EMPTY;
            continue;
        }
        after = ir_pair(g, i ? after_comma(a->s, one) : one, after);
        if (i == 0) break;
        if (i >= a->min) after = ir_either(g, after, IR_EMPTY);
        uint32_t rule = ir_rule_new(g);
        ir_rule_define(g, rule, after);
        after = ir_call(g, rule);
    }
    return after;
}

ir_node schema_array(schema *s, json_object *sub) {
    array a = {.s = s, .prefix = schema_get(sub, "prefixItems"), .rest = schema_get(sub, "items")};
    a.min = schema_count(s, sub, "minItems", 0);
    a.max = schema_count(s, sub, "maxItems", UNBOUNDED);
    if (a.prefix && !json_object_is_type(a.prefix, json_type_array))
        schema_fail(s, ICP_EINVALID, "prefixItems must be a list");
    if (a.min > a.max) schema_fail(s, ICP_EINVALID, "minItems is greater than maxItems");
    if (s->g->rc < 0) return IR_NEVER;
    a.n_prefix = a.prefix ? json_object_array_length(a.prefix) : 0;
    ir *g = s->g;
    ir_node inner = IR_EMPTY;
    if (a.max > 0) {
        ir_node some = ir_seq(g, (ir_node[]){elements(&a), s->space}, 2);
        inner = a.min == 0 ? ir_either(g, some, IR_EMPTY) : some;
    }
    return ir_seq(g, (ir_node[]){schema_puts(s, "["), s->space, inner, schema_puts(s, "]")}, 4);
}
