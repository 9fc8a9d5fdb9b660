/* The forward pass against transformers: tiny random models in float32, each logit within 1e-4 of
 * the logits' standard deviation, greedy tokens equal; and the default model against float64. */
#include "default_model.h"
#include "run_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static pool *threads;

static int32_t *ids_of(json_object *array, size_t *n) {
    *n = json_object_array_length(array);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    for (size_t i = 0; i < *n; i++)
        ids[i] = json_object_get_int(json_object_array_get_idx(array, i));
    return ids;
}

static json_object *get(json_object *o, const char *key) {
    json_object *value = json_object_object_get(o, key);
    if (!value) fail_msg("golden data have no %s", key);
    return value;
}

static int argmax(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int)best;
}

static void check_greedy(model *m, json_object *prompt, const int32_t *ids, size_t n) {
    size_t n_vocab = model_get_info(m)->n_vocab, n_greedy;
    int32_t *greedy = ids_of(get(prompt, "greedy"), &n_greedy);
    float *row = malloc((n + 1) * n_vocab * sizeof *row);
    sequence s;
    sequence_init(&s, m, n + n_greedy);
    sequence_extend(&s, ids, n, 512, row);
    int next = argmax(row + (n - 1) * n_vocab, n_vocab);
    for (size_t i = 0; i < n_greedy; i++) {
        assert_int_equal(next, greedy[i]);
        sequence_extend(&s, &greedy[i], 1, 1, row);
        next = argmax(row, n_vocab);
    }
    sequence_fini(&s);
    free(row);
    free(greedy);
}

typedef struct golden {
    const char *name;
    enum kern_isa isa;
    size_t chunk;
    bool embed; /* or rank */
    size_t n;   /* columns */
    double std, worst;
} golden;

static void compare(golden *g, const float *found, const float *want, size_t prompt, int pos) {
    for (size_t v = 0; v < g->n; v++) {
        double off = fabs((double)found[v] - (double)want[v]) / g->std;
        g->worst = fmax(g->worst, off);
        if (!(off <= 1e-4))
            fail_msg("%s, %s, chunk %zu, prompt %zu, position %d, number %zu: %g instead of %g, "
                     "off by %g of the deviation",
                     g->name, kern_isa_name(g->isa), g->chunk, prompt, pos, v, (double)found[v],
                     (double)want[v], off);
    }
}

/* One prompt: rows at positions, then the greedy tokens; or the text's vector. Returns the number
 * of rows that were compared. */
static size_t check_prompt(golden *g, json_object *prompt, size_t i, const float *want) {
    char file[128];
    size_t n, n_at;
    int32_t *ids = ids_of(get(prompt, "ids"), &n),
            *positions = ids_of(get(prompt, "positions"), &n_at);
    snprintf(file, sizeof file, "models/%s.gguf", g->name);
    model_opts opts = {.isa = g->isa, .kv = KERN_F32, .pool = threads, .embed = g->embed};
    opts.n_ctx = (size_t)json_object_get_int(get(prompt, "n_ctx"));
    model *m = open_golden(file, opts);
    size_t n_out = model_get_info(m)->n_out;
    float *rows = malloc(n * n_out * sizeof *rows);
    float *pooled = malloc(model_vector_room(m, n) * sizeof *pooled);
    sequence s;
    sequence_init(&s, m, n);
    s.second = (size_t)json_object_get_int(json_object_object_get(prompt, "second"));
    sequence_extend(&s, ids, n, model_get_info(m)->causal ? g->chunk : n, rows);
    for (size_t p = 0; !g->embed && p < n_at; p++)
        compare(g, rows + (size_t)positions[p] * n_out, want + p * g->n, i, positions[p]);
    if (g->embed) {
        for (size_t k = 0; k < n; k++) model_pool(m, rows + k * n_out, k, n, pooled);
        assert_int_equal(model_vector_size(m, n), g->n);
        compare(g, pooled, want, i, -1);
    } else if (g->chunk == 7) {
        check_greedy(m, prompt, ids, n);
    }
    sequence_fini(&s);
    free(pooled);
    free(rows);
    free(ids);
    free(positions);
    model_close(&m);
    return g->embed ? 1 : n_at;
}

static double check_model(const char *name, enum kern_isa isa, size_t chunk) {
    char file[128];
    snprintf(file, sizeof file, "models/%s.json", name);
    json_object *j = read_json(file), *prompts = get(j, "prompts"), *layout = get(j, "layout");
    golden g = {.name = name, .isa = isa, .chunk = chunk};
    g.n = (size_t)json_object_get_int(get(layout, "cols"));
    g.std = json_object_get_double(get(j, "logits_std"));
    g.embed = strcmp(json_object_get_string(get(j, "kind")), "logits") != 0;
    snprintf(file, sizeof file, "models/%s.logits", name);
    size_t n_rows = (size_t)json_object_get_int(get(layout, "rows")), at = 0;
    float *want = read_floats(file, n_rows * g.n);
    for (size_t i = 0; i < json_object_array_length(prompts); i++)
        at += check_prompt(&g, json_object_array_get_idx(prompts, i), i, want + at * g.n);
    assert_int_equal(at, n_rows);
    free(want);
    json_object_put(j);
    return g.worst;
}

static const char *const names[] = {
    "llama",         "llama-tied-mqa", "llama31-rope",  "llama4",
    "mixtral",       "mistral3",       "smollm3",       "granite",
    "granitemoe",    "qwen2",          "qwen2moe",      "qwen3",
    "qwen3moe",      "seed-oss",       "olmo2",         "olmoe",
    "exaone4",       "phi2",           "phi3-longrope", "glm4",
    "glm4moe",       "gpt-oss",        "deepseek2",     "deepseek3",
    "gemma",         "gemma2",         "gemma3",        "gemma4",
    "starcoder2",    "stablelm",       "gpt2",          "gptneox",
    "falcon",        "command-r",      "cohere2",       "mamba2",
    "granitehybrid", "falcon-h1",      "lfm2",          "qwen3next",
    "qwen35",        "qwen3-embed",    "bert",          "gemma-embedding",
    "xlm-roberta",   "nomic-bert",     "bert-rank",     "xlm-roberta-rank",
    "qwen3-rank",
};

/* Every chunk size on the best instruction set, one on the others. */
static void tiny_models(void **state) {
    static const size_t chunks[] = {7, 1, 64, 512};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        double worst = 0;
        for (int isa = 0; isa < KERN_N_ISA; isa++) {
            if (!kern_isa_usable((enum kern_isa)isa)) continue;
            size_t n = isa == (int)kern_isa_best() ? COUNT_OF(chunks) : 1;
            for (size_t c = 0; c < n; c++)
                worst = fmax(worst, check_model(names[i], (enum kern_isa)isa, chunks[c]));
        }
        print_message("%-16s %.1e\n", names[i], worst);
    }
    for (int isa = 0; isa < KERN_N_ISA; isa++)
        if (!kern_isa_usable((enum kern_isa)isa))
            print_message("skipped: %s is not available here\n", kern_isa_name((enum kern_isa)isa));
}

/* Tensors of many types beside each other (tests/golden/make/mixed.py) against float32 of the same
 * values: what remains is the rounding of 8-bit activations, some percent of the deviation. */
static void mixed_types(void **state) {
    int32_t ids[60];
    model_opts opts = {.isa = kern_isa_best(), .kv = KERN_F32, .pool = threads};
    model *m[2] = {open_golden("models/mixed.gguf", opts),
                   open_golden("models/mixed-twin.gguf", opts)};
    size_t n = COUNT_OF(ids), n_vocab = model_get_info(m[0])->n_vocab;
    float *rows[2];
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 37 + 11) % n_vocab);
    for (int i = 0; i < 2; i++) {
        sequence s;
        sequence_init(&s, m[i], n);
        rows[i] = malloc(n * n_vocab * sizeof **rows);
        sequence_extend(&s, ids, n, 16, rows[i]);
        sequence_fini(&s);
        model_close(&m[i]);
    }
    double squares = 0, off = 0;
    for (size_t i = 0; i < n * n_vocab; i++) {
        squares += (double)rows[1][i] * (double)rows[1][i];
        off += pow((double)rows[0][i] - (double)rows[1][i], 2);
    }
    print_message("mixed types are off by %.4f of the deviation\n", sqrt(off / squares));
    assert_true(sqrt(off / squares) < 0.03);
    free(rows[0]);
    free(rows[1]);
}

/* ---- the default model ---- */

typedef struct tally {
    double kl, error;
    int rows, tops;
} tally;

static double log_sum_exp(const float *x, size_t n) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = max > (double)x[i] ? max : (double)x[i];
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    return max + log(sum);
}

/* KL(reference || ours) over the reference's top tokens, the rest taken as one outcome. */
static void compare_row(json_object *row, const float *ours, size_t n_vocab, tally *t) {
    json_object *ids = get(row, "ids"), *logits = get(row, "logits");
    double lse = json_object_get_double(get(row, "logsumexp")), mine = log_sum_exp(ours, n_vocab);
    double kl = 0, rest = 1, my_rest = 1;
    for (size_t i = 0; i < json_object_array_length(ids); i++) {
        int id = json_object_get_int(json_object_array_get_idx(ids, i));
        double want = json_object_get_double(json_object_array_get_idx(logits, i)) - lse;
        double got = (double)ours[id] - mine;
        kl += exp(want) * (want - got);
        rest -= exp(want);
        my_rest -= exp(got);
    }
    if (rest > 1e-9 && my_rest > 1e-9) kl += rest * log(rest / my_rest);
    t->kl += kl;
    t->rows++;
    double first = json_object_get_double(json_object_array_get_idx(logits, 0));
    double second = json_object_get_double(json_object_array_get_idx(logits, 1));
    if (first - second <= 0.5) return;
    t->tops++;
    assert_int_equal(argmax(ours, n_vocab), json_object_get_int(json_object_array_get_idx(ids, 0)));
}

/* Greedy tokens are the reference's wherever its gap exceeds what 8-bit activations may move. */
static void follow_greedy(model *m, json_object *prompt, const int32_t *ids, size_t n) {
    size_t n_vocab = model_get_info(m)->n_vocab, n_greedy;
    int32_t *greedy = ids_of(get(prompt, "greedy"), &n_greedy);
    float *row = malloc((n + 1) * n_vocab * sizeof *row);
    sequence s;
    sequence_init(&s, m, n + n_greedy);
    sequence_extend(&s, ids, n, 512, row);
    const float *last = row + (n - 1) * n_vocab;
    for (size_t i = 0; i < n_greedy; i++) {
        double gap = json_object_get_double(json_object_array_get_idx(get(prompt, "gaps"), i));
        if (gap > 1.0) assert_int_equal(argmax(last, n_vocab), greedy[i]);
        sequence_extend(&s, &greedy[i], 1, 1, row);
        last = row;
    }
    sequence_fini(&s);
    free(row);
    free(greedy);
}

static void smollm2(void **state) {
    if (access(default_model(), R_OK)) {
        print_message("skipped: the default model is not there (%s)\n", default_model());
        skip();
    }
    model *m = open_golden(default_model(),
                           (model_opts){.isa = kern_isa_best(), .kv = KERN_F16, .pool = threads});
    json_object *j = read_json("smollm2/reference.json"), *prompts = get(j, "prompts");
    size_t n_vocab = model_get_info(m)->n_vocab;
    tally t = {0};
    for (size_t i = 0; i < json_object_array_length(prompts); i++) {
        json_object *prompt = json_object_array_get_idx(prompts, i), *rows = get(prompt, "rows");
        size_t n;
        int32_t *ids = ids_of(get(prompt, "ids"), &n);
        float *logits = malloc(n * n_vocab * sizeof *logits);
        sequence s;
        sequence_init(&s, m, n);
        sequence_extend(&s, ids, n, 512, logits);
        for (size_t r = 0; r < json_object_array_length(rows); r++) {
            json_object *row = json_object_array_get_idx(rows, r);
            compare_row(row, logits + (size_t)json_object_get_int(get(row, "position")) * n_vocab,
                        n_vocab, &t);
        }
        follow_greedy(m, prompt, ids, n);
        sequence_fini(&s);
        free(logits);
        free(ids);
    }
    print_message("mean KL %.5f over %d rows, top token equal in all %d with a clear one\n",
                  t.kl / t.rows, t.rows, t.tops);
    assert_true(t.kl / t.rows <= 0.0035);
    json_object_put(j);
    model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_models), cmocka_unit_test(mixed_types),
                                       cmocka_unit_test(smollm2)};
    if (pool_open(2, &threads) < 0) return 1;
    int failed = cmocka_run_group_tests_name("model", tests, NULL, NULL);
    pool_close(&threads);
    return failed;
}
