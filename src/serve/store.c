/* Kept responses.
 *
 *   bucket[hash(id)] ─▶ entry ─▶ entry          next_in_bucket
 *   oldest ⇄ entry ⇄ … ⇄ newest                 by the time they were kept
 *
 * Invariants: every entry is in one bucket and in the list; `size` is the sum of their sizes and at
 * most `limit`; the list is in the order of `until`, since all live equally long. */
#include <pthread.h>
#include <string.h>

#include "store.h"

enum { N_BUCKETS = 4096, SHARE = 8 /* an entry has at most 1/SHARE of the limit */ };

typedef struct entry {
    struct entry *next_in_bucket, *older, *newer;
    double until;
    size_t n_tenant, n_id, n_response, n_input, size;
    char text[]; /* tenant, id (both with their NUL), response, input */
} entry;

struct store {
    pthread_mutex_t lock;
    size_t limit, size;
    double ttl;
    entry *oldest, *newest;
    entry *bucket[N_BUCKETS];
};

/* FNV-1a; ids are ours and random, so nobody chooses where they go. */
static entry **bucket_of(store *s, const char *id) {
    uint32_t hash = 2166136261u;
    for (; *id; id++) hash = (hash ^ (unsigned char)*id) * 16777619u;
    return &s->bucket[hash % N_BUCKETS];
}

static const char *id_of(const entry *e) {
    return e->text + e->n_tenant;
}

static void forget(store *s, entry *e) {
    entry **at = bucket_of(s, id_of(e));
    while (*at != e) at = &(*at)->next_in_bucket;
    *at = e->next_in_bucket;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    s->size -= e->size;
    mem_free(e);
}

static entry *find(store *s, const char *tenant, const char *id) {
    while (s->oldest && s->oldest->until < clock_now()) forget(s, s->oldest);
    for (entry *e = *bucket_of(s, id); e; e = e->next_in_bucket)
        if (!strcmp(id_of(e), id) && !strcmp(e->text, tenant)) return e;
    return NULL;
}

static entry *make(const char *tenant, const char *id, const buf *response, const buf *input) {
    size_t n_tenant = strlen(tenant) + 1, n_id = strlen(id) + 1;
    size_t size = sizeof(entry) + n_tenant + n_id + response->len + input->len;
    entry *e = response->failed || input->failed ? NULL : mem_alloc(size);
    if (!e) return NULL;
    *e = (entry){.n_tenant = n_tenant,
                 .n_id = n_id,
                 .n_response = response->len,
                 .n_input = input->len,
                 .size = size};
    char *at = e->text;
    memcpy(at, tenant, n_tenant);
    memcpy(at += n_tenant, id, n_id);
    memcpy(at += n_id, response->data, response->len);
    memcpy(at + response->len, input->data, input->len);
    return e;
}

static void add(store *s, entry *e) {
    entry **at = bucket_of(s, id_of(e));
    e->next_in_bucket = *at;
    *at = e;
    e->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
    s->size += e->size;
    e->until = clock_now() + s->ttl;
}

bool store_put(store *s, const char *tenant, const char *id, const buf *response,
               const buf *input) {
    if (response->len + input->len > s->limit / SHARE) return false;
    entry *e = make(tenant, id, response, input);
    if (!e) return false;
    pthread_mutex_lock(&s->lock);
    while (s->oldest && s->size + e->size > s->limit) forget(s, s->oldest);
    add(s, e);
    pthread_mutex_unlock(&s->lock);
    return true;
}

bool store_get(store *s, const char *tenant, const char *id, buf *response, buf *input) {
    pthread_mutex_lock(&s->lock);
    entry *e = find(s, tenant, id);
    if (e) {
        const char *text = e->text + e->n_tenant + e->n_id;
        if (response) buf_put(response, text, e->n_response);
        if (input) buf_put(input, text + e->n_response, e->n_input);
    }
    pthread_mutex_unlock(&s->lock);
    return e && !(response && response->failed) && !(input && input->failed);
}

bool store_drop(store *s, const char *tenant, const char *id) {
    pthread_mutex_lock(&s->lock);
    entry *e = find(s, tenant, id);
    if (e) forget(s, e);
    pthread_mutex_unlock(&s->lock);
    return e;
}

int store_open(size_t limit, double ttl, store **out) {
    store *s = mem_zero(1, sizeof *s);
    if (!s) return ICP_ENOMEM;
    pthread_mutex_init(&s->lock, NULL);
    s->limit = limit;
    s->ttl = ttl;
    *out = s;
    return 0;
}

void store_close(store **ref) {
    store *s = *ref;
    if (!s) return;
    while (s->oldest) forget(s, s->oldest);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
    *ref = NULL;
}
