/* Whole answers, and errors in the forms that the vendors' clients understand. */
#include <stdio.h>
#include <string.h>

#include "serve_internal.h"

/* ---- making them ----------------------------------------------------------------------------- */

/* status is set last of all: it says that there is a reply. */
static void set_error(reply *r, int status, const char *code, const char *param, const char *text) {
    r->is_error = true;
    r->code = code;
    snprintf(r->param, sizeof r->param, "%s", param ? param : "");
    snprintf(r->message, sizeof r->message, "%s", text);
    r->type = NULL;
    r->status = status;
    if (status == 429 || status == 503) r->retry_after = 1;
    if (status == 500 || status == 501) r->never_retry = true;
}

void reply_error(reply *r, int status, const char *code, const char *param, const char *format,
                 ...) {
    if (r->status) return;
    char text[sizeof r->message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    set_error(r, status, code, param, text);
}

void reply_no_model(reply *r, const char *name) {
    reply_error(r, 404, "model_not_found", "model",
                "The model '%.200s' does not exist; /v1/models lists those that do.", name);
}

void reply_icp_error(reply *r, const icp_error *err, const char *param) {
    if (r->status) return;
    const char *text = err->text[0] ? err->text : icp_strerror(err->code);
    switch (err->code) {
    case ICP_EINVALID:
    case ICP_EFORMAT:
    case ICP_ELIMIT:
        set_error(r, 400, "invalid_value", param, text);
        break;
    case ICP_EUNSUPPORTED:
        set_error(r, 400, "unsupported", param, text);
        break;
    case ICP_EAGAIN:
        set_error(r, 429, "queue_full", NULL, text);
        break;
    case ICP_ENOMEM:
        set_error(r, 503, "out_of_memory", NULL, text);
        break;
    default:
        set_error(r, 500, "internal_error", NULL, text);
    }
}

void reply_context_exceeded(reply *r, size_t n_prompt, size_t n_ctx, const char *param,
                            const char *why) {
    if (r->status) return;
    char text[256];
    if (param)
        snprintf(text, sizeof text,
                 "This model's maximum context length is %zu tokens. However, '%s' has %zu tokens.",
                 n_ctx, param, n_prompt);
    else
        snprintf(text, sizeof text,
                 "This model's maximum context length is %zu tokens. However, your prompt has %zu "
                 "tokens. Please reduce the length of the messages or prompt.",
                 n_ctx, n_prompt);
    r->n_prompt = n_prompt;
    r->n_ctx = n_ctx;
    set_error(r, 400, "context_length_exceeded", param ? param : "messages", why ? why : text);
}

/* A name ends at a quotation mark, a dot or a bracket. */
static bool begins_with_name(const char *text, const char *name) {
    size_t len = strlen(name);
    return !strncmp(text, name, len) && (!text[len] || strchr("'.[", text[len]));
}

void reply_rename(reply *r, const char *from, const char *to) {
    if (!r->is_error || !begins_with_name(r->param, from)) return;
    char param[sizeof r->param], message[sizeof r->message], quoted[sizeof r->param];
    snprintf(param, sizeof param, "%s%s", to, r->param + strlen(from));
    memcpy(r->param, param, sizeof param);
    snprintf(quoted, sizeof quoted, "'%s", from);
    char *at = strstr(r->message, quoted);
    if (!at || !begins_with_name(at + 1, from)) return;
    snprintf(message, sizeof message, "%.*s'%s%s", (int)(at - r->message), r->message, to,
             at + strlen(quoted));
    memcpy(r->message, message, sizeof message);
}

void reply_fini(reply *r) {
    buf_fini(&r->body);
}

/* ---- writing them ---------------------------------------------------------------------------- */

static const char *openai_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    case 500:
    case 501:
    case 503:
        return "server_error";
    default:
        return "invalid_request_error";
    }
}

static const char *anthropic_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 408:
        return "timeout_error";
    case 413:
        return "request_too_large";
    case 500:
    case 501:
        return "api_error";
    case 529:
        return "overloaded_error";
    default:
        return "invalid_request_error";
    }
}

/* Anthropic's own number for a server that has too much to do. */
int error_status(const reply *r, enum error_form form) {
    bool busy = r->status == 429 || r->status == 503;
    return form == FORM_ANTHROPIC && busy ? 529 : r->status;
}

static void put_quoted(buf *out, const char *text) {
    buf_putc(out, '"');
    buf_put_json(out, text, strlen(text));
    buf_putc(out, '"');
}

static void put_string_or_null(buf *out, const char *key, const char *text) {
    buf_printf(out, ",\"%s\":", key);
    if (text && text[0])
        put_quoted(out, text);
    else
        buf_puts(out, "null");
}

void put_error_object(buf *out, const reply *r) {
    buf_puts(out, "{\"message\":");
    put_quoted(out, r->message);
    buf_printf(out, ",\"type\":\"%s\"", openai_type(r->status));
    put_string_or_null(out, "param", r->param);
    put_string_or_null(out, "code", r->code);
    if (r->n_ctx) buf_printf(out, ",\"n_prompt_tokens\":%zu,\"n_ctx\":%zu", r->n_prompt, r->n_ctx);
    buf_putc(out, '}');
}

/* Agents look for Anthropic's words to notice a full context. */
static void put_anthropic_error(buf *out, const reply *r, const char *request_id) {
    char words[sizeof r->param + sizeof r->message + 2];
    bool named = !r->param[0] || strstr(r->message, r->param);
    snprintf(words, sizeof words, "%s%s%s", named ? "" : r->param, named ? "" : ": ", r->message);
    if (r->n_ctx && r->n_prompt >= r->n_ctx)
        snprintf(words, sizeof words, "prompt is too long: %zu tokens > %zu maximum", r->n_prompt,
                 r->n_ctx);
    buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
               anthropic_type(error_status(r, FORM_ANTHROPIC)));
    put_quoted(out, words); /* this form has no other place for the field */
    buf_puts(out, "},\"request_id\":");
    put_quoted(out, request_id);
    buf_putc(out, '}');
}

void put_error(buf *out, const reply *r, enum error_form form, const char *request_id) {
    if (form == FORM_ANTHROPIC) {
        put_anthropic_error(out, r, request_id);
        return;
    }
    buf_puts(out, "{\"error\":");
    put_error_object(out, r);
    buf_putc(out, '}');
}
