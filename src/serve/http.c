/* The glue to libmicrohttpd: its callbacks, all on its one thread, drive connections and calls.
 *
 *   on_connection STARTED ─▶ conn          on_connection CLOSED ─▶ conn freed
 *   on_request    headers ─▶ begin         body ─▶ take_body    then, and after each wake ─▶
 * advance read_stream   when the socket takes more of a stream on_completed  call freed, whatever
 * happened; a running generation is cancelled with it */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "serve_internal.h"

enum {
    CONNECTION_MEMORY = 32 << 10, /* header, and a piece of body, of a connection */
    SWALLOW_LIMIT = 1 << 20, /* a refused body up to this size is read, so the connection lives */
    MAX_ARGUMENTS = 64,      /* of a query */
    BODIES_LIMIT = 16,       /* times max_body: bytes of all bodies held at once */
};

static const char *header(const call *c, const char *name) {
    return MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, name);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void add_cors(struct MHD_Response *r, const call *c) {
    const serve_opts *opts = c->server->opts;
    if (!c->origin || !origin_allowed(opts->cors, c->origin)) return;
    MHD_add_response_header(r, "Access-Control-Allow-Origin", c->origin);
    MHD_add_response_header(r, "Vary", "Origin");
    MHD_add_response_header(r, "Access-Control-Expose-Headers",
                            "x-request-id, request-id, retry-after, x-incipit-cached-tokens, "
                            "x-incipit-computed-tokens, x-incipit-miss, x-incipit-miss-position");
    if (strcmp(c->method, "OPTIONS") != 0) return;
    const char *asked = header(c, "Access-Control-Request-Headers");
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    MHD_add_response_header(r, "Access-Control-Allow-Headers",
                            asked ? asked : "authorization, content-type, x-api-key");
    MHD_add_response_header(r, "Access-Control-Max-Age", "86400");
}

static enum MHD_Result respond(call *c, int status, struct MHD_Response *r) {
    if (!r) return MHD_NO;
    c->status = status;
    MHD_add_response_header(r, "x-request-id", c->id); /* OpenAI's name, and Anthropic's */
    MHD_add_response_header(r, "request-id", c->id);
    add_cors(r, c);
    if (c->linger || c->server->draining) MHD_add_response_header(r, "Connection", "close");
    enum MHD_Result rc = MHD_queue_response(c->mhd, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

static struct MHD_Response *body_response(reply *r) {
    if (r->page)
        return MHD_create_response_from_buffer(r->page_len, (void *)r->page,
                                               MHD_RESPMEM_PERSISTENT);
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(
        r->body.len, r->body.data ? r->body.data : "", r->body.data ? mem_free : NULL);
    if (response) r->body = (buf){0}; /* it owns the bytes now */
    return response;
}

/* Of a whole answer; a stream's headers go out before anything is known. */
static void add_cache_headers(struct MHD_Response *response, const call *c) {
    icp_usage u = generation_usage(c->generation);
    char number[24];
    snprintf(number, sizeof number, "%zu", u.cached_tokens);
    MHD_add_response_header(response, "x-incipit-cached-tokens", number);
    snprintf(number, sizeof number, "%zu", u.prompt_tokens - u.cached_tokens);
    MHD_add_response_header(response, "x-incipit-computed-tokens", number);
    if (u.why.reason == ICP_MISS_NONE) return;
    MHD_add_response_header(response, "x-incipit-miss", icp_miss_name(u.why.reason));
    snprintf(number, sizeof number, "%zu", u.why.position);
    MHD_add_response_header(response, "x-incipit-miss-position", number);
}

static enum MHD_Result send_reply(call *c) {
    reply *r = &c->reply;
    if (r->body.failed && !r->is_error) { /* half an answer is none */
        buf_fini(&r->body);
        r->status = 0;
        reply_error(r, 503, "out_of_memory", NULL, "Out of memory.");
    }
    if (r->is_error) {
        buf_clear(&r->body);
        put_error(&r->body, r, c->errors, c->id);
    }
    struct MHD_Response *response = body_response(r);
    if (!response) return MHD_NO;
    if (r->status != 204)
        MHD_add_response_header(response, "Content-Type", r->type ? r->type : "application/json");
    if (r->page) {
        MHD_add_response_header(response, "Content-Security-Policy", PAGE_POLICY);
        MHD_add_response_header(response, "Cache-Control", "no-cache");
    }
    if (c->generation && !r->is_error) add_cache_headers(response, c);
    char number[24];
    snprintf(number, sizeof number, "%d", r->retry_after);
    if (r->retry_after) MHD_add_response_header(response, "Retry-After", number);
    if (r->never_retry) MHD_add_response_header(response, "x-should-retry", "false");
    if (r->status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (r->status == 415) MHD_add_response_header(response, "Accept-Encoding", "identity");
    if (r->allow) MHD_add_response_header(response, "Allow", r->allow);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    return respond(c, r->is_error ? error_status(r, c->errors) : r->status, response);
}

static ssize_t read_stream(void *arg, uint64_t position, char *to, size_t max) {
    call *c = arg;
    do {
        if (c->conn->gone) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (c->server->stopping) generation_cancel(c->generation);
        if (call_take_ping(c)) generation_ping(c->generation);
        generation_pump(c->generation);
        long n = generation_read(c->generation, to, max);
        if (n < 0) return MHD_CONTENT_READER_END_OF_STREAM;
        if (n > 0) {
            call_set_state(c, CALL_STREAMING); /* not quiet */
            return n;
        }
    } while (!call_sleep(c));
    return 0;
}

static enum MHD_Result send_stream(call *c) {
    call_set_state(c, CALL_STREAMING);
    struct MHD_Response *r = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, CONNECTION_MEMORY / 4, read_stream, c, NULL);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "text/event-stream; charset=utf-8");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    return respond(c, 200, r);
}

/* ---- the request ----------------------------------------------------------------------------- */

static bool is_sane_id(const char *id) {
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-");
    return n > 0 && n <= 128 && id[n] == 0;
}

static void set_id(call *c) {
    const char *given = header(c, "x-request-id");
    if (given && is_sane_id(given)) {
        snprintf(c->id, sizeof c->id, "%s", given);
        return;
    }
    unsigned char noise[12] = {0};
    if (getrandom(noise, sizeof noise, 0) < 0) memcpy(noise, &c->began, sizeof c->began);
    int n = snprintf(c->id, sizeof c->id, "req_");
    for (size_t i = 0; i < sizeof noise; i++)
        n += snprintf(c->id + n, sizeof c->id - (size_t)n, "%02x", noise[i]);
}

static const char *presented_key(const call *c) {
    static const char scheme[] = "Bearer ";
    const char *value = header(c, "Authorization");
    if (!value || strncasecmp(value, scheme, sizeof scheme - 1) != 0) return header(c, "x-api-key");
    value += sizeof scheme - 1;
    return value + strspn(value, " ");
}

/* Fields of which a request has one at most, or whose readers do not agree on where it ends. */
struct framing {
    size_t hosts, lengths, keys;
    const char *coding; /* Transfer-Encoding */
    bool coded_twice;
};

static enum MHD_Result see_field(void *arg, enum MHD_ValueKind kind, const char *name,
                                 const char *value) {
    struct framing *f = arg;
    f->hosts += !strcasecmp(name, "Host");
    f->lengths += !strcasecmp(name, "Content-Length");
    f->keys += !strcasecmp(name, "Authorization");
    if (strcasecmp(name, "Transfer-Encoding") != 0) return MHD_YES;
    f->coded_twice = f->coding != NULL;
    f->coding = value ? value : "";
    return MHD_YES;
}

/* false: where the body ends, or who is meant, is not certain; nothing more is read. */
static bool check_framing(call *c) {
    struct framing f = {0};
    MHD_get_connection_values(c->mhd, MHD_HEADER_KIND, see_field, &f);
    const char *twice = f.hosts > 1     ? "Host"
                        : f.lengths > 1 ? "Content-Length"
                        : f.keys > 1    ? "Authorization"
                                        : NULL;
    if (twice)
        reply_error(&c->reply, 400, "invalid_header", NULL, "More than one %s header.", twice);
    else if (c->http11 && !f.hosts)
        reply_error(&c->reply, 400, "invalid_header", NULL, "The Host header is missing.");
    else if (f.coding && f.lengths)
        reply_error(&c->reply, 400, "invalid_header", NULL,
                    "Content-Length and Transfer-Encoding exclude each other.");
    else if (f.coding && (f.coded_twice || strcasecmp(f.coding, "chunked") != 0))
        reply_error(&c->reply, 501, "unsupported", NULL,
                    "The transfer coding \"%.80s\" is not supported: only chunked is.", f.coding);
    return !c->reply.status;
}

/* Refuses what the headers alone show to be wrong. */
static void check_headers(call *c, size_t body_length) {
    server *s = c->server;
    reply *r = &c->reply;
    const char *host = header(c, "Host");
    const char *encoding = header(c, "Content-Encoding");
    bool keyed = s->opts->keys && s->opts->keys->n;
    if (s->loopback && !keyed && host && !host_is_local(host)) {
        reply_error(r, 403, "host_not_allowed", NULL,
                    "This server listens to its own machine only and knows no host \"%s\".", host);
        return;
    }
    c->route = route_find(c->method, c->path, r);
    if (!c->route) return;
    c->tenant = keys_find(s->opts->keys, presented_key(c));
    if (!c->tenant && !c->route->open) {
        reply_error(r, 401, "invalid_api_key", NULL,
                    "A valid API key is needed: Authorization: Bearer KEY.");
        return;
    }
    if (!c->tenant) c->tenant = "";
    if (s->draining && !c->route->open)
        reply_error(r, 503, "shutting_down", NULL, "The server is shutting down.");
    else if (!s->ready && !c->route->open)
        reply_error(r, 503, "loading", NULL, "The model is loading.");
    else if (body_length > s->max_body)
        reply_error(r, 413, "request_too_large", NULL,
                    "The request body has %zu bytes; the limit is %zu.", body_length, s->max_body);
    else if (encoding && strcasecmp(encoding, "identity") != 0)
        reply_error(r, 415, "unsupported_encoding", NULL,
                    "The content encoding \"%.80s\" is not supported: send the body as it is.",
                    encoding);
}

static char too_many_arguments; /* a slot before there is a call */

/* libmicrohttpd forgets to answer when its records of a query's arguments fill the memory of the
 * connection. So a query of too many is cut before it is taken apart, where it stands. What is
 * returned becomes the request's slot. */
static void *on_uri(void *arg, const char *uri, struct MHD_Connection *mhd) {
    char *query = uri ? strchr(uri, '?') : NULL;
    size_t n = 0;
    for (const char *at = query; at; at = strchr(at + 1, '&')) n++;
    if (n <= MAX_ARGUMENTS) return NULL;
    query[1] = 0;
    return &too_many_arguments;
}

static enum MHD_Result begin(server *s, struct MHD_Connection *mhd, const char *url,
                             const char *method, const char *version, void **slot) {
    bool cut = *slot == &too_many_arguments;
    *slot = NULL;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    conn *on = info ? info->socket_context : NULL;
    call *c = on ? call_new(s, on, mhd) : NULL;
    if (!c) return MHD_NO;
    *slot = c;
    if (!watch_call(s->watch, on, c)) return MHD_NO;
    const char *origin = header(c, "Origin");
    c->method = mem_strdup(method);
    c->path = mem_strdup(url);
    c->origin = origin ? mem_strdup(origin) : NULL;
    c->http11 = !strcmp(version, MHD_HTTP_VERSION_1_1);
    if (!c->method || !c->path || (origin && !c->origin)) return MHD_NO;
    c->errors = header(c, "anthropic-version") ? FORM_ANTHROPIC : route_errors(url);
    set_id(c);

    const char *length = header(c, "Content-Length");
    size_t body_length = length ? strtoull(length, NULL, 10) : 0;
    if (check_framing(c)) {
        if (cut)
            reply_error(&c->reply, 414, "too_many_arguments", NULL,
                        "The query has more than %d arguments.", MAX_ARGUMENTS);
        else
            check_headers(c, body_length);
        if (!c->reply.status || strcmp(method, "POST") != 0) return MHD_YES;
        if (body_length <= SWALLOW_LIMIT && !header(c, "Expect")) return MHD_YES;
    }
    c->linger = true;
    return send_reply(c);
}

static enum MHD_Result take_body(call *c, const char *data, size_t n) {
    server *s = c->server;
    watch_progress(s->watch, c->conn, n);
    c->body_len += n;
    if (c->body_len > 4 * s->max_body + SWALLOW_LIMIT) return MHD_NO;
    if (c->reply.status) return MHD_YES; /* thrown away */
    c->body_held += n;
    s->body_bytes += n;
    if (c->body_len > s->max_body)
        reply_error(&c->reply, 413, "request_too_large", NULL,
                    "The request body is larger than the limit of %zu bytes.", s->max_body);
    else if (s->body_bytes > BODIES_LIMIT * s->max_body)
        reply_error(&c->reply, 503, "overloaded", NULL, "Too many large requests at once.");
    else
        buf_put(&c->body, data, n);
    if (c->body.failed) reply_error(&c->reply, 503, "out_of_memory", NULL, "Out of memory.");
    if (c->reply.status) call_drop_body(c);
    return MHD_YES;
}

/* The request is complete: answers, or hands it to a worker. */
static enum MHD_Result dispatch(call *c) {
    if (!watch_complete(c->server->watch, c->conn)) return MHD_NO;
    if (!c->reply.status && !c->route->slow) call_answer(c);
    if (c->reply.status) {
        call_set_state(c, CALL_REPLYING);
    } else {
        call_set_state(c, CALL_WORKING);
        workers_add(c->server->workers, c);
    }
    return MHD_YES;
}

/* Moves the call on until it sleeps or its answer is queued. */
static enum MHD_Result advance(call *c) {
    for (;;) {
        enum call_state state = call_get_state(c);
        if (c->conn->gone && state != CALL_WORKING) return MHD_NO;
        switch (state) {
        case CALL_READING:
            if (dispatch(c) == MHD_NO) return MHD_NO;
            break;
        case CALL_WORKING:
            if (call_sleep(c)) return MHD_YES;
            break;
        case CALL_GENERATING:
            if (c->server->stopping) generation_cancel(c->generation);
            generation_pump(c->generation);
            if (generation_streams(c->generation)) return send_stream(c);
            if (generation_done(c->generation)) {
                generation_reply(c->generation, &c->reply);
                call_set_state(c, CALL_REPLYING);
            } else if (call_sleep(c)) {
                return MHD_YES;
            }
            break;
        case CALL_REPLYING:
            return send_reply(c);
        case CALL_STREAMING:
            return MHD_NO;
        }
    }
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **slot) {
    if (!*slot || *slot == &too_many_arguments) return begin(arg, mhd, url, method, version, slot);
    if (!*n_data) return advance(*slot);
    enum MHD_Result rc = take_body(*slot, data, *n_data);
    *n_data = 0;
    return rc;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void log_call(const call *c, enum MHD_RequestTerminationCode how) {
    double ms = (clock_now() - c->began) * 1000;
    const char *end = how == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : ", client gone";
    if (!c->generation) {
        log_line(LOG_INFO, "%s %.200s %d %.1f ms%s", c->method, c->path, c->status, ms, end);
        return;
    }
    icp_usage usage = generation_usage(c->generation);
    bool missed = usage.miss && usage.miss[0];
    log_line(LOG_INFO, "%s %.200s %d %.1f ms, prompt %zu, cached %zu, completion %zu%s%s%s",
             c->method, c->path, c->status, ms, usage.prompt_tokens, usage.cached_tokens,
             usage.completion_tokens, missed ? ", " : "", missed ? usage.miss : "", end);
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **slot,
                         enum MHD_RequestTerminationCode how) {
    if (!*slot || *slot == &too_many_arguments) return;
    call *c = *slot;
    *slot = NULL;
    watch_call(c->server->watch, c->conn, NULL);
    if (c->linger) watch_linger(c->server->watch, c->conn->fd);
    if (c->method && c->path) log_call(c, how);
    call_free(c);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **slot,
                          enum MHD_ConnectionNotificationCode what) {
    server *s = arg;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        conn *c = info ? mem_zero(1, sizeof *c) : NULL;
        *slot = c;
        if (!c) return; /* begin refuses its requests */
        c->fd = info->connect_fd;
        watch_add(s->watch, c);
    } else if (*slot) {
        watch_remove(s->watch, *slot);
        mem_free(*slot);
        *slot = NULL;
    }
}

static void on_log(void *arg, const char *format, va_list args) {
    char text[400];
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = 0;
    log_line(LOG_DEBUG, "http: %s", text);
}

int http_start(server *s, int listen_fd, icp_error *err) {
    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        listen_fd, MHD_OPTION_CONNECTION_LIMIT, s->max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_URI_LOG_CALLBACK,
        on_uri, NULL, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)MAX(1, s->read_timeout),
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_END);
    if (!s->daemon) return error_set(err, ICP_EIO, "the HTTP server does not start");
    return 0;
}

void http_stop(server *s) {
    if (s->daemon) MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
}
