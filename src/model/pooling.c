/* From a text's final states to its vector, and from that to the scores of a pair.
 *
 *   states ──pool──▶ x ──classifier──▶ tanh ──norm──▶ x ──scores──▶ one number a label
 *                       `──── where the file has one ────´
 *
 * The heads are those of transformers' BertForSequenceClassification (whose pooler is the
 * classifier), XLMRobertaForSequenceClassification, and Qwen3-Reranker's model card: of a decoder
 * the scores are the shares of its answers, "yes" and "no". */
#include <string.h>

#include "model_internal.h"

size_t model_vector_size(const model *m, size_t n) {
    return m->info.n_vector * (m->h.pooling == MODEL_POOL_NONE ? n : 1);
}

size_t model_vector_room(const model *m, size_t n) {
    return MAX(model_vector_size(m, n), m->info.n_out);
}

/* x is used up. */
static void multiply(const pass *p, linear *l, float *x, float *out) {
    product_put_fine(p, l, 0, x);
    product pr = product_of_fine(p, l, out, (size_t)l->w.n, 1);
    product_run(p, &pr, 1);
    pass_add_bias(p, l->w.n, out, l->bias);
}

/* The state x becomes the scores. */
static void classify(model *m, float *x) {
    const pass p = {.m = m, .n_rows = 1};
    weights *w = &m->w;
    float *y = m->s.y;
    int n = m->h.n_scores, d = m->h.n_embd;
    if (w->classifier.w.n) {
        multiply(&p, &w->classifier, x, y);
        m->kern.softcap(d, y, 1, x); /* tanh */
        if (w->classifier_norm.w) pass_norm(&p, d, x, &w->classifier_norm, x);
    }
    multiply(&p, &w->scores, x, y);
    if (m->h.causal && n > 1) pass_softmax(n, y);
    memcpy(x, y, (size_t)n * sizeof *x);
}

void model_pool(model *m, const float *row, size_t i, size_t n, float *out) {
    size_t d = m->info.n_out;
    bool first = i == 0, last = i == n - 1;
    switch (m->h.pooled) {
    case MODEL_POOL_FIRST:
        if (first) memcpy(out, row, d * sizeof *out);
        break;
    case MODEL_POOL_LAST:
        if (last) memcpy(out, row, d * sizeof *out);
        break;
    case MODEL_POOL_MEAN:
        if (first)
            memcpy(out, row, d * sizeof *out);
        else
            m->kern.add((int)d, out, row, out);
        for (size_t j = 0; last && j < d; j++) out[j] /= (float)n;
        break;
    default:
        memcpy(out + i * d, row, d * sizeof *out);
    }
    if (last && m->h.pooling == MODEL_POOL_RANK) classify(m, out);
}
