/* grammar: texts that follow rules, and which tokens may come next in one.
 *
 *   grammar_vocab  the bytes of a vocabulary's tokens, as a trie; one for a model
 *   grammar        rules, compiled from GBNF, a regular expression, choices, or a JSON Schema
 *   matcher        a text in the making: takes tokens, knows the next ones that fit
 *
 * Nothing here knows models or requests: a token is an index and some bytes. */
#ifndef GRAMMAR_H
#define GRAMMAR_H

#include "base.h"

/* ---- vocabulary (vocab_trie.c) ----------------------------------------------------------------
 */

typedef struct grammar_str {
    const char *data;
    size_t len;
} grammar_str;

typedef struct grammar_vocab grammar_vocab; /* counted; shared by threads */

/* tokens[id]: what token id adds to a text; an empty one never fits. Copied. ICP_ENOMEM. */
int grammar_vocab_new(const grammar_str *tokens, size_t n, grammar_vocab **out);
void grammar_vocab_unref(grammar_vocab **v); /* NULL is fine */

/* ---- grammars ------------------------------------------------------------------------------- */

typedef struct grammar grammar; /* counted; shared by threads */

/* What compiling may cost; 0 and NULL: the default, and never. */
typedef struct grammar_limits {
    size_t steps, memory;
    const atomic_bool *cancel; /* looked at while compiling */
} grammar_limits;

/* All of these take text of len bytes, refer to the vocabulary from now on, and on failure leave a
 * sentence in *err: ICP_EINVALID: it is malformed, or no finite text follows it; ICP_EUNSUPPORTED:
 * it asks for what cannot be enforced here; ICP_ELIMIT; ICP_ECANCELLED; ICP_ENOMEM.
 * limits may be NULL. */

/* GBNF as llama.cpp has it; the rule `root` is the text. Left recursion is refused. */
int grammar_from_gbnf(grammar_vocab *v, const char *text, size_t len, const grammar_limits *limits,
                      grammar **out, icp_error *err);
/* The whole text matches: literals, classes, groups, alternation and quantifiers over code points.
 * Look-around, back-references, word boundaries and flags are ICP_EUNSUPPORTED. */
int grammar_from_regex(grammar_vocab *v, const char *text, size_t len, const grammar_limits *limits,
                       grammar **out, icp_error *err);
/* The text is one of n strings, each of which is UTF-8 and not empty. */
int grammar_from_choices(grammar_vocab *v, const grammar_str *choices, size_t n,
                         const grammar_limits *limits, grammar **out, icp_error *err);
/* A JSON text that is valid under a JSON Schema (2020-12), as schema.c describes it. */
int grammar_from_schema(grammar_vocab *v, const char *text, size_t len,
                        const grammar_limits *limits, grammar **out, icp_error *err);
/* Any JSON object; text is not looked at. */
int grammar_from_json(grammar_vocab *v, const char *text, size_t len, const grammar_limits *limits,
                      grammar **out, icp_error *err);

/* A function that may be called in a text: begin, JSON that is valid under the schema (data NULL:
 * any object), end. */
typedef struct grammar_call {
    grammar_str begin, schema, end;
} grammar_call;
/* Any text, in which each marker (ASCII) is followed by one of n calls. ICP_EUNSUPPORTED, too: the
 * marker has its first character twice. */
int grammar_from_calls(grammar_vocab *v, const char *marker, const grammar_call *calls, size_t n,
                       const grammar_limits *limits, grammar **out, icp_error *err);

grammar *grammar_ref(grammar *g);
void grammar_unref(grammar **g); /* NULL is fine */

/* ---- matching (matcher.c) ------------------------------------------------------------------- */

typedef struct matcher
    matcher; /* of one thread at a time; matchers of one grammar run in parallel */

/* At the beginning of a text. The matcher refers to g. ICP_ENOMEM. */
int matcher_new(grammar *g, matcher **out);
void matcher_free(matcher **m); /* NULL is fine */

/* The text goes on with these bytes, or this token. ICP_EINVALID: it cannot; ICP_ENOMEM,
 * ICP_ELIMIT: it is not known; in all these cases nothing has changed. */
int matcher_put(matcher *m, const char *bytes, size_t len);
int matcher_put_token(matcher *m, int32_t token);
bool matcher_can_end(const matcher *m);  /* the text so far is complete */
bool matcher_must_end(const matcher *m); /* and nothing may follow */

/* Sets bit id of bits (n_words words of 64) for each token that may come next, clears the others.
 * Whatever fits leaves a text that can be completed. The result depends on the text so far and on
 * nothing else. Returns how many fit, or ICP_ENOMEM, or ICP_ELIMIT. */
long matcher_mask(matcher *m, uint64_t *bits, size_t n_words);

#endif
