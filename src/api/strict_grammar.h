/* The bridge from strict calls in a dialect of chats to their grammar. */
#ifndef STRICT_GRAMMAR_H
#define STRICT_GRAMMAR_H

#include "chat.h"
#include "grammar.h"

/* grammar_from_calls of what s says. v has the tokens of s's marks, if these are special ones. */
int strict_grammar(grammar_vocab *v, const chat_strict *s, const grammar_limits *limits,
                   grammar **out, icp_error *err);

#endif
