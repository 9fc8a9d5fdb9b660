#include "cli.h"
#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char default_model[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

/* A path within our folder of the user's cache. */
static void put_cache_path(char *out, size_t size, const char *name) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/')
        snprintf(out, size, "%s/incipit/%s", cache, name);
    else
        snprintf(out, size, "%s/.cache/incipit/%s", home ? home : "", name);
}

const char *cli_models_folder(void) {
    static char path[4096];
    put_cache_path(path, sizeof path, "models");
    return path;
}

/* What is given is a file, or else the name of a model that was pulled. */
static const char *find_given(const char *given) {
    static char *path; /* lives as long as the program */
    hub_ref ref;
    icp_error err = {0};
    if (access(given, F_OK) == 0 || !hub_ref_parse(given, &ref)) return given;
    mem_free(path);
    if (hub_find(cli_models_folder(), &ref, &path, &err) == 0) return path;
    cli_say("%s: no such file, and no such model was pulled (%s); `incipit pull %s` fetches it",
            given, err.text, given);
    return NULL;
}

const char *cli_model_path(const char *given) {
    static char path[4096];
    if (given) return find_given(given);
    put_cache_path(path, sizeof path, default_model);
    if (access(path, R_OK) == 0) return path;
    cli_say("the default model is not there (%s); fetch it with `./dev fetch`, or give a GGUF file "
            "with -m FILE",
            path);
    return NULL;
}

static void show_progress(void *arg, double done) {
    int *last = arg, percent = (int)(done * 100);
    if (percent == *last) return;
    *last = percent;
    fprintf(stderr, "\rloading %3d %%%s", percent, percent == 100 ? "\r             \r" : "");
}

/* "FILE:SCALE" or "FILE"; a colon that no number follows is part of the name. */
static int read_adapter(const char *text, icp_adapter *out, icp_error *err) {
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    size_t len = strlen(text);
    out->scale = colon ? strtof(colon + 1, &end) : 1;
    if (colon && end > colon + 1 && !*end)
        len = (size_t)(colon - text);
    else
        out->scale = 1;
    char *path = mem_alloc(len + 1);
    if (!path) return error_set(err, ICP_ENOMEM, "out of memory");
    memcpy(path, text, len);
    path[len] = 0;
    out->path = path;
    return 0;
}

void cli_model_opts_fini(icp_model_opts *opts) {
    for (size_t i = 0; i < opts->n_adapters; i++) mem_free((char *)opts->adapters[i].path);
    mem_free((icp_adapter *)opts->adapters);
    opts->adapters = NULL;
    opts->n_adapters = 0;
}

static icp_rope rope_of(const model_options *o) {
    double factor = (double)o->rope_scale;
    return (icp_rope){.scaling = o->rope_scaling,
                      .factor = o->rope_freq_scale > 0 ? 1 / (double)o->rope_freq_scale : factor,
                      .base = (double)o->rope_freq_base,
                      .n_ctx_orig = o->yarn_orig_ctx,
                      .beta_fast = (double)o->yarn_beta_fast,
                      .beta_slow = (double)o->yarn_beta_slow,
                      .attn_factor = (double)o->yarn_attn_factor};
}

int cli_template_time(const char *date, int64_t *out, icp_error *err) {
    struct tm day = {.tm_hour = 12, .tm_isdst = -1};
    *out = 0;
    if (!date) return 0;
    const char *end = strptime(date, "%Y-%m-%d", &day);
    int day_of_month = day.tm_mday;
    if (end && !*end) *out = (int64_t)mktime(&day);
    if (*out <= 0 || day.tm_mday != day_of_month)
        return error_set(err, ICP_EINVALID, "--template-date: '%.40s' is not a day like 2026-12-31",
                         date);
    return 0;
}

int cli_model_opts(const model_options *o, icp_model_opts *out, icp_error *err) {
    *out = (icp_model_opts){.isa = o->isa,
                            .kv = o->kv,
                            .n_threads = o->threads,
                            .pin_threads = o->pin,
                            .lock = o->lock,
                            .n_ctx = (size_t)MAX(o->ctx, 0),
                            .rope = rope_of(o)};
    TRY(cli_template_time(o->template_date, &out->template_time, err));
    icp_adapter *adapters = mem_zero(o->lora.n + 1, sizeof *adapters);
    if (!adapters) return error_set(err, ICP_ENOMEM, "out of memory");
    out->adapters = adapters;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->lora.n; i++) {
        rc = read_adapter(o->lora.text[i], &adapters[i], err);
        out->n_adapters += rc == 0;
    }
    if (rc < 0) cli_model_opts_fini(out);
    return rc;
}

int cli_open_model(const model_options *o, bool vocab_only, icp_model **out, icp_error *err) {
    const char *path = cli_model_path(o->path);
    if (!path) exit(EXIT_FAILED);
    int percent = -1;
    icp_model_opts opts;
    TRY(cli_model_opts(o, &opts, err));
    opts.vocab_only = vocab_only;
    if (isatty(STDERR_FILENO)) {
        opts.progress = show_progress;
        opts.progress_arg = &percent;
    }
    int rc = icp_model_open(path, &opts, out, err);
    cli_model_opts_fini(&opts);
    return rc;
}

int cli_read(const char *path, buf *out, icp_error *err) {
    FILE *f = path ? fopen(path, "rbe") : stdin;
    if (!f) return error_set(err, ICP_EIO, "%s: %s", path, strerror(errno));
    char piece[65536];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0) buf_put(out, piece, n);
    int failed = ferror(f);
    if (path) fclose(f);
    if (failed) return error_set(err, ICP_EIO, "%s: %s", path ? path : "stdin", strerror(errno));
    buf_put(out, "", 0);
    return out->failed ? error_set(err, ICP_ENOMEM, "out of memory") : 0;
}

int cli_parse_json(const char *text, size_t len, json_object **out, icp_error *err) {
    enum json_tokener_error why;
    size_t at;
    if (len >= INT32_MAX) return error_set(err, ICP_ELIMIT, "the JSON text is too long");
    if (json_read(text, len, JSON_DEEPEST, out, &why, &at) < 0)
        return error_set(err, ICP_ENOMEM, "out of memory");
    while (at < len && strchr(" \t\r\n", text[at])) at++;
    if (why == json_tokener_success && at >= len) return 0;
    json_object_put(*out);
    *out = NULL;
    return error_set(err, ICP_EFORMAT, "not JSON, at byte %zu: %s", at,
                     why == json_tokener_success    ? "something follows the value"
                     : why == json_tokener_continue ? "the text ends too early"
                                                    : json_tokener_error_desc(why));
}

int cli_json_ids(const json_object *array, size_t n_vocab, int32_t **ids, size_t *n,
                 icp_error *err) {
    if (!json_object_is_type(array, json_type_array))
        return error_set(err, ICP_EINVALID, "token ids must be an array of whole numbers");
    *n = json_object_array_length(array);
    *ids = mem_zero(*n, sizeof **ids);
    if (!*ids) return error_set(err, ICP_ENOMEM, "out of memory");
    for (size_t i = 0; i < *n; i++) {
        const json_object *item = json_object_array_get_idx(array, i);
        int64_t id = json_object_is_type(item, json_type_int) ? json_object_get_int64(item) : -1;
        if (id < 0 || (uint64_t)id >= n_vocab) {
            mem_free(*ids);
            *ids = NULL;
            return error_set(err, ICP_EINVALID, "ids[%zu] must be a whole number from 0 to %zu", i,
                             n_vocab - 1);
        }
        (*ids)[i] = (int32_t)id;
    }
    return 0;
}
