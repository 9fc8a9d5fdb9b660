#include "client.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <json-c/json.h>

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t listens;
    serve_opts opts;
    int port, rc;
    icp_error err;
} fixture = {.lock = PTHREAD_MUTEX_INITIALIZER, .listens = PTHREAD_COND_INITIALIZER};

void fixture_block_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void tell_port(void *arg, int port) {
    pthread_mutex_lock(&fixture.lock);
    fixture.port = port;
    pthread_cond_signal(&fixture.listens);
    pthread_mutex_unlock(&fixture.lock);
}

static void *run(void *arg) {
    fixture.rc = serve_run(&fixture.opts, &fixture.err);
    return NULL;
}

void fixture_start_loading(serve_opts *opts) {
    opts->listening = tell_port;
    if (!opts->model_path) opts->model_path = "stub";
    fixture.opts = *opts;
    fixture.port = 0;
    pthread_create(&fixture.thread, NULL, run, NULL);
    pthread_mutex_lock(&fixture.lock);
    while (!fixture.port) pthread_cond_wait(&fixture.listens, &fixture.lock);
    pthread_mutex_unlock(&fixture.lock);
}

void fixture_start(serve_opts *opts) {
    fixture_start_loading(opts);
    for (int status = 0; status != 200; usleep(1000)) {
        answer a = client_ask("GET", "/health", "", NULL);
        status = a.status;
        answer_free(&a);
    }
}

int fixture_set_up(void **state) {
    static serve_opts opts = {.model_path = "/models/stub.gguf"};
    fixture_start(&opts);
    return 0;
}

int fixture_take_down(void **state) {
    return fixture_stop();
}

int fixture_stop(void) {
    kill(getpid(), SIGTERM);
    return fixture_wait();
}

int fixture_wait(void) {
    pthread_join(fixture.thread, NULL);
    return fixture.rc;
}

int fixture_port(void) {
    return fixture.port;
}

void fixture_wait_idle(void) {
    while (stub_count().alive > 0) usleep(1000);
}

/* ---- client ---------------------------------------------------------------------------------- */

int client_open(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)fixture.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* The other side may close in the middle: what it said is still read. */
void client_send(int fd, const char *text, size_t len) {
    while (len) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
        if (n <= 0) return;
        text += n;
        len -= (size_t)n;
    }
}

void client_sends(int fd, const char *text) {
    client_send(fd, text, strlen(text));
}

struct text {
    char *data;
    size_t len, cap;
};

static void put(struct text *t, char c) {
    if (t->len + 1 >= t->cap) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->data = realloc(t->data, t->cap);
    }
    t->data[t->len++] = c;
    t->data[t->len] = 0;
}

static bool take(int fd, struct text *t) {
    char c;
    if (recv(fd, &c, 1, 0) != 1) return false;
    put(t, c);
    return true;
}

static bool ends_with(const struct text *t, const char *end) {
    size_t n = strlen(end);
    return t->len >= n && !memcmp(t->data + t->len - n, end, n);
}

static bool take_line(int fd, struct text *t) {
    while (take(fd, t))
        if (ends_with(t, "\r\n")) return true;
    return false;
}

static bool take_n(int fd, struct text *t, size_t n) {
    char piece[65536];
    while (n) {
        ssize_t got = recv(fd, piece, n < sizeof piece ? n : sizeof piece, 0);
        if (got <= 0) return false;
        for (ssize_t i = 0; i < got; i++) put(t, piece[i]);
        n -= (size_t)got;
    }
    return true;
}

static bool take_chunks(int fd, struct text *body) {
    for (;;) {
        struct text line = {0};
        bool ok = take_line(fd, &line);
        size_t n = ok ? strtoul(line.data, NULL, 16) : 0;
        free(line.data);
        struct text end = {0};
        ok = ok && take_n(fd, body, n) && take_line(fd, &end) && end.len == 2;
        free(end.data);
        if (!ok || n == 0) return ok;
    }
}

static void lower_names(char *head) {
    bool name = false;
    for (char *at = head; *at; at++) {
        if (*at == '\n')
            name = true;
        else if (*at == ':')
            name = false;
        else if (name)
            *at = (char)tolower((unsigned char)*at);
    }
}

const char *answer_header(const answer *a, const char *name) {
    static char value[512];
    char key[80];
    snprintf(key, sizeof key, "\n%s: ", name);
    const char *at = a->head ? strstr(a->head, key) : NULL;
    if (!at) return NULL;
    at += strlen(key);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

answer client_read(int fd) {
    struct text head = {0}, body = {0};
    answer a = {0};
    while (take(fd, &head) && !ends_with(&head, "\r\n\r\n"))
        ;
    if (!head.len) return a;
    lower_names(head.data);
    a.head = head.data;
    a.status = atoi(head.data + strlen("HTTP/1.1 "));
    const char *length = answer_header(&a, "content-length");
    if (answer_header(&a, "transfer-encoding"))
        a.complete = take_chunks(fd, &body);
    else
        a.complete = length && take_n(fd, &body, strtoul(length, NULL, 10));
    if (a.status == 204) a.complete = true;
    if (!body.data) put(&body, 0), body.len = 0;
    a.body = body.data;
    a.len = body.len;
    return a;
}

void answer_free(answer *a) {
    free(a->head);
    free(a->body);
    *a = (answer){0};
}

answer client_ask(const char *method, const char *path, const char *headers, const char *body) {
    char head[4096];
    int fd = client_open();
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path,
                     headers);
    if (body)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Length: %zu\r\n", strlen(body));
    snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    client_sends(fd, head);
    if (body) client_sends(fd, body);
    answer a = client_read(fd);
    close(fd);
    return a;
}

answer client_post(const char *path, const char *body) {
    return client_ask("POST", path, "", body);
}

bool client_wait_for(int fd, const char *text) {
    struct text seen = {0};
    bool found = false;
    while (!found && take(fd, &seen)) found = ends_with(&seen, text);
    free(seen.data);
    return found;
}

/* ---- looking at answers ---------------------------------------------------------------------- */

const char *json_at(const char *json, const char *pointer) {
    static char text[16][4096];
    static int turn;
    char *out = text[turn = (turn + 1) % 16];
    json_object *root = json_tokener_parse(json), *value = NULL;
    out[0] = 0;
    if (root && json_pointer_get(root, pointer, &value) == 0)
        snprintf(out, sizeof text[0], "%s",
                 json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN |
                                                           JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(root);
    return out;
}

char **stream_events(char *body) {
    static char *list[512];
    size_t n = 0;
    for (char *at = body, *end; (end = strstr(at, "\n\n")) && n < 511; at = end + 2) {
        char *name = NULL;
        *end = 0;
        if (!strncmp(at, "event: ", 7)) {
            name = at + 7;
            at = strchr(at, '\n');
            *at++ = 0;
        }
        if (strncmp(at, "data: ", 6) != 0) {
            assert_memory_equal(at, ": ", 2);
            continue;
        }
        list[n++] = at + 6;
        char quoted[80];
        snprintf(quoted, sizeof quoted, "\"%s\"", name ? name : "");
        if (name) assert_string_equal(json_at(at + 6, "/type"), quoted);
    }
    list[n] = NULL;
    return list;
}
