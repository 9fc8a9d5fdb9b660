/* What the files of the chat parser share.
 *
 * The answer's bytes wait in `in`, their origins beside them:
 *
 *   in      S A Y < t o o l _ c a l l > { " n a m e …
 *   origin  . . . B + + + + + + + + + + . . . . . . .       B: a special token begins, +: goes on
 *                 ^mark               ^resume      ^at
 *
 * Invariants:
 * 1. What lies before `at` is understood; what lies before `mark` has become deltas, or is nothing
 *    to tell. mark <= at <= in.len. Outside a region mark == at.
 * 2. A region is the beginning of a section or call of which nothing has been told: when it turns
 *    out to be malformed it becomes content as far as `resume`, and the parser goes on there. Once
 *    its call's name is told (call_begin) the region is over.
 * 3. A step either consumes, changes the state, or asks for more bytes; so all steps end.
 * 4. Which deltas there are does not depend on how the answer was cut into puts, but for where
 *    texts are cut: a step never decides on a marker, a word or a number that may still go on. */
#ifndef CHAT_INTERNAL_H
#define CHAT_INTERNAL_H

#include "chat.h"

#include <string.h>

enum { OWN_QUOTE = 1 };
enum { ORIGIN_GOES_ON = 1, ORIGIN_BEGINS = 2, ORIGIN_CONTROL = 4 };

typedef struct chat_marker {
    const char *text; /* NULL: there is none */
    size_t len;
    uint64_t special, begins; /* bit i: byte i is of a special token; is the first of one */
} chat_marker;

enum marker_id {
    M_DROP, /* and those after it */
    M_THINK = M_DROP + CHAT_MAX_DROP,
    M_THINK_END,
    M_SECTION,
    M_SECTION_END,
    M_CALL,
    M_CALL_END,
    M_KEY,
    M_VALUE,
    M_VALUE_END,
    M_QUOTE,
    M_START,
    M_MESSAGE,
    M_END, /* and those after it */
    N_MARKERS = M_END + 3
};

enum chat_state {
    S_TEXT,      /* content or reasoning */
    S_HEADER,    /* of a message, in dialects with channels */
    S_BODY,      /* of a message that is a call */
    S_SECTION,   /* between calls */
    S_HEAD,      /* NAMED: what comes before the arguments; KEYED: the name */
    S_ARGUMENTS, /* NAMED: a JSON value */
    S_OBJECT,    /* JSON: a call */
    S_KEYED,     /* KEYED: between arguments */
    S_KEY,
    S_VALUE,
    S_LITERAL, /* LITERAL: an argument */
};

/* A JSON value, byte after byte. */
typedef struct value_scan {
    int depth;
    bool begun, string, escaped, scalar;
} value_scan;
enum scan_result {
    SCAN_ON,
    SCAN_LAST,
    SCAN_BEFORE
}; /* goes on; ends with, ends before this byte */
enum scan_result value_scan_put(value_scan *s, char c);

/* What is known of a call while its JSON object is read. */
enum object_state { O_KEY, O_KEY_TEXT, O_COLON, O_BEFORE, O_VALUE };
typedef struct object_scan {
    enum object_state state;
    int depth;     /* of objects around; 2 inside "function" */
    buf key, word; /* the key; the value being read; with their escapes */
    buf id;
    buf arguments; /* those that came before the name */
    bool escaped;  /* in the key */
    bool streams;  /* the arguments are told while they arrive */
    bool done;     /* they have been read */
    value_scan value;
} object_scan;

struct chat_delta_range {
    icp_chat_delta delta; /* without text */
    size_t from, len;     /* in `told` */
};

struct chat_parser {
    const chat_dialect *calls;
    const chat_reasoning *reasoning;
    const chat_channels *channels;
    chat_marker marker[N_MARKERS];
    struct json_object *tools; /* NULL: calls are not looked for */
    bool keep_special, marked;

    buf in, origin;
    size_t mark, at, resume;
    bool region, ending;

    enum chat_state state;
    bool thinking; /* S_TEXT is reasoning */
    bool pristine; /* no content so far: what may only stand at the beginning still may */
    bool trim;     /* blanks that come next say nothing */
    buf blanks;    /* held back: dropped before a call and at the end of reasoning */
    bool bare;     /* the region began without a marker */

    int n_calls;
    bool in_call;
    struct json_object *params; /* properties of the current call's schema; may be NULL */
    int n_args;
    object_scan object;
    value_scan value;
    buf key, attributes;         /* of the argument being read */
    bool streaming, value_begun; /* the value goes out while it arrives; something of it came */
    size_t scanned;              /* bytes after `at` that were looked at */
    size_t assign;               /* LITERAL: bytes before the value; 0: no key was seen */
    int depth;                   /* LITERAL: of brackets */
    char close, quote; /* LITERAL: of the call; the mark we are inside of, OWN_QUOTE: its own */
    bool escaped;

    buf told; /* texts of deltas; after a call's name: NUL, its id, NUL */
    struct chat_delta_range *deltas;
    size_t n_deltas, cap_deltas, next_delta;
    bool failed; /* no memory */
};

/* ---- chat_parser.c -------------------------------------------------------------------------- */

enum match { MATCH_NO, MATCH_PART, MATCH_YES };
/* Whether the marker stands at in[at]; PART: so far. */
enum match marker_match(const chat_parser *p, enum marker_id id, size_t at);
/* The first of `id` at or after `from`. MATCH_YES: at *where; PART: it may begin there; NO: *where
 * is the end. */
enum match marker_find(const chat_parser *p, enum marker_id id, size_t from, size_t *where);
void chat_tell(chat_parser *p, enum icp_chat_delta_kind kind, const char *text, size_t len);
/* in[from, to) as deltas of this kind, without control tokens. */
void tell_range(chat_parser *p, enum icp_chat_delta_kind kind, size_t from, size_t to);
void consume(chat_parser *p, size_t to); /* outside regions mark goes along */
void region_begin(chat_parser *p, size_t at, size_t resume);
/* The region is content after all; true, as a step. */
bool region_give_up(chat_parser *p);
/* What comes next is text, or between calls. */
void enter_text(chat_parser *p, bool thinking);
void enter_section(chat_parser *p);

/* ---- chat_calls.c: steps; true: go on, false: more bytes are needed ----------------------------
 */

bool step_section(chat_parser *p);
bool step_head(chat_parser *p);
bool step_arguments(chat_parser *p);
bool step_keyed(chat_parser *p);
bool step_key(chat_parser *p);
bool step_value(chat_parser *p);
bool step_literal(chat_parser *p);
/* A call of this name begins; false: it cannot be one. */
bool call_is_name(const char *name, size_t len);
bool call_begin(chat_parser *p, const char *name, size_t len, const char *id, size_t id_len);
void call_end(chat_parser *p);
/* Gives the region up; after calls that are told already what follows is text. */
bool call_malformed(chat_parser *p);

/* ---- chat_object.c -------------------------------------------------------------------------- */

void object_begin(chat_parser *p); /* behind the brace */
bool step_object(chat_parser *p);
void object_scan_fini(object_scan *o);

/* ---- chat_values.c -------------------------------------------------------------------------- */

/* Appends a literal of JSON, Python or JavaScript as JSON. quote: a further quotation mark, or
 * NULL. false: it is none, or something is left over; *out is as before. */
bool literal_to_json(const char *text, size_t len, const char *quote, buf *out);
/* Appends a value that stands there without quotation marks, as the type in its schema (NULL:
 * unknown) has it; what fits no better is a string. */
void value_to_json(const char *text, size_t len, struct json_object *schema, buf *out);
void string_to_json(const char *text, size_t len, buf *out);
/* True when the schema only allows strings. */
/* Whether a schema speaks of strings; of null, of other types beside them. */
bool schema_strings(struct json_object *schema, bool *nulls, bool *others);
bool schema_is_string(struct json_object *schema);
/* The bytes of a string's inside, with its escapes resolved. */
void string_decode(const char *text, size_t len, buf *out);

/* ---- chat_tools.c: a request's tools, as OpenAI's chat API has them ----------------------------
 */

struct json_object *chat_tools_read(const char *tools_json); /* NULL: no list, or an empty one */
/* What a tool's `function` holds, or the tool itself; NULL: it is no object. */
struct json_object *chat_tool_function(struct json_object *tool);
const char *chat_tool_name(struct json_object *tool); /* NULL: it has none */
bool chat_tool_is_strict(struct json_object *tool);
/* The properties of its parameters; NULL: there are none. */
struct json_object *chat_tool_params(struct json_object *tool);
void chat_tool_schema(struct json_object *tool,
                      buf *out); /* appends; any object when it has none */

enum { MAX_HEAD = 1024 }; /* bytes of what comes before a value */

static inline const char *rest(const chat_parser *p) {
    return p->in.data + p->at;
}
static inline size_t rest_len(const chat_parser *p) {
    return p->in.len - p->at;
}

static inline bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

#endif
