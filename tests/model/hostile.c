/* Files that are wrong: each is refused with a sentence that names what is wrong, or computes
 * something; none may crash or read what is not there (the sanitizers watch). */
#include "refusal.h"
#include "run_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEADER = 24000, MUTATIONS = 60 };

static pool *threads;

/* Opens the bytes as a model; on success runs a few tokens. */
static int try_model(const bytes *b, icp_error *err) {
    char path[64];
    int file = memfd_create("model", 0);
    assert_int_equal(write(file, b->data, b->len), b->len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    gguf *g;
    model *m = NULL;
    *err = (icp_error){0};
    int rc = gguf_open(path, &g, err);
    if (rc == 0) {
        model_opts opts = {.isa = KERN_SCALAR, .kv = KERN_F16, .pool = threads, .n_ctx = 64};
        rc = model_open(g, &opts, &m, err);
        gguf_close(&g);
    }
    if (rc == 0 && model_get_info(m)->page_size < 1 << 24 && model_reserve(m, 4, 4) == 0) {
        int32_t ids[4] = {0, 0, 0, 0};
        float *rows = malloc(4 * model_get_info(m)->n_out * sizeof *rows);
        sequence s;
        sequence_init(&s, m, 4);
        sequence_extend(&s, ids, 4, 4, rows);
        sequence_fini(&s);
        free(rows);
    }
    model_close(&m);
    close(file);
    assert_true(rc == 0 || strlen(err->text) > 10);
    return rc;
}

static void refused(const char *name, const char *key, uint32_t value, const char *sentence) {
    bytes b = read_bytes(name);
    icp_error err;
    set_number(b, key, &value);
    assert_true(try_model(&b, &err) < 0);
    assert_says(&err, sentence, key);
    free(b.data);
}

static void wrong_numbers(void **state) {
    refused("llama", "llama.block_count", 0, "llama.block_count is 0");
    refused("llama", "llama.block_count", 4, "tensor blk.3.attn_norm.weight is missing");
    refused("llama", "llama.block_count", 0x7fffffff, "must be between 1 and");
    refused("llama", "llama.attention.head_count", 0, "must be between 1 and");
    refused("llama", "llama.attention.head_count", 3, "not a multiple");
    refused("llama", "llama.attention.key_length", 100000, "must be between 1 and");
    refused("llama", "llama.attention.key_length", 24, "tensor blk.0.attn_q.weight is");
    refused("llama", "llama.rope.dimension_count", 15, "must be even");
    refused("llama", "llama.feed_forward_length", 97, "it must be 64 x 97");
    refused("llama", "llama.attention.layer_norm_rms_epsilon", 0x7fc00000, "is nan");
    refused("mixtral", "llama.expert_count", 5, "blk.0.ffn_gate_inp.weight is");
    refused("mixtral", "llama.expert_count", 0, "must be between 0 and 0");
    refused("mixtral", "llama.expert_used_count", 9, "must be between 1 and 4");
    refused("mixtral", "llama.expert_count", 1u << 30, "must be between 0 and");
    refused("deepseek2", "deepseek2.attention.kv_lora_rank", 31, "do not fit a latent of 31");
    refused("deepseek3", "deepseek2.expert_group_count", 3, "8 experts in 3 groups");
    refused("deepseek3", "deepseek2.rope.scaling.factor", 0, "must be between");
    refused("gemma4", "gemma4.attention.shared_kv_layers", 6, "must be between 0 and 5");
    refused("qwen3next", "qwen3next.ssm.inner_size", 63, "do not divide evenly");
    refused("mamba2", "mamba2.ssm.state_size", 1u << 20, "must be between 1 and");
    refused("bert", "bert.attention.head_count", 4, "cannot generate");
    refused("bert", "bert.pooling_type", 4, "to rank: tensor cls.output.weight is missing");
    refused("bert", "bert.pooling_type", 5, "must be between 0 and 4");
    refused("qwen3-rank", "qwen3.embedding_length", 1, "has 2 rows; it must have 1 to 1");
}

static void renamed(const char *name, const char *from, const char *to, const char *sentence) {
    bytes b = read_bytes(name);
    icp_error err;
    memcpy(find_bytes(b, from), to, strlen(from));
    assert_true(try_model(&b, &err) < 0);
    assert_says(&err, sentence, to);
    free(b.data);
}

static void wrong_names(void **state) {
    renamed("llama", "blk.1.ffn_up.weight", "blk.1.ffn_uq.weight",
            "blk.1.ffn_up.weight is missing");
    renamed("qwen2", "blk.1.attn_q.bias", "blk.1.attn_r.bias", "blk.1.attn_r.bias is nothing that");
    renamed("qwen3", "blk.1.attn_q_norm", "blk.1.attn_q_nurm", "attn_q_norm.weight is missing");
    renamed("llama", "general.architecture", "general.architectura", "no general.architecture");
    renamed("falcon-h1", "blk.1.ssm_a", "blk.1.ssm_b", "blk.1.ssm_a is missing");
    renamed("qwen3-rank", "cls.output.weight", "cls.autput.weight", "cls.output.weight is missing");
    renamed("gpt-oss", "yarn", "cork", "RoPE scaling \"cork\" is not supported; supported: none");
    bytes b = read_bytes("llama");
    icp_error err;
    memcpy(find_bytes(b, "general.architecture") + strlen("general.architecture") + 12, "lhama", 5);
    assert_int_equal(try_model(&b, &err), ICP_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "\"lhama\" is not supported; supported: llama, "));
    assert_non_null(strstr(err.text, "gemma3"));
    free(b.data);
}

/* Bytes of header and metadata changed at random. */
static void mutations(void **state) {
    static const char *const names[] = {
        "llama",   "mixtral", "gemma4",        "deepseek3", "gpt-oss", "gptneox",   "phi3-longrope",
        "cohere2", "olmo2",   "granitehybrid", "qwen3next", "lfm2",    "qwen3-rank"};
    uint64_t rng = 1;
    int opened = 0;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        bytes b = read_bytes(names[i]), twin = {malloc(b.len), b.len};
        for (int round = 0; round < MUTATIONS; round++) {
            icp_error err;
            memcpy(twin.data, b.data, b.len);
            for (int n = round % 3; n >= 0; n--) {
                rng = rng * 6364136223846793005u + 1442695040888963407u;
                size_t at = (rng >> 33) % (round % 2 ? 1200 : HEADER);
                twin.data[at] = (unsigned char)(round % 5 ? (unsigned)(rng >> 25)
                                                          : twin.data[at] ^ 1u << round % 8);
            }
            opened += try_model(&twin, &err) == 0;
        }
        free(b.data);
        free(twin.data);
    }
    print_message("%d of %zu mutated files opened\n", opened, COUNT_OF(names) * MUTATIONS);
}

/* Every allocation of opening fails once. */
static void no_memory(void **state) {
    static const char *const names[] = {"qwen2moe", "deepseek2"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        bytes b = read_bytes(names[i]);
        icp_error err;
        int rc = -1;
        for (long n = 0; rc < 0; n++) {
            mem_fail_after(n);
            rc = try_model(&b, &err);
            mem_fail_after(-1);
        }
        free(b.data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_numbers),
                                       cmocka_unit_test(wrong_names), cmocka_unit_test(mutations),
                                       cmocka_unit_test(no_memory)};
    if (pool_open(2, &threads) < 0) return 1;
    int failed = cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
    pool_close(&threads);
    return failed;
}
