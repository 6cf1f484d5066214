/* Test the journal on a real disk, and on a disk that fails at the n-th write or fsync. */
#include "scheduler/jobs/journal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

enum { TIMEOUT_MS = 300000 };

static char directory[64];
static gp_journal *journal;
static gp_error err;

/* ---- failing disk: an SQLite VFS that wraps the default one ---- */

static struct {
    sqlite3_vfs *real;
    int countdown; /* writes and syncs until the disk fails permanently; 0: no failure */
    int calls;
} disk;

typedef struct faulty_file {
    sqlite3_file base;
    sqlite3_file *real;
} faulty_file;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((faulty_file *)(void *)file)->real;
}

static bool disk_fails(void)
{
    disk.calls++;
    if (disk.countdown == 0)
        return false;
    if (disk.countdown > 1) {
        disk.countdown--;
        return false;
    }
    return true;
}

#define FORWARD(name, parameters, arguments)                                                                 \
    static int faulty_##name parameters                                                                      \
    {                                                                                                        \
        sqlite3_file *real = real_of(file);                                                                  \
        return real->pMethods->x##name arguments;                                                            \
    }

FORWARD(Close, (sqlite3_file * file), (real))
FORWARD(Read, (sqlite3_file * file, void *to, int bytes, sqlite3_int64 at), (real, to, bytes, at))
FORWARD(Truncate, (sqlite3_file * file, sqlite3_int64 bytes), (real, bytes))
FORWARD(FileSize, (sqlite3_file * file, sqlite3_int64 *bytes), (real, bytes))
FORWARD(Lock, (sqlite3_file * file, int level), (real, level))
FORWARD(Unlock, (sqlite3_file * file, int level), (real, level))
FORWARD(CheckReservedLock, (sqlite3_file * file, int *out), (real, out))
FORWARD(FileControl, (sqlite3_file * file, int op, void *argument), (real, op, argument))
FORWARD(SectorSize, (sqlite3_file * file), (real))
FORWARD(DeviceCharacteristics, (sqlite3_file * file), (real))

static int faulty_Write(sqlite3_file *file, const void *from, int bytes, sqlite3_int64 at)
{
    if (disk_fails())
        return SQLITE_IOERR_WRITE;
    return real_of(file)->pMethods->xWrite(real_of(file), from, bytes, at);
}

static int faulty_Sync(sqlite3_file *file, int flags)
{
    if (disk_fails())
        return SQLITE_IOERR_FSYNC;
    return real_of(file)->pMethods->xSync(real_of(file), flags);
}

/* Version 1 has no shared memory methods: the journal must not need them. */
static const sqlite3_io_methods faulty_methods = { 1,
                                                   faulty_Close,
                                                   faulty_Read,
                                                   faulty_Write,
                                                   faulty_Truncate,
                                                   faulty_Sync,
                                                   faulty_FileSize,
                                                   faulty_Lock,
                                                   faulty_Unlock,
                                                   faulty_CheckReservedLock,
                                                   faulty_FileControl,
                                                   faulty_SectorSize,
                                                   faulty_DeviceCharacteristics,
                                                   NULL,
                                                   NULL,
                                                   NULL,
                                                   NULL,
                                                   NULL,
                                                   NULL };

static int faulty_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    faulty_file *faulty = (faulty_file *)(void *)file;
    int code;

    (void)vfs;
    faulty->real = (sqlite3_file *)(void *)(faulty + 1);
    code = disk.real->xOpen(disk.real, name, faulty->real, flags, out);
    faulty->base.pMethods = faulty->real->pMethods != NULL ? &faulty_methods : NULL;
    return code;
}

static void disk_install(void)
{
    static sqlite3_vfs vfs;

    if (disk.real != NULL)
        return;
    disk.real = sqlite3_vfs_find(NULL);
    vfs = *disk.real;
    vfs.zName = "faulty";
    vfs.pNext = NULL;
    vfs.szOsFile = (int)sizeof(faulty_file) + disk.real->szOsFile;
    vfs.xOpen = faulty_open;
    sqlite3_vfs_register(&vfs, 1);
}

/* ---- fixture ---- */

static void stage_begin(void)
{
    disk_install();
    disk.countdown = 0;
    snprintf(directory, sizeof(directory), "/tmp/gp-journal-XXXXXX");
    if (leftovers_make(directory) == NULL)
        abort();
}

TEARDOWN()
{
    disk.countdown = 0;
    gp_journal_close(journal);
    journal = NULL;
    leftovers_clear(directory);
}

/* ---- contents ---- */

static gp_jobs_job rows[300];
static uint32_t row_count;
static uint64_t next_id;

static gp_status take_row(void *context, const gp_jobs_job *row, gp_error *error)
{
    (void)context;
    (void)error;
    if (row_count < sizeof(rows) / sizeof(rows[0]))
        rows[row_count++] = *row;
    return GP_OK;
}

static gp_status reopen(void)
{
    gp_status status;

    gp_journal_close(journal);
    journal = NULL;
    row_count = 0;
    status = gp_journal_open(&journal, directory, &err);
    if (status == GP_OK)
        status = gp_journal_load(journal, take_row, NULL, &next_id, &err);
    if (status == GP_OK)
        status = gp_journal_start(journal, &err);
    return status;
}

static gp_jobs_job job_of(uint64_t id)
{
    gp_jobs_job job = { .id = id, .seq = id, .state = GP_JOBS_QUEUED, .priority = -3, .submitted_ms = 5 };

    memset(job.submitter, 0xab, sizeof(job.submitter));
    snprintf(job.name, sizeof(job.name), "job %llu \"é\"", (unsigned long long)id);
    snprintf(job.command, sizeof(job.command), "train --network lenet");
    return job;
}

static char text_words[] = "train\0--network\0lenet", text_environment[] = "A=1\0B=2",
            text_directory[] = "/tmp";
static const gp_journal_text words = { .words = text_words,
                                       .words_bytes = sizeof(text_words),
                                       .environment = text_environment,
                                       .environment_bytes = sizeof(text_environment),
                                       .directory = text_directory,
                                       .umask = 027 };

/* Wait for the next report and return it. */
static gp_journal_report await_report(void)
{
    gp_journal_report report = { .kind = GP_JOURNAL_NOTHING };

    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end && report.kind == GP_JOURNAL_NOTHING;) {
        struct pollfd fd = { .fd = gp_journal_fd(journal), .events = POLLIN };

        poll(&fd, 1, 1000);
        gp_journal_next(journal, &report);
    }
    return report;
}

static bool await_persisted(uint64_t number)
{
    for (;;) {
        gp_journal_report report = await_report();

        if (report.kind != GP_JOURNAL_PERSISTED)
            return false;
        if (report.number >= number)
            return report.number == number;
    }
}

TEST(rows_are_read_back_unchanged)
{
    gp_jobs_job job = job_of(1);

    job.kind = GP_JOBS_TRIAL;
    stage_begin();
    REQUIRE_OK(reopen(), err);
    CHECK_INT(0, row_count);
    CHECK_INT(1, next_id);
    REQUIRE_OK(gp_journal_insert(journal, 1, &job, &words, &err), err);
    CHECK(await_persisted(1));
    job.state = GP_JOBS_STARTING; /* at the gate: the row says running */
    job.attempts = 2;
    job.pid = 4711;
    job.start_time = 0xfedcba9876543210ull;
    memset(job.boot, 0x5a, sizeof(job.boot));
    job.exit = GP_JOBS_EXIT_SIGNAL;
    job.number = 11;
    job.started_ms = 1700000000123ll;
    job.cancel = true;
    job.workers = 2;
    snprintf(job.reason, sizeof(job.reason), "because 'it' was so");
    REQUIRE_OK(gp_journal_update(journal, 2, &job, &err), err);
    CHECK(await_persisted(2));
    REQUIRE_OK(reopen(), err);
    REQUIRE(row_count == 1);
    CHECK_INT(GP_JOBS_TRIAL, rows[0].kind);
    CHECK_INT(2, next_id);
    CHECK_INT(GP_JOBS_RUNNING, rows[0].state);
    job.state = GP_JOBS_RUNNING;
    CHECK(memcmp(&job, &rows[0], sizeof(job)) == 0);
}

TEST(job_commands_are_read_back_unchanged)
{
    gp_jobs_job job = job_of(3);
    gp_journal_report report;

    stage_begin();
    REQUIRE_OK(reopen(), err);
    REQUIRE_OK(gp_journal_insert(journal, 1, &job, &words, &err), err);
    CHECK(await_persisted(1));
    REQUIRE_OK(gp_journal_fetch(journal, 3, 2, &err), err);
    report = await_report();
    REQUIRE(report.kind == GP_JOURNAL_FETCHED);
    CHECK_INT(3, report.job);
    CHECK_INT(2, report.attempt);
    CHECK_INT(sizeof(text_words), report.words.words_bytes);
    CHECK(memcmp(report.words.words, text_words, sizeof(text_words)) == 0);
    CHECK(memcmp(report.words.environment, text_environment, sizeof(text_environment)) == 0);
    CHECK_TEXT("/tmp", report.words.directory);
    CHECK_INT(027, report.words.umask);
    gp_journal_text_deinit(&report.words);
    REQUIRE_OK(gp_journal_fetch(journal, 4, 1, &err), err);
    report = await_report();
    CHECK_INT(GP_JOURNAL_UNFETCHED, report.kind);
    CHECK_CONTAINS(report.error.message, "not in the journal");
}

TEST(lack_of_memory_for_a_command_does_not_end_the_journal)
{
    gp_jobs_job job = job_of(1);

    stage_begin();
    REQUIRE_OK(reopen(), err);
    REQUIRE_OK(gp_journal_insert(journal, 1, &job, &words, &err), err);
    CHECK(await_persisted(1));
    for (uint64_t n = 1; n <= 6; n++) {
        gp_journal_report report = { .kind = GP_JOURNAL_UNFETCHED, .error.code = GP_ENOMEM };

        gp_alloc_fail_nth(n);
        if (gp_journal_fetch(journal, 1, 1, &err) == GP_OK)
            report = await_report();
        gp_alloc_fail_nth(0);
        CHECK_INT(n <= 5 ? GP_JOURNAL_UNFETCHED : GP_JOURNAL_FETCHED, report.kind);
        if (report.kind == GP_JOURNAL_UNFETCHED)
            CHECK_STATUS(GP_ENOMEM, report.error.code);
        gp_journal_text_deinit(&report.words);
    }
    CHECK_STATUS(GP_OK, gp_journal_update(journal, 2, &job, &err));
    CHECK(await_persisted(2));
}

TEST(ids_are_not_reused_after_all_rows_are_deleted)
{
    gp_jobs_job job = job_of(41);
    char folder[100];
    struct stat facts;

    stage_begin();
    REQUIRE_OK(reopen(), err);
    snprintf(folder, sizeof(folder), "%s/41", directory);
    mkdir(folder, 0700);
    REQUIRE_OK(gp_journal_insert(journal, 1, &job, &words, &err), err);
    REQUIRE_OK(gp_journal_delete(journal, 2, 41, folder, &err), err);
    REQUIRE_OK(reopen(), err);
    CHECK_INT(0, row_count);
    CHECK_INT(42, next_id);
    CHECK(stat(folder, &facts) != 0);
}

TEST(folder_is_removed_before_the_row)
{
    gp_jobs_job job = job_of(1);
    char folder[100], path[120];
    struct stat facts;

    stage_begin();
    REQUIRE_OK(reopen(), err);
    snprintf(folder, sizeof(folder), "%s/1", directory);
    mkdir(folder, 0700);
    for (int i = 0; i < 500; i++) {
        snprintf(path, sizeof(path), "%s/%d", folder, i);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    REQUIRE_OK(gp_journal_insert(journal, 1, &job, &words, &err), err);
    REQUIRE_OK(gp_journal_delete(journal, 2, 1, folder, &err), err);
    CHECK(await_persisted(2));
    CHECK(stat(folder, &facts) != 0);
}

TEST(pending_operations_share_a_commit)
{
    stage_begin();
    REQUIRE_OK(reopen(), err);
    for (uint64_t id = 1; id <= 2000; id++) {
        gp_jobs_job job = job_of(id);

        REQUIRE_OK(gp_journal_insert(journal, id, &job, &words, &err), err);
    }
    for (uint64_t number = 0; number < 2000;) {
        gp_journal_report report = await_report();

        REQUIRE(report.kind == GP_JOURNAL_PERSISTED);
        CHECK(report.number > number);
        number = report.number;
    }
    gp_journal_stats stats = gp_journal_get_stats(journal);

    CHECK_INT(2000, stats.rows);
    CHECK(stats.commits < 500);
}

TEST(log_shrinks_after_a_burst_of_large_commands)
{
    static char large[64 << 10];
    const gp_journal_text burst = { .words = large,
                                    .words_bytes = sizeof(large),
                                    .environment = text_environment,
                                    .environment_bytes = sizeof(text_environment),
                                    .directory = text_directory };
    char path[100];
    struct stat facts = { 0 };
    uint64_t number = 0;

    stage_begin();
    REQUIRE_OK(reopen(), err);
    for (uint64_t id = 1; id <= 200; id++) { /* 13 MB */
        gp_jobs_job job = job_of(id);

        REQUIRE_OK(gp_journal_insert(journal, ++number, &job, &burst, &err), err);
    }
    while (await_report().number < number)
        ;
    for (uint32_t i = 1; i <= 2; i++) {
        gp_jobs_job job = job_of(1);

        job.attempts = i;
        REQUIRE_OK(gp_journal_update(journal, ++number, &job, &err), err);
        CHECK(await_persisted(number));
    }
    snprintf(path, sizeof(path), "%s/jobs.db-wal", directory);
    CHECK(stat(path, &facts) == 0);
    CHECK(facts.st_size > 0 && facts.st_size <= 4 << 20);
}

/* The child is forked before reopen() starts the writer thread. AddressSanitizer of gcc 12 does not
 * reset its allocator in a child: a lock that another thread held at fork() stays locked. */
TEST(second_journal_on_the_same_file_is_refused)
{
    gp_journal *second = NULL;
    int ends[2], code = -1;
    char opened = 0;

    stage_begin();
    if (pipe(ends) != 0)
        abort();
    fflush(stdout);
    pid_t child = fork(); /* locks work between processes only */

    if (child == 0) {
        if (read(ends[0], &opened, 1) != 1)
            _exit(2);
        _exit(gp_journal_open(&second, directory, &err) == GP_EBUSY &&
                      strstr(err.message, "GRADPOOL_STATE_DIR") != NULL
                  ? 0
                  : 1);
    }
    CHECK_STATUS(GP_OK, reopen());
    CHECK(write(ends[1], &opened, 1) == 1);
    close(ends[0]);
    close(ends[1]);
    waitpid(child, &code, 0);
    CHECK_INT(0, code);
}

static void write_file(const char *text)
{
    char path[100];

    snprintf(path, sizeof(path), "%s/jobs.db", directory);
    FILE *file = fopen(path, "w");

    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
}

static void alter(const char *sql)
{
    char path[100];
    sqlite3 *database;

    gp_journal_close(journal);
    journal = NULL;
    snprintf(path, sizeof(path), "%s/jobs.db", directory);
    if (sqlite3_open(path, &database) != SQLITE_OK ||
        sqlite3_exec(database, "PRAGMA locking_mode=EXCLUSIVE", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(database, sql, NULL, NULL, NULL) != SQLITE_OK)
        abort();
    sqlite3_close(database);
}

TEST(foreign_files_are_named_and_kept)
{
    char path[100], text[40] = "";

    stage_begin();
    write_file("this is a letter to my aunt, and no database at all\n");
    CHECK_STATUS(GP_ECORRUPT, reopen());
    snprintf(path, sizeof(path), "%s/jobs.db", directory);
    CHECK_CONTAINS(err.message, path);
    CHECK_CONTAINS(err.message, "move the file away");
    FILE *file = fopen(path, "r");

    REQUIRE(file != NULL);
    CHECK(fgets(text, sizeof(text), file) != NULL);
    fclose(file);
    CHECK_CONTAINS(text, "letter to my aunt");
}

TEST(journals_of_other_versions_or_programs_are_refused)
{
    stage_begin();
    REQUIRE_OK(reopen(), err);
    alter("PRAGMA user_version=3");
    CHECK_STATUS(GP_EVERSION, reopen());
    CHECK_CONTAINS(err.message, "format 3");
    alter("PRAGMA application_id=1");
    CHECK_STATUS(GP_EVERSION, reopen());
    CHECK_CONTAINS(err.message, "another program");
}

/* Copy journal-1.db, which a scheduler with format 1 wrote, into the directory. */
static void copy_old_journal(void)
{
    char path[100], source[1000], bytes[1 << 15];
    FILE *from, *to;
    size_t count;

    snprintf(source, sizeof(source), "%s/tests/scheduler/jobs/journal-1.db", getenv("GP_SOURCE_DIR"));
    snprintf(path, sizeof(path), "%s/jobs.db", directory);
    from = fopen(source, "r");
    to = fopen(path, "w");
    if (from == NULL || to == NULL)
        abort();
    count = fread(bytes, 1, sizeof(bytes), from);
    if (count == 0 || fwrite(bytes, 1, count, to) != count || fclose(to) != 0)
        abort();
    fclose(from);
}

/* Check the jobs of journal-1.db. */
static void check_old_jobs(void)
{
    static const gp_jobs_state states[] = { GP_JOBS_QUEUED, GP_JOBS_RUNNING, GP_JOBS_STOPPING, GP_JOBS_DONE,
                                            GP_JOBS_FAILED };

    REQUIRE(row_count >= 5);
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_INT(i + 1, rows[i].id);
        CHECK_INT(states[i], rows[i].state);
        CHECK_INT(GP_JOBS_ORDINARY, rows[i].kind);
        CHECK_INT(i == 2, rows[i].cancel);
        CHECK_INT(0xab, rows[i].submitter[15]);
        CHECK_TEXT("train --network lenet", rows[i].command);
    }
    CHECK_TEXT("exit code 1", rows[4].reason);
}

TEST(journals_of_format_1_are_upgraded_and_keep_their_jobs)
{
    gp_jobs_job job = job_of(7);
    gp_journal_report report;

    stage_begin();
    copy_old_journal();
    REQUIRE_OK(reopen(), err);
    check_old_jobs();
    CHECK_INT(7, next_id); /* job 6 was deleted */
    job.seq = 70;
    job.kind = GP_JOBS_SWEEP;
    REQUIRE_OK(gp_journal_insert(journal, 1, &job, &words, &err), err);
    CHECK(await_persisted(1));
    REQUIRE_OK(gp_journal_fetch(journal, 2, 1, &err), err);
    report = await_report();
    REQUIRE(report.kind == GP_JOURNAL_FETCHED);
    CHECK_TEXT("/tmp", report.words.directory);
    gp_journal_text_deinit(&report.words);
    REQUIRE_OK(reopen(), err);
    REQUIRE(row_count == 6);
    check_old_jobs();
    CHECK_INT(GP_JOBS_SWEEP, rows[5].kind);
}

/* The upgrade is one transaction: a disk that fails during it leaves format 1 or format 2. */
TEST(interrupted_upgrades_lose_no_job)
{
    int failed = 0;

    for (int countdown = 1; countdown < 40; countdown++) {
        stage_begin();
        copy_old_journal();
        disk.countdown = countdown;
        failed += reopen() != GP_OK;
        gp_journal_close(journal);
        journal = NULL;
        disk.countdown = 0;
        REQUIRE_OK(reopen(), err);
        check_old_jobs();
        gp_journal_close(journal);
        journal = NULL;
        leftovers_clear(directory);
    }
    stage_begin();
    CHECK(failed >= 3);
}

TEST(invalid_rows_are_reported_with_their_id)
{
    gp_jobs_job job = job_of(6);

    stage_begin();
    REQUIRE_OK(reopen(), err);
    REQUIRE_OK(gp_journal_insert(journal, 1, &job, &words, &err), err);
    CHECK(await_persisted(1));
    alter("UPDATE jobs SET state=99");
    CHECK_STATUS(GP_ECORRUPT, reopen());
    CHECK_CONTAINS(err.message, "job 6");
}

/* Let the n-th write or fsync fail while a second job is written. The journal must report the
 * failure once and nothing after it, and the first job, which was acknowledged, must survive. */
static bool fail_at(int n)
{
    gp_jobs_job first = job_of(1), second = job_of(2), third = job_of(3);
    gp_journal_report report;
    bool failed;

    stage_begin();
    CHECK_STATUS(GP_OK, reopen());
    gp_journal_insert(journal, 1, &first, &words, &err);
    CHECK(await_persisted(1));
    disk.countdown = n;
    gp_journal_insert(journal, 2, &second, &words, &err);
    report = await_report();
    failed = report.kind == GP_JOURNAL_FAILED;
    if (failed) {
        CHECK_STATUS(GP_EIO, report.error.code);
        CHECK_CONTAINS(report.error.message, "jobs.db");
        CHECK_CONTAINS(report.error.message, "new jobs are rejected");
        disk.countdown = 0; /* the disk works again, but the journal must not retry */
        gp_journal_insert(journal, 3, &third, &words, &err);
        gp_sleep_ms(2);
        gp_journal_next(journal, &report);
        CHECK_INT(GP_JOURNAL_NOTHING, report.kind);
    } else {
        CHECK_INT(GP_JOURNAL_PERSISTED, report.kind);
    }
    disk.countdown = 0;
    CHECK_STATUS(GP_OK, reopen());
    CHECK(row_count >= (failed ? 1u : 2u) && row_count <= 2);
    CHECK_INT(1, rows[0].id);
    return failed;
}

TEST(disk_failures_lose_no_acknowledged_job)
{
    int n = 1;

    while (n < 100 && fail_at(n) && gp_test_failures == 0)
        n++;
    printf("     %d calls in one commit failed by injection\n", n - 1);
    CHECK(n > 2 && n < 100);
}

TEST(full_disk_is_reported)
{
    gp_jobs_job job = job_of(1);
    gp_journal_report report = { .kind = GP_JOURNAL_NOTHING };
    struct rlimit old, small = { .rlim_cur = 40 << 10 };

    stage_begin();
    REQUIRE_OK(reopen(), err);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    for (uint64_t id = 1; id <= 200 && report.kind != GP_JOURNAL_FAILED; id++) {
        job = job_of(id);
        gp_journal_insert(journal, id, &job, &words, &err);
        report = await_report();
    }
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK_INT(GP_JOURNAL_FAILED, report.kind);
    CHECK_CONTAINS(report.error.message, "jobs.db");
    uint64_t acknowledged = job.id - 1;

    REQUIRE_OK(reopen(), err);
    CHECK(row_count >= acknowledged);
}

/* A child process acknowledges jobs through a pipe and is killed at a random moment. */
TEST(acknowledged_jobs_survive_a_kill)
{
    stage_begin();
    for (int round = 0; round < 10; round++) {
        int ends[2];
        uint64_t acknowledged = 0, number;

        REQUIRE_OK(reopen(), err);
        uint32_t before = row_count;
        uint64_t first = next_id;

        gp_journal_close(journal);
        journal = NULL;
        if (pipe(ends) != 0)
            abort();
        fflush(stdout);
        pid_t child = fork();

        if (child == 0) {
            if (reopen() != GP_OK)
                _exit(1);
            for (uint64_t id = first;; id++) {
                gp_jobs_job job = job_of(id);

                gp_journal_insert(journal, id - first + 1, &job, &words, &err);
                gp_journal_report report = await_report();
                if (report.kind != GP_JOURNAL_PERSISTED || write(ends[1], &report.number, 8) != 8)
                    _exit(1);
            }
        }
        close(ends[1]);
        for (int i = 0; i < 3 + round && read(ends[0], &number, 8) == 8; i++)
            acknowledged = number;
        gp_sleep_ms(round % 3);
        kill(child, SIGKILL);
        while (read(ends[0], &number, 8) == 8)
            acknowledged = number;
        close(ends[0]);
        waitpid(child, NULL, 0);
        REQUIRE_OK(reopen(), err);
        CHECK(acknowledged > 0);
        CHECK(row_count >= before + acknowledged && row_count <= before + acknowledged + 1);
    }
}

TEST(failed_allocations_do_not_leak)
{
    stage_begin();
    CHECK_EVERY_ALLOCATION(gp_journal_open(&journal, directory, &err), {
        gp_journal_close(journal);
        journal = NULL;
    });
}
