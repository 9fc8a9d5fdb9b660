/* Options of llama-server that fingers know: those that mean something here under another name, and
 * those that do not, which are named once and left out. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE = 1, PERHAPS_VALUE = 2 /* on, off, auto, 0 or 1 may follow */ };

static const struct peer_flag {
    const char *name;
    const char *ours; /* NULL: ignored */
    int value;
} flags[] = {
    {"-np", "--parallel", VALUE},
    {"--ctx-size", "--ctx", VALUE},
    {"--batch-size", "--batch", VALUE},
    {"--lora-scaled", "--lora", VALUE},
    {"--n-predict", "--predict", VALUE},
    {"-ngl", NULL, VALUE},
    {"--gpu-layers", NULL, VALUE},
    {"--n-gpu-layers", NULL, VALUE},
    {"-fa", NULL, PERHAPS_VALUE},
    {"--flash-attn", NULL, PERHAPS_VALUE},
    {"-ub", NULL, VALUE},
    {"--ubatch-size", NULL, VALUE},
    {"-tb", NULL, VALUE},
    {"--threads-batch", NULL, VALUE},
    {"-sps", NULL, VALUE},
    {"--slot-prompt-similarity", NULL, VALUE},
    {"--cache-reuse", NULL, VALUE},
    {"--numa", NULL, VALUE},
    {"--reasoning-format", NULL, VALUE},
    {"--verbosity", NULL, VALUE},
    {"--threads-http", NULL, VALUE},
    {"-cb", NULL, 0},
    {"--cont-batching", NULL, 0},
    {"--no-cont-batching", NULL, 0},
    {"--mmap", NULL, 0},
    {"--no-mmap", NULL, 0},
    {"--jinja", NULL, 0},
    {"--metrics", NULL, 0},
    {"--props", NULL, 0},
    {"--slots", NULL, 0},
    {"--no-slots", NULL, 0},
    {"--no-webui", NULL, 0},
    {"--no-context-shift", NULL, 0},
    {"--no-warmup", NULL, 0},
    {"--warmup", NULL, 0},
    {"--offline", NULL, 0},
};

/* The flag that an argument spells, alone or as --name=value. */
static const struct peer_flag *find(const char *argument) {
    size_t len = strcspn(argument, "=");
    for (size_t i = 0; i < COUNT_OF(flags); i++)
        if (strlen(flags[i].name) == len && !strncmp(flags[i].name, argument, len))
            return &flags[i];
    return NULL;
}

static bool takes_next(const struct peer_flag *f, const char *argument, const char *next) {
    static const char *const words[] = {"on", "off", "auto", "0", "1", "true", "false"};
    if (strchr(argument, '=') || !next) return false;
    for (size_t i = 0; f->value == PERHAPS_VALUE && i < COUNT_OF(words); i++)
        if (!strcmp(next, words[i])) return true;
    return f->value == VALUE;
}

/* "--ctx-size=4096" → "--ctx=4096" */
static char *rename(const struct peer_flag *f, const char *argument) {
    buf text = {0};
    buf_puts(&text, f->ours);
    buf_puts(&text, argument + strcspn(argument, "="));
    return text.failed ? NULL : text.data;
}

char **cli_without_peer_flags(int *argc, char **argv) {
    static char **out; /* so that it is never lost */
    out = mem_zero((size_t)*argc + 1, sizeof *out);
    buf ignored = {0};
    int n = 0;
    for (int i = 0; out && i < *argc; i++) {
        const struct peer_flag *f = i ? find(argv[i]) : NULL;
        if (f && f->ours) {
            out[n] = rename(f, argv[i]);
            if (!out[n++]) return NULL;
        } else if (f) {
            buf_printf(&ignored, "%s%s", ignored.len ? ", " : "", f->name);
            i += takes_next(f, argv[i], argv[i + 1]);
        } else {
            out[n++] = argv[i];
        }
    }
    if (ignored.len)
        cli_say("these options of llama-server mean nothing here and are ignored: %s",
                ignored.data);
    buf_fini(&ignored);
    *argc = n;
    return out;
}
