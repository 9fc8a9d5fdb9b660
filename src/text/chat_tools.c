/* The tools of a request. */
#include "chat_internal.h"
#include "json.h"

#include <json-c/json.h>

json_object *chat_tools_read(const char *tools_json) {
    json_object *tools = tools_json ? json_read_whole(tools_json, strlen(tools_json)) : NULL;
    if (json_object_is_type(tools, json_type_array) && json_object_array_length(tools))
        return tools;
    json_object_put(tools);
    return NULL;
}

json_object *chat_tool_function(json_object *tool) {
    json_object *function = NULL;
    if (!json_object_is_type(tool, json_type_object)) return NULL;
    if (!json_object_object_get_ex(tool, "function", &function)) function = tool;
    return json_object_is_type(function, json_type_object) ? function : NULL;
}

const char *chat_tool_name(json_object *tool) {
    json_object *name = NULL;
    json_object_object_get_ex(chat_tool_function(tool), "name", &name);
    return json_object_is_type(name, json_type_string) ? json_object_get_string(name) : NULL;
}

bool chat_tool_is_strict(json_object *tool) {
    json_object *strict = NULL;
    json_object_object_get_ex(chat_tool_function(tool), "strict", &strict);
    return json_object_get_boolean(strict);
}

static json_object *schema_of(json_object *tool) {
    json_object *schema = NULL, *function = chat_tool_function(tool);
    if (!json_object_object_get_ex(function, "parameters", &schema))
        json_object_object_get_ex(function, "input_schema", &schema);
    return json_object_is_type(schema, json_type_object) ? schema : NULL;
}

json_object *chat_tool_params(json_object *tool) {
    json_object *properties = NULL;
    json_object_object_get_ex(schema_of(tool), "properties", &properties);
    return json_object_is_type(properties, json_type_object) ? properties : NULL;
}

void chat_tool_schema(json_object *tool, buf *out) {
    json_object *schema = schema_of(tool);
    bool any = !schema || json_object_object_length(schema) == 0;
    const char *text = any ? "{\"type\":\"object\"}"
                           : json_object_to_json_string_ext(
                                 schema, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    out->failed |= !text;
    buf_puts(out, text ? text : "");
}
