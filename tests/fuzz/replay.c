/* Runs a fuzz target once over every file of a folder: what fuzzing found stays found. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path) {
    static uint8_t data[1 << 20];
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    printf("%s\n", path);
    fflush(stdout); /* so that a crash has a name */
    LLVMFuzzerTestOneInput(data, size);
    return 1;
}

int main(int argc, char **argv) {
    int n = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) return EXIT_FAILURE;
    for (struct dirent *e; (e = readdir(folder));) {
        char path[4096];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        n += replay(path);
    }
    closedir(folder);
    return n ? EXIT_SUCCESS : EXIT_FAILURE;
}
