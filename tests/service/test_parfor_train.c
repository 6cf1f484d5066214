/* test_parfor_train.c: `parfor -- train`: several trainings in parallel. */
#include "tests/service/commands.h"

#define TRAIN "train", "--network", "lenet", "--max-epochs", "1", "--data"

TEST(parfor_train_trains_a_network_for_each_input_and_prints_one_table)
{
    char *second;
    gp_json *json = NULL;
    gp_error e;

    exec_begin();
    RUN_CODE(0, "parfor", "lr=0.01,0.05,0.1", "--", TRAIN, "digits:200", "--lr", "{lr}");
    CHECK(strncmp(out, "network  lr ", 12) == 0);
    CHECK_CONTAINS(out, "\n1        0.01  1 ");
    CHECK_CONTAINS(out, "\n3        0.1   1 ");
    CHECK_CONTAINS(out, "best: network ");
    CHECK_CONTAINS(err, "network 2 (lr=0.05) finished after ");
    RUN_CODE(0, "parfor", "seed=1:2", "--json", "--quiet", "--", TRAIN, "digits:200", "--seed", "{}", "--out",
             "m{#}.onnx");
    CHECK_TEXT("", err);
    CHECK(access(in_w("m1.onnx"), F_OK) == 0 && access(in_w("m2.onnx"), F_OK) == 0);
    second = strchr(out, '\n') + 1;
    REQUIRE_OK(gp_json_parse(&json, second, strlen(second) - 1, &e), e);
    CHECK_TEXT("2", gp_json_text(gp_json_member(gp_json_member(json, "inputs"), "seed"), ""));
    CHECK_TEXT("m2.onnx", gp_json_text(gp_json_member(gp_json_member(json, "training"), "model"), ""));
    CHECK_INT(1, gp_json_integer(gp_json_member(gp_json_member(json, "training"), "epochs"), 0));
    gp_json_free(json);
    pools_end();
}

TEST(failing_training_leaves_the_others_and_usage_errors_are_reported_once)
{
    exec_begin();
    RUN_CODE(1, "parfor", "from=digits:200,nowhere,digits:300", "--", TRAIN, "{from}");
    CHECK_CONTAINS(out, "\n1        digits:200  1 ");
    CHECK_CONTAINS(out, "\n2        nowhere     - ");
    CHECK_CONTAINS(out, "failed: no data set \"nowhere\"");
    CHECK_CONTAINS(out, "\n3        digits:300  1 ");
    RUN_CODE(255, "parfor", "lr=0.1,0.2", "--", TRAIN, "digits:200");
    CHECK_CONTAINS(err, "the command has no replacement string");
    RUN_CODE(255, "parfor", "lr=0.1,0.2", "--", TRAIN, "digits:200", "--lern-rate", "{lr}");
    CHECK_CONTAINS(err, "unknown option --lern-rate");
    CHECK(strstr(strstr(err, "--lern-rate") + 1, "--lern-rate") == NULL);
    RUN_CODE(255, "parfor", "lr=0.1,0.2", "--", TRAIN, "digits:200", "--lr", "{}", "--workers", "2");
    CHECK_CONTAINS(err, "each network is trained on one worker");
    RUN_CODE(255, "parfor", "lr=0.1", "--tag", "--", TRAIN, "digits:200", "--lr", "{}");
    CHECK_CONTAINS(err, "--tag has no effect with train");
    pools_end();
}

/* Count the runs whose metrics contain a step. */
static int runs_in_steps(void)
{
    DIR *directory = opendir(in_w("gradpool-runs"));
    int count = 0;

    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char name[90];

        snprintf(name, sizeof(name), "gradpool-runs/%.60s/metrics.jsonl", entry->d_name);
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, "latest") != 0 && lines_of(name) > 1;
    }
    if (directory != NULL)
        closedir(directory);
    return count;
}

static bool await_runs(int count)
{
    AWAIT(runs_in_steps() >= count, 5);
    return runs_in_steps() >= count;
}

TEST(interrupt_stops_all_trainings_and_keeps_their_models)
{
    exec_begin();
    pid_t child = START("parfor", "seed=1:4", "--", "train", "--network", "lenet", "--data", "digits:1000",
                        "--max-epochs", "100000", "--seed", "{}");

    CHECK(await_runs(2));
    kill(child, SIGINT);
    FINISH_CODE(130, child);
    CHECK_INT(2 + 1, pools_entries("w/gradpool-runs")); /* plus the link to the latest run */
    CHECK_CONTAINS(out, "\n1        1 ");
    CHECK_CONTAINS(out, "(stopped)");
    CHECK_CONTAINS(out, "result/model.onnx");
    child = START("parfor", "seed=1:4", "--", "train", "--network", "lenet", "--data", "digits:1000",
                  "--max-epochs", "100000", "--seed", "{}");
    CHECK(await_runs(4));
    kill(child, SIGKILL); /* also ends the trainings: the workers are free */
    FINISH_CODE(-1, child);
    RUN_CODE(0, "spmd", "--", "true");
    pools_end();
}
