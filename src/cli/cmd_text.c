/* tokenize, detokenize, template: the text side of a model, from stdin to stdout. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

int cmd_tokenize(int argc, char **argv) {
    char **operands;
    int n_operands;
    model_options o = {0};
    bool no_special = false, no_bos = false;
    const cli_option options[] = {
        CLI_OPTION_MODEL(o),
        {0, "no-special", NULL, "special tokens in the text are ordinary text", OPTION_FLAG,
         &no_special, 0, 0},
        {0, "no-bos", NULL, "no BOS or EOS around the text", OPTION_FLAG, &no_bos, 0, 0}};
    cli_parse(&(cli_usage){"tokenize", "< TEXT", "Prints the token ids of stdin as a JSON array.",
                           "example: printf 'Hello world' | incipit tokenize", options,
                           COUNT_OF(options)},
              argc, argv, &operands, &n_operands);
    icp_error err = {0};
    icp_model *m = NULL;
    buf text = {0};
    icp_tokens ids = {0};
    int rc = cli_open_model(&o, true, &m, &err);
    if (rc == 0) rc = cli_read(NULL, &text, &err);
    if (rc == 0) rc = icp_tokenize(m, text.data, text.len, !no_special, !no_bos, &ids, &err);
    if (rc == 0) {
        printf("[");
        for (size_t i = 0; i < ids.n; i++) printf("%s%d", i ? ", " : "", ids.id[i]);
        printf("]\n");
    }
    icp_tokens_free(&ids);
    buf_fini(&text);
    icp_model_close(&m);
    return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}

int cmd_detokenize(int argc, char **argv) {
    char **operands;
    int n_operands;
    model_options o = {0};
    const cli_option options[] = {CLI_OPTION_MODEL(o)};
    cli_parse(&(cli_usage){"detokenize", "< IDS",
                           "Prints the bytes that a JSON array of token ids stands for.",
                           "example: echo '[19556]' | incipit detokenize", options,
                           COUNT_OF(options)},
              argc, argv, &operands, &n_operands);
    icp_error err = {0};
    icp_model *m = NULL;
    buf text = {0};
    json_object *json = NULL;
    int32_t *ids = NULL;
    size_t n, len;
    char *out = NULL;
    int rc = cli_open_model(&o, true, &m, &err);
    if (rc == 0) rc = cli_read(NULL, &text, &err);
    if (rc == 0) rc = cli_parse_json(text.data, text.len, &json, &err);
    if (rc == 0) rc = cli_json_ids(json, icp_model_get_info(m)->n_vocab, &ids, &n, &err);
    if (rc == 0) rc = icp_detokenize(m, ids, n, true, &out, &len, &err);
    if (rc == 0) fwrite(out, 1, len, stdout);
    icp_free(out);
    mem_free(ids);
    json_object_put(json);
    buf_fini(&text);
    icp_model_close(&m);
    return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}

static int render_file(const char *path, const char *date, const char *chat, char **out,
                       size_t *len, icp_error *err) {
    buf source = {0};
    int64_t now;
    TRY(cli_template_time(date, &now, err));
    int rc = cli_read(path, &source, err);
    if (rc == 0) rc = icp_template_render(source.data, source.len, chat, now, out, len, err);
    buf_fini(&source);
    return rc;
}

static int render_model(const model_options *o, const char *chat, char **out, size_t *len,
                        icp_error *err) {
    icp_model *m = NULL;
    icp_tokens ids = {0};
    int rc = cli_open_model(o, true, &m, err);
    if (rc == 0) rc = icp_chat_tokenize(m, chat, &ids, NULL, out, err);
    if (rc == 0) *len = strlen(*out);
    icp_tokens_free(&ids);
    icp_model_close(&m);
    return rc;
}

int cmd_template(int argc, char **argv) {
    char **operands;
    int n_operands;
    model_options o = {0};
    const char *path = NULL;
    const cli_option options[] = {CLI_OPTION_MODEL(o),
                                  {0, "template", "FILE",
                                   "a Jinja template, instead of the model's", OPTION_TEXT, &path,
                                   0, 0},
                                  CLI_OPTION_TEMPLATE_DATE(o)};
    cli_parse(
        &(cli_usage){
            "template", "< CHAT",
            "Renders a chat, a JSON object with messages, tools, add_generation_prompt, "
            "bos_token,\neos_token and more variables in `extra`, to the text of a prompt.",
            "example: echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
            "\"add_generation_prompt\":true}' | incipit template",
            options, COUNT_OF(options)},
        argc, argv, &operands, &n_operands);
    icp_error err = {0};
    buf chat = {0};
    char *out = NULL;
    size_t len = 0;
    int rc = cli_read(NULL, &chat, &err);
    if (rc == 0 && memchr(chat.data, 0, chat.len))
        rc = error_set(&err, ICP_EFORMAT, "not JSON: stdin has a NUL byte");
    if (rc == 0)
        rc = path ? render_file(path, o.template_date, chat.data, &out, &len, &err)
                  : render_model(&o, chat.data, &out, &len, &err);
    if (rc == 0) fwrite(out, 1, len, stdout);
    icp_free(out);
    buf_fini(&chat);
    return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}
