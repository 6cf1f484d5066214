/* Record the reports of a gp_progress. */
#ifndef GP_TESTS_PROGRESS_SEEN_H
#define GP_TESTS_PROGRESS_SEEN_H

#include <string.h>

#include "common/base/progress.h"

enum { PROGRESS_KINDS_MAX = 8 };

/* Reports by one activity in one unit. */
typedef struct progress_kind {
    const char *activity, *unit;
    uint64_t reports, done, count; /* done, count: values in the last report */
    bool fell;                     /* `done` decreased */
} progress_kind;

typedef struct progress_seen {
    progress_kind kinds[PROGRESS_KINDS_MAX];
} progress_seen;

/* Return an activity's record in a unit; NULL: no report. */
static inline progress_kind *progress_seen_find(progress_seen *seen, const char *activity, const char *unit)
{
    for (int i = 0; i < PROGRESS_KINDS_MAX && seen->kinds[i].activity != NULL; i++) {
        progress_kind *kind = &seen->kinds[i];

        if (strcmp(kind->activity, activity) == 0 &&
            (kind->unit == NULL ? unit == NULL : unit != NULL && strcmp(kind->unit, unit) == 0))
            return kind;
    }
    return NULL;
}

static inline void progress_seen_report(void *context, const char *activity, const char *unit, uint64_t done,
                                        uint64_t count)
{
    progress_seen *seen = context;
    progress_kind *kind = progress_seen_find(seen, activity, unit);

    for (int i = 0; kind == NULL && i < PROGRESS_KINDS_MAX; i++)
        if (seen->kinds[i].activity == NULL) {
            kind = &seen->kinds[i];
            *kind = (progress_kind){ .activity = activity, .unit = unit };
        }
    if (kind == NULL)
        return;
    kind->reports++;
    kind->fell |= done < kind->done;
    kind->done = done;
    kind->count = count;
}

/* Check an activity's last report, and that the reports never decreased. */
#define CHECK_PROGRESS(seen, activity, unit, last, of)                                                       \
    do {                                                                                                     \
        const progress_kind *kind_ = progress_seen_find(seen, activity, unit);                               \
        CHECK(kind_ != NULL);                                                                                \
        if (kind_ != NULL) {                                                                                 \
            CHECK(!kind_->fell);                                                                             \
            CHECK_INT(last, kind_->done);                                                                    \
            CHECK_INT(of, kind_->count);                                                                     \
        }                                                                                                    \
    } while (0)

#endif
