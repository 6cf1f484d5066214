/* journal.h -- jobs on disk: an SQLite file of its own thread.  The only file that knows SQLite is journal.c.
 *
 * `<directory>/jobs.db`, one connection, exclusive lock, write-ahead log, synchronous=FULL.  A commit costs an fsync
 * (milliseconds), so whatever is asked while one commit is under way shares the next: group commit without a timer.
 *
 * The thread that opened it asks (gp_journal_insert, ...) and, when gp_journal_fd() is readable, takes reports
 * (gp_journal_next).  The first error of the file ends the journal: nothing is tried again, because after a failed
 * fsync nobody knows what is on the disk; the file keeps the state that was last acknowledged. */
#ifndef GP_JOURNAL_H
#define GP_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "scheduler/core/jobs.h"

typedef struct gp_journal gp_journal;

/* What a job's process is made of.  Words and variables end with a NUL each, one behind the other. */
typedef struct gp_journal_words {
    char *words, *environment, *directory; /* owned; directory is one text */
    size_t words_bytes, environment_bytes;
    uint32_t umask;
} gp_journal_words;

void gp_journal_words_deinit(gp_journal_words *words);

/* gp_journal_open -- the database in that directory, made if it is missing.
 *   out  released with gp_journal_close()
 * GP_EUNSUPPORTED: the directory is on a network file system.  GP_EBUSY: another process has it open.  GP_ECORRUPT:
 * damaged.  GP_EVERSION: not ours, or of a newer version.  GP_EIO.  Each names the file and the fix; nothing is
 * deleted. */
gp_status gp_journal_open(gp_journal **out, const char *directory, gp_error *err);

/* gp_journal_load -- every job, in the order of ids, and the next id; before gp_journal_start(). */
gp_status gp_journal_load(gp_journal *journal,
                          gp_status (*each)(void *context, const gp_jobs_job *row, gp_error *err),
                          void *context, uint64_t *next_id, gp_error *err);

/* gp_journal_start -- the thread. */
gp_status gp_journal_start(gp_journal *journal, gp_error *err);

/* gp_journal_close -- what was asked is done first.  Accepts NULL. */
void gp_journal_close(gp_journal *journal);

/* Queue an operation; its data is copied, and numbers never decrease. The queue has no limit of its own: callers refuse
 * new jobs while gp_journal_full(), and updates and deletes of known jobs are always queued.  GP_ENOMEM. */
gp_status gp_journal_insert(gp_journal *journal, uint64_t number, const gp_jobs_job *job,
                            const gp_journal_words *words, gp_error *err);
gp_status gp_journal_update(gp_journal *journal, uint64_t number, const gp_jobs_job *job, gp_error *err);
/* Also removes the folder, if it is not NULL, once the row is gone for good. */
gp_status gp_journal_delete(gp_journal *journal, uint64_t number, uint64_t job, const char *folder,
                            gp_error *err);
/* Answered by a report with the words. */
gp_status gp_journal_fetch(gp_journal *journal, uint64_t job, uint32_t attempt, gp_error *err);

/* So many bytes wait to be written that no insert is taken. */
bool gp_journal_full(gp_journal *journal);

typedef enum gp_journal_report_kind {
    GP_JOURNAL_NOTHING,
    GP_JOURNAL_PERSISTED, /* number: it and all before it are on the disk */
    GP_JOURNAL_FETCHED,   /* job, attempt, words (the receiver's now) */
    GP_JOURNAL_UNFETCHED, /* job, attempt, error */
    GP_JOURNAL_FAILED,    /* error; the last report */
} gp_journal_report_kind;

typedef struct gp_journal_report {
    gp_journal_report_kind kind;
    uint64_t number, job;
    uint32_t attempt;
    gp_journal_words words;
    gp_error error;
} gp_journal_report;

int gp_journal_fd(const gp_journal *journal); /* POLLIN: reports wait */
void gp_journal_next(gp_journal *journal, gp_journal_report *out);

/* Commits and rows written since the start, for the log and the benchmarks. */
typedef struct gp_journal_stats {
    uint64_t commits, rows;
} gp_journal_stats;
gp_journal_stats gp_journal_get_stats(gp_journal *journal);

#endif
