/* Generations: what a body asked for, in the making, and how the APIs say it.
 *
 *   body ─▶ a dialect's reader ─▶ chat body (OpenAI's chat form) ─▶ generation ─▶ engine
 *                                                                       │ events
 *   bytes ◀── a dialect's writer ◀── output: choices of items ◀─────────┘
 *
 * There is one internal request, the chat body: the other APIs for chats bring theirs into its form
 * and go the same way from there. There is one internal output: a choice is a run of items (text,
 * reasoning, tool calls), which Responses calls output items and Messages content blocks. */
#ifndef GENERATION_H
#define GENERATION_H

#include "serve_internal.h"

/* ---- what a body asks for (openai_request.c) ------------------------------------------------ */

/* The fields that all generating routes have in common. */
typedef struct generate_opts {
    icp_request_opts request; /* its pointers point into the body's JSON or to what follows */
    char **stop;              /* request.n_stop of them, owned: an answer may name one */
    icp_tokens stop_tokens;
    icp_logit_bias *bias;
    float *lora;
    icp_ban *bans;                 /* request.n_bans of them, whose tokens are those of */
    icp_tokens *banned;            /* … these */
    int max_tokens;                /* -1: not said */
    int logprobs, prompt_logprobs; /* -1: none; else so many beside the token itself */
    bool stream, include_usage, continuous_usage, skip_special;
    bool return_tokens; /* answers tell token ids too */
    bool diagnostics;   /* the answer says why prompt tokens were computed */
} generate_opts;

/* The caller calls generate_opts_fini in any case. */
bool generate_opts_read(generate_opts *o, json_object *body, size_t n_vocab, reply *error);
/* What speaks of tokens by their text: bad_words; and allowed_token_ids, return_token_ids
 * (token_fields.c). After the others. */
bool token_fields_read(generate_opts *o, json_object *body, const icp_model *model, reply *error);
/* What the answer must look like (grammar_fields.c): request.grammar. */
bool grammar_fields_read(generate_opts *o, json_object *body, icp_model *model, reply *error);
/* Which adapters count how much (lora.c). */
bool lora_fields_read(generate_opts *o, json_object *body, served *m, reply *error);
void generate_opts_fini(generate_opts *o);
/* Those that concern the cache (cache_fields.c). */
bool cache_fields_read(generate_opts *o, json_object *body, reply *error);
/* What marks the end of a prefix to be cached, on a part of a prompt: an object of one kind, with a
 * ttl or without. */
typedef struct cache_mark {
    const char *name, *kind_name, *kind;
    double ttl; /* where it has none; seconds */
} cache_mark;
#define PROMPT_CACHE_BREAKPOINT (&(cache_mark){"prompt_cache_breakpoint", "mode", "explicit", 1800})
#define CACHE_CONTROL (&(cache_mark){"cache_control", "type", "ephemeral", 300})
/* Checks the one of a part, if there is one; param names the part ("": the body). */
bool cache_mark_read(json_object *owner, const cache_mark *mark, const char *param, reply *error);
/* Its ttl, once checked; 0: the part has none. */
double cache_mark_ttl(json_object *owner, const cache_mark *mark);

/* ---- output (output.c) ---------------------------------------------------------------------- */

enum { N_LISTS = 4 }; /* JSON lists that a dialect keeps for log-probabilities */

/* Log-probabilities of a run of tokens, as items of JSON lists. */
typedef struct logprobs {
    buf list[N_LISTS];
    size_t offset; /* characters of text before the next token */
} logprobs;

/* A prompt: one request of the engine. */
typedef struct prompt {
    icp_tokens ids;
    bool from_text; /* the client sent text, not ids */
    size_t second;  /* of a pair to be ranked: where its second text begins; 0: there is none */
    char *echo;     /* its text, when the answer repeats it */
    size_t echo_len;
    logprobs logprobs;         /* of its tokens, when the answer repeats it */
    buf listed;                /* the same as vLLM tells them, when asked for */
    icp_request *request;      /* NULL before it is submitted and when it is done */
    size_t n_tokens, n_cached; /* as the engine found it; from its first event of a choice on */
    size_t n_ready;            /* tokens that are computed or cached, where that is asked for */
    double began;              /* when the first of these was told; 0: none was */
} prompt;

enum item_kind { ITEM_TEXT, ITEM_REASONING, ITEM_CALL };

/* A part of a completion. */
typedef struct item {
    enum item_kind kind;
    char id[40]; /* of its own; of a call the one that its result names */
    char *name;  /* of a call: the function; owned */
    buf text;    /* of a call: the arguments, as JSON */
    size_t sent; /* so much of the text went into the stream */
} item;

/* One completion in the making. Log-probabilities are what the stream has not carried yet. */
typedef struct choice {
    prompt *prompt;
    size_t index;
    item *items; /* the last one is open until the choice ends */
    size_t n_items;
    icp_chat_parser *parser; /* of chats */
    logprobs logprobs;
    buf tokens; /* ids, comma separated, likewise; when they are wanted */
    bool begun, ended;
    enum icp_finish finish; /* once it has ended */
    int stop_index;         /* of the stop string that ended it; -1 */
} choice;

/* Adds to a choice's output. Text of another kind than the open item's ends that and begins a new
 * one. A call begins with its name and the id that the model gave (""; none); its arguments follow
 * as text of ITEM_CALL. */
void output_text(generation *g, choice *c, enum item_kind kind, const char *text, size_t len);
void output_call(generation *g, choice *c, const char *id, const char *name, size_t len);
/* Puts what the stream has not carried yet into it. */
void output_flush(generation *g, choice *c);
/* Ends the choice and its last item; one without items gets an empty text. */
void output_end(generation *g, choice *c);
void output_fini(choice *c);

/* All text of one kind. */
void put_output(buf *out, const choice *c, enum item_kind kind);
size_t count_calls(const choice *c);

/* ---- dialects ------------------------------------------------------------------------------- */

/* What a stream is told about, in this order. */
enum output_event {
    OUTPUT_BEGINS,        /* once; the first token, or earlier, see dialect.early */
    OUTPUT_PROGRESS,      /* more of choice->prompt is ready; comes before its choices begin */
    OUTPUT_CHOICE_BEGINS, /* its first token, though its text may come later */
    OUTPUT_ITEM_BEGINS,
    OUTPUT_DELTA, /* item->text from item->sent on, and log-probabilities; item NULL: only those */
    OUTPUT_ITEM_ENDS,
    OUTPUT_CHOICE_ENDS,
    OUTPUT_ENDS, /* once; g->failure says whether well */
};

/* What a model is for: each serves one purpose. */
enum purpose { TO_GENERATE, TO_EMBED, TO_RANK, TO_ANY };

/* What differs between the APIs. */
typedef struct dialect {
    const char *id_prefix, *call_prefix; /* of calls; NULL: "call_" */
    enum purpose purpose;                /* of the models that it takes */
    const char *prompt_field; /* where prompts stand, for errors; NULL: among the messages */
    bool early; /* a stream begins before the prompt is computed, and tells of a full context too */
    /* Adds a token; event NULL: the first of a prompt, which has no probability. */
    void (*add_logprob)(generation *g, logprobs *to, int32_t token, const icp_event *event);
    /* Puts an event into g->out. */
    void (*stream)(generation *g, enum output_event what, choice *c, item *i);
    /* Appends a whole answer. */
    void (*put_whole)(generation *g, buf *out);
    /* Takes the vector of prompt i, which is done and has numbers only; NULL where nobody wants
     * one. */
    void (*take_vector)(generation *g, size_t i, const icp_event *done);
    void (*free_own)(void *own); /* NULL when there is none */
} dialect;

/* ---- generations (generate.c) --------------------------------------------------------------- */

/* All completions of one call.
 *
 *   prompts  0 .. n_done .. n_submitted .. n_prompts     (done in any order)
 *   choices  n of each prompt, in a row
 *
 * Prompts are submitted in order as far as the engine's queue takes them; when one is done the next
 * follows. A stream's bytes wait in `out`; they are encoded when the socket asks for them, so that
 * a slow reader holds events in the engine and little here. */
struct generation {
    call *call;
    const dialect *dialect;
    void *own;         /* the dialect's */
    json_object *body; /* holds what opts points to, until all is submitted */
    generate_opts opts;
    bool echo;

    prompt *prompts;
    icp_marks marks; /* of the prompt of a chat */
    size_t n_prompts, n_submitted, n_done;
    choice *choices;

    char id[64];
    int64_t created;
    trace_space space;  /* for the trace */
    icp_usage usage;    /* of the prompts that are done */
    size_t n_generated; /* tokens so far */
    size_t n_reasoning; /* of those, in choices that have ended */
    bool one_call;      /* of a choice, at most */
    reply failure;      /* status: 0 while all is well */
    buf out;            /* of the stream */
    size_t out_at;      /* sent so far */
    bool begun;         /* OUTPUT_BEGINS was told */
    bool ended;         /* the stream's last byte is in out */
};

/* A generation with its options read from the body, and n_prompts prompts to be filled in; NULL
 * with an error in c->reply. generation_submit starts it and makes it the call's, or frees it: with
 * an error in c->reply unless the client has gone. */
generation *generation_new(call *c, const dialect *d, json_object *body, size_t n_prompts);
void generation_submit(generation *g);
size_t count_choices(const generation *g);
size_t count_prompt_tokens(const generation *g); /* of the prompts submitted so far */

/* ---- what dialects share (encode.c) --------------------------------------------------------- */

/* A server-sent event: begin, the data on one line, end. name NULL: without one. */
void event_begin(buf *out, const char *name);
void event_end(buf *out);
void put_json_string(buf *out, const char *text, size_t len);
void put_string_member(buf *out, const char *before, const char *text); /* before: ",\"name\":" */
void put_logprob(buf *out, float value); /* finite, whatever it was */
/* An item of log-probabilities: a token as `put` writes it (all but its closing brace), and those
 * that could have stood there, as its top_logprobs. */
typedef void put_token_fn(const generation *g, buf *out, const icp_logprob *p);
void add_logprob_item(const generation *g, logprobs *to, const icp_event *event, put_token_fn *put);
/* An item of chat's log-probabilities: {"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]}. */
void add_chat_logprob(generation *g, logprobs *to, int32_t token, const icp_event *event);
void put_usage(const generation *g, buf *out);
void put_prompt_usage(const generation *g, buf *out); /* where nothing is generated */
/* The last chunk of an OpenAI stream, begun as far as its empty "choices":[ */
void put_usage_chunk(generation *g);
/* Appends ,"prompt_cache_diagnostics":{…} when the request asked for it (cache_fields.c). */
void put_cache_diagnostics(const generation *g, buf *out);
/* Why prompt tokens were computed, as an object with a message for people. */
void put_miss(const icp_model *model, buf *out, const icp_usage *u);
/* Appends the usage of a chunk of OpenAI's older streams, as far as the options want one: what is
 * cached is known only at the end. */
void put_chunk_usage(const generation *g, buf *out);
/* The last words of OpenAI's older streams: the error if any, [DONE]. */
void put_done(generation *g);
/* The bytes of one token; *len of them, NUL-terminated, icp_free. NULL: no memory. */
char *token_bytes(const generation *g, int32_t token, size_t *len);
/* "stop", "length" or "tool_calls". */
const char *finish_reason(const choice *c);
/* prefix, and 24 random hexadecimal digits. */
void make_id(char *out, size_t size, const char *prefix);

/* Appends ,"timings":{…} as llama-server tells them. */
void put_timings(buf *out, const icp_usage *u);
/* Appends ,"prompt_progress":{…} as llama-server tells it. */
void put_progress(buf *out, const prompt *p);
/* Appends ,"token_ids":[…] when they are wanted, as vLLM tells them; and for the first words of a
 * choice ,"prompt_token_ids":[…]. */
void put_token_ids(const generation *g, buf *out, const choice *c);
void put_prompt_token_ids(const generation *g, buf *out, const choice *c);
/* Appends ,"prompt_logprobs":[null,{"ID":{"logprob":…,"rank":…,"decoded_token":…},…},…] when they
 * are wanted; and a token to such a list. */
void put_prompt_logprobs(const generation *g, buf *out, const choice *c);
void add_prompt_logprob(const generation *g, buf *to, const icp_event *event);

/* ---- completions (prompts.c, fim.c) --------------------------------------------------------- */

/* How many prompts the value of a field has (a text, token ids, or a list of those); 0 with an
 * error: none, or too many. */
size_t prompts_count(json_object *value, const char *param, size_t most, reply *error);
/* Reads them all; frame: with BOS and EOS where the vocabulary asks. false with an error. */
bool prompts_read(generation *g, json_object *value, const char *param, bool frame);
/* A generation for the prompts of a body, ready to be submitted; NULL with an error in c->reply. */
generation *prompts_generation(call *c, const dialect *d, json_object *body);

/* A text to be filled in. JSON strings; extra: a list of {filename, text} that gives context; NULL:
 * none. */
typedef struct fim_parts {
    json_object *prefix, *suffix, *extra;
    const char *typed; /* after the prefix; NULL: nothing */
} fim_parts;
/* Tokenizes it with the vocabulary's own tokens for it; false with an error when it has none. */
bool fim_tokenize(call *c, const fim_parts *parts, icp_tokens *out);

/* ---- chats (chat_prompt.c, openai_chat.c) --------------------------------------------------- */

/* The prompt of a chat body: checked messages, tools and template arguments, tokenized. marks, text
 * (may be NULL): as icp_chat_tokenize gives them. */
bool chat_tokenize(call *c, json_object *body, icp_tokens *out, icp_marks *marks, char **text);
/* A generation for a chat body, ready to be submitted; NULL with an error in c->reply. */
generation *chat_generation(call *c, const dialect *d, json_object *body);

/* ---- answers of chats (chat_answer.c) ----------------------------------------------------------
 */

/* What a chat body allows the model to call. */
typedef struct tool_choice {
    json_object *tools; /* owned; NULL: nothing */
    bool required;      /* it must call one */
    bool single;        /* and no more than one in an answer */
} tool_choice;

/* The caller calls tool_choice_fini in any case. */
bool tool_choice_read(tool_choice *out, json_object *body, reply *error);
void tool_choice_fini(tool_choice *choice);
/* Gives each choice of a generation whose prompt is ready a parser. */
bool answers_open(generation *g, const tool_choice *tools, reply *error);
/* Makes output of an event of a choice that has one. */
void answer_take(generation *g, choice *c, const icp_event *e);

#endif
