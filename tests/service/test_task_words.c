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
