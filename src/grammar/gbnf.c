/* GBNF, the notation of llama.cpp:
 *
 *   rule     name ::= alternatives, to the end of a line that is not inside ( ) and not before a |
 *   items    "text"  [class]  [^class]  .  name  ( alternatives )
 *   after an item  *  +  ?  {m}  {m,}  {,n}  {m,n}
 *   escapes  \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH
 *   comments from # to the end of the line
 *
 * Texts and classes consist of code points. */
#include "grammar_internal.h"

#include <ctype.h>
#include <json-c/linkhash.h>
#include <string.h>

typedef struct gbnf {
    cursor c;
    struct lh_table *names; /* name → 1 + rule */
} gbnf;

static int line_of(const cursor *c) {
    int line = 1;
    for (size_t i = 0; i < c->at && i < c->len; i++) line += c->text[i] == '\n';
    return line;
}

static ir_node fail(gbnf *p, const char *what) {
    int line = p->c.g->rc == 0 ? line_of(&p->c) : 0;
    ir_fail(p->c.g, ICP_EINVALID, "grammar, line %d: %s", line, what);
    return IR_NEVER;
}

/* Steps over blanks and comments; over ends of lines only where a rule goes on. */
static void skip_blanks(gbnf *p, bool lines) {
    cursor *c = &p->c;
    for (;; c->at++) {
        int ch = cursor_peek(c);
        if (ch == '#')
            while (c->at + 1 < c->len && c->text[c->at + 1] != '\n') c->at++;
        else if (ch != ' ' && ch != '\t' && !(lines && (ch == '\n' || ch == '\r')))
            return;
    }
}

static bool is_name(int ch) {
    return ch >= 0 && (isalnum(ch) || ch == '-' || ch == '_');
}

/* The rule of the name at the cursor, made when it is seen first; UINT32_MAX: failed. */
static uint32_t parse_name(gbnf *p) {
    size_t first = p->c.at;
    while (is_name(cursor_peek(&p->c))) p->c.at++;
    size_t len = p->c.at - first;
    char name[128];
    if (len == 0 || len >= sizeof name)
        return fail(p, len ? "a name is too long" : "a name of a rule is expected"), UINT32_MAX;
    memcpy(name, p->c.text + first, len);
    name[len] = '\0';
    void *known;
    if (lh_table_lookup_ex(p->names, name, &known)) return (uint32_t)(uintptr_t)known - 1;
    uint32_t rule = ir_rule_new(p->c.g);
    char *key = rule == UINT32_MAX ? NULL : mem_strdup(name);
    if (!key || lh_table_insert(p->names, key, (void *)((uintptr_t)rule + 1)) < 0) {
        mem_free(key);
        ir_fail(p->c.g, ICP_ENOMEM, "out of memory");
        return UINT32_MAX;
    }
    return rule;
}

/* A code point, which may be escaped; -1: malformed. */
static int32_t parse_char(cursor *c) {
    if (!cursor_take(c, '\\')) return cursor_code_point(c);
    int32_t cp = cursor_code_point(c);
    switch (cp) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'x':
        return cursor_hex(c, 2);
    case 'u':
        return cursor_hex(c, 4);
    case 'U':
        return cursor_hex(c, 8);
    case '\\':
    case '"':
    case '[':
    case ']':
        return cp;
    default:
        return -1;
    }
}

static bool is_scalar(int32_t cp) {
    return cp >= 0 && cp <= MAX_CODE_POINT && (cp < 0xd800 || cp > 0xdfff);
}

static ir_node parse_text(gbnf *p) {
    buf text = {0};
    while (!cursor_take(&p->c, '"')) {
        char bytes[4];
        int32_t cp = parse_char(&p->c);
        if (!is_scalar(cp)) {
            buf_fini(&text);
            return fail(p, "a text is not closed, or has a bad escape");
        }
        buf_put(&text, bytes, (size_t)utf8_encode(cp, bytes));
    }
    if (text.failed) ir_fail(p->c.g, ICP_ENOMEM, "out of memory");
    ir_node made = ir_text(p->c.g, text.data, text.len);
    buf_fini(&text);
    return made;
}

/* A character of a class, or two with a dash between them. */
static bool parse_range(cursor *c, ir_range *out) {
    out->lo = out->hi = parse_char(c);
    bool more = cursor_peek(c) == '-' && c->at + 1 < c->len && c->text[c->at + 1] != ']';
    if (more) {
        c->at++;
        out->hi = parse_char(c);
    }
    return is_scalar(out->lo) && is_scalar(out->hi) && out->lo <= out->hi;
}

static ir_node parse_class(gbnf *p) {
    ir *g = p->c.g;
    ir_range *ranges = NULL;
    size_t n = 0, cap = 0;
    bool negated = cursor_take(&p->c, '^');
    while (g->rc == 0 && !cursor_take(&p->c, ']')) {
        ir_range one;
        if (!parse_range(&p->c, &one))
            fail(p, "a class is not closed, or has a bad escape or range");
        else if (!array_reserve(&ranges, &cap, n + 1, sizeof *ranges))
            ir_fail(g, ICP_ENOMEM, "out of memory");
        else if (ir_tick(g, 1))
            ranges[n++] = one;
    }
    ir_node made = g->rc < 0 ? IR_NEVER : ir_class(g, ranges, n, negated);
    mem_free(ranges);
    return made;
}

static ir_node parse_alternatives(gbnf *p);

static ir_node parse_group(gbnf *p) {
    if (++p->c.depth > MAX_NESTING) return fail(p, "parentheses are nested too deeply");
    ir_node inner = parse_alternatives(p);
    p->c.depth--;
    skip_blanks(p, true);
    if (!cursor_take(&p->c, ')')) return fail(p, "a closing parenthesis is expected");
    return inner;
}

static bool starts_item(int ch) {
    return ch == '"' || ch == '[' || ch == '(' || ch == '.' || is_name(ch);
}

static ir_node parse_primary(gbnf *p) {
    cursor *c = &p->c;
    if (cursor_take(c, '"')) return parse_text(p);
    if (cursor_take(c, '[')) return parse_class(p);
    if (cursor_take(c, '(')) return parse_group(p);
    if (cursor_take(c, '.')) return ir_class(c->g, NULL, 0, true);
    uint32_t rule = parse_name(p);
    return rule == UINT32_MAX ? IR_NEVER : ir_call(c->g, rule);
}

/* {m} {m,} {,n} {m,n} behind the brace. */
static ir_node parse_bounds(gbnf *p, ir_node item) {
    cursor *c = &p->c;
    uint32_t min = 0, max;
    skip_blanks(p, false);
    bool has_min = cursor_number(c, &min);
    max = min;
    skip_blanks(p, false);
    bool comma = cursor_take(c, ',');
    skip_blanks(p, false);
    bool has_max = comma && cursor_number(c, &max);
    if (comma && !has_max) max = UNBOUNDED;
    skip_blanks(p, false);
    if ((!has_min && !has_max) || !cursor_take(c, '}'))
        return fail(p, "a repetition is malformed, or its bounds are too great");
    return ir_repeat(c->g, item, min, max);
}

/* An item with what stands after it. */
static ir_node parse_item(gbnf *p) {
    cursor *c = &p->c;
    ir_node item = parse_primary(p);
    for (int n = 0; c->g->rc == 0; n++) {
        skip_blanks(p, c->depth > 0);
        if (n > MAX_NESTING) return fail(p, "repetitions are nested too deeply");
        if (cursor_take(c, '*'))
            item = ir_repeat(c->g, item, 0, UNBOUNDED);
        else if (cursor_take(c, '+'))
            item = ir_repeat(c->g, item, 1, UNBOUNDED);
        else if (cursor_take(c, '?'))
            item = ir_repeat(c->g, item, 0, 1);
        else if (cursor_take(c, '{'))
            item = parse_bounds(p, item);
        else
            break;
    }
    return item;
}

static ir_node parse_sequence(gbnf *p) {
    node_list items = {0};
    for (;;) {
        skip_blanks(p, p->c.depth > 0);
        if (!starts_item(cursor_peek(&p->c)) || p->c.g->rc < 0) break;
        node_list_add(p->c.g, &items, parse_item(p));
    }
    ir_node made = ir_seq(p->c.g, items.node, items.n);
    node_list_fini(&items);
    return made;
}

static ir_node parse_alternatives(gbnf *p) {
    node_list list = {0};
    do {
        skip_blanks(p, true);
        node_list_add(p->c.g, &list, parse_sequence(p));
        skip_blanks(p, p->c.depth > 0);
    } while (p->c.g->rc == 0 && cursor_take(&p->c, '|'));
    ir_node made = ir_alt(p->c.g, list.node, list.n);
    node_list_fini(&list);
    return made;
}

static void parse_rule(gbnf *p) {
    ir *g = p->c.g;
    uint32_t rule = parse_name(p);
    skip_blanks(p, false);
    if (g->rc == 0 && (p->c.len - p->c.at < 3 || memcmp(p->c.text + p->c.at, "::=", 3) != 0))
        fail(p, "::= is expected after the name of a rule");
    if (g->rc == 0 && g->rules[rule].defined) fail(p, "a rule is defined a second time");
    if (g->rc < 0) return;
    p->c.at += 3;
    ir_node node = parse_alternatives(p);
    int ch = cursor_peek(&p->c);
    if (ch >= 0 && ch != '\n' && ch != '\r') fail(p, "something is not understood");
    ir_rule_define(g, rule, node);
}

/* The root, when every rule that is named is defined. */
static ir_node check_rules(gbnf *p) {
    ir *g = p->c.g;
    struct lh_entry *entry;
    if (g->rc < 0) return IR_NEVER;
    lh_foreach(p->names, entry) {
        if (!g->rules[(uintptr_t)entry->v - 1].defined) {
            ir_fail(g, ICP_EINVALID, "grammar: the rule \"%s\" is not defined",
                    (const char *)entry->k);
            return IR_NEVER;
        }
    }
    void *root;
    if (lh_table_lookup_ex(p->names, "root", &root))
        return ir_call(g, (uint32_t)(uintptr_t)root - 1);
    ir_fail(g, ICP_EINVALID, "grammar: there is no rule \"root\"");
    return IR_NEVER;
}

static void free_name(struct lh_entry *entry) {
    mem_free(lh_entry_k(entry));
}

ir_node gbnf_parse(ir *g, const char *text, size_t len) {
    gbnf p = {.c = {.g = g, .text = text, .len = len}};
    p.names = lh_kchar_table_new(64, free_name);
    if (!p.names) {
        ir_fail(g, ICP_ENOMEM, "out of memory");
        return IR_NEVER;
    }
    for (skip_blanks(&p, true); g->rc == 0 && p.c.at < len; skip_blanks(&p, true)) parse_rule(&p);
    ir_node root = check_rules(&p);
    lh_table_free(p.names);
    return root;
}
