/* test_detached.c: results that another process fetches, after the program that made the call has
 * exited or was killed, and while schedulers and workers fail. */
#include <sys/resource.h>

#include "client/pool/result_store.h"
#include "client/team/result_keeper.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"
#include "tests/fault/failing.h"
#include "tests/service/killer.h"
#include "tests/service/teams.h"

enum { LONG_MS = POOLS_TIMEOUT_MS };

static const char *tasks(void)
{
    return in_build("tests/service/team_tasks.so");
}

/* Submit a call to the team and detach it. */
static gp_future *detach(const char *task, const void *argument, size_t bytes, uint32_t attempts,
                         const char *name, uint32_t reads)
{
    gp_parfeval_request request = {
        .function = team_function(tasks(), task), .argument = argument, .bytes = bytes, .attempts = attempts
    };
    gp_future *future = NULL;

    if (request.function == NULL || gp_parfeval(&future, team, &request, &err) != GP_OK ||
        gp_future_detach(future, &(gp_detach_options){ .name = name, .reads = reads }, NULL, &err) != GP_OK) {
        GP_TEST_FAIL("%s: %s", name, err.message);
        return NULL;
    }
    return future;
}

/* Detach a call that waits for the file GATE. It fails if it runs twice at the same time. */
static gp_future *detach_gated(const char *name, uint32_t attempts, uint32_t reads)
{
    return detach("hold_alone", in_root("gate"), strlen(in_root("gate")) + 1, attempts, name, reads);
}

/* Run a program that uses a pool of two workers. It closes nothing, and ends by _exit() or by
 * SIGKILL. */
static void program(void (*work)(void), bool killed)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        const gp_pool_options two = { .workers = 2, .devices = "cpu" };

        gp_test_failures = 0;
        if (gp_pool_open(&pool, &two, &err) != GP_OK || gp_team_open(&team, pool, NULL, &err) != GP_OK)
            GP_TEST_FAIL("no team: %s", err.message);
        else
            work();
        fflush(stdout);
        if (killed && gp_test_failures == 0)
            raise(SIGKILL);
        _exit(gp_test_failures == 0 ? 0 : 1);
    }
    int state = 0;

    waitpid(child, &state, 0);
    CHECK(killed ? WIFSIGNALED(state) : WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

/* Fetch a number from the pool of the test. */
static gp_status fetch_number(const char *name, uint32_t *number)
{
    void *data = NULL;
    size_t bytes = 0;
    gp_status status = gp_result_fetch(pool, name, LONG_MS, &data, &bytes, &err);

    *number = 0;
    if (status == GP_OK && bytes == sizeof(*number))
        memcpy(number, data, bytes);
    gp_buffer_free(data);
    return status;
}

static void attach(void)
{
    if (gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true, .timeout_ms = POOLS_TIMEOUT_MS },
                     &err) != GP_OK)
        GP_TEST_FAIL("no pool: %s", err.message);
}

/* Wait until the keeper has ended, so that no job is left. */
static void await_keeper(void)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/results/keeper", pool->paths.state_dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);

    CHECK(fd >= 0);
    AWAIT(gp_file_lock(fd) == GP_OK, 5);
    CHECK_STATUS(GP_OK, gp_file_lock(fd));
    if (fd >= 0)
        close(fd);
}

/* Add the result of a call that failed with GP_ETIMEDOUT. */
static void leave_failed(const char *name)
{
    const char message[] = "no answer from the instrument";
    result_head head = {
        .state = RESULT_READY, .status = GP_ETIMEDOUT, .reads_max = 9, .ttl_ms = 60000, .function = "measure"
    };
    result_store store;

    snprintf(head.key.name, sizeof(head.key.name), "%s", name);
    if (result_store_open(&store, pool->paths.state_dir, &err) != GP_OK ||
        result_add(&store, &head, message, sizeof(message), NULL, gp_unix_ms(), &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", name, err.message);
    result_store_close(&store);
}

static void leave_two(void)
{
    const double x = 7;
    gp_future *future = detach("square", &x, sizeof(x), 0, "nine", 0);

    CHECK_STATUS(GP_OK, gp_future_wait(future, LONG_MS, &err));
    gp_future_free(detach_gated("gated", 0, 1));
    leave_failed("late");
}

TEST(result_wait_separates_a_timeout_of_the_call_from_its_own)
{
    void *data = NULL;
    size_t bytes = 0;
    gp_status ended = GP_OK;

    REQUIRE(team_pool_begin(1));
    leave_failed("late");
    REQUIRE_OK(gp_result_wait(pool, "late", 0, &ended, &data, &bytes, &err), err);
    CHECK_STATUS(GP_ETIMEDOUT, ended);
    CHECK_TEXT("no answer from the instrument", data);
    CHECK_INT(strlen(data) + 1, bytes);
    gp_buffer_free(data);
    CHECK_STATUS(GP_ETIMEDOUT, gp_result_fetch(pool, "late", 0, &data, &bytes, &err));
    CHECK_TEXT("no answer from the instrument", err.message);
    CHECK_STATUS(GP_ENOENT, gp_result_wait(pool, "other", 0, &ended, &data, &bytes, &err));
}

TEST(result_outlives_a_program_that_exits)
{
    void *data = NULL;
    char *status = NULL;
    size_t bytes = 0;
    uint32_t number;

    pools_begin(NULL);
    program(leave_two, false);
    attach();
    REQUIRE(pool != NULL);
    for (int i = 0; i < 2; i++) { /* reads are not limited */
        CHECK_STATUS(GP_OK, gp_result_fetch(pool, "nine", 0, &data, &bytes, &err));
        CHECK(bytes == sizeof(double) && *(double *)data == 49);
        gp_buffer_free(data);
    }
    CHECK_STATUS(GP_ETIMEDOUT, gp_result_fetch(pool, "gated", 50, &data, &bytes, &err));
    REQUIRE_OK(gp_pool_status_json(pool, &status, &err), err);
    CHECK_CONTAINS(status, "\"kind\": \"results\"");
    gp_buffer_free(status);
    write_file("gate", "");
    CHECK_STATUS(GP_OK, fetch_number("gated", &number));
    CHECK_INT(7, number);
    CHECK_STATUS(GP_ESTATE, fetch_number("gated", &number));
    CHECK_STATUS(GP_ENOENT, fetch_number("other", &number));
    CHECK_STATUS(GP_OK, gp_result_remove(pool, "nine", &err));
    CHECK_STATUS(GP_ENOENT, fetch_number("nine", &number));
    await_keeper();
}

/* Run `gradpool results` with output to the file OUT. Return the exit code. */
static int results(const char *words)
{
    const int state = shell("'%s' results %s > out 2>&1", in_build("bin/gradpool"), words);

    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static const char *output(void)
{
    static char text[4000];

    slurp(in_root("out"), text, sizeof(text));
    return text;
}

TEST(command_lists_fetches_and_removes_results)
{
    double number = 0;

    pools_begin(NULL);
    program(leave_two, false);
    CHECK_INT(0, results("list"));
    CHECK_CONTAINS(output(), "nine   ready    square");
    CHECK_CONTAINS(output(), "gated  pending  hold_alone");

    /* The time-out of a call is not taken for that of the command. */
    CHECK_INT(1, results("get late --timeout 5"));
    CHECK_CONTAINS(output(), "the call of result 'late' failed: no answer from the instrument");
    CHECK_INT(0, results("list"));
    CHECK_CONTAINS(output(), "1/9");
    CHECK_INT(0, results("get nine --out number"));
    FILE *file = fopen(in_root("number"), "re");

    REQUIRE(file != NULL);
    CHECK_INT(1, fread(&number, sizeof(number), 1, file));
    CHECK_INT(EOF, fgetc(file));
    fclose(file);
    CHECK(number == 49);
    CHECK_INT(1, results("get gated --timeout 0.05"));
    CHECK_CONTAINS(output(), "the call of result 'gated' did not end within 0.05 s");
    write_file("gate", "");
    CHECK_INT(0, results("get gated"));
    CHECK_INT(1, results("get gated"));
    CHECK_CONTAINS(output(), "was read 1 time, as often as allowed");
    CHECK_INT(0, results("list --json"));
    CHECK_CONTAINS(output(), "\"state\": \"read\"");
    CHECK_INT(1, results("remove other nine"));
    CHECK_CONTAINS(output(), "there is no result 'other'");
    CHECK_INT(1, results("get nine"));
    CHECK_CONTAINS(output(), "there is no result 'nine'");
}

static void leave_running(void)
{
    gp_future_free(detach_gated("gated", 0, 1));

    /* Occupy the second worker with a call that must not run twice. */
    gp_future_free(detach("hold", in_root("hold"), strlen(in_root("hold")) + 1, 1, "once", 0));
    AWAIT(access(in_root("hold.begun"), F_OK) == 0, 2);
}

/* Fetch "gated" in a child process, which is attached to the pool on return; one read is allowed in
 * total. Exit code 0: it got the result; 1: another process has read it. */
static pid_t reader_start(void)
{
    int attached[2];
    char byte = 0;

    fflush(stdout);
    if (pipe2(attached, O_CLOEXEC) != 0)
        abort();
    pid_t child = fork();

    if (child == 0) {
        uint32_t number;

        attach();
        if (pool == NULL || write(attached[1], &byte, 1) != 1)
            _exit(3);
        gp_status status = fetch_number("gated", &number);

        _exit(status == GP_OK && number == 7 ? 0 : status == GP_ESTATE ? 1 : 2);
    }
    close(attached[1]);
    CHECK(read(attached[0], &byte, 1) == 1);
    close(attached[0]);
    return child;
}

TEST(call_of_a_killed_program_is_run_by_the_pool_and_read_once)
{
    uint32_t number;
    struct stat info;

    pools_begin(NULL);
    program(leave_running, true);
    pid_t readers[2] = { reader_start(), reader_start() };

    gp_sleep_ms(30);         /* lets them wait before the end; the outcome is the same without */
    kill(holder(), SIGKILL); /* the readers are attached and start another scheduler */
    write_file("gate", "");
    int first = child_exit_code(readers[0]), second = child_exit_code(readers[1]);

    CHECK(first + second == 1 && first * second == 0);
    attach();
    REQUIRE(pool != NULL);
    CHECK_STATUS(GP_EPEER, fetch_number("once", &number));
    CHECK_CONTAINS(err.message, "the process that made the call exited");
    CHECK_INT(0, stat(in_root("hold.begun"), &info));
    CHECK_INT(1, info.st_size);
}

TEST(call_that_never_started_is_run_by_the_pool_despite_one_attempt)
{
    gp_future *running, *next;
    gp_future_info info = { .state = GP_FUTURE_WAITING };
    uint32_t number;

    REQUIRE(team_pool_begin(1) && team_open(NULL));
    running = detach_gated("running", 1, 0);
    next = detach_gated("next", 1, 0); /* behind the first call, in the ring of the worker */
    REQUIRE(running != NULL && next != NULL);
    AWAIT((gp_future_get_info(running, &info), info.state == GP_FUTURE_RUNNING), 1);
    gp_team_close(team);
    team = NULL;
    write_file("gate", "");
    CHECK_STATUS(GP_OK, fetch_number("next", &number));
    CHECK_INT(7, number);
    CHECK_STATUS(GP_EPEER, fetch_number("running", &number));
}

TEST(call_of_a_closed_team_is_run_by_the_pool)
{
    static const char once[] = "once kill", always[] = "kill";
    char name[GP_RESULT_NAME_BYTES];
    uint32_t number;
    gp_future *future;
    double x = 3;

    REQUIRE(team_begin(2, NULL));
    gp_future_free(detach("die", once, sizeof(once), 0, "once-killed", 0));
    gp_future_free(detach("die", always, sizeof(always), 2, "killed", 0));
    future = detach_gated("gated", 0, 0);
    REQUIRE(future != NULL);
    CHECK_STATUS(GP_ESTATE, gp_future_detach(future, NULL, NULL, &err));
    CHECK_STATUS(GP_EPEER, fetch_number("killed", &number));
    CHECK_CONTAINS(err.message, "was killed by signal 9");

    /* Detach under a name that is in use, and, after the end of the call, under a random name. */
    gp_parfeval_request request = { .function = team_function(tasks(), "square"),
                                    .argument = &x,
                                    .bytes = sizeof(x) };

    REQUIRE(request.function != NULL);
    REQUIRE_OK(gp_parfeval(&future, team, &request, &err), err);
    CHECK_STATUS(GP_EBUSY, gp_future_detach(future, &(gp_detach_options){ .name = "gated" }, NULL, &err));
    CHECK_STATUS(GP_OK, gp_future_wait(future, LONG_MS, &err));
    CHECK_STATUS(GP_OK, gp_future_detach(future, NULL, name, &err));
    gp_team_close(team);
    team = NULL;
    CHECK_STATUS(GP_OK, fetch_number(name, &number));
    write_file("gate", "");
    CHECK_STATUS(GP_OK, fetch_number("gated", &number));
    CHECK_INT(7, number);
    CHECK_STATUS(GP_OK, fetch_number("once-killed", &number));
    CHECK(number >= 1);
}

/* Leave a call whose large result is never written completely: a fault holds the writer. The team
 * and the future must stay usable meanwhile. */
static void leave_unwritten(void)
{
    static const unsigned char large[4 << 20];

    alarm(20); /* the main thread must not wait for the writer */
    CHECK_STATUS(GP_OK, gp_fault_setup("result-written:1:hang", GP_FAULT_client, 1, 1, &err));
    gp_future *future = detach("echo", large, sizeof(large), 0, "large", 0), *other;
    gp_future_info info;

    REQUIRE(future != NULL);
    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(future, 500, &err));
    gp_future_get_info(future, &info);
    CHECK_INT(GP_FUTURE_RUNNING, info.state);
    REQUIRE_OK(gp_parfeval(&other, team,
                           &(gp_parfeval_request){ .function = team_function(tasks(), "nothing") }, &err),
               err);
    CHECK_STATUS(GP_OK, gp_future_wait(other, LONG_MS, &err));
}

TEST(team_continues_while_a_large_result_is_written)
{
    void *data = NULL;
    size_t bytes = 0;

    pools_begin(NULL);
    program(leave_unwritten, false);
    attach();
    REQUIRE(pool != NULL);
    CHECK_STATUS(GP_OK, gp_result_fetch(pool, "large", LONG_MS, &data, &bytes, &err));
    CHECK_INT(4 << 20, bytes);
    gp_buffer_free(data);
    await_keeper();
}

TEST(result_is_stored_after_a_lack_of_descriptors)
{
    struct rlimit full, none;
    char opened[200];
    void *data = NULL;
    size_t bytes;

    pools_begin(NULL);
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = 1, .devices = "cpu" }, &err), err);
    REQUIRE_OK(gp_team_open(&team, pool, NULL, &err), err);
    gp_future *future = detach_gated("gated", 0, 0);

    REQUIRE(future != NULL && getrlimit(RLIMIT_NOFILE, &full) == 0);
    write_file("gate.new", "");
    snprintf(opened, sizeof(opened), "%s", in_root("gate.new"));
    none = (struct rlimit){ .rlim_cur = 3, .rlim_max = full.rlim_max };
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &none));
    CHECK_INT(0, rename(opened, in_root("gate")));
    gp_status status = gp_future_wait(future, 300, &err);

    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &full));
    CHECK_STATUS(GP_ETIMEDOUT, status);
    CHECK_STATUS(GP_OK, gp_future_wait(future, LONG_MS, &err));
    gp_future_free(future);
    CHECK_STATUS(GP_OK, gp_result_fetch(pool, "gated", 0, &data, &bytes, &err));
    gp_buffer_free(data);
}

TEST(entry_is_released_although_the_first_try_fails)
{
    uint32_t number;

    REQUIRE(team_begin(1, NULL));
    gp_future_free(detach_gated("gated", 0, 0));
    failing_set("open:1:EMFILE:gated");
    gp_team_close(team);
    team = NULL;
    CHECK_INT(1, failing_struck());
    failing_set(NULL);
    write_file("gate", "");
    CHECK_STATUS(GP_OK, fetch_number("gated", &number));
    CHECK_INT(7, number);
    await_keeper();
}

TEST(future_stays_detached_if_its_entry_cannot_be_removed)
{
    const double x = 7;
    void *data = NULL;
    size_t bytes = 0;
    uint32_t number;

    REQUIRE(team_begin(1, NULL));
    failing_set("flock:2+:EIO:results/lock"); /* the first lock is that of the new entry */
    gp_future_free(detach_gated("gated", 0, 0));
    CHECK_INT(2, failing_struck());
    failing_set("open:1:EMFILE:lock"); /* the team has the results open */
    gp_future_free(detach("square", &x, sizeof(x), 0, "square", 0));
    CHECK_INT(1, failing_struck());
    failing_set(NULL);
    gp_team_close(team);
    team = NULL;
    write_file("gate", "");
    CHECK_STATUS(GP_OK, fetch_number("gated", &number));
    CHECK_INT(7, number);
    CHECK_STATUS(GP_OK, gp_result_fetch(pool, "square", LONG_MS, &data, &bytes, &err));
    CHECK(bytes == sizeof(double) && *(double *)data == 49);
    gp_buffer_free(data);
    await_keeper();
}

TEST(call_runs_again_if_its_result_cannot_be_stored)
{
    uint32_t number;

    REQUIRE(team_begin(1, NULL));
    gp_future *future = detach_gated("gated", 0, 0);

    REQUIRE(future != NULL);
    failing_set("open:1+:EMFILE:.t-"); /* the drafts of the result */
    write_file("gate", "");
    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(future, 300, &err));
    CHECK(failing_struck() > 0);
    gp_team_close(team);
    team = NULL;
    failing_set(NULL);
    CHECK_STATUS(GP_OK, fetch_number("gated", &number)); /* although this process is alive */
    CHECK_INT(7, number);
    await_keeper();
}

/* Add the entry of a call that no process runs, and whose task object is missing. */
static void leave_broken(const char *name)
{
    result_head head = {
        .state = RESULT_RELEASED, .ttl_ms = 60000, .attempts = 1, .object = "ab12", .function = "square"
    };
    result_store store;

    snprintf(head.key.name, sizeof(head.key.name), "%s", name);
    if (result_store_open(&store, pool->paths.state_dir, &err) != GP_OK ||
        result_add(&store, &head, NULL, 0, NULL, gp_unix_ms(), &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", name, err.message);
    result_store_close(&store);
}

static volatile sig_atomic_t keeper_stop;

static void stop_keeper(int number)
{
    (void)number;
    keeper_stop = 1;
}

/* Run a keeper in this process until all calls have ended. */
static void keeper_run(void)
{
    uint64_t count;

    keeper_stop = 0;
    signal(SIGALRM, stop_keeper);
    alarm(20);
    CHECK_STATUS(GP_OK, result_keeper_run(pool, &keeper_stop, &count, &err));
    alarm(0);
}

TEST(keeper_ends_a_call_although_its_error_cannot_be_stored_at_first)
{
    uint32_t number;

    REQUIRE(team_pool_begin(1));
    leave_broken("broken");
    failing_set("open:1:EMFILE:.t-"); /* the draft of the error */
    keeper_run();
    CHECK_INT(1, failing_struck());
    failing_set(NULL);
    CHECK_STATUS(GP_ENOENT, fetch_number("broken", &number));
    CHECK_CONTAINS(err.message, "ab12.so");
}

TEST(keeper_releases_a_call_that_none_of_its_teams_runs)
{
    result_head head;
    result_store store;
    void *argument = NULL;
    uint32_t number;

    REQUIRE(team_pool_begin(1));
    leave_broken("broken");
    REQUIRE_OK(result_store_open(&store, pool->paths.state_dir, &err), err);
    CHECK_STATUS(GP_OK, result_claim(&head, &argument, &store, "broken", 0, &err));
    gp_buffer_free(argument);
    result_store_close(&store);
    keeper_run();
    CHECK_STATUS(GP_EPEER, fetch_number("broken", &number)); /* the lost run was the only attempt */
}

TEST(fetch_with_a_timeout_does_not_wait_longer_for_the_scheduler)
{
    void *data = NULL;
    size_t bytes;

    REQUIRE(team_pool_begin(1));
    leave_broken("broken");
    pid_t scheduler = holder();

    kill(scheduler, SIGSTOP);
    const int64_t begun_ms = gp_now_ms();

    CHECK_STATUS(GP_ETIMEDOUT, gp_result_fetch(pool, "broken", 0, &data, &bytes, &err));
    CHECK_STATUS(GP_ETIMEDOUT, gp_result_fetch(pool, "broken", 100, &data, &bytes, &err));
    CHECK_CONTAINS(err.message, "did not end within 0.1 s");
    CHECK(gp_now_ms() - begun_ms < 5000); /* without a limit: 15 s */
    kill(scheduler, SIGCONT);
}

TEST(fetch_with_a_timeout_of_0_starts_the_keeper)
{
    gp_status status = GP_ETIMEDOUT;
    void *data = NULL;
    size_t bytes;

    REQUIRE(team_pool_begin(1));
    leave_broken("broken");
    AWAIT((status = gp_result_fetch(pool, "broken", 0, &data, &bytes, &err)) != GP_ETIMEDOUT, 10);
    CHECK_STATUS(GP_ENOENT, status); /* the keeper has refused the call */
    await_keeper();
}

/* ---- calls with needs ---- */

/* Start a pool whose last worker has a license. */
static bool licensed_begin(uint32_t workers)
{
    char resources[40];

    pools_begin(NULL);
    snprintf(resources, sizeof(resources), "%u:license", workers);
    if (gp_pool_open(&pool,
                     &(gp_pool_options){ .workers = workers, .devices = "cpu", .resources = resources },
                     &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no pool: %s", err.message);
    return false;
}

/* Detach a call that waits for the file `name` and needs resources. */
static void detach_needing(const char *needs, const char *name)
{
    gp_parfeval_request request = { .function = team_function(tasks(), "hold_alone"),
                                    .argument = in_root(name),
                                    .bytes = strlen(in_root(name)) + 1,
                                    .needs = needs };
    gp_future *future = NULL;

    if (gp_parfeval(&future, team, &request, &err) != GP_OK ||
        gp_future_detach(future, &(gp_detach_options){ .name = name }, NULL, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", name, err.message);
    gp_future_free(future);
}

/* Close the team before its calls have ended: the keeper runs them. */
static void leave_team(void)
{
    gp_team_close(team);
    team = NULL;
}

TEST(calls_with_different_needs_share_the_only_worker)
{
    uint32_t number;

    REQUIRE(licensed_begin(1) && team_open(NULL));
    detach_needing(NULL, "any");
    detach_needing("license", "licensed");
    leave_team();
    write_file("any", "");
    write_file("licensed", "");
    CHECK_STATUS(GP_OK, fetch_number("any", &number));
    CHECK_STATUS(GP_OK, fetch_number("licensed", &number));
    await_keeper();
}

TEST(call_that_waits_for_a_scarce_worker_does_not_delay_others)
{
    enum { OTHERS = 8 };
    gp_pool *rival = NULL;
    uint32_t number;
    char names[OTHERS][8];

    REQUIRE(licensed_begin(2));
    REQUIRE_OK(gp_pool_open(&rival, NULL, &err), err);
    REQUIRE_OK(pool_lease(rival, &(gp_lease_request){ .devices = "2" }, "rival", NULL, &err), err);
    REQUIRE(team_open(&(gp_team_options){ .elastic = true }));
    detach_needing("license", "licensed");
    for (int i = 0; i < OTHERS; i++) {
        snprintf(names[i], sizeof(names[i]), "any-%d", i);
        detach_needing(NULL, names[i]);
    }
    leave_team();
    for (int i = 0; i < OTHERS; i++)
        write_file(names[i], "");
    for (int i = 0; i < OTHERS; i++)
        CHECK_STATUS(GP_OK, fetch_number(names[i], &number));
    pool_release(rival);
    write_file("licensed", "");
    CHECK_STATUS(GP_OK, fetch_number("licensed", &number));
    gp_pool_close(rival);
    await_keeper();
}
