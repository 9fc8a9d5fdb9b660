/* Arithmetic as in Python: / gives a float, // and % round down, integers mixed with floats become
 * floats. Integers are 64 bits: beyond that is an error, never a wrong number. */
#include "jinja_internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const op_names[] = {"+", "-", "*", "/", "//", "%", "**"};

static _Noreturn void fail_overflow(struct render *r) {
    fail(r, "integers beyond 64 bits are not supported");
}

static _Noreturn void fail_operands(struct render *r, enum op op, value a, value b) {
    if (a.kind == V_UNDEFINED) fail_undefined(r, a);
    if (b.kind == V_UNDEFINED) fail_undefined(r, b);
    if (a.kind == V_BIG || b.kind == V_BIG) fail_overflow(r);
    fail(r, "unsupported operand types for %s: %s and %s", op_names[op], kind_name(a),
         kind_name(b));
}

/* ---- integers ------------------------------------------------------------------------------- */

static int64_t floor_div(struct render *r, int64_t a, int64_t b) {
    if (b == 0) fail(r, "division by zero");
    if (a == INT64_MIN && b == -1) fail_overflow(r);
    int64_t q = a / b;
    return a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}

static int64_t floor_mod(struct render *r, int64_t a, int64_t b) {
    if (b == 0) fail(r, "division by zero");
    if (b == -1) return 0;
    int64_t m = a % b;
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static value power(struct render *r, value a, value b);

static int64_t int_power(struct render *r, int64_t base, int64_t exponent) {
    int64_t result = 1;
    for (bool more = exponent > 0; more;) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) fail_overflow(r);
        exponent >>= 1;
        more = exponent > 0;
        if (more && __builtin_mul_overflow(base, base, &base)) fail_overflow(r);
    }
    return result;
}

/* Both exact as floats, or the quotient could be off by a last place. */
static double true_div(struct render *r, int64_t a, int64_t b) {
    const int64_t exact = (int64_t)1 << 53;
    if (b == 0) fail(r, "division by zero");
    if (a > exact || a < -exact || b > exact || b < -exact) fail_overflow(r);
    return (double)a / (double)b;
}

static value int_arith(struct render *r, enum op op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case OP_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_DIV:
        return val_float(true_div(r, a, b));
    case OP_FLOORDIV:
        return val_int(floor_div(r, a, b));
    case OP_MOD:
        return val_int(floor_mod(r, a, b));
    default:
        if (b < 0) return power(r, val_float((double)a), val_float((double)b));
        return val_int(int_power(r, a, b));
    }
    if (overflow) fail_overflow(r);
    return val_int(result);
}

/* ---- floats --------------------------------------------------------------------------------- */

static double float_mod(struct render *r, double a, double b) {
    if (b == 0) fail(r, "division by zero");
    double m = fmod(a, b);
    if (m == 0) return copysign(0.0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

static double float_floor_div(struct render *r, double a, double b) {
    if (b == 0) fail(r, "division by zero");
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0)) q -= 1.0;
    if (q == 0) return copysign(0.0, a / b);
    double whole = floor(q);
    return q - whole > 0.5 ? whole + 1.0 : whole;
}

static value power(struct render *r, value a, value b) {
    if (a.f == 0 && b.f < 0) fail(r, "0.0 cannot be raised to a negative power");
    if (a.f < 0 && isfinite(a.f) && isfinite(b.f) && b.f != floor(b.f))
        fail(r, "complex numbers are not supported");
    double result = pow(a.f, b.f);
    if (isinf(result) && isfinite(a.f) && isfinite(b.f)) fail(r, "the result is too large");
    return val_float(result);
}

static value float_arith(struct render *r, enum op op, double a, double b) {
    switch (op) {
    case OP_ADD:
        return val_float(a + b);
    case OP_SUB:
        return val_float(a - b);
    case OP_MUL:
        return val_float(a * b);
    case OP_DIV:
        if (b == 0) fail(r, "division by zero");
        return val_float(a / b);
    case OP_FLOORDIV:
        return val_float(float_floor_div(r, a, b));
    case OP_MOD:
        return val_float(float_mod(r, a, b));
    default:
        return power(r, val_float(a), val_float(b));
    }
}

/* ---- any operands --------------------------------------------------------------------------- */

static value repeat(struct render *r, value sequence, value times) {
    int64_t n = MAX(int_of(times), 0);
    if (sequence.kind == V_STR) return str_times(r, sequence.s, n);
    size_t len = sequence.list->n;
    if (len && (uint64_t)n > r->limits.max_memory / len)
        fail_limit(r, "makes a list that is too long");
    value list = list_new(r, len * (size_t)n, sequence.kind);
    charge(r, list.list->n / 16);
    for (size_t i = 0; i < list.list->n; i++) list.list->items[i] = sequence.list->items[i % len];
    return list;
}

static bool is_sequence(value v) {
    return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE;
}

value arith(struct render *r, enum op op, value a, value b) {
    if (is_number(a) && is_number(b)) {
        value v = a.kind == V_FLOAT || b.kind == V_FLOAT
                      ? float_arith(r, op, float_of(a), float_of(b))
                      : int_arith(r, op, int_of(a), int_of(b));
        return taint(taint(v, a), b);
    }
    if (op == OP_ADD && a.kind == V_STR && b.kind == V_STR) return str_plus(r, a.s, b.s);
    if (op == OP_ADD && a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE))
        return list_plus(r, a, b);
    if (op == OP_MUL && is_sequence(a) && is_integer(b)) return repeat(r, a, b);
    if (op == OP_MUL && is_integer(a) && is_sequence(b)) return repeat(r, b, a);
    if (op == OP_MOD && a.kind == V_STR) return format_percent(r, a.s, b);
    fail_operands(r, op, a, b);
}

value negate(struct render *r, value v) {
    if (v.kind == V_UNDEFINED) fail_undefined(r, v);
    if (v.kind == V_FLOAT) return taint(val_float(-v.f), v);
    if (!is_integer(v)) fail(r, "bad operand type for unary -: %s", kind_name(v));
    if (int_of(v) == INT64_MIN) fail_overflow(r);
    return taint(val_int(-int_of(v)), v);
}

value positive(struct render *r, value v) {
    if (v.kind == V_UNDEFINED) fail_undefined(r, v);
    if (v.kind == V_FLOAT) return v;
    if (!is_integer(v)) fail(r, "bad operand type for unary +: %s", kind_name(v));
    return taint(val_int(int_of(v)), v);
}

/* Exactly, also where the integer is no float. */
static int compare_int_float(int64_t i, double f) {
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f; /* towards zero */
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

int compare_numbers(value a, value b, bool *unordered) {
    *unordered = (a.kind == V_FLOAT && isnan(a.f)) || (b.kind == V_FLOAT && isnan(b.f));
    if (*unordered) return 0;
    if (a.kind == V_FLOAT && b.kind == V_FLOAT) return (a.f > b.f) - (a.f < b.f);
    if (a.kind == V_FLOAT) return -compare_int_float(int_of(b), a.f);
    if (b.kind == V_FLOAT) return compare_int_float(int_of(a), b.f);
    return (int_of(a) > int_of(b)) - (int_of(a) < int_of(b));
}

/* ---- text and numbers ----------------------------------------------------------------------- */

/* The shortest digits that read back as f > 0, and the power of ten of the first. */
static int shortest_digits(double f, char digits[20], int *exponent) {
    char text[40];
    int n = 0;
    for (n = 1; n < 17; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, f);
        if (strtod(text, NULL) == f) break;
        /* Above a power of two floats are sparser: the next decimal up may do. */
        char *last = strchr(text, 'e') - 1;
        if (*last < '9') {
            ++*last;
            if (strtod(text, NULL) == f) break;
        }
    }
    if (n == 17) snprintf(text, sizeof text, "%.16e", f);
    digits[0] = text[0];
    if (n > 1) memcpy(digits + 1, text + 2, (size_t)n - 1);
    while (n > 1 && digits[n - 1] == '0') n--;
    *exponent = atoi(strchr(text, 'e') + 1);
    return n;
}

void print_float(double f, char out[40]) {
    char digits[20];
    int exponent, n = 0;
    if (isnan(f) || isinf(f)) {
        strcpy(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    if (signbit(f)) *out++ = '-';
    if (f == 0) {
        strcpy(out, "0.0");
        return;
    }
    n = shortest_digits(fabs(f), digits, &exponent);
    if (exponent < -4 || exponent >= 16) {
        out += sprintf(out, "%c", digits[0]);
        if (n > 1) out += sprintf(out, ".%.*s", n - 1, digits + 1);
        sprintf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        sprintf(out, "0.%.*s%.*s", -exponent - 1, "0000", n, digits);
    } else {
        int whole = exponent + 1;
        for (int i = 0; i < whole; i++) *out++ = i < n ? digits[i] : '0';
        if (n > whole)
            sprintf(out, ".%.*s", n - whole, digits + whole);
        else
            strcpy(out, ".0");
    }
}

/* s without whitespace around, and without '_' that stands between digits; false: malformed or too
 * long to be a number. */
static bool number_text(const struct str *s, char *out, size_t cap) {
    size_t from = 0, to = s->len, n = 0;
    for (int w; (w = space_at(s->data + from, to - from)) > 0;) from += (size_t)w;
    while (to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)s->data[start] & 0xc0) == 0x80) start--;
        if (!space_at(s->data + start, to - start)) break;
        to = start;
    }
    for (size_t i = from; i < to; i++) {
        char c = s->data[i];
        if (c == '_') {
            bool between = i > from && i + 1 < to && s->data[i - 1] != '_' &&
                           strchr("+-.eE_", s->data[i - 1]) == NULL &&
                           strchr("+-.eE_", s->data[i + 1]) == NULL;
            if (!between) return false;
            continue;
        }
        if (c == '\0' || (unsigned char)c >= 0x80 || n == cap - 1) return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return n > 0;
}

bool parse_int(const struct str *s, int base, int64_t *out, bool *too_big) {
    char text[400], *p = text, *end;
    *too_big = false;
    if (!number_text(s, text, sizeof text)) return false;
    bool negative = *p == '-';
    if (*p == '+' || *p == '-') p++;
    char mark = p[0] == '0' ? (char)(p[1] | 32) : 0;
    int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked && (base == 0 || base == marked)) {
        p += 2;
        base = marked;
    } else if (base == 0) {
        if (p[0] == '0' && strspn(p, "0") != strlen(p)) return false;
        base = 10;
    }
    if (base < 2 || base > 36 || !isalnum((unsigned char)*p)) return false;
    if (base == 16 && p[0] == '0' && (p[1] | 32) == 'x') return false;
    errno = 0;
    uint64_t magnitude = strtoull(p, &end, base);
    if (*end != '\0' || end == p) return false;
    *too_big = errno == ERANGE || magnitude > (uint64_t)INT64_MAX + negative;
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

bool parse_float(const struct str *s, double *out) {
    static const char *const words[] = {"inf", "infinity", "nan"};
    char text[400], *end;
    if (!number_text(s, text, sizeof text)) return false;
    const char *p = text + (*text == '+' || *text == '-');
    bool word = false;
    for (size_t i = 0; i < COUNT_OF(words); i++) word |= strcasecmp(p, words[i]) == 0;
    if (!word && (strspn(p, "0123456789.eE+-") != strlen(p) || *p == '+' || *p == '-'))
        return false;
    *out = strtod(text, &end);
    return *end == '\0' && end != text;
}

int64_t need_int(struct render *r, value v, const char *what) {
    if (v.kind == V_UNDEFINED) fail_undefined(r, v);
    if (!is_integer(v)) fail(r, "%s must be an integer, not %s", what, kind_name(v));
    return int_of(v);
}

/* Python's round(x, digits), by way of correctly rounded decimal text. */
double round_half_even(struct render *r, double x, int64_t digits) {
    char text[800];
    if (!isfinite(x) || x == 0 || digits > 400) return x;
    if (digits < -400) return copysign(0.0, x);
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, x);
        return strtod(text, NULL);
    }
    int place = (int)-digits, first;
    snprintf(text, sizeof text, "%.17e", fabs(x));
    first = atoi(strchr(text, 'e') + 1);
    if (first < place - 1) return copysign(0.0, x);
    if (first == place - 1) {
        snprintf(text, sizeof text, "5e%d", first);
        double half = strtod(text, NULL);
        if (fabs(x) <= half) return copysign(0.0, x);
        snprintf(text, sizeof text, "1e%d", place);
        return copysign(strtod(text, NULL), x);
    }
    snprintf(text, sizeof text, "%.*e", first - place, x);
    double rounded = strtod(text, NULL);
    if (isinf(rounded)) fail(r, "the rounded value is too large");
    return rounded;
}
