/* sim: replays a trace of requests through the very cache, without a model, to tell what a cache of
 * some size and policy would have saved.
 *
 * It links the cache and the pure scheduler alone: no model, no kernels. */
#ifndef SIM_H
#define SIM_H

#include "base.h"
#include "cache.h"

/* ---- traces (trace.c) ------------------------------------------------------------------------ */

/* A request: when it came, and its prompt as the chained ids of its blocks, in order. Two requests
 * whose first n ids are equal share exactly these n blocks. Mooncake's format (Qin et al., FAST
 * 2025): one JSON object a line with timestamp (ms), input_length, output_length, hash_ids; and
 * block (tokens), if it likes. */
typedef struct trace_request {
    double time; /* seconds */
    int n_input, n_output;
    int block;              /* tokens, as its line tells; 0: it does not */
    size_t first, n_blocks; /* in trace.blocks */
} trace_request;

typedef struct trace {
    trace_request *requests;
    size_t n_requests;
    int32_t *blocks; /* ids, renumbered from 0 in order of appearance */
    size_t n_blocks;
    size_t n_unique;
    int block; /* tokens */
} trace;

/* ICP_EIO, ICP_EFORMAT with the line, ICP_ENOMEM. block: tokens of one, 0: from the trace. */
int trace_read(const char *path, int block, trace *out, icp_error *err);
void trace_fini(trace *t);

/* ---- replay (replay.c) ----------------------------------------------------------------------- */

typedef struct replay_opts {
    size_t capacity; /* blocks; SIZE_MAX: all fit */
    enum cache_policy policy;
    int unit;             /* tokens that are found or not as one; 0: as the cache does, 1 */
    double prefill;       /* tokens a second, for times */
    double deep;          /* tokens at which attention has doubled the cost of a token */
    size_t curve_samples; /* as of the cache's options; 0: no curve */
} replay_opts;

typedef struct replay_result {
    size_t n_blocks, n_hits; /* blocks asked for, and found in the prefix */
    double p50, p90, p99;    /* seconds to the first token: one server, first come first served */
    cache_curve curve;
} replay_result;

int replay(const trace *t, const replay_opts *opts, replay_result *out, icp_error *err);
/* What no policy can exceed: MIN (Belady 1966), which for chained prefixes keeps whole prefixes by
 * itself, since an ancestor's next use is never later than its descendants'. */
size_t replay_bound(const trace *t, size_t capacity);

#endif
