#include "cli.h"

/* Runs one request that only computes its prompt; rows from `from` on go to fn. */
static int compute(icp_engine *e, const int32_t *ids, size_t n, size_t from, size_t want_hit,
                   const char *salt, cli_row_fn *fn, void *arg, icp_error *err) {
    icp_request_opts opts;
    icp_request_opts_init(&opts);
    opts.prompt = ids;
    opts.n_prompt = n;
    opts.max_tokens = 0;
    opts.on_logits = fn;
    opts.on_logits_arg = arg;
    opts.logits_from = from;
    opts.salt = salt;
    icp_request *r;
    TRY(icp_submit(e, &opts, &r, err));
    icp_event event = {0};
    do {
        icp_wait(r, -1);
        while (icp_next(r, &event) && event.kind != ICP_EVENT_DONE) continue;
    } while (event.kind != ICP_EVENT_DONE);
    int rc = event.error;
    size_t hit = event.usage.cached_tokens;
    icp_request_free(&r);
    if (rc < 0) return error_set(err, rc, "the request failed: %s", icp_strerror(rc));
    if (hit != want_hit)
        return error_set(err, ICP_EBUG,
                         "%zu tokens should have been found in the cache; found: %zu", want_hit,
                         hit);
    return 0;
}

int cli_logits(icp_engine *e, const int32_t *ids, size_t n, size_t hit, const char *salt,
               cli_row_fn *fn, void *arg, icp_error *err) {
    if (hit >= n)
        return error_set(err, ICP_EINVALID, "a hit of %zu leaves nothing of %zu tokens", hit, n);
    icp_stats stats;
    icp_engine_get_stats(e, &stats);
    if (hit > 0) TRY(compute(e, ids, hit, 0, 0, salt, fn, arg, err));
    return compute(e, ids, n, hit, hit - hit % stats.hit_step, salt, fn, arg, err);
}
