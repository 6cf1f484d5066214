/* test_cluster_validate.c: `gradpool cluster validate` with the engine `command`: each fault is
 * named in the right stage, and the profile works when the fault is gone. test_slurm.c and
 * test_ssh.c have the faults of these engines. */
#include "tests/service/spool.h"

static gp_profile profile;
static char program[600]; /* a program `gradpool` with a fault */

TEARDOWN()
{
    unsetenv("XDG_CONFIG_HOME");
    pools_end();
}

/* Write a program `gradpool` that is a shell script; return its path. */
static const char *program_put(const char *name, const char *text)
{
    snprintf(program, sizeof(program), "%s/%s", pools_root, name);
    FILE *file = fopen(program, "w");

    if (file == NULL || fprintf(file, "#!/bin/sh\n%s\n", text) < 0 || fclose(file) != 0 ||
        chmod(program, 0700) != 0)
        abort();
    return program;
}

/* Replace the profile.
 *   gradpool  program of the jobs; NULL: this build
 *   script    word of the launch command for the script */
static void profile_put(const char *gradpool, const char *script)
{
    const char *source = getenv("GP_SOURCE_DIR");
    char launch[700], status[700], cancel[700];

    source = source == NULL ? "." : source;
    snprintf(launch, sizeof(launch), "%s/tests/fake/spool.py %s launch {name} %s", source, in_root("spool"),
             script);
    snprintf(status, sizeof(status), "%s/tests/fake/spool.py %s list", source, in_root("spool"));
    snprintf(cancel, sizeof(cancel), "%s/tests/fake/spool.py %s cancel {id}", source, in_root("spool"));
    RUN_CODE(0, "cluster", "new", "spool", "--force", "--type", "command", "--folder", in_root("jobs"),
             "--cores", "2", "--gradpool", gradpool != NULL ? gradpool : in_build("bin/gradpool"), "--launch",
             launch, "--status", status, "--cancel", cancel);
}

/* Check that a stage has failed, the next one was skipped, and no job is left. */
#define CHECK_FAILED(stage, cause, fix, next)                                                                \
    do {                                                                                                     \
        CHECK_CONTAINS(out, stage " FAILED   ");                                                             \
        CHECK_CONTAINS(out, cause);                                                                          \
        CHECK_CONTAINS(out, fix);                                                                            \
        CHECK_CONTAINS(out, next " SKIPPED  stage ");                                                        \
        RUN_CODE(0, "jobs", "--profile", "spool");                                                           \
        CHECK_TEXT("no running or queued jobs\n", out);                                                      \
    } while (0)

TEST(all_stages_of_a_good_profile_pass)
{
    REQUIRE(spool_begin(&profile));
    RUN_CODE(0, "cluster", "validate", "spool", "--data", "digits:100");
    CHECK_CONTAINS(out, "profile     PASSED");
    CHECK_CONTAINS(out, "engine      PASSED");
    CHECK_CONTAINS(out, "allocation  PASSED   job 101 on ");
    CHECK_CONTAINS(out, "build       PASSED   gradpool ");
    CHECK_CONTAINS(out, "devices     PASSED   2 workers (cpu)");
    CHECK_CONTAINS(out, "data        PASSED   train: 100 samples");
    CHECK_CONTAINS(out, "job         PASSED   first step ");
    CHECK_CONTAINS(out, "notice      SKIPPED  engine 'command' has no command for the notice");
    CHECK_CONTAINS(out, "end         PASSED   ");
    RUN_CODE(0, "jobs", "--profile", "spool", "--all", "--json");
    CHECK_TEXT("[]\n", out); /* nor is there a folder */
    RUN_CODE(0, "cluster", "validate", "spool", "--no-job", "--json");
    CHECK_CONTAINS(out, "\"passed\": true");
    CHECK_CONTAINS(out, "\"queue_seconds\": null");
    CHECK_CONTAINS(out, "\"result\": \"SKIPPED\"");
    RUN_CODE(2, "cluster", "validate", "spool", "--no-job", "--data", "digits");
    RUN_CODE(2, "cluster", "list", "--no-job");
    RUN_CODE(1, "cluster", "validate", "spol");
    CHECK_CONTAINS(out, "profile     FAILED");
    CHECK_CONTAINS(out, "end         SKIPPED");
}

TEST(faults_of_the_program_are_named)
{
    char text[1500];

    REQUIRE(spool_begin(&profile));
    profile_put("/nowhere/gradpool", "{script}");
    RUN_CODE(1, "cluster", "validate", "spool");
    CHECK_FAILED("build      ", "no program /nowhere/gradpool in PATH", "fix: install gradpool on the hosts",
                 "devices    ");

    /* another version: the same program with another number of the same length */
    snprintf(text, sizeof(text),
             "[ -e %s/other ] || { sed 's/%s/gradpool 7.7.7/g' %s > %s/other; chmod +x "
             "%s/other; }\nexec %s/other \"$@\"",
             pools_root, gp_version(), in_build("bin/gradpool"), pools_root, pools_root, pools_root);
    profile_put(program_put("version", text), "{script}");
    RUN_CODE(1, "cluster", "validate", "spool");
    CHECK_FAILED("build      ", " has gradpool 7.7.7, this host has gradpool ",
                 "fix: install the same version", "devices    ");

    profile_put(NULL, "{script}");
    RUN_CODE(1, "cluster", "validate", "spool", "--data", "/nowhere/data");
    CHECK_FAILED("data       ", "cannot open the data /nowhere/data: No such file",
                 "fix: --data names a path on the hosts of the jobs", "job        ");
}

TEST(faults_of_the_engine_and_its_hosts_are_named)
{
    REQUIRE(spool_begin(&profile));
    spool_control("fault-list", "garbage");
    RUN_CODE(1, "cluster", "validate", "spool");
    CHECK_FAILED("engine     ", "the status command", "fix: ", "allocation ");
    spool_control("fault-launch", "fail");
    RUN_CODE(1, "cluster", "validate", "spool");
    CHECK_FAILED("allocation ", "exited with code 1", "fix: correct the resources in the profile",
                 "build      ");

    /* the host of the job does not see the folder: its shell does not find the script */
    profile_put(NULL, "/elsewhere{script}");
    RUN_CODE(1, "cluster", "validate", "spool");
    CHECK_FAILED("allocation ", "wrote nothing to its folder",
                 "fix: set 'folder' in the profile to a path that this", "build      ");

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they must be loaded first */
    char text[400];

    snprintf(text, sizeof(text), "LD_PRELOAD=%s exec %s \"$@\"", CLOCK_AHEAD, in_build("bin/gradpool"));
    profile_put(program_put("ahead", text), "{script}");
    RUN_CODE(1, "cluster", "validate", "spool");
    CHECK_FAILED("allocation ", " s ahead of this host", "fix: set the clocks of both by NTP", "build      ");
#endif
}

/* The folder is on a file system of 256 KiB, which exists in a mount namespace. */
TEST(full_folder_is_named)
{
    char text[1500];

    REQUIRE(spool_begin(&profile));
    if (system("unshare -Urm true 2> /dev/null") != 0)
        SKIP("no mount namespaces for users here");
    snprintf(
        text, sizeof(text),
        "unshare -Urm sh -c 'mount -t tmpfs -o size=256k none %s && %s cluster validate spool' > %s 2>&1",
        in_root("jobs"), in_build("bin/gradpool"), in_root("out"));
    CHECK_INT(1, WEXITSTATUS(system(text)));
    slurp(in_root("out"), out, sizeof(out));
    CHECK_FAILED("profile    ", "No space left on device", "fix: remove folders of ended jobs",
                 "engine     ");
}

/* The queue does not time out: Ctrl-C cancels the job. */
TEST(interrupted_validation_cancels_its_job)
{
    pid_t child;

    REQUIRE(spool_begin(&profile));
    spool_control("hold", "");
    child = START("cluster", "validate", "spool");
    AWAIT((slurp(in_root("err"), err, sizeof(err)), strstr(err, "job spool:101 waits: ") != NULL), 30);
    kill(child, SIGINT);
    FINISH_CODE(130, child);
    CHECK_CONTAINS(out, "end         PASSED   canceled");
    RUN_CODE(0, "jobs", "--profile", "spool", "--all", "--json");
    CHECK_TEXT("[]\n", out);
}
