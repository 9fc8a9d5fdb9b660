/* Fuzzes the parser of chat answers: any text in any dialect, in two halves and byte by byte.
 *
 * The first byte of the input is the dialect, the second where the text behind it is cut. Both ways
 * must tell the same: kinds, names, texts. */
#include <stdlib.h>
#include <string.h>

#include "chat.h"

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","    \
    "\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"},"                    \
    "\"c\":{\"type\":[\"string\",\"null\"]}}}}}]"

static const char *const dialects[] = {"hermes",
                                       "qwen3-coder",
                                       "seed",
                                       "minimax-m2",
                                       "minicpm",
                                       "deepseek-dsml",
                                       "kimi-k3",
                                       "glm",
                                       "llama3",
                                       "pythonic",
                                       "lfm2",
                                       "gemma3",
                                       "gemma4",
                                       "functiongemma",
                                       "mistral-nemo",
                                       "mistral",
                                       "mistral-id",
                                       "deepseek-r1",
                                       "deepseek-v3.1",
                                       "kimi-k2",
                                       "solar",
                                       "granite",
                                       "command-r7b",
                                       "command-r",
                                       "apertus",
                                       "nemotron",
                                       "functionary-3.1",
                                       "functionary-3.2",
                                       "generic",
                                       "harmony",
                                       "atem",
                                       "hunyuan",
                                       "minimax-m3",
                                       "tool-calls",
                                       "gigachat3",
                                       "firefunction"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(chat_parser *p, buf *told, int *last) {
    icp_chat_delta d;
    while (chat_parser_next(p, &d)) {
        if ((int)d.kind != *last || d.kind == ICP_CHAT_CALL) buf_putc(told, (char)('0' + d.kind));
        *last = d.kind;
        buf_put(told, d.text, d.len);
        if (d.kind == ICP_CHAT_CALL) buf_puts(told, d.id);
    }
}

static void parse(chat_style style, const char *text, size_t len, size_t first, size_t piece,
                  buf *told) {
    const chat_parser_opts opts = {.style = style, .tools_json = TOOLS};
    chat_parser *p = NULL;
    int last = -1;
    if (chat_parser_open(&opts, &p, NULL) < 0) abort();
    for (size_t at = 0, n = first; at < len; at += n, n = piece) {
        n = n < len - at ? n : len - at;
        chat_parser_clear(p);
        if (chat_parser_put(p, text + at, n, CHAT_ORDINARY, false) < 0) abort();
        take(p, told, &last);
    }
    chat_parser_clear(p);
    if (chat_parser_finish(p) < 0) abort();
    take(p, told, &last);
    chat_parser_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3 || size > 4096) return 0;
    chat_style style = chat_style_named(dialects[data[0] % COUNT_OF(dialects)]);
    if (!style.calls) abort();
    const char *text = (const char *)data + 2;
    size_t len = size - 2, cut = data[1] % len;
    buf halves = {0}, bytes = {0};
    parse(style, text, len, cut ? cut : len, len, &halves);
    parse(style, text, len, 1, 1, &bytes);
    if (halves.len != bytes.len || (bytes.len && memcmp(halves.data, bytes.data, bytes.len) != 0))
        abort();
    buf_fini(&halves);
    buf_fini(&bytes);
    return 0;
}
