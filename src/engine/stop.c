/* Stop strings, found in a stream of text that arrives in pieces.
 *
 * Each string has a Knuth-Morris-Pratt automaton; its state is how many bytes of the string the
 * text so far ends with. The longest of these states is what must be held back: exactly the text
 * that may yet become a stop string, and nothing else.
 *
 *   "…the answer is 42 </ans"    strings "</answer>", "\n\n"
 *                       ^^^^^ held, state 5 and 0 */
#include <string.h>

#include "engine_internal.h"

typedef struct stop_string {
    const char *text;
    uint32_t len;
    uint32_t
        *border; /* border[i]: length of the longest proper prefix of text[0..i] that ends it */
} stop_string;

struct stop_set {
    size_t n;
    stop_string string[];
};

static void find_borders(stop_string *s) {
    uint32_t k = 0;
    s->border[0] = 0;
    for (uint32_t i = 1; i < s->len; i++) {
        while (k > 0 && s->text[i] != s->text[k]) k = s->border[k - 1];
        if (s->text[i] == s->text[k]) k++;
        s->border[i] = k;
    }
}

int stop_set_new(const char *const *strings, size_t n, arena *memory, stop_set **out) {
    stop_set *set = arena_alloc(memory, sizeof *set + n * sizeof set->string[0]);
    if (!set) return ICP_ENOMEM;
    set->n = n;
    for (size_t i = 0; i < n; i++) {
        stop_string *s = &set->string[i];
        size_t len = strlen(strings[i]);
        char *text = arena_alloc(memory, len + 1);
        s->border = arena_alloc(memory, len * sizeof *s->border);
        if (!text || !s->border) return ICP_ENOMEM;
        s->text = memcpy(text, strings[i], len + 1);
        s->len = (uint32_t)len;
        find_borders(s);
    }
    *out = set;
    return 0;
}

size_t stop_set_n(const stop_set *set) {
    return set->n;
}

static uint32_t advance(const stop_string *s, uint32_t state, char c) {
    if (state == s->len) state = s->border[state - 1];
    while (state > 0 && s->text[state] != c) state = s->border[state - 1];
    return s->text[state] == c ? state + 1 : 0;
}

/* Feeds one byte; returns the longest string that ends with it, or -1. */
static int feed(stop_scan *scan, char c, uint32_t *longest) {
    int found = -1;
    *longest = 0;
    for (size_t i = 0; i < scan->set->n; i++) {
        const stop_string *s = &scan->set->string[i];
        scan->state[i] = advance(s, scan->state[i], c);
        *longest = MAX(*longest, scan->state[i]);
        if (scan->state[i] == s->len && (found < 0 || s->len > scan->set->string[found].len))
            found = (int)i;
    }
    return found;
}

int stop_put(stop_scan *scan, const char *text, size_t len, bool include, buf *out) {
    if (scan->set->n == 0) {
        buf_put(out, text, len);
        return -1;
    }
    uint32_t longest = 0;
    size_t held = scan->held.len;
    buf_put(&scan->held, text, len);
    if (scan->held.failed) {
        out->failed = true;
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        int found = feed(scan, text[i], &longest);
        if (found < 0) continue;
        size_t end = held + i + 1;
        buf_put(out, scan->held.data, include ? end : end - scan->set->string[found].len);
        buf_clear(&scan->held);
        return found;
    }
    if (len == 0) return -1;
    size_t certain = scan->held.len - longest;
    buf_put(out, scan->held.data, certain);
    memmove(scan->held.data, scan->held.data + certain, longest);
    scan->held.len = longest;
    return -1;
}

void stop_flush(stop_scan *scan, buf *out) {
    if (scan->held.failed) out->failed = true;
    buf_put(out, scan->held.data, scan->held.len);
    buf_clear(&scan->held);
    memset(scan->state, 0, scan->set->n * sizeof *scan->state);
}
