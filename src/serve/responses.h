/* OpenAI's Responses. */
#ifndef RESPONSES_H
#define RESPONSES_H

#include "generation.h"

/* What a response keeps of its request. */
typedef struct response {
    buf echo;           /* its parameters, as members of the response: ,"name":… */
    json_object *items; /* all input, that of previous responses included */
    bool keep;          /* in the server's store */
    size_t n_events;    /* of the stream so far */
} response;
void response_free(void *own);

/* The chat body of a responses body, and what is kept of it in *out (responses_request.c); NULL
 * with an error in c->reply. The caller puts it, and frees *out in any case. */
json_object *responses_chat(call *c, json_object *body, response *out);

#endif
