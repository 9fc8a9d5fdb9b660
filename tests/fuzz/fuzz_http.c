/* Fuzzes a connection: bytes that arrive at a server over the stub engine, in pieces. The first
 * byte says how large these are. The connection must come to an end soon, with nothing or something
 * that begins as HTTP, and the server must be well. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "client.h"
#include "fuzz.h"

static void start(void) {
    static serve_opts opts;
    struct sigaction alarm;
    opts = (serve_opts){.max_body = 1 << 16, .read_timeout = 2, .cors = "*"};
    log_set_level(LOG_ERROR);
    fixture_block_signals();
    sigaction(SIGALRM, NULL, &alarm);
    alarm.sa_flags |= SA_RESTART; /* the fuzzer's clock interrupts nobody */
    sigaction(SIGALRM, &alarm, NULL);
    fixture_start(&opts);
}

/* All that comes until the other side closes. */
static void drain(int fd) {
    static const struct timeval patience = {.tv_sec = 20};
    static char answer[1 << 16];
    size_t total = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (ssize_t n; (n = recv(fd, answer, sizeof answer, 0)) != 0;) {
        if (n < 0 && errno == EINTR) continue; /* where there is a timeout, it does */
        if (n < 0 && errno == ECONNRESET) break;
        must(n > 0); /* else it hangs */
        if (total == 0 && n >= 5) must(!memcmp(answer, "HTTP/", 5));
        total += (size_t)n;
    }
}

static void check_health(void) {
    answer a = client_ask("GET", "/health", "", NULL);
    must(a.status == 200 && a.complete);
    answer_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned long n_runs;
    if (!n_runs++) start();
    fuzz_input in = {data, size};
    uint32_t piece = fuzz_byte(&in);
    if (in.len && memmem(in.data, in.len, "@", 1)) return 0; /* orders to the stub, such as @hang */
    int fd = client_open();
    while (in.len) {
        fuzz_input part = fuzz_take(&in, 1 + (piece & 0x80 ? in.len : (size_t)piece));
        client_send(fd, (const char *)part.data, part.len);
        piece = piece * 5 + 1;
    }
    shutdown(fd, SHUT_WR);
    drain(fd);
    close(fd);
    if (n_runs % 16 == 0) check_health();
    return 0;
}
