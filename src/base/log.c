#include "base.h"
#include "base_internal.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static _Atomic int threshold = LOG_INFO;

void log_set_level(enum log_level level) {
    threshold = (int)level;
}

/* One write() a line: lines of several threads never mix. */
void log_line(enum log_level level, const char *format, ...) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if ((int)level > threshold) return;

    char text[2048], line[2048 + 256];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len < 0) return;

    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &parts);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %-5s ", now.tv_nsec / 1000000,
                          names[level]);
    n += base_escape(line + n, sizeof line - n - 1, text, MIN((size_t)len, sizeof text - 1));
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0) return; /* nowhere left to complain */
}
