/* How much of prompts a step may take, from what steps took before. */
#include "schedule.h"

enum { FIRST = 32 }; /* tokens, while nothing was measured */
#define FORGET 0.1   /* the share of an old measurement that a new one replaces */

static void mix(double *known, double measured) {
    *known = *known > 0 ? *known + FORGET * (measured - *known) : measured;
}

void sched_note(sched_pace *pace, int n_prefill, double seconds) {
    if (n_prefill == 0) {
        mix(&pace->step, seconds);
        return;
    }
    double row = MAX(seconds - pace->step, 0) / n_prefill;
    if (row > pace->row)
        pace->row = row;
    else
        mix(&pace->row, row);
}

int sched_chunk(const sched_pace *pace, double seconds, int least, int most) {
    double n = pace->row > 0 ? (seconds - pace->step) / pace->row : MIN(FIRST, most);
    least = MIN(least, most);
    return n < least ? least : n > most ? most : (int)n;
}
