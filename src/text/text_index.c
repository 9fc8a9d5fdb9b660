/* An index of token texts: their ids, sorted by text. Reading on from a place in a text narrows the
 * range of those that still fit, byte by byte:
 *
 *   ids (by text)   <|end|>  <|endoftext|>  <|im_end|>  <|im_start|>  [INST]
 *   after "<|e"     ^^^^^^^^^^^^^^^^^^^^^^
 *
 * A token that ends at the byte just read is the first of its range. `first[b]` is the index of the
 * first one that begins with byte b or a greater one. */
#include "tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b, void *arg) {
    const text_str *texts = arg;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const text_str *s = &texts[x], *r = &texts[y];
    int order = memcmp(s->data, r->data, MIN(s->len, r->len));
    if (order) return order;
    if (s->len != r->len) return s->len < r->len ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool same_text(text_str a, text_str b) {
    return a.len == b.len && !memcmp(a.data, b.data, a.len);
}

void text_index_sort(text_index *index, const text_str *texts) {
    size_t n = index->n, i = 0;
    index->texts = texts;
    qsort_r(index->ids, n, sizeof *index->ids, by_text, (void *)texts);
    index->n = 0; /* of equal texts the lowest id stays */
    for (; i < n; i++)
        if (!index->n || !same_text(texts[index->ids[index->n - 1]], texts[index->ids[i]]))
            index->ids[index->n++] = index->ids[i];
    i = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (i < index->n && (uint8_t)texts[index->ids[i]].data[0] < byte) i++;
        index->first[byte] = (uint32_t)i;
    }
}

text_range text_index_begin(const text_index *index, char byte) {
    return (text_range){index->first[(uint8_t)byte], index->first[(uint8_t)byte + 1]};
}

/* The first of ids[low, high), all longer than depth, whose byte at depth is at least `byte`. */
static size_t lower_bound(const text_index *index, size_t low, size_t high, size_t depth,
                          int byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uint8_t)index->texts[index->ids[middle]].data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t text_index_take(const text_index *index, text_range *range, size_t depth) {
    if (range->low == range->high) return -1;
    int32_t id = index->ids[range->low];
    if (index->texts[id].len != depth) return -1;
    range->low++;
    return id;
}

void text_index_narrow(const text_index *index, text_range *range, size_t depth, char byte) {
    range->low = lower_bound(index, range->low, range->high, depth, (uint8_t)byte);
    range->high = lower_bound(index, range->low, range->high, depth, (uint8_t)byte + 1);
}
