/* test_detached_kills.c: detached results while programs, schedulers, workers and keepers are
 * killed, at fault points and at random. */
#include "common/base/system/fault.h"
#include "tests/service/team/tasks/behave_tasks.h"
#include "tests/service/teams.h"

enum { WORKERS = 2, CALLS = 8, PROCESSES_MAX = 16, TRIES = 3 };

static const gp_pool_options two_workers = { .workers = WORKERS, .devices = "cpu" };

static const char *name_of(char name[GP_RESULT_NAME_BYTES], int32_t number)
{
    snprintf(name, GP_RESULT_NAME_BYTES, "call-%d", (int)number);
    return name;
}

static gp_future *call_alone(const gp_function *alone, int32_t number, int64_t ms)
{
    behave_tally argument = { .number = number, .ms = ms };
    gp_future *future = NULL;

    snprintf(argument.path, sizeof(argument.path), "%s/alone", pools_root);
    if (gp_parfeval(
            &future, team,
            &(gp_parfeval_request){
                .function = alone, .argument = &argument, .bytes = sizeof(argument), .attempts = 1000 },
            &err) != GP_OK)
        GP_TEST_FAIL("call %d: %s", (int)number, err.message);
    return future;
}

static bool detach(gp_future *future, int32_t number)
{
    char name[GP_RESULT_NAME_BYTES];
    gp_status status = GP_EIO;

    /* GP_EIO: the test killed a scheduler that started for the request of a keeper */
    for (int tries = 0; future != NULL && status == GP_EIO && tries < TRIES; tries++)
        status = gp_future_detach(future, &(gp_detach_options){ .name = name_of(name, number), .reads = 1 },
                                  NULL, &err);
    if (status != GP_OK)
        GP_TEST_FAIL("call %d: %s", (int)number, err.message);
    return status == GP_OK;
}

/* Open the pool, also if the test kills a scheduler that starts. */
static bool open_pool(void)
{
    gp_status status = GP_EIO;

    for (int tries = 0; status == GP_EIO && tries < TRIES; tries++)
        status = gp_pool_open(&pool, &two_workers, &err);
    if (status != GP_OK)
        GP_TEST_FAIL("no pool: %s", err.message);
    return status == GP_OK;
}

/* Open a team and return its function. */
static const gp_function *open_team(void)
{
    if (open_pool() && gp_team_open(&team, pool, NULL, &err) == GP_OK)
        return team_function(in_build("lib/behave_tasks.so"), "alone");
    GP_TEST_FAIL("no team: %s", err.message);
    return NULL;
}

/* The program of a round: detach calls with numbers from `first` and write each number to the pipe
 * once the call is detached. Then close the team, or exit without. */
static void detach_calls(int32_t first, unsigned seed, int acknowledged)
{
    const gp_function *alone = open_team();

    for (int32_t number = first; alone != NULL && number < first + CALLS; number++) {
        gp_future *future = call_alone(alone, number, rand_r(&seed) % 12);

        if (!detach(future, number) || write(acknowledged, &number, sizeof(number)) != sizeof(number))
            return;
        if (rand_r(&seed) % 2 == 0)
            gp_future_wait(future, (int)(rand_r(&seed) % 10), &err);
        gp_future_free(future);
    }
    if (rand_r(&seed) % 2 == 0) {
        gp_team_close(team);
        team = NULL;
    }
}

static pid_t program_start(int32_t first, unsigned seed, int *acknowledged)
{
    int ends[2];

    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) != 0)
        abort();
    pid_t child = fork();

    if (child == 0) {
        gp_test_failures = 0;
        close(ends[0]);
        detach_calls(first, seed, ends[1]);
        fflush(stdout);
        _exit(gp_test_failures == 0 ? 0 : 1);
    }
    close(ends[1]);
    *acknowledged = ends[0];
    return child;
}

/* Fetch a result, which only one process may do, and check that it is gone then. */
static void fetch_once(int32_t number)
{
    char name[GP_RESULT_NAME_BYTES];
    int64_t got = -1;
    void *data = NULL;
    size_t bytes = 0;
    gp_status status = gp_result_fetch(pool, name_of(name, number), POOLS_TIMEOUT_MS, &data, &bytes, &err);

    if (status != GP_OK) {
        GP_TEST_FAIL("%s: %s", name, err.message);
        return;
    }
    if (bytes == sizeof(got))
        memcpy(&got, data, bytes);
    gp_buffer_free(data);
    CHECK_INT(number, got);
    CHECK_STATUS(GP_ESTATE, gp_result_fetch(pool, name, 0, &data, &bytes, &err));
}

/* Fetch the results in a process of its own. */
static pid_t reader_start(const int32_t *numbers, int count)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        gp_test_failures = 0;
        open_pool();
        for (int i = 0; i < count && gp_test_failures == 0; i++)
            fetch_once(numbers[i]);
        fflush(stdout);
        _exit(gp_test_failures == 0 ? 0 : 1);
    }
    return child;
}

/* ---- fault points ---- */

typedef struct fault_case {
    const char *point, *fault;
    bool in_keeper; /* the program exits while its call runs, and the keeper has the fault */
} fault_case;

/* Detach call 1 and wait for its end, or exit before. */
static void detach_with_fault(const fault_case *c)
{
    const gp_function *alone;

    setenv("GRADPOOL_FAULT_REPORT", in_root("told"), 1);
    if (c->in_keeper) /* the job of the keeper inherits it */
        setenv("GRADPOOL_FAULT", c->fault, 1);
    else if (gp_fault_setup(c->fault, GP_FAULT_client, 1, 1, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", c->fault, err.message);
    alone = open_team();
    if (alone == NULL)
        return;
    gp_future *future = call_alone(alone, 1, c->in_keeper ? 500 : 5);

    if (detach(future, 1) && !c->in_keeper)
        gp_future_wait(future, -1, &err);
}

TEST(detached_result_survives_a_kill_at_every_fault_point)
{
    static const fault_case cases[] = {
        { "result-added", "result-added:1:kill", false },
        { "result-written", "result-written:1:kill", false },
        { "result-claimed", "result-claimed:1:kill@1.1", true },
        { "result-written", "result-written:1:kill@1.1", true },
    };
    const int32_t number = 1;
    char told[400];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pools_begin(NULL);
        fflush(stdout);
        pid_t program = fork();

        if (program == 0) {
            gp_test_failures = 0;
            detach_with_fault(&cases[i]);
            fflush(stdout);
            _exit(gp_test_failures);
        }
        CHECK_INT(cases[i].in_keeper ? 0 : -1, child_exit_code(program));
        CHECK_INT(0, child_exit_code(reader_start(&number, 1)));
        slurp(in_root("told"), told, sizeof(told));
        CHECK_CONTAINS(told, cases[i].point);
        pools_end();
    }
}

/* ---- random kills ---- */

/* Kill a random process of that program. Return how many were killed. */
static int kill_one(const char *program, unsigned *seed)
{
    pid_t pids[PROCESSES_MAX];
    uint32_t count = pool_processes(program, pids, PROCESSES_MAX);

    return count > 0 && kill(pids[(uint32_t)rand_r(seed) % count], SIGKILL) == 0;
}

/* Kill any of scheduler, worker and keeper. */
static int kill_some(unsigned *seed)
{
    int killed = 0;

    if (rand_r(seed) % 3 == 0)
        killed += kill_one("gradpool-scheduler", seed);
    if (rand_r(seed) % 2 == 0)
        killed += kill_one("gradpool-worker", seed);
    if (rand_r(seed) % 3 == 0)
        killed += kill_one("gradpool", seed); /* the job "results keep" */
    return killed;
}

/* Run a program and kill processes. Return the number of calls that it has detached. */
static int round_of(int32_t first, unsigned *seed, int32_t numbers[CALLS], int *killed)
{
    int acknowledged, count = 0, state = 0;
    pid_t program = program_start(first, (unsigned)rand_r(seed), &acknowledged);

    /* the first number: the program has a team */
    while (count < CALLS && read(acknowledged, &numbers[count], sizeof(numbers[0])) == sizeof(numbers[0])) {
        if (count++ > 0)
            continue;
        usleep((useconds_t)rand_r(seed) % 30000);
        *killed += kill_some(seed);
        if (rand_r(seed) % 2 == 0)
            *killed += kill(program, SIGKILL) == 0;
    }
    close(acknowledged);
    waitpid(program, &state, 0);
    CHECK(WIFSIGNALED(state) || WEXITSTATUS(state) == 0);
    CHECK(count > 0);
    return count;
}

/* Each detached call has one result, which is read once, and never runs twice at the same time.
 * GRADPOOL_TEST_KILLS, GRADPOOL_TEST_SEED: for longer runs by hand. */
TEST(each_detached_result_is_read_once_despite_random_kills)
{
    const char *kills = getenv("GRADPOOL_TEST_KILLS"), *given = getenv("GRADPOOL_TEST_SEED");
    const int wanted = kills != NULL ? atoi(kills) : 6;
    unsigned seed = given != NULL ? (unsigned)atoi(given) : (unsigned)getpid();
    int32_t first = 0, numbers[CALLS];
    int killed = 0, results = 0;

    pools_begin(NULL);
    printf("     seed %u, %d kills\n", seed, wanted);
    fflush(stdout);
    while (killed < wanted && gp_test_failures == 0) {
        int count = round_of(first, &seed, numbers, &killed);
        pid_t reader = reader_start(numbers, count);

        usleep((useconds_t)rand_r(&seed) % 30000);
        killed += kill_some(&seed);
        CHECK_INT(0, child_exit_code(reader));
        results += count;
        first += CALLS;
    }
    printf("     %d kills, %d results\n", killed, results);
}
