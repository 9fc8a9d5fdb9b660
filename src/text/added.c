/* Added tokens: those that are found in the text as they stand, before anything else happens to it.
 *
 * Leftmost first, longest there: what upstream tokenizers do. Tokens are at most MAX_ADDED bytes
 * long, so the scan is linear in the text whatever it holds. */
#include "tokenizer_internal.h"

#include <stdio.h>
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

int added_init(tokenizer *t, icp_error *err) {
    text_index *added = &t->added;
    size_t n = 0;
    for (size_t id = 0; id < t->n; id++) n += is_added(t, (int32_t)id);
    added->ids = arena_alloc(&t->mem, (n + 1) * sizeof *added->ids);
    if (!added->ids) return ICP_ENOMEM;
    for (size_t id = 0; id < t->n; id++) {
        if (!is_added(t, (int32_t)id)) continue;
        if (t->bytes[id].len > MAX_ADDED)
            return error_set(err, ICP_EUNSUPPORTED,
                             "special token %zu is %zu bytes long; at most %d are supported", id,
                             t->bytes[id].len, MAX_ADDED);
        added->ids[added->n++] = (int32_t)id;
    }
    text_index_sort(added, t->bytes);
    return 0;
}

/* The longest token at the start of text. */
static added_match longest_at(const tokenizer *t, const char *text, size_t len,
                              const uint8_t *origin, bool special) {
    added_match best = {.id = -1};
    text_range range = text_index_begin(&t->added, text[0]);
    bool trusted = special || (origin && origin[0] == TEXT_TEMPLATE);
    for (size_t depth = 1; range.low < range.high; depth++) {
        int32_t id = text_index_take(&t->added, &range, depth);
        if (id >= 0 && (trusted || t->types[id] == TOKEN_USER))
            best = (added_match){.len = depth, .id = id};
        if (depth == len) break;
        trusted = trusted && (special || origin[depth] == TEXT_TEMPLATE);
        text_index_narrow(&t->added, &range, depth, text[depth]);
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
