/* Building blocks of a chat body, for the APIs that bring their own form into it. */
#include <stdio.h>
#include <string.h>

#include "chat_build.h"

void copy_members(json_object *to, json_object *from, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        json_object *value = field_get(from, names[i]);
        if (value) json_object_object_add(to, names[i], json_object_get(value));
    }
}

void rename_member(json_object *to, const char *as, json_object *from, const char *name) {
    json_object *value = field_get(from, name);
    if (value) json_object_object_add(to, as, json_object_get(value));
}

void add_string(json_object *to, const char *name, const char *text) {
    json_object_object_add(to, name, json_object_new_string(text));
}

const char *type_of(json_object *value, const char *param, reply *error) {
    json_object *type =
        json_object_is_type(value, json_type_object) ? field_get(value, "type") : NULL;
    if (type && json_object_is_type(type, json_type_string)) return json_object_get_string(type);
    reply_error(error, 400, "invalid_type", param,
                "Invalid value for '%s': expected an object with a 'type'.", param);
    return NULL;
}

json_object *member_of(json_object *object, const char *param, const char *name,
                       enum json_type type, reply *error) {
    json_object *value = field_get(object, name);
    if (value && json_object_is_type(value, type)) return value;
    char path[96];
    snprintf(path, sizeof path, "%s.%s", param, name);
    if (value)
        reply_error(error, 400, "invalid_type", path, "Invalid type for '%s': got %s.", path,
                    json_kind(value));
    else
        reply_error(error, 400, "missing_field", path, "Missing field: '%s'.", path);
    return NULL;
}

json_object *new_message(json_object *messages, const char *role) {
    json_object *message = json_object_new_object();
    if (message) {
        add_string(message, "role", role);
        json_object_array_add(messages, message);
    }
    return message;
}

void add_text_part(json_object *message, json_object *text, json_object *breakpoint) {
    json_object *parts = field_get(message, "content");
    if (!parts) {
        parts = json_object_new_array();
        json_object_object_add(message, "content", parts);
    }
    json_object *part = json_object_new_object();
    add_string(part, "type", "text");
    json_object_object_add(part, "text", json_object_get(text));
    if (breakpoint)
        json_object_object_add(part, "prompt_cache_breakpoint", json_object_get(breakpoint));
    json_object_array_add(parts, part);
}

void add_call(json_object *message, json_object *id, json_object *name, json_object *arguments) {
    json_object *calls = field_get(message, "tool_calls");
    if (!calls) {
        calls = json_object_new_array();
        json_object_object_add(message, "tool_calls", calls);
    }
    json_object *call = json_object_new_object(), *function = json_object_new_object();
    json_object_object_add(call, "id", json_object_get(id));
    add_string(call, "type", "function");
    json_object_object_add(function, "name", json_object_get(name));
    json_object_object_add(function, "arguments", json_object_get(arguments));
    json_object_object_add(call, "function", function);
    json_object_array_add(calls, call);
}

void add_tool(json_object *tools, json_object *from, const char *schema, json_object *breakpoint) {
    static const char *const alike[] = {"name", "description", "strict"};
    json_object *tool = json_object_new_object(), *function = json_object_new_object();
    add_string(tool, "type", "function");
    copy_members(function, from, alike, COUNT_OF(alike));
    rename_member(function, "parameters", from, schema);
    json_object_object_add(tool, "function", function);
    if (breakpoint)
        json_object_object_add(tool, "prompt_cache_breakpoint", json_object_get(breakpoint));
    json_object_array_add(tools, tool);
}

void choose_tool(json_object *chat, json_object *name) {
    json_object *choice = json_object_new_object(), *function = json_object_new_object();
    add_string(choice, "type", "function");
    json_object_object_add(function, "name", json_object_get(name));
    json_object_object_add(choice, "function", function);
    json_object_object_add(chat, "tool_choice", choice);
}

void want_schema(json_object *chat, json_object *schema) {
    json_object *format = json_object_new_object();
    add_string(format, "type", "json_schema");
    json_object_object_add(format, "json_schema", schema);
    json_object_object_add(chat, "response_format", format);
}

json_object *template_arguments(json_object *chat) {
    json_object *old = field_get(chat, "chat_template_kwargs");
    if (json_object_is_type(old, json_type_object) && old) return old;
    json_object *new = json_object_new_object();
    json_object_object_add(chat, "chat_template_kwargs", new);
    return new;
}
