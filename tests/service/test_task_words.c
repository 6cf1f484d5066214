/* test_task_words.c: spmd and parfor on the command line with functions from a shared object. */
#include "tests/service/commands.h"

static void begin(void)
{
    commands_begin();
    CHECK_INT(0, RUN("up", "--workers", "2", "--devices", "cpu", "--quiet"));
}

TEST(block_prints_each_result_with_its_index)
{
    begin();
    CHECK_INT(0, RUN("spmd", TASKS_RANKS ":sum", "--as", "f64"));
    CHECK_TEXT("1: 3\n2: 3\n", out);
    CHECK_INT(0, RUN("spmd", "-n", "1", TASKS_RANKS ":sum", "--as=i64", "--tag=no"));
    CHECK_TEXT("4607182418800017408\n", out); /* bit pattern of 1.0 */
    CHECK_INT(0, RUN("spmd", TASKS_RANKS ":sum", "--json"));
    CHECK_CONTAINS(out, "{\"index\": 2, \"bytes\": 8, \"result\": \"0000000000000840\"}");
    CHECK_INT(0, RUN("spmd", TASKS_RANKS ":empty"));
    CHECK_TEXT("", out);
    pools_end();
}

TEST(loop_prints_results_in_order_and_their_reduction)
{
    char first[200];

    begin();
    CHECK_INT(0, RUN("parfor", "1:8", TASKS_LOOPS ":tell", "--as", "i64", "--tag"));
    CHECK_CONTAINS(out, "1: 1\n2: 2\n3: 3 0 0");
    CHECK_CONTAINS(out, "\n7: 7\n8: 8\n");
    CHECK_INT(0, RUN("parfor", "8:-3:1", TASKS_LOOPS ":tell", "--as", "i64", "--tag"));
    CHECK_TEXT("8: 8\n2: 2\n", out);
    CHECK_INT(0, RUN("parfor", "1:100000", TASKS_LOOPS ":series", "--reduce", "sum:f64:2", "--seed", "4"));
    snprintf(first, sizeof(first), "%.150s", out);
    CHECK(strchr(first, ' ') != NULL);
    CHECK_INT(0, RUN("parfor", "-n", "1", "1:100000", TASKS_LOOPS ":series", "--reduce", "sum:f64:2",
                     "--seed", "4", "--chunk", "77"));
    CHECK_TEXT(first, out);
    pools_end();
}

TEST(output_of_functions_is_shown_with_log)
{
    begin();
    CHECK_INT(0, RUN("parfor", "-n", "1", "1:2", TASKS_LOOPS ":print", "--log"));
    CHECK_TEXT("", out);
    CHECK_TEXT("worker 1, iteration 1: 1 begins\nworker 1, iteration 1: and ends\n"
               "worker 1, iteration 2: 2 begins\nworker 1, iteration 2: and ends\n",
               err);
    CHECK_INT(0, RUN("spmd", TASKS_LOOPS ":print", "--log"));
    CHECK_CONTAINS(err, "worker 1: 0 begins\n");
    CHECK_CONTAINS(err, "worker 2: and ends\n");
    CHECK_INT(0, RUN("spmd", TASKS_LOOPS ":print"));
    CHECK_TEXT("", err);
    CHECK_INT(255, RUN("spmd", "--log", "--", "true"));
    CHECK_CONTAINS(err, "--log has no effect with a program");
    pools_end();
}

TEST(failures_and_usage_errors_are_reported)
{
    begin();
    CHECK_INT(1, RUN("spmd", TASKS_RANKS ":one_fails"));
    CHECK_CONTAINS(err, "index 2: worker 2: the second rank found nothing");
    CHECK_INT(1, RUN("parfor", "1:10", TASKS_LOOPS ":add", "-"));
    CHECK_CONTAINS(err, "something is missing");
    CHECK_INT(255, RUN("spmd", TASKS_RANKS ":summ"));
    CHECK_CONTAINS(err, "did you mean 'sum'");
    CHECK_INT(255, RUN("spmd", "-n", "3", TASKS_RANKS ":sum"));
    CHECK_CONTAINS(err, "the pool has 2");
    CHECK_INT(255, RUN("spmd", TASKS_RANKS ":sum", "--stdin", "x"));
    CHECK_CONTAINS(err, "--stdin has no effect with a function");
    CHECK_INT(255, RUN("parfor", "1:10", "--chunk", "3", "--", "true"));
    CHECK_CONTAINS(err, "--chunk has no effect with a program");
    CHECK_INT(255, RUN("parfor", "a,b", TASKS_LOOPS ":nothing"));
    CHECK_CONTAINS(err, "FIRST:LAST");
    CHECK_INT(255, RUN("parfor", TASKS_LOOPS ":nothing", "1:10"));
    CHECK_INT(255, RUN("parfor", "1:10", TASKS_LOOPS ":nothing", "--reduce", "mean:f64"));
    CHECK_CONTAINS(err, "sum:f64");
    CHECK_INT(255, RUN("parfor", "1:10", TASKS_LOOPS ":tell", "--reduce", "sum:f64:0"));
    pools_end();
}

TEST(loop_keeps_going_and_exits_with_the_number_of_failed_iterations)
{
    begin();
    CHECK_INT(3, RUN("parfor", "1:10", TASKS_LOOPS ":thirds", "--keep-going", "--as", "i64", "--reduce",
                     "sum:i64"));
    CHECK_TEXT("1\n2\n4\n5\n7\n8\n10\n37\n", out);
    CHECK_CONTAINS(err, "gradpool parfor: iteration 3: worker ");
    CHECK_CONTAINS(err, "3 is bad in attempt 1\n");
    CHECK_INT(0, RUN("parfor", "1:10", TASKS_LOOPS ":thirds", "--retries", "1", "--reduce", "sum:i64"));
    CHECK_CONTAINS(out, "\n55\n");
    CHECK_INT(1, RUN("parfor", "1:2", TASKS_LOOPS ":thirds", "wait", "--keep-going", "--timeout", "0.05",
                     "--json"));
    CHECK_CONTAINS(out, "{\"iteration\": 2, \"status\": \"GP_ETIMELIMIT\", \"error\": \"worker ");
    CHECK_CONTAINS(out, "exceeded its time limit of 50 ms");
    CHECK_INT(101, RUN("parfor", "3:3:900", TASKS_LOOPS ":thirds", "--keep-going"));
    pools_end();
}

TEST(a_loop_with_a_range_of_workers_gives_one_to_another_command)
{
    begin();
    const char *gate = in_root("gate");
    int sink = open(in_root("loop"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    pid_t loop = start(-1, sink,
                       (const char *const[]){ "parfor", "--workers", "1:2", "1:8", TASKS_LOOPS ":hold_first",
                                              gate, "--as", "i64", NULL });

    /* the loop has both workers, and worker 1 is busy until the end */
    AWAIT((access(in_root("gate.begun"), F_OK) == 0 && access(in_root("gate.joined"), F_OK) == 0) ||
              !process_alive(loop),
          2);
    CHECK_INT(0, RUN("spmd", "-n", "1", TASKS_RANKS ":sum", "--as", "f64"));
    CHECK_TEXT("1: 1\n", out);
    CHECK(process_alive(loop));
    write_file("gate", "");
    FINISH_CODE(0, loop);
    slurp(in_root("loop"), out, sizeof(out));
    CHECK_TEXT("1\n2\n3\n4\n5\n6\n7\n8\n", out);
    close(sink);
    pools_end();
}
