#include "fake_model.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct model {
    model_info info;
    pthread_mutex_t gate, lock;
    int32_t poison;
    bool starve;
    long allocations;
    fake_counts counts;
    int max_tokens, max_logits;
};

/* Also in release builds. */
static void need(bool what) {
    if (!what) abort();
}

static uint64_t mix(uint64_t x) {
    return random_next(&x);
}

static uint64_t kv_of(uint64_t before, int32_t token, size_t pos) {
    return mix(mix(before ^ (uint64_t)token) + pos);
}

static void fill_row(uint64_t seed, float *row) {
    for (int i = 0; i < FAKE_VOCAB; i++)
        row[i] = (float)(mix(seed + (uint64_t)i) >> 40) * 0x1p-24f * 12 - 6;
}

static size_t window;

void fake_model_window(size_t n) {
    window = n;
}

/* The first position that `pos` sees. */
static size_t seen_from(size_t pos) {
    return window && pos >= window ? pos + 1 - window : 0;
}

void fake_logits(const int32_t *tokens, size_t n, float *row) {
    uint64_t kv = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        kv = kv_of(kv, tokens[i], i);
        if (i >= seen_from(n - 1)) sum = mix(sum ^ kv);
    }
    fill_row(sum, row);
}

model *fake_model_open(size_t state_size) {
    model *m = mem_zero(1, sizeof *m);
    m->info = (model_info){.arch = "fake",
                           .name = "",
                           .n_vocab = FAKE_VOCAB,
                           .n_ctx_train = FAKE_CTX,
                           .n_ctx = FAKE_CTX,
                           .n_out = FAKE_VOCAB,
                           .causal = true,
                           .window = window,
                           .state_size = state_size,
                           .page_size = KERN_PAGE * sizeof(uint64_t)};
    m->info.n_adapters = 2;
    m->poison = -1;
    pthread_mutex_init(&m->gate, NULL);
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

void fake_model_close(model **m) {
    pthread_mutex_destroy(&(*m)->gate);
    pthread_mutex_destroy(&(*m)->lock);
    mem_free(*m);
    *m = NULL;
}

void fake_model_embed(model *m, bool causal) {
    m->info.embeds = true;
    m->info.causal = causal;
    m->info.pooling = causal ? MODEL_POOL_LAST : MODEL_POOL_FIRST;
    m->info.pools_last = causal;
}

void fake_model_widen(model *m, size_t page_size) {
    m->info.page_size = page_size;
}

void fake_model_stop(model *m) {
    pthread_mutex_lock(&m->gate);
}
void fake_model_go(model *m) {
    pthread_mutex_unlock(&m->gate);
}

void fake_model_poison(model *m, int32_t token) {
    pthread_mutex_lock(&m->lock);
    m->poison = token;
    pthread_mutex_unlock(&m->lock);
}

void fake_model_starve(model *m, long n) {
    pthread_mutex_lock(&m->lock);
    m->starve = true;
    m->allocations = n;
    pthread_mutex_unlock(&m->lock);
}

fake_counts fake_model_counts(model *m) {
    pthread_mutex_lock(&m->lock);
    fake_counts counts = m->counts;
    m->counts = (fake_counts){0};
    pthread_mutex_unlock(&m->lock);
    return counts;
}

/* ---- model.h --------------------------------------------------------------------------------- */

const model_info *model_get_info(const model *m) {
    return &m->info;
}

int model_reserve(model *m, int max_tokens, int max_logits) {
    m->max_tokens = max_tokens;
    m->max_logits = max_logits;
    return 0;
}

void model_copy_page(void *arg, void *to, const void *from, int n_tokens) {
    memcpy(to, from, (size_t)n_tokens * sizeof(uint64_t));
}

/* A hash of the scales that are not 0; 0 when all are. */
static uint64_t adapted(const float *scales) {
    uint64_t sum = 0;
    for (uint64_t i = 0; scales && i < 2; i++) {
        uint32_t bits;
        memcpy(&bits, &scales[i], sizeof bits);
        if (scales[i] != 0) sum = mix(sum ^ mix(bits + i));
    }
    return sum;
}

void model_adapters_digest(const model *m, const float *scales, uint8_t out[16]) {
    uint64_t sum[2] = {adapted(scales), 0};
    memcpy(out, sum, sizeof sum);
}

size_t model_vector_size(const model *m, size_t n) {
    return m->info.n_out;
}

size_t model_vector_room(const model *m, size_t n) {
    return m->info.n_out;
}

void model_pool(model *m, const float *row, size_t i, size_t n, float *out) {
    if (i == (m->info.causal ? n - 1 : 0)) memcpy(out, row, m->info.n_out * sizeof *out);
}

static uint64_t *slot(const model_span *s, size_t pos) {
    return (uint64_t *)s->pages[pos / KERN_PAGE] + pos % KERN_PAGE;
}

/* What a sequence carries: [pos | sum, disguised differently in each place]. */
static uint64_t get_state(const model *m, const model_span *s) {
    const uint64_t *words = s->state;
    if (s->pos == 0) return 0;
    need(words[0] == s->pos);
    uint64_t sum = words[1] ^ mix(1);
    for (size_t i = 2; i < m->info.state_size / sizeof *words; i++)
        need((words[i] ^ mix(i)) == sum);
    return sum;
}

static void put_state(const model *m, const model_span *s, uint64_t sum) {
    uint64_t *words = s->state;
    words[0] = s->pos + (size_t)s->n_tokens;
    for (size_t i = 1; i < m->info.state_size / sizeof *words; i++) words[i] = sum ^ mix(i);
}

static uint64_t windowed(const model_span *s, size_t pos) {
    uint64_t sum = 0;
    for (size_t i = seen_from(pos); i <= pos; i++) sum = mix(sum ^ *slot(s, i));
    return sum;
}

static void run_span(model *m, const model_span *s, float **row) {
    size_t end = s->pos + (size_t)s->n_tokens;
    need(end <= FAKE_CTX);
    for (size_t pos = s->pos; pos < end; pos++) {
        int32_t token = s->tokens[pos - s->pos];
        need(token >= 0 && token < FAKE_VOCAB);
        uint64_t before = pos ? *slot(s, pos - 1) : adapted(s->scales);
        *slot(s, pos) = kv_of(before, token, pos);
    }
    bool carries = m->info.state_size > 0;
    uint64_t sum = carries ? get_state(m, s) : 0, all = 0;
    need(m->info.causal || s->pos == 0);
    for (size_t pos = seen_from(s->pos); pos < end; pos++) all = mix(all ^ *slot(s, pos));
    for (size_t pos = carries ? s->pos : seen_from(s->pos); pos < end; pos++) {
        sum = m->info.causal ? mix(sum ^ *slot(s, pos)) : all;
        if (window && pos + (size_t)s->n_logits >= end) sum = windowed(s, pos);
        if (pos + (size_t)s->n_logits < end) continue;
        fill_row(sum, *row);
        if (m->poison >= 0 && s->tokens[pos - s->pos] == m->poison) (*row)[7] = NAN;
        *row += FAKE_VOCAB;
    }
    if (carries) put_state(m, s, sum);
}

/* A page that one span writes appears in no other. */
static void check_pages(const model_span *spans, int n) {
    for (int i = 0; i < n; i++)
        for (size_t p = spans[i].pos / KERN_PAGE;
             p * KERN_PAGE < spans[i].pos + (size_t)spans[i].n_tokens; p++)
            for (int j = 0; j < n; j++)
                for (size_t q = 0;
                     j != i && q * KERN_PAGE < spans[j].pos + (size_t)spans[j].n_tokens; q++)
                    need(spans[i].pages[p] != spans[j].pages[q]);
}

void model_forward(model *m, const model_span *spans, int n_spans, float *logits) {
    pthread_mutex_lock(&m->gate);
    pthread_mutex_unlock(&m->gate);
    pthread_mutex_lock(&m->lock);
    int tokens = 0, rows = 0, decode = 0;
    if (m->starve) mem_fail_after(m->allocations);
    m->starve = false;
    check_pages(spans, n_spans);
    for (int i = 0; i < n_spans; i++) {
        tokens += spans[i].n_tokens;
        rows += spans[i].n_logits;
        decode += spans[i].n_tokens == 1;
        need(spans[i].n_tokens > 0 && spans[i].n_logits <= spans[i].n_tokens);
        run_span(m, &spans[i], &logits);
    }
    need(tokens <= m->max_tokens && rows <= m->max_logits);
    m->counts.passes++;
    m->counts.tokens += (size_t)tokens;
    m->counts.mixed += decode > 0 && decode < n_spans;
    m->counts.most_tokens = MAX(m->counts.most_tokens, tokens);
    pthread_mutex_unlock(&m->lock);
}
