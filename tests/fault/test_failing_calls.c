/* test_failing_calls.c: the n-th system call fails, n = 1, 2, 3, ..., with every suitable error,
 * until the operation succeeds. Existing data stays intact, one error names the file, and no
 * partial file is left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/system/file.h"
#include "common/base/text/log.h"
#include "common/data/cache/object_cache.h"
#include "common/model/network.h"
#include "scheduler/shell/pool_lock.h"
#include "scheduler/jobs/journal.h"
#include "scheduler/shell/pool_record.h"
#include "tests/fault/failing.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"
#include "tests/common/model/nets.h"
#include "worker/train/checkpoint.h"

enum { NTH_MAX = 60 };

static char folder[64];

static void folder_make(void)
{
    /* tmpfs if possible, where a sync is fast. */
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/gp-calls-XXXXXX" : "/tmp/gp-calls-XXXXXX");
    if (leftovers_make(folder) == NULL)
        abort();
    gp_log_setup("test", (gp_log_level)(GP_LOG_ERROR + 1));
}

static const char *in_folder(const char *name)
{
    static char paths[4][200];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

/* Count the names in the folder that contain `part`. */
static int names_with(const char *part)
{
    DIR *directory = opendir(folder);
    int count = 0;

    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strstr(entry->d_name, part) != NULL;
    closedir(directory);
    return count;
}

/* Failing system call. */
typedef struct strike {
    const char *call, *error;
    int nth;
    bool onward;
    char text[120];
} strike;

/* Run `walk` with each call and error for n = 1, 2, ... until no call fails. Return the number of
 * failures. */
static int walk_calls(bool (*walk)(const strike *s))
{
    static const char *const errors[] = { "ENOSPC", "EIO", "EROFS", "short" };
    int strikes = 0;

    for (int c = 0; failing_calls[c] != NULL; c++)
        for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++)
            for (int onward = 0; onward < 2; onward++) {
                strike s = { .call = failing_calls[c], .error = errors[e], .onward = onward != 0 };

                if (strcmp(errors[e], "short") == 0 && (strcmp(s.call, "write") != 0 || onward))
                    continue;
                for (s.nth = 1; s.nth <= NTH_MAX; s.nth++) {
                    snprintf(s.text, sizeof(s.text), "%s:%d%s:%s:%s", s.call, s.nth, onward ? "+" : "",
                             s.error, folder);
                    bool struck = walk(&s);

                    strikes += struck;
                    if (!struck || gp_test_failures > 0)
                        break;
                }
                CHECK(s.nth <= NTH_MAX);
            }
    return strikes;
}

/* REQUIRE_OK() for a function that walks. */
#define REQUIRE_WALK(call, err)                                                                              \
    do {                                                                                                     \
        gp_status a_ = (call);                                                                               \
        if (a_ != GP_OK) {                                                                                   \
            GP_TEST_FAIL("%s: %s: %s", s->text, #call, (err).message);                                       \
            return false;                                                                                    \
        }                                                                                                    \
    } while (0)

static bool is_short(const strike *s)
{
    return strcmp(s->error, "short") == 0;
}

/* ---- files that replace others ---- */

static bool content_is(const char *path, const char *text)
{
    char got[100] = "";
    FILE *file = fopen(path, "r");

    if (file != NULL) {
        got[fread(got, 1, sizeof(got) - 1, file)] = '\0';
        fclose(file);
    }
    return strcmp(got, text) == 0;
}

static bool walk_file_write(const strike *s)
{
    const char *path = in_folder("model.onnx");
    gp_error err = { 0 };

    failing_set(NULL);
    REQUIRE_WALK(gp_file_write(path, "old", 3, &err), err);
    failing_set(s->text);
    gp_status status = gp_file_write(path, "newer", 5, &err);
    bool struck = failing_struck() > 0;

    failing_set(NULL);
    if (!content_is(path, status == GP_OK ? "newer" : "old"))
        GP_TEST_FAIL("%s: the file is neither the old nor the new one", s->text);
    if (status != GP_OK && strstr(err.message, path) == NULL)
        GP_TEST_FAIL("%s: %s", s->text, err.message);
    if (is_short(s))
        CHECK_STATUS(GP_OK, status);
    CHECK_INT(0, names_with(".tmp"));
    return struck;
}

TEST(file_has_the_old_or_the_new_content)
{
    folder_make();
    CHECK(walk_calls(walk_file_write) >= 12);
    leftovers_clear(folder);
}

/* ---- checkpoints ---- */

static struct {
    gp_graph *graph;
    gp_train_options options;
    gp_checkpoint_frame frame;
    gp_checkpoint state;
} training;

static bool training_make(void)
{
    static const gp_shape image = { 3, { 1, 8, 8 } };
    gp_error err;

    if (net_graph(&training.graph, &image, "f fc outputs=5 | l crossentropy", &err) != GP_OK ||
        gp_train_options_from_json(&training.options, "{\"solver\": \"adam\"}", 18, &err) != GP_OK)
        return false;
    training.frame = (gp_checkpoint_frame){
        .graph = training.graph, .options = &training.options, .data_fingerprint = 0xfeedbeef, .world = 2
    };
    training.state.state_blobs = 2;
    training.state.parameters = gp_calloc(training.graph->blob_count, sizeof(float));
    training.state.state = gp_calloc(training.graph->blob_count * 2, sizeof(float));
    return true;
}

static void training_free(void)
{
    gp_free(training.state.parameters);
    gp_free(training.state.state);
    gp_graph_free(training.graph);
}

static void training_set(uint64_t step)
{
    for (size_t i = 0; i < training.graph->blob_count; i++)
        training.state.parameters[i] = (float)step + (float)i;
    training.state.progress.step = training.state.optim_step = step;
}

static bool walk_checkpoint(const strike *s)
{
    char damaged[240] = "";
    gp_error err = { 0 };

    failing_set(NULL);
    training_set(5);
    REQUIRE_WALK(gp_checkpoint_write(folder, &training.frame, &training.state, &err), err);
    training_set(9);
    failing_set(s->text);
    gp_status status = gp_checkpoint_write(folder, &training.frame, &training.state, &err);
    bool struck = failing_struck() > 0;

    failing_set(NULL);
    if (status != GP_OK && strstr(err.message, folder) == NULL)
        GP_TEST_FAIL("%s: %s", s->text, err.message);
    if (is_short(s))
        CHECK_STATUS(GP_OK, status);
    CHECK_INT(0, names_with(".tmp"));
    REQUIRE_WALK(gp_checkpoint_read(&training.state, &training.frame, folder, damaged, &err), err);
    CHECK_TEXT("", damaged);

    /* If only the final sync of the folder fails, the checkpoint exists although the write was
     * reported as failed. */
    if (training.state.progress.step != 9 && (status == GP_OK || training.state.progress.step != 5))
        GP_TEST_FAIL("%s: status %s, and step %d is read", s->text, gp_status_name(status),
                     (int)training.state.progress.step);
    CHECK_NEAR((double)training.state.progress.step + 1, training.state.parameters[1], 0);
    unlink(in_folder("9.json"));
    unlink(in_folder("9.safetensors"));
    return struck;
}

/* Replace a checkpoint. After a failure either the old one or the previous one is read. */
static bool walk_replacement(const strike *s)
{
    char damaged[240] = "";
    gp_error err = { 0 };

    failing_set(NULL);
    for (uint64_t step = 5; step <= 9; step += 4) {
        training_set(step);
        REQUIRE_WALK(gp_checkpoint_write(folder, &training.frame, &training.state, &err), err);
    }
    training.state.parameters[1] = 77;
    failing_set(s->text);
    gp_status status = gp_checkpoint_write(folder, &training.frame, &training.state, &err);
    bool struck = failing_struck() > 0;

    failing_set(NULL);
    CHECK_INT(0, names_with(".tmp"));
    REQUIRE_WALK(gp_checkpoint_read(&training.state, &training.frame, folder, damaged, &err), err);
    CHECK_TEXT("", damaged);
    const int step = (int)training.state.progress.step, value = (int)training.state.parameters[1];
    const bool replaced = step == 9 && value == 77;
    const bool kept = (step == 9 && value == 10) || (step == 5 && value == 6);

    if (!replaced && (status == GP_OK || !kept))
        GP_TEST_FAIL("%s: status %s, and step %d is read with value %d", s->text, gp_status_name(status),
                     step, value);
    return struck;
}

TEST(failed_checkpoint_leaves_the_previous_one_intact)
{
    folder_make();
    REQUIRE(training_make());
    CHECK(walk_calls(walk_checkpoint) >= 24);
    CHECK(walk_calls(walk_replacement) >= 24);
    training_free();
    leftovers_clear(folder);
}

/* ---- the job journal ---- */

static gp_status journal_wait(gp_journal *journal, uint64_t number, gp_error *err)
{
    for (;;) {
        struct pollfd fd = { .fd = gp_journal_fd(journal), .events = POLLIN };
        gp_journal_report report;

        if (poll(&fd, 1, 20000) != 1)
            return gp_fail(err, GP_ETIMEDOUT, "the journal says nothing");
        gp_journal_next(journal, &report);
        if (report.kind == GP_JOURNAL_PERSISTED && report.number >= number)
            return GP_OK;
        if (report.kind == GP_JOURNAL_FAILED) {
            *err = report.error;
            return err->code;
        }
    }
}

static uint64_t rows_seen, last_seen;

static gp_status see_row(void *context, const gp_jobs_job *row, gp_error *err)
{
    (void)context;
    (void)err;
    rows_seen++;
    last_seen = row->id;
    return GP_OK;
}

/* Open the journal, read it, and write rows `first` to `last` with one commit each. Return the last
 * acknowledged row. */
static uint64_t journal_use(uint64_t first, uint64_t last, gp_status *status, gp_error *err)
{
    const gp_journal_text words = { .words = (char[]){ "train" },
                                    .words_bytes = 6,
                                    .environment = (char[]){ "A=b" },
                                    .environment_bytes = 4,
                                    .directory = (char[]){ "/" } };
    gp_journal *journal = NULL;
    uint64_t next_id, done = first - 1;

    rows_seen = last_seen = 0;
    *status = gp_journal_open(&journal, folder, err);
    if (*status == GP_OK)
        *status = gp_journal_load(journal, see_row, NULL, &next_id, err);
    if (*status == GP_OK)
        *status = gp_journal_start(journal, err);
    for (uint64_t id = first; *status == GP_OK && id <= last; id++) {
        gp_jobs_job job = { .id = id, .state = GP_JOBS_QUEUED, .submitter = { 1 }, .seq = id };

        *status = gp_journal_insert(journal, id, &job, &words, err);
        if (*status == GP_OK)
            *status = journal_wait(journal, id, err);
        if (*status == GP_OK)
            done = id;
    }
    gp_journal_close(journal);
    return done;
}

static bool walk_journal(const strike *s)
{
    gp_error err = { 0 };
    gp_status status;

    leftovers_clear(folder);
    mkdir(folder, 0700);
    failing_set(NULL);
    CHECK_INT(2, journal_use(1, 2, &status, &err));
    failing_set(s->text);
    uint64_t acknowledged = journal_use(3, 4, &status, &err);
    bool struck = failing_struck() > 0;

    failing_set(NULL);
    if (status != GP_OK && strstr(err.message, folder) == NULL)
        GP_TEST_FAIL("%s: %s", s->text, err.message);
    journal_use(5, 4, &status, &err); /* read only */
    if (status != GP_OK)
        GP_TEST_FAIL("%s: afterwards it cannot be opened: %s", s->text, err.message);

    /* Acknowledged rows are present; one unacknowledged row may be. */
    if (rows_seen < acknowledged || rows_seen > acknowledged + 1)
        GP_TEST_FAIL("%s: %d acknowledged, %d found", s->text, (int)acknowledged, (int)rows_seen);
    return struck;
}

TEST(acknowledged_jobs_are_in_the_journal_despite_disk_errors)
{
    folder_make();
    CHECK(walk_calls(walk_journal) >= 24);
    leftovers_clear(folder);
}

/* ---- files for the next scheduler ---- */

static gp_paths paths;

static bool walk_hold(const strike *s)
{
    gp_pool_record record = { .workers = 7, .idle_ms = 11, .devices = "cpu" }, got;
    gp_pool_lock hold = { .fd = -1 };
    gp_error err = { 0 };
    uint64_t before;

    failing_set(NULL);
    REQUIRE_WALK(gp_pool_lock_take(&hold, &paths, &err), err);
    before = hold.epoch;
    gp_pool_lock_release(&hold);
    REQUIRE_WALK(gp_pool_record_write(&(gp_pool_record){ .workers = 3, .idle_ms = 5 }, &paths, &err), err);
    failing_set(s->text);
    gp_status status = gp_pool_lock_take(&hold, &paths, &err);

    if (status == GP_OK)
        status = gp_pool_record_write(&record, &paths, &err);
    bool struck = failing_struck() > 0;

    failing_set(NULL);
    gp_pool_lock_release(&hold);
    if (status != GP_OK && strstr(err.message, folder) == NULL)
        GP_TEST_FAIL("%s: %s", s->text, err.message);
    CHECK(gp_pool_record_read(&got, &paths));
    CHECK(got.workers == 3 || (got.workers == 7 && got.idle_ms == 11));
    REQUIRE_WALK(gp_pool_lock_take(&hold, &paths, &err), err);
    if (hold.epoch <= before)
        GP_TEST_FAIL("%s: epoch %d after %d", s->text, (int)hold.epoch, (int)before);
    gp_pool_lock_release(&hold);
    CHECK_INT(0, names_with(".new"));
    return struck;
}

static void check_object_cache(const char *failing, bool kept)
{
    gp_object_id id = { .text = "0123456789abcdef" };
    gp_buffer back, small;
    bool mine = false;
    int fd;

    folder_make();
    setenv("XDG_CACHE_HOME", folder, 1);
    gp_object_cache *cache = gp_object_cache_open("s3", 1 << 20);

    failing_set(failing);
    fd = gp_object_cache_file(cache, &id, 5, &mine);
    CHECK((fd >= 0 && mine) == kept);
    if (fd >= 0) {
        CHECK(gp_write_all(fd, "hello", 5));
        CHECK(gp_object_cache_commit(cache, &id, fd, 5));
        close(fd);
        fd = gp_object_cache_file(cache, &id, 5, &mine);
        CHECK(fd >= 0 && !mine);
        close(fd);
    }
    gp_object_cache_put(cache, &id, "world", 5);
    gp_buffer_init(&small, 3);
    CHECK(!gp_object_cache_get(cache, &id, 0, 5, &small)); /* a full disk is not damage */
    gp_buffer_init(&back, 100);
    CHECK(gp_object_cache_get(cache, &id, 0, 5, &back));
    CHECK_INT(5, back.bytes);
    CHECK(failing_struck() > 0);
    failing_set(NULL);
    gp_buffer_deinit(&small);
    gp_buffer_deinit(&back);
    gp_object_cache_close(cache);
    leftovers_clear(folder);
}

TEST(the_object_cache_works_on_file_systems_without_locks_or_exclusive_renames)
{
    check_object_cache("flock:1+:ENOSYS:s3", true);
    check_object_cache("flock:1+:ENOLCK:s3", true);
    check_object_cache("flock:1+:EOPNOTSUPP:s3", true);
    check_object_cache("flock:1+:EIO:s3", false);
    check_object_cache("rename:1+:EINVAL:s3", true);
}

TEST(epochs_are_never_reused_and_records_are_complete)
{
    gp_error err;

    folder_make();
    setenv("GRADPOOL_RUNTIME_DIR", folder, 1);
    setenv("GRADPOOL_STATE_DIR", folder, 1);
    REQUIRE_OK(gp_paths_find(&paths, NULL, &err), err);
    REQUIRE_OK(gp_paths_create(&paths, &err), err);
    CHECK(walk_calls(walk_hold) >= 8);
    leftovers_clear(folder);
}

/* Devices and listen address may be empty, and the next line must not be mistaken for them. */
TEST(record_survives_a_round_trip)
{
    const gp_pool_record records[] = {
        { .workers = 3, .idle_ms = 5, .suspect_ms = 1000, .silence_ms = 2000 },
        { .workers = 2, .suspect_ms = 5000, .devices = "cpu:0,1", .listen = "tcp://127.0.0.1:4000" },
    };
    gp_error err;

    folder_make();
    setenv("GRADPOOL_RUNTIME_DIR", folder, 1);
    setenv("GRADPOOL_STATE_DIR", folder, 1);
    REQUIRE_OK(gp_paths_find(&paths, NULL, &err), err);
    REQUIRE_OK(gp_paths_create(&paths, &err), err);
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        gp_pool_record got;

        REQUIRE_OK(gp_pool_record_write(&records[i], &paths, &err), err);
        REQUIRE(gp_pool_record_read(&got, &paths));
        CHECK_INT(records[i].workers, got.workers);
        CHECK_INT(records[i].idle_ms, got.idle_ms);
        CHECK_INT(records[i].suspect_ms, got.suspect_ms);
        CHECK_INT(records[i].silence_ms, got.silence_ms);
        CHECK_TEXT(records[i].devices, got.devices);
        CHECK_TEXT(records[i].listen, got.listen);
        CHECK(got.process_env == NULL);
    }
    leftovers_clear(folder);
}

/* ---- a cache entry written by another process ---- */

/* A clock that advances only in nanosleep(), and the writer of an entry that acts by that clock. */
static struct {
    bool enabled;
    int64_t ns;         /* time since the start */
    int writer;         /* the writer's descriptor of the entry */
    int64_t last_ms;    /* time of the writer's last write */
    int64_t suspend_ms; /* the writer appends every 20 s until this time */
    int64_t release_ms; /* the writer releases the lock at this time */
} simulation;

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!simulation.enabled)
        return (int)syscall(SYS_clock_gettime, clock, out);
    *out = (struct timespec){ .tv_sec = simulation.ns / 1000000000, .tv_nsec = simulation.ns % 1000000000 };
    return 0;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    static const char bytes[8192];

    if (!simulation.enabled)
        return (int)syscall(SYS_nanosleep, wanted, left);
    simulation.ns += (int64_t)wanted->tv_sec * 1000000000 + wanted->tv_nsec;
    const int64_t now_ms = simulation.ns / 1000000;

    if (now_ms >= simulation.last_ms + 20000 && now_ms <= simulation.suspend_ms) {
        simulation.last_ms = now_ms;
        CHECK(gp_write_all(simulation.writer, bytes, sizeof(bytes)));
    }
    if (now_ms >= simulation.release_ms)
        flock(simulation.writer, LOCK_UN);
    return 0;
}

TEST(reader_waits_for_the_writer_until_30_s_after_the_last_write)
{
    gp_object_id id = { .text = "0123456789abcdef" };
    bool mine = false;

    folder_make();
    setenv("XDG_CACHE_HOME", folder, 1);
    gp_object_cache *cache = gp_object_cache_open("s3", 1 << 20);

    simulation.writer = gp_object_cache_file(cache, &id, 5, &mine);
    REQUIRE(simulation.writer >= 0 && mine);
    simulation.enabled = true;
    simulation.release_ms = 600000; /* ends the test if the wait has no limit */
    REQUIRE(gp_object_cache_file(cache, &id, 5, &mine) == -1);
    CHECK_INT(30000, simulation.ns / 1000000);
    simulation.ns = 0;
    simulation.suspend_ms = 100000;
    CHECK_INT(-1, gp_object_cache_file(cache, &id, 5, &mine));
    CHECK_INT(130, simulation.ns / 1000000000); /* the last write is seen 5 ms later */
    simulation.ns = simulation.last_ms = simulation.suspend_ms = 0;
    simulation.release_ms = 29000;
    int fd = gp_object_cache_file(cache, &id, 5, &mine);

    CHECK(fd >= 0 && mine);
    CHECK_INT(29000, simulation.ns / 1000000);
    simulation.enabled = false;
    close(fd);
    close(simulation.writer);
    gp_object_cache_close(cache);
    leftovers_clear(folder);
}
