/* incipit: a language model server as a library.
 *
 *   icp_model   a GGUF file opened: weights, vocabulary, chat template. Immutable, shared.
 *   icp_engine  runs requests on a model through one prefix cache. Has a thread of its own.
 *   icp_request one prompt and its completions: submit, take events, free.
 *
 * All functions may be called from any thread. Functions that return int give 0 or a negative
 * ICP_E code (icp_error.h); icp_error * may be NULL. */
#ifndef INCIPIT_H
#define INCIPIT_H

#include "icp_chat.h"
#include "icp_error.h"
#include "icp_request.h"

typedef struct icp_model icp_model;
typedef struct icp_engine icp_engine;
typedef struct icp_request icp_request;

const char *icp_version(void);
/* "scalar", "avx2", …: what this machine can run, best last; NULL at the end. */
const char *const *icp_isas(void);

/* ---- model ---------------------------------------------------------------------------------- */

typedef struct icp_adapter { /* LoRA, a GGUF file */
    const char *path;
    float scale; /* what it counts where a request says nothing; 0: it does not */
} icp_adapter;

typedef struct icp_rope {                     /* zero: what the file says */
    const char *scaling;                      /* "none", "linear" or "yarn" */
    double factor;                            /* the context grows by it */
    double base;                              /* of the frequencies */
    int n_ctx_orig;                           /* the context before scaling */
    double beta_fast, beta_slow, attn_factor; /* of YaRN */
} icp_rope;

typedef struct icp_model_opts {
    const char *isa; /* NULL: the best; an unusable one is ICP_EUNSUPPORTED */
    const char *kv;  /* "f16" (default), "bf16", "q8_0" or "f32" (default where nothing is kept:
                      * of a model that sees whole texts) */
    size_t n_ctx;    /* 0: as trained, or what rope is scaled to */
    icp_rope rope;
    int n_threads; /* 0: one for each core this process may use, container quotas included */
    /* Called by the opening thread while it loads, done in 0..1. May be NULL. */
    void (*progress)(void *arg, double done);
    void *progress_arg;
    bool pin_threads; /* each to a processor of its own, one of each core first; ICP_EINVALID: there
                       * are fewer */
    bool lock;        /* weights stay in memory, whatever else needs it; ICP_ELIMIT: may not be */
    bool vocab_only;  /* text functions only: no weights are read */
    int64_t template_time;       /* what its template takes for now, seconds since 1970; 0: now */
    const icp_adapter *adapters; /* n_adapters */
    size_t n_adapters;
} icp_model_opts;

/* opts may be NULL. On failure *err has a sentence that names the file and what is wrong. */
int icp_model_open(const char *path, const icp_model_opts *opts, icp_model **out, icp_error *err);
void icp_model_close(icp_model **m); /* its engines must be closed */

typedef struct icp_model_info {
    const char *arch, *name, *isa, *kv;
    /* "mean", "cls", "last" or "none": it embeds texts; "rank": it ranks documents, the first
     * number of a pair's vector is its score; NULL: it generates. */
    const char *pooling;
    size_t n_vector; /* numbers of a text's vector ("none": of a token's) */
    bool
        whole_texts; /* a token sees what follows, too: no text begins another, nothing is cached */
    size_t n_vocab, n_ctx, n_ctx_train, n_layer, n_embd, n_head, n_head_kv;
    uint64_t n_params, n_active;      /* all, and those that a token is multiplied with */
    size_t weights_size, active_size; /* bytes of both, repacked */
    size_t page_size, page_tokens, file_size;
    int n_threads;
    int n_nodes; /* of memory, over which weights and cache are spread; 1: not spread; negative: the
                  * system does not let them be, and they lie where they were first written */
    bool has_template;
} icp_model_info;
const icp_model_info *icp_model_get_info(const icp_model *m);
/* Those that it was opened with, *n of them. */
const icp_adapter *icp_model_get_adapters(const icp_model *m, size_t *n);

/* What the machine can do at most with the model's threads and instruction set. */
typedef struct icp_machine {
    double read;     /* bytes a second, of as much memory as a token's weights take */
    double multiply; /* pairs of bytes a second, out of registers */
} icp_machine;
/* Measures it, which takes a second or so and all processors. ICP_ENOMEM. */
int icp_measure_machine(icp_model *m, icp_machine *out, icp_error *err);

/* Describes a GGUF file for people (metadata and tensors), as text; *out is freed by icp_free. */
int icp_describe_file(const char *path, char **out, icp_error *err);
void icp_free(void *block);

/* ---- text ----------------------------------------------------------------------------------- */

typedef struct icp_tokens { /* zero-initialise; freed by icp_tokens_free */
    int32_t *id;
    size_t n;
} icp_tokens;
void icp_tokens_free(icp_tokens *t);

typedef struct icp_marks {
    icp_mark at[ICP_MAX_MARKS];
    size_t n;
} icp_marks;

/* special: find special tokens in text; bos: put BOS (EOS) around where the vocabulary asks. */
int icp_tokenize(const icp_model *m, const char *text, size_t len, bool special, bool bos,
                 icp_tokens *out, icp_error *err);
/* Bytes of ids, raw (icp_free). ICP_EINVALID: an id is out of range. */
int icp_detokenize(const icp_model *m, const int32_t *ids, size_t n, bool keep_special, char **out,
                   size_t *len, icp_error *err);
/* A query and a document for a model that ranks: in the template of its file, or as the pair that
 * its vocabulary makes. Nothing of the texts becomes a special token. *second: as icp_request_opts
 * has it. ICP_EUNSUPPORTED: it makes none. */
int icp_tokenize_pair(const icp_model *m, const char *query, size_t query_len, const char *document,
                      size_t document_len, icp_tokens *out, size_t *second, icp_error *err);
int32_t icp_token_bos(const icp_model *m);
int32_t icp_token_eos(const icp_model *m);

/* A chat, as a JSON object: messages and tools as OpenAI's chat API has them, documents,
 * add_generation_prompt (the first three are null and the last false when absent), and other
 * variables that the template reads, at the top or in an object `extra`. Brought to the form that
 * the model's template wants, rendered with it (ICP_EUNSUPPORTED without one), and tokenized so
 * that only the template's own bytes can become special tokens. text (may be NULL): the rendered
 * prompt, NUL-terminated, icp_free. ICP_EFORMAT: a call's arguments are no JSON object;
 * ICP_EINVALID: the template raised; err has its message.
 *   A message may have `breakpoints`, an ascending list of pairs [bytes of its content, ttl in
 * seconds], and a tool a `breakpoint`, its ttl: they are not rendered, and the last four count.
 * marks (may be NULL): where these stand among the tokens, and where messages end if the model has
 * use for that; what the tokenizer or the template changed beyond recognition is left out. */
int icp_chat_tokenize(const icp_model *m, const char *chat_json, icp_tokens *out, icp_marks *marks,
                      char **text, icp_error *err);
/* Renders such a chat, which may have bos_token and eos_token too, with any template; text as
 * above, now as an icp_model's template_time. */
int icp_template_render(const char *source, size_t len, const char *chat_json, int64_t now,
                        char **text, size_t *text_len, icp_error *err);
const char *icp_model_template(const icp_model *m); /* NULL when the file has none */
/* What the model's template can do; all false, with a dialect, when there is none. */
const icp_chat_caps *icp_model_chat_caps(const icp_model *m);

/* ---- answers of a chat ------------------------------------------------------------------------
 */

typedef struct icp_chat_parser icp_chat_parser; /* of one completion; one thread at a time */

typedef struct icp_chat_parser_opts {
    const char *tools_json; /* `tools` of the request, a list; NULL: calls stay text */
    const int32_t *prompt;  /* its end tells whether the answer begins as reasoning */
    size_t n_prompt;
    const char *begun; /* what the prompt has of the answer, from icp_chat_force; NULL: nothing */
    bool keep_special; /* control tokens that are no markers stay in content */
    bool marked; /* a grammar of tools is followed, where calls have the markers that they should */
} icp_chat_parser_opts;

/* Makes the answer to a prompt be a call of one of tools_json (a list): appends what such an answer
 * begins with to the prompt, and tells the JSON schema that what is generated must follow.
 * tools_json NULL: makes it begin as text, without reasoning; *schema is NULL then. begun, schema:
 * icp_free. ICP_EFORMAT: tools_json; ICP_ENOMEM. */
int icp_chat_force(const icp_model *m, const char *tools_json, icp_tokens *prompt, char **begun,
                   char **schema, icp_error *err);

/* Nothing of opts need outlive the call. ICP_EFORMAT: tools_json; ICP_ENOMEM. */
int icp_chat_parser_open(const icp_model *m, const icp_chat_parser_opts *opts,
                         icp_chat_parser **out, icp_error *err);
void icp_chat_parser_close(icp_chat_parser **p);
/* Takes an event (TOKEN, FINISH) of a request with keep_special; others say nothing. What the last
 * one told must have been taken before. ICP_ENOMEM. */
int icp_chat_parser_put(icp_chat_parser *p, const icp_event *event);
/* The next delta of that event, or of what was begun; its text is valid until the next put. */
bool icp_chat_parser_next(icp_chat_parser *p, icp_chat_delta *delta);
size_t icp_chat_parser_reasoning(const icp_chat_parser *p); /* tokens that were reasoning so far */

/* ---- grammars ------------------------------------------------------------------------------- */

/* What a text must follow, for icp_request_opts.grammar: compiled once, used by any number of
 * requests. Each refers to it, and it may be released at any time; the model must live longer than
 * all of them. Failures have a sentence. ICP_EINVALID: the source is malformed, or no finite text
 * follows it; ICP_EUNSUPPORTED: it asks for what cannot be enforced; ICP_ELIMIT: it is too complex;
 * ICP_ENOMEM. A token that prints as nothing, as control tokens do, never fits. */

/* A JSON Schema (2020-12). Every text is JSON that is valid under it, and has the properties of
 * objects in the order of the schema; objects that list properties are closed unless
 * additionalProperties says otherwise. */
int icp_grammar_from_schema(icp_model *m, const char *json, size_t len, icp_grammar **out,
                            icp_error *err);
int icp_grammar_from_json(icp_model *m, icp_grammar **out, icp_error *err); /* any JSON object */
/* llama.cpp's notation; the text is the rule `root`. Left recursion is not supported. */
int icp_grammar_from_gbnf(icp_model *m, const char *text, size_t len, icp_grammar **out,
                          icp_error *err);
/* The whole text matches. Without look-around, back-references, word boundaries, flags. */
int icp_grammar_from_regex(icp_model *m, const char *text, size_t len, icp_grammar **out,
                           icp_error *err);
/* One of n texts, which are UTF-8 and not empty. */
int icp_grammar_from_choices(icp_model *m, const char *const *texts, size_t n, icp_grammar **out,
                             icp_error *err);
/* The answer to a chat with tools (a list as OpenAI's chat API has it) of which some are strict:
 * any text, and calls in the model's dialect whose arguments are valid under the schemas of these.
 * *out is NULL when none is strict, or when the dialect is none that can be enforced. ICP_EFORMAT,
 * too: tools_json. ICP_EUNSUPPORTED, too: the dialect cannot write such names or arguments. */
int icp_grammar_from_tools(icp_model *m, const char *tools_json, icp_grammar **out, icp_error *err);
void icp_grammar_free(icp_grammar **g); /* NULL is fine */

/* ---- engine --------------------------------------------------------------------------------- */

typedef struct icp_engine_opts {
    size_t cache_limit; /* bytes; 0: from the machine's free memory */
    /* What it may become (icp_engine_set_limit); 0: it stays as it is. What a request may take, and
     * what is allocated at once, goes by the least. */
    size_t cache_least, cache_most;
    bool no_cache;
    int max_parallel;  /* sequences at once; 0: default */
    int chunk;         /* prompt tokens a step at most; 0: default */
    size_t max_queued; /* 0: default */
    double
        max_pause; /* seconds between two tokens of an answer while prompts are computed; 0: 0.15 */
    size_t tenant_quota; /* bytes of pages that a tenant may have; 0: no bound of its own */
    bool commit_ahead;   /* while idle, takes memory for pages before they are needed */
} icp_engine_opts;

int icp_engine_open(icp_model *m, const icp_engine_opts *opts, icp_engine **out, icp_error *err);
void icp_engine_close(icp_engine **e);
void icp_engine_get_stats(icp_engine *e, icp_stats *out);
/* Changes the limit, within cache_least and cache_most. When it returns, what it does not hold any
 * more is evicted, and its memory given back to the system: requests that had more of it go on
 * when there is room, and pins may have yielded. ICP_EUNSUPPORTED: it stays as it is; ICP_EAGAIN:
 * public prefixes take more. */
int icp_engine_set_limit(icp_engine *e, size_t limit);
/* Tokens of prompt and answer at most: the model's context, or what the cache has room for. */
size_t icp_engine_get_context(const icp_engine *e);

/* ICP_EINVALID, ICP_ELIMIT (longer than the context or the cache), ICP_EAGAIN (queue full). */
int icp_submit(icp_engine *e, const icp_request_opts *opts, icp_request **out, icp_error *err);
/* Takes the next event if there is one. */
bool icp_next(icp_request *r, icp_event *event);
/* Waits until there is one, at most so many seconds (negative: for ever); false: there is none. */
bool icp_wait(icp_request *r, double seconds);
void icp_cancel(icp_request *r);        /* a DONE event still comes */
void icp_request_free(icp_request **r); /* cancels when need be; at any time */

/* ---- cache ---------------------------------------------------------------------------------- */

/* Computes a public prefix, which every tenant's prompts may begin with: nobody learns from it what
 * others asked, for it is always there. Whole pages of it are shared; it stays until the engine is
 * closed. Before the first request. ICP_EINVALID: shorter than a page; ICP_ELIMIT. */
int icp_cache_share(icp_engine *e, const int32_t *tokens, size_t n, icp_error *err);

/* What would be found of a request's prompt now, and why the rest would be computed: as far as the
 * usage of a request tells it. tenant, salt, max_hit, no_cache and from_text of opts count. */
int icp_cache_why(icp_engine *e, const icp_request_opts *opts, icp_usage *out, icp_error *err);

/* A run of cached tokens without a branch; a tenant's form trees, in depth-first order. */
typedef struct icp_cache_node {
    size_t depth;    /* branches above it */
    size_t position; /* of its first token in a prompt */
    size_t n_tokens, n_sampled;
    size_t n_pages, n_in_use;
    size_t n_hollow;   /* beside n_pages: these are known, but their memory went to others */
    uint64_t hits;     /* of its last page */
    double idle_s;     /* since it was used */
    double ttl_s;      /* until it is forgotten; INFINITY: it is not */
    int32_t first[16]; /* its first tokens */
    int n_first;
    char salt[64]; /* cut */
} icp_cache_node;
typedef struct icp_cache_list { /* zero-initialise; icp_cache_list_free */
    icp_cache_node *node;
    size_t n;
    bool more;                     /* there are more nodes than were wanted */
    size_t n_pages, n_idle, quota; /* pages of the tenant; quota: SIZE_MAX when there is none */
    size_t n_pins, page_size, page_tokens;
} icp_cache_list;
int icp_cache_get_list(icp_engine *e, const char *tenant, size_t most, icp_cache_list *out);
void icp_cache_list_free(icp_cache_list *list);

/* Forgets what no running request of the tenant uses, pins included. */
void icp_cache_drop(icp_engine *e, const char *tenant);

#endif
