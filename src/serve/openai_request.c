/* The fields of a request that chat and completions share: OpenAI's and the usual extensions of
 * vLLM. A field that is known is checked; one that would change the answer and cannot be honoured
 * is refused; any other is ignored. */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "generation.h"

enum { MAX_STOP_LENGTH = 1024, MAX_SALT = 1024 };

#define AT(member) offsetof(generate_opts, member)

static const field scalars[] = {
    {"n", FIELD_INT, AT(request.n), 1, ICP_MAX_N},
    {"max_tokens", FIELD_INT, AT(max_tokens), 0, INT_MAX},
    {"max_completion_tokens", FIELD_INT, AT(max_tokens), 0, INT_MAX}, /* wins: it comes later */
    {"min_tokens", FIELD_INT, AT(request.min_tokens), 0, INT_MAX},
    {"temperature", FIELD_FLOAT, AT(request.temperature), 0, 100},
    {"top_p", FIELD_FLOAT, AT(request.top_p), 0, 1},
    {"min_p", FIELD_FLOAT, AT(request.min_p), 0, 1},
    {"prompt_logprobs", FIELD_INT, AT(prompt_logprobs), 0, ICP_MAX_LOGPROBS},
    {"top_k", FIELD_INT, AT(request.top_k), -1, INT_MAX},
    {"repetition_penalty", FIELD_FLOAT, AT(request.repetition_penalty), 0.01, 100},
    {"presence_penalty", FIELD_FLOAT, AT(request.presence_penalty), -2, 2},
    {"frequency_penalty", FIELD_FLOAT, AT(request.frequency_penalty), -2, 2},
    {"priority", FIELD_INT, AT(request.priority), INT_MIN, INT_MAX},
    {"ignore_eos", FIELD_BOOL, AT(request.ignore_eos), 0, 0},
    {"include_stop_str_in_output", FIELD_BOOL, AT(request.include_stop), 0, 0},
    {"skip_special_tokens", FIELD_BOOL, AT(skip_special), 0, 0},
    {"stream", FIELD_BOOL, AT(stream), 0, 0},
    {"return_progress", FIELD_BOOL, AT(request.progress), 0, 0},
};

static const field stream_scalars[] = {
    {"include_usage", FIELD_BOOL, AT(include_usage), 0, 0},
    {"continuous_usage_stats", FIELD_BOOL, AT(continuous_usage), 0, 0},
};

/* Fields that are fine as long as they say nothing: absent, null, false, "" or empty. */
static const char *const unsupported[] = {
    "use_beam_search",
    "functions",
};

static bool says_nothing(json_object *value) {
    switch (json_object_get_type(value)) {
    case json_type_boolean:
        return !json_object_get_boolean(value);
    case json_type_string:
        return json_object_get_string_len(value) == 0;
    case json_type_array:
        return json_object_array_length(value) == 0;
    case json_type_object:
        return json_object_object_length(value) == 0;
    default:
        return false;
    }
}

static bool refuse_unsupported(json_object *body, reply *error) {
    for (size_t i = 0; i < COUNT_OF(unsupported); i++) {
        json_object *value = field_get(body, unsupported[i]);
        if (!value || says_nothing(value)) continue;
        reply_error(error, 400, "unsupported", unsupported[i], "'%s' is not supported yet.",
                    unsupported[i]);
        return false;
    }
    return true;
}

/* One string of `stop`: the engine compares NUL-terminated ones. */
static bool take_stop(generate_opts *o, json_object *value, reply *error) {
    if (!json_object_is_type(value, json_type_string))
        return reply_error(error, 400, "invalid_type", "stop",
                           "Invalid type for 'stop': expected strings, got %s.", json_kind(value)),
               false;
    const char *text = json_object_get_string(value);
    size_t len = (size_t)json_object_get_string_len(value);
    if (len == 0 || len > MAX_STOP_LENGTH || strlen(text) != len)
        return reply_error(error, 400, "invalid_value", "stop",
                           "Invalid value for 'stop': a stop string has 1 to %d bytes and no NUL.",
                           MAX_STOP_LENGTH),
               false;
    o->stop[o->request.n_stop] = mem_strdup(text);
    if (!o->stop[o->request.n_stop])
        return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    o->request.n_stop++;
    return true;
}

static bool read_stop(generate_opts *o, json_object *body, reply *error) {
    json_object *stop = field_get(body, "stop");
    if (!stop) return true;
    bool list = json_object_is_type(stop, json_type_array);
    size_t n = list ? json_object_array_length(stop) : 1;
    if (n > ICP_MAX_STOPS)
        return reply_error(error, 400, "invalid_value", "stop",
                           "Invalid value for 'stop': at most %d strings.", ICP_MAX_STOPS),
               false;
    o->stop = mem_alloc((n + 1) * sizeof *o->stop);
    if (!o->stop) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    o->request.stop = (const char *const *)o->stop;
    for (size_t i = 0; i < n; i++)
        if (!take_stop(o, list ? json_object_array_get_idx(stop, i) : stop, error)) return false;
    return true;
}

static bool read_stop_tokens(generate_opts *o, json_object *body, size_t n_vocab, reply *error) {
    json_object *ids = field_of_type(body, "stop_token_ids", json_type_array, error);
    if (!ids) return !error->status;
    if (!json_token_ids(ids, "stop_token_ids", n_vocab, &o->stop_tokens, error)) return false;
    o->request.stop_tokens = o->stop_tokens.id;
    o->request.n_stop_tokens = o->stop_tokens.n;
    return true;
}

static bool read_bias(generate_opts *o, json_object *body, size_t n_vocab, reply *error) {
    json_object *map = field_of_type(body, "logit_bias", json_type_object, error);
    if (!map) return !error->status;
    size_t n = (size_t)json_object_object_length(map);
    o->bias = mem_alloc((n + 1) * sizeof *o->bias);
    if (!o->bias) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    json_object_object_foreach(map, key, value) {
        char *end;
        unsigned long long id = strtoull(key, &end, 10);
        double bias = json_object_get_double(value);
        if (!isdigit((unsigned char)key[0]) || *end || id >= n_vocab)
            return reply_error(error, 400, "invalid_value", "logit_bias",
                               "Invalid value for 'logit_bias': \"%.40s\" is not a token id (0 to "
                               "%zu).",
                               key, n_vocab - 1),
                   false;
        if (!(json_object_is_type(value, json_type_int) ||
              json_object_is_type(value, json_type_double)) ||
            !(bias >= -100 && bias <= 100))
            return reply_error(error, 400, "invalid_value", "logit_bias",
                               "Invalid value for 'logit_bias': the bias of token %llu must be a "
                               "number from -100 to 100.",
                               id),
                   false;
        o->bias[o->request.n_bias++] = (icp_logit_bias){(int32_t)id, (float)bias};
    }
    o->request.bias = o->bias;
    return true;
}

static bool read_strings(generate_opts *o, json_object *body, reply *error) {
    field_of_type(body, "model", json_type_string, error); /* any name means the one served */
    field_of_type(body, "user", json_type_string, error);
    json_object *salt = field_of_type(body, "cache_salt", json_type_string, error);
    if (salt) {
        size_t len = (size_t)json_object_get_string_len(salt);
        o->request.salt = json_object_get_string(salt);
        if (len == 0 || len > MAX_SALT || strlen(o->request.salt) != len)
            reply_error(error, 400, "invalid_value", "cache_salt",
                        "Invalid value for 'cache_salt': 1 to %d characters, no NUL.", MAX_SALT);
    }
    return !error->status;
}

static bool read_seed(generate_opts *o, json_object *body, reply *error) {
    json_object *seed = field_of_type(body, "seed", json_type_int, error);
    if (seed)
        o->request.seed = (uint64_t)json_object_get_int64(seed);
    else if (getrandom(&o->request.seed, sizeof o->request.seed, 0) < 0)
        o->request.seed = (uint64_t)(clock_now() * 1e9);
    return !error->status;
}

static bool read_stream_options(generate_opts *o, json_object *body, reply *error) {
    json_object *options = field_of_type(body, "stream_options", json_type_object, error);
    if (!options) return !error->status;
    if (!o->stream)
        return reply_error(error, 400, "invalid_value", "stream_options",
                           "'stream_options' is only allowed when 'stream' is true."),
               false;
    return fields_read(options, "stream_options.", stream_scalars, COUNT_OF(stream_scalars), o,
                       error);
}

/* Values that mean something else to the engine than to callers, and combinations. */
static bool settle(generate_opts *o, reply *error) {
    icp_request_opts *r = &o->request;
    if (r->top_k < 0) r->top_k = 0;
    if (r->top_p == 0) r->top_k = 1; /* nothing but the best */
    r->keep_special = !o->skip_special;
    if (o->stream && o->prompt_logprobs >= 0)
        return reply_error(error, 400, "invalid_value", "prompt_logprobs",
                           "'prompt_logprobs' is only allowed when 'stream' is false."),
               false;
    if (o->max_tokens < 0 || r->min_tokens <= o->max_tokens) return true;
    reply_error(error, 400, "invalid_value", "min_tokens",
                "Invalid value for 'min_tokens': %d is more than max_tokens (%d).", r->min_tokens,
                o->max_tokens);
    return false;
}

bool generate_opts_read(generate_opts *o, json_object *body, size_t n_vocab, reply *error) {
    *o = (generate_opts){
        .max_tokens = -1, .logprobs = -1, .prompt_logprobs = -1, .skip_special = true};
    icp_request_opts_init(&o->request);
    return fields_read(body, "", scalars, COUNT_OF(scalars), o, error) &&
           read_stream_options(o, body, error) && read_strings(o, body, error) &&
           read_seed(o, body, error) && read_stop(o, body, error) &&
           read_stop_tokens(o, body, n_vocab, error) && read_bias(o, body, n_vocab, error) &&
           refuse_unsupported(body, error) && cache_fields_read(o, body, error) && settle(o, error);
}

void generate_opts_fini(generate_opts *o) {
    for (size_t i = 0; i < o->request.n_stop; i++) mem_free(o->stop[i]);
    mem_free(o->stop);
    icp_tokens_free(&o->stop_tokens);
    icp_grammar_free(&o->request.grammar);
    mem_free(o->bias);
    mem_free(o->lora);
    for (size_t i = 0; i < o->request.n_bans; i++) icp_tokens_free(&o->banned[i]);
    mem_free(o->banned);
    mem_free(o->bans);
    *o = (generate_opts){0};
}
