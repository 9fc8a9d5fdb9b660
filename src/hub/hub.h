/* hub: models from servers that speak the API of Hugging Face's hub, and the folder that keeps
 * them.
 *
 *   FOLDER/user/repo/model-Q4_K_M.gguf                        a model, whole and checked
 *   FOLDER/user/repo/model-Q4_K_M.gguf.sha256                 its checksum, for sha256sum -c
 *   FOLDER/user/repo/model-Q8_0.gguf.0123456789abcdef.part    what an interrupted pull has of
 * another one, of that checksum
 *
 * 1. A file gets its name when all of it is there and its checksum is right.
 * 2. Names that come from a server are checked before they become paths: no file is ever written
 *    outside the folder, and none that is hidden. */
#ifndef HUB_H
#define HUB_H

#include "base.h"

/* "user/repo" or "user/repo:tag". The tag is a quantisation ("Q4_K_M", in any case) or the path of
 * a file; "": any. */
typedef struct hub_ref {
    char repo[200], tag[512];
} hub_ref;

/* False: text is no such name. */
bool hub_ref_parse(const char *text, hub_ref *out);

typedef struct hub_file {
    char *path;      /* within the repository */
    int64_t size;    /* bytes; -1: not known */
    char sha256[65]; /* hexadecimal; "": not known */
} hub_file;

typedef struct hub_list { /* zero-initialise; hub_list_fini */
    hub_file *file;
    size_t n;
} hub_list;
void hub_list_fini(hub_list *list);

/* ---- choosing (hub_pick.c) ------------------------------------------------------------------ */

/* The files of the one model that the tag means among those of a repository: all parts of a split
 * one, the first of them first. Without a tag the first of a fixed order of quantisations that is
 * there, Q4_K_M before others. ICP_ENOTFOUND: none, or parts are missing; ICP_EINVALID: more than
 * one fits; err lists them. */
int hub_pick(const hub_list *files, const hub_ref *ref, hub_list *out, icp_error *err);

/* Whether path is a model's file that is not the second or a later part of a split one. */
bool hub_is_model(const char *path);
enum { HUB_QUANTISATION = 16 };
/* The quantisation that a file's name tells, as it is spelt there, or "". */
void hub_quantisation(const char *path, char out[HUB_QUANTISATION]);

/* ---- what is kept (hub_folder.c) ------------------------------------------------------------ */

/* All files below folder, or of a repository in it (NULL: of all, paths begin with user/repo/),
 * sorted by path; checksums' files left out. Nothing there: an empty list. */
int hub_kept(const char *folder, const char *repo, hub_list *out, icp_error *err);
/* The path of a kept model's (first) file; mem_free. ICP_ENOTFOUND, ICP_EINVALID as hub_pick. */
int hub_find(const char *folder, const hub_ref *ref, char **path, icp_error *err);
/* Deletes a kept model or, without a tag, all of its repository. *freed: bytes. ICP_ENOTFOUND. */
int hub_remove(const char *folder, const hub_ref *ref, int64_t *freed, icp_error *err);

/* ---- pulling (hub_pull.c) ------------------------------------------------------------------- */

typedef struct hub_opts {
    const char *folder;
    const char *endpoint; /* "https://huggingface.co" */
    const char *token;    /* shown to the endpoint, never to where it redirects; NULL: none */
    bool offline;         /* asks nobody: checks what is kept */
    double silence;       /* seconds without a byte that end an attempt */
    /* Both on the calling thread: how far a file is, often; and what is worth a line. */
    void (*progress)(void *arg, const char *file, int64_t done, int64_t size);
    void (*note)(void *arg, const char *text);
    void *arg;
} hub_opts;

/* Makes a model be kept; the path of its (first) file in *path (mem_free). What is whole already is
 * not fetched again, what was begun is continued. Attempts that fail for reasons that pass are
 * repeated. ICP_EIO, ICP_ENOTFOUND, ICP_EINVALID, ICP_EFORMAT (what came is not what was
 * announced), ICP_ENOMEM. */
int hub_pull(const hub_ref *ref, const hub_opts *opts, char **path, icp_error *err);

#endif
