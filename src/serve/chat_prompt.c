/* From the messages of a chat body to token ids: every message checked, then brought to the plain
 * form that templates expect, then rendered and tokenized by the library. */
#include <stdio.h>
#include <string.h>

#include "generation.h"

/* What a template must get from us alone. */
static const char *const reserved[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                       "eos_token"};

static bool is_one_of(const char *text, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(text, list[i])) return true;
    return false;
}

/* The text of one content part; NULL with an error. */
static json_object *part_text(json_object *part, const char *param, reply *error) {
    json_object *type =
        json_object_is_type(part, json_type_object) ? field_get(part, "type") : NULL;
    if (!json_object_is_type(type, json_type_string) || !type) {
        reply_error(error, 400, "invalid_type", param,
                    "Invalid value for '%s': expected an object with a 'type'.", param);
        return NULL;
    }
    if (!cache_mark_read(part, PROMPT_CACHE_BREAKPOINT, param, error)) return NULL;
    const char *name = json_object_get_string(type);
    bool refusal = !strcmp(name, "refusal");
    if (!refusal && strcmp(name, "text") != 0) {
        reply_error(error, 400, "unsupported", param,
                    "Content of type '%s' is not supported in '%s': only text is.", name, param);
        return NULL;
    }
    json_object *text = field_get(part, name);
    if (text && json_object_is_type(text, json_type_string)) return text;
    reply_error(error, 400, "invalid_type", param,
                "Invalid value for '%s': its '%s' must be a string.", param, name);
    return NULL;
}

static void add_breakpoint(json_object *list, size_t at, double ttl) {
    json_object *pair = json_object_new_array();
    json_object_array_add(pair, json_object_new_uint64(at));
    json_object_array_add(pair, json_object_new_double(ttl));
    json_object_array_add(list, pair);
}

/* A list of parts becomes one string, the parts on lines of their own, and a list of its
 * breakpoints as icp_chat_tokenize wants them. */
static json_object *join_parts(json_object *parts, const char *param, json_object *breakpoints,
                               reply *error) {
    buf text = {0};
    size_t n = json_object_array_length(parts);
    for (size_t i = 0; i < n; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s[%zu]", param, i);
        json_object *part = json_object_array_get_idx(parts, i);
        json_object *piece = part_text(part, name, error);
        if (!piece) break;
        if (i) buf_putc(&text, '\n');
        buf_put(&text, json_object_get_string(piece), (size_t)json_object_get_string_len(piece));
        double ttl = cache_mark_ttl(part, PROMPT_CACHE_BREAKPOINT);
        if (ttl > 0) add_breakpoint(breakpoints, text.len, ttl);
    }
    json_object *joined =
        error->status || text.failed
            ? NULL
            : json_object_new_string_len(text.data ? text.data : "", (int)text.len);
    buf_fini(&text);
    if (!joined) reply_error(error, 503, NULL, NULL, "Out of memory.");
    return joined;
}

static bool check_role(json_object *message, size_t at, reply *error) {
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    char param[64];
    snprintf(param, sizeof param, "messages[%zu].role", at);
    json_object *role = field_get(message, "role");
    if (!role)
        return reply_error(error, 400, "missing_field", param, "Missing field: '%s'.", param),
               false;
    if (!json_object_is_type(role, json_type_string))
        return reply_error(error, 400, "invalid_type", param,
                           "Invalid type for '%s': expected a string, got %s.", param,
                           json_kind(role)),
               false;
    const char *name = json_object_get_string(role);
    if (!is_one_of(name, roles, COUNT_OF(roles)))
        return reply_error(error, 400, "invalid_value", param,
                           "Invalid value for '%s': '%.40s' is not one of system, developer, user, "
                           "assistant, tool and function.",
                           param, name),
               false;
    if (!strcmp(name, "developer")) /* the newer word, which few templates know */
        json_object_object_add(message, "role", json_object_new_string("system"));
    return true;
}

static bool check_content(json_object *message, size_t at, reply *error) {
    char param[64];
    snprintf(param, sizeof param, "messages[%zu].content", at);
    json_object *content = field_get(message, "content"), *plain = NULL;
    bool answer = !strcmp(json_object_get_string(field_get(message, "role")), "assistant");
    json_object_object_del(message, "breakpoints"); /* it is for us to say */
    if (content ? json_object_is_type(content, json_type_string) : answer) return true;
    if (content && json_object_is_type(content, json_type_array)) {
        json_object *breakpoints = json_object_new_array();
        plain = join_parts(content, param, breakpoints, error);
        if (json_object_array_length(breakpoints))
            json_object_object_add(message, "breakpoints", json_object_get(breakpoints));
        json_object_put(breakpoints);
    } else if (content) {
        reply_error(error, 400, "invalid_type", param,
                    "Invalid type for '%s': expected a string or a list of parts, got %s.", param,
                    json_kind(content));
    } else {
        reply_error(error, 400, "missing_field", param, "Missing field: '%s'.", param);
    }
    return plain && json_object_object_add(message, "content", plain) == 0;
}

static bool check_messages(json_object *messages, reply *error) {
    size_t n = json_object_array_length(messages);
    if (n == 0)
        reply_error(error, 400, "invalid_value", "messages",
                    "Invalid value for 'messages': the list is empty.");
    for (size_t i = 0; i < n && !error->status; i++) {
        json_object *message = json_object_array_get_idx(messages, i);
        char param[40];
        snprintf(param, sizeof param, "messages[%zu]", i);
        if (!json_object_is_type(message, json_type_object))
            reply_error(error, 400, "invalid_type", param,
                        "Invalid type for '%s': expected an object, got %s.", param,
                        json_kind(message));
        else if (check_role(message, i, error) && check_content(message, i, error))
            field_of_type(message, "tool_calls", json_type_array, error);
    }
    return !error->status;
}

/* Its breakpoint in the form of icp_chat_tokenize. */
static bool mark_tool(json_object *tool, const char *param, reply *error) {
    json_object_object_del(tool, "breakpoint");
    if (!cache_mark_read(tool, PROMPT_CACHE_BREAKPOINT, param, error)) return false;
    double ttl = cache_mark_ttl(tool, PROMPT_CACHE_BREAKPOINT);
    json_object_object_del(tool, PROMPT_CACHE_BREAKPOINT->name);
    if (ttl > 0) json_object_object_add(tool, "breakpoint", json_object_new_double(ttl));
    return true;
}

static bool check_tools(json_object *tools, reply *error) {
    for (size_t i = 0; i < json_object_array_length(tools); i++) {
        json_object *tool = json_object_array_get_idx(tools, i);
        json_object *function =
            json_object_is_type(tool, json_type_object) ? field_get(tool, "function") : NULL;
        json_object *name = function && json_object_is_type(function, json_type_object)
                                ? field_get(function, "name")
                                : NULL;
        char param[48];
        snprintf(param, sizeof param, "tools[%zu]", i);
        if (name && json_object_is_type(name, json_type_string)) {
            if (!mark_tool(tool, param, error)) return false;
            continue;
        }
        snprintf(param, sizeof param, "tools[%zu].function.name", i);
        reply_error(error, 400, "invalid_value", param,
                    "Invalid value for 'tools': item %zu is not a function with a name.", i);
        return false;
    }
    return true;
}

static bool add_template_arguments(json_object *chat, json_object *body, reply *error) {
    json_object *arguments = field_of_type(body, "chat_template_kwargs", json_type_object, error);
    if (!arguments) return !error->status;
    json_object_object_foreach(arguments, key, value) {
        if (is_one_of(key, reserved, COUNT_OF(reserved)))
            return reply_error(error, 400, "invalid_value", "chat_template_kwargs",
                               "Invalid value for 'chat_template_kwargs': it cannot set '%s'.",
                               key),
                   false;
        json_object_object_add(chat, key, json_object_get(value));
    }
    return true;
}

/* The last message when the answer is to continue it, else NULL. It is taken out of the list: the
 * template ends with the beginning of an answer, and what the answer has so far follows. */
static json_object *take_continued(json_object *body, json_object *messages, reply *error) {
    json_object *asked = field_of_type(body, "continue_final_message", json_type_boolean, error);
    if (!asked || !json_object_get_boolean(asked)) return NULL;
    json_object *generate = field_get(body, "add_generation_prompt");
    size_t n = json_object_array_length(messages);
    json_object *last = json_object_array_get_idx(messages, n - 1);
    if (generate && json_object_get_boolean(generate)) {
        reply_error(error, 400, "invalid_value", "continue_final_message",
                    "'continue_final_message' and 'add_generation_prompt' exclude each other.");
        return NULL;
    }
    if (strcmp(json_object_get_string(field_get(last, "role")), "assistant") != 0) {
        reply_error(error, 400, "invalid_value", "continue_final_message",
                    "'continue_final_message' needs a last message of the assistant.");
        return NULL;
    }
    json_object *text = json_object_get(field_get(last, "content"));
    json_object_array_del_idx(messages, n - 1, 1);
    return text;
}

/* The object that the template reads. */
static bool build_chat(json_object *chat, json_object *body, json_object **continued,
                       reply *error) {
    json_object *messages = field_of_type(body, "messages", json_type_array, error);
    if (!messages) {
        reply_error(error, 400, "missing_field", "messages", "Missing field: 'messages'.");
        return false;
    }
    json_object *tools = field_of_type(body, "tools", json_type_array, error);
    json_object *generate = field_of_type(body, "add_generation_prompt", json_type_boolean, error);
    json_object *effort = field_of_type(body, "reasoning_effort", json_type_string, error);
    if (error->status || !check_messages(messages, error)) return false;
    if (tools && !check_tools(tools, error)) return false;
    if (!add_template_arguments(chat, body, error)) return false;
    *continued = take_continued(body, messages, error);
    if (error->status) return false;
    if (effort) json_object_object_add(chat, "reasoning_effort", json_object_get(effort));
    if (tools && json_object_array_length(tools))
        json_object_object_add(chat, "tools", json_object_get(tools));
    json_object_object_add(chat, "messages", json_object_get(messages));
    bool prompt = *continued || !generate || json_object_get_boolean(generate);
    json_object_object_add(chat, "add_generation_prompt", json_object_new_boolean(prompt));
    return true;
}

/* What an answer has so far, behind the prompt. Nobody vouches for it: it holds no special tokens.
 */
static bool append_text(call *c, json_object *text, icp_tokens *out, char **rendered) {
    icp_tokens more = {0};
    icp_error err = {.code = ICP_ENOMEM};
    const char *bytes = json_object_get_string(text);
    size_t len = (size_t)json_object_get_string_len(text);
    if (icp_tokenize(c->on->model, bytes, len, false, false, &more, &err) < 0)
        return reply_icp_error(&c->reply, &err, "messages"), false;
    int32_t *ids = mem_resize(out->id, out->n + more.n + 1, sizeof *ids);
    if (ids) out->id = ids;
    if (ids && more.n) memcpy(ids + out->n, more.id, more.n * sizeof *ids);
    if (ids) out->n += more.n;
    icp_tokens_free(&more);
    size_t before = rendered ? strlen(*rendered) : 0;
    char *joined = rendered && ids ? mem_resize(*rendered, before + len + 1, 1) : NULL;
    if (joined) *rendered = joined;
    if (joined) memcpy(joined + before, bytes, len + 1);
    if (!ids || (rendered && !joined)) reply_error(&c->reply, 503, NULL, NULL, "Out of memory.");
    return !c->reply.status;
}

bool chat_tokenize(call *c, json_object *body, icp_tokens *out, icp_marks *marks, char **text) {
    json_object *chat = json_object_new_object(), *continued = NULL;
    if (!chat) return reply_error(&c->reply, 503, NULL, NULL, "Out of memory."), false;
    bool ok = build_chat(chat, body, &continued, &c->reply);
    if (ok) {
        const char *json = json_object_to_json_string_ext(chat, JSON_C_TO_STRING_PLAIN |
                                                                    JSON_C_TO_STRING_NOSLASHESCAPE);
        icp_error err = {.code = ICP_ENOMEM};
        ok = json && icp_chat_tokenize(c->on->model, json, out, marks, text, &err) == 0;
        if (!ok) reply_icp_error(&c->reply, &err, "messages");
    }
    ok = ok && (!continued || append_text(c, continued, out, text));
    json_object_put(continued);
    json_object_put(chat);
    if (ok && out->n == 0)
        reply_error(&c->reply, 400, "invalid_value", "messages", "The prompt has no tokens.");
    if (c->reply.status) icp_tokens_free(out);
    return !c->reply.status;
}
