/* Inside grammar.
 *
 *   gbnf.c  regex.c  schema*.c ──▶ ir ──program_build──▶ program ──▶ automaton ──▶ matcher
 *   (parsers)                      rules as trees        code        states, lazily  + vocabulary
 *
 * Code points exist down to ir; from program on there are only bytes. Recursion in C is bounded by
 * MAX_NESTING everywhere, never by the length of a text or the number of rules. */
#ifndef GRAMMAR_INTERNAL_H
#define GRAMMAR_INTERNAL_H

#include <pthread.h>

#include "grammar.h"

enum {
    MAX_NESTING = 200, /* of groups in a source */
    MAX_CODE_POINT = 0x10ffff,
    DEFAULT_STEPS = 20000000, /* well below a second */
    DEFAULT_MEMORY = 256 << 20,
};
#define UNBOUNDED UINT32_MAX

/* Makes room for n items of `size` bytes at *(void **)array, whose capacity is *cap. */
bool array_reserve(void *array, size_t *cap, size_t n, size_t size);

/* ---- rules (ir.c) --------------------------------------------------------------------------- */

typedef uint32_t ir_node;
enum { IR_NEVER = 0, IR_EMPTY = 1 }; /* nodes that always exist */

enum ir_kind {
    IR_KIND_NEVER,  /* matches nothing at all */
    IR_KIND_EMPTY,  /* matches "" */
    IR_KIND_TEXT,   /* bytes: first, count in text */
    IR_KIND_CLASS,  /* one code point: first, count in ranges; sorted, disjoint, no surrogates */
    IR_KIND_SEQ,    /* first, count in kids */
    IR_KIND_ALT,    /* first, count in kids */
    IR_KIND_REPEAT, /* child, min, max */
    IR_KIND_SERIES, /* first, count in kids: what stands between two parts; then for each part it,
                     * and IR_EMPTY when it may be left out, else IR_NEVER */
    IR_KIND_RULE,   /* rule */
};

typedef struct ir_item {
    enum ir_kind kind;
    uint32_t first, count, max; /* REPEAT: child, min, max; RULE: rule, -, - */
} ir_item;

typedef struct ir_range {
    int32_t lo, hi;
} ir_range;

/* How strings are spelled: as in JSON, or raw, as they are. None contains the mark.
 *
 *   "…"                                                JSON
 *   <|"|>…<|"|>     open …       mark                  any raw string
 *   \n…\n</value>   open pad … pad mark                a restricted one, if it is padded */
typedef struct ir_spelling {
    bool raw;
    const char *mark; /* NULL: JSON that stands alone */
    const char *open, *pad;
    bool python; /* True, False and None may stand for JSON's words, and '…' for "…" */
    bool single; /* '…' it is */
} ir_spelling;

typedef struct ir_rule {
    ir_node node;
    bool defined;
} ir_rule;

/* Rules in the making. The first failure sticks in rc with its sentence in *err; afterwards every
 * function returns IR_NEVER, so that parsers look at rc only where they loop. */
typedef struct ir {
    ir_item *items;
    ir_node *kids;
    ir_range *ranges;
    ir_rule *rules;
    char *text;
    size_t n_items, n_kids, n_ranges, n_rules, n_text;
    size_t cap_items, cap_kids, cap_ranges, cap_rules, cap_text;
    size_t steps_left, memory_left;
    const atomic_bool *cancel;
    ir_spelling spelling;
    int rc;
    icp_error *err;
} ir;

int ir_init(ir *g, const grammar_limits *limits, icp_error *err);
void ir_fini(ir *g);
/* Notes a failure, unless there is one already. */
void ir_fail(ir *g, int code, const char *format, ...) PRINTF_LIKE(3, 4);
bool ir_tick(ir *g, size_t steps); /* false: something has failed, or the budget is used up */

ir_node ir_text(ir *g, const char *bytes, size_t len);
/* Any order, may overlap; surrogates are left out. */
ir_node ir_class(ir *g, const ir_range *ranges, size_t n, bool negated);
ir_node ir_seq(ir *g, const ir_node *nodes, size_t n);
ir_node ir_pair(ir *g, ir_node a, ir_node b);
ir_node ir_alt(ir *g, const ir_node *nodes, size_t n);
ir_node ir_either(ir *g, ir_node a, ir_node b);
ir_node ir_repeat(ir *g, ir_node node, uint32_t min, uint32_t max);
/* Some of n parts in order, at least one and all that are needed, with `between` between two. Each
 * part begins with a text. However many there are, a state of the automaton is as large as for one
 * of them. */
ir_node ir_series(ir *g, const ir_node *parts, const bool *needed, size_t n, ir_node between);
uint32_t ir_rule_new(ir *g); /* UINT32_MAX on failure */
void ir_rule_define(ir *g, uint32_t rule, ir_node node);
ir_node ir_call(ir *g, uint32_t rule);
/* What code points of a class, each in its one spelling inside a string, match: without the first
 * character of the mark. */
ir_node ir_string_class(ir *g, const ir_range *ranges, size_t n, bool negated);
/* The first character of the mark; -1: there is none, or it is a special token. */
int32_t ir_barred(const ir *g);
/* A string without what is around it; IR_NEVER: it contains the mark. */
ir_node ir_string_text(ir *g, const char *text, size_t len);
ir_node ir_text_without_mark(ir *g, const char *text, size_t len); /* the same of any text */

typedef struct node_list { /* zero-initialise; grows by node_list_add */
    ir_node *node;
    size_t n, cap;
} node_list;
void node_list_add(ir *g, node_list *list, ir_node node);
void node_list_fini(node_list *list);

/* ---- sources (gbnf.c, regex.c, schema.c) ---------------------------------------------------- */

typedef struct cursor { /* a place in a source */
    ir *g;
    const char *text;
    size_t len, at;
    int depth;
} cursor;
int cursor_peek(const cursor *c);             /* a byte; -1 at the end */
bool cursor_take(cursor *c, char wanted);     /* steps over it if it is there */
int32_t cursor_code_point(cursor *c);         /* -1: not UTF-8, or the end */
int32_t cursor_hex(cursor *c, int digits);    /* -1: not so many */
bool cursor_number(cursor *c, uint32_t *out); /* decimal; false: none, or too great */

ir_node gbnf_parse(ir *g, const char *text, size_t len); /* the root */
/* inside: as the inside of a string, found anywhere in it unless anchored (as JSON Schema's
 * "pattern"); else the whole text. */
ir_node regex_parse(ir *g, const char *text, size_t len, bool inside);
ir_node schema_parse(ir *g, const char *text, size_t len);
ir_node schema_any_object(ir *g);
ir_node calls_build(ir *g, const grammar_dialect *d, const grammar_call *calls, size_t n);
ir_node call_arguments(ir *g, const grammar_dialect *d, const grammar_call *call);

/* ---- free text (free_text.c) ---------------------------------------------------------------- */

typedef struct mark { /* of bytes, with special tokens as in grammar.h */
    const char *text;
    ir_node then;
} mark;
/* Text up to the first mark, then what follows that. */
typedef struct free_text {
    const mark *marks;
    size_t n_marks;
    const char *const *tokens; /* special tokens that may stand in it; and all others */
    size_t n_tokens;
    bool may_end;  /* before any mark */
    uint32_t rule; /* to be defined as such a text, so that marks can lead back to it */
    char open;     /* when a text begins with it, or with blanks and it, `opens` follows; 0: no */
    ir_node opens;
    uint32_t opened; /* the rule of a text that may begin so */
} free_text;
void free_text_define(ir *g, const free_text *t);
/* Ordinary text to the end of the first mark. */
ir_node free_text_until(ir *g, const char *mark);

/* ---- code (program.c) ----------------------------------------------------------------------- */

/* A counted or endless loop over single characters, as tokens see it: text of up to so many of
 * these characters can always be put there. */
typedef struct absorb {
    uint64_t ascii[2]; /* a set of code points below 128 */
    bool wide;         /* and all others */
} absorb;

enum op_kind {
    OP_END,    /* of a rule, or of one round of a REPEAT: return */
    OP_BYTE,   /* a byte of set a, then b */
    OP_FORK,   /* b places at edges[a] */
    OP_LOOP,   /* a round at a (which comes back here), or b */
    OP_CALL,   /* rule a, then b */
    OP_REPEAT, /* rounds at a, min to max of them, then b */
    OP_SERIES, /* series a, then b */
    OP_CHOICE, /* inside a series: b places at choices[a], as far as a part behind them may come */
    OP_PICK,   /* inside a series: part a is next, if it may come; it is at b */
};

typedef struct op {
    uint8_t kind;
    uint8_t absorb; /* LOOP, REPEAT: 1 + index, or 0 */
    uint32_t a, b, min, max;
} op;

/* Parts that may come one after the other: the texts that they begin with form a trie. */
typedef struct series {
    uint32_t first;   /* where the trie begins: the first part, */
    uint32_t between; /* and any later one, with what stands before it */
    uint32_t n;       /* parts */
    uint32_t needed;  /* numbers[needed + i]: the first part from i on that must come; n: none */
} series;

typedef struct choice { /* a branch of the trie; parts behind it: first, count in numbers, sorted */
    uint32_t place, first, count;
} choice;

enum { MAX_ABSORBS = 16, PROGRAM_NOWHERE = UINT32_MAX };

typedef struct byte_set {
    uint64_t bits[4];
} byte_set;

typedef struct program {
    op *ops; /* ops[0] is OP_END */
    uint32_t *edges;
    byte_set *sets;    /* of bytes while building, then of byte classes */
    uint32_t *rule_at; /* where a rule's code begins; PROGRAM_NOWHERE: it cannot match */
    series *series;
    choice *choices;
    uint32_t *numbers;
    size_t n_ops, n_edges, n_sets, n_rules, n_series, n_choices, n_numbers;
    size_t cap_ops, cap_edges, cap_sets, cap_series, cap_choices, cap_numbers;
    uint8_t class_of[256]; /* bytes that no set tells apart have one class */
    unsigned n_classes;
    absorb absorbs[MAX_ABSORBS];
    int n_absorbs;
    uint32_t start;
} program;

/* Turns rules into code that begins with root. Fails as ir does (g->rc). */
int program_build(ir *g, ir_node root, program *out);
void program_fini(program *p);
static inline bool byte_set_has(const byte_set *s, unsigned i) {
    return s->bits[i >> 6] >> (i & 63) & 1;
}

/* ---- vocabulary (vocab_trie.c) -------------------------------------------------------------- */

/* Tokens by their bytes, in depth-first order: the node after i is its first child if it has one,
 * else the next one that is not below i, which is also nodes[skip]. ids are in the same order:
 * those from nodes[i].first to nodes[i + 1].first end at node i, those to nodes[skip].first at it
 * or below. nodes[n] is there for that. */
typedef struct trie_node {
    uint32_t skip, first;
    uint16_t depth; /* 1 for the first byte */
    uint8_t byte;
} trie_node;

typedef struct trie {
    trie_node *nodes;
    size_t n;
    int32_t *ids;
} trie;

enum { N_SLICES = 32, LONGEST_TOKEN = 4096 };

/* What a vocabulary looks like to a loop over characters of a set. */
typedef struct absorbed {
    absorb set;
    uint64_t *slices; /* N_SLICES masks, the i-th of all tokens of at most i + 1 such characters */
    trie rest;        /* of the tokens that are in none of them */
    /* By node of the whole trie: what stands below it consists of so many of these characters at
     * most; UINT8_MAX: of others, too, or too many. */
    uint8_t *below;
    struct absorbed *next;
} absorbed;

struct grammar_vocab {
    atomic_int refs;
    size_t n, n_words;
    grammar_str *tokens;
    char *text;
    size_t n_fit; /* tokens that are not empty */
    trie all;
    size_t longest; /* bytes */
    pthread_mutex_t lock;
    absorbed *absorbed; /* only ever added to */
    int n_absorbed;
};
/* NULL: there are enough of them, or no memory: the whole trie does as well. */
const absorbed *vocab_absorb(grammar_vocab *v, const absorb *set);

/* ---- states (automaton.c) ------------------------------------------------------------------- */

/* See automaton.c. State 0 is dead: no text leads on from there. */
typedef struct automaton automaton;
enum { STATE_DEAD = 0 };

int automaton_new(const program *p, automaton **out); /* ICP_ENOMEM, ICP_ELIMIT */
void automaton_free(automaton **a);
uint32_t automaton_start(const automaton *a);
/* The state after one more byte of a class. */
int automaton_step(automaton *a, uint32_t state, unsigned byte_class, uint32_t *out);
bool automaton_accepts(const automaton *a, uint32_t state);
bool automaton_stops(const automaton *a, uint32_t state); /* no byte may follow */
/* Known successors, n_classes for each state: a state, or STATE_UNKNOWN. Moves with every step. */
#define STATE_UNKNOWN UINT32_MAX
const uint32_t *automaton_rows(const automaton *a);
/* The absorbing loop that stands open in a state: its index, and how many characters it takes
 * (UNBOUNDED); -1: none. */
int automaton_absorb(const automaton *a, uint32_t state, uint32_t *most);
/* The mask that was kept for a state: room for it when `make`, else NULL when there is none. */
uint64_t *automaton_mask(automaton *a, uint32_t state, size_t n_words, bool make);
size_t automaton_size(const automaton *a); /* bytes */
/* Forgets all but these states, and gives them new numbers. On failure nothing has changed. */
int automaton_collect(automaton *a, uint32_t **states, size_t n);

/* ---- grammars (grammar.c) ------------------------------------------------------------------- */

struct grammar {
    atomic_int refs;
    grammar_vocab *vocab;
    program program;
    const absorbed *absorbed[MAX_ABSORBS]; /* of the program's absorbs */

    pthread_mutex_t lock; /* of what follows */
    automaton *automaton;
    matcher *matchers; /* all that live */
};

struct matcher {
    grammar *grammar;
    uint32_t state; /* under the grammar's lock: collecting renumbers it */
    bool can_end, must_end;
    matcher *prev, *next;
};

#endif
