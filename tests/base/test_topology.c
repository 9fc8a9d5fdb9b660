/* Cores, quotas and memory nodes, as read from trees of files that machines have, or should not. */
#include "cmocka_tests.h"

#include "base.h"
#include "base_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/incipit-topology-XXXXXX";

static int new_tree(void **state) {
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_tree(void **state) {
    char command[256];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

/* Writes a file of the tree, with the folders it lies in. */
static void write_file(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(full, 0700);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void write_siblings(int cpu, const char *list) {
    char path[128];
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    write_file(path, list);
}

static void write_capacity(int cpu, const char *capacity) {
    char path[128];
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/cpu_capacity", cpu);
    write_file(path, capacity);
}

static void write_node(int node, const char *cpus) {
    char path[128];
    snprintf(path, sizeof path, "sys/devices/system/node/node%d/cpulist", node);
    write_file(path, cpus);
}

/* The numbers from `from` to `to`. */
static cpu_set_t range(int from, int to) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = from; i <= to; i++) CPU_SET((size_t)i, &set);
    return set;
}

/* Of `allowed`: n_cores, and all of them in this order. */
static void check_cpus(cpu_set_t allowed, int n_cores, const char *order) {
    cpu_list list;
    buf text = {0};
    topology_list_cpus(root, &allowed, &list);
    for (int i = 0; i < list.n; i++) buf_printf(&text, "%s%d", i ? " " : "", list.cpu[i]);
    assert_string_equal(text.data, order);
    assert_int_equal(list.n_cores, n_cores);
    buf_fini(&text);
}

static void no_files(void **state) {
    cpu_set_t all = range(0, 3), nodes;
    check_cpus(all, 4, "0 1 2 3");
    assert_int_equal(topology_quota(root), INT_MAX);
    assert_int_equal(topology_list_nodes(root, &all, &nodes), 0);
}

/* As Intel numbers them (all first threads, then all second ones), and as virtual machines do. */
static void two_threads_a_core(void **state) {
    for (int i = 0; i < 8; i++) {
        char list[16];
        snprintf(list, sizeof list, "%d,%d\n", i % 4, i % 4 + 4);
        write_siblings(i, list);
    }
    check_cpus(range(0, 7), 4, "0 1 2 3 4 5 6 7");
    for (int i = 0; i < 8; i++) {
        char list[16];
        snprintf(list, sizeof list, "%d-%d\n", i / 2 * 2, i / 2 * 2 + 1);
        write_siblings(i, list);
    }
    check_cpus(range(0, 7), 4, "0 2 4 6 1 3 5 7");
    check_cpus(range(3, 6), 3, "3 4 6 5"); /* a container's: one of a core's two counts as one */
    check_cpus(range(2, 3), 1, "2 3");
    check_cpus(range(7, 7), 1, "7");
}

/* Two fast cores of two threads and four slow ones; then little ones first, as ARM has them. */
static void fast_and_slow_cores(void **state) {
    static const char *const siblings[] = {"0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"};
    for (int i = 0; i < 8; i++) write_siblings(i, siblings[i]);
    check_cpus(range(0, 7), 6, "0 2 4 5 6 7 1 3");
    for (int i = 0; i < 8; i++) write_capacity(i, i < 4 ? "446\n" : i < 7 ? "871\n" : "1024\n");
    check_cpus(range(0, 7), 6, "7 4 5 6 0 2 1 3");
}

/* 2 and 6 are off: they have no topology, their siblings have none. */
static void processors_that_are_off(void **state) {
    static const char *const siblings[] = {"0,4", "1,5", NULL, "3,7", "0,4", "1,5", NULL, "3,7"};
    cpu_set_t on = range(0, 7);
    for (int i = 0; i < 8; i++) {
        if (siblings[i]) write_siblings(i, siblings[i]);
        if (!siblings[i]) CPU_CLR((size_t)i, &on);
    }
    check_cpus(on, 3, "0 1 3 4 5 7");
}

static void nonsense_makes_cores(void **state) {
    static const char *const lists[] = {"",     "\n",   "x",  "0-",    "0-99999999999",
                                        "5-0",  "0,,1", "-1", "0-1 2", "1,2", /* not itself */
                                        "1025", "0;10"};
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        write_siblings(0, lists[i]);
        write_siblings(1, "0-1\n");
        write_capacity(0, lists[i]);
        cpu_list list;
        cpu_set_t two = range(0, 1);
        topology_list_cpus(root, &two, &list);
        assert_int_equal(list.n, 2);
        assert_in_range(list.n_cores, 1, 2);
        check_cpus(range(0, 0), 1, "0");
    }
}

static void quotas(void **state) {
    write_file("proc/self/cgroup", "4:memory:/x\n0::/a/b\n");
    assert_int_equal(topology_quota(root), INT_MAX);
    write_file("sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(topology_quota(root), INT_MAX);
    write_file("sys/fs/cgroup/a/cpu.max", "350000 100000\n");
    assert_int_equal(topology_quota(root), 4);
    write_file("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"); /* more than its parent has */
    assert_int_equal(topology_quota(root), 4);
    write_file("sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
    assert_int_equal(topology_quota(root), 1);
    write_file("proc/self/cgroup", "0::/\n"); /* a container's */
    assert_int_equal(topology_quota(root), INT_MAX);
    write_file("sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(topology_quota(root), 2);
    write_file("proc/self/cgroup", "0::/../other\n");
    assert_int_equal(topology_quota(root), 2);
}

static void nonsense_is_no_quota(void **state) {
    static const char *const lines[] = {"",         "x",        "-1 100000", "100000",
                                        "100000 0", "0 100000", "max"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        write_file("sys/fs/cgroup/cpu.max", lines[i]);
        assert_int_equal(topology_quota(root), INT_MAX);
    }
    write_file("sys/fs/cgroup/cpu.max", "99999999999999 1\n");
    assert_int_equal(topology_quota(root), INT_MAX);
}

static void check_nodes(cpu_set_t allowed, int n, cpu_set_t expected) {
    cpu_set_t nodes;
    assert_int_equal(topology_list_nodes(root, &allowed, &nodes), n);
    assert_true(CPU_EQUAL(&nodes, &expected));
}

static void memory_nodes(void **state) {
    write_file("proc/self/status", "Name:\tx\nMems_allowed:\tf\nMems_allowed_list:\t0-3\n");
    write_node(0, "0-3,8-11\n");
    write_node(1, "4-7,12-15\n");
    write_node(2, "\n"); /* memory without processors */
    check_nodes(range(0, 15), 2, range(0, 1));
    check_nodes(range(4, 6), 1, range(1, 1)); /* bound to one node's processors */
    check_nodes(range(16, 17), 0, range(1, 0));
    write_node(3, "16-19\n");
    check_nodes(range(4, 16), 3, (cpu_set_t){.__bits = {1 | 2 | 8}});
    write_file("proc/self/status", "Mems_allowed_list:\t1\n"); /* a container's */
    check_nodes(range(0, 19), 1, range(1, 1));
    write_file("proc/self/status", "Mems_allowed_list:\tall\n");
    check_nodes(range(0, 19), 0, range(1, 0));
}

/* Of the machine that runs this. */
static void this_machine(void **state) {
    cpu_list list;
    cpu_set_t nodes;
    assert_true(topology_own_cpus(&list));
    assert_in_range(list.n_cores, 1, list.n);
    assert_in_range(cpu_cores(), 1, list.n_cores);
    assert_true(cpu_cores() <= cpu_count());
    assert_true(topology_own_nodes(&nodes) >= 0);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, new_tree, remove_tree)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TREE(no_files),
        IN_TREE(two_threads_a_core),
        IN_TREE(fast_and_slow_cores),
        IN_TREE(processors_that_are_off),
        IN_TREE(nonsense_makes_cores),
        IN_TREE(quotas),
        IN_TREE(nonsense_is_no_quota),
        IN_TREE(memory_nodes),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
