/* Job journal on SQLite; journal.h describes the interface. All code that touches SQLite or the
 * writer thread is in this file, because a foreign library has one home. */
#include "scheduler/jobs/journal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "common/base/system/process.h"

enum {
    APPLICATION_ID = 0x47504a31, /* "GPJ1" */
    FORMAT = 2,
    BATCH_MAX = 8192, /* maximum operations per commit */
};

static const size_t waiting_bytes_max = 256u << 20;

/* Kinds of operations; each has a prepared statement. */
typedef enum operation_kind { INSERT, UPDATE, DELETE, FETCH, STATEMENTS } operation_kind;

typedef struct report {
    struct report *next;
    gp_journal_report body;
} report;

typedef struct operation {
    struct operation *next;
    operation_kind kind;
    uint64_t number;
    uint32_t attempt;
    gp_jobs_job job;
    gp_journal_text words; /* only for INSERT */
    char *folder;          /* only for DELETE */
    report *reply;         /* only for FETCH; NULL: sent */
    size_t bytes;
} operation;

struct gp_journal {
    char path[4096];
    sqlite3 *database;
    sqlite3_stmt *statements[STATEMENTS];
    pthread_t thread;
    bool started;
    int event; /* eventfd: reports are pending */
    pthread_mutex_t lock;
    pthread_cond_t asked;
    /* The lock protects all fields from here on. */
    operation *first, **last;
    size_t waiting_bytes;
    bool closing;
    report *reports, **reports_last;
    gp_journal_report persisted; /* merged: only the largest number matters */
    bool failed;
    gp_error failure;
    bool failure_reported;
    gp_journal_stats stats;
};

void gp_journal_text_deinit(gp_journal_text *words)
{
    gp_free(words->words);
    gp_free(words->environment);
    gp_free(words->directory);
    *words = (gp_journal_text){ 0 };
}

/* ---- errors ---- */

/* Translate an SQLite error into a gp_status and a message with a remedy. */
static gp_status database_fail(gp_journal *journal, int code, gp_error *err)
{
    const char *why = journal->database != NULL ? sqlite3_errmsg(journal->database) : sqlite3_errstr(code);

    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return gp_fail(err, GP_EBUSY,
                       "another process has the job journal %s open (%s): a suspended earlier scheduler of "
                       "this pool, or one with another runtime directory (then set GRADPOOL_STATE_DIR for "
                       "one of them); jobs work two seconds after it exits",
                       journal->path, why);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return gp_fail(err, GP_ECORRUPT,
                       "the job journal %s is damaged (%s); try to recover its jobs with `sqlite3 FILE "
                       ".recover`, move the file away, then run gradpool down and gradpool up",
                       journal->path, why);
    case SQLITE_FULL:
        return gp_fail(err, GP_EIO,
                       "no space for the job journal %s (%s): new jobs are rejected; free disk space, then "
                       "run gradpool down and gradpool up",
                       journal->path, why);
    case SQLITE_NOMEM:
        return gp_fail(err, GP_ENOMEM, "no memory for the job journal %s", journal->path);
    default:
        return gp_fail(err, GP_EIO,
                       "cannot access the job journal %s (%s, SQLite error %d): new jobs are rejected; check "
                       "the disk, then run gradpool down and gradpool up",
                       journal->path, why, code);
    }
}

static gp_status run_sql(gp_journal *journal, const char *sql, gp_error *err)
{
    int code = sqlite3_exec(journal->database, sql, NULL, NULL, NULL);

    return code == SQLITE_OK ? GP_OK : database_fail(journal, code, err);
}

static gp_status read_number(gp_journal *journal, const char *sql, int64_t *out, gp_error *err)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(journal->database, sql, -1, &statement, NULL);
    gp_status status = GP_OK;

    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        *out = sqlite3_column_int64(statement, 0);
    else if (code == SQLITE_DONE)
        *out = 0;
    else
        status = database_fail(journal, code, err);
    sqlite3_finalize(statement);
    return status;
}

/* ---- opening ---- */

/* Refuse network file systems: fsync and locks may have no effect there. */
static gp_status refuse_network(const char *directory, gp_error *err)
{
    static const struct {
        uint32_t magic;
        const char *name;
    } systems[] = {
        { 0x00006969, "NFS" },    { 0x0000517b, "SMB" },    { 0xff534d42, "CIFS" },  { 0xfe534d42, "SMB" },
        { 0x0bd00bd0, "Lustre" }, { 0x00c36400, "Ceph" },   { 0x5346414f, "AFS" },   { 0x6b414653, "AFS" },
        { 0x47504653, "GPFS" },   { 0x19830326, "BeeGFS" }, { 0xaad7aaea, "PanFS" }, { 0x73757245, "Coda" },
        { 0x01021997, "9P" },     { 0x01161970, "GFS2" },   { 0x7461636f, "OCFS2" },
    };
    struct statfs info;

    if (statfs(directory, &info) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot stat the state directory %s", directory);
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++) {
        if ((uint32_t)info.f_type == systems[i].magic)
            return gp_fail(err, GP_EUNSUPPORTED,
                           "the state directory %s is on a network file system (%s), which cannot hold the "
                           "job journal; set GRADPOOL_STATE_DIR to a directory on a local disk",
                           directory, systems[i].name);
    }
    return GP_OK;
}

static const char schema[] =
    "CREATE TABLE jobs ("
    /* AUTOINCREMENT: ids are never reused, even after all rows are deleted */
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  submitter BLOB NOT NULL, seq INTEGER NOT NULL, name TEXT NOT NULL, command TEXT NOT NULL,"
    "  priority INTEGER NOT NULL, state INTEGER NOT NULL, attempts INTEGER NOT NULL, cancel INTEGER NOT NULL,"
    "  pid INTEGER NOT NULL, start_time INTEGER NOT NULL, boot BLOB NOT NULL,"
    "  submitted_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    "  exit INTEGER NOT NULL, number INTEGER NOT NULL, workers INTEGER NOT NULL, reason TEXT NOT NULL,"
    "  words BLOB NOT NULL, environment BLOB NOT NULL, directory TEXT NOT NULL, umask INTEGER NOT NULL,"
    "  kind INTEGER NOT NULL DEFAULT 0,"
    "  UNIQUE (submitter, seq));";

/* Change a database of an earlier format to the present one, in one transaction. The jobs of format
 * 1 have no kind: all are ordinary. */
static gp_status upgrade(gp_journal *journal, int64_t version, gp_error *err)
{
    gp_status status = GP_OK;
    char pragmas[60];

    if (version >= FORMAT)
        return GP_OK;
    snprintf(pragmas, sizeof(pragmas), "PRAGMA user_version=%d; COMMIT", FORMAT);
    status = run_sql(journal, "BEGIN IMMEDIATE", err);
    if (status == GP_OK && version == 1)
        status = run_sql(journal, "ALTER TABLE jobs ADD COLUMN kind INTEGER NOT NULL DEFAULT 0", err);
    return status == GP_OK ? run_sql(journal, pragmas, err) : status;
}

/* Create the schema in an empty database, or check the format of an existing one.
 *   GP_EVERSION: the file belongs to another program or version */
static gp_status check_format(gp_journal *journal, gp_error *err)
{
    int64_t application = 0, version = 0, tables = 0;
    gp_status status = read_number(journal, "PRAGMA application_id", &application, err);
    char pragmas[120];

    if (status == GP_OK)
        status = read_number(journal, "PRAGMA user_version", &version, err);
    if (status == GP_OK)
        status = read_number(journal, "SELECT count(*) FROM sqlite_schema", &tables, err);
    if (status != GP_OK)
        return status;
    if (application == 0 && version == 0 && tables == 0) {
        status = run_sql(journal, "BEGIN IMMEDIATE", err);
        if (status == GP_OK)
            status = run_sql(journal, schema, err);
        snprintf(pragmas, sizeof(pragmas), "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT",
                 APPLICATION_ID, FORMAT);
        return status == GP_OK ? run_sql(journal, pragmas, err) : status;
    }
    if (application != APPLICATION_ID)
        return gp_fail(err, GP_EVERSION,
                       "%s is a database of another program (application %" PRId64
                       "); move it away, then run gradpool down and gradpool up",
                       journal->path, application);
    if (version < 1 || version > FORMAT)
        return gp_fail(
            err, GP_EVERSION,
            "the job journal %s has format %" PRId64
            ", but this build supports format %d; run the gradpool that wrote it, or move the file away",
            journal->path, version, FORMAT);
    return upgrade(journal, version, err);
}

#define ROW_COLUMNS                                                                                          \
    "id, submitter, seq, name, command, priority, state, attempts, cancel, pid, start_time, boot, "          \
    "submitted_ms, started_ms, ended_ms, exit, number, workers, reason, kind"

static gp_status prepare_statements(gp_journal *journal, gp_error *err)
{
    static const char *const texts[STATEMENTS] = {
        [INSERT] =
            "INSERT INTO jobs (" ROW_COLUMNS ", words, environment, directory, umask) VALUES "
            "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, "
            "?21, ?22, ?23, ?24)",
        [UPDATE] = "UPDATE jobs SET priority=?6, state=?7, attempts=?8, cancel=?9, pid=?10, start_time=?11, "
                   "boot=?12, "
                   "started_ms=?14, ended_ms=?15, exit=?16, number=?17, workers=?18, reason=?19 WHERE id=?1",
        [DELETE] = "DELETE FROM jobs WHERE id=?1",
        [FETCH] = "SELECT words, environment, directory, umask FROM jobs WHERE id=?1",
    };

    for (int i = 0; i < STATEMENTS; i++) {
        int code = sqlite3_prepare_v3(journal->database, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                      &journal->statements[i], NULL);

        if (code != SQLITE_OK)
            return database_fail(journal, code, err);
    }
    return GP_OK;
}

static gp_status open_database(gp_journal *journal, gp_error *err)
{
    int code = sqlite3_open_v2(
        journal->path, &journal->database,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX, NULL);
    gp_status status = code == SQLITE_OK ? GP_OK : database_fail(journal, code, err);

    if (status == GP_OK)
        sqlite3_extended_result_codes(journal->database, 1);
    if (status == GP_OK) /* EXCLUSIVE first: then the write-ahead log needs no shared memory */
        status = run_sql(journal,
                         "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; "
                         "PRAGMA synchronous=FULL; PRAGMA trusted_schema=OFF; "
                         /* after large commands, do not keep the log at its largest size */
                         "PRAGMA journal_size_limit=4194304",
                         err);
    if (status == GP_OK)
        /* takes the lock until the connection closes */
        status = run_sql(journal, "BEGIN EXCLUSIVE; COMMIT", err);
    if (status == GP_OK)
        status = check_format(journal, err);
    return status == GP_OK ? prepare_statements(journal, err) : status;
}

gp_status gp_journal_open(gp_journal **out, const char *directory, gp_error *err)
{
    gp_journal *journal;
    gp_status status = refuse_network(directory, err);

    if (status != GP_OK)
        return status;
    journal = gp_calloc(1, sizeof(*journal));
    if (journal == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the job journal");
    pthread_mutex_init(&journal->lock, NULL);
    pthread_cond_init(&journal->asked, NULL);
    journal->last = &journal->first;
    journal->reports_last = &journal->reports;
    journal->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (journal->event < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot create an eventfd for the job journal");
    else if ((size_t)snprintf(journal->path, sizeof(journal->path), "%s/jobs.db", directory) >=
             sizeof(journal->path))
        status = gp_fail(err, GP_ELIMIT, "the state directory's path is too long");
    if (status == GP_OK)
        status = open_database(journal, err);
    if (status != GP_OK) {
        gp_journal_close(journal);
        return status;
    }
    *out = journal;
    return GP_OK;
}

/* ---- rows ---- */

static void column_text(sqlite3_stmt *statement, int column, char *out, size_t bytes)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    snprintf(out, bytes, "%s", text != NULL ? (const char *)text : "");
}

static bool column_bytes16(sqlite3_stmt *statement, int column, uint8_t out[16])
{
    const void *bytes = sqlite3_column_blob(statement, column);

    if (bytes == NULL || sqlite3_column_bytes(statement, column) != 16)
        return false;
    memcpy(out, bytes, 16);
    return true;
}

static bool read_row(sqlite3_stmt *statement, gp_jobs_job *job)
{
    int64_t state = sqlite3_column_int64(statement, 6), ended = sqlite3_column_int64(statement, 15),
            kind = sqlite3_column_int64(statement, 19);

    memset(job, 0, sizeof(*job));
    job->id = (uint64_t)sqlite3_column_int64(statement, 0);
    job->seq = (uint64_t)sqlite3_column_int64(statement, 2);
    column_text(statement, 3, job->name, sizeof(job->name));
    column_text(statement, 4, job->command, sizeof(job->command));
    job->priority = sqlite3_column_int(statement, 5);
    job->attempts = (uint32_t)sqlite3_column_int64(statement, 7);
    job->cancel = sqlite3_column_int(statement, 8) != 0;
    job->pid = sqlite3_column_int(statement, 9);
    job->start_time = (uint64_t)sqlite3_column_int64(statement, 10);
    job->submitted_ms = sqlite3_column_int64(statement, 12);
    job->started_ms = sqlite3_column_int64(statement, 13);
    job->ended_ms = sqlite3_column_int64(statement, 14);
    job->number = sqlite3_column_int(statement, 16);
    job->workers = (uint32_t)sqlite3_column_int64(statement, 17);
    column_text(statement, 18, job->reason, sizeof(job->reason));
    if (state <= GP_JOBS_NONE || state >= GP_JOBS_STATES || ended < GP_JOBS_EXIT_NONE ||
        ended > GP_JOBS_EXIT_UNKNOWN || kind < GP_JOBS_ORDINARY || kind >= GP_JOBS_KINDS)
        return false;
    job->kind = (gp_jobs_kind)kind;
    job->state = (gp_jobs_state)state;
    job->exit = (gp_jobs_exit)ended;
    return column_bytes16(statement, 1, job->submitter) && column_bytes16(statement, 11, job->boot);
}

gp_status gp_journal_load(gp_journal *journal,
                          gp_status (*each)(void *context, const gp_jobs_job *row, gp_error *err),
                          void *context, uint64_t *next_id, gp_error *err)
{
    sqlite3_stmt *statement = NULL;
    int64_t largest = 0;
    gp_status status = GP_OK;
    int code = sqlite3_prepare_v2(journal->database, "SELECT " ROW_COLUMNS " FROM jobs ORDER BY id", -1,
                                  &statement, NULL);

    while (status == GP_OK && code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        gp_jobs_job row;

        code = SQLITE_OK;
        status = read_row(statement, &row)
                     ? each(context, &row, err)
                     : gp_fail(err, GP_ECORRUPT, "malformed row of job %" PRIu64, row.id);
    }
    if (status == GP_ECORRUPT)
        gp_error_prefix(err, "the job journal %s is damaged; move it away, then run gradpool down and up",
                        journal->path);
    if (status == GP_OK && code != SQLITE_DONE)
        status = database_fail(journal, code, err);
    sqlite3_finalize(statement);
    if (status == GP_OK)
        status = read_number(journal, "SELECT seq FROM sqlite_sequence WHERE name='jobs'", &largest, err);
    if (status == GP_OK)
        *next_id = (uint64_t)largest + 1;
    return status;
}

/* ---- writer thread ---- */

/* Tell the thread that opened the journal to call gp_journal_next(). */
static void wake(gp_journal *journal)
{
    (void)!write(journal->event, &(uint64_t){ 1 }, sizeof(uint64_t));
}

static int apply(gp_journal *journal, const operation *op)
{
    sqlite3_stmt *statement = journal->statements[op->kind];
    const gp_jobs_job *job = &op->job;

    sqlite3_bind_int64(statement, 1, (int64_t)job->id);
    if (op->kind != DELETE) {
        sqlite3_bind_blob(statement, 2, job->submitter, sizeof(job->submitter), SQLITE_STATIC);
        sqlite3_bind_int64(statement, 3, (int64_t)job->seq);
        sqlite3_bind_text(statement, 4, job->name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 5, job->command, -1, SQLITE_STATIC);
        sqlite3_bind_int(statement, 6, job->priority);
        /* A job at the gate is stored as running, see jobs.h. */
        sqlite3_bind_int(statement, 7, job->state == GP_JOBS_STARTING ? GP_JOBS_RUNNING : job->state);
        sqlite3_bind_int64(statement, 8, job->attempts);
        sqlite3_bind_int(statement, 9, job->cancel);
        sqlite3_bind_int(statement, 10, job->pid);
        sqlite3_bind_int64(statement, 11, (int64_t)job->start_time);
        sqlite3_bind_blob(statement, 12, job->boot, sizeof(job->boot), SQLITE_STATIC);
        sqlite3_bind_int64(statement, 13, job->submitted_ms);
        sqlite3_bind_int64(statement, 14, job->started_ms);
        sqlite3_bind_int64(statement, 15, job->ended_ms);
        sqlite3_bind_int(statement, 16, job->exit);
        sqlite3_bind_int(statement, 17, job->number);
        sqlite3_bind_int64(statement, 18, job->workers);
        sqlite3_bind_text(statement, 19, job->reason, -1, SQLITE_STATIC);
    }
    if (op->kind == INSERT) {
        sqlite3_bind_int(statement, 20, job->kind);
        sqlite3_bind_blob64(statement, 21, op->words.words, op->words.words_bytes, SQLITE_STATIC);
        sqlite3_bind_blob64(statement, 22, op->words.environment, op->words.environment_bytes, SQLITE_STATIC);
        sqlite3_bind_text(statement, 23, op->words.directory, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 24, op->words.umask);
    }
    int code = sqlite3_step(statement), reset = sqlite3_reset(statement);

    sqlite3_clear_bindings(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code == SQLITE_ROW ? SQLITE_OK : reset != 0 ? reset : code;
}

/* Copy bytes and end them with NUL. from: NULL only if bytes is 0. NULL: out of memory. */
static char *copy_bytes(const void *from, size_t bytes)
{
    char *copy = gp_calloc(bytes + 1, 1);

    if (copy != NULL && bytes > 0)
        memcpy(copy, from, bytes);
    return copy;
}

static char *copy_column(sqlite3_stmt *statement, int column, size_t *bytes)
{
    const void *data = sqlite3_column_blob(statement, column);

    *bytes = (size_t)sqlite3_column_bytes(statement, column);
    return copy_bytes(data, *bytes);
}

/* Read a job's command and push a report: the words, or why they are missing. Return an SQLite
 * error code. */
static int fetch(gp_journal *journal, operation *op)
{
    sqlite3_stmt *statement = journal->statements[FETCH];
    report *made = op->reply;
    gp_journal_text *words = &made->body.words;
    size_t bytes;
    int code;

    sqlite3_bind_int64(statement, 1, (int64_t)op->job.id);
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        words->words = copy_column(statement, 0, &words->words_bytes);
        words->environment = copy_column(statement, 1, &words->environment_bytes);
        words->directory = copy_column(statement, 2, &bytes);
        words->umask = (uint32_t)sqlite3_column_int64(statement, 3);
    }
    sqlite3_reset(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE && code != SQLITE_NOMEM && code != SQLITE_IOERR_NOMEM)
        return code;
    made->body.job = op->job.id;
    made->body.attempt = op->attempt;
    made->body.kind = GP_JOURNAL_FETCHED;
    if (words->words == NULL || words->environment == NULL || words->directory == NULL) {
        gp_journal_text_deinit(words);
        made->body.kind = GP_JOURNAL_UNFETCHED;
        gp_fail(&made->body.error, code != SQLITE_DONE ? GP_ENOMEM : GP_ENOENT,
                code != SQLITE_DONE ? "no memory for the command of the job"
                                    : "the command of the job is not in the journal");
    }
    op->reply = NULL;
    pthread_mutex_lock(&journal->lock);
    *journal->reports_last = made;
    journal->reports_last = &made->next;
    pthread_mutex_unlock(&journal->lock);
    wake(journal);
    return SQLITE_OK;
}

static void persisted(gp_journal *journal, uint64_t number, uint64_t rows)
{
    pthread_mutex_lock(&journal->lock);
    journal->persisted = (gp_journal_report){ .kind = GP_JOURNAL_PERSISTED, .number = number };
    journal->stats.commits++;
    journal->stats.rows += rows;
    pthread_mutex_unlock(&journal->lock);
    wake(journal);
}

static void free_operations(operation *op)
{
    while (op != NULL) {
        operation *next = op->next;

        gp_journal_text_deinit(&op->words);
        gp_free(op->folder);
        gp_free(op->reply);
        gp_free(op);
        op = next;
    }
}

/* Remove the folders of deleted jobs, then apply a batch of operations in one commit. In the other
 * order, a crash would leave a folder without a row, which would remain. In this order it leaves a
 * row, which is deleted again. */
static void write_batch(gp_journal *journal, operation *batch)
{
    uint64_t number = 0, rows = 0;
    int code = SQLITE_OK;

    /* outside the transaction, which SQLite would roll back if it has no memory for the read */
    for (operation *op = batch; op != NULL && code == SQLITE_OK; op = op->next)
        if (op->kind == FETCH)
            code = fetch(journal, op);
    for (const operation *op = batch; op != NULL && code == SQLITE_OK; op = op->next) {
        if (op->folder != NULL)
            gp_directory_remove(op->folder);
    }
    for (const operation *op = batch; op != NULL && code == SQLITE_OK; op = op->next) {
        if (op->kind == FETCH)
            continue;
        if (rows++ == 0)
            code = sqlite3_exec(journal->database, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        if (code == SQLITE_OK)
            code = apply(journal, op);
        number = op->number;
    }
    if (code == SQLITE_OK && rows > 0) {
        gp_fault_point("journal-write");
        code = sqlite3_exec(journal->database, "COMMIT", NULL, NULL, NULL);
        gp_fault_point("journal-written");
    }
    if (code != SQLITE_OK) { /* log the error and end the journal */
        gp_error error;

        database_fail(journal, code, &error);
        gp_log(GP_LOG_ERROR, "journal-failed", "%s", error.message);
        sqlite3_exec(journal->database, "ROLLBACK", NULL, NULL, NULL);
        /* Keep the files as they are: closing must not copy the log into the database. */
        sqlite3_db_config(journal->database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        pthread_mutex_lock(&journal->lock);
        journal->failed = true;
        journal->failure = error;
        pthread_mutex_unlock(&journal->lock);
        wake(journal);
        return;
    }
    if (rows > 0)
        persisted(journal, number, rows);
}

static void *serve(void *context)
{
    gp_journal *journal = context;

    pthread_mutex_lock(&journal->lock);
    for (;;) {
        while (journal->first == NULL && !journal->closing)
            pthread_cond_wait(&journal->asked, &journal->lock);
        if (journal->first == NULL)
            break;
        /* Take up to BATCH_MAX operations from the queue. */
        operation *batch = journal->first, **end = &journal->first;

        for (int i = 0; i < BATCH_MAX && *end != NULL; i++) {
            journal->waiting_bytes -= (*end)->bytes;
            end = &(*end)->next;
        }
        bool failed = journal->failed;

        journal->first = *end;
        if (*end == NULL)
            journal->last = &journal->first;
        *end = NULL;
        pthread_mutex_unlock(&journal->lock);
        if (!failed)
            write_batch(journal, batch);
        free_operations(batch);
        pthread_mutex_lock(&journal->lock);
    }
    pthread_mutex_unlock(&journal->lock);
    return NULL;
}

gp_status gp_journal_start(gp_journal *journal, gp_error *err)
{
    errno = gp_thread_start(&journal->thread, "gp-journal", 0, serve, journal);
    if (errno != 0)
        return gp_fail_errno(err, GP_EIO, "cannot start the thread for the job journal");
    journal->started = true;
    return GP_OK;
}

void gp_journal_close(gp_journal *journal)
{
    if (journal == NULL)
        return;
    if (journal->started) {
        pthread_mutex_lock(&journal->lock);
        journal->closing = true;
        pthread_cond_signal(&journal->asked);
        pthread_mutex_unlock(&journal->lock);
        pthread_join(journal->thread, NULL);
    }
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(journal->statements[i]);
    sqlite3_close(journal->database);
    while (journal->reports != NULL) {
        report *next = journal->reports->next;

        gp_journal_text_deinit(&journal->reports->body.words);
        gp_free(journal->reports);
        journal->reports = next;
    }
    free_operations(journal->first);
    if (journal->event >= 0)
        close(journal->event);
    pthread_mutex_destroy(&journal->lock);
    pthread_cond_destroy(&journal->asked);
    gp_free(journal);
}

/* ---- queueing operations ---- */

/* Queue an operation and wake the writer thread. op NULL: out of memory. */
static gp_status ask(gp_journal *journal, operation *op, gp_error *err)
{
    if (op == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the job journal");
    op->bytes = sizeof(*op) + op->words.words_bytes + op->words.environment_bytes;
    pthread_mutex_lock(&journal->lock);
    *journal->last = op;
    journal->last = &op->next;
    journal->waiting_bytes += op->bytes;
    pthread_cond_signal(&journal->asked);
    pthread_mutex_unlock(&journal->lock);
    return GP_OK;
}

static operation *new_operation(operation_kind kind, uint64_t number, uint64_t job)
{
    operation *op = gp_calloc(1, sizeof(*op));

    if (op == NULL)
        return NULL;
    op->kind = kind;
    op->number = number;
    op->job.id = job;
    return op;
}

gp_status gp_journal_insert(gp_journal *journal, uint64_t number, const gp_jobs_job *job,
                            const gp_journal_text *words, gp_error *err)
{
    operation *op = new_operation(INSERT, number, job->id);

    if (op == NULL)
        return ask(journal, op, err);
    op->job = *job;
    op->words = (gp_journal_text){ .words = copy_bytes(words->words, words->words_bytes),
                                   .environment = copy_bytes(words->environment, words->environment_bytes),
                                   .directory = gp_strdup(words->directory),
                                   .words_bytes = words->words_bytes,
                                   .environment_bytes = words->environment_bytes,
                                   .umask = words->umask };
    if (op->words.words == NULL || op->words.environment == NULL || op->words.directory == NULL) {
        free_operations(op);
        op = NULL;
    }
    return ask(journal, op, err);
}

gp_status gp_journal_update(gp_journal *journal, uint64_t number, const gp_jobs_job *job, gp_error *err)
{
    operation *op = new_operation(UPDATE, number, job->id);

    if (op != NULL)
        op->job = *job;
    return ask(journal, op, err);
}

gp_status gp_journal_delete(gp_journal *journal, uint64_t number, uint64_t job, const char *folder,
                            gp_error *err)
{
    operation *op = new_operation(DELETE, number, job);

    if (op != NULL && folder != NULL)
        op->folder = gp_strdup(folder); /* out of memory: the folder remains, which does no harm */
    return ask(journal, op, err);
}

gp_status gp_journal_fetch(gp_journal *journal, uint64_t job, uint32_t attempt, gp_error *err)
{
    operation *op = new_operation(FETCH, 0, job);

    if (op != NULL) {
        op->attempt = attempt;
        op->reply = gp_calloc(1, sizeof(*op->reply));
    }
    if (op != NULL && op->reply == NULL) {
        free_operations(op);
        op = NULL;
    }
    return ask(journal, op, err);
}

bool gp_journal_full(gp_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    bool full = journal->waiting_bytes >= waiting_bytes_max;

    pthread_mutex_unlock(&journal->lock);
    return full;
}

/* ---- reports ---- */

int gp_journal_fd(const gp_journal *journal)
{
    return journal->event;
}

void gp_journal_next(gp_journal *journal, gp_journal_report *out)
{
    report *first;
    uint64_t ignored;

    *out = (gp_journal_report){ .kind = GP_JOURNAL_NOTHING };
    pthread_mutex_lock(&journal->lock);
    first = journal->reports;
    if (journal->persisted.kind != GP_JOURNAL_NOTHING) { /* before rows that were fetched later */
        *out = journal->persisted;
        journal->persisted.kind = GP_JOURNAL_NOTHING;
    } else if (first != NULL) {
        *out = first->body;
        journal->reports = first->next;
        if (journal->reports == NULL)
            journal->reports_last = &journal->reports;
        gp_free(first);
    } else if (journal->failed && !journal->failure_reported) {
        journal->failure_reported = true;
        out->kind = GP_JOURNAL_FAILED;
        out->error = journal->failure;
    } else { /* under the lock: a later push wakes the reader again */
        (void)!read(journal->event, &ignored, sizeof(ignored));
    }
    pthread_mutex_unlock(&journal->lock);
}

gp_journal_stats gp_journal_get_stats(gp_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    gp_journal_stats stats = journal->stats;

    pthread_mutex_unlock(&journal->lock);
    return stats;
}
