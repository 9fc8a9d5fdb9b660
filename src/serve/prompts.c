/* The prompts of a completion's body: texts, lists of token ids, or lists of those; with a suffix,
 * a text to fill in. */
#include <string.h>

#include "generation.h"

enum { MAX_PROMPTS = 1024, MAX_CHOICES = 4096, DEFAULT_MAX_TOKENS = 16 };

struct own {
    bool echo, add_special_tokens;
    int logprobs, best_of;
};

static const field own_fields[] = {
    {"echo", FIELD_BOOL, offsetof(struct own, echo), 0, 0},
    {"add_special_tokens", FIELD_BOOL, offsetof(struct own, add_special_tokens), 0, 0},
    {"logprobs", FIELD_INT, offsetof(struct own, logprobs), 0, ICP_MAX_LOGPROBS},
    {"best_of", FIELD_INT, offsetof(struct own, best_of), 1, ICP_MAX_N},
};

/* The text that an answer with `echo` repeats. */
static bool keep_echo(call *c, prompt *p, json_object *value) {
    icp_error err = {.code = ICP_ENOMEM};
    char *text = NULL;
    if (json_object_is_type(value, json_type_string)) {
        p->echo_len = (size_t)json_object_get_string_len(value);
        p->echo = mem_alloc(p->echo_len + 1);
        if (p->echo) memcpy(p->echo, json_object_get_string(value), p->echo_len);
    } else if (icp_detokenize(c->on->model, p->ids.id, p->ids.n, true, &text, &p->echo_len, &err) ==
               0) {
        p->echo = mem_alloc(p->echo_len + 1);
        if (p->echo) memcpy(p->echo, text, p->echo_len);
        icp_free(text);
    }
    if (!p->echo) reply_icp_error(&c->reply, &err, "prompt");
    return p->echo;
}

/* One prompt: a string, or a list of token ids. */
static bool read_prompt(call *c, prompt *p, json_object *value, const char *param, bool frame) {
    const icp_model *model = c->on->model;
    icp_error err = {0};
    p->from_text = json_object_is_type(value, json_type_string);
    if (p->from_text) {
        if (icp_tokenize(model, json_object_get_string(value),
                         (size_t)json_object_get_string_len(value), true, frame, &p->ids, &err) < 0)
            return reply_icp_error(&c->reply, &err, param), false;
    } else if (json_object_is_type(value, json_type_array)) {
        size_t n_vocab = icp_model_get_info(model)->n_vocab;
        if (!json_token_ids(value, param, n_vocab, &p->ids, &c->reply)) return false;
    } else {
        reply_error(&c->reply, 400, "invalid_type", param,
                    "Invalid type for '%s': expected a string, a list of token ids, or a list of "
                    "those, got %s.",
                    param, json_kind(value));
        return false;
    }
    if (p->ids.n) return true;
    reply_error(&c->reply, 400, "invalid_value", param, "Invalid value for '%s': it is empty.",
                param);
    return false;
}

/* A list whose first item is a number is one prompt. */
static bool is_one_prompt(json_object *value) {
    if (!json_object_is_type(value, json_type_array)) return true;
    json_object *first = json_object_array_get_idx(value, 0);
    return json_object_is_type(first, json_type_int) ||
           json_object_is_type(first, json_type_double);
}

static json_object *prompt_at(json_object *value, size_t i) {
    return is_one_prompt(value) ? value : json_object_array_get_idx(value, i);
}

size_t prompts_count(json_object *value, const char *param, size_t most, reply *error) {
    size_t n = is_one_prompt(value) ? 1 : json_object_array_length(value);
    if (n >= 1 && n <= most) return n;
    reply_error(error, 400, "invalid_value", param,
                "Invalid value for '%s': a list has 1 to %zu items, not %zu.", param, most, n);
    return 0;
}

bool prompts_read(generation *g, json_object *value, const char *param, bool frame) {
    for (size_t i = 0; i < g->n_prompts; i++)
        if (!read_prompt(g->call, &g->prompts[i], prompt_at(value, i), param, frame)) return false;
    return true;
}

static bool settle(generation *g, const struct own *own, reply *error) {
    icp_request_opts *r = &g->opts.request;
    g->echo = own->echo;
    g->opts.logprobs = own->logprobs;
    if (g->opts.max_tokens < 0) g->opts.max_tokens = MAX(DEFAULT_MAX_TOKENS, r->min_tokens);
    if (own->best_of && own->best_of != r->n)
        reply_error(error, 400, "unsupported", "best_of",
                    "'best_of' is not supported unless it equals 'n'.");
    else if (g->n_prompts * (size_t)r->n > MAX_CHOICES)
        reply_error(error, 400, "invalid_value", "n",
                    "Invalid value for 'n': at most %d completions in one request.", MAX_CHOICES);
    return !error->status;
}

/* A prompt with a suffix: what belongs between them is wanted. */
static bool read_filling(call *c, prompt *p, json_object *before, json_object *after) {
    if (json_object_is_type(before, json_type_string))
        return fim_tokenize(c, &(fim_parts){.prefix = before, .suffix = after}, &p->ids);
    reply_error(&c->reply, 400, "invalid_type", "prompt",
                "Invalid type for 'prompt': with 'suffix' it must be a string, not %s.",
                json_kind(before));
    return false;
}

static bool read_prompts(call *c, generation *g, json_object *body, const struct own *own) {
    json_object *value = field_get(body, "prompt");
    json_object *suffix = field_of_type(body, "suffix", json_type_string, &c->reply);
    if (c->reply.status) return false;
    if (suffix && json_object_get_string_len(suffix))
        return read_filling(c, &g->prompts[0], value, suffix);
    if (!prompts_read(g, value, "prompt", own->add_special_tokens)) return false;
    for (size_t i = 0; own->echo && i < g->n_prompts; i++)
        if (!keep_echo(c, &g->prompts[i], prompt_at(value, i))) return false;
    return true;
}

generation *prompts_generation(call *c, const dialect *d, json_object *body) {
    struct own own = {.logprobs = -1, .add_special_tokens = true};
    if (!fields_read(body, "", own_fields, COUNT_OF(own_fields), &own, &c->reply)) return NULL;
    json_object *value = field_get(body, "prompt");
    if (!value) {
        reply_error(&c->reply, 400, "missing_field", "prompt", "Missing field: 'prompt'.");
        return NULL;
    }
    size_t n = prompts_count(value, "prompt", MAX_PROMPTS, &c->reply);
    generation *g = n ? generation_new(c, d, body, n) : NULL;
    if (g && !(settle(g, &own, &c->reply) && read_prompts(c, g, body, &own))) generation_free(&g);
    return g;
}
