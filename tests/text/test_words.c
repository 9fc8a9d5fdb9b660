/* The tokenizers that go word by word: WordPiece and unigram. Against upstream's ids (golden/make/
 * tokenizer.py), and on small vocabularies made by hand: what frames a text, which tokens text may
 * become, malformed files, failing memory. Also tokens that swallow the space after them. */
#include "cmocka_tests.h"
#include "text_bed.h"
#include "tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

enum { MAX_IDS = 4096 };

static bed_vocab bed;

#define EXPECT(t, text, flags, ...)                                                                \
    do {                                                                                           \
        const int32_t ids_[] = {__VA_ARGS__};                                                      \
        bed_expect_ids(t, text, strlen(text), flags, ids_, COUNT_OF(ids_));                        \
    } while (0)

/* ---- upstream ---- */

static void check_ids(char **fields, void *arg) {
    static int32_t want[MAX_IDS];
    size_t len = bed_unhex(fields[0]), n = bed_numbers(fields[1], want, MAX_IDS);
    bed_expect_ids(arg, fields[0], len, TOKENIZE_SPECIAL, want, n);
}

static void test_wordpiece(void **state) {
    tokenizer *t = bed_open_golden("bert");
    bed_each_line("tokenizer/bert.txt", check_ids, t);
    tokenizer_close(&t);
}

static void test_unigram(void **state) {
    tokenizer *t = bed_open_file(GOLDEN_DIR "/tokenizer/unigram.gguf");
    bed_each_line("tokenizer/unigram.txt", check_ids, t);
    tokenizer_close(&t);
}

/* ---- WordPiece by hand ---- */

enum { CLS = 0, SEP, UNK, HELLO, HE, LLO, MARK, O };

/* Only these: the byte tokens of the bed are none of BERT's. */
static void fill_bert(const char *const *tokens, size_t n) {
    bed_vocab_init(&bed, "bert", "default");
    bed.vocab.n_tokens = 0;
    for (size_t i = 0; i < n; i++)
        bed_add(&bed, tokens[i], tokens[i][0] == '[' ? TOKEN_CONTROL : TOKEN_NORMAL, 0);
}

static const char *const hello[] = {"[CLS]",    "[SEP]", "[UNK]",        "\u2581hello",
                                    "\u2581he", "llo",   "\u2581\u2581", "o"};

static void test_words(void **state) {
    fill_bert(hello, COUNT_OF(hello));
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "Hello HELLO\tH\u00e9llo", 0, HELLO, HELLO, HELLO);
    EXPECT(t, "helloo helloe he", 0, HELLO, O, UNK, HE);
    EXPECT(t, "\u2581hello", 0, UNK); /* a mark in the text begins no word */
    EXPECT(t, "\u2581 he\u2581", 0, MARK, UNK);
    EXPECT(t, "[CLS]", 0, UNK, UNK, UNK); /* "[" "CLS" "]" */
    EXPECT(t, "[CLS]", TOKENIZE_SPECIAL, CLS);
    EXPECT(t, "he", TOKENIZE_BOS, CLS, HE, SEP); /* found by their names */
    EXPECT(t, "", TOKENIZE_BOS, CLS, SEP);

    buf text = {0};
    assert_int_equal(tokenizer_decode(t, (int32_t[]){HELLO, O, HE, LLO}, 4, true, &text), 0);
    assert_string_equal(text.data, "helloo hello");
    buf_fini(&text);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

static void test_cased(void **state) {
    static const char *const tokens[] = {"[CLS]", "[SEP]", "[UNK]", "\u2581He", "\u2581h\u00e9"};
    fill_bert(tokens, COUNT_OF(tokens));
    bed.vocab.lowercase = 0;
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "He he h\u00e9", 0, 3, UNK, 4);
    tokenizer_close(&t);
    bed.vocab.lowercase = 1;
    bed.vocab.strip_accents = 0;
    t = bed_open(&bed);
    EXPECT(t, "H\u00c9 He", 0, 4, UNK);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

static void test_frame(void **state) {
    fill_bert(hello, COUNT_OF(hello));
    bed.vocab.bos = HELLO;
    bed.vocab.eos = HE;
    bed.vocab.sep = O;
    bed.vocab.add_bos = 1;
    bed.vocab.add_eos = 1;
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "", TOKENIZE_BOS, HELLO, HE);
    tokenizer_close(&t);
    bed.vocab.add_eos = 0;
    t = bed_open(&bed);
    EXPECT(t, "", TOKENIZE_BOS, HELLO);
    tokenizer_close(&t);
    bed.vocab.add_eos = -1; /* then it is the separator, as BERT has it */
    t = bed_open(&bed);
    EXPECT(t, "", TOKENIZE_BOS, HELLO, O);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

static void test_lone_unknown(void **state) { /* a vocabulary that cannot even say "unknown" */
    static const char *const tokens[] = {"\u2581he"};
    fill_bert(tokens, COUNT_OF(tokens));
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "x he y", TOKENIZE_BOS, 0);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* ---- unigram by hand ---- */

static void fill_unigram(void) {
    bed_vocab_init(&bed, "t5", "default");
    bed.vocab.n_tokens = 0;
    bed.vocab.unk = bed_add(&bed, "<unk>", TOKEN_UNKNOWN, 0);
    bed.vocab.eos = bed_add(&bed, "</s>", TOKEN_CONTROL, 0);
    bed_add(&bed, "\u2581", TOKEN_NORMAL, -2);
    bed_add(&bed, "ab", TOKEN_NORMAL, -3);
    bed_add(&bed, "a", TOKEN_NORMAL, -1);
    bed_add(&bed, "b", TOKEN_NORMAL, -1);
    bed_add(&bed, "\u2581ab", TOKEN_UNUSED, -1);
    bed_add(&bed, "abab", TOKEN_NORMAL, -4);
}

static void test_best_way(void **state) {
    fill_unigram();
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "ab", 0, 2, 4, 5); /* -1 -1 is more than -3; an unused token is none */
    EXPECT(t, "abab", 0, 2, 7);  /* of equal sums the one that was found first, from the left */
    EXPECT(t, "axyb  a", 0, 2, 4, 0, 5, 2, 4);
    EXPECT(t, "</s>", 0, 2, 0); /* no text makes a control token */
    EXPECT(t, "a</s>", TOKENIZE_SPECIAL, 2, 4, 1);
    EXPECT(t, "a", TOKENIZE_BOS, 2, 4, 1); /* T5 ends with EOS */
    tokenizer_close(&t);
    bed.vocab.unk = -1; /* found by its type */
    t = bed_open(&bed);
    EXPECT(t, "x", 0, 2, 0);
    tokenizer_close(&t);
    bed.scores[7] = -4.5f;
    bed.vocab.add_space_prefix = 0;
    t = bed_open(&bed);
    EXPECT(t, "abab a", 0, 4, 5, 4, 5, 4);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

static void test_bytes_of_unknown(void **state) {
    bed_vocab_init(&bed, "t5", "default"); /* with its byte tokens, 0..255 */
    int32_t mark = bed_add(&bed, "\u2581", TOKEN_NORMAL, -1);
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "\u00e9z", 0, mark, 0xC3, 0xA9, 'z');
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* ---- maps of characters ---- */

static void expect_malformed(const uint8_t *blob, size_t size) {
    charsmap *c = NULL;
    assert_int_equal(charsmap_open(blob, size, &c), ICP_EFORMAT);
    assert_null(c);
}

static void test_malformed_maps(void **state) {
    expect_malformed((const uint8_t[]){0, 0, 0}, 3);
    expect_malformed((const uint8_t[]){0, 0, 0, 0, 0}, 5);
    expect_malformed((const uint8_t[]){4, 0, 0, 0, 0, 0, 0, 0}, 8);    /* no texts */
    expect_malformed((const uint8_t[]){4, 0, 0, 0, 0, 0, 0, 0, 1}, 9); /* not ended */
    expect_malformed((const uint8_t[]){5, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 10);
    expect_malformed((const uint8_t[]){255, 255, 255, 255, 0, 0, 0, 0, 0}, 9);

    fill_unigram();
    static const uint8_t blob[] = {9};
    bed.vocab.charsmap = blob;
    bed.vocab.charsmap_size = sizeof blob;
    tokenizer *t = NULL;
    icp_error err = {0};
    assert_int_equal(tokenizer_open(&bed.vocab, &t, &err), ICP_EFORMAT);
    assert_string_equal(err.text, "the map of characters is malformed");
    bed_vocab_fini(&bed);
}

static void test_random_maps(void **state) { /* whatever the trie says, it stays within bounds */
    static const char text[] = "Hello e\u0323\u0302 \u65e5\u672c\n\u200b\u00bd";
    uint64_t seed = 7;
    for (int i = 0; i < 2000; i++) {
        uint8_t blob[4 + 4 * 64 + 9] = {0, 1}; /* 64 units */
        for (size_t j = 4; j < sizeof blob - 1; j++) blob[j] = (uint8_t)bed_random(&seed, 256);
        for (size_t j = 7; j < 4 + 4 * 64; j += 4) /* small offsets, and leaves */
            if (bed_random(&seed, 4)) blob[j] = 0, blob[j - 1] = 0;
        charsmap *c = NULL;
        buf out = {0};
        assert_int_equal(charsmap_open(blob, sizeof blob, &c), 0);
        charsmap_put(c, text, sizeof text - 1, &out);
        buf_fini(&out);
        charsmap_close(&c);
    }
}

/* ---- Phi 3 ---- */

static void test_swallowed_space(void **state) {
    bed_vocab_init(&bed, "llama", NULL);
    bed.vocab.name = (text_str){"Phi-3 Mini", 10};
    bed.vocab.add_space_prefix = 0;
    int32_t user = bed_add(&bed, "<|user|>", TOKEN_CONTROL, 0);
    int32_t text = bed_add(&bed, "<|endoftext|>", TOKEN_CONTROL, 0);
    int32_t mine = bed_add(&bed, "</s>", TOKEN_USER, 0);
    tokenizer *t = bed_open(&bed);
    EXPECT(t, "<|user|> \n\u3000a", TOKENIZE_SPECIAL, user, 'a');
    EXPECT(t, "<|user|> <|user|>\n", TOKENIZE_SPECIAL, user, user);
    EXPECT(t, "<|endoftext|>\na", TOKENIZE_SPECIAL, text, '\n', 'a');
    EXPECT(t, "</s>\na", 0, mine, 'a');
    tokenizer_close(&t);
    bed.vocab.name = (text_str){"Llama", 5};
    t = bed_open(&bed);
    EXPECT(t, "<|user|>\na", TOKENIZE_SPECIAL, user, '\n', 'a');
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* ---- failing memory ---- */

static void open_with_little(bed_vocab *b) {
    int rc = -1;
    for (long n = 0; rc; n++) {
        tokenizer *t = NULL;
        mem_fail_after(n);
        rc = tokenizer_open(&b->vocab, &t, NULL);
        mem_fail_after(-1);
        assert_true(n < 1000);
        if (rc) assert_int_equal(rc, ICP_ENOMEM);
        assert_int_equal(rc == 0, t != NULL);
        tokenizer_close(&t);
    }
}

static void encode_with_little(const tokenizer *t) {
    static const char text[] = "he\u00e9 ab \u1100\u1161 caf\u00e9, \u2581x " /* and a long word: */
                               "abababababababababababababababababababababababababababababababab";
    int rc = -1;
    for (long n = 0; rc; n++) {
        token_ids ids = {0};
        assert_int_equal(token_ids_push(&ids, 1), 0);
        mem_fail_after(n);
        rc = tokenizer_encode(t, text, strlen(text), NULL, 0, &ids);
        mem_fail_after(-1);
        assert_true(n < 1000);
        if (rc) assert_int_equal(rc, ICP_ENOMEM);
        if (rc) assert_int_equal(ids.n, 1);
        token_ids_fini(&ids);
    }
}

static void test_little_memory(void **state) {
    static const uint8_t blob[] = {4, 0, 0, 0, 0, 0, 0, 0, 0};
    fill_bert(hello, COUNT_OF(hello));
    open_with_little(&bed);
    bed_vocab_fini(&bed);
    fill_unigram();
    bed.vocab.charsmap = blob;
    bed.vocab.charsmap_size = sizeof blob;
    open_with_little(&bed);
    bed_vocab_fini(&bed);

    tokenizer *t = bed_open_golden("bert");
    encode_with_little(t);
    tokenizer_close(&t);
    t = bed_open_file(GOLDEN_DIR "/tokenizer/unigram.gguf");
    encode_with_little(t);
    tokenizer_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wordpiece),       cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_words),           cmocka_unit_test(test_cased),
        cmocka_unit_test(test_frame),           cmocka_unit_test(test_lone_unknown),
        cmocka_unit_test(test_best_way),        cmocka_unit_test(test_bytes_of_unknown),
        cmocka_unit_test(test_malformed_maps),  cmocka_unit_test(test_random_maps),
        cmocka_unit_test(test_swallowed_space), cmocka_unit_test(test_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
