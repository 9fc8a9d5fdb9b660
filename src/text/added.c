/* Added tokens: those that are found in the text as they stand, before anything else happens to it.
 *
 * Their texts are kept sorted, `first[b]` being the index of the first one that begins with byte b
 * or a greater one. Reading on from a place in the text narrows the range of those that still fit:
 *
 *   ids (by text)   <|end|>  <|endoftext|>  <|im_end|>  <|im_start|>  [INST]
 *   after "<|e"     ^^^^^^^^^^^^^^^^^^^^^^
 *
 * A token that ends at the byte just read is the first of its range; the last such one is the
 * longest match. Leftmost first, longest there: what upstream tokenizers do. Tokens are at most
 * MAX_ADDED bytes long, so the scan is linear in the text whatever it holds. */
#include "tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ADDED = 512 };

/* Converters fill a vocabulary up to the size of the model's matrices with "[PADnnn]"; upstream
 * tokenizers have no such tokens. */
static bool is_filler(int32_t id, text_str text) {
    char filler[32];
    int len = snprintf(filler, sizeof filler, "[PAD%d]", id);
    return text.len == (size_t)len && !memcmp(text.data, filler, text.len);
}

static bool is_added(const tokenizer *t, int32_t id) {
    switch (t->types[id]) {
    case TOKEN_UNKNOWN:
    case TOKEN_CONTROL:
    case TOKEN_USER:
        return t->bytes[id].len > 0 && !is_filler(id, t->bytes[id]);
    default:
        return false;
    }
}

static int by_text(const void *a, const void *b, void *arg) {
    const tokenizer *t = arg;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const text_str *s = &t->bytes[x], *r = &t->bytes[y];
    int order = memcmp(s->data, r->data, MIN(s->len, r->len));
    if (order) return order;
    if (s->len != r->len) return s->len < r->len ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool same_text(const tokenizer *t, int32_t x, int32_t y) {
    return t->bytes[x].len == t->bytes[y].len &&
           !memcmp(t->bytes[x].data, t->bytes[y].data, t->bytes[x].len);
}

int added_init(tokenizer *t, icp_error *err) {
    added_tokens *added = &t->added;
    for (size_t id = 0; id < t->n; id++) added->n += is_added(t, (int32_t)id);
    added->ids = arena_alloc(&t->mem, (added->n + 1) * sizeof *added->ids);
    if (!added->ids) return ICP_ENOMEM;
    size_t n = 0;
    for (size_t id = 0; id < t->n; id++) {
        if (!is_added(t, (int32_t)id)) continue;
        if (t->bytes[id].len > MAX_ADDED)
            return error_set(err, ICP_EUNSUPPORTED,
                             "special token %zu is %zu bytes long; at most %d are supported", id,
                             t->bytes[id].len, MAX_ADDED);
        added->ids[n++] = (int32_t)id;
    }
    qsort_r(added->ids, n, sizeof *added->ids, by_text, t);
    added->n = 0; /* of equal texts the lowest id stays */
    for (size_t i = 0; i < n; i++)
        if (!added->n || !same_text(t, added->ids[added->n - 1], added->ids[i]))
            added->ids[added->n++] = added->ids[i];
    size_t i = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (i < added->n && (uint8_t)t->bytes[added->ids[i]].data[0] < byte) i++;
        added->first[byte] = (uint32_t)i;
    }
    return 0;
}

/* The first of ids[lo, hi), all longer than depth, whose byte at depth is at least `byte`. */
static size_t lower_bound(const tokenizer *t, size_t lo, size_t hi, size_t depth, int byte) {
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if ((uint8_t)t->bytes[t->added.ids[middle]].data[depth] < byte)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* The longest token at the start of text. trusted: NULL when every byte is. */
static added_match longest_at(const tokenizer *t, const char *text, size_t len,
                              const uint8_t *origin, bool special) {
    added_match best = {.id = -1};
    size_t lo = t->added.first[(uint8_t)text[0]], hi = t->added.first[(uint8_t)text[0] + 1];
    bool trusted = special || (origin && origin[0] == TEXT_TEMPLATE);
    for (size_t depth = 1; lo < hi; depth++) {
        int32_t id = t->added.ids[lo];
        if (t->bytes[id].len == depth) {
            if (trusted || t->types[id] == TOKEN_USER) best = (added_match){.len = depth, .id = id};
            lo++;
        }
        if (depth == len) break;
        trusted = trusted && (special || origin[depth] == TEXT_TEMPLATE);
        int byte = (uint8_t)text[depth];
        lo = lower_bound(t, lo, hi, depth, byte);
        hi = lower_bound(t, lo, hi, depth, byte + 1);
    }
    return best;
}

added_match added_find(const tokenizer *t, const char *text, size_t len, size_t at,
                       const uint8_t *origin, bool special) {
    const uint32_t *first = t->added.first;
    for (; at < len; at++) {
        uint8_t byte = (uint8_t)text[at];
        if (first[byte] == first[byte + 1]) continue;
        added_match match =
            longest_at(t, text + at, len - at, origin ? origin + at : NULL, special);
        if (match.id < 0) continue;
        match.start = at;
        return match;
    }
    return (added_match){.start = len, .id = -1};
}
