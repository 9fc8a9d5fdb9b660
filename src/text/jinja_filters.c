/* Filters on text and numbers; those on sequences are in jinja_filters_seq.c. */
#include "jinja_internal.h"

#include <math.h>
#include <stdio.h>

static const struct str *need_str(struct render *r, value v, const char *what) {
    if (v.kind == V_UNDEFINED) fail_undefined(r, v);
    if (v.kind != V_STR) fail(r, "%s must be a string, not %s", what, kind_name(v));
    return v.s;
}

static bool is_true(struct render *r, value v) {
    return given(v) && truth(r, v);
}

/* ---- text ----------------------------------------------------------------------------------- */

static value filter_string(struct render *r, value *v, struct call *c) {
    return val_str(to_str(r, v[0]));
}

static value filter_safe(struct render *r, value *v, struct call *c) {
    return val_str(str_as_markup(r, to_str(r, v[0]), true));
}

static value filter_escape(struct render *r, value *v, struct call *c) {
    const struct str *s = to_str(r, v[0]);
    return s->markup ? val_str(s) : str_escape(r, s);
}

static value filter_forceescape(struct render *r, value *v, struct call *c) {
    return str_escape(r, to_str(r, v[0]));
}

static value filter_upper(struct render *r, value *v, struct call *c) {
    return str_case(r, to_str(r, v[0]), CASE_UPPER);
}

static value filter_lower(struct render *r, value *v, struct call *c) {
    return str_case(r, to_str(r, v[0]), CASE_LOWER);
}

static value filter_capitalize(struct render *r, value *v, struct call *c) {
    return str_case(r, to_str(r, v[0]), CASE_CAPITALIZE);
}

static bool starts_word(const struct str *s, size_t at) {
    return strchr("-({[<", s->data[at]) ? s->data[at] != 0
                                        : space_at(s->data + at, s->len - at) > 0;
}

/* Jinja's own idea of a title: words begin after runs of -, (, {, [, < and whitespace. */
static value filter_title(struct render *r, value *v, struct call *c) {
    const struct str *s = to_str(r, v[0]);
    size_t mark = out_begin(r), end;
    int32_t cp;
    for (size_t at = 0; at < s->len; at = end) {
        bool between = starts_word(s, at);
        size_t first = (size_t)utf8_decode(s->data + at, s->len - at, &cp);
        for (end = at + first; end < s->len && starts_word(s, end) == between;)
            end += (size_t)utf8_decode(s->data + end, s->len - end, &cp);
        out_str(r, str_case(r, str_part(r, s, at, at + first), CASE_UPPER).s);
        out_str(r, str_case(r, str_part(r, s, at + first, end), CASE_LOWER).s);
    }
    return out_end(r, mark);
}

static value filter_trim(struct render *r, value *v, struct call *c) {
    bool all_space = !given(v[1]) || v[1].kind == V_NONE;
    const struct str *chars = all_space ? NULL : need_str(r, v[1], "chars");
    return val_str(str_strip(r, to_str(r, v[0]), chars, STRIP_BOTH));
}

static value filter_replace(struct render *r, value *v, struct call *c) {
    int64_t count = given(v[3]) && v[3].kind != V_NONE ? need_int(r, v[3], "count") : -1;
    const struct str *s = str_as_markup(r, to_str(r, v[0]), false);
    return str_replace(r, s, to_str(r, v[1]), to_str(r, v[2]), count);
}

static value filter_center(struct render *r, value *v, struct call *c) {
    int64_t width = given(v[1]) ? need_int(r, v[1], "the width") : 80;
    return str_pad(r, to_str(r, v[0]), width, str_literal(r, " ").s, STRIP_BOTH);
}

static value filter_indent(struct render *r, value *v, struct call *c) {
    const struct str *s = need_str(r, v[0], "the text to indent");
    const struct str *newline = str_literal(r, "\n").s, *indent;
    if (given(v[1]) && v[1].kind == V_STR)
        indent = v[1].s;
    else
        indent =
            str_times(r, str_literal(r, " ").s, given(v[1]) ? need_int(r, v[1], "the width") : 4).s;
    value lines = split_lines(r, str_plus(r, s, newline).s, false);
    size_t mark = out_begin(r);
    if (is_true(r, v[2])) out_str(r, indent);
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct str *line = lines.list->items[i].s;
        if (i) out_str(r, newline);
        if (i && (line->len || is_true(r, v[3]))) out_str(r, indent);
        out_str(r, line);
    }
    return val_str(str_as_markup(r, out_end(r, mark).s, s->markup));
}

static const struct str *first_chars(struct render *r, const struct str *s, int64_t n) {
    int64_t len = (int64_t)str_chars(r, s);
    if (n < 0) n = MAX(len + n, 0);
    return str_part(r, s, 0, str_offset(s, (size_t)n));
}

static value filter_truncate(struct render *r, value *v, struct call *c) {
    int64_t length = given(v[1]) ? need_int(r, v[1], "length") : 255;
    const struct str *end = given(v[3]) ? need_str(r, v[3], "end") : str_literal(r, "...").s;
    int64_t leeway = given(v[4]) && v[4].kind != V_NONE ? need_int(r, v[4], "leeway") : 5;
    int64_t n_end = (int64_t)str_chars(r, end);
    if (length < n_end || leeway < 0) fail(r, "truncate: length or leeway is too small");
    if ((int64_t)length_of(r, v[0]) <= length + leeway) return v[0];
    const struct str *s = need_str(r, v[0], "the text to truncate");
    const struct str *kept = first_chars(r, s, length - n_end);
    size_t space = str_rfind(r, kept, 0, kept->len, str_literal(r, " ").s);
    if (!is_true(r, v[2]) && space != SIZE_MAX) kept = str_part(r, kept, 0, space);
    return str_plus(r, kept, end);
}

static value filter_wordcount(struct render *r, value *v, struct call *c) {
    const struct str *s = to_str(r, v[0]);
    int64_t n = 0;
    bool inside = false;
    int32_t cp;
    charge(r, s->len / 16);
    for (size_t at = 0; at < s->len; at += (size_t)utf8_decode(s->data + at, s->len - at, &cp)) {
        utf8_decode(s->data + at, s->len - at, &cp);
        bool word = cp == '_' || char_alnum(cp);
        n += word && !inside;
        inside = word;
    }
    return val_int(n);
}

static value filter_striptags(struct render *r, value *v, struct call *c) {
    const struct str *s = str_as_markup(r, to_str(r, v[0]), false);
    const struct str *comment = str_literal(r, "<!--").s, *comment_end = str_literal(r, "-->").s;
    const struct str *tag = str_literal(r, "<").s, *tag_end = str_literal(r, ">").s;
    for (int pass = 0; pass < 2; pass++) { /* comments, then tags */
        const struct str *open = pass ? tag : comment, *close = pass ? tag_end : comment_end;
        size_t mark = out_begin(r), at = 0, from, to;
        while ((from = str_find(r, s, at, s->len, open)) != SIZE_MAX &&
               (to = str_find(r, s, from + open->len, s->len, close)) != SIZE_MAX) {
            out_part(r, s, at, from);
            at = to + close->len;
        }
        out_part(r, s, at, s->len);
        s = out_end(r, mark).s;
    }
    if (memchr(s->data, '&', s->len)) fail(r, "striptags: entities are not supported");
    size_t mark = out_begin(r), at = 0;
    bool more = false;
    while (at < s->len) {
        int space = space_at(s->data + at, s->len - at);
        if (space) {
            at += (size_t)space;
            continue;
        }
        size_t end = at;
        while (end < s->len && !space_at(s->data + end, s->len - end)) end++;
        if (more) out_puts(r, " ", TEXT_TEMPLATE);
        out_part(r, s, at, end);
        more = true;
        at = end;
    }
    return out_end(r, mark);
}

static void quote_url(struct render *r, const struct str *s, bool query) {
    static const char hex[] = "0123456789ABCDEF";
    charge(r, s->len / 16);
    for (size_t i = 0; i < s->len; i++) {
        unsigned char b = (unsigned char)s->data[i];
        bool plain = (b >= '0' && b <= '9') || ((b | 32) >= 'a' && (b | 32) <= 'z') ||
                     (b && strchr("_.-~", b)) || (b == '/' && !query);
        const char escape[] = {'%', hex[b >> 4], hex[b & 15]};
        if (plain)
            out_part(r, s, i, i + 1);
        else if (b == ' ' && query)
            out_puts(r, "+", s->marks ? s->marks[i] : s->origin);
        else
            out_put(r, escape, sizeof escape, s->marks ? s->marks[i] : s->origin);
    }
}

static value filter_urlencode(struct render *r, value *v, struct call *c) {
    size_t mark = out_begin(r);
    value items = v[0];
    bool more = false;
    if (items.kind == V_STR || !is_iterable(items)) {
        quote_url(r, to_str(r, items), false);
        return out_end(r, mark);
    }
    if (items.kind == V_DICT)
        items = (value){.kind = V_VIEW, .aux = VIEW_ITEMS, .dict = items.dict};
    struct iter *it = iter_of(r, items);
    for (value item; iter_next(r, it, &item); more = true) {
        value pair = to_list(r, item);
        if (pair.list->n != 2) fail(r, "urlencode needs pairs of key and value");
        if (more) out_puts(r, "&", TEXT_TEMPLATE);
        quote_url(r, to_str(r, pair.list->items[0]), true);
        out_puts(r, "=", TEXT_TEMPLATE);
        quote_url(r, to_str(r, pair.list->items[1]), true);
    }
    return out_end(r, mark);
}

static value filter_format(struct render *r, value *v, struct call *c) {
    const struct str *s = to_str(r, v[0]);
    if (c->n_pos && c->n_kw)
        fail(r, "format takes either positional or keyword arguments, not both");
    if (!c->n_kw) return format_percent(r, s, list_of(r, c->pos, c->n_pos, V_TUPLE));
    struct dict *d = dict_new(r, c->n_kw);
    for (size_t i = 0; i < c->n_kw; i++) dict_put(r, d, val_str(c->kw[i].name), c->kw[i].val);
    return format_percent(r, s, val_dict(d));
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* What is not the template's own choice is of user origin, like the brackets. */
static const struct str *plain(struct render *r, const char *text) {
    return str_new(&r->trap, text, strlen(text), TEXT_USER);
}

static void set_separators(struct render *r, value separators, struct json_style *style) {
    style->item_sep = plain(r, style->indent ? "," : ", ");
    style->key_sep = plain(r, ": ");
    if (!given(separators) || separators.kind == V_NONE) return;
    value pair = to_list(r, separators);
    if (pair.list->n != 2) fail(r, "tojson: separators must be two strings");
    style->item_sep = need_str(r, pair.list->items[0], "a separator");
    style->key_sep = need_str(r, pair.list->items[1], "a separator");
}

static value filter_tojson(struct render *r, value *v, struct call *c) {
    struct json_style style = {.ascii = is_true(r, v[1]), .sort_keys = is_true(r, v[4])};
    if (given(v[2]) && v[2].kind == V_STR)
        style.indent = v[2].s;
    else if (given(v[2]) && v[2].kind != V_NONE)
        style.indent = str_times(r, plain(r, " "), need_int(r, v[2], "indent")).s;
    set_separators(r, v[3], &style);
    size_t mark = out_begin(r);
    print_json(r, v[0], &style);
    return out_end(r, mark);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static _Noreturn void fail_big(struct render *r) {
    fail(r, "integers beyond 64 bits are not supported");
}

static value origin_of(value number, value from) {
    number.origin = from.kind == V_STR ? (uint8_t)str_origin(from.s) : from.origin;
    return number;
}

static value truncated(struct render *r, double f, value from) {
    if (!(f > -0x1p63 && f < 0x1p63)) fail_big(r);
    return origin_of(val_int((int64_t)f), from);
}

static value filter_int(struct render *r, value *v, struct call *c) {
    int64_t base = given(v[2]) ? need_int(r, v[2], "base") : 10, i;
    value otherwise = given(v[1]) ? v[1] : val_int(0);
    bool too_big;
    double f;
    if (v[0].kind == V_UNDEFINED) fail_undefined(r, v[0]);
    if (v[0].kind == V_BIG) return v[0];
    if (is_integer(v[0])) return taint(val_int(int_of(v[0])), v[0]);
    if (v[0].kind == V_FLOAT) {
        if (isinf(v[0].f)) fail(r, "cannot convert float infinity to integer");
        return isnan(v[0].f) ? otherwise : truncated(r, v[0].f, v[0]);
    }
    if (v[0].kind != V_STR) return otherwise;
    if ((base == 0 || (base >= 2 && base <= 36)) && parse_int(v[0].s, (int)base, &i, &too_big)) {
        if (too_big) fail_big(r);
        return origin_of(val_int(i), v[0]);
    }
    if (!parse_float(v[0].s, &f) || !isfinite(f)) return otherwise;
    return truncated(r, f, v[0]);
}

static value filter_float(struct render *r, value *v, struct call *c) {
    double f;
    if (v[0].kind == V_UNDEFINED) fail_undefined(r, v[0]);
    if (v[0].kind == V_BIG) fail_big(r);
    if (is_number(v[0])) return taint(val_float(float_of(v[0])), v[0]);
    if (v[0].kind == V_STR && parse_float(v[0].s, &f)) return origin_of(val_float(f), v[0]);
    return given(v[1]) ? v[1] : val_float(0);
}

static value filter_abs(struct render *r, value *v, struct call *c) {
    if (!is_number(v[0])) fail(r, "bad operand type for abs: %s", kind_name(v[0]));
    if (v[0].kind == V_FLOAT) return taint(val_float(fabs(v[0].f)), v[0]);
    return int_of(v[0]) < 0 ? negate(r, v[0]) : positive(r, v[0]);
}

/* Integers round to a negative number of digits only. */
static value round_int(struct render *r, int64_t i, int64_t digits) {
    if (digits >= 0) return val_int(i);
    if (digits < -18) return val_int(0);
    int64_t unit = 1;
    for (; digits < 0; digits++) unit *= 10;
    value down = arith(r, OP_FLOORDIV, val_int(i), val_int(unit));
    int64_t rest = i - down.i * unit;
    bool up = rest * 2 > unit || (rest * 2 == unit && down.i % 2 != 0);
    return arith(r, OP_MUL, val_int(down.i + up), val_int(unit));
}

static value filter_round(struct render *r, value *v, struct call *c) {
    int64_t digits = given(v[1]) ? need_int(r, v[1], "precision") : 0;
    const struct str *method = given(v[2]) ? need_str(r, v[2], "method") : NULL;
    bool ceiling = method && str_is(method, "ceil"), to_floor = method && str_is(method, "floor");
    if (method && !ceiling && !to_floor && !str_is(method, "common"))
        fail(r, "round: method must be common, ceil or floor");
    if (v[0].kind == V_UNDEFINED) fail_undefined(r, v[0]);
    if (!is_number(v[0])) fail(r, "a value of type %s cannot be rounded", kind_name(v[0]));
    if (!ceiling && !to_floor)
        return taint(v[0].kind == V_FLOAT ? val_float(round_half_even(r, v[0].f, digits))
                                          : round_int(r, int_of(v[0]), digits),
                     v[0]);
    value unit = arith(r, OP_POW, val_int(10), val_int(digits));
    value scaled = arith(r, OP_MUL, v[0], unit);
    if (scaled.kind == V_FLOAT) {
        if (!isfinite(scaled.f)) fail(r, "an infinite value cannot be rounded");
        scaled = truncated(r, ceiling ? ceil(scaled.f) : floor(scaled.f), v[0]);
    }
    return taint(arith(r, OP_DIV, scaled, unit), v[0]);
}

static value filter_filesizeformat(struct render *r, value *v, struct call *c) {
    static const char prefixes[] = "kMGTPEZY";
    value size = filter_float(r, (value[]){v[0], val_missing()}, c);
    bool binary = is_true(r, v[1]), number = is_number(v[0]);
    double f, base = binary ? 1024 : 1000, unit = base;
    char text[400];
    if (!number && (v[0].kind != V_STR || !parse_float(v[0].s, &f)))
        fail(r, "filesizeformat needs a number");
    f = size.f;
    if (f == 1) {
        snprintf(text, sizeof text, "1 Byte");
    } else if (f < base) {
        snprintf(text, sizeof text, "%lld Bytes", (long long)truncated(r, f, size).i);
    } else {
        int i = 0;
        for (unit *= base; prefixes[i + 1] && !(f < unit); i++) unit *= base;
        char letter = binary && i == 0 ? 'K' : prefixes[i];
        snprintf(text, sizeof text, "%.1f %c%sB", base * f / unit, letter, binary ? "i" : "");
    }
    return val_str(str_copy(&r->trap, text, strlen(text), size.origin));
}

/* ---- any value ------------------------------------------------------------------------------ */

static value filter_default(struct render *r, value *v, struct call *c) {
    if (v[0].kind == V_UNDEFINED || (is_true(r, v[2]) && !truth(r, v[0])))
        return given(v[1]) ? v[1] : str_literal(r, "");
    return v[0];
}

static value filter_length(struct render *r, value *v, struct call *c) {
    return val_int((int64_t)length_of(r, v[0]));
}

static value filter_attr(struct render *r, value *v, struct call *c) {
    value found;
    const struct str *name = need_str(r, v[1], "the name of an attribute");
    if (v[0].kind == V_UNDEFINED) fail_undefined(r, v[0]);
    return find_attr(r, v[0], name, &found) ? found : val_undefined_attr(v[0], name, NO_ATTRIBUTE);
}

const struct builtin text_filters[] = {
    {"abs", filter_abs, ""},
    {"attr", filter_attr, "name"},
    {"capitalize", filter_capitalize, ""},
    {"center", filter_center, "?width"},
    {"count", filter_length, ""},
    {"length", filter_length, ""},
    {"d", filter_default, "?default_value ?boolean"},
    {"default", filter_default, "?default_value ?boolean"},
    {"e", filter_escape, ""},
    {"escape", filter_escape, ""},
    {"forceescape", filter_forceescape, ""},
    {"filesizeformat", filter_filesizeformat, "?binary"},
    {"float", filter_float, "?default"},
    {"format", filter_format, "*"},
    {"indent", filter_indent, "?width ?first ?blank"},
    {"int", filter_int, "?default ?base"},
    {"lower", filter_lower, ""},
    {"replace", filter_replace, "old new ?count"},
    {"round", filter_round, "?precision ?method"},
    {"safe", filter_safe, ""},
    {"string", filter_string, ""},
    {"striptags", filter_striptags, ""},
    {"title", filter_title, ""},
    {"tojson", filter_tojson, "?ensure_ascii ?indent ?separators ?sort_keys"},
    {"trim", filter_trim, "?chars"},
    {"truncate", filter_truncate, "?length ?killwords ?end ?leeway"},
    {"upper", filter_upper, ""},
    {"urlencode", filter_urlencode, ""},
    {"wordcount", filter_wordcount, ""},
    {"pprint", unsupported, "*"},
    {"random", unsupported, "*"},
    {"urlize", unsupported, "*"},
    {"wordwrap", unsupported, "*"},
    {"xmlattr", unsupported, "*"},
    {0}};

const struct builtin *filter_find(const struct str *name) {
    for (const struct builtin *b = text_filters; b->name; b++)
        if (str_is(name, b->name)) return b;
    for (const struct builtin *b = sequence_filters; b->name; b++)
        if (str_is(name, b->name)) return b;
    return NULL;
}
