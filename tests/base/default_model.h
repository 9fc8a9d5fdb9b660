/* Where the default model is, for tests that use it when it is there: INCIPIT_TEST_MODEL, or what
 * `./dev fetch` has put into the user's cache directory. */
#ifndef DEFAULT_MODEL_H
#define DEFAULT_MODEL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline const char *default_model(void) {
    static char path[4096];
    const char *given = getenv("INCIPIT_TEST_MODEL"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    bool own = cache && *cache;
    if (given) return given;
    snprintf(path, sizeof path, "%s%s/incipit/SmolLM2-135M-Instruct.Q4_1.gguf",
             own    ? cache
             : home ? home
                    : "",
             own ? "" : "/.cache");
    return path;
}

#endif
