/* Pins: chains that stay open after their request, so that nothing of them is evicted.
 *
 * They are the last to go, not sacred: when a request cannot run beside them, the oldest yields.
 * Breakpoints are weaker pins, of a beginning of a prompt: they have a share of the pages, the
 * oldest of them go for new ones, and all of them before any request waits for pages. */
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
    if (new->tenant != old->tenant) return false;
    if (chain_n_behind(new->chain) > chain_n_behind(old->chain)) return false;
    if (len > chain_len(new->chain) || old->state_at != new->state_at || n == 0) return n == 0;
    return full == 0 ||
           chain_page(new->chain, full - 1).index == chain_page(old->chain, full - 1).index;
}

/* A pin says more of the same wish; a breakpoint takes nothing from what somebody pinned. */
static bool replaces(const pin *new, const pin *old) {
    bool longer = new->until >= old->until;
    return covers(new, old) && (old->breakpoint ? longer : !new->breakpoint);
}

static pin *create(engine *e, tenant *t, chain *ch, double until) {
    pin *made = ledger_take(e->ledger, sizeof *made, LEDGER_RUN) ? mem_zero(1, sizeof *made) : NULL;
    if (!made) return NULL;
    size_t state_at = chain_keep_checkpoint(ch);
    *made = (pin){.tenant = t, .chain = ch, .until = until, .state_at = state_at};
    made->n_pages = chain_n_pages(ch) - chain_n_behind(ch) + (state_at ? e->state_pages : 0);
    t->refs++;
    return made;
}

/* Puts it in the place of those that say less. */
static void append(engine *e, pin *made) {
    pin **at = &e->pins;
    while (*at)
        if (replaces(made, *at))
            end(e, at);
        else
            at = &(*at)->next;
    *at = made;
}

void pin_add(engine *e, sequence *s) {
    if (!s->chain || chain_len(s->chain) == 0 || !s->request->space) return;
    chain_trim(s->chain);
    chain_keep_prompt(s->chain);
    pin *made = create(e, s->request->tenant, s->chain, clock_now() + s->request->opts.pin);
    if (!made) return;
    s->chain = NULL;
    append(e, made);
}

/* ---- breakpoints ----------------------------------------------------------------------------- */

/* The oldest breakpoint's place, of a tenant (NULL: of all); or NULL. */
static pin **oldest(engine *e, const tenant *t) {
    for (pin **at = &e->pins; *at; at = &(*at)->next)
        if ((*at)->breakpoint && (!t || (*at)->tenant == t)) return at;
    return NULL;
}

/* Breakpoints, and their pages: those that several pin count several times. */
static size_t count(const engine *e, const tenant *t, size_t *n_pages) {
    size_t n = 0;
    *n_pages = 0;
    for (const pin *p = e->pins; p; p = p->next) {
        if (!p->breakpoint || (t && p->tenant != t)) continue;
        n++;
        *n_pages += p->n_pages;
    }
    return n;
}

/* Ends the oldest ones until there is room for one more of so many pages. */
static bool make_room(engine *e, const tenant *t, size_t n_pages) {
    size_t n, held, most = e->n_pages / ENGINE_BREAKPOINT_SHARE;
    size_t share = e->quota == SIZE_MAX ? most : MIN(most, e->quota / ENGINE_BREAKPOINT_SHARE);
    if (n_pages > share) return false;
    while (count(e, t, &held) > 0 && held > share - n_pages) end(e, oldest(e, t));
    while ((n = count(e, NULL, &held)) > 0 && (held > most - n_pages || n >= ENGINE_BREAKPOINTS))
        end(e, oldest(e, NULL));
    return true;
}

static bool is_covered(const engine *e, const pin *made) {
    for (const pin *p = e->pins; p; p = p->next)
        if (p->until >= made->until && covers(p, made)) return true;
    return false;
}

static void hold(engine *e, sequence *s, size_t n, double until) {
    chain *ch;
    if (chain_open_on(s->chain, n, until, &ch) < 0) return;
    pin *made = chain_n_pages(ch) ? create(e, s->request->tenant, ch, until) : NULL;
    if (!made) {
        chain_close(&ch);
        return;
    }
    made->breakpoint = true;
    if (!is_covered(e, made) && make_room(e, made->tenant, made->n_pages))
        append(e, made);
    else
        end(e, &made);
}

void pin_add_breakpoints(engine *e, sequence *s) {
    const icp_request_opts *o = &s->request->opts;
    double now = clock_now();
    if (!s->chain || !s->request->space) return;
    for (size_t i = o->n_marks; i-- > 0;)
        if (o->marks[i].ttl > 0 && o->marks[i].position >= CACHE_PAGE)
            hold(e, s, o->marks[i].position, now + o->marks[i].ttl);
}

bool pin_yield_breakpoint(engine *e, const tenant *t) {
    pin **at = oldest(e, t);
    if (!at) return false;
    end(e, at);
    e->stats.pins_yielded++;
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

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
    if (pin_yield_breakpoint(e, NULL)) return true;
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
        *n_pages += chain_n_pages(p->chain) - chain_n_behind(p->chain);
    }
    return n;
}
