/* The body of POST /v1/messages as a chat body.
 * https://platform.claude.com/docs/en/api/messages
 *
 *   user       text…, tool_result…   ─▶  tool messages, user messages, in order
 *   assistant  thinking, text, tool_use…  ─▶  one message: reasoning_content, content, tool_calls
 *
 * A last turn of the assistant is continued. */
#include <stdio.h>
#include <string.h>

#include "anthropic.h"
#include "chat_build.h"

/* ---- cache_control ---------------------------------------------------------------------------
 */

/* That of a block, or of the body, as a breakpoint, which is a new reference; NULL: it has none. */
static json_object *breakpoint_of(json_object *block) {
    json_object *control = field_get(block, "cache_control");
    if (!control || !json_object_is_type(control, json_type_object)) return NULL;
    json_object *breakpoint = json_object_new_object(), *ttl = field_get(control, "ttl");
    add_string(breakpoint, "mode", "explicit");
    json_object_object_add(breakpoint, "ttl",
                           ttl ? json_object_get(ttl) : json_object_new_double(CACHE_CONTROL->ttl));
    return breakpoint;
}

static void add_marked_text(json_object *message, json_object *text, json_object *block) {
    json_object *breakpoint = breakpoint_of(block);
    add_text_part(message, text, breakpoint);
    json_object_put(breakpoint);
}

/* The last text of a message gets the breakpoint of what comes at its end. */
static void mark_message(json_object *message, json_object *block) {
    json_object *content = field_get(message, "content"), *breakpoint = breakpoint_of(block);
    size_t n =
        json_object_is_type(content, json_type_array) ? json_object_array_length(content) : 0;
    if (breakpoint && n)
        json_object_object_add(json_object_array_get_idx(content, n - 1), "prompt_cache_breakpoint",
                               json_object_get(breakpoint));
    json_object_put(breakpoint);
}

/* ---- system ---------------------------------------------------------------------------------- */

/* Lines that name the client and its session would make every session's prompt another one. */
static json_object *without_labels(json_object *text) {
    static const char label[] = "x-anthropic-";
    const char *at = json_object_get_string(text);
    buf kept = {0};
    for (const char *end; *at; at = end) {
        end = at + strcspn(at, "\n");
        end += *end == '\n';
        if (strncmp(at, label, sizeof label - 1) != 0) buf_put(&kept, at, (size_t)(end - at));
    }
    json_object *rest =
        kept.failed ? NULL : json_object_new_string_len(kept.data ? kept.data : "", (int)kept.len);
    buf_fini(&kept);
    return rest;
}

/* block: that has the text, if it stands in one. */
static bool add_system_text(json_object *message, json_object *text, json_object *block,
                            const char *param, reply *error) {
    if (!text || !json_object_is_type(text, json_type_string)) {
        reply_error(error, 400, "invalid_type", param,
                    "Invalid value for '%s': expected a string or a list of text blocks.", param);
        return false;
    }
    json_object *rest = without_labels(text);
    if (json_object_get_string_len(rest) > 0) add_marked_text(message, rest, block);
    json_object_put(rest);
    return true;
}

static bool read_system(json_object *messages, json_object *system, const char *param,
                        reply *error) {
    if (!system) return true;
    json_object *message = json_object_new_object();
    add_string(message, "role", "system");
    bool ok = true;
    if (json_object_is_type(system, json_type_array)) {
        for (size_t i = 0; ok && i < json_object_array_length(system); i++) {
            json_object *block = json_object_array_get_idx(system, i);
            const char *type = type_of(block, param, error);
            ok = type && !strcmp(type, "text")
                     ? add_system_text(message, field_get(block, "text"), block, param, error)
                     : add_system_text(message, NULL, NULL, param, error);
        }
    } else {
        ok = add_system_text(message, system, NULL, param, error);
    }
    if (ok && field_get(message, "content"))
        json_object_array_add(messages, json_object_get(message));
    json_object_put(message);
    return ok;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool refuse_block(const char *type, const char *param, reply *error) {
    bool media = !strcmp(type, "image") || !strcmp(type, "document");
    reply_error(error, 400, media ? "unsupported" : "invalid_value", param,
                media
                    ? "'%s': content of type '%.40s' is not supported, this model reads text only."
                    : "'%s': content of type '%.40s' is not known here.",
                param, type);
    return false;
}

static bool read_result(json_object *messages, json_object *block, const char *param,
                        reply *error) {
    json_object *id = member_of(block, param, "tool_use_id", json_type_string, error);
    json_object *content = field_get(block, "content");
    json_object *message = id ? new_message(messages, "tool") : NULL;
    if (!message) return false;
    json_object_object_add(message, "tool_call_id", json_object_get(id));
    if (!content) {
        add_string(message, "content", "");
    } else if (json_object_is_type(content, json_type_string)) {
        add_text_part(message, content, NULL);
    } else if (!json_object_is_type(content, json_type_array)) {
        json_object_object_add(message, "content", json_object_get(content));
    } else {
        json_object_object_add(message, "content", json_object_new_array());
        for (size_t i = 0; i < json_object_array_length(content); i++) {
            json_object *part = json_object_array_get_idx(content, i);
            const char *type = type_of(part, param, error);
            if (!type) return false;
            if (strcmp(type, "text") != 0) return refuse_block(type, param, error);
            json_object *text = member_of(part, param, "text", json_type_string, error);
            if (!text) return false;
            add_marked_text(message, text, part);
        }
    }
    mark_message(message, block);
    return true;
}

/* *open: the user's message that text goes into; a tool result closes it. */
static bool read_user_block(json_object *messages, json_object **open, json_object *block,
                            const char *param, reply *error) {
    const char *type = type_of(block, param, error);
    if (!type) return false;
    if (!strcmp(type, "tool_result")) {
        *open = NULL;
        return read_result(messages, block, param, error);
    }
    if (strcmp(type, "text") != 0) return refuse_block(type, param, error);
    json_object *text = member_of(block, param, "text", json_type_string, error);
    if (!text) return false;
    if (!*open) *open = new_message(messages, "user");
    add_marked_text(*open, text, block);
    return true;
}

static bool read_tool_use(json_object *message, json_object *block, const char *param,
                          reply *error) {
    json_object *id = member_of(block, param, "id", json_type_string, error);
    json_object *name = member_of(block, param, "name", json_type_string, error);
    json_object *input = member_of(block, param, "input", json_type_object, error);
    if (error->status) return false;
    json_object *arguments = json_object_new_string(json_object_to_json_string_ext(
        input, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    add_call(message, id, name, arguments);
    mark_message(message, block);
    json_object_put(arguments);
    return true;
}

static bool read_assistant_block(json_object *message, json_object *block, const char *param,
                                 reply *error) {
    const char *type = type_of(block, param, error);
    if (!type) return false;
    if (!strcmp(type, "redacted_thinking")) return true; /* nobody here can read it */
    if (!strcmp(type, "tool_use")) return read_tool_use(message, block, param, error);
    bool thinks = !strcmp(type, "thinking");
    if (!thinks && strcmp(type, "text") != 0) return refuse_block(type, param, error);
    json_object *text = member_of(block, param, type, json_type_string, error);
    if (!text) return false;
    if (thinks)
        json_object_object_add(message, "reasoning_content", json_object_get(text));
    else
        add_marked_text(message, text, block);
    return true;
}

static bool read_blocks(json_object *messages, json_object *blocks, bool user, const char *where,
                        reply *error) {
    json_object *open = user ? NULL : new_message(messages, "assistant");
    size_t n = json_object_array_length(blocks);
    if (n == 0)
        return reply_error(error, 400, "invalid_value", where, "'%s': a message must not be empty.",
                           where),
               false;
    for (size_t i = 0; i < n; i++) {
        char param[72];
        snprintf(param, sizeof param, "%s[%zu]", where, i);
        json_object *block = json_object_array_get_idx(blocks, i);
        if (!(user ? read_user_block(messages, &open, block, param, error)
                   : read_assistant_block(open, block, param, error)))
            return false;
    }
    return true;
}

static bool read_message(json_object *messages, json_object *message, size_t at, reply *error) {
    char param[40];
    snprintf(param, sizeof param, "messages[%zu]", at);
    if (!json_object_is_type(message, json_type_object))
        return reply_error(error, 400, "invalid_type", param,
                           "Invalid type for '%s': expected an object, got %s.", param,
                           json_kind(message)),
               false;
    json_object *role = member_of(message, param, "role", json_type_string, error);
    if (!role) return false;
    const char *name = json_object_get_string(role);
    bool user = !strcmp(name, "user"), system = !strcmp(name, "system");
    if (!user && !system && strcmp(name, "assistant") != 0)
        return reply_error(error, 400, "invalid_value", param,
                           "'%s.role': '%.40s' is not one of user, assistant and system.", param,
                           name),
               false;
    json_object *content = field_get(message, "content");
    snprintf(param, sizeof param, "messages[%zu].content", at);
    if (system) return read_system(messages, content, param, error);
    if (content && json_object_is_type(content, json_type_array))
        return read_blocks(messages, content, user, param, error);
    if (!content || !json_object_is_type(content, json_type_string))
        return reply_error(error, 400, "invalid_type", param,
                           "'%s': expected a string or a list of blocks.", param),
               false;
    add_text_part(new_message(messages, name), content, NULL);
    return true;
}

static bool read_messages(json_object *chat, json_object *body, reply *error) {
    json_object *list = field_of_type(body, "messages", json_type_array, error);
    size_t n = list ? json_object_array_length(list) : 0;
    if (!list)
        reply_error(error, 400, "missing_field", "messages", "Missing field: 'messages'.");
    else if (n == 0)
        reply_error(error, 400, "invalid_value", "messages",
                    "'messages': at least one message is required.");
    if (error->status) return false;
    json_object *messages = json_object_new_array();
    json_object_object_add(chat, "messages", messages);
    if (!read_system(messages, field_get(body, "system"), "system", error)) return false;
    for (size_t i = 0; i < n; i++)
        if (!read_message(messages, json_object_array_get_idx(list, i), i, error)) return false;
    json_object *last = json_object_array_get_idx(messages, json_object_array_length(messages) - 1);
    mark_message(last, body);
    if (!strcmp(json_object_get_string(field_get(last, "role")), "assistant")) {
        json_object_object_add(chat, "continue_final_message", json_object_new_boolean(1));
        json_object_object_add(chat, "add_generation_prompt", json_object_new_boolean(0));
    }
    return true;
}

/* Checks and counts the marks of a list of blocks or tools; what else is wrong is seen elsewhere.
 */
static bool count_marks(json_object *list, const char *param, int *n, reply *error) {
    if (!list || !json_object_is_type(list, json_type_array)) return true;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        json_object *block = json_object_array_get_idx(list, i);
        char where[72];
        snprintf(where, sizeof where, "%s[%zu]", param, i);
        if (!json_object_is_type(block, json_type_object)) continue;
        if (!cache_mark_read(block, CACHE_CONTROL, where, error)) return false;
        *n += field_get(block, "cache_control") != NULL;
    }
    return true;
}

static bool check_marks(json_object *body, reply *error) {
    enum { MOST = 4 };
    int n = field_get(body, "cache_control") != NULL;
    json_object *messages = field_get(body, "messages");
    bool ok = cache_mark_read(body, CACHE_CONTROL, "", error) &&
              count_marks(field_get(body, "tools"), "tools", &n, error) &&
              count_marks(field_get(body, "system"), "system", &n, error);
    for (size_t i = 0; ok && i < json_object_array_length(messages); i++) {
        char where[48];
        snprintf(where, sizeof where, "messages[%zu].content", i);
        json_object *message = json_object_array_get_idx(messages, i);
        ok = count_marks(field_get(message, "content"), where, &n, error);
    }
    if (ok && n > MOST)
        reply_error(error, 400, "invalid_value", "cache_control",
                    "'cache_control': at most %d blocks may have one, %d have.", MOST, n);
    return !error->status;
}

/* ---- tools and options ----------------------------------------------------------------------- */

/* Tools that Anthropic's own servers run are left out: nobody runs them here. */
static bool read_tools(json_object *chat, json_object *body, reply *error) {
    json_object *list = field_of_type(body, "tools", json_type_array, error);
    if (!list) return !error->status;
    json_object *tools = json_object_new_array();
    json_object_object_add(chat, "tools", tools);
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        char param[40];
        snprintf(param, sizeof param, "tools[%zu]", i);
        json_object *tool = json_object_array_get_idx(list, i);
        bool object = json_object_is_type(tool, json_type_object);
        json_object *type = object ? field_get(tool, "type") : NULL;
        if (type && json_object_is_type(type, json_type_string) &&
            strcmp(json_object_get_string(type), "custom") != 0)
            continue;
        if (!object)
            return reply_error(error, 400, "invalid_type", param,
                               "Invalid type for '%s': expected an object, got %s.", param,
                               json_kind(tool)),
                   false;
        if (!member_of(tool, param, "name", json_type_string, error) ||
            !member_of(tool, param, "input_schema", json_type_object, error))
            return false;
        json_object *breakpoint = breakpoint_of(tool);
        add_tool(tools, tool, "input_schema", breakpoint);
        json_object_put(breakpoint);
    }
    return true;
}

static bool read_tool_choice(json_object *chat, json_object *body, reply *error) {
    json_object *choice = field_of_type(body, "tool_choice", json_type_object, error);
    if (!choice) return !error->status;
    const char *type = type_of(choice, "tool_choice", error);
    if (!type) return false;
    json_object *single =
        field_inside(choice, "tool_choice.", "disable_parallel_tool_use", json_type_boolean, error);
    if (single)
        json_object_object_add(chat, "parallel_tool_calls",
                               json_object_new_boolean(!json_object_get_boolean(single)));
    if (!strcmp(type, "tool")) {
        json_object *name = member_of(choice, "tool_choice", "name", json_type_string, error);
        if (name) choose_tool(chat, name);
    } else if (!strcmp(type, "any")) {
        add_string(chat, "tool_choice", "required");
    } else if (!strcmp(type, "auto") || !strcmp(type, "none")) {
        add_string(chat, "tool_choice", type);
    } else {
        reply_error(error, 400, "invalid_value", "tool_choice",
                    "'tool_choice.type': '%.40s' is not one of auto, any, tool and none.", type);
    }
    return !error->status;
}

static bool read_thinking(json_object *chat, json_object *body, reply *error) {
    static const char *const kinds[] = {"disabled", "enabled", "adaptive", "between_tools"};
    json_object *thinking = field_of_type(body, "thinking", json_type_object, error);
    if (!thinking) return !error->status;
    const char *type = type_of(thinking, "thinking", error);
    for (size_t i = 0; type && i < COUNT_OF(kinds); i++)
        if (!strcmp(type, kinds[i])) {
            json_object_object_add(template_arguments(chat), "enable_thinking",
                                   json_object_new_boolean(i > 0));
            return true;
        }
    reply_error(error, 400, "invalid_value", "thinking",
                "'thinking.type' is not one of enabled, disabled, adaptive and between_tools.");
    return false;
}

static bool read_output(json_object *chat, json_object *body, reply *error) {
    json_object *config = field_of_type(body, "output_config", json_type_object, error);
    if (!config) return !error->status;
    json_object *effort = field_inside(config, "output_config.", "effort", json_type_string, error);
    if (effort) json_object_object_add(chat, "reasoning_effort", json_object_get(effort));
    json_object *format = field_get(config, "format");
    if (!format) return !error->status;
    const char *type = type_of(format, "output_config.format", error);
    if (!type) return false;
    if (strcmp(type, "json_schema") != 0)
        return reply_error(error, 400, "invalid_value", "output_config.format",
                           "'output_config.format.type': '%.40s' is not json_schema.", type),
               false;
    json_object *schema =
        member_of(format, "output_config.format", "schema", json_type_object, error);
    if (!schema) return false;
    json_object *named = json_object_new_object();
    add_string(named, "name", "output");
    json_object_object_add(named, "schema", json_object_get(schema));
    json_object_object_add(named, "strict", json_object_new_boolean(1));
    want_schema(chat, named);
    return true;
}

static bool read_stops(json_object *chat, json_object *body, reply *error) {
    json_object *stops = field_of_type(body, "stop_sequences", json_type_array, error);
    if (stops) json_object_object_add(chat, "stop", json_object_get(stops));
    return !error->status;
}

json_object *anthropic_chat(json_object *body, bool counting, reply *error) {
    static const char *const alike[] = {"model",
                                        "max_tokens",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "seed",
                                        "stream",
                                        "cache_salt",
                                        "lora",
                                        "priority",
                                        "prompt_cache_options",
                                        "chat_template_kwargs",
                                        "prompt_cache_key"};
    json_object *chat = json_object_new_object();
    if (!chat) return reply_error(error, 503, NULL, NULL, "Out of memory."), NULL;
    copy_members(chat, body, alike, COUNT_OF(alike));
    if (!counting && !field_get(body, "max_tokens"))
        reply_error(error, 400, "missing_field", "max_tokens", "Missing field: 'max_tokens'.");
    if (!error->status && read_messages(chat, body, error) && read_tools(chat, body, error) &&
        read_tool_choice(chat, body, error) && read_thinking(chat, body, error) &&
        read_output(chat, body, error) && read_stops(chat, body, error) && check_marks(body, error))
        return chat;
    json_object_put(chat);
    return NULL;
}
