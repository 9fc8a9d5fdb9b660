/* Marks of a chat: from bytes of the rendered prompt to positions among its tokens. */
#include "api_internal.h"

#include <string.h>

static bool stands_at(const char *text, size_t len, size_t at, text_str token) {
    return len - at >= token.len && !memcmp(text + at, token.data, token.len);
}

/* Where the token's text ends that begins at `at`, or behind white space there; SIZE_MAX: it is
 * another text, for the tokenizer changed it. */
static size_t token_end(const char *text, size_t len, size_t at, text_str token) {
    if (stands_at(text, len, at, token)) return at + token.len;
    text_str bare = {token.data + 1, token.len - 1};
    if (token.len && *token.data == ' ' && stands_at(text, len, at, bare)) return at + bare.len;
    while (at < len && strchr(" \t\r\n", text[at]))
        if (stands_at(text, len, ++at, token)) return at + token.len;
    return SIZE_MAX;
}

void api_place_marks(const icp_model *m, const buf *text, const icp_tokens *ids,
                     const chat_marks *marks, icp_marks *out) {
    size_t at = 0, next = 0;
    out->n = 0;
    for (size_t i = 0; i < ids->n && next < marks->n; i++) {
        at = token_end(text->data, text->len, at, tokenizer_bytes(m->tok, ids->id[i]));
        if (at == SIZE_MAX) return;
        for (; next < marks->n && marks->mark[next].at <= at; next++) {
            const chat_mark *mark = &marks->mark[next];
            size_t position = mark->at == at ? i + 1 : i;
            if (position > 0 && out->n < ICP_MAX_MARKS)
                out->at[out->n++] = (icp_mark){position, mark->ttl};
        }
    }
}
