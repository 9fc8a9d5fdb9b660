/* From rules to code over bytes.
 *
 * Code is built from its end: compile(node, next) emits what matches node and then goes on at
 * `next`, and returns where that begins, or PROGRAM_NOWHERE when it cannot match; so whatever
 * stands in front of something impossible is impossible too and leaves no code. Consequently:
 *
 *   1. From every place in the code some finite text leads to the end of the program.
 *   2. A call whose `b` is OP_END is a tail call: it need not be returned to.
 *
 * Three questions are answered first, for each rule: can it match the empty text, can it match any
 * finite text, can it call itself before it has taken a byte (which is refused).
 *
 * Alternatives that begin with texts share beginnings, as in a trie: of 5,000 strings of an enum
 * only those are looked at that agree with the text so far. A series has one such trie for all its
 * parts, in which at each branch the parts behind it are listed. Which of these may still come is
 * the automaton's to know; the lists tell it where one would lead:
 *
 *   SERIES ─▶ CHOICE ─"a":─▶ CHOICE ─▶ PICK 0 ─▶ its rest ─▶ END        parts "a":…, "ab":…, "c":…
 *                │[0 1]          └───▶ PICK 1 ─▶ …
 *                └[2] ─"c":─▶ PICK 2 ─▶ … */
#include "grammar_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct builder {
    ir *g;
    program *p;
    bool *nullable, *finite; /* by rule */
    uint32_t *queue;         /* rules that are called but not yet compiled */
    size_t n_queue;
} builder;

static const ir_node *kids_of(const ir *g, const ir_item *item) {
    bool has_kids =
        item->kind == IR_KIND_SEQ || item->kind == IR_KIND_ALT || item->kind == IR_KIND_SERIES;
    return has_kids ? g->kids + item->first : NULL;
}

/* ---- facts about rules ---------------------------------------------------------------------- */

static bool is_nullable(const builder *b, ir_node node) {
    const ir_item *item = &b->g->items[node];
    const ir_node *kids = kids_of(b->g, item);
    bool is_all = true;
    if (!ir_tick(b->g, 1)) return false;
    switch (item->kind) {
    case IR_KIND_EMPTY:
        return true;
    case IR_KIND_SEQ:
        for (uint32_t i = 0; is_all && i < item->count; i++) is_all = is_nullable(b, kids[i]);
        return is_all;
    case IR_KIND_ALT:
        for (uint32_t i = 0; i < item->count; i++)
            if (is_nullable(b, kids[i])) return true;
        return false;
    case IR_KIND_REPEAT:
        return item->count == 0 || is_nullable(b, item->first);
    case IR_KIND_RULE:
        return b->nullable[item->first];
    default:
        return false;
    }
}

static bool is_finite(const builder *b, ir_node node);

static bool is_series_finite(const builder *b, const ir_node *kids, uint32_t count) {
    bool some = false;
    for (uint32_t i = 1; i < count; i += 2) {
        bool finite = is_finite(b, kids[i]);
        if (!finite && kids[i + 1] == IR_NEVER) return false;
        some |= finite;
    }
    return some;
}

static bool is_finite(const builder *b, ir_node node) {
    const ir_item *item = &b->g->items[node];
    const ir_node *kids = kids_of(b->g, item);
    bool is_all = true;
    if (!ir_tick(b->g, 1)) return false;
    switch (item->kind) {
    case IR_KIND_NEVER:
        return false;
    case IR_KIND_SEQ:
        for (uint32_t i = 0; is_all && i < item->count; i++) is_all = is_finite(b, kids[i]);
        return is_all;
    case IR_KIND_ALT:
        for (uint32_t i = 0; i < item->count; i++)
            if (is_finite(b, kids[i])) return true;
        return false;
    case IR_KIND_REPEAT:
        return item->count == 0 || is_finite(b, item->first);
    case IR_KIND_SERIES:
        return is_series_finite(b, kids, item->count);
    case IR_KIND_RULE:
        return b->finite[item->first];
    default:
        return true;
    }
}

/* Least fixed points. Sweeps alternate, because long chains of rules run in one direction or the
 * other. */
static void find_facts(builder *b) {
    size_t n = b->g->n_rules;
    bool changed = true, backwards = false;
    for (; changed && b->g->rc == 0; backwards = !backwards) {
        changed = false;
        for (size_t i = 0; i < n && b->g->rc == 0; i++) {
            size_t r = backwards ? n - 1 - i : i;
            ir_node node = b->g->rules[r].node;
            bool nullable = b->nullable[r] || is_nullable(b, node);
            bool finite = b->finite[r] || is_finite(b, node);
            changed |= nullable != b->nullable[r] || finite != b->finite[r];
            b->nullable[r] = nullable;
            b->finite[r] = finite;
        }
    }
}

/* ---- left recursion ------------------------------------------------------------------------- */

/* Adds the rules that node can call before it takes a byte. */
static void list_left(const builder *b, ir_node node, node_list *out) {
    const ir_item *item = &b->g->items[node];
    const ir_node *kids = kids_of(b->g, item);
    if (!ir_tick(b->g, 1)) return;
    switch (item->kind) {
    case IR_KIND_SEQ:
        for (uint32_t i = 0; i < item->count; i++) {
            list_left(b, kids[i], out);
            if (!is_nullable(b, kids[i])) break;
        }
        break;
    case IR_KIND_ALT:
        for (uint32_t i = 0; i < item->count; i++) list_left(b, kids[i], out);
        break;
    case IR_KIND_REPEAT:
        list_left(b, item->first, out);
        break;
    case IR_KIND_RULE:
        if (b->finite[item->first]) node_list_add(b->g, out, item->first);
        break;
    default:
        break;
    }
}

/* Depth first over the rules, with a path of our own instead of recursion. A rule is on the path,
 * or was left for good, or was not yet seen. Each rule's callees stand in one list, of which the
 * path keeps the part that is still to be visited. */
typedef struct left_walk {
    enum left_mark { UNSEEN, ON_PATH, LEFT } * mark;
    struct left_step {
        uint32_t rule;
        size_t end; /* of its callees in the list; they are taken from the end */
        size_t begin;
    } * path;
    size_t depth;
    node_list callees;
} left_walk;

static void enter_rule(builder *b, left_walk *w, uint32_t rule) {
    size_t begin = w->callees.n;
    w->mark[rule] = ON_PATH;
    list_left(b, b->g->rules[rule].node, &w->callees);
    w->path[w->depth++] = (struct left_step){rule, w->callees.n, begin};
}

static void walk_left(builder *b, left_walk *w, uint32_t from) {
    if (w->mark[from] != UNSEEN) return;
    enter_rule(b, w, from);
    while (w->depth && b->g->rc == 0) {
        struct left_step *top = &w->path[w->depth - 1];
        if (top->end == top->begin) {
            w->mark[top->rule] = LEFT;
            w->callees.n = top->begin;
            w->depth--;
            continue;
        }
        uint32_t callee = w->callees.node[--top->end];
        w->callees.n = top->end;
        if (w->mark[callee] == ON_PATH)
            ir_fail(b->g, ICP_EUNSUPPORTED,
                    "a rule begins with itself (left recursion), which is not supported");
        else if (w->mark[callee] == UNSEEN)
            enter_rule(b, w, callee);
    }
}

static void refuse_left_recursion(builder *b) {
    left_walk w = {0};
    size_t n = b->g->n_rules;
    w.mark = mem_zero(n, sizeof *w.mark);
    w.path = mem_zero(n, sizeof *w.path);
    if (!w.mark || !w.path) ir_fail(b->g, ICP_ENOMEM, "out of memory");
    for (size_t r = 0; r < n && b->g->rc == 0; r++)
        if (b->finite[r]) walk_left(b, &w, (uint32_t)r);
    mem_free(w.mark);
    mem_free(w.path);
    node_list_fini(&w.callees);
}

/* ---- emitting ------------------------------------------------------------------------------- */

static bool room(builder *b, void *array, size_t *cap, size_t n, size_t size) {
    if (!ir_tick(b->g, 1)) return false;
    if (n < UINT32_MAX && n * size <= b->g->memory_left && array_reserve(array, cap, n, size))
        return true;
    ir_fail(b->g, n * size > b->g->memory_left ? ICP_ELIMIT : ICP_ENOMEM,
            "no memory for the grammar");
    return false;
}

static uint32_t add_op(builder *b, op o) {
    program *p = b->p;
    if (!room(b, &p->ops, &p->cap_ops, p->n_ops + 1, sizeof o)) return PROGRAM_NOWHERE;
    p->ops[p->n_ops] = o;
    return (uint32_t)p->n_ops++;
}

/* An earlier set that is the same, or a new one. There are few kinds in practice: the last ones are
 * looked through. */
static uint32_t add_set(builder *b, const byte_set *set) {
    enum { LOOK_BACK = 64 };
    program *p = b->p;
    for (size_t i = p->n_sets; i > 0 && p->n_sets - i < LOOK_BACK; i--)
        if (!memcmp(&p->sets[i - 1], set, sizeof *set)) return (uint32_t)i - 1;
    if (!room(b, &p->sets, &p->cap_sets, p->n_sets + 1, sizeof *set)) return 0;
    p->sets[p->n_sets] = *set;
    return (uint32_t)p->n_sets++;
}

static void set_add(byte_set *s, unsigned lo, unsigned hi) {
    for (unsigned i = lo; i <= hi; i++) s->bits[i >> 6] |= UINT64_C(1) << (i & 63);
}

static uint32_t emit_set(builder *b, const byte_set *set, uint32_t next) {
    if (next == PROGRAM_NOWHERE) return next;
    return add_op(b, (op){.kind = OP_BYTE, .a = add_set(b, set), .b = next});
}

static uint32_t emit_range(builder *b, unsigned lo, unsigned hi, uint32_t next) {
    byte_set set = {0};
    set_add(&set, lo, hi);
    return emit_set(b, &set, next);
}

static uint32_t emit_text(builder *b, const char *text, size_t len, uint32_t next) {
    for (size_t i = len; i-- > 0;) next = emit_range(b, (uint8_t)text[i], (uint8_t)text[i], next);
    return next;
}

/* A fork to those places that lead anywhere. */
static uint32_t emit_fork(builder *b, const uint32_t *to, size_t n) {
    program *p = b->p;
    size_t first = p->n_edges;
    if (!room(b, &p->edges, &p->cap_edges, first + n, sizeof *to)) return PROGRAM_NOWHERE;
    for (size_t i = 0; i < n; i++)
        if (to[i] != PROGRAM_NOWHERE) p->edges[p->n_edges++] = to[i];
    size_t count = p->n_edges - first;
    if (count <= 1) {
        p->n_edges = first;
        return count ? p->edges[first] : PROGRAM_NOWHERE;
    }
    return add_op(b, (op){.kind = OP_FORK, .a = (uint32_t)first, .b = (uint32_t)count});
}

/* ---- classes -------------------------------------------------------------------------------- */

/* Code points lo to hi, whose encodings have the same length, as sequences of byte ranges: split
 * until all bytes after the first differing one run from 80 to BF (Thompson; as in RE2). */
static void emit_encodings(builder *b, int32_t lo, int32_t hi, uint32_t next, node_list *to) {
    char low[4], high[4];
    int len = utf8_encode(lo, low);
    utf8_encode(hi, high);
    for (int i = 1; i < len; i++) {
        int32_t below = (1 << 6 * i) - 1;
        if ((lo & ~below) == (hi & ~below)) continue;
        if (lo & below) {
            emit_encodings(b, lo, lo | below, next, to);
            emit_encodings(b, (lo | below) + 1, hi, next, to);
            return;
        }
        if ((hi & below) != below) {
            emit_encodings(b, lo, (hi & ~below) - 1, next, to);
            emit_encodings(b, hi & ~below, hi, next, to);
            return;
        }
    }
    for (int i = len; i-- > 0;) next = emit_range(b, (uint8_t)low[i], (uint8_t)high[i], next);
    node_list_add(b->g, to, next);
}

static uint32_t emit_class(builder *b, ir_item class, uint32_t next) {
    static const int32_t last_of_length[] = {0x7f, 0x7ff, 0xffff, MAX_CODE_POINT};
    byte_set ascii = {0};
    node_list to = {0};
    for (uint32_t i = 0; i < class.count && b->g->rc == 0; i++) {
        ir_range r = b->g->ranges[class.first + i];
        for (int len = 1; len <= 4 && r.lo <= r.hi; len++) {
            int32_t hi = MIN(r.hi, last_of_length[len - 1]);
            if (r.lo > hi) continue;
            if (len == 1)
                set_add(&ascii, (unsigned)r.lo, (unsigned)hi);
            else
                emit_encodings(b, r.lo, hi, next, &to);
            r.lo = hi + 1;
        }
    }
    if (ascii.bits[0] | ascii.bits[1]) node_list_add(b->g, &to, emit_set(b, &ascii, next));
    uint32_t at = emit_fork(b, to.node, to.n);
    node_list_fini(&to);
    return at;
}

/* ---- what loops absorb ----------------------------------------------------------------------- */

static void absorb_class(const ir *g, const ir_item *class, absorb *out) {
    int32_t wide = 0; /* code points from 128 on */
    for (uint32_t i = 0; i < class->count; i++) {
        ir_range r = g->ranges[class->first + i];
        for (int32_t cp = r.lo; cp <= MIN(r.hi, 127); cp++)
            out->ascii[cp >> 6] |= UINT64_C(1) << (cp & 63);
        if (r.hi > 127) wide += r.hi - MAX(r.lo, 128) + 1;
    }
    if (wide == MAX_CODE_POINT + 1 - 128 - 0x800) out->wide = true;
}

/* Characters that match node all alone. */
static void find_absorbed(const builder *b, ir_node node, int depth, absorb *out) {
    enum { DEEPEST = 4 };
    const ir *g = b->g;
    const ir_item *item = &g->items[node];
    if (depth > DEEPEST || !ir_tick(b->g, 1)) return;
    if (item->kind == IR_KIND_CLASS) absorb_class(g, item, out);
    if (item->kind == IR_KIND_RULE) find_absorbed(b, g->rules[item->first].node, depth + 1, out);
    if (item->kind == IR_KIND_TEXT && item->count == 1) {
        unsigned c = (uint8_t)g->text[item->first];
        if (c < 128) out->ascii[c >> 6] |= UINT64_C(1) << (c & 63);
    }
    if (item->kind != IR_KIND_ALT || item->count > 64) return;
    for (uint32_t i = 0; i < item->count; i++)
        find_absorbed(b, g->kids[item->first + i], depth + 1, out);
}

/* 1 + the index of what a loop over node absorbs; 0: nothing worth knowing. */
static uint8_t add_absorb(builder *b, ir_node node) {
    enum { WORTH = 20 };
    absorb a = {0};
    program *p = b->p;
    find_absorbed(b, node, 0, &a);
    if (__builtin_popcountll(a.ascii[0]) + __builtin_popcountll(a.ascii[1]) < WORTH) return 0;
    int i = 0;
    while (i < p->n_absorbs &&
           (p->absorbs[i].ascii[0] != a.ascii[0] || p->absorbs[i].ascii[1] != a.ascii[1] ||
            p->absorbs[i].wide != a.wide))
        i++;
    if (i == MAX_ABSORBS) return 0;
    if (i == p->n_absorbs) p->absorbs[p->n_absorbs++] = a;
    return (uint8_t)(i + 1);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static uint32_t compile(builder *b, ir_node node, uint32_t next);

/* An alternative that begins with a text, and what follows the text. */
typedef struct branch {
    const char *text;
    uint32_t len, order, then;
} branch;

static int compare_branches(const void *a, const void *b) {
    const branch *x = a, *y = b;
    int c = memcmp(x->text, y->text, MIN(x->len, y->len));
    if (c) return c;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static int compare_numbers(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* A CHOICE between places, of which place i leads to branches [from[i], from[i + 1]) of a series.
 */
static uint32_t emit_choice(builder *b, const branch *br, const node_list *to,
                            const node_list *from) {
    program *p = b->p;
    size_t first = p->n_choices, n = to->n ? from->node[to->n] - from->node[0] : 0;
    if (!ir_tick(b->g, n) ||
        !room(b, &p->choices, &p->cap_choices, first + to->n, sizeof(choice)) ||
        !room(b, &p->numbers, &p->cap_numbers, p->n_numbers + n, sizeof(uint32_t)))
        return PROGRAM_NOWHERE;
    for (size_t i = 0; i < to->n; i++) {
        uint32_t *parts = p->numbers + p->n_numbers, count = from->node[i + 1] - from->node[i];
        for (uint32_t k = 0; k < count; k++) parts[k] = br[from->node[i] + k].order;
        qsort(parts, count, sizeof *parts, compare_numbers);
        p->choices[p->n_choices++] = (choice){to->node[i], (uint32_t)p->n_numbers, count};
        p->n_numbers += count;
    }
    return add_op(b, (op){.kind = OP_CHOICE, .a = (uint32_t)first, .b = (uint32_t)to->n});
}

/* A trie of sorted branches, of a series or not, of which `done` bytes are matched already.
 * Recursion is as deep as branches are nested in each other: with texts of n bytes in all, about
 * √(2n). */
static uint32_t emit_branches(builder *b, const branch *br, size_t n, uint32_t done,
                              bool is_series) {
    if (n == 1) return emit_text(b, br->text + done, br->len - done, br->then);
    uint32_t shared = done; /* the first and last differ where any do */
    const branch *last = &br[n - 1];
    while (shared < br->len && shared < last->len && br->text[shared] == last->text[shared])
        shared++;
    node_list to = {0}, from = {0};
    size_t i = 0;
    while (i < n && b->g->rc == 0) {
        size_t first = i++;
        bool ends = br[first].len == shared;
        while (!ends && i < n && br[i].text[shared] == br[first].text[shared]) i++;
        node_list_add(b->g, &from, (uint32_t)first);
        node_list_add(b->g, &to,
                      ends ? br[first].then
                           : emit_branches(b, br + first, i - first, shared, is_series));
    }
    node_list_add(b->g, &from, (uint32_t)n);
    uint32_t fork = is_series ? emit_choice(b, br, &to, &from) : emit_fork(b, to.node, to.n);
    uint32_t at = emit_text(b, br->text + done, shared - done, fork);
    node_list_fini(&to);
    node_list_fini(&from);
    return at;
}

/* Compiles what follows the text that node begins with; false: it does not begin with one. */
static bool branch_of(builder *b, ir_node node, uint32_t next, branch *out) {
    const ir *g = b->g;
    ir_item item = g->items[node];
    bool is_seq = item.kind == IR_KIND_SEQ;
    if (is_seq && g->items[g->kids[item.first]].kind != IR_KIND_TEXT) return false;
    if (!is_seq && item.kind != IR_KIND_TEXT) return false;
    ir_item text = is_seq ? g->items[g->kids[item.first]] : item;
    for (uint32_t i = item.count; is_seq && i-- > 1;)
        next = compile(b, g->kids[item.first + i], next);
    *out = (branch){g->text + text.first, text.count, 0, next};
    return true;
}

static uint32_t compile_alt(builder *b, ir_item alt, uint32_t next) {
    node_list to = {0};
    branch *branches = mem_alloc(alt.count * sizeof *branches);
    if (!branches) ir_fail(b->g, ICP_ENOMEM, "out of memory");
    size_t n = 0;
    for (uint32_t i = 0; i < alt.count && b->g->rc == 0; i++) {
        ir_node kid = b->g->kids[alt.first + i];
        branch br;
        if (!branch_of(b, kid, next, &br)) {
            node_list_add(b->g, &to, compile(b, kid, next));
        } else if (br.then != PROGRAM_NOWHERE) {
            br.order = i;
            branches[n++] = br;
        }
    }
    if (n && b->g->rc == 0) {
        qsort(branches, n, sizeof *branches, compare_branches);
        node_list_add(b->g, &to, emit_branches(b, branches, n, 0, false));
    }
    uint32_t at = emit_fork(b, to.node, to.n);
    mem_free(branches);
    node_list_fini(&to);
    return at;
}

/* The first part from each on that must come. */
static uint32_t note_needed(builder *b, const bool *needed, uint32_t n) {
    program *p = b->p;
    size_t first = p->n_numbers;
    if (!room(b, &p->numbers, &p->cap_numbers, first + n + 1, sizeof(uint32_t))) return 0;
    p->numbers[first + n] = n;
    for (uint32_t i = n; i-- > 0;)
        p->numbers[first + i] = needed[i] ? i : p->numbers[first + i + 1];
    p->n_numbers += n + 1;
    return (uint32_t)first;
}

/* Parts that cannot match are left out; false: one of them is needed. */
static bool list_parts(builder *b, ir_item item, branch *parts, bool *needed, uint32_t *n) {
    *n = 0;
    for (uint32_t i = 1; i < item.count && b->g->rc == 0; i += 2) {
        const ir_node *kid = &b->g->kids[item.first + i];
        bool is_needed = kid[1] == IR_NEVER;
        branch *br = &parts[*n];
        if (!branch_of(b, kid[0], 0, br)) ir_fail(b->g, ICP_EBUG, "a part without a text");
        if (b->g->rc == 0 && br->then == PROGRAM_NOWHERE) {
            if (is_needed) return false;
            continue;
        }
        br->order = *n;
        br->then = add_op(b, (op){.kind = OP_PICK, .a = *n, .b = br->then});
        needed[(*n)++] = is_needed;
    }
    return *n && b->g->rc == 0;
}

static uint32_t emit_series(builder *b, ir_item item, branch *parts, bool *needed, uint32_t next) {
    program *p = b->p;
    series s = {0};
    if (!list_parts(b, item, parts, needed, &s.n)) return PROGRAM_NOWHERE;
    s.needed = note_needed(b, needed, s.n);
    qsort(parts, s.n, sizeof *parts, compare_branches);
    s.first = emit_branches(b, parts, s.n, 0, true);
    s.between = compile(b, b->g->kids[item.first], s.first);
    if (s.between == PROGRAM_NOWHERE ||
        !room(b, &p->series, &p->cap_series, p->n_series + 1, sizeof s))
        return PROGRAM_NOWHERE;
    p->series[p->n_series++] = s;
    return add_op(b, (op){.kind = OP_SERIES, .a = (uint32_t)p->n_series - 1, .b = next});
}

static uint32_t compile_series(builder *b, ir_item item, uint32_t next) {
    size_t most = item.count / 2;
    branch *parts = mem_alloc(most * sizeof *parts);
    bool *needed = mem_alloc(most);
    uint32_t at = PROGRAM_NOWHERE;
    if (parts && needed)
        at = emit_series(b, item, parts, needed, next);
    else
        ir_fail(b->g, ICP_ENOMEM, "out of memory");
    mem_free(parts);
    mem_free(needed);
    return at;
}

/* Rounds without a count: one place that a round comes back to. */
static uint32_t compile_loop(builder *b, ir_item item, uint32_t next) {
    uint32_t at = add_op(b, (op){.kind = OP_LOOP, .b = next});
    if (at == PROGRAM_NOWHERE) return at;
    uint32_t round = compile(b, item.first, at);
    if (round == PROGRAM_NOWHERE) return item.count ? round : next;
    b->p->ops[at].a = round;
    b->p->ops[at].absorb = add_absorb(b, item.first);
    return item.count ? round : at;
}

static uint32_t compile_repeat(builder *b, ir_item item, uint32_t next) {
    enum { MOST_EMPTY = 64 };
    bool nullable = is_nullable(b, item.first);
    uint32_t min = nullable ? 0 : item.count, max = item.max;
    if (min <= 1 && max == UNBOUNDED) {
        item.count = min;
        return compile_loop(b, item, next);
    }
    if (max == 1) {
        uint32_t to[] = {compile(b, item.first, next), next};
        return emit_fork(b, to, 2);
    }
    if (nullable && max > MOST_EMPTY) {
        ir_fail(b->g, ICP_ELIMIT, "what may be empty is repeated up to %u times; at most %d", max,
                MOST_EMPTY);
        return PROGRAM_NOWHERE;
    }
    uint32_t round = compile(b, item.first, 0);
    if (round == PROGRAM_NOWHERE) return min ? round : next;
    op o = {.kind = OP_REPEAT, .a = round, .b = next, .min = min, .max = max};
    o.absorb = add_absorb(b, item.first);
    return add_op(b, o);
}

static uint32_t compile_call(builder *b, uint32_t rule, uint32_t next) {
    if (!b->finite[rule]) return PROGRAM_NOWHERE;
    if (b->p->rule_at[rule] == PROGRAM_NOWHERE) {
        b->p->rule_at[rule] = 0; /* its place comes when it is compiled */
        b->queue[b->n_queue++] = rule;
    }
    return add_op(b, (op){.kind = OP_CALL, .a = rule, .b = next});
}

static uint32_t compile(builder *b, ir_node node, uint32_t next) {
    ir_item item = b->g->items[node];
    if (next == PROGRAM_NOWHERE || b->g->rc < 0) return PROGRAM_NOWHERE;
    switch (item.kind) {
    case IR_KIND_NEVER:
        return PROGRAM_NOWHERE;
    case IR_KIND_EMPTY:
        return next;
    case IR_KIND_TEXT:
        return emit_text(b, b->g->text + item.first, item.count, next);
    case IR_KIND_CLASS:
        return emit_class(b, item, next);
    case IR_KIND_SEQ:
        for (uint32_t i = item.count; i-- > 0;) next = compile(b, b->g->kids[item.first + i], next);
        return next;
    case IR_KIND_ALT:
        return compile_alt(b, item, next);
    case IR_KIND_REPEAT:
        return compile_repeat(b, item, next);
    case IR_KIND_SERIES:
        return compile_series(b, item, next);
    case IR_KIND_RULE:
        return compile_call(b, item.first, next);
    }
    return PROGRAM_NOWHERE;
}

/* ---- byte classes --------------------------------------------------------------------------- */

/* Refines the classes by each set: members of a class that are in the set part from those that are
 * not. Then sets become sets of classes. */
static void find_classes(program *p) {
    p->n_classes = 1;
    for (size_t s = 0; s < p->n_sets && p->n_classes < 256; s++) {
        int inside[256], outside[256];
        unsigned old = p->n_classes;
        for (unsigned c = 0; c < old; c++) inside[c] = outside[c] = -1;
        for (unsigned i = 0; i < 256; i++) {
            unsigned c = p->class_of[i];
            int *mine = byte_set_has(&p->sets[s], i) ? &inside[c] : &outside[c];
            int other = byte_set_has(&p->sets[s], i) ? outside[c] : inside[c];
            if (*mine < 0) *mine = other < 0 ? (int)c : (int)p->n_classes++;
            p->class_of[i] = (uint8_t)*mine;
        }
    }
    for (size_t s = 0; s < p->n_sets; s++) {
        byte_set classes = {0};
        for (unsigned i = 0; i < 256; i++)
            if (byte_set_has(&p->sets[s], i)) set_add(&classes, p->class_of[i], p->class_of[i]);
        p->sets[s] = classes;
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void compile_all(builder *b, ir_node root) {
    ir *g = b->g;
    find_facts(b);
    if (g->rc == 0) refuse_left_recursion(b);
    add_op(b, (op){.kind = OP_END});
    b->p->start = compile(b, root, 0);
    while (b->n_queue && g->rc == 0) {
        uint32_t rule = b->queue[--b->n_queue];
        b->p->rule_at[rule] = compile(b, g->rules[rule].node, 0);
    }
    if (b->p->start == PROGRAM_NOWHERE)
        ir_fail(g, ICP_EINVALID, "no text can ever satisfy the grammar");
    if (g->rc == 0) find_classes(b->p);
}

int program_build(ir *g, ir_node root, program *out) {
    size_t n = g->n_rules;
    *out = (program){.n_rules = n};
    builder b = {.g = g, .p = out};
    b.nullable = mem_zero(n, 1);
    b.finite = mem_zero(n, 1);
    b.queue = mem_zero(n, sizeof *b.queue);
    out->rule_at = mem_alloc(n * sizeof *out->rule_at);
    if (!b.nullable || !b.finite || !b.queue || !out->rule_at)
        ir_fail(g, ICP_ENOMEM, "out of memory");
    else
        memset(out->rule_at, 0xff, n * sizeof *out->rule_at); /* PROGRAM_NOWHERE */
    if (g->rc == 0) compile_all(&b, root);
    mem_free(b.nullable);
    mem_free(b.finite);
    mem_free(b.queue);
    if (g->rc < 0) program_fini(out);
    return g->rc;
}

void program_fini(program *p) {
    mem_free(p->ops);
    mem_free(p->edges);
    mem_free(p->sets);
    mem_free(p->rule_at);
    mem_free(p->series);
    mem_free(p->choices);
    mem_free(p->numbers);
    *p = (program){0};
}
