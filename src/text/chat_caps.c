/* What a template can do, found out by rendering small conversations with words that occur nowhere
 * else, and looking for them in the prompt. */
#include "chat.h"
#include "json.h"

#include <json-c/json.h>
#include <string.h>

#define USER "Quokka"
#define SYSTEM "Wombat"
#define SAID "Numbat"
#define THOUGHT "Bilby"
#define RESULT "Potoroo"
#define TOOL "dingo_bark"
#define KEY "loudness"
#define VALUE "eleven"
#define VALUE2 "twelve"
#define ID "call00001"

#define ASK "{\"role\":\"user\",\"content\":\"" USER "\"}"
#define ASK_PARTS "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" USER "\"}]}"
#define CALL(id, arguments)                                                                        \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" TOOL                      \
    "\",\"arguments\":" arguments "}}"
#define OBJECT(value) "{\"" KEY "\":\"" value "\"}"
#define STRING(value) "\"{\\\"" KEY "\\\":\\\"" value "\\\"}\""
#define CALLS(content, calls)                                                                      \
    "{\"role\":\"assistant\"," content "\"reasoning_content\":\"" THOUGHT                          \
    "\",\"tool_calls\":[" calls "]}"
#define EMPTY "\"content\":\"\","
#define ANSWER(id)                                                                                 \
    "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"name\":\"" TOOL "\",\"content\":\"" RESULT   \
    "\"}"
#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL                                       \
    "\",\"description\":\"Barks.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"" KEY     \
    "\":{\"type\":\"string\",\"description\":\"How loud.\"}},\"required\":[\"" KEY "\"]}}}]"

struct probe {
    chat_render *render;
    void *arg;
    jinja_text text; /* of the last one */
    buf *samples;    /* all that was rendered with calls */
    int rc;          /* ICP_ENOMEM */
    bool endless;    /* a render came to a limit: none of the others is tried */
};

/* Renders messages (JSON, without brackets), with the tool or without; false: the template raised.
 */
static bool render(struct probe *p, const char *messages, bool tools, bool generate) {
    buf json = {0};
    if (p->endless) return false;
    jinja_text_fini(&p->text);
    p->text = (jinja_text){0};
    buf_printf(&json,
               "{\"messages\":[%s],\"documents\":null,\"add_generation_prompt\":%s,\"tools\":%s}",
               messages, generate ? "true" : "false", tools ? TOOLS : "null");
    json_object *vars = json.failed ? NULL : json_read_whole(json.data, json.len);
    buf_fini(&json);
    int rc = vars ? p->render(p->arg, vars, &p->text) : ICP_ENOMEM;
    json_object_put(vars);
    if (rc == ICP_ENOMEM) p->rc = rc;
    p->endless = rc == ICP_ELIMIT;
    return rc == 0;
}

static bool shows(const struct probe *p, const char *word) {
    return p->text.text.len && memmem(p->text.text.data, p->text.text.len, word, strlen(word));
}

static bool renders(struct probe *p, const char *messages, bool tools, const char *word) {
    return render(p, messages, tools, false) && shows(p, word);
}

/* Arguments come out as the dialect has them: not as Python prints a dict, not as a string in a
 * string. */
static bool shows_arguments(const struct probe *p) {
    return shows(p, TOOL) && shows(p, VALUE) && !shows(p, ": '" VALUE) && !shows(p, "\\\"" VALUE);
}

/* Renders messages with tools; what comes out is kept for telling the dialect. */
static bool calls_render(struct probe *p, const char *messages, bool generate) {
    if (!render(p, messages, true, generate)) return false;
    buf_put(p->samples, p->text.text.data, p->text.text.len);
    buf_putc(p->samples, '\n');
    return true;
}

static void probe_calls(struct probe *p, icp_chat_caps *caps) {
    static const char *const variants[][2] = {
        /* without and with a content; objects first: few templates want a string */
        {ASK "," CALLS("", CALL(ID, OBJECT(VALUE))), ASK "," CALLS(EMPTY, CALL(ID, OBJECT(VALUE)))},
        {ASK "," CALLS("", CALL(ID, STRING(VALUE))), ASK "," CALLS(EMPTY, CALL(ID, STRING(VALUE)))},
    };
    caps->object_arguments = true;
    for (int string = 0; string < 2 && !caps->tool_calls; string++) {
        for (int content = 0; content < 2 && !caps->tool_calls; content++) {
            if (!calls_render(p, variants[string][content], false) || !shows_arguments(p)) continue;
            caps->tool_calls = true;
            caps->object_arguments = !string;
            caps->needs_content = content;
        }
    }
    if (!caps->tool_calls) return;
    const char *two =
        caps->object_arguments
            ? ASK "," CALLS(EMPTY, CALL(ID, OBJECT(VALUE)) "," CALL("call00002", OBJECT(VALUE2)))
            : ASK "," CALLS(EMPTY, CALL(ID, STRING(VALUE)) "," CALL("call00002", STRING(VALUE2)));
    caps->parallel_calls = calls_render(p, two, false) && shows(p, VALUE) && shows(p, VALUE2);
    const char *both = caps->object_arguments
                           ? ASK "," CALLS("\"content\":\"" SAID "\",", CALL(ID, OBJECT(VALUE)))
                           : ASK "," CALLS("\"content\":\"" SAID "\",", CALL(ID, STRING(VALUE)));
    caps->one_text = !render(p, both, true, false);
    caps->short_ids =
        caps->object_arguments &&
        !render(p, ASK "," CALLS(EMPTY, CALL("call_0123456789", OBJECT(VALUE))), true, false);
}

static void probe_all(struct probe *p, icp_chat_caps *caps) {
    caps->list_content = !renders(p, ASK, false, USER) && renders(p, ASK_PARTS, false, USER);
    caps->system =
        renders(p, "{\"role\":\"system\",\"content\":\"" SYSTEM "\"}," ASK, false, SYSTEM);
    caps->tools = calls_render(p, ASK, true) && shows(p, TOOL);
    probe_calls(p, caps);
    const char *result = caps->object_arguments
                             ? ASK "," CALLS(EMPTY, CALL(ID, OBJECT(VALUE))) "," ANSWER(ID)
                             : ASK "," CALLS(EMPTY, CALL(ID, STRING(VALUE))) "," ANSWER(ID);
    caps->tool_results = renders(p, result, true, RESULT);
    caps->reasoning = caps->tool_calls ? renders(p, result, true, THOUGHT)
                                       : renders(p, ASK "," CALLS("\"content\":\"" SAID "\",", ""),
                                                 false, THOUGHT);
}

/* Whether the generation prompt begins the reasoning. */
static bool probe_thinks(struct probe *p, const chat_style *style) {
    chat_parser *parser = NULL;
    const chat_parser_opts opts = {.style = *style};
    if (!render(p, ASK, false, true)) return false;
    if (chat_parser_open(&opts, &parser, NULL) < 0) return false;
    bool thinks = chat_parser_prompt(parser, p->text.text.data, p->text.text.len) == 0 &&
                  chat_parser_thinking(parser);
    chat_parser_close(&parser);
    return thinks;
}

/* A template without a place for tools: chat_input.c teaches the generic dialect, throughout. */
static void teach(icp_chat_caps *caps, chat_style *style) {
    style->calls = chat_style_named("generic").calls;
    caps->tool_calls = caps->parallel_calls = caps->tool_results = caps->short_ids = false;
    caps->needs_content = false;
}

int chat_caps_probe(const char *source, chat_render *render_one, void *arg, icp_chat_caps *caps,
                    chat_style *style) {
    buf samples = {0};
    struct probe p = {.render = render_one, .arg = arg, .samples = &samples};
    *caps = (icp_chat_caps){0};
    buf_puts(&samples, source);
    buf_putc(&samples, '\n');
    probe_all(&p, caps);
    if (samples.failed) p.rc = ICP_ENOMEM;
    if (p.rc == 0) {
        *style = chat_style_of(samples.data);
        if (!caps->tools) teach(caps, style);
        caps->thinks = probe_thinks(&p, style);
        caps->dialect = style->calls->name;
    }
    jinja_text_fini(&p.text);
    buf_fini(&samples);
    return p.rc;
}
