/* Expressions, loosest binding first:
 *
 *   cond  or  and  not  compare  math1 (+ -)  concat (~)  math2 (* / // %)  pow  unary  primary
 *
 * after a primary: .name [item] (call), and then |filter, is test. The order is Jinja's, where
 * ~ binds tighter than + and a sign tighter than a power. */
#include "jinja_internal.h"

#include <stdio.h>

enum {
    OP_2STAR = '*' | '*' << 8,
    OP_2SLASH = '/' | '/' << 8,
    OP_2EQ = '=' | '=' << 8,
    OP_NOT_EQ = '!' | '=' << 8,
    OP_GT_EQ = '>' | '=' << 8,
    OP_LT_EQ = '<' | '=' << 8
};

static struct node *parse_unary(struct parser *p, bool with_filters);

/* ---- tokens --------------------------------------------------------------------------------- */

static bool is_op(const struct token *t, int op) {
    return t->kind == T_OPERATOR && t->op == op;
}

bool token_is(const struct token *t, const char *word) {
    return (t->kind == T_NAME || t->kind == T_OPERATOR) && t->len == strlen(word) &&
           memcmp(t->data, word, t->len) == 0;
}

bool token_skip(struct parser *p, const char *word) {
    bool found = token_is(p->at, word);
    if (found) p->at++;
    return found;
}

const char *token_text(const struct token *t, char *out, size_t cap) {
    switch (t->kind) {
    case T_EOF:
        return "the end of the template";
    case T_BLOCK_END:
        return "the end of the statement";
    case T_VARIABLE_END:
        return "the end of the expression";
    case T_DATA:
        return "text";
    default:
        snprintf(out, cap, "'%.*s'", (int)MIN(t->len, cap - 3), t->data);
        return out;
    }
}

void parse_fail(struct parser *p, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->trap->line = p->at->line;
    trap_fail(p->trap, ICP_EFORMAT, "%s", text);
}

void token_expect(struct parser *p, const char *word) {
    char got[60];
    if (!token_skip(p, word))
        parse_fail(p, "expected '%s', got %s", word, token_text(p->at, got, sizeof got));
}

const struct token *token_expect_name(struct parser *p) {
    char got[60];
    if (p->at->kind != T_NAME)
        parse_fail(p, "expected a name, got %s", token_text(p->at, got, sizeof got));
    return p->at++;
}

void parse_enter(struct parser *p) {
    if (++p->depth > JINJA_MAX_HEIGHT) parse_fail(p, "the template is nested too deeply");
}

/* ---- nodes ---------------------------------------------------------------------------------- */

struct node *node_new(struct parser *p, enum node_kind kind, int line) {
    struct node *n = trap_zero(p->trap, sizeof *n);
    n->kind = (uint8_t)kind;
    n->line = line;
    n->height = 1;
    return n;
}

void node_grow(struct parser *p, struct node *n, const struct node *child) {
    if (!child || child->height < n->height) return;
    if (child->height >= 2 * JINJA_MAX_HEIGHT) parse_fail(p, "an expression is nested too deeply");
    n->height = (uint16_t)(child->height + 1);
}

static void append(struct parser *p, struct node *n, struct node ***tail, struct node *child) {
    node_grow(p, n, child);
    **tail = child;
    *tail = &child->next;
}

static struct node *unary(struct parser *p, enum node_kind kind, int line, struct node *a) {
    struct node *n = node_new(p, kind, line);
    n->a = a;
    node_grow(p, n, a);
    return n;
}

static struct node *binary(struct parser *p, enum node_kind kind, struct node *a, struct node *b) {
    struct node *n = unary(p, kind, a->line, a);
    n->b = b;
    node_grow(p, n, b);
    return n;
}

static const struct str *intern(struct parser *p, const struct token *t) {
    return name_intern(p->trap, p->names, t->data, t->len);
}

/* ---- arguments, subscripts, filters, tests -------------------------------------------------- */

static void parse_keyword(struct parser *p, struct node *n, struct node ***tail) {
    const struct str *name = intern(p, p->at);
    for (struct node *k = n->kwargs; k; k = k->next)
        if (k->name == name) parse_fail(p, "a keyword argument is repeated");
    int line = p->at->line;
    p->at += 2;
    struct node *k = unary(p, X_KEYWORD, line, parse_expr(p));
    k->name = name;
    append(p, n, tail, k);
}

static struct node *parse_star(struct parser *p, struct node *n) {
    p->at++;
    struct node *value = parse_expr(p);
    node_grow(p, n, value);
    return value;
}

/* (args) into a call, filter or test; the next token is the bracket. */
static void parse_args(struct parser *p, struct node *n) {
    struct node **args = &n->args, **kwargs = &n->kwargs;
    token_expect(p, "(");
    for (bool more = false; !token_is(p->at, ")"); more = true) {
        if (more) {
            token_expect(p, ",");
            if (token_is(p->at, ")")) break;
        }
        bool keyword = p->at->kind == T_NAME && is_op(p->at + 1, '=');
        bool star = is_op(p->at, '*'), two_stars = is_op(p->at, OP_2STAR);
        if (n->c || (n->b && !keyword && !two_stars) ||
            (!keyword && !two_stars && !star && n->kwargs))
            parse_fail(p, "arguments in a wrong order");
        if (star)
            n->b = parse_star(p, n);
        else if (two_stars)
            n->c = parse_star(p, n);
        else if (keyword)
            parse_keyword(p, n, &kwargs);
        else
            append(p, n, &args, parse_expr(p));
    }
    token_expect(p, ")");
}

static struct node *parse_call(struct parser *p, struct node *callee) {
    struct node *n = unary(p, X_CALL, p->at->line, callee);
    parse_args(p, n);
    return n;
}

/* One index or slice; a slice is an X_SLICE without its object yet. */
static struct node *parse_index(struct parser *p) {
    int line = p->at->line;
    struct node *part[3] = {0};
    if (!is_op(p->at, ':')) {
        part[0] = parse_expr(p);
        if (!is_op(p->at, ':')) return part[0];
    }
    p->at++;
    if (!is_op(p->at, ':') && !is_op(p->at, ']') && !is_op(p->at, ',')) part[1] = parse_expr(p);
    if (token_skip(p, ":") && !is_op(p->at, ']') && !is_op(p->at, ',')) part[2] = parse_expr(p);
    struct node *n = node_new(p, X_SLICE, line);
    n->b = part[0];
    n->c = part[1];
    n->d = part[2];
    for (int i = 0; i < 3; i++) node_grow(p, n, part[i]);
    return n;
}

static struct node *parse_brackets(struct parser *p, struct node *object) {
    int line = p->at->line;
    struct node *tuple = node_new(p, X_TUPLE, line), **tail = &tuple->args;
    size_t n = 0;
    token_expect(p, "[");
    for (; !is_op(p->at, ']'); n++) {
        if (n) token_expect(p, ",");
        append(p, tuple, &tail, parse_index(p));
    }
    token_expect(p, "]");
    struct node *index = n == 1 ? tuple->args : tuple;
    if (index->kind == X_SLICE && !index->a) {
        index->a = object;
        node_grow(p, index, object);
        return index;
    }
    for (struct node *i = index->args; n != 1 && i; i = i->next)
        if (i->kind == X_SLICE && !i->a) parse_fail(p, "slices in a tuple are not supported");
    struct node *item = unary(p, X_ITEM, line, object);
    item->b = index;
    node_grow(p, item, index);
    return item;
}

static struct node *parse_dot(struct parser *p, struct node *object) {
    int line = p->at->line;
    p->at++;
    struct node *n = unary(p, X_ATTR, line, object);
    if (p->at->kind == T_NAME) {
        n->name = intern(p, p->at++);
        return n;
    }
    if (p->at->kind != T_NUMBER || p->at->val.kind != V_INT)
        parse_fail(p, "expected a name or number after '.'");
    n->kind = X_ITEM;
    n->b = node_new(p, X_CONST, line);
    n->b->val = p->at++->val;
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n) {
    for (;;) {
        if (is_op(p->at, '.'))
            n = parse_dot(p, n);
        else if (is_op(p->at, '['))
            n = parse_brackets(p, n);
        else if (is_op(p->at, '('))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* The name of a filter or test, which may have dots. */
static const struct str *parse_dotted(struct parser *p) {
    const struct token *first = token_expect_name(p);
    if (!is_op(p->at, '.')) return intern(p, first);
    char name[120];
    size_t len = MIN(first->len, sizeof name);
    memcpy(name, first->data, len);
    while (token_skip(p, ".")) {
        const struct token *t = token_expect_name(p);
        if (len + 1 + t->len > sizeof name) parse_fail(p, "a name is too long");
        name[len++] = '.';
        memcpy(name + len, t->data, t->len);
        len += t->len;
    }
    return name_intern(p->trap, p->names, name, len);
}

struct node *parse_filters(struct parser *p, struct node *operand, bool inline_first) {
    while (inline_first || is_op(p->at, '|')) {
        if (!inline_first) p->at++;
        inline_first = false;
        struct node *n = unary(p, X_FILTER, p->at->line, operand);
        n->name = parse_dotted(p);
        n->fn = filter_find(n->name);
        if (is_op(p->at, '(')) parse_args(p, n);
        operand = n;
    }
    return operand;
}

static bool starts_operand(const struct token *t) {
    if (t->kind == T_NAME) return !token_is(t, "else") && !token_is(t, "or") && !token_is(t, "and");
    return t->kind == T_STRING || t->kind == T_NUMBER || is_op(t, '[') || is_op(t, '{');
}

static struct node *parse_primary(struct parser *p, bool namespace_target);

static struct node *parse_test(struct parser *p, struct node *operand) {
    int line = p->at++->line;
    bool negated = token_skip(p, "not");
    struct node *n = unary(p, X_TEST, line, operand);
    n->name = parse_dotted(p);
    n->fn = test_find(n->name);
    if (is_op(p->at, '(')) {
        parse_args(p, n);
    } else if (starts_operand(p->at)) {
        if (token_is(p->at, "is")) parse_fail(p, "tests with 'is' cannot be chained");
        n->args = parse_postfix(p, parse_primary(p, false));
        node_grow(p, n, n->args);
    }
    return negated ? unary(p, X_NOT, line, n) : n;
}

static struct node *parse_filter_expr(struct parser *p, struct node *n) {
    for (;;) {
        if (is_op(p->at, '|'))
            n = parse_filters(p, n, false);
        else if (p->at->kind == T_NAME && token_is(p->at, "is"))
            n = parse_test(p, n);
        else if (is_op(p->at, '('))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* ---- primaries ------------------------------------------------------------------------------ */

static struct node *parse_strings(struct parser *p) {
    struct node *n = node_new(p, X_CONST, p->at->line);
    n->val = p->at++->val;
    for (; p->at->kind == T_STRING; p->at++) { /* adjacent ones are one */
        const struct str *a = n->val.s, *b = p->at->val.s;
        char *data = trap_alloc(p->trap, a->len + b->len);
        memcpy(data, a->data, a->len);
        memcpy(data + a->len, b->data, b->len);
        n->val = val_str(str_new(p->trap, data, a->len + b->len, TEXT_TEMPLATE));
    }
    return n;
}

static struct node *parse_name(struct parser *p, bool namespace_target) {
    const struct token *t = p->at++;
    struct node *n = node_new(p, X_CONST, t->line);
    if (token_is(t, "true") || token_is(t, "True")) {
        n->val = val_bool(true);
    } else if (token_is(t, "false") || token_is(t, "False")) {
        n->val = val_bool(false);
    } else if (token_is(t, "none") || token_is(t, "None")) {
        n->val = val_none();
    } else {
        n->kind = X_NAME;
        n->name = intern(p, t);
        if (namespace_target && token_skip(p, ".")) {
            n->kind = X_NSREF;
            n->val = val_str(intern(p, token_expect_name(p)));
        }
    }
    return n;
}

static struct node *parse_list(struct parser *p) {
    struct node *n = node_new(p, X_LIST, p->at->line), **tail = &n->args;
    token_expect(p, "[");
    while (!is_op(p->at, ']')) {
        if (n->args) token_expect(p, ",");
        if (is_op(p->at, ']')) break;
        append(p, n, &tail, parse_expr(p));
    }
    token_expect(p, "]");
    return n;
}

static struct node *parse_dict(struct parser *p) {
    struct node *n = node_new(p, X_DICT, p->at->line), **tail = &n->args;
    token_expect(p, "{");
    while (!is_op(p->at, '}')) {
        if (n->args) token_expect(p, ",");
        if (is_op(p->at, '}')) break;
        struct node *key = parse_expr(p);
        token_expect(p, ":");
        append(p, n, &tail, binary(p, X_PAIR, key, parse_expr(p)));
    }
    token_expect(p, "}");
    return n;
}

static struct node *parse_primary(struct parser *p, bool namespace_target) {
    char got[60];
    const struct token *t = p->at;
    if (t->kind == T_NAME) return parse_name(p, namespace_target);
    if (t->kind == T_STRING) return parse_strings(p);
    if (t->kind == T_NUMBER) {
        struct node *n = node_new(p, X_CONST, t->line);
        n->val = p->at++->val;
        return n;
    }
    if (is_op(t, '(')) {
        p->at++;
        struct node *n = parse_tuple(p, TUPLE_PAREN, NULL);
        token_expect(p, ")");
        return n;
    }
    if (is_op(t, '[')) return parse_list(p);
    if (is_op(t, '{')) return parse_dict(p);
    parse_fail(p, "unexpected %s", token_text(t, got, sizeof got));
}

static bool tuple_ends(const struct parser *p, const char *terminator) {
    const struct token *t = p->at;
    return t->kind == T_VARIABLE_END || t->kind == T_BLOCK_END || is_op(t, ')') ||
           (terminator && t->kind == T_NAME && token_is(t, terminator));
}

struct node *parse_tuple(struct parser *p, unsigned flags, const char *terminator) {
    char got[60];
    struct node *n = node_new(p, X_TUPLE, p->at->line), **tail = &n->args;
    bool is_tuple = false;
    for (;;) {
        if (n->args) token_expect(p, ",");
        if (tuple_ends(p, terminator)) break;
        struct node *item = flags & TUPLE_TARGET    ? parse_primary(p, flags & TUPLE_NAMESPACE)
                            : flags & TUPLE_NO_COND ? parse_expr_no_cond(p)
                                                    : parse_expr(p);
        append(p, n, &tail, item);
        if (!is_op(p->at, ',')) break;
        is_tuple = true;
    }
    if (is_tuple) return n;
    if (n->args) return n->args;
    if (!(flags & TUPLE_PAREN))
        parse_fail(p, "expected an expression, got %s", token_text(p->at, got, sizeof got));
    return n;
}

/* ---- operators ------------------------------------------------------------------------------ */

static struct node *parse_unary(struct parser *p, bool with_filters) {
    struct node *n;
    int line = p->at->line;
    parse_enter(p);
    if (is_op(p->at, '-') || is_op(p->at, '+')) {
        enum node_kind kind = is_op(p->at++, '-') ? X_NEG : X_POS;
        n = unary(p, kind, line, parse_unary(p, false));
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    if (with_filters) n = parse_filter_expr(p, n);
    parse_leave(p);
    return n;
}

/* Left-associative operators of one level: pairs of token and operation. */
struct level {
    struct {
        int token;
        enum op op;
    } ops[4];
    size_t n;
};

static struct node *parse_arith(struct parser *p, const struct level *level,
                                struct node *(*operand)(struct parser *p)) {
    struct node *left = operand(p);
    for (;;) {
        size_t i = 0;
        while (i < level->n && !is_op(p->at, level->ops[i].token)) i++;
        if (i == level->n) return left;
        p->at++;
        left = binary(p, X_ARITH, left, operand(p));
        left->op = (uint8_t)level->ops[i].op;
    }
}

static struct node *parse_signed(struct parser *p) {
    return parse_unary(p, true);
}

static struct node *parse_pow(struct parser *p) {
    static const struct level level = {{{OP_2STAR, OP_POW}}, 1};
    return parse_arith(p, &level, parse_signed);
}

static struct node *parse_math2(struct parser *p) {
    static const struct level level = {
        {{'*', OP_MUL}, {'/', OP_DIV}, {OP_2SLASH, OP_FLOORDIV}, {'%', OP_MOD}}, 4};
    return parse_arith(p, &level, parse_pow);
}

static struct node *parse_concat(struct parser *p) {
    struct node *first = parse_math2(p);
    if (!is_op(p->at, '~')) return first;
    struct node *n = node_new(p, X_CONCAT, first->line), **tail = &n->args;
    append(p, n, &tail, first);
    while (token_skip(p, "~")) append(p, n, &tail, parse_math2(p));
    return n;
}

static struct node *parse_math1(struct parser *p) {
    static const struct level level = {{{'+', OP_ADD}, {'-', OP_SUB}}, 2};
    return parse_arith(p, &level, parse_concat);
}

static bool parse_comparison(struct parser *p, enum op *op) {
    static const struct {
        int token;
        enum op op;
    } ops[] = {{OP_2EQ, OP_EQ},   {OP_NOT_EQ, OP_NE}, {'<', OP_LT},
               {OP_LT_EQ, OP_LE}, {'>', OP_GT},       {OP_GT_EQ, OP_GE}};
    for (size_t i = 0; i < COUNT_OF(ops); i++)
        if (is_op(p->at, ops[i].token)) {
            p->at++;
            *op = ops[i].op;
            return true;
        }
    if (token_skip(p, "in")) {
        *op = OP_IN;
        return true;
    }
    if (!token_is(p->at, "not") || !token_is(p->at + 1, "in")) return false;
    p->at += 2;
    *op = OP_NOTIN;
    return true;
}

static struct node *parse_compare(struct parser *p) {
    struct node *first = parse_math1(p), *n = NULL, **tail = NULL;
    int line = p->at->line;
    for (enum op op; parse_comparison(p, &op);) {
        if (!n) {
            n = unary(p, X_COMPARE, line, first);
            tail = &n->args;
        }
        struct node *operand = unary(p, X_OPERAND, p->at->line, parse_math1(p));
        operand->op = (uint8_t)op;
        append(p, n, &tail, operand);
    }
    return n ? n : first;
}

static struct node *parse_not(struct parser *p) {
    if (p->at->kind != T_NAME || !token_is(p->at, "not")) return parse_compare(p);
    int line = p->at++->line;
    parse_enter(p);
    struct node *n = unary(p, X_NOT, line, parse_not(p));
    parse_leave(p);
    return n;
}

static struct node *parse_and(struct parser *p) {
    struct node *left = parse_not(p);
    while (token_skip(p, "and")) left = binary(p, X_AND, left, parse_not(p));
    return left;
}

static struct node *parse_or(struct parser *p) {
    struct node *left = parse_and(p);
    while (token_skip(p, "or")) left = binary(p, X_OR, left, parse_and(p));
    return left;
}

static struct node *parse_cond(struct parser *p) {
    struct node *n = parse_or(p);
    while (token_skip(p, "if")) {
        struct node *cond = node_new(p, X_COND, n->line);
        cond->b = n;
        cond->a = parse_or(p);
        parse_enter(p);
        if (token_skip(p, "else")) cond->c = parse_cond(p);
        parse_leave(p);
        node_grow(p, cond, cond->a);
        node_grow(p, cond, cond->b);
        node_grow(p, cond, cond->c);
        n = cond;
    }
    return n;
}

struct node *parse_expr(struct parser *p) {
    parse_enter(p);
    struct node *n = parse_cond(p);
    parse_leave(p);
    return n;
}

struct node *parse_expr_no_cond(struct parser *p) {
    parse_enter(p);
    struct node *n = parse_or(p);
    parse_leave(p);
    return n;
}
