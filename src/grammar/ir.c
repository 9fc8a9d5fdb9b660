/* Rules as trees, built bottom up. Nodes are simplified as they are made: what cannot match is
 * IR_NEVER whatever stands around it, neighbouring texts become one. */
#include "grammar_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool array_reserve(void *array, size_t *cap, size_t n, size_t size) {
    if (n <= *cap) return true;
    void *old;
    memcpy(&old, array, sizeof old);
    size_t bigger = MAX(n, *cap + *cap / 2 + 16);
    void *grown = mem_resize(old, bigger, size);
    if (!grown) return false;
    memcpy(array, &grown, sizeof grown);
    *cap = bigger;
    return true;
}

/* ---- life and budget ------------------------------------------------------------------------ */

int ir_init(ir *g, const grammar_limits *limits, icp_error *err) {
    *g = (ir){.err = err, .steps_left = DEFAULT_STEPS, .memory_left = DEFAULT_MEMORY};
    if (limits && limits->steps) g->steps_left = limits->steps;
    if (limits && limits->memory) g->memory_left = limits->memory;
    if (limits) g->cancel = limits->cancel;
    g->items = mem_zero(2, sizeof *g->items);
    if (!g->items) return error_set(err, ICP_ENOMEM, "out of memory");
    g->items[IR_EMPTY].kind = IR_KIND_EMPTY;
    g->n_items = g->cap_items = 2;
    return 0;
}

void ir_fini(ir *g) {
    mem_free(g->items);
    mem_free(g->kids);
    mem_free(g->ranges);
    mem_free(g->rules);
    mem_free(g->text);
    *g = (ir){0};
}

void ir_fail(ir *g, int code, const char *format, ...) {
    if (g->rc < 0) return;
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    g->rc = error_set(g->err, code, "%s", text);
}

bool ir_tick(ir *g, size_t steps) {
    if (g->rc < 0) return false;
    if (steps >= g->steps_left) {
        g->steps_left = 0;
        ir_fail(g, ICP_ELIMIT, "the grammar is too complex");
        return false;
    }
    g->steps_left -= steps;
    if (g->cancel && atomic_load_explicit(g->cancel, memory_order_relaxed))
        ir_fail(g, ICP_ECANCELLED, "cancelled");
    return g->rc == 0;
}

/* Room for n more items of an array that has `used`. */
static bool make_room(ir *g, void *array, size_t *cap, size_t used, size_t n, size_t size) {
    if (!ir_tick(g, n + 1)) return false;
    if (n * size > g->memory_left || used + n >= UINT32_MAX) {
        ir_fail(g, ICP_ELIMIT, "the grammar is too large");
        return false;
    }
    if (!array_reserve(array, cap, used + n, size)) {
        ir_fail(g, ICP_ENOMEM, "out of memory");
        return false;
    }
    g->memory_left -= n * size;
    return true;
}

static ir_node add_item(ir *g, ir_item item) {
    if (!make_room(g, &g->items, &g->cap_items, g->n_items, 1, sizeof item)) return IR_NEVER;
    g->items[g->n_items] = item;
    return (ir_node)g->n_items++;
}

void node_list_add(ir *g, node_list *list, ir_node node) {
    if (!make_room(g, &list->node, &list->cap, list->n, 1, sizeof node)) return;
    list->node[list->n++] = node;
}

void node_list_fini(node_list *list) {
    mem_free(list->node);
    *list = (node_list){0};
}

/* ---- nodes ---------------------------------------------------------------------------------- */

ir_node ir_text(ir *g, const char *bytes, size_t len) {
    if (len == 0) return IR_EMPTY;
    if (!make_room(g, &g->text, &g->cap_text, g->n_text, len, 1)) return IR_NEVER;
    memcpy(g->text + g->n_text, bytes, len);
    g->n_text += len;
    return add_item(g, (ir_item){IR_KIND_TEXT, (uint32_t)(g->n_text - len), (uint32_t)len, 0});
}

static int compare_ranges(const void *a, const void *b) {
    const ir_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Appends a range, leaving surrogates out. */
static void put_range(ir *g, int32_t lo, int32_t hi) {
    if (lo < 0xd800 && hi > 0xdfff) {
        put_range(g, lo, 0xd7ff);
        put_range(g, 0xe000, hi);
        return;
    }
    if (lo >= 0xd800 && lo <= 0xdfff) lo = 0xe000;
    if (hi >= 0xd800 && hi <= 0xdfff) hi = 0xd7ff;
    if (lo > hi || !make_room(g, &g->ranges, &g->cap_ranges, g->n_ranges, 1, sizeof(ir_range)))
        return;
    g->ranges[g->n_ranges++] = (ir_range){lo, hi};
}

/* sorted: in order of lo. */
static void put_union(ir *g, const ir_range *sorted, size_t n, bool negated) {
    int32_t next = 0; /* the first code point not yet decided on */
    for (size_t i = 0; i < n;) {
        int32_t lo = MAX(sorted[i].lo, next), hi = sorted[i].hi;
        for (i++; i < n && sorted[i].lo <= hi + 1; i++) hi = MAX(hi, sorted[i].hi);
        if (lo > hi) continue;
        if (negated && lo > next) put_range(g, next, lo - 1);
        if (!negated) put_range(g, lo, hi);
        next = hi + 1;
    }
    if (negated && next <= MAX_CODE_POINT) put_range(g, next, MAX_CODE_POINT);
}

ir_node ir_class(ir *g, const ir_range *ranges, size_t n, bool negated) {
    ir_range *sorted = mem_alloc(n * sizeof *sorted);
    if (!sorted) ir_fail(g, ICP_ENOMEM, "out of memory");
    if (!sorted || !ir_tick(g, n + 1)) {
        mem_free(sorted);
        return IR_NEVER;
    }
    if (n) memcpy(sorted, ranges, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_ranges);
    size_t first = g->n_ranges;
    put_union(g, sorted, n, negated);
    mem_free(sorted);
    size_t count = g->n_ranges - first;
    if (count == 0) return IR_NEVER;
    ir_range only = g->ranges[first];
    if (count == 1 && only.lo == only.hi) { /* one character: a text, which alternatives share */
        char bytes[4];
        return ir_text(g, bytes, (size_t)utf8_encode(only.lo, bytes));
    }
    return add_item(g, (ir_item){IR_KIND_CLASS, (uint32_t)first, (uint32_t)count, 0});
}

static ir_node add_kids(ir *g, enum ir_kind kind, const ir_node *nodes, size_t n) {
    if (!make_room(g, &g->kids, &g->cap_kids, g->n_kids, n, sizeof *nodes)) return IR_NEVER;
    memcpy(g->kids + g->n_kids, nodes, n * sizeof *nodes);
    g->n_kids += n;
    return add_item(g, (ir_item){kind, (uint32_t)(g->n_kids - n), (uint32_t)n, 0});
}

/* One node for two neighbouring texts; IR_NEVER when they are not. */
static ir_node join_texts(ir *g, ir_node a, ir_node b) {
    ir_item x = g->items[a], y = g->items[b];
    if (x.kind != IR_KIND_TEXT || y.kind != IR_KIND_TEXT) return IR_NEVER;
    size_t len = (size_t)x.count + y.count;
    if (x.first + x.count == y.first) /* they stand together already */
        return add_item(g, (ir_item){IR_KIND_TEXT, x.first, (uint32_t)len, 0});
    if (!make_room(g, &g->text, &g->cap_text, g->n_text, len, 1)) return IR_NEVER;
    memcpy(g->text + g->n_text, g->text + x.first, x.count);
    memcpy(g->text + g->n_text + x.count, g->text + y.first, y.count);
    g->n_text += len;
    return add_item(g, (ir_item){IR_KIND_TEXT, (uint32_t)(g->n_text - len), (uint32_t)len, 0});
}

/* Appends a node to a sequence: neighbouring texts become one, the parts of a sequence its own. */
static void append(ir *g, node_list *seq, ir_node node) {
    ir_item item = g->items[node];
    if (item.kind == IR_KIND_SEQ) {
        for (uint32_t i = 0; i < item.count && g->rc == 0; i++)
            append(g, seq, g->kids[item.first + i]); /* these are no sequences */
        return;
    }
    if (node == IR_EMPTY) return;
    ir_node joined = seq->n ? join_texts(g, seq->node[seq->n - 1], node) : IR_NEVER;
    if (joined != IR_NEVER)
        seq->node[seq->n - 1] = joined;
    else
        node_list_add(g, seq, node);
}

ir_node ir_seq(ir *g, const ir_node *nodes, size_t n) {
    node_list seq = {0};
    bool never = false;
    for (size_t i = 0; i < n && g->rc == 0 && !never; i++) {
        never = nodes[i] == IR_NEVER;
        if (!never) append(g, &seq, nodes[i]);
    }
    ir_node made = never ? IR_NEVER : seq.n == 0 ? IR_EMPTY : seq.node[0];
    if (seq.n > 1 && !never) made = add_kids(g, IR_KIND_SEQ, seq.node, seq.n);
    node_list_fini(&seq);
    return g->rc < 0 ? IR_NEVER : made;
}

ir_node ir_pair(ir *g, ir_node a, ir_node b) {
    return ir_seq(g, (ir_node[]){a, b}, 2);
}

ir_node ir_alt(ir *g, const ir_node *nodes, size_t n) {
    node_list kept = {0};
    for (size_t i = 0; i < n && g->rc == 0; i++)
        if (nodes[i] != IR_NEVER) node_list_add(g, &kept, nodes[i]);
    ir_node made = kept.n == 0 ? IR_NEVER : kept.node[0];
    if (kept.n > 1) made = add_kids(g, IR_KIND_ALT, kept.node, kept.n);
    node_list_fini(&kept);
    return g->rc < 0 ? IR_NEVER : made;
}

ir_node ir_either(ir *g, ir_node a, ir_node b) {
    return ir_alt(g, (ir_node[]){a, b}, 2);
}

ir_node ir_repeat(ir *g, ir_node node, uint32_t min, uint32_t max) {
    if (min > max) {
        ir_fail(g, ICP_EINVALID, "a repetition has its minimum (%u) above its maximum (%u)", min,
                max);
        return IR_NEVER;
    }
    if (max == 0 || node == IR_EMPTY) return IR_EMPTY;
    if (node == IR_NEVER) return min == 0 ? IR_EMPTY : IR_NEVER;
    if (min == 1 && max == 1) return node;
    return add_item(g, (ir_item){IR_KIND_REPEAT, node, min, max});
}

/* Parts that cannot match are left out, where they may be. */
ir_node ir_series(ir *g, const ir_node *parts, const bool *needed, size_t n, ir_node between) {
    node_list kids = {0};
    bool never = between == IR_NEVER;
    node_list_add(g, &kids, between);
    for (size_t i = 0; i < n && g->rc == 0; i++) {
        if (parts[i] == IR_NEVER) {
            never |= needed[i];
            continue;
        }
        node_list_add(g, &kids, parts[i]);
        node_list_add(g, &kids, needed[i] ? IR_NEVER : IR_EMPTY);
    }
    ir_node made = IR_NEVER;
    if (!never && kids.n == 3) made = kids.node[1];
    if (!never && kids.n > 3) made = add_kids(g, IR_KIND_SERIES, kids.node, kids.n);
    node_list_fini(&kids);
    return g->rc < 0 ? IR_NEVER : made;
}

uint32_t ir_rule_new(ir *g) {
    if (!make_room(g, &g->rules, &g->cap_rules, g->n_rules, 1, sizeof *g->rules)) return UINT32_MAX;
    g->rules[g->n_rules] = (ir_rule){0};
    return (uint32_t)g->n_rules++;
}

void ir_rule_define(ir *g, uint32_t rule, ir_node node) {
    if (g->rc == 0) g->rules[rule] = (ir_rule){node, true};
}

ir_node ir_call(ir *g, uint32_t rule) {
    if (g->rc < 0) return IR_NEVER;
    return add_item(g, (ir_item){IR_KIND_RULE, rule, 0, 0});
}

/* ---- characters of strings ------------------------------------------------------------------ */

static char quote_of(const ir *g) {
    return g->spelling.single ? '\'' : '"';
}

/* A character below 128 as JSON's own printer spells it. */
static ir_node json_escape(ir *g, int32_t cp) {
    char raw = (char)cp;
    return ir_string_text(g, &raw, 1);
}

/* Splits ranges into characters that stand for themselves (into plain) and escapes. */
static size_t split_plain(ir *g, ir_item class, ir_range *plain, node_list *escapes) {
    size_t n = 0;
    for (uint32_t i = 0; i < class.count && g->rc == 0; i++) {
        ir_range r = g->ranges[class.first + i];
        for (; r.lo <= MIN(r.hi, '\\'); r.lo++) {
            if (r.lo < 0x20 || r.lo == quote_of(g) || r.lo == '\\')
                node_list_add(g, escapes, json_escape(g, r.lo));
            else
                plain[n++] = (ir_range){r.lo, r.lo};
        }
        if (r.lo <= r.hi) plain[n++] = r;
    }
    return n;
}

static ir_node json_class(ir *g, ir_item item) {
    node_list spellings = {0};
    ir_range *plain = mem_alloc((item.count + 128) * sizeof *plain);
    if (plain) {
        size_t n_plain = split_plain(g, item, plain, &spellings);
        node_list_add(g, &spellings, ir_class(g, plain, n_plain, false));
    } else {
        ir_fail(g, ICP_ENOMEM, "out of memory");
    }
    mem_free(plain);
    ir_node made = ir_alt(g, spellings.node, spellings.n);
    node_list_fini(&spellings);
    return made;
}

int32_t ir_barred(const ir *g) {
    int32_t cp = -1;
    const char *mark = g->spelling.mark;
    if (mark && mark[0] != GRAMMAR_TOKEN[0]) utf8_decode(mark, strlen(mark), &cp);
    return cp;
}

/* A class without the barred character. */
static ir_node without_barred(ir *g, ir_node node) {
    ir_item item = g->items[node];
    int32_t barred = ir_barred(g);
    ir_range *kept = mem_alloc((item.count + 1) * sizeof *kept);
    size_t n = 0;
    if (!kept) ir_fail(g, ICP_ENOMEM, "out of memory");
    for (uint32_t i = 0; kept && i < item.count; i++) {
        ir_range r = g->ranges[item.first + i];
        bool split = barred >= r.lo && barred <= r.hi;
        if (!split) kept[n++] = r;
        if (split && r.lo < barred) kept[n++] = (ir_range){r.lo, barred - 1};
        if (split && r.hi > barred) kept[n++] = (ir_range){barred + 1, r.hi};
    }
    ir_node made = kept ? ir_class(g, kept, n, false) : IR_NEVER;
    mem_free(kept);
    return made;
}

/* A class of one character, which is a text. */
static ir_node one_character(ir *g, ir_node node) {
    ir_item item = g->items[node];
    const char *text = g->text + item.first;
    int32_t cp;
    utf8_decode(text, item.count, &cp);
    if (cp == ir_barred(g)) return IR_NEVER;
    bool plain = g->spelling.raw || (cp >= 0x20 && cp != quote_of(g) && cp != '\\');
    return plain ? node : json_escape(g, cp);
}

ir_node ir_string_class(ir *g, const ir_range *ranges, size_t n, bool negated) {
    ir_node all = ir_class(g, ranges, n, negated);
    if (all != IR_NEVER && g->items[all].kind != IR_KIND_TEXT && ir_barred(g) >= 0)
        all = without_barred(g, all);
    if (all == IR_NEVER) return all;
    if (g->items[all].kind == IR_KIND_TEXT) return one_character(g, all);
    return g->spelling.raw ? all : json_class(g, g->items[all]);
}

ir_node ir_text_without_mark(ir *g, const char *text, size_t len) {
    const char *mark = g->spelling.mark;
    buf ended = {0};
    buf_put(&ended, text, len);
    if (mark) buf_puts(&ended, mark);
    if (ended.failed) ir_fail(g, ICP_ENOMEM, "out of memory");
    const char *end =
        mark && !ended.failed ? memmem(ended.data, ended.len, mark, strlen(mark)) : NULL;
    bool has = end && end != ended.data + len;
    buf_fini(&ended);
    return has || g->rc < 0 ? IR_NEVER : ir_text(g, text, len);
}

ir_node ir_string_text(ir *g, const char *text, size_t len) {
    if (g->spelling.raw) return ir_text_without_mark(g, text, len);
    buf json = {0};
    for (size_t i = 0;
         i < len;) { /* between the quotation marks that single ones treat otherwise */
        size_t n = i;
        while (n < len && !(g->spelling.single && strchr("'\"", text[n]) && text[n])) n++;
        buf_put_json(&json, text + i, n - i);
        if (n < len && text[n] == '\'') buf_putc(&json, '\\');
        if (n < len) buf_putc(&json, text[n]);
        i = n + 1;
    }
    if (json.failed) ir_fail(g, ICP_ENOMEM, "out of memory");
    ir_node made = g->rc < 0 ? IR_NEVER : ir_text_without_mark(g, json.data, json.len);
    buf_fini(&json);
    return made;
}
