/* The bridge from a model file to its tokenizer. */
#ifndef VOCAB_H
#define VOCAB_H

#include "gguf.h"
#include "text.h"

/* Opens the tokenizer that the tokenizer.ggml.* keys of g describe; it does not need g any more.
 * ICP_EFORMAT: the file has no vocabulary, or its lists are of the wrong kind or length; and what
 * tokenizer_open says. */
int vocab_open(const gguf *g, tokenizer **out, icp_error *err);

#endif
