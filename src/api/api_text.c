/* Text of the public library: ids and bytes. */
#include "api_internal.h"

#include <string.h>

void icp_tokens_free(icp_tokens *t) {
    mem_free(t->id);
    *t = (icp_tokens){0};
}

int api_encode(const icp_model *m, const char *text, size_t len, const uint8_t *origin,
               unsigned flags, icp_tokens *out, icp_error *err) {
    token_ids ids = {0};
    int rc = tokenizer_encode(m->tok, text, len, origin, flags, &ids);
    if (rc < 0) {
        token_ids_fini(&ids);
        return error_set(err, rc, "cannot tokenize %zu bytes: %s", len, icp_strerror(rc));
    }
    *out = (icp_tokens){ids.id, ids.n};
    return 0;
}

int icp_tokenize(const icp_model *m, const char *text, size_t len, bool special, bool bos,
                 icp_tokens *out, icp_error *err) {
    return api_encode(m, text, len, NULL,
                      (special ? TOKENIZE_SPECIAL : 0u) | (bos ? TOKENIZE_BOS : 0u), out, err);
}

int icp_detokenize(const icp_model *m, const int32_t *ids, size_t n, bool keep_special, char **out,
                   size_t *len, icp_error *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= tokenizer_n(m->tok))
            return error_set(err, ICP_EINVALID, "token %d at index %zu: ids are 0 to %zu", ids[i],
                             i, tokenizer_n(m->tok) - 1);
    buf text = {0};
    int rc = tokenizer_decode(m->tok, ids, n, !keep_special, &text);
    buf_puts(&text, "");
    if (rc < 0 || text.failed) {
        buf_fini(&text);
        return error_set(err, ICP_ENOMEM, "out of memory");
    }
    *out = text.data;
    *len = text.len;
    return 0;
}

int32_t icp_token_bos(const icp_model *m) {
    return tokenizer_bos(m->tok);
}
int32_t icp_token_eos(const icp_model *m) {
    return tokenizer_eos(m->tok);
}
