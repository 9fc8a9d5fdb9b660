/* Allocation, reservations and arenas. */
#include "cmocka_tests.h"

#include "base.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void blocks_are_as_asked(void **state) {
    uint8_t *zero = mem_zero(100, 3);
    for (int i = 0; i < 300; i++) assert_int_equal(zero[i], 0);
    mem_free(zero);
    for (size_t align = 16; align <= 4096; align *= 2) {
        uint8_t *block = mem_aligned(align, align + 1);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % align, 0);
        memset(block, 1, align + 1);
        mem_free(block);
    }
    char *text = mem_strdup("text");
    assert_string_equal(text, "text");
    text = mem_resize(text, 50, 2);
    assert_string_equal(text, "text");
    mem_free(text);
    mem_free(NULL);
    void *empty[] = {mem_alloc(0), mem_zero(0, 8), mem_zero(8, 0), mem_resize(NULL, 0, 1)};
    for (size_t i = 0; i < COUNT_OF(empty); i++) {
        assert_non_null(empty[i]);
        mem_free(empty[i]);
    }
}

static void sizes_that_overflow_fail(void **state) {
    /* volatile: compilers warn of such sizes where they see them */
    volatile size_t half = SIZE_MAX / 2 + 2, most = SIZE_MAX;
    assert_null(mem_zero(half, 2));
    assert_null(mem_resize(NULL, half, 2));
    assert_null(mem_aligned(64, most));
    arena a;
    arena_init(&a);
    assert_null(arena_alloc(&a, most));
    assert_null(arena_alloc(&a, most - 8));
    assert_int_equal(a.used, 0);
    arena_fini(&a);
}

static void *allocate_elsewhere(void *arg) {
    void *block = mem_alloc(1);
    *(bool *)arg = block != NULL;
    mem_free(block);
    return NULL;
}

static void the_nth_allocation_fails(void **state) {
    mem_fail_after(3);
    void *blocks[] = {mem_alloc(1), mem_zero(1, 1), mem_strdup("x")};
    assert_null(mem_alloc(1));
    assert_null(mem_zero(1, 1));
    assert_null(mem_strdup("x"));
    assert_null(mem_aligned(16, 16));
    assert_null(mem_resize(blocks[0], 2, 1)); /* and the old block stays */
    assert_null(mem_reserve(4096));
    bool elsewhere = false; /* the limit is the calling thread's */
    pthread_t thread;
    pthread_create(&thread, NULL, allocate_elsewhere, &elsewhere);
    pthread_join(thread, NULL);
    assert_true(elsewhere);
    mem_fail_after(-1);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        assert_non_null(blocks[i]);
        mem_free(blocks[i]);
    }
}

static void reservations_are_zero_and_sparse(void **state) {
    size_t size = (size_t)1 << 36; /* far more than there is */
    uint8_t *block = mem_reserve(size);
    assert_non_null(block);
    for (size_t at = 0; at < size; at += size / 8) {
        assert_int_equal(block[at], 0);
        block[at] = 1;
    }
    mem_unreserve(block, size);
    mem_unreserve(NULL, 0);
}

/* Kilobytes that this process has locked. */
static long count_locked(void) {
    char line[256];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmLck: %ld", &n);
    if (f) fclose(f);
    return n;
}

static void reservations_can_be_locked(void **state) {
    enum { SIZE = 32 << 10 }; /* less than any usual limit */
    long before = count_locked();
    char *block = mem_reserve(SIZE);
    if (before < 0 || mem_lock(block, SIZE) < 0) skip();
    block[0] = 1;
    assert_int_equal(count_locked(), before + (SIZE >> 10));
    mem_unreserve(block, SIZE);
    assert_int_equal(count_locked(), before);
}

/* What /proc/self/numa_maps says of the mapping at block; "" when it says nothing. */
static void find_policy(const void *block, char *policy, size_t cap) {
    char line[4096];
    FILE *f = fopen("/proc/self/numa_maps", "r");
    policy[0] = 0;
    while (f && fgets(line, sizeof line, f))
        if (strtoull(line, NULL, 16) == (uintptr_t)block) snprintf(policy, cap, "%s", line);
    if (f) fclose(f);
}

static void reservations_are_interleaved(void **state) {
    enum { SIZE = 4 << 20 };
    char policy[4096];
    char *block = mem_reserve(SIZE);
    int n = mem_interleave(block, SIZE);
    for (size_t i = 0; i < SIZE; i += 4096) {
        assert_int_equal(block[i], 0);
        block[i] = 1;
    }
    find_policy(block, policy, sizeof policy);
    if (n > 1) assert_non_null(strstr(policy, "interleave"));
    if (n == 1) assert_null(strstr(policy, "interleave"));
    assert_true(n > 0 || n == ICP_EUNSUPPORTED);
    mem_unreserve(block, SIZE);
}

static void something_is_available(void **state) {
    size_t available = mem_available();
    assert_true(available > 1 << 20);
    assert_true(available < (size_t)1 << 50);
}

/* ---- arena ---- */

/* Blocks of random sizes, each filled with its own byte: none may touch another. */
static void arena_blocks_are_apart(void **state) {
    enum { MANY = 3000 };
    static struct {
        uint8_t *data;
        size_t size;
    } blocks[MANY];
    arena a;
    arena_init(&a);
    srand(2);
    size_t total = 0;
    for (int i = 0; i < MANY; i++) {
        int kind = rand() % 50;
        size_t size = kind == 0   ? (size_t)rand() % 200000
                      : kind < 10 ? (size_t)rand() % 5000
                                  : (size_t)rand() % 100;
        blocks[i].data = arena_alloc(&a, size);
        blocks[i].size = size;
        assert_non_null(blocks[i].data);
        assert_int_equal((uintptr_t)blocks[i].data % 16, 0);
        memset(blocks[i].data, i % 251, size);
        total += size;
        assert_true(a.used >= total);
    }
    for (int i = 0; i < MANY; i++)
        for (size_t k = 0; k < blocks[i].size; k++) assert_int_equal(blocks[i].data[k], i % 251);
    arena_fini(&a);
    assert_int_equal(a.used, 0);
    arena_fini(&a);
}

static void a_failed_arena_block_leaves_the_rest(void **state) {
    arena a;
    arena_init(&a);
    mem_fail_after(0);
    assert_null(arena_alloc(&a, 10));
    mem_fail_after(1);
    char *first = arena_alloc(&a, 10);
    assert_non_null(first);
    strcpy(first, "first");
    size_t used = a.used;
    assert_null(arena_alloc(&a, 1 << 20));
    assert_int_equal(a.used, used);
    char *second = arena_alloc(&a, 10); /* the current chunk still has room */
    assert_non_null(second);
    mem_fail_after(-1);
    strcpy(second, "second");
    assert_string_equal(first, "first");
    arena_fini(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_as_asked),
        cmocka_unit_test(sizes_that_overflow_fail),
        cmocka_unit_test(the_nth_allocation_fails),
        cmocka_unit_test(reservations_are_zero_and_sparse),
        cmocka_unit_test(reservations_can_be_locked),
        cmocka_unit_test(reservations_are_interleaved),
        cmocka_unit_test(something_is_available),
        cmocka_unit_test(arena_blocks_are_apart),
        cmocka_unit_test(a_failed_arena_block_leaves_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
