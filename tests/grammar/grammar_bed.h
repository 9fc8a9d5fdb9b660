/* A small vocabulary for tests of grammars: all bytes, and tokens of several bytes that cross every
 * boundary that matters (JSON's punctuation, parts of characters, twins, runs of blanks). */
#ifndef GRAMMAR_BED_H
#define GRAMMAR_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "grammar.h"

enum { BED_EMPTY = 256 }; /* tokens below it are the bytes; this one is empty */

extern grammar_str bed_tokens[];
extern const size_t bed_n_tokens;
extern grammar_vocab *bed_vocab;
int bed_open(void **state);
int bed_close(void **state);

enum source { GBNF, REGEX, SCHEMA, JSON };
int bed_compile(enum source source, const char *text, grammar **out, icp_error *err);
grammar *bed_grammar(enum source source, const char *text); /* or fails the test */
/* The whole of text follows g. */
bool bed_accepts(grammar *g, const char *text, size_t len);

/* A random text of a grammar, NUL-terminated: tokens that the mask lets through, towards the end
 * those that close what is open. Fails the test when a token of the mask is refused, or when there
 * is none. */
void bed_walk(grammar *g, uint64_t seed, buf *out);
/* The beginning of one: of grammars whose texts need not come to an end by themselves. */
void bed_start(grammar *g, uint64_t seed, buf *out);

uint32_t bed_random(uint64_t *state);

#endif
