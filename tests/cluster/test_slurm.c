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
    CHECK_CONTAINS(folder_read(j->folder, "log"), "== attempt 2 on n");
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
    CHECK_CONTAINS(folder_read(reference.folder, "log"), "2 workers");
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
    at = strstr(folder_read(j.folder, "job.json"), "\"pid\"");
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
    CHECK_CONTAINS(folder_read(j.folder, "attempts/1/end.json"), "a newer attempt has begun");
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

/* Check that `cluster validate` fails in a stage and names the cause and the fix. */
#define CHECK_VALIDATE(options, stage, cause, fix)                                                           \
    CHECK_INT(0, shell(options "$G cluster validate hpc > checked 2> errors; [ $? = 1 ] && grep -q '^" stage \
                               "  *FAILED .*" cause "' checked && grep -q 'fix: " fix "' checked || { cat "  \
                               "checked errors; false; }"))

/* tests/service/test_cluster_validate.c has the faults that do not depend on Slurm. */
TEST(validate_names_the_stage_and_a_fix_that_works)
{
    CLUSTER();
    commands_begin();
    CHECK_INT(0, shell("cp config/gradpool/hpc.conf good; echo 'gpus = 2' >> config/gradpool/hpc.conf"));
    CHECK_VALIDATE("", "allocation", "node configuration is not available", "lower .gpus.");
    CHECK_INT(1, shell("$G cluster validate hpc --no-job > checked; code=$?; grep -q '^allocation *FAILED' "
                       "checked && exit $code"));
    CHECK_INT(0,
              shell("cp good config/gradpool/hpc.conf; printf 'account = closed\\npartition = urgent\\n' >> "
                    "config/gradpool/hpc.conf; scontrol update PartitionName=urgent AllowAccounts=research"));
    CHECK_VALIDATE("", "allocation", "account not known", "set .account. and .partition.");
    CHECK_INT(0, shell("scontrol update PartitionName=urgent AllowAccounts=ALL"));
    CHECK_INT(0, shell("sed 's|^gradpool .*|gradpool = /nowhere/gradpool|' good > config/gradpool/hpc.conf"));
    CHECK_VALIDATE("", "build", "/nowhere/gradpool: No such file", "install gradpool on the hosts");
    /* the nodes search for scontrol in the PATH of this host */
    CHECK_INT(0,
              shell("cp good config/gradpool/hpc.conf; mkdir -p few; for p in sbatch squeue scancel srun; do "
                    "ln -sf $(command -v $p) few; done"));
    CHECK_VALIDATE("PATH=$PWD/few ", "notice", "no program .scontrol.",
                   "install the commands of Slurm on the");
    CHECK_INT(
        0, shell("$G cluster validate hpc > checked && grep -q '^notice *PASSED *stopped after' checked && "
                 "grep -q '^end *PASSED' checked || { cat checked; false; }"));
    CHECK_INT(0, shell("[ -z \"$(squeue --noheader)\" ]"));
}

/* A program of the jobs, and a munged of this host, whose clocks run ten minutes ahead. */
TEST(validate_names_a_clock_that_differs)
{
    CLUSTER();
    commands_begin();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("the libraries of sanitizers must be loaded first");
#endif
    CHECK_INT(0,
              shell("cp config/gradpool/hpc.conf good; sed \"s|^gradpool .*|gradpool = $PWD/ahead|\" good > "
                    "config/gradpool/hpc.conf; printf '#!/bin/sh\nLD_PRELOAD=%s exec %%s \"$@\"\n' $G > "
                    "ahead; chmod +x ahead",
                    CLOCK_AHEAD));
    CHECK_VALIDATE("", "allocation", "the clock of n[12] is .* s ahead of this host",
                   "set the clocks of both by");
    CHECK_INT(0,
              shell("cp good config/gradpool/hpc.conf; mkdir -m 700 munge; cp cluster/munge/key munge; sed "
                    "\"s|socket=.*|socket=$PWD/munge/sock|\" cluster/slurm.conf > here.conf; printf "
                    "'#!/bin/sh\nmunged --force --key-file=munge/key --socket=munge/sock "
                    "--pid-file=munge/pid --log-file=munge/log --seed-file=munge/seed\n' > start; sed -i "
                    "\"s|munge/|$PWD/munge/|g\" start"));
    CHECK_INT(0, shell("LD_PRELOAD=%s sh start", CLOCK_AHEAD));
    CHECK_VALIDATE("SLURM_CONF=$PWD/here.conf ", "engine", "Zero Bytes\\|uthentication",
                   "set the clocks of this host and of the controller");
    /* with this clock it would not exit at SIGTERM for ten minutes */
    CHECK_INT(
        0, shell("kill -KILL $(cat munge/pid); for i in $(seq 500); do kill -0 $(cat munge/pid) 2> errors || "
                 "break; sleep 0.02; done; sh start"));
    CHECK_INT(0,
              shell("SLURM_CONF=$PWD/here.conf $G cluster validate hpc --no-job > checked || { cat checked; "
                    "false; }"));
    CHECK_INT(0, shell("kill $(cat munge/pid)"));
}

/* This host mounts another file system over the folder, so the nodes do not see its files. The
 * profile of the other tests has a folder that both see. */
TEST(validate_names_a_folder_that_the_nodes_do_not_see)
{
    CLUSTER();
    commands_begin();
    if (shell("unshare -Um --map-current-user --keep-caps true 2> errors") != 0)
        SKIP("no mount namespaces for users here");
    CHECK_INT(0, shell("mkdir mine; sed -i \"s|^folder .*|folder = $PWD/mine|\" config/gradpool/hpc.conf"));
    CHECK_VALIDATE(
        "unshare -Um --map-current-user --keep-caps sh -c 'mount -t tmpfs none mine && exec \"$@\"' - ",
        "allocation", "wrote nothing to its folder in .*/mine",
        "set .folder. in the profile to a path that this host and");
}

/* sbatch starts before the record is on disk. It has no script yet when `submit` is killed. */
TEST(submit_that_is_killed_before_the_launch_launches_nothing)
{
    CLUSTER();
    commands_begin();
    CHECK_INT(
        0,
        shell("GRADPOOL_FAULT=cluster-recorded:1:kill $G submit --profile hpc -- spmd -n 1 -- touch ran 2> "
              "errors; [ $? = 137 ] || { cat errors; false; }"));
    /* until that sbatch, which has a session of its own, has exited */
    CHECK_INT(0, shell("for i in $(seq 500); do live=; for pid in $(pgrep -x sbatch); do grep -qz "
                       "\"^SLURM_CONF=$SLURM_CONF$\" /proc/$pid/environ 2> /dev/null && live=1; done; "
                       "[ -z \"$live\" ] && break; sleep 0.02; done; [ -z \"$live\" ]"));
    CHECK_INT(0, shell("[ $(ls -d jobs/gp-* | wc -l) -ge 1 ] && [ -z \"$(squeue --noheader --states=all "
                       "--format=%%j | grep -Fx \"$(cd jobs; ls -dt gp-* | head -n 1)\")\" ]"));
}

/* A worker is suspended in step 50, so that the notice arrives in this step. */
TEST(fifty_steps_before_and_after_a_requeue_equal_a_hundred)
{
    const char *const words[] = { "train",       "--network", "lenet", "--data",
                                  "digits:1280", "--epochs",  "10",    "--checkpoint-path" };
    int stopped = 0, pids[PROCESSES_MAX];
    job whole, halves;

    CLUSTER();
    SUBMIT(&whole, NULL, "10m", words[0], words[1], words[2], words[3], words[4], words[5], words[6],
           words[7], "whole");
    REQUIRE(job_wait(&whole, CLUSTER_ENTRY_ENDED));
    setenv("GRADPOOL_FAULT", "forward:50:stop@1", 1);
    SUBMIT(&halves, NULL, "10m", words[0], words[1], words[2], words[3], words[4], words[5], words[6],
           words[7], "halves");
    unsetenv("GRADPOOL_FAULT");
    REQUIRE(job_wait_step(&halves, 10));
    for (int i = 0; i < 500 && stopped == 0; i++, gp_sleep_ms(10)) {
        int count = attempt_processes(&halves, 1, pids);

        for (int n = 0; n < count; n++)
            stopped += shell("grep -q '^State:.*stopped' /proc/%d/status", pids[n]) == 0;
    }
    CHECK_INT(1, stopped);
    CHECK_INT(0, shell("scancel --signal=TERM %s", halves.id));
    gp_sleep_ms(300); /* until the training has received its stop request */
    attempt_signal(&halves, 1, SIGCONT);
    REQUIRE(job_restart(&halves));
    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms && !job_facts(&halves).has_result;
         gp_sleep_ms(50))
        attempt_signal(&halves, 2, SIGCONT); /* its step 50 is the last one */
    REQUIRE(job_wait(&halves, CLUSTER_ENTRY_ENDED));
    CHECK_INT(50, job_noted_step(&halves, "\nstopped after "));
    CHECK_INT(50, job_noted_step(&halves, "\nresumed after step "));
    CHECK_INT(0, shell("cmp %s/result/model.onnx %s/result/model.onnx", whole.folder, halves.folder));
}

/* The value of a variable that --env names is in the environment of the job and in command.json,
 * which only the user can read. */
TEST(values_of_env_are_shown_to_no_other_user)
{
    CLUSTER();
    commands_begin();
    setenv("GP_TEST_TOKEN", "canary-71c4", 1);
    CHECK_INT(0,
              shell("$G submit --profile hpc --env GP_TEST_TOKEN --directory %s/work -- spmd -n 1 -- sh -c "
                    "'printenv GP_TEST_TOKEN > %s/token; exec sleep 60' > id",
                    scratch_dir, scratch_dir));
    unsetenv("GP_TEST_TOKEN");
    /* The pattern is in a file, since it must not be in the words of a process. */
    CHECK_INT(0, shell("printf 'canary-%%s' 71c4 > pattern; for i in $(seq 500); do [ -s token ] && break; "
                       "sleep 0.02; done; grep -qf pattern token"));
    CHECK_INT(
        0,
        shell("ID=$(sed 's/hpc://' id); { scontrol show job $ID; scontrol write batch_script $ID -; "
              "squeue --format=%%all; squeue --Format=Comment:99,AdminComment:99,Command:99; cat "
              "/proc/[0-9]*/cmdline; cat jobs/hpc-$ID/log jobs/hpc-$ID/engine.out "
              "jobs/hpc-$ID/record.json; } 2> /dev/null > shown; [ -s shown ] && ! grep -af pattern shown"));
    /* nor is it in the environment of a process outside the job, or in the files of Slurm */
    CHECK_INT(
        0,
        shell("for p in slurmctld slurmd slurmstepd munged srun sbatch; do for pid in $(pgrep -x $p); do "
              "cat /proc/$pid/environ; done; done 2> /dev/null > shown; [ -s shown ] && ! grep -aqf pattern "
              "shown && ! grep -arf pattern cluster"));
    CHECK_INT(0, shell("grep -lrf pattern jobs > found; cat found; [ $(wc -l < found) = 1 ] && grep -q "
                       "'/command.json$' found && [ $(stat -c %%a $(cat found)) = 600 ]"));
    CHECK_INT(0, shell("$G cancel $(cat id)"));
}
