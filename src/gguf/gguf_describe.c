/* A file's contents as text for people: `incipit info`. */
#include "gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHOWN_TEXT = 80, /* bytes of a string; longer ones are cut, with their length said */
    SHOWN_ITEMS = 8, /* items of an array */
    SHOWN_ITEM = 24, /* bytes of an array's string */
    MAX_COLUMN = 48  /* a longer name pushes its own line to the right, not all others */
};

/* "1.5 MB": three significant digits, decimal units as file managers and shops have them. */
static void put_bytes(buf *out, size_t bytes) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
    double n = (double)bytes;
    size_t unit = 0;
    while (n >= 999.5 && unit + 1 < COUNT_OF(units)) {
        n /= 1000;
        unit++;
    }
    buf_printf(out, "%.*f %s", unit == 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2, n, units[unit]);
}

static void put_text(buf *out, gguf_str text, size_t shown) {
    size_t len = text.len <= shown ? text.len : utf8_complete(text.data, shown);
    buf_putc(out, '"');
    buf_put_escaped(out, text.data, len);
    buf_putc(out, '"');
    if (len < text.len) buf_puts(out, "…");
}

/* The shortest decimal number that reads back as the same float or double. */
static void put_real(buf *out, double real, bool is_double) {
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, real);
        if (is_double ? strtod(text, NULL) == real : strtof(text, NULL) == (float)real) break;
    }
    buf_puts(out, text);
}

static void put_number(buf *out, const gguf_value *v, uint64_t i) {
    uint64_t natural;
    switch (v->item) {
    case GGUF_KIND_BOOL:
        buf_puts(out, v->bytes[i] ? "true" : "false");
        break;
    case GGUF_KIND_F32:
        put_real(out, gguf_at_float(v, i), false);
        break;
    case GGUF_KIND_F64:
        put_real(out, gguf_at_float(v, i), true);
        break;
    case GGUF_KIND_U64: /* the only kind that gguf_at_int cannot hold */
        memcpy(&natural, v->bytes + i * sizeof natural, sizeof natural);
        buf_printf(out, "%" PRIu64, natural);
        break;
    default:
        buf_printf(out, "%" PRId64, gguf_at_int(v, i));
    }
}

static void put_items(buf *out, const gguf_value *v) {
    uint64_t shown = MIN(v->count, (uint64_t)SHOWN_ITEMS);
    gguf_str text[SHOWN_ITEMS];
    if (v->item == GGUF_KIND_STRING) {
        gguf_value head = *v;
        head.count = shown;
        gguf_at_strings(&head, text);
    }
    for (uint64_t i = 0; i < shown; i++) {
        if (i > 0) buf_puts(out, ", ");
        if (v->item == GGUF_KIND_STRING)
            put_text(out, text[i], SHOWN_ITEM);
        else
            put_number(out, v, i);
    }
    if (shown < v->count) buf_puts(out, ", …");
}

static void put_value(buf *out, const gguf_value *v) {
    gguf_str text;
    if (v->kind == GGUF_KIND_ARRAY) {
        put_items(out, v);
    } else if (v->kind == GGUF_KIND_STRING) {
        gguf_at_strings(v, &text);
        put_text(out, text, SHOWN_TEXT);
        if (text.len > SHOWN_TEXT) buf_printf(out, " (%zu bytes)", text.len);
    } else {
        put_number(out, v, 0);
    }
}

/* Appends blanks until the text since `from` fills a column, and always two of them. */
static void pad(buf *out, size_t from, size_t width) {
    size_t have = out->len - from;
    buf_printf(out, "%*s", (int)(have < width ? width - have + 2 : 2), "");
}

static void put_metadata(buf *out, const gguf *g) {
    size_t key_width = 0;
    for (size_t i = 0; i < g->n_entries; i++) key_width = MAX(key_width, g->entries[i].key.len);
    key_width = MIN(key_width, (size_t)MAX_COLUMN);
    buf_puts(out, "\nMetadata\n");
    for (size_t i = 0; i < g->n_entries; i++) {
        const gguf_value *v = &g->entries[i].value;
        buf_puts(out, "  ");
        size_t from = out->len;
        buf_put_escaped(out, g->entries[i].key.data, MIN(g->entries[i].key.len, (size_t)1024));
        pad(out, from, key_width);
        from = out->len;
        buf_puts(out, gguf_kind_name((int)v->item));
        if (v->kind == GGUF_KIND_ARRAY) buf_printf(out, "[%" PRIu64 "]", v->count);
        pad(out, from, sizeof "string[49152]" - 1);
        put_value(out, v);
        buf_putc(out, '\n');
    }
}

static void put_tensors(buf *out, const gguf *g) {
    size_t name_width = sizeof "name" - 1;
    for (size_t i = 0; i < g->n_tensors; i++) name_width = MAX(name_width, g->tensors[i].name.len);
    name_width = MIN(name_width, (size_t)MAX_COLUMN);
    bool split = g->n_rest > 0;
    buf_printf(out, "\nTensors\n  %-*s  %-7s  %-22s  %12s  %14s%s\n", (int)name_width, "name",
               "type", "dimensions", "bytes", "at byte", split ? "  of file" : "");
    for (size_t i = 0; i < g->n_tensors; i++) {
        const gguf_tensor *t = &g->tensors[i];
        buf_puts(out, "  ");
        size_t from = out->len;
        buf_put_escaped(out, t->name.data, t->name.len);
        pad(out, from, name_width);
        char dims[4 * 24];
        int n = 0;
        for (int d = 0; d < t->n_dims; d++)
            n += snprintf(dims + n, sizeof dims - (size_t)n, d ? " x %" PRIu64 : "%" PRIu64,
                          t->dims[d]);
        buf_printf(out, "%-7s  %-22s  %12zu  %14" PRIu64, gguf_type_name((int)t->type), dims,
                   t->size, t->offset);
        if (split) buf_printf(out, "  %7d", t->file + 1);
        buf_putc(out, '\n');
    }
}

static void put_totals(buf *out, const gguf *g) {
    static const enum gguf_type types[] = {
#define TYPE_VALUE(name, number, block_len, block_size) GGUF_##name,
        GGUF_TYPES(TYPE_VALUE)
#undef TYPE_VALUE
    };
    buf_puts(out, "\nTotals\n");
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        size_t n = 0, bytes = 0;
        uint64_t elements = 0;
        for (size_t k = 0; k < g->n_tensors; k++) {
            const gguf_tensor *t = &g->tensors[k];
            if (t->type != types[i]) continue;
            n++;
            bytes += t->size;
            elements += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        }
        if (n == 0) continue;
        buf_printf(out, "  %-7s  %5zu %-7s  %14" PRIu64 " elements  ",
                   gguf_type_name((int)types[i]), n, n == 1 ? "tensor" : "tensors", elements);
        put_bytes(out, bytes);
        buf_putc(out, '\n');
    }
}

int gguf_describe(const gguf *g, buf *out) {
    buf_printf(out, "GGUF version %" PRIu32 ", ", g->version);
    put_bytes(out, gguf_file_size(g));
    if (g->n_rest) buf_printf(out, " in %zu files", gguf_n_files(g));
    buf_printf(out, ", alignment %zu, %zu metadata entries, %zu tensors\n", g->alignment,
               g->n_entries, g->n_tensors);
    if (g->n_entries) put_metadata(out, g);
    if (g->n_tensors) {
        put_tensors(out, g);
        put_totals(out, g);
    }
    return out->failed ? ICP_ENOMEM : 0;
}
