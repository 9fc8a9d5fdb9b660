/* Fuzzes a compiler of grammars, COMPILE, and what it makes. */
#include "grammar_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static grammar_vocab *v;
    if (!v) v = open_bytes();
    char *text = fuzz_copy((fuzz_input){data, size});
    grammar *g = NULL;
    icp_error err = {0};
    int rc = COMPILE(v, text, size, &fuzz_limits, &g, &err);
    must(rc == 0 || (rc != ICP_EBUG && err.text[0]));
    if (rc == 0) make_text(g, (fuzz_input){data, size});
    grammar_unref(&g);
    free(text);
    return 0;
}
