#include "cli.h"
#include "serve.h"

#include <stdlib.h>
#include <string.h>

/* Keys of an option, separated by commas. */
static int add_keys(const char *list, serve_keys *keys, icp_error *err) {
    for (const char *at = list; *at; at += strspn(at, ",")) {
        size_t len = strcspn(at, ",");
        char *key = strndup(at, len);
        int rc = key ? serve_keys_add(keys, NULL, key, err)
                     : error_set(err, ICP_ENOMEM, "out of memory");
        free(key);
        TRY(rc);
        at += len;
    }
    return 0;
}

/* Keys come from a file, from an option, or a single one from the environment. */
static int read_keys(const char *path, const char *list, serve_keys *keys, icp_error *err) {
    const char *key = getenv("INCIPIT_API_KEY");
    if (path) TRY(serve_keys_read(keys, path, err));
    if (list) TRY(add_keys(list, keys, err));
    return key && key[0] ? serve_keys_add(keys, NULL, key, err) : 0;
}

int cmd_serve(int argc, char **argv) {
    char **operands;
    int n_operands, max_queued = 0, max_pause = 0;
    float drain = 0, idle = 0;
    model_options o = {0};
    serve_opts s = {.port = 8080};
    const char *key_file = NULL, *key_list = NULL;
    const cli_option options[] = {
        CLI_OPTION_MODEL(o),
        {0, "model-dir", "FOLDER", "serve all models in a folder, loaded as requests name them",
         OPTION_TEXT, &s.model_dir, 0, 0},
        {0, "max-models", "N", "of a folder in memory at once; they share --cache-ram (2)",
         OPTION_INT, &s.max_models, 1, 64},
        {0, "model-idle", "SECONDS", "without requests after which one is unloaded (never)",
         OPTION_FLOAT, &idle, 0, 1e9},
        {0, "host", "ADDRESS", "address to listen on (127.0.0.1)", OPTION_TEXT, &s.host, 0, 0},
        {0, "port", "N", "port to listen on (8080)", OPTION_INT, &s.port, 0, 65535},
        {'c', "ctx", "N", "context of a request in tokens (as the model was trained)", OPTION_INT,
         &o.ctx, 0, 0},
        {0, "parallel", "N", "requests that are computed together (16)", OPTION_INT,
         &s.engine.max_parallel, 1, 256},
        {'b', "batch", "N", "prompt tokens that are computed in a step, at most", OPTION_INT,
         &s.engine.chunk, 1, 1 << 16},
        {'n', "predict", "N", "tokens of an answer when the request says nothing (no bound)",
         OPTION_INT, &s.max_tokens, -1, 0},
        {0, "max-queued", "N", "requests that may wait; more are answered 429 (1024)", OPTION_INT,
         &max_queued, 1, 1 << 20},
        CLI_OPTIONS_COMPUTE(o),
        CLI_OPTIONS_ROPE(o),
        CLI_OPTION_TEMPLATE_DATE(o),
        {0, "cache-ram", "SIZE",
         "memory for all but the model: cache and requests (half of what is free)", OPTION_SIZE,
         &s.engine.cache_limit, 0, 0},
        {0, "tenant-quota", "SIZE", "cache that the requests of one API key may fill (no bound)",
         OPTION_SIZE, &s.engine.tenant_quota, 0, 0},
        {0, "trace", "FILE", "notes requests for incipit sim, with keyed hashes for words",
         OPTION_TEXT, &s.trace, 0, 0},
        {0, "trace-limit", "SIZE",
         "of that file; then it begins anew, and FILE.1 is the old one (64M)", OPTION_SIZE,
         &s.trace_limit, 0, 0},
        {0, "shared-prefix", "FILE", "a system prompt that is kept for everybody", OPTION_TEXT,
         &s.shared_prefix, 0, 0},
        {0, "max-pause", "MS", "between two tokens of an answer while prompts are computed (150)",
         OPTION_INT, &max_pause, 1, 60000},
        {0, "no-cache", NULL, "compute every prompt anew", OPTION_FLAG, &s.engine.no_cache, 0, 0},
        {0, "api-key-file", "FILE", "keys that callers must show, one a line: [NAME] KEY",
         OPTION_TEXT, &key_file, 0, 0},
        {0, "api-key", "KEY", "keys that callers must show, comma separated; a file is safer",
         OPTION_TEXT, &key_list, 0, 0},
        {'a', "alias", "NAME", "the model's name in answers", OPTION_TEXT, &s.alias, 0, 0},
        {0, "cors", "ORIGINS", "web origins that may call, comma separated, or *", OPTION_TEXT,
         &s.cors, 0, 0},
        {0, "ollama-discovery", NULL, "answer where editors look for Ollama (/api/tags)",
         OPTION_FLAG, &s.ollama_discovery, 0, 0},
        {0, "max-body", "SIZE", "largest body of a request (32M)", OPTION_SIZE, &s.max_body, 0, 0},
        {0, "drain", "SECONDS", "what running requests get when the server is told to end (10)",
         OPTION_FLOAT, &drain, 0, 86400}};
    argv = cli_without_peer_flags(&argc, argv);
    if (!argv) return cli_say("out of memory");
    cli_parse(
        &(cli_usage){"serve", "",
                     "Serves a model over HTTP: OpenAI's API under /v1, a page to chat under /.",
                     "A single API key may also be given as INCIPIT_API_KEY.\n"
                     "example: incipit serve -m model.gguf --port 8080 --cache-ram 8G",
                     options, COUNT_OF(options)},
        argc, argv, &operands, &n_operands);
    icp_error err = {0};
    serve_keys keys = {0};
    if (s.model_dir && (o.path || s.alias || o.lora.n))
        return cli_say("--model-dir stands alone: no --model, no --alias, no --lora"), EXIT_USAGE;
    s.model_path = s.model_dir ? NULL : cli_model_path(o.path);
    if (!s.model_path && !s.model_dir) return EXIT_FAILED;
    s.model_idle = (double)idle;
    if (cli_model_opts(&o, &s.model, &err) < 0) return cli_fail(&err);
    s.engine.max_queued = (size_t)max_queued;
    s.engine.max_pause = max_pause / 1000.0;
    s.engine.commit_ahead = !s.engine.no_cache;
    s.drain_timeout = (double)drain;
    s.keys = &keys;
    int rc = read_keys(key_file, key_list, &keys, &err);
    if (rc == 0) rc = serve_run(&s, &err);
    serve_keys_fini(&keys);
    cli_model_opts_fini(&s.model);
    return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}
