/* Requests of incipit: what a caller asks for, what it gets back, and what is counted. */
#ifndef ICP_REQUEST_H
#define ICP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct icp_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -100 and less bans the token */
} icp_logit_bias;

/* A run of tokens that is not generated: where all but the last of it were, that one is banned. */
typedef struct icp_ban {
    const int32_t *tokens;
    size_t n; /* at least 1 */
} icp_ban;

/* What a text must follow; made by the icp_grammar_from_… functions (incipit.h). */
typedef struct icp_grammar icp_grammar;

/* A place in a prompt where others may leave it. Of recurrent and hybrid models a state is kept at
 * the page edge before it. */
typedef struct icp_mark {
    size_t position; /* tokens of the prompt before it */
    double ttl; /* a breakpoint: what is before it is kept so many seconds, as long as nothing else
                 * needs the memory; 0: a message ends */
} icp_mark;
enum { ICP_MAX_MARKS = 32 };

typedef struct icp_request_opts {
    /* -- what -- */
    const int32_t *prompt; /* copied, like everything below */
    size_t n_prompt;       /* at least 1 */
    int n;                 /* completions that share the prompt, 1..ICP_MAX_N */
    int max_tokens; /* a completion; 0: only the prompt is computed; -1: as the context allows */
    int min_tokens; /* no end before so many */
    const char *const *stop; /* strings that end a completion; not part of its text. Valid UTF-8,
                              * not empty, at most 1,024 bytes each, ICP_MAX_STOPS of them */
    size_t n_stop;
    const int32_t *stop_tokens;
    size_t n_stop_tokens;
    bool ignore_eos;
    bool include_stop; /* the stop string is part of the text after all */
    bool keep_special; /* control tokens print as their text */
    /* NULL: any text. Else every completion follows it: tokens that do not fit are not drawn, end
     * tokens only where the text is complete, and a text that cannot go on ends at once. The
     * request refers to it; log-probabilities are those without it. */
    icp_grammar *grammar;
    bool embed;    /* the prompt's vector is wanted: what a model that embeds is for, and it does
                    * nothing else (icp_model_info.pooling). With n = 1, max_tokens = 0 */
    size_t second; /* with embed: where the second text of a pair begins (icp_tokenize_pair); 0:
                    * there is none */

    /* Of the model's adapters, by number, what each counts: 0, it does not; those that are not
     * listed do not either. NULL: as the model was opened. -1000 to 1000 */
    const float *adapter_scales;
    size_t n_adapter_scales;

    /* -- sampling -- */
    float temperature;                                             /* 0: greedy */
    float top_p, min_p;                                            /* 1 and 0: off */
    int top_k;                                                     /* 0: off */
    float repetition_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    uint64_t seed; /* completion i of a request draws with (seed, i, position) */
    const icp_logit_bias *bias;
    size_t n_bias;
    const icp_ban *bans;
    size_t n_bans;
    int logprobs; /* -1: none; 0..20: of the chosen token and so many others */

    /* -- logits of the prompt -- */
    bool prompt_logprobs; /* log-probabilities of prompt tokens after logits_from come as events */
    /* Called on the engine's thread with the logits after prompt[0..position], for each position
     * >= logits_from. The prefix hit ends at logits_from at the latest. May be NULL. */
    void (*on_logits)(void *arg, size_t position, const float *row, size_t n_vocab);
    void *on_logits_arg;
    size_t logits_from;

    bool progress; /* PROGRESS events tell how far the prompt is: what is cached, each chunk */

    /* -- cache -- */
    const char *tenant;    /* from the API key, never from the caller's own words; NULL: "" */
    const char *salt;      /* narrows the tenant's namespace; NULL: "" */
    bool no_cache;         /* finds nothing and leaves nothing */
    size_t max_hit;        /* at most so many tokens are taken from the cache; SIZE_MAX: all */
    bool no_store;         /* may find, but leaves nothing behind that was not there before */
    double ttl;            /* seconds after which what only it left behind is forgotten; 0: never */
    double pin;            /* seconds for which nothing of it is evicted; 0: not pinned. Pins yield
                            * when a request could not run otherwise */
    const icp_mark *marks; /* n_marks, at most ICP_MAX_MARKS, in ascending order of position */
    size_t n_marks;
    bool session_end; /* nobody comes back: what only it used is evicted first */
    bool from_text;   /* the prompt was tokenized from text: where sampled tokens of the cache
                       * spell the same bytes, they take the place of its own */
    bool diagnose;    /* a reason may be that the tenant has it under another salt, or with other
                       * adapters: not to be told to users whom the tenant keeps apart by salts */
    int priority;     /* smaller runs earlier */

    /* Called when events are there to be taken; from the engine's thread, must not block. After
     * icp_request_free has returned neither callback is called any more; so neither may free its
     * request, nor wait for a lock under which icp_request_free is called. */
    void (*wake)(void *arg);
    void *wake_arg;
} icp_request_opts;

enum { ICP_MAX_N = 128, ICP_MAX_LOGPROBS = 20, ICP_MAX_STOPS = 64 };

/* Neutral values: n = 1, max_tokens = -1, temperature 1, everything else off. */
void icp_request_opts_init(icp_request_opts *opts);

enum icp_event_kind {
    ICP_EVENT_PROMPT,
    ICP_EVENT_TOKEN,
    ICP_EVENT_FINISH,
    ICP_EVENT_DONE,
    ICP_EVENT_PROGRESS
};
enum icp_finish {
    ICP_FINISH_STOP,
    ICP_FINISH_STOP_STRING,
    ICP_FINISH_LENGTH,
    ICP_FINISH_CANCELLED,
    ICP_FINISH_ERROR,
    ICP_FINISH_STUCK
}; /* the grammar wants more, but no token that may be drawn fits */

typedef struct icp_logprob {
    int32_t token;
    float logprob; /* natural logarithm, of the distribution before sampling parameters */
} icp_logprob;

/* Why prompt tokens were computed though there is a cache.
 * X(name, text, what it means) */
#define ICP_MISSES(X)                                                                              \
    X(NONE, "", "only the last token was computed, as always")                                     \
    X(OFF, "cache off", "the request, or the server, uses no cache")                               \
    X(LIMITED, "limited by the request", "max_hit, or logits that were wanted")                    \
    X(NEW, "never seen", "what is cached ends here, or nothing is")                                \
    X(DIFFERENT, "other text", "what is cached goes on with other tokens")                         \
    X(EVICTED, "evicted", "it was cached; others needed the memory")                               \
    X(QUOTA, "over quota", "it was cached; the tenant needed the memory itself")                   \
    X(EXPIRED, "expired", "it was cached; its time to live was over")                              \
    X(DROPPED, "dropped", "it was cached until somebody dropped the cache")                        \
    X(UNSTORED, "not stored", "it was computed before, and left nothing as it wished")             \
    X(NAMESPACE, "other salt", "the tenant has it under another salt")                             \
    X(ADAPTERS, "other adapters", "the tenant has it with other adapters, or other scales")        \
    X(STATE, "no state checkpoint", "its keys are cached, the model's recurrent state is not")     \
    X(WINDOW, "evicted behind the window", "a part of it went that only longer prompts can spare")

enum icp_miss_reason {
#define ICP_MISS_ENUM(name, text, meaning) ICP_MISS_##name,
    ICP_MISSES(ICP_MISS_ENUM)
#undef ICP_MISS_ENUM
        ICP_N_MISSES
};
const char *icp_miss_name(enum icp_miss_reason reason); /* the text of the table */

enum { ICP_MISS_TOKENS = 8 };
typedef struct icp_miss {
    enum icp_miss_reason reason;
    size_t position; /* of the first token that was not there */
    size_t n_missed; /* tokens that were computed */
    /* EVICTED to UNSTORED, WINDOW: that many seconds ago; tokens up to here had been there; and for
     * EVICTED the pages that were in use at that time, of all. */
    double ago;
    size_t lost_to, pages_in_use, pages;
    size_t elsewhere; /* NAMESPACE, ADAPTERS: tokens that are there */
    /* The tokens there, and (DIFFERENT) those that are cached instead. */
    int32_t own[ICP_MISS_TOKENS], cached[ICP_MISS_TOKENS];
    int n_own, n_cached;
} icp_miss;

typedef struct icp_usage { /* computed + cached = prompt, always */
    size_t prompt_tokens, cached_tokens, completion_tokens;
    double queued_s, first_token_s, total_s; /* seconds since submission */
    icp_miss why;     /* of the first token that was computed and was not the last */
    const char *miss; /* its reason's name */
    size_t respelled; /* prompt tokens that were exchanged for sampled ones (from_text) */
} icp_usage;

/*   PROMPT  token, chosen, rank, top: of prompt token `position` (with prompt_logprobs)
 *   TOKEN   choice, token, text that became complete (may be empty), chosen, rank, top
 *   FINISH  choice, finish, the last text, stop_index of a stop string
 *           both: usage, of which only prompt_tokens and cached_tokens are known yet
 *   DONE    usage; vector (with embed); the last event of a request; finish is ICP_FINISH_ERROR
 *           with `error` set when the request failed as a whole */
typedef struct icp_event {
    enum icp_event_kind kind;
    int choice;
    int32_t token;
    size_t position;
    const char *text; /* valid until the next call on this request */
    size_t text_len;
    icp_logprob chosen;
    size_t rank; /* of chosen: 1, and how many are more likely */
    icp_logprob top[ICP_MAX_LOGPROBS];
    int n_top;
    enum icp_finish finish;
    int stop_index; /* which stop string; -1 */
    int error;      /* an ICP_E code */
    icp_usage usage;
    /* As it was pooled, of no particular length. Without pooling: of each token, one after the
     * other. Until the request is freed. */
    const float *vector;
    size_t n_vector; /* numbers */
} icp_event;

typedef struct icp_stats {   /* since the engine was opened, unless a moment is meant */
    size_t running, waiting; /* now */
    uint64_t requests, finished_stop, finished_length, cancelled, failed, preemptions;
    uint64_t stalls; /* completions that stopped until their caller had read more of them */
    uint64_t prompt_tokens, computed_tokens, cached_tokens, generation_tokens;
    uint64_t steps;
    size_t pages, pages_free, pages_used, pages_cached, page_size, cache_limit; /* now */
    size_t checkpoints, checkpoint_pages; /* now: kept states of recurrent and hybrid models */
    size_t hollow_pages; /* now: known pages whose memory went to others, behind a window */
    size_t
        hit_step; /* hits end at multiples of so many tokens: of a page's for such models, or 1 */
    uint64_t evictions, expired, copies, adoptions, duplicates;
    uint64_t respelled;                 /* prompt tokens exchanged for sampled ones */
    uint64_t missed[ICP_N_MISSES];      /* prompt tokens computed, by reason */
    size_t pins, pinned_pages, tenants; /* now */
    uint64_t pins_yielded;
    /* Bytes, now: all that the limit holds. fixed: arrays made at start, logits among them;
     * requests: of request_limit at most; the rest is the cache's: pages, and bookkeeping in
     * metadata. */
    size_t limit, fixed, requests_size, requests_limit, metadata;
    /* What a cache with so many times the pages would have found of the full pages of prompts, if
     * it evicted the least recently used ones; estimated, 0 to 1, of late. asked: so many pages
     * tell that; 0: nothing is known. */
#define ICP_CURVE_SCALES                                                                           \
    { 0.5, 1, 2, 4 }
#define ICP_N_CURVE 4
    struct icp_curve {
        double asked, found[ICP_N_CURVE];
    } curve;
    double max_pause, step_s, row_s; /* seconds: bound, measured step, each prompt token more */
    /* Histograms over fixed bounds (seconds), cumulative counts as Prometheus has them. */
#define ICP_LATENCY_BOUNDS                                                                         \
    {                                                                                              \
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,      \
            10.0, 20.0, 40.0, 80.0, 160.0                                                          \
    }
#define ICP_N_LATENCY 20
    struct icp_histogram {
        uint64_t bucket[ICP_N_LATENCY + 1]; /* the last one: everything */
        double sum;
    } ttft, tpot, e2e, queue;
} icp_stats;

#endif
