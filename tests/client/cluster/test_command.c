/* test_command.c: the engine `command` with tests/fake/spool.py, which runs jobs as processes of
 * this host and injects faults. */
#include "client/cluster/command.h"

#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cluster/allocation.h"
#include "client/cluster/profile.h"
#include "common/base/clock.h"
#include "tests/proto/scratch.h"
#include "tests/gp_test.h"

enum { AWAIT_MS = 60000 };

#define NAME "gp-0123456789abcdef"

static const cluster_engine *const engine = &cluster_engine_command;
static gp_profile profile;
static cluster_listing listing;
static char id[CLUSTER_ID_BYTES];
static gp_error err;

/* Folders of the test: its root, the spool of the engine and the job folder. */
static char root[64], spool[80], folder[120];

TEARDOWN()
{
    cluster_listing_deinit(&listing);
}

/* Write text to a file below the root; return its path. */
static const char *put(const char *name, const char *text, mode_t mode)
{
    static char path[200];

    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *out = fopen(path, "w");

    if (out == NULL || fputs(text, out) < 0 || fclose(out) != 0 || chmod(path, mode) != 0)
        GP_TEST_FAIL("cannot write %s", path);
    return path;
}

static bool there_is(const char *name)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/%s", root, name);
    return access(path, F_OK) == 0;
}

/* Make an empty spool, a job folder, and a profile. The program `gradpool` of the profile writes
 * its words to the file `ran` and runs while the file `busy` exists.
 *   settings  further lines of the profile
 *   launch    words of the launch command after its program; NULL: name and script
 *   status    status command; NULL: that of the spool */
static bool begin(const char *settings, const char *launch, const char *status)
{
    static int count;
    const char *source = getenv("GP_SOURCE_DIR");
    char engine_words[400], own[500], text[4000];

    snprintf(root, sizeof(root), "%s/%d", scratch_dir, ++count);
    snprintf(spool, sizeof(spool), "%s/spool", root);
    snprintf(folder, sizeof(folder), "%s/" NAME, root);
    if (mkdir(root, 0700) != 0 || mkdir(spool, 0700) != 0 || mkdir(folder, 0700) != 0)
        GP_TEST_FAIL("cannot create %s", root);
    snprintf(text, sizeof(text),
             "#!/bin/sh\necho \"$@\" \"$GRADPOOL_JOB_FOLDER\" "
             "$GRADPOOL_ALLOCATION_TIME_S$GRADPOOL_ALLOCATION_CORES$GRADPOOL_SSH_JOB >> "
             "%s/ran\nwhile [ -e %s/busy ]; do sleep "
             "0.05; done\n",
             root, root);
    put("program", text, 0700);
    snprintf(engine_words, sizeof(engine_words), "%s/tests/fake/spool.py %s", source == NULL ? "." : source,
             spool);
    snprintf(own, sizeof(own), "%s list", engine_words);
    snprintf(
        text, sizeof(text),
        "type = command\nfolder = %s\ngradpool = %s/program\nlaunch = %s %s\nstatus = %s\ncancel = %s cancel "
        "{id}\n%s",
        root, root, engine_words, launch == NULL ? "launch {name} {script}" : launch,
        status == NULL ? own : status, engine_words, settings);
    cluster_command_timeout_ms = CLUSTER_CALL_MS;
    if (gp_profile_parse(&profile, text, strlen(text), "p", &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return profile.launch[0] != '\0';
}

static gp_status launch(void)
{
    const cluster_launch wanted = { .name = NAME, .folder = folder };

    return engine->launch(&profile, &wanted, id, &err);
}

static gp_status list(void)
{
    cluster_listing_deinit(&listing);
    return engine->list(&profile, &listing, &err);
}

/* List until the only job has the state. Return the entry; NULL: it does not get there. */
static const cluster_entry *await_state(cluster_entry_state state)
{
    const int64_t deadline_ms = gp_now_ms() + AWAIT_MS;

    while (list() == GP_OK && gp_now_ms() < deadline_ms) {
        if (listing.count == 1 && listing.entries[0].state == state)
            return &listing.entries[0];
        gp_sleep_ms(20);
    }
    GP_TEST_FAIL("%zu jobs, state '%s', %s", listing.count, listing.count > 0 ? listing.entries[0].text : "",
                 err.message);
    return NULL;
}

/* ---- jobs ---- */

TEST(job_is_launched_listed_and_ends)
{
    const cluster_entry *entry;
    static const char *const variables[] = { "GRADPOOL_JOB_FOLDER", "GRADPOOL_ALLOCATION_TIME_S",
                                             "GRADPOOL_ALLOCATION_CORES", "GRADPOOL_SSH_JOB" };
    char ran[400], expected[300];

    REQUIRE(begin("", NULL, NULL));
    put("busy", "", 0600);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        setenv(variables[i], "of-another-job", 1);
    REQUIRE_OK(launch(), err);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    CHECK_TEXT("101", id);
    REQUIRE((entry = await_state(CLUSTER_ENTRY_RUNNING)) != NULL);
    CHECK_TEXT(NAME, entry->name);
    CHECK_TEXT("101", entry->id);
    CHECK_TEXT("running", entry->text);
    unlink(put("busy", "", 0600));
    REQUIRE((entry = await_state(CLUSTER_ENTRY_ENDED)) != NULL);
    CHECK_TEXT("exit code 0", entry->reason);
    snprintf(expected, sizeof(expected), "%s/ran", root);
    FILE *in = fopen(expected, "r");

    REQUIRE(in != NULL && fgets(ran, sizeof(ran), in) != NULL);
    fclose(in);
    snprintf(expected, sizeof(expected), "job-attempt %s \n", folder);
    CHECK_TEXT(expected, ran); /* the variables of another job are not passed on */
    put("spool/forget", "", 0600);
    REQUIRE_OK(list(), err);
    CHECK_INT(0, listing.count);
}

TEST(waiting_job_has_its_reason)
{
    const cluster_entry *entry;

    REQUIRE(begin("", NULL, NULL));
    put("spool/hold", "", 0600);
    REQUIRE_OK(launch(), err);
    REQUIRE((entry = await_state(CLUSTER_ENTRY_QUEUED)) != NULL);
    CHECK_TEXT("all slots are busy", entry->reason);
    REQUIRE_OK(engine->cancel(&profile, entry, &err), err);
    REQUIRE((entry = await_state(CLUSTER_ENTRY_ENDED)) != NULL);
    CHECK_TEXT("canceled", entry->reason);
    CHECK(!there_is("ran"));
}

TEST(canceled_job_ends_and_a_second_cancel_is_harmless)
{
    const cluster_entry *entry;
    cluster_entry unknown = { .id = "999", .name = NAME };

    REQUIRE(begin("", NULL, NULL));
    put("busy", "", 0600);
    REQUIRE_OK(launch(), err);
    REQUIRE((entry = await_state(CLUSTER_ENTRY_RUNNING)) != NULL);
    REQUIRE_OK(engine->cancel(&profile, entry, &err), err);
    REQUIRE((entry = await_state(CLUSTER_ENTRY_ENDED)) != NULL);
    REQUIRE_OK(engine->cancel(&profile, entry, &err), err);
    CHECK_STATUS(GP_EPEER, engine->cancel(&profile, &unknown, &err));
    CHECK_CONTAINS(err.message, "exited with code 1: no such job: 999");
}

/* ---- launches that fail ---- */

TEST(refused_launch_has_the_message_of_the_engine)
{
    REQUIRE(begin("", NULL, NULL));
    put("spool/fault-launch", "fail", 0600);
    CHECK_STATUS(GP_EINVAL, launch());
    CHECK_CONTAINS(err.message, "spool.py exited with code 1: the engine is down");
    REQUIRE_OK(list(), err);
    CHECK_INT(0, listing.count);
}

TEST(missing_program_is_a_refused_launch)
{
    REQUIRE(begin("", NULL, NULL));
    strcpy(profile.launch, "gradpool-no-such-program {script}");
    CHECK_STATUS(GP_ENOENT, launch());
    CHECK_CONTAINS(err.message, "gradpool-no-such-program");
}

TEST(launch_without_a_reply_is_unknown_and_the_listing_finds_the_job)
{
    static const struct {
        const char *fault;
        int timeout_ms;
        gp_status status;
        const char *message;
    } cases[] = {
        { "lost", 0, GP_EPEER, "exited with code 137" },
        { "hang", 1500, GP_ETIMEDOUT, "" },
        { "garbage", 0, GP_EPEER,
          "printed 'Job <101> is submitted to queue <normal>.?'; it must print one line" },
        { "flood", 0, GP_EPEER, "" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        REQUIRE(begin("", NULL, NULL));
        put("busy", "", 0600);
        put("spool/fault-launch", cases[i].fault, 0600);
        if (cases[i].timeout_ms != 0)
            cluster_command_timeout_ms = cases[i].timeout_ms;
        CHECK_STATUS(cases[i].status, launch());
        CHECK_CONTAINS(err.message, cases[i].message);
        cluster_command_timeout_ms = CLUSTER_CALL_MS;
        const cluster_entry *entry = await_state(CLUSTER_ENTRY_RUNNING);

        REQUIRE(entry != NULL);
        CHECK_TEXT(NAME, entry->name);
        REQUIRE_OK(engine->cancel(&profile, entry, &err), err);
        REQUIRE(await_state(CLUSTER_ENTRY_ENDED) != NULL);
    }
}

TEST(launch_can_be_accepted_after_its_command_ended)
{
    const cluster_entry *entry;

    REQUIRE(begin("", NULL, NULL));
    put("spool/fault-launch", "late", 0600);
    CHECK_STATUS(GP_EPEER, launch());
    REQUIRE_OK(list(), err);
    CHECK_INT(0, listing.count);
    put("spool/accept", "", 0600);
    REQUIRE((entry = await_state(CLUSTER_ENTRY_ENDED)) != NULL);
    CHECK_TEXT("exit code 0", entry->reason);
}

/* ---- values ---- */

TEST(placeholders_are_filled_word_by_word)
{
    cluster_launch wanted = { .name = NAME, .folder = folder, .time_s = 5430 };
    char expected[400], *at;

    REQUIRE(begin("cores = 8\ngpus = 2\nmemory = 64G\ntime = 24h\n", NULL, NULL));
    snprintf(profile.launch, sizeof(profile.launch),
             "%s/show '{name};$HOME' c={cores},g={gpus} {memory} {time} {minutes} {folder} {script}", root);
    REQUIRE_OK(gp_profile_check(&profile, &err), err);
    put("show", "#!/bin/sh\nprintf '%s|' \"$@\" >> ${0%show}shown\necho 7\n", 0700);
    REQUIRE_OK(engine->launch(&profile, &wanted, id, &err), err);
    wanted.time_s = 0;
    REQUIRE_OK(engine->launch(&profile, &wanted, id, &err), err);
    CHECK_TEXT("7", id);
    snprintf(expected, sizeof(expected), "%s/shown", root);
    FILE *in = fopen(expected, "r");
    static char shown[2000];

    REQUIRE(in != NULL);
    shown[fread(shown, 1, sizeof(shown) - 1, in)] = '\0';
    fclose(in);
    snprintf(expected, sizeof(expected), NAME ";$HOME|c=8,g=2|65536|01:30:30|91|%s|%s/script|", folder,
             folder);
    CHECK(strncmp(shown, expected, strlen(expected)) == 0);
    at = shown + strlen(expected);
    snprintf(expected, sizeof(expected), NAME ";$HOME|c=8,g=2|65536|24:00:00|1440|%s|%s/script|", folder,
             folder);
    CHECK_TEXT(expected, at);
}

TEST(placeholder_without_a_value_names_the_setting)
{
    REQUIRE(begin("", "launch {name} {script} {time}", NULL));
    CHECK_STATUS(GP_EINVAL, launch());
    CHECK_CONTAINS(err.message, "the command needs {time}; add the setting 'time' to the profile");
}

TEST(script_quotes_its_words)
{
    const cluster_launch wanted = { .name = NAME, .folder = "/shared/it's here" };
    gp_buffer text;

    REQUIRE(begin("cores = 8\nmemory = 2G\n", NULL, NULL));
    gp_buffer_init(&text, 1000);
    strcpy(profile.gradpool, "/opt/my apps/gradpool");
    REQUIRE_OK(engine->script(&profile, &wanted, &text, &err), err);
    CHECK_TEXT("#!/bin/sh\n# gradpool job " NAME "\n"
               "export GRADPOOL_ALLOCATION_ID=" NAME "\n"
               "export GRADPOOL_ALLOCATION_GPUS=0\n"
               "export GRADPOOL_ALLOCATION_CORES=8\n"
               "export GRADPOOL_ALLOCATION_MEMORY_MIB=2048\n"
               "command -v '/opt/my apps/gradpool' > /dev/null || echo \"$(uname -n): no program\" "
               "'/opt/my apps/gradpool' \"in PATH ($PATH)\" >> '/shared/it'\\''s here'/engine.out\n"
               "exec '/opt/my apps/gradpool' job-attempt '/shared/it'\\''s here'\n",
               gp_buffer_text(&text));
    gp_buffer_deinit(&text);
}

TEST(allocation_has_the_values_that_the_script_sets)
{
    cluster_allocation allocation;

    setenv("GRADPOOL_ALLOCATION_ID", NAME, 1);
    setenv("GRADPOOL_ALLOCATION_GPUS", "0", 1);
    setenv("GRADPOOL_ALLOCATION_CORES", "8", 1);
    setenv("GRADPOOL_ALLOCATION_MEMORY_MIB", "2048", 1);
    REQUIRE_OK(cluster_allocation_open(&allocation, "command", &err), err);
    CHECK_TEXT(NAME, allocation.id);
    CHECK(allocation.gpus_limited && allocation.gpus == 0);
    CHECK_INT(8, allocation.cores);
    CHECK_INT(2048, allocation.memory_mib);
    setenv("GRADPOOL_ALLOCATION_CORES", "-1", 1);
    unsetenv("GRADPOOL_ALLOCATION_GPUS");
    REQUIRE_OK(cluster_allocation_open(&allocation, "command", &err), err);
    CHECK_INT(0, allocation.cores);
    CHECK(!allocation.gpus_limited);
}

TEST(cancel_command_can_be_copied_to_a_shell)
{
    const cluster_entry entry = { .id = "12.pbs", .name = NAME };
    char text[CLUSTER_COMMAND_BYTES];

    REQUIRE(begin("", NULL, NULL));
    strcpy(profile.cancel, "qdel -W 'a b' {id}");
    engine->cancel_command(&profile, &entry, text);
    CHECK_TEXT("qdel -W 'a b' 12.pbs", text);
}

/* ---- ids and listings ---- */

TEST(malformed_ids_are_refused)
{
    static const char *const bad[] = { "",
                                       "\n",
                                       " 1\n",
                                       "1 \n",
                                       "1\n2\n",
                                       "1\n\n",
                                       "-1\n",
                                       "1;2\n",
                                       "1\r\n",
                                       "\303\244\n",
                                       "0123456789012345678901234567890123456789012345678901234567890123\n" };

    REQUIRE(begin("", NULL, NULL));
    put("print", "#!/bin/sh\ncat ${0%print}id\n", 0700);
    snprintf(profile.launch, sizeof(profile.launch), "%s/print {script}", root);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put("id", bad[i], 0600);
        if (launch() != GP_EPEER)
            GP_TEST_FAIL("accepted: '%s'", bad[i]);
        CHECK_CONTAINS(err.message, "it must print one line with the id of the job");
    }
    put("id", "123.pbs_a-b", 0600); /* without a newline */
    REQUIRE_OK(launch(), err);
    CHECK_TEXT("123.pbs_a-b", id);
    put("print", "#!/bin/sh\nprintf '1\\000\\n'\n", 0700);
    CHECK_STATUS(GP_EPEER, launch());
}

TEST(listing_is_parsed_strictly)
{
    static char large[2000];
    static const struct {
        const char *text, *message; /* NULL: accepted */
        size_t count;
    } cases[] = {
        { "", NULL, 0 },
        { "7 " NAME " Running\n8 gp-00000000000000ff PENDING  waits for\tb \n", NULL, 2 },
        { "x y ended\n7[] name running z\n", NULL, 0 }, /* jobs of other programs */
        { "Job <101> is submitted to queue <normal>.\n",
          "'Job <101> is submitted to queue <normal>.': the state 'is' is unknown", 0 },
        { "7 " NAME " running",
          "line 1 of the status command 'cat', '7 " NAME " running': the line is incomplete", 0 },
        { "7 " NAME " running\n\n", "line 2 of the status command 'cat', '': an empty line", 0 },
        { "7 " NAME "\n", "'7 " NAME "': fewer than three words; a line is ID NAME STATE [REASON]", 0 },
        { "7 " NAME " R\n", "the state 'R' is unknown; use queued, running or ended", 0 },
        { "7;x " NAME " running\n", "the id must consist of letters, digits and . _ -", 0 },
        { "-7 " NAME " running\n", "the id must consist of letters", 0 },
        { "7 " NAME " running\n7 " NAME " queued\n", "lists the id '7' twice", 0 },
        { large, "the line has more than 1024 bytes", 0 },
    };

    memset(large, 'x', 1025);
    large[1025] = '\n';
    REQUIRE(begin("", NULL, NULL));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(profile.status, sizeof(profile.status), "cat %s", put("listing", cases[i].text, 0600));
        gp_status status = list();

        if (cases[i].message == NULL) {
            CHECK_STATUS(GP_OK, status);
            CHECK_INT(cases[i].count, listing.count);
            continue;
        }
        CHECK_STATUS(GP_EPEER, status);
        CHECK_CONTAINS(err.message, cases[i].message);
    }
    snprintf(profile.status, sizeof(profile.status), "cat %s",
             put("listing", "8 " NAME " PENDING   waits \033for b\n", 0600));
    REQUIRE_OK(list(), err);
    CHECK_INT(CLUSTER_ENTRY_QUEUED, listing.entries[0].state);
    CHECK_TEXT("waits ?for b", listing.entries[0].reason);
}

TEST(listing_that_fails_is_an_error)
{
    static const struct {
        const char *fault;
        gp_status status;
        const char *message;
    } cases[] = {
        { "fail", GP_EPEER, "exited with code 1: the engine is down" },
        { "lost", GP_EPEER, "exited with code 137" },
        { "cut", GP_EPEER, "is incomplete" },
        { "hang", GP_ETIMEDOUT, "" },
        { "flood", GP_ELIMIT, "" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        REQUIRE(begin("", NULL, NULL));
        put("spool/fault-list", cases[i].fault, 0600);
        if (cases[i].status == GP_ETIMEDOUT)
            cluster_command_timeout_ms = 1500;
        CHECK_STATUS(cases[i].status, list());
        CHECK_CONTAINS(err.message, cases[i].message);
    }
}
