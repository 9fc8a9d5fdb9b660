/* Which tensors a model has. Names and shapes are those that the common converters write. */
#include "model_internal.h"

#include <stdio.h>

/* ---- attention ------------------------------------------------------------------------------ */

static int want_qkv(loader *l, const hparams *h, int i, layer *to) {
    const shape *s = &h->layers[i];
    int x = h->n_embd, q = s->n_head * s->d_k, k = s->n_head_kv * s->d_k, v = s->n_head_kv * s->d_v;
    if (loader_rows(l, "attn_qkv")) { /* one matrix for all three */
        part all = {.name = "attn_qkv", .k = x, .rows = q + k + v, .first = 0, .n = q};
        TRY(loader_want(l, &to->q, all, 0));
        all.first = q, all.n = k;
        TRY(loader_want(l, &to->k, all, 0));
        all.first = q + k, all.n = v;
        return loader_want(l, &to->v, all, 0);
    }
    TRY(loader_want(l, &to->q,
                    (part){"attn_q", .k = x, .rows = h->arch->gated_attention ? 2 * q : q}, 0));
    if (s->kv_from != i) {
        loader_ignore(l, "attn_k");
        loader_ignore(l, "attn_k_norm");
        loader_ignore(l, "attn_v");
        return 0;
    }
    TRY(loader_want(l, &to->k, (part){"attn_k", .k = x, .rows = k}, 0));
    return loader_want(l, &to->v, (part){"attn_v", .k = x, .rows = v},
                       h->arch->v_may_be_k ? IF_THERE : 0);
}

static int want_attention(loader *l, const hparams *h, int i, layer *to) {
    const shape *s = &h->layers[i];
    const arch *a = h->arch;
    bool by_row = a->qk_norm == QK_NORM_ROW;
    int flags = a->qk_norm == QK_NORM_HEAD_IF_THERE ? IF_THERE : 0;
    TRY(want_qkv(l, h, i, to));
    TRY(loader_want(l, &to->o, (part){"attn_output", .k = s->n_head * s->d_out, .rows = h->n_embd},
                    0));
    if (a->sinks) TRY(loader_want_vector(l, &to->sinks, "attn_sinks.weight", s->n_head, 0));
    if (a->qk_norm == QK_PLAIN) return 0;
    TRY(loader_want_norm(l, &to->q_norm, "attn_q_norm", by_row ? s->n_head * s->d_k : s->d_k,
                         flags));
    if (s->kv_from != i) return 0;
    return loader_want_norm(l, &to->k_norm, "attn_k_norm", by_row ? s->n_head_kv * s->d_k : s->d_k,
                            flags);
}

static int want_latent(loader *l, const hparams *h, int i, layer *to) {
    const shape *s = &h->layers[i];
    int x = h->n_embd, heads = s->n_head, rank = h->rank_kv, d = h->d_k_latent;
    to->k_b = mem_zero((size_t)heads, sizeof *to->k_b);
    to->v_b = mem_zero((size_t)heads, sizeof *to->v_b);
    if (!to->k_b || !to->v_b) return ICP_ENOMEM;
    if (h->rank_q) {
        TRY(loader_want(l, &to->q_a, (part){"attn_q_a", .k = x, .rows = h->rank_q}, 0));
        TRY(loader_want_norm(l, &to->q_a_norm, "attn_q_a_norm", h->rank_q, 0));
        TRY(loader_want(l, &to->q, (part){"attn_q_b", .k = h->rank_q, .rows = heads * d}, 0));
    } else {
        TRY(loader_want(l, &to->q, (part){"attn_q", .k = x, .rows = heads * d}, 0));
    }
    TRY(loader_want(l, &to->kv_a, (part){"attn_kv_a_mqa", .k = x, .rows = s->d_k}, 0));
    TRY(loader_want_norm(l, &to->kv_a_norm, "attn_kv_a_norm", rank, 0));
    part k = {"attn_k_b", .k = d - s->n_rot, .rows = rank, .depth = heads, .n = rank};
    part v = {"attn_v_b", .k = rank, .rows = s->d_out, .depth = heads, .n = s->d_out};
    for (int head = 0; head < heads; head++, k.first += k.n, v.first += v.n) {
        TRY(loader_want(l, &to->k_b[head], k, 0));
        TRY(loader_want(l, &to->v_b[head], v, 0));
    }
    return loader_want(l, &to->o, (part){"attn_output", .k = heads * s->d_out, .rows = x}, 0);
}

/* ---- recurrent mixers ----------------------------------------------------------------------- */

static int want_delta_inputs(loader *l, const hparams *h, layer *to) {
    const mixer_sizes *z = &h->mixer;
    int x = h->n_embd;
    bool apart = loader_rows(l, "ssm_ba") == 0;
    TRY(loader_want(l, &to->mix_in, (part){"attn_qkv", .k = x, .rows = z->channels}, 0));
    TRY(loader_want(l, &to->mix_gate, (part){"attn_gate", .k = x, .rows = z->d_inner}, 0));
    if (!apart)
        return loader_want(l, &to->beta_alpha, (part){"ssm_ba", .k = x, .rows = 2 * z->heads}, 0);
    TRY(loader_want(l, &to->beta, (part){"ssm_beta", .k = x, .rows = z->heads}, 0));
    return loader_want(l, &to->alpha, (part){"ssm_alpha", .k = x, .rows = z->heads}, 0);
}

static int want_mamba_inputs(loader *l, const hparams *h, layer *to) {
    const mixer_sizes *z = &h->mixer;
    int rows = z->d_inner + z->channels + z->heads;
    TRY(loader_want(l, &to->mix_in, (part){"ssm_in", .k = h->n_embd, .rows = rows}, 0));
    return loader_want_vector(l, &to->skip, "ssm_d", z->heads, 0);
}

static int want_mixer(loader *l, const hparams *h, layer *to) {
    const mixer_sizes *z = &h->mixer;
    int x = h->n_embd, in = z->d_inner;
    if (z->kind == MIXER_CONV) {
        TRY(loader_want(l, &to->mix_in, (part){"shortconv.in_proj", .k = x, .rows = 3 * x}, 0));
        TRY(loader_want(l, &to->mix_out, (part){"shortconv.out_proj", .k = x, .rows = x}, 0));
        return loader_want_vector(l, &to->conv, "shortconv.conv.weight", z->taps * x, 0);
    }
    bool mamba = z->kind == MIXER_MAMBA;
    TRY(mamba ? want_mamba_inputs(l, h, to) : want_delta_inputs(l, h, to));
    TRY(loader_want(l, &to->mix_out, (part){"ssm_out", .k = in, .rows = x}, 0));
    TRY(loader_want_vector(l, &to->conv, "ssm_conv1d.weight", z->taps * z->channels, 0));
    TRY(loader_want_vector(l, &to->conv_bias, "ssm_conv1d.bias", z->channels, IF_THERE));
    TRY(loader_want_vector(l, &to->decay, "ssm_a", z->heads, 0));
    TRY(loader_want_vector(l, &to->dt_bias, "ssm_dt.bias", z->heads, 0));
    return loader_want_vector(l, &to->mixer_norm, "ssm_norm.weight", mamba ? in : in / z->heads,
                              IF_THERE);
}

/* ---- feed-forward --------------------------------------------------------------------------- */

typedef struct mlp_names {
    const char *gate, *up, *down;
} mlp_names;

/* Gated, with gate and up apart or as one matrix, or not gated at all. */
static int want_mlp(loader *l, const hparams *h, int n_ff, mlp_names name, mlp *to) {
    int x = h->n_embd;
    part up = {name.up, .k = x, .rows = n_ff, .n = n_ff};
    if (loader_rows(l, name.gate)) {
        TRY(loader_want(l, &to->gate, (part){name.gate, .k = x, .rows = n_ff}, 0));
    } else if (loader_rows(l, name.up) == 2 * (size_t)n_ff) {
        up.rows = 2 * n_ff;
        TRY(loader_want(l, &to->gate, up, 0));
        up.first = n_ff;
    }
    TRY(loader_want(l, &to->up, up, 0));
    return loader_want(l, &to->down, (part){name.down, .k = n_ff, .rows = x}, 0);
}

static int want_experts(loader *l, const hparams *h, layer *to) {
    int x = h->n_embd, n = h->n_expert, ff = h->n_ff_expert;
    bool fused = loader_rows(l, "ffn_gate_up_exps") > 0;
    const char *gate_name = fused ? "ffn_gate_up_exps" : "ffn_gate_exps";
    int rows = fused ? 2 * ff : ff;
    to->experts = mem_zero((size_t)n, sizeof *to->experts);
    if (!to->experts) return ICP_ENOMEM;
    TRY(loader_want(l, &to->router, (part){"ffn_gate_inp", .k = x, .rows = n}, 0));
    TRY(loader_want_vector(l, &to->router_bias, "exp_probs_b.bias", n, IF_THERE));
    for (int e = 0; e < n; e++) {
        mlp *m = &to->experts[e];
        part gate = {gate_name, .k = x, .rows = rows, .depth = n, .first = e * rows, .n = ff};
        part up = {fused ? gate_name : "ffn_up_exps", x, rows, n, e * rows + rows - ff, ff};
        part down = {"ffn_down_exps", .k = ff, .rows = x, .depth = n, .first = e * x, .n = x};
        TRY(loader_want(l, &m->gate, gate, 0));
        TRY(loader_want(l, &m->up, up, 0));
        TRY(loader_want(l, &m->down, down, 0));
    }
    return loader_want(l, &to->shared_gate, (part){"ffn_gate_inp_shexp", .k = x, .rows = 1},
                       IF_THERE);
}

/* ---- all ------------------------------------------------------------------------------------ */

static int want_layer_embd(loader *l, const hparams *h, layer *to) {
    int x = h->n_embd, n = h->n_embd_layer;
    TRY(loader_want(l, &to->embd_gate, (part){"inp_gate", .k = x, .rows = n}, 0));
    TRY(loader_want(l, &to->embd_proj, (part){"proj", .k = n, .rows = x}, 0));
    return loader_want_norm(l, &to->embd_norm, "post_norm", x, 0);
}

static int want_layer(loader *l, const hparams *h, int i, layer *to) {
    static const mlp_names dense = {"ffn_gate", "ffn_up", "ffn_down"},
                           shared = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    const shape *s = &h->layers[i];
    loader_set_layer(l, i);
    for (int slot = 0; slot < N_NORM_SLOTS; slot++)
        if (h->arch->norms[slot])
            TRY(loader_want_norm(l, &to->norms[slot], h->arch->norms[slot], h->n_embd, 0));
    if (s->attention) TRY(h->arch->latent ? want_latent(l, h, i, to) : want_attention(l, h, i, to));
    if (s->recurrent) TRY(want_mixer(l, h, to));
    if (s->experts) TRY(want_experts(l, h, to));
    if (s->n_ff) TRY(want_mlp(l, h, s->n_ff, s->experts ? shared : dense, &to->ffn));
    if (h->n_embd_layer) TRY(want_layer_embd(l, h, to));
    return loader_want_vector(l, &to->scale, "layer_output_scale.weight", 1, IF_THERE);
}

/* Of a model that ranks. No adapter changes it, hence the depth. */
static int want_classifier(loader *l, const hparams *h, weights *w) {
    int x = h->n_embd;
    if (!h->n_scores) return 0;
    TRY(loader_want(l, &w->classifier, (part){"cls", .k = x, .rows = x, .depth = 1}, IF_THERE));
    TRY(loader_want_norm(l, &w->classifier_norm, "cls.norm", x, IF_THERE));
    return loader_want(l, &w->scores, (part){"cls.output", .k = x, .rows = h->n_scores, .depth = 1},
                       0);
}

int tensors_want(loader *l, const hparams *h, weights *w) {
    const arch *a = h->arch;
    int x = h->n_embd, half = h->rope[0].n_rot / 2, layers = h->n_layer * h->n_embd_layer;
    loader_set_layer(l, -1);
    TRY(loader_want_matrix(l, &w->embd, "token_embd", x, h->n_vocab, 0));
    if (!a->encoder)
        TRY(loader_want(l, &w->output, (part){"output", .k = x, .rows = h->n_vocab}, IF_THERE));
    if (!a->output_norm || a->output_norm[0])
        TRY(loader_want_norm(l, &w->output_norm, a->output_norm ? a->output_norm : "output_norm", x,
                             0));
    if (a->embd_norm) TRY(loader_want_norm(l, &w->embd_norm, "token_embd_norm", x, 0));
    for (int i = 0; i < 2; i++) TRY(loader_want_row(l, &w->token_type[i], "token_types", i, x));
    if (a->rope == POSITIONS_LEARNED)
        TRY(loader_want_matrix(l, &w->positions, "position_embd", x, h->n_ctx_train, 0));
    TRY(want_classifier(l, h, w));
    TRY(loader_want_vector(l, &w->rope_freqs, "rope_freqs.weight", half, IF_THERE));
    TRY(loader_want_vector(l, &w->rope_long, "rope_factors_long.weight", half, IF_THERE));
    TRY(loader_want_vector(l, &w->rope_short, "rope_factors_short.weight", half, IF_THERE));
    if (h->n_embd_layer) {
        TRY(loader_want_matrix(l, &w->layer_embd, "per_layer_token_embd", layers, h->n_vocab, 0));
        TRY(loader_want(l, &w->layer_proj, (part){"per_layer_model_proj", .k = x, .rows = layers},
                        0));
        TRY(loader_want_norm(l, &w->layer_proj_norm, "per_layer_proj_norm", h->n_embd_layer, 0));
    }
    for (int i = 0; i < h->n_layer; i++) TRY(want_layer(l, h, i, &w->layers[i]));
    return 0;
}
