/* Other ids for the same bytes: a sampled text that came back as text and was cut differently.
 *
 *   tokens   … |user|…|assistant|  [Hel][lo ][wor][ld][!]  [<end>] …      what the tokenizer gives
 *   space    … |user|…|assistant|  [Hello][ wor][ld][!]    [<end>] …      what the model sampled
 *                                        ^ in step again after "ld"
 *
 * Two cursors go side by side, one over the tokens and one down the tree; they are *in step* where
 * both have spelled the same bytes with whole tokens. Equal ids in step are taken as they are,
 * which is the only way past a special token; otherwise bytes must be equal. A stretch from step to
 * step whose ids differ counts only when something in it was sampled: what a client sent as tokens,
 * or a template wrote, is never cut anew. The last time in step is the end of what was found. */
#include <string.h>

#include "cache_internal.h"

enum { SIBLINGS = 8 }; /* pages that are tried on each side of the place where the tokens stand */

typedef struct cursor {
    const cache_spelling *spelling;
    const int32_t *tokens;
    size_t n;
    size_t at, off; /* next token, and how many of its bytes are spelled */
    bool sampled;   /* something in this stretch was */
    size_t taken;   /* tokens of the tree so far */
    size_t in, out; /* the same when last in step: of tokens, of the tree */
    bool differs;   /* up to there, in some id */
} cursor;

static void in_step(cursor *c) {
    c->in = c->at;
    c->out = c->taken;
    c->sampled = false;
}

/* One token down the tree. False: the bytes part here. */
static bool take(cursor *c, int32_t id, bool sampled) {
    c->taken++;
    if (c->off == 0 && c->at < c->n && c->tokens[c->at] == id) {
        c->at++;
        in_step(c);
        return true;
    }
    size_t len, other_len;
    const char *bytes = c->spelling->bytes(c->spelling->arg, id, &len);
    if (!bytes || len == 0) return false;
    while (len > 0) {
        if (c->at == c->n) return false;
        const char *other = c->spelling->bytes(c->spelling->arg, c->tokens[c->at], &other_len);
        if (!other || other_len <= c->off) return false;
        size_t same = MIN(len, other_len - c->off);
        if (memcmp(bytes, other + c->off, same) != 0) return false;
        bytes += same;
        len -= same;
        c->off += same;
        if (c->off < other_len) continue;
        c->off = 0;
        c->at++;
    }
    c->sampled |= sampled;
    if (c->off > 0) return true;
    if (!c->sampled) return false;
    c->differs = true;
    in_step(c);
    return true;
}

/* The cursor after a page; the number of its tokens that were taken. */
static size_t take_page(cursor *c, const page *p) {
    size_t i = 0;
    while (i < p->n && take(c, p->tokens[i], p->sampled >> i & 1)) i++;
    return i;
}

typedef struct choice {
    cursor cursor;
    const page *page;
    size_t taken;
} choice;

static void consider(choice *best, const cursor *from, const page *p) {
    choice c = {.cursor = *from, .page = p};
    c.taken = take_page(&c.cursor, p);
    bool better =
        c.cursor.in > best->cursor.in || (c.cursor.in == best->cursor.in && c.taken > best->taken);
    if (!best->page || better) *best = c;
}

/* The child of parent along which most is spelled alike. */
static choice choose(const cache_space *space, const page *parent, const cursor *from) {
    choice best = {.cursor = *from};
    size_t common, left = MIN(from->n - from->at, CACHE_PAGE);
    treap_link *children = tree_children(space, parent);
    page *near =
        from->off ? NULL : tree_find(space, parent, from->tokens + from->at, left, &common);
    if (near) consider(&best, from, near);
    if (near && common == CACHE_PAGE) return best;
    if (!near) near = tree_page(treap_first(children));
    page *p = near;
    for (int i = 0; p && i < SIBLINGS; i++, p = tree_after(p)) consider(&best, from, p);
    p = near;
    for (int i = 0; p && i < SIBLINGS; i++, p = tree_before(p)) consider(&best, from, p);
    return best;
}

/* Copies what was taken of a page, as far as there is room. */
static bool put(const page *p, size_t n, int32_t *out, size_t room, size_t done) {
    if (n > room - done) return false;
    memcpy(out + done, p->tokens, n * sizeof *out);
    return true;
}

bool cache_respell(const cache *c, const cache_space *space, const cache_spelling *spelling,
                   const int32_t *tokens, size_t n, int32_t *out, size_t room, size_t *n_out,
                   size_t *n_in) {
    size_t base = cache_space_base(space);
    if (base > MIN(n, room)) return false;
    memcpy(out, tokens, base * sizeof *out);
    cursor at = {.spelling = spelling, .tokens = tokens, .n = n, .at = base, .taken = base};
    in_step(&at);
    for (const page *p = NULL; at.at < n;) {
        choice best = choose(space, p, &at);
        if (!best.page || !put(best.page, best.taken, out, room, at.taken)) break;
        at = best.cursor;
        p = best.page;
        if (best.taken < CACHE_PAGE) break;
    }
    *n_out = at.out;
    *n_in = at.in;
    return at.differs;
}
