/* Job journal: jobs in an SQLite database, written by a separate thread. Only journal.c uses
 * SQLite.
 *
 * The database is `<directory>/jobs.db`, with one connection, an exclusive lock, a write-ahead log
 * and synchronous=FULL. A commit costs an fsync, which takes milliseconds. Requests that arrive
 * during a commit share the next one: group commit without a timer.
 *
 * The thread that opened the journal queues operations with gp_journal_insert() and so on. When
 * gp_journal_fd() is readable, it collects reports with gp_journal_next(). The first I/O error ends
 * the journal without retries, because the state of the disk after a failed fsync is unknown. The
 * file keeps the state that was last acknowledged. */
#ifndef GP_JOURNAL_H
#define GP_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "scheduler/core/jobs.h"

typedef struct gp_journal gp_journal;

/* Command line, environment and directory of a job's process. Arguments and variables are
 * NUL-terminated strings, stored one after the other. */
typedef struct gp_journal_text {
    char *words, *environment, *directory; /* owned by this struct; directory is a single string */
    size_t words_bytes, environment_bytes;
    uint32_t umask;
} gp_journal_text;

void gp_journal_text_deinit(gp_journal_text *words);

/* Open the database in a directory; create it if it is missing. Nothing is ever deleted. Close *out
 * with gp_journal_close().
 *   GP_EUNSUPPORTED: the directory is on a network file system
 *   GP_EBUSY: another process has the database open
 *   GP_ECORRUPT: the database is damaged
 *   GP_EVERSION: the file has another format or a newer version
 *   GP_EIO: cannot read or write */
gp_status gp_journal_open(gp_journal **out, const char *directory, gp_error *err);

/* Call `each` for every job in id order, and set *next_id to the next free id. Call this before
 * gp_journal_start(). */
gp_status gp_journal_load(gp_journal *journal,
                          gp_status (*each)(void *context, const gp_jobs_job *row, gp_error *err),
                          void *context, uint64_t *next_id, gp_error *err);

/* Start the writer thread. */
gp_status gp_journal_start(gp_journal *journal, gp_error *err);

/* Finish the queued operations and close the database. NULL is allowed. */
void gp_journal_close(gp_journal *journal);

/* Queue an operation; the data is copied, and numbers never decrease. The queue itself has no
 * limit: callers refuse new jobs while gp_journal_full(), and always queue updates and deletes of
 * known jobs. GP_ENOMEM: out of memory. */
gp_status gp_journal_insert(gp_journal *journal, uint64_t number, const gp_jobs_job *job,
                            const gp_journal_text *words, gp_error *err);
gp_status gp_journal_update(gp_journal *journal, uint64_t number, const gp_jobs_job *job, gp_error *err);

/* Queue the deletion of a row, and of `folder`, unless NULL. After a crash the row may be left
 * without the folder, but not the folder without the row. */
gp_status gp_journal_delete(gp_journal *journal, uint64_t number, uint64_t job, const char *folder,
                            gp_error *err);

/* Queue a read of a job's command; the insert of the job is durable. The reply is a report with the
 * words. */
gp_status gp_journal_fetch(gp_journal *journal, uint64_t job, uint32_t attempt, gp_error *err);

/* Return whether too many bytes are queued to accept another insert. */
bool gp_journal_full(gp_journal *journal);

typedef enum gp_journal_report_kind {
    GP_JOURNAL_NOTHING,
    GP_JOURNAL_PERSISTED, /* number: this operation and all earlier ones are durable */
    GP_JOURNAL_FETCHED,   /* job, attempt, words (owned by the receiver) */
    GP_JOURNAL_UNFETCHED, /* job, attempt, error */
    GP_JOURNAL_FAILED,    /* error; the last report */
} gp_journal_report_kind;

typedef struct gp_journal_report {
    gp_journal_report_kind kind;
    uint64_t number, job;
    uint32_t attempt;
    gp_journal_text words;
    gp_error error;
} gp_journal_report;

int gp_journal_fd(const gp_journal *journal); /* readable: reports are pending */

/* Get the next report. GP_JOURNAL_NOTHING: no report is pending. */
void gp_journal_next(gp_journal *journal, gp_journal_report *out);

/* Commits and rows written since the start, for the log and the benchmarks. */
typedef struct gp_journal_stats {
    uint64_t commits, rows;
} gp_journal_stats;
gp_journal_stats gp_journal_get_stats(gp_journal *journal);

#endif
