/* Implement throttle.h. */
#include "common/base/text/throttle.h"

#include <string.h>

static bool window_over(const gp_throttle_window *window, int64_t now_ms)
{
    return now_ms - window->began_ms >= GP_THROTTLE_WINDOW_MS;
}

/* Return the window of an event: the existing one, an unused one, or that of a kind that has been
 * quiet for a full window. NULL: all windows are in use. */
static gp_throttle_window *window_of(gp_throttle *throttle, const char *event, int64_t now_ms)
{
    gp_throttle_window *quiet = NULL;

    for (uint32_t i = 0; i < throttle->count; i++) {
        gp_throttle_window *window = &throttle->windows[i];

        /* Equal string literals in two source files can have different addresses. */
        if (window->event == event || strcmp(window->event, event) == 0)
            return window;
        if (window->held_back == 0 && window_over(window, now_ms))
            quiet = window;
    }
    if (throttle->count < GP_THROTTLE_KINDS)
        quiet = &throttle->windows[throttle->count++];
    if (quiet != NULL)
        *quiet = (gp_throttle_window){ .event = event, .began_ms = now_ms };
    return quiet;
}

bool gp_throttle_pass(gp_throttle *throttle, const char *event, int64_t now_ms)
{
    gp_throttle_window *window = window_of(throttle, event, now_ms);

    if (window == NULL)
        return true;
    if (window->held_back == 0 && window_over(window, now_ms))
        *window = (gp_throttle_window){ .event = event, .began_ms = now_ms };
    if (window->passed < GP_THROTTLE_BURST) {
        window->passed++;
        return true;
    }
    throttle->holding += window->held_back == 0;
    window->held_back++;
    return false;
}

bool gp_throttle_next_ended(gp_throttle *throttle, int64_t now_ms, bool all, const char **event,
                            uint64_t *held_back)
{
    for (uint32_t i = 0; throttle->holding > 0 && i < throttle->count; i++) {
        gp_throttle_window *window = &throttle->windows[i];

        if (window->held_back == 0 || (!all && !window_over(window, now_ms)))
            continue;
        *event = window->event;
        *held_back = window->held_back;
        throttle->holding--;
        *window = (gp_throttle_window){ .event = window->event, .began_ms = now_ms };
        return true;
    }
    return false;
}
