/* What the files of hub share. */
#ifndef HUB_INTERNAL_H
#define HUB_INTERNAL_H

#include "hub.h"

/* Takes over nothing: path is copied. ICP_ENOMEM. */
int hub_list_add(hub_list *list, const char *path, int64_t size, const char *sha256);
void hub_list_sort(hub_list *list);

/* That a path from a server may become one here: components of letters, digits and a few harmless
 * marks, none hidden. */
bool hub_path_is_safe(const char *path);
bool hub_is_sha256(const char *text, size_t len);
/* FOLDER/user/repo/path followed by suffix; NULL: no memory. */
char *hub_path(const char *folder, const char *repo, const char *path, const char *suffix);

/* ---- one request (hub_http.c) ---- */

typedef struct hub_answer {
    long status;         /* 0: none came */
    int64_t range_at;    /* where a partial answer begins; -1: it is a whole one */
    int64_t retry_after; /* seconds; 0: not said */
    char sha256[65];     /* of the file, as the hub's own header tells it; "" */
    bool refused;        /* by the receiver of the body */
    bool passing;        /* what failed may work later */
} hub_answer;

/* Takes a piece of a successful answer's body; false stops the request. */
typedef bool hub_body_fn(void *arg, const hub_answer *a, const char *data, size_t len);

/* GET, from byte `from` on. 0 when an answer came whole, whatever its status; ICP_EIO with a
 * sentence. */
int hub_get(const hub_opts *opts, const char *url, int64_t from, hub_body_fn *body, void *arg,
            hub_answer *a, icp_error *err);
/* Says what a status other than success means for a person. */
int hub_status_error(const hub_answer *a, const hub_opts *opts, const char *what, icp_error *err);
/* Waits before attempt n (from 1) at something that failed; false when it is not worth it. */
bool hub_wait(const hub_opts *opts, const hub_answer *a, int n, const icp_error *why);
/* Appends a path, escaped for a URL. */
void hub_put_url_path(buf *out, const char *path);

/* ---- one file (hub_fetch.c) ---- */

/* Makes a file be kept, from url unless opts->offline. */
int hub_fetch(const hub_opts *opts, const char *repo, const hub_file *file, const char *url,
              icp_error *err);

#endif
