/* What loading adds to the memory of a process at its highest, the mapped file's pages included: at
 * most the file and 15 %. And its progress goes forward. */
#include "cmocka_tests.h"

#include "base.h"
#include "default_model.h"
#include "gguf.h"
#include "incipit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALIGN = 32 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* memory has shadows */
#else
#define SANITIZED false
#endif

/* Kilobytes, of /proc/self/status. */
static long count_memory(const char *key) {
    char line[256];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) n = strtol(line + strlen(key), NULL, 10);
    if (f) fclose(f);
    return n;
}

typedef struct course {
    double last;
    bool bad; /* it went back, or too far */
} course;

static void follow(void *arg, double done) {
    course *c = arg;
    c->bad |= !(done > c->last && done <= 1);
    c->last = done;
}

/* In a process of its own, whose peak is that of loading. */
static int load(const char *path) {
    icp_model *m;
    icp_error err = {0};
    course c = {0};
    icp_model_opts opts = {.n_threads = 4, .progress = follow, .progress_arg = &c};
    long before = count_memory("VmRSS:");
    if (icp_model_open(path, &opts, &m, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    long file = (long)(icp_model_get_info(m)->file_size >> 10);
    long added = count_memory("VmHWM:") - before;
    printf("%ld kB for a file of %ld kB: %.3f\n", added, file, (double)added / (double)file);
    fflush(stdout);
    icp_model_close(&m);
    return before < 0 || added > file + file * 15 / 100 || c.last == 0 || c.bad;
}

static bool loads_within_bounds(const char *path) {
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(load(path));
    return waitpid(child, &status, 0) == child && status == 0;
}

static void the_default_model(void **state) {
    if (SANITIZED || access(default_model(), R_OK)) skip();
    assert_true(loads_within_bounds(default_model()));
}

static void put(FILE *f, uint64_t number, size_t size) {
    assert_int_equal(fwrite(&number, size, 1, f), 1);
}

/* The default model's metadata and its tensors, whose matrices are of `type`; the data are a hole.
 */
static void write_hollow(FILE *f, const gguf *g, enum gguf_type type, int block, int block_size) {
    gguf_str key;
    gguf_value_at(g, 0, &key);
    const char *metadata = key.data - sizeof(uint64_t);
    const char *tensors = gguf_tensor_at(g, 0)->name.data - sizeof(uint64_t);
    uint64_t at = 0;
    fwrite("GGUF\3\0\0", 8, 1, f);
    put(f, gguf_n_tensors(g), 8);
    put(f, gguf_n_values(g), 8);
    fwrite(metadata, (size_t)(tensors - metadata), 1, f);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        bool matrix = t->n_dims > 1;
        put(f, t->name.len, 8);
        fwrite(t->name.data, t->name.len, 1, f);
        put(f, (uint64_t)t->n_dims, 4);
        for (int d = 0; d < t->n_dims; d++) put(f, t->dims[d], 8);
        put(f, matrix ? type : t->type, 4);
        put(f, at, 8);
        size_t n = t->dims[0] * t->dims[1];
        at += matrix ? n / (size_t)block * (size_t)block_size : t->size;
        at = (at + ALIGN - 1) / ALIGN * ALIGN;
    }
    off_t data_at = (ftello(f) + ALIGN - 1) / ALIGN * ALIGN;
    fflush(f);
    assert_int_equal(ftruncate(fileno(f), data_at + (off_t)at), 0);
}

static void check_type(enum gguf_type type, int block, int block_size) {
    char path[] = "/tmp/incipit-memory-XXXXXX";
    gguf *g;
    if (SANITIZED || access(default_model(), R_OK)) skip();
    assert_int_equal(gguf_open(default_model(), &g, NULL), 0);
    FILE *f = fdopen(mkstemp(path), "wb");
    assert_non_null(f);
    write_hollow(f, g, type, block, block_size);
    fclose(f);
    gguf_close(&g);
    bool kept = loads_within_bounds(path);
    unlink(path);
    assert_true(kept);
}

static void files_of_f16(void **state) {
    check_type(GGUF_F16, 1, 2);
}

static void files_of_q8_0(void **state) {
    check_type(GGUF_Q8_0, 32, 34);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_model),
        cmocka_unit_test(files_of_f16),
        cmocka_unit_test(files_of_q8_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
