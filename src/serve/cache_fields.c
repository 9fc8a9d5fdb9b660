/* What a body says about the cache, and what an answer says about it.
 *
 *   prompt_cache_options      {mode, ttl, store, pin, session_end, diagnostics, …}
 *   prompt_cache_key          accepted: prefixes are found without it
 *   prompt_cache_breakpoint,  on parts of a prompt: the whole prompt is found again anyway; what is
 *   cache_control             before one is held for its time
 *   prompt_cache_diagnostics  in answers, when asked for: OpenAI's form, and ours inside it
 *
 * https://platform.openai.com/docs/guides/prompt-caching */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generation.h"

/* ---- in -------------------------------------------------------------------------------------- */

/* 1800, "1800", "30m", "12h", "45s": seconds; negative: none of these. */
static double read_seconds(json_object *value) {
    if (json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double))
        return json_object_get_double(value);
    if (!json_object_is_type(value, json_type_string)) return -1;
    char *end;
    double n = strtod(json_object_get_string(value), &end);
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    for (size_t i = 0; i < COUNT_OF(units) && end != json_object_get_string(value); i++)
        if (!strcmp(end, units[i].unit)) return n * units[i].seconds;
    return -1;
}

static bool read_ttl(json_object *options, double *out, reply *error) {
    json_object *value = field_get(options, "ttl");
    if (!value) return true;
    *out = read_seconds(value);
    if (*out > 0 && isfinite(*out)) return true;
    reply_error(error, 400, "invalid_value", "prompt_cache_options.ttl",
                "Invalid value for 'prompt_cache_options.ttl': expected seconds, or a string like "
                "\"30m\".");
    return false;
}

static bool read_mode(json_object *options, icp_request_opts *r, reply *error) {
    json_object *mode =
        field_inside(options, "prompt_cache_options.", "mode", json_type_string, error);
    if (!mode) return !error->status;
    const char *name = json_object_get_string(mode);
    r->no_cache = !strcmp(name, "off");
    if (r->no_cache || !strcmp(name, "implicit") || !strcmp(name, "explicit")) return true;
    reply_error(error, 400, "invalid_value", "prompt_cache_options.mode",
                "Invalid value for 'prompt_cache_options.mode': '%.40s' is not one of implicit, "
                "explicit and off.",
                name);
    return false;
}

struct flags {
    bool store, pin, session_end, diagnostics;
};

bool cache_fields_read(generate_opts *o, json_object *body, reply *error) {
    static const field flags[] = {
        {"store", FIELD_BOOL, offsetof(struct flags, store), 0, 0},
        {"pin", FIELD_BOOL, offsetof(struct flags, pin), 0, 0},
        {"session_end", FIELD_BOOL, offsetof(struct flags, session_end), 0, 0},
        {"diagnostics", FIELD_BOOL, offsetof(struct flags, diagnostics), 0, 0},
    };
    field_of_type(body, "prompt_cache_key", json_type_string, error);
    json_object *options = field_of_type(body, "prompt_cache_options", json_type_object, error);
    if (!options) return !error->status;
    icp_request_opts *r = &o->request;
    struct flags f = {.store = true};
    double ttl = 0;
    if (!read_mode(options, r, error) || !read_ttl(options, &ttl, error) ||
        !fields_read(options, "prompt_cache_options.", flags, COUNT_OF(flags), &f, error))
        return false;
    json_object *compared = field_inside(options, "prompt_cache_options.", "comparison_response_id",
                                         json_type_string, error);
    r->no_store = !f.store;
    r->session_end = f.session_end;
    r->pin = f.pin ? (ttl > 0 ? ttl : INFINITY) : 0;
    r->ttl = f.pin ? 0 : ttl; /* a pin's time is that of the pin */
    o->diagnostics = r->diagnose = f.diagnostics || compared;
    return !error->status;
}

bool cache_mark_read(json_object *owner, const cache_mark *mark, const char *param, reply *error) {
    char where[120];
    json_object *value = field_get(owner, mark->name);
    if (!value) return true;
    snprintf(where, sizeof where, "%.80s%s%s", param, *param ? "." : "", mark->name);
    bool object = json_object_is_type(value, json_type_object);
    json_object *kind = object ? field_get(value, mark->kind_name) : NULL;
    json_object *ttl = object ? field_get(value, "ttl") : NULL;
    if (!kind || !json_object_is_type(kind, json_type_string) ||
        strcmp(json_object_get_string(kind), mark->kind) != 0)
        reply_error(error, 400, "invalid_value", where,
                    "Invalid value for '%s': expected an object whose '%s' is \"%s\".", where,
                    mark->kind_name, mark->kind);
    else if (ttl && !(read_seconds(ttl) > 0 && isfinite(read_seconds(ttl))))
        reply_error(error, 400, "invalid_value", where,
                    "Invalid value for '%s.ttl': expected a string like \"1h\".", where);
    return !error->status;
}

double cache_mark_ttl(json_object *owner, const cache_mark *mark) {
    json_object *value = field_get(owner, mark->name);
    json_object *ttl = value ? field_get(value, "ttl") : NULL;
    return !value ? 0 : ttl ? read_seconds(ttl) : mark->ttl;
}

/* ---- out ------------------------------------------------------------------------------------- */

/* The text of some tokens, as a JSON string. */
static void put_text(const icp_model *model, buf *out, const int32_t *ids, int n) {
    char *text = NULL;
    size_t len = 0;
    out->failed |= icp_detokenize(model, ids, (size_t)n, true, &text, &len, NULL) < 0;
    put_json_string(out, text, len);
    icp_free(text);
}

/* How long ago, for people. */
static void put_ago(buf *out, double seconds) {
    if (seconds < 120)
        buf_printf(out, "%.0f s", seconds);
    else if (seconds < 7200)
        buf_printf(out, "%.0f min", seconds / 60);
    else
        buf_printf(out, "%.1f h", seconds / 3600);
}

static void put_window(buf *out, const icp_miss *m) {
    buf_printf(
        out,
        "Its first %zu tokens are part of a longer prompt that is cached, but what the model "
        "would read of them was behind that one's window, and evicted ",
        m->lost_to);
    put_ago(out, m->ago);
    buf_puts(out, " ago.");
}

static void put_reason(const icp_model *model, buf *out, const icp_miss *m) {
    switch (m->reason) {
    case ICP_MISS_NONE:
        buf_puts(out, "Only the last token is computed, for its logits.");
        return;
    case ICP_MISS_OFF:
        buf_puts(out, "The cache is off for this request.");
        return;
    case ICP_MISS_LIMITED:
        buf_puts(out, "The request itself takes no more from the cache.");
        return;
    case ICP_MISS_STATE:
        buf_puts(out,
                 "More of it is cached, but the model's state is kept only at some page edges.");
        return;
    case ICP_MISS_WINDOW:
        put_window(out, m);
        return;
    case ICP_MISS_NEW:
        buf_puts(out, m->position ? "What is cached ends there." : "No prompt began like this.");
        return;
    case ICP_MISS_DIFFERENT:
        buf_puts(out, "There the prompt goes on with ");
        put_text(model, out, m->own, m->n_own);
        buf_puts(out, ", and what is cached with ");
        put_text(model, out, m->cached, m->n_cached);
        buf_putc(out, '.');
        return;
    case ICP_MISS_NAMESPACE:
        buf_printf(out, "Under another cache_salt %zu tokens of it are cached.", m->elsewhere);
        return;
    case ICP_MISS_ADAPTERS:
        buf_printf(out, "With other adapters, or other scales, %zu tokens of it are cached.",
                   m->elsewhere);
        return;
    default:
        break;
    }
    static const char *const gone[] = {
        [ICP_MISS_EVICTED] = "evicted to make room for others",
        [ICP_MISS_QUOTA] = "evicted, for its tenant had used up its quota",
        [ICP_MISS_EXPIRED] = "forgotten when its time to live was over",
        [ICP_MISS_DROPPED] = "dropped on demand",
        [ICP_MISS_UNSTORED] = "not kept, as its request wanted it",
    };
    buf_printf(out, "It was cached up to token %zu, and %s ", m->lost_to, gone[m->reason]);
    put_ago(out, m->ago);
    buf_puts(out, " ago");
    if (m->reason == ICP_MISS_EVICTED)
        buf_printf(out, ", when running requests used %zu of %zu pages", m->pages_in_use, m->pages);
    buf_putc(out, '.');
}

/* One paragraph for people; not JSON. */
static void put_message(const icp_model *model, buf *out, const icp_usage *u) {
    buf_printf(out, "%zu of %zu prompt tokens are found in the cache. ", u->cached_tokens,
               u->prompt_tokens);
    put_reason(model, out, &u->why);
    if (u->respelled)
        buf_printf(out,
                   " %zu tokens of the prompt spell what was sampled with other tokens: those are "
                   "used.",
                   u->respelled);
}

void put_miss(const icp_model *model, buf *out, const icp_usage *u) {
    const icp_miss *m = &u->why;
    buf text = {0};
    put_message(model, &text, u);
    out->failed |= text.failed;
    put_string_member(out, "{\"reason\":", icp_miss_name(m->reason));
    buf_printf(out, ",\"position\":%zu,\"computed_tokens\":%zu,\"cached_tokens\":%zu", m->position,
               u->prompt_tokens - u->cached_tokens, u->cached_tokens);
    if (m->n_own) {
        buf_puts(out, ",\"prompt_text\":");
        put_text(model, out, m->own, m->n_own);
    }
    if (m->n_cached) {
        buf_puts(out, ",\"cached_text\":");
        put_text(model, out, m->cached, m->n_cached);
    }
    if (m->lost_to)
        buf_printf(out, ",\"lost_tokens\":%zu,\"lost_seconds_ago\":%.3f", m->lost_to - m->position,
                   m->ago);
    if (m->pages) buf_printf(out, ",\"pages_in_use\":%zu,\"pages\":%zu", m->pages_in_use, m->pages);
    if (m->elsewhere)
        buf_printf(out, ",\"%s_tokens\":%zu",
                   m->reason == ICP_MISS_ADAPTERS ? "other_adapters" : "other_salt", m->elsewhere);
    if (u->respelled) buf_printf(out, ",\"respelled_tokens\":%zu", u->respelled);
    put_string_member(out, ",\"message\":", text.data ? text.data : "");
    buf_putc(out, '}');
    buf_fini(&text);
}

void put_cache_diagnostics(const generation *g, buf *out) {
    const icp_usage *u = &g->usage;
    if (!g->opts.diagnostics) return;
    buf_puts(out, ",\"prompt_cache_diagnostics\":{\"type\":");
    if (u->why.reason == ICP_MISS_NONE)
        buf_puts(out, "\"cache_hit\"");
    else if (u->why.reason == ICP_MISS_OFF)
        buf_puts(out, "\"unavailable\"");
    else
        buf_printf(out,
                   "\"cache_miss\",\"reason\":\"%s\",\"cache_missed_tokens\":%zu,"
                   "\"comparison_reusable_tokens\":%zu",
                   u->why.reason == ICP_MISS_NAMESPACE ? "prompt_cache_key_changed"
                                                       : "input_changed",
                   u->prompt_tokens - u->cached_tokens, u->cached_tokens);
    buf_puts(out, ",\"incipit\":");
    put_miss(g->call->on->model, out, u);
    buf_putc(out, '}');
}
