/* The rival: what a cache of the same size would hold now that evicts the least recently used page.
 * Whatever the policy is, it is measured against that one while it runs, and gives way to it where
 * it finds less.
 *
 *            oldest                            newest
 *   n_used   |  3  |  0  | 12  |  5  | ...     |  7  |     pages by their last use, a bin for
 *            `------------ n pages ------------------'     `width` ticks of the clock
 *
 * Of the pages that no chain has, the rival holds those that were used last, as many as there is
 * room for. So it is enough to know how many pages were used last at what time, of those that are
 * there and those that are gone: a page that is asked for says itself, or its ghost does, when it
 * was used last, and so whether the rival has it. What the oldest bin loses are its pages farthest
 * from the root, for chains ask from the root on.
 *
 * A page whose ghost was forgotten before the rival would have evicted it counts as new to both. */
#include <string.h>

#include "cache_internal.h"

/* Ahead by one in so many of the pages that are asked for, the rival is followed. This is what a
 * policy may lose, and what it has to try whether it wins again: it keeps a loss within one in a
 * hundred, a fifth of which is for the time that it takes until the cache holds what the rival
 * does. What it won once pays for no more than that. */
enum { GRANTED = 125 };
enum {
    MEMORY = 64
}; /* what was counts for half when so many times the cache's pages are asked for */

static uint32_t *bin_at(rival *r, uint64_t number) {
    return &r->n_used[number % RIVAL_BINS];
}

/* No more than its room: what no chain has, or would not have. */
static void fit(cache *c) {
    rival *r = &c->rival;
    size_t room = c->n_in[PAGE_FREE] + c->n_in[PAGE_IDLE] - c->n_hollow[PAGE_IDLE];
    for (;; r->oldest++) {
        uint32_t *n = bin_at(r, r->oldest);
        uint32_t gone = r->n > room ? (uint32_t)MIN(*n, r->n - room) : 0;
        r->n -= gone;
        *n -= gone;
        if (*n > 0 || r->oldest == r->newest) break;
    }
}

/* Every two bins become one. */
static void widen(rival *r) {
    uint32_t before[RIVAL_BINS];
    memcpy(before, r->n_used, sizeof before);
    memset(r->n_used, 0, sizeof r->n_used);
    for (uint64_t i = r->oldest; i <= r->newest; i++) *bin_at(r, i / 2) += before[i % RIVAL_BINS];
    r->oldest /= 2;
    r->newest /= 2;
    r->width *= 2;
}

/* Every bin becomes two, of equal numbers, for nobody knows better. */
static void narrow(rival *r, uint64_t now) {
    uint32_t before[RIVAL_BINS];
    uint64_t oldest = r->oldest, newest = r->newest;
    memcpy(before, r->n_used, sizeof before);
    memset(r->n_used, 0, sizeof r->n_used);
    r->width /= 2;
    r->oldest *= 2;
    r->newest = now / r->width;
    for (uint64_t i = oldest; i <= newest; i++) {
        uint32_t n = before[i % RIVAL_BINS];
        *bin_at(r, 2 * i) += n / 2;
        *bin_at(r, MIN(2 * i + 1, r->newest)) += n - n / 2;
    }
}

static void fade(cache *c) {
    rival *r = &c->rival;
    if (++r->asked < 2.0 * MEMORY * (double)c->n_pages) return;
    r->asked /= 2;
    r->ahead /= 2;
}

void rival_use(cache *c) {
    rival *r = &c->rival;
    while (c->clock / r->width >= r->oldest + RIVAL_BINS) widen(r);
    r->newest = c->clock / r->width;
    if (r->width > 1 && r->newest - r->oldest < RIVAL_BINS / 8) narrow(r, c->clock);
    ++*bin_at(r, r->newest);
    r->n++;
    fit(c);
    fade(c);
}

bool rival_take(cache *c, uint64_t used) {
    rival *r = &c->rival;
    uint64_t number = used / r->width;
    if (number < r->oldest || *bin_at(r, number) == 0) return false;
    --*bin_at(r, number);
    r->n--;
    return true;
}

void rival_count(cache *c, bool found, bool rival_found) {
    rival *r = &c->rival;
    r->ahead = MAX(r->ahead + rival_found - found, -r->asked / GRANTED);
}

bool rival_leads(const cache *c) {
    return c->rival.ahead > c->rival.asked / GRANTED;
}
