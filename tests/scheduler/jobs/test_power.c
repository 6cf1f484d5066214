/* Test power failures after each journal write: all acknowledged jobs must survive, once, and no
 * unknown job may appear.
 *
 * A run of submits, starts, ends and deletions is recorded call by call (disk_log.h). For each
 * point of the run, the test constructs the disk states that a power failure may leave, and opens
 * the journal on each. The result must equal the state after the first n operations, where n is at
 * least the number of acknowledged ones. */
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "scheduler/jobs/journal.h"
#include "tests/common/data/folder.h"
#include "tests/gp_test.h"
#include "tests/scheduler/jobs/disk_log.h"
#include "tests/scheduler/jobs/journal_bugs.h"

int journal_bug;

enum {
    JOBS = 16,
    STEPS_MAX = 64,
    WORDS_BYTES = 9000,   /* a row that spans several pages */
    CROWD_BYTES = 500000, /* eight rows with this size fill the log and cause a checkpoint */
    WHOLE_SUBSETS = 5,    /* up to this many pending writes, all subsets are tried */
    /* up to this many, each write alone, each missing and each prefix; beyond, random subsets */
    SINGLE_SUBSETS = 64,
    DRAWN_SUBSETS = 8,
    STRIDE = 64, /* check every 64th point while the log is large and each disk has megabytes */
    TIMEOUT_MS = 60000,
};

typedef struct row {
    bool there;
    uint64_t id;
    gp_jobs_state state;
    uint32_t attempts;
    char reason[40];
} row;

typedef struct step {
    row rows[JOBS]; /* state after the step, by id */
    uint64_t next_id;
    /* asked: events before the request; acked: events before the acknowledgement, UINT32_MAX: never
     * acknowledged */
    uint32_t asked, acked;
} step;

static step steps[STEPS_MAX]; /* steps[0]: empty journal */
static uint32_t step_count;
static gp_journal *journal;
static gp_error err;
static char seen_path[200]; /* folder for constructed disks */
static uint64_t random_state;

/* ---- scenarios ---- */

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

static gp_jobs_job job_of(uint64_t id, gp_jobs_state state, uint32_t attempts, const char *reason)
{
    gp_jobs_job job = { .id = id, .seq = id, .state = state, .attempts = attempts, .submitted_ms = 5 };

    memset(job.submitter, 0xab, sizeof(job.submitter));
    snprintf(job.name, sizeof(job.name), "job %d", (int)id);
    snprintf(job.command, sizeof(job.command), "train --network lenet");
    snprintf(job.reason, sizeof(job.reason), "%s", reason);
    return job;
}

static step *step_new(void)
{
    if (step_count + 1 == STEPS_MAX)
        abort();
    step *made = &steps[++step_count];

    *made = steps[step_count - 1];
    made->asked = disk_log_count();
    made->acked = UINT32_MAX;
    return made;
}

static void put_large(uint64_t id, gp_jobs_state state, uint32_t attempts, const char *reason,
                      size_t words_bytes)
{
    static char words_text[CROWD_BYTES], environment[] = "A=1", directory[] = "/tmp";
    const gp_journal_text words = { .words = words_text,
                                    .words_bytes = words_bytes,
                                    .environment = environment,
                                    .environment_bytes = sizeof(environment),
                                    .directory = directory };
    gp_jobs_job job = job_of(id, state, attempts, reason);
    step *made = step_new();
    bool is_new = id >= made->next_id;

    memset(words_text, 'w', sizeof(words_text));
    made->rows[id] = (row){ .there = true, .id = id, .state = state, .attempts = attempts };
    snprintf(made->rows[id].reason, sizeof(made->rows[id].reason), "%s", reason);
    if (is_new)
        made->next_id = id + 1;
    gp_status status = is_new ? gp_journal_insert(journal, step_count, &job, &words, &err)
                              : gp_journal_update(journal, step_count, &job, &err);

    if (status != GP_OK)
        GP_TEST_FAIL("%s", err.message);
}

static void put(uint64_t id, gp_jobs_state state, uint32_t attempts, const char *reason)
{
    put_large(id, state, attempts, reason, id % 4 == 0 ? WORDS_BYTES : 20);
}

static void forget(uint64_t id)
{
    step_new()->rows[id].there = false;
    if (gp_journal_delete(journal, step_count, id, NULL, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
}

/* Wait until all requests are acknowledged. The last mark is then their acknowledgement. */
static void acknowledged(void)
{
    uint32_t reported = step_count;

    while (reported > 0 && steps[reported].acked == UINT32_MAX)
        reported--;
    for (int64_t end = gp_now_ms() + TIMEOUT_MS; reported < step_count && gp_now_ms() < end;) {
        struct pollfd fd = { .fd = gp_journal_fd(journal), .events = POLLIN };
        gp_journal_report report;

        poll(&fd, 1, 1000);
        gp_journal_next(journal, &report);
        while (report.kind == GP_JOURNAL_PERSISTED && reported < report.number)
            steps[++reported].acked = disk_log_last_mark();
    }
    if (reported != step_count)
        GP_TEST_FAIL("operation %u of %u was never acknowledged", reported + 1, step_count);
}

static gp_status count_row(void *context, const gp_jobs_job *found, gp_error *error)
{
    (void)found;
    (void)error;
    ++*(uint32_t *)context;
    return GP_OK;
}

static bool begin(void)
{
    uint64_t next_id;
    uint32_t found = 0;

    if (gp_journal_open(&journal, in_folder("disk"), &err) != GP_OK ||
        gp_journal_load(journal, count_row, &found, &next_id, &err) != GP_OK ||
        gp_journal_start(journal, &err) != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return false;
    }
    disk_log_marks(gp_journal_fd(journal));
    return true;
}

static void end(void)
{
    disk_log_marks(-1);
    gp_journal_close(journal);
    journal = NULL;
}

/* Submit jobs one by one and in groups, run, end and delete them, under two schedulers. */
static bool jobs_come_and_go(void)
{
    for (uint64_t id = 1; id <= 3; id++) {
        put(id, GP_JOBS_QUEUED, 0, "");
        acknowledged();
    }
    put(1, GP_JOBS_RUNNING, 1, "");
    acknowledged();
    for (uint64_t id = 4; id <= 6; id++) /* up to three commits */
        put(id, GP_JOBS_QUEUED, 0, "");
    put(2, GP_JOBS_RUNNING, 1, "");
    acknowledged();
    put(1, GP_JOBS_DONE, 1, "");
    acknowledged();
    put(2, GP_JOBS_FAILED, 1, "exit code 3");
    forget(6); /* the largest id, which must not be reused */
    acknowledged();
    end(); /* closing checkpoints and removes the log */
    if (!begin())
        return false;
    put(7, GP_JOBS_QUEUED, 0, "");
    acknowledged();
    put(4, GP_JOBS_RUNNING, 2, "again");
    put(8, GP_JOBS_QUEUED, 0, "");
    acknowledged();
    forget(1);
    acknowledged();
    put(4, GP_JOBS_DONE, 2, "");
    acknowledged();
    end();
    return true;
}

static uint32_t interesting; /* points before this one are skipped */

/* Write enough rows to cause a checkpoint and a restart of the log while the journal is open. */
static bool log_is_full(void)
{
    for (uint64_t id = 1; id <= 7; id++) {
        put_large(id, GP_JOBS_QUEUED, 0, "", CROWD_BYTES);
        acknowledged();
    }
    interesting = disk_log_count();
    for (uint64_t id = 8; id <= 9; id++) {
        put_large(id, GP_JOBS_QUEUED, 0, "", CROWD_BYTES);
        acknowledged();
    }
    put(1, GP_JOBS_RUNNING, 1, ""); /* in the new log, over the old one */
    acknowledged();
    forget(9);
    acknowledged();
    end();
    return true;
}

static bool run_recorded(bool (*run)(void))
{
    memset(steps, 0, sizeof(steps));
    step_count = interesting = 0;
    steps[0].next_id = 1;
    random_state = 7;
    disk_log_watch(in_folder("disk"));
    bool done = begin() && run();

    disk_log_watch(NULL);
    return done && gp_test_failures == 0;
}

/* ---- expected results ---- */

typedef struct found {
    row rows[JOBS];
    bool twice, foreign;
} found;

static gp_status take_row(void *context, const gp_jobs_job *job, gp_error *error)
{
    found *into = context;
    row *at = &into->rows[job->id < JOBS ? job->id : 0];

    (void)error;
    into->foreign = into->foreign || job->id >= JOBS || job->seq != job->id;
    into->twice = into->twice || at->there;
    *at = (row){ .there = true, .id = job->id, .state = job->state, .attempts = job->attempts };
    snprintf(at->reason, sizeof(at->reason), "%.39s", job->reason);
    return GP_OK;
}

static bool step_is(const step *of, const found *disk, uint64_t next_id)
{
    for (uint32_t id = 0; id < JOBS; id++) {
        const row *a = &of->rows[id], *b = &disk->rows[id];

        if (a->there != b->there || (a->there && (a->state != b->state || a->attempts != b->attempts ||
                                                  strcmp(a->reason, b->reason) != 0)))
            return false;
    }
    return of->next_id == next_id;
}

/* Check the journal on the constructed disk. "": correct; otherwise the error. */
static const char *look(uint32_t acked, uint32_t asked)
{
    static char why[400];
    found disk = { .twice = false };
    gp_journal *opened = NULL;
    uint64_t next_id = 0;
    gp_status status = gp_journal_open(&opened, seen_path, &err);

    why[0] = '\0';
    if (status == GP_OK)
        status = gp_journal_load(opened, take_row, &disk, &next_id, &err);
    if (status != GP_OK)
        snprintf(why, sizeof(why), "it cannot be read: %.240s", err.message);
    else if (disk.twice || disk.foreign)
        snprintf(why, sizeof(why), "a job is there %s", disk.twice ? "twice" : "that nobody submitted");
    gp_journal_close(opened);
    for (uint32_t n = asked + 1; why[0] == '\0' && n-- > 0;) {
        if (!step_is(&steps[n], &disk, next_id))
            continue;
        if (n < acked)
            snprintf(why, sizeof(why), "it is as after operation %u, and %u were acknowledged", n, acked);
        return why;
    }
    if (why[0] == '\0')
        snprintf(why, sizeof(why), "what it has never was (%u operations acknowledged, %u asked for)", acked,
                 asked);
    return why;
}

/* ---- disk states ---- */

enum { SUMS = 1 << 16 };

static struct {
    uint64_t sums[SUMS]; /* hashes of disks already checked with the same requirements */
    uint32_t disks, points;
    char why[500]; /* first error */
} tried;

static bool known(uint64_t sum)
{
    for (uint32_t i = (uint32_t)(sum % SUMS);; i = (i + 1) % SUMS) {
        if (tried.sums[i] == sum)
            return true;
        if (tried.sums[i] == 0) {
            tried.sums[i] = sum;
            return false;
        }
    }
}

static void try_image(const disk_image *image, uint32_t point, uint32_t acked, uint32_t asked)
{
    uint64_t sum = disk_log_image(image) ^ ((uint64_t)acked << 32 | (asked + 1));

    if (tried.why[0] != '\0' || known(sum == 0 ? 1 : sum))
        return;
    disk_log_put(seen_path);
    tried.disks++;
    const char *why = look(acked, asked);

    if (why[0] != '\0')
        snprintf(tried.why, sizeof(tried.why), "power fails after event %u, with %u things on their way: %s",
                 point, disk_log_pending(), why);
}

static void try_torn(disk_image *image, uint32_t i, uint32_t point, uint32_t acked, uint32_t asked)
{
    uint32_t sectors = disk_log_sectors(i);

    image->torn = i;
    /* the beginning, the end, and random sectors */
    for (uint32_t n = 0; sectors > 1 && n < 3; n++) {
        image->sectors = n == 0   ? 1
                         : n == 1 ? ~UINT64_C(1)
                                  : (uint64_t)draw(UINT32_MAX / 2) << 32 | draw(UINT32_MAX / 2);
        try_image(image, point, acked, asked);
    }
    image->torn = UINT32_MAX;
}

/* Try subsets of the pending operations: all, none, each alone, each missing, each prefix; and all
 * subsets, or random ones. */
static void try_subsets(uint32_t point, uint32_t acked, uint32_t asked)
{
    uint32_t pending = disk_log_pending(), singles = pending <= SINGLE_SUBSETS ? pending : DRAWN_SUBSETS;
    disk_image image = { .torn = UINT32_MAX };

    for (uint32_t set = 0; pending <= WHOLE_SUBSETS && set < 1u << pending; set++) {
        for (uint32_t i = 0; i < pending; i++)
            image.kept[i] = set >> i & 1;
        try_image(&image, point, acked, asked);
    }
    for (uint32_t n = 0; pending > WHOLE_SUBSETS && n < singles; n++) {
        uint32_t i = pending <= SINGLE_SUBSETS ? n : draw(pending);

        memset(image.kept, 0, pending);
        image.kept[i] = 1;
        try_image(&image, point, acked, asked);
        memset(image.kept, 1, i);
        try_image(&image, point, acked, asked);
        memset(image.kept, 1, pending);
        image.kept[i] = 0;
        try_image(&image, point, acked, asked);
    }
    for (uint32_t n = 0; pending > WHOLE_SUBSETS && n < DRAWN_SUBSETS; n++) {
        for (uint32_t i = 0; i < pending; i++)
            image.kept[i] = (uint8_t)draw(2);
        try_image(&image, point, acked, asked);
    }
    memset(image.kept, 1, pending);
    for (uint32_t n = 0; n < singles; n++)
        try_torn(&image, pending <= SINGLE_SUBSETS ? n : draw(pending), point, acked, asked);
}

/* Try all prefixes of the events. A disk without some writes before a sync is the same for each
 * failure before that sync. So subsets are tried only where most operations are pending: before
 * each sync, and at each acknowledgement. */
static void try_all(void)
{
    uint32_t count = disk_log_count();
    disk_image image = { .torn = UINT32_MAX };

    memset(&tried, 0, sizeof(tried));
    for (uint32_t point = 0; point <= count && tried.why[0] == '\0'; point++) {
        uint32_t acked = 0, asked = 0;

        disk_log_go(point);
        bool subsets =
            point == count || disk_log_is_sync(point) || (point > 0 && disk_log_is_mark(point - 1));

        if (point < interesting || (interesting != 0 && !subsets && point % STRIDE != 0))
            continue;
        for (uint32_t n = 1; n <= step_count; n++) {
            acked = steps[n].acked <= point ? n : acked;
            asked = steps[n].asked <= point ? n : asked;
        }
        tried.points++;
        memset(image.kept, 1, disk_log_pending());
        try_image(&image, point, acked, asked);
        if (disk_log_pending() > 0)
            try_torn(&image, disk_log_pending() - 1, point, acked, asked);
        if (subsets)
            try_subsets(point, acked, asked);
    }
}

/* Run and check a scenario. Return the first error, or "". */
static const char *replay(bool (*run)(void))
{
    folder_make();
    snprintf(seen_path, sizeof(seen_path), "%s", in_folder("seen"));
    tried.why[0] = '\0';
    if (mkdir(in_folder("disk"), 0700) == 0 && mkdir(seen_path, 0700) == 0 && run_recorded(run))
        try_all();
    else
        GP_TEST_FAIL("cannot record the run");
    disk_log_free();
    folder_remove();
    return tried.why;
}

TEST(acknowledged_jobs_survive_a_power_failure_at_any_point)
{
    const char *why = replay(jobs_come_and_go);

    if (why[0] != '\0')
        GP_TEST_FAIL("%s", why);
    printf("     %u operations, %u points, %u disks\n", step_count, tried.points, tried.disks);
    CHECK(tried.points > 100 && tried.disks > 500);
}

TEST(acknowledged_jobs_survive_a_power_failure_during_a_checkpoint)
{
    const char *why = replay(log_is_full);

    if (why[0] != '\0')
        GP_TEST_FAIL("%s", why);
    printf("     %u operations, %u points, %u disks\n", step_count, tried.points, tried.disks);
    CHECK(tried.points > 30 && tried.disks > 150);
}

TEST(power_failures_reveal_every_planted_bug)
{
    static const char *const names[] = { [BUG_NO_SYNC] = "no-sync",
                                         [BUG_RARE_SYNC] = "rare-sync",
                                         [BUG_NO_LOG] = "no-log",
                                         [BUG_EARLY_REPORT] = "early-report" };

    for (int bug = 1; bug < BUG_COUNT; bug++) {
        journal_bug = bug;
        const char *why = replay(jobs_come_and_go);

        journal_bug = BUG_NONE;
        if (why[0] == '\0')
            GP_TEST_FAIL("%s was not found on %u disks", names[bug], tried.disks);
        else
            printf("     %-14s disk %4u: %s\n", names[bug], tried.disks, why);
    }
}
