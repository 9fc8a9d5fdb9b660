/* Fuzzes grammars of choices, a line each. */
#include "grammar_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { MOST_LINES = 64 };
    static grammar_vocab *v;
    if (!v) v = open_bytes();
    grammar_str lines[MOST_LINES];
    fuzz_input in = {data, size};
    size_t n = 0;
    while (in.len && n < MOST_LINES) {
        fuzz_input line = fuzz_until(&in, '\n');
        lines[n++] = (grammar_str){fuzz_copy(line), line.len};
    }
    grammar *g = NULL;
    icp_error err = {0};
    int rc = grammar_from_choices(v, lines, n, &fuzz_limits, &g, &err);
    must(rc == 0 || (rc != ICP_EBUG && err.text[0]));
    if (rc == 0) make_text(g, (fuzz_input){data, size});
    grammar_unref(&g);
    for (size_t i = 0; i < n; i++) free((char *)lines[i].data);
    return 0;
}
