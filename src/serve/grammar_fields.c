/* Fields that say what an answer must look like. One grammar is the whole of it: whoever asks for
 * two is told so.
 *
 *   response_format     {"type": "text" | "json_object" | "json_schema", …}        OpenAI
 *   structured_outputs  {"json" | "regex" | "choice" | "grammar" | "json_object"}  vLLM
 *   guided_json, guided_regex, guided_choice, guided_grammar                       vLLM, of old
 *   grammar, json_schema                                                           llama-server */
#include <stdio.h>
#include <string.h>

#include "generation.h"

enum source { SOURCE_NONE, SOURCE_SCHEMA, SOURCE_OBJECT, SOURCE_REGEX, SOURCE_CHOICE, SOURCE_GBNF };

typedef struct wish { /* what was found so far */
    enum source source;
    json_object *value; /* the body's */
    char name[64];      /* of the field, for errors */
} wish;

static bool set_wish(wish *w, enum source source, json_object *value, const char *name,
                     reply *error) {
    if (w->source) {
        reply_error(error, 400, "invalid_value", name,
                    "'%s' and '%s' cannot be used together: an answer follows one grammar.",
                    w->name, name);
        return false;
    }
    w->source = source;
    w->value = value;
    snprintf(w->name, sizeof w->name, "%s", name);
    return true;
}

static bool wrong_type(const wish *w, const char *expected, reply *error) {
    reply_error(error, 400, "invalid_type", w->name, "Invalid type for '%s': expected %s, got %s.",
                w->name, expected, json_kind(w->value));
    return false;
}

/* ---- finding --------------------------------------------------------------------------------- */

static bool missing(const char *name, reply *error) {
    reply_error(error, 400, "missing_field", name, "Missing field: '%s'.", name);
    return false;
}

/* The schema of OpenAI's form, or right beside the type, as llama-server has it, too. */
static bool find_format_schema(json_object *format, bool wanted, wish *w, reply *error) {
    json_object *inner = field_get(format, "json_schema"), *schema = NULL;
    if (json_object_is_type(inner, json_type_object)) schema = field_get(inner, "schema");
    if (!schema) schema = field_get(format, "schema");
    if (schema) return set_wish(w, SOURCE_SCHEMA, schema, "response_format", error);
    if (wanted) return missing("response_format.json_schema.schema", error);
    return set_wish(w, SOURCE_OBJECT, NULL, "response_format", error);
}

static bool find_format(json_object *body, wish *w, reply *error) {
    json_object *format = field_of_type(body, "response_format", json_type_object, error);
    if (!format) return !error->status;
    json_object *type = field_get(format, "type");
    if (!type) return missing("response_format.type", error);
    if (!json_object_is_type(type, json_type_string))
        return wrong_type(&(wish){.value = type, .name = "response_format.type"}, "a string",
                          error);
    const char *name = json_object_get_string(type);
    if (!strcmp(name, "text")) return true;
    if (!strcmp(name, "json_object")) return find_format_schema(format, false, w, error);
    if (!strcmp(name, "json_schema")) return find_format_schema(format, true, w, error);
    reply_error(error, 400, "invalid_value", "response_format.type",
                "Invalid value for 'response_format.type': \"%.40s\" is none of text, json_object "
                "and json_schema.",
                name);
    return false;
}

typedef struct named_source {
    const char *name;
    enum source source;
} named_source;

/* Members of an object that are there and say something. */
static bool find_named(json_object *object, const char *prefix, const named_source *table, size_t n,
                       wish *w, reply *error) {
    for (size_t i = 0; i < n; i++) {
        json_object *value = field_get(object, table[i].name);
        char name[64];
        snprintf(name, sizeof name, "%s%s", prefix, table[i].name);
        bool is_string = json_object_is_type(value, json_type_string);
        if (!value || (is_string && json_object_get_string_len(value) == 0)) continue;
        if (table[i].source == SOURCE_OBJECT && !json_object_get_boolean(value)) continue;
        if (!set_wish(w, table[i].source, value, name, error)) return false;
    }
    return true;
}

static bool find_structured(json_object *body, wish *w, reply *error) {
    static const named_source table[] = {{"json", SOURCE_SCHEMA},
                                         {"regex", SOURCE_REGEX},
                                         {"choice", SOURCE_CHOICE},
                                         {"grammar", SOURCE_GBNF},
                                         {"json_object", SOURCE_OBJECT}};
    json_object *outputs = field_of_type(body, "structured_outputs", json_type_object, error);
    if (!outputs) return !error->status;
    if (field_get(outputs, "structural_tag")) {
        reply_error(error, 400, "unsupported", "structured_outputs.structural_tag",
                    "'structured_outputs.structural_tag' is not supported.");
        return false;
    }
    return find_named(outputs, "structured_outputs.", table, COUNT_OF(table), w, error);
}

/* ---- making ---------------------------------------------------------------------------------- */

static bool made(int rc, const icp_error *err, const wish *w, reply *error) {
    if (rc < 0) reply_icp_error(error, err, w->name);
    return rc == 0;
}

/* A schema as an object, or as text that holds one. */
static bool make_schema(icp_model *model, const wish *w, icp_grammar **out, reply *error) {
    icp_error err = {0};
    bool is_text = json_object_is_type(w->value, json_type_string);
    const char *text = is_text ? json_object_get_string(w->value)
                               : json_object_to_json_string_ext(w->value, JSON_C_TO_STRING_PLAIN);
    if (!text) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    return made(icp_grammar_from_schema(model, text, strlen(text), out, &err), &err, w, error);
}

static bool make_choice(icp_model *model, const wish *w, icp_grammar **out, reply *error) {
    icp_error err = {0};
    if (!json_object_is_type(w->value, json_type_array))
        return wrong_type(w, "an array of strings", error);
    size_t n = json_object_array_length(w->value);
    const char **texts = mem_alloc(n * sizeof *texts);
    if (!texts) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        json_object *text = json_object_array_get_idx(w->value, i);
        ok = json_object_is_type(text, json_type_string) ||
             wrong_type(w, "an array of strings", error);
        texts[i] = ok ? json_object_get_string(text) : NULL;
    }
    ok = ok && made(icp_grammar_from_choices(model, texts, n, out, &err), &err, w, error);
    mem_free(texts);
    return ok;
}

static bool make_text(icp_model *model, const wish *w, icp_grammar **out, reply *error) {
    icp_error err = {0};
    if (!json_object_is_type(w->value, json_type_string)) return wrong_type(w, "a string", error);
    const char *text = json_object_get_string(w->value);
    size_t len = (size_t)json_object_get_string_len(w->value);
    int rc = w->source == SOURCE_REGEX ? icp_grammar_from_regex(model, text, len, out, &err)
                                       : icp_grammar_from_gbnf(model, text, len, out, &err);
    return made(rc, &err, w, error);
}

static bool make(icp_model *model, const wish *w, icp_grammar **out, reply *error) {
    icp_error err = {0};
    switch (w->source) {
    case SOURCE_NONE:
        return true;
    case SOURCE_SCHEMA:
        return make_schema(model, w, out, error);
    case SOURCE_OBJECT:
        return made(icp_grammar_from_json(model, out, &err), &err, w, error);
    case SOURCE_CHOICE:
        return make_choice(model, w, out, error);
    default:
        return make_text(model, w, out, error);
    }
}

bool grammar_fields_read(generate_opts *o, json_object *body, icp_model *model, reply *error) {
    static const named_source table[] = {
        {"guided_json", SOURCE_SCHEMA},   {"guided_regex", SOURCE_REGEX},
        {"guided_choice", SOURCE_CHOICE}, {"guided_grammar", SOURCE_GBNF},
        {"json_schema", SOURCE_SCHEMA},   {"grammar", SOURCE_GBNF},
    };
    wish w = {0};
    return find_format(body, &w, error) && find_structured(body, &w, error) &&
           find_named(body, "", table, COUNT_OF(table), &w, error) &&
           make(model, &w, &o->request.grammar, error);
}
