/* Worker threads: a queue of calls whose bodies wait to be parsed.
 *
 *   first ─▶ call ─▶ call ◀─ last      linked by call.next_work; workers take from `first` */
#include <stdio.h>

#include "serve_internal.h"

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t some;
    call *first, *last;
    bool closing;
    int n;
    pthread_t thread[];
};

static call *take(workers *w) {
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->closing) pthread_cond_wait(&w->some, &w->lock);
    call *c = w->first;
    if (c) w->first = c->next_work;
    pthread_mutex_unlock(&w->lock);
    return c;
}

static void *run(void *arg) {
    workers *w = arg;
    for (call *c; (c = take(w));) call_work(c);
    return NULL;
}

void workers_add(workers *w, call *c) {
    pthread_mutex_lock(&w->lock);
    c->next_work = NULL;
    if (w->first)
        w->last->next_work = c;
    else
        w->first = c;
    w->last = c;
    pthread_cond_signal(&w->some);
    pthread_mutex_unlock(&w->lock);
}

int workers_open(int n, workers **out) {
    workers *w = mem_zero(1, sizeof *w + (size_t)n * sizeof w->thread[0]);
    if (!w) return ICP_ENOMEM;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->some, NULL);
    for (; w->n < n; w->n++) {
        if (pthread_create(&w->thread[w->n], NULL, run, w) != 0) {
            workers_close(&w);
            return ICP_ENOMEM;
        }
        char name[16];
        snprintf(name, sizeof name, "icp-work-%d", w->n);
        pthread_setname_np(w->thread[w->n], name);
    }
    *out = w;
    return 0;
}

void workers_close(workers **ref) {
    workers *w = *ref;
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->some);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n; i++) pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->some);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
    *ref = NULL;
}
