/* The queue and its thread.
 *
 *   any thread ─ trace_log_add ─▶ first ─▶ entry ─▶ entry ◀─ last ─▶ icp-trace: hash, write
 *
 * At most QUEUE bytes wait. */
#include "trace_log.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { QUEUE = 1 << 20 };

typedef struct entry {
    struct entry *next;
    int64_t time; /* ms since 1970 */
    trace_space space;
    size_t n_output, n;
    int32_t tokens[];
} entry;

struct trace_log {
    unsigned char key[32];
    char *path, *old_path;
    size_t limit;
    pthread_t thread;

    pthread_mutex_t lock; /* guards the queue */
    pthread_cond_t some;
    entry *first, *last;
    size_t queued; /* bytes */
    size_t lost;   /* lines */
    uint64_t n_apart;
    bool closing;

    /* Of the thread. */
    int fd;
    size_t size; /* of the file, up to the end of its last whole line */
    bool regular;
    bool failing; /* and that was said */
    buf line;
};

static size_t cost(size_t n_tokens) {
    return sizeof(entry) + n_tokens * sizeof(int32_t);
}

static void hash(const trace_log *t, const void *data, size_t len, trace_space *out) {
    HMAC(EVP_sha256(), t->key, sizeof t->key, data, len, out->digest, NULL);
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool open_file(trace_log *t) {
    struct stat s;
    t->fd = open(t->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (t->fd < 0 || fstat(t->fd, &s) < 0) return false;
    t->regular = S_ISREG(s.st_mode);
    t->size = t->regular ? (size_t)s.st_size : 0;
    return true;
}

static void close_file(trace_log *t) {
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}

static bool make_room(trace_log *t, size_t more) {
    if (t->fd >= 0 && (!t->regular || t->size == 0 || t->size + more <= t->limit)) return true;
    if (t->fd >= 0 && rename(t->path, t->old_path) < 0 && errno != ENOENT) return false;
    close_file(t);
    return open_file(t);
}

/* A line is there as a whole or not at all. */
static bool write_line(trace_log *t) {
    const buf *line = &t->line;
    if (line->failed) return errno = ENOMEM, false;
    if (!make_room(t, line->len)) return false;
    for (size_t done = 0; done < line->len;) {
        ssize_t n = write(t->fd, line->data + done, line->len - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int why = errno;
            if (t->regular && ftruncate(t->fd, (off_t)t->size) < 0) close_file(t);
            errno = why;
            return false;
        }
        done += (size_t)n;
    }
    t->size += line->len;
    return true;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put_ids(trace_log *t, const entry *e) {
    struct {
        trace_space before;
        int32_t tokens[TRACE_BLOCK];
    } block = {.before = e->space};
    for (size_t i = 0; i + TRACE_BLOCK <= e->n; i += TRACE_BLOCK) {
        uint64_t id;
        memcpy(block.tokens, e->tokens + i, sizeof block.tokens);
        hash(t, &block, sizeof block, &block.before);
        memcpy(&id, block.before.digest, sizeof id);
        buf_printf(&t->line, "%s%llu", i ? "," : "", (unsigned long long)(id >> 11));
    }
}

static void write_entry(trace_log *t, const entry *e) {
    buf_clear(&t->line);
    buf_printf(&t->line,
               "{\"timestamp\":%lld,\"input_length\":%zu,\"output_length\":%zu,\"block\":%d,"
               "\"hash_ids\":[",
               (long long)e->time, e->n, e->n_output, TRACE_BLOCK);
    put_ids(t, e);
    buf_puts(&t->line, "]}\n");
    bool done = write_line(t);
    if (!done && !t->failing)
        log_line(LOG_WARN, "%s: %s; lines of the trace are lost", t->path, strerror(errno));
    t->failing = !done;
    if (t->line.failed) buf_fini(&t->line);
}

/* The next entry; NULL: there will be none. */
static entry *take(trace_log *t) {
    pthread_mutex_lock(&t->lock);
    while (!t->first && !t->closing) pthread_cond_wait(&t->some, &t->lock);
    entry *e = t->first;
    if (e) {
        t->first = e->next;
        t->queued -= cost(e->n);
    }
    pthread_mutex_unlock(&t->lock);
    return e;
}

static void *run(void *arg) {
    trace_log *t = arg;
    for (entry *e; (e = take(t));) {
        write_entry(t, e);
        mem_free(e);
    }
    return NULL;
}

/* ---- from outside ---------------------------------------------------------------------------- */

void trace_log_space(trace_log *t, const char *model, const char *tenant, const char *salt,
                     bool cached, trace_space *out) {
    buf text = {0};
    uint64_t apart = 0;
    *out = (trace_space){0};
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    if (!cached) apart = ++t->n_apart;
    pthread_mutex_unlock(&t->lock);
    buf_put(&text, &apart, sizeof apart);
    buf_put(&text, model, strlen(model) + 1);
    buf_put(&text, tenant, strlen(tenant) + 1);
    buf_puts(&text, salt ? salt : "");
    if (!text.failed) hash(t, text.data, text.len, out);
    buf_fini(&text);
}

void trace_log_add(trace_log *t, double seconds_ago, const trace_space *space,
                   const int32_t *tokens, size_t n, size_t n_output) {
    struct timespec now;
    if (!t) return;
    clock_gettime(CLOCK_REALTIME, &now);
    entry *e = cost(n) <= QUEUE ? mem_alloc(cost(n)) : NULL;
    if (e) {
        *e = (entry){.space = *space, .n = n, .n_output = n_output};
        e->time = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - (int64_t)(seconds_ago * 1e3);
        memcpy(e->tokens, tokens, n * sizeof *tokens);
    }
    pthread_mutex_lock(&t->lock);
    if (e && t->queued + cost(n) <= QUEUE) {
        t->queued += cost(n);
        if (t->first)
            t->last->next = e;
        else
            t->first = e;
        t->last = e;
        pthread_cond_signal(&t->some);
        e = NULL;
    } else {
        t->lost++;
    }
    pthread_mutex_unlock(&t->lock);
    mem_free(e);
}

static void free_parts(trace_log *t) {
    close_file(t);
    buf_fini(&t->line);
    pthread_cond_destroy(&t->some);
    pthread_mutex_destroy(&t->lock);
    mem_free(t->old_path);
    mem_free(t->path);
    mem_free(t);
}

int trace_log_open(const char *path, size_t limit, trace_log **out, icp_error *err) {
    trace_log *t = mem_zero(1, sizeof *t);
    if (!t) return error_set(err, ICP_ENOMEM, "out of memory");
    pthread_mutex_init(&t->lock, NULL); /* of the default kind: cannot fail */
    pthread_cond_init(&t->some, NULL);
    t->fd = -1;
    t->limit = limit;
    t->path = mem_strdup(path);
    buf old = {0};
    buf_printf(&old, "%s.1", path);
    t->old_path = old.data;
    int rc = 0;
    if (!t->path || old.failed)
        rc = error_set(err, ICP_ENOMEM, "out of memory");
    else if (getrandom(t->key, sizeof t->key, 0) != sizeof t->key || !open_file(t))
        rc = error_set(err, ICP_EIO, "%s: %s", path, strerror(errno));
    else if (pthread_create(&t->thread, NULL, run, t))
        rc = error_set(err, ICP_ENOMEM, "cannot start a thread");
    if (rc < 0) {
        free_parts(t);
        return rc;
    }
    pthread_setname_np(t->thread, "icp-trace");
    *out = t;
    return 0;
}

void trace_log_close(trace_log **tp) {
    trace_log *t = *tp;
    *tp = NULL;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->closing = true;
    pthread_cond_signal(&t->some);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    if (t->lost) log_line(LOG_WARN, "%s: %zu requests came too fast to be noted", t->path, t->lost);
    OPENSSL_cleanse(t->key, sizeof t->key);
    free_parts(t);
}
