#include "stub.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct icp_model {
    icp_model_info info;
};

struct event {
    struct event *next;
    icp_event event;
    char text[8];
};

struct icp_request {
    icp_engine *engine;
    icp_request *next;
    icp_request_opts opts;
    char *prompt, *reply;
    size_t n_reply, count; /* bytes of one turn, turns */
    bool hang, gate, breaks;
    int stop_index; /* -1: ends otherwise */
    size_t *at;     /* of each choice: next token */
    bool prompt_told, done;
    char held[8]; /* bytes of a character that is not whole yet; of the one choice that runs */
    int n_held, running;
    struct event *first, *last, *taken;
};

struct icp_engine {
    pthread_t thread;
    pthread_mutex_t lock;
    bool closing;
    icp_request *requests;
};

static pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
static stub_counts counts;
static stub_seen seen;
static atomic_bool gate_open;

stub_counts stub_count(void) {
    pthread_mutex_lock(&world);
    stub_counts copy = counts;
    pthread_mutex_unlock(&world);
    return copy;
}

stub_seen stub_last(void) {
    pthread_mutex_lock(&world);
    stub_seen copy = seen;
    pthread_mutex_unlock(&world);
    return copy;
}

void stub_open_gate(void) {
    gate_open = true;
}
void stub_close_gate(void) {
    gate_open = false;
}

static int fail(icp_error *err, int code, const char *text) {
    if (err) {
        err->code = code;
        snprintf(err->text, sizeof err->text, "%s", text);
    }
    return code;
}

/* ---- model ----------------------------------------------------------------------------------- */

const char *icp_version(void) {
    return "0.0-stub";
}
void icp_free(void *block) {
    free(block);
}

int icp_model_open(const char *path, const icp_model_opts *opts, icp_model **out, icp_error *err) {
    if (!strcmp(path, "missing")) return fail(err, ICP_EIO, "missing: no such file");
    while (!strcmp(path, "slow") && !gate_open) usleep(1000);
    icp_model *m = calloc(1, sizeof *m);
    m->info = (icp_model_info){.arch = "stub",
                               .name = "stub-model",
                               .isa = "scalar",
                               .kv = "f16",
                               .n_vocab = STUB_VOCAB,
                               .n_ctx = STUB_CTX,
                               .n_ctx_train = STUB_CTX,
                               .n_embd = 8,
                               .n_params = 1000,
                               .file_size = 2000,
                               .n_threads = 1,
                               .has_template = true};
    *out = m;
    return 0;
}

void icp_model_close(icp_model **m) {
    free(*m);
    *m = NULL;
}

const icp_model_info *icp_model_get_info(const icp_model *m) {
    return &m->info;
}

const icp_adapter *icp_model_get_adapters(const icp_model *m, size_t *n) {
    static const icp_adapter adapters[STUB_ADAPTERS] = {{"a/first.gguf", 1},
                                                        {"second.gguf", 0.25f}};
    *n = STUB_ADAPTERS;
    return adapters;
}

void icp_tokens_free(icp_tokens *t) {
    free(t->id);
    *t = (icp_tokens){0};
}

int icp_tokenize(const icp_model *m, const char *text, size_t len, bool special, bool bos,
                 icp_tokens *out, icp_error *err) {
    out->id = malloc((len + 1) * sizeof *out->id);
    out->n = len;
    for (size_t i = 0; i < len; i++) out->id[i] = (unsigned char)text[i];
    return 0;
}

int icp_tokenize_pair(const icp_model *m, const char *query, size_t query_len, const char *document,
                      size_t document_len, icp_tokens *out, size_t *second, icp_error *err) {
    *second = 0;
    return icp_tokenize(m, document, document_len, false, true, out, err);
}

int icp_detokenize(const icp_model *m, const int32_t *ids, size_t n, bool keep_special, char **out,
                   size_t *len, icp_error *err) {
    *out = malloc(3 * n + 1);
    *len = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 256)
            (*out)[(*len)++] = (char)ids[i];
        else if (ids[i] == 256 && keep_special)
            *len += (size_t)sprintf(*out + *len, "<s>");
    }
    (*out)[*len] = 0;
    return 0;
}

int32_t icp_token_bos(const icp_model *m) {
    return 256;
}
int32_t icp_token_eos(const icp_model *m) {
    return -1;
}
const char *icp_model_template(const icp_model *m) {
    return "{{ template }}";
}

/* Members ,"breakpoints":[[N,TTL],…] and ,"breakpoint":TTL are not rendered: there are marks where
 * they stood. */
static void cut_breakpoints(char *chat, icp_marks *marks) {
    if (marks) marks->n = 0;
    for (char *at = chat; (at = strstr(at, ",\"breakpoint"));) {
        bool list = at[12] == 's';
        char *p = strchr(at, ':') + 1, *end = list ? strstr(p, "]]") + 2 : p + strcspn(p, ",}");
        for (char *ttl = list ? strchr(p, ',') + 1 : p; ttl && ttl < end;) {
            if (marks) marks->at[marks->n++] = (icp_mark){(size_t)(at - chat), atof(ttl)};
            ttl = list ? strstr(ttl, "],[") : NULL;
            if (ttl) ttl = strchr(ttl + 3, ',') + 1;
        }
        memmove(at, end, strlen(end) + 1);
    }
}

int icp_chat_tokenize(const icp_model *m, const char *chat_json, icp_tokens *out, icp_marks *marks,
                      char **text, icp_error *err) {
    while (strstr(chat_json, "@think;") && !gate_open) usleep(1000);
    if (strstr(chat_json, "@raise;")) return fail(err, ICP_EINVALID, "orders are orders");
    char *plain = strdup(chat_json);
    cut_breakpoints(plain, marks);
    icp_tokenize(m, plain, strlen(plain), false, false, out, err);
    if (text)
        *text = plain;
    else
        free(plain);
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

void icp_request_opts_init(icp_request_opts *opts) {
    *opts = (icp_request_opts){.n = 1,
                               .max_tokens = -1,
                               .temperature = 1,
                               .top_p = 1,
                               .repetition_penalty = 1,
                               .logprobs = -1,
                               .max_hit = SIZE_MAX};
}

static void record(const icp_request_opts *o) {
    pthread_mutex_lock(&world);
    counts.submitted++;
    counts.alive++;
    seen = (stub_seen){.opts = *o, .stop_token = -1, .bias_token = -1};
    snprintf(seen.tenant, sizeof seen.tenant, "%s", o->tenant ? o->tenant : "");
    snprintf(seen.salt, sizeof seen.salt, "%s", o->salt ? o->salt : "");
    for (size_t i = 0; i < o->n_stop && i < 2; i++)
        snprintf(seen.stop[i], sizeof seen.stop[i], "%s", o->stop[i]);
    if (o->n_stop_tokens) seen.stop_token = o->stop_tokens[0];
    for (size_t i = 0; i < o->n_adapter_scales && i < STUB_ADAPTERS; i++)
        seen.scales[i] = o->adapter_scales[i];
    if (o->n_marks) memcpy(seen.marks, o->marks, o->n_marks * sizeof *o->marks);
    if (o->n_bias) seen.bias_token = o->bias[0].token, seen.bias = o->bias[0].bias;
    const icp_ban *last = o->n_bans ? &o->bans[o->n_bans - 1] : NULL;
    for (size_t i = 0; last && i < last->n && i + 1 < sizeof seen.banned; i++)
        seen.banned[i] = (char)last->tokens[i];
    pthread_mutex_unlock(&world);
}

static char *order(const char *prompt, const char *name) {
    const char *at = strstr(prompt, name);
    if (!at) return NULL;
    at += strlen(name);
    return strndup(at, strcspn(at, ";"));
}

int icp_submit(icp_engine *e, const icp_request_opts *opts, icp_request **out, icp_error *err) {
    icp_request *r = calloc(1, sizeof *r);
    r->opts = *opts;
    r->engine = e;
    r->prompt = calloc(1, opts->n_prompt + 1);
    for (size_t i = 0; i < opts->n_prompt; i++)
        r->prompt[i] = opts->prompt[i] && opts->prompt[i] < 256 ? (char)opts->prompt[i] : '?';
    if (strstr(r->prompt, "@full;") || stub_count().alive >= STUB_QUEUE) {
        free(r->prompt);
        free(r);
        return fail(err, ICP_EAGAIN, "the queue is full");
    }
    r->reply = order(r->prompt, "@reply=");
    if (!r->reply) r->reply = strdup(STUB_REPLY);
    char *count = order(r->prompt, "@count=");
    r->count = count ? strtoul(count, NULL, 10) : 1;
    free(count);
    char *stop = order(r->prompt, "@stop=");
    r->stop_index = stop ? atoi(stop) : -1;
    free(stop);
    r->n_reply = strlen(r->reply);
    r->hang = strstr(r->prompt, "@hang;");
    r->gate = strstr(r->prompt, "@gate;");
    r->breaks = strstr(r->prompt, "@break;");
    r->at = calloc((size_t)opts->n, sizeof *r->at);
    record(opts);
    pthread_mutex_lock(&e->lock);
    r->next = e->requests;
    e->requests = r;
    pthread_mutex_unlock(&e->lock);
    *out = r;
    return 0;
}

bool icp_next(icp_request *r, icp_event *event) {
    pthread_mutex_lock(&r->engine->lock);
    free(r->taken);
    r->taken = r->first;
    if (r->first) r->first = r->first->next;
    pthread_mutex_unlock(&r->engine->lock);
    if (!r->taken) return false;
    *event = r->taken->event;
    event->text = r->taken->text;
    return true;
}

void icp_request_free(icp_request **ref) {
    icp_request *r = *ref;
    if (!r) return;
    *ref = NULL;
    pthread_mutex_lock(&r->engine->lock);
    for (icp_request **at = &r->engine->requests; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    pthread_mutex_unlock(&r->engine->lock);
    pthread_mutex_lock(&world);
    counts.alive--;
    if (!r->done) counts.cancelled++;
    pthread_mutex_unlock(&world);
    free(r->taken);
    for (struct event *e; (e = r->first);) {
        r->first = e->next;
        free(e);
    }
    free(r->prompt);
    free(r->reply);
    free(r->at);
    free(r);
}

/* ---- the engine's thread (with the lock held) ------------------------------------------------ */

static struct event *add_event(icp_request *r, enum icp_event_kind kind) {
    struct event *e = calloc(1, sizeof *e);
    e->event.kind = kind;
    e->event.stop_index = -1;
    if (r->first)
        r->last->next = e;
    else
        r->first = e;
    r->last = e;
    return e;
}

/* What is known with the first token: half of a prompt is cached. */
static icp_usage early_usage(const icp_request *r) {
    return (icp_usage){.prompt_tokens = r->opts.n_prompt, .cached_tokens = r->opts.n_prompt / 2};
}

static void set_logprobs(icp_request *r, icp_event *e, int32_t token) {
    e->token = token;
    e->chosen = (icp_logprob){token, -0.5f};
    e->rank = 1;
    for (e->n_top = 0; e->n_top < r->opts.logprobs; e->n_top++)
        e->top[e->n_top] = (icp_logprob){token + e->n_top, -0.5f - (float)e->n_top};
}

static void tell_prompt(icp_request *r) {
    r->prompt_told = true;
    for (size_t i = 0; r->opts.prompt_logprobs && i < r->opts.n_prompt; i++) {
        if (i == 0) continue;
        struct event *e = add_event(r, ICP_EVENT_PROMPT);
        e->event.position = i;
        set_logprobs(r, &e->event, (unsigned char)r->prompt[i]);
    }
}

/* Sequence length by its first byte. */
static int character_length(unsigned char c) {
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

static void add_token(icp_request *r, int choice, char byte) {
    struct event *e = add_event(r, ICP_EVENT_TOKEN);
    e->event.choice = choice;
    e->event.usage = early_usage(r);
    set_logprobs(r, &e->event, (unsigned char)byte);
    r->held[r->n_held++] = byte;
    if (r->n_held < character_length((unsigned char)r->held[0])) return;
    memcpy(e->text, r->held, (size_t)r->n_held);
    e->event.text_len = (size_t)r->n_held;
    r->n_held = 0;
}

static size_t n_tokens(const icp_request *r) {
    size_t n = r->n_reply * r->count;
    size_t most = (size_t)r->opts.max_tokens;
    return r->opts.max_tokens >= 0 && n > most ? most : n;
}

static void add_done(icp_request *r, bool failed) {
    struct event *e = add_event(r, ICP_EVENT_DONE);
    e->event.finish = failed ? ICP_FINISH_ERROR : ICP_FINISH_STOP;
    e->event.error = failed ? ICP_EBUG : 0;
    e->event.usage = (icp_usage){.prompt_tokens = r->opts.n_prompt,
                                 .cached_tokens = r->opts.n_prompt / 2,
                                 .completion_tokens = n_tokens(r) * (size_t)r->opts.n,
                                 .why = {.reason = ICP_MISS_NEW},
                                 .miss = "never seen"};
    r->done = true;
}

/* One token, of one choice after the other. */
static bool step(icp_request *r) {
    if (r->done || r->hang || (r->gate && !gate_open)) return false;
    if (!r->prompt_told) tell_prompt(r);
    if (r->running == r->opts.n) {
        add_done(r, false);
        return true;
    }
    size_t *at = &r->at[r->running];
    if (*at < n_tokens(r)) {
        add_token(r, r->running, r->reply[(*at)++ % r->n_reply]);
        if (r->breaks) add_done(r, true);
        return true;
    }
    struct event *e = add_event(r, ICP_EVENT_FINISH);
    e->event.choice = r->running++;
    e->event.finish = *at < r->n_reply * r->count ? ICP_FINISH_LENGTH : ICP_FINISH_STOP;
    e->event.stop_index = r->stop_index;
    if (r->stop_index >= 0) e->event.finish = ICP_FINISH_STOP_STRING;
    r->n_held = 0;
    return true;
}

static void *run(void *arg) {
    icp_engine *e = arg;
    for (bool busy = false;;) {
        if (!busy) usleep(500);
        busy = false;
        pthread_mutex_lock(&e->lock);
        if (e->closing) break;
        for (icp_request *r = e->requests; r; r = r->next)
            if (step(r)) {
                busy = true;
                if (r->opts.wake) r->opts.wake(r->opts.wake_arg);
            }
        pthread_mutex_unlock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

int icp_engine_open(icp_model *m, const icp_engine_opts *opts, icp_engine **out, icp_error *err) {
    icp_engine *e = calloc(1, sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    pthread_create(&e->thread, NULL, run, e);
    *out = e;
    return 0;
}

void icp_engine_close(icp_engine **ref) {
    icp_engine *e = *ref;
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    pthread_mutex_destroy(&e->lock);
    free(e);
    *ref = NULL;
}

size_t icp_engine_get_context(const icp_engine *e) {
    return STUB_CTX;
}

void icp_engine_get_stats(icp_engine *e, icp_stats *out) {
    *out = (icp_stats){.running = 3,
                       .waiting = 4,
                       .prompt_tokens = 100,
                       .computed_tokens = 40,
                       .cached_tokens = 60,
                       .generation_tokens = 7,
                       .pages = 8,
                       .pages_used = 2,
                       .page_size = 512,
                       .finished_stop = 5,
                       .cache_limit = 4096};
    for (int i = 0; i <= ICP_N_LATENCY; i++) out->ttft.bucket[i] = (uint64_t)i;
    out->ttft.sum = 1.5;
}

/* ---- cache -------------------------------------------------------------------------------------
 */

const char *icp_miss_name(enum icp_miss_reason reason) {
    static const char *const names[] = {
#define NAME(name, text, meaning) text,
        ICP_MISSES(NAME)
#undef NAME
    };
    return names[reason];
}

int icp_engine_set_limit(icp_engine *e, size_t limit) {
    return 0;
}

int icp_cache_share(icp_engine *e, const int32_t *tokens, size_t n, icp_error *err) {
    return 0;
}

/* Half of a prompt is cached, and goes on with "!". */
int icp_cache_why(icp_engine *e, const icp_request_opts *opts, icp_usage *out, icp_error *err) {
    size_t n = opts->n_prompt;
    *out = (icp_usage){.prompt_tokens = n, .cached_tokens = n / 2};
    out->why = (icp_miss){.reason = ICP_MISS_DIFFERENT,
                          .position = n / 2,
                          .n_missed = n - n / 2,
                          .own = {opts->prompt[n / 2]},
                          .n_own = 1,
                          .cached = {'!'},
                          .n_cached = 1};
    return 0;
}

/* As many nodes as the tenant's name has letters. */
int icp_cache_get_list(icp_engine *e, const char *tenant, size_t most, icp_cache_list *out) {
    size_t n = strlen(tenant);
    *out = (icp_cache_list){.node = calloc(n + 1, sizeof *out->node),
                            .n = n < most ? n : most,
                            .more = n > most,
                            .n_pages = n,
                            .quota = SIZE_MAX,
                            .page_size = 100,
                            .page_tokens = 64};
    if (!out->node) return ICP_ENOMEM;
    for (size_t i = 0; i < out->n; i++)
        out->node[i] = (icp_cache_node){
            .n_tokens = 64, .n_pages = 1, .ttl_s = i, .first = {tenant[i]}, .n_first = 1};
    return 0;
}

void icp_cache_list_free(icp_cache_list *list) {
    free(list->node);
}

static atomic_int drops;

void icp_cache_drop(icp_engine *e, const char *tenant) {
    drops++;
}

int stub_drops(void) {
    return drops;
}
