/* test_cluster_command_jobs.c: jobs of the engine `command`, with the state machine and records, on
 * tests/fake/spool.py, which runs them as processes of this host and injects faults. */
#include "client/cluster/command.h"
#include "client/cluster/drive.h"
#include "client/cluster/job_folder.h"
#include "tests/service/commands.h"

enum { JOBS_MAX = 4, LOCK_MS = 10000 };

/* A job with its own profile, spool and working directory. */
typedef struct job {
    gp_profile profile;
    cluster_site site;
    cluster_record record;
    char spool[100], work[100];
} job;

static job jobs[JOBS_MAX];
static const char *variables[4]; /* of jobs that are submitted */
static gp_error e;

TEARDOWN()
{
    for (int i = 0; i < JOBS_MAX; i++)
        cluster_record_close(&jobs[i].record);
    cluster_command_timeout_ms = CLUSTER_CALL_MS;
    pools_end();
}

/* Write text to a file of the spool. */
static void spool_put(const job *j, const char *name, const char *text)
{
    FILE *to = fopen(path_in(j->spool, name), "w");

    if (to == NULL || fputs(text, to) < 0 || fclose(to) != 0)
        GP_TEST_FAIL("cannot write %s/%s", j->spool, name);
}

/* Prepare job `number` with an empty spool. The first call of a test prepares the directories. */
static job *job_begin(int number)
{
    const char *source = getenv("GP_SOURCE_DIR");
    job *j = &jobs[number];
    char text[4000], name[40];

    if (number == 0)
        commands_begin();
    *j = (job){ .record = { .lock = -1 } };
    snprintf(j->spool, sizeof(j->spool), "%s/spool-%d", pools_root, number);
    snprintf(j->work, sizeof(j->work), "%s/work-%d", pools_root, number);
    snprintf(name, sizeof(name), "jobs-%d", number);
    if (mkdir(j->spool, 0700) != 0 || mkdir(j->work, 0700) != 0 || mkdir(in_root(name), 0700) != 0)
        abort();
    source = source == NULL ? "." : source;
    snprintf(text, sizeof(text),
             "type = command\nfolder = %s\ncores = 2\ngradpool = %s\n"
             "launch = %s/tests/fake/spool.py %s launch {name} {script}\n"
             "status = %s/tests/fake/spool.py %s list\ncancel = %s/tests/fake/spool.py %s cancel {id}\n",
             in_root(name), in_build("bin/gradpool"), source, j->spool, source, j->spool, source, j->spool);
    if (gp_profile_parse(&j->profile, text, strlen(text), "p", &e) != GP_OK ||
        cluster_site_open(&j->site, &j->profile, NULL, pools_root, &e) != GP_OK)
        GP_TEST_FAIL("%s", e.message);
    return j;
}

/* Create the record of a job with these words, and make the first pass. */
static void job_submit(job *j, const char **words, size_t count)
{
    cluster_command command = {
        .engine = "command", .directory = j->work, .umask = 077, .words = words, .word_count = count
    };
    cluster_pass_result result;
    gp_buffer text;

    command.variables = variables;
    while (variables[command.variable_count] != NULL)
        command.variable_count++;
    strcpy(j->record.profile, "p");
    gp_buffer_init(&text, CLUSTER_COMMAND_JSON_MAX);
    if (cluster_command_format(&command, &text, &e) != GP_OK ||
        cluster_record_create(&j->record, j->site.root, (const char *)text.data, text.bytes, &e) != GP_OK ||
        cluster_drive(&j->site, &j->record, NULL, &result, &e) != GP_OK)
        GP_TEST_FAIL("%s", e.message);
    cluster_record_close(&j->record);
    gp_buffer_deinit(&text);
}

#define SUBMIT(j, ...)                                                                                       \
    job_submit(j, (const char *[]){ __VA_ARGS__ }, sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *))

/* A command that appends a line to the files `began` and, at its end, `done`. It runs while the
 * file `busy` exists. */
#define COUNTED                                                                                              \
    "spmd", "-n", "1", "--", "sh", "-c",                                                                     \
        "echo $$ >> began; while [ -e busy ]; do sleep 0.05; done; echo $$ >> done"

/* Continue the job, as any later command does. */
static void job_visit(job *j, bool cancel)
{
    cluster_pass_result result;
    char name[CLUSTER_NAME_BYTES];

    memcpy(name, j->record.job.name, sizeof(name));
    if (cluster_visit(&j->site, name, cancel, LOCK_MS, NULL, &j->record, &result, &e) != GP_OK)
        GP_TEST_FAIL("%s", e.message);
}

/* Continue all jobs until they have ended. */
static void jobs_settle(int count)
{
    int waiting = count;

    AWAIT((waiting = 0, ({
               for (int i = 0; i < count; i++)
                   if (jobs[i].record.job.state != CLUSTER_ENDED) {
                       job_visit(&jobs[i], false);
                       waiting += jobs[i].record.job.state != CLUSTER_ENDED;
                   }
               waiting == 0 || gp_test_failures > 0;
           })),
          100);
    for (int i = 0; i < count; i++)
        if (jobs[i].record.job.state != CLUSTER_ENDED)
            GP_TEST_FAIL("job %d: %s", i, cluster_state_word(jobs[i].record.job.state));
}

static void job_await(job *j, cluster_state state)
{
    AWAIT((job_visit(j, false), j->record.job.state == state || j->record.job.state == CLUSTER_ENDED), 100);
    if (j->record.job.state != state)
        GP_TEST_FAIL("%s, %s", cluster_state_word(j->record.job.state), j->record.job.reason);
}

static int lines_in(const job *j, const char *name)
{
    char path[200];

    snprintf(path, sizeof(path), "../%s/%s", strrchr(j->work, '/') + 1, name);
    return lines_of(path);
}

/* Return the number of jobs in the listing of the engine. Set *live to the number of jobs that the
 * engine has not ended. */
static int engine_jobs(const job *j, int *live)
{
    cluster_listing listing = { 0 };
    int count;

    if (cluster_engine_command.list(&j->profile, &listing, &e) != GP_OK)
        GP_TEST_FAIL("%s", e.message);
    count = (int)listing.count;
    *live = 0;
    for (size_t i = 0; i < listing.count; i++)
        *live += listing.entries[i].state != CLUSTER_ENTRY_ENDED;
    cluster_listing_deinit(&listing);
    return count;
}

/* Check that the job ran once, to its end. */
static void check_ran_once(const job *j, int launches)
{
    int live;

    CHECK(j->record.job.end == CLUSTER_END_RESULT);
    if (j->record.job.exit_code != 0)
        GP_TEST_FAIL("exit code %d: %s", j->record.job.exit_code, j->record.job.reason);
    CHECK_INT(1, lines_in(j, "done"));
    CHECK_INT(launches, engine_jobs(j, &live));
    CHECK_INT(0, live);
}

TEST(job_runs_in_a_pool_of_its_own_and_has_a_result)
{
    job *j = job_begin(0);
    char path[CLUSTER_PATH_BYTES];

    SUBMIT(j, "train", "--network", "lenet", "--data", "digits:200", "--epochs", "1", "--out", "m.onnx");
    jobs_settle(1);
    CHECK(j->record.job.end == CLUSTER_END_RESULT);
    CHECK_INT(0, j->record.job.exit_code);
    CHECK_INT(1, j->record.job.attempt);
    snprintf(path, sizeof(path), "%s/%s/log", j->profile.folder, j->record.job.name);
    slurp(path, out, sizeof(out));
    CHECK_CONTAINS(out, j->record.job.name); /* the launch name is the name of the pool */
    CHECK(access(path_in(j->work, "m.onnx"), F_OK) == 0);
}

/* All trials of the sweep run in the one allocation of the job. */
TEST(sweep_runs_with_its_trials_in_one_allocation)
{
    job *j = job_begin(0);
    char path[CLUSTER_PATH_BYTES];
    int live;

    SUBMIT(j, "sweep", "x=1,2,3,4", "--minimize", "--", "sh", "-c", "echo $(((3-{x})*(3-{x})))");
    jobs_settle(1);
    CHECK(j->record.job.end == CLUSTER_END_RESULT);
    CHECK_INT(0, j->record.job.exit_code);
    CHECK_INT(1, engine_jobs(j, &live));
    snprintf(path, sizeof(path), "%s/%s/log", j->profile.folder, j->record.job.name);
    slurp(path, out, sizeof(out));
    CHECK_CONTAINS(out, "4 trials: 4 done");
    CHECK_CONTAINS(out, "best: trial 3: objective 0: x 3");
    snprintf(path, sizeof(path), "%s/%s/sweep/trials.jsonl", j->profile.folder, j->record.job.name);
    CHECK(access(path, R_OK) == 0);
}

TEST(directories_of_the_submitting_host_are_ignored)
{
    job *j = job_begin(0);

    variables[0] = "GRADPOOL_RUNTIME_DIR=/dev/null/run";
    variables[1] = "GRADPOOL_STATE_DIR=/dev/null/state";
    variables[2] = "GRADPOOL_POOL=none";
    SUBMIT(j, COUNTED);
    memset(variables, 0, sizeof(variables));
    jobs_settle(1);
    check_ran_once(j, 1);
}

TEST(engine_that_forgets_ended_jobs_does_not_lose_the_result)
{
    job *j = job_begin(0);
    int live;

    spool_put(j, "forget", "");
    SUBMIT(j, COUNTED);
    jobs_settle(1);
    CHECK(j->record.job.end == CLUSTER_END_RESULT);
    CHECK_INT(0, j->record.job.exit_code);
    CHECK_INT(1, lines_in(j, "done"));
    CHECK_INT(0, engine_jobs(j, &live));
}

TEST(refused_launch_ends_the_job_with_the_message_of_the_engine)
{
    job *j = job_begin(0);
    int live;

    spool_put(j, "fault-launch", "fail");
    SUBMIT(j, COUNTED);
    CHECK(j->record.job.state == CLUSTER_ENDED && j->record.job.end == CLUSTER_END_REFUSED);
    CHECK_CONTAINS(j->record.job.reason, "the engine is down");
    CHECK_INT(0, engine_jobs(j, &live));
}

TEST(launch_without_a_reply_starts_one_job)
{
    static const char *const faults[] = { "lost", "hang", "garbage", "flood" };

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        job *j = job_begin((int)i);

        spool_put(j, "fault-launch", faults[i]);
        cluster_command_timeout_ms = strcmp(faults[i], "hang") == 0 ? 1500 : CLUSTER_CALL_MS;
        SUBMIT(j, COUNTED);
        cluster_command_timeout_ms = CLUSTER_CALL_MS;
        CHECK(j->record.job.state != CLUSTER_ENDED);
    }
    jobs_settle(4);
    for (int i = 0; i < 4; i++)
        check_ran_once(&jobs[i], 1);
}

TEST(launch_that_is_accepted_late_does_not_run_the_job_twice)
{
    int live;

    /* The job is launched a second time after 5 s. The engine accepts the first launch while the
     * second one runs (job 0), and after it has ended (job 1). */
    for (int i = 0; i < 2; i++) {
        job *j = job_begin(i);

        spool_put(j, "fault-launch", "late");
        if (i == 0)
            fclose(fopen(path_in(j->work, "busy"), "w"));
        SUBMIT(j, COUNTED);
    }
    job_await(&jobs[0], CLUSTER_RUNNING);
    spool_put(&jobs[0], "accept", "");
    AWAIT((job_visit(&jobs[0], false), engine_jobs(&jobs[0], &live) == 2 && live == 1), 100);
    CHECK_INT(1, live); /* the other launch was canceled */
    unlink(path_in(jobs[0].work, "busy"));
    jobs_settle(2);
    spool_put(&jobs[1], "accept", "");
    AWAIT(engine_jobs(&jobs[1], &live) == 2 && live == 0, 100);
    for (int i = 0; i < 2; i++)
        check_ran_once(&jobs[i], 2);
}

/* The engine can accept a launch that gradpool has repeated. The job may then get the id of that
 * launch, after `submit` has printed the other one. */
TEST(earlier_id_still_names_the_job)
{
    static const char *const ids[] = { "101", "102" };
    job *j = job_begin(0);
    char name[CLUSTER_NAME_BYTES];

    strcpy(j->record.profile, "p");
    REQUIRE_OK(cluster_record_create(&j->record, j->site.root, "{}", 2, &e), e);
    for (int i = 0; i < 2; i++) {
        strcpy(j->record.job.id, ids[i]);
        REQUIRE_OK(cluster_record_store(&j->record, &e), e);
    }
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(cluster_record_find(name, j->site.root, "p", ids[i], &e), e);
        CHECK_TEXT(j->record.job.name, name);
    }
    CHECK_STATUS(GP_ENOENT, cluster_record_find(name, j->site.root, "q", "101", &e));
}

TEST(listings_that_fail_end_and_repeat_no_job)
{
    job *j = job_begin(0);

    SUBMIT(j, COUNTED);
    spool_put(j, "fault-list", "lost\ncut\nfail\nhang\ncut\nfail");
    cluster_command_timeout_ms = 1500;
    jobs_settle(1);
    check_ran_once(j, 1);
}

TEST(job_that_ends_without_a_result_is_lost)
{
    for (int i = 0; i < 2; i++) {
        job *j = job_begin(i);

        strcpy(j->profile.gradpool, "false"); /* no attempt begins */
        if (i == 1)
            spool_put(j, "forget", "");
        SUBMIT(j, COUNTED);
    }
    jobs_settle(2);
    for (int i = 0; i < 2; i++) {
        CHECK(jobs[i].record.job.end == CLUSTER_END_LOST);
        CHECK_INT(CLUSTER_EXIT_NO_OUTCOME, jobs[i].record.job.exit_code);
    }
    CHECK_CONTAINS(jobs[0].record.job.reason, "exit code 1");
}

TEST(cancel_is_repeated_until_the_engine_has_ended_the_job)
{
    int live;

    for (int i = 0; i < 2; i++) { /* a job that waits, and one that runs */
        job *j = job_begin(i);

        if (i == 0)
            spool_put(j, "hold", "");
        else
            fclose(fopen(path_in(j->work, "busy"), "w"));
        spool_put(j, "fault-cancel", i == 0 ? "ignore" : "fail");
        SUBMIT(j, COUNTED);
    }
    job_await(&jobs[1], CLUSTER_RUNNING);
    job_visit(&jobs[0], true);
    job_visit(&jobs[1], true);
    jobs_settle(2);
    for (int i = 0; i < 2; i++) {
        CHECK(jobs[i].record.job.canceled);
        CHECK_INT(1, engine_jobs(&jobs[i], &live));
        CHECK_INT(0, live);
        CHECK_INT(0, lines_in(&jobs[i], "done") > 0 ? 1 : 0);
    }
    unlink(path_in(jobs[1].work, "busy"));
}
