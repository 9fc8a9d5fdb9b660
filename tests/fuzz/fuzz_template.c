/* Fuzzes templates with conversations: a template, a NUL, and a chat's JSON. Its capabilities are
 * found out, the messages made to fit, and rendered; nothing of them may count as the template's.
 * With marks where messages end it is the same text. */
#include "chat.h"
#include "fuzz.h"
#include "json.h"

static const jinja_opts limits = {
    .max_steps = 50000, .max_output = 1 << 18, .max_memory = 16 << 20};

static int render_as(const jinja *j, json_object *vars, bool marked, jinja_text *out) {
    icp_error err = {0};
    jinja_opts opts = limits;
    opts.marked = marked;
    return jinja_render(j, json_object_to_json_string(vars), NULL, 0, &opts, out, &err);
}

static int render(void *arg, json_object *vars, jinja_text *out) {
    return render_as(arg, vars, false, out);
}

/* Bytes of user text that claim to be the template's: those that no template has. */
static void look_for_claims(const char *source, const jinja_text *out) {
    static const char secret[] = "\xe2\x98\xa0"; /* only conversations have it */
    if (strstr(source, secret) || strchr(source, '\\') || strstr(source, "chr")) return;
    for (size_t i = 0; i + 3 <= out->text.len; i++)
        if (!memcmp(out->text.data + i, secret, 3)) must(out->origin.data[i] != TEXT_TEMPLATE);
}

/* NULL: it has breakpoints, which are no part of the text. */
static json_object *with_marks(json_object *vars, chat_marks *marks) {
    const char *json = json_object_to_json_string(vars);
    json_object *copy = NULL;
    if (strstr(json, "\"breakpoint")) return NULL;
    must(json_object_deep_copy(vars, &copy, NULL) == 0);
    must(chat_marks_put(copy, json, true, marks) == 0);
    return copy;
}

static void compare_marked(const char *source, const jinja *j, const icp_chat_caps *caps,
                           json_object *vars, chat_marks *marks, const jinja_text *plain) {
    jinja_text out = {0};
    if (vars && chat_input_adapt(caps, vars, NULL) == 0 &&
        render_as(j, vars, marks->n > 0, &out) == 0) {
        must(out.text.len == plain->text.len);
        must(!out.text.len || !memcmp(out.text.data, plain->text.data, out.text.len));
        look_for_claims(source, &out);
        chat_marks_find(marks, &out);
        for (size_t i = 0; i < marks->n; i++) must(marks->mark[i].at <= out.text.len);
    }
    jinja_text_fini(&out);
}

static void run(const char *source, const jinja *j, json_object *vars) {
    icp_chat_caps caps;
    chat_style style;
    icp_error err = {0};
    chat_marks marks;
    if (chat_caps_probe(source, render, (void *)j, &caps, &style) < 0) return;
    must(style.calls && caps.dialect);
    json_object *marked = with_marks(vars, &marks);
    jinja_text out = {0};
    int rc = chat_input_adapt(&caps, vars, &err);
    if (rc < 0) must(err.text[0]);
    if (rc == 0 && render((void *)j, vars, &out) == 0) {
        look_for_claims(source, &out);
        compare_marked(source, j, &caps, marked, &marks, &out);
    }
    jinja_text_fini(&out);
    json_object_put(marked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, size};
    char *source = fuzz_string(fuzz_until(&in, 0));
    enum json_tokener_error why;
    json_object *vars = NULL;
    size_t end;
    jinja *j = NULL;
    json_read((const char *)in.data, in.len, 32, &vars, &why, &end);
    /* The API has looked at these before. */
    json_object *messages = json_object_object_get(vars, "messages");
    bool sane = json_object_is_type(messages, json_type_array);
    for (size_t i = 0; sane && i < json_object_array_length(messages); i++)
        sane = json_object_is_type(json_object_array_get_idx(messages, i), json_type_object);
    if (sane && jinja_open(source, strlen(source), &j, NULL) == 0) run(source, j, vars);
    jinja_close(&j);
    json_object_put(vars);
    free(source);
    return 0;
}
