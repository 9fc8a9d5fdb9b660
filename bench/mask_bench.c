/* Time of the token masks of grammars: mask_bench VOCABULARY.gguf [TEXTS]. For each of some
 * schemas, texts are made of tokens drawn evenly from the masks; printed are the time to compile,
 * and of what a step costs (mask, then token) the median, the 99th percentile and the longest. The
 * first text of a grammar finds nothing memorised; its longest step stands by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grammar.h"
#include "vocab.h"

enum { LONGEST = 400, MOST_STEPS = 1 << 20 };

static grammar_vocab *open_vocab(const char *path, size_t *n_tokens) {
    gguf *g = NULL;
    tokenizer *t = NULL;
    icp_error err = {0};
    if (gguf_open(path, &g, &err) || vocab_open(g, &t, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    size_t n = tokenizer_n(t);
    grammar_str *tokens = calloc(n, sizeof *tokens);
    for (size_t i = 0; i < n; i++) {
        text_str bytes = tokenizer_bytes(t, (int32_t)i);
        if (tokenizer_type(t, (int32_t)i) == TOKEN_CONTROL) bytes.len = 0;
        tokens[i] = (grammar_str){bytes.data, bytes.len};
    }
    grammar_vocab *v = NULL;
    if (grammar_vocab_new(tokens, n, &v) < 0) exit(1);
    *n_tokens = n;
    return v; /* the rest lives as long as the program */
}

/* ---- schemas --------------------------------------------------------------------------------- */

static void put_words(buf *out, int i) { /* a name of three words, different for each i */
    static const char *const words[] = {"user",  "order",  "item", "price", "street", "total",
                                        "name",  "first",  "last", "email", "phone",  "created",
                                        "owner", "key",    "city", "code",  "state",  "label",
                                        "width", "height", "flag"};
    enum { N = COUNT_OF(words) };
    buf_printf(out, "%s_%s_%s%d", words[i % N], words[i / N % N], words[i / N / N % N],
               i / N / N / N);
}

static void put_properties(buf *out, int n, int n_required, const char *value) {
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) {
        buf_puts(out, i ? ",\"" : "\"");
        put_words(out, i);
        buf_printf(out, "\":%s", value);
    }
    buf_puts(out, "},\"required\":[");
    for (int i = 0; i < n_required; i++) {
        int nth = (int)((long)i * n / n_required);
        buf_puts(out, i ? ",\"" : "\"");
        put_words(out, nth);
        buf_putc(out, '"');
    }
    buf_puts(out, "]}");
}

static void put_enum(buf *out, int n) {
    buf_puts(out, "{\"type\":\"array\",\"items\":{\"enum\":[");
    for (int i = 0; i < n; i++) {
        buf_puts(out, i ? ",\"" : "\"");
        put_words(out, i);
        buf_putc(out, '"');
    }
    buf_puts(out, "]}}");
}

#define PERSON                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},"        \
    "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"email\":{\"type\":\"string\"," \
    "\"format\":\"email\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"         \
    "\"kind\":{\"enum\":[\"person\",\"firm\"]}},\"required\":[\"name\",\"age\",\"kind\"]}"

/* ---- measuring ------------------------------------------------------------------------------- */

static double times[MOST_STEPS];
static size_t n_times;

static double now(void) { /* of this thread: others may be busy */
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int32_t pick(const uint64_t *bits, long n, uint64_t *random) {
    long nth = (long)(random_next(random) % (uint64_t)n);
    for (size_t word = 0;; word++) {
        int here = __builtin_popcountll(bits[word]);
        if (nth >= here) {
            nth -= here;
            continue;
        }
        uint64_t left = bits[word];
        while (nth--) left &= left - 1;
        return (int32_t)(word * 64 + (size_t)__builtin_ctzll(left));
    }
}

/* Returns the longest step. */
static double make_text(grammar *g, uint64_t *bits, size_t n_words, uint64_t *random) {
    matcher *m = NULL;
    double longest = 0;
    if (matcher_new(g, &m) < 0) exit(1);
    for (int step = 0; step < LONGEST && !matcher_must_end(m); step++) {
        double began = now();
        long n = matcher_mask(m, bits, n_words);
        double spent = now() - began;
        if (n <= 0) break;
        int32_t token = pick(bits, n, random);
        began = now();
        matcher_put_token(m, token);
        spent += now() - began;
        longest = spent > longest ? spent : longest;
        if (n_times < MOST_STEPS) times[n_times++] = spent;
    }
    matcher_free(&m);
    return longest;
}

static void measure(grammar_vocab *v, size_t n_tokens, const char *name, const char *schema,
                    size_t len, int n_texts) {
    size_t n_words = (n_tokens + 63) / 64;
    uint64_t *bits = calloc(n_words, sizeof *bits), random = 1;
    grammar *g = NULL;
    icp_error err = {0};
    double began = now();
    if (grammar_from_schema(v, schema, len, NULL, &g, &err) < 0) {
        printf("%-22s %s\n", name, err.text);
        free(bits);
        return;
    }
    double compiled = now() - began, first = make_text(g, bits, n_words, &random);
    n_times = 0;
    for (int i = 0; i < n_texts; i++) make_text(g, bits, n_words, &random);
    qsort(times, n_times, sizeof *times, compare);
    printf("%-22s %8.1f ms  first %8.0f us  median %7.1f us  p99 %7.0f us  longest %8.0f us  (%zu "
           "steps)\n",
           name, 1e3 * compiled, 1e6 * first, 1e6 * times[n_times / 2],
           1e6 * times[n_times * 99 / 100], 1e6 * times[n_times - 1], n_times);
    grammar_unref(&g);
    free(bits);
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: mask_bench VOCABULARY.gguf [TEXTS]\n"), 2;
    size_t n = 0;
    grammar_vocab *v = open_vocab(argv[1], &n);
    int n_texts = argc > 2 ? atoi(argv[2]) : 20;
    printf("%zu tokens\n", n);
    measure(v, n, "any value", "true", 4, n_texts);
    measure(v, n, "a person", PERSON, strlen(PERSON), n_texts);
    const struct {
        const char *name, *value;
        int n, n_required;
    } objects[] = {
        {"100 properties", "{\"type\":\"integer\"}", 100, 10},
        {"10,000 optional", "{\"type\":\"integer\"}", 10000, 0},
        {"10,000, 100 required", "{\"type\":\"integer\"}", 10000, 100},
        {"10,000 required", "{\"type\":\"integer\"}", 10000, 10000},
    };
    for (size_t i = 0; i < COUNT_OF(objects); i++) {
        buf schema = {0};
        put_properties(&schema, objects[i].n, objects[i].n_required, objects[i].value);
        measure(v, n, objects[i].name, schema.data, schema.len, n_texts);
        buf_fini(&schema);
    }
    buf schema = {0};
    put_enum(&schema, 5000);
    measure(v, n, "enum of 5,000", schema.data, schema.len, n_texts);
    buf_fini(&schema);
    grammar_vocab_unref(&v);
    return 0;
}
