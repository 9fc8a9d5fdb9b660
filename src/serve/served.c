/* One model: its name, loading, unloading. */
#include <stdio.h>
#include <string.h>

#include "serve_internal.h"

enum { TAIL = sizeof "-00001-of-00001" - 1 };

/* "dir/model-00001-of-00003.gguf" → "dir/model"; *part is 1, or 0 for a model in one file. */
size_t served_stem(const char *path, unsigned *part) {
    static const char extension[] = ".gguf";
    size_t len = strlen(path), tail = sizeof extension - 1;
    unsigned count;
    int used = 0;
    *part = 0;
    if (len > tail && !strcmp(path + len - tail, extension)) len -= tail;
    if (len <= TAIL) return len;
    bool split = sscanf(path + len - TAIL, "-%5u-of-%5u%n", part, &count, &used) == 2;
    if (split && used == TAIL) return len - TAIL;
    *part = 0;
    return len;
}

served *served_new(const char *path, const char *name, size_t name_len) {
    served *m = mem_zero(1, sizeof *m);
    if (!m) return NULL;
    pthread_mutex_init(&m->lora_lock, NULL); /* of the default kind: cannot fail */
    m->path = mem_strdup(path);
    m->name = mem_alloc(name_len + 1);
    if (m->path && m->name) {
        memcpy(m->name, name, name_len);
        m->name[name_len] = 0;
        return m;
    }
    served_free(&m);
    return NULL;
}

void served_free(served **ref) {
    served *m = *ref;
    if (!m) return;
    *ref = NULL;
    served_unload(m);
    pthread_mutex_destroy(&m->lora_lock);
    mem_free(m->path);
    mem_free(m->name);
    mem_free(m);
}

static void log_loaded(const served *m, double seconds) {
    const icp_model_info *info = icp_model_get_info(m->model);
    icp_stats stats;
    size_t n_ctx = icp_engine_get_context(m->engine);
    icp_engine_get_stats(m->engine, &stats);
    log_line(LOG_INFO,
             "%s (%s, %.0f M parameters, context %zu, %s, %d threads) loaded in %.1f s; "
             "prefix cache %.0f MiB, of %.0f MiB for all but the model",
             m->name, info->arch, (double)info->n_params / 1e6, n_ctx, info->isa, info->n_threads,
             seconds, (double)stats.cache_limit / (1 << 20), (double)stats.limit / (1 << 20));
    if (info->n_nodes > 1) log_line(LOG_INFO, "memory interleaved over %d nodes", info->n_nodes);
    if (info->n_nodes < 0)
        log_line(
            LOG_WARN,
            "memory is not interleaved over the machine's nodes: the system does not let it be "
            "(containers want CAP_SYS_NICE for that)");
    if (n_ctx < info->n_ctx)
        log_line(LOG_WARN,
                 "a request may have %zu tokens, not the model's %zu: the cache has no room "
                 "for more",
                 n_ctx, info->n_ctx);
}

typedef struct loading {
    const char *name;
    double told_at;
} loading;

static void tell_progress(void *arg, double done) {
    enum { EVERY = 5 }; /* seconds */
    loading *l = arg;
    if (clock_now() - l->told_at < EVERY) return;
    l->told_at = clock_now();
    log_line(LOG_INFO, "%s: %.0f %% loaded", l->name, 100 * done);
}

int served_load(served *m, const serve_opts *opts, const icp_engine_opts *engine, icp_error *err) {
    double began = clock_now();
    icp_model_opts model = opts->model;
    loading progress = {m->name, began};
    model.progress = tell_progress;
    model.progress_arg = &progress;
    int rc = icp_model_open(m->path, &model, &m->model, err);
    if (rc == 0 && lora_open(m) < 0) rc = error_set(err, ICP_ENOMEM, "out of memory");
    if (rc == 0) rc = icp_engine_open(m->model, engine, &m->engine, err);
    if (rc == 0 && opts->shared_prefix) rc = shared_prefix_load(m, opts->shared_prefix, err);
    if (rc == 0)
        log_loaded(m, clock_now() - began);
    else
        served_unload(m);
    return rc;
}

void served_unload(served *m) {
    icp_engine_close(&m->engine);
    icp_model_close(&m->model);
    mem_free(m->lora);
    m->lora = NULL;
}
