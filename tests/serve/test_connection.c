/* Streams, and what clients do to connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "base.h"
#include "client.h"

#define CHAT "/v1/chat/completions"
#define SAY(text, more) "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]" more "}"

/* A POST as bytes, to be sent as the test likes. */
static char *post_text(const char *path, const char *version, const char *body) {
    static char text[8192];
    snprintf(text, sizeof text,
             "POST %s HTTP/%s\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", path, version,
             strlen(body), body);
    return text;
}

static void expect_healthy(void) {
    answer a = client_ask("GET", "/health", "", NULL);
    assert_int_equal(a.status, 200);
    answer_free(&a);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void streams_a_chat(void **state) {
    answer a =
        client_post(CHAT, SAY("@reply=\xf0\x9f\x98\x80x;",
                              ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    assert_int_equal(a.status, 200);
    assert_true(a.complete);
    assert_string_equal(answer_header(&a, "content-type"), "text/event-stream; charset=utf-8");
    assert_string_equal(answer_header(&a, "cache-control"), "no-cache");
    assert_string_equal(answer_header(&a, "x-accel-buffering"), "no");
    char **e = stream_events(a.body);
    /* The first token is part of an emoji: the role comes all the same. */
    assert_string_equal(json_at(e[0], "/choices/0/delta"),
                        "{\"role\":\"assistant\",\"content\":\"\"}");
    assert_string_equal(json_at(e[1], "/choices/0/delta"), "{\"content\":\"\xf0\x9f\x98\x80\"}");
    assert_string_equal(json_at(e[2], "/choices/0/delta"), "{\"content\":\"x\"}");
    assert_string_equal(json_at(e[3], "/choices/0/delta"), "{}");
    assert_string_equal(json_at(e[3], "/choices/0/finish_reason"), "\"stop\"");
    assert_non_null(strstr(e[3], "\"usage\":null"));
    assert_string_equal(json_at(e[4], "/choices"), "[]");
    assert_string_equal(json_at(e[4], "/usage/completion_tokens"), "5");
    assert_string_equal(e[5], "[DONE]");
    assert_null(e[6]);
    for (int i = 1; i < 5; i++) {
        assert_string_equal(json_at(e[i], "/id"), json_at(e[0], "/id"));
        assert_string_equal(json_at(e[i], "/created"), json_at(e[0], "/created"));
        assert_string_equal(json_at(e[i], "/object"), "\"chat.completion.chunk\"");
    }
    answer_free(&a);
}

static void streams_completions(void **state) {
    answer a = client_post("/v1/completions",
                           "{\"prompt\":\"@reply=ab;\",\"echo\":true,\"logprobs\":0,\"n\":2,"
                           "\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}}");
    char **e = stream_events(a.body);
    assert_string_equal(json_at(e[0], "/choices/0/text"), "\"@reply=ab;\"");
    assert_string_equal(json_at(e[0], "/choices/0/logprobs/text_offset"), "[0,1,2,3,4,5,6,7,8,9]");
    assert_string_equal(json_at(e[1], "/choices/0/text"), "\"a\"");
    assert_string_equal(json_at(e[1], "/choices/0/logprobs/text_offset"), "[10]");
    assert_string_equal(json_at(e[1], "/usage"),
                        "{\"prompt_tokens\":10,\"completion_tokens\":1,\"total_tokens\":11}");
    assert_string_equal(json_at(e[2], "/choices/0/logprobs/tokens"), "[\"b\"]");
    assert_string_equal(json_at(e[3], "/choices/0/finish_reason"), "\"stop\"");
    assert_string_equal(json_at(e[4], "/choices/0/index"), "1");
    assert_string_equal(json_at(e[7], "/choices/0/index"), "1");
    assert_string_equal(e[8], "[DONE]");
    answer_free(&a);
}

static void breaks_a_stream_with_an_error(void **state) {
    answer a = client_post(CHAT, SAY("@gate;@break;", ",\"stream\":true"));
    assert_int_equal(a.status, 200);
    char **e = stream_events(a.body);
    size_t n = 0;
    while (e[n]) n++;
    assert_string_equal(json_at(e[n - 2], "/error/code"), "\"internal_error\"");
    assert_string_equal(e[n - 1], "[DONE]");
    answer_free(&a);
}

static void refuses_a_stream_before_it_begins(void **state) {
    answer a = client_post(CHAT, SAY("@full;", ",\"stream\":true"));
    assert_int_equal(a.status, 429);
    answer_free(&a);
}

static void streams_to_old_clients(void **state) {
    int fd = client_open();
    client_sends(fd, post_text(CHAT, "1.0", SAY("@reply=x;", ",\"stream\":true")));
    assert_true(client_wait_for(fd, "data: [DONE]\n\n"));
    char c;
    assert_int_equal(recv(fd, &c, 1, 0), 0);
    close(fd);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void wait_cancelled(long before) {
    while (stub_count().cancelled == before) usleep(1000);
}

static void cancels_when_the_client_leaves(void **state) {
    static const char *const more[] = {"", ",\"stream\":true"};
    for (size_t i = 0; i < COUNT_OF(more); i++) {
        for (int reset = 0; reset < 2; reset++) {
            char body[256];
            snprintf(body, sizeof body, SAY("@hang;", "%s"), more[i]);
            stub_counts before = stub_count();
            int fd = client_open();
            client_sends(fd, post_text(CHAT, "1.1", body));
            while (stub_count().submitted == before.submitted) usleep(1000);
            struct linger linger = {.l_onoff = reset};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
            close(fd);
            wait_cancelled(before.cancelled);
        }
    }
    fixture_wait_idle();
}

static void cancels_a_stream_in_the_middle(void **state) {
    stub_counts before = stub_count();
    int fd = client_open();
    client_sends(fd,
                 post_text(CHAT, "1.1", SAY("@reply=x;@count=1000000000;", ",\"stream\":true")));
    assert_true(client_wait_for(fd, "\"x\""));
    close(fd);
    wait_cancelled(before.cancelled);
}

/* The call must not end under the worker that parses its body. */
static void survives_leaving_while_a_worker_is_busy(void **state) {
    stub_counts before = stub_count();
    stub_close_gate();
    for (int reset = 0; reset < 2; reset++) {
        int fd = client_open();
        client_sends(fd, post_text(CHAT, "1.1", SAY("@think;", "")));
        usleep(100000);
        struct linger linger = {.l_onoff = reset};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        close(fd);
    }
    usleep(100000);
    expect_healthy();
    stub_open_gate();
    expect_healthy();
    fixture_wait_idle();
    assert_int_equal(stub_count().submitted, before.submitted);
}

/* A client that only says that it will send no more is still served. */
static void serves_half_closed_clients(void **state) {
    static const char *const more[] = {"", ",\"stream\":true"};
    for (size_t i = 0; i < COUNT_OF(more); i++) {
        char body[256];
        snprintf(body, sizeof body, SAY("@gate;@reply=fine;", "%s"), more[i]);
        stub_close_gate();
        stub_counts before = stub_count();
        int fd = client_open();
        client_sends(fd, post_text(CHAT, "1.1", body));
        while (stub_count().submitted == before.submitted) usleep(1000);
        shutdown(fd, SHUT_WR);
        if (!*more[i])
            assert_true(client_wait_for(fd, "HTTP/1.1 102 Processing\r\n\r\n"));
        else
            assert_true(client_wait_for(fd, ": keep-alive\n\n"));
        stub_open_gate();
        assert_true(client_wait_for(fd, *more[i] ? "[DONE]" : "fine"));
        close(fd);
        fixture_wait_idle();
        assert_int_equal(stub_count().cancelled, before.cancelled);
    }
}

static void serves_clients_half_closed_from_the_start(void **state) {
    int fd = client_open();
    client_sends(fd, post_text(CHAT, "1.1", SAY("@reply=fine;", "")));
    shutdown(fd, SHUT_WR);
    assert_true(client_wait_for(fd, "fine"));
    close(fd);
}

/* ---- odd senders ----------------------------------------------------------------------------- */

static void answers_pipelined_requests_in_order(void **state) {
    int fd = client_open();
    buf all = {0};
    for (int i = 0; i < 20; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":\"@reply=%d;\"}", i);
        buf_puts(&all, post_text("/v1/completions", "1.1", body));
        buf_puts(&all, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    client_send(fd, all.data, all.len);
    for (int i = 0; i < 20; i++) {
        char text[32];
        snprintf(text, sizeof text, "\"%d\"", i);
        answer a = client_read(fd);
        assert_string_equal(json_at(a.body, "/choices/0/text"), text);
        answer_free(&a);
        a = client_read(fd);
        assert_string_equal(a.body, "{\"status\":\"ok\"}");
        answer_free(&a);
    }
    close(fd);
    buf_fini(&all);
}

static void takes_chunked_bodies(void **state) {
    int fd = client_open();
    client_sends(fd, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                     "\r\n5\r\n{\"con\r\n9\r\ntent\":\"a\"\r\n1\r\n}\r\n0\r\n\r\n");
    answer a = client_read(fd);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    close(fd);
}

static void keeps_connections_after_errors(void **state) {
    int fd = client_open();
    static const char *const bodies[] = {"{", "{}", SAY("x", ",\"n\":0")};
    for (size_t i = 0; i < 3 * COUNT_OF(bodies); i++) {
        client_sends(fd, post_text(i % 2 ? CHAT : "/nowhere", "1.1", bodies[i % 3]));
        answer a = client_read(fd);
        assert_int_equal(a.status, i % 2 ? 400 : 404);
        answer_free(&a);
    }
    close(fd);
}

static void survives_garbage(void **state) {
    static const char *const garbage[] = {
        "\r\n\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999999\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"half",
        "GET /\xff\xfe%00%ff/../.. HTTP/1.1\r\nHost: \xff\r\n\r\n",
    };
    for (size_t i = 0; i < COUNT_OF(garbage); i++) {
        int fd = client_open();
        client_sends(fd, garbage[i]);
        shutdown(fd, SHUT_WR);
        char answer_text[4096];
        ssize_t n = recv(fd, answer_text, sizeof answer_text, 0);
        if (n > 0 && (n < 12 || (answer_text[9] != '4' && answer_text[9] != '5')))
            fail_msg("%zu: %.*s", i, (int)n, answer_text);
        close(fd);
    }
    char *head = malloc(1 << 20);
    memset(head, 'a', 1 << 20);
    int fd = client_open();
    client_sends(fd, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    client_send(fd, head, 1 << 20);
    close(fd);
    free(head);
    expect_healthy();
}

static void turns_slow_senders_away(void **state) {
    int head = client_open(), body = client_open();
    client_sends(head, "GET /health HTTP/1.1\r\nX-Sl");
    client_sends(body, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    int fds[] = {head, body};
    for (int i = 0; i < 60; i++) { /* a byte every tenth of a second; the limit is two seconds */
        client_sends(head, "o");
        client_sends(body, " ");
        usleep(100000);
    }
    for (size_t i = 0; i < COUNT_OF(fds); i++) {
        answer a = client_read(fds[i]);
        if (a.status != 408) fail_msg("%zu: %d", i, a.status);
        assert_true(a.complete);
        answer_free(&a);
        char c;
        assert_true(recv(fds[i], &c, 1, 0) <= 0);
        close(fds[i]);
    }
    expect_healthy();
}

/* The time limit of two seconds is for senders and readers, not for those who wait. */
static void waits_as_long_as_it_takes(void **state) {
    static const char *const more[] = {"", ",\"stream\":true"};
    int fds[COUNT_OF(more)];
    stub_close_gate();
    for (size_t i = 0; i < COUNT_OF(more); i++) {
        char body[256];
        snprintf(body, sizeof body, SAY("@gate;@reply=late;", "%s"), more[i]);
        fds[i] = client_open();
        client_sends(fds[i], post_text(CHAT, "1.1", body));
    }
    sleep(6);
    stub_open_gate();
    answer a = client_read(fds[0]);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    a = client_read(fds[1]);
    assert_int_equal(a.status, 200);
    assert_memory_equal(a.body, ": keep-alive\n\n", 14); /* every five seconds */
    assert_non_null(strstr(a.body, "[DONE]"));
    answer_free(&a);
    for (size_t i = 0; i < COUNT_OF(more); i++) close(fds[i]);
}

/* ---- main ------------------------------------------------------------------------------------ */

static int start(void **state) {
    static serve_opts opts = {.read_timeout = 2};
    stub_open_gate();
    fixture_start(&opts);
    return 0;
}

static int stop(void **state) {
    fixture_wait_idle();
    return fixture_stop();
}

int main(void) {
    fixture_block_signals();
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_a_chat),
        cmocka_unit_test(streams_completions),
        cmocka_unit_test(breaks_a_stream_with_an_error),
        cmocka_unit_test(refuses_a_stream_before_it_begins),
        cmocka_unit_test(streams_to_old_clients),
        cmocka_unit_test(cancels_when_the_client_leaves),
        cmocka_unit_test(cancels_a_stream_in_the_middle),
        cmocka_unit_test(survives_leaving_while_a_worker_is_busy),
        cmocka_unit_test(serves_half_closed_clients),
        cmocka_unit_test(serves_clients_half_closed_from_the_start),
        cmocka_unit_test(answers_pipelined_requests_in_order),
        cmocka_unit_test(takes_chunked_bodies),
        cmocka_unit_test(keeps_connections_after_errors),
        cmocka_unit_test(survives_garbage),
        cmocka_unit_test(turns_slow_senders_away),
        cmocka_unit_test(waits_as_long_as_it_takes),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
