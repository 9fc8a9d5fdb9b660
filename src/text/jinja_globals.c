/* Functions that every template knows, and the variable `loop`. */
#include "jinja_internal.h"

#include <time.h>

value unsupported(struct render *r, value *v, struct call *rest) {
    fail(r, "this function is not supported");
}

/* ---- containers ----------------------------------------------------------------------------- */

/* dict(…): a mapping or pairs, and keywords. */
static struct dict *build_dict(struct render *r, const char *who, struct call *c) {
    struct dict *d = dict_new(r, c->n_kw);
    if (c->n_pos > 1) fail(r, "%s takes at most one positional argument", who);
    if (c->n_pos && c->pos[0].kind == V_DICT) {
        const struct dict *from = c->pos[0].dict;
        for (size_t i = 0; i < from->n; i++)
            dict_put(r, d, from->entries[i].key, from->entries[i].val);
    } else if (c->n_pos) {
        struct iter *it = iter_of(r, c->pos[0]);
        for (value v; iter_next(r, it, &v);) {
            value pair = to_list(r, v);
            if (pair.list->n != 2) fail(r, "%s needs pairs of key and value", who);
            dict_put(r, d, pair.list->items[0], pair.list->items[1]);
        }
    }
    for (size_t i = 0; i < c->n_kw; i++) dict_put(r, d, val_str(c->kw[i].name), c->kw[i].val);
    return d;
}

static value make_dict(struct render *r, value *v, struct call *c) {
    return val_dict(build_dict(r, "dict", c));
}

static value make_namespace(struct render *r, value *v, struct call *c) {
    return (value){.kind = V_NAMESPACE, .dict = build_dict(r, "namespace", c)};
}

static value make_range(struct render *r, value *v, struct call *c) {
    int64_t start = need_int(r, v[1], "range: an argument"), stop = start, step = 1;
    if (given(v[2]))
        stop = need_int(r, v[2], "range: an argument");
    else
        start = 0;
    if (given(v[3])) step = need_int(r, v[3], "range: an argument");
    if (step == 0) fail(r, "range: the step cannot be zero");
    __extension__ typedef __int128 wide;
    wide n = step > 0 ? ((wide)stop - start + step - 1) / step
                      : ((wide)start - stop - step - 1) / -(wide)step;
    if (n < 0) n = 0;
    if (n > JINJA_MAX_RANGE) fail(r, "range: more than %d numbers", JINJA_MAX_RANGE);
    struct range *range = render_alloc(r, sizeof *range);
    *range = (struct range){start, stop, step, (int64_t)n};
    return (value){.kind = V_RANGE, .range = range};
}

static value make_cycler(struct render *r, value *v, struct call *c) {
    if (c->n_kw || !c->n_pos) fail(r, "cycler needs items");
    struct cycler *cycler = render_alloc(r, sizeof *cycler);
    *cycler = (struct cycler){*list_of(r, c->pos, c->n_pos, V_LIST).list, 0};
    return (value){.kind = V_CYCLER, .cycler = cycler};
}

static value make_joiner(struct render *r, value *v, struct call *c) {
    struct joiner *joiner = render_alloc(r, sizeof *joiner);
    *joiner = (struct joiner){given(v[1]) ? v[1] : str_literal(r, ", "), false};
    return (value){.kind = V_JOINER, .joiner = joiner};
}

/* ---- what transformers adds ----------------------------------------------------------------- */

static value raise_exception(struct render *r, value *v, struct call *c) {
    const struct str *message = to_str(r, v[1]);
    trap_raise(&r->trap, message->data, message->len);
}

/* strftime of a time without zone: %z and %Z are empty and %f is zeros, as in Python. */
static value strftime_now(struct render *r, value *v, struct call *c) {
    enum { LONGEST = 4096 };
    struct tm tm;
    time_t now = (time_t)r->now;
    if (v[1].kind != V_STR) fail(r, "strftime_now needs a string");
    const struct str *format = v[1].s;
    if (memchr(format->data, 0, format->len)) fail(r, "strftime_now: embedded null character");
    size_t mark = out_begin(r);
    for (size_t i = 0; i < format->len; i++) {
        const char *p = format->data + i;
        bool percent = p[0] == '%' && i + 1 < format->len;
        if (percent && (p[1] == 'z' || p[1] == 'Z'))
            i++;
        else if (percent && p[1] == 'f')
            out_puts(r, "000000", TEXT_TEMPLATE), i++;
        else if (percent)
            out_put(r, p, 2, TEXT_TEMPLATE), i++;
        else
            out_put(r, p, 1, TEXT_TEMPLATE);
    }
    out_put(r, " ", 2, TEXT_TEMPLATE); /* so that an empty result is none that did not fit */
    const struct str *safe = out_end(r, mark).s;
    char *text = render_alloc(r, LONGEST);
    if (!localtime_r(&now, &tm)) fail(r, "strftime_now: the time is out of range");
    size_t len = strftime(text, LONGEST, safe->data, &tm);
    if (len == 0) fail(r, "strftime_now: the result is too long");
    return val_str(str_new(&r->trap, text, len - 1, str_origin(format)));
}

static const struct builtin globals[] = {
    {"range", make_range, "/ start ?stop ?step"},
    {"dict", make_dict, "*"},
    {"namespace", make_namespace, "*"},
    {"cycler", make_cycler, "*"},
    {"joiner", make_joiner, "?sep"},
    {"lipsum", unsupported, "*"},
    {"raise_exception", raise_exception, "message"},
    {"strftime_now", strftime_now, "format"},
};

void globals_add(struct render *r, struct dict *vars) {
    for (size_t i = 0; i < COUNT_OF(globals); i++) {
        struct func *f = render_alloc(r, sizeof *f);
        *f = (struct func){&globals[i], val_missing()};
        dict_put(r, vars, str_literal(r, globals[i].name), (value){.kind = V_FUNC, .func = f});
    }
}

/* ---- loop ----------------------------------------------------------------------------------- */

static int64_t loop_length(struct render *r, struct loop *loop) {
    if (loop->length >= 0) return loop->length;
    if (has_length(loop->source)) return loop->length = (int64_t)length_of(r, loop->source);
    struct list *rest = list_start(r); /* an iterator is read to its end */
    for (value v; iter_next(r, loop->it, &v);) list_push(r, rest, v);
    loop->it = iter_of(r, list_done(rest));
    return loop->length = (int64_t)rest->n + loop->index0 + 1 + given(loop->after);
}

static bool peek(struct render *r, struct loop *loop) {
    if (!given(loop->after) && !iter_next(r, loop->it, &loop->after)) loop->after = val_missing();
    return given(loop->after);
}

static value adjacent(struct render *r, struct loop *loop, bool next) {
    if (next) return peek(r, loop) ? loop->after : val_undefined(r, "there is no next item");
    return loop->index0 > 0 ? loop->before : val_undefined(r, "there is no previous item");
}

bool loop_attr(struct render *r, struct loop *loop, const struct str *name, value *out) {
    if (str_is(name, "index0"))
        *out = val_int(loop->index0);
    else if (str_is(name, "index"))
        *out = val_int(loop->index0 + 1);
    else if (str_is(name, "first"))
        *out = val_bool(loop->index0 == 0);
    else if (str_is(name, "last"))
        *out = val_bool(!peek(r, loop));
    else if (str_is(name, "length"))
        *out = val_int(loop_length(r, loop));
    else if (str_is(name, "revindex"))
        *out = val_int(loop_length(r, loop) - loop->index0);
    else if (str_is(name, "revindex0"))
        *out = val_int(loop_length(r, loop) - loop->index0 - 1);
    else if (str_is(name, "previtem"))
        *out = adjacent(r, loop, false);
    else if (str_is(name, "nextitem"))
        *out = adjacent(r, loop, true);
    else if (str_is(name, "depth"))
        *out = val_int(loop->depth0 + 1);
    else if (str_is(name, "depth0"))
        *out = val_int(loop->depth0);
    else
        return false;
    return true;
}
