/* Tests: what stands after `is`. */
#include "jinja_internal.h"

static value remainder_is(struct render *r, value v, value by, int64_t rest) {
    return val_bool(equal(r, arith(r, OP_MOD, v, by), val_int(rest)));
}

static value test_odd(struct render *r, value *v, struct call *c) {
    return remainder_is(r, v[0], val_int(2), 1);
}

static value test_even(struct render *r, value *v, struct call *c) {
    return remainder_is(r, v[0], val_int(2), 0);
}

static value test_divisibleby(struct render *r, value *v, struct call *c) {
    return remainder_is(r, v[0], v[1], 0);
}

static value test_defined(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind != V_UNDEFINED);
}

static value test_undefined(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_UNDEFINED);
}

static value test_none(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_NONE);
}

static value test_boolean(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_BOOL);
}

static value test_true(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_BOOL && v[0].b);
}

static value test_false(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_BOOL && !v[0].b);
}

static value test_integer(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_INT || v[0].kind == V_BIG);
}

static value test_float(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_FLOAT);
}

static value test_number(struct render *r, value *v, struct call *c) {
    return val_bool(is_number(v[0]) || v[0].kind == V_BIG);
}

static value test_string(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_STR);
}

static value test_lower(struct render *r, value *v, struct call *c) {
    return val_bool(str_test(r, to_str(r, v[0]), IS_LOWER));
}

static value test_upper(struct render *r, value *v, struct call *c) {
    return val_bool(str_test(r, to_str(r, v[0]), IS_UPPER));
}

static value test_mapping(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_DICT);
}

static value test_sequence(struct render *r, value *v, struct call *c) {
    return val_bool(has_length(v[0]) && v[0].kind != V_VIEW);
}

static value test_iterable(struct render *r, value *v, struct call *c) {
    return val_bool(is_iterable(v[0]));
}

static value test_callable(struct render *r, value *v, struct call *c) {
    return val_bool(is_callable(v[0]));
}

/* Python's `is`, as far as it is more than an accident of its memory. */
static value test_sameas(struct render *r, value *v, struct call *c) {
    value a = v[0], b = v[1];
    if (a.kind != b.kind) return val_bool(false);
    switch (a.kind) {
    case V_NONE:
        return val_bool(true);
    case V_BOOL:
        return val_bool(a.b == b.b);
    case V_INT: /* small ones are one object */
        if (a.i >= -5 && a.i <= 256 && b.i >= -5 && b.i <= 256) return val_bool(a.i == b.i);
        fail(r, "sameas is not supported between large integers");
    case V_UNDEFINED:
    case V_FLOAT:
    case V_BIG:
    case V_STR:
        fail(r, "sameas is not supported between values of type %s", kind_name(a));
    default:
        return val_bool(a.iter == b.iter && a.aux == b.aux);
    }
}

static value test_escaped(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_STR && v[0].s->markup);
}

static value test_in(struct render *r, value *v, struct call *c) {
    return val_bool(contains(r, v[1], v[0]));
}

static value test_eq(struct render *r, value *v, struct call *c) {
    return val_bool(equal(r, v[0], v[1]));
}

static value test_ne(struct render *r, value *v, struct call *c) {
    return val_bool(!equal(r, v[0], v[1]));
}

static value test_lt(struct render *r, value *v, struct call *c) {
    return val_bool(less(r, v[0], v[1], OP_LT));
}

static value test_le(struct render *r, value *v, struct call *c) {
    return val_bool(less(r, v[0], v[1], OP_LE));
}

static value test_gt(struct render *r, value *v, struct call *c) {
    return val_bool(less(r, v[0], v[1], OP_GT));
}

static value test_ge(struct render *r, value *v, struct call *c) {
    return val_bool(less(r, v[0], v[1], OP_GE));
}

static value test_filter(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_STR && filter_find(v[0].s));
}

static value test_test(struct render *r, value *v, struct call *c) {
    return val_bool(v[0].kind == V_STR && test_find(v[0].s));
}

static const struct builtin tests[] = {
    {"odd", test_odd, ""},
    {"even", test_even, ""},
    {"divisibleby", test_divisibleby, "num"},
    {"defined", test_defined, ""},
    {"undefined", test_undefined, ""},
    {"filter", test_filter, ""},
    {"test", test_test, ""},
    {"none", test_none, ""},
    {"boolean", test_boolean, ""},
    {"false", test_false, ""},
    {"true", test_true, ""},
    {"integer", test_integer, ""},
    {"float", test_float, ""},
    {"lower", test_lower, ""},
    {"upper", test_upper, ""},
    {"string", test_string, ""},
    {"mapping", test_mapping, ""},
    {"number", test_number, ""},
    {"sequence", test_sequence, ""},
    {"iterable", test_iterable, ""},
    {"callable", test_callable, ""},
    {"sameas", test_sameas, "other"},
    {"escaped", test_escaped, ""},
    {"in", test_in, "seq"},
    {"==", test_eq, "/ b"},
    {"eq", test_eq, "/ b"},
    {"equalto", test_eq, "/ b"},
    {"!=", test_ne, "/ b"},
    {"ne", test_ne, "/ b"},
    {">", test_gt, "/ b"},
    {"gt", test_gt, "/ b"},
    {"greaterthan", test_gt, "/ b"},
    {"ge", test_ge, "/ b"},
    {">=", test_ge, "/ b"},
    {"<", test_lt, "/ b"},
    {"lt", test_lt, "/ b"},
    {"lessthan", test_lt, "/ b"},
    {"<=", test_le, "/ b"},
    {"le", test_le, "/ b"},
};

const struct builtin *test_find(const struct str *name) {
    for (size_t i = 0; i < COUNT_OF(tests); i++)
        if (str_is(name, tests[i].name)) return &tests[i];
    return NULL;
}
