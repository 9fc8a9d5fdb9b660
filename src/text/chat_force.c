/* Making an answer be a call: the prompt already has its beginning, and a JSON schema says how it
 * must go on. With one tool to choose that is the dialect's own beginning, up to the arguments:
 *
 *   … <|im_start|>assistant\n  <tool_call>\n{"name": "f", "arguments":   {…}
 *     prompt                   begun                                     schema of f's parameters
 *
 * Else, and in dialects whose arguments are no JSON, it is an object of the generic dialect. */
#include "chat_internal.h"

#include <json-c/json.h>

/* {"name": one of them, "arguments": its own}. */
static void put_any_schema(json_object *tools, buf *out) {
    buf_puts(out, "{\"anyOf\":[");
    for (size_t i = 0; i < json_object_array_length(tools); i++) {
        json_object *tool = json_object_array_get_idx(tools, i);
        const char *name = chat_tool_name(tool);
        buf_puts(out, i ? ",{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\""
                        : "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"");
        buf_put_json(out, name ? name : "", name ? strlen(name) : 0);
        buf_puts(out, "\"},\"arguments\":");
        chat_tool_schema(tool, out);
        buf_puts(out, "},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}");
    }
    buf_puts(out, "]}");
}

static void put(jinja_text *t, const char *text, size_t len, enum text_origin origin) {
    buf_put(&t->text, text, len);
    for (size_t i = 0; i < len; i++) buf_putc(&t->origin, (char)origin);
}

static void put_template(jinja_text *t, const char *text) {
    if (text) put(t, text, strlen(text), TEXT_TEMPLATE);
}

/* A dialect's head with the name in place of '$'. */
static void put_head(jinja_text *t, const char *head, const char *name) {
    size_t before = strcspn(head, "$");
    put(t, head, before, TEXT_TEMPLATE);
    put(t, name, strlen(name), TEXT_USER);
    put_template(t, head + before + 1);
}

/* Whether a call of one of them begins as in the dialect. */
static bool begins_own(const chat_style *style, json_object *tools) {
    return style->calls->head && tools && json_object_array_length(tools) == 1 &&
           chat_tool_name(json_object_array_get_idx(tools, 0));
}

const chat_dialect *chat_force_dialect(const chat_style *style, const char *tools_json) {
    json_object *tools = chat_tools_read(tools_json);
    bool own = !tools_json || begins_own(style, tools);
    json_object_put(tools);
    return own ? style->calls : chat_style_named("generic").calls;
}

void chat_force_text(const chat_style *style, bool thinking, jinja_text *begun) {
    if (style->channels) put_template(begun, style->channels->answer);
    if (!thinking || !style->reasoning) return;
    put_template(begun, style->reasoning->close);
    put_template(begun, "\n\n");
}

int chat_force(const chat_style *style, const char *tools_json, bool thinking, jinja_text *begun,
               buf *schema) {
    json_object *tools = chat_tools_read(tools_json);
    if (!tools) return ICP_EFORMAT;
    const chat_dialect *d = style->calls;
    json_object *first = json_object_array_get_idx(tools, 0);
    bool own = begins_own(style, tools);
    if (!own || !style->channels) chat_force_text(style, thinking, begun);
    if (own) {
        put_template(begun, d->section);
        put_template(begun, d->call);
        put_head(begun, d->head, chat_tool_name(first));
        chat_tool_schema(first, schema);
    } else {
        put_any_schema(tools, schema);
    }
    json_object_put(tools);
    return begun->text.failed || begun->origin.failed || schema->failed ? ICP_ENOMEM : 0;
}
