/* throttle.h -- which of many like events are told, and how many were not; pure, the clock is the caller's.
 *
 *   quiet --an event--> window of GP_THROTTLE_WINDOW_MS: the first GP_THROTTLE_BURST pass, the others are counted
 *     ^------------------- its end: the count is told, also when nothing like it ever comes again */
#ifndef GP_THROTTLE_H
#define GP_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

enum { GP_THROTTLE_KINDS = 192, GP_THROTTLE_BURST = 200, GP_THROTTLE_WINDOW_MS = 10000 };

typedef struct gp_throttle_window {
    const char *event; /* borrowed: a name that is there for the life of the program; NULL = free */
    int64_t began_ms;
    uint32_t passed;
    uint64_t held_back;
} gp_throttle_window;

/* Zeros are one in which nothing has happened. */
typedef struct gp_throttle {
    gp_throttle_window windows[GP_THROTTLE_KINDS];
    uint32_t count;   /* of windows in use */
    uint32_t holding; /* of those, with something held back */
} gp_throttle;

/* Whether this one is told.  Of more kinds than there are windows, those beyond are never held back. */
bool gp_throttle_pass(gp_throttle *throttle, const char *event, int64_t now_ms);

/* A window that is over (all: or not) in which something was held back, once: its event, and how many. */
bool gp_throttle_next_ended(gp_throttle *throttle, int64_t now_ms, bool all, const char **event,
                            uint64_t *held_back);

#endif
