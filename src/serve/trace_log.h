/* trace_log: a file that tells what was asked, for `incipit sim`: a JSON object a line, as in
 * Mooncake's traces (Qin et al., FAST 2025), with ids in place of words.
 *
 * The id of a block of TRACE_BLOCK tokens is a keyed hash (HMAC-SHA-256, cut to 53 bits, which
 * every reader of JSON can hold) of the block, all before it, model, tenant and salt: equal ids are
 * equal prefixes of one namespace, and nothing else can be learned. The key is drawn when the log
 * is opened and never leaves memory, so that the ids of two runs of the server have nothing in
 * common.
 *
 * A thread of its own hashes and writes. When it falls behind, or the file cannot be written, lines
 * are lost and counted; nobody waits for it. */
#ifndef TRACE_LOG_H
#define TRACE_LOG_H

#include "base.h"

enum { TRACE_BLOCK = 64 }; /* tokens: a page of the cache */

typedef struct trace_log trace_log;
typedef struct trace_space { /* where a request's prefixes are shared */
    unsigned char digest[32];
} trace_space;

/* Appends to the file at path. What exceeds limit bytes begins it anew, and the old one is called
 * path.1. ICP_EIO: it cannot be opened; ICP_ENOMEM. */
int trace_log_open(const char *path, size_t limit, trace_log **out, icp_error *err);
void trace_log_close(trace_log **t); /* writes what is left */
/* cached false: it shares nothing with any other. */
void trace_log_space(trace_log *t, const char *model, const char *tenant, const char *salt,
                     bool cached, trace_space *out);
/* A request that came so many seconds ago. Copies tokens. From any thread; t NULL: does nothing. */
void trace_log_add(trace_log *t, double seconds_ago, const trace_space *space,
                   const int32_t *tokens, size_t n, size_t n_output);

#endif
