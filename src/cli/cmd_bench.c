/* bench: prefill and decode of this machine, through the engine, as a server would run them.
 *
 * Prompts are random ids, new ones each time, so that the cache finds nothing but the prefix of
 * `depth` tokens that was put there on purpose. Figures are medians of several runs.
 *
 * Beside them stands what share of the machine's limits they are: of the bytes that its memory
 * yields (a step of decoding reads all weights that a token uses, and the prefix), and of the pairs
 * of bytes that its processors multiply (a token takes each of these weights once; attention is
 * not counted). */
#include "cli.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench {
    icp_model *model;
    icp_engine *engine;
    int prompt, tokens, depth, runs;
    const char *batches;
    bool json, roofline;
    icp_machine machine;
    uint64_t random;
    int32_t *prefix; /* depth tokens that every prompt begins with */
} bench;

typedef struct lane {
    icp_request *request;
    double first, last;
    bool done;
} lane;

enum { MAX_BATCH = 64, MAX_RUNS = 101 };

static int submit(bench *b, int n_prompt, int n_tokens, icp_request **out, icp_error *err) {
    size_t n_vocab = icp_model_get_info(b->model)->n_vocab, n = (size_t)(b->depth + n_prompt);
    int32_t *ids = mem_alloc(n * sizeof *ids);
    if (!ids) return error_set(err, ICP_ENOMEM, "out of memory");
    if (b->depth) memcpy(ids, b->prefix, (size_t)b->depth * sizeof *ids);
    for (size_t i = (size_t)b->depth; i < n; i++)
        ids[i] = (int32_t)(random_next(&b->random) % n_vocab);
    icp_request_opts opts;
    icp_request_opts_init(&opts);
    opts.prompt = ids;
    opts.n_prompt = n;
    opts.max_tokens = n_tokens;
    opts.ignore_eos = true;
    opts.temperature = 0;
    int rc = icp_submit(b->engine, &opts, out, err);
    mem_free(ids);
    return rc;
}

/* Takes what a request has to say; stamps its tokens. */
static int take(lane *l, icp_error *err) {
    icp_event event;
    while (icp_next(l->request, &event)) {
        if (event.kind == ICP_EVENT_TOKEN) {
            l->last = clock_now();
            if (l->first == 0) l->first = l->last;
        } else if (event.kind == ICP_EVENT_DONE) {
            l->done = true;
            if (event.error < 0)
                return error_set(err, event.error, "a request failed: %s",
                                 icp_strerror(event.error));
        }
    }
    return 0;
}

/* Seconds of `batch` requests together: *prefill until the last one's first token, *decode from
 * there to the last token of all. */
static int run_once(bench *b, int batch, int n_prompt, int n_tokens, double *prefill,
                    double *decode, icp_error *err) {
    lane lanes[MAX_BATCH] = {0};
    double begun = clock_now(), first = 0, last = 0;
    int rc = 0;
    for (int i = 0; rc == 0 && i < batch; i++)
        rc = submit(b, n_prompt, n_tokens, &lanes[i].request, err);
    for (int i = 0; rc == 0 && i < batch; i++)
        while (rc == 0 && !lanes[i].done) {
            icp_wait(lanes[i].request, 0.05);
            for (int j = 0; rc == 0 && j < batch; j++) rc = take(&lanes[j], err);
        }
    for (int i = 0; i < batch; i++) {
        first = MAX(first, lanes[i].first);
        last = MAX(last, lanes[i].last);
        icp_request_free(&lanes[i].request);
    }
    *prefill = first - begun;
    *decode = last - first;
    return rc;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, compare);
    return x[n / 2];
}

static int measure(bench *b, int batch, double *prefill, double *decode, icp_error *err) {
    double prefills[MAX_RUNS], decodes[MAX_RUNS], ignored;
    for (int i = 0; i < b->runs; i++) {
        TRY(run_once(b, batch, b->prompt, 1, &prefills[i], &ignored, err));
        /* short prompts: decode is measured with all of the batch under way */
        TRY(run_once(b, batch, 1, b->tokens + 1, &ignored, &decodes[i], err));
    }
    *prefill = batch * b->prompt / median(prefills, b->runs);
    *decode = batch * b->tokens / median(decodes, b->runs);
    return 0;
}

static int fill_depth(bench *b, icp_error *err) {
    double a, c;
    if (!b->depth) return 0;
    size_t n_vocab = icp_model_get_info(b->model)->n_vocab;
    b->prefix = mem_alloc((size_t)b->depth * sizeof *b->prefix);
    if (!b->prefix) return error_set(err, ICP_ENOMEM, "out of memory");
    for (int i = 0; i < b->depth; i++) b->prefix[i] = (int32_t)(random_next(&b->random) % n_vocab);
    return run_once(b, 1, 1, 1, &a, &c, err);
}

typedef struct shares { /* of the machine's limits */
    double prefill, decode_read, decode;
} shares;

static shares shares_of(const bench *b, int batch, double prefill, double decode) {
    const icp_model_info *info = icp_model_get_info(b->model);
    double prefix = (double)b->depth * (double)info->page_size / (double)info->page_tokens;
    double active = (double)info->n_active;
    return (shares){prefill * active / b->machine.multiply,
                    decode / batch * ((double)info->active_size + prefix) / b->machine.read,
                    decode * active / b->machine.multiply};
}

/* {"model": …, "machine": {…}; what follows is the caller's. */
static void print_json_head(const bench *b) {
    const icp_model_info *info = icp_model_get_info(b->model);
    json_object *name = json_object_new_string(info->name);
    printf("{\"model\": %s, \"isa\": \"%s\", \"kv\": \"%s\", \"threads\": %d, "
           "\"machine\": {\"read\": %.4g, \"multiply\": %.4g}",
           json_object_to_json_string_ext(name, JSON_C_TO_STRING_PLAIN), info->isa, info->kv,
           info->n_threads, b->machine.read, b->machine.multiply);
    json_object_put(name);
}

static void print_roofline(const bench *b) {
    const icp_model_info *info = icp_model_get_info(b->model);
    double decode = b->machine.read / (double)info->active_size,
           prefill = b->machine.multiply / (double)info->n_active;
    if (b->json) {
        print_json_head(b);
        printf(", \"active\": %llu, \"active_size\": %zu, \"prefill\": %.2f, \"decode\": %.2f}\n",
               (unsigned long long)info->n_active, info->active_size, prefill, decode);
        return;
    }
    printf("%s, %s, %d threads\n"
           "memory yields           %8.1f GB/s      a token's weights: %.1f MB\n"
           "bytes are multiplied at %8.1f G pairs/s a token takes %.1f M\n"
           "so at most              %8.0f tokens/s  decoded one by one\n"
           "                        %8.0f tokens/s  of prompts, before attention\n",
           info->name, info->isa, info->n_threads, b->machine.read / 1e9,
           (double)info->active_size / 1e6, b->machine.multiply / 1e9, (double)info->n_active / 1e6,
           decode, prefill);
}

static void print_head(const bench *b) {
    const icp_model_info *info = icp_model_get_info(b->model);
    if (b->json) {
        print_json_head(b);
        printf(", \"prompt\": %d, \"tokens\": %d, \"depth\": %d, \"runs\": %d, \"results\": [",
               b->prompt, b->tokens, b->depth, b->runs);
        return;
    }
    printf("%s, %s, KV %s, %d threads, depth %d, median of %d\n"
           "shares of %.1f GB/s read and %.1f G pairs of bytes/s multiplied\n"
           "%6s %18s %10s %18s %10s %10s\n",
           info->name, info->isa, info->kv, info->n_threads, b->depth, b->runs,
           b->machine.read / 1e9, b->machine.multiply / 1e9, "batch", "prefill tokens/s",
           "multiplied", "decode tokens/s", "read", "multiplied");
}

static void print_row(const bench *b, int batch, bool first, double prefill, double decode) {
    shares s = shares_of(b, batch, prefill, decode);
    if (b->json)
        printf(
            "%s{\"batch\": %d, \"prefill\": %.2f, \"decode\": %.2f, \"prefill_multiplied\": %.4f, "
            "\"decode_read\": %.4f, \"decode_multiplied\": %.4f}",
            first ? "" : ", ", batch, prefill, decode, s.prefill, s.decode_read, s.decode);
    else
        printf("%6d %18.1f %8.0f %% %18.1f %8.0f %% %8.0f %%\n", batch, prefill, 100 * s.prefill,
               decode, 100 * s.decode_read, 100 * s.decode);
    fflush(stdout);
}

static int run(bench *b, const model_options *o, icp_error *err) {
    double prefill, decode;
    TRY(cli_open_model(o, false, &b->model, err));
    TRY(icp_measure_machine(b->model, &b->machine, err));
    if (b->roofline) {
        print_roofline(b);
        return 0;
    }
    TRY(icp_engine_open(b->model, &(icp_engine_opts){.max_parallel = MAX_BATCH}, &b->engine, err));
    TRY(fill_depth(b, err));
    TRY(run_once(b, 1, 32, 4, &prefill, &decode, err)); /* first touch of the weights */
    print_head(b);
    const char *at = b->batches;
    for (int i = 0; *at; i++) {
        char *end;
        long batch = strtol(at, &end, 10);
        if (end == at || batch < 1 || batch > MAX_BATCH || (*end && *end != ','))
            return error_set(err, ICP_EINVALID, "-b takes batch sizes from 1 to %d, like 1,8",
                             MAX_BATCH);
        at = *end ? end + 1 : end;
        TRY(measure(b, (int)batch, &prefill, &decode, err));
        print_row(b, (int)batch, i == 0, prefill, decode);
    }
    if (b->json) printf("]}\n");
    return 0;
}

int cmd_bench(int argc, char **argv) {
    char **operands;
    int n_operands;
    model_options o = {0};
    bench b = {.prompt = 512,
               .tokens = 64,
               .runs = 5,
               .batches = "1",
               .random = (uint64_t)(clock_now() * 1e9)};
    const cli_option options[] = {
        CLI_OPTION_MODEL(o),
        {'p', "prompt", "N", "tokens of a prompt (512)", OPTION_INT, &b.prompt, 1, 0},
        {'n', "tokens", "N", "tokens to generate (64)", OPTION_INT, &b.tokens, 1, 0},
        {'b', "batch", "LIST", "requests at once, like 1,8 (1)", OPTION_TEXT, &b.batches, 0, 0},
        {'d', "depth", "N", "tokens in the cache before the prompt (0)", OPTION_INT, &b.depth, 0,
         0},
        {'r', "runs", "N", "runs, of which the median counts (5)", OPTION_INT, &b.runs, 1,
         MAX_RUNS},
        {0, "roofline", NULL, "only what the machine can do at most", OPTION_FLAG, &b.roofline, 0,
         0},
        {0, "json", NULL, "print JSON", OPTION_FLAG, &b.json, 0, 0},
        CLI_OPTIONS_COMPUTE(o)};
    cli_parse(&(cli_usage){"bench", "", "Measures prefill and decode of a model on this machine.",
                           "example: incipit bench -p 512 -n 64 -b 1,8", options,
                           COUNT_OF(options)},
              argc, argv, &operands, &n_operands);
    icp_error err = {0};
    int rc = run(&b, &o, &err);
    icp_engine_close(&b.engine);
    icp_model_close(&b.model);
    mem_free(b.prefix);
    return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}
