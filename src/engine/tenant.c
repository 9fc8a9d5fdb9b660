/* Tenants, their namespaces, and what all of them share.
 *
 *   owner "tenant"  ─┬─ [model][plain][salt]           what the tenant alone can find
 *                    └─ [model][public i][salt]  ──▶   the same, for prompts that begin with
 *   nobody          ─── [model][itself][i]             public prefix i: its pages come first
 *
 * [model] is what decides keys and values: weights, adapters with their scales, the format.
 *
 * Which namespace a prompt belongs to depends on the prompt alone, and public pages are always
 * there: so nothing that a tenant can measure depends on what another one did. */
#include <string.h>

#include "engine_internal.h"

/* ---- tenants --------------------------------------------------------------------------------- */

static size_t cost(const char *name) {
    enum { BLOCK = 16 };
    return sizeof(tenant) + strlen(name) + 1 + BLOCK;
}

tenant *tenant_find(const engine *e, const char *name) {
    tenant *t = e->first_tenant;
    while (t && strcmp(t->name, name) != 0) t = t->next;
    return t;
}

/* The last slot's tenant moves into the one that becomes free. */
static void forget(engine *e, tenant *t) {
    tenant **at = &e->first_tenant;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    int last = --e->n_tenants;
    for (tenant *other = e->first_tenant; other; other = other->next) {
        if (other->slot != last) continue;
        e->tenants[t->slot] = e->tenants[last];
        other->slot = t->slot;
    }
    cache_owner_put(e->cache, &t->owner);
    ledger_give(e->ledger, cost(t->name));
    mem_free(t);
}

/* Debts are remembered as long as there is room for that. */
static bool forget_idle(engine *e) {
    tenant *idle = NULL;
    for (tenant *t = e->first_tenant; t; t = t->next)
        if (t->refs == 0) idle = t; /* the one that came first */
    if (idle) forget(e, idle);
    return idle;
}

static int make(engine *e, const char *name, tenant **out) {
    if (e->n_tenants == ENGINE_TENANTS && !forget_idle(e)) return ICP_EAGAIN;
    size_t size = cost(name);
    if (!ledger_take(e->ledger, size, LEDGER_RUN)) return ICP_EAGAIN;
    tenant *t = mem_zero(1, size);
    int rc = t ? cache_owner_get(e->cache, name, strlen(name), e->quota, &t->owner) : ICP_ENOMEM;
    if (rc < 0) {
        ledger_give(e->ledger, size);
        mem_free(t);
        return rc;
    }
    strcpy(t->name, name);
    t->slot = e->n_tenants++;
    e->tenants[t->slot] = (sched_tenant){0};
    t->next = e->first_tenant;
    e->first_tenant = t;
    *out = t;
    return 0;
}

int tenant_get(engine *e, const char *name, tenant **out) {
    *out = tenant_find(e, name);
    if (!*out) TRY(make(e, name, out));
    (*out)->refs++;
    return 0;
}

void tenant_put(engine *e, tenant *t) {
    if (t) t->refs--;
}

void tenant_fini(engine *e) {
    while (e->first_tenant) forget(e, e->first_tenant);
}

/* ---- namespaces ------------------------------------------------------------------------------ */

static void put_field(buf *key, const void *data, size_t len) {
    uint64_t n = len; /* the length first: no two lists of fields give the same key */
    buf_put(key, &n, sizeof n);
    buf_put(key, data, len);
}

enum space_kind { SPACE_PLAIN, SPACE_ON_PUBLIC, SPACE_PUBLIC };

typedef struct space_head { /* of a key: what the model computes, how it is stored, what it is on */
    uint8_t fingerprint[16], adapters[16];
    size_t page_size; /* tells f16 from f32 */
    uint64_t kind, index;
} space_head;

static int open_space(engine *e, request *r, cache_owner *owner, enum space_kind kind, size_t index,
                      const chain *base, const char *salt) {
    const model_info *info = model_get_info(e->model);
    space_head head;
    memset(&head, 0, sizeof head);
    memcpy(head.fingerprint, info->fingerprint, sizeof head.fingerprint);
    memcpy(head.adapters, r->adapters, sizeof head.adapters);
    head.page_size = info->page_size;
    head.kind = kind;
    head.index = index;
    buf key = {0};
    put_field(&key, &head, sizeof head);
    put_field(&key, salt, strlen(salt));
    int rc = key.failed ? ICP_ENOMEM
                        : cache_space_get_on(e->cache, owner, base, key.data, key.len, &r->space);
    buf_fini(&key);
    return rc;
}

const char *tenant_salt(const void *key, size_t len, size_t *n) {
    size_t skip = sizeof(uint64_t) + sizeof(space_head) + sizeof(uint64_t);
    *n = len - skip;
    return (const char *)key + skip;
}

bool tenant_same_adapters(const void *key, const request *r) {
    space_head head;
    memcpy(&head, (const char *)key + sizeof(uint64_t), sizeof head);
    return !memcmp(head.adapters, r->adapters, sizeof head.adapters);
}

static size_t count_publics(const engine *e) {
    size_t n = 0;
    for (const public_prefix *p = e->publics; p; p = p->next) n++;
    return n;
}

static int open_own_space(engine *e, request *r) {
    const icp_request_opts *opts = &r->opts;
    const public_prefix *best = NULL;
    size_t index = count_publics(e), best_index = 0, limit = r->seq[0].hit_limit;
    for (const public_prefix *p = e->publics; p; p = p->next) { /* the newest first */
        index--;
        if (p->n > limit || (best && best->n >= p->n)) continue;
        if (memcmp(p->adapters, r->adapters, sizeof p->adapters) != 0) continue;
        if (memcmp(p->tokens, opts->prompt, p->n * sizeof *p->tokens) != 0) continue;
        best = p;
        best_index = index;
    }
    return open_space(e, r, r->tenant->owner, best ? SPACE_ON_PUBLIC : SPACE_PLAIN, best_index,
                      best ? best->chain : NULL, opts->salt);
}

/* ---- public prefixes ------------------------------------------------------------------------- */

int public_add(engine *e, request *r, chain **ch) {
    size_t n = chain_len(*ch) / CACHE_PAGE * CACHE_PAGE;
    if (e->states && chain_keep_checkpoint(*ch) != n) return ICP_ELIMIT;
    public_prefix *p = mem_alloc(sizeof *p + n * sizeof *p->tokens);
    if (!p) return ICP_ENOMEM;
    *p = (public_prefix){.next = e->publics, .n = n, .space = r->space, .chain = *ch};
    memcpy(p->adapters, r->adapters, sizeof p->adapters);
    memcpy(p->tokens, r->opts.prompt, n * sizeof *p->tokens);
    r->space = NULL;
    *ch = NULL;
    chain_trim(p->chain);
    e->publics = p;
    size_t behind = chain_n_behind(p->chain) * CACHE_PAGE;
    cache_stats s;
    cache_get_stats(e->cache, &s);
    e->public_pages += chain_n_pages(p->chain) - chain_n_behind(p->chain);
    size_t longest = cache_longest(e->cache, s.n_pages - MIN(e->public_pages, s.n_pages));
    e->limits.cache_tokens = longest - MIN(behind, longest);
    return 0;
}

size_t public_common(const engine *e, const request *r, const public_prefix **prefix) {
    const int32_t *tokens = r->opts.prompt;
    size_t longest = 0, n = r->opts.n_prompt;
    for (const public_prefix *p = e->publics; p; p = p->next) {
        size_t same = 0;
        if (memcmp(p->adapters, r->adapters, sizeof p->adapters) != 0) continue;
        while (same < MIN(n, p->n) && tokens[same] == p->tokens[same]) same++;
        if (same <= longest) continue;
        longest = same;
        *prefix = p;
    }
    return longest;
}

void public_fini(engine *e) {
    for (public_prefix *p; (p = e->publics);) {
        e->publics = p->next;
        chain_close(&p->chain);
        cache_space_put(e->cache, &p->space);
        mem_free(p);
    }
}

static int share_space(engine *e, request *r) {
    return open_space(e, r, NULL, SPACE_PUBLIC, count_publics(e), NULL, "");
}

int request_open_space(engine *e, request *r) {
    TRY(tenant_get(e, r->opts.tenant, &r->tenant));
    if (r->public) return share_space(e, r);
    if (r->opts.no_cache || e->no_cache) return 0;
    return open_own_space(e, r);
}
