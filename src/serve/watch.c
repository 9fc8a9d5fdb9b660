/* The watcher: sockets whose connections libmicrohttpd does not look at, and everything that
 * happens because time passes.
 *
 *   slot[fd]   {generation, conn}   a connection, from accept to close
 *              {generation, until}  a lingering socket: a second descriptor of a connection that is
 *                                   closed already, kept to swallow what the client still sends
 *
 * An epoll event carries fd and generation; a stale one finds another generation and is dropped.
 * Events are edge-triggered: FIN and reset are told once each.
 *
 * What a FIN means. A client that has closed its socket and one that merely sends no more
 * (shutdown(SHUT_WR)) look alike. Taking FIN for "gone" would fail the second, ignoring it would
 * compute for the first. So the client is asked (call_half_closed): a few bytes that mean nothing,
 * an SSE comment or an interim 102 response, reach a living client, and make a closed one answer
 * with a reset, which does mean gone.
 *
 * libmicrohttpd, edge-triggered as well, misses a FIN that comes together with the last bytes and
 * would keep the connection until its timeout. Closing our reading side once more, at each tick,
 * loses nothing that was received and is an edge of its own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve_internal.h"

#define TICK 0.5
#define LINGER 10.0           /* seconds */
enum { MIN_RATE = 16 << 10 }; /* bytes a second that a body must come in at */

struct slot {
    uint32_t generation;
    conn *conn;
    double until;
};

struct watch {
    pthread_mutex_t lock;
    server *server;
    int epoll, stop; /* stop: an eventfd */
    pthread_t thread;
    struct slot *slot;
    size_t n_slots;
    conn *conns;
    double next_tick;
};

/* ---- slots (with the lock held) -------------------------------------------------------------- */

static struct slot *claim_slot(watch *w, int fd, uint32_t events) {
    if ((size_t)fd >= w->n_slots) {
        size_t n = MAX((size_t)fd + 1, 2 * w->n_slots);
        struct slot *grown = mem_resize(w->slot, n, sizeof *grown);
        if (!grown) return NULL;
        memset(grown + w->n_slots, 0, (n - w->n_slots) * sizeof *grown);
        w->slot = grown;
        w->n_slots = n;
    }
    struct slot *s = &w->slot[fd];
    s->generation++;
    struct epoll_event event = {.events = events,
                                .data.u64 = (uint64_t)s->generation << 32 | (uint32_t)fd};
    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? s : NULL;
}

static void clear_slot(watch *w, int fd) {
    if ((size_t)fd >= w->n_slots) return;
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
    struct slot *s = &w->slot[fd];
    *s = (struct slot){.generation = s->generation + 1};
}

/* ---- events (with the lock held) ------------------------------------------------------------- */

static void swallow(watch *w, int fd) {
    char scratch[16384];
    ssize_t n;
    for (int i = 0; i < 64; i++) {
        n = recv(fd, scratch, sizeof scratch, MSG_DONTWAIT);
        if (n <= 0) break;
    }
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    clear_slot(w, fd);
    close(fd);
}

static void tell_call(conn *c, uint32_t events) {
    if (events & (EPOLLHUP | EPOLLERR)) c->gone = true;
    if (events & EPOLLRDHUP) c->half_closed = true;
    if (!c->call) return;
    pthread_mutex_lock(&c->call->lock);
    if (c->gone)
        call_hung_up(c->call);
    else
        call_half_closed(c->call);
    pthread_mutex_unlock(&c->call->lock);
}

static void handle(watch *w, const struct epoll_event *event) {
    uint32_t fd = (uint32_t)event->data.u64;
    if (fd >= w->n_slots || w->slot[fd].generation != event->data.u64 >> 32) return;
    if (w->slot[fd].conn)
        tell_call(w->slot[fd].conn, event->events);
    else
        swallow(w, (int)fd);
}

/* ---- time (with the lock held) --------------------------------------------------------------- */

static void expire(conn *c) {
    static const char body[] = "{\"error\":{\"message\":\"The request did not arrive in time.\","
                               "\"type\":\"invalid_request_error\",\"param\":null,"
                               "\"code\":\"request_timeout\"}}";
    char text[400];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                     sizeof body - 1, body);
    c->expired = true;
    c->deadline = 0;
    send(c->fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(c->fd, SHUT_RDWR); /* libmicrohttpd sees the end and closes */
}

static void tick(watch *w, double now) {
    for (conn *c = w->conns; c; c = c->next) {
        if (c->deadline && now > c->deadline) expire(c);
        if (c->half_closed) shutdown(c->fd, SHUT_RD); /* tells libmicrohttpd about the FIN anew */
        if (!c->call) continue;
        pthread_mutex_lock(&c->call->lock);
        call_tick(c->call, now);
        pthread_mutex_unlock(&c->call->lock);
    }
    for (size_t fd = 0; fd < w->n_slots; fd++) {
        if (!w->slot[fd].until || now < w->slot[fd].until) continue;
        clear_slot(w, (int)fd);
        close((int)fd);
    }
    w->next_tick = now + TICK;
}

static void *run(void *arg) {
    watch *w = arg;
    for (;;) {
        struct epoll_event event[64];
        int n = epoll_wait(w->epoll, event, COUNT_OF(event), (int)(TICK * 1000));
        pthread_mutex_lock(&w->lock);
        for (int i = 0; i < n; i++) {
            if (event[i].data.u64 == UINT64_MAX) return pthread_mutex_unlock(&w->lock), NULL;
            handle(w, &event[i]);
        }
        double now = clock_now();
        if (now >= w->next_tick) tick(w, now);
        pthread_mutex_unlock(&w->lock);
    }
}

/* ---- for the http thread --------------------------------------------------------------------- */

void watch_add(watch *w, conn *c) {
    pthread_mutex_lock(&w->lock);
    c->deadline = clock_now() + w->server->read_timeout;
    c->next = w->conns;
    if (c->next) c->next->prev = c;
    w->conns = c;
    struct slot *s = claim_slot(w, c->fd, EPOLLRDHUP | EPOLLET);
    if (s) s->conn = c; /* else hang-ups are noticed later, by writing */
    pthread_mutex_unlock(&w->lock);
}

void watch_remove(watch *w, conn *c) {
    pthread_mutex_lock(&w->lock);
    clear_slot(w, c->fd);
    if (c->next) c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    else
        w->conns = c->next;
    pthread_mutex_unlock(&w->lock);
}

bool watch_call(watch *w, conn *c, call *current) {
    pthread_mutex_lock(&w->lock);
    c->call = current;
    /* After an answer the connection may idle as long again before the next request begins. */
    c->deadline = clock_now() + w->server->read_timeout * (current ? 1 : 2);
    bool in_time = !c->expired;
    pthread_mutex_unlock(&w->lock);
    return in_time;
}

void watch_progress(watch *w, conn *c, size_t n) {
    pthread_mutex_lock(&w->lock);
    if (c->deadline) c->deadline += (double)n / MIN_RATE;
    pthread_mutex_unlock(&w->lock);
}

bool watch_complete(watch *w, conn *c) {
    pthread_mutex_lock(&w->lock);
    c->deadline = 0;
    bool in_time = !c->expired;
    pthread_mutex_unlock(&w->lock);
    return in_time;
}

void watch_linger(watch *w, int fd) {
    int twin = dup(fd);
    if (twin < 0) return;
    pthread_mutex_lock(&w->lock);
    struct slot *s = claim_slot(w, twin, EPOLLIN | EPOLLRDHUP);
    if (s)
        s->until = clock_now() + LINGER;
    else
        close(twin);
    pthread_mutex_unlock(&w->lock);
}

void watch_wake_all(watch *w, bool force) {
    pthread_mutex_lock(&w->lock);
    for (conn *c = w->conns; c; c = c->next) {
        if (force) shutdown(c->fd, SHUT_RDWR);
        if (c->call) call_wake(c->call);
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

int watch_open(server *s, watch **out) {
    watch *w = mem_zero(1, sizeof *w);
    if (!w) return ICP_ENOMEM;
    w->server = s;
    pthread_mutex_init(&w->lock, NULL);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->stop = eventfd(0, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    if (w->epoll < 0 || w->stop < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->stop, &event) < 0 ||
        pthread_create(&w->thread, NULL, run, w) != 0) {
        if (w->epoll >= 0) close(w->epoll);
        if (w->stop >= 0) close(w->stop);
        mem_free(w);
        return ICP_EIO;
    }
    pthread_setname_np(w->thread, "icp-watch");
    *out = w;
    return 0;
}

void watch_close(watch **ref) {
    watch *w = *ref;
    if (!w) return;
    eventfd_write(w->stop, 1);
    pthread_join(w->thread, NULL);
    for (size_t fd = 0; fd < w->n_slots; fd++)
        if (w->slot[fd].until) close((int)fd);
    close(w->epoll);
    close(w->stop);
    pthread_mutex_destroy(&w->lock);
    mem_free(w->slot);
    mem_free(w);
    *ref = NULL;
}
