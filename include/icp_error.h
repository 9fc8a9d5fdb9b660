/* Errors of incipit: a code for programs, a sentence for people.
 *
 * Every function that can fail returns 0 or a negative ICP_E code. Where a sentence
 * helps (files, requests), the caller passes an icp_error that receives both. */
#ifndef ICP_ERROR_H
#define ICP_ERROR_H

/* X(name, number, what it means) */
#define ICP_ERRORS(X)                                                                              \
    X(NOMEM, 1, "out of memory")                                                                   \
    X(IO, 2, "input or output failed")                                                             \
    X(NOTFOUND, 3, "not found")                                                                    \
    X(FORMAT, 4, "malformed data")                                                                 \
    X(UNSUPPORTED, 5, "not supported")                                                             \
    X(INVALID, 6, "invalid argument")                                                              \
    X(LIMIT, 7, "a limit was exceeded")                                                            \
    X(AGAIN, 8, "no room now, try again later")                                                    \
    X(CANCELLED, 9, "cancelled")                                                                   \
    X(BUG, 10, "internal error")

enum icp_error_code {
#define ICP_ERROR_ENUM(name, number, text) ICP_E##name = -(number),
    ICP_ERRORS(ICP_ERROR_ENUM)
#undef ICP_ERROR_ENUM
};

typedef struct icp_error {
    int code;       /* 0 or one of icp_error_code */
    char text[500]; /* one sentence, valid UTF-8, control characters escaped */
} icp_error;

/* The general meaning of a code ("out of memory"); never NULL. */
const char *icp_strerror(int code);

#endif
