/* Drawing from a row without sorting it.
 *
 * Candidates are ordered by (logit descending, id ascending). Weights are integers, so that a sum
 * has the same bits in whatever order it is taken; and they fall along the order, so that buckets
 * of like weights are stretches of it:
 *
 *   order     a b c d e f g h i j k l m n …
 *   buckets  |  95 |   94    |  93  | …         each with its count and the sum of its weights
 *
 * A place in the order, be it the k-th candidate or a point in the sum of the weights, is found by
 * walking the buckets, and then the candidates of one bucket, which alone is put in order. */
#include <math.h>
#include <string.h>

#include "engine_internal.h"

enum {
    SPLIT_LOG2 = 2,          /* buckets for each power of two */
    LEAST = 1 << SPLIT_LOG2, /* candidates of less weight are never drawn */
    N_BUCKETS = (SOFTMAX_UNIT_LOG2 + 1) << SPLIT_LOG2,
};

typedef struct ranking {
    const float *row;
    const uint64_t *weight;
    size_t n;
    uint64_t least; /* weight of a candidate */
    uint64_t mass[N_BUCKETS];
    uint32_t count[N_BUCKETS];
    uint64_t *heap; /* of the bucket that is open: what was not yet taken */
    size_t n_heap;
} ranking;

static int bucket_of(uint64_t weight) {
    int log2 = 63 - __builtin_clzll(weight);
    return (log2 << SPLIT_LOG2) + (int)(weight >> (log2 - SPLIT_LOG2)) - LEAST;
}

/* The least weight in a bucket. */
static uint64_t bucket_floor(int bucket) {
    int log2 = bucket >> SPLIT_LOG2;
    return (uint64_t)(LEAST + (bucket & (LEAST - 1))) << (log2 - SPLIT_LOG2);
}

static void rank(ranking *r) {
    memset(r->mass, 0, sizeof r->mass);
    memset(r->count, 0, sizeof r->count);
    for (size_t i = 0; i < r->n; i++) {
        if (r->weight[i] < r->least) continue;
        int b = bucket_of(r->weight[i]);
        r->mass[b] += r->weight[i];
        r->count[b]++;
    }
}

/* A candidate as one number, greater when earlier in the order: the logit's bits, made monotone,
 * above the complement of the id. */
static uint64_t key_of(float logit, size_t id) {
    float plain = logit + 0.0f; /* -0 and 0 are equal */
    uint32_t bits;
    memcpy(&bits, &plain, sizeof bits);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

static int32_t id_of(uint64_t key) {
    return (int32_t) ~(uint32_t)key;
}

static void sift_down(uint64_t *heap, size_t n, size_t at) {
    uint64_t key = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= key) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

static void open_bucket(ranking *r, int bucket) {
    uint64_t least = MAX(bucket_floor(bucket), r->least), above = bucket_floor(bucket + 1);
    r->n_heap = 0;
    for (size_t id = 0; id < r->n; id++)
        if (r->weight[id] >= least && r->weight[id] < above)
            r->heap[r->n_heap++] = key_of(r->row[id], id);
    for (size_t i = r->n_heap / 2; i-- > 0;) sift_down(r->heap, r->n_heap, i);
}

/* Takes the first candidate out of the open bucket. */
static int32_t take_first(ranking *r) {
    int32_t id = id_of(r->heap[0]);
    r->heap[0] = r->heap[--r->n_heap];
    if (r->n_heap) sift_down(r->heap, r->n_heap, 0);
    return id;
}

/* Weight of the shortest beginning of the order that has n candidates or weighs `enough`. */
static uint64_t weigh(ranking *r, size_t n, uint64_t enough) {
    uint64_t sum = 0;
    for (int b = N_BUCKETS - 1; b >= 0; b--) {
        if (r->count[b] < n && sum + r->mass[b] < enough) {
            sum += r->mass[b];
            n -= r->count[b];
            continue;
        }
        for (open_bucket(r, b); n > 0 && r->n_heap && sum < enough; n--)
            sum += r->weight[take_first(r)];
        break;
    }
    return sum;
}

/* The candidate at a point of the sum of weights. */
static int32_t candidate_at(ranking *r, uint64_t point) {
    int b = N_BUCKETS - 1;
    for (; point >= r->mass[b]; b--) point -= r->mass[b];
    open_bucket(r, b);
    for (;;) {
        int32_t id = take_first(r);
        if (point < r->weight[id]) return id;
        point -= r->weight[id];
    }
}

int32_t draw_token(const icp_request_opts *opts, const float *row, const uint64_t *weight, size_t n,
                   uint64_t random, uint64_t *scratch) {
    double unit = (double)(1ull << SOFTMAX_UNIT_LOG2);
    ranking r = {.row = row, .weight = weight, .n = n, .heap = scratch};
    r.least = MAX((uint64_t)ceil((double)opts->min_p * unit), LEAST);
    rank(&r);
    uint64_t sum = weigh(&r, opts->top_k > 0 ? (size_t)opts->top_k : n + 1, UINT64_MAX);
    if (opts->top_p < 1) {
        uint64_t enough = (uint64_t)ceil((double)opts->top_p * (double)sum);
        sum = weigh(&r, n, MIN(MAX(enough, 1), sum));
    }
    return candidate_at(&r, (uint64_t)((unsigned __int128)random * sum >> 64));
}
