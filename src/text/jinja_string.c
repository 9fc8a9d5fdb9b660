/* Strings and the output. Every byte has an origin, whatever is done to it:
 *
 *   struct str   data  "<|im_start|>" "user"        marks[i] is the origin of data[i];
 *                marks  1 1 1 … 1      0 0 0 0       marks == NULL: all are `origin`;
 *                                      0 0 0 5       mark 3 ends there (TEXT_MARKED)
 *
 * Parts of a string share its bytes. A string that was made by appending lies in a room with space
 * behind it; the next append to the last string of a room happens in place, since nobody has looked
 * at the bytes beyond. Text of several pieces is built in the output buffer, above what was
 * printed: out_begin remembers where, out_end takes it out again. */
#include "jinja_internal.h"

#include <stdint.h>

static bool all_ascii(const char *data, size_t len) {
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)data[i] >= 0x80) return false;
    return true;
}

const struct str *str_new(struct trap *t, const char *data, size_t len, enum text_origin origin) {
    struct str *s = trap_alloc(t, sizeof *s);
    *s = (struct str){
        .data = data, .len = len, .origin = (uint8_t)origin, .ascii = all_ascii(data, len)};
    return s;
}

const struct str *str_copy(struct trap *t, const char *data, size_t len, enum text_origin origin) {
    char *copy = trap_alloc(t, len);
    if (len) memcpy(copy, data, len);
    return str_new(t, copy, len, origin);
}

value str_literal(struct render *r, const char *text) {
    return val_str(str_new(&r->trap, text, strlen(text), TEXT_TEMPLATE));
}

const struct str *str_part(struct render *r, const struct str *s, size_t from, size_t to) {
    if (from == 0 && to == s->len) return s;
    charge(r, s->ascii ? 0 : (to - from) / 256);
    struct str *part = render_alloc(r, sizeof *part);
    *part = *s;
    part->data += from;
    part->len = to - from;
    if (part->marks) part->marks += from;
    part->ascii = s->ascii || all_ascii(part->data, part->len);
    return part;
}

const struct str *str_as_markup(struct render *r, const struct str *s, bool markup) {
    if (s->markup == markup) return s;
    struct str *copy = render_alloc(r, sizeof *copy);
    *copy = *s;
    copy->markup = markup;
    return copy;
}

/* ---- joining -------------------------------------------------------------------------------- */

static void mark_bytes(uint8_t *marks, const struct str *s) {
    if (s->marks)
        memcpy(marks, s->marks, s->len);
    else
        memset(marks, s->origin, s->len);
}

static bool fits_behind(const struct str *a, const struct str *b, bool uniform) {
    const struct room *m = a->room;
    return m && a->data + a->len == m->data + m->used && m->cap - m->used >= b->len &&
           (m->marks || (uniform && m->origin == a->origin));
}

static struct room *room_new(struct render *r, const struct str *a, size_t len, bool uniform) {
    struct room *m = render_alloc(r, sizeof *m);
    size_t cap = a->room ? 2 * len : len;
    *m = (struct room){
        .data = render_alloc(r, cap), .origin = a->origin, .cap = cap, .used = a->len};
    memcpy(m->data, a->data, a->len);
    if (uniform) return m;
    m->marks = render_alloc(r, cap);
    mark_bytes(m->marks, a);
    return m;
}

static const struct str *join(struct render *r, const struct str *a, const struct str *b) {
    if (b->len == 0) return a;
    if (a->len == 0) return b;
    bool uniform = !a->marks && !b->marks && a->origin == b->origin;
    struct room *m = fits_behind(a, b, uniform) ? a->room : NULL;
    char *data = (char *)a->data;
    charge(r, b->len / 64);
    if (!m) {
        if (a->len > r->limits.max_memory || b->len > r->limits.max_memory)
            fail_limit(r, "makes a string that is too long");
        m = room_new(r, a, a->len + b->len, uniform);
        data = m->data;
    }
    size_t at = (size_t)(data - m->data);
    memcpy(m->data + m->used, b->data, b->len);
    if (m->marks) mark_bytes(m->marks + m->used, b);
    m->used += b->len;
    struct str *s = render_alloc(r, sizeof *s);
    *s = (struct str){.data = data,
                      .len = a->len + b->len,
                      .room = m,
                      .origin = m->origin,
                      .marks = m->marks ? m->marks + at : NULL,
                      .ascii = a->ascii && b->ascii};
    return s;
}

value str_plus(struct render *r, const struct str *a, const struct str *b) {
    bool markup = a->markup || b->markup;
    if (markup && !a->markup) a = str_escape(r, a).s;
    if (markup && !b->markup) b = str_escape(r, b).s;
    return val_str(str_as_markup(r, join(r, a, b), markup));
}

value str_times(struct render *r, const struct str *s, int64_t n) {
    size_t mark = out_begin(r);
    if (n > 0) out_fill(r, s, (size_t)n);
    return val_str(str_as_markup(r, out_end(r, mark).s, s->markup));
}

/* ---- comparing and searching ---------------------------------------------------------------- */

bool str_equal(const struct str *a, const struct str *b) {
    return a == b || (a->len == b->len && memcmp(a->data, b->data, a->len) == 0);
}

bool str_is(const struct str *s, const char *text) {
    return s->len == strlen(text) && memcmp(s->data, text, s->len) == 0;
}

/* UTF-8 sorts as its code points do. */
int str_compare(const struct str *a, const struct str *b) {
    int order = memcmp(a->data, b->data, MIN(a->len, b->len));
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

enum text_origin str_origin(const struct str *s) {
    if (!s->marks) return s->len ? s->origin : TEXT_TEMPLATE;
    size_t i = 0;
    while (i < s->len && s->marks[i] == TEXT_TEMPLATE) i++;
    return i < s->len ? TEXT_USER : TEXT_TEMPLATE;
}

size_t str_chars(struct render *r, const struct str *s) {
    if (s->ascii) return s->len;
    size_t n = 0;
    charge(r, s->len / 64);
    for (size_t i = 0; i < s->len; i++) n += ((unsigned char)s->data[i] & 0xc0) != 0x80;
    return n;
}

size_t str_offset(const struct str *s, size_t chars) {
    if (s->ascii) return MIN(chars, s->len);
    size_t i = 0;
    for (; i < s->len; i++)
        if (((unsigned char)s->data[i] & 0xc0) != 0x80 && chars-- == 0) break;
    return i;
}

size_t str_find(struct render *r, const struct str *s, size_t from, size_t to,
                const struct str *what) {
    if (from > to) return SIZE_MAX;
    if (what->len == 0) return from;
    const char *found = memmem(s->data + from, to - from, what->data, what->len);
    charge(r, (found ? (size_t)(found - s->data) - from : to - from) / 64);
    return found ? (size_t)(found - s->data) : SIZE_MAX;
}

size_t str_rfind(struct render *r, const struct str *s, size_t from, size_t to,
                 const struct str *what) {
    if (from > to || to - from < what->len) return SIZE_MAX;
    for (size_t at = to - what->len + 1; at-- > from;) {
        if (what->len && s->data[at] != what->data[0]) continue;
        charge(r, what->len / 64);
        if (memcmp(s->data + at, what->data, what->len) == 0) return at;
    }
    charge(r, (to - from) / 64);
    return SIZE_MAX;
}

/* ---- trimming, replacing, escaping ---------------------------------------------------------- */

static bool strips(struct render *r, const char *at, size_t width, const struct str *chars) {
    if (!chars) return space_at(at, width) > 0;
    charge(r, chars->len / 64);
    return memmem(chars->data, chars->len, at, width) != NULL;
}

const struct str *str_strip(struct render *r, const struct str *s, const struct str *chars,
                            enum strip_side side) {
    size_t from = 0, to = s->len;
    int32_t cp;
    while (side & STRIP_LEFT && from < to) {
        size_t width = (size_t)utf8_decode(s->data + from, to - from, &cp);
        if (!strips(r, s->data + from, width, chars)) break;
        from += width;
    }
    while (side & STRIP_RIGHT && from < to) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)s->data[start] & 0xc0) == 0x80) start--;
        if (!strips(r, s->data + start, to - start, chars)) break;
        to = start;
    }
    return str_part(r, s, from, to);
}

/* An empty `old` stands before every character and at the end. */
static void replace_empty(struct render *r, const struct str *s, const struct str *with,
                          int64_t count) {
    size_t i = 0;
    int32_t cp;
    for (; count != 0; count--) {
        out_str(r, with);
        if (i == s->len) break;
        size_t width = (size_t)utf8_decode(s->data + i, s->len - i, &cp);
        out_part(r, s, i, i + width);
        i += width;
    }
    out_part(r, s, i, s->len);
}

value str_replace(struct render *r, const struct str *s, const struct str *old,
                  const struct str *with, int64_t count) {
    size_t at = 0, found;
    if (count == 0 || (old->len && str_find(r, s, 0, s->len, old) == SIZE_MAX)) return val_str(s);
    size_t mark = out_begin(r);
    if (old->len == 0) {
        replace_empty(r, s, with, count);
    } else {
        for (; count != 0 && (found = str_find(r, s, at, s->len, old)) != SIZE_MAX; count--) {
            charge(r, 1);
            out_part(r, s, at, found);
            out_str(r, with);
            at = found + old->len;
        }
        out_part(r, s, at, s->len);
    }
    return out_end(r, mark);
}

value str_escape(struct render *r, const struct str *s) {
    static const char special[] = "&<>\"'";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    size_t mark = out_begin(r), plain = 0;
    for (size_t i = 0; i < s->len; i++) {
        const char *found = s->data[i] ? strchr(special, s->data[i]) : NULL;
        if (!found) continue;
        out_part(r, s, plain, i);
        out_puts(r, entities[found - special], s->marks ? s->marks[i] : s->origin);
        plain = i + 1;
    }
    out_part(r, s, plain, s->len);
    return val_str(str_as_markup(r, out_end(r, mark).s, true));
}

const struct str *to_str(struct render *r, value v) {
    if (v.kind == V_STR) return v.s;
    size_t mark = out_begin(r);
    print_value(r, v);
    return out_end(r, mark).s;
}

/* ---- the output ----------------------------------------------------------------------------- */

static void make_room(struct render *r, size_t len) {
    if (len > r->limits.max_output - r->text.len) fail_limit(r, "writes too much text");
    charge(r, len / 64);
}

static void check_put(struct render *r) {
    if (r->text.failed || r->origin.failed) trap_fail(&r->trap, ICP_ENOMEM, "out of memory");
}

static void put_origin(struct render *r, size_t len, enum text_origin origin) {
    uint8_t same[64];
    memset(same, (int)origin, MIN(len, sizeof same));
    for (size_t part; len > 0; len -= part) {
        part = MIN(len, sizeof same);
        buf_put(&r->origin, same, part);
    }
}

void out_put(struct render *r, const char *data, size_t len, enum text_origin origin) {
    make_room(r, len);
    buf_put(&r->text, data, len);
    put_origin(r, len, origin);
    check_put(r);
}

void out_puts(struct render *r, const char *text, enum text_origin origin) {
    out_put(r, text, strlen(text), origin);
}

void out_part(struct render *r, const struct str *s, size_t from, size_t to) {
    make_room(r, to - from);
    buf_put(&r->text, s->data + from, to - from);
    if (s->marks)
        buf_put(&r->origin, s->marks + from, to - from);
    else
        put_origin(r, to - from, s->origin);
    check_put(r);
}

void out_str(struct render *r, const struct str *s) {
    out_part(r, s, 0, s->len);
}

void out_char(struct render *r, int32_t cp, enum text_origin origin) {
    char bytes[4];
    out_put(r, bytes, (size_t)utf8_encode(cp, bytes), origin);
}

void out_fill(struct render *r, const struct str *s, size_t times) {
    if (s->len == 0) return;
    if (times > r->limits.max_output / s->len) fail_limit(r, "writes too much text");
    for (; times > 0; times--) {
        charge(r, 1);
        out_str(r, s);
    }
}

size_t out_begin(struct render *r) {
    return r->text.len;
}

void out_drop(struct render *r, size_t mark) {
    r->text.len = r->origin.len = mark;
}

value out_end(struct render *r, size_t mark) {
    size_t len = r->text.len - mark;
    struct str *s = render_alloc(r, sizeof *s);
    *s = (struct str){.data = "", .len = len, .origin = TEXT_TEMPLATE, .ascii = true};
    if (len == 0) return val_str(s);
    const char *text = r->text.data + mark;
    const uint8_t *origin = (const uint8_t *)r->origin.data + mark;
    char *data = render_alloc(r, len);
    s->data = memcpy(data, text, len);
    s->ascii = all_ascii(data, len);
    s->origin = origin[0];
    if (memcmp(origin, origin + 1, len - 1) != 0)
        s->marks = memcpy(render_alloc(r, len), origin, len);
    out_drop(r, mark);
    return val_str(s);
}
