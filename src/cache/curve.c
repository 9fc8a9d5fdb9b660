/* The miss-ratio curve: what share of the pages that prompts ask for a cache of another size would
 * have found, if it evicted the least recently used.
 *
 * Such a cache of n pages finds what is among the n that were used last. So it would take a list of
 * all pages by last use, those that are long gone as well; a random few of them are enough:
 * fixed-size SHARDS (Waldspurger, Park, Garthwaite and Ahmad: Efficient MRC construction with
 * SHARDS, FAST 2015). A page is followed if its fingerprint is below a threshold, which falls when
 * there are too many, so that the share that is followed, the rate, is known. A place among the
 * followed, divided by the rate, estimates the place among all; a followed page that is asked for
 * stands for 1 / rate of them.
 *
 *   samples   a treap by fingerprint          slots     |  | a |  | c | b |  |   by last use, the
 *               a  b  c                       sums      a Fenwick tree over them    oldest first
 *
 * Each sample has a slot, each use takes it to a new one after all others, and when the slots are
 * used up, the samples close ranks. Numbers count for half when twice `window` pages were asked
 * for since, so that the curve follows what is asked now. */
#include <string.h>

#include "cache_internal.h"

enum { LEAST_WINDOW = 4096, WINDOW = 128 /* times the pages of the cache */ };
static const double scales[CACHE_CURVE_SIZES] = CACHE_CURVE_SCALES;

typedef struct sample {
    treap_link link;
    uint64_t print;
    uint32_t slot;
    uint32_t next_free; /* index + 1 */
} sample;

struct curve {
    size_t n_pages; /* of the cache */
    size_t n, most; /* samples */
    uint64_t threshold;
    treap_link *root;
    sample *samples;
    uint32_t free; /* index + 1 of a sample */
    uint32_t n_slots, next_slot;
    uint32_t *slots; /* index + 1 of a sample, or 0 */
    uint32_t *sums;  /* sums[i], from 1: of the lowest-bit-of-i slots that end with slot i - 1 */
    /* What was asked for, in pages: of all of them, and what the followed ones stand for. */
    double asked, hits;
    double followed, followed_hits;
    double found[CACHE_CURVE_SIZES]; /* of the latter, with other sizes */
};

static sample *sample_of(treap_link *link) {
    return link ? (sample *)((char *)link - offsetof(sample, link)) : NULL;
}

static int by_print(const void *key, const treap_link *item) {
    uint64_t a = *(const uint64_t *)key, b = sample_of((treap_link *)item)->print;
    return a == b ? 0 : a < b ? -1 : 1;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static void add(curve *c, uint32_t slot, uint32_t n) {
    for (uint32_t i = slot + 1; i <= c->n_slots; i += i & -i) c->sums[i] += n; /* n: 1 or -1 */
}

/* Samples in slots up to this one. */
static uint32_t count_to(const curve *c, uint32_t slot) {
    uint32_t sum = 0;
    for (uint32_t i = slot + 1; i > 0; i -= i & -i) sum += c->sums[i];
    return sum;
}

static void put(curve *c, sample *s) {
    s->slot = c->next_slot++;
    c->slots[s->slot] = (uint32_t)(s - c->samples) + 1;
    add(c, s->slot, 1);
}

static void take(curve *c, const sample *s) {
    c->slots[s->slot] = 0;
    add(c, s->slot, (uint32_t)-1);
}

static void close_ranks(curve *c) {
    uint32_t end = c->next_slot;
    c->next_slot = 0;
    memset(c->sums, 0, (c->n_slots + 1) * sizeof *c->sums);
    for (uint32_t i = 0; i < end; i++) {
        uint32_t at = c->slots[i];
        c->slots[i] = 0;
        if (at) put(c, &c->samples[at - 1]);
    }
}

/* ---- samples --------------------------------------------------------------------------------- */

static double rate(const curve *c) {
    return (double)c->threshold / 0x1p64;
}

static sample *find(const curve *c, uint64_t print) {
    treap_link *below, *above;
    return sample_of(treap_seek(c->root, &print, by_print, &below, &above));
}

static void drop(curve *c, sample *s) {
    take(c, s);
    treap_remove(&c->root, &s->link, &s->print, by_print);
    s->next_free = c->free;
    c->free = (uint32_t)(s - c->samples) + 1;
    c->n--;
}

/* Too many: the threshold falls to the highest fingerprint, which goes. */
static void lower_threshold(curve *c) {
    uint64_t end = UINT64_MAX;
    sample *highest = sample_of(treap_below(c->root, &end, by_print));
    c->threshold = highest->print;
    drop(c, highest);
}

static void follow(curve *c, uint64_t print) {
    if (!c->free) lower_threshold(c);
    if (print >= c->threshold) return;
    sample *s = &c->samples[c->free - 1];
    c->free = s->next_free;
    s->print = print;
    s->link.priority = (uint32_t)print; /* the low bits: where it stands, the high ones tell */
    treap_insert(&c->root, &s->link, &s->print, by_print);
    put(c, s);
    c->n++;
}

void curve_use(curve *c, uint64_t print) {
    if (!c || print >= c->threshold) return;
    if (c->next_slot == c->n_slots) close_ranks(c);
    sample *s = find(c, print);
    if (!s) {
        follow(c, print);
        return;
    }
    take(c, s);
    put(c, s);
}

void curve_forget(curve *c, uint64_t print) {
    if (!c || print >= c->threshold) return;
    sample *s = find(c, print);
    if (s) drop(c, s);
}

/* ---- counting -------------------------------------------------------------------------------- */

static void fade(curve *c) {
    double window = MAX((double)LEAST_WINDOW, (double)c->n_pages * WINDOW);
    if (c->asked < 2 * window) return;
    c->asked /= 2;
    c->hits /= 2;
    c->followed /= 2;
    c->followed_hits /= 2;
    for (int i = 0; i < CACHE_CURVE_SIZES; i++) c->found[i] /= 2;
}

void curve_ask(curve *c, uint64_t print, bool hit) {
    if (!c) return;
    fade(c);
    c->asked++;
    c->hits += hit;
    if (print >= c->threshold) return;
    double weight = 1 / rate(c);
    c->followed += weight;
    c->followed_hits += hit ? weight : 0;
    const sample *s = find(c, print);
    if (!s) return;
    double place = (double)(c->n - count_to(c, s->slot) + 1) * weight;
    for (int i = 0; i < CACHE_CURVE_SIZES; i++)
        if (place <= scales[i] * (double)c->n_pages) c->found[i] += weight;
}

/* The hits of this cache are known of all pages: only the differences to them are estimated. Else a
 * page that everybody asks for would count much too much, or not at all. */
void curve_read(const curve *c, cache_curve *out) {
    *out = (cache_curve){0};
    if (!c || c->asked == 0) return;
    out->asked = c->asked;
    double now = c->hits / c->asked;
    for (int i = 0; i < CACHE_CURVE_SIZES; i++) {
        double more = c->followed > 0 ? (c->found[i] - c->followed_hits) / c->followed : 0;
        out->found[i] = MIN(MAX(now + more, 0.0), 1.0);
    }
}

void curve_resize(curve *c, size_t n_pages) {
    if (!c || c->n_pages == n_pages) return;
    c->n_pages = n_pages;
    c->asked = c->hits = c->followed = c->followed_hits = 0;
    memset(c->found, 0, sizeof c->found);
}

/* ---- life ------------------------------------------------------------------------------------ */

size_t curve_size(size_t n) {
    size_t slots = 2 * n;
    return n ? sizeof(curve) + n * sizeof(sample) + (2 * slots + 1) * sizeof(uint32_t) +
                   4 * BLOCK_COST
             : 0;
}

int curve_open(size_t n, size_t n_pages, curve **out) {
    curve *c = *out = mem_zero(1, sizeof *c);
    if (!c) return ICP_ENOMEM;
    c->n_pages = n_pages;
    c->most = n;
    c->threshold = UINT64_MAX;
    c->n_slots = (uint32_t)(2 * n);
    c->samples = mem_zero(n, sizeof *c->samples);
    c->slots = mem_zero(c->n_slots, sizeof *c->slots);
    c->sums = mem_zero(c->n_slots + 1, sizeof *c->sums);
    if (!c->samples || !c->slots || !c->sums) {
        curve_close(out);
        return ICP_ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) c->samples[i].next_free = i;
    c->free = (uint32_t)n;
    return 0;
}

void curve_close(curve **cp) {
    curve *c = *cp;
    if (!c) return;
    mem_free(c->sums);
    mem_free(c->slots);
    mem_free(c->samples);
    mem_free(c);
    *cp = NULL;
}
