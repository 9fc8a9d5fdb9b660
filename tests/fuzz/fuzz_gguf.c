/* Fuzzes the reader of GGUF: any bytes are a file. What it takes can be read wholly. */
#include "fuzz.h"
#include "gguf_internal.h"

static uint64_t touch_value(const gguf_value *v) {
    uint64_t sum = 0;
    if (v->item != GGUF_KIND_STRING) {
        for (uint64_t i = 0; i < v->count; i++)
            sum += (uint64_t)gguf_at_int(v, i) + (gguf_at_float(v, i) > 0);
        return sum;
    }
    gguf_str *strings = calloc(v->count + 1, sizeof *strings);
    must(strings != NULL);
    gguf_at_strings(v, strings);
    for (uint64_t i = 0; i < v->count; i++)
        for (size_t n = 0; n < strings[i].len; n++) sum += (uint8_t)strings[i].data[n];
    free(strings);
    return sum;
}

static uint64_t touch(const gguf *g) {
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        gguf_str key;
        sum += touch_value(gguf_value_at(g, i, &key));
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        must(t->size && t->offset % gguf_alignment(g) == 0);
        sum += ((const uint8_t *)t->data)[0] + ((const uint8_t *)t->data)[t->size - 1];
    }
    buf text = {0};
    must(gguf_describe(g, &text) == 0);
    must(!memchr(text.data, '\033', text.len)); /* a terminal obeys no file */
    buf_fini(&text);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    icp_error err = {0};
    uint8_t *map = (uint8_t *)fuzz_copy((fuzz_input){data, size});
    gguf g = {.map = map, .size = size};
    int rc = gguf_parse(&g, "file", &err);
    must(rc == 0 || ((rc == ICP_EFORMAT || rc == ICP_EUNSUPPORTED) && err.text[0]));
    volatile uint64_t sum = rc == 0 ? touch(&g) : 0; /* so that all is read */
    (void)sum;
    mem_free(g.entries);
    mem_free(g.tensors);
    mem_free(g.key_index);
    mem_free(g.tensor_index);
    free(map);
    return 0;
}
