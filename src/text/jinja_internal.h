/* The Jinja interpreter inside: source → tokens → tree → scopes → text.
 *
 *   jinja.c           open, render, close; traps; JSON in
 *   jinja_lex.c       source to tokens: whitespace control lives here
 *   jinja_parse.c     statements           jinja_parse_expr.c  expressions
 *   jinja_scope.c     which variable a name means, decided once, before the first render
 *   jinja_eval.c      statements run       jinja_expr.c        expressions run
 *   jinja_call.c      macros, arguments, attributes
 *   jinja_string.c    strings and their origin, the output
 *   jinja_case.c      upper and lower case, classes of characters
 *   jinja_value.c     lists, dicts, truth, equality, order
 *   jinja_number.c    arithmetic           jinja_print.c       str, repr, tojson
 *   jinja_iter.c      iteration            jinja_format.c      % and format
 *   jinja_filters.c, jinja_filters_seq.c, jinja_methods.c, jinja_tests.c, jinja_globals.c
 *
 * Memory: a template owns one arena, a render another; nothing in them is freed alone. Errors leave
 * by longjmp to the one setjmp in trap_run, so that no evaluation has to pass them on by hand: all
 * that an evaluation holds lies in the arena or in struct render. Values are immutable, except
 * namespaces, iterators, loops, cyclers and joiners. */
#ifndef JINJA_INTERNAL_H
#define JINJA_INTERNAL_H

#include "text.h"

#include <setjmp.h>
#include <string.h>

enum {
    JINJA_MAX_DEPTH = 2000,  /* nested evaluations, values in values */
    JINJA_MAX_HEIGHT = 200,  /* nested parts of a template */
    JINJA_MAX_NAMES = 2000,  /* different names in a template */
    JINJA_MAX_SLOTS = 4096,  /* variables of a function */
    JINJA_MAX_PARAMS = 8,    /* of a builtin */
    JINJA_MAX_RANGE = 100000 /* as in Jinja's sandbox */
};

/* ---- traps (jinja.c) ------------------------------------------------------------------------ */

/* Where errors go, and the memory that is bounded; the first member of all that can fail. */
struct trap {
    jmp_buf env;
    arena *arena;
    size_t max_memory;
    icp_error *err;
    int code;
    int line; /* of the template, for the sentence */
};

/* Runs body(arg); 0, or the code of the error that left it. */
int trap_run(struct trap *t, void (*body)(void *arg), void *arg);
_Noreturn void trap_fail(struct trap *t, int code, const char *format, ...) PRINTF_LIKE(3, 4);
/* Leaves with exactly this text. */
_Noreturn void trap_raise(struct trap *t, const char *text, size_t len);
void *trap_alloc(struct trap *t, size_t size); /* never NULL; not zeroed */
void *trap_zero(struct trap *t, size_t size);

/* ---- values --------------------------------------------------------------------------------- */

enum kind {
    V_MISSING,   /* no value: a variable not set, an argument not given */
    V_UNDEFINED, /* Jinja's Undefined: name says of what, aux why */
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_BIG, /* an integer beyond 64 bits, from JSON: prints and passes through, no more */
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_VIEW, /* keys(), values(), items() of a dict: aux says which */
    V_RANGE,
    V_ITER,
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_FUNC, /* a builtin, perhaps bound to a value: a method */
    V_CYCLER,
    V_JOINER,
    V_SELF,
    V_BLOCK,
};

enum undefined_why { NO_VARIABLE, NO_ATTRIBUTE, UNSAFE_ATTRIBUTE, OTHER_REASON };
enum view_of { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
enum { TUPLE_GROUP = 1 }; /* aux of a tuple that groupby made: has .grouper and .list */

typedef struct value {
    uint8_t kind;
    uint8_t aux;
    uint8_t origin; /* text_origin of what a number, a truth value or None prints */
    uint8_t owner;  /* V_UNDEFINED: kind of the value that lacks the attribute */
    union {
        bool b;
        int64_t i;
        double f;
        const struct str *s; /* V_STR, V_BIG; V_UNDEFINED: a name or sentence */
        struct list *list;   /* V_LIST, V_TUPLE */
        struct dict *dict;   /* V_DICT, V_VIEW, V_NAMESPACE */
        struct range *range;
        struct iter *iter;
        struct loop *loop;
        struct macro *macro;
        struct func *func;
        struct cycler *cycler;
        struct joiner *joiner;
        struct context *context; /* V_SELF */
        struct block_ref *block;
    };
} value;

/* A string: valid UTF-8 that others may share. The origin of its bytes is one for all of them, or
 * lies in marks, a byte for a byte. */
struct str {
    const char *data;
    const uint8_t *marks; /* NULL: every byte is of `origin` */
    size_t len;
    struct room *room; /* where more text may follow it in place; NULL: nowhere */
    uint8_t origin;
    bool ascii;
    bool markup; /* Jinja's Markup: what joins it is escaped */
};

/* Memory at the end of which the last string in it can grow: repeated appending is linear. */
struct room {
    char *data;
    uint8_t *marks;
    uint8_t origin;
    size_t used, cap;
};

struct list { /* the same trick for lists */
    value *items;
    size_t n;
    struct list_room *room;
};
struct list_room {
    value *items;
    size_t used, cap;
};

struct entry {
    value key, val;
    uint64_t hash;
};
struct dict { /* insertion order; slots is an open hash table of 1 + entry index, 0: free */
    struct entry *entries;
    uint32_t *slots;
    size_t n, cap, n_slots;
};

struct range {
    int64_t start, stop, step, n;
};

struct cycler {
    struct list items;
    size_t at;
};
struct joiner {
    value sep;
    bool used;
};

struct render;
struct iter { /* next returns false at the end; iter_next then does so for good */
    bool (*next)(struct render *r, struct iter *it, value *out);
    value source;       /* what is iterated, when it is a value */
    struct iter *inner; /* or another iterator */
    size_t at;
    value args[3]; /* what else next needs */
    struct call *call;
    const struct builtin *fn;
    const struct node *node;
    struct act *act;
    bool started, done, negated;
};

struct loop { /* the variable `loop` */
    struct iter *it;
    value source, after, current, before, changed;
    int64_t index0, length; /* length: -1 before it was asked for */
    int64_t depth0;
    const struct node *node;
    struct act *act; /* of the function around the loop */
};

struct func {
    const struct builtin *builtin;
    value self; /* V_MISSING: not a method */
};

struct macro {
    const struct macro_code *code;
    struct act *act; /* variables around the definition */
};

struct block_ref {
    const struct node *node;
    struct context *context;
};

/* ---- the tree ------------------------------------------------------------------------------- */

enum node_kind {
    /* expressions: members that matter */
    X_CONST, /* val */
    X_NAME,  /* name, ref; op: NAME_IS_PARAM */
    X_NSREF, /* name, ref, val: the attribute. Only as a target */
    X_TUPLE,
    X_LIST,    /* args */
    X_DICT,    /* args: X_PAIR */
    X_PAIR,    /* a: b */
    X_ATTR,    /* a.name */
    X_ITEM,    /* a[b] */
    X_SLICE,   /* a[b:c:d]; b, c, d may be NULL */
    X_CALL,    /* a(args, kwargs, *b, **c) */
    X_FILTER,  /* a|name(…) likewise; a is NULL in filter and set blocks */
    X_TEST,    /* a is name(…) likewise */
    X_KEYWORD, /* name=a */
    X_NOT,
    X_NEG,
    X_POS,   /* a */
    X_ARITH, /* a op b */
    X_AND,
    X_OR,      /* a, b */
    X_CONCAT,  /* args */
    X_COMPARE, /* a, args: X_OPERAND */
    X_OPERAND, /* op a */
    X_COND,    /* b if a else c; c may be NULL */
    /* statements */
    S_TEXT,       /* val */
    S_PRINT,      /* a */
    S_FOR,        /* for a in b if c: body, other; d: a again, for the scope of c; op: FOR_… */
    S_IF,         /* a: body; args: the elifs (S_IF); other: else */
    S_SET,        /* a = b */
    S_SETBLOCK,   /* a = body through filter b (may be NULL) */
    S_MACRO,      /* name, macro */
    S_CALL,       /* call a (X_CALL) with macro as caller */
    S_GENERATION, /* macro: a caller called at once */
    S_FILTER,     /* body through filter b */
    S_WITH,       /* args: targets, kwargs: values, body */
    S_SCOPE,      /* body; a: the condition of autoescape */
    S_BLOCK,      /* name, body; args: what a scoped block sees; op: BLOCK_… */
    S_BREAK,
    S_CONTINUE,
    S_LOADER, /* include, import, from, extends: a is the other template, args the names stored */
};

enum { NAME_IS_PARAM = 1 };
enum { FOR_RECURSIVE = 1, FOR_EXTENDED = 2, FOR_COMPLETE = 4 };
enum { BLOCK_SCOPED = 1, BLOCK_REQUIRED = 2, BLOCK_SELF = 4, BLOCK_SUPER = 8 };
enum { SET_EXPORTS = 1 }; /* op of S_SET, S_SETBLOCK, S_MACRO at top level */
enum op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOTIN
};

/* A variable: so many functions outwards, there in this slot. */
struct ref {
    uint16_t hops, slot;
};

enum load_kind { LOAD_PARAM, LOAD_CONTEXT, LOAD_ALIAS, LOAD_NOTHING };
struct load { /* what a variable holds when its scope is entered */
    enum load_kind kind;
    uint16_t slot;
    struct ref from;        /* LOAD_ALIAS */
    const struct str *name; /* LOAD_CONTEXT */
};
struct scope {
    struct load *loads;
    size_t n;
};
struct frame_code { /* a function of Jinja's compiled code: what shares one set of slots */
    uint16_t n_slots;
    bool captured; /* functions inside may outlive a call */
};

struct macro_code {
    const struct str *name; /* NULL: a call block */
    struct node *params;    /* X_NAME */
    struct node *defaults;  /* of the last n_defaults */
    struct node *body;
    size_t n_params, n_defaults;
    bool explicit_caller, wants_caller, wants_kwargs, wants_varargs;
    uint16_t caller, kwargs, varargs; /* slots */
    struct scope scope;
    struct frame_code frame;
};

struct node {
    uint8_t kind, op;
    uint16_t height; /* of the tree below, bounded by JINJA_MAX_HEIGHT */
    int line;
    struct node *next; /* in the list it stands in */
    struct node *a, *b, *c, *d;
    struct node *args, *kwargs, *body, *other;
    const struct str *name;
    value val;
    struct ref ref;
    const struct builtin *fn; /* X_FILTER, X_TEST; NULL: unknown */
    struct macro_code *macro;
    struct scope scope, other_scope, test_scope; /* of body, other, c */
    struct frame_code *frame, *test_frame;       /* FOR_RECURSIVE and S_BLOCK; c of S_FOR */
    uint16_t loop_slot, super_slot;              /* FOR_EXTENDED (S_BLOCK: self); S_BLOCK */
};

struct jinja {
    arena arena;
    struct name_table *names;
    struct node *body;
    struct node **blocks;
    size_t n_blocks;
    uint16_t self_slot;
    bool wants_self; /* the variable `self` is used */
    struct scope scope;
    struct frame_code frame;
};

/* ---- front end ------------------------------------------------------------------------------ */

enum token_kind {
    T_EOF,
    T_DATA,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_NAME,
    T_STRING,
    T_NUMBER,
    T_OPERATOR
};
struct token {
    enum token_kind kind;
    int line;
    int op;           /* T_OPERATOR: the character, or two as first | second << 8 */
    const char *data; /* as written; T_DATA: what is left of it */
    size_t len;
    value val; /* T_STRING, T_NUMBER */
};
/* All tokens of a template, T_EOF last. */
struct token *lex(struct trap *t, const char *source, size_t len);
/* Is text[0..len) whitespace (as Python's \s and strip understand it) at its start; its length. */
int space_at(const char *text, size_t len);

struct name_table {
    const struct str *names[JINJA_MAX_NAMES];
    size_t n;
};
struct parser {
    struct trap *trap;
    const struct token *at;
    const char *const *ends; /* words that end the current body, for errors */
    struct name_table *names;
    int depth, for_depth;
};
/* Equal names get equal pointers. */
const struct str *name_intern(struct trap *t, struct name_table *names, const char *data,
                              size_t len);
void template_parse(struct trap *t, jinja *j, const char *source, size_t len);
struct node *parse_expr(struct parser *p);
struct node *parse_expr_no_cond(struct parser *p);
/* terminator: a name that ends the tuple, or NULL. */
enum tuple_flags { TUPLE_NO_COND = 1, TUPLE_PAREN = 2, TUPLE_TARGET = 4, TUPLE_NAMESPACE = 8 };
struct node *parse_tuple(struct parser *p, unsigned flags, const char *terminator);
struct node *parse_filters(struct parser *p, struct node *operand, bool inline_first);
struct node *node_new(struct parser *p, enum node_kind kind, int line);
void node_grow(struct parser *p, struct node *n, const struct node *child); /* heights */
void parse_enter(struct parser *p);                                         /* depth of recursion */
static inline void parse_leave(struct parser *p) {
    p->depth--;
}
bool token_is(const struct token *t, const char *word); /* a name or an operator */
bool token_skip(struct parser *p, const char *word);
void token_expect(struct parser *p, const char *word);
const struct token *token_expect_name(struct parser *p);
_Noreturn void parse_fail(struct parser *p, const char *format, ...) PRINTF_LIKE(2, 3);
const char *token_text(const struct token *t, char *out, size_t cap); /* for errors */
/* Resolves every name; fails where Jinja's compiler would. */
void scope_resolve(struct trap *t, jinja *j);

/* ---- the running template ------------------------------------------------------------------- */

struct act { /* an activation: the variables of one call of a function */
    struct act *up;
    struct act *next_free;
    uint16_t n_slots;
    value slots[];
};

struct context {          /* where names are looked up that no scope knows */
    struct dict *exports; /* set at top level */
    struct dict *vars;    /* globals and what the caller gave */
};

enum { ACT_CLASSES = 32 };
struct render {
    struct trap trap; /* first */
    arena arena;
    const jinja *j;
    const char *vars_json, *trusted_json;
    struct json_object *json; /* held while it is converted */
    int64_t now;
    jinja_opts limits;
    size_t steps;
    int depth;
    struct act *act;
    struct context *context;
    struct act *free_acts[ACT_CLASSES]; /* by number of slots */
    buf text, origin;                   /* the output, and above it every capture that is open */
    size_t output;                      /* bytes of text that are no capture's */
};

struct kwarg {
    const struct str *name;
    value val;
};
struct call { /* arguments of one call */
    value *pos;
    size_t n_pos, cap_pos;
    struct kwarg *kw;
    size_t n_kw, cap_kw;
    value pos_buf[6];
    struct kwarg kw_buf[4];
};

/* A builtin function, filter, test or method. params: names in order, separated by spaces; those
 * after a '?' may be missing; after a '/' they have no names for callers; '*' last: what is left
 * over stays in the call. v[0] of filters, tests and methods is the value they act on, which params
 * does not name; v[1] is the first of params. */
struct builtin {
    const char *name;
    value (*fn)(struct render *r, value *v, struct call *rest);
    const char *params;
};

_Noreturn void fail(struct render *r, const char *format, ...) PRINTF_LIKE(2, 3);
_Noreturn void fail_limit(struct render *r, const char *what);
/* An operation on an undefined value: says which. */
_Noreturn void fail_undefined(struct render *r, value v);
void charge(struct render *r, size_t steps);
void enter(struct render *r); /* depth of recursion */
static inline void leave(struct render *r) {
    r->depth--;
}
void *render_alloc(struct render *r, size_t size);

/* ---- values: making them -------------------------------------------------------------------- */

static inline value val_none(void) {
    return (value){.kind = V_NONE, .origin = TEXT_TEMPLATE};
}
static inline value val_missing(void) {
    return (value){.kind = V_MISSING};
}
static inline value val_bool(bool b) {
    return (value){.kind = V_BOOL, .origin = TEXT_TEMPLATE, .b = b};
}
static inline value val_int(int64_t i) {
    return (value){.kind = V_INT, .origin = TEXT_TEMPLATE, .i = i};
}
static inline value val_float(double f) {
    return (value){.kind = V_FLOAT, .origin = TEXT_TEMPLATE, .f = f};
}
static inline value val_str(const struct str *s) {
    return (value){.kind = V_STR, .s = s};
}
static inline bool is_number(value v) {
    return v.kind >= V_BOOL && v.kind <= V_FLOAT;
}
static inline bool is_integer(value v) {
    return v.kind == V_BOOL || v.kind == V_INT;
}
static inline int64_t int_of(value v) {
    return v.kind == V_BOOL ? v.b : v.i;
}
static inline double float_of(value v) {
    return v.kind == V_FLOAT ? v.f : (double)int_of(v);
}
static inline bool given(value v) {
    return v.kind != V_MISSING;
}
/* v, printing as text of less trust than its own when `from` does. */
static inline value taint(value v, value from) {
    v.origin = MIN(v.origin, from.origin);
    return v;
}
value val_undefined(struct render *r, const char *why);
value val_undefined_name(const struct str *name);
value val_undefined_attr(value owner, const struct str *name, enum undefined_why why);
const char *kind_name(value v); /* Python's name of its type */

/* ---- strings (jinja_string.c) --------------------------------------------------------------- */

/* Over bytes that outlive it. */
const struct str *str_new(struct trap *t, const char *data, size_t len, enum text_origin origin);
const struct str *str_copy(struct trap *t, const char *data, size_t len, enum text_origin origin);
value str_literal(struct render *r, const char *text); /* of the template's trust */
const struct str *str_part(struct render *r, const struct str *s, size_t from, size_t to);
value str_plus(struct render *r, const struct str *a, const struct str *b);
value str_times(struct render *r, const struct str *s, int64_t n);
const struct str *str_as_markup(struct render *r, const struct str *s, bool markup);
bool str_equal(const struct str *a, const struct str *b);
bool str_is(const struct str *s, const char *text);
int str_compare(const struct str *a, const struct str *b); /* by code point */
enum text_origin str_origin(const struct str *s);          /* the least trusted */
size_t str_chars(struct render *r, const struct str *s);
size_t str_offset(const struct str *s, size_t chars); /* bytes of so many characters */
/* First (last) occurrence at or after `from` (ending at or before `to`), as offsets in bytes;
 * SIZE_MAX: none. */
size_t str_find(struct render *r, const struct str *s, size_t from, size_t to,
                const struct str *what);
size_t str_rfind(struct render *r, const struct str *s, size_t from, size_t to,
                 const struct str *what);
enum case_change { CASE_UPPER, CASE_LOWER, CASE_SWAP, CASE_TITLE, CASE_CAPITALIZE, CASE_FOLD };
value str_case(struct render *r, const struct str *s, enum case_change how);
enum strip_side { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };
const struct str *str_strip(struct render *r, const struct str *s, const struct str *chars,
                            enum strip_side side);
value str_replace(struct render *r, const struct str *s, const struct str *old,
                  const struct str *with, int64_t count);
value str_escape(struct render *r, const struct str *s); /* &, <, >, ", ': Markup */
value str_pad(struct render *r, const struct str *s, int64_t width, const struct str *fill,
              enum strip_side side);                                 /* the side where fill goes */
value split_lines(struct render *r, const struct str *s, bool keep); /* str.splitlines */
/* str(v); a string is itself. */
const struct str *to_str(struct render *r, value v);
/* Classes of characters as Python's str knows them (jinja_case.c). */
bool char_printable(int32_t cp);
bool char_alpha(int32_t cp);
bool char_alnum(int32_t cp);
enum char_test {
    IS_ALNUM,
    IS_ALPHA,
    IS_ASCII,
    IS_DECIMAL,
    IS_DIGIT,
    IS_LOWER,
    IS_NUMERIC,
    IS_PRINTABLE,
    IS_SPACE,
    IS_TITLE,
    IS_UPPER
};
bool str_test(struct render *r, const struct str *s, enum char_test test);

/* The output is also where text is built: capture, put, take. */
size_t out_begin(struct render *r);
value out_end(struct render *r, size_t mark);
void out_drop(struct render *r, size_t mark);
void out_put(struct render *r, const char *data, size_t len, enum text_origin origin);
void out_puts(struct render *r, const char *text, enum text_origin origin);
void out_str(struct render *r, const struct str *s);
void out_part(struct render *r, const struct str *s, size_t from, size_t to);
void out_char(struct render *r, int32_t cp, enum text_origin origin);
void out_fill(struct render *r, const struct str *s, size_t times);

/* ---- containers (jinja_value.c) ------------------------------------------------------------- */

value list_new(struct render *r, size_t n, enum kind kind); /* items to be filled in */
value list_of(struct render *r, const value *items, size_t n, enum kind kind);
value pair_of(struct render *r, value a, value b);
value list_part(struct render *r, value list, size_t from, size_t to);
value list_plus(struct render *r, value a, value b);
void list_push(struct render *r, struct list *l, value v); /* while it is being built */
struct list *list_start(struct render *r);
value list_done(struct list *l);

struct dict *dict_new(struct render *r, size_t expected);
bool dict_get(struct render *r, struct dict *d, value key, value *out);
bool dict_get_name(struct render *r, struct dict *d, const struct str *name, value *out);
void dict_put(struct render *r, struct dict *d, value key, value v);
value val_dict(struct dict *d);

bool truth(struct render *r, value v);
bool equal(struct render *r, value a, value b);
bool less(struct render *r, value a, value b, enum op op); /* op: OP_LT … OP_GE; may fail */
bool contains(struct render *r, value container, value item);
bool is_hashable(struct render *r, value v);
uint64_t hash_of(struct render *r, value v); /* fails for what cannot be a key */
size_t length_of(struct render *r, value v); /* len(); fails */
bool has_length(value v);

/* ---- numbers (jinja_number.c) --------------------------------------------------------------- */

value arith(struct render *r, enum op op, value a, value b);
value negate(struct render *r, value v);
value positive(struct render *r, value v);
int compare_numbers(value a, value b, bool *unordered);
void print_float(double f, char out[40]); /* Python's repr */
bool parse_int(const struct str *s, int base, int64_t *out, bool *too_big);
bool parse_float(const struct str *s, double *out);
int64_t need_int(struct render *r, value v, const char *what); /* an index or count; fails */
double round_half_even(struct render *r, double x, int64_t digits);

/* ---- iteration (jinja_iter.c) --------------------------------------------------------------- */

struct iter *iter_of(struct render *r, value v); /* iter(); fails */
struct iter *iter_new(struct render *r,
                      bool (*next)(struct render *r, struct iter *it, value *out));
bool iter_next(struct render *r, struct iter *it, value *out);
struct iter *iter_reversed(struct render *r, value v); /* NULL: cannot be */
bool is_iterable(value v);
value val_iter(struct iter *it);
value to_list(struct render *r, value v); /* list(v); a list is itself */
/* list in the order of its keys, stable; reverse turns the order, not equal items. */
value sort_values(struct render *r, value list, value keys, bool reverse);
value range_item(const struct range *range, int64_t i);

/* ---- printing (jinja_print.c, jinja_format.c) ----------------------------------------------- */

void print_value(struct render *r, value v); /* str(v) to the output */
void print_repr(struct render *r, value v);
struct json_style {
    const struct str *indent; /* NULL: one line */
    const struct str *item_sep, *key_sep;
    bool ascii, sort_keys;
};
void print_json(struct render *r, value v, const struct json_style *style);
value format_percent(struct render *r, const struct str *format, value args);
value format_braces(struct render *r, const struct str *format, struct call *args);

/* ---- evaluation ----------------------------------------------------------------------------- */

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
enum flow exec(struct render *r, const struct node *list);
void render_body(struct render *r);
value eval(struct render *r, const struct node *n);
void assign(struct render *r, const struct node *target, value v);
void scope_enter(struct render *r, const struct scope *s);
void scope_leave(struct render *r, const struct scope *s);
value context_get(struct render *r, const struct str *name); /* V_MISSING: nowhere */
struct act *act_push(struct render *r, const struct frame_code *frame, struct act *up);
void act_pop(struct render *r, const struct frame_code *frame, struct act *act);
value loop_recurse(struct render *r, struct loop *loop, value items);
value block_render(struct render *r, const struct node *block, struct context *context);

void call_init(struct call *c);
void call_push(struct render *r, struct call *c, value v);
void call_push_kw(struct render *r, struct call *c, const struct str *name, value v);
void call_eval(struct render *r, const struct node *n, struct call *c);
value call_value(struct render *r, value callee, struct call *c);
/* Binds arguments to parameters; v[0] is self when there is one. */
value call_builtin(struct render *r, const struct builtin *b, value self, struct call *c);
value macro_call(struct render *r, struct macro *m, struct call *c);
/* What Python's getattr finds, by the sandbox's rules; false: nothing. */
bool find_attr(struct render *r, value v, const struct str *name, value *out);
value get_attr(struct render *r, value v, const struct str *name); /* v.name */
value get_item(struct render *r, value v, value key);              /* v[key] */
value get_slice(struct render *r, value v, value from, value to, value step);
/* "a.b.0", as attribute= of filters has it; missing: what stands for undefined parts, if given. */
value get_path(struct render *r, value v, value path, value missing);
bool is_callable(value v);

const struct builtin *filter_find(const struct str *name);
const struct builtin *test_find(const struct str *name);
const struct builtin *method_find(value v, const struct str *name, bool *unsafe);
bool loop_attr(struct render *r, struct loop *loop, const struct str *name, value *out);
void globals_add(struct render *r, struct dict *vars);
extern const struct builtin text_filters[], sequence_filters[]; /* end with a NULL name */
value unsupported(struct render *r, value *v, struct call *rest);

#endif
