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

/* What the loop that stands open in a state absorbs, and up to how many characters; NULL: there is
 * no such loop. */
static const absorbed *find_absorbed(const grammar *g, uint32_t state, uint32_t *most) {
    int absorb = automaton_absorb(g->automaton, state, most);
    return absorb < 0 ? NULL : g->absorbed[absorb];
}

/* Everything below node i of the whole trie fits after a state. */
static bool absorbs_below(const grammar *g, uint32_t state, size_t i) {
    uint32_t most;
    const absorbed *a = find_absorbed(g, state, &most);
    return a && a->below[i] != UINT8_MAX && a->below[i] <= most;
}

/* Tokens [first, end) of a trie fit. */
static void allow(const trie *t, uint32_t first, uint32_t end, uint64_t *bits) {
    for (uint32_t i = first; i < end; i++) bits[t->ids[i] >> 6] |= UINT64_C(1) << (t->ids[i] & 63);
}

/* Sets the bits of all tokens of a trie that fit after a state. */
static int walk(grammar *g, const trie *t, uint32_t from, uint64_t *bits) {
    enum { WORTH = 8 }; /* nodes below one that are worth the question whether all of them fit */
    const uint8_t *class_of = g->program.class_of;
    const uint32_t *rows = automaton_rows(g->automaton);
    const size_t width = g->program.n_classes, whole = t == &g->vocab->all ? WORTH : SIZE_MAX;
    uint32_t at_depth[LONGEST_TOKEN + 1]; /* the state after so many bytes */
    int made = 0;
    at_depth[0] = from;
    for (size_t i = 0; i < t->n;) {
        const trie_node *node = &t->nodes[i];
        uint32_t before = at_depth[node->depth - 1];
        uint32_t after = rows[before * width + class_of[node->byte]];
        if (after == STATE_UNKNOWN) {
            if (++made > WALK_LIMIT) return ICP_ELIMIT;
            TRY(automaton_step(g->automaton, before, class_of[node->byte], &after));
            rows = automaton_rows(g->automaton);
        }
        if (after == STATE_DEAD) {
            i = node->skip;
            continue;
        }
        at_depth[node->depth] = after;
        bool skip = node->skip - i > whole && absorbs_below(g, after, i);
        size_t next = skip ? node->skip : i + 1;
        allow(t, node->first, t->nodes[next].first, bits);
        i = next;
    }
    return 0;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* A loop that takes `most` more characters of a set lets all tokens of up to so many of them fit.
 * Longer ones may fit by other ways only. They need not be tried when all characters of the set
 * lead to one state, and from there again, and nowhere after most + 1 of them. */
enum { STATE_MIXED = STATE_UNKNOWN };

/* The UTF-8 of all code points from 128 on (The Unicode Standard, table 3-7). */
typedef struct byte_range {
    uint8_t first, last;
} byte_range;
static const struct encodings {
    int len;
    byte_range bytes[4];
} wide[] = {
    {2, {{0xc2, 0xdf}, {0x80, 0xbf}}},
    {3, {{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}}},
    {3, {{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}}},
    {3, {{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}}},
    {3, {{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}}},
    {4, {{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}},
    {4, {{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}},
    {4, {{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}}},
};

/* Where some characters lead. */
typedef struct meeting {
    bool any;
    uint32_t at; /* STATE_MIXED: to different states */
} meeting;

static void meet(meeting *m, uint32_t at) {
    if (m->any && m->at != at) at = STATE_MIXED;
    *m = (meeting){true, at};
}

/* Where len bytes of these ranges lead. */
static int meet_bytes(grammar *g, uint32_t from, const byte_range *bytes, int len, meeting *m) {
    byte_set seen = {0}; /* classes */
    for (unsigned byte = bytes->first; byte <= bytes->last; byte++) {
        unsigned class = g->program.class_of[byte];
        uint32_t after;
        if (byte_set_has(&seen, class)) continue;
        seen.bits[class >> 6] |= UINT64_C(1) << (class & 63);
        TRY(automaton_step(g->automaton, from, class, &after));
        if (len > 1)
            TRY(meet_bytes(g, after, bytes + 1, len - 1, m));
        else
            meet(m, after);
    }
    return 0;
}

/* The state to which all characters of a set lead, or STATE_MIXED. */
static int after_any(grammar *g, uint32_t from, const absorb *set, uint32_t *out) {
    meeting m = {0};
    for (unsigned byte = 0; byte < 128; byte++) {
        uint32_t after;
        if (!(set->ascii[byte >> 6] >> (byte & 63) & 1)) continue;
        TRY(automaton_step(g->automaton, from, g->program.class_of[byte], &after));
        meet(&m, after);
    }
    for (size_t i = 0; set->wide && i < COUNT_OF(wide); i++)
        TRY(meet_bytes(g, from, wide[i].bytes, wide[i].len, &m));
    *out = m.at;
    return 0;
}

/* Whether more than `most` characters of a set never fit. */
static int is_bounded(grammar *g, uint32_t state, const absorb *set, uint32_t most, bool *out) {
    *out = false;
    for (uint32_t n = 0; n <= most && state != STATE_DEAD; n++) {
        TRY(after_any(g, state, set, &state));
        if (state == STATE_MIXED) return 0;
    }
    *out = state == STATE_DEAD;
    return 0;
}

static int compute(grammar *g, uint32_t state, uint64_t *bits) {
    uint32_t most;
    const absorbed *a = find_absorbed(g, state, &most);
    size_t n_words = g->vocab->n_words;
    bool whole = a && most >= N_SLICES;
    if (a && most && !whole) TRY(is_bounded(g, state, &a->set, most, &whole));
    if (!whole) {
        memset(bits, 0, n_words * sizeof *bits);
        return walk(g, &g->vocab->all, state, bits);
    }
    size_t nth = MIN(most, (uint32_t)N_SLICES) - 1;
    memcpy(bits, a->slices + nth * n_words, n_words * sizeof *bits);
    return walk(g, &a->rest, state, bits);
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
