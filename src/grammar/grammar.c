/* Making and freeing grammars: source → rules → program → automaton. */
#include "grammar_internal.h"

#include <string.h>

grammar *grammar_ref(grammar *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void grammar_unref(grammar **gp) {
    grammar *g = *gp;
    *gp = NULL;
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1) return;
    automaton_free(&g->automaton);
    program_fini(&g->program);
    grammar_vocab_unref(&g->vocab);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

/* Slices are made here, so that no mask has to wait for them. */
static void find_slices(grammar *g) {
    for (int i = 0; i < g->program.n_absorbs; i++)
        g->absorbed[i] = vocab_absorb(g->vocab, &g->program.absorbs[i]);
}

/* Takes the rules' program; root is where they begin. */
static int finish(grammar_vocab *v, ir *rules, ir_node root, grammar **out) {
    grammar *g = mem_zero(1, sizeof *g);
    if (!g) ir_fail(rules, ICP_ENOMEM, "out of memory");
    if (!g) return rules->rc;
    atomic_init(&g->refs, 1);
    atomic_fetch_add(&v->refs, 1);
    g->vocab = v;
    pthread_mutex_init(&g->lock, NULL); /* of the default kind: cannot fail */
    int rc = program_build(rules, root, &g->program);
    if (rc == 0) {
        rc = automaton_new(&g->program, &g->automaton);
        if (rc < 0)
            ir_fail(rules, rc,
                    rc == ICP_ENOMEM ? "out of memory"
                                     : "too many alternatives stand open at once");
    }
    if (rc < 0) {
        grammar_unref(&g);
        return rc;
    }
    find_slices(g);
    *out = g;
    return 0;
}

static bool is_utf8(const char *text, size_t len) {
    int32_t cp = 0;
    for (size_t at = 0; at < len && cp >= 0;) at += (size_t)utf8_decode(text + at, len - at, &cp);
    return cp >= 0;
}

typedef ir_node parser(ir *g, const char *text, size_t len);

static int make(grammar_vocab *v, parser *parse, const char *text, size_t len,
                const grammar_limits *limits, grammar **out, icp_error *err) {
    ir rules;
    TRY(ir_init(&rules, limits, err));
    if (!is_utf8(text, len)) ir_fail(&rules, ICP_EINVALID, "not valid UTF-8");
    ir_node root = rules.rc < 0 ? IR_NEVER : parse(&rules, text, len);
    int rc = rules.rc < 0 ? rules.rc : finish(v, &rules, root, out);
    ir_fini(&rules);
    return rc;
}

static ir_node parse_regex(ir *g, const char *text, size_t len) {
    return regex_parse(g, text, len, false);
}

static ir_node parse_nothing(ir *g, const char *text, size_t len) {
    return schema_any_object(g);
}

int grammar_from_gbnf(grammar_vocab *v, const char *text, size_t len, const grammar_limits *limits,
                      grammar **out, icp_error *err) {
    return make(v, gbnf_parse, text, len, limits, out, err);
}

int grammar_from_regex(grammar_vocab *v, const char *text, size_t len, const grammar_limits *limits,
                       grammar **out, icp_error *err) {
    return make(v, parse_regex, text, len, limits, out, err);
}

int grammar_from_schema(grammar_vocab *v, const char *text, size_t len,
                        const grammar_limits *limits, grammar **out, icp_error *err) {
    return make(v, schema_parse, text, len, limits, out, err);
}

int grammar_from_json(grammar_vocab *v, const char *text, size_t len, const grammar_limits *limits,
                      grammar **out, icp_error *err) {
    return make(v, parse_nothing, text, len, limits, out, err);
}

int grammar_from_calls(grammar_vocab *v, const grammar_dialect *d, const grammar_call *calls,
                       size_t n, const grammar_limits *limits, grammar **out, icp_error *err) {
    ir rules;
    TRY(ir_init(&rules, limits, err));
    ir_node root = calls_build(&rules, d, calls, n);
    int rc = rules.rc < 0 ? rules.rc : finish(v, &rules, root, out);
    ir_fini(&rules);
    return rc;
}

int grammar_from_choices(grammar_vocab *v, const grammar_str *choices, size_t n,
                         const grammar_limits *limits, grammar **out, icp_error *err) {
    ir rules;
    TRY(ir_init(&rules, limits, err));
    if (n == 0) ir_fail(&rules, ICP_EINVALID, "there is nothing to choose from");
    node_list list = {0};
    for (size_t i = 0; i < n && rules.rc == 0; i++) {
        if (choices[i].len == 0 || !is_utf8(choices[i].data, choices[i].len))
            ir_fail(&rules, ICP_EINVALID, "choice %zu is empty or not valid UTF-8", i);
        node_list_add(&rules, &list, ir_text(&rules, choices[i].data, choices[i].len));
    }
    ir_node root = ir_alt(&rules, list.node, list.n);
    node_list_fini(&list);
    int rc = rules.rc < 0 ? rules.rc : finish(v, &rules, root, out);
    ir_fini(&rules);
    return rc;
}
