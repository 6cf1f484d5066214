/* test_team_needs.c: leases, calls and loops that need resources of workers. */
#include <stdlib.h>

#include "client/team/team.h"
#include "tests/service/pools.h"
#include "tests/service/team/team_function.h"

static gp_pool *pool, *second;
static gp_team *team;
static gp_error err;

TEARDOWN()
{
    gp_team_close(team);
    gp_pool_close(second);
    gp_pool_close(pool);
    team = NULL;
    pool = second = NULL;
    pools_end();
}

/* Start a pool of three workers: worker 1 has a license, workers 2 and 3 have memory. */
static bool pool_begin(void)
{
    pools_begin(NULL);
    if (gp_pool_open(
            &pool,
            &(gp_pool_options){ .workers = 3, .devices = "cpu", .resources = "1:license 2-3:gpu_memory=80" },
            &err) != GP_OK) {
        GP_TEST_FAIL("no pool: %s", err.message);
        return false;
    }
    gp_free(pools_settled(pool));
    return true;
}

static bool team_open(const gp_team_options *options)
{
    if (gp_team_open(&team, pool, options, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no team: %s", err.message);
    return false;
}

static const gp_function *task(const char *name)
{
    return team_function(team, name);
}

static gp_future *start(const gp_parfeval_request *request)
{
    gp_future *future = NULL;

    if (gp_parfeval(&future, team, request, &err) != GP_OK)
        GP_TEST_FAIL("no call: %s", err.message);
    return future;
}

/* Wait for a call and return the number of its worker in the pool. */
static uint32_t pool_worker_of(gp_future *future)
{
    gp_future_info info = { .pool_worker = 0 };

    if (future == NULL)
        return 0;
    if (gp_future_wait(future, -1, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    gp_future_get_info(future, &info);
    CHECK_INT(GP_OK, info.status);
    gp_future_free(future);
    return info.pool_worker;
}

/* Count in context[n] the iterations that ran on worker n. */
static bool count_worker(void *context, int64_t iteration, const void *data, size_t bytes)
{
    uint32_t worker = 0;

    (void)iteration;
    if (bytes == sizeof(worker))
        memcpy(&worker, data, bytes);
    ((int *)context)[worker < 4 ? worker : 0]++;
    return true;
}

TEST(calls_and_loops_run_only_on_workers_that_meet_their_needs)
{
    gp_future *futures[20], *before;
    int counts[4] = { 0 };

    REQUIRE(pool_begin() && team_open(NULL));
    const gp_function *who = task("who");
    gp_parfeval_request licensed = { .function = who, .needs = "license" },
                        large = { .function = who, .needs = "gpu_memory=40" };

    for (int i = 0; i < 20; i++)
        futures[i] = start(i % 2 == 0 ? &licensed : &large);
    for (int i = 0; i < 20; i++)
        CHECK(i % 2 == 0 ? pool_worker_of(futures[i]) == 1 : pool_worker_of(futures[i]) >= 2);
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = who,
                                               .last = 299,
                                               .chunk = 1,
                                               .on_result = count_worker,
                                               .context = counts,
                                               .needs = "gpu_memory=80" },
                         &err),
               err);
    CHECK_INT(0, counts[0] + counts[1]);
    CHECK_INT(300, counts[2] + counts[3]);

    /* a call on the same worker as an earlier one */
    before = start(&licensed);
    licensed.same_worker_as = before;
    CHECK_INT(1, pool_worker_of(start(&licensed)));
    large.same_worker_as = before;
    REQUIRE_OK(gp_future_wait(before, -1, &err), err);
    CHECK_STATUS(GP_ENODEV, gp_parfeval(&futures[0], team, &large, &err));
    CHECK_CONTAINS(err.message, "worker 1 does not have gpu_memory=40; it has license=1");
    gp_future_free(before);

    /* more different needs, one after the other, than a team distinguishes at a time */
    for (int i = 1; i <= 80; i++) {
        char needs[40];

        snprintf(needs, sizeof(needs), "gpu_memory=%d", i);
        CHECK(pool_worker_of(start(&(gp_parfeval_request){ .function = who, .needs = needs })) >= 2);
    }
}

TEST(needs_that_no_worker_meets_are_refused_at_once)
{
    gp_future *future = NULL;
    gp_team *more = NULL;

    REQUIRE(pool_begin());
    CHECK_STATUS(GP_ENODEV,
                 gp_team_open(&more, pool, &(gp_team_options){ .lease.needs = "gpu_memory=81" }, &err));
    CHECK_CONTAINS(err.message,
                   "1 worker with gpu_memory=81 requested, but the pool has 0; worker 1: license=1; "
                   "workers 2-3: gpu_memory=80");
    CHECK_STATUS(GP_EINVAL, gp_team_open(&more, pool, &(gp_team_options){ .lease.needs = "a=b" }, &err));
    REQUIRE(team_open(&(gp_team_options){ .lease.needs = "gpu_memory" }));
    CHECK_INT(2, gp_team_size(team));
    gp_parfeval_request call = { .function = task("nothing"), .needs = "license" };

    CHECK_STATUS(GP_ENODEV, gp_parfeval(&future, team, &call, &err));
    CHECK_CONTAINS(err.message, "none of the 2 workers has license=1; workers 1-2: gpu_memory=80");
    call.environment = GP_ENVIRONMENT_GPU;
    CHECK_STATUS(GP_ENODEV, gp_parfeval(&future, team, &call, &err));
    CHECK_CONTAINS(err.message, "none of the 2 workers has a GPU and license=1");
    call = (gp_parfeval_request){ .function = call.function, .needs = "gpu_memory=99", .worker = 2 };
    CHECK_STATUS(GP_ENODEV, gp_parfeval(&future, team, &call, &err));
    CHECK_CONTAINS(err.message, "worker 2 does not have gpu_memory=99; it has gpu_memory=80");
    call.needs = "9";
    CHECK_STATUS(GP_EINVAL, gp_parfeval(&future, team, &call, &err));
    CHECK_CONTAINS(err.message, "malformed resource '9'");
    CHECK_STATUS(
        GP_ENODEV,
        gp_parfor(team, &(gp_parfor_request){ .function = call.function, .needs = "license" }, &err));
    CHECK_CONTAINS(err.message, "none of the 2 workers has license=1");
    CHECK(future == NULL && more == NULL);
}

TEST(a_call_waits_for_a_worker_that_joins_and_meets_its_needs)
{
    gp_future *future = NULL;

    REQUIRE(pool_begin());
    REQUIRE_OK(gp_pool_open(&second, NULL, &err), err);
    REQUIRE_OK(pool_lease(second, &(gp_lease_request){ .devices = "1" }, "rival", NULL, &err), err);
    REQUIRE(team_open(&(gp_team_options){ .elastic = true }));
    CHECK_INT(2, gp_team_size(team));
    const gp_function *who = task("who");
    gp_parfeval_request licensed = { .function = who, .needs = "license" };
    gp_future_info info;

    future = start(&licensed);
    CHECK(pool_worker_of(start(&(gp_parfeval_request){ .function = who })) >= 2);
    gp_future_get_info(future, &info);
    CHECK_INT(GP_FUTURE_WAITING, info.state);
    pool_release(second);
    CHECK_INT(1, pool_worker_of(future));
    licensed.needs = "license=2";
    CHECK_STATUS(GP_ENODEV, gp_parfeval(&future, team, &licensed, &err));
    CHECK_CONTAINS(err.message, "or of those that may join, has license=2");
}

TEST(replaced_workers_and_schedulers_keep_the_resources)
{
    static const char how[] = "once kill";

    REQUIRE(pool_begin() && team_open(NULL));
    gp_parfeval_request dies = {
        .function = task("die"), .argument = how, .bytes = sizeof(how), .needs = "license"
    };

    CHECK_INT(1, pool_worker_of(start(&dies))); /* the second attempt */
    kill((pid_t)team->pool->scheduler_pid, SIGKILL);
    dies.argument = "once exit";
    CHECK_INT(1, pool_worker_of(start(&dies)));
    gp_team_close(team);
    team = NULL;
    REQUIRE_OK(gp_pool_open(&second, NULL, &err), err);
    REQUIRE_OK(pool_lease(second, &(gp_lease_request){ .needs = "license" }, "after", NULL, &err), err);
    CHECK_INT(1, second->grant.slots_count);
    CHECK_INT(1, second->grant.slots[0].index);
    CHECK_TEXT("license=1", second->grant.slots[0].resources);
    REQUIRE_OK(gp_pool_resize(second, 4, NULL, &err), err);
    pool_release(second);
    REQUIRE_OK(pool_resize(second, 4, NULL, "4:license=7", &err), err);
    REQUIRE_OK(pool_lease(second, &(gp_lease_request){ .needs = "license=7" }, "resized", NULL, &err), err);
    CHECK_INT(4, second->grant.slots[0].index);
    CHECK_STATUS(GP_EINVAL, pool_resize(second, 4, NULL, "5:license", &err));
    CHECK_CONTAINS(err.message, "worker 5 has resources, but the pool has 4");
}

/* Wait for a call that fails because no worker meets its needs. */
static void check_unmet(gp_future *future, const char *text)
{
    CHECK_STATUS(GP_ENODEV, gp_future_result(future, NULL, NULL, &err));
    CHECK_CONTAINS(err.message, text);
    gp_future_free(future);
}

TEST(calls_fail_when_their_resources_are_taken_from_the_pool)
{
    static const char how[] = "once kill";

    REQUIRE(pool_begin() && team_open(NULL));
    REQUIRE_OK(gp_pool_open(&second, NULL, &err), err);
    gp_parfeval_request dies = {
        .function = task("die"), .argument = how, .bytes = sizeof(how), .needs = "license"
    };

    /* A worker in use keeps its resources. The next scheduler gives it those of the pool. */
    REQUIRE_OK(pool_resize(second, 3, NULL, "gpu_memory=80", &err), err);
    kill((pid_t)team->pool->scheduler_pid, SIGKILL);
    check_unmet(start(&dies), "none of the 3 workers has license=1; workers 1-3: gpu_memory=80");
    CHECK_STATUS(GP_ENODEV, gp_parfeval(NULL, team, &dies, &err));
}

TEST(calls_fail_when_no_worker_that_meets_their_needs_can_join)
{
    REQUIRE(pool_begin());
    REQUIRE_OK(gp_pool_open(&second, NULL, &err), err);
    REQUIRE_OK(pool_lease(second, &(gp_lease_request){ .devices = "1" }, "rival", NULL, &err), err);
    REQUIRE(team_open(&(gp_team_options){ .elastic = true, .lease.workers_max = 2 }));
    gp_parfeval_request licensed = { .function = task("who"), .needs = "license" };

    CHECK_INT(2, gp_team_size(team));
    CHECK_STATUS(GP_ENODEV, gp_parfeval(NULL, team, &licensed, &err));
    CHECK_CONTAINS(err.message, "none of the 2 workers, the maximum of the team, has license=1");
    gp_team_close(team);
    team = NULL;

    /* the call waits until worker 1 is free, and has other resources then */
    REQUIRE(team_open(&(gp_team_options){ .elastic = true }));
    licensed.function = task("who");
    gp_future *future = start(&licensed);

    REQUIRE_OK(pool_resize(second, 3, NULL, "gpu_memory=80", &err), err);
    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(future, 10, &err));
    pool_release(second);
    check_unmet(future, " workers, or of those that may join, has license=1");
}

/* Run a gradpool command, and return its exit code and output. */
static int command(char *out, size_t bytes, const char *words)
{
    char line[900];
    size_t got = 0;
    FILE *from;
    int status;

    snprintf(line, sizeof(line), "%s %s 2>&1", in_build("bin/gradpool"), words);
    from = popen(line, "r");
    if (from == NULL)
        abort();
    got = fread(out, 1, bytes - 1, from);
    out[got] = '\0';
    status = pclose(from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(commands_set_show_and_need_resources)
{
    char out[8000];

    pools_begin(NULL);
    CHECK_INT(2, command(out, sizeof(out), "up --resource 1:a=x"));
    CHECK_CONTAINS(out, "--resource: malformed resource 'a=x'");
    CHECK_INT(1, command(out, sizeof(out), "up --workers 2 --devices cpu --resource 3:license"));
    CHECK_CONTAINS(out, "worker 3 has resources, but the pool has 2");
    CHECK_INT(0, command(out, sizeof(out),
                         "up --workers 2 --devices cpu --resource license --resource 2:gpu_memory=80"));
    CHECK_CONTAINS(out, "resources: worker 1: license=1; worker 2: gpu_memory=80,license=1");
    CHECK_INT(0, command(out, sizeof(out), "spmd --needs gpu_memory=80 -- sh -c 'echo $GRADPOOL_WORKER'"));
    CHECK_CONTAINS(out, "2");
    CHECK_INT(0, command(out, sizeof(out), "up --workers 3"));
    CHECK_CONTAINS(out, "worker 2: gpu_memory=80,license=1; worker 3: license=1");
    CHECK_INT(0, command(out, sizeof(out), "up --resource 1:fpga=2"));
    CHECK_CONTAINS(out, "resources: worker 1: fpga=2; workers 2-3: none");
    CHECK_INT(0, command(out, sizeof(out), "status --json"));
    CHECK_CONTAINS(out, "\"fpga\": 2");
    CHECK(command(out, sizeof(out), "parfor --needs license 1 2 -- true {}") != 0);
    CHECK_CONTAINS(out, "1 worker with license=1 requested, but the pool has 0");
    CHECK_INT(0, command(out, sizeof(out), "up --resource none"));
    CHECK(strstr(out, "resources:") == NULL);
}
