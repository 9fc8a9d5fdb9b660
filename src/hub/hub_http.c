/* One request to a hub: redirects, headers, time limits, and what failures mean. */
#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "hub_internal.h"

enum {
    MAX_REDIRECTS = 10,
    MAX_ATTEMPTS = 5,   /* in a row, without a byte between them */
    MAX_PATIENCE = 300, /* seconds that a server may ask to wait */
};

typedef struct transfer {
    CURL *curl;
    hub_answer *answer;
    hub_body_fn *body;
    void *arg;
} transfer;

/* ---- what comes ----------------------------------------------------------------------------- */

/* The value of a header line when it has this name. */
static const char *header_value(const char *line, const char *name) {
    size_t len = strlen(name);
    if (strncasecmp(line, name, len) || line[len] != ':') return NULL;
    return line + len + 1 + strspn(line + len + 1, " \t");
}

/* The checksum stays from the hub's own answer, which redirects to one that knows nothing of it. */
static void take_header(hub_answer *a, const char *line) {
    const char *value;
    if (!strncmp(line, "HTTP/", 5)) {
        a->range_at = -1;
    } else if ((value = header_value(line, "content-range"))) {
        if (sscanf(value, "bytes %ld-", &a->range_at) != 1) a->range_at = -1;
    } else if ((value = header_value(line, "x-linked-etag"))) {
        value += strspn(value, "W/\"");
        if (hub_is_sha256(value, strcspn(value, "\"\r\n"))) snprintf(a->sha256, 65, "%s", value);
    }
}

static size_t on_header(char *data, size_t size, size_t n, void *arg) {
    transfer *t = arg;
    char line[1024];
    snprintf(line, sizeof line, "%.*s", (int)MIN(size * n, sizeof line - 1), data);
    take_header(t->answer, line);
    return size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg) {
    transfer *t = arg;
    hub_answer *a = t->answer;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &a->status);
    if (a->status < 200 || a->status > 299) return size * n; /* words about an error */
    if (t->body(t->arg, a, data, size * n)) return size * n;
    a->refused = true;
    return 0;
}

/* ---- a request ------------------------------------------------------------------------------ */

static bool may_pass(CURLcode rc) {
    static const CURLcode codes[] = {CURLE_PARTIAL_FILE,
                                     CURLE_RECV_ERROR,
                                     CURLE_SEND_ERROR,
                                     CURLE_GOT_NOTHING,
                                     CURLE_HTTP2,
                                     CURLE_HTTP2_STREAM,
                                     CURLE_OPERATION_TIMEDOUT,
                                     CURLE_COULDNT_CONNECT,
                                     CURLE_HTTP3,
                                     CURLE_WEIRD_SERVER_REPLY,
                                     CURLE_COULDNT_RESOLVE_HOST};
    for (size_t i = 0; i < COUNT_OF(codes); i++)
        if (rc == codes[i]) return true;
    return false;
}

/* libcurl shows a header of this name to the host that was asked only. */
static bool set_token(CURL *curl, const char *token, struct curl_slist **headers) {
    buf line = {0};
    if (!token || !token[0]) return true;
    buf_printf(&line, "Authorization: Bearer %s", token);
    if (!line.failed) *headers = curl_slist_append(NULL, line.data);
    buf_fini(&line);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
    return *headers != NULL;
}

static void set_options(transfer *t, const hub_opts *opts, const char *url, int64_t from,
                        char why[CURL_ERROR_SIZE]) {
    CURL *curl = t->curl;
    /* What was asked for in secret is not answered in the open. */
    const char *protocols = strncasecmp(url, "https:", 6) ? "http,https" : "https";
    char range[32];
    snprintf(range, sizeof range, "%lld-", (long long)from);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "incipit/" INCIPIT_VERSION);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)(opts->silence * 1000));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)ceil(opts->silence));
    if (from > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range);
}

static int failed(const char *url, CURLcode rc, const char *why, hub_answer *a, icp_error *err) {
    a->passing = may_pass(rc) && !a->refused;
    return error_set(err, ICP_EIO, "%.300s: %s", url, why[0] ? why : curl_easy_strerror(rc));
}

int hub_get(const hub_opts *opts, const char *url, int64_t from, hub_body_fn *body, void *arg,
            hub_answer *a, icp_error *err) {
    *a = (hub_answer){.range_at = -1};
    transfer t = {.curl = curl_easy_init(), .answer = a, .body = body, .arg = arg};
    struct curl_slist *headers = NULL;
    char why[CURL_ERROR_SIZE] = "";
    if (!t.curl || !set_token(t.curl, opts->token, &headers)) {
        curl_easy_cleanup(t.curl);
        return error_set(err, ICP_ENOMEM, "out of memory");
    }
    set_options(&t, opts, url, from, why);
    CURLcode rc = curl_easy_perform(t.curl);
    curl_off_t seconds = 0;
    curl_easy_getinfo(t.curl, CURLINFO_RESPONSE_CODE, &a->status);
    curl_easy_getinfo(t.curl, CURLINFO_RETRY_AFTER, &seconds);
    a->retry_after = seconds;
    if (rc == CURLE_OK) a->passing = a->status == 429 || a->status == 408 || a->status >= 500;
    curl_slist_free_all(headers);
    curl_easy_cleanup(t.curl);
    return rc == CURLE_OK ? 0 : failed(url, rc, why, a, err);
}

/* ---- what a failure means ------------------------------------------------------------------- */

int hub_status_error(const hub_answer *a, const hub_opts *opts, const char *what, icp_error *err) {
    bool has_token = opts->token && opts->token[0];
    switch (a->status) {
    case 401:
    case 403:
        return error_set(err, ICP_EIO,
                         "%s: %ld from %s: it does not exist, is private, or its terms must be "
                         "accepted on its page first; %s",
                         what, a->status, opts->endpoint,
                         has_token ? "the token in HF_TOKEN gives no access"
                                   : "put a token with access into HF_TOKEN");
    case 404:
        return error_set(err, ICP_ENOTFOUND, "%s: there is no such thing at %s", what,
                         opts->endpoint);
    case 429:
        return error_set(err, ICP_EIO, "%s: %s wants fewer requests (429); try again later", what,
                         opts->endpoint);
    default:
        return error_set(err, ICP_EIO, "%s: %s answered with status %ld", what, opts->endpoint,
                         a->status);
    }
}

bool hub_wait(const hub_opts *opts, const hub_answer *a, int n, const icp_error *why) {
    int64_t seconds = a->retry_after > 0 ? a->retry_after : (int64_t)1 << (n - 1);
    if (!a->passing || n >= MAX_ATTEMPTS || seconds > MAX_PATIENCE) return false;
    buf text = {0};
    buf_printf(&text, "%s; trying again in %lld s", why->text, (long long)seconds);
    if (opts->note && text.data) opts->note(opts->arg, text.data);
    buf_fini(&text);
    struct timespec left = {.tv_sec = seconds};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
    return true;
}

void hub_put_url_path(buf *out, const char *path) {
    for (const char *at = path; *at; at++) {
        bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                     (*at >= '0' && *at <= '9') || strchr("-._~/", *at);
        buf_printf(out, plain ? "%c" : "%%%02X", plain ? *at : (unsigned char)*at);
    }
}
