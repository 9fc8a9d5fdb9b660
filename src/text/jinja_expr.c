/* Expressions run. */
#include "jinja_internal.h"

static value *name_slot(struct render *r, const struct node *n) {
    struct act *act = r->act;
    for (unsigned i = 0; i < n->ref.hops; i++) act = act->up;
    return &act->slots[n->ref.slot];
}

static value eval_name(struct render *r, const struct node *n) {
    value v = *name_slot(r, n);
    if (given(v)) return v;
    /* Jinja takes parameters to be set and would print its own marker here. */
    if (n->op == NAME_IS_PARAM)
        fail(r, "'%.*s' is used after the loop or block that sets it", (int)MIN(n->name->len, 100),
             n->name->data);
    return val_undefined_name(n->name);
}

static value eval_items(struct render *r, const struct node *n, enum kind kind) {
    size_t count = 0;
    for (const struct node *i = n->args; i; i = i->next) count++;
    value list = list_new(r, count, kind);
    count = 0;
    for (const struct node *i = n->args; i; i = i->next) list.list->items[count++] = eval(r, i);
    return list;
}

static value eval_dict(struct render *r, const struct node *n) {
    struct dict *d = dict_new(r, 0);
    for (const struct node *i = n->args; i; i = i->next) {
        value key = eval(r, i->a);
        dict_put(r, d, key, eval(r, i->b));
    }
    return val_dict(d);
}

static value eval_slice(struct render *r, const struct node *n) {
    value object = eval(r, n->a);
    value from = n->b ? eval(r, n->b) : val_none();
    value to = n->c ? eval(r, n->c) : val_none();
    value step = n->d ? eval(r, n->d) : val_none();
    r->trap.line = n->line;
    return get_slice(r, object, from, to, step);
}

static value eval_call(struct render *r, const struct node *n) {
    struct call c;
    call_init(&c);
    value callee = eval(r, n->a);
    call_eval(r, n, &c);
    r->trap.line = n->line;
    return call_value(r, callee, &c);
}

static value eval_filter(struct render *r, const struct node *n) {
    struct call c;
    call_init(&c);
    value self = eval(r, n->a);
    call_eval(r, n, &c);
    r->trap.line = n->line;
    if (!n->fn)
        fail(r, "no %s named '%.*s'", n->kind == X_FILTER ? "filter" : "test",
             (int)MIN(n->name->len, 100), n->name->data);
    return call_builtin(r, n->fn, self, &c);
}

/* The first operand may have room behind it, so that x ~ y over and over is linear. */
static value eval_concat(struct render *r, const struct node *n) {
    const struct str *first = to_str(r, eval(r, n->args));
    size_t mark = out_begin(r);
    for (const struct node *i = n->args->next; i; i = i->next) print_value(r, eval(r, i));
    return str_plus(r, str_as_markup(r, first, false), out_end(r, mark).s);
}

static bool compare(struct render *r, enum op op, value a, value b) {
    switch (op) {
    case OP_EQ:
        return equal(r, a, b);
    case OP_NE:
        return !equal(r, a, b);
    case OP_IN:
        return contains(r, b, a);
    case OP_NOTIN:
        return !contains(r, b, a);
    default:
        return less(r, a, b, op);
    }
}

/* a < b < c means a < b and b < c; b is evaluated once. */
static value eval_compare(struct render *r, const struct node *n) {
    value left = eval(r, n->a);
    bool result = true;
    for (const struct node *i = n->args; i && result; i = i->next) {
        value right = eval(r, i->a);
        r->trap.line = i->line;
        result = compare(r, (enum op)i->op, left, right);
        left = right;
    }
    return val_bool(result);
}

static value eval_cond(struct render *r, const struct node *n) {
    if (truth(r, eval(r, n->a))) return eval(r, n->b);
    return n->c ? eval(r, n->c)
                : val_undefined(r, "the inline if-expression was false and has no else");
}

static value eval_arith(struct render *r, const struct node *n) {
    value a = eval(r, n->a), b = eval(r, n->b);
    r->trap.line = n->line;
    return arith(r, (enum op)n->op, a, b);
}

static value eval_item(struct render *r, const struct node *n) {
    value object = eval(r, n->a), key = eval(r, n->b);
    r->trap.line = n->line;
    return get_item(r, object, key);
}

static value eval_attr(struct render *r, const struct node *n) {
    value object = eval(r, n->a);
    r->trap.line = n->line;
    return get_attr(r, object, n->name);
}

static value eval_logic(struct render *r, const struct node *n) {
    value a = eval(r, n->a);
    return truth(r, a) == (n->kind == X_OR) ? a : eval(r, n->b);
}

static value eval_any(struct render *r, const struct node *n) {
    switch (n->kind) {
    case X_CONST:
        return n->val;
    case X_NAME:
        return eval_name(r, n);
    case X_TUPLE:
        return eval_items(r, n, V_TUPLE);
    case X_LIST:
        return eval_items(r, n, V_LIST);
    case X_DICT:
        return eval_dict(r, n);
    case X_ATTR:
        return eval_attr(r, n);
    case X_ITEM:
        return eval_item(r, n);
    case X_SLICE:
        return eval_slice(r, n);
    case X_CALL:
        return eval_call(r, n);
    case X_FILTER:
    case X_TEST:
        return eval_filter(r, n);
    case X_NOT:
        return val_bool(!truth(r, eval(r, n->a)));
    case X_NEG:
        return negate(r, eval(r, n->a));
    case X_POS:
        return positive(r, eval(r, n->a));
    case X_ARITH:
        return eval_arith(r, n);
    case X_AND:
    case X_OR:
        return eval_logic(r, n);
    case X_CONCAT:
        return eval_concat(r, n);
    case X_COMPARE:
        return eval_compare(r, n);
    default:
        return eval_cond(r, n);
    }
}

value eval(struct render *r, const struct node *n) {
    enter(r);
    charge(r, 1);
    value v = eval_any(r, n);
    leave(r);
    return v;
}
