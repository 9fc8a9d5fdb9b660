/* The output of a choice as items, told to the dialect while it grows. */
#include <string.h>

#include "generation.h"

static void tell(generation *g, enum output_event what, choice *c, item *i) {
    if (g->opts.stream) g->dialect->stream(g, what, c, i);
}

static item *open_item(choice *c) {
    return c->n_items ? &c->items[c->n_items - 1] : NULL;
}

static bool tells_tokens(const choice *c) {
    return c->logprobs.list[0].len > 0 || c->tokens.len > 0;
}

void output_flush(generation *g, choice *c) {
    item *open = open_item(c);
    if (!g->opts.stream || !((open && open->text.len > open->sent) || tells_tokens(c))) return;
    tell(g, OUTPUT_DELTA, c, open);
    if (open) open->sent = open->text.len;
    for (int i = 0; i < N_LISTS; i++) buf_clear(&c->logprobs.list[i]);
    buf_clear(&c->tokens);
}

static void end_item(generation *g, choice *c) {
    item *open = open_item(c);
    if (!open) return;
    output_flush(g, c);
    tell(g, OUTPUT_ITEM_ENDS, c, open);
}

/* Whether an id of the model's can be handed on: some templates want them back. */
static bool is_own_id(const generation *g, const char *id) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
    return id && *id && !g->dialect->call_prefix && strlen(id) < sizeof((item *)0)->id &&
           !id[strspn(id, letters)];
}

/* NULL without memory, which fails the generation. */
static item *begin_item(generation *g, choice *c, enum item_kind kind, const char *id,
                        const char *name, size_t len) {
    const char *call = g->dialect->call_prefix ? g->dialect->call_prefix : "call_";
    const char *const prefixes[] = {"msg_", "rs_", call};
    end_item(g, c);
    item *grown = mem_resize(c->items, c->n_items + 1, sizeof *grown);
    if (grown) c->items = grown;
    char *copy = grown && name ? mem_alloc(len + 1) : NULL;
    if (!grown || (name && !copy)) {
        reply_error(&g->failure, 503, "out_of_memory", NULL, "Out of memory.");
        return NULL;
    }
    if (copy) memcpy(copy, name, len), copy[len] = 0;
    item *new = &c->items[c->n_items++];
    *new = (item){.kind = kind, .name = copy};
    make_id(new->id, sizeof new->id, prefixes[kind]);
    if (is_own_id(g, id)) memcpy(new->id, id, strlen(id) + 1);
    tell(g, OUTPUT_ITEM_BEGINS, c, new);
    return new;
}

void output_text(generation *g, choice *c, enum item_kind kind, const char *text, size_t len) {
    item *open = open_item(c);
    if (len == 0) return;
    if (!open || open->kind != kind) open = begin_item(g, c, kind, NULL, NULL, 0);
    if (!open) return;
    buf_put(&open->text, text, len);
    if (open->text.failed) reply_error(&g->failure, 503, "out_of_memory", NULL, "Out of memory.");
}

void output_call(generation *g, choice *c, const char *id, const char *name, size_t len) {
    begin_item(g, c, ITEM_CALL, id, name, len);
}

void output_end(generation *g, choice *c) {
    if (!c->n_items) begin_item(g, c, ITEM_TEXT, NULL, NULL, 0);
    end_item(g, c);
    c->ended = true;
    tell(g, OUTPUT_CHOICE_ENDS, c, NULL);
}

void output_fini(choice *c) {
    for (size_t i = 0; i < c->n_items; i++) {
        buf_fini(&c->items[i].text);
        mem_free(c->items[i].name);
    }
    mem_free(c->items);
    buf_fini(&c->tokens);
    c->items = NULL;
    c->n_items = 0;
}

void put_output(buf *out, const choice *c, enum item_kind kind) {
    for (size_t i = 0; i < c->n_items; i++)
        if (c->items[i].kind == kind)
            buf_put_json(out, c->items[i].text.data ? c->items[i].text.data : "",
                         c->items[i].text.len);
}

size_t count_calls(const choice *c) {
    size_t n = 0;
    for (size_t i = 0; i < c->n_items; i++) n += c->items[i].kind == ITEM_CALL;
    return n;
}
