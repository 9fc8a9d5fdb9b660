#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 64 };

int cli_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("incipit: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_FAILED;
}

int cli_fail(const icp_error *err) {
    return cli_say("%s", err->text[0] ? err->text : icp_strerror(err->code));
}

/* "--cache-ram" → "INCIPIT_CACHE_RAM" */
static void env_name(const char *name, char out[64]) {
    int n = snprintf(out, 64, "INCIPIT_%s", name);
    for (int i = 0; i < n && i < 63; i++)
        out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

static void print_help(const cli_usage *u) {
    printf("usage: incipit %s [options]%s%s\n\n%s\n\noptions:\n", u->command,
           u->operands[0] ? " " : "", u->operands, u->about);
    for (size_t i = 0; i < u->n_options; i++) {
        const cli_option *o = &u->options[i];
        char left[64], letter[8] = "    ";
        if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-28s %s\n", left, o->help);
    }
    printf("  %-28s %s\n", "-h, --help", "this text");
    printf("\nEach option has a twin in the environment: --some-name is INCIPIT_SOME_NAME.\n");
    if (u->more) printf("\n%s\n", u->more);
}

static void wrong(const cli_usage *u, const char *format, ...) PRINTF_LIKE(2, 3);
static void wrong(const cli_usage *u, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "incipit %s: ", u->command);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nTry: incipit %s --help\n", u->command);
    va_end(args);
    exit(EXIT_USAGE);
}

/* "512M", "4G", "1.5GiB", "1000000": bytes, in powers of 1024. */
static bool parse_size(const char *text, size_t *out) {
    char *end;
    errno = 0;
    double n = strtod(text, &end);
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit && *unit) {
        n *= pow(1024, (double)(unit - units + 1));
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    if (end == text || *end || errno || !(n >= 0) || n > 0x1p62) return false;
    *out = (size_t)n;
    return true;
}

static void add_text(const cli_usage *u, const cli_option *o, const char *text, bool environment) {
    cli_list *list = o->to;
    if (list->from_environment && !environment) list->n = 0;
    list->from_environment = environment;
    if (list->n == CLI_MOST_TEXTS)
        wrong(u, "--%s may be given %d times at most", o->name, CLI_MOST_TEXTS);
    list->text[list->n++] = text;
}

static void store(const cli_usage *u, const cli_option *o, const char *text, const char *source) {
    char *end = NULL;
    double n = 0;
    errno = 0;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)o->to = !text || (text[0] && strcmp(text, "0"));
        return;
    case OPTION_TEXT:
        *(const char **)o->to = text;
        return;
    case OPTION_LIST:
        add_text(u, o, text, source[0] != '-');
        return;
    case OPTION_SIZE:
        if (!parse_size(text, o->to))
            wrong(u, "%s: \"%s\" is not a size (examples: 512M, 4G)", source, text);
        return;
    case OPTION_INT:
        n = (double)strtol(text, &end, 10);
        break;
    case OPTION_FLOAT:
        n = strtod(text, &end);
        break;
    }
    if (end == text || *end || errno || !isfinite(n))
        wrong(u, "%s: \"%s\" is not a%s number", source, text,
              o->kind == OPTION_INT ? " whole" : "");
    double max = o->max > 0 ? o->max : INT32_MAX;
    if ((o->min != 0 || o->max != 0 || o->kind == OPTION_INT) && (n < o->min || n > max))
        wrong(u, "%s: %s is out of range (%g to %g)", source, text, o->min, max);
    if (o->kind == OPTION_INT)
        *(int *)o->to = (int)n;
    else
        *(float *)o->to = (float)n;
}

static void store_environment(const cli_usage *u) {
    for (size_t i = 0; i < u->n_options; i++) {
        char name[64];
        env_name(u->options[i].name, name);
        const char *text = getenv(name);
        if (text && text[0]) store(u, &u->options[i], text, name);
    }
}

void cli_parse(const cli_usage *u, int argc, char **argv, char ***operands, int *n) {
    struct option longs[MAX_OPTIONS + 2] = {0};
    char letters[2 * MAX_OPTIONS + 4] = ":h";
    size_t at = 2;
    for (size_t i = 0; i < u->n_options; i++) {
        const cli_option *o = &u->options[i];
        int has_value = o->kind != OPTION_FLAG;
        longs[i] = (struct option){o->name, has_value, NULL, 256 + (int)i};
        if (!o->letter) continue;
        letters[at++] = o->letter;
        if (has_value) letters[at++] = ':';
    }
    longs[u->n_options] = (struct option){"help", 0, NULL, 'h'};
    store_environment(u);

    int got;
    opterr = 0;
    optind = 1;
    while ((got = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        if (got == 'h') {
            print_help(u);
            exit(EXIT_DONE);
        }
        if (got == ':') wrong(u, "%s needs a value", argv[optind - 1]);
        if (got == '?') wrong(u, "unknown option %s", argv[optind - 1]);
        size_t i = got >= 256 ? (size_t)(got - 256) : 0;
        while (got < 256 && u->options[i].letter != got) i++;
        char source[64];
        snprintf(source, sizeof source, "--%s", u->options[i].name);
        store(u, &u->options[i], optarg, source);
    }
    *operands = argv + optind;
    *n = argc - optind;
    if (*n > 0 && !u->operands[0]) wrong(u, "unexpected argument \"%s\"", argv[optind]);
}
