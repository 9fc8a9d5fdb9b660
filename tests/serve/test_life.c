/* The server's own life: loading, failing, keys, draining. Each test has a server of its own. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base.h"
#include "client.h"

#define CHAT "/v1/chat/completions"
#define SAY(text, more) "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]" more "}"

static void expect_status(answer a, int status) {
    if (a.status != status) fail_msg("%d instead of %d: %s", a.status, status, a.body);
    answer_free(&a);
}

static void answers_while_loading(void **state) {
    serve_opts opts = {.model_path = "slow"};
    stub_close_gate();
    fixture_start_loading(&opts);
    answer a = client_ask("GET", "/health", "", NULL);
    assert_string_equal(a.body, "{\"status\":\"loading\"}");
    expect_status(a, 503);
    a = client_post(CHAT, SAY("x", ""));
    assert_non_null(answer_header(&a, "retry-after"));
    expect_status(a, 503);
    expect_status(client_ask("GET", "/v1/models", "", NULL), 503);
    expect_status(client_ask("GET", "/", "", NULL), 200);
    stub_open_gate();
    for (int status = 0; status != 200; usleep(1000)) {
        a = client_ask("GET", "/health", "", NULL);
        status = a.status;
        answer_free(&a);
    }
    expect_status(client_post(CHAT, SAY("x", "")), 200);
    assert_int_equal(fixture_stop(), 0);
}

static void says_why_it_cannot_start(void **state) {
    icp_error err = {0};
    serve_opts missing = {.model_path = "missing"};
    assert_int_equal(serve_run(&missing, &err), ICP_EIO);
    assert_string_equal(err.text, "missing: no such file");
    serve_opts opts = {0};
    fixture_start(&opts);
    serve_opts taken = {.model_path = "stub", .port = fixture_port()};
    assert_int_equal(serve_run(&taken, &err), ICP_EIO);
    assert_non_null(strstr(err.text, "Address already in use"));
    assert_int_equal(fixture_stop(), 0);
    serve_opts nowhere = {.model_path = "stub", .host = "203.0.113.1"};
    assert_int_equal(serve_run(&nowhere, &err), ICP_EIO);
}

static void asks_for_keys(void **state) {
    serve_keys keys = {0};
    assert_int_equal(serve_keys_add(&keys, "alice", "sk-a", NULL), 0);
    assert_int_equal(serve_keys_add(&keys, NULL, "sk-b", NULL), 0);
    serve_opts opts = {.keys = &keys, .alias = "my/model"};
    fixture_start(&opts);
    answer a = client_post(CHAT, SAY("x", ""));
    assert_string_equal(answer_header(&a, "www-authenticate"), "Bearer");
    assert_non_null(strstr(a.body, "\"authentication_error\""));
    expect_status(a, 401);
    expect_status(client_ask("POST", CHAT, "Authorization: Bearer sk-\r\n", "{}"), 401);
    expect_status(client_ask("POST", CHAT, "Authorization: Basic sk-a\r\n", "{}"), 401);
    expect_status(client_ask("GET", "/metrics", "", NULL), 401);
    expect_status(client_ask("GET", "/v1/models", "", NULL), 401);
    expect_status(client_ask("GET", "/health", "", NULL), 200);
    expect_status(client_ask("GET", "/", "", NULL), 200);
    expect_status(client_ask("GET", "/v1/models/my/model", "x-api-key: sk-b\r\n", NULL), 200);
    expect_status(client_ask("POST", CHAT, "Authorization: Bearer sk-a\r\n", SAY("x", "")), 200);
    assert_string_equal(stub_last().tenant, "alice");
    a = client_ask("POST", CHAT, "authorization: bearer  sk-b\r\n", SAY("x", ""));
    assert_non_null(strstr(a.body, "\"model\":\"my/model\""));
    expect_status(a, 200);
    assert_memory_equal(stub_last().tenant, "key-", 4);
    /* A name in Host means nothing to a server that asks for keys. */
    int fd = client_open();
    client_sends(fd, "GET /health HTTP/1.1\r\nHost: my.server\r\n\r\n");
    expect_status(client_read(fd), 200);
    close(fd);
    assert_int_equal(fixture_stop(), 0);
    serve_keys_fini(&keys);
}

static int post(const char *body) {
    char text[1024];
    snprintf(text, sizeof text,
             "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    long before = stub_count().submitted;
    int fd = client_open();
    client_sends(fd, text);
    while (stub_count().submitted == before) usleep(1000);
    return fd;
}

static void lets_requests_finish(void **state) {
    serve_opts opts = {.drain_timeout = 60};
    stub_close_gate();
    fixture_start(&opts);
    int whole = post(SAY("@gate;@reply=whole;", ""));
    int stream = post(SAY("@gate;@reply=stream;", ",\"stream\":true"));
    int idle = client_open();
    client_sends(idle, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_status(client_read(idle), 200);
    kill(getpid(), SIGTERM);
    usleep(100000);
    stub_open_gate();
    answer a = client_read(whole);
    assert_non_null(strstr(a.body, "whole"));
    expect_status(a, 200);
    a = client_read(stream);
    assert_non_null(strstr(a.body, "[DONE]"));
    expect_status(a, 200);
    assert_int_equal(fixture_wait(), 0);
    close(whole), close(stream), close(idle);
    assert_int_equal(stub_count().alive, 0);
}

static void cancels_what_does_not_finish(void **state) {
    serve_opts opts = {.drain_timeout = 0.2};
    fixture_start(&opts);
    long before = stub_count().cancelled;
    int whole = post(SAY("@hang;", ""));
    int stream = post(SAY("@hang;", ",\"stream\":true"));
    int half = client_open();
    client_sends(half, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{");
    assert_int_equal(fixture_stop(), 0);
    answer a = client_read(whole);
    assert_non_null(strstr(a.body, "shutting_down"));
    expect_status(a, 503);
    a = client_read(stream);
    assert_non_null(strstr(a.body, "shutting_down"));
    expect_status(a, 200);
    expect_status(client_read(half), 0);
    close(whole), close(stream), close(half);
    assert_int_equal(stub_count().cancelled, before + 2);
    assert_int_equal(stub_count().alive, 0);
}

/* A worker that is busy delays the end, and nothing else. */
static void waits_for_busy_workers(void **state) {
    serve_opts opts = {.drain_timeout = 0.2};
    stub_close_gate();
    fixture_start(&opts);
    int fd = client_open();
    client_sends(fd, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"@think;\"}]}");
    usleep(100000);
    kill(getpid(), SIGTERM);
    sleep(4); /* past the limit, past the time to flush */
    stub_open_gate();
    assert_int_equal(fixture_wait(), 0);
    close(fd);
}

int main(void) {
    fixture_block_signals();
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_while_loading),
        cmocka_unit_test(says_why_it_cannot_start),
        cmocka_unit_test(asks_for_keys),
        cmocka_unit_test(lets_requests_finish),
        cmocka_unit_test(cancels_what_does_not_finish),
        cmocka_unit_test(waits_for_busy_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
