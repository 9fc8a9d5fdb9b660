/* Parallel loops: each tile exactly once, whatever the number of threads. The plain variables
 * here are the point: a data race in the pool shows under TSan. */
#include "cmocka_tests.h"

#include "base.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TILES = 4096, MOST_THREADS = 8 };

typedef struct loop {
    int n_threads;
    unsigned char runs[MOST_TILES]; /* of each tile: written by whoever claimed it */
    int of_thread[MOST_THREADS];    /* tiles that each thread ran: two at once would race */
    int bad;
} loop;

static void count_tile(void *arg, int tile, int thread) {
    loop *l = arg;
    if (thread < 0 || thread >= l->n_threads || tile < 0 || tile >= MOST_TILES) {
        l->bad = 1;
        return;
    }
    l->runs[tile]++;
    l->of_thread[thread]++;
}

static void check_loop(pool *p, int n_tiles) {
    static loop l;
    memset(&l, 0, sizeof l);
    l.n_threads = pool_threads(p);
    pool_run(p, n_tiles, count_tile, &l);
    int sum = 0;
    assert_int_equal(l.bad, 0);
    for (int i = 0; i < MOST_TILES; i++) assert_int_equal(l.runs[i], i < n_tiles);
    for (int i = 0; i < l.n_threads; i++) sum += l.of_thread[i];
    assert_int_equal(sum, n_tiles);
}

static void each_tile_runs_once(void **state) {
    srand(3);
    for (int n_threads = 1; n_threads <= MOST_THREADS; n_threads++) {
        pool *p;
        assert_int_equal(pool_open(n_threads, &p), 0);
        assert_int_equal(pool_threads(p), n_threads);
        for (int n_tiles = 0; n_tiles <= 20; n_tiles++) check_loop(p, n_tiles);
        for (int i = 0; i < 100; i++) check_loop(p, rand() % MOST_TILES);
        check_loop(p, MOST_TILES);
        pool_close(&p);
        assert_null(p);
    }
}

static void count_run(void *arg, int tile, int thread) {
    ((int *)arg)[tile]++;
}

/* Loops that follow each other at once, so that threads come late and meet the next one. */
static void many_short_loops(void **state) {
    enum { LOOPS = 21000, TILES = 3 };
    pool *p;
    int runs[TILES] = {0};
    assert_int_equal(pool_open(4, &p), 0);
    for (int i = 0; i < LOOPS; i++) pool_run(p, 1 + i % TILES, count_run, runs);
    pool_close(&p);
    assert_int_equal(runs[0], LOOPS);
    assert_int_equal(runs[1], LOOPS / TILES * 2);
    assert_int_equal(runs[2], LOOPS / TILES);
}

/* Threads that have gone to sleep wake up again. */
static void loops_after_a_pause(void **state) {
    pool *p;
    assert_int_equal(pool_open(3, &p), 0);
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        check_loop(p, 100);
    }
    usleep(20000);
    pool_close(&p);
}

/* One thread is so slow that it does not end its first tile before all others are done: as a slow
 * core is, or one that others use. It must not hold up more than that tile. */
typedef struct uneven {
    int n_tiles;
    _Atomic int slow;  /* the thread, once there is one; 0: not yet */
    _Atomic int ended; /* tiles */
    int of_thread[MOST_THREADS];
} uneven;

static void run_unevenly(void *arg, int tile, int thread) {
    uneven *u = arg;
    int nobody = 0;
    u->of_thread[thread]++;
    if (thread > 0 && atomic_compare_exchange_strong(&u->slow, &nobody, thread))
        while (atomic_load(&u->ended) < u->n_tiles - 1) sched_yield();
    while (!atomic_load(&u->slow)) sched_yield(); /* it has taken a tile */
    atomic_fetch_add(&u->ended, 1);
}

static void a_slow_thread_holds_up_one_tile(void **state) {
    pool *p;
    assert_int_equal(pool_open(3, &p), 0);
    for (int n_tiles = 3; n_tiles < 300; n_tiles += 20) {
        uneven u = {.n_tiles = n_tiles};
        pool_run(p, n_tiles, run_unevenly, &u);
        assert_int_equal(u.ended, n_tiles);
        assert_int_equal(u.of_thread[u.slow], 1);
    }
    pool_close(&p);
}

/* What one loop wrote, the next one reads, on whichever thread. */
static void add_neighbour(void *arg, int tile, int thread) {
    int *cells = arg;
    if (tile % 2 == cells[MOST_TILES]) cells[tile] = cells[tile ^ 1] + 1;
}

static void loops_see_what_went_before(void **state) {
    static int cells[MOST_TILES + 1];
    pool *p;
    assert_int_equal(pool_open(4, &p), 0);
    for (int i = 0; i < 100; i++) {
        cells[MOST_TILES] = i % 2;
        pool_run(p, MOST_TILES, add_neighbour, cells);
    }
    pool_close(&p);
    for (int i = 0; i < MOST_TILES; i++) assert_int_equal(cells[i], i % 2 ? 100 : 99);
}

static void count_byte(void *arg, int tile, int thread) {
    ((unsigned char *)arg)[tile]++;
}

static void a_very_long_loop(void **state) {
    enum { TILES = 1200000 };
    unsigned char *runs = calloc(TILES, 1);
    assert_non_null(runs);
    pool *p;
    assert_int_equal(pool_open(2, &p), 0);
    pool_run(p, TILES, count_byte, runs);
    pool_close(&p);
    int wrong = 0;
    for (int i = 0; i < TILES; i++) wrong += runs[i] != 1;
    assert_int_equal(wrong, 0);
    free(runs);
}

static void open_and_close(void **state) {
    pool *p = NULL;
    pool_close(&p);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(pool_open(1 + i % 8, &p), 0);
        if (i % 3 == 0) check_loop(p, 10);
        pool_close(&p);
    }
    assert_int_equal(pool_open(0, &p), 0); /* the caller always counts */
    assert_int_equal(pool_threads(p), 1);
    check_loop(p, 10);
    pool_close(&p);
}

static void opening_runs_out_of_memory(void **state) {
    pool *p = NULL;
    long n = 0;
    for (;; n++) {
        mem_fail_after(n);
        int rc = pool_open(3, &p);
        mem_fail_after(-1);
        if (rc == 0) break;
        assert_int_equal(rc, ICP_ENOMEM);
    }
    assert_true(n >= 1);
    check_loop(p, 10);
    pool_close(&p);
}

static void processors_are_counted(void **state) {
    int n = cpu_count();
    assert_true(n >= 1 && n <= sysconf(_SC_NPROCESSORS_CONF));
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(cpu_count(), n);
}

static void time_moves_on(void **state) {
    double before = clock_now();
    usleep(2000);
    assert_true(clock_now() > before);
}

typedef struct meeting {
    pthread_barrier_t all_here;
    int n_processors[2]; /* that the thread may run on */
} meeting;

static void meet(void *arg, int tile, int thread) {
    meeting *m = arg;
    cpu_set_t set;
    pthread_barrier_wait(&m->all_here);
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    m->n_processors[thread] = CPU_COUNT(&set);
}

static void workers_are_pinned(void **state) {
    cpu_set_t all;
    pool *p;
    meeting m;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(pool_open(CPU_COUNT(&all) + 1, &p), 0);
    assert_false(pool_pin(p));
    pool_close(&p);
    if (CPU_COUNT(&all) < 2) skip();
    assert_int_equal(pool_open(2, &p), 0);
    assert_true(pool_pin(p));
    pthread_barrier_init(&m.all_here, NULL, 2);
    pool_run(p, 2, meet, &m);
    assert_int_equal(m.n_processors[0], CPU_COUNT(&all));
    assert_int_equal(m.n_processors[1], 1);
    pthread_barrier_destroy(&m.all_here);
    pool_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tile_runs_once),
        cmocka_unit_test(many_short_loops),
        cmocka_unit_test(loops_after_a_pause),
        cmocka_unit_test(loops_see_what_went_before),
        cmocka_unit_test(a_very_long_loop),
        cmocka_unit_test(open_and_close),
        cmocka_unit_test(a_slow_thread_holds_up_one_tile),
        cmocka_unit_test(opening_runs_out_of_memory),
        cmocka_unit_test(workers_are_pinned),
        cmocka_unit_test(processors_are_counted),
        cmocka_unit_test(time_moves_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
