#include "client/team/background.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/process.h"

gp_status background_init(team_background *background, gp_error *err)
{
    pthread_mutex_init(&background->mutex, NULL);
    background->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return background->kick >= 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot create an eventfd for a team");
}

void background_deinit(team_background *background)
{
    if (background->kick >= 0)
        close(background->kick);
    pthread_mutex_destroy(&background->mutex);
}

bool background_enter(team_background *background)
{
    pthread_mutex_lock(&background->mutex);
    background->calls++;
    if (background->state != BACKGROUND_WATCHING)
        return false;
    eventfd_write(background->kick, 1);
    background->state = BACKGROUND_RUNNING;
    return true;
}

void background_start(team_background *background, void *(*body)(void *context), void *context)
{
    if (background->state == BACKGROUND_NONE) {
        if (gp_thread_start(&background->thread, "gp-team", 0, body, context) == 0)
            background->state = BACKGROUND_RUNNING;
    } else if (background->state == BACKGROUND_PARKED) {
        eventfd_write(background->kick, 1);
        background->state = BACKGROUND_RUNNING;
    }
}

void background_stop(team_background *background)
{
    bool runs;

    pthread_mutex_lock(&background->mutex);
    runs = background->state != BACKGROUND_NONE;
    if (runs)
        background->state = BACKGROUND_ENDING;
    pthread_mutex_unlock(&background->mutex);
    if (!runs)
        return;
    eventfd_write(background->kick, 1);
    pthread_join(background->thread, NULL);
    background->state = BACKGROUND_NONE;
}

/* ---- functions for the background thread ---- */

/* Take the lock from the background thread. A caller that holds the lock drives the team itself,
 * and unlocking a mutex with a waiter would cost it a system call. So the thread does not wait on
 * the mutex, but retries at growing intervals up to 8 ms. */
void background_lock(team_background *background)
{
    int64_t ms = 1;

    while (pthread_mutex_trylock(&background->mutex) != 0) {
        gp_sleep_ms(ms);
        ms = ms < 8 ? 2 * ms : 8;
    }
}

/* Change the state, unless background_stop() has set BACKGROUND_ENDING. */
static void state_change(team_background *background, background_state from, background_state to)
{
    if (background->state == from)
        background->state = to;
}

void background_park(team_background *background)
{
    state_change(background, BACKGROUND_RUNNING, BACKGROUND_PARKED);
    background_sleep(background, -1);
    state_change(background, BACKGROUND_PARKED, BACKGROUND_RUNNING);
}

bool background_sleep(team_background *background, int ms)
{
    uint64_t calls = background->calls, kicks;
    struct pollfd fd = { .fd = background->kick, .events = POLLIN };

    pthread_mutex_unlock(&background->mutex);
    if (poll(&fd, 1, ms) > 0)
        eventfd_read(background->kick, &kicks);
    background_lock(background);
    return background->calls == calls;
}
