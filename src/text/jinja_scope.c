/* Which variable a name means. Jinja decides this when it compiles, by looking at a whole scope
 * before any of it runs, and templates depend on the outcome; so the same is done here, once.
 *
 * A scope (template, loop body, macro, with, set and filter block) lists its variables and what
 * each holds on entry:
 *
 *   LOAD_PARAM    set by whoever enters: a loop's target, a macro's parameter
 *   LOAD_CONTEXT  looked up by name among what the caller gave: read before it is set here
 *   LOAD_ALIAS    the value of the same name in an enclosing scope: set here, known outside
 *   LOAD_NOTHING  set here, known nowhere
 *
 * A name read here but known to an enclosing scope is that scope's variable itself. Variables that
 * only a branch of an {% if %} sets start as if they had been read.
 *
 * Scopes share the slots of the function they lie in. Functions are the template, a macro, a call
 * block, a block, the body of a recursive loop and the condition of a filtered one. In a function
 * one name at one depth is one slot, as in the Python code that Jinja generates: macros see later
 * values of what surrounds them, and a scope's variables are unset when it is left. */
#include "jinja_internal.h"

struct symbol {
    const struct str *name;
    enum load_kind load;
    uint16_t slot;
    bool stored;
    const struct symbols *outer; /* LOAD_ALIAS */
    uint16_t outer_slot;
};

struct function {
    struct function *parent;
    struct frame_code *code;
    struct {
        const struct str *name;
        int level;
    } * slots;
    size_t cap;
};

struct symbols {
    struct symbols *parent;
    struct function *function;
    int level;
    struct symbol *list;
    size_t n, cap;
    /* Names that branches newly store, while an {% if %} is being looked at. */
    const struct str **log;
    size_t n_log, cap_log;
};

struct frame { /* where a node stands */
    struct trap *trap;
    jinja *j;
    struct symbols *symbols;
    bool toplevel;
    bool soft;        /* under a condition: unknown filters are an error only when run */
    bool in_loop;     /* break and continue have a loop to act on */
    bool in_defaults; /* of a macro's parameters, where later ones are not set yet */
};

static void visit_list(struct symbols *s, struct trap *t, const struct node *list);

static _Noreturn void scope_fail(struct trap *t, const struct node *n, const char *what,
                                 const struct str *name) {
    t->line = n->line;
    trap_fail(t, ICP_EFORMAT, "%s%.*s", what, name ? (int)MIN(name->len, 100) : 0,
              name ? name->data : "");
}

/* An array of elements of `size` with room for one more. */
static void *grown(struct trap *t, void *old, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return old;
    size_t more = MAX(2 * *cap, (size_t)8);
    void *new = trap_alloc(t, more * size);
    if (n) memcpy(new, old, n * size);
    *cap = more;
    return new;
}

/* ---- symbols -------------------------------------------------------------------------------- */

static struct function *function_new(struct trap *t, struct function *parent,
                                     struct frame_code *code) {
    struct function *f = trap_zero(t, sizeof *f);
    f->parent = parent;
    f->code = code;
    for (; parent && !parent->code->captured; parent = parent->parent)
        parent->code->captured = true;
    return f;
}

static struct symbols *symbols_new(struct trap *t, struct symbols *parent,
                                   struct function *function) {
    struct symbols *s = trap_zero(t, sizeof *s);
    s->parent = parent;
    s->function = function;
    s->level = parent ? parent->level + 1 : 0;
    return s;
}

static uint16_t slot_of(struct trap *t, struct symbols *s, const struct str *name) {
    struct function *f = s->function;
    size_t n = f->code->n_slots;
    for (size_t i = 0; i < n; i++)
        if (f->slots[i].name == name && f->slots[i].level == s->level) return (uint16_t)i;
    if (n == JINJA_MAX_SLOTS) trap_fail(t, ICP_ELIMIT, "the template has too many variables");
    f->slots = grown(t, f->slots, n, &f->cap, sizeof *f->slots);
    f->slots[n].name = name;
    f->slots[n].level = s->level;
    f->code->n_slots++;
    return (uint16_t)n;
}

static struct symbol *find_own(const struct symbols *s, const struct str *name) {
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].name == name) return &s->list[i];
    return NULL;
}

static struct symbol *find(const struct symbols *s, const struct str *name,
                           const struct symbols **where) {
    for (; s; s = s->parent) {
        struct symbol *found = find_own(s, name);
        if (!found) continue;
        if (where) *where = s;
        return found;
    }
    return NULL;
}

static struct symbol *define(struct trap *t, struct symbols *s, const struct str *name,
                             enum load_kind load) {
    struct symbol *found = find_own(s, name);
    if (!found) {
        s->list = grown(t, s->list, s->n, &s->cap, sizeof *s->list);
        found = &s->list[s->n++];
        *found = (struct symbol){.name = name, .slot = slot_of(t, s, name)};
    }
    found->load = load;
    return found;
}

static struct symbol *declare_param(struct trap *t, struct symbols *s, const struct str *name) {
    struct symbol *v = define(t, s, name, LOAD_PARAM);
    v->stored = true;
    return v;
}

/* LOAD_ALIAS when an enclosing scope knows the name, else `otherwise`. */
static void set_entry(struct symbols *s, struct symbol *v, enum load_kind otherwise) {
    const struct symbols *where;
    struct symbol *outer = s->parent ? find(s->parent, v->name, &where) : NULL;
    v->load = outer ? LOAD_ALIAS : otherwise;
    if (!outer) return;
    v->outer = where;
    v->outer_slot = outer->slot;
}

static void load_name(struct trap *t, struct symbols *s, const struct str *name) {
    if (!find(s, name, NULL)) define(t, s, name, LOAD_CONTEXT);
}

static void store_name(struct trap *t, struct symbols *s, const struct str *name) {
    struct symbol *v = find_own(s, name);
    if (!v) {
        v = define(t, s, name, LOAD_NOTHING);
        set_entry(s, v, LOAD_NOTHING);
    }
    if (v->stored) return;
    v->stored = true;
    s->log = grown(t, s->log, s->n_log, &s->cap_log, sizeof *s->log);
    s->log[s->n_log++] = name;
}

/* ---- looking at a scope --------------------------------------------------------------------- */

static void visit_expr(struct symbols *s, struct trap *t, const struct node *n) {
    for (; n; n = n->next) {
        if (n->kind == X_NAME) load_name(t, s, n->name);
        visit_expr(s, t, n->a);
        visit_expr(s, t, n->b);
        visit_expr(s, t, n->c);
        visit_expr(s, t, n->d);
        visit_expr(s, t, n->args);
        visit_expr(s, t, n->kwargs);
    }
}

enum target_use { TARGET_STORE, TARGET_PARAM };

static void visit_target(struct symbols *s, struct trap *t, const struct node *n,
                         enum target_use use) {
    if (n->kind == X_NSREF)
        load_name(t, s, n->name);
    else if (n->kind == X_NAME && use == TARGET_PARAM)
        declare_param(t, s, n->name);
    else if (n->kind == X_NAME)
        store_name(t, s, n->name);
    for (const struct node *i = n->args; i; i = i->next) visit_target(s, t, i, use);
}

/* A branch starts from what was known before the {% if %}: what it adds is put aside. */
struct branch {
    struct symbol *added;
    size_t n;
};

static struct branch visit_branch(struct symbols *s, struct trap *t, const struct node *list) {
    size_t n = s->n, n_log = s->n_log;
    visit_list(s, t, list);
    struct branch b = {.n = s->n - n};
    b.added = trap_alloc(t, b.n * sizeof *b.added);
    if (b.n) memcpy(b.added, s->list + n, b.n * sizeof *b.added);
    s->n = n;
    for (size_t i = n_log; i < s->n_log; i++) {
        struct symbol *v = find_own(s, s->log[i]);
        if (v) v->stored = false;
    }
    return b;
}

static void visit_if(struct symbols *s, struct trap *t, const struct node *n) {
    size_t n_log = s->n_log;
    struct branch branches[3] = {visit_branch(s, t, n->body), visit_branch(s, t, n->args),
                                 visit_branch(s, t, n->other)};
    for (int b = 0; b < 3; b++)
        for (size_t i = 0; i < branches[b].n; i++) {
            const struct symbol *from = &branches[b].added[i];
            struct symbol *v = define(t, s, from->name, from->load);
            bool stored = v->stored || from->stored;
            *v = *from;
            v->stored = stored;
        }
    size_t logged = s->n_log;
    for (size_t i = n_log; i < logged; i++) {
        struct symbol *v = find_own(s, s->log[i]);
        v->stored = true;
        set_entry(s, v, LOAD_CONTEXT);
    }
}

/* What a statement means to the scope it stands in; bodies with a scope of their own are left
 * alone. */
static void visit_statement(struct symbols *s, struct trap *t, const struct node *n) {
    switch (n->kind) {
    case S_PRINT:
        visit_expr(s, t, n->a);
        break;
    case S_FOR:
        visit_expr(s, t, n->b);
        break;
    case S_IF:
        visit_expr(s, t, n->a);
        visit_if(s, t, n);
        break;
    case S_SET:
        visit_expr(s, t, n->b);
        visit_target(s, t, n->a, TARGET_STORE);
        break;
    case S_SETBLOCK:
        visit_target(s, t, n->a, TARGET_STORE);
        break;
    case S_MACRO:
        store_name(t, s, n->name);
        break;
    case S_CALL:
        visit_expr(s, t, n->a);
        break;
    case S_FILTER:
        visit_expr(s, t, n->b);
        break;
    case S_WITH:
        visit_expr(s, t, n->kwargs);
        break;
    case S_LOADER:
        visit_expr(s, t, n->a);
        for (const struct node *i = n->args; i; i = i->next) store_name(t, s, i->name);
        break;
    default:
        break;
    }
}

static void visit_list(struct symbols *s, struct trap *t, const struct node *list) {
    for (; list; list = list->next) visit_statement(s, t, list);
}

/* ---- is a name read in here before it is set? ----------------------------------------------- */

struct search {
    const char *name;
    bool found, hidden;
};

static void search_list(struct search *q, const struct node *list);

static void search_expr(struct search *q, const struct node *n) {
    for (; n && !q->found; n = n->next) {
        if (n->kind == X_NAME && !q->hidden && str_is(n->name, q->name)) q->found = true;
        search_expr(q, n->a);
        search_expr(q, n->b);
        search_expr(q, n->c);
        search_expr(q, n->d);
        search_expr(q, n->args);
        search_expr(q, n->kwargs);
    }
}

static void search_targets(struct search *q, const struct node *n) {
    for (; n; n = n->next) {
        if (n->kind == X_NAME && str_is(n->name, q->name)) q->hidden = true;
        search_targets(q, n->args);
    }
}

static void search_macro(struct search *q, const struct macro_code *m) {
    search_targets(q, m->params);
    search_expr(q, m->defaults);
    search_list(q, m->body);
}

static void search_statement(struct search *q, const struct node *n) {
    struct node target;
    if (n->kind == S_BLOCK) return;
    if (n->kind == S_FOR || n->kind == S_SET || n->kind == S_SETBLOCK) {
        target = *n->a;
        target.next = NULL;
        search_targets(q, &target);
    } else if (n->kind == S_WITH) {
        search_targets(q, n->args);
        search_expr(q, n->kwargs);
    } else {
        search_expr(q, n->a);
    }
    if (n->kind == S_SETBLOCK || n->kind == S_SET || n->kind == S_FOR) search_expr(q, n->b);
    if (n->macro) search_macro(q, n->macro);
    search_list(q, n->body);
    if (n->kind == S_IF) search_list(q, n->args);
    search_list(q, n->other);
    if (n->kind == S_FOR) search_expr(q, n->c);
    if (n->kind == S_FILTER) search_expr(q, n->b);
}

static void search_list(struct search *q, const struct node *list) {
    for (; list && !q->found; list = list->next) search_statement(q, list);
}

static bool reads(const struct node *list, const char *name) {
    struct search q = {.name = name};
    search_list(&q, list);
    return q.found;
}

static bool has_scoped_block(const struct node *list) {
    for (; list; list = list->next) {
        if (list->kind == S_BLOCK && list->op & BLOCK_SCOPED) return true;
        if (has_scoped_block(list->body) || has_scoped_block(list->other) ||
            (list->macro && has_scoped_block(list->macro->body)) ||
            (list->kind == S_IF && has_scoped_block(list->args)))
            return true;
    }
    return false;
}

/* ---- resolving ------------------------------------------------------------------------------ */

static void resolve_list(const struct frame *f, struct node *list);

static uint16_t hops_between(const struct function *from, const struct function *to) {
    uint16_t hops = 0;
    for (; from != to; from = from->parent) hops++;
    return hops;
}

static struct ref ref_to(const struct frame *f, const struct node *n, const struct str *name) {
    const struct symbols *where;
    const struct symbol *v = find(f->symbols, name, &where);
    if (!v) scope_fail(f->trap, n, "this variable cannot be used here: ", name);
    return (struct ref){hops_between(f->symbols->function, where->function), v->slot};
}

static struct scope scope_of(struct trap *t, const struct symbols *s) {
    struct scope scope = {trap_alloc(t, s->n * sizeof *scope.loads), s->n};
    for (size_t i = 0; i < s->n; i++) {
        const struct symbol *v = &s->list[i];
        struct load *l = &scope.loads[i];
        *l = (struct load){.kind = v->load, .slot = v->slot, .name = v->name};
        if (v->load == LOAD_ALIAS)
            l->from = (struct ref){hops_between(s->function, v->outer->function), v->outer_slot};
    }
    return scope;
}

static struct frame inner(const struct frame *f, struct function *function) {
    struct frame in = *f;
    in.symbols = symbols_new(f->trap, f->symbols, function ? function : f->symbols->function);
    in.toplevel = in.soft = in.in_defaults = false;
    if (function) in.in_loop = false;
    return in;
}

static void resolve_expr(const struct frame *f, struct node *n) {
    struct frame soft = *f;
    soft.soft = true;
    for (; n; n = n->next) {
        const struct frame *in = n->kind == X_COND ? &soft : f;
        if (n->kind == X_NAME || n->kind == X_NSREF) {
            n->ref = ref_to(f, n, n->name);
            if (!f->in_defaults && find(f->symbols, n->name, NULL)->load == LOAD_PARAM)
                n->op = NAME_IS_PARAM;
        }
        if ((n->kind == X_FILTER || n->kind == X_TEST) && !n->fn && !f->soft)
            scope_fail(f->trap, n,
                       n->kind == X_FILTER ? "unknown filter: " : "unknown test: ", n->name);
        resolve_expr(in, n->a);
        resolve_expr(in, n->b);
        resolve_expr(in, n->c);
        resolve_expr(in, n->d);
        resolve_expr(in, n->args);
        resolve_expr(in, n->kwargs);
    }
}

static void resolve_target(const struct frame *f, struct node *target) {
    struct node *next = target->next;
    target->next = NULL;
    resolve_expr(f, target);
    target->next = next;
}

static uint16_t special_param(const struct frame *f, const char *name) {
    const struct str *s = name_intern(f->trap, f->j->names, name, strlen(name));
    return declare_param(f->trap, f->symbols, s)->slot;
}

static void look_at_macro(const struct frame *f, const struct macro_code *m) {
    for (const struct node *p = m->params; p; p = p->next)
        declare_param(f->trap, f->symbols, p->name);
    visit_expr(f->symbols, f->trap, m->defaults);
    visit_list(f->symbols, f->trap, m->body);
}

static bool has_param(const struct macro_code *m, const char *name, size_t *index) {
    size_t i = 0;
    for (const struct node *p = m->params; p; p = p->next, i++)
        if (str_is(p->name, name)) {
            *index = i;
            return true;
        }
    return false;
}

static void resolve_macro(const struct frame *f, const struct node *n) {
    struct macro_code *m = n->macro;
    struct frame in = inner(f, function_new(f->trap, f->symbols->function, &m->frame));
    size_t index = 0;
    look_at_macro(&in, m);
    m->explicit_caller = has_param(m, "caller", &index);
    if (reads(m->body, "caller")) {
        if (!m->explicit_caller)
            m->caller = special_param(&in, "caller");
        else if (index < m->n_params - m->n_defaults)
            scope_fail(f->trap, n, "the parameter caller needs a default", NULL);
        m->wants_caller = true;
    }
    if (reads(m->body, "kwargs") && !has_param(m, "kwargs", &index)) {
        m->kwargs = special_param(&in, "kwargs");
        m->wants_kwargs = true;
    }
    if (reads(m->body, "varargs") && !has_param(m, "varargs", &index)) {
        m->varargs = special_param(&in, "varargs");
        m->wants_varargs = true;
    }
    look_at_macro(&in, m);
    resolve_expr(&in, m->params);
    in.in_defaults = true;
    resolve_expr(&in, m->defaults);
    in.in_defaults = false;
    m->scope = scope_of(f->trap, in.symbols);
    resolve_list(&in, m->body);
}

static void resolve_test(const struct frame *f, struct node *n) {
    n->test_frame = trap_zero(f->trap, sizeof *n->test_frame);
    struct frame in = inner(f, function_new(f->trap, f->symbols->function, n->test_frame));
    visit_target(in.symbols, f->trap, n->d, TARGET_PARAM);
    visit_expr(in.symbols, f->trap, n->c);
    resolve_target(&in, n->d);
    resolve_expr(&in, n->c);
    n->test_scope = scope_of(f->trap, in.symbols);
}

static void resolve_for(const struct frame *f, struct node *n) {
    struct function *function = NULL;
    if (n->op & FOR_RECURSIVE) {
        n->frame = trap_zero(f->trap, sizeof *n->frame);
        function = function_new(f->trap, f->symbols->function, n->frame);
    }
    struct frame body = inner(f, function), other = inner(f, function);
    if (n->op & FOR_RECURSIVE || reads(n->body, "loop") || has_scoped_block(n->body) ||
        has_scoped_block(n->other)) {
        n->op |= FOR_EXTENDED;
        n->loop_slot = special_param(&body, "loop");
    }
    visit_target(body.symbols, f->trap, n->a, TARGET_PARAM);
    visit_list(body.symbols, f->trap, n->body);
    visit_list(other.symbols, f->trap, n->other);
    if (n->c) resolve_test(f, n);
    resolve_expr(f, n->b);
    resolve_target(&body, n->a);
    n->scope = scope_of(f->trap, body.symbols);
    n->other_scope = scope_of(f->trap, other.symbols);
    body.in_loop = true;
    resolve_list(&body, n->body);
    resolve_list(&other, n->other);
}

static void resolve_if(const struct frame *f, struct node *n) {
    struct frame soft = *f;
    soft.soft = true;
    resolve_expr(&soft, n->a);
    resolve_list(&soft, n->body);
    for (struct node *i = n->args; i; i = i->next) {
        resolve_expr(&soft, i->a);
        resolve_list(&soft, i->body);
    }
    resolve_list(&soft, n->other);
}

/* A body with a scope and no parameters, and the filter it goes through. */
static void resolve_body(const struct frame *f, struct node *n) {
    struct frame in = inner(f, NULL);
    if (n->kind == S_SCOPE) visit_expr(in.symbols, f->trap, n->a);
    visit_list(in.symbols, f->trap, n->body);
    if (n->kind == S_FILTER) visit_expr(in.symbols, f->trap, n->b);
    if (n->kind == S_SCOPE) resolve_expr(&in, n->a);
    resolve_expr(&in, n->b);
    n->scope = scope_of(f->trap, in.symbols);
    resolve_list(&in, n->body);
}

static void resolve_with(const struct frame *f, struct node *n) {
    struct frame in = inner(f, NULL);
    for (const struct node *i = n->args; i; i = i->next)
        visit_target(in.symbols, f->trap, i, TARGET_PARAM);
    visit_list(in.symbols, f->trap, n->body);
    resolve_expr(f, n->kwargs);
    resolve_expr(&in, n->args);
    n->scope = scope_of(f->trap, in.symbols);
    resolve_list(&in, n->body);
}

/* The variables that a scoped block sees: all that is stored around it. */
static struct node *stored_names(const struct frame *f) {
    struct node *first = NULL, **tail = &first;
    for (const struct symbols *s = f->symbols; s; s = s->parent)
        for (size_t i = 0; i < s->n; i++) {
            const struct node *n = first;
            while (n && n->name != s->list[i].name) n = n->next;
            if (n || !s->list[i].stored) continue;
            *tail = trap_zero(f->trap, sizeof **tail);
            (*tail)->kind = X_NAME;
            (*tail)->name = s->list[i].name;
            (*tail)->ref = ref_to(f, *tail, (*tail)->name);
            tail = &(*tail)->next;
        }
    return first;
}

static void resolve_block(const struct frame *f, struct node *n) {
    jinja *j = f->j;
    size_t cap = j->n_blocks;
    for (size_t i = 0; i < j->n_blocks; i++)
        if (j->blocks[i]->name == n->name) scope_fail(f->trap, n, "a block twice: ", n->name);
    j->blocks = grown(f->trap, j->blocks, j->n_blocks, &cap, sizeof *j->blocks);
    j->blocks[j->n_blocks++] = n;
    if (n->op & BLOCK_SCOPED) n->args = stored_names(f);
    n->frame = trap_zero(f->trap, sizeof *n->frame);
    struct frame in = {.trap = f->trap, .j = j};
    in.symbols = symbols_new(f->trap, NULL, function_new(f->trap, NULL, n->frame));
    if (reads(n->body, "self")) {
        n->op |= BLOCK_SELF;
        n->loop_slot = special_param(&in, "self");
    }
    if (reads(n->body, "super")) {
        n->op |= BLOCK_SUPER;
        n->super_slot = special_param(&in, "super");
    }
    visit_list(in.symbols, f->trap, n->body);
    n->scope = scope_of(f->trap, in.symbols);
    resolve_list(&in, n->body);
}

static void resolve_statement(const struct frame *f, struct node *n) {
    switch (n->kind) {
    case S_PRINT:
    case S_LOADER:
        resolve_expr(f, n->a);
        break;
    case S_FOR:
        resolve_for(f, n);
        break;
    case S_IF:
        resolve_if(f, n);
        break;
    case S_SET:
        resolve_target(f, n->a);
        resolve_expr(f, n->b);
        if (f->toplevel) n->op |= SET_EXPORTS;
        break;
    case S_SETBLOCK:
        resolve_target(f, n->a);
        resolve_body(f, n);
        if (f->toplevel) n->op |= SET_EXPORTS;
        break;
    case S_MACRO:
        resolve_macro(f, n);
        n->ref = ref_to(f, n, n->name);
        if (f->toplevel) n->op |= SET_EXPORTS;
        break;
    case S_CALL:
    case S_GENERATION:
        resolve_macro(f, n);
        resolve_expr(f, n->a);
        break;
    case S_FILTER:
    case S_SCOPE:
        resolve_body(f, n);
        break;
    case S_WITH:
        resolve_with(f, n);
        break;
    case S_BLOCK:
        resolve_block(f, n);
        break;
    case S_BREAK:
    case S_CONTINUE:
        if (!f->in_loop) scope_fail(f->trap, n, "break or continue outside of a loop", NULL);
        break;
    default:
        break;
    }
}

static void resolve_list(const struct frame *f, struct node *list) {
    for (; list; list = list->next) resolve_statement(f, list);
}

void scope_resolve(struct trap *t, jinja *j) {
    struct frame f = {.trap = t, .j = j, .toplevel = true};
    f.symbols = symbols_new(t, NULL, function_new(t, NULL, &j->frame));
    j->wants_self = reads(j->body, "self");
    if (j->wants_self) j->self_slot = special_param(&f, "self");
    visit_list(f.symbols, t, j->body);
    j->scope = scope_of(t, f.symbols);
    resolve_list(&f, j->body);
    t->line = 0;
}
