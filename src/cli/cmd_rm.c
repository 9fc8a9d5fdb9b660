/* rm: deletes models that were pulled. */
#include "cli.h"

#include <stdio.h>

int cmd_rm(int argc, char **argv) {
    char **operands;
    int n;
    cli_parse(&(cli_usage){"rm", "USER/REPO[:QUANT]…",
                           "Deletes pulled models; without QUANT all of a repository, begun pulls\n"
                           "included.",
                           NULL, NULL, 0},
              argc, argv, &operands, &n);
    hub_ref ref;
    for (int i = 0; i < n; i++)
        if (!hub_ref_parse(operands[i], &ref)) n = 0;
    if (n == 0) {
        cli_say("rm: models' names are expected, as `incipit list` tells them");
        return EXIT_USAGE;
    }
    int code = EXIT_DONE;
    for (int i = 0; i < n; i++) {
        icp_error err = {0};
        int64_t freed;
        hub_ref_parse(operands[i], &ref);
        if (hub_remove(cli_models_folder(), &ref, &freed, &err) < 0)
            code = cli_fail(&err);
        else
            printf("%s: %.1f MB freed\n", operands[i], (double)freed / 1e6);
    }
    return code;
}
