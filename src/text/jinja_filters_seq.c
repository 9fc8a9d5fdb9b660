/* Filters on sequences. Those that are generators in Jinja are iterators here: they look at their
 * arguments when the first item is asked for. */
#include "jinja_internal.h"

static bool is_true(struct render *r, value v) {
    return given(v) && truth(r, v);
}

static value lower_if_str(struct render *r, value v) {
    return v.kind == V_STR ? str_case(r, v.s, CASE_LOWER) : v;
}

/* The value that attribute= picks; without case, strings in lower case. */
static value key_of(struct render *r, value item, value attribute, value missing, bool with_case) {
    if (given(attribute)) item = get_path(r, item, attribute, missing);
    return with_case ? item : lower_if_str(r, item);
}

static value lazy(struct render *r, bool (*next)(struct render *r, struct iter *it, value *out),
                  const value *v, size_t n_args) {
    struct iter *it = iter_new(r, next);
    it->source = v[0];
    for (size_t i = 0; i < n_args; i++) it->args[i] = v[1 + i];
    return val_iter(it);
}

/* ---- one item, or one value of all ---------------------------------------------------------- */

static value filter_first(struct render *r, value *v, struct call *c) {
    value first;
    if (iter_next(r, iter_of(r, v[0]), &first)) return first;
    return val_undefined(r, "no first item, the sequence was empty");
}

static value filter_last(struct render *r, value *v, struct call *c) {
    value last;
    struct iter *it = iter_reversed(r, v[0]);
    if (!it) fail(r, "a value of type %s has no last item", kind_name(v[0]));
    if (iter_next(r, it, &last)) return last;
    return val_undefined(r, "no last item, the sequence was empty");
}

static value extreme(struct render *r, value *v, enum op op) {
    struct iter *it = iter_of(r, v[0]);
    value best, item, best_key;
    if (!iter_next(r, it, &best)) return val_undefined(r, "no item, the sequence was empty");
    best_key = key_of(r, best, v[2], val_missing(), is_true(r, v[1]));
    while (iter_next(r, it, &item)) {
        value key = key_of(r, item, v[2], val_missing(), is_true(r, v[1]));
        if (!less(r, key, best_key, op)) continue;
        best = item;
        best_key = key;
    }
    return best;
}

static value filter_min(struct render *r, value *v, struct call *c) {
    return extreme(r, v, OP_LT);
}

static value filter_max(struct render *r, value *v, struct call *c) {
    return extreme(r, v, OP_GT);
}

static value filter_sum(struct render *r, value *v, struct call *c) {
    bool picks = given(v[1]) && v[1].kind != V_NONE;
    struct iter *it = iter_of(r, v[0]);
    value sum = given(v[2]) ? v[2] : val_int(0);
    if (sum.kind == V_STR) fail(r, "sum cannot add strings; use join");
    for (value item; iter_next(r, it, &item);)
        sum = arith(r, OP_ADD, sum, picks ? get_path(r, item, v[1], val_missing()) : item);
    return sum;
}

static value filter_join(struct render *r, value *v, struct call *c) {
    bool picks = given(v[2]) && v[2].kind != V_NONE, more = false;
    const struct str *between = given(v[1]) ? to_str(r, v[1]) : NULL;
    struct iter *it = iter_of(r, v[0]);
    size_t mark = out_begin(r);
    for (value item; iter_next(r, it, &item); more = true) {
        if (more && between) out_str(r, between);
        print_value(r, picks ? get_path(r, item, v[2], val_missing()) : item);
    }
    return out_end(r, mark);
}

/* ---- all items, in another order or shape --------------------------------------------------- */

static value filter_list(struct render *r, value *v, struct call *c) {
    return to_list(r, v[0]);
}

static value filter_reverse(struct render *r, value *v, struct call *c) {
    if (v[0].kind == V_STR) return get_slice(r, v[0], val_none(), val_none(), val_int(-1));
    struct iter *it = iter_reversed(r, v[0]);
    if (it) return val_iter(it);
    if (!is_iterable(v[0])) fail(r, "argument must be iterable");
    value list = to_list(r, v[0]);
    return get_slice(r, list, val_none(), val_none(), val_int(-1));
}

/* Attributes "a,b.c" to the list of their values: what sort compares. */
static value sort_key(struct render *r, value item, value attributes, bool with_case) {
    struct list *key = list_start(r);
    if (!given(attributes) || attributes.kind != V_STR) {
        list_push(r, key, key_of(r, item, attributes, val_missing(), with_case));
        return list_done(key);
    }
    const struct str *s = attributes.s;
    for (size_t from = 0, to; from <= s->len; from = to + 1) {
        const char *comma = memchr(s->data + from, ',', s->len - from);
        to = comma ? (size_t)(comma - s->data) : s->len;
        value path = val_str(str_part(r, s, from, to));
        list_push(r, key, key_of(r, item, path, val_missing(), with_case));
    }
    return list_done(key);
}

static value filter_sort(struct render *r, value *v, struct call *c) {
    value list = to_list(r, v[0]), keys = list_new(r, list.list->n, V_LIST);
    for (size_t i = 0; i < list.list->n; i++)
        keys.list->items[i] = sort_key(r, list.list->items[i], v[3], is_true(r, v[2]));
    return sort_values(r, list, keys, is_true(r, v[1]));
}

static value items_view(struct render *r, value v, const char *who) {
    if (v.kind == V_UNDEFINED) fail_undefined(r, v);
    if (v.kind != V_DICT) fail(r, "%s needs a mapping, not %s", who, kind_name(v));
    return (value){.kind = V_VIEW, .aux = VIEW_ITEMS, .dict = v.dict};
}

static value filter_dictsort(struct render *r, value *v, struct call *c) {
    bool by_value = given(v[2]) && v[2].kind == V_STR && str_is(v[2].s, "value");
    if (given(v[2]) && !by_value && !(v[2].kind == V_STR && str_is(v[2].s, "key")))
        fail(r, "dictsort: you can only sort by either \"key\" or \"value\"");
    value items = to_list(r, items_view(r, v[0], "dictsort"));
    value keys = list_new(r, items.list->n, V_LIST);
    for (size_t i = 0; i < items.list->n; i++) {
        value key = items.list->items[i].list->items[by_value];
        keys.list->items[i] = is_true(r, v[1]) ? key : lower_if_str(r, key);
    }
    return sort_values(r, items, keys, is_true(r, v[3]));
}

static value group_of(struct render *r, value key, struct list *items) {
    value group = pair_of(r, key, list_done(items));
    group.aux = TUPLE_GROUP;
    return group;
}

static value filter_groupby(struct render *r, value *v, struct call *c) {
    value missing = given(v[2]) && v[2].kind != V_NONE ? v[2] : val_missing();
    bool with_case = is_true(r, v[3]);
    value list = to_list(r, v[0]), keys = list_new(r, list.list->n, V_LIST);
    struct list *groups = list_start(r), *group = NULL;
    value group_key = val_none();
    for (size_t i = 0; i < list.list->n; i++)
        keys.list->items[i] = key_of(r, list.list->items[i], v[1], missing, with_case);
    value sorted = sort_values(r, list, keys, false);
    keys = sort_values(r, keys, keys, false);
    for (size_t i = 0; i < sorted.list->n; i++) {
        value key = keys.list->items[i], item = sorted.list->items[i];
        if (!group || !equal(r, key, group_key)) {
            group = list_start(r);
            group_key = key;
            list_push(r, groups, group_of(r, key_of(r, item, v[1], missing, true), group));
        }
        list_push(r, group, item);
    }
    return list_done(groups);
}

/* ---- lazily --------------------------------------------------------------------------------- */

static bool next_pair(struct render *r, struct iter *it, value *out) {
    if (!it->inner)
        it->inner = iter_of(r, it->source.kind == V_UNDEFINED ? it->source
                                                              : items_view(r, it->source, "items"));
    return iter_next(r, it->inner, out);
}

static value filter_items(struct render *r, value *v, struct call *c) {
    return lazy(r, next_pair, v, 0);
}

static bool next_unique(struct render *r, struct iter *it, value *out) {
    value ignored;
    if (!it->inner) {
        it->inner = iter_of(r, it->source);
        it->args[2] = val_dict(dict_new(r, 0));
    }
    while (iter_next(r, it->inner, out)) {
        value key = key_of(r, *out, it->args[1], val_missing(), is_true(r, it->args[0]));
        if (dict_get(r, it->args[2].dict, key, &ignored)) continue;
        dict_put(r, it->args[2].dict, key, val_none());
        return true;
    }
    return false;
}

static value filter_unique(struct render *r, value *v, struct call *c) {
    return lazy(r, next_unique, v, 2);
}

static bool next_batch(struct render *r, struct iter *it, value *out) {
    struct list *batch = list_start(r);
    value item, size = it->args[0];
    if (!it->inner) it->inner = iter_of(r, it->source);
    while (!(is_number(size) && equal(r, val_int((int64_t)batch->n), size) && batch->n) &&
           iter_next(r, it->inner, &item))
        list_push(r, batch, item);
    if (!batch->n) return false;
    if (given(it->args[1]) && it->args[1].kind != V_NONE)
        for (int64_t n = need_int(r, size, "linecount"); (int64_t)batch->n < n;)
            list_push(r, batch, it->args[1]);
    *out = list_done(batch);
    return true;
}

static value filter_batch(struct render *r, value *v, struct call *c) {
    if (is_number(v[1]) && float_of(v[1]) < 1) fail(r, "batch: linecount must be positive");
    return lazy(r, next_batch, v, 2);
}

static bool next_slice(struct render *r, struct iter *it, value *out) {
    value fill = it->args[1];
    int64_t slices = need_int(r, it->args[0], "slices"), i = (int64_t)it->at++;
    if (!it->started) it->args[2] = to_list(r, it->source);
    it->started = true;
    if (slices == 0) fail(r, "division by zero");
    if (i >= slices) return false;
    int64_t n = (int64_t)it->args[2].list->n, each = n / slices, longer = n % slices;
    int64_t from = i * each + MIN(i, longer), to = from + each + (i < longer);
    struct list *slice = list_start(r);
    for (int64_t k = from; k < to; k++) list_push(r, slice, it->args[2].list->items[k]);
    if (given(fill) && fill.kind != V_NONE && i >= longer) list_push(r, slice, fill);
    *out = list_done(slice);
    return true;
}

static value filter_slice(struct render *r, value *v, struct call *c) {
    return lazy(r, next_slice, v, 2);
}

/* ---- map, select and their kin -------------------------------------------------------------- */

static struct call *call_copy(struct render *r, const struct call *from) {
    struct call *c = render_alloc(r, sizeof *c);
    call_init(c);
    for (size_t i = 0; i < from->n_pos; i++) call_push(r, c, from->pos[i]);
    for (size_t i = 0; i < from->n_kw; i++) call_push_kw(r, c, from->kw[i].name, from->kw[i].val);
    return c;
}

/* it->fn on an item with the arguments that were given along. */
static value apply(struct render *r, struct iter *it, value item) {
    struct call c = *it->call;
    struct kwarg kw[COUNT_OF(c.kw_buf)];
    if (c.n_kw <= COUNT_OF(kw)) { /* binding takes arguments out */
        memcpy(kw, it->call->kw, c.n_kw * sizeof *kw);
        c.kw = kw;
    } else {
        c.kw = render_alloc(r, c.n_kw * sizeof *kw);
        memcpy(c.kw, it->call->kw, c.n_kw * sizeof *kw);
    }
    return call_builtin(r, it->fn, item, &c);
}

static void find_function(struct render *r, struct iter *it, const char *what,
                          const struct builtin *(*find)(const struct str *name)) {
    struct call *c = it->call;
    value name = c->pos[0];
    it->fn = name.kind == V_STR ? find(name.s) : NULL;
    if (!it->fn)
        fail(r, "no %s named '%.*s'", what, name.kind == V_STR ? (int)MIN(name.s->len, 100) : 0,
             name.kind == V_STR ? name.s->data : "");
    c->pos++;
    c->n_pos--;
}

static value take_kw(struct call *c, const char *name) {
    for (size_t i = 0; i < c->n_kw; i++) {
        if (!str_is(c->kw[i].name, name)) continue;
        value v = c->kw[i].val;
        memmove(&c->kw[i], &c->kw[i + 1], (--c->n_kw - i) * sizeof *c->kw);
        return v;
    }
    return val_missing();
}

/* map(attribute=…, default=…): args[0] and args[1]; map(filter, …): fn. False: nothing to map. */
static bool prepare_map(struct render *r, struct iter *it) {
    it->started = true;
    if (!truth(r, it->source)) return false;
    it->inner = iter_of(r, it->source);
    value attribute = it->call->n_pos ? val_missing() : take_kw(it->call, "attribute");
    if (!given(attribute)) {
        if (!it->call->n_pos) fail(r, "map requires a filter argument");
        return true;
    }
    it->args[0] = attribute;
    it->args[1] = take_kw(it->call, "default");
    if (it->args[1].kind == V_NONE) it->args[1] = val_missing();
    if (it->call->n_kw) fail(r, "map: unexpected keyword argument");
    return true;
}

static bool next_mapped(struct render *r, struct iter *it, value *out) {
    value item;
    if (!it->started && !prepare_map(r, it)) return false;
    if (!iter_next(r, it->inner, &item)) return false;
    if (given(it->args[0])) {
        *out = get_path(r, item, it->args[0], it->args[1]);
        return true;
    }
    if (!it->fn) find_function(r, it, "filter", filter_find);
    *out = apply(r, it, item);
    return true;
}

static value filter_map(struct render *r, value *v, struct call *c) {
    value mapped = lazy(r, next_mapped, v, 0);
    mapped.iter->call = call_copy(r, c);
    return mapped;
}

/* select(test, …) and selectattr(attribute, test, …): args[0] is the attribute. */
static bool prepare_select(struct render *r, struct iter *it) {
    it->started = true;
    if (!truth(r, it->source)) return false;
    it->inner = iter_of(r, it->source);
    if (it->args[1].b) {
        if (!it->call->n_pos) fail(r, "missing parameter for attribute name");
        it->args[0] = *it->call->pos++;
        it->call->n_pos--;
    }
    return true;
}

static bool next_selected(struct render *r, struct iter *it, value *out) {
    if (!it->started && !prepare_select(r, it)) return false;
    while (iter_next(r, it->inner, out)) {
        value v = given(it->args[0]) ? get_path(r, *out, it->args[0], val_missing()) : *out;
        if (!it->fn && it->call->n_pos) find_function(r, it, "test", test_find);
        if (truth(r, it->fn ? apply(r, it, v) : v) != it->negated) return true;
    }
    return false;
}

static value selecting(struct render *r, value *v, struct call *c, bool by_attribute,
                       bool negated) {
    value selected = lazy(r, next_selected, v, 0);
    selected.iter->call = call_copy(r, c);
    selected.iter->args[1] = val_bool(by_attribute);
    selected.iter->negated = negated;
    return selected;
}

static value filter_select(struct render *r, value *v, struct call *c) {
    return selecting(r, v, c, false, false);
}

static value filter_reject(struct render *r, value *v, struct call *c) {
    return selecting(r, v, c, false, true);
}

static value filter_selectattr(struct render *r, value *v, struct call *c) {
    return selecting(r, v, c, true, false);
}

static value filter_rejectattr(struct render *r, value *v, struct call *c) {
    return selecting(r, v, c, true, true);
}

const struct builtin sequence_filters[] = {
    {"batch", filter_batch, "linecount ?fill_with"},
    {"dictsort", filter_dictsort, "?case_sensitive ?by ?reverse"},
    {"first", filter_first, ""},
    {"groupby", filter_groupby, "attribute ?default ?case_sensitive"},
    {"items", filter_items, ""},
    {"join", filter_join, "?d ?attribute"},
    {"last", filter_last, ""},
    {"list", filter_list, ""},
    {"map", filter_map, "*"},
    {"max", filter_max, "?case_sensitive ?attribute"},
    {"min", filter_min, "?case_sensitive ?attribute"},
    {"reject", filter_reject, "*"},
    {"rejectattr", filter_rejectattr, "*"},
    {"reverse", filter_reverse, ""},
    {"select", filter_select, "*"},
    {"selectattr", filter_selectattr, "*"},
    {"slice", filter_slice, "slices ?fill_with"},
    {"sort", filter_sort, "?reverse ?case_sensitive ?attribute"},
    {"sum", filter_sum, "?attribute ?start"},
    {"unique", filter_unique, "?case_sensitive ?attribute"},
    {0}};
