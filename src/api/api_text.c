/* Text of the public library: ids and bytes, chats and prompts. */
#include "api_internal.h"

#include <json-c/json.h>
#include <string.h>
#include <time.h>

void icp_tokens_free(icp_tokens *t) {
    mem_free(t->id);
    *t = (icp_tokens){0};
}

static int encode(const icp_model *m, const char *text, size_t len, const uint8_t *origin,
                  unsigned flags, icp_tokens *out, icp_error *err) {
    token_ids ids = {0};
    int rc = tokenizer_encode(m->tok, text, len, origin, flags, &ids);
    if (rc < 0) {
        token_ids_fini(&ids);
        return error_set(err, rc, "cannot tokenize %zu bytes: %s", len, icp_strerror(rc));
    }
    *out = (icp_tokens){ids.id, ids.n};
    return 0;
}

int icp_tokenize(const icp_model *m, const char *text, size_t len, bool special, bool bos,
                 icp_tokens *out, icp_error *err) {
    return encode(m, text, len, NULL,
                  (special ? TOKENIZE_SPECIAL : 0u) | (bos ? TOKENIZE_BOS : 0u), out, err);
}

int icp_detokenize(const icp_model *m, const int32_t *ids, size_t n, bool keep_special, char **out,
                   size_t *len, icp_error *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= tokenizer_n(m->tok))
            return error_set(err, ICP_EINVALID, "token %d at index %zu: ids are 0 to %zu", ids[i], i,
                             tokenizer_n(m->tok) - 1);
    buf text = {0};
    int rc = tokenizer_decode(m->tok, ids, n, !keep_special, &text);
    buf_puts(&text, "");
    if (rc < 0 || text.failed) {
        buf_fini(&text);
        return error_set(err, ICP_ENOMEM, "out of memory");
    }
    *out = text.data;
    *len = text.len;
    return 0;
}

int32_t icp_token_bos(const icp_model *m) { return tokenizer_bos(m->tok); }
int32_t icp_token_eos(const icp_model *m) { return tokenizer_eos(m->tok); }

/* ---- chats ---------------------------------------------------------------------------------- */

/* What upstream always defines, null when the caller does not; `extra` must not replace it. */
static const char *const fixed[] = {"messages", "tools", "documents", "add_generation_prompt"};

static bool is_fixed(const char *name) {
    for (size_t i = 0; i < COUNT_OF(fixed); i++)
        if (!strcmp(name, fixed[i])) return true;
    return false;
}

/* Splits a chat into what users wrote (*vars) and what the caller vouches for (*trusted: bos_token,
 * eos_token). Both are new references. */
static int split_chat(const char *chat_json, json_object **vars, json_object **trusted,
                      icp_error *err) {
    enum json_tokener_error why;
    json_tokener *parser = json_tokener_new_ex(128);
    if (!parser) return error_set(err, ICP_ENOMEM, "out of memory");
    json_object *chat = json_tokener_parse_ex(parser, chat_json, (int)strlen(chat_json) + 1);
    why = json_tokener_get_error(parser);
    size_t at = json_tokener_get_parse_end(parser);
    json_tokener_free(parser);
    if (!json_object_is_type(chat, json_type_object)) {
        json_object_put(chat);
        return error_set(err, ICP_EFORMAT, "not a JSON object (near byte %zu: %s)", at,
                         why == json_tokener_success ? "another kind of value"
                                                     : json_tokener_error_desc(why));
    }
    *vars = json_object_new_object();
    *trusted = json_object_new_object();
    json_object_object_foreach(chat, key, value) {
        if (!strcmp(key, "extra")) continue;
        bool vouched = !strcmp(key, "bos_token") || !strcmp(key, "eos_token");
        json_object_object_add(vouched ? *trusted : *vars, key, json_object_get(value));
    }
    json_object *extra = json_object_object_get(chat, "extra");
    if (json_object_is_type(extra, json_type_object)) {
        json_object_object_foreach(extra, name, more) {
            if (!is_fixed(name)) json_object_object_add(*vars, name, json_object_get(more));
        }
    }
    for (size_t i = 0; i < COUNT_OF(fixed); i++)
        if (!json_object_object_get_ex(*vars, fixed[i], NULL))
            json_object_object_add(*vars, fixed[i],
                                   i == 3 ? json_object_new_boolean(0) : NULL);
    json_object_put(chat);
    return 0;
}

static const char *print(json_object *o) {
    return json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
}

static int render(const jinja *j, json_object *vars, json_object *trusted, jinja_text *out,
                  icp_error *err) {
    const char *a = print(vars), *b = print(trusted);
    if (!a || !b) return error_set(err, ICP_ENOMEM, "out of memory");
    return jinja_render(j, a, b, (int64_t)time(NULL), NULL, out, err);
}

static void trust_token(const icp_model *m, json_object *trusted, const char *name, int32_t id) {
    text_str text = id >= 0 ? tokenizer_bytes(m->tok, id) : (text_str){"", 0};
    json_object_object_add(trusted, name, json_object_new_string_len(text.data, (int)text.len));
}

int icp_chat_tokenize(const icp_model *m, const char *chat_json, icp_tokens *out, char **text,
                      icp_error *err) {
    if (!m->chat)
        return m->template_source
                   ? error_set(err, ICP_EUNSUPPORTED, "the model's chat template cannot be used: %s",
                               m->template_error.text)
                   : error_set(err, ICP_EUNSUPPORTED, "the model has no chat template");
    json_object *vars = NULL, *trusted = NULL;
    jinja_text prompt = {0};
    int rc = split_chat(chat_json, &vars, &trusted, err);
    if (rc == 0) {
        trust_token(m, trusted, "bos_token", tokenizer_bos(m->tok));
        trust_token(m, trusted, "eos_token", tokenizer_eos(m->tok));
        rc = render(m->chat, vars, trusted, &prompt, err);
    }
    if (rc == 0)
        rc = encode(m, prompt.text.data, prompt.text.len, (const uint8_t *)prompt.origin.data, 0, out,
                    err);
    if (rc == 0 && text) {
        *text = prompt.text.data;
        prompt.text = (buf){0};
    }
    jinja_text_fini(&prompt);
    json_object_put(vars);
    json_object_put(trusted);
    return rc;
}

int icp_template_render(const char *source, size_t len, const char *chat_json, char **text,
                        size_t *text_len, icp_error *err) {
    json_object *vars = NULL, *trusted = NULL;
    jinja_text prompt = {0};
    jinja *j;
    TRY(jinja_open(source, len, &j, err));
    int rc = split_chat(chat_json, &vars, &trusted, err);
    if (rc == 0) rc = render(j, vars, trusted, &prompt, err);
    if (rc == 0) {
        buf_puts(&prompt.text, "");
        *text = prompt.text.data;
        *text_len = prompt.text.len;
        prompt.text = (buf){0};
    }
    jinja_text_fini(&prompt);
    jinja_close(&j);
    json_object_put(vars);
    json_object_put(trusted);
    return rc;
}
