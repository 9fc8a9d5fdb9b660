/* Fuzzes templates with conversations: a template, a NUL, and a chat's JSON. Its capabilities are
 * found out, the messages made to fit, and rendered; nothing of them may count as the template's.
 */
#include "chat.h"
#include "fuzz.h"
#include "json.h"

static const jinja_limits limits = {
    .max_steps = 50000, .max_output = 1 << 18, .max_memory = 16 << 20};

static int render(void *arg, json_object *vars, jinja_text *out) {
    icp_error err = {0};
    return jinja_render(arg, json_object_to_json_string(vars), NULL, 0, &limits, out, &err);
}

/* Bytes of user text that claim to be the template's: those that no template has. */
static void look_for_claims(const char *source, const jinja_text *out) {
    static const char secret[] = "\xe2\x98\xa0"; /* only conversations have it */
    if (strstr(source, secret) || strchr(source, '\\') || strstr(source, "chr")) return;
    for (size_t i = 0; i + 3 <= out->text.len; i++)
        if (!memcmp(out->text.data + i, secret, 3)) must(out->origin.data[i] == TEXT_USER);
}

static void run(const char *source, const jinja *j, json_object *vars) {
    icp_chat_caps caps;
    chat_style style;
    icp_error err = {0};
    if (chat_caps_probe(source, render, (void *)j, &caps, &style) < 0) return;
    must(style.calls && caps.dialect);
    if (chat_input_adapt(&caps, vars, &err) < 0) {
        must(err.text[0]);
        return;
    }
    jinja_text out = {0};
    if (render((void *)j, vars, &out) == 0) look_for_claims(source, &out);
    jinja_text_fini(&out);
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
