/* Pre-tokenizers: how byte-level BPE cuts text into pieces before it merges.
 *
 * A model file names its pre-tokenizer; the patterns are those of the tokenizers that the models
 * were published with. A family has one pattern or several, which apply one after another: each
 * cuts the pieces of the one before at its matches, and both matches and the gaps between them
 * become pieces.
 *
 *   "ab 12"   \p{N}   ─▶  "ab " "1" "2"   GPT2  ─▶  "ab" " " "1" "2"
 *
 * Two things of PCRE2 are minded. Its \s has U+180E, which is no White_Space: \s and \S are
 * compiled as that property. And matching must need constant stack for text of any length: a
 * pattern here only ever repeats single characters, never groups. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer_internal.h"

#include <assert.h>
#include <pcre2.h>
#include <string.h>

/* Pieces that many patterns share. */
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TAIL " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" TAIL
#define QWEN2 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" TAIL
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define PUNCTUATION "[\\p{P}$+<=>^~|`]+"

/* Words that end in a change from lower to upper case (tekken, gpt-4o): letters but lower case
 * ones, then letters but upper case ones. `end` is what may follow each. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(upper, lower, end)                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" end "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower     \
    "*" end
/* The same without Chinese characters. PCRE2 has no intersection of classes, so these two exclude
 * all other categories instead. */
#define UPPER_NOT_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define LOWER_NOT_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"

/* Letters with case, as an older Unicode had them. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"        \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"         \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"                 \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                  \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"         \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

enum { MAX_PATTERNS = 6 };

static const struct family {
    const char *names; /* separated by spaces */
    const char *patterns[MAX_PATTERNS + 1];
    pretok_traits traits;
} families[] = {
    {"gpt-2 olmo jais exaone4 trillion gigachat phi-2 roberta-bpe modern-bert mellum a.x-4.0",
     {GPT2}},
    {"mpt", {GPT2}, {.nfc = true}},
    {"smollm starcoder refact codeshell exaone minerva-7b", {"\\p{N}", GPT2}},
    {"command-r", {"\\p{N}", GPT2}, {.nfc = true}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     {LLAMA3},
     {.whole_words = true, .bos = true}},
    {"glm4 glm5", {LLAMA3}, {.whole_words = true}},
    {"dbrx smaug-bpe chatglm-bpe", {LLAMA3}},
    {"qwen2", {QWEN2}, {.nfc = true}},
    {"deepseek-r1-qwen kormo stablelm2 megrez hunyuan solar-open grok-2", {QWEN2}},
    {"qwen35",
     {CONTRACTION
      "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES},
     {.nfc = true}},
    {"gpt-4o llama4 kanana2 minimax-m2",
     {CASED(UPPER, LOWER, CONTRACTION "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES}},
    {"tekken",
     {CASED(UPPER, LOWER, "") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
     {.whole_words = true, .bos = true}},
    {"kimi-k2",
     {"\\p{sc:Han}+|" CASED(UPPER_NOT_HAN, LOWER_NOT_HAN, CONTRACTION "?") "|\\p{N}{1,3}|" TAIL}},
    {"deepseek-v3 hunyuan-dense",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
      "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES}},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}},
    {"deepseek-llm", /* (?<!\s) changes no match but keeps the search for the end linear */
     {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
      "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
      "(?<!\\s)\\s+\\z", CJK, "\\p{N}"}},
    {"falcon", {PUNCTUATION, GPT2, "[0-9][0-9][0-9]"}},
    {"seed-coder",
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {"bailingmoe bailingmoe2 llada-moe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"default", {PUNCTUATION, GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

/* Files older than the key come from models of GPT-2's time. */
static const char unnamed[] = "gpt-2";

struct pretok {
    const struct family *family;
    pcre2_general_context *memory;
    pcre2_code *codes[MAX_PATTERNS];
    int n_codes;
};

/* ---- opening --------------------------------------------------------------------------------- */

static void *regex_alloc(size_t size, void *arg) {
    return mem_alloc(size);
}

static void regex_free(void *block, void *arg) {
    mem_free(block);
}

static bool has_name(const char *names, text_str name) {
    for (const char *at = names; *at;) {
        size_t len = strcspn(at, " ");
        if (len == name.len && !memcmp(at, name.data, len)) return true;
        at += len + (at[len] == ' ');
    }
    return false;
}

static const struct family *find_family(text_str name) {
    if (!name.data) name = (text_str){unnamed, strlen(unnamed)};
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (has_name(families[i].names, name)) return &families[i];
    return NULL;
}

/* Says what is unknown, and the first name of each family. */
static int refuse(text_str name, icp_error *err) {
    buf known = {0};
    for (size_t i = 0; i < COUNT_OF(families); i++)
        buf_printf(&known, " %.*s", (int)strcspn(families[i].names, " "), families[i].names);
    int rc = known.failed ? ICP_ENOMEM
                          : error_set(err, ICP_EUNSUPPORTED,
                                      "unknown pre-tokenizer '%.*s'; known are%s and their aliases",
                                      (int)MIN(name.len, 60), name.data, known.data);
    buf_fini(&known);
    return rc;
}

/* The pattern with \s and \S as Unicode's White_Space. */
static void put_pattern(buf *out, const char *pattern) {
    for (; *pattern; pattern++) {
        if (pattern[0] != '\\')
            buf_putc(out, pattern[0]);
        else if (*++pattern == 's' || *pattern == 'S')
            buf_puts(out, *pattern == 's' ? "\\p{wspace}" : "\\P{wspace}");
        else
            buf_put(out, pattern - 1, 2);
    }
}

static int compile(pretok *p, const char *pattern, icp_error *err) {
    buf source = {0};
    put_pattern(&source, pattern);
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    if (source.failed || !context) {
        buf_fini(&source);
        pcre2_compile_context_free(context);
        return ICP_ENOMEM;
    }
    int code;
    size_t at;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)source.data, source.len, PCRE2_UTF | PCRE2_UCP,
                                         &code, &at, context);
    pcre2_compile_context_free(context);
    buf_fini(&source);
    if (!compiled) {
        if (code == PCRE2_ERROR_NOMEMORY || code == 121 /* compile's own "no memory" */)
            return ICP_ENOMEM;
        return error_set(err, ICP_EBUG,
                         "pattern %d of pre-tokenizer '%s' does not compile: error %d at %zu",
                         p->n_codes, p->family->names, code, at);
    }
    p->codes[p->n_codes++] = compiled;
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* where it cannot, matching interprets */
    return 0;
}

int pretok_open(text_str name, pretok **out, icp_error *err) {
    const struct family *family = find_family(name);
    if (!family) return refuse(name, err);
    pretok *p = mem_zero(1, sizeof *p);
    if (!p) return ICP_ENOMEM;
    p->family = family;
    p->memory = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    int rc = p->memory ? 0 : ICP_ENOMEM;
    for (int i = 0; !rc && family->patterns[i]; i++) rc = compile(p, family->patterns[i], err);
    if (rc) {
        pretok_close(&p);
        return rc;
    }
    *out = p;
    return 0;
}

void pretok_close(pretok **p) {
    if (!*p) return;
    for (int i = 0; i < (*p)->n_codes; i++) pcre2_code_free((*p)->codes[i]);
    pcre2_general_context_free((*p)->memory);
    mem_free(*p);
    *p = NULL;
}

pretok_traits pretok_get_traits(const pretok *p) {
    return p->family->traits;
}

/* ---- splitting ------------------------------------------------------------------------------- */

static int prepare(const pretok *p, pretok_work *work) {
    if (!work->match) work->match = pcre2_match_data_create(1, p->memory);
    if (!work->context) work->context = pcre2_match_context_create(p->memory);
    if (!work->match || !work->context) return ICP_ENOMEM;
    /* The limits are against patterns that explode; these are ours and run in linear time. */
    pcre2_set_match_limit(work->context, UINT32_MAX);
    pcre2_set_heap_limit(work->context, UINT32_MAX);
    return 0;
}

void pretok_work_fini(pretok_work *work) {
    pcre2_match_data_free(work->match);
    pcre2_match_context_free(work->context);
    *work = (pretok_work){0};
}

typedef struct splitter {
    const pretok *p;
    pretok_work *work;
    pretok_piece *piece;
    void *arg;
} splitter;

/* Cuts text by the patterns from number `stage` on. */
static int split(const splitter *s, int stage, const char *text, size_t len) {
    if (stage == s->p->n_codes) return s->piece(s->arg, text, len);
    const size_t *found = pcre2_get_ovector_pointer(s->work->match);
    for (size_t done = 0; done < len;) {
        int rc = pcre2_match(s->p->codes[stage], (PCRE2_SPTR)text, len, done, PCRE2_NO_UTF_CHECK,
                             s->work->match, s->work->context);
        if (rc == PCRE2_ERROR_NOMATCH) return split(s, stage + 1, text + done, len - done);
        if (rc < 0) return rc == PCRE2_ERROR_NOMEMORY ? ICP_ENOMEM : ICP_EBUG;
        size_t start = found[0], end = found[1]; /* the next stage overwrites them */
        assert(end > start);
        if (start > done) TRY(split(s, stage + 1, text + done, start - done));
        TRY(split(s, stage + 1, text + start, end - start));
        done = end;
    }
    return 0;
}

int pretok_split(const pretok *p, pretok_work *work, const char *text, size_t len,
                 pretok_piece *piece, void *arg) {
    TRY(prepare(p, work));
    splitter s = {.p = p, .work = work, .piece = piece, .arg = arg};
    return split(&s, 0, text, len);
}
