/* The tokens of a vocabulary by their bytes.
 *
 *   tokens  "a" "ab" "ac" "b"      nodes  a(0) b(1)ab c(2)ac b(3)      skip  3 2 3 4
 *
 * A walk over the nodes in order visits the trie depth first; where a text cannot go on it jumps to
 * `skip`. Most tokens are made of letters that any string may contain: a slice has those that are
 * made of a set's characters as ready bits, and a trie of the others, which is all that need be
 * walked where a loop over such characters stands open. */
#include "grammar_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- tries ----------------------------------------------------------------------------------- */

static size_t common_prefix(const grammar_str *a, const grammar_str *b) {
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n]) n++;
    return n;
}

/* Nodes that the tokens ids[0..n), sorted by bytes, need. */
static size_t count_nodes(const grammar_vocab *v, const int32_t *ids, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += v->tokens[ids[i]].len -
                 (i ? common_prefix(&v->tokens[ids[i - 1]], &v->tokens[ids[i]]) : 0);
    return count;
}

/* Where the nodes of the last path end is known once the next path leaves it. */
static void close_path(trie *t, uint32_t *path, size_t from, size_t to) {
    for (size_t d = from; d < to; d++) t->nodes[path[d]].skip = (uint32_t)t->n;
}

static int trie_build(const grammar_vocab *v, const int32_t *ids, size_t n, trie *out) {
    trie t = {mem_alloc(count_nodes(v, ids, n) * sizeof *t.nodes), 0};
    uint32_t *path = mem_alloc(v->longest * sizeof *path);
    if (!t.nodes || !path) {
        mem_free(t.nodes);
        mem_free(path);
        return ICP_ENOMEM;
    }
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        const grammar_str *token = &v->tokens[ids[i]];
        size_t shared = i ? common_prefix(&v->tokens[ids[i - 1]], token) : 0;
        if (i && shared == token->len && shared == depth) continue; /* a twin */
        close_path(&t, path, shared, depth);
        for (depth = shared; depth < token->len; depth++) {
            path[depth] = (uint32_t)t.n;
            t.nodes[t.n++] = (trie_node){
                .token = -1, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)token->data[depth]};
        }
        t.nodes[t.n - 1].token = ids[i];
    }
    close_path(&t, path, 0, depth);
    mem_free(path);
    *out = t;
    return 0;
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

static int compare_tokens(const void *a, const void *b, void *arg) {
    const grammar_vocab *v = arg;
    int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    const grammar_str *x = &v->tokens[i], *y = &v->tokens[k];
    int c = memcmp(x->data, y->data, MIN(x->len, y->len));
    if (c) return c;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return i < k ? -1 : 1;
}

/* Tokens of more than LONGEST_TOKEN bytes never fit. */
static int copy_tokens(grammar_vocab *v, const grammar_str *tokens) {
    size_t total = 0;
    for (size_t i = 0; i < v->n; i++) total += tokens[i].len;
    v->text = mem_alloc(total);
    v->tokens = mem_zero(v->n, sizeof *v->tokens);
    v->order = mem_alloc(v->n * sizeof *v->order);
    v->twin = mem_alloc(v->n * sizeof *v->twin);
    if (!v->text || !v->tokens || !v->order || !v->twin) return ICP_ENOMEM;
    char *at = v->text;
    for (size_t i = 0; i < v->n; i++) {
        size_t len = tokens[i].len <= LONGEST_TOKEN ? tokens[i].len : 0;
        v->twin[i] = -1;
        v->tokens[i] = (grammar_str){at, len};
        if (len == 0) continue;
        memcpy(at, tokens[i].data, len);
        at += len;
        v->longest = MAX(v->longest, len);
        v->order[v->n_order++] = (int32_t)i;
    }
    return 0;
}

static void link_twins(grammar_vocab *v) {
    for (size_t i = 1; i < v->n_order; i++) {
        const grammar_str *a = &v->tokens[v->order[i - 1]], *b = &v->tokens[v->order[i]];
        if (a->len == b->len && !memcmp(a->data, b->data, a->len))
            v->twin[v->order[i - 1]] = v->order[i];
    }
}

int grammar_vocab_new(const grammar_str *tokens, size_t n, grammar_vocab **out) {
    grammar_vocab *v = mem_zero(1, sizeof *v);
    if (!v) return ICP_ENOMEM;
    v->n = n;
    v->n_words = (n + 63) / 64;
    atomic_init(&v->refs, 1);
    pthread_mutex_init(&v->lock, NULL); /* of the default kind: cannot fail */
    int rc = copy_tokens(v, tokens);
    if (rc == 0) {
        qsort_r(v->order, v->n_order, sizeof *v->order, compare_tokens, v);
        link_twins(v);
        rc = trie_build(v, v->order, v->n_order, &v->all);
    }
    if (rc < 0)
        grammar_vocab_unref(&v);
    else
        *out = v;
    return rc;
}

static void slice_free(slice *s) {
    if (!s) return;
    mem_free(s->bits);
    mem_free(s->rest.nodes);
    mem_free(s);
}

void grammar_vocab_unref(grammar_vocab **vp) {
    grammar_vocab *v = *vp;
    *vp = NULL;
    if (!v || atomic_fetch_sub(&v->refs, 1) > 1) return;
    for (slice *s = v->slices; s;) {
        slice *next = s->next;
        slice_free(s);
        s = next;
    }
    pthread_mutex_destroy(&v->lock);
    mem_free(v->all.nodes);
    mem_free(v->text);
    mem_free(v->tokens);
    mem_free(v->order);
    mem_free(v->twin);
    mem_free(v);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static bool is_absorbed(const grammar_str *token, const absorb *set, uint32_t most) {
    size_t at = 0;
    for (uint32_t n = 0; at < token->len; n++) {
        int32_t cp;
        at += (size_t)utf8_decode(token->data + at, token->len - at, &cp);
        if (cp < 0 || n == most) return false;
        if (cp >= 128 ? !set->wide : !(set->ascii[cp >> 6] >> (cp & 63) & 1)) return false;
    }
    return true;
}

static slice *slice_new(const grammar_vocab *v, const absorb *set, uint32_t most) {
    slice *s = mem_zero(1, sizeof *s);
    int32_t *others = mem_alloc(v->n_order * sizeof *others);
    if (s) s->bits = mem_zero(v->n_words, sizeof *s->bits);
    bool whole = s && others && s->bits;
    size_t n = 0;
    for (size_t i = 0; whole && i < v->n_order; i++) {
        int32_t id = v->order[i];
        if (is_absorbed(&v->tokens[id], set, most))
            s->bits[id >> 6] |= UINT64_C(1) << (id & 63);
        else
            others[n++] = id;
    }
    if (whole) {
        s->set = *set;
        s->most = most;
        whole = trie_build(v, others, n, &s->rest) == 0;
    }
    mem_free(others);
    if (whole) return s;
    slice_free(s);
    return NULL;
}

static slice *find_slice(const grammar_vocab *v, const absorb *set, uint32_t most) {
    slice *s = v->slices;
    while (s && (s->most != most || s->set.wide != set->wide ||
                 memcmp(s->set.ascii, set->ascii, sizeof set->ascii) != 0))
        s = s->next;
    return s;
}

const slice *vocab_slice(grammar_vocab *v, const absorb *set, uint32_t most) {
    enum { MOST_SLICES = 16 };
    pthread_mutex_lock(&v->lock);
    slice *s = find_slice(v, set, most);
    if (!s && v->n_slices < MOST_SLICES && (s = slice_new(v, set, most))) {
        s->next = v->slices;
        v->slices = s;
        v->n_slices++;
    }
    pthread_mutex_unlock(&v->lock);
    return s;
}
