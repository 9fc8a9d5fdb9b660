/* What the kernel tells of the machine's processors and memory nodes, in /sys and /proc. Every file
 * may be missing or nonsense: then a processor is a core of its own, and there is one node. */
#include "base.h"
#include "base_internal.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 4096 };

/* Reads the first line of a file, or the one that begins with `key`, without key; "" when there is
 * none. */
static void read_line(char line[LINE], const char *key, const char *path_format, ...) {
    char path[LINE];
    va_list args;
    va_start(args, path_format);
    int n = vsnprintf(path, sizeof path, path_format, args);
    va_end(args);
    FILE *f = n < LINE ? fopen(path, "re") : NULL;
    bool found = false;
    while (f && !found && fgets(line, LINE, f)) found = !strncmp(line, key, strlen(key));
    if (f) fclose(f);
    if (!found)
        line[0] = 0;
    else
        memmove(line, line + strlen(key), strlen(line + strlen(key)) + 1);
}

/* A list of numbers as the kernel writes them, "0-3,8\n". False: it is not one. */
static bool parse_list(const char *text, cpu_set_t *out) {
    CPU_ZERO(out);
    text += strspn(text, " \t");
    do {
        char *end;
        long from = strtol(text, &end, 10), to = from;
        if (end == text) return false;
        if (*end == '-') {
            text = end + 1;
            to = strtol(text, &end, 10);
            if (end == text) return false;
        }
        if (from < 0 || to < from || to >= CPU_SETSIZE) return false;
        for (long i = from; i <= to; i++) CPU_SET((size_t)i, out);
        text = end;
    } while (*text++ == ',');
    return text[-1] == '\n' || text[-1] == 0;
}

/* ---- processors ------------------------------------------------------------------------------ */

typedef struct processor {
    int cpu;
    int nth;       /* of its core's, in the order of numbers */
    long capacity; /* how much it does, compared with others */
} processor;

static int compare(const void *a, const void *b) {
    const processor *x = a, *y = b;
    if (x->nth != y->nth) return x->nth - y->nth;
    if (x->capacity != y->capacity) return x->capacity > y->capacity ? -1 : 1;
    return x->cpu - y->cpu;
}

/* A core goes by its first processor. */
static int core_of(const char *root, int cpu) {
    char line[LINE];
    cpu_set_t siblings;
    read_line(line, "", "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, cpu);
    if (!parse_list(line, &siblings) || !CPU_ISSET((size_t)cpu, &siblings)) return cpu;
    int first = 0;
    while (!CPU_ISSET((size_t)first, &siblings)) first++;
    return first;
}

void topology_list_cpus(const char *root, const cpu_set_t *allowed, cpu_list *out) {
    processor list[CPU_SETSIZE];
    int of_core[CPU_SETSIZE] = {0};
    char line[LINE];
    *out = (cpu_list){0};
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, allowed)) continue;
        processor *p = &list[out->n++];
        read_line(line, "", "%s/sys/devices/system/cpu/cpu%d/cpu_capacity", root, cpu);
        *p = (processor){cpu, of_core[core_of(root, cpu)]++, strtol(line, NULL, 10)};
        if (p->nth == 0) out->n_cores++;
    }
    qsort(list, (size_t)out->n, sizeof *list, compare);
    for (int i = 0; i < out->n; i++) out->cpu[i] = list[i].cpu;
}

/* Whole processors that a cgroup's quota allows, "max 100000\n" or "150000 100000\n". */
static int parse_quota(const char *line) {
    long long quota, period;
    if (sscanf(line, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return INT_MAX;
    return (int)MIN(quota / period + (quota % period != 0), INT_MAX);
}

int topology_quota(const char *root) {
    char group[LINE], line[LINE];
    int least = INT_MAX;
    read_line(group, "0::", "%s/proc/self/cgroup", root);
    group[strcspn(group, "\n")] = 0;
    for (;;) { /* a group has no more than the groups it is in */
        read_line(line, "", "%s/sys/fs/cgroup%s/cpu.max", root, group);
        least = MIN(least, parse_quota(line));
        char *last = strrchr(group, '/');
        if (!last) return least;
        *last = 0;
    }
}

bool topology_own_cpus(cpu_list *out) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return false;
    topology_list_cpus("", &allowed, out);
    return true;
}

static int within_quota(int n) {
    return MAX(1, MIN(n, topology_quota("")));
}

int cpu_count(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return within_quota(CPU_COUNT(&allowed));
    return within_quota((int)sysconf(_SC_NPROCESSORS_ONLN));
}

int cpu_cores(void) {
    cpu_list list;
    return topology_own_cpus(&list) ? within_quota(list.n_cores) : cpu_count();
}

/* ---- memory ---------------------------------------------------------------------------------- */

int topology_list_nodes(const char *root, const cpu_set_t *allowed, cpu_set_t *out) {
    char line[LINE];
    cpu_set_t memory, cpus;
    CPU_ZERO(out);
    read_line(line, "Mems_allowed_list:", "%s/proc/self/status", root);
    if (!parse_list(line, &memory)) return 0;
    for (int node = 0; node < CPU_SETSIZE; node++) {
        if (!CPU_ISSET((size_t)node, &memory)) continue;
        read_line(line, "", "%s/sys/devices/system/node/node%d/cpulist", root, node);
        if (!parse_list(line, &cpus)) continue; /* it has none: other memory, or a device's */
        CPU_AND(&cpus, &cpus, allowed);
        if (CPU_COUNT(&cpus)) CPU_SET((size_t)node, out);
    }
    return CPU_COUNT(out);
}

int topology_own_nodes(cpu_set_t *out) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 0;
    return topology_list_nodes("", &allowed, out);
}
