/* What the files of serve share.
 *
 *   socket ──▶ http.c ──▶ route.c ─┬─▶ a reply at once                          (GET)
 *              conn, call          └─▶ work.c ─▶ openai_*.c ─▶ generate.c       (POST)
 *              watch.c: hang-ups, deadlines, keep-alive
 *
 * Threads. One thread of libmicrohttpd ("http") moves bytes and drives every call's state; nothing
 * on it takes long. Bodies are parsed, rendered and tokenized by the workers ("icp-work-N") while
 * the connection is suspended. The watcher ("icp-watch") looks at the sockets of suspended
 * connections. The engine's thread only wakes a call.
 *
 * A call goes one way:
 *
 *   READING ──▶ WORKING ──┬──▶ REPLYING                                        [call_finish]
 *      │  body   │worker  └──▶ GENERATING ──┬──▶ REPLYING      one answer
 *      └─────────┴── error ──▶ REPLYING     └──▶ STREAMING     server-sent events
 *
 * Invariants:
 * 1. The http thread owns a call, except that in WORKING its worker owns everything but `lock`ed
 *    fields. Nobody else touches it outside the lock. Requests to the engine (icp_next, icp_cancel,
 *    icp_request_free) are made by the owner only, and never under a lock.
 * 2. A connection is suspended only by call_sleep and resumed only by call_wake, both under the
 *    call's lock; a wake that finds the call awake is remembered and makes the next sleep fail.
 *    In WORKING nobody wakes it, so that it cannot end under its worker.
 * 3. Locks are taken in the order watch, call. The engine may call call_wake under locks of its
 *    own. */
#ifndef SERVE_INTERNAL_H
#define SERVE_INTERNAL_H

#include <json-c/json.h>
#include <microhttpd.h>
#include <pthread.h>

#include "base.h"
#include "json.h"
#include "serve.h"
#include "trace_log.h"

typedef struct server server;
typedef struct conn conn;
typedef struct call call;
typedef struct generation generation;
typedef struct watch watch;
typedef struct workers workers;
typedef struct store store;
typedef struct served served;
typedef struct shelf shelf;

/* ---- replies (reply.c) ---------------------------------------------------------------------- */

/* A whole answer: a body, or an error in the form of the caller's kind. */
typedef struct reply {
    int status;       /* 0: there is none yet */
    const char *type; /* of the body; NULL: application/json */
    buf body;
    const char *page; /* instead of the body: static text of page_len bytes */
    size_t page_len;
    const char *allow; /* methods, for 405 and OPTIONS */
    int retry_after;   /* seconds; 0: not said */
    bool never_retry;  /* the same request would fail again */

    bool is_error;
    const char *code;       /* static; may be NULL */
    char param[80];         /* "": none */
    char message[600];      /* a sentence; what it quotes from outside is cut */
    size_t n_prompt, n_ctx; /* of a full context; 0: another error */
} reply;

/* Makes *r an error. code (static) and param may be NULL. An error that is there already stays. */
void reply_error(reply *r, int status, const char *code, const char *param, const char *format, ...)
    PRINTF_LIKE(5, 6);
/* The error of a library call, with the status that fits its code. */
void reply_icp_error(reply *r, const icp_error *err, const char *param);
/* There is no model of this name. */
void reply_no_model(reply *r, const char *name);
/* The one that agents recognise and answer by compacting their context. param: the field that is
 * too long; NULL: the messages. why: a sentence for another limit than the context; or NULL. */
void reply_context_exceeded(reply *r, size_t n_prompt, size_t n_ctx, const char *param,
                            const char *why);

enum error_form { FORM_OPENAI, FORM_ANTHROPIC };
/* Appends an error: {"error":{message,type,param,code}}, or
 * {"type":"error","error":{type,message},"request_id":…}. */
void put_error(buf *out, const reply *r, enum error_form form, const char *request_id);
/* Appends {"message":…,"type":…,"param":…,"code":…}. */
void put_error_object(buf *out, const reply *r);
int error_status(const reply *r, enum error_form form);
/* An error about the field `from`, or what is inside it, is about what the caller calls `to`. */
void reply_rename(reply *r, const char *from, const char *to);
void reply_fini(reply *r);

/* ---- JSON in (json_read.c) ------------------------------------------------------------------ */

enum { JSON_MAX_DEPTH = 64 };

/* Parses a whole body of this type (object or array), text[len] being NUL. NULL and a 400 that says
 * where, when it is another, not JSON (RFC 8259), not UTF-8, deeper than JSON_MAX_DEPTH, or of so
 * many values that it would take much more memory than the text. The caller puts the result with
 * json_object_put. */
json_object *json_parse(const char *text, size_t len, enum json_type type, reply *error);

enum field_type { FIELD_BOOL, FIELD_INT, FIELD_FLOAT };

/* A scalar member of a JSON object and where it goes: a bool, int or float at `offset`. */
typedef struct field {
    const char *name;
    enum field_type type;
    size_t offset;
    double min, max; /* inclusive; of numbers */
} field;

/* Reads the fields of a table that are there and not null; others keep their value. prefix is put
 * before names in errors ("stream_options."). The first wrong one goes to *error. */
bool fields_read(json_object *object, const char *prefix, const field *table, size_t n, void *into,
                 reply *error);

/* A member; NULL when it is absent or null. */
json_object *field_get(json_object *object, const char *name);
/* A member of one type; NULL when absent, null, or (with an error) of another type. */
json_object *field_of_type(json_object *object, const char *name, enum json_type type,
                           reply *error);
/* The same of an object inside a body; prefix as for fields_read. */
json_object *field_inside(json_object *object, const char *prefix, const char *name,
                          enum json_type type, reply *error);
/* Token ids of an array. false with an error: something else than integers in [0, n_vocab). */
bool json_token_ids(json_object *array, const char *param, size_t n_vocab, icp_tokens *out,
                    reply *error);
/* Says the JSON type of a value for people: "a string", "an array" … */
const char *json_kind(json_object *value);

/* ---- generations (generate.c; generation.h has the rest) ------------------------------------ */

/* Takes what the engine has ready. */
void generation_pump(generation *g);
/* True unless one whole answer is due: a stream that failed before its first byte is an error. */
bool generation_streams(const generation *g);
bool generation_done(const generation *g);
/* The answer, or the error, of a finished generation. */
void generation_reply(generation *g, reply *r);
/* Takes at most max bytes of the stream; 0: none ready, -1: it has ended. */
long generation_read(generation *g, char *to, size_t max);
/* Puts a comment into the stream. */
void generation_ping(generation *g);
/* Ends it with an error: the server stops. */
void generation_cancel(generation *g);
icp_usage generation_usage(const generation *g);
void generation_free(generation **g);

/* ---- routes (route.c, endpoints.c, metrics.c) ----------------------------------------------- */

typedef struct route {
    const char *path;     /* begins with "/"; one that ends with "/" takes everything below */
    bool v1;              /* also below /v1 */
    bool open;            /* asks for no key, and works before the model is loaded */
    bool slow;            /* get and drop wait for something: on a worker */
    bool list;            /* the body is an array */
    bool any_body;        /* there need not be one */
    bool of_model;        /* get and drop ask a model */
    void (*get)(call *c); /* on the http thread; takes HEAD too */
    void (*post)(call *c, json_object *body); /* on a worker */
    void (*drop)(call *c);                    /* DELETE, on the http thread */
} route;

/* The route for a method and path; NULL with a 404, a 405 that names the methods, or the 204 of
 * OPTIONS. */
const route *route_find(const char *method, const char *path, reply *r);
/* Whose clients ask at this path, whether or not there is something at it. */
enum error_form route_errors(const char *path);
/* What of a path follows the route's own. */
const char *route_rest(const route *r, const char *path);

/* Start a generation or leave an error in c->reply. */
void chat_start(call *c, json_object *body);
void completions_start(call *c, json_object *body);
void responses_start(call *c, json_object *body);
void messages_start(call *c, json_object *body);

void completion_start(call *c, json_object *body);
void infill_start(call *c, json_object *body);

/* LoRA adapters (lora.c). lora_open takes the model's scales: ICP_ENOMEM. */
int lora_open(served *m);
void lora_reply(call *c);
void lora_apply(call *c, json_object *body);

void props_reply(call *c);
void tokenizer_info_reply(call *c);
void slots_reply(call *c);
void slot_act(call *c, json_object *body);
void apply_template_reply(call *c, json_object *body);
void embeddings_start(call *c, json_object *body);
void rerank_start(call *c, json_object *body);
void reset_cache_reply(call *c, json_object *body);
void ollama_version_reply(call *c);
void ollama_tags_reply(call *c);
void ollama_show_reply(call *c, json_object *body);
void response_reply(call *c);
void response_drop(call *c);
void response_tokens_reply(call *c, json_object *body);
void count_tokens_reply(call *c, json_object *body);

/* The cache of the caller's tenant (cache_routes.c). */
void cache_reply(call *c);
void cache_drop_reply(call *c);
void cache_why_start(call *c, json_object *body);
void cache_pin_start(call *c, json_object *body);

void health_reply(call *c);
void version_reply(call *c);
void page_reply(call *c);
void models_reply(call *c);
void model_reply(call *c);
void metrics_reply(call *c);
void tokenize_reply(call *c, json_object *body);
void detokenize_reply(call *c, json_object *body);

/* The exposition of Prometheus, for a model of this name. */
void metrics_write(buf *out, const icp_stats *stats, const char *model);

extern const unsigned char page_html[]; /* page.html, embedded */
extern const size_t page_html_len;
/* The page loads nothing from anywhere and talks to this server only. */
#define PAGE_POLICY                                                                                \
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "                  \
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "                     \
    "frame-ancestors 'none'"

/* ---- who may call (auth.c) ------------------------------------------------------------------ */

/* The tenant of a presented key ("" when none are configured); NULL: not one of ours. Takes the
 * same time whatever the key. */
const char *keys_find(const serve_keys *keys, const char *presented);
/* True when a page of this origin may call. */
bool origin_allowed(const char *cors, const char *origin);
/* True unless the name in a Host header shows that another site's page reached a server that only
 * listens to its own machine (DNS rebinding). */
bool host_is_local(const char *host);

/* ---- workers (work.c) ----------------------------------------------------------------------- */

int workers_open(int n, workers **out);
void workers_add(workers *w, call *c); /* call_work(c) will run on one of them */
void workers_close(workers **w);       /* after the last call */

/* ---- watcher (watch.c) ---------------------------------------------------------------------- */

int watch_open(server *s, watch **out);
void watch_close(watch **w);
void watch_add(watch *w, conn *c);
void watch_remove(watch *w, conn *c);
/* A call on the connection begins (NULL: has ended), and with it the time for the request to
 * arrive. False when time had run out before, and the client was told. */
bool watch_call(watch *w, conn *c, call *current);
void watch_progress(watch *w, conn *c, size_t n); /* n more bytes of the body arrived */
bool watch_complete(watch *w, conn *c);           /* the request is here: no deadline any more */
/* Keeps the socket after libmicrohttpd has closed it, until the client has read our answer. */
void watch_linger(watch *w, int fd);
/* Wakes every call; with force, shuts down their sockets as well. */
void watch_wake_all(watch *w, bool force);

/* ---- connections and calls (http.c, call.c) ------------------------------------------------- */

struct conn {
    int fd;
    struct conn *prev, *next; /* list of watch */
    call *call;               /* under watch's lock */
    double deadline;          /* of the request being read; under watch's lock; 0: none */
    bool expired;             /* under watch's lock: deadline passed, 408 sent */
    atomic_bool gone;         /* reset, or closed in both directions */
    atomic_bool half_closed;  /* the client sends no more; it may still read */
};

enum call_state { CALL_READING, CALL_WORKING, CALL_REPLYING, CALL_GENERATING, CALL_STREAMING };

struct call {
    server *server;
    conn *conn;
    struct MHD_Connection *mhd;
    call *next_work; /* in the workers' queue, or of those that wait for a model */
    const route *route;
    enum error_form errors; /* of whom the caller is a client */
    char *method, *path, *origin;
    bool http11;
    char id[129]; /* x-request-id */
    const char *tenant;
    double began;

    buf body;
    size_t body_len;  /* also counts what was thrown away */
    size_t body_held; /* counted in server.body_bytes */
    bool linger;      /* answered before the body was read */

    served *on;          /* what it is computed with; NULL: not known yet, or nothing */
    json_object *parsed; /* the body, while the call waits for its model */

    reply reply;
    generation *generation;
    int status; /* for the log */

    pthread_mutex_t lock; /* guards what follows */
    enum call_state state;
    bool asleep;  /* suspended */
    bool woken;   /* call_wake found it awake */
    bool probed;  /* whether a half-closed client still listens was asked */
    bool ping;    /* the stream wants a comment */
    double quiet; /* since when nothing was sent */
};

void call_wake(call *c); /* from any thread */
void call_wake_arg(void *c);
/* Suspends the connection unless there was a wake: then false, and the caller looks again. */
bool call_sleep(call *c);
void call_set_state(call *c, enum call_state state);
enum call_state call_get_state(call *c);
bool call_take_ping(call *c);
void call_drop_body(call *c);
call *call_new(server *s, conn *on, struct MHD_Connection *mhd); /* NULL: no memory */
void call_free(call *c); /* with its generation, which is cancelled */
/* The watcher's part, with the call's lock held by these. */
void call_hung_up(call *c);
void call_half_closed(call *c);
void call_tick(call *c, double now);
/* Runs the route's get or drop, whichever the method asks for; POST waits for call_work. */
void call_answer(call *c);
/* Parses the body and runs the route: a worker's job. */
void call_work(call *c);

/* ---- models (served.c, shelf.c) ------------------------------------------------------------- */

struct served {
    char *name, *path;
    icp_model *model; /* this and what follows: once it is loaded */
    icp_engine *engine;
    pthread_mutex_t lora_lock;
    float *lora; /* scales of the adapters for requests that say nothing */
    size_t n_lora;

    served *next; /* this and what follows: of shelf.c, under its lock */
    size_t size;  /* of its files */
    bool ready;   /* loaded */
    bool leaving; /* takes no more requests, and goes when it has none */
    int users;    /* calls that hold it */
    double used;  /* when one took it, or let it go */
    call *waiting;
    double wanted; /* since when somebody waits */
};

served *served_new(const char *path, const char *name, size_t name_len); /* NULL: no memory */
void served_free(served **m);
/* Opens its file, its engine, what is shared; says so in the log. */
int served_load(served *m, const serve_opts *opts, const icp_engine_opts *engine, icp_error *err);
void served_unload(served *m);
/* How much of a path names the model: without ".gguf" and the number of a part, which is *part; 0
 * for a model in one file. */
size_t served_stem(const char *path, unsigned *part);

enum taken { MODEL_TAKEN, MODEL_AWAITED, MODEL_REFUSED };

int shelf_open(server *s, shelf **out, icp_error *err); /* in failure too, *out is to be closed */
void shelf_stop(shelf *sh);                             /* what waits gets an error */
void shelf_close(shelf **sh);                           /* after the last call */
/* Gives a call, on a worker, the model that it names (NULL: it names none). MODEL_AWAITED: the call
 * must not be touched any more; it comes back to the workers with its model, or with an error. */
enum taken shelf_take(shelf *sh, call *c, const char *name);
/* Never waits: false with an error when the model is not loaded. Without a name the one that was
 * used last. */
bool shelf_take_ready(shelf *sh, call *c, const char *name);
void shelf_release(shelf *sh, served *m);
void shelf_each(shelf *sh, void (*visit)(void *arg, const served *m), void *arg); /* locked */

/* ---- the server (serve.c) ------------------------------------------------------------------- */

struct server {
    const serve_opts *opts;
    size_t max_body;
    unsigned max_connections;
    double read_timeout;
    bool loopback; /* listens to this machine only */
    int64_t began; /* seconds since 1970 */

    struct MHD_Daemon *daemon;
    workers *workers;
    watch *watch;
    store *store;     /* responses that were kept */
    trace_log *trace; /* NULL: not wanted */

    served *only;      /* the model; NULL with a shelf */
    shelf *shelf;      /* the models of a folder; NULL: there is one model */
    atomic_bool ready; /* the only model is loaded, or there is a shelf */

    atomic_bool draining;     /* new requests are refused */
    atomic_bool stopping;     /* running ones are cancelled */
    atomic_long calls;        /* between their first byte and the end */
    atomic_size_t body_bytes; /* of all bodies held */
};

/* Computes the system prompt in a file, for all tenants (shared_prefix.c). */
int shared_prefix_load(served *m, const char *path, icp_error *err);

int http_start(server *s, int listen_fd, icp_error *err);
void http_stop(server *s);

#endif
