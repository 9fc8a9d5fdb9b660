/* Fuzzes the template language: the input is a template, rendered with some variables. */
#include "fuzz.h"
#include "text.h"

#define VARIABLES                                                                                  \
    "{\"n\":7,\"f\":2.5,\"s\":\"Hello, World\",\"empty\":\"\",\"uni\":\"Stra\\u00dfe \\u65e5\","   \
    "\"l\":[3,1,2],\"ls\":[\"b\",\"A\"],\"d\":{\"a\":1,\"b\":[1,{\"c\":null}]},\"t\":true,"        \
    "\"none_\":null,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const jinja_opts limits = {.max_steps = 100000, .max_output = 1 << 18, .max_memory = 16 << 20};
    char *source = fuzz_copy((fuzz_input){data, size});
    icp_error err = {0};
    jinja *j = NULL;
    int rc = jinja_open(source, size, &j, &err);
    must(rc == 0 || err.text[0]);
    if (rc == 0) {
        jinja_text out = {0};
        rc = jinja_render(j, VARIABLES, "{\"bos_token\":\"<s>\"}", 0, &limits, &out, &err);
        must(rc == 0 || rc == ICP_EINVALID || rc == ICP_ELIMIT || rc == ICP_ENOMEM);
        must(rc < 0 || out.text.len == out.origin.len);
        jinja_text_fini(&out);
    }
    jinja_close(&j);
    free(source);
    return 0;
}
