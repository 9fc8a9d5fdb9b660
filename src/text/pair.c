/* Two texts as one input:
 *
 *   BERT                 [CLS] a [SEP]  b [SEP]
 *   RoBERTa, XLM-R       <s> a </s></s> b </s>       the file says add_sep_token */
#include "tokenizer_internal.h"

static int encode(const tokenizer *t, text_str a, text_str b, token_ids *out, size_t *second) {
    if (t->add_bos) TRY(token_ids_push(out, t->bos));
    TRY(tokenizer_encode(t, a.data, a.len, NULL, 0, out));
    TRY(token_ids_push(out, t->end));
    if (t->two_separators) TRY(token_ids_push(out, t->sep));
    *second = out->n;
    TRY(tokenizer_encode(t, b.data, b.len, NULL, 0, out));
    return t->add_eos ? token_ids_push(out, t->end) : 0;
}

int tokenizer_encode_pair(const tokenizer *t, text_str a, text_str b, token_ids *out,
                          size_t *second) {
    size_t n = out->n;
    if (t->end < 0) return ICP_EUNSUPPORTED;
    int rc = encode(t, a, b, out, second);
    if (rc < 0) out->n = n;
    return rc;
}
