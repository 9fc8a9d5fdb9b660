/* A query and a document as a model that ranks wants them: in its file's template, or as a pair. */
#include <string.h>

#include "api_internal.h"

#define QUERY "{query}"
#define DOCUMENT "{document}"

int api_open_rank_template(icp_model *m, const gguf *g, icp_error *err) {
    static const char key[] = "tokenizer.chat_template.rerank";
    gguf_str source = gguf_string(g, key);
    if (!source.data) return 0;
    m->rank_template = mem_alloc(source.len + 1);
    if (!m->rank_template) return error_set(err, ICP_ENOMEM, "out of memory");
    memcpy(m->rank_template, source.data, source.len);
    m->rank_template[source.len] = '\0';
    if (strstr(m->rank_template, QUERY) && strstr(m->rank_template, DOCUMENT)) return 0;
    return error_set(err, ICP_EFORMAT, "%s has no place for " QUERY " or for " DOCUMENT, key);
}

static void put(buf *text, buf *origin, const char *from, size_t len, enum text_origin of) {
    buf_put(text, from, len);
    for (size_t i = 0; i < len; i++) buf_putc(origin, (char)of);
}

/* Fills the template in; what is filled in is text, whatever it looks like. */
static void fill_in(const char *at, text_str query, text_str document, buf *text, buf *origin) {
    for (size_t len; *at; at += len) {
        bool is_query = !strncmp(at, QUERY, strlen(QUERY));
        bool is_document = !strncmp(at, DOCUMENT, strlen(DOCUMENT));
        text_str given = is_query ? query : document;
        len = is_query ? strlen(QUERY) : is_document ? strlen(DOCUMENT) : 1 + strcspn(at + 1, "{");
        if (is_query || is_document)
            put(text, origin, given.data, given.len, TEXT_USER);
        else
            put(text, origin, at, len, TEXT_TEMPLATE);
    }
}

static int encode_filled(const icp_model *m, text_str query, text_str document, token_ids *ids) {
    buf text = {0}, origin = {0};
    fill_in(m->rank_template, query, document, &text, &origin);
    int rc = text.failed || origin.failed ? ICP_ENOMEM
                                          : tokenizer_encode(m->tok, text.data, text.len,
                                                             (const uint8_t *)origin.data, 0, ids);
    buf_fini(&text);
    buf_fini(&origin);
    return rc;
}

int icp_tokenize_pair(const icp_model *m, const char *query, size_t query_len, const char *document,
                      size_t document_len, icp_tokens *out, size_t *second, icp_error *err) {
    text_str q = {query, query_len}, d = {document, document_len};
    token_ids ids = {0};
    *second = 0;
    int rc = m->rank_template ? encode_filled(m, q, d, &ids)
                              : tokenizer_encode_pair(m->tok, q, d, &ids, second);
    if (rc < 0) {
        token_ids_fini(&ids);
        if (rc == ICP_EUNSUPPORTED)
            return error_set(err, rc, "the vocabulary has no token between two texts");
        return error_set(err, rc, "cannot tokenize %zu bytes: %s", query_len + document_len,
                         icp_strerror(rc));
    }
    *out = (icp_tokens){ids.id, ids.n};
    return 0;
}
