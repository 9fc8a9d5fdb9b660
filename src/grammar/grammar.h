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

/* ---- calls of functions in a text (calls.c, call_arguments.c) ------------------------------- */

/* Tokens that are no text have bytes that no text has. The marks of a dialect may have special
 * tokens in them: each is GRAMMAR_TOKEN, its text, GRAMMAR_TOKEN_END, in a mark as in the
 * vocabulary. All others that may stand in free text are GRAMMAR_OTHER. */
#define GRAMMAR_TOKEN "\xff"
#define GRAMMAR_TOKEN_END "\xfe"
#define GRAMMAR_OTHER "\xf8"
/* Places in the begin and the end of a call: an optional space, a word that the model makes up, a
 * small number; two of the last are around what may be left out. */
#define GRAMMAR_SPACE "\xfa"
#define GRAMMAR_WORD "\xf9"
#define GRAMMAR_NUMBER "\xfb"
#define GRAMMAR_OPTION "\xfc"

enum grammar_arguments {
    ARGUMENTS_JSON,    /* {"a": 1, "b": "x"} */
    ARGUMENTS_KEYED,   /* <key=a>1</key><key=b>x</key> */
    ARGUMENTS_LITERAL, /* a=1, b="x" */
};
/* How an argument is written where strings may stand as they are. */
enum grammar_value { VALUE_JSON, VALUE_TEXT, VALUE_TEXT_OR_NULL };

/* How a model writes its calls. Marks that are NULL do not exist.
 *
 *   TEXT ( section call… section_end TEXT )*        with a section
 *   TEXT ( call begin ARGUMENTS end TEXT )*         without one; or where a call leaves it out
 *   HEADER message ( BODY message_end HEADER … )*   with a message: see calls.c */
typedef struct grammar_dialect {
    enum grammar_arguments arguments;
    const char *section, *section_end; /* without an end nothing follows the calls */
    const char *call;                  /* before each call; its begin goes on behind it */
    bool listed; /* calls of a section may be in brackets, with commas between them */
    bool ends;   /* text may follow the end of a call */
    char bare;   /* a text that begins with it is a call, or a list of them ('['); 0: none is */
    const char *thought_end; /* after it a text begins anew */
    const char *message, *message_end;
    /* KEYED: a value stands between key_end (of strings: text_key_end, if there is one) and
     * value_end, which a string does not contain; lines: each in lines of its own. */
    const char *key, *key_end, *text_key_end, *value_end;
    bool lines;
    bool named_end; /* the key and ">" follow value_end */
    enum grammar_value (*value_of)(void *arg, const char *key);
    /* LITERAL: around strings; NULL: as in JSON. Between a key and its value. */
    const char *quote;
    char assign;
    const char *const *tokens; /* the texts of all special tokens in these marks */
    size_t n_tokens;
} grammar_dialect;

/* begin, arguments that are valid under a schema (data NULL: any), end. */
typedef struct grammar_call {
    grammar_str begin, schema, end;
    void *arg; /* of value_of */
} grammar_call;
/* Any text in which each mark is followed by one of n calls. Arguments of which nothing is
 * restricted are left out where the dialect cannot write them. ICP_EUNSUPPORTED, too: a restricted
 * one cannot be written. */
int grammar_from_calls(grammar_vocab *v, const grammar_dialect *d, const grammar_call *calls,
                       size_t n, const grammar_limits *limits, grammar **out, icp_error *err);

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
