/* Fuzzes the command line: words, a line each, of which the first is an option's value in the
 * environment; flags of llama-server are among them. Wrong usage ends the process: here `exit` (by
 * another name, see meson.build) comes back. */
#include <getopt.h>
#include <setjmp.h>

#include "cli.h"
#include "fuzz.h"

enum { MOST_WORDS = 20 };

static jmp_buf ended;

_Noreturn void fuzz_exit(int code) {
    must(code == EXIT_DONE || code == EXIT_USAGE);
    longjmp(ended, 1);
}

/* A word of several letters that was left in its middle is forgotten. */
static void reset_getopt(void) {
    static char *nothing[] = {"", NULL};
    optind = 0;
    getopt(1, nothing, "");
}

static void parse(int argc, char **argv) {
    static model_options model;
    static bool flag;
    static float share;
    static int parallel;
    static size_t size;
    static const cli_option options[] = {
        CLI_OPTION_MODEL(model),
        CLI_OPTIONS_COMPUTE(model),
        {'f', "flag", NULL, "a flag", OPTION_FLAG, &flag, 0, 0},
        {0, "share", "X", "a share", OPTION_FLOAT, &share, 0, 1},
        {0, "parallel", "N", "a number", OPTION_INT, &parallel, -5, 70},
        {0, "size", "SIZE", "a size", OPTION_SIZE, &size, 0, 0},
    };
    static const cli_usage usage = {"fuzz", "FILE", "about", NULL, options, COUNT_OF(options)};
    char **operands;
    int n;
    reset_getopt();
    if (setjmp(ended)) return;
    cli_parse(&usage, argc, argv, &operands, &n);
    must(n >= 0 && operands + n == argv + argc);
    must(parallel >= -5 && parallel <= 70 && share >= 0 && share <= 1);
}

static bool is_among(char *const *words, int n, const char *word) {
    for (int i = 0; i < n; i++)
        if (words[i] == word) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, size};
    char *words[MOST_WORDS + 2] = {fuzz_string((fuzz_input){0})}, *before[MOST_WORDS + 2];
    char *twin = fuzz_string(fuzz_until(&in, '\n'));
    setenv("INCIPIT_PARALLEL", twin, 1);
    int n = 1, argc;
    while (in.len && n < MOST_WORDS) words[n++] = fuzz_string(fuzz_until(&in, '\n'));
    memcpy(before, words, sizeof words);
    argc = n;
    char **argv = cli_without_peer_flags(&argc, words);
    must(argv && argc <= n);
    char **parsed = calloc((size_t)argc + 1, sizeof *parsed); /* the parser moves words */
    must(parsed != NULL);
    memcpy(parsed, argv, (size_t)argc * sizeof *parsed);
    parse(argc, parsed);
    for (int i = 0; i < argc; i++)
        if (!is_among(before, n, argv[i])) mem_free(argv[i]);
    for (int i = 0; i < n; i++) free(before[i]);
    free(parsed);
    mem_free(argv);
    free(twin);
    return 0;
}
