/* The order of the queue. The rules' numbers are those of schedule.h. */
#include "schedule.h"

static bool overdue(const sched_wait *w) {
    return w->bypassed >= SCHED_BYPASS;
}

static int best_priority(const sched_wait *waiting, int n) {
    int best = waiting[0].priority;
    for (int i = 1; i < n; i++) best = MIN(best, waiting[i].priority);
    return best;
}

/* Which tenants wait at this priority, and for each the one that must go first, if any. [P4] */
static void look(const sched_wait *waiting, int n, int priority, sched_tenant *tenants,
                 int n_tenants) {
    for (int t = 0; t < n_tenants; t++) {
        tenants[t].waits = false;
        tenants[t].overdue = -1;
    }
    for (int i = 0; i < n; i++) {
        sched_tenant *t = &tenants[waiting[i].tenant];
        if (waiting[i].priority != priority) continue;
        t->waits = true;
        if (t->overdue < 0 && overdue(&waiting[i])) t->overdue = i;
    }
}

/* Raises credits until a tenant that waits has some: as many rounds as that takes, at once. [P2] */
static void refill(sched_tenant *tenants, int n_tenants) {
    int64_t rounds = INT64_MAX;
    for (int t = 0; t < n_tenants; t++)
        if (tenants[t].waits)
            rounds =
                MIN(rounds, tenants[t].credit > 0 ? 0 : -tenants[t].credit / SCHED_QUANTUM + 1);
    for (int t = 0; t < n_tenants; t++)
        if (tenants[t].waits && rounds > 0) tenants[t].credit += rounds * SCHED_QUANTUM;
}

int sched_pick(const sched_wait *waiting, int n, sched_tenant *tenants, int n_tenants) {
    int priority = best_priority(waiting, n), best = -1;
    look(waiting, n, priority, tenants, n_tenants);
    refill(tenants, n_tenants);
    for (int i = 0; i < n; i++) {
        const sched_tenant *t = &tenants[waiting[i].tenant];
        if (waiting[i].priority != priority || t->credit <= 0) continue;
        if (t->overdue >= 0 && t->overdue != i) continue;
        if (best < 0 || waiting[i].n_hit > waiting[best].n_hit) best = i; /* [P3] */
    }
    return best;
}

void sched_admitted(sched_wait *waiting, int n, int picked, sched_tenant *tenants) {
    const sched_wait *w = &waiting[picked];
    tenants[w->tenant].credit -= (int64_t)(w->n_tokens - MIN(w->n_hit, w->n_tokens));
    for (int i = 0; i < picked; i++)
        if (waiting[i].tenant == w->tenant && waiting[i].priority == w->priority)
            waiting[i].bypassed++;
}
