#include "json.h"

int json_read(const char *text, size_t len, int depth, json_object **root,
              enum json_tokener_error *why, size_t *end) {
    buf ascii = {0};
    buf_puts(&ascii, ""); /* so that there is a text, even of nothing */
    buf_put_ascii_json(&ascii, text, len);
    json_tokener *tokener =
        ascii.failed || ascii.len >= INT32_MAX ? NULL : json_tokener_new_ex(depth);
    if (!tokener) {
        buf_fini(&ascii);
        return ICP_ENOMEM;
    }
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    *root =
        json_tokener_parse_ex(tokener, ascii.data, (int)ascii.len + 1); /* its NUL ends numbers */
    *why = json_tokener_get_error(tokener);
    size_t at = json_tokener_get_parse_end(tokener);
    *end = at >= ascii.len ? len : ascii_json_origin(text, len, at);
    json_tokener_free(tokener);
    buf_fini(&ascii);
    return 0;
}
