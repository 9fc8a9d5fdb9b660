/* Fields of vLLM that speak of tokens. */
#include <string.h>

#include "generation.h"

enum { BAN = -100, MAX_BAD_WORDS = 1024 };

static bool no_memory(reply *error) {
    reply_error(error, 503, NULL, NULL, "Out of memory.");
    return false;
}

/* Room for n more biases. */
static bool grow(generate_opts *o, size_t n, reply *error) {
    icp_logit_bias *grown = mem_resize(o->bias, o->request.n_bias + n + 1, sizeof *grown);
    if (!grown) return no_memory(error);
    o->bias = grown;
    o->request.bias = grown;
    return true;
}

/* All others are banned. */
static bool read_allowed(generate_opts *o, json_object *body, size_t n_vocab, reply *error) {
    json_object *list = field_of_type(body, "allowed_token_ids", json_type_array, error);
    if (!list || !json_object_array_length(list)) return !error->status;
    icp_tokens ids = {0};
    if (!json_token_ids(list, "allowed_token_ids", n_vocab, &ids, error)) return false;
    bool *allowed = mem_zero(n_vocab, sizeof *allowed);
    bool ok = allowed ? grow(o, n_vocab, error) : no_memory(error);
    for (size_t i = 0; ok && i < ids.n; i++) allowed[ids.id[i]] = true;
    for (size_t i = 0; ok && i < n_vocab; i++)
        if (!allowed[i]) o->bias[o->request.n_bias++] = (icp_logit_bias){(int32_t)i, BAN};
    mem_free(allowed);
    icp_tokens_free(&ids);
    return ok;
}

/* Bans one spelling of a word. */
static bool ban_tokens(generate_opts *o, const icp_model *model, const char *text, size_t len,
                       reply *error) {
    icp_tokens *ids = &o->banned[o->request.n_bans];
    icp_error err = {0};
    if (len == 0)
        reply_error(error, 400, "invalid_value", "bad_words",
                    "Invalid value for 'bad_words': a word is empty.");
    else if (icp_tokenize(model, text, len, false, false, ids, &err) < 0)
        reply_icp_error(error, &err, "bad_words");
    else
        o->bans[o->request.n_bans++] = (icp_ban){ids->id, ids->n};
    return !error->status;
}

/* At the beginning of a text, and after a blank. */
static bool ban_word(generate_opts *o, json_object *word, const icp_model *model, reply *error) {
    if (!json_object_is_type(word, json_type_string))
        return reply_error(error, 400, "invalid_type", "bad_words",
                           "Invalid type for 'bad_words': expected strings, got %s.",
                           json_kind(word)),
               false;
    buf spaced = {0};
    buf_putc(&spaced, ' ');
    buf_put(&spaced, json_object_get_string(word), (size_t)json_object_get_string_len(word));
    bool ok = spaced.failed ? no_memory(error)
                            : ban_tokens(o, model, spaced.data + 1, spaced.len - 1, error) &&
                                  ban_tokens(o, model, spaced.data, spaced.len, error);
    buf_fini(&spaced);
    return ok;
}

static bool read_bad_words(generate_opts *o, json_object *body, const icp_model *model,
                           reply *error) {
    json_object *list = field_of_type(body, "bad_words", json_type_array, error);
    size_t n = list ? json_object_array_length(list) : 0;
    if (n > MAX_BAD_WORDS)
        return reply_error(error, 400, "invalid_value", "bad_words",
                           "Invalid value for 'bad_words': at most %d words.", MAX_BAD_WORDS),
               false;
    if (!n) return !error->status;
    o->request.bans = o->bans = mem_zero(2 * n, sizeof *o->bans);
    o->banned = mem_zero(2 * n, sizeof *o->banned);
    if (!o->bans || !o->banned) return no_memory(error);
    for (size_t i = 0; i < n; i++)
        if (!ban_word(o, json_object_array_get_idx(list, i), model, error)) return false;
    return true;
}

bool token_fields_read(generate_opts *o, json_object *body, const icp_model *model, reply *error) {
    json_object *tell = field_of_type(body, "return_token_ids", json_type_boolean, error);
    o->return_tokens = tell && json_object_get_boolean(tell);
    field_of_type(body, "session_id", json_type_string, error);
    size_t n_vocab = icp_model_get_info(model)->n_vocab;
    return !error->status && read_allowed(o, body, n_vocab, error) &&
           read_bad_words(o, body, model, error);
}
