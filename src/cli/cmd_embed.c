/* embed: a text, or its token ids, to the vector that the model makes of it. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

typedef struct input {
    int32_t *ids;
    size_t n;
    size_t second; /* of a pair: where its second text begins */
} input;

static int copy_ids(const icp_tokens *from, input *to, icp_error *err) {
    to->ids = mem_zero(MAX(from->n, 1), sizeof *to->ids);
    if (!to->ids) return error_set(err, ICP_ENOMEM, "out of memory");
    if (from->n) memcpy(to->ids, from->id, from->n * sizeof *to->ids);
    to->n = from->n;
    return 0;
}

static int tokenize(const icp_model *m, const char *text, size_t len, input *out, icp_error *err) {
    icp_tokens ids = {0};
    int rc = icp_tokenize(m, text, len, true, true, &ids, err);
    if (rc == 0) rc = copy_ids(&ids, out, err);
    icp_tokens_free(&ids);
    return rc;
}

static int tokenize_pair(const icp_model *m, json_object *query, json_object *document, input *out,
                         icp_error *err) {
    icp_tokens ids = {0};
    int rc = icp_tokenize_pair(
        m, json_object_get_string(query), (size_t)json_object_get_string_len(query),
        json_object_get_string(document), (size_t)json_object_get_string_len(document), &ids,
        &out->second, err);
    if (rc == 0) rc = copy_ids(&ids, out, err);
    icp_tokens_free(&ids);
    return rc;
}

static int read_json(const icp_model *m, json_object *json, input *out, icp_error *err) {
    json_object *text = json_object_object_get(json, "text"),
                *query = json_object_object_get(json, "query"),
                *document = json_object_object_get(json, "document"),
                *second = json_object_object_get(json, "second");
    if (json_object_is_type(text, json_type_string))
        return tokenize(m, json_object_get_string(text), (size_t)json_object_get_string_len(text),
                        out, err);
    if (json_object_is_type(query, json_type_string) &&
        json_object_is_type(document, json_type_string))
        return tokenize_pair(m, query, document, out, err);
    if (json_object_is_type(second, json_type_int) && json_object_get_int64(second) > 0)
        out->second = (size_t)json_object_get_int64(second);
    return cli_json_ids(json_object_object_get(json, "ids"), icp_model_get_info(m)->n_vocab,
                        &out->ids, &out->n, err);
}

/* What begins with a brace is {"ids": […]}, of a pair with "second", where its second text begins;
 * or {"text": "…"}; or {"query": "…", "document": "…"}; all else is text. */
static int read_input(const icp_model *m, const buf *in, input *out, icp_error *err) {
    json_object *json = NULL;
    if (in->data[strspn(in->data, " \t\r\n")] != '{')
        return tokenize(m, in->data, in->len, out, err);
    TRY(cli_parse_json(in->data, in->len, &json, err));
    int rc = read_json(m, json, out, err);
    json_object_put(json);
    return rc;
}

static void print_row(const float *row, size_t n) {
    for (size_t i = 0; i < n; i++) printf("%s%.9g", i ? "," : "[", (double)row[i]);
    printf("]");
}

static void print_json(const icp_event *done, size_t n_tokens, const icp_model_info *info) {
    size_t width = info->n_vector;
    if (done->n_vector == width) {
        printf("{\"%s\":", strcmp(info->pooling, "rank") != 0 ? "embedding" : "scores");
        print_row(done->vector, width);
    } else {
        printf("{\"embeddings\":[");
        for (size_t i = 0; i < done->n_vector; i += width) {
            if (i) printf(",");
            print_row(done->vector + i, width);
        }
        printf("]");
    }
    printf(",\"tokens\":%zu}\n", n_tokens);
}

static void print_raw(const icp_event *done) {
    for (size_t i = 0; i < done->n_vector; i++) {
        uint32_t bits;
        memcpy(&bits, &done->vector[i], sizeof bits);
        for (int byte = 0; byte < 4; byte++) putchar((int)(bits >> 8 * byte & 0xFF));
    }
}

static int embed(icp_engine *e, const input *in, bool raw, const icp_model_info *info,
                 icp_error *err) {
    icp_request_opts opts;
    icp_request *r;
    icp_event event = {.kind = ICP_EVENT_TOKEN};
    icp_request_opts_init(&opts);
    opts.prompt = in->ids;
    opts.n_prompt = in->n;
    opts.max_tokens = 0;
    opts.embed = true;
    opts.second = in->second;
    TRY(icp_submit(e, &opts, &r, err));
    while (event.kind != ICP_EVENT_DONE)
        if (icp_wait(r, -1)) icp_next(r, &event);
    int rc = event.error ? error_set(err, event.error, "%s", icp_strerror(event.error)) : 0;
    if (rc == 0 && raw) print_raw(&event);
    if (rc == 0 && !raw) print_json(&event, in->n, info);
    icp_request_free(&r);
    return rc;
}

int cmd_embed(int argc, char **argv) {
    char **operands;
    int n_operands;
    model_options o = {0};
    bool raw = false;
    const cli_option options[] = {
        CLI_OPTION_MODEL(o),
        CLI_OPTIONS_COMPUTE(o),
        {'c', "ctx", "N", "context in tokens (as the model was trained)", OPTION_INT, &o.ctx, 1, 0},
        {0, "raw", NULL, "little-endian float32 instead of JSON", OPTION_FLAG, &raw, 0, 0}};
    cli_parse(&(cli_usage){"embed", "< TEXT",
                           "Prints the vector that an embedding model makes of stdin: text, or "
                           "{\"ids\":[…]}.\nIt is pooled as the file says, and not normalised. A "
                           "model that ranks prints the\nscore of {\"query\":…,\"document\":…}.",
                           "example: printf 'Hello world' | incipit embed -m bge-small-en.gguf",
                           options, COUNT_OF(options)},
              argc, argv, &operands, &n_operands);
    icp_error err = {0};
    icp_model *m = NULL;
    icp_engine *e = NULL;
    buf text = {0};
    input in = {0};
    int rc = cli_read(NULL, &text, &err);
    if (rc == 0) rc = cli_open_model(&o, false, &m, &err);
    if (rc == 0) rc = read_input(m, &text, &in, &err);
    if (rc == 0) rc = icp_engine_open(m, NULL, &e, &err);
    if (rc == 0) rc = embed(e, &in, raw, icp_model_get_info(m), &err);
    icp_engine_close(&e);
    icp_model_close(&m);
    mem_free(in.ids);
    buf_fini(&text);
    return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}
