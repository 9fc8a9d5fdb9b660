/* Free text up to the first of some marks, as the automaton of Aho and Corasick (1975) with a rule
 * for each state. With the mark "<ab":
 *
 *   0  ::= [^<]* ( "<" 1 | "" )         nothing of a mark stands open
 *   1  ::= "a" 2 | "<" 1 | [^a<] 0 | ""
 *   2  ::= "b" THEN | "<" 1 | [^b<] 0 | ""
 *
 * Symbols are characters and special tokens. All calls are tail calls, so a text needs no stack. */
#include "grammar_internal.h"

#include <string.h>

enum { MOST_STATES = 1024, NO_STATE = 0 }; /* state 0 is nobody's child */

typedef struct state {
    int32_t symbol; /* that leads here: a code point, or TOKEN + the place of its text */
    uint32_t child, sibling, fail, rule;
    ir_node then; /* a mark ends here; IR_NEVER: none does */
    bool final;
} state;

enum { TOKEN = 0x200000 };

typedef struct search {
    ir *g;
    const free_text *text;
    const char *names[MOST_STATES]; /* of tokens in marks: where they begin */
    size_t n_names, n;
    state states[MOST_STATES];
} search;

/* ---- symbols --------------------------------------------------------------------------------- */

static size_t token_length(const char *at) {
    const char *end = strchr(at, GRAMMAR_TOKEN_END[0]);
    return end ? (size_t)(end + 1 - at) : strlen(at);
}

static bool is_token(const char *at) {
    return *at == GRAMMAR_TOKEN[0];
}

static int32_t token_symbol(search *s, const char *at) {
    size_t len = token_length(at);
    for (size_t i = 0; i < s->n_names; i++)
        if (token_length(s->names[i]) == len && !memcmp(s->names[i], at, len))
            return TOKEN + (int32_t)i;
    s->names[s->n_names] = at; /* at most one for each state */
    return TOKEN + (int32_t)s->n_names++;
}

static int32_t next_symbol(search *s, const char **at) {
    int32_t symbol;
    if (is_token(*at)) {
        symbol = token_symbol(s, *at);
        *at += token_length(*at);
    } else {
        *at += utf8_decode(*at, strlen(*at), &symbol);
    }
    return symbol;
}

static ir_node symbol_node(search *s, int32_t symbol) {
    if (symbol < TOKEN) return ir_class(s->g, &(ir_range){symbol, symbol}, 1, false);
    const char *name = s->names[symbol - TOKEN];
    return ir_text(s->g, name, token_length(name));
}

/* ---- states ---------------------------------------------------------------------------------- */

static uint32_t find_child(const search *s, uint32_t at, int32_t symbol) {
    uint32_t child = s->states[at].child;
    while (child != NO_STATE && s->states[child].symbol != symbol) child = s->states[child].sibling;
    return child;
}

static void add_mark(search *s, const mark *m) {
    uint32_t at = 0;
    for (const char *p = m->text; *p;) {
        int32_t symbol = next_symbol(s, &p);
        uint32_t child = find_child(s, at, symbol);
        if (child == NO_STATE && s->n == MOST_STATES) {
            ir_fail(s->g, ICP_ELIMIT, "the marks are too long");
            return;
        }
        if (child == NO_STATE) {
            child = (uint32_t)s->n++;
            s->states[child] = (state){.symbol = symbol, .sibling = s->states[at].child};
            s->states[at].child = child;
        }
        at = child;
    }
    s->states[at].then = m->then;
    s->states[at].final = true;
}

/* The state for the longest end of what leads to `at` and on by a symbol. */
static uint32_t step(const search *s, uint32_t at, int32_t symbol) {
    for (;; at = s->states[at].fail) {
        uint32_t child = find_child(s, at, symbol);
        if (child != NO_STATE || at == 0) return child;
    }
}

/* Breadth first, so that shorter ends are known. */
static void find_fails(search *s) {
    uint32_t queue[MOST_STATES];
    size_t n = 0;
    queue[n++] = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t at = queue[i];
        for (uint32_t c = s->states[at].child; c != NO_STATE; c = s->states[c].sibling) {
            state *child = &s->states[c];
            child->fail = at ? step(s, s->states[at].fail, child->symbol) : 0;
            if (!child->final && s->states[child->fail].final) {
                child->final = true;
                child->then = s->states[child->fail].then;
            }
            queue[n++] = c;
        }
    }
}

/* ---- rules ----------------------------------------------------------------------------------- */

typedef struct branches { /* of a state */
    node_list list;
    ir_range known[MOST_STATES + 8]; /* characters that do not lead to state 0 */
    size_t n_known;
} branches;

static ir_node lead_to(search *s, uint32_t to) {
    return s->states[to].final ? s->states[to].then : ir_call(s->g, s->states[to].rule);
}

static bool is_known(const search *s, const branches *b, const bool *tokens, int32_t symbol) {
    if (symbol >= TOKEN) return tokens[symbol - TOKEN];
    for (size_t i = 0; i < b->n_known; i++)
        if (b->known[i].lo == symbol) return true;
    return false;
}

/* Other special tokens lead back to the beginning. */
static void add_tokens(search *s, branches *b, const bool *known) {
    const free_text *t = s->text;
    node_list all = {0};
    for (size_t i = 0; i < t->n_tokens; i++) {
        buf name = {0};
        buf_puts(&name, GRAMMAR_TOKEN);
        buf_puts(&name, t->tokens[i]);
        buf_puts(&name, GRAMMAR_TOKEN_END);
        if (name.failed) ir_fail(s->g, ICP_ENOMEM, "out of memory");
        bool leads = false;
        for (size_t k = 0; k < s->n_names && !name.failed; k++)
            leads |= known[k] && token_length(s->names[k]) == name.len &&
                     !memcmp(s->names[k], name.data, name.len);
        if (!leads && !name.failed) node_list_add(s->g, &all, ir_text(s->g, name.data, name.len));
        buf_fini(&name);
    }
    if (t->tokens) node_list_add(s->g, &all, ir_text(s->g, GRAMMAR_OTHER, 1));
    node_list_add(s->g, &b->list,
                  ir_pair(s->g, ir_alt(s->g, all.node, all.n), ir_call(s->g, s->states[0].rule)));
    node_list_fini(&all);
}

/* All that leads on from a state but for the characters that lead to state 0. */
static void add_branches(search *s, uint32_t at, branches *b) {
    bool tokens[MOST_STATES] = {0};
    for (uint32_t from = at;; from = s->states[from].fail) {
        for (uint32_t c = s->states[from].child; c != NO_STATE; c = s->states[c].sibling) {
            int32_t symbol = s->states[c].symbol;
            if (is_known(s, b, tokens, symbol)) continue;
            if (symbol >= TOKEN)
                tokens[symbol - TOKEN] = true;
            else
                b->known[b->n_known++] = (ir_range){symbol, symbol};
            ir_node on = ir_pair(s->g, symbol_node(s, symbol), lead_to(s, c));
            node_list_add(s->g, &b->list, on);
        }
        if (from == 0) break;
    }
    add_tokens(s, b, tokens);
    if (s->text->may_end) node_list_add(s->g, &b->list, IR_EMPTY);
}

static ir_node make_state(search *s, uint32_t at) {
    ir *g = s->g;
    branches b = {0};
    add_branches(s, at, &b);
    ir_node other = ir_class(g, b.known, b.n_known, true);
    if (at != 0) node_list_add(g, &b.list, ir_pair(g, other, ir_call(g, s->states[0].rule)));
    ir_node made = ir_alt(g, b.list.node, b.list.n);
    node_list_fini(&b.list);
    return at ? made : ir_pair(g, ir_repeat(g, other, 0, UNBOUNDED), made);
}

/* Marks as states, whose rules are made but not defined. NULL with an error. */
static search *search_new(ir *g, const free_text *t) {
    search *s = mem_zero(1, sizeof *s);
    if (!s) {
        ir_fail(g, ICP_ENOMEM, "out of memory");
        return NULL;
    }
    s->g = g;
    s->text = t;
    s->n = 1;
    for (size_t i = 0; i < t->n_marks; i++) add_mark(s, &t->marks[i]);
    find_fails(s);
    s->states[0].rule = t->rule;
    return s;
}

/* State 0 before anything but blanks has come. */
static ir_node make_opened(search *s) {
    static const ir_range blanks[] = {{' ', ' '}, {'\n', '\n'}, {'\t', '\t'}, {'\r', '\r'}};
    ir *g = s->g;
    const free_text *t = s->text;
    branches b = {0};
    add_branches(s, 0, &b);
    node_list_add(g, &b.list, ir_pair(g, ir_text(g, &t->open, 1), t->opens));
    node_list_add(g, &b.list,
                  ir_pair(g, ir_class(g, blanks, COUNT_OF(blanks), false), ir_call(g, t->opened)));
    for (size_t i = 0; i < COUNT_OF(blanks); i++) b.known[b.n_known++] = blanks[i];
    b.known[b.n_known++] = (ir_range){t->open, t->open};
    ir_node other = ir_class(g, b.known, b.n_known, true);
    node_list_add(g, &b.list, ir_pair(g, other, ir_call(g, t->rule)));
    ir_node made = ir_alt(g, b.list.node, b.list.n);
    node_list_fini(&b.list);
    return made;
}

void free_text_define(ir *g, const free_text *t) {
    search *s = search_new(g, t);
    for (size_t i = 1; s && i < s->n; i++)
        if (!s->states[i].final) s->states[i].rule = ir_rule_new(g);
    for (uint32_t i = 0; s && i < s->n && g->rc == 0; i++)
        if (!s->states[i].final) ir_rule_define(g, s->states[i].rule, make_state(s, i));
    if (s && t->open && g->rc == 0) ir_rule_define(g, t->opened, make_opened(s));
    mem_free(s);
}

ir_node free_text_until(ir *g, const char *text) {
    const mark end = {text, IR_EMPTY};
    const free_text t = {.marks = &end, .n_marks = 1, .rule = ir_rule_new(g)};
    if (g->rc == 0) free_text_define(g, &t);
    return ir_call(g, t.rule);
}
