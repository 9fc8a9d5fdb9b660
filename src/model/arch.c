#include "model_internal.h"

#include <stdio.h>
#include <string.h>

/* Where norms stand, and their tensors' names. */
static const char *const before[N_NORM_SLOTS] = {[ATTN_IN] = "attn_norm", [FFN_IN] = "ffn_norm"};
static const char *const before_named_post[N_NORM_SLOTS] = {
    [ATTN_IN] = "attn_norm", [FFN_IN] = "post_attention_norm"};
static const char *const after[N_NORM_SLOTS] = {
    [ATTN_OUT] = "post_attention_norm", [FFN_OUT] = "post_ffw_norm"};
static const char *const around[N_NORM_SLOTS] = {[ATTN_IN] = "attn_norm",
                                                 [ATTN_OUT] = "post_attention_norm",
                                                 [FFN_IN] = "ffn_norm",
                                                 [FFN_OUT] = "post_ffw_norm"};
static const char *const one[N_NORM_SLOTS] = {[ATTN_IN] = "attn_norm"}; /* for all branches */
static const char *const of_sums[N_NORM_SLOTS] = {
    [ATTN_SUM] = "attn_output_norm", [FFN_SUM] = "layer_output_norm"};

/* Sources: the model's code in transformers, and llama.cpp's tensor and key names. */
static const arch architectures[] = {
    /* Llama 1-3, SmolLM2, Mistral, and Mixtral with experts */
    {.name = "llama", .norms = before, .renormalise = true},
    {.name = "llama4", /* Scout and Maverick, text */
     .norms = before,
     .gating = GATING_SIGMOID,
     .weigh_inputs = true,
     .n_shared_experts = 1,
     .norm_rotated = true,
     .chunked = true,
     .window = 8192,
     .window_period = 4,
     .nope_period = 4,
     .nope_temperature = 0.1f},
    {.name = "mistral3", .norms = before}, /* Ministral 3 */
    {.name = "smollm3", .norms = before, .nope_period = 4},
    {.name = "granite", .norms = before, .logits_divided = true},
    {.name = "granitemoe", .norms = before, .logits_divided = true, .renormalise = true},
    {.name = "qwen2", .norms = before, .rope = ROPE_HALVES},
    {.name = "seed_oss", .norms = before_named_post, .rope = ROPE_HALVES},
    {.name = "qwen2moe", .norms = before, .rope = ROPE_HALVES},
    {.name = "qwen3", .norms = before, .rope = ROPE_HALVES, .qk_norm = QK_NORM_HEAD},
    {.name = "qwen3moe",
     .norms = before,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD,
     .renormalise = true},
    {.name = "olmo2", /* and Olmo 3, which has windows */
     .norms = after,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_ROW,
     .window_period = 4,
     .window_unscaled = true},
    {.name = "olmoe", .norms = before, .rope = ROPE_HALVES, .qk_norm = QK_NORM_ROW},
    {.name = "exaone4",
     .norms = after,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD,
     .window_period = 4,
     .rope_in_windows_only = true},
    {.name = "phi3", .norms = before, .rope = ROPE_HALVES},
    {.name = "glm4", .norms = around},
    {.name = "glm4moe",
     .norms = before_named_post,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD_IF_THERE,
     .gating = GATING_SIGMOID,
     .renormalise = true},
    {.name = "gpt-oss",
     .norms = before_named_post,
     .rope = ROPE_HALVES,
     .activation = KERN_SWIGLU_CLAMPED,
     .gating = GATING_SOFTMAX_CHOSEN,
     .sinks = true,
     .window_period = 2},
    {.name = "deepseek2", .norms = before, .latent = true}, /* DeepSeek V2 and V3 */

    {.name = "mamba2", .norms = one, .rope = POSITIONS_UNKNOWN, .mixer = MIXER_MAMBA},
    {.name = "granitehybrid", /* Granite 4 */
     .norms = before,
     .logits_divided = true,
     .renormalise = true,
     .mixer = MIXER_MAMBA,
     .rope_if_finetuned = true},
    {.name = "falcon-h1",
     .norms = before,
     .rope = ROPE_HALVES,
     .mixer = MIXER_MAMBA,
     .mixer_beside_attention = true},
    {.name = "lfm2",
     .norms = before,
     .output_norm = "token_embd_norm",
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD,
     .mixer = MIXER_CONV},
    {.name = "qwen3next",
     .norms = before_named_post,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD,
     .renormalise = true,
     .mixer = MIXER_DELTA,
     .gated_attention = true},
    {.name = "qwen35", /* Qwen 3.5, text */
     .norms = before_named_post,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD,
     .mixer = MIXER_DELTA,
     .keys_in_turn = true,
     .gated_attention = true},

    {.name = "gemma",
     .norms = before,
     .rope = ROPE_HALVES,
     .activation = KERN_GELU_TANH,
     .embd_sqrt = true},
    {.name = "gemma2",
     .norms = around,
     .rope = ROPE_HALVES,
     .activation = KERN_GELU_TANH,
     .embd_sqrt = true,
     .window_period = 2,
     .wide_query_layers = 46},
    {.name = "gemma3",
     .norms = around,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD,
     .activation = KERN_GELU_TANH,
     .embd_sqrt = true,
     .window_period = 6,
     .window_unscaled = true,
     .window_rope_base = 10000,
     .wide_query_layers = 62},
    {.name = "gemma4",
     .norms = around,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD,
     .activation = KERN_GELU_TANH,
     .embd_sqrt = true,
     .norm_v = true,
     .v_may_be_k = true,
     .window_period = 6,
     .window_unscaled = true,
     .window_rope_base = 10000,
     .query_scale = 1},

    {.name = "starcoder2",
     .norms = before,
     .norm = NORM_LAYER,
     .rope = ROPE_HALVES,
     .activation = KERN_GELU_TANH},
    {.name = "stablelm", .norms = before, .norm = NORM_LAYER, .rope = ROPE_HALVES},
    {.name = "gpt2",
     .norms = before,
     .norm = NORM_LAYER,
     .rope = POSITIONS_LEARNED,
     .activation = KERN_GELU_TANH},
    {.name = "gptneox",
     .norms = before,
     .norm = NORM_LAYER,
     .rope = ROPE_HALVES,
     .activation = KERN_GELU,
     .parallel = true},
    {.name = "phi2",
     .norms = one,
     .norm = NORM_LAYER,
     .rope = ROPE_HALVES,
     .activation = KERN_GELU_TANH,
     .parallel = true},
    {.name = "falcon",
     .norms = one,
     .norm = NORM_LAYER,
     .rope = ROPE_HALVES,
     .activation = KERN_GELU,
     .parallel = true},
    {.name = "command-r", .norms = one, .norm = NORM_LAYER, .parallel = true},
    {.name = "cohere2",
     .norms = one,
     .norm = NORM_LAYER,
     .parallel = true,
     .window_period = 4,
     .rope_in_windows_only = true},

    {.name = "bert",
     .norms = of_sums,
     .output_norm = "",
     .norm = NORM_LAYER,
     .rope = POSITIONS_LEARNED,
     .activation = KERN_GELU,
     .embd_norm = true,
     .encoder = true},
    {.name = "gemma-embedding", /* EmbeddingGemma */
     .norms = around,
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEAD,
     .activation = KERN_GELU_TANH,
     .embd_sqrt = true,
     .window_period = 6,
     .window_unscaled = true,
     .window_rope_base = 10000,
     .encoder = true},
    {.name = "nomic-bert",
     .norms = of_sums,
     .output_norm = "",
     .norm = NORM_LAYER,
     .rope = ROPE_HALVES,
     .embd_norm = true,
     .encoder = true},
};

const arch *arch_find(const char *name, size_t len) {
    for (size_t i = 0; i < COUNT_OF(architectures); i++)
        if (strlen(architectures[i].name) == len && !memcmp(architectures[i].name, name, len))
            return &architectures[i];
    return NULL;
}

void arch_list(char *out, size_t size) {
    size_t at = 0;
    for (size_t i = 0; i < COUNT_OF(architectures) && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", architectures[i].name);
}
