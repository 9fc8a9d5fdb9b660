/* Messages and tools, made to fit a template. A chat as OpenAI's API has it becomes what upstream
 * would render:
 *
 *   no member that is null; thinking and reasoning as reasoning_content, too
 *   developer is system
 *   arguments of calls as objects, or as JSON text, as the template wants them
 *   content as text, or as a list of parts
 *
 * and where a template lacks something, the text of a system or user message stands in for it. */
#include "chat.h"
#include "json.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const char *text_of(json_object *o, const char *member) {
    json_object *value = NULL;
    if (!json_object_object_get_ex(o, member, &value)) return NULL;
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

static bool role_is(json_object *message, const char *role) {
    const char *is = text_of(message, "role");
    return is && !strcmp(is, role);
}

static int set(json_object *o, const char *member, json_object *value) {
    return value && json_object_object_add(o, member, value) == 0 ? 0 : ICP_ENOMEM;
}

static int set_text(json_object *o, const char *member, const char *text, size_t len) {
    return set(o, member, json_object_new_string_len(text, (int)len));
}

static const char *print(json_object *o) {
    return json_object_to_json_string_ext(o,
                                          JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);
}

/* ---- members -------------------------------------------------------------------------------- */

static void drop_nulls(json_object *message) {
    for (bool again = true; again;) {
        again = false;
        json_object_object_foreach(message, name, value) {
            if (value) continue;
            json_object_object_del(message, name);
            again = true;
            break;
        }
    }
}

/* Different clients and templates have different names for it. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

static void drop_reasoning(json_object *message) {
    for (size_t i = 0; i < COUNT_OF(reasoning_names); i++)
        json_object_object_del(message, reasoning_names[i]);
}

static int spread_reasoning(json_object *message) {
    json_object *thought = NULL;
    for (size_t i = 0; i < COUNT_OF(reasoning_names) && !thought; i++)
        if (text_of(message, reasoning_names[i]))
            thought = json_object_get(json_object_object_get(message, reasoning_names[i]));
    if (!thought) return 0;
    drop_reasoning(message);
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(reasoning_names) && rc == 0; i++)
        rc = set(message, reasoning_names[i], json_object_get(thought));
    json_object_put(thought);
    return rc;
}

static bool has_text(json_object *message) {
    const char *text = text_of(message, "content");
    return text && *text;
}

static bool has_calls(json_object *message) {
    json_object *calls = json_object_object_get(message, "tool_calls");
    return json_object_is_type(calls, json_type_array) && json_object_array_length(calls);
}

/* ---- content -------------------------------------------------------------------------------- */

/* The text of a content: a string, or parts, each on lines of its own. */
static void put_content(json_object *content, buf *out) {
    if (json_object_is_type(content, json_type_string))
        buf_put(out, json_object_get_string(content), (size_t)json_object_get_string_len(content));
    if (!json_object_is_type(content, json_type_array)) return;
    for (size_t i = 0; i < json_object_array_length(content); i++) {
        json_object *part = json_object_array_get_idx(content, i);
        const char *text =
            json_object_is_type(part, json_type_object) ? text_of(part, "text") : NULL;
        if (!text) continue;
        if (out->len) buf_putc(out, '\n');
        buf_puts(out, text);
    }
}

static bool is_text(json_object *content) {
    return json_object_is_type(content, json_type_string);
}

static int set_content(json_object *message, const buf *text, bool list) {
    if (text->failed) return ICP_ENOMEM;
    const char *data = text->data ? text->data : "";
    if (!list) return set_text(message, "content", data, text->len);
    json_object *parts = json_object_new_array(), *part = json_object_new_object();
    int rc = parts && part ? set_text(part, "type", "text", 4) : ICP_ENOMEM;
    if (rc == 0) rc = set_text(part, "text", data, text->len);
    if (rc == 0 && json_object_array_add(parts, part) == 0) return set(message, "content", parts);
    json_object_put(part);
    json_object_put(parts);
    return ICP_ENOMEM;
}

static int fit_content(const icp_chat_caps *caps, json_object *message) {
    json_object *content = NULL;
    bool has = json_object_object_get_ex(message, "content", &content);
    if (!has && !caps->needs_content) return 0;
    if (has && is_text(content) && !caps->list_content) return 0;
    if (json_object_is_type(content, json_type_array) && caps->list_content) return 0;
    buf text = {0};
    put_content(content, &text);
    int rc = set_content(message, &text, caps->list_content);
    buf_fini(&text);
    return rc;
}

/* Puts text before (and a blank line after it) the content of a message. */
static int prepend(json_object *message, const char *text, bool list) {
    buf all = {0};
    json_object *content = json_object_object_get(message, "content");
    buf rest = {0};
    put_content(content, &rest);
    buf_puts(&all, text);
    if (rest.len) buf_puts(&all, "\n\n");
    buf_put(&all, rest.data, rest.len);
    all.failed |= rest.failed;
    int rc = set_content(message, &all, list);
    buf_fini(&rest);
    buf_fini(&all);
    return rc;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Nine letters and digits that stand for an id. */
static int set_short_id(json_object *o, const char *member) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *id = text_of(o, member);
    if (!id || (strlen(id) == 9 && strspn(id, digits) == 9)) return 0;
    char brief[10] = {0};
    uint64_t hash = XXH3_64bits(id, strlen(id));
    for (int i = 0; i < 9; i++, hash /= 62) brief[i] = digits[hash % 62];
    return set_text(o, member, brief, 9);
}

static int fit_arguments(const icp_chat_caps *caps, json_object *function, icp_error *err) {
    json_object *arguments = NULL;
    json_object_object_get_ex(function, "arguments", &arguments);
    if (is_text(arguments) && caps->object_arguments) {
        const char *text = json_object_get_string(arguments);
        json_object *parsed =
            *text ? json_read_whole(text, strlen(text)) : json_object_new_object();
        if (json_object_is_type(parsed, json_type_object))
            return set(function, "arguments", parsed);
        json_object_put(parsed);
        return error_set(err, ICP_EFORMAT, "arguments of a call are not a JSON object: %.100s",
                         text);
    }
    if (arguments && !is_text(arguments) && !caps->object_arguments) {
        const char *text = print(arguments);
        return text ? set_text(function, "arguments", text, strlen(text)) : ICP_ENOMEM;
    }
    return arguments ? 0
                     : set(function, "arguments",
                           caps->object_arguments ? json_object_new_object()
                                                  : json_object_new_string("{}"));
}

static int fit_call(const icp_chat_caps *caps, json_object *call, icp_error *err) {
    json_object *function = NULL;
    if (!json_object_is_type(call, json_type_object) ||
        !json_object_object_get_ex(call, "function", &function) ||
        !json_object_is_type(function, json_type_object))
        return error_set(err, ICP_EFORMAT, "a call without a function");
    TRY(fit_arguments(caps, function, err));
    return caps->short_ids ? set_short_id(call, "id") : 0;
}

static int fit_calls(const icp_chat_caps *caps, json_object *message, icp_error *err) {
    json_object *calls = json_object_object_get(message, "tool_calls");
    if (!json_object_is_type(calls, json_type_array)) return 0;
    size_t n = json_object_array_length(calls);
    for (size_t i = 0; i < n; i++) TRY(fit_call(caps, json_object_array_get_idx(calls, i), err));
    if (n == 0) json_object_object_del(message, "tool_calls");
    return 0;
}

/* A call in the dialect's syntax, or the generic one. */
static void put_call(const chat_dialect *d, json_object *function, buf *out) {
    json_object *arguments = json_object_object_get(function, "arguments");
    const char *name = text_of(function, "name");
    if (d->syntax != CHAT_LITERAL) {
        const char *text = print(function);
        out->failed |= !text;
        buf_puts(out, text ? text : "");
        return;
    }
    const char *comma = "";
    buf_printf(out, "%s(", name ? name : "");
    if (json_object_is_type(arguments, json_type_object)) {
        json_object_object_foreach(arguments, key, value) {
            const char *text = print(value);
            out->failed |= !text;
            buf_printf(out, "%s%s=%s", comma, key, text ? text : "");
            comma = ", ";
        }
    }
    buf_puts(out, ")");
}

/* A template that shows no calls of the history: they become text, as the model would write it. */
static int tell_calls(const icp_chat_caps *caps, json_object *message) {
    json_object *calls = json_object_object_get(message, "tool_calls");
    if (caps->tool_calls || !json_object_is_type(calls, json_type_array)) return 0;
    const chat_dialect *d = chat_style_named(caps->dialect).calls;
    bool list = d && d->section && (d->syntax == CHAT_JSON || d->syntax == CHAT_LITERAL);
    if (!list) d = chat_style_named("generic").calls;
    buf text = {0};
    put_content(json_object_object_get(message, "content"), &text);
    if (list) buf_printf(&text, "%s[", d->section);
    for (size_t i = 0; i < json_object_array_length(calls); i++) {
        json_object *call = json_object_array_get_idx(calls, i);
        if (i && list) buf_puts(&text, ", ");
        if (!list) buf_printf(&text, "%s%s\n", text.len ? "\n" : "", d->call);
        put_call(d, json_object_object_get(call, "function"), &text);
        if (!list) buf_printf(&text, "\n%s", d->call_end);
    }
    if (list) buf_printf(&text, "]%s", d->section_end ? d->section_end : "");
    json_object_object_del(message, "tool_calls");
    int rc = set_content(message, &text, caps->list_content);
    buf_fini(&text);
    return rc;
}

static int tell_result(const icp_chat_caps *caps, json_object *message) {
    if (caps->tool_results || !role_is(message, "tool")) return 0;
    buf text = {0}, all = {0};
    put_content(json_object_object_get(message, "content"), &text);
    buf_puts(&all, "<tool_response>\n");
    buf_put(&all, text.data, text.len);
    buf_puts(&all, "\n</tool_response>");
    all.failed |= text.failed;
    int rc = set_text(message, "role", "user", 4);
    json_object_object_del(message, "tool_call_id");
    if (rc == 0) rc = set_content(message, &all, caps->list_content);
    buf_fini(&text);
    buf_fini(&all);
    return rc;
}

static int fit_message(const icp_chat_caps *caps, json_object *message, icp_error *err) {
    drop_nulls(message);
    if (role_is(message, "developer")) TRY(set_text(message, "role", "system", 6));
    if (role_is(message, "function")) TRY(set_text(message, "role", "tool", 4));
    if (!(caps->one_text && has_text(message) && has_calls(message)))
        TRY(spread_reasoning(message));
    else
        drop_reasoning(message);
    TRY(fit_calls(caps, message, err));
    TRY(tell_calls(caps, message));
    TRY(tell_result(caps, message));
    if (caps->short_ids) TRY(set_short_id(message, "tool_call_id"));
    return fit_content(caps, message);
}

/* ---- what a template does not have -------------------------------------------------------------
 */

/* Describes tools to a model whose template has no place for them, in the generic dialect. */
static int describe_tools(json_object *tools, buf *out) {
    buf_puts(out, "You can call these functions (their parameters are JSON Schemas):\n");
    for (size_t i = 0; i < json_object_array_length(tools); i++) {
        json_object *tool = json_object_array_get_idx(tools, i), *function = NULL;
        json_object_object_get_ex(tool, "function", &function);
        const char *text = print(function ? function : tool);
        if (!text) return ICP_ENOMEM;
        buf_printf(out, "%s\n", text);
    }
    buf_puts(out, "To call one, write nothing but a JSON object between these tags:\n"
                  "<tool_call>\n{\"name\": \"function\", \"arguments\": {}}\n</tool_call>");
    return out->failed ? ICP_ENOMEM : 0;
}

/* Makes room at the front of a list. */
static int shift(json_object *list) {
    size_t n = json_object_array_length(list);
    if (json_object_array_add(list, NULL) < 0) return ICP_ENOMEM;
    for (size_t i = n; i > 0; i--) {
        json_object *item = json_object_get(json_object_array_get_idx(list, i - 1));
        if (json_object_array_put_idx(list, i, item) < 0) return ICP_ENOMEM;
    }
    return 0;
}

static int insert_system(json_object *messages, const char *text, bool list) {
    json_object *message = json_object_new_object();
    int rc = message ? set_text(message, "role", "system", 6) : ICP_ENOMEM;
    if (rc == 0) rc = prepend(message, text, list);
    if (rc == 0) rc = shift(messages);
    if (rc == 0 && json_object_array_put_idx(messages, 0, message) == 0) return 0;
    json_object_put(message);
    return ICP_ENOMEM;
}

static int teach_tools(const icp_chat_caps *caps, json_object *vars, json_object *messages) {
    json_object *tools = NULL;
    json_object_object_get_ex(vars, "tools", &tools);
    if (caps->tools || !json_object_is_type(tools, json_type_array) ||
        json_object_array_length(tools) == 0)
        return 0;
    buf text = {0};
    int rc = describe_tools(tools, &text);
    json_object *first = json_object_array_get_idx(messages, 0);
    if (rc == 0)
        rc = role_is(first, "system") ? prepend(first, text.data, caps->list_content)
                                      : insert_system(messages, text.data, caps->list_content);
    if (rc == 0) json_object_object_add(vars, "tools", NULL);
    buf_fini(&text);
    return rc;
}

/* System messages become the beginning of the user message that follows, or user messages. */
static int merge_system(const icp_chat_caps *caps, json_object *messages) {
    for (size_t i = 0; !caps->system && i < json_object_array_length(messages);) {
        json_object *message = json_object_array_get_idx(messages, i);
        json_object *next = json_object_array_get_idx(messages, i + 1);
        if (!role_is(message, "system")) {
            i++;
        } else if (next && (role_is(next, "user") || role_is(next, "system"))) {
            buf text = {0};
            put_content(json_object_object_get(message, "content"), &text);
            int rc = text.failed ? ICP_ENOMEM
                                 : prepend(next, text.data ? text.data : "", caps->list_content);
            buf_fini(&text);
            TRY(rc);
            if (json_object_array_del_idx(messages, i, 1) < 0) return ICP_ENOMEM;
        } else {
            TRY(set_text(message, "role", "user", 4));
        }
    }
    return 0;
}

int chat_input_adapt(const icp_chat_caps *caps, json_object *vars, icp_error *err) {
    json_object *messages = NULL;
    json_object_object_get_ex(vars, "messages", &messages);
    if (!json_object_is_type(messages, json_type_array)) return 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_object_array_length(messages); i++) {
        json_object *message = json_object_array_get_idx(messages, i);
        if (json_object_is_type(message, json_type_object)) rc = fit_message(caps, message, err);
    }
    if (rc == 0) rc = teach_tools(caps, vars, messages);
    if (rc == 0) rc = merge_system(caps, messages);
    return rc == ICP_ENOMEM ? error_set(err, rc, "out of memory") : rc;
}
