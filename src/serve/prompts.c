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
    } else if (icp_detokenize(c->server->model, p->ids.id, p->ids.n, true, &text, &p->echo_len,
                              &err) == 0) {
        p->echo = mem_alloc(p->echo_len + 1);
        if (p->echo) memcpy(p->echo, text, p->echo_len);
        icp_free(text);
    }
    if (!p->echo) reply_icp_error(&c->reply, &err, "prompt");
    return p->echo;
}

/* One prompt: a string, or a list of token ids. */
static bool read_prompt(call *c, prompt *p, json_object *value, const struct own *own) {
    const icp_model *model = c->server->model;
    icp_error err = {0};
    p->from_text = json_object_is_type(value, json_type_string);
    if (p->from_text) {
        if (icp_tokenize(model, json_object_get_string(value),
                         (size_t)json_object_get_string_len(value), true, own->add_special_tokens,
                         &p->ids, &err) < 0)
            return reply_icp_error(&c->reply, &err, "prompt"), false;
    } else if (json_object_is_type(value, json_type_array)) {
        size_t n_vocab = icp_model_get_info(model)->n_vocab;
        if (!json_token_ids(value, "prompt", n_vocab, &p->ids, &c->reply)) return false;
    } else {
        reply_error(&c->reply, 400, "invalid_type", "prompt",
                    "Invalid type for 'prompt': expected a string, a list of token ids, or a list "
                    "of those, got %s.",
                    json_kind(value));
        return false;
    }
    if (p->ids.n) return !own->echo || keep_echo(c, p, value);
    reply_error(&c->reply, 400, "invalid_value", "prompt",
                "Invalid value for 'prompt': it is empty.");
    return false;
}

/* A list whose first item is a number is one prompt. */
static bool is_one_prompt(json_object *value) {
    if (!json_object_is_type(value, json_type_array)) return true;
    json_object *first = json_object_array_get_idx(value, 0);
    return json_object_is_type(first, json_type_int) ||
           json_object_is_type(first, json_type_double);
}

static size_t count_prompts(json_object *value, reply *error) {
    size_t n = is_one_prompt(value) ? 1 : json_object_array_length(value);
    if (n >= 1 && n <= MAX_PROMPTS) return n;
    reply_error(error, 400, "invalid_value", "prompt",
                "Invalid value for 'prompt': a list has 1 to %d prompts, not %zu.", MAX_PROMPTS, n);
    return 0;
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
    bool single = is_one_prompt(value);
    for (size_t i = 0; i < g->n_prompts; i++) {
        json_object *item = single ? value : json_object_array_get_idx(value, i);
        if (!read_prompt(c, &g->prompts[i], item, own)) return false;
    }
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
    size_t n = count_prompts(value, &c->reply);
    generation *g = n ? generation_new(c, d, body, n) : NULL;
    if (g && !(settle(g, &own, &c->reply) && read_prompts(c, g, body, &own))) generation_free(&g);
    return g;
}
