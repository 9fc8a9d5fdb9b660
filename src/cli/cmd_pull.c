/* pull: fetches a model from Hugging Face, or a server that speaks its API. */
#include "cli.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the file that is on its way. */
typedef struct meter {
    bool terminal;
    char file[256];
    double began, shown;
    int64_t from; /* bytes when it began */
} meter;

static void end_line(meter *m) {
    if (m->terminal && m->file[0]) fputc('\n', stderr);
    m->file[0] = 0;
}

static void show_line(const meter *m, int64_t done, int64_t size, double now) {
    double rate = (double)(done - m->from) / MAX(now - m->began, 1e-3);
    fprintf(stderr, "\r\033[K%s: %.1f MB", m->file, (double)done / 1e6);
    if (size > 0)
        fprintf(stderr, " of %.1f, %.0f %%", (double)size / 1e6,
                100.0 * (double)done / (double)size);
    if (rate > 0) fprintf(stderr, ", %.1f MB/s", rate / 1e6);
    if (rate > 0 && done < size) {
        int64_t left = (int64_t)((double)(size - done) / rate);
        fprintf(stderr, ", %lld:%02d left", (long long)left / 60, (int)(left % 60));
    }
}

/* One line a file; on a terminal it lives. */
static void show_progress(void *arg, const char *file, int64_t done, int64_t size) {
    meter *m = arg;
    double now = clock_now();
    if (strcmp(m->file, file) != 0) {
        end_line(m);
        snprintf(m->file, sizeof m->file, "%s", file);
        m->began = now;
        m->shown = 0;
        m->from = done;
        if (!m->terminal) fprintf(stderr, "%s, %.1f MB\n", file, (double)MAX(size, 0) / 1e6);
    }
    if (!m->terminal || (now - m->shown < 0.1 && done != size)) return;
    m->shown = now;
    show_line(m, done, size, now);
}

static void show_note(void *arg, const char *text) {
    end_line(arg);
    cli_say("%s", text);
}

/* "https://host/" → "https://host"; mem_free. */
static char *read_endpoint(void) {
    const char *given = getenv("HF_ENDPOINT");
    char *url = mem_strdup(given && given[0] ? given : "https://huggingface.co");
    for (size_t n = url ? strlen(url) : 0; n > 0 && url[n - 1] == '/';) url[--n] = 0;
    return url;
}

static double read_silence(void) {
    const char *text = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 && seconds < 86400 ? seconds : 30;
}

int cmd_pull(int argc, char **argv) {
    char **operands, *path = NULL;
    int n;
    meter m = {.terminal = isatty(STDERR_FILENO)};
    hub_opts opts = {.progress = show_progress, .note = show_note, .arg = &m};
    const cli_option options[] = {{0, "offline", NULL,
                                   "ask no server: check that the model is here and whole",
                                   OPTION_FLAG, &opts.offline, 0, 0}};
    cli_parse(
        &(cli_usage){
            "pull", "USER/REPO[:QUANT]",
            "Fetches a model in GGUF into the user's cache directory, and prints its path.\n"
            "QUANT is a quantisation (Q8_0) or a file's name; Q4_K_M is preferred. What was\n"
            "interrupted goes on where it was. -m USER/REPO[:QUANT] uses the model then.",
            "HF_ENDPOINT names another server than https://huggingface.co, HF_TOKEN a token\n"
            "for it, HF_HUB_DOWNLOAD_TIMEOUT the seconds of silence that end an attempt (30).\n"
            "example: incipit pull bartowski/SmolLM2-135M-Instruct-GGUF:Q8_0",
            options, COUNT_OF(options)},
        argc, argv, &operands, &n);
    hub_ref ref;
    icp_error err = {0};
    if (n != 1 || !hub_ref_parse(operands[0], &ref)) {
        cli_say(
            "pull: a model's name is expected, USER/REPO or USER/REPO:QUANT (incipit pull --help)");
        return EXIT_USAGE;
    }
    opts.folder = cli_models_folder();
    char *endpoint = read_endpoint();
    if (!endpoint) return cli_say("out of memory");
    opts.endpoint = endpoint;
    opts.token = getenv("HF_TOKEN");
    opts.silence = read_silence();
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int rc = hub_pull(&ref, &opts, &path, &err);
    end_line(&m);
    curl_global_cleanup();
    mem_free(endpoint);
    if (rc < 0) return cli_fail(&err);
    puts(path);
    mem_free(path);
    return EXIT_DONE;
}
