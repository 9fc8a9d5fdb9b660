/* Free text with calls of functions in it, whose arguments follow schemas:
 *
 *   TEXT ( MARKER ( BEGIN₁ SCHEMA₁ END₁ | BEGIN₂ … ) TEXT )*
 *
 * TEXT is anything that does not contain the marker. With a marker "<ab" whose first character it
 * does not have twice, and its beginnings "<" and "<a":
 *
 *   ( [^<] | ( "<" | "<a" )* ( "<" [^<a] | "<a" [^<b] ) )*  ( "<" | "<a" )*
 *
 * for behind a beginning comes what does not go on with it: another one, or any other character. */
#include "grammar_internal.h"

#include <string.h>

static ir_node not_of(ir *g, char a, char b) {
    const ir_range ranges[] = {{a, a}, {b, b}};
    return ir_class(g, ranges, 2, true);
}

/* Anything without the marker, as a whole or before it. */
static ir_node text_without(ir *g, const char *marker) {
    node_list begins = {0}, breaks = {0};
    for (size_t n = 1; n < strlen(marker); n++) {
        ir_node begin = ir_text(g, marker, n);
        node_list_add(g, &begins, begin);
        node_list_add(g, &breaks, ir_pair(g, begin, not_of(g, marker[0], marker[n])));
    }
    ir_node tries = ir_repeat(g, ir_alt(g, begins.node, begins.n), 0, UNBOUNDED);
    ir_node other = not_of(g, marker[0], marker[0]);
    ir_node broken = ir_pair(g, tries, ir_alt(g, breaks.node, breaks.n));
    ir_node text = ir_repeat(g, ir_either(g, other, broken), 0, UNBOUNDED);
    node_list_fini(&begins);
    node_list_fini(&breaks);
    return ir_pair(g, text, tries);
}

static ir_node one_call(ir *g, const grammar_call *call) {
    ir_node parts[] = {
        ir_text(g, call->begin.data, call->begin.len),
        call->schema.data ? schema_parse(g, call->schema.data, call->schema.len)
                          : schema_any_object(g),
        ir_text(g, call->end.data, call->end.len),
    };
    return ir_seq(g, parts, COUNT_OF(parts));
}

ir_node calls_build(ir *g, const char *marker, const grammar_call *calls, size_t n) {
    if (!marker[0] || !marker[1] || strchr(marker + 1, marker[0]))
        ir_fail(g, ICP_EUNSUPPORTED, "a marker must not have its first character twice");
    node_list all = {0};
    for (size_t i = 0; i < n && g->rc == 0; i++) node_list_add(g, &all, one_call(g, &calls[i]));
    if (g->rc == 0 && n == 0) ir_fail(g, ICP_EINVALID, "there is nothing to call");
    if (g->rc < 0) {
        node_list_fini(&all);
        return IR_NEVER;
    }
    ir_node text = text_without(g, marker);
    ir_node parts[] = {ir_text(g, marker, strlen(marker)), ir_alt(g, all.node, all.n), text};
    node_list_fini(&all);
    return ir_pair(g, text, ir_repeat(g, ir_seq(g, parts, COUNT_OF(parts)), 0, UNBOUNDED));
}
