/* The syntaxes of calls, one byte range after another. Each step looks at in[at, …): it consumes
 * what it understands, or asks for more. */
#include "chat_internal.h"

#include <ctype.h>
#include <json-c/json.h>

enum { MAX_NAME = 256 };

static bool is_one_of(char c, const char *set) {
    return c && strchr(set, c);
}

bool call_malformed(chat_parser *p) {
    if (p->in_call) call_end(p);
    return region_give_up(p);
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* The function of this name among the request's tools; NULL: none. */
static json_object *find_tool(const chat_parser *p, const char *name, size_t len) {
    size_t n = p->tools ? json_object_array_length(p->tools) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *tool = json_object_array_get_idx(p->tools, i);
        const char *known = chat_tool_name(tool);
        if (known && strlen(known) == len && !memcmp(known, name, len)) return tool;
    }
    return NULL;
}

bool call_is_name(const char *name, size_t len) {
    if (len == 0 || len > MAX_NAME) return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] <= ' ' || is_one_of(name[i], "<>\"'{}()")) return false;
    return true;
}

bool call_begin(chat_parser *p, const char *name, size_t len, const char *id, size_t id_len) {
    json_object *tool = find_tool(p, name, len);
    /* Without a marker only what is certainly a call is one. */
    if (!call_is_name(name, len) || (p->region && p->bare && !tool)) return false;
    p->region = false;
    p->in_call = true;
    p->pristine = false;
    p->params = chat_tool_params(tool);
    p->n_args = 0;
    p->n_calls++;
    buf_clear(&p->blanks);
    chat_tell(p, ICP_CHAT_CALL, name, len);
    buf_put(&p->told, "", 1);
    buf_put(&p->told, id, id_len);
    buf_put(&p->told, "", 1);
    return true;
}

void call_end(chat_parser *p) {
    chat_tell(p, ICP_CHAT_CALL_END, "", 0);
    p->in_call = false;
}

/* Ends a call whose arguments were told one by one. */
static void close_arguments(chat_parser *p) {
    const char *text = p->n_args ? "}" : "{}";
    chat_tell(p, ICP_CHAT_ARGUMENTS, text, strlen(text));
    call_end(p);
}

/* The beginning of an argument, up to its value. */
static void open_argument(chat_parser *p, const char *key, size_t len) {
    buf text = {0};
    buf_puts(&text, p->n_args++ ? ", \"" : "{\"");
    buf_put_json(&text, key, len);
    buf_puts(&text, "\": ");
    chat_tell(p, ICP_CHAT_ARGUMENTS, text.data ? text.data : "", text.len);
    p->failed |= text.failed;
    buf_fini(&text);
}

static json_object *param_schema(const chat_parser *p, const char *key, size_t len) {
    if (!p->params) return NULL;
    json_object_object_foreach(p->params, name, schema) {
        if (strlen(name) == len && !memcmp(name, key, len)) return schema;
    }
    return NULL;
}

/* ---- between calls -------------------------------------------------------------------------- */

static bool is_separator(const chat_parser *p, char c) {
    if (is_blank(c) || c == ',' || c == ';' || c == '`') return true;
    return (c == '[' || c == ']') && p->calls->syntax != CHAT_NAMED;
}

/* A marker of the section stands here. */
static bool section_marker(chat_parser *p, enum marker_id id) {
    size_t end = p->at + p->marker[id].len;
    bool leaves = id == M_SECTION_END || (id == M_CALL_END && !p->calls->section);
    if (leaves && p->region) return region_give_up(p); /* an empty section */
    if (id == M_CALL && (p->calls->syntax == CHAT_NAMED || p->calls->syntax == CHAT_KEYED)) {
        if (!p->region) region_begin(p, p->at, end);
        p->state = S_HEAD;
    }
    consume(p, end);
    if (leaves) enter_text(p, false);
    return true;
}

static bool begin_call(chat_parser *p) {
    char c = *rest(p);
    if (!p->region) region_begin(p, p->at, p->at);
    switch (p->calls->syntax) {
    case CHAT_JSON:
        if (c != '{') return call_malformed(p);
        consume(p, p->at + 1);
        object_begin(p);
        return true;
    case CHAT_LITERAL:
        if (!isalpha((unsigned char)c) && c != '_') return call_malformed(p);
        p->state = S_HEAD;
        return true;
    default:
        return call_malformed(p);
    }
}

bool step_section(chat_parser *p) {
    static const enum marker_id markers[] = {M_SECTION_END, M_CALL_END, M_CALL, M_SECTION};
    while (rest_len(p)) {
        bool part = false;
        for (size_t i = 0; i < COUNT_OF(markers); i++) {
            enum match match = marker_match(p, markers[i], p->at);
            if (match == MATCH_YES) return section_marker(p, markers[i]);
            part |= match == MATCH_PART;
        }
        if (part) return false;
        if (!is_separator(p, *rest(p))) return begin_call(p);
        consume(p, p->at + 1);
    }
    return false;
}

/* ---- heads: the name before the arguments -----------------------------------------------------
 */

static text_str trim(const char *text, size_t len) {
    while (len && is_blank(*text)) text++, len--;
    while (len && is_blank(text[len - 1])) len--;
    return (text_str){text, len};
}

/* What stands between two texts in a head; after NULL: nothing. An `after` that is not there counts
 * as the beginning when `optional`. */
static text_str between(text_str head, const char *after, const char *until, bool optional) {
    const char *begin = head.data, *end = head.data + head.len;
    const char *found = after ? memmem(begin, head.len, after, strlen(after)) : NULL;
    if (!found && !optional) return (text_str){0};
    if (found) begin = found + strlen(after);
    found = until ? memmem(begin, (size_t)(end - begin), until, strlen(until)) : NULL;
    return trim(begin, (size_t)((found ? found : end) - begin));
}

/* NAMED: all up to the brace. */
static bool step_named_head(chat_parser *p) {
    static const enum marker_id stops[] = {M_CALL_END, M_SECTION_END, M_CALL};
    for (size_t i = p->scanned; i < rest_len(p); i++) {
        if (i > MAX_HEAD) return call_malformed(p);
        if (rest(p)[i] == '{') {
            const chat_dialect *d = p->calls;
            text_str head = {rest(p), i};
            text_str name = between(head, d->name_after, d->name_until, true);
            text_str id = between(head, d->id_after, d->id_until, false);
            if (!call_begin(p, name.data, name.len, id.data ? id.data : "", id.len))
                return call_malformed(p);
            p->value = (value_scan){0};
            p->state = S_ARGUMENTS;
            consume(p, p->at + i);
            return true;
        }
        bool part = false;
        for (size_t k = 0; k < COUNT_OF(stops); k++) {
            enum match match = marker_match(p, stops[k], p->at + i);
            if (match == MATCH_YES) return call_malformed(p);
            part |= match == MATCH_PART;
        }
        if (part) {
            p->scanned = i;
            return false;
        }
    }
    p->scanned = rest_len(p);
    return false;
}

/* KEYED: the name alone. */
static bool step_keyed_head(chat_parser *p) {
    size_t i = p->scanned;
    while (i < rest_len(p) && !is_one_of(rest(p)[i], p->calls->name_until)) i++;
    /* The end of a call without arguments may end its name as well. */
    size_t end;
    enum match match = marker_find(p, M_CALL_END, p->at, &end);
    if (match == MATCH_YES && end - p->at < i) i = end - p->at;
    if (i > MAX_NAME) return call_malformed(p);
    p->scanned = i;
    if (i == rest_len(p)) return false;
    text_str name = trim(rest(p), i);
    if (!call_begin(p, name.data, name.len, "", 0)) return call_malformed(p);
    p->state = S_KEYED;
    consume(p, p->at + i);
    return true;
}

/* LITERAL: name and the bracket. */
static bool step_literal_head(chat_parser *p) {
    static const char prefix[] = "call:";
    char open = p->calls->quote ? '{' : '(';
    for (size_t i = p->scanned; i < rest_len(p); i++) {
        char c = rest(p)[i];
        if (i > MAX_NAME) return call_malformed(p);
        if (c == open) {
            text_str name = trim(rest(p), i);
            if (p->calls->quote && name.len > 5 && !memcmp(name.data, prefix, 5))
                name = (text_str){name.data + 5, name.len - 5};
            if (!call_begin(p, name.data, name.len, "", 0)) return call_malformed(p);
            p->state = S_LITERAL;
            p->close = open == '(' ? ')' : '}';
            p->depth = 0;
            p->quote = 0;
            p->escaped = false;
            p->assign = 0;
            consume(p, p->at + i + 1);
            return true;
        }
        if (!isalnum((unsigned char)c) && !is_one_of(c, "_.-: ")) return call_malformed(p);
    }
    p->scanned = rest_len(p);
    return false;
}

bool step_head(chat_parser *p) {
    switch (p->calls->syntax) {
    case CHAT_NAMED:
        return step_named_head(p);
    case CHAT_KEYED:
        return step_keyed_head(p);
    default:
        return step_literal_head(p);
    }
}

/* ---- NAMED: the arguments, as they are ---------------------------------------------------------
 */

bool step_arguments(chat_parser *p) {
    size_t begin = p->at, i = p->at;
    enum scan_result result = SCAN_ON;
    while (i < p->in.len && result == SCAN_ON) result = value_scan_put(&p->value, p->in.data[i++]);
    if (result == SCAN_BEFORE) i--;
    tell_range(p, ICP_CHAT_ARGUMENTS, begin, i);
    consume(p, i);
    if (result == SCAN_ON) return false;
    call_end(p);
    enter_section(p);
    return true;
}

/* ---- KEYED: arguments between markers ---------------------------------------------------------
 */

bool step_keyed(chat_parser *p) {
    for (size_t i = p->at; i < p->in.len; i++) {
        enum match end = marker_match(p, M_CALL_END, i), key = marker_match(p, M_KEY, i);
        enum match out = marker_match(p, M_SECTION_END, i);
        consume(p, i); /* what stands between arguments says nothing */
        if (end == MATCH_YES || out == MATCH_YES) {
            close_arguments(p);
            if (end == MATCH_YES) consume(p, i + p->marker[M_CALL_END].len);
            if (p->calls->section)
                enter_section(p);
            else
                enter_text(p, false);
            return true;
        }
        if (end == MATCH_PART || key == MATCH_PART || out == MATCH_PART) return false;
        if (key == MATCH_YES) {
            consume(p, i + p->marker[M_KEY].len);
            p->state = S_KEY;
            return true;
        }
    }
    consume(p, p->in.len);
    return false;
}

/* The type that an attribute beside the key tells: string="true", type="string". */
static json_object *attribute_schema(const chat_parser *p, json_object *schema, bool *is_string) {
    const buf *a = &p->attributes;
    *is_string = schema_is_string(schema);
    if (!a->len) return schema;
    if (strstr(a->data, "string=\"true\"") || strstr(a->data, "type=\"string\""))
        *is_string = true;
    else if (strstr(a->data, "string=\"false\"") || strstr(a->data, "type=\""))
        *is_string = false, schema = NULL;
    return schema;
}

static json_object *value_schema(const chat_parser *p, bool *is_string) {
    return attribute_schema(p, param_schema(p, p->key.data ? p->key.data : "", p->key.len),
                            is_string);
}

bool step_key(chat_parser *p) {
    size_t i = 0;
    while (i < rest_len(p) && !is_one_of(rest(p)[i], p->calls->key_until)) i++;
    if (i > MAX_HEAD) return call_malformed(p);
    if (i == rest_len(p)) return false;
    size_t value = p->at + i + 1, end = value;
    if (p->calls->value) {
        enum match match = marker_find(p, M_VALUE, p->at + i, &value);
        if (value - p->at > MAX_HEAD) return call_malformed(p);
        if (match != MATCH_YES) return false;
        end = value + p->marker[M_VALUE].len;
    }
    text_str key = trim(rest(p), i);
    buf_clear(&p->key);
    buf_put(&p->key, key.data, key.len);
    buf_clear(&p->attributes);
    if (value > p->at + i) buf_put(&p->attributes, rest(p) + i, value - p->at - i);
    consume(p, end);
    bool is_string;
    value_schema(p, &is_string);
    p->streaming = is_string && !p->calls->cdata;
    p->value_begun = false;
    open_argument(p, p->key.data ? p->key.data : "", p->key.len);
    if (p->streaming) chat_tell(p, ICP_CHAT_ARGUMENTS, "\"", 1);
    p->state = S_VALUE;
    return true;
}

/* Tells the inside of a string that goes out while it arrives. */
static void stream_string(chat_parser *p, size_t from, size_t to) {
    buf text = {0};
    for (size_t i = from; i < to; i++)
        if (p->keep_special || !(p->origin.data[i] & ORIGIN_CONTROL))
            buf_putc(&text, p->in.data[i]);
    buf json = {0};
    buf_put_json(&json, text.data ? text.data : "", text.len);
    chat_tell(p, ICP_CHAT_ARGUMENTS, json.data ? json.data : "", json.len);
    p->failed |= text.failed || json.failed;
    buf_fini(&text);
    buf_fini(&json);
}

/* All of a value, up to `end`. */
static void tell_value(chat_parser *p, size_t end) {
    static const char open[] = "<![CDATA[", close[] = "]]>";
    bool is_string;
    json_object *schema = value_schema(p, &is_string);
    text_str raw = {rest(p), end - p->at};
    if (p->calls->one_line && raw.len && raw.data[0] == '\n') raw.data++, raw.len--;
    if (p->calls->one_line && raw.len && raw.data[raw.len - 1] == '\n') raw.len--;
    if (p->calls->cdata && raw.len >= 12 && !memcmp(raw.data, open, 9) &&
        !memcmp(raw.data + raw.len - 3, close, 3))
        raw = (text_str){raw.data + 9, raw.len - 12};
    buf json = {0};
    if (is_string)
        string_to_json(raw.data, raw.len, &json);
    else
        value_to_json(raw.data, raw.len, schema, &json);
    chat_tell(p, ICP_CHAT_ARGUMENTS, json.data ? json.data : "", json.len);
    p->failed |= json.failed;
    buf_fini(&json);
}

/* Tells as much of a string as is certain; end: where it ends, or may end. */
static void stream_value(chat_parser *p, size_t end, bool over) {
    bool one_line = p->calls->one_line;
    if (!p->value_begun && p->at < end) {
        p->value_begun = true;
        if (one_line && *rest(p) == '\n') consume(p, p->at + 1);
    }
    if (one_line && end > p->at && p->in.data[end - 1] == '\n') end--;
    if (!over) end = p->at + utf8_complete(rest(p), end - p->at);
    stream_string(p, p->at, end);
    consume(p, end);
}

bool step_value(chat_parser *p) {
    size_t end;
    bool over = marker_find(p, M_VALUE_END, p->at + p->scanned, &end) == MATCH_YES;
    if (p->streaming)
        stream_value(p, end, over);
    else if (over)
        tell_value(p, end);
    else
        p->scanned = end - p->at;
    if (!over) return false;
    if (p->streaming) chat_tell(p, ICP_CHAT_ARGUMENTS, "\"", 1);
    consume(p, end + p->marker[M_VALUE_END].len);
    p->state = S_KEYED;
    return true;
}

/* ---- LITERAL: arguments as in a program ---------------------------------------------------------
 */

/* The name of the n-th parameter, for arguments without a name. */
static const char *nth_param(const chat_parser *p, int n) {
    if (!p->params) return NULL;
    json_object_object_foreach(p->params, name, schema) {
        (void)schema;
        if (n-- == 0) return name;
    }
    return NULL;
}

/* One argument of len bytes. */
static void tell_argument(chat_parser *p, size_t len) {
    text_str key = {0}, value = trim(rest(p) + p->assign, len - p->assign);
    if (p->assign) {
        key = trim(rest(p), p->assign - 1);
    } else if (value.len && nth_param(p, p->n_args)) {
        const char *name = nth_param(p, p->n_args);
        key = (text_str){name, strlen(name)};
    }
    if (!key.len) return;
    buf json = {0};
    if (!literal_to_json(value.data, value.len, p->calls->quote, &json))
        string_to_json(value.data, value.len, &json);
    open_argument(p, key.data, key.len);
    chat_tell(p, ICP_CHAT_ARGUMENTS, json.data ? json.data : "", json.len);
    p->failed |= json.failed;
    buf_fini(&json);
}

/* A byte inside quotation marks. */
static void quoted_byte(chat_parser *p, char c) {
    if (p->escaped)
        p->escaped = false;
    else if (c == '\\')
        p->escaped = true;
    else if (c == p->quote)
        p->quote = 0;
}

/* A byte outside of them; true: it ends the argument. */
static bool literal_byte(chat_parser *p, size_t i) {
    char c = rest(p)[i];
    char assign = p->calls->quote ? ':' : '=';
    if (!p->depth && (c == ',' || c == p->close)) return true;
    if (!p->calls->quote && (c == '"' || c == '\''))
        p->quote = c;
    else if (is_one_of(c, "([{"))
        p->depth++;
    else if (is_one_of(c, ")]}"))
        p->depth -= p->depth > 0;
    else if (c == assign && !p->depth && !p->assign)
        p->assign = i + 1;
    return false;
}

bool step_literal(chat_parser *p) {
    for (size_t i = p->scanned; i < rest_len(p); i++) {
        p->scanned = i;
        if (!p->quote || p->quote == OWN_QUOTE) {
            enum match match = marker_match(p, M_QUOTE, p->at + i);
            if (match == MATCH_PART) return false;
            if (match == MATCH_YES) {
                p->quote = p->quote ? 0 : OWN_QUOTE;
                i += p->marker[M_QUOTE].len - 1;
                continue;
            }
        }
        if (p->quote) {
            if (p->quote != OWN_QUOTE) quoted_byte(p, rest(p)[i]);
            continue;
        }
        if (!literal_byte(p, i)) continue;
        char c = rest(p)[i];
        tell_argument(p, i);
        p->assign = 0;
        consume(p, p->at + i + 1);
        if (c != ',') {
            close_arguments(p);
            enter_section(p);
        }
        return true;
    }
    p->scanned = rest_len(p);
    return false;
}
