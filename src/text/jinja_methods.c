/* Methods of Python's str, dict, list and tuple, and of loops and cyclers. Those that would change
 * a list or dict are known but forbidden, as in Jinja's sandbox. */
#include "jinja_internal.h"

/* ---- arguments ------------------------------------------------------------------------------ */

static const struct str *need_str(struct render *r, value v, const char *what) {
    if (v.kind == V_UNDEFINED) fail_undefined(r, v);
    if (v.kind != V_STR) fail(r, "%s must be a string, not %s", what, kind_name(v));
    return v.s;
}

static const struct str *optional_str(struct render *r, value v, const char *what) {
    return given(v) && v.kind != V_NONE ? need_str(r, v, what) : NULL;
}

struct window {
    size_t from, to; /* bytes */
    size_t from_char;
    bool valid; /* from was not beyond the end */
};

static int64_t bound(struct render *r, value v, int64_t n, int64_t otherwise) {
    if (!given(v) || v.kind == V_NONE) return otherwise;
    int64_t i = need_int(r, v, "a position");
    return i < 0 ? MAX(i + n, 0) : i;
}

/* start and end of find, count, startswith … */
static struct window window_of(struct render *r, const struct str *s, value start, value end) {
    int64_t n = (int64_t)str_chars(r, s);
    int64_t from = bound(r, start, n, 0), to = bound(r, end, n, n);
    if (to > n) to = n;
    if (from > to) return (struct window){.valid = false};
    return (struct window){str_offset(s, (size_t)from), str_offset(s, (size_t)to), (size_t)from,
                           true};
}

/* ---- searching ------------------------------------------------------------------------------ */

static int64_t find(struct render *r, value *v, bool backwards) {
    const struct str *s = v[0].s, *what = need_str(r, v[1], "the string to find");
    struct window w = window_of(r, s, v[2], v[3]);
    if (!w.valid) return -1;
    size_t at =
        backwards ? str_rfind(r, s, w.from, w.to, what) : str_find(r, s, w.from, w.to, what);
    if (at == SIZE_MAX) return -1;
    return (int64_t)(w.from_char + str_chars(r, str_part(r, s, w.from, at)));
}

static value str_method_find(struct render *r, value *v, struct call *c) {
    return val_int(find(r, v, false));
}

static value str_method_rfind(struct render *r, value *v, struct call *c) {
    return val_int(find(r, v, true));
}

static value found_or_fail(struct render *r, int64_t at) {
    if (at < 0) fail(r, "substring not found");
    return val_int(at);
}

static value str_method_index(struct render *r, value *v, struct call *c) {
    return found_or_fail(r, find(r, v, false));
}

static value str_method_rindex(struct render *r, value *v, struct call *c) {
    return found_or_fail(r, find(r, v, true));
}

static value str_method_count(struct render *r, value *v, struct call *c) {
    const struct str *s = v[0].s, *what = need_str(r, v[1], "the string to count");
    struct window w = window_of(r, s, v[2], v[3]);
    int64_t n = 0;
    if (!w.valid) return val_int(0);
    if (what->len == 0) return val_int((int64_t)str_chars(r, str_part(r, s, w.from, w.to)) + 1);
    for (size_t at; (at = str_find(r, s, w.from, w.to, what)) != SIZE_MAX; n++) {
        charge(r, 1);
        w.from = at + what->len;
    }
    return val_int(n);
}

static bool has_affix(const struct str *s, struct window w, const struct str *affix, bool end) {
    if (!w.valid || w.to - w.from < affix->len) return false;
    const char *at = s->data + (end ? w.to - affix->len : w.from);
    return memcmp(at, affix->data, affix->len) == 0;
}

static value test_affix(struct render *r, value *v, bool end) {
    struct window w = window_of(r, v[0].s, v[2], v[3]);
    if (v[1].kind != V_TUPLE)
        return val_bool(has_affix(v[0].s, w, need_str(r, v[1], "the affix"), end));
    for (size_t i = 0; i < v[1].list->n; i++) {
        charge(r, 1);
        if (has_affix(v[0].s, w, need_str(r, v[1].list->items[i], "the affix"), end))
            return val_bool(true);
    }
    return val_bool(false);
}

static value str_method_startswith(struct render *r, value *v, struct call *c) {
    return test_affix(r, v, false);
}

static value str_method_endswith(struct render *r, value *v, struct call *c) {
    return test_affix(r, v, true);
}

static value str_method_removeprefix(struct render *r, value *v, struct call *c) {
    const struct str *s = v[0].s, *affix = need_str(r, v[1], "the prefix");
    struct window all = {0, s->len, 0, true};
    return val_str(has_affix(s, all, affix, false) ? str_part(r, s, affix->len, s->len) : s);
}

static value str_method_removesuffix(struct render *r, value *v, struct call *c) {
    const struct str *s = v[0].s, *affix = need_str(r, v[1], "the suffix");
    struct window all = {0, s->len, 0, true};
    return val_str(has_affix(s, all, affix, true) ? str_part(r, s, 0, s->len - affix->len) : s);
}

/* ---- splitting and joining ------------------------------------------------------------------ */

static void push_part(struct render *r, struct list *l, const struct str *s, size_t from,
                      size_t to) {
    list_push(r, l, val_str(str_part(r, s, from, to)));
}

static size_t skip_space(const struct str *s, size_t at, bool space) {
    while (at < s->len) {
        int32_t cp;
        int width = utf8_decode(s->data + at, s->len - at, &cp);
        if ((space_at(s->data + at, s->len - at) > 0) != space) break;
        at += (size_t)width;
    }
    return at;
}

static size_t skip_space_back(const struct str *s, size_t at, bool space) {
    while (at > 0) {
        size_t start = at - 1;
        while (start > 0 && ((unsigned char)s->data[start] & 0xc0) == 0x80) start--;
        if ((space_at(s->data + start, at - start) > 0) != space) break;
        at = start;
    }
    return at;
}

static void split_space(struct render *r, const struct str *s, int64_t most, struct list *l) {
    size_t at = skip_space(s, 0, true);
    for (; at < s->len && most != 0; most--) {
        size_t end = skip_space(s, at, false);
        push_part(r, l, s, at, end);
        at = skip_space(s, end, true);
    }
    if (at < s->len) push_part(r, l, s, at, s->len);
}

static void rsplit_space(struct render *r, const struct str *s, int64_t most, struct list *l) {
    size_t at = skip_space_back(s, s->len, true);
    for (; at > 0 && most != 0; most--) {
        size_t start = skip_space_back(s, at, false);
        push_part(r, l, s, start, at);
        at = skip_space_back(s, start, true);
    }
    if (at > 0) push_part(r, l, s, 0, at);
}

static void split_at(struct render *r, const struct str *s, const struct str *sep, int64_t most,
                     struct list *l) {
    size_t at = 0, found;
    for (; most != 0 && (found = str_find(r, s, at, s->len, sep)) != SIZE_MAX; most--) {
        push_part(r, l, s, at, found);
        at = found + sep->len;
    }
    push_part(r, l, s, at, s->len);
}

static void rsplit_at(struct render *r, const struct str *s, const struct str *sep, int64_t most,
                      struct list *l) {
    size_t end = s->len, found;
    for (; most != 0 && (found = str_rfind(r, s, 0, end, sep)) != SIZE_MAX; most--) {
        push_part(r, l, s, found + sep->len, end);
        end = found;
    }
    push_part(r, l, s, 0, end);
}

static void reverse_items(struct list *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        value swap = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = swap;
    }
}

static value split(struct render *r, value *v, bool backwards) {
    const struct str *s = v[0].s, *sep = optional_str(r, v[1], "the separator");
    int64_t most = given(v[2]) ? need_int(r, v[2], "maxsplit") : -1;
    struct list *l = list_start(r);
    if (sep && sep->len == 0) fail(r, "empty separator");
    if (sep)
        (backwards ? rsplit_at : split_at)(r, s, sep, most, l);
    else
        (backwards ? rsplit_space : split_space)(r, s, most, l);
    if (backwards) reverse_items(l);
    return list_done(l);
}

static value str_method_split(struct render *r, value *v, struct call *c) {
    return split(r, v, false);
}

static value str_method_rsplit(struct render *r, value *v, struct call *c) {
    return split(r, v, true);
}

static bool is_line_end(int32_t cp) {
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

value split_lines(struct render *r, const struct str *s, bool keep) {
    struct list *l = list_start(r);
    size_t start = 0;
    int32_t cp;
    charge(r, s->len / 16);
    for (size_t at = 0, width; at < s->len; at += width) {
        width = (size_t)utf8_decode(s->data + at, s->len - at, &cp);
        if (!is_line_end(cp)) continue;
        size_t end = at;
        if (cp == '\r' && at + 1 < s->len && s->data[at + 1] == '\n') width = 2;
        push_part(r, l, s, start, keep ? at + width : end);
        start = at + width;
    }
    if (start < s->len) push_part(r, l, s, start, s->len);
    return list_done(l);
}

static value str_method_splitlines(struct render *r, value *v, struct call *c) {
    return split_lines(r, v[0].s, given(v[1]) && truth(r, v[1]));
}

static value partition(struct render *r, value *v, bool backwards) {
    const struct str *s = v[0].s, *sep = need_str(r, v[1], "the separator");
    if (sep->len == 0) fail(r, "empty separator");
    size_t at = backwards ? str_rfind(r, s, 0, s->len, sep) : str_find(r, s, 0, s->len, sep);
    value whole = val_str(s), empty = val_str(str_part(r, s, 0, 0));
    if (at == SIZE_MAX) {
        value none[] = {backwards ? empty : whole, empty, backwards ? whole : empty};
        return list_of(r, none, 3, V_TUPLE);
    }
    value parts[] = {val_str(str_part(r, s, 0, at)), v[1],
                     val_str(str_part(r, s, at + sep->len, s->len))};
    return list_of(r, parts, 3, V_TUPLE);
}

static value str_method_partition(struct render *r, value *v, struct call *c) {
    return partition(r, v, false);
}

static value str_method_rpartition(struct render *r, value *v, struct call *c) {
    return partition(r, v, true);
}

static void forbid_markup(struct render *r, const struct str *s) {
    if (s->markup) fail(r, "this method is not supported on text marked as safe");
}

static value str_method_join(struct render *r, value *v, struct call *c) {
    struct iter *it = iter_of(r, v[1]);
    bool more = false;
    forbid_markup(r, v[0].s);
    size_t mark = out_begin(r);
    for (value item; iter_next(r, it, &item); more = true) {
        if (more) out_str(r, v[0].s);
        out_str(r, need_str(r, item, "an item of join"));
    }
    return out_end(r, mark);
}

/* ---- changing ------------------------------------------------------------------------------- */

static value str_method_strip(struct render *r, value *v, struct call *c) {
    return val_str(str_strip(r, v[0].s, optional_str(r, v[1], "chars"), STRIP_BOTH));
}

static value str_method_lstrip(struct render *r, value *v, struct call *c) {
    return val_str(str_strip(r, v[0].s, optional_str(r, v[1], "chars"), STRIP_LEFT));
}

static value str_method_rstrip(struct render *r, value *v, struct call *c) {
    return val_str(str_strip(r, v[0].s, optional_str(r, v[1], "chars"), STRIP_RIGHT));
}

static value str_method_replace(struct render *r, value *v, struct call *c) {
    const struct str *s = v[0].s, *old = need_str(r, v[1], "old");
    const struct str *with = need_str(r, v[2], "new");
    int64_t count = given(v[3]) ? need_int(r, v[3], "count") : -1;
    if (s->markup && !with->markup) with = str_escape(r, with).s;
    return val_str(str_as_markup(r, str_replace(r, s, old, with, count).s, s->markup));
}

static value str_method_upper(struct render *r, value *v, struct call *c) {
    return str_case(r, v[0].s, CASE_UPPER);
}

static value str_method_lower(struct render *r, value *v, struct call *c) {
    return str_case(r, v[0].s, CASE_LOWER);
}

static value str_method_title(struct render *r, value *v, struct call *c) {
    return str_case(r, v[0].s, CASE_TITLE);
}

static value str_method_capitalize(struct render *r, value *v, struct call *c) {
    return str_case(r, v[0].s, CASE_CAPITALIZE);
}

static value str_method_swapcase(struct render *r, value *v, struct call *c) {
    return str_case(r, v[0].s, CASE_SWAP);
}

static value str_method_casefold(struct render *r, value *v, struct call *c) {
    return str_case(r, v[0].s, CASE_FOLD);
}

value str_pad(struct render *r, const struct str *s, int64_t width, const struct str *fill,
              enum strip_side side) {
    int64_t n = (int64_t)str_chars(r, s), pad = MAX(width - n, 0);
    int64_t left = side == STRIP_LEFT ? pad : side == STRIP_RIGHT ? 0 : pad / 2 + (pad & width & 1);
    if (pad == 0) return val_str(s);
    size_t mark = out_begin(r);
    out_fill(r, fill, (size_t)left);
    out_str(r, s);
    out_fill(r, fill, (size_t)(pad - left));
    return val_str(str_as_markup(r, out_end(r, mark).s, s->markup));
}

static value pad(struct render *r, value *v, enum strip_side side) {
    const struct str *fill =
        given(v[2]) ? need_str(r, v[2], "the fill character") : str_literal(r, " ").s;
    if (str_chars(r, fill) != 1) fail(r, "the fill character must be exactly one character long");
    return str_pad(r, v[0].s, need_int(r, v[1], "the width"), fill, side);
}

static value str_method_center(struct render *r, value *v, struct call *c) {
    return pad(r, v, STRIP_BOTH);
}

static value str_method_ljust(struct render *r, value *v, struct call *c) {
    return pad(r, v, STRIP_RIGHT);
}

static value str_method_rjust(struct render *r, value *v, struct call *c) {
    return pad(r, v, STRIP_LEFT);
}

static value str_method_zfill(struct render *r, value *v, struct call *c) {
    const struct str *s = v[0].s;
    int64_t missing = need_int(r, v[1], "the width") - (int64_t)str_chars(r, s);
    if (missing <= 0) return v[0];
    bool sign = s->len && (s->data[0] == '+' || s->data[0] == '-');
    size_t mark = out_begin(r);
    out_part(r, s, 0, sign);
    out_fill(r, str_literal(r, "0").s, (size_t)missing);
    out_part(r, s, sign, s->len);
    return val_str(str_as_markup(r, out_end(r, mark).s, s->markup));
}

static value str_method_expandtabs(struct render *r, value *v, struct call *c) {
    const struct str *s = v[0].s;
    int64_t size = given(v[1]) ? need_int(r, v[1], "the tab size") : 8, column = 0;
    size_t mark = out_begin(r);
    int32_t cp;
    for (size_t at = 0, width; at < s->len; at += width) {
        width = (size_t)utf8_decode(s->data + at, s->len - at, &cp);
        charge(r, 1);
        if (cp == '\t') {
            int64_t spaces = size > 0 ? size - column % size : 0;
            out_fill(r, str_literal(r, " ").s, (size_t)spaces);
            column += spaces;
            continue;
        }
        out_part(r, s, at, at + width);
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
    return val_str(str_as_markup(r, out_end(r, mark).s, s->markup));
}

static value str_method_format(struct render *r, value *v, struct call *c) {
    forbid_markup(r, v[0].s);
    return format_braces(r, v[0].s, c);
}

static value str_method_format_map(struct render *r, value *v, struct call *c) {
    struct call args;
    forbid_markup(r, v[0].s);
    if (v[1].kind != V_DICT) fail(r, "format_map needs a dict");
    call_init(&args);
    for (size_t i = 0; i < v[1].dict->n; i++) {
        const struct entry *e = &v[1].dict->entries[i];
        if (e->key.kind == V_STR) call_push_kw(r, &args, e->key.s, e->val);
    }
    return format_braces(r, v[0].s, &args);
}

#define STR_TEST(name, test)                                                                       \
    static value str_method_##name(struct render *r, value *v, struct call *c) {                   \
        return val_bool(str_test(r, v[0].s, test));                                                \
    }
STR_TEST(isalnum, IS_ALNUM)
STR_TEST(isalpha, IS_ALPHA)
STR_TEST(isascii, IS_ASCII)
STR_TEST(isdecimal, IS_DECIMAL)
STR_TEST(isdigit, IS_DIGIT)
STR_TEST(islower, IS_LOWER)
STR_TEST(isnumeric, IS_NUMERIC)
STR_TEST(isprintable, IS_PRINTABLE)
STR_TEST(isspace, IS_SPACE)
STR_TEST(istitle, IS_TITLE)
STR_TEST(isupper, IS_UPPER)
#undef STR_TEST

/* ---- dicts, lists, loops -------------------------------------------------------------------- */

static value dict_method_get(struct render *r, value *v, struct call *c) {
    value found;
    if (dict_get(r, v[0].dict, v[1], &found)) return found;
    return given(v[2]) ? v[2] : val_none();
}

static value view(value dict, enum view_of what) {
    return (value){.kind = V_VIEW, .aux = (uint8_t)what, .dict = dict.dict};
}

static value dict_method_keys(struct render *r, value *v, struct call *c) {
    return view(v[0], VIEW_KEYS);
}

static value dict_method_values(struct render *r, value *v, struct call *c) {
    return view(v[0], VIEW_VALUES);
}

static value dict_method_items(struct render *r, value *v, struct call *c) {
    return view(v[0], VIEW_ITEMS);
}

/* Nothing can change the one or the other. */
static value method_copy(struct render *r, value *v, struct call *c) {
    return v[0];
}

static value list_method_count(struct render *r, value *v, struct call *c) {
    int64_t n = 0;
    struct iter *it = iter_of(r, v[0]);
    for (value item; iter_next(r, it, &item);) n += equal(r, item, v[1]);
    return val_int(n);
}

static value list_method_index(struct render *r, value *v, struct call *c) {
    int64_t n = (int64_t)v[0].list->n, from = bound(r, v[2], n, 0), to = bound(r, v[3], n, n);
    for (int64_t i = from; i < MIN(to, n); i++)
        if (equal(r, v[0].list->items[i], v[1])) return val_int(i);
    fail(r, "the item is not in the list");
}

static value loop_method_cycle(struct render *r, value *v, struct call *c) {
    if (!c->n_pos || c->n_kw) fail(r, "no items for cycling given");
    return c->pos[v[0].loop->index0 % (int64_t)c->n_pos];
}

static value loop_method_changed(struct render *r, value *v, struct call *c) {
    value now = list_of(r, c->pos, c->n_pos, V_TUPLE);
    struct loop *loop = v[0].loop;
    bool changed = !given(loop->changed) || !equal(r, loop->changed, now);
    if (c->n_kw) fail(r, "loop.changed takes no keyword arguments");
    loop->changed = now;
    return val_bool(changed);
}

static value cycler_method_next(struct render *r, value *v, struct call *c) {
    struct cycler *cycler = v[0].cycler;
    value now = cycler->items.items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items.n;
    return now;
}

static value cycler_method_reset(struct render *r, value *v, struct call *c) {
    v[0].cycler->at = 0;
    return val_none();
}

/* ---- tables --------------------------------------------------------------------------------- */

static const struct builtin str_methods[] = {
    {"capitalize", str_method_capitalize, "/"},
    {"casefold", str_method_casefold, "/"},
    {"center", str_method_center, "/ width ?fill"},
    {"count", str_method_count, "/ sub ?start ?end"},
    {"encode", unsupported, "*"},
    {"endswith", str_method_endswith, "/ suffix ?start ?end"},
    {"expandtabs", str_method_expandtabs, "?tabsize"},
    {"find", str_method_find, "/ sub ?start ?end"},
    {"format", str_method_format, "*"},
    {"format_map", str_method_format_map, "/ mapping"},
    {"index", str_method_index, "/ sub ?start ?end"},
    {"isalnum", str_method_isalnum, "/"},
    {"isalpha", str_method_isalpha, "/"},
    {"isascii", str_method_isascii, "/"},
    {"isdecimal", str_method_isdecimal, "/"},
    {"isdigit", str_method_isdigit, "/"},
    {"isidentifier", unsupported, "*"},
    {"islower", str_method_islower, "/"},
    {"isnumeric", str_method_isnumeric, "/"},
    {"isprintable", str_method_isprintable, "/"},
    {"isspace", str_method_isspace, "/"},
    {"istitle", str_method_istitle, "/"},
    {"isupper", str_method_isupper, "/"},
    {"join", str_method_join, "/ iterable"},
    {"ljust", str_method_ljust, "/ width ?fill"},
    {"lower", str_method_lower, "/"},
    {"lstrip", str_method_lstrip, "/ ?chars"},
    {"maketrans", unsupported, "*"},
    {"partition", str_method_partition, "/ sep"},
    {"removeprefix", str_method_removeprefix, "/ prefix"},
    {"removesuffix", str_method_removesuffix, "/ suffix"},
    {"replace", str_method_replace, "/ old new ?count"},
    {"rfind", str_method_rfind, "/ sub ?start ?end"},
    {"rindex", str_method_rindex, "/ sub ?start ?end"},
    {"rjust", str_method_rjust, "/ width ?fill"},
    {"rpartition", str_method_rpartition, "/ sep"},
    {"rsplit", str_method_rsplit, "?sep ?maxsplit"},
    {"rstrip", str_method_rstrip, "/ ?chars"},
    {"split", str_method_split, "?sep ?maxsplit"},
    {"splitlines", str_method_splitlines, "?keepends"},
    {"startswith", str_method_startswith, "/ prefix ?start ?end"},
    {"strip", str_method_strip, "/ ?chars"},
    {"swapcase", str_method_swapcase, "/"},
    {"title", str_method_title, "/"},
    {"translate", unsupported, "*"},
    {"upper", str_method_upper, "/"},
    {"zfill", str_method_zfill, "/ width"},
    {0}};

/* No function: forbidden, because it would change its object. */
static const struct builtin dict_methods[] = {{"get", dict_method_get, "/ key ?default"},
                                              {"items", dict_method_items, "/"},
                                              {"keys", dict_method_keys, "/"},
                                              {"values", dict_method_values, "/"},
                                              {"copy", method_copy, "/"},
                                              {"fromkeys", unsupported, "*"},
                                              {"clear", NULL, ""},
                                              {"pop", NULL, ""},
                                              {"popitem", NULL, ""},
                                              {"setdefault", NULL, ""},
                                              {"update", NULL, ""},
                                              {0}};

static const struct builtin list_methods[] = {{"count", list_method_count, "/ value"},
                                              {"index", list_method_index, "/ value ?start ?stop"},
                                              {"copy", method_copy, "/"},
                                              {"append", NULL, ""},
                                              {"clear", NULL, ""},
                                              {"extend", NULL, ""},
                                              {"insert", NULL, ""},
                                              {"pop", NULL, ""},
                                              {"remove", NULL, ""},
                                              {"reverse", NULL, ""},
                                              {"sort", NULL, ""},
                                              {0}};

static const struct builtin tuple_methods[] = {{"count", list_method_count, "/ value"},
                                               {"index", list_method_index, "/ value ?start ?stop"},
                                               {0}};

static const struct builtin range_methods[] = {
    {"count", list_method_count, "/ value"}, {"index", unsupported, "*"}, {0}};

static const struct builtin view_methods[] = {
    {"isdisjoint", unsupported, "*"}, {"mapping", unsupported, "*"}, {0}};

static const struct builtin number_methods[] = {{"real", unsupported, "*"},
                                                {"imag", unsupported, "*"},
                                                {"conjugate", unsupported, "*"},
                                                {"as_integer_ratio", unsupported, "*"},
                                                {"numerator", unsupported, "*"},
                                                {"denominator", unsupported, "*"},
                                                {"bit_length", unsupported, "*"},
                                                {"bit_count", unsupported, "*"},
                                                {"to_bytes", unsupported, "*"},
                                                {"from_bytes", unsupported, "*"},
                                                {0}};

static const struct builtin float_methods[] = {
    {"real", unsupported, "*"},       {"imag", unsupported, "*"},
    {"conjugate", unsupported, "*"},  {"as_integer_ratio", unsupported, "*"},
    {"is_integer", unsupported, "*"}, {"hex", unsupported, "*"},
    {"fromhex", unsupported, "*"},    {0}};

static const struct builtin loop_methods[] = {
    {"cycle", loop_method_cycle, "*"}, {"changed", loop_method_changed, "*"}, {0}};

static const struct builtin cycler_methods[] = {{"next", cycler_method_next, "/"},
                                                {"reset", cycler_method_reset, "/"},
                                                {"items", unsupported, "*"},
                                                {"pos", unsupported, "*"},
                                                {0}};

const struct builtin *method_find(value v, const struct str *name, bool *unsafe) {
    static const struct builtin *const tables[V_BLOCK + 1] = {
        [V_STR] = str_methods,     [V_DICT] = dict_methods,  [V_LIST] = list_methods,
        [V_TUPLE] = tuple_methods, [V_LOOP] = loop_methods,  [V_CYCLER] = cycler_methods,
        [V_RANGE] = range_methods, [V_VIEW] = view_methods,  [V_INT] = number_methods,
        [V_BOOL] = number_methods, [V_BIG] = number_methods, [V_FLOAT] = float_methods};
    for (const struct builtin *b = tables[v.kind]; b && b->name; b++) {
        if (!str_is(name, b->name)) continue;
        if (!b->fn) *unsafe = true;
        return b->fn ? b : NULL;
    }
    return NULL;
}
