/* The table of routes. */
#include <string.h>

#include "serve_internal.h"

static const route routes[] = {
    {"/chat/completions", .v1 = true, .post = chat_start},
    {"/completions", .v1 = true, .post = completions_start},
    {"/responses", .v1 = true, .post = responses_start},
    {"/responses/input_tokens", .v1 = true, .post = response_tokens_reply},
    {"/responses/", .v1 = true, .get = response_reply, .drop = response_drop},
    {"/messages", .v1 = true, .post = messages_start},
    {"/messages/count_tokens", .v1 = true, .post = count_tokens_reply},
    {"/completion", .post = completion_start},
    {"/infill", .post = infill_start},
    {"/apply-template", .post = apply_template_reply},
    {"/lora-adapters", .list = true, .of_model = true, .get = lora_reply, .post = lora_apply},
    {"/props", .of_model = true, .get = props_reply},
    {"/slots", .of_model = true, .get = slots_reply},
    {"/slots/", .any_body = true, .post = slot_act},
    {"/embeddings", .v1 = true, .post = embeddings_start},
    {"/rerank", .v1 = true, .post = rerank_start},
    {"/reranking", .v1 = true, .post = rerank_start},
    {"/v2/rerank", .post = rerank_start},
    {"/reset_prefix_cache", .post = reset_cache_reply},
    {"/api/version", .get = ollama_version_reply},
    {"/api/tags", .of_model = true, .get = ollama_tags_reply},
    {"/api/show", .post = ollama_show_reply},
    {"/models", .v1 = true, .get = models_reply},
    {"/models/", .v1 = true, .get = model_reply},
    {"/tokenize", .v1 = true, .post = tokenize_reply},
    {"/tokenizer_info", .of_model = true, .get = tokenizer_info_reply},
    {"/detokenize", .v1 = true, .post = detokenize_reply},
    {"/cache", .slow = true, .of_model = true, .get = cache_reply, .drop = cache_drop_reply},
    {"/cache/why", .post = cache_why_start},
    {"/cache/pin", .post = cache_pin_start},
    {"/metrics", .of_model = true, .get = metrics_reply},
    {"/health", .v1 = true, .open = true, .get = health_reply},
    {"/version", .v1 = true, .open = true, .get = version_reply},
    {"/", .open = true, .get = page_reply},
};

static const char *without_v1(const char *path) {
    return !strncmp(path, "/v1/", 4) ? path + 3 : path;
}

static bool matches(const route *r, const char *path) {
    if (r->v1) path = without_v1(path);
    size_t len = strlen(r->path);
    bool below = len > 1 && r->path[len - 1] == '/';
    return below ? !strncmp(path, r->path, len) && path[len] : !strcmp(path, r->path);
}

const char *route_rest(const route *r, const char *path) {
    return without_v1(path) + strlen(r->path);
}

enum error_form route_errors(const char *path) {
    static const char messages[] = "/messages";
    path = without_v1(path);
    if (strncmp(path, messages, sizeof messages - 1) != 0) return FORM_OPENAI;
    char next = path[sizeof messages - 1];
    return !next || next == '/' ? FORM_ANTHROPIC : FORM_OPENAI;
}

static const char *methods(const route *r) {
    static const char *const lists[] = {"OPTIONS",
                                        "GET, HEAD, OPTIONS",
                                        "POST, OPTIONS",
                                        "GET, HEAD, POST, OPTIONS",
                                        "DELETE, OPTIONS",
                                        "GET, HEAD, DELETE, OPTIONS",
                                        "POST, DELETE, OPTIONS",
                                        "GET, HEAD, POST, DELETE, OPTIONS"};
    return lists[(r->get ? 1 : 0) + (r->post ? 2 : 0) + (r->drop ? 4 : 0)];
}

const route *route_find(const char *method, const char *path, reply *r) {
    const route *found = NULL;
    for (size_t i = 0; i < COUNT_OF(routes) && !found; i++)
        if (matches(&routes[i], path)) found = &routes[i];
    if (!found) {
        reply_error(r, 404, "unknown_route", NULL, "There is nothing at %.200s.", path);
        return NULL;
    }
    bool reads = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    if (reads ? found->get != NULL : found->post && !strcmp(method, "POST")) return found;
    if (found->drop && !strcmp(method, "DELETE")) return found;
    const char *allowed = methods(found);
    if (!strcmp(method, "OPTIONS"))
        r->status = 204;
    else
        reply_error(r, 405, "method_not_allowed", NULL, "%.200s takes %s.", path, allowed);
    r->allow = allowed;
    return NULL;
}
