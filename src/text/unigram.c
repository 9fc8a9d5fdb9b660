/* The unigram model (Kudo 2018, arXiv 1804.10959): of all ways to write a word in tokens, the one
 * whose scores (log-probabilities) have the greatest sum.
 *
 *   "Hello  world"  ─▶  "▁Hello" "▁world"  ─▶  ▁He llo  ▁world
 *
 * Text is normalised by the file's map of characters and cut at white space, which is gone then; a
 * word gets U+2581 in front, and begins anew wherever the text itself has one. Within a word
 * best[i] is the best way to write its first i bytes, found from left to right (Viterbi). A
 * character that is no token counts as unknown, at a score below all others; neighbours of that
 * kind are one token. */
#include "tokenizer_internal.h"

#include <math.h>
#include <string.h>

static const double unknown_penalty = 10; /* below the least score of a token */

typedef struct unigram_best {
    double score;
    uint32_t from; /* where its last token begins */
    int32_t id;    /* of it; -1: unknown */
    bool reached;
} unigram_best;

/* ---- vocabulary ------------------------------------------------------------------------------ */

static void index_pieces(tokenizer *t) {
    double least = INFINITY;
    for (size_t id = 0; id < t->n; id++) {
        bool ordinary = t->types[id] == TOKEN_NORMAL;
        if (ordinary) least = MIN(least, (double)t->scores[id]);
        if ((ordinary || t->types[id] == TOKEN_USER) && t->keys[id].len)
            t->pieces.ids[t->pieces.n++] = (int32_t)id;
    }
    text_index_sort(&t->pieces, t->keys);
    t->unknown_score = (isinf(least) ? 0 : least) - unknown_penalty;
}

int unigram_read_tokens(tokenizer *t, const text_vocab *vocab, icp_error *err) {
    TRY(spm_read_tokens(t, vocab));
    t->pieces.ids = arena_alloc(&t->mem, t->n * sizeof *t->pieces.ids);
    if (!t->pieces.ids) return ICP_ENOMEM;
    index_pieces(t);
    if (!vocab->charsmap_size) return 0;
    int rc = charsmap_open(vocab->charsmap, vocab->charsmap_size, &t->charsmap);
    return rc == ICP_EFORMAT ? error_set(err, rc, "the map of characters is malformed") : rc;
}

/* ---- encoding -------------------------------------------------------------------------------- */

static int reserve_best(encoder *e, size_t n) {
    if (n <= e->n_best) return 0;
    size_t more = MAX(n, 2 * e->n_best);
    unigram_best *grown = mem_resize(e->best, more, sizeof *grown);
    if (!grown) return ICP_ENOMEM;
    e->best = grown;
    e->n_best = more;
    return 0;
}

/* Of equal ones the first stays. */
static void offer(unigram_best *best, size_t from, int32_t id, double score) {
    if (!best->reached || score > best->score)
        *best = (unigram_best){score, (uint32_t)from, id, true};
}

/* Offers every token that begins at `at`, and the unknown one where no token is the character. */
static void offer_all(const tokenizer *t, unigram_best *best, const char *word, size_t len,
                      size_t at, size_t step) {
    text_range range = text_index_begin(&t->pieces, word[at]);
    bool known = false;
    for (size_t depth = 1; range.low < range.high; depth++) {
        int32_t id = text_index_take(&t->pieces, &range, depth);
        if (id >= 0) {
            double score = t->types[id] == TOKEN_USER ? 0 : (double)t->scores[id];
            offer(&best[at + depth], at, id, best[at].score + score);
            known |= depth == step;
        }
        if (at + depth == len) break;
        text_index_narrow(&t->pieces, &range, depth, word[at + depth]);
    }
    if (!known) offer(&best[at + step], at, -1, best[at].score + t->unknown_score);
}

/* Bytes as tokens of their own, the last one first, where the vocabulary has them all; else one
 * unknown token. */
static int put_unknown(encoder *e, const char *text, size_t len) {
    const tokenizer *t = e->t;
    bool all = true;
    for (size_t i = 0; i < len; i++) all &= t->byte_ids[(uint8_t)text[i]] >= 0;
    if (!all) return t->unk < 0 ? 0 : token_ids_push(e->out, t->unk);
    while (len--) TRY(token_ids_push(e->out, t->byte_ids[(uint8_t)text[len]]));
    return 0;
}

static void reverse(int32_t *ids, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        int32_t id = ids[i];
        ids[i] = ids[n - 1 - i];
        ids[n - 1 - i] = id;
    }
}

/* The ids of the best way, which is known from its end. */
static int put_best(encoder *e, const char *word, size_t len) {
    const unigram_best *best = e->best;
    size_t before = e->out->n;
    for (size_t end = len, from; end > 0; end = from) {
        int32_t id = best[end].id;
        from = best[end].from;
        while (id < 0 && from > 0 && best[from].id < 0) from = best[from].from;
        TRY(id < 0 ? put_unknown(e, word + from, end - from) : token_ids_push(e->out, id));
    }
    reverse(e->out->id + before, e->out->n - before);
    return 0;
}

static int put_word(encoder *e, const char *word, size_t len) {
    TRY(reserve_best(e, len + 1));
    unigram_best *best = e->best;
    memset(best, 0, (len + 1) * sizeof *best);
    for (size_t at = 0; at < len;) {
        int32_t cp;
        size_t step = (size_t)utf8_decode(word + at, len - at, &cp);
        offer_all(e->t, best, word, len, at, step);
        at += step;
    }
    return put_best(e, word, len);
}

/* The word read so far, cut before every mark but the first byte's. */
static int end_word(encoder *e) {
    const buf *word = &e->word;
    if (word->failed) return ICP_ENOMEM;
    for (size_t start = 0, end; start < word->len; start = end) {
        const char *next =
            memmem(word->data + start + 1, word->len - start - 1, SPACE_MARK, SPACE_MARK_LEN);
        end = next ? (size_t)(next - word->data) : word->len;
        TRY(put_word(e, word->data + start, end - start));
    }
    buf_clear(&e->word);
    return 0;
}

int unigram_encode(encoder *e, const char *text, size_t len) {
    const tokenizer *t = e->t;
    buf_clear(&e->word);
    if (t->charsmap) {
        buf_clear(&e->normal);
        charsmap_put(t->charsmap, text, len, &e->normal);
        if (e->normal.failed) return ICP_ENOMEM;
        text = e->normal.data;
        len = e->normal.len;
    }
    for (size_t i = 0, step; i < len; i += step) {
        int32_t cp;
        step = (size_t)utf8_decode(text + i, len - i, &cp);
        if (is_white_space(cp)) {
            TRY(end_word(e));
            continue;
        }
        bool marked = len - i >= SPACE_MARK_LEN && !memcmp(text + i, SPACE_MARK, SPACE_MARK_LEN);
        if (!e->word.len && t->space_prefix && !marked)
            buf_put(&e->word, SPACE_MARK, SPACE_MARK_LEN);
        buf_put(&e->word, text + i, step);
    }
    return end_word(e);
}
