/* The bridge from a model file to its tokenizer. */
#ifndef VOCAB_H
#define VOCAB_H

#include "gguf.h"
#include "text.h"

/* Fills *out from the tokenizer.ggml.* keys of g. Its arrays lie in a, its texts in g's mapping:
 * both must live until tokenizer_open has returned. ICP_EFORMAT: the file has no vocabulary, or
 * its lists are of the wrong kind or length; ICP_ENOMEM. */
int vocab_from_gguf(const gguf *g, text_vocab *out, arena *a, icp_error *err);

#endif
