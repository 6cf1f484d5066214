/* test_slurm_long.c: the tests on a real Slurm that take minutes. tests/cluster/run builds and runs
 * them; ctest does not. */
#include <time.h>

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
    for (int i = 0; i < 12000 && strstr(folder_read(j.folder, "attempts/1/end.json"), "reason") == NULL; i++)
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
    CHECK_TEXT("", folder_read(j.folder, "result.json"));
    CHECK_INT(0, shell("slurmctld -f $SLURM_CONF"));
    REQUIRE(job_restart(&j));
    check_continued(&j, "signal");
}

/* The controller stops before the launch: sbatch cannot reach it, so the outcome is unknown. */
TEST(job_is_launched_once_when_the_controller_is_back)
{
    CLUSTER();
    commands_begin();
    CHECK_INT(0, shell("kill $(cat cluster/ctld.pid); while [ -e cluster/ctld.pid ]; do sleep 0.05; done"));
    shell("timeout --signal=KILL 3 $G submit --profile hpc --directory %s/work -- train --network lenet "
          "--data digits:1280 --epochs 1 --checkpoint-path once > id",
          scratch_dir);
    CHECK_INT(0, shell("slurmctld -f $SLURM_CONF"));
    CHECK_INT(0, shell("for i in $(seq 300); do $G jobs --profile hpc > listed 2> /dev/null; "
                       "grep -q 'hpc:[0-9]' listed && break; sleep 0.2; done; sed -n "
                       "'s/^\\(hpc:[0-9]*\\).*/\\1/p' listed > id; "
                       "[ \"$(wc -l < id)\" = 1 ] || { cat listed; false; }"));
    CHECK_INT(0, shell("$G wait $(cat id)"));
    CHECK_INT(0, shell("[ $(find jobs -name command.json | xargs grep -l once | wc -l) = 1 ]"));
}

/* The controller accepts connections for 60 s, but does not reply. Then it reads all requests that
 * wait, also those of commands that have given up. */
TEST(controller_without_replies_gets_one_job)
{
    CLUSTER();
    commands_begin();
    CHECK_INT(0, shell("kill -STOP $(cat cluster/ctld.pid)"));
    CHECK_INT(0, shell("{ $G submit --profile hpc --directory %s/work -- train --network lenet --data "
                       "digits:1280 --epochs 1 --checkpoint-path silent > id 2> errors; echo $? > code; } & "
                       "sleep 30; $G jobs --profile hpc > listed 2>&1; sleep 30; kill -CONT $(cat "
                       "cluster/ctld.pid); wait; [ -s code ]",
                       scratch_dir));
    CHECK_INT(0,
              shell("for i in $(seq 60); do $G jobs --profile hpc --all > listed 2> errors; grep -q "
                    "'^hpc:[0-9]* *done' "
                    "listed && break; sleep 1; done; [ $(grep -c '^hpc:[0-9]* *done' listed) = 1 ] || { cat "
                    "listed errors code; squeue --states=all; false; }"));
    CHECK_INT(0, shell("[ $(find jobs -name command.json | xargs grep -l silent | wc -l) = 1 ]"));
    CHECK_INT(
        0,
        shell(
            "for i in $(seq 300); do squeue --noheader > queue; [ -s queue ] || break; sleep 0.1; done; cat "
            "queue; [ ! -s queue ]"));
    CHECK_INT(0,
              shell("name=$(basename $(dirname $(find jobs -name command.json | xargs grep -l silent))); ls "
                    "jobs/$name/attempts | wc -l > attempts; [ $(cat attempts) = 1 ]"));
}

/* The commands run in a network without hosts, which drops their packets to the controller. Its own
 * address is there because sbatch resolves no names without one. */
TEST(unreachable_controller_gets_one_job_later)
{
    CLUSTER();
    commands_begin();
    if (shell("unshare -rn true 2> errors") != 0)
        SKIP("no network namespaces for users here");
    CHECK_INT(
        0,
        shell("sed 's/(127.0.0.1)/(192.0.2.1)/' cluster/slurm.conf > far.conf; cat > far <<'END'\n"
              "ip link set lo up && ip addr add 198.51.100.1/32 dev lo && ip route add 192.0.2.0/24 dev lo\n"
              "export SLURM_CONF=$PWD/far.conf\n"
              "timeout --signal=KILL 60 $G submit --profile hpc --directory $PWD/work -- train "
              "--network lenet --data digits:1280 --epochs 1 --checkpoint-path far > id\n"
              "timeout --signal=KILL 60 $G jobs --profile hpc > listed\nEND"));
    CHECK_INT(0,
              shell("unshare -rn sh far 2> errors; grep -q 'queued *unknown' listed && ! grep -q 'hpc:[0-9]' "
                    "listed || { cat listed errors; false; }"));
    CHECK_INT(0,
              shell("for i in $(seq 60); do $G jobs --profile hpc --all > listed 2> errors; grep -q "
                    "'^hpc:[0-9]* *done' listed && break; sleep 1; done; name=$(basename $(dirname $(find "
                    "jobs -name command.json | xargs grep -l '\"far\"'))); [ $(ls jobs/$name/attempts | wc "
                    "-l) = 1 ] && [ -z \"$(squeue --noheader)\" ] || { cat listed errors; squeue; false; }"));
}

/* ---- random kills ---- */

static unsigned long state;

/* Return a random number below `count` (a linear congruential generator; the seed is printed). */
static unsigned below(unsigned count)
{
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(state >> 33) % count;
}

/* List the processes of all jobs: attempts, pools and commands. Return their number. */
static int job_processes(int pids[PROCESSES_MAX])
{
    static char text[1 << 16];
    char folder[64];
    DIR *all = opendir("/proc");
    int count = 0;

    snprintf(folder, sizeof(folder), "%s/jobs/gp-", scratch_dir);
    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        int pid = atoi(entry->d_name);

        for (int i = 0; pid > 1 && count < PROCESSES_MAX && i < 2; i++) {
            ssize_t got = leftovers_read(pid, i == 0 ? "cmdline" : "environ", text, sizeof(text));

            if (got > 0 && memmem(text, (size_t)got, folder, strlen(folder)) != NULL) {
                pids[count++] = pid;
                break;
            }
        }
    }
    if (all != NULL)
        closedir(all);
    return count;
}

static void kill_one(void)
{
    int pids[PROCESSES_MAX], count;

    switch (below(20)) {
    case 0:
    case 1:
        shell("timeout --signal=KILL 0.0%u $G submit --profile hpc --directory %s/work -- train --network "
              "lenet "
              "--data digits:1280 --epochs %u --checkpoint-path ck%u > out 2>&1",
              below(90) + 5, scratch_dir, 5 + below(40), below(1000000));
        break;
    case 2:
    case 3:
    case 4:
    case 5:
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
        count = job_processes(pids);
        if (count > 0)
            kill(pids[below((unsigned)count)], SIGKILL);
        break;
    case 6:
        shell("kill -9 $(cat cluster/ctld.pid); slurmctld -f $SLURM_CONF > out 2>&1");
        gp_sleep_ms(4000); /* it schedules no job in its first three seconds */
        break;
    case 7:
        shell("n=n%u; kill -9 $(cat cluster/slurmd.$n.pid); slurmd -f $SLURM_CONF -N $n > out 2>&1",
              1 + below(2));
        break;
    default:
        shell("timeout --signal=KILL 0.%u $G jobs --profile hpc > out 2>&1", 1 + below(9));
        break;
    }
    gp_sleep_ms(100 + below(900));
}

/* GP_KILLS=N: number of kills [40]; GP_SEED=N: seed. */
TEST(cancel_leaves_nothing_after_random_kills)
{
    const char *kills = getenv("GP_KILLS"), *seed = getenv("GP_SEED");
    int pids[PROCESSES_MAX], left = -1;

    CLUSTER();
    commands_begin();
    state = seed != NULL ? strtoul(seed, NULL, 10) : (unsigned long)time(NULL);
    printf("     GP_SEED=%lu\n", state);
    for (int i = kills != NULL ? atoi(kills) : 40; i > 0; i--) {
        if (i % 10 == 0)
            shell("$G submit --profile hpc --directory %s/work -- train --network lenet --data digits:1280 "
                  "--epochs %u "
                  "--checkpoint-path ck-%d > out 2>&1",
                  scratch_dir, 5 + below(40), i);
        kill_one();
        /* A controller that lost its last seconds gives ids again, for which Slurm drains nodes. */
        if (i % 5 == 0)
            shell("scontrol update NodeName=n[1-2] State=RESUME > out 2>&1");
    }
    shell("scontrol ping > out || slurmctld -f $SLURM_CONF; for n in n1 n2; do kill -0 $(cat "
          "cluster/slurmd.$n.pid) "
          "2> /dev/null || slurmd -f $SLURM_CONF -N $n; done");
    /* every job that a command has written to disk is listed, and canceled */
    for (int i = 0;
         i < 60 && shell("$G jobs --profile hpc 2> errors | sed -n 's/^\\(hpc:[^ ]*\\).*/\\1/p' > open; "
                         "[ -s open ]") == 0;
         i++) {
        shell("xargs -n 1 $G cancel < open > out 2>&1");
        gp_sleep_ms(500);
    }
    CHECK_INT(
        0, shell("[ ! -s open ] || { cat open errors out; squeue --states=all; tail -n 30 cluster/log/ctld; "
                 "for id in $(cat open); do cat jobs/$(echo $id | tr : -)/record.json; done; false; }"));
    /* A slurmctld that was killed recovers an older state, with jobs that have ended. */
    CHECK_INT(0, shell("for i in $(seq 200); do squeue --noheader --format='%%i %%j %%T' > queue; [ -s queue "
                       "] || break; "
                       "sleep 1; $G jobs --profile hpc > out 2>&1; done; [ ! -s queue ] || { cat queue out; "
                       "sinfo -R; scontrol show job; tail -n 50 cluster/log/ctld; false; }"));
    for (int i = 0; i < 600 && (left = job_processes(pids)) > 0; i++)
        gp_sleep_ms(50);
    CHECK_INT(0, left);
    CHECK_INT(0, shell("for log in $(ls jobs/gp-*/log); do [ $(grep -c '^finished after' $log) -le 1 ] || "
                       "echo $log; done "
                       "> twice; cat twice; [ ! -s twice ]"));
    /* a part of the jobs has run, or nothing was tested */
    CHECK_INT(
        0,
        shell("jobs=$(ls -d jobs/gp-* | wc -l); attempts=$(ls -d jobs/gp-*/attempts/* | wc -l); echo \"    "
              " $jobs jobs, $attempts attempts\"; [ $((5 * attempts)) -ge $jobs ]"));
}
