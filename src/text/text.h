/* text: from text to token ids and back, and from messages to the text of a prompt.
 *
 *   tokenizer  a vocabulary and its algorithm (byte-level BPE, SentencePiece BPE, WordPiece,
 * unigram) detok      ids to bytes, incrementally, never half a character jinja      the language
 * that chat templates are written in
 *
 * Text carries its origin: one byte beside every byte of text, TEXT_USER or TEXT_TEMPLATE. Special
 * tokens are found only in bytes that came from the template, so that nothing a user writes can
 * become a control token. A byte of a user's text may also be the last one of a marked piece of it,
 * so that where that ends in the prompt is known. */
#ifndef TEXT_H
#define TEXT_H

#include "base.h"

typedef struct text_str {
    const char *data;
    size_t len;
} text_str;

enum text_origin { TEXT_USER = 0, TEXT_TEMPLATE = 1, TEXT_MARKED = 2 };
/* A user's byte with which mark i ends is TEXT_MARKED + i. */
enum { TEXT_MARKS = 64 };

/* ---- tokenizer (tokenizer.c, pair.c, pretok.c, bpe.c, spm.c, wordpiece.c, unigram.c) --------- */

enum token_type { /* numbered as in GGUF */
                  TOKEN_NORMAL = 1,
                  TOKEN_UNKNOWN = 2,
                  TOKEN_CONTROL = 3,
                  TOKEN_USER = 4,
                  TOKEN_UNUSED = 5,
                  TOKEN_BYTE = 6,
};

/* What a model file says about its vocabulary. Everything is copied; nothing need outlive open. */
typedef struct text_vocab {
    text_str name;  /* of the model; {NULL,0} when absent */
    text_str model; /* "gpt2", "llama" (SentencePiece), "bert" (WordPiece), "t5" (unigram) … */
    text_str pre;   /* name of the pre-tokenizer; {NULL,0} when absent */
    size_t n_tokens;
    const text_str *tokens;
    const float *scores;  /* NULL when absent */
    const int32_t *types; /* NULL: all normal */
    size_t n_merges;
    const text_str *merges;
    int32_t bos, eos, eot, unk, sep; /* -1 when absent */
    int add_bos, add_eos;            /* 1, 0, or -1 when the file does not say */
    int add_sep;                     /* likewise: a second separator between the texts of a pair */
    int add_space_prefix;            /* likewise, */
    int lowercase, strip_accents;    /* and these, of WordPiece */
    const uint8_t *charsmap;         /* of unigram: SentencePiece's normalisation */
    size_t charsmap_size;            /* 0 when absent */
} text_vocab;

typedef struct tokenizer tokenizer; /* immutable; shared by threads */

/* ICP_EUNSUPPORTED names an unknown model or pre-tokenizer and lists the known ones;
 * ICP_EFORMAT: ids out of range, unknown types, scores that are missing or no numbers, malformed
 * merges or map of characters. Of tokens with the same text the lowest id is what encoding gives.
 */
int tokenizer_open(const text_vocab *vocab, tokenizer **out, icp_error *err);
void tokenizer_close(tokenizer **t);

typedef struct token_ids { /* zero-initialise */
    int32_t *id;
    size_t n, cap;
} token_ids;
void token_ids_fini(token_ids *ids);

enum {                       /* flags of tokenizer_encode */
       TOKENIZE_BOS = 1,     /* put BOS (EOS, or another separator) around as the vocabulary asks */
       TOKENIZE_SPECIAL = 2, /* find special tokens everywhere, whatever the origin */
};
/* Appends the ids of text. origin: one text_origin a byte, or NULL for all TEXT_USER. User-defined
 * tokens are found everywhere. Any bytes are accepted: of invalid UTF-8 each maximal broken prefix
 * counts as one U+FFFD, but SentencePiece vocabularies keep the bytes as byte tokens. O(n log n).
 * ICP_ENOMEM, or ICP_ELIMIT for more than 1 GiB, leave *out as it was. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t len, const uint8_t *origin,
                     unsigned flags, token_ids *out);

/* Appends the ids of two texts as one pair, as encoders are trained on them: framed, with a
 * separator (RoBERTa's kin: two) between them; *second: where what belongs to b begins. All is
 * TEXT_USER (pair.c). Errors as above, and ICP_EUNSUPPORTED: the vocabulary separates no texts. */
int tokenizer_encode_pair(const tokenizer *t, text_str a, text_str b, token_ids *out,
                          size_t *second);

size_t tokenizer_n(const tokenizer *t);
/* The bytes that token id stands for in running text (id must be < n); special tokens print as
 * their text. */
text_str tokenizer_bytes(const tokenizer *t, int32_t id);
enum token_type tokenizer_type(const tokenizer *t, int32_t id);
int32_t tokenizer_find(const tokenizer *t, const char *token); /* a special token by its text; -1 */
int32_t tokenizer_bos(const tokenizer *t);                     /* -1 when there is none */
int32_t tokenizer_eos(const tokenizer *t);
/* Tokens after which a model has finished its turn: EOS, EOT and control tokens of a known name
 * ("<|im_end|>", "<|eot_id|>" …). id must be < n. */
bool tokenizer_ends(const tokenizer *t, int32_t id);

/* Ids to bytes, one token at a time. Bytes that may still grow into a character are held back. */
typedef struct detok {
    const tokenizer *tok;
    bool skip_special; /* control tokens print as nothing */
    bool begun;        /* text came before: the first token keeps its leading space; set it when the
                        * ids continue a prompt */
    char held[8];
    int n_held;
} detok;
void detok_init(detok *d, const tokenizer *t, bool skip_special);
/* Appends the text that is now complete; invalid bytes come out as U+FFFD. */
void detok_put(detok *d, int32_t id, buf *out);
void detok_flush(detok *d, buf *out); /* whatever was held, as U+FFFD */
/* All of ids at once, raw bytes without repairs (the inverse of encode). ICP_EINVALID: an id is out
 * of range; ICP_ENOMEM. */
int tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special, buf *out);

/* ---- jinja (jinja.c, jinja_lex.c, jinja_parse.c, jinja_eval.c, jinja_value.c …) -------------- */

typedef struct jinja jinja; /* a parsed template; immutable; shared by threads */

/* Parses a template as transformers configures Jinja2: trim_blocks, lstrip_blocks, loop controls.
 * ICP_EFORMAT: the sentence has line and what was expected. */
int jinja_open(const char *source, size_t len, jinja **out, icp_error *err);
void jinja_close(jinja **j);

typedef struct jinja_opts { /* 0: the default */
    size_t max_steps;       /* evaluated nodes */
    size_t max_output;      /* bytes */
    size_t max_memory;      /* bytes of values */
    bool marked;            /* the variables have marks: characters that are no text themselves, */
} jinja_opts;
/* U+10FF80 + i, i < TEXT_MARKS, in UTF-8: this and a byte 0x80 + i. Mark i ends with the byte
 * before it. */
#define TEXT_MARK_LEAD "\xF4\x8F\xBE"

typedef struct jinja_text { /* zero-initialise; free with jinja_text_fini */
    buf text;
    buf origin; /* one text_origin a byte of text */
} jinja_text;
void jinja_text_fini(jinja_text *t);

/* Renders with the members of the JSON object vars_json as variables (their text is TEXT_USER) and
 * those of trusted_json (may be NULL; bos_token, eos_token …), whose text is TEXT_TEMPLATE. Nothing
 * is predefined but the language's own globals. now: seconds since 1970 for strftime_now.
 * ICP_EFORMAT: bad JSON; ICP_EINVALID: the template raised (err->text is its message) or erred;
 * ICP_ELIMIT: a limit. */
int jinja_render(const jinja *j, const char *vars_json, const char *trusted_json, int64_t now,
                 const jinja_opts *opts, jinja_text *out, icp_error *err);

#endif
