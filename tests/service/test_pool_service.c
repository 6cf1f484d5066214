/* test_pool_service.c: start and shutdown of pools: real daemons, sockets and signals. */
#include <pthread.h>
#include <sys/file.h>

#include "tests/service/pools.h"

TEARDOWN()
{
    pools_end();
}

TEST(open_starts_a_pool_and_the_next_open_attaches_to_it)
{
    gp_pool *first = NULL, *second = NULL;
    gp_error err;
    uint32_t count = 0;

    pools_begin(NULL);
    CHECK_STATUS(GP_ENOPOOL, gp_pool_open(&first, &(gp_pool_options){ .attach_only = true }, &err));
    REQUIRE_OK(gp_pool_open(&first, &(gp_pool_options){ .workers = 3 }, &err), err);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 &&
          errno == ECHILD); /* the scheduler is not a child of this process */
    REQUIRE_OK(gp_pool_open(&second, NULL, &err), err);
    CHECK_INT(first->scheduler_pid, second->scheduler_pid);
    gp_free(pools_settled(first));
    REQUIRE_OK(gp_pool_workers(second, &count, &err), err);
    CHECK_INT(3, count);
    gp_pool_close(first);
    gp_pool_close(second);
}

/* In the child, every call fails at once, and closing does not disturb the parent. */
static void use_in_child(gp_pool *pool, gp_team *team)
{
    gp_pool *own = NULL;
    gp_team *second = NULL;
    gp_error err;
    uint32_t count;
    int64_t began = gp_now_ms();

    CHECK_STATUS(GP_ESTATE, gp_pool_workers(pool, &count, &err));
    CHECK_CONTAINS(err.message, "is a fork of the process that opened this pool");
    CHECK_STATUS(GP_ESTATE, gp_pool_open(&own, NULL, &err));
    CHECK_CONTAINS(err.message, "open pools after fork()");
    CHECK_STATUS(GP_ESTATE, gp_team_open(&second, pool, NULL, &err));
    CHECK_STATUS(GP_ESTATE, gp_team_put(team, 1, "x", "y", 1, &err));
    CHECK_CONTAINS(err.message, "is a fork");
    gp_team_cancel(team);
    gp_team_close(team);
    gp_pool_close(pool);

    /* gp_pool_open() used to wait 15 s for a thread that does not exist in the child */
    CHECK(gp_now_ms() - began < 10000);
}

TEST(a_forked_child_is_refused_and_its_parent_continues)
{
#ifdef __SANITIZE_ADDRESS__
    SKIP("AddressSanitizer's allocator may stay locked in the child of a process with threads");
#endif
    gp_pool *pool = NULL;
    gp_team *team = NULL;
    gp_error err;
    uint32_t count = 0;
    int state = -1;

    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = 2 }, &err), err);
    REQUIRE_OK(gp_team_open(&team, pool, &(gp_team_options){ .lease.workers_max = 1 }, &err), err);
    REQUIRE_OK(gp_team_put(team, 1, "x", "1", 1, &err), err);
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        use_in_child(pool, team);
        fflush(stdout);
        _exit(gp_test_failures != 0);
    }
    waitpid(child, &state, 0);
    CHECK_INT(0, state);
    REQUIRE_OK(gp_team_put(team, 1, "x", "2", 1, &err), err);
    REQUIRE_OK(gp_pool_workers(pool, &count, &err), err);
    CHECK_INT(2, count);
    gp_team_close(team);
    gp_pool_close(pool);
}

TEST(workers_split_the_cores_and_share_them_if_too_many)
{
    gp_pool *pool = NULL;
    gp_error err;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = (uint32_t)cores + 1 }, &err), err);
    gp_status_reply *reply = pools_settled(pool);

    REQUIRE(reply != NULL);
    for (uint32_t i = 0; i < reply->workers_count; i++) {
        CHECK_INT(i + 1, reply->workers[i].slot.index);
        CHECK(reply->workers[i].slot.shared);
        CHECK_INT(GP_WORKER_IDLE, reply->workers[i].state);
    }
    gp_free(reply);
    REQUIRE_OK(gp_pool_resize(pool, 1, NULL, &err), err);
    reply = pools_settled(pool);
    REQUIRE(reply != NULL);
    CHECK_INT(1, reply->workers_count);
    CHECK(!reply->workers[0].slot.shared);
    gp_free(reply);
    gp_pool_close(pool);
}

typedef struct notes {
    int count;
    char last[512];
    volatile sig_atomic_t stop;
} notes;

static void take_note(void *context, const char *sentence)
{
    notes *n = context;

    n->count++;
    snprintf(n->last, sizeof(n->last), "%s", sentence);
    n->stop = strstr(sentence, "waiting") != NULL;
}

TEST(waiting_client_learns_who_holds_the_workers)
{
    static notes n;
    gp_pool *holder = NULL, *waiter = NULL;
    gp_lease_request all = { 0 };
    gp_error err;

    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&holder, &(gp_pool_options){ .workers = 2 }, &err), err);
    REQUIRE_OK(gp_pool_open(&waiter, &(gp_pool_options){ .note = take_note, .context = &n }, &err), err);
    gp_free(pools_settled(holder));
    REQUIRE_OK(pool_lease(holder, &all, "train the-holder", NULL, &err), err);
    CHECK_STATUS(GP_EBUSY, pool_lease(waiter, &(gp_lease_request){ .no_wait = true }, "x", NULL, &err));
    CHECK_CONTAINS(err.message, "the-holder");

    /* the note callback requests a stop */
    CHECK_STATUS(GP_ECANCELED, pool_lease(waiter, &all, "x", &n.stop, &err));
    CHECK_CONTAINS(n.last, "the-holder");
    pool_release(holder);
    REQUIRE_OK(pool_lease(waiter, &all, "x", NULL, &err), err);
    CHECK_INT(2, waiter->grant.slots_count);
    CHECK_STATUS(GP_ENODEV, pool_lease(holder, &(gp_lease_request){ .workers_min = 5, .workers_max = 5 }, "x",
                                       NULL, &err));
    CHECK_CONTAINS(err.message, "gradpool up --workers 5");
    gp_pool_close(holder);
    gp_pool_close(waiter);
}

/* Wait until a process has stopped at a fault point. Return its pid; 0: none has. */
static pid_t await_fault(void)
{
    char reported[200] = "";

    AWAIT(slurp(in_root("reported"), reported, sizeof(reported)) > 0 && strchr(reported, '\n') != NULL, 1);
    pid_t pid = (pid_t)atoi(reported);

    return pid > 0 && await_stopped(pid) ? pid : 0;
}

/* Create directories for a pool whose processes have a fault and report it to a file. */
static void pools_begin_reporting(const char *fault)
{
    pools_begin(fault);
    setenv("GRADPOOL_FAULT_REPORT", in_root("reported"), 1);
}

static gp_pool *crossing_holder;
static volatile sig_atomic_t crossing_stop;

/* While the client waits in the queue, release the workers, and stop the wait once the scheduler
 * has sent the grant. */
static void stop_after_the_grant(void *context, const char *sentence)
{
    (void)context;
    if (strstr(sentence, "waiting") == NULL || crossing_stop != 0)
        return;
    pool_release(crossing_holder);
    pid_t scheduler = await_fault();

    CHECK(scheduler > 0);
    kill(scheduler, SIGCONT);
    crossing_stop = 1;
}

TEST(lease_granted_while_its_client_leaves_the_queue_is_released)
{
    gp_pool *waiter = NULL;
    gp_error err;

    pools_begin_reporting("answered:2:stop@1.1"); /* the second grant */
    crossing_stop = 0;
    REQUIRE_OK(gp_pool_open(&crossing_holder, &(gp_pool_options){ .workers = 2 }, &err), err);
    REQUIRE_OK(gp_pool_open(&waiter, &(gp_pool_options){ .note = stop_after_the_grant }, &err), err);
    REQUIRE_OK(pool_lease(crossing_holder, &(gp_lease_request){ 0 }, "holder", NULL, &err), err);
    CHECK_STATUS(GP_ECANCELED, pool_lease(waiter, &(gp_lease_request){ 0 }, "x", &crossing_stop, &err));
    CHECK_CONTAINS(err.message, "left the queue");
    REQUIRE(pools_leases(crossing_holder) == 0);
    REQUIRE_OK(pool_lease(waiter, &(gp_lease_request){ 0 }, "x", NULL, &err), err);
    gp_pool_close(waiter);
    gp_pool_close(crossing_holder);
}

static void stop_when_suspect(void *context, const char *sentence)
{
    notes *n = context;

    n->stop = n->stop || strstr(sentence, "no heartbeat") != NULL;
}

TEST(cancel_ends_the_wait_for_leased_workers)
{
    static notes n;
    gp_pool *pool = NULL;
    gp_error err;

    pools_begin_reporting("attached:1:stop@2.1");
    REQUIRE_OK(gp_pool_open(&pool,
                            &(gp_pool_options){
                                .workers = 2, .suspect_ms = 300, .note = stop_when_suspect, .context = &n },
                            &err),
               err);
    CHECK_STATUS(GP_ECANCELED, pool_lease(pool, &(gp_lease_request){ 0 }, "x", &n.stop, &err));
    CHECK_CONTAINS(err.message, "canceled before all leased workers");
    CHECK_INT(0, pools_leases(pool));
    gp_pool_close(pool);
}

/* Wait until the pool has that number of workers, none of which is starting. */
static void await_workers(gp_pool *pool, uint32_t workers)
{
    gp_error err;
    uint32_t count = 0;

    AWAIT(gp_pool_workers(pool, &count, &err) == GP_OK && count == workers, 5);
    gp_status_reply *reply = pools_settled(pool);

    CHECK_INT(workers, reply == NULL ? 0 : reply->workers_count);
    gp_free(reply);
}

TEST(a_pool_in_use_is_resized_when_the_lease_gives_workers_back)
{
    gp_pool *pool = NULL, *second = NULL;
    gp_error err;

    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = 2, .devices = "cpu" }, &err), err);
    REQUIRE_OK(gp_pool_open(&second, NULL, &err), err);
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "train lenet", NULL, &err), err);
    REQUIRE_OK(gp_pool_resize(pool, 3, NULL, &err), err);
    await_workers(pool, 3);

    /* another client gets the new worker at once */
    REQUIRE_OK(
        pool_lease(second, &(gp_lease_request){ .workers_min = 1, .workers_max = 1 }, "one", NULL, &err),
        err);
    REQUIRE_OK(gp_pool_resize(pool, 1, NULL, &err), err);
    CHECK(!pool->revoked);
    pool_release(second);
    pool_release(pool);
    await_workers(pool, 1);
    gp_pool_close(second);
    gp_pool_close(pool);
}

/* A child leases all workers and is killed; the lease must end. */
TEST(a_killed_client_frees_its_lease)
{
    gp_error err;
    int ready[2];
    char byte;

    pools_begin(NULL);
    if (pipe(ready) != 0)
        abort();
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        gp_pool *own;
        gp_status status = gp_pool_open(&own, &(gp_pool_options){ .workers = 2 }, &err);

        if (status == GP_OK)
            status = pool_lease(own, &(gp_lease_request){ 0 }, "hold", NULL, &err);
        byte = (char)status;
        if (write(ready[1], &byte, 1) == 1 && status == GP_OK)
            pause();
        _exit(1);
    }
    REQUIRE(read(ready[0], &byte, 1) == 1 && byte == GP_OK);
    gp_pool *pool = NULL;

    REQUIRE_OK(gp_pool_open(&pool, NULL, &err), err);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "next", NULL, &err), err);
    gp_pool_close(pool);
    close(ready[0]);
    close(ready[1]);
}

TEST(schedulers_that_exit_before_they_reply_are_an_error_in_time)
{
    gp_pool *pool = NULL;
    gp_error err;

    pools_begin_reporting("knocked:1:kill");
    CHECK_STATUS(GP_ETIMEDOUT,
                 gp_pool_open(&pool, &(gp_pool_options){ .workers = 1, .timeout_ms = 500 }, &err));
    if (count_in_file(in_root("reported"), "knocked") > 1) /* the host may be too slow for that */
        CHECK_CONTAINS(err.message, "exited before it replied");
    unsetenv("GRADPOOL_FAULT");
}

static void *open_in_thread(void *pool)
{
    gp_error err;

    if (gp_pool_open(pool, &(gp_pool_options){ .workers = 1 }, &err) != GP_OK)
        GP_TEST_FAIL("no pool: %s", err.message);
    return NULL;
}

/* The pool can be started again although a child that was forked during its start is alive. */
TEST(start_lock_is_free_in_spite_of_a_forked_child)
{
    gp_pool *pool = NULL;
    pthread_t thread;

    pools_begin_reporting("locked:1:stop@1.1");
    if (pthread_create(&thread, NULL, open_in_thread, &pool) != 0)
        abort();
    pid_t scheduler = await_fault();

    fflush(stdout);
    pid_t child = fork();

    if (child == 0)
        for (;;)
            pause();
    kill(scheduler, SIGCONT);
    pthread_join(thread, NULL);
    if (pool != NULL) {
        int lock = open(path_in(pool->paths.pool_dir, "start"), O_RDWR | O_CLOEXEC);

        CHECK_INT(0, flock(lock, LOCK_EX | LOCK_NB));
        close(lock);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    gp_pool_close(pool);
}

enum { STARTERS = 64, ROUNDS = 20, ROUNDS_MAX = 10000 };

static int by_size(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Run one child: open the pool, publish the scheduler's pid, wait for the signal to start, exit. */
static void starter(int gate, uint32_t *pid)
{
    gp_pool *pool;
    gp_error err;
    char byte;

    if (read(gate, &byte, 1) != 0) /* end of file starts all children at once */
        _exit(3);
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = 1, .timeout_ms = 2 * POOLS_TIMEOUT_MS }, &err) !=
        GP_OK) {
        fprintf(stderr, "starter: %s\n", err.message);
        _exit(2);
    }
    *pid = pool->scheduler_pid;
    gp_pool_close(pool);
    _exit(0);
}

/* GRADPOOL_ROUNDS: number of rounds [20]. */
TEST(sixty_four_starters_at_once_make_one_pool)
{
    static int took_ms[ROUNDS_MAX];
    const char *asked = getenv("GRADPOOL_ROUNDS");
    int rounds = asked != NULL && atoi(asked) > 0 && atoi(asked) <= ROUNDS_MAX ? atoi(asked) : ROUNDS;

    uint32_t *pids =
        mmap(NULL, STARTERS * sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    for (int round = 0; round < rounds && gp_test_failures == 0; round++) {
        pid_t children[STARTERS];
        int gate[2];

        pools_begin(NULL);
        if (pipe(gate) != 0)
            abort();
        fflush(stdout);
        for (int i = 0; i < STARTERS; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                close(gate[1]);
                starter(gate[0], &pids[i]);
            }
        }
        close(gate[0]);
        int64_t began_ms = gp_now_ms();

        close(gate[1]);
        for (int i = 0; i < STARTERS; i++) {
            int code = 0;

            waitpid(children[i], &code, 0);
            CHECK_INT(0, code);
            CHECK_INT(pids[0], pids[i]);
        }
        took_ms[round] = (int)(gp_now_ms() - began_ms);
        pools_end();
    }
    qsort(took_ms, (size_t)rounds, sizeof(took_ms[0]), by_size);
    printf("     %d rounds of %d starters: one scheduler each; all connected within %d ms, "
           "99 %% within %d ms, half within %d ms\n",
           rounds, STARTERS, took_ms[rounds - 1], took_ms[rounds * 99 / 100], took_ms[rounds / 2]);
    munmap(pids, STARTERS * sizeof(uint32_t));
}
