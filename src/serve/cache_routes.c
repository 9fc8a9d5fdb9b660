/* /cache: what of the caller's is cached, why something is not, pinning and dropping. A caller sees
 * what belongs to its own key, and nothing else. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generation.h"

enum { NODES = 200, MOST_NODES = 10000 };

/* ---- GET /cache ------------------------------------------------------------------------------ */

static size_t wanted_nodes(call *c) {
    const char *limit = MHD_lookup_connection_value(c->mhd, MHD_GET_ARGUMENT_KIND, "limit");
    if (!limit) return NODES;
    char *end;
    unsigned long n = strtoul(limit, &end, 10);
    if (*limit && !*end && n <= MOST_NODES) return n;
    reply_error(&c->reply, 400, "invalid_value", "limit",
                "Invalid value for 'limit': expected 0 to %d.", MOST_NODES);
    return 0;
}

static void put_node(const icp_model *model, buf *out, const icp_cache_node *n, size_t page_size) {
    char *text = NULL;
    size_t len = 0;
    out->failed |= icp_detokenize(model, n->first, (size_t)n->n_first, true, &text, &len, NULL) < 0;
    buf_printf(
        out,
        "{\"depth\":%zu,\"position\":%zu,\"tokens\":%zu,\"sampled_tokens\":%zu,"
        "\"pages\":%zu,\"pages_in_use\":%zu,\"hollow_pages\":%zu,\"bytes\":%zu,\"hits\":%llu,"
        "\"idle_seconds\":%.3f,\"ttl_seconds\":",
        n->depth, n->position, n->n_tokens, n->n_sampled, n->n_pages, n->n_in_use, n->n_hollow,
        n->n_pages * page_size, (unsigned long long)n->hits, n->idle_s);
    if (isfinite(n->ttl_s))
        buf_printf(out, "%.3f", n->ttl_s);
    else
        buf_puts(out, "null");
    put_string_member(out, ",\"salt\":", n->salt);
    buf_puts(out, ",\"text\":");
    put_json_string(out, text, len);
    buf_putc(out, '}');
    icp_free(text);
}

/* What more memory would bring: of all tenants, as in /metrics. */
static void put_curve(icp_engine *engine, buf *out) {
    static const double scales[ICP_N_CURVE] = ICP_CURVE_SCALES;
    icp_stats s;
    icp_engine_get_stats(engine, &s);
    buf_puts(out, ",\"hit_ratio_by_memory\":{");
    for (int i = 0; s.curve.asked > 0 && i < ICP_N_CURVE; i++)
        buf_printf(out, "%s\"%g\":%.4f", i ? "," : "", scales[i], s.curve.found[i]);
    buf_putc(out, '}');
}

void cache_reply(call *c) {
    size_t most = wanted_nodes(c);
    icp_cache_list list;
    if (c->reply.status) return;
    int rc = icp_cache_get_list(c->on->engine, c->tenant, most, &list);
    if (rc < 0) {
        reply_icp_error(&c->reply, &(icp_error){.code = rc}, NULL);
        return;
    }
    buf *out = &c->reply.body;
    buf_printf(out,
               "{\"object\":\"cache\",\"pages\":%zu,\"pages_idle\":%zu,\"page_tokens\":%zu,"
               "\"page_bytes\":%zu,\"pins\":%zu,\"quota_pages\":",
               list.n_pages, list.n_idle, list.page_tokens, list.page_size, list.n_pins);
    if (list.quota == SIZE_MAX)
        buf_puts(out, "null");
    else
        buf_printf(out, "%zu", list.quota);
    put_curve(c->on->engine, out);
    buf_puts(out, ",\"nodes\":[");
    for (size_t i = 0; i < list.n; i++) {
        if (i) buf_putc(out, ',');
        put_node(c->on->model, out, &list.node[i], list.page_size);
    }
    buf_printf(out, "],\"has_more\":%s}", list.more ? "true" : "false");
    icp_cache_list_free(&list);
    c->reply.status = 200;
}

/* ---- DELETE /cache --------------------------------------------------------------------------- */

void cache_drop_reply(call *c) {
    icp_cache_drop(c->on->engine, c->tenant);
    buf_puts(&c->reply.body, "{\"object\":\"cache\",\"deleted\":true}");
    c->reply.status = 200;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* The prompt of a body for chat or completions. */
static bool read_prompt(call *c, json_object *body, icp_tokens *ids, bool *from_text) {
    const icp_model *model = c->on->model;
    json_object *prompt = field_get(body, "prompt");
    *from_text = true;
    if (field_get(body, "messages")) return chat_tokenize(c, body, ids, NULL, NULL);
    if (json_object_is_type(prompt, json_type_array)) {
        *from_text = false;
        size_t n_vocab = icp_model_get_info(model)->n_vocab;
        if (!json_token_ids(prompt, "prompt", n_vocab, ids, &c->reply)) return false;
    } else if (prompt && json_object_is_type(prompt, json_type_string)) {
        icp_error err = {0};
        if (icp_tokenize(model, json_object_get_string(prompt),
                         (size_t)json_object_get_string_len(prompt), true, true, ids, &err) < 0)
            return reply_icp_error(&c->reply, &err, "prompt"), false;
    } else {
        return reply_error(&c->reply, 400, "missing_field", "messages",
                           "Missing field: 'messages', or 'prompt' with a string or token ids."),
               false;
    }
    if (ids->n) return true;
    reply_error(&c->reply, 400, "invalid_value", "prompt", "The prompt has no tokens.");
    return false;
}

/* ---- POST /cache/why ------------------------------------------------------------------------- */

static void explain(call *c, generate_opts *o, const icp_tokens *ids) {
    icp_usage usage;
    icp_error err = {0};
    o->request.prompt = ids->id;
    o->request.n_prompt = ids->n;
    o->request.max_tokens = 0;
    o->request.tenant = c->tenant;
    if (icp_cache_why(c->on->engine, &o->request, &usage, &err) < 0) {
        reply_icp_error(&c->reply, &err, NULL);
        return;
    }
    buf *out = &c->reply.body;
    buf_printf(out,
               "{\"object\":\"cache.why\",\"prompt_tokens\":%zu,\"cached_tokens\":%zu,"
               "\"miss\":",
               usage.prompt_tokens, usage.cached_tokens);
    put_miss(c->on->model, out, &usage);
    buf_putc(out, '}');
    c->reply.status = 200;
}

void cache_why_start(call *c, json_object *body) {
    generate_opts opts;
    icp_tokens ids = {0};
    size_t n_vocab = icp_model_get_info(c->on->model)->n_vocab;
    if (generate_opts_read(&opts, body, n_vocab, &c->reply) &&
        lora_fields_read(&opts, body, c->on, &c->reply) &&
        read_prompt(c, body, &ids, &opts.request.from_text))
        explain(c, &opts, &ids);
    icp_tokens_free(&ids);
    generate_opts_fini(&opts);
}

/* ---- POST /cache/pin ------------------------------------------------------------------------- */

static void put_pin(generation *g, buf *out) {
    buf_printf(out,
               "{\"object\":\"cache.pin\",\"tokens\":%zu,\"ttl_seconds\":", g->usage.prompt_tokens);
    if (isfinite(g->opts.request.pin))
        buf_printf(out, "%.3f", g->opts.request.pin);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"usage\":");
    put_usage(g, out);
    buf_putc(out, '}');
}

static const dialect pinning = {.id_prefix = "pin-", .purpose = TO_ANY, .put_whole = put_pin};

/* Computes what is missing of the prompt, and pins all of it. */
void cache_pin_start(call *c, json_object *body) {
    const icp_model_info *info = icp_model_get_info(c->on->model);
    if (info->whole_texts) {
        reply_error(&c->reply, 400, "unsupported", "model",
                    "This model sees whole texts at once: it caches nothing that could be pinned.");
        return;
    }
    generation *g = generation_new(c, &pinning, body, 1);
    if (!g) return;
    icp_request_opts *r = &g->opts.request;
    prompt *p = &g->prompts[0];
    if (!read_prompt(c, body, &p->ids, &p->from_text)) {
        generation_free(&g);
        return;
    }
    if (r->pin == 0) r->pin = r->ttl > 0 ? r->ttl : INFINITY;
    r->ttl = 0;
    r->n = 1;
    r->embed = info->pooling != NULL;
    g->opts.max_tokens = 0;
    g->opts.stream = false;
    generation_submit(g);
}
