/* POST /completion and /infill as llama-server has them.
 * https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
 *
 * The body becomes one of /v1/completions under other names, with llama-server's defaults. */
#include <limits.h>
#include <string.h>

#include "chat_build.h"

/* ---- answers --------------------------------------------------------------------------------- */

static const char *stop_type(const choice *c) {
    switch (c->finish) {
    case ICP_FINISH_STOP:
        return "eos";
    case ICP_FINISH_STOP_STRING:
        return "word";
    default:
        return "limit";
    }
}

/* {"id":…,"token":…,"bytes":[…],"logprob":… without the closing brace. */
static void put_token(const generation *g, buf *out, const icp_logprob *p) {
    size_t len = 0;
    char *text = token_bytes(g, p->token, &len);
    buf_printf(out, "{\"id\":%d,\"token\":", p->token);
    put_json_string(out, text, len);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < len; i++) buf_printf(out, "%s%d", i ? "," : "", (unsigned char)text[i]);
    buf_puts(out, "],\"logprob\":");
    put_logprob(out, p->logprob);
    icp_free(text);
}

static void add_logprob(generation *g, logprobs *to, int32_t token, const icp_event *e) {
    add_logprob_item(g, to, e, put_token);
}

static void put_tokens(const generation *g, buf *out, const choice *c) {
    buf_puts(out, ",\"tokens\":[");
    buf_put(out, c->tokens.data, c->tokens.len);
    buf_putc(out, ']');
    if (g->opts.logprobs < 0) return;
    buf_puts(out, ",\"completion_probabilities\":[");
    buf_put(out, c->logprobs.list[0].data, c->logprobs.list[0].len);
    buf_putc(out, ']');
}

/* Sampling as it was understood. */
static void put_settings(const generation *g, buf *out) {
    const icp_request_opts *r = &g->opts.request;
    buf_printf(out,
               ",\"generation_settings\":{\"seed\":%llu,\"temperature\":%g,\"top_k\":%d,"
               "\"top_p\":%g,\"min_p\":%g,\"repeat_penalty\":%g,\"presence_penalty\":%g,"
               "\"frequency_penalty\":%g,\"n_predict\":%d,\"stream\":%s}",
               (unsigned long long)r->seed, (double)r->temperature, r->top_k, (double)r->top_p,
               (double)r->min_p, (double)r->repetition_penalty, (double)r->presence_penalty,
               (double)r->frequency_penalty, g->opts.max_tokens, g->opts.stream ? "true" : "false");
}

/* The end of a choice, after its content. */
static void put_end(const generation *g, buf *out, const choice *c) {
    bool word = c->finish == ICP_FINISH_STOP_STRING && c->stop_index >= 0 &&
                (size_t)c->stop_index < g->opts.request.n_stop;
    put_string_member(out, ",\"stop\":true,\"model\":", g->call->on->name);
    put_settings(g, out);
    buf_printf(out,
               ",\"id_slot\":0,\"truncated\":false,\"tokens_predicted\":%zu,"
               "\"tokens_evaluated\":%zu,\"tokens_cached\":%zu,\"stop_type\":\"%s\"",
               g->usage.completion_tokens, g->usage.prompt_tokens,
               g->usage.prompt_tokens + g->usage.completion_tokens, stop_type(c));
    put_string_member(out, ",\"stopping_word\":", word ? g->opts.stop[c->stop_index] : "");
    put_timings(out, &g->usage);
}

static void put_begin(buf *out, const choice *c) {
    buf_printf(out, "{\"index\":%zu,\"content\":", c->index);
}

static void put_chunk(generation *g, const choice *c, const item *i) {
    buf *out = &g->out;
    event_begin(out, NULL);
    put_begin(out, c);
    put_json_string(out, i ? i->text.data + i->sent : "", i ? i->text.len - i->sent : 0);
    put_tokens(g, out, c);
    buf_printf(out,
               ",\"stop\":false,\"id_slot\":0,\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu}",
               g->n_generated, count_prompt_tokens(g));
    event_end(out);
}

static void put_progress_chunk(generation *g, const choice *c) {
    buf *out = &g->out;
    event_begin(out, NULL);
    put_begin(out, c);
    buf_printf(out,
               "\"\",\"tokens\":[],\"stop\":false,\"id_slot\":0,\"tokens_predicted\":0,"
               "\"tokens_evaluated\":%zu",
               c->prompt->n_tokens);
    put_progress(out, c->prompt);
    buf_putc(out, '}');
    event_end(out);
}

/* Usage is known only when all is over, so the ends of choices come then. */
static void put_ends(generation *g) {
    buf *out = &g->out;
    for (size_t i = 0; !g->failure.status && i < count_choices(g); i++) {
        event_begin(out, NULL);
        put_begin(out, &g->choices[i]);
        buf_puts(out, "\"\",\"tokens\":[]");
        put_end(g, out, &g->choices[i]);
        buf_putc(out, '}');
        event_end(out);
    }
    if (!g->failure.status) return;
    event_begin(out, NULL);
    put_error(out, &g->failure, FORM_OPENAI, g->call->id);
    event_end(out);
}

static void stream(generation *g, enum output_event what, choice *c, item *i) {
    if (what == OUTPUT_PROGRESS) put_progress_chunk(g, c);
    if (what == OUTPUT_DELTA) put_chunk(g, c, i);
    if (what == OUTPUT_ENDS) put_ends(g);
}

/* One object, or a list of them for several. */
static void put_whole(generation *g, buf *out) {
    size_t n = count_choices(g);
    if (n > 1) buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        const choice *c = &g->choices[i];
        if (i) buf_putc(out, ',');
        put_begin(out, c);
        buf_putc(out, '"');
        put_output(out, c, ITEM_TEXT);
        buf_putc(out, '"');
        put_tokens(g, out, c);
        put_end(g, out, c);
        buf_putc(out, '}');
    }
    if (n > 1) buf_putc(out, ']');
}

static const dialect completion = {
    .id_prefix = "cmpl-", .add_logprob = add_logprob, .stream = stream, .put_whole = put_whole};

/* ---- requests -------------------------------------------------------------------------------- */

/* Fields that /v1/completions has under another name, or not at all. */
struct own {
    int n_predict, n_probs;
    float repeat_penalty;
    bool return_tokens, cache_prompt;
};
static const field own_fields[] = {
    {"max_tokens", FIELD_INT, offsetof(struct own, n_predict), 0, INT_MAX},
    {"n_predict", FIELD_INT, offsetof(struct own, n_predict), -2, INT_MAX}, /* wins: comes later */
    {"n_probs", FIELD_INT, offsetof(struct own, n_probs), 0, ICP_MAX_LOGPROBS},
    {"repeat_penalty", FIELD_FLOAT, offsetof(struct own, repeat_penalty), 0.01, 100},
    {"return_tokens", FIELD_BOOL, offsetof(struct own, return_tokens), 0, 0},
    {"cache_prompt", FIELD_BOOL, offsetof(struct own, cache_prompt), 0, 0},
};

/* [[id, bias], …], where false bans, becomes {"id": bias}. */
static json_object *map_of_pairs(json_object *pairs, reply *error) {
    json_object *map = json_object_new_object();
    for (size_t i = 0; i < json_object_array_length(pairs); i++) {
        json_object *pair = json_object_array_get_idx(pairs, i);
        bool two =
            json_object_is_type(pair, json_type_array) && json_object_array_length(pair) == 2;
        json_object *id = two ? json_object_array_get_idx(pair, 0) : NULL;
        json_object *bias = two ? json_object_array_get_idx(pair, 1) : NULL;
        if (!json_object_is_type(id, json_type_int)) {
            reply_error(error, 400, "invalid_value", "logit_bias",
                        "Invalid value for 'logit_bias': item %zu is no pair of a token id and a "
                        "bias.",
                        i);
            break;
        }
        if (json_object_is_type(bias, json_type_boolean))
            bias = json_object_new_int(json_object_get_boolean(bias) ? 0 : -100);
        else
            bias = json_object_get(bias);
        json_object_object_add(map, json_object_get_string(id), bias);
    }
    return map;
}

static void add_default(json_object *to, const char *name, double value) {
    if (!field_get(to, name)) json_object_object_add(to, name, json_object_new_double(value));
}

/* The same wishes under the names of /v1/completions. */
static json_object *translate(json_object *body, const struct own *own, reply *error) {
    static const char *const alike[] = {"prompt",
                                        "temperature",
                                        "top_p",
                                        "min_p",
                                        "stop",
                                        "presence_penalty",
                                        "stream",
                                        "frequency_penalty",
                                        "ignore_eos",
                                        "cache_salt",
                                        "lora",
                                        "priority",
                                        "n",
                                        "json_schema",
                                        "grammar",
                                        "top_k",
                                        "logit_bias",
                                        "seed",
                                        "return_progress"};
    json_object *to = json_object_new_object();
    copy_members(to, body, alike, COUNT_OF(alike));
    json_object *seed = field_get(body, "seed"), *bias = field_get(body, "logit_bias");
    if (json_object_is_type(seed, json_type_int) && json_object_get_int64(seed) < 0)
        json_object_object_del(to, "seed"); /* -1 means what leaving it out means */
    if (json_object_is_type(bias, json_type_array))
        json_object_object_add(to, "logit_bias", map_of_pairs(bias, error));
    if (own->n_predict >= 0)
        json_object_object_add(to, "max_tokens", json_object_new_int(own->n_predict));
    if (own->n_probs > 0) json_object_object_add(to, "logprobs", json_object_new_int(own->n_probs));
    json_object_object_add(to, "repetition_penalty",
                           json_object_new_double((double)own->repeat_penalty));
    json_object_object_add(to, "return_token_ids", json_object_new_boolean(own->return_tokens));
    add_default(to, "temperature", 0.8);
    add_default(to, "top_p", 0.95);
    add_default(to, "min_p", 0.05);
    if (!field_get(to, "top_k")) json_object_object_add(to, "top_k", json_object_new_int(40));
    return to;
}

/* prompt: instead of the body's; may be NULL. */
static generation *begin(call *c, json_object *body, const char *prompt) {
    struct own own = {.n_predict = -1, .repeat_penalty = 1, .cache_prompt = true};
    if (!fields_read(body, "", own_fields, COUNT_OF(own_fields), &own, &c->reply)) return NULL;
    json_object *to = translate(body, &own, &c->reply);
    if (prompt) add_string(to, "prompt", prompt);
    generation *g = c->reply.status ? NULL : prompts_generation(c, &completion, to);
    if (g && !field_get(to, "max_tokens")) g->opts.max_tokens = -1; /* as the context allows */
    if (g && !own.cache_prompt) g->opts.request.max_hit = 0;
    json_object_put(to);
    return g;
}

void completion_start(call *c, json_object *body) {
    generation *g = begin(c, body, NULL);
    if (g) generation_submit(g);
}

void infill_start(call *c, json_object *body) {
    reply *error = &c->reply;
    fim_parts parts = {.prefix = field_of_type(body, "input_prefix", json_type_string, error),
                       .suffix = field_of_type(body, "input_suffix", json_type_string, error),
                       .extra = field_of_type(body, "input_extra", json_type_array, error)};
    json_object *typed = field_of_type(body, "prompt", json_type_string, error);
    if (!parts.prefix && !parts.suffix)
        reply_error(error, 400, "missing_field", "input_prefix",
                    "Missing field: 'input_prefix' or 'input_suffix'.");
    if (error->status) return;
    parts.typed = typed ? json_object_get_string(typed) : NULL;
    generation *g = begin(c, body, "x"); /* stands for what follows */
    if (!g) return;
    icp_tokens_free(&g->prompts[0].ids);
    if (fim_tokenize(c, &parts, &g->prompts[0].ids))
        generation_submit(g);
    else
        generation_free(&g);
    reply_rename(&c->reply, "suffix", "input_suffix");
}
