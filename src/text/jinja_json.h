/* JSON in, by json-c. */
#ifndef JINJA_JSON_H
#define JINJA_JSON_H

#include "jinja_internal.h"

/* Puts the members of a JSON object into vars; their text is of this origin. ICP_EFORMAT. */
void json_read_vars(struct render *r, const char *text, enum text_origin origin, struct dict *vars);
void json_release(struct render *r); /* what json-c still holds after an error */

#endif
