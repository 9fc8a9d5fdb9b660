/* Whether a JSON value satisfies a schema: written for tests from the JSON Schema specification,
 * and knowing nothing of grammars. Keywords that it does not know are ignored. */
#ifndef SCHEMA_CHECK_H
#define SCHEMA_CHECK_H

#include <stdbool.h>

#include <json-c/json.h>

bool schema_allows(json_object *root, json_object *schema, json_object *value);

#endif
