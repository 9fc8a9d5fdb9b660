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
    size_t cache_limit; /* bytes; and what engine_set_limit may make of it, 0: it stays */
    size_t cache_least, cache_most;
    bool no_cache;
    int max_parallel;    /* sequences that run at once; 0: 16 */
    int chunk;           /* prompt tokens a step at most; 0: 512, and 256 when others decode */
    size_t max_queued;   /* waiting requests; more are refused with ICP_EAGAIN; 0: 1,024 */
    double max_pause;    /* seconds; 0: 0.15 */
    size_t tenant_quota; /* bytes; 0: none */
    bool commit_ahead;   /* while idle (cache_commit) */
    const float *adapter_scales; /* of requests that say nothing; of all adapters; NULL: none */
} engine_opts;

/* Opens the cache and starts the thread. cache_limit is for everything but the model: pages, their
 * bookkeeping, requests, arrays and logits. ICP_ELIMIT: it holds less than a few pages. */
int engine_open(const engine_opts *opts, engine **out, icp_error *err);
/* Cancels what still runs and joins the thread. Requests that are done may be read and freed even
 * after it; nothing else may be in a call on the engine. */
void engine_close(engine **e);

/* Copies all of opts. *out is the caller's, until request_free. ICP_EINVALID: an option is out of
 * its range; ICP_ELIMIT: prompt and answer are longer than the context, than the cache, or than the
 * tenant's quota; ICP_EAGAIN: max_queued requests wait, or those that are there use all memory that
 * requests may have; ICP_ENOMEM. */
int engine_submit(engine *e, const icp_request_opts *opts, request **out, icp_error *err);
/* Takes the next event if there is one. */
bool request_next(request *r, icp_event *event);
/* Waits for one, at most so many seconds (negative: for ever). False: there is none, or DONE was
 * taken already. */
bool request_wait(request *r, double seconds);
void request_cancel(request *r); /* a DONE event still comes */
/* At any time; cancels when need be, and waits for a callback that is being made. */
void request_free(request **r);

/* As of the last step; requests and waiting as of now. A request is counted as what its first
 * completion ended with. */
void engine_get_stats(engine *e, icp_stats *out);
size_t engine_get_context(const engine *e); /* as icp_engine_get_context */

/* Questions and orders about the cache; the engine's thread sees to them between two steps, and the
 * caller waits. As their namesakes in incipit.h. */
int engine_share(engine *e, const int32_t *tokens, size_t n, icp_error *err);
int engine_why(engine *e, const icp_request_opts *opts, icp_usage *out, icp_error *err);
struct icp_cache_list;
int engine_list(engine *e, const char *tenant, size_t most, struct icp_cache_list *out);
void engine_drop(engine *e, const char *tenant);
int engine_set_limit(engine *e, size_t limit);

#endif
