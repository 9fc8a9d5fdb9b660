/* Free text with calls of functions in it, whose arguments follow schemas. TEXT leads to the calls
 * at the first mark of one, and they lead back to it, so that whatever a model says before, between
 * and after its calls is free:
 *
 *   TEXT     ::= …  section SECTION | …  call CALLS | the end
 *   SECTION  ::= ( [ CALL, CALL ] | CALL CALL … )  section_end TEXT
 *   CALL     ::= call begin ARGUMENTS end          one alternative for each function
 *
 * Where answers are messages with headers, a header calls when `call` is in it:
 *
 *   HEADER   ::= …  call begin REST message ARGUMENTS ( message_end HEADER | the end )
 *              | …  message BODY | the end
 *   BODY     ::= …  message_end HEADER | the end */
#include "grammar_internal.h"

#include <string.h>

typedef struct frame {
    ir *g;
    const grammar_dialect *d;
    ir_node space;
    ir_node one;  /* a call, without the mark before it */
    ir_node full; /* with it */
    uint32_t text, opened;
} frame;

static ir_node put(ir *g, const char *text) {
    return text ? ir_text(g, text, strlen(text)) : IR_EMPTY;
}

static ir_node seq(ir *g, ir_node a, ir_node b, ir_node c) {
    return ir_seq(g, (ir_node[]){a, b, c}, 3);
}

/* ---- parts of calls -------------------------------------------------------------------------- */

static ir_node make_space(ir *g) {
    static const ir_range blanks[] = {{' ', ' '}, {'\t', '\t'}};
    ir_node indent = ir_repeat(g, ir_class(g, blanks, COUNT_OF(blanks), false), 0, 32);
    ir_node lines = ir_pair(g, ir_repeat(g, put(g, "\n"), 1, 2), indent);
    return ir_alt(g, (ir_node[]){put(g, " "), lines, IR_EMPTY}, 3);
}

static ir_node make_word(ir *g) {
    static const ir_range letters[] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
    return ir_repeat(g, ir_class(g, letters, COUNT_OF(letters), false), 1, 40);
}

static ir_node make_number(ir *g) {
    return ir_repeat(g, ir_class(g, &(ir_range){'0', '9'}, 1, false), 1, 3);
}

/* A text with places in it. */
static ir_node put_places(const frame *f, grammar_str text) {
    static const char places[] = GRAMMAR_SPACE GRAMMAR_WORD GRAMMAR_NUMBER GRAMMAR_OPTION;
    ir *g = f->g;
    ir_node made = IR_EMPTY;
    for (size_t from = 0, at = 0; at <= text.len && g->rc == 0; at++) {
        const char *place = at < text.len && text.data[at] ? strchr(places, text.data[at]) : NULL;
        if (!place && at < text.len) continue;
        made = ir_pair(g, made, ir_text(g, text.data + from, at - from));
        from = at + 1;
        if (!place) break;
        ir_node here = *place == *GRAMMAR_SPACE  ? f->space
                       : *place == *GRAMMAR_WORD ? make_word(g)
                                                 : make_number(g);
        if (*place == *GRAMMAR_OPTION) {
            const char *end = memchr(text.data + from, *place, text.len - from);
            size_t len = end ? (size_t)(end - text.data) - from : text.len - from;
            here = ir_repeat(g, put_places(f, (grammar_str){text.data + from, len}), 0, 1);
            at = from + len;
            from = at + 1;
        }
        made = ir_pair(g, made, here);
    }
    return made;
}

/* What may stand between a function's name in a header and the message. */
static ir_node make_rest(const frame *f) {
    ir *g = f->g;
    node_list tokens = {0};
    node_list_add(g, &tokens, put(g, GRAMMAR_OTHER));
    for (size_t i = 0; i < f->d->n_tokens; i++) {
        const char *name = f->d->tokens[i];
        size_t len = strlen(name);
        if (!memcmp(f->d->message + 1, name, MIN(len, strlen(f->d->message) - 1))) continue;
        if (f->d->message_end && !strncmp(f->d->message_end + 1, name, len)) continue;
        node_list_add(g, &tokens,
                      seq(g, put(g, GRAMMAR_TOKEN), put(g, name), put(g, GRAMMAR_TOKEN_END)));
    }
    ir_node token = ir_alt(g, tokens.node, tokens.n);
    node_list_fini(&tokens);
    ir_node any = ir_either(g, ir_class(g, NULL, 0, true), token);
    ir_node first = ir_either(g, put(g, " "), token);
    return ir_repeat(g, ir_pair(g, first, ir_repeat(g, any, 0, 64)), 0, 1);
}

static ir_node make_call(const frame *f, const grammar_call *call) {
    ir *g = f->g;
    ir_node begin = put_places(f, call->begin);
    if (f->d->message) begin = seq(g, begin, make_rest(f), put(g, f->d->message));
    return seq(g, begin, call_arguments(g, f->d, call), put_places(f, call->end));
}

/* ---- rows of calls --------------------------------------------------------------------------- */

/* Some calls, one after the other. */
static ir_node make_row(const frame *f, ir_node first) {
    ir *g = f->g;
    ir_node more = ir_repeat(g, ir_pair(g, f->space, f->full), 0, UNBOUNDED);
    return ir_pair(g, first, more);
}

/* The inside of brackets, and the last of them. */
static ir_node make_list(const frame *f) {
    ir *g = f->g;
    ir_node next = seq(g, put(g, ","), f->space, f->full);
    ir_node list = ir_pair(g, f->full, ir_repeat(g, next, 0, UNBOUNDED));
    return ir_seq(g, (ir_node[]){f->space, list, f->space, put(g, "]")}, 4);
}

static ir_node make_section(const frame *f) {
    ir *g = f->g;
    ir_node calls = f->d->listed ? ir_either(g, f->full, ir_pair(g, put(g, "["), make_list(f)))
                                 : make_row(f, f->full);
    ir_node then = f->d->section_end
                       ? seq(g, f->space, put(g, f->d->section_end), ir_call(g, f->text))
                       : IR_EMPTY;
    return seq(g, f->space, calls, then);
}

/* What follows the mark of a call that stands in the text. */
static ir_node make_calls(const frame *f) {
    ir *g = f->g;
    if (!f->d->ends) return make_row(f, f->one);
    if (!f->d->section) return ir_pair(g, f->one, ir_call(g, f->text));
    return ir_pair(g, make_row(f, f->one), ir_call(g, f->text));
}

/* What follows the first character of a call without a mark. */
static ir_node make_bare(const frame *f, const grammar_call *calls, size_t n) {
    ir *g = f->g;
    if (f->d->bare == '[') return make_list(f);
    node_list all = {0};
    for (size_t i = 0; i < n && g->rc == 0; i++) {
        grammar_call call = calls[i];
        if (!call.begin.len || call.begin.data[0] != f->d->bare) continue;
        call.begin = (grammar_str){call.begin.data + 1, call.begin.len - 1};
        node_list_add(g, &all, make_call(f, &call));
    }
    ir_node made = ir_alt(g, all.node, all.n);
    node_list_fini(&all);
    return made;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static ir_node build_text(frame *f, const grammar_call *calls, size_t n) {
    ir *g = f->g;
    const grammar_dialect *d = f->d;
    mark marks[3];
    size_t n_marks = 0;
    if (d->section) marks[n_marks++] = (mark){d->section, make_section(f)};
    if (d->call) marks[n_marks++] = (mark){d->call, make_calls(f)};
    if (d->bare && d->thought_end) marks[n_marks++] = (mark){d->thought_end, ir_call(g, f->opened)};
    const free_text t = {.marks = marks,
                         .n_marks = n_marks,
                         .tokens = d->tokens,
                         .n_tokens = d->n_tokens,
                         .may_end = true,
                         .rule = f->text,
                         .open = d->bare,
                         .opens = d->bare ? make_bare(f, calls, n) : IR_NEVER,
                         .opened = f->opened};
    free_text_define(g, &t);
    return ir_call(g, d->bare ? f->opened : f->text);
}

/* f->text is the rule of a header here, f->opened that of a body. */
static ir_node build_messages(frame *f) {
    ir *g = f->g;
    const grammar_dialect *d = f->d;
    ir_node again =
        d->message_end
            ? ir_either(g, ir_pair(g, put(g, d->message_end), ir_call(g, f->text)), IR_EMPTY)
            : IR_EMPTY;
    const mark header[] = {{d->call, ir_pair(g, f->one, again)},
                           {d->message, ir_call(g, f->opened)}};
    const mark body[] = {{d->message_end, ir_call(g, f->text)}};
    free_text t = {.marks = header,
                   .n_marks = COUNT_OF(header),
                   .tokens = d->tokens,
                   .n_tokens = d->n_tokens,
                   .may_end = true,
                   .rule = f->text};
    free_text_define(g, &t);
    t.marks = body;
    t.n_marks = d->message_end ? 1 : 0;
    t.rule = f->opened;
    free_text_define(g, &t);
    return ir_call(g, f->text);
}

ir_node calls_build(ir *g, const grammar_dialect *d, const grammar_call *calls, size_t n) {
    frame f = {.g = g, .d = d, .space = make_space(g)};
    if (n == 0) ir_fail(g, ICP_EINVALID, "there is nothing to call");
    if (!d->section && !d->call) ir_fail(g, ICP_EINVALID, "calls have no mark");
    f.text = ir_rule_new(g);
    f.opened = ir_rule_new(g);
    uint32_t any = ir_rule_new(g);
    node_list all = {0};
    for (size_t i = 0; i < n && g->rc == 0; i++) node_list_add(g, &all, make_call(&f, &calls[i]));
    if (g->rc == 0) ir_rule_define(g, any, ir_alt(g, all.node, all.n));
    node_list_fini(&all);
    if (g->rc < 0) return IR_NEVER;
    f.one = ir_call(g, any);
    f.full = ir_pair(g, put(g, d->call), f.one);
    return d->message ? build_messages(&f) : build_text(&f, calls, n);
}
