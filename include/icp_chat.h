/* Chats: what a model's template can say, and what the model's answers mean.
 *
 * A model writes reasoning and tool calls as text in a dialect of its own. A parser turns that text
 * into deltas while it arrives:
 *
 *   <think>\nHm.\n</think>\nOK<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
 *   REASONING "Hm."  CONTENT "OK"  CALL 0 "f"  ARGUMENTS 0 "{"a": 1}"  CALL_END 0
 *
 * What is malformed stays content. A marker that the vocabulary has as a special token is one only
 * as that token, never spelled out in ordinary ones. */
#ifndef ICP_CHAT_H
#define ICP_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum icp_chat_delta_kind {
    ICP_CHAT_CONTENT,
    ICP_CHAT_REASONING,
    ICP_CHAT_CALL,      /* a call begins: text is the function's name */
    ICP_CHAT_ARGUMENTS, /* more of its arguments, as JSON text */
    ICP_CHAT_CALL_END,
};

typedef struct icp_chat_delta {
    enum icp_chat_delta_kind kind;
    int call; /* number of the call, from 0 */
    const char *text;
    size_t len;
    const char *id; /* CALL: the id that the model itself gave, NUL-terminated; "" when none */
} icp_chat_delta;

typedef struct icp_chat_caps {
    const char *dialect; /* of tool calls: "hermes", "mistral" … */
    bool tools;          /* the template shows tools; without, a system message does */
    bool tool_calls;     /* … and calls in the history */
    bool parallel_calls; /* … more than one in a message */
    bool tool_results;   /* … and messages of role tool */
    bool system; /* takes a system message; without, the first user message begins with it */
    bool object_arguments; /* wants arguments as an object, not as JSON text */
    bool list_content;     /* wants content as a list of parts */
    bool needs_content;    /* of messages that call tools, too */
    bool short_ids;        /* only takes call ids of nine letters and digits */
    bool one_text;         /* refuses content beside reasoning in a message that calls tools */
    bool reasoning;        /* shows reasoning_content of the current turn */
    bool thinks;           /* its generation prompt begins the reasoning */
} icp_chat_caps;

#endif
