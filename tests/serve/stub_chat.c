/* The chat part of the stub: the real parser, over bytes, in a dialect without quotation marks.
 *
 *   @opened;   in a prompt: the template has begun the reasoning */
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "incipit.h"

struct icp_chat_parser {
    chat_parser *parser;
    size_t n_reasoning;
};

const icp_chat_caps *icp_model_chat_caps(const icp_model *m) {
    static const icp_chat_caps caps = {.dialect = "qwen3-coder", .tools = true};
    return &caps;
}

static bool has_order(const icp_chat_parser_opts *opts, const char *order) {
    size_t n = strlen(order);
    for (size_t i = 0; i + n <= opts->n_prompt; i++) {
        size_t k = 0;
        while (k < n && opts->prompt[i + k] == (unsigned char)order[k]) k++;
        if (k == n) return true;
    }
    return false;
}

int icp_chat_parser_open(const icp_model *m, const icp_chat_parser_opts *opts,
                         icp_chat_parser **out, icp_error *err) {
    icp_chat_parser *p = calloc(1, sizeof *p);
    chat_parser_opts inner = {.style = chat_style_named("qwen3-coder"),
                              .tools_json = opts->tools_json,
                              .keep_special = opts->keep_special};
    if (opts->begun && opts->tools_json) inner.style = chat_style_named("generic");
    int rc = chat_parser_open(&inner, &p->parser, err);
    if (rc == 0 && opts->begun) rc = chat_parser_begin(p->parser, opts->begun, strlen(opts->begun));
    if (rc == 0 && has_order(opts, "@opened;")) rc = chat_parser_prompt(p->parser, "<think>", 7);
    if (rc < 0) icp_chat_parser_close(&p);
    *out = p;
    return rc;
}

int icp_chat_force(const icp_model *m, const char *tools_json, icp_tokens *prompt, char **begun,
                   char **schema, icp_error *err) {
    chat_style style = chat_style_named("qwen3-coder");
    jinja_text begin = {0};
    buf rest = {0};
    int rc = tools_json ? chat_force(&style, tools_json, false, &begin, &rest) : 0;
    *begun = strdup(begin.text.data ? begin.text.data : "");
    *schema = tools_json ? strdup(rest.data ? rest.data : "") : NULL;
    buf_fini(&begin.text);
    buf_fini(&begin.origin);
    buf_fini(&rest);
    return rc;
}

int icp_grammar_from_tools(icp_model *m, const char *tools_json, icp_grammar **out,
                           icp_error *err) {
    if (!strstr(tools_json, "\"strict\":true")) return 0;
    return icp_grammar_from_schema(m, "strict", 6, out, err);
}

void icp_chat_parser_close(icp_chat_parser **p) {
    if (!*p) return;
    chat_parser_close(&(*p)->parser);
    free(*p);
    *p = NULL;
}

int icp_chat_parser_put(icp_chat_parser *p, const icp_event *event) {
    chat_parser_clear(p->parser);
    p->n_reasoning += event->kind == ICP_EVENT_TOKEN && chat_parser_thinking(p->parser);
    int rc = chat_parser_put(p->parser, event->text, event->text_len, CHAT_ORDINARY, false);
    return rc == 0 && event->kind == ICP_EVENT_FINISH ? chat_parser_finish(p->parser) : rc;
}

bool icp_chat_parser_next(icp_chat_parser *p, icp_chat_delta *delta) {
    return chat_parser_next(p->parser, delta);
}

size_t icp_chat_parser_reasoning(const icp_chat_parser *p) {
    return p->n_reasoning;
}
