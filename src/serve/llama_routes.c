/* Small routes that clients of llama-server, vLLM and Ollama look for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "generation.h"

enum { DEFAULT_PARALLEL = 16 }; /* of the engine */

static size_t n_slots(const server *s) {
    return s->opts->engine.max_parallel > 0 ? (size_t)s->opts->engine.max_parallel
                                            : DEFAULT_PARALLEL;
}

/* ---- llama-server ---------------------------------------------------------------------------- */

static void put_token_text(const icp_model *m, buf *out, const char *before, int32_t id) {
    char *text = NULL;
    size_t len = 0;
    if (id >= 0) icp_detokenize(m, &id, 1, true, &text, &len, NULL);
    buf_puts(out, before);
    put_json_string(out, text, len);
    icp_free(text);
}

void props_reply(call *c) {
    const served *m = c->on;
    const char *source = icp_model_template(m->model), *slash = strrchr(m->path, '/');
    buf *out = &c->reply.body;
    buf_printf(out,
               "{\"default_generation_settings\":{\"id\":0,\"n_ctx\":%zu,\"params\":{"
               "\"temperature\":1.0,\"top_k\":0,\"top_p\":1.0,\"min_p\":0.0,\"n_predict\":-1}},"
               "\"total_slots\":%zu",
               icp_engine_get_context(m->engine), n_slots(c->server));
    put_string_member(out, ",\"model_alias\":", m->name);
    put_string_member(out, ",\"model_path\":", slash ? slash + 1 : m->path);
    put_string_member(out, ",\"chat_template\":", source ? source : "");
    put_token_text(m->model, out, ",\"bos_token\":", icp_token_bos(m->model));
    put_token_text(m->model, out, ",\"eos_token\":", icp_token_eos(m->model));
    buf_printf(out,
               ",\"build_info\":\"incipit "
               "%s\",\"modalities\":{\"vision\":false,\"audio\":false},\"is_sleeping\":false}",
               icp_version());
    c->reply.status = 200;
}

static void put_token_name(const icp_model *m, buf *out, const char *before, int32_t id) {
    if (id >= 0)
        put_token_text(m, out, before, id);
    else
        buf_printf(out, "%snull", before);
}

/* vLLM's: what lm-eval asks for before it scores by the server's own tokenizer. */
void tokenizer_info_reply(call *c) {
    const icp_model *m = c->on->model;
    const char *source = icp_model_template(m);
    buf *out = &c->reply.body;
    buf_printf(out, "{\"tokenizer_class\":\"incipit\",\"model_max_length\":%zu",
               icp_engine_get_context(c->on->engine));
    put_token_name(m, out, ",\"bos_token\":", icp_token_bos(m));
    put_token_name(m, out, ",\"eos_token\":", icp_token_eos(m));
    buf_puts(out, ",\"pad_token\":null,\"chat_template\":");
    if (source)
        put_string_member(out, "", source);
    else
        buf_puts(out, "null");
    buf_putc(out, '}');
    c->reply.status = 200;
}

/* Nothing is bound to a slot here; so many as compute together are shown, and busy are as many of
 * them as do. */
void slots_reply(call *c) {
    icp_stats stats;
    icp_engine_get_stats(c->on->engine, &stats);
    size_t n = n_slots(c->server), n_ctx = icp_engine_get_context(c->on->engine);
    if (MHD_lookup_connection_value(c->mhd, MHD_GET_ARGUMENT_KIND, "fail_on_no_slot") &&
        stats.running >= n) {
        reply_error(&c->reply, 503, "no_slot", NULL, "No slot is free.");
        return;
    }
    buf *out = &c->reply.body;
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%c{\"id\":%zu,\"n_ctx\":%zu,\"is_processing\":%s}", i ? ',' : '[', i,
                   n_ctx, i < stats.running ? "true" : "false");
    buf_putc(out, ']');
    c->reply.status = 200;
}

/* Slots share one cache here: to erase one of them is to drop what the caller has in it, and there
 * is nothing of a slot that a file could hold. */
void slot_act(call *c, json_object *body) {
    const char *action = MHD_lookup_connection_value(c->mhd, MHD_GET_ARGUMENT_KIND, "action");
    const char *id = route_rest(c->route, c->path);
    size_t digits = strspn(id, "0123456789");
    if (!digits || digits > 9 || id[digits] || (size_t)atol(id) >= n_slots(c->server)) {
        reply_error(&c->reply, 400, "invalid_value", "id_slot",
                    "Invalid value for 'id_slot': there are slots 0 to %zu.",
                    n_slots(c->server) - 1);
    } else if (action && !strcmp(action, "erase")) {
        icp_cache_drop(c->on->engine, c->tenant);
        buf_printf(&c->reply.body, "{\"id_slot\":%s,\"n_erased\":null}", id);
        c->reply.status = 200;
    } else if (action && (!strcmp(action, "save") || !strcmp(action, "restore"))) {
        reply_error(
            &c->reply, 501, "unsupported", "action",
            "'action=%s' is not supported: all slots share one cache, which finds a prompt "
            "by its text and keeps it while the server runs. POST /cache/pin keeps one from "
            "being evicted.",
            action);
    } else {
        reply_error(&c->reply, 400, "invalid_value", "action",
                    "Invalid value for 'action': expected erase, save or restore.");
    }
}

void apply_template_reply(call *c, json_object *body) {
    icp_tokens ids = {0};
    char *text = NULL;
    if (chat_tokenize(c, body, &ids, NULL, &text)) {
        put_string_member(&c->reply.body, "{\"prompt\":", text);
        buf_putc(&c->reply.body, '}');
        c->reply.status = 200;
    }
    icp_free(text);
    icp_tokens_free(&ids);
}

/* ---- vLLM ------------------------------------------------------------------------------------ */

void reset_cache_reply(call *c, json_object *body) {
    icp_cache_drop(c->on->engine, c->tenant);
    buf_puts(&c->reply.body, "{}");
    c->reply.status = 200;
}

/* ---- Ollama: what makes editors list this server; then they speak OpenAI's API ----------------
 */

static bool is_hidden(call *c) {
    if (c->server->opts->ollama_discovery) return false;
    reply_error(&c->reply, 404, "unknown_route", NULL,
                "There is nothing at %.200s (see --ollama-discovery).", c->path);
    return true;
}

/* "0.1.0-dev" → "0.1.0": numbers are compared. */
void ollama_version_reply(call *c) {
    if (is_hidden(c)) return;
    const char *version = icp_version();
    buf_printf(&c->reply.body, "{\"version\":\"%.*s\"}", (int)strspn(version, "0123456789."),
               version);
    c->reply.status = 200;
}

static void put_details(const icp_model_info *info, buf *out) {
    put_string_member(out, "\"details\":{\"format\":\"gguf\",\"family\":", info->arch);
    put_string_member(out, ",\"families\":[", info->arch);
    buf_printf(out, "],\"parameter_size\":\"%.1fM\",\"quantization_level\":\"\"}",
               (double)info->n_params / 1e6);
}

void ollama_tags_reply(call *c) {
    if (is_hidden(c)) return;
    const icp_model_info *info = icp_model_get_info(c->on->model);
    char date[40];
    time_t began = (time_t)c->server->began;
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&began, &utc));
    buf *out = &c->reply.body;
    put_string_member(out, "{\"models\":[{\"name\":", c->on->name);
    put_string_member(out, ",\"model\":", c->on->name);
    buf_printf(out, ",\"modified_at\":\"%s\",\"size\":%zu,\"digest\":\"\",", date, info->file_size);
    put_details(info, out);
    buf_puts(out, "}]}");
    c->reply.status = 200;
}

void ollama_show_reply(call *c, json_object *body) {
    if (is_hidden(c)) return;
    const icp_model_info *info = icp_model_get_info(c->on->model);
    const char *source = icp_model_template(c->on->model);
    buf *out = &c->reply.body;
    bool ranks = info->pooling && !strcmp(info->pooling, "rank");
    buf_puts(out, ranks           ? "{\"capabilities\":[\"rerank\"],"
                  : info->pooling ? "{\"capabilities\":[\"embedding\"],"
                                  : "{\"capabilities\":[\"completion\",\"tools\"],");
    put_details(info, out);
    put_string_member(out, ",\"template\":", source ? source : "");
    put_string_member(out, ",\"model_info\":{\"general.architecture\":", info->arch);
    buf_printf(out, ",\"general.parameter_count\":%llu,\"%s.context_length\":%zu}}",
               (unsigned long long)info->n_params, info->arch,
               icp_engine_get_context(c->on->engine));
    c->reply.status = 200;
}
