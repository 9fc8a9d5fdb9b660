/* verify: the oracle of the arithmetic contract, on the user's machine and model.
 *
 * The logits of one fixed text are computed again and again while everything that must not matter
 * changes: instruction set, threads, chunk size, length of the prefix hit, neighbours in the batch.
 * Each time all rows are hashed; there must be one hash.
 *
 * The slow instruction sets run a part of the product unless --full is given: each value of each
 * dimension, but not each combination. */
#include "cli.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HASH = 32, NEIGHBOURS = 7, MAX_HITS = 16 };

static const int chunks[] = {1, 7, 16, 64, 512}, threads[] = {1, 2, 3};

typedef struct oracle {
    int n_tokens;
    bool full;
    int32_t *ids;
    size_t hits[MAX_HITS];
    int n_hits;
    uint8_t first[HASH];
    char first_how[160];
    int n_done, n_all, n_wrong;
    bool terminal;
} oracle;

static void hash_row(void *arg, size_t position, const float *row, size_t n) {
    EVP_DigestUpdate(arg, &position, sizeof position);
    EVP_DigestUpdate(arg, row, n * sizeof *row);
}

/* Nothing to compare: neighbours only keep the batch full. */
static int start_neighbour(icp_engine *e, const oracle *o, int i, icp_request **out,
                           icp_error *err) {
    icp_request_opts opts;
    icp_request_opts_init(&opts);
    int shift = 1 + i * 3 % (o->n_tokens - 1);
    opts.prompt = o->ids + shift;
    opts.n_prompt = (size_t)(o->n_tokens - shift);
    opts.max_tokens = 8 + i;
    opts.ignore_eos = true;
    opts.temperature = 1;
    opts.seed = (uint64_t)i;
    opts.no_cache = i % 2;
    return icp_submit(e, &opts, out, err);
}

static int hash_logits(icp_engine *e, const oracle *o, size_t hit, bool crowd, const char *salt,
                       uint8_t hash[HASH], icp_error *err) {
    icp_request *neighbours[NEIGHBOURS] = {0};
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    int rc = digest && EVP_DigestInit_ex(digest, EVP_sha256(), NULL)
                 ? 0
                 : error_set(err, ICP_ENOMEM, "out of memory");
    for (int i = 0; rc == 0 && crowd && i < NEIGHBOURS; i++)
        rc = start_neighbour(e, o, i, &neighbours[i], err);
    if (rc == 0) rc = cli_logits(e, o->ids, (size_t)o->n_tokens, hit, salt, hash_row, digest, err);
    if (rc == 0) EVP_DigestFinal_ex(digest, hash, NULL);
    for (int i = 0; i < NEIGHBOURS; i++) icp_request_free(&neighbours[i]);
    EVP_MD_CTX_free(digest);
    return rc;
}

static void compare(oracle *o, const uint8_t hash[HASH], const char *how) {
    o->n_done++;
    if (!o->first_how[0]) {
        memcpy(o->first, hash, HASH);
        snprintf(o->first_how, sizeof o->first_how, "%s", how);
    } else if (memcmp(o->first, hash, HASH)) {
        o->n_wrong++;
        printf("DIFFERENT: %s\n     from: %s\n", how, o->first_how);
    }
    if (!o->terminal) return;
    fprintf(stderr, "\r%4d of %d: %-70s", o->n_done, o->n_all, how);
    if (o->n_done == o->n_all) fprintf(stderr, "\r%90s\r", "");
}

/* Whether a combination belongs to the part that slow instruction sets run. */
static bool in_part(size_t chunk, int hit, int crowd, size_t thread) {
    return chunk + (size_t)hit + (size_t)crowd + thread == 0 ||
           (crowd == (int)(chunk % 2) && hit == (int)(chunk % 3) + 1 && thread == chunk % 3);
}

static int run_engine(oracle *o, icp_model *m, const char *isa, size_t c, size_t t, bool all,
                      bool count, icp_error *err) {
    icp_engine *e = NULL;
    int rc = 0;
    for (int hit = 0; rc == 0 && hit < o->n_hits; hit++)
        for (int crowd = 0; rc == 0 && crowd < 2; crowd++) {
            if (!all && !in_part(c, hit, crowd, t)) continue;
            if (count) {
                o->n_all++;
                continue;
            }
            if (!e)
                rc = icp_engine_open(m, &(icp_engine_opts){.chunk = chunks[c], .max_parallel = 8},
                                     &e, err);
            char how[160], salt[32];
            uint8_t hash[HASH];
            snprintf(how, sizeof how, "%s, %d threads, chunk %d, hit %zu, %s", isa, threads[t],
                     chunks[c], o->hits[hit], crowd ? "7 neighbours" : "alone");
            snprintf(salt, sizeof salt, "%d %d", hit, crowd);
            if (rc == 0) rc = hash_logits(e, o, o->hits[hit], crowd, salt, hash, err);
            icp_error why = *err;
            if (rc == 0)
                compare(o, hash, how);
            else
                error_set(err, rc, "%s: %s", how, why.text);
        }
    icp_engine_close(&e);
    return rc;
}

static int run_isa(oracle *o, const model_options *mo, const char *isa, bool all, bool count,
                   icp_error *err) {
    for (size_t t = 0; t < COUNT_OF(threads); t++) {
        icp_model *m = NULL;
        model_options with = *mo;
        with.isa = isa;
        with.threads = threads[t];
        int rc = count ? 0 : cli_open_model(&with, false, &m, err);
        for (size_t c = 0; rc == 0 && c < COUNT_OF(chunks); c++)
            rc = run_engine(o, m, isa, c, t, all, count, err);
        icp_model_close(&m);
        if (rc < 0) return rc;
    }
    return 0;
}

static int run_all(oracle *o, const model_options *mo, bool count, icp_error *err) {
    if (mo->isa) return run_isa(o, mo, mo->isa, true, count, err);
    for (const char *const *isa = icp_isas(); *isa; isa++)
        TRY(run_isa(o, mo, *isa, !isa[1] || o->full, count, err));
    return 0;
}

/* A fixed text, long enough for n_tokens, as ids. */
static int make_text(oracle *o, const model_options *mo, icp_error *err) {
    static const char *const sentences[] = {
        "The keeper wrote the names of the ships in a green book, one line for each evening. ",
        "Cached or computed anew, alone or in a crowd, the same question has the same answer. ",
        "for (size_t i = 0; i < n; i++) sum += weight[i] * x[i]; /* ascending, always */ ",
        "Wer die Reihenfolge der Summen kennt, kennt jedes Bit des Ergebnisses. 1 + 1 = 2. "};
    icp_model *m;
    buf text = {0};
    icp_tokens ids = {0};
    TRY(cli_open_model(mo, true, &m, err));
    size_t n_vocab = icp_model_get_info(m)->n_vocab;
    for (int i = 0; i < o->n_tokens; i++) buf_puts(&text, sentences[i % (int)COUNT_OF(sentences)]);
    int rc = icp_tokenize(m, text.data, text.len, false, true, &ids, err);
    if (rc == 0 && (ids.n < (size_t)o->n_tokens || n_vocab < 2))
        rc = error_set(err, ICP_EFORMAT, "the vocabulary gives too few tokens");
    o->ids = ids.id;
    buf_fini(&text);
    icp_model_close(&m);
    return rc;
}

/* No hit, each page edge, and the middle of a page. */
static void choose_hits(oracle *o) {
    o->hits[o->n_hits++] = 0;
    for (int edge = 64; edge < o->n_tokens && o->n_hits < MAX_HITS - 1; edge += 64)
        o->hits[o->n_hits++] = (size_t)edge;
    o->hits[o->n_hits++] = (size_t)(o->n_tokens > 100 ? 97 : o->n_tokens / 2);
}

static int run(oracle *o, const model_options *mo, icp_error *err) {
    TRY(make_text(o, mo, err));
    choose_hits(o);
    TRY(run_all(o, mo, true, err));
    TRY(run_all(o, mo, false, err));
    printf("sha256 ");
    for (int i = 0; i < HASH; i++) printf("%02x", o->first[i]);
    printf("\n%s: %d of %d ways to compute the logits of %d tokens gave the same bits\n",
           o->n_wrong ? "NOT EXACT" : "exact", o->n_done - o->n_wrong, o->n_done, o->n_tokens);
    return 0;
}

int cmd_verify(int argc, char **argv) {
    char **operands;
    int n_operands;
    model_options mo = {0};
    oracle o = {.n_tokens = 150, .terminal = isatty(STDERR_FILENO)};
    const cli_option options[] = {
        CLI_OPTION_MODEL(mo),
        {'n', "tokens", "N", "length of the text (150)", OPTION_INT, &o.n_tokens, 16, 4096},
        CLI_OPTION_LORA(mo),
        CLI_OPTIONS_ROPE(mo),
        {0, "full", NULL, "every combination on every instruction set", OPTION_FLAG, &o.full, 0, 0},
        {0, "isa", "NAME", "this instruction set only", OPTION_TEXT, &mo.isa, 0, 0},
        {0, "kv", "TYPE", "format of keys and values: f16, bf16, q8_0 or f32 (f16)", OPTION_TEXT,
         &mo.kv, 0, 0}};
    cli_parse(
        &(cli_usage){"verify", "",
                     "Computes the logits of one text in every way that must not matter "
                     "(instruction sets, threads,\nchunks, cache hits, neighbours) and compares "
                     "their SHA-256. Exit code 0: all the same bits.",
                     NULL, options, COUNT_OF(options)},
        argc, argv, &operands, &n_operands);
    icp_error err = {0};
    int rc = run(&o, &mo, &err);
    mem_free(o.ids);
    if (rc < 0) return cli_fail(&err);
    return o.n_wrong ? EXIT_FAILED : EXIT_DONE;
}
