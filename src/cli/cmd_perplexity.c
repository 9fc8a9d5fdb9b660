/* perplexity: how well a model predicts a text, and how far it is from another computation of it.
 *
 * The text is cut into windows of n tokens that share nothing; of each, the second half is
 * predicted. This is what the peer's llama-perplexity does, so that figures compare. A base file
 * (--save-base,
 * --kl) has its format too:
 *
 *   "_logits_"  u32 n_ctx  i32 n_vocab  i32 n_windows  i32 token[n_windows · n_ctx]
 *   then a row for each predicted token:  f32 scale  f32 low  u16 q[n_vocab, padded to even]
 *   log-probability = low + scale · q */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct meter {
    icp_model *model;
    icp_engine *engine;
    int n_ctx, n_vocab, n_windows;
    int32_t *tokens;
    FILE *base;
    bool saving;
    uint16_t *row; /* of the base file */
    size_t row_size;

    const int32_t *window; /* the current one */
    double nll, nll2, base_nll, kl, kl2;
    long n, n_same_top;
    int io_error;
} meter;

static size_t first_predicted(const meter *m) {
    return (size_t)m->n_ctx / 2;
}

static double log_sum_exp(const float *x, int n, float *max) {
    double sum = 0;
    *max = x[0];
    for (int i = 1; i < n; i++) *max = MAX(*max, x[i]);
    for (int i = 0; i < n; i++) sum += exp((double)x[i] - (double)*max);
    return (double)*max + log(sum);
}

/* Stores a row as 16-bit steps between its greatest log-probability and 16 below. */
static void save_row(meter *m, const float *logits, double lse, float max) {
    float low = INFINITY;
    for (int i = 0; i < m->n_vocab; i++) low = MIN(low, logits[i]);
    low = MAX(low, max - 16);
    float head[2] = {(max - low) / 65535.0f, (float)((double)low - lse)};
    memcpy(m->row, head, sizeof head);
    for (int i = 0; i < m->n_vocab; i++)
        m->row[4 + i] =
            head[0] > 0 && logits[i] > low ? (uint16_t)lrintf((logits[i] - low) / head[0]) : 0;
    if (fwrite(m->row, m->row_size, 1, m->base) != 1) m->io_error = errno;
}

static void compare_row(meter *m, const float *logits, double lse, int32_t next) {
    float head[2];
    if (fread(m->row, m->row_size, 1, m->base) != 1) {
        m->io_error = EIO;
        return;
    }
    memcpy(head, m->row, sizeof head);
    double kl = 0;
    int top = 0, base_top = 0;
    for (int i = 0; i < m->n_vocab; i++) {
        double base = (double)head[1] + (double)head[0] * m->row[4 + i];
        if (m->row[4 + i]) kl += exp(base) * (base - ((double)logits[i] - lse));
        if (logits[i] > logits[top]) top = i;
        if (m->row[4 + i] > m->row[4 + base_top]) base_top = i;
    }
    m->kl += kl;
    m->kl2 += kl * kl;
    m->base_nll -= (double)head[1] + (double)head[0] * m->row[4 + next];
    m->n_same_top += top == base_top;
}

static void take_row(void *arg, size_t position, const float *logits, size_t n_vocab) {
    meter *m = arg;
    if (position < first_predicted(m) || position + 1 >= (size_t)m->n_ctx) return;
    int32_t next = m->window[position + 1];
    float max;
    double lse = log_sum_exp(logits, m->n_vocab, &max), nll = lse - (double)logits[next];
    m->nll += nll;
    m->nll2 += nll * nll;
    m->n++;
    if (!m->base || m->io_error) return;
    if (m->saving)
        save_row(m, logits, lse, max);
    else
        compare_row(m, logits, lse, next);
}

/* ---- text and base file ---- */

static int read_text(meter *m, const char *path, icp_error *err) {
    buf text = {0};
    icp_tokens ids = {0};
    int rc = cli_read(path, &text, err);
    if (rc == 0) rc = icp_tokenize(m->model, text.data, text.len, true, true, &ids, err);
    buf_fini(&text);
    if (rc < 0) return rc;
    m->n_windows = (int)(ids.n / (size_t)m->n_ctx);
    m->tokens = ids.id;
    if (ids.n >= 2 * (size_t)m->n_ctx) return 0;
    return error_set(err, ICP_EINVALID, "the text has %zu tokens; two windows of %d are needed",
                     ids.n, m->n_ctx);
}

static int write_head(meter *m, const char *path, icp_error *err) {
    m->base = fopen(path, "wbe");
    if (!m->base) return error_set(err, ICP_EIO, "%s: %s", path, strerror(errno));
    size_t n = (size_t)m->n_windows * (size_t)m->n_ctx;
    const int32_t head[] = {m->n_ctx, m->n_vocab, m->n_windows};
    if (fwrite("_logits_", 8, 1, m->base) != 1 || fwrite(head, sizeof head, 1, m->base) != 1 ||
        fwrite(m->tokens, sizeof *m->tokens, n, m->base) != n)
        return error_set(err, ICP_EIO, "%s: %s", path, strerror(errno));
    return 0;
}

/* Takes window size and tokens from the base, so that both computations see the same text. */
static int read_head(meter *m, const char *path, icp_error *err) {
    char magic[8];
    int32_t head[3];
    m->base = fopen(path, "rbe");
    if (!m->base) return error_set(err, ICP_EIO, "%s: %s", path, strerror(errno));
    if (fread(magic, 8, 1, m->base) != 1 || memcmp(magic, "_logits_", 8) ||
        fread(head, sizeof head, 1, m->base) != 1)
        return error_set(err, ICP_EFORMAT, "%s is not a base file (make one with --save-base)",
                         path);
    if (head[1] != m->n_vocab)
        return error_set(err, ICP_EINVALID, "%s has a vocabulary of %d tokens, the model one of %d",
                         path, head[1], m->n_vocab);
    if (head[0] < 4 || head[0] > 1 << 20 || head[2] < 1 || head[2] > 1 << 20)
        return error_set(err, ICP_EFORMAT, "%s: %d windows of %d tokens cannot be right", path,
                         head[2], head[0]);
    m->n_ctx = head[0];
    m->n_windows = head[2];
    size_t n = (size_t)m->n_windows * (size_t)m->n_ctx;
    m->tokens = mem_alloc(n * sizeof *m->tokens);
    if (!m->tokens) return error_set(err, ICP_ENOMEM, "out of memory");
    if (fread(m->tokens, sizeof *m->tokens, n, m->base) != n)
        return error_set(err, ICP_EFORMAT, "%s ends too early", path);
    for (size_t i = 0; i < n; i++)
        if (m->tokens[i] < 0 || m->tokens[i] >= m->n_vocab)
            return error_set(err, ICP_EFORMAT, "%s has a token that is out of range", path);
    return 0;
}

/* ---- the run ---- */

/* BOS stands first in each window where the vocabulary puts it before a text. */
static bool wants_bos(const icp_model *model) {
    icp_tokens ids = {0};
    bool wants = icp_tokenize(model, "a", 1, false, true, &ids, NULL) == 0 && ids.n > 1 &&
                 ids.id[0] == icp_token_bos(model);
    icp_tokens_free(&ids);
    return wants;
}

static int run_windows(meter *m, icp_error *err) {
    bool bos = wants_bos(m->model), terminal = isatty(STDERR_FILENO);
    int32_t *window = mem_alloc((size_t)m->n_ctx * sizeof *window);
    int rc = window ? 0 : error_set(err, ICP_ENOMEM, "out of memory");
    m->window = window;
    for (int i = 0; rc == 0 && i < m->n_windows; i++) {
        memcpy(window, m->tokens + (size_t)i * (size_t)m->n_ctx, (size_t)m->n_ctx * sizeof *window);
        if (bos) window[0] = icp_token_bos(m->model);
        rc = cli_logits(m->engine, window, (size_t)m->n_ctx, 0, "", take_row, m, err);
        if (rc == 0 && m->io_error)
            rc = error_set(err, ICP_EIO, "the base file: %s", strerror(m->io_error));
        if (terminal)
            fprintf(stderr, "\r%d of %d windows, perplexity %.4f ", i + 1, m->n_windows,
                    exp(m->nll / (double)m->n));
    }
    if (terminal) fprintf(stderr, "\r%60s\r", "");
    mem_free(window);
    return rc;
}

static double error_of_mean(double sum, double squares, double n) {
    double mean = sum / n, variance = squares / n - mean * mean;
    return n > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0;
}

static void report(const meter *m) {
    double n = (double)m->n, perplexity = exp(m->nll / n);
    printf("perplexity %.4f ± %.4f over %ld tokens in %d windows of %d\n", perplexity,
           perplexity * error_of_mean(m->nll, m->nll2, n), m->n, m->n_windows, m->n_ctx);
    if (!m->base || m->saving) return;
    printf("base perplexity %.4f\nmean KL %.6f ± %.6f\nsame top token %.2f %%\n",
           exp(m->base_nll / n), m->kl / n, error_of_mean(m->kl, m->kl2, n),
           100 * (double)m->n_same_top / n);
}

static int run(meter *m, const model_options *o, const char *text, const char *save,
               const char *base, icp_error *err) {
    TRY(cli_open_model(o, false, &m->model, err));
    const icp_model_info *info = icp_model_get_info(m->model);
    m->n_vocab = (int)info->n_vocab;
    m->saving = save != NULL;
    TRY(base ? read_head(m, base, err) : read_text(m, text, err));
    if (save) TRY(write_head(m, save, err));
    m->row_size = (2 * (((size_t)m->n_vocab + 1) / 2) + 4) * sizeof *m->row;
    m->row = mem_zero(1, m->row_size);
    if (!m->row) return error_set(err, ICP_ENOMEM, "out of memory");
    TRY(icp_engine_open(m->model, &(icp_engine_opts){.no_cache = true}, &m->engine, err));
    TRY(run_windows(m, err));
    if (save && fflush(m->base)) return error_set(err, ICP_EIO, "%s: %s", save, strerror(errno));
    report(m);
    return 0;
}

int cmd_perplexity(int argc, char **argv) {
    char **operands;
    int n_operands;
    model_options o = {0};
    meter m = {.n_ctx = 512};
    const char *text = NULL, *save = NULL, *base = NULL;
    const cli_option options[] = {
        CLI_OPTION_MODEL(o),
        {'f', "file", "TEXT", "the text (stdin)", OPTION_TEXT, &text, 0, 0},
        {'w', "window", "N", "tokens of a window (512)", OPTION_INT, &m.n_ctx, 4, 1 << 20},
        {0, "save-base", "FILE", "write the log-probabilities, to compare with later", OPTION_TEXT,
         &save, 0, 0},
        {0, "kl", "FILE", "compare with such a file, on its text", OPTION_TEXT, &base, 0, 0},
        CLI_OPTIONS_COMPUTE(o),
        CLI_OPTIONS_ROPE(o)};
    cli_parse(
        &(cli_usage){
            "perplexity", "",
            "Measures how well a model predicts a text: windows that share nothing, the "
            "second half of each\nis predicted. Files of --save-base and --kl are the ones "
            "of llama-perplexity --kl-divergence-base.",
            "example: incipit perplexity -m model.gguf -f /usr/share/common-licenses/GPL-3",
            options, COUNT_OF(options)},
        argc, argv, &operands, &n_operands);
    icp_error err = {0};
    int rc = save && base ? error_set(&err, ICP_EINVALID, "--save-base and --kl exclude each other")
                          : run(&m, &o, text, save, base, &err);
    if (m.base && fclose(m.base) && rc == 0)
        rc = error_set(&err, ICP_EIO, "the base file: %s", strerror(errno));
    icp_engine_close(&m.engine);
    icp_model_close(&m.model);
    mem_free(m.row);
    mem_free(m.tokens);
    return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}
