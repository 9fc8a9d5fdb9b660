/* Strings. Lengths count code points, so an escape counts one: surrogates, which would count two
 * escapes as one character, are not written as escapes. */
#include <string.h>

#include "schema_internal.h"

ir_node schema_chars(schema *s) {
    const int32_t barred = ir_barred(s->g); /* -1 is in no class */
    const int32_t quote = s->g->spelling.single ? '\'' : '"';
    const ir_range special[] = {{0, 0x1f}, {quote, quote}, {'\\', '\\'}, {barred, barred}};
    const ir_range letters[] = {{quote, quote}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'},
                                {'f', 'f'},     {'n', 'n'},   {'r', 'r'}, {'t', 't'}};
    static const ir_range hex[] = {{'0', '9'}, {'a', 'f'}, {'A', 'F'}};
    static const ir_range not_d[] = {{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}};
    static const ir_range d[] = {{'d', 'd'}, {'D', 'D'}}, below_8[] = {{'0', '7'}};
    ir *g = s->g;
    if (g->spelling.raw) return ir_string_class(g, NULL, 0, true);
    ir_node digit = ir_class(g, hex, COUNT_OF(hex), false);
    ir_node other = ir_pair(g, ir_class(g, not_d, COUNT_OF(not_d), false), digit);
    ir_node no_surrogate = ir_pair(g, ir_class(g, d, COUNT_OF(d), false),
                                   ir_class(g, below_8, COUNT_OF(below_8), false));
    ir_node unit = ir_seq(
        g, (ir_node[]){schema_puts(s, "u"), ir_either(g, other, no_surrogate), digit, digit}, 4);
    ir_node letter = ir_class(g, letters, COUNT_OF(letters), false);
    ir_node escape = ir_pair(g, schema_puts(s, "\\"), ir_either(g, letter, unit));
    return ir_either(g, ir_class(g, special, COUNT_OF(special), true), escape);
}

ir_node schema_quoted(schema *s, ir_node inner) {
    ir *g = s->g;
    const ir_spelling *how = &g->spelling;
    ir_node quote = schema_puts(s, how->single ? "'" : "\"");
    if (!how->raw) return ir_seq(g, (ir_node[]){quote, inner, quote}, 3);
    ir_node pad = schema_puts(s, how->pad);
    return ir_seq(
        g, (ir_node[]){schema_puts(s, how->open), pad, inner, pad, schema_puts(s, how->mark)}, 5);
}

/* A string that `make` makes, in Python's other marks, too. */
static ir_node in_both_marks(schema *s, ir_node (*make)(schema *, const void *), const void *arg) {
    ir_node made = make(s, arg);
    if (!s->g->spelling.python) return made;
    s->g->spelling.single = true;
    made = ir_either(s->g, made, make(s, arg));
    s->g->spelling.single = false;
    return made;
}

static ir_node quote_text(schema *s, const void *arg) {
    const grammar_str *text = arg;
    return schema_quoted(s, ir_string_text(s->g, text->data, text->len));
}

ir_node schema_quoted_text(schema *s, const char *text, size_t len) {
    return in_both_marks(s, quote_text, &(grammar_str){text, len});
}

static ir_node make_any(schema *s, const void *arg) {
    ir *g = s->g;
    if (g->spelling.raw)
        return ir_pair(g, schema_puts(s, g->spelling.open), free_text_until(g, g->spelling.mark));
    return schema_quoted(s, ir_repeat(g, schema_chars(s), 0, UNBOUNDED));
}

ir_node schema_any_string(schema *s) {
    return in_both_marks(s, make_any, NULL);
}

/* Formats as regular expressions; each allows valid strings only, though not all of them (no 29th
 * of February, no quoted local parts). RFC 3339, 4122, 5321, 3986; IPv6 as in RFC 4291, 2.2. */
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?"
#define PCHAR "([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
#define HEX4 "[0-9a-fA-F]{1,4}"
#define DATE                                                                                       \
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"       \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")"

static const char *const formats[][2] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P([0-9]{1,4}D|[0-9]{1,4}W|([0-9]{1,4}D)?T[0-9]{1,4}[HMS])"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"email", "[a-zA-Z0-9_+-]{1,30}(\\.[a-zA-Z0-9_+-]{1,30}){0,3}@" LABEL "(\\." LABEL "){1,4}"},
    {"hostname", LABEL "(\\." LABEL "){0,5}"},
    {"ipv4", OCTET "(\\." OCTET "){3}"},
    {"ipv6", "(" HEX4 ":){7}" HEX4 "|::(" HEX4 "(:" HEX4 "){0,5})?|" HEX4 "(:" HEX4 "){0,2}::(" HEX4
             "(:" HEX4 "){0,2})?"},
    {"uri", "[a-zA-Z][a-zA-Z0-9+.-]{0,15}://" LABEL "(\\." LABEL "){0,5}(:[1-9][0-9]{0,3})?"
            "(/" PCHAR "{0,40}){0,8}(\\?" PCHAR "{0,100})?(#" PCHAR "{0,60})?"},
};

/* NULL: an annotation. */
static const char *find_format(json_object *format) {
    const char *name =
        json_object_is_type(format, json_type_string) ? json_object_get_string(format) : "";
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (!strcmp(name, formats[i][0])) return formats[i][1];
    return NULL;
}

static ir_node visit_pattern(schema *s, json_object *pattern) {
    if (!json_object_is_type(pattern, json_type_string)) {
        schema_fail(s, ICP_EINVALID, "pattern must be a string");
        return IR_NEVER;
    }
    return regex_parse(s->g, json_object_get_string(pattern),
                       (size_t)json_object_get_string_len(pattern), true);
}

/* ---- lengths beside patterns and formats ------------------------------------------------------
 */

typedef struct lengths { /* code points of the shortest and the longest text of a node */
    uint32_t min, max;
} lengths;

static uint32_t add(uint32_t a, uint32_t b) {
    return a > UNBOUNDED - b ? UNBOUNDED : a + b;
}

static uint32_t times(uint32_t a, uint32_t n) {
    uint64_t product = (uint64_t)a * n;
    return a && n == UNBOUNDED ? UNBOUNDED : (uint32_t)MIN(product, UNBOUNDED);
}

/* Characters of text inside a string, whose escapes are whole where it has some. */
static uint32_t text_length(const char *text, size_t len, bool raw) {
    uint32_t n = 0;
    for (size_t i = 0; i < len; n++) {
        int32_t cp;
        if (!raw && text[i] == '\\')
            i += i + 1 < len && text[i + 1] == 'u' ? 6 : 2;
        else
            i += (size_t)utf8_decode(text + i, len - i, &cp);
    }
    return n;
}

/* Of what regex.c makes, where nothing is called. */
static lengths measure(const ir *g, ir_node node) {
    ir_item item = g->items[node];
    lengths all = {0, 0};
    switch (item.kind) {
    case IR_KIND_TEXT:
        all.min = all.max = text_length(g->text + item.first, item.count, g->spelling.raw);
        return all;
    case IR_KIND_CLASS:
        return (lengths){1, 1};
    case IR_KIND_REPEAT:
        all = measure(g, item.first);
        return (lengths){times(all.min, item.count), times(all.max, item.max)};
    case IR_KIND_SEQ:
    case IR_KIND_ALT:
        for (uint32_t i = 0; i < item.count; i++) {
            lengths one = measure(g, g->kids[item.first + i]);
            bool seq = item.kind == IR_KIND_SEQ, first = i == 0;
            all.min = seq ? add(all.min, one.min) : first ? one.min : MIN(all.min, one.min);
            all.max = seq ? add(all.max, one.max) : MAX(all.max, one.max);
        }
        return all;
    default:
        return all;
    }
}

/* Where the texts of a node do not all have a length between min and max, it can be limited when it
 * repeats one character. */
static ir_node limit_length(schema *s, ir_node node, uint32_t min, uint32_t max) {
    ir *g = s->g;
    lengths all = measure(g, node);
    if (all.min >= min && all.max <= max) return node;
    if (all.max < min || all.min > max) return IR_NEVER;
    ir_item item = g->items[node];
    lengths one = item.kind == IR_KIND_REPEAT ? measure(g, item.first) : all;
    if (item.kind == IR_KIND_REPEAT && one.min == 1 && one.max == 1)
        return ir_repeat(g, item.first, MAX(min, item.count), MIN(max, item.max));
    schema_fail(s, ICP_EUNSUPPORTED,
                "minLength and maxLength beside this pattern or format are not supported");
    return IR_NEVER;
}

/* ---- strings --------------------------------------------------------------------------------- */

static ir_node make_string(schema *s, const void *arg) {
    json_object *sub = (json_object *)arg;
    ir *g = s->g;
    uint32_t min = schema_count(s, sub, "minLength", 0);
    uint32_t max = schema_count(s, sub, "maxLength", UNBOUNDED);
    json_object *pattern = schema_get(sub, "pattern");
    const char *format = find_format(schema_get(sub, "format"));
    bool bounded = min > 0 || max != UNBOUNDED;
    ir_node inner;
    if (min > max) schema_fail(s, ICP_EINVALID, "minLength is greater than maxLength");
    if (pattern && format)
        schema_fail(s, ICP_EUNSUPPORTED, "pattern beside format is not supported");
    if (g->rc < 0) return IR_NEVER;
    if (pattern)
        inner = visit_pattern(s, pattern);
    else if (format)
        inner = regex_parse(g, format, strlen(format), false);
    else if (bounded)
        inner = ir_repeat(g, schema_chars(s), min, max);
    else
        return ir_call(g, s->string);
    if ((pattern || format) && bounded && g->rc == 0) inner = limit_length(s, inner, min, max);
    return schema_quoted(s, inner);
}

ir_node schema_string(schema *s, json_object *sub) {
    return in_both_marks(s, make_string, sub);
}
