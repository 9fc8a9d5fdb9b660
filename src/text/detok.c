/* Detokenization: ids to bytes, at once or one token after another.
 *
 * A token may end in the middle of a character. The streaming form holds such bytes back until the
 * character is whole, or can no longer become one:
 *
 *   tokens   "caf\xC3"   "\xA9 "   "\xF0\x9F"   "a"
 *   out      "caf"       "é "      ""           "\uFFFDa"
 *   held     C3                    F0 9F
 *
 * Invariant: what is held is the beginning of one character, at most three bytes. */
#include "tokenizer_internal.h"

#include <string.h>

void detok_init(detok *d, const tokenizer *t, bool skip_special) {
    *d = (detok){.tok = t, .skip_special = skip_special};
}

/* The bytes of a token in running text. begun: whether text came before, for the one space that
 * encoding put in front of everything and that is dropped again. */
static text_str bytes_of(const tokenizer *t, int32_t id, bool skip_special, bool *begun) {
    bool control = t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_UNKNOWN;
    if (control && skip_special) return (text_str){0};
    text_str bytes = t->bytes[id];
    if (!bytes.len) return bytes;
    if (!*begun && t->space_prefix && bytes.data[0] == ' ')
        bytes = (text_str){bytes.data + 1, bytes.len - 1};
    *begun = true;
    return bytes;
}

/* Appends what of text is complete and holds back the rest. */
static void put(detok *d, const char *text, size_t len, buf *out) {
    size_t complete = utf8_complete(text, len);
    text_repair(text, complete, out);
    d->n_held = (int)(len - complete);
    memmove(d->held, text + complete, len - complete);
}

void detok_put(detok *d, int32_t id, buf *out) {
    text_str bytes = bytes_of(d->tok, id, d->skip_special, &d->begun);
    /* First the held bytes with as many new ones as their character may need, then the others. */
    while (d->n_held && bytes.len) {
        d->held[d->n_held++] = *bytes.data++;
        bytes.len--;
        put(d, d->held, (size_t)d->n_held, out);
    }
    if (bytes.len) put(d, bytes.data, bytes.len, out);
}

void detok_flush(detok *d, buf *out) {
    text_repair(d->held, (size_t)d->n_held, out);
    d->n_held = 0;
}

int tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                     buf *out) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= t->n) return ICP_EINVALID;
    bool begun = false;
    for (size_t i = 0; i < n; i++) {
        text_str bytes = bytes_of(t, ids[i], skip_special, &begun);
        buf_put(out, bytes.data, bytes.len);
    }
    return out->failed ? ICP_ENOMEM : 0;
}
