/* Anthropic's Messages. */
#ifndef ANTHROPIC_H
#define ANTHROPIC_H

#include "generation.h"

/* The chat body of a messages body (anthropic_request.c); NULL with an error. counting: max_tokens
 * need not be there. The caller puts it. */
json_object *anthropic_chat(json_object *body, bool counting, reply *error);

/* Why a prompt was computed that an earlier message had (anthropic_diagnosis.c). */
typedef struct diagnosis diagnosis;
/* *out is NULL when the body does not ask. chat: what became of the body. False with an error. */
bool diagnosis_open(diagnosis **out, call *c, json_object *body, json_object *chat);
void diagnosis_free(void *d);
/* Keeps what a later message is compared with. g->own is the diagnosis, or NULL; the prompt is
 * there. */
void diagnosis_keep(const generation *g);
/* Appends ,"diagnostics":… when they are wanted. */
void put_diagnosis(const generation *g, buf *out, size_t n_cached);

#endif
