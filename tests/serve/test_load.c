/* Much at once: bodies, connections, readers that do not read. /health answers all the while. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base.h"
#include "client.h"

#define CHAT "/v1/chat/completions"
#define MIB ((size_t)1 << 20)

static void expect_healthy(void) {
    double began = clock_now();
    answer a = client_ask("GET", "/health", "", NULL);
    assert_int_equal(a.status, 200);
    if (clock_now() - began > 10) fail_msg("/health took %.1f s", clock_now() - began);
    answer_free(&a);
}

static answer post(const char *path, const char *headers, const char *body, size_t len) {
    char head[512];
    int fd = client_open();
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n%s\r\n", path, len,
             headers);
    client_sends(fd, head);
    client_send(fd, body, len);
    answer a = client_read(fd);
    close(fd);
    return a;
}

static void refuses_huge_bodies(void **state) {
    size_t len = 64 * MIB;
    char *body = malloc(len);
    memset(body, ' ', len);
    answer a = post(CHAT, "", body, len); /* reads the answer although it sends all of it */
    assert_int_equal(a.status, 413);
    assert_true(a.complete);
    answer_free(&a);

    int fd = client_open(); /* told by the headers alone */
    client_sends(fd, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108864\r\n"
                     "Expect: 100-continue\r\n\r\n");
    a = client_read(fd);
    assert_int_equal(a.status, 413);
    answer_free(&a);
    close(fd);

    fd = client_open(); /* no length is given */
    client_sends(fd, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                     "\r\n4000000\r\n");
    client_send(fd, body, len);
    client_sends(fd, "\r\n0\r\n\r\n");
    a = client_read(fd);
    assert_int_equal(a.status, 413);
    answer_free(&a);
    close(fd);
    free(body);
    expect_healthy();
}

static void answers_while_parsing(void **state) {
    buf body = {0};
    buf_puts(&body, "{\"prompt\":\"");
    for (size_t i = 0; i < 24 * MIB; i += 16) buf_puts(&body, "words and words ");
    buf_puts(&body, "\"}");
    enum { N = 8 };
    int fds[N];
    char head[256];
    snprintf(head, sizeof head,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
             body.len);
    for (int i = 0; i < N; i++) {
        fds[i] = client_open();
        client_sends(fds[i], head);
        client_send(fds[i], body.data, body.len);
        expect_healthy();
    }
    for (int i = 0; i < N; i++) {
        expect_healthy();
        answer a = client_read(fds[i]);
        assert_int_equal(a.status, 400);
        assert_non_null(strstr(a.body, "context_length_exceeded"));
        answer_free(&a);
        close(fds[i]);
    }
    buf_fini(&body);
}

static void takes_odd_bodies(void **state) {
    buf body = {0};
    buf_puts(&body, "{\"messages\":");
    for (int i = 0; i < 300000; i++) buf_putc(&body, '[');
    answer a = post(CHAT, "", body.data, body.len);
    assert_int_equal(a.status, 400);
    assert_non_null(strstr(a.body, "nested deeper"));
    answer_free(&a);

    buf_clear(&body);
    buf_puts(&body, "{\"prompt\":\"@reply=x;\"");
    for (int i = 0; i < 100000; i++) buf_printf(&body, ",\"key%d\":%d", i, i);
    buf_putc(&body, '}');
    a = post("/v1/completions", "", body.data, body.len);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    buf_fini(&body);
    expect_healthy();
}

static void serves_500_connections(void **state) {
    enum { N = 500 };
    static int fds[N];
    for (int i = 0; i < N; i++) fds[i] = client_open();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++)
            client_sends(fds[i], "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                                 "Content-Length: 15\r\n\r\n{\"content\":\"a\"}");
        expect_healthy();
        for (int i = 0; i < N; i++) {
            answer a = client_read(fds[i]);
            assert_int_equal(a.status, 200);
            answer_free(&a);
        }
    }
    for (int i = 0; i < N; i++) close(fds[i]);
}

static void is_not_held_up_by_slow_readers(void **state) {
    enum { N = 60 }; /* the stub's queue takes 64 */
    static int fds[N];
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"@reply=0123456789;@count="
                       "2000;\"}],\"stream\":true,\"max_tokens\":20000}";
    char text[512];
    snprintf(text, sizeof text,
             "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    for (int i = 0; i < N; i++) {
        fds[i] = client_open();
        int small = 4096;
        if (i) setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        client_sends(fds[i], text);
    }
    for (int i = 0; i < 5; i++) {
        expect_healthy();
        answer a = client_post("/v1/completions", "{\"prompt\":\"@reply=quick;\"}");
        assert_int_equal(a.status, 200);
        answer_free(&a);
    }
    assert_true(client_wait_for(fds[0], "data: [DONE]\n\n")); /* nothing is lost */
    for (int i = 0; i < N; i++) close(fds[i]);
    fixture_wait_idle();
}

static int start(void **state) {
    static serve_opts opts;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = MIN(limit.rlim_max, 4096);
    setrlimit(RLIMIT_NOFILE, &limit);
    fixture_start(&opts);
    return 0;
}

int main(void) {
    fixture_block_signals();
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_huge_bodies),
        cmocka_unit_test(answers_while_parsing),
        cmocka_unit_test(takes_odd_bodies),
        cmocka_unit_test(serves_500_connections),
        cmocka_unit_test(is_not_held_up_by_slow_readers),
    };
    return cmocka_run_group_tests(tests, start, fixture_take_down);
}
