/* SentencePiece's normalisation: a map from short texts to others, compiled into a file.
 *
 *   size of trie (4 bytes)   trie: units of 4 bytes   texts, each ended by a NUL
 *
 * All numbers are little-endian. The trie is a double array of the form of Darts-clone (Yata,
 * "darts-clone: a clone of Darts", 2008): from unit u the byte b leads to unit u ^ offset(u) ^ b,
 * if that has the label b. A unit with the leaf bit has a value at u ^ offset(u): where the text
 * that takes the place of what was read begins.
 *
 *   31  30 … 10  9      8     7 … 0
 *   0   offset   times  leaf  label       a value has bit 31 set, and its number in the others
 *                256
 *
 * The text is read as upstream's tokenizers read it, which is not how SentencePiece does: by what a
 * reader takes for one character (UAX #29), if that is shorter than 6 bytes and something in the
 * map is a prefix of it, which then replaces all of it; else by code points. */
#include "tokenizer_internal.h"

#include <string.h>
#include <utf8proc.h>

enum { LONGEST = 6 }; /* bytes of a cluster that is too long */

struct charsmap {
    size_t n_units, texts_size;
    const char *texts; /* within the block */
    uint32_t units[];
};

static uint32_t number_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

int charsmap_open(const uint8_t *blob, size_t size, charsmap **out) {
    if (size < 4) return ICP_EFORMAT;
    size_t trie = number_at(blob);
    if (trie == 0 || trie % 4 || trie > size - 4) return ICP_EFORMAT;
    size_t texts = size - 4 - trie;
    if (texts == 0 || blob[size - 1]) return ICP_EFORMAT;
    charsmap *c = mem_alloc(sizeof *c + trie + texts);
    if (!c) return ICP_ENOMEM;
    c->n_units = trie / 4;
    c->texts_size = texts;
    for (size_t i = 0; i < c->n_units; i++) c->units[i] = number_at(blob + 4 + 4 * i);
    char *copy = (char *)(c->units + c->n_units);
    memcpy(copy, blob + 4 + trie, texts);
    c->texts = copy;
    *out = c;
    return 0;
}

void charsmap_close(charsmap **c) {
    mem_free(*c);
    *c = NULL;
}

static uint32_t offset_of(uint32_t unit) {
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* What the shortest entry that text begins with is replaced by; NULL when there is none. */
static const char *find(const charsmap *c, const char *text, size_t len) {
    const uint32_t leaf = 1u << 8, label = 1u << 31 | 0xFF, value = ~(1u << 31);
    size_t at = offset_of(c->units[0]);
    for (size_t i = 0; i < len && text[i]; i++) {
        uint8_t byte = (uint8_t)text[i];
        at ^= byte;
        if (at >= c->n_units || (c->units[at] & label) != byte) return NULL;
        uint32_t unit = c->units[at];
        at ^= offset_of(unit);
        if (!(unit & leaf)) continue;
        if (at >= c->n_units) return NULL;
        size_t start = c->units[at] & value;
        return start < c->texts_size ? c->texts + start : NULL;
    }
    return NULL;
}

static void put_cluster(const charsmap *c, const char *text, size_t len, buf *out) {
    const char *instead = len < LONGEST ? find(c, text, len) : NULL;
    if (instead) {
        buf_puts(out, instead);
        return;
    }
    for (size_t i = 0; i < len;) {
        int32_t cp;
        size_t step = (size_t)utf8_decode(text + i, len - i, &cp);
        instead = find(c, text + i, step);
        if (instead)
            buf_puts(out, instead);
        else
            buf_put(out, text + i, step);
        i += step;
    }
}

void charsmap_put(const charsmap *c, const char *text, size_t len, buf *out) {
    int32_t last = -1, cp, state = 0;
    size_t start = 0;
    for (size_t i = 0, step; i < len; i += step, last = cp) {
        step = (size_t)utf8_decode(text + i, len - i, &cp);
        if (last < 0 || !utf8proc_grapheme_break_stateful(last, cp, &state)) continue;
        put_cluster(c, text + start, i - start, out);
        start = i;
    }
    put_cluster(c, text + start, len - start, out);
}
