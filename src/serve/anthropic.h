/* Anthropic's Messages. */
#ifndef ANTHROPIC_H
#define ANTHROPIC_H

#include "generation.h"

/* The chat body of a messages body (anthropic_request.c); NULL with an error. counting: max_tokens
 * need not be there. The caller puts it. */
json_object *anthropic_chat(json_object *body, bool counting, reply *error);

#endif
