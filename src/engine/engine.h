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
    int max_parallel;  /* sequences that run at once; 0: 16 */
    int chunk;         /* prompt tokens a step at most; 0: 512, and 256 when others decode */
    size_t max_queued; /* waiting requests; more are refused with ICP_EAGAIN; 0: 1,024 */
} engine_opts;

/* Opens the cache and starts the thread. ICP_ELIMIT: cache_limit holds less than a few pages. */
int engine_open(const engine_opts *opts, engine **out, icp_error *err);
/* Cancels what still runs and joins the thread. Requests that are done may be read and freed even
 * after it; nothing else may be in a call on the engine. */
void engine_close(engine **e);

/* Copies all of opts. *out is the caller's, until request_free. ICP_EINVALID: an option is out of
 * its range; ICP_ELIMIT: prompt and answer are longer than the context, or than the cache;
 * ICP_EAGAIN: max_queued requests wait; ICP_ENOMEM. */
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

#endif
