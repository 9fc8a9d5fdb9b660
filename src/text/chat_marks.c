/* Where messages and marked pieces of a chat end in its prompt.
 *
 *   messages   …, {"content": "Be brief.Hm."}, …     breakpoints [[9, 300]]; the message's end
 *                                 ^i   ^j
 *   variables  "Be brief." U+10FF80+i "Hm." U+10FF80+j
 *   prompt     <|im_start|>system\nBe brief.Hm.<|im_end|>\n…
 *   origin     1111111111111111111 00000000(2+i) 00(2+j) 1111111111
 *
 * The characters go with the text through whatever brings messages to the form that the template
 * wants; before the template sees them they have become the origin of a byte. So a prompt is the
 * same with marks and without. White space is passed over, for templates strip it. */
#include "chat.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAD = sizeof TEXT_MARK_LEAD - 1,
    MOST_BREAKPOINTS = 4,
    LAST_ENDS = 4,     /* messages at the end of a chat that are marked in any case, */
    MOST_ENDS = 28,    /* and all that are */
    MESSAGE_COST = 16, /* bytes that a template puts around a message, about */
};

/* Where a string gets a mark. */
typedef struct place {
    size_t at;
    int mark;
} place;
typedef struct places {
    place place[MOST_BREAKPOINTS + 1];
    size_t n;
} places;

/* Bytes of a text up to `at` without the white space at their end. */
static size_t without_space(const char *text, size_t at) {
    while (at > 0 && strchr(" \t\r\n", text[at - 1])) at--;
    return at;
}

/* A mark at this place, or a longer wish for the one that is there. */
static void add_place(places *p, chat_marks *marks, size_t at, double ttl) {
    place *last = p->n ? &p->place[p->n - 1] : NULL;
    if (at == 0 || (last && at < last->at)) return;
    if (last && at == last->at) {
        marks->mark[last->mark].ttl = MAX(marks->mark[last->mark].ttl, ttl);
        return;
    }
    if (p->n == COUNT_OF(p->place) || marks->n == TEXT_MARKS) return;
    p->place[p->n++] = (place){at, (int)marks->n};
    marks->mark[marks->n++] = (chat_mark){ttl, SIZE_MAX};
}

/* The text of a string with its marks; NULL: no memory. */
static json_object *marked(const char *text, size_t len, const places *p) {
    buf out = {0};
    size_t from = 0;
    for (size_t i = 0; i < p->n; i++) {
        const place *here = &p->place[i];
        buf_put(&out, text + from, here->at - from);
        buf_put(&out, TEXT_MARK_LEAD, LEAD);
        buf_putc(&out, (char)(0x80 + here->mark));
        from = here->at;
    }
    buf_put(&out, text + from, len - from);
    json_object *string = out.failed ? NULL : json_object_new_string_len(out.data, (int)out.len);
    buf_fini(&out);
    return string;
}

/* ---- messages -------------------------------------------------------------------------------- */

static size_t text_len(json_object *value) {
    return json_object_is_type(value, json_type_string) ? (size_t)json_object_get_string_len(value)
                                                        : 0;
}

/* The object that has the text with which a message ends as its member *name; NULL: there is none.
 */
static json_object *last_text(json_object *message, const char **name) {
    json_object *content = json_object_object_get(message, "content");
    *name = "content";
    if (json_object_is_type(content, json_type_string)) return message;
    if (!json_object_is_type(content, json_type_array)) return NULL;
    *name = "text";
    for (size_t i = json_object_array_length(content); i-- > 0;) {
        json_object *part = json_object_array_get_idx(content, i);
        if (json_object_is_type(part, json_type_object) &&
            text_len(json_object_object_get(part, "text")) > 0)
            return part;
    }
    return NULL;
}

/* How many more breakpoints there may be. */
static size_t breakpoints_left(const chat_marks *marks) {
    size_t left = MOST_BREAKPOINTS;
    for (size_t i = 0; i < marks->n; i++) left -= marks->mark[i].ttl > 0;
    return left;
}

static void add_breakpoints(json_object *list, const char *text, size_t len, places *p,
                            chat_marks *marks) {
    if (!json_object_is_type(list, json_type_array)) return;
    size_t n = json_object_array_length(list);
    for (size_t i = n - MIN(n, breakpoints_left(marks)); i < n; i++) {
        json_object *pair = json_object_array_get_idx(list, i);
        if (!json_object_is_type(pair, json_type_array)) continue;
        int64_t at = json_object_get_int64(json_object_array_get_idx(pair, 0));
        double ttl = json_object_get_double(json_object_array_get_idx(pair, 1));
        size_t end = at < 0 ? 0 : MIN((size_t)at, len);
        if (ttl > 0) add_place(p, marks, without_space(text, end), ttl);
    }
}

static int mark_message(json_object *message, bool end, bool usable, chat_marks *marks) {
    const char *name;
    json_object *owner = last_text(message, &name);
    json_object *value = owner ? json_object_object_get(owner, name) : NULL;
    const char *text = value ? json_object_get_string(value) : "";
    size_t len = text_len(value);
    places p = {0};
    if (usable) {
        add_breakpoints(json_object_object_get(message, "breakpoints"), text, len, &p, marks);
        if (end) add_place(&p, marks, without_space(text, len), 0);
    }
    json_object_object_del(message, "breakpoints");
    if (!p.n) return 0;
    json_object *string = marked(text, len, &p);
    return string && json_object_object_add(owner, name, string) == 0 ? 0 : ICP_ENOMEM;
}

static size_t message_len(json_object *message) {
    const char *name;
    json_object *owner = last_text(message, &name);
    return MESSAGE_COST + (owner ? text_len(json_object_object_get(owner, name)) : 0);
}

/* From the last message to the first, so that the last ones have their marks. */
static int mark_messages(json_object *messages, bool ends, bool usable, chat_marks *marks) {
    if (!json_object_is_type(messages, json_type_array)) return 0;
    size_t before = 0, behind = 0, n_ends = 0; /* behind: bytes that follow */
    for (size_t i = json_object_array_length(messages); i-- > 0;) {
        json_object *message = json_object_array_get_idx(messages, i);
        if (!json_object_is_type(message, json_type_object)) continue;
        bool end = ends && n_ends < MOST_ENDS && (n_ends < LAST_ENDS || behind >= 2 * before);
        size_t n = marks->n, len = message_len(message);
        TRY(mark_message(message, end, usable, marks));
        if (end && marks->n > n) {
            n_ends++;
            before = behind;
        }
        behind += len;
    }
    return 0;
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* Marks the last string of a value, which is near its end in whatever form a template prints it. */
static bool mark_last_string(json_object *value, double ttl, chat_marks *marks) {
    if (json_object_is_type(value, json_type_string)) {
        const char *text = json_object_get_string(value);
        size_t len = text_len(value);
        places p = {0};
        add_place(&p, marks, without_space(text, len), ttl);
        json_object *string = p.n ? marked(text, len, &p) : NULL;
        bool set = string && json_object_set_string_len(value, json_object_get_string(string),
                                                        json_object_get_string_len(string));
        json_object_put(string);
        return set;
    }
    if (json_object_is_type(value, json_type_array))
        for (size_t i = json_object_array_length(value); i-- > 0;)
            if (mark_last_string(json_object_array_get_idx(value, i), ttl, marks)) return true;
    if (!json_object_is_type(value, json_type_object)) return false;
    json_object *last = NULL;
    json_object_object_foreach(value, key, member) {
        (void)key;
        if (json_object_is_type(member, json_type_string) ||
            json_object_is_type(member, json_type_array) ||
            json_object_is_type(member, json_type_object))
            last = member;
    }
    return last && mark_last_string(last, ttl, marks);
}

static void mark_tools(json_object *tools, bool usable, chat_marks *marks) {
    if (!json_object_is_type(tools, json_type_array)) return;
    for (size_t i = json_object_array_length(tools); i-- > 0;) {
        json_object *tool = json_object_array_get_idx(tools, i), *ttl = NULL;
        if (!json_object_is_type(tool, json_type_object) ||
            !json_object_object_get_ex(tool, "breakpoint", &ttl))
            continue;
        double seconds = json_object_get_double(ttl);
        json_object_object_del(tool, "breakpoint");
        if (usable && seconds > 0 && breakpoints_left(marks))
            mark_last_string(tool, seconds, marks);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Whether a JSON text has no such characters, written or escaped. */
static bool is_free_of_marks(const char *json) {
    return !strstr(json, TEXT_MARK_LEAD) && !strcasestr(json, "\\udbff");
}

int chat_marks_put(json_object *vars, const char *json, bool ends, chat_marks *out) {
    out->n = 0;
    if (!ends && !strstr(json, "\"breakpoint")) return 0;
    bool usable = is_free_of_marks(json);
    int rc = mark_messages(json_object_object_get(vars, "messages"), ends, usable, out);
    mark_tools(json_object_object_get(vars, "tools"), usable, out);
    return rc;
}

static int compare(const void *a, const void *b) {
    const chat_mark *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

void chat_marks_find(chat_marks *marks, const jinja_text *prompt) {
    const uint8_t *origin = (const uint8_t *)prompt->origin.data;
    size_t n = 0;
    for (size_t i = 0; marks->n && i < prompt->origin.len; i++) {
        size_t mark = (size_t)origin[i] - TEXT_MARKED;
        if (origin[i] < TEXT_MARKED || mark >= marks->n) continue;
        size_t *at = &marks->mark[mark].at;
        if (*at == SIZE_MAX || *at == i) *at = i + 1; /* a byte that was escaped is several */
    }
    for (size_t i = 0; i < marks->n; i++)
        if (marks->mark[i].at != SIZE_MAX) marks->mark[n++] = marks->mark[i];
    marks->n = n;
    qsort(marks->mark, n, sizeof *marks->mark, compare);
}
