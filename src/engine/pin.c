/* Pins: chains that stay open after their request, so that nothing of them is evicted.
 *
 * They are the last to go, not sacred: when a request cannot run beside them, the oldest yields. */
#include <math.h>

#include "engine_internal.h"

static void end(engine *e, pin **at) {
    pin *p = *at;
    *at = p->next;
    chain_close(&p->chain);
    tenant_put(e, p->tenant);
    ledger_give(e->ledger, sizeof *p);
    mem_free(p);
}

/* Whether what `old` pins is also pinned by `new`: all its full pages, no more tokens, and the same
 * state. */
static bool covers(const pin *new, const pin *old) {
    size_t n = chain_n_pages(old->chain), len = chain_len(old->chain), full = len / CACHE_PAGE;
    if (len > chain_len(new->chain) || old->state_at != new->state_at || n == 0) return n == 0;
    return full == 0 ||
           chain_page(new->chain, full - 1).index == chain_page(old->chain, full - 1).index;
}

void pin_add(engine *e, sequence *s) {
    if (!s->chain || chain_len(s->chain) == 0 || !s->request->space) return;
    if (!ledger_take(e->ledger, sizeof(pin), LEDGER_RUN)) return;
    pin *added = mem_zero(1, sizeof *added);
    if (!added) {
        ledger_give(e->ledger, sizeof *added);
        return;
    }
    chain_trim(s->chain);
    *added = (pin){.chain = s->chain,
                   .state_at = chain_keep_checkpoint(s->chain),
                   .tenant = s->request->tenant,
                   .until = clock_now() + s->request->opts.pin};
    s->chain = NULL;
    added->tenant->refs++;
    pin **at = &e->pins;
    while (*at)
        if ((*at)->tenant == added->tenant && covers(added, *at))
            end(e, at);
        else
            at = &(*at)->next;
    *at = added;
}

void pin_tick(engine *e, double now) {
    for (pin **at = &e->pins; *at;)
        if ((*at)->until <= now)
            end(e, at);
        else
            at = &(*at)->next;
}

double pin_next(const engine *e) {
    double next = INFINITY;
    for (const pin *p = e->pins; p; p = p->next) next = MIN(next, p->until);
    return next;
}

bool pin_yield(engine *e) {
    if (!e->pins) return false;
    end(e, &e->pins);
    e->stats.pins_yielded++;
    return true;
}

void pin_drop(engine *e, const tenant *t) {
    for (pin **at = &e->pins; *at;)
        if (!t || (*at)->tenant == t)
            end(e, at);
        else
            at = &(*at)->next;
}

size_t pin_count(const engine *e, const tenant *t, size_t *n_pages) {
    size_t n = 0;
    *n_pages = 0;
    for (const pin *p = e->pins; p; p = p->next) {
        if (t && p->tenant != t) continue;
        n++;
        *n_pages += chain_n_pages(p->chain);
    }
    return n;
}
