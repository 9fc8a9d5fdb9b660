/* A pool of threads for parallel loops.
 *
 * One 64-bit word, `ticket`, says everything about the current loop:
 *
 *     | generation (24 bits) | tiles (20 bits) | next tile (20 bits) |
 *
 * A thread claims a tile by adding 1. The claim is good when the old `next` was below `tiles`;
 * then the loop cannot end before this thread has finished the tile, so `work` and `arg` may be
 * read. A thread that was away while loops came and went claims nothing stale: what it adds to is
 * always the newest word. Each thread overshoots `tiles` at most once a loop, which 20 bits hold.
 *
 * Nobody waits for a thread, only for tiles: the caller sleeps until `done` reaches the number of
 * tiles, workers sleep until the generation changes. Both spin briefly first, since the loops of
 * a forward pass follow each other within microseconds. */
#include "base.h"
#include "base_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TILE_BITS = 20, MAX_TILES = 1 << 19, SPINS = 2000, MAX_THREADS = 512 };
#define TILE_MASK ((UINT64_C(1) << TILE_BITS) - 1)

typedef struct worker {
    pool *pool;
    int index;
    pthread_t thread;
} worker;

struct pool {
    int n_threads;
    worker *workers; /* n_threads - 1: the caller is thread 0 */
    bool spin;       /* more processors than one: waiting actively can pay */

    _Alignas(64) _Atomic uint64_t ticket;
    _Atomic uint32_t generation; /* futex of the workers; odd sleepers are counted beside */
    _Atomic uint32_t n_asleep;
    _Atomic bool closing;
    void (*work)(void *arg, int tile, int thread);
    void *arg;

    _Alignas(64) _Atomic uint32_t done; /* futex of the caller */
    _Atomic uint32_t caller_asleep;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Works on the current loop until no tile is left to claim. */
static void work_on(pool *p, int thread) {
    for (;;) {
        uint64_t seen = atomic_load_explicit(&p->ticket, memory_order_acquire);
        if ((seen & TILE_MASK) >= (seen >> TILE_BITS & TILE_MASK)) return;
        uint64_t mine = atomic_fetch_add_explicit(&p->ticket, 1, memory_order_acq_rel);
        uint32_t tile = (uint32_t)(mine & TILE_MASK), n = (uint32_t)(mine >> TILE_BITS & TILE_MASK);
        if (tile >= n) return;
        p->work(p->arg, (int)tile, thread);
        if (atomic_fetch_add(&p->done, 1) + 1 == n && atomic_load(&p->caller_asleep))
            futex_wake(&p->done, 1);
    }
}

static void *worker_main(void *arg) {
    worker *w = arg;
    pool *p = w->pool;
    uint32_t seen = 0;
    while (!atomic_load(&p->closing)) {
        work_on(p, w->index);
        uint32_t now = atomic_load(&p->generation);
        for (int i = 0; now == seen && p->spin && i < SPINS; i++) {
            relax();
            now = atomic_load(&p->generation);
        }
        if (now == seen) {
            atomic_fetch_add(&p->n_asleep, 1);
            futex_wait(&p->generation, seen);
            atomic_fetch_sub(&p->n_asleep, 1);
            now = atomic_load(&p->generation);
        }
        seen = now;
    }
    return NULL;
}

static void wake_workers(pool *p) {
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_asleep)) futex_wake(&p->generation, INT_MAX);
}

int pool_open(int n_threads, pool **out) {
    n_threads = MAX(1, MIN(n_threads, MAX_THREADS));
    pool *p = mem_aligned(64, sizeof *p);
    if (!p) return ICP_ENOMEM;
    memset(p, 0, sizeof *p);
    p->n_threads = 1;
    p->spin = cpu_count() > 1;
    p->workers = mem_zero((size_t)n_threads, sizeof *p->workers);
    if (!p->workers) {
        mem_free(p);
        return ICP_ENOMEM;
    }
    for (int i = 1; i < n_threads; i++) {
        worker *w = &p->workers[i - 1];
        *w = (worker){.pool = p, .index = i};
        if (pthread_create(&w->thread, NULL, worker_main, w)) {
            pool_close(&p);
            return ICP_ENOMEM;
        }
        char name[32];
        snprintf(name, sizeof name, "icp-pool-%d", i);
        pthread_setname_np(w->thread, name);
        p->n_threads++;
    }
    *out = p;
    return 0;
}

void pool_close(pool **pp) {
    pool *p = *pp;
    if (!p) return;
    *pp = NULL;
    atomic_store(&p->closing, true);
    wake_workers(p);
    for (int i = 0; i < p->n_threads - 1; i++) pthread_join(p->workers[i].thread, NULL);
    mem_free(p->workers);
    mem_free(p);
}

int pool_threads(const pool *p) {
    return p->n_threads;
}

bool pool_pin(pool *p) {
    cpu_list list;
    if (!topology_own_cpus(&list) || list.n < p->n_threads) return false;
    for (int i = 1; i < p->n_threads; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)list.cpu[i], &one);
        if (pthread_setaffinity_np(p->workers[i - 1].thread, sizeof one, &one)) return false;
    }
    return true;
}

static void run_tiles(pool *p, int n_tiles) {
    uint64_t generation = (atomic_load(&p->ticket) >> 2 * TILE_BITS) + 1;
    atomic_store(&p->done, 0);
    atomic_store_explicit(&p->ticket, generation << 2 * TILE_BITS | (uint64_t)n_tiles << TILE_BITS,
                          memory_order_release);
    wake_workers(p);
    work_on(p, 0);
    for (int spins = 0;; spins++) {
        uint32_t done = atomic_load(&p->done);
        if (done == (uint32_t)n_tiles) return;
        if (p->spin && spins < SPINS) {
            relax();
            continue;
        }
        atomic_store(&p->caller_asleep, 1);
        done = atomic_load(&p->done);
        if (done != (uint32_t)n_tiles) futex_wait(&p->done, done);
        atomic_store(&p->caller_asleep, 0);
    }
}

/* A range of a loop too long for one ticket. */
typedef struct slice {
    void (*work)(void *arg, int tile, int thread);
    void *arg;
    int first;
} slice;

static void work_slice(void *arg, int tile, int thread) {
    const slice *s = arg;
    s->work(s->arg, s->first + tile, thread);
}

void pool_run(pool *p, int n_tiles, void (*work)(void *arg, int tile, int thread), void *arg) {
    if (p->n_threads == 1 || n_tiles <= 1) {
        for (int i = 0; i < n_tiles; i++) work(arg, i, 0);
        return;
    }
    for (int first = 0; first < n_tiles; first += MAX_TILES) {
        slice s = {work, arg, first};
        p->work = first == 0 && n_tiles <= MAX_TILES ? work : work_slice;
        p->arg = p->work == work ? arg : &s;
        run_tiles(p, MIN(n_tiles - first, MAX_TILES));
    }
}
