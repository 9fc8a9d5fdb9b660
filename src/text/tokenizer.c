/* The tokenizer: opening a vocabulary, encoding text, and what there is to know about a token. */
#include "tokenizer_internal.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

static bool equals(text_str a, const char *b) {
    return a.len == strlen(b) && !memcmp(a.data, b, a.len);
}

static int read_kind(const text_vocab *vocab, enum tokenizer_kind *kind, icp_error *err) {
    static const struct {
        const char *name;
        enum tokenizer_kind kind;
    } kinds[] = {{"gpt2", KIND_BPE},
                 {"llama", KIND_SPM},
                 {"gemma4", KIND_SPM_RANKS},
                 {"bert", KIND_WORDPIECE},
                 {"t5", KIND_UNIGRAM}};
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        if (!equals(vocab->model, kinds[i].name)) continue;
        *kind = kinds[i].kind;
        return 0;
    }
    return error_set(err, ICP_EUNSUPPORTED,
                     "unknown tokenizer '%.*s'; known are gpt2 llama gemma4 bert t5",
                     (int)MIN(vocab->model.len, 60), vocab->model.data ? vocab->model.data : "");
}

static int check_id(int32_t id, const char *name, size_t n, icp_error *err) {
    if (id >= -1 && (id < 0 || (size_t)id < n)) return 0;
    return error_set(err, ICP_EFORMAT, "%s token %d is outside the vocabulary of %zu tokens", name,
                     id, n);
}

static bool has_scores(enum tokenizer_kind kind) {
    return kind == KIND_SPM || kind == KIND_UNIGRAM;
}

static int check(const text_vocab *vocab, enum tokenizer_kind kind, icp_error *err) {
    size_t n = vocab->n_tokens;
    if (!n || n > INT32_MAX) return error_set(err, ICP_EFORMAT, "a vocabulary of %zu tokens", n);
    TRY(check_id(vocab->bos, "BOS", n, err));
    TRY(check_id(vocab->eos, "EOS", n, err));
    TRY(check_id(vocab->eot, "EOT", n, err));
    TRY(check_id(vocab->unk, "unknown", n, err));
    TRY(check_id(vocab->sep, "separator", n, err));
    if (vocab->n_merges > INT32_MAX)
        return error_set(err, ICP_EFORMAT, "a vocabulary of %zu merges", vocab->n_merges);
    for (size_t i = 0; vocab->types && i < n; i++)
        if (vocab->types[i] < 0 || vocab->types[i] > TOKEN_BYTE)
            return error_set(err, ICP_EFORMAT, "token %zu has the unknown type %d", i,
                             vocab->types[i]);
    if (!has_scores(kind)) return 0;
    if (!vocab->scores)
        return error_set(err, ICP_EFORMAT, "a SentencePiece vocabulary without scores");
    for (size_t i = 0; i < n; i++)
        if (isnan(vocab->scores[i]))
            return error_set(err, ICP_EFORMAT, "the score of token %zu is not a number", i);
    return 0;
}

/* Tokens that end a turn, by the names that chat models give them. Only control tokens count: an
 * ordinary token that happens to be called "</s>" ends nothing. */
static const char *const turn_ends[] = {
    "<|im_end|>",                              /* ChatML: SmolLM2, Qwen */
    "<|eot_id|>",                              /* Llama 3 */
    "<|eom_id|>",                              /* Llama 3.1, before a tool answers */
    "<|eot|>",                                 /* Llama 4 */
    "<|end|>",                                 /* Phi 3 */
    "<end_of_turn>",                           /* Gemma 2, 3 */
    "<turn|>",                                 /* Gemma 4 */
    "<|endoftext|>",                           /* GPT-2, Qwen */
    "<|end_of_text|>",                         /* Llama 3, Granite */
    "</s>",                                    /* Llama 2, Mistral */
    "<eos>",                                   /* Gemma */
    "<|return|>",                              /* gpt-oss: the last message of an answer */
    "<|call|>",                                /* gpt-oss: a tool is called */
    "<|END_OF_TURN_TOKEN|>",                   /* Command R */
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", /* DeepSeek */
};

static void find_ends(tokenizer *t, const text_vocab *vocab) {
    for (size_t i = 0; i < COUNT_OF(turn_ends); i++) {
        int32_t id = tokenizer_find(t, turn_ends[i]);
        if (id >= 0 && t->types[id] == TOKEN_CONTROL) t->ends[id] = true;
    }
    /* In gpt-oss "<|end|>" ends a message, and more messages of the same turn may follow. */
    int32_t end = tokenizer_find(t, "<|end|>");
    if (end >= 0 && tokenizer_find(t, "<|return|>") >= 0) t->ends[end] = false;
    if (vocab->eos >= 0) t->ends[vocab->eos] = true;
    if (vocab->eot >= 0) t->ends[vocab->eot] = true;
}

static int copy_scalars(tokenizer *t, const text_vocab *vocab) {
    t->n = vocab->n_tokens;
    t->bos = vocab->bos;
    t->eos = vocab->eos;
    t->unk = vocab->unk;
    t->bytes = arena_alloc(&t->mem, t->n * sizeof *t->bytes);
    t->types = arena_alloc(&t->mem, t->n);
    t->ends = arena_alloc(&t->mem, t->n);
    if (!t->bytes || !t->types || !t->ends) return ICP_ENOMEM;
    memset(t->ends, 0, t->n);
    for (size_t i = 0; i < t->n; i++) {
        int32_t type = vocab->types ? vocab->types[i] : TOKEN_NORMAL;
        t->types[i] = (uint8_t)(type ? type : TOKEN_NORMAL); /* 0: undefined */
    }
    if (!has_scores(t->kind)) return 0;
    float *scores = arena_alloc(&t->mem, t->n * sizeof *scores);
    if (!scores) return ICP_ENOMEM;
    memcpy(scores, vocab->scores, t->n * sizeof *scores);
    t->scores = scores;
    return 0;
}

/* BOS where the file does not say: SentencePiece vocabularies, BERT's and a few families want it;
 * Gemma 4 does whatever its files say. */
static bool decide_bos(const tokenizer *t, const text_vocab *vocab) {
    if (vocab->add_bos >= 0 && t->kind != KIND_SPM_RANKS) return vocab->add_bos;
    if (t->kind == KIND_BPE) return pretok_get_traits(t->pretok).bos;
    return t->kind != KIND_UNIGRAM;
}

/* Where the file does not say, T5's vocabularies want EOS, and BERT's their separator. */
static bool decide_end(tokenizer *t, const text_vocab *vocab) {
    bool of_bert = t->kind == KIND_WORDPIECE && vocab->add_eos < 0;
    t->end = vocab->sep >= 0 && (of_bert || t->eos < 0) ? vocab->sep : t->eos;
    if (vocab->add_eos >= 0) return vocab->add_eos;
    return t->kind == KIND_WORDPIECE || t->kind == KIND_UNIGRAM;
}

/* BERT's files may leave out what its tokenizers always have. */
static void find_bert_tokens(tokenizer *t, text_vocab *vocab) {
    if (t->bos < 0) t->bos = tokenizer_find(t, "[CLS]");
    if (t->unk < 0) t->unk = tokenizer_find(t, "[UNK]");
    if (vocab->sep < 0) vocab->sep = tokenizer_find(t, "[SEP]");
}

/* Files of Phi 3 do not say that its added tokens swallow what follows. */
static bool is_phi3(const text_vocab *vocab) {
    static const char *const names[] = {"phi-3", "phi3", "phi 3"};
    char name[128];
    size_t len = MIN(vocab->name.len, sizeof name - 1);
    for (size_t i = 0; i < len; i++) name[i] = (char)tolower((unsigned char)vocab->name.data[i]);
    name[len] = '\0';
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strstr(name, names[i])) return true;
    return false;
}

/* The types tell it, too, where the file does not name it. */
static void find_unknown(tokenizer *t) {
    for (size_t id = 0; t->unk < 0 && id < t->n; id++)
        if (t->types[id] == TOKEN_UNKNOWN) t->unk = (int32_t)id;
}

static void decide_manners(tokenizer *t, const text_vocab *given) {
    text_vocab vocab = *given;
    if (t->kind == KIND_UNIGRAM) find_unknown(t);
    if (t->kind == KIND_WORDPIECE) find_bert_tokens(t, &vocab);
    t->add_bos = decide_bos(t, &vocab) && t->bos >= 0;
    t->add_eos = decide_end(t, &vocab) && t->end >= 0;
    t->two_separators = vocab.add_sep > 0 && t->kind != KIND_WORDPIECE;
    t->sep = vocab.sep >= 0 ? vocab.sep : t->end;
    bool prefixed = t->kind == KIND_SPM || t->kind == KIND_UNIGRAM;
    t->space_prefix = t->kind == KIND_WORDPIECE || (prefixed && vocab.add_space_prefix != 0);
    t->strip_right = t->kind == KIND_SPM && is_phi3(&vocab);
}

size_t vocab_text_size(const text_vocab *vocab) {
    size_t size = 0;
    for (size_t i = 0; i < vocab->n_tokens; i++) size += vocab->tokens[i].len;
    return size;
}

static int read_tokens(tokenizer *t, const text_vocab *vocab, icp_error *err) {
    switch (t->kind) {
    case KIND_BPE:
        TRY(pretok_open(vocab->pre, &t->pretok, err));
        TRY(bpe_read_tokens(t, vocab));
        return bpe_read_merges(t, vocab, err);
    case KIND_SPM:
        return spm_read_tokens(t, vocab);
    case KIND_SPM_RANKS:
        TRY(spm_read_tokens(t, vocab));
        return bpe_read_merges(t, vocab, err);
    case KIND_WORDPIECE:
        return wordpiece_read_tokens(t, vocab);
    case KIND_UNIGRAM:
        return unigram_read_tokens(t, vocab, err);
    }
    return ICP_EBUG;
}

static int open_vocab(tokenizer *t, const text_vocab *vocab, icp_error *err) {
    TRY(read_kind(vocab, &t->kind, err));
    TRY(check(vocab, t->kind, err));
    TRY(copy_scalars(t, vocab));
    TRY(read_tokens(t, vocab, err));
    TRY(added_init(t, err));
    decide_manners(t, vocab);
    find_ends(t, vocab);
    return 0;
}

int tokenizer_open(const text_vocab *vocab, tokenizer **out, icp_error *err) {
    tokenizer *t = mem_zero(1, sizeof *t);
    if (!t) return error_set(err, ICP_ENOMEM, "no memory for the vocabulary");
    arena_init(&t->mem);
    int rc = open_vocab(t, vocab, err);
    if (rc) {
        tokenizer_close(&t);
        if (rc == ICP_ENOMEM) error_set(err, rc, "no memory for the vocabulary");
        return rc;
    }
    *out = t;
    return 0;
}

void tokenizer_close(tokenizer **t) {
    if (!*t) return;
    pretok_close(&(*t)->pretok);
    charsmap_close(&(*t)->charsmap);
    arena_fini(&(*t)->mem);
    mem_free(*t);
    *t = NULL;
}

/* ---- encoding -------------------------------------------------------------------------------- */

int token_ids_push(token_ids *ids, int32_t id) {
    if (ids->n == ids->cap) {
        size_t cap = MAX(ids->cap * 2, 64);
        int32_t *grown = mem_resize(ids->id, cap, sizeof *grown);
        if (!grown) return ICP_ENOMEM;
        ids->id = grown;
        ids->cap = cap;
    }
    ids->id[ids->n++] = id;
    return 0;
}

void token_ids_fini(token_ids *ids) {
    mem_free(ids->id);
    *ids = (token_ids){0};
}

/* Length of the longest prefix of text that is valid UTF-8. */
static size_t valid_prefix(const char *text, size_t len) {
    size_t i = 0;
    while (i < len) {
        if ((uint8_t)text[i] < 0x80) {
            i++;
            continue;
        }
        int32_t cp;
        int step = utf8_decode(text + i, len - i, &cp);
        if (cp < 0) break;
        i += (size_t)step;
    }
    return i;
}

void text_repair(const char *text, size_t len, buf *out) {
    while (len) {
        size_t valid = valid_prefix(text, len);
        buf_put(out, text, valid);
        text += valid;
        len -= valid;
        if (!len) return;
        int32_t cp;
        int broken = utf8_decode(text, len, &cp);
        buf_puts(out, "\xEF\xBF\xBD");
        text += broken;
        len -= (size_t)broken;
    }
}

bool is_white_space(int32_t cp) {
    return (cp >= 0x09 && cp <= 0x0D) || cp == ' ' || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

/* Appends the ids of text between added tokens. */
static int encode_run(encoder *e, const char *text, size_t len) {
    if (!len) return 0;
    if (e->t->kind != KIND_SPM && valid_prefix(text, len) < len) {
        buf_clear(&e->repaired);
        text_repair(text, len, &e->repaired);
        if (e->repaired.failed) return ICP_ENOMEM;
        text = e->repaired.data;
        len = e->repaired.len;
    }
    switch (e->t->kind) {
    case KIND_BPE:
        return bpe_encode(e, text, len);
    case KIND_SPM:
    case KIND_SPM_RANKS:
        return spm_encode(e, text, len);
    case KIND_WORDPIECE:
        return wordpiece_encode(e, text, len);
    case KIND_UNIGRAM:
        return unigram_encode(e, text, len);
    }
    return ICP_EBUG;
}

/* Bytes of white space at the start of text. */
static size_t leading_space(const char *text, size_t len) {
    size_t i = 0;
    while (i < len) {
        int32_t cp;
        int step = utf8_decode(text + i, len - i, &cp);
        if (!is_white_space(cp)) break;
        i += (size_t)step;
    }
    return i;
}

/* Tokens of Phi 3 that leave the white space after them alone. */
static bool keeps_space(const tokenizer *t, int32_t id) {
    return equals(t->bytes[id], "<unk>") || equals(t->bytes[id], "<s>") ||
           equals(t->bytes[id], "<|endoftext|>");
}

static int encode(encoder *e, const char *text, size_t len, const uint8_t *origin, unsigned flags) {
    const tokenizer *t = e->t;
    bool frame = flags & TOKENIZE_BOS;
    if (frame && t->add_bos) TRY(token_ids_push(e->out, t->bos));
    for (size_t at = 0; at < len;) {
        added_match m = added_find(t, text, len, at, origin, flags & TOKENIZE_SPECIAL);
        TRY(encode_run(e, text + at, m.start - at));
        if (m.id >= 0) TRY(token_ids_push(e->out, m.id));
        at = m.start + m.len;
        if (m.id >= 0 && t->strip_right && !keeps_space(t, m.id))
            at += leading_space(text + at, len - at);
    }
    if (frame && t->add_eos) TRY(token_ids_push(e->out, t->end));
    return 0;
}

/* Positions are 32 bits wide while merging, and SentencePiece makes three bytes of a space. */
enum { MAX_TEXT = 1 << 30 };

int tokenizer_encode(const tokenizer *t, const char *text, size_t len, const uint8_t *origin,
                     unsigned flags, token_ids *out) {
    if (len > MAX_TEXT) return ICP_ELIMIT;
    encoder e = {.t = t, .out = out};
    size_t n = out->n;
    int rc = encode(&e, text, len, origin, flags);
    if (rc) out->n = n;
    merge_fini(&e.merge);
    pretok_work_fini(&e.pretok);
    buf_fini(&e.repaired);
    buf_fini(&e.normal);
    buf_fini(&e.decomposed);
    buf_fini(&e.word);
    mem_free(e.best);
    return rc;
}

/* ---- about tokens ---------------------------------------------------------------------------- */

size_t tokenizer_n(const tokenizer *t) {
    return t->n;
}

text_str tokenizer_bytes(const tokenizer *t, int32_t id) {
    return t->bytes[id];
}

enum token_type tokenizer_type(const tokenizer *t, int32_t id) {
    return t->types[id];
}

int32_t tokenizer_find(const tokenizer *t, const char *token) {
    size_t len = strlen(token);
    if (!len) return -1;
    added_match m = added_find(t, token, len, 0, NULL, true);
    return m.id >= 0 && m.start == 0 && m.len == len ? m.id : -1;
}

int32_t tokenizer_bos(const tokenizer *t) {
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t) {
    return t->eos;
}

bool tokenizer_ends(const tokenizer *t, int32_t id) {
    return t->ends[id];
}
