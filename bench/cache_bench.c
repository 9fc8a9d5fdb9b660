/* What the prefix cache itself costs: a lookup of a prompt of 8,000 tokens in a tree of a million,
 * and publishing, for each token. Pages are of a few bytes, so that only the bookkeeping is
 * measured.
 *
 *   cache_bench [TOKENS]      in the tree; 1,000,000
 *
 * Medians and the 99th percentile of many runs, in microseconds; of publishing in nanoseconds a
 * token. */
#include "cache.h"

#include <stdio.h>
#include <stdlib.h>

enum { PROMPT = 8000, RUNS = 2000, SHARED = 2048 };

static void copy_nothing(void *arg, void *to, const void *from, int n) {
    (void)arg, (void)to, (void)from, (void)n;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *what, double *seconds, size_t n, double unit) {
    qsort(seconds, n, sizeof *seconds, by_value);
    printf("%-52s %10.2f %10.2f\n", what, seconds[n / 2] * unit, seconds[n * 99 / 100] * unit);
}

/* Prompt number i: a beginning that many have, then its own. */
static void make_prompt(int32_t *tokens, uint64_t i) {
    uint64_t shared = i % 8, own = i + 1000;
    for (int k = 0; k < PROMPT; k++)
        tokens[k] = (int32_t)(random_next(k < SHARED ? &shared : &own) % 50000);
}

/* A request from begin to end; seconds of publishing alone. */
static double publish(cache *c, cache_space *space, const int32_t *tokens, size_t step) {
    chain *ch;
    double spent = 0;
    if (chain_open(c, space, &ch) < 0) exit(1);
    size_t have = chain_match(ch, tokens, PROMPT, PROMPT);
    if (chain_reserve(ch, PROMPT) < 0) exit(1);
    for (size_t n; have < PROMPT; have += n) {
        n = MIN(step, PROMPT - have);
        double began = clock_now();
        chain_publish(ch, tokens + have, n);
        spent += clock_now() - began;
    }
    chain_close(&ch);
    return spent;
}

int main(int argc, char **argv) {
    size_t n_tokens = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    size_t n_prompts = (n_tokens - 8 * SHARED) / (PROMPT - SHARED);
    static int32_t tokens[PROMPT];
    static double whole[RUNS], miss[RUNS], matched[RUNS], prefill[RUNS], decode[RUNS];
    cache *c;
    cache_space *space;
    icp_error err = {0};
    size_t pages = (n_tokens + 4 * PROMPT) / CACHE_PAGE;
    cache_opts opts = {.page_size = 64,
                       .limit = cache_limit_of(64, pages) + cache_curve_cost(8192),
                       .curve_samples = 8192,
                       .copy = copy_nothing};
    if (cache_open(&opts, &c, &err) < 0) return fprintf(stderr, "%s\n", err.text), 1;
    if (cache_space_get(c, NULL, "bench", 5, &space) < 0) return 1;
    for (size_t i = 0; i < n_prompts; i++) {
        make_prompt(tokens, i);
        publish(c, space, tokens, 512);
    }
    cache_stats s;
    cache_get_stats(c, &s);
    printf("%zu pages of %d tokens in the tree\n\n%-52s %10s %10s\n", s.n_cached, CACHE_PAGE, "",
           "median", "99 %");
    for (size_t i = 0; i < RUNS; i++) {
        chain *ch;
        make_prompt(tokens, i * 7919 % n_prompts);
        double began = clock_now();
        if (cache_probe(c, space, tokens, PROMPT) != PROMPT) return 1;
        whole[i] = clock_now() - began;
        began = clock_now();
        if (chain_open(c, space, &ch) < 0) return 1;
        if (chain_match(ch, tokens, PROMPT, PROMPT) != PROMPT) return 1;
        chain_asked(ch, PROMPT, PROMPT);
        chain_close(&ch);
        matched[i] = clock_now() - began;
        make_prompt(tokens, n_prompts + i);
        began = clock_now();
        if (cache_probe(c, space, tokens, PROMPT) < SHARED) return 1;
        miss[i] = clock_now() - began;
    }
    print("lookup of 8,000 tokens, all found, us", whole, RUNS, 1e6);
    print("lookup of 8,000 tokens, 2,048 found, us", miss, RUNS, 1e6);
    print("chain: open, match 8,000, count, close, us", matched, RUNS, 1e6);
    for (size_t i = 0; i < RUNS / 4; i++) {
        make_prompt(tokens, 1000000 + i);
        prefill[i] = publish(c, space, tokens, 512) / (PROMPT - SHARED);
        make_prompt(tokens, 2000000 + i);
        decode[i] = publish(c, space, tokens, 1) / (PROMPT - SHARED);
    }
    print("publishing 512 at once, ns a token", prefill, RUNS / 4, 1e9);
    print("publishing one by one (with the clock), ns a token", decode, RUNS / 4, 1e9);
    cache_space_put(c, &space);
    cache_close(&c);
    return 0;
}
