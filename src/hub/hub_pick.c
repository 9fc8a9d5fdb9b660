/* Which files of a repository are the model that was asked for. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "hub_internal.h"

enum { TAIL = sizeof "-00001-of-00001.gguf" - 1, MAX_CHOICES = 400 };

/* In the order in which they are chosen when nobody says which: first those of about four bits, the
 * usual balance of size and quality; then better and larger; then smaller; then those that are not
 * quantised. */
static const char *const quantisations[] = {
    "Q4_K_M",  "Q4_K_S",  "Q4_K_L", "Q4_K_XL", "Q4_0",    "Q4_1",    "IQ4_NL", "IQ4_XS", "MXFP4",
    "Q5_K_M",  "Q5_K_S",  "Q5_K_L", "Q5_K_XL", "Q5_0",    "Q5_1",    "Q6_K",   "Q6_K_L", "Q6_K_XL",
    "Q8_0",    "Q8_K_XL", "Q3_K_L", "Q3_K_M",  "Q3_K_S",  "Q3_K_XL", "IQ3_M",  "IQ3_S",  "IQ3_XS",
    "IQ3_XXS", "Q2_K",    "Q2_K_S", "Q2_K_L",  "Q2_K_XL", "IQ2_M",   "IQ2_S",  "IQ2_XS", "IQ2_XXS",
    "IQ1_M",   "IQ1_S",   "TQ2_0",  "TQ1_0",   "BF16",    "F16",     "F32"};

/* ---- names ---------------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end) {
    size_t len = strlen(text), tail = strlen(end);
    return len >= tail && !strcasecmp(text + len - tail, end);
}

/* The number of a split model's part and how many there are, from its name. */
static bool split_of(const char *path, unsigned *number, unsigned *count) {
    size_t len = strlen(path);
    int used = 0;
    return len > TAIL &&
           sscanf(path + len - TAIL, "-%5u-of-%5u.gguf%n", number, count, &used) == 2 &&
           used == TAIL && *number >= 1 && *count >= 1;
}

bool hub_is_model(const char *path) {
    unsigned number, count;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!ends_in(path, ".gguf") || strstr(name, "mmproj") || strstr(name, "imatrix")) return false;
    return !split_of(path, &number, &count) || number == 1;
}

/* Where path has the tag as words of their own; NULL: nowhere. "Q4_K" is not in "Q4_K_M". */
static const char *find_tag(const char *path, const char *tag) {
    size_t len = strlen(tag);
    for (const char *at = path; (at = strcasestr(at, tag)); at++) {
        bool begins = at == path || !isalnum((unsigned char)at[-1]);
        if (begins && !isalnum((unsigned char)at[len]) && at[len] != '_') return at;
    }
    return NULL;
}

void hub_quantisation(const char *path, char out[HUB_QUANTISATION]) {
    out[0] = 0;
    for (size_t i = 0; i < COUNT_OF(quantisations) && !out[0]; i++) {
        const char *at = find_tag(path, quantisations[i]);
        if (at) snprintf(out, HUB_QUANTISATION, "%.*s", (int)strlen(quantisations[i]), at);
    }
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* The models that have the tag ("": all): how many, and the first. */
static size_t count(const hub_list *files, const char *tag, const hub_file **first) {
    size_t n = 0;
    for (size_t i = 0; i < files->n; i++) {
        const hub_file *f = &files->file[i];
        if (!hub_is_model(f->path) || (tag[0] && strcmp(f->path, tag) && !find_tag(f->path, tag)))
            continue;
        if (!strcmp(f->path, tag)) return *first = f, 1;
        if (n++ == 0) *first = f;
    }
    return n;
}

/* Appends the models that have the tag, as far as a sentence can hold them. */
static void put_choices(const hub_list *files, const char *tag, buf *out) {
    for (size_t i = 0; i < files->n; i++) {
        const char *path = files->file[i].path;
        if (!hub_is_model(path) || (tag[0] && !find_tag(path, tag))) continue;
        if (out->len + strlen(path) > MAX_CHOICES) {
            buf_puts(out, ", …");
            return;
        }
        buf_printf(out, "%s%s", out->len ? ", " : "", path);
    }
}

static int say_choices(const hub_list *files, const hub_ref *ref, size_t n, icp_error *err) {
    buf names = {0};
    put_choices(files, n ? ref->tag : "", &names);
    const char *list = names.data ? names.data : "";
    int rc;
    if (!list[0])
        rc = error_set(err, ICP_ENOTFOUND, "%s has no GGUF files", ref->repo);
    else if (n == 0)
        rc =
            error_set(err, ICP_ENOTFOUND, "%s has no \"%s\"; it has %s", ref->repo, ref->tag, list);
    else
        rc =
            error_set(err, ICP_EINVALID, "more than one file of %s fits: say which, %s:FILE, of %s",
                      ref->repo, ref->repo, list);
    buf_fini(&names);
    return rc;
}

/* Adds all parts of the model that begins with `first`. */
static int add_parts(const hub_list *files, const hub_file *first, hub_list *out, icp_error *err) {
    unsigned number, n_parts;
    size_t stem = strlen(first->path) - TAIL, at = 0;
    if (!split_of(first->path, &number, &n_parts)) n_parts = 0;
    int rc = hub_list_add(out, first->path, first->size, first->sha256);
    for (unsigned i = 2; i <= n_parts && rc == 0; i++) {
        char name[512];
        snprintf(name, sizeof name, "%.*s-%05u-of-%05u.gguf", (int)stem, first->path, i, n_parts);
        for (at = 0; at < files->n && strcmp(files->file[at].path, name) != 0; at++)
            ;
        if (at == files->n)
            return error_set(err, ICP_ENOTFOUND, "%s is missing of the %u files of %s", name,
                             n_parts, first->path);
        rc = hub_list_add(out, name, files->file[at].size, files->file[at].sha256);
    }
    return rc < 0 ? error_set(err, rc, "out of memory") : 0;
}

int hub_pick(const hub_list *files, const hub_ref *ref, hub_list *out, icp_error *err) {
    const hub_file *first = NULL;
    size_t n = 0;
    *out = (hub_list){0};
    if (ref->tag[0]) {
        n = count(files, ref->tag, &first);
    } else {
        for (size_t i = 0; i < COUNT_OF(quantisations) && n == 0; i++)
            n = count(files, quantisations[i], &first);
        if (n == 0) n = count(files, "", &first);
    }
    if (n != 1) return say_choices(files, ref, n, err);
    int rc = add_parts(files, first, out, err);
    if (rc < 0) hub_list_fini(out);
    return rc;
}
