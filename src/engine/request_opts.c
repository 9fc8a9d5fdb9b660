/* What a caller may ask for. */
#include <math.h>
#include <string.h>

#include "engine_internal.h"

enum { LONGEST_NAME = 1024 }; /* bytes of a tenant's name, or of a salt */

void icp_request_opts_init(icp_request_opts *opts) {
    *opts = (icp_request_opts){.n = 1,
                               .max_tokens = -1,
                               .temperature = 1,
                               .top_p = 1,
                               .repetition_penalty = 1,
                               .logprobs = -1,
                               .max_hit = SIZE_MAX};
}

static int check_ids(const char *what, const int32_t *ids, size_t n, size_t n_vocab,
                     icp_error *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= n_vocab)
            return error_set(err, ICP_EINVALID, "%s %zu is %d; the vocabulary has 0 to %zu", what,
                             i, ids[i], n_vocab - 1);
    return 0;
}

static int check_int(const char *name, int value, int least, int most, icp_error *err) {
    if (value >= least && value <= most) return 0;
    return error_set(err, ICP_EINVALID, "%s is %d; it must be %d to %d", name, value, least, most);
}

/* NaN fails every comparison. */
static int check_float(const char *name, float value, float least, float most, icp_error *err) {
    if (value >= least && value <= most) return 0;
    return error_set(err, ICP_EINVALID, "%s is %g; it must be %g to %g", name, (double)value,
                     (double)least, (double)most);
}

static int check_sampling(const icp_request_opts *o, size_t n_vocab, icp_error *err) {
    TRY(check_float("temperature", o->temperature, 0, 100, err));
    TRY(check_float("top_p", o->top_p, 0, 1, err));
    TRY(check_float("min_p", o->min_p, 0, 1, err));
    TRY(check_int("top_k", o->top_k, -1, INT32_MAX, err));
    TRY(check_float("repetition_penalty", o->repetition_penalty, 1e-3f, 1e3f, err));
    TRY(check_float("presence_penalty", o->presence_penalty, -100, 100, err));
    TRY(check_float("frequency_penalty", o->frequency_penalty, -100, 100, err));
    TRY(check_int("logprobs", o->logprobs, -1, ICP_MAX_LOGPROBS, err));
    for (size_t i = 0; i < o->n_bias; i++) {
        TRY(check_ids("logit_bias token", &o->bias[i].token, 1, n_vocab, err));
        TRY(check_float("logit_bias", o->bias[i].bias, -1e4f, 1e4f, err));
    }
    for (size_t i = 0; i < o->n_bans; i++) {
        if (o->bans[i].n == 0) return error_set(err, ICP_EINVALID, "banned run %zu is empty", i);
        TRY(check_ids("banned token", o->bans[i].tokens, o->bans[i].n, n_vocab, err));
    }
    return 0;
}

static int check_adapters(const icp_request_opts *o, size_t n, icp_error *err) {
    if (o->n_adapter_scales > n)
        return error_set(err, ICP_EINVALID, "scales of %zu adapters; the model has %zu",
                         o->n_adapter_scales, n);
    for (size_t i = 0; o->adapter_scales && i < o->n_adapter_scales; i++)
        TRY(check_float("adapter scale", o->adapter_scales[i], -1e3f, 1e3f, err));
    return 0;
}

static int check_stops(const icp_request_opts *o, size_t n_vocab, icp_error *err) {
    if (o->n_stop > ICP_MAX_STOPS)
        return error_set(err, ICP_EINVALID, "%zu stop strings; at most %d are allowed", o->n_stop,
                         ICP_MAX_STOPS);
    for (size_t i = 0; i < o->n_stop; i++) {
        size_t len = strlen(o->stop[i]);
        if (len == 0) return error_set(err, ICP_EINVALID, "stop string %zu is empty", i);
        if (len > LONGEST_NAME)
            return error_set(err, ICP_EINVALID, "stop string %zu has %zu bytes; at most %d", i, len,
                             LONGEST_NAME);
        int32_t cp;
        for (size_t at = 0; at < len;) {
            at += (size_t)utf8_decode(o->stop[i] + at, len - at, &cp);
            if (cp < 0)
                return error_set(err, ICP_EINVALID, "stop string %zu is not valid UTF-8", i);
        }
    }
    return check_ids("stop token", o->stop_tokens, o->n_stop_tokens, n_vocab, err);
}

size_t request_most_tokens(const request_limits *limits) {
    return MIN(limits->n_ctx, MIN(limits->cache_tokens, limits->quota_tokens));
}

static int check_length(const icp_request_opts *o, const request_limits *limits, icp_error *err) {
    size_t most = o->max_tokens < 0 ? 1 : (size_t)o->max_tokens, total = o->n_prompt + most;
    if (total > limits->n_ctx && o->max_tokens <= 1)
        return error_set(err, ICP_ELIMIT, "the prompt has %zu tokens, the context %zu%s",
                         o->n_prompt, limits->n_ctx,
                         o->max_tokens ? " and the answer needs one" : "");
    if (total > limits->n_ctx)
        return error_set(err, ICP_ELIMIT,
                         "the prompt has %zu tokens and the answer may have %zu, the context %zu",
                         o->n_prompt, most, limits->n_ctx);
    if (total > limits->cache_tokens)
        return error_set(
            err, ICP_ELIMIT,
            "the prompt has %zu tokens and the answer may have %zu, the cache has room "
            "for %zu",
            o->n_prompt, most, limits->cache_tokens);
    if (total > limits->quota_tokens)
        return error_set(
            err, ICP_ELIMIT,
            "the prompt has %zu tokens and the answer may have %zu, a tenant's share of the cache "
            "has room for %zu",
            o->n_prompt, most, limits->quota_tokens);
    return 0;
}

static int check_seconds(const char *name, double value, icp_error *err) {
    if (value >= 0) return 0;
    return error_set(err, ICP_EINVALID, "%s is %g seconds; it must not be negative", name, value);
}

static int check_marks(const icp_request_opts *o, icp_error *err) {
    if (o->n_marks > ICP_MAX_MARKS)
        return error_set(err, ICP_EINVALID, "%zu marks; at most %d are allowed", o->n_marks,
                         ICP_MAX_MARKS);
    for (size_t i = 0; i < o->n_marks; i++) {
        const icp_mark *mark = &o->marks[i];
        size_t least = i ? mark[-1].position : 1;
        if (mark->position < least || mark->position > o->n_prompt)
            return error_set(err, ICP_EINVALID, "mark %zu is at %zu; it must be %zu to %zu", i,
                             mark->position, least, o->n_prompt);
        TRY(check_seconds("a breakpoint's ttl", mark->ttl, err));
    }
    return 0;
}

static int check_name(const char *what, const char *name, icp_error *err) {
    if (!name || strlen(name) <= LONGEST_NAME) return 0;
    return error_set(err, ICP_ELIMIT, "the %s has %zu bytes; at most %d are allowed", what,
                     strlen(name), LONGEST_NAME);
}

static int check_purpose(const icp_request_opts *o, const request_limits *limits, icp_error *err) {
    if (o->embed && !limits->embeds)
        return error_set(err, ICP_EUNSUPPORTED,
                         "this model generates text; it embeds none (its file does not say how)");
    if (!o->embed && limits->embeds)
        return error_set(err, ICP_EUNSUPPORTED, "this model embeds texts; it generates none");
    if (o->embed && (o->max_tokens != 0 || o->n != 1 || o->on_logits || o->prompt_logprobs))
        return error_set(err, ICP_EINVALID,
                         "a text is embedded with n = 1 and max_tokens = 0, without logits");
    if (o->second && (!o->embed || o->second >= o->n_prompt))
        return error_set(err, ICP_EINVALID,
                         "the second text begins at token %zu of %zu; only a pair to be ranked has "
                         "one",
                         o->second, o->n_prompt);
    return 0;
}

int request_check(const icp_request_opts *o, const request_limits *limits, icp_error *err) {
    if (o->n_prompt == 0) return error_set(err, ICP_EINVALID, "the prompt is empty");
    TRY(check_purpose(o, limits, err));
    TRY(check_int("n", o->n, 1, ICP_MAX_N, err));
    TRY(check_int("max_tokens", o->max_tokens, -1, INT32_MAX, err));
    TRY(check_int("min_tokens", o->min_tokens, 0, INT32_MAX, err));
    TRY(check_length(o, limits, err));
    TRY(check_ids("prompt token", o->prompt, o->n_prompt, limits->n_vocab, err));
    TRY(check_stops(o, limits->n_vocab, err));
    TRY(check_sampling(o, limits->n_vocab, err));
    TRY(check_adapters(o, limits->n_adapters, err));
    TRY(check_seconds("ttl", o->ttl, err));
    TRY(check_seconds("pin", o->pin, err));
    TRY(check_marks(o, err));
    TRY(check_name("tenant", o->tenant, err));
    return check_name("cache salt", o->salt, err);
}

/* ---- copying -------------------------------------------------------------------------------- */

/* A copy of n items at *field, in its place. */
static int keep(arena *memory, void *field, size_t n, size_t size) {
    const void *from;
    memcpy(&from, field, sizeof from);
    void *copy = arena_alloc(memory, n * size);
    if (!copy) return ICP_ENOMEM;
    if (n) memcpy(copy, from, n * size);
    memcpy(field, &copy, sizeof copy);
    return 0;
}

static int keep_name(arena *memory, const char **name) {
    if (!*name) *name = "";
    return keep(memory, name, strlen(*name) + 1, 1);
}

static int keep_bans(arena *memory, icp_request_opts *o) {
    TRY(keep(memory, &o->bans, o->n_bans, sizeof *o->bans));
    for (size_t i = 0; i < o->n_bans; i++) {
        icp_ban *own = (icp_ban *)&o->bans[i]; /* just copied */
        TRY(keep(memory, &own->tokens, own->n, sizeof *own->tokens));
    }
    return 0;
}

int request_copy_opts(const icp_request_opts *from, arena *memory, icp_request_opts *to) {
    *to = *from;
    TRY(keep(memory, &to->prompt, to->n_prompt, sizeof *to->prompt));
    TRY(keep(memory, &to->stop_tokens, to->n_stop_tokens, sizeof *to->stop_tokens));
    TRY(keep(memory, &to->bias, to->n_bias, sizeof *to->bias));
    TRY(keep_bans(memory, to));
    TRY(keep(memory, &to->marks, to->n_marks, sizeof *to->marks));
    TRY(keep_name(memory, &to->tenant));
    TRY(keep_name(memory, &to->salt));
    if (to->adapter_scales)
        TRY(keep(memory, &to->adapter_scales, to->n_adapter_scales, sizeof *to->adapter_scales));
    to->stop = NULL; /* the stop set has them */
    return 0;
}
