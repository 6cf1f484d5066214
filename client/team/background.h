/* background.h: the lock of a team, and the thread that drives the team while no call is active.
 *
 *   NONE --first work--> RUNNING --no work left--> PARKED --work--> RUNNING
 *                         |   ^ '--background_stop()--> ENDING
 *              waits for  v   | message, or a caller enters
 *             messages   WATCHING
 *
 * A caller holds the lock until it returns, even while it sleeps. The thread holds the lock except
 * while it sleeps. A caller that enters in state WATCHING takes over: it wakes the thread, which
 * then waits until the callers leave. */
#ifndef GP_TEAM_BACKGROUND_H
#define GP_TEAM_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef enum background_state {
    BACKGROUND_NONE, /* no thread; also the state before background_init() */
    BACKGROUND_RUNNING,
    BACKGROUND_PARKED,   /* the thread sleeps until background_start() */
    BACKGROUND_WATCHING, /* the thread waits for messages in place of a caller */
    BACKGROUND_ENDING,
} background_state;

/* Lock and thread of one team. The mutex guards the team and all fields here. */
typedef struct team_background {
    pthread_mutex_t mutex;
    pthread_t thread;
    background_state state;
    int kick;       /* eventfd that wakes the thread; -1: none */
    uint64_t calls; /* number of background_enter() calls so far */
} team_background;

/* Create the lock and the eventfd. GP_EIO: no eventfd is available. */
gp_status background_init(team_background *background, gp_error *err);

/* Destroy the lock and the eventfd. Call background_stop() first. */
void background_deinit(team_background *background);

/* Take the lock for a call. Return true if the thread was waiting for messages: the caller must now
 * wait for them. */
bool background_enter(team_background *background);

/* Start the thread with body(context), or wake it from PARKED. Call with the lock held. */
void background_start(team_background *background, void *(*body)(void *context), void *context);

/* End and join the thread, if there is one. Call without the lock. */
void background_stop(team_background *background);

/* ---- functions for the background thread ---- */

void background_lock(team_background *background);

/* Release the lock and sleep until background_start(). */
void background_park(team_background *background);

/* Release the lock and sleep for `ms`, or until `kick` is written. Return true if no call was made
 * meanwhile. */
bool background_sleep(team_background *background, int ms);

#endif
