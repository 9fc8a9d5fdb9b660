/* Source to tokens. Outside of tags everything is data; which whitespace around a tag belongs to
 * the data is decided here, as Jinja does with trim_blocks and lstrip_blocks on:
 *
 *   {%- {{- {#-   removes all whitespace before          -%} -}} -#}  all whitespace after
 *   {% {#         removes blanks back to the line start   %} #}        one newline after
 *   {%+ {#+       keeps it                               +%} +#}      keeps it
 *
 * Newlines are normalised first, and one at the very end is dropped. */
#include "jinja_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unictype.h>

struct lexer {
    struct trap *trap;
    const char *text;
    size_t len, at;
    int line;
    bool line_start; /* nothing but a newline came just before */
    struct token *tokens;
    size_t n, cap;
    char open[JINJA_MAX_HEIGHT * 2]; /* brackets that are open */
    size_t n_open;
};

static bool is_space(int32_t cp) {
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

int space_at(const char *text, size_t len) {
    if (len == 0) return 0;
    int32_t cp;
    int width = utf8_decode(text, len, &cp);
    return is_space(cp) ? width : 0;
}

/* ---- the stream ----------------------------------------------------------------------------- */

static _Noreturn void lex_fail(struct lexer *l, const char *what) {
    l->trap->line = l->line;
    trap_fail(l->trap, ICP_EFORMAT, "%s", what);
}

static struct token *add(struct lexer *l, enum token_kind kind, size_t from, size_t to) {
    if (l->n == l->cap) {
        size_t cap = MAX(2 * l->cap, (size_t)64);
        struct token *tokens = trap_alloc(l->trap, cap * sizeof *tokens);
        if (l->n) memcpy(tokens, l->tokens, l->n * sizeof *tokens);
        l->tokens = tokens;
        l->cap = cap;
    }
    struct token *t = &l->tokens[l->n++];
    *t = (struct token){.kind = kind, .line = l->line, .data = l->text + from, .len = to - from};
    return t;
}

/* Moves to `to`, counting lines. */
static void advance(struct lexer *l, size_t to) {
    for (const char *p = l->text + l->at, *end = l->text + to;
         p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++)
        l->line++;
    l->line_start = to > l->at && l->text[to - 1] == '\n';
    l->at = to;
}

static bool looking_at(const struct lexer *l, size_t at, const char *what) {
    size_t len = strlen(what);
    return l->len - at >= len && memcmp(l->text + at, what, len) == 0;
}

static size_t skip_spaces(const struct lexer *l, size_t at) {
    for (int n; at < l->len && (n = space_at(l->text + at, l->len - at)) > 0;) at += (size_t)n;
    return at;
}

/* The end of a tag's closing mark that stands at `at`, with the whitespace it takes along; 0: there
 * is none. keep: a '+' before the mark is understood; newline: one newline goes with it. */
static size_t closing(const struct lexer *l, size_t at, const char *mark, bool keep, bool newline) {
    if (at < l->len && l->text[at] == '-' && looking_at(l, at + 1, mark))
        return skip_spaces(l, at + 3);
    if (keep && at < l->len && l->text[at] == '+' && looking_at(l, at + 1, mark)) return at + 3;
    if (!looking_at(l, at, mark)) return 0;
    at += 2;
    return newline && at < l->len && l->text[at] == '\n' ? at + 1 : at;
}

/* ---- data ----------------------------------------------------------------------------------- */

/* The data [from, to) before a tag with this sign. */
static void add_data(struct lexer *l, size_t from, size_t to, char sign, bool variable) {
    size_t end = to;
    if (sign == '-') {
        while (end > from) { /* back over whitespace, a character at a time */
            size_t start = end - 1;
            while (start > from && ((unsigned char)l->text[start] & 0xc0) == 0x80) start--;
            if (!space_at(l->text + start, end - start)) break;
            end = start;
        }
    } else if (sign != '+' && !variable) {
        const char *newline = to > from ? memrchr(l->text + from, '\n', to - from) : NULL;
        size_t start = newline ? (size_t)(newline + 1 - l->text) : from;
        if ((newline || l->line_start) && start < to) {
            size_t at = start;
            for (int n; at < to && (n = space_at(l->text + at, to - at)) > 0;) at += (size_t)n;
            if (at == to) end = start;
        }
    }
    if (end > from) add(l, T_DATA, from, end);
}

static char sign_at(const struct lexer *l, size_t at) {
    return at < l->len && (l->text[at] == '-' || l->text[at] == '+') ? l->text[at] : 0;
}

/* If the block tag at `at` is {% raw %}: the end of it, else 0. */
static size_t raw_begin(const struct lexer *l, size_t at) {
    at += 2;
    if (sign_at(l, at)) at++;
    at = skip_spaces(l, at);
    if (!looking_at(l, at, "raw")) return 0;
    return closing(l, skip_spaces(l, at + 3), "%}", false, false);
}

static void lex_raw(struct lexer *l, size_t begin_end) {
    advance(l, begin_end);
    for (size_t at = l->at; at + 1 < l->len; at++) {
        if (!looking_at(l, at, "{%")) continue;
        char sign = sign_at(l, at + 2);
        size_t word = skip_spaces(l, at + 2 + (sign != 0));
        if (!looking_at(l, word, "endraw")) continue;
        size_t end = closing(l, skip_spaces(l, word + 6), "%}", true, true);
        if (!end) continue;
        add_data(l, l->at, at, sign, false);
        advance(l, end);
        return;
    }
    if (l->at < l->len) lex_fail(l, "missing end of raw block");
}

static void lex_comment(struct lexer *l, size_t at) {
    advance(l, at);
    for (; at < l->len; at++) {
        if (l->text[at] != '#' && l->text[at] != '-' && l->text[at] != '+') continue;
        size_t end = closing(l, at, "#}", true, true);
        if (!end) continue;
        advance(l, end);
        return;
    }
    if (l->at < l->len) lex_fail(l, "missing end of comment");
}

/* ---- literals ------------------------------------------------------------------------------- */

static int hex_digits(const char *text, size_t len, int count, int32_t *cp) {
    *cp = 0;
    if (len < (size_t)count) return 0;
    for (int i = 0; i < count; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0) return 0;
        if (*cp > 0x10ffff) return 0;
        *cp = *cp * 16 + digit;
    }
    return count;
}

/* The escape after a backslash at text[0..len), len > 0, as in Python: appends what it means to out
 * and returns its length. */
static size_t unescape(struct lexer *l, const char *text, size_t len, char **out) {
    static const char plain[] = "\\'\"abfnrtv", meant[] = "\\'\"\a\b\f\n\r\t\v";
    char c = text[0];
    const char *found = c ? strchr(plain, c) : NULL;
    int32_t cp = 0;
    size_t used = 1;
    if (c == '\n') return 1;
    if (found) {
        *(*out)++ = meant[found - plain];
        return 1;
    }
    if (c >= '0' && c <= '7') {
        for (used = 0; used < 3 && used < len && text[used] >= '0' && text[used] <= '7'; used++)
            cp = cp * 8 + (text[used] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int n = hex_digits(text + 1, len - 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, &cp);
        if (!n || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
            lex_fail(l, "malformed \\x, \\u or \\U escape in a string");
        used += (size_t)n;
    } else if (c == 'N') {
        lex_fail(l, "\\N escapes are not supported");
    } else if ((unsigned char)c >= 0x80) { /* Python sees the escaped form of the character here */
        used = (size_t)utf8_decode(text, len, &cp);
        *out += sprintf(*out,
                        cp < 0x100     ? "\\x%02x"
                        : cp < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                        (unsigned)cp);
        return used;
    } else {
        *(*out)++ = '\\';
        *(*out)++ = c;
        return 1;
    }
    *out += utf8_encode(cp, *out);
    return used;
}

/* A string literal at `at`, which is its quote. */
static void lex_string(struct lexer *l, size_t at) {
    char quote = l->text[at];
    size_t end = at + 1, escapes = 0;
    while (end < l->len && l->text[end] != quote) {
        if (l->text[end] == '\\') {
            end++;
            escapes++;
        }
        end++;
    }
    if (end >= l->len) lex_fail(l, "a string has no end");
    struct token *t = add(l, T_STRING, at, end + 1);
    const char *data = l->text + at + 1;
    size_t len = end - at - 1;
    if (escapes) {
        char *text = trap_alloc(l->trap, len + escapes * 10), *out = text;
        for (size_t i = 0; i < len;)
            if (data[i] == '\\')
                i += 1 + unescape(l, data + i + 1, len - i - 1, &out);
            else
                *out++ = data[i++];
        data = text;
        len = (size_t)(out - text);
    }
    t->val = val_str(str_new(l->trap, data, len, TEXT_TEMPLATE));
    advance(l, end + 1);
}

/* Digits of a base with single '_' between them (and one before, if `lead`); the end of them. */
static size_t digits(const struct lexer *l, size_t at, int base, bool lead) {
    for (bool may_skip = lead; at < l->len; may_skip = true) {
        size_t next = at + (may_skip && l->text[at] == '_');
        int32_t digit;
        if (next >= l->len || !hex_digits(l->text + next, 1, 1, &digit) || digit >= base) break;
        at = next + 1;
    }
    return at;
}

/* The end of a float at `at`: at when there is none. */
static size_t float_end(const struct lexer *l, size_t at) {
    if (at > 0 && l->text[at - 1] == '.') return at;
    size_t whole = digits(l, at, 10, false), end = whole;
    if (whole == at) return at;
    if (end < l->len && l->text[end] == '.') {
        size_t fraction = digits(l, end + 1, 10, false);
        if (fraction > end + 1) end = fraction;
    }
    if (end < l->len && (l->text[end] | 32) == 'e') {
        size_t exponent = end + 1;
        if (exponent < l->len && (l->text[exponent] == '+' || l->text[exponent] == '-')) exponent++;
        size_t stop = digits(l, exponent, 10, false);
        if (stop > exponent) end = stop;
    }
    return end > whole ? end : at;
}

static size_t integer_end(const struct lexer *l, size_t at, int *base) {
    *base = 10;
    if (l->text[at] != '0') return digits(l, at, 10, false);
    char kind = at + 1 < l->len ? (char)(l->text[at + 1] | 32) : 0;
    *base = kind == 'b' ? 2 : kind == 'o' ? 8 : kind == 'x' ? 16 : 10;
    if (*base != 10) {
        size_t end = digits(l, at + 2, *base, true);
        if (end > at + 2) return end;
        *base = 10;
    }
    return digits(l, at, 1, false); /* zeros */
}

static void lex_number(struct lexer *l, size_t at) {
    char text[400];
    int base = 10;
    size_t end = float_end(l, at), n = 0;
    bool is_float = end > at;
    if (!is_float) end = integer_end(l, at, &base);
    struct token *t = add(l, T_NUMBER, at, end);
    for (size_t i = base == 10 ? at : at + 2; i < end; i++) {
        if (l->text[i] == '_') continue;
        if (n == sizeof text - 1) lex_fail(l, "a number is too long");
        text[n++] = l->text[i];
    }
    text[n] = '\0';
    errno = 0;
    t->val = is_float ? val_float(strtod(text, NULL)) : val_int(strtoll(text, NULL, base));
    if (!is_float && errno == ERANGE) lex_fail(l, "integers beyond 64 bits are not supported");
    advance(l, end);
}

/* A name at `at`; false: there is none. */
static bool lex_name(struct lexer *l, size_t at) {
    size_t end = at;
    bool valid = true;
    while (end < l->len) {
        int32_t cp;
        int width = utf8_decode(l->text + end, l->len - end, &cp);
        bool letter = cp == '_' || (cp > 0 && uc_is_property_xid_start((ucs4_t)cp));
        if (!letter && !(cp > 0 && (char_alnum(cp) || uc_is_property_xid_continue((ucs4_t)cp))))
            break;
        if (!letter && (end == at || !uc_is_property_xid_continue((ucs4_t)cp))) valid = false;
        end += (size_t)width;
    }
    if (end == at) return false;
    if (!valid) lex_fail(l, "invalid character in a name");
    add(l, T_NAME, at, end);
    advance(l, end);
    return true;
}

static void lex_operator(struct lexer *l, size_t at) {
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    char c = l->text[at];
    if (!strchr("+-/*%~[](){}<>=.:|,;!", c) || !c) lex_fail(l, "unexpected character in a tag");
    int op = c;
    for (size_t i = 0; i < COUNT_OF(two); i++)
        if (looking_at(l, at, two[i])) op = two[i][0] | two[i][1] << 8;
    if (op == '!') lex_fail(l, "unexpected character '!' in a tag");
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_open == sizeof l->open) lex_fail(l, "brackets are nested too deeply");
        l->open[l->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (!l->n_open || l->open[--l->n_open] != c) lex_fail(l, "unexpected closing bracket");
    }
    size_t end = at + (op > 0xff ? 2 : 1);
    add(l, T_OPERATOR, at, end)->op = op;
    advance(l, end);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The inside of a tag up to and with its closing mark. */
static void lex_tag(struct lexer *l, bool variable) {
    const char *mark = variable ? "}}" : "%}";
    while (l->at < l->len) {
        size_t end = l->n_open ? 0 : closing(l, l->at, mark, !variable, !variable);
        if (end) {
            add(l, variable ? T_VARIABLE_END : T_BLOCK_END, l->at, end);
            advance(l, end);
            return;
        }
        unsigned char c = (unsigned char)l->text[l->at];
        size_t after = skip_spaces(l, l->at);
        if (after > l->at)
            advance(l, after);
        else if (c >= '0' && c <= '9')
            lex_number(l, l->at);
        else if (c == '\'' || c == '"')
            lex_string(l, l->at);
        else if (!lex_name(l, l->at))
            lex_operator(l, l->at);
    }
}

static void lex_all(struct lexer *l) {
    while (l->at < l->len) {
        size_t at = l->at;
        for (const char *p; at < l->len; at++) {
            p = memchr(l->text + at, '{', l->len - at);
            at = p ? (size_t)(p - l->text) : l->len;
            if (at + 1 < l->len && strchr("{%#", l->text[at + 1]) && l->text[at + 1]) break;
        }
        if (at >= l->len) {
            add(l, T_DATA, l->at, l->len);
            advance(l, l->len);
            return;
        }
        char kind = l->text[at + 1];
        char sign = sign_at(l, at + 2);
        size_t raw = kind == '%' ? raw_begin(l, at) : 0;
        add_data(l, l->at, at, sign, kind == '{');
        if (raw) {
            lex_raw(l, raw);
            continue;
        }
        advance(l, at);
        size_t begin = at + 2 + (sign != 0);
        if (kind == '#') {
            lex_comment(l, begin);
            continue;
        }
        add(l, kind == '{' ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN, at, begin);
        advance(l, begin);
        lex_tag(l, kind == '{');
    }
}

/* A copy with \n for every \r\n and \r, without one newline at the end. */
static void normalise(struct lexer *l, const char *source, size_t len) {
    char *text = trap_alloc(l->trap, len + 1);
    size_t n = 0;
    int32_t cp;
    for (size_t i = 0; i < len;) {
        int width = utf8_decode(source + i, len - i, &cp);
        if (cp < 0) lex_fail(l, "the template is not valid UTF-8");
        if (cp == '\n') l->line++;
        if (cp == '\r') {
            text[n++] = '\n';
            i += i + 1 < len && source[i + 1] == '\n' ? 2 : 1;
            continue;
        }
        memcpy(text + n, source + i, (size_t)width);
        n += (size_t)width;
        i += (size_t)width;
    }
    if (n && text[n - 1] == '\n') n--;
    text[n] = '\0';
    l->text = text;
    l->len = n;
    l->line = 1;
}

struct token *lex(struct trap *t, const char *source, size_t len) {
    struct lexer *l = trap_zero(t, sizeof *l);
    *l = (struct lexer){.trap = t, .line = 1, .line_start = true};
    normalise(l, source, len);
    lex_all(l);
    add(l, T_EOF, l->len, l->len);
    return l->tokens;
}
