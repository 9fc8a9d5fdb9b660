/* list: the models that were pulled, by the names that -m takes. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

/* "user/repo/sub/model-Q4_K_M.gguf" → "user/repo:Q4_K_M", or the file's path where more than one
 * model of the repository has that. */
static bool name_model(const char *path, hub_ref *out) {
    const char *slash = strchr(path, '/');
    slash = slash ? strchr(slash + 1, '/') : NULL;
    if (!slash || (size_t)(slash - path) >= sizeof out->repo) return false;
    char *found;
    snprintf(out->repo, sizeof out->repo, "%.*s", (int)(slash - path), path);
    hub_quantisation(slash + 1, out->tag);
    if (out->tag[0] && hub_find(cli_models_folder(), out, &found, NULL) == 0)
        mem_free(found);
    else
        snprintf(out->tag, sizeof out->tag, "%s", slash + 1);
    return true;
}

static void print_model(const hub_list *all, const hub_file *first) {
    hub_ref name, whole;
    hub_list parts;
    int64_t size = 0;
    if (!name_model(first->path, &name)) return;
    snprintf(whole.repo, sizeof whole.repo, "%s", name.repo);
    snprintf(whole.tag, sizeof whole.tag, "%s", first->path);
    bool is_whole = hub_pick(all, &whole, &parts, NULL) == 0;
    for (size_t i = 0; i < parts.n; i++) size += parts.file[i].size;
    printf("%10.1f MB  %s:%s", (double)(is_whole ? size : first->size) / 1e6, name.repo, name.tag);
    if (parts.n > 1) printf(", in %zu files", parts.n);
    puts(is_whole ? "" : ", incomplete: pull it again to go on");
    hub_list_fini(&parts);
}

int cmd_list(int argc, char **argv) {
    char **operands;
    int n;
    cli_parse(&(cli_usage){"list", "",
                           "Lists the models that were pulled, by the names that -m takes.", NULL,
                           NULL, 0},
              argc, argv, &operands, &n);
    hub_list all;
    icp_error err = {0};
    if (hub_kept(cli_models_folder(), NULL, &all, &err) < 0) return cli_fail(&err);
    for (size_t i = 0; i < all.n; i++) {
        const char *path = all.file[i].path;
        size_t len = strlen(path);
        if (len > 5 && !strcmp(path + len - 5, ".part"))
            printf("%10.1f MB  %s, begun: pull it again to go on\n", (double)all.file[i].size / 1e6,
                   path);
        else if (hub_is_model(path))
            print_model(&all, &all.file[i]);
    }
    hub_list_fini(&all);
    return EXIT_DONE;
}
