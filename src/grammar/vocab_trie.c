/* The tokens of a vocabulary by their bytes.
 *
 *   tokens  "a" "ab" "ac" "b"      nodes  a(0) b(1)ab c(2)ac b(3)      skip  3 2 3 4
 *
 * A walk over the nodes in order visits the trie depth first; where a text cannot go on it jumps to
 * `skip`. Most tokens are made of letters that any string may contain: those that are made of up to
 * so many of a set's characters are a slice of ready bits, and only the others need be walked where
 * a loop over such characters stands open (matcher.c). Where such a loop opens later in a token,
 * whole subtrees are taken. */
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

/* Adds the rest of a token's path, of which `shared` nodes are there. */
static void add_path(trie *t, const grammar_str *token, uint32_t *path, size_t shared, size_t i) {
    for (size_t depth = shared; depth < token->len; depth++) {
        path[depth] = (uint32_t)t->n;
        t->nodes[t->n++] = (trie_node){.first = (uint32_t)i,
                                       .depth = (uint16_t)(depth + 1),
                                       .byte = (uint8_t)token->data[depth]};
    }
}

/* Takes ids (n of them, sorted by bytes), even when it fails. */
static int trie_build(const grammar_vocab *v, int32_t *ids, size_t n, trie *out) {
    trie t = {mem_alloc((count_nodes(v, ids, n) + 1) * sizeof *t.nodes), 0, ids};
    uint32_t *path = mem_alloc(v->longest * sizeof *path);
    if (!t.nodes || !path) {
        mem_free(t.nodes);
        mem_free(path);
        mem_free(ids);
        return ICP_ENOMEM;
    }
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        const grammar_str *token = &v->tokens[ids[i]];
        size_t shared = i ? common_prefix(&v->tokens[ids[i - 1]], token) : 0;
        if (shared == token->len) continue; /* the same bytes again */
        close_path(&t, path, shared, depth);
        add_path(&t, token, path, shared, i);
        depth = token->len;
    }
    close_path(&t, path, 0, depth);
    t.nodes[t.n] = (trie_node){.first = (uint32_t)n};
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
    if (!v->text || !v->tokens) return ICP_ENOMEM;
    char *at = v->text;
    for (size_t i = 0; i < v->n; i++) {
        size_t len = tokens[i].len <= LONGEST_TOKEN ? tokens[i].len : 0;
        v->tokens[i] = (grammar_str){at, len};
        if (len == 0) continue;
        memcpy(at, tokens[i].data, len);
        at += len;
        v->longest = MAX(v->longest, len);
        v->n_fit++;
    }
    return 0;
}

static int build_all(grammar_vocab *v) {
    int32_t *order = mem_alloc(v->n * sizeof *order);
    size_t n = 0;
    if (!order) return ICP_ENOMEM;
    for (size_t i = 0; i < v->n; i++)
        if (v->tokens[i].len) order[n++] = (int32_t)i;
    qsort_r(order, n, sizeof *order, compare_tokens, v);
    return trie_build(v, order, n, &v->all);
}

static void trie_free(trie *t) {
    mem_free(t->nodes);
    mem_free(t->ids);
}

int grammar_vocab_new(const grammar_str *tokens, size_t n, grammar_vocab **out) {
    grammar_vocab *v = mem_zero(1, sizeof *v);
    if (!v) return ICP_ENOMEM;
    v->n = n;
    v->n_words = (n + 63) / 64;
    atomic_init(&v->refs, 1);
    pthread_mutex_init(&v->lock, NULL); /* of the default kind: cannot fail */
    int rc = copy_tokens(v, tokens);
    if (rc == 0) rc = build_all(v);
    if (rc < 0)
        grammar_vocab_unref(&v);
    else
        *out = v;
    return rc;
}

static void absorbed_free(absorbed *a) {
    mem_free(a->slices);
    trie_free(&a->rest);
    mem_free(a->below);
    mem_free(a);
}

void grammar_vocab_unref(grammar_vocab **vp) {
    grammar_vocab *v = *vp;
    *vp = NULL;
    if (!v || atomic_fetch_sub(&v->refs, 1) > 1) return;
    for (absorbed *a = v->absorbed, *next; a; a = next) {
        next = a->next;
        absorbed_free(a);
    }
    pthread_mutex_destroy(&v->lock);
    trie_free(&v->all);
    mem_free(v->text);
    mem_free(v->tokens);
    mem_free(v);
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* Characters of a token, if there are at most N_SLICES and all are of a set; else 0. */
static size_t count_absorbed(const grammar_str *token, const absorb *set) {
    size_t at = 0, n = 0;
    for (; at < token->len; n++) {
        int32_t cp;
        at += (size_t)utf8_decode(token->data + at, token->len - at, &cp);
        if (cp < 0 || n == N_SLICES) return 0;
        if (cp >= 128 ? !set->wide : !(set->ascii[cp >> 6] >> (cp & 63) & 1)) return 0;
    }
    return n;
}

static int make_slices(const grammar_vocab *v, absorbed *out) {
    int32_t *others = mem_alloc(v->n_fit * sizeof *others);
    out->slices = mem_zero(N_SLICES * v->n_words, sizeof *out->slices);
    size_t n = 0;
    if (!others || !out->slices) {
        mem_free(others);
        return ICP_ENOMEM;
    }
    for (size_t i = 0; i < v->n_fit; i++) {
        int32_t id = v->all.ids[i];
        size_t len = count_absorbed(&v->tokens[id], &out->set);
        if (len)
            out->slices[(len - 1) * v->n_words + (size_t)(id >> 6)] |= UINT64_C(1) << (id & 63);
        else
            others[n++] = id;
    }
    for (size_t i = v->n_words; i < N_SLICES * v->n_words; i++) /* a slice has all shorter ones */
        out->slices[i] |= out->slices[i - v->n_words];
    return trie_build(v, others, n, &out->rest);
}

/* ---- subtrees ---------------------------------------------------------------------------------
 */

/* Bytes that must follow a lead byte, whatever they are from 80 to BF; -1: it depends on them, or
 * it is none. */
static int continuation_bytes(uint8_t lead) {
    if (lead >= 0xc2 && lead <= 0xdf) return 1;
    if ((lead >= 0xe1 && lead <= 0xec) || lead == 0xee || lead == 0xef) return 2;
    return lead >= 0xf1 && lead <= 0xf3 ? 3 : -1;
}

/* below[k]: characters that begin below this node where k bytes of one are still to come. Returns
 * how many begin at the node or below it, or complete one there, when k bytes are to come before.
 */
static uint8_t count_here(const absorb *set, uint8_t byte, int k, const uint8_t below[4]) {
    bool in_char = k > 0;
    if (in_char) return byte >= 0x80 && byte <= 0xbf ? below[k - 1] : UINT8_MAX;
    int more = byte < 0x80 ? 0 : set->wide ? continuation_bytes(byte) : -1;
    if (byte < 0x80 && !(set->ascii[byte >> 6] >> (byte & 63) & 1)) more = -1;
    return more < 0 || below[more] >= UINT8_MAX - 1 ? UINT8_MAX : (uint8_t)(below[more] + 1);
}

/* From the leaves up. here[i][k] is what count_here gives for node i. */
static uint8_t *count_below(const trie *t, const absorb *set) {
    uint8_t(*here)[4] = mem_alloc(t->n * sizeof *here), *out = mem_alloc(t->n);
    for (size_t i = t->n; here && out && i-- > 0;) {
        uint8_t below[4] = {0};
        for (size_t c = i + 1; c < t->nodes[i].skip; c = t->nodes[c].skip)
            for (int k = 0; k < 4; k++) below[k] = MAX(below[k], here[c][k]);
        for (int k = 0; k < 4; k++) here[i][k] = count_here(set, t->nodes[i].byte, k, below);
        out[i] = below[0];
    }
    bool whole = here && out;
    mem_free(here);
    if (whole) return out;
    mem_free(out);
    return NULL;
}

/* ---- what a set absorbs -----------------------------------------------------------------------
 */

static absorbed *absorbed_new(const grammar_vocab *v, const absorb *set) {
    absorbed *a = mem_zero(1, sizeof *a);
    if (!a) return NULL;
    a->set = *set;
    if (make_slices(v, a) == 0 && (a->below = count_below(&v->all, set))) return a;
    absorbed_free(a);
    return NULL;
}

static absorbed *find_absorbed(const grammar_vocab *v, const absorb *set) {
    absorbed *a = v->absorbed;
    while (a &&
           (a->set.wide != set->wide || memcmp(a->set.ascii, set->ascii, sizeof set->ascii) != 0))
        a = a->next;
    return a;
}

const absorbed *vocab_absorb(grammar_vocab *v, const absorb *set) {
    enum { MOST = 12 };
    pthread_mutex_lock(&v->lock);
    absorbed *a = find_absorbed(v, set);
    if (!a && v->n_absorbed < MOST && (a = absorbed_new(v, set))) {
        a->next = v->absorbed;
        v->absorbed = a;
        v->n_absorbed++;
    }
    pthread_mutex_unlock(&v->lock);
    return a;
}
