/* Grammars of the stand-in: their sources. "@bad" in one is malformed, "@hard" not supported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "stub.h"

static char last[256];
static _Atomic int alive; /* the server frees them on threads of its own */

const char *stub_grammar(void) {
    return last;
}

int stub_grammars(void) {
    return alive;
}

static int make(const char *kind, const char *text, icp_grammar **out, icp_error *err) {
    if (strstr(text, "@bad")) return error_set(err, ICP_EINVALID, "malformed, by order");
    if (strstr(text, "@hard")) return error_set(err, ICP_EUNSUPPORTED, "too hard, by order");
    snprintf(last, sizeof last, "%s:%s", kind, text);
    alive++;
    *out = malloc(1);
    return 0;
}

int icp_grammar_from_schema(icp_model *m, const char *json, size_t len, icp_grammar **out,
                            icp_error *err) {
    return make("schema", json, out, err);
}

int icp_grammar_from_json(icp_model *m, icp_grammar **out, icp_error *err) {
    return make("json", "", out, err);
}

int icp_grammar_from_gbnf(icp_model *m, const char *text, size_t len, icp_grammar **out,
                          icp_error *err) {
    return make("gbnf", text, out, err);
}

int icp_grammar_from_regex(icp_model *m, const char *text, size_t len, icp_grammar **out,
                           icp_error *err) {
    return make("regex", text, out, err);
}

int icp_grammar_from_choices(icp_model *m, const char *const *texts, size_t n, icp_grammar **out,
                             icp_error *err) {
    char all[200] = "";
    for (size_t i = 0; i < n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? "|" : "", texts[i]);
    return make("choice", all, out, err);
}

void icp_grammar_free(icp_grammar **g) {
    alive -= *g != NULL;
    free(*g);
    *g = NULL;
}
