/* Statements run. r->act holds the variables of the function that runs; a scope inside it sets its
 * variables when it is entered and unsets them when it is left. What a statement writes goes to
 * the output, which a macro, a set block or a filter captures. */
#include "jinja_internal.h"

/* ---- variables ------------------------------------------------------------------------------ */

static value *slot(struct render *r, struct ref ref) {
    struct act *act = r->act;
    for (unsigned i = 0; i < ref.hops; i++) act = act->up;
    return &act->slots[ref.slot];
}

value context_get(struct render *r, const struct str *name) {
    value v;
    if (dict_get_name(r, r->context->exports, name, &v)) return v;
    if (dict_get_name(r, r->context->vars, name, &v)) return v;
    return val_missing();
}

void scope_enter(struct render *r, const struct scope *s) {
    for (size_t i = 0; i < s->n; i++) {
        const struct load *l = &s->loads[i];
        value *v = &r->act->slots[l->slot];
        if (l->kind == LOAD_CONTEXT)
            *v = context_get(r, l->name);
        else if (l->kind == LOAD_ALIAS)
            *v = *slot(r, l->from);
        else if (l->kind == LOAD_NOTHING)
            *v = val_missing();
    }
}

void scope_leave(struct render *r, const struct scope *s) {
    for (size_t i = 0; i < s->n; i++) r->act->slots[s->loads[i].slot] = val_missing();
}

struct act *act_push(struct render *r, const struct frame_code *frame, struct act *up) {
    size_t n = frame->n_slots;
    struct act *act = n < ACT_CLASSES ? r->free_acts[n] : NULL;
    if (act)
        r->free_acts[n] = act->next_free;
    else
        act = render_alloc(r, sizeof *act + n * sizeof *act->slots);
    memset(act->slots, 0, n * sizeof *act->slots);
    act->n_slots = (uint16_t)n;
    act->up = up;
    r->act = act;
    return act;
}

/* Variables that no function inside can still refer to are used again. */
void act_pop(struct render *r, const struct frame_code *frame, struct act *act) {
    if (frame->captured || act->n_slots >= ACT_CLASSES) return;
    act->next_free = r->free_acts[act->n_slots];
    r->free_acts[act->n_slots] = act;
}

/* ---- assignment ----------------------------------------------------------------------------- */

static void assign_tuple(struct render *r, const struct node *target, value v) {
    size_t want = 0, got = 0;
    for (const struct node *i = target->args; i; i = i->next) want++;
    if (!is_iterable(v)) fail(r, "cannot unpack a value of type %s", kind_name(v));
    struct iter *it = iter_of(r, v);
    value list = list_new(r, want, V_LIST), item;
    for (; iter_next(r, it, &item); got++) {
        if (got == want) fail(r, "too many values to unpack (expected %zu)", want);
        list.list->items[got] = item;
    }
    if (got < want) fail(r, "not enough values to unpack (expected %zu, got %zu)", want, got);
    got = 0;
    for (const struct node *i = target->args; i; i = i->next) assign(r, i, list.list->items[got++]);
}

void assign(struct render *r, const struct node *target, value v) {
    if (target->kind == X_NAME) {
        *slot(r, target->ref) = v;
    } else if (target->kind == X_NSREF) {
        value ns = *slot(r, target->ref);
        if (ns.kind != V_NAMESPACE) fail(r, "cannot assign attribute on non-namespace object");
        dict_put(r, ns.dict, target->val, v);
    } else {
        assign_tuple(r, target, v);
    }
}

/* Attributes are assigned to namespaces only; Jinja finds out before it evaluates the value. */
static void check_namespaces(struct render *r, const struct node *target) {
    if (target->kind == X_NSREF && slot(r, target->ref)->kind != V_NAMESPACE)
        fail(r, "cannot assign attribute on non-namespace object");
    for (const struct node *i = target->args; i && target->kind == X_TUPLE; i = i->next)
        check_namespaces(r, i);
}

/* Top-level variables are visible in blocks. */
static void export_names(struct render *r, const struct node *target) {
    if (target->kind == X_NAME)
        dict_put(r, r->context->exports, val_str(target->name), *slot(r, target->ref));
    for (const struct node *i = target->args; i && target->kind == X_TUPLE; i = i->next)
        export_names(r, i);
}

static void finish_assign(struct render *r, const struct node *n) {
    if (n->op & SET_EXPORTS && r->j->n_blocks) export_names(r, n->a);
}

static void exec_set(struct render *r, const struct node *n) {
    check_namespaces(r, n->a);
    assign(r, n->a, eval(r, n->b));
    finish_assign(r, n);
}

/* Runs a body whose output is captured. A break or continue leaves the capture behind. */
static enum flow capture(struct render *r, const struct node *body, value *text) {
    size_t mark = out_begin(r);
    enum flow flow = exec(r, body);
    if (flow == FLOW_ON)
        *text = out_end(r, mark);
    else
        out_drop(r, mark);
    return flow;
}

/* A chain of filters whose innermost operand is text. */
static value filter_text(struct render *r, const struct node *filter, value text) {
    if (!filter) return text;
    struct call c;
    call_init(&c);
    value self = filter_text(r, filter->a, text);
    call_eval(r, filter, &c);
    r->trap.line = filter->line;
    if (!filter->fn) fail(r, "no filter named '%.*s'", (int)filter->name->len, filter->name->data);
    return call_builtin(r, filter->fn, self, &c);
}

/* What a filter block or call block makes must be text already. */
static void print_text(struct render *r, value v) {
    if (v.kind != V_STR) fail(r, "the block's result is no text but a %s", kind_name(v));
    out_str(r, v.s);
}

static enum flow exec_captured(struct render *r, const struct node *n) {
    value text;
    scope_enter(r, &n->scope);
    enum flow flow = capture(r, n->body, &text);
    if (flow != FLOW_ON) return flow;
    text = filter_text(r, n->b, text);
    if (n->kind == S_FILTER) {
        print_text(r, text);
    } else {
        assign(r, n->a, text);
        finish_assign(r, n);
    }
    scope_leave(r, &n->scope);
    return FLOW_ON;
}

/* ---- loops ---------------------------------------------------------------------------------- */

/* Items of a loop that its condition lets through, tested as they are asked for. */
static bool next_passing(struct render *r, struct iter *it, value *out) {
    const struct node *n = it->node;
    struct act *around = r->act;
    bool found = false;
    if (!it->started) {
        it->started = true;
        it->act = act_push(r, n->test_frame, it->act);
        scope_enter(r, &n->test_scope);
    }
    r->act = it->act;
    while (!found && iter_next(r, it->inner, out)) {
        assign(r, n->d, *out);
        found = truth(r, eval(r, n->c));
    }
    r->act = around;
    return found;
}

static bool loop_next(struct render *r, struct loop *loop, value *out) {
    if (given(loop->after)) {
        *out = loop->after;
        loop->after = val_missing();
    } else if (!iter_next(r, loop->it, out)) {
        return false;
    }
    loop->index0++;
    loop->before = loop->current;
    loop->current = *out;
    return true;
}

static struct loop *loop_new(struct render *r, const struct node *n, struct iter *it, value source,
                             int64_t depth0, struct act *around) {
    struct loop *loop = render_alloc(r, sizeof *loop);
    *loop = (struct loop){.it = it,
                          .source = source,
                          .index0 = -1,
                          .length = -1,
                          .depth0 = depth0,
                          .node = n,
                          .act = around};
    return loop;
}

/* The loop itself, in the function whose variables are r->act. */
static enum flow run_loop(struct render *r, const struct node *n, value source, int64_t depth0,
                          struct act *around) {
    struct iter *it = iter_of(r, source);
    if (n->c) {
        struct iter *passing = iter_new(r, next_passing);
        passing->inner = it;
        passing->node = n;
        passing->act = around;
        it = passing;
        source = val_iter(it);
    }
    struct loop *loop = n->op & FOR_EXTENDED ? loop_new(r, n, it, source, depth0, around) : NULL;
    bool completed = false;
    value item;
    while (loop ? loop_next(r, loop, &item) : iter_next(r, it, &item)) {
        charge(r, 1);
        assign(r, n->a, item);
        if (loop) r->act->slots[n->loop_slot] = (value){.kind = V_LOOP, .loop = loop};
        scope_enter(r, &n->scope);
        enum flow flow = exec(r, n->body);
        if (flow == FLOW_BREAK) break;
        if (flow == FLOW_ON) completed = true;
    }
    scope_leave(r, &n->scope);
    if (completed || !n->other) return FLOW_ON;
    scope_enter(r, &n->other_scope);
    enum flow flow = exec(r, n->other);
    if (flow == FLOW_ON) scope_leave(r, &n->other_scope);
    return flow;
}

static enum flow exec_recursive(struct render *r, const struct node *n, value items, int64_t depth0,
                                struct act *around) {
    struct act *before = r->act, *act = act_push(r, n->frame, around);
    run_loop(r, n, items, depth0, around);
    r->act = before;
    act_pop(r, n->frame, act);
    return FLOW_ON;
}

value loop_recurse(struct render *r, struct loop *loop, value items) {
    if (!(loop->node->op & FOR_RECURSIVE))
        fail(r, "the loop must have the 'recursive' marker to be called recursively");
    size_t mark = out_begin(r);
    enter(r);
    exec_recursive(r, loop->node, items, loop->depth0 + 1, loop->act);
    leave(r);
    return out_end(r, mark);
}

static enum flow exec_for(struct render *r, const struct node *n) {
    value items = eval(r, n->b);
    r->trap.line = n->line;
    if (n->op & FOR_RECURSIVE) return exec_recursive(r, n, items, 0, r->act);
    return run_loop(r, n, items, 0, r->act);
}

/* ---- macros, calls, blocks ------------------------------------------------------------------ */

static value macro_value(struct render *r, const struct macro_code *code) {
    struct macro *m = render_alloc(r, sizeof *m);
    *m = (struct macro){code, r->act};
    return (value){.kind = V_MACRO, .macro = m};
}

static void exec_macro(struct render *r, const struct node *n) {
    *slot(r, n->ref) = macro_value(r, n->macro);
    if (n->op & SET_EXPORTS && r->j->n_blocks)
        dict_put(r, r->context->exports, val_str(n->name), *slot(r, n->ref));
}

static void exec_call(struct render *r, const struct node *n) {
    struct call c;
    value caller = macro_value(r, n->macro);
    call_init(&c);
    if (n->kind == S_GENERATION) {
        print_text(r, call_value(r, caller, &c));
        return;
    }
    value callee = eval(r, n->a->a);
    call_eval(r, n->a, &c);
    call_push_kw(r, &c, str_literal(r, "caller").s, caller);
    r->trap.line = n->line;
    print_text(r, call_value(r, callee, &c));
}

static value self_value(struct render *r) {
    return (value){.kind = V_SELF, .context = r->context};
}

static void exec_block_body(struct render *r, const struct node *n, struct context *context) {
    struct act *before = r->act;
    struct context *outside = r->context;
    enter(r);
    r->context = context;
    struct act *act = act_push(r, n->frame, NULL);
    if (n->op & BLOCK_SELF) act->slots[n->loop_slot] = self_value(r);
    if (n->op & BLOCK_SUPER)
        act->slots[n->super_slot] = val_undefined(r, "there is no parent block");
    scope_enter(r, &n->scope);
    exec(r, n->body);
    r->act = before;
    r->context = outside;
    act_pop(r, n->frame, act);
    leave(r);
}

value block_render(struct render *r, const struct node *block, struct context *context) {
    size_t mark = out_begin(r);
    exec_block_body(r, block, context);
    return out_end(r, mark);
}

static void copy_into(struct render *r, struct dict *to, const struct dict *from) {
    for (size_t i = 0; i < from->n; i++)
        dict_put(r, to, from->entries[i].key, from->entries[i].val);
}

static void exec_block(struct render *r, const struct node *n) {
    struct context *context = r->context;
    if (n->op & BLOCK_REQUIRED)
        fail(r, "required block '%.*s' not found", (int)n->name->len, n->name->data);
    if (n->op & BLOCK_SCOPED) {
        context = render_alloc(r, sizeof *context);
        *context = (struct context){dict_new(r, 0), dict_new(r, r->context->vars->n)};
        copy_into(r, context->vars, r->context->vars);
        copy_into(r, context->vars, r->context->exports);
        for (const struct node *i = n->args; i; i = i->next)
            if (given(*slot(r, i->ref)))
                dict_put(r, context->vars, val_str(i->name), *slot(r, i->ref));
    }
    exec_block_body(r, n, context);
}

static enum flow exec_with(struct render *r, const struct node *n) {
    const struct node *v = n->kwargs;
    scope_enter(r, &n->scope);
    for (const struct node *i = n->args; i; i = i->next, v = v->next) assign(r, i, eval(r, v));
    enum flow flow = exec(r, n->body);
    if (flow == FLOW_ON) scope_leave(r, &n->scope);
    return flow;
}

static enum flow exec_scope(struct render *r, const struct node *n) {
    scope_enter(r, &n->scope);
    if (truth(r, eval(r, n->a))) fail(r, "autoescape is not supported");
    enum flow flow = exec(r, n->body);
    if (flow == FLOW_ON) scope_leave(r, &n->scope);
    return flow;
}

static enum flow exec_if(struct render *r, const struct node *n) {
    if (truth(r, eval(r, n->a))) return exec(r, n->body);
    for (const struct node *i = n->args; i; i = i->next) {
        charge(r, 1);
        if (truth(r, eval(r, i->a))) return exec(r, i->body);
    }
    return exec(r, n->other);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static enum flow exec_statement(struct render *r, const struct node *n) {
    switch (n->kind) {
    case S_TEXT:
        out_str(r, n->val.s);
        return FLOW_ON;
    case S_PRINT:
        print_value(r, eval(r, n->a));
        return FLOW_ON;
    case S_FOR:
        return exec_for(r, n);
    case S_IF:
        return exec_if(r, n);
    case S_SET:
        exec_set(r, n);
        return FLOW_ON;
    case S_SETBLOCK:
    case S_FILTER:
        return exec_captured(r, n);
    case S_MACRO:
        exec_macro(r, n);
        return FLOW_ON;
    case S_CALL:
    case S_GENERATION:
        exec_call(r, n);
        return FLOW_ON;
    case S_WITH:
        return exec_with(r, n);
    case S_SCOPE:
        return exec_scope(r, n);
    case S_BLOCK:
        exec_block(r, n);
        return FLOW_ON;
    case S_BREAK:
        return FLOW_BREAK;
    case S_CONTINUE:
        return FLOW_CONTINUE;
    default:
        eval(r, n->a);
        fail(r, "other templates cannot be loaded");
    }
}

enum flow exec(struct render *r, const struct node *list) {
    enum flow flow = FLOW_ON;
    enter(r);
    for (; list && flow == FLOW_ON; list = list->next) {
        charge(r, 1);
        r->trap.line = list->line;
        flow = exec_statement(r, list);
    }
    leave(r);
    return flow;
}

void render_body(struct render *r) {
    struct act *act = act_push(r, &r->j->frame, NULL);
    if (r->j->wants_self) act->slots[r->j->self_slot] = self_value(r);
    scope_enter(r, &r->j->scope);
    exec(r, r->j->body);
}
