/* test_adopt.c: the scheduler is killed or suspended repeatedly; workers, leases and clients
 * continue with the next one. */
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include "client/gradpool.h"
#include "tests/service/killer.h"
#include "tests/service/pools.h"

enum { TIMEOUT_MS = POOLS_TIMEOUT_MS, WORKERS = 2 };

static gp_pool *pool;
static gp_error err;
static pid_t workers[WORKERS];
static uint64_t epoch;

/* ---- the pool ---- */

static bool look(void)
{
    gp_status_reply *reply = pools_settled(pool);

    if (reply == NULL)
        return false;
    for (uint32_t i = 0; i < WORKERS; i++)
        workers[i] = i < reply->workers_count ? (pid_t)reply->workers[i].slot.pid : 0;
    epoch = reply->epoch;
    gp_free(reply);
    return true;
}

/* Start a pool. faults (may be NULL): GRADPOOL_FAULT for the workers. */
static bool begin(const char *faults)
{
    pools_begin(faults);
    pool = NULL;
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = WORKERS, .devices = "cpu" }, &err) == GP_OK &&
        look())
        return true;
    GP_TEST_FAIL("no pool: %s", err.message);
    return false;
}

static void end(void)
{
    gp_pool_close(pool);
    pool = NULL;
    if (gp_test_failures != 0 && shell("tail -n 60 state/*/default/log/*.log") != 0)
        printf("     no log\n");
    pools_end();
}

TEARDOWN()
{
    end();
}

/* Check that the same worker processes belong to a later scheduler. */
static void check_adopted(void)
{
    pid_t before[WORKERS];
    uint64_t older = epoch;

    memcpy(before, workers, sizeof(before));
    if (!look())
        return;
    CHECK(epoch > older);
    for (uint32_t i = 0; i < WORKERS; i++) {
        CHECK_INT(before[i], workers[i]);
        CHECK(process_alive(workers[i]));
    }
}

static bool await_end(pid_t pid)
{
    AWAIT(!process_alive(pid), 2);
    return !process_alive(pid);
}

static void kill_scheduler(void)
{
    pid_t pid = holder();

    if (pid > 0)
        kill(pid, SIGKILL);
    await_end(pid);
}

/* ---- idle ---- */

TEST(idle_workers_are_adopted_by_the_next_scheduler)
{
    gp_pool *next = NULL;
    uint32_t count = 0;

    REQUIRE(begin(NULL));
    kill_scheduler();
    REQUIRE_OK(gp_pool_open(&next, NULL, &err), err);
    REQUIRE_OK(pool_lease(next, &(gp_lease_request){ 0 }, "next", NULL, &err), err);

    /* size of the existing pool, not the default of the command */
    CHECK_INT(WORKERS, next->grant.slots_count);
    pool_release(next);

    /* the earlier handle finds the new scheduler too */
    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
    CHECK_INT(WORKERS, count);
    CHECK_INT(next->scheduler_pid, pool->scheduler_pid);
    check_adopted();
    gp_pool_close(next);
}

TEST(opening_a_team_starts_the_next_scheduler_only_if_the_pool_was_not_shut_down)
{
    gp_team *team = NULL;

    REQUIRE(begin(NULL));
    kill_scheduler();
    REQUIRE_OK(gp_team_open(&team, pool, NULL, &err), err);
    gp_team_close(team);
    check_adopted();
    REQUIRE_OK(gp_pool_shutdown(pool, false, &err), err);
    CHECK_STATUS(GP_OK, pool_wait_gone(pool, TIMEOUT_MS, &err));
    CHECK_STATUS(GP_ENOPOOL, gp_team_open(&team, pool, NULL, &err));
}

static int count_in_log(const char *of, const char *event)
{
    return WEXITSTATUS(shell("exit $(cat state/*/default/log/%s.log | grep -c 'event=%s ')", of, event));
}

/* The next scheduler listens, connects to one worker and is suspended. The other worker finds it by
 * itself meanwhile. */
TEST(connected_worker_does_not_redial_when_the_scheduler_calls)
{
    char reported[80] = "";
    int stopped;

    REQUIRE(begin(NULL));
    setenv("GRADPOOL_FAULT_REPORT", in_root("told"), 1);
    setenv("GRADPOOL_FAULT", "adopting:1:stop", 1);
    gp_pool_close(pool); /* a process with an open pool must not fork */
    pool = NULL;
    kill_scheduler();
    pid_t starter = fork();

    if (starter == 0) {
        gp_pool *own;
        gp_status status =
            gp_pool_open(&own, &(gp_pool_options){ .workers = WORKERS, .devices = "cpu" }, NULL);

        _exit(status == GP_OK ? 0 : 1);
    }
    AWAIT((slurp(in_root("told"), reported, sizeof(reported)), strchr(reported, '\n') != NULL), 5);
    stopped = atoi(reported);
    unsetenv("GRADPOOL_FAULT");
    unsetenv("GRADPOOL_FAULT_REPORT");
    REQUIRE(stopped > 0 && await_stopped(stopped));
    gp_sleep_ms(400); /* the other worker mostly waits at the control socket by now */
    kill(stopped, SIGCONT);

    CHECK_INT(0, child_exit_code(starter));
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &err), err);
    check_adopted();
    CHECK_INT(1, count_in_log("worker-1", "scheduler-found"));
    CHECK_INT(1, count_in_log("worker-2", "scheduler-found"));
    CHECK_INT(2, count_in_log("scheduler", "worker-adopted"));
}

TEST(open_handle_starts_the_next_scheduler)
{
    uint32_t count = 0;

    REQUIRE(begin(NULL));
    for (int i = 0; i < 3; i++) {
        kill_scheduler();
        REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
        CHECK_INT(WORKERS, count);
        check_adopted();
    }
    CHECK_INT(3, pool->reunions);
}

static void *attach(void *context)
{
    gp_error *result = context;
    gp_pool *reader = NULL;

    result->code = gp_pool_open(&reader, &(gp_pool_options){ .attach_only = true }, result);
    gp_pool_close(reader);
    return NULL;
}

TEST(read_only_command_waits_for_the_next_scheduler)
{
    gp_error result;
    pthread_t reader;
    uint32_t count = 0;
    gp_pool *other = NULL;

    REQUIRE(begin(NULL));
    kill_scheduler();
    REQUIRE(pthread_create(&reader, NULL, attach, &result) == 0);
    gp_sleep_ms(100); /* the reader polls meanwhile and must keep waiting */
    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
    pthread_join(reader, NULL);
    CHECK_STATUS(GP_OK, result.code);
    check_adopted();

    /* Without workers there is no pool to wait for. */
    kill_scheduler();
    for (int i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGKILL);
        CHECK(await_end(workers[i]));
    }
    CHECK_STATUS(GP_ENOPOOL, gp_pool_open(&other, &(gp_pool_options){ .attach_only = true }, &err));
    CHECK_CONTAINS(err.message, "no pool is running");
    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
}

TEST(scheduler_that_exits_during_connect_is_reported_as_no_pool)
{
    gp_error result;
    pthread_t reader;

    REQUIRE(begin(NULL));
    kill(holder(), SIGSTOP); /* accepts connections and never answers */
    for (int i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGKILL);
        await_end(workers[i]);
    }
    REQUIRE(pthread_create(&reader, NULL, attach, &result) == 0);
    gp_sleep_ms(100);
    kill_scheduler();
    pthread_join(reader, NULL);
    CHECK_STATUS(GP_ENOPOOL, result.code);
    CHECK_CONTAINS(result.message, "no pool is running: the scheduler of pool default has just exited");
}

TEST(clients_of_a_stopped_pool_do_not_restart_it)
{
    gp_pool *other = NULL;
    uint32_t count;

    REQUIRE(begin(NULL));
    REQUIRE_OK(gp_pool_open(&other, NULL, &err), err);
    REQUIRE_OK(gp_pool_shutdown(other, false, &err), err);
    CHECK_STATUS(GP_OK, pool_wait_gone(other, TIMEOUT_MS, &err));
    CHECK_STATUS(GP_EPEER, gp_pool_workers(pool, &count, &err));
    CHECK_CONTAINS(err.message, ") exited; its log is");
    CHECK_CONTAINS(err.message, "scheduler.log");
    CHECK_STATUS(GP_ENOPOOL,
                 gp_pool_open(&(gp_pool *){ NULL }, &(gp_pool_options){ .attach_only = true }, &err));
    gp_pool_close(other);
}

TEST(workers_that_failed_with_the_scheduler_are_replaced)
{
    uint32_t count = 0;

    REQUIRE(begin(NULL));
    kill_scheduler();
    kill(workers[1], SIGKILL);
    await_end(workers[1]);
    pid_t first = workers[0], second = workers[1];

    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
    REQUIRE(look());
    CHECK_INT(first, workers[0]);
    CHECK(workers[1] != second && process_alive(workers[1]));
}

TEST(failed_adopted_worker_is_detected_and_replaced)
{
    uint32_t count = 0;

    REQUIRE(begin(NULL));
    kill_scheduler();
    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
    check_adopted();
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "hold", NULL, &err), err);
    kill(workers[0], SIGKILL);
    for (int64_t until = gp_now_ms() + TIMEOUT_MS; !pool->regranted && gp_now_ms() < until;) {
        pool_message in;

        REQUIRE_OK(pool_next(pool, &in, 100, &err), err);
        pool_message_close(&in);
    }
    CHECK(pool->regranted);
    CHECK_INT(1, pool->lost.index);
    CHECK_INT(-1, pool->lost.signal);
    CHECK_CONTAINS(pool->lost.cause, "exited (exit status unknown)");
}

/* ---- trainings ---- */

static const char *const long_enough[] = { "max-epochs=30", "mini-batch-size=64", "initial-learn-rate=0.02",
                                           "seed=5", NULL };

/* Kill of the scheduler at a step that is certainly before the end of the training; more kills may
 * follow. */
typedef struct death {
    uint64_t at_step;
    scheduler_killer *others; /* NULL: none */
    bool done;
} death;

static void die_at_step(void *context, const gp_train_step *step)
{
    death *d = context;

    if (d->done || step->rank != 0 || step->step < d->at_step)
        return;
    kill_scheduler();
    d->done = true;
    if (d->others != NULL)
        killer_start(d->others);
}

static bool train(gp_training_summary *summary, char *model, const char *name, death *dying)
{
    gp_training *training = NULL;
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:2000",
                                 .options = long_enough,
                                 .events = { .step = dying != NULL ? die_at_step : NULL, .context = dying } };
    bool done = gp_train(&training, pool, &request, &err) == GP_OK;

    snprintf(model, 100, "%s/%s.onnx", pools_root, name);
    if (done) {
        gp_training_summarize(training, summary);
        done = gp_training_save(training, model, &err) == GP_OK;
    }
    if (!done)
        GP_TEST_FAIL("training: %s", err.message);
    gp_training_free(training);
    return done;
}

/* Result of an undisturbed training, equal in each run; bytes 0: not computed yet. */
typedef struct ending {
    gp_training_summary summary;
    size_t bytes;
    char model[1 << 20];
} ending;

static bool model_read(ending *to, const char *path)
{
    to->bytes = slurp(path, to->model, sizeof(to->model));
    return to->bytes != 0 && to->bytes != sizeof(to->model) - 1;
}

static bool same_model(const ending *plain, const char *path)
{
    static ending other;

    return model_read(&other, path) && plain->bytes == other.bytes &&
           memcmp(plain->model, other.model, other.bytes) == 0;
}

/* Check that killing the scheduler at that step, and later ones repeatedly, gives a bitwise
 * identical model. */
static void check_undisturbed(uint64_t at_step, int every_ms, int times)
{
    static ending plain;
    gp_training_summary killed;
    char one[100], other[100];
    scheduler_killer k = { .first_ms = every_ms, .every_ms = every_ms, .times = times };
    death dying = { .at_step = at_step, .others = times > 0 ? &k : NULL };

    REQUIRE(begin(NULL));
    if (plain.bytes == 0)
        REQUIRE(train(&plain.summary, one, "plain", NULL) && model_read(&plain, one));
    bool done = train(&killed, other, "killed", &dying);

    CHECK(dying.done);
    if (dying.done && times > 0)
        killer_join(&k);
    if (done) {
        CHECK_INT(plain.summary.steps, killed.steps);
        CHECK_NEAR(plain.summary.loss, killed.loss, 0);
        CHECK(same_model(&plain, other));
    }
    check_adopted();
    end();
}

TEST(training_continues_when_its_scheduler_is_killed)
{
    check_undisturbed(200, 0, 0);
}

TEST(training_continues_when_schedulers_are_killed_repeatedly)
{
    check_undisturbed(5, 150, 7);
}

TEST(training_survives_schedulers_killed_while_they_start)
{
    check_undisturbed(100, 1, 5); /* mostly during adoption */
}

/* Kill of the scheduler in one step, and later of a hanging worker that the next scheduler
 * adopted. */
typedef struct later_death {
    pthread_t thread;
    pid_t worker;
    atomic_bool over, done;
} later_death;

static void *kill_adopted(void *context)
{
    later_death *d = context;

    while (!d->over && __atomic_load_n(&pool->reunions, __ATOMIC_RELAXED) == 0)
        gp_sleep_ms(2);
    d->done = !d->over && kill(d->worker, SIGKILL) == 0;
    return NULL;
}

static bool train_watched(gp_training_summary *summary, char *model, bool dies, uint32_t count)
{
    static const char *const options[] = { "max-epochs=8", "mini-batch-size=64", "seed=5",
                                           "reproducible=true", NULL };
    gp_training *training = NULL;
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:2000",
                                 .options = options,
                                 .lease = { .workers_min = count, .workers_max = count } };
    later_death later = { .worker = workers[0] };
    death dying = { .at_step = 3 };

    snprintf(model, 100, "%s/%s-%u.onnx", pools_root, dies ? "killed" : "plain", count);
    if (dies) {
        request.events = (gp_train_events){ .step = die_at_step, .context = &dying };
        if (pthread_create(&later.thread, NULL, kill_adopted, &later) != 0)
            abort();
    }
    bool done = gp_train(&training, pool, &request, &err) == GP_OK &&
                gp_training_save(training, model, &err) == GP_OK;

    if (done)
        gp_training_summarize(training, summary);
    else
        GP_TEST_FAIL("training on %u: %s", count, err.message);
    gp_training_free(training);
    if (dies) {
        later.over = true;
        pthread_join(later.thread, NULL);
        CHECK(later.done);
    }
    return done;
}

TEST(training_continues_when_an_adopted_worker_fails)
{
    static ending plain;
    gp_training_summary killed;
    char one[100], other[100];

    for (uint32_t count = 1; count <= 2; count++) {
        REQUIRE(begin("forward:20:hang@1.1")); /* prevents an end before the adoption */
        bool done = train_watched(&killed, other, true, count) && look();

        if (done && plain.bytes == 0)
            done = train_watched(&plain.summary, one, false, 2) && model_read(&plain, one);
        if (done) {
            CHECK_INT(1, killed.restarts);
            CHECK_INT(plain.summary.steps, killed.steps);
            CHECK(same_model(&plain, other));
        }
        end();
    }
}

/* ---- leases and their clients ---- */

static bool hear(const bool *what)
{
    for (int64_t until = gp_now_ms() + TIMEOUT_MS; !*what && gp_now_ms() < until;) {
        pool_message in;
        gp_status status = pool_next(pool, &in, 50, &err);

        if (status != GP_OK) {
            GP_TEST_FAIL("%s", err.message);
            return false;
        }
        pool_message_close(&in);
    }
    return *what;
}

TEST(lease_keeps_its_generation_and_blocks_others)
{
    gp_pool *other = NULL;
    uint32_t count;

    REQUIRE(begin(NULL));
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "hold", NULL, &err), err);
    uint64_t lease = pool->lease;

    kill_scheduler();
    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
    REQUIRE_OK(gp_pool_open(&other, NULL, &err), err);
    CHECK_STATUS(GP_EBUSY, pool_lease(other, &(gp_lease_request){ .no_wait = true }, "x", NULL, &err));
    CHECK_CONTAINS(err.message, "hold");
    CHECK(!pool->revoked && !pool->regranted);
    CHECK_INT(lease, pool->lease);
    CHECK_INT(1, pool->generation);
    pool_release(pool);
    REQUIRE_OK(pool_lease(other, &(gp_lease_request){ 0 }, "x", NULL, &err), err);
    CHECK(other->lease != lease);
    check_adopted();
    gp_pool_close(other);
}

TEST(lease_with_a_failed_member_is_granted_again)
{
    uint32_t count;

    REQUIRE(begin(NULL));
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "hold", NULL, &err), err);
    kill_scheduler();
    kill(workers[0], SIGKILL);
    await_end(workers[0]);
    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
    CHECK(hear(&pool->regranted));
    CHECK_INT(1, pool->lost.index);
    CHECK_CONTAINS(pool->lost.cause, "exit status unknown");
    REQUIRE_OK(pool_attach(pool, NULL, &err), err);
    CHECK_INT(workers[1], pool->grant.slots[1].pid);
    CHECK(pool->generation > 1);
}

/* Fork a child that takes the lease and waits forever; call before this process opens a pool. */
static pid_t child_holds(int *reported)
{
    int ready[2];
    char byte = 1;

    if (pipe(ready) != 0)
        abort();
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        gp_pool *own;
        gp_status status =
            gp_pool_open(&own, &(gp_pool_options){ .workers = WORKERS, .devices = "cpu" }, &err);

        if (status == GP_OK)
            status = pool_lease(own, &(gp_lease_request){ 0 }, "hold", NULL, &err);
        byte = (char)status;
        if (write(ready[1], &byte, 1) != 1 || status != GP_OK)
            _exit(1);
        for (;;) {
            pool_message in;

            status = pool_next(own, &in, 100, &err);
            if (status == GP_OK)
                pool_message_close(&in);
            if (status == GP_OK && !own->revoked)
                continue;
            byte = own->revoked ? 'r' : 'e';
            _exit(write(ready[1], &byte, 1) != 1);
        }
    }
    if (read(ready[0], &byte, 1) != 1 || byte != GP_OK)
        GP_TEST_FAIL("the child has no lease (%d)", byte);
    close(ready[1]);
    *reported = ready[0];
    return child;
}

static bool open_again(void)
{
    if (gp_pool_open(&pool, NULL, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no pool: %s", err.message);
    return false;
}

/* Return the time since the start of the scheduler; 0: unknown. */
static uint64_t uptime_ms(void)
{
    gp_status_reply *reply;
    uint64_t ms = 0;

    if (pool_status(pool, &reply, &err) == GP_OK) {
        ms = reply->uptime_ms;
        gp_free(reply);
    }
    return ms;
}

/* A client suspended during the scheduler failure keeps the lease until it exits, however late it
 * resumes. */
TEST(suspended_client_keeps_its_lease_when_the_scheduler_is_replaced)
{
    int reported;

    pools_begin(NULL);
    pid_t child = child_holds(&reported);

    kill(child, SIGSTOP);
    kill_scheduler();
    REQUIRE(open_again());
    AWAIT(uptime_ms() > 2500, 100); /* the adoption period is over */
    CHECK(uptime_ms() > 2500);
    CHECK_STATUS(GP_EBUSY, pool_lease(pool, &(gp_lease_request){ .no_wait = true }, "next", NULL, &err));
    CHECK_CONTAINS(err.message, "not reconnected");
    kill(child, SIGCONT);
    AWAIT(pools_leases(pool) == 1, 20);
    CHECK_STATUS(GP_EBUSY, pool_lease(pool, &(gp_lease_request){ .no_wait = true }, "next", NULL, &err));
    CHECK_CONTAINS(err.message, "hold"); /* the child has claimed the lease */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "next", NULL, &err), err);
    CHECK_INT(WORKERS, pool->grant.slots_count);
    close(reported);
}

/* The client process keeps running but does not use the pool again. */
TEST(lease_released_without_a_scheduler_is_free)
{
    gp_pool *other = NULL;

    REQUIRE(begin(NULL));
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "hold", NULL, &err), err);
    kill_scheduler();
    pool_release(pool);
    CHECK_INT(0, pool->lease);
    REQUIRE_OK(gp_pool_open(&other, NULL, &err), err);
    int64_t until = gp_now_ms() + TIMEOUT_MS; /* the workers must finish first */
    gp_status status;

    do
        status = pool_lease(other, &(gp_lease_request){ .no_wait = true }, "next", NULL, &err);
    while (status == GP_EBUSY && gp_now_ms() < until);
    CHECK_STATUS(GP_OK, status);
    CHECK_INT(WORKERS, other->grant.slots_count);
    check_adopted();
    gp_pool_close(other);
}

/* The scheduler exits after it has confirmed the release, before the suspended workers have read
 * the revoke. The client process keeps running. */
TEST(lease_of_a_closed_team_is_free_although_its_workers_were_not_notified)
{
    gp_pool *other = NULL;
    gp_team *team = NULL;

    REQUIRE(begin(NULL));
    REQUIRE_OK(gp_team_open(&team, pool, NULL, &err), err);
    for (uint32_t i = 0; i < WORKERS; i++)
        kill(workers[i], SIGSTOP);
    gp_team_close(team);
    kill_scheduler();
    for (uint32_t i = 0; i < WORKERS; i++)
        kill(workers[i], SIGCONT);
    REQUIRE_OK(gp_pool_open(&other, NULL, &err), err);
    REQUIRE_OK(pool_lease(other, &(gp_lease_request){ 0 }, "next", NULL, &err), err);
    CHECK_INT(WORKERS, other->grant.slots_count);
    gp_pool_close(other);
}

TEST(client_that_exits_before_claiming_its_lease_frees_it)
{
    int reported;

    pools_begin(NULL);
    pid_t child = child_holds(&reported);

    kill(child, SIGSTOP);
    kill_scheduler();
    REQUIRE(open_again());
    CHECK_STATUS(GP_EBUSY, pool_lease(pool, &(gp_lease_request){ .no_wait = true }, "next", NULL, &err));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "next", NULL, &err), err);
    CHECK_INT(WORKERS, pool->grant.slots_count);
    close(reported);
}

TEST(workers_without_client_and_scheduler_exit)
{
    int reported;

    pools_begin(NULL);
    pid_t child = child_holds(&reported);

    REQUIRE(open_again());
    REQUIRE(look());
    gp_pool_close(pool);
    kill(child, SIGSTOP); /* otherwise it would start the next scheduler */
    kill_scheduler();
    gp_sleep_ms(5500);

    /* a suspended client keeps the lease */
    CHECK(process_alive(workers[0]) && process_alive(workers[1]));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(await_end(workers[0]) && await_end(workers[1]));
    close(reported);
    REQUIRE(open_again());
}

/* ---- a scheduler that was only suspended ---- */

TEST(resumed_old_scheduler_leaves_the_pool_alone)
{
    gp_training_summary summary;
    gp_pool *next = NULL;
    char model[100];

    REQUIRE(begin(NULL));
    pid_t stale = holder();

    kill(stale, SIGSTOP);

    /* simulates a cleaner of /tmp; the starter below finds the lock free */
    CHECK(unlink(in_root("run/default/lock")) == 0);
    CHECK(unlink(in_root("run/default/scheduler.door")) == 0);
    REQUIRE_OK(gp_pool_open(&next, NULL, &err), err);
    CHECK(next->epoch > epoch);
    gp_pool *before = pool;

    pool = next;
    check_adopted(); /* workers belong to the new scheduler */
    kill(stale, SIGCONT);
    CHECK(await_end(stale));
    CHECK(process_alive(workers[0]) && process_alive(workers[1]));
    CHECK(train(&summary, model, "after", NULL));
    CHECK_INT((int)next->scheduler_pid, holder());
    gp_pool_close(before);
}

/* ---- environment of a restarted scheduler ---- */

/* Return the rest of the line with that prefix in /proc/PID/FILE; "": none. */
static void proc_line(pid_t pid, const char *name, const char *start, char *value, size_t bytes)
{
    char path[60], text[1 << 14];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    slurp(path, text, sizeof(text));
    const char *line = strstr(text, start);

    while (line != NULL && line != text && line[-1] != '\n')
        line = strstr(line + 1, start);
    line = line == NULL ? "" : line + strlen(start);
    snprintf(value, bytes, "%.*s", (int)strcspn(line, "\n"), line);
}

static bool has_variable(pid_t pid, const char *assignment)
{
    static char text[1 << 17];
    char path[40];
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    size_t got = slurp(path, text, sizeof(text));

    for (size_t at = 0; at < got && !found; at += strlen(text + at) + 1)
        found = strcmp(text + at, assignment) == 0;
    return found;
}

static int highest_descriptor_to(pid_t pid, const char *target)
{
    char path[60], link[300];
    int found = -1;

    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t got = readlink(path, link, sizeof(link) - 1);

        link[got > 0 ? got : 0] = '\0';
        if (strcmp(link, target) == 0)
            found = fd;
    }
    return found;
}

/* Set every inherited process attribute to an unusual value. */
static void be_odd(void)
{
    cpu_set_t one;
    sigset_t all;
    int core = 0;

    sched_getaffinity(0, sizeof(one), &one);
    while (!CPU_ISSET((size_t)core, &one))
        core++;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    setpriority(PRIO_PROCESS, 0, 7);
    setrlimit(RLIMIT_STACK, &(struct rlimit){ 1 << 20, RLIM_INFINITY });
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    umask(0);
    setenv("OMP_NUM_THREADS", "17", 1);
    setenv("ODD", "one", 1);
    if (chdir(pools_root) != 0 || dup2(open("/dev/zero", O_RDONLY), 77) != 77)
        _exit(9);
}

/* Kill the scheduler and start the next one from a process with unusual attributes. Forked before a
 * pool is open. */
static pid_t child_odd(int *go)
{
    int ends[2];
    char byte;

    if (pipe(ends) != 0)
        abort();
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        gp_pool *own;

        close(ends[1]);
        if (read(ends[0], &byte, 1) != 1)
            _exit(8);
        be_odd();
        gp_status status = gp_pool_open(&own, NULL, &err);

        if (status == GP_OK)
            gp_pool_close(own);
        _exit((int)status);
    }
    close(ends[0]);
    *go = ends[1];
    return child;
}

static void check_same_line(pid_t first, pid_t next, const char *file, const char *start)
{
    char was[300], is[300];

    proc_line(first, file, start, was, sizeof(was));
    proc_line(next, file, start, is, sizeof(is));
    CHECK(was[0] != '\0');
    if (strcmp(was, is) != 0)
        GP_TEST_FAIL("%s of pid %d is \"%s\", it was \"%s\"", start, (int)next, is, was);
}

static void check_process(pid_t first, pid_t next)
{
    static const char *const lines[][2] = {
        { "status", "SigBlk:" },
        { "status", "SigIgn:" },
        { "status", "Umask:" },
        { "status", "SigCgt:" },
        { "status", "Cpus_allowed_list:" },
        { "limits", "Max stack size" },
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        check_same_line(first, next, lines[i][0], lines[i][1]);
    if (geteuid() == 0) /* other users cannot lower the nice value again */
        CHECK_INT(getpriority(PRIO_PROCESS, (id_t)first), getpriority(PRIO_PROCESS, (id_t)next));
    CHECK_INT(-1, highest_descriptor_to(next, "/dev/zero"));
    CHECK_INT(getsid(next), getsid(next) == getsid(0) ? -1 : getsid(next));
}

TEST(next_scheduler_has_the_environment_of_the_first_not_of_its_starter)
{
    char path[60], folder[300];
    uint32_t count;
    int go, state;

    pools_begin(NULL);
    pid_t child = child_odd(&go);

    /* The adopted processes are inspected before they exit; a pool that is never killed is the
     * reference. */
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = WORKERS, .devices = "cpu" }, &err), err);
    REQUIRE(look());
    pid_t adopted = workers[0], replaced = workers[1];
    gp_pool *first = NULL;

    setenv("GRADPOOL_POOL", "measure", 1); /* another pool, started the same way */
    REQUIRE_OK(gp_pool_open(&first, &(gp_pool_options){ .workers = WORKERS, .devices = "cpu" }, &err), err);
    setenv("GRADPOOL_POOL", "default", 1);
    gp_status_reply *reply = pools_settled(first);

    REQUIRE(reply != NULL && reply->workers_count == WORKERS);
    pid_t measure = (pid_t)first->scheduler_pid, measure_worker = (pid_t)reply->workers[1].slot.pid;

    gp_free(reply);

    kill_scheduler();
    CHECK(write(go, "", 1) == 1);
    CHECK(waitpid(child, &state, 0) == child && WIFEXITED(state));
    CHECK_INT(0, WEXITSTATUS(state));
    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
    CHECK_INT(1, pool->reunions);
    check_process(measure, (pid_t)pool->scheduler_pid);
    snprintf(path, sizeof(path), "/proc/%d/cwd", (int)pool->scheduler_pid);
    folder[readlink(path, folder, sizeof(folder) - 1)] = '\0';
    CHECK_TEXT("/", folder);
    kill(replaced, SIGKILL); /* detected, although the starter ignored SIGCHLD */
    await_end(replaced);
    AWAIT(!look() || workers[1] != replaced, 5); /* the scheduler detects it asynchronously */
    CHECK_INT(adopted, workers[0]);
    CHECK(workers[1] != replaced && process_alive(workers[1]));
    check_process(measure_worker, workers[1]);
    CHECK(!has_variable(workers[1], "OMP_NUM_THREADS=17"));
    CHECK(has_variable(workers[1], "ODD=one")); /* unknown to the daemons */
    REQUIRE_OK(gp_pool_shutdown(first, false, &err), err);
    CHECK_STATUS(GP_OK, pool_wait_gone(first, TIMEOUT_MS, &err));
    gp_pool_close(first);
    close(go);
}
