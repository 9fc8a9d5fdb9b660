#include "model_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REQUIRED = -1, UNSAID = -2, MAX_LAYERS = 1024, MAX_CONTEXT = 1 << 28, KEY = 160 };

typedef struct reader {
    const gguf *g;
    const char *arch;
    const model_rope *wish;
    icp_error *err;
} reader;

/* ---- values --------------------------------------------------------------------------------- */

static const gguf_value *find_value(const reader *r, const char *key, char full[KEY]) {
    snprintf(full, KEY, "%s.%s", r->arch, key);
    return gguf_find(r->g, full);
}

static bool is_number(const gguf_value *v) {
    enum gguf_kind kind = v->kind == GGUF_KIND_ARRAY ? v->item : v->kind;
    return kind != GGUF_KIND_STRING && kind != GGUF_KIND_ARRAY && v->count > 0;
}

/* Fills out[n] from `<arch>.key`: one whole number for all, or an array with one for each. Where
 * the file has none they become `missing`, unless that is REQUIRED. */
static int read_each(const reader *r, const char *key, int low, int high, int missing, int *out,
                     int n) {
    char full[KEY];
    const gguf_value *v = find_value(r, key, full);
    if (!v && missing == REQUIRED) return error_set(r->err, ICP_EFORMAT, "%s is missing", full);
    if (v && (!is_number(v) || (v->kind != GGUF_KIND_ARRAY && v->kind == GGUF_KIND_F32)))
        return error_set(r->err, ICP_EFORMAT, "%s is not a whole number", full);
    if (v && v->kind == GGUF_KIND_ARRAY && v->count < (uint64_t)n)
        return error_set(r->err, ICP_EFORMAT, "%s has %llu numbers for %d layers", full,
                         (unsigned long long)v->count, n);
    for (int i = 0; i < n; i++) {
        int64_t x = v ? gguf_at_int(v, v->kind == GGUF_KIND_ARRAY ? (uint64_t)i : 0) : missing;
        if (v && (x < low || x > high))
            return error_set(r->err, ICP_EFORMAT, "%s is %lld; it must be between %d and %d", full,
                             (long long)x, low, high);
        out[i] = (int)x;
    }
    return 0;
}

static int read_int(const reader *r, const char *key, int low, int high, int missing, int *out) {
    return read_each(r, key, low, high, missing, out, 1);
}

static int read_double(const reader *r, const char *key, double low, double high, double missing,
                       double *out) {
    char full[KEY];
    find_value(r, key, full);
    *out = gguf_float(r->g, full, missing);
    if (*out >= low && *out <= high) return 0;
    return error_set(r->err, ICP_EFORMAT, "%s is %g; it must be between %g and %g", full, *out, low,
                     high);
}

/* The same, unless the caller wants another number: a wish that is not 0. */
static int read_wished(const reader *r, const char *key, double low, double high, double missing,
                       double wish, double *out) {
    TRY(read_double(r, key, low, high, missing, out));
    if (wish == 0) return 0;
    if (!(wish >= low && wish <= high))
        return error_set(r->err, ICP_EINVALID,
                         "%s was asked to be %g; it must be between %g and %g", key, wish, low,
                         high);
    *out = wish;
    return 0;
}

static int read_float(const reader *r, const char *key, double low, double high, double missing,
                      float *out) {
    double x;
    TRY(read_double(r, key, low, high, missing, &x));
    *out = (float)x;
    return 0;
}

static bool read_bool(const reader *r, const char *key, bool missing) {
    char full[KEY];
    find_value(r, key, full);
    return gguf_bool(r->g, full, missing);
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Which layers see a window only. */
static int read_windows(const reader *r, hparams *h) {
    char full[KEY];
    const gguf_value *v = find_value(r, "attention.sliding_window_pattern", full);
    int window, period = h->arch->window_period, is_local[MAX_LAYERS];
    TRY(read_int(r, "attention.sliding_window", 0, 1 << 28, h->arch->window, &window));
    if (v && v->kind == GGUF_KIND_ARRAY) {
        TRY(read_each(r, "attention.sliding_window_pattern", 0, 1, 0, is_local, h->n_layer));
    } else {
        TRY(read_int(r, "attention.sliding_window_pattern", 0, MAX_LAYERS, period, &period));
        for (int i = 0; i < h->n_layer; i++) is_local[i] = period == 0 || i % period < period - 1;
    }
    for (int i = 0; i < h->n_layer; i++) h->layers[i].window = is_local[i] ? window : 0;
    return 0;
}

static int check_heads(const reader *r, const shape *s) {
    if (!s->attention) return 0;
    if (s->n_head < 1 || s->n_head_kv < 1)
        return error_set(r->err, ICP_EFORMAT, "%d heads with %d KV heads attend to nothing",
                         s->n_head, s->n_head_kv);
    if (s->n_head % s->n_head_kv)
        return error_set(r->err, ICP_EFORMAT, "%d heads are not a multiple of %d KV heads",
                         s->n_head, s->n_head_kv);
    if (s->n_head / s->n_head_kv > ATTEND_ROWS)
        return error_set(r->err, ICP_EUNSUPPORTED,
                         "%d query heads for one KV head; at most %d are supported",
                         s->n_head / s->n_head_kv, ATTEND_ROWS);
    if (s->d_k < 1 || s->d_k > KERN_MAX_HEAD || s->d_v < 1)
        return error_set(r->err, ICP_EFORMAT, "a head has %d numbers; it must have 1 to %d", s->d_k,
                         KERN_MAX_HEAD);
    if (s->n_rot % 2 || s->n_rot > s->d_k)
        return error_set(r->err, ICP_EFORMAT,
                         "rope.dimension_count is %d; it must be even and at most %d", s->n_rot,
                         s->d_k);
    return 0;
}

/* Sizes of keys, values and rotation: of all layers, and of those with a window. */
static int read_head_sizes(const reader *r, hparams *h) {
    int heads = 1, k[2], v[2], rot[2];
    for (int i = 0; i < h->n_layer; i++) heads = MAX(heads, h->layers[i].n_head);
    int d = MIN(h->n_embd / heads, KERN_MAX_HEAD);
    TRY(read_int(r, "attention.key_length", 1, KERN_MAX_HEAD, d, &k[0]));
    TRY(read_int(r, "attention.value_length", 1, KERN_MAX_HEAD, d, &v[0]));
    TRY(read_int(r, "rope.dimension_count", 0, KERN_MAX_HEAD, k[0], &rot[0]));
    TRY(read_int(r, "attention.key_length_swa", 1, KERN_MAX_HEAD, k[0], &k[1]));
    TRY(read_int(r, "attention.value_length_swa", 1, KERN_MAX_HEAD, v[0], &v[1]));
    TRY(read_int(r, "rope.dimension_count_swa", 0, KERN_MAX_HEAD, MIN(rot[0], k[1]), &rot[1]));
    for (int i = 0; i < h->n_layer; i++) {
        shape *s = &h->layers[i];
        int local = s->window > 0;
        s->d_k = k[local];
        s->d_v = s->d_out = v[local];
        s->n_rot = rot[local];
    }
    return 0;
}

/* Latent attention: one KV head, whose key is the latent and a rotated part, whose value is the
 * latent (DeepSeek-V2, arXiv 2405.04434, with the key's and value's matrices absorbed). */
static int read_latent(const reader *r, hparams *h) {
    int d_out;
    if (!h->arch->latent) return 0;
    TRY(read_int(r, "attention.q_lora_rank", 1, 1 << 17, 0, &h->rank_q));
    TRY(read_int(r, "attention.kv_lora_rank", 1, KERN_MAX_HEAD, REQUIRED, &h->rank_kv));
    TRY(read_int(r, "attention.key_length_mla", 1, 1 << 16, REQUIRED, &h->d_k_latent));
    TRY(read_int(r, "attention.value_length_mla", 1, 1 << 16, REQUIRED, &d_out));
    for (int i = 0; i < h->n_layer; i++) {
        shape *s = &h->layers[i];
        s->n_head_kv = 1;
        s->d_out = d_out;
        if (s->d_k != h->rank_kv + s->n_rot || s->d_v != h->rank_kv || h->d_k_latent <= s->n_rot)
            return error_set(r->err, ICP_EFORMAT,
                             "keys of %d and values of %d numbers do not fit a latent of %d and %d "
                             "rotated ones",
                             s->d_k, s->d_v, h->rank_kv, s->n_rot);
    }
    return 0;
}

/* Which layers attend, and which have a recurrent mixer. */
static int read_kinds(const reader *r, hparams *h) {
    int is_recurrent[MAX_LAYERS] = {0}, interval;
    const arch *a = h->arch;
    TRY(read_int(r, "full_attention_interval", 0, MAX_LAYERS, 0, &interval));
    TRY(read_each(r, "attention.recurrent_layers", 0, 1, UNSAID, is_recurrent, h->n_layer));
    for (int i = 0; i < h->n_layer; i++) {
        shape *s = &h->layers[i];
        bool in_turn = interval && i % interval < interval - 1;
        bool instead = is_recurrent[i] == UNSAID ? in_turn || s->n_head_kv == 0 : is_recurrent[i];
        s->attention = !a->mixer || a->mixer_beside_attention || !instead;
        s->recurrent = a->mixer && (a->mixer_beside_attention || instead);
        if (!s->attention) s->n_head = s->n_head_kv = 0;
    }
    return 0;
}

/* Sizes of the mixer, and where each layer's part of the state is. */
static int read_mixer(const reader *r, hparams *h) {
    mixer_sizes *z = &h->mixer;
    size_t at = 0;
    z->kind = h->arch->mixer;
    if (z->kind == MIXER_NONE) return 0;
    if (z->kind == MIXER_CONV) {
        TRY(read_int(r, "shortconv.l_cache", 1, 64, REQUIRED, &z->taps));
        z->channels = z->d_inner = h->n_embd;
        z->conv_at = 2 * h->n_embd;
        z->heads = z->groups = 1;
    } else {
        TRY(read_int(r, "ssm.conv_kernel", 1, 64, REQUIRED, &z->taps));
        TRY(read_int(r, "ssm.inner_size", 1, 1 << 20, REQUIRED, &z->d_inner));
        TRY(read_int(r, "ssm.state_size", 1, MAX_STATE, REQUIRED, &z->d_state));
        TRY(read_int(r, "ssm.time_step_rank", 1, 1 << 14, REQUIRED, &z->heads));
        TRY(read_int(r, "ssm.group_count", 1, 1 << 14, REQUIRED, &z->groups));
        z->channels = z->d_inner + 2 * z->groups * z->d_state;
        z->conv_at = z->kind == MIXER_MAMBA ? z->d_inner : 0;
        if (z->d_inner % z->heads || z->heads % z->groups || z->d_inner / z->heads > MAX_STATE)
            return error_set(r->err, ICP_EFORMAT,
                             "%d inner numbers in %d heads and %d groups do not divide evenly",
                             z->d_inner, z->heads, z->groups);
    }
    for (int i = 0; i < h->n_layer; i++) {
        h->layers[i].state_at = at;
        if (h->layers[i].recurrent)
            at += (size_t)(z->taps - 1) * (size_t)z->channels +
                  (size_t)z->d_state * (size_t)z->d_inner;
    }
    h->n_state = at;
    return 0;
}

static int read_attention(const reader *r, hparams *h) {
    int heads[MAX_LAYERS], heads_kv[MAX_LAYERS], n_shared, least = h->arch->mixer ? 0 : 1;
    const arch *a = h->arch;
    double scale;
    TRY(read_each(r, "attention.head_count", least, 4096, REQUIRED, heads, h->n_layer));
    TRY(read_each(r, "attention.head_count_kv", least, 4096, UNSAID, heads_kv, h->n_layer));
    TRY(read_int(r, "attention.shared_kv_layers", 0, h->n_layer - 1, 0, &n_shared));
    for (int i = 0; i < h->n_layer; i++) {
        h->layers[i].n_head = heads[i];
        h->layers[i].n_head_kv = heads_kv[i] == UNSAID ? heads[i] : heads_kv[i];
    }
    TRY(read_kinds(r, h));
    TRY(read_mixer(r, h));
    TRY(read_windows(r, h));
    TRY(read_head_sizes(r, h));
    TRY(read_latent(r, h));
    double wide = h->n_layer == a->wide_query_layers ? sqrt(heads[0] / (double)h->n_embd) : 0;
    TRY(read_double(r, "attention.scale", 0, 1e6, wide > 0 ? wide : (double)a->query_scale,
                    &scale));
    for (int i = 0; i < h->n_layer; i++) {
        shape *s = &h->layers[i];
        TRY(check_heads(r, s));
        int d = a->latent ? h->d_k_latent : s->d_k;
        s->query_scale = (float)(scale > 0 ? scale : 1 / sqrt((double)d));
        s->rope = s->window && a->window_unscaled;
        bool knows = s->attention && a->rope <= ROPE_HALVES &&
                     !(a->rope_if_finetuned && !read_bool(r, "rope.scaling.finetuned", true)) &&
                     !(a->nope_period && (!a->window || h->layers[0].window) &&
                       i % a->nope_period == a->nope_period - 1) &&
                     !(a->rope_in_windows_only && h->layers[0].window && !s->window);
        s->n_rot = knows ? s->n_rot : 0;
        s->temperature = a->nope_temperature == 0 || !knows;
        s->kv_from = i;
    }
    for (int i = h->n_layer - n_shared; i < h->n_layer; i++) { /* the last like it that has some */
        int from = h->n_layer - n_shared - 1;
        while (from >= 0 && !h->layers[from].window != !h->layers[i].window) from--;
        if (from < 0)
            return error_set(r->err, ICP_EFORMAT, "layer %d finds no keys and values to share", i);
        h->layers[i].kv_from = from;
    }
    return 0;
}

static int read_feed_forward(const reader *r, hparams *h) {
    int ff[MAX_LAYERS], n_dense, step, n_shared, ff_shared, gating, experts;
    TRY(read_each(r, "feed_forward_length", 0, 1 << 20, 0, ff, h->n_layer));
    TRY(read_int(r, "expert_count", 0, MAX_EXPERTS, 0, &h->n_expert));
    experts = h->n_expert;
    TRY(read_int(r, "expert_used_count", experts ? 1 : 0, experts, experts ? REQUIRED : 0,
                 &h->n_expert_used));
    TRY(read_int(r, "expert_feed_forward_length", 1, 1 << 20, ff[0], &h->n_ff_expert));
    TRY(read_int(r, "expert_shared_count", 0, 64, h->arch->n_shared_experts, &n_shared));
    TRY(read_int(r, "expert_shared_feed_forward_length", 0, 1 << 20, n_shared * h->n_ff_expert,
                 &ff_shared));
    TRY(read_int(r, "leading_dense_block_count", 0, h->n_layer, 0, &n_dense));
    TRY(read_int(r, "interleave_moe_layer_step", 1, MAX_LAYERS, 1, &step));
    TRY(read_int(r, "expert_group_count", 0, MAX(experts, 1), 1, &h->n_group));
    TRY(read_int(r, "expert_group_used_count", 0, MAX(h->n_group, 1), h->n_group,
                 &h->n_group_used));
    if (h->n_group < 1 || h->n_group_used < 1) h->n_group = h->n_group_used = 1;
    if (experts % h->n_group || h->n_expert_used > experts / h->n_group * h->n_group_used)
        return error_set(r->err, ICP_EFORMAT,
                         "%d experts in %d groups, %d of them used, do not give %d experts",
                         experts, h->n_group, h->n_group_used, h->n_expert_used);
    gating = h->arch->gating ? (int)h->arch->gating : GATING_SOFTMAX;
    TRY(read_int(r, "expert_gating_func", GATING_SOFTMAX, GATING_SOFTMAX_CHOSEN, gating, &gating));
    TRY(read_float(r, "expert_weights_scale", 0, 1e6, 1, &h->expert_scale));
    h->expert_scale = h->expert_scale > 0 ? h->expert_scale : 1;
    h->renormalise = read_bool(r, "expert_weights_norm", h->arch->renormalise);
    h->gating = (enum gating)gating;
    h->norm_rotated = h->arch->norm_rotated && experts != 128; /* Maverick does not */
    for (int i = 0; i < h->n_layer; i++) {
        h->layers[i].experts = experts && i >= n_dense && (i + 1) % step == 0;
        h->layers[i].n_ff = h->layers[i].experts ? ff_shared : ff[i];
        if (!h->layers[i].experts && ff[i] == 0 && !h->arch->mixer)
            return error_set(r->err, ICP_EFORMAT, "%s.feed_forward_length is missing", r->arch);
    }
    return 0;
}

/* ---- positions ------------------------------------------------------------------------------ */

static double yarn_magnitude(double factor, double multiplier) {
    return factor <= 1 ? 1 : 0.1 * multiplier * log(factor) + 1;
}

/* YaRN (Peng et al. 2023, arXiv 2309.00071). With a log multiplier (DeepSeek's mscale_all_dim) part
 * of the magnitude moves from the angles to the scale of queries. */
static int read_yarn(const reader *r, hparams *h, rope_params *rope) {
    double multiplier;
    TRY(read_wished(r, "rope.scaling.yarn_beta_fast", 0, 1e6, 32, r->wish->beta_fast,
                    &rope->beta_fast));
    TRY(read_wished(r, "rope.scaling.yarn_beta_slow", 0, 1e6, 1, r->wish->beta_slow,
                    &rope->beta_slow));
    TRY(read_double(r, "rope.scaling.yarn_log_multiplier", 0, 1e3, 0, &multiplier));
    if (h->arch->latent) multiplier *= 10;
    double of_angles = h->arch->latent && multiplier != 0 ? multiplier : 1;
    rope->magnitude *= yarn_magnitude(rope->factor, of_angles) /
                       (multiplier != 0 ? yarn_magnitude(rope->factor, multiplier) : 1);
    if (h->arch->latent && multiplier != 0)
        for (int i = 0; i < h->n_layer; i++)
            h->layers[i].query_scale *= (float)pow(yarn_magnitude(rope->factor, multiplier), 2);
    return 0;
}

static int find_scaling(const reader *r, gguf_str type, enum rope_scaling *out) {
    static const char *const names[] = {[SCALING_NONE] = "none",
                                        [SCALING_LINEAR] = "linear",
                                        [SCALING_YARN] = "yarn",
                                        [SCALING_LONG] = "longrope"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strlen(names[i]) != type.len || memcmp(names[i], type.data, type.len)) continue;
        *out = (enum rope_scaling)i;
        return 0;
    }
    bool dynamic = type.len == 7 && !memcmp(type.data, "dynamic", 7);
    return error_set(r->err, ICP_EUNSUPPORTED,
                     "RoPE scaling \"%.*s\" is not supported%s; supported: none, linear, yarn, "
                     "longrope, and factors in rope_freqs.weight",
                     (int)MIN(type.len, (size_t)64), type.data,
                     dynamic
                         ? " (it changes with the length of a text, so that what is cached of a "
                           "short one would be wrong)"
                         : "");
}

/* What the file says, or the caller. A factor without a type is linear, as ever. */
static int read_scaling(const reader *r, rope_params *rope) {
    char full[KEY];
    const char *wish = r->wish->scaling;
    bool has_factors = gguf_find_tensor(r->g, "rope_factors_long.weight") != NULL;
    find_value(r, "rope.scaling.type", full);
    gguf_str type = gguf_string(r->g, full);
    rope->scaling = SCALING_LINEAR;
    if (type.data) TRY(find_scaling(r, type, &rope->scaling));
    if (has_factors) rope->scaling = SCALING_LONG;
    if (!wish) return 0;
    TRY(find_scaling(r, (gguf_str){wish, strlen(wish)}, &rope->scaling));
    if (has_factors || rope->scaling == SCALING_LONG)
        return error_set(r->err, ICP_EUNSUPPORTED,
                         "RoPE scaling \"longrope\" lies in the factors that a file has or has "
                         "not: it can be neither chosen nor changed");
    if (rope->scaling != SCALING_NONE && rope->factor == 1)
        return error_set(
            r->err, ICP_EINVALID,
            "RoPE scaling \"%s\" by a factor of 1 changes nothing; say by how much the "
            "context is to grow",
            wish);
    return 0;
}

/* How far the context reaches. A base of the caller's own may be good for any. */
static void set_context(const reader *r, hparams *h) {
    const rope_params *rope = &h->rope[0];
    const model_rope *wish = r->wish;
    double scaled = h->n_ctx_train;
    bool scales = rope->scaling == SCALING_LINEAR || rope->scaling == SCALING_YARN;
    if (scales && (wish->factor > 0 || wish->scaling))
        scaled = fmax(scaled, rope->n_ctx_orig * rope->factor);
    h->n_ctx_scaled = (int)fmin(scaled, MAX_CONTEXT);
    h->n_ctx_most = wish->base > 0 ? MAX_CONTEXT : h->n_ctx_scaled;
}

static int check_wishes(const reader *r, const hparams *h) {
    const model_rope *w = r->wish;
    bool any = w->scaling || w->factor != 0 || w->base != 0 || w->n_ctx_orig || w->beta_fast != 0 ||
               w->beta_slow != 0 || w->magnitude != 0;
    if (!any || h->rope[0].n_rot || h->rope[1].n_rot) return 0;
    return error_set(r->err, ICP_EUNSUPPORTED,
                     "architecture %s does not rotate positions: there is no RoPE to change",
                     r->arch);
}

static int read_rope(const reader *r, hparams *h) {
    rope_params *rope = &h->rope[0];
    double magnitude, linear, orig;
    TRY(read_wished(r, "rope.freq_base", 1, 1e12, 10000, r->wish->base, &rope->base));
    TRY(read_double(r, "rope.scaling.attn_factor", 1e-3, 1e3, 1, &magnitude));
    TRY(read_double(r, "rope.scale_linear", 1e-6, 1e6, 1, &linear)); /* in old files */
    TRY(read_wished(r, "rope.scaling.factor", 1e-6, 1e6, linear, r->wish->factor, &rope->factor));
    TRY(read_wished(r, "rope.scaling.original_context_length", 1, MAX_CONTEXT, h->n_ctx_train,
                    r->wish->n_ctx_orig, &orig));
    rope->n_ctx_orig = (int)orig;
    rope->magnitude = magnitude * (r->wish->magnitude > 0 ? r->wish->magnitude : 1);
    TRY(read_scaling(r, rope));
    if (rope->scaling == SCALING_YARN) TRY(read_yarn(r, h, rope));
    set_context(r, h);

    rope_params *local = &h->rope[1];
    double base = (double)h->arch->window_rope_base;
    TRY(read_double(r, "rope.freq_base_swa", 1, 1e12, base > 0 ? base : rope->base, &base));
    *local = (rope_params){.base = base, .factor = 1, .magnitude = 1};
    for (int i = 0; i < h->n_layer; i++)
        if (h->layers[i].n_rot) h->rope[h->layers[i].rope].n_rot = h->layers[i].n_rot;
    return check_wishes(r, h);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static int read_scales(const reader *r, hparams *h) {
    const arch *a = h->arch;
    double embd = a->embd_sqrt ? sqrt((double)h->n_embd) : 1;
    TRY(read_float(r,
                   a->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                       : "attention.layer_norm_epsilon",
                   0, 1, 1e-5, &h->norm_eps));
    TRY(read_float(r, "embedding_scale", 1e-6, 1e6, embd, &h->embd_scale));
    TRY(read_float(r, "residual_scale", 1e-6, 1e6, 1, &h->residual_scale));
    TRY(read_float(r, "logit_scale", 1e-6, 1e6, 1, &h->logit_scale));
    if (a->logits_divided) h->logit_scale = 1 / h->logit_scale;
    TRY(read_float(r, "attn_logit_softcapping", 0, 1e6, 0, &h->attn_softcap));
    TRY(read_float(r, "final_logit_softcapping", 0, 1e6, 0, &h->final_softcap));
    TRY(read_float(r, "attention.temperature_scale", 0, 1e6, (double)a->nope_temperature,
                   &h->temperature_scale));
    h->temperature_offset = a->nope_temperature > 0;
    return read_int(r, "attention.temperature_length", 1, 1 << 28,
                    a->window ? a->window : h->rope[0].n_ctx_orig, &h->temperature_length);
}

static int find_arch(const gguf *g, hparams *h, icp_error *err) {
    gguf_str name = gguf_string(g, "general.architecture");
    char known[480];
    if (!name.data)
        return error_set(err, ICP_EFORMAT,
                         "the file has no general.architecture: it is not a model");
    h->arch = arch_find(name.data, name.len);
    if (h->arch) return 0;
    arch_list(known, sizeof known);
    return error_set(err, ICP_EUNSUPPORTED, "architecture \"%.*s\" is not supported; supported: %s",
                     (int)MIN(name.len, (size_t)64), name.data, known);
}

/* How states become vectors. Files of cross-encoders need not say that they rank; a classifier
 * tells it. */
static int read_pooling(const reader *r, hparams *h) {
    const gguf_tensor *scores = gguf_find_tensor(r->g, "cls.output.weight");
    int pooling, pooled;
    TRY(read_int(r, "pooling_type", MODEL_POOL_NONE, MODEL_POOL_RANK,
                 scores ? MODEL_POOL_RANK : MODEL_POOL_NONE, &pooling));
    h->pooling = h->pooled = (enum model_pooling)pooling;
    if (pooling != MODEL_POOL_RANK) return 0;
    if (!scores)
        return error_set(r->err, ICP_EFORMAT,
                         "%s.pooling_type is %d, to rank: tensor cls.output.weight is missing",
                         r->arch, pooling);
    if (scores->dims[1] < 1 || scores->dims[1] > (uint64_t)h->n_embd)
        return error_set(r->err, ICP_EFORMAT,
                         "cls.output.weight has %llu rows; it must have 1 to %d",
                         (unsigned long long)scores->dims[1], h->n_embd);
    h->n_scores = (int)scores->dims[1];
    TRY(read_int(r, "classifier.pooling_type", MODEL_POOL_MEAN, MODEL_POOL_LAST,
                 h->causal ? MODEL_POOL_LAST : MODEL_POOL_FIRST, &pooled));
    h->pooled = (enum model_pooling)pooled;
    return 0;
}

static bool read_causal(const reader *r, const arch *a) {
    return read_bool(r, "attention.causal", !a->encoder);
}

static int read_all(const reader *r, hparams *h) {
    TRY(read_int(r, "embedding_length", 1, 1 << 17, REQUIRED, &h->n_embd));
    TRY(read_int(r, "context_length", 1, MAX_CONTEXT, REQUIRED, &h->n_ctx_train));
    TRY(read_attention(r, h));
    TRY(read_feed_forward(r, h));
    TRY(read_rope(r, h));
    TRY(read_scales(r, h));
    TRY(read_int(r, "embedding_length_per_layer_input", 0, 1 << 16, 0, &h->n_embd_layer));
    h->causal = read_causal(r, h->arch);
    TRY(read_pooling(r, h));
    h->parallel = read_bool(r, "use_parallel_residual", h->arch->parallel);
    return 0;
}

bool model_is_embedder(const gguf *g, bool *causal) {
    char full[KEY];
    gguf_str name = gguf_string(g, "general.architecture");
    const arch *a = name.data ? arch_find(name.data, name.len) : NULL;
    *causal = true;
    if (!a) return false;
    reader r = {.g = g, .arch = a->name};
    *causal = read_causal(&r, a);
    if (a->encoder || gguf_find_tensor(g, "cls.output.weight")) return true;
    return find_value(&r, "pooling_type", full) &&
           gguf_uint(g, full, MODEL_POOL_NONE) != MODEL_POOL_NONE;
}

int hparams_read(const gguf *g, const model_rope *wish, hparams *h, icp_error *err) {
    int n_next;
    *h = (hparams){0};
    TRY(find_arch(g, h, err));
    gguf_str name = gguf_string(g, "general.name");
    snprintf(h->name, sizeof h->name, "%.*s", (int)MIN(name.len, sizeof h->name - 1),
             name.data ? name.data : "");
    reader r = {g, h->arch->name, wish, err};
    TRY(read_int(&r, "block_count", 1, MAX_LAYERS, REQUIRED, &h->n_layer));
    TRY(read_int(&r, "nextn_predict_layers", 0, h->n_layer - 1, 0, &n_next));
    h->n_layer -= n_next; /* layers that guess further tokens are not used */
    h->layers = mem_zero((size_t)h->n_layer, sizeof *h->layers);
    if (!h->layers) return error_set(err, ICP_ENOMEM, "out of memory");
    return read_all(&r, h);
}

void hparams_fini(hparams *h) {
    mem_free(h->layers);
    h->layers = NULL;
}
