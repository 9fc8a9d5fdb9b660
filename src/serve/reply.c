/* Whole answers, and the error bodies that OpenAI's clients understand. */
#include <stdio.h>
#include <string.h>

#include "serve_internal.h"

static const char *error_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    case 500:
    case 503:
        return "server_error";
    default:
        return "invalid_request_error";
    }
}

static void put_string_or_null(buf *out, const char *key, const char *text) {
    buf_printf(out, ",\"%s\":", key);
    if (!text) {
        buf_puts(out, "null");
        return;
    }
    buf_putc(out, '"');
    buf_put_json(out, text, strlen(text));
    buf_putc(out, '"');
}

void put_error_object(buf *out, int status, const char *code, const char *param, const char *text) {
    buf_puts(out, "{\"message\":\"");
    buf_put_json(out, text, strlen(text));
    buf_printf(out, "\",\"type\":\"%s\"", error_type(status));
    put_string_or_null(out, "param", param);
    put_string_or_null(out, "code", code);
    buf_putc(out, '}');
}

/* status is set last of all: it says that there is a reply. */
static void set_error(reply *r, int status, const char *code, const char *param, const char *text) {
    buf_clear(&r->body);
    buf_puts(&r->body, "{\"error\":");
    put_error_object(&r->body, status, code, param, text);
    buf_putc(&r->body, '}');
    r->type = NULL;
    r->status = status;
    if (status == 429 || status == 503) r->retry_after = 1;
    if (status == 500) r->never_retry = true;
}

void reply_error(reply *r, int status, const char *code, const char *param, const char *format,
                 ...) {
    if (r->status) return;
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    set_error(r, status, code, param, text);
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

void reply_context_exceeded(reply *r, size_t n_prompt, size_t n_ctx, const char *why) {
    if (r->status) return;
    char text[256];
    snprintf(text, sizeof text,
             "This model's maximum context length is %zu tokens. However, your prompt has %zu "
             "tokens. Please reduce the length of the messages or prompt.",
             n_ctx, n_prompt);
    set_error(r, 400, "context_length_exceeded", "messages", why ? why : text);
    if (r->body.failed) return;
    r->body.len -= 2; /* reopens both objects */
    buf_printf(&r->body, ",\"n_prompt_tokens\":%zu,\"n_ctx\":%zu}}", n_prompt, n_ctx);
}

void reply_fini(reply *r) {
    buf_fini(&r->body);
}
