/* Test the folders of jobs, and how their processes are found again after a scheduler restart. */
#include "scheduler/jobs/job_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scheduler/process/supervise.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

static gp_paths paths;
static gp_error err;

/* ---- fixture ---- */

static void stage_begin(void)
{
    char jobs[GP_TEXT_FOLDER];

    snprintf(paths.state_dir, sizeof(paths.state_dir), "/tmp/gp-job-XXXXXX");
    if (leftovers_make(paths.state_dir) == NULL)
        abort();
    snprintf(jobs, sizeof(jobs), "%s/jobs", paths.state_dir);
    if (mkdir(jobs, 0700) != 0)
        abort();
}

TEARDOWN()
{
    leftovers_clear(paths.state_dir);
}

static pid_t pause_in_child(void)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0)
        for (;;)
            pause();
    return child;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static gp_jobs_job row_of(pid_t pid)
{
    gp_jobs_job job = { .id = 7, .attempts = 2, .pid = pid, .start_time = gp_supervise_start_time(pid) };

    gp_job_boot(job.boot);
    return job;
}

static struct rlimit limit;

/* Make each further open() of this process fail with EMFILE. */
static void descriptors_use_up(void)
{
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);

    close(next);
    getrlimit(RLIMIT_NOFILE, &limit);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = limit.rlim_max });
}

static void descriptors_restore(void)
{
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void write_record(const char *text)
{
    char path[GP_TEXT_FOLDER + 16];

    gp_job_folder(&paths, 7, path, sizeof(path));
    mkdir(path, 0700);
    strcat(path, "/job.json");
    FILE *file = fopen(path, "w");

    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
}

/* ---- finding a process ---- */

TEST(process_is_found_by_pid_and_start_time)
{
    stage_begin();
    pid_t child = pause_in_child();
    gp_jobs_job job = row_of(child), reused = job, rebooted = job;
    gp_job_process found;

    reused.start_time++;
    rebooted.boot[0] ^= 1;
    REQUIRE_OK(gp_job_adopt(&found, &job, &err), err);
    CHECK_INT(child, found.pid);
    CHECK(found.adopted);
    gp_job_process_deinit(&found);
    CHECK_STATUS(GP_ENOENT, gp_job_adopt(&found, &reused, &err));
    CHECK_STATUS(GP_ENOENT, gp_job_adopt(&found, &rebooted, &err));
    end_child(child);
    CHECK_STATUS(GP_ENOENT, gp_job_adopt(&found, &job, &err));
}

TEST(lack_of_descriptors_is_no_evidence_of_an_exit)
{
    gp_job_process found;
    int spare[2];

    stage_begin();
    pid_t child = pause_in_child();
    gp_jobs_job job = row_of(child);

    for (int free_count = 0; free_count < 2; free_count++) {
        for (int i = 0; i < free_count; i++)
            spare[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        descriptors_use_up();
        for (int i = 0; i < free_count; i++)
            close(spare[i]);
        CHECK_STATUS(GP_EBUSY, gp_job_adopt(&found, &job, &err));
        CHECK_CONTAINS(err.message, "Too many open files");
        descriptors_restore();
    }
    REQUIRE_OK(gp_job_adopt(&found, &job, &err), err);
    gp_job_process_deinit(&found);
    end_child(child);
}

/* ---- folders ---- */

TEST(largest_id_of_a_job_folder_is_found)
{
    static const char *const names[] = { "9", "41", "x77", "78x", "99999999999999999999" };
    char path[GP_TEXT_FOLDER];
    uint64_t last = 7;

    stage_begin();
    REQUIRE_OK(gp_job_folders_last(&last, &paths, &err), err);
    CHECK_INT(0, last);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/jobs/%s", paths.state_dir, names[i]);
        CHECK_INT(0, mkdir(path, 0700));
    }
    REQUIRE_OK(gp_job_folders_last(&last, &paths, &err), err);
    CHECK_INT(41, last);
    descriptors_use_up();
    CHECK_STATUS(GP_ELIMIT, gp_job_folders_last(&last, &paths, &err));
    descriptors_restore();
}

/* ---- starting ---- */

TEST(file_in_place_of_the_log_fails_the_job_without_blocking)
{
    static const gp_journal_text words;
    char folder[GP_TEXT_FOLDER], log[GP_TEXT_FOLDER + 8];
    gp_job_process started;

    stage_begin();
    setenv("GRADPOOL_CLIENT", "/bin/true", 1);
    gp_job_folder(&paths, 7, folder, sizeof(folder));
    snprintf(log, sizeof(log), "%s/log", folder);
    REQUIRE(mkdir(folder, 0700) == 0 && mkfifo(log, 0600) == 0);
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        CHECK_STATUS(GP_EINVAL, gp_job_spawn(&started, &paths, 7, attempt, &words, 1024, &err));
        CHECK_CONTAINS(err.message, "/log: not a regular file");
    }
    int reader = open(log, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    CHECK_STATUS(GP_EINVAL, gp_job_spawn(&started, &paths, 7, 2, &words, 1024, &err));
    CHECK_CONTAINS(err.message, "/log: not a regular file");
    close(reader);
    REQUIRE(unlink(log) == 0 && symlink("/dev/null", log) == 0);
    CHECK_STATUS(GP_EINVAL, gp_job_spawn(&started, &paths, 7, 2, &words, 1024, &err));
}

/* ---- signals ---- */

/* The parent of an adopted process reaps it at any time. A later group may have the same number. */
TEST(reaped_process_of_an_earlier_scheduler_is_not_signaled)
{
    gp_job_process found;
    int state = 0;

    stage_begin();
    pid_t child = pause_in_child();
    gp_jobs_job job = row_of(child);

    REQUIRE_OK(gp_job_adopt(&found, &job, &err), err);
    setpgid(child, child);
    pid_t other = pause_in_child();

    CHECK_INT(0, setpgid(other, child));
    end_child(child);
    gp_job_signal(&found, SIGKILL, true);
    kill(other, SIGTERM);
    waitpid(other, &state, 0);
    CHECK_INT(SIGTERM, WTERMSIG(state)); /* no SIGKILL came first */
    gp_job_process_deinit(&found);
}

/* ---- results ---- */

TEST(record_that_cannot_be_opened_is_no_missing_record)
{
    gp_job_end end;

    stage_begin();
    REQUIRE_OK(gp_job_read_end(&paths, 7, 2, &end, &err), err); /* no folder */
    CHECK_INT(GP_JOBS_EXIT_UNKNOWN, end.exit);
    write_record("{\"attempt\": 2, \"exit\": {\"code\": 3, \"error\": \"GP_EIO\", \"message\": \"why\"}}");
    descriptors_use_up();
    CHECK_STATUS(GP_EBUSY, gp_job_read_end(&paths, 7, 2, &end, &err));
    CHECK_CONTAINS(err.message, "job.json: Too many open files");
    descriptors_restore();
    REQUIRE_OK(gp_job_read_end(&paths, 7, 2, &end, &err), err);
    CHECK_INT(GP_JOBS_EXIT_CODE, end.exit);
    CHECK_INT(3, end.number);
    CHECK_TEXT("why", end.text);
    REQUIRE_OK(gp_job_read_end(&paths, 7, 1, &end, &err), err); /* another attempt */
    CHECK_INT(GP_JOBS_EXIT_UNKNOWN, end.exit);
    write_record("{");
    REQUIRE_OK(gp_job_read_end(&paths, 7, 2, &end, &err), err);
    CHECK_INT(GP_JOBS_EXIT_UNKNOWN, end.exit);
}

/* Read the end of the job while a folder denies access. */
static gp_status read_without_access(const char *folder, gp_job_end *end)
{
    const uid_t user = geteuid();

    CHECK_INT(0, chmod(folder, 0));
    if (user == 0) /* root has access to all files */
        setfsuid(65534);
    gp_status status = gp_job_read_end(&paths, 7, 2, end, &err);

    if (user == 0)
        setfsuid(0);
    CHECK_INT(0, chmod(folder, 0711));
    return status;
}

TEST(record_in_a_folder_without_access_is_a_missing_record)
{
    char jobs[GP_TEXT_FOLDER], path[GP_TEXT_FOLDER];
    gp_job_end end;

    stage_begin();
    write_record("{\"attempt\": 2, \"exit\": {\"code\": 0}}");
    snprintf(jobs, sizeof(jobs), "%s/jobs", paths.state_dir);
    gp_job_folder(&paths, 7, path, sizeof(path));
    CHECK_INT(0, chmod(paths.state_dir, 0711));
    CHECK_INT(0, chmod(jobs, 0711));
    CHECK_STATUS(GP_OK, read_without_access(path, &end));
    CHECK_INT(GP_JOBS_EXIT_UNKNOWN, end.exit);
    CHECK_STATUS(GP_EBUSY, read_without_access(jobs, &end)); /* the job may have ended well */
}
