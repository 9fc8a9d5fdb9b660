/* What is kept: found by walking the folder, so that files may come and go by any hand. */
#include <errno.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub_internal.h"

static bool ends_in(const char *text, const char *end) {
    size_t len = strlen(text), tail = strlen(end);
    return len >= tail && !strcmp(text + len - tail, end);
}

/* The size is that of what a link points to. */
static int add_entry(const FTSENT *e, size_t root_len, hub_list *out) {
    struct stat st;
    bool is_file = e->fts_info == FTS_F || e->fts_info == FTS_SL;
    if (!is_file || ends_in(e->fts_name, ".sha256") || stat(e->fts_accpath, &st) < 0) return 0;
    return hub_list_add(out, e->fts_path + root_len + 1, st.st_size, "");
}

int hub_kept(const char *folder, const char *repo, hub_list *out, icp_error *err) {
    *out = (hub_list){0};
    char *root = hub_path(folder, repo ? repo : "", "", "");
    FTS *walk =
        root ? fts_open((char *[]){root, NULL}, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL)
             : NULL;
    int rc = walk ? 0 : ICP_ENOMEM;
    for (FTSENT *e; rc == 0 && (e = fts_read(walk));) rc = add_entry(e, strlen(root), out);
    if (walk) fts_close(walk);
    mem_free(root);
    if (rc < 0) {
        hub_list_fini(out);
        return error_set(err, rc, "out of memory");
    }
    hub_list_sort(out);
    return 0;
}

int hub_find(const char *folder, const hub_ref *ref, char **path, icp_error *err) {
    hub_list all, found = {0};
    *path = NULL;
    TRY(hub_kept(folder, ref->repo, &all, err));
    int rc = all.n ? hub_pick(&all, ref, &found, err)
                   : error_set(err, ICP_ENOTFOUND, "%s: nothing of it was pulled", ref->repo);
    if (rc == 0) {
        *path = hub_path(folder, ref->repo, found.file[0].path, "");
        if (!*path) rc = error_set(err, ICP_ENOMEM, "out of memory");
    }
    hub_list_fini(&all);
    hub_list_fini(&found);
    return rc;
}

/* Deletes a file with its checksum, and folders that it leaves empty, the repository's too. */
static int delete_file(const char *folder, const char *repo, const char *path, icp_error *err) {
    char *file = hub_path(folder, repo, path, ""), *sum = hub_path(folder, repo, path, ".sha256");
    int rc = file && sum ? 0 : error_set(err, ICP_ENOMEM, "out of memory");
    if (rc == 0 && unlink(file) < 0)
        rc = error_set(err, ICP_EIO, "%.300s: cannot delete: %s", file, strerror(errno));
    if (rc == 0) {
        unlink(sum);
        for (char *slash; strlen(file) > strlen(folder) && (slash = strrchr(file, '/'));) {
            *slash = 0;
            if (strlen(file) <= strlen(folder) || rmdir(file) < 0) break;
        }
    }
    mem_free(file);
    mem_free(sum);
    return rc;
}

int hub_remove(const char *folder, const hub_ref *ref, int64_t *freed, icp_error *err) {
    hub_list all, wanted = {0};
    *freed = 0;
    TRY(hub_kept(folder, ref->repo, &all, err));
    int rc = all.n ? 0 : error_set(err, ICP_ENOTFOUND, "%s: nothing of it was pulled", ref->repo);
    if (rc == 0 && ref->tag[0]) rc = hub_pick(&all, ref, &wanted, err);
    const hub_list *list = ref->tag[0] ? &wanted : &all;
    for (size_t i = 0; i < list->n && rc == 0; i++) {
        rc = delete_file(folder, ref->repo, list->file[i].path, err);
        if (rc == 0) *freed += list->file[i].size;
    }
    hub_list_fini(&all);
    hub_list_fini(&wanted);
    return rc;
}
