/* test_gpu_tasks.c: tasks with models on simulated GPUs (tests/fake/gpu). */
#include "tests/service/cards.h"
#include "tests/service/objects/custom.h"
#include "tests/service/teams.h"

static char lines[2000];

static void take_line(void *context, uint32_t worker, const char *line)
{
    const size_t used = strlen(lines);

    (void)context;
    (void)worker;
    snprintf(lines + used, sizeof(lines) - used, "%s\n", line);
}

/* Train LeNet for one step in a task on a GPU. faults: rules for the fake libraries; "": none. */
static void train_on_gpu(const char *faults)
{
    const custom_request request = {
        .network = "lenet", .source = "digits:32", .options = "seed=1", .batch = 32, .epochs = 1, .rate = 0.05
    };
    gp_spmd_result *block = NULL;

    lines[0] = '\0';
    cards_begin(ONE_CARD, FAKE_GPU_PLUGIN);
    setenv("FAKE_GPU_FAULTS", faults, 1);
    pools_begin(NULL);
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = 1 }, &err) != GP_OK)
        GP_TEST_FAIL("no pool: %s", err.message);
    else if (team_open(&(gp_team_options){ .log = take_line }) &&
             gp_spmd(&block, team,
                     &(gp_spmd_request){ .function = team_function(TASKS_CUSTOM, "train"),
                                         .argument = &request,
                                         .bytes = sizeof(request),
                                         .workers_min = 1,
                                         .workers_max = 1 },
                     &err) != GP_OK)
        GP_TEST_FAIL("train: %s", err.message);
    gp_spmd_result_free(block);
    team_end();
    unsetenv("FAKE_GPU_FAULTS");
    cards_end();
}

TEST(model_of_a_task_logs_operations_without_a_plan)
{
    train_on_gpu("");
    CHECK_TEXT("", lines);
    train_on_gpu("cudnnPlan:1+=3000");
    CHECK_CONTAINS(lines, "no library has a plan for 2 operations, which run on slow kernels: ");
    CHECK_CONTAINS(lines, "the plan does not build");
}
