#include "cli.h"

#include <stdio.h>

int cmd_info(int argc, char **argv) {
    char **operands;
    int n;
    const char *model = NULL;
    const cli_option options[] = {{'m', "model", "FILE", "the file (without it: the default model)",
                                   OPTION_TEXT, &model, 0, 0}};
    cli_parse(
        &(cli_usage){"info", "[FILE]",
                     "Prints the metadata and tensors of a GGUF file, and the instruction sets "
                     "of this machine.",
                     NULL, options, COUNT_OF(options)},
        argc, argv, &operands, &n);
    const char *path = cli_model_path(n > 0 ? operands[0] : model);
    if (!path) return EXIT_FAILED;
    icp_error err = {0};
    char *text;
    if (icp_describe_file(path, &text, &err) < 0) return cli_fail(&err);
    fputs(text, stdout);
    icp_free(text);
    printf("\nthis machine:");
    for (const char *const *isa = icp_isas(); *isa; isa++) printf(" %s", *isa);
    printf("\n");
    return EXIT_DONE;
}
