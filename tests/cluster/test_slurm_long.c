/* test_slurm_long.c: the tests on a real Slurm that take minutes. tests/cluster/run builds and runs
 * them; ctest does not. */
#include "tests/cluster/slurm_stage.h"

#define TRAINING(checkpoints)                                                                                \
    "train", "--network", "lenet", "--data", "digits:1280", "--epochs", "100000", "--lr", "0.05",            \
        "--checkpoint-frequency", "1000", "--checkpoint-path", checkpoints

/* Wait until the second attempt takes steps, check that it began with the step after the last one
 * of the first attempt, and cancel the job. */
static void check_continued(const job *j, const char *reason)
{
    int stopped, first, last;

    for (int i = 0; i < 20000 && !(job_facts(j).attempt == 2 && job_facts(j).begun); i++)
        gp_sleep_ms(10);
    CHECK_TEXT(reason, job_facts(j).attempt_reason);
    stopped = job_noted_step(j, "\nstopped after ");
    REQUIRE(stopped > 0);
    REQUIRE(job_wait_step(j, stopped + 1));
    CHECK_INT(stopped, job_noted_step(j, "\nresumed after step "));
    CHECK(job_steps(j, &first, &last));
    CHECK_INT(1, first);
    printf("     requeued after step %d\n", stopped);
    REQUIRE_OK(cluster_folder_cancel(j->folder, &err), err);
    CHECK_INT(0, shell("scancel %s", j->id));
    CHECK(job_wait(j, CLUSTER_ENTRY_ENDED));
    CHECK(attempt_wait_gone(j, 2));
    CHECK_TEXT("canceled", job_facts(j).reason);
}

/* Slurm sends the notice itself, and starts the job again two minutes after the requeue. */
TEST(slurm_ends_a_training_at_its_time_limit_and_starts_it_again)
{
    job j;

    CLUSTER();
    SUBMIT(&j, "--nodelist=n1", "1m", TRAINING("limit"));
    REQUIRE(job_wait_step(&j, 5));
    for (int i = 0; i < 12000 && strstr(job_read(&j, "attempts/1/end.json"), "reason") == NULL; i++)
        gp_sleep_ms(10);
    REQUIRE(job_wait(&j, CLUSTER_ENTRY_QUEUED));
    check_continued(&j, "time limit");
}

/* Without a grace time, Slurm requeues the job itself. The training has the time of KillWait. */
TEST(training_that_is_preempted_without_grace_stops_with_a_checkpoint)
{
    job j;

    CLUSTER();
    CHECK_INT(0, shell("scontrol update PartitionName=main GraceTime=0"));
    SUBMIT(&j, "--nodelist=n1", "10m", TRAINING("grace"));
    REQUIRE(job_wait_step(&j, 20));
    CHECK_INT(0, shell("sbatch --quiet --partition=urgent --nodelist=n1 --cpus-per-task=2 --output=/dev/null "
                       "--wrap 'sleep 0.1'"));
    REQUIRE(job_restart(&j));
    check_continued(&j, "ended by the engine (COMPLETING)");
    CHECK_INT(0, shell("scontrol update PartitionName=main GraceTime=30"));
}

/* slurmctld does not run when the notice arrives; the attempt repeats its request until it does. */
TEST(job_is_requeued_when_slurmctld_is_back)
{
    job j;

    CLUSTER();
    SUBMIT(&j, NULL, "10m", TRAINING("controller"));
    REQUIRE(job_wait_step(&j, 20));
    CHECK_INT(0, shell("kill $(cat cluster/ctld.pid); while [ -e cluster/ctld.pid ]; do sleep 0.1; done"));
    attempt_signal(&j, 1, SIGTERM); /* to all processes, as Slurm does */
    gp_sleep_ms(20000);
    CHECK_TEXT("", job_read(&j, "result.json"));
    CHECK_INT(0, shell("slurmctld -f $SLURM_CONF"));
    REQUIRE(job_restart(&j));
    check_continued(&j, "signal");
}
