/* Calls as JSON objects: a name and arguments, in any order, among other members.
 *
 *   {"id": "x1", "name": "f", "arguments": {"a": 1}}
 *    ^O_KEY      ^O_BEFORE     ^O_VALUE, told while it arrives: the name is known
 *
 * Arguments that come before the name are kept until it is known; those that are a string hold
 * their JSON as text. {"function": {"name": …}} is read as if the inner members stood outside. */
#include "chat_internal.h"

#include <json-c/json.h>

void object_scan_fini(object_scan *o) {
    buf_fini(&o->key);
    buf_fini(&o->word);
    buf_fini(&o->id);
    buf_fini(&o->arguments);
}

void object_begin(chat_parser *p) {
    object_scan *o = &p->object;
    buf_clear(&o->key);
    buf_clear(&o->word);
    buf_clear(&o->id);
    buf_clear(&o->arguments);
    o->state = O_KEY;
    o->depth = 1;
    o->escaped = o->streams = o->done = false;
    p->state = S_OBJECT;
}

static bool key_is(const object_scan *o, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == o->key.len && !memcmp(o->key.data, names[i], o->key.len))
            return true;
    return false;
}

static bool is_name_key(const object_scan *o) {
    static const char *const names[] = {"name", "tool_name"};
    return key_is(o, names, COUNT_OF(names));
}
static bool is_arguments_key(const chat_parser *p) {
    static const char *const names[] = {"arguments", "parameters", "args"};
    return p->calls->key_is_name || key_is(&p->object, names, COUNT_OF(names));
}
static bool is_function_key(const object_scan *o) {
    static const char *const names[] = {"function"};
    return key_is(o, names, COUNT_OF(names));
}
static bool is_other_key(const object_scan *o) {
    static const char *const names[] = {"type", "id", "tool_call_id", "index"};
    return key_is(o, names, COUNT_OF(names));
}

/* Tells arguments that are whole: an object as it is, what a string holds, {} for null. */
static void tell_arguments(chat_parser *p, const buf *raw) {
    buf text = {0};
    if (raw->len > 1 && raw->data[0] == '"')
        string_decode(raw->data + 1, raw->len - 2, &text);
    else if (raw->len && memcmp(raw->data, "null", MIN(raw->len, 4)) != 0)
        buf_put(&text, raw->data, raw->len);
    if (text.len)
        chat_tell(p, ICP_CHAT_ARGUMENTS, text.data, text.len);
    else
        chat_tell(p, ICP_CHAT_ARGUMENTS, "{}", 2);
    p->failed |= text.failed;
    buf_fini(&text);
}

static bool object_named(chat_parser *p, const char *name, size_t len) {
    object_scan *o = &p->object;
    if (p->in_call) return true; /* a second name */
    if (!call_begin(p, name, len, o->id.data ? o->id.data : "", o->id.len)) return false;
    if (o->done) tell_arguments(p, &o->arguments);
    return true;
}

/* The name of `name` as its value, or `function` as either. */
static bool take_name(chat_parser *p) {
    object_scan *o = &p->object;
    buf name = {0};
    if (o->word.len < 2 || o->word.data[0] != '"') return false;
    string_decode(o->word.data + 1, o->word.len - 2, &name);
    bool ok = object_named(p, name.data ? name.data : "", name.len);
    p->failed |= name.failed;
    buf_fini(&name);
    return ok;
}

/* A value has ended. */
static bool object_value(chat_parser *p) {
    object_scan *o = &p->object;
    o->state = O_KEY;
    if (is_name_key(o) || is_function_key(o)) return take_name(p);
    if (key_is(o, (const char *const[]){"id"}, 1) && o->word.len > 2 && o->word.data[0] == '"') {
        buf_clear(&o->id);
        string_decode(o->word.data + 1, o->word.len - 2, &o->id);
        return true;
    }
    if (!is_arguments_key(p) || o->done) return true;
    o->done = true;
    if (o->streams) return true;
    if (p->in_call)
        tell_arguments(p, &o->word);
    else
        buf_put(&o->arguments, o->word.data, o->word.len);
    return true;
}

/* The first byte of a value decides what becomes of it. */
static bool object_before(chat_parser *p, char c) {
    object_scan *o = &p->object;
    if (is_function_key(o) && c == '{' && o->depth == 1) {
        o->depth = 2;
        o->state = O_KEY;
        consume(p, p->at + 1);
        return true;
    }
    if (p->calls->key_is_name && !p->in_call && !object_named(p, o->key.data, o->key.len))
        return false;
    buf_clear(&o->word);
    o->value = (value_scan){0};
    o->streams = p->in_call && !o->done && c == '{' && is_arguments_key(p);
    o->state = O_VALUE;
    return true;
}

static bool object_in_value(chat_parser *p) {
    object_scan *o = &p->object;
    size_t begin = p->at, i = p->at;
    enum scan_result result = SCAN_ON;
    while (i < p->in.len && result == SCAN_ON) result = value_scan_put(&o->value, p->in.data[i++]);
    if (result == SCAN_BEFORE) i--;
    if (o->streams)
        tell_range(p, ICP_CHAT_ARGUMENTS, begin, i);
    else
        buf_put(&o->word, p->in.data + begin, i - begin);
    consume(p, i);
    return result == SCAN_ON || object_value(p);
}

/* The object is over; false: it was no call. */
static bool object_end(chat_parser *p) {
    object_scan *o = &p->object;
    if (--o->depth) return true;
    if (!p->in_call) return false;
    if (!o->done) chat_tell(p, ICP_CHAT_ARGUMENTS, "{}", 2);
    call_end(p);
    enter_section(p);
    return true;
}

/* In JSON without a marker any other key shows that it is no call. */
static bool object_key_done(chat_parser *p) {
    object_scan *o = &p->object;
    o->state = O_COLON;
    return !(p->region && p->bare) || is_name_key(o) || is_arguments_key(p) || is_function_key(o) ||
           is_other_key(o);
}

static bool object_byte(chat_parser *p, char c) {
    object_scan *o = &p->object;
    if (o->state == O_KEY_TEXT) {
        if (!o->escaped && c == '"') return object_key_done(p);
        o->escaped = !o->escaped && c == '\\';
        buf_putc(&o->key, c);
        return o->key.len <= MAX_HEAD;
    }
    if (is_blank(c)) return true;
    if (o->state == O_COLON) {
        o->state = O_BEFORE;
        return c == ':';
    }
    if (c == '}') return object_end(p);
    if (c == ',') return true;
    buf_clear(&o->key);
    o->state = O_KEY_TEXT;
    return c == '"';
}

bool step_object(chat_parser *p) {
    object_scan *o = &p->object;
    while (rest_len(p) && p->state == S_OBJECT) {
        bool ok = true;
        char c = *rest(p);
        if (o->state == O_VALUE) {
            ok = object_in_value(p);
        } else if (o->state == O_BEFORE && !is_blank(c)) {
            ok = object_before(p, c);
        } else {
            consume(p, p->at + 1);
            ok = object_byte(p, c);
        }
        if (!ok) return call_malformed(p);
    }
    return p->state != S_OBJECT;
}
