/* A system prompt that all tenants share, from a file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "serve_internal.h"

static int read_file(const char *path, buf *out, icp_error *err) {
    FILE *file = fopen(path, "re");
    if (!file) return error_set(err, ICP_EIO, "%s: %s", path, strerror(errno));
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) buf_put(out, piece, n);
    bool failed = ferror(file);
    fclose(file);
    if (failed || out->failed) return error_set(err, ICP_EIO, "%s: cannot read", path);
    return 0;
}

/* A chat with this system prompt, in which a user says something. */
static int render(const icp_model *model, const buf *system, const char *says, icp_tokens *out,
                  icp_error *err) {
    buf chat = {0};
    buf_puts(&chat, "{\"messages\":[{\"role\":\"system\",\"content\":\"");
    buf_put_json(&chat, system->data ? system->data : "", system->len);
    buf_printf(&chat, "\"},{\"role\":\"user\",\"content\":\"%s\"}]}", says);
    int rc = chat.failed ? error_set(err, ICP_ENOMEM, "out of memory")
                         : icp_chat_tokenize(model, chat.data, out, NULL, NULL, err);
    buf_fini(&chat);
    return rc;
}

/* What two chats that differ in the first word of the user have in common is what every chat with
 * this system prompt begins with, however the template treats it. */
static int find_prefix(const icp_model *model, const buf *system, icp_tokens *out, icp_error *err) {
    icp_tokens other = {0};
    int rc = render(model, system, "Alpha", out, err);
    if (rc == 0) rc = render(model, system, "7", &other, err);
    size_t n = 0;
    while (n < MIN(out->n, other.n) && out->id[n] == other.id[n]) n++;
    out->n = n;
    icp_tokens_free(&other);
    return rc;
}

/* Without a template prompts begin with the text itself; its last token may become another one when
 * text follows. */
static int tokenize_plain(const icp_model *model, const buf *text, icp_tokens *out,
                          icp_error *err) {
    TRY(icp_tokenize(model, text->data ? text->data : "", text->len, true, true, out, err));
    if (out->n) out->n--;
    return 0;
}

int shared_prefix_load(served *m, const char *path, icp_error *err) {
    buf text = {0};
    icp_tokens ids = {0};
    int rc = read_file(path, &text, err);
    while (text.len && text.data[text.len - 1] == '\n') text.len--;
    if (rc == 0)
        rc = icp_model_get_info(m->model)->has_template
                 ? find_prefix(m->model, &text, &ids, err)
                 : tokenize_plain(m->model, &text, &ids, err);
    if (rc == 0) {
        icp_error why = {0};
        rc = icp_cache_share(m->engine, ids.id, ids.n, &why);
        if (rc < 0) error_set(err, rc, "%s: %s", path, why.text);
    }
    if (rc == 0) log_line(LOG_INFO, "all tenants share the %zu tokens of %s", ids.n, path);
    icp_tokens_free(&ids);
    buf_fini(&text);
    return rc;
}
