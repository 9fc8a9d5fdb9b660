/* cli: what the commands of `incipit` share: options, input, JSON, the default model.
 *
 * Each command is a function cmd_NAME(argc, argv) in cmd_NAME.c, listed in main.c. Exit codes:
 * 0 done, 1 failed (a sentence on stderr), 2 wrong usage. */
#ifndef CLI_H
#define CLI_H

#include "base.h"
#include "hub.h"
#include "incipit.h"

#include <json-c/json.h>
#include <signal.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* ---- options (options.c) -------------------------------------------------------------------- */

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_LIST, OPTION_INT, OPTION_SIZE, OPTION_FLOAT };

/* What an option was given, each time: the texts live as long as the program. */
enum { CLI_MOST_TEXTS = 64 };
typedef struct cli_list {
    const char *text[CLI_MOST_TEXTS];
    size_t n;
    bool from_environment;
} cli_list;

/* An option. `to` points to a bool, const char *, cli_list, int, size_t (bytes: 512M, 4G) or float.
 * Each long option --some-name has a twin in the environment, INCIPIT_SOME_NAME, which it
 * overrides. */
typedef struct cli_option {
    char letter;                     /* 0: none */
    const char *name, *value, *help; /* value: its name in the help; NULL for a flag */
    enum option_kind kind;
    void *to;
    double min, max; /* of numbers; both 0: any */
} cli_option;

typedef struct cli_usage {
    const char *command, *operands, *about, *more; /* more (may be NULL) ends the help */
    const cli_option *options;
    size_t n_options;
} cli_usage;

/* Parses argv[1..]; the operands that remain are *operands[0..*n). Ends the process for --help (0)
 * and wrong usage (2): options are a program's first step, nothing is open yet. */
void cli_parse(const cli_usage *usage, int argc, char **argv, char ***operands, int *n);

/* A copy of the arguments in which llama-server's options stand under our names, or not at all:
 * then it says so. It lives as long as the program; NULL: no memory (peer_flags.c). */
char **cli_without_peer_flags(int *argc, char **argv);

/* Options that several commands have. */
typedef struct model_options {
    const char *path, *isa, *kv;
    int threads;
    int ctx;
    bool pin, lock;
    cli_list lora;
    const char *template_date;
    const char *rope_scaling;
    float rope_scale, rope_freq_scale, rope_freq_base;
    float yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    int yarn_orig_ctx;
} model_options;
#define CLI_OPTION_MODEL(o)                                                                        \
    {                                                                                              \
        'm', "model", "FILE",                                                                      \
            "the model: a GGUF file, or one that was pulled (the default model)", OPTION_TEXT,     \
            &(o).path, 0, 0                                                                        \
    }
#define CLI_OPTION_LORA(o)                                                                         \
    {                                                                                              \
        0, "lora", "FILE[:SCALE]", "a LoRA adapter, a GGUF file; may be given several times",      \
            OPTION_LIST, &(o).lora, 0, 0                                                           \
    }
#define CLI_OPTION_TEMPLATE_DATE(o)                                                                \
    {                                                                                              \
        0, "template-date", "DATE", "the day that chat templates see, as 2026-12-31 (today)",      \
            OPTION_TEXT, &(o).template_date, 0, 0                                                  \
    }
/* Named as llama-server's. */
/* clang-format off */
#define CLI_OPTIONS_ROPE(o)                                                                        \
    {0, "rope-scaling", "TYPE", "how the context is extended: none, linear or yarn (the file's)",  \
     OPTION_TEXT, &(o).rope_scaling, 0, 0},                                                        \
    {0, "rope-scale", "N", "the context grows by N (the file's)",                                  \
     OPTION_FLOAT, &(o).rope_scale, 1e-3, 1e6},                                                    \
    {0, "rope-freq-scale", "N", "the same by 1/N",                                                 \
     OPTION_FLOAT, &(o).rope_freq_scale, 1e-6, 1e3},                                               \
    {0, "rope-freq-base", "N", "base of the frequencies (the file's)",                             \
     OPTION_FLOAT, &(o).rope_freq_base, 1, 1e12},                                                  \
    {0, "yarn-orig-ctx", "N", "context before scaling (the file's)",                               \
     OPTION_INT, &(o).yarn_orig_ctx, 1, 1 << 28},                                                  \
    {0, "yarn-beta-fast", "N", "YaRN: more turns over it stay as they are (32)",                   \
     OPTION_FLOAT, &(o).yarn_beta_fast, 1e-3, 1e6},                                                \
    {0, "yarn-beta-slow", "N", "YaRN: fewer turns over it are scaled (1)",                         \
     OPTION_FLOAT, &(o).yarn_beta_slow, 1e-3, 1e6},                                                \
    {0, "yarn-attn-factor", "N", "factor of the attention's magnitude (1)",                        \
     OPTION_FLOAT, &(o).yarn_attn_factor, 1e-3, 1e3}
/* clang-format on */
#define CLI_OPTIONS_COMPUTE(o)                                                                     \
    CLI_OPTION_LORA(o),                                                                            \
        {'t', "threads", "N", "threads (one a core)", OPTION_INT, &(o).threads, 1, 512},           \
        {0,           "isa",                                                                       \
         "NAME",      "instruction set: scalar, avx2, ... as info lists them (the best)",          \
         OPTION_TEXT, &(o).isa,                                                                    \
         0,           0},                                                                          \
        {0, "pin", NULL, "bind each thread to a processor", OPTION_FLAG, &(o).pin, 0, 0},          \
        {0,           "mlock",   NULL, "keep the weights in memory, never swapped out",            \
         OPTION_FLAG, &(o).lock, 0,    0},                                                         \
    {                                                                                              \
        0, "kv", "TYPE", "format of keys and values: f16, bf16, q8_0 or f32 (f16)", OPTION_TEXT,   \
            &(o).kv, 0, 0                                                                          \
    }

/* Says "incipit: SENTENCE" on stderr and returns EXIT_FAILED. */
int cli_fail(const icp_error *err);
int cli_say(const char *format, ...) PRINTF_LIKE(1, 2);

/* ---- model and input (input.c) -------------------------------------------------------------- */

/* The path that was given, that of a pulled model whose name was given, or the default model's;
 * NULL (and a message) when there is none. The text lives as long as the program. */
const char *cli_model_path(const char *given);
/* The options for opening a model with, without progress; cli_model_opts_fini afterwards. */
int cli_model_opts(const model_options *o, icp_model_opts *out, icp_error *err);
void cli_model_opts_fini(icp_model_opts *opts);
/* Noon of that day, seconds since 1970; of NULL 0. */
int cli_template_time(const char *date, int64_t *out, icp_error *err);
/* Where pulled models are kept. */
const char *cli_models_folder(void);
/* Opens it, with progress on a terminal. */
int cli_open_model(const model_options *o, bool vocab_only, icp_model **out, icp_error *err);

/* All of a file, or of stdin for NULL. */
int cli_read(const char *path, buf *out, icp_error *err);
/* stdin (or text) as a JSON value. */
int cli_parse_json(const char *text, size_t len, json_object **out, icp_error *err);
/* An array of token ids below n_vocab, as int32 (mem_free). */
int cli_json_ids(const json_object *array, size_t n_vocab, int32_t **ids, size_t *n,
                 icp_error *err);

/* ---- logits (logits.c) ---------------------------------------------------------------------- */

typedef void cli_row_fn(void *arg, size_t position, const float *row, size_t n_vocab);
/* Computes the logits after each of ids[0..n) and hands them to fn in ascending order. The first
 * `hit` tokens are computed in a request of their own and then found in the cache; salt keeps
 * callers apart. ICP_EBUG: they were not found. */
int cli_logits(icp_engine *e, const int32_t *ids, size_t n, size_t hit, const char *salt,
               cli_row_fn *fn, void *arg, icp_error *err);

/* ---- commands ------------------------------------------------------------------------------- */

int cmd_serve(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_rm(int argc, char **argv);

#endif
