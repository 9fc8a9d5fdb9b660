/* Unicode normalisation forms C and D (UAX #15), for the tokenizers that were trained on them.
 *
 * utf8proc decomposes and composes. The step between, putting combining marks into canonical
 * order, is done here: utf8proc's own is quadratic in the number of marks on one letter, and text
 * comes from anyone. */
#include "tokenizer_internal.h"

#include <string.h>
#include <utf8proc.h>

enum {
    NFC_UNPLAIN = 0xCC, /* lead byte of U+0300, the first character that NFC may change, */
    NFD_UNPLAIN = 0xC3, /* and of U+00C0, the first one that NFD does */
};

static bool all_below(const char *text, size_t len, uint8_t byte) {
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)text[i] >= byte) return false;
    return true;
}

bool nfc_is_plain(const char *text, size_t len) {
    return all_below(text, len, NFC_UNPLAIN);
}

bool nfd_is_plain(const char *text, size_t len) {
    return all_below(text, len, NFD_UNPLAIN);
}

static uint8_t combining_class(int32_t cp) {
    return (uint8_t)utf8proc_get_property(cp)->combining_class;
}

/* Sorts n marks by combining class, equal ones in their order, in O(n). */
static void sort_marks(int32_t *marks, size_t n, int32_t *spare) {
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++) start[combining_class(marks[i]) + 1]++;
    for (int c = 0; c < 256; c++) start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++) spare[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, n * sizeof *marks);
}

/* Puts each run of combining marks into canonical order. */
static void order_marks(int32_t *cps, size_t n, int32_t *spare) {
    for (size_t i = 0; i < n;) {
        size_t run = i;
        bool ordered = true;
        uint8_t last = 0, class;
        for (; run < n && (class = combining_class(cps[run])); run++) {
            ordered = ordered && last <= class;
            last = class;
        }
        if (!ordered) sort_marks(cps + i, run - i, spare);
        i = run + 1;
    }
}

enum { MAX_DECOMPOSED = 4 }; /* code points that one decomposes into, canonically */

/* Room for the code points of len decomposed bytes: the worst are two bytes that become three
 * (U+0390) and three that become four (U+1F82). */
static size_t decomposed_room(size_t len) {
    return 2 * len + MAX_DECOMPOSED;
}

static int normalize(const char *text, size_t len, bool compose, int32_t *cps, int32_t *spare,
                     buf *out) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        int32_t cp;
        i += (size_t)utf8_decode(text + i, len - i, &cp);
        int unused_class = 0;
        utf8proc_ssize_t parts = utf8proc_decompose_char(
            cp, cps + n, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &unused_class);
        if (parts < 0 || parts > MAX_DECOMPOSED) return ICP_EBUG;
        n += (size_t)parts;
    }
    order_marks(cps, n, spare);
    if (compose) {
        utf8proc_ssize_t composed =
            utf8proc_normalize_utf32(cps, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (composed < 0) return ICP_EBUG;
        n = (size_t)composed;
    }
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        buf_put(out, bytes, (size_t)utf8_encode(cps[i], bytes));
    }
    return out->failed ? ICP_ENOMEM : 0;
}

static int put_normalized(const char *text, size_t len, bool compose, buf *out) {
    size_t room = decomposed_room(len);
    int32_t *cps = mem_resize(NULL, room, 2 * sizeof *cps);
    if (!cps) return ICP_ENOMEM;
    int rc = normalize(text, len, compose, cps, cps + room, out);
    mem_free(cps);
    return rc;
}

int nfc_normalize(const char *text, size_t len, buf *out) {
    return put_normalized(text, len, true, out);
}

int nfd_normalize(const char *text, size_t len, buf *out) {
    return put_normalized(text, len, false, out);
}
