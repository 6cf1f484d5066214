/* test_elastic_team.c: teams that gain and lose workers while they run: real daemons, sockets and
 * signals. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/team/team.h"
#include "tests/service/pools.h"
#include "tests/service/team/team_function.h"

static gp_pool *pool;
static gp_team *team;
static gp_error err;

TEARDOWN()
{
    gp_team_close(team);
    gp_pool_close(pool);
    team = NULL;
    pool = NULL;
    pools_end();
}

/* Start a pool of three CPU workers. Worker 1 has a license. */
static bool pool_begin(void)
{
    const gp_pool_options options = { .workers = 3, .devices = "cpu", .resources = "1:license" };

    pools_begin(NULL);
    if (gp_pool_open(&pool, &options, &err) != GP_OK) {
        GP_TEST_FAIL("no pool: %s", err.message);
        return false;
    }
    gp_free(pools_settled(pool));
    return true;
}

/* Open an elastic team with at least that number of workers. */
static bool elastic_open(uint32_t workers_min)
{
    if (gp_team_open(&team, pool, &(gp_team_options){ .elastic = true, .lease.workers_min = workers_min },
                     &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no team: %s", err.message);
    return false;
}

static const gp_function *task(const char *name)
{
    return team_function(team, name);
}

/* Make a call with the team until it has that number of workers. */
static void await_size(uint32_t size)
{
    AWAIT((gp_team_put(team, GP_EVERY_WORKER, "x", "", 0, &err), gp_team_size(team) == size), 2);
    CHECK_INT(size, gp_team_size(team));
}

/* Another client, which wants a fixed number of workers. */
typedef struct rival {
    pthread_t thread;
    gp_team *team;
    uint32_t workers;
    gp_status status;
} rival;

static void *rival_opens(void *context)
{
    rival *r = context;

    r->status = gp_team_open(
        &r->team, pool,
        &(gp_team_options){ .lease = { .workers_min = r->workers, .workers_max = r->workers } }, NULL);
    return NULL;
}

/* Open the rival's team in another thread, which waits in the queue. */
static void rival_begin(rival *r, uint32_t workers)
{
    *r = (rival){ .workers = workers };
    if (pthread_create(&r->thread, NULL, rival_opens, r) != 0)
        abort();
}

static void rival_join(rival *r)
{
    pthread_join(r->thread, NULL);
    CHECK_INT(GP_OK, r->status);
    CHECK_INT(r->workers, r->team == NULL ? 0 : gp_team_size(r->team));
}

/* Start a pool of three workers. A rival holds two of them, the elastic team one. */
static bool begin_with_rival(rival *r)
{
    if (!pool_begin())
        return false;
    *r = (rival){ .workers = 2 };
    rival_opens(r);
    return r->status == GP_OK && elastic_open(1);
}

static void rival_ends(rival *r)
{
    gp_team_close(r->team);
    r->team = NULL;
}

static gp_future *start(const gp_function *function, const void *argument, size_t bytes, uint32_t worker)
{
    gp_future *future = NULL;
    gp_parfeval_request request = {
        .function = function, .argument = argument, .bytes = bytes, .worker = worker
    };

    if (gp_parfeval(&future, team, &request, &err) != GP_OK)
        GP_TEST_FAIL("no call: %s", err.message);
    return future;
}

static gp_future *start_hold(const gp_function *hold, const char *gate, uint32_t worker)
{
    return start(hold, gate, strlen(gate) + 1, worker);
}

static void check_result(gp_future *future, const void *expected, size_t expected_bytes)
{
    const void *data = NULL;
    size_t bytes = 0;

    if (gp_future_result(future, &data, &bytes, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    else
        CHECK(bytes == expected_bytes && (bytes == 0 || memcmp(data, expected, bytes) == 0));
    gp_future_free(future);
}

TEST(workers_that_join_have_values_payloads_and_functions_before_their_first_call)
{
    rival r;
    gp_broadcast *shared = NULL;
    static unsigned char ones[100000];
    uint64_t expected = sizeof(ones);

    REQUIRE(begin_with_rival(&r));
    CHECK_INT(1, gp_team_size(team));
    const gp_function *value_of = task("value_of"), *sum = task("sum"), *hold = task("hold");

    memset(ones, 1, sizeof(ones));
    REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, "name", "value", 6, &err), err);
    REQUIRE_OK(gp_broadcast_new(&shared, ones, sizeof(ones), &err), err);

    /* The only worker is busy: all other calls run on workers that join. */
    gp_future *held = start_hold(hold, in_root("gate"), 1);
    gp_future *values[20], *sums[20];

    for (int i = 0; i < 20; i++) {
        values[i] = start(value_of, "name", 5, 0);
        REQUIRE_OK(
            gp_parfeval(&sums[i], team, &(gp_parfeval_request){ .function = sum, .shared = shared }, &err),
            err);
    }
    rival_ends(&r);
    for (int i = 0; i < 20; i++) {
        check_result(values[i], "value", 6);
        check_result(sums[i], &expected, sizeof(expected));
    }
    await_size(3);
    write_file("gate", "");
    CHECK_STATUS(GP_OK, gp_future_wait(held, -1, &err));
    gp_broadcast_free(shared);
}

TEST(a_worker_leaves_after_its_call_and_the_calls_that_only_it_may_run)
{
    rival r;
    uint32_t three = 3;

    REQUIRE(pool_begin() && elastic_open(0));
    const gp_function *hold = task("hold"), *who = task("who");

    CHECK_INT(3, gp_team_size(team));
    gp_future *held[3], *own[10], *any[30], *last = start(who, NULL, 0, 3);

    CHECK_STATUS(GP_OK, gp_future_wait(last, -1, &err));

    for (uint32_t w = 1; w <= 3; w++)
        held[w - 1] = start_hold(hold, in_root(w == 1 ? "gate1" : w == 2 ? "gate2" : "gate3"), w);
    for (int i = 0; i < 10; i++)
        own[i] = start(who, NULL, 0, 3);
    for (int i = 0; i < 30; i++)
        any[i] = start(who, NULL, 0, 0);
    AWAIT(access(in_root("gate1.begun"), F_OK) == 0 && access(in_root("gate2.begun"), F_OK) == 0 &&
              access(in_root("gate3.begun"), F_OK) == 0,
          2);
    rival_begin(&r, 2);
    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(held[0], 200, &err)); /* drives the team */
    CHECK_INT(3, gp_team_size(team));
    write_file("gate3", "");
    write_file("gate2", "");
    for (int i = 0; i < 10; i++)
        check_result(own[i], &three, sizeof(three));
    AWAIT((gp_future_wait(held[0], 5, &err), gp_team_size(team) == 1), 1);
    CHECK_INT(1, gp_team_size(team));
    rival_join(&r);
    CHECK_STATUS(GP_EINVAL,
                 gp_parfeval(NULL, team, &(gp_parfeval_request){ .function = who, .worker = 3 }, &err));
    CHECK_STATUS(
        GP_EINVAL,
        gp_parfeval(NULL, team, &(gp_parfeval_request){ .function = who, .same_worker_as = last }, &err));
    CHECK_CONTAINS(err.message, "there is no worker 3; the team has 1");
    write_file("gate1", "");
    for (int i = 0; i < 30; i++)
        CHECK_STATUS(GP_OK, gp_future_wait(any[i], -1, &err));
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(GP_OK, gp_future_wait(held[i], -1, &err));

    /* the workers return */
    rival_ends(&r);
    await_size(3);
    check_result(start(who, NULL, 0, 3), &three, sizeof(three));
}

static uint32_t broadcast_count(void)
{
    uint32_t count = 0;

    for (const team_broadcast *b = team->broadcasts; b != NULL; b = b->next)
        count++;
    return count;
}

TEST(value_removed_from_all_workers_is_not_sent_to_workers_that_join)
{
    void *data;
    size_t bytes;

    REQUIRE(pool_begin() && elastic_open(3));
    for (int i = 0; i < 20; i++) {
        char name[16];

        snprintf(name, sizeof(name), "name-%d", i);
        REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, name, "x", 1, &err), err);
        REQUIRE_OK(gp_team_put(team, 2, name, "y", 1, &err), err);
        REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, name, NULL, 0, &err), err);
        CHECK_STATUS(GP_ENOENT, gp_team_get(team, 1, name, &data, &bytes, &err));
        CHECK_STATUS(GP_ENOENT, gp_team_get(team, 2, name, &data, &bytes, &err));
    }
    CHECK_INT(0, broadcast_count());
}

TEST(an_idle_team_gives_workers_back_without_a_call_of_its_program)
{
    rival r = { .workers = 2 };

    REQUIRE(pool_begin() && elastic_open(1));
    rival_opens(&r); /* in this thread, which makes no call with the team */
    CHECK_INT(GP_OK, r.status);
    CHECK_INT(1, gp_team_size(team));
    rival_ends(&r);
}

TEST(a_team_keeps_its_minimum_and_workers_that_do_not_help_the_waiting_client)
{
    rival r = { .workers = 2 };
    gp_team *none = NULL;

    REQUIRE(pool_begin() && elastic_open(2));
    CHECK_STATUS(GP_EBUSY,
                 gp_team_open(&none, pool,
                              &(gp_team_options){ .lease = { .workers_min = 2, .no_wait = true } }, &err));
    rival_begin(&r, 2);
    gp_sleep_ms(300);
    CHECK_INT(3, gp_team_size(team)); /* one worker is not enough for the rival */
    gp_team_close(team);
    team = NULL;
    rival_join(&r);
    rival_ends(&r);
}

TEST(a_block_keeps_the_size_it_began_with)
{
    rival r;
    gp_spmd_result *block = NULL;

    REQUIRE(begin_with_rival(&r));
    const gp_function *who = task("who");

    rival_ends(&r);
    await_size(3);

    /* a rival takes and returns workers while blocks run */
    for (int i = 0; i < 30; i++) {
        if (i % 10 == 0)
            rival_begin(&r, 2);
        REQUIRE_OK(gp_spmd(&block, team, &(gp_spmd_request){ .function = who }, &err), err);
        uint32_t size = gp_spmd_result_size(block);

        for (uint32_t k = 1; k <= size; k++) {
            const void *data = NULL;
            size_t bytes = 0;

            if (gp_spmd_result_get(block, k, &data, &bytes, &err) == GP_OK)
                CHECK_INT(k, *(const uint32_t *)data);
            else /* a worker that left has no result any more */
                CHECK(k > gp_team_size(team));
        }
        gp_spmd_result_free(block);
        if (i % 10 == 9) {
            rival_join(&r);
            rival_ends(&r);
        }
    }
}

TEST(resize_changes_a_running_team)
{
    gp_pool *other = NULL;

    REQUIRE(pool_begin() && elastic_open(0));
    const gp_function *who = task("who");

    REQUIRE_OK(gp_pool_open(&other, NULL, &err), err);
    for (uint32_t size = 1; size <= 3; size += 2) {
        REQUIRE_OK(gp_training_resize(other, team->pool->lease, 0, size, &err), err);
        await_size(size);
        check_result(start(who, NULL, 0, size), &size, sizeof(size));
    }
    CHECK_STATUS(GP_ENODEV, gp_training_resize(other, team->pool->lease, 0, 4, &err));
    gp_pool_close(other);
}

TEST(a_team_follows_the_size_of_its_pool)
{
    REQUIRE(pool_begin() && elastic_open(1));
    const gp_function *who = task("who");

    for (uint32_t size = 1; size <= 4; size += 3) {
        REQUIRE_OK(gp_pool_resize(pool, size, NULL, &err), err);
        await_size(size);
        check_result(start(who, NULL, 0, size), &size, sizeof(size));
    }
}

/* Kill one worker of the team, or the scheduler. */
static void kill_any(uint32_t kind)
{
    uint32_t victim = kind == 0 ? team->pool->scheduler_pid : worker_of(team, 1 + kind % team->size)->pid;

    if (victim != 0)
        kill((pid_t)victim, SIGKILL);
}

/* Start a command that needs up to two workers for a short time. */
static pid_t command_begin(uint32_t workers)
{
    const char *program = in_build("bin/gradpool");
    pid_t child = fork();

    if (child == 0) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execl(program, program, "spmd", "-n", workers == 1 ? "1" : "2", "--", "sleep", "0.03", NULL);
        _exit(127);
    }
    return child;
}

/* Check that a call that needed a license ran on worker 1 of the pool. */
static void check_licensed(gp_future *future)
{
    gp_future_info info = { .pool_worker = 0 };

    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &err));
    gp_future_get_info(future, &info);
    CHECK_INT(1, info.pool_worker);
}

/* While commands take and return workers, kill workers and the scheduler at random. Each call has
 * exactly one result, on a worker that meets its needs, and the team reaches its full size again.
 * GRADPOOL_TEST_KILLS, GRADPOOL_TEST_SEED: for longer runs by hand. */
TEST(no_call_is_lost_while_workers_come_go_and_die)
{
    enum { WAVE = 60, LICENSED = 5 };
    const char *kills_text = getenv("GRADPOOL_TEST_KILLS"), *seed_text = getenv("GRADPOOL_TEST_SEED");
    int kills = kills_text != NULL ? atoi(kills_text) : 8;
    unsigned seed = seed_text != NULL ? (unsigned)atoi(seed_text) : (unsigned)getpid();

    printf("     seed %u, %d kills\n", seed, kills);
    REQUIRE(pool_begin() && elastic_open(1));
    const gp_function *spin = task("spin_us"), *square = task("square");

    for (int k = 0; k < kills && gp_test_failures == 0; k++) {
        pid_t command = rand_r(&seed) % 3 != 0 ? command_begin(1 + rand_r(&seed) % 2) : 0;
        gp_future *calls[WAVE];
        double x[WAVE], us = 500;

        for (int i = 0; i < WAVE; i++) {
            x[i] = i;
            gp_parfeval_request request = { .function = i % 2 == 0 ? square : spin,
                                            .argument = i % 2 == 0 ? &x[i] : &us,
                                            .bytes = sizeof(double),
                                            .needs = i % LICENSED == 0 ? "license" : NULL,
                                            .attempts = 1000 };

            REQUIRE_OK(gp_parfeval(&calls[i], team, &request, &err), err);
            gp_sleep_ms(rand_r(&seed) % 2);
            if (i == WAVE / 2)
                kill_any(rand_r(&seed) % 5);
        }
        for (int i = 0; i < WAVE; i++) {
            double y = x[i] * x[i];

            if (i % LICENSED == 0)
                check_licensed(calls[i]);
            check_result(calls[i], &y, i % 2 == 0 ? sizeof(y) : 0);
        }
        if (command != 0)
            waitpid(command, NULL, 0);
    }
    await_size(3);
}
