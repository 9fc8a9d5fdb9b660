/* Answers of chats, in every dialect: what they mean, however they are cut; and messages that are
 * made to fit a template. The texts are what published templates render of such calls. */
#include "cmocka_tests.h"

#include <dirent.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"W\","        \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","           \
    "\"description\":\"c\"},\"days\":{\"type\":\"integer\",\"description\":\"d\"},"                \
    "\"more\":{\"type\":[\"string\",\"null\"],\"description\":\"m\"}},\"required\":[\"city\"]}}}]"

/* Some templates cannot print a list of types. */
#define PLAIN_TOOLS                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"W\","        \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","           \
    "\"description\":\"c\"},\"days\":{\"type\":\"integer\",\"description\":\"d\"}},"               \
    "\"required\":[\"city\"]}}}]"

#define TWO_TOOLS                                                                                  \
    "[{\"type\":\"function\",\"function\":{\"name\":\"a\"}},{\"name\":\"b\",\"parameters\":{}}]"

#define BAR "\uFF5C"
#define LOW "\u2581"
#define DS(text) "<" BAR "tool" LOW text BAR ">"

/* ---- what was told, as text ----------------------------------------------------------------- */

struct told {
    buf text;
    int last; /* kind of the last delta; -1 */
};

static void take(chat_parser *p, struct told *t) {
    icp_chat_delta d;
    while (chat_parser_next(p, &d)) {
        bool same =
            t->last == (int)d.kind && d.kind != ICP_CHAT_CALL && d.kind != ICP_CHAT_CALL_END;
        static const char letters[] = "CRTA.";
        if (!same) buf_printf(&t->text, "|%c ", letters[d.kind]);
        buf_put(&t->text, d.text, d.len);
        if (d.kind == ICP_CHAT_CALL) {
            buf_printf(&t->text, "#%d", d.call);
            if (d.id[0]) buf_printf(&t->text, " %s", d.id);
        }
        t->last = d.kind;
    }
}

struct feed {
    const char *dialect, *prompt;
    const char *tools;
    chat_style style; /* when dialect is NULL */
};

static chat_parser *open_parser(const struct feed *f) {
    chat_parser_opts opts = {.style = f->dialect ? chat_style_named(f->dialect) : f->style,
                             .tools_json = f->tools};
    chat_parser *p = NULL;
    icp_error err = {0};
    if (!opts.style.calls) fail_msg("no dialect %s", f->dialect);
    if (chat_parser_open(&opts, &p, &err) < 0) fail_msg("%s", err.text);
    if (f->prompt) assert_int_equal(chat_parser_prompt(p, f->prompt, strlen(f->prompt)), 0);
    return p;
}

static void put(chat_parser *p, const char *text, size_t len, struct told *t) {
    chat_parser_clear(p);
    assert_int_equal(chat_parser_put(p, text, len, CHAT_ORDINARY, false), 0);
    take(p, t);
}

/* Everything told of text that comes in pieces of the given length, the first one of `first`. */
static char *parse(const struct feed *f, const char *text, size_t len, size_t first, size_t piece) {
    struct told t = {.last = -1};
    chat_parser *p = open_parser(f);
    for (size_t at = 0; at < len;) {
        size_t n = MIN(at ? piece : first, len - at);
        if (n) put(p, text + at, n, &t);
        at += n;
        if (!n) first = piece;
    }
    chat_parser_clear(p);
    assert_int_equal(chat_parser_finish(p), 0);
    take(p, &t);
    chat_parser_close(&p);
    buf_puts(&t.text, "");
    assert_false(t.text.failed);
    return t.text.data ? t.text.data : mem_strdup("");
}

/* Every cut in two, and small pieces, tell the same as the whole. */
static char *parse_all_ways(const struct feed *f, const char *text, size_t len) {
    char *whole = parse(f, text, len, len, len);
    for (size_t cut = 1; cut < len; cut++) {
        char *cut_up = parse(f, text, len, cut, len);
        if (strcmp(cut_up, whole) != 0)
            fail_msg("%s cut at %zu:\n%s\n%s\n%s", f->dialect, cut, text, cut_up, whole);
        mem_free(cut_up);
    }
    for (size_t piece = 1; piece < 6 && piece < len; piece++) {
        char *cut_up = parse(f, text, len, piece, piece);
        if (strcmp(cut_up, whole) != 0)
            fail_msg("%s in pieces of %zu:\n%s\n%s\n%s", f->dialect, piece, text, cut_up, whole);
        mem_free(cut_up);
    }
    return whole;
}

/* ---- dialects ------------------------------------------------------------------------------- */

#define A1 "{\"city\": \"Par\\\"is\", \"days\": 3}"
#define A2 "{\"city\": \"R<o>me\", \"days\": 4}"
#define W(n) "|T get_weather#" n "|A "
#define TWO W("0") A1 "|. " W("1") A2 "|. "
#define JSON1 "{\"name\": \"get_weather\", \"arguments\": " A1 "}"
#define JSON2 "{\"name\": \"get_weather\", \"arguments\": " A2 "}"

static const struct {
    const char *dialect, *prompt, *text, *told;
} cases[] = {
    {"hermes", NULL,
     "SAY\n<tool_call>\n" JSON1 "\n</tool_call>\n<tool_call>\n" JSON2 "\n</tool_call>",
     "|C SAY" TWO},
    {"hermes", NULL, "<think>\nWHY\n\nSO\n</think>\n\nSAY <b>\n", "|R WHY\n\nSO|C SAY <b>\n"},
    {"hermes", "<|im_start|>assistant\n<think>\n",
     "WHY\n</think>\n\n<tool_call>\n" JSON1 "</tool_call>\n", "|R WHY" W("0") A1 "|. "},
    {"hermes", "<think>\n\n</think>\n\n", "SAY", "|C SAY"},
    {"hermes", NULL, "a <think> b", "|C a <think> b"},
    {"hermes", NULL,
     "<tool_call>{\"arguments\": " A1 ", \"id\": \"x1\", \"name\": \"get_weather\"}</tool_call>SAY",
     "|T get_weather#0 x1|A " A1 "|. |C SAY"},
    {"hermes", NULL,
     "<tool_call>{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": "
     "\\\"\\u00e9\\\"}\"}</tool_call>",
     W("0") "{\"city\": \"\u00e9\"}|. "},
    {"hermes", NULL, "<tool_call>{\"name\": \"get_weather\"}</tool_call>", W("0") "{}|. "},
    {"hermes", NULL, "<tool_call>{\"name\":\"get_weather\",\"arguments\":null}</tool_call>",
     W("0") "{}|. "},
    {"hermes", NULL,
     "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":{}}}</"
     "tool_call>",
     W("0") "{}|. "},
    {"hermes", NULL, "<tool_call>[" JSON1 ", " JSON2 "]</tool_call>", TWO},
    {"hermes", NULL, "So <tool_call> is a tag. <tool_call>",
     "|C So <tool_call> is a tag. <tool_call>"},
    {"hermes", NULL, "<tool_call>{\"city\": 1}</tool_call>",
     "|C <tool_call>{\"city\": 1}</tool_call>"},
    {"hermes", NULL, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"P",
     W("0") "{\"city\": \"P|. "},
    {"qwen3-coder", NULL,
     "SAY\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nPar\"is\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</"
     "tool_call>\n<tool_call>\n<function=get_weather>\n"
     "<parameter=city>\nR<o>me\n</parameter>\n<parameter=days>\n4\n</parameter>\n</function>\n</"
     "tool_call>",
     "|C SAY" TWO},
    {"qwen3-coder", NULL,
     "<function=get_weather>\n<parameter=city>\n\na\n\n\u00e9\\n\n\n</"
     "parameter>\n<parameter=more>\nnull\n"
     "</parameter>\n<parameter=x>\n[1, {'a': True}]\n</parameter>\n<parameter=y>\nfree "
     "text\n</parameter>\n"
     "</function>\n",
     W("0") "{\"city\": \"\\na\\n\\n\u00e9\\\\n\\n\", \"more\": null, \"x\": [1, {\"a\": true}], "
            "\"y\": \"free text\"}|. "},
    {"qwen3-coder", NULL, "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>",
     W("0") "{}|. "},
    {"seed", NULL,
     "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Par\"is</"
     "parameter>\n<parameter=days>3"
     "</parameter>\n</function>\n</seed:tool_call>",
     W("0") A1 "|. "},
    {"minimax-m2", NULL,
     "SAY\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
     "name=\"city\">Par\"is</parameter>\n"
     "<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"get_weather\">\n"
     "<parameter name=\"city\">R<o>me</parameter>\n<parameter "
     "name=\"days\">4</parameter>\n</invoke>\n"
     "</minimax:tool_call>",
     "|C SAY" TWO},
    {"minicpm", NULL,
     "<function name=\"get_weather\"><param name=\"city\">Par\"is</param><param "
     "name=\"days\">3</param></function>\n"
     "<function name=\"get_weather\"><param name=\"city\"><![CDATA[R<o>me]]></param><param "
     "name=\"days\">4</param>"
     "</function>",
     TWO},
    {"deepseek-dsml", NULL,
     "</think>SAY\n\n<" BAR "DSML" BAR "tool_calls>\n<" BAR "DSML" BAR
     "invoke name=\"get_weather\">\n<" BAR "DSML" BAR
     "parameter name=\"city\" string=\"true\">Par\"is</" BAR "DSML" BAR "parameter>\n<" BAR
     "DSML" BAR "parameter name=\"days\" string=\"false\">3</" BAR "DSML" BAR "parameter>\n</" BAR
     "DSML" BAR "invoke>\n</" BAR "DSML" BAR "tool_calls>",
     "|C </think>SAY" W("0") A1 "|. "},
    {"kimi-k3", NULL,
     "<|open|>response<|sep|>SAY<|close|>response<|sep|><|open|>tools<|sep|><|open|>call "
     "tool=\"get_weather\" "
     "index=\"1\"<|sep|><|open|>argument key=\"city\" "
     "type=\"string\"<|sep|>Par\"is<|close|>argument<|sep|>"
     "<|open|>argument key=\"days\" "
     "type=\"number\"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>"
     "<|close|>tools<|sep|><|close|>message<|sep|>",
     "|C SAY" W("0") A1 "|. "},
    {"glm", NULL,
     "SAY\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par\"is</"
     "arg_value>\n<arg_key>days"
     "</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>get_weather<arg_key>city</"
     "arg_key>"
     "<arg_value>R<o>me</arg_value><arg_key>days</arg_key><arg_value>4</arg_value></tool_call>",
     "|C SAY" TWO},
    {"glm", NULL, "<tool_call>get_weather</tool_call>", W("0") "{}|. "},
    {"llama3", NULL, "{\"name\": \"get_weather\", \"parameters\": " A1 "}", W("0") A1 "|. "},
    {"llama3", NULL,
     "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": " A1 "}; {\"name\": "
     "\"get_weather\", \"parameters\": " A2 "}",
     TWO},
    {"llama3", NULL, "{\"city\": \"Paris\"}", "|C {\"city\": \"Paris\"}"},
    {"llama3", NULL, "{\"name\": \"Bob\", \"parameters\": {}}",
     "|C {\"name\": \"Bob\", \"parameters\": {}}"},
    {"llama3", NULL, "See {\"name\": \"get_weather\"}", "|C See {\"name\": \"get_weather\"}"},
    {"pythonic", NULL,
     "[get_weather(city='Par\"is', days=3), get_weather(city=\"R<o>me\", days=4)]", TWO},
    {"pythonic", NULL, "[1, 2]", "|C [1, 2]"},
    {"pythonic", NULL, "[get_weather(\"a, (b\", more=None, x=[(1, 'y'), {'z': -1.5e3}])]",
     W("0") "{\"city\": \"a, (b\", \"more\": null, \"x\": [[1, \"y\"], {\"z\": -1.5e3}]}|. "},
    {"lfm2", NULL,
     "SAY<|tool_call_start|>[get_weather(city='Par\"is', days=3), get_weather(city='R<o>me', "
     "days=4)]<|tool_call_end|>",
     "|C SAY" TWO},
    {"gemma3", NULL, "SAY\n```tool_code\nget_weather(city='Par\"is', days=3)\n```",
     "|C SAY" W("0") A1 "|. "},
    {"gemma4", NULL,
     "<|tool_call>call:get_weather{city:<|\"|>Par\"is<|\"|>,days:3}<tool_call|><|tool_call>call:"
     "get_weather{city:"
     "<|\"|>R<o>me<|\"|>,days:4}<tool_call|>SAY",
     TWO "|C SAY"},
    {"gemma4", NULL, "<|tool_call>call:get_weather{x:{a:[<|\"|>}<|\"|>,true],b:null}}<tool_call|>",
     W("0") "{\"x\": {\"a\": [\"}\", true], \"b\": null}}|. "},
    {"functiongemma", NULL,
     "<start_function_call>call:get_weather{city:<escape>Par\"is<escape>,days:3}<end_function_"
     "call>",
     W("0") A1 "|. "},
    {"mistral-nemo", NULL,
     "[TOOL_CALLS][" JSON1 ", {\"name\": \"get_weather\", \"arguments\": " A2
     ", \"id\": \"call00002\"}]",
     TWO},
    {"mistral", NULL, "SAY[TOOL_CALLS]get_weather[ARGS]" A1 "[TOOL_CALLS]get_weather[ARGS]" A2,
     "|C SAY" TWO},
    {"mistral-id", NULL, "[TOOL_CALLS]get_weather[CALL_ID]call00001[ARGS]" A1,
     "|T get_weather#0 call00001|A " A1 "|. "},
    {"deepseek-r1", NULL,
     "<think>\nWHY\n</think>\nSAY" DS("calls" LOW "begin") DS("call" LOW "begin") "function" DS(
         "sep") "get_weather\n```json\n" A1
                "\n```" DS("call" LOW "end") "\n" DS("call" LOW "begin") "function" DS(
                    "sep") "get_weather\n```json\n" A2 "\n```" DS("call" LOW "end")
                    DS("calls" LOW "end"),
     "|R WHY|C SAY" TWO},
    {"deepseek-v3.1", NULL,
     DS("calls" LOW "begin") DS("call" LOW "begin") "get_weather" DS("sep") A1 DS("call" LOW "end")
         DS("call" LOW "begin") "get_weather" DS("sep") A2 DS("call" LOW "end")
             DS("calls" LOW "end"),
     TWO},
    {"kimi-k2", NULL,
     "SAY<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_"
     "argument_begin|>" A1
     "<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>" A2
     "<|tool_call_end|><|tool_calls_section_end|>",
     "|C SAY|T get_weather#0 functions.get_weather:0|A " A1
     "|. |T get_weather#1 functions.get_weather:1|A " A2 "|. "},
    {"solar", NULL,
     "<|tool_calls|><|tool_call:begin|>call00001<|tool_call:name|>get_weather<|tool_call:args|>" A1
     "<|tool_call:end|><|calls|>",
     "|T get_weather#0 call00001|A " A1 "|. "},
    {"granite", NULL, "<|tool_call|>[" JSON1 "]", W("0") A1 "|. "},
    {"command-r7b", NULL,
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
     "\"parameters\": " A1
     "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"get_weather\", \"parameters\": " A2
     "}\n]<|END_ACTION|>",
     TWO},
    {"command-r7b", NULL, "<|START_RESPONSE|>SAY<|END_RESPONSE|>", "|C SAY"},
    {"command-r", NULL,
     "Action:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        "
     "\"parameters\": " A1 "\n    }\n]\n```",
     W("0") A1 "|. "},
    {"apertus", NULL,
     "SAY<|tools_prefix|>[{\"get_weather\": " A1 "}, {\"get_weather\": " A2 "}]<|tools_suffix|>",
     "|C SAY" TWO},
    {"nemotron", NULL, "<TOOLCALL>[" JSON1 ", " JSON2 "]</TOOLCALL>", TWO},
    {"functionary-3.1", NULL,
     "SAY<function=get_weather>" A1 "</function><function=get_weather>" A2 "</function>",
     "|C SAY" TWO},
    {"functionary-3.2", "assistant<|end_header_id|>\n\n>>>", "all\nSAY>>>get_weather\n" A1,
     "|C SAY" W("0") A1 "|. "},
    {"functionary-3.2", "\n\n>>>", "get_weather\n" A1, W("0") A1 "|. "},
    {"generic", NULL, "{\"name\": \"get_weather\", \"arguments\": " A1 "}", W("0") A1 "|. "},
    {"harmony", "<|start|>assistant",
     "<|channel|>analysis<|message|>WHY<|end|><|start|>assistant<|channel|>final<|message|>SAY",
     "|R WHY|C SAY"},
    {"harmony", "<|start|>assistant",
     "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" A1 "<|call|>",
     W("0") A1 "|. "},
    {"harmony", "<|start|>assistant",
     " to=functions.get_weather<|channel|>commentary json<|message|>" A1, W("0") A1 "|. "},
    {"harmony", "<|start|>assistant<|channel|>final<|message|>", "SAY", "|C SAY"},
    {"harmony", NULL, "Just talk.", "|C Just talk."},
    {"harmony", NULL, "<|channel|>analysis", ""},
};

static void test_dialects(void **state) {
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct feed f = {.dialect = cases[i].dialect, .prompt = cases[i].prompt, .tools = TOOLS};
        char *told = parse_all_ways(&f, cases[i].text, strlen(cases[i].text));
        if (strcmp(told, cases[i].told) != 0)
            fail_msg("%s: %s\n  gives  %s\n  not    %s", cases[i].dialect, cases[i].text, told,
                     cases[i].told);
        mem_free(told);
    }
}

/* Whatever is cut off, left out or doubled is told the same way however it arrives. */
static void test_damage(void **state) {
    uint32_t random = 1;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct feed f = {.dialect = cases[i].dialect, .prompt = cases[i].prompt, .tools = TOOLS};
        size_t len = strlen(cases[i].text);
        for (int k = 0; k < 40; k++) {
            random = random * 1664525 + 1013904223;
            size_t from = random % (len + 1), n = (random >> 12) % 12;
            n = MIN(n, len - from);
            buf damaged = {0};
            buf_put(&damaged, cases[i].text, k % 2 ? from : from + n);
            buf_put(&damaged, cases[i].text + (k % 2 ? from + n : from),
                    len - from - (k % 2 ? n : 0));
            char *whole = parse(&f, damaged.data, damaged.len, damaged.len, damaged.len);
            char *bytes = parse(&f, damaged.data, damaged.len, 1, 1);
            if (strcmp(whole, bytes) != 0)
                fail_msg("%s: %s\n%s\n%s", cases[i].dialect, damaged.data, whole, bytes);
            mem_free(whole);
            mem_free(bytes);
            buf_fini(&damaged);
        }
    }
}

/* Without tools calls are text. */
static void test_no_tools(void **state) {
    struct feed f = {.dialect = "hermes"};
    const char *text = "<think>WHY</think>SAY <tool_call>" JSON1 "</tool_call> ";
    char *told = parse_all_ways(&f, text, strlen(text));
    assert_string_equal(told, "|R WHY|C SAY <tool_call>" JSON1 "</tool_call> ");
    mem_free(told);
}

/* ---- provenance ----------------------------------------------------------------------------- */

static bool is_special(void *arg, const char *text, size_t len) {
    static const char *const special[] = {"[TOOL_CALLS]", "[ARGS]", "<|im_end|>"};
    for (size_t i = 0; i < COUNT_OF(special); i++)
        if (strlen(special[i]) == len && !memcmp(text, special[i], len)) return true;
    return false;
}

/* A marker spelled out in ordinary tokens is text; control tokens that are none are not shown. */
static void test_provenance(void **state) {
    chat_parser_opts opts = {
        .style = chat_style_named("mistral"), .tools_json = TOOLS, .is_special = is_special};
    struct told t = {.last = -1};
    chat_parser *p;
    assert_int_equal(chat_parser_open(&opts, &p, NULL), 0);
    put(p, "say [TOOL_CALLS]x[ARGS]{}", 25, &t);
    static const struct {
        const char *text;
        enum chat_origin origin;
    } tokens[] = {{"<|im_end|>", CHAT_CONTROL},   {"!", CHAT_ORDINARY},
                  {"[TOOL_CALLS]", CHAT_CONTROL}, {"get_weather", CHAT_ORDINARY},
                  {"[ARGS]", CHAT_CONTROL},       {"{}", CHAT_ORDINARY}};
    for (size_t i = 0; i < COUNT_OF(tokens); i++) {
        chat_parser_clear(p);
        assert_int_equal(
            chat_parser_put(p, tokens[i].text, strlen(tokens[i].text), tokens[i].origin, true), 0);
        take(p, &t);
    }
    chat_parser_close(&p);
    assert_string_equal(t.text.data, "|C say [TOOL_CALLS]x[ARGS]{}!" W("0") "{}|. ");
    buf_fini(&t.text);
}

/* ---- forced calls --------------------------------------------------------------------------- */

/* What an answer is made to begin with, and a rest that follows the schema, are a call. */
static void test_force(void **state) {
    static const struct {
        const char *dialect, *tools, *begun, *rest, *told;
        bool thinking;
    } table[] = {
        {"hermes", TOOLS, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ", A1,
         W("0") A1 "|. ", false},
        {"hermes", TOOLS, "</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ",
         A1, W("0") A1 "|. ", true},
        {"mistral", TOOLS, "[TOOL_CALLS]get_weather[ARGS]", A1, W("0") A1 "|. ", false},
        {"kimi-k2", TOOLS,
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_"
         "argument_begin|>",
         A1, "|T get_weather#0 functions.get_weather:0|A " A1 "|. ", false},
        {"deepseek-r1", TOOLS,
         DS("calls" LOW "begin")
             DS("call" LOW "begin") "function" DS("sep") "get_weather\n```json\n",
         A1, W("0") A1 "|. ", false},
        {"harmony", TOOLS,
         "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>", A1,
         W("0") A1 "|. ", false},
        {"qwen3-coder", TOOLS, "", "{\"name\":\"get_weather\",\"arguments\":" A1 "}",
         W("0") A1 "|. ", false},
        {"hermes", TWO_TOOLS, "", "{\"name\": \"b\", \"arguments\": {}}", "|T b#0|A {}|. ", false},
        {"harmony", TWO_TOOLS, "<|channel|>final<|message|>",
         "{\"name\": \"b\", \"arguments\": {}}", "|T b#0|A {}|. ", false},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        chat_style style = chat_style_named(table[i].dialect);
        jinja_text begun = {0};
        buf schema = {0};
        assert_int_equal(chat_force(&style, table[i].tools, table[i].thinking, &begun, &schema), 0);
        buf_puts(&begun.text, "");
        assert_string_equal(begun.text.data, table[i].begun);
        json_object *parsed = json_tokener_parse(schema.data);
        assert_true(json_object_is_type(parsed, json_type_object));
        json_object_put(parsed);
        style.calls = chat_force_dialect(&style, table[i].tools);
        struct feed f = {.style = style, .tools = table[i].tools};
        struct told t = {.last = -1};
        chat_parser *p = open_parser(&f);
        if (table[i].thinking) assert_int_equal(chat_parser_prompt(p, "<think>\n", 8), 0);
        assert_int_equal(chat_parser_begin(p, begun.text.data, begun.text.len), 0);
        take(p, &t);
        for (const char *c = table[i].rest; *c; c++) put(p, c, 1, &t);
        chat_parser_clear(p);
        assert_int_equal(chat_parser_finish(p), 0);
        take(p, &t);
        assert_string_equal(t.text.data, table[i].told);
        chat_parser_close(&p);
        buf_fini(&t.text);
        buf_fini(&schema);
        jinja_text_fini(&begun);
    }
    chat_style style = chat_style_named("hermes");
    assert_int_equal(chat_force(&style, "[]", false, NULL, NULL), ICP_EFORMAT);
    assert_int_equal(chat_force(&style, "{", false, NULL, NULL), ICP_EFORMAT);
}

static bool marks_are_tokens(void *arg, const char *text, size_t len) {
    static const char *const tokens[] = {"<tool_call>", "<|tool_call_argument_begin|>", "\n"};
    for (size_t i = 0; i < COUNT_OF(tokens); i++)
        if (strlen(tokens[i]) == len && !memcmp(tokens[i], text, len)) return true;
    return false;
}

static int strict(const char *dialect, const char *tools, chat_strict *out) {
    icp_error err = {0};
    const chat_strict_opts opts = {
        .style = chat_style_named(dialect), .tools_json = tools, .is_special = marks_are_tokens};
    int rc = chat_strict_calls(&opts, out, &err);
    assert_true(rc == 0 || err.text[0]);
    return rc;
}

/* What the grammar of strict tools is made of; what it leads to is test_strict_calls.c's. */
static void test_strict(void **state) {
    static const char tools[] =
        "[{\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"x\":"
        "1}}},"
        "{\"function\":{\"name\":\"g\",\"parameters\":{\"type\":\"object\"}}}]";
    chat_strict s;
    assert_int_equal(strict("hermes", tools, &s), 0);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.call, "\xff<tool_call>\xfe");
    assert_string_equal(s.calls[0].begin, "\xfa{\"name\": \"f\", \"arguments\": ");
    assert_string_equal(s.calls[0].end, "}\xfa</tool_call>");
    assert_string_equal(s.calls[0].schema, "{\"type\":\"object\",\"x\":1}");
    assert_null(s.calls[1].schema);
    assert_int_equal(s.n_tokens, 1);
    assert_string_equal(s.tokens[0], "<tool_call>");
    chat_strict_fini(&s);
    assert_int_equal(strict("kimi-k2", tools, &s), 0);
    assert_string_equal(s.calls[1].begin, "functions.g:\xfb\xff<|tool_call_argument_begin|>\xfe");
    chat_strict_fini(&s);
    assert_int_equal(strict("hermes", TOOLS, &s), 0); /* none is */
    assert_int_equal(s.n, 0);
    chat_strict_fini(&s);
    assert_int_equal(strict("hermes", "{}", &s), ICP_EFORMAT);
    assert_int_equal(strict("hermes", "[{\"strict\":true}]", &s), ICP_EFORMAT);
    assert_int_equal(strict("glm", "[{\"strict\":true,\"name\":\"a>b\"}]", &s), ICP_EUNSUPPORTED);
    assert_int_equal(strict("functionary-3.2", tools, &s), 0); /* has no form */
    assert_int_equal(s.n, 0);
    chat_strict_fini(&s);
}

/* Whether a value between markers is read as text, or null. */
static void test_strict_values(void **state) {
    static const struct {
        const char *schema;
        enum chat_value value;
    } table[] = {
        {"{\"type\":\"string\"}", CHAT_VALUE_TEXT},
        {"{\"enum\":[\"a\",\"b\"]}", CHAT_VALUE_TEXT},
        {"{\"const\":\"a\"}", CHAT_VALUE_TEXT},
        {"{\"type\":[\"string\",\"null\"]}", CHAT_VALUE_TEXT_OR_NULL},
        {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", CHAT_VALUE_TEXT_OR_NULL},
        {"{\"type\":[\"string\",\"integer\"]}", CHAT_VALUE_TEXT},
        {"{\"type\":\"integer\"}", CHAT_VALUE_JSON},
        {"{\"enum\":[1,null]}", CHAT_VALUE_JSON},
        {"{}", CHAT_VALUE_JSON},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        json_object *params = json_object_new_object();
        json_object_object_add(params, "a", json_tokener_parse(table[i].schema));
        if (chat_strict_value(params, "a") != table[i].value) fail_msg("%s", table[i].schema);
        json_object_put(params);
    }
    assert_int_equal(chat_strict_value(NULL, "a"), CHAT_VALUE_JSON);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void test_no_memory(void **state) {
    for (size_t i = 0; i < COUNT_OF(cases); i += 3) {
        for (long n = 0; n < 200; n += 7) {
            chat_parser_opts opts = {.style = chat_style_named(cases[i].dialect),
                                     .tools_json = TOOLS};
            chat_parser *p = NULL;
            mem_fail_after(n);
            int rc = chat_parser_open(&opts, &p, NULL);
            for (size_t at = 0; rc == 0 && cases[i].text[at]; at++)
                rc = chat_parser_put(p, cases[i].text + at, 1, CHAT_ORDINARY, false);
            if (rc == 0) rc = chat_parser_finish(p);
            mem_fail_after(-1);
            assert_true(rc == 0 || rc == ICP_ENOMEM);
            chat_parser_close(&p);
        }
    }
}

/* ---- templates ------------------------------------------------------------------------------ */

struct template {
    jinja *jinja;
    icp_chat_caps caps;
    chat_style style;
};

static int render(void *arg, json_object *vars, jinja_text *out) {
    struct template *t = arg;
    return jinja_render(t->jinja,
                        json_object_to_json_string_ext(vars, JSON_C_TO_STRING_PLAIN |
                                                                 JSON_C_TO_STRING_NOSLASHESCAPE),
                        "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", 1700000000, NULL, out,
                        NULL);
}

static bool open_template(struct template *t, const char *source) {
    icp_error err = {0};
    if (jinja_open(source, strlen(source), &t->jinja, &err) < 0) return false;
    assert_int_equal(chat_caps_probe(source, render, t, &t->caps, &t->style), 0);
    return true;
}

/* Renders messages as a client sends them; NULL: the template raised. */
static char *render_chat(struct template *t, const char *messages, bool tools, bool generate) {
    buf json = {0};
    jinja_text out = {0};
    icp_error err = {0};
    buf_printf(&json,
               "{\"messages\":%s,\"tools\":%s,\"documents\":null,\"add_generation_prompt\":%s}",
               messages, tools ? PLAIN_TOOLS : "null", generate ? "true" : "false");
    json_object *vars = json_tokener_parse(json.data);
    assert_non_null(vars);
    assert_int_equal(chat_input_adapt(&t->caps, vars, &err), 0);
    int rc = render(t, vars, &out);
    json_object_put(vars);
    buf_fini(&json);
    buf_puts(&out.text, "");
    char *text = rc < 0 ? NULL : mem_strdup(out.text.data);
    jinja_text_fini(&out);
    return text;
}

#define ASK "{\"role\":\"user\",\"content\":\"HELLO\"}"
#define SAID(content, calls)                                                                       \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls "]}"
#define CALLED(id, arguments)                                                                      \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\","             \
    "\"arguments\":\"" arguments "\"}}"
#define CALL1                                                                                      \
    CALLED("call_00000000000001", "{\\\"city\\\": \\\"Par\\\\\\\"is\\\", \\\"days\\\": 3}")
#define CALL2 CALLED("call_00000000000002", "{\\\"city\\\": \\\"R<o>me\\\", \\\"days\\\": 4}")

/* The calls of a told text, without ids: "get_weather {…}" each. */
static void only_calls(const char *told, buf *out) {
    for (const char *at = told; (at = strstr(at, "|T ")); at++) {
        const char *name = at + 3, *end = strchr(name, '#'), *arguments = strstr(at, "|A ");
        const char *stop = arguments ? strstr(arguments, "|. ") : NULL;
        if (!end || !stop) continue;
        json_object *value = json_tokener_parse(arguments + 3);
        buf_printf(out, "%.*s %s\n", (int)(end - name), name,
                   json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN));
        json_object_put(value);
    }
    buf_puts(out, "");
}

/* What a template renders of calls, its parser understands. */
static bool round_trip(struct template *t, const char *path) {
    bool two = t->caps.parallel_calls;
    char *ask = render_chat(t, "[" ASK "]", true, true);
    char *all = render_chat(t,
                            two ? "[" ASK "," SAID("null", CALL1 "," CALL2) "]"
                                : "[" ASK "," SAID("null", CALL1) "]",
                            true, false);
    if (!ask || !all) fail_msg("%s renders no call", path);
    size_t common = 0;
    while (ask[common] && ask[common] == all[common]) common++;
    size_t tag = common; /* not inside of a marker */
    while (tag && all[tag - 1] != '<' && all[tag - 1] != '>') tag--;
    if (tag && all[tag - 1] == '<') common = tag - 1;
    char *prompt = mem_strdup(all);
    prompt[common] = '\0';
    struct feed f = {.style = t->style, .prompt = prompt, .tools = TOOLS, .dialect = NULL};
    char *told = parse(&f, all + common, strlen(all + common), 3, 3);
    buf calls = {0};
    only_calls(told, &calls);
    const char *expected = two ? "get_weather {\"city\":\"Par\\\"is\",\"days\":3}\nget_weather "
                                 "{\"city\":\"R<o>me\",\"days\":4}\n"
                               : "get_weather {\"city\":\"Par\\\"is\",\"days\":3}\n";
    bool same = !strcmp(calls.data, expected);
    if (!same) print_message("%s (%s):\n  %s\n  %s\n", path, t->caps.dialect, all + common, told);
    buf_fini(&calls);
    mem_free(told);
    mem_free(prompt);
    mem_free(ask);
    mem_free(all);
    return same;
}

/* Templates of our own, each with one habit of the published ones. */
#define LOOP(body) "{% for m in messages %}" body "{% endfor %}"
#define GO "{% if add_generation_prompt %}<|a|>{% endif %}"
#define NATIVE(arguments)                                                                          \
    "{% if tools %}Tools: {{ tools|tojson }}{% endif %}" LOOP(                                     \
        "<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls %}<tool_call>{\"name\": "         \
        "\"{{ c.function.name }}\", \"arguments\": " arguments "}</tool_call>{% endfor %}<|end|>") \
        GO
#define PLAIN LOOP("<|{{ m.role }}|>{{ m.content }}<|end|>") GO
#define NO_SYSTEM                                                                                  \
    LOOP("{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no') }}{% endif %}"      \
         "<|{{ m.role }}|>{{ m.content }}<|end|>")                                                 \
    GO
#define PARTS LOOP("<|{{ m.role }}|>{% for p in m.content %}{{ p.text }}{% endfor %}<|end|>") GO
#define THINKS PLAIN "{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}"
#define SHORT                                                                                      \
    LOOP("{% for c in m.tool_calls %}{% if c.id|length != 9 %}{{ raise_exception('id') }}{% "      \
         "endif %}{% endfor %}")                                                                   \
    NATIVE("{{ c.function.arguments|tojson }}")

static void check_render(const char *source, const char *messages, bool tools,
                         const char *expected) {
    struct template t = {0};
    if (!open_template(&t, source)) fail_msg("%s", source);
    char *text = render_chat(&t, messages, tools, false);
    if (!text || strcmp(text, expected) != 0) fail_msg("%s\n%s", text ? text : "raised", expected);
    mem_free(text);
    jinja_close(&t.jinja);
}

#define CITY CALLED("call_1", "{\\\"city\\\": \\\"Ulm\\\"}")
#define DEVELOPER "{\"role\":\"developer\",\"content\":\"Be brief.\"}"

static void test_input(void **state) {
    /* objects where the template prints JSON, strings where it prints strings; nulls are dropped */
    check_render(
        NATIVE("{{ c.function.arguments|tojson }}"), "[" ASK "," SAID("null", CITY) "]", false,
        "<|user|>HELLO<|end|><|assistant|><tool_call>{\"name\": \"get_weather\", \"arguments\": "
        "{\"city\": \"Ulm\"}}</tool_call><|end|>");
    check_render(
        NATIVE("{{ c.function.arguments + '' }}"), "[" ASK "," SAID("null", CITY) "]", false,
        "<|user|>HELLO<|end|><|assistant|><tool_call>{\"name\": \"get_weather\", \"arguments\": "
        "{\"city\": \"Ulm\"}}</tool_call><|end|>");
    /* developer is system, and where there is none it begins the user's message */
    check_render(PLAIN, "[" DEVELOPER "," ASK "]", false,
                 "<|system|>Be brief.<|end|><|user|>HELLO<|end|>");
    check_render(NO_SYSTEM, "[" DEVELOPER "," ASK "]", false, "<|user|>Be brief.\n\nHELLO<|end|>");
    check_render(NO_SYSTEM, "[" ASK "," DEVELOPER "]", false,
                 "<|user|>HELLO<|end|><|user|>Be brief.<|end|>");
    /* parts and strings */
    check_render(PARTS, "[" ASK "]", false, "<|user|>HELLO<|end|>");
    check_render(
        PLAIN,
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
        "\"text\":\"b\"}]}]",
        false, "<|user|>a\nb<|end|>");
    /* calls and results that a template has no words for */
    check_render(
        PLAIN,
        "[" SAID("\"x\"",
                 CITY) ",{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"rain\"}]",
        false,
        "<|assistant|>x\n<tool_call>\n{ \"name\": \"get_weather\", \"arguments\": { \"city\": "
        "\"Ulm\" } }\n"
        "</tool_call><|end|><|user|><tool_response>\nrain\n</tool_response><|end|>");
}

static void test_caps(void **state) {
    struct template t = {0};
    assert_true(open_template(&t, NATIVE("{{ c.function.arguments|tojson }}")));
    assert_string_equal(t.caps.dialect, "hermes");
    assert_true(t.caps.tools && t.caps.tool_calls && t.caps.parallel_calls && t.caps.tool_results);
    assert_true(t.caps.object_arguments && t.caps.system && !t.caps.thinks && !t.caps.short_ids);
    assert_true(round_trip(&t, "native"));
    jinja_close(&t.jinja);
    assert_true(open_template(&t, NATIVE("{{ c.function.arguments + '' }}")));
    assert_true(t.caps.tool_calls && !t.caps.object_arguments);
    assert_true(round_trip(&t, "native, strings"));
    jinja_close(&t.jinja);
    assert_true(open_template(&t, PLAIN));
    assert_string_equal(t.caps.dialect, "generic");
    assert_true(!t.caps.tools && !t.caps.tool_calls && t.caps.system && !t.caps.list_content);
    char *text = render_chat(&t, "[" ASK "]", true, true);
    assert_non_null(strstr(text, "get_weather"));
    assert_non_null(strstr(text, "<tool_call>"));
    mem_free(text);
    jinja_close(&t.jinja);
    assert_true(open_template(&t, NO_SYSTEM));
    assert_false(t.caps.system);
    jinja_close(&t.jinja);
    assert_true(open_template(&t, PARTS));
    assert_true(t.caps.list_content);
    jinja_close(&t.jinja);
    assert_true(open_template(&t, THINKS));
    assert_true(t.caps.thinks);
    jinja_close(&t.jinja);
    assert_true(open_template(&t, SHORT));
    assert_true(t.caps.short_ids);
    assert_true(round_trip(&t, "short ids"));
    jinja_close(&t.jinja);
}

static void test_bad_arguments(void **state) {
    icp_chat_caps caps = {
        .object_arguments = true, .tool_calls = true, .tools = true, .dialect = "hermes"};
    static const char *const wrong[] = {"{\"messages\":[" SAID("null", CALLED("x", "{")) "]}",
                                        "{\"messages\":[" SAID("null", CALLED("x", "[1]")) "]}",
                                        "{\"messages\":[" SAID("null", "{}") "]}",
                                        "{\"messages\":[" SAID("null", "7") "]}"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        json_object *vars = json_tokener_parse(wrong[i]);
        icp_error err = {0};
        assert_non_null(vars);
        assert_int_equal(chat_input_adapt(&caps, vars, &err), ICP_EFORMAT);
        assert_true(err.text[0]);
        json_object_put(vars);
    }
}

/* Characters whose last 16 bits look like a surrogate, which json-c alone misreads. */
static void test_far_characters(void **state) {
    icp_chat_caps caps = {
        .object_arguments = true, .tool_calls = true, .tools = true, .dialect = "hermes"};
    static const char arguments[] = "{\"a\": \"\xf0\x9d\xa0\x80 \\ud836\\udc00\"}";
    json_object *vars =
        json_tokener_parse("{\"messages\":[{\"role\":\"assistant\",\"content\":null,"
                           "\"tool_calls\":[{\"type\":\"function\",\"function\":"
                           "{\"name\":\"f\",\"arguments\":\"\"}}]}]}");
    json_object *message = json_object_array_get_idx(json_object_object_get(vars, "messages"), 0);
    json_object *call = json_object_array_get_idx(json_object_object_get(message, "tool_calls"), 0);
    json_object *function = json_object_object_get(call, "function");
    icp_error err = {0};
    json_object_object_add(function, "arguments", json_object_new_string(arguments));
    assert_int_equal(chat_input_adapt(&caps, vars, &err), 0);
    message = json_object_array_get_idx(json_object_object_get(vars, "messages"), 0);
    call = json_object_array_get_idx(json_object_object_get(message, "tool_calls"), 0);
    json_object *read =
        json_object_object_get(json_object_object_get(call, "function"), "arguments");
    assert_string_equal(json_object_get_string(json_object_object_get(read, "a")),
                        "\xf0\x9d\xa0\x80 \xf0\x9d\xa0\x80");
    json_object_put(vars);
}

static char *read_file(const char *path) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static void test_folder(void **state) {
    const char *folder = getenv("INCIPIT_TEMPLATE_DIR");
    if (!folder) skip();
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int failures = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char path[4096];
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 6, ".jinja") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        char *source = read_file(path);
        struct template t = {0};
        if (open_template(&t, source)) {
            const icp_chat_caps *c = &t.caps;
            print_message(
                "%-50s %-16s %s%s%s%s%s%s%s%s%s%s%s%s %s\n", e->d_name, c->dialect,
                c->tools ? "T" : "-", c->tool_calls ? "C" : "-", c->parallel_calls ? "P" : "-",
                c->tool_results ? "R" : "-", c->system ? "S" : "-", c->object_arguments ? "o" : "s",
                c->list_content ? "L" : "-", c->needs_content ? "N" : "-", c->short_ids ? "9" : "-",
                c->one_text ? "1" : "-", c->reasoning ? "r" : "-", c->thinks ? "t" : "-",
                t.style.reasoning ? t.style.reasoning->close : "");
            if (c->tool_calls) failures += !round_trip(&t, e->d_name);
        }
        jinja_close(&t.jinja);
        free(source);
    }
    closedir(dir);
    assert_int_equal(failures, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dialects),       cmocka_unit_test(test_damage),
        cmocka_unit_test(test_no_tools),       cmocka_unit_test(test_provenance),
        cmocka_unit_test(test_force),          cmocka_unit_test(test_strict),
        cmocka_unit_test(test_strict_values),  cmocka_unit_test(test_input),
        cmocka_unit_test(test_caps),           cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_far_characters), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
