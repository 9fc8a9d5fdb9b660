/* Texts in the making, and the tokens that fit. All matchers of a grammar share its automaton: what
 * one has found out, the others know. */
#include "grammar_internal.h"

#include <string.h>

enum {
    AUTOMATON_LIMIT = 64 << 20, /* bytes; above it all is forgotten but what live matchers need */
    WALK_LIMIT = 500000,        /* new states that one mask may make */
};

/* ---- life ------------------------------------------------------------------------------------ */

static void note_state(matcher *m) {
    const automaton *a = m->grammar->automaton;
    m->can_end = automaton_accepts(a, m->state);
    m->must_end = m->can_end && automaton_stops(a, m->state);
}

int matcher_new(grammar *g, matcher **out) {
    matcher *m = mem_zero(1, sizeof *m);
    if (!m) return ICP_ENOMEM;
    m->grammar = grammar_ref(g);
    pthread_mutex_lock(&g->lock);
    m->state = automaton_start(g->automaton);
    m->next = g->matchers;
    if (m->next) m->next->prev = m;
    g->matchers = m;
    note_state(m);
    pthread_mutex_unlock(&g->lock);
    *out = m;
    return 0;
}

void matcher_free(matcher **mp) {
    matcher *m = *mp;
    *mp = NULL;
    if (!m) return;
    grammar *g = m->grammar;
    pthread_mutex_lock(&g->lock);
    if (m->prev)
        m->prev->next = m->next;
    else
        g->matchers = m->next;
    if (m->next) m->next->prev = m->prev;
    pthread_mutex_unlock(&g->lock);
    mem_free(m);
    grammar_unref(&g);
}

bool matcher_can_end(const matcher *m) {
    return m->can_end;
}

bool matcher_must_end(const matcher *m) {
    return m->must_end;
}

/* Keeps the automaton within its limit. When there is no memory for that, it stays as it is. */
static void collect(grammar *g) {
    if (automaton_size(g->automaton) < AUTOMATON_LIMIT) return;
    size_t n = 0;
    for (matcher *m = g->matchers; m; m = m->next) n++;
    uint32_t **states = mem_alloc(n * sizeof *states);
    if (!states) return;
    n = 0;
    for (matcher *m = g->matchers; m; m = m->next) states[n++] = &m->state;
    automaton_collect(g->automaton, states, n);
    mem_free(states);
}

/* ---- going on -------------------------------------------------------------------------------- */

static int put(matcher *m, const char *bytes, size_t len) {
    const grammar *g = m->grammar;
    uint32_t state = m->state;
    for (size_t i = 0; i < len && state != STATE_DEAD; i++)
        TRY(automaton_step(g->automaton, state, g->program.class_of[(uint8_t)bytes[i]], &state));
    if (state == STATE_DEAD) return ICP_EINVALID;
    m->state = state;
    note_state(m);
    return 0;
}

int matcher_put(matcher *m, const char *bytes, size_t len) {
    pthread_mutex_lock(&m->grammar->lock);
    collect(m->grammar);
    int rc = put(m, bytes, len);
    pthread_mutex_unlock(&m->grammar->lock);
    return rc;
}

int matcher_put_token(matcher *m, int32_t token) {
    const grammar_vocab *v = m->grammar->vocab;
    if (token < 0 || (size_t)token >= v->n || v->tokens[token].len == 0) return ICP_EINVALID;
    return matcher_put(m, v->tokens[token].data, v->tokens[token].len);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void allow(const grammar_vocab *v, int32_t token, uint64_t *bits) {
    for (; token >= 0; token = v->twin[token]) bits[token >> 6] |= UINT64_C(1) << (token & 63);
}

/* Sets the bits of all tokens of a trie that fit after a state. */
static int walk(grammar *g, const trie *t, uint32_t from, uint64_t *bits) {
    const grammar_vocab *v = g->vocab;
    const uint8_t *class_of = g->program.class_of;
    uint32_t at_depth[LONGEST_TOKEN + 1]; /* the state after so many bytes */
    int made = 0;
    at_depth[0] = from;
    for (size_t i = 0; i < t->n;) {
        const trie_node *node = &t->nodes[i];
        uint32_t before = at_depth[node->depth - 1];
        uint32_t after = automaton_row(g->automaton, before)[class_of[node->byte]];
        if (after == STATE_UNKNOWN) {
            if (++made > WALK_LIMIT) return ICP_ELIMIT;
            TRY(automaton_step(g->automaton, before, class_of[node->byte], &after));
        }
        if (after == STATE_DEAD) {
            i = node->skip;
            continue;
        }
        at_depth[node->depth] = after;
        if (node->token >= 0) allow(v, node->token, bits);
        i++;
    }
    return 0;
}

/* The slice that a state can take as a whole; NULL: none. */
static const slice *find_slice(const grammar *g, uint32_t state) {
    uint32_t most;
    int absorb = automaton_absorb(g->automaton, state, &most);
    if (absorb < 0 || most < SLICE_SHORT) return NULL;
    return g->slices[absorb][most >= SLICE_LONG];
}

static int compute(grammar *g, uint32_t state, uint64_t *bits) {
    const slice *s = find_slice(g, state);
    size_t size = g->vocab->n_words * sizeof *bits;
    if (!s) {
        memset(bits, 0, size);
        return walk(g, &g->vocab->all, state, bits);
    }
    memcpy(bits, s->bits, size);
    return walk(g, &s->rest, state, bits);
}

/* Into bits of the vocabulary's own length; keeps the result when there is memory for that. */
static int find_mask(grammar *g, uint32_t state, uint64_t *bits) {
    size_t n_words = g->vocab->n_words;
    uint64_t *kept = automaton_mask(g->automaton, state, n_words, false);
    if (kept) {
        memcpy(bits, kept, n_words * sizeof *bits);
        return 0;
    }
    TRY(compute(g, state, bits));
    kept = automaton_mask(g->automaton, state, n_words, true);
    if (kept) memcpy(kept, bits, n_words * sizeof *bits);
    return 0;
}

long matcher_mask(matcher *m, uint64_t *bits, size_t n_words) {
    grammar *g = m->grammar;
    size_t own = g->vocab->n_words;
    if (n_words < own) return ICP_EINVALID;
    memset(bits + own, 0, (n_words - own) * sizeof *bits);
    pthread_mutex_lock(&g->lock);
    collect(g);
    int rc = find_mask(g, m->state, bits);
    pthread_mutex_unlock(&g->lock);
    if (rc < 0) return rc;
    long n = 0;
    for (size_t i = 0; i < own; i++) n += __builtin_popcountll(bits[i]);
    return n;
}
