/* base: what every other module stands on: errors, memory, growable buffers, log, time, threads.
 *
 * Nothing here knows about models, requests or HTTP. */
#ifndef BASE_H
#define BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "icp_error.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define PRINTF_LIKE(text, args) __attribute__((format(printf, text, args)))

/* ---- errors (error.c) ---------------------------------------------------------------------- */

/* Returns from the calling function when `call` fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_rc_ = (call);                                                                      \
        if (try_rc_ < 0) return try_rc_;                                                           \
    } while (0)

/* Stores code and sentence in *err (which may be NULL) and returns code. Text that came from
 * outside is safe to pass: control bytes and invalid UTF-8 are escaped, length is capped. */
int error_set(icp_error *err, int code, const char *format, ...) PRINTF_LIKE(3, 4);

/* ---- memory (mem.c) ------------------------------------------------------------------------ */

/* Like malloc, calloc, realloc and free, but an allocation can be made to fail: every structure
 * is tested with its n-th allocation failing. NULL on failure; sizes that overflow fail too. */
void *mem_alloc(size_t size);
void *mem_zero(size_t count, size_t size);
void *mem_resize(void *old, size_t count, size_t size);
void *mem_aligned(size_t align, size_t size); /* align: a power of two; freed by mem_free */
char *mem_strdup(const char *text);
void mem_free(void *block);

/* Lets n further allocations of the calling thread succeed, then all fail; negative: no limit. */
void mem_fail_after(long n);

/* Reserves size bytes of zeroed address space, committed page by page when first written;
 * transparent huge pages are asked for. NULL on failure. Given back by mem_unreserve. */
void *mem_reserve(size_t size);
void mem_unreserve(void *block, size_t size);
/* Commits size bytes of a reservation, from the start of one of the system's pages on, as writing
 * to them would; what was written stays. ICP_EUNSUPPORTED: the kernel cannot (Linux before 5.14),
 * or has no memory. */
int mem_commit(void *block, size_t size);
/* Gives the memory of a part of a reservation, whole pages of the system's, back; it reads as
 * zeroes and is committed anew when written. */
void mem_release(void *block, size_t size);
/* Keeps what is or will be committed of a reservation from being swapped out. ICP_ELIMIT: the
 * process may not lock so much (RLIMIT_MEMLOCK). */
int mem_lock(void *block, size_t size);

/* Spreads a reservation that nobody has written to over the memory nodes that the process computes
 * on, page by page, so that all of them yield their bandwidth whoever reads. Returns how many; 1:
 * there is one only, or the process was started with a policy of its own (numactl).
 * ICP_EUNSUPPORTED: the system does not let it. */
int mem_interleave(void *block, size_t size);

/* Bytes that this process may still take without swapping: the least of MemAvailable and what the
 * cgroup's limit (v1 or v2) leaves. */
size_t mem_available(void);

/* An arena: many small blocks with one life. All of them are freed by arena_fini. */
typedef struct arena {
    struct arena_chunk *chunk;
    size_t used; /* bytes handed out, for limits */
    size_t step; /* bytes it takes at once; 0: 64 KiB. May be set after arena_init */
} arena;
void arena_init(arena *a);
void *arena_alloc(arena *a, size_t size); /* 16-byte aligned, not zeroed; NULL on failure */
void arena_fini(arena *a);

/* ---- growable bytes (buf.c) ---------------------------------------------------------------- */

/* Bytes that grow. A failed append leaves the contents whole and sets `failed`, which sticks: a
 * writer appends freely and checks once at the end. Zero-initialise; always NUL-terminated once
 * something was appended. */
typedef struct buf {
    char *data;
    size_t len, cap;
    bool failed;
} buf;
void buf_put(buf *b, const void *data, size_t len);
void buf_puts(buf *b, const char *text);
void buf_putc(buf *b, char c);
void buf_printf(buf *b, const char *format, ...) PRINTF_LIKE(2, 3);
/* Appends text as the inside of a JSON string: escapes, invalid UTF-8 as U+FFFD. */
void buf_put_json(buf *b, const char *text, size_t len);
/* Appends text from outside for people to read, escaped as in error_set. */
void buf_put_escaped(buf *b, const char *text, size_t len);
/* Appends JSON text with each character beyond ASCII as \uXXXX (RFC 8259, section 7). json-c 0.18
 * refuses such bytes in strings when it is strict, and strict it must be. The text must be UTF-8:
 * broken sequences become U+FFFD. */
void buf_put_ascii_json(buf *b, const char *text, size_t len);
/* Where byte `at` of what it appended stands in text. */
size_t ascii_json_origin(const char *text, size_t len, size_t at);
void buf_clear(buf *b); /* keeps the memory */
void buf_fini(buf *b);

/* ---- UTF-8 (utf8.c) ------------------------------------------------------------------------ */

/* Decodes one code point at text[0..len), len > 0. Returns its length in bytes and sets *cp; for
 * a broken sequence returns the length of its maximal broken prefix (at least 1) and sets *cp to
 * -1 (Unicode 15, section 3.9, table 3-7: no overlongs, no surrogates, at most U+10FFFF). */
int utf8_decode(const char *text, size_t len, int32_t *cp);
int utf8_encode(int32_t cp, char out[4]); /* returns the length */
/* Length of the longest prefix of text that does not end inside a sequence that more bytes could
 * complete. */
size_t utf8_complete(const char *text, size_t len);

/* ---- log (log.c) --------------------------------------------------------------------------- */

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
/* One line to stderr: time, level, text; outside text is escaped as in error_set, capped at 2 kB.
 * Only programs (serve, cli) and the engine's own thread log; libraries below return errors. */
void log_line(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);
void log_set_level(enum log_level level);

/* ---- random numbers (random.c) ------------------------------------------------------------- */

/* The next number of a sequence that any state begins: SplitMix64 (Steele, Lea, Flood: "Fast
 * splittable pseudorandom number generators", 2014). Not for sampling, not for secrets. */
uint64_t random_next(uint64_t *state);

/* ---- time (clock.c) ------------------------------------------------------------------------ */

double clock_now(void); /* seconds, monotonic */

/* ---- threads (pool.c) ---------------------------------------------------------------------- */

/* A pool of named threads for parallel loops. Tiles are handed out one by one, so that a thread
 * which the kernel has descheduled holds up its own tile only. One caller at a time. */
typedef struct pool pool;
int pool_open(int n_threads, pool **out); /* n_threads counts the caller; at least 1 */
void pool_close(pool **p);                /* NULL is fine */
int pool_threads(const pool *p);
/* Binds each worker to a processor of its own, of those that this process may use: one of each core
 * first, fast cores before slow ones. The first is left to the caller, which others start and which
 * may use all. False: there are too few. */
bool pool_pin(pool *p);
/* Runs work(arg, tile, thread) for each tile in [0, n_tiles), thread in [0, pool_threads), and
 * returns when all have run. The caller works too, as thread 0. */
void pool_run(pool *p, int n_tiles, void (*work)(void *arg, int tile, int thread), void *arg);

/* ---- processors (topology.c) --------------------------------------------------------------- */

/* Processors this process may use: affinity mask and cgroup CPU quota; at least 1. */
int cpu_count(void);
/* Threads that computing wants: one for each core of these processors, and no more than the quota
 * allows. Where the kernel does not tell of cores, each processor is one. */
int cpu_cores(void);

#endif
