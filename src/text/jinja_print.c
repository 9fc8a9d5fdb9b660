/* str(), repr() and json.dumps() of Python. What the language itself adds around the parts of a
 * list or dict (brackets, quotes, commas) is of user origin: who fills the value decides its shape,
 * and no template needs a control token from there. */
#include "jinja_internal.h"

#include <math.h>
#include <stdio.h>

static void put(struct render *r, const char *text) {
    out_puts(r, text, TEXT_USER);
}

/* ---- str and repr --------------------------------------------------------------------------- */

static bool print_scalar(struct render *r, value v) {
    char text[40];
    switch (v.kind) {
    case V_NONE:
        out_puts(r, "None", v.origin);
        return true;
    case V_BOOL:
        out_puts(r, v.b ? "True" : "False", v.origin);
        return true;
    case V_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        out_puts(r, text, v.origin);
        return true;
    case V_FLOAT:
        print_float(v.f, text);
        out_puts(r, text, v.origin);
        return true;
    case V_BIG:
        out_str(r, v.s);
        return true;
    default:
        return false;
    }
}

static void put_escape(struct render *r, int32_t cp, char quote, enum text_origin origin) {
    char text[12];
    const char *format = cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x";
    if (cp == '\n' || cp == '\r' || cp == '\t')
        snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    else if (cp == '\\' || cp == quote)
        snprintf(text, sizeof text, "\\%c", (char)cp);
    else
        snprintf(text, sizeof text, format, (unsigned)cp);
    out_puts(r, text, origin);
}

static void repr_str(struct render *r, const struct str *s) {
    char quote = memchr(s->data, '\'', s->len) && !memchr(s->data, '"', s->len) ? '"' : '\'';
    size_t plain = 0;
    int32_t cp;
    charge(r, s->len / 16);
    if (s->markup) put(r, "Markup(");
    out_put(r, &quote, 1, TEXT_USER);
    for (size_t i = 0, width; i < s->len; i += width) {
        width = (size_t)utf8_decode(s->data + i, s->len - i, &cp);
        if (cp != '\\' && cp != quote && char_printable(cp)) continue;
        out_part(r, s, plain, i);
        put_escape(r, cp, quote, s->marks ? s->marks[i] : s->origin);
        plain = i + width;
    }
    out_part(r, s, plain, s->len);
    out_put(r, &quote, 1, TEXT_USER);
    if (s->markup) put(r, ")");
}

static void repr_items(struct render *r, const struct list *l, const char *open,
                       const char *close) {
    put(r, open);
    for (size_t i = 0; i < l->n; i++) {
        if (i) put(r, ", ");
        print_repr(r, l->items[i]);
    }
    put(r, close);
}

static void repr_dict(struct render *r, const struct dict *d) {
    put(r, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i) put(r, ", ");
        print_repr(r, d->entries[i].key);
        put(r, ": ");
        print_repr(r, d->entries[i].val);
    }
    put(r, "}");
}

static void repr_view(struct render *r, value v) {
    static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
    put(r, names[v.aux]);
    repr_items(r, to_list(r, v).list, "[", "])");
}

static void repr_range(struct render *r, const struct range *range) {
    char text[80];
    if (range->step == 1)
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)range->start,
                 (long long)range->stop);
    else
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)range->start,
                 (long long)range->stop, (long long)range->step);
    put(r, text);
}

static void repr_macro(struct render *r, const struct macro *m) {
    put(r, m->code->name ? "<Macro " : "<Macro anonymous");
    if (m->code->name) repr_str(r, m->code->name);
    put(r, ">");
}

static void repr_loop(struct render *r, value v) {
    char text[60];
    snprintf(text, sizeof text, "<LoopContext %lld/%zu>", (long long)v.loop->index0 + 1,
             length_of(r, v));
    put(r, text);
}

static void repr_compound(struct render *r, value v) {
    switch (v.kind) {
    case V_LIST:
        repr_items(r, v.list, "[", "]");
        break;
    case V_TUPLE:
        repr_items(r, v.list, "(", v.list->n == 1 ? ",)" : ")");
        break;
    case V_DICT:
        repr_dict(r, v.dict);
        break;
    case V_VIEW:
        repr_view(r, v);
        break;
    case V_RANGE:
        repr_range(r, v.range);
        break;
    case V_NAMESPACE:
        put(r, "<Namespace ");
        repr_dict(r, v.dict);
        put(r, ">");
        break;
    case V_MACRO:
        repr_macro(r, v.macro);
        break;
    case V_LOOP:
        repr_loop(r, v);
        break;
    default: /* Python prints an address */
        fail(r, "a value of type %s cannot be printed", kind_name(v));
    }
}

void print_repr(struct render *r, value v) {
    charge(r, 1);
    if (print_scalar(r, v)) return;
    if (v.kind == V_STR) {
        repr_str(r, v.s);
    } else if (v.kind == V_UNDEFINED) {
        put(r, "Undefined");
    } else {
        enter(r);
        repr_compound(r, v);
        leave(r);
    }
}

void print_value(struct render *r, value v) {
    if (v.kind == V_STR)
        out_str(r, v.s);
    else if (v.kind != V_UNDEFINED)
        print_repr(r, v);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put_json_escape(struct render *r, int32_t cp, enum text_origin origin) {
    static const char special[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    char text[16];
    const char *found = cp && cp < 0x80 ? strchr(special, (int)cp) : NULL;
    if (found)
        snprintf(text, sizeof text, "\\%c", letters[found - special]);
    else if (cp < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)),
                 (unsigned)(0xdc00 + (cp & 0x3ff)));
    out_puts(r, text, origin);
}

static void json_str(struct render *r, const struct str *s, bool ascii) {
    size_t plain = 0;
    int32_t cp;
    charge(r, s->len / 16);
    put(r, "\"");
    for (size_t i = 0, width; i < s->len; i += width) {
        width = (size_t)utf8_decode(s->data + i, s->len - i, &cp);
        if (cp >= 0x20 && cp != '"' && cp != '\\' && (!ascii || cp < 0x7f)) continue;
        out_part(r, s, plain, i);
        put_json_escape(r, cp, s->marks ? s->marks[i] : s->origin);
        plain = i + width;
    }
    out_part(r, s, plain, s->len);
    put(r, "\"");
}

static bool json_scalar(struct render *r, value v) {
    const char *word = NULL;
    if (v.kind == V_NONE) word = "null";
    if (v.kind == V_BOOL) word = v.b ? "true" : "false";
    if (v.kind == V_FLOAT && isnan(v.f)) word = "NaN";
    if (v.kind == V_FLOAT && isinf(v.f)) word = v.f > 0 ? "Infinity" : "-Infinity";
    if (!word) return print_scalar(r, v);
    out_puts(r, word, v.origin);
    return true;
}

static void json_key(struct render *r, value key, bool ascii) {
    if (key.kind == V_STR) {
        json_str(r, key.s, ascii);
        return;
    }
    put(r, "\"");
    if (!json_scalar(r, key))
        fail(r, "keys must be str, int, float, bool or None, not %s", kind_name(key));
    put(r, "\"");
}

static void json_break(struct render *r, const struct json_style *style, size_t level) {
    if (!style->indent) return;
    put(r, "\n");
    out_fill(r, style->indent, level);
}

static void json_any(struct render *r, value v, const struct json_style *style, size_t level);

static void json_list(struct render *r, const struct list *l, const struct json_style *style,
                      size_t level) {
    put(r, "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i) out_str(r, style->item_sep);
        json_break(r, style, level + 1);
        json_any(r, l->items[i], style, level + 1);
    }
    if (l->n) json_break(r, style, level);
    put(r, "]");
}

static value sorted_items(struct render *r, value dict) {
    value view = {.kind = V_VIEW, .aux = VIEW_ITEMS, .dict = dict.dict};
    return sort_values(r, to_list(r, view), to_list(r, dict), false);
}

static void json_dict(struct render *r, value dict, const struct json_style *style, size_t level) {
    value sorted = style->sort_keys ? sorted_items(r, dict) : val_none();
    size_t n = dict.dict->n;
    put(r, "{");
    for (size_t i = 0; i < n; i++) {
        const struct entry *e = &dict.dict->entries[i];
        const value *pair = style->sort_keys ? sorted.list->items[i].list->items : NULL;
        if (i) out_str(r, style->item_sep);
        json_break(r, style, level + 1);
        json_key(r, pair ? pair[0] : e->key, style->ascii);
        out_str(r, style->key_sep);
        json_any(r, pair ? pair[1] : e->val, style, level + 1);
    }
    if (n) json_break(r, style, level);
    put(r, "}");
}

static void json_any(struct render *r, value v, const struct json_style *style, size_t level) {
    charge(r, 1);
    if (json_scalar(r, v)) return;
    if (v.kind == V_STR) {
        json_str(r, v.s, style->ascii);
        return;
    }
    enter(r);
    if (v.kind == V_LIST || v.kind == V_TUPLE)
        json_list(r, v.list, style, level);
    else if (v.kind == V_DICT)
        json_dict(r, v, style, level);
    else
        fail(r, "a value of type %s is not JSON serializable", kind_name(v));
    leave(r);
}

void print_json(struct render *r, value v, const struct json_style *style) {
    json_any(r, v, style, 0);
}
