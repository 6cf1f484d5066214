/* test_kubernetes_state.c: replies of kubectl, as recorded from its documentation, and malformed
 * ones; manifests and the checks before them. */
#include <sys/stat.h>

#include "client/cluster/kubernetes.h"
#include "client/cluster/kubernetes_manifest.h"
#include "client/cluster/kubernetes_state.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "tests/proto/scratch.h"
#include "tests/gp_test.h"

#define NAME  "gp-0123456789abcdef"
#define OTHER "gp-fedcba9876543210"

#define LIST(items) "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [" items "]}"
#define META(name, extra)                                                                                    \
    "\"metadata\": {\"name\": \"" name "\", \"labels\": {\"gradpool/job\": \"" NAME "\"}" extra "}"
#define JOB(spec, conditions)                                                                                \
    "{\"kind\": \"Job\", " META(NAME, "") ", \"spec\": {" spec                                               \
                                          "}, \"status\": {\"conditions\": [" conditions "]}}"
#define POD(name, at, phase, state)                                                                          \
    "{\"kind\": \"Pod\", " META(                                                                             \
        name, ", \"creationTimestamp\": \"2026-11-23T18:" at                                                 \
              "Z\"") ", \"spec\": {\"nodeName\": \"n1\"}, \"status\": {\"phase\": \"" phase                  \
                     "\", \"containerStatuses\": [{\"name\": \"sidecar\", \"state\": {}}, {\"name\": "       \
                     "\"gradpool\", "                                                                        \
                     "\"state\": {" state "}}]}}"
#define RUNNING "\"running\": {\"startedAt\": \"2026-11-23T18:40:44Z\"}"
#define ENDED(code, reason, message)                                                                         \
    "\"terminated\": {\"exitCode\": " #code ", \"reason\": \"" reason                                        \
    "\", \"startedAt\": \"2026-11-23T18:40:44Z\", \"finishedAt\": \"2026-11-23T18:40:50Z\", \"message\": "   \
    "\"" message "\"}"
#define MESSAGE(attempt, result, code, reason)                                                               \
    "{\\\"gradpool\\\": 1, \\\"attempt\\\": " #attempt ", \\\"result\\\": " #result                          \
    ", \\\"exit_code\\\": " #code ", \\\"reason\\\": \\\"" reason "\\\"}"
#define COMPLETE "{\"type\": \"Complete\", \"status\": \"True\"}"
#define FAILED                                                                                               \
    "{\"type\": \"Failed\", \"status\": \"True\", \"reason\": \"BackoffLimitExceeded\", \"message\": "       \
    "\"limit\"}"

static gp_error err;
static cluster_listing listing;
static bool unexplained;

TEARDOWN()
{
    cluster_listing_deinit(&listing);
}

/* Parse a listing of one job, and return its entry. */
static const cluster_entry *entry_of(const char *text)
{
    static const cluster_entry none = { .state = CLUSTER_ENTRY_ENDED };

    cluster_listing_deinit(&listing);
    if (kubernetes_list_parse(&listing, &unexplained, text, strlen(text), &err) != GP_OK ||
        listing.count != 1) {
        GP_TEST_FAIL("%zu jobs, %s", listing.count, err.message);
        return &none;
    }
    CHECK_TEXT(NAME, listing.entries[0].name);
    CHECK_TEXT(NAME, listing.entries[0].id);
    return &listing.entries[0];
}

#define CHECK_ENTRY(text_, state_, shown, reason_)                                                           \
    do {                                                                                                     \
        const cluster_entry *entry_ = entry_of(text_);                                                       \
        CHECK_INT(state_, entry_->state);                                                                    \
        CHECK_TEXT(shown, entry_->text);                                                                     \
        CHECK_TEXT(reason_, entry_->reason);                                                                 \
    } while (0)

TEST(state_of_a_job_comes_from_its_job_and_its_newest_pod)
{
    CHECK_ENTRY(LIST(JOB("", "")), CLUSTER_ENTRY_QUEUED, "PENDING", "the Job has no pod yet");
    CHECK(unexplained);
    CHECK_ENTRY(LIST(JOB("\"suspend\": true", "")), CLUSTER_ENTRY_QUEUED, "SUSPENDED",
                "the Job is suspended; its queue has not admitted it");
    CHECK_ENTRY(LIST(JOB("", "") "," POD("p1", "40:00", "Running", RUNNING)), CLUSTER_ENTRY_RUNNING,
                "RUNNING on n1", "");
    CHECK(!unexplained);
    CHECK_ENTRY(LIST(POD("p1", "40:00", "Running", RUNNING)), CLUSTER_ENTRY_RUNNING, "RUNNING on n1", "");
    CHECK_ENTRY(LIST(JOB("", "") "," POD("p1", "40:00", "Unknown", "")), CLUSTER_ENTRY_RUNNING,
                "UNKNOWN on n1", "");
    CHECK_ENTRY(LIST(JOB("", "") "," POD("p1", "40:00", "Pending",
                                         "\"waiting\": {\"reason\": \"ContainerCreating\"}")),
                CLUSTER_ENTRY_QUEUED, "PENDING (ContainerCreating)", "n1 prepares the image and the volumes");
    CHECK_ENTRY(LIST(JOB("", COMPLETE) "," POD("p1", "40:00", "Succeeded", ENDED(0, "Completed", ""))),
                CLUSTER_ENTRY_ENDED, "COMPLETE", "exit code 0");
    /* a pod still runs, so the job has not ended */
    CHECK_ENTRY(LIST(JOB("", FAILED) "," POD("p1", "40:00", "Running", RUNNING)), CLUSTER_ENTRY_RUNNING,
                "RUNNING on n1", "");
    CHECK_ENTRY(LIST(JOB("", FAILED)), CLUSTER_ENTRY_ENDED, "FAILED", "BackoffLimitExceeded: limit");
    CHECK_ENTRY(LIST(JOB("", FAILED) "," POD("p1", "40:00", "Failed", ENDED(137, "OOMKilled", ""))),
                CLUSTER_ENTRY_ENDED, "FAILED", "OOMKilled (exit code 137)");
    /* the newest pod counts, in any order */
    CHECK_ENTRY(LIST(POD("p2", "41:00", "Failed", ENDED(2, "Error", "")) "," POD(
                    "p1", "40:00", "Failed", ENDED(1, "Error", "")) "," JOB("", FAILED)),
                CLUSTER_ENTRY_ENDED, "FAILED", "exit code 2");
    CHECK_INT(1, listing.entries[0].restarts);
    CHECK_ENTRY(LIST(JOB("", "") "," POD("p1", "40:00", "Failed",
                                         ENDED(130, "Error", MESSAGE(1, false, 130, "ended")))),
                CLUSTER_ENTRY_QUEUED, "PENDING", "waits for a new pod; the last one: ended");
}

TEST(objects_that_are_deleted_are_not_gone)
{
    static const char job[] =
        LIST("{\"kind\": \"Job\", " META(NAME, ", \"deletionTimestamp\": \"2026-11-23T18:41:00Z\"") "}");
    static const char pod[] = LIST("{\"kind\": \"Pod\", " META(
        "p", ", \"deletionTimestamp\": \"2026-11-23T18:41:00Z\"") ", "
                                                                  "\"spec\": {\"nodeName\": \"n1\"}, "
                                                                  "\"status\": {\"phase\": \"Running\"}}");

    CHECK_ENTRY(job, CLUSTER_ENTRY_RUNNING, "TERMINATING", "");
    CHECK_ENTRY(pod, CLUSTER_ENTRY_RUNNING, "TERMINATING on n1", "");
}

TEST(objects_of_others_are_skipped)
{
    static const char others[] = LIST(
        "{\"kind\": \"Job\", \"metadata\": {\"name\": \"x\", \"labels\": {\"gradpool/job\": \"x\"}}}, 7, [], "
        "{\"kind\": \"Job\", \"metadata\": {\"name\": \"x\", \"labels\": {\"gradpool/job\": \"" NAME "\"}}}, "
        "{\"kind\": \"Service\", " META("s", "") "}, {\"kind\": \"Pod\"}, "
                                                 "{\"kind\": \"Pod\", " META(
                                                     "p", "") ", \"status\": {\"phase\": \"Failed\"}}");

    REQUIRE_OK(kubernetes_list_parse(&listing, &unexplained, others, strlen(others), &err), err);
    CHECK_INT(0, listing.count);
}

TEST(malformed_replies_are_errors_and_add_nothing)
{
    static const char *const cases[] = {
        "",
        "null",
        "[]",
        "{}",
        "{\"kind\": \"List\"}",
        "{\"kind\": \"Status\", \"items\": []}",
        "{\"kind\": \"List\", \"items\": {}}",
        "{\"kind\": \"List\", \"items\": [}",
        "No resources found",
    };
    const char whole[] = LIST(JOB("", ""));
    kubernetes_pods pods;
    cluster_facts facts;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_STATUS(GP_EPEER,
                     kubernetes_list_parse(&listing, &unexplained, cases[i], strlen(cases[i]), &err));
        CHECK_STATUS(GP_EPEER, kubernetes_facts_parse(&facts, &pods, NAME, cases[i], strlen(cases[i]), &err));
        CHECK_STATUS(GP_EPEER, kubernetes_explain(&listing, cases[i], strlen(cases[i]), &err));
    }
    for (size_t bytes = 0; bytes + 1 < sizeof(whole); bytes++) /* cut anywhere */
        CHECK_STATUS(GP_EPEER, kubernetes_list_parse(&listing, &unexplained, whole, bytes, &err));
    CHECK_INT(0, listing.count);
}

TEST(more_objects_than_the_limit_are_refused)
{
    gp_buffer text;

    gp_buffer_init(&text, 1 << 20);
    REQUIRE_OK(gp_buffer_printf(&text, &err, "{\"kind\": \"List\", \"items\": [0"), err);
    for (int i = 0; i < KUBERNETES_ITEMS_MAX; i++)
        REQUIRE_OK(gp_buffer_printf(&text, &err, ",0"), err);
    REQUIRE_OK(gp_buffer_printf(&text, &err, "]}"), err);
    CHECK_STATUS(GP_ELIMIT,
                 kubernetes_list_parse(&listing, &unexplained, gp_buffer_text(&text), text.bytes, &err));
    CHECK_CONTAINS(err.message, "delete old Jobs");
    gp_buffer_deinit(&text);
}

TEST(texts_of_others_are_printable_and_short)
{
    const cluster_entry *entry = entry_of(LIST("{\"kind\": \"Pod\", " META(
        "p", "") ", \"spec\": {}, \"status\": {\"phase\": \"Pending\", "
                 "\"conditions\": [{\"type\": \"PodScheduled\", \"status\": \"False\", \"reason\": "
                 "\"Unschedulable\", \"message\": \"0/3 nodes\\nare\\u001b[31m available: "
                 "................................................................................."
                 "................................................................................\"}]}}"));

    CHECK_CONTAINS(entry->reason, "Unschedulable: 0/3 nodes are?[31m available");
    CHECK_INT(CLUSTER_REASON_BYTES - 1, strlen(entry->reason));
}

TEST(events_and_workloads_explain_waiting_jobs)
{
    static const char event[] = LIST(
        "{\"kind\": \"Event\", \"involvedObject\": {\"kind\": \"Job\", \"name\": \"" NAME "\"}, \"reason\": "
        "\"FailedCreate\", \"message\": \"exceeded quota: gpus\"}");
    static const char other[] =
        LIST("{\"kind\": \"Event\", \"involvedObject\": {\"kind\": \"Job\", \"name\": \"" OTHER
             "\"}, \"reason\": \"FailedCreate\", \"message\": \"other\"}, 1, {}");

    CHECK_ENTRY(LIST(JOB("", "")), CLUSTER_ENTRY_QUEUED, "PENDING", "the Job has no pod yet");
    REQUIRE_OK(kubernetes_explain(&listing, other, strlen(other), &err), err);
    CHECK_TEXT("the Job has no pod yet", listing.entries[0].reason);
    REQUIRE_OK(kubernetes_explain(&listing, event, strlen(event), &err), err);
    CHECK_TEXT("FailedCreate: exceeded quota: gpus", listing.entries[0].reason);
}

/* ---- facts ---- */

static cluster_facts facts;
static kubernetes_pods pods;

static bool facts_of(const char *text)
{
    gp_status status = kubernetes_facts_parse(&facts, &pods, NAME, text, strlen(text), &err);

    if (status != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return status == GP_OK;
}

TEST(result_comes_from_the_termination_message)
{
    REQUIRE(facts_of(LIST(JOB("", FAILED) "," POD("p1", "40:00", "Failed",
                                                  ENDED(7, "Error", MESSAGE(3, true, 7, "exit code 7"))))));
    CHECK(facts.has_result && facts.begun);
    CHECK_INT(7, facts.exit_code);
    CHECK_INT(3, facts.attempt);
    CHECK_INT(3, facts.result_attempt);
    CHECK_TEXT("exit code 7", facts.reason);
    CHECK_TEXT("n1", facts.host);
    CHECK_INT(INT64_C(1795459244000), facts.begin_ms);
    CHECK_INT(INT64_C(1795459250000), facts.end_ms);
    CHECK_INT(1, pods.count);
    CHECK(!pods.list[0].running);
}

TEST(exit_code_is_the_result_of_a_process_that_left_no_message)
{
    REQUIRE(facts_of(LIST(JOB("", FAILED) "," POD("p1", "40:00", "Failed", ENDED(2, "Error", "")))));
    CHECK(facts.has_result && facts.exit_code == 2);
    REQUIRE(facts_of(LIST(JOB("", FAILED) "," POD("p1", "40:00", "Failed", ENDED(2, "Error", "{}")))));
    CHECK(facts.has_result && facts.exit_code == 2);
    /* another pod will follow */
    REQUIRE(facts_of(LIST(JOB("", "") "," POD("p1", "40:00", "Failed", ENDED(2, "Error", "")))));
    CHECK(!facts.has_result);
    /* a process that was killed has no result */
    REQUIRE(facts_of(LIST(JOB("", FAILED) "," POD("p1", "40:00", "Failed", ENDED(137, "OOMKilled", "")))));
    CHECK(!facts.has_result);
    REQUIRE(facts_of(LIST(JOB("", FAILED) "," POD("p1", "40:00", "Failed", ENDED(137, "Error", "")))));
    CHECK(!facts.has_result);
    REQUIRE(facts_of(LIST(JOB("", FAILED) "," POD("p1", "40:00", "Failed", ENDED(128, "StartError", "")))));
    CHECK(!facts.has_result);
}

TEST(attempts_and_their_reasons_come_from_all_pods)
{
    REQUIRE(facts_of(LIST(POD("p2", "42:00", "Running", RUNNING) "," JOB("", "") "," POD(
        "p1", "40:00", "Failed",
        ENDED(130, "Error", MESSAGE(1, false, 130, "ended by the engine (SIGTERM)"))))));
    CHECK(!facts.has_result);
    CHECK_INT(1, facts.attempt);
    CHECK_TEXT("ended by the engine (SIGTERM)", facts.attempt_reason);
    REQUIRE(pods.count == 2);
    CHECK_TEXT("p1", pods.list[0].name);
    CHECK(pods.list[1].running);
    REQUIRE(facts_of(LIST("")));
    CHECK(facts.attempt == 0 && pods.count == 0);
}

TEST(termination_message_is_read_as_written)
{
    kubernetes_message message = { .attempt = 2, .has_result = true, .exit_code = 255, .reason = "a \"b\"" };
    kubernetes_message parsed = { 0 };
    static const char *const malformed[] = {
        "",
        "x",
        "{}",
        "{\"gradpool\": 2, \"attempt\": 1, \"result\": true, \"exit_code\": 0}",
        "{\"gradpool\": 1, \"attempt\": -1, \"result\": true, \"exit_code\": 0}",
        "{\"gradpool\": 1, \"attempt\": 10001, \"result\": true, \"exit_code\": 0}",
        "{\"gradpool\": 1, \"attempt\": 1, \"result\": 1, \"exit_code\": 0}",
        "{\"gradpool\": 1, \"attempt\": 1, \"result\": true, \"exit_code\": 256}",
    };
    gp_buffer text;

    gp_buffer_init(&text, KUBERNETES_MESSAGE_BYTES);
    REQUIRE_OK(kubernetes_message_format(&message, &text, &err), err);
    CHECK(kubernetes_message_parse(&parsed, gp_buffer_text(&text)));
    CHECK(parsed.attempt == 2 && parsed.has_result && parsed.exit_code == 255);
    CHECK_TEXT(message.reason, parsed.reason);
    gp_buffer_deinit(&text);
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
        CHECK(!kubernetes_message_parse(&parsed, malformed[i]));
}

TEST(number_of_an_attempt_is_in_the_first_line_of_its_log)
{
    CHECK_INT(12, kubernetes_attempt_parse("== attempt 12 on n1, job gp-x ==\nlenet"));
    CHECK_INT(0, kubernetes_attempt_parse("== attempt 12"));
    CHECK_INT(0, kubernetes_attempt_parse("== attempt 10001 on n1"));
    CHECK_INT(0, kubernetes_attempt_parse("gradpool: no such file"));
    CHECK_INT(0, kubernetes_attempt_parse(""));
}

/* ---- manifests ---- */

static gp_profile profile;

static gp_status profile_parse(const char *settings)
{
    char text[1000];

    snprintf(text, sizeof(text), "type = kubernetes\nimage = img\n%s", settings);
    return gp_profile_parse(&profile, text, strlen(text), "p.conf", &err);
}

/* Format the Job of a profile; free *out with gp_json_free(). */
static gp_status job_of(gp_json **out, const char *settings, bool requeue)
{
    const cluster_launch launch = { .name = NAME, .folder = "/" NAME, .requeue = requeue };
    gp_buffer text;
    gp_status status = profile_parse(settings);

    gp_buffer_init(&text, KUBERNETES_MANIFEST_MAX);
    if (status == GP_OK)
        status = kubernetes_job_format(&profile, &launch, &text, &err);
    if (status == GP_OK)
        status = gp_json_parse(out, gp_buffer_text(&text), text.bytes, &err);
    gp_buffer_deinit(&text);
    return status;
}

/* Return a value inside an object by its keys; digits are indices. */
static const gp_json *at(const gp_json *value, const char *keys)
{
    char path[200], *rest = path;

    snprintf(path, sizeof(path), "%s", keys);
    for (const char *key; (key = strsep(&rest, ",")) != NULL;)
        value = key[0] >= '0' && key[0] <= '9' ? gp_json_element(value, (size_t)(key[0] - '0'))
                                               : gp_json_member(value, key);
    return value;
}

/* Read the log at *offset as `logs -f` does, while a program in place of kubectl has this log. */
static const char *log_read(const gp_profile *cloud, const char *log, uint64_t *offset)
{
    static char text[200];
    size_t got = 0;

    if (gp_file_write(scratch_path("log"), log, strlen(log), &err) != GP_OK ||
        cluster_engine_kubernetes.read(cloud, NAME, "log", *offset, text, sizeof(text) - 1, &got, &err) !=
            GP_OK)
        GP_TEST_FAIL("%s", err.message);
    text[got] = '\0';
    *offset += got;
    return text;
}

TEST(log_continues_after_its_rotation)
{
    static const char objects[] = LIST(POD(NAME "-a", "40:00", "Running", RUNNING));
    static gp_profile cloud = { .type = GP_PROFILE_KUBERNETES, .name = "cloud" };
    char script[400];
    uint64_t offset = 0;

    snprintf(cloud.kubectl, sizeof(cloud.kubectl), "%s/kubectl", scratch_dir);
    snprintf(script, sizeof(script),
             "#!/bin/sh\ncd %s\ncase \"$*\" in *' logs '*) cat log;; *) cat pods;; esac\n", scratch_dir);
    REQUIRE_OK(gp_file_write(scratch_path("pods"), objects, strlen(objects), &err), err);
    REQUIRE_OK(gp_file_write(cloud.kubectl, script, strlen(script), &err), err);
    REQUIRE(chmod(cloud.kubectl, 0700) == 0);
    CHECK_TEXT("step 1\nstep 2\n", log_read(&cloud, "step 1\nstep 2\n", &offset));
    CHECK_TEXT("", log_read(&cloud, "step 1\nstep 2\n", &offset));
    CHECK_TEXT("step 3\n", log_read(&cloud, "step 1\nstep 2\nstep 3\n", &offset));
    CHECK_TEXT("step 5\n", log_read(&cloud, "step 5\n", &offset));
    CHECK_TEXT("step 6\n", log_read(&cloud, "step 5\nstep 6\n", &offset));
    CHECK_TEXT("", log_read(&cloud, "", &offset));
    CHECK_TEXT("step 7\n", log_read(&cloud, "step 7\n", &offset));
}

TEST(job_has_the_resources_and_limits_of_the_profile)
{
    gp_json *job;
    const gp_json *spec, *container;

    REQUIRE_OK(job_of(&job, "gpus = 2\ncores = 8\nmemory = 64G\ntime = 1h\nvolume = c:/v\nqueue = q\n", true),
               err);
    spec = at(job, "spec,template,spec");
    container = at(spec, "containers,0");
    CHECK_TEXT("q", gp_json_text(at(job, "metadata,labels,kueue.x-k8s.io/queue-name"), ""));
    CHECK(gp_json_bool(at(job, "spec,suspend"), false));
    CHECK_INT(0, gp_json_integer(at(job, "spec,backoffLimit"), -1));
    CHECK_TEXT("Ignore", gp_json_text(at(job, "spec,podFailurePolicy,rules,0,action"), ""));
    CHECK_TEXT("2", gp_json_text(at(container, "resources,limits,nvidia.com/gpu"), ""));
    CHECK_TEXT("65536Mi", gp_json_text(at(container, "resources,limits,memory"), ""));
    CHECK_TEXT("8", gp_json_text(at(container, "resources,requests,cpu"), ""));
    CHECK(at(container, "resources,limits,cpu") == NULL);
    CHECK_TEXT("/v/gradpool-jobs/" NAME, gp_json_text(at(container, "command,2"), ""));
    CHECK_INT(3600 + KUBERNETES_DEADLINE_S, gp_json_integer(at(spec, "activeDeadlineSeconds"), 0));
    CHECK(!gp_json_bool(at(spec, "automountServiceAccountToken"), true));
    CHECK(gp_json_bool(at(spec, "securityContext,runAsNonRoot"), false));
    CHECK(!gp_json_bool(at(container, "securityContext,allowPrivilegeEscalation"), true));
    CHECK_TEXT("ALL", gp_json_text(at(container, "securityContext,capabilities,drop,0"), ""));
    CHECK_TEXT("c", gp_json_text(at(spec, "volumes,2,persistentVolumeClaim,claimName"), ""));
    gp_json_free(job);
    REQUIRE_OK(job_of(&job, "cores = 8\nfolder = /v/jobs\nvolume = c:/v\n", false), err);
    container = at(job, "spec,template,spec,containers,0");
    CHECK(at(job, "spec,podFailurePolicy") == NULL && at(job, "spec,suspend") == NULL);
    CHECK_TEXT("8", gp_json_text(at(container, "resources,limits,cpu"), ""));
    CHECK_TEXT("/v/jobs/" NAME, gp_json_text(at(container, "command,2"), ""));
    gp_json_free(job);
    REQUIRE_OK(job_of(&job, "", false), err);
    CHECK(gp_json_is_object(at(job, "spec,template,spec,volumes,2,emptyDir")));
    gp_json_free(job);
}

TEST(settings_that_contradict_each_other_are_refused)
{
    static const struct {
        const char *settings, *message;
    } cases[] = {
        { "folder = /f\n", "add 'volume = CLAIM:/PATH'" },
        { "folder = /vv\nvolume = c:/v\n", "/vv is outside the volume /v" },
        { "folder = /v/../f\nvolume = c:/v\n", "outside the volume" },
        { "labels = gradpool/job=x\n", "gradpool sets the label 'gradpool/job' itself" },
        { "labels = a=b,kueue.x-k8s.io/queue-name=x\n", "use the setting 'queue'" },
        { "labels = a=b,c=d,a=e\n", "the label 'a' occurs twice" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        REQUIRE_OK(profile_parse(cases[i].settings), err);
        CHECK_STATUS(GP_EINVAL, kubernetes_profile_check(&profile, &err));
        CHECK_CONTAINS(err.message, cases[i].message);
    }
    REQUIRE_OK(profile_parse("folder = /v/\nvolume = c:/v/\nlabels = a=b,c=d\n"), err);
    REQUIRE_OK(kubernetes_profile_check(&profile, &err), err);
}

#define JOB_CHECK(...)                                                                                       \
    kubernetes_job_check(&profile, "/v/w", (const char *const[]){ __VA_ARGS__ },                             \
                         sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), &err)

TEST(outputs_outside_the_volume_are_refused)
{
    REQUIRE_OK(profile_parse("volume = c:/v\n"), err);
    CHECK_STATUS(GP_OK, JOB_CHECK("train", "--checkpoint-path", "ck", "--out", "/v/m.onnx"));
    CHECK_STATUS(GP_EINVAL, JOB_CHECK("train", "--checkpoint-path", "../../ck"));
    CHECK_STATUS(GP_EINVAL, JOB_CHECK("train", "--checkpoint-path=/volume"));
    CHECK_STATUS(GP_EINVAL, JOB_CHECK("predict", "--out", "/tmp/p.csv"));
    CHECK_STATUS(GP_OK, JOB_CHECK("spmd", "--", "program", "--out", "/tmp/x"));
    CHECK_STATUS(GP_EINVAL, JOB_CHECK("parfor", "1:2", "--", "train", "--out", "/tmp/x"));
    REQUIRE_OK(profile_parse(""), err);
    CHECK_STATUS(GP_EINVAL, JOB_CHECK("train"));
    CHECK_STATUS(GP_EINVAL, JOB_CHECK("parfor", "1:2", "--", "train"));
    CHECK_STATUS(GP_OK, JOB_CHECK("evaluate", "--model", "m.onnx"));
    CHECK_STATUS(GP_EINVAL, JOB_CHECK("evaluate", "--confusion", "c.png"));
    CHECK_STATUS(GP_OK, JOB_CHECK("spmd", "--", "train"));
}
