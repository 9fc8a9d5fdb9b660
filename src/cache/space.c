/* Owners and their namespaces: the roots of the tree, ordered by key and compared byte by byte.
 *
 *   owners ─┬─ "tenant 1" ─┬─ "model A"            ─── pages
 *           │              └─ "model A, salt x"    ─── pages
 *           └─ "tenant 2" ─── "model A"            ─── pages
 *
 * A namespace lives as long as somebody holds it (refs) or a page stands below it, an owner as long
 * as somebody holds it or it has a namespace; ten thousand salts that were used once leave nothing.
 * Their bytes count against the limit; what only idle pages keep alive counts as reclaimable, for
 * evicting these pages gives it back. A namespace that is held holds its owner. */
#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "cache_internal.h"

typedef struct root_key {
    const void *bytes;
    size_t len;
} root_key;

static int compare(const root_key *k, const void *bytes, size_t len) {
    if (k->len != len) return k->len < len ? -1 : 1;
    return len ? memcmp(k->bytes, bytes, len) : 0;
}

static int order_spaces(const void *key, const treap_link *item) {
    const cache_space *s = space_of((treap_link *)item);
    return compare(key, s->key, s->key_len);
}

static int order_owners(const void *key, const treap_link *item) {
    const cache_owner *o = owner_of((treap_link *)item);
    return compare(key, o->key, o->key_len);
}

size_t space_cost(const cache_space *s) {
    return sizeof *s + s->key_len + BLOCK_COST;
}

size_t owner_cost(const cache_owner *o) {
    return sizeof *o + o->key_len + BLOCK_COST;
}

/* Accounts for and allocates an item of `size` bytes that ends with a key. */
static int make(cache *c, size_t size, size_t key_len, void **out) {
    TRY(cache_charge(c, size + key_len + BLOCK_COST));
    *out = mem_zero(1, size + key_len);
    if (*out) return 0;
    cache_refund(c, size + key_len + BLOCK_COST);
    return ICP_ENOMEM;
}

/* ---- owners ---------------------------------------------------------------------------------- */

static int make_owner(cache *c, const root_key *key, size_t quota, cache_owner **out) {
    cache_owner *o;
    TRY(make(c, sizeof *o, key->len, (void **)&o));
    o->key_len = key->len;
    if (key->len) memcpy(o->key, key->bytes, key->len);
    o->quota = quota;
    o->refs = 1;
    *out = o;
    return 0;
}

int owner_init(cache *c) {
    return make_owner(c, &(root_key){NULL, 0}, SIZE_MAX, &c->nobody);
}

static void end_owner(cache *c, cache_owner *o) {
    root_key key = {o->key, o->key_len};
    if (o != c->nobody) treap_remove(&c->owners, &o->link, &key, order_owners);
    cache_refund(c, owner_cost(o));
    mem_free(o);
}

static void ref_owner(cache *c, cache_owner *o) {
    if (o->refs++ == 0) c->reclaimable -= owner_cost(o);
}

static void release_owner(cache *c, cache_owner *o) {
    if (o->refs > 0 || o->n_spaces > 0) return;
    c->reclaimable -= owner_cost(o);
    end_owner(c, o);
}

static void unref_owner(cache *c, cache_owner *o) {
    if (--o->refs > 0) return;
    c->reclaimable += owner_cost(o);
    release_owner(c, o);
}

int cache_owner_get(cache *c, const void *key, size_t len, size_t quota, cache_owner **out) {
    treap_link *below, *above;
    if (len > c->spare) return ICP_ELIMIT;
    root_key k = {key, len};
    treap_link *known = treap_seek(c->owners, &k, order_owners, &below, &above);
    if (known) {
        ref_owner(c, *out = owner_of(known));
        return 0;
    }
    TRY(make_owner(c, &k, quota, out));
    (*out)->link.priority = cache_draw(c);
    treap_insert(&c->owners, &(*out)->link, &k, order_owners);
    return 0;
}

void cache_owner_put(cache *c, cache_owner **owner) {
    if (*owner) unref_owner(c, *owner);
    *owner = NULL;
}

void cache_owner_pages(const cache_owner *owner, size_t *n_pages, size_t *n_idle) {
    *n_pages = owner->n_pages;
    *n_idle = owner->n_idle;
}

/* ---- namespaces ------------------------------------------------------------------------------ */

static int make_space(cache *c, cache_owner *o, const chain *base, const root_key *key,
                      cache_space **out) {
    cache_space *s;
    ref_owner(c, o); /* evicting for the space's room must not end it */
    int rc = make(c, sizeof *s, key->len, (void **)&s);
    if (rc < 0) {
        unref_owner(c, o);
        return rc;
    }
    s->key_len = key->len;
    if (key->len) memcpy(s->key, key->bytes, key->len);
    s->owner = o;
    s->base = base;
    s->print = XXH3_64bits_withSeed(o->key, o->key_len,
                                    XXH3_64bits_withSeed(key->bytes, key->len, c->secret));
    s->refs = 1;
    s->link.priority = cache_draw(c);
    treap_insert(&o->spaces, &s->link, key, order_spaces);
    o->n_spaces++;
    *out = s;
    return 0;
}

static void end_space(cache *c, cache_space *s) {
    root_key key = {s->key, s->key_len};
    treap_remove(&s->owner->spaces, &s->link, &key, order_spaces);
    s->owner->n_spaces--;
    cache_refund(c, space_cost(s));
    mem_free(s);
}

int cache_space_get_on(cache *c, cache_owner *owner, const chain *base, const void *key, size_t len,
                       cache_space **out) {
    treap_link *below, *above;
    cache_owner *o = owner ? owner : c->nobody;
    if (len > c->spare) return ICP_ELIMIT;
    root_key k = {key, len};
    treap_link *known = treap_seek(o->spaces, &k, order_spaces, &below, &above);
    if (!known) return make_space(c, o, base, &k, out);
    *out = space_of(known);
    assert((*out)->base == base);
    space_ref(c, *out);
    return 0;
}

int cache_space_get(cache *c, cache_owner *owner, const void *key, size_t len, cache_space **out) {
    return cache_space_get_on(c, owner, NULL, key, len, out);
}

void cache_space_put(cache *c, cache_space **space) {
    if (*space) space_unref(c, *space);
    *space = NULL;
}

size_t cache_space_base(const cache_space *space) {
    return space->base ? chain_len(space->base) / CACHE_PAGE * CACHE_PAGE : 0;
}

void space_ref(cache *c, cache_space *s) {
    if (s->refs++ > 0) return;
    c->reclaimable -= space_cost(s);
    ref_owner(c, s->owner);
}

void space_unref(cache *c, cache_space *s) {
    if (--s->refs > 0) return;
    cache_owner *o = s->owner;
    c->reclaimable += space_cost(s);
    if (s->n_pages == 0) {
        c->reclaimable -= space_cost(s);
        end_space(c, s);
    }
    unref_owner(c, o);
}

void space_release(cache *c, cache_space *s) {
    if (s->refs > 0 || s->n_pages > 0) return;
    cache_owner *o = s->owner;
    c->reclaimable -= space_cost(s);
    end_space(c, s);
    release_owner(c, o);
}

static void end_spaces(cache *c, cache_owner *o) {
    while (o->spaces) end_space(c, space_of(o->spaces));
    end_owner(c, o);
}

void space_fini(cache *c) {
    while (c->owners) end_spaces(c, owner_of(c->owners));
    end_spaces(c, c->nobody);
}
