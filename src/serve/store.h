/* Responses kept for their callers, and what messages were asked (store.c): found again by id, by
 * the same tenant only.
 *
 * Bounded: the oldest go when all together are too large, one that is too large by itself is not
 * kept at all, and every one is forgotten after its time. Any thread may call. */
#ifndef STORE_H
#define STORE_H

#include "base.h"

typedef struct store store;

int store_open(size_t limit, double ttl, store **out);
void store_close(store **s);
/* Keeps copies; false: too large, or no memory. response and input: JSON texts. */
bool store_put(store *s, const char *tenant, const char *id, const buf *response, const buf *input);
/* Copies what was kept (either may be NULL); false: it is not there, or no memory. */
bool store_get(store *s, const char *tenant, const char *id, buf *response, buf *input);
bool store_drop(store *s, const char *tenant, const char *id);

#endif
