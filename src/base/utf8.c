#include "base.h"

/* The ranges that may follow a lead byte (Unicode 15, table 3-7): only the second byte's range
 * depends on the lead. */
static int lead_length(unsigned char lead, unsigned char *low, unsigned char *high) {
    *low = 0x80;
    *high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) return 2;
    if (lead >= 0xe0 && lead <= 0xef) {
        if (lead == 0xe0) *low = 0xa0;
        if (lead == 0xed) *high = 0x9f;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        if (lead == 0xf0) *low = 0x90;
        if (lead == 0xf4) *high = 0x8f;
        return 4;
    }
    return 0;
}

int utf8_decode(const char *text, size_t len, int32_t *cp) {
    unsigned char lead = (unsigned char)text[0], low, high;
    if (lead < 0x80) {
        *cp = lead;
        return 1;
    }
    int want = lead_length(lead, &low, &high);
    *cp = -1;
    if (!want) return 1;
    int32_t value = lead & (0x7f >> want);
    for (int i = 1; i < want; i++) {
        if ((size_t)i >= len) return i;
        unsigned char c = (unsigned char)text[i];
        if (c < low || c > high) return i;
        value = value << 6 | (c & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    *cp = value;
    return want;
}

int utf8_encode(int32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t utf8_complete(const char *text, size_t len) {
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)text[len - back], low, high;
        if ((c & 0xc0) == 0x80) continue; /* a continuation: its lead stands further left */
        int want = lead_length(c, &low, &high);
        int32_t cp;
        if (want > (int)back && utf8_decode(text + len - back, back, &cp) == (int)back)
            return len - back;
        break;
    }
    return len;
}
