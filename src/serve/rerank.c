/* /v1/rerank: documents in the order in which a query wants them, by a model that ranks. Jina's and
 * Cohere's fields; with `texts` those of text-embeddings-inference.
 *
 * https://jina.ai/reranker, https://docs.cohere.com/reference/rerank,
 * https://huggingface.github.io/text-embeddings-inference */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generation.h"

enum { MAX_DOCUMENTS = 2048 };

typedef struct ranked {
    size_t index; /* of the document, in the request */
    float score;
} ranked;

struct own {
    bool texts; /* the documents came as such, and the answer is a bare list */
    bool return_documents;
    int top_n;
    json_object *documents; /* a list; held */
    ranked *ranked;         /* one a document, as they come */
};

static const field own_fields[] = {
    {"top_n", FIELD_INT, offsetof(struct own, top_n), 1, INT32_MAX},
    {"return_documents", FIELD_BOOL, offsetof(struct own, return_documents), 0, 0},
    {"return_text", FIELD_BOOL, offsetof(struct own, return_documents), 0, 0},
};

static void free_own(void *own) {
    struct own *o = own;
    if (!o) return;
    json_object_put(o->documents);
    mem_free(o->ranked);
    mem_free(o);
}

/* A document is a text, or an object that has one; NULL: neither. */
static json_object *text_of(json_object *documents, size_t i) {
    json_object *d = json_object_array_get_idx(documents, i);
    if (json_object_is_type(d, json_type_object)) d = field_get(d, "text");
    return json_object_is_type(d, json_type_string) ? d : NULL;
}

/* ---- out ------------------------------------------------------------------------------------- */

static void take_vector(generation *g, size_t i, const icp_event *done) {
    struct own *o = g->own;
    o->ranked[i] = (ranked){i, done->vector[0]};
}

/* The best first; of equals the one that was named first. */
static int compare(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void put_ranked(const struct own *o, const ranked *r, buf *out) {
    buf_printf(out, "{\"index\":%zu,\"%s\":%.9g", r->index, o->texts ? "score" : "relevance_score",
               (double)r->score);
    if (o->return_documents) {
        json_object *text = text_of(o->documents, r->index);
        buf_puts(out, o->texts ? ",\"text\":" : ",\"document\":{\"text\":");
        put_json_string(out, json_object_get_string(text),
                        (size_t)json_object_get_string_len(text));
        if (!o->texts) buf_putc(out, '}');
    }
    buf_putc(out, '}');
}

static void put_whole(generation *g, buf *out) {
    const struct own *o = g->own;
    size_t n = MIN(g->n_prompts, (size_t)o->top_n);
    qsort(o->ranked, g->n_prompts, sizeof *o->ranked, compare);
    if (!o->texts) {
        put_string_member(out, "{\"id\":", g->id);
        put_string_member(out, ",\"object\":\"list\",\"model\":", g->call->on->name);
        buf_puts(out, ",\"results\":");
    }
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) buf_putc(out, ',');
        put_ranked(o, &o->ranked[i], out);
    }
    buf_putc(out, ']');
    if (o->texts) return;
    buf_puts(out, ",\"usage\":");
    put_prompt_usage(g, out);
    buf_putc(out, '}');
}

static const dialect ranking = {.id_prefix = "rank-",
                                .purpose = TO_RANK,
                                .prompt_field = "documents",
                                .put_whole = put_whole,
                                .take_vector = take_vector,
                                .free_own = free_own};

/* ---- in -------------------------------------------------------------------------------------- */

static bool read_own(generation *g, json_object *body, json_object *documents, bool texts) {
    reply *error = &g->call->reply;
    struct own *o = g->own = mem_zero(1, sizeof *o);
    if (o) o->ranked = mem_zero(g->n_prompts, sizeof *o->ranked);
    if (!o || !o->ranked) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    o->texts = texts;
    o->top_n = INT32_MAX;
    o->documents = json_object_get(documents);
    return fields_read(body, "", own_fields, COUNT_OF(own_fields), o, error);
}

static bool read_pair(generation *g, size_t i, json_object *query, json_object *documents,
                      const char *name) {
    prompt *p = &g->prompts[i];
    reply *error = &g->call->reply;
    json_object *text = text_of(documents, i);
    char param[40];
    icp_error err = {0};
    snprintf(param, sizeof param, "%s[%zu]", name, i);
    if (!text)
        reply_error(error, 400, "invalid_type", param,
                    "Invalid type for '%s': expected a string, or an object with a string 'text', "
                    "got %s.",
                    param, json_kind(json_object_array_get_idx(documents, i)));
    else if (icp_tokenize_pair(
                 g->call->on->model, json_object_get_string(query),
                 (size_t)json_object_get_string_len(query), json_object_get_string(text),
                 (size_t)json_object_get_string_len(text), &p->ids, &p->second, &err) < 0)
        reply_icp_error(error, &err, param);
    return !error->status;
}

/* The documents, under either name; NULL with an error. */
static json_object *find_documents(json_object *body, const char **name, reply *error) {
    *name = field_get(body, "texts") && !field_get(body, "documents") ? "texts" : "documents";
    json_object *list = field_of_type(body, *name, json_type_array, error);
    size_t n = list ? json_object_array_length(list) : 0;
    if (!list)
        reply_error(error, 400, "missing_field", *name, "Missing field: '%s'.", *name);
    else if (n < 1 || n > MAX_DOCUMENTS)
        reply_error(error, 400, "invalid_value", *name,
                    "Invalid value for '%s': a list has 1 to %d items, not %zu.", *name,
                    MAX_DOCUMENTS, n);
    return error->status ? NULL : list;
}

static json_object *find_query(json_object *body, reply *error) {
    json_object *query = field_of_type(body, "query", json_type_string, error);
    if (!query)
        reply_error(error, 400, "missing_field", "query", "Missing field: 'query'.");
    else if (!json_object_get_string_len(query))
        reply_error(error, 400, "invalid_value", "query",
                    "Invalid value for 'query': the text is empty.");
    return error->status ? NULL : query;
}

void rerank_start(call *c, json_object *body) {
    const char *name;
    json_object *query = find_query(body, &c->reply);
    json_object *documents = query ? find_documents(body, &name, &c->reply) : NULL;
    if (!documents) return;
    generation *g = generation_new(c, &ranking, body, json_object_array_length(documents));
    if (!g) return;
    g->opts.stream = false;
    g->opts.max_tokens = 0;
    g->opts.request.embed = true;
    bool well = read_own(g, body, documents, !strcmp(name, "texts"));
    for (size_t i = 0; well && i < g->n_prompts; i++)
        well = read_pair(g, i, query, documents, name);
    if (well)
        generation_submit(g);
    else
        generation_free(&g);
}
