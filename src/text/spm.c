/* SentencePiece-style BPE (Kudo and Richardson 2018): no pre-tokenizer, no byte alphabet.
 *
 *   "Hello  world"  ─▶  "▁Hello▁▁world"  ─▶  characters  ─▶  joined by score  ─▶  ids
 *
 * Spaces become U+2581. Neighbours whose joined text is a token are joined, the highest score
 * first ("llama"), or by merge rules ("gemma4"). What is no token in the end falls back to one
 * token "<0xXX>" for each of its bytes. A byte that is no UTF-8 is a symbol of its own, and so
 * comes out as its own byte token: nothing is lost. */
#include "tokenizer_internal.h"

#include <string.h>

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The byte of a token "<0xXX>"; -1 for any other. */
static int byte_of(text_str text) {
    if (text.len != 6 || memcmp(text.data, "<0x", 3) || text.data[5] != '>') return -1;
    int high = hex_value(text.data[3]), low = hex_value(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Copies text with U+2581 turned into spaces; returns the length. */
static size_t put_spaces(text_str text, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < text.len;) {
        if (text.len - i >= SPACE_MARK_LEN && !memcmp(text.data + i, SPACE_MARK, SPACE_MARK_LEN)) {
            out[n++] = ' ';
            i += SPACE_MARK_LEN;
        } else {
            out[n++] = text.data[i++];
        }
    }
    return n;
}

/* Writes key and bytes of a token to room and returns the length of both. */
static size_t read_token(tokenizer *t, int32_t id, text_str text, char *room) {
    char *bytes = room + text.len;
    size_t n = 0;
    if (text.len) memcpy(room, text.data, text.len);
    t->keys[id] = (text_str){room, text.len};
    t->bytes[id] = t->keys[id];
    if (t->types[id] == TOKEN_BYTE && byte_of(text) >= 0) {
        int byte = byte_of(text);
        bytes[n++] = (char)byte;
        t->bytes[id] = (text_str){bytes, n};
        if (t->byte_ids[byte] < 0) t->byte_ids[byte] = id;
    } else if (t->types[id] == TOKEN_NORMAL || t->types[id] == TOKEN_UNUSED) {
        n = put_spaces(text, bytes);
        t->bytes[id] = (text_str){bytes, n};
        if (t->types[id] == TOKEN_NORMAL) token_table_put(&t->table, id);
    }
    return text.len + n;
}

int spm_read_tokens(tokenizer *t, const text_vocab *vocab) {
    char *room = arena_alloc(&t->mem, 2 * vocab_text_size(vocab));
    t->keys = arena_alloc(&t->mem, t->n * sizeof *t->keys);
    if (!room || !t->keys) return ICP_ENOMEM;
    TRY(token_table_init(&t->table, &t->mem, t->keys, t->n));
    for (int byte = 0; byte < 256; byte++) t->byte_ids[byte] = -1;
    for (size_t id = 0; id < t->n; id++)
        room += read_token(t, (int32_t)id, vocab->tokens[id], room);
    /* A join may also make a user-defined token, where no ordinary one has the same text. */
    for (size_t id = 0; id < t->n; id++)
        if (t->types[id] == TOKEN_USER) token_table_put(&t->table, (int32_t)id);
    return 0;
}

/* Maps scores to integers that grow as scores fall. */
static uint32_t order_of(float score) {
    union {
        float value;
        uint32_t bits;
    } u = {.value = score + 0.0f}; /* -0 becomes 0 */
    uint32_t rising = u.bits & 0x80000000u ? ~u.bits : u.bits | 0x80000000u;
    return ~rising;
}

static bool join_by_score(const tokenizer *t, const char *text, const merge_symbol *left,
                          const merge_symbol *right, int32_t *id, uint32_t *order) {
    *id = token_table_find(&t->table, text + left->at, left->len + right->len);
    if (*id < 0) return false;
    *order = order_of(t->scores[*id]);
    return true;
}

static int put_symbol(encoder *e, const char *text, const merge_symbol *s) {
    const tokenizer *t = e->t;
    if (s->id >= 0) return token_ids_push(e->out, s->id);
    for (uint32_t i = s->at; i < s->at + s->len; i++) {
        int32_t id = t->byte_ids[(uint8_t)text[i]];
        if (id >= 0) {
            TRY(token_ids_push(e->out, id));
        } else { /* a vocabulary without byte tokens: one unknown token for the character */
            return t->unk < 0 ? 0 : token_ids_push(e->out, t->unk);
        }
    }
    return 0;
}

/* The text with its spaces marked, and the prefix in front. */
static int mark_spaces(const tokenizer *t, const char *text, size_t len, buf *out) {
    if (t->space_prefix) buf_put(out, SPACE_MARK, SPACE_MARK_LEN);
    for (size_t done = 0; done < len;) {
        const char *space = memchr(text + done, ' ', len - done);
        size_t next = space ? (size_t)(space - text) : len;
        buf_put(out, text + done, next - done);
        if (space) buf_put(out, SPACE_MARK, SPACE_MARK_LEN);
        done = next + (space != NULL);
    }
    return out->failed ? ICP_ENOMEM : 0;
}

int spm_encode(encoder *e, const char *text, size_t len) {
    const tokenizer *t = e->t;
    buf_clear(&e->normal);
    TRY(mark_spaces(t, text, len, &e->normal));
    text = e->normal.data;
    len = e->normal.len;
    TRY(merge_reserve(&e->merge, len));
    for (size_t i = 0; i < len;) {
        int32_t cp;
        size_t step = (size_t)utf8_decode(text + i, len - i, &cp);
        if (cp < 0) step = 1;
        merge_add(&e->merge, (uint32_t)i, (uint32_t)step,
                  token_table_find(&t->table, text + i, step));
        i += step;
    }
    TRY(merge_run(&e->merge, t, text, t->kind == KIND_SPM ? join_by_score : merge_by_rule));
    for (uint32_t i = 0; i != MERGE_END; i = e->merge.symbols[i].next)
        TRY(put_symbol(e, text, &e->merge.symbols[i]));
    return 0;
}
