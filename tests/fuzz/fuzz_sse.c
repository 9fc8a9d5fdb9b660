/* Fuzzes the writer of server-sent events: texts, as data of events with and without a name. A
 * reader that goes by the specification finds the same events, and JSON of the same text. */
#include "fuzz.h"
#include "generation.h"
#include "json.h"

static void must_say(const char *json, size_t len, fuzz_input text) {
    enum json_tokener_error why;
    json_object *value = NULL;
    size_t end;
    buf repaired = {0};
    must(json_read(json, len, 4, &value, &why, &end) == 0);
    must(why == json_tokener_success && end == len);
    for (size_t i = 0; i < text.len;) { /* broken bytes arrive as U+FFFD */
        int32_t cp;
        int step = utf8_decode((const char *)text.data + i, text.len - i, &cp);
        if (cp < 0)
            buf_puts(&repaired, "\xEF\xBF\xBD");
        else
            buf_put(&repaired, text.data + i, (size_t)step);
        i += (size_t)step;
    }
    must(json_object_is_type(value, json_type_string));
    must((size_t)json_object_get_string_len(value) == repaired.len);
    must(!repaired.len || !memcmp(json_object_get_string(value), repaired.data, repaired.len));
    buf_fini(&repaired);
    json_object_put(value);
}

/* One event: at most one line with its name, one with its data, an empty one. */
static void check_event(const buf *out, bool named, fuzz_input text) {
    fuzz_input in = {(const uint8_t *)out->data, out->len};
    fuzz_input line = fuzz_until(&in, '\n');
    if (named) {
        must(line.len == 10 && !memcmp(line.data, "event: say", 10));
        line = fuzz_until(&in, '\n');
    }
    must(line.len >= 8 && !memcmp(line.data, "data: ", 6));
    must(!memchr(line.data, '\r', line.len));
    must_say((const char *)line.data + 6, line.len - 6, text);
    must(in.len == 1 && in.data[0] == '\n');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, size};
    bool named = fuzz_byte(&in) & 1;
    buf out = {0};
    event_begin(&out, named ? "say" : NULL);
    put_json_string(&out, (const char *)in.data, in.len);
    event_end(&out);
    check_event(&out, named, in);
    buf_fini(&out);
    return 0;
}
