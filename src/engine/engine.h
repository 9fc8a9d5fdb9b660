/* engine: many requests through one model and one prefix cache.
 *
 * One thread ("icp-engine") owns the scheduler, the cache and the forward pass. Callers submit
 * requests and take events from any thread. */
#ifndef ENGINE_H
#define ENGINE_H

#include "base.h"
#include "cache.h"
#include "model.h"
#include "text.h"

typedef struct engine engine;
typedef struct request request;

/* The option and event structs of the public header are the engine's own. */
#include "icp_request.h"

typedef struct engine_opts {
    model *model; /* borrowed, like pool and tokenizer */
    const tokenizer *tok;
    pool *pool;
    size_t cache_limit; /* bytes */
    bool no_cache;
    int max_parallel;  /* sequences that run at once */
    int chunk;         /* prompt tokens a step at most; 0: default */
    size_t max_queued; /* waiting requests; more are refused with ICP_EAGAIN */
} engine_opts;

int engine_open(const engine_opts *opts, engine **out, icp_error *err);
/* Cancels what still runs and joins the thread. Requests must have been freed. */
void engine_close(engine **e);

int engine_submit(engine *e, const icp_request_opts *opts, request **out, icp_error *err);
bool request_next(request *r, icp_event *event);
bool request_wait(request *r, double seconds);
void request_cancel(request *r);
void request_free(request **r);

void engine_get_stats(engine *e, icp_stats *out);

#endif
