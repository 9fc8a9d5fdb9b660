/* json: reading JSON from outside, with json-c, the same way wherever it comes in. */
#ifndef JSON_H
#define JSON_H

#include "base.h"

#include <json-c/json.h>

/* Reads text[0..len) as RFC 8259 has it, nested at most `depth` deep. *why says how that went;
 * *root is the value (NULL for null too, and after a failure), the caller's to put. *end: the byte
 * where reading stopped, len when nothing follows the value. ICP_ENOMEM: nothing was read (text of
 * 2 GB and more included). */
int json_read(const char *text, size_t len, int depth, json_object **root,
              enum json_tokener_error *why, size_t *end);

enum { JSON_DEEPEST = 128 };
/* The value that the whole of a text is, but for blanks around it, nested at most JSON_DEEPEST
 * deep; the caller's to put. NULL: it is null, or no JSON, or there is no memory. */
json_object *json_read_whole(const char *text, size_t len);

#endif
