/* What the tokenizer's tests share: vocabularies from files and from hand, golden lines. */
#ifndef TEXT_BED_H
#define TEXT_BED_H

#include "text.h"

/* The tokenizer of a model file; fails the test when it cannot be opened. */
tokenizer *bed_open_file(const char *path);
tokenizer *bed_open_golden(const char *model); /* of golden/models/MODEL.gguf */

/* Calls line for each line of golden/NAME, cut at tabs into at most 4 fields. */
void bed_each_line(const char *name, void (*line)(char **fields, void *arg), void *arg);
/* Decodes hex in place; returns the length. */
size_t bed_unhex(char *hex);
/* Reads numbers separated by spaces; returns how many (at most max). */
size_t bed_numbers(const char *text, int32_t *out, size_t max);

/* Fails the test, naming text, unless encoding it gives exactly these ids. */
void bed_expect_ids(const tokenizer *t, const char *text, size_t len, unsigned flags,
                    const int32_t *ids, size_t n);
/* The text without its brokenness, by the naive reading of Unicode's table 3-7. */
void bed_repair(const char *text, size_t len, buf *out);

/* A small vocabulary that tests fill by hand. Tokens 0..255 are the bytes; add the rest. */
enum { BED_MAX = 1024 };
typedef struct bed_vocab {
    text_vocab vocab;
    text_str tokens[BED_MAX], merges[BED_MAX];
    int32_t types[BED_MAX];
    float scores[BED_MAX];
    arena mem;
} bed_vocab;
void bed_vocab_init(bed_vocab *b, const char *model, const char *pre);
void bed_vocab_fini(bed_vocab *b);
int32_t bed_add(bed_vocab *b, const char *token, enum token_type type, float score);
void bed_merge(bed_vocab *b, const char *left, const char *right);
tokenizer *bed_open(bed_vocab *b);

uint32_t bed_random(uint64_t *state, uint32_t below);

#endif
