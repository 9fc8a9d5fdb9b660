/* WordPiece, as BERT has it (Devlin et al. 2019): words, and in each the longest token first.
 *
 *   "Unaffable café!"  ─▶  "unaffable" "cafe" "!"  ─▶  un ##aff ##able cafe !
 *
 * Words are cut at white space, punctuation and Chinese characters, after control characters were
 * dropped, accents stripped, and letters made lower case (where the vocabulary is). A word that the
 * tokens cannot spell is one unknown token.
 *
 * A model file has U+2581 in front of the tokens that begin a word, and nothing in front of those
 * that continue one. Here the two are in tables of their own, without the mark, so that a mark in
 * the text never passes for the beginning of a word. */
#include "tokenizer_internal.h"

#include <string.h>
#include <utf8proc.h>

enum { MAX_WORD = 100 }; /* characters; a longer word is unknown */

/* ---- vocabulary ------------------------------------------------------------------------------ */

static bool begins_word(text_str text) {
    return text.len > SPACE_MARK_LEN && !memcmp(text.data, SPACE_MARK, SPACE_MARK_LEN);
}

/* Writes a token's bytes to room and returns their length; the key is what follows a space. */
static size_t read_token(tokenizer *t, int32_t id, text_str text, char *room) {
    bool ordinary = t->types[id] == TOKEN_NORMAL, begins = ordinary && begins_word(text);
    size_t n = 0;
    if (begins) {
        room[n++] = ' ';
        text = (text_str){text.data + SPACE_MARK_LEN, text.len - SPACE_MARK_LEN};
    }
    if (text.len) memcpy(room + n, text.data, text.len);
    t->keys[id] = (text_str){room + n, text.len};
    t->bytes[id] = (text_str){room, n + text.len};
    if (ordinary && text.len) token_table_put(begins ? &t->table : &t->inner, id);
    return n + text.len;
}

int wordpiece_read_tokens(tokenizer *t, const text_vocab *vocab) {
    char *room = arena_alloc(&t->mem, vocab_text_size(vocab));
    t->keys = arena_alloc(&t->mem, t->n * sizeof *t->keys);
    if (!room || !t->keys) return ICP_ENOMEM;
    TRY(token_table_init(&t->table, &t->mem, t->keys, t->n));
    TRY(token_table_init(&t->inner, &t->mem, t->keys, t->n));
    for (size_t id = 0; id < t->n; id++)
        room += read_token(t, (int32_t)id, vocab->tokens[id], room);
    t->lowercase = vocab->lowercase != 0;
    t->strip_accents = vocab->strip_accents < 0 ? t->lowercase : vocab->strip_accents > 0;
    return 0;
}

/* ---- kinds of characters --------------------------------------------------------------------- */

/* Upstream classes characters as Unicode 8 did. What has become punctuation, a mark or a format
 * character since then is an ordinary letter to it; these ranges hold such characters, and none
 * that was one of these before. */
static const struct range {
    int32_t first, last;
} younger[] = {
    {0x61D, 0x61D},     {0x7FA, 0x815},     {0x85F, 0x8E2},     {0x9E4, 0xA00},
    {0xA76, 0xA80},     {0xAF1, 0xB00},     {0xB4E, 0xB55},     {0xC01, 0xC3D},
    {0xC64, 0xC80},     {0xC82, 0xCBB},     {0xCE4, 0xD00},     {0xD02, 0xD40},
    {0xD64, 0xDC9},     {0xEBA, 0xEBA},     {0xECE, 0xF03},     {0x180F, 0x18A8},
    {0x1ABE, 0x1AFF},   {0x1B74, 0x1B7F},   {0x1DF6, 0x1DFB},   {0x2E43, 0x2FFF},
    {0xA827, 0xA873},   {0xA8C5, 0xA8CD},   {0xA8FD, 0xA925},   {0xA9BD, 0xA9C0},
    {0x10B9D, 0x10FFF}, {0x1104E, 0x1107E}, {0x110C2, 0x110FF}, {0x111CE, 0x111DA},
    {0x1123E, 0x112A8}, {0x11302, 0x1133B}, {0x11375, 0x114B2}, {0x11644, 0x116AA},
    {0x116B8, 0x1171C}, {0x1173F, 0x1246F}, {0x12475, 0x16A6D}, {0x16B45, 0x16F8E},
    {0x16F93, 0x1BC9C}, {0x1BCA4, 0x1D166}, {0x1DAB0, 0x1E8CF}, {0x1E8D7, 0xE0000},
};

enum { /* to Unicode 8 the first two were punctuation, the third a mark without width */
       CANADIAN_CHI_SIGN = 0x166D,
       SHARADA_SANDHI_MARK = 0x111C9,
       HANUNOO_PAMUDPOD = 0x1734,
};

static bool is_younger(int32_t cp) {
    size_t low = 0, high = COUNT_OF(younger);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (younger[middle].last < cp)
            low = middle + 1;
        else
            high = middle;
    }
    return low < COUNT_OF(younger) && younger[low].first <= cp;
}

static bool is_dropped(int32_t cp) {
    if (cp == '\t' || cp == '\n' || cp == '\r') return false;
    if (cp == 0 || cp == 0xFFFD) return true;
    utf8proc_category_t c = utf8proc_category(cp);
    return (c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO) &&
           !is_younger(cp);
}

static bool is_punctuation(int32_t cp) {
    if (cp < 0x80)
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    if (cp == CANADIAN_CHI_SIGN || cp == SHARADA_SANDHI_MARK) return true;
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO && !is_younger(cp);
}

static bool is_accent(int32_t cp) {
    if (cp == HANUNOO_PAMUDPOD) return true;
    return utf8proc_category(cp) == UTF8PROC_CATEGORY_MN && cp != SHARADA_SANDHI_MARK &&
           !is_younger(cp);
}

/* As upstream has the ranges, one of them by a slip of its own. */
static bool is_chinese(int32_t cp) {
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B73F) ||
           (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

/* ---- encoding -------------------------------------------------------------------------------- */

static void put_character(buf *out, int32_t cp) {
    char bytes[4];
    buf_put(out, bytes, (size_t)utf8_encode(cp, bytes));
}

/* Without what is dropped, white space as spaces, and spaces around Chinese characters. */
static void clean(const char *text, size_t len, buf *out) {
    for (size_t i = 0; i < len;) {
        int32_t cp;
        size_t step = (size_t)utf8_decode(text + i, len - i, &cp);
        bool chinese = is_chinese(cp);
        if (chinese) buf_putc(out, ' ');
        if (!is_dropped(cp)) {
            if (is_white_space(cp))
                buf_putc(out, ' ');
            else
                buf_put(out, text + i, step);
        }
        if (chinese) buf_putc(out, ' ');
        i += step;
    }
}

/* The longest token of a table at the start of text; -1. It ends where a character does. */
static int32_t longest_at(const token_table *table, const char *text, size_t len, size_t *taken) {
    for (size_t n = MIN(len, table->max_len); n > 0; n--) {
        if (n < len && ((uint8_t)text[n] & 0xC0) == 0x80) continue;
        int32_t id = token_table_find(table, text, n);
        if (id < 0) continue;
        *taken = n;
        return id;
    }
    return -1;
}

static int put_tokens(encoder *e, const char *word, size_t len, size_t n_chars) {
    const tokenizer *t = e->t;
    const token_table *table = &t->table;
    size_t before = e->out->n;
    for (size_t at = 0, taken; at < len; at += taken, table = &t->inner) {
        int32_t id = n_chars > MAX_WORD ? -1 : longest_at(table, word + at, len - at, &taken);
        if (id < 0) {
            e->out->n = before;
            return t->unk < 0 ? 0 : token_ids_push(e->out, t->unk);
        }
        TRY(token_ids_push(e->out, id));
    }
    return 0;
}

typedef struct word_reader {
    encoder *e;
    size_t n_chars; /* of e->word */
} word_reader;

static int end_word(word_reader *r) {
    buf *word = &r->e->word;
    if (word->failed) return ICP_ENOMEM;
    int rc = put_tokens(r->e, word->data, word->len, r->n_chars);
    buf_clear(word);
    r->n_chars = 0;
    return rc;
}

static void add_to_word(word_reader *r, int32_t cp) {
    put_character(&r->e->word, cp);
    r->n_chars++;
}

static int read_character(word_reader *r, int32_t cp) {
    enum { CAPITAL_I_WITH_DOT = 0x130, DOT_ABOVE = 0x307 };
    const tokenizer *t = r->e->t;
    if (t->strip_accents && is_accent(cp)) return 0;
    if (is_white_space(cp)) return end_word(r);
    bool alone = is_punctuation(cp);
    if (alone) TRY(end_word(r));
    add_to_word(r, t->lowercase ? utf8proc_tolower(cp) : cp);
    if (t->lowercase && cp == CAPITAL_I_WITH_DOT) add_to_word(r, DOT_ABOVE);
    return alone ? end_word(r) : 0;
}

int wordpiece_encode(encoder *e, const char *text, size_t len) {
    buf *cleaned = &e->normal, *decomposed = &e->decomposed;
    word_reader reader = {.e = e};
    buf_clear(cleaned);
    buf_clear(&e->word);
    clean(text, len, cleaned);
    if (cleaned->failed) return ICP_ENOMEM;
    if (e->t->strip_accents && !nfd_is_plain(cleaned->data, cleaned->len)) {
        buf_clear(decomposed);
        TRY(nfd_normalize(cleaned->data, cleaned->len, decomposed));
        cleaned = decomposed;
    }
    for (size_t i = 0; i < cleaned->len;) {
        int32_t cp;
        i += (size_t)utf8_decode(cleaned->data + i, cleaned->len - i, &cp);
        TRY(read_character(&reader, cp));
    }
    return end_word(&reader);
}
