/* Regular expressions over code points, as far as they are regular:
 *
 *   a.b     characters; . is any but \n
 *   [a-z^]  classes, [^…]; \d \w \s \D \W \S (ASCII) inside and outside of them
 *   (…) (?:…) (?<name>…) (?P<name>…)  groups;  a|b  alternatives
 *   * + ? {m} {m,} {,n} {m,n}         lazy forms (*? …) match the same texts
 *   \n \t \r \f \v \0 \xHH \uHHHH \u{H…} \cX, and \ before punctuation
 *   ^ first and $ last in an alternative of the whole expression
 *
 * The pattern of a JSON Schema (ECMA 262) is looked for anywhere in the string unless anchored, and
 * its characters are spelled as in a string. */
#include "grammar_internal.h"

#include <ctype.h>
#include <string.h>

typedef struct regex {
    cursor c;
    bool inside;
} regex;

typedef struct class {
    ir_range *ranges;
    size_t n, cap;
} class;

static ir_node fail(regex *p, int code, const char *what) {
    ir_fail(p->c.g, code, "regular expression, at byte %zu: %s", p->c.at, what);
    return IR_NEVER;
}

static ir_node make_class(regex *p, const ir_range *ranges, size_t n, bool negated) {
    return p->inside ? ir_string_class(p->c.g, ranges, n, negated)
                     : ir_class(p->c.g, ranges, n, negated);
}

static ir_node make_char(regex *p, int32_t cp) {
    return make_class(p, &(ir_range){cp, cp}, 1, false);
}

/* ---- classes --------------------------------------------------------------------------------- */

static void add_range(regex *p, class *k, int32_t lo, int32_t hi) {
    if (!ir_tick(p->c.g, 1)) return;
    if (array_reserve(&k->ranges, &k->cap, k->n + 1, sizeof *k->ranges))
        k->ranges[k->n++] = (ir_range){lo, hi};
    else
        ir_fail(p->c.g, ICP_ENOMEM, "out of memory");
}

/* The class of \d, \w, \s; capital letters: all other characters. False: no such class. */
static bool add_shorthand(regex *p, class *k, int letter) {
    static const ir_range digits[] = {{'0', '9'}};
    static const ir_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const ir_range spaces[] = {{'\t', '\r'}, {' ', ' '}};
    int lower = tolower(letter);
    const ir_range *ranges = lower == 'd' ? digits : lower == 'w' ? words : spaces;
    size_t n = lower == 'd' ? COUNT_OF(digits) : lower == 'w' ? COUNT_OF(words) : COUNT_OF(spaces);
    if (!letter || !strchr("dws", lower)) return false;
    int32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (letter == lower)
            add_range(p, k, ranges[i].lo, ranges[i].hi);
        else if (ranges[i].lo > next)
            add_range(p, k, next, ranges[i].lo - 1);
        next = ranges[i].hi + 1;
    }
    if (letter != lower) add_range(p, k, next, MAX_CODE_POINT);
    return true;
}

static int32_t parse_braced_hex(cursor *c) {
    int32_t value = 0;
    for (int n = 0; n < 6 && cursor_peek(c) != '}'; n++) {
        int32_t digit = cursor_hex(c, 1);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return cursor_take(c, '}') ? value : -1;
}

/* What stands behind a backslash, as one code point; -1 with an error. */
static int32_t parse_escape(regex *p) {
    static const char letters[] = "nrtfv0ae", values[] = "\n\r\t\f\v\0\a\x1b";
    cursor *c = &p->c;
    int32_t cp = cursor_code_point(c), found = -1;
    const char *letter = cp > 0 && cp < 128 ? strchr(letters, cp) : NULL;
    if (letter && !(cp == '0' && isdigit(cursor_peek(c))))
        found = values[letter - letters];
    else if (cp == 'x')
        found = cursor_hex(c, 2);
    else if (cp == 'u')
        found = cursor_take(c, '{') ? parse_braced_hex(c) : cursor_hex(c, 4);
    else if (cp == 'c' && isalpha(cursor_peek(c)))
        found = c->text[c->at++] & 0x1f;
    else if (cp >= 0 && !(cp < 128 && isalnum(cp)))
        found = cp;
    else if (cp >= 0)
        fail(p, ICP_EUNSUPPORTED, "this escape is not supported");
    if (found < 0 || found > MAX_CODE_POINT || (found >= 0xd800 && found <= 0xdfff)) {
        fail(p, ICP_EINVALID, "an escape is malformed");
        return -1;
    }
    return found;
}

/* One member of a class; true: it was a class itself (\d). */
static bool parse_member(regex *p, class *k, int32_t *out) {
    if (!cursor_take(&p->c, '\\')) {
        *out = cursor_code_point(&p->c);
        return false;
    }
    int ch = cursor_peek(&p->c);
    if (ch > 0 && add_shorthand(p, k, ch)) {
        p->c.at++;
        return true;
    }
    bool backspace = cursor_take(&p->c, 'b');
    *out = backspace ? '\b' : parse_escape(p);
    return false;
}

static bool ranges_on(const cursor *c) {
    return cursor_peek(c) == '-' && c->at + 1 < c->len && c->text[c->at + 1] != ']';
}

static ir_node parse_class(regex *p) {
    class k = {0};
    bool negated = cursor_take(&p->c, '^');
    /* a ] that comes first is an ordinary one in most dialects, the end of nothing in ECMA's */
    for (bool first = !p->inside; p->c.g->rc == 0; first = false) {
        int32_t lo, hi;
        if (cursor_peek(&p->c) < 0) fail(p, ICP_EINVALID, "a class is not closed");
        if (!first && cursor_take(&p->c, ']')) break;
        if (parse_member(p, &k, &lo)) continue;
        hi = lo;
        if (ranges_on(&p->c)) {
            p->c.at++;
            if (parse_member(p, &k, &hi)) fail(p, ICP_EINVALID, "a range ends with a class");
        }
        if (p->c.g->rc == 0 && (lo < 0 || lo > hi)) fail(p, ICP_EINVALID, "a range is reversed");
        add_range(p, &k, lo, hi);
    }
    ir_node made = p->c.g->rc < 0 ? IR_NEVER : make_class(p, k.ranges, k.n, negated);
    mem_free(k.ranges);
    return made;
}

static ir_node parse_backslash(regex *p) {
    class k = {0};
    int ch = cursor_peek(&p->c);
    if (ch > 0 && add_shorthand(p, &k, ch)) {
        p->c.at++;
        ir_node made = make_class(p, k.ranges, k.n, false);
        mem_free(k.ranges);
        return made;
    }
    int32_t cp = parse_escape(p);
    return cp < 0 ? IR_NEVER : make_char(p, cp);
}

/* ---- structure ------------------------------------------------------------------------------- */

static ir_node parse_alternatives(regex *p);

/* What opens a group, behind the parenthesis. */
static bool open_group(regex *p) {
    cursor *c = &p->c;
    if (!cursor_take(c, '?') || cursor_take(c, ':')) return true;
    cursor_take(c, 'P');
    if (cursor_take(c, '<') && cursor_peek(c) != '=' && cursor_peek(c) != '!') {
        while (isalnum(cursor_peek(c)) || cursor_peek(c) == '_') c->at++;
        if (cursor_take(c, '>')) return true;
    }
    fail(p, ICP_EUNSUPPORTED, "look-around, flags and other special groups are not supported");
    return false;
}

static ir_node parse_group(regex *p) {
    if (++p->c.depth > MAX_NESTING) return fail(p, ICP_ELIMIT, "groups are nested too deeply");
    if (!open_group(p)) return IR_NEVER;
    ir_node inner = parse_alternatives(p);
    p->c.depth--;
    if (!cursor_take(&p->c, ')')) return fail(p, ICP_EINVALID, "a group is not closed");
    return inner;
}

static ir_node parse_atom(regex *p) {
    static const ir_range newline = {'\n', '\n'};
    cursor *c = &p->c;
    if (cursor_take(c, '(')) return parse_group(p);
    if (cursor_take(c, '[')) return parse_class(p);
    if (cursor_take(c, '.')) return make_class(p, &newline, 1, true);
    if (cursor_take(c, '\\')) return parse_backslash(p);
    int ch = cursor_peek(c);
    if (ch == '*' || ch == '+' || ch == '?')
        return fail(p, ICP_EINVALID, "there is nothing to repeat");
    if (ch == '^' || ch == '$')
        return fail(p, ICP_EUNSUPPORTED, "^ and $ are supported at the ends only");
    int32_t cp = cursor_code_point(c);
    return cp < 0 ? fail(p, ICP_EINVALID, "not valid UTF-8") : make_char(p, cp);
}

/* {m,n}; false, at the same place, when it is none: then the brace is a character. */
static bool parse_bounds(cursor *c, uint32_t *min, uint32_t *max) {
    cursor ahead = *c;
    bool has_min = cursor_take(&ahead, '{') && cursor_number(&ahead, min);
    if (!has_min) *min = 0;
    bool comma = cursor_take(&ahead, ',');
    bool has_max = comma && cursor_number(&ahead, max);
    if (!has_max) *max = comma ? UNBOUNDED : *min;
    if (cursor_peek(c) != '{' || (!has_min && !has_max) || !cursor_take(&ahead, '}')) return false;
    *c = ahead;
    return true;
}

static bool parse_quantifier(cursor *c, uint32_t *min, uint32_t *max) {
    *min = cursor_peek(c) == '+';
    *max = cursor_peek(c) == '?' ? 1 : UNBOUNDED;
    return cursor_take(c, '*') || cursor_take(c, '+') || cursor_take(c, '?') ||
           parse_bounds(c, min, max);
}

static ir_node parse_piece(regex *p) {
    uint32_t min, max;
    ir_node atom = parse_atom(p);
    if (p->c.g->rc < 0 || !parse_quantifier(&p->c, &min, &max)) return atom;
    cursor_take(&p->c, '?'); /* lazy: the same texts */
    if (cursor_peek(&p->c) == '+') return fail(p, ICP_EUNSUPPORTED, "possessive quantifiers");
    if (cursor_peek(&p->c) == '*') return fail(p, ICP_EINVALID, "there is nothing to repeat");
    return ir_repeat(p->c.g, atom, min, max);
}

static bool at_end_of_sequence(const cursor *c) {
    int ch = cursor_peek(c);
    return ch < 0 || ch == '|' || ch == ')';
}

static ir_node anything(regex *p) {
    return ir_repeat(p->c.g, make_class(p, NULL, 0, true), 0, UNBOUNDED);
}

static ir_node parse_sequence(regex *p) {
    cursor *c = &p->c;
    node_list pieces = {0};
    bool outermost = c->depth == 0, closed = false;
    bool opened = outermost && cursor_take(c, '^');
    if (outermost && p->inside && !opened) node_list_add(c->g, &pieces, anything(p));
    while (!at_end_of_sequence(c) && c->g->rc == 0 && !closed) {
        closed = outermost && cursor_take(c, '$');
        if (!closed) node_list_add(c->g, &pieces, parse_piece(p));
    }
    if (closed && !at_end_of_sequence(c))
        fail(p, ICP_EUNSUPPORTED, "^ and $ are supported at the ends only");
    if (outermost && p->inside && !closed) node_list_add(c->g, &pieces, anything(p));
    ir_node made = ir_seq(c->g, pieces.node, pieces.n);
    node_list_fini(&pieces);
    return made;
}

static ir_node parse_alternatives(regex *p) {
    node_list list = {0};
    do {
        node_list_add(p->c.g, &list, parse_sequence(p));
    } while (p->c.g->rc == 0 && cursor_take(&p->c, '|'));
    ir_node made = ir_alt(p->c.g, list.node, list.n);
    node_list_fini(&list);
    return made;
}

ir_node regex_parse(ir *g, const char *text, size_t len, bool inside) {
    regex p = {.c = {.g = g, .text = text, .len = len}, .inside = inside};
    ir_node made = parse_alternatives(&p);
    if (g->rc == 0 && p.c.at < len) return fail(&p, ICP_EINVALID, "a parenthesis closes no group");
    return made;
}
