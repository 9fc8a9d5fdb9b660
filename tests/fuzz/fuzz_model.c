/* Fuzzes what a model file says of its model: the first byte picks a golden file, the rest are
 * changes to its header, each a place (2 bytes), a kind and a value. What opens computes. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "model.h"

enum { N_CTX = 64, LARGEST = 2 << 20 };

static const char *const names[] = {"llama",   "mixtral",       "gemma4",        "deepseek3",
                                    "gpt-oss", "phi3-longrope", "granitehybrid", "qwen3next",
                                    "lfm2",    "mamba2",        "bert",          "cohere2"};

static size_t read_golden(const char *name, uint8_t *to) {
    char path[4096];
    snprintf(path, sizeof path, "%s/models/%s.gguf", GOLDEN_DIR, name);
    FILE *f = fopen(path, "rb");
    must(f != NULL);
    size_t len = fread(to, 1, LARGEST, f);
    fclose(f);
    return len;
}

static void change(fuzz_input *in, uint8_t *file, size_t len) {
    size_t at = (fuzz_byte(in) | fuzz_byte(in) << 8) % (len - 8);
    uint32_t kind = fuzz_byte(in), value;
    switch (kind % 4) {
    case 0:
        file[at] = (uint8_t)fuzz_byte(in);
        break;
    case 1:
        file[at] ^= (uint8_t)(1u << (kind >> 2 & 7));
        break;
    case 2:
        value = fuzz_word(in);
        memcpy(file + at, &value, 4);
        break;
    default:
        value = (uint32_t)1 << (kind >> 2 & 31);
        memcpy(file + at, &value, 4);
    }
}

static void compute(model *m) {
    const model_info *info = model_get_info(m);
    static const int32_t tokens[2] = {0, 1};
    if (info->n_vocab < 2 || info->page_size > 1 << 22 || info->state_size > 1 << 24) return;
    if (model_reserve(m, 2, 2) < 0) return;
    void *page = aligned_alloc(64, info->page_size);
    void *state = aligned_alloc(64, (info->state_size + 127) & ~(size_t)63);
    float *rows = malloc(2 * info->n_out * sizeof *rows);
    must(page && state && rows);
    memset(page, 0, info->page_size);
    const model_span span = {
        .tokens = tokens, .n_tokens = 2, .pages = &page, .state = state, .n_logits = 2};
    model_forward(m, &span, 1, rows);
    free(page);
    free(state);
    free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t file[LARGEST];
    static pool *threads;
    if (!threads) must(pool_open(1, &threads) == 0);
    fuzz_input in = {data, size};
    size_t len = read_golden(names[fuzz_byte(&in) % COUNT_OF(names)], file);
    while (in.len) change(&in, file, len);

    char path[64];
    int fd = memfd_create("model", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, file, len) == (ssize_t)len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const model_opts opts = {.isa = KERN_SCALAR, .kv = KERN_F16, .pool = threads, .n_ctx = N_CTX};
    icp_error err = {0};
    gguf *g = NULL;
    model *m = NULL;
    int rc = gguf_open(path, &g, &err);
    if (rc == 0) rc = model_open(g, &opts, &m, &err);
    must(rc == 0 || err.text[0]);
    gguf_close(&g);
    if (rc == 0) compute(m);
    model_close(&m);
    close(fd);
    return 0;
}
