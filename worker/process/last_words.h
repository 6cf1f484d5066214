/* last_words.h -- why a process ends itself, for the scheduler, which has only its exit code otherwise: a file beside its socket, that
 * whoever reaps the process reads and removes. */
#ifndef GP_LAST_WORDS_H
#define GP_LAST_WORDS_H

#include "common/base/error.h"

/* Where it would be; not copied twice: one process, one place. */
void gp_last_words_place(const char *path);

/* A device whose every call fails from now on, in this process: another must take its place.  Exits with GP_EXIT_DEVICE_LOST.
 *   doing  "in step 12", "in a prediction"
 *   cause  the cause at its beginning: of a long one the end is cut, with "..."; the log has all of it */
enum { GP_EXIT_DEVICE_LOST = 70 };
_Noreturn void gp_device_lost(const char *doing, const gp_error *cause);

/* Nothing happens where there is no place; cannot fail in a way that anybody could hear of. */
void gp_last_words_leave(const char *text);

#endif
