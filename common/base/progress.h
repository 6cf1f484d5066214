/* Progress reports of long operations, such as listing or downloading a data set. */
#ifndef GP_PROGRESS_H
#define GP_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

/* Progress callback with a context pointer. The operation calls report() in its own thread, many
 * times per second.
 *   activity  verb form: "listing"
 *   unit      plural noun: "files"; NULL: bytes
 *   done      units completed
 *   count     units in total; 0: unknown */
typedef struct gp_progress {
    void (*report)(void *context, const char *activity, const char *unit, uint64_t done, uint64_t count);
    void *context;
} gp_progress;

/* Call the progress callback. `progress` may be NULL: no reports are wanted. */
static inline void gp_progress_report(const gp_progress *progress, const char *activity, const char *unit,
                                      uint64_t done, uint64_t count)
{
    if (progress != NULL)
        progress->report(progress->context, activity, unit, done, count);
}

#endif
