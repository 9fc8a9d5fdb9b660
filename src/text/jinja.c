/* A template is parsed and resolved once and then only read: see jinja_internal.h for the stages.
 * A render makes values in an arena of its own and writes to the buffers of its struct render;
 * both are given back here, whether it ends well or by an error. */
#include "jinja_internal.h"

#include <locale.h>
#include <stdio.h>

#include "jinja_json.h"

enum {
    DEFAULT_STEPS = 10 * 1000 * 1000,
    DEFAULT_OUTPUT = 64 << 20,
    DEFAULT_MEMORY = 256 << 20,
    PARSE_MEMORY = 256 << 20,
};

/* ---- traps ---------------------------------------------------------------------------------- */

int trap_run(struct trap *t, void (*body)(void *arg), void *arg) {
    if (setjmp(t->env)) return t->code;
    body(arg);
    return 0;
}

void trap_fail(struct trap *t, int code, const char *format, ...) {
    char text[sizeof t->err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (t->line > 0)
        t->code = error_set(t->err, code, "line %d of the template: %s", t->line, text);
    else
        t->code = error_set(t->err, code, "%s", text);
    longjmp(t->env, 1);
}

void trap_raise(struct trap *t, const char *text, size_t len) {
    t->code = error_set(t->err, ICP_EINVALID, "%.*s", (int)MIN(len, sizeof t->err->text), text);
    longjmp(t->env, 1);
}

void *trap_alloc(struct trap *t, size_t size) {
    if (size > t->max_memory || t->arena->used > t->max_memory - size)
        trap_fail(t, ICP_ELIMIT, "the template needs more than %zu bytes of memory", t->max_memory);
    void *block = arena_alloc(t->arena, size);
    if (!block) trap_fail(t, ICP_ENOMEM, "out of memory");
    return block;
}

void *trap_zero(struct trap *t, size_t size) {
    return memset(trap_alloc(t, size), 0, size);
}

/* Numbers and dates are read and written as in Python, whatever the program's locale. */
static locale_t locale_enter(locale_t *c_locale) {
    *c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return *c_locale ? uselocale(*c_locale) : (locale_t)0;
}

static void locale_leave(locale_t c_locale, locale_t before) {
    if (!c_locale) return;
    uselocale(before);
    freelocale(c_locale);
}

/* ---- templates ------------------------------------------------------------------------------ */

struct opening {
    struct trap trap;
    jinja *j;
    const char *source;
    size_t len;
};

static void open_template(void *arg) {
    struct opening *o = arg;
    template_parse(&o->trap, o->j, o->source, o->len);
    scope_resolve(&o->trap, o->j);
}

int jinja_open(const char *source, size_t len, jinja **out, icp_error *err) {
    jinja *j = mem_zero(1, sizeof *j);
    if (!j) return error_set(err, ICP_ENOMEM, "out of memory");
    arena_init(&j->arena);
    struct opening o = {.trap = {.arena = &j->arena, .max_memory = PARSE_MEMORY, .err = err},
                        .j = j,
                        .source = source,
                        .len = len};
    locale_t c_locale, before = locale_enter(&c_locale);
    int rc = trap_run(&o.trap, open_template, &o);
    locale_leave(c_locale, before);
    if (rc == 0)
        *out = j;
    else
        jinja_close(&j);
    return rc;
}

void jinja_close(jinja **j) {
    if (!*j) return;
    arena_fini(&(*j)->arena);
    mem_free(*j);
    *j = NULL;
}

/* ---- renders -------------------------------------------------------------------------------- */

void jinja_text_fini(jinja_text *t) {
    buf_fini(&t->text);
    buf_fini(&t->origin);
}

static void render_template(void *arg) {
    struct render *r = arg;
    struct dict *vars = dict_new(r, 32);
    globals_add(r, vars);
    json_read_vars(r, r->vars_json, TEXT_USER, vars);
    if (r->trusted_json) json_read_vars(r, r->trusted_json, TEXT_TEMPLATE, vars);
    r->context = render_alloc(r, sizeof *r->context);
    *r->context = (struct context){dict_new(r, 0), vars};
    render_body(r);
    r->trap.line = 0;
}

int jinja_render(const jinja *j, const char *vars_json, const char *trusted_json, int64_t now,
                 const jinja_opts *opts, jinja_text *out, icp_error *err) {
    jinja_opts l = opts ? *opts : (jinja_opts){0};
    if (!l.max_steps) l.max_steps = DEFAULT_STEPS;
    if (!l.max_output) l.max_output = DEFAULT_OUTPUT;
    if (!l.max_memory) l.max_memory = DEFAULT_MEMORY;
    struct render r = {.j = j,
                       .vars_json = vars_json,
                       .trusted_json = trusted_json,
                       .now = now,
                       .limits = l,
                       .trap = {.max_memory = l.max_memory, .err = err}};
    r.trap.arena = &r.arena;
    arena_init(&r.arena);
    locale_t c_locale, before = locale_enter(&c_locale);
    int rc = trap_run(&r.trap, render_template, &r);
    locale_leave(c_locale, before);
    json_release(&r);
    arena_fini(&r.arena);
    if (rc < 0) {
        buf_fini(&r.text);
        buf_fini(&r.origin);
        return rc;
    }
    jinja_text_fini(out);
    *out = (jinja_text){r.text, r.origin};
    return 0;
}

/* ---- what every evaluation may run into ----------------------------------------------------- */

void fail(struct render *r, const char *format, ...) {
    char text[sizeof r->trap.err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    trap_fail(&r->trap, ICP_EINVALID, "%s", text);
}

void fail_limit(struct render *r, const char *what) {
    trap_fail(&r->trap, ICP_ELIMIT, "the template %s", what);
}

void charge(struct render *r, size_t steps) {
    if (steps > r->limits.max_steps - r->steps) fail_limit(r, "takes too many steps");
    r->steps += steps;
}

void enter(struct render *r) {
    if (++r->depth > JINJA_MAX_DEPTH) fail_limit(r, "nests too deeply");
}

/* Work is about proportional to the memory it fills, so that memory is charged as steps too. */
void *render_alloc(struct render *r, size_t size) {
    charge(r, size / 256);
    return trap_alloc(&r->trap, size);
}
