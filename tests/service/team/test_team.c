/* test_team.c: teams on real pools: futures, waiting, worker failures, payloads, values and
 * queues. */
#include <fcntl.h>
#include <sys/stat.h>

#include "client/team/team.h"
#include "tests/service/pools.h"
#include "tests/service/team/team_function.h"

enum { MIB = 1 << 20 };

/* Argument of `mark_file`. */
typedef struct mark {
    uint32_t number;
    double ms;
    char path[200], gate[200];
} mark;

typedef struct fixture {
    gp_pool *pool;
    gp_team *team;
    gp_error err;
} fixture;

static fixture f; /* of the running test */

/* Look up a function in the object built with the tests. */
static const gp_function *function(fixture *s, const char *name)
{
    return team_function(s->team, name);
}

static bool begin(fixture *s, uint32_t workers)
{
    *s = (fixture){ 0 };
    pools_begin(NULL);
    if (gp_pool_open(&s->pool, &(gp_pool_options){ .workers = workers }, &s->err) != GP_OK ||
        gp_team_open(&s->team, s->pool, NULL, &s->err) != GP_OK) {
        GP_TEST_FAIL("no team: %s", s->err.message);
        return false;
    }
    return true;
}

TEARDOWN()
{
    gp_team_close(f.team);
    gp_pool_close(f.pool);
    f = (fixture){ 0 };
    pools_end();
}

static gp_future *call(fixture *s, gp_parfeval_request request)
{
    gp_future *future = NULL;

    if (gp_parfeval(&future, s->team, &request, &s->err) != GP_OK)
        GP_TEST_FAIL("cannot submit a call: %s", s->err.message);
    return future;
}

static gp_future *nap(fixture *s, const gp_function *sleeper, double ms)
{
    return call(s, (gp_parfeval_request){ .function = sleeper, .argument = &ms, .bytes = sizeof(ms) });
}

/* Call `hold` or `sleep_deaf` on that worker (0: any); it runs until let_go() with the same
 * name. */
static gp_future *held(fixture *s, const gp_function *holder, const char *name, uint32_t worker)
{
    const char *path = in_root(name);

    return call(s, (gp_parfeval_request){
                       .function = holder, .argument = path, .bytes = strlen(path) + 1, .worker = worker });
}

static void let_go(const char *name)
{
    write_file(name, "");
}

/* Wait until a file has `bytes` bytes: one per started call. */
static bool await_bytes(const char *name, off_t bytes)
{
    struct stat facts = { 0 };

    AWAIT(stat(in_root(name), &facts) == 0 && facts.st_size >= bytes, 1);
    return facts.st_size >= bytes;
}

static gp_future_info info(const gp_future *future)
{
    gp_future_info out;

    gp_future_get_info(future, &out);
    return out;
}

/* Wait until `count` calls have ended. No library call makes progress meanwhile: the background
 * thread of the team does. */
static gp_team_info await_ended(uint64_t count)
{
    gp_team_info all;

    AWAIT((gp_team_get_info(f.team, &all), all.ended >= count), 2);
    return all;
}

/* Store the pids of the team's workers, as reported by the pool. */
static uint32_t worker_pids(fixture *s, pid_t pids[], uint32_t max)
{
    gp_status_reply *reply = pools_settled(s->pool);
    uint32_t count = 0;

    for (uint32_t i = 0; reply != NULL && i < reply->workers_count && count < max; i++)
        pids[count++] = (pid_t)reply->workers[i].slot.pid;
    gp_free(reply);
    return count;
}

/* ---- one call ---- */

TEST(call_returns_its_result_worker_and_times)
{
    double x = 3;
    const void *data;
    size_t bytes;

    REQUIRE(begin(&f, 2));
    gp_future *future = call(
        &f, (gp_parfeval_request){ .function = function(&f, "square"), .argument = &x, .bytes = sizeof(x) });

    CHECK_STATUS(GP_OK, gp_future_result(future, &data, &bytes, &f.err));
    CHECK_INT(sizeof(double), bytes);
    CHECK_NEAR(9, *(const double *)data, 0);
    gp_future_info i = info(future);

    CHECK_INT(GP_FUTURE_DONE, i.state);
    CHECK_INT(GP_OK, i.status);
    CHECK(i.worker >= 1 && i.worker <= 2);
    CHECK_INT(1, i.attempts);
    CHECK(i.submitted_ns > 0 && i.started_ns >= i.submitted_ns && i.ended_ns >= i.started_ns);
}

TEST(task_error_has_status_message_and_worker)
{
    REQUIRE(begin(&f, 1));
    gp_future *future =
        call(&f, (gp_parfeval_request){ .function = function(&f, "square"), .argument = "x", .bytes = 1 });

    CHECK_STATUS(GP_EINVAL, gp_future_result(future, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, "worker 1: ");
    CHECK_CONTAINS(f.err.message, "expected one double");
}

TEST(arguments_and_results_of_every_size_survive_a_round_trip)
{
    static const size_t sizes[] = { 1, 32, 33, 1000, 32768, 32769, 3 * MIB + 5 };

    REQUIRE(begin(&f, 2));
    const gp_function *echo = function(&f, "echo");
    unsigned char *sent = malloc(4 * MIB);

    for (size_t i = 0; i < 4 * MIB; i++)
        sent[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        const void *data;
        size_t bytes;
        gp_future *future =
            call(&f, (gp_parfeval_request){ .function = echo, .argument = sent + i, .bytes = sizes[i] });

        CHECK_STATUS(GP_OK, gp_future_result(future, &data, &bytes, &f.err));
        CHECK_INT(sizes[i], bytes);
        CHECK(bytes == sizes[i] && memcmp(data, sent + i, bytes) == 0);
        gp_future_free(future);
    }
    free(sent);
}

static int descriptors(void)
{
    DIR *list = opendir("/proc/self/fd");
    int count = 0;

    while (list != NULL && readdir(list) != NULL)
        count++;
    closedir(list);
    return count;
}

TEST(queued_large_arguments_may_exceed_the_descriptor_limit)
{
    enum { COUNT = 3000, BYTES = 40000 };
    static gp_future *futures[COUNT];
    uint64_t wrong = 0;
    char *argument = malloc(BYTES);

    REQUIRE(begin(&f, 2));
    const gp_function *echo = function(&f, "echo");
    int before = descriptors();

    for (int i = 0; i < COUNT; i++) {
        memset(argument, i, BYTES);
        futures[i] =
            call(&f, (gp_parfeval_request){ .function = echo, .argument = argument, .bytes = BYTES });
        REQUIRE(futures[i] != NULL);
    }
    CHECK(descriptors() < before + 500);
    for (int i = 0; i < COUNT; i++) {
        const void *data = NULL;
        size_t bytes = 0;

        if (gp_future_result(futures[i], &data, &bytes, &f.err) != GP_OK || bytes != BYTES ||
            ((const unsigned char *)data)[BYTES - 1] != (unsigned char)i)
            wrong++;
        gp_future_free(futures[i]);
    }
    CHECK_INT(0, wrong);
    CHECK(descriptors() <= before + 8);
    free(argument);
}

TEST(team_leaks_no_descriptors_and_no_memory)
{
    int fds = 0;
    int64_t blocks = 0;

    REQUIRE(begin(&f, 2));
    for (int round = 0; round < 4; round++) {
        gp_future *futures[30];

        gp_team_close(f.team);
        if (round == 1)
            fds = descriptors();
        if (round == 1)
            blocks = gp_alloc_get_stats().live;

        /* A thread of libzmq releases closed sockets asynchronously. */
        for (int ms = 0; round >= 2 && descriptors() > fds && ms < POOLS_TIMEOUT_MS; ms++)
            gp_sleep_ms(1);
        CHECK(round < 2 || descriptors() <= fds);
        CHECK(round < 2 || gp_alloc_get_stats().live <= blocks);
        REQUIRE_OK(gp_team_open(&f.team, f.pool, NULL, &f.err), f.err);
        const gp_function *echo = function(&f, "echo");
        char *large = calloc(1, 3 * MIB);

        for (int i = 0; i < 30; i++)
            futures[i] =
                call(&f, (gp_parfeval_request){
                             .function = echo, .argument = large, .bytes = i % 3 == 0 ? 3 * MIB : 50000 });
        CHECK_STATUS(GP_OK, gp_futures_wait(futures, 15, GP_WAIT_ALL, -1, &f.err));
        free(large); /* the other calls are still in flight when the team closes */
    }
}

TEST(broadcast_is_an_argument_of_many_calls_and_may_be_freed_at_once)
{
    gp_broadcast *shared;
    void *memory;
    gp_future *futures[20];

    REQUIRE(begin(&f, 2));
    const gp_function *sum = function(&f, "sum");

    REQUIRE_OK(gp_broadcast_map(&shared, &memory, 5 * MIB, &f.err), f.err);
    memset(memory, 1, 5 * MIB);
    for (int i = 0; i < 20; i++)
        futures[i] = call(&f, (gp_parfeval_request){ .function = sum, .shared = shared });
    gp_broadcast_free(shared);
    for (int i = 0; i < 20; i++) {
        const void *data = NULL;
        size_t bytes;

        CHECK_STATUS(GP_OK, gp_future_result(futures[i], &data, &bytes, &f.err));
        CHECK(data != NULL && *(const uint64_t *)data == 5 * MIB);
        gp_future_free(futures[i]);
    }
}

/* Return the size of shared payloads mapped by a process; bytes. */
static size_t shared_mapped(pid_t pid)
{
    char path[40], line[400];
    size_t sum = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long begin, end;

        if (strstr(line, "memfd:gradpool-shared") != NULL && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            sum += end - begin;
    }
    if (file != NULL)
        fclose(file);
    return sum;
}

/* Wait until the background thread of the team sleeps without a timeout. */
static bool await_parked(gp_team *team)
{
    bool parked = false;

    for (gp_timeout timeout = gp_timeout_in(POOLS_TIMEOUT_MS); !parked && gp_timeout_left(timeout) > 0;) {
        gp_sleep_ms(1);
        pthread_mutex_lock(&team->background.mutex);
        parked = team->background.state == BACKGROUND_PARKED;
        pthread_mutex_unlock(&team->background.mutex);
    }
    return parked;
}

TEST(freed_broadcast_is_released_without_further_calls)
{
    gp_broadcast *shared;
    void *memory;
    pid_t pids[2];
    int64_t deadline_ms;

    REQUIRE(begin(&f, 2));
    const gp_function *sum = function(&f, "sum");
    int before = descriptors();

    REQUIRE(worker_pids(&f, pids, 2) == 2);
    REQUIRE_OK(gp_broadcast_map(&shared, &memory, 8 * MIB, &f.err), f.err);
    memset(memory, 1, 8 * MIB);
    for (uint32_t w = 1; w <= 2; w++) {
        gp_future *future = call(&f, (gp_parfeval_request){ .function = sum, .shared = shared, .worker = w });

        CHECK_STATUS(GP_OK, gp_future_result(future, NULL, NULL, &f.err));
        gp_future_free(future);
    }
    for (int w = 0; w < 2; w++)
        CHECK(shared_mapped(pids[w]) >= 8 * MIB);
    CHECK(await_parked(f.team));
    gp_broadcast_free(shared);
    deadline_ms = gp_now_ms() + POOLS_TIMEOUT_MS / 12;
    while (
        (shared_mapped(pids[0]) >= 8 * MIB || shared_mapped(pids[1]) >= 8 * MIB || descriptors() > before) &&
        gp_now_ms() < deadline_ms)
        gp_sleep_ms(1);
    for (int w = 0; w < 2; w++)
        CHECK(shared_mapped(pids[w]) < 8 * MIB);
    CHECK_INT(before, descriptors());
}

TEST(invalid_requests_are_refused_with_the_available_values)
{
    gp_future *future;

    REQUIRE(begin(&f, 2));
    const gp_function *nothing = function(&f, "nothing");

    CHECK_STATUS(GP_EINVAL, gp_parfeval(&future, f.team,
                                        &(gp_parfeval_request){ .function = nothing, .worker = 3 }, &f.err));
    CHECK_CONTAINS(f.err.message, "no worker 3; the team has 2");
    CHECK_STATUS(GP_ENODEV,
                 gp_parfeval(&future, f.team,
                             &(gp_parfeval_request){ .function = nothing, .environment = GP_ENVIRONMENT_GPU },
                             &f.err));
    CHECK_CONTAINS(f.err.message, "none of the 2 workers has a GPU");
    CHECK_STATUS(GP_EINVAL, gp_parfeval(&future, f.team, &(gp_parfeval_request){ 0 }, &f.err));
    CHECK_STATUS(GP_EINVAL,
                 gp_parfeval(&future, f.team,
                             &(gp_parfeval_request){ .function = nothing, .depends_on_count = 1 }, &f.err));
    CHECK_CONTAINS(f.err.message, "depends_on is NULL");
    CHECK_STATUS(GP_EINVAL, gp_futures_wait(&(gp_future *){ NULL }, 1, GP_WAIT_ALL, 0, &f.err));
    CHECK_CONTAINS(f.err.message, "futures[0] of 1 is NULL");

    gp_future *first = call(&f, (gp_parfeval_request){ .function = nothing, .worker = 2 });
    gp_parfeval_request follower = { .function = nothing, .same_worker_as = first, .worker = 1 };

    CHECK_STATUS(GP_EINVAL, gp_parfeval(&future, f.team, &follower, &f.err));
    CHECK_CONTAINS(f.err.message, "follows one on worker 2 and requests worker 1");
    CHECK_STATUS(GP_OK, gp_future_wait(first, -1, &f.err));
    CHECK_STATUS(GP_EINVAL, gp_parfeval(&future, f.team, &follower, &f.err));
    CHECK_CONTAINS(f.err.message, "follows one on worker 2 and requests worker 1");
    follower.worker = 2;
    CHECK_STATUS(GP_OK, gp_parfeval(&future, f.team, &follower, &f.err));
    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &f.err));
    CHECK_INT(2, info(future).worker);
    CHECK_STATUS(GP_EINVAL, gp_future_cancel_grace(future, -1, &f.err));
    CHECK_CONTAINS(f.err.message, "the grace period is -1 ms");

    /* a rejected call does not free the caller's argument */
    gp_parfeval_request rejected = {
        .function = nothing, .argument = &first, .bytes = sizeof(first), .priority = 1001
    };

    CHECK_STATUS(GP_EINVAL, gp_parfeval(&future, f.team, &rejected, &f.err));
    CHECK_CONTAINS(f.err.message, "the priority is 1001");
}

TEST(missing_function_is_reported_with_the_nearest_name)
{
    const gp_function *found;

    REQUIRE(begin(&f, 1));
    CHECK_STATUS(GP_ENOENT,
                 gp_function_find(&found, f.team, in_build("tests/service/team_tasks.so:sqare"), &f.err));
    CHECK_CONTAINS(f.err.message, "did you mean 'square'?");
    CHECK_STATUS(GP_ENOENT, gp_function_find(&found, f.team, "/nowhere/x.so:f", &f.err));
    CHECK_STATUS(GP_EINVAL, gp_function_find(&found, f.team, "square", &f.err));
    CHECK_CONTAINS(f.err.message, "FILE.so:NAME");
    CHECK_STATUS(GP_EINVAL, gp_function_find(&found, f.team, in_build("CMakeCache.txt:f"), &f.err));
    CHECK_CONTAINS(f.err.message, "not a task object");
    CHECK_STATUS(GP_EINVAL,
                 gp_function_find(&found, f.team, in_build("lib/libgradpool.so:gp_version"), &f.err));
    CHECK_CONTAINS(f.err.message, "without tasks");
    REQUIRE(shell("cp %s open.so && chmod 0666 open.so", in_build("tests/service/team_tasks.so")) == 0);
    CHECK_STATUS(GP_EPERM, gp_function_find(&found, f.team, in_root("open.so:square"), &f.err));
    CHECK_CONTAINS(f.err.message, "chmod go-w");
}

/* ---- several calls ---- */

TEST(waiting_for_all_any_and_the_first_error)
{
    gp_future *futures[3];
    uint32_t never = 99;

    REQUIRE(begin(&f, 2));
    const gp_function *holder = function(&f, "hold"), *nothing = function(&f, "nothing"),
                      *fails = function(&f, "fail_until");

    futures[0] = held(&f, holder, "go", 0);
    futures[1] = call(&f, (gp_parfeval_request){ .function = nothing });
    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(futures[0], 20, &f.err));
    CHECK_STATUS(GP_OK, gp_futures_wait(futures, 2, GP_WAIT_ANY, -1, &f.err));
    CHECK_INT(GP_FUTURE_DONE, info(futures[1]).state);
    CHECK_INT(GP_FUTURE_RUNNING, info(futures[0]).state);
    futures[2] =
        call(&f, (gp_parfeval_request){ .function = fails, .argument = &never, .bytes = sizeof(never) });
    CHECK_STATUS(GP_OK, gp_futures_wait(futures, 3, GP_WAIT_FIRST_ERROR, -1, &f.err));
    CHECK_INT(GP_EIO, info(futures[2]).status);
    CHECK_STATUS(GP_ETIMEDOUT, gp_futures_wait(futures, 3, GP_WAIT_ALL, 10, &f.err));
    let_go("go");
    CHECK_STATUS(GP_OK, gp_futures_wait(futures, 3, GP_WAIT_ALL, -1, &f.err));
    CHECK_INT(GP_OK, info(futures[0]).status);
    for (int i = 0; i < 3; i++)
        gp_future_free(futures[i]);
}

TEST(as_completed_returns_each_future_once_in_completion_order)
{
    static const char *const names[] = { "first", "second", "third" };
    static const int order[] = { 1, 2, 0 };
    gp_future *futures[3], *got;

    REQUIRE(begin(&f, 3));
    const gp_function *holder = function(&f, "hold");

    for (int i = 0; i < 3; i++)
        futures[i] = held(&f, holder, names[i], 0);
    CHECK_STATUS(GP_ETIMEDOUT, gp_team_as_completed(f.team, &got, 0, &f.err));
    int64_t last = 0;

    for (int i = 0; i < 3; i++) {
        let_go(names[order[i]]);
        REQUIRE_OK(gp_team_as_completed(f.team, &got, -1, &f.err), f.err);
        CHECK(got == futures[order[i]]);
        CHECK(info(got).ended_ns >= last);
        last = info(got).ended_ns;
        gp_future_free(got);
    }
    CHECK_STATUS(GP_ENOENT, gp_team_as_completed(f.team, &got, -1, &f.err));
}

typedef struct chain {
    const gp_function *function;
    int called, failed;
} chain;

static void chain_on(void *context, gp_future *future)
{
    chain *c = context;
    const void *data;
    size_t bytes;

    c->called++;
    if (gp_future_result(future, &data, &bytes, NULL) != GP_OK || info(future).state != GP_FUTURE_DONE)
        c->failed++;
    if (c->called < 50 &&
        gp_parfeval(NULL, f.team,
                    &(gp_parfeval_request){ .function = c->function, .done = chain_on, .context = c },
                    NULL) != GP_OK)
        c->failed++;
}

TEST(a_callback_sees_its_result_and_may_make_the_next_call)
{
    static chain c;

    REQUIRE(begin(&f, 2));
    c.function = function(&f, "nothing");
    REQUIRE_OK(gp_parfeval(NULL, f.team,
                           &(gp_parfeval_request){ .function = c.function, .done = chain_on, .context = &c },
                           &f.err),
               f.err);
    await_ended(50);
    CHECK_INT(50, c.called);
    CHECK_INT(0, c.failed);
}

TEST(work_continues_without_library_calls)
{
    gp_future *futures[60];
    gp_team_info i;

    REQUIRE(begin(&f, 2));
    const gp_function *sleeper = function(&f, "sleep_ms");

    for (int k = 0; k < 60; k++)
        futures[k] = nap(&f, sleeper, 3);
    i = await_ended(60);
    CHECK_INT(60, i.ended);
    CHECK_INT(0, i.waiting + i.running);
    for (int k = 0; k < 60; k++)
        gp_future_free(futures[k]);
}

TEST(priorities_and_preferred_workers_are_respected)
{
    gp_future *low, *high;
    const void *data;
    size_t bytes;

    REQUIRE(begin(&f, 2));
    const gp_function *holder = function(&f, "hold"), *who = function(&f, "who");

    for (uint32_t w = 1; w <= 2; w++) /* two for each worker: later calls wait in the client */
        for (int k = 0; k < 2; k++)
            held(&f, holder, "go", w);
    low = call(&f, (gp_parfeval_request){ .function = who, .worker = 2, .priority = -1 });
    high = call(&f, (gp_parfeval_request){ .function = who, .worker = 2, .priority = 5 });
    let_go("go");
    CHECK_STATUS(GP_OK, gp_future_result(low, &data, &bytes, &f.err));
    CHECK_INT(2, *(const uint32_t *)data);
    CHECK_INT(GP_FUTURE_DONE, info(high).state);
    CHECK(info(high).ended_ns <= info(low).ended_ns);
}

TEST(urgent_call_starts_before_prefetched_calls)
{
    enum { COUNT = 8 };
    mark m = { .number = 0 };
    gp_future *last = NULL;
    uint32_t order[COUNT + 1] = { 0 };
    FILE *file;

    REQUIRE(begin(&f, 1));
    const gp_function *marker = function(&f, "mark_file");
    gp_future *first = held(&f, function(&f, "hold"), "go", 0);

    CHECK(await_bytes("go.begun", 1));
    snprintf(m.path, sizeof(m.path), "%s/marks", pools_root);
    for (m.number = 1; m.number <= COUNT; m.number++)
        last = call(&f, (gp_parfeval_request){ .function = marker, .argument = &m, .bytes = sizeof(m) });
    call(&f, (gp_parfeval_request){ .function = marker, .argument = &m, .bytes = sizeof(m), .priority = 10 });
    let_go("go");
    CHECK_STATUS(GP_OK, gp_future_wait(first, -1, &f.err));
    CHECK_STATUS(GP_OK, gp_future_wait(last, -1, &f.err));
    file = fopen(m.path, "re");
    REQUIRE(file != NULL);
    CHECK_INT(COUNT + 1, fread(order, sizeof(order[0]), COUNT + 1, file));
    fclose(file);
    CHECK_INT(COUNT + 1, order[0]);
    for (uint32_t k = 1; k <= COUNT; k++)
        CHECK_INT(k, order[k]);
}

TEST(long_call_does_not_delay_later_calls)
{
    gp_future *futures[40];
    gp_team_info i;

    REQUIRE(begin(&f, 2));
    const gp_function *sleeper = function(&f, "sleep_ms"), *holder = function(&f, "hold");
    gp_future *warm = nap(&f, sleeper, 0); /* short calls make the team prefetch many */

    CHECK_STATUS(GP_OK, gp_future_wait(warm, -1, &f.err));
    gp_future_free(warm);
    gp_future *slow = held(&f, holder, "go", 0);

    for (int k = 0; k < 40; k++)
        futures[k] = nap(&f, sleeper, 1);
    CHECK_STATUS(GP_OK, gp_futures_wait(futures, 40, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &f.err));
    CHECK_INT(GP_FUTURE_RUNNING, info(slow).state);
    gp_future_cancel(slow);
    CHECK_STATUS(GP_ECANCELED, gp_future_result(slow, NULL, NULL, &f.err));
    gp_team_get_info(f.team, &i);
    CHECK_INT(0, i.worker_deaths);
}

/* ---- after, follow, deadlines, retries ---- */

TEST(dependent_calls_wait_and_fail_with_their_dependencies)
{
    uint32_t never = 99;

    REQUIRE(begin(&f, 2));
    const gp_function *holder = function(&f, "hold"), *who = function(&f, "who");
    const gp_function *fails = function(&f, "fail_until");
    gp_future *first = held(&f, holder, "go", 0);
    gp_future *after =
        call(&f, (gp_parfeval_request){ .function = who, .depends_on = &first, .depends_on_count = 1 });
    gp_future *follow = call(&f, (gp_parfeval_request){ .function = who, .same_worker_as = first });
    gp_future *bad =
        call(&f, (gp_parfeval_request){ .function = fails, .argument = &never, .bytes = sizeof(never) });
    gp_future *both[] = { first, bad };
    gp_future *orphan =
        call(&f, (gp_parfeval_request){ .function = who, .depends_on = both, .depends_on_count = 2 });
    gp_future *grandchild =
        call(&f, (gp_parfeval_request){ .function = who, .depends_on = &orphan, .depends_on_count = 1 });
    const void *data;
    size_t bytes;

    CHECK_INT(GP_FUTURE_WAITING, info(after).state);
    let_go("go");
    CHECK_STATUS(GP_OK, gp_future_result(follow, &data, &bytes, &f.err));
    CHECK_INT(info(first).worker, *(const uint32_t *)data);
    CHECK_STATUS(GP_OK, gp_future_wait(after, -1, &f.err));
    CHECK(info(after).started_ns >= info(first).ended_ns);
    CHECK_STATUS(GP_ECANCELED, gp_future_result(grandchild, NULL, NULL, &f.err));
    CHECK_STATUS(GP_ECANCELED, gp_future_result(orphan, NULL, NULL, &f.err));
    char cause[100];

    snprintf(cause, sizeof(cause), "call %u, which it depends on, failed: worker ", (unsigned)info(bad).id);
    CHECK_CONTAINS(f.err.message, cause);
    CHECK_CONTAINS(f.err.message, "attempt 1 fails");
    CHECK_STATUS(GP_ECANCELED, gp_future_result(grandchild, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, cause); /* names the failed call, not the one between */
    CHECK_CONTAINS(f.err.message, "attempt 1 fails");
    gp_future *late =
        call(&f, (gp_parfeval_request){ .function = who, .depends_on = &bad, .depends_on_count = 1 });

    CHECK_STATUS(GP_ECANCELED, gp_future_result(late, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, cause);
}

TEST(start_deadlines_and_time_limits_are_enforced)
{
    double ms = 1e9;

    REQUIRE(begin(&f, 1));
    const gp_function *sleeper = function(&f, "sleep_ms"), *nothing = function(&f, "nothing");
    gp_future *busy = held(&f, function(&f, "hold"), "go", 0);
    gp_future *late = call(&f, (gp_parfeval_request){ .function = nothing, .queue_timeout_ms = 30 });

    CHECK_STATUS(GP_ETIMEDOUT, gp_future_result(late, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, "did not start within its time limit of 30 ms");
    CHECK_INT(GP_FUTURE_RUNNING, info(busy).state);
    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(busy, 1, &f.err));
    CHECK_CONTAINS(f.err.message, "did not end within 1 ms: running on worker 1");
    gp_future *unlimited = call(
        &f,
        (gp_parfeval_request){ .function = nothing, .queue_timeout_ms = INT64_MAX, .timeout_ms = INT64_MAX });

    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(unlimited, 10, &f.err));
    CHECK_INT(GP_FUTURE_WAITING, info(unlimited).state);
    let_go("go");
    CHECK_STATUS(GP_OK, gp_future_result(unlimited, NULL, NULL, &f.err));
    gp_future *running =
        call(&f, (gp_parfeval_request){
                     .function = sleeper, .argument = &ms, .bytes = sizeof(ms), .timeout_ms = 150 });

    CHECK_STATUS(GP_ETIMELIMIT, gp_future_result(running, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, "worker 1: exceeded its time limit of 150 ms; canceled after ");
    CHECK_INT(GP_ETIMELIMIT, info(running).status);
}

TEST(errors_are_retried_up_to_the_requested_number)
{
    uint32_t good = 3;
    const void *data;
    size_t bytes;

    REQUIRE(begin(&f, 2));
    const gp_function *fails = function(&f, "fail_until");
    gp_future *never =
        call(&f, (gp_parfeval_request){ .function = fails, .argument = &good, .bytes = sizeof(good) });
    gp_future *once = call(
        &f,
        (gp_parfeval_request){ .function = fails, .argument = &good, .bytes = sizeof(good), .retries = 1 });
    gp_future *twice = call(
        &f,
        (gp_parfeval_request){ .function = fails, .argument = &good, .bytes = sizeof(good), .retries = 2 });

    CHECK_STATUS(GP_EIO, gp_future_result(never, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, "attempt 1 fails");
    CHECK_STATUS(GP_EIO, gp_future_result(once, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, "attempt 2 fails");
    CHECK_STATUS(GP_OK, gp_future_result(twice, &data, &bytes, &f.err));
    CHECK_INT(3, *(const uint32_t *)data);
    CHECK_INT(2, info(twice).retries);
    CHECK_INT(1, info(twice).attempts);
}

/* ---- canceling ---- */

TEST(queued_call_is_canceled_at_once_and_a_running_one_is_notified)
{
    gp_team_info i;

    REQUIRE(begin(&f, 1));
    const gp_function *holder = function(&f, "hold");
    gp_future *running = held(&f, holder, "go", 0), *next = held(&f, holder, "go", 0),
              *last = held(&f, holder, "go", 0);

    CHECK(await_bytes("go.begun", 1));
    gp_future_cancel(last);
    gp_future_cancel(next); /* already in the worker's ring */
    CHECK_INT(GP_FUTURE_DONE, info(last).state);
    CHECK_INT(GP_FUTURE_DONE, info(next).state);
    CHECK_INT(GP_ECANCELED, info(next).status);
    gp_future_cancel(running);
    CHECK_STATUS(GP_ECANCELED, gp_future_result(running, NULL, NULL, &f.err));
    gp_team_get_info(f.team, &i);
    CHECK_INT(3, i.canceled);
    CHECK_INT(0, i.worker_deaths);
    gp_future_cancel(running); /* a second cancel has no effect */
}

TEST(uncancelable_call_loses_its_worker_and_the_team_continues)
{
    gp_team_info i;

    REQUIRE(begin(&f, 1));
    const gp_function *who = function(&f, "nothing");
    gp_future *deaf = held(&f, function(&f, "sleep_deaf"), "begun", 0);

    CHECK(await_bytes("begun", 1));
    gp_future *next = call(&f, (gp_parfeval_request){ .function = who });

    gp_future_cancel(deaf);
    CHECK_STATUS(GP_ECANCELED, gp_future_result(deaf, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, "its worker was replaced");
    CHECK_STATUS(GP_OK, gp_future_result(next, NULL, NULL, &f.err));
    gp_team_get_info(f.team, &i);
    CHECK_INT(1, i.worker_deaths);
}

TEST(a_cancel_with_no_grace_kills_the_worker_at_once)
{
    gp_team_info i;

    REQUIRE(begin(&f, 1));
    gp_future *deaf = held(&f, function(&f, "sleep_deaf"), "begun", 0);

    CHECK(await_bytes("begun", 1));
    CHECK_STATUS(GP_OK, gp_future_cancel_grace(deaf, GP_CANCEL_GRACE_MS_MAX, &f.err));
    CHECK_INT(GP_FUTURE_RUNNING, info(deaf).state);
    CHECK_STATUS(GP_OK, gp_future_cancel_grace(deaf, 0, &f.err));
    CHECK_STATUS(GP_ECANCELED, gp_future_result(deaf, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, "did not end within 0 ms; its worker was replaced");
    gp_team_get_info(f.team, &i);
    CHECK_INT(1, i.worker_deaths);
}

TEST(cancel_that_races_with_the_end_has_one_outcome_every_time)
{
    int canceled = 0, done = 0;
    gp_team_info i;

    REQUIRE(begin(&f, 2));
    const gp_function *nothing = function(&f, "nothing");

    for (int k = 0; k < 5000; k++) {
        gp_future *future = call(&f, (gp_parfeval_request){ .function = nothing });

        REQUIRE(future != NULL);
        for (int wait = 0; wait < k % 50; wait++)
            __asm__ volatile("" ::: "memory");
        gp_future_cancel(future);
        gp_status status = gp_future_result(future, NULL, NULL, &f.err);

        canceled += status == GP_ECANCELED;
        done += status == GP_OK;
        gp_future_free(future);
    }
    CHECK_INT(5000, canceled + done);
    gp_team_get_info(f.team, &i);
    CHECK_INT(5000, i.ended);
    CHECK_INT(0, i.waiting + i.running);
    CHECK_INT(0, i.worker_deaths);
}

TEST(canceling_the_team_ends_everything)
{
    gp_future *futures[200];

    REQUIRE(begin(&f, 2));
    const gp_function *sleeper = function(&f, "sleep_ms");

    for (int k = 0; k < 200; k++)
        futures[k] = nap(&f, sleeper, 1e9);
    gp_team_cancel(f.team);
    CHECK_STATUS(GP_OK, gp_futures_wait(futures, 200, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &f.err));
    for (int k = 0; k < 200; k++)
        CHECK_INT(GP_ECANCELED, info(futures[k]).status);
    gp_future *again = nap(&f, sleeper, 1);

    CHECK_STATUS(GP_OK, gp_future_wait(again, -1, &f.err));
}

/* ---- worker failures ---- */

TEST(killed_worker_loses_no_call_and_completes_none_twice)
{
    enum { COUNT = 200, MARKED = 20 }; /* MARKED calls have ended when the worker is killed */
    gp_future *futures[COUNT];
    uint32_t seen[COUNT] = { 0 }, number;
    pid_t pids[2];
    mark m = { .ms = 2 };
    gp_team_info i;

    REQUIRE(begin(&f, 2));
    const gp_function *marker = function(&f, "mark_file");

    snprintf(m.path, sizeof(m.path), "%s/marks", pools_root);
    REQUIRE(worker_pids(&f, pids, 2) == 2);
    for (uint32_t k = 0; k < COUNT; k++) {
        m.number = k;
        if (k == MARKED)
            snprintf(m.gate, sizeof(m.gate), "%s", in_root("go"));
        futures[k] =
            call(&f, (gp_parfeval_request){ .function = marker, .argument = &m, .bytes = sizeof(m) });
    }
    CHECK(await_bytes("marks", MARKED * sizeof(number)));
    kill(pids[0], SIGKILL);
    let_go("go");
    CHECK_STATUS(GP_OK, gp_futures_wait(futures, COUNT, GP_WAIT_ALL, -1, &f.err));
    for (uint32_t k = 0; k < COUNT; k++) {
        const void *data = NULL;
        size_t bytes = 0;

        CHECK_STATUS(GP_OK, gp_future_result(futures[k], &data, &bytes, &f.err));
        CHECK(bytes == sizeof(k) && memcmp(data, &k, sizeof(k)) == 0);
    }
    gp_team_get_info(f.team, &i);
    CHECK_INT(1, i.worker_deaths);
    CHECK(i.rerun <= 1);

    /* The mark is the last action of a call: a duplicate belongs to a call killed just before the
     * end. */
    int fd = open(m.path, O_RDONLY), twice = 0;

    while (read(fd, &number, sizeof(number)) == sizeof(number))
        if (number < COUNT)
            twice += seen[number]++ != 0;
    close(fd);
    for (uint32_t k = 0; k < COUNT; k++)
        CHECK(seen[k] >= 1);
    CHECK(twice <= 1);
}

static gp_status die(fixture *s, const gp_function *death, const char *how, uint32_t attempts)
{
    gp_future *future =
        call(s, (gp_parfeval_request){
                    .function = death, .argument = how, .bytes = strlen(how) + 1, .attempts = attempts });
    gp_status status = gp_future_result(future, NULL, NULL, &s->err);

    if (attempts != 0)
        CHECK_INT(attempts, info(future).attempts);
    gp_future_free(future);
    return status;
}

/* Wait until worker `index` (from 1) is leased and is another process than `old`. Return the new
 * pid; 0: timeout. */
static pid_t replaced(fixture *s, uint32_t index, pid_t old)
{
    int64_t deadline_ms = gp_now_ms() + POOLS_TIMEOUT_MS;

    for (pid_t pid = 0; gp_now_ms() < deadline_ms; gp_sleep_ms(2)) {
        gp_status_reply *reply = pools_settled(s->pool);

        if (reply != NULL && reply->workers[index - 1].lease != 0)
            pid = (pid_t)reply->workers[index - 1].slot.pid;
        gp_free(reply);
        if (pid != 0 && pid != old)
            return pid;
    }
    return 0;
}

TEST(worker_that_fails_before_it_is_linked_does_not_delay_other_calls)
{
    pid_t pids[2], second;
    int64_t begin_ms;

    REQUIRE(begin(&f, 2));
    const gp_function *nothing = function(&f, "nothing");

    REQUIRE(worker_pids(&f, pids, 2) == 2);
    kill(pids[1], SIGKILL);

    /* the team has not noticed yet: the next call links to this process */
    second = replaced(&f, 2, pids[1]);
    REQUIRE(second != 0);
    gp_sleep_ms(50); /* lets the grant reach the team's socket; otherwise the test proves nothing */

    /* A suspended scheduler reports neither the second failure nor the third process. */
    pid_t scheduler = (pid_t)f.pool->scheduler_pid;

    kill(scheduler, SIGSTOP);
    await_stopped(scheduler);
    kill(second, SIGKILL);
    while (process_alive(second))
        gp_sleep_ms(1);
    begin_ms = gp_now_ms();
    for (int k = 0; k < 3; k++) {
        gp_future *future = call(&f, (gp_parfeval_request){ .function = nothing, .worker = 1 });

        CHECK_STATUS(GP_OK, gp_future_result(future, NULL, NULL, &f.err));
        gp_future_free(future);
        gp_sleep_ms(20); /* the background thread polls too */
    }

    /* a blocking connect to an exited process takes the full 2 s */
    CHECK(gp_now_ms() - begin_ms < 2000);
    kill(scheduler, SIGCONT);
    gp_future *back = call(&f, (gp_parfeval_request){ .function = nothing, .worker = 2 });

    CHECK_STATUS(GP_OK, gp_future_result(back, NULL, NULL, &f.err));
}

TEST(exit_reasons_are_distinguished_and_name_the_log)
{
    REQUIRE(begin(&f, 2));
    const gp_function *death = function(&f, "die");

    CHECK_STATUS(GP_EPEER, die(&f, death, "segv", 1));
    CHECK_CONTAINS(f.err.message, "signal 11");
    CHECK_CONTAINS(f.err.message, "its log is ");
    CHECK_STATUS(GP_EPEER, die(&f, death, "exit", 1));
    CHECK_CONTAINS(f.err.message, "exited with code 3");
    CHECK_STATUS(GP_EPEER, die(&f, death, "abort", 1));
    CHECK_CONTAINS(f.err.message, "signal 6");
    CHECK_STATUS(GP_EPEER, die(&f, death, "kill", 1));
    CHECK_CONTAINS(f.err.message, "signal 9");
    CHECK(strstr(f.err.message, "memory ran out") == NULL);
    CHECK_STATUS(GP_EPEER, die(&f, death, "heap", 1));
}

TEST(call_that_kills_its_workers_fails_after_three_and_other_calls_continue)
{
    gp_future *futures[20];
    gp_team_info i;

    REQUIRE(begin(&f, 2));
    const gp_function *death = function(&f, "die"), *sleeper = function(&f, "sleep_ms");
    gp_future *poison =
        call(&f, (gp_parfeval_request){ .function = death, .argument = "abort", .bytes = sizeof("abort") });

    for (int k = 0; k < 20; k++)
        futures[k] = nap(&f, sleeper, 10);
    CHECK_STATUS(GP_EPEER, gp_future_result(poison, NULL, NULL, &f.err));
    CHECK_CONTAINS(f.err.message, "not retried");
    CHECK_INT(3, info(poison).attempts);
    CHECK_STATUS(GP_OK, gp_futures_wait(futures, 20, GP_WAIT_ALL, -1, &f.err));
    for (int k = 0; k < 20; k++)
        CHECK_INT(GP_OK, info(futures[k]).status);
    gp_team_get_info(f.team, &i);
    CHECK_INT(3, i.worker_deaths);
    CHECK_STATUS(GP_OK, die(&f, death, "once segv", 0));
}

TEST(large_payload_interrupted_by_a_kill_is_complete_on_retry)
{
    enum { BYTES = 64 * MIB };
    pid_t pids[2];
    uint64_t count = BYTES;
    gp_broadcast *shared;
    void *memory;

    REQUIRE(begin(&f, 2));
    const gp_function *large = function(&f, "large"), *sum = function(&f, "sum");

    REQUIRE_OK(gp_broadcast_map(&shared, &memory, BYTES, &f.err), f.err);
    memset(memory, 3, BYTES);
    for (int round = 0; round < 3; round++) {
        gp_future *down =
            call(&f, (gp_parfeval_request){ .function = large, .argument = &count, .bytes = sizeof(count) });
        gp_future *up = call(&f, (gp_parfeval_request){ .function = sum, .shared = shared });
        const void *data = NULL;
        size_t bytes = 0;

        if (round > 0 && worker_pids(&f, pids, 2) == 2)
            kill(pids[round - 1], SIGKILL);
        CHECK_STATUS(GP_OK, gp_future_result(down, &data, &bytes, &f.err));
        CHECK_INT(BYTES, bytes);
        CHECK(bytes == BYTES && ((const unsigned char *)data)[4096 * 77] == 77);
        CHECK_STATUS(GP_OK, gp_future_result(up, &data, &bytes, &f.err));
        CHECK(bytes == sizeof(uint64_t) && *(const uint64_t *)data == 3ull * BYTES);
        gp_future_free(down);
        gp_future_free(up);
    }
    gp_broadcast_free(shared);
}

/* ---- values, queues, log lines ---- */

TEST(values_stay_on_workers_and_reach_their_replacements)
{
    pid_t pids[2];
    void *data;
    size_t bytes;
    uint32_t elements[101];

    REQUIRE(begin(&f, 2));
    const gp_function *value_of = function(&f, "value_of");

    for (uint32_t k = 0; k < 101; k++)
        elements[k] = k * k;
    REQUIRE_OK(gp_team_put(f.team, GP_EVERY_WORKER, "greeting", "hello", 5, &f.err), f.err);
    REQUIRE_OK(gp_team_put(f.team, 2, "greeting", "servus", 6, &f.err), f.err);
    REQUIRE_OK(gp_team_scatter(f.team, "squares", elements, 101, sizeof(*elements), &f.err), f.err);
    REQUIRE(worker_pids(&f, pids, 2) == 2);
    for (int round = 0; round < 2; round++) {
        gp_future *future = call(
            &f,
            (gp_parfeval_request){ .function = value_of, .argument = "greeting", .bytes = 9, .worker = 2 });
        const void *seen = NULL;

        CHECK_STATUS(GP_OK, gp_future_result(future, &seen, &bytes, &f.err));
        CHECK(bytes == 6 && memcmp(seen, "servus", 6) == 0);
        gp_future_free(future);
        REQUIRE_OK(gp_team_get(f.team, 1, "greeting", &data, &bytes, &f.err), f.err);
        CHECK(bytes == 5 && memcmp(data, "hello", 5) == 0);
        gp_buffer_free(data);
        REQUIRE_OK(gp_team_gather(f.team, "squares", &data, &bytes, &f.err), f.err);
        CHECK(bytes == sizeof(elements) && memcmp(data, elements, bytes) == 0);
        gp_buffer_free(data);
        if (round == 0)
            kill(pids[1], SIGKILL);
    }
    REQUIRE_OK(gp_team_put(f.team, GP_EVERY_WORKER, "greeting", NULL, 0, &f.err), f.err);
    CHECK_STATUS(GP_ENOENT, gp_team_get(f.team, 1, "greeting", &data, &bytes, &f.err));
}

TEST(full_queue_blocks_the_sender_and_loses_nothing)
{
    gp_queue *queue;
    uint32_t n = 5000, worker;
    void *data;
    size_t bytes;

    REQUIRE(begin(&f, 1));
    REQUIRE_OK(gp_queue_open(&queue, f.team, "numbers", &(gp_queue_options){ .depth = 10 }, &f.err), f.err);
    CHECK_STATUS(GP_EINVAL, gp_queue_open(&queue, f.team, "numbers", NULL, &f.err));
    gp_future *future =
        call(&f, (gp_parfeval_request){
                     .function = function(&f, "count_into_queue"), .argument = &n, .bytes = sizeof(n) });

    for (uint32_t k = 1; k <= n; k++) {
        REQUIRE_OK(gp_queue_next(queue, &worker, &data, &bytes, POOLS_TIMEOUT_MS, &f.err), f.err);
        CHECK(bytes == sizeof(k) && memcmp(data, &k, sizeof(k)) == 0);
        CHECK_INT(1, worker);
        gp_buffer_free(data);
    }
    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &f.err));
    CHECK_STATUS(GP_ETIMEDOUT, gp_queue_next(queue, &worker, &data, &bytes, 10, &f.err));
    CHECK_INT(0, gp_queue_dropped(queue));
    gp_queue_close(queue);
}

static void count_item(void *context, uint32_t worker, const void *data, size_t bytes)
{
    (void)worker;
    *(uint32_t *)context += bytes == sizeof(uint32_t) && (uintptr_t)data % 16 == 0;
}

TEST(a_queue_that_keeps_the_newest_drops_the_oldest_and_counts_them)
{
    gp_queue *queue;
    static uint32_t items;
    uint32_t n = 100;
    void *data;
    size_t bytes;

    REQUIRE(begin(&f, 1));
    const gp_function *counter = function(&f, "count_into_queue");

    REQUIRE_OK(gp_queue_open(&queue, f.team, "numbers",
                             &(gp_queue_options){ .depth = 7, .keep_newest = true }, &f.err),
               f.err);
    gp_future *future =
        call(&f, (gp_parfeval_request){ .function = counter, .argument = &n, .bytes = sizeof(n) });

    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &f.err));
    for (uint32_t k = 94; k <= 100; k++) {
        REQUIRE_OK(gp_queue_next(queue, NULL, &data, &bytes, 0, &f.err), f.err);
        CHECK_INT(k, *(const uint32_t *)data);
        gp_buffer_free(data);
    }
    CHECK_INT(93, gp_queue_dropped(queue));
    gp_queue_close(queue);
    REQUIRE_OK(gp_queue_open(&queue, f.team, "numbers",
                             &(gp_queue_options){ .on_item = count_item, .context = &items }, &f.err),
               f.err);
    future = call(&f, (gp_parfeval_request){ .function = counter, .argument = &n, .bytes = sizeof(n) });
    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &f.err));
    CHECK_INT(100, items);
}

/* ---- parallel teams, exiting clients ---- */

static void keep_item_worker(void *context, uint32_t worker, const void *data, size_t bytes)
{
    (void)data;
    (void)bytes;
    *(uint32_t *)context = worker;
}

static void keep_line_worker(void *context, uint32_t worker, const char *line)
{
    (void)line;
    *(uint32_t *)context = worker;
}

/* Check that queue items are from worker 1 of the team, in gp_queue_next() and in the callback. */
static void check_queued_worker(fixture *s)
{
    const gp_function *counter = function(s, "count_into_queue");
    uint32_t count = 1, workers[2] = { 0 };
    gp_queue *queue;
    void *data;
    size_t bytes;

    for (int i = 0; i < 2; i++) {
        const gp_queue_options options = { .on_item = i == 0 ? NULL : keep_item_worker,
                                           .context = &workers[i] };

        REQUIRE_OK(gp_queue_open(&queue, s->team, "numbers", &options, &s->err), s->err);
        gp_future *future =
            call(s, (gp_parfeval_request){ .function = counter, .argument = &count, .bytes = sizeof(count) });

        CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &s->err));
        if (i == 0) {
            REQUIRE_OK(gp_queue_next(queue, &workers[i], &data, &bytes, 0, &s->err), s->err);
            gp_buffer_free(data);
        }
        gp_queue_close(queue);
        CHECK_INT(1, workers[i]);
    }
}

TEST(two_teams_work_in_parallel)
{
    static uint32_t line_worker;
    const gp_team_options one = { .lease = { .workers_min = 1, .workers_max = 1 },
                                  .log = keep_line_worker,
                                  .context = &line_worker };
    gp_team *other;
    gp_future *futures[2][50];

    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&f.pool, &(gp_pool_options){ .workers = 2 }, &f.err), f.err);
    REQUIRE_OK(gp_team_open(&f.team, f.pool, &one, &f.err), f.err);
    REQUIRE_OK(gp_team_open(&other, f.pool, &one, &f.err), f.err);
    fixture g = { .pool = f.pool, .team = other };
    const gp_function *a = function(&f, "sleep_ms"), *b = function(&g, "sleep_ms");

    for (int k = 0; k < 50; k++) {
        futures[0][k] = nap(&f, a, 1);
        futures[1][k] = nap(&g, b, 1);
    }
    CHECK_STATUS(GP_EINVAL, gp_parfeval(NULL, f.team, &(gp_parfeval_request){ .function = b }, &f.err));
    CHECK_STATUS(GP_OK, gp_futures_wait(futures[1], 50, GP_WAIT_ALL, -1, &f.err));
    CHECK_STATUS(GP_OK, gp_futures_wait(futures[0], 50, GP_WAIT_ALL, -1, &f.err));
    gp_future_info infos[] = { info(futures[0][0]), info(futures[1][0]) };

    CHECK_INT(1, infos[0].worker); /* each team numbers workers from 1 */
    CHECK_INT(1, infos[1].worker);
    CHECK_INT(3, infos[0].pool_worker + infos[1].pool_worker);

    /* The team with the pool's worker 2 sees the team's numbers in requests, infos, tasks, values,
     * queues, log lines and messages. */
    fixture *s = infos[0].pool_worker == 2 ? &f : &g;
    const void *data;
    size_t bytes;
    gp_future *same =
        call(s, (gp_parfeval_request){ .function = function(s, "who"), .worker = infos[1].worker });
    gp_future *bad = call(s, (gp_parfeval_request){ .function = function(s, "square") });
    void *value;

    CHECK_STATUS(GP_OK, gp_future_result(same, &data, &bytes, &s->err));
    CHECK_INT(1, *(const uint32_t *)data);
    CHECK_STATUS(GP_EINVAL, gp_future_result(bad, NULL, NULL, &s->err));
    CHECK_CONTAINS(s->err.message, "worker 1 (2 in the pool): the argument");
    CHECK_STATUS(GP_ENOENT, gp_team_get(s->team, 1, "nothing", &value, &bytes, &s->err));
    CHECK_TEXT("worker 1 (2 in the pool): no value \"nothing\"", s->err.message);
    check_queued_worker(s);
    gp_future *line = call(
        s, (gp_parfeval_request){ .function = function(s, "say"), .argument = "x", .bytes = sizeof("x") });

    CHECK_STATUS(GP_OK, gp_future_wait(line, -1, &s->err));
    CHECK_INT(1, line_worker);
    gp_future *dead = call(
        s, (gp_parfeval_request){
               .function = function(s, "die"), .argument = "exit", .bytes = sizeof("exit"), .attempts = 1 });

    CHECK_STATUS(GP_EPEER, gp_future_result(dead, NULL, NULL, &s->err));
    CHECK_CONTAINS(s->err.message, "worker 1 (2 in the pool, pid ");
    CHECK_STATUS(GP_EBUSY,
                 gp_team_open(&other, f.pool, &(gp_team_options){ .lease = { .no_wait = true } }, &f.err));
    gp_team_close(g.team);
}

TEST(closing_a_team_releases_running_workers)
{
    REQUIRE(begin(&f, 2));
    for (int k = 0; k < 10; k++)
        held(&f, function(&f, "sleep_deaf"), "begun", 0);
    CHECK_STATUS(GP_ETIMEDOUT, gp_team_as_completed(f.team, &(gp_future *){ NULL }, 30, &f.err));
    CHECK(await_bytes("begun", 2));
    gp_team_close(f.team);
    REQUIRE_OK(gp_team_open(&f.team, f.pool, NULL, &f.err), f.err);
    gp_future *future = call(&f, (gp_parfeval_request){ .function = function(&f, "nothing") });

    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &f.err));
}

/* The child has copies of the future that has ended and of the function that was found. */
static void use_in_child(gp_future *future)
{
    const gp_function *found = NULL;
    gp_future *ended = NULL;
    const void *data = NULL;
    size_t bytes;
    char path[700];
    gp_error err;

    snprintf(path, sizeof(path), "%s:nothing", in_build("tests/service/team_tasks.so"));
    CHECK_STATUS(GP_ESTATE, gp_team_as_completed(f.team, &ended, 0, &err));
    CHECK_CONTAINS(err.message, "is a fork");
    CHECK_STATUS(GP_ESTATE, gp_function_find(&found, f.team, path, &err));
    CHECK_CONTAINS(err.message, "is a fork");
    CHECK_STATUS(GP_ESTATE, gp_future_wait(future, 0, &err));
    CHECK_STATUS(GP_ESTATE, gp_future_result(future, &data, &bytes, &err));
    CHECK(found == NULL && ended == NULL && data == NULL);
}

TEST(a_forked_child_gets_no_future_and_no_function)
{
#ifdef __SANITIZE_ADDRESS__
    SKIP("AddressSanitizer's allocator may stay locked in the child of a process with threads");
#endif
    gp_future *ended = NULL;
    int status = -1;

    REQUIRE(begin(&f, 1));
    gp_future *future = call(&f, (gp_parfeval_request){ .function = function(&f, "nothing") });

    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &f.err));
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        use_in_child(future);
        fflush(stdout);
        _exit(gp_test_failures != 0);
    }
    waitpid(child, &status, 0);
    CHECK_INT(0, status);
    CHECK_STATUS(GP_OK, gp_team_as_completed(f.team, &ended, 0, &f.err));
    CHECK(ended == future);
}

/* Return the integers that a task without an argument returns. */
static bool integers_of(const char *name, int *out, size_t count)
{
    gp_future *future = call(&f, (gp_parfeval_request){ .function = function(&f, name) });
    const void *data = NULL;
    size_t bytes = 0;

    if (gp_future_result(future, &data, &bytes, &f.err) != GP_OK || bytes != count * sizeof(*out)) {
        GP_TEST_FAIL("%s: %s", name, f.err.message);
        return false;
    }
    memcpy(out, data, bytes);
    return true;
}

TEST(signals_end_the_programs_that_a_task_starts)
{
    int status[2];

    REQUIRE(begin(&f, 1));
    REQUIRE(integers_of("signal_programs", status, 2));
    CHECK(WIFSIGNALED(status[0]) && WTERMSIG(status[0]) == SIGTERM);
    CHECK(WIFSIGNALED(status[1]) && WTERMSIG(status[1]) == SIGPIPE);
}

TEST(a_signal_ends_a_forked_child_and_not_its_worker)
{
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer delays the signals of a forked child");
#endif
    int status, again;

    REQUIRE(begin(&f, 1));
    REQUIRE(integers_of("signal_child", &status, 1));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    REQUIRE(integers_of("signal_child", &again, 1)); /* by the same worker */
    CHECK_INT(1, f.team->workers[0].incarnation);
}

TEST(killed_client_frees_the_pool)
{
    int pipes[2], status;
    char byte;

    pools_begin(NULL);
    REQUIRE(pipe(pipes) == 0);
    pid_t child = fork();

    if (child == 0) {
        gp_error err;
        fixture g = { 0 };

        if (gp_pool_open(&g.pool, &(gp_pool_options){ .workers = 2 }, &err) != GP_OK ||
            gp_team_open(&g.team, g.pool, NULL, &err) != GP_OK)
            _exit(1);
        const gp_function *sleeper = function(&g, "sleep_ms");

        for (int k = 0; k < 100; k++)
            nap(&g, sleeper, 1e9);
        if (write(pipes[1], "x", 1) != 1)
            _exit(1);
        gp_future_wait(nap(&g, sleeper, 1e9), -1, &err);
        _exit(2);
    }
    close(pipes[1]);
    REQUIRE(read(pipes[0], &byte, 1) == 1);
    kill(child, SIGSTOP); /* a suspended client keeps the lease */
    gp_sleep_ms(300);     /* time for an erroneous release */
    REQUIRE_OK(gp_pool_open(&f.pool, &(gp_pool_options){ .attach_only = true }, &f.err), f.err);
    CHECK_STATUS(GP_EBUSY,
                 gp_team_open(&f.team, f.pool, &(gp_team_options){ .lease = { .no_wait = true } }, &f.err));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    REQUIRE_OK(gp_team_open(&f.team, f.pool, NULL, &f.err), f.err);
    CHECK_INT(2, gp_team_size(f.team));
    gp_future *future = call(&f, (gp_parfeval_request){ .function = function(&f, "nothing") });

    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &f.err));
    close(pipes[0]);
}

TEST(task_of_an_exited_client_is_killed_without_a_grace_period)
{
    int status;
    static char log[1 << 16];

    pools_begin(NULL);
    pid_t child = fork();

    if (child == 0) {
        gp_error err;
        fixture g = { 0 };

        if (gp_pool_open(&g.pool, &(gp_pool_options){ .workers = 1 }, &err) != GP_OK ||
            gp_team_open(&g.team, g.pool, NULL, &err) != GP_OK)
            _exit(1);
        gp_future_wait(held(&g, function(&g, "sleep_deaf"), "begun", 0), -1, &err);
        _exit(2);
    }
    CHECK(await_bytes("begun", 1));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    REQUIRE_OK(gp_pool_open(&f.pool, &(gp_pool_options){ .attach_only = true }, &f.err), f.err);
    REQUIRE_OK(gp_team_open(&f.team, f.pool, NULL, &f.err), f.err);
    slurp(f.team->pool->grant.slots[0].log, log, sizeof(log));
    CHECK_CONTAINS(log, "exiting: the client of the running task has exited");
}

static void count_end(void *context, gp_future *future)
{
    /* a running call may already have been notified */
    *(int *)context += info(future).status != GP_OK;
}

TEST(calls_continue_when_the_scheduler_is_killed)
{
    double ms = 300;
    static int ended;
    gp_team_info i;

    REQUIRE(begin(&f, 1));
    for (int k = 0; k < 4; k++)
        CHECK_STATUS(GP_OK, gp_parfeval(NULL, f.team,
                                        &(gp_parfeval_request){ .function = function(&f, "sleep_ms"),
                                                                .argument = &ms,
                                                                .bytes = sizeof(ms),
                                                                .done = count_end,
                                                                .context = &ended },
                                        &f.err));
    kill((pid_t)f.pool->scheduler_pid, SIGKILL);
    i = await_ended(4);
    CHECK_INT(4, i.ended);
    CHECK_INT(0, i.failed);
    CHECK_STATUS(GP_OK, gp_parfeval(NULL, f.team,
                                    &(gp_parfeval_request){ .function = function(&f, "sleep_ms"),
                                                            .argument = &(double){ 0 },
                                                            .bytes = sizeof(ms) },
                                    &f.err));
}

TEST(shutdown_of_the_pool_ends_every_call_without_library_calls)
{
    double ms = 1e9;
    static int ended;
    gp_team_info i;

    REQUIRE(begin(&f, 1));
    const gp_function *sleeper = function(&f, "sleep_ms");

    for (int k = 0; k < 5; k++)
        CHECK_STATUS(GP_OK, gp_parfeval(NULL, f.team,
                                        &(gp_parfeval_request){ .function = sleeper,
                                                                .argument = &ms,
                                                                .bytes = sizeof(ms),
                                                                .done = count_end,
                                                                .context = &ended },
                                        &f.err));
    CHECK_STATUS(GP_OK, gp_pool_shutdown(f.pool, false, &f.err));
    i = await_ended(5);
    CHECK_INT(5, i.ended);
    CHECK_INT(5, ended);
    CHECK_STATUS(GP_ECANCELED,
                 gp_parfeval(NULL, f.team, &(gp_parfeval_request){ .function = sleeper }, &f.err));
    CHECK_CONTAINS(f.err.message, "shutting down");
}

static volatile sig_atomic_t stop_flag;

static void remember_line(void *context, uint32_t worker, const char *line)
{
    snprintf(context, 100, "%u %s", worker, line);
}

TEST(task_log_reaches_the_callback_and_stop_ends_a_wait)
{
    static char line[100];

    stop_flag = 0;
    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&f.pool, &(gp_pool_options){ .workers = 1 }, &f.err), f.err);
    REQUIRE_OK(gp_team_open(&f.team, f.pool,
                            &(gp_team_options){ .log = remember_line, .context = line, .stop = &stop_flag },
                            &f.err),
               f.err);
    gp_future *future =
        call(&f, (gp_parfeval_request){
                     .function = function(&f, "say"), .argument = "a line", .bytes = sizeof("a line") });

    CHECK_STATUS(GP_OK, gp_future_wait(future, -1, &f.err));
    CHECK_TEXT("1 a line", line);
    gp_future *slow = nap(&f, function(&f, "sleep_ms"), 1e9);

    while (info(slow).state != GP_FUTURE_RUNNING)
        gp_sleep_ms(1);
    stop_flag = 1;
    CHECK_STATUS(GP_ECANCELED, gp_future_wait(slow, -1, &f.err));
    CHECK_INT(GP_FUTURE_RUNNING, info(slow).state);
}

TEST(waiting_calls_use_little_memory)
{
    enum { COUNT = 100000 };
    gp_team_info i;

    REQUIRE(begin(&f, 1));
    gp_future *slow = nap(&f, function(&f, "sleep_ms"), 1e9);
    const gp_function *square = function(&f, "square");
    double x = 1;

    for (int k = 0; k < COUNT; k++)
        REQUIRE_OK(
            gp_parfeval(NULL, f.team,
                        &(gp_parfeval_request){ .function = square, .argument = &x, .bytes = sizeof(x) },
                        &f.err),
            f.err);
    gp_team_get_info(f.team, &i);
    CHECK(i.waiting > COUNT - 2000);
    CHECK(i.queue_bytes / i.waiting <= 300);
    gp_team_cancel(f.team);
    CHECK_STATUS(GP_ECANCELED, gp_future_result(slow, NULL, NULL, &f.err));
    gp_team_get_info(f.team, &i);
    CHECK_INT(COUNT + 1, i.ended);
}
