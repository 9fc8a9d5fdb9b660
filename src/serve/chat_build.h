/* Building blocks of a chat body (chat_build.c): what Messages and Responses bring theirs into.
 * Values are shared by reference; memory that runs out leaves members out, which reading the body
 * then reports. */
#ifndef CHAT_BUILD_H
#define CHAT_BUILD_H

#include "generation.h"

void copy_members(json_object *to, json_object *from, const char *const *names, size_t n);
void rename_member(json_object *to, const char *as, json_object *from, const char *name);
void add_string(json_object *to, const char *name, const char *text);
/* The "type" of an object that must have one; NULL with an error that names param. */
const char *type_of(json_object *value, const char *param, reply *error);
/* A member that must be there; NULL with an error that names "param.name". */
json_object *member_of(json_object *object, const char *param, const char *name,
                       enum json_type type, reply *error);

json_object *new_message(json_object *messages, const char *role);
/* breakpoint: a prompt_cache_breakpoint; NULL: none. */
void add_text_part(json_object *message, json_object *text, json_object *breakpoint);
void add_call(json_object *message, json_object *id, json_object *name, json_object *arguments);
/* A function; its schema is called so there. breakpoint as above. */
void add_tool(json_object *tools, json_object *from, const char *schema, json_object *breakpoint);
void choose_tool(json_object *chat, json_object *name);
/* schema: {name, schema, strict}; it is the chat's then. */
void want_schema(json_object *chat, json_object *schema);
json_object *template_arguments(json_object *chat);

#endif
