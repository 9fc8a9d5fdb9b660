/* What requests can wish of the cache (times, retirement, quotas, bases), and what it tells. */
#include <math.h>
#include <stdlib.h>

#include "cells.h"

static cache *the_cache;
static cache_owner *the_owner;
static cache_space *the_space;

static int setup_with(size_t n_pages, size_t quota) {
    the_cache = cells_open(n_pages, false, CACHE_HAZARD);
    assert_int_equal(cache_owner_get(the_cache, "owner", 5, quota, &the_owner), 0);
    assert_int_equal(cache_space_get(the_cache, the_owner, "space", 5, &the_space), 0);
    return 0;
}

static int setup(void **state) {
    return setup_with(64, SIZE_MAX);
}
static int setup_small(void **state) {
    return setup_with(8, SIZE_MAX);
}
static int setup_quota(void **state) {
    return setup_with(16, 4);
}

static int teardown(void **state) {
    assert_null(cache_check(the_cache));
    cache_space_put(the_cache, &the_space);
    cache_owner_put(the_cache, &the_owner);
    cache_close(&the_cache);
    return 0;
}

/* n tokens: `head` counting up, then counting up from `tail`. */
static const int32_t *text(size_t head, int32_t tail) {
    static int32_t tokens[8][1024];
    static int turn;
    int32_t *t = tokens[turn++ % 8];
    for (int32_t i = 0; i < 1024; i++) t[i] = (size_t)i < head ? i : tail + i;
    return t;
}

static chain *opened(cache_space *space, double until) {
    chain *ch;
    assert_int_equal(chain_open(the_cache, space, &ch), 0);
    chain_keep_until(ch, until);
    return ch;
}

static void extend(chain *ch, const int32_t *tokens, size_t n) {
    size_t len = chain_len(ch);
    assert_int_equal(chain_reserve(ch, n), 0);
    cells_write(ch, 0, tokens, n);
    if (n > len) chain_publish(ch, tokens + len, n - len);
    assert_null(cache_check(the_cache));
}

/* A request from begin to end; returns its hit. */
static size_t request_until(double until, const int32_t *tokens, size_t n) {
    chain *ch = opened(the_space, until);
    size_t hit = chain_match(ch, tokens, n, SIZE_MAX);
    cells_check(ch, 0, tokens);
    extend(ch, tokens, n);
    chain_close(&ch);
    assert_null(cache_check(the_cache));
    return hit;
}

static size_t request(const int32_t *tokens, size_t n) {
    return request_until(INFINITY, tokens, n);
}

static size_t probe(const int32_t *tokens, size_t n) {
    return cache_probe(the_cache, the_space, tokens, n);
}

static cache_miss explain(const int32_t *tokens, size_t n) {
    cache_miss m;
    cache_explain(the_cache, the_space, tokens, n, &m);
    assert_int_equal(m.len, probe(tokens, n));
    return m;
}

/* ---- time ------------------------------------------------------------------------------------ */

static void test_unstored_leaves_nothing(void **state) {
    const int32_t *t = text(1000, 0), *other = text(130, 5000);
    assert_int_equal(request_until(0, t, 200), 0);
    assert_int_equal(probe(t, 200), 0);
    assert_int_equal(explain(t, 200).loss, CACHE_LOSS_UNSTORED);
    assert_int_equal(request(t, 150), 0);
    assert_int_equal(request_until(0, other, 300), 130); /* it finds, */
    assert_int_equal(probe(t, 150), 150);                /* takes nothing away, */
    assert_int_equal(probe(other, 300), 130);            /* and leaves nothing */
    assert_int_equal(request_until(0, t, 180), 150);     /* in a page that it took over as well */
    assert_int_equal(probe(t, 200), 150);
}

static void test_expiry(void **state) {
    const int32_t *t = text(1000, 0), *other = text(100, 5000);
    assert_true(isinf(cache_next_expiry(the_cache)));
    request_until(20, t, 200);
    request_until(30, other, 140);
    assert_true(cache_next_expiry(the_cache) == 20);
    cache_tick(the_cache, 19.9);
    assert_int_equal(probe(t, 200), 200);
    cache_tick(the_cache, 20);
    assert_int_equal(probe(t, 200), 100); /* what the other has of it */
    assert_int_equal(probe(other, 200), 140);
    assert_true(cache_next_expiry(the_cache) == 30);
    cache_miss m = explain(t, 200);
    assert_int_equal(m.loss, CACHE_LOSS_EXPIRED);
    assert_true(m.lost_at == 20);
    cache_tick(the_cache, 30);
    cache_stats s;
    cache_get_stats(the_cache, &s);
    assert_int_equal(s.n_free, s.n_pages);
    assert_int_equal(s.expired, 6);
}

static void test_the_longest_wish_counts(void **state) {
    const int32_t *t = text(1000, 0);
    request_until(20, t, 200);
    assert_int_equal(request(t, 90), 89 + 1);
    cache_tick(the_cache, 50);
    assert_int_equal(probe(t, 200), 90); /* not what it had not read */
    chain *reader = opened(the_space, 60);
    assert_int_equal(chain_match(reader, t, 90, SIZE_MAX), 90);
    extend(reader, t, 128);
    cache_tick(the_cache, 70); /* in use: stays */
    assert_int_equal(probe(t, 200), 128);
    chain_close(&reader);
    cache_tick(the_cache, 71);
    assert_int_equal(probe(t, 200), 90);
}

/* ---- the end of a session -------------------------------------------------------------------- */

static void test_retired_goes_first(void **state) {
    const int32_t *system = text(1000, 0), *a = text(64, 2000), *b = text(64, 4000);
    request(system, 64);
    chain *ch = opened(the_space, INFINITY);
    chain_match(ch, a, 192, SIZE_MAX);
    extend(ch, a, 192);
    chain_retire(ch);
    request(b, 192); /* used before the other one ended */
    chain_close(&ch);
    cache_stats s;
    cache_get_stats(the_cache, &s);
    chain *big = opened(NULL, INFINITY);
    assert_int_equal(chain_reserve(big, (s.n_free + 2) * CACHE_PAGE), 0);
    assert_int_equal(probe(a, 192), 64);
    assert_int_equal(probe(b, 192), 192);
    chain_close(&big);
}

/* ---- quotas ---------------------------------------------------------------------------------- */

static void test_quota(void **state) {
    cache_space *other;
    assert_int_equal(cache_space_get(the_cache, NULL, "other", 5, &other), 0);
    chain *ch = opened(other, INFINITY);
    const int32_t *t = text(1000, 0), *u = text(0, 2000);
    extend(ch, t, 256);
    chain_close(&ch);
    request(t, 256);
    assert_int_equal(cache_obtainable(the_cache, the_owner), 4);
    request(u, 128); /* evicts its own two last pages, though there is room */
    assert_int_equal(probe(t, 256), 128);
    assert_int_equal(probe(u, 128), 128);
    assert_int_equal(cache_probe(the_cache, other, t, 256), 256);
    assert_int_equal(explain(t, 256).loss, CACHE_LOSS_QUOTA);
    ch = opened(the_space, INFINITY);
    assert_int_equal(chain_reserve(ch, 5 * CACHE_PAGE), ICP_ELIMIT);
    chain *second = opened(the_space, INFINITY);
    extend(ch, t, 100);
    assert_int_equal(cache_obtainable(the_cache, the_owner), 2);
    assert_int_equal(chain_reserve(second, 3 * CACHE_PAGE), ICP_EAGAIN);
    assert_int_equal(chain_reserve(second, 2 * CACHE_PAGE), 0);
    assert_int_equal(chain_match(second, t, 100, SIZE_MAX), 100);
    chain_close(&ch);
    chain_close(&second);
    cache_space_put(the_cache, &other);
}

static void test_owners_end(void **state) {
    for (int i = 0; i < 5000; i++) { /* far more than the bookkeeping has room for at once */
        cache_owner *o;
        cache_space *s;
        chain *ch;
        assert_int_equal(cache_owner_get(the_cache, &i, sizeof i, 3, &o), 0);
        assert_int_equal(cache_space_get(the_cache, o, "s", 1, &s), 0);
        assert_int_equal(chain_open(the_cache, s, &ch), 0);
        extend(ch, text(1000, 0), 70);
        chain_close(&ch);
        cache_space_put(the_cache, &s);
        cache_owner_put(the_cache, &o);
        assert_null(cache_check(the_cache));
    }
}

/* ---- a common beginning ---------------------------------------------------------------------- */

static void test_base(void **state) {
    const int32_t *t = text(150, 2000);
    cache_space *public, *mine, *yours;
    cache_owner *you;
    chain *base = NULL, *ch;
    assert_int_equal(cache_space_get(the_cache, NULL, "public", 6, &public), 0);
    base = opened(public, INFINITY);
    extend(base, t, 150);
    assert_int_equal(cache_owner_get(the_cache, "you", 3, 2, &you), 0);
    assert_int_equal(cache_space_get_on(the_cache, the_owner, base, "m", 1, &mine), 0);
    assert_int_equal(cache_space_get_on(the_cache, you, base, "y", 1, &yours), 0);
    assert_int_equal(cache_space_base(mine), 128);
    assert_int_equal(cache_space_base(the_space), 0);
    assert_int_equal(cache_probe(the_cache, mine, t, 300), 128);
    ch = opened(mine, INFINITY);
    assert_int_equal(chain_len(ch), 128);
    assert_true(chain_pages(ch)[1] == chain_pages(base)[1]);
    extend(ch, t, 250);
    chain_close(&ch);
    assert_int_equal(cache_probe(the_cache, mine, t, 300), 250);
    assert_int_equal(cache_probe(the_cache, yours, t, 300), 128); /* the rest is nobody else's */
    ch = opened(yours, INFINITY);
    assert_int_equal(chain_match(ch, t, 300, SIZE_MAX), 128);
    assert_int_equal(chain_reserve(ch, 128 + 3 * CACHE_PAGE), ICP_ELIMIT); /* what is his own */
    extend(ch, t, 128 + 2 * CACHE_PAGE);
    chain_close(&ch);
    cache_drop_all(the_cache);
    assert_int_equal(cache_probe(the_cache, mine, t, 300), 128); /* pinned */
    cache_space_put(the_cache, &mine);
    cache_space_put(the_cache, &yours);
    cache_owner_put(the_cache, &you);
    chain_close(&base);
    cache_space_put(the_cache, &public);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static void test_reasons(void **state) {
    const int32_t *t = text(1000, 0), *other = text(100, 5000);
    cache_miss m = explain(t, 300);
    assert_int_equal(m.loss, CACHE_LOSS_NONE);
    assert_int_equal(m.n_other, 0); /* nothing is there */
    request(t, 150);
    m = explain(t, 300);
    assert_int_equal(m.len, 150);
    assert_int_equal(m.n_other, 0); /* what is there ends here */
    m = explain(other, 300);
    assert_int_equal(m.len, 100);
    assert_int_equal(m.n_other, 8);
    for (int i = 0; i < 8; i++) assert_int_equal(m.other[i], 100 + i);
    m = explain(text(0, 7), 20); /* from the first token on */
    assert_int_equal(m.n_other, 8);
    assert_int_equal(m.other[0], 0);
    cache_tick(the_cache, 42);
    cache_drop(the_cache, the_space);
    m = explain(t, 300);
    assert_int_equal(m.loss, CACHE_LOSS_DROPPED);
    assert_int_equal(m.lost_len, 150);
    assert_true(m.lost_at == 42);
    assert_int_equal(explain(other, 300).loss, CACHE_LOSS_DROPPED); /* its first page */
    assert_int_equal(explain(other, 300).lost_len, 64);
}

static void test_evicted(void **state) {
    const int32_t *t = text(1000, 0);
    request(t, 200);
    cache_stats s;
    cache_get_stats(the_cache, &s);
    chain *big = opened(NULL, INFINITY);
    cache_tick(the_cache, 5);
    assert_int_equal(chain_reserve(big, (s.n_free + 2) * CACHE_PAGE), 0);
    cache_miss m = explain(t, 200);
    assert_int_equal(m.len, 128);
    assert_int_equal(m.loss, CACHE_LOSS_ROOM);
    assert_int_equal(m.lost_len, 200);
    assert_true(m.lost_at == 5);
    assert_int_equal(m.lost_pinned, s.n_free + 1); /* the other one went before */
    chain_close(&big);
}

static void test_other_namespaces(void **state) {
    const int32_t *t = text(1000, 0);
    cache_space *salted, *foreign;
    const void *key = NULL;
    assert_int_equal(cache_space_get(the_cache, the_owner, "salt", 4, &salted), 0);
    assert_int_equal(cache_space_get(the_cache, NULL, "foreign", 7, &foreign), 0);
    request(t, 100);
    assert_int_equal(cache_probe_others(the_cache, salted, t, 200, 9, &key), 100);
    assert_non_null(key);
    assert_int_equal(cache_probe_others(the_cache, salted, t, 200, 0, &key), 0);
    assert_int_equal(cache_probe_others(the_cache, the_space, t, 200, 9, &key), 0); /* not itself */
    assert_int_equal(cache_probe_others(the_cache, foreign, t, 200, 9, &key),
                     0); /* not another's */
    cache_space_put(the_cache, &salted);
    cache_space_put(the_cache, &foreign);
}

typedef struct nodes {
    cache_node node[16];
    size_t n, most;
} nodes;

static bool add_node(void *arg, const cache_node *node) {
    nodes *list = arg;
    list->node[list->n++] = *node;
    return list->n < list->most;
}

static void test_walk(void **state) {
    cache_tick(the_cache, 10);
    request(text(1000, 0), 300);
    request(text(128, 5000), 200);
    request_until(99, text(0, 9000), 10);
    nodes list = {.most = 16};
    cache_walk(the_cache, the_owner, add_node, &list);
    assert_int_equal(list.n, 4);
    const cache_node *n = list.node;
    assert_int_equal(n[0].n_tokens, 128);
    assert_int_equal(n[0].n_pages, 2);
    assert_int_equal(n[0].hits, 1);
    assert_int_equal(n[1].depth, 1);
    assert_int_equal(n[1].position, 128);
    assert_int_equal(n[1].n_tokens, 172);
    assert_int_equal(n[2].n_tokens, 72);
    assert_int_equal(n[2].first[0], 5128);
    assert_int_equal(n[3].depth, 0);
    assert_true(n[3].until == 99 && n[3].used_at == 10 && isinf(n[2].until));
    list = (nodes){.most = 2};
    cache_walk(the_cache, the_owner, add_node, &list);
    assert_int_equal(list.n, 2);
}

/* ---- another spelling ------------------------------------------------------------------------ */

/* Token t < 256 is the byte t; from 256 on, two bytes; 9000 is special. */
static const char *spell(const void *arg, int32_t token, size_t *len) {
    static char bytes[16][4];
    static int turn;
    if (token == 9000) return NULL;
    char *b = bytes[turn++ % 16];
    *len = token < 256 ? 1 : 2;
    b[0] = token < 256 ? (char)token : (char)('a' + (token - 256) / 26);
    b[1] = (char)('a' + (token - 256) % 26);
    return b;
}

static int32_t pair(char a, char b) {
    return 256 + (a - 'a') * 26 + (b - 'a');
}

static size_t respell(const int32_t *t, size_t n, int32_t *out, size_t *n_in) {
    cache_spelling s = {spell, NULL};
    size_t n_out = 0;
    bool found = cache_respell(the_cache, the_space, &s, t, n, out, 1024, &n_out, n_in);
    return found ? n_out : 0;
}

/* A prompt, and what was sampled after it. */
static void converse(const int32_t *tokens, size_t n_prompt, size_t n) {
    chain *ch = opened(the_space, INFINITY);
    chain_sampled_from(ch, n_prompt);
    chain_match(ch, tokens, n_prompt, SIZE_MAX);
    extend(ch, tokens, n);
    chain_close(&ch);
}

static void test_respell(void **state) {
    int32_t was[] = {'x', 9000, pair('a', 'b'), 'c', pair('d', 'e'), 'f'}, out[1024];
    int32_t now[] = {'x', 9000, 'a', pair('b', 'c'), 'd', pair('e', 'f'), 9000, 'y'};
    size_t n_in;
    assert_int_equal(respell(now, 8, out, &n_in), 0); /* nothing is there */
    converse(was, 2, 6);
    assert_int_equal(respell(now, 8, out, &n_in), 6);
    assert_int_equal(n_in, 6);
    assert_memory_equal(out, was, sizeof was);
    assert_int_equal(respell(now, 5, out, &n_in), 4); /* the last time in step */
    assert_int_equal(n_in, 4);
    assert_int_equal(respell(was, 6, out, &n_in), 0); /* nothing to be done */
    int32_t other[] = {'x', 'a', pair('b', 'c')};     /* a special token is no text */
    assert_int_equal(respell(other, 3, out, &n_in), 0);
    int32_t wrong[] = {'x', 9000, 'a', pair('b', 'd')};
    assert_int_equal(respell(wrong, 4, out, &n_in), 0);
}

static void test_respell_sampled_only(void **state) {
    int32_t was[] = {'x', 9000, pair('a', 'b'), 'c'}, now[] = {'x', 9000, 'a', pair('b', 'c'), 'y'};
    int32_t out[1024];
    size_t n_in;
    converse(was, 4, 4); /* sent as tokens: a client means what it sends */
    assert_int_equal(respell(now, 5, out, &n_in), 0);
    cache_drop(the_cache, the_space);
    converse(was, 3, 4); /* a stretch that the model only ended */
    assert_int_equal(respell(now, 5, out, &n_in), 4);
}

/* Long texts cut at random, over pages and branches: what comes out spells the same. */
static void test_respell_random(void **state) {
    srand(1);
    size_t found = 0;
    for (int round = 0; round < 500; round++) {
        char bytes[600];
        int32_t was[600], now[600], out[1024];
        size_t n_was = 0, n_now = 0, n_in, at = 0;
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)('a' + rand() % 3);
        for (size_t i = 0; i < 500; n_was++) {
            bool two = rand() % 2 && i + 1 < 500;
            was[n_was] = two ? pair(bytes[i], bytes[i + 1]) : bytes[i];
            i += two ? 2 : 1;
        }
        converse(was, 0, n_was);
        for (size_t i = 0; i < 600; n_now++) {
            bool two = rand() % 2 && i + 1 < 600;
            now[n_now] = two ? pair(bytes[i], bytes[i + 1]) : bytes[i];
            i += two ? 2 : 1;
        }
        size_t n_out = respell(now, n_now, out, &n_in);
        if (n_out == 0) continue;
        found++;
        for (size_t i = 0; i < n_out; i++) {
            size_t len = 0;
            const char *b = spell(NULL, out[i], &len);
            assert_memory_equal(b, bytes + at, len);
            at += len;
        }
        size_t spelled = 0;
        for (size_t i = 0; i < n_in; i++) spelled += now[i] < 256 ? 1 : 2;
        assert_int_equal(at, spelled);
        assert_true(cache_probe(the_cache, the_space, out, n_out) == n_out);
        assert_true(n_out + 40 >= n_was); /* a few tokens out of step at the end */
        if (round % 5 == 4) cache_drop_all(the_cache);
    }
    assert_true(found > 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unstored_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expiry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_longest_wish_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retired_goes_first, setup_small, teardown),
        cmocka_unit_test_setup_teardown(test_quota, setup_quota, teardown),
        cmocka_unit_test_setup_teardown(test_owners_end, setup_small, teardown),
        cmocka_unit_test_setup_teardown(test_base, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reasons, setup, teardown),
        cmocka_unit_test_setup_teardown(test_evicted, setup_small, teardown),
        cmocka_unit_test_setup_teardown(test_other_namespaces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_respell, setup, teardown),
        cmocka_unit_test_setup_teardown(test_respell_sampled_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_respell_random, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
