/* Private to the tokenizer: its structure, and what its files offer one another.
 *
 *   text ─added─▶ runs between added tokens ─┬─ repair ─ nfc ─ pretok ─▶ bpe ─┐
 *                                            ├────────────────────────▶ spm ─┴─ merge ─▶ ids
 *                                            ├─ repair ─ words, nfd ──▶ wordpiece ─────▶ ids
 *                                            └─ repair ─ charsmap ────▶ unigram ───────▶ ids
 *
 * A token has a key and bytes. The key is what encoding looks up; the bytes are what the token
 * prints as. They differ where keys write U+2581 for a space (SentencePiece, unigram), or leave it
 * away (WordPiece). Byte-level BPE never works on the 256 stand-in characters of its files: they
 * are turned into the bytes they stand for when a vocabulary is opened.
 *
 * Invariants of a tokenizer:
 *   1. Everything is written by tokenizer_open and only read afterwards.
 *   2. Only tokens that are NORMAL or USER have their key in a table or index for encoding; no
 *      text can therefore make a control token but by `added`.
 *   3. Equal keys: the lowest id is the one that encoding gives; all of them decode. */
#ifndef TOKENIZER_INTERNAL_H
#define TOKENIZER_INTERNAL_H

#include "text.h"

/* ---- lookup tables (token_table.c) ---------------------------------------------------------- */

typedef struct token_table { /* key → id; open addressing, a power of two of slots */
    struct token_slot {
        uint32_t hash;
        int32_t id; /* -1: free */
    } * slots;
    size_t mask;
    const text_str *keys; /* of each id */
    size_t max_len;       /* of a key */
} token_table;

int token_table_init(token_table *table, arena *mem, const text_str *keys, size_t n);
void token_table_put(token_table *table, int32_t id); /* does nothing when the key is there */
int32_t token_table_find(const token_table *table, const char *key, size_t len); /* -1 */

typedef struct merge_rule {
    int32_t left, right; /* left -1: a free slot */
    int32_t joined;
    uint32_t rank; /* the smallest is applied first */
} merge_rule;

typedef struct rule_table { /* (left, right) → rule */
    merge_rule *slots;
    size_t mask;
} rule_table;

int rule_table_init(rule_table *table, arena *mem, size_t n);
void rule_table_put(rule_table *table, merge_rule rule); /* the first rule of a pair stays */
const merge_rule *rule_table_find(const rule_table *table, int32_t left, int32_t right);

/* ---- an index of texts (text_index.c) -------------------------------------------------------- */

typedef struct text_index {
    const text_str *texts; /* of each id */
    int32_t *ids;          /* sorted by text */
    size_t n;
    uint32_t first[257];
} text_index;

typedef struct text_range { /* of an index's ids */
    size_t low, high;
} text_range;

/* Sorts ids[n], whose texts are not empty. Of equal texts the lowest id stays. */
void text_index_sort(text_index *index, const text_str *texts);
/* Those that begin with a byte. */
text_range text_index_begin(const text_index *index, char byte);
/* The one of a range that has depth bytes and ends there, taken out of it; -1: there is none. */
int32_t text_index_take(const text_index *index, text_range *range, size_t depth);
/* Those, all longer than depth, whose byte at depth is this one. */
void text_index_narrow(const text_index *index, text_range *range, size_t depth, char byte);

/* ---- the structure --------------------------------------------------------------------------- */

enum tokenizer_kind {
    KIND_BPE,       /* "gpt2": bytes, pieces of a pre-tokenizer, merges by rank */
    KIND_SPM,       /* "llama": characters, whole text, merges by score */
    KIND_SPM_RANKS, /* "gemma4": like SPM, but merges by rank */
    KIND_WORDPIECE, /* "bert": words, the longest token first */
    KIND_UNIGRAM,   /* "t5": words, the tokens of the greatest score together */
};

typedef struct charsmap charsmap;

struct tokenizer {
    arena mem; /* all of the below but pretok */
    enum tokenizer_kind kind;
    size_t n;
    text_str *keys, *bytes; /* [n] */
    uint8_t *types;         /* [n] enum token_type */
    bool *ends;             /* [n] */
    const float *scores;    /* [n]; KIND_SPM, KIND_UNIGRAM */
    int32_t bos, eos, unk;
    int32_t end; /* what add_eos adds: EOS, or another separator */
    int32_t sep; /* the second one between the texts of a pair, with two_separators */
    bool add_bos, add_eos, space_prefix, two_separators;
    bool strip_right;      /* added tokens swallow the white space that follows them */
    int32_t byte_ids[256]; /* the token of each byte, -1 when there is none */
    token_table table;     /* KIND_WORDPIECE: tokens that begin a word */
    rule_table rules;
    text_index added;
    struct pretok *pretok; /* KIND_BPE */

    token_table inner;             /* KIND_WORDPIECE: tokens that continue a word */
    bool lowercase, strip_accents; /* likewise */

    text_index pieces;    /* KIND_UNIGRAM */
    double unknown_score; /* likewise, of a character that is no token */
    charsmap *charsmap;   /* likewise; NULL: text is not normalised */
};

/* ---- added tokens (added.c) ------------------------------------------------------------------ */

typedef struct added_match {
    size_t start, len;
    int32_t id; /* -1: there is none, start is the end of the text */
} added_match;

int added_init(tokenizer *t, icp_error *err);
/* The first added token at or after `at`, the longest one there. Tokens that are not user-defined
 * count only where `special` is set or all of their bytes came from the template. */
added_match added_find(const tokenizer *t, const char *text, size_t len, size_t at,
                       const uint8_t *origin, bool special);

/* ---- merging (merge.c) ----------------------------------------------------------------------- */

typedef struct merge_symbol {
    uint32_t at, len; /* len 0: absorbed by a symbol to its left */
    uint32_t prev, next;
    int32_t id; /* -1: no token */
} merge_symbol;

typedef struct merge_work { /* working memory that pieces share; zero-initialise */
    merge_symbol *symbols;
    size_t n, symbols_cap;
    struct merge_candidate *heap;
    size_t n_heap, heap_cap;
} merge_work;

/* Whether two neighbours may be joined: sets the joined id and its order (smaller goes first). */
typedef bool merge_join(const tokenizer *t, const char *text, const merge_symbol *left,
                        const merge_symbol *right, int32_t *id, uint32_t *order);

int merge_reserve(merge_work *work, size_t n); /* room for n symbols; forgets the old ones */
void merge_add(merge_work *work, uint32_t at, uint32_t len, int32_t id);
/* Joins until nothing can be joined. What remains is read from symbol 0 along next. */
int merge_run(merge_work *work, const tokenizer *t, const char *text, merge_join *join);
void merge_fini(merge_work *work);
enum { MERGE_END = UINT32_MAX }; /* next of the last symbol */

bool merge_by_rule(const tokenizer *t, const char *text, const merge_symbol *left,
                   const merge_symbol *right, int32_t *id, uint32_t *order);

/* ---- pre-tokenizers (pretok.c) --------------------------------------------------------------- */

typedef struct pretok pretok; /* compiled patterns; immutable */

typedef struct pretok_traits { /* what else follows from a pre-tokenizer's name */
    bool whole_words;          /* a piece that is a token is taken before any merge is tried */
    bool bos;                  /* BOS is added when the file does not say */
    bool nfc;                  /* text is brought into normalisation form C first */
} pretok_traits;

int pretok_open(text_str name, pretok **out, icp_error *err);
void pretok_close(pretok **p);
pretok_traits pretok_get_traits(const pretok *p);

typedef int pretok_piece(void *arg, const char *text, size_t len);
/* Calls piece for each piece of valid UTF-8, in order; ends early when it returns an error. work:
 * memory of the caller's, zero-initialised, that calls of one thread share. */
typedef struct pretok_work {
    struct pcre2_real_match_data_8 *match;
    struct pcre2_real_match_context_8 *context;
} pretok_work;
int pretok_split(const pretok *p, pretok_work *work, const char *text, size_t len,
                 pretok_piece *piece, void *arg);
void pretok_work_fini(pretok_work *work);

/* ---- normalisation (nfc.c) ------------------------------------------------------------------- */

bool nfc_is_plain(const char *text, size_t len); /* certainly in NFC already; valid UTF-8 */
int nfc_normalize(const char *text, size_t len, buf *out); /* appends; valid UTF-8 */
bool nfd_is_plain(const char *text, size_t len);           /* the same for NFD */
int nfd_normalize(const char *text, size_t len, buf *out);

/* ---- maps of characters (charsmap.c) --------------------------------------------------------- */

/* SentencePiece's compiled normalisation; copied. ICP_EFORMAT: blob is none; ICP_ENOMEM. */
int charsmap_open(const uint8_t *blob, size_t size, charsmap **out);
void charsmap_close(charsmap **c);
/* Appends text as it is after it; valid UTF-8. */
void charsmap_put(const charsmap *c, const char *text, size_t len, buf *out);

/* ---- models (bpe.c, spm.c, wordpiece.c, unigram.c)
 * ------------------------------------------------------------------- */

typedef struct encoder { /* one call of tokenizer_encode */
    const tokenizer *t;
    token_ids *out;
    merge_work merge;
    pretok_work pretok;
    buf repaired, normal, decomposed; /* the run as it is after each step */
    buf word;
    struct unigram_best *best; /* of the word, n_best of them */
    size_t n_best;
} encoder;

int token_ids_push(token_ids *ids, int32_t id);
/* Appends text with each maximal broken prefix of a character as one U+FFFD. */
void text_repair(const char *text, size_t len, buf *out);

size_t vocab_text_size(const text_vocab *vocab); /* bytes of all tokens together */
/* Fill keys, bytes and byte_ids of t from the vocabulary. */
int bpe_read_tokens(tokenizer *t, const text_vocab *vocab);
int spm_read_tokens(tokenizer *t, const text_vocab *vocab);
int wordpiece_read_tokens(tokenizer *t, const text_vocab *vocab);
int unigram_read_tokens(tokenizer *t, const text_vocab *vocab, icp_error *err);
/* Fills t->rules; rules that name no token are left out, as no text could ever apply them. */
int bpe_read_merges(tokenizer *t, const text_vocab *vocab, icp_error *err);
/* Append the ids of a run without added tokens. */
int bpe_encode(encoder *e, const char *text, size_t len);
int spm_encode(encoder *e, const char *text, size_t len);
int wordpiece_encode(encoder *e, const char *text, size_t len);
int unigram_encode(encoder *e, const char *text, size_t len);
/* U+2581, which stands for a space in the keys of vocabularies. */
#define SPACE_MARK "\xE2\x96\x81"
enum { SPACE_MARK_LEN = sizeof SPACE_MARK - 1 };
/* Whether a character is Unicode White_Space. */
bool is_white_space(int32_t cp);

#endif
