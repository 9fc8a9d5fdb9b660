#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sink {
    bool all;
    uint8_t *wanted; /* one a position */
} sink;

static void write_row(void *arg, size_t position, const float *row, size_t n) {
    const sink *s = arg;
    if (s->all || s->wanted[position]) fwrite(row, sizeof *row, n, stdout);
}

static int mark_positions(const json_object *positions, size_t n, sink *s, icp_error *err) {
    int32_t *at = NULL;
    size_t n_at;
    s->all = positions == NULL;
    if (s->all) return 0;
    TRY(cli_json_ids(positions, n, &at, &n_at, err));
    s->wanted = mem_zero(n, 1);
    for (size_t i = 0; s->wanted && i < n_at; i++) s->wanted[at[i]] = 1;
    mem_free(at);
    return s->wanted ? 0 : error_set(err, ICP_ENOMEM, "out of memory");
}

static int run(const model_options *o, const icp_engine_opts *eo, int hit, icp_error *err) {
    icp_model *m = NULL;
    icp_engine *e = NULL;
    buf text = {0};
    json_object *json = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    sink s = {0};
    int rc = cli_read(NULL, &text, err);
    if (rc == 0) rc = cli_parse_json(text.data, text.len, &json, err);
    if (rc == 0 && !json_object_is_type(json, json_type_object))
        rc = error_set(err, ICP_EINVALID,
                       "stdin must be an object {\"ids\": […], \"positions\": […]}");
    if (rc == 0) rc = cli_open_model(o, false, &m, err);
    if (rc == 0)
        rc = cli_json_ids(json_object_object_get(json, "ids"), icp_model_get_info(m)->n_vocab, &ids,
                          &n, err);
    if (rc == 0 && n == 0) rc = error_set(err, ICP_EINVALID, "ids is empty");
    if (rc == 0) rc = mark_positions(json_object_object_get(json, "positions"), n, &s, err);
    if (rc == 0) rc = icp_engine_open(m, eo, &e, err);
    if (rc == 0) rc = cli_logits(e, ids, n, (size_t)hit, "", write_row, &s, err);
    if (rc == 0 && fflush(stdout)) rc = error_set(err, ICP_EIO, "cannot write to stdout");
    icp_engine_close(&e);
    icp_model_close(&m);
    mem_free(s.wanted);
    mem_free(ids);
    json_object_put(json);
    buf_fini(&text);
    return rc;
}

int cmd_logits(int argc, char **argv) {
    char **operands;
    int n_operands, hit = 0;
    model_options o = {0};
    icp_engine_opts eo = {0};
    const cli_option options[] = {
        CLI_OPTION_MODEL(o),
        CLI_OPTIONS_COMPUTE(o),
        CLI_OPTIONS_ROPE(o),
        {'c', "ctx", "N", "context in tokens (as the model was trained)", OPTION_INT, &o.ctx, 1, 0},
        {0, "chunk", "N", "tokens of the prompt that are computed at once", OPTION_INT, &eo.chunk,
         1, 4096},
        {0, "hit", "N", "compute the first N tokens first, then find them in the cache", OPTION_INT,
         &hit, 0, 0},
        {0, "cache-ram", "SIZE", "memory of the cache", OPTION_SIZE, &eo.cache_limit, 0, 0}};
    cli_parse(
        &(cli_usage){
            "logits", "< IDS",
            "Reads {\"ids\": […], \"positions\": […]} and writes the logits after each of "
            "these positions\n(all of them without \"positions\") as little-endian float32 "
            "rows, in ascending order.",
            "example: echo '{\"ids\": [19556]}' | incipit logits > row.f32", options,
            COUNT_OF(options)},
        argc, argv, &operands, &n_operands);
    icp_error err = {0};
    return run(&o, &eo, hit, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
}
