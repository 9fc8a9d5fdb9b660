/* The models of a folder: loaded when a request asks for one, unloaded when nobody did for a while,
 * or to make room for another.
 *
 *   shelf_take ── ready ──▶ users++, the call goes on
 *       │
 *       └── not ready, or leaving ──▶ waiting ──▶ keeper: makes room, loads ──▶ back to the workers
 *
 * The keeper ("icp-models") alone loads and unloads, one model at a time, in the order in which
 * they were first waited for. When all places are taken by models that are in use, the one that was
 * taken longest ago is `leaving`: it answers what it has, new requests for it wait, and then it
 * goes. So nobody waits for ever.
 *
 * Under the lock:
 * 1. What a ready model consists of does not change while it has users.
 * 2. A call waits at one model only, and belongs to the shelf until it is handed to the workers.
 * 3. At most `most` models are ready or being loaded. They have equal shares of the cache's limit,
 *    a lone one all of it: before another is loaded, the others give up what it is to have.
 */
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "serve_internal.h"

struct shelf {
    server *server;
    icp_engine_opts engine;
    size_t limit; /* of the cache, for all models */
    size_t share; /* what each that is ready has of it; the keeper's */
    size_t most;
    double idle; /* seconds after which a model without requests goes; 0: it stays */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    served *first; /* in order of names; models never leave the list */
    bool closing;
    bool running; /* the keeper */
    pthread_t keeper;
};

/* ---- the folder ------------------------------------------------------------------------------ */

static int compare_entries(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Where a model of this name stands, or would. */
static served **find(served **list, const char *name, size_t len) {
    for (; *list; list = &(*list)->next) {
        int order = strncmp((*list)->name, name, len);
        if (order > 0 || (order == 0 && strlen((*list)->name) >= len)) break;
    }
    return list;
}

static served *find_exactly(served **list, const char *name, size_t len) {
    served *m = *find(list, name, len);
    return m && strlen(m->name) == len && !strncmp(m->name, name, len) ? m : NULL;
}

/* Adds a file, or its size to the model whose first file was seen. */
static int add_file(served **list, const char *path, size_t root_len) {
    struct stat st;
    unsigned part;
    const char *name = path + root_len + 1;
    size_t path_len = strlen(path), len = served_stem(path, &part) - root_len - 1;
    if (path_len < 5 || strcmp(path + path_len - 5, ".gguf") || strstr(name, "mmproj") ||
        strstr(name, "imatrix") || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    served *m = find_exactly(list, name, len);
    if (!m && part <= 1) {
        served **at = find(list, name, len);
        m = served_new(path, name, len);
        if (!m) return ICP_ENOMEM;
        m->next = *at;
        *at = m;
    }
    if (m) m->size += (size_t)st.st_size;
    return 0;
}

static int scan(const char *folder, served **list, icp_error *err) {
    char *root = mem_strdup(folder);
    for (size_t n = root ? strlen(root) : 0; n > 1 && root[n - 1] == '/';) root[--n] = 0;
    FTS *walk = root ? fts_open((char *[]){root, NULL}, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR,
                                compare_entries)
                     : NULL;
    int rc = walk ? 0 : error_set(err, ICP_ENOMEM, "out of memory");
    for (FTSENT *e; rc == 0 && (e = fts_read(walk));) {
        bool is_file = e->fts_info == FTS_F || e->fts_info == FTS_SL;
        if (e->fts_level == 0 && e->fts_info != FTS_D && e->fts_info != FTS_DP)
            rc = error_set(err, ICP_EIO, "%s: %s", folder,
                           e->fts_errno ? strerror(e->fts_errno) : "is no folder");
        else if (is_file && add_file(list, e->fts_path, strlen(root)) < 0)
            rc = error_set(err, ICP_ENOMEM, "out of memory");
    }
    if (walk) fts_close(walk);
    mem_free(root);
    return rc;
}

static void free_list(served *list) {
    for (served *m; (m = list);) {
        list = m->next;
        served_free(&m);
    }
}

/* Adds what is new in the folder. */
static void look_again(shelf *sh) {
    served *seen = NULL;
    if (scan(sh->server->opts->model_dir, &seen, NULL) < 0) return free_list(seen);
    pthread_mutex_lock(&sh->lock);
    for (served *m; (m = seen);) {
        seen = m->next;
        served **at = find(&sh->first, m->name, strlen(m->name));
        if (*at && !strcmp((*at)->name, m->name)) {
            served_free(&m);
        } else {
            m->next = *at;
            *at = m;
        }
    }
    pthread_mutex_unlock(&sh->lock);
}

/* ---- taking ---------------------------------------------------------------------------------- */

static void take(served *m, call *c) {
    m->users++;
    m->used = clock_now();
    c->on = m;
}

static void wait_at(served *m, call *c) {
    call **last = &m->waiting;
    while (*last) last = &(*last)->next_work;
    if (!m->waiting) m->wanted = clock_now();
    c->next_work = NULL;
    *last = c;
}

static served *look_up(shelf *sh, const char *name) {
    if (!name) return sh->first && !sh->first->next ? sh->first : NULL;
    return find_exactly(&sh->first, name, strlen(name));
}

enum taken shelf_take(shelf *sh, call *c, const char *name) {
    enum taken taken = MODEL_REFUSED;
    pthread_mutex_lock(&sh->lock);
    served *m = look_up(sh, name);
    if (!m && name) {
        pthread_mutex_unlock(&sh->lock);
        look_again(sh);
        pthread_mutex_lock(&sh->lock);
        m = look_up(sh, name);
    }
    if (!name && !m) {
        reply_error(&c->reply, 400, "missing_field", "model",
                    "Missing field: 'model'. This server has several; /v1/models lists them.");
    } else if (!m) {
        reply_no_model(&c->reply, name);
    } else if (sh->closing) {
        reply_error(&c->reply, 503, "shutting_down", NULL, "The server is shutting down.");
    } else if (m->ready && !m->leaving) {
        take(m, c);
        taken = MODEL_TAKEN;
    } else {
        wait_at(m, c);
        taken = MODEL_AWAITED;
        pthread_cond_broadcast(&sh->changed);
    }
    pthread_mutex_unlock(&sh->lock);
    return taken;
}

/* Without a name: the only one, or the one that was used last. */
static served *look_up_ready(shelf *sh, const char *name) {
    served *found = NULL;
    if (name) return find_exactly(&sh->first, name, strlen(name));
    for (served *m = sh->first; m; m = m->next)
        if (m->ready && !m->leaving && (!found || m->used > found->used)) found = m;
    return found;
}

bool shelf_take_ready(shelf *sh, call *c, const char *name) {
    pthread_mutex_lock(&sh->lock);
    served *m = look_up_ready(sh, name);
    if (m && m->ready && !m->leaving)
        take(m, c);
    else if (name && !m)
        reply_no_model(&c->reply, name);
    else
        reply_error(&c->reply, 503, "model_not_loaded", "model",
                    "%.200s is not loaded; a request for an answer loads it.",
                    name ? name : "A model");
    pthread_mutex_unlock(&sh->lock);
    return c->on != NULL;
}

void shelf_release(shelf *sh, served *m) {
    pthread_mutex_lock(&sh->lock);
    m->used = clock_now();
    if (--m->users == 0) pthread_cond_broadcast(&sh->changed);
    pthread_mutex_unlock(&sh->lock);
}

void shelf_each(shelf *sh, void (*visit)(void *arg, const served *m), void *arg) {
    pthread_mutex_lock(&sh->lock);
    for (const served *m = sh->first; m; m = m->next) visit(arg, m);
    pthread_mutex_unlock(&sh->lock);
}

/* ---- the keeper ------------------------------------------------------------------------------ */

/* Gives what waits at a model to the workers: with the model, or with an error. */
static void hand_over(shelf *sh, served *m, const icp_error *why) {
    call *next = m->waiting;
    m->waiting = NULL;
    for (call *c; (c = next);) {
        next = c->next_work;
        if (m->ready)
            take(m, c);
        else if (sh->closing)
            reply_error(&c->reply, 503, "shutting_down", NULL, "The server is shutting down.");
        else
            reply_error(&c->reply, why->code == ICP_ENOMEM ? 503 : 500, "model_load_failed",
                        "model", "The model '%.100s' cannot be loaded: %s", m->name, why->text);
        workers_add(sh->server->workers, c);
    }
}

static size_t count_ready(const shelf *sh) {
    size_t n = 0;
    for (const served *m = sh->first; m; m = m->next) n += m->ready;
    return n;
}

/* Makes the limit be for n models. True: the lock was open for a while. */
static bool share_out(shelf *sh, size_t n) {
    if (sh->share == sh->limit / n) return false;
    sh->share = sh->limit / n;
    for (served *m = sh->first; m; m = m->next) {
        if (!m->ready) continue;
        pthread_mutex_unlock(&sh->lock); /* only the keeper unloads, and nothing leaves the list */
        icp_engine_set_limit(m->engine, sh->share);
        pthread_mutex_lock(&sh->lock);
    }
    return true;
}

static void unload(shelf *sh, served *m) {
    m->ready = false;
    pthread_mutex_unlock(&sh->lock);
    served_unload(m);
    log_line(LOG_INFO, "%s unloaded", m->name);
    pthread_mutex_lock(&sh->lock);
    m->leaving = false;
}

static int try_to_load(shelf *sh, served *m, icp_error *err) {
    icp_engine_opts engine = sh->engine;
    size_t available = mem_available();
    engine.cache_limit = sh->share;
    engine.cache_least = sh->limit / sh->most;
    engine.cache_most = sh->limit;
    if (available < m->size)
        return error_set(err, ICP_ENOMEM, "it has %.1f GB, and %.1f GB of memory are free",
                         (double)m->size / 1e9, (double)available / 1e9);
    return served_load(m, sh->server->opts, &engine, err);
}

static void load(shelf *sh, served *m) {
    icp_error why = {0};
    share_out(sh, count_ready(sh) + 1);
    pthread_mutex_unlock(&sh->lock);
    int rc = try_to_load(sh, m, &why);
    if (rc < 0) log_line(LOG_WARN, "%s cannot be loaded: %s", m->name, why.text);
    pthread_mutex_lock(&sh->lock);
    m->ready = rc == 0;
    m->used = clock_now();
    hand_over(sh, m, &why);
}

/* The model that is to go: the one that is going already, or an unused one, or the one that was
 * taken longest ago. NULL: none is loaded. */
static served *pick_victim(shelf *sh) {
    served *victim = NULL;
    for (served *m = sh->first; m; m = m->next) {
        if (!m->ready) continue;
        if (!victim || (!victim->leaving &&
                        (m->leaving || (m->users == 0 && victim->users > 0) ||
                         ((m->users == 0) == (victim->users == 0) && m->used < victim->used))))
            victim = m;
    }
    return victim;
}

/* Whether there would be memory for its weights if all others went. */
static bool could_fit(const shelf *sh, const served *wanted) {
    size_t most = mem_available();
    for (const served *m = sh->first; m; m = m->next)
        if (m->ready) most += m->size;
    return most >= wanted->size;
}

/* One step towards room for a model; true when there is some. First the others' caches shrink.
 * Files become about as large in memory; a quarter is for what comes with them. */
static bool make_room(shelf *sh, const served *wanted) {
    size_t n_ready = count_ready(sh);
    if (n_ready < sh->most) share_out(sh, n_ready + 1);
    served *victim = pick_victim(sh);
    if (!could_fit(sh, wanted)) return true; /* to be refused: nobody goes for that */
    bool fits = n_ready < sh->most && mem_available() >= wanted->size / 4 * 5;
    if (!victim || (fits && !victim->leaving)) return true;
    victim->leaving = true;
    if (victim->users == 0)
        unload(sh, victim);
    else
        pthread_cond_wait(&sh->changed, &sh->lock);
    return false;
}

static served *first_wanted(shelf *sh) {
    served *first = NULL;
    for (served *m = sh->first; m; m = m->next)
        if (m->waiting && !m->ready && (!first || m->wanted < first->wanted)) first = m;
    return first;
}

/* The next model that will have been idle long enough; *at: when. */
static served *next_idle(shelf *sh, double *at) {
    served *next = NULL;
    for (served *m = sh->first; m && sh->idle > 0; m = m->next)
        if (m->ready && m->users == 0 && (!next || m->used < next->used)) next = m;
    if (next) *at = next->used + sh->idle;
    return next;
}

static void wait_until(shelf *sh, double at) {
    struct timespec t = {.tv_sec = (time_t)at, .tv_nsec = (long)((at - (double)(time_t)at) * 1e9)};
    pthread_cond_timedwait(&sh->changed, &sh->lock, &t);
}

static void *keep(void *arg) {
    shelf *sh = arg;
    pthread_mutex_lock(&sh->lock);
    while (!sh->closing) {
        double at = 0;
        served *wanted = first_wanted(sh), *idle = next_idle(sh, &at);
        if (wanted && make_room(sh, wanted))
            load(sh, wanted);
        else if (wanted || share_out(sh, MAX(count_ready(sh), 1)))
            continue;
        else if (idle && clock_now() >= at)
            unload(sh, idle);
        else if (idle)
            wait_until(sh, at);
        else
            pthread_cond_wait(&sh->changed, &sh->lock);
    }
    for (served *m = sh->first; m; m = m->next) hand_over(sh, m, NULL);
    pthread_mutex_unlock(&sh->lock);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void set_limits(shelf *sh, const serve_opts *opts) {
    size_t limit = opts->engine.cache_limit ? opts->engine.cache_limit : mem_available() / 2;
    sh->limit = sh->share = limit;
    sh->most = opts->max_models > 0 ? (size_t)opts->max_models : 2;
    sh->idle = opts->model_idle;
    sh->engine = opts->engine;
}

static void log_shelf(const shelf *sh) {
    size_t n = 0;
    for (const served *m = sh->first; m; m = m->next) n++;
    log_line(LOG_INFO,
             "%s has %zu models; at most %zu are loaded, with %.0f MiB in all beside their weights",
             sh->server->opts->model_dir, n, sh->most, (double)sh->limit / (1 << 20));
}

int shelf_open(server *s, shelf **out, icp_error *err) {
    shelf *sh = *out = mem_zero(1, sizeof *sh);
    if (!sh) return error_set(err, ICP_ENOMEM, "out of memory");
    pthread_condattr_t monotonic; /* as clock_now */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sh->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&sh->lock, NULL);
    sh->server = s;
    set_limits(sh, s->opts);
    TRY(scan(s->opts->model_dir, &sh->first, err));
    log_shelf(sh);
    if (pthread_create(&sh->keeper, NULL, keep, sh) != 0)
        return error_set(err, ICP_ENOMEM, "cannot start a thread");
    sh->running = true;
    pthread_setname_np(sh->keeper, "icp-models");
    return 0;
}

void shelf_stop(shelf *sh) {
    pthread_mutex_lock(&sh->lock);
    sh->closing = true;
    pthread_cond_broadcast(&sh->changed);
    pthread_mutex_unlock(&sh->lock);
}

void shelf_close(shelf **ref) {
    shelf *sh = *ref;
    if (!sh) return;
    *ref = NULL;
    shelf_stop(sh);
    if (sh->running) pthread_join(sh->keeper, NULL);
    free_list(sh->first);
    pthread_cond_destroy(&sh->changed);
    pthread_mutex_destroy(&sh->lock);
    mem_free(sh);
}
