/* chat: the dialect of a model's chat template, both ways: messages are brought to the form that
 * the template expects, and answers are taken apart while they arrive.
 *
 *   chat_dialects.c  the tables: which markers and which syntax of calls
 *   chat_caps.c      what a template can do, found out by rendering small conversations
 *   chat_input.c     messages and tools, made to fit a template
 *   chat_marks.c     where messages and marked pieces end in the prompt
 *   chat_force.c     answers that must be calls
 *   chat_strict.c    calls whose arguments must follow schemas, for a grammar
 *   chat_tools.c     the tools of a request
 *   chat_parser.c    an answer's text to deltas; chat_calls.c, chat_object.c,
 *                    chat_values.c: the syntaxes of calls
 */
#ifndef CHAT_H
#define CHAT_H

#include "icp_chat.h"
#include "text.h"

struct json_object;

/* ---- dialects (chat_dialects.c) ------------------------------------------------------------- */

enum chat_syntax {
    CHAT_JSON,    /* {"name": "f", "arguments": {…}}, one, several, or a list of them */
    CHAT_NAMED,   /* a head with the name in it, then the arguments as a JSON object */
    CHAT_KEYED,   /* name, then each argument between markers: XML and its like */
    CHAT_LITERAL, /* f(a=1, b='x') */
    CHAT_CHANNEL, /* a message whose header says to=NAME; its body is the arguments */
};

enum { CHAT_MAX_DROP = 6 };

/* How calls are written. A marker that is NULL does not exist. Section: around all calls of an
 * answer; call: around each.
 *
 *   <|calls|>[{"name": "f", …}, {…}]<|end|>    section, section_end; JSON
 *   <tool_call>{"name": "f", …}</tool_call>    call, call_end; JSON
 *   <call>ID<sep>f<args>{…}</call>             NAMED: name_after "<sep>", name_until "<args>"
 *   <fn=f><key=a>1</key></fn>                  KEYED: call "<fn=", name_until ">", key "<key=", …
 */
typedef struct chat_dialect {
    const char *name;
    const char *source[3]; /* texts that tell the dialect, all of them */
    enum chat_syntax syntax;
    const char *section, *section_end;
    const char *call, *call_end;
    const char *name_after; /* NAMED: the name comes after this text, if it is there */
    const char *name_until; /* NAMED: … and before this; KEYED: before any of these characters */
    const char *id_after; /* NAMED: the model gives ids, after this text ("": from the start) … */
    const char *id_until; /* … and before this */
    const char *head;     /* a call's beginning, '$' for the name, after which only arguments are
                           * wanted,     as JSON; NULL: there is no such thing */
    const char *form; /* a call behind `call`, for a grammar (chat_strict.c); NULL: it has none */
    const char *key;  /* KEYED: before a key */
    const char *key_until; /* KEYED: ends a key: any of these characters */
    const char *value;     /* KEYED: after key and attributes; NULL: the value follows the key */
    const char *value_end;
    const char *key_end;      /* KEYED, for a grammar: what a model writes after a key … */
    const char *text_key_end; /* … of a string, where that differs */
    const char *quote;        /* LITERAL: an own quotation mark beside Python's; call:f{a:1} then */
    const char *drop[CHAT_MAX_DROP]; /* markers that say nothing to a reader */
    bool key_is_name;                /* JSON: {"f": {…}} */
    bool bare;      /* may begin without a marker, at the beginning of the answer */
    bool one_line;  /* KEYED: a line break just inside either end of a value is no part of it */
    bool cdata;     /* KEYED: <![CDATA[…]]> may be around a value */
    bool named_end; /* KEYED: the key and ">" follow value_end */
} chat_dialect;

/* How reasoning is marked. */
typedef struct chat_reasoning {
    const char *open, *close;
} chat_reasoning;

/* Answers that are a row of messages, each with a header that says what it is:
 *
 *   <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>OK */
typedef struct chat_channels {
    const char *source;  /* text in a template that tells them */
    const char *start;   /* before a header; the prompt ends with the last one */
    const char *message; /* between header and body */
    const char *end[3];  /* after a body */
    const char *thought; /* word in the header of reasoning */
    const char *answer;  /* a header that begins the answer proper */
    const char *call;    /* … of a call: the name follows; NULL: calls stand in the body */
} chat_channels;

typedef struct chat_style {
    const chat_dialect *calls;       /* the generic one when the template has none */
    const chat_reasoning *reasoning; /* NULL: none is known */
    const chat_channels *channels;   /* NULL: the answer is plain text */
} chat_style;

/* source: a template and what it renders of a conversation with calls; NULL: there is none. */
chat_style chat_style_of(const char *source);
/* The style of a dialect by its name, with <think> for reasoning; calls is NULL: there is none. */
chat_style chat_style_named(const char *name);

/* ---- parser (chat_parser.c …) --------------------------------------------------------------- */

typedef struct chat_parser chat_parser;

typedef struct chat_parser_opts {
    chat_style style;
    const char *tools_json; /* the request's `tools`; NULL: calls are not looked for */
    bool keep_special;      /* control tokens that are no markers stay in content */
    bool marked;            /* in dialects with a marker before each call, none begins without it */
    /* Whether text[len], a part of a marker, is a special token of the vocabulary; NULL: none is.
     */
    bool (*is_special)(void *arg, const char *text, size_t len);
    void *arg;
} chat_parser_opts;

/* ICP_EFORMAT: tools_json is no JSON list; ICP_ENOMEM. */
int chat_parser_open(const chat_parser_opts *opts, chat_parser **out, icp_error *err);
void chat_parser_close(chat_parser **p);

enum chat_origin { CHAT_ORDINARY, CHAT_SPECIAL, CHAT_CONTROL };
/* What the prompt ends with, where the template has written the answer's beginning. Before any put.
 * Only the template's own bytes should be in it. ICP_ENOMEM. */
int chat_parser_prompt(chat_parser *p, const char *text, size_t len);
/* The answer's beginning, which the prompt has already; what it tells is to be taken. ICP_ENOMEM.
 */
int chat_parser_begin(chat_parser *p, const char *text, size_t len);
/* Whether an answer to such a prompt begins as reasoning. */
bool chat_parser_thinking(const chat_parser *p);
/* More of the answer. SPECIAL, CONTROL: text is (the beginning or the rest of) one special token;
 * `begins` says which. ICP_ENOMEM: the answer is lost. */
int chat_parser_put(chat_parser *p, const char *text, size_t len, enum chat_origin origin,
                    bool begins);
/* The answer is over. */
int chat_parser_finish(chat_parser *p);
/* The next delta since the last clear; its text is valid until the next put. */
bool chat_parser_next(chat_parser *p, icp_chat_delta *delta);
void chat_parser_clear(chat_parser *p);

/* ---- forced calls (chat_force.c) ------------------------------------------------------------- */

/* How an answer becomes a call of one of the tools: what it begins with, and the JSON schema that
 * the rest must follow. thinking: the prompt has begun the reasoning. Both are appended to. The
 * parser of such an answer has chat_force_dialect. ICP_EFORMAT: tools_json is no list, or empty;
 * ICP_ENOMEM. */
int chat_force(const chat_style *style, const char *tools_json, bool thinking, jinja_text *begun,
               buf *schema);
/* What an answer begins with that is to be text at once, without reasoning. */
void chat_force_text(const chat_style *style, bool thinking, jinja_text *begun);
const chat_dialect *chat_force_dialect(const chat_style *style, const char *tools_json);

/* ---- strict calls (chat_strict.c) ------------------------------------------------------------ */

/* The calls of an answer, for the grammar module's grammar_dialect and grammar_call: the members
 * are theirs, and so are these bytes. */
#define CHAT_TOKEN "\xff"
#define CHAT_TOKEN_END "\xfe"
#define CHAT_SPACE "\xfa"
#define CHAT_WORD "\xf9"
#define CHAT_NUMBER "\xfb"
#define CHAT_OPTION "\xfc"
enum chat_value { CHAT_VALUE_JSON, CHAT_VALUE_TEXT, CHAT_VALUE_TEXT_OR_NULL };

typedef struct chat_strict_call {
    const char *begin, *end;
    const char *schema;         /* NULL: the function is not strict */
    struct json_object *params; /* for chat_strict_value; may be NULL */
} chat_strict_call;

typedef struct chat_strict {
    enum chat_syntax syntax;
    const char *section, *section_end, *call, *thought_end, *message, *message_end;
    const char *key, *key_end, *text_key_end, *value_end, *quote;
    bool listed, ends, lines, named_end;
    char bare;
    chat_strict_call *calls;
    size_t n;
    const char *tokens[32]; /* special tokens in the marks */
    size_t n_tokens;
    struct json_object *tools;
    arena mem;
} chat_strict;

typedef struct chat_strict_opts {
    chat_style style;
    const char *tools_json;
    bool (*is_special)(void *arg, const char *text, size_t len); /* as in chat_parser_opts */
    void *arg;
} chat_strict_opts;

/* Of tools of which at least one is strict. n is 0: none is, or the dialect has no form.
 * ICP_EFORMAT: tools_json; ICP_EUNSUPPORTED: a function's name cannot be written; ICP_ENOMEM. */
int chat_strict_calls(const chat_strict_opts *opts, chat_strict *out, icp_error *err);
void chat_strict_fini(chat_strict *s);
/* How the parser reads an argument whose value stands between markers: params of its call. */
enum chat_value chat_strict_value(void *params, const char *key);

/* ---- templates and messages (chat_caps.c, chat_input.c) -------------------------------------- */

/* Renders a template; the API's, with the model's tokens as variables. vars is a chat's object. */
typedef int chat_render(void *arg, struct json_object *vars, jinja_text *out);

/* Finds out what a template (source) can do, and its style, from a dozen small conversations.
 * ICP_ENOMEM. */
int chat_caps_probe(const char *source, chat_render *render, void *arg, icp_chat_caps *caps,
                    chat_style *style);

/* Where pieces of a chat end in its prompt. */
typedef struct chat_mark {
    double ttl; /* of a breakpoint; 0: a message ends */
    size_t at;  /* bytes of the prompt before it; SIZE_MAX: it is not there */
} chat_mark;
typedef struct chat_marks {
    chat_mark mark[TEXT_MARKS];
    size_t n;
} chat_marks;
/* Takes the breakpoints out of a chat's object, which was read from this JSON text, and marks its
 * strings there (jinja_opts.marked); with `ends` also where messages end: the last ones, and before
 * those ever fewer, each twice as far from the end. A text that has such characters itself is not
 * marked. ICP_ENOMEM. */
int chat_marks_put(struct json_object *vars, const char *json, bool ends, chat_marks *out);
/* Finds them in the prompt, and sorts them; those that are not there are left out. */
void chat_marks_find(chat_marks *marks, const jinja_text *prompt);

/* Changes the members messages and tools of a chat's object so that a template with these
 * capabilities shows them. ICP_EFORMAT: arguments of a call are no JSON object; ICP_ENOMEM. */
int chat_input_adapt(const icp_chat_caps *caps, struct json_object *vars, icp_error *err);

#endif
