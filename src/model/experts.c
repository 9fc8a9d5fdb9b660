/* Mixture of experts. The router chooses experts for each row by that row alone; rows are then
 * grouped by expert, so that an expert's weights are read once.
 *
 *   slot   one expert's work on one row; slots are numbered by expert, then by row
 *
 * A row adds its slots' results in the router's order, so that its bits do not depend on the rows
 * that go with it. */
#include "model_internal.h"

#include <math.h>
#include <string.h>

/* ---- the router ---- */

static void to_probabilities(const hparams *h, float *p, int n) {
    if (h->gating == GATING_SIGMOID) {
        for (int i = 0; i < n; i++) p[i] = 1 / (1 + kern_exp(-p[i]));
    } else {
        pass_softmax(n, p);
    }
}

/* The greatest of those not yet taken; the lowest index among equals. */
static int take_greatest(const float *score, bool *taken, int n) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || score[i] > score[best])) best = i;
    taken[best] = true;
    return best;
}

/* Experts in groups, of which only the best are in play: DeepSeek-V2 rates a group by its best
 * expert, V3 (which has a bias for choosing) by its best two. */
static void close_groups(const hparams *h, const float *score, bool best_two, bool *taken) {
    float rating[MAX_EXPERTS];
    bool open[MAX_EXPERTS] = {0};
    int size = h->n_expert / h->n_group;
    if (h->n_group_used >= h->n_group) return;
    for (int g = 0; g < h->n_group; g++) {
        bool seen[MAX_EXPERTS] = {0};
        const float *of_group = score + g * size;
        rating[g] = of_group[take_greatest(of_group, seen, size)];
        if (best_two && size > 1) rating[g] += of_group[take_greatest(of_group, seen, size)];
    }
    for (int i = 0; i < h->n_group_used; i++) take_greatest(rating, open, h->n_group);
    for (int i = 0; i < h->n_expert; i++) taken[i] = !open[i / size];
}

static void route_row(const pass *p, int row) {
    const hparams *h = &p->m->h;
    const layer *l = p->layer;
    int n = h->n_expert, n_used = h->n_expert_used;
    float *prob = p->m->s.route + (size_t)row * (size_t)n, score[MAX_EXPERTS], sum = 0;
    int *chosen = p->m->s.chosen + row * n_used;
    float *share = p->m->s.share + row * n_used;
    bool taken[MAX_EXPERTS] = {0};
    pass_add_bias(p, n, prob, l->router.bias);
    if (h->gating != GATING_SOFTMAX_CHOSEN) to_probabilities(h, prob, n);
    for (int i = 0; i < n; i++) score[i] = prob[i] + (l->router_bias ? l->router_bias[i] : 0);
    close_groups(h, score, l->router_bias != NULL, taken);
    for (int i = 0; i < n_used; i++) {
        chosen[i] = take_greatest(score, taken, n);
        share[i] = prob[chosen[i]];
    }
    if (h->gating == GATING_SOFTMAX_CHOSEN) to_probabilities(h, share, n_used);
    for (int i = 0; i < n_used; i++) sum += share[i];
    for (int i = 0; i < n_used; i++)
        share[i] = (h->renormalise ? share[i] / sum : share[i]) * h->expert_scale;
}

/* ---- slots ---- */

/* Numbers the slots: a counting sort by expert, stable in the rows. */
static void number_slots(const pass *p) {
    const scratch *s = &p->m->s;
    int n = p->n_rows * p->m->h.n_expert_used, *first = s->first_slot;
    memset(first, 0, (size_t)(p->m->h.n_expert + 1) * sizeof *first);
    for (int i = 0; i < n; i++) first[s->chosen[i] + 1]++;
    for (int e = 0; e < p->m->h.n_expert; e++) first[e + 1] += first[e];
    for (int i = 0; i < n; i++) s->slot[i] = first[s->chosen[i]]++;
    for (int e = p->m->h.n_expert; e > 0; e--) first[e] = first[e - 1];
    first[0] = 0;
    for (int i = 0; i < n; i++) s->of_slot[s->slot[i]] = i;
}

/* A slot's input; `second` is for up's, where gate takes another form. */
static char *act_of(const pass *p, int slot, bool second) {
    size_t n = (size_t)p->m->s.max_tokens * (size_t)p->m->h.n_expert_used;
    return p->m->s.slot_act + ((second ? n : 0) + (size_t)slot) * p->m->widths.slot_act;
}

static bool two_forms(const layer *l) {
    return kern_form_of(l->experts->gate.w.type) != kern_form_of(l->experts->up.w.type);
}

static void gather(const pass *p, int slot, const linear *l, bool second) {
    const model *m = p->m;
    int place = m->s.of_slot[slot], row = place / m->h.n_expert_used;
    if (m->h.arch->weigh_inputs) {
        float *x = m->s.slot_y + (size_t)slot * (size_t)m->h.n_embd; /* free as yet */
        m->kern.scale(m->h.n_embd, m->s.norm + (size_t)row * (size_t)m->h.n_embd, m->s.share[place],
                      x);
        m->kern.act_row(l->w.type, l->w.k, x, act_of(p, slot, second));
        return;
    }
    product in = product_of(p, l, NULL, 0, 0, false);
    memcpy(act_of(p, slot, second), in.act + (size_t)row * in.act_stride, in.act_stride);
}

static void gather_slot(const pass *p, int slot) {
    gather(p, slot, &p->layer->experts->gate, false);
    if (two_forms(p->layer)) gather(p, slot, &p->layer->experts->up, true);
}

static product slots_of(const pass *p, int expert, const linear *l, bool second, float *out,
                        size_t stride) {
    const int *first = p->m->s.first_slot;
    return (product){.w = &l->w,
                     .act = act_of(p, first[expert], second),
                     .act_stride = p->m->widths.slot_act,
                     .out = out + (size_t)first[expert] * stride,
                     .out_stride = stride,
                     .n_rows = first[expert + 1] - first[expert]};
}

static void inner_slot(const pass *p, int slot) {
    const model *m = p->m;
    const mlp *e = &p->layer->experts[m->s.chosen[m->s.of_slot[slot]]];
    float *gate = m->s.slot_ff + (size_t)slot * 2 * (size_t)m->h.n_ff_expert;
    pass_activate(p, e, gate, gate + m->h.n_ff_expert);
    m->kern.act_row(e->down.w.type, e->down.w.k, gate, act_of(p, slot, false));
}

static void run_slots(pass *p) {
    const model *m = p->m;
    product *list = m->s.products;
    int n = 0, ff = m->h.n_ff_expert, n_slots = p->n_rows * m->h.n_expert_used;
    for (int e = 0; e < m->h.n_expert; e++) {
        if (m->s.first_slot[e] == m->s.first_slot[e + 1]) continue;
        const mlp *x = &p->layer->experts[e];
        list[n++] = slots_of(p, e, &x->gate, false, m->s.slot_ff, 2 * (size_t)ff);
        list[n] = slots_of(p, e, &x->up, two_forms(p->layer), m->s.slot_ff, 2 * (size_t)ff);
        list[n++].out += ff;
    }
    product_run(p, list, n);
    pass_for_rows(p, n_slots, inner_slot);
    n = 0;
    for (int e = 0; e < m->h.n_expert; e++)
        if (m->s.first_slot[e] < m->s.first_slot[e + 1])
            list[n++] =
                slots_of(p, e, &p->layer->experts[e].down, false, m->s.slot_y, (size_t)m->h.n_embd);
    product_run(p, list, n);
}

/* y = Σ share · result, plus what the shared expert gave. */
static void combine_row(const pass *p, int row) {
    const model *m = p->m;
    int n = m->h.n_embd, n_used = m->h.n_expert_used;
    float *y = pass_y(p, row);
    if (p->layer->ffn.up.w.n == 0) memset(y, 0, (size_t)n * sizeof *y);
    if (p->layer->shared_gate.w.n) m->kern.scale(n, y, 1 / (1 + kern_exp(-m->s.shared[row])), y);
    for (int i = row * n_used; i < (row + 1) * n_used; i++) {
        float *of_slot = m->s.slot_y + (size_t)m->s.slot[i] * (size_t)n;
        pass_add_bias(p, n, of_slot, p->layer->experts[m->s.chosen[i]].down.bias);
        m->kern.add_scaled(n, y, of_slot, m->h.arch->weigh_inputs ? 1 : m->s.share[i], y);
    }
}

void experts_run(pass *p) {
    const model *m = p->m;
    const layer *l = p->layer;
    product list[2] = {
        product_of(p, &l->router, m->s.route, (size_t)m->h.n_expert, p->n_rows, false)};
    if (l->shared_gate.w.n)
        list[1] = product_of(p, &l->shared_gate, m->s.shared, 1, p->n_rows, false);
    product_run(p, list, l->shared_gate.w.n ? 2 : 1);
    pass_for_rows(p, p->n_rows, route_row);
    number_slots(p);
    pass_for_rows(p, p->n_rows * m->h.n_expert_used, gather_slot);
    if (l->ffn.up.w.n) pass_mlp(p, false);
    run_slots(p);
    pass_for_rows(p, p->n_rows, combine_row);
}
