/* Numbers. Without bounds: up to 16 digits, 15 of a fraction, an exponent of two digits. With
 * bounds: decimals without an exponent, digit by digit beside those of the bounds:
 *
 *   lower  1 7 . 2 5        as long as all digits so far are those of a bound it is tight, and
 *   upper  4 0              restricts the next digit; a digit strictly inside lets go of it
 *
 * so that only the last two chains of digits are ever distinguished. Signs are split off first. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "schema_internal.h"

enum { MOST_WHOLE = 16, MOST_FRACTION = 15, LONGEST_DECIMAL = 40 };

typedef struct decimal { /* a magnitude: no leading zeros but one, no trailing ones */
    bool negative;
    char whole[LONGEST_DECIMAL], fraction[LONGEST_DECIMAL]; /* digits, NUL-terminated */
    bool open;                                              /* the bound itself is outside */
} decimal;

typedef struct range {
    schema *s;
    const decimal *lo, *hi; /* magnitudes; NULL: none */
    bool integer;
    size_t length; /* of the whole part that is being made */
} range;

/* ---- reading bounds -------------------------------------------------------------------------- */

static bool is_number(json_object *value) {
    return json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

/* The digits of a JSON number and where its point stands; false: they are too many. */
static bool split_digits(const char *text, char *digits, int *n_whole) {
    int n = 0, point = -1;
    for (; isdigit((unsigned char)*text) || *text == '.'; text++) {
        if (*text == '.')
            point = n;
        else if (n == LONGEST_DECIMAL / 2)
            return false;
        else if (n || *text != '0' || point >= 0)
            digits[n++] = *text;
    }
    digits[n] = '\0';
    long exponent = *text == 'e' || *text == 'E' ? strtol(text + 1, NULL, 10) : 0;
    if (exponent < -LONGEST_DECIMAL || exponent > LONGEST_DECIMAL) return false;
    *n_whole = (point < 0 ? n : point) + (int)exponent;
    return *n_whole < LONGEST_DECIMAL / 2 && n - *n_whole < LONGEST_DECIMAL / 2;
}

static bool read_decimal(const char *text, decimal *out) {
    char digits[LONGEST_DECIMAL];
    int n_whole, n = 0, at = 0;
    out->negative = *text == '-';
    if (!split_digits(text + (*text == '-' || *text == '+'), digits, &n_whole)) return false;
    int length = (int)strlen(digits);
    for (; at < n_whole; at++)
        if (n || (at < length && digits[at] != '0'))
            out->whole[n++] = at < length ? digits[at] : '0';
    if (n == 0) out->whole[n++] = '0';
    out->whole[n] = '\0';
    n = 0;
    for (at = n_whole; at < length; at++) out->fraction[n++] = at < 0 ? '0' : digits[at];
    while (n && out->fraction[n - 1] == '0') n--;
    out->fraction[n] = '\0';
    if (out->whole[0] == '0' && n == 0) out->negative = false;
    return true;
}

/* A bound from its inclusive and exclusive keyword: the stricter one. False: there is none. */
static bool read_bound(schema *s, json_object *sub, const char *inclusive, const char *exclusive,
                       double sign, decimal *out) {
    json_object *in = schema_get(sub, inclusive), *ex = schema_get(sub, exclusive);
    /* draft 4: a boolean beside the bound */
    bool also = json_object_is_type(ex, json_type_boolean) && json_object_get_boolean(ex);
    if (json_object_is_type(ex, json_type_boolean)) ex = NULL;
    if ((in && !is_number(in)) || (ex && !is_number(ex))) {
        schema_fail(s, ICP_EINVALID, "%s must be a number", inclusive);
        return false;
    }
    if (!in && !ex) return false;
    bool open =
        ex && (!in || sign * json_object_get_double(ex) >= sign * json_object_get_double(in));
    const char *text = json_object_get_string(open ? ex : in);
    *out = (decimal){.open = open || also};
    if (read_decimal(text, out)) {
        out->open = open || also;
        return true;
    }
    schema_fail(s, ICP_EUNSUPPORTED, "the bound %.60s has too many digits", text);
    return false;
}

/* ---- digits ---------------------------------------------------------------------------------- */

static ir_node digit(schema *s, int lo, int hi) {
    return lo > hi ? IR_NEVER : ir_class(s->g, &(ir_range){'0' + lo, '0' + hi}, 1, false);
}

static ir_node digits(schema *s, uint32_t min, uint32_t max) {
    return ir_repeat(s->g, digit(s, 0, 9), min, max);
}

static int digit_of(const char *text, size_t i, int otherwise) {
    return i < strlen(text) ? text[i] - '0' : otherwise;
}

/* The number may end after i digits of its fraction. */
static bool may_end(const range *r, size_t i, bool lo, bool hi) {
    bool low = !lo || (strlen(r->lo->fraction) <= i && !r->lo->open);
    bool high = !hi || strlen(r->hi->fraction) > i || !r->hi->open;
    return low && high;
}

typedef ir_node follow(const range *r, size_t i, bool lo, bool hi);

/* One digit between the bounds that are tight, and what follows it. */
static ir_node choose_digit(const range *r, int least, int most, int lowest, int highest, size_t i,
                            bool lo, bool hi, follow *then) {
    schema *s = r->s;
    ir *g = s->g;
    int from = lo ? least : lowest, to = hi ? most : highest;
    if (from > to) return IR_NEVER;
    if (from == to) return ir_pair(g, digit(s, from, to), then(r, i + 1, lo, hi));
    ir_node low = lo ? ir_pair(g, digit(s, from, from), then(r, i + 1, true, false)) : IR_NEVER;
    ir_node high = hi ? ir_pair(g, digit(s, to, to), then(r, i + 1, false, true)) : IR_NEVER;
    ir_node inner = digit(s, from + lo, to - hi);
    if (inner != IR_NEVER) inner = ir_pair(g, inner, then(r, i + 1, false, false));
    return ir_alt(g, (ir_node[]){low, inner, high}, 3);
}

static follow fraction_rest;

/* Digit i of the fraction and the following ones: at least one. */
static ir_node fraction_some(const range *r, size_t i, bool lo, bool hi) {
    schema *s = r->s;
    ir *g = s->g;
    if (hi && i >= strlen(r->hi->fraction)) /* nothing but zeros is left */
        return may_end(r, i, lo, hi) ? ir_repeat(g, digit(s, 0, 0), 1, 3) : IR_NEVER;
    if (!hi && (!lo || i >= strlen(r->lo->fraction))) {
        if (!lo || !r->lo->open) return digits(s, 1, MOST_FRACTION);
        return ir_seq(g,
                      (ir_node[]){ir_repeat(g, digit(s, 0, 0), 0, MOST_FRACTION), digit(s, 1, 9),
                                  digits(s, 0, MOST_FRACTION)},
                      3);
    }
    int least = lo ? digit_of(r->lo->fraction, i, 0) : 0;
    int most = hi ? digit_of(r->hi->fraction, i, 0) : 9;
    return choose_digit(r, least, most, 0, 9, i, lo, hi, fraction_rest);
}

static ir_node fraction_rest(const range *r, size_t i, bool lo, bool hi) {
    ir_node some = fraction_some(r, i, lo, hi);
    return may_end(r, i, lo, hi) ? ir_either(r->s->g, some, IR_EMPTY) : some;
}

static ir_node fraction(const range *r, bool lo, bool hi) {
    ir_node none = may_end(r, 0, lo, hi) ? IR_EMPTY : IR_NEVER;
    if (r->integer) return none;
    ir_node some = ir_pair(r->s->g, schema_puts(r->s, "."), fraction_some(r, 0, lo, hi));
    return ir_either(r->s->g, some, none);
}

/* Digit i of the whole part, and what follows. */
static ir_node whole_rest(const range *r, size_t i, bool lo, bool hi) {
    schema *s = r->s;
    if (i == r->length) return fraction(r, lo, hi);
    if (!lo && !hi && i > 0) {
        uint32_t n = (uint32_t)(r->length - i);
        return ir_pair(s->g, digits(s, n, n), fraction(r, false, false));
    }
    int least = lo ? digit_of(r->lo->whole, i, 0) : 0, most = hi ? digit_of(r->hi->whole, i, 9) : 9;
    return choose_digit(r, least, most, i == 0 && r->length > 1, 9, i, lo, hi, whole_rest);
}

/* Magnitudes from lo to hi. */
static ir_node magnitude(const range *r) {
    schema *s = r->s;
    node_list list = {0};
    size_t shortest = r->lo ? strlen(r->lo->whole) : 1;
    size_t longest = r->hi ? strlen(r->hi->whole) : shortest;
    for (size_t n = shortest; n <= longest; n++) {
        range same = *r;
        same.length = n;
        bool lo = r->lo && n == shortest, hi = r->hi && n == longest;
        node_list_add(s->g, &list, whole_rest(&same, 0, lo, hi));
    }
    if (!r->hi && shortest < MOST_WHOLE) {
        ir_node longer = digits(s, (uint32_t)shortest, MOST_WHOLE - 1);
        ir_node parts[] = {digit(s, 1, 9), longer, fraction(r, false, false)};
        node_list_add(s->g, &list, ir_seq(s->g, parts, COUNT_OF(parts)));
    }
    ir_node made = ir_alt(s->g, list.node, list.n);
    node_list_fini(&list);
    return made;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static ir_node unbounded(schema *s, bool integer) {
    ir *g = s->g;
    static const ir_range e[] = {{'e', 'e'}, {'E', 'E'}}, sign[] = {{'+', '+'}, {'-', '-'}};
    range all = {.s = s, .integer = integer};
    ir_node number = ir_pair(g, ir_repeat(g, schema_puts(s, "-"), 0, 1), magnitude(&all));
    if (integer) return number;
    ir_node exponent =
        ir_seq(g,
               (ir_node[]){ir_class(g, e, 2, false),
                           ir_repeat(g, ir_class(g, sign, 2, false), 0, 1), digits(s, 1, 2)},
               3);
    return ir_pair(g, number, ir_repeat(g, exponent, 0, 1));
}

ir_node schema_number(schema *s, json_object *sub, bool integer) {
    static const decimal zero = {.whole = "0"}, above_zero = {.whole = "0", .open = true};
    decimal lo, hi;
    bool has_lo = read_bound(s, sub, "minimum", "exclusiveMinimum", 1, &lo);
    bool has_hi = read_bound(s, sub, "maximum", "exclusiveMaximum", -1, &hi);
    if (s->g->rc < 0) return IR_NEVER;
    if (!has_lo && !has_hi) return unbounded(s, integer);
    range up = {s, has_lo && !lo.negative ? &lo : &zero, has_hi ? &hi : NULL, integer, 0};
    range down = {s, has_hi && hi.negative ? &hi : &above_zero, has_lo ? &lo : NULL, integer, 0};
    ir_node made = IR_NEVER;
    if (!has_hi || !hi.negative) made = magnitude(&up);
    if (!has_lo || lo.negative)
        made = ir_either(s->g, made, ir_pair(s->g, schema_puts(s, "-"), magnitude(&down)));
    return made;
}
