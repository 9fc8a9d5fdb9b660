/* Fuzzes the reader of traces, and the simulator with what it reads. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "sim.h"

static void check(const trace *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_requests; i++) {
        must(t->requests[i].first == n);
        n += t->requests[i].n_blocks;
    }
    must(n == t->n_blocks && t->n_unique <= n && t->block > 0);
    for (size_t i = 0; i < n; i++) must((size_t)t->blocks[i] < t->n_unique);
}

static void simulate(const trace *t) {
    const replay_opts opts = {
        .capacity = 4, .policy = CACHE_HAZARD, .prefill = 1000, .deep = 10000};
    replay_result r;
    icp_error err = {0};
    if (t->n_blocks > 200 || t->block > 1024) return;
    int rc = replay(t, &opts, &r, &err);
    must(rc == 0 || err.text[0]);
    if (rc == 0) must(r.n_blocks == t->n_blocks && r.n_hits <= replay_bound(t, SIZE_MAX));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("trace", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    trace t;
    icp_error err = {0};
    int rc = trace_read(path, 0, &t, &err);
    must(rc == 0 || err.text[0]);
    if (rc == 0) {
        check(&t);
        simulate(&t);
        trace_fini(&t);
    }
    close(fd);
    return 0;
}
