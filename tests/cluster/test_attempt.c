/* test_attempt.c: `gradpool job-attempt` without an engine: notices, cancel, failures, and what the
 * process finds in the environment of an allocation. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cluster/allocation.h"
#include "client/cluster/job_folder.h"
#include "common/base/clock.h"
#include "common/base/system/file.h"
#include "tests/cluster/folders.h"
#include "tests/gp_test.h"

enum { WAIT_MS = 60000 };

static gp_error err;
static char folder[256];
static const char *variables[3]; /* of the command of the next folder */

/* Create a job folder with a command for engine "command". */
static bool folder_new(bool requeue, const char *directory, const char *const *words)
{
    cluster_command command = {
        .engine = "command", .directory = directory, .umask = 022, .requeue = requeue
    };
    char name[CLUSTER_NAME_BYTES];
    gp_buffer text;
    gp_status status = cluster_name_new(name, &err);

    snprintf(folder, sizeof(folder), "%s/%s", scratch_dir, name);
    command.words = (const char **)(uintptr_t)words;
    while (words[command.word_count] != NULL)
        command.word_count++;
    command.variables = variables;
    while (variables[command.variable_count] != NULL)
        command.variable_count++;
    gp_buffer_init(&text, CLUSTER_COMMAND_JSON_MAX);
    if (status == GP_OK)
        status = cluster_command_format(&command, &text, &err);
    if (status == GP_OK)
        status = cluster_folder_create(folder, gp_buffer_text(&text), text.bytes, &err);
    gp_buffer_deinit(&text);
    if (status != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return status == GP_OK;
}

#define FOLDER(requeue, directory, ...)                                                                      \
    REQUIRE(folder_new(requeue, directory, (const char *const[]){ __VA_ARGS__, NULL }))

static pid_t attempt_start(void)
{
    char program[512];

    snprintf(program, sizeof(program), "%s/bin/gradpool", getenv("GP_BUILD_DIR"));
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        int log = open(scratch_path("attempt.out"), O_WRONLY | O_CREAT | O_TRUNC, 0600);

        dup2(log, 1);
        dup2(log, 2);
        setenv("TMPDIR", scratch_dir, 1);
        setenv("HOME", scratch_dir, 1);
        execl(program, "gradpool", "job-attempt", folder, (char *)NULL);
        _exit(127);
    }
    return child;
}

static int attempt_finish(pid_t child)
{
    int ended = -1;

    waitpid(child, &ended, 0);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

static void wait_steps(void)
{
    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms; gp_sleep_ms(10))
        if (strstr(folder_read(folder, "metrics.jsonl"), "\"step\": 5,") != NULL)
            return;
    GP_TEST_FAIL("no step: %s", folder_read(folder, "log"));
}

/* Check the result, and that nothing is left of the attempt on this host. */
static void check_result(int code, const char *reason)
{
    cluster_facts facts;

    REQUIRE_OK(cluster_folder_facts(folder, &facts, &err), err);
    CHECK(facts.has_result);
    CHECK_INT(code, facts.exit_code);
    CHECK_CONTAINS(facts.reason, reason);
    setenv("GP_TEST_SCRATCH", scratch_dir, 1);
    CHECK(system("cd $GP_TEST_SCRATCH && ! ls -d gpjob-* 2> /dev/null") == 0);
}

#define TRAINING                                                                                             \
    "train", "--network", "lenet", "--data", "digits:512", "--epochs", "100000", "--checkpoint-path",        \
        "checkpoints"

TEST(notice_stops_the_training_with_a_checkpoint)
{
    FOLDER(true, scratch_dir, TRAINING);
    pid_t child = attempt_start();

    wait_steps();
    kill(child, SIGTERM);
    CHECK_INT(130, attempt_finish(child));
    check_result(130, "signal, and the job cannot be requeued: this engine does not requeue jobs");
    CHECK_CONTAINS(folder_read(folder, "log"), "wrote the checkpoint of step");
    CHECK_CONTAINS(folder_read(folder, "attempts/1/end.json"), "signal");
}

/* The engine sends the notice when the process of the attempt has just started. */
TEST(notice_before_the_handlers_exist_ends_the_attempt_in_order)
{
    sigset_t notices, before;

    FOLDER(true, scratch_dir, "spmd", "--", "sleep", "1000");
    sigemptyset(&notices);
    sigaddset(&notices, SIGTERM);
    sigprocmask(SIG_BLOCK, &notices, &before);
    pid_t child = attempt_start(); /* the pending signal and the mask survive exec */

    kill(child, SIGTERM);
    sigprocmask(SIG_SETMASK, &before, NULL);
    CHECK_INT(1, attempt_finish(child));
    check_result(1, "signal, and the job cannot be requeued: this engine does not requeue jobs");
}

TEST(cancel_mark_stops_the_job)
{
    FOLDER(true, scratch_dir, "spmd", "--workers", "2", "--", "sleep", "1000");
    pid_t child = attempt_start();

    for (int64_t end_ms = gp_now_ms() + WAIT_MS;
         gp_now_ms() < end_ms && folder_read(folder, "job.json")[0] == '\0';)
        gp_sleep_ms(10);
    REQUIRE_OK(cluster_folder_cancel(folder, &err), err);
    CHECK_INT(130, attempt_finish(child));
    check_result(130, "canceled");
}

TEST(job_canceled_before_it_starts_does_not_run)
{
    FOLDER(true, scratch_dir, TRAINING);
    REQUIRE_OK(cluster_folder_cancel(folder, &err), err);
    CHECK_INT(130, attempt_finish(attempt_start()));
    check_result(130, "canceled");
    CHECK_TEXT("", folder_read(folder, "job.json"));
}

TEST(exit_code_and_output_of_the_command_are_kept)
{
    FOLDER(false, scratch_dir, "train", "--network", "lenet", "--data", "no-such-data");
    CHECK_INT(1, attempt_finish(attempt_start()));
    check_result(1, "exit code 1");
    CHECK_CONTAINS(folder_read(folder, "log"), "no-such-data");
    CHECK_CONTAINS(folder_read(folder, "job.json"), "no-such-data");
}

TEST(result_is_stored_although_the_job_has_filled_the_disk)
{
    char disk[300];

    snprintf(disk, sizeof(disk), "%s/disk", scratch_dir);
    CHECK_INT(0, mkdir(disk, 0700));
    if (shell("unshare -Urm true 2> /dev/null") != 0)
        SKIP("no mount namespaces for users here");
    FOLDER(false, disk, "spmd", "--workers", "1", "--", "sh", "-c", "cat /dev/zero > filler; exit 3");
    CHECK_INT(0, shell("TMPDIR=$PWD HOME=$PWD unshare -Urm sh -c 'mount -t tmpfs -o size=512k none disk && "
                       "cp -r %s disk/job && %s/bin/gradpool job-attempt %s/job > attempt.out 2>&1; "
                       "cp disk/job/result.json disk/job/log .'",
                       folder, getenv("GP_BUILD_DIR"), disk));
    CHECK_CONTAINS(folder_read(scratch_dir, "attempt.out"), "ended: exit code 3");
    CHECK_CONTAINS(folder_read(scratch_dir, "result.json"), "\"exit_code\": 3");
}

/* Wait until the attempt reports that it repeats an operation on a file. */
static void obstacle_await(const char *name)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms; gp_sleep_ms(10))
        if (strstr(folder_read(scratch_dir, "attempt.out"), path) != NULL)
            break;
    CHECK_CONTAINS(folder_read(scratch_dir, "attempt.out"), "; trying again for 120 s");
}

/* Wait as obstacle_await(), and remove the directory that makes the operation fail. */
static void obstacle_remove(const char *name)
{
    char path[400];

    obstacle_await(name);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    CHECK_INT(0, rmdir(path));
}

TEST(notice_and_cancel_end_the_tries_of_an_attempt)
{
    for (int canceled = 0; canceled < 2; canceled++) {
        char path[400];

        FOLDER(false, scratch_dir, "spmd", "--", "true");
        snprintf(path, sizeof(path), "%s/newest", folder);
        REQUIRE(mkdir(path, 0700) == 0);
        pid_t child = attempt_start();
        const int64_t begin_ms = gp_now_ms();

        obstacle_await("newest");
        if (canceled == 1)
            REQUIRE_OK(cluster_folder_cancel(folder, &err), err);
        else
            kill(child, SIGTERM);
        CHECK_INT(1, attempt_finish(child));
        CHECK(gp_now_ms() - begin_ms < WAIT_MS);
    }
}

TEST(attempt_and_result_wait_until_the_folder_can_be_written)
{
    cluster_facts facts;
    char path[400];

    FOLDER(false, scratch_dir, "spmd", "--", "true");
    snprintf(path, sizeof(path), "%s/newest", folder);
    REQUIRE(mkdir(path, 0700) == 0);
    pid_t child = attempt_start();

    obstacle_remove("newest");
    CHECK_INT(0, attempt_finish(child));
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &err), err);
    CHECK_INT(1, facts.attempt);
    check_result(0, "finished");

    FOLDER(false, scratch_dir, "spmd", "--workers", "1", "--", "sh", "-c",
           "cd $0/attempts/1 && rm result && mkdir result && exit 3", folder);
    child = attempt_start();
    obstacle_remove("attempts/1/result");
    CHECK_INT(3, attempt_finish(child));
    check_result(3, "exit code 3");
}

/* Count the local directories of attempts, and give them an age at which they can be removed. */
static int local_directories(void)
{
    return shell(
        "exit $(find . -maxdepth 1 -name 'gpjob-*' -exec touch -d '2 minutes ago' {} \\; -print | wc -l)");
}

TEST(attempt_removes_local_directories_of_killed_attempts_only)
{
    FOLDER(true, scratch_dir, "spmd", "--workers", "1", "--", "sleep", "1000");
    pid_t child = attempt_start();

    for (int64_t end_ms = gp_now_ms() + WAIT_MS;
         gp_now_ms() < end_ms && folder_read(folder, "job.json")[0] == '\0';)
        gp_sleep_ms(10);
    CHECK_INT(1, local_directories());
    FOLDER(false, "/nonexistent", "spmd", "--", "true");
    CHECK_INT(1, attempt_finish(attempt_start()));
    CHECK_INT(1, local_directories());
    kill(child, SIGKILL);
    attempt_finish(child);

    /* the child of the killed process ends the command first */
    for (int64_t end_ms = gp_now_ms() + WAIT_MS; local_directories() > 0 && gp_now_ms() < end_ms;) {
        FOLDER(false, "/nonexistent", "spmd", "--", "true");
        CHECK_INT(1, attempt_finish(attempt_start()));
    }
    CHECK_INT(0, local_directories());
}

#define LONG_NAME                                                                                            \
    "A_NAME_OF_MORE_THAN_128_CHARACTERS_0123456789012345678901234567890123456789012345678901234567890123456" \
    "7890123456789012345678901234567890123456789"

/* A job of the engine ssh runs `submit`. A cancel of that job must not end the new one. */
TEST(job_has_its_variables_but_not_those_of_the_job_that_submitted_it)
{
    variables[0] = "GRADPOOL_SSH_JOB=gpu1/gp-0123456789abcdef";
    variables[1] = LONG_NAME "=long";
    FOLDER(true, scratch_dir, "spmd", "--workers", "1", "--", "sh", "-c",
           "echo part of $GRADPOOL_SSH_JOB. $" LONG_NAME);
    variables[0] = variables[1] = NULL;
    CHECK_INT(0, attempt_finish(attempt_start()));
    CHECK_CONTAINS(folder_read(folder, "log"), "part of . long");
}

TEST(missing_directory_is_the_reason_of_the_result)
{
    FOLDER(false, "/nonexistent/work", TRAINING);
    CHECK_INT(1, attempt_finish(attempt_start()));
    check_result(1, "cannot change to the job's directory /nonexistent/work");
}

TEST(folder_without_a_command_is_refused)
{
    snprintf(folder, sizeof(folder), "%s/nothing", scratch_dir);
    CHECK_INT(1, attempt_finish(attempt_start()));
    snprintf(folder, sizeof(folder), "relative");
    CHECK_INT(2, attempt_finish(attempt_start()));
}

/* ---- allocation ---- */

static void slurm_environment(const char *gpus, const char *visible)
{
    setenv("SLURM_JOB_ID", "4803", 1);
    setenv("SLURM_CPUS_ON_NODE", "8", 1);
    setenv("SLURM_MEM_PER_NODE", "16000", 1);
    setenv("SLURMD_NODENAME", "n7", 1);
    unsetenv("SLURM_STEP_GPUS");
    unsetenv("SLURM_JOB_GPUS");
    if (gpus != NULL)
        setenv("SLURM_GPUS_ON_NODE", gpus, 1);
    else
        unsetenv("SLURM_GPUS_ON_NODE");
    if (visible != NULL)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(allocation_of_slurm_is_read_from_the_environment)
{
    cluster_allocation found;

    slurm_environment("2", "0,1");
    REQUIRE_OK(cluster_allocation_open(&found, "slurm", &err), err);
    CHECK_TEXT("4803", found.id);
    CHECK_TEXT("n7", found.host);
    CHECK_INT(8, found.cores);
    CHECK_INT(16000, found.memory_mib);
    CHECK_INT(2, found.gpus);
    slurm_environment(NULL, NULL);
    setenv("SLURM_JOB_GPUS", "0,3,5", 1);
    setenv("CUDA_VISIBLE_DEVICES", "0,1,2", 1);
    REQUIRE_OK(cluster_allocation_open(&found, "slurm", &err), err);
    CHECK_INT(3, found.gpus);
    slurm_environment(NULL, NULL);
    REQUIRE_OK(cluster_allocation_open(&found, "slurm", &err), err);
    CHECK_INT(0, found.gpus);
    CHECK(found.gpus_limited);
    setenv("SLURM_JOB_ID", "x", 1);
    CHECK_STATUS(GP_ESTATE, cluster_allocation_open(&found, "slurm", &err));
    unsetenv("SLURM_JOB_ID");
    CHECK_STATUS(GP_ESTATE, cluster_allocation_open(&found, "slurm", &err));
    CHECK_CONTAINS(err.message, "SLURM_JOB_ID is not set");
    REQUIRE_OK(cluster_allocation_open(&found, "command", &err), err);
    CHECK(!found.gpus_limited && found.cores == 0);
}

TEST(granted_gpus_that_are_not_visible_are_an_error)
{
    cluster_allocation found;

    slurm_environment("2", NULL);
    CHECK_STATUS(GP_ENODEV, cluster_allocation_open(&found, "slurm", &err));
    CHECK_CONTAINS(err.message, "Slurm granted 2 GPUs but set no CUDA_VISIBLE_DEVICES");
    CHECK_CONTAINS(err.message, "gres.conf");
    slurm_environment("2", "");
    CHECK_STATUS(GP_ENODEV, cluster_allocation_open(&found, "slurm", &err));
}

/* Replace squeue by a shell script that prints a line. */
static cluster_notice notice_for(const char *line)
{
    cluster_allocation slurm = { .slurm = true, .id = "4803" };
    cluster_notice notice = CLUSTER_NOTICE_SIGNAL;
    char text[1000], state[CLUSTER_TEXT_BYTES];

    snprintf(text, sizeof(text), "#!/bin/sh\n[ \"$SLURM_TIME_FORMAT\" = %%s ] || exit 1\n%s\n", line);
    if (gp_file_write(scratch_path("squeue"), text, strlen(text), &err) != GP_OK ||
        chmod(scratch_path("squeue"), 0700) != 0)
        abort();
    snprintf(text, sizeof(text), "%s:/usr/bin:/bin", scratch_dir);
    setenv("PATH", text, 1);
    return cluster_allocation_notice(&notice, state, &slurm, &err) == GP_OK ? notice : (cluster_notice)99;
}

TEST(reason_of_a_notice_comes_from_slurm)
{
    CHECK_INT(CLUSTER_NOTICE_PREEMPTED, notice_for("echo \"RUNNING $(($(date +%s) + 30)) $(date +%s)\""));
    CHECK_INT(CLUSTER_NOTICE_TIME_LIMIT, notice_for("echo \"RUNNING $(($(date +%s) + 360)) N/A\""));
    CHECK_INT(CLUSTER_NOTICE_SIGNAL, notice_for("echo \"RUNNING $(($(date +%s) + 3600)) N/A\""));
    CHECK_INT(CLUSTER_NOTICE_SIGNAL, notice_for("echo 'RUNNING N/A N/A'"));
    CHECK_INT(CLUSTER_NOTICE_ENDING, notice_for("echo \"COMPLETING $(date +%s) N/A\""));
    CHECK_INT(99, notice_for("echo RUNNING"));
    CHECK_INT(99, notice_for("exit 1"));
}

TEST(process_is_limited_to_the_granted_cores)
{
    cluster_allocation one = { .cores = 1 };
    cpu_set_t allowed, before;

    REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
    REQUIRE_OK(cluster_allocation_bind(&one, &err), err);
    REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    CHECK_INT(1, CPU_COUNT(&allowed));
    sched_setaffinity(0, sizeof(before), &before);
    one.cores = 0;
    REQUIRE_OK(cluster_allocation_bind(&one, &err), err);
    REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    CHECK(CPU_EQUAL(&before, &allowed));
}
