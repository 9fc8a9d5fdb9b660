/* A stand-in for the library: incipit.h with an engine that follows orders in the prompt.
 *
 * Its vocabulary is the 256 bytes, so a token is a byte and a text its own tokens; 256 is a special
 * token "<s>", the rest up to STUB_VOCAB are unused. A chat's prompt is the JSON that the template
 * would have been given. Orders, anywhere in a prompt's text:
 *
 *   @reply=TEXT;   what is generated (default: STUB_REPLY); ends with "stop", or "length"
 *   @count=N;      so many times over
 *   @hang;         nothing, until it is cancelled
 *   @gate;         nothing, until stub_open_gate
 *   @full;         the queue is full (ICP_EAGAIN)
 *   @stop=N;       ends with the N-th stop string
 *   @break;        fails after its first token (ICP_EBUG)
 *   @think;        the template takes its time, until stub_open_gate
 *   @raise;        the template raises "orders are orders"
 *
 * Model paths: "missing" fails to open; "slow" opens when stub_open_gate is called. */
#ifndef STUB_H
#define STUB_H

#include "incipit.h"

enum { STUB_VOCAB = 300, STUB_CTX = 4096, STUB_QUEUE = 64, STUB_ADAPTERS = 2 };
/* With characters of two, three and four bytes. */
#define STUB_REPLY "H\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80."

typedef struct stub_counts {
    long submitted, cancelled, alive; /* cancelled: freed before the end */
} stub_counts;
stub_counts stub_count(void);

void stub_open_gate(void);
void stub_close_gate(void);
int stub_drops(void); /* how often the cache was dropped */
/* The options of the last request: scalars, tenant and salt as text. */
typedef struct stub_seen {
    icp_request_opts opts;
    char tenant[64], salt[64], stop[2][32];
    int32_t stop_token, bias_token;
    float bias, scales[STUB_ADAPTERS];
    char banned[32]; /* the last run, as text */
    icp_mark marks[ICP_MAX_MARKS];
} stub_seen;
stub_seen stub_last(void);

/* Of grammars: "KIND:SOURCE" of the last one, and how many there are. */
const char *stub_grammar(void);
int stub_grammars(void);

#endif
