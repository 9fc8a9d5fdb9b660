/* Namespaces: the roots of the tree, ordered by key and compared byte by byte.
 *
 * One lives as long as somebody holds it (refs) or a page stands below it; ten thousand salts that
 * were used once leave nothing. Its bytes count against the limit; those that only idle pages keep
 * alive count as reclaimable, for evicting these pages gives them back. */
#include <string.h>

#include "cache_internal.h"

typedef struct space_key {
    const void *bytes;
    size_t len;
} space_key;

static int order_spaces(const void *key, const treap_link *item) {
    const space_key *k = key;
    const cache_space *s = space_of((treap_link *)item);
    if (k->len != s->key_len) return k->len < s->key_len ? -1 : 1;
    return k->len ? memcmp(k->bytes, s->key, k->len) : 0;
}

static size_t cost(size_t key_len) {
    return sizeof(cache_space) + key_len + BLOCK_COST;
}

static int make(cache *c, const space_key *key, cache_space **out) {
    TRY(cache_charge(c, cost(key->len)));
    cache_space *s = mem_zero(1, sizeof *s + key->len);
    if (!s) {
        cache_refund(c, cost(key->len));
        return ICP_ENOMEM;
    }
    s->key_len = key->len;
    if (key->len) memcpy(s->key, key->bytes, key->len);
    s->refs = 1;
    s->link.priority = cache_draw(c);
    treap_insert(&c->spaces, &s->link, key, order_spaces);
    *out = s;
    return 0;
}

static void end(cache *c, cache_space *s) {
    space_key key = {s->key, s->key_len};
    treap_remove(&c->spaces, &s->link, &key, order_spaces);
    cache_refund(c, cost(s->key_len));
    mem_free(s);
}

int cache_space_get(cache *c, const void *key, size_t len, cache_space **out) {
    treap_link *below, *above;
    if (len > c->spare) return ICP_ELIMIT;
    space_key k = {key, len};
    treap_link *known = treap_seek(c->spaces, &k, order_spaces, &below, &above);
    if (!known) return make(c, &k, out);
    *out = space_of(known);
    space_ref(c, *out);
    return 0;
}

void cache_space_put(cache *c, cache_space **space) {
    if (*space) space_unref(c, *space);
    *space = NULL;
}

void space_ref(cache *c, cache_space *s) {
    if (s->refs++ == 0) c->reclaimable -= cost(s->key_len);
}

void space_unref(cache *c, cache_space *s) {
    if (--s->refs > 0) return;
    c->reclaimable += cost(s->key_len);
    space_release(c, s);
}

void space_release(cache *c, cache_space *s) {
    if (s->refs > 0 || s->n_pages > 0) return;
    c->reclaimable -= cost(s->key_len);
    end(c, s);
}

void space_fini(cache *c) {
    while (c->spaces) end(c, space_of(c->spaces));
}
