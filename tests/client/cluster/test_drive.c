/* Records of cluster jobs on disk, and commands that are killed between any two writes. The engine
 * of this test runs real processes: a job is a process that holds the lock of its file in the
 * folder `engine`. */
#include "client/cluster/drive.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cluster/job_folder.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"
#include "tests/proto/scratch.h"
#include "tests/gp_test.h"

enum {
    CASES_MAX = 64,
    SETTLE_MS = 60000,
    JOB_MS = 20000, /* a job that is not canceled ends itself */
};

/* ---- engine ---- */

static void engine_folder(const gp_profile *profile, char path[700])
{
    snprintf(path, 700, "%s/../engine", profile->folder);
}

static bool mark_ignored; /* the processes of the next jobs only wait for the file */

/* The process of a job: wait for the mark or for the file `finish`, then write the result. */
static void run_job(const char *folder, const char *id, int file)
{
    gp_fence fence;
    gp_error err;
    char finish[700];
    int64_t end_ms = gp_now_ms() + JOB_MS;

    (void)file; /* its lock shows that this process runs */
    snprintf(finish, sizeof(finish), "%s/../finish", folder);
    while (mark_ignored && access(finish, F_OK) != 0 && gp_now_ms() < end_ms)
        gp_sleep_ms(10);
    if (mark_ignored || cluster_folder_canceled(folder) ||
        cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err) != GP_OK ||
        cluster_attempt_begin(folder, fence.number, "host", id, &err) != GP_OK)
        return;
    while (!cluster_folder_canceled(folder) && access(finish, F_OK) != 0 && gp_now_ms() < end_ms)
        gp_sleep_ms(10);
    if (!cluster_folder_canceled(folder))
        cluster_attempt_result(folder, &fence, 3, "finished", &err);
}

static gp_status engine_launch(const gp_profile *profile, const cluster_launch *launch,
                               char id[CLUSTER_ID_BYTES], gp_error *err)
{
    char folder[700], path[800], nothing;
    int file, closed[2], number = 0;

    engine_folder(profile, folder);
    mkdir(folder, 0700);
    do {
        snprintf(id, CLUSTER_ID_BYTES, "%d", ++number);
        snprintf(path, sizeof(path), "%s/%s", folder, id);
        file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (file < 0 && number < 100);
    if (file < 0 || flock(file, LOCK_EX) != 0 || !gp_write_all(file, launch->name, strlen(launch->name)))
        return gp_fail(err, GP_EIO, "cannot create %s", path);
    if (pipe(closed) != 0)
        abort();
    if (fork() == 0) {
        setsid();
        gp_fault_armed = false;
        for (int fd = 3; fd < 256; fd++) /* not the lock of the record */
            if (fd != file && fd != closed[1])
                close(fd);
        close(closed[1]);
        run_job(launch->folder, id, file);
        _exit(0);
    }
    close(file);
    close(closed[1]);
    /* Return when the process has closed its copy of the lock of the record. */
    CHECK(read(closed[0], &nothing, 1) == 0);
    close(closed[0]);
    return GP_OK;
}

static gp_status engine_list(const gp_profile *profile, cluster_listing *listing, gp_error *err)
{
    char folder[700], path[1000];
    struct dirent *found;
    DIR *directory;

    engine_folder(profile, folder);
    directory = opendir(folder);
    while (directory != NULL && (found = readdir(directory)) != NULL) {
        cluster_entry *entry;
        int file;

        if (found->d_name[0] == '.')
            continue;
        if (cluster_listing_add(listing, &entry, err) != GP_OK)
            abort();
        snprintf(path, sizeof(path), "%s/%s", folder, found->d_name);
        snprintf(entry->id, sizeof(entry->id), "%.60s", found->d_name);
        file = open(path, O_RDONLY | O_CLOEXEC);
        if (gp_read_at(file, entry->name, sizeof(entry->name) - 1, 0) < 0)
            abort();
        entry->state = flock(file, LOCK_EX | LOCK_NB) == 0 ? CLUSTER_ENTRY_ENDED : CLUSTER_ENTRY_RUNNING;
        close(file);
    }
    if (directory != NULL)
        closedir(directory);
    return GP_OK;
}

static int cancels; /* requests to the engine */

/* The processes look for the mark themselves. */
static gp_status engine_cancel(const gp_profile *profile, const cluster_entry *entry, gp_error *err)
{
    (void)profile;
    (void)entry;
    (void)err;
    cancels++;
    return GP_OK;
}

static const cluster_engine engine = {
    .type = "test", .launch = engine_launch, .list = engine_list, .cancel = engine_cancel
};

/* ---- helpers ---- */

/* One folder of jobs. */
typedef struct site_case {
    char name[64], point[120];
    gp_profile profile;
    cluster_site site;
    bool cancel;
} site_case;

static void case_open(site_case *c, int number)
{
    gp_error err;

    *c = (site_case){ .profile = { .type = GP_PROFILE_COMMAND, .name = "hpc" } };
    snprintf(c->profile.folder, sizeof(c->profile.folder), "%s/%d", scratch_dir, number);
    mkdir(c->profile.folder, 0700);
    snprintf(c->profile.folder, sizeof(c->profile.folder), "%s/%d/jobs", scratch_dir, number);
    mkdir(c->profile.folder, 0700);
    REQUIRE(cluster_site_open(&c->site, &c->profile, &engine, scratch_dir, &err) == GP_OK);
}

static gp_status create(site_case *c, bool store, cluster_record *record, gp_error *err)
{
    gp_status status;

    *record = (cluster_record){ .label = "night", .command = "train", .submitted_ms = 1, .time_s = 60 };
    snprintf(record->profile, sizeof(record->profile), "hpc");
    status = cluster_record_create(record, c->site.root, "{}", 2, err);
    return status == GP_OK && store ? cluster_record_store(record, err) : status;
}

static int submit(site_case *c)
{
    cluster_record record;
    cluster_pass_result result;
    gp_error err;

    if (create(c, false, &record, &err) != GP_OK ||
        cluster_drive(&c->site, &record, NULL, &result, &err) != GP_OK)
        return 1;
    cluster_record_close(&record);
    return 0;
}

static gp_status find_name(void *context, const char *name, gp_error *err)
{
    (void)err;
    snprintf(context, CLUSTER_NAME_BYTES, "%s", name);
    return GP_OK;
}

/* Find the only job of a case; "": none. */
static void only_job(const site_case *c, char name[CLUSTER_NAME_BYTES])
{
    gp_error err;

    name[0] = '\0';
    CHECK_STATUS(GP_OK, cluster_records_list(c->site.root, find_name, name, &err));
}

static uint32_t count_live(const site_case *c, uint32_t *all)
{
    cluster_listing listing = { 0 };
    uint32_t live = 0;
    gp_error err;

    engine_list(&c->profile, &listing, &err);
    for (size_t i = 0; i < listing.count; i++)
        live += listing.entries[i].state != CLUSTER_ENTRY_ENDED;
    *all = (uint32_t)listing.count;
    cluster_listing_deinit(&listing);
    return live;
}

/* ---- records ---- */

TEST(record_survives_a_round_trip)
{
    cluster_record record, again = { 0 };
    char name[CLUSTER_NAME_BYTES];
    site_case c;
    gp_error err;

    case_open(&c, 1000);
    REQUIRE(create(&c, true, &record, &err) == GP_OK);
    record.job.state = CLUSTER_RUNNING;
    record.job.attempt = 2;
    record.job.exit_code = 9;
    record.job.changes = 17;
    record.job.gone_ms = 123456789012;
    record.job.canceled = true;
    strcpy(record.job.id, "4803");
    strcpy(record.job.reason, "requeued \"once\"");
    CHECK_STATUS(GP_OK, cluster_record_store(&record, &err));
    CHECK_STATUS(GP_EBUSY, cluster_record_open(&again, c.site.root, record.job.name, 0, &err));
    cluster_record_close(&record);
    REQUIRE(cluster_record_open(&again, c.site.root, record.job.name, 0, &err) == GP_OK);
    memset(&again.job.seen, 0, sizeof(again.job.seen));
    memset(&record.job.seen, 0, sizeof(record.job.seen));
    CHECK(memcmp(&again.job.id, &record.job.id, sizeof(record.job.id)) == 0);
    CHECK_TEXT(record.job.reason, again.job.reason);
    CHECK_TEXT("night", again.label);
    CHECK(again.job.state == CLUSTER_RUNNING && again.job.attempt == 2 && again.job.exit_code == 9);
    CHECK(again.job.changes == 17 && again.job.gone_ms == 123456789012 && again.job.canceled);
    cluster_record_close(&again);
    CHECK_STATUS(GP_OK, cluster_record_find(name, c.site.root, "hpc", "4803", &err));
    CHECK_TEXT(record.job.name, name);
    CHECK_STATUS(GP_OK, cluster_record_find(name, c.site.root, "hpc", record.job.name, &err));
    CHECK_STATUS(GP_ENOENT, cluster_record_find(name, c.site.root, "other", "4803", &err));
    CHECK_STATUS(GP_ENOENT, cluster_record_find(name, c.site.root, "other", record.job.name, &err));
    CHECK_STATUS(GP_ENOENT, cluster_record_find(name, c.site.root, "hpc", "../4803", &err));
}

/* The reason of a refusal is cut to the bytes of the record. */
TEST(record_with_a_character_that_was_cut_is_readable)
{
    cluster_record record, again = { 0 };
    site_case c;
    gp_error err;

    case_open(&c, 1004);
    REQUIRE(create(&c, true, &record, &err) == GP_OK);
    memset(record.job.reason, 'x', sizeof(record.job.reason));
    record.job.reason[sizeof(record.job.reason) - 2] = (char)0xc3; /* first byte of an umlaut */
    record.job.reason[sizeof(record.job.reason) - 1] = '\0';
    CHECK_STATUS(GP_OK, cluster_record_store(&record, &err));
    cluster_record_close(&record);
    REQUIRE_OK(cluster_record_open(&again, c.site.root, record.job.name, 0, &err), err);
    record.job.reason[sizeof(record.job.reason) - 2] = '?';
    CHECK_TEXT(record.job.reason, again.job.reason);
    cluster_record_close(&again);
}

/* An engine that lost its state in a crash assigns ids again. */
TEST(id_names_the_job_that_has_not_ended)
{
    cluster_record old, live;
    char name[CLUSTER_NAME_BYTES], path[CLUSTER_PATH_BYTES + 16];
    site_case c;
    gp_error err;

    case_open(&c, 1000);
    REQUIRE(create(&c, true, &old, &err) == GP_OK);
    strcpy(old.job.id, "4803");
    old.job.state = CLUSTER_QUEUED;
    CHECK_STATUS(GP_OK, cluster_record_store(&old, &err));
    REQUIRE(create(&c, true, &live, &err) == GP_OK);
    strcpy(live.job.id, "4803");
    live.job.state = CLUSTER_QUEUED;
    live.job.seen.list_ms = 1; /* after its launch */
    CHECK_STATUS(GP_OK, cluster_record_store(&live, &err));
    /* a later command finds the old job in no listing */
    old.job.changes++;
    CHECK_STATUS(GP_OK, cluster_record_store(&old, &err));
    old.job.seen.list_ms = old.job.seen.gone_ms = old.job.gone_ms = 2;
    CHECK_STATUS(GP_OK, cluster_record_store(&old, &err));
    CHECK_STATUS(GP_OK, cluster_record_find(name, c.site.root, "hpc", "4803", &err));
    CHECK_TEXT(live.job.name, name);
    old.job.state = CLUSTER_ENDED;
    old.job.end = CLUSTER_END_LOST;
    CHECK_STATUS(GP_OK, cluster_record_store(&old, &err));
    CHECK_STATUS(GP_OK, cluster_record_find(name, c.site.root, "hpc", "4803", &err));
    CHECK_TEXT(live.job.name, name);
    /* a link to another job is corrected although the record has not changed */
    snprintf(path, sizeof(path), "%s/hpc-4803", c.site.root);
    CHECK(unlink(path) == 0 && symlink(old.job.name, path) == 0);
    CHECK_STATUS(GP_OK, cluster_record_store(&live, &err));
    CHECK_STATUS(GP_OK, cluster_record_find(name, c.site.root, "hpc", "4803", &err));
    CHECK_TEXT(live.job.name, name);
    cluster_record_close(&old);
    cluster_record_close(&live);
}

TEST(malformed_records_are_refused)
{
    static const char *const texts[] = {
        "", "{}", "[1]", "{\"version\": 1}", "{\"version\": \"1\"}", "{\"version\": 99}"
    };
    cluster_record record, again = { 0 };
    char path[CLUSTER_PATH_BYTES + 16];
    site_case c;
    gp_error err;

    case_open(&c, 1001);
    REQUIRE(create(&c, true, &record, &err) == GP_OK);
    cluster_record_close(&record);
    snprintf(path, sizeof(path), "%s/record.json", record.path);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        FILE *file = fopen(path, "w");

        fputs(texts[i], file);
        fclose(file);
        CHECK_STATUS(i == 0   ? GP_ENOENT
                     : i == 5 ? GP_EVERSION
                              : GP_ECORRUPT,
                     cluster_record_open(&again, c.site.root, record.job.name, 0, &err));
    }
    REQUIRE(truncate(path, CLUSTER_RECORD_MAX + 1) == 0);
    CHECK_STATUS(GP_ECORRUPT, cluster_record_open(&again, c.site.root, record.job.name, 0, &err));
    REQUIRE(unlink(path) == 0 && mkdir(path, 0700) == 0);
    CHECK_STATUS(GP_ECORRUPT, cluster_record_open(&again, c.site.root, record.job.name, 0, &err));
}

/* Another version of gradpool, or a user, has written the result. */
TEST(result_with_values_out_of_range_leaves_the_record_readable)
{
    static const char result[] = "{\"attempt\": 1, \"exit_code\": 4294967296, \"ended_ms\": -1}",
                      begun[] = "{\"attempt\": 1, \"began_ms\": -1}";
    cluster_record record, again = { .job = { .exit_code = 0 } };
    cluster_pass_result pass;
    gp_fence fence;
    char path[CLUSTER_PATH_BYTES + 32];
    site_case c;
    gp_error err;

    case_open(&c, 1010);
    REQUIRE(create(&c, true, &record, &err) == GP_OK);
    record.job.state = CLUSTER_RUNNING;
    REQUIRE_OK(cluster_attempt_take(&fence, &(uint32_t){ 0 }, record.path, &err), err);
    snprintf(path, sizeof(path), "%s/attempts/1/begin.json", record.path);
    REQUIRE_OK(gp_file_write(path, begun, strlen(begun), &err), err);
    snprintf(path, sizeof(path), "%s/result.json", record.path);
    REQUIRE_OK(gp_file_write(path, result, strlen(result), &err), err);
    REQUIRE_OK(cluster_drive(&c.site, &record, NULL, &pass, &err), err);
    cluster_record_close(&record);
    REQUIRE_OK(cluster_record_open(&again, c.site.root, record.job.name, 0, &err), err);
    CHECK(again.job.has_result);
    CHECK_INT(255, again.job.exit_code); /* not 0, which would be a success */
    CHECK(again.job.begin_ms == 0 && again.job.end_ms == 0);
    cluster_record_close(&again);
}

/* Another user creates a folder with a record, so that a command of this user launches its job. */
TEST(record_of_another_user_is_ignored_where_others_can_write)
{
    struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    cluster_record record, again = { 0 };
    char name[CLUSTER_NAME_BYTES];
    site_case c;
    gp_error err;

    if (geteuid() != 0)
        SKIP("only root can give a folder to another user");
    case_open(&c, 1005);
    REQUIRE(create(&c, true, &record, &err) == GP_OK);
    cluster_record_close(&record);
    REQUIRE(chown(record.path, 65534, 65534) == 0);
    /* a file server can assign the files of all users to one user */
    only_job(&c, name);
    CHECK_TEXT(record.job.name, name);
    CHECK_STATUS(GP_OK, cluster_record_read(&again, c.site.root, record.job.name, &err));
    REQUIRE(chmod(c.site.root, 01777) == 0);
    only_job(&c, name);
    CHECK_TEXT("", name);
    CHECK_STATUS(GP_EPERM, cluster_record_read(&again, c.site.root, record.job.name, &err));
    CHECK_CONTAINS(err.message, "belongs to another user (uid 65534)");
    CHECK_STATUS(GP_EPERM, cluster_record_open(&again, c.site.root, record.job.name, 0, &err));
    CHECK_STATUS(GP_ENOENT, cluster_record_find(name, c.site.root, "hpc", record.job.name, &err));
    utimensat(AT_FDCWD, record.path, old, 0);
    cluster_record_discard(c.site.root, record.job.name);
    CHECK(access(record.path, F_OK) == 0);
    /* folders of this user count */
    REQUIRE(create(&c, true, &again, &err) == GP_OK);
    cluster_record_close(&again);
    only_job(&c, name);
    CHECK_TEXT(again.job.name, name);
}

/* A power failure can leave an empty record; launch.json is on disk before the launch. */
TEST(empty_record_falls_back_to_that_of_the_launch)
{
    struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    cluster_record record, again = { 0 };
    char path[CLUSTER_PATH_BYTES + 16];
    cluster_pass_result pass;
    site_case c;
    gp_error err;

    case_open(&c, 1003);
    REQUIRE(create(&c, false, &record, &err) == GP_OK);
    REQUIRE(cluster_drive(&c.site, &record, NULL, &pass, &err) == GP_OK);
    CHECK(record.job.state != CLUSTER_LAUNCHING && record.job.id[0] != '\0');
    cluster_record_close(&record);
    snprintf(path, sizeof(path), "%s/record.json", record.path);
    REQUIRE(truncate(path, 0) == 0);
    utimensat(AT_FDCWD, record.path, old, 0);
    cluster_record_discard(c.site.root, record.job.name);
    REQUIRE_OK(cluster_record_open(&again, c.site.root, record.job.name, 0, &err), err);
    CHECK(again.job.state == CLUSTER_LAUNCHING);
    /* the machine finds the job by its name, and the next store writes record.json */
    REQUIRE(cluster_drive(&c.site, &again, NULL, &pass, &err) == GP_OK);
    CHECK_TEXT(record.job.id, again.job.id);
    CHECK_INT(1, again.job.launches);
    cluster_record_close(&again);
    again = (cluster_record){ 0 };
    REQUIRE_OK(cluster_record_read(&again, c.site.root, record.job.name, &err), err);
    CHECK_TEXT(record.job.id, again.job.id);
    snprintf(path, sizeof(path), "%s/finish", c.site.root);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

/* With this limit, a write fails as on a full disk, and an empty file can be created. */
TEST(full_disk_does_not_prevent_a_cancel)
{
    struct rlimit before, none;
    char name[CLUSTER_NAME_BYTES], path[CLUSTER_PATH_BYTES + 16];
    cluster_record record = { 0 };
    cluster_pass_result pass;
    site_case c;
    gp_error err;

    case_open(&c, 1006);
    mark_ignored = true; /* without a live job, there is no request to the engine */
    CHECK_INT(0, submit(&c));
    mark_ignored = false;
    only_job(&c, name);
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = before.rlim_max };
    cancels = 0;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
    CHECK_STATUS(GP_EIO, cluster_visit(&c.site, name, true, 1000, NULL, &record, &pass, &err));
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_CONTAINS(err.message, "record.json");
    CHECK(cluster_folder_canceled(record.path));
    CHECK_INT(1, cancels);
    snprintf(path, sizeof(path), "%s/finish", c.site.root);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

TEST(folder_without_a_record_is_removed_after_a_minute)
{
    char name[CLUSTER_NAME_BYTES], path[CLUSTER_PATH_BYTES + 64], file[CLUSTER_PATH_BYTES + 96];
    struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    cluster_record record;
    site_case c;
    gp_error err;

    case_open(&c, 1002);
    REQUIRE(cluster_name_new(name, &err) == GP_OK);
    snprintf(path, sizeof(path), "%s/%s", c.site.root, name);
    REQUIRE(cluster_folder_create(path, "{}", 2, &err) == GP_OK);
    cluster_record_discard(c.site.root, name);
    CHECK(access(path, F_OK) == 0);
    utimensat(AT_FDCWD, path, old, 0);
    cluster_record_discard(c.site.root, name);
    CHECK(access(path, F_OK) != 0);
    /* a power failure before the launch can leave an empty record */
    REQUIRE(cluster_folder_create(path, "{}", 2, &err) == GP_OK);
    snprintf(file, sizeof(file), "%s/record.json", path);
    close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    CHECK_STATUS(GP_ENOENT, cluster_record_read(&record, c.site.root, name, &err));
    utimensat(AT_FDCWD, path, old, 0);
    cluster_record_discard(c.site.root, name);
    CHECK(access(path, F_OK) != 0);
    /* one with a record stays, however old */
    REQUIRE(create(&c, true, &record, &err) == GP_OK);
    cluster_record_close(&record);
    utimensat(AT_FDCWD, record.path, old, 0);
    cluster_record_discard(c.site.root, record.job.name);
    CHECK(access(record.path, F_OK) == 0);
}

/* ---- killed commands ---- */

/* Run submit, or a cancel of a launched job, in a child that is killed when it passes the point for
 * the `pass`-th time. Return whether it was killed. */
static bool run_killed(site_case *c, const char *point, int pass, bool cancel)
{
    char spec[100], name[CLUSTER_NAME_BYTES];
    int status;
    pid_t pid;

    snprintf(spec, sizeof(spec), "%s:%d:kill", point, pass);
    snprintf(c->point, sizeof(c->point), "%s of %s", spec, cancel ? "cancel" : "submit");
    c->cancel = cancel;
    if (cancel) {
        CHECK_INT(0, submit(c));
        only_job(c, name);
    }
    pid = fork();
    if (pid == 0) {
        cluster_record record = { 0 };
        cluster_pass_result result;
        gp_error err;

        if (gp_fault_setup(spec, GP_FAULT_client, 1, 1, &err) != GP_OK)
            _exit(9);
        if (!cancel)
            _exit(submit(c));
        _exit(cluster_visit(&c->site, name, true, 1000, NULL, &record, &result, &err) == GP_OK ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* Let a later command continue. Return whether the job needs another visit. */
static bool visit(site_case *c)
{
    cluster_record record = { 0 };
    cluster_pass_result result;
    char name[CLUSTER_NAME_BYTES];
    gp_error err;
    gp_status status;

    only_job(c, name);
    if (name[0] == '\0')
        return false;
    status = cluster_visit(&c->site, name, false, 1000, NULL, &record, &result, &err);
    if (status == GP_ENOENT)
        return false; /* killed before the record: cluster_record_discard() */
    if (status != GP_OK)
        GP_TEST_FAIL("%s: %s", c->point, err.message);
    return record.job.state != CLUSTER_ENDED;
}

TEST(any_command_completes_a_killed_command)
{
    static const char *const points[] = { "cluster-record", "cluster-recorded", "cluster-launched",
                                          "cluster-marked", "cluster-canceled" };
    static site_case cases[CASES_MAX];
    int count = 0, killed = 0, waiting = 1;
    int64_t end_ms;

    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
        for (int cancel = 0; cancel < 2; cancel++)
            for (int pass = 1; count < CASES_MAX; pass++) {
                case_open(&cases[count], count);
                if (!run_killed(&cases[count++], points[i], pass, cancel != 0))
                    break;
                killed++;
            }
    printf("     %d killed commands\n", killed);
    CHECK(killed >= 10);
    /* Running jobs end as soon as all have been continued for a while. */
    end_ms = gp_now_ms() + SETTLE_MS;
    for (int64_t finish_ms = gp_now_ms() + 8000; waiting > 0 && gp_now_ms() < end_ms; gp_sleep_ms(200)) {
        waiting = 0;
        for (int i = 0; i < count; i++) {
            char path[700];

            if (gp_now_ms() > finish_ms) {
                snprintf(path, sizeof(path), "%s/finish", cases[i].profile.folder);
                close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
            }
            waiting += visit(&cases[i]);
        }
    }
    for (int i = 0; i < count; i++) {
        cluster_record record = { 0 };
        char name[CLUSTER_NAME_BYTES];
        uint32_t all = 0, live = count_live(&cases[i], &all);
        gp_error err;

        only_job(&cases[i], name);
        if (live != 0 || all > 1)
            GP_TEST_FAIL("%s: %u launches, %u live", cases[i].point, all, live);
        if (cluster_record_read(&record, cases[i].site.root, name, &err) == GP_ENOENT) {
            if (all != 0)
                GP_TEST_FAIL("%s: launched without a record", cases[i].point);
            continue;
        }
        /* a cancel that is killed before its first write has canceled nothing */
        const bool canceled =
            cases[i].cancel && strcmp(cases[i].point, "cluster-record:1:kill of cancel") != 0;

        if (record.job.state != CLUSTER_ENDED ||
            record.job.end != (canceled ? CLUSTER_END_CANCELED : CLUSTER_END_RESULT))
            GP_TEST_FAIL("%s: %s, %s", cases[i].point, cluster_state_word(record.job.state),
                         cluster_end_word(record.job.end));
        if (!cases[i].cancel && record.job.exit_code != 3)
            GP_TEST_FAIL("%s: exit code %d", cases[i].point, record.job.exit_code);
    }
}
