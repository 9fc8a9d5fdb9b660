/* What the tests of model share: a sequence over pages of its own, without a cache. */
#ifndef RUN_MODEL_H
#define RUN_MODEL_H

#include "gguf.h"
#include "model.h"

#include <json-c/json.h>

/* Opens a file of tests/golden (INCIPIT_GOLDEN names the folder); fails the test when it cannot. */
model *open_golden(const char *name, model_opts opts);
json_object *read_json(const char *name);
float *read_floats(const char *name, size_t n);

/* A golden model's bytes, to be changed and opened; the caller frees data. */
typedef struct bytes {
    unsigned char *data;
    size_t len;
} bytes;
bytes read_bytes(const char *name);
gguf *open_bytes(bytes b);
/* Where a text stands; fails the test when it is not there. */
unsigned char *find_bytes(bytes b, const char *text);
/* Changes the 32-bit number that a key has: a float or an integer. */
void set_number(bytes b, const char *key, const void *value);

typedef struct sequence {
    model *m;
    void *state; /* recurrent models only */
    void **pages;
    size_t n_pages, len;
    const float *scales; /* of adapters; the caller's */
    size_t second;       /* where the second text of a pair begins */
} sequence;
void sequence_init(sequence *s, model *m, size_t max_tokens);
void sequence_fini(sequence *s);
/* Appends tokens, `chunk` at a time; logits (may be NULL) gets a row for each. */
void sequence_extend(sequence *s, const int32_t *ids, size_t n, size_t chunk, float *logits);

#endif
