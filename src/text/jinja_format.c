/* Python's two ways of formatting: "%s has %d" % (a, b) and "{} has {n:>5}".format(a, n=b). Both
 * parse to a struct spec. Text keeps its origin; padding is the template's. */
#include "jinja_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct spec {
    int32_t fill;
    char align; /* < > ^ =, or 0: the type's own */
    char sign;  /* + - or space */
    char type;  /* 0: none given */
    char group; /* , or _ between digits, or 0 */
    bool alternate;
    int64_t width;
    int precision; /* -1: none given */
};

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 300 };

static const struct spec no_spec = {.fill = ' ', .sign = '-', .precision = -1};

/* ---- output --------------------------------------------------------------------------------- */

static const struct str *char_str(struct render *r, int32_t cp) {
    char bytes[4];
    return str_copy(&r->trap, bytes, (size_t)utf8_encode(cp, bytes), TEXT_TEMPLATE);
}

static void put_padding(struct render *r, const struct spec *spec, int64_t n) {
    if (n > 0) out_fill(r, char_str(r, spec->fill), (size_t)n);
}

static void put_text(struct render *r, const struct str *s, const struct spec *spec, char align) {
    if (spec->precision >= 0) s = str_part(r, s, 0, str_offset(s, (size_t)spec->precision));
    int64_t pad = spec->width - (int64_t)str_chars(r, s);
    int64_t left = align == '>' ? pad : align == '^' && pad > 0 ? pad / 2 : 0;
    put_padding(r, spec, left);
    out_str(r, s);
    put_padding(r, spec, pad - MAX(left, 0));
}

/* prefix is the sign and 0x; body the digits. */
static void put_number(struct render *r, const char *prefix, const char *body,
                       const struct spec *spec, enum text_origin origin) {
    char align = spec->align ? spec->align : '>';
    int64_t pad = spec->width - (int64_t)(strlen(prefix) + strlen(body));
    int64_t left = align == '>' || align == '=' ? pad : align == '^' && pad > 0 ? pad / 2 : 0;
    if (align != '=') put_padding(r, spec, left);
    out_puts(r, prefix, origin);
    if (align == '=') put_padding(r, spec, left);
    out_puts(r, body, origin);
    put_padding(r, spec, pad - MAX(left, 0));
}

/* Digits with separators between the thousands before the point. */
static void group_digits(struct render *r, char *text, const struct spec *spec) {
    size_t whole = strspn(text, "0123456789"), rest = strlen(text + whole) + 1;
    size_t separators = whole ? (whole - 1) / 3 : 0;
    if (!spec->group) return;
    if (spec->fill == '0' && spec->align == '=')
        fail(r, "zero padding of grouped digits is not supported");
    memmove(text + whole + separators, text + whole, rest);
    for (size_t i = whole; separators > 0; separators--) { /* from the right */
        i -= 3;
        memmove(text + i + separators, text + i, 3);
        text[i + separators - 1] = spec->group;
    }
}

static const char *sign_text(bool negative, const struct spec *spec) {
    return negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
}

/* ---- numbers -------------------------------------------------------------------------------- */

static void put_integer(struct render *r, int64_t i, const struct spec *spec, int min_digits,
                        enum text_origin origin) {
    char digits[400], prefix[4];
    uint64_t magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *mark = "";
    switch (spec->type) {
    case 'b': {
        int n = magnitude ? 64 - __builtin_clzll(magnitude) : 1;
        for (int bit = 0; bit < n; bit++)
            digits[bit] = (char)('0' + (magnitude >> (n - 1 - bit) & 1));
        digits[n] = '\0';
        mark = "0b";
        break;
    }
    case 'o':
        snprintf(digits, sizeof digits, "%.*llo", min_digits, (unsigned long long)magnitude);
        mark = "0o";
        break;
    case 'x':
        snprintf(digits, sizeof digits, "%.*llx", min_digits, (unsigned long long)magnitude);
        mark = "0x";
        break;
    case 'X':
        snprintf(digits, sizeof digits, "%.*llX", min_digits, (unsigned long long)magnitude);
        mark = "0X";
        break;
    default:
        snprintf(digits, sizeof digits, "%.*llu", min_digits, (unsigned long long)magnitude);
        break;
    }
    snprintf(prefix, sizeof prefix, "%s%s", sign_text(i < 0, spec), spec->alternate ? mark : "");
    if (spec->group && *mark) fail(r, "grouping is supported for decimal numbers only");
    group_digits(r, digits, spec);
    put_number(r, prefix, digits, spec, origin);
}

static void put_float(struct render *r, double f, const struct spec *spec,
                      enum text_origin origin) {
    char digits[MAX_PRECISION + 600]; /* 309 digits and 103 separators before the point */
    int precision = spec->precision < 0 ? 6 : spec->precision;
    double magnitude = fabs(spec->type == '%' ? f * 100 : f);
    const char *format = spec->alternate ? "%#.*f" : "%.*f";
    if (spec->type == 'e') format = spec->alternate ? "%#.*e" : "%.*e";
    if (spec->type == 'E') format = spec->alternate ? "%#.*E" : "%.*E";
    if (spec->type == 'g') format = spec->alternate ? "%#.*g" : "%.*g";
    if (spec->type == 'G') format = spec->alternate ? "%#.*G" : "%.*G";
    if (!isfinite(f))
        snprintf(digits, sizeof digits, "%s",
                 spec->type == 'F' || spec->type == 'E' || spec->type == 'G'
                     ? (isnan(f) ? "NAN" : "INF")
                     : (isnan(f) ? "nan" : "inf"));
    else if (spec->type == 0 && spec->precision < 0)
        print_float(magnitude, digits);
    else if (spec->type == 0)
        fail(r, "a precision needs one of the types e, f, g and %%");
    else
        snprintf(digits, sizeof digits, format, precision, magnitude);
    if (spec->type == '%') strcat(digits, "%");
    const char *sign = sign_text(signbit(f) && !isnan(f), spec);
    group_digits(r, digits, spec);
    put_number(r, sign, digits, spec, origin);
}

/* ---- % -------------------------------------------------------------------------------------- */

struct percent {
    struct render *r;
    const struct str *format;
    size_t at;
    value args;
    size_t used; /* arguments of a tuple, or 0 or 1 */
};

static char next_char(struct percent *p) {
    if (p->at >= p->format->len) fail(p->r, "incomplete format");
    return p->format->data[p->at++];
}

static value next_argument(struct percent *p) {
    bool tuple = p->args.kind == V_TUPLE;
    if (p->used >= (tuple ? p->args.list->n : 1))
        fail(p->r, "not enough arguments for format string");
    return tuple ? p->args.list->items[p->used++] : (p->used++, p->args);
}

/* (name): the argument is a member of the dict. */
static bool named_argument(struct percent *p, value *arg) {
    const struct str *f = p->format;
    size_t from = p->at + 1, depth = 1, end = from;
    if (p->at >= f->len || f->data[p->at] != '(') return false;
    if (p->args.kind != V_DICT) fail(p->r, "format requires a mapping");
    for (; end < f->len; end++) {
        if (f->data[end] == '(') depth++;
        if (f->data[end] == ')' && --depth == 0) break;
    }
    if (end >= f->len) fail(p->r, "incomplete format key");
    if (!dict_get(p->r, p->args.dict, val_str(str_part(p->r, f, from, end)), arg))
        fail(p->r, "the format's key is missing");
    p->at = end + 1;
    return true;
}

static int64_t read_number(struct percent *p) {
    int64_t n = 0;
    if (p->at < p->format->len && p->format->data[p->at] == '*') {
        p->at++;
        return need_int(p->r, next_argument(p), "* in a format");
    }
    while (p->at < p->format->len && p->format->data[p->at] >= '0' &&
           p->format->data[p->at] <= '9') {
        n = n * 10 + (p->format->data[p->at++] - '0');
        if (n > MAX_WIDTH) fail(p->r, "a width or precision is too large");
    }
    return n;
}

static struct spec read_percent(struct percent *p, bool *left) {
    struct spec spec = no_spec;
    bool zero = false;
    *left = false;
    for (;; p->at++) {
        char c = p->at < p->format->len ? p->format->data[p->at] : 0;
        if (c == '-')
            *left = true;
        else if (c == '+')
            spec.sign = '+';
        else if (c == ' ')
            spec.sign = spec.sign == '+' ? '+' : ' ';
        else if (c == '#')
            spec.alternate = true;
        else if (c == '0')
            zero = true;
        else
            break;
    }
    spec.width = read_number(p);
    if (spec.width < 0) {
        *left = true;
        spec.width = -spec.width;
    }
    if (spec.width > MAX_WIDTH) fail(p->r, "a width is too large");
    if (p->at < p->format->len && p->format->data[p->at] == '.') {
        p->at++;
        int64_t precision = read_number(p);
        if (precision > MAX_PRECISION) fail(p->r, "a precision is too large");
        spec.precision = (int)MAX(precision, 0);
    }
    while (p->at < p->format->len && memchr("hlL", p->format->data[p->at], 3)) p->at++;
    spec.type = next_char(p);
    if (zero && !*left && spec.type && strchr("diuoxXeEfFgG", spec.type)) spec.fill = '0';
    spec.align = *left ? '<' : spec.fill == '0' ? '=' : '>';
    return spec;
}

static void percent_integer(struct percent *p, value arg, struct spec *spec) {
    int min_digits = MAX(spec->precision, 1);
    if (arg.kind == V_UNDEFINED) fail_undefined(p->r, arg);
    if (arg.kind == V_FLOAT && strchr("diu", spec->type)) {
        if (!(arg.f > -0x1p63 && arg.f < 0x1p63)) fail(p->r, "the number is too large");
        arg = taint(val_int((int64_t)arg.f), arg);
    }
    if (!is_integer(arg)) fail(p->r, "%%%c needs a number, not %s", spec->type, kind_name(arg));
    if (strchr("iu", spec->type)) spec->type = 'd';
    put_integer(p->r, int_of(arg), spec, min_digits, arg.origin);
}

static const struct str *char_of(struct render *r, value v) {
    char bytes[4];
    int64_t cp = int_of(v);
    if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        fail(r, "format: the number is no character");
    return str_copy(&r->trap, bytes, (size_t)utf8_encode((int32_t)cp, bytes), v.origin);
}

static void percent_char(struct percent *p, value arg, const struct spec *spec) {
    struct spec plain = *spec;
    plain.precision = -1;
    if (!is_integer(arg) && (arg.kind != V_STR || str_chars(p->r, arg.s) != 1))
        fail(p->r, "%%c needs an integer or a character");
    put_text(p->r, arg.kind == V_STR ? arg.s : char_of(p->r, arg), &plain, plain.align);
}

static const struct str *repr_of(struct render *r, value v) {
    size_t mark = out_begin(r);
    print_repr(r, v);
    return out_end(r, mark).s;
}

static void put_percent(struct percent *p) {
    bool left;
    if (p->at < p->format->len && p->format->data[p->at] == '%') {
        out_part(p->r, p->format, p->at, p->at + 1);
        p->at++;
        return;
    }
    value arg = val_missing();
    bool named = named_argument(p, &arg);
    struct spec spec = read_percent(p, &left);
    if (!spec.type || !strchr("diuoxXeEfFgGcsr", spec.type))
        fail(p->r, "unsupported format character '%c'", spec.type);
    if (!named) arg = next_argument(p);
    if (spec.type == 's' || spec.type == 'r') {
        put_text(p->r, spec.type == 's' ? to_str(p->r, arg) : repr_of(p->r, arg), &spec,
                 spec.align);
    } else if (spec.type == 'c') {
        percent_char(p, arg, &spec);
    } else if (strchr("diuoxX", spec.type)) {
        percent_integer(p, arg, &spec);
    } else {
        if (arg.kind == V_UNDEFINED) fail_undefined(p->r, arg);
        if (!is_number(arg)) fail(p->r, "%%%c needs a number, not %s", spec.type, kind_name(arg));
        put_float(p->r, float_of(arg), &spec, arg.origin);
    }
}

value format_percent(struct render *r, const struct str *format, value args) {
    struct percent p = {.r = r, .format = format, .args = args};
    if (format->markup) fail(r, "formatting is not supported on text marked as safe");
    size_t mark = out_begin(r);
    while (p.at < format->len) {
        const char *percent = memchr(format->data + p.at, '%', format->len - p.at);
        size_t to = percent ? (size_t)(percent - format->data) : format->len;
        out_part(r, format, p.at, to);
        p.at = to + 1;
        if (percent) put_percent(&p);
    }
    bool container = args.kind == V_DICT || args.kind == V_LIST || args.kind == V_UNDEFINED ||
                     args.kind == V_RANGE;
    if (!container && p.used < (args.kind == V_TUPLE ? args.list->n : 1))
        fail(r, "not all arguments converted during string formatting");
    return out_end(r, mark);
}

/* ---- {} ------------------------------------------------------------------------------------- */

struct braces {
    struct render *r;
    const struct str *format;
    struct call *args;
    int64_t next;        /* number of the next {} */
    bool counted, named; /* {} or {0} was used: not both */
};

static value positional(struct braces *b, int64_t i) {
    if ((size_t)i >= b->args->n_pos)
        fail(b->r, "format: there is no argument number %lld", (long long)i);
    return b->args->pos[i];
}

static value keyword(struct braces *b, const struct str *name) {
    for (size_t i = 0; i < b->args->n_kw; i++)
        if (str_equal(b->args->kw[i].name, name)) return b->args->kw[i].val;
    fail(b->r, "format: there is no argument '%.*s'", (int)MIN(name->len, 100), name->data);
}

static bool decimal(struct render *r, const struct str *s, int64_t *out) {
    bool too_big;
    for (size_t i = 0; i < s->len; i++)
        if (s->data[i] < '0' || s->data[i] > '9') return false;
    if (!parse_int(s, 10, out, &too_big)) return false;
    if (too_big) fail(r, "format: a number is too large");
    return true;
}

static value first_of_field(struct braces *b, const struct str *first) {
    int64_t number;
    bool automatic = first->len == 0;
    if (!automatic && !decimal(b->r, first, &number)) return keyword(b, first);
    b->counted |= automatic;
    b->named |= !automatic;
    if (b->counted && b->named)
        fail(b->r, "format: cannot mix automatic and manual numbering of fields");
    return positional(b, automatic ? b->next++ : number);
}

/* name.attribute[index]… between from and to. */
static value field_value(struct braces *b, size_t from, size_t to) {
    const struct str *f = b->format;
    size_t at = from;
    while (at < to && f->data[at] != '.' && f->data[at] != '[') at++;
    value v = first_of_field(b, str_part(b->r, f, from, at));
    while (at < to) {
        bool attribute = f->data[at++] == '.';
        size_t start = at;
        while (at < to &&
               (attribute ? f->data[at] != '.' && f->data[at] != '[' : f->data[at] != ']'))
            at++;
        const struct str *name = str_part(b->r, f, start, at);
        int64_t index;
        if (name->len == 0 || (!attribute && at == to)) fail(b->r, "format: malformed field");
        if (attribute)
            v = get_attr(b->r, v, name);
        else
            v = get_item(b->r, v, decimal(b->r, name, &index) ? val_int(index) : val_str(name));
        if (!attribute) at++;
        if (!attribute && at < to && f->data[at] != '.' && f->data[at] != '[')
            fail(b->r, "format: malformed field");
    }
    return v;
}

static bool is_align(int32_t cp) {
    return cp == '<' || cp == '>' || cp == '=' || cp == '^';
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static struct spec read_spec(struct render *r, const char *p, const char *end) {
    struct spec spec = no_spec;
    int32_t cp = 0, next = 0;
    int width = p < end ? utf8_decode(p, (size_t)(end - p), &cp) : 0;
    if (p + width < end) utf8_decode(p + width, (size_t)(end - p - width), &next);
    if (width && is_align(next)) {
        spec.fill = cp;
        spec.align = (char)next;
        p += width + 1;
    } else if (is_align(cp)) {
        spec.align = *p++;
    }
    if (p < end && memchr("+- ", *p, 3)) spec.sign = *p++;
    if (p < end && *p == '#') {
        spec.alternate = true;
        p++;
    }
    if (p < end && *p == '0') {
        if (!spec.align) {
            spec.fill = '0';
            spec.align = '=';
        }
        p++;
    }
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if ((spec.width = spec.width * 10 + (*p - '0')) > MAX_WIDTH)
            fail(r, "format: a width is too large");
    if (p < end && (*p == ',' || *p == '_')) spec.group = *p++;
    if (p < end && *p == '.') {
        char *stop;
        long precision = p + 1 < end && p[1] >= '0' && p[1] <= '9' ? strtol(p + 1, &stop, 10) : -1;
        if (precision < 0 || precision > MAX_PRECISION) fail(r, "format: malformed precision");
        spec.precision = (int)precision;
        p = stop;
    }
    if (p < end) spec.type = *p++;
    if (p != end) fail(r, "format: malformed format specification");
    return spec;
}

static void format_integer(struct render *r, value v, const struct spec *spec) {
    if (spec->type && memchr("eEfFgG%", spec->type, 7)) {
        put_float(r, float_of(v), spec, v.origin);
        return;
    }
    if ((spec->type && !memchr("bcdoxX", spec->type, 6)) || spec->precision >= 0 ||
        (spec->type == 'c' && (spec->sign != '-' || spec->alternate || spec->group)))
        fail(r, "format: this is not supported for integers");
    if (spec->type == 'c') {
        put_text(r, char_of(r, v), spec, spec->align == '=' || !spec->align ? '>' : spec->align);
        return;
    }
    put_integer(r, int_of(v), spec, 1, v.origin);
}

static void format_value(struct render *r, value v, const struct str *text) {
    if (text->len == 0) {
        print_value(r, v);
        return;
    }
    if (memchr(text->data, 0, text->len)) fail(r, "format: malformed format specification");
    struct spec spec = read_spec(r, text->data, text->data + text->len);
    if (v.kind == V_STR) {
        if ((spec.type && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
            spec.alternate || spec.group)
            fail(r, "format: this is not supported for strings");
        put_text(r, v.s, &spec, spec.align ? spec.align : '<');
    } else if (is_integer(v)) {
        format_integer(r, v, &spec);
    } else if (v.kind == V_FLOAT) {
        if (spec.type && !memchr("eEfFgG%", spec.type, 7))
            fail(r, "format: this is not supported for floats");
        put_float(r, v.f, &spec, v.origin);
    } else {
        fail(r, "format: a value of type %s takes no format specification", kind_name(v));
    }
}

/* The field after '{' at `at`; returns where it ends, behind its '}'. */
static size_t put_field(struct braces *b, size_t at) {
    const struct str *f = b->format;
    size_t from = at, name_end;
    bool bracket = false;
    for (; at < f->len; at++) {
        char c = f->data[at];
        if (c == '[') bracket = true;
        if (c == ']') bracket = false;
        if (!bracket && (c == '}' || c == '!' || c == ':')) break;
        if (c == '{') fail(b->r, "format: unexpected '{' in a field");
    }
    name_end = at;
    if (at >= f->len) fail(b->r, "format: expected '}' before the end of the string");
    char conversion = 0;
    if (f->data[at] == '!') {
        conversion = at + 1 < f->len ? f->data[at + 1] : 0;
        at += 2;
        if (at >= f->len || (f->data[at] != '}' && f->data[at] != ':') ||
            (conversion != 's' && conversion != 'r'))
            fail(b->r, "format: malformed or unsupported conversion");
    }
    size_t spec = f->data[at] == ':' ? at + 1 : at;
    for (at = spec; at < f->len && f->data[at] != '}'; at++)
        if (f->data[at] == '{') fail(b->r, "format: fields in a specification are not supported");
    if (at >= f->len) fail(b->r, "format: expected '}' before the end of the string");
    value v = field_value(b, from, name_end);
    if (conversion == 's') v = val_str(to_str(b->r, v));
    if (conversion == 'r') v = val_str(repr_of(b->r, v));
    format_value(b->r, v, str_part(b->r, f, spec, at));
    return at + 1;
}

value format_braces(struct render *r, const struct str *format, struct call *args) {
    struct braces b = {.r = r, .format = format, .args = args};
    size_t mark = out_begin(r), plain = 0, at = 0;
    while (at < format->len) {
        char c = format->data[at];
        if (c != '{' && c != '}') {
            at++;
            continue;
        }
        out_part(r, format, plain, at);
        bool twice = at + 1 < format->len && format->data[at + 1] == c;
        if (twice) {
            out_part(r, format, at, at + 1);
            at += 2;
        } else if (c == '}') {
            fail(r, "format: single '}' in the format string");
        } else {
            at = put_field(&b, at + 1);
        }
        plain = at;
    }
    out_part(r, format, plain, format->len);
    return out_end(r, mark);
}
