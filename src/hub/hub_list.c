/* Names and lists of files. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "hub_internal.h"

enum { MAX_PATH = 200, MAX_COMPONENTS = 6 };

void hub_list_fini(hub_list *list) {
    for (size_t i = 0; i < list->n; i++) mem_free(list->file[i].path);
    mem_free(list->file);
    *list = (hub_list){0};
}

int hub_list_add(hub_list *list, const char *path, int64_t size, const char *sha256) {
    if ((list->n & (list->n - 1)) == 0) { /* full: it grows at powers of two */
        hub_file *more = mem_resize(list->file, list->n ? 2 * list->n : 1, sizeof *more);
        if (!more) return ICP_ENOMEM;
        list->file = more;
    }
    hub_file *f = &list->file[list->n];
    *f = (hub_file){.path = mem_strdup(path), .size = size};
    if (!f->path) return ICP_ENOMEM;
    if (hub_is_sha256(sha256, strlen(sha256)))
        for (int i = 0; i < 64; i++) f->sha256[i] = (char)tolower((unsigned char)sha256[i]);
    list->n++;
    return 0;
}

static int compare(const void *a, const void *b) {
    return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path);
}

void hub_list_sort(hub_list *list) {
    if (list->n) qsort(list->file, list->n, sizeof *list->file, compare);
}

bool hub_is_sha256(const char *text, size_t len) {
    if (len != 64) return false;
    for (size_t i = 0; i < len; i++)
        if (!isxdigit((unsigned char)text[i])) return false;
    return true;
}

static bool is_plain(char c) {
    return isalnum((unsigned char)c) || (c && strchr("._-+ ()[]=,@", c));
}

bool hub_path_is_safe(const char *path) {
    size_t len = strlen(path), components = 1;
    if (len == 0 || len > MAX_PATH) return false;
    for (size_t i = 0; i < len; i++) {
        bool begins = i == 0 || path[i - 1] == '/';
        if (path[i] == '/' ? begins || i + 1 == len : !is_plain(path[i])) return false;
        if (begins && strchr(".-~ ", path[i])) return false;
        components += path[i] == '/';
    }
    return components <= MAX_COMPONENTS;
}

static bool is_repo(const char *text, size_t len) {
    const char *slash = memchr(text, '/', len);
    if (!slash || slash == text || memchr(slash + 1, '/', len - (size_t)(slash + 1 - text)))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-/", text[i])) return false;
    return true;
}

bool hub_ref_parse(const char *text, hub_ref *out) {
    size_t len = strcspn(text, ":");
    const char *tag = text[len] ? text + len + 1 : "";
    *out = (hub_ref){{0}, {0}};
    if (len >= sizeof out->repo || strlen(tag) >= sizeof out->tag || !is_repo(text, len))
        return false;
    if (text[len] && !hub_path_is_safe(tag)) return false;
    memcpy(out->repo, text, len);
    strcpy(out->tag, tag);
    return hub_path_is_safe(out->repo);
}

char *hub_path(const char *folder, const char *repo, const char *path, const char *suffix) {
    buf out = {0};
    buf_puts(&out, folder);
    if (repo[0]) buf_printf(&out, "/%s", repo);
    if (path[0]) buf_printf(&out, "/%s", path);
    buf_puts(&out, suffix);
    if (!out.failed) return out.data;
    buf_fini(&out);
    return NULL;
}
