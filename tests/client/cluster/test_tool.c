/* test_tool.c: external commands run with limits on time and output. */
#include "client/cluster/tool.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "tests/proto/scratch.h"
#include "tests/gp_test.h"

#define SHELL(script) ((const char *const[]){ "sh", "-c", script, NULL })

static cluster_tool_result result;

TEARDOWN()
{
    cluster_tool_deinit(&result);
}

TEST(command_gets_its_words_and_its_input)
{
    const char *const words[] = { "sh", "-c", "printf '%s|' \"$@\"; cat", "sh", "a b", "$HOME", "it's",
                                  "",   NULL };
    cluster_tool tool = { .words = words, .input = "first\nlast", .input_bytes = 10 };
    gp_error err;

    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_INT(0, result.code);
    CHECK_TEXT("a b|$HOME|it's||first\nlast", gp_buffer_text(&result.output));
    CHECK_TEXT("", gp_buffer_text(&result.errors));
}

TEST(exit_code_and_the_last_line_of_standard_error_are_reported)
{
    cluster_tool tool = { .words = SHELL(
                              "echo hidden; echo warning >&2; echo 'bad account' >&2; echo >&2; exit 3") };
    gp_error err;

    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_INT(3, result.code);
    CHECK_STATUS(GP_EINVAL, cluster_tool_fail(&err, GP_EINVAL, &tool, &result));
    CHECK_TEXT("sh exited with code 3: bad account", err.message);
}

TEST(signal_that_ends_a_command_is_reported)
{
    cluster_tool tool = { .words = SHELL("kill -9 $$") };
    gp_error err;

    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_INT(128 + SIGKILL, result.code);
}

TEST(program_that_does_not_exist_is_not_found)
{
    cluster_tool tool = { .words = (const char *const[]){ "gradpool-no-such-program", NULL } };
    gp_error err;

    CHECK_STATUS(GP_ENOENT, cluster_tool_run(&result, &tool, &err));
    CHECK_CONTAINS(err.message, "no program 'gradpool-no-such-program' in PATH");
    tool.words = (const char *const[]){ "/tmp", NULL };
    CHECK_STATUS(GP_ENOENT, cluster_tool_run(&result, &tool, &err));
}

/* Wait until a file of the scratch folder holds a process id, and return it. */
static int read_pid(const char *name)
{
    int pid = 0;

    for (int i = 0; i < 500 && pid == 0; i++) {
        FILE *file = fopen(scratch_path(name), "r");

        if (file == NULL || fscanf(file, "%d\n", &pid) != 1)
            gp_sleep_ms(10);
        if (file != NULL)
            fclose(file);
    }
    return pid;
}

static bool exits_soon(int pid)
{
    for (int i = 0; i < 500; i++) {
        char state[64] = "", path[64];
        FILE *file;

        if (kill(pid, 0) != 0)
            return true;
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        file = fopen(path, "r"); /* a zombie without a parent that reaps it has exited, too */
        if (file != NULL && fscanf(file, "%*d %*s %1s", state) == 1 && state[0] == 'Z') {
            fclose(file);
            return true;
        }
        if (file != NULL)
            fclose(file);
        gp_sleep_ms(10);
    }
    return false;
}

TEST(command_is_killed_with_its_children_at_the_time_limit)
{
    char script[600];
    cluster_tool tool = { .timeout_ms = 300 };
    gp_error err;
    int child;

    snprintf(script, sizeof(script), "sleep 1000 & echo $! > %s; trap '' TERM; wait", scratch_path("child"));
    tool.words = SHELL(script);
    CHECK_STATUS(GP_ETIMEDOUT, cluster_tool_run(&result, &tool, &err));
    CHECK_CONTAINS(err.message, "did not exit within 0.3 s");
    child = read_pid("child");
    REQUIRE(child > 0);
    CHECK(exits_soon(child));
}

TEST(time_limit_holds_for_a_command_that_never_stops_writing)
{
    cluster_tool tool = { .words = SHELL("exec yes >&2"), .timeout_ms = 300 };
    gp_error err;

    CHECK_STATUS(GP_ETIMEDOUT, cluster_tool_run(&result, &tool, &err));
}

/* Otherwise a launch would count as refused, and would be repeated. */
TEST(command_that_ran_never_counts_as_not_started)
{
    char script[600];
    cluster_tool tool = { .words = SHELL(script) };
    gp_status status = GP_ENOMEM;
    gp_error err;
    int unknown = 0;

    snprintf(script, sizeof(script), ": > %s; echo 4803", scratch_path("ran"));
    for (unsigned n = 1; status != GP_OK; n++) {
        unlink(scratch_path("ran"));
        gp_alloc_fail_nth(n);
        status = cluster_tool_run(&result, &tool, &err);
        gp_alloc_fail_nth(0);
        unknown += status == GP_EPEER;
        if (status != GP_OK && status != GP_EPEER)
            CHECK(access(scratch_path("ran"), F_OK) != 0);
    }
    CHECK(unknown > 0);
    cluster_tool_deinit(&result);
}

TEST(output_beyond_the_limit_is_an_error)
{
    cluster_tool tool = { .words = SHELL("exec yes"), .output_max = 10000 };
    gp_error err;

    CHECK_STATUS(GP_ELIMIT, cluster_tool_run(&result, &tool, &err));
    CHECK_CONTAINS(err.message, "wrote more than 10000 bytes");
}

TEST(long_standard_error_is_cut)
{
    cluster_tool tool = { .words = SHELL("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo done") };
    gp_error err;

    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_INT(CLUSTER_TOOL_ERRORS_MAX, result.errors.bytes);
    CHECK_TEXT("done\n", gp_buffer_text(&result.output));
}

TEST(input_that_the_command_does_not_read_is_no_error)
{
    static char input[1 << 20];
    cluster_tool tool = { .words = SHELL("exit 0"), .input = input, .input_bytes = sizeof(input) };
    gp_error err;

    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_INT(0, result.code);
}

TEST(command_that_leaves_a_background_process_ends)
{
    char script[600];
    cluster_tool tool = { .timeout_ms = 20000 };
    gp_error err;
    int child;

    snprintf(script, sizeof(script), "sleep 1000 & echo $! > %s; echo started", scratch_path("background"));
    tool.words = SHELL(script);
    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_TEXT("started\n", gp_buffer_text(&result.output));
    child = read_pid("background");
    REQUIRE(child > 0);
    CHECK_INT(0, kill(child, SIGKILL)); /* it is alive: a launch command may start a job so */
}

TEST(command_inherits_no_descriptors_and_no_terminal)
{
    cluster_tool tool = { .words = SHELL("i=3; while [ $i -lt 100 ]; do [ ! -e /proc/$$/fd/$i ] || echo $i; "
                                         "i=$((i + 1)); done; (: < /dev/tty) 2>/dev/null || echo none") };
    int leak = open("/dev/null", O_RDONLY); /* not close-on-exec */
    gp_error err;

    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_TEXT("none\n", gp_buffer_text(&result.output));
    close(leak);
}

TEST(environment_variables_are_set_and_dropped)
{
    cluster_tool tool = { .words = SHELL("echo $GP_TEST_SET $GP_TEST_A-$GP_TEST_AB-$GP_TEST_KEPT"),
                          .set = (const char *const[]){ "GP_TEST_SET=new", NULL },
                          .drop = (const char *const[]){ "GP_TEST_A", NULL } };
    gp_error err;

    setenv("GP_TEST_SET", "old", 1);
    setenv("GP_TEST_A", "a", 1);
    setenv("GP_TEST_AB", "ab", 1);
    setenv("GP_TEST_KEPT", "kept", 1);
    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_TEXT("new --kept\n", gp_buffer_text(&result.output));
}

TEST(only_the_variables_to_keep_are_passed)
{
    cluster_tool tool = { .words = SHELL("echo $GP_TEST_SET-$GP_TEST_KEPT-$GP_TEST_KEPT_NOT-$GP_TEST_KEP"),
                          .set = (const char *const[]){ "GP_TEST_SET=new", NULL },
                          .keep = (const char *const[]){ "PATH", "GP_TEST_KEPT", NULL } };
    gp_error err;

    setenv("GP_TEST_KEPT", "kept", 1);
    setenv("GP_TEST_KEPT_NOT", "not", 1);
    setenv("GP_TEST_KEP", "not", 1);
    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_TEXT("new-kept--\n", gp_buffer_text(&result.output));
}

TEST(prepared_command_runs_before_it_gets_its_input)
{
    char script[700];
    cluster_tool tool = { .input = "job", .input_bytes = 3 };
    gp_error err;
    int pid;

    snprintf(script, sizeof(script), "echo $$ > %s; cat; echo .$$", scratch_path("prepared"));
    tool.words = SHELL(script);
    REQUIRE_OK(cluster_tool_prepare(&tool.prepared, &tool, &err), err);
    pid = read_pid("prepared");
    REQUIRE(pid > 0);
    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    snprintf(script, sizeof(script), "job.%d\n", pid);
    CHECK_TEXT(script, gp_buffer_text(&result.output));
    cluster_tool_deinit(&result);
    /* the next run starts another process */
    snprintf(script, sizeof(script), "cat; echo .new");
    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_TEXT("job.new\n", gp_buffer_text(&result.output));
    cluster_tool_prepared_free(tool.prepared);
}

/* Returns the process of a prepared command that creates the file `acted` at the end of its input.
 *   script  holds the words */
static int prepare_actor(cluster_tool *tool, char script[900])
{
    gp_error err;

    snprintf(script, 900, "echo $$ > %s; cat > /dev/null; touch %s", scratch_path("actor"),
             scratch_path("acted"));
    unlink(scratch_path("actor"));
    unlink(scratch_path("acted"));
    CHECK_STATUS(GP_OK, cluster_tool_prepare(&tool->prepared, tool, &err));
    return read_pid("actor");
}

TEST(prepared_command_without_input_is_killed)
{
    char script[900];
    cluster_tool tool = { .words = SHELL(script) };
    int pid = prepare_actor(&tool, script);

    REQUIRE(pid > 0);
    cluster_tool_prepared_free(tool.prepared);
    CHECK(kill(pid, 0) != 0 && access(scratch_path("acted"), F_OK) != 0);
}

/* A pipe takes a long input in parts. A command that sees the end after the first part would act on
 * half of its input. */
TEST(input_that_does_not_fit_into_a_pipe_goes_to_a_new_process)
{
    static char input[1 << 20];
    char script[900];
    cluster_tool tool = { .words = SHELL(script), .input = input, .input_bytes = sizeof(input) };
    gp_error err;
    int pid = prepare_actor(&tool, script);

    REQUIRE(pid > 0);
    snprintf(script, sizeof(script), "wc -c");
    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_TEXT("1048576\n", gp_buffer_text(&result.output));
    cluster_tool_prepared_free(tool.prepared);
    CHECK(kill(pid, 0) != 0 && access(scratch_path("acted"), F_OK) != 0);
}

TEST(first_line_of_a_prepared_command_is_its_answer)
{
    char script[900];
    cluster_tool tool = { .words = SHELL(script), .one_line = true };
    gp_error err;
    int pid, gate;

    unlink(scratch_path("actor")); /* of an earlier test */
    unlink(scratch_path("gate"));
    unlink(scratch_path("exits"));
    CHECK_INT(0, mkfifo(scratch_path("gate"), 0600));
    snprintf(script, sizeof(script), "echo $$ > %s; cat > /dev/null; printf 4803; echo; cat %s; touch %s",
             scratch_path("actor"), scratch_path("gate"), scratch_path("exits"));
    REQUIRE_OK(cluster_tool_prepare(&tool.prepared, &tool, &err), err);
    pid = read_pid("actor");
    REQUIRE(pid > 0);
    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_INT(0, result.code);
    CHECK_TEXT("4803\n", gp_buffer_text(&result.output));
    CHECK(kill(pid, 0) == 0 && access(scratch_path("exits"), F_OK) != 0);
    gate = open(scratch_path("gate"), O_WRONLY | O_CLOEXEC);
    close(gate);
    cluster_tool_prepared_free(tool.prepared);
    CHECK(kill(pid, 0) != 0 && access(scratch_path("exits"), F_OK) == 0);
}

TEST(prepared_command_that_has_exited_is_reported)
{
    cluster_tool tool = { .words = SHELL("echo 'no such partition' >&2; exit 3"),
                          .input = "job",
                          .input_bytes = 3 };
    gp_error err;

    REQUIRE_OK(cluster_tool_prepare(&tool.prepared, &tool, &err), err);
    gp_sleep_ms(50);
    REQUIRE_OK(cluster_tool_run(&result, &tool, &err), err);
    CHECK_INT(3, result.code);
    CHECK_TEXT("no such partition\n", gp_buffer_text(&result.errors));
    cluster_tool_prepared_free(tool.prepared);
}
