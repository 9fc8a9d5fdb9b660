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

typedef struct sequence {
    model *m;
    void *state; /* recurrent models only */
    void **pages;
    size_t n_pages, len;
    const float *scales; /* of adapters; the caller's */
} sequence;
void sequence_init(sequence *s, model *m, size_t max_tokens);
void sequence_fini(sequence *s);
/* Appends tokens, `chunk` at a time; logits (may be NULL) gets a row for each. */
void sequence_extend(sequence *s, const int32_t *ids, size_t n, size_t chunk, float *logits);

#endif
