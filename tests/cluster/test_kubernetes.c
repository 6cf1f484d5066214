/* test_kubernetes.c: the commands with the engine `kubernetes` and tests/fake/kubectl.py, which
 * runs containers as processes of this host, records each call and injects faults. */
#include <dirent.h>

#include "client/cluster/drive.h"
#include "client/cluster/kubernetes.h"
#include "tests/service/commands.h"

static char volume[200];

TEARDOWN()
{
    unsetenv("GRADPOOL_FAULT");
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("CANARY");
    cluster_kubernetes_call_ms = 28000;
    pools_end();
}

#define TRAIN                                                                                                \
    "train", "--network", "lenet", "--data", "digits:200", "--epochs", "1", "--checkpoint-path", "ck",       \
        "--out", "m.onnx"
#define LONG_TRAIN                                                                                           \
    "train", "--network", "lenet", "--data", "digits:512", "--epochs", "100000", "--checkpoint-path", "ck"
#define SLEEP   "spmd", "-n", "1", "--", "sh", "-c", "echo $$ >> pids; exec sleep 600"
#define COUNTED "spmd", "-n", "1", "--", "sh", "-c", "echo $$ >> done"
#define SUBMIT  "submit", "--quiet", "--profile", "k8s"

/* Create the profile "k8s" and an empty cluster. */
static bool cluster_begin(void)
{
    const char *source = getenv("GP_SOURCE_DIR");
    char script[400];

    commands_begin();
    setenv("HOME", pools_root, 1);
    setenv("XDG_CONFIG_HOME", in_root("config"), 1);
    snprintf(script, sizeof(script), "%s/tests/fake/kubectl.py", source == NULL ? "." : source);
    snprintf(volume, sizeof(volume), "claim:%s", in_root("w"));
    if (mkdir(in_root("k"), 0700) != 0 || symlink(script, in_root("k/kubectl")) != 0)
        abort();
    RUN_CODE(0, "cluster", "new", "k8s", "--type", "kubernetes", "--image", "img", "--volume", volume,
             "--cores", "2", "--kubectl", in_root("k/kubectl"), "--gradpool", in_build("bin/gradpool"));
    return gp_test_failures == 0;
}

/* Write a control file of the cluster, such as "fault-get". */
static void control(const char *name, const char *text)
{
    FILE *file = fopen(path_in(in_root("k"), name), "w");

    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0)
        abort();
}

/* Count the objects of a kind in the cluster. */
static int objects(const char *kind)
{
    DIR *directory = opendir(path_in(in_root("k"), kind));
    const struct dirent *entry;
    int count = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.';
    if (directory != NULL)
        closedir(directory);
    return count;
}

/* Run kubectl without gradpool. Each call also advances the controllers of the fake cluster. */
static void kubectl(const char *words)
{
    char line[600];

    snprintf(line, sizeof(line), "%s %s > /dev/null", in_root("k/kubectl"), words);
    if (system(line) != 0)
        GP_TEST_FAIL("%s", line);
}

/* Take the name of a submitted job from the output of `submit`. */
static const char *submitted(void)
{
    static char job[80];

    if (sscanf(out, "%79s", job) != 1)
        GP_TEST_FAIL("submit printed no job: %s", err);
    return job;
}

static bool jobs_show(const char *text)
{
    return RUN("jobs", "--profile", "k8s", "--all", "--json", "--quiet") == 0 && strstr(out, text) != NULL;
}

/* Check that nothing is left in the cluster, and no process of `pids`. */
static void check_clean(void)
{
    kubectl("get jobs -l gradpool/job");
    CHECK_INT(0, objects("jobs"));
    CHECK_INT(0, objects("pods"));
    CHECK_INT(0, objects("secrets"));
    CHECK_INT(0, alive_of("pids", true));
}

TEST(training_runs_in_a_pod_and_every_command_shows_it)
{
    char job[80];

    REQUIRE(cluster_begin());
    RUN_CODE(0, SUBMIT, "--name", "night", "--", TRAIN);
    snprintf(job, sizeof(job), "%s", submitted());
    RUN_CODE(0, "logs", job, "-f");
    CHECK_CONTAINS(out, "== attempt 1 on ");
    CHECK_CONTAINS(out, "finished after");
    CHECK_CONTAINS(err, "(night): done");
    RUN_CODE(0, "wait", job, "--json");
    CHECK_CONTAINS(out, "\"state\": \"done\"");
    CHECK(reported("exit_code") == 0 && reported("attempts") == 1);
    CHECK(access(in_w("m.onnx"), F_OK) == 0 && access(in_w("ck"), F_OK) == 0);
    AWAIT(jobs_show("\"engine\": \"-\""), 30);
    RUN_CODE(0, "jobs", "--profile", "k8s");
    CHECK_TEXT("no running or queued jobs\n", out);
    /* no further call for each job that has ended */
    unlink(in_root("k/calls.jsonl"));
    RUN_CODE(0, "jobs", "--profile", "k8s", "--all");
    CHECK_CONTAINS(out, "done");
    CHECK(system("test $(wc -l < \"$HOME\"/k/calls.jsonl) = 1") == 0);
    /* the index of runs has no folders of other hosts */
    CHECK(system("! ls \"$HOME\"/state/*/*/runs.jsonl > \"$HOME\"/listed 2>&1") == 0);
}

TEST(exit_code_of_the_job_is_that_of_wait)
{
    char job[80];

    REQUIRE(cluster_begin());
    RUN_CODE(0, SUBMIT, "--", "spmd", "-n", "1", "--", "sh", "-c",
             "seq 200000; echo the cause; exit 7"); /* 1.3 MB */
    snprintf(job, sizeof(job), "%s", submitted());
    RUN_CODE(7, "wait", job);
    CHECK_CONTAINS(out, "failed");
    CHECK_CONTAINS(out, "exit code 7");
    RUN_CODE(0, "report", job);
    CHECK_CONTAINS(out, "the cause");
}

TEST(running_job_shows_its_step_and_is_canceled_without_a_trace)
{
    char job[80];

    REQUIRE(cluster_begin());
    RUN_CODE(0, SUBMIT, "--", LONG_TRAIN);
    snprintf(job, sizeof(job), "%s", submitted());
    AWAIT(jobs_show("\"state\": \"running\"") && strstr(out, "\"step\": null") == NULL, 60);
    CHECK_CONTAINS(out, "RUNNING on node-1");
    RUN_CODE(0, "report", job);
    CHECK_CONTAINS(out, "lenet");
    RUN_CODE(0, "cancel", job);
    CHECK_CONTAINS(out, "canceled 1 job");
    RUN_CODE(130, "wait", job);
    check_clean();
    CHECK(system("grep -q 'wrote the checkpoint of step' \"$HOME\"/w/gradpool-jobs/*/log") == 0);
}

TEST(evicted_training_resumes_in_a_new_pod)
{
    char job[80];

    REQUIRE(cluster_begin());
    RUN_CODE(0, SUBMIT, "--", LONG_TRAIN);
    snprintf(job, sizeof(job), "%s", submitted());
    AWAIT(jobs_show("\"state\": \"running\"") && strstr(out, "\"step\": null") == NULL, 60);
    kubectl("evict");
    AWAIT(jobs_show("\"attempts\": 2") && strstr(out, "\"state\": \"running\"") != NULL, 60);
    CHECK_CONTAINS(out, "requeued 1 time");
    RUN_CODE(0, "logs", job);
    CHECK_CONTAINS(out, "== attempt 2 on ");
    RUN_CODE(0, "cancel", job);
    check_clean();
}

TEST(reason_of_a_pod_that_cannot_start_is_shown_by_one_call_of_kubectl)
{
    REQUIRE(cluster_begin());
    control("hold", "{\"conditions\": [{\"type\": \"PodScheduled\", \"status\": \"False\", \"reason\": "
                    "\"Unschedulable\", \"message\": \"0/3 nodes are available: 3 Insufficient "
                    "nvidia.com/gpu.\"}]}");
    for (int i = 0; i < 2; i++)
        RUN_CODE(0, SUBMIT, "--", SLEEP);
    unlink(in_root("k/calls.jsonl"));
    RUN_CODE(0, "jobs", "--profile", "k8s");
    CHECK(system("test $(wc -l < \"$HOME\"/k/calls.jsonl) = 1") == 0);
    CHECK_CONTAINS(out, "PENDING (Unschedulable)");
    CHECK_CONTAINS(out, "3 Insufficient nvidia.com/gpu.");
    control("hold", "{\"containerStatuses\": [{\"name\": \"gradpool\", \"state\": {\"waiting\": {\"reason\": "
                    "\"ImagePullBackOff\", \"message\": \"Back-off pulling image \\\"img\\\"\"}}}]}");
    CHECK(jobs_show("ImagePullBackOff: Back-off pulling image"));
    RUN_CODE(0, "cancel", "--all", "--profile", "k8s");
    check_clean();
}

TEST(reasons_of_quotas_and_queues_are_shown)
{
    char name[80];

    REQUIRE(cluster_begin());
    control("quota", "pods \"x\" is forbidden: exceeded quota: gpus");
    RUN_CODE(0, SUBMIT, "--", COUNTED);
    CHECK(jobs_show("exceeded quota: gpus"));
    CHECK_CONTAINS(out, "\"state\": \"queued\"");
    unlink(in_root("k/quota"));
    RUN_CODE(0, "cluster", "new", "k8s", "--force", "--type", "kubernetes", "--image", "img", "--volume",
             volume, "--queue", "team-a", "--kubectl", in_root("k/kubectl"), "--gradpool",
             in_build("bin/gradpool"));
    RUN_CODE(0, SUBMIT, "--", COUNTED);
    snprintf(name, sizeof(name), "%s", strchr(submitted(), ':') + 1);
    CHECK(jobs_show("SUSPENDED"));
    snprintf(out, sizeof(out),
             "{\"kind\": \"List\", \"items\": [{\"kind\": \"Workload\", \"metadata\": {\"ownerReferences\": "
             "[{\"kind\": \"Job\", \"name\": \"%s\"}]}, \"status\": {\"conditions\": [{\"type\": "
             "\"QuotaReserved\", \"status\": \"False\", \"reason\": \"Pending\", \"message\": \"insufficient "
             "unused quota for cpu\"}]}}]}",
             name);
    control("workloads", out);
    CHECK(jobs_show("Pending: insufficient unused quota for cpu"));
    control("admit", "");
    AWAIT(jobs_show("\"state\"") && strstr(out, "queued") == NULL && strstr(out, "running") == NULL &&
              strstr(out, "starting") == NULL,
          60);
    CHECK_INT(2, lines_of("done"));
}

/* ---- faults ---- */

TEST(refused_jobs_are_errors_of_submit_and_leave_nothing)
{
    static const struct {
        const char *call, *fault, *message;
    } cases[] = {
        { "fault-create-secret", "refused", "was refused - did you specify the right host or port?" },
        { "fault-create-secret", "Error from server (Forbidden): secrets is forbidden", "(Forbidden)" },
        { "fault-create-job", "Error from server (Forbidden): exceeded quota", "exceeded quota" },
        { "fault-create-job", "error: error validating \"STDIN\": unknown field", "error validating" },
    };

    REQUIRE(cluster_begin());
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        control(cases[i].call, cases[i].fault);
        RUN_CODE(1, SUBMIT, "--", SLEEP);
        CHECK_CONTAINS(err, cases[i].message);
        CHECK_TEXT("", out);
        check_clean();
    }
}

TEST(launch_of_unknown_outcome_is_not_repeated_blindly)
{
    static const char *const faults[][2] = {
        { "fault-create-job", "lost" },
        { "fault-create-job", "Error from server (Timeout): the server was unable to return a response" },
    };

    REQUIRE(cluster_begin());
    for (int i = 0; i < 2; i++) {
        control(faults[i][0], faults[i][1]);
        RUN_CODE(0, SUBMIT, "--", COUNTED);
        RUN_CODE(0, "wait", submitted());
        CHECK_INT(i + 1, lines_of("done"));
        CHECK_INT(i + 1, objects("jobs"));
    }
}

/* The server checks the quota before the name of the object. */
TEST(job_that_is_accepted_late_runs_although_its_repeated_launch_exceeds_the_quota)
{
    REQUIRE(cluster_begin());
    control("fault-create-job", "late\nError from server (Forbidden): exceeded quota");
    RUN_CODE(0, SUBMIT, "--", COUNTED);
    RUN_CODE(0, "wait", submitted());
    CHECK_INT(1, lines_of("done"));
    CHECK_INT(1, objects("jobs"));
    CHECK_INT(1, objects("secrets"));
}

TEST(listing_that_fails_or_is_cut_changes_nothing)
{
    static const char *const faults[] = { "refused\nrefused", "cut\ncut" };

    REQUIRE(cluster_begin());
    RUN_CODE(0, SUBMIT, "--", SLEEP);
    AWAIT(jobs_show("\"state\": \"running\""), 60); /* a call of kubectl starts the pod */
    REQUIRE(wait_for_lines("pids", 1));
    for (int i = 0; i < 2; i++) {
        control("fault-get", faults[i]);
        RUN_CODE(0, "jobs", "--profile", "k8s");
        CHECK_CONTAINS(out, "unknown since ");
        control("fault-get", "");
        CHECK(jobs_show("\"state\": \"running\""));
    }
    control("fault-delete", "lost");
    RUN_CODE(0, "cancel", "--all", "--profile", "k8s");
    check_clean();
}

TEST(submit_that_is_killed_is_completed_by_the_next_command)
{
    static const char *const points[] = { "cluster-secret:1", "cluster-object:1" };

    REQUIRE(cluster_begin());
    for (int i = 0; i < 2; i++) {
        char fault[60];

        snprintf(fault, sizeof(fault), "%s:kill", points[i]);
        setenv("GRADPOOL_FAULT", fault, 1);
        RUN_CODE(-1, SUBMIT, "--", COUNTED);
        unsetenv("GRADPOOL_FAULT");
        AWAIT(jobs_show("\"exit_code\": 0") && strstr(out, "\"exit_code\": null") == NULL, 60);
        if (lines_of("done") != i + 1 || objects("jobs") != i + 1)
            GP_TEST_FAIL("%s: %d runs", points[i], lines_of("done"));
    }
}

TEST(canceled_launch_cannot_run_later)
{
    REQUIRE(cluster_begin());
    control("hold", "{}");
    setenv("GRADPOOL_FAULT", "cluster-secret:1:kill", 1);
    RUN_CODE(-1, SUBMIT, "--", SLEEP);
    unsetenv("GRADPOOL_FAULT");
    CHECK_INT(1, objects("secrets"));
    RUN_CODE(0, "cancel", "--all", "--profile", "k8s");
    check_clean();
}

TEST(profile_is_validated_with_and_without_a_job)
{
    REQUIRE(cluster_begin());
    RUN_CODE(0, "cluster", "validate", "k8s", "--no-job");
    CHECK_CONTAINS(out, "Kubernetes accepts the Secret and the Job");
    CHECK_INT(0, objects("jobs") + objects("secrets"));
    control("fault-create-job", "Error from server (Forbidden): violates PodSecurity");
    RUN_CODE(1, "cluster", "validate", "k8s", "--no-job");
    CHECK_CONTAINS(out, "violates PodSecurity");
    RUN_CODE(0, "cluster", "validate", "k8s");
    CHECK_CONTAINS(out, "on node-1");
    check_clean();
}

/* ---- secrets ---- */

TEST(values_of_variables_appear_in_the_secret_only)
{
    char job[80];

    REQUIRE(cluster_begin());
    setenv("CANARY", "squeamish-ossifrage", 1);
    RUN_CODE(0, "submit", "--profile", "k8s", "--dry-run", "--env", "CANARY", "--", TRAIN);
    CHECK_CONTAINS(out, "\"kind\": \"Secret\"");
    CHECK(strstr(out, "squeamish") == NULL && strstr(err, "squeamish") == NULL);
    RUN_CODE(0, SUBMIT, "--env", "CANARY", "--", "spmd", "-n", "1", "--", "sh", "-c",
             "test \"$CANARY\" = squeamish-ossifrage && echo it is set");
    snprintf(job, sizeof(job), "%s", submitted());
    RUN_CODE(0, "wait", job);
    RUN_CODE(0, "logs", job);
    CHECK_CONTAINS(out, "it is set");
    CHECK(jobs_show("done"));
    setenv("GP_TEST_ROOT", pools_root, 1);
    /* only the Secret has the value, and the recorded call that created it */
    CHECK(system("cd $GP_TEST_ROOT/k && grep -q squeamish secrets/*") == 0);
    CHECK(system("cd $GP_TEST_ROOT/k && test $(grep -c squeamish calls.jsonl) = 1") == 0);
    CHECK(system("cd $GP_TEST_ROOT/k && grep squeamish calls.jsonl | grep -q '\"create\"' &&"
                 " ! grep -o '\"words\": [^]]*' calls.jsonl | grep squeamish") == 0);
    CHECK(system("cd $GP_TEST_ROOT/k && ! grep -r squeamish jobs pods run/*/log run/*/message") == 0);
    CHECK(system("cd $GP_TEST_ROOT && ! grep -r squeamish w/gradpool-jobs/*/log w/gradpool-jobs/*/*.json "
                 "--exclude=command.json --exclude=job.json") == 0);
}

/* ---- checks ---- */

TEST(job_that_would_lose_its_files_is_refused)
{
    REQUIRE(cluster_begin());
    RUN_CODE(1, SUBMIT, "--", "train", "--network", "lenet", "--data", "digits:200", "--checkpoint-path",
             "/elsewhere/ck");
    CHECK_CONTAINS(err, "'--checkpoint-path' writes to /elsewhere/ck, which is outside the volume");
    RUN_CODE(1, SUBMIT, "--", "train", "--network", "lenet", "--data", "digits:200", "--checkpoint-path",
             "ck", "--out=../m.onnx");
    CHECK_CONTAINS(err, "'--out' writes to");
    RUN_CODE(1, SUBMIT, "--directory", "/elsewhere", "--", TRAIN);
    CHECK_CONTAINS(err, "outside the volume");
    RUN_CODE(0, "cluster", "new", "k8s", "--force", "--type", "kubernetes", "--image", "img", "--kubectl",
             in_root("k/kubectl"), "--gradpool", in_build("bin/gradpool"));
    RUN_CODE(1, SUBMIT, "--no-checkpoint", "--", "train", "--network", "lenet", "--data", "digits:200");
    CHECK_CONTAINS(err, "add 'volume = CLAIM:/PATH' to profile 'k8s'");
    RUN_CODE(1, SUBMIT, "--", "predict", "--model", "m.onnx", "--data", "digits:20", "--out", "p.csv");
    CHECK_CONTAINS(err, "'--out' writes there");
    RUN_CODE(1, SUBMIT, "--array", "--no-checkpoint", "--", "parfor", "1:2", "--", "train", "--network",
             "lenet", "--data", "digits:200", "--seed", "{}");
    CHECK_CONTAINS(err, "add 'volume");
    CHECK_INT(0, objects("jobs"));
    CHECK_INT(0, objects("secrets"));
}

/* ---- engine ---- */

TEST(kubectl_that_hangs_is_killed_and_the_outcome_is_unknown)
{
    static gp_profile profile;
    cluster_launch launch = {
        .name = "gp-0123456789abcdef", .folder = "", .command = "{}", .command_bytes = 2
    };
    cluster_listing listing = { 0 };
    cluster_facts facts;
    char id[CLUSTER_ID_BYTES];
    gp_error e;

    REQUIRE(cluster_begin());
    REQUIRE_OK(gp_profile_read(&profile, "k8s", &e), e);
    cluster_kubernetes_call_ms = 1500;
    control("fault-get", "stall\nstall");
    CHECK_STATUS(GP_ETIMEDOUT, cluster_engine_kubernetes.list(&profile, &listing, &e));
    CHECK_CONTAINS(e.message, "kubectl did not exit within");
    CHECK_STATUS(GP_ETIMEDOUT, cluster_engine_kubernetes.facts(&profile, launch.name, &facts, &e));
    control("fault-create-job", "hang");
    control("hold", "{}");
    CHECK_STATUS(GP_ETIMEDOUT, cluster_engine_kubernetes.launch(&profile, &launch, id, &e));
    cluster_kubernetes_call_ms = 28000;
    control("fault-create-job", "");
    control("fault-get", "");
    /* the Job exists: the repeated launch finds it */
    CHECK_STATUS(GP_OK, cluster_engine_kubernetes.launch(&profile, &launch, id, &e));
    CHECK_TEXT(launch.name, id);
    CHECK_INT(1, objects("jobs"));
    CHECK(system("grep -q ownerReferences \"$HOME\"/k/secrets/*") == 0);
    REQUIRE_OK(cluster_engine_kubernetes.list(&profile, &listing, &e), e);
    REQUIRE(listing.count == 1);
    CHECK_TEXT(launch.name, listing.entries[0].name);
    REQUIRE_OK(cluster_engine_kubernetes.cancel(&profile, &listing.entries[0], &e), e);
    cluster_listing_deinit(&listing);
    check_clean();
    unlink(in_root("k/kubectl"));
    CHECK_STATUS(GP_EUNSUPPORTED, cluster_engine_kubernetes.launch(&profile, &launch, id, &e));
}

/* ---- attempts ---- */

TEST(pod_after_the_result_reports_the_result)
{
    char job[80], line[900], folder[300];

    REQUIRE(cluster_begin());
    RUN_CODE(0, SUBMIT, "--", "spmd", "-n", "1", "--", "sh", "-c", "exit 7");
    snprintf(job, sizeof(job), "%s", submitted());
    RUN_CODE(7, "wait", job);
    snprintf(folder, sizeof(folder), "%s/gradpool-jobs/%s", in_root("w"), strchr(job, ':') + 1);
    snprintf(line, sizeof(line), "%s job-attempt %s /none %s > /dev/null 2>&1; test $? = 1",
             in_build("bin/gradpool"), folder, in_root("message"));
    CHECK(system(line) == 0);
    slurp(in_root("message"), out, sizeof(out));
    CHECK_CONTAINS(out, "\"result\": true, \"exit_code\": 7");
    snprintf(line, sizeof(line), "%s job-attempt %s-new /none %s > /dev/null 2>&1; test $? = 1",
             in_build("bin/gradpool"), folder, in_root("message"));
    CHECK(system(line) == 0);
    slurp(in_root("message"), out, sizeof(out));
    CHECK_CONTAINS(out, "\"attempt\": 0, \"result\": true, \"exit_code\": 1");
    CHECK_CONTAINS(out, "/none");
}
