/* Filling in the middle: a prompt that shows a model what is before and after the gap.
 *
 *   [repo NAME] [file NAME TEXT]…  PREFIX before  SUFFIX after  MIDDLE ▮
 *
 * Each family of models has tokens of its own for it, and one has the suffix first. They are found
 * in the vocabulary by their names; llama-server's /infill puts more files before the gap the same
 * way. */
#include <string.h>

#include "generation.h"

typedef struct fim_marks {
    const char *prefix, *suffix, *middle;
    const char *file; /* before another file; NULL: none */
    bool suffix_first;
} fim_marks;

static const fim_marks families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>", false}, /* Qwen, Gemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", false},  /* StarCoder, Granite */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, false},          /* SantaCoder */
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, false}, /* GLM */
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>", /* DeepSeek: the hole, then its end */
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     NULL, false},
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>", NULL, false}, /* Code Llama */
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]", NULL, true},                             /* Codestral */
};

/* The token of that name, or -1. */
static int32_t special(const icp_model *model, const char *name) {
    icp_tokens ids = {0};
    int32_t id = -1;
    char *text = NULL;
    size_t len = 0;
    if (!name || icp_tokenize(model, name, strlen(name), true, false, &ids, NULL) < 0) return -1;
    /* One token that is not shown as text: a control token, not an ordinary one that spells it. */
    if (ids.n == 1 && icp_detokenize(model, ids.id, 1, false, &text, &len, NULL) == 0 && len == 0)
        id = ids.id[0];
    icp_free(text);
    icp_tokens_free(&ids);
    return id;
}

static const fim_marks *find_marks(const icp_model *model) {
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (special(model, families[i].prefix) >= 0 && special(model, families[i].suffix) >= 0)
            return &families[i];
    return NULL;
}

static bool append(icp_tokens *out, const int32_t *ids, size_t n) {
    int32_t *grown = mem_resize(out->id, out->n + n + 1, sizeof *grown);
    if (!grown) return false;
    out->id = grown;
    if (n) memcpy(grown + out->n, ids, n * sizeof *ids);
    out->n += n;
    return true;
}

static bool append_token(icp_tokens *out, int32_t id) {
    return id < 0 || append(out, &id, 1);
}

static bool append_text(const icp_model *model, icp_tokens *out, const char *text, size_t len) {
    icp_tokens ids = {0};
    bool ok =
        icp_tokenize(model, text, len, false, false, &ids, NULL) == 0 && append(out, ids.id, ids.n);
    icp_tokens_free(&ids);
    return ok;
}

static bool append_string(const icp_model *model, icp_tokens *out, json_object *text) {
    return append_text(model, out, text ? json_object_get_string(text) : "",
                       text ? (size_t)json_object_get_string_len(text) : 0);
}

static bool check_extra(json_object *extra, reply *error) {
    for (size_t i = 0; extra && i < json_object_array_length(extra); i++) {
        json_object *file = json_object_array_get_idx(extra, i);
        bool object = json_object_is_type(file, json_type_object);
        json_object *text = object ? field_get(file, "text") : NULL;
        json_object *name = object ? field_get(file, "filename") : NULL;
        bool named = !name || json_object_is_type(name, json_type_string);
        if (text && json_object_is_type(text, json_type_string) && named) continue;
        reply_error(error, 400, "invalid_value", "input_extra",
                    "Invalid value for 'input_extra': item %zu must have a 'text', and may have a "
                    "'filename'; both are strings.",
                    i);
        return false;
    }
    return true;
}

/* Other files, each behind its mark and name. */
static bool append_extra(const icp_model *model, const fim_marks *m, icp_tokens *out,
                         json_object *extra) {
    int32_t mark = special(model, m->file);
    for (size_t i = 0; extra && i < json_object_array_length(extra); i++) {
        json_object *file = json_object_array_get_idx(extra, i);
        json_object *name = field_get(file, "filename");
        buf head = {0};
        buf_printf(&head, "%s%s\n", mark < 0 ? "\n\n--- " : "",
                   name ? json_object_get_string(name) : "tmp");
        bool ok = !head.failed && append_token(out, mark) &&
                  append_text(model, out, head.data, head.len) &&
                  append_string(model, out, field_get(file, "text"));
        buf_fini(&head);
        if (!ok) return false;
    }
    return true;
}

static bool append_gap(const icp_model *model, const fim_marks *m, const fim_parts *p,
                       icp_tokens *out) {
    const char *typed = p->typed ? p->typed : "";
    bool ok = true;
    for (int step = 0; ok && step < 2; step++) {
        if ((step == 0) == !m->suffix_first)
            ok = append_token(out, special(model, m->prefix)) &&
                 append_string(model, out, p->prefix) &&
                 append_text(model, out, typed, strlen(typed));
        else
            ok = append_token(out, special(model, m->suffix)) &&
                 append_string(model, out, p->suffix);
    }
    return ok && (m->suffix_first || append_token(out, special(model, m->middle)));
}

bool fim_tokenize(call *c, const fim_parts *parts, icp_tokens *out) {
    const icp_model *model = c->on->model;
    const fim_marks *marks = find_marks(model);
    if (!check_extra(parts->extra, &c->reply)) return false;
    if (!marks) {
        reply_error(&c->reply, 400, "unsupported", "suffix",
                    "This model's vocabulary has no tokens for filling in the middle.");
        return false;
    }
    icp_tokens ends = {0}; /* what the vocabulary puts around a text */
    int32_t bos = icp_token_bos(model);
    bool ok = icp_tokenize(model, "", 0, false, true, &ends, NULL) == 0;
    if (ok && ends.n && ends.id[0] == bos) ok = append_token(out, bos);
    icp_tokens_free(&ends);
    ok =
        ok && append_extra(model, marks, out, parts->extra) && append_gap(model, marks, parts, out);
    if (!ok) reply_error(&c->reply, 503, NULL, NULL, "Out of memory.");
    if (!ok) icp_tokens_free(out);
    return ok;
}
