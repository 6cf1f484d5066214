/* test_slurm.c: jobs on a real slurmctld and two slurmd. */
#include "tests/cluster/slurm_stage.h"

/* 200 steps: 20 epochs of ten steps. */
#define TRAINING(checkpoints)                                                                                \
    "train", "--network", "lenet", "--data", "digits:1280", "--epochs", "20", "--lr", "0.05",                \
        "--checkpoint-path", checkpoints
enum { STEPS = 200 };

#define LONG_TRAINING(checkpoints)                                                                           \
    "train", "--network", "lenet", "--data", "digits:1280", "--epochs", "10000", "--lr", "0.05",             \
        "--checkpoint-frequency", "5", "--checkpoint-frequency-unit", "iteration", "--checkpoint-path",      \
        checkpoints

/* Check that a job ran in two attempts, which took all steps once. Return the last step of the
 * first attempt. */
static int check_two_attempts(const job *j, const char *reason)
{
    cluster_facts facts = job_facts(j);
    int first, last, stopped = job_noted_step(j, "\nstopped after ");

    CHECK_INT(2, facts.attempt);
    CHECK_TEXT(reason, facts.attempt_reason);
    CHECK(facts.has_result);
    CHECK_INT(0, facts.exit_code);
    CHECK_INT(2, facts.result_attempt);
    CHECK(job_steps(j, &first, &last));
    CHECK_INT(1, first);
    CHECK_INT(STEPS, last);
    CHECK(stopped > 0);
    CHECK_INT(stopped, job_noted_step(j, "\nresumed after step "));
    CHECK_CONTAINS(job_read(j, "log"), "== attempt 2 on n");
    return stopped;
}

static job reference;

/* Other tests compare their models with that of this job. */
TEST(job_runs_and_leaves_its_result)
{
    cluster_entry entry;
    cluster_facts facts;
    int first, last;

    CLUSTER();
    setenv("GP_TEST_CANARY", "canary-0f9e", 1);
    SUBMIT(&reference, NULL, "10m", TRAINING("reference"));
    CHECK(job_wait(&reference, CLUSTER_ENTRY_ENDED));
    REQUIRE(job_find(&reference, &entry));
    CHECK_TEXT("COMPLETED", entry.text);
    facts = job_facts(&reference);
    CHECK_INT(1, facts.attempt);
    CHECK(facts.begun && facts.has_result);
    CHECK_INT(0, facts.exit_code);
    CHECK_TEXT("finished", facts.reason);
    CHECK(facts.host[0] == 'n');
    CHECK(job_steps(&reference, &first, &last));
    CHECK_INT(STEPS, last);
    CHECK_CONTAINS(job_read(&reference, "log"), "2 workers");
    /* no variable of the submitting user and no secret in the files */
    CHECK_INT(1, shell("grep -r canary-0f9e jobs cluster/state cluster/spool.* cluster/log"));
    CHECK_INT(
        0,
        shell(
            "find jobs/gp-* -maxdepth 0 -perm /077 > open; find jobs -path '*/attempts*' -perm /077 >> open; "
            "cd jobs/gp-* && find log command.json result.json newest engine.out -perm /077 >> ../../open"));
    CHECK_INT(0, shell("cat open; ! [ -s open ]"));
}

/* One job is pre-empted on n1 while the other reaches its time limit on n2. scancel sends the
 * notice of the time limit here, because slurmctld checks limits every 30 s only; the long test
 * waits for it. The processes are suspended until the notice, so that no training ends before. */
TEST(requeued_trainings_lose_no_step_and_end_bitwise_identical)
{
    job preempted, limited;

    CLUSTER();
    SUBMIT(&preempted, "--nodelist=n1", "10m", TRAINING("preempted"));
    REQUIRE(job_wait_step(&preempted, 20));
    attempt_signal(&preempted, 1, SIGSTOP); /* Slurm sends SIGCONT with the notice */
    CHECK_INT(0, shell("sbatch --quiet --partition=urgent --nodelist=n1 --cpus-per-task=2 --output=/dev/null "
                       "--wrap 'sleep 0.1'"));
    SUBMIT(&limited, "--nodelist=n2", "10m", TRAINING("limited"));
    REQUIRE(job_wait_step(&limited, 20));
    attempt_signal(&limited, 1, SIGSTOP);
    CHECK_INT(
        0, shell("scontrol update JobId=%s TimeLimit=1 && scancel --signal=TERM %s", limited.id, limited.id));
    attempt_signal(&limited, 1, SIGCONT);
    REQUIRE(job_wait(&limited, CLUSTER_ENTRY_QUEUED));
    CHECK_INT(0, shell("scontrol update JobId=%s TimeLimit=10", limited.id));
    REQUIRE(job_restart(&preempted));
    REQUIRE(job_restart(&limited));
    REQUIRE(job_wait(&preempted, CLUSTER_ENTRY_ENDED));
    REQUIRE(job_wait(&limited, CLUSTER_ENTRY_ENDED));
    printf("     pre-empted after step %d\n", check_two_attempts(&preempted, "pre-emption"));
    printf("     time limit after step %d\n", check_two_attempts(&limited, "time limit"));
    CHECK_INT(0, shell("cmp %s/result/model.onnx %s/result/model.onnx", preempted.folder, reference.folder));
    CHECK_INT(0, shell("cmp %s/result/model.onnx %s/result/model.onnx", limited.folder, reference.folder));
}

TEST(canceled_job_leaves_no_processes_and_no_local_files)
{
    cluster_entry entry;
    cluster_facts facts;
    char local[256];
    const char *at;
    job j;

    CLUSTER();
    SUBMIT(&j, NULL, "10m", LONG_TRAINING("canceled"));
    REQUIRE(job_wait_step(&j, 5));
    at = strstr(job_read(&j, "job.json"), "\"pid\"");
    REQUIRE(at != NULL);
    CHECK_INT(0, shell("tr '\\0' '\\n' < /proc/%d/environ | sed -n 's/^GRADPOOL_STATE_DIR=//p' > local",
                       atoi(at + 7)));
    REQUIRE_OK(cluster_folder_cancel(j.folder, &err), err);
    REQUIRE(job_find(&j, &entry));
    REQUIRE_OK(cluster_engine_slurm.cancel(&profile, &entry, &err), err);
    REQUIRE(job_wait(&j, CLUSTER_ENTRY_ENDED));
    CHECK(attempt_wait_gone(&j, 1));
    facts = job_facts(&j);
    CHECK(facts.has_result);
    CHECK_INT(130, facts.exit_code);
    CHECK_TEXT("canceled", facts.reason);
    FILE *file = fopen(scratch_path("local"), "r");

    REQUIRE(file != NULL && fgets(local, sizeof(local), file) != NULL && local[0] == '/');
    fclose(file);
    local[strcspn(local, "\n")] = '\0';
    CHECK(access(local, F_OK) != 0);
    /* a repeated cancel is harmless */
    CHECK_STATUS(GP_OK, cluster_engine_slurm.cancel(&profile, &entry, &err));
}

/* A user who calls scancel does not get the job back from the queue. */
TEST(scancel_does_not_requeue_the_job)
{
    cluster_entry entry;
    job j;

    CLUSTER();
    SUBMIT(&j, NULL, "10m", LONG_TRAINING("scancel"));
    REQUIRE(job_wait_step(&j, 5));
    CHECK_INT(0, shell("scancel %s", j.id));
    REQUIRE(job_wait(&j, CLUSTER_ENTRY_ENDED));
    REQUIRE(job_find(&j, &entry));
    CHECK_TEXT("CANCELLED", entry.text);
    CHECK(!job_facts(&j).has_result);
    CHECK(attempt_wait_gone(&j, 1));
}

/* Node n1 fails from Slurm's point of view, but its processes are only suspended. They resume while
 * the second attempt runs on n2. */
TEST(suspended_attempt_writes_nothing_after_a_requeue)
{
    char list[1200];
    int last, stepped = 0;
    job j;

    CLUSTER();
    SUBMIT(&j, NULL, "10m", LONG_TRAINING("fenced"));
    REQUIRE(job_wait_step(&j, 20));
    CHECK(strcmp(job_facts(&j).host, "n1") == 0);
    CHECK_INT(0, shell("kill -9 $(cat cluster/slurmd.n1.pid)"));
    CHECK(attempt_signal(&j, 1, SIGSTOP) >= 5); /* attempt, scheduler, two workers, command */
    CHECK_INT(0, shell("scontrol update NodeName=n1 State=DOWN Reason=test"));
    REQUIRE(job_restart(&j));
    REQUIRE(job_wait(&j, CLUSTER_ENTRY_RUNNING));
    for (int i = 0; i < 1000 && (job_facts(&j).attempt < 2 || !job_facts(&j).begun); i++)
        gp_sleep_ms(10);
    last = attempt_last_step(&j, 1);
    CHECK(last >= 20);
    REQUIRE(job_wait_step(&j, last + 5));
    CHECK_TEXT("n2", job_facts(&j).host);
    /* suspend the second attempt, so that every change would be one of the first */
    CHECK(attempt_signal(&j, 2, SIGSTOP) >= 5);
    gp_sleep_ms(100);
    /* without temporary files: a writer that finds itself outdated removes its own */
    snprintf(list, sizeof(list),
             "find %s work/fenced -path %s/attempts/1 -prune -o -type f ! -name '.tmp-*' "
             "-printf '%%p %%s %%T@ %%i\\n'",
             j.folder, j.folder);
    CHECK_INT(0, shell("%s > before", list));
    /* The training resumes and tries to write a checkpoint every five steps, while the process of
     * the attempt cannot end it. */
    attempt_signal_pool(&j, 1, SIGCONT);
    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms && stepped < last + 25; gp_sleep_ms(20))
        stepped = attempt_last_step(&j, 1);
    CHECK(stepped >= last + 25);
    CHECK_INT(0, shell("%s > during", list));
    CHECK_INT(0, shell("diff before during"));
    attempt_signal(&j, 1, SIGCONT);
    CHECK(attempt_wait_gone(&j, 1));
    CHECK_INT(0, shell("%s > after", list));
    CHECK_INT(0, shell("diff before after"));
    CHECK_CONTAINS(job_read(&j, "attempts/1/end.json"), "a newer attempt has begun");
    attempt_signal(&j, 2, SIGCONT);
    CHECK_INT(0, shell("scancel %s", j.id));
    CHECK(job_wait(&j, CLUSTER_ENTRY_ENDED));
    CHECK(attempt_wait_gone(&j, 2));
    CHECK_INT(0, shell("slurmd -f $SLURM_CONF -N n1 2> /dev/null")); /* ReturnToService makes n1 usable */
}

TEST(commands_submit_follow_and_cancel_a_job)
{
    CLUSTER();
    commands_begin();
    CHECK_INT(0,
              shell("$G submit --profile hpc --directory %s/work -- train --network lenet --data digits:1280 "
                    "--epochs 2 --checkpoint-path commands > id && grep -q '^hpc:[0-9]*$' id",
                    scratch_dir));
    CHECK_INT(0, shell("$G wait $(cat id) && $G logs $(cat id) | grep -q 'finished after 20 steps'"));
    CHECK_INT(0, shell("$G jobs --profile hpc --all | grep \"$(cat id) *done\""));
    CHECK_INT(0,
              shell("$G submit --profile hpc --directory %s/work -- train --network lenet --data digits:1280 "
                    "--epochs 10000 --checkpoint-path canceled2 > id",
                    scratch_dir));
    CHECK_INT(0, shell("for i in $(seq 300); do $G logs $(cat id) 2> /dev/null | grep -q Epoch && break; "
                       "sleep 0.05; done; $G cancel $(cat id)"));
    CHECK_INT(130, shell("$G wait $(cat id)"));
    CHECK_INT(0, shell("[ -z \"$(squeue --noheader)\" ]"));
}
