/* Iteration. Iterators are lazy, as Python's generators are: what a map or select would fail at is
 * no error until somebody asks for that item. */
#include "jinja_internal.h"

struct iter *iter_new(struct render *r,
                      bool (*next)(struct render *r, struct iter *it, value *out)) {
    struct iter *it = render_alloc(r, sizeof *it);
    *it = (struct iter){.next = next};
    return it;
}

value val_iter(struct iter *it) {
    return (value){.kind = V_ITER, .iter = it};
}

bool iter_next(struct render *r, struct iter *it, value *out) {
    if (it->done) return false;
    charge(r, 1);
    enter(r);
    it->done = !it->next(r, it, out);
    leave(r);
    return !it->done;
}

/* ---- over values ---------------------------------------------------------------------------- */

static bool next_nothing(struct render *r, struct iter *it, value *out) {
    return false;
}

static bool next_item(struct render *r, struct iter *it, value *out) {
    if (it->at >= it->source.list->n) return false;
    *out = it->source.list->items[it->at++];
    return true;
}

static bool next_char(struct render *r, struct iter *it, value *out) {
    const struct str *s = it->source.s;
    int32_t cp;
    if (it->at >= s->len) return false;
    size_t width = (size_t)utf8_decode(s->data + it->at, s->len - it->at, &cp);
    *out = val_str(str_as_markup(r, str_part(r, s, it->at, it->at + width), false));
    it->at += width;
    return true;
}

static value view_item(struct render *r, value view, size_t i) {
    const struct entry *e = &view.dict->entries[i];
    if (view.kind == V_VIEW && view.aux == VIEW_VALUES) return e->val;
    if (view.kind == V_VIEW && view.aux == VIEW_ITEMS) return pair_of(r, e->key, e->val);
    return e->key;
}

static bool next_entry(struct render *r, struct iter *it, value *out) {
    if (it->at >= it->source.dict->n) return false;
    *out = view_item(r, it->source, it->at++);
    return true;
}

value range_item(const struct range *range, int64_t i) {
    return val_int(range->start + i * range->step);
}

static bool next_number(struct render *r, struct iter *it, value *out) {
    if ((int64_t)it->at >= it->source.range->n) return false;
    *out = range_item(it->source.range, (int64_t)it->at++);
    return true;
}

bool is_iterable(value v) {
    return has_length(v) || v.kind == V_ITER || v.kind == V_LOOP;
}

struct iter *iter_of(struct render *r, value v) {
    if (v.kind == V_ITER) return v.iter;
    struct iter *it = iter_new(r, next_nothing);
    it->source = v;
    switch (v.kind) {
    case V_UNDEFINED:
        return it;
    case V_STR:
        it->next = next_char;
        return it;
    case V_LIST:
    case V_TUPLE:
        it->next = next_item;
        return it;
    case V_DICT:
    case V_VIEW:
        it->next = next_entry;
        return it;
    case V_RANGE:
        it->next = next_number;
        return it;
    default:
        fail(r, "a value of type %s is not iterable", kind_name(v));
    }
}

value to_list(struct render *r, value v) {
    if (v.kind == V_LIST) return v;
    struct list *l = list_start(r);
    struct iter *it = iter_of(r, v);
    for (value item; iter_next(r, it, &item);) list_push(r, l, item);
    return list_done(l);
}

/* ---- backwards ------------------------------------------------------------------------------ */

static bool previous_item(struct render *r, struct iter *it, value *out) {
    value v = it->source;
    if (it->at == 0) return false;
    it->at--;
    if (v.kind == V_RANGE)
        *out = range_item(v.range, (int64_t)it->at);
    else if (v.kind == V_DICT || v.kind == V_VIEW)
        *out = view_item(r, v, it->at);
    else
        *out = v.list->items[it->at];
    return true;
}

static bool previous_char(struct render *r, struct iter *it, value *out) {
    const struct str *s = it->source.s;
    size_t end = it->at;
    if (end == 0) return false;
    do it->at--;
    while (it->at > 0 && ((unsigned char)s->data[it->at] & 0xc0) == 0x80);
    *out = val_str(str_as_markup(r, str_part(r, s, it->at, end), false));
    return true;
}

struct iter *iter_reversed(struct render *r, value v) {
    if (!has_length(v)) return NULL;
    struct iter *it = iter_new(r, v.kind == V_STR ? previous_char : previous_item);
    it->source = v;
    it->at = v.kind == V_STR ? v.s->len : length_of(r, v);
    return it;
}

/* ---- sorting -------------------------------------------------------------------------------- */

struct sortable {
    value key;
    value item;
};

static bool goes_first(struct render *r, const struct sortable *right, const struct sortable *left,
                       bool reverse) {
    return reverse ? less(r, left->key, right->key, OP_LT) : less(r, right->key, left->key, OP_LT);
}

static void merge(struct render *r, struct sortable *out, const struct sortable *left,
                  size_t n_left, const struct sortable *right, size_t n_right, bool reverse) {
    while (n_left && n_right) {
        if (goes_first(r, right, left, reverse)) {
            *out++ = *right++;
            n_right--;
        } else {
            *out++ = *left++;
            n_left--;
        }
    }
    memcpy(out, left, n_left * sizeof *out);
    memcpy(out + n_left, right, n_right * sizeof *out);
}

value sort_values(struct render *r, value list, value keys, bool reverse) {
    size_t n = list.list->n;
    struct sortable *from = render_alloc(r, n * sizeof *from);
    struct sortable *to = render_alloc(r, n * sizeof *to), *swap;
    for (size_t i = 0; i < n; i++)
        from[i] = (struct sortable){keys.list->items[i], list.list->items[i]};
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t at = 0; at < n; at += 2 * run) {
            size_t n_left = MIN(run, n - at), n_right = MIN(run, n - at - n_left);
            merge(r, to + at, from + at, n_left, from + at + n_left, n_right, reverse);
        }
        swap = from;
        from = to;
        to = swap;
    }
    value sorted = list_new(r, n, V_LIST);
    for (size_t i = 0; i < n; i++) sorted.list->items[i] = from[i].item;
    return sorted;
}
