/* A server over the stub engine, and a client that sees every byte. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "serve.h"
#include "stub.h"

/* ---- the server ------------------------------------------------------------------------------ */

/* In main, before any thread: serve_run's signals must reach its own thread only. */
void fixture_block_signals(void);
/* Starts a server in a thread (port and callbacks are set here) and waits until it is ready. */
void fixture_start(serve_opts *opts);
/* Likewise, while loading goes on. */
void fixture_start_loading(serve_opts *opts);
/* The same as a group's set-up, with the model /models/stub.gguf; and what takes it down. */
int fixture_set_up(void **state);
int fixture_take_down(void **state);
int fixture_stop(void); /* SIGTERM, then: */
int fixture_wait(void); /* what serve_run returns */
int fixture_port(void);
void fixture_wait_idle(void); /* until no request lives in the engine */

/* ---- the client ------------------------------------------------------------------------------ */

typedef struct answer {
    int status; /* 0: the connection closed without one */
    char *head; /* status line and headers, lower case names */
    char *body; /* without chunk framing; NUL-terminated */
    size_t len;
    bool complete; /* its end was seen as the framing says */
} answer;
void answer_free(answer *a);
/* The value of a header; NULL: absent. */
const char *answer_header(const answer *a, const char *name);

int client_open(void); /* a connected socket */
void client_send(int fd, const char *text, size_t len);
void client_sends(int fd, const char *text);
/* Reads one answer and nothing behind it. */
answer client_read(int fd);
/* One request on its own connection. body may be NULL; headers: further lines, or "". */
answer client_ask(const char *method, const char *path, const char *headers, const char *body);
answer client_post(const char *path, const char *body);
/* ---- looking at answers ---------------------------------------------------------------------- */

/* A member of a JSON text by JSON pointer, as JSON text ("" when it is not there); valid for some
 * more calls. */
const char *json_at(const char *json, const char *pointer);
/* The data of a stream's events, cut out of its body; NULL at the end. Names of events must be the
 * type that their data says; there may be comments. */
char **stream_events(char *body);
/* Reads until the text has been seen in what arrives; false: the connection ended. */
bool client_wait_for(int fd, const char *text);

#endif
