/* One file: what is there already, the rest of it from the network, its checksum, its name.
 *
 *   sink: FILE.CHECKSUM.part   [0, at) written and in the hash
 *
 * The hash runs along with the bytes, so that a large file is not read again at the end; a file
 * that an earlier run began is read once. Another process that pulls the same file is kept away by
 * a lock on the part. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub_internal.h"

typedef struct sink {
    const hub_opts *opts;
    const hub_file *file;
    int fd;
    EVP_MD_CTX *hash;
    int64_t at;
    int64_t from; /* where this attempt's first byte belongs */
    bool begun;   /* this attempt's first byte came */
    int io_error;
} sink;

/* ---- the sink ------------------------------------------------------------------------------- */

/* Throws away what is there. */
static bool restart(sink *s) {
    s->at = 0;
    return ftruncate(s->fd, 0) == 0 && lseek(s->fd, 0, SEEK_SET) == 0 &&
           EVP_DigestInit_ex(s->hash, EVP_sha256(), NULL) == 1;
}

/* Takes what the descriptor has into the hash. */
static bool take_present(sink *s) {
    static const size_t piece = 1 << 20;
    char *data = mem_alloc(piece);
    ssize_t n = 0;
    if (!data || EVP_DigestInit_ex(s->hash, EVP_sha256(), NULL) != 1) return mem_free(data), false;
    for (s->at = 0; (n = read(s->fd, data, piece)) > 0; s->at += n)
        if (EVP_DigestUpdate(s->hash, data, (size_t)n) != 1) break;
    mem_free(data);
    return n == 0;
}

static void tell_progress(const sink *s) {
    if (s->opts->progress) s->opts->progress(s->opts->arg, s->file->path, s->at, s->file->size);
}

static bool write_all(int fd, const char *data, size_t len) {
    for (ssize_t n; len; data += n, len -= (size_t)n)
        if ((n = write(fd, data, len)) < 0) return false;
    return true;
}

/* A hub_body_fn. A server that knows no ranges begins anew, and so do we. */
static bool take_body(void *arg, const hub_answer *a, const char *data, size_t len) {
    sink *s = arg;
    if (!s->begun) {
        s->begun = true;
        if (a->range_at != s->from && (a->range_at >= 0 || !restart(s))) return false;
    }
    if (s->file->size >= 0 && s->at + (int64_t)len > s->file->size) return false;
    errno = 0;
    if (!write_all(s->fd, data, len)) return s->io_error = errno ? errno : EIO, false;
    if (EVP_DigestUpdate(s->hash, data, len) != 1) return false;
    s->at += (int64_t)len;
    tell_progress(s);
    return true;
}

static void take_digest(sink *s, char hex[65]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_DigestFinal_ex(s->hash, digest, &len);
    for (unsigned i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

/* ---- the rest of a file --------------------------------------------------------------------- */

static int refused_body(const sink *s, const char *path, const hub_answer *a, icp_error *err) {
    if (s->io_error)
        return error_set(err, ICP_EIO, "%.200s: cannot write: %s", path, strerror(s->io_error));
    if (a->range_at >= 0 && a->range_at != s->from)
        return error_set(err, ICP_EFORMAT,
                         "%s: asked for byte %lld on, the server sent byte %lld on", s->file->path,
                         (long long)s->from, (long long)a->range_at);
    return error_set(err, ICP_EFORMAT, "%s: the server sends more than the %lld bytes it announced",
                     s->file->path, (long long)s->file->size);
}

/* One attempt at what is missing. 0: it is there; a passing failure may be repeated. */
static int attempt(sink *s, const char *url, const char *path, hub_answer *a, icp_error *err) {
    s->from = s->at;
    s->begun = false;
    int rc = hub_get(s->opts, url, s->from, take_body, s, a, err);
    if (a->refused) return refused_body(s, path, a, err);
    TRY(rc);
    if (a->status == 416 &&
        s->from > 0) { /* there is no such byte: what is here is of another file */
        a->passing = restart(s);
        return error_set(err, ICP_EIO, "%s: the server has less than what is here", s->file->path);
    }
    if (a->status < 200 || a->status > 299) return hub_status_error(a, s->opts, s->file->path, err);
    if (s->file->size < 0 || s->at == s->file->size) return 0;
    a->passing = true;
    return error_set(err, ICP_EIO, "%s: the server sent %lld of %lld bytes", s->file->path,
                     (long long)s->at, (long long)s->file->size);
}

static int transfer_rest(sink *s, const char *url, const char *path, char sha256[65],
                         icp_error *err) {
    icp_error why = {0};
    hub_answer a = {0};
    for (int failures = 0; s->at != s->file->size || s->file->size < 0;) {
        int64_t before = s->at;
        int rc = attempt(s, url, path, &a, &why);
        if (rc == 0) break;
        failures = s->at > before ? 1 : failures + 1;
        if (!hub_wait(s->opts, &a, failures, &why)) return error_set(err, rc, "%s", why.text);
    }
    if (!sha256[0]) strcpy(sha256, a.sha256);
    return 0;
}

/* ---- names ---------------------------------------------------------------------------------- */

static bool make_folders(char *path) {
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        int rc = mkdir(path, 0777);
        *at = '/';
        if (rc < 0 && errno != EEXIST) return false;
    }
    return true;
}

static int save_checksum(const char *path, const char *sha256, icp_error *err) {
    buf name = {0};
    buf_printf(&name, "%s.sha256", path);
    const char *base = strrchr(path, '/') + 1;
    FILE *f = name.failed ? NULL : fopen(name.data, "we");
    bool written = f && fprintf(f, "%s  %s\n", sha256, base) > 0;
    if (f) written &= fclose(f) == 0;
    if (!written) error_set(err, ICP_EIO, "%.300s.sha256: cannot write: %s", path, strerror(errno));
    buf_fini(&name);
    return written ? 0 : ICP_EIO;
}

static bool read_checksum(const char *path, char sha256[65]) {
    buf name = {0};
    buf_printf(&name, "%s.sha256", path);
    FILE *f = name.failed ? NULL : fopen(name.data, "re");
    bool there = f && fscanf(f, "%64s", sha256) == 1 && hub_is_sha256(sha256, strlen(sha256));
    if (f) fclose(f);
    buf_fini(&name);
    if (!there) sha256[0] = 0;
    return there;
}

/* ---- fetching ------------------------------------------------------------------------------- */

/* Whole, with the right checksum: gives the part its name. */
static int finish(sink *s, const char *part, const char *path, const char *wanted, icp_error *err) {
    char is[65];
    take_digest(s, is);
    if (wanted[0] && strcmp(is, wanted) != 0) {
        unlink(part);
        return error_set(err, ICP_EFORMAT,
                         "%s: its SHA-256 is %s, not %s: what came is not the file that the server "
                         "announced; it was not kept",
                         s->file->path, is, wanted);
    }
    if (!wanted[0] && s->opts->note)
        s->opts->note(s->opts->arg, "the server told no checksum: only the length was checked");
    if (fsync(s->fd) < 0 || rename(part, path) < 0)
        return error_set(err, ICP_EIO, "%.300s: %s", path, strerror(errno));
    return save_checksum(path, is, err);
}

static int fetch(sink *s, const char *part, const char *path, const char *url, icp_error *err) {
    char sha256[65];
    strcpy(sha256, s->file->sha256);
    if (flock(s->fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, ICP_EAGAIN, "%s: another process is pulling it", s->file->path);
    bool ready = sha256[0] ? take_present(s) : restart(s); /* without a checksum: whose is it? */
    if (ready && s->file->size >= 0 && s->at > s->file->size) ready = restart(s);
    if (!ready) return error_set(err, ICP_EIO, "%.300s: %s", part, strerror(errno));
    if (s->at > 0 && s->opts->note)
        s->opts->note(s->opts->arg, "going on with what is there already");
    tell_progress(s);
    TRY(transfer_rest(s, url, path, sha256, err));
    return finish(s, part, path, sha256, err);
}

/* Whether path is there with the size and the checksum that are known of it; of a file without a
 * stored checksum, or offline, its bytes are read. */
static bool is_whole(sink *s, const char *path) {
    const hub_file *f = s->file;
    struct stat st;
    char stored[65], is[65];
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || (f->size >= 0 && st.st_size != f->size))
        return false;
    bool known = read_checksum(path, stored);
    const char *wanted = f->sha256[0] ? f->sha256 : stored;
    if (known && !s->opts->offline) return !strcmp(stored, wanted);
    if (!wanted[0] || (s->fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) return false;
    bool whole = take_present(s);
    take_digest(s, is);
    close(s->fd);
    whole &= !strcmp(is, wanted);
    return whole && (known || save_checksum(path, is, NULL) == 0);
}

static int make_whole(sink *s, char *path, char *part, const char *url, icp_error *err) {
    if (!s->hash || !path || !part) return error_set(err, ICP_ENOMEM, "out of memory");
    if (is_whole(s, path)) return 0;
    if (s->opts->offline)
        return error_set(err, ICP_EFORMAT,
                         "%.300s: its bytes do not have the checksum it was pulled with", path);
    if (!make_folders(part) || (s->fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        return error_set(err, ICP_EIO, "%.300s: cannot create: %s", part, strerror(errno));
    int rc = fetch(s, part, path, url, err);
    close(s->fd);
    return rc;
}

int hub_fetch(const hub_opts *opts, const char *repo, const hub_file *file, const char *url,
              icp_error *err) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%s%.16s.part", file->sha256[0] ? "." : "", file->sha256);
    char *path = hub_path(opts->folder, repo, file->path, "");
    char *part = hub_path(opts->folder, repo, file->path, suffix);
    sink s = {.opts = opts, .file = file, .hash = EVP_MD_CTX_new()};
    int rc = make_whole(&s, path, part, url, err);
    EVP_MD_CTX_free(s.hash);
    mem_free(path);
    mem_free(part);
    return rc;
}
