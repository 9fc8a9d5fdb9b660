#include "base.h"
#include "base_internal.h"

#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- allocation that can be made to fail ---- */

static _Thread_local long allocations_left = -1;

void mem_fail_after(long n) {
    allocations_left = n;
}

static bool refuse(void) {
    if (allocations_left < 0) return false;
    if (allocations_left == 0) return true;
    allocations_left--;
    return false;
}

void *mem_alloc(size_t size) {
    return refuse() ? NULL : malloc(size ? size : 1);
}

void *mem_zero(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || refuse()) return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *mem_resize(void *old, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || refuse()) return NULL;
    return realloc(old, bytes ? bytes : 1);
}

void *mem_aligned(size_t align, size_t size) {
    if (size > SIZE_MAX - align || refuse()) return NULL;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

char *mem_strdup(const char *text) {
    return refuse() ? NULL : strdup(text);
}

void mem_free(void *block) {
    free(block);
}

/* ---- reservations ---- */

void *mem_reserve(size_t size) {
    if (refuse()) return NULL;
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return NULL;
    madvise(block, size, MADV_HUGEPAGE); /* only a wish: kernels without it refuse */
    return block;
}

void mem_unreserve(void *block, size_t size) {
    if (block) munmap(block, size);
}

#ifndef MADV_POPULATE_WRITE /* in the kernel's headers since 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

int mem_commit(void *block, size_t size) {
    return madvise(block, size, MADV_POPULATE_WRITE) ? ICP_EUNSUPPORTED : 0;
}

void mem_release(void *block, size_t size) {
    madvise(block, size, MADV_DONTNEED);
}

int mem_lock(void *block, size_t size) {
    return mlock2(block, size, MLOCK_ONFAULT) ? ICP_ELIMIT : 0;
}

int mem_interleave(void *block, size_t size) {
    cpu_set_t nodes;
    int n = topology_own_nodes(&nodes), policy;
    if (n < 2) return 1;
    if (syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0)) return ICP_EUNSUPPORTED;
    if (policy != MPOL_DEFAULT) return 1;
    /* The number of bits is one too many: the kernel takes one off. */
    if (syscall(SYS_mbind, block, size, MPOL_INTERLEAVE, &nodes, CPU_SETSIZE + 1, 0))
        return ICP_EUNSUPPORTED;
    return n;
}

/* ---- how much is there ---- */

/* The number in a one-line file of the cgroup file system; SIZE_MAX for "max" or no such file. */
static size_t read_size(const char *path) {
    FILE *f = fopen(path, "re");
    unsigned long long n;
    if (!f) return SIZE_MAX;
    int got = fscanf(f, "%llu", &n);
    fclose(f);
    return got == 1 ? (size_t)n : SIZE_MAX;
}

static size_t cgroup_left(const char *limit_path, const char *usage_path) {
    size_t limit = read_size(limit_path), used = read_size(usage_path);
    if (limit == SIZE_MAX || used == SIZE_MAX) return SIZE_MAX;
    return limit > used ? limit - used : 0;
}

size_t mem_available(void) {
    size_t available = SIZE_MAX;
    FILE *f = fopen("/proc/meminfo", "re");
    if (f) {
        char line[256];
        unsigned long long kib;
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "MemAvailable: %llu", &kib) == 1) available = (size_t)kib * 1024;
        fclose(f);
    }
    if (available == SIZE_MAX)
        available = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    available =
        MIN(available, cgroup_left("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"));
    return MIN(available, cgroup_left("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                      "/sys/fs/cgroup/memory/memory.usage_in_bytes"));
}

/* ---- arena ---- */

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, cap;
    _Alignas(16) char data[];
};

enum { ARENA_CHUNK = 64 * 1024 - 64 };

void arena_init(arena *a) {
    *a = (arena){0};
}

void *arena_alloc(arena *a, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + 15) & ~(size_t)15;
    struct arena_chunk *c = a->chunk;
    if (!c || c->cap - c->used < size) {
        size_t cap = MAX(size, a->step ? a->step : (size_t)ARENA_CHUNK);
        struct arena_chunk *fresh = mem_alloc(sizeof *fresh + cap);
        if (!fresh) return NULL;
        fresh->used = 0;
        fresh->cap = cap;
        if (c && size > ARENA_CHUNK / 2) { /* a big block does not end the current chunk */
            fresh->next = c->next;
            c->next = fresh;
        } else {
            fresh->next = c;
            a->chunk = fresh;
        }
        c = fresh;
    }
    void *block = c->data + c->used;
    c->used += size;
    a->used += size;
    return block;
}

void arena_fini(arena *a) {
    while (a->chunk) {
        struct arena_chunk *next = a->chunk->next;
        mem_free(a->chunk);
        a->chunk = next;
    }
    a->used = 0;
}
