/* test_cluster_command_jobs.c: jobs of the engine `command` with tests/fake/spool.py, which runs
 * them as processes of this host. */
#include "client/cluster/command.h"
#include "client/cluster/job_folder.h"
#include "client/cluster/profile.h"
#include "tests/service/commands.h"

static gp_profile profile;
static cluster_listing listing;
static char id[CLUSTER_ID_BYTES], name[CLUSTER_NAME_BYTES], folder[600];

TEARDOWN()
{
    cluster_listing_deinit(&listing);
    unsetenv("XDG_CONFIG_HOME");
    pools_end();
}

/* Create the profile "spool" with two cores and an empty spool. */
static bool spool_begin(void)
{
    const char *source = getenv("GP_SOURCE_DIR");
    char launch[600], status[600], cancel[600];
    gp_error e;

    commands_begin();
    setenv("HOME", pools_root, 1);
    setenv("XDG_CONFIG_HOME", in_root("config"), 1);
    if (mkdir(in_root("jobs"), 0700) != 0)
        abort();
    source = source == NULL ? "." : source;
    snprintf(launch, sizeof(launch), "%s/tests/fake/spool.py %s launch {name} {script}", source,
             in_root("spool"));
    snprintf(status, sizeof(status), "%s/tests/fake/spool.py %s list", source, in_root("spool"));
    snprintf(cancel, sizeof(cancel), "%s/tests/fake/spool.py %s cancel {id}", source, in_root("spool"));
    RUN_CODE(0, "cluster", "new", "spool", "--type", "command", "--folder", in_root("jobs"), "--cores", "2",
             "--gradpool", in_build("bin/gradpool"), "--launch", launch, "--status", status, "--cancel",
             cancel);
    if (gp_profile_read(&profile, "spool", &e) != GP_OK)
        GP_TEST_FAIL("%s", e.message);
    return profile.launch[0] != '\0';
}

/* Launch a job with these words. */
static bool job_begin(const char **words, size_t count)
{
    cluster_command command = {
        .engine = "command", .directory = in_root("w"), .umask = 077, .words = words, .word_count = count
    };
    const cluster_launch launch = { .name = name, .folder = folder };
    gp_buffer text;
    gp_error e;

    gp_buffer_init(&text, CLUSTER_COMMAND_JSON_MAX);
    gp_status status = cluster_name_new(name, &e);

    snprintf(folder, sizeof(folder), "%s/%s", profile.folder, name);
    if (status == GP_OK)
        status = cluster_command_format(&command, &text, &e);
    if (status == GP_OK)
        status = cluster_folder_create(folder, (const char *)text.data, text.bytes, &e);
    if (status == GP_OK)
        status = cluster_engine_command.launch(&profile, &launch, id, &e);
    gp_buffer_deinit(&text);
    if (status != GP_OK)
        GP_TEST_FAIL("%s", e.message);
    return status == GP_OK;
}

/* List until the only job has the state. Return the entry; NULL: an error, or the time limit. */
static const cluster_entry *await_state(cluster_entry_state state)
{
    gp_error e = { GP_OK, "" };
    gp_status status = GP_OK;

    AWAIT((cluster_listing_deinit(&listing), status = cluster_engine_command.list(&profile, &listing, &e)) !=
                  GP_OK ||
              (listing.count == 1 && listing.entries[0].state == state),
          50);
    if (status == GP_OK && listing.count == 1 && listing.entries[0].state == state)
        return &listing.entries[0];
    GP_TEST_FAIL("%zu jobs: %s", listing.count, e.message);
    return NULL;
}

TEST(job_runs_on_the_cores_of_its_profile_and_has_a_result)
{
    const char *words[] = { "train",    "--network", "lenet", "--data", "digits:200",
                            "--epochs", "1",         "--out", "m.onnx" };
    cluster_facts facts;
    gp_error e;

    REQUIRE(spool_begin());
    REQUIRE(job_begin(words, sizeof(words) / sizeof(words[0])));
    REQUIRE(await_state(CLUSTER_ENTRY_ENDED) != NULL);
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &e), e);
    slurp(path_in(folder, "log"), out, sizeof(out));
    CHECK_INT(1, facts.attempt);
    CHECK(facts.has_result);
    if (facts.exit_code != 0)
        GP_TEST_FAIL("exit code %d: %s\n%s", facts.exit_code, facts.reason, out);
    CHECK_CONTAINS(out, name); /* the launch name is the name of the pool */
    CHECK(access(in_root("w/m.onnx"), F_OK) == 0);
}

TEST(canceled_job_leaves_no_process)
{
    const char *words[] = { "spmd", "--", "sh", "-c", "echo $$ >> pids; exec sleep 600" };
    const cluster_entry *entry;
    cluster_facts facts;
    gp_error e;

    REQUIRE(spool_begin());
    REQUIRE(job_begin(words, sizeof(words) / sizeof(words[0])));
    REQUIRE(wait_for_lines("pids", 2));
    REQUIRE((entry = await_state(CLUSTER_ENTRY_RUNNING)) != NULL);
    REQUIRE_OK(cluster_folder_cancel(folder, &e), e);
    REQUIRE_OK(cluster_engine_command.cancel(&profile, entry, &e), e);
    REQUIRE(await_state(CLUSTER_ENTRY_ENDED) != NULL);
    CHECK_INT(0, alive_of("pids", true));
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &e), e);
    CHECK(facts.has_result && facts.exit_code == 130);
    CHECK_TEXT("canceled", facts.reason);
}
