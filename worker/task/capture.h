/* capture.h -- capture of the text that tasks print, for the client of a link.
 *
 *   task: fd 1, fd 2 -> pipe -> log of the worker (all bytes)
 *                         '---> lines -> queue -> answer ring (GP_ANSWER_OUTPUT)
 *
 * The compute thread reads the pipe when a call ends, so the lines of a call precede its result. A
 * separate thread reads the pipe at all other times, so the lines of a long call arrive while the
 * call runs. Both hold the same lock, which also guards the answer ring against two producers.
 *
 * A call never waits for the client because of its lines: they leave half of the ring to results.
 * Lines wait in a queue of OUTPUT_QUEUE_BYTES, and lines that do not fit are dropped and counted.
 * No thread waits for the end of the pipe: child processes of a task may keep it open.
 *
 * exit() and fatal signals read the pipe before the process ends, so that the message of a failed
 * assertion is not lost. After SIGKILL, bytes that were still in the pipe are lost. */
#ifndef GP_CAPTURE_H
#define GP_CAPTURE_H

#include <stdint.h>

#include "common/base/error.h"
#include "proto/task/link.h"

typedef struct gp_capture gp_capture;

/* Redirect standard output and standard error of this process into lines for the client of the
 * link. At most one capture exists in a process.
 * GP_ENOMEM: out of memory. GP_EIO: no pipe or thread. GP_ESTATE: a capture exists. */
gp_status gp_capture_open(gp_capture **out, gp_link *link, gp_error *err);

/* Pass on the remaining output and restore standard output and standard error. Accepts NULL. */
void gp_capture_close(gp_capture *capture);

/* ---- compute; these functions accept NULL: no capture, no effect ----
 *
 * The compute thread calls them for each call and each iteration. Without a capture they only
 * compare a pointer, because an empty iteration takes about 10 ns. */

void gp_capture_set_call(gp_capture *capture, uint64_t call);          /* not NULL */
void gp_capture_set_iteration(gp_capture *capture, int64_t iteration); /* not NULL */
void gp_capture_flush(gp_capture *capture);                            /* not NULL */
void gp_capture_lock_ring(gp_capture *capture);                        /* not NULL */
void gp_capture_unlock_ring(gp_capture *capture);                      /* not NULL */

/* Attribute output to a call from now on; 0: to none. */
static inline void gp_capture_begin_call(gp_capture *capture, uint64_t call)
{
    if (capture != NULL)
        gp_capture_set_call(capture, call);
}

/* Attribute output to an iteration of the call from now on. */
static inline void gp_capture_begin_iteration(gp_capture *capture, int64_t iteration)
{
    if (capture != NULL)
        gp_capture_set_iteration(capture, iteration);
}

/* End a call or an iteration: pass on its lines, including an incomplete one. */
static inline void gp_capture_end(gp_capture *capture)
{
    if (capture != NULL)
        gp_capture_flush(capture);
}

/* Hold the answer ring: from before gp_link_reserve() until after gp_link_commit(). */
static inline void gp_capture_lock(gp_capture *capture)
{
    if (capture != NULL)
        gp_capture_lock_ring(capture);
}

static inline void gp_capture_unlock(gp_capture *capture)
{
    if (capture != NULL)
        gp_capture_unlock_ring(capture);
}

#endif
