/* background.h -- the lock of a team, and the thread that drives the team while no call is made.
 *
 *   NONE --first work--> RUNNING --no work left--> PARKED --work--> RUNNING
 *                         |   ^ '--background_stop()--> ENDING
 *              waits for  v   | a message, or a caller enters
 *             messages   WATCHING
 *
 * A caller holds the lock until it returns, also while it sleeps. The thread holds the lock except while it sleeps. A
 * caller that enters in state WATCHING takes over: it wakes the thread, which then waits until the callers leave. */
#ifndef GP_TEAM_BACKGROUND_H
#define GP_TEAM_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef enum background_state {
    BACKGROUND_NONE, /* no thread; also before background_init() */
    BACKGROUND_RUNNING,
    BACKGROUND_PARKED,   /* it sleeps until background_start() */
    BACKGROUND_WATCHING, /* it waits for messages in the place of a caller */
    BACKGROUND_ENDING,
} background_state;

/* The mutex guards the team and everything here. */
typedef struct team_background {
    pthread_mutex_t mutex;
    pthread_t thread;
    background_state state;
    int kick;       /* eventfd that wakes the thread; -1: none */
    uint64_t calls; /* background_enter() so far */
} team_background;

gp_status background_init(team_background *background, gp_error *err);
/* Destroy the lock and the eventfd; the thread has been stopped. */
void background_deinit(team_background *background);

/* Take the lock for a call.  True: the thread was waiting for messages, and the caller has to do so from now on. */
bool background_enter(team_background *background);
/* Make sure that the thread runs body(context), or continues; under the lock. */
void background_start(team_background *background, void *(*body)(void *context), void *context);
/* End and join the thread, if there is one; without the lock. */
void background_stop(team_background *background);

/* ---- by the thread ---- */

void background_lock(team_background *background);
/* Sleep without the lock until background_start(). */
void background_park(team_background *background);
/* Sleep without the lock for that time or until a kick.  True: no call was made meanwhile. */
bool background_sleep(team_background *background, int ms);
/* Release the lock for a wait for messages and for `kick`; take it again after the wait. */
void background_watch_begin(team_background *background);
void background_watch_end(team_background *background);

#endif
