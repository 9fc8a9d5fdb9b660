/* Statements: what stands in {% %}, and the text and expressions between. */
#include "jinja_internal.h"

#include <stdio.h>

static struct node *parse_body(struct parser *p, const char *const *ends);

/* ---- names ---------------------------------------------------------------------------------- */

const struct str *name_intern(struct trap *t, struct name_table *names, const char *data,
                              size_t len) {
    for (size_t i = 0; i < names->n; i++)
        if (names->names[i]->len == len && memcmp(names->names[i]->data, data, len) == 0)
            return names->names[i];
    if (names->n == JINJA_MAX_NAMES)
        trap_fail(t, ICP_ELIMIT, "the template uses more than %d names", JINJA_MAX_NAMES);
    return names->names[names->n++] = str_copy(t, data, len, TEXT_TEMPLATE);
}

static const struct str *expect_name(struct parser *p) {
    const struct token *t = token_expect_name(p);
    return name_intern(p->trap, p->names, t->data, t->len);
}

/* ---- targets of assignments ----------------------------------------------------------------- */

static void check_target(struct parser *p, const struct node *n) {
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    switch (n->kind) {
    case X_NSREF:
        return;
    case X_NAME:
        for (size_t i = 0; i < COUNT_OF(constants); i++)
            if (str_is(n->name, constants[i])) parse_fail(p, "cannot assign to a constant");
        if (p->for_depth && str_is(n->name, "loop"))
            parse_fail(p, "cannot assign to the special variable loop inside a for loop");
        return;
    case X_TUPLE:
        for (const struct node *i = n->args; i; i = i->next) check_target(p, i);
        return;
    default:
        parse_fail(p, "cannot assign to this expression");
    }
}

static struct node *parse_target(struct parser *p, unsigned flags, const char *terminator) {
    struct node *n = parse_tuple(p, TUPLE_TARGET | flags, terminator);
    check_target(p, n);
    return n;
}

static struct node *parse_target_name(struct parser *p) {
    struct node *n = node_new(p, X_NAME, p->at->line);
    n->name = expect_name(p);
    check_target(p, n);
    return n;
}

/* ---- bodies --------------------------------------------------------------------------------- */

static void expect_block_end(struct parser *p) {
    char got[60];
    if (p->at->kind != T_BLOCK_END)
        parse_fail(p, "expected the end of the statement, got %s",
                   token_text(p->at, got, sizeof got));
    p->at++;
}

/* The body of a statement; ends at one of `ends`, which is taken, and returned in *end. */
static struct node *parse_block(struct parser *p, const char *const *ends, const char **end) {
    token_skip(p, ":");
    expect_block_end(p);
    struct node *body = parse_body(p, ends);
    for (size_t i = 0; ends[i]; i++)
        if (token_skip(p, ends[i])) {
            if (end) *end = ends[i];
            return body;
        }
    parse_fail(p, "the template ends inside a block that needs '%s'", ends[0]);
}

static struct node *parse_until(struct parser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    return parse_block(p, ends, NULL);
}

static void grow_all(struct parser *p, struct node *n, const struct node *list) {
    for (; list; list = list->next) node_grow(p, n, list);
}

static void set_body(struct parser *p, struct node *n, struct node *body) {
    n->body = body;
    grow_all(p, n, body);
}

/* ---- statements ----------------------------------------------------------------------------- */

static struct node *clone_target(struct parser *p, const struct node *n) {
    struct node *copy = node_new(p, n->kind, n->line);
    copy->name = n->name;
    struct node **tail = &copy->args;
    for (const struct node *i = n->args; i; i = i->next) {
        *tail = clone_target(p, i);
        tail = &(*tail)->next;
    }
    return copy;
}

static struct node *parse_for(struct parser *p, int line) {
    static const char *const ends[] = {"endfor", "else", NULL};
    const char *end;
    struct node *n = node_new(p, S_FOR, line);
    p->for_depth++;
    n->a = parse_target(p, 0, "in");
    token_expect(p, "in");
    n->b = parse_tuple(p, TUPLE_NO_COND, "recursive");
    if (token_skip(p, "if")) {
        n->c = parse_expr(p);
        n->d = clone_target(p, n->a);
        node_grow(p, n, n->c);
    }
    if (token_skip(p, "recursive")) n->op |= FOR_RECURSIVE;
    node_grow(p, n, n->a);
    node_grow(p, n, n->b);
    set_body(p, n, parse_block(p, ends, &end));
    if (end == ends[1]) n->other = parse_until(p, "endfor");
    grow_all(p, n, n->other);
    p->for_depth--;
    return n;
}

static struct node *parse_if(struct parser *p, int line) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    const char *end;
    struct node *first = node_new(p, S_IF, line), *n = first, **tail = &first->args;
    for (;;) {
        n->a = parse_tuple(p, TUPLE_NO_COND, NULL);
        node_grow(p, n, n->a);
        set_body(p, n, parse_block(p, ends, &end));
        if (n != first) node_grow(p, first, n);
        if (end != ends[0]) break;
        n = node_new(p, S_IF, p->at->line);
        *tail = n;
        tail = &n->next;
    }
    if (end == ends[1]) first->other = parse_until(p, "endif");
    grow_all(p, first, first->other);
    return first;
}

static struct node *parse_set(struct parser *p, int line) {
    struct node *n = node_new(p, S_SET, line);
    n->a = parse_target(p, TUPLE_NAMESPACE, NULL);
    node_grow(p, n, n->a);
    if (token_skip(p, "=")) {
        n->b = parse_tuple(p, 0, NULL);
        node_grow(p, n, n->b);
        return n;
    }
    n->kind = S_SETBLOCK;
    n->b = parse_filters(p, NULL, false);
    node_grow(p, n, n->b);
    set_body(p, n, parse_until(p, "endset"));
    return n;
}

static void parse_signature(struct parser *p, struct node *n) {
    struct macro_code *m = n->macro;
    struct node **params = &m->params, **defaults = &m->defaults;
    token_expect(p, "(");
    for (; !token_is(p->at, ")"); m->n_params++) {
        if (m->n_params) token_expect(p, ",");
        int for_depth = p->for_depth;
        p->for_depth = 0; /* a parameter may be called loop */
        struct node *param = parse_target_name(p);
        p->for_depth = for_depth;
        for (const struct node *i = m->params; i; i = i->next)
            if (i->name == param->name) parse_fail(p, "a parameter is repeated");
        if (token_skip(p, "=")) {
            *defaults = parse_expr(p);
            node_grow(p, n, *defaults);
            defaults = &(*defaults)->next;
            m->n_defaults++;
        } else if (m->n_defaults) {
            parse_fail(p, "a parameter without default follows one with");
        }
        *params = param;
        params = &param->next;
    }
    token_expect(p, ")");
}

static struct node *macro_new(struct parser *p, enum node_kind kind, int line) {
    struct node *n = node_new(p, kind, line);
    n->macro = trap_zero(p->trap, sizeof *n->macro);
    return n;
}

static void macro_body(struct parser *p, struct node *n, const char *end) {
    n->macro->body = parse_until(p, end);
    grow_all(p, n, n->macro->body);
}

static struct node *parse_macro(struct parser *p, int line) {
    struct node *n = macro_new(p, S_MACRO, line);
    n->name = n->macro->name = parse_target_name(p)->name;
    parse_signature(p, n);
    macro_body(p, n, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p, int line) {
    struct node *n = macro_new(p, S_CALL, line);
    if (token_is(p->at, "(")) parse_signature(p, n);
    n->a = parse_expr(p);
    if (n->a->kind != X_CALL) parse_fail(p, "expected a call");
    node_grow(p, n, n->a);
    macro_body(p, n, "endcall");
    return n;
}

static struct node *parse_generation(struct parser *p, int line) {
    struct node *n = macro_new(p, S_GENERATION, line);
    macro_body(p, n, "endgeneration");
    return n;
}

static struct node *parse_filter_block(struct parser *p, int line) {
    struct node *n = node_new(p, S_FILTER, line);
    n->b = parse_filters(p, NULL, true);
    node_grow(p, n, n->b);
    set_body(p, n, parse_until(p, "endfilter"));
    return n;
}

static struct node *parse_with(struct parser *p, int line) {
    struct node *n = node_new(p, S_WITH, line), **targets = &n->args, **values = &n->kwargs;
    while (p->at->kind != T_BLOCK_END) {
        if (n->args) token_expect(p, ",");
        *targets = parse_target(p, 0, NULL);
        node_grow(p, n, *targets);
        targets = &(*targets)->next;
        token_expect(p, "=");
        *values = parse_expr(p);
        node_grow(p, n, *values);
        values = &(*values)->next;
    }
    set_body(p, n, parse_until(p, "endwith"));
    return n;
}

static struct node *parse_autoescape(struct parser *p, int line) {
    struct node *n = node_new(p, S_SCOPE, line);
    n->a = parse_expr(p);
    node_grow(p, n, n->a);
    set_body(p, n, parse_until(p, "endautoescape"));
    return n;
}

static bool is_blank(const struct str *s) {
    size_t at = 0;
    for (int n; (n = space_at(s->data + at, s->len - at)) > 0;) at += (size_t)n;
    return at == s->len;
}

static struct node *parse_block_statement(struct parser *p, int line) {
    struct node *n = node_new(p, S_BLOCK, line);
    n->name = expect_name(p);
    if (token_skip(p, "scoped")) n->op |= BLOCK_SCOPED;
    if (token_skip(p, "required")) n->op |= BLOCK_REQUIRED;
    set_body(p, n, parse_until(p, "endblock"));
    for (const struct node *i = n->body; i && n->op & BLOCK_REQUIRED; i = i->next)
        if (i->kind != S_TEXT || !is_blank(i->val.s))
            parse_fail(p, "a required block can only contain comments or whitespace");
    if (p->at->kind == T_NAME && p->at->len == n->name->len &&
        memcmp(p->at->data, n->name->data, p->at->len) == 0)
        p->at++;
    return n;
}

static struct node *parse_print(struct parser *p, int line) {
    struct node *first = NULL, **tail = &first;
    while (p->at->kind != T_BLOCK_END) {
        if (first) token_expect(p, ",");
        *tail = node_new(p, S_PRINT, line);
        (*tail)->a = parse_expr(p);
        node_grow(p, *tail, (*tail)->a);
        tail = &(*tail)->next;
    }
    return first;
}

/* ---- other templates, of which there are none ----------------------------------------------- */

static bool skip_context(struct parser *p) {
    bool found =
        (token_is(p->at, "with") || token_is(p->at, "without")) && token_is(p->at + 1, "context");
    if (found) p->at += 2;
    return found;
}

static void parse_imported_names(struct parser *p, struct node *n) {
    struct node **tail = &n->args;
    token_expect(p, "import");
    for (;;) {
        if (n->args) token_expect(p, ",");
        if (skip_context(p)) return;
        *tail = parse_target_name(p);
        if ((*tail)->name->data[0] == '_') parse_fail(p, "names with '_' cannot be imported");
        if (token_skip(p, "as")) *tail = parse_target_name(p);
        tail = &(*tail)->next;
        if (skip_context(p) || !token_is(p->at, ",")) return;
    }
}

static struct node *parse_loader(struct parser *p, int line) {
    const struct token *word = p->at - 1;
    struct node *n = node_new(p, S_LOADER, line);
    n->a = parse_expr(p);
    node_grow(p, n, n->a);
    if (token_is(word, "include")) {
        if (token_is(p->at, "ignore") && token_is(p->at + 1, "missing")) p->at += 2;
        skip_context(p);
    } else if (token_is(word, "import")) {
        token_expect(p, "as");
        n->args = parse_target_name(p);
        skip_context(p);
    } else if (token_is(word, "from")) {
        parse_imported_names(p, n);
    }
    return n;
}

static struct node *parse_jump(struct parser *p, int line) {
    return node_new(p, token_is(p->at - 1, "break") ? S_BREAK : S_CONTINUE, line);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static struct node *parse_statement(struct parser *p) {
    static const struct {
        const char *word;
        struct node *(*parse)(struct parser *p, int line);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"generation", parse_generation},
        {"break", parse_jump},
        {"continue", parse_jump},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"print", parse_print},
        {"block", parse_block_statement},
        {"autoescape", parse_autoescape},
        {"include", parse_loader},
        {"import", parse_loader},
        {"from", parse_loader},
        {"extends", parse_loader},
    };
    char got[60];
    const struct token *t = p->at;
    for (size_t i = 0; t->kind == T_NAME && i < COUNT_OF(statements); i++)
        if (token_is(t, statements[i].word)) {
            p->at++;
            return statements[i].parse(p, t->line);
        }
    if (p->ends)
        parse_fail(p, "unknown statement %s; the open block needs '%s'",
                   token_text(t, got, sizeof got), p->ends[0]);
    parse_fail(p, "unknown statement %s", token_text(t, got, sizeof got));
}

static bool at_end(const struct parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (p->at->kind == T_NAME && token_is(p->at, *ends)) return true;
    return false;
}

static struct node *parse_output(struct parser *p) {
    char got[60];
    struct node *n = node_new(p, S_PRINT, p->at++->line);
    n->a = parse_tuple(p, 0, NULL);
    node_grow(p, n, n->a);
    if (p->at->kind != T_VARIABLE_END)
        parse_fail(p, "expected '}}', got %s", token_text(p->at, got, sizeof got));
    p->at++;
    return n;
}

/* Up to one of `ends` after a {%, or the end of the template. */
static struct node *parse_body(struct parser *p, const char *const *ends) {
    const char *const *outer = p->ends;
    struct node *first = NULL, **tail = &first;
    parse_enter(p);
    p->ends = ends;
    while (p->at->kind != T_EOF) {
        if (p->at->kind == T_DATA) {
            *tail = node_new(p, S_TEXT, p->at->line);
            (*tail)->val = val_str(str_new(p->trap, p->at->data, p->at->len, TEXT_TEMPLATE));
            p->at++;
        } else if (p->at->kind == T_VARIABLE_BEGIN) {
            *tail = parse_output(p);
        } else {
            p->at++;
            if (at_end(p, ends)) break;
            *tail = parse_statement(p);
            expect_block_end(p);
        }
        while (*tail) tail = &(*tail)->next;
    }
    p->ends = outer;
    parse_leave(p);
    return first;
}

void template_parse(struct trap *t, jinja *j, const char *source, size_t len) {
    struct parser p = {.trap = t, .at = lex(t, source, len)};
    p.names = j->names = trap_zero(t, sizeof *p.names);
    t->line = 0;
    j->body = parse_body(&p, NULL);
    t->line = 0;
}
