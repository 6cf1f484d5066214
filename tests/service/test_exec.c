/* test_exec.c: spmd and parfor from a shell: a real pool, real programs, real worker failures. */
#include <poll.h>
#include <pty.h>
#include <sys/time.h>

#include "client/cli/run/exec.h"
#include "tests/service/cards.h"
#include "tests/service/commands.h"

TEARDOWN()
{
    pools_end();
}

/* Start and write the pids of: a shell, an orphaned child in another session, and a child in a
 * pipe. */
#define SURVIVORS                                                                                            \
    "(setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >> pids; sleep 100; sleep 100' &) & "                    \
    "sh -c 'echo $$ >> pids; exec sleep 100' | cat & echo $$ >> pids; "

/* ---- environment of a command ---- */

TEST(commands_have_the_directory_umask_environment_and_input_of_the_client)
{
    char expected[200];

    exec_begin();
    write_file("w/in", "from a file\n");
    umask(0027);
    setenv("GP_TEST_WORDS", "two  words", 1);
    RUN_CODE(0, "parfor", "1:2", "--stdin", "in", "--", "sh", "-c",
             "pwd; umask; echo \"$GP_TEST_WORDS\"; cat; echo $0", "{}");
    umask(022);
    unsetenv("GP_TEST_WORDS");
    snprintf(expected, sizeof(expected),
             "%s/w\n0027\ntwo  words\nfrom a file\n1\n%s/w\n0027\ntwo  words\nfrom a file\n2\n", pools_root,
             pools_root);
    CHECK_TEXT(expected, out);
    RUN_CODE(0, "parfor", "1:1", "--", "sh", "-c", "cat; ulimit -Sn; echo $GRADPOOL_SIZE $GRADPOOL_SEQ");
    snprintf(expected, sizeof(expected), "%ld\n2 1\n", sysconf(_SC_OPEN_MAX));
    CHECK_TEXT(expected, out);
}

TEST(spmd_runs_once_on_every_worker_with_its_index_and_its_lines_tagged)
{
    exec_begin();
    RUN_CODE(0, "spmd", "--",
             "echo $GRADPOOL_INDEX of $GRADPOOL_SIZE on $GRADPOOL_WORKER_INDEX; echo {#} bad >&2");
    CHECK(strcmp(out, "1: 1 of 2 on 1\n2: 2 of 2 on 2\n") == 0 ||
          strcmp(out, "2: 2 of 2 on 2\n1: 1 of 2 on 1\n") == 0);
    CHECK_CONTAINS(err, "1: 1 bad\n");
    CHECK_CONTAINS(err, "2: 2 bad\n");
    RUN_CODE(0, "spmd", "-n", "1", "--tag=no", "--", "echo", "$HOME", "{#}");
    CHECK_TEXT("$HOME 1\n", out);

    /* The first command writes nothing before the second has ended. */
    RUN_CODE(0, "spmd", "--group", "--tag=no", "--",
             "[ $GRADPOOL_INDEX = 2 ] || until [ -e second ]; do sleep 0.01; done; echo $GRADPOOL_INDEX; "
             "[ $GRADPOOL_INDEX = 1 ] || touch second");
    CHECK_TEXT("1\n2\n", out);
}

/* Simulated GPUs; no command computes on them here. */
TEST(command_on_a_gpu_worker_sees_only_that_gpu)
{
    char expected[200];

    cards_begin(TWO_CARDS, FAKE_PLUGIN);
    exec_begin();
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    RUN_CODE(0, "spmd", "--group", "--", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER");
    snprintf(expected, sizeof(expected), "1: %s PCI_BUS_ID\n2: %s PCI_BUS_ID\n", card_uuids[0],
             card_uuids[1]);
    CHECK_TEXT(expected, out);
    unsetenv("CUDA_VISIBLE_DEVICES");
    pools_end();
    cards_end();
    exec_begin();
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    RUN_CODE(0, "spmd", "-n", "1", "--", "echo $CUDA_VISIBLE_DEVICES");
    CHECK_TEXT("1: 7\n", out); /* a CPU worker leaves the variable alone */
    unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(spmd_stops_on_the_first_failure_unless_told_to_keep_going)
{
    exec_begin();
    RUN_CODE(7, "spmd", "--", "echo $$ >> pids; if [ $GRADPOOL_INDEX = 2 ]; then exit 7; fi; sleep 100");
    CHECK_INT(0, alive_of("pids", false));
    CHECK_CONTAINS(err, "on worker 2: exit code 7");
    RUN_CODE(7, "spmd", "--keep-going", "--", "[ $GRADPOOL_INDEX = 2 ] && exit 7; sleep 0.2; echo done");
    CHECK_TEXT("1: done\n", out);
}

/* ---- output ---- */

TEST(output_is_complete_and_in_input_order)
{
    char expected[4096];
    size_t used = 0;

    exec_begin();
    RUN_CODE(0, "parfor", "1:30", "--slots-per-worker", "3", "--",
             "echo begin {}; sleep 0.0$(( (7 * {}) % 5 )); echo end {}");
    for (int i = 1; i <= 30; i++)
        used += (size_t)snprintf(expected + used, sizeof(expected) - used, "begin %d\nend %d\n", i, i);
    CHECK_TEXT(expected, out);

    /* the first job waits until the second one's line is printed */
    RUN_CODE(0, "parfor", "1,2", "--unordered", "--",
             "[ {} = 2 ] || until grep -q 2 ../out; do sleep 0.01; done; echo {}");
    CHECK_TEXT("2\n1\n", out);
    RUN_CODE(0, "parfor", "x=1,2", "y=a,b", "--tag", "--", "echo {y}{x}; echo");
    CHECK_TEXT("1 a\ta1\n1 a\t\n1 b\tb1\n1 b\t\n2 a\ta2\n2 a\t\n2 b\tb2\n2 b\t\n", out);
}

TEST(ten_thousand_lines_per_job_are_complete_and_in_order)
{
    int next[5] = { 0, 1, 1, 1, 1 }, total = 0, value, job;

    exec_begin();
    RUN_CODE(0, "parfor", "1:4", "--", "seq 1 10000 | sed s/^/{}-/");
    for (char *line = strtok(out, "\n"); line != NULL; line = strtok(NULL, "\n"), total++) {
        REQUIRE(sscanf(line, "%d-%d", &job, &value) == 2);
        CHECK(job == total / 10000 + 1 && value == total % 10000 + 1);
    }
    CHECK_INT(40000, total);
    total = 0;
    RUN_CODE(0, "parfor", "1:4", "--slots-per-worker", "2", "--line-buffer", "--tag", "--",
             "seq 1 10000 | sed s/^/line-/ #");
    for (char *line = strtok(out, "\n"); line != NULL; line = strtok(NULL, "\n"), total++) {
        REQUIRE(sscanf(line, "%d\tline-%d", &job, &value) == 2 && job >= 1 && job <= 4);
        CHECK_INT(next[job], value);
        next[job]++;
    }
    CHECK_INT(40000, total);
}

TEST(closed_output_ends_the_run)
{
    int pipes[2];

    exec_begin();
    REQUIRE(pipe(pipes) == 0);
    close(pipes[0]);
    pid_t child = start(-1, pipes[1], (const char *const[]){ "parfor", "1:1000000", "--", "echo", NULL });

    close(pipes[1]);
    FINISH_CODE(255, child);
    CHECK_CONTAINS(err, "cannot write to standard output");
}

TEST(json_has_an_object_for_each_job)
{
    gp_json *json = NULL;
    gp_error e;

    exec_begin();
    RUN_CODE(1, "parfor", "a=x,y", "--json", "--", "printf '%s \\377\"' {a}; echo oops >&2; [ {a} = x ]");
    char *second = strchr(out, '\n') + 1;

    second[-1] = '\0';
    REQUIRE_OK(gp_json_parse(&json, out, strlen(out), &e), e);
    CHECK_TEXT("x", gp_json_text(gp_json_member(gp_json_member(json, "inputs"), "a"), ""));
    CHECK_TEXT("x ?\"", gp_json_text(gp_json_member(json, "stdout"), ""));
    CHECK_TEXT("oops\n", gp_json_text(gp_json_member(json, "stderr"), ""));
    CHECK_INT(0, gp_json_integer(gp_json_member(json, "exit_code"), -1));
    gp_json_free(json);
    REQUIRE_OK(gp_json_parse(&json, second, strlen(second) - 1, &e), e);
    CHECK_INT(2, gp_json_integer(gp_json_member(json, "job"), -1));
    CHECK_INT(1, gp_json_integer(gp_json_member(json, "exit_code"), -1));
    CHECK_TEXT("exit code 1", gp_json_text(gp_json_member(json, "failure"), ""));
    gp_json_free(json);
}

/* ---- failures ---- */

TEST(exit_codes_signals_and_failed_starts_are_distinguished_and_counted)
{
    exec_begin();
    RUN_CODE(4, "parfor", "SEGV,3,ABRT,0,127", "--",
             "ulimit -c 0; case {} in [A-Z]*) kill -{} $$;; *) exit {};; esac");
    CHECK_CONTAINS(err, "4 of 5 failed: ");
    CHECK_CONTAINS(err, "job 1: signal 11 (Segmentation fault)");
    CHECK_CONTAINS(err, "job 2: exit code 3");
    CHECK_CONTAINS(err, "job 3: signal 6 (Aborted)");
    CHECK_CONTAINS(err, "job 5: exit code 127");
    RUN_CODE(1, "parfor", "1:1", "--", "no-such-program");
    CHECK_CONTAINS(err, "command not found: 'no-such-program'; PATH is ");
    RUN_CODE(101, "parfor", "1:120", "--quiet", "--", "false");
    CHECK_TEXT("", err);
    RUN_CODE(139, "spmd", "-n", "1", "--", "ulimit -c 0; kill -SEGV $$");
    RUN_CODE(127, "spmd", "--", "no-such-program");
}

TEST(usage_errors_are_reported_and_nothing_runs)
{
    exec_begin();
    RUN_CODE(255, "parfor", "1:3");
    CHECK_CONTAINS(err, "the command is missing");
    RUN_CODE(255, "parfor", "--", "true");
    CHECK_CONTAINS(err, "the input is missing");
    RUN_CODE(255, "parfor", "", "--", "true");
    CHECK_CONTAINS(err, "an input is empty");
    RUN_CODE(255, "parfor", "1:3", "--slots-per-worker", "0", "--", "true");
    CHECK_CONTAINS(err, "--slots-per-worker is '0'");
    RUN_CODE(255, "parfor", "1:3", "--resume", "--", "true");
    CHECK_CONTAINS(err, "--joblog");
    RUN_CODE(255, "parfor", "1:3", "--no-such-option", "--", "true");
    RUN_CODE(255, "parfor", "1:3", "-n", "9", "--", "true");
    CHECK_CONTAINS(err, "2");
    RUN_CODE(255, "spmd", "true");
    CHECK_CONTAINS(err, "gradpool spmd -- true");
    RUN_CODE(255, "spmd", "--stdin", "missing", "--", "true");
    CHECK_CONTAINS(err, "cannot read --stdin missing");
    RUN_CODE(0, "parfor", "1:2", "--", "sh", "-c", "echo \"$@\"", "--no-such-option", "--", "--pool", "x");
    CHECK_TEXT("-- --pool x 1\n-- --pool x 2\n", out);
}

TEST(halt_option_selects_the_jobs_stopped_by_a_failure)
{
    exec_begin();
    RUN_CODE(9, "parfor", "1:50", "-n", "1", "--halt", "soon", "--", "echo {}; [ {} -ne 3 ] || exit 9");
    CHECK_TEXT("1\n2\n3\n", out);
    CHECK_CONTAINS(err, "1 of 50 failed, 47 not started: job 3: exit code 9");
    RUN_CODE(9, "parfor", "100,0.1", "--halt", "now", "--", "echo $$ >> pids; sleep {}; exit 9");
    CHECK_CONTAINS(err, "1 of 2 failed, 1 stopped: job 2: exit code 9");
    CHECK_INT(0, alive_of("pids", false));
    RUN_CODE(1, "parfor", "1:20", "--keep-going", "--unordered", "--", "[ {} -ne 3 ]");
}

TEST(failed_jobs_are_retried_and_slow_jobs_are_ended)
{
    static const char *const limits[] = { "0.2", "1", "5", "25" };
    int code = 0;

    exec_begin();
    RUN_CODE(0, "parfor", "1:4", "--retries", "2", "--",
             "echo try {}; echo >> n{}; [ $(wc -l < n{}) -eq 3 ]");
    CHECK_TEXT("try 1\ntry 2\ntry 3\ntry 4\n", out); /* output of the last attempt only */
    RUN_CODE(1, "parfor", "1:2", "--retries", "1", "--", "echo >> m{}; [ {} = 2 ]");
    CHECK_INT(2, lines_of("m1"));
    CHECK_INT(1, lines_of("m2"));

    /* Allow a busy machine more time for the first output of a shell. */
    for (int i = 0; i < 4 && (code != 2 || strcmp(out, "late\nlate\n") != 0); i++) {
        unlink(in_w("log"));
        code = RUN("parfor", "1:3", "--timeout", limits[i], "--joblog", "log", "--",
                   "echo $$ >> pids; [ {} = 3 ] || { echo late; sleep 100; }");
    }
    CHECK_INT(2, code);
    CHECK_TEXT("late\nlate\n", out);
    CHECK_CONTAINS(err, "job 1: ended after ");
    CHECK_INT(0, alive_of("pids", false));
    slurp(in_w("log"), out, sizeof(out));
    CHECK_CONTAINS(out, "\t-1\t15\techo ");

    /* without a grace period */
    RUN_CODE(1, "parfor", "1:1", "--timeout", "0.2", "--grace", "0", "--json", "--", "sleep 100");
    CHECK_CONTAINS(out, "\"signal\": 9, ");
}

TEST(job_log_has_the_format_of_gnu_parallel_and_resumes_a_run)
{
    static const char heading[] =
        "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

    exec_begin();
    RUN_CODE(2, "parfor", "1:4", "--joblog", "log", "--", "test", "{}", "-gt", "2");
    slurp(in_w("log"), out, sizeof(out));
    CHECK(strncmp(out, heading, sizeof(heading) - 1) == 0);
    CHECK_CONTAINS(out, "\t0\t0\t1\t0\ttest 1 -gt 2\n");
    CHECK_CONTAINS(out, "\t0\t0\t0\t0\ttest 4 -gt 2\n");
    CHECK_INT(5, lines_of("log"));
    RUN_CODE(0, "parfor", "1:2", "--joblog", "log", "--dry-run", "--", "echo");
    CHECK_TEXT("echo 1\necho 2\n", out);
    CHECK_INT(5, lines_of("log")); /* --dry-run does not overwrite it */
    RUN_CODE(0, "parfor", "1:6", "--joblog", "log", "--resume", "--", "echo");
    CHECK_TEXT("5\n6\n", out);
    RUN_CODE(0, "parfor", "1:7", "--joblog", "log", "--resume-failed", "--", "echo");
    CHECK_TEXT("1\n2\n7\n", out);

    /* A line truncated by a crash does not count and causes no damage. */
    FILE *log = fopen(in_w("log"), "a");

    fputs("8\tworker 1\t17", log);
    fclose(log);
    RUN_CODE(0, "parfor", "1:9", "--joblog", "log", "--resume", "--", "echo");
    CHECK_TEXT("8\n9\n", out);
    RUN_CODE(0, "parfor", "1:9", "--joblog", "log", "--resume", "--dry-run", "--", "echo");
    CHECK_TEXT("", out);
    write_file("w/other", "no log\n");
    RUN_CODE(255, "parfor", "1:9", "--joblog", "other", "--resume", "--", "echo");
    CHECK_CONTAINS(err, "other is not a job log");
}

/* ---- on a terminal, and in a file ---- */

TEST(parfor_explains_appended_values_on_a_terminal)
{
    char said[4000];
    size_t used = 0;
    ssize_t got;
    int terminal;

    exec_begin();
    write_file("w/list", "x\n");
    fflush(stdout);
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);

    if (child == 0) {
        command_exec(in_root("w"), (const int[]){ 0, 1, 2 },
                     (const char *const[]){ "parfor", "list", "--", "echo", "value", NULL });
    }
    REQUIRE(child > 0);
    while (used < sizeof(said) - 1 && (got = read(terminal, said + used, sizeof(said) - 1 - used)) > 0)
        used += (size_t)got;
    said[used] = '\0';
    close(terminal);
    CHECK_INT(child, waitpid(child, NULL, 0));
    CHECK_CONTAINS(said, "the command has no {}; each value is appended");
    CHECK_CONTAINS(said, "to read values from the file, use --arg-file list");
    CHECK_CONTAINS(said, "value list\r\n");
    RUN_CODE(0, "parfor", "1", "--", "echo", "value");
    CHECK_TEXT("value 1\n", out);
    CHECK(strstr(err, "appended") == NULL);
}

TEST(progress_in_a_file_has_a_line_for_each_tenth)
{
    int lines = 0;

    exec_begin();
    RUN_CODE(0, "parfor", "1:60", "--progress", "--", "true", "{}");
    for (const char *at = err; *at != '\0'; at++)
        lines += *at == '\n';
    CHECK(lines >= 2 && lines <= 11);
    CHECK_CONTAINS(err, "60 of 60 jobs, 100 %, ");
    CHECK_CONTAINS(err, " jobs/s, 0 running, 0 failed\n");
}

/* ---- inputs ---- */

TEST(inputs_come_from_files_and_pipes_as_they_are_needed)
{
    int pipes[2];

    exec_begin();
    write_file("w/list", "one\ntwo words\n");
    RUN_CODE(0, "parfor", "--arg-file", "list", "n=1:2", "--", "echo", "{1}-{n}");
    CHECK_TEXT("one-1\none-2\ntwo words-1\ntwo words-2\n", out);

    /* A pipe that delivers one line and then stays open: the job for the line runs and is printed
     * meanwhile. */
    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
    pid_t child =
        start(pipes[0], -1, (const char *const[]){ "parfor", "--arg-file", "-", "--", "touch", NULL });

    CHECK_INT(2, write(pipes[1], "x\n", 2));
    AWAIT(access(in_w("x"), F_OK) == 0, 5);
    CHECK(access(in_w("x"), F_OK) == 0);
    CHECK_INT(2, write(pipes[1], "y\n", 2));
    close(pipes[1]);
    close(pipes[0]);
    FINISH_CODE(0, child);
    CHECK(access(in_w("y"), F_OK) == 0);
}

TEST(endless_input_is_read_in_bounded_memory)
{
    int pipes[2];

    exec_begin();
    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t yes = fork();

    if (yes == 0) {
        dup2(pipes[1], 1);
        execlp("yes", "yes", "some words to fill the line", (char *)NULL);
        _exit(98);
    }
    close(pipes[1]);
    pid_t child = start(pipes[0], -1,
                        (const char *const[]){ "parfor", "--arg-file", "-", "--halt", "now", "--",
                                               "test {#} -lt 300 #", NULL });

    close(pipes[0]);
    FINISH_CODE(1, child);
    CHECK(usage.ru_maxrss < 64 << 10); /* KiB */
    kill(yes, SIGKILL);
    waitpid(yes, NULL, 0);
}

TEST(input_that_is_not_read_after_a_stop_uses_no_processor_time)
{
    int pipes[2];

    exec_begin();
    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
    pid_t child =
        start(pipes[0], -1,
              (const char *const[]){ "parfor", "--arg-file", "-", "--slots-per-worker", "2", "--halt", "soon",
                                     "--joblog", "log", "--", "[ {} != bad ] && sleep 0.7 #", NULL });

    close(pipes[0]);
    CHECK_INT(9, write(pipes[1], "slow\nbad\n", 9));
    CHECK(wait_for_lines("log", 2)); /* the heading and the failed job */
    CHECK_INT(5, write(pipes[1], "more\n", 5));
    FINISH_CODE(1, child);
    close(pipes[1]);
    CHECK_INT(3, lines_of("log"));
    CHECK(usage.ru_utime.tv_sec == 0 && usage.ru_utime.tv_usec + usage.ru_stime.tv_usec < 250000);
}

/* ---- failures of workers and clients ---- */

TEST(killed_worker_loses_no_job_and_duplicates_no_result)
{
    char expected[400];
    size_t used = 0;

    exec_begin();
    pid_t victim = pid_of(2);
    pid_t child = START("parfor", "1:40", "--joblog", "log", "--",
                        "echo {} >> begun; [ {} -lt 9 ] || until [ -e go ]; do sleep 0.01; done; echo {}");

    REQUIRE(wait_for_lines("begun", 10)); /* two jobs are running */
    kill(victim, SIGKILL);

    /* otherwise the job might end just before the worker does */
    CHECK(wait_for_lines("begun", 11));
    write_file("w/go", "");
    FINISH_CODE(0, child);
    for (int i = 1; i <= 40; i++)
        used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%d\n", i);
    CHECK_TEXT(expected, out);
    CHECK_INT(41, lines_of("log"));
    CHECK_INT(41, lines_of("begun")); /* the job on the killed worker runs again */
    CHECK_CONTAINS(err, "worker 2 (pid ");
    CHECK(victim != pid_of(2));
}

TEST(worker_failure_leaves_jobs_on_other_workers_alone)
{
    exec_begin();
    pid_t child =
        START("parfor", "1:2", "--", "echo {} >> begun; until [ -e go ]; do sleep 0.01; done; echo {}");

    REQUIRE(wait_for_lines("begun", 2));
    kill(pid_of(1), SIGKILL);
    CHECK(wait_for_lines("begun", 3));
    write_file("w/go", "");
    FINISH_CODE(0, child);
    CHECK_TEXT("1\n2\n", out);
    CHECK_INT(3, lines_of("begun"));
}

/* The parent of a command is the runner, whose parent is the worker. */
TEST(job_that_kills_its_workers_fails_after_three_and_the_others_succeed)
{
    exec_begin();
    RUN_CODE(
        1, "parfor", "1:6", "--joblog", "log", "--",
        "echo >> n{}; [ {} != 3 ] || { kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat); sleep 10; }; echo {}");
    CHECK_TEXT("1\n2\n4\n5\n6\n", out);
    CHECK_INT(3, lines_of("n3"));
    CHECK_CONTAINS(err, "job 3: lost 3 times; the last time worker ");
    CHECK_CONTAINS(err, " exited while the command ran");
}

/* Wait until a process reports a fault. Return the pid; 0: the deadline passed. */
static pid_t await_fault(const char *fault)
{
    char faults[400], pattern[100];
    const char *line;
    int pid = 0;

    snprintf(pattern, sizeof(pattern), " %s\n", fault);
    AWAIT((slurp(in_root("told"), faults, sizeof(faults)), line = strstr(faults, pattern)) != NULL, 2);
    while (line != NULL && line > faults && line[-1] != '\n')
        line--;
    return line != NULL && sscanf(line, "%d", &pid) == 1 ? pid : 0;
}

/* The runner of the failed worker exits only after the client has attached to the replacement. */
TEST(lost_command_is_attributed_to_the_replaced_worker)
{
    exec_begin();
    exec_faulty("command-ended:1:hang@1,attached:1:stop@1.2");
    pid_t worker = pid_of(1), child = START("spmd", "-n", "1", "--", "true"),
          runner = await_fault("command-ended hang"), replacement;

    REQUIRE(worker > 0 && runner > 0);
    kill(worker, SIGKILL);
    replacement = await_fault("attached stop");
    REQUIRE(replacement > 0 && await_stopped(replacement));
    kill(replacement, SIGCONT);
    kill(runner, SIGKILL);
    FINISH_CODE(255, child);
    CHECK_CONTAINS(err, "on worker 1: worker 1 exited while the command ran");
}

/* Job 3 shares its worker with three others each time it kills the runner, until it runs alone. */
TEST(a_command_that_kills_its_runner_fails_and_its_neighbours_succeed)
{
    exec_begin();
    RUN_CODE(1, "parfor", "1:8", "-n", "1", "--slots-per-worker", "4", "--",
             "echo >> n{}; if [ {} = 3 ]; then until [ -s n4 ]; do sleep 0.01; done; kill -KILL $PPID; fi; "
             "sleep 0.1; echo {}");
    CHECK_TEXT("1\n2\n4\n5\n6\n7\n8\n", out);
    CHECK_INT(3, lines_of("n3"));
    CHECK(lines_of("n1") <= 3 && lines_of("n2") <= 3 && lines_of("n4") <= 3);
    CHECK_INT(1, lines_of("n5"));
    CHECK_CONTAINS(
        err, "job 3: lost 3 times; the last time the runner of worker 1 was killed while the command ran");
}

/* Every runner is killed at the first command: after the start and before the report, or before the
 * start. */
TEST(starts_that_are_never_reported_are_bounded)
{
    exec_begin();
    exec_faulty("command-started:1:kill");
    RUN_CODE(2, "parfor", "1:2", "--json", "--", "echo >> n{}; sleep 100");
    CHECK(lines_of("n1") <= 3 && lines_of("n2") <= 3);
    CHECK_CONTAINS(out, "\"attempts\": 3");
    exec_faulty("command-begin:1:kill");
    RUN_CODE(2, "parfor", "1:2", "--", "echo >> m{}");
    CHECK_INT(0, lines_of("m1"));
    CHECK_CONTAINS(err, "job 2: lost 3 times");
}

TEST(killed_runner_leaves_no_process_and_its_job_is_rerun)
{
    exec_begin();
    pid_t workers[] = { pid_of(1), pid_of(2) };

    RUN_CODE(0, "parfor", "1:4", "--",
             "if [ {} = 2 ] && [ ! -e once ]; then echo > once; " SURVIVORS
             "kill -KILL $PPID; sleep 100; fi; echo {}");
    CHECK_TEXT("1\n2\n3\n4\n", out);
    CHECK(lines_of("pids") >= 1);
    CHECK_INT(0, alive_of("pids", true));
    CHECK_INT(workers[0], pid_of(1));
    CHECK_INT(workers[1], pid_of(2));
}

/* The client is busy with the output of the first job when the runner exits, and submits the second
 * job before it notices. */
TEST(runner_that_exits_while_its_client_is_busy_is_replaced)
{
    static const char lines[] = "1000000\n";
    int64_t deadline = gp_now_ms() + POOLS_TIMEOUT_MS;
    char text[1 << 16];
    size_t said = 0;
    int pipes[2], left;
    pid_t runner;

    exec_begin();
    REQUIRE(pipe(pipes) == 0);
    pid_t child =
        start(-1, pipes[1],
              (const char *const[]){ "parfor", "-n", "1", "1:3", "--",
                                     "[ {} = 1 ] && echo $PPID >> pids; yes 1000000 | head -n 50000", NULL });

    close(pipes[1]);
    CHECK_INT(1,
              poll(&(struct pollfd){ .fd = pipes[0], .events = POLLIN }, 1, (int)(deadline - gp_now_ms())));
    REQUIRE(pids_of("pids", &runner) == 1);
    kill(runner, SIGKILL);
    CHECK_INT(0, alive_of("pids", true));
    while ((left = (int)(deadline - gp_now_ms())) > 0 &&
           poll(&(struct pollfd){ .fd = pipes[0], .events = POLLIN }, 1, left) == 1) {
        ssize_t got = read(pipes[0], text, sizeof(text));

        if (got <= 0)
            break;
        said += (size_t)got;
    }
    CHECK_INT(3 * 50000 * (sizeof(lines) - 1), said);
    if (left <= 0)
        kill(child, SIGKILL); /* it would never exit */
    FINISH_CODE(0, child);
    close(pipes[0]);
}

TEST(no_process_outlives_a_killed_client)
{
    exec_begin();
    pid_t child = START("parfor", "1:8", "--slots-per-worker", "4", "--", SURVIVORS "sleep 100");

    REQUIRE(wait_for_lines("pids", 24));
    kill(child, SIGKILL);
    FINISH_CODE(-1, child);
    CHECK_INT(0, alive_of("pids", true));
    RUN_CODE(0, "spmd", "--", "true"); /* the workers are free */
}

TEST(no_process_outlives_a_killed_worker)
{
    exec_begin();
    pid_t victim = pid_of(1);
    pid_t child = START("spmd", "--", SURVIVORS "sleep 100");

    REQUIRE(wait_for_lines("pids", 6));
    kill(victim, SIGKILL);
    FINISH_CODE(255, child);
    CHECK_CONTAINS(err, "on worker 1: worker 1 exited while the command ran");
    CHECK_INT(0, alive_of("pids", true)); /* the other ranks were stopped after the failure */
}

TEST(commands_continue_when_the_scheduler_is_killed)
{
    exec_begin();
    pid_t scheduler = pid_of(0), workers[] = { pid_of(1), pid_of(2) };
    pid_t child =
        START("parfor", "1:6", "--", "echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo done {}");

    REQUIRE(wait_for_lines("pids", 2));
    kill(scheduler, SIGKILL);
    CHECK(await_err("connected to a new one"));
    write_file("w/go", "");
    FINISH_CODE(0, child);
    CHECK_TEXT("done 1\ndone 2\ndone 3\ndone 4\ndone 5\ndone 6\n", out);
    CHECK_INT(6, lines_of("pids"));
    CHECK(pid_of(0) != scheduler);
    CHECK_INT(workers[0], pid_of(1));
    CHECK_INT(workers[1], pid_of(2));
}

TEST(no_process_outlives_a_killed_client_and_scheduler)
{
    exec_begin();
    pid_t scheduler = pid_of(0), workers[] = { pid_of(1), pid_of(2) };
    pid_t child = START("parfor", "1:2", "--", SURVIVORS "sleep 100");

    REQUIRE(wait_for_lines("pids", 6));
    kill(child, SIGSTOP); /* otherwise it starts the next scheduler first */
    kill(scheduler, SIGKILL);
    kill(child, SIGKILL);
    finish(child);
    CHECK_INT(0, alive_of("pids", true));
    AWAIT(!process_alive(workers[0]) && !process_alive(workers[1]), 5);
    CHECK(!process_alive(workers[0]) && !process_alive(workers[1]));
}

TEST(orphans_of_commands_end_with_the_lease)
{
    exec_begin();
    RUN_CODE(0, "parfor", "1:4", "--", SURVIVORS "sleep 0.1 #");

    /* The next lease is granted when all processes of the previous one have exited. */
    RUN_CODE(0, "spmd", "--", "true");
    CHECK(lines_of("pids") >= 4);
    CHECK_INT(0, alive_of("pids", false));
}

TEST(shutdown_of_the_pool_ends_commands_with_255)
{
    exec_begin();
    pid_t child = START("parfor", "1:20", "--", "echo >> begun; sleep 100");

    REQUIRE(wait_for_lines("begun", 2));
    pid_t down = start(-1, open("/dev/null", O_WRONLY), (const char *const[]){ "down", NULL });

    CHECK(waitpid(down, NULL, 0) == down);
    FINISH_CODE(255, child);
    CHECK_CONTAINS(err, "the pool is shutting down");
}

/* ---- Ctrl-C ---- */

TEST(first_interrupt_sends_sigterm_to_the_commands)
{
    exec_begin();

    /* A command that has not exited after 2 s is killed. Repeat if the machine was busy for as
     * long. */
    for (int i = 0; i < 5 && strcmp(out, "asked 1\nasked 2\n") != 0; i++) {
        unlink(in_w("log"));
        unlink(in_w("pids"));
        pid_t child =
            START("parfor", "1:20", "--joblog", "log", "--",
                  "trap 'echo asked {}; exit 0' TERM; echo $$ >> pids; while :; do sleep 0.01; done");

        REQUIRE(wait_for_lines("pids", 2));
        kill(child, SIGINT);
        FINISH_CODE(130, child);
        CHECK_INT(2, lines_of("pids"));
        CHECK_INT(0, alive_of("pids", false));
    }
    CHECK_TEXT("asked 1\nasked 2\n", out);
}

TEST(second_interrupt_kills_and_interrupted_jobs_are_not_done)
{
    bool at_once = false;

    exec_begin();

    /* Commands that only get SIGTERM are killed after 2 s: at least one of these attempts must end
     * earlier. */
    for (int i = 0; i < 5 && !at_once; i++) {
        pid_t child = START("parfor", "1:20", "--joblog", "log", "--",
                            "trap '' TERM; echo $$ >> pids; sleep 100; sleep 100");

        REQUIRE(wait_for_lines("pids", 2 * i + 2));
        int64_t begin = gp_now_ms();

        kill(child, SIGINT);
        CHECK(await_err("interrupted;"));
        gp_sleep_ms(200); /* signals within this time count once */
        kill(child, SIGINT);
        CHECK_INT(0, alive_of("pids", true));
        at_once = gp_now_ms() - begin < 1900;
        FINISH_CODE(130, child);
        CHECK_INT(1, lines_of("log")); /* the heading */
        unlink(in_w("log"));
    }
    CHECK(at_once);
}

/* ---- the local runner, without a pool ---- */

static void on_alarm(int signal)
{
    (void)signal;
}

TEST(signals_do_not_keep_the_local_runner_from_being_reaped)
{
    const struct itimerval often = { { .tv_usec = 10000 }, { .tv_usec = 10000 } }, never = { 0 };
    gp_exec *exec;
    gp_error error;

    pools_begin(NULL);
    write_file("runner", "#!/bin/sh\nexec sleep 0.2\n");
    chmod(in_root("runner"), 0700);
    setenv("GRADPOOL_WORKER", in_root("runner"), 1);
    REQUIRE_OK(gp_exec_open(&exec, NULL, 1, &error), error);
    sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_alarm }, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    gp_exec_close(exec);
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}
