/* Shared by the files of base only. */
#ifndef BASE_INTERNAL_H
#define BASE_INTERNAL_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* Writes text to out[cap], NUL-terminated, cut at a character, with control characters, line
 * separators, bidirectional overrides and invalid UTF-8 escaped. Returns the length. */
size_t base_escape(char *out, size_t cap, const char *text, size_t len);

/* ---- topology.c: `root` stands before /sys and /proc, for tests ---- */

typedef struct cpu_list {
    int n, n_cores;
    int cpu[CPU_SETSIZE]; /* one of each core first, fast cores before slow ones; then the others */
} cpu_list;
void topology_list_cpus(const char *root, const cpu_set_t *allowed, cpu_list *out);
/* Those that the calling thread may use. False: there are too many for a cpu_set_t. */
bool topology_own_cpus(cpu_list *out);
/* Processors that the quotas of the process's cgroup (v2) and of those around it allow, rounded up;
 * INT_MAX: any number. */
int topology_quota(const char *root);
/* Memory nodes that the process may use and that have processors among those allowed, as a set of
 * their numbers; returns how many. 0: not known. */
int topology_list_nodes(const char *root, const cpu_set_t *allowed, cpu_set_t *out);
int topology_own_nodes(cpu_set_t *out); /* with the calling thread's processors */

#endif
