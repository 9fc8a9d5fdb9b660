/* Case and classes of characters, as Python's str has them: full case mappings of Unicode, one
 * character at a time so that origins stay with their characters. */
#include "jinja_internal.h"

#include <unicase.h>
#include <unictype.h>

enum { LONGEST_MAPPING = 16 }; /* bytes; Unicode's are at most three characters */

static int32_t char_at(const struct str *s, size_t at, size_t *width) {
    int32_t cp;
    *width = (size_t)utf8_decode(s->data + at, s->len - at, &cp);
    return cp;
}

static bool is_cased(int32_t cp) {
    return uc_is_property_cased((ucs4_t)cp);
}

static bool is_ignorable(int32_t cp) {
    return uc_is_property_case_ignorable((ucs4_t)cp);
}

/* A capital sigma at `at` ends a word (Unicode, Final_Sigma): a cased letter before, none after. */
static bool is_final_sigma(struct render *r, const struct str *s, size_t at) {
    size_t width, i = at;
    bool before = false;
    while (i > 0) {
        i--;
        while (i > 0 && ((unsigned char)s->data[i] & 0xc0) == 0x80) i--;
        int32_t cp = char_at(s, i, &width);
        before = is_cased(cp);
        charge(r, 1);
        if (!is_ignorable(cp)) break;
        before = false;
    }
    if (!before) return false;
    char_at(s, at, &width);
    for (i = at + width; i < s->len; i += width) {
        int32_t cp = char_at(s, i, &width);
        charge(r, 1);
        if (!is_ignorable(cp)) return !is_cased(cp);
    }
    return true;
}

static void put_mapped(struct render *r, const struct str *s, size_t at, size_t width,
                       enum case_change how) {
    uint8_t mapped[LONGEST_MAPPING];
    size_t len = sizeof mapped;
    const uint8_t *in = (const uint8_t *)s->data + at;
    uint8_t *out = how == CASE_UPPER   ? u8_toupper(in, width, NULL, NULL, mapped, &len)
                   : how == CASE_TITLE ? u8_totitle(in, width, NULL, NULL, mapped, &len)
                   : how == CASE_FOLD  ? u8_casefold(in, width, NULL, NULL, mapped, &len)
                                       : u8_tolower(in, width, NULL, NULL, mapped, &len);
    if (out != mapped) trap_fail(&r->trap, ICP_EBUG, "a case mapping is longer than expected");
    out_put(r, (const char *)mapped, len, s->marks ? s->marks[at] : s->origin);
}

static void put_lower(struct render *r, const struct str *s, size_t at, size_t width, int32_t cp) {
    enum { CAPITAL_SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };
    if (cp == CAPITAL_SIGMA && is_final_sigma(r, s, at))
        out_char(r, FINAL_SIGMA, s->marks ? s->marks[at] : s->origin);
    else
        put_mapped(r, s, at, width, CASE_LOWER);
}

static enum case_change change_of(enum case_change how, int32_t cp, size_t at, bool after_cased) {
    switch (how) {
    case CASE_SWAP:
        return uc_is_property_uppercase((ucs4_t)cp)   ? CASE_LOWER
               : uc_is_property_lowercase((ucs4_t)cp) ? CASE_UPPER
                                                      : CASE_SWAP;
    case CASE_TITLE:
        return after_cased ? CASE_LOWER : CASE_TITLE;
    case CASE_CAPITALIZE:
        return at == 0 ? CASE_TITLE : CASE_LOWER;
    default:
        return how;
    }
}

value str_case(struct render *r, const struct str *s, enum case_change how) {
    size_t mark = out_begin(r), width;
    bool after_cased = false;
    charge(r, s->len / 8);
    for (size_t at = 0; at < s->len; at += width) {
        int32_t cp = char_at(s, at, &width);
        enum case_change change = change_of(how, cp, at, after_cased);
        after_cased = is_cased(cp);
        if (change == CASE_SWAP)
            out_put(r, s->data + at, width, s->marks ? s->marks[at] : s->origin);
        else if (change == CASE_LOWER)
            put_lower(r, s, at, width, cp);
        else
            put_mapped(r, s, at, width, change);
    }
    return val_str(str_as_markup(r, out_end(r, mark).s, s->markup));
}

/* ---- classes -------------------------------------------------------------------------------- */

bool char_printable(int32_t cp) {
    if (cp < 0x7f) return cp >= 0x20;
    return !uc_is_general_category_withtable((ucs4_t)cp, UC_CATEGORY_MASK_C | UC_CATEGORY_MASK_Z);
}

bool char_alpha(int32_t cp) {
    return uc_is_general_category_withtable((ucs4_t)cp, UC_CATEGORY_MASK_L);
}

static bool is_numeric(int32_t cp) {
    return uc_numeric_value((ucs4_t)cp).denominator != 0;
}

bool char_alnum(int32_t cp) {
    return char_alpha(cp) || is_numeric(cp);
}

static bool is_title_char(int32_t cp) {
    return uc_is_general_category_withtable((ucs4_t)cp, UC_CATEGORY_MASK_Lt);
}

static bool char_is(const struct str *s, size_t at, size_t width, int32_t cp, enum char_test test) {
    switch (test) {
    case IS_ALNUM:
        return char_alnum(cp);
    case IS_ALPHA:
        return char_alpha(cp);
    case IS_DECIMAL:
        return uc_decimal_value((ucs4_t)cp) >= 0;
    case IS_DIGIT:
        return uc_digit_value((ucs4_t)cp) >= 0;
    case IS_NUMERIC:
        return is_numeric(cp);
    case IS_PRINTABLE:
        return char_printable(cp);
    case IS_SPACE:
        return space_at(s->data + at, width) > 0;
    default:
        return cp < 0x80;
    }
}

/* islower, isupper, istitle: no letter of the wrong case, and at least one of the right. */
static bool test_case(const struct str *s, enum char_test test) {
    bool any = false, after_cased = false;
    size_t width;
    for (size_t at = 0; at < s->len; at += width) {
        int32_t cp = char_at(s, at, &width);
        bool upper = uc_is_property_uppercase((ucs4_t)cp), title = is_title_char(cp);
        bool lower = uc_is_property_lowercase((ucs4_t)cp);
        if (test == IS_TITLE) {
            if ((upper || title) && after_cased) return false;
            if (lower && !after_cased) return false;
            after_cased = upper || title || lower;
            any |= after_cased;
            continue;
        }
        if (title || (test == IS_LOWER ? upper : lower)) return false;
        any |= test == IS_LOWER ? lower : upper;
    }
    return any;
}

bool str_test(struct render *r, const struct str *s, enum char_test test) {
    size_t width;
    charge(r, s->len / 16);
    if (test == IS_LOWER || test == IS_UPPER || test == IS_TITLE) return test_case(s, test);
    for (size_t at = 0; at < s->len; at += width) {
        int32_t cp = char_at(s, at, &width);
        if (!char_is(s, at, width, cp, test)) return false;
    }
    return s->len > 0 || test == IS_ASCII || test == IS_PRINTABLE;
}
