/* Making an answer be a call: the prompt already has its beginning, and a JSON schema says how it
 * must go on. With one tool to choose that is the dialect's own beginning, up to the arguments:
 *
 *   … <|im_start|>assistant\n  <tool_call>\n{"name": "f", "arguments":   {…}
 *     prompt                   begun                                     schema of f's parameters
 *
 * Else, and in dialects whose arguments are no JSON, it is an object of the generic dialect. */
#include "chat.h"

#include <json-c/json.h>
#include <string.h>

static json_object *function_of(json_object *tool) {
    json_object *function = NULL;
    if (!json_object_is_type(tool, json_type_object)) return NULL;
    return json_object_object_get_ex(tool, "function", &function) ? function : tool;
}

static const char *name_of(json_object *tool) {
    json_object *name = NULL;
    json_object_object_get_ex(function_of(tool), "name", &name);
    return json_object_is_type(name, json_type_string) ? json_object_get_string(name) : NULL;
}

static void put_schema(json_object *tool, buf *out) {
    json_object *schema = NULL;
    json_object_object_get_ex(function_of(tool), "parameters", &schema);
    bool any =
        !json_object_is_type(schema, json_type_object) || json_object_object_length(schema) == 0;
    const char *text = any ? "{\"type\":\"object\"}"
                           : json_object_to_json_string_ext(
                                 schema, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    out->failed |= !text;
    buf_puts(out, text ? text : "");
}

/* {"name": one of them, "arguments": its own}. */
static void put_any_schema(json_object *tools, buf *out) {
    buf_puts(out, "{\"anyOf\":[");
    for (size_t i = 0; i < json_object_array_length(tools); i++) {
        json_object *tool = json_object_array_get_idx(tools, i);
        const char *name = name_of(tool);
        buf_puts(out, i ? ",{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\""
                        : "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"");
        buf_put_json(out, name ? name : "", name ? strlen(name) : 0);
        buf_puts(out, "\"},\"arguments\":");
        put_schema(tool, out);
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

static json_object *parse_tools(const char *tools_json) {
    json_object *tools = tools_json ? json_tokener_parse(tools_json) : NULL;
    if (json_object_is_type(tools, json_type_array) && json_object_array_length(tools))
        return tools;
    json_object_put(tools);
    return NULL;
}

/* Whether a call of one of them begins as in the dialect. */
static bool begins_own(const chat_style *style, json_object *tools) {
    return style->calls->head && tools && json_object_array_length(tools) == 1 &&
           name_of(json_object_array_get_idx(tools, 0));
}

const chat_dialect *chat_force_dialect(const chat_style *style, const char *tools_json) {
    json_object *tools = parse_tools(tools_json);
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
    json_object *tools = parse_tools(tools_json);
    if (!tools) return ICP_EFORMAT;
    const chat_dialect *d = style->calls;
    json_object *first = json_object_array_get_idx(tools, 0);
    bool own = begins_own(style, tools);
    if (!own || !style->channels) chat_force_text(style, thinking, begun);
    if (own) {
        put_template(begun, d->section);
        put_template(begun, d->call);
        put_head(begun, d->head, name_of(first));
        put_schema(first, schema);
    } else {
        put_any_schema(tools, schema);
    }
    json_object_put(tools);
    return begun->text.failed || begun->origin.failed || schema->failed ? ICP_ENOMEM : 0;
}

/* ---- strict calls --------------------------------------------------------------------------- */

static bool is_strict(json_object *tool) {
    json_object *strict = NULL;
    json_object_object_get_ex(function_of(tool), "strict", &strict);
    return json_object_get_boolean(strict);
}

static int make_form(const chat_dialect *d, json_object *tool, chat_call_form *out) {
    const char *name = name_of(tool);
    size_t before = strcspn(d->head, "$");
    buf begin = {0}, schema = {0};
    if (!name) return ICP_EFORMAT;
    buf_put(&begin, d->head, before);
    buf_put_json(&begin, name, strlen(name));
    buf_puts(&begin, d->head + before + 1);
    if (is_strict(tool)) put_schema(tool, &schema);
    *out = (chat_call_form){.begin = begin.data, .schema = schema.data, .end = "}\n</tool_call>"};
    return begin.failed || schema.failed ? ICP_ENOMEM : 0;
}

int chat_strict_calls(const chat_style *style, const char *tools_json, chat_call_forms *out) {
    *out = (chat_call_forms){.marker = style->calls->call};
    json_object *tools = parse_tools(tools_json);
    size_t n = tools ? json_object_array_length(tools) : 0, n_strict = 0;
    for (size_t i = 0; i < n; i++) n_strict += is_strict(json_object_array_get_idx(tools, i));
    int rc = tools ? 0 : ICP_EFORMAT;
    if (n_strict && style->calls->syntax == CHAT_JSON && style->calls->head) {
        out->form = mem_zero(n, sizeof *out->form);
        if (!out->form) rc = ICP_ENOMEM;
        for (; out->form && rc == 0 && out->n < n; out->n++)
            rc = make_form(style->calls, json_object_array_get_idx(tools, out->n),
                           &out->form[out->n]);
    }
    json_object_put(tools);
    if (rc < 0) chat_call_forms_fini(out);
    return rc;
}

void chat_call_forms_fini(chat_call_forms *forms) {
    for (size_t i = 0; i < forms->n; i++) {
        mem_free(forms->form[i].begin);
        mem_free(forms->form[i].schema);
    }
    mem_free(forms->form);
    *forms = (chat_call_forms){0};
}
