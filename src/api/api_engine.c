/* icp_engine and icp_request: the engine's own handles, opened with the model's parts. */
#include "api_internal.h"

/* Without a limit from the operator: half of what the machine has left, once the model is loaded.
 */
static size_t default_cache_limit(void) {
    return mem_available() / 2;
}

int icp_engine_open(icp_model *m, const icp_engine_opts *opts, icp_engine **out, icp_error *err) {
    static const icp_engine_opts defaults;
    if (!opts) opts = &defaults;
    if (!m->model)
        return error_set(err, ICP_EINVALID, "the model was opened for its vocabulary only");
    icp_engine *e = mem_zero(1, sizeof *e);
    if (!e) return error_set(err, ICP_ENOMEM, "out of memory");
    engine_opts eo = {.model = m->model,
                      .tok = m->tok,
                      .pool = m->pool,
                      .cache_limit = opts->cache_limit ? opts->cache_limit : default_cache_limit(),
                      .cache_least = opts->cache_least,
                      .cache_most = opts->cache_most,
                      .no_cache = opts->no_cache,
                      .max_parallel = opts->max_parallel,
                      .chunk = opts->chunk,
                      .max_queued = opts->max_queued,
                      .max_pause = opts->max_pause,
                      .tenant_quota = opts->tenant_quota,
                      .commit_ahead = opts->commit_ahead,
                      .adapter_scales = m->scales};
    int rc = engine_open(&eo, &e->engine, err);
    if (rc < 0) {
        mem_free(e);
        return rc;
    }
    *out = e;
    return 0;
}

void icp_engine_close(icp_engine **ee) {
    icp_engine *e = *ee;
    if (!e) return;
    *ee = NULL;
    engine_close(&e->engine);
    mem_free(e);
}

void icp_engine_get_stats(icp_engine *e, icp_stats *out) {
    engine_get_stats(e->engine, out);
}

int icp_engine_set_limit(icp_engine *e, size_t limit) {
    return engine_set_limit(e->engine, limit);
}

size_t icp_engine_get_context(const icp_engine *e) {
    return engine_get_context(e->engine);
}

/* An icp_request is the engine's request under its public name. */
static request *inside(icp_request *r) {
    return (request *)r;
}

int icp_submit(icp_engine *e, const icp_request_opts *opts, icp_request **out, icp_error *err) {
    request *r;
    TRY(engine_submit(e->engine, opts, &r, err));
    *out = (icp_request *)r;
    return 0;
}

bool icp_next(icp_request *r, icp_event *event) {
    return request_next(inside(r), event);
}

bool icp_wait(icp_request *r, double seconds) {
    return request_wait(inside(r), seconds);
}

void icp_cancel(icp_request *r) {
    request_cancel(inside(r));
}

void icp_request_free(icp_request **rr) {
    request *r = inside(*rr);
    *rr = NULL;
    if (r) request_free(&r);
}

int icp_cache_share(icp_engine *e, const int32_t *tokens, size_t n, icp_error *err) {
    return engine_share(e->engine, tokens, n, err);
}

int icp_cache_why(icp_engine *e, const icp_request_opts *opts, icp_usage *out, icp_error *err) {
    return engine_why(e->engine, opts, out, err);
}

int icp_cache_get_list(icp_engine *e, const char *tenant, size_t most, icp_cache_list *out) {
    return engine_list(e->engine, tenant, most, out);
}

void icp_cache_list_free(icp_cache_list *list) {
    mem_free(list->node);
    *list = (icp_cache_list){0};
}

void icp_cache_drop(icp_engine *e, const char *tenant) {
    engine_drop(e->engine, tenant);
}
