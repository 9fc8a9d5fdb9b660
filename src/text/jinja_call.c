/* Calls and their arguments, macros, attributes and items. */
#include "jinja_internal.h"

/* ---- arguments ------------------------------------------------------------------------------ */

void call_init(struct call *c) {
    c->pos = c->pos_buf;
    c->kw = c->kw_buf;
    c->n_pos = c->n_kw = 0;
    c->cap_pos = COUNT_OF(c->pos_buf);
    c->cap_kw = COUNT_OF(c->kw_buf);
}

void call_push(struct render *r, struct call *c, value v) {
    if (c->n_pos == c->cap_pos) {
        value *pos = render_alloc(r, 2 * c->cap_pos * sizeof *pos);
        memcpy(pos, c->pos, c->n_pos * sizeof *pos);
        c->pos = pos;
        c->cap_pos *= 2;
    }
    c->pos[c->n_pos++] = v;
}

void call_push_kw(struct render *r, struct call *c, const struct str *name, value v) {
    for (size_t i = 0; i < c->n_kw; i++)
        if (str_equal(c->kw[i].name, name))
            fail(r, "keyword argument '%.*s' is given twice", (int)MIN(name->len, 100), name->data);
    if (c->n_kw == c->cap_kw) {
        struct kwarg *kw = render_alloc(r, 2 * c->cap_kw * sizeof *kw);
        memcpy(kw, c->kw, c->n_kw * sizeof *kw);
        c->kw = kw;
        c->cap_kw *= 2;
    }
    charge(r, c->n_kw + 1);
    c->kw[c->n_kw++] = (struct kwarg){name, v};
}

void call_eval(struct render *r, const struct node *n, struct call *c) {
    for (const struct node *i = n->args; i; i = i->next) call_push(r, c, eval(r, i));
    if (n->b) {
        struct iter *it = iter_of(r, eval(r, n->b));
        for (value v; iter_next(r, it, &v);) call_push(r, c, v);
    }
    for (const struct node *i = n->kwargs; i; i = i->next)
        call_push_kw(r, c, i->name, eval(r, i->a));
    if (!n->c) return;
    value more = eval(r, n->c);
    if (more.kind != V_DICT) fail(r, "the argument after ** must be a dict");
    for (size_t i = 0; i < more.dict->n; i++) {
        const struct entry *e = &more.dict->entries[i];
        if (e->key.kind != V_STR) fail(r, "keywords must be strings");
        call_push_kw(r, c, e->key.s, e->val);
    }
}

/* ---- builtins ------------------------------------------------------------------------------- */

/* Takes a keyword argument out; false: it is not there. */
static bool take_keyword(struct call *c, const char *name, size_t len, value *out) {
    for (size_t i = 0; i < c->n_kw; i++) {
        if (c->kw[i].name->len != len || memcmp(c->kw[i].name->data, name, len) != 0) continue;
        *out = c->kw[i].val;
        memmove(&c->kw[i], &c->kw[i + 1], (c->n_kw - i - 1) * sizeof *c->kw);
        c->n_kw--;
        return true;
    }
    return false;
}

static void bind_param(struct render *r, const struct builtin *b, struct call *c, const char *name,
                       size_t len, size_t index, bool optional, bool by_name, value *out) {
    bool positional = index < c->n_pos;
    if (positional) *out = c->pos[index];
    if (by_name && take_keyword(c, name, len, out)) {
        if (positional) fail(r, "%s got two values for '%.*s'", b->name, (int)len, name);
        return;
    }
    if (!positional && !optional) fail(r, "%s needs the argument '%.*s'", b->name, (int)len, name);
}

value call_builtin(struct render *r, const struct builtin *b, value self, struct call *c) {
    value v[JINJA_MAX_PARAMS + 1] = {self};
    size_t n = 0;
    bool optional = false, by_name = true, rest = false;
    for (const char *p = b->params; *p;) {
        size_t len = strcspn(p, " ");
        if (*p == '*') {
            rest = true;
        } else if (*p == '/') {
            by_name = false;
        } else {
            optional |= *p == '?';
            bind_param(r, b, c, p + (*p == '?'), len - (*p == '?'), n, optional, by_name,
                       &v[1 + n]);
            n++;
        }
        p += len;
        p += strspn(p, " ");
    }
    if (rest) {
        size_t used = MIN(n, c->n_pos);
        c->pos += used;
        c->n_pos -= used;
        c->cap_pos -= used;
    } else {
        if (c->n_pos > n) fail(r, "%s takes at most %zu arguments", b->name, n);
        if (c->n_kw)
            fail(r, "%s takes no argument '%.*s'", b->name, (int)MIN(c->kw[0].name->len, 100),
                 c->kw[0].name->data);
    }
    return b->fn(r, v, c);
}

bool is_callable(value v) {
    return v.kind == V_FUNC || v.kind == V_MACRO || v.kind == V_LOOP || v.kind == V_JOINER ||
           v.kind == V_BLOCK || v.kind == V_UNDEFINED;
}

static void expect_arguments(struct render *r, const struct call *c, size_t n) {
    if (c->n_kw || c->n_pos != n) fail(r, "the call takes %zu arguments", n);
}

static value call_joiner(struct joiner *j, struct render *r) {
    if (j->used) return j->sep;
    j->used = true;
    return str_literal(r, "");
}

static value call_any(struct render *r, value callee, struct call *c) {
    switch (callee.kind) {
    case V_FUNC:
        return call_builtin(r, callee.func->builtin, callee.func->self, c);
    case V_MACRO:
        return macro_call(r, callee.macro, c);
    case V_LOOP:
        expect_arguments(r, c, 1);
        return loop_recurse(r, callee.loop, c->pos[0]);
    case V_JOINER:
        expect_arguments(r, c, 0);
        return call_joiner(callee.joiner, r);
    case V_BLOCK:
        expect_arguments(r, c, 0);
        return block_render(r, callee.block->node, callee.block->context);
    case V_UNDEFINED:
        fail_undefined(r, callee);
    default:
        fail(r, "a value of type %s cannot be called", kind_name(callee));
    }
}

value call_value(struct render *r, value callee, struct call *c) {
    enter(r);
    charge(r, 1);
    value v = call_any(r, callee, c);
    leave(r);
    return v;
}

/* ---- macros --------------------------------------------------------------------------------- */

static value rest_of_keywords(struct render *r, struct call *c) {
    struct dict *d = dict_new(r, c->n_kw);
    for (size_t i = 0; i < c->n_kw; i++) dict_put(r, d, val_str(c->kw[i].name), c->kw[i].val);
    c->n_kw = 0;
    return val_dict(d);
}

static _Noreturn void fail_macro(struct render *r, const struct macro_code *m, const char *what) {
    fail(r, "macro '%.*s' %s", m->name ? (int)MIN(m->name->len, 100) : 9,
         m->name ? m->name->data : "anonymous", what);
}

/* Arguments into the variables of the macro's activation. */
static void bind_macro(struct render *r, const struct macro_code *m, struct call *c,
                       struct act *act) {
    size_t i = 0;
    bool found_caller = m->explicit_caller;
    for (const struct node *p = m->params; p; p = p->next, i++) {
        value *v = &act->slots[p->ref.slot];
        *v = val_missing();
        if (i < c->n_pos)
            *v = c->pos[i];
        else
            take_keyword(c, p->name->data, p->name->len, v);
    }
    if (m->wants_caller && !found_caller) {
        value *caller = &act->slots[m->caller];
        if (!take_keyword(c, "caller", 6, caller) || caller->kind == V_NONE)
            *caller = val_undefined(r, "no caller defined");
    }
    if (m->wants_kwargs)
        act->slots[m->kwargs] = rest_of_keywords(r, c);
    else if (c->n_kw)
        fail_macro(r, m, "takes no such keyword argument");
    size_t used = MIN(i, c->n_pos);
    if (m->wants_varargs)
        act->slots[m->varargs] = list_of(r, c->pos + used, c->n_pos - used, V_TUPLE);
    else if (c->n_pos > i)
        fail_macro(r, m, "takes fewer arguments");
}

static void set_defaults(struct render *r, const struct macro_code *m, struct act *act) {
    size_t required = m->n_params - m->n_defaults, i = 0;
    const struct node *d = m->defaults;
    for (const struct node *p = m->params; p; p = p->next, i++) {
        value *v = &act->slots[p->ref.slot];
        if (!given(*v)) *v = i >= required ? eval(r, d) : val_undefined_name(p->name);
        if (i >= required) d = d->next;
    }
}

value macro_call(struct render *r, struct macro *m, struct call *c) {
    const struct macro_code *code = m->code;
    struct act *before = r->act, *act = act_push(r, &code->frame, m->act);
    size_t mark = out_begin(r);
    bind_macro(r, code, c, act);
    scope_enter(r, &code->scope);
    set_defaults(r, code, act);
    exec(r, code->body);
    r->act = before;
    act_pop(r, &code->frame, act);
    return out_end(r, mark);
}

/* ---- attributes and items ------------------------------------------------------------------- */

static value bind_method(struct render *r, const struct builtin *b, value self) {
    struct func *f = render_alloc(r, sizeof *f);
    *f = (struct func){b, self};
    return (value){.kind = V_FUNC, .func = f};
}

static bool range_attr(const struct range *range, const struct str *name, value *out) {
    if (str_is(name, "start"))
        *out = val_int(range->start);
    else if (str_is(name, "stop"))
        *out = val_int(range->stop);
    else if (str_is(name, "step"))
        *out = val_int(range->step);
    else
        return false;
    return true;
}

static bool macro_attr(struct render *r, const struct macro_code *m, const struct str *name,
                       value *out) {
    if (str_is(name, "name")) {
        *out = m->name ? val_str(m->name) : val_none();
    } else if (str_is(name, "arguments")) {
        struct list *l = list_start(r);
        for (const struct node *p = m->params; p; p = p->next) list_push(r, l, val_str(p->name));
        *out = list_of(r, l->items, l->n, V_TUPLE);
    } else if (str_is(name, "catch_kwargs")) {
        *out = val_bool(m->wants_kwargs);
    } else if (str_is(name, "catch_varargs")) {
        *out = val_bool(m->wants_varargs);
    } else if (str_is(name, "caller")) {
        *out = val_bool(m->wants_caller);
    } else {
        return false;
    }
    return true;
}

static bool block_attr(struct render *r, struct context *context, const struct str *name,
                       value *out) {
    for (size_t i = 0; i < r->j->n_blocks; i++) {
        if (!str_equal(r->j->blocks[i]->name, name)) continue;
        struct block_ref *block = render_alloc(r, sizeof *block);
        *block = (struct block_ref){r->j->blocks[i], context};
        *out = (value){.kind = V_BLOCK, .block = block};
        return true;
    }
    return false;
}

/* Attributes that are no methods. */
static bool own_attr(struct render *r, value v, const struct str *name, value *out) {
    switch (v.kind) {
    case V_NAMESPACE:
        return dict_get_name(r, v.dict, name, out);
    case V_LOOP:
        return loop_attr(r, v.loop, name, out);
    case V_RANGE:
        return range_attr(v.range, name, out);
    case V_MACRO:
        return macro_attr(r, v.macro->code, name, out);
    case V_SELF:
        return block_attr(r, v.context, name, out);
    case V_CYCLER:
        if (!str_is(name, "current")) return false;
        *out = v.cycler->items.items[v.cycler->at];
        return true;
    case V_TUPLE:
        if (v.aux != TUPLE_GROUP || (!str_is(name, "grouper") && !str_is(name, "list")))
            return false;
        *out = v.list->items[str_is(name, "list")];
        return true;
    default:
        return false;
    }
}

/* Attributes that every Python object has, or every container. */
static bool is_python_internal(const struct str *name) {
    static const char *const names[] = {"class",        "doc",          "init",    "new",
                                        "repr",         "str",          "hash",    "eq",
                                        "ne",           "lt",           "le",      "gt",
                                        "ge",           "getattribute", "setattr", "delattr",
                                        "dir",          "format",       "reduce",  "sizeof",
                                        "reduce_ex",    "len",          "iter",    "getitem",
                                        "subclasshook", "contains",     "setitem", "init_subclass",
                                        "delitem",      "reversed",     "or",      "ror",
                                        "ior",          "class_getitem"};
    if (name->len < 5 || memcmp(name->data, "__", 2) != 0 ||
        memcmp(name->data + name->len - 2, "__", 2) != 0)
        return false;
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strlen(names[i]) == name->len - 4 &&
            memcmp(names[i], name->data + 2, name->len - 4) == 0)
            return true;
    return false;
}

bool find_attr(struct render *r, value v, const struct str *name, value *out) {
    bool unsafe = v.kind != V_NAMESPACE && is_python_internal(name);
    const struct builtin *method = method_find(v, name, &unsafe);
    if (own_attr(r, v, name, out))
        unsafe = name->len > 0 && name->data[0] == '_';
    else if (method)
        *out = bind_method(r, method, v);
    else if (!unsafe)
        return false;
    if (unsafe) *out = val_undefined_attr(v, name, UNSAFE_ATTRIBUTE);
    return true;
}

/* What Python's v[key] finds; false: it would raise a TypeError or LookupError. */
static bool find_item(struct render *r, value v, value key, value *out) {
    if (v.kind == V_DICT) {
        return is_hashable(r, key) && dict_get(r, v.dict, key, out);
    }
    bool sequence = v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_STR || v.kind == V_RANGE;
    if (!sequence || !is_integer(key)) return false;
    int64_t i = int_of(key), n = (int64_t)length_of(r, v);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return false;
    if (v.kind == V_RANGE) {
        *out = range_item(v.range, i);
    } else if (v.kind == V_STR) {
        size_t from = str_offset(v.s, (size_t)i);
        int32_t cp;
        charge(r, v.s->ascii ? 0 : from / 64);
        *out = val_str(str_part(
            r, v.s, from, from + (size_t)utf8_decode(v.s->data + from, v.s->len - from, &cp)));
    } else {
        *out = v.list->items[i];
    }
    return true;
}

value get_attr(struct render *r, value v, const struct str *name) {
    value out;
    if (v.kind == V_UNDEFINED && !is_python_internal(name)) fail_undefined(r, v);
    if (find_attr(r, v, name, &out) || find_item(r, v, val_str(name), &out)) return out;
    return val_undefined_attr(v, name, NO_ATTRIBUTE);
}

value get_item(struct render *r, value v, value key) {
    value out;
    if (v.kind == V_UNDEFINED) fail_undefined(r, v);
    if (find_item(r, v, key, &out)) return out;
    if (key.kind == V_STR && find_attr(r, v, key.s, &out)) return out;
    return val_undefined_attr(v, to_str(r, key.kind == V_STR || is_number(key) ? key : val_none()),
                              NO_ATTRIBUTE);
}

static value path_part(struct render *r, value v, const struct str *path, size_t from, size_t to) {
    const struct str *part = str_part(r, path, from, to);
    int64_t index;
    bool digits = part->len > 0, too_big;
    for (size_t i = 0; i < part->len; i++) digits &= part->data[i] >= '0' && part->data[i] <= '9';
    if (digits && parse_int(part, 10, &index, &too_big) && !too_big)
        return get_item(r, v, val_int(index));
    return get_item(r, v, val_str(part));
}

value get_path(struct render *r, value v, value path, value missing) {
    if (path.kind == V_NONE) return v;
    if (path.kind != V_STR) {
        v = get_item(r, v, path);
        return v.kind == V_UNDEFINED && given(missing) ? missing : v;
    }
    const struct str *s = path.s;
    for (size_t from = 0, to; from <= s->len; from = to + 1) {
        const char *dot = memchr(s->data + from, '.', s->len - from);
        to = dot ? (size_t)(dot - s->data) : s->len;
        v = path_part(r, v, s, from, to);
        if (v.kind == V_UNDEFINED && given(missing)) v = missing;
    }
    return v;
}

/* ---- slices --------------------------------------------------------------------------------- */

struct span {
    int64_t from, to, step, n;
};

static int64_t slice_bound(struct render *r, value v, int64_t otherwise, int64_t len, int64_t low,
                           int64_t high) {
    if (v.kind == V_NONE) return otherwise;
    int64_t i = need_int(r, v, "a slice index");
    if (i < 0) i += len;
    return i < low ? low : i > high ? high : i;
}

/* As PySlice_AdjustIndices of Python. */
static struct span slice_span(struct render *r, int64_t len, value from, value to, value step) {
    int64_t by = step.kind == V_NONE ? 1 : need_int(r, step, "a slice step");
    if (by == 0) fail(r, "a slice step cannot be zero");
    if (by < -INT64_MAX) by = -INT64_MAX;
    bool back = by < 0;
    int64_t low = back ? -1 : 0, high = back ? len - 1 : len;
    int64_t start = slice_bound(r, from, back ? len - 1 : 0, len, low, high);
    int64_t stop = slice_bound(r, to, back ? -1 : len, len, low, high);
    int64_t n = back ? (stop < start ? (start - stop - 1) / -by + 1 : 0)
                     : (start < stop ? (stop - start - 1) / by + 1 : 0);
    return (struct span){start, stop, by, n};
}

static value slice_str(struct render *r, const struct str *s, struct span span) {
    if (span.step == 1) {
        size_t from = str_offset(s, (size_t)span.from);
        size_t to = str_offset(s, (size_t)(span.from + span.n));
        return val_str(str_part(r, s, from, span.n ? to : from));
    }
    size_t *offsets = NULL, n = str_chars(r, s), at = 0;
    if (!s->ascii) {
        offsets = render_alloc(r, (n + 1) * sizeof *offsets);
        for (size_t i = 0; i < s->len; i++)
            if (((unsigned char)s->data[i] & 0xc0) != 0x80) offsets[at++] = i;
        offsets[at] = s->len;
    }
    size_t mark = out_begin(r);
    for (int64_t i = 0; i < span.n; i++) {
        size_t c = (size_t)(span.from + i * span.step);
        charge(r, 1);
        out_part(r, s, offsets ? offsets[c] : c, offsets ? offsets[c + 1] : c + 1);
    }
    return val_str(str_as_markup(r, out_end(r, mark).s, s->markup));
}

static value slice_list(struct render *r, value list, struct span span) {
    if (span.step == 1) return list_part(r, list, (size_t)span.from, (size_t)(span.from + span.n));
    value out = list_new(r, (size_t)span.n, list.kind);
    for (int64_t i = 0; i < span.n; i++)
        out.list->items[i] = list.list->items[span.from + i * span.step];
    return out;
}

value get_slice(struct render *r, value v, value from, value to, value step) {
    if (v.kind == V_UNDEFINED) fail_undefined(r, v);
    if (v.kind != V_STR && v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_RANGE)
        fail(r, "a value of type %s cannot be sliced", kind_name(v));
    struct span span = slice_span(r, (int64_t)length_of(r, v), from, to, step);
    if (v.kind == V_STR) return slice_str(r, v.s, span);
    if (v.kind != V_RANGE) return slice_list(r, v, span);
    struct range *range = render_alloc(r, sizeof *range);
    int64_t by = v.range->step * span.step, start = v.range->start + span.from * v.range->step;
    *range = (struct range){start, v.range->start + span.to * v.range->step, by, span.n};
    return (value){.kind = V_RANGE, .range = range};
}
