/* Fields of vLLM that speak of single tokens. Bans are biases: the engine knows nothing else. */
#include <string.h>

#include "generation.h"

enum { BAN = -100 };

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

/* A word at the beginning of a text and after a blank: two tokens, or more than can be banned. */
static bool ban_word(generate_opts *o, json_object *word, const icp_model *model, reply *error) {
    buf spaced = {0};
    if (!json_object_is_type(word, json_type_string))
        return reply_error(error, 400, "invalid_type", "bad_words",
                           "Invalid type for 'bad_words': expected strings, got %s.",
                           json_kind(word)),
               false;
    buf_putc(&spaced, ' ');
    buf_put(&spaced, json_object_get_string(word), (size_t)json_object_get_string_len(word));
    bool ok = !spaced.failed || no_memory(error);
    for (size_t skip = 0; ok && skip < 2; skip++) {
        icp_tokens ids = {0};
        icp_error err = {0};
        ok = icp_tokenize(model, spaced.data + skip, spaced.len - skip, false, false, &ids, &err) ==
             0;
        if (!ok) reply_icp_error(error, &err, "bad_words");
        if (ok && ids.n == 1 && (ok = grow(o, 1, error)))
            o->bias[o->request.n_bias++] = (icp_logit_bias){ids.id[0], BAN};
        if (ok && ids.n != 1 && skip == 1) {
            reply_error(error, 400, "unsupported", "bad_words",
                        "'bad_words': \"%.60s\" has %zu tokens; only words of one can be banned.",
                        spaced.data + 1, ids.n);
            ok = false;
        }
        icp_tokens_free(&ids);
    }
    buf_fini(&spaced);
    return ok;
}

static bool read_bad_words(generate_opts *o, json_object *body, const icp_model *model,
                           reply *error) {
    json_object *list = field_of_type(body, "bad_words", json_type_array, error);
    for (size_t i = 0; list && i < json_object_array_length(list); i++)
        if (!ban_word(o, json_object_array_get_idx(list, i), model, error)) return false;
    return !error->status;
}

bool token_fields_read(generate_opts *o, json_object *body, const icp_model *model, reply *error) {
    json_object *tell = field_of_type(body, "return_token_ids", json_type_boolean, error);
    o->return_tokens = tell && json_object_get_boolean(tell);
    field_of_type(body, "session_id", json_type_string, error);
    size_t n_vocab = icp_model_get_info(model)->n_vocab;
    return !error->status && read_allowed(o, body, n_vocab, error) &&
           read_bad_words(o, body, model, error);
}
