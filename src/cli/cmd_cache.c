/* incipit cache: looks into the cache of a running server. */
#include "cli.h"
#include "json.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct remote {
    const char *url, *key;
} remote;

/* ---- asking ---------------------------------------------------------------------------------- */

static size_t take(char *data, size_t size, size_t n, void *to) {
    buf_put(to, data, size * n);
    return ((buf *)to)->failed ? 0 : size * n;
}

/* The sentence of an error's body; the body itself when there is none. */
static const char *error_text(json_object *root, const buf *body) {
    json_object *error = NULL, *message = NULL;
    if (json_object_is_type(root, json_type_object) &&
        json_object_object_get_ex(root, "error", &error) &&
        json_object_object_get_ex(error, "message", &message))
        return json_object_get_string(message);
    return body->data ? body->data : "no answer";
}

static struct curl_slist *headers_of(const remote *at) {
    struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");
    if (!at->key || !at->key[0]) return list;
    buf line = {0};
    buf_printf(&line, "Authorization: Bearer %s", at->key);
    if (line.data) list = curl_slist_append(list, line.data);
    buf_fini(&line);
    return list;
}

/* The answer's body in *out; false after a sentence on stderr. post NULL: a GET. */
static bool ask(const remote *at, const char *path, const buf *post, buf *out) {
    CURL *curl = curl_easy_init();
    buf url = {0};
    buf_printf(&url, "%s%s", at->url, path);
    if (!curl || url.failed) return cli_say("out of memory"), false;
    char why[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = headers_of(at);
    curl_easy_setopt(curl, CURLOPT_URL, url.data);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    if (post) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)post->len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, post->data ? post->data : "");
    }
    CURLcode rc = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (rc != CURLE_OK) {
        cli_say("%s: %s", url.data, why[0] ? why : curl_easy_strerror(rc));
    } else if (status != 200) {
        json_object *root = json_read_whole(out->data ? out->data : "", out->len);
        cli_say("%s: %ld: %s", url.data, status, error_text(root, out));
        json_object_put(root);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    buf_fini(&url);
    return rc == CURLE_OK && status == 200;
}

/* The same for an answer that is JSON; NULL after a sentence on stderr. */
static json_object *ask_json(const remote *at, const char *path, const buf *post) {
    buf body = {0};
    json_object *root = NULL;
    if (ask(at, path, post, &body)) {
        root = json_read_whole(body.data ? body.data : "", body.len);
        if (!root) cli_say("%s%s: the answer is no JSON", at->url, path);
    }
    buf_fini(&body);
    return root;
}

static double number(json_object *o, const char *name) {
    return json_object_get_double(json_object_object_get(o, name));
}

static const char *text(json_object *o, const char *name) {
    const char *s = json_object_get_string(json_object_object_get(o, name));
    return s ? s : "";
}

/* ---- ls -------------------------------------------------------------------------------------- */

/* A line of the tree: its text is shown as JSON shows it, so that it stays one line. */
static void print_node(json_object *n) {
    const char *salt = text(n, "salt");
    printf("%8.0f %8.0f %6.0f %6.0f %8.0f s  %*s%s%s%s%s\n", number(n, "position"),
           number(n, "tokens"), number(n, "hits"), number(n, "pages_in_use"),
           number(n, "idle_seconds"), 2 * (int)number(n, "depth"), "", salt[0] ? "[salt " : "",
           salt, salt[0] ? "] " : "",
           json_object_to_json_string_ext(json_object_object_get(n, "text"),
                                          JSON_C_TO_STRING_NOSLASHESCAPE));
}

static int list(const remote *at, int most) {
    char path[64];
    snprintf(path, sizeof path, "/cache?limit=%d", most);
    json_object *root = ask_json(at, path, NULL);
    if (!root) return EXIT_FAILED;
    json_object *nodes = json_object_object_get(root, "nodes");
    printf("%.0f pages of %.0f tokens, %.0f of them idle, %.0f pins\n\n", number(root, "pages"),
           number(root, "page_tokens"), number(root, "pages_idle"), number(root, "pins"));
    printf("%8s %8s %6s %6s %10s  %s\n", "position", "tokens", "hits", "in use", "idle",
           "begins with");
    for (size_t i = 0; i < json_object_array_length(nodes); i++)
        print_node(json_object_array_get_idx(nodes, i));
    if (json_object_get_boolean(json_object_object_get(root, "has_more")))
        puts("… and more: --limit");
    json_object_put(root);
    return EXIT_DONE;
}

/* ---- why ------------------------------------------------------------------------------------- */

/* A body for chat or completions as it is; any other text as a prompt. */
static void make_body(const char *input, size_t len, buf *out) {
    json_object *root = json_read_whole(input, len);
    if (json_object_is_type(root, json_type_object)) {
        buf_put(out, input, len);
    } else {
        buf_puts(out, "{\"prompt\":\"");
        buf_put_json(out, input, len);
        buf_puts(out, "\"}");
    }
    json_object_put(root);
}

static int why(const remote *at) {
    buf input = {0}, body = {0};
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;) buf_put(&input, piece, n);
    make_body(input.data ? input.data : "", input.len, &body);
    json_object *root = NULL;
    if (input.failed || body.failed)
        cli_say("out of memory");
    else
        root = ask_json(at, "/cache/why", &body);
    if (root) puts(text(json_object_object_get(root, "miss"), "message"));
    bool done = root != NULL;
    json_object_put(root);
    buf_fini(&input);
    buf_fini(&body);
    return done ? EXIT_DONE : EXIT_FAILED;
}

/* ---- stat ------------------------------------------------------------------------------------ */

/* The samples of our own, and the counts of tokens, without the label that says the model. */
static void print_sample(char *line) {
    static const char *const prefixes[] = {"incipit_", "vllm:prompt_tokens", "vllm:num_requests",
                                           "vllm:num_preemptions"};
    bool shown = false;
    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        shown |= !strncmp(line, prefixes[i], strlen(prefixes[i]));
    char *labels = shown ? strchr(line, '{') : NULL, *value = shown ? strrchr(line, ' ') : NULL;
    if (!labels || !value) return;
    char *more = strstr(labels, "\",");
    *labels = 0;
    value[-1] = 0; /* the closing brace */
    const char *name = strchr(line, line[0] == 'v' ? ':' : '_') + 1;
    printf("%-32s %-28s %g\n", name, more ? more + 2 : "", strtod(value + 1, NULL));
}

static int print_stats(const remote *at) {
    buf body = {0};
    bool done = ask(at, "/metrics", NULL, &body);
    char *rest = body.data;
    for (char *line; done && (line = strsep(&rest, "\n"));)
        if (line[0] != '#') print_sample(line);
    buf_fini(&body);
    return done ? EXIT_DONE : EXIT_FAILED;
}

int cmd_cache(int argc, char **argv) {
    char **operands;
    int n_operands, most = 200;
    remote at = {.url = "http://127.0.0.1:8080", .key = getenv("INCIPIT_API_KEY")};
    const cli_option options[] = {
        {0, "url", "URL", "the server (http://127.0.0.1:8080)", OPTION_TEXT, &at.url, 0, 0},
        {0, "limit", "N", "lines that ls prints (200)", OPTION_INT, &most, 0, 10000},
    };
    cli_parse(
        &(cli_usage){"cache", "ls|why|stat",
                     "Looks into the cache of a running server: what of yours is in it (ls), why\n"
                     "a prompt on stdin would be computed (why: a body for chat or completions,\n"
                     "or plain text), and what it counts (stat).",
                     "The API key is taken from INCIPIT_API_KEY.\n"
                     "example: incipit cache why < body.json",
                     options, COUNT_OF(options)},
        argc, argv, &operands, &n_operands);
    const char *what = n_operands == 1 ? operands[0] : "";
    if (!strcmp(what, "ls")) return list(&at, most);
    if (!strcmp(what, "why")) return why(&at);
    if (!strcmp(what, "stat")) return print_stats(&at);
    cli_say("cache: one of ls, why and stat is expected (incipit cache --help)");
    return EXIT_USAGE;
}
