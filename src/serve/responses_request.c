/* The body of POST /v1/responses as a chat body.
 * https://platform.openai.com/docs/api-reference/responses
 *
 *   input items  reasoning, message, function_call…  ─▶  one message of the assistant
 *                function_call_output                 ─▶  a message of role tool
 *
 * Instructions and the system messages that input begins with become one: templates take one. */
#include <stdio.h>
#include <string.h>

#include "chat_build.h"
#include "responses.h"
#include "store.h"

/* ---- input ----------------------------------------------------------------------------------- */

static bool refuse_item(const char *type, const char *param, reply *error) {
    reply_error(error, 400, "unsupported", param,
                "Input of type '%.60s' is not supported in '%s': text and calls of functions are.",
                type, param);
    return false;
}

/* A string, or a list of parts with text. */
static bool read_content(json_object *message, json_object *content, const char *param,
                         reply *error) {
    if (content && json_object_is_type(content, json_type_string)) {
        add_text_part(message, content, NULL);
        return true;
    }
    if (!content || !json_object_is_type(content, json_type_array))
        return reply_error(error, 400, "invalid_type", param,
                           "Invalid type for '%s': expected a string or a list of parts.", param),
               false;
    for (size_t i = 0; i < json_object_array_length(content); i++) {
        json_object *part = json_object_array_get_idx(content, i);
        const char *type = type_of(part, param, error);
        if (!type || !cache_mark_read(part, PROMPT_CACHE_BREAKPOINT, param, error)) return false;
        bool refusal = !strcmp(type, "refusal");
        if (!refusal && !strstr(type, "text")) return refuse_item(type, param, error);
        json_object *text =
            member_of(part, param, refusal ? type : "text", json_type_string, error);
        if (!text) return false;
        add_text_part(message, text, field_get(part, "prompt_cache_breakpoint"));
    }
    return true;
}

/* The assistant's message that is being put together: the last one, if it is the assistant's. */
static json_object *assistant(json_object *messages) {
    size_t n = json_object_array_length(messages);
    json_object *last = n ? json_object_array_get_idx(messages, n - 1) : NULL;
    if (last && !strcmp(json_object_get_string(field_get(last, "role")), "assistant")) return last;
    return new_message(messages, "assistant");
}

/* A second text begins a new message; so does reasoning after anything else. */
static json_object *assistant_without(json_object *messages, const char *member) {
    json_object *message = assistant(messages);
    bool taken = field_get(message, member) || field_get(message, "tool_calls");
    return taken ? new_message(messages, "assistant") : message;
}

static bool is_system(const char *role) {
    return !strcmp(role, "system") || !strcmp(role, "developer");
}

static bool read_message(json_object *messages, json_object *item, const char *where,
                         reply *error) {
    json_object *role = member_of(item, where, "role", json_type_string, error);
    if (!role) return false;
    const char *name = json_object_get_string(role);
    char param[64];
    snprintf(param, sizeof param, "%.40s.role", where);
    if (!is_system(name) && strcmp(name, "user") != 0 && strcmp(name, "assistant") != 0)
        return reply_error(error, 400, "invalid_value", param,
                           "Invalid value for '%s': '%.40s' is not one of system, developer, user "
                           "and assistant.",
                           param, name),
               false;
    json_object *only =
        json_object_array_length(messages) == 1 ? json_object_array_get_idx(messages, 0) : NULL;
    json_object *message;
    if (!strcmp(name, "assistant"))
        message = assistant_without(messages, "content");
    else if (is_system(name) && only && is_system(json_object_get_string(field_get(only, "role"))))
        message = only;
    else
        message = new_message(messages, is_system(name) ? "system" : name);
    snprintf(param, sizeof param, "%.40s.content", where);
    return read_content(message, field_get(item, "content"), param, error);
}

static bool read_call(json_object *messages, json_object *item, const char *param, reply *error) {
    json_object *id = member_of(item, param, "call_id", json_type_string, error);
    json_object *name = member_of(item, param, "name", json_type_string, error);
    json_object *arguments = member_of(item, param, "arguments", json_type_string, error);
    if (error->status) return false;
    add_call(assistant(messages), id, name, arguments);
    return true;
}

static bool read_result(json_object *messages, json_object *item, const char *param, reply *error) {
    json_object *id = member_of(item, param, "call_id", json_type_string, error);
    if (!id) return false;
    json_object *message = new_message(messages, "tool");
    json_object_object_add(message, "tool_call_id", json_object_get(id));
    char where[64];
    snprintf(where, sizeof where, "%.40s.output", param);
    return read_content(message, field_get(item, "output"), where, error);
}

/* Content when it is there; else the summary. What is encrypted is not ours. */
static bool read_reasoning(json_object *messages, json_object *item, reply *error) {
    json_object *parts = field_of_type(item, "content", json_type_array, error);
    if (!parts || !json_object_array_length(parts))
        parts = field_of_type(item, "summary", json_type_array, error);
    buf text = {0};
    for (size_t i = 0; parts && i < json_object_array_length(parts); i++) {
        json_object *part = json_object_array_get_idx(parts, i);
        json_object *piece =
            json_object_is_type(part, json_type_object) ? field_get(part, "text") : NULL;
        if (!piece || !json_object_is_type(piece, json_type_string)) continue;
        if (text.len) buf_putc(&text, '\n');
        buf_put(&text, json_object_get_string(piece), (size_t)json_object_get_string_len(piece));
    }
    if (text.len)
        json_object_object_add(assistant_without(messages, "content"), "reasoning_content",
                               json_object_new_string_len(text.data, (int)text.len));
    buf_fini(&text);
    return !error->status;
}

static bool read_item(json_object *messages, json_object *item, size_t at, reply *error) {
    char param[40];
    snprintf(param, sizeof param, "input[%zu]", at);
    if (!json_object_is_type(item, json_type_object))
        return reply_error(error, 400, "invalid_type", param,
                           "Invalid type for '%s': expected an object, got %s.", param,
                           json_kind(item)),
               false;
    if (!field_get(item, "type")) return read_message(messages, item, param, error);
    const char *type = type_of(item, param, error);
    if (!type) return false;
    if (!strcmp(type, "message")) return read_message(messages, item, param, error);
    if (!strcmp(type, "function_call")) return read_call(messages, item, param, error);
    if (!strcmp(type, "function_call_output")) return read_result(messages, item, param, error);
    if (!strcmp(type, "reasoning")) return read_reasoning(messages, item, error);
    return refuse_item(type, param, error);
}

/* ---- what came before ------------------------------------------------------------------------ */

static void append_all(json_object *to, json_object *from) {
    for (size_t i = 0; from && i < json_object_array_length(from); i++)
        json_object_array_add(to, json_object_get(json_object_array_get_idx(from, i)));
}

/* The input of a kept response, and its output. */
static bool add_previous(call *c, json_object *items, json_object *body) {
    json_object *id = field_of_type(body, "previous_response_id", json_type_string, &c->reply);
    if (!id) return !c->reply.status;
    buf text = {0}, input = {0};
    if (!store_get(c->server->store, c->tenant, json_object_get_string(id), &text, &input))
        reply_error(&c->reply, 400, "previous_response_not_found", "previous_response_id",
                    "Previous response with id '%.80s' not found.", json_object_get_string(id));
    json_object *before = c->reply.status ? NULL : json_read_whole(input.data, input.len);
    json_object *response = c->reply.status ? NULL : json_read_whole(text.data, text.len);
    append_all(items, before);
    append_all(items, response ? field_get(response, "output") : NULL);
    json_object_put(before);
    json_object_put(response);
    buf_fini(&text);
    buf_fini(&input);
    return !c->reply.status;
}

/* Input as items with ids, so that they can be listed. */
static void add_item(json_object *items, json_object *item) {
    if (json_object_is_type(item, json_type_object) && !field_get(item, "id")) {
        char id[40];
        make_id(id, sizeof id, field_get(item, "call_id") ? "fc_" : "msg_");
        if (!field_get(item, "type")) add_string(item, "type", "message");
        add_string(item, "id", id);
    }
    json_object_array_add(items, json_object_get(item));
}

static json_object *all_items(call *c, json_object *body) {
    json_object *items = json_object_new_array(), *input = field_get(body, "input");
    bool text = input && json_object_is_type(input, json_type_string);
    bool list = input && json_object_is_type(input, json_type_array);
    if (!input)
        reply_error(&c->reply, 400, "missing_field", "input", "Missing field: 'input'.");
    else if (!text && !list)
        reply_error(&c->reply, 400, "invalid_type", "input",
                    "Invalid type for 'input': expected a string or a list of items, got %s.",
                    json_kind(input));
    else if (add_previous(c, items, body) && list)
        for (size_t i = 0; i < json_object_array_length(input); i++)
            add_item(items, json_object_array_get_idx(input, i));
    if (!c->reply.status && text) {
        json_object *message = new_message(items, "user");
        json_object *part = json_object_new_object(), *parts = json_object_new_array();
        add_string(part, "type", "input_text");
        json_object_object_add(part, "text", json_object_get(input));
        json_object_array_add(parts, part);
        json_object_object_add(message, "content", parts);
        char id[40];
        make_id(id, sizeof id, "msg_");
        add_string(message, "type", "message");
        add_string(message, "id", id);
    }
    if (!c->reply.status && json_object_array_length(items) == 0)
        reply_error(&c->reply, 400, "invalid_value", "input",
                    "Invalid value for 'input': it is empty.");
    if (!c->reply.status) return items;
    json_object_put(items);
    return NULL;
}

static bool read_input(json_object *chat, json_object *body, json_object *items, reply *error) {
    json_object *messages = json_object_new_array();
    json_object_object_add(chat, "messages", messages);
    json_object *instructions = field_of_type(body, "instructions", json_type_string, error);
    if (instructions && json_object_get_string_len(instructions))
        add_text_part(new_message(messages, "system"), instructions, NULL);
    for (size_t i = 0; !error->status && i < json_object_array_length(items); i++)
        read_item(messages, json_object_array_get_idx(items, i), i, error);
    return !error->status;
}

/* ---- tools and options ----------------------------------------------------------------------- */

/* Tools of other types would run on OpenAI's servers, or in the client without a schema: clients
 * offer them to every model, so they are left out. */
static bool read_tools(json_object *chat, json_object *body, reply *error) {
    json_object *list = field_of_type(body, "tools", json_type_array, error);
    if (!list) return !error->status;
    json_object *tools = json_object_new_array();
    json_object_object_add(chat, "tools", tools);
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        char param[40];
        snprintf(param, sizeof param, "tools[%zu]", i);
        json_object *tool = json_object_array_get_idx(list, i);
        const char *type = type_of(tool, param, error);
        if (!type) return false;
        if (strcmp(type, "function") != 0) continue;
        if (!member_of(tool, param, "name", json_type_string, error)) return false;
        add_tool(tools, tool, "parameters", NULL);
    }
    return true;
}

static bool read_tool_choice(json_object *chat, json_object *body, reply *error) {
    json_object *choice = field_get(body, "tool_choice");
    if (!choice) return true;
    if (json_object_is_type(choice, json_type_string)) {
        rename_member(chat, "tool_choice", body, "tool_choice");
        return true;
    }
    const char *type = type_of(choice, "tool_choice", error);
    if (!type) return false;
    if (!strcmp(type, "function")) {
        json_object *name = member_of(choice, "tool_choice", "name", json_type_string, error);
        if (name) choose_tool(chat, name);
    } else if (!strcmp(type, "allowed_tools")) {
        rename_member(chat, "tool_choice", choice, "mode");
    } else {
        reply_error(error, 400, "unsupported", "tool_choice",
                    "'tool_choice' of type '%.40s' is not supported: tools are functions here.",
                    type);
    }
    return !error->status;
}

static bool read_format(json_object *chat, json_object *body, reply *error) {
    static const char *const alike[] = {"name", "description", "schema", "strict"};
    json_object *text = field_of_type(body, "text", json_type_object, error);
    json_object *format = text ? field_get(text, "format") : NULL;
    if (!format) return !error->status;
    const char *type = type_of(format, "text.format", error);
    if (!type) return false;
    if (!strcmp(type, "json_schema")) {
        json_object *schema = json_object_new_object();
        copy_members(schema, format, alike, COUNT_OF(alike));
        want_schema(chat, schema);
    } else {
        json_object_object_add(chat, "response_format", json_object_get(format));
    }
    return true;
}

static bool read_logprobs(json_object *chat, json_object *body, reply *error) {
    json_object *include = field_of_type(body, "include", json_type_array, error);
    static const field top_logprobs = {"top_logprobs", FIELD_INT, 0, 0, ICP_MAX_LOGPROBS};
    int top = 0;
    if (!fields_read(body, "", &top_logprobs, 1, &top, error)) return false;
    bool wanted = top > 0;
    for (size_t i = 0; include && i < json_object_array_length(include); i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(include, i));
        wanted |= name && !strcmp(name, "message.output_text.logprobs");
    }
    if (wanted) json_object_object_add(chat, "logprobs", json_object_new_boolean(1));
    if (wanted) rename_member(chat, "top_logprobs", body, "top_logprobs");
    return !error->status;
}

static bool read_options(json_object *chat, json_object *body, reply *error) {
    static const char *const alike[] = {"model",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "repetition_penalty",
                                        "seed",
                                        "presence_penalty",
                                        "stream",
                                        "frequency_penalty",
                                        "stop",
                                        "parallel_tool_calls",
                                        "user",
                                        "cache_salt",
                                        "lora",
                                        "priority",
                                        "chat_template_kwargs",
                                        "prompt_cache_key",
                                        "prompt_cache_options",
                                        "logit_bias",
                                        "prompt_cache_key"};
    static const char *const refused[] = {"background", "conversation", "prompt"};
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        json_object *value = field_get(body, refused[i]);
        if (value &&
            !(json_object_is_type(value, json_type_boolean) && !json_object_get_boolean(value)))
            return reply_error(error, 400, "unsupported", refused[i], "'%s' is not supported.",
                               refused[i]),
                   false;
    }
    copy_members(chat, body, alike, COUNT_OF(alike));
    rename_member(chat, "max_tokens", body, "max_output_tokens");
    json_object *reasoning = field_of_type(body, "reasoning", json_type_object, error);
    json_object *effort =
        reasoning ? field_inside(reasoning, "reasoning.", "effort", json_type_string, error) : NULL;
    if (effort) json_object_object_add(chat, "reasoning_effort", json_object_get(effort));
    return !error->status && read_logprobs(chat, body, error);
}

/* ---- parameters, told again ------------------------------------------------------------------ */

static void echo_members(response *r, json_object *body) {
    static const struct {
        const char *name, *absent;
    } members[] = {{"instructions", "null"},
                   {"max_output_tokens", "null"},
                   {"max_tool_calls", "null"},
                   {"metadata", "{}"},
                   {"parallel_tool_calls", "true"},
                   {"previous_response_id", "null"},
                   {"prompt_cache_key", "null"},
                   {"reasoning", "{\"effort\":null,\"summary\":null}"},
                   {"safety_identifier", "null"},
                   {"temperature", "1.0"},
                   {"text", "{\"format\":{\"type\":\"text\"}}"},
                   {"tool_choice", "\"auto\""},
                   {"tools", "[]"},
                   {"top_logprobs", "0"},
                   {"top_p", "1.0"},
                   {"truncation", "\"disabled\""},
                   {"user", "null"}};
    for (size_t i = 0; i < COUNT_OF(members); i++) {
        json_object *value = field_get(body, members[i].name);
        buf_printf(&r->echo, ",\"%s\":", members[i].name);
        buf_puts(&r->echo,
                 value ? json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN |
                                                                   JSON_C_TO_STRING_NOSLASHESCAPE)
                       : members[i].absent);
    }
    buf_printf(&r->echo, ",\"background\":false,\"service_tier\":\"default\",\"store\":%s",
               r->keep ? "true" : "false");
}

json_object *responses_chat(call *c, json_object *body, response *out) {
    *out = (response){0};
    reply *error = &c->reply;
    json_object *keep = field_of_type(body, "store", json_type_boolean, error);
    field_of_type(body, "metadata", json_type_object, error);
    out->keep = !keep || json_object_get_boolean(keep);
    json_object *chat = error->status ? NULL : json_object_new_object();
    if (!chat) return reply_error(error, 503, NULL, NULL, "Out of memory."), NULL;
    out->items = all_items(c, body);
    if (out->items && read_input(chat, body, out->items, error) && read_tools(chat, body, error) &&
        read_tool_choice(chat, body, error) && read_format(chat, body, error) &&
        read_options(chat, body, error)) {
        echo_members(out, body);
        return chat;
    }
    json_object_put(chat);
    return NULL;
}
