/* Rate limiter for events of the same kind. Pure: callers pass the time.
 *
 *   quiet --event--> window (GP_THROTTLE_WINDOW_MS): GP_THROTTLE_BURST events pass, all others
 *     ^                are only counted
 *     +--------------- when the window ends, the count is reported, even if no event follows */
#ifndef GP_THROTTLE_H
#define GP_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

/* Limits: event kinds with a window, events per window, window length. */
enum { GP_THROTTLE_KINDS = 192, GP_THROTTLE_BURST = 200, GP_THROTTLE_WINDOW_MS = 10000 };

/* Time window of one kind of event. */
typedef struct gp_throttle_window {
    /* name, borrowed: must remain valid until the program exits; NULL: unused */
    const char *event;
    int64_t began_ms;   /* window start */
    uint32_t passed;    /* events passed in this window */
    uint64_t held_back; /* events suppressed in this window */
} gp_throttle_window;

/* Rate limiter. Initialize with zeros. */
typedef struct gp_throttle {
    gp_throttle_window windows[GP_THROTTLE_KINDS];
    uint32_t count;   /* windows in use */
    uint32_t holding; /* windows with suppressed events */
} gp_throttle;

/* Count an event. Return whether it may pass. If all windows are in use, other kinds always
 * pass. */
bool gp_throttle_pass(gp_throttle *throttle, const char *event, int64_t now_ms);

/* Return the next ended window with suppressed events, and restart it. false: there is no more.
 *   all        include windows that have not ended
 *   event      set to the event's name
 *   held_back  suppressed events */
bool gp_throttle_next_ended(gp_throttle *throttle, int64_t now_ms, bool all, const char **event,
                            uint64_t *held_back);

#endif
