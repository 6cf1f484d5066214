/* progress.h -- reports of how far a long operation is, for whoever waits for it. */
#ifndef GP_PROGRESS_H
#define GP_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

/* A function that an operation calls now and then, from the thread that runs the operation and many times a second.
 *   activity  "listing"
 *   unit      a plural: "files"; NULL: bytes
 *   count     units in all; 0: not known */
typedef struct gp_progress {
    void (*report)(void *context, const char *activity, const char *unit, uint64_t done, uint64_t count);
    void *context;
} gp_progress;

/* Call the function. NULL: no reports. */
static inline void gp_progress_report(const gp_progress *progress, const char *activity, const char *unit,
                                      uint64_t done, uint64_t count)
{
    if (progress != NULL)
        progress->report(progress->context, activity, unit, done, count);
}

#endif
