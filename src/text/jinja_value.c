/* Lists, dicts, and what can be asked of any value. Truth, equality, order and hashing are
 * Python's: 1 == 1.0 == true and they are one key of a dict. */
#include "jinja_internal.h"

#include <math.h>

/* ---- making values -------------------------------------------------------------------------- */

value val_undefined(struct render *r, const char *why) {
    return (value){.kind = V_UNDEFINED, .aux = OTHER_REASON, .s = str_literal(r, why).s};
}

value val_undefined_name(const struct str *name) {
    return (value){.kind = V_UNDEFINED, .aux = NO_VARIABLE, .s = name};
}

value val_undefined_attr(value owner, const struct str *name, enum undefined_why why) {
    return (value){.kind = V_UNDEFINED, .aux = (uint8_t)why, .owner = owner.kind, .s = name};
}

const char *kind_name(value v) {
    static const char *const names[] = {[V_MISSING] = "nothing",
                                        [V_UNDEFINED] = "Undefined",
                                        [V_NONE] = "NoneType",
                                        [V_BOOL] = "bool",
                                        [V_INT] = "int",
                                        [V_FLOAT] = "float",
                                        [V_BIG] = "int beyond 64 bits",
                                        [V_STR] = "str",
                                        [V_LIST] = "list",
                                        [V_TUPLE] = "tuple",
                                        [V_DICT] = "dict",
                                        [V_VIEW] = "dict view",
                                        [V_RANGE] = "range",
                                        [V_ITER] = "generator",
                                        [V_NAMESPACE] = "Namespace",
                                        [V_LOOP] = "LoopContext",
                                        [V_MACRO] = "Macro",
                                        [V_FUNC] = "function",
                                        [V_CYCLER] = "Cycler",
                                        [V_JOINER] = "Joiner",
                                        [V_SELF] = "TemplateReference",
                                        [V_BLOCK] = "BlockReference"};
    return names[v.kind];
}

void fail_undefined(struct render *r, value v) {
    int len = v.s ? (int)MIN(v.s->len, 100) : 0;
    const char *name = v.s ? v.s->data : "";
    const char *owner = kind_name((value){.kind = v.owner});
    if (v.aux == NO_VARIABLE) fail(r, "'%.*s' is undefined", len, name);
    if (v.aux == NO_ATTRIBUTE) fail(r, "a %s has no attribute '%.*s'", owner, len, name);
    if (v.aux == UNSAFE_ATTRIBUTE)
        fail(r, "access to attribute '%.*s' of a %s is unsafe", len, name, owner);
    fail(r, "%.*s", len, name);
}

/* ---- lists ---------------------------------------------------------------------------------- */

value list_new(struct render *r, size_t n, enum kind kind) {
    if (n > r->limits.max_memory / sizeof(value)) fail_limit(r, "makes a list that is too long");
    struct list *l = render_alloc(r, sizeof *l);
    *l = (struct list){.items = render_alloc(r, n * sizeof(value)), .n = n};
    return (value){.kind = (uint8_t)kind, .list = l};
}

value list_of(struct render *r, const value *items, size_t n, enum kind kind) {
    value v = list_new(r, n, kind);
    if (n) memcpy(v.list->items, items, n * sizeof *items);
    return v;
}

value pair_of(struct render *r, value a, value b) {
    return list_of(r, (value[]){a, b}, 2, V_TUPLE);
}

value list_part(struct render *r, value list, size_t from, size_t to) {
    struct list *l = render_alloc(r, sizeof *l);
    *l = (struct list){list.list->items + from, to - from, list.list->room};
    return (value){.kind = list.kind, .list = l};
}

/* Appends in place when a ends where its room's used part ends: see struct room. */
static bool append_in_place(struct list *a, const struct list *b, struct list *out) {
    struct list_room *m = a->room;
    if (!m || a->items + a->n != m->items + m->used || m->cap - m->used < b->n) return false;
    if (b->n) memcpy(m->items + m->used, b->items, b->n * sizeof *b->items);
    m->used += b->n;
    *out = (struct list){a->items, a->n + b->n, m};
    return true;
}

value list_plus(struct render *r, value a, value b) {
    struct list *l = render_alloc(r, sizeof *l);
    size_t n = a.list->n + b.list->n;
    charge(r, b.list->n / 16);
    if (!append_in_place(a.list, b.list, l)) {
        if (n > r->limits.max_memory / sizeof(value))
            fail_limit(r, "makes a list that is too long");
        struct list_room *m = render_alloc(r, sizeof *m);
        size_t cap = a.list->room ? 2 * n : n;
        *m = (struct list_room){render_alloc(r, cap * sizeof(value)), a.list->n, cap};
        if (a.list->n) memcpy(m->items, a.list->items, a.list->n * sizeof(value));
        struct list copy = {m->items, a.list->n, m};
        append_in_place(&copy, b.list, l);
    }
    return (value){.kind = a.kind, .list = l};
}

struct list *list_start(struct render *r) {
    struct list *l = render_alloc(r, sizeof *l);
    struct list_room *m = render_alloc(r, sizeof *m);
    *m = (struct list_room){0};
    *l = (struct list){NULL, 0, m};
    return l;
}

void list_push(struct render *r, struct list *l, value v) {
    struct list_room *m = l->room;
    if (m->used == m->cap) {
        size_t cap = MAX(2 * m->cap, (size_t)8);
        if (cap > r->limits.max_memory / sizeof(value))
            fail_limit(r, "makes a list that is too long");
        value *items = render_alloc(r, cap * sizeof *items);
        if (l->n) memcpy(items, l->items, l->n * sizeof *items);
        m->items = l->items = items;
        m->cap = cap;
    }
    m->items[m->used++] = v;
    l->n++;
}

value list_done(struct list *l) {
    return (value){.kind = V_LIST, .list = l};
}

/* ---- hashing -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdULL;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ULL;
    return h ^ h >> 33;
}

static uint64_t hash_bytes(const char *data, size_t len) {
    uint64_t h = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)data[i]) * 0x100000001b3ULL;
    return mix(h);
}

static uint64_t hash_float(double f) {
    if (f == floor(f) && f >= -0x1p63 && f < 0x1p63) return mix((uint64_t)(int64_t)f);
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return mix(bits);
}

bool is_hashable(struct render *r, value v) {
    bool all = v.kind != V_LIST && v.kind != V_DICT && v.kind != V_VIEW;
    if (v.kind != V_TUPLE) return all;
    enter(r);
    for (size_t i = 0; all && i < v.list->n; i++) all = is_hashable(r, v.list->items[i]);
    leave(r);
    return all;
}

uint64_t hash_of(struct render *r, value v) {
    switch (v.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return mix(v.kind);
    case V_BOOL:
    case V_INT:
        return mix((uint64_t)int_of(v));
    case V_FLOAT:
        return hash_float(v.f);
    case V_STR:
    case V_BIG:
        charge(r, v.s->len / 64);
        return hash_bytes(v.s->data, v.s->len);
    case V_TUPLE: {
        uint64_t h = v.list->n;
        enter(r);
        for (size_t i = 0; i < v.list->n; i++) h = mix(h * 31 + hash_of(r, v.list->items[i]));
        leave(r);
        return h;
    }
    case V_RANGE: /* equal ranges may be written differently */
        return mix((uint64_t)v.range->n);
    case V_LIST:
    case V_DICT:
    case V_VIEW:
        fail(r, "a value of type %s cannot be a key", kind_name(v));
    default: /* objects are equal to themselves only */
        return mix(v.kind == V_FUNC ? (uintptr_t)v.func->builtin : (uintptr_t)v.iter);
    }
}

/* ---- dicts ---------------------------------------------------------------------------------- */

struct dict *dict_new(struct render *r, size_t expected) {
    struct dict *d = render_alloc(r, sizeof *d);
    *d = (struct dict){.cap = expected};
    if (expected > r->limits.max_memory / sizeof *d->entries)
        fail_limit(r, "makes a dict that is too large");
    d->entries = render_alloc(r, expected * sizeof *d->entries);
    return d;
}

value val_dict(struct dict *d) {
    return (value){.kind = V_DICT, .dict = d};
}

enum { LINEAR_SEARCH = 8 }; /* so few entries need no hash table */

static bool same_key(struct render *r, const struct entry *e, value key, uint64_t hash) {
    charge(r, 1);
    return e->hash == hash && equal(r, e->key, key);
}

/* The entry of a key, or NULL; *free gets the slot where it would belong. */
static struct entry *look_up(struct render *r, struct dict *d, value key, uint64_t hash,
                             size_t *free) {
    if (!d->n_slots) {
        for (size_t i = 0; i < d->n; i++)
            if (d->entries[i].hash == hash && same_key(r, &d->entries[i], key, hash))
                return &d->entries[i];
        return NULL;
    }
    size_t at = hash & (d->n_slots - 1);
    for (; d->slots[at]; at = (at + 1) & (d->n_slots - 1)) {
        struct entry *e = &d->entries[d->slots[at] - 1];
        if (same_key(r, e, key, hash)) return e;
    }
    if (free) *free = at;
    return NULL;
}

static void rehash(struct render *r, struct dict *d) {
    d->n_slots = 4 * d->cap;
    while (d->n_slots & (d->n_slots - 1)) d->n_slots &= d->n_slots - 1;
    d->slots = render_alloc(r, d->n_slots * sizeof *d->slots);
    memset(d->slots, 0, d->n_slots * sizeof *d->slots);
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->entries[i].hash & (d->n_slots - 1);
        while (d->slots[at]) {
            charge(r, 1);
            at = (at + 1) & (d->n_slots - 1);
        }
        d->slots[at] = (uint32_t)(i + 1);
    }
}

static void dict_grow(struct render *r, struct dict *d) {
    size_t cap = MAX(2 * d->cap, (size_t)LINEAR_SEARCH);
    if (cap > UINT32_MAX / 4 || cap > r->limits.max_memory / sizeof *d->entries)
        fail_limit(r, "makes a dict that is too large");
    struct entry *entries = render_alloc(r, cap * sizeof *entries);
    if (d->n) memcpy(entries, d->entries, d->n * sizeof *entries);
    d->entries = entries;
    d->cap = cap;
    d->n_slots = 0;
}

bool dict_get(struct render *r, struct dict *d, value key, value *out) {
    struct entry *e = look_up(r, d, key, hash_of(r, key), NULL);
    if (e) *out = e->val;
    return e != NULL;
}

bool dict_get_name(struct render *r, struct dict *d, const struct str *name, value *out) {
    return dict_get(r, d, val_str(name), out);
}

void dict_put(struct render *r, struct dict *d, value key, value v) {
    uint64_t hash = hash_of(r, key);
    size_t at = 0;
    struct entry *e = look_up(r, d, key, hash, &at);
    if (e) {
        e->val = v;
        return;
    }
    if (d->n == d->cap) dict_grow(r, d);
    if (!d->n_slots && d->n >= LINEAR_SEARCH) {
        rehash(r, d);
        look_up(r, d, key, hash, &at);
    }
    d->entries[d->n++] = (struct entry){key, v, hash};
    if (d->n_slots) d->slots[at] = (uint32_t)d->n;
}

/* ---- truth and length ----------------------------------------------------------------------- */

bool has_length(value v) {
    return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_DICT ||
           v.kind == V_VIEW || v.kind == V_RANGE || v.kind == V_UNDEFINED;
}

size_t length_of(struct render *r, value v) {
    switch (v.kind) {
    case V_UNDEFINED:
        return 0;
    case V_STR:
        return str_chars(r, v.s);
    case V_LIST:
    case V_TUPLE:
        return v.list->n;
    case V_DICT:
    case V_VIEW:
        return v.dict->n;
    case V_RANGE:
        return (size_t)v.range->n;
    case V_LOOP: {
        value n;
        loop_attr(r, v.loop, str_literal(r, "length").s, &n);
        return (size_t)n.i;
    }
    default:
        fail(r, "a value of type %s has no length", kind_name(v));
    }
}

bool truth(struct render *r, value v) {
    switch (v.kind) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s->len > 0;
    default:
        return has_length(v) || v.kind == V_LOOP ? length_of(r, v) > 0 : true;
    }
}

/* ---- equality and order --------------------------------------------------------------------- */

static bool equal_lists(struct render *r, const struct list *a, const struct list *b) {
    if (a == b) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal(r, a->items[i], b->items[i])) return false;
    return true;
}

static bool equal_dicts(struct render *r, struct dict *a, struct dict *b) {
    if (a == b) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        struct entry *e = look_up(r, b, a->entries[i].key, a->entries[i].hash, NULL);
        if (!e || !equal(r, a->entries[i].val, e->val)) return false;
    }
    return true;
}

static bool equal_ranges(const struct range *a, const struct range *b) {
    return a->n == b->n &&
           (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

static bool equal_same_kind(struct render *r, value a, value b) {
    switch (a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return true;
    case V_STR:
    case V_BIG:
        charge(r, MIN(a.s->len, b.s->len) / 64);
        return str_equal(a.s, b.s);
    case V_LIST:
    case V_TUPLE:
        return equal_lists(r, a.list, b.list);
    case V_DICT:
        return equal_dicts(r, a.dict, b.dict);
    case V_VIEW:
        if (a.aux == VIEW_VALUES || a.aux != b.aux) return a.dict == b.dict && a.aux == b.aux;
        fail(r, "comparing views of dicts is not supported");
    case V_RANGE:
        return equal_ranges(a.range, b.range);
    case V_FUNC:
        return a.func->builtin == b.func->builtin && a.func->self.kind == b.func->self.kind &&
               a.func->self.s == b.func->self.s;
    default:
        return a.iter == b.iter;
    }
}

bool equal(struct render *r, value a, value b) {
    charge(r, 1);
    if (is_number(a) && is_number(b)) {
        bool unordered;
        int order = compare_numbers(a, b, &unordered);
        return order == 0 && !unordered;
    }
    if (a.kind != b.kind) {
        if ((a.kind == V_BIG && b.kind == V_FLOAT) || (a.kind == V_FLOAT && b.kind == V_BIG))
            fail(r, "integers beyond 64 bits cannot be compared with floats");
        return false;
    }
    enter(r);
    bool same = equal_same_kind(r, a, b);
    leave(r);
    return same;
}

static bool ordered(enum op op, int order) {
    return op == OP_LT   ? order < 0
           : op == OP_LE ? order <= 0
           : op == OP_GT ? order > 0
                         : order >= 0;
}

/* Lists are ordered by their first items that differ. */
static bool less_lists(struct render *r, const struct list *a, const struct list *b, enum op op) {
    size_t i = 0;
    while (i < a->n && i < b->n && equal(r, a->items[i], b->items[i])) i++;
    if (i < a->n && i < b->n) return less(r, a->items[i], b->items[i], op);
    return ordered(op, (a->n > b->n) - (a->n < b->n));
}

bool less(struct render *r, value a, value b, enum op op) {
    charge(r, 1);
    if (a.kind == V_UNDEFINED) fail_undefined(r, a);
    if (b.kind == V_UNDEFINED) fail_undefined(r, b);
    if (is_number(a) && is_number(b)) {
        bool unordered;
        int order = compare_numbers(a, b, &unordered);
        return !unordered && ordered(op, order);
    }
    if (a.kind == V_STR && b.kind == V_STR) {
        charge(r, MIN(a.s->len, b.s->len) / 64);
        return ordered(op, str_compare(a.s, b.s));
    }
    if (a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE)) {
        enter(r);
        bool result = less_lists(r, a.list, b.list, op);
        leave(r);
        return result;
    }
    fail(r, "values of types %s and %s have no order", kind_name(a), kind_name(b));
}

static bool in_items(struct render *r, value container, value item) {
    struct iter *it = iter_of(r, container);
    for (value v; iter_next(r, it, &v);)
        if (equal(r, v, item)) return true;
    return false;
}

bool contains(struct render *r, value container, value item) {
    value ignored;
    if (container.kind == V_STR) {
        if (item.kind != V_STR) fail(r, "'in <string>' requires a string, not %s", kind_name(item));
        return str_find(r, container.s, 0, container.s->len, item.s) != SIZE_MAX;
    }
    if (container.kind == V_DICT || (container.kind == V_VIEW && container.aux == VIEW_KEYS))
        return dict_get(r, container.dict, item, &ignored);
    if (!is_iterable(container))
        fail(r, "a value of type %s cannot be searched with 'in'", kind_name(container));
    return in_items(r, container, item);
}
