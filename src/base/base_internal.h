/* Shared by the files of base only. */
#ifndef BASE_INTERNAL_H
#define BASE_INTERNAL_H

#include <stddef.h>

/* Writes text to out[cap], NUL-terminated, cut at a character, with control characters, line
 * separators, bidirectional overrides and invalid UTF-8 escaped. Returns the length. */
size_t base_escape(char *out, size_t cap, const char *text, size_t len);

#endif
