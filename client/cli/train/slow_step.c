/* Detect slow steps by comparison with the median over recent steps. */
#include "client/cli/train/slow_step.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* A step is slow if the time exceeds FACTOR times the median and the median plus EXCESS_MS. WINDOW:
 * steps in the median, at least WINDOW_MIN. SILENCE_MS: minimum time between two reports. */
enum { RANKS_MAX = 64, WINDOW = 32, WINDOW_MIN = 8, FACTOR = 4, EXCESS_MS = 200, SILENCE_MS = 5000 };
enum { PHASES = 5, TOTAL = PHASES, COLUMNS };

static const char *const phases[PHASES] = { "data", "forward", "backward", "exchange", "commit" };

/* Recent steps of a rank. */
typedef struct history {
    double ms[COLUMNS][WINDOW];
    uint32_t count; /* steps recorded so far; the newest is at (count - 1) % WINDOW */
} history;

struct slow_steps {
    uint32_t workers;
    history ranks[RANKS_MAX];
    /* Slow step whose records are being collected; 0: none. */
    uint64_t step;
    uint32_t records;
    double took_ms, usual_ms; /* times for the rank described below */
    double busy_ms;           /* time without waiting, of the rank that waited least */
    double phase_ms, more_ms; /* phase with the largest excess over the median, and the excess */
    uint32_t worker, phase;
    int64_t reported_ms; /* last report time; 0: never */
};

slow_steps *slow_steps_new(uint32_t workers)
{
    slow_steps *slow = gp_calloc(1, sizeof(*slow));

    if (slow != NULL)
        slow->workers = workers;
    return slow;
}

void slow_steps_reset(slow_steps *slow, uint32_t workers)
{
    int64_t reported_ms = slow->reported_ms;

    memset(slow, 0, sizeof(*slow));
    slow->workers = workers;
    slow->reported_ms = reported_ms;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const history *h, int column)
{
    double sorted[WINDOW];
    uint32_t count = h->count < WINDOW ? h->count : WINDOW;

    memcpy(sorted, h->ms[column], count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), compare);
    return sorted[count / 2];
}

/* Add a record to the slow step; remember the rank that waited least. */
static void collect(slow_steps *slow, const history *h, const gp_train_step *step, const double ms[COLUMNS])
{
    double busy_ms = ms[TOTAL] - step->wait_ms;

    if (slow->step != step->step) { /* discard an incomplete older step */
        slow->step = step->step;
        slow->records = 0;
        slow->busy_ms = -1;
    }
    slow->records++;
    if (busy_ms <= slow->busy_ms)
        return;
    slow->busy_ms = busy_ms;
    slow->more_ms = -1;
    slow->took_ms = ms[TOTAL];
    slow->usual_ms = median(h, TOTAL);
    slow->worker = step->worker;
    for (uint32_t i = 0; i < PHASES; i++) {
        double more_ms = ms[i] - median(h, (int)i);

        if (more_ms <= slow->more_ms)
            continue;
        slow->more_ms = more_ms;
        slow->phase = i;
        slow->phase_ms = ms[i];
    }
}

bool slow_steps_add(slow_steps *slow, const gp_train_step *step, int64_t now_ms, char *text, size_t bytes)
{
    const double ms[COLUMNS] = { step->data_ms,
                                 step->forward_ms,
                                 step->backward_ms,
                                 step->exchange_ms,
                                 step->commit_ms,
                                 step->data_ms + step->forward_ms + step->backward_ms + step->exchange_ms +
                                     step->commit_ms + step->wait_ms };
    history *h;
    bool complete = false;

    if (step->rank >= RANKS_MAX)
        return false;
    h = &slow->ranks[step->rank];
    if (h->count >= WINDOW_MIN) {
        double usual_ms = median(h, TOTAL);

        if (ms[TOTAL] > FACTOR * usual_ms && ms[TOTAL] > usual_ms + EXCESS_MS) {
            collect(slow, h, step, ms);
            complete = slow->records == slow->workers;
        }
    }
    for (int i = 0; i < COLUMNS; i++)
        h->ms[i][h->count % WINDOW] = ms[i];
    h->count++;
    if (!complete || (slow->reported_ms != 0 && now_ms - slow->reported_ms < SILENCE_MS))
        return false;
    slow->reported_ms = now_ms;
    int used = snprintf(text, bytes, "step %" PRIu64 " took %.2f s, usually %.2f s: ", slow->step,
                        slow->took_ms * 1e-3, slow->usual_ms * 1e-3);

    if (slow->more_ms >= (slow->took_ms - slow->usual_ms) / 2)
        snprintf(text + used, bytes - (size_t)used, "worker %" PRIu32 " spent %.2f s on %s", slow->worker,
                 slow->phase_ms * 1e-3, phases[slow->phase]);
    else
        snprintf(text + used, bytes - (size_t)used,
                 "all workers waited; other processes may have used the cores");
    return true;
}
