/* test_owned_pool.c: pools that end with the program that owns them. */
#include "tests/service/pools.h"

TEARDOWN()
{
    pools_end();
}

/* Count the files below a directory, without directories. */
static int files_found;

static int count_file(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)path;
    (void)status;
    (void)at;
    files_found += kind != FTW_D;
    return 0;
}

/* Count the directories and files with that name below the directories of the test. */
static const char *path_name;

static int count_path(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status;
    (void)kind;
    files_found += strcmp(path + at->base, path_name) == 0;
    return 0;
}

static int count_paths(const char *name)
{
    files_found = 0;
    path_name = name;
    nftw(pools_root, count_path, 16, FTW_PHYS);
    return files_found;
}

static int files_below(const char *directory)
{
    files_found = 0;
    nftw(directory, count_file, 16, FTW_PHYS);
    return files_found;
}

/* Count the processes that were started with the directories of this test. The test itself and its
 * forked children have the environment from before pools_begin(). */
static int processes_left(void)
{
    static char text[1 << 15];
    DIR *all = opendir("/proc");
    int found = 0;

    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        int pid = atoi(entry->d_name);
        ssize_t got = pid > 1 ? leftovers_read(pid, "environ", text, sizeof(text)) : -1;

        found += got > 0 && memmem(text, (size_t)got, pools_root, strlen(pools_root)) != NULL;
    }
    if (all != NULL)
        closedir(all);
    return found;
}

/* Check that the pool ends: no process, socket, log or job is left. */
static void check_nothing_left(void)
{
    AWAIT(processes_left() == 0, 5);
    CHECK_INT(0, processes_left());
    CHECK_INT(0, files_below(in_root("run")));
    CHECK_INT(0, files_below(in_root("state")));
}

/* Return the pid in the lock file of a pool. 0: no file. */
static int pools_scheduler(const char *name)
{
    char path[100], text[24];

    snprintf(path, sizeof(path), "run/%s/lock", name);
    slurp(in_root(path), text, sizeof(text));
    return atoi(text);
}

static gp_status open_owned(gp_pool **pool, const char *name, gp_error *err)
{
    return gp_pool_open(
        pool,
        &(gp_pool_options){ .pool = name, .workers = 3, .devices = "cpu", .owner_pid = (uint32_t)getpid() },
        err);
}

/* Start a child that owns a pool and runs `work` in it until it is killed. Returns after `work` has
 * returned. */
static pid_t owner_start(void (*work)(gp_pool *pool))
{
    int ready[2];
    char byte;

    fflush(stdout);
    if (pipe(ready) != 0)
        abort();
    pid_t child = fork();

    if (child == 0) {
        gp_pool *pool = NULL;
        gp_error err;

        if (open_owned(&pool, "mine", &err) != GP_OK) {
            printf("     no pool: %s\n", err.message);
            fflush(stdout);
            _exit(1);
        }
        work(pool);
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    CHECK_INT(1, read(ready[0], &byte, 1));
    close(ready[0]);
    return child;
}

static void end_process(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Occupy a worker with a task that ignores cancel requests, and another one with a job. */
static void work_deaf(gp_pool *pool)
{
    static const char *const words[] = { "spmd", "-n", "1", "--", "sleep", "100000", NULL };
    const char *begun = in_root("begun");
    gp_parfeval_request request = { .argument = begun, .bytes = strlen(begun) + 1 };
    gp_team *team = NULL;
    gp_job_info info = { .workers = 0 };
    char path[700];
    uint64_t job;
    gp_error err;

    snprintf(path, sizeof(path), "%s:sleep_deaf", in_build("tests/service/team_tasks.so"));
    if (gp_team_open(&team, pool, &(gp_team_options){ .lease = { .workers_min = 1, .workers_max = 1 } },
                     &err) != GP_OK ||
        gp_function_find(&request.function, team, path, &err) != GP_OK ||
        gp_parfeval(NULL, team, &request, &err) != GP_OK ||
        gp_job_submit(&job, pool, &(gp_job_request){ .words = words }, &err) != GP_OK) {
        printf("     %s\n", err.message);
        return;
    }
    AWAIT(access(begun, F_OK) == 0 && gp_job_get(&info, pool, job, &err) == GP_OK && info.workers == 1, 5);
}

static void work_none(gp_pool *pool)
{
    (void)pool;
}

TEST(pool_ends_with_its_killed_owner)
{
    pools_begin(NULL);
    setenv("GRADPOOL_CLIENT", in_build("bin/gradpool"), 1);
    pid_t owner = owner_start(work_deaf);

    /* scheduler, 3 workers, the job and its command */
    AWAIT(processes_left() >= 6, 5);
    CHECK(processes_left() >= 6);
    end_process(owner);
    check_nothing_left();
}

TEST(close_by_the_owner_waits_for_the_end_of_the_pool)
{
    gp_pool *pool = NULL, *same = NULL;
    gp_error err;

    pools_begin(NULL);
    REQUIRE_OK(open_owned(&pool, NULL, &err), err);
    CHECK(strncmp(gp_pool_name(pool), "owned-", 6) == 0);

    /* another handle attaches by name; closing it does not end the pool */
    REQUIRE_OK(gp_pool_open(&same, &(gp_pool_options){ .pool = gp_pool_name(pool) }, &err), err);
    CHECK_INT(pool->scheduler_pid, same->scheduler_pid);
    gp_pool_close(same);
    gp_free(pools_settled(pool));
    gp_pool_close(pool);
    CHECK_INT(0, processes_left());
    check_nothing_left();
}

TEST(a_running_pool_gets_no_owner)
{
    gp_pool *pool = NULL, *second = NULL;
    gp_error err;

    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = 1 }, &err), err);
    CHECK_STATUS(GP_EBUSY, open_owned(&second, "default", &err));
    CHECK_CONTAINS(err.message, "pool default is already running");
    CHECK_STATUS(GP_EINVAL,
                 gp_pool_open(&second, &(gp_pool_options){ .attach_only = true, .owner_pid = 1 }, &err));
    CHECK_STATUS(GP_ENOENT,
                 gp_pool_open(&second, &(gp_pool_options){ .pool = "none", .owner_pid = 1u << 30 }, &err));
    CHECK_CONTAINS(err.message, "no process has the pid 1073741824");
    gp_pool_close(pool);
}

TEST(logs_stay_if_an_earlier_pool_had_the_same_name)
{
    gp_pool *pool = NULL;
    gp_error err;

    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .pool = "mine", .workers = 1 }, &err), err);
    REQUIRE_OK(gp_pool_shutdown(pool, false, &err), err);
    REQUIRE_OK(pool_wait_gone(pool, POOLS_TIMEOUT_MS, &err), err);
    gp_pool_close(pool);
    REQUIRE_OK(open_owned(&pool, "mine", &err), err);
    gp_pool_close(pool);
    CHECK_INT(0, files_below(in_root("run")));
    CHECK(files_below(in_root("state")) > 0);
}

/* Connect to the pool of the owner. */
static gp_pool *attach(void)
{
    gp_pool *pool = NULL;
    gp_error err;

    if (gp_pool_open(&pool, &(gp_pool_options){ .pool = "mine", .attach_only = true }, &err) != GP_OK)
        GP_TEST_FAIL("cannot attach: %s", err.message);
    return pool;
}

TEST(the_next_scheduler_knows_the_owner)
{
    gp_error err;
    uint32_t workers;

    pools_begin(NULL);
    pid_t owner = owner_start(work_none);
    gp_pool *pool = attach();

    REQUIRE(pool != NULL);
    pid_t first = (pid_t)pool->scheduler_pid;

    gp_free(pools_settled(pool));
    kill(first, SIGKILL);
    AWAIT(gp_pool_workers(pool, &workers, &err) == GP_OK && pool->scheduler_pid != (uint32_t)first, 5);
    CHECK_INT(3, workers);
    end_process(owner);
    AWAIT(pool_is_gone(pool), 5);
    gp_pool_close(pool);
    check_nothing_left();
}

TEST(a_pool_whose_scheduler_and_owner_were_killed_is_not_resumed)
{
    gp_error err;

    pools_begin(NULL);
    pid_t owner = owner_start(work_none);
    gp_pool *pool = attach();

    REQUIRE(pool != NULL);
    pid_t scheduler = (pid_t)pool->scheduler_pid;

    gp_free(pools_settled(pool));
    end_process(owner);
    kill(scheduler, SIGKILL); /* at once: it may have begun to shut down */
    gp_pool_close(pool);
    REQUIRE_OK(open_owned(&pool, "mine", &err), err);
    gp_pool_close(pool);
    AWAIT(processes_left() == 0, 20);
    CHECK_INT(0, processes_left());
}

TEST(client_that_reconnects_does_not_resume_a_pool_whose_owner_was_killed)
{
    gp_error err;
    uint32_t workers;

    pools_begin(NULL);
    setenv("GRADPOOL_CLIENT", in_build("bin/gradpool"), 1);
    pid_t owner = owner_start(work_deaf);
    gp_pool *pool = attach();

    REQUIRE(pool != NULL);
    pid_t scheduler = (pid_t)pool->scheduler_pid;

    kill(scheduler, SIGSTOP); /* it does not notice the exit of the owner */
    end_process(owner);
    kill(scheduler, SIGKILL);
    CHECK(gp_pool_workers(pool, &workers, &err) != GP_OK);
    gp_pool_close(pool);
    check_nothing_left();
}

/* Kill every process of the pools of this test. */
static void kill_all(void)
{
    pid_t pids[32];
    uint32_t count;

    while ((count = pool_processes(NULL, pids, 32)) > 0) {
        for (uint32_t i = 0; i < count; i++)
            kill(pids[i], SIGKILL);
        gp_sleep_ms(1);
    }
}

TEST(next_pool_of_the_user_removes_the_files_of_pools_that_were_killed_with_their_owners)
{
    gp_pool *pool = NULL, *kept = NULL;
    gp_error err;

    pools_begin(NULL);
    pid_t owner = owner_start(work_none), other;

    kill((pid_t)pools_scheduler("mine"), SIGSTOP);
    end_process(owner);
    kill_all();
    other = owner_start(work_none); /* a pool of the same name, which runs while the next one starts */
    CHECK(files_below(in_root("run")) > 0);
    REQUIRE_OK(gp_pool_open(&kept, &(gp_pool_options){ .pool = "kept", .workers = 1 }, &err), err);
    CHECK(pools_scheduler("mine") > 0);
    kill((pid_t)pools_scheduler("mine"), SIGSTOP);
    end_process(other);
    kill_all();
    gp_pool_close(kept);

    /* the pool "kept" had no owner: its files stay */
    REQUIRE_OK(open_owned(&pool, NULL, &err), err);
    CHECK(access(in_root("run/mine"), F_OK) != 0);
    CHECK_INT(0, access(in_root("run/kept/record"), F_OK));
    gp_pool_close(pool);
    AWAIT(processes_left() == 0, 5);
    CHECK_INT(0, processes_left());
    CHECK_INT(0, count_paths("mine"));
}

TEST(workers_exit_if_the_scheduler_fails_when_the_owner_has_exited)
{
    gp_pool *pool = NULL;
    gp_error err;

    pools_begin("owner-exited:1:kill@1.1");
    end_process(owner_start(work_none));
    AWAIT(processes_left() == 0, 20);
    CHECK_INT(0, processes_left());
    CHECK(count_paths("mine") > 0);
    unsetenv("GRADPOOL_FAULT");
    REQUIRE_OK(open_owned(&pool, NULL, &err), err);
    gp_pool_close(pool);
    check_nothing_left();
}

TEST(no_process_outlives_an_owner_that_is_killed_while_it_starts_the_pool)
{
    pools_begin(NULL);
    for (int i = 0; i < 24; i++) {
        fflush(stdout);
        pid_t child = fork();

        if (child == 0) {
            gp_pool *pool = NULL;

            open_owned(&pool, NULL, NULL);
            for (;;)
                pause();
        }
        usleep((useconds_t)i * 1000);
        end_process(child);
    }
    AWAIT(processes_left() == 0, 5);
    CHECK_INT(0, processes_left());
}

/* Submit calls to an elastic team and detach some of them, until this process is killed. */
static void work_busy(gp_pool *pool)
{
    const double ms = 3;
    gp_parfeval_request request = { .argument = &ms, .bytes = sizeof(ms) };
    gp_team *team = NULL;
    char path[700];
    gp_error err;

    snprintf(path, sizeof(path), "%s:sleep_ms", in_build("tests/service/team_tasks.so"));
    if (gp_team_open(&team, pool, &(gp_team_options){ .elastic = true }, &err) != GP_OK ||
        gp_function_find(&request.function, team, path, &err) != GP_OK)
        return;
    for (int i = 0;; i++) {
        gp_future *future = NULL;

        if (gp_parfeval(&future, team, &request, &err) != GP_OK)
            return; /* the pool ended */
        if (i % 4 == 0)
            gp_future_detach(future, NULL, NULL, &err);
        gp_future_wait(future, 5, &err);
        gp_future_free(future);
    }
}

/* Own a pool and work in it, until this process is killed. Never returns. */
static void own_and_work(unsigned kind, int ready)
{
    gp_pool *pool = NULL;
    gp_error err;

    if (open_owned(&pool, "mine", &err) != GP_OK) {
        printf("     no pool: %s\n", err.message);
        fflush(stdout);
        _exit(1);
    }
    if (write(ready, "r", 1) != 1)
        _exit(1);
    if (kind == 1)
        work_deaf(pool);
    else if (kind == 2)
        work_busy(pool);
    for (;;)
        pause();
}

static int64_t milliseconds_of(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Kill an owner that works, after a random time, and return how long its pool took to end. */
static int64_t end_at_random(unsigned *seed)
{
    const unsigned kind = (unsigned)rand_r(seed) % 3;
    struct timespec begin, end;
    int ready[2];
    char byte;

    fflush(stdout);
    if (pipe(ready) != 0)
        abort();
    pid_t owner = fork();

    if (owner == 0)
        own_and_work(kind, ready[1]);
    close(ready[1]);
    CHECK_INT(1, read(ready[0], &byte, 1));
    close(ready[0]);
    usleep((useconds_t)rand_r(seed) % 100000);
    if (rand_r(seed) % 3 == 0) { /* a worker fails a short time before the owner */
        pid_t workers[3];
        uint32_t count = pool_processes("gradpool-worker", workers, 3);

        if (count > 0)
            kill(workers[(uint32_t)rand_r(seed) % count], SIGKILL);
        usleep((useconds_t)rand_r(seed) % 10000);
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    end_process(owner);
    AWAIT(processes_left() == 0, 2);
    clock_gettime(CLOCK_MONOTONIC, &end);
    check_nothing_left();
    return milliseconds_of(end) - milliseconds_of(begin);
}

static int order(const void *a, const void *b)
{
    return (*(const int64_t *)a > *(const int64_t *)b) - (*(const int64_t *)a < *(const int64_t *)b);
}

/* GRADPOOL_TEST_KILLS, GRADPOOL_TEST_SEED: for longer runs by hand. */
TEST(nothing_is_left_of_a_pool_whose_owner_is_killed_at_any_moment)
{
    enum { KILLS_MAX = 1000 };
    static int64_t took[KILLS_MAX];
    const char *given_kills = getenv("GRADPOOL_TEST_KILLS"), *given_seed = getenv("GRADPOOL_TEST_SEED");
    int kills = given_kills != NULL ? atoi(given_kills) : 4;
    unsigned seed = given_seed != NULL ? (unsigned)atoi(given_seed) : (unsigned)getpid();

    REQUIRE(kills >= 1 && kills <= KILLS_MAX);
    pools_begin(NULL);
    printf("     seed %u, %d kills\n", seed, kills);
    fflush(stdout);
    setenv("GRADPOOL_CLIENT", in_build("bin/gradpool"), 1);
    for (int i = 0; i < kills && gp_test_failures == 0; i++)
        took[i] = end_at_random(&seed);
    qsort(took, (size_t)kills, sizeof(took[0]), order);
    printf("     the pools ended within %d ms, half of them within %d ms\n", (int)took[kills - 1],
           (int)took[kills / 2]);
}
