/* test_cluster_jobs.c: submit, jobs, logs, wait, cancel and report for jobs of a cluster. The
 * engine is `command` with tests/fake/spool.py, which runs jobs as processes of this host. */
#include <dirent.h>

#include "tests/service/spool.h"

static gp_profile profile;

TEARDOWN()
{
    unsetenv("GRADPOOL_FAULT");
    unsetenv("XDG_CONFIG_HOME");
    pools_end();
}

#define TRAIN                                                                                                \
    "train", "--network", "lenet", "--data", "digits:200", "--epochs", "1", "--checkpoint-path", "ck",       \
        "--out", "m.onnx"
#define SLEEP "spmd", "-n", "1", "--", "sh", "-c", "echo $$ >> pids; exec sleep 600"

/* Count the launches that the engine accepted. */
static int launches(void)
{
    DIR *directory = opendir(in_root("spool/jobs"));
    struct dirent *entry;
    int count = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.';
    if (directory != NULL)
        closedir(directory);
    return count;
}

/* Return whether the JSON of `jobs --all` has the text. */
static bool jobs_show(const char *text)
{
    return RUN("jobs", "--profile", "spool", "--all", "--json", "--quiet") == 0 && strstr(out, text) != NULL;
}

TEST(training_runs_on_a_cluster_and_every_command_shows_it)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--name", "night", "--", TRAIN);
    CHECK_TEXT("spool:101\n", out);
    RUN_CODE(0, "logs", "spool:101", "-f");
    CHECK_CONTAINS(out, "finished after");
    CHECK_CONTAINS(err, "job spool:101 (night): done");
    RUN_CODE(0, "logs", "spool:101", "-f", "--plots", "live");
    CHECK_CONTAINS(out, "step 2/2");
    CHECK_CONTAINS(out, "finished after");
    CHECK(strstr(out, "| Batch") == NULL); /* the curves replace the table */
    RUN_CODE(0, "wait", "spool:101", "--json");
    CHECK_CONTAINS(out, "\"state\": \"done\"");
    CHECK(reported("exit_code") == 0 && reported("attempts") == 1 && reported("step") == 2);
    AWAIT(jobs_show("\"engine\": \"-\""), 30);
    RUN_CODE(0, "report", "spool:101");
    CHECK_CONTAINS(out, "state:    completed");
    RUN_CODE(0, "jobs", "--profile", "spool");
    CHECK_TEXT("no running or queued jobs\n", out);
}

/* The local pool has leases and workers with the same numbers at the same time. */
TEST(report_has_no_logs_of_the_local_pool)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "up", "--workers", "1", "--devices", "cpu", "--quiet");
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", TRAIN);
    RUN_CODE(0, "wait", "spool:101");
    RUN_CODE(0, "report", "spool:101", "--json");
    CHECK_CONTAINS(out, "\"name\": \"log\"");
    CHECK(strstr(out, "scheduler.log") == NULL && strstr(out, "worker-1.log") == NULL);
    CHECK(strstr(out, "\"processors\"") == NULL); /* nor the facts of this host */
}

/* Return whether `runs list` shows a run in a state. */
static bool run_is(const char *run, const char *state)
{
    char text[60];

    snprintf(text, sizeof(text), "\"state\": \"%s\"", state);
    return RUN("runs", "list", run, "--json") == 0 && strstr(out, text) != NULL;
}

TEST(trainings_are_in_the_index_of_the_submitting_host)
{
    char folder[600], end[700];
    gp_json *runs;

    REQUIRE(spool_begin(&profile));
    spool_control("hold", "");
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", TRAIN);
    RUN_CODE(0, "runs");
    CHECK_TEXT("no runs\n", out); /* it has not begun */
    unlink(in_root("spool/hold"));
    RUN_CODE(0, "wait", "spool:101");
    CHECK(run_is("1", "completed"));
    CHECK_CONTAINS(out, "\"steps\": 2,");
    CHECK_CONTAINS(out, in_root("jobs/gp-"));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", "train", "--network", "lenet", "--data",
             "digits:200", "--epochs", "100000", "--checkpoint-path", "ck");
    RUN_CODE(1, "wait", "spool:102");
    CHECK(run_is("2", "failed"));
    CHECK_CONTAINS(out, "ck already has checkpoints");
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", "train", "--network", "lenet", "--data",
             "digits:200", "--epochs", "100000", "--checkpoint-path", "other");
    AWAIT(run_is("3", "running") && strstr(out, "\"steps\": 0,") == NULL, 60);
    runs = pools_json(out);
    snprintf(folder, sizeof(folder), "%s",
             gp_json_text(gp_json_member(gp_json_element(runs, 0), "folder"), ""));
    gp_json_free(runs);
    /* as if the engine had ended the attempt */
    snprintf(end, sizeof(end), "%s/attempts/1/end.json", folder);
    fclose(fopen(end, "w"));
    CHECK(run_is("latest", "queued"));
    unlink(end);
    RUN_CODE(0, "cancel", "spool:103");
    CHECK(run_is("3", "stopped") || run_is("3", "killed")); /* the engine may kill a canceled job */
    RUN_CODE(0, "runs", "compare", "1", "3");
    CHECK_CONTAINS(out, "max-epochs");
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", "spmd", "-n", "1", "--", "true");
    RUN_CODE(0, "wait", "spool:104");
    CHECK_INT(1, RUN("runs", "list", "4")); /* not a training */
}

/* The sweep runs in the one allocation of its job. PROFILE:ID names it from its begin. */
TEST(id_of_a_job_names_the_sweep_of_the_job)
{
    REQUIRE(spool_begin(&profile));
    spool_control("hold", "");
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", "sweep", "x=1,2,3", "--maximize",
             "--max-concurrent", "1", "--", "sh", "-c",
             "while test {x} = 3 -a ! -e go; do sleep 0.02; done; echo {x}");
    RUN_CODE(1, "sweep", "show", "spool:101");
    CHECK_CONTAINS(err, "job spool:101 has no sweep: there is no ");
    unlink(in_root("spool/hold"));
    CHECK(jobs_show("\"state\": \"")); /* the engine starts it */
    AWAIT(RUN("sweep", "show", "spool:101") == 0 && strstr(out, "3 trials: 2 done") != NULL, 60);
    CHECK_CONTAINS(out, "1 open");
    RUN_CODE(0, "sweep", "add", "spool:101", "x=2");
    CHECK_CONTAINS(out, "trial 4");
    fclose(fopen(in_w("go"), "w"));
    RUN_CODE(0, "wait", "spool:101");
    RUN_CODE(0, "sweep", "show", "spool:101", "--csv", "t.csv");
    CHECK_CONTAINS(out, "4 trials: 4 done, 0 stopped early, 0 failed, 0 lost, 0 open");
    CHECK_CONTAINS(out, "best: trial 3: objective 3: x 3");
    CHECK_INT(5, count_in_file(in_w("t.csv"), "\n"));
    RUN_CODE(0, "sweep", "show", "spool:101", "--json");
    CHECK(reported("best") == 3);
    CHECK_CONTAINS(out, in_root("jobs/gp-"));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", "spmd", "-n", "1", "--", "true");
    RUN_CODE(0, "wait", "spool:102");
    RUN_CODE(1, "sweep", "show", "spool:102");
    CHECK_CONTAINS(err, "job spool:102 has no sweep");
    RUN_CODE(1, "sweep", "show", "spool:103");
    CHECK_CONTAINS(err, "profile 'spool' has no job '103'");
}

/* Start a sweep as job `job`, in the folder f, and wait for its trials. */
static void submit_endless_sweep(const char *job)
{
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", "sweep", "x=1,2", "--maximize", "--folder",
             "f", "--", "sh", "-c", "exec sleep 600", "{x}");
    CHECK_CONTAINS(out, job);
    AWAIT(count_in_file(in_w("f/trials.jsonl"), "\"asked\"") >= 1, 60);
}

/* In a job of a cluster, commands ignore the SIGTERM of the engine. */
TEST(sweep_of_a_cluster_job_can_be_ended)
{
    REQUIRE(spool_begin(&profile));
    submit_endless_sweep("spool:101");
    RUN_CODE(0, "sweep", "end", "spool:101");
    RUN_CODE(130, "wait", "spool:101");
    CHECK_CONTAINS(out, "job spool:101: canceled");
    leftovers_clear(in_w("f"));
    submit_endless_sweep("spool:102");
    RUN_CODE(0, "sweep", "end", "f"); /* the controller is a process of this host */
    RUN_CODE(130, "wait", "spool:102");
    CHECK_INT(1, count_in_file(in_w("f/trials.jsonl"), "\"halt\""));
}

TEST(exit_codes_of_wait_are_those_of_local_jobs)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", "spmd", "-n", "1", "--", "sh", "-c",
             "exit 7");
    RUN_CODE(7, "wait", "spool:101");
    CHECK_CONTAINS(out, "job spool:101: failed");
}

TEST(canceled_job_is_gone)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    REQUIRE(wait_for_lines("pids", 1));
    RUN_CODE(124, "wait", "spool:101", "--timeout", "0.2");
    CHECK(jobs_show("\"state\": \"running\""));
    RUN_CODE(0, "cancel", "spool:101");
    CHECK_CONTAINS(out, "canceled 1 job");
    CHECK_INT(0, alive_of("pids", true));
    RUN_CODE(130, "wait", "spool:101");
    CHECK_CONTAINS(out, "canceled");
    RUN_CODE(0, "cancel", "spool:101");
    CHECK_CONTAINS(out, "job spool:101 has ended");
}

/* Return whether a file of a job folder exists. */
static bool job_has(const char *file)
{
    char command[300];

    snprintf(command, sizeof(command), "ls %s/gp-*/%s > /dev/null 2>&1", in_root("jobs"), file);
    return system(command) == 0;
}

TEST(cancel_reports_a_job_that_had_ended_before)
{
    char command[300];

    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", "spmd", "-n", "1", "--", "true");
    AWAIT(job_has("result.json"), 60);
    RUN_CODE(0, "cancel", "spool:101");
    CHECK_CONTAINS(out, "job spool:101: done");
    CHECK(strstr(out, "canceled") == NULL);
    /* the engine loses the next one */
    spool_control("hold", "");
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    snprintf(command, sizeof(command), "rm -r %s", in_root("spool/jobs/102"));
    CHECK_INT(0, system(command));
    RUN_CODE(0, "cancel", "spool:102");
    CHECK_CONTAINS(out, "job spool:102: the engine no longer had it");
    CHECK(strstr(out, "canceled 1 job") == NULL);
}

TEST(queued_job_shows_the_reason_and_can_be_canceled)
{
    REQUIRE(spool_begin(&profile));
    spool_control("hold", "");
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    RUN_CODE(0, "logs", "spool:101");
    CHECK_CONTAINS(err, "job spool:101 is queued");
    RUN_CODE(0, "cancel", "spool:101");
    CHECK(jobs_show("\"state\": \"canceled\""));
    unlink(in_root("spool/hold"));
    CHECK(jobs_show("\"state\": \"canceled\""));
}

TEST(training_that_may_be_requeued_needs_a_checkpoint_folder)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(2, "submit", "--profile", "spool", "--", "train", "--network", "lenet", "--data", "digits:200");
    CHECK_CONTAINS(err, "--checkpoint-path FOLDER");
    RUN_CODE(2, "submit", "--no-checkpoint", "--", TRAIN);
    CHECK_CONTAINS(err, "need --profile");
    CHECK_INT(0, launches());
    RUN_CODE(0, "submit", "--profile", "spool", "--dry-run", "--no-checkpoint", "--", "train", "--network",
             "lenet", "--data", "digits:200");
    CHECK_CONTAINS(out, "job-attempt");
    CHECK_INT(0, launches());
}

TEST(refused_job_is_an_error_of_submit)
{
    REQUIRE(spool_begin(&profile));
    spool_control("fault-launch", "fail\n");
    RUN_CODE(1, "submit", "--profile", "spool", "--", SLEEP);
    CHECK_CONTAINS(err, "gradpool submit: ");
    CHECK_TEXT("", out);
    CHECK_INT(0, launches());
}

TEST(silent_engine_makes_the_state_unknown_but_is_no_error)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    REQUIRE(wait_for_lines("pids", 1));
    RUN_CODE(0, "jobs", "--profile", "spool");
    CHECK_CONTAINS(out, "running");
    spool_control("fault-list", "fail\nfail\n");
    for (int i = 0; i < 2; i++) {
        RUN_CODE(0, "jobs", "--profile", "spool");
        CHECK_CONTAINS(out, "unknown since ");
        CHECK_CONTAINS(out, "spool:101");
    }
    RUN_CODE(0, "jobs", "--profile", "spool");
    CHECK(strstr(out, "unknown") == NULL);
    RUN_CODE(0, "cancel", "spool:101");
}

TEST(lost_reply_to_a_launch_does_not_launch_twice)
{
    REQUIRE(spool_begin(&profile));
    spool_control("fault-launch", "lost\n");
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    CHECK_TEXT("spool:101\n", out);
    CHECK_INT(1, launches());
    RUN_CODE(0, "cancel", "spool:101");
}

/* A lost cancel request is repeated after CLUSTER_CANCEL_MS. */
TEST(ignored_cancel_is_repeated)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    REQUIRE(wait_for_lines("pids", 1));
    spool_control("fault-cancel", "ignore\n");
    RUN_CODE(0, "cancel", "spool:101");
    CHECK_INT(0, alive_of("pids", true));
}

TEST(jobs_completes_a_killed_submit)
{
    static const char *const points[] = { "cluster-record:1", "cluster-recorded:1", "cluster-record:2",
                                          "cluster-recorded:2", "cluster-launched:1" };

    REQUIRE(spool_begin(&profile));
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        const int before = launches();
        char fault[60];

        snprintf(fault, sizeof(fault), "%s:kill", points[i]);
        setenv("GRADPOOL_FAULT", fault, 1);
        RUN_CODE(-1, "submit", "--quiet", "--profile", "spool", "--", "spmd", "-n", "1", "--", "true");
        unsetenv("GRADPOOL_FAULT");
        /* killed before the first write: nothing was promised, and nothing is launched */
        if (i == 0) {
            CHECK(jobs_show("[]"));
            continue;
        }
        AWAIT(jobs_show("\"exit_code\": 0") && strstr(out, "\"state\": \"queued\"") == NULL &&
                  strstr(out, "\"state\": \"starting\"") == NULL &&
                  strstr(out, "\"state\": \"running\"") == NULL,
              60);
        if (launches() != before + 1)
            GP_TEST_FAIL("%s: %d launches", points[i], launches() - before);
    }
}

TEST(array_has_a_job_for_each_input_and_one_line)
{
    char array[40], job[48];

    REQUIRE(spool_begin(&profile));
    RUN_CODE(2, "submit", "--array", "--profile", "spool", "--", "parfor", "lr=0.1,0.01", "--", TRAIN, "--lr",
             "{lr}");
    CHECK_CONTAINS(err, "ck-{#}");
    RUN_CODE(2, "submit", "--array", "--profile", "spool", "--", "parfor", "1:2", "--", "train", "--network",
             "lenet", "--data", "digits:200", "--no-such-option", "{}", "--checkpoint-path", "ck-{#}");
    CHECK_CONTAINS(err, "--no-such-option");
    CHECK_INT(0, launches());
    RUN_CODE(0, "submit", "--quiet", "--array", "--profile", "spool", "--", "parfor", "1:3", "--", "spmd",
             "-n", "1", "--", "sh", "-c", "echo input {}; exit $(({} - 1))");
    REQUIRE(sscanf(out, "%39s", array) == 1);
    CHECK_INT(3, launches());
    RUN_CODE(1, "wait", array); /* the first one that failed */
    RUN_CODE(0, "jobs", "--profile", "spool", "--all");
    CHECK_CONTAINS(out, array);
    CHECK_CONTAINS(out, "2 failed, 1 done");
    CHECK(strstr(out, "spool:101") == NULL);
    RUN_CODE(0, "jobs", "--all-profiles", "--all", "--json");
    CHECK_CONTAINS(out, "\"job\": \"spool:103\"");
    snprintf(job, sizeof(job), "%s.3", array);
    RUN_CODE(0, "logs", job);
    CHECK_CONTAINS(out, "input 3");
    RUN_CODE(2, "wait", job);
    RUN_CODE(125, "wait", "spool:a-01234567");
    CHECK_CONTAINS(err, "no array of jobs 'a-01234567'");
}

TEST(array_that_stops_midway_names_the_jobs_that_are_missing)
{
    REQUIRE(spool_begin(&profile));
    spool_control("fault-launch", "none\nnone\nfail\n");
    RUN_CODE(1, "submit", "--array", "--profile", "spool", "--", "parfor", "1:5", "--", "spmd", "-n", "1",
             "--", "sh", "-c", "exit {}");
    CHECK_TEXT("", out);
    CHECK_CONTAINS(err, "job 3 of 5: ");
    CHECK_CONTAINS(err, "the engine is down; submitted: jobs 1 to 2 (spool:a-");
    CHECK_CONTAINS(err, "; not submitted: jobs 4 to 5; submit the missing inputs");
    CHECK_CONTAINS(err, "'gradpool cancel spool:a-");
    CHECK_INT(2, launches());
}

/* As if the disk were full after the launch. */
TEST(record_that_cannot_be_written_does_not_hide_the_launch)
{
    const char *source = getenv("GP_SOURCE_DIR");
    char text[900], command[900];
    FILE *file;

    REQUIRE(spool_begin(&profile));
    snprintf(text, sizeof(text),
             "#!/bin/sh\nrm $1/record.json\nmkdir $1/record.json\nexec %s/tests/fake/spool.py %s launch $2 "
             "$3\n",
             source == NULL ? "." : source, in_root("spool"));
    file = fopen(in_root("launch"), "w");
    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0 || chmod(in_root("launch"), 0700) != 0)
        abort();
    snprintf(command, sizeof(command), "sed -i 's|^launch *= .*|launch = %s {folder} {name} {script}|' %s",
             in_root("launch"), in_root("config/gradpool/*.conf"));
    CHECK_INT(0, system(command));
    RUN_CODE(1, "submit", "--profile", "spool", "--", "spmd", "-n", "1", "--", "true");
    CHECK_INT(1, launches());
    CHECK_TEXT("", out);
    CHECK_CONTAINS(err, "record.json");
    CHECK_CONTAINS(err, "; the engine may have accepted the job (spool:101); check with 'gradpool jobs "
                        "--profile spool'");
}

TEST(all_jobs_of_a_profile_are_canceled)
{
    REQUIRE(spool_begin(&profile));
    for (int i = 0; i < 2; i++)
        RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    REQUIRE(wait_for_lines("pids", 2));
    RUN_CODE(0, "cancel", "--all", "--profile", "spool");
    CHECK_CONTAINS(out, "canceled 2 jobs");
    CHECK_INT(0, alive_of("pids", true));
    RUN_CODE(0, "jobs", "--all-profiles");
    CHECK_TEXT("no running or queued jobs\n", out);
}

/* The record of the second job becomes malformed while the commands run. */
TEST(job_that_cannot_be_read_does_not_end_the_wait_and_cancel_of_the_others)
{
    char command[600];
    pid_t damage;

    REQUIRE(spool_begin(&profile));
    for (int i = 0; i < 3; i++)
        RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    REQUIRE(wait_for_lines("pids", 3));
    snprintf(command, sizeof(command),
             "cd %s; sleep 2; f=$(readlink spool-102)/record.json; cp $f saved; echo x > $f; exec %s cancel "
             "--quiet spool:101",
             in_root("jobs"), in_build("bin/gradpool"));
    damage = fork();
    if (damage == 0)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    RUN_CODE(125, "wait", "spool:102", "spool:101");
    CHECK_CONTAINS(out, "job spool:101: canceled");
    CHECK_CONTAINS(err, "record.json");
    waitpid(damage, NULL, 0);
    snprintf(command, sizeof(command), "cd %s && cp saved $(readlink spool-102)/record.json",
             in_root("jobs"));
    CHECK_INT(0, system(command));
    /* the lock of the second job cannot be opened */
    snprintf(command, sizeof(command), "cd %s/$(readlink %s/spool-102) && rm lock && mkdir lock",
             in_root("jobs"), in_root("jobs"));
    CHECK_INT(0, system(command));
    RUN_CODE(1, "cancel", "spool:102", "spool:103");
    CHECK_CONTAINS(err, "/lock");
    RUN_CODE(130, "wait", "spool:103");
    snprintf(command, sizeof(command), "rmdir %s/$(readlink %s/spool-102)/lock", in_root("jobs"),
             in_root("jobs"));
    CHECK_INT(0, system(command));
    RUN_CODE(0, "cancel", "spool:102");
}

/* The lock and the log of the job cannot be opened for a time. */
TEST(temporary_errors_do_not_end_wait_and_follow)
{
    char command[900];
    pid_t damage;

    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "submit", "--quiet", "--profile", "spool", "--", SLEEP);
    REQUIRE(wait_for_lines("pids", 1));
    snprintf(command, sizeof(command),
             "cd %s/spool-101; gradpool=%s; $gradpool logs -f spool:101 > ../../logs.out 2>&1 & sleep 0.7; "
             "mv lock lock.kept; mkdir lock; mv log log.kept; mkdir log; "
             "$gradpool logs spool:101 > ../../once.out 2>&1; echo exit $? >> ../../once.out; sleep 1.5; "
             "rmdir lock log; mv log.kept log; mv lock.kept lock; $gradpool cancel --quiet spool:101; "
             "wait $!; echo exit $? >> ../../logs.out",
             in_root("jobs"), in_build("bin/gradpool"));
    damage = fork();
    if (damage == 0)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    RUN_CODE(130, "wait", "spool:101");
    CHECK_CONTAINS(out, "job spool:101: canceled");
    CHECK_CONTAINS(err, "/lock: Is a directory; still waiting");
    waitpid(damage, NULL, 0);
    snprintf(command, sizeof(command),
             "cd %s && grep -q 'still waiting' logs.out && grep -q 'exit 0' logs.out || ! cat logs.out",
             in_root("."));
    CHECK_INT(0, system(command));
    snprintf(
        command, sizeof(command),
        "cd %s && grep -q '/lock: Is a directory$' once.out && grep -q 'exit 1' once.out || ! cat once.out",
        in_root("."));
    CHECK_INT(0, system(command));
}

TEST(unknown_jobs_are_named)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(125, "wait", "spool:7");
    CHECK_CONTAINS(err, "profile 'spool' has no job '7'");
    RUN_CODE(125, "wait", "nope:7");
    CHECK_CONTAINS(err, "nope");
    RUN_CODE(2, "wait", "spool:7", "8");
    CHECK_CONTAINS(err, "not both");
}
