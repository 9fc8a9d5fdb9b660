/* Inside the engine.
 *
 *   any thread                       the engine's thread
 *   engine_submit ──incoming list──▶ waiting ──admit──▶ running ──finish──▶ (gone)
 *   request_cancel ──flag─────────▶     ▲                  │
 *   request_next ◀──events of r───      └──preempt, stall──┘
 *
 * A request whose caller does not read its events is stalled: its sequences wait, without pages,
 * until it has read. So slow readers cost nobody anything but the memory of a few events.
 *
 * A request has n sequences, one for each completion. Waiting and running sequences stand in one
 * total order (priority, arrival, choice); a preempted one falls back to its old place in it, that
 * is, before everything that arrived later, and keeps its tokens.
 *
 * Invariants
 *  1. A sequence has a chain if and only if it is running.
 *  2. chain_len(chain) is the number of its tokens whose KV is there; it is less than n_tokens.
 *  3. Each prompt token is counted once, when it is first ready, as cached or computed; high says
 *     up to where that was done, however often the sequence is preempted.
 *  4. A request is alive as long as its caller or the engine refers to it (refs).
 *
 * Locks, in this order; none is held while the model runs
 *  request.callback  held around every callback, so that request_free can wait for one to end;
 *                    guards `detached`. A callback may call anything but request_free.
 *  engine.lock       incoming list, errands, n_queued, the flags for the thread, the copy of the
 *                    statistics
 *  request.lock      events, done
 * Everything else belongs to the engine's thread. */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include <pthread.h>

#include "engine.h"
#include "grammar.h"
#include "incipit.h"
#include "schedule.h"

/* ---- memory of requests (ledger.c) ----------------------------------------------------------- */

/* Bytes that requests have, before they are allocated. From any thread. It lives as long as the
 * engine or a request refers to it: requests may be freed after the engine. */
typedef struct ledger {
    atomic_size_t used;
    atomic_size_t events; /* of these, room for events */
    size_t limit;
    atomic_int refs;
} ledger;
int ledger_new(size_t limit, ledger **out);
ledger *ledger_ref(ledger *l);
void ledger_unref(ledger *l);
/* Eighths of the limit up to which something may be taken: whoever comes leaves room for those who
 * run, and they for the events of all. */
enum { LEDGER_NEW = 6, LEDGER_RUN = 7, LEDGER_ALL = 8 };
size_t ledger_room(const ledger *l, int eighths);
bool ledger_take(ledger *l, size_t size, int eighths); /* false: that would be more */
void ledger_give(ledger *l, size_t size);
/* The same for room for events. */
bool ledger_take_events(ledger *l, size_t size);
void ledger_give_events(ledger *l, size_t size);
/* Bytes of events that a request may leave unread and still run: an eighth of what is left of a
 * quarter of the limit, so that many slow readers never have all of it (dynamic thresholds:
 * Choudhury and Hahne, 1998). 0: none is left. */
size_t ledger_unread_limit(const ledger *l);

/* ---- random numbers (philox.c) -------------------------------------------------------------- */

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011):
 * replaces the counter in block by its random words. */
void philox(uint32_t block[4], const uint32_t key[2]);
/* The 64 random bits of output position `position` of completion `choice`. */
uint64_t philox_draw(uint64_t seed, uint32_t choice, uint64_t position);

/* ---- sampling (sample.c) -------------------------------------------------------------------- */

typedef struct sampler sampler; /* scratch for n_threads threads */

/* One row of logits to be turned into a token; the rows of a step are worked on in parallel. */
typedef struct sample_job {
    float *row; /* n_vocab raw logits; used up */
    const icp_request_opts *opts;
    const int32_t *tokens; /* prompt and output so far */
    size_t n_prompt, n_tokens;
    int choice;
    bool ban_ends;    /* end tokens cannot be drawn yet */
    matcher *matcher; /* only tokens that it lets through can be drawn; NULL: all */
    int32_t known;   /* >= 0: nothing is drawn, only the log-probability of this token is wanted, */
    size_t position; /* which stands here in the prompt */
    int32_t token;   /* out: the token, or an ICP_E code */
    bool logprobs;   /* chosen and top are wanted */
    icp_logprob chosen, top[ICP_MAX_LOGPROBS]; /* out */
    size_t rank;                               /* out: of chosen */
    int n_top;                                 /* out */
    void *owner;                               /* the caller's */
} sample_job;

/* ends: the vocabulary's end tokens; copied. */
int sampler_open(size_t n_vocab, int n_threads, const int32_t *ends, size_t n_ends, sampler **out);
void sampler_close(sampler **s);
size_t sampler_scratch_size(size_t n_vocab); /* bytes of a thread's scratch */
/* In job->token, ICP_EINVALID: a logit is NaN or infinite, or every token is banned; ICP_ENOTFOUND:
 * no token that may be drawn fits the matcher; or what matcher_mask failed with. */
void sampler_run(sampler *s, sample_job *job, int thread);

/* ---- drawing (draw.c) ------------------------------------------------------------------------ */

/* The token that 64 random bits choose by the weights of a row, under min_p, top_k and top_p.
 * scratch: n numbers. */
int32_t draw_token(const icp_request_opts *opts, const float *row, const uint64_t *weight, size_t n,
                   uint64_t random, uint64_t *scratch);

/* ---- exponentials (softmax.c) ---------------------------------------------------------------- */

enum { SOFTMAX_STEPS_LOG2 = 7, SOFTMAX_STEPS = 1 << SOFTMAX_STEPS_LOG2, SOFTMAX_UNIT_LOG2 = 42 };
typedef struct softmax_table {
    double power[SOFTMAX_STEPS]; /* 2^(j/128) */
} softmax_table;
void softmax_init(softmax_table *t);

/* The greatest of row; NaN when one is NaN or +infinite. */
float softmax_greatest(const float *row, size_t n);
/* e^x for x <= 0; 0 below -700. */
double softmax_exp(const softmax_table *t, double x);
/* The sum of e^(row[i] - greatest). */
double softmax_sum(const softmax_table *t, const float *row, size_t n, float greatest);
/* weight[i] = e^((row[i] - greatest) / temperature) in units of 2^-42, rounded: sums of up to two
 * million of them are exact. */
void softmax_weights(const softmax_table *t, const float *row, size_t n, float greatest,
                     float temperature, uint64_t *weight);

/* ---- stop strings (stop.c) ------------------------------------------------------------------ */

typedef struct stop_set stop_set; /* the strings of a request; immutable */

/* Lives in memory. n may be 0. */
int stop_set_new(const char *const *strings, size_t n, arena *memory, stop_set **out);

typedef struct stop_scan { /* one completion's progress; zero-initialise but for set, state */
    const stop_set *set;
    uint32_t *state; /* stop_set_n(set) numbers, zero at first */
    buf held;        /* text that may yet turn out to be (part of) a stop string */
} stop_scan;
size_t stop_set_n(const stop_set *set);

/* Takes text, appends to *out what is certain not to belong to a stop string. Returns the index of
 * the stop string that ended first (the longest of those that end there), or -1; then everything
 * before it (with `include`, and itself) is in *out, and the rest of the text is forgotten. */
int stop_put(stop_scan *scan, const char *text, size_t len, bool include, buf *out);
/* Appends what was held: no more text will come, or what came must not be taken for a stop. */
void stop_flush(stop_scan *scan, buf *out);

/* ---- events (events.c) ---------------------------------------------------------------------- */

/* Events as bytes: the engine appends to one buffer, the reader walks the other; when the reader's
 * is used up they change places. So a reader allocates nothing and its text stays where it is. */
typedef struct event_queue {
    buf in, out;
    size_t at; /* of the next event in out */
} event_queue;
/* text and top may be NULL when event->text_len and n_top are 0. ICP_ENOMEM: not appended. */
int event_put(event_queue *q, const icp_event *event);
/* Bytes that the queue may grow by for it. */
size_t event_growth(const event_queue *q, const icp_event *event);
bool event_take(event_queue *q, icp_event *event);
bool event_queue_empty(const event_queue *q);
size_t event_unread(const event_queue *q); /* bytes */
/* Frees a buffer that a burst made large, when nothing is in it; returns its bytes. */
size_t event_shrink(event_queue *q);
void event_queue_fini(event_queue *q);

/* ---- requests (request.c) ------------------------------------------------------------------- */

typedef struct tenant tenant;

typedef struct sequence {
    request *request;
    int choice;
    struct sequence *next; /* in the waiting queue */

    int32_t *tokens; /* prompt, then output; NULL before the first admission */
    size_t n_tokens, max_new;
    chain *chain;     /* while running */
    void *state;      /* likewise, where models have one: as of chain_len */
    size_t high;      /* leading tokens that were ready at some time */
    size_t n_cached;  /* prompt tokens of these that came from the cache */
    size_t hit_limit; /* of the prompt, by the wishes of the request */
    size_t rows_from; /* next prompt position whose logits are wanted; SIZE_MAX: none */
    bool stale;       /* it waited for an owner: the cache may hold more for it now */
    bool explained;   /* why its prompt is computed was noted */
    size_t progress;  /* 1 + the prompt tokens that PROGRESS told of; 0: nothing so far */
    int bypassed;     /* later sequences that were admitted before it */
    size_t n_hit;     /* what the cache had for it when it was last asked, */
    uint64_t asked;   /* in this step; 0: never */
    size_t charged;   /* bytes of tokens, in the ledger */
    bool finished;    /* its FINISH is posted, or the request failed */
    bool gone;        /* it stands in no list and owns nothing any more */

    detok text;
    stop_scan stop;
    matcher *matcher; /* has taken all tokens of the output; NULL: the text is free */
    buf piece, shown; /* scratch: text of the newest token, before and after the stop strings */
    double first_token, last_token; /* when they came */
} sequence;

struct request {
    engine *engine;
    icp_request_opts opts; /* what its pointers lead to is in memory */
    arena memory;
    stop_set *stops;
    atomic_int refs;
    atomic_bool cancelled;

    request *next; /* in the incoming list */
    uint64_t arrival;
    sequence *seq; /* opts.n of them */
    int n_open;    /* not yet finished */
    bool admitted, dirty;
    atomic_bool stalled; /* until its caller has read: set by the thread, cleared by the caller */
    request *next_dirty;
    float *scales;        /* of all the model's adapters; NULL: none applies */
    uint8_t adapters[16]; /* model_adapters_digest */
    cache_space *space;   /* held from queue_add to the end; NULL: shares nothing */
    tenant *tenant;       /* likewise */
    bool public;          /* computes a public prefix */
    ledger *ledger;
    size_t charged; /* bytes in it, events not included */
    double submitted_at, admitted_at;
    size_t n_output;
    enum icp_finish finish; /* of the first completion */
    int error;
    icp_usage usage;
    float *vector; /* with embed: n_vector numbers, whole when the prompt is computed */
    size_t n_vector;

    pthread_mutex_t callback;
    bool detached; /* the caller has gone */

    pthread_mutex_t lock;
    pthread_cond_t ready;
    event_queue events;
    size_t event_room; /* bytes in the ledger for them */
    size_t resume_at;  /* a stalled request goes on when no more bytes are unread */
    bool done, done_taken;
};

/* What limits a request, as plain numbers. */
typedef struct request_limits {
    size_t n_vocab, n_ctx;
    size_t cache_tokens; /* of one sequence, by the pages that there are */
    size_t quota_tokens; /* and by a tenant's quota */
    size_t n_adapters;
    bool embeds; /* the model makes vectors, no text */
} request_limits;

/* Tokens of prompt and answer (request_opts.c). */
size_t request_most_tokens(const request_limits *limits);
/* Checks opts against the limits, with a sentence for the caller (request_opts.c). */
int request_check(const icp_request_opts *opts, const request_limits *limits, icp_error *err);
/* Copies all that from's pointers lead to into memory (request_opts.c). ICP_ENOMEM. */
int request_copy_opts(const icp_request_opts *from, arena *memory, icp_request_opts *to);
/* A new request with one reference, from opts that were checked. ICP_EAGAIN, ICP_ELIMIT: the ledger
 * has no room for it now, or never; ICP_ENOMEM. */
int request_new(engine *e, const icp_request_opts *opts, request **out, icp_error *err);
/* Another prompt of the same text. False: it does not fit, and nothing has changed. */
bool request_set_prompt(request *r, const int32_t *prompt, size_t n);
/* The first n_in tokens have become n_out others, the first `same` of them the same: moves its
 * marks along. */
void request_move_marks(request *r, size_t same, size_t n_in, size_t n_out);
void request_unref(request *r);
/* Queues an event for the caller. ICP_ENOMEM, ICP_ELIMIT: it reads too slowly. */
int request_post(request *r, const icp_event *event);
/* Whether its caller is so far behind that it must wait: then it is stalled. */
bool request_is_behind(request *r);
void request_post_done(request *r); /* usage, error and finish are set; cannot fail */
void request_notify(request *r);    /* wakes who waits, and calls wake */
/* Calls on_logits unless the caller has gone. */
void request_show_logits(request *r, size_t position, const float *row, size_t n_vocab);

/* ---- sequences (sequence.c) ----------------------------------------------------------------- */

/* Appends the token that was drawn and posts it; where it ends the completion, posts FINISH too and
 * sets finished. ICP_ENOMEM: the request must fail. */
int sequence_accept(sequence *s, const sample_job *drawn);
/* No token fits the grammar any more: posts FINISH. */
int sequence_stuck(sequence *s);
/* Posts FINISH with the text that was held back (unless cancelled), and sets finished. */
int sequence_end(sequence *s, enum icp_finish finish);
/* a before b in the total order. */
bool sequence_before(const sequence *a, const sequence *b);

/* ---- tenants and namespaces (tenant.c) ------------------------------------------------------- */

/* Whoever the requests of an API key come from: its pages in the cache, its credit in the queue. */
struct tenant {
    tenant *next;
    cache_owner *owner;
    size_t refs; /* requests and pins */
    int slot;    /* in engine.tenants */
    char name[];
};

/* A prefix that all tenants share. */
typedef struct public_prefix {
    struct public_prefix *next;
    cache_space *space;
    chain *chain;
    uint8_t adapters[16]; /* of the requests that may begin with it */
    size_t n;             /* tokens of its full pages */
    int32_t tokens[];
} public_prefix;

int tenant_get(engine *e, const char *name, tenant **out); /* ICP_EAGAIN: too many are busy */
void tenant_put(engine *e, tenant *t);
tenant *tenant_find(const engine *e, const char *name); /* or NULL */
void tenant_fini(engine *e);
/* Sets r's tenant, and its namespace: of the model, its adapters, tenant and salt, and of the
 * longest public prefix that its prompt begins with and that it may take. Whoever ends r puts both
 * back. */
int request_open_space(engine *e, request *r);
/* The salt in a namespace's key; not NUL-terminated. */
const char *tenant_salt(const void *key, size_t len, size_t *n);
/* Whether it is for the same adapters as those of r. */
bool tenant_same_adapters(const void *key, const request *r);
/* Takes over the chain of a request that computed a public prefix. */
int public_add(engine *e, request *r, chain **ch);
/* Tokens that r's prompt has in common with a public prefix, which *prefix is set to. */
size_t public_common(const engine *e, const request *r, const public_prefix **prefix);
void public_fini(engine *e);

/* ---- pins (pin.c) ---------------------------------------------------------------------------- */

typedef struct pin {
    struct pin *next;
    tenant *tenant;
    chain *chain;
    double until;
    size_t state_at; /* position of the checkpoint that is kept */
    size_t n_pages;  /* that one's included */
    bool breakpoint; /* it gives way as soon as anybody lacks pages */
} pin;

void pin_add(engine *e, sequence *s); /* takes the sequence's chain, if it can */
/* Pins what is before the breakpoints of the sequence's prompt, each for its time, if it can. */
void pin_add_breakpoints(engine *e, sequence *s);
void pin_tick(engine *e, double now); /* ends those whose time is over */
double pin_next(const engine *e);     /* when the next one ends */
bool pin_yield(engine *e);            /* ends the oldest, breakpoints first; false: there is none */
/* Ends the oldest breakpoint, of one tenant (NULL: of all); false: there is none. */
bool pin_yield_breakpoint(engine *e, const tenant *t);
void pin_drop(engine *e, const tenant *t); /* of one tenant; NULL: all */
size_t pin_count(const engine *e, const tenant *t, size_t *n_pages);

/* ---- what sequences of some models carry (carry.c) ------------------------------------------- */

size_t carry_stride(const model_info *info);    /* bytes of a slot; 0: the model has no state */
size_t carry_page_size(const model_info *info); /* bytes, of a page beside such states */
void carry_begin(engine *e, sequence *s);       /* it is running and has a new chain */
void carry_end(sequence *s);                    /* it runs no more; its chain stands still */
size_t carry_stop(const sequence *s); /* the next edge at which a state is wanted; 0: none */
/* Its tokens from this one on were computed: leaves a checkpoint where it may be of use. */
void carry_leave(sequence *s, size_t from);

/* ---- reasons (miss.c) ------------------------------------------------------------------------ */

/* Why the tokens of r's prompt from the position on that its namespace holds (at most as far as its
 * first sequence may hit) must be computed. others: looks into the tenant's other namespaces, too.
 */
void miss_explain(engine *e, const request *r, bool others, icp_miss *out);
/* Exchanges the prompt for a spelling that the cache has sampled tokens of (from_text). */
void miss_respell(engine *e, request *r);

/* ---- errands (errand.c) ---------------------------------------------------------------------- */

/* What another thread wants done on the engine's. */
typedef struct errand {
    struct errand *next;
    int (*run)(engine *e, void *arg);
    void *arg;
    int rc;
    bool done;
} errand;
int errand_do(engine *e, int (*run)(engine *e, void *arg), void *arg);
void errand_run_all(engine *e, errand *list);

/* ---- the engine ----------------------------------------------------------------------------- */

enum {
    ENGINE_CHUNK = 512,     /* prompt tokens a step: enough rows to keep the arithmetic busy, */
    ENGINE_CHUNK_LEAST = 8, /* and so many in any case while others wait for their next token */
    ENGINE_PARALLEL = 16,
    ENGINE_QUEUED = 1024,
    ENGINE_LOGITS_SIZE = 128 << 20,    /* bytes of prompt logits a step at most, */
    ENGINE_LOGITS_SHARE = 32,          /* and one part in so many of the limit */
    ENGINE_STATES_SHARE = 4,           /* states of running sequences: fewer run, if need be */
    ENGINE_REQUESTS_SHARE = 16,        /* of the limit is for requests, */
    ENGINE_REQUESTS_LEAST = 256 << 10, /* and no less than that */
    ENGINE_BREAKPOINTS = 256,          /* that are held at most, */
    ENGINE_BREAKPOINT_SHARE = 2,       /* with one part in so many of the pages, or of a quota */
    ENGINE_TENANTS = 1024,
    ENGINE_PROBES = 16,      /* waiting sequences that look into the cache in one step, */
    ENGINE_PROBE_AGAIN = 16, /* each once in so many steps */
};
#define ENGINE_MAX_PAUSE 0.15  /* seconds; */
#define ENGINE_PAUSE_SHARE 0.7 /* of it is planned for: no two steps take the same time */

struct engine {
    model *model;
    const tokenizer *tok;
    pool *pool;
    cache *cache;
    const float *adapter_scales; /* of requests that say nothing */
    bool no_cache, commit_ahead;
    request_limits limits;
    int chunk, max_running, logit_rows;
    size_t n_out; /* numbers of a row: logits, or states */
    size_t max_queued;
    double max_pause;
    size_t n_pages, state_pages; /* all that there are at least; of a checkpoint */
    size_t quota;                /* pages; SIZE_MAX: none */
    size_t window_pages;         /* of a sequence at one time, with a window; 0: there is none */
    size_t public_pages;         /* that sequences cannot have */
    size_t limit, fixed;         /* bytes: all; and arrays, logits and scratch */
    size_t least, most;          /* of the limit; equal when it stays */
    ledger *ledger;

    /* Of the thread. Arrays are sized once. */
    sequence **running; /* in order */
    int n_running;
    sequence *waiting, *last_waiting; /* in order */
    request *dirty;                   /* have events that nobody was told of */
    tenant *first_tenant;
    int n_tenants;
    sched_tenant *tenants; /* ENGINE_TENANTS, by slot */
    public_prefix *publics;
    pin *pins;         /* oldest first */
    sched_wait *waits; /* max_waits, with the sequences they stand for */
    sequence **candidates;
    int max_waits, n_waits;
    sched_pace pace;
    uint64_t n_plans;
    sched_seq *views; /* max_running + 1 */
    sched_item *items;
    model_span *spans;
    sequence **planned; /* the sequence of each span */
    float *logits;
    size_t logits_size;
    char *states; /* of running sequences, max_running slots; NULL: the model has none */
    size_t states_size;
    sample_job *jobs; /* one for each row of logits */
    sampler *sampler;
    icp_stats stats;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, errand_done;
    errand *errands;
    request *incoming, **incoming_tail;
    size_t n_queued; /* requests of which nothing was admitted yet */
    uint64_t n_requests;
    bool cancelling, closing;
    bool reading;    /* the caller of a stalled request has read */
    icp_stats shown; /* stats as of the last step */
};

/* Where sequences stand (queue.c), on the engine's thread. */
int queue_add(engine *e, request *r);     /* a new request; an ICP_E code: it must fail */
int queue_admit(engine *e, sequence *s);  /* queue → running; ICP_EAGAIN */
void queue_preempt(engine *e, int i);     /* running[i] → queue */
void queue_stall(engine *e);              /* those whose callers are behind → queue */
bool queue_has_work(const engine *e);     /* somebody runs, or waits for nothing but pages */
void queue_settle(engine *e, request *r); /* finished sequences → gone; DONE after the last */
void queue_fail(engine *e, request *r, int error); /* all of r's sequences → gone, with DONE */
void queue_cancel(engine *e, bool all);            /* those whose callers want it */
void queue_dirty(engine *e, request *r);           /* to be notified after this step */
void queue_notify(engine *e);

/* One step (step.c). */
void engine_step(engine *e);

/* Statistics (stats.c). */
void histogram_add(struct icp_histogram *h, double seconds);
void stats_count_prompt(icp_stats *stats, sequence *s); /* its prompt is computed */
void stats_count_output(icp_stats *stats, sequence *s); /* it has one more token */
void stats_count_end(icp_stats *stats, const request *r);
/* From position `from` on, tokens of its prompt are computed: why, is asked once. */
void stats_explain(engine *e, sequence *s);
void stats_show(engine *e); /* what engine_get_stats tells from now on */
#endif
