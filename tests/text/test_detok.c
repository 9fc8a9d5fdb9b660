/* Detokenization: never half a character, broken bytes once for each broken prefix. */
#include "cmocka_tests.h"
#include "text_bed.h"

#include <string.h>

static bed_vocab bed;

static void put_all(detok *d, const int32_t *ids, size_t n, buf *out) {
    for (size_t i = 0; i < n; i++) {
        size_t before = out->len;
        detok_put(d, ids[i], out);
        if (out->len > before) /* only whole characters come out */
            assert_int_equal(utf8_complete(out->data + before, out->len - before),
                             out->len - before);
    }
}

static void expect_text(const tokenizer *t, bool skip, const int32_t *ids, size_t n,
                        const char *put, const char *flushed) {
    detok d;
    buf out = {0};
    detok_init(&d, t, skip);
    buf_puts(&out, "");
    put_all(&d, ids, n, &out);
    assert_string_equal(out.data, put);
    detok_flush(&d, &out);
    assert_string_equal(out.data, flushed);
    buf_fini(&out);
}
#define EXPECT(t, skip, put, flushed, ...)                                                         \
    do {                                                                                           \
        const int32_t ids_[] = {__VA_ARGS__};                                                      \
        expect_text(t, skip, ids_, COUNT_OF(ids_), put, flushed);                                  \
    } while (0)

static void test_bytes(void **state) {
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    int32_t tail = bed_add(&bed, "\u00A9\u0120x", TOKEN_NORMAL, 0); /* the bytes A9, space, x */
    int32_t end = bed_add(&bed, "<|im_end|>", TOKEN_CONTROL, 0);
    int32_t think = bed_add(&bed, "<think>", TOKEN_USER, 0);
    int32_t plain = bed_add(&bed, "\u4F60", TOKEN_NORMAL, 0); /* stands for no bytes: as it is */
    tokenizer *t = bed_open(&bed);
    EXPECT(t, false, "a", "a", 'a');
    EXPECT(t, false, "", "\uFFFD", 0xC3);
    EXPECT(t, false, "\u00E9 x", "\u00E9 x", 0xC3, tail);
    EXPECT(t, false, "a", "a\uFFFD", 'a', 0xF0, 0x9F);
    EXPECT(t, false, "\uFFFDa", "\uFFFDa", 0xF0, 0x9F, 'a');
    EXPECT(t, false, "\U0001F389", "\U0001F389", 0xF0, 0x9F, 0x8E, 0x89);
    EXPECT(t, false, "\uFFFD\u00E9", "\uFFFD\u00E9", 0xF0, 0x9F, 0xC3, 0xA9);
    EXPECT(t, false, "\uFFFD\uFFFD", "\uFFFD\uFFFD", 0xC0, 0x80);
    EXPECT(t, false, "\uFFFD\uFFFD\uFFFD", "\uFFFD\uFFFD\uFFFD", 0xED, 0xA0, 0x80);
    EXPECT(t, false, "\uFFFD\uFFFD\uFFFD\uFFFD", "\uFFFD\uFFFD\uFFFD\uFFFD", 0xF4, 0x90, 0x80,
           0x80);
    EXPECT(t, false, "<|im_end|><think>", "<|im_end|><think>", end, think);
    EXPECT(t, true, "a<think>", "a<think>", 'a', end, think);
    EXPECT(t, true, "\u00E9", "\u00E9", 0xC3, end, 0xA9);
    EXPECT(t, false, " a \u4F60", " a \u4F60", ' ', 'a', ' ', plain);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

static void test_leading_space(void **state) {
    bed_vocab_init(&bed, "llama", NULL);
    int32_t hello = bed_add(&bed, "\u2581Hello", TOKEN_NORMAL, 0);
    int32_t world = bed_add(&bed, "\u2581world", TOKEN_NORMAL, 0);
    bed.vocab.bos = bed_add(&bed, "<s>", TOKEN_CONTROL, 0);
    tokenizer *t = bed_open(&bed);
    EXPECT(t, false, "Hello world", "Hello world", hello, world);
    EXPECT(t, true, "Hello world", "Hello world", bed.vocab.bos, hello, world);
    EXPECT(t, false, "<s> Hello", "<s> Hello", bed.vocab.bos, hello);
    EXPECT(t, false, "\n world", "\n world", '\n', world); /* a byte token */
    detok d;
    buf out = {0};
    detok_init(&d, t, true);
    d.begun = true; /* the ids continue a text */
    detok_put(&d, world, &out);
    assert_string_equal(out.data, " world");
    buf_fini(&out);
    tokenizer_close(&t);

    bed.vocab.add_space_prefix = 0;
    t = bed_open(&bed);
    EXPECT(t, false, " Hello", " Hello", hello);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

/* Any ids: the stream is the whole text with its brokenness repaired. */
static void test_stream_is_whole(void **state) {
    static const char *const models[] = {"llama", "llama-tied-mqa", "gemma3"};
    uint64_t seed = 4;
    for (size_t m = 0; m < COUNT_OF(models); m++) {
        tokenizer *t = bed_open_golden(models[m]);
        for (int round = 0; round < 500; round++) {
            int32_t ids[40];
            bool skip = bed_random(&seed, 2);
            for (size_t i = 0; i < 40; i++)
                ids[i] = (int32_t)bed_random(&seed, (uint32_t)tokenizer_n(t));
            detok d;
            buf got = {0}, raw = {0}, want = {0};
            detok_init(&d, t, skip);
            put_all(&d, ids, 40, &got);
            detok_flush(&d, &got);
            assert_int_equal(tokenizer_decode(t, ids, 40, skip, &raw), 0);
            bed_repair(raw.data, raw.len, &want);
            assert_string_equal(got.data, want.data);
            buf_fini(&got);
            buf_fini(&raw);
            buf_fini(&want);
        }
        tokenizer_close(&t);
    }
}

static void test_decode_refuses(void **state) {
    bed_vocab_init(&bed, "gpt2", "gpt-2");
    tokenizer *t = bed_open(&bed);
    buf out = {0};
    assert_int_equal(tokenizer_decode(t, (int32_t[]){'a', 256}, 2, false, &out), ICP_EINVALID);
    assert_int_equal(tokenizer_decode(t, (int32_t[]){'a', -1}, 2, false, &out), ICP_EINVALID);
    assert_int_equal(out.len, 0);
    mem_fail_after(0);
    int rc = tokenizer_decode(t, (int32_t[]){'a'}, 1, false, &out);
    mem_fail_after(-1);
    assert_int_equal(rc, ICP_ENOMEM);
    buf_fini(&out);
    tokenizer_close(&t);
    bed_vocab_fini(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_leading_space),
        cmocka_unit_test(test_stream_is_whole),
        cmocka_unit_test(test_decode_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
