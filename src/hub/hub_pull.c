/* Pulling: what a repository has, which of it is wanted, one file after the other. */
#include <ctype.h>
#include <json-c/json.h>
#include <string.h>

#include "hub_internal.h"
#include "json.h"

enum { MAX_LISTING = 32 << 20 };

/* ---- asking what there is ------------------------------------------------------------------- */

static bool take_listing(void *arg, const hub_answer *a, const char *data, size_t len) {
    buf *out = arg;
    if (out->len + len > MAX_LISTING) return false;
    buf_put(out, data, len);
    return !out->failed;
}

static const char *text_of(json_object *o, const char *name) {
    json_object *value = json_object_object_get(o, name);
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

/* Adds a file of the listing; what cannot be a model, or has a name that no file here may have, is
 * left out. */
static int add_sibling(json_object *o, hub_list *out) {
    const char *path = text_of(o, "rfilename");
    size_t len = strlen(path);
    if (!json_object_is_type(o, json_type_object) || len < 5 || strcmp(path + len - 5, ".gguf") ||
        !hub_path_is_safe(path))
        return 0;
    json_object *lfs = json_object_object_get(o, "lfs"), *size;
    if (!json_object_is_type(lfs, json_type_object)) lfs = NULL;
    bool known = json_object_object_get_ex(o, "size", &size) ||
                 json_object_object_get_ex(lfs, "size", &size);
    int64_t bytes =
        known && json_object_is_type(size, json_type_int) ? json_object_get_int64(size) : -1;
    return hub_list_add(out, path, MAX(bytes, -1), lfs ? text_of(lfs, "sha256") : "");
}

/* {"sha":"<commit>","siblings":[{"rfilename":…,"size":…,"lfs":{"sha256":…}},…]} */
static int read_listing(const buf *body, const char *repo, hub_list *out, char commit[65],
                        icp_error *err) {
    json_object *root = body->data ? json_read_whole(body->data, body->len) : NULL;
    json_object *list = json_object_is_type(root, json_type_object)
                            ? json_object_object_get(root, "siblings")
                            : NULL;
    int rc = json_object_is_type(list, json_type_array) ? 0 : ICP_EFORMAT;
    if (rc < 0) {
        error_set(err, rc, "%s: the server's answer is no list of files", repo);
    } else {
        const char *sha = text_of(root, "sha");
        size_t len = strlen(sha);
        bool plain = len > 0 && len <= 64 && strspn(sha, "0123456789abcdef") == len;
        strcpy(commit, plain ? sha : "main");
    }
    for (size_t i = 0; rc == 0 && i < json_object_array_length(list); i++) {
        rc = add_sibling(json_object_array_get_idx(list, i), out);
        if (rc < 0) error_set(err, rc, "out of memory");
    }
    json_object_put(root);
    if (rc == 0) hub_list_sort(out);
    return rc;
}

static int ask_listing(const hub_opts *opts, const char *repo, buf *body, icp_error *err) {
    buf url = {0};
    buf_printf(&url, "%s/api/models/", opts->endpoint);
    hub_put_url_path(&url, repo);
    buf_puts(&url, "/revision/main?blobs=true");
    int rc = url.failed ? error_set(err, ICP_ENOMEM, "out of memory") : ICP_EAGAIN;
    for (int n = 1; rc == ICP_EAGAIN; n++) {
        hub_answer a;
        icp_error why = {0};
        buf_clear(body);
        rc = hub_get(opts, url.data, 0, take_listing, body, &a, &why);
        if (a.refused) error_set(&why, rc, "%s: the server's list of files is too long", repo);
        if (rc == 0 && a.status != 200) rc = hub_status_error(&a, opts, repo, &why);
        if (a.status == 0) a.passing = false; /* no connection: better said at once */
        if (rc < 0 && hub_wait(opts, &a, n, &why))
            rc = ICP_EAGAIN;
        else if (rc < 0)
            error_set(err, rc, "%s", why.text);
    }
    buf_fini(&url);
    return rc;
}

static int list_repository(const hub_opts *opts, const char *repo, hub_list *out, char commit[65],
                           icp_error *err) {
    buf body = {0};
    int rc = ask_listing(opts, repo, &body, err);
    if (rc == 0) rc = read_listing(&body, repo, out, commit, err);
    buf_fini(&body);
    return rc;
}

/* ---- pulling -------------------------------------------------------------------------------- */

static int fetch_all(const hub_opts *opts, const char *repo, const char *commit,
                     const hub_list *wanted, icp_error *err) {
    int rc = 0;
    for (size_t i = 0; i < wanted->n && rc == 0; i++) {
        buf url = {0};
        buf_printf(&url, "%s/", opts->endpoint);
        hub_put_url_path(&url, repo);
        buf_printf(&url, "/resolve/%s/", commit);
        hub_put_url_path(&url, wanted->file[i].path);
        rc = url.failed ? error_set(err, ICP_ENOMEM, "out of memory")
                        : hub_fetch(opts, repo, &wanted->file[i], url.data, err);
        buf_fini(&url);
    }
    return rc;
}

static int check_token(const char *token, icp_error *err) {
    for (const char *c = token; c && *c; c++)
        if (!isgraph((unsigned char)*c))
            return error_set(err, ICP_EINVALID,
                             "the token (HF_TOKEN) has blanks or control "
                             "characters");
    return 0;
}

int hub_pull(const hub_ref *ref, const hub_opts *opts, char **path, icp_error *err) {
    hub_list all = {0}, wanted = {0};
    char commit[65] = "";
    *path = NULL;
    TRY(check_token(opts->token, err));
    int rc = opts->offline ? hub_kept(opts->folder, ref->repo, &all, err)
                           : list_repository(opts, ref->repo, &all, commit, err);
    if (rc == 0 && opts->offline && all.n == 0)
        rc = error_set(err, ICP_ENOTFOUND, "%s: nothing of it was pulled", ref->repo);
    if (rc == 0) rc = hub_pick(&all, ref, &wanted, err);
    if (rc == 0) rc = fetch_all(opts, ref->repo, commit, &wanted, err);
    if (rc == 0) {
        *path = hub_path(opts->folder, ref->repo, wanted.file[0].path, "");
        if (!*path) rc = error_set(err, ICP_ENOMEM, "out of memory");
    }
    hub_list_fini(&all);
    hub_list_fini(&wanted);
    return rc;
}
