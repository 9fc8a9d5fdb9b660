/* serve: the HTTP server. OpenAI's API over the public library, and the chat page. */
#ifndef SERVE_H
#define SERVE_H

#include "incipit.h"

/* ---- API keys (auth.c) ---------------------------------------------------------------------- */

/* Keys that callers must show, each with the tenant whose cache its requests see. Only digests are
 * kept. Zero-initialise; no key at all: nobody is asked. */
typedef struct serve_keys {
    struct serve_key *key;
    size_t n;
} serve_keys;

/* Adds a key. name (may be NULL) becomes the tenant, so that a key can be replaced without losing
 * its cache; without one the tenant derives from the key. ICP_EINVALID: the key is empty or has
 * blanks or control characters. */
int serve_keys_add(serve_keys *keys, const char *name, const char *key, icp_error *err);
/* Adds the keys of a file: a line is `key` or `name key`; empty lines and #comments are skipped. */
int serve_keys_read(serve_keys *keys, const char *path, icp_error *err);
void serve_keys_fini(serve_keys *keys);

/* ---- server (serve.c) ----------------------------------------------------------------------- */

/* Zero means the default wherever one is named. */
typedef struct serve_opts {
    const char *model_path; /* NULL with model_dir */
    const char *model_dir;  /* a folder of models that requests name; NULL: there is one */
    int max_models;         /* of model_dir in memory at once; they share the cache's limit; 0: 2 */
    double model_idle;      /* seconds without requests after which one is unloaded; 0: never */
    icp_model_opts model;
    icp_engine_opts engine;

    const char *host;          /* name or address; NULL: 127.0.0.1 */
    int port;                  /* 0: any free one */
    const char *alias;         /* the model's name in answers; NULL: the file's */
    const serve_keys *keys;    /* NULL: nobody is asked */
    const char *trace;         /* a file that tells what was asked (trace_log.h); NULL: none */
    size_t trace_limit;        /* its bytes; 0: 64 MiB */
    const char *shared_prefix; /* a file with a system prompt that all tenants share; NULL: none */
    int max_tokens; /* of an answer when the request says nothing; 0: as the context allows */
    bool ollama_discovery; /* answers where editors look for Ollama */
    const char *cors;      /* origins that browsers may call from, comma separated, or "*";
                              NULL: pages of this machine (localhost, any port) */
    size_t max_body;       /* bytes of a request's body; 0: 32 MiB */
    int max_connections;   /* 0: 4096 */
    size_t store_limit;    /* bytes of responses that are kept; 0: 64 MiB */
    double store_ttl;      /* seconds that a response is kept; 0: a day */
    double read_timeout;   /* seconds for a request to arrive, and of silence; 0: 60 */
    double drain_timeout;  /* seconds that running requests get at the end; 0: 10 */

    void (*listening)(void *arg, int port); /* once the socket answers; may be NULL */
    void *listening_arg;
} serve_opts;

/* Serves until SIGTERM or SIGINT, lets running requests finish within drain_timeout, cancels what
 * is left and returns 0. A second signal ends the process at once.
 *
 * The socket answers before the model is loaded (/health: 503 until then). When loading fails, or
 * the address cannot be had, a negative code with its sentence in *err.
 *
 * The calling thread's signal mask is restored at the end; SIGPIPE stays ignored. */
int serve_run(const serve_opts *opts, icp_error *err);

#endif
