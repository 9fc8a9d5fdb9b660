/* Byte-level BPE, as GPT-2 introduced it (Radford et al. 2019, after Sennrich et al. 2016).
 *
 * Vocabulary files write each byte as a printable character: 0x21-7E, A1-AC and AE-FF as
 * themselves, the other 68 in order as U+0100, U+0101 … Here keys are the bytes themselves. */
#include "tokenizer_internal.h"

#include <string.h>

/* The byte that a stand-in character means; -1 when it means none. */
static int byte_of(int32_t cp) {
    if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xAC) || (cp >= 0xAE && cp <= 0xFF))
        return cp;
    int32_t nth = cp - 0x100; /* of the bytes 00-20, 7F-A0 and AD */
    if (nth < 0 || nth > 67) return -1;
    return nth <= 0x20 ? nth : nth < 67 ? 0x7F + (nth - 0x21) : 0xAD;
}

/* Writes the bytes that text stands for to out (text.len is room enough) and returns their
 * number; -1 when a character stands for none. */
static long put_bytes(text_str text, char *out) {
    long n = 0;
    for (size_t i = 0; i < text.len;) {
        int32_t cp;
        i += (size_t)utf8_decode(text.data + i, text.len - i, &cp);
        int byte = byte_of(cp);
        if (byte < 0) return -1;
        out[n++] = (char)byte;
    }
    return n;
}

/* Ordinary tokens mean bytes; added ones, and those with a character that means none, mean what
 * they say. Written to room; returns the length. */
static size_t read_token(tokenizer *t, int32_t id, text_str text, char *room) {
    int type = t->types[id];
    bool plain = type == TOKEN_UNKNOWN || type == TOKEN_CONTROL || type == TOKEN_USER;
    long n = plain ? -1 : put_bytes(text, room);
    if (n < 0 && text.len) memcpy(room, text.data, text.len);
    t->bytes[id] = (text_str){room, n < 0 ? text.len : (size_t)n};
    if (n >= 0 && type == TOKEN_NORMAL) token_table_put(&t->table, id);
    return t->bytes[id].len;
}

int bpe_read_tokens(tokenizer *t, const text_vocab *vocab) {
    t->keys = t->bytes;
    TRY(token_table_init(&t->table, &t->mem, t->keys, t->n));
    char *room = arena_alloc(&t->mem, vocab_text_size(vocab));
    if (!room) return ICP_ENOMEM;
    for (size_t id = 0; id < t->n; id++)
        room += read_token(t, (int32_t)id, vocab->tokens[id], room);
    /* A merge may also make a user-defined token, where no ordinary one has the same bytes. */
    for (size_t id = 0; id < t->n; id++)
        if (t->types[id] == TOKEN_USER) token_table_put(&t->table, (int32_t)id);
    for (int byte = 0; byte < 256; byte++) {
        char key = (char)byte;
        t->byte_ids[byte] = token_table_find(&t->table, &key, 1);
    }
    return 0;
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* The key that a side of a merge means, appended to out. */
static bool put_key(const tokenizer *t, text_str side, char *out, size_t *len) {
    if (t->kind == KIND_BPE) {
        long n = put_bytes(side, out + *len);
        if (n < 0) return false;
        *len += (size_t)n;
    } else {
        memcpy(out + *len, side.data, side.len);
        *len += side.len;
    }
    return true;
}

/* "left right", split at the first space after the first character. */
static bool split_merge(text_str merge, text_str *left, text_str *right) {
    if (!merge.len) return false;
    const char *space = memchr(merge.data + 1, ' ', merge.len - 1);
    if (!space) return false;
    *left = (text_str){merge.data, (size_t)(space - merge.data)};
    *right = (text_str){space + 1, merge.len - left->len - 1};
    return right->len > 0;
}

/* scratch: room for the longest merge. */
static void read_merge(tokenizer *t, text_str left, text_str right, uint32_t rank, char *scratch) {
    size_t left_len = 0, len;
    if (!put_key(t, left, scratch, &left_len)) return;
    len = left_len;
    if (!put_key(t, right, scratch, &len)) return;
    merge_rule rule = {
        .left = token_table_find(&t->table, scratch, left_len),
        .right = token_table_find(&t->table, scratch + left_len, len - left_len),
        .joined = token_table_find(&t->table, scratch, len),
        .rank = rank,
    };
    if (rule.left >= 0 && rule.right >= 0 && rule.joined >= 0) rule_table_put(&t->rules, rule);
}

int bpe_read_merges(tokenizer *t, const text_vocab *vocab, icp_error *err) {
    size_t longest = 0;
    for (size_t i = 0; i < vocab->n_merges; i++) longest = MAX(longest, vocab->merges[i].len);
    TRY(rule_table_init(&t->rules, &t->mem, vocab->n_merges));
    char *scratch = mem_alloc(longest + 1);
    if (!scratch) return ICP_ENOMEM;
    int rc = 0;
    for (size_t i = 0; !rc && i < vocab->n_merges; i++) {
        text_str left, right;
        if (split_merge(vocab->merges[i], &left, &right))
            read_merge(t, left, right, (uint32_t)i, scratch);
        else
            rc = error_set(err, ICP_EFORMAT, "merge %zu of the vocabulary is not two tokens", i);
    }
    mem_free(scratch);
    return rc;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* Appends the ids of one piece. Bytes that the vocabulary lacks are dropped, as upstream does. */
static int encode_piece(void *arg, const char *text, size_t len) {
    encoder *e = arg;
    const tokenizer *t = e->t;
    if (len == 1) {
        int32_t id = t->byte_ids[(uint8_t)text[0]];
        return id < 0 ? 0 : token_ids_push(e->out, id);
    }
    if (pretok_get_traits(t->pretok).whole_words) {
        int32_t id = token_table_find(&t->table, text, len);
        if (id >= 0) return token_ids_push(e->out, id);
    }
    TRY(merge_reserve(&e->merge, len));
    for (size_t i = 0; i < len; i++) {
        int32_t id = t->byte_ids[(uint8_t)text[i]];
        if (id >= 0) merge_add(&e->merge, (uint32_t)i, 1, id);
    }
    if (!e->merge.n) return 0;
    TRY(merge_run(&e->merge, t, text, merge_by_rule));
    for (uint32_t i = 0; i != MERGE_END; i = e->merge.symbols[i].next)
        TRY(token_ids_push(e->out, e->merge.symbols[i].id));
    return 0;
}

int bpe_encode(encoder *e, const char *text, size_t len) {
    const tokenizer *t = e->t;
    if (pretok_get_traits(t->pretok).nfc && !nfc_is_plain(text, len)) {
        buf_clear(&e->normal);
        TRY(nfc_normalize(text, len, &e->normal));
        text = e->normal.data;
        len = e->normal.len;
    }
    return pretok_split(t->pretok, &e->pretok, text, len, encode_piece, e);
}
