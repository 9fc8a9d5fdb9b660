/* Answers of chats: which tools may be called, and from the engine's events to items of output. */
#include <stdio.h>
#include <string.h>

#include "generation.h"

/* ---- tool_choice ----------------------------------------------------------------------------- */

static const char *function_name(json_object *tool) {
    json_object *function =
        json_object_is_type(tool, json_type_object) ? field_get(tool, "function") : NULL;
    json_object *name = json_object_is_type(function, json_type_object) && function
                            ? field_get(function, "name")
                            : NULL;
    return name && json_object_is_type(name, json_type_string) ? json_object_get_string(name)
                                                               : NULL;
}

/* The tool of the name that `wanted` gives, from the request's; NULL with an error. */
static json_object *find_tool(json_object *tools, json_object *wanted, reply *error) {
    const char *name = function_name(wanted);
    size_t n = name && tools ? json_object_array_length(tools) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *tool = json_object_array_get_idx(tools, i);
        const char *named = function_name(tool);
        if (named && !strcmp(named, name)) return tool;
    }
    if (!name)
        reply_error(error, 400, "missing_field", "tool_choice.function.name",
                    "Missing field: 'tool_choice.function.name'.");
    else
        reply_error(error, 400, "invalid_value", "tool_choice",
                    "Invalid value for 'tool_choice': '%.64s' is not among the tools.", name);
    return NULL;
}

static bool choose_by_name(tool_choice *out, json_object *tools, const char *name, reply *error) {
    if (!strcmp(name, "none")) return true;
    out->required = !strcmp(name, "required");
    if (out->required || !strcmp(name, "auto")) {
        out->tools = json_object_get(tools);
        if (!out->required || tools) return true;
        reply_error(error, 400, "invalid_value", "tool_choice",
                    "Invalid value for 'tool_choice': there are no 'tools' to choose from.");
        return false;
    }
    reply_error(error, 400, "invalid_value", "tool_choice",
                "Invalid value for 'tool_choice': '%.40s' is not one of none, auto and required.",
                name);
    return false;
}

/* {"mode":…,"tools":[…]}: a part of the tools. */
static bool choose_allowed(tool_choice *out, json_object *tools, json_object *allowed,
                           reply *error) {
    json_object *mode = field_of_type(allowed, "mode", json_type_string, error);
    json_object *list = field_of_type(allowed, "tools", json_type_array, error);
    if (!error->status && (!mode || !list))
        reply_error(error, 400, "missing_field", "tool_choice.allowed_tools",
                    "'tool_choice.allowed_tools' needs a 'mode' and 'tools'.");
    json_object *some = error->status ? NULL : json_object_new_array();
    for (size_t i = 0; some && i < json_object_array_length(list); i++) {
        json_object *tool = find_tool(tools, json_object_array_get_idx(list, i), error);
        if (tool) json_object_array_add(some, json_object_get(tool));
    }
    bool ok = !error->status &&
              choose_by_name(out, some, mode ? json_object_get_string(mode) : "", error);
    json_object_put(some);
    return ok;
}

/* Functions have names; what other tools are, templates know. */
static bool check_tools(json_object *tools, reply *error) {
    for (size_t i = 0; tools && i < json_object_array_length(tools); i++) {
        json_object *tool = json_object_array_get_idx(tools, i);
        char field[64];
        snprintf(field, sizeof field, "tools[%zu].function.name", i);
        if (!json_object_is_type(tool, json_type_object))
            reply_error(error, 400, "invalid_type", "tools",
                        "Invalid type for 'tools[%zu]': expected an object, got %s.", i,
                        json_kind(tool));
        else if (field_get(tool, "function") && !function_name(tool))
            reply_error(error, 400, "missing_field", field, "Missing field: '%s', a string.",
                        field);
        if (error->status) return false;
    }
    return true;
}

bool tool_choice_read(tool_choice *out, json_object *body, reply *error) {
    *out = (tool_choice){0};
    json_object *tools = field_of_type(body, "tools", json_type_array, error);
    json_object *many = field_of_type(body, "parallel_tool_calls", json_type_boolean, error);
    json_object *choice = field_get(body, "tool_choice");
    if (error->status || !check_tools(tools, error)) return false;
    out->single = many && !json_object_get_boolean(many);
    if (tools && !json_object_array_length(tools)) tools = NULL;
    if (!choice) return choose_by_name(out, tools, "auto", error);
    if (json_object_is_type(choice, json_type_string))
        return choose_by_name(out, tools, json_object_get_string(choice), error);
    if (!json_object_is_type(choice, json_type_object)) {
        reply_error(error, 400, "invalid_type", "tool_choice",
                    "Invalid type for 'tool_choice': expected a string or an object, got %s.",
                    json_kind(choice));
        return false;
    }
    json_object *allowed = field_of_type(choice, "allowed_tools", json_type_object, error);
    if (allowed || error->status) return allowed && choose_allowed(out, tools, allowed, error);
    json_object *tool = find_tool(tools, choice, error);
    if (!tool) return false;
    out->required = true;
    out->tools = json_object_new_array();
    return out->tools && json_object_array_add(out->tools, json_object_get(tool)) == 0;
}

void tool_choice_fini(tool_choice *choice) {
    json_object_put(choice->tools);
    *choice = (tool_choice){0};
}

/* ---- parsers --------------------------------------------------------------------------------- */

static void tell(generation *g, choice *c, const icp_chat_delta *d) {
    static const enum item_kind kinds[] = {[ICP_CHAT_CONTENT] = ITEM_TEXT,
                                           [ICP_CHAT_REASONING] = ITEM_REASONING,
                                           [ICP_CHAT_ARGUMENTS] = ITEM_CALL};
    bool call = d->kind >= ICP_CHAT_CALL;
    if (call && g->one_call && d->call > 0) return; /* the model was told to make one */
    if (d->kind == ICP_CHAT_CALL)
        output_call(g, c, d->id, d->text, d->len);
    else if (d->kind != ICP_CHAT_CALL_END)
        output_text(g, c, kinds[d->kind], d->text, d->len);
}

static void drain(generation *g, choice *c) {
    icp_chat_delta delta;
    while (icp_chat_parser_next(c->parser, &delta)) tell(g, c, &delta);
}

/* What is generated must follow a JSON schema. */
static bool constrain(generation *g, const char *schema, reply *error) {
    icp_request_opts *o = &g->opts.request;
    icp_error err = {0};
    icp_grammar_free(&o->grammar); /* of the text that the call takes the place of */
    if (icp_grammar_from_schema(g->call->on->model, schema, strlen(schema), &o->grammar, &err) < 0)
        reply_icp_error(error, &err, "tools");
    return !error->status;
}

/* Makes every answer begin as a call, or (tools NULL) as text: a grammar knows of no reasoning.
 * *begun is what it begins with, icp_free. */
static bool force(generation *g, const char *tools, char **begun, reply *error) {
    icp_error err = {0};
    char *schema = NULL;
    if (icp_chat_force(g->call->on->model, tools, &g->prompts[0].ids, begun, &schema, &err) < 0)
        return reply_icp_error(error, &err, "tools"), false;
    bool ok = !schema || constrain(g, schema, error);
    icp_free(schema);
    return ok;
}

/* Lets the model call or not, but strict tools only as their schemas say. */
static bool hold_to_schemas(generation *g, const char *tools, reply *error) {
    icp_error err = {0};
    icp_grammar **grammar = &g->opts.request.grammar;
    if (icp_grammar_from_tools(g->call->on->model, tools, grammar, &err) < 0)
        reply_icp_error(error, &err, "tools");
    return !error->status;
}

static bool open_parsers(generation *g, const char *tools, const char *begun, reply *error) {
    for (size_t i = 0; i < count_choices(g); i++) {
        const icp_tokens *prompt = &g->choices[i].prompt->ids;
        const icp_chat_parser_opts opts = {.tools_json = tools,
                                           .prompt = prompt->id,
                                           .n_prompt = prompt->n,
                                           .begun = begun,
                                           .keep_special = !g->opts.skip_special,
                                           .marked = g->opts.request.grammar && !begun};
        icp_error err = {0};
        if (icp_chat_parser_open(g->call->on->model, &opts, &g->choices[i].parser, &err) < 0)
            return reply_icp_error(error, &err, "tools"), false;
    }
    return true;
}

bool answers_open(generation *g, const tool_choice *choice, reply *error) {
    const char *tools = NULL;
    char *begun = NULL;
    if (choice->tools) {
        tools = json_object_to_json_string_ext(choice->tools, JSON_C_TO_STRING_PLAIN |
                                                                  JSON_C_TO_STRING_NOSLASHESCAPE);
        if (!tools) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    }
    g->one_call = choice->single;
    g->opts.request.keep_special = true; /* markers are special tokens */
    bool forced = choice->required || g->opts.request.grammar;
    if (forced && !choice->required) tools = NULL; /* the grammar is the whole of it */
    bool ok = forced  ? force(g, tools, &begun, error)
              : tools ? hold_to_schemas(g, tools, error)
                      : true;
    ok = ok && open_parsers(g, tools, begun, error);
    icp_free(begun);
    return ok;
}

void answer_take(generation *g, choice *c, const icp_event *e) {
    drain(g, c); /* what the prompt has of the answer */
    if (icp_chat_parser_put(c->parser, e) < 0)
        reply_error(&g->failure, 503, "out_of_memory", NULL, "Out of memory.");
    else
        drain(g, c);
    if (e->kind == ICP_EVENT_FINISH) g->n_reasoning += icp_chat_parser_reasoning(c->parser);
}
