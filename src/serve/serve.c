/* The life of the server: socket, threads, loading, signals, draining. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "serve_internal.h"
#include "store.h"

#define FLUSH_TIME 2.0 /* seconds that cancelled requests get to say so */

/* What serve_run holds beside the server itself. */
struct run {
    server server;
    int listen_fd, signal_fd;
    int loaded; /* an eventfd: loading has ended */
    pthread_t loader;
    bool loading; /* the loader is not joined yet */
    int load_rc;
    icp_error load_err;
    sigset_t old_mask;
};

/* ---- the socket ------------------------------------------------------------------------------ */

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

static int bind_one(const struct addrinfo *at) {
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* inherited by connections */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* so are dead peers noticed */
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 1024) == 0) return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int listen_at(struct run *r, icp_error *err) {
    const serve_opts *opts = r->server.opts;
    const char *host = opts->host ? opts->host : "127.0.0.1";
    char port[12];
    snprintf(port, sizeof port, "%d", opts->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0) return error_set(err, ICP_EIO, "%s: %s", host, gai_strerror(rc));
    errno = 0;
    for (struct addrinfo *at = list; at && r->listen_fd < 0; at = at->ai_next) {
        r->listen_fd = bind_one(at);
        r->server.loopback = is_loopback(at->ai_addr);
    }
    freeaddrinfo(list);
    if (r->listen_fd < 0)
        return error_set(err, ICP_EIO, "cannot listen at %s port %d: %s", host, opts->port,
                         strerror(errno));
    return 0;
}

static int bound_port(int fd) {
    struct sockaddr_in6 address;
    socklen_t len = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &len) < 0) return 0;
    return ntohs(address.sin6_port); /* at the same place for both families */
}

/* A connection takes a descriptor, one that lingers a second. Returns how many connections there
 * can be. */
static unsigned allow_connections(const serve_opts *opts) {
    enum { OTHERS = 256 }; /* descriptors for anything else */
    unsigned wanted = opts->max_connections ? (unsigned)opts->max_connections : 4096;
    rlim_t needed = 2 * (rlim_t)wanted + OTHERS;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= needed) return wanted;
    limit.rlim_cur = MIN(needed, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= needed) return wanted;
    unsigned most =
        limit.rlim_cur > 2 * OTHERS ? (unsigned)(limit.rlim_cur - OTHERS) / 2 : OTHERS / 4;
    log_line(LOG_WARN, "the limit of open files (%llu) allows %u connections only",
             (unsigned long long)limit.rlim_cur, most);
    return most;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* By the alias, or the file's name without folder and ".gguf". What stands in the file itself is
 * often the name of a training run. */
static served *new_only(const serve_opts *opts) {
    unsigned part;
    const char *path = opts->model_path, *slash = strrchr(path, '/');
    const char *name = opts->alias ? opts->alias : slash ? slash + 1 : path;
    size_t len = opts->alias ? strlen(name) : served_stem(path, &part) - (size_t)(name - path);
    return served_new(path, name, len);
}

static void *load(void *arg) {
    struct run *r = arg;
    server *s = &r->server;
    r->load_rc = served_load(s->only, s->opts, &s->opts->engine, &r->load_err);
    if (r->load_rc == 0) s->ready = true;
    eventfd_write(r->loaded, 1);
    return NULL;
}

static int start_loading(struct run *r, icp_error *err) {
    server *s = &r->server;
    if (s->opts->model_dir) {
        TRY(shelf_open(s, &s->shelf, err));
        s->ready = true;
        return 0;
    }
    s->only = new_only(s->opts);
    if (!s->only) return error_set(err, ICP_ENOMEM, "out of memory");
    if (pthread_create(&r->loader, NULL, load, r) != 0)
        return error_set(err, ICP_ENOMEM, "cannot start a thread");
    pthread_setname_np(r->loader, "icp-load");
    r->loading = true;
    return 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool took_signal(struct run *r) {
    struct signalfd_siginfo info;
    return read(r->signal_fd, &info, sizeof info) == sizeof info;
}

/* Until a signal comes or loading fails: then its code. */
static int wait_for_signal(struct run *r, icp_error *err) {
    struct pollfd fds[] = {{.fd = r->signal_fd, .events = POLLIN},
                           {.fd = r->loaded, .events = POLLIN}};
    for (;;) {
        if (poll(fds, COUNT_OF(fds), -1) < 0 && errno != EINTR)
            return error_set(err, ICP_EIO, "poll: %s", strerror(errno));
        if (fds[0].revents && took_signal(r)) return 0;
        if (!fds[1].revents) continue;
        fds[1].fd = -1; /* only once */
        pthread_join(r->loader, NULL);
        r->loading = false;
        if (r->load_rc < 0) return error_set(err, r->load_rc, "%s", r->load_err.text);
    }
}

/* Waits until no call is left, or the time is over. A signal ends the process. */
static bool wait_for_calls(struct run *r, double seconds) {
    double until = clock_now() + seconds;
    while (r->server.calls > 0 && clock_now() < until) {
        struct pollfd fd = {.fd = r->signal_fd, .events = POLLIN};
        if (poll(&fd, 1, 20) > 0 && took_signal(r)) _exit(1);
    }
    return r->server.calls == 0;
}

/* Loading cannot be interrupted: when it outlasts the time, or a signal comes, the process ends. */
static void await_loader(struct run *r, double seconds) {
    struct pollfd fds[] = {{.fd = r->loaded, .events = POLLIN},
                           {.fd = r->signal_fd, .events = POLLIN}};
    int n = poll(fds, COUNT_OF(fds), (int)(seconds * 1000));
    if (n <= 0 || !fds[0].revents) _exit(n == 0 ? 0 : 1);
    pthread_join(r->loader, NULL);
    r->loading = false;
}

/* Stops accepting, lets calls finish, then cancels them, then cuts them off. */
static void drain(struct run *r) {
    server *s = &r->server;
    double time = s->opts->drain_timeout > 0 ? s->opts->drain_timeout : 10;
    log_line(LOG_INFO, "stopping: %ld requests get %.0f s to finish", (long)s->calls, time);
    s->draining = true;
    int fd = MHD_quiesce_daemon(s->daemon);
    if (fd >= 0) close(fd);
    r->listen_fd = -1;
    if (r->loading) await_loader(r, time);
    if (wait_for_calls(r, time)) return;
    s->stopping = true;
    if (s->shelf) shelf_stop(s->shelf);
    watch_wake_all(s->watch, false);
    if (wait_for_calls(r, FLUSH_TIME)) return;
    do watch_wake_all(s->watch, true);
    while (!wait_for_calls(r, 1)); /* a worker may be busy with a long prompt */
}

/* ---- serve_run ------------------------------------------------------------------------------- */

static void block_signals(struct run *r) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, &r->old_mask); /* inherited by every thread started here */
    signal(SIGPIPE, SIG_IGN);
    r->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    r->loaded = eventfd(0, EFD_CLOEXEC);
}

static int start(struct run *r, icp_error *err) {
    server *s = &r->server;
    if (r->signal_fd < 0 || r->loaded < 0)
        return error_set(err, ICP_EIO, "no descriptors: %s", strerror(errno));
    s->max_connections = allow_connections(s->opts);
    TRY(listen_at(r, err));
    /* More than processors: a huge body must not keep all of them from the small ones. */
    if (workers_open(MAX(4, MIN(8, cpu_count())), &s->workers) < 0 || watch_open(s, &s->watch) < 0)
        return error_set(err, ICP_EIO, "cannot start the server's threads");
    if (store_open(s->opts->store_limit ? s->opts->store_limit : 64 << 20,
                   s->opts->store_ttl > 0 ? s->opts->store_ttl : 24 * 3600, &s->store) < 0)
        return error_set(err, ICP_ENOMEM, "out of memory");
    size_t trace_limit = s->opts->trace_limit ? s->opts->trace_limit : 64 << 20;
    if (s->opts->trace) TRY(trace_log_open(s->opts->trace, trace_limit, &s->trace, err));
    TRY(http_start(s, r->listen_fd, err));
    if (s->opts->listening) s->opts->listening(s->opts->listening_arg, bound_port(r->listen_fd));
    return start_loading(r, err);
}

static void stop(struct run *r) {
    server *s = &r->server;
    http_stop(s);
    workers_close(&s->workers);
    watch_close(&s->watch);
    store_close(&s->store);
    shelf_close(&s->shelf);
    served_free(&s->only);
    trace_log_close(&s->trace);
    if (r->listen_fd >= 0) close(r->listen_fd);
    if (r->signal_fd >= 0) close(r->signal_fd);
    if (r->loaded >= 0) close(r->loaded);
    pthread_sigmask(SIG_SETMASK, &r->old_mask, NULL);
}

int serve_run(const serve_opts *opts, icp_error *err) {
    struct run r = {.listen_fd = -1, .signal_fd = -1, .loaded = -1};
    server *s = &r.server;
    s->opts = opts;
    s->max_body = opts->max_body ? opts->max_body : 32 << 20;
    s->read_timeout = opts->read_timeout > 0 ? opts->read_timeout : 60;
    s->began = time(NULL);
    block_signals(&r);
    int rc = start(&r, err);
    if (rc == 0) rc = wait_for_signal(&r, err);
    if (s->daemon) drain(&r);
    stop(&r);
    return rc;
}
